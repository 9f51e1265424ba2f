//! The command line: scenarios by name, and what is tried of them.

use std::{collections::BTreeMap, process::ExitCode, sync::Arc, time::Instant};

use anyhow::{Result, ensure};
use clap::Parser;

use crate::crash::{
    Choice, Mode, Scenario, Tally,
    queue::{Work, work_through},
    servers,
    tally::{Score, first_line},
};

/// So many points a sample has at most, over all scenarios.
const SAMPLE: usize = 150;

/// So many of the slowest points are named at the end.
const SLOWEST: usize = 5;

/// A scenario of a suite.
struct Entry {
    name: String,
    modes: usize,
    begin: Box<dyn Fn(usize, Choice) -> Arc<Work>>,
}

/// Scenarios by name: the main function of a test. They are begun in the order in which they were added, so the one that
/// takes longest comes first.
#[derive(Default)]
pub struct Suite {
    scenarios: Vec<Entry>,
}

/// What `cargo test` hands over after its `--`.
#[derive(Parser)]
// Flags are bools.
#[allow(clippy::struct_excessive_bools)]
#[command(name = "crash", about = "Crashes steps at every call of a run and looks at what is left")]
struct Arguments {
    /// Steps to try; all if none is named
    steps: Vec<String>,
    /// Try only this way of going wrong, for instance kill-before or fail-403
    #[arg(long)]
    mode: Vec<String>,
    /// Try only this call, by the number or the name that --show prints; an order may change, a name does not
    #[arg(long)]
    call: Vec<String>,
    /// Try a fixed sample, at most 150 points over all scenarios: every mode of every scenario, and all kinds of calls
    #[arg(long)]
    sample: bool,
    /// What the sample is drawn by: each seed takes other points
    #[arg(long, default_value_t = 0, requires = "sample")]
    seed: usize,
    /// Try nothing, print the calls of an undisturbed run and what may come of them if they fail with 403
    #[arg(long)]
    show: bool,
    /// Name the scenarios and end
    #[arg(long)]
    list: bool,
    /// For cargo's sake: output is never captured here
    #[arg(long, hide = true)]
    nocapture: bool,
    /// For cargo's sake
    #[arg(long, hide = true)]
    format: Option<String>,
}

impl Suite {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a scenario.
    #[must_use]
    pub fn with<S: Scenario>(mut self, scenario: S) -> Self {
        let (name, modes) = (scenario.name().to_owned(), scenario.modes().len());
        let scenario = Arc::new(scenario);
        let begin = Box::new(move |number, choice| Work::new(scenario.clone(), number, choice));
        self.scenarios.push(Entry { name, modes, begin });
        self
    }

    /// Tries what the command line asks for. Succeeds if every point held.
    ///
    /// Without an API server there is nothing to try: that is said, and is an error for who named a step or set
    /// `BELAY_TEST_REQUIRED`.
    #[must_use]
    pub fn main(self) -> ExitCode {
        let arguments = Arguments::parse();
        if arguments.list {
            self.scenarios.iter().for_each(|entry| println!("{}: test", entry.name));
            return ExitCode::SUCCESS;
        }
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        match runtime.block_on(self.try_all(&arguments)) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("crash: {error:#}");
                ExitCode::FAILURE
            }
        }
    }

    async fn try_all(&self, arguments: &Arguments) -> Result<bool> {
        let servers = servers().await?;
        if servers.is_empty() && arguments.steps.is_empty() {
            return Ok(true);
        }
        for mode in &arguments.mode {
            let known = Mode::ALL.map(|mode| mode.to_string());
            ensure!(known.contains(mode), "there is no mode {mode}; take one of {}", known.join(", "));
        }
        let wanted =
            |name: &str| arguments.steps.is_empty() || arguments.steps.iter().any(|step| name.contains(step));
        let shares = shares(&self.scenarios.iter().map(|entry| entry.modes).collect::<Vec<_>>());
        let mut works = Vec::new();
        for (number, (entry, share)) in self.scenarios.iter().zip(shares).enumerate() {
            if wanted(&entry.name) {
                let choice = Choice {
                    modes: arguments.mode.clone(),
                    calls: arguments.call.clone(),
                    sample: arguments.sample.then_some(share),
                    seed: arguments.seed,
                    show: arguments.show,
                };
                works.push((entry.name.as_str(), (entry.begin)(number, choice)));
            }
        }
        ensure!(!works.is_empty(), "no such scenario; --list names them");
        let began = Instant::now();
        let all: Vec<Arc<Work>> = works.iter().map(|(_, work)| work.clone()).collect();
        work_through(&all, &servers).await?;
        if arguments.show {
            return Ok(works.iter().all(|(_, work)| work.result().is_ok()));
        }
        let mut wrong = Vec::new();
        let mut tallies = Vec::new();
        for (name, work) in works {
            match work.result() {
                Ok(tally) => {
                    print!("{tally}");
                    wrong.extend(tally.wrong());
                    tallies.push(tally);
                }
                Err(error) => wrong.push(format!("{name}: {}", first_line(&format!("{error:#}")))),
            }
        }
        let tried: usize = tallies.iter().map(|tally| tally.total().1).sum();
        ensure!(tried > 0 || !wrong.is_empty(), "no point was chosen: --show prints the calls");
        sum_up(&tallies);
        println!("{:.0} s on {} API servers", began.elapsed().as_secs_f64(), servers.len());
        // Once more at the end: what a scenario said stands far above by now.
        for sentence in &wrong {
            println!("FAILED: {sentence}");
        }
        Ok(wrong.is_empty())
    }
}

/// How many points each scenario may have in a sample: one of each mode, and the first, which makes every move there is,
/// what remains. So what one scenario takes does not depend on which others are tried.
fn shares(modes: &[usize]) -> Vec<usize> {
    let of_others: usize = modes.iter().skip(1).sum();
    modes
        .iter()
        .enumerate()
        .map(
            |(number, modes)| if number == 0 { SAMPLE.saturating_sub(of_others).max(*modes) } else { *modes },
        )
        .collect()
}

/// The end of a run: modes and scenarios in lines that can be compared with those of another run.
fn sum_up(tallies: &[Tally]) {
    let mut of_modes: BTreeMap<Mode, Score> = BTreeMap::new();
    for (mode, score) in tallies.iter().flat_map(|tally| &tally.points) {
        of_modes.entry(*mode).or_default().add(*score);
    }
    for (mode, score) in &of_modes {
        println!("all scenarios: {mode}: {score}");
    }
    let mut times = Vec::new();
    for tally in tallies {
        times.extend(tally.times.iter().map(|time| (time, &tally.name)));
    }
    times.sort_by_key(|((took, _), _)| std::cmp::Reverse(*took));
    for ((took, point), name) in times.iter().take(SLOWEST) {
        println!("among the slowest: {name}: {point}: {:.1} s", took.as_secs_f64());
    }
    for tally in tallies {
        let (held, all) = tally.total();
        println!("{}: {held} of {all} points, {:.0} s", tally.name, tally.took.as_secs_f64());
    }
    let sum = |count: fn(&Tally) -> usize| tallies.iter().map(count).sum::<usize>();
    println!(
        "all scenarios: {} of {} points held, chosen from {} points in {} groups",
        sum(|tally| tally.total().0),
        sum(|tally| tally.total().1),
        sum(|tally| tally.all.0),
        sum(|tally| tally.all.1)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_scenario_gets_what_the_others_leave_of_a_sample() {
        let modes = [15, 15, 15, 15, 15, 15, 15, 15, 15, 5];
        let shares = shares(&modes);
        assert_eq!(shares, [25, 15, 15, 15, 15, 15, 15, 15, 15, 5]);
        assert_eq!(shares.iter().sum::<usize>(), SAMPLE);
        assert_eq!(super::shares(&[15; 20])[0], 15, "of each mode one, however many scenarios there are");
    }
}
