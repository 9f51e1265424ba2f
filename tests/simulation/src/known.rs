//! What is known not to hold yet. Such a trial must fail, and in the way that is known: once it holds, it does not belong on
//! the list any more.

use std::{collections::BTreeMap, sync::LazyLock};

use anyhow::{Context as _, Result, ensure};

use crate::trial::HOLDS_NOW;

/// The list. Its head explains its lines.
const LISTED: &str = include_str!("../known.txt");

static KNOWN: LazyLock<Known> = LazyLock::new(|| Known::parse(LISTED).expect("known.txt"));

/// What is listed.
struct Known {
    /// How a reason shows: a trial that is listed for it says one of these.
    shows: BTreeMap<&'static str, Vec<&'static str>>,
    /// Why a trial does not hold, by scenario and trial.
    why: BTreeMap<(&'static str, &'static str), &'static str>,
}

impl Known {
    fn parse(listed: &'static str) -> Result<Self> {
        let mut known = Self { shows: BTreeMap::new(), why: BTreeMap::new() };
        for line in listed.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            if let Some((why, shows)) = line.strip_prefix("= ").and_then(|rest| rest.split_once(" | ")) {
                known.shows.entry(why).or_default().push(shows);
                continue;
            }
            let (trial, why) = line.split_once(" | ").context(line)?;
            let trial = trial.split_once(": ").context(line)?;
            ensure!(known.shows.contains_key(why), "nothing says how this shows: {why}");
            ensure!(known.why.insert(trial, why).is_none(), "is listed twice: {line}");
        }
        Ok(known)
    }
}

/// What came of a trial, where some are known not to hold yet.
pub fn judged(scenario: &str, trial: &str, tried: Result<()>) -> Result<()> {
    let Some(why) = KNOWN.why.get(&(scenario, trial)) else { return tried };
    let Err(error) = tried else { anyhow::bail!("{HOLDS_NOW}: {why}") };
    let told = format!("{error:#}");
    let shows = KNOWN.shows.get(why).is_some_and(|shows| shows.iter().any(|text| told.contains(text)));
    ensure!(shows, "it is listed as known, but fails in another way:\n{told}");
    Ok(())
}

/// The trials of a scenario that are listed.
pub fn trials_of(scenario: &str) -> impl Iterator<Item = &'static str> {
    KNOWN.why.keys().filter(move |(of, _)| *of == scenario).map(|(_, trial)| *trial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_listed_with_a_reason_of_which_it_is_known_how_it_shows() {
        let known =
            Known::parse("# for people\n\n= why | shows\n= why | or so\nstep: mode at call | why\n").unwrap();
        assert_eq!(known.why[&("step", "mode at call")], "why");
        assert_eq!(known.shows["why"], ["shows", "or so"]);
        assert!(Known::parse("step: mode at call | why").is_err());
    }
}
