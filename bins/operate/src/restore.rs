//! Taking back, accepting, unlocking. Each takes the family's lock, so none works while a run is alive; and each looks first
//! whether there is anything to do, so that none makes a Lease, and with it a second home, where the family does not live.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use belay_runtime::{
    Host, Meta, ObjectRef,
    act::{Actor, Outcome, made_by},
    args::duration,
    cluster::{Cluster, Failure, Halt},
    journal::{Before, Entries, Entry, Journal, Ledger, RESTORED_BY_HAND, Status},
    lock::{self, Errand, Lock, NotLocked},
    object::{is_going, uid},
    plan::{Action, Undo},
    report::{self, Report, Result as Ended, Stored},
    run::Ending,
    undo::{self, Undone},
    watch::Everywhere,
};
use clap::builder::BoolishValueParser;
use futures::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use crate::{PATIENCE, Shared, WATCHED, ending, family_named, number_of, print, step_named};

/// Even a restore that used up all its time may close its journal and say what happened.
const GRACE: Duration = Duration::from_secs(10);

/// Objects that a dry run looks at side by side.
const LOOKED_AT: usize = 32;

#[derive(clap::Args)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// The step to undo.
    #[arg(long, env = "BELAY_STEP", value_name = "NAME")]
    step: String,
    /// The run to undo [default: the one whose journal is open, else the newest]
    #[arg(long, env = "BELAY_RUN", value_name = "ID")]
    run: Option<String>,
    /// Show what would be taken back, and write nothing.
    #[arg(long, env = "BELAY_DRY_RUN", value_parser = BoolishValueParser::new())]
    dry_run: bool,
    /// How long it may take.
    #[arg(long, env = "BELAY_DEADLINE", value_parser = duration, default_value = "5m", value_name = "TIME")]
    deadline: Duration,
}

#[derive(clap::Args)]
pub(crate) struct AcceptArgs {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// The step whose journal to close.
    #[arg(long, env = "BELAY_STEP", value_name = "NAME")]
    step: String,
    /// What you found, for whoever looks next.
    #[arg(long, env = "BELAY_REMARK", default_value = "", value_name = "TEXT")]
    remark: String,
}

#[derive(clap::Args)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// The family whose lock to release.
    #[arg(long, env = "BELAY_FAMILY", value_name = "NAME")]
    family: String,
}

pub(crate) async fn restore(
    host: &Arc<dyn Host>,
    args: &RestoreArgs,
    metas: &[Meta],
) -> anyhow::Result<Ending> {
    let clock = host.clock();
    let started = (clock.now(), clock.timestamp());
    let meta = step_named(metas, &args.step)?;
    let cluster = args.shared.cluster(host, args.deadline).await?;
    let home = args.shared.home_of(&cluster, meta).await?;
    refuse_second_home(&cluster, meta, &home).await?;
    let run = args.run.as_deref();
    let (ledger, wanted) = to_restore(&cluster, &home, meta, run).await?;
    match wanted {
        Wanted::Taken(journal) if args.dry_run => return show(&cluster, meta, &ledger, &journal).await,
        Wanted::IsBack { verdict, .. }
            if args.dry_run || !lock::is_home(&cluster, meta.family, &home).await? =>
        {
            return Ok(ending(Ended::Done, verdict));
        }
        Wanted::Taken(_) | Wanted::IsBack { .. } => {}
    }
    let lock = match take(&cluster, meta, &home, format!("restore {}", meta.name)).await? {
        Ok(lock) => lock,
        Err(busy) => return Ok(busy),
    };
    let restored = restore_locked(&cluster, meta, &home, run, started).await;
    release(lock).await;
    restored
}

async fn restore_locked(
    cluster: &Arc<Cluster>,
    meta: &Meta,
    home: &str,
    run: Option<&str>,
    (begun, started): (Instant, String),
) -> anyhow::Result<Ending> {
    // Once more: what was seen before the lock was had may have changed since.
    let (ledger, wanted) = to_restore(cluster, home, meta, run).await?;
    let journal = match wanted {
        Wanted::Taken(journal) => journal,
        Wanted::IsBack { run, since, verdict } => {
            // Whoever took it back may have been killed before it could say so.
            let told = Told { result: Ended::TakenBack, verdict, run, begun, started, outcomes: Vec::new() };
            return Ok(told.tell_unless_told(cluster, meta, home, &since).await);
        }
    };
    log::info!("taking back {}", in_words(&journal));
    let entries = Arc::new(ledger.entries(&journal).await?);
    if journal.status.is_open() && !journal.handed_on {
        cluster.may_land_late();
    }
    let ledger = Arc::new(Mutex::new(ledger));
    ledger.lock().await.set_status(&journal.run, Status::Undoing, RESTORED_BY_HAND).await?;
    let actor = Actor::new(
        cluster.clone(),
        ledger.clone(),
        entries.clone(),
        mark(meta, &journal),
        Everywhere::default(),
    );
    let ended = match undo::undo(&actor, &entries, None).await {
        Ok(undone) => {
            let closed = close(cluster, meta, home, &ledger, &journal.run, &entries, &undone).await;
            closed.map(|failure| verdict(meta, home, &journal.run, &undone, failure))
        }
        Err(halt) => Err(halt),
    };
    let (result, verdict) = match ended {
        Ok(ended) => ended,
        Err(halt) => {
            if let Halt::Terminated = halt
                && let Err(failure) = ledger.lock().await.hand_on().await
            {
                log::warn!("that the journal is handed on could not be noted: {failure}");
            }
            return Err(halt.into());
        }
    };
    let older = further(ledger.lock().await.journals(), meta, home, &journal.run);
    let older = older.filter(|_| result == Ended::TakenBack).unwrap_or_default();
    let verdict = format!("{verdict}{older}");
    let told = Told { result, verdict, run: journal.run, begun, started, outcomes: actor.outcomes() };
    Ok(told.tell(cluster, meta, home).await)
}

/// Closes the journal of what is put back, if all is. A call that fails now is told in the verdict: nobody may think that
/// nothing was written.
async fn close(
    cluster: &Cluster,
    meta: &Meta,
    home: &str,
    ledger: &Mutex<Ledger>,
    run: &str,
    entries: &Entries,
    undone: &Undone,
) -> Result<Option<Failure>, Halt> {
    cluster.set_deadline(cluster.deadline().max(cluster.clock().now() + GRACE));
    let mut closed = Ok(());
    if meta.keeps_done_record {
        // Before the journal is closed: afterwards nobody remembers what has to be forgotten.
        closed = report::forget(cluster, home, meta.name, &taken_back(entries, undone)).await;
    }
    if undone.left.is_empty() && closed.is_ok() {
        closed = ledger.lock().await.set_status(run, Status::Undone, RESTORED_BY_HAND).await;
    }
    match closed {
        Ok(()) => Ok(None),
        Err(Failure::Halted(halt)) => Err(halt),
        Err(failure) => Ok(Some(failure)),
    }
}

/// How a restore ended: by what is left, and by the call that failed when the journal was to be closed.
fn verdict(meta: &Meta, home: &str, run: &str, undone: &Undone, failure: Option<Failure>) -> (Ended, String) {
    let step = meta.name;
    match failure {
        None if undone.left.is_empty() => {
            (Ended::TakenBack, format!("{RESTORED_BY_HAND}, run {run}: {}", undone.in_words()))
        }
        Some(failure) if undone.left.is_empty() => (
            Ended::Stopped,
            format!(
                "everything is put back ({}), but the journal of run {run} could not be closed: {failure}. Restore again: \
                 belay restore --step {step} --home {home}",
                undone.in_words()
            ),
        ),
        failure => {
            let record = failure.map(|failure| format!(" The done record could not be changed: {failure}."));
            (
                Ended::NotRestored,
                format!(
                    "NOT everything could be put back: {}.{} Look at these objects, then restore again, or: belay accept \
                     --step {step} --home {home}",
                    undone.left_in_words(),
                    record.unwrap_or_default()
                ),
            )
        }
    }
}

/// Shows what a restore would do now.
async fn show(
    cluster: &Arc<Cluster>,
    meta: &Meta,
    ledger: &Ledger,
    journal: &Journal,
) -> anyhow::Result<Ending> {
    let entries = ledger.entries(journal).await?;
    let mark = &mark(meta, journal);
    print(&format!("{}, to be taken back:\n", in_words(journal)));
    let moves = undo::newest(&entries);
    let looks = moves.iter().rev().map(|(_, entry)| async move { stays(cluster, entry, mark).await });
    let stay: Vec<Option<String>> = futures::stream::iter(looks).buffered(LOOKED_AT).try_collect().await?;
    let mut undone = 0;
    for ((_, entry), stays) in moves.iter().rev().zip(&stay) {
        undone += usize::from(stays.is_none());
        let what = stays.clone().unwrap_or_else(|| what_undo_does(&entry.undo));
        print(&format!("{} {} {what}\n", entry.action.verb(), entry.object));
    }
    let rest = match stay.len() - undone {
        0 => String::new(),
        1 => ", 1 would stay as it is".to_owned(),
        rest => format!(", {rest} would stay as they are"),
    };
    let undone = number_of(undone, "move");
    Ok(ending(Ended::Done, format!("dry run, nothing was written: {undone} would be undone{rest}")))
}

/// Why undo would do nothing for an entry as things are now, if so.
async fn stays(cluster: &Cluster, entry: &Entry, mark: &str) -> Result<Option<String>, Failure> {
    match &entry.undo {
        Undo::None { .. } | Undo::Instead(_) => return Ok(stays_anyway(&entry.undo)),
        Undo::Inverse => {}
    }
    let live = match cluster.get(&entry.object).await {
        Ok(live) => live,
        Err(halted @ Failure::Halted(_)) => return Err(halted),
        Err(failure) => return Ok(Some(format!("cannot be looked at: {failure}"))),
    };
    let there = live.as_ref().filter(|live| !is_going(live));
    let is_back = match (&entry.action, &entry.before) {
        (Action::Create { .. }, _) => {
            live.is_none() || there.is_some_and(|there| made_by(there) != Some(mark))
        }
        (Action::Recreate(_), Before::Object(image))
            if there.is_some_and(|there| uid(there) != image.uid) =>
        {
            return Ok(Some("stays: it was made again as it had been".to_owned()));
        }
        (Action::Delete(removal) | Action::Recreate(removal), Before::Object(image)) => {
            let is_old = |there: &Value| uid(there) == image.uid || undo::is_as_before(there, image, removal);
            there.is_some_and(is_old)
        }
        (_, Before::Fields(old)) => there.is_some_and(|there| old.iter().all(|field| field.is_in(there))),
        _ => true,
    };
    Ok(is_back.then(|| "is already as before".to_owned()))
}

/// What objects bear that a run made.
fn mark(meta: &Meta, journal: &Journal) -> String {
    format!("{}/{}", meta.name, journal.run)
}

/// A run as a person knows it.
fn in_words(journal: &Journal) -> String {
    let how = match journal.status {
        Status::Done => format!("done {}", journal.changed),
        Status::Undone => format!("taken back {}", journal.changed),
        Status::Accepted => format!("accepted {}", journal.changed),
        Status::Open => "its journal is open".to_owned(),
        Status::Undoing => "its undo is not finished".to_owned(),
    };
    format!("run {} (begun {}, {how})", journal.run, journal.opened)
}

/// What a person did, for the report: whoever looks next shall see that, and not what a run said before.
struct Told {
    result: Ended,
    verdict: String,
    run: String,
    begun: Instant,
    started: String,
    outcomes: Vec<Outcome>,
}

impl Told {
    /// Tells it, if no report has been written since.
    async fn tell_unless_told(self, cluster: &Cluster, meta: &Meta, home: &str, since: &str) -> Ending {
        let stored = report::read(cluster, home, meta.name).await.ok().flatten();
        // Times are all written alike, to the second, so they can be compared as they stand.
        let is_told = stored.as_ref().and_then(report::parse).is_some_and(|Stored { report, .. }| {
            report.finished.as_str() > since || (report.result == self.result && report.run == self.run)
        });
        if is_told { ending(self.result, self.verdict) } else { self.tell(cluster, meta, home).await }
    }

    async fn tell(self, cluster: &Cluster, meta: &Meta, home: &str) -> Ending {
        let before = report::read(cluster, home, meta.name).await;
        let before = before.ok().flatten().as_ref().and_then(report::parse);
        let (release, namespace, rerun) = before
            .map(|Stored { report, .. }| (report.release, report.namespace, report.rerun))
            .unwrap_or_default();
        let report = Report {
            step: meta.name.to_owned(),
            family: meta.family.to_owned(),
            release,
            namespace,
            run: self.run,
            result: self.result,
            verdict: report::cut(&format!("{}: {}", meta.name, self.verdict)),
            started: self.started,
            finished: cluster.clock().timestamp(),
            seconds: cluster.clock().since(self.begun).as_secs_f64(),
            calls: cluster.calls(),
            counts: report::count(&self.outcomes),
            findings: Vec::new(),
            lines: Vec::new(),
            versions: report::versions(cluster).await,
            rerun,
        };
        if let Err(failure) = report::write(cluster, home, &report, &self.outcomes, &[]).await {
            log::warn!("the report could not be written: {failure}");
        }
        ending(self.result, self.verdict)
    }
}

/// The subjects of the chains that are wholly taken back.
fn taken_back(entries: &Entries, undone: &Undone) -> Vec<ObjectRef> {
    let is_left = |entry: &Entry| undone.left.iter().any(|(object, _)| *object == entry.object);
    let kept: HashSet<&ObjectRef> =
        entries.all().iter().filter(|entry| is_left(entry)).map(|entry| &entry.chain).collect();
    let subjects: HashSet<&ObjectRef> = entries.all().iter().map(|entry| &entry.chain).collect();
    subjects.difference(&kept).map(|subject| (*subject).clone()).collect()
}

/// What a restore finds.
#[derive(Debug)]
enum Wanted {
    /// This journal is to be taken back.
    Taken(Journal),
    /// A run is taken back already: whoever did so may have been killed before it could say so, and a Job tries again.
    IsBack { run: String, since: String, verdict: String },
}

/// The journal that a restore takes back, if it may.
async fn to_restore(
    cluster: &Arc<Cluster>,
    home: &str,
    meta: &Meta,
    run: Option<&str>,
) -> anyhow::Result<(Ledger, Wanted)> {
    let ledger = Ledger::load(cluster, home, meta.name).await?;
    let wanted = wanted(ledger.journals(), meta, home, run)?;
    if let Wanted::Taken(journal) = &wanted {
        refuse_later_steps(cluster, home, meta, journal).await?;
    }
    Ok((ledger, wanted))
}

/// What a restore takes back, of these journals, newest first: the one that is open, else the newest that did not take
/// itself back and so left nothing; or the run that was named, if all that came after it is taken back or accepted. It never
/// goes further back by itself: said twice, or tried again by a Job, it takes back one run.
fn wanted(journals: &[Journal], meta: &Meta, home: &str, run: Option<&str>) -> anyhow::Result<Wanted> {
    let step = meta.name;
    let open = journals.iter().find(|journal| journal.status.is_open());
    let named = |run: &str| {
        journals.iter().find(|journal| journal.run == run).with_context(|| {
            let kept: Vec<String> = journals.iter().map(in_words).collect();
            let kept = if kept.is_empty() { "none".to_owned() } else { kept.join(", ") };
            format!("{step} keeps no run {run} in namespace {home}; it keeps {kept}")
        })
    };
    let journal = match run {
        Some(run) => named(run)?,
        None => open
            .or_else(|| {
                journals
                    .iter()
                    .find(|journal| journal.status != Status::Undone || journal.remark == RESTORED_BY_HAND)
            })
            .or(journals.first())
            .with_context(|| format!("{step} has nothing to restore: no run of it is open or done"))?,
    };
    let newer = journals.iter().take_while(|newer| newer.run != journal.run).find(|journal| stands(journal));
    let first = open.filter(|open| open.run != journal.run).or(newer);
    if let Some(first) = first {
        let (which, whole) = (&journal.run, in_words(first));
        if first.no_return {
            bail!(
                "{whole} came after run {which} of {step} and is past its point of no return: neither can be undone"
            );
        }
        bail!(
            "{whole} must be taken back before run {which} of {step}: belay restore --step {step} --home {home} --run {}",
            first.run
        );
    }
    let older = further(journals, meta, home, &journal.run);
    match journal.status {
        Status::Open | Status::Undoing | Status::Done if journal.no_return => {
            let next = if journal.status.is_open() { ": run the step again to finish it" } else { "" };
            bail!("run {} of {step} is past its point of no return and cannot be undone{next}", journal.run)
        }
        Status::Open | Status::Undoing | Status::Done => Ok(Wanted::Taken(journal.clone())),
        Status::Undone if run.is_some() || journal.remark == RESTORED_BY_HAND => Ok(Wanted::IsBack {
            run: journal.run.clone(),
            since: journal.changed.clone(),
            verdict: format!(
                "nothing to do: {} is restored already{}",
                in_words(journal),
                older.unwrap_or_default()
            ),
        }),
        Status::Accepted if run.is_some() => {
            bail!("{} of {step} cannot be restored: a person has closed its journal", in_words(journal))
        }
        Status::Undone | Status::Accepted => match older {
            Some(older) => {
                bail!("nothing was restored: the newest of {step} is {}{older}", in_words(journal))
            }
            None => bail!(
                "{step} has nothing to restore: no run of it is open or done, the newest is {}",
                in_words(journal)
            ),
        },
    }
}

/// Whether what a run did is still in the cluster.
fn stands(journal: &Journal) -> bool {
    journal.status == Status::Done || journal.status.is_open()
}

/// The run before this one that is not taken back, if any, and how to do so: nobody may think that this was all.
fn further(journals: &[Journal], meta: &Meta, home: &str, run: &str) -> Option<String> {
    let older =
        journals.iter().skip_while(|older| older.run != run).skip(1).find(|journal| stands(journal))?;
    Some(format!(
        ". Before it came {}; to take that back: belay restore --step {} --home {home} --run {}",
        in_words(older),
        meta.name,
        older.run
    ))
}

/// A family's steps are undone in the reverse of the order in which they run.
async fn refuse_later_steps(
    cluster: &Arc<Cluster>,
    home: &str,
    meta: &Meta,
    restored: &Journal,
) -> anyhow::Result<()> {
    let later = meta.family_steps.iter().skip_while(|step| **step != meta.name).skip(1);
    let mut in_the_way = Vec::new();
    for step in later {
        let ledger = Ledger::load(cluster, home, step).await?;
        let found = ledger.journals().iter().find(|journal| is_in_the_way(journal, restored));
        in_the_way.extend(found.map(|journal| (*step, journal.no_return)));
    }
    match why_not_yet(meta, home, &in_the_way) {
        None => Ok(()),
        Some(why) => bail!(why),
    }
}

/// Whether a later step's journal was begun after the one that is to be restored, and is not undone. What that step did in an
/// earlier upgrade was there before. Times are all written alike, to the second; within one second the family's order counts.
fn is_in_the_way(later: &Journal, restored: &Journal) -> bool {
    (later.status == Status::Done || later.status.is_open()) && later.opened >= restored.opened
}

/// Why a step cannot be undone before these later ones, each of which may be past its point of no return.
fn why_not_yet(meta: &Meta, home: &str, later: &[(&str, bool)]) -> Option<String> {
    let (last, for_good) = later.last()?;
    let names: Vec<&str> = later.iter().rev().map(|(step, _)| *step).collect();
    let names = names.join(", ");
    Some(if *for_good {
        format!(
            "{names} ran after {}, and {last} is past its point of no return: neither can be undone any more",
            meta.name
        )
    } else {
        format!(
            "{names} ran after {} and must be undone before it: belay restore --step {last} --home {home}",
            meta.name
        )
    })
}

/// Why nothing is done to take a move back, however things are, if so.
fn stays_anyway(undo: &Undo) -> Option<String> {
    match undo {
        Undo::None { reason } => Some(format!("stays: {reason}")),
        Undo::Instead(moves) if moves.is_empty() => Some("comes back by itself".to_owned()),
        Undo::Instead(_) | Undo::Inverse => None,
    }
}

fn what_undo_does(undo: &Undo) -> String {
    match undo {
        Undo::Instead(moves) => {
            let steps: Vec<String> =
                moves.iter().map(|step| format!("{} {}", step.verb(), step.object)).collect();
            format!("is undone by: {}", steps.join(", "))
        }
        Undo::None { .. } | Undo::Inverse => "is taken back".to_owned(),
    }
}

pub(crate) async fn accept(
    host: &Arc<dyn Host>,
    args: &AcceptArgs,
    metas: &[Meta],
) -> anyhow::Result<Ending> {
    let meta = step_named(metas, &args.step)?;
    let cluster = args.shared.cluster(host, PATIENCE).await?;
    let home = args.shared.home_of(&cluster, meta).await?;
    refuse_second_home(&cluster, meta, &home).await?;
    to_accept(&Ledger::load(&cluster, &home, meta.name).await?)?;
    let lock = match take(&cluster, meta, &home, format!("accept {}", meta.name)).await? {
        Ok(lock) => lock,
        Err(busy) => return Ok(busy),
    };
    let accepted = accept_locked(&cluster, meta, &home, &args.remark).await;
    release(lock).await;
    accepted
}

/// The journal that an accept closes.
fn to_accept(ledger: &Ledger) -> anyhow::Result<Journal> {
    ledger.open_journal().cloned().with_context(|| format!("{} has no open journal", ledger.step()))
}

async fn accept_locked(
    cluster: &Arc<Cluster>,
    meta: &Meta,
    home: &str,
    remark: &str,
) -> anyhow::Result<Ending> {
    let (begun, started) = (cluster.clock().now(), cluster.clock().timestamp());
    let mut ledger = Ledger::load(cluster, home, meta.name).await?;
    let journal = to_accept(&ledger)?;
    ledger.set_status(&journal.run, Status::Accepted, remark).await?;
    let said = if remark.is_empty() { String::new() } else { format!(": {remark}") };
    let verdict = format!("accepted: the journal of {} (run {}) is closed{said}", meta.name, journal.run);
    let told =
        Told { result: Ended::Accepted, verdict, run: journal.run, begun, started, outcomes: Vec::new() };
    Ok(told.tell(cluster, meta, home).await)
}

pub(crate) async fn unlock(
    host: &Arc<dyn Host>,
    args: &UnlockArgs,
    metas: &[Meta],
) -> anyhow::Result<Ending> {
    let meta = family_named(metas, &args.family)?;
    let cluster = args.shared.cluster(host, PATIENCE).await?;
    let home = args.shared.home_of(&cluster, meta).await?;
    refuse_second_home(&cluster, meta, &home).await?;
    let nobody = || ending(Ended::Done, "nobody held the lock");
    if !lock::is_home(&cluster, meta.family, &home).await? {
        return Ok(nobody());
    }
    let lock = match take(&cluster, meta, &home, "unlock".to_owned()).await? {
        Ok(lock) => lock,
        Err(busy) => return Ok(busy),
    };
    let was_held = lock.from_the_dead;
    release(lock).await;
    Ok(if was_held { ending(Ended::Done, "the lock of a run that had died is released") } else { nobody() })
}

/// Refuses a home that is not the family's. Whoever may not look for another is told so, and goes on.
pub(crate) async fn refuse_second_home(cluster: &Cluster, meta: &Meta, home: &str) -> Result<(), NotLocked> {
    match lock::refuse_second_home(cluster, meta, home).await {
        Err(NotLocked::Call(failure)) if failure.is_forbidden() => {
            log::warn!("taking {home} for the family's home: looking for another is forbidden ({failure})");
            Ok(())
        }
        looked => looked,
    }
}

/// Takes the lock, or says who is at work.
async fn take(
    cluster: &Arc<Cluster>,
    meta: &Meta,
    home: &str,
    doing: String,
) -> anyhow::Result<Result<Lock, Ending>> {
    // A person does not want to wait for a run that is at work, and then undo what it did.
    let errand = Errand { doing, until: cluster.clock().now() + WATCHED, waits_for_the_living: false };
    match Lock::take_for(cluster, meta, home, errand).await {
        Ok(lock) => {
            if lock.from_the_dead {
                cluster.may_land_late();
            }
            Ok(Ok(lock))
        }
        Err(held @ NotLocked::Held { .. }) => Ok(Err(ending(Ended::NotNow, held.to_string()))),
        Err(other) => Err(other.into()),
    }
}

/// Gives the lock back.
pub(crate) async fn release(lock: Lock) {
    let released: Result<(), Failure> = lock.release().await;
    if let Err(failure) = released {
        log::warn!("the lock could not be released: {failure}");
    }
}

#[cfg(test)]
mod tests {
    use belay_runtime::{Move, kinds};
    use serde_json::json;

    use super::*;

    const META: Meta = Meta {
        name: "first",
        family: "f",
        family_steps: &["first", "second", "third"],
        purpose: "",
        default_home: "home",
        deadline: PATIENCE,
        undo_reserve: PATIENCE,
        keeps_done_record: true,
        read_only: false,
    };

    fn map(name: &str) -> ObjectRef {
        kinds::CONFIG_MAP.object("ns", name)
    }

    fn entry(subject: &str, object: &str) -> Entry {
        let Move { action, .. } = Move::create(map(object), &json!({}), &[]);
        Entry {
            phase: 0,
            chain: map(subject),
            turn: None,
            index: 0,
            object: map(object),
            action,
            undo: Undo::Inverse,
            before: Before::Nothing,
            uid: None,
        }
    }

    fn journal(run: &str, status: Status, opened: &str) -> Journal {
        Journal {
            run: run.to_owned(),
            status,
            opened: opened.to_owned(),
            changed: opened.to_owned(),
            deaths: 0,
            handed_on: false,
            no_return: false,
            undoing: None,
            void: Vec::new(),
            remark: String::new(),
            chunks: Vec::new(),
        }
    }

    /// Journals of the runs 3, 2, 1, newest first.
    fn journals(statuses: &[Status]) -> Vec<Journal> {
        let numbers = (1..=statuses.len()).rev();
        numbers.zip(statuses).map(|(number, status)| journal(&number.to_string(), *status, "then")).collect()
    }

    /// The run that a restore takes back; that is taken back already, with a sentence; or why neither.
    fn said(journals: &[Journal], run: Option<&str>) -> String {
        match wanted(journals, &META, "h", run) {
            Ok(Wanted::Taken(journal)) => format!("take {}", journal.run),
            Ok(Wanted::IsBack { run, verdict, .. }) => format!("{run} is back: {verdict}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn what_is_open_or_else_the_newest_run_is_taken_back() {
        use Status::{Done, Open, Undoing, Undone};
        assert_eq!(said(&journals(&[Done, Done]), None), "take 2");
        assert_eq!(said(&journals(&[Open, Done]), None), "take 2");
        assert_eq!(said(&journals(&[Undone, Undoing, Done]), None), "take 2");
        assert!(said(&[], None).contains("nothing to restore: no run of it is open or done"));
        assert!(
            said(&journals(&[Undone]), None).contains("nothing to restore: no run of it is open or done")
        );
        let mut gone = journals(&[Done]);
        gone[0].no_return = true;
        assert!(said(&gone, None).contains("past its point of no return and cannot be undone"));
    }

    /// A Job tries again when its pod was killed after the journal was closed.
    #[test]
    fn what_was_restored_is_not_restored_further() {
        let mut all = journals(&[Status::Undone, Status::Done]);
        all[0].remark = RESTORED_BY_HAND.to_owned();
        let back = said(&all, None);
        assert!(back.starts_with("2 is back: nothing to do: run 2 (begun then, taken back then)"), "{back}");
        assert!(back.ends_with("to take that back: belay restore --step first --home h --run 1"), "{back}");
        assert_eq!(said(&all, Some("1")), "take 1");
        assert!(said(&all[..1], None).ends_with("is restored already"));
    }

    #[test]
    fn past_a_run_that_was_accepted_only_a_named_one_is_taken_back() {
        let all = journals(&[Status::Accepted, Status::Done]);
        let refused = said(&all, None);
        assert!(refused.starts_with("nothing was restored: the newest of first is run 2"), "{refused}");
        assert!(refused.ends_with("--run 1"), "{refused}");
        assert_eq!(said(&all, Some("1")), "take 1");
    }

    #[test]
    fn a_run_that_took_itself_back_has_left_nothing_and_is_passed_by() {
        assert_eq!(said(&journals(&[Status::Undone, Status::Done]), None), "take 1");
    }

    #[test]
    fn a_named_run_waits_for_those_after_it() {
        use Status::{Accepted, Done, Open, Undone};
        let refused = said(&journals(&[Done, Done]), Some("1"));
        assert!(
            refused.contains("run 2 (begun then, done then) must be taken back before run 1"),
            "{refused}"
        );
        assert!(refused.ends_with("--run 2"), "{refused}");
        assert!(
            said(&journals(&[Open, Done]), Some("1"))
                .contains("run 2 (begun then, its journal is open) must")
        );
        assert!(
            said(&journals(&[Undone, Open]), Some("2"))
                .contains("run 1 (begun then, its journal is open) must")
        );
        assert_eq!(said(&journals(&[Undone, Accepted, Done]), Some("1")), "take 1");
        assert!(said(&journals(&[Undone, Done]), Some("2")).starts_with("2 is back"));
        assert!(said(&journals(&[Accepted, Done]), Some("2")).contains("cannot be restored"));
        assert!(
            said(&journals(&[Done]), Some("7")).contains("keeps no run 7 in namespace h; it keeps run 1")
        );
        let mut gone = journals(&[Done, Done]);
        gone[0].no_return = true;
        assert!(said(&gone, Some("1")).contains("neither can be undone"));
    }

    #[test]
    fn a_restore_that_could_not_close_its_journal_is_said_again_and_is_no_refusal() {
        let failure = || Some(Failure::Halted(Halt::Terminated));
        let all = Undone { restored: 2, ..Undone::default() };
        let some = Undone { left: vec![(map("a"), "is stuck".to_owned())], ..all.clone() };
        let (result, verdict) = verdict(&META, "h", "1", &all, failure());
        assert_eq!(result, Ended::Stopped);
        assert!(verdict.starts_with("everything is put back (2 changes were taken back), but"), "{verdict}");
        let (result, verdict) = super::verdict(&META, "h", "1", &some, failure());
        assert_eq!(result, Ended::NotRestored);
        assert!(
            verdict.contains("ConfigMap/ns/a is stuck. The done record could not be changed: "),
            "{verdict}"
        );
        assert_eq!(super::verdict(&META, "h", "1", &all, None).0, Ended::TakenBack);
        assert_eq!(super::verdict(&META, "h", "1", &some, None).0, Ended::NotRestored);
    }

    #[test]
    fn later_steps_are_undone_first_the_last_one_before_all() {
        assert_eq!(why_not_yet(&META, "h", &[]), None);
        let both = why_not_yet(&META, "h", &[("second", false), ("third", false)]).unwrap();
        assert!(both.starts_with("third, second ran after first"), "{both}");
        assert!(both.ends_with("belay restore --step third --home h"), "{both}");
        let never = why_not_yet(&META, "h", &[("second", false), ("third", true)]).unwrap();
        assert!(never.contains("third is past its point of no return") && !never.contains("belay restore"));
    }

    #[test]
    fn what_a_later_step_did_before_is_not_in_the_way() {
        let of = |status, opened: &str| journal("", status, opened);
        let (before, then, after) = ("2026-01-01T10:00:00Z", "2026-01-01T10:00:01Z", "2026-01-01T10:00:02Z");
        let restored = of(Status::Done, then);
        for (later, is) in [
            (of(Status::Done, after), true),
            (of(Status::Open, after), true),
            (of(Status::Done, then), true),
            (of(Status::Done, before), false),
            (of(Status::Undone, after), false),
            (of(Status::Accepted, after), false),
        ] {
            assert_eq!(is_in_the_way(&later, &restored), is, "{later:?}");
        }
    }

    #[test]
    fn a_verdict_names_three_of_what_is_left_and_counts_the_others() {
        let object =
            |number: usize| (kinds::CONFIG_MAP.object("ns", format!("m{number}")), "is stuck".to_owned());
        let undone = |many| Undone { left: (0..many).map(object).collect(), ..Undone::default() };
        assert_eq!(undone(1).left_in_words(), "ConfigMap/ns/m0 is stuck");
        assert!(
            undone(5).left_in_words().ends_with("ConfigMap/ns/m2 is stuck; and 2 more"),
            "{}",
            undone(5).left_in_words()
        );
    }

    #[test]
    fn what_comes_back_by_itself_or_stays_is_said_so() {
        assert_eq!(stays_anyway(&Undo::Instead(Vec::new())).unwrap(), "comes back by itself");
        let never = Undo::None { reason: "it is harmless".to_owned() };
        assert_eq!(stays_anyway(&never).unwrap(), "stays: it is harmless");
        assert_eq!(stays_anyway(&Undo::Inverse), None);
    }

    #[test]
    fn a_chain_of_which_something_is_left_is_not_taken_back() {
        let entries = Entries::new(vec![entry("a", "a-1"), entry("a", "a-2"), entry("b", "b-1")]);
        let undone = Undone { restored: 2, going: 0, left: vec![(map("a-2"), "is stuck".to_owned())] };
        assert_eq!(taken_back(&entries, &undone), [map("b")]);
    }
}
