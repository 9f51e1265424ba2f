//! Crash at every call, for every step. See `--help`.

use std::process::ExitCode;

fn main() -> ExitCode {
    harness::Suite::new().main()
}
