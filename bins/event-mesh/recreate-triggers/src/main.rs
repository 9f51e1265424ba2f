//! Runs the step alone: `cargo run -p recreate-triggers -- --dry-run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_runtime::step_main::<recreate_triggers::RecreateTriggers>()
}
