//! The fixture step as a program: `fixture-step fixture --workshop NAMESPACE`, or an operation of `belay` on it, such as
//! `fixture-step restore --step fixture`.

use std::process::ExitCode;

use belay_runtime::Registered;

fn main() -> ExitCode {
    operate::main(&[Registered::of::<fixture_step::Fixture>()])
}
