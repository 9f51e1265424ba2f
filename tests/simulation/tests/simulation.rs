//! Every fault at every call of every step, in a simulated world. `cargo test --workspace --test simulation -- --help` tells
//! what can be chosen.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::ExitCode,
    time::Instant,
};

use anyhow::Result;
use clap::Parser;
use crash_tests::Visitor;
use harness::{Scenario, crash::Choice};
use simulation::{
    explore::{Scene, seconds},
    known::trials_of,
    schedule::Schedule,
    trial::Trial,
};

/// What everything is drawn from unless another seed is named.
const SEED: u64 = 1;

/// What `cargo test` hands over after its `--`.
#[derive(Parser)]
#[command(
    name = "simulation",
    about = "Makes things go wrong at every call of every step, in a simulated world"
)]
// Each flag is one of its own, and any of them may be combined.
#[allow(clippy::struct_excessive_bools)]
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
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// Try so many schedules, in which several things go wrong, instead of every single fault
    #[arg(long)]
    schedules: Option<u64>,
    /// End with the first failure
    #[arg(long)]
    first_failure: bool,
    /// Tell the first failure of each scenario call by call, as is always done of schedules
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

/// Of so many failures of a scenario all is told; of the others what does not hold.
const TOLD_IN_FULL: usize = 20;

struct Suite {
    arguments: Arguments,
    /// The scenarios that are chosen, in their order.
    chosen: Vec<String>,
    passed: usize,
    failed: usize,
}

/// Finds the scenarios that are named: by their whole name, or else by a part of it.
struct Names<'a> {
    steps: &'a [String],
    found: Vec<String>,
}

impl Visitor for Names<'_> {
    fn visit<S: Scenario>(&mut self, scenario: S) {
        self.found.push(scenario.name().to_owned());
    }
}

impl Names<'_> {
    fn chosen(mut self) -> Vec<String> {
        crash_tests::scenarios(&mut self);
        let (steps, found) = (self.steps, self.found.clone());
        let is_named = |name: &String, step: &String| {
            if found.contains(step) { name == step } else { name.contains(step.as_str()) }
        };
        self.found.retain(|name| steps.is_empty() || steps.iter().any(|step| is_named(name, step)));
        self.found
    }
}

impl Suite {
    fn new(arguments: Arguments) -> Self {
        let chosen = Names { steps: &arguments.steps, found: Vec::new() }.chosen();
        Self { arguments, chosen, passed: 0, failed: 0 }
    }

    fn explore<S: Scenario>(&mut self, scenario: S, at: usize) -> Result<()> {
        let Arguments { seed, schedules, timeline, .. } = self.arguments;
        let choice = Choice {
            modes: self.arguments.mode.clone(),
            calls: self.arguments.call.clone(),
            ..Choice::default()
        };
        let name = scenario.name().to_owned();
        let began = Instant::now();
        // Each scenario has seeds of its own: together they are as many as were asked for.
        let own = |seed: &u64| *seed % self.chosen.len() as u64 == at as u64;
        let (scene, trials) = match schedules {
            None => Scene::open(scenario, &choice, seed)?,
            Some(count) => {
                let nothing = Choice { modes: vec!["schedule".to_owned()], ..choice };
                let (scene, _) = Scene::open(scenario, &nothing, SEED)?;
                let seeds = (seed..seed + count).filter(own);
                let draw = |seed| Trial::Scheduled(Schedule::draw(seed, scene.calls()));
                let trials = seeds.map(draw).collect();
                (scene, trials)
            }
        };
        let told = timeline || schedules.is_some();
        let explored = scene.explore(&trials, told, self.arguments.first_failure);
        let mut modes: BTreeMap<String, usize> = BTreeMap::new();
        for trial in &trials {
            *modes.entry(trial.mode()).or_default() += 1;
        }
        let modes: Vec<String> = modes.iter().map(|(mode, count)| format!("{mode} {count}")).collect();
        println!(
            "{name}: {} calls, {} points, {} failed, {} ({})",
            scene.calls(),
            explored.tried,
            explored.failures.len(),
            seconds(began.elapsed()),
            modes.join(", ")
        );
        println!("{name}: at most {} in one run", explored.seen.traffic);
        // Of all trials, each that is listed is one.
        let is_whole =
            self.arguments.mode.is_empty() && self.arguments.call.is_empty() && schedules.is_none();
        let tried: BTreeSet<String> = trials.iter().map(ToString::to_string).collect();
        for listed in trials_of(&name).filter(|listed| is_whole && !tried.contains(*listed)) {
            println!("{name}: FAILED {listed}\n  it is listed as known, and there is no such trial");
            self.failed += 1;
        }
        if explored.seen.idle > 0 {
            println!("{name}: at {} points nobody found anything to write to", explored.seen.idle);
        }
        let faults: usize = trials.iter().map(Trial::scheduled_faults).sum();
        if faults > 0 {
            println!("{name}: {} of {faults} faults struck", explored.seen.struck);
        }
        for (at, (trial, why)) in explored.failures.iter().enumerate() {
            println!("{name}: FAILED {trial}");
            let lines = if at < TOLD_IN_FULL { usize::MAX } else { 1 };
            why.lines().take(lines).for_each(|line| println!("  {line}"));
            if let Trial::Scheduled(schedule) = trial {
                let seed = schedule.seed;
                println!("  again: make simulate SEEDS=1 ARGS=\"{name} --seed {seed}\"");
            }
        }
        explored.timeline.iter().for_each(|line| println!("{line}"));
        self.failed += explored.failures.len();
        self.passed += explored.tried - explored.failures.len();
        Ok(())
    }
}

impl Visitor for Suite {
    fn visit<S: Scenario>(&mut self, scenario: S) {
        let name = scenario.name().to_owned();
        if self.arguments.list {
            println!("{name}: test");
            return;
        }
        if self.arguments.first_failure && self.failed > 0 {
            return;
        }
        let Some(at) = self.chosen.iter().position(|chosen| *chosen == name) else { return };
        if let Err(error) = self.explore(scenario, at) {
            println!("{name}: not tried: {error:#}");
            self.failed += 1;
        }
    }
}

fn main() -> ExitCode {
    let mut suite = Suite::new(Arguments::parse());
    crash_tests::scenarios(&mut suite);
    if suite.arguments.list {
        return ExitCode::SUCCESS;
    }
    println!("simulated points: {} of {}", suite.passed, suite.passed + suite.failed);
    println!("{} passed, {} failed", suite.passed, suite.failed);
    ExitCode::from(u8::from(suite.failed > 0 || suite.passed == 0))
}
