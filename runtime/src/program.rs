//! From the command line to the exit code.

use std::{ffi::OsString, io::Write as _, process::ExitCode};

use clap::{Args as _, Command, FromArgMatches as _};

use crate::{
    args::{Common, LogFormat},
    logging,
    report::{Result as Ended, cut},
    run::{Ending, run},
    step::{Meta, Step, rbac, runtime_rules},
};

/// Where a container's last words go.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// A step without its types: what a program that holds many steps needs of each.
#[derive(Clone, Copy)]
pub struct Registered {
    /// Facts about it.
    pub meta: Meta,
    main: fn(Vec<OsString>) -> ExitCode,
}

impl Registered {
    /// Registers a step.
    #[must_use]
    pub fn of<S: Step>() -> Self {
        Self { meta: S::META, main: step_main_with::<S> }
    }

    /// Runs it with a command line whose first word is the program's name.
    #[must_use]
    pub fn main(&self, words: Vec<OsString>) -> ExitCode {
        (self.main)(words)
    }
}

/// The `main` of a step's own binary.
#[must_use]
pub fn step_main<S: Step>() -> ExitCode {
    step_main_with::<S>(std::env::args_os().collect())
}

fn step_main_with<S: Step>(words: Vec<OsString>) -> ExitCode {
    let command = S::Args::augment_args(Common::augment_args(Command::new(S::META.name)));
    // After the flags: their own doc comments would take its place.
    let command = command.version(env!("CARGO_PKG_VERSION")).about(S::META.purpose).long_about(None);
    let parsed = command
        .try_get_matches_from(words)
        .and_then(|matches| Ok((Common::from_arg_matches(&matches)?, S::Args::from_arg_matches(&matches)?)));
    let (common, own) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    if common.print_rbac {
        let mut rules = S::needs(&own, &common).rules;
        rules.extend(runtime_rules(&S::META, &common));
        let text = serde_json::to_string_pretty(&rbac(&rules)).unwrap_or_default();
        // Whoever reads only the first lines closes the pipe: not an error of ours.
        let _ = writeln!(std::io::stdout(), "{text}");
        return ExitCode::SUCCESS;
    }
    finish(S::META.name, common.log_format, run::<S>(&common, &own))
}

/// Prints what clap has to say. Help and version are no errors; anything else is bad usage.
#[must_use]
pub fn usage(error: &clap::Error) -> ExitCode {
    // Nowhere is left to report that printing failed.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { Ended::Usage.exit_code() } else { 0 })
}

/// Leaves a verdict where the kubelet looks for it. The file is its own: where there is none, this is no pod.
fn leave(verdict: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(TERMINATION_LOG)?;
    file.write_all(verdict.as_bytes())
}

/// Runs a story to its end and tells its verdict: the last log line is the termination message is the exit code.
pub fn finish(name: &str, format: LogFormat, story: impl Future<Output = Ending>) -> ExitCode {
    logging::init(format);
    // Two threads: one for the calls, one so that the lock is renewed whatever the other is busy with.
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            log::error!("{name}: cannot start: {error}");
            return ExitCode::from(Ended::Stopped.exit_code());
        }
    };
    let ending = runtime.block_on(story);
    let verdict = cut(&format!("{name}: {}", ending.verdict));
    if std::env::var_os("BELAY_POD_NAME").is_some()
        && let Err(error) = leave(&verdict)
    {
        log::warn!("the termination message could not be written: {error}");
    }
    match ending.result {
        Ended::Done | Ended::NothingToDo | Ended::TakenBack | Ended::Accepted => log::info!("{verdict}"),
        Ended::Terminated | Ended::NotNow => log::warn!("{verdict}"),
        _ => log::error!("{verdict}"),
    }
    ExitCode::from(ending.result.exit_code())
}
