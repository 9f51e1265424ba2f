//! Crash at every call: every call of a step is a point at which things go wrong in every way there is; afterwards
//! the cluster must be as after an undisturbed run, or as before it, as [`expect`](crate::expect) says.
//!
//! A step brings a [`Scenario`]: how to put the cluster into the state from which it starts, and which objects
//! matter. A [`Suite`] of scenarios is the main function of a test. Points are spread over all API servers named
//! in `BELAY_TEST_KUBECONFIGS`, a list of kubeconfigs separated by colons.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use clap::Parser;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::{
    api::Api,
    call::{Call, Class, Verb, writes_that_matter},
    expect::{Allowed, Leaves, Stage, allowed, owed, with_blocked_undo},
    fault::{At, Fault, Landing, Scope},
    proxy::{Held, Upstream},
    run::{Exit, Outcome, StepCommand},
    state::{Area, Bookkeeping, Diff, Identity, Key, State, clear, own_areas},
};

/// The variable that names the API servers.
pub const KUBECONFIGS: &str = "BELAY_TEST_KUBECONFIGS";
/// The variable with which a caller says that everything has been prepared: whatever cannot be tried is then a failure.
const REQUIRED: &str = "BELAY_TEST_REQUIRED";
/// When so many points have failed the rest is not tried: the log is long enough.
const ENOUGH_FAILURES: usize = 20;
/// How often a call that was not made is waited for in a new run.
const TRIES: usize = 2;
/// Per cent of the counted calls that need not be made again.
const UNMADE: usize = 5;
/// Per cent of the points that may hold only at the second try.
const HELD_LATER: usize = 2;
/// So many of either may, however few were tried: of a small sample a share says little, and a machine that stands still
/// for a moment hits all workers at once.
const AT_LEAST: usize = 3;
/// How many runs it may take to put things right: an undo is finished, then the step is done.
const RERUNS: usize = 3;
/// Runs that die before a journal is undone: the first and two resumes.
const DEATHS: usize = 3;
/// How long an API server is gone: longer than a first retry takes.
const OUTAGE: Duration = Duration::from_millis(700);
/// Slack after the deadline before a call that fails until then works again, so that the step has surely given up: it
/// counts from its start, and the proxy from its first call.
const AFTER_DEADLINE: Duration = Duration::from_millis(500);

/// What lives for as long as a worker does: stand-in controllers, for instance.
pub type Guard = Box<dyn Any + Send + Sync>;

/// A place to run a step: an API server, and a name that no other worker on it has.
#[derive(Clone)]
pub struct Worker {
    /// The number of the API server.
    pub server: usize,
    /// The number of the worker on that API server.
    pub number: usize,
    /// The way to the API server for the proxies.
    pub upstream: Upstream,
    /// The API server, for the scenario itself.
    pub api: Api,
}

impl Worker {
    /// A name with the worker's number behind it, for namespaces and for prefixes of cluster-scoped objects.
    #[must_use]
    pub fn name(&self, base: &str) -> String {
        format!("{base}-w{}", self.number)
    }
}

/// A step, and a cluster on which it has something to do.
pub trait Scenario: Send + Sync + 'static {
    /// The step's name, and what tells two scenarios of a step apart.
    fn name(&self) -> &str;

    /// How the step is started. Times should be short: a call that fails with 500 does so until the deadline.
    fn command(&self, worker: &Worker) -> Result<StepCommand>;

    /// The deadline that the command gives the step.
    fn deadline(&self) -> Duration;

    /// The namespace where the step keeps lock, journal and report.
    fn home(&self, worker: &Worker) -> String;

    /// The objects that matter. They are compared, and nothing else is.
    fn areas(&self, worker: &Worker) -> Vec<Area>;

    /// Once per worker: CRDs, namespaces, stand-ins. What it returns is dropped when the worker is done.
    fn setup(&self, worker: &Worker) -> impl Future<Output = Result<Guard>> + Send;

    /// Before every point, when areas and home are empty: makes the objects from which the step starts, and waits
    /// until they are as they shall be.
    fn fill(&self, worker: &Worker) -> impl Future<Output = Result<()>> + Send;

    /// How many workers may share an API server. More than one only if everything that the step looks at is in
    /// namespaces, or bears a prefix, that the worker's name makes its own.
    fn workers_per_server(&self) -> usize {
        1
    }

    /// Whether a move stands behind the point of no return.
    fn is_for_good(&self, _call: &Call) -> bool {
        false
    }

    /// Takes out of an object what differs between two runs that did the same, beyond what
    /// [`normalise`](crate::state::normalise) takes out.
    fn adjust(&self, _object: &mut Value) {}

    /// What must hold besides when the step is done: for objects that cannot be compared, since a step that puts things
    /// back leaves others there than it found. An error says what does not hold.
    fn holds_in_the_end(&self, _worker: &Worker) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// How long controllers and stand-ins may take to come to rest after a run. Only what never does so costs as much.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Narrows or widens what a run may come to when a call fails for good.
    fn expect(&self, _call: &Call, _stage: Stage, ends: Vec<Allowed>) -> Vec<Allowed> {
        ends
    }

    /// The ways in which things go wrong.
    fn modes(&self) -> Vec<Mode> {
        Mode::ALL.to_vec()
    }
}

/// A way in which things go wrong at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Killed before the call is sent.
    KillBefore,
    /// Killed after it is answered.
    KillAfter,
    /// The answer is lost.
    LoseAnswer,
    /// Killed; the call lands while the next run is under way. Only for writes: a read that nobody waits for
    /// changes nothing.
    LandLate(Landing),
    /// The API server is gone from this call on, for a moment.
    Outage,
    /// Told to stop by SIGTERM. That is not a death: the lock is given back, and the next run goes on.
    Terminate,
    /// Killed before its first move, and again in each resume: at last it is undone.
    DieBefore,
    /// Killed after its first move, and again after the first move of each resume.
    DieAfter,
    /// It fails for good with this status; with 500 until the deadline.
    Fail(u16),
    /// Killed before a call of an undo is sent.
    KillBeforeInUndo,
    /// Killed after a call of an undo is answered.
    KillAfterInUndo,
    /// The answer to a call of an undo is lost.
    LoseAnswerInUndo,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::KillBefore,
        Self::KillAfter,
        Self::LoseAnswer,
        Self::LandLate(Landing::BeforeFirstMove),
        Self::LandLate(Landing::BeforeRelease),
        Self::Outage,
        Self::Terminate,
        Self::DieBefore,
        Self::DieAfter,
        Self::Fail(403),
        Self::Fail(422),
        Self::Fail(500),
        Self::KillBeforeInUndo,
        Self::KillAfterInUndo,
        Self::LoseAnswerInUndo,
    ];

    fn is_repeated(self) -> bool {
        matches!(self, Self::DieBefore | Self::DieAfter)
    }

    fn in_undo(self) -> bool {
        matches!(self, Self::KillBeforeInUndo | Self::KillAfterInUndo | Self::LoseAnswerInUndo)
    }

    /// Whether a call is worth a point in this mode.
    fn suits(self, call: &Call) -> bool {
        let has_number = call.number.is_some();
        match self {
            Self::LandLate(_) => has_number && call.is_write(),
            // After a renewal, or after a watch has begun, is before the next call; and there is nothing invalid in
            // a watch or a renewal.
            Self::KillAfter | Self::KillAfterInUndo | Self::Outage | Self::Terminate | Self::Fail(422) => {
                has_number
            }
            _ => true,
        }
    }

    fn fault(self, at: At, deadline: Duration) -> Fault {
        match self {
            Self::KillBefore | Self::DieBefore | Self::KillBeforeInUndo => Fault::KillBefore(at),
            Self::KillAfter | Self::DieAfter | Self::KillAfterInUndo => Fault::KillAfter(at),
            Self::LoseAnswer | Self::LoseAnswerInUndo => Fault::LoseAnswer(at),
            Self::LandLate(_) => Fault::KillAndLandLate(at),
            Self::Outage => Fault::Refuse { at, lasting: OUTAGE },
            Self::Terminate => Fault::Terminate(at),
            Self::Fail(status) => Fault::FailForGood {
                at,
                status,
                // What is invalid is this object; what is forbidden is to do this at all.
                scope: if status == 422 { Scope::Body } else { Scope::Target },
                until: (status >= 500).then_some(deadline + AFTER_DEADLINE),
            },
        }
    }

    /// What takes longest comes first, so that workers end together: waiting for a right to come back, for a deadline,
    /// and in an undo for calls of the dead to land.
    fn weight(self) -> u32 {
        match self {
            Self::Fail(403 | 500) | Self::DieBefore | Self::DieAfter => 0,
            mode if mode.in_undo() => 1,
            _ => 2,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillBefore => out.write_str("kill-before"),
            Self::KillAfter => out.write_str("kill-after"),
            Self::LoseAnswer => out.write_str("lose-answer"),
            Self::LandLate(Landing::BeforeFirstMove) => out.write_str("land-late"),
            Self::LandLate(Landing::BeforeRelease) => out.write_str("land-last"),
            Self::LandLate(landing) => write!(out, "land-late-{landing:?}"),
            Self::Outage => out.write_str("outage"),
            Self::Terminate => out.write_str("terminate"),
            Self::DieBefore => out.write_str("die-before"),
            Self::DieAfter => out.write_str("die-after"),
            Self::Fail(status) => write!(out, "fail-{status}"),
            Self::KillBeforeInUndo => out.write_str("undo-kill-before"),
            Self::KillAfterInUndo => out.write_str("undo-kill-after"),
            Self::LoseAnswerInUndo => out.write_str("undo-lose-answer"),
        }
    }
}

/// A call and what happens to it.
#[derive(Clone, Debug)]
pub struct Point {
    /// The call.
    pub at: At,
    /// What happens.
    pub mode: Mode,
    /// Whether it is the last call of a run: if it is made again, there may be one more.
    last: bool,
    /// Whether it is that one more, of which nobody knows yet whether there is such a call.
    more: bool,
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at {}", self.mode, self.at)
    }
}

/// A point that did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The point.
    pub point: Point,
    /// The call that was hit, as far as known.
    pub call: Option<String>,
    /// What did not hold, and the logs.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.point)?;
        if let Some(call) = &self.call {
            writeln!(out, "  {call}")?;
        }
        self.why.lines().try_for_each(|line| writeln!(out, "  {line}"))
    }
}

/// The result of all points of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The scenario's name.
    pub name: String,
    /// Counted calls of an undisturbed run.
    pub calls: u32,
    /// Points that held and points in all, by mode.
    pub points: BTreeMap<Mode, (usize, usize)>,
    /// Points whose call was not made again, by mode: not every run makes as many calls as the first, and renewals
    /// and watches come when they like.
    pub unmade: BTreeMap<Mode, usize>,
    /// Of the points at a counted call that the undisturbed run made: those whose call was not made again, and all.
    pub unmade_calls: (usize, usize),
    /// Points that did not hold, twice.
    pub failures: Vec<Failure>,
    /// Points that held only when they were tried again, with what had been wrong.
    pub held_later: Vec<Failure>,
    /// Points that were not tried after too many failures.
    pub left_out: usize,
    /// Workers that could not begin, and why: the others have done their share.
    pub absent: Vec<String>,
}

impl Tally {
    /// Notes a worker that could not begin, and says it at once: the points take longer without it.
    fn lost(&mut self, server: usize, error: &anyhow::Error) {
        eprintln!("{}: goes on without a worker on API server {server}: {error:#}", self.name);
        self.absent.push(format!("on API server {server}: {error:#}"));
    }

    /// Points that held, and points in all.
    #[must_use]
    pub fn total(&self) -> (usize, usize) {
        self.points.values().fold((0, 0), |(held, all), (more_held, more)| (held + more_held, all + more))
    }

    /// Whether every point held, and nearly all of them were tried, at the first try.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.wrong().is_empty() && too_often_later([self]).is_none()
    }

    /// What did not hold, a sentence each, whatever held only at the second try.
    fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self
            .failures
            .iter()
            .map(|failure| format!("{}: {}: {}", self.name, failure.point, first_line(&failure.why)))
            .collect();
        if self.left_out > 0 {
            wrong.push(format!(
                "{}: {} points were not tried after so many failures",
                self.name, self.left_out
            ));
        }
        wrong.extend(self.doubt().map(|doubt| format!("{}: {doubt}", self.name)));
        wrong
    }

    /// Why points that held prove less than they should.
    fn doubt(&self) -> Option<String> {
        let (unmade, calls) = self.unmade_calls;
        (unmade > share(calls, UNMADE).max(AT_LEAST)).then(|| {
            format!(
                "{unmade} of {calls} counted calls were not made again: more than {UNMADE} %, so call k is not the same call in every run"
            )
        })
    }
}

/// Why what held only at the second try is too much. Judged over all scenarios of a run: of the few points of one, two or
/// three are soon more than the share that a slow machine explains.
fn too_often_later<'a>(tallies: impl IntoIterator<Item = &'a Tally>) -> Option<String> {
    let (later, all) = tallies
        .into_iter()
        .fold((0, 0), |(later, all), tally| (later + tally.held_later.len(), all + tally.total().1));
    (later > share(all, HELD_LATER).max(AT_LEAST)).then(|| {
        format!(
            "{later} of {all} points held only at the second try: more than {HELD_LATER} % is not the machine's doing"
        )
    })
}

fn share(of: usize, per_cent: usize) -> usize {
    of * per_cent / 100
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.held_later {
            writeln!(out, "{}: HELD ONLY AT THE SECOND TRY: {failure}", self.name)?;
        }
        for failure in &self.failures {
            writeln!(out, "{}: FAILED {failure}", self.name)?;
        }
        for why in &self.absent {
            writeln!(out, "{}: WITHOUT ONE WORKER: {why}", self.name)?;
        }
        if self.left_out > 0 {
            writeln!(out, "{}: {} points were not tried after so many failures", self.name, self.left_out)?;
        }
        for (mode, (held, all)) in &self.points {
            write!(out, "{}: {mode}: {held} of {all}", self.name)?;
            match self.unmade.get(mode) {
                Some(1) => writeln!(out, " (1 call more was not made again)")?,
                Some(unmade) => writeln!(out, " ({unmade} calls more were not made again)")?,
                None => writeln!(out)?,
            }
        }
        if let Some(doubt) = self.doubt() {
            writeln!(out, "{}: FAILED: {doubt}", self.name)?;
        }
        let (held, all) = self.total();
        writeln!(out, "crash points: {held} of {all} ({}, {} calls)", self.name, self.calls)
    }
}

/// Which points are tried.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Only these modes, by name; empty: all.
    pub modes: Vec<String>,
    /// Only these counted calls; empty: all.
    pub calls: Vec<u32>,
    /// Of the points of a mode, every so manieth; 0 and 1: all.
    pub every: usize,
    /// Try nothing, print the calls of an undisturbed run and what may come of them if they fail.
    pub show: bool,
}

/// What an undisturbed run on a worker's cluster does.
#[derive(Default)]
struct Baseline {
    start: State,
    end: State,
    calls: Vec<Call>,
}

/// Tries every chosen point of a scenario, spread over the API servers.
pub async fn drive<S: Scenario>(scenario: Arc<S>, servers: &[Upstream], choice: &Choice) -> Result<Tally> {
    ensure!(!servers.is_empty(), "no API server: set {KUBECONFIGS}");
    let place = |server: usize, number: usize| {
        let upstream = servers[server].clone();
        Worker { server, number, api: Api::new(upstream.client()), upstream }
    };
    let mut places: VecDeque<(usize, usize)> = (0..scenario.workers_per_server().max(1))
        .flat_map(|number| (0..servers.len()).map(move |server| (server, number)))
        .collect();
    let mut tally = Tally { name: scenario.name().to_owned(), ..Tally::default() };
    // One worker that cannot begin may be its API server's fault; without any there is nothing to try.
    let first = loop {
        let (server, number) = places.pop_front().with_context(|| tally.absent.join("\n"))?;
        match Lane::open(scenario.clone(), place(server, number)).await {
            Ok(lane) => break lane,
            Err(error) => tally.lost(server, &error),
        }
    };
    tally.calls = first.calls();
    if choice.show {
        first.show();
        return Ok(tally);
    }
    let mut points = sample(first.points(choice).await?, choice.every)?;
    points.sort_by_key(|point| point.mode.weight());
    tally.points = points.iter().map(|point| (point.mode, (0, 0))).collect();
    let queue = Arc::new(Queue::new(scenario.name(), points));

    let mut workers = tokio::task::JoinSet::new();
    for (server, number) in places.into_iter().take(queue.left().saturating_sub(1)) {
        let (scenario, queue, worker) = (scenario.clone(), queue.clone(), place(server, number));
        workers.spawn(async move {
            match Lane::open(scenario, worker).await {
                Ok(lane) => Ok(lane.work(&queue).await),
                Err(error) => Err((server, error)),
            }
        });
    }
    let own_queue = queue.clone();
    workers.spawn(async move { Ok(first.work(&own_queue).await) });
    while let Some(done) = workers.join_next().await {
        let (ends, held_later) = match done.context("a worker")? {
            Ok(worked) => worked,
            Err((server, error)) => {
                tally.lost(server, &error);
                continue;
            }
        };
        tally.held_later.extend(held_later);
        for (point, end) in ends {
            if matches!(point.at, At::Call(_)) && !point.more {
                let (unmade, calls) = tally.unmade_calls;
                tally.unmade_calls = (unmade + usize::from(matches!(end, Ok(Reached::No))), calls + 1);
            }
            let entry = tally.points.entry(point.mode).or_default();
            match end {
                Ok(Reached::Yes) => *entry = (entry.0 + 1, entry.1 + 1),
                Ok(Reached::No) => *tally.unmade.entry(point.mode).or_default() += 1,
                Err(failure) => {
                    entry.1 += 1;
                    tally.failures.push(failure);
                }
            }
        }
    }
    tally.left_out = queue.left();
    Ok(tally)
}

/// Every so manieth point of each mode, beginning with another one in each, so that together they hit many calls. Of a mode
/// that has points at least one is tried, however few they are.
fn sample(points: Vec<Point>, every: usize) -> Result<Vec<Point>> {
    let every = every.max(1);
    let mut of_modes: BTreeMap<Mode, Vec<Point>> = BTreeMap::new();
    for point in points {
        of_modes.entry(point.mode).or_default().push(point);
    }
    let mut chosen = Vec::new();
    for (number, (mode, points)) in of_modes.into_iter().enumerate() {
        // 7 has no divisor in common with a usual `every`: neighbours among the modes begin far from each other.
        let first = (number * 7) % points.len().min(every);
        let before = chosen.len();
        chosen.extend(points.into_iter().skip(first).step_by(every));
        ensure!(chosen.len() > before, "no point of {mode} would be tried, although there are some");
    }
    Ok(chosen)
}

/// The points that a worker tried with their ends, and those that held only when they were tried again.
type Worked = (Vec<(Point, Result<Reached, Failure>)>, Vec<Failure>);

/// Points that wait for a worker.
struct Queue {
    name: String,
    total: AtomicUsize,
    waiting: Mutex<VecDeque<Point>>,
    failed: AtomicUsize,
    said: Mutex<Instant>,
}

impl Queue {
    fn new(name: &str, points: Vec<Point>) -> Self {
        Self {
            name: name.to_owned(),
            total: AtomicUsize::new(points.len()),
            waiting: Mutex::new(points.into()),
            failed: AtomicUsize::new(0),
            said: Mutex::new(Instant::now()),
        }
    }

    fn add(&self, point: Point) {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.waiting.lock().unwrap().push_back(point);
    }

    fn next(&self) -> Option<Point> {
        let failed = self.failed.load(Ordering::Relaxed);
        if failed >= ENOUGH_FAILURES {
            return None;
        }
        let mut waiting = self.waiting.lock().unwrap();
        let mut said = self.said.lock().unwrap();
        if said.elapsed() > Duration::from_secs(10) {
            *said = Instant::now();
            let total = self.total.load(Ordering::Relaxed);
            eprintln!("{}: {} of {total} points tried, {failed} failed", self.name, total - waiting.len());
        }
        waiting.pop_front()
    }

    fn left(&self) -> usize {
        self.waiting.lock().unwrap().len()
    }
}

/// A worker with its scenario set up and its undisturbed run made.
struct Lane<S> {
    scenario: Arc<S>,
    worker: Worker,
    baseline: Baseline,
    _guard: Guard,
}

/// Whether the call of a point was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reached {
    Yes,
    No,
}

/// What went wrong at a point, with the call that was hit.
struct Wrong {
    call: Option<String>,
    error: anyhow::Error,
}

impl<S: Scenario> Lane<S> {
    async fn open(scenario: Arc<S>, worker: Worker) -> Result<Self> {
        let guard = scenario.setup(&worker).await.context("setting the scenario up")?;
        let baseline = Baseline::default();
        let mut lane = Self { scenario, worker, baseline, _guard: guard };
        // Like a point, it may be the machine's fault once.
        if let Err(error) = lane.run_undisturbed().await {
            eprintln!("{} undisturbed, once more: {error:#}", lane.scenario.name());
            lane.run_undisturbed().await.with_context(|| {
                format!("{} undisturbed, on API server {}", lane.scenario.name(), lane.worker.server)
            })?;
        }
        Ok(lane)
    }

    /// The undisturbed run: it succeeds, closes what it opened, and a second one finds nothing to do. From the same
    /// start it makes the same calls each time: else something of another scenario, or of another run, is in its way.
    async fn run_undisturbed(&mut self) -> Result<()> {
        self.reset().await?;
        let rehearsal = self.run(Vec::new()).await?;
        rehearsal.expect_exit(0)?;
        self.reset().await?;
        self.baseline.start = self.read_settled().await?;
        let first = self.run(Vec::new()).await?;
        first.expect_exit(0)?;
        let differ = differences(&told(&rehearsal.calls), &told(&first.calls));
        ensure!(differ.is_empty(), "two undisturbed runs make other calls:\n{}", differ.join("\n"));
        self.baseline.end = self.read_settled().await?;
        self.ended("after an undisturbed run").await?;
        self.baseline.calls = first.calls;
        self.nothing_left_open().await?;
        let second = self.run(Vec::new()).await?;
        second.expect_exit(0).context("the second run")?;
        let writes = writes_that_matter(&second.calls);
        if !writes.is_empty() {
            let writes: Vec<String> = writes.iter().map(ToString::to_string).collect();
            bail!("the second run should find nothing to do, but wrote:\n{}", writes.join("\n"));
        }
        self.ended("after a second run").await?;
        Ok(())
    }

    fn show(&self) {
        let calls = &self.baseline.calls;
        for (at, call) in calls.iter().enumerate() {
            let (stage, ends) = self.ends(call, &calls[..at], 403);
            println!("{call}  [{:?}, {stage:?}: {}]", call.class, shown(&ends));
        }
    }

    /// The stage at which a call failed, and to which ends the run may come.
    fn ends(&self, struck: &Call, before: &[Call], status: u16) -> (Stage, Vec<Allowed>) {
        let for_good = |call: &Call| self.scenario.is_for_good(call);
        let stage = Stage::of(struck, before, &self.baseline.calls, for_good);
        let has_end = self.baseline.calls.iter().any(|call| call.class == Class::Move && for_good(call));
        let mut ends = allowed(struck, stage, has_end);
        // What fails until the deadline works again for undo.
        if status < 500 {
            ends = with_blocked_undo(ends, struck, before);
        }
        (stage, self.scenario.expect(struck, stage, ends))
    }

    fn calls(&self) -> u32 {
        self.baseline.calls.iter().filter_map(|call| call.number).max().unwrap_or_default()
    }

    /// All points of the chosen modes and calls.
    async fn points(&self, choice: &Choice) -> Result<Vec<Point>> {
        let modes: Vec<Mode> = self
            .scenario
            .modes()
            .into_iter()
            .filter(|mode| choice.modes.is_empty() || choice.modes.contains(&mode.to_string()))
            .collect();
        let undo = if modes.iter().any(|mode| mode.in_undo()) {
            // Like a point, it may be the machine's fault once.
            match self.calls_of_an_undo().await {
                Ok(calls) => calls,
                Err(error) => {
                    eprintln!("{}: an undo, once more: {error:#}", self.scenario.name());
                    self.calls_of_an_undo().await?
                }
            }
        } else {
            Vec::new()
        };
        let mut points = Vec::new();
        for mode in modes {
            if mode.is_repeated() {
                points.extend(self.point_of_deaths(mode).filter(|_| choice.calls.is_empty()));
                continue;
            }
            let calls = if mode.in_undo() { &undo } else { &self.baseline.calls };
            let highest = calls.iter().filter_map(|call| call.number).max();
            for call in calls.iter().filter(|call| mode.suits(call)) {
                let at = match (call.number, call.lease, call.watch) {
                    (Some(number), ..) => At::Call(number),
                    (None, Some(number), _) => At::Lease(number),
                    (None, None, Some(number)) => At::Watch(number),
                    _ => continue,
                };
                let chosen = |number| choice.calls.contains(&number);
                if choice.calls.is_empty() || call.number.is_some_and(chosen) {
                    let last = choice.calls.is_empty() && call.number.is_some() && call.number == highest;
                    points.push(Point { at, mode, last, more: false });
                }
            }
        }
        Ok(points)
    }

    /// Dying again and again is one point. Who dies after a move each time needs a move for each death, and one that
    /// is left: else the step is done before.
    fn point_of_deaths(&self, mode: Mode) -> Option<Point> {
        let moves = self.baseline.calls.iter().filter(|call| call.class == Class::Move && call.succeeded());
        let moves = moves.filter(|call| !self.scenario.is_for_good(call)).count();
        let needed = if mode == Mode::DieAfter { DEATHS + 1 } else { 1 };
        let at = At::first(|call| call.class == Class::Move);
        (moves >= needed).then_some(Point { at, mode, last: false, more: false })
    }

    /// What the step calls from the moment when it has to undo.
    async fn calls_of_an_undo(&self) -> Result<Vec<Call>> {
        let Some(fault) = self.undo_fault() else { return Ok(Vec::new()) };
        self.reset().await?;
        let start = self.read_settled().await?;
        let run = self.run(vec![fault]).await?;
        run.expect_exit(4).context("a run that must undo")?;
        self.restored(&start, &run.calls).await.context("after an undisturbed undo")?;
        let failed = run.struck.first().map(|call| call.at);
        Ok(run.calls.into_iter().filter(|call| Some(call.at) > failed).collect())
    }

    /// Makes the last move fail that can be taken back and whose object was not written before: undo does not need
    /// it.
    fn undo_fault(&self) -> Option<Fault> {
        let calls = &self.baseline.calls;
        let fresh = |at: usize| {
            let call = &calls[at];
            let is_move = call.class == Class::Move && call.succeeded() && !self.scenario.is_for_good(call);
            is_move && !calls[..at].iter().any(|other| other.class == Class::Move && other.same_object(call))
        };
        let last = calls[(0..calls.len()).rev().find(|at| fresh(*at))?].clone();
        let at = At::first(move |call| call.key() == last.key());
        Some(Fault::FailForGood { at, status: 422, scope: Scope::Body, until: None })
    }

    async fn work(self, queue: &Queue) -> Worked {
        let mut ends = Vec::new();
        let mut held_later = Vec::new();
        while let Some(point) = queue.next() {
            let mut tried = self.try_point(&point).await;
            if let Err(Wrong { call, error }) = &tried {
                // Steps run against a clock here, on a machine whose speed nobody knows: one failure may be the
                // machine's. It is said, and tried once more; twice is the program's.
                let first = Failure { point: point.clone(), call: call.clone(), why: format!("{error:#}") };
                tried = self.try_point(&point).await;
                if tried.is_ok() {
                    held_later.push(first);
                }
            }
            let end = match tried {
                Ok(reached) => {
                    if let (Reached::Yes, true, At::Call(number)) = (reached, point.last, &point.at) {
                        queue.add(Point { at: At::Call(number + 1), more: true, ..point.clone() });
                    }
                    Ok(reached)
                }
                Err(Wrong { call, error }) => {
                    queue.failed.fetch_add(1, Ordering::Relaxed);
                    Err(Failure { point: point.clone(), call, why: format!("{error:#}") })
                }
            };
            ends.push((point, end));
        }
        (ends, held_later)
    }

    /// Tries a point until its call is made.
    async fn try_point(&self, point: &Point) -> Result<Reached, Wrong> {
        for _ in 0..TRIES {
            let mut call = None;
            match self.try_once(point, &mut call).await {
                Ok(Reached::Yes) => return Ok(Reached::Yes),
                Ok(Reached::No) => {}
                Err(error) => return Err(Wrong { call, error }),
            }
        }
        Ok(Reached::No)
    }

    async fn try_once(&self, point: &Point, hit: &mut Option<String>) -> Result<Reached> {
        self.reset().await.context("reset")?;
        // Controllers may still be at what the scenario has made.
        let start = self.same_as(&self.baseline.start, "from which the scenario starts").await?;
        if point.mode.is_repeated() {
            return self.die(point, &start).await;
        }

        let mut faults = vec![point.mode.fault(point.at.clone(), self.scenario.deadline())];
        if point.mode.in_undo() {
            faults.extend(self.undo_fault());
        }
        let mut run = self.run(faults).await?;
        let Some(struck) = run.struck.iter().find(|call| point.at.is(call)).cloned() else {
            // Then it was a run like any other.
            if point.mode.in_undo() {
                run.expect_exit(4)?;
                self.restored(&start, &run.calls).await?;
            } else {
                run.expect_exit(0)?;
                self.done("after a run without the call").await?;
            }
            return Ok(Reached::No);
        };
        *hit = Some(struck.to_string());
        let held = run.held.take();
        let log = || format!("\nthe disturbed run: {}; its log ends:\n{}", run.exit, run.tail(30));
        self.judge(point, &struck, &run, &start).await.map_err(|error| anyhow!("{error:#}{}", log()))?;
        let righted = self.put_right(point, held, &start, run.calls.clone()).await;
        righted.map_err(|error| anyhow!("{error:#}{}", log()))?;
        Ok(Reached::Yes)
    }

    /// Lets the step die again and again: the run after that undoes what they did, and the next one is done.
    async fn die(&self, point: &Point, start: &State) -> Result<Reached> {
        let mut calls = Vec::new();
        for _ in 0..DEATHS {
            let run = self.run(vec![point.mode.fault(point.at.clone(), self.scenario.deadline())]).await?;
            ensure!(!run.struck.is_empty(), "it made no move to die at, {}:\n{}", run.exit, run.tail(30));
            ensure!(run.exit == Exit::Signal(9), "it was killed and ended with {}", run.exit);
            calls.extend(run.calls);
        }
        let last = self.run(Vec::new()).await?;
        calls.extend(last.calls.iter().cloned());
        last.expect_exit(4).with_context(|| format!("the run after {DEATHS} deaths"))?;
        let told = || format!("the run after {DEATHS} deaths: its log ends:\n{}", last.tail(30));
        self.restored(start, &calls).await.with_context(told)?;
        self.put_right(point, None, start, calls).await?;
        Ok(Reached::Yes)
    }

    /// Whether the disturbed run ended as it should.
    async fn judge(&self, point: &Point, struck: &Call, run: &Outcome, start: &State) -> Result<()> {
        match point.mode {
            Mode::KillBefore
            | Mode::KillAfter
            | Mode::LandLate(_)
            | Mode::KillBeforeInUndo
            | Mode::KillAfterInUndo => {
                ensure!(run.exit == Exit::Signal(9), "it was killed and ended with {}", run.exit);
                Ok(())
            }
            Mode::DieBefore | Mode::DieAfter => bail!("dying again and again is not one run"),
            // It may come too late to stop anything.
            Mode::Terminate if run.exit == Exit::Code(0) => self.done("after a SIGTERM that came late").await,
            Mode::Terminate => {
                ensure!(run.exit == Exit::Code(143), "it was told to stop and ended with {}", run.exit);
                let mut own = Bookkeeping::read(&self.worker.api, &self.scenario.home(&self.worker)).await?;
                own.journals.clear();
                let held = own.left_open();
                ensure!(held.is_empty(), "it was told to stop and should give the lock back:\n{held}");
                Ok(())
            }
            Mode::LoseAnswer | Mode::Outage => {
                ensure!(run.exit == Exit::Code(0), "it should try again, but ended with {}", run.exit);
                self.done("after trying again").await
            }
            Mode::LoseAnswerInUndo => {
                ensure!(
                    run.exit == Exit::Code(4),
                    "a lost answer is asked for again, but undo ended with {}",
                    run.exit
                );
                self.restored(start, &run.calls).await
            }
            Mode::Fail(status) => {
                let at = run.calls.iter().position(|call| call.at == struck.at).unwrap_or_default();
                let (stage, ends) = self.ends(struck, &run.calls[..at], status);
                let shown = format!("at stage {stage:?} the run may come to {}", shown(&ends));
                let Some(end) = ends.iter().find(|end| run.exit == Exit::Code(end.exit)) else {
                    bail!("{shown}, but it came to {}", run.exit);
                };
                // What works again at a later try is no failure that anybody must hear of.
                let worked =
                    run.calls[at..].iter().any(|call| call.key() == struck.key() && call.succeeded());
                if let Some(sentence) = owed(struck).filter(|_| end.exit == 0 && !worked) {
                    ensure!(run.stderr.contains(sentence), "{shown}, and it should log that {sentence}");
                }
                match end.leaves {
                    Leaves::Anything => Ok(()),
                    // The lock may be what could not be given back.
                    Leaves::Done => self.ended("after a failure that does not matter").await,
                    Leaves::Restored => self.restored(start, &run.calls).await,
                    Leaves::Untouched => {
                        let moves =
                            run.calls.iter().filter(|call| call.class == Class::Move && call.succeeded());
                        let moves: Vec<String> = moves.map(ToString::to_string).collect();
                        ensure!(moves.is_empty(), "{shown}, but moves were made:\n{}", moves.join("\n"));
                        self.restored(start, &run.calls).await
                    }
                }
                .context(shown)
            }
        }
    }

    /// Runs the step again without faults until it is done; after a kill the first run must do it.
    async fn put_right(
        &self,
        point: &Point,
        held: Option<Held>,
        start: &State,
        mut calls: Vec<Call>,
    ) -> Result<()> {
        let must_resume =
            matches!(point.mode, Mode::KillBefore | Mode::KillAfter | Mode::LandLate(_) | Mode::Terminate);
        let mut faults = Vec::new();
        if let (Mode::LandLate(when), Some(held)) = (point.mode, held) {
            faults.push(Fault::Land { held, when });
        }
        for number in 1..=RERUNS {
            let run = self.run(std::mem::take(&mut faults)).await?;
            calls.extend(run.calls.iter().cloned());
            let log = |error: anyhow::Error| {
                let mut told = format!("rerun {number}: {}", run.exit);
                for landed in &run.landed {
                    let before =
                        landed.before.as_ref().map_or_else(|| "its end".to_owned(), ToString::to_string);
                    told =
                        format!("{told}; {} landed before {before} and got {:?}", landed.call, landed.answer);
                }
                anyhow!("{error:#}\n{told}; its log ends:\n{}", run.tail(30))
            };
            match run.exit {
                Exit::Code(0) => return self.done("after the rerun").await.map_err(log),
                Exit::Code(4) if !must_resume => self.restored(start, &calls).await.map_err(log)?,
                exit => return Err(log(anyhow!("the rerun should finish, but ended with {exit}"))),
            }
        }
        bail!("not finished after {RERUNS} reruns")
    }

    /// The state after an undisturbed run, and nothing left open.
    async fn done(&self, when: &str) -> Result<()> {
        self.ended(when).await?;
        self.nothing_left_open().await
    }

    /// Waits for the state after an undisturbed run, and for what the scenario asks for besides.
    async fn ended(&self, when: &str) -> Result<()> {
        self.same_as(&self.baseline.end, when).await?;
        let end = Instant::now() + self.scenario.patience();
        loop {
            match self.scenario.holds_in_the_end(&self.worker).await {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error.context(format!("the end {when}"))),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// The state from which the runs that made these calls started; only objects that they had deleted, and what
    /// went with them, may be others.
    async fn restored(&self, start: &State, calls: &[Call]) -> Result<()> {
        let now = self.same_as(start, "which should be restored").await?;
        let deleted = |identity: &Identity| {
            calls
                .iter()
                .any(|call| call.verb == Verb::Delete && call.succeeded() && identity.is_target_of(call))
        };
        let mut gone: BTreeSet<&Key> =
            start.identities.iter().filter(|(_, identity)| deleted(identity)).map(|(key, _)| key).collect();
        loop {
            let with_owner = |identity: &Identity| identity.owners.iter().any(|owner| gone.contains(owner));
            let more: Vec<&Key> = start
                .identities
                .iter()
                .filter(|(key, identity)| !gone.contains(key) && with_owner(identity))
                .map(|(key, _)| key)
                .collect();
            if more.is_empty() {
                break;
            }
            gone.extend(more);
        }
        let replaced = start.replaced(&now, |key, _| gone.contains(key));
        ensure!(replaced.is_empty(), "objects that need not be touched were replaced:\n{replaced}");
        Ok(())
    }

    /// Waits until the cluster is in this state.
    async fn same_as(&self, wanted: &State, when: &str) -> Result<State> {
        let end = Instant::now() + self.scenario.patience();
        loop {
            let now = self.read().await?;
            let diff = wanted.diff(&now);
            if diff.is_empty() {
                return Ok(now);
            }
            if Instant::now() > end {
                bail!("the state {when} differs:\n{diff}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn nothing_left_open(&self) -> Result<()> {
        let open: Diff =
            Bookkeeping::read(&self.worker.api, &self.scenario.home(&self.worker)).await?.left_open();
        ensure!(open.is_empty(), "left open:\n{open}");
        Ok(())
    }

    async fn reset(&self) -> Result<()> {
        let mut areas = self.scenario.areas(&self.worker);
        areas.extend(own_areas(&self.scenario.home(&self.worker)));
        clear(&self.worker.api, &areas, Duration::from_secs(30)).await?;
        self.scenario.fill(&self.worker).await
    }

    async fn run(&self, faults: Vec<Fault>) -> Result<Outcome> {
        self.scenario.command(&self.worker)?.run(&self.worker.upstream, faults).await
    }

    async fn read(&self) -> Result<State> {
        let areas = self.scenario.areas(&self.worker);
        State::read(&self.worker.api, &areas, |object| self.scenario.adjust(object)).await
    }

    async fn read_settled(&self) -> Result<State> {
        let areas = self.scenario.areas(&self.worker);
        let adjust = |object: &mut Value| self.scenario.adjust(object);
        State::read_settled(&self.worker.api, &areas, &adjust, self.scenario.patience()).await
    }
}

/// What a run did, in words that can be compared with those of another. An Event's name is another one each time, watches
/// and renewals come when they like, and after a conflict an object is read once more.
fn told(calls: &[Call]) -> BTreeSet<String> {
    let counted = calls.iter().filter(|call| call.number.is_some() && call.is_write());
    let told = counted.map(|call| match call.class {
        Class::Event => format!("{:?}", call.class),
        class => {
            let (verb, path, name, dry_run) = call.key();
            let dry_run = if dry_run { " (dry run)" } else { "" };
            format!("{class:?}: {verb} {path} {}{dry_run}", name.unwrap_or_default())
        }
    });
    told.collect()
}

/// The calls that only one of two runs made. Neither their order is a difference, since the list with which a watch begins
/// comes beside the moves of other chains, nor how often one is made: after a conflict it is made again.
fn differences(one: &BTreeSet<String>, other: &BTreeSet<String>) -> Vec<String> {
    let first = one.difference(other).map(|call| format!("only the first: {call}"));
    first.chain(other.difference(one).map(|call| format!("only the second: {call}"))).collect()
}

fn shown(ends: &[Allowed]) -> String {
    ends.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

/// The API servers named in the environment.
pub async fn servers() -> Result<Vec<Upstream>> {
    let named = std::env::var(KUBECONFIGS).unwrap_or_default();
    if named.is_empty() {
        nothing_tried(&format!("no API server (set {KUBECONFIGS})"))?;
        return Ok(Vec::new());
    }
    let mut servers = Vec::new();
    for path in named.split(':') {
        ensure!(!path.is_empty(), "{KUBECONFIGS} is '{named}': one of the kubeconfigs has no name");
        servers.push(Upstream::from_kubeconfig(&PathBuf::from(path)).await?);
    }
    Ok(servers)
}

/// Says why nothing is tried. An error for a caller who has prepared everything: there, nothing tried is nothing proven.
pub fn nothing_tried(why: &str) -> Result<()> {
    ensure!(std::env::var_os(REQUIRED).is_none(), "{why}, and {REQUIRED} is set: nothing could be tried");
    println!("{why}: nothing tried");
    Ok(())
}

type Driver = Box<dyn Fn(Vec<Upstream>, Choice) -> BoxFuture<'static, Result<Tally>> + Send + Sync>;

/// Scenarios by name: the main function of a test.
#[derive(Default)]
pub struct Suite {
    scenarios: Vec<(String, Driver)>,
}

/// What `cargo test` hands over after its `--`.
#[derive(Parser)]
#[command(name = "crash", about = "Crashes steps at every call of a run and looks at what is left")]
struct Arguments {
    /// Steps to try; all if none is named
    steps: Vec<String>,
    /// Try only this way of going wrong, for instance kill-before or fail-403
    #[arg(long)]
    mode: Vec<String>,
    /// Try only this call
    #[arg(long)]
    call: Vec<u32>,
    /// Try only every so manieth point of each way of going wrong
    #[arg(long, default_value_t = 1)]
    every: usize,
    /// Try nothing, print the calls of an undisturbed run and what may come of them if they fail with 403
    #[arg(long)]
    show: bool,
    /// Name the scenarios and end
    #[arg(long)]
    list: bool,
    /// For cargo's sake: output is never captured here
    #[arg(long, hide = true)]
    nocapture: bool,
    /// For cargo's sake
    #[arg(long, hide = true)]
    format: Option<String>,
}

impl Suite {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a scenario.
    #[must_use]
    pub fn with<S: Scenario>(mut self, scenario: S) -> Self {
        let name = scenario.name().to_owned();
        let scenario = Arc::new(scenario);
        let driver: Driver = Box::new(move |servers, choice| {
            let scenario = scenario.clone();
            Box::pin(async move { drive(scenario, &servers, &choice).await })
        });
        self.scenarios.push((name, driver));
        self
    }

    /// Tries what the command line asks for. Succeeds if every point held.
    ///
    /// Without an API server there is nothing to try: that is said, and is an error for who named a step or set
    /// `BELAY_TEST_REQUIRED`.
    #[must_use]
    pub fn main(self) -> ExitCode {
        let arguments = Arguments::parse();
        if arguments.list {
            self.scenarios.iter().for_each(|(name, _)| println!("{name}: test"));
            return ExitCode::SUCCESS;
        }
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        match runtime.block_on(self.try_all(&arguments)) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("crash: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    async fn try_all(&self, arguments: &Arguments) -> Result<bool> {
        let servers = servers().await?;
        if servers.is_empty() && arguments.steps.is_empty() {
            return Ok(true);
        }
        let wanted =
            |name: &str| arguments.steps.is_empty() || arguments.steps.iter().any(|step| name.contains(step));
        ensure!(self.scenarios.iter().any(|(name, _)| wanted(name)), "no such scenario; --list names them");
        let choice = Choice {
            modes: arguments.mode.clone(),
            calls: arguments.call.clone(),
            every: arguments.every,
            show: arguments.show,
        };
        let mut tallies = Vec::new();
        let mut wrong = Vec::new();
        for (name, driver) in self.scenarios.iter().filter(|(name, _)| wanted(name)) {
            let started = Instant::now();
            match driver(servers.clone(), choice.clone()).await {
                Ok(tally) => {
                    print!("{tally}");
                    wrong.extend(tally.wrong());
                    tallies.push(tally);
                }
                Err(error) => {
                    println!("{name}: {error:#}");
                    wrong.push(format!("{name}: {}", first_line(&format!("{error:#}"))));
                }
            }
            println!("{name}: {:.0} s on {} API servers", started.elapsed().as_secs_f64(), servers.len());
        }
        wrong.extend(too_often_later(&tallies));
        // Once more at the end: what a scenario said stands far above by now.
        for sentence in &wrong {
            println!("FAILED: {sentence}");
        }
        Ok(wrong.is_empty())
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(mode: Mode, call: u32) -> Point {
        Point { at: At::Call(call), mode, last: false, more: false }
    }

    #[test]
    fn two_runs_may_differ_in_the_order_and_number_of_their_calls_and_in_nothing_else() {
        let calls = |text: &str| text.split(' ').map(str::to_owned).collect();
        assert!(differences(&calls("a b b c"), &calls("b c a")).is_empty());
        assert_eq!(differences(&calls("a b"), &calls("b c")), ["only the first: a", "only the second: c"]);
    }

    #[test]
    fn many_second_tries_or_unmade_calls_are_no_success() {
        let failure = Failure { point: point(Mode::KillBefore, 1), call: None, why: String::new() };
        let tally = |points, unmade, later| Tally {
            points: BTreeMap::from([(Mode::KillBefore, (points, points))]),
            unmade_calls: (unmade, points),
            held_later: vec![failure.clone(); later],
            ..Tally::default()
        };
        assert!(tally(100, 5, 3).is_good());
        assert!(!tally(100, 6, 3).is_good() && !tally(100, 5, 4).is_good());
        assert!(tally(20, 3, 3).is_good() && !tally(20, 4, 0).is_good());
        assert!(tally(500, 0, 10).is_good() && !tally(500, 0, 11).is_good());
        // Over a run: what one scenario has too many of is little among all.
        assert!(too_often_later([&tally(100, 0, 6), &tally(300, 0, 2)]).is_none());
        assert!(too_often_later([&tally(100, 0, 3), &tally(100, 0, 3)]).is_some());
    }

    #[test]
    fn a_sample_has_points_of_every_mode_and_begins_with_another_one_in_each() {
        for (count, every) in [(1, 20), (3, 20), (14, 20), (61, 20), (61, 1), (5, 0)] {
            let points = Mode::ALL.iter().flat_map(|mode| (1..=count).map(|call| point(*mode, call)));
            let chosen = sample(points.collect(), every).unwrap();
            let mut first: BTreeSet<String> = BTreeSet::new();
            for mode in Mode::ALL {
                let calls: Vec<&Point> = chosen.iter().filter(|point| point.mode == mode).collect();
                let usual = count as usize / every.max(1);
                assert!(calls.len() >= usual.max(1), "{mode}: {} of {count}", calls.len());
                assert!(calls.len() <= usual + 1, "{mode}: {} of {count}", calls.len());
                first.insert(calls[0].at.to_string());
            }
            assert_eq!(first.len() > 1, count > 1 && every > 1, "{count} points, every {every}th: {first:?}");
        }
        assert!(sample(Vec::new(), 20).unwrap().is_empty());
    }
}
