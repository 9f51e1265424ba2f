//! `household tidy-up --shelf NAMESPACE`, or an operation: `household status`, `household restore --step tidy-up`.

use std::process::ExitCode;

use belay_runtime::Registered;
use household::TidyUp;

fn main() -> ExitCode {
    let steps = [Registered::of::<TidyUp>()];
    let mut words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if let Some(step) = steps.iter().find(|step| words.get(1).is_some_and(|word| word == step.meta.name)) {
        words.remove(0);
        return step.main(words);
    }
    operate::main(words, &steps)
}
