//! Runs the step alone: `cargo run -p verify-event-services -- --dry-run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_runtime::step_main::<verify_event_services::VerifyEventServices>()
}
