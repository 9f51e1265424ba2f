//! Crash at every call, for every step. `cargo test --workspace --test crash -- --help` tells what can be chosen.

use std::process::ExitCode;

use crash_tests::Visitor;
use harness::{Scenario, Suite};

struct All(Suite);

impl Visitor for All {
    fn visit<S: Scenario>(&mut self, scenario: S) {
        self.0 = std::mem::take(&mut self.0).with(scenario);
    }
}

fn main() -> ExitCode {
    let mut all = All(Suite::new());
    crash_tests::scenarios(&mut all);
    all.0.main()
}
