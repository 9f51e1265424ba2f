//! Taking back, accepting, unlocking. Each takes the family's lock first, so none works while a run is alive.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use belay_runtime::{
    Meta,
    act::Actor,
    args::duration,
    cluster::{Cluster, Failure},
    journal::{Entry, Journal, Ledger, Status, now},
    lock::{Lock, NotLocked},
    plan::Undo,
    report::{self, Report, Result as Ended},
    run::Ending,
    undo,
};
use tokio::{sync::Mutex, time::Instant};

use crate::{PATIENCE, Shared, ending, step_named};

/// How long a lock of which nothing can be known is watched: longer than a Lease lasts.
const WATCHED: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    shared: Shared,
    /// The step to undo.
    #[arg(long, env = "BELAY_STEP", value_name = "NAME")]
    step: String,
    /// Show what would be taken back, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// How long it may take.
    #[arg(long, env = "BELAY_DEADLINE", value_parser = duration, default_value = "5m", value_name = "TIME")]
    deadline: Duration,
}

#[derive(clap::Args)]
pub(crate) struct AcceptArgs {
    #[command(flatten)]
    shared: Shared,
    /// The step whose journal to close.
    #[arg(long, value_name = "NAME")]
    step: String,
    /// What you found, for whoever looks next.
    #[arg(long, default_value = "", value_name = "TEXT")]
    remark: String,
}

#[derive(clap::Args)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    shared: Shared,
    /// The family whose lock to release.
    #[arg(long, value_name = "NAME")]
    family: String,
}

pub(crate) async fn restore(args: &RestoreArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let started = (Instant::now(), now());
    let cluster = args.shared.cluster(args.deadline).await?;
    let meta = step_named(metas, &args.step)?;
    let home = args.shared.home_of(&cluster, meta).await?;
    if args.dry_run {
        let ledger = Ledger::load(&cluster, &home, meta.name).await?;
        let journal = restorable(&ledger, meta)?.clone();
        refuse_later_steps(&cluster, &home, meta).await?;
        let entries = ledger.entries(&journal).await?;
        for entry in entries.all().iter().rev() {
            println!("{}", what_undo_does(entry));
        }
        return Ok(ending(
            Ended::Done,
            format!("dry run, nothing was written: {} moves would be undone", entries.all().len()),
        ));
    }
    let lock = match take(&cluster, meta, &home).await? {
        Ok(lock) => lock,
        Err(busy) => return Ok(busy),
    };
    let restored = restore_locked(&cluster, meta, &home, started).await;
    release(lock).await;
    restored
}

async fn restore_locked(
    cluster: &Arc<Cluster>,
    meta: &Meta,
    home: &str,
    (begun, started): (Instant, String),
) -> anyhow::Result<Ending> {
    let ledger = Ledger::load(cluster, home, meta.name).await?;
    let journal = restorable(&ledger, meta)?.clone();
    refuse_later_steps(cluster, home, meta).await?;
    let entries = ledger.entries(&journal).await?;
    let ledger = Arc::new(Mutex::new(ledger));
    ledger.lock().await.set_status(&journal.run, Status::Undoing, "").await?;
    let mark = format!("{}/{}", meta.name, journal.run);
    let actor = Actor::new(cluster.clone(), ledger.clone(), Arc::new(entries.clone()), mark);
    let undone = undo::undo(&actor, &entries, None).await.map_err(|halt| anyhow::anyhow!("{halt}"))?;
    let (result, verdict) = if undone.left.is_empty() {
        ledger.lock().await.set_status(&journal.run, Status::Undone, "").await?;
        (
            Ended::Restored,
            format!("restored by hand: {} changes of run {} were taken back", undone.restored, journal.run),
        )
    } else {
        let left: Vec<String> = undone.left.iter().map(|(object, why)| format!("{object} {why}")).collect();
        (
            Ended::NotRestored,
            format!(
                "NOT everything could be put back: {}. Look at these objects, then restore again, or: belay accept \
                 --step {} --home {home}",
                left.join("; "),
                meta.name
            ),
        )
    };
    let outcomes = actor.outcomes();
    let before = report::read(cluster, home, meta.name).await?.as_ref().and_then(report::parse);
    let (release, namespace) =
        before.map(|stored| (stored.report.release, stored.report.namespace)).unwrap_or_default();
    let written = Report {
        step: meta.name.to_owned(),
        family: meta.family.to_owned(),
        release,
        namespace,
        run: journal.run.clone(),
        result,
        verdict: report::cut(&format!("{}: {verdict}", meta.name)),
        started,
        finished: now(),
        seconds: begun.elapsed().as_secs_f64(),
        calls: cluster.calls(),
        counts: report::count(&outcomes),
        findings: Vec::new(),
        versions: [("belay".to_owned(), env!("CARGO_PKG_VERSION").to_owned())].into(),
    };
    if let Err(failure) = report::write(cluster, home, &written, &outcomes, &[]).await {
        log::warn!("the report could not be written: {failure}");
    }
    Ok(ending(if result == Ended::Restored { Ended::Done } else { result }, verdict))
}

/// The journal that a restore would take back: the open one, else the newest that is done.
fn restorable<'a>(ledger: &'a Ledger, meta: &Meta) -> anyhow::Result<&'a Journal> {
    let journals = ledger.journals();
    let journal = ledger
        .open_journal()
        .or_else(|| journals.iter().find(|journal| journal.status == Status::Done))
        .with_context(|| format!("{} has nothing to restore: no run of it is open or done", meta.name))?;
    if journal.no_return {
        let next = if journal.status.is_open() { ": run the step again to finish it" } else { "" };
        bail!(
            "run {} of {} is past its point of no return and cannot be undone{next}",
            journal.run,
            meta.name
        );
    }
    Ok(journal)
}

/// A family's steps are undone in the reverse of the order in which they run.
async fn refuse_later_steps(cluster: &Arc<Cluster>, home: &str, meta: &Meta) -> anyhow::Result<()> {
    let later = meta.family_steps.iter().skip_while(|step| **step != meta.name).skip(1);
    let mut in_the_way = Vec::new();
    for step in later {
        let ledger = Ledger::load(cluster, home, step).await?;
        if ledger
            .journals()
            .iter()
            .any(|journal| matches!(journal.status, Status::Done) || journal.status.is_open())
        {
            in_the_way.push(*step);
        }
    }
    in_the_way.reverse();
    match in_the_way.first() {
        None => Ok(()),
        Some(first) => bail!(
            "{} ran after {} and must be undone before it: belay restore --step {first} --home {home}",
            in_the_way.join(", "),
            meta.name
        ),
    }
}

fn what_undo_does(entry: &Entry) -> String {
    match &entry.undo {
        Undo::None { reason } => format!("{} {} stays: {reason}", entry.action.verb(), entry.object),
        Undo::Instead(moves) => {
            let steps: Vec<String> =
                moves.iter().map(|step| format!("{} {}", step.verb(), step.object)).collect();
            format!("{} {} is undone by: {}", entry.action.verb(), entry.object, steps.join(", "))
        }
        Undo::Inverse => format!("{} {} is taken back", entry.action.verb(), entry.object),
    }
}

pub(crate) async fn accept(args: &AcceptArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let cluster = args.shared.cluster(PATIENCE).await?;
    let meta = step_named(metas, &args.step)?;
    let home = args.shared.home_of(&cluster, meta).await?;
    let lock = match take(&cluster, meta, &home).await? {
        Ok(lock) => lock,
        Err(busy) => return Ok(busy),
    };
    let accepted = async {
        let mut ledger = Ledger::load(&cluster, &home, meta.name).await?;
        let journal =
            ledger.open_journal().cloned().with_context(|| format!("{} has no open journal", meta.name))?;
        ledger.set_status(&journal.run, Status::Accepted, &args.remark).await?;
        Ok(ending(
            Ended::Done,
            format!("accepted: the journal of {} (run {}) is closed", meta.name, journal.run),
        ))
    }
    .await;
    release(lock).await;
    accepted
}

pub(crate) async fn unlock(args: &UnlockArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let cluster = args.shared.cluster(PATIENCE).await?;
    let meta = metas
        .iter()
        .find(|meta| meta.family == args.family)
        .with_context(|| format!("there is no family '{}'", args.family))?;
    let home = args.shared.home_of(&cluster, meta).await?;
    let lock = match take(&cluster, meta, &home).await? {
        Ok(lock) => lock,
        Err(busy) => return Ok(busy),
    };
    let was_held = lock.from_the_dead;
    release(lock).await;
    Ok(ending(
        Ended::Done,
        if was_held { "the lock of a run that had died is released" } else { "nobody held the lock" },
    ))
}

/// Takes the lock, or says who is at work.
async fn take(cluster: &Arc<Cluster>, meta: &Meta, home: &str) -> anyhow::Result<Result<Lock, Ending>> {
    match Lock::take(cluster, meta, home, Instant::now() + WATCHED).await {
        Ok(lock) => {
            if lock.from_the_dead {
                cluster.may_land_late();
            }
            Ok(Ok(lock))
        }
        Err(NotLocked::Held(who)) => Ok(Err(ending(Ended::NotNow, who))),
        Err(other) => Err(other.into()),
    }
}

async fn release(lock: Lock) {
    let released: Result<(), Failure> = lock.release().await;
    if let Err(failure) = released {
        log::warn!("the lock could not be released: {failure}");
    }
}
