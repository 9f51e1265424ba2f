//! The fixture step: every move there is, and a point of no return.

use std::time::Duration;

use anyhow::Result;
use harness::{Area, Call, Resource, Scenario, StepCommand, Verb, Worker, crash::Guard};
use serde_json::{Value, json};
use standins::{Behaviour, Controller, Family, Standins, cluster, fixtures, kinds};

/// The scenario.
pub struct Fixture;

fn labelled(mut object: Value, label: &str) -> Value {
    object["metadata"]["labels"]["fixture"] = label.into();
    object
}

fn config_map(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
        "data": {"of": name},
    })
}

impl Scenario for Fixture {
    fn name(&self) -> &'static str {
        "fixture"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        let command = crate::command("fixture-step", self.name(), &self.home(worker));
        Ok(command.args(["--workshop", &worker.name("workshop"), "--station", &worker.name("station")]))
    }

    fn home(&self, worker: &Worker) -> String {
        crate::home(worker)
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        let workshop = worker.name("workshop");
        let fixture = |plural| Resource::new("fixture.belay.dev", "v1", plural);
        let mut areas = vec![
            Area::within(fixture("widgets"), &workshop),
            Area::within(fixture("gadgets"), &workshop),
            Area::anywhere(fixture("stations")).named(&worker.name("station")),
            Area::within(Resource::new("apps", "v1", "deployments"), &workshop),
        ];
        // Not the one that Kubernetes puts into every namespace.
        areas.extend(
            ["old", "leftover", "plain"]
                .map(|prefix| Area::within(Resource::core("configmaps"), &workshop).named(prefix)),
        );
        areas
    }

    async fn setup(&self, worker: &Worker) -> Result<Guard> {
        crate::sweep(worker).await?;
        let client = worker.api.client();
        standins::install_crds(&client, Family::Fixture, None).await?;
        for namespace in [worker.name("workshop"), self.home(worker)] {
            cluster::ensure_namespace(&client, &namespace).await?;
        }
        let behaviour = Behaviour {
            controllers: vec![Controller::Widget, Controller::Gadget],
            finalizer_delay: Duration::from_millis(100),
            ..Behaviour::default()
        };
        Ok(Box::new(Standins::start(&client, behaviour)))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        let (client, workshop) = (worker.api.client(), worker.name("workshop"));
        for object in [
            fixtures::station(&worker.name("station"), "Closed"),
            fixtures::widget("plain", &workshop, 3),
            labelled(fixtures::widget("parted", &workshop, 5), "part"),
            labelled(fixtures::gadget("again", &workshop, "somewhere"), "recreate"),
            labelled(fixtures::deployment("machine", &workshop, 2, "none"), "scale"),
        ] {
            cluster::create(&client, &object).await?;
        }
        for (name, label) in [("old-a", "replace"), ("leftover-a", "leftover")] {
            let object = labelled(config_map(&workshop, name), label);
            worker.api.create(&Resource::core("configmaps"), &object).await?;
        }
        let patience = Duration::from_secs(20);
        for name in ["plain", "parted"] {
            cluster::wait_ready(&client, &kinds::WIDGET, &workshop, name, patience).await?;
        }
        cluster::wait_ready(&client, &kinds::GADGET, &workshop, "again", patience).await
    }

    fn is_for_good(&self, call: &Call) -> bool {
        let leftover = call.verb == Verb::Delete
            && call.name.as_deref().is_some_and(|name| name.starts_with("leftover"));
        let opened = call.target.resource == "stations"
            && call.json().is_some_and(|body| body["spec"]["state"] == "Open");
        leftover || opened
    }

    fn adjust(&self, object: &mut Value) {
        crate::forget_the_controller(object);
    }
}
