//! Two namespaces, one of them not on the mesh yet, three instances, four Subscriptions, one of which has its Trigger.

use anyhow::Result;
use harness::{
    Area, Call, Resource, Scenario, StepCommand, Verb, Worker,
    crash::{Guard, Objects},
};
use serde_json::Value;
use standins::{fixtures, landscape::Scene};

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

    /// A Trigger needs its Broker, and goes only where its Subscription delivers.
    fn too_early(&self, mv: &Call, objects: &Objects<'_>) -> Option<String> {
        let namespace = mv.target.namespace.as_deref()?;
        match (mv.target.resource.as_str(), mv.verb) {
            ("triggers", Verb::Create) => {
                let brokers = objects(&Resource::new("eventing.knative.dev", "v1alpha1", "brokers"));
                let ready = crate::find(&brokers, namespace, "default").is_some_and(crate::is_ready);
                (!ready).then(|| "its Broker is not Ready".to_owned())
            }
            ("triggers", Verb::Delete) => {
                let subscriptions = objects(&crate::legacy_subscriptions());
                let there = crate::find(&subscriptions, namespace, mv.name.as_deref()?);
                there.is_none().then(|| "its Subscription is gone".to_owned())
            }
            _ => None,
        }
    }

    fn newcomer(&self, worker: &Worker) -> Option<(Resource, Value)> {
        let namespace = worker.name("one");
        let endpoint = format!("http://newcomer.{namespace}:8080/");
        let newcomer = fixtures::legacy_subscription("newcomer", &namespace, "commerce", "new.v1", &endpoint);
        Some((crate::legacy_subscriptions(), newcomer))
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        crate::prepare(worker, &[&self.home(worker)]).await
    }

    fn standins(&self, worker: &Worker) -> Guard {
        Box::new(crate::mesh(worker))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        crate::set(&worker.api, scene(worker)).await
    }
}
