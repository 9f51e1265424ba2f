//! Taking back, accepting, unlocking. Each takes the family's lock, so none works while a run is alive; and each looks first
//! whether there is anything to do, so that none makes a Lease, and with it a second home, where the family does not live.

use std::{collections::HashSet, sync::Arc, time::Duration};

use anyhow::{Context as _, bail};
use belay_runtime::{
    Meta, ObjectRef,
    act::{Actor, Outcome},
    args::duration,
    cluster::{Cluster, Failure, Halt},
    journal::{Entries, Entry, Journal, Ledger, Status, now},
    lock::{self, Errand, Lock, NotLocked},
    plan::Undo,
    report::{self, Report, Result as Ended},
    run::Ending,
    undo::{self, Undone},
    watch::Everywhere,
};
use tokio::{sync::Mutex, time::Instant};

use crate::{PATIENCE, Shared, WATCHED, ending, family_named, print, step_named};

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
    #[arg(long, env = "BELAY_STEP", value_name = "NAME")]
    step: String,
    /// What you found, for whoever looks next.
    #[arg(long, env = "BELAY_REMARK", default_value = "", value_name = "TEXT")]
    remark: String,
}

#[derive(clap::Args)]
pub(crate) struct UnlockArgs {
    #[command(flatten)]
    shared: Shared,
    /// The family whose lock to release.
    #[arg(long, env = "BELAY_FAMILY", value_name = "NAME")]
    family: String,
}

pub(crate) async fn restore(args: &RestoreArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let started = (Instant::now(), now());
    let meta = step_named(metas, &args.step)?;
    let cluster = args.shared.cluster(args.deadline).await?;
    let home = args.shared.home_of(&cluster, meta).await?;
    refuse_second_home(&cluster, meta, &home).await?;
    let (ledger, journal) = to_restore(&cluster, &home, meta).await?;
    if args.dry_run {
        let entries = ledger.entries(&journal).await?;
        for entry in entries.all().iter().rev() {
            print(&format!("{}\n", what_undo_does(entry)));
        }
        return Ok(ending(
            Ended::Done,
            format!("dry run, nothing was written: {} moves would be undone", entries.all().len()),
        ));
    }
    let lock = match take(&cluster, meta, &home, format!("restore {}", meta.name)).await? {
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
    // Once more: what was seen before the lock was had may have changed since.
    let (ledger, journal) = to_restore(cluster, home, meta).await?;
    let entries = Arc::new(ledger.entries(&journal).await?);
    if journal.status.is_open() && !journal.handed_on {
        cluster.may_land_late();
    }
    let ledger = Arc::new(Mutex::new(ledger));
    ledger.lock().await.set_status(&journal.run, Status::Undoing, "").await?;
    let mark = format!("{}/{}", meta.name, journal.run);
    let actor = Actor::new(cluster.clone(), ledger.clone(), entries.clone(), mark, Everywhere::default());
    let undone = match undo::undo(&actor, &entries, None).await {
        Ok(undone) => undone,
        Err(halt) => {
            if let Halt::Terminated = halt
                && let Err(failure) = ledger.lock().await.hand_on().await
            {
                log::warn!("that the journal is handed on could not be noted: {failure}");
            }
            return Err(halt.into());
        }
    };
    // Before the journal is closed: afterwards nobody remembers what has to be forgotten.
    report::forget(cluster, home, meta.name, &taken_back(&entries, &undone))
        .await
        .context("all is put back, but the done record could not be changed: restore again")?;
    let (result, verdict) = if undone.left.is_empty() {
        ledger.lock().await.set_status(&journal.run, Status::Undone, "").await?;
        (Ended::TakenBack, format!("restored by hand, run {}: {}", journal.run, undone.in_words()))
    } else {
        (
            Ended::NotRestored,
            format!(
                "NOT everything could be put back: {}. Look at these objects, then restore again, or: belay accept \
                 --step {} --home {home}",
                undone.left_in_words(),
                meta.name
            ),
        )
    };
    let told = Told { result, verdict, run: journal.run, begun, started, outcomes: actor.outcomes() };
    Ok(told.tell(cluster, meta, home).await)
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
    async fn tell(self, cluster: &Cluster, meta: &Meta, home: &str) -> Ending {
        let before = report::read(cluster, home, meta.name).await;
        let before = before.ok().flatten().as_ref().and_then(report::parse);
        let (release, namespace) =
            before.map(|stored| (stored.report.release, stored.report.namespace)).unwrap_or_default();
        let report = Report {
            step: meta.name.to_owned(),
            family: meta.family.to_owned(),
            release,
            namespace,
            run: self.run,
            result: self.result,
            verdict: report::cut(&format!("{}: {}", meta.name, self.verdict)),
            started: self.started,
            finished: now(),
            seconds: self.begun.elapsed().as_secs_f64(),
            calls: cluster.calls(),
            counts: report::count(&self.outcomes),
            findings: Vec::new(),
            lines: Vec::new(),
            versions: report::versions(cluster).await,
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

/// The journal that a restore takes back, if it may.
async fn to_restore(cluster: &Arc<Cluster>, home: &str, meta: &Meta) -> anyhow::Result<(Ledger, Journal)> {
    let ledger = Ledger::load(cluster, home, meta.name).await?;
    let journal = restorable(&ledger, meta)?.clone();
    refuse_later_steps(cluster, home, meta, &journal).await?;
    Ok((ledger, journal))
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

fn what_undo_does(entry: &Entry) -> String {
    match &entry.undo {
        Undo::None { reason } => format!("{} {} stays: {reason}", entry.action.verb(), entry.object),
        Undo::Instead(moves) if moves.is_empty() => {
            format!("{} {} comes back by itself", entry.action.verb(), entry.object)
        }
        Undo::Instead(moves) => {
            let steps: Vec<String> =
                moves.iter().map(|step| format!("{} {}", step.verb(), step.object)).collect();
            format!("{} {} is undone by: {}", entry.action.verb(), entry.object, steps.join(", "))
        }
        Undo::Inverse => format!("{} {} is taken back", entry.action.verb(), entry.object),
    }
}

pub(crate) async fn accept(args: &AcceptArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let meta = step_named(metas, &args.step)?;
    let cluster = args.shared.cluster(PATIENCE).await?;
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
    let (begun, started) = (Instant::now(), now());
    let mut ledger = Ledger::load(cluster, home, meta.name).await?;
    let journal = to_accept(&ledger)?;
    ledger.set_status(&journal.run, Status::Accepted, remark).await?;
    let said = if remark.is_empty() { String::new() } else { format!(": {remark}") };
    let verdict = format!("accepted: the journal of {} (run {}) is closed{said}", meta.name, journal.run);
    let told =
        Told { result: Ended::Accepted, verdict, run: journal.run, begun, started, outcomes: Vec::new() };
    Ok(told.tell(cluster, meta, home).await)
}

pub(crate) async fn unlock(args: &UnlockArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let meta = family_named(metas, &args.family)?;
    let cluster = args.shared.cluster(PATIENCE).await?;
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
async fn refuse_second_home(cluster: &Cluster, meta: &Meta, home: &str) -> Result<(), NotLocked> {
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
    let errand = Errand { doing, until: Instant::now() + WATCHED, waits_for_the_living: false };
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
    use belay_runtime::{Move, journal::Before, kinds};
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

    fn entry(subject: &str, object: &str, undo: Undo) -> Entry {
        let Move { action, .. } = Move::create(map(object), &json!({}), &[]);
        Entry {
            phase: 0,
            chain: map(subject),
            turn: None,
            index: 0,
            object: map(object),
            action,
            undo,
            before: Before::Nothing,
        }
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
        let of = |status, opened: &str| Journal {
            run: String::new(),
            status,
            opened: opened.to_owned(),
            changed: opened.to_owned(),
            deaths: 0,
            handed_on: false,
            no_return: false,
            undoing: None,
            remark: String::new(),
            chunks: Vec::new(),
        };
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
    fn what_comes_back_by_itself_is_said_so() {
        let entry = entry("a", "a", Undo::Instead(Vec::new()));
        assert_eq!(what_undo_does(&entry), "create ConfigMap/ns/a comes back by itself");
    }

    #[test]
    fn a_chain_of_which_something_is_left_is_not_taken_back() {
        let entry = |subject: &str, object: &str| entry(subject, object, Undo::Inverse);
        let entries = Entries::new(vec![entry("a", "a-1"), entry("a", "a-2"), entry("b", "b-1")]);
        let undone = Undone { restored: 2, going: 0, left: vec![(map("a-2"), "is stuck".to_owned())] };
        assert_eq!(taken_back(&entries, &undone), [map("b")]);
    }
}
