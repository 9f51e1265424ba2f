//! Two namespaces, three instances, three Subscriptions that each have a Trigger, and one of which only the Trigger is
//! left. The event-services feed the mesh.

use anyhow::Result;
use harness::{
    Area, Call, Scenario, StepCommand, Verb, Worker,
    crash::{Guard, Objects},
};
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

    /// A Subscription goes only where its Trigger delivers.
    fn too_early(&self, mv: &Call, objects: &Objects<'_>) -> Option<String> {
        if mv.verb != Verb::Delete || mv.target.resource != "subscriptions" {
            return None;
        }
        let triggers = objects(&crate::triggers());
        let trigger = crate::find(&triggers, mv.target.namespace.as_deref()?, mv.name.as_deref()?);
        (!trigger.is_some_and(crate::is_ready)).then(|| "its Trigger is not Ready".to_owned())
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        crate::prepare(worker, &[&self.home(worker)]).await?;
        let standins = crate::mesh(worker);
        crate::set(&worker.api, scene(worker)).await?;
        crate::feed_the_mesh(worker, &["commerce", "logistics"]).await?;
        standins.stop().await;
        Ok(())
    }

    fn standins(&self, worker: &Worker) -> Guard {
        Box::new(crate::mesh(worker))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        crate::set(&worker.api, scene(worker)).await
    }
}
