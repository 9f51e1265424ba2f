//! Tries the points of a scenario, each in a world of its own, on all cores.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use harness::{
    Api, Call, Exit, Scenario, Worker,
    crash::{Choice, Lane, Mode, Place, Point},
};
use tokio::task::LocalSet;

use crate::{
    disturb::Disturbance,
    intervene::{Course, Kind},
    known, pages,
    process::{keep_logs, take_panics},
    runner::Simulated,
    schedule::{Schedule, at_once},
    secrets::WithSecrets,
    traffic::Traffic,
    trial::{AT_REST, HOLDS_NOW, Trial},
    watchdog::Watchdog,
    world::{AROUND, Moment, World},
};

/// Runs a story in a world of its own: one thread, and time that passes only when nobody has anything to do.
pub fn in_world<T>(seed: u64, story: impl AsyncFnOnce(&World, Worker) -> Result<T>) -> Result<T> {
    begin(|| World::new(seed), story)
}

fn begin<T>(
    world: impl FnOnce() -> World,
    story: impl AsyncFnOnce(&World, Worker) -> Result<T>,
) -> Result<T> {
    keep_logs();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    LocalSet::new().block_on(&runtime, async {
        let world = world();
        let runner = Arc::new(Simulated::new(&world));
        let worker = Worker { server: 0, api: Api::new(world.client(AROUND)), runner };
        let told = story(&world, worker).await;
        let panics = take_panics();
        ensure!(panics.is_empty(), "panicked:\n{}", panics.join("\n"));
        // What the server only guesses at proves nothing.
        let unknown = world.unknown();
        ensure!(unknown.is_empty(), "the simulated API server does not know:\n{}", unknown.join("\n"));
        let uncovered = world.uncovered();
        ensure!(uncovered.is_empty(), "the conformance table has no row for:\n{}", uncovered.join("\n"));
        let violations = world.violations();
        ensure!(violations.is_empty(), "what must never happen:\n{}", violations.join("\n"));
        told
    })
}

/// A scenario in a world, and the moment from which all of its trials begin.
pub struct Scene<S> {
    lane: Lane<WithSecrets<S>>,
    start: Moment,
    seed: u64,
}

/// What came of trials.
pub struct Explored {
    /// How many were tried.
    pub tried: usize,
    /// What did not hold, and why.
    pub failures: Vec<(Trial, String)>,
    /// What happened at the first of them.
    pub timeline: Vec<String>,
    /// What was seen in all of their worlds.
    pub seen: Seen,
}

/// What is seen in worlds besides what holds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The most that a process has sent and got.
    pub traffic: Traffic,
    /// How many faults of schedules have struck: a story may end before the call that they wait for.
    pub struck: usize,
    /// At how many points there was nothing that somebody else could have written to.
    pub idle: usize,
}

/// The points of modes of the crash harness, each looked up once.
struct Alike<'a, S> {
    lane: &'a Lane<S>,
    choice: &'a Choice,
    points: BTreeMap<Mode, Vec<Point>>,
}

impl<S: Scenario> Alike<'_, S> {
    async fn points(&mut self, mode: Mode) -> Result<Vec<Point>> {
        if let Some(known) = self.points.get(&mode) {
            return Ok(known.clone());
        }
        let choice = Choice { modes: vec![mode.to_string()], ..self.choice.clone() };
        let (points, _) = self.lane.points(&choice).await?;
        self.points.insert(mode, points.clone());
        Ok(points)
    }
}

impl<S: Scenario> Scene<S> {
    /// Sets a scenario up, and finds all of its single faults that are chosen: with no mode named, in every mode.
    pub fn open(scenario: S, choice: &Choice, seed: u64) -> Result<(Self, Vec<Trial>)> {
        let _watchdog = Watchdog::over(format!("{}: not tried: setting it up", scenario.name()));
        let (lane, start) = in_world(seed, async |world, worker| {
            let lane = Lane::open(Arc::new(WithSecrets(scenario)), worker, None).await?;
            lane.reset().await?;
            lane.same_as(&lane.start, "from which the scenario starts").await?;
            // Also what nobody compares comes to rest.
            tokio::time::sleep(AT_REST).await;
            Ok((lane, world.moment()))
        })?;
        let scene = Self { lane, start, seed };
        scene.repeats()?;
        let mut trials = scene.play(seed, async |_, lane| single_faults(lane, choice).await)?;
        if choice.calls.is_empty() && is_wanted(choice, pages::NAME) {
            let pages = scene.play(seed, async |world, lane| pages::count(world, lane).await)?;
            trials.extend((1..=pages).map(Trial::Paged));
        }
        Ok((scene, trials))
    }

    /// The scenario's name.
    pub fn name(&self) -> &str {
        self.lane.scenario.name()
    }

    /// How many calls an undisturbed run makes.
    pub fn calls(&self) -> usize {
        self.lane.calls.len()
    }

    /// Lets a story happen in a world of its own.
    fn play<T>(
        &self,
        seed: u64,
        story: impl AsyncFnOnce(&World, &Lane<WithSecrets<S>>) -> Result<T>,
    ) -> Result<T> {
        begin(
            || World::begin(&self.start, seed),
            async |world, worker| {
                let scenario = self.lane.scenario.clone();
                world.run_in_pods();
                world.judge_order(Arc::new(move |mv, objects| scenario.too_early(mv, objects)));
                story(world, &self.lane.on_copy(worker)).await
            },
        )
    }

    /// A trial in a world that is drawn from its seed.
    fn attempt(&self, trial: &Trial, seen: &Mutex<Seen>) -> Result<()> {
        let _watchdog = Watchdog::over(format!("{}: FAILED {trial}", self.name()));
        let tried = self.play(trial.seed(self.seed), async |world, lane| {
            let tried = trial.run(world, lane).await;
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.traffic = seen.traffic.most(world.traffic());
            seen.struck += world.struck();
            seen.idle += usize::from(world.is_idle());
            tried
        });
        known::judged(self.name(), &trial.to_string(), tried)
    }

    /// Tries all of these, on all cores; or, where only the first that fails is asked for, until one does. `told` asks for its
    /// timeline.
    pub fn explore(&self, trials: &[Trial], told: bool, only_first: bool) -> Explored {
        let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let seen = Mutex::new(Seen::default());
        let (next, failures) = (&next, &failures);
        let try_next = || loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(trial) = trials.get(at) else { return };
            if let Err(error) = self.attempt(trial, &seen) {
                let why = format!("{error:#}");
                // Whoever tries one that comes before this one brings it to its end.
                if only_first && !why.starts_with(HOLDS_NOW) {
                    next.store(trials.len(), Ordering::Relaxed);
                }
                failures.lock().unwrap_or_else(PoisonError::into_inner).push((at, trial.clone(), why));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
                scope.spawn(try_next);
            }
        });
        let mut failures = std::mem::take(&mut *failures.lock().unwrap_or_else(PoisonError::into_inner));
        failures.sort_by_key(|(at, ..)| *at);
        let mut tried = trials.len();
        if only_first && let Some(first) = failures.iter().position(|(_, _, why)| !why.starts_with(HOLDS_NOW))
        {
            failures.truncate(first + 1);
            tried = failures[first].0 + 1;
        }
        let failures: Vec<_> =
            failures.into_iter().map(|(_, trial, why)| self.shortened((trial, why))).collect();
        let timeline = match failures.first() {
            Some((trial, _)) if told => self.timeline(trial),
            _ => Vec::new(),
        };
        let seen = seen.into_inner().unwrap_or_else(PoisonError::into_inner);
        Explored { tried, failures, timeline, seen }
    }

    /// Of a schedule that failed, the shortest that fails too.
    fn shortened(&self, (trial, why): (Trial, String)) -> (Trial, String) {
        let Trial::Scheduled(schedule) = &trial else { return (trial, why) };
        let nobody_asks = Mutex::default();
        let again = |trial: &Trial| self.attempt(trial, &nobody_asks);
        let fails = |shorter: &Schedule| again(&Trial::Scheduled(shorter.clone())).is_err();
        let shortest = Trial::Scheduled(schedule.shrink(fails));
        let why = again(&shortest).map_or_else(|error| format!("{error:#}"), |()| why);
        (shortest, why)
    }

    /// The same seed gives the same calls and answers, letter by letter: else no failure could be told again. In a run that
    /// goes through, in one that undoes, and in one that makes many calls at once.
    fn repeats(&self) -> Result<()> {
        let told = |concurrency: usize, undoes: bool| {
            self.play(self.seed, async |world, lane| {
                world.trace();
                let command = at_once(&lane.scenario.command(&lane.worker)?, concurrency);
                let fault = lane.undo_fault().filter(|_| undoes);
                // A restore has nothing to undo, and leaves it to people.
                let ends =
                    if fault.is_some() { [4, 5].map(Exit::Code).to_vec() } else { vec![Exit::Code(0)] };
                let run = lane.worker.runner.run(&command, fault.into_iter().collect()).await?;
                ensure!(ends.contains(&run.exit), "{}; its log ends:\n{}", run.exit, run.tail(30));
                Ok(world.traced())
            })
        };
        for (concurrency, undoes) in [(1, false), (1, true), (32, true)] {
            let (one, other) = (told(concurrency, undoes)?, told(concurrency, undoes)?);
            let differs = one.iter().zip(&other).find(|(one, other)| one != other);
            if let Some((one, other)) = differs {
                bail!("twice the same seed, and two runs:\n{one}\n{other}");
            }
            ensure!(
                one.len() == other.len(),
                "twice the same seed, and {} or {} calls",
                one.len(),
                other.len()
            );
        }
        Ok(())
    }

    /// What happened in a trial, a line each: the same seed gives the same again.
    fn timeline(&self, trial: &Trial) -> Vec<String> {
        let told = self.play(trial.seed(self.seed), async |world, lane| {
            world.trace();
            // Whether it holds is known.
            let _ = trial.run(world, lane).await;
            Ok(world.traced())
        });
        told.unwrap_or_else(|error| vec![format!("{error:#}")])
    }
}

fn is_wanted(choice: &Choice, mode: &str) -> bool {
    choice.modes.is_empty() || choice.modes.iter().any(|wanted| wanted == mode)
}

/// Every single fault at every call.
async fn single_faults<S: Scenario>(lane: &Lane<S>, choice: &Choice) -> Result<Vec<Trial>> {
    let (points, _) = lane.points(choice).await?;
    let mut trials: Vec<Trial> = points.into_iter().map(Trial::Crash).collect();
    let mut alike = Alike { lane, choice, points: BTreeMap::new() };
    for (disturbance, like) in
        Disturbance::ALL.into_iter().flat_map(|one| Disturbance::LIKE.map(|like| (one, like)))
    {
        if is_wanted(choice, &disturbance.name(like)) {
            let points = alike.points(like).await?.into_iter();
            let points = points.filter(|point| disturbance.suits_place(&point.place));
            trials.extend(points.map(|point| Trial::Disturbed(disturbance, point)));
        }
    }
    for kind in Kind::all().filter(|kind| is_wanted(choice, &kind.to_string())) {
        let points = alike.points(kind.like()).await?.into_iter();
        let points =
            points.filter(|point| kind.suits(lane, &point.place) && is_made(lane, kind, &point.place));
        trials.extend(points.map(|point| Trial::Intervened(kind, point)));
    }
    Ok(trials)
}

/// Whether a run in which that happens makes the call: one that fails makes none of those that come after.
fn is_made<S: Scenario>(lane: &Lane<S>, kind: Kind, place: &Place) -> bool {
    let at = |wanted: &dyn Fn(&Call) -> bool| lane.calls.iter().position(wanted);
    let last = lane.last_undoable().and_then(|last| at(&|call| call.named() == last.named()));
    let undoes = lane.scenario.modes().iter().any(|mode| mode.in_undo());
    kind.course != Course::Undone || (undoes && last.is_some() && at(&|call| place.is(call)) <= last)
}

/// How long something took, for people.
#[must_use]
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
