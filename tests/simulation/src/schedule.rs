//! Schedules: two to four things that go wrong in one story, drawn from a seed, with calls one after the other or thirty-two
//! at once. One that fails is shortened to what it needs to fail.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use harness::{
    At, Call, Exit, Fault, Outcome, Scenario, Scope, State, StepCommand, call::writes_that_matter,
    crash::Lane, fault::Until, gateway::Held,
};

use crate::{
    disturb::{Disturbance, beside_a_sleeper, with_time},
    intervene::{Intervention, Written, Wrote, wrote},
    process::Process,
    respect::{End, respected},
    runner::Simulated,
    world::{AROUND, World},
};

/// Faults strike in the first runs of a story.
const DISTURBED_RUNS: usize = 3;
/// In so many runs more it must come to its end.
const RUNS: usize = 12;
/// What others do in a story. What is missing here is known not to hold yet: see `known.txt`.
const OTHERS: [Intervention; 4] =
    [Intervention::Edit, Intervention::Scale, Intervention::ChangeTwice, Intervention::ComeAndGo];
/// How long an API server is gone.
const OUTAGE: Duration = Duration::from_secs(3);

/// What can go wrong at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mishap {
    KillBefore,
    KillAfter,
    LoseAnswer,
    Terminate,
    Outage,
    /// It fails for good, with 500 until the deadline.
    Fail(u16),
    Disturbed(Disturbance),
    /// Somebody else writes to the object of the first move from this call on.
    Intervened(Intervention),
}

impl Mishap {
    fn draw(random: &mut fastrand::Rng, may_intervene: bool) -> Self {
        match random.usize(..if may_intervene { 10 } else { 8 }) {
            0 => Self::KillBefore,
            1 => Self::KillAfter,
            2 => Self::LoseAnswer,
            3 => Self::Terminate,
            4 => Self::Outage,
            5 => Self::Fail(*random.choice(&[403, 422, 500]).unwrap_or(&403)),
            6 | 7 => Self::Disturbed(*random.choice(&Disturbance::DRAWN).unwrap_or(&Disturbance::Cut)),
            _ => Self::Intervened(*random.choice(&OTHERS).unwrap_or(&Intervention::Edit)),
        }
    }

    fn fault<S: Scenario>(
        self,
        (world, lane): (&World, &Lane<S>),
        process: &Arc<Process>,
        at: At,
        written: &Written,
    ) -> Fault {
        match self {
            Self::KillBefore => Fault::KillBefore(at),
            Self::KillAfter => Fault::KillAfter(at),
            Self::LoseAnswer => Fault::LoseAnswer(at),
            Self::Terminate => Fault::Terminate(at),
            Self::Outage => Fault::Refuse { at, lasting: OUTAGE },
            Self::Fail(status) => Fault::FailForGood {
                at,
                status,
                scope: if status == 422 { Scope::Body } else { Scope::Target },
                until: (status >= 500).then_some(Until::Deadline),
            },
            Self::Disturbed(disturbance) => disturbance.fault(world, process, at),
            Self::Intervened(intervention) => intervention.fault(world, lane, at, written),
        }
    }
}

impl fmt::Display for Mishap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillBefore => out.write_str("kill-before"),
            Self::KillAfter => out.write_str("kill-after"),
            Self::LoseAnswer => out.write_str("lose-answer"),
            Self::Terminate => out.write_str("terminate"),
            Self::Outage => out.write_str("outage"),
            Self::Fail(status) => write!(out, "fail-{status}"),
            Self::Disturbed(disturbance) => write!(out, "{disturbance}"),
            Self::Intervened(intervention) => write!(out, "{intervention}"),
        }
    }
}

/// A mishap at a call of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Planned {
    mishap: Mishap,
    /// Which of the runs, from 0.
    run: usize,
    /// From which of its calls on, from 1: it strikes at the first call that suits it.
    call: usize,
}

impl fmt::Display for Planned {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} from call {} of run {} on", self.mishap, self.call, self.run + 1)
    }
}

impl Planned {
    fn fault<S: Scenario>(
        &self,
        (world, lane): (&World, &Lane<S>),
        process: &Arc<Process>,
        written: &Written,
    ) -> Fault {
        let (mishap, from) = (self.mishap, self.call);
        let (seen, struck, of) = (AtomicUsize::new(0), AtomicBool::new(false), world.clone());
        let at = At::first(move |call: &Call| {
            let suits = match mishap {
                Mishap::Intervened(intervention) => intervention.suits(&call.what()),
                Mishap::Disturbed(disturbance) => disturbance.suits(call),
                _ => true,
            };
            let strikes = seen.fetch_add(1, Ordering::Relaxed) + 1 >= from && suits;
            if strikes && !struck.swap(true, Ordering::Relaxed) {
                of.strike();
            }
            strikes
        });
        mishap.fault((world, lane), process, at, written)
    }
}

/// What goes wrong in a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// What it was drawn from, and what everything else in its world is drawn from.
    pub seed: u64,
    /// How many calls a step may make at once.
    concurrency: usize,
    planned: Vec<Planned>,
}

impl fmt::Display for Schedule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "seed {}", self.seed)?;
        if self.concurrency > 1 {
            write!(out, ", {} calls at once", self.concurrency)?;
        }
        let planned: Vec<String> = self.planned.iter().map(ToString::to_string).collect();
        write!(out, ": {}", if planned.is_empty() { "nothing".to_owned() } else { planned.join(", ") })
    }
}

impl Schedule {
    /// Draws one for a step whose undisturbed run makes so many calls.
    #[must_use]
    pub fn draw(seed: u64, calls: usize) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let concurrency = if random.bool() { 32 } else { 1 };
        let mut planned: Vec<Planned> = Vec::new();
        for _ in 0..random.usize(2..=4) {
            // Of two who write to an object the second may overwrite the first: that is not for us to judge.
            let may_intervene = !planned.iter().any(|one| matches!(one.mishap, Mishap::Intervened(_)));
            let mishap = Mishap::draw(&mut random, may_intervene);
            // Most stories go wrong from the beginning.
            let run = random.usize(..DISTURBED_RUNS).min(random.usize(..DISTURBED_RUNS));
            planned.push(Planned { mishap, run, call: random.usize(1..=calls.max(1)) });
        }
        Self { seed, concurrency, planned }
    }

    /// How many faults it has.
    #[must_use]
    pub fn faults(&self) -> usize {
        self.planned.len()
    }

    /// The same with something less, simplest first.
    fn shorter(&self) -> Vec<Self> {
        let without = |at: usize| {
            let mut planned = self.planned.clone();
            planned.remove(at);
            Self { planned, ..self.clone() }
        };
        let mut shorter: Vec<Self> = (0..self.planned.len()).map(without).collect();
        if self.concurrency > 1 {
            shorter.push(Self { concurrency: 1, ..self.clone() });
        }
        shorter
    }

    /// The shortest schedule that fails as this one does: whatever is left, it needs.
    #[must_use]
    pub fn shrink(&self, mut fails: impl FnMut(&Self) -> bool) -> Self {
        let mut shortest = self.clone();
        while let Some(shorter) = shortest.shorter().into_iter().find(|shorter| fails(shorter)) {
            shortest = shorter;
        }
        shortest
    }

    /// Whether nobody else writes anything that stays.
    fn is_alone(&self) -> bool {
        self.planned.iter().all(|one| match one.mishap {
            Mishap::Intervened(intervention) => intervention.leaves_nothing(),
            _ => true,
        })
    }

    /// Plays it, and judges what came of it.
    pub async fn play<S: Scenario>(&self, world: &World, lane: &Lane<S>) -> Result<()> {
        lane.reset().await?;
        let start = lane.same_as(&lane.start, "from which the scenario starts").await?;
        let mut story = Story {
            world,
            lane,
            simulated: Simulated::new(world),
            command: at_once(&with_time(&lane.scenario.command(&lane.worker)?), self.concurrency),
            schedule: self,
            start,
            calls: Vec::new(),
            written: Written::default(),
            told: Vec::new(),
        };
        let played = story.play().await;
        played.map_err(|error| anyhow!("{error:#}\n{}", story.told.join("\n")))
    }
}

/// The same command with so many calls at once.
#[must_use]
pub fn at_once(command: &StepCommand, concurrency: usize) -> StepCommand {
    let mut command = command.clone();
    let flag = command.args.iter().position(|arg| arg == "--concurrency");
    if let Some(value) = flag.and_then(|at| command.args.get_mut(at + 1)) {
        *value = concurrency.to_string();
    }
    command.env("BELAY_CONCURRENCY", concurrency.to_string())
}

/// A schedule that is played.
struct Story<'a, S> {
    world: &'a World,
    lane: &'a Lane<S>,
    simulated: Simulated,
    command: StepCommand,
    schedule: &'a Schedule,
    /// What was there when there was nothing to undo, and what all runs have called since.
    start: State,
    calls: Vec<Call>,
    written: Written,
    /// How the runs ended, and their logs, for people.
    told: Vec<String>,
}

impl<S: Scenario> Story<'_, S> {
    async fn play(&mut self) -> Result<()> {
        let (mut held, mut logs): (Option<Held>, String) = (None, String::new());
        for number in 0..RUNS {
            let mut run = self.run(number).await?;
            // What a dead run has sent may land whenever it likes, here when the next one has ended.
            if let Some(held) = std::mem::replace(&mut held, run.held.take()) {
                let landed = held.land().await;
                self.told.push(format!("{} landed then and got {:?}", landed.call, landed.answer));
            }
            let exit = run.exit;
            logs.push_str(&run.stderr);
            if number < DISTURBED_RUNS && self.schedule.planned.iter().any(|one| one.run >= number) {
                // Whatever it comes to, later runs put it right; but it comes to an end, and does not say that it is done when
                // it is not.
                ensure!(exit != Exit::TimedOut, "run {} did not end", number + 1);
                if held.is_none() && self.wrote().is_none() {
                    match exit {
                        Exit::Code(0) => self.lane.ended(&format!("after run {}", number + 1)).await?,
                        Exit::Code(4) => self.is_restored().await?,
                        _ => {}
                    }
                }
                if self.lane.bookkeeping().await?.open_journals().next().is_none() {
                    // Nothing is left to undo: of what comes, only what later runs do.
                    self.start = self.lane.read().await?;
                    self.calls.clear();
                }
                continue;
            }
            match exit {
                Exit::Code(0) => return self.done(&logs).await,
                // What it found had to be undone: the next one is done.
                Exit::Code(4) if self.wrote().is_none() => self.is_restored().await?,
                // Or it was past the point of no return.
                Exit::Code(4 | 6) => {}
                // Somebody must look. Here that is an operator who has cured the cause.
                Exit::Code(5 | 3) => {
                    if self.restored().await? {
                        continue;
                    }
                    return self.left_to_people(&logs).await;
                }
                exit => bail!("run {} should finish, but ended with {exit}", number + 1),
            }
        }
        bail!("not finished after {RUNS} runs")
    }

    async fn run(&mut self, number: usize) -> Result<Outcome> {
        let planned: Vec<Planned> =
            self.schedule.planned.iter().filter(|one| one.run == number).copied().collect();
        let sleeps = planned.iter().find_map(|one| match one.mishap {
            Mishap::Disturbed(disturbance) if disturbance.sleeps() => Some(disturbance),
            _ => None,
        });
        let (place, written) = ((self.world, self.lane), self.written.clone());
        let faults =
            |process: &Arc<Process>| planned.iter().map(|one| one.fault(place, process, &written)).collect();
        let run = if let Some(sleeps) = sleeps {
            let runs = beside_a_sleeper(&self.simulated, &self.command, sleeps.pace(), faults).await;
            runs.map(|(sleeper, _)| sleeper)
        } else {
            self.simulated.run_with(&self.command, faults).await
        };
        let run = run.with_context(|| format!("run {}", number + 1))?;
        // The controllers are late as long as the run lasts that they are late for.
        if planned.iter().any(|one| one.mishap == Mishap::Disturbed(Disturbance::Lag)) {
            self.world.move_behind(AROUND, Duration::ZERO);
        }
        self.told.push(format!("run {}: {}; its log ends:\n{}", number + 1, run.exit, run.tail(25)));
        self.calls.extend(run.calls.iter().cloned());
        Ok(run)
    }

    /// A run says that everything is as it was.
    async fn is_restored(&self) -> Result<()> {
        self.lane.restored(&self.start, &self.calls).await
    }

    /// An operator restores what a run has left; false where something is left to people even so.
    async fn restored(&mut self) -> Result<bool> {
        let step = self.command.args.first().context("a step's name")?;
        if step == "restore" {
            return Ok(false);
        }
        let home = self.lane.scenario.home(&self.lane.worker);
        let mut command = self.command.clone();
        command.args =
            ["restore", "--step", step, "--home", &home, "--deadline", "180"].map(str::to_owned).to_vec();
        let run = self.simulated.run_with(&command, |_| Vec::new()).await?;
        self.told.push(format!("restore: {}; its log ends:\n{}", run.exit, run.tail(25)));
        self.calls.extend(run.calls.iter().cloned());
        let restored = run.exit == Exit::Code(0);
        if restored && self.wrote().is_none() {
            self.is_restored().await?;
        }
        Ok(restored)
    }

    /// What somebody else has written, and what is there still.
    fn wrote(&self) -> Option<Wrote> {
        wrote(&self.written).filter(|_| !self.schedule.is_alone())
    }

    /// A run says that it is done.
    async fn done(&mut self, logs: &str) -> Result<()> {
        let wrote = self.wrote();
        match &wrote {
            None => self.lane.done("in the end").await?,
            Some(wrote) => respected(self.world, self.lane, wrote, End::Done, logs).await?,
        }
        let second = self.simulated.run_with(&self.command, |_| Vec::new()).await?;
        let writes: Vec<String> = writes_that_matter(&second.calls).iter().map(ToString::to_string).collect();
        ensure!(
            second.exit == Exit::Code(0) && writes.is_empty(),
            "a run after that should find nothing to do: {}\n{}\n{}",
            second.exit,
            writes.join("\n"),
            second.tail(30)
        );
        Ok(())
    }

    /// A run says that a person must look, also when an operator has tried: only what a person did may be the reason.
    async fn left_to_people(&mut self, logs: &str) -> Result<()> {
        let Some(wrote) = self.wrote() else {
            bail!("nobody else wrote anything, but it is left to people");
        };
        respected(self.world, self.lane, &wrote, End::LeftToPeople, logs).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_schedule_and_others_give_others() {
        assert_eq!(Schedule::draw(7, 60), Schedule::draw(7, 60));
        let drawn: std::collections::BTreeSet<String> =
            (0..100).map(|seed| Schedule::draw(seed, 60).to_string()).collect();
        assert_eq!(drawn.len(), 100);
    }

    #[test]
    fn of_a_schedule_that_fails_only_what_it_needs_is_left() {
        let schedule = (0..10_000).map(|seed| Schedule::draw(seed, 60)).find(|one| {
            one.planned.len() == 4
                && one.concurrency > 1
                && one.planned.iter().filter(|one| one.mishap == Mishap::KillAfter).count() == 1
        });
        let kills = |schedule: &Schedule| schedule.planned.iter().any(|one| one.mishap == Mishap::KillAfter);
        let shortest = schedule.expect("there is one").shrink(kills);
        assert_eq!(shortest.planned.len(), 1);
        assert_eq!(shortest.concurrency, 1);
    }
}
