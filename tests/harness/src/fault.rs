//! What goes wrong, and at which call.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    call::{Call, Class, LeaseUse, Name},
    gateway::Held,
};

/// A question about a call, for faults and waits that name their call by what it is.
pub type Matcher = Arc<dyn Fn(&Call) -> bool + Send + Sync>;

/// A call of a run.
#[derive(Clone)]
pub enum At {
    /// The call of this name.
    Named(Name),
    /// The first call of which this is true.
    First(Matcher),
}

impl At {
    /// The first call of which this is true.
    pub fn first(matcher: impl Fn(&Call) -> bool + Send + Sync + 'static) -> Self {
        Self::First(Arc::new(matcher))
    }

    /// Whether it means this call.
    #[must_use]
    pub fn is(&self, call: &Call) -> bool {
        match self {
            Self::Named(name) => call.nth == name.nth && call.what() == name.what,
            Self::First(matcher) => matcher(call),
        }
    }
}

impl fmt::Debug for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(out, "{name}"),
            Self::First(_) => out.write_str("the first matching call"),
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, out)
    }
}

/// How much fails together with the call that fails for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every later request with the same verb, path, name and dry-run flag: a right that was taken away.
    Target,
    /// Of those only the ones with the same body: a schema or webhook that dislikes this very object.
    Body,
}

/// When a call that fails works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// When the step has been told that its deadline is now: the third answer tells it, so that the step has tried again
    /// before, and nobody waits for a clock. What a watch asks for is not listened to so closely: then the next answer
    /// to another call tells it.
    Deadline,
}

/// So many answers fail before the deadline is now.
const ANSWERS_BEFORE_DEADLINE: u32 = 3;

/// When a request that was held back is sent on, while the next run is under way.
///
/// Whatever is asked for, it lands at the latest before that run gives the lock back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Landing {
    /// When the next run has decided, just before its first move.
    BeforeFirstMove,
    /// When it has written a part of its journal, just before it writes the next.
    WithinJournal,
    /// When it believes to be done, just before it gives the lock back.
    BeforeRelease,
}

/// Something that goes wrong in a run.
pub enum Fault {
    /// The step is killed; the call is never sent.
    KillBefore(At),
    /// The call is sent and answered, then the step is killed before it sees a byte of the answer.
    KillAfter(At),
    /// The call is sent and answered, then the connection is cut. The step lives.
    LoseAnswer(At),
    /// The step is killed and the call is held back: see [`Held`] and [`Fault::Land`].
    KillAndLandLate(At),
    /// The step is sent SIGTERM, then the call passes.
    Terminate(At),
    /// A call of an earlier run lands in this one.
    Land {
        /// The call, as an earlier run's [`Outcome`](crate::run::Outcome) hands it out.
        held: Held,
        /// When.
        when: Landing,
    },
    /// The call, and every later one that is the same, is answered with an error. All else passes.
    FailForGood {
        /// Which call.
        at: At,
        /// The error's code.
        status: u16,
        /// What else fails with it.
        scope: Scope,
        /// When it works again; none: never.
        until: Option<Until>,
    },
    /// Every n-th request is answered with 429 and a Retry-After.
    Throttle {
        /// n.
        every: u32,
        /// Seconds.
        retry_after: u32,
    },
    /// Calls are sent on late.
    Delay {
        /// Which call; none: all of them.
        at: Option<At>,
        /// By how much.
        by: Duration,
    },
    /// The call, and every later one that is the same, is sent on when [`Holding::release`] is called: time for a test to do
    /// something meanwhile, however slow the machine is. The later ones too, since a step that waits too long for an answer
    /// asks again. See [`Fault::hold`].
    Hold {
        /// Which call.
        at: At,
        /// What keeps it.
        gate: Gate,
    },
    /// The API server is gone for a while: every connection is cut and no new one accepted.
    Refuse {
        /// From this call on, which is cut off too.
        at: At,
        /// For how long.
        lasting: Duration,
    },
    /// Whatever else a test thinks of. Called for every request, must not block.
    Hook(Box<dyn FnMut(&Call) -> Action + Send>),
}

impl Fault {
    /// [`Fault::FailForGood`] for every later request of the same verb and path.
    #[must_use]
    pub fn forbid(at: At) -> Self {
        Self::FailForGood { at, status: 403, scope: Scope::Target, until: None }
    }

    /// [`Fault::Hold`], and what lets the call go. Dropped, it lets it go too.
    #[must_use]
    pub fn hold(at: At) -> (Self, Holding) {
        let (open, gate) = watch::channel(false);
        (Self::Hold { at, gate: Gate(gate) }, Holding(open))
    }

    /// [`Fault::Hold`] for a call until the lock is renewed, and that renewal: however quick the run is, it is made.
    ///
    /// Whichever fault strikes at the renewal comes before all others: a renewal that none of them looks at lets nothing go.
    #[must_use]
    pub fn hold_until_renewal(at: At) -> (Self, At) {
        let (hold, holding) = Self::hold(at.clone());
        let (arrived, holding) = (AtomicBool::new(false), Mutex::new(Some(holding)));
        let renewal = At::first(move |call| {
            arrived.fetch_or(at.is(call), Ordering::SeqCst);
            let renews = call.renews && arrived.load(Ordering::SeqCst);
            if renews {
                holding.lock().unwrap_or_else(PoisonError::into_inner).take();
            }
            renews
        });
        (hold, renewal)
    }

    /// A hook.
    pub fn hook(hook: impl FnMut(&Call) -> Action + Send + 'static) -> Self {
        Self::Hook(Box::new(hook))
    }
}

/// Lets go of a call that [`Fault::Hold`] keeps.
#[derive(Debug)]
pub struct Holding(watch::Sender<bool>);

impl Holding {
    /// Sends on what is held back, and all that is the same from now on.
    pub fn release(self) {
        self.0.send_replace(true);
    }
}

/// What [`Fault::Hold`] keeps a call with.
#[derive(Clone, Debug)]
pub struct Gate(watch::Receiver<bool>);

impl Gate {
    pub(crate) async fn pass(mut self) {
        // An error means that nobody is left who could open it.
        let _ = self.0.wait_for(|open| *open).await;
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KillBefore(at) => write!(out, "killed before {at}"),
            Self::KillAfter(at) => write!(out, "killed after {at}"),
            Self::LoseAnswer(at) => write!(out, "answer of {at} lost"),
            Self::KillAndLandLate(at) => write!(out, "killed at {at}, which lands late"),
            Self::Terminate(at) => write!(out, "told to stop at {at}"),
            Self::Land { held, when } => write!(out, "{} lands {when:?}", held.call()),
            Self::FailForGood { at, status, .. } => write!(out, "{at} fails for good with {status}"),
            Self::Throttle { every, .. } => write!(out, "every {every}th request throttled"),
            Self::Delay { at: Some(at), by } => write!(out, "{at} delayed by {by:?}"),
            Self::Delay { at: None, by } => write!(out, "all delayed by {by:?}"),
            Self::Hold { at, .. } => write!(out, "{at} held back until it is released"),
            Self::Refuse { at, lasting } => write!(out, "connections refused for {lasting:?} from {at}"),
            Self::Hook(_) => out.write_str("hook"),
        }
    }
}

/// What the proxy does with one request.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Sends it on.
    Forward,
    /// Sends it on after a while.
    Delay(Duration),
    /// Kills the step, drops the request.
    KillBefore,
    /// Sends it on, kills the step when the answer is there.
    KillAfter,
    /// Sends it on, cuts the connection when the answer is there.
    LoseAnswer,
    /// Kills the step, keeps the request.
    Hold,
    /// Sends the step SIGTERM, and the request on.
    Terminate,
    /// Answers with an error in the API server's place; the second number is a Retry-After in seconds.
    Answer(u16, Option<u32>),
    /// Answers with an error, and tells the step that its deadline is now.
    AnswerAtDeadline(u16),
    /// Sends it on, and tells the step with the answer that its deadline is now.
    ForwardAtDeadline,
    /// Cuts the connection, sends nothing on.
    Cut,
    /// Keeps the connection and never answers.
    Silence {
        /// Whether it sends the request on.
        lands: bool,
    },
    /// Cuts all connections and accepts no new one for a while.
    Refuse(Duration),
}

/// A fault and how far it has come.
struct Armed {
    fault: Fault,
    fired: bool,
    /// What fails for good, or is held back: the call that started it.
    first: Option<Call>,
    /// How many calls it has answered.
    answers: u32,
    /// Whether it has told the step that its deadline is now.
    told: bool,
}

/// All faults of a run.
pub(crate) struct Faults {
    armed: Vec<Armed>,
    seen: u32,
}

/// What to do with a request, and what to do first.
pub(crate) struct Decision {
    pub(crate) land: Vec<Held>,
    pub(crate) delay: Duration,
    pub(crate) gates: Vec<Gate>,
    pub(crate) action: Action,
    /// Whether this is the call at which a fault struck for the first time.
    pub(crate) struck: bool,
}

impl Faults {
    pub(crate) fn new(faults: Vec<Fault>) -> Self {
        let armed = faults
            .into_iter()
            .map(|fault| Armed { fault, fired: false, first: None, answers: 0, told: false })
            .collect();
        Self { armed, seen: 0 }
    }

    /// The first fault that has something to say about the call decides; delays, gates and landings come on top.
    pub(crate) fn decide(&mut self, call: &Call) -> Decision {
        self.seen += 1;
        let mut decision = Decision {
            land: Vec::new(),
            delay: Duration::ZERO,
            gates: Vec::new(),
            action: Action::Forward,
            struck: false,
        };
        let mut keep = Vec::with_capacity(self.armed.len());
        for mut armed in std::mem::take(&mut self.armed) {
            if let Fault::Land { when, .. } = &armed.fault
                && landing_is_due(*when, call, &mut armed.fired)
            {
                if let Fault::Land { held, .. } = armed.fault {
                    decision.land.push(held);
                }
                continue;
            }
            decision.gates.extend(armed.gate(call));
            if decision.action == Action::Forward {
                let fired_before = armed.fired;
                match armed.decide(call, self.seen) {
                    Action::Delay(by) => decision.delay += by,
                    action => {
                        decision.struck = action != Action::Forward && armed.fired && !fired_before;
                        decision.action = action;
                    }
                }
            }
            keep.push(armed);
        }
        self.armed = keep;
        decision
    }

    /// Landings that never became due.
    pub(crate) fn unlanded(&mut self) -> Vec<Held> {
        let (due, keep) = std::mem::take(&mut self.armed)
            .into_iter()
            .partition(|armed| matches!(armed.fault, Fault::Land { .. }));
        self.armed = keep;
        let held = |armed: Armed| if let Fault::Land { held, .. } = armed.fault { Some(held) } else { None };
        Vec::into_iter(due).filter_map(held).collect()
    }
}

fn landing_is_due(when: Landing, call: &Call, wrote_journal: &mut bool) -> bool {
    let writes_journal = call.class == Class::Journal && call.is_write();
    let wrote_before = std::mem::replace(wrote_journal, *wrote_journal || writes_journal);
    call.class == Class::Lease(LeaseUse::Release)
        || match when {
            Landing::BeforeFirstMove => call.class == Class::Move,
            Landing::WithinJournal => writes_journal && wrote_before,
            Landing::BeforeRelease => false,
        }
}

impl Armed {
    /// What keeps the call, if this holds it back.
    fn gate(&mut self, call: &Call) -> Option<Gate> {
        let Fault::Hold { at, gate } = &self.fault else { return None };
        if self.first.is_none() && at.is(call) {
            self.first = Some(call.clone());
            self.fired = true;
        }
        self.first.as_ref().filter(|first| first.key() == call.key()).map(|_| gate.clone())
    }

    fn decide(&mut self, call: &Call, seen: u32) -> Action {
        let mut once = |at: &At, action: Action| {
            if self.fired || !at.is(call) {
                return Action::Forward;
            }
            self.fired = true;
            action
        };
        match &mut self.fault {
            Fault::KillBefore(at) => once(at, Action::KillBefore),
            Fault::KillAfter(at) => once(at, Action::KillAfter),
            Fault::LoseAnswer(at) => once(at, Action::LoseAnswer),
            Fault::KillAndLandLate(at) => once(at, Action::Hold),
            Fault::Terminate(at) => once(at, Action::Terminate),
            Fault::Refuse { at, lasting } => once(at, Action::Refuse(*lasting)),
            Fault::Delay { at: Some(at), by } => once(at, Action::Delay(*by)),
            Fault::Delay { at: None, by } => Action::Delay(*by),
            Fault::Land { .. } | Fault::Hold { .. } => Action::Forward,
            Fault::FailForGood { at, status, scope, until } => {
                if self.told {
                    return Action::Forward;
                }
                if self.first.is_none() && at.is(call) {
                    self.first = Some(call.clone());
                    self.fired = true;
                }
                let fails = self.first.as_ref().is_some_and(|first| {
                    first.key() == call.key() && (*scope == Scope::Target || first.body_sha == call.body_sha)
                });
                self.answers += u32::from(fails);
                let listened_to = call.class != Class::Watch && !call.begins_watch();
                self.told = until.is_some() && self.answers >= ANSWERS_BEFORE_DEADLINE && listened_to;
                match (fails, self.told) {
                    (true, true) => Action::AnswerAtDeadline(*status),
                    (true, false) => Action::Answer(*status, None),
                    (false, true) => Action::ForwardAtDeadline,
                    (false, false) => Action::Forward,
                }
            }
            Fault::Throttle { every, retry_after } => {
                if seen.is_multiple_of(*every) {
                    self.fired = true;
                    Action::Answer(429, Some(*retry_after))
                } else {
                    Action::Forward
                }
            }
            Fault::Hook(hook) => {
                let action = hook(call);
                self.fired |= action != Action::Forward;
                action
            }
        }
    }
}

/// The Status object with which an API server would say it.
#[must_use]
pub fn status_object(code: u16, call: &Call, retry_after: Option<u32>) -> Value {
    let target = &call.target;
    let name = call.name.as_deref().unwrap_or_default();
    let qualified = if target.group.is_empty() {
        target.resource.clone()
    } else {
        format!("{}.{}", target.resource, target.group)
    };
    let place = target.namespace.as_ref().map_or_else(
        || "at the cluster scope".to_owned(),
        |namespace| format!("in the namespace \"{namespace}\""),
    );
    let (reason, message) = match code {
        401 => ("Unauthorized", "Unauthorized".to_owned()),
        403 => (
            "Forbidden",
            format!(
                "{qualified}{} is forbidden: User \"system:serviceaccount:harness:step\" cannot {} resource \"{}\" in \
                 API group \"{}\" {place}",
                if name.is_empty() { String::new() } else { format!(" \"{name}\"") },
                call.verb,
                target.resource,
                target.group,
            ),
        ),
        404 => ("NotFound", format!("{qualified} \"{name}\" not found")),
        409 => (
            "Conflict",
            format!("Operation cannot be fulfilled on {qualified} \"{name}\": the object has been modified"),
        ),
        422 => (
            "Invalid",
            format!(
                "{qualified} \"{name}\" is invalid: spec: Invalid value: \"object\": refused by the harness"
            ),
        ),
        429 => ("TooManyRequests", "too many requests, please try again later".to_owned()),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        504 => ("Timeout", "request did not complete within the allotted timeout".to_owned()),
        _ => ("InternalError", "Internal error occurred: failed on purpose by the harness".to_owned()),
    };
    let causes = if code == 422 {
        json!([{"reason": "FieldValueInvalid", "message": "refused by the harness", "field": "spec"}])
    } else {
        json!([])
    };
    let mut details = json!({"name": name, "group": target.group, "kind": target.resource, "causes": causes});
    if let Some(seconds) = retry_after {
        details["retryAfterSeconds"] = seconds.into();
    }
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "details": details, "code": code,
    })
}
