//! Tries the points of a scenario, each in a world of its own, on all cores.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use harness::{
    Api, Scenario, Worker,
    crash::{Choice, Lane, Point},
};
use tokio::task::LocalSet;

use crate::{
    disturb::{Disturbance, disturbed, known},
    process::keep_logs,
    runner::Simulated,
    world::World,
};

/// Runs a story in a world of its own: one thread, and time that passes only when nobody has anything to do.
pub fn in_world<T>(seed: u64, story: impl AsyncFnOnce(&World, Worker) -> Result<T>) -> Result<T> {
    keep_logs();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    LocalSet::new().block_on(&runtime, async {
        let world = World::new(seed);
        let runner = Arc::new(Simulated::new(&world));
        let worker = Worker { server: 0, api: Api::new(world.client("around")), runner };
        let told = story(&world, worker).await;
        // What the server only guesses at proves nothing.
        let unknown = world.unknown();
        ensure!(unknown.is_empty(), "the simulated API server does not know:\n{}", unknown.join("\n"));
        let violations = world.violations();
        ensure!(violations.is_empty(), "what must never happen:\n{}", violations.join("\n"));
        told
    })
}

/// Something that goes wrong at a call.
#[derive(Clone, Debug)]
pub enum Trial {
    /// In a way that the crash harness knows too.
    Crash(Point),
    /// In a way that only a simulation can steer.
    Disturbed(Disturbance, Point),
}

impl fmt::Display for Trial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash(point) => write!(out, "{point}"),
            Self::Disturbed(disturbance, point) => write!(out, "{disturbance} at {}", point.place),
        }
    }
}

impl Trial {
    /// The way in which it goes wrong.
    #[must_use]
    pub fn mode(&self) -> String {
        match self {
            Self::Crash(point) => point.mode.to_string(),
            Self::Disturbed(disturbance, _) => disturbance.to_string(),
        }
    }

    /// Tries it in this world; an error says what does not hold.
    async fn run<S: Scenario>(&self, world: &World, lane: &Lane<S>) -> Result<()> {
        match self {
            Self::Crash(point) => match lane.try_point(point).await {
                Ok(_) => Ok(()),
                Err(failure) => {
                    bail!("{}{}", failure.call.map(|call| call + "\n").unwrap_or_default(), failure.why)
                }
            },
            Self::Disturbed(disturbance, point) => disturbed(world, lane, *disturbance, point).await,
        }
    }

    /// What came of it, where some are known not to hold yet.
    fn judged(&self, tried: Result<()>) -> Result<()> {
        let known = match self {
            Self::Crash(_) => None,
            Self::Disturbed(disturbance, point) => known(*disturbance, &point.place),
        };
        match (known, tried) {
            (None, tried) => tried,
            (Some(_), Err(_)) => Ok(()),
            (Some(why), Ok(())) => bail!("it holds now, and is still listed as known: {why}"),
        }
    }
}

/// What came of the trials of a scenario.
pub struct Explored {
    /// The scenario's name.
    pub name: String,
    /// How many calls an undisturbed run makes.
    pub calls: usize,
    /// All that was tried.
    pub trials: Vec<Trial>,
    /// What did not hold, and why.
    pub failures: Vec<(Trial, String)>,
    /// What happened at the first of them, if that was asked for.
    pub timeline: Vec<String>,
}

/// Tries all points of a scenario that are chosen: with no mode named, all that the crash harness knows. `told` asks for the
/// timeline of the first failure.
pub fn explore<S: Scenario>(scenario: S, choice: &Choice, seed: u64, told: bool) -> Result<Explored> {
    let scenario = Arc::new(scenario);
    let name = scenario.name().to_owned();
    let (lane, trials) = in_world(seed, async |_, worker| {
        let lane = Lane::open(scenario, worker, None).await?;
        let (points, _) = lane.points(choice).await?;
        let mut trials: Vec<Trial> = points.into_iter().map(Trial::Crash).collect();
        for disturbance in Disturbance::ALL.into_iter().filter(|one| choice.modes.contains(&one.to_string()))
        {
            let like = Choice { modes: vec![disturbance.like().to_string()], ..choice.clone() };
            let (points, _) = lane.points(&like).await?;
            trials.extend(points.into_iter().map(|point| Trial::Disturbed(disturbance, point)));
        }
        Ok((lane, trials))
    })?;
    repeats(&lane, seed)?;
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let try_next = || {
        while let Some(trial) = trials.get(next.fetch_add(1, Ordering::Relaxed)) {
            let tried =
                in_world(seed, async |world, worker| trial.run(world, &lane.beside(worker).await?).await);
            if let Err(error) = trial.judged(tried) {
                let failure = (trial.clone(), format!("{error:#}"));
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(try_next);
        }
    });
    let failures: Vec<(Trial, String)> = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let timeline = match failures.first() {
        Some((trial, _)) if told => timeline(&lane, trial, seed),
        _ => Vec::new(),
    };
    Ok(Explored { name, calls: lane.calls.len(), trials, failures, timeline })
}

/// The same seed gives the same calls and answers, letter by letter: else no failure could be told again.
fn repeats<S: Scenario>(lane: &Lane<S>, seed: u64) -> Result<()> {
    let told = || {
        in_world(seed, async |world, worker| {
            let lane = lane.beside(worker).await?;
            lane.reset().await?;
            world.trace();
            let command = lane.scenario.command(&lane.worker)?;
            lane.worker.runner.run(&command, Vec::new()).await?.expect_exit(0)?;
            Ok(world.traced())
        })
    };
    let (one, other) = (told()?, told()?);
    let differs = one.iter().zip(&other).find(|(one, other)| one != other);
    if let Some((one, other)) = differs {
        bail!("twice the same seed, and two runs:\n{one}\n{other}");
    }
    ensure!(one.len() == other.len(), "twice the same seed, and {} or {} calls", one.len(), other.len());
    Ok(())
}

/// What happened in a trial, a line each: the same seed gives the same again.
fn timeline<S: Scenario>(lane: &Lane<S>, trial: &Trial, seed: u64) -> Vec<String> {
    let told = in_world(seed, async |world, worker| {
        let lane = lane.beside(worker).await?;
        world.trace();
        // Whether it holds is known.
        let _ = trial.run(world, &lane).await;
        Ok(world.traced())
    });
    told.unwrap_or_else(|error| vec![format!("{error:#}")])
}

/// How long something took, for people.
#[must_use]
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
