//! What is known not to hold yet. Such a trial must fail: once it holds, it does not belong on the list any more.

use std::{collections::BTreeMap, sync::LazyLock};

/// A line for each trial: the scenario, the trial, and why it does not hold.
const LISTED: &str = include_str!("../known.txt");

static KNOWN: LazyLock<BTreeMap<(&str, &str), &str>> = LazyLock::new(|| {
    let lines = LISTED.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (scenario, rest) = line.split_once(": ").expect("SCENARIO: TRIAL | WHY");
            let (trial, why) = rest.split_once(" | ").expect("SCENARIO: TRIAL | WHY");
            ((scenario, trial), why)
        })
        .collect()
});

/// Why a trial is known not to hold, if it is.
#[must_use]
pub fn known(scenario: &str, trial: &str) -> Option<&'static str> {
    KNOWN.get(&(scenario, trial)).copied()
}
