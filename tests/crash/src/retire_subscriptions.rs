//! Two namespaces, three instances, three Subscriptions that each have a Trigger, and one of which only the Trigger is
//! left. The event-services feed the mesh.

use anyhow::Result;
use harness::{Area, Scenario, StepCommand, Worker, crash::Guard};
use standins::landscape::{Mesh, Scene, State};

/// The scenario.
pub struct RetireSubscriptions;

fn scene(worker: &Worker) -> Scene {
    let (one, two) = (worker.name("one"), worker.name("two"));
    Scene::new(&["commerce", "logistics"])
        .instance(&one, "commerce")
        .instance(&one, "logistics")
        .instance(&two, "commerce")
        .on_mesh(&one, Mesh::BrokerOnly)
        .on_mesh(&two, Mesh::BrokerOnly)
        .subscription(&one, "orders", "commerce", State::Migrated)
        .subscription(&one, "parcels", "logistics", State::Migrated)
        .subscription(&two, "orders", "commerce", State::Migrated)
        .subscription(&two, "invoices", "commerce", State::TriggerOnly)
        .with_workloads()
}

impl Scenario for RetireSubscriptions {
    fn name(&self) -> &'static str {
        "retire-subscriptions"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        Ok(crate::command("belay", self.name(), &self.home(worker)).args(["--gone-within", "8"]))
    }

    fn home(&self, worker: &Worker) -> String {
        crate::home(worker)
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        let kinds = [crate::legacy_subscriptions(), crate::triggers()];
        let namespaces = ["one", "two"].map(|name| worker.name(name));
        namespaces
            .iter()
            .flat_map(|namespace| kinds.iter().map(move |kind| Area::within(kind.clone(), namespace)))
            .collect()
    }

    async fn setup(&self, worker: &Worker) -> Result<Guard> {
        let standins = crate::mesh(worker, &self.home(worker)).await?;
        crate::set(&worker.api, scene(worker)).await?;
        crate::feed_the_mesh(worker, &["commerce", "logistics"]).await?;
        Ok(Box::new(standins))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        crate::set(&worker.api, scene(worker)).await
    }
}
