//! Ways in which things go wrong that only a simulation can steer, and how a run that met one is judged.

use std::{fmt, sync::Arc, time::Duration};

use anyhow::{Result, anyhow, bail, ensure};
use harness::{
    Action, At, Call, Class, Exit, Fault, Landing, Outcome, Scenario, State, StepCommand,
    call::writes_that_matter,
    crash::{Lane, Mode, Place, Point},
};

use tokio::sync::watch;

use crate::{
    process::Process,
    runner::Simulated,
    world::{AROUND, World},
};

/// Longer than a step waits for an answer.
const LATE: Duration = Duration::from_secs(20);
/// Longer than a Lease lasts, and long enough for another run to do everything.
const ASLEEP: Duration = Duration::from_secs(120);
/// Shorter than a Lease lasts, however long ago it was renewed.
const NAP: Duration = Duration::from_secs(8);
/// Longer than a Lease lasts, and not as long as another run is at work that takes its time.
const DOZE: Duration = Duration::from_secs(40);
/// How long each call of that other run takes.
const PACE: Duration = Duration::from_secs(1);
/// How far a clock jumps.
const JUMP: i64 = 3_600_000;
/// How far the watch cache of an API server may be behind.
const LAG: Duration = Duration::from_secs(5);
/// How far that of the controllers is behind meanwhile: a step that believes what it is shown late goes on before they have
/// done their work.
const LAG_OF_OTHERS: Duration = Duration::from_secs(7);
/// So many runs that die are too many.
const DEATHS: usize = 3;
/// How many runs may be interrupted.
const INTERRUPTIONS: usize = 3;
/// How many runs it may take to put things right: after the interruptions an undo comes to its end, then the step is done.
const RERUNS: usize = INTERRUPTIONS + 2;

/// A way in which things go wrong at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disturbance {
    /// The connection is cut before the call is sent.
    Cut,
    /// 403, once: Helm re-creates RBAC under a running pod.
    Forbidden,
    /// Killed before the call is sent, and so are the runs after it, until nobody may resume any more.
    KilledAgain,
    /// The call lands, and its answer never comes.
    Silence,
    /// The call never lands, and no answer ever comes.
    Swallowed,
    /// The call lands when the step has long given it up.
    Late,
    /// Killed; the call lands after the next run has ended.
    LandsAfterNextRun,
    /// Killed; the call lands while the next run writes its journal.
    LandsInJournal,
    /// The machine sleeps while another run does everything; then it wakes up.
    Asleep,
    /// The machine sleeps for so short a while that the lock stays its own, and another run waits for it.
    Nap,
    /// The machine wakes up while another run, which has taken the lock over, is at work.
    Doze,
    /// Interrupted, as the runs after it are at their first moves: nobody died, so the step is finished in the end.
    Interrupted,
    /// The clock of the machine jumps back.
    ClockBack,
    /// The clock of the machine jumps ahead.
    ClockAhead,
    /// The API server restarts: watches end, and it has forgotten what happened before.
    Restart,
    /// From this call on it talks to an API server that is behind: its watches end, and new ones come late. The controllers
    /// have one that is even further behind.
    Lag,
}

impl Disturbance {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Cut,
        Self::Forbidden,
        Self::KilledAgain,
        Self::Silence,
        Self::Swallowed,
        Self::Late,
        Self::LandsAfterNextRun,
        Self::LandsInJournal,
        Self::Asleep,
        Self::Nap,
        Self::Doze,
        Self::Interrupted,
        Self::ClockBack,
        Self::ClockAhead,
        Self::Restart,
        Self::Lag,
    ];

    /// Those that schedules are drawn from.
    pub const DRAWN: [Self; 10] = [
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

    /// The modes of the crash harness that strike at the same calls, and more: in a run that goes through, and in an undo.
    pub const LIKE: [Mode; 2] = [Mode::LoseAnswer, Mode::LoseAnswerInUndo];

    /// What it is called in such a mode.
    #[must_use]
    pub fn name(self, like: Mode) -> String {
        if like.in_undo() { format!("undo-{self}") } else { self.to_string() }
    }

    /// Whether another run is begun meanwhile, on another machine.
    #[must_use]
    pub fn sleeps(self) -> bool {
        matches!(self, Self::Asleep | Self::Nap | Self::Doze)
    }

    /// How long each call of that run takes, besides what it would.
    #[must_use]
    pub fn pace(self) -> Duration {
        if self == Self::Doze { PACE } else { Duration::ZERO }
    }

    /// Whether only a write can be hit by it.
    fn needs_write(self) -> bool {
        matches!(self, Self::Late | Self::LandsAfterNextRun | Self::LandsInJournal)
    }

    /// Whether it makes a difference at a call.
    #[must_use]
    pub fn suits(self, call: &Call) -> bool {
        !self.needs_write() || call.is_write()
    }

    /// Whether it makes a difference at a place.
    #[must_use]
    pub fn suits_place(self, place: &Place) -> bool {
        match place {
            Place::Call(name) | Place::Watch(name) => !self.needs_write() || name.is_write(),
            Place::Renewal { .. } | Place::FirstMoves => !self.needs_write(),
        }
    }

    /// What makes it happen at a call of this process.
    pub fn fault(self, world: &World, process: &Arc<Process>, at: At) -> Fault {
        let (world, process) = (world.clone(), process.clone());
        let mut once = false;
        let mut strikes = move |call: &Call| !once && at.is(call) && !std::mem::replace(&mut once, true);
        Fault::hook(move |call| {
            if !strikes(call) {
                return Action::Forward;
            }
            match self {
                Self::Cut => Action::Cut,
                Self::Forbidden => Action::Answer(403, None),
                Self::KilledAgain => Action::KillBefore,
                Self::Silence => Action::Silence { lands: true },
                Self::Swallowed => Action::Silence { lands: false },
                Self::Late => Action::Delay(LATE),
                Self::LandsAfterNextRun | Self::LandsInJournal => Action::Hold,
                Self::Asleep | Self::Nap | Self::Doze => {
                    process.fall_asleep(match self {
                        Self::Nap => NAP,
                        Self::Doze => DOZE,
                        _ => ASLEEP,
                    });
                    Action::Forward
                }
                Self::Interrupted => Action::Terminate,
                Self::ClockBack => {
                    process.set_clock(-JUMP);
                    Action::Forward
                }
                Self::ClockAhead => {
                    process.set_clock(JUMP);
                    Action::Forward
                }
                Self::Restart => {
                    world.restart(&process.who());
                    Action::Cut
                }
                Self::Lag => {
                    world.move_behind(&process.who(), LAG);
                    world.move_behind(AROUND, LAG_OF_OTHERS);
                    Action::Forward
                }
            }
        })
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Cut => "cut",
            Self::Forbidden => "forbidden",
            Self::KilledAgain => "killed-again",
            Self::Silence => "silence",
            Self::Swallowed => "swallowed",
            Self::Late => "late",
            Self::LandsAfterNextRun => "lands-after-next-run",
            Self::LandsInJournal => "lands-in-journal",
            Self::Asleep => "asleep",
            Self::Nap => "nap",
            Self::Doze => "doze",
            Self::Interrupted => "interrupted",
            Self::ClockBack => "clock-back",
            Self::ClockAhead => "clock-ahead",
            Self::Restart => "restart",
            Self::Lag => "lag",
        })
    }
}

/// The same command with more time: whoever waits for a Lease to run out, or for controllers that are late, needs it.
#[must_use]
pub fn with_time(command: &StepCommand) -> StepCommand {
    let mut command = command.clone();
    let mut flag = String::new();
    for word in &mut command.args {
        if flag == "--deadline" {
            "180".clone_into(word);
        } else if flag.ends_with("-within") {
            "60".clone_into(word);
        }
        flag.clone_from(word);
    }
    command.bound(Duration::from_secs(600))
}

/// Tries a disturbance at a place: a disturbed run, then others until the step is done. Returns whether the last one had nothing
/// to do any more.
pub async fn disturbed<S: Scenario>(
    world: &World,
    lane: &Lane<S>,
    disturbance: Disturbance,
    point: &Point,
) -> Result<bool> {
    lane.reset().await?;
    let start = lane.same_as(&lane.start, "from which the scenario starts").await?;
    let command = with_time(&lane.scenario.command(&lane.worker)?);
    let simulated = Simulated::new(world);
    let (at, assured) = point.place.arm();
    let faults = |process: &Arc<Process>| {
        let mut faults = vec![disturbance.fault(world, process, at)];
        faults.extend(assured);
        faults.extend(lane.undo_fault().filter(|_| point.mode.in_undo()));
        faults
    };
    let mut run = if disturbance.sleeps() {
        let (sleeper, other) = beside_a_sleeper(&simulated, &command, disturbance.pace(), faults).await?;
        ensure!(other, "the run on another machine did not finish");
        sleeper
    } else {
        simulated.run_with(&command, faults).await?
    };
    let log = |run: &Outcome| format!("the disturbed run: {}; its log ends:\n{}", run.exit, run.tail(30));
    let judged = judge(lane, disturbance, point, &run, &start).await;
    judged.map_err(|error| anyhow!("{error:#}\n{}", log(&run)))?;
    let (mut held, mut calls) = (run.held.take(), run.calls.clone());
    let mut deaths = usize::from(died_with_journal(lane, &run).await?);
    for number in 1..=RERUNS {
        let fault = match disturbance {
            Disturbance::LandsInJournal => {
                held.take().map(|held| Fault::Land { held, when: Landing::WithinJournal })
            }
            Disturbance::KilledAgain if number < DEATHS => Some(Fault::KillBefore(point.place.arm().0)),
            Disturbance::Interrupted if number <= INTERRUPTIONS => {
                Some(Fault::Terminate(At::first(|call| call.class == Class::Move)))
            }
            _ => None,
        };
        let rerun = simulated.run_with(&command, |_| fault.into_iter().collect()).await?;
        calls.extend(rerun.calls.iter().cloned());
        let log = |error: anyhow::Error| {
            anyhow!(
                "{error:#}\n{}\nrerun {number}: {}; its log ends:\n{}",
                log(&run),
                rerun.exit,
                rerun.tail(30)
            )
        };
        // What is done is done.
        if run.exit == Exit::Code(0) && !disturbance.sleeps() {
            let writes: Vec<String> =
                writes_that_matter(&rerun.calls).iter().map(ToString::to_string).collect();
            let idle = rerun.exit == Exit::Code(0) && writes.is_empty();
            ensure!(idle, log(anyhow!("nothing was left to do, but it wrote:\n{}", writes.join("\n"))));
        }
        let for_good = |call: &Call| call.class == Class::Move && lane.scenario.is_for_good(call);
        // A restore undoes anyway.
        let goes_forward = lane.scenario.modes().contains(&Mode::DieAfter);
        match rerun.exit {
            Exit::Code(0) if goes_forward && deaths >= DEATHS && !calls.iter().any(for_good) => {
                return Err(log(anyhow!("{deaths} runs died, and it was not undone")));
            }
            Exit::Signal(9) if disturbance == Disturbance::KilledAgain => {
                deaths += usize::from(died_with_journal(lane, &rerun).await?);
            }
            Exit::Code(0) => {
                if let Some(held) = held.take() {
                    let landed = held.land().await;
                    let answer = landed.answer;
                    lane.done("after the rerun, and what landed after it").await.map_err(|error| {
                        log(error.context(format!("{} landed and got {answer:?}", landed.call)))
                    })?;
                    return Ok(false);
                }
                lane.done("after the rerun").await.map_err(log)?;
                return Ok(writes_that_matter(&rerun.calls).is_empty());
            }
            Exit::Code(143) if disturbance == Disturbance::Interrupted => {}
            Exit::Code(4) if disturbance != Disturbance::Interrupted || point.mode.in_undo() => {
                if let Some(held) = held.take() {
                    held.land().await;
                }
                lane.restored(&start, &calls).await.map_err(log)?;
                deaths = 0;
            }
            exit => return Err(log(anyhow!("the rerun should finish, but ended with {exit}"))),
        }
    }
    bail!("not finished after {RERUNS} reruns\n{}", log(&run))
}

/// Whether a run was killed while it had a journal open: one that it has opened itself, or noted that it took it up.
async fn died_with_journal<S: Scenario>(lane: &Lane<S>, run: &Outcome) -> Result<bool> {
    let noted = |call: &Call| call.class == Class::Journal && call.is_write() && call.succeeded();
    let died = run.exit == Exit::Signal(9) && run.calls.iter().any(noted);
    Ok(died && lane.bookkeeping().await?.open_journals().next().is_some())
}

/// Whether the disturbed run ended as it should.
async fn judge<S: Scenario>(
    lane: &Lane<S>,
    disturbance: Disturbance,
    point: &Point,
    run: &Outcome,
    start: &State,
) -> Result<()> {
    let in_undo = point.mode.in_undo();
    match disturbance {
        Disturbance::KilledAgain | Disturbance::LandsAfterNextRun | Disturbance::LandsInJournal => {
            ensure!(run.exit == Exit::Signal(9), "it was killed and ended with {}", run.exit);
            Ok(())
        }
        // The other run has done it all; what it finds depends on where it fell asleep.
        Disturbance::Asleep | Disturbance::Doze => {
            let refused =
                run.exit == Exit::Code(3) && !run.calls.iter().any(|call| call.class == Class::Move);
            // An undo that had done its last call but the lock's release ends as it would have.
            let ends =
                refused || matches!(run.exit, Exit::Code(0 | 1)) || (in_undo && run.exit == Exit::Code(4));
            ensure!(ends, "it woke up and ended with {}", run.exit);
            Ok(())
        }
        Disturbance::Interrupted if run.exit == Exit::Code(143) => Ok(()),
        _ => {
            ensure!(
                run.calls.iter().any(|call| point.place.is(call)),
                "the call was not made, but these:\n{}",
                run.calls.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
            );
            if in_undo {
                ensure!(
                    run.exit == Exit::Code(4),
                    "it should undo all the same, but ended with {}",
                    run.exit
                );
                // A run that waited for the lock has gone forward since.
                return if disturbance.sleeps() { Ok(()) } else { lane.restored(start, &run.calls).await };
            }
            ensure!(run.exit == Exit::Code(0), "it should try again, but ended with {}", run.exit);
            lane.done("after trying again").await
        }
    }
}

/// A run falls asleep; another one, on another machine, does its work meanwhile. Whether that one was done, if there was one.
pub async fn beside_a_sleeper(
    simulated: &Simulated,
    command: &StepCommand,
    pace: Duration,
    faults: impl FnOnce(&Arc<Process>) -> Vec<Fault>,
) -> Result<(Outcome, bool)> {
    // In no pods: of one that is Running whoever comes next waits for the end, however long its machine sleeps.
    let here = Simulated { outside: true, ..simulated.clone() };
    let elsewhere = Simulated { node: simulated.world.machine("node-b"), ..here.clone() };
    let (awake, mut ended) = watch::channel(());
    let sleeper = async {
        let run = here.run_with(command, faults).await;
        drop(awake);
        run
    };
    let other = async {
        tokio::select! {
            biased;
            () = simulated.world.until_asleep() => {}
            // It ended before it could fall asleep.
            _ = ended.changed() => return Ok(true),
        }
        for _ in 0..RERUNS {
            let slow = vec![Fault::Delay { at: None, by: pace }];
            let run = elsewhere.run_with(command, |_| slow).await?;
            if run.exit == Exit::Code(0) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    futures::try_join!(sleeper, other)
}
