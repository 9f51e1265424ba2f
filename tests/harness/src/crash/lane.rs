//! A lane: an API server with a scenario set up, and what an undisturbed run of its step does there.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    call::{Call, Class, Verb, writes_that_matter},
    crash::{
        Choice, Guard, Mode, Point, Scenario, Worker,
        point::{Place, Script},
        sample::{Group, Kind},
    },
    expect::{Allowed, Stage, allowed, with_blocked_undo, with_late_lock},
    fault::{At, Fault, Scope},
    run::{Outcome, StepCommand},
    state::{Area, Bookkeeping, Diff, Identity, Key, State, clear, own_areas},
};

/// Runs that die before a journal is undone: the first and two resumes.
pub(super) const DEATHS: usize = 3;
/// What a run waits for only because somebody may need the time takes so many seconds: there is nobody else here.
const PATIENCE: (&str, &str) = ("BELAY_TEST_PATIENCE", "0.3");
/// How long the API server may take to remove what a run has left.
const CLEARED_WITHIN: Duration = Duration::from_secs(60);

/// The writes of an undisturbed run: every lane of a scenario must make the same.
pub type Writes = BTreeSet<String>;

/// An API server with its scenario set up and its undisturbed run made.
pub struct Lane<S> {
    /// The scenario.
    pub scenario: Arc<S>,
    /// The API server.
    pub worker: Worker,
    /// Before an undisturbed run.
    pub start: State,
    /// After it.
    pub end: State,
    /// What it called.
    pub calls: Vec<Call>,
    /// What the run before it called.
    rehearsal: Vec<Call>,
    /// Whether the API server is in the state from which the scenario starts, and nothing has been done to it since.
    fresh: AtomicBool,
    _standins: Guard,
}

impl<S: Scenario> Lane<S> {
    /// Sets the scenario up and makes its undisturbed runs. `known` are the writes that another lane has seen.
    pub async fn open(scenario: Arc<S>, worker: Worker, known: Option<&Writes>) -> Result<Self> {
        scenario.setup(&worker).await.context("setting the scenario up")?;
        let mut lane = Self {
            _standins: scenario.standins(&worker),
            scenario,
            worker,
            start: State::default(),
            end: State::default(),
            calls: Vec::new(),
            rehearsal: Vec::new(),
            fresh: AtomicBool::new(false),
        };
        lane.run_undisturbed(known).await.context("undisturbed")?;
        Ok(lane)
    }

    /// The same scenario on another API server, which is in the state from which it starts.
    #[must_use]
    pub fn on_copy(&self, worker: Worker) -> Self {
        Self {
            _standins: self.scenario.standins(&worker),
            scenario: self.scenario.clone(),
            worker,
            start: self.start.clone(),
            end: self.end.clone(),
            calls: self.calls.clone(),
            rehearsal: self.rehearsal.clone(),
            fresh: AtomicBool::new(true),
        }
    }

    /// The undisturbed run: it succeeds, closes what it opened, and a second one finds nothing to do. From the same
    /// start it makes the same calls each time: else something of another scenario, or of another run, is in its way.
    async fn run_undisturbed(&mut self, known: Option<&Writes>) -> Result<()> {
        let known = if let Some(known) = known {
            known.clone()
        } else {
            self.reset().await?;
            let rehearsal = self.run(Vec::new(), None).await?;
            rehearsal.expect_exit(0)?;
            self.rehearsal = rehearsal.calls;
            writes(&self.rehearsal)
        };
        self.reset().await?;
        self.start = self.read_settled().await?;
        let first = self.run(Vec::new(), None).await?;
        first.expect_exit(0)?;
        let differ = differences(&known, &writes(&first.calls));
        ensure!(differ.is_empty(), "two undisturbed runs make other calls:\n{}", differ.join("\n"));
        self.end = self.read_settled().await?;
        self.ended("after an undisturbed run").await?;
        self.calls = first.calls;
        self.nothing_left_open().await?;
        let second = self.run(Vec::new(), None).await?;
        second.expect_exit(0).context("the second run")?;
        let writes = writes_that_matter(&second.calls);
        if !writes.is_empty() {
            let writes: Vec<String> = writes.iter().map(ToString::to_string).collect();
            bail!("the second run should find nothing to do, but wrote:\n{}", writes.join("\n"));
        }
        self.ended("after a second run").await?;
        Ok(())
    }

    pub(super) fn writes(&self) -> Writes {
        writes(&self.calls)
    }

    /// The stage at which a call failed, and to which ends the run may come.
    pub(super) fn ends(&self, struck: &Call, before: &[Call], status: u16) -> (Stage, Vec<Allowed>) {
        let for_good = |call: &Call| self.scenario.is_for_good(call);
        let stage = Stage::of(struck, before, &self.calls, for_good);
        let has_end = self.calls.iter().any(|call| call.class == Class::Move && for_good(call));
        let mut ends = allowed(struck, stage, has_end);
        // What fails until the deadline works again for undo.
        if status < 500 {
            ends = with_blocked_undo(ends, struck, before);
        } else {
            ends = with_late_lock(ends, struck, stage);
        }
        (stage, self.scenario.expect(struck, stage, ends))
    }

    /// The calls of an undisturbed run.
    pub(super) fn script(&self) -> Script {
        Script::new("", (&self.calls, 0), (&self.rehearsal, 0), |at| {
            self.ends(&self.calls[at], &self.calls[..at], 403).0
        })
    }

    /// The calls from the moment when a step has to undo; empty if there is nothing that it could undo.
    pub(super) async fn script_of_undo(&self) -> Result<Script> {
        let (one, from) = self.calls_of_an_undo().await?;
        let (other, other_from) = self.calls_of_an_undo().await?;
        // What fails in an undo is not judged by how far it has come.
        Ok(Script::new("u", (&one, from), (&other, other_from), |_| Stage::Acting))
    }

    /// The calls of a run that has to undo, and where among them the undo begins.
    async fn calls_of_an_undo(&self) -> Result<(Vec<Call>, usize)> {
        let Some(fault) = self.undo_fault() else { return Ok((Vec::new(), 0)) };
        self.reset().await?;
        let start = self.read_settled().await?;
        let run = self.run(vec![fault], None).await?;
        run.expect_exit(4).context("a run that must undo")?;
        self.restored(&start, &run.calls).await.context("after an undisturbed undo")?;
        let failed = run.struck.first().context("nothing failed, and it was undone")?.named();
        let from = run.calls.iter().position(|call| call.named() == failed).map_or(0, |at| at + 1);
        Ok((run.calls, from))
    }

    /// Makes a run undo: [`last_undoable`](Self::last_undoable) fails.
    #[must_use]
    pub fn undo_fault(&self) -> Option<Fault> {
        let last = self.last_undoable()?.clone();
        let at = At::first(move |call| call.key() == last.key());
        Some(Fault::FailForGood { at, status: 422, scope: Scope::Body, until: None })
    }

    /// The last move that can be undone and whose object was not written before: undo does not need it.
    #[must_use]
    pub fn last_undoable(&self) -> Option<&Call> {
        let calls = &self.calls;
        let fresh = |at: usize| {
            let call = &calls[at];
            let is_move = call.class == Class::Move && call.succeeded() && !self.scenario.is_for_good(call);
            is_move && !calls[..at].iter().any(|other| other.class == Class::Move && other.same_object(call))
        };
        (0..calls.len()).rev().find(|at| fresh(*at)).map(|at| &calls[at])
    }

    /// The modes that are asked for.
    fn modes(&self, choice: &Choice) -> Vec<Mode> {
        let wanted = |mode: &Mode| {
            choice.modes.is_empty() || choice.modes.iter().any(|name| *name == mode.to_string())
        };
        self.scenario.modes().into_iter().filter(wanted).collect()
    }

    /// All points of the modes and calls that are asked for, and the calls that are none.
    pub async fn points(&self, choice: &Choice) -> Result<(Vec<Point>, Vec<String>)> {
        let modes = self.modes(choice);
        let script = self.script();
        let mut left_out = script.left_out();
        let undo = if modes.iter().any(|mode| mode.in_undo()) {
            self.script_of_undo().await?
        } else {
            Script::default()
        };
        left_out.extend(undo.left_out().into_iter().map(|call| format!("in undo: {call}")));
        let mut points = Vec::new();
        for mode in modes {
            if mode.is_repeated() {
                points.extend(self.point_of_deaths(mode).filter(|_| choice.calls.is_empty()));
            } else {
                points.extend(if mode.in_undo() { &undo } else { &script }.points(mode, &choice.calls));
            }
        }
        Ok((points, left_out))
    }

    /// Dying again and again is one point. Who dies after a move each time needs a move for each death, and one that
    /// is left: else the step is done before.
    fn point_of_deaths(&self, mode: Mode) -> Option<Point> {
        let moves = self.calls.iter().filter(|call| call.class == Class::Move && call.succeeded());
        let moves = moves.filter(|call| !self.scenario.is_for_good(call)).count();
        let needed = if mode == Mode::DieAfter { DEATHS + 1 } else { 1 };
        let point = Point { mode, place: Place::FirstMoves, group: Group::Deaths, kind: Kind::Move };
        (moves >= needed).then_some(point)
    }

    /// The calls of an undisturbed run, and those of an undo, with the numbers by which they can be chosen.
    pub(super) async fn show(&self) -> Result<String> {
        let mut lines = Vec::new();
        let script = self.script();
        for (at, line) in script.lines.iter().enumerate() {
            let (stage, ends) = self.ends(&line.call, &self.calls[..at], 403);
            lines.push(format!("{line}  [{stage:?}: {}]", shown(&ends)));
        }
        let has_undo = self.scenario.modes().iter().any(|mode| mode.in_undo());
        let undo = if has_undo { self.script_of_undo().await? } else { Script::default() };
        lines.extend(undo.lines.iter().map(|line| format!("{line}  [in undo]")));
        let left_out = script.left_out().into_iter().chain(undo.left_out());
        lines.extend(left_out.map(|call| format!("no point: {call}")));
        let name = self.scenario.name();
        Ok(lines.into_iter().map(|line| format!("{name} {line}")).collect::<Vec<_>>().join("\n"))
    }

    /// The state after an undisturbed run, and nothing left open.
    pub async fn done(&self, when: &str) -> Result<()> {
        self.ended(when).await?;
        self.nothing_left_open().await
    }

    /// Waits for the state after an undisturbed run, and for what the scenario asks for besides.
    pub async fn ended(&self, when: &str) -> Result<()> {
        self.same_as(&self.end, when).await?;
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
    pub async fn restored(&self, start: &State, calls: &[Call]) -> Result<()> {
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
    pub async fn same_as(&self, wanted: &State, when: &str) -> Result<State> {
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

    /// Every journal is closed, and no lock is held.
    pub async fn nothing_left_open(&self) -> Result<()> {
        let open: Diff = self.bookkeeping().await?.left_open();
        ensure!(open.is_empty(), "left open:\n{open}");
        Ok(())
    }

    /// Belay's own objects.
    pub async fn bookkeeping(&self) -> Result<Bookkeeping> {
        Bookkeeping::read(&self.worker.api, &self.scenario.home(&self.worker)).await
    }

    /// Puts the cluster into the state from which the scenario starts.
    pub async fn reset(&self) -> Result<()> {
        if self.fresh.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let mut areas = self.areas();
        areas.extend(own_areas(&self.scenario.home(&self.worker)));
        clear(&self.worker.api, &areas, CLEARED_WITHIN).await?;
        self.scenario.fill(&self.worker).await
    }

    /// Runs the step, with patience only where the mode needs it.
    pub(super) async fn run(&self, faults: Vec<Fault>, mode: Option<Mode>) -> Result<Outcome> {
        let command = self.scenario.command(&self.worker)?;
        if mode.is_some_and(Mode::needs_patience) {
            return self.worker.runner.run(&command, faults).await;
        }
        self.run_impatiently(command, faults).await
    }

    /// Runs a program that waits for nobody, since there is nobody else here.
    pub async fn run_impatiently(&self, command: StepCommand, faults: Vec<Fault>) -> Result<Outcome> {
        self.worker.runner.run(&command.env(PATIENCE.0, PATIENCE.1), faults).await
    }

    fn areas(&self) -> Vec<Area> {
        self.scenario.areas(&self.worker)
    }

    /// The objects that matter, as they are.
    pub async fn read(&self) -> Result<State> {
        State::read(&self.worker.api, &self.areas(), |object| self.scenario.adjust(object)).await
    }

    async fn read_settled(&self) -> Result<State> {
        let adjust = |object: &mut Value| self.scenario.adjust(object);
        State::read_settled(&self.worker.api, &self.areas(), &adjust, self.scenario.patience()).await
    }
}

/// The writes of a run. How often one is made is no difference: after a conflict it is made again.
fn writes(calls: &[Call]) -> Writes {
    calls.iter().filter(|call| call.is_write() && !call.renews).map(Call::what).collect()
}

/// The writes that only one of two runs made.
fn differences(one: &Writes, other: &Writes) -> Vec<String> {
    let first = one.difference(other).map(|call| format!("only the first: {call}"));
    first.chain(other.difference(one).map(|call| format!("only the second: {call}"))).collect()
}

pub(super) fn shown(ends: &[Allowed]) -> String {
    ends.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_may_differ_in_the_order_and_number_of_their_calls_and_in_nothing_else() {
        let calls = |text: &str| text.split(' ').map(str::to_owned).collect();
        assert!(differences(&calls("a b b c"), &calls("b c a")).is_empty());
        assert_eq!(differences(&calls("a b"), &calls("b c")), ["only the first: a", "only the second: c"]);
    }
}
