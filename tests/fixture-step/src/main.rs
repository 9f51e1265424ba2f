//! The fixture step as a program: `fixture-step fixture --workshop NAMESPACE`, or an operation of `belay` on it, such as
//! `fixture-step restore --step fixture`.

use std::process::ExitCode;

use belay_runtime::Registered;

fn main() -> ExitCode {
    let mut words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let step = Registered::of::<fixture_step::Fixture>();
    if words.get(1).is_some_and(|word| word == step.meta.name) {
        words.remove(0);
        return step.main(words);
    }
    operate::main(words, &[step])
}
