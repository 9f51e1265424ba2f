//! The fixture step: every move there is, and a point of no return.

use std::time::Duration;

use anyhow::Result;
use harness::{
    Area, Call, Resource, Scenario, StepCommand, Verb, Worker,
    crash::{Guard, Objects},
};
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

fn of_fixture(plural: &str) -> Resource {
    Resource::new("fixture.belay.dev", "v1", plural)
}

/// Whether a Station lets nobody in yet.
fn is_closed(objects: &Objects<'_>) -> bool {
    objects(&of_fixture("stations")).iter().all(|station| station["spec"]["state"] == "Closed")
}

/// Of what the first phase has made or changed, what is not Ready, or what its controller has not looked at since.
fn not_ready(objects: &Objects<'_>) -> Option<String> {
    let is_behind =
        |object: &Value| object["status"]["observedGeneration"] != object["metadata"]["generation"];
    let gadgets = objects(&of_fixture("gadgets")).into_iter();
    let widgets = objects(&of_fixture("widgets")).into_iter();
    let changed = widgets.filter(|widget| widget["spec"]["phase"] == "Active" || is_behind(widget));
    let object = gadgets.chain(changed).find(|object| !crate::is_ready(object) || is_behind(object))?;
    Some(format!("{} {} is not Ready", object["kind"], object["metadata"]["name"]))
}

/// Why a `ConfigMap` must not be deleted now: one that is replaced goes when the new one has its data, the new one when the
/// old one is there again and the Station is closed, and a leftover when it is not closed any more.
fn goes_too_early(name: &str, namespace: &str, objects: &Objects<'_>) -> Option<String> {
    let config_maps = objects(&Resource::core("configmaps"));
    let data = |name: &str| crate::find(&config_maps, namespace, name).map(|found| &found["data"]);
    if name.starts_with("leftover") {
        return is_closed(objects).then(|| "the Station is closed".to_owned());
    }
    if let Some(old) = name.strip_suffix("-new") {
        if data(old).is_none() {
            return Some(format!("{old} is not there"));
        }
        return (!is_closed(objects)).then(|| "the Station is not closed".to_owned());
    }
    let replaced = name.starts_with("old") && data(name) != data(&format!("{name}-new"));
    replaced.then(|| "the new one does not have its data".to_owned())
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
        let mut areas = vec![
            Area::within(of_fixture("widgets"), &workshop),
            Area::within(of_fixture("gadgets"), &workshop),
            Area::anywhere(of_fixture("stations")).named(&worker.name("station")),
            Area::within(Resource::new("apps", "v1", "deployments"), &workshop),
        ];
        // Not the one that Kubernetes puts into every namespace.
        areas.extend(
            ["old", "leftover", "plain"]
                .map(|prefix| Area::within(Resource::core("configmaps"), &workshop).named(prefix)),
        );
        areas
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        crate::sweep(worker).await?;
        let client = worker.api.client();
        standins::install_crds(&client, Family::Fixture, None).await?;
        for namespace in [worker.name("workshop"), self.home(worker)] {
            cluster::ensure_namespace(&client, &namespace).await?;
        }
        Ok(())
    }

    fn standins(&self, worker: &Worker) -> Guard {
        let behaviour = Behaviour {
            controllers: vec![Controller::Widget, Controller::Gadget],
            finalizer_delay: Duration::from_millis(100),
            ..Behaviour::default()
        };
        Box::new(Standins::start(&worker.api.client(), behaviour))
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

    fn too_early(&self, mv: &Call, objects: &Objects<'_>) -> Option<String> {
        let (namespace, name) = (mv.target.namespace.as_deref().unwrap_or_default(), mv.name.as_deref()?);
        let sets = mv.json().unwrap_or_default();
        match (mv.target.resource.as_str(), mv.verb) {
            ("stations", _) if sets["spec"]["state"] == "Opening" => not_ready(objects),
            ("widgets", _) if sets["spec"]["phase"] == "Active" => {
                let gadgets = objects(&of_fixture("gadgets"));
                let ready = crate::find(&gadgets, namespace, name).is_some_and(crate::is_ready);
                (!ready).then(|| "its Gadget is not Ready".to_owned())
            }
            ("gadgets", Verb::Delete) => {
                let widgets = objects(&of_fixture("widgets"));
                let active = crate::find(&widgets, namespace, name)
                    .is_some_and(|widget| widget["spec"]["phase"] == "Active");
                active.then(|| "its Widget is Active".to_owned())
            }
            ("configmaps", Verb::Delete) => goes_too_early(name, namespace, objects),
            _ => None,
        }
    }

    fn newcomer(&self, worker: &Worker) -> Option<(Resource, Value)> {
        let newcomer = config_map(&worker.name("workshop"), "old-newcomer");
        Some((Resource::core("configmaps"), labelled(newcomer, "replace")))
    }

    fn adjust(&self, object: &mut Value) {
        crate::forget_the_controller(object);
    }
}
