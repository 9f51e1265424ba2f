//! Points: a call by name, and what happens to it.

use std::{collections::BTreeMap, fmt};

use crate::{
    call::{Call, Class, Name, Verb},
    crash::{
        mode::Mode,
        sample::{Group, Kind},
    },
    expect::Stage,
};

/// Where in a run things go wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// At the call of this name.
    Call(Name),
    /// At the watch of this name. A wait that is over with the list before it needs none: then at the latest where the lock
    /// is released.
    Watch(Name),
    /// At a renewal of the lock. When one is made depends on the clock, so a call is held back until it is.
    Renewal {
        /// The call that is held back.
        held: Name,
    },
    /// At the first move of each of several runs.
    FirstMoves,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(name) | Self::Watch(name) => write!(out, "{name}"),
            Self::Renewal { held } => write!(out, "a renewal of the lock before {held}"),
            Self::FirstMoves => out.write_str("the first move of each run"),
        }
    }
}

/// A place in a run and what happens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// What happens.
    pub mode: Mode,
    /// Where.
    pub place: Place,
    /// Points of a mode that share this cannot differ, or not by much.
    pub(super) group: Group,
    /// The kind of the call.
    pub(super) kind: Kind,
}

impl fmt::Display for Point {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} at {}", self.mode, self.place)
    }
}

/// A call of a script.
pub(super) struct Line {
    /// Its number in what `--show` prints.
    pub(super) number: String,
    pub(super) call: Call,
    pub(super) stage: Stage,
    /// Why it is no point; none: it is one.
    pub(super) left_out: Option<&'static str>,
}

impl fmt::Display for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.number, self.call)
    }
}

/// Why a call is no point.
const RENEWS: &str = "the lock may be renewed then: that depends on the clock";
const ONLY_ONE: &str = "only one of two runs made it";
const CONDITIONAL: &str = "it is made where somebody else was faster, or something is not gone yet";

/// The calls that every run makes: what two runs made, without what is made only on some condition.
#[derive(Default)]
pub(super) struct Script {
    pub(super) lines: Vec<Line>,
    /// Calls that only the other of the two runs made.
    only_other: Vec<Name>,
}

/// How often a run makes a call, and how often it surely does.
#[derive(Clone, Copy, Default)]
struct Count {
    made: u32,
    surely: u32,
}

/// How often a run makes each call. From a place on it has turned to something else, and does not depend on what was
/// written before: undo looks at every object.
fn count(calls: &[Call], from: usize) -> BTreeMap<String, Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for (at, call) in calls.iter().enumerate() {
        let before = if at < from { &calls[..at] } else { &calls[from..at] };
        let count = counts.entry(call.what()).or_default();
        count.made += 1;
        count.surely += u32::from(!call.renews && !is_conditional(call, before));
    }
    counts
}

/// Whether a call is made only because of what others did: an object is read again, and written again, when somebody has
/// changed it meanwhile, and looked at after its delete until it is gone.
#[must_use]
pub fn is_conditional(call: &Call, before: &[Call]) -> bool {
    let about = |other: &&Call| other.is_write() && !other.renews && other.same_object(call);
    let last = before.iter().rev().find(about).filter(|_| call.name.is_some());
    last.is_some_and(|write| {
        let conflict = matches!(write.status, Some(409 | 422));
        conflict || (write.verb == Verb::Delete && write.succeeded() && call.verb == Verb::Get)
    })
}

impl Script {
    /// Compares the calls of two runs, each with the place from which on its calls matter. Numbers begin with `prefix`,
    /// and `stage` tells how far the first run had come at a call.
    pub(super) fn new(
        prefix: &str,
        (one, from): (&[Call], usize),
        (other, other_from): (&[Call], usize),
        stage: impl Fn(usize) -> Stage,
    ) -> Self {
        let (of_one, of_other) = (count(one, from), count(other, other_from));
        let counts = |what: &str| {
            let of = |counts: &BTreeMap<String, Count>| counts.get(what).copied().unwrap_or_default();
            let (one, other) = (of(&of_one), of(&of_other));
            Count { made: one.made.min(other.made), surely: one.surely.min(other.surely) }
        };
        let line = |(at, call): (usize, &Call)| {
            let Count { made, surely } = counts(&call.what());
            let left_out = match call.nth {
                _ if call.renews => Some(RENEWS),
                nth if nth > made => Some(ONLY_ONE),
                nth if nth > surely => Some(CONDITIONAL),
                _ => None,
            };
            Line {
                number: format!("{prefix}{}", at + 1 - from),
                stage: stage(at),
                left_out,
                call: call.clone(),
            }
        };
        let later = &other[other_from..];
        let only_other = later.iter().filter(|call| !call.renews && call.nth > counts(&call.what()).made);
        Self {
            lines: one.iter().enumerate().skip(from).map(line).collect(),
            only_other: only_other.map(Call::named).collect(),
        }
    }

    /// The points of a mode at these calls, by number or by name; none given: at all calls.
    pub(super) fn points(&self, mode: Mode, wanted: &[String]) -> Vec<Point> {
        let mut writes = 0;
        let mut points = Vec::new();
        for Line { number, call, stage, left_out } in &self.lines {
            let written_before = writes;
            writes += usize::from(call.is_write() && !call.renews);
            let chosen =
                wanted.is_empty() || wanted.contains(number) || wanted.contains(&call.named().to_string());
            if left_out.is_some() || !mode.suits(call) || !chosen {
                continue;
            }
            let written = match mode {
                Mode::KillAfter | Mode::KillAfterInUndo => writes,
                _ => written_before,
            };
            let place = if call.class == Class::Watch {
                Place::Watch(call.named())
            } else {
                Place::Call(call.named())
            };
            let group = Group::new(mode, call, *stage, written);
            points.push(Point { mode, place, group, kind: Kind::of(call) });
        }
        if mode.suits_renewal() && wanted.is_empty() {
            points.extend(self.renewal(mode));
        }
        points
    }

    /// A renewal while the first move is made, or the report of a run that makes none.
    fn renewal(&self, mode: Mode) -> Option<Point> {
        let sure = || self.lines.iter().filter(|line| line.left_out.is_none()).map(|line| &line.call);
        let held = sure()
            .find(|call| call.class == Class::Move)
            .or_else(|| sure().find(|call| call.class == Class::Report && call.is_write()))?;
        let place = Place::Renewal { held: held.named() };
        Some(Point { mode, place, group: Group::Renewal, kind: Kind::Renewal })
    }

    /// The calls that are no points, with the reason.
    pub(super) fn left_out(&self) -> Vec<String> {
        let of_this = self
            .lines
            .iter()
            .filter_map(|line| Some(format!("{}: {}", line.call.named(), line.left_out?)))
            .collect::<Vec<_>>();
        let of_other = self.only_other.iter().map(|name| format!("{name}: {ONLY_ONE}"));
        of_this.into_iter().chain(of_other).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::call::Fate;

    fn call(method: &str, path: &str, name: &str, nth: u32) -> Call {
        let body = if method == "POST" {
            Bytes::from(json!({"metadata": {"name": name}}).to_string())
        } else {
            Bytes::new()
        };
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut call = Call::new(&method.parse().unwrap(), path, query, body, Duration::ZERO);
        call.nth = nth;
        call
    }

    const PODS: &str = "/api/v1/namespaces/a/pods";

    #[test]
    fn only_what_both_of_two_runs_do_is_a_point_whatever_the_order() {
        let read = call("GET", PODS, "", 1);
        let create = call("POST", PODS, "x", 1);
        let again = call("GET", PODS, "", 2);
        let mut renewal = call("GET", "/apis/coordination.k8s.io/v1/leases", "", 1);
        renewal.renews = true;
        let one = [read.clone(), create.clone(), again.clone(), renewal];
        let other = [create, read, call("GET", "/api/v1/nodes", "", 1)];
        let script = Script::new("", (&one, 0), (&other, 0), |_| Stage::Acting);
        let points = script.points(Mode::LoseAnswer, &[]);
        let told: Vec<String> = points.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                format!("lose-answer at Read: list {PODS}"),
                format!("lose-answer at Move: create {PODS} x"),
                format!("lose-answer at a renewal of the lock before Move: create {PODS} x"),
            ]
        );
        let left_out = script.left_out();
        assert_eq!(left_out.len(), 3, "{left_out:?}");
        assert_eq!(left_out[0], format!("Read: list {PODS} #2: {ONLY_ONE}"));
        assert!(left_out[1].contains("depends on the clock"));
        assert!(left_out[2].starts_with("Read: list /api/v1/nodes: only one"));
    }

    #[test]
    fn what_is_made_again_after_a_conflict_or_until_something_is_gone_is_no_point() {
        let pod = format!("{PODS}/x");
        let answered = |mut call: Call, status| {
            call.status = Some(status);
            call.fate = Fate::Answered;
            call
        };
        let run = [
            answered(call("PATCH", &pod, "", 1), 200),
            answered(call("PATCH", &pod, "", 2), 422),
            answered(call("GET", &pod, "", 1), 200),
            answered(call("PATCH", &pod, "", 3), 200),
            answered(call("GET", &pod, "", 2), 200),
            answered(call("DELETE", &pod, "", 1), 200),
            answered(call("GET", &pod, "", 3), 200),
            answered(call("POST", PODS, "x", 1), 201),
        ];
        let script = Script::new("", (&run, 0), (&run, 0), |_| Stage::Acting);
        let left_out: Vec<&str> = script
            .lines
            .iter()
            .filter(|line| line.left_out == Some(CONDITIONAL))
            .map(|line| line.number.as_str())
            .collect();
        // Of three patches two are sure, and of three reads one: which one a run leaves out nobody knows, but the first is
        // always made.
        assert_eq!(left_out, ["4", "5", "7"]);
    }

    #[test]
    fn a_call_can_be_chosen_by_the_number_or_the_name_that_is_shown() {
        let before = call("GET", PODS, "", 1);
        let run = [before, call("GET", PODS, "", 2), call("POST", PODS, "x", 1)];
        let script = Script::new("u", (&run, 1), (&run, 1), |_| Stage::Acting);
        assert!(script.left_out().is_empty(), "what came before counts: {:?}", script.left_out());
        let numbers: Vec<&str> = script.lines.iter().map(|line| line.number.as_str()).collect();
        assert_eq!(numbers, ["u1", "u2"]);
        for wanted in ["u2".to_owned(), format!("Move: create {PODS} x")] {
            let points = script.points(Mode::KillBeforeInUndo, &[wanted]);
            assert_eq!(points.len(), 1);
            assert_eq!(points[0].place, Place::Call(run[2].named()));
        }
    }
}
