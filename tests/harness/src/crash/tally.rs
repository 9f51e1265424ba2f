//! What came of the points of a scenario.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::crash::{
    mode::Mode,
    point::Point,
    sample::{Kind, groups},
};

/// A point that did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The point.
    pub point: Point,
    /// The call that was hit, as far as known.
    pub call: Option<String>,
    /// What did not hold, and the logs.
    pub why: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "{}", self.point)?;
        if let Some(call) = &self.call {
            writeln!(out, "  {call}")?;
        }
        self.why.lines().try_for_each(|line| writeln!(out, "  {line}"))
    }
}

/// What came of a mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Points that held.
    pub held: usize,
    /// Points that were tried.
    pub tried: usize,
    /// How long they took together.
    pub took: Duration,
}

impl Score {
    /// Adds another to it.
    pub(super) fn add(&mut self, other: Self) {
        self.held += other.held;
        self.tried += other.tried;
        self.took += other.took;
    }
}

impl fmt::Display for Score {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.took.as_secs_f64() / f64::from(u32::try_from(self.tried).unwrap_or(u32::MAX).max(1));
        write!(out, "{} of {}, {each:.1} s each", self.held, self.tried)
    }
}

/// The result of all points of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// The scenario's name.
    pub name: String,
    /// Calls of an undisturbed run.
    pub calls: usize,
    /// By mode.
    pub points: BTreeMap<Mode, Score>,
    /// The points that were chosen.
    pub chosen: Vec<Point>,
    /// How many points there are, in how many groups of those that cannot differ by much.
    pub all: (usize, usize),
    /// Calls that are no points, and why.
    pub left_out: Vec<String>,
    /// Points at a watch that a run did not need: they hit the release of the lock.
    pub unwatched: Vec<Point>,
    /// Points that did not hold.
    pub failures: Vec<Failure>,
    /// Why the scenario could not be set up on an API server.
    pub not_opened: Vec<String>,
    /// Points that were not tried after too many failures.
    pub untried: usize,
    /// How long each point took.
    pub times: Vec<(Duration, Point)>,
    /// From the setup to the last point.
    pub took: Duration,
}

impl Tally {
    /// Points that held, and points that were chosen.
    #[must_use]
    pub fn total(&self) -> (usize, usize) {
        (self.points.values().map(|score| score.held).sum(), self.chosen.len())
    }

    /// Whether every chosen point was tried and held.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.wrong().is_empty()
    }

    /// What did not hold, a sentence each.
    pub(super) fn wrong(&self) -> Vec<String> {
        let failed = |failure: &Failure| format!("{}: {}", failure.point, first_line(&failure.why));
        let mut wrong: Vec<String> = self.failures.iter().map(failed).collect();
        wrong.extend(self.not_opened.iter().map(|why| first_line(why).to_owned()));
        if self.untried > 0 {
            wrong.push(format!("{} points were not tried after so many failures", self.untried));
        }
        if wrong.is_empty() && self.total().0 != self.total().1 {
            wrong.push("points were chosen and not tried".to_owned());
        }
        wrong.into_iter().map(|sentence| format!("{}: {sentence}", self.name)).collect()
    }

    /// Which points were chosen: each of a sample, else only how many.
    pub(super) fn choice(&self) -> Vec<String> {
        let (points, in_groups) = self.all;
        let mut lines = vec![format!(
            "{}: {} of {points} points chosen, {} of {in_groups} groups",
            self.name,
            self.chosen.len(),
            groups(&self.chosen)
        )];
        if self.chosen.len() < points {
            let mut of_kinds: BTreeMap<Kind, usize> = BTreeMap::new();
            for point in &self.chosen {
                *of_kinds.entry(point.kind).or_default() += 1;
                lines.push(format!("{}: chosen: {point}", self.name));
            }
            let of_kinds: Vec<String> =
                of_kinds.iter().map(|(kind, count)| format!("{kind:?} {count}")).collect();
            lines.push(format!("{}: kinds of calls: {}", self.name, of_kinds.join(", ")));
        }
        lines.extend(self.left_out.iter().map(|call| format!("{}: no point: {call}", self.name)));
        lines
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(out, "{}: FAILED {failure}", self.name)?;
        }
        for why in &self.not_opened {
            writeln!(out, "{}: FAILED {why}", self.name)?;
        }
        for line in self.choice() {
            writeln!(out, "{line}")?;
        }
        for point in &self.unwatched {
            writeln!(out, "{}: {point}: no watch was needed, so the release of the lock was hit", self.name)?;
        }
        for (mode, score) in &self.points {
            writeln!(out, "{}: {mode}: {score}", self.name)?;
        }
        let (held, all) = self.total();
        writeln!(out, "crash points: {held} of {all} ({}, {} calls)", self.name, self.calls)?;
        writeln!(out, "{}: {:.0} s", self.name, self.took.as_secs_f64())
    }
}

pub(super) fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::{Place, sample::Group};

    fn tally() -> Tally {
        let point = |mode| Point { mode, place: Place::FirstMoves, group: Group::Deaths, kind: Kind::Move };
        let score = Score { held: 1, tried: 1, took: Duration::from_secs(3) };
        Tally {
            name: "fixture".to_owned(),
            chosen: vec![point(Mode::DieBefore), point(Mode::DieAfter)],
            points: BTreeMap::from([(Mode::DieBefore, score), (Mode::DieAfter, score)]),
            all: (2, 2),
            ..Tally::default()
        }
    }

    #[test]
    fn a_run_is_good_when_every_chosen_point_was_tried_and_held() {
        assert!(tally().is_good());
        let mut one_missing = tally();
        one_missing.points.remove(&Mode::DieAfter);
        assert_eq!(one_missing.wrong(), ["fixture: points were chosen and not tried"]);
        let failure = Failure { point: tally().chosen[0].clone(), call: None, why: "lost\nlog".to_owned() };
        let failed = Tally { failures: vec![failure], ..tally() };
        assert_eq!(failed.wrong(), ["fixture: die-before at the first move of each run: lost"]);
        assert!(!Tally { untried: 1, ..tally() }.is_good());
        assert!(!Tally { not_opened: vec!["no CRD".to_owned()], ..tally() }.is_good());
    }

    #[test]
    fn a_sample_names_its_points_and_a_whole_run_only_counts_them() {
        assert_eq!(tally().choice(), ["fixture: 2 of 2 points chosen, 2 of 2 groups"]);
        let sample = Tally { all: (900, 80), ..tally() };
        assert_eq!(
            sample.choice(),
            [
                "fixture: 2 of 900 points chosen, 2 of 80 groups",
                "fixture: chosen: die-before at the first move of each run",
                "fixture: chosen: die-after at the first move of each run",
                "fixture: kinds of calls: Move 2",
            ]
        );
    }

    #[test]
    fn a_run_ends_with_the_points_and_the_seconds() {
        let told = Tally { took: Duration::from_secs(70), calls: 61, ..tally() }.to_string();
        assert!(told.contains("fixture: die-after: 1 of 1, 3.0 s each\n"), "{told}");
        assert!(told.ends_with("crash points: 2 of 2 (fixture, 61 calls)\nfixture: 70 s\n"), "{told}");
    }
}
