//! Runs the step alone: `cargo run -p create-missing-sources -- --dry-run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_runtime::step_main::<create_missing_sources::CreateMissingSources>()
}
