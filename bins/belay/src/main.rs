//! The one executable that the image ships.
//!
//! Called by a step's name (a hard link, as in the image, or the first argument) it is that step; called as `belay` it
//! is what a person operates with. One file for all: a dozen static binaries would be a dozen times as large.

use std::process::ExitCode;

fn main() -> ExitCode {
    operate::main(&belay::steps())
}
