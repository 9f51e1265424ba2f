//! Two namespaces, one of them not on the mesh yet, three instances, four Subscriptions, one of which has its Trigger.

use anyhow::Result;
use harness::{Area, Resource, Scenario, StepCommand, Worker, crash::Guard};
use standins::landscape::Scene;

/// The scenario.
pub struct RecreateTriggers;

fn scene(worker: &Worker) -> Scene {
    Scene::small(&worker.name("one"), &worker.name("two"))
}

impl Scenario for RecreateTriggers {
    fn name(&self) -> &'static str {
        "recreate-triggers"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        Ok(crate::command("belay", self.name(), &self.home(worker)).args(["--ready-within", "8"]))
    }

    fn home(&self, worker: &Worker) -> String {
        crate::home(worker)
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        let namespaces = ["one", "two"].map(|name| worker.name(name));
        let mut areas = Vec::new();
        for namespace in &namespaces {
            areas.push(Area::within(crate::legacy_subscriptions(), namespace));
            areas.push(Area::within(crate::triggers(), namespace));
            // The label by which a namespace gets its Broker.
            areas.push(Area::anywhere(Resource::core("namespaces")).named(namespace));
        }
        areas
    }

    async fn setup(&self, worker: &Worker) -> Result<Guard> {
        Ok(Box::new(crate::mesh(worker, &self.home(worker)).await?))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        crate::set(&worker.api, scene(worker)).await
    }
}
