//! Runs the step alone: `cargo run -p scale-down-legacy -- --dry-run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_runtime::step_main::<scale_down_legacy::ScaleDownLegacy>()
}
