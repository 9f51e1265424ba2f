//! Which API server does what next: one queue of scenarios for all of them, and nobody waits for the slowest.
//!
//! An API server takes the next scenario and tries all of its points. When none is left it helps where most points are
//! left, if that pays: the scenario has to be set up there too.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use futures::future::BoxFuture;
use tokio::sync::watch;

use crate::{
    api::Api,
    crash::{
        Choice, Failure, KUBECONFIGS, Place, Point, Scenario, Tally, Worker,
        lane::{Lane, Writes},
        sample,
        tally::Score,
    },
    gateway::Upstream,
};

/// When so many points of a scenario have failed the rest is not tried: the log is long enough.
const ENOUGH_FAILURES: usize = 20;
/// From so many points on it pays to help: to set a scenario up takes as long as about five points, and two lanes need half
/// of the time for the rest.
const WORTH_HELP: usize = 12;
/// How often a scenario says how far it is.
const SAYS_EVERY: Duration = Duration::from_secs(20);

/// How far a scenario is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nobody has begun.
    Waiting,
    /// It is being set up; nobody knows its points yet.
    Opening,
    /// So many points are left.
    Open(usize),
    /// All points were taken, or it could not be set up.
    Over,
}

/// What an API server does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Sets up this scenario.
    Begin(usize),
    /// Helps with this one.
    Help(usize),
    /// Waits until a scenario is set up: it may need help.
    Wait,
    /// There is nothing left to do.
    End,
}

/// The decision, for the scenarios in the order in which they are begun.
fn next(phases: &[Phase]) -> Next {
    if let Some(at) = phases.iter().position(|phase| *phase == Phase::Waiting) {
        return Next::Begin(at);
    }
    let left = |at: &usize| if let Phase::Open(left) = phases[*at] { left } else { 0 };
    // Of several that have as many left the first.
    match (0..phases.len()).rev().max_by_key(left).filter(|at| left(at) >= WORTH_HELP) {
        Some(at) => Next::Help(at),
        None if phases.contains(&Phase::Opening) => Next::Wait,
        None => Next::End,
    }
}

/// How an API server works on a scenario: sets it up and tries points until none is left.
type Attend = Box<dyn Fn(Worker, Arc<Work>) -> BoxFuture<'static, ()> + Send + Sync>;

/// A scenario and what is left to do of it.
pub(super) struct Work {
    /// Its place in the suite.
    number: usize,
    choice: Choice,
    attend: Attend,
    state: Mutex<Progress>,
    /// Tells those who wait that a scenario is set up.
    changed: watch::Sender<()>,
}

struct Progress {
    phase: Phase,
    waiting: VecDeque<Point>,
    /// What an undisturbed run writes, once one was made.
    writes: Option<Arc<Writes>>,
    tally: Tally,
    began: Instant,
    said: Instant,
}

impl Work {
    /// The points of a scenario that are chosen.
    pub(super) fn new<S: Scenario>(scenario: Arc<S>, number: usize, choice: Choice) -> Arc<Self> {
        let name = scenario.name().to_owned();
        let attend: Attend = Box::new(move |worker, work| Box::pin(work_on(scenario.clone(), worker, work)));
        let progress = Progress {
            phase: Phase::Waiting,
            waiting: VecDeque::new(),
            writes: None,
            tally: Tally { name, ..Tally::default() },
            began: Instant::now(),
            said: Instant::now(),
        };
        Arc::new(Self {
            number,
            choice,
            attend,
            state: Mutex::new(progress),
            changed: watch::Sender::new(()),
        })
    }

    fn state(&self) -> MutexGuard<'_, Progress> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What came of it; an error if it could not be set up anywhere.
    pub(super) fn result(&self) -> Result<Tally> {
        let state = self.state();
        let tally = state.tally.clone();
        ensure!(state.writes.is_some(), "{}", tally.not_opened.join("\n"));
        Ok(tally)
    }

    /// Notes what is to be done, once the scenario is set up.
    fn opened(&self, writes: Writes, calls: usize, points: &[Point], left_out: Vec<String>) {
        let mut chosen = match self.choice.sample {
            Some(at_most) => sample::choose(points, self.number + self.choice.seed, at_most),
            None => points.to_vec(),
        };
        let mut state = self.state();
        state.tally.chosen.clone_from(&chosen);
        state.tally.all = (points.len(), sample::groups(points));
        state.tally.left_out = left_out;
        state.tally.calls = calls;
        state.writes = Some(Arc::new(writes));
        // What takes longest comes first, so that lanes end together.
        chosen.sort_by_key(|point| !point.mode.needs_patience());
        state.phase = Phase::Open(chosen.len());
        state.waiting = chosen.into();
        drop(state);
        self.changed.send_replace(());
    }

    /// Notes that it could not be set up.
    fn not_opened(&self, server: usize, error: &anyhow::Error) {
        let mut state = self.state();
        let why = format!("not set up on API server {server}: {error:#}");
        eprintln!("{}: {why}", state.tally.name);
        state.tally.not_opened.push(why);
        if state.writes.is_none() {
            state.phase = Phase::Over;
        }
        drop(state);
        self.changed.send_replace(());
    }

    fn next_point(&self) -> Option<Point> {
        let mut state = self.state();
        if state.tally.failures.len() >= ENOUGH_FAILURES {
            state.tally.untried += state.waiting.len();
            state.waiting.clear();
        }
        let point = state.waiting.pop_front();
        let left = state.waiting.len();
        state.phase = if point.is_some() { Phase::Open(left) } else { Phase::Over };
        if point.is_some() && state.said.elapsed() > SAYS_EVERY {
            state.said = Instant::now();
            let Tally { name, chosen, failures, .. } = &state.tally;
            eprintln!("{name}: {left} of {} points left, {} failed", chosen.len(), failures.len());
        }
        point
    }

    fn tried(&self, point: &Point, held: Result<Option<String>, Failure>, took: Duration) {
        let mut state = self.state();
        let score = Score { held: usize::from(held.is_ok()), tried: 1, took };
        state.tally.points.entry(point.mode).or_default().add(score);
        state.tally.times.push((took, point.clone()));
        match held {
            Ok(Some(hit)) if matches!(point.place, Place::Watch(_)) && !hit.starts_with("Watch") => {
                state.tally.unwatched.push(point.clone());
            }
            Ok(_) => {}
            Err(failure) => {
                eprintln!("{}: FAILED {failure}", state.tally.name);
                state.tally.failures.push(failure);
            }
        }
        state.tally.took = state.began.elapsed();
    }
}

/// Sets a scenario up on an API server and tries points until none is left.
async fn work_on<S: Scenario>(scenario: Arc<S>, worker: Worker, work: Arc<Work>) {
    let server = worker.server;
    let known = work.state().writes.clone();
    let opened = async {
        let lane = Lane::open(scenario, worker, known.as_deref()).await?;
        if known.is_none() {
            let (points, left_out) = if work.choice.show {
                println!("{}", lane.show().await?);
                (Vec::new(), Vec::new())
            } else {
                lane.points(&work.choice).await?
            };
            work.opened(lane.writes(), lane.calls.len(), &points, left_out);
        }
        anyhow::Ok(lane)
    };
    match opened.await {
        Err(error) => work.not_opened(server, &error),
        Ok(lane) => {
            while let Some(point) = work.next_point() {
                let began = Instant::now();
                let held = lane.try_point(&point).await.map(|held| held.call);
                work.tried(&point, held, began.elapsed());
            }
        }
    }
}

/// Works through scenarios on all API servers.
pub(super) async fn work_through(works: &[Arc<Work>], servers: &[Upstream]) -> Result<()> {
    ensure!(!servers.is_empty(), "no API server: set {KUBECONFIGS}");
    let mut serving = tokio::task::JoinSet::new();
    for (server, upstream) in servers.iter().enumerate() {
        let worker = Worker { server, api: Api::new(upstream.client()), runner: Arc::new(upstream.clone()) };
        let works = works.to_vec();
        serving.spawn(async move {
            while let Some(work) = take(&works).await {
                (work.attend)(worker.clone(), work.clone()).await;
            }
        });
    }
    while let Some(served) = serving.join_next().await {
        served.context("an API server's lane")?;
    }
    Ok(())
}

/// The next scenario for an API server; none when there is nothing left to do.
async fn take(works: &[Arc<Work>]) -> Option<Arc<Work>> {
    let mut news: Vec<watch::Receiver<()>> = works.iter().map(|work| work.changed.subscribe()).collect();
    loop {
        match decide(works) {
            Next::Begin(at) | Next::Help(at) => return Some(works[at].clone()),
            Next::End => return None,
            Next::Wait => {
                let any = news.iter_mut().map(|one| Box::pin(one.changed()));
                let _ = futures::future::select_all(any).await;
            }
        }
    }
}

fn decide(works: &[Arc<Work>]) -> Next {
    // All at once, so that no two begin the same.
    let mut states: Vec<MutexGuard<'_, Progress>> = works.iter().map(|work| work.state()).collect();
    let phases: Vec<Phase> = states.iter().map(|state| state.phase).collect();
    let next = next(&phases);
    if let Next::Begin(at) = next {
        states[at].phase = Phase::Opening;
        states[at].began = Instant::now();
    }
    next
}

/// Tries every chosen point of a scenario.
pub async fn drive<S: Scenario>(scenario: Arc<S>, servers: &[Upstream], choice: &Choice) -> Result<Tally> {
    let work = Work::new(scenario, 0, choice.clone());
    work_through(std::slice::from_ref(&work), servers).await?;
    work.result()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_that_nobody_has_begun_comes_before_help() {
        use Phase::{Open, Opening, Over, Waiting};
        assert_eq!(next(&[Over, Open(500), Waiting, Waiting]), Next::Begin(2));
        assert_eq!(next(&[Open(20), Open(500), Opening]), Next::Help(1));
        assert_eq!(next(&[Open(20), Over, Open(20)]), Next::Help(0));
    }

    #[test]
    fn help_that_does_not_pay_is_not_given_and_a_scenario_that_may_need_it_is_waited_for() {
        use Phase::{Open, Opening, Over};
        assert_eq!(next(&[Open(WORTH_HELP - 1), Over]), Next::End);
        assert_eq!(next(&[Open(WORTH_HELP), Over]), Next::Help(0));
        assert_eq!(next(&[Open(3), Opening]), Next::Wait);
        assert_eq!(next(&[Over, Over]), Next::End);
        assert_eq!(next(&[]), Next::End);
    }
}
