//! Ways in which things go wrong that only a simulation can steer, and how a run that met one is judged.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Result, anyhow, bail, ensure};
use harness::{
    Action, At, Call, Exit, Fault, Outcome, Scenario, StepCommand,
    crash::{Lane, Mode, Place, Point},
};

use crate::{process::Process, runner::Simulated, world::World};

/// Longer than a step waits for an answer.
const LATE: Duration = Duration::from_secs(20);
/// Longer than a Lease lasts, and long enough for another run to do everything.
const ASLEEP: Duration = Duration::from_secs(120);
/// How far a clock jumps.
const JUMP: i64 = 3_600_000;
/// How far the watch cache of an API server may be behind.
const LAG: Duration = Duration::from_secs(5);
/// How many runs it may take to put things right.
const RERUNS: usize = 4;

/// A way in which things go wrong at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disturbance {
    /// The connection is cut before the call is sent.
    Cut,
    /// The call lands, and its answer never comes.
    Silence,
    /// The call never lands, and no answer ever comes.
    Swallowed,
    /// The call lands when the step has long given it up.
    Late,
    /// Killed; the call lands after the next run has ended.
    LandsAfterNextRun,
    /// The machine sleeps while another run does everything; then it wakes up.
    Asleep,
    /// The clock of the machine jumps back.
    ClockBack,
    /// The clock of the machine jumps ahead.
    ClockAhead,
    /// The API server restarts: watches end, and it has forgotten what happened before.
    Restart,
    /// From this call on, what is watched comes late.
    Lag,
}

impl Disturbance {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Cut,
        Self::Silence,
        Self::Swallowed,
        Self::Late,
        Self::LandsAfterNextRun,
        Self::Asleep,
        Self::ClockBack,
        Self::ClockAhead,
        Self::Restart,
        Self::Lag,
    ];

    /// The mode of the crash harness that strikes at the same calls.
    #[must_use]
    pub fn like(self) -> Mode {
        match self {
            Self::Late | Self::LandsAfterNextRun => Mode::LandLate(harness::Landing::BeforeRelease),
            _ => Mode::LoseAnswer,
        }
    }

    /// What makes it happen at a call of this process.
    fn fault(self, world: &World, process: &Arc<Process>, at: At) -> Fault {
        let (world, process) = (world.clone(), process.clone());
        let mut once = false;
        let mut strikes = move |call: &Call| !once && at.is(call) && !std::mem::replace(&mut once, true);
        Fault::hook(move |call| {
            if !strikes(call) {
                return Action::Forward;
            }
            match self {
                Self::Cut => Action::Cut,
                Self::Silence => Action::Silence { lands: true },
                Self::Swallowed => Action::Silence { lands: false },
                Self::Late => Action::Delay(LATE),
                Self::LandsAfterNextRun => Action::Hold,
                Self::Asleep => {
                    process.fall_asleep(ASLEEP);
                    Action::Forward
                }
                Self::ClockBack => {
                    world.node.set_skew(-JUMP);
                    Action::Forward
                }
                Self::ClockAhead => {
                    world.node.set_skew(JUMP);
                    Action::Forward
                }
                Self::Restart => {
                    world.restart();
                    Action::Cut
                }
                Self::Lag => {
                    world.set_lag(LAG);
                    Action::Forward
                }
            }
        })
    }
}

/// What is known not to hold yet, and why. Such a trial must fail: once it holds, it does not belong here any more.
#[must_use]
pub fn known(disturbance: Disturbance, place: &Place) -> Option<&'static str> {
    let begins_watch = match place {
        Place::Watch(_) => true,
        Place::Call(name) => name.what.contains("(begins a watch)"),
        Place::Renewal { .. } | Place::FirstMoves => false,
    };
    match disturbance {
        Disturbance::Silence | Disturbance::Swallowed if begins_watch => {
            Some("a list that begins a watch, and the start of a watch, are never given up")
        }
        _ => None,
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cut => "cut",
            Self::Silence => "silence",
            Self::Swallowed => "swallowed",
            Self::Late => "late",
            Self::LandsAfterNextRun => "lands-after-next-run",
            Self::Asleep => "asleep",
            Self::ClockBack => "clock-back",
            Self::ClockAhead => "clock-ahead",
            Self::Restart => "restart",
            Self::Lag => "lag",
        })
    }
}

/// The same command with more time: whoever waits for a Lease to run out needs it.
fn with_time(command: &StepCommand) -> StepCommand {
    let mut command = command.clone();
    let flag = command.args.iter().position(|arg| arg == "--deadline");
    if let Some(value) = flag.and_then(|at| command.args.get_mut(at + 1)) {
        "180".clone_into(value);
    }
    command.bound(Duration::from_secs(600))
}

/// Tries a disturbance at a place: a disturbed run, then others until the step is done.
pub async fn disturbed<S: Scenario>(
    world: &World,
    lane: &Lane<S>,
    disturbance: Disturbance,
    point: &Point,
) -> Result<()> {
    lane.reset().await?;
    let start = lane.same_as(&lane.start, "from which the scenario starts").await?;
    let command = with_time(&lane.scenario.command(&lane.worker)?);
    let simulated = Simulated::new(world);
    let (at, assured) = point.place.arm();
    let faults = |process: &Arc<Process>| {
        let mut faults = vec![disturbance.fault(world, process, at)];
        faults.extend(assured);
        faults
    };
    let place = point.place.clone();
    let mut run = if disturbance == Disturbance::Asleep {
        asleep(&simulated, &command, faults).await?
    } else {
        simulated.run_with(&command, faults).await?
    };
    let log = |run: &Outcome| format!("the disturbed run: {}; its log ends:\n{}", run.exit, run.tail(30));
    let judged = judge(lane, disturbance, &place, &run).await;
    judged.map_err(|error| anyhow!("{error:#}\n{}", log(&run)))?;
    let (mut held, mut calls) = (run.held.take(), run.calls.clone());
    for number in 1..=RERUNS {
        let rerun = simulated.run_with(&command, |_| Vec::new()).await?;
        calls.extend(rerun.calls.iter().cloned());
        let log = |error: anyhow::Error| {
            anyhow!(
                "{error:#}\n{}\nrerun {number}: {}; its log ends:\n{}",
                log(&run),
                rerun.exit,
                rerun.tail(30)
            )
        };
        match rerun.exit {
            Exit::Code(0) => {
                if let Some(held) = held.take() {
                    let landed = held.land().await;
                    let answer = landed.answer;
                    return lane.done("after the rerun, and what landed after it").await.map_err(|error| {
                        log(error.context(format!("{} landed and got {answer:?}", landed.call)))
                    });
                }
                return lane.done("after the rerun").await.map_err(log);
            }
            Exit::Code(4) => lane.restored(&start, &calls).await.map_err(log)?,
            exit => return Err(log(anyhow!("the rerun should finish, but ended with {exit}"))),
        }
    }
    bail!("not finished after {RERUNS} reruns\n{}", log(&run))
}

/// Whether the disturbed run ended as it should.
async fn judge<S: Scenario>(
    lane: &Lane<S>,
    disturbance: Disturbance,
    place: &Place,
    run: &Outcome,
) -> Result<()> {
    match disturbance {
        Disturbance::LandsAfterNextRun => {
            ensure!(run.exit == Exit::Signal(9), "it was killed and ended with {}", run.exit);
            Ok(())
        }
        // The other run has done it all; what it finds depends on where it fell asleep.
        Disturbance::Asleep => {
            ensure!(run.exit != Exit::TimedOut, "it did not end after it woke up");
            Ok(())
        }
        _ => {
            ensure!(
                run.calls.iter().any(|call| place.is(call)),
                "the call was not made, but these:\n{}",
                run.calls.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
            );
            ensure!(run.exit == Exit::Code(0), "it should try again, but ended with {}", run.exit);
            lane.done("after trying again").await
        }
    }
}

/// A run falls asleep; another one, on another machine, does its work meanwhile.
async fn asleep(
    simulated: &Simulated,
    command: &StepCommand,
    faults: impl FnOnce(&Arc<Process>) -> Vec<Fault>,
) -> Result<Outcome> {
    let elsewhere = Simulated { node: simulated.world.machine("node-b"), ..simulated.clone() };
    let sleeper = simulated.run_with(command, faults);
    let other = async {
        simulated.world.until_asleep().await;
        for _ in 0..RERUNS {
            let run = elsewhere.run_with(command, |_| Vec::new()).await?;
            if run.exit == Exit::Code(0) {
                return Ok(());
            }
        }
        bail!("the run on another machine did not finish")
    };
    let (sleeper, other) = futures::join!(sleeper, other);
    other?;
    sleeper
}
