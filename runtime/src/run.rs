//! The story of a run, from connecting to the verdict.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use crate::{
    act::{Actor, Broken, ChainEnd, Manner, Outcome, RELEASED, StopAll, is_made, sentence},
    args::{Common, OnFailure},
    clock::Clock,
    cluster::{Cluster, Failure, Halt},
    dry_run,
    host::Host,
    journal::{Entries, Entry, Journal, Ledger, RESTORED_BY_HAND, Status, Trouble, head_name},
    lock::{self, Lock, NotLocked},
    logging::Meter,
    object::{Body, Kind, ObjectRef, kinds, shown_time, text, uid},
    plan::{Action, Chain, Closing, Field, Finding, Level, Move, Plan},
    preflight::{self, Preflight},
    report::{self, Report, Result as Ended},
    step::{Meta, Missing, Reader, Step, misnamed, runtime_rules, watched_everywhere},
    undo::{self, undo},
};

/// Rounds in which new objects are looked for and migrated too.
const ROUNDS: usize = 3;

/// Chains that a journal's head can name: more would not fit into a Secret. Where more fail, the whole step is undone.
const CHAINS_IN_HEAD: usize = 2000;

/// The Job's first pod begins within this time. One that takes longer counts as a later one: it is then more careful than
/// it need be.
const FIRST_POD_WITHIN: Duration = Duration::from_secs(20);

/// Of a verdict, what each of its reasons may take up: the command to run next comes last and must not be cut off.
const REASON_BYTES: usize = 300;

/// How a run ended, in one word and one sentence.
#[derive(Debug)]
pub struct Ending {
    /// In one word.
    pub result: Ended,
    /// In one sentence.
    pub verdict: String,
}

impl Ending {
    pub(crate) fn new(result: Ended, verdict: impl Into<String>) -> Self {
        Self { result, verdict: verdict.into() }
    }
}

/// What stops the story before its end.
enum Stop {
    /// It ends with a verdict.
    Ending(Ending),
    /// It is refused for this reason. With a journal open, something has been written, and the reason is that of a failure.
    Refused(String),
    /// It must not go on, and must not say anything more to the cluster.
    Halt(Halt),
}

impl From<Ending> for Stop {
    fn from(ending: Ending) -> Self {
        Self::Ending(ending)
    }
}

impl Stop {
    /// Why, where that may be said.
    fn reason(self) -> Result<String, Halt> {
        match self {
            Self::Ending(ending) => Ok(ending.verdict),
            Self::Refused(why) => Ok(why),
            Self::Halt(halt) => Err(halt),
        }
    }
}

/// Before the first write of a move, a call that fails ends in a refusal.
fn refused(failure: Failure) -> Stop {
    match failure {
        Failure::Halted(halt) => Stop::Halt(halt),
        failure => Stop::Refused(failure.to_string()),
    }
}

fn journal_refused(trouble: Trouble) -> Stop {
    match trouble {
        Trouble::Call(failure) => refused(failure),
        Trouble::Unusable(error) => unusable(&error),
    }
}

fn unusable(error: &anyhow::Error) -> Stop {
    Stop::Refused(format!("{error:#}"))
}

fn refusal(why: &str) -> Ending {
    Ending::new(Ended::Refused, format!("refused, nothing was written: {why}"))
}

/// An earlier attempt has changed things, and a call failed before this one could go on: the next may do better.
fn not_taken_up(failure: Failure) -> Stop {
    match failure {
        Failure::Halted(halt) => Stop::Halt(halt),
        failure => Ending::new(
            Ended::Stopped,
            format!("an earlier attempt left its journal open, and it could not be taken up: {failure}. Run the step again"),
        )
        .into(),
    }
}

/// Nobody can tell whether an earlier attempt has changed things, and this is not the Job's first pod.
fn cannot_tell(why: &str) -> Ending {
    Ending::new(
        Ended::Stopped,
        format!(
            "whether an earlier attempt left its journal open cannot be told, since the journal cannot be read: {why}. \
             Run the step again"
        ),
    )
}

/// Runs a step to its verdict.
pub async fn run<S: Step>(host: Arc<dyn Host>, common: &Common, own: &S::Args) -> Ending {
    let clock = host.clock();
    let begun = Begun { at: clock.now(), started: clock.timestamp() };
    if let Some(mistake) = common.mistake().or_else(|| misnamed(&S::needs(own, common).rules)) {
        return Ending::new(Ended::Usage, mistake);
    }
    let client = match host.connect(&common.access.access()).await {
        Ok(client) => client,
        Err(error) => return Ending::new(Ended::Usage, format!("{error:#}")),
    };
    let cluster = Arc::new(Cluster::new(client, host, usize::from(common.concurrency), S::META.deadline));
    if let Err(error) = stop_when_asked(&cluster) {
        return Ending::new(Ended::Stopped, format!("cannot listen for SIGTERM: {error}"));
    }
    let mut run = Run::<S> {
        common,
        own,
        home: common.home(&S::META),
        times: Times { forward: begun.at, undo: begun.at },
        cluster,
        begun,
        id: String::new(),
        job: None,
        job_started: None,
        findings: Vec::new(),
        outcomes: Vec::new(),
        finished_subjects: Vec::new(),
        skipped: HashSet::new(),
        in_the_way: None,
        taken_back: HashSet::new(),
        first_pod: true,
        no_return: false,
        closing: None,
        lines: Vec::new(),
        ledger: None,
        lock: None,
        homeless: false,
    };
    let ending = match run.story().await {
        Ok(ending) | Err(Stop::Ending(ending)) => ending,
        Err(Stop::Refused(why)) => {
            if common.dry_run {
                // A program that reads the answer finds the refusals where the plan would be.
                dry_run::print(&dry_run::Tried::default(), &run.findings, common.output);
            }
            refusal(&why)
        }
        Err(Stop::Halt(halt)) => return run.halted(&halt).await,
    };
    run.close(ending).await
}

/// Shuts the gate when the process is asked to stop.
pub fn stop_when_asked(cluster: &Arc<Cluster>) -> std::io::Result<()> {
    let (asked, halted) = (cluster.host().asked_to_stop()?, cluster.clone());
    cluster.host().spawn(Box::pin(async move {
        asked.await;
        log::warn!("told to stop: calls in flight are finished, nothing new is begun");
        halted.halt(Halt::Terminated);
    }));
    Ok(())
}

struct Begun {
    at: Instant,
    started: String,
}

/// Until when to go forward, and until when to undo. Both count from the Job's start: a second pod has what is left.
#[derive(Clone, Copy)]
struct Times {
    forward: Instant,
    undo: Instant,
}

struct Run<'a, S: Step> {
    common: &'a Common,
    own: &'a S::Args,
    home: String,
    cluster: Arc<Cluster>,
    begun: Begun,
    id: String,
    job: Option<(ObjectRef, String)>,
    job_started: Option<jiff::Timestamp>,
    times: Times,
    findings: Vec<Finding>,
    outcomes: Vec<Outcome>,
    finished_subjects: Vec<ObjectRef>,
    /// Subjects whose chains were left alone while acting: later phases and rounds leave them alone too.
    skipped: HashSet<ObjectRef>,
    /// The first of them that was left alone for something in its way, which the step did not know when it planned what
    /// cannot be taken back.
    in_the_way: Option<ObjectRef>,
    /// Subjects of chains that were taken back, and nothing else since.
    taken_back: HashSet<ObjectRef>,
    /// Whether no earlier pod of this Job can have left a journal open.
    first_pod: bool,
    no_return: bool,
    closing: Option<Closing>,
    lines: Vec<String>,
    ledger: Option<Arc<Mutex<Ledger>>>,
    lock: Option<Lock>,
    homeless: bool,
}

/// What the family's journals say before the step begins.
struct Recovered {
    ledger: Ledger,
    entries: Arc<Entries>,
    own_open: Option<Journal>,
    others_open: Vec<(String, Journal)>,
}

impl<S: Step> Run<'_, S> {
    const META: Meta = S::META;

    fn clock(&self) -> &Clock {
        self.cluster.clock()
    }

    /// Whether the time for going forward is over.
    fn is_past_deadline(&self) -> bool {
        self.clock().is_past(self.times.forward)
    }

    async fn story(&mut self) -> Result<Ending, Stop> {
        self.id = run_id(self.clock().wall());
        let ready = match self.look_around().await {
            Ok(ready) => ready,
            Err(failure) => return Err(self.not_begun(failure).await),
        };
        let ready = match ready {
            Ready::Yes(missing) => missing,
            Ready::Nothing(why, missing) => {
                let ending = Ending::new(Ended::NothingToDo, why);
                if self.common.dry_run {
                    dry_run::print(&dry_run::Tried::default(), &self.findings, self.common.output);
                    return Ok(ending);
                }
                // With a journal open an earlier attempt has changed things, and that is not nothing: a step may itself
                // have removed the last of its source APIs.
                match self.own_journal().await? {
                    Head::Open => {}
                    Head::Unknown if !self.first_pod => return Ok(cannot_tell(&ending.verdict)),
                    Head::Closed | Head::Unknown => return Ok(ending),
                }
                self.take_lock().await?;
                let recovered = self.recover().await?;
                return self.migrate(missing, recovered).await;
            }
            Ready::Refused(why) => {
                if self.common.dry_run {
                    return Err(Stop::Refused(why));
                }
                match self.own_journal().await? {
                    Head::Open => {}
                    Head::Unknown if !self.first_pod => return Ok(cannot_tell(&why)),
                    Head::Closed | Head::Unknown => return Err(Stop::Refused(why)),
                }
                self.take_lock().await?;
                let recovered = self.recover().await?;
                let migration = self.migration(Missing::default(), recovered);
                return self.fail(&migration, why).await;
            }
        };
        if self.common.dry_run {
            return self.dry_run(ready).await;
        }
        self.take_lock().await?;
        let recovered = self.recover().await?;
        self.migrate(ready, recovered).await
    }

    async fn look_around(&mut self) -> Result<Ready, Failure> {
        self.find_job().await?;
        self.preflight().await
    }

    /// A call failed before the journals were read. That nothing was written is true only if no earlier attempt left its
    /// journal open. Where that cannot be told either, the Job's first pod counts as the first attempt: a refusal ends the
    /// Job, and that must not happen half-way.
    async fn not_begun(&self, failure: Failure) -> Stop {
        if self.common.dry_run || matches!(failure, Failure::Halted(_)) {
            return refused(failure);
        }
        match self.own_journal().await {
            Ok(Head::Open) => not_taken_up(failure),
            Ok(Head::Unknown) if !self.first_pod => cannot_tell(&failure.to_string()).into(),
            Ok(Head::Closed | Head::Unknown) => refused(failure),
            Err(stop) => stop,
        }
    }

    /// Whether an earlier attempt left its journal open.
    async fn own_journal(&self) -> Result<Head, Stop> {
        match Ledger::peek(&self.cluster, &self.home, Self::META.name).await {
            Ok(Some(ledger)) if ledger.open_journal().is_some() => Ok(Head::Open),
            Ok(Some(_)) => Ok(Head::Closed),
            Err(Trouble::Call(Failure::Halted(halt))) => Err(Stop::Halt(halt)),
            Ok(None) | Err(Trouble::Call(_)) => Ok(Head::Unknown),
            Err(Trouble::Unusable(error)) => Err(unusable(&error)),
        }
    }

    /// Sets the clock by the Job's start, where there is a Job.
    async fn find_job(&mut self) -> Result<(), Failure> {
        let deadline = self.common.deadline.unwrap_or(Self::META.deadline);
        let reserve = self.common.undo_reserve.unwrap_or(Self::META.undo_reserve);
        let mut start = self.begun.at;
        let name = self.cluster.host().variable("BELAY_JOB_NAME");
        if let (Some(name), false) = (name, self.common.dry_run) {
            self.cluster.set_deadline(start + deadline);
            let object = kinds::JOB.object(self.common.namespace(), name);
            // Until the Job says otherwise.
            self.first_pod = false;
            let found = match self.cluster.get(&object).await {
                Ok(found) => found,
                // Preflight will name this right with all others that are missing.
                Err(failure) if failure.is_forbidden() => None,
                Err(failure) => return Err(failure),
            };
            if let Some(job) = found {
                let started =
                    text(&job, "/status/startTime").and_then(|time| time.parse::<jiff::Timestamp>().ok());
                let ago = started
                    .and_then(|time| Duration::try_from(self.clock().wall().duration_since(time)).ok());
                // A pod that was evicted does not count as failed, but whoever comes after it comes late.
                let failed = job.pointer("/status/failed").and_then(Value::as_i64).unwrap_or(0);
                self.first_pod = failed == 0 && ago.is_none_or(|ago| ago < FIRST_POD_WITHIN);
                start = ago.and_then(|ago| start.checked_sub(ago)).unwrap_or(start);
                self.job_started = started;
                self.job = Some((object, uid(&job).to_owned()));
            }
        }
        self.times = Times { forward: start + deadline, undo: start + deadline + reserve };
        self.set_deadline();
        Ok(())
    }

    fn set_deadline(&self) {
        // The lock and the journal must still be reached when only undo is left.
        let until = if self.is_past_deadline() { self.times.undo } else { self.times.forward };
        self.cluster.set_deadline(until);
    }

    async fn preflight(&mut self) -> Result<Ready, Failure> {
        let needs = S::needs(self.own, self.common);
        let mut rules = needs.rules.clone();
        if !self.common.dry_run {
            rules.extend(runtime_rules(&Self::META, self.common));
        }
        // A dependency gets a third of the time to appear: the migration itself needs the rest.
        let patience = self.common.deadline.unwrap_or(Self::META.deadline) / 3;
        let until = (self.clock().now() + patience).min(self.cluster.deadline());
        match preflight::check(&self.cluster, &needs, &rules, until).await? {
            Preflight::NothingToMigrate { why, unserved } => {
                Ok(Ready::Nothing(why, Missing { unserved, ..Missing::default() }))
            }
            Preflight::Ready { unserved, absent, findings } => {
                self.findings.extend(findings);
                Ok(Ready::Yes(Missing { unserved, absent }))
            }
            Preflight::Refused(refusals) => {
                self.findings.extend(refusals);
                Ok(Ready::Refused(self.refusals()))
            }
        }
    }

    /// Every refusal, in one sentence.
    fn refusals(&self) -> String {
        let reasons: Vec<String> = self
            .findings
            .iter()
            .filter(|finding| finding.level == Level::Refuse)
            .map(ToString::to_string)
            .collect();
        for reason in &reasons {
            log::error!("refused: {reason}");
        }
        reasons.join("; ")
    }

    async fn take_lock(&mut self) -> Result<(), Stop> {
        let not_locked = |not: NotLocked| match not {
            held @ NotLocked::Held { .. } => Stop::Ending(Ending::new(Ended::NotNow, held.to_string())),
            NotLocked::WrongHome(why) => Stop::Refused(why),
            NotLocked::Call(Failure::Halted(halt)) => Stop::Halt(halt),
            // Not a refusal: whoever may not ask for the lock can't say anything about the cluster.
            NotLocked::Call(failure) => Stop::Halt(Halt::NoLock(failure.to_string())),
        };
        let patience = (self.common.deadline.unwrap_or(Self::META.deadline) / 2).min(Duration::from_secs(60));
        let until = self.clock().now() + patience;
        let taken = match lock::refuse_second_home(&self.cluster, &Self::META, &self.home).await {
            Ok(()) => Lock::take(&self.cluster, &Self::META, &self.home, until).await,
            Err(not) => Err(not),
        };
        self.homeless = matches!(taken, Err(NotLocked::WrongHome(_)));
        let lock = taken.map_err(not_locked)?;
        if lock.from_the_dead {
            self.cluster.may_land_late();
        }
        self.lock = Some(lock);
        Ok(())
    }

    /// Reads the family's journals.
    async fn recover(&self) -> Result<Recovered, Stop> {
        let mut others_open = Vec::new();
        for step in Self::META.family_steps.iter().filter(|step| **step != Self::META.name) {
            let ledger = self.load(step).await?;
            others_open.extend(ledger.open_journal().map(|journal| ((*step).to_owned(), journal.clone())));
        }
        let mut ledger = self.load(Self::META.name).await?;
        let mut entries = Entries::default();
        if let Some(journal) = ledger.open_journal().cloned() {
            // The lock alone would not tell that somebody died: another step or a person may have had it since.
            if !journal.handed_on {
                self.cluster.may_land_late();
            }
            entries = ledger.entries(&journal).await.map_err(|trouble| match trouble {
                Trouble::Call(failure) => not_taken_up(failure),
                unusable @ Trouble::Unusable(_) => journal_refused(unusable),
            })?;
            if !self.common.dry_run {
                // Whoever had it either handed it on or died.
                let died = u32::from(!journal.handed_on && journal.status == Status::Open);
                let taken_up = ledger.change(|journal| {
                    journal.deaths += died;
                    journal.handed_on = false;
                });
                taken_up.await.map_err(not_taken_up)?;
            }
        }
        let own_open = ledger.open_journal().cloned();
        if own_open.is_none()
            && let Some(journal) =
                ledger.journals().first().filter(|newest| self.is_ended_by_a_person(newest))
        {
            return Err(Stop::Refused(format!(
                "somebody has ended run {} of this Job by hand ({}), so this pod does not begin it again. To migrate after \
                 all, run the step again",
                journal.run,
                if journal.status == Status::Accepted { "accepted" } else { RESTORED_BY_HAND },
            )));
        }
        Ok(Recovered { ledger, entries: Arc::new(entries), own_open, others_open })
    }

    /// Whether a pod of this Job has opened a journal, and a person has closed it between that pod and this one.
    fn is_ended_by_a_person(&self, journal: &Journal) -> bool {
        let by_hand = journal.status == Status::Accepted
            || (journal.status == Status::Undone && journal.remark == RESTORED_BY_HAND);
        let opened = journal.opened.parse::<jiff::Timestamp>().ok();
        by_hand && opened.zip(self.job_started).is_some_and(|(opened, job)| opened >= job)
    }

    async fn load(&self, step: &str) -> Result<Ledger, Stop> {
        match Ledger::load(&self.cluster, &self.home, step).await {
            Ok(ledger) => Ok(ledger),
            Err(Trouble::Call(failure)) => Err(self.not_begun(failure).await),
            Err(unusable) => Err(journal_refused(unusable)),
        }
    }

    fn migration(&mut self, missing: Missing, recovered: Recovered) -> Migration {
        let Recovered { ledger, entries, own_open, others_open } = recovered;
        let run = own_open.as_ref().map_or_else(|| self.id.clone(), |journal| journal.run.clone());
        let ledger = Arc::new(Mutex::new(ledger));
        self.ledger = Some(ledger.clone());
        self.no_return = own_open.as_ref().is_some_and(|journal| journal.no_return);
        let mark = format!("{}/{run}", Self::META.name);
        let everywhere = watched_everywhere(&S::needs(self.own, self.common).rules);
        let actor = Actor::new(self.cluster.clone(), ledger.clone(), entries, mark, everywhere);
        Migration { actor, ledger, missing, others_open, own_open, run }
    }

    async fn migrate(&mut self, missing: Missing, recovered: Recovered) -> Result<Ending, Stop> {
        let migration = self.migration(missing, recovered);
        let ended = self.resume_or_begin(&migration).await;
        if let (Some(closing), false) = (self.closing.take(), matches!(ended, Err(Stop::Halt(_)))) {
            self.lines = migration.actor.closing_lines(&closing).await;
            self.lines.iter().for_each(|line| log::info!("{line}"));
        }
        ended
    }

    async fn resume_or_begin(&mut self, migration: &Migration) -> Result<Ending, Stop> {
        if let Some(journal) = &migration.own_open {
            let mut journal = journal.clone();
            if let (Some(chains), false) = (journal.undoing.take(), journal.no_return) {
                if let Some(ending) = self.finish_chains(migration, &chains).await? {
                    return Ok(ending);
                }
                if self.common.on_failure == OnFailure::Chain && self.is_past_deadline() {
                    return self.keep_the_others(migration).await;
                }
                journal.status = Status::Open;
            }
            if let Some(why) = self.why_not_resume(&journal) {
                return self.undo(migration, why).await;
            }
            log::info!("resuming: an earlier attempt (run {}) ended half-way", journal.run);
        } else if self.is_past_deadline() {
            return Err(Stop::Refused("the deadline had passed before the step could begin".to_owned()));
        }
        self.rounds(migration).await
    }

    /// Why an open journal is undone instead of resumed, if it is.
    fn why_not_resume(&self, journal: &Journal) -> Option<String> {
        if journal.no_return {
            None
        } else if journal.status == Status::Undoing {
            Some("an earlier attempt was being undone".to_owned())
        } else if journal.is_given_up() {
            Some(format!("{} attempts died half-way", journal.deaths))
        } else if self.is_past_deadline() {
            Some("the deadline has passed, counted from the Job's start".to_owned())
        } else {
            None
        }
    }

    async fn rounds(&mut self, migration: &Migration) -> Result<Ending, Stop> {
        let resumed = migration.own_open.is_some();
        let mut journalled = resumed;
        let mut failed: Vec<(ObjectRef, String)> = Vec::new();
        for round in 1..=ROUNDS + 1 {
            let (mut plan, entries) = match self.decide(migration, round == 1).await {
                Ok(decided) => decided,
                // Every move is made; only looking again failed, and that takes nothing back.
                Err(stop) if round > 1 => {
                    self.could_not_look_again(stop)?;
                    break;
                }
                // With a journal open something has been done: that is not a refusal any more.
                Err(stop) if journalled => {
                    return self.fail(migration, stop.reason().map_err(Stop::Halt)?).await;
                }
                Err(stop) => return Err(stop),
            };
            if resumed && round == 1 {
                let planned: HashSet<ObjectRef> =
                    plan.chains().map(|(_, chain)| chain.subject.clone()).collect();
                if let Some(ending) = self.look_at_earlier(migration, &planned).await? {
                    return Ok(ending);
                }
            }
            leave_out(&mut plan, &failed, &self.skipped);
            if self.in_the_way.is_some() && !self.no_return {
                plan.point_of_no_return.clear();
            }
            if round > 1 && !leave_out_refused(&mut plan) {
                break;
            }
            let writes = plan.writes().count();
            if round > 1 && writes == 0 {
                break;
            }
            if round > ROUNDS {
                self.findings.push(Finding::note(
                    None,
                    format!("{writes} more objects appeared during {ROUNDS} rounds: run the step again"),
                ));
                break;
            }
            if round > 1 && !self.no_return && self.is_past_deadline() {
                self.findings.push(Finding::note(
                    None,
                    format!(
                        "{writes} more moves came up, and the deadline has passed: run the step again to make them"
                    ),
                ));
                break;
            }
            if writes > 0 {
                let journal = match self.refuse_beside(&migration.others_open) {
                    Ok(()) => self.journal(migration, &plan, &entries, journalled).await,
                    Err(stop) => Err(stop),
                };
                match journal {
                    Ok(()) => {}
                    Err(stop) if round > 1 => {
                        self.could_not_look_again(stop)?;
                        break;
                    }
                    Err(stop) if journalled => {
                        return self.fail(migration, stop.reason().map_err(Stop::Halt)?).await;
                    }
                    Err(stop) => return Err(stop),
                }
                // What is on its way out already has no pre-image, and a plan of nothing else has no journal.
                journalled = migration.ledger.lock().await.open_journal().is_some();
            }
            let more = self.act(migration, &mut plan).await?;
            if more.is_empty() {
                migration.actor.forget_watches();
                continue;
            }
            if self.no_return || self.common.on_failure == OnFailure::Step {
                return self.fail_step(migration, journalled, &more).await;
            }
            failed.extend(more);
        }
        if resumed {
            let failed: HashSet<ObjectRef> = failed.iter().map(|(subject, _)| subject.clone()).collect();
            if let Some(ending) = self.look_at_earlier(migration, &failed).await? {
                return Ok(ending);
            }
            let entries = migration.actor.entries().await;
            let finished: HashSet<&ObjectRef> = self.finished_subjects.iter().collect();
            let is_ours = |entry: &&Entry| finished.contains(&entry.chain) && !failed.contains(&entry.chain);
            migration.actor.add_earlier(entries.all().iter().filter(is_ours));
        }
        self.outcomes = migration.actor.outcomes();
        if failed.is_empty() {
            return self.succeed(migration, journalled).await;
        }
        self.undo_chains(migration, journalled, &failed).await
    }

    /// Looks at the chains of the journal that are neither planned nor finished. What earlier attempts finished is this
    /// run's too. What they left half-way and the plan does not have any more, for an exclusion or other flags, is taken
    /// back before anything else is done: past the point of no return it could not be.
    async fn look_at_earlier(
        &mut self,
        migration: &Migration,
        planned: &HashSet<ObjectRef>,
    ) -> Result<Option<Ending>, Stop> {
        let entries = migration.actor.entries().await;
        let known: HashSet<&ObjectRef> =
            self.finished_subjects.iter().chain(&self.taken_back).chain(planned).collect();
        let earlier = undo::earlier(&migration.actor, &entries, |subject| !known.contains(subject)).await;
        let earlier = earlier.map_err(not_taken_up)?;
        self.finished_subjects.extend(earlier.made);
        self.finished_subjects.sort();
        self.finished_subjects.dedup();
        for (object, live) in earlier.marked {
            match migration.actor.disown(&object, live).await {
                Ok(_) | Err(Broken::Gone(_)) => {}
                Err(broken) => {
                    let message = format!("its managedFields still name belay: {}", sentence(broken));
                    log::warn!("{object}: {message}");
                    self.findings.push(Finding::note(object, message));
                }
            }
        }
        if earlier.half.is_empty() || self.no_return {
            return Ok(None);
        }
        let why = "an earlier attempt left objects half-way that this one leaves out";
        if let Err(ending) = self.take_back(migration, &earlier.half, why).await? {
            return Ok(Some(ending));
        }
        let message = "was left half-way by an earlier attempt and is left out now: it was taken back";
        self.findings.extend(earlier.half.into_iter().map(|subject| Finding::skip(subject, message)));
        self.go_on(migration).await?;
        Ok(None)
    }

    fn could_not_look_again(&mut self, stop: Stop) -> Result<(), Stop> {
        let why = stop.reason().map_err(Stop::Halt)?;
        let message = format!("all moves were made, but looking for new objects failed: {why}");
        log::warn!("{message}");
        self.findings.push(Finding::note(None, message));
        Ok(())
    }

    /// Reads and decides.
    async fn decide(&mut self, migration: &Migration, first: bool) -> Result<(Plan, Arc<Entries>), Stop> {
        let entries = migration.actor.entries().await;
        let done = self.done_record().await?;
        let reader = Reader::new(
            self.cluster.clone(),
            entries.clone(),
            migration.missing.clone(),
            self.home.clone(),
            Self::META.name,
        )
        .with_done_record(done)
        .with_excluded(&self.common.exclude)
        .with_deleted(migration.actor.deleted_since_resuming())
        .with_journal_opened(migration.own_open.as_ref().map(|journal| journal.opened.clone()));
        let snapshot = S::snapshot(self.own, &reader).await.map_err(refused)?;
        let mut plan = S::plan(self.own, &snapshot);
        // What an earlier attempt left half-way may be in no plan of this one, and yet is what the person means.
        let mut left_out = reader.left_out();
        left_out.extend(entries.named(&self.common.exclude).cloned());
        plan.exclude(&self.common.exclude, left_out);
        if let Some(mistake) = plan.mistakes().first() {
            return Err(Stop::Refused(format!("this is a bug in {}: {mistake}", Self::META.name)));
        }
        if first {
            self.closing = plan.closing.take();
            self.findings.extend(plan.findings.iter().cloned());
            for finding in plan.findings.iter().filter(|finding| finding.level != Level::Refuse) {
                log::info!("{}: {finding}", if finding.level == Level::Skip { "skipping" } else { "note" });
            }
            if plan.refusals().next().is_some() {
                // All at once: what would be said when this is cured.
                self.refuse_beside(&migration.others_open)?;
                return Err(Stop::Refused(self.refusals()));
            }
        } else {
            for finding in appeared(&self.findings, &plan) {
                log::warn!("appeared meanwhile: {finding}");
                self.findings.push(finding);
            }
        }
        drop_overtaken(&mut plan, &entries);
        // What an earlier phase will change may look made already, and will not be then.
        let mut written: HashSet<ObjectRef> = HashSet::new();
        for phase in plan.phases.iter_mut().chain(std::iter::once(&mut plan.point_of_no_return)) {
            for chain in phase.iter_mut() {
                chain.moves.retain(|step| {
                    let is_restored =
                        |live: &Body| migration.actor.is_restored(step, &live.value(), &entries);
                    let is_made = is_made(step, &entries) && !step.live.as_ref().is_some_and(is_restored);
                    written.contains(&step.object) || !is_made
                });
            }
            written.extend(phase.iter().flat_map(written_by).cloned());
        }
        let mut fought = Vec::new();
        for phase in plan.phases.iter_mut().chain(std::iter::once(&mut plan.point_of_no_return)) {
            phase.retain(|chain| {
                let against = chain.moves.iter().find(|step| is_fight(&migration.actor, step, &entries));
                fought.extend(against.map(|step| step.object.clone()));
                !chain.moves.is_empty() && against.is_none()
            });
        }
        for object in fought {
            let message = if migration.actor.has_made(&object) {
                "was deleted by somebody while the step ran: it is not made again"
            } else {
                "was changed back by somebody while the step ran: it is left as it is"
            };
            let finding = Finding::skip(object, message);
            if !self.findings.contains(&finding) {
                log::warn!("{finding}");
                self.findings.push(finding);
            }
        }
        Ok((plan, entries))
    }

    async fn done_record(&self) -> Result<HashMap<String, String>, Stop> {
        if !Self::META.keeps_done_record || self.common.again {
            return Ok(HashMap::new());
        }
        let stored = report::read(&self.cluster, &self.home, Self::META.name).await.map_err(refused)?;
        Ok(stored.as_ref().map(report::done_record).unwrap_or_default())
    }

    /// Another step's open journal holds objects that this one may be about to change.
    fn refuse_beside(&mut self, others: &[(String, Journal)]) -> Result<(), Stop> {
        if others.is_empty() {
            return Ok(());
        }
        for (step, journal) in others {
            self.findings.push(Finding::refuse(
                None,
                format!(
                    "the step {step} has an open journal (run {}, since {}). Finish it by running {step} again, take \
                     it back with: belay restore --step {step} --home {home}, or, when you have looked and all is \
                     well: belay accept --step {step} --home {home}",
                    journal.run,
                    journal.opened,
                    home = self.home
                ),
            ));
        }
        Err(Stop::Refused(self.refusals()))
    }

    /// Stores the pre-images, after proving that each could be restored.
    async fn journal(
        &mut self,
        migration: &Migration,
        plan: &Plan,
        entries: &Arc<Entries>,
        journalled: bool,
    ) -> Result<(), Stop> {
        let mut missing = entries.missing(plan.chains());
        let findings = dry_run::prove_restorable(&migration.actor, &missing).await.map_err(refused)?;
        for finding in findings {
            if finding.level == Level::Skip {
                self.skipped.extend(finding.object.clone());
            }
            if !self.findings.contains(&finding) {
                self.findings.push(finding);
            }
        }
        missing.retain(|entry| !self.skipped.contains(&entry.chain));
        if self.findings.iter().any(|finding| finding.level == Level::Refuse) {
            return Err(Stop::Refused(self.refusals()));
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut ledger = migration.ledger.lock().await;
        if journalled {
            ledger.append(&missing).await.map_err(journal_refused)?;
        } else {
            self.fence(&mut ledger).await?;
            ledger.open(&migration.run, &missing).await.map_err(journal_refused)?;
        }
        let all: Vec<_> = entries.all().iter().cloned().chain(missing).collect();
        migration.actor.set_entries(Arc::new(Entries::new(all))).await;
        Ok(())
    }

    /// A run that died may have been about to open its journal: its head must not land any more once our chunks are written.
    async fn fence(&self, ledger: &mut Ledger) -> Result<(), Stop> {
        if self.cluster.lands_until().is_none() {
            return Ok(());
        }
        match ledger.fence().await {
            Ok(()) => Ok(()),
            Err(failure) if failure.is_conflict() || failure.is_already_exists() => Err(Ending::new(
                Ended::Stopped,
                "stopped: the journal of a run that died has only now come to light. Run the step again",
            )
            .into()),
            Err(failure) => Err(refused(failure)),
        }
    }

    /// Carries out a plan and returns the chains that failed, with the reasons.
    async fn act(
        &mut self,
        migration: &Migration,
        plan: &mut Plan,
    ) -> Result<Vec<(ObjectRef, String)>, Stop> {
        let whole = self.common.on_failure == OnFailure::Step;
        let stop_all = match (whole, plan.writes().next()) {
            (false, _) => StopAll::Never,
            (true, Some(_)) => StopAll::AtAnyFailure,
            // Nothing has to be taken back: there is time to find out all that is wrong.
            (true, None) => StopAll::WhenHopeless,
        };
        let mut failed: Vec<(ObjectRef, String)> = Vec::new();
        for number in 0..plan.phases.len() {
            let (earlier, rest) = plan.phases.split_at_mut(number);
            let Some(phase) = rest.first_mut() else { break };
            look_anew(phase, earlier);
            let mut chains: Vec<&Chain> = phase.iter().collect();
            chains.retain(|chain| {
                !failed.iter().any(|(subject, _)| *subject == chain.subject)
                    && !self.skipped.contains(&chain.subject)
            });
            let manner = Manner { stop_all, bound: !self.no_return };
            failed.extend(self.phase(migration, &chains, manner).await?);
            if whole && !failed.is_empty() {
                return Ok(failed);
            }
        }
        if let Some(object) = &self.in_the_way
            && !self.no_return
            && !plan.point_of_no_return.is_empty()
        {
            let message = format!(
                "what cannot be taken back was not done, since {object} was left alone: put it right or leave it out \
                 with --exclude, then run the step again"
            );
            log::warn!("{message}");
            self.findings.push(Finding::note(None, message));
            plan.point_of_no_return.clear();
        }
        look_anew(&mut plan.point_of_no_return, &plan.phases);
        let mut last: Vec<&Chain> = plan.point_of_no_return.iter().collect();
        last.retain(|chain| !self.skipped.contains(&chain.subject));
        if !failed.is_empty() || last.is_empty() {
            return Ok(failed);
        }
        let writes = last.iter().flat_map(|chain| &chain.moves).any(Move::writes);
        if writes && !self.no_return {
            match migration.ledger.lock().await.change(|journal| journal.no_return = true).await {
                Ok(()) => self.no_return = true,
                Err(Failure::Halted(halt)) => return Err(Stop::Halt(halt)),
                Err(failure) => {
                    let head = kinds::SECRET.object(&self.home, head_name(Self::META.name));
                    return Ok(vec![(head, failure.to_string())]);
                }
            }
            log::info!("past the point of no return: from here the step only goes forward");
        }
        self.phase(migration, &last, Manner { stop_all: StopAll::Never, bound: false }).await
    }

    /// Runs one phase and says every few seconds how far it is.
    async fn phase(
        &mut self,
        migration: &Migration,
        chains: &[&Chain],
        manner: Manner,
    ) -> Result<Vec<(ObjectRef, String)>, Stop> {
        let meter = Meter::new(chains.len(), self.clock());
        let actor = &migration.actor;
        let running = actor.run_chains(chains, manner, |_, _| meter.tick());
        tokio::pin!(running);
        let clock = self.clock().clone();
        let ends = loop {
            tokio::select! {
                biased;
                ends = &mut running => break ends,
                () = clock.sleep(crate::act::SAY_AFTER) => meter.say(actor.waiting_for()),
            }
        };
        let mut failed = Vec::new();
        for (subject, end) in ends {
            if let ChainEnd::Skipped(_) = end {
                self.in_the_way.get_or_insert_with(|| subject.clone());
            }
            match end {
                ChainEnd::Done => self.finished_subjects.push(subject),
                ChainEnd::Skipped(finding) | ChainEnd::Void(finding) => {
                    self.skipped.insert(subject);
                    if !self.findings.contains(&finding) {
                        self.findings.push(finding);
                    }
                }
                ChainEnd::Failed { why, .. } => failed.push((subject, why)),
                ChainEnd::Halted(halt) => return Err(Stop::Halt(halt)),
                ChainEnd::Stopped => {}
            }
        }
        Ok(failed)
    }

    async fn succeed(&mut self, migration: &Migration, journalled: bool) -> Result<Ending, Stop> {
        let counts = report::count(&self.outcomes);
        let ending = if self.outcomes.is_empty() {
            // A subject may have a chain in each phase.
            let looked = match self.finished_subjects.iter().collect::<HashSet<_>>().len() {
                0 => String::new(),
                1 => "; 1 object is as wanted".to_owned(),
                many => format!("; {many} objects are as wanted"),
            };
            Ending::new(Ended::NothingToDo, format!("nothing to do{looked}"))
        } else {
            Ending::new(Ended::Done, format!("done: {}", report::counted(&counts)))
        };
        if journalled {
            self.close_journal(migration, &ending).await?;
        }
        Ok(ending)
    }

    /// Closes the journal of what is done. The done record must be there before: afterwards nothing else remembers.
    async fn close_journal(&self, migration: &Migration, ending: &Ending) -> Result<(), Stop> {
        if Self::META.keeps_done_record {
            let (report, done) = (self.report(ending), &self.finished_subjects);
            let written = report::write(&self.cluster, &self.home, &report, &self.outcomes, done);
            if let Err(failure) = written.await {
                return Err(self.must_run_again(migration, failure).await);
            }
        }
        let void = self.void(migration).await;
        let closed = migration.ledger.lock().await.close(void).await;
        match closed {
            Ok(()) => Ok(()),
            Err(failure) => Err(self.must_run_again(migration, failure).await),
        }
    }

    /// The chains of the journal of which nothing is left: taken back, or left alone before anything was done. Of a chain
    /// that this run left alone an earlier attempt may have done something, and that stays to be taken back.
    async fn void(&self, migration: &Migration) -> Vec<ObjectRef> {
        let left_alone = self.skipped.iter().filter(|_| migration.own_open.is_none());
        let entries = migration.actor.entries().await;
        let journalled = entries.all().iter().map(|entry| &entry.chain);
        let mut void =
            nothing_left(journalled, self.taken_back.iter().chain(left_alone), &self.finished_subjects);
        if void.len() > CHAINS_IN_HEAD {
            log::warn!(
                "{} chains were left alone: the journal cannot name so many, and a restore will look at them too",
                void.len()
            );
            void.truncate(CHAINS_IN_HEAD);
        }
        void
    }

    /// All is done, but the journal could not be closed: the next run does that. Nobody died, and the journal says so if
    /// it can be written at all.
    async fn must_run_again(&self, migration: &Migration, failure: Failure) -> Stop {
        if !matches!(failure, Failure::Halted(_))
            && let Err(failure) = migration.ledger.lock().await.hand_on().await
        {
            log::warn!("that the journal is handed on could not be noted: {failure}");
        }
        match failure {
            Failure::Halted(halt) => Stop::Halt(halt),
            failure => Ending::new(
                Ended::Stopped,
                format!("all is done, but the journal could not be closed ({failure}): run the step again"),
            )
            .into(),
        }
    }

    async fn fail_step(
        &mut self,
        migration: &Migration,
        journalled: bool,
        failed: &[(ObjectRef, String)],
    ) -> Result<Ending, Stop> {
        if journalled {
            return self.fail(migration, reasons(failed)).await;
        }
        self.outcomes = migration.actor.outcomes();
        let why = reasons(failed);
        // What is on its way out is not journalled: it cannot be brought back, only helped on.
        let released = self.outcomes.iter().filter(|outcome| outcome.what == RELEASED).count();
        let done = match released {
            0 => "Nothing had been changed".to_owned(),
            1 => "Nothing had been changed but 1 object that was being deleted already: finalizers that nobody serves \
                  were taken off it"
                .to_owned(),
            some => format!(
                "Nothing had been changed but {some} objects that were being deleted already: \
                             finalizers that nobody serves were taken off them"
            ),
        };
        Ok(Ending::new(Ended::Restored, format!("failed: {why}. {done}")))
    }

    /// Something was done and the step cannot go on: undo it, or, past the point of no return, leave it for a rerun.
    async fn fail(&mut self, migration: &Migration, why: String) -> Result<Ending, Stop> {
        if self.no_return {
            self.outcomes = migration.actor.outcomes();
            return Ok(Ending::new(
                Ended::Unfinished,
                format!(
                    "unfinished, past the point of no return: {}. Run the step again when the cause is gone",
                    report::cut_to(&why, 2 * REASON_BYTES)
                ),
            ));
        }
        self.undo(migration, why).await
    }

    /// Undo has what is left of its reserve, and half of it at the least: a pod that comes late must still be able to
    /// put things back, even if Helm has given up by then.
    fn begin_undo(&self) {
        let reserve = self.common.undo_reserve.unwrap_or(Self::META.undo_reserve);
        self.cluster.set_deadline(self.times.undo.max(self.clock().now() + reserve / 2));
    }

    async fn undo(&mut self, migration: &Migration, why: String) -> Result<Ending, Stop> {
        log::warn!("undoing: {why}");
        self.begin_undo();
        self.mark_undoing(migration, None).await?;
        let entries = migration.actor.entries().await;
        let undone = undo(&migration.actor, &entries, None).await.map_err(Stop::Halt)?;
        self.outcomes = migration.actor.outcomes();
        if undone.left.is_empty() {
            let subjects: Vec<ObjectRef> = entries.all().iter().map(|entry| entry.chain.clone()).collect();
            self.forget_done(&subjects).await?;
            let mut ledger = migration.ledger.lock().await;
            match ledger.mark(Status::Undone, None).await {
                Ok(()) => {}
                Err(Failure::Halted(halt)) => return Err(Stop::Halt(halt)),
                Err(failure) if failure.is_conflict() => return Err(Stop::Halt(another_writer())),
                // The journal stays marked as being undone; whoever comes next finds all in place and closes it.
                Err(failure) => log::error!("the journal could not be closed: {failure}"),
            }
            return Ok(Ending::new(
                Ended::Restored,
                format!(
                    "failed: {}. Everything is as it was before: {}",
                    report::cut_to(&why, 2 * REASON_BYTES),
                    undone.in_words()
                ),
            ));
        }
        Ok(self.not_restored(migration, &why, &undone.left_in_words()))
    }

    /// A run that died after its done record was written may be undone: what is undone is not done.
    async fn forget_done(&self, subjects: &[ObjectRef]) -> Result<(), Stop> {
        if !Self::META.keeps_done_record {
            return Ok(());
        }
        match report::forget(&self.cluster, &self.home, Self::META.name, subjects).await {
            Err(Failure::Halted(halt)) => Err(Stop::Halt(halt)),
            Err(failure) => {
                log::error!("the done record still names what was undone: {failure}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn not_restored(&mut self, migration: &Migration, why: &str, left: &str) -> Ending {
        self.outcomes = migration.actor.outcomes();
        Ending::new(
            Ended::NotRestored,
            format!(
                "failed: {why}. NOT everything could be put back: {left}. Look at these objects, then: belay restore \
                 --step {step} --home {home}, or belay accept --step {step} --home {home}",
                why = report::cut_to(why, REASON_BYTES),
                left = report::cut_to(left, REASON_BYTES),
                step = Self::META.name,
                home = self.home
            ),
        )
    }

    /// Says in the head that an undo begins, of all chains or of some: whoever comes after a death finishes just that. An
    /// undo that cannot be marked is better than none.
    async fn mark_undoing(&self, migration: &Migration, chains: Option<&[ObjectRef]>) -> Result<(), Stop> {
        let chains = chains.map(<[ObjectRef]>::to_vec);
        let changed = migration.ledger.lock().await.mark(Status::Undoing, chains).await;
        match changed {
            Err(Failure::Halted(halt)) => Err(Stop::Halt(halt)),
            // The next run is at work already, or our own last word about it is not what we think: it is not ours to undo.
            Err(failure) if failure.is_conflict() => Err(Stop::Halt(another_writer())),
            Err(failure) => {
                log::error!("the journal could not be marked, it is undone all the same: {failure}");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Takes some chains back; or the ending, where something is left.
    async fn take_back(
        &mut self,
        migration: &Migration,
        chains: &[ObjectRef],
        why: &str,
    ) -> Result<Result<(), Ending>, Stop> {
        self.begin_undo();
        self.mark_undoing(migration, Some(chains)).await?;
        let entries = migration.actor.entries().await;
        let undone = undo(&migration.actor, &entries, Some(chains)).await.map_err(Stop::Halt)?;
        self.outcomes = migration.actor.outcomes();
        if !undone.left.is_empty() {
            return Ok(Err(self.not_restored(migration, why, &undone.left_in_words())));
        }
        self.forget_done(chains).await?;
        self.taken_back.extend(chains.iter().cloned());
        Ok(Ok(()))
    }

    /// An earlier attempt was taking some chains back: that is finished before anything else is done.
    async fn finish_chains(
        &mut self,
        migration: &Migration,
        chains: &[ObjectRef],
    ) -> Result<Option<Ending>, Stop> {
        log::warn!("undoing: an earlier attempt was taking back {} chains", chains.len());
        let why = "an earlier attempt was being undone";
        if let Err(ending) = self.take_back(migration, chains, why).await? {
            return Ok(Some(ending));
        }
        self.go_on(migration).await?;
        Ok(None)
    }

    /// Goes forward again after some chains were taken back.
    async fn go_on(&self, migration: &Migration) -> Result<(), Stop> {
        let changed = migration.ledger.lock().await.mark(Status::Open, None).await;
        changed.map_err(not_taken_up)?;
        self.set_deadline();
        Ok(())
    }

    /// Takes back the chains that failed and keeps the others.
    async fn undo_chains(
        &mut self,
        migration: &Migration,
        journalled: bool,
        failed: &[(ObjectRef, String)],
    ) -> Result<Ending, Stop> {
        let subjects: Vec<ObjectRef> = failed.iter().map(|(subject, _)| subject.clone()).collect();
        let why = reasons(failed);
        if subjects.len() > CHAINS_IN_HEAD {
            return self.fail_step(migration, journalled, failed).await;
        }
        if let Err(ending) = self.take_back(migration, &subjects, &why).await? {
            return Ok(ending);
        }
        self.finished_subjects.retain(|subject| !subjects.contains(subject));
        self.end_with_the_others(migration, journalled, &why).await
    }

    /// Some chains are taken back and the others are done: says so, and closes the journal.
    async fn end_with_the_others(
        &mut self,
        migration: &Migration,
        journalled: bool,
        why: &str,
    ) -> Result<Ending, Stop> {
        let kept: HashSet<&ObjectRef> = self.finished_subjects.iter().collect();
        let back = self.taken_back.iter().filter(|subject| !kept.contains(subject)).count();
        let ending = Ending::new(
            Ended::Restored,
            format!(
                "failed for {back} of {} objects, which are as they were before; the others are done: {why}",
                back + kept.len()
            ),
        );
        if journalled {
            self.close_journal(migration, &ending).await?;
        }
        Ok(ending)
    }

    /// The time was up when an earlier attempt was taking some chains back, and died. That is finished now; what was made of
    /// the others stays, as it would have without the death. What is made in part only is taken back too.
    async fn keep_the_others(&mut self, migration: &Migration) -> Result<Ending, Stop> {
        let entries = migration.actor.entries().await;
        let wanted = |subject: &ObjectRef| !self.taken_back.contains(subject);
        let earlier = undo::earlier(&migration.actor, &entries, wanted).await.map_err(not_taken_up)?;
        let chains = entries.all().iter().map(|entry| &entry.chain);
        let mut half: Vec<ObjectRef> =
            chains.filter(|chain| wanted(chain) && !earlier.made.contains(*chain)).cloned().collect();
        half.sort();
        half.dedup();
        let why = "the deadline has passed, counted from the Job's start";
        if !half.is_empty()
            && let Err(ending) = self.take_back(migration, &half, why).await?
        {
            return Ok(ending);
        }
        migration.actor.add_earlier(entries.all().iter().filter(|entry| earlier.made.contains(&entry.chain)));
        self.outcomes = migration.actor.outcomes();
        self.finished_subjects = earlier.made.into_iter().collect();
        self.finished_subjects.sort();
        self.end_with_the_others(migration, true, why).await
    }

    async fn dry_run(&mut self, missing: Missing) -> Result<Ending, Stop> {
        match lock::refuse_second_home(&self.cluster, &Self::META, &self.home).await {
            Err(NotLocked::WrongHome(why)) => return Err(Stop::Refused(why)),
            // Whoever tries things out may have fewer rights than the step.
            Err(NotLocked::Call(failure)) if !failure.is_forbidden() => return Err(refused(failure)),
            _ => {}
        }
        let recovered = self.recover().await?;
        let migration = self.migration(missing, recovered);
        if let Some(why) = migration.own_open.as_ref().and_then(|journal| self.why_not_resume(journal)) {
            self.findings.push(Finding::note(
                None,
                format!("a run would not do this yet: it would first undo what an earlier attempt left, since {why}"),
            ));
        }
        let (plan, entries) = self.decide(&migration, true).await?;
        if plan.writes().next().is_some() {
            self.refuse_beside(&migration.others_open)?;
        }
        let missing = entries.missing(plan.chains());
        let unproven = dry_run::prove_restorable(&migration.actor, &missing).await.map_err(refused)?;
        self.findings.extend(unproven);
        if self.findings.iter().any(|finding| finding.level == Level::Refuse) {
            return Err(Stop::Refused(self.refusals()));
        }
        let shown = dry_run::try_out(&migration.actor, &plan, &entries).await.map_err(refused)?;
        dry_run::print(&shown, &self.findings, self.common.output);
        let refused = shown.refused();
        if refused > 0 {
            return Ok(Ending::new(
                Ended::Refused,
                format!(
                    "dry run, nothing was written: the server would refuse {refused} of {} moves",
                    shown.writes()
                ),
            ));
        }
        Ok(Ending::new(
            Ended::Done,
            match shown.writes() {
                1 => "dry run, nothing was written: 1 move planned".to_owned(),
                many => format!("dry run, nothing was written: {many} moves planned"),
            },
        ))
    }

    fn report(&self, ending: &Ending) -> Report {
        Report {
            step: Self::META.name.to_owned(),
            family: Self::META.family.to_owned(),
            release: self.common.release.clone(),
            namespace: self.common.namespace(),
            run: self.id.clone(),
            result: ending.result,
            verdict: report::cut(&format!("{}: {}", Self::META.name, ending.verdict)),
            started: self.begun.started.clone(),
            finished: self.clock().timestamp(),
            seconds: self.clock().since(self.begun.at).as_secs_f64(),
            calls: self.cluster.calls(),
            counts: report::count(&self.outcomes),
            findings: self.findings.clone(),
            lines: self.lines.clone(),
            versions: BTreeMap::from([("belay".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
            rerun: self.rerun(),
        }
    }

    /// The command that runs this step alone, where the chart has told which CronJob is for that.
    fn rerun(&self) -> String {
        let cron_job = self.cluster.host().variable("BELAY_CRON_JOB").unwrap_or_default();
        report::rerun(&cron_job, &self.common.namespace(), &self.id)
    }

    /// Report, Event, unlock. None of them can change the verdict any more: what fails is only logged.
    async fn close(mut self, mut ending: Ending) -> Ending {
        if self.common.dry_run {
            return ending;
        }
        ending.verdict = report::with_rerun(Self::META.name, ending.result, &ending.verdict, &self.rerun());
        // Even a step that used up all its time may still say what happened.
        self.cluster.set_deadline(self.cluster.deadline().max(self.clock().now() + Duration::from_secs(10)));
        let report = Report { versions: report::versions(&self.cluster).await, ..self.report(&ending) };
        let logged = |what: &str, result: Result<(), Failure>| {
            if let Err(failure) = result {
                log::warn!("{what}: {failure}");
            }
        };
        let outcomes = std::mem::take(&mut self.outcomes);
        // Where the family does not live, a report would make it look as if it did; and whoever only found the lock
        // held has nothing to say that would be worth the last verdict.
        if !self.homeless && ending.result != Ended::NotNow {
            let written = report::write(&self.cluster, &self.home, &report, &outcomes, &[]).await;
            logged("the report could not be written", written);
        }
        let (regarding, uid) =
            self.job.take().unwrap_or_else(|| (lock::lease(Self::META.family, &self.home), String::new()));
        let published = report::publish(&self.cluster, &report, &regarding, &uid).await;
        logged("the Event could not be published", published);
        if let Some(lock) = self.lock.take() {
            logged("the lock could not be released", lock.release().await);
        }
        log::info!("run {} took {}", self.id, shown_time(self.clock().since(self.begun.at)));
        ending
    }

    /// SIGTERM: give the lock back, so that the next run sees that nobody died. Anything else: touch nothing.
    async fn halted(mut self, halt: &Halt) -> Ending {
        match halt {
            Halt::Terminated => {
                // Whoever comes next is told that nobody died, and so looks only once: a call of ours whose answer was
                // lost must not land after that.
                if let Some(until) = self.cluster.lands_until() {
                    self.clock().sleep_until(until).await;
                }
                if let Some(ledger) = self.ledger.take()
                    && let Err(failure) = ledger.lock().await.hand_on().await
                {
                    log::warn!("that the journal is handed on could not be noted: {failure}");
                }
                if let Some(lock) = self.lock.take()
                    && let Err(failure) = lock.release().await
                {
                    log::warn!("the lock could not be released: {failure}");
                }
                Ending::new(Ended::Terminated, "told to stop: the next run goes on from here")
            }
            other => Ending::new(
                Ended::Stopped,
                format!("stopped at once: {other}. The next run goes on from here"),
            ),
        }
    }
}

/// What is known of this step's own journal.
enum Head {
    /// An earlier attempt left it open.
    Open,
    /// It is closed, or there is none.
    Closed,
    /// It cannot be read.
    Unknown,
}

/// Whether the step may begin.
enum Ready {
    /// It may, without what is missing.
    Yes(Missing),
    /// There is nothing to migrate, for this reason, without what is missing.
    Nothing(String, Missing),
    /// It is refused, for these reasons.
    Refused(String),
}

struct Migration {
    actor: Actor,
    ledger: Arc<Mutex<Ledger>>,
    missing: Missing,
    others_open: Vec<(String, Journal)>,
    own_open: Option<Journal>,
    run: String,
}

/// The journal does not say any more what this run wrote last.
fn another_writer() -> Halt {
    Halt::LockLost("the journal was written by another run".to_owned())
}

/// The objects that a chain changes.
fn written_by(chain: &Chain) -> impl Iterator<Item = &ObjectRef> {
    chain.moves.iter().filter(|step| step.writes()).map(|step| &step.object)
}

/// Forgets what the plan saw of objects that an earlier phase has changed since.
fn look_anew(phase: &mut [Chain], earlier: &[Vec<Chain>]) {
    let written: HashSet<&ObjectRef> = earlier.iter().flatten().flat_map(written_by).collect();
    for step in phase.iter_mut().flat_map(|chain| &mut chain.moves) {
        if written.contains(&step.object) {
            step.live = None;
        }
    }
}

fn reasons(failed: &[(ObjectRef, String)]) -> String {
    let first: Vec<&str> = failed.iter().take(3).map(|(_, why)| why.as_str()).collect();
    let more = failed.len().saturating_sub(first.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    // The server's own sentences may end with a period; ours does.
    format!("{}{more}", first.join("; ")).trim_end_matches('.').to_owned()
}

/// Drops the moves that this journal's run has made and that a later phase has overtaken: their fields hold what that one
/// set, and would be set back.
fn drop_overtaken(plan: &mut Plan, entries: &Entries) {
    let phases = plan.phases.iter_mut().chain(std::iter::once(&mut plan.point_of_no_return));
    let mut later: HashMap<ObjectRef, Vec<Field>> = HashMap::new();
    for phase in phases.rev().filter(|_| !entries.all().is_empty()) {
        for chain in phase.iter_mut().filter(|_| !later.is_empty()) {
            chain.moves.retain(|step| {
                let (Some(later), Some(live)) = (later.get(&step.object), &step.live) else { return true };
                let (fields, live) = (step.action.fields(), live.value());
                let is_set = |field: &Field| later.iter().any(|l| l.path == field.path && l.is_in(&live));
                fields.is_empty() || !fields.iter().all(is_set) || entries.find(step).is_none()
            });
        }
        for step in phase.iter().flat_map(|chain| &chain.moves) {
            let fields = step.action.fields();
            if !fields.is_empty() {
                later.entry(step.object.clone()).or_default().extend(fields);
            }
        }
    }
}

/// Whether a move would set or make once more what this run has set or made already: somebody else has changed it since,
/// and would again.
fn is_fight(actor: &Actor, step: &Move, entries: &Entries) -> bool {
    if matches!(step.action, Action::Create { .. }) {
        return actor.has_made(&step.object);
    }
    let fields = step.action.fields();
    !fields.is_empty() && actor.has_set(&step.object, &fields) && !is_made(step, entries)
}

/// Of the chains of a journal those that nothing is left of: each of them once, and none that was finished after all.
fn nothing_left<'a>(
    journalled: impl Iterator<Item = &'a ObjectRef>,
    undone_or_left_alone: impl Iterator<Item = &'a ObjectRef>,
    finished: &[ObjectRef],
) -> Vec<ObjectRef> {
    let finished: HashSet<&ObjectRef> = finished.iter().collect();
    let nothing: HashSet<&ObjectRef> =
        undone_or_left_alone.filter(|subject| !finished.contains(subject)).collect();
    let left: BTreeSet<&ObjectRef> = journalled.filter(|subject| nothing.contains(subject)).collect();
    left.into_iter().cloned().collect()
}

/// Chains that failed or were left alone in an earlier round are not tried again.
fn leave_out(plan: &mut Plan, failed: &[(ObjectRef, String)], skipped: &HashSet<ObjectRef>) {
    for phase in plan.phases.iter_mut().chain(std::iter::once(&mut plan.point_of_no_return)) {
        phase.retain(|chain| {
            !failed.iter().any(|(subject, _)| *subject == chain.subject) && !skipped.contains(&chain.subject)
        });
    }
    if !failed.is_empty() {
        plan.point_of_no_return.clear();
    }
}

/// What a later round finds for the first time. It stops nothing any more: what would have been refused is left alone and
/// named.
fn appeared(known: &[Finding], plan: &Plan) -> Vec<Finding> {
    // A note said something else about the object.
    let objects: HashSet<&ObjectRef> = known
        .iter()
        .filter(|finding| finding.level != Level::Note)
        .filter_map(|finding| finding.object.as_ref())
        .collect();
    plan.findings
        .iter()
        .filter(|finding| finding.level != Level::Note)
        .map(|finding| Finding { level: Level::Skip, ..finding.clone() })
        .filter(|finding| match &finding.object {
            Some(object) => !objects.contains(object),
            None => !known.contains(finding),
        })
        .collect()
}

/// A refusal that comes up in a later round cannot stop the step any more, but what it is about is not touched. Returns
/// whether the rest may be done: not if the refusal is about something that all of it stands on.
fn leave_out_refused(plan: &mut Plan) -> bool {
    let refused: Vec<Option<ObjectRef>> = plan.refusals().map(|finding| finding.object.clone()).collect();
    let kinds: HashSet<&Kind> = plan.chains().map(|(_, chain)| &chain.subject.kind).collect();
    if refused.iter().any(|object| object.as_ref().is_none_or(|object| !kinds.contains(&object.kind))) {
        return false;
    }
    for phase in plan.phases.iter_mut().chain(std::iter::once(&mut plan.point_of_no_return)) {
        phase.retain(|chain| !refused.iter().flatten().any(|object| *object == chain.subject));
    }
    true
}

/// A short id that sorts by time.
fn run_id(now: jiff::Timestamp) -> String {
    // In a pod the process id is always 1, so the fraction of the second has to tell two runs apart.
    format!("{}-{:05x}", now.strftime("%Y%m%d%H%M%S"), now.subsec_nanosecond() / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::FieldPath;

    fn plan(refused: Option<ObjectRef>) -> Plan {
        let chain = |name: &str| Chain::new(kinds::CONFIG_MAP.object("ns", name), Vec::new());
        Plan {
            phases: vec![vec![chain("a"), chain("b")]],
            findings: vec![Finding::refuse(refused, "no")],
            ..Plan::default()
        }
    }

    #[test]
    fn what_is_refused_in_a_later_round_is_left_out_and_the_rest_is_done() {
        let mut plan = plan(Some(kinds::CONFIG_MAP.object("ns", "a")));
        assert!(leave_out_refused(&mut plan));
        let left: Vec<&str> = plan.chains().map(|(_, chain)| chain.subject.name.as_str()).collect();
        assert_eq!(left, ["b"]);
    }

    #[test]
    fn what_was_left_alone_or_failed_is_in_no_later_round() {
        let map = |name: &str| kinds::CONFIG_MAP.object("ns", name);
        let mut of_a = plan(None);
        of_a.point_of_no_return = vec![Chain::new(map("a"), Vec::new()), Chain::new(map("b"), Vec::new())];
        leave_out(&mut of_a, &[], &HashSet::from([map("a")]));
        let left: Vec<&str> = of_a.chains().map(|(_, chain)| chain.subject.name.as_str()).collect();
        assert_eq!(left, ["b", "b"]);
        leave_out(&mut of_a, &[(map("b"), "failed".to_owned())], &HashSet::new());
        assert_eq!(of_a.chains().count(), 0);
    }

    #[test]
    fn a_restore_passes_over_the_chains_of_which_nothing_is_left() {
        let map = |name: &str| kinds::CONFIG_MAP.object("ns", name);
        let (done, failed, skipped) = (map("done"), map("failed"), map("skipped"));
        let (tried_again, not_journalled) = (map("tried-again"), map("not-journalled"));
        let journalled = [&skipped, &done, &tried_again, &failed, &skipped];
        let left = [&failed, &skipped, &tried_again, &not_journalled];
        let finished = [done.clone(), tried_again.clone()];
        let void = nothing_left(journalled.into_iter(), left.into_iter(), &finished);
        assert_eq!(void, [failed, skipped]);
    }

    #[test]
    fn a_field_that_a_later_phase_has_set_is_not_set_back_by_the_one_before() {
        let label = |value: &str| {
            vec![Field { path: FieldPath::dotted("metadata.labels.a"), value: Some(value.into()) }]
        };
        let of = |live: &str| {
            let object = kinds::CONFIG_MAP.object("ns", "a");
            let live = serde_json::json!({"metadata": {"name": "a", "labels": {"a": live}}});
            let item = crate::plan::Item::new(object, Some(&live), None);
            let chain = |value: &str| Chain::new(item.object.clone(), vec![Move::patch(&item, label(value))]);
            Plan { phases: vec![vec![chain("1")], vec![chain("2")]], ..Plan::default() }
        };
        let entries = Entries::new(Entries::default().missing(of("0").chains()));
        let left = |live: &str, entries: &Entries| {
            let mut plan = of(live);
            drop_overtaken(&mut plan, entries);
            plan.phases.iter().map(|phase| phase[0].moves.len()).collect::<Vec<_>>()
        };
        assert_eq!(left("2", &entries), [0, 1], "the second is found made by itself");
        assert_eq!((left("1", &entries), left("0", &entries)), (vec![1, 1], vec![1, 1]));
        assert_eq!(left("2", &Entries::default()), [1, 1], "somebody else had set it");
    }

    #[test]
    fn what_a_later_round_would_refuse_is_named_once_whether_it_is_about_an_object_or_about_all() {
        for object in [None, Some(kinds::CONFIG_MAP.object("ns", "a"))] {
            let plan = plan(object.clone());
            let found = appeared(&[], &plan);
            assert_eq!(found, [Finding { level: Level::Skip, ..Finding::refuse(object, "no") }]);
            assert!(appeared(&found, &plan).is_empty());
        }
    }

    #[test]
    fn a_later_round_does_nothing_when_the_whole_step_is_refused() {
        assert!(!leave_out_refused(&mut plan(None)));
        assert!(!leave_out_refused(&mut plan(Some(kinds::DEPLOYMENT.object("ns", "controller")))));
    }
}
