//! Every fault at every call of every step, in a simulated world. `cargo test --workspace --test simulation -- --help` tells
//! what can be chosen.

use std::{collections::BTreeMap, process::ExitCode, time::Instant};

use clap::Parser;
use crash_tests::Visitor;
use harness::{Scenario, crash::Choice};
use simulation::explore::{explore, seconds};

/// What `cargo test` hands over after its `--`.
#[derive(Parser)]
#[command(
    name = "simulation",
    about = "Makes things go wrong at every call of every step, in a simulated world"
)]
struct Arguments {
    /// Steps to try; all if none is named
    steps: Vec<String>,
    /// Try only this way of going wrong, for instance kill-before, fail-403, asleep or lag
    #[arg(long)]
    mode: Vec<String>,
    /// Try only this call, by its name or its number
    #[arg(long)]
    call: Vec<String>,
    /// What everything that may differ between two runs is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Tell the first failure of each scenario call by call
    #[arg(long)]
    timeline: bool,
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

struct Suite {
    arguments: Arguments,
    passed: usize,
    failed: usize,
}

impl Visitor for Suite {
    fn visit<S: Scenario>(&mut self, scenario: S) {
        let name = scenario.name().to_owned();
        if self.arguments.list {
            println!("{name}: test");
            return;
        }
        if !self.arguments.steps.is_empty() && !self.arguments.steps.iter().any(|step| name.contains(step)) {
            return;
        }
        let choice = Choice {
            modes: self.arguments.mode.clone(),
            calls: self.arguments.call.clone(),
            ..Choice::default()
        };
        let began = Instant::now();
        let explored = match explore(scenario, &choice, self.arguments.seed, self.arguments.timeline) {
            Ok(explored) => explored,
            Err(error) => {
                println!("{name}: not tried: {error:#}");
                self.failed += 1;
                return;
            }
        };
        let mut modes: BTreeMap<String, usize> = BTreeMap::new();
        for trial in &explored.trials {
            *modes.entry(trial.mode()).or_default() += 1;
        }
        let modes: Vec<String> = modes.iter().map(|(mode, count)| format!("{mode} {count}")).collect();
        println!(
            "{name}: {} calls, {} points, {} failed, {} ({})",
            explored.calls,
            explored.trials.len(),
            explored.failures.len(),
            seconds(began.elapsed()),
            modes.join(", ")
        );
        for (trial, why) in explored.failures.iter().take(20) {
            println!("{name}: FAILED {trial}");
            why.lines().for_each(|line| println!("  {line}"));
        }
        explored.timeline.iter().for_each(|line| println!("{line}"));
        self.failed += explored.failures.len();
        self.passed += explored.trials.len() - explored.failures.len();
    }
}

fn main() -> ExitCode {
    let mut suite = Suite { arguments: Arguments::parse(), passed: 0, failed: 0 };
    crash_tests::scenarios(&mut suite);
    if suite.arguments.list {
        return ExitCode::SUCCESS;
    }
    println!("simulated points: {} of {}", suite.passed, suite.passed + suite.failed);
    println!("{} passed, {} failed", suite.passed, suite.failed);
    ExitCode::from(u8::from(suite.failed > 0 || suite.passed == 0))
}
