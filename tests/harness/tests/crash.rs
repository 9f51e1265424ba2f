//! Crash at every call, for every step. See `--help`.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use harness::{Area, Call, Resource, Scenario, StepCommand, Suite, Verb, Worker, crash::Guard, executable};
use serde_json::{Value, json};
use standins::{Behaviour, Controller, Family, Standins, cluster, crds, fixtures, kinds};

fn main() -> ExitCode {
    Suite::new().with(Fixture).main()
}

/// The step that makes every move there is.
struct Fixture;

/// Long enough for a run on a busy machine, short enough to wait for when a call fails until then.
const DEADLINE: Duration = Duration::from_secs(6);

impl Fixture {
    fn labelled(mut object: Value, value: &str) -> Value {
        object["metadata"]["labels"] = json!({"fixture": value});
        object
    }

    fn config_map(name: &str, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace}, "data": {"of": name},
        })
    }
}

impl Scenario for Fixture {
    fn name(&self) -> &'static str {
        "fixture"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        let workshop = worker.name("workshop");
        let deadline = DEADLINE.as_secs().to_string();
        let command = StepCommand::new(executable("fixture-step")?, &["fixture"])
            .args(["--workshop", &workshop, "--home", &workshop, "--namespace", &workshop])
            .args(["--station", &worker.name("central"), "--deadline", &deadline, "--undo-reserve", "30"])
            .bound(Duration::from_secs(60));
        Ok(command)
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn home(&self, worker: &Worker) -> String {
        worker.name("workshop")
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        let workshop = worker.name("workshop");
        let fixture = |plural| Resource::new("fixture.belay.dev", "v1", plural);
        vec![
            Area::within(fixture("widgets"), &workshop),
            Area::within(fixture("gadgets"), &workshop),
            Area::anywhere(fixture("stations")).named(&worker.name("central")),
            Area::within(Resource::core("configmaps"), &workshop),
            Area::within(Resource::new("apps", "v1", "deployments"), &workshop),
        ]
    }

    async fn setup(&self, worker: &Worker) -> Result<Guard> {
        let client = worker.api.client();
        crds::install_crds(&client, Family::Fixture, None).await?;
        let workshop = worker.name("workshop");
        worker.api.ensure_namespace(&workshop).await?;
        let behaviour = Behaviour {
            controllers: vec![Controller::Widget, Controller::Gadget],
            namespaces: vec![workshop],
            finalizer_delay: Duration::from_millis(100),
            ..Behaviour::default()
        };
        Ok(Box::new(Standins::start(&client, behaviour)))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        let client = worker.api.client();
        let workshop = worker.name("workshop");
        let objects = [
            fixtures::station(&worker.name("central"), "Closed"),
            fixtures::widget("alpha", &workshop, 3),
            Self::labelled(fixtures::widget("gamma", &workshop, 5), "part"),
            Self::labelled(fixtures::gadget("old", &workshop, "nobody"), "recreate"),
            Self::labelled(Self::config_map("pattern", &workshop), "replace"),
            Self::labelled(Self::config_map("leftover", &workshop), "leftover"),
            Self::config_map("bystander", &workshop),
            Self::labelled(fixtures::deployment("press", &workshop, 2, fixtures::IMAGE), "scale"),
        ];
        for object in &objects {
            let kind = match object["kind"].as_str() {
                Some("Station") => Resource::new("fixture.belay.dev", "v1", "stations"),
                Some("Widget") => Resource::new("fixture.belay.dev", "v1", "widgets"),
                Some("Gadget") => Resource::new("fixture.belay.dev", "v1", "gadgets"),
                Some("Deployment") => Resource::new("apps", "v1", "deployments"),
                _ => Resource::core("configmaps"),
            };
            worker.api.create(&kind, object).await?;
        }
        let within = Duration::from_secs(10);
        for widget in ["alpha", "gamma"] {
            cluster::wait_ready(&client, &kinds::WIDGET, &workshop, widget, within).await?;
        }
        cluster::wait_ready(&client, &kinds::GADGET, &workshop, "old", within).await
    }

    fn is_for_good(&self, call: &Call) -> bool {
        let opens =
            call.json().and_then(|body| Some(body.pointer("/spec/state")? == "Open")).unwrap_or_default();
        match call.target.resource.as_str() {
            "configmaps" => call.verb == Verb::Delete && call.name.as_deref() == Some("leftover"),
            "stations" => opens,
            _ => false,
        }
    }

    /// How many pods a Deployment has is for its controllers, which do not run everywhere.
    fn adjust(&self, object: &mut Value) {
        if object["kind"] == "Deployment" {
            object["status"].take();
            if let Some(annotations) =
                object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
            {
                annotations.remove("deployment.kubernetes.io/revision");
            }
        }
    }
}
