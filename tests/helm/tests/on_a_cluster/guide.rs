//! The upgrade guide itself: what it tells its reader to run is run, and what it quotes is said. The commands are run in
//! `migration.rs`.

/// What the guide's commands are called, in the order in which the tests run them.
pub const LOOK_FIRST: &str = "look-first";
pub const UPGRADE: &str = "upgrade";
pub const LOOK: &str = "look";
pub const PURGE: &str = "purge";
pub const UNDO_WITH_KUBECTL: &str = "undo-with-kubectl";
pub const UNDO: [&str; 3] = ["undo-the-second-half", "undo-the-chart", "undo-the-first-half"];

mod core {
    use std::fs;

    use helm_tests::{guide, programs::needed};

    use super::{LOOK, LOOK_FIRST, PURGE, UNDO, UNDO_WITH_KUBECTL, UPGRADE};

    /// A block that no test runs may be wrong.
    #[test]
    fn every_command_of_the_guide_is_run_by_a_test() {
        let mut run = [&[LOOK_FIRST, UPGRADE, LOOK, PURGE, UNDO_WITH_KUBECTL][..], &UNDO].concat();
        run.sort_unstable();
        let mut there = guide::names();
        there.sort_unstable();
        assert_eq!(there, run);
    }

    /// A reader looks for what the step said.
    #[test]
    fn the_guide_quotes_the_steps_in_their_own_words() {
        let steps = fs::read(needed("BELAY_BIN", "the belay executable")).unwrap();
        let quotations = guide::quotations();
        assert!(quotations.len() > 15, "{quotations:?}");
        let steps = String::from_utf8_lossy(&steps);
        for quotation in quotations {
            assert!(steps.contains(&quotation), "no step says {quotation:?}");
        }
    }
}
