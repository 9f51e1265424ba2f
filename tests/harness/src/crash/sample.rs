//! Which points a short run takes: of every mode of every scenario at least one, and all kinds of calls in turn.
//!
//! The choice depends on nothing but the points, the scenario's place in the suite and a seed, so that two runs take the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    call::{Call, Class, LeaseUse, Name, Verb},
    crash::{mode::Mode, point::Point},
    expect::Stage,
};

/// What a call is for, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Move,
    Journal,
    Watch,
    Lock,
    Read,
    Report,
    DryRun,
    Release,
    Renewal,
    AccessReview,
    Event,
    Discovery,
}

impl Kind {
    /// All but the moves, in the order of turns; the journal twice, since everything else depends on it.
    const OTHERS: [Self; 12] = [
        Self::Journal,
        Self::Watch,
        Self::Lock,
        Self::Read,
        Self::Journal,
        Self::Report,
        Self::DryRun,
        Self::Release,
        Self::Renewal,
        Self::AccessReview,
        Self::Event,
        Self::Discovery,
    ];

    pub(super) fn of(call: &Call) -> Self {
        match call.class {
            Class::Move => Self::Move,
            Class::Journal => Self::Journal,
            Class::Watch => Self::Watch,
            Class::Lease(LeaseUse::Release) => Self::Release,
            Class::Lease(_) => Self::Lock,
            Class::Read if call.begins_watch() => Self::Watch,
            Class::Read => Self::Read,
            Class::Report => Self::Report,
            Class::DryRun => Self::DryRun,
            Class::AccessReview => Self::AccessReview,
            Class::Event => Self::Event,
            Class::Discovery => Self::Discovery,
        }
    }
}

/// What points of a mode have in common that cannot differ, or not by much.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Group {
    /// Killed when so many writes were made: whatever was read since, the cluster and the journal are the same.
    Written(usize),
    /// Killed at this watch.
    Watch(Name),
    /// The API server goes away at this stage, while the step reads, writes or watches.
    Stage(Stage, Doing),
    /// A call of this class and verb at this stage.
    Call(Class, Verb, Stage),
    /// A renewal of the lock.
    Renewal,
    /// Dying again and again is one point.
    Deaths,
}

/// What a step does when the API server goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Doing {
    Reading,
    Writing,
    Watching,
}

impl Group {
    /// The group of a call in a mode; `written` counts the writes that have been made when things go wrong.
    pub(super) fn new(mode: Mode, call: &Call, stage: Stage, written: usize) -> Self {
        match mode {
            mode if mode.kills() && call.class == Class::Watch => Self::Watch(call.named()),
            mode if mode.kills() => Self::Written(written),
            Mode::Outage if call.class == Class::Watch => Self::Stage(stage, Doing::Watching),
            Mode::Outage if call.is_write() => Self::Stage(stage, Doing::Writing),
            Mode::Outage => Self::Stage(stage, Doing::Reading),
            _ => Self::Call(call.class, call.verb, stage),
        }
    }
}

/// One point of each group, in the order of the run: where the step is killed before a call that is the write which ends
/// the group, and else the first.
pub(super) fn representatives(points: &[Point]) -> BTreeMap<Mode, Vec<&Point>> {
    let mut of_modes: BTreeMap<Mode, Vec<&Point>> = BTreeMap::new();
    for point in points {
        let chosen = of_modes.entry(point.mode).or_default();
        let before = matches!(point.mode, Mode::KillBefore | Mode::KillBeforeInUndo);
        match chosen.iter_mut().find(|other| other.group == point.group) {
            Some(other) if before => *other = point,
            Some(_) => {}
            None => chosen.push(point),
        }
    }
    of_modes
}

/// At most so many points, no two of a group; but of each mode that has points at least one.
///
/// Every other one hits a move, since moves are what differs most between steps. The rest goes through the other kinds of
/// calls: each mode begins with another kind, and so does each scenario, whose number tells its place in the suite.
pub(super) fn choose(points: &[Point], scenario: usize, at_most: usize) -> Vec<Point> {
    let mut left = representatives(points);
    let mut chosen = Vec::new();
    for round in 0.. {
        left.retain(|_, points| !points.is_empty());
        if left.is_empty() {
            break;
        }
        for (mode, points) in &mut left {
            if round > 0 && chosen.len() >= at_most {
                return chosen;
            }
            let number = Mode::ALL.iter().position(|other| other == mode).unwrap_or_default();
            let at = pick(points, scenario + number + round);
            chosen.push(points.remove(at).clone());
        }
    }
    chosen
}

/// Which of these points is taken at this turn.
fn pick(points: &[&Point], turn: usize) -> usize {
    let of_kind =
        |kind: Kind| (0..points.len()).filter(move |at| points[*at].kind == kind).collect::<Vec<_>>();
    let moves = of_kind(Kind::Move);
    let others: Vec<Vec<usize>> =
        Kind::OTHERS.map(of_kind).into_iter().filter(|places| !places.is_empty()).collect();
    let places = if others.is_empty() || (turn.is_multiple_of(2) && !moves.is_empty()) {
        &moves
    } else {
        &others[turn / 2 % others.len()]
    };
    places[turn / 2 % places.len()]
}

/// How many groups these points have.
pub(super) fn groups(points: &[Point]) -> usize {
    points.iter().map(|point| (point.mode, &point.group)).collect::<BTreeSet<_>>().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::point::Place;

    const KINDS: [(Kind, Class, Verb); 6] = [
        (Kind::Discovery, Class::Discovery, Verb::Get),
        (Kind::Read, Class::Read, Verb::List),
        (Kind::Journal, Class::Journal, Verb::Create),
        (Kind::Move, Class::Move, Verb::Create),
        (Kind::Move, Class::Move, Verb::Delete),
        (Kind::Report, Class::Report, Verb::Create),
    ];

    /// A run of so many calls of each kind, hit in every mode.
    fn points(of_each: usize) -> Vec<Point> {
        let mut points = Vec::new();
        for mode in Mode::ALL {
            for (at, (kind, class, verb)) in KINDS.iter().enumerate() {
                for nth in 0..of_each {
                    let name = Name { what: format!("{kind:?} {verb}"), nth: u32::try_from(nth).unwrap() };
                    let group = if mode.kills() {
                        Group::Written(at)
                    } else {
                        Group::Call(*class, *verb, Stage::Acting)
                    };
                    points.push(Point { mode, place: Place::Call(name), group, kind: *kind });
                }
            }
        }
        points
    }

    #[test]
    fn a_sample_has_every_mode_once_before_any_has_two_and_no_group_twice() {
        for (at_most, expected) in [(0, 15), (15, 15), (16, 16), (25, 25), (1000, 15 * KINDS.len())] {
            let chosen = choose(&points(3), 0, at_most);
            assert_eq!(chosen.len(), expected);
            assert_eq!(groups(&chosen), chosen.len(), "two points cannot differ");
            let of_first = chosen.iter().take(15).map(|point| point.mode).collect::<BTreeSet<_>>();
            assert_eq!(of_first.len(), 15);
        }
        assert!(choose(&[], 3, 150).is_empty());
    }

    #[test]
    fn a_mode_with_few_points_leaves_its_room_to_the_others() {
        let few: Vec<Point> = points(1)
            .into_iter()
            .filter(|point| point.mode != Mode::Outage || point.kind == Kind::Read)
            .filter(|point| point.mode != Mode::Terminate)
            .collect();
        let chosen = choose(&few, 0, 28);
        assert_eq!(chosen.len(), 28);
        assert_eq!(chosen.iter().filter(|point| point.mode == Mode::Outage).count(), 1);
    }

    #[test]
    fn over_ten_scenarios_half_of_the_points_hit_moves_and_each_mode_hits_every_kind_of_call() {
        let all: Vec<Vec<Point>> = (0..10).map(|scenario| choose(&points(2), scenario, 15)).collect();
        for mode in Mode::ALL {
            let of_mode = all.iter().flatten().filter(|point| point.mode == mode);
            let kinds: Vec<Kind> = of_mode.map(|point| point.kind).collect();
            assert_eq!(kinds.iter().filter(|kind| **kind == Kind::Move).count(), 5, "{mode}: {kinds:?}");
            assert_eq!(kinds.iter().collect::<BTreeSet<_>>().len(), 5, "{mode}: {kinds:?}");
        }
        for chosen in &all {
            let moves = chosen.iter().filter(|point| point.kind == Kind::Move).count();
            assert!((7..=8).contains(&moves), "{moves} of 15");
        }
    }

    #[test]
    fn the_choice_is_the_same_in_every_run() {
        assert_eq!(choose(&points(4), 7, 40), choose(&points(4), 7, 40));
        assert_ne!(choose(&points(4), 7, 15), choose(&points(4), 8, 15));
    }

    #[test]
    fn killed_before_a_read_is_killed_before_the_write_that_follows() {
        let point = |mode, kind, at: u32, written| Point {
            mode,
            place: Place::Call(Name { what: String::new(), nth: at }),
            group: Group::Written(written),
            kind,
        };
        let before = Mode::KillBefore;
        let calls = [
            point(before, Kind::Read, 1, 0),
            point(before, Kind::Move, 2, 0),
            point(before, Kind::Read, 3, 1),
        ];
        let representatives = representatives(&calls);
        assert_eq!(representatives[&before], [&calls[1], &calls[2]]);
        let after = Mode::KillAfter;
        let calls =
            [point(after, Kind::Read, 1, 0), point(after, Kind::Move, 2, 1), point(after, Kind::Read, 3, 1)];
        assert_eq!(super::representatives(&calls)[&after], [&calls[0], &calls[1]]);
    }
}
