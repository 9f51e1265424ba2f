//! What a person does with runs: see them, take them back, close what they left open.
//!
//! All of it works from what is in the cluster, after Job, pod and even the release are gone.

mod cleanup;
mod restore;
mod status;

use std::{
    collections::BTreeSet, ffi::OsString, io::Write as _, path::Path, process::ExitCode, sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use belay_runtime::{
    Failure, Host, Meta, Registered, ThisMachine,
    args::{AccessArgs, LogFormat},
    cluster::{Cluster, Halt},
    journal::Trouble,
    kinds,
    lock::NotLocked,
    object::text,
    program::{self, Told},
    report::Result as Ended,
    run::{Ending, stop_when_asked},
};
use clap::{CommandFactory as _, Parser, Subcommand, error::ErrorKind};

/// How long an operation other than restore may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a lock of which nothing can be known is watched: longer than a Lease lasts.
const WATCHED: Duration = Duration::from_secs(20);

/// How long a look may take: whoever asks sits there and waits.
const LOOK: Duration = Duration::from_secs(20);

#[derive(Parser)]
#[command(
    name = "belay",
    version,
    about = "Safe Helm upgrades that change live objects: run steps, see them, undo them"
)]
struct Cli {
    /// Name every step with its purpose, and exit.
    #[arg(long)]
    list: bool,
    #[command(subcommand)]
    command: Option<Operation>,
}

#[derive(Subcommand)]
enum Operation {
    /// Show every step: last verdict, when, objects touched, open journals, next command.
    Status(status::StatusArgs),
    /// Show what a step did to each object.
    Report(status::ReportArgs),
    /// Undo a finished or a broken run of a step, from its journal.
    Restore(restore::RestoreArgs),
    /// Close a journal that could not be undone: a person has looked, and all is well.
    Accept(restore::AcceptArgs),
    /// Release the lock of a family whose run has died.
    Unlock(restore::UnlockArgs),
    /// Remove what `helm uninstall` leaves behind of a release's hooks. Never an open journal.
    Cleanup(cleanup::CleanupArgs),
}

impl Operation {
    fn shared(&self) -> &Shared {
        match self {
            Self::Status(args) => &args.shared,
            Self::Report(args) => &args.shared,
            Self::Restore(args) => &args.shared,
            Self::Accept(args) => &args.shared,
            Self::Unlock(args) => &args.shared,
            Self::Cleanup(args) => &args.shared,
        }
    }
}

/// Flags of every operation.
#[derive(clap::Args, Clone)]
pub(crate) struct Shared {
    #[command(flatten)]
    access: AccessArgs,
    /// Namespace that keeps the family's lock, journals and reports [default: where its Lease or its reports are]
    #[arg(long, env = "BELAY_HOME", value_name = "NAMESPACE")]
    home: Option<String>,
    /// How log lines look.
    #[arg(long, env = "BELAY_LOG_FORMAT", value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: LogFormat,
}

/// Where a family lives.
struct Homes {
    names: Vec<String>,
    /// Why it might live elsewhere too: nobody could look.
    unsure: Option<Failure>,
}

impl Shared {
    /// The cluster, to change something in it.
    async fn cluster(&self, host: &Arc<dyn Host>, patience: Duration) -> anyhow::Result<Arc<Cluster>> {
        let cluster = Arc::new(self.connect(host, patience).await?);
        stop_when_asked(&cluster).context("cannot listen for SIGTERM")?;
        Ok(cluster)
    }

    /// The cluster, to look at it.
    async fn cluster_to_look_at(&self, host: &Arc<dyn Host>) -> anyhow::Result<Arc<Cluster>> {
        Ok(Arc::new(self.connect(host, LOOK).await?.impatient()))
    }

    async fn connect(&self, host: &Arc<dyn Host>, patience: Duration) -> anyhow::Result<Cluster> {
        let client = host.connect(&self.access.access()).await.map_err(BadUsage)?;
        Ok(Cluster::new(client, host.clone(), 32, patience))
    }

    /// The homes of a family: the one that was given, or wherever its Lease is. `helm uninstall` takes the Lease away and
    /// leaves the reports; without either the family can only be at its default.
    async fn homes(&self, cluster: &Cluster, meta: &Meta) -> Result<Homes, Failure> {
        if let Some(home) = &self.home {
            return Ok(Homes { names: vec![home.clone()], unsure: None });
        }
        let selector = format!("belay.dev/family={}", meta.family);
        let mut unsure = None;
        for kind in [kinds::LEASE, kinds::CONFIG_MAP] {
            let mut names = BTreeSet::new();
            let listed = cluster
                .list(&kind, None, Some(&selector), |found| match found {
                    Some(found) => names.extend(text(&found, "/metadata/namespace").map(str::to_owned)),
                    None => names.clear(),
                })
                .await;
            match listed {
                Ok(()) if names.is_empty() => {}
                Ok(()) => return Ok(Homes { names: names.into_iter().collect(), unsure: None }),
                Err(failure) if failure.is_forbidden() => unsure = Some(failure),
                Err(failure) => return Err(failure),
            }
        }
        Ok(Homes { names: vec![meta.default_home.to_owned()], unsure })
    }

    /// The one home of a step's family.
    async fn home_of(&self, cluster: &Cluster, meta: &Meta) -> anyhow::Result<String> {
        let (home, unsure) = self.one_home(cluster, meta).await?;
        if let Some(failure) = unsure {
            log::warn!(
                "taking {home} for the family's home, since looking for it is forbidden ({failure}); --home names another"
            );
        }
        Ok(home)
    }

    /// The one home of a step's family, for whoever takes away what a run there would need: a guess is not enough.
    async fn home_for_sure(&self, cluster: &Cluster, meta: &Meta) -> anyhow::Result<String> {
        match self.one_home(cluster, meta).await? {
            (home, None) => Ok(home),
            (_, Some(failure)) => anyhow::bail!(
                "the home of the family {} is not known, since looking for it is forbidden ({failure}): name it with --home",
                meta.family
            ),
        }
    }

    /// The one home of a step's family, and why it might live elsewhere.
    async fn one_home(&self, cluster: &Cluster, meta: &Meta) -> anyhow::Result<(String, Option<Failure>)> {
        let homes =
            self.homes(cluster, meta).await.context("the home of the family could not be looked for")?;
        match homes.names.as_slice() {
            [home] => Ok((home.clone(), homes.unsure)),
            several => anyhow::bail!(
                "the family {} has several homes ({}): name one with --home",
                meta.family,
                several.join(", ")
            ),
        }
    }
}

/// The `main` of a program that holds these steps.
///
/// Called by a step's name (a hard link to it, or the first argument) it is that step; else it is what a person operates
/// with.
#[must_use]
pub fn main(steps: &[Registered]) -> ExitCode {
    program::main(story(std::env::args_os().collect(), steps, ThisMachine::host()))
}

/// What a command line, whose first word is the program's name, asks for on this host.
pub fn story(
    mut words: Vec<OsString>,
    steps: &[Registered],
    host: Arc<dyn Host>,
) -> Result<Told, clap::Error> {
    let named = |word: Option<&OsString>| {
        let name = Path::new(word?).file_name()?.to_str()?.to_owned();
        steps.iter().find(|step| step.meta.name == name)
    };
    if let Some(step) = named(words.first()) {
        return step.story(words, host);
    }
    if let Some(step) = named(words.get(1)) {
        words.remove(0);
        return step.story(words, host);
    }
    let cli = Cli::try_parse_from(words)?;
    let metas: Vec<Meta> = steps.iter().map(|step| step.meta).collect();
    if cli.list {
        let line = |meta: &Meta| format!("{:<28} {:<14} {}\n", meta.name, meta.family, meta.purpose);
        return Ok(Told::Text(metas.iter().map(line).collect()));
    }
    let Some(operation) = cli.command else {
        let why = "say what to do: a step's name (see belay --list), or an operation (see belay --help)";
        return Err(Cli::command().error(ErrorKind::MissingSubcommand, why));
    };
    let log_format = operation.shared().log_format;
    let story = async move {
        let ended = match operation {
            Operation::Status(args) => status::status(&host, &args, &metas).await,
            Operation::Report(args) => status::report(&host, &args, &metas).await,
            Operation::Restore(args) => restore::restore(&host, &args, &metas).await,
            Operation::Accept(args) => restore::accept(&host, &args, &metas).await,
            Operation::Unlock(args) => restore::unlock(&host, &args, &metas).await,
            Operation::Cleanup(args) => cleanup::cleanup(&host, &args, &metas).await,
        };
        program::conclude("belay", &*host, &ended.unwrap_or_else(|error| failed(&error)))
    };
    Ok(Told::Story { log_format, story: Box::pin(story) })
}

/// Prints. Whoever reads only the first lines closes the pipe: that is not an error of ours.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// The ending of an operation that could not be carried out.
fn failed(error: &anyhow::Error) -> Ending {
    match halt_in(error) {
        _ if error.is::<BadUsage>() => ending(Ended::Usage, format!("{error:#}")),
        Some(Halt::Terminated) => {
            ending(Ended::Terminated, "told to stop: the same command goes on from here")
        }
        Some(halt) => {
            ending(Ended::Stopped, format!("stopped at once: {halt}. The same command goes on from here"))
        }
        None => ending(Ended::Refused, format!("{error:#}")),
    }
}

/// Why nothing more may be done, if that is what an error is about.
fn halt_in(error: &anyhow::Error) -> Option<&Halt> {
    error.chain().find_map(|cause| {
        let failure = cause
            .downcast_ref::<Failure>()
            .or_else(|| match cause.downcast_ref::<Trouble>()? {
                Trouble::Call(failure) => Some(failure),
                Trouble::Unusable(_) => None,
            })
            .or_else(|| match cause.downcast_ref::<NotLocked>()? {
                NotLocked::Call(failure) => Some(failure),
                _ => None,
            });
        match failure {
            Some(Failure::Halted(halt)) => Some(halt),
            _ => cause.downcast_ref::<Halt>(),
        }
    })
}

/// A step that does not exist, or no cluster to talk to: bad usage, not a refusal.
#[derive(Debug)]
struct BadUsage(anyhow::Error);

impl std::fmt::Display for BadUsage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:#}", self.0)
    }
}

impl std::error::Error for BadUsage {}

fn ending(result: Ended, verdict: impl Into<String>) -> Ending {
    Ending { result, verdict: verdict.into() }
}

/// So many of something that takes an s when it is not one.
fn number_of(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The step of this name.
fn step_named<'a>(metas: &'a [Meta], name: &str) -> anyhow::Result<&'a Meta> {
    metas.iter().find(|meta| meta.name == name).ok_or_else(|| {
        let known: Vec<&str> = metas.iter().map(|meta| meta.name).collect();
        let known = known.join(", ");
        BadUsage(anyhow::anyhow!("there is no step '{name}': the steps are {known}")).into()
    })
}

/// A step of the family of this name.
fn family_named<'a>(metas: &'a [Meta], name: &str) -> anyhow::Result<&'a Meta> {
    metas.iter().find(|meta| meta.family == name).ok_or_else(|| {
        let mut known: Vec<&str> = metas.iter().map(|meta| meta.family).collect();
        known.dedup();
        let known = known.join(", ");
        BadUsage(anyhow::anyhow!("there is no family '{name}': the families are {known}")).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_of_an_operation_is_also_an_environment_variable() {
        let command = Cli::command();
        let mut flags = 0;
        for operation in command.get_subcommands() {
            for flag in operation.get_arguments().filter(|arg| arg.get_long().is_some()) {
                let variable = format!("BELAY_{}", flag.get_id().as_str().to_uppercase());
                let env = flag.get_env().and_then(|env| env.to_str());
                assert_eq!(env, Some(variable.as_str()), "{}", operation.get_name());
                flags += 1;
            }
        }
        assert!(flags > 20, "{flags}");
    }

    #[test]
    fn one_is_not_many() {
        assert_eq!([0, 1, 2].map(|count| number_of(count, "move")), ["0 moves", "1 move", "2 moves"]);
    }

    #[test]
    fn what_a_step_takes_as_output_status_takes_too() {
        for (output, is_taken) in [("text", true), ("table", true), ("json", true), ("xml", false)] {
            assert_eq!(Cli::try_parse_from(["belay", "status", "-o", output]).is_ok(), is_taken, "{output}");
        }
    }

    #[test]
    fn an_operation_that_is_told_to_stop_ends_like_a_run_that_is() {
        let halted = || Failure::Halted(Halt::Terminated);
        for error in [
            anyhow::Error::new(Halt::Terminated),
            anyhow::Error::new(halted()).context("while reading"),
            anyhow::Error::new(Trouble::Call(halted())).context("the journal"),
            anyhow::Error::new(NotLocked::Call(halted())),
        ] {
            assert_eq!(failed(&error).result, Ended::Terminated, "{error:#}");
        }
        let lost = Failure::Halted(Halt::LockLost("taken".into()));
        assert_eq!(failed(&anyhow::Error::new(lost)).result, Ended::Stopped);
        assert_eq!(failed(&anyhow::anyhow!("no")).result, Ended::Refused);
        let none = BadUsage(anyhow::anyhow!("nowhere"));
        assert_eq!(failed(&anyhow::Error::new(none)).result, Ended::Usage);
    }
}
