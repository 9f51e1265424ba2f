//! Tries the points of a scenario, each in a world of its own, on all cores.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, ensure};
use harness::{
    Api, Scenario, Worker,
    crash::{Choice, Failure, Lane, Point},
};
use tokio::task::LocalSet;

use crate::{process::keep_logs, runner::Simulated, world::World};

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

/// What came of the points of a scenario.
pub struct Explored {
    /// The scenario's name.
    pub name: String,
    /// How many calls an undisturbed run makes.
    pub calls: usize,
    /// All points that were tried.
    pub points: Vec<Point>,
    /// Those that did not hold.
    pub failures: Vec<Failure>,
    /// What happened at the first of them, if that was asked for.
    pub timeline: Vec<String>,
}

/// Tries all points of a scenario that are chosen. `told` asks for the timeline of the first failure.
pub fn explore<S: Scenario>(scenario: S, choice: &Choice, seed: u64, told: bool) -> Result<Explored> {
    let scenario = Arc::new(scenario);
    let name = scenario.name().to_owned();
    let (lane, points) = in_world(seed, async |_, worker| {
        let lane = Lane::open(scenario, worker, None).await?;
        let (points, _) = lane.points(choice).await?;
        Ok((lane, points))
    })?;
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let tried = || {
        while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(failure) = try_point(&lane, point, seed) {
                failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, Into::into) {
            scope.spawn(tried);
        }
    });
    let failures: Vec<Failure> = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
    let timeline = match failures.first() {
        Some(failure) if told => timeline(&lane, &failure.point, seed),
        _ => Vec::new(),
    };
    Ok(Explored { timeline, name, calls: lane.calls.len(), points, failures })
}

/// What happened at a point, a line each: the same seed gives the same again.
pub fn timeline<S: Scenario>(lane: &Lane<S>, point: &Point, seed: u64) -> Vec<String> {
    let told = in_world(seed, async |world, worker| {
        let lane = lane.beside(worker).await?;
        world.trace();
        let _ = lane.try_point(point).await;
        Ok(world.traced())
    });
    told.unwrap_or_else(|error| vec![format!("{error:#}")])
}

fn try_point<S: Scenario>(lane: &Lane<S>, point: &Point, seed: u64) -> Result<(), Failure> {
    let tried = in_world(seed, async |_, worker| Ok(lane.beside(worker).await?.try_point(point).await));
    match tried {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(failure)) => Err(failure),
        Err(error) => Err(Failure { point: point.clone(), call: None, why: format!("{error:#}") }),
    }
}

/// How long something took, for people.
#[must_use]
pub fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
