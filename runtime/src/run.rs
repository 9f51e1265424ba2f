//! The story of a run, from connecting to the verdict.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use tokio::{signal::unix::SignalKind, sync::Mutex, time::Instant};

use crate::{
    act::{Actor, ChainEnd, Outcome, is_made},
    args::{Common, OnFailure},
    cluster::{Cluster, Failure, Halt},
    dry_run,
    journal::{Entries, Journal, Ledger, Status, Trouble, head_name, now},
    lock::{self, Lock, NotLocked},
    logging::Meter,
    object::{ObjectRef, kinds, shown_time, text, uid},
    plan::{Chain, Finding, Level, Move, Plan},
    preflight::{self, Preflight},
    report::{self, Report, Result as Ended},
    step::{Meta, Missing, Reader, Step, runtime_rules},
    undo::{Undone, undo},
};

/// Rounds in which new objects are looked for and migrated too.
const ROUNDS: usize = 3;

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
    /// It must not go on, and must not say anything more to the cluster.
    Halt(Halt),
}

impl From<Ending> for Stop {
    fn from(ending: Ending) -> Self {
        Self::Ending(ending)
    }
}

/// Before the first write of a move, a call that fails ends in a refusal.
fn refused(failure: Failure) -> Stop {
    match failure {
        Failure::Halted(halt) => Stop::Halt(halt),
        failure => Ending::new(Ended::Refused, format!("nothing was written: {failure}")).into(),
    }
}

fn journal_refused(trouble: Trouble) -> Stop {
    match trouble {
        Trouble::Call(failure) => refused(failure),
        Trouble::Unusable(error) => {
            Ending::new(Ended::Refused, format!("nothing was written: {error:#}")).into()
        }
    }
}

/// Runs a step to its verdict.
pub async fn run<S: Step>(common: &Common, own: &S::Args) -> Ending {
    let begun = Begun { at: Instant::now(), started: now() };
    let client = match common.access.access().client().await {
        Ok(client) => client,
        Err(error) => return Ending::new(Ended::Usage, format!("{error:#}")),
    };
    let cluster =
        Arc::new(Cluster::new(client, usize::from(common.concurrency), begun.at + S::META.deadline));
    if let Err(error) = stop_on_sigterm(cluster.clone()) {
        return Ending::new(Ended::Stopped, format!("cannot listen for SIGTERM: {error}"));
    }
    let mut run = Run::<S> {
        common,
        own,
        home: common.home(&S::META),
        cluster,
        begun,
        id: String::new(),
        job: None,
        times: Times { forward: Instant::now(), undo: Instant::now() },
        findings: Vec::new(),
        outcomes: Vec::new(),
        finished_subjects: Vec::new(),
        no_return: false,
        lock: None,
    };
    let ending = match run.story().await {
        Ok(ending) | Err(Stop::Ending(ending)) => ending,
        Err(Stop::Halt(halt)) => return run.halted(&halt).await,
    };
    run.close(ending).await
}

fn stop_on_sigterm(cluster: Arc<Cluster>) -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(SignalKind::terminate())?;
    let mut interrupt = tokio::signal::unix::signal(SignalKind::interrupt())?;
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        log::warn!("told to stop: calls in flight are finished, nothing new is begun");
        cluster.halt(Halt::Terminated);
    });
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
    times: Times,
    findings: Vec<Finding>,
    outcomes: Vec<Outcome>,
    finished_subjects: Vec<ObjectRef>,
    no_return: bool,
    lock: Option<Lock>,
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

    async fn story(&mut self) -> Result<Ending, Stop> {
        self.find_job().await?;
        self.id = run_id();
        let Some(missing) = self.preflight().await? else {
            let sentence = self.findings.pop().map(|finding| finding.message).unwrap_or_default();
            return Ok(Ending::new(Ended::NothingToDo, sentence));
        };
        if self.common.dry_run {
            return self.dry_run(missing).await;
        }
        self.take_lock().await?;
        let recovered = self.recover().await?;
        self.migrate(missing, recovered).await
    }

    /// Sets the clock by the Job's start, where there is a Job.
    async fn find_job(&mut self) -> Result<(), Stop> {
        let deadline = self.common.deadline.unwrap_or(Self::META.deadline);
        let reserve = self.common.undo_reserve.unwrap_or(Self::META.undo_reserve);
        let mut start = self.begun.at;
        let name = std::env::var("BELAY_JOB_NAME").ok().filter(|name| !name.is_empty());
        if let (Some(name), false) = (name, self.common.dry_run) {
            self.cluster.set_deadline(start + deadline);
            let object = kinds::JOB.object(self.common.namespace(), name);
            if let Some(job) = self.cluster.get(&object).await.map_err(refused)? {
                let started =
                    text(&job, "/status/startTime").and_then(|time| time.parse::<jiff::Timestamp>().ok());
                let ago = started
                    .and_then(|time| Duration::try_from(jiff::Timestamp::now().duration_since(time)).ok());
                start = ago.and_then(|ago| start.checked_sub(ago)).unwrap_or(start);
                self.job = Some((object, uid(&job).to_owned()));
            }
        }
        self.times = Times { forward: start + deadline, undo: start + deadline + reserve };
        // The lock and the journal must still be reached when only undo is left.
        let until = if Instant::now() < self.times.forward { self.times.forward } else { self.times.undo };
        self.cluster.set_deadline(until);
        Ok(())
    }

    /// None when there is nothing to migrate; the finding then says why.
    async fn preflight(&mut self) -> Result<Option<Missing>, Stop> {
        let needs = S::needs(self.own, self.common);
        let mut rules = needs.rules.clone();
        if !self.common.dry_run {
            rules.extend(runtime_rules(&Self::META, self.common));
        }
        // A dependency gets a third of the time to appear: the migration itself needs the rest.
        let patience = self.common.deadline.unwrap_or(Self::META.deadline) / 3;
        let until = (Instant::now() + patience).min(self.cluster.deadline());
        match preflight::check(&self.cluster, &needs, &rules, until).await.map_err(refused)? {
            Preflight::NothingToMigrate(why) => {
                self.findings.push(Finding::note(None, why));
                Ok(None)
            }
            Preflight::Ready { unserved, absent, findings } => {
                self.findings.extend(findings);
                Ok(Some(Missing { unserved, absent }))
            }
            Preflight::Refused(refusals) => {
                self.findings.extend(refusals);
                Err(self.refusal().into())
            }
        }
    }

    /// The ending that names every refusal.
    fn refusal(&self) -> Ending {
        let reasons: Vec<String> = self
            .findings
            .iter()
            .filter(|finding| finding.level == Level::Refuse)
            .map(ToString::to_string)
            .collect();
        for reason in &reasons {
            log::error!("refused: {reason}");
        }
        Ending::new(Ended::Refused, format!("refused, nothing was written: {}", reasons.join("; ")))
    }

    async fn take_lock(&mut self) -> Result<(), Stop> {
        let not_locked = |not: NotLocked| match not {
            NotLocked::Held(why) => Stop::Ending(Ending::new(Ended::NotNow, why)),
            NotLocked::SecondHome(why) => {
                Stop::Ending(Ending::new(Ended::Refused, format!("refused, nothing was written: {why}")))
            }
            NotLocked::Call(Failure::Halted(halt)) => Stop::Halt(halt),
            // Not a refusal: whoever may not ask for the lock can't say anything about the cluster.
            NotLocked::Call(failure) => Stop::Halt(Halt::LockLost(failure.to_string())),
        };
        let patience = (self.common.deadline.unwrap_or(Self::META.deadline) / 2).min(Duration::from_secs(60));
        let until = Instant::now() + patience;
        lock::refuse_second_home(&self.cluster, &Self::META, &self.home).await.map_err(not_locked)?;
        let lock = Lock::take(&self.cluster, &Self::META, &self.home, until).await.map_err(not_locked)?;
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
            let ledger = Ledger::load(&self.cluster, &self.home, step).await.map_err(journal_refused)?;
            others_open.extend(ledger.open_journal().map(|journal| ((*step).to_owned(), journal.clone())));
        }
        let mut ledger =
            Ledger::load(&self.cluster, &self.home, Self::META.name).await.map_err(journal_refused)?;
        let mut entries = Entries::default();
        if let Some(journal) = ledger.open_journal().cloned() {
            entries = ledger.entries(&journal).await.map_err(journal_refused)?;
            if self.lock.as_ref().is_some_and(|lock| lock.from_the_dead) {
                ledger.change(|journal| journal.deaths += 1).await.map_err(refused)?;
            }
        }
        let own_open = ledger.open_journal().cloned();
        Ok(Recovered { ledger, entries: Arc::new(entries), own_open, others_open })
    }

    async fn migrate(&mut self, missing: Missing, recovered: Recovered) -> Result<Ending, Stop> {
        let Recovered { ledger, entries, own_open, others_open } = recovered;
        let run = own_open.as_ref().map_or_else(|| self.id.clone(), |journal| journal.run.clone());
        let ledger = Arc::new(Mutex::new(ledger));
        let mark = format!("{}/{run}", Self::META.name);
        let actor = Actor::new(self.cluster.clone(), ledger.clone(), entries, mark);
        let migration = Migration { actor, ledger, missing, others_open, run };

        if let Some(journal) = &own_open {
            if let Some(why) = self.why_not_resume(journal) {
                return self.undo(&migration, why).await;
            }
            log::info!("resuming: an earlier attempt (run {}) ended half-way", journal.run);
        } else if Instant::now() >= self.times.forward {
            return Ok(Ending::new(
                Ended::Refused,
                "refused, nothing was written: the deadline had passed before the step could begin",
            ));
        }
        self.rounds(&migration, own_open).await
    }

    /// Why an open journal is undone instead of resumed, if it is.
    fn why_not_resume(&self, journal: &Journal) -> Option<String> {
        if journal.no_return {
            None
        } else if journal.status == Status::Undoing {
            Some("an earlier attempt was being undone".to_owned())
        } else if journal.is_given_up() {
            Some(format!("{} attempts died half-way", journal.deaths))
        } else if Instant::now() >= self.times.forward {
            Some("the deadline has passed, counted from the Job's start".to_owned())
        } else {
            None
        }
    }

    async fn rounds(&mut self, migration: &Migration, own_open: Option<Journal>) -> Result<Ending, Stop> {
        let resumed = own_open.is_some();
        let mut journalled = resumed;
        self.no_return = own_open.is_some_and(|journal| journal.no_return);
        let mut failed: Vec<(ObjectRef, String)> = Vec::new();
        for round in 1..=ROUNDS + 1 {
            let (mut plan, entries) = match self.decide(migration, round == 1).await {
                Ok(decided) => decided,
                // Every move is made; only looking again failed, and that takes nothing back.
                Err(Stop::Ending(ending)) if round > 1 => {
                    self.could_not_look_again(&ending);
                    break;
                }
                // With a journal open something has been done: that is not a refusal any more.
                Err(Stop::Ending(ending)) if journalled => return self.fail(migration, ending.verdict).await,
                Err(stop) => return Err(stop),
            };
            leave_out(&mut plan, &failed);
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
            if writes > 0 {
                self.refuse_beside(&migration.others_open)?;
                match self.journal(migration, &plan, &entries, journalled).await {
                    Ok(()) => {}
                    Err(Stop::Ending(ending)) if round > 1 => {
                        self.could_not_look_again(&ending);
                        break;
                    }
                    Err(Stop::Ending(ending)) if journalled => {
                        return self.fail(migration, ending.verdict).await;
                    }
                    Err(stop) => return Err(stop),
                }
                journalled = true;
            }
            let more = self.act(migration, &plan).await?;
            if more.is_empty() {
                continue;
            }
            if self.no_return || self.common.on_failure == OnFailure::Step {
                return self.fail_step(migration, journalled, &more).await;
            }
            failed.extend(more);
        }
        if resumed && failed.is_empty() {
            // What earlier attempts finished is this run's too: in the report, and in the done record.
            let entries = migration.actor.entries().await;
            migration.actor.add_earlier(&entries);
            let earlier: HashSet<&ObjectRef> = entries.all().iter().map(|entry| &entry.chain).collect();
            self.finished_subjects.extend(earlier.into_iter().cloned());
            self.finished_subjects.sort();
            self.finished_subjects.dedup();
        }
        self.outcomes = migration.actor.outcomes();
        if failed.is_empty() {
            return self.succeed(migration, journalled).await;
        }
        self.undo_chains(migration, journalled, &failed).await
    }

    fn could_not_look_again(&mut self, ending: &Ending) {
        let message = format!("all moves were made, but looking for new objects failed: {}", ending.verdict);
        log::warn!("{message}");
        self.findings.push(Finding::note(None, message));
    }

    /// Reads and decides. Findings of later rounds are the same again, so only the first round's count.
    async fn decide(&mut self, migration: &Migration, first: bool) -> Result<(Plan, Arc<Entries>), Stop> {
        let entries = migration.actor.entries().await;
        let done = self.done_record().await?;
        let reader = Reader::new(
            self.cluster.clone(),
            entries.clone(),
            migration.missing.clone(),
            done,
            self.home.clone(),
            Self::META.name,
        );
        let snapshot = S::snapshot(self.own, &reader).await.map_err(refused)?;
        let mut plan = S::plan(self.own, &snapshot);
        plan.exclude(&self.common.exclude);
        if let Some(mistake) = plan.mistakes().first() {
            return Err(Ending::new(
                Ended::Refused,
                format!("refused, nothing was written: this is a bug in {}: {mistake}", Self::META.name),
            )
            .into());
        }
        if first {
            self.findings.extend(plan.findings.iter().cloned());
            for finding in plan.findings.iter().filter(|finding| finding.level != Level::Refuse) {
                log::info!("{}: {finding}", if finding.level == Level::Skip { "skipping" } else { "note" });
            }
            if plan.refusals().next().is_some() {
                return Err(self.refusal().into());
            }
        }
        // What an earlier phase will change may look made already, and will not be then.
        let mut written: HashSet<ObjectRef> = HashSet::new();
        for phase in plan.phases.iter_mut().chain(std::iter::once(&mut plan.point_of_no_return)) {
            for chain in phase.iter_mut() {
                chain.moves.retain(|step| written.contains(&step.object) || !is_made(step, &entries));
            }
            written.extend(phase.iter().flat_map(written_by).cloned());
        }
        for phase in plan.phases.iter_mut().chain(std::iter::once(&mut plan.point_of_no_return)) {
            phase.retain(|chain| !chain.moves.is_empty());
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
        Err(self.refusal().into())
    }

    /// Stores the pre-images, after proving that each could be restored.
    async fn journal(
        &mut self,
        migration: &Migration,
        plan: &Plan,
        entries: &Arc<Entries>,
        journalled: bool,
    ) -> Result<(), Stop> {
        let missing = entries.missing(plan.chains());
        let findings = dry_run::prove_restorable(&self.cluster, &missing).await.map_err(refused)?;
        self.findings.extend(findings);
        if self.findings.iter().any(|finding| finding.level == Level::Refuse) {
            return Err(self.refusal().into());
        }
        if missing.is_empty() {
            return Ok(());
        }
        let mut ledger = migration.ledger.lock().await;
        if journalled {
            ledger.append(&missing).await.map_err(journal_refused)?;
        } else {
            ledger.open(&migration.run, &missing).await.map_err(journal_refused)?;
        }
        let all: Vec<_> = entries.all().iter().cloned().chain(missing).collect();
        migration.actor.set_entries(Arc::new(Entries::new(all))).await;
        Ok(())
    }

    /// Carries out a plan and returns the chains that failed, with the reasons.
    async fn act(&mut self, migration: &Migration, plan: &Plan) -> Result<Vec<(ObjectRef, String)>, Stop> {
        let stop_all = self.common.on_failure == OnFailure::Step;
        let mut failed: Vec<(ObjectRef, String)> = Vec::new();
        let mut written: HashSet<&ObjectRef> = HashSet::new();
        for phase in &plan.phases {
            let mut chains = looking_anew(phase, &written);
            chains.retain(|chain| !failed.iter().any(|(subject, _)| *subject == chain.subject));
            failed.extend(self.phase(migration, &chains, stop_all).await?);
            written.extend(phase.iter().flat_map(written_by));
            if stop_all && !failed.is_empty() {
                return Ok(failed);
            }
        }
        if !failed.is_empty() || plan.point_of_no_return.is_empty() {
            return Ok(failed);
        }
        let writes = plan.point_of_no_return.iter().flat_map(|chain| &chain.moves).any(Move::writes);
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
        self.phase(migration, &looking_anew(&plan.point_of_no_return, &written), false).await
    }

    /// Runs one phase and says every few seconds how far it is.
    async fn phase(
        &mut self,
        migration: &Migration,
        chains: &[Chain],
        stop_all: bool,
    ) -> Result<Vec<(ObjectRef, String)>, Stop> {
        let meter = Meter::new(chains.len());
        let actor = &migration.actor;
        let running = actor.run_chains(chains, stop_all, |_, _| meter.tick());
        tokio::pin!(running);
        let mut every = tokio::time::interval(crate::act::SAY_AFTER);
        every.tick().await;
        let ends = loop {
            tokio::select! {
                ends = &mut running => break ends,
                _ = every.tick() => meter.say(actor.waiting_for()),
            }
        };
        let mut failed = Vec::new();
        for (subject, end) in ends {
            match end {
                ChainEnd::Done => self.finished_subjects.push(subject),
                ChainEnd::Skipped(finding) => self.findings.push(finding),
                ChainEnd::Failed(why) => failed.push((subject, why)),
                ChainEnd::Halted(halt) => return Err(Stop::Halt(halt)),
                ChainEnd::Stopped => {}
            }
        }
        Ok(failed)
    }

    async fn succeed(&mut self, migration: &Migration, journalled: bool) -> Result<Ending, Stop> {
        let counts = report::count(&self.outcomes);
        let ending = if self.outcomes.is_empty() {
            let looked = self.finished_subjects.len();
            let looked =
                if looked == 0 { String::new() } else { format!("; {looked} objects are as wanted") };
            Ending::new(Ended::NothingToDo, format!("nothing to do{looked}"))
        } else {
            Ending::new(Ended::Done, format!("done: {}", report::counted(&counts)))
        };
        if journalled {
            // The done record must be there before the journal is closed: afterwards nothing else remembers.
            if Self::META.keeps_done_record {
                let report = self.report(&ending);
                let written = report::write(
                    &self.cluster,
                    &self.home,
                    &report,
                    &self.outcomes,
                    &self.finished_subjects,
                );
                written.await.map_err(Self::must_run_again)?;
            }
            let mut ledger = migration.ledger.lock().await;
            ledger.change(|journal| journal.status = Status::Done).await.map_err(Self::must_run_again)?;
        }
        Ok(ending)
    }

    /// All is done, but the journal could not be closed: the next run does that.
    fn must_run_again(failure: Failure) -> Stop {
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
        Ok(Ending::new(Ended::Restored, format!("failed: {}. Nothing had been changed", reasons(failed))))
    }

    /// Something was done and the step cannot go on: undo it, or, past the point of no return, leave it for a rerun.
    async fn fail(&mut self, migration: &Migration, why: String) -> Result<Ending, Stop> {
        if self.no_return {
            self.outcomes = migration.actor.outcomes();
            return Ok(Ending::new(
                Ended::Unfinished,
                format!(
                    "unfinished, past the point of no return: {why}. Run the step again when the cause is gone"
                ),
            ));
        }
        self.undo(migration, why).await
    }

    /// Undo has what is left of its reserve, and half of it at the least: a pod that comes late must still be able to
    /// put things back, even if Helm has given up by then.
    fn begin_undo(&self) {
        let reserve = self.common.undo_reserve.unwrap_or(Self::META.undo_reserve);
        self.cluster.set_deadline(self.times.undo.max(Instant::now() + reserve / 2));
    }

    async fn undo(&mut self, migration: &Migration, why: String) -> Result<Ending, Stop> {
        log::warn!("undoing: {why}");
        self.begin_undo();
        {
            let mut ledger = migration.ledger.lock().await;
            if let Err(failure) = ledger.change(|journal| journal.status = Status::Undoing).await {
                return match failure {
                    Failure::Halted(halt) => Err(Stop::Halt(halt)),
                    failure => Ok(self.not_restored(
                        migration,
                        &why,
                        &format!("the journal could not be marked: {failure}"),
                    )),
                };
            }
        }
        let entries = migration.actor.entries().await;
        let undone = undo(&migration.actor, &entries, None).await.map_err(Stop::Halt)?;
        self.outcomes = migration.actor.outcomes();
        if undone.left.is_empty() {
            let mut ledger = migration.ledger.lock().await;
            match ledger.change(|journal| journal.status = Status::Undone).await {
                Ok(()) => {}
                Err(Failure::Halted(halt)) => return Err(Stop::Halt(halt)),
                // The journal stays marked as being undone; whoever comes next finds all in place and closes it.
                Err(failure) => log::error!("the journal could not be closed: {failure}"),
            }
            return Ok(Ending::new(
                Ended::Restored,
                format!("failed: {why}. Everything is as it was before: {}", put_back(&undone)),
            ));
        }
        Ok(self.not_restored(migration, &why, &left(&undone)))
    }

    fn not_restored(&mut self, migration: &Migration, why: &str, left: &str) -> Ending {
        self.outcomes = migration.actor.outcomes();
        Ending::new(
            Ended::NotRestored,
            format!(
                "failed: {why}. NOT everything could be put back: {left}. Look at these objects, then: belay restore \
                 --step {step} --home {home}, or belay accept --step {step} --home {home}",
                step = Self::META.name,
                home = self.home
            ),
        )
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
        self.begin_undo();
        let entries = migration.actor.entries().await;
        let undone = undo(&migration.actor, &entries, Some(&subjects)).await.map_err(Stop::Halt)?;
        self.outcomes = migration.actor.outcomes();
        if !undone.left.is_empty() {
            return Ok(self.not_restored(migration, &why, &left(&undone)));
        }
        if journalled {
            let mut ledger = migration.ledger.lock().await;
            ledger.change(|journal| journal.status = Status::Done).await.map_err(Self::must_run_again)?;
        }
        let kept: HashSet<&ObjectRef> = self.finished_subjects.iter().collect();
        Ok(Ending::new(
            Ended::Restored,
            format!(
                "failed for {} of {} objects, which are as they were before; the others are done: {why}",
                subjects.len(),
                subjects.len() + kept.len()
            ),
        ))
    }

    async fn dry_run(&mut self, missing: Missing) -> Result<Ending, Stop> {
        let recovered = self.recover().await?;
        let ledger = Arc::new(Mutex::new(recovered.ledger));
        let actor = Actor::new(self.cluster.clone(), ledger.clone(), recovered.entries, String::new());
        let migration =
            Migration { actor, ledger, missing, others_open: recovered.others_open, run: String::new() };
        let (plan, entries) = self.decide(&migration, true).await?;
        if plan.writes().next().is_some() {
            self.refuse_beside(&migration.others_open)?;
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
            format!("dry run, nothing was written: {} moves planned", shown.writes()),
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
            finished: now(),
            seconds: self.begun.at.elapsed().as_secs_f64(),
            calls: self.cluster.calls(),
            counts: report::count(&self.outcomes),
            findings: self.findings.clone(),
            versions: BTreeMap::from([("belay".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]),
        }
    }

    /// Report, Event, unlock. None of them can change the verdict any more: what fails is only logged.
    async fn close(mut self, ending: Ending) -> Ending {
        if self.common.dry_run {
            return ending;
        }
        // Even a step that used up all its time may still say what happened.
        self.cluster.set_deadline(self.cluster.deadline().max(Instant::now() + Duration::from_secs(10)));
        let report = self.report(&ending);
        let logged = |what: &str, result: Result<(), Failure>| {
            if let Err(failure) = result {
                log::warn!("{what}: {failure}");
            }
        };
        let done: &[ObjectRef] = if Self::META.keeps_done_record && ending.result == Ended::Done {
            &self.finished_subjects
        } else {
            &[]
        };
        let outcomes = std::mem::take(&mut self.outcomes);
        let written = report::write(&self.cluster, &self.home, &report, &outcomes, done).await;
        logged("the report could not be written", written);
        let (regarding, uid) =
            self.job.take().unwrap_or_else(|| (lock::lease(Self::META.family, &self.home), String::new()));
        let published = report::publish(&self.cluster, &report, &regarding, &uid).await;
        logged("the Event could not be published", published);
        if let Some(lock) = self.lock.take() {
            logged("the lock could not be released", lock.release().await);
        }
        log::info!("run {} took {}", self.id, shown_time(self.begun.at.elapsed()));
        ending
    }

    /// SIGTERM: give the lock back, so that the next run sees that nobody died. Anything else: touch nothing.
    async fn halted(mut self, halt: &Halt) -> Ending {
        match halt {
            Halt::Terminated => {
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

struct Migration {
    actor: Actor,
    ledger: Arc<Mutex<Ledger>>,
    missing: Missing,
    others_open: Vec<(String, Journal)>,
    run: String,
}

/// The objects that a chain changes.
fn written_by(chain: &Chain) -> impl Iterator<Item = &ObjectRef> {
    chain.moves.iter().filter(|step| step.writes()).map(|step| &step.object)
}

/// The chains of a phase, without what the plan saw of objects that an earlier phase has changed since.
fn looking_anew(phase: &[Chain], written: &HashSet<&ObjectRef>) -> Vec<Chain> {
    let mut chains = phase.to_vec();
    for step in chains.iter_mut().flat_map(|chain| &mut chain.moves) {
        if written.contains(&step.object) {
            step.live = None;
        }
    }
    chains
}

fn reasons(failed: &[(ObjectRef, String)]) -> String {
    let first: Vec<&str> = failed.iter().take(3).map(|(_, why)| why.as_str()).collect();
    let more = failed.len().saturating_sub(first.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    // The server's own sentences may end with a period; ours does.
    format!("{}{more}", first.join("; ")).trim_end_matches('.').to_owned()
}

fn put_back(undone: &Undone) -> String {
    match undone.restored {
        0 => "nothing had been changed".to_owned(),
        1 => "1 change was taken back".to_owned(),
        many => format!("{many} changes were taken back"),
    }
}

fn left(undone: &Undone) -> String {
    let first: Vec<String> =
        undone.left.iter().take(3).map(|(object, why)| format!("{object} {why}")).collect();
    let more = undone.left.len().saturating_sub(first.len());
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    format!("{}{more}", first.join("; "))
}

/// Chains that failed in an earlier round are not tried again.
fn leave_out(plan: &mut Plan, failed: &[(ObjectRef, String)]) {
    for phase in plan.phases.iter_mut().chain(std::iter::once(&mut plan.point_of_no_return)) {
        phase.retain(|chain| !failed.iter().any(|(subject, _)| *subject == chain.subject));
    }
    if !failed.is_empty() {
        plan.point_of_no_return.clear();
    }
}

/// A short id that sorts by time.
fn run_id() -> String {
    let now = jiff::Timestamp::now();
    // In a pod the process id is always 1, so the fraction of the second has to tell two runs apart.
    format!("{}-{:05x}", now.strftime("%Y%m%d%H%M%S"), now.subsec_nanosecond() / 1000)
}
