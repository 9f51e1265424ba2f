//! Runs the step alone: `cargo run -p purge-legacy -- --dry-run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_runtime::step_main::<purge_legacy::PurgeLegacy>()
}
