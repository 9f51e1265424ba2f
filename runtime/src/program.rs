//! From the command line to the exit code.

use std::{ffi::OsString, io::Write as _, process::ExitCode, sync::Arc};

use clap::{Args as _, Command, FromArgMatches as _};
use futures::future::LocalBoxFuture;

use crate::{
    args::{Common, LogFormat},
    host::{Host, ThisMachine},
    logging,
    report::{Result as Ended, cut},
    run::{Ending, run},
    step::{Meta, Step, rbac, runtime_rules},
};

/// A step without its types: what a program that holds many steps needs of each.
#[derive(Clone, Copy)]
pub struct Registered {
    /// Facts about it.
    pub meta: Meta,
    story: Story,
}

/// What a command line, whose first word is the program's name, asks for on a host.
type Story = fn(Vec<OsString>, Arc<dyn Host>) -> Result<Told, clap::Error>;

/// What a command line asks for.
pub enum Told {
    /// A text, on standard output.
    Text(String),
    /// A story, which ends with an exit code.
    Story {
        /// How its log lines look.
        log_format: LogFormat,
        /// The story, up to the last log line.
        story: LocalBoxFuture<'static, u8>,
    },
}

impl Registered {
    /// Registers a step.
    #[must_use]
    pub fn of<S: Step>() -> Self {
        Self { meta: S::META, story: story::<S> }
    }

    /// What a command line, whose first word is the program's name, asks of this step on this host.
    pub fn story(&self, words: Vec<OsString>, host: Arc<dyn Host>) -> Result<Told, clap::Error> {
        (self.story)(words, host)
    }
}

/// The `main` of a step's own binary.
#[must_use]
pub fn step_main<S: Step>() -> ExitCode {
    main(story::<S>(std::env::args_os().collect(), ThisMachine::host()))
}

fn story<S: Step>(words: Vec<OsString>, host: Arc<dyn Host>) -> Result<Told, clap::Error> {
    let command = S::Args::augment_args(Common::augment_args(Command::new(S::META.name)));
    // After the flags: their own doc comments would take its place.
    let command = command.version(env!("CARGO_PKG_VERSION")).about(S::META.purpose).long_about(None);
    let matches = command.try_get_matches_from(words)?;
    let (mut common, own) = (Common::from_arg_matches(&matches)?, S::Args::from_arg_matches(&matches)?);
    common.complete(&*host);
    if common.print_rbac {
        let mut rules = S::needs(&own, &common).rules;
        rules.extend(runtime_rules(&S::META, &common));
        return Ok(Told::Text(serde_json::to_string_pretty(&rbac(&rules)).unwrap_or_default() + "\n"));
    }
    Ok(Told::Story {
        log_format: common.log_format,
        story: Box::pin(async move {
            let ending = run::<S>(host.clone(), &common, &own).await;
            conclude(S::META.name, &*host, &ending)
        }),
    })
}

/// Prints what clap has to say. Help and version are no errors; anything else is bad usage.
fn usage(error: &clap::Error) -> ExitCode {
    // Nowhere is left to report that printing failed.
    let _ = error.print();
    ExitCode::from(if error.use_stderr() { Ended::Usage.exit_code() } else { 0 })
}

/// Tells the verdict of a story: the last log line is the termination message is the exit code.
pub fn conclude(name: &str, host: &dyn Host, ending: &Ending) -> u8 {
    let verdict = cut(&format!("{name}: {}", ending.verdict));
    if host.variable("BELAY_POD_NAME").is_some()
        && let Err(error) = host.leave(&verdict)
    {
        log::warn!("the termination message could not be written: {error}");
    }
    match ending.result {
        Ended::Done | Ended::NothingToDo | Ended::TakenBack | Ended::Accepted => log::info!("{verdict}"),
        Ended::Terminated | Ended::NotNow => log::warn!("{verdict}"),
        _ => log::error!("{verdict}"),
    }
    ending.result.exit_code()
}

/// Does what a command line asks for, on this machine.
#[must_use]
pub fn main(told: Result<Told, clap::Error>) -> ExitCode {
    match told {
        Err(error) => usage(&error),
        Ok(Told::Text(text)) => {
            // Whoever reads only the first lines closes the pipe: not an error of ours.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(Told::Story { log_format, story }) => {
            logging::init(log_format);
            // Two threads: one for the calls, one so that the lock is renewed whatever the other is busy with.
            match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
                Ok(runtime) => ExitCode::from(runtime.block_on(story)),
                Err(error) => {
                    log::error!("cannot start: {error}");
                    ExitCode::from(Ended::Stopped.exit_code())
                }
            }
        }
    }
}
