//! What another scenario's step has done, taken back by `belay restore`.

use std::time::Duration;

use anyhow::Result;
use harness::{
    Area, Landing, Scenario, StepCommand, Worker,
    crash::{Guard, Mode},
};
use serde_json::Value;

/// The scenario, on the ground of another: every point begins when that one's step has ended.
pub struct Restore<S> {
    name: String,
    step: S,
}

impl<S: Scenario> Restore<S> {
    /// Takes back what this step does.
    pub fn of(step: S) -> Self {
        Self { name: format!("restore-{}", step.name()), step }
    }
}

impl<S: Scenario> Scenario for Restore<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        let words = ["restore", "--step", self.step.name(), "--home", &self.home(worker)];
        // After a death it waits for in-flight requests to expire.
        Ok(StepCommand::new("belay", &words).args(["--deadline", "60"]).bound(Duration::from_secs(90)))
    }

    fn home(&self, worker: &Worker) -> String {
        self.step.home(worker)
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        self.step.areas(worker)
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        self.step.setup(worker).await
    }

    fn standins(&self, worker: &Worker) -> Guard {
        self.step.standins(worker)
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        self.step.fill(worker).await?;
        worker.runner.run(&self.step.command(worker)?, Vec::new()).await?.expect_exit(0).map(drop)
    }

    fn adjust(&self, object: &mut Value) {
        self.step.adjust(object);
    }

    fn patience(&self) -> Duration {
        self.step.patience()
    }

    /// A restore never goes forward, so it neither dies too often nor fails and undoes. What the undo itself does at each
    /// call the steps' own scenarios show; a point here takes long, since nothing of the dead may land afterwards.
    fn modes(&self) -> Vec<Mode> {
        vec![
            Mode::KillBefore,
            Mode::KillAfter,
            Mode::LoseAnswer,
            Mode::LandLate(Landing::BeforeFirstMove),
            Mode::Terminate,
        ]
    }
}
