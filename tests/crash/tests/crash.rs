//! Crash at every call, for every step. `cargo test --workspace --test crash -- --help` tells what can be chosen.

use std::process::ExitCode;

use crash_tests::{
    CreateMissingSources, Fixture, PurgeLegacy, RecreateServiceInstances, RecreateTriggers, Restore,
    RetireSubscriptions, ScaleDownLegacy, VerifyEventServices,
};

fn main() -> ExitCode {
    // The first makes every move there is, and gets most of a sample. The others: those that take longest first.
    harness::Suite::new()
        .with(Fixture)
        .with(RecreateServiceInstances { newer: true })
        .with(RecreateServiceInstances { newer: false })
        .with(RecreateTriggers)
        .with(ScaleDownLegacy)
        .with(RetireSubscriptions)
        .with(PurgeLegacy)
        .with(CreateMissingSources)
        .with(VerifyEventServices)
        .with(Restore::of(ScaleDownLegacy))
        .main()
}
