//! Runs the step alone: `cargo run -p retire-subscriptions -- --dry-run`.

use std::process::ExitCode;

fn main() -> ExitCode {
    belay_runtime::step_main::<retire_subscriptions::RetireSubscriptions>()
}
