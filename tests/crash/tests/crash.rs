//! Crash at every call, for every step. `cargo test -p crash-tests -- --help` tells what can be chosen.

use std::process::ExitCode;

use crash_tests::{CreateMissingSources, Fixture, ScaleDownLegacy};

fn main() -> ExitCode {
    harness::Suite::new().with(Fixture).with(CreateMissingSources).with(ScaleDownLegacy).main()
}
