//! What a person does with runs: see them, take them back, close what they left open.
//!
//! All of it works from what is in the cluster, after Job, pod and even the release are gone.

mod cleanup;
mod restore;
mod status;

use std::{ffi::OsString, process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use belay_runtime::{
    Meta, Registered,
    args::{AccessArgs, LogFormat},
    cluster::Cluster,
    kinds,
    object::text,
    program,
    report::Result as Ended,
    run::Ending,
};
use clap::{Parser, Subcommand};

/// How long an operation other than restore may take.
const PATIENCE: Duration = Duration::from_secs(60);

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

/// Flags of every operation.
#[derive(clap::Args, Clone)]
pub(crate) struct Shared {
    #[command(flatten)]
    access: AccessArgs,
    /// Namespace that keeps the family's lock, journals and reports [default: found by its Lease]
    #[arg(long, env = "BELAY_HOME", value_name = "NAMESPACE")]
    home: Option<String>,
}

impl Shared {
    async fn cluster(&self, patience: Duration) -> anyhow::Result<Arc<Cluster>> {
        let client = self.access.access().client().await.map_err(NoCluster)?;
        Ok(Arc::new(Cluster::new(client, 32, tokio::time::Instant::now() + patience)))
    }

    /// The homes of a family: the one that was given, or wherever its Lease is.
    async fn homes(&self, cluster: &Cluster, family: &str) -> anyhow::Result<Vec<String>> {
        if let Some(home) = &self.home {
            return Ok(vec![home.clone()]);
        }
        let mut homes = Vec::new();
        let selector = format!("belay.dev/family={family}");
        cluster
            .list(&kinds::LEASE, None, Some(&selector), |lease| match lease {
                Some(lease) => homes.extend(text(&lease, "/metadata/namespace").map(str::to_owned)),
                None => homes.clear(),
            })
            .await
            .context("the family's home could not be looked for; name it with --home")?;
        Ok(homes)
    }

    /// The one home of a step's family.
    async fn home_of(&self, cluster: &Cluster, meta: &Meta) -> anyhow::Result<String> {
        match self.homes(cluster, meta.family).await?.as_slice() {
            [home] => Ok(home.clone()),
            [] => anyhow::bail!(
                "the family {} has never run on this cluster: it has no Lease. Name its home with --home if you know it",
                meta.family
            ),
            several => anyhow::bail!(
                "the family {} has several homes ({}): name one with --home",
                meta.family,
                several.join(", ")
            ),
        }
    }
}

/// The `main` of `belay` itself.
#[must_use]
pub fn main(words: Vec<OsString>, steps: &[Registered]) -> ExitCode {
    let cli = match Cli::try_parse_from(words) {
        Ok(cli) => cli,
        Err(error) => return program::usage(&error),
    };
    let metas: Vec<Meta> = steps.iter().map(|step| step.meta).collect();
    if cli.list {
        for meta in &metas {
            println!("{:<28} {:<14} {}", meta.name, meta.family, meta.purpose);
        }
        return ExitCode::SUCCESS;
    }
    let Some(operation) = cli.command else {
        eprintln!(
            "belay: say what to do: a step's name (see belay --list), or an operation (see belay --help)"
        );
        return ExitCode::from(Ended::Usage.exit_code());
    };
    program::finish("belay", LogFormat::Text, async move {
        let ended = match operation {
            Operation::Status(args) => status::status(&args, &metas).await,
            Operation::Report(args) => status::report(&args, &metas).await,
            Operation::Restore(args) => restore::restore(&args, &metas).await,
            Operation::Accept(args) => restore::accept(&args, &metas).await,
            Operation::Unlock(args) => restore::unlock(&args, &metas).await,
            Operation::Cleanup(args) => cleanup::cleanup(&args, &metas).await,
        };
        ended.unwrap_or_else(|error| {
            let result = if error.is::<NoCluster>() { Ended::Usage } else { Ended::Refused };
            ending(result, format!("{error:#}"))
        })
    })
}

/// There is no cluster to talk to: bad configuration, not a refusal.
#[derive(Debug)]
struct NoCluster(anyhow::Error);

impl std::fmt::Display for NoCluster {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:#}", self.0)
    }
}

impl std::error::Error for NoCluster {}

fn ending(result: Ended, verdict: impl Into<String>) -> Ending {
    Ending { result, verdict: verdict.into() }
}

/// The step of this name.
fn step_named<'a>(metas: &'a [Meta], name: &str) -> anyhow::Result<&'a Meta> {
    metas.iter().find(|meta| meta.name == name).with_context(|| {
        let known: Vec<&str> = metas.iter().map(|meta| meta.name).collect();
        format!("there is no step '{name}': the steps are {}", known.join(", "))
    })
}
