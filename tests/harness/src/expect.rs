//! What must hold when a call fails for good: one table for all steps.

use std::fmt;

use crate::call::{Call, Class, LeaseUse, Verb};

/// How far a run had come when a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Nothing is stored yet.
    Preflight,
    /// The journal is begun, no move is made.
    Journalled,
    /// Moves are under way.
    Acting,
    /// All moves but those without undo are made, none of these is: the last moment to turn back.
    Brink,
    /// Past the point of no return.
    Beyond,
    /// All moves are made.
    Closing,
}

impl Stage {
    /// Tells the stage from the calls that the run made before, and from how many moves an undisturbed run makes.
    ///
    /// `for_good` says of a move whether it stands behind the point of no return.
    #[must_use]
    pub fn of(
        struck: &Call,
        before: &[Call],
        undisturbed: &[Call],
        for_good: impl Fn(&Call) -> bool,
    ) -> Self {
        let moves = |calls: &[Call]| {
            let made: Vec<bool> = calls
                .iter()
                .filter(|call| call.class == Class::Move && call.succeeded())
                .map(&for_good)
                .collect();
            let behind = made.iter().filter(|behind| **behind).count();
            (made.len() - behind, behind)
        };
        let (made, made_behind) = moves(before);
        let (all, all_behind) = moves(undisturbed);
        let is_move = struck.class == Class::Move;
        if all + all_behind == 0 && !is_move {
            // Without a move nothing tells when it is done but that it says so, or that it reads what it has read before:
            // it looks again then.
            let says_so = |call: &Call| call.class == Class::Report && call.is_write();
            let again = |call: &Call| {
                call.class == Class::Read
                    && call.class == struck.class
                    && call.succeeded()
                    && call.key() == struck.key()
            };
            let reported = says_so(struck) || before.iter().any(|call| says_so(call) || again(call));
            let locked = |call: &Call| call.class == Class::Lease(LeaseUse::Hold) && call.succeeded();
            match (reported, before.iter().any(locked)) {
                (true, _) => Self::Closing,
                (false, true) => Self::Journalled,
                (false, false) => Self::Preflight,
            }
        } else if made + made_behind >= all + all_behind && !is_move {
            Self::Closing
        } else if made_behind > 0 || (is_move && for_good(struck)) {
            Self::Beyond
        } else if all_behind > 0 && made >= all && !is_move {
            Self::Brink
        } else if made > 0 || is_move {
            Self::Acting
        } else if before
            .iter()
            .any(|call| call.class == Class::Journal && call.is_write() && call.succeeded())
        {
            Self::Journalled
        } else {
            Self::Preflight
        }
    }
}

/// What a run leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leaves {
    /// The state before the run, the very same objects, and not one move sent.
    Untouched,
    /// The state before the run; objects that it had deleted already may be others of the same name.
    Restored,
    /// The state after an undisturbed run.
    Done,
    /// Whatever: the next run puts it right.
    Anything,
}

/// An end that a run may come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Allowed {
    /// Its exit code.
    pub exit: i32,
    /// What it leaves behind.
    pub leaves: Leaves,
}

impl fmt::Display for Allowed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "exit {} ({:?})", self.exit, self.leaves)
    }
}

const DONE: Allowed = Allowed { exit: 0, leaves: Leaves::Done };
const STOPPED: Allowed = Allowed { exit: 1, leaves: Leaves::Anything };
const STOPPED_EARLY: Allowed = Allowed { exit: 1, leaves: Leaves::Untouched };
const REFUSED: Allowed = Allowed { exit: 3, leaves: Leaves::Untouched };
const GIVEN_UP: Allowed = Allowed { exit: 4, leaves: Leaves::Untouched };
const RESTORED: Allowed = Allowed { exit: 4, leaves: Leaves::Restored };
const NOT_RESTORED: Allowed = Allowed { exit: 5, leaves: Leaves::Anything };
const UNFINISHED: Allowed = Allowed { exit: 6, leaves: Leaves::Anything };

/// The table: to which ends a run may come when a call of this class fails for good at this stage.
///
/// | call | preflight | journalled | acting | brink | beyond | closing |
/// |---|---|---|---|---|---|---|
/// | taking or reading the lock | 1 | 1 | 1 | 1 | 1 | 1 |
/// | renewing it, in a run that may end before the lock runs out; looking for another one again | 1 or 0 | ← | ← | ← | ← | ← |
/// | giving it back; Event; the cluster's version | 0 | 0 | 0 | 0 | 0 | 0 |
/// | report | 3 | 0 | 0 | 0 | 0 | 0 |
/// | journal | 3 | 3 or 4 | 4 or 1 | 4 or 1 | 6 or 1 | 0 or 1 |
/// | a move | - | - | 4 | - | 6 | - |
/// | discovery, access review, dry-run, read | 3 | 3 or 4 | 4 | 4 or 6 | 6 | 0 or 4 (6) |
/// | watch, and the list that begins one | 3 or 0 | 3, 4 or 0 | 4 or 0 | 4, 6 or 0 | 6 or 0 | 0 or 4 (6) |
///
/// - Exits 3 and 4 up to `journalled`, and 1 in preflight, leave every object untouched.
/// - A read after the last move belongs to a wait, which fails the step, or to looking again, which does not.
/// - A watch that fails may be replaced by lists.
/// - A journal that cannot be closed leaves a run that is done (0) or that the next one closes (1).
#[must_use]
pub fn allowed(call: &Call, stage: Stage, has_point_of_no_return: bool) -> Vec<Allowed> {
    match (call.class, stage) {
        (Class::Lease(LeaseUse::Release) | Class::Event, _) => vec![DONE],
        // Only people want to know it.
        (Class::Discovery, _) if call.path == "/version" => vec![DONE],
        (Class::Lease(_), _) if call.renews || (call.verb == Verb::List && call.nth > 1) => {
            vec![STOPPED, DONE]
        }
        (Class::Lease(_), Stage::Preflight) => vec![STOPPED_EARLY],
        (Class::Lease(_), _) => vec![STOPPED],
        (Class::Report, Stage::Preflight) => vec![REFUSED],
        (Class::Report, _) => vec![DONE],
        (Class::Journal, Stage::Acting | Stage::Brink) => vec![RESTORED, STOPPED],
        (Class::Journal, Stage::Beyond) => vec![UNFINISHED, STOPPED],
        (Class::Journal, Stage::Closing) => vec![DONE, STOPPED],
        (Class::Move, Stage::Beyond) => vec![UNFINISHED],
        (Class::Move, _) => vec![RESTORED],
        (class, stage) => {
            let mut ends = match stage {
                Stage::Preflight => vec![REFUSED],
                Stage::Journalled => vec![REFUSED, GIVEN_UP],
                Stage::Acting => vec![RESTORED],
                Stage::Brink => vec![RESTORED, UNFINISHED],
                Stage::Beyond => vec![UNFINISHED],
                Stage::Closing if has_point_of_no_return => vec![DONE, UNFINISHED],
                Stage::Closing => vec![DONE, RESTORED],
            };
            if (class == Class::Watch || call.begins_watch()) && !ends.contains(&DONE) {
                ends.push(DONE);
            }
            ends
        }
    }
}

/// What a run must log when it goes on without this call: nobody would miss a report that was never there.
#[must_use]
pub fn owed(struck: &Call) -> Option<&'static str> {
    match struck.class {
        Class::Report => Some("the report could not be written"),
        Class::Event => Some("the Event could not be published"),
        Class::Lease(LeaseUse::Release) => Some("the lock could not be released"),
        _ => None,
    }
}

/// Adds exit 5 where undo needs the very call that fails: then nobody can restore, and the journal stays open.
///
/// That is so when the run has already written what the failing call is about: the object, or for a collection
/// anything in it. It is so too when the journal cannot be written: an undo is marked there before it begins.
#[must_use]
pub fn with_blocked_undo(mut ends: Vec<Allowed>, struck: &Call, before: &[Call]) -> Vec<Allowed> {
    let about = |written: &Call| match &struck.name {
        Some(_) => written.same_object(struck),
        None => {
            written.target.resource == struck.target.resource && written.target.group == struck.target.group
        }
    };
    let written = before.iter().any(|call| call.class == Class::Move && call.succeeded() && about(call));
    let unmarked = struck.class == Class::Journal && struck.is_write();
    if (written || unmarked) && ends.contains(&RESTORED) {
        ends.push(NOT_RESTORED);
    }
    ends
}

/// Adds exit 3 where the lock is had only when the deadline has passed: nothing was begun.
#[must_use]
pub fn with_late_lock(mut ends: Vec<Allowed>, struck: &Call, stage: Stage) -> Vec<Allowed> {
    if matches!(struck.class, Class::Lease(_)) && stage == Stage::Preflight {
        ends.push(REFUSED);
    }
    ends
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;
    use crate::call::Fate;

    fn call(method: &str, path: &str, name: &str) -> Call {
        let body = if method == "GET" { Value::Null } else { json!({"metadata": {"name": name}}) };
        let mut call =
            Call::new(&method.parse().unwrap(), path, "", Bytes::from(body.to_string()), Duration::ZERO);
        call.status = Some(200);
        call.fate = Fate::Answered;
        call
    }

    fn exits(call: &Call, stage: Stage) -> Vec<i32> {
        allowed(call, stage, false).iter().map(|end| end.exit).collect()
    }

    const PODS: &str = "/api/v1/namespaces/a/pods";
    const SECRETS: &str = "/api/v1/namespaces/a/secrets";

    fn run() -> Vec<Call> {
        vec![
            call("GET", "/apis", ""),
            call("POST", SECRETS, "belay-x"),
            call("GET", "/api/v1/namespaces/a/pods/one", ""),
            call("POST", PODS, "one"),
            call("GET", PODS, ""),
            call("DELETE", "/api/v1/namespaces/a/pods/two", ""),
            call("GET", PODS, ""),
            call("DELETE", "/api/v1/namespaces/a/pods/last", ""),
            call("POST", "/api/v1/namespaces/a/configmaps", "belay-report-x"),
        ]
    }

    #[test]
    fn the_stage_is_told_from_the_calls_before() {
        use Stage::{Acting, Beyond, Brink, Closing, Journalled, Preflight};
        let run = run();
        let stages = |for_good: &dyn Fn(&Call) -> bool| -> Vec<Stage> {
            (0..run.len()).map(|at| Stage::of(&run[at], &run[..at], &run, for_good)).collect()
        };
        assert_eq!(
            stages(&|_| false),
            [Preflight, Preflight, Journalled, Acting, Acting, Acting, Acting, Acting, Closing]
        );
        assert_eq!(
            stages(&|call| call.name.as_deref() == Some("last")),
            [Preflight, Preflight, Journalled, Acting, Acting, Acting, Brink, Beyond, Closing]
        );
    }

    #[test]
    fn a_step_that_only_reads_is_not_closing_from_the_start() {
        use Stage::{Closing, Journalled, Preflight};
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases";
        let mut take = call("POST", lease, "belay-f");
        take.class = Class::Lease(LeaseUse::Hold);
        let run = [
            call("GET", "/apis", ""),
            take,
            call("GET", PODS, ""),
            call("GET", PODS, ""),
            call("POST", "/api/v1/namespaces/a/configmaps", "belay-report-x"),
            call("POST", "/apis/events.k8s.io/v1/namespaces/a/events", "x"),
        ];
        let stages: Vec<Stage> =
            (0..run.len()).map(|at| Stage::of(&run[at], &run[..at], &run, |_| false)).collect();
        assert_eq!(stages, [Preflight, Preflight, Journalled, Closing, Closing, Closing]);
        assert_eq!(exits(&run[2], stages[2]), [3, 4]);
    }

    #[test]
    fn what_is_only_logged_is_owed_a_sentence() {
        let report = call("POST", "/api/v1/namespaces/a/configmaps", "belay-report-x");
        assert_eq!(owed(&report), Some("the report could not be written"));
        assert_eq!(owed(&call("GET", PODS, "")), None);
    }

    #[test]
    fn before_the_first_move_a_failure_refuses_and_touches_nothing() {
        for call in [call("GET", "/apis", ""), call("POST", SECRETS, "belay-x"), call("GET", PODS, "")] {
            assert_eq!(allowed(&call, Stage::Preflight, false), [REFUSED], "{call}");
        }
        let review = call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "");
        assert_eq!(exits(&review, Stage::Preflight), [3]);
        assert_eq!(exits(&call("GET", PODS, ""), Stage::Journalled), [3, 4]);
    }

    #[test]
    fn a_failed_move_is_taken_back_or_past_the_point_of_no_return_left_for_the_next_run() {
        assert_eq!(allowed(&call("POST", PODS, "one"), Stage::Acting, false), [RESTORED]);
        assert_eq!(exits(&call("POST", PODS, "one"), Stage::Beyond), [6]);
        assert_eq!(exits(&call("GET", PODS, ""), Stage::Beyond), [6]);
    }

    #[test]
    fn a_lock_that_cannot_be_taken_stops_the_run_and_one_that_cannot_be_given_back_does_not() {
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/belay-f";
        assert_eq!(exits(&call("GET", lease, ""), Stage::Preflight), [1]);
        assert_eq!(exits(&call("DELETE", lease, ""), Stage::Closing), [0]);
        let mut renewal = call("GET", lease, "");
        renewal.renews = true;
        assert_eq!(exits(&renewal, Stage::Acting), [1, 0]);
        let mut list = call("GET", "/apis/coordination.k8s.io/v1/leases", "");
        assert_eq!(exits(&list, Stage::Preflight), [1]);
        list.nth = 2;
        assert_eq!(exits(&list, Stage::Preflight), [1, 0]);
    }

    #[test]
    fn nobody_needs_the_version_of_the_cluster() {
        for stage in [Stage::Preflight, Stage::Journalled, Stage::Closing] {
            assert_eq!(exits(&call("GET", "/version", ""), stage), [0]);
        }
    }

    #[test]
    fn after_success_report_and_event_only_log() {
        assert_eq!(
            exits(&call("POST", "/api/v1/namespaces/a/configmaps", "belay-report-x"), Stage::Closing),
            [0]
        );
        assert_eq!(
            exits(&call("POST", "/apis/events.k8s.io/v1/namespaces/a/events", "x"), Stage::Closing),
            [0]
        );
    }

    #[test]
    fn undo_that_needs_the_failing_call_may_end_in_5() {
        let create = call("POST", PODS, "one");
        let ends = |before: &[Call]| with_blocked_undo(vec![RESTORED], &create, before).len();
        assert_eq!(ends(&[]), 1);
        assert_eq!(ends(&[call("DELETE", "/api/v1/namespaces/a/pods/two", "")]), 1);
        assert_eq!(ends(&[call("DELETE", "/api/v1/namespaces/a/pods/one", "")]), 2);
        let journal = call("PUT", "/api/v1/namespaces/a/secrets/belay-x", "belay-x");
        assert_eq!(with_blocked_undo(vec![RESTORED], &journal, &[]), [RESTORED, NOT_RESTORED]);
        assert_eq!(with_blocked_undo(vec![REFUSED], &create, std::slice::from_ref(&create)), [REFUSED]);
    }
}
