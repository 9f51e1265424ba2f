//! Crash at every call, for every step. `cargo test --workspace --test crash -- --help` tells what can be chosen.

use std::process::ExitCode;

use crash_tests::{
    CreateMissingSources, Fixture, PurgeLegacy, RecreateServiceInstances, RecreateTriggers, Restore,
    RetireSubscriptions, ScaleDownLegacy, VerifyEventServices,
};

fn main() -> ExitCode {
    harness::Suite::new()
        .with(Fixture)
        .with(CreateMissingSources)
        .with(RecreateServiceInstances { newer: false })
        .with(RecreateServiceInstances { newer: true })
        .with(RecreateTriggers)
        .with(VerifyEventServices)
        .with(RetireSubscriptions)
        .with(ScaleDownLegacy)
        .with(PurgeLegacy)
        .with(Restore::of(ScaleDownLegacy))
        .main()
}
