//! `household tidy-up --shelf NAMESPACE`, or an operation: `household status`, `household restore --step tidy-up`.

use std::process::ExitCode;

use belay_runtime::Registered;
use household::TidyUp;

fn main() -> ExitCode {
    operate::main(&[Registered::of::<TidyUp>()])
}
