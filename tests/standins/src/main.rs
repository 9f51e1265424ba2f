//! The stand-ins as a program: for demos, for benchmarks, and inside the test image.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use standins::landscape::{Scene, Size};
use standins::seed::{Seed, seed};
use standins::{Behaviour, Family, Standins, cluster, install_crds, policies};
use tokio::signal::unix::{SignalKind, signal};

/// Plays the systems around the steps, on a real API server.
#[derive(Parser)]
#[command(version)]
struct Cli {
    /// Kubeconfig to use instead of what kubectl would use.
    #[arg(long, global = true, env = "BELAY_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the controllers until told to stop.
    Run(Box<Behaviour>),
    /// Install the CRDs of a family and wait until they are served.
    InstallCrds {
        /// Whose CRDs.
        #[arg(value_enum)]
        family: Family,
        /// Take them from this folder, or from the family's folder in it, instead of ours.
        #[arg(long, value_name = "DIR")]
        from: Option<PathBuf>,
        /// Also install the rules that webhooks of the real system enforced, as admission policies.
        #[arg(long)]
        with_policies: bool,
    },
    /// Create a small legacy landscape.
    Seed(Seed),
    /// Create a whole landscape from before the mesh. The stand-ins must be running.
    Landscape(Size),
    /// Do nothing until told to stop: the program of workloads that only have to be there.
    Sleep {
        /// What the real program would have been told.
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        ignored: Vec<String>,
    },
}

#[tokio::main]
async fn main() -> Result<()> {
    // Not kube's own lines: they repeat every failed call of an API server that is away.
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("off,standins=info")).init();
    let cli = Cli::parse();
    if matches!(cli.command, Command::Sleep { .. }) {
        return told_to_stop().await;
    }
    let client = cluster::connect(cli.kubeconfig.as_deref()).await?;
    match cli.command {
        Command::Run(behaviour) => {
            let standins = Standins::start(&client, *behaviour);
            log::info!("stand-ins are running");
            told_to_stop().await?;
            standins.stop().await;
        }
        Command::InstallCrds { family, from, with_policies } => {
            install_crds(&client, family, from.as_deref()).await?;
            if with_policies {
                policies::install(&client).await?;
            }
            log::info!("the CRDs of {} are served", family.name());
        }
        Command::Seed(wanted) => {
            seed(&client, &wanted).await?;
            log::info!("seeded {} Applications and the workloads of the Event Bus", wanted.applications);
        }
        Command::Landscape(size) => {
            Scene::many(size).fill(&client).await?;
            log::info!(
                "{} instances and {} legacy Subscriptions are in use",
                size.instances,
                size.subscriptions
            );
        }
        Command::Sleep { .. } => {}
    }
    Ok(())
}

/// Returns on SIGTERM or Ctrl-C. As process 1 of a container nothing else would end us.
async fn told_to_stop() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
