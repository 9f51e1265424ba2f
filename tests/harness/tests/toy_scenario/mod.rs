//! The toy step's scenario.

use std::time::Duration;

use anyhow::Result;
use harness::{Area, Call, Resource, Scenario, StepCommand, Verb, Worker, crash::Guard};
use serde_json::json;

/// The toy step with a bug, or without.
pub struct Toy {
    /// See the toy step; empty: none.
    pub bug: &'static str,
}

impl Scenario for Toy {
    fn name(&self) -> &'static str {
        "toy-step"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        let command = StepCommand::new(env!("CARGO_BIN_EXE_toy-step"), &["--deadline", "30"])
            .args(["--namespace", &worker.name("toy")])
            .bound(Duration::from_secs(60));
        Ok(if self.bug.is_empty() { command } else { command.args(["--bug", self.bug]) })
    }

    fn home(&self, worker: &Worker) -> String {
        worker.name("toy")
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        ["new-", "old-", "again", "legacy"]
            .iter()
            .map(|prefix| Area::within(Resource::core("configmaps"), &worker.name("toy")).named(prefix))
            .collect()
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        worker.api.ensure_namespace(&worker.name("toy")).await
    }

    fn standins(&self, _: &Worker) -> Guard {
        Box::new(())
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        for name in ["old-a", "again", "legacy"] {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap", "data": {"of": name},
                "metadata": {"name": name, "namespace": worker.name("toy")},
            });
            worker.api.create(&Resource::core("configmaps"), &object).await?;
        }
        Ok(())
    }

    fn is_for_good(&self, call: &Call) -> bool {
        call.verb == Verb::Delete && call.name.as_deref() == Some("legacy")
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(500)
    }
}
