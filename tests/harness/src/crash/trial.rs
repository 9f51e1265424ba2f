//! One point on a lane: a clean cluster, a run in which things go wrong, its judgement, and the runs that put it right.

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::{
    call::{Call, Class, LeaseUse, writes_that_matter},
    crash::{
        Failure, Mode, Place, Point, Scenario,
        lane::{DEATHS, Lane, shown},
    },
    expect::{Leaves, owed},
    fault::{At, Fault},
    gateway,
    run::{Exit, Outcome},
    state::State,
};

/// How many runs it may take to put things right: an undo is finished, then the step is done.
const RERUNS: usize = 3;

impl Place {
    /// The call, and what makes sure that it is made.
    #[must_use]
    pub fn arm(&self) -> (At, Option<Fault>) {
        match self {
            Self::Call(name) => (At::Named(name.clone()), None),
            Self::Watch(_) => {
                let place = self.clone();
                (At::first(move |call| place.is(call)), None)
            }
            Self::Renewal { held } => {
                let (hold, renewal) = Fault::hold_until_renewal(At::Named(held.clone()));
                (renewal, Some(hold))
            }
            Self::FirstMoves => (At::first(|call| call.class == Class::Move), None),
        }
    }

    /// Whether this call is the one.
    #[must_use]
    pub fn is(&self, call: &Call) -> bool {
        match self {
            Self::Call(name) => call.named() == *name,
            Self::Watch(name) => call.class == Class::Lease(LeaseUse::Release) || call.named() == *name,
            Self::Renewal { .. } => call.renews,
            Self::FirstMoves => call.class == Class::Move,
        }
    }
}

/// A point that held.
pub struct Held {
    /// The call that was hit, if it is one.
    pub call: Option<String>,
    /// Whether the last run had nothing to do any more.
    pub was_idle: bool,
}

impl<S: Scenario> Lane<S> {
    /// Tries a point.
    pub async fn try_point(&self, point: &Point) -> Result<Held, Failure> {
        let mut call = None;
        match self.try_out(point, &mut call).await {
            Ok(was_idle) => Ok(Held { call, was_idle }),
            Err(error) => Err(Failure { point: point.clone(), call, why: format!("{error:#}") }),
        }
    }

    /// Returns whether the last run had nothing to do any more.
    async fn try_out(&self, point: &Point, hit: &mut Option<String>) -> Result<bool> {
        self.reset().await.context("reset")?;
        // Controllers may still be at what the scenario has made.
        let start = self.same_as(&self.start, "from which the scenario starts").await?;
        if point.mode.is_repeated() {
            return self.die(point, &start).await;
        }

        let (at, assured) = point.place.arm();
        let mut faults = vec![point.mode.fault(at)];
        faults.extend(assured);
        if point.mode.in_undo() {
            faults.extend(self.undo_fault());
        }
        let mut run = self.run(faults, Some(point.mode)).await?;
        let log = |run: &Outcome| format!("the disturbed run: {}; its log ends:\n{}", run.exit, run.tail(30));
        let Some(struck) = run.struck.iter().find(|call| point.place.is(call)).cloned() else {
            let made: Vec<String> = run.calls.iter().map(ToString::to_string).collect();
            bail!("the call was not made, but these:\n{}\n{}", made.join("\n"), log(&run));
        };
        *hit = Some(struck.to_string());
        let held = run.held.take();
        let judged = self.judge(point, &struck, &run, &start).await;
        judged.map_err(|error| anyhow!("{error:#}\n{}", log(&run)))?;
        let righted = self.put_right(point, held, &start, run.calls.clone()).await;
        righted.map_err(|error| anyhow!("{error:#}\n{}", log(&run)))
    }

    /// Lets the step die again and again: the run after that undoes what they did, and the next one is done.
    async fn die(&self, point: &Point, start: &State) -> Result<bool> {
        let mut calls = Vec::new();
        for _ in 0..DEATHS {
            let (at, _) = point.place.arm();
            let run = self.run(vec![point.mode.fault(at)], Some(point.mode)).await?;
            ensure!(!run.struck.is_empty(), "it made no move to die at, {}:\n{}", run.exit, run.tail(30));
            ensure!(run.exit == Exit::Signal(9), "it was killed and ended with {}", run.exit);
            calls.extend(run.calls);
        }
        let last = self.run(Vec::new(), Some(point.mode)).await?;
        calls.extend(last.calls.iter().cloned());
        last.expect_exit(4).with_context(|| format!("the run after {DEATHS} deaths"))?;
        let log = || format!("the run after {DEATHS} deaths: its log ends:\n{}", last.tail(30));
        self.restored(start, &calls).await.with_context(log)?;
        self.put_right(point, None, start, calls).await
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
                ensure!(run.exit == Exit::Code(143), "it was interrupted and ended with {}", run.exit);
                let mut own = self.bookkeeping().await?;
                own.journals.clear();
                let held = own.left_open();
                ensure!(held.is_empty(), "it was interrupted and should release the lock:\n{held}");
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
            Mode::Fail(status) => self.judge_failure(struck, run, start, status).await,
        }
    }

    /// Whether a run in which a call failed for good ended as the table says.
    async fn judge_failure(&self, struck: &Call, run: &Outcome, start: &State, status: u16) -> Result<()> {
        let at = run.calls.iter().position(|call| call.named() == struck.named()).unwrap_or_default();
        let (stage, ends) = self.ends(struck, &run.calls[..at], status);
        let shown = format!("at stage {stage:?} the run may come to {}", shown(&ends));
        let Some(end) = ends.iter().find(|end| run.exit == Exit::Code(end.exit)) else {
            bail!("{shown}, but it came to {}", run.exit);
        };
        // What works again at a later try is no failure that anybody must hear of.
        let worked = run.calls[at..].iter().any(|call| call.key() == struck.key() && call.succeeded());
        let owed = owed(struck);
        if end.exit == 0 && !worked && !owed.is_empty() {
            let is_logged = owed.iter().any(|sentence| run.stderr.contains(sentence));
            ensure!(is_logged, "{shown}, and it should log that {}", owed.join(", or that "));
        }
        match end.leaves {
            Leaves::Anything => Ok(()),
            // The lock may be what could not be released.
            Leaves::Done => self.ended("after a failure that does not matter").await,
            Leaves::Restored => self.restored(start, &run.calls).await,
            Leaves::Untouched => {
                let moves = run.calls.iter().filter(|call| call.class == Class::Move && call.succeeded());
                let moves: Vec<String> = moves.map(ToString::to_string).collect();
                ensure!(moves.is_empty(), "{shown}, but moves were made:\n{}", moves.join("\n"));
                self.restored(start, &run.calls).await
            }
        }
        .context(shown)
    }

    /// Runs the step again without faults until it is done; after a kill the first run must do it. Returns whether the last run
    /// had nothing to do any more.
    async fn put_right(
        &self,
        point: &Point,
        held: Option<gateway::Held>,
        start: &State,
        mut calls: Vec<Call>,
    ) -> Result<bool> {
        let must_resume =
            matches!(point.mode, Mode::KillBefore | Mode::KillAfter | Mode::LandLate(_) | Mode::Terminate);
        let mut faults = Vec::new();
        if let (Mode::LandLate(when), Some(held)) = (point.mode, held) {
            faults.push(Fault::Land { held, when });
        }
        for number in 1..=RERUNS {
            let run = self.run(std::mem::take(&mut faults), Some(point.mode)).await?;
            calls.extend(run.calls.iter().cloned());
            let log = |error: anyhow::Error| {
                let mut log = format!("rerun {number}: {}", run.exit);
                for landed in &run.landed {
                    let before =
                        landed.before.as_ref().map_or_else(|| "its end".to_owned(), ToString::to_string);
                    log =
                        format!("{log}; {} landed before {before} and got {:?}", landed.call, landed.answer);
                }
                anyhow!("{error:#}\n{log}; its log ends:\n{}", run.tail(30))
            };
            match run.exit {
                Exit::Code(0) => {
                    self.done("after the rerun").await.map_err(log)?;
                    return Ok(writes_that_matter(&run.calls).is_empty());
                }
                Exit::Code(4) if !must_resume => self.restored(start, &calls).await.map_err(log)?,
                exit => return Err(log(anyhow!("the rerun should finish, but ended with {exit}"))),
            }
        }
        bail!("not finished after {RERUNS} reruns")
    }
}
