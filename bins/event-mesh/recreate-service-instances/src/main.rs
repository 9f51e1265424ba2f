//! Runs the step alone: `cargo run -p recreate-service-instances -- --dry-run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_runtime::step_main::<recreate_service_instances::RecreateServiceInstances>()
}
