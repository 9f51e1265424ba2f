//! The scenarios: for each step a small cluster on which every kind of move is made, and something is done already.

mod create_missing_sources;
mod fixture;
mod purge_legacy;
mod recreate_service_instances;
mod recreate_triggers;
mod restore;
mod retire_subscriptions;
mod scale_down_legacy;
mod verify_event_services;

use std::time::Duration;

use anyhow::Result;
use harness::{Api, Area, Resource, Scenario, StepCommand, Worker, state::clear};
use serde_json::{Value, json};
use standins::{
    Behaviour, Controller, Family, INJECTION_LABEL, Standins, cluster, crds, kinds,
    landscape::{NEW_EVENT_SERVICE, Scene, upgrade_operator},
    policies,
    seed::{INTEGRATION, SYSTEM},
};
use tokio::runtime::RuntimeFlavor;

use create_missing_sources::CreateMissingSources;
pub use fixture::Fixture;
use purge_legacy::PurgeLegacy;
use recreate_service_instances::RecreateServiceInstances;
use recreate_triggers::RecreateTriggers;
use restore::Restore;
use retire_subscriptions::RetireSubscriptions;
use scale_down_legacy::ScaleDownLegacy;
use verify_event_services::VerifyEventServices;

/// Takes scenarios of whatever type.
pub trait Visitor {
    /// Takes one.
    fn visit<S: Scenario>(&mut self, scenario: S);
}

/// All scenarios. The first makes every move there is; of the others those come first that take longest.
pub fn scenarios(visitor: &mut impl Visitor) {
    visitor.visit(Fixture);
    visitor.visit(RecreateServiceInstances { newer: true });
    visitor.visit(RecreateServiceInstances { newer: false });
    visitor.visit(RecreateTriggers);
    visitor.visit(ScaleDownLegacy);
    visitor.visit(RetireSubscriptions);
    visitor.visit(PurgeLegacy);
    visitor.visit(CreateMissingSources);
    visitor.visit(VerifyEventServices);
    visitor.visit(Restore::of(ScaleDownLegacy));
}

/// Long enough for a run on a busy machine. Nobody waits for it but a step whose watch fails for good.
const DEADLINE: Duration = Duration::from_secs(20);

/// A step as a child process: one call at a time, so that two runs make the same calls in nearly the same order.
fn command(program: &str, step: &str, home: &str) -> StepCommand {
    StepCommand::new(program, &[step, "--home", home, "--namespace", home, "--concurrency", "1"])
        .args(["--deadline", &DEADLINE.as_secs().to_string(), "--undo-reserve", "40"])
        .bound(Duration::from_secs(120))
}

/// Removes what another scenario or suite has left on the worker's API server: a step looks at all users' namespaces and
/// for a lock of its family anywhere, and a scenario clears only its own before each point.
async fn sweep(worker: &Worker) -> Result<()> {
    let mut areas: Vec<Area> = kinds::EVENT_MESH
        .iter()
        .map(|kind| Area::anywhere(Resource::new(kind.group, kind.version, kind.plural)))
        .collect();
    areas.push(Area::anywhere(Resource::new("coordination.k8s.io", "v1", "leases")).named("belay-"));
    for namespace in [SYSTEM, INTEGRATION] {
        let workloads = ["deployments", "statefulsets", "replicasets"];
        areas.extend(workloads.map(|plural| Area::within(Resource::new("apps", "v1", plural), namespace)));
        areas.push(Area::within(Resource::core("pods"), namespace));
    }
    clear(&worker.api, &areas, Duration::from_secs(60)).await?;
    let namespaces = Resource::core("namespaces");
    let unlabelled = json!({"metadata": {"labels": {INJECTION_LABEL: null}}});
    for namespace in worker.api.list(&namespaces, None, Some(INJECTION_LABEL)).await? {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default();
        worker.api.merge(&namespaces, None, name, None, &unlabelled).await?;
    }
    Ok(())
}

/// The head of every setup of the event mesh: nothing is left of another scenario, the kinds are served, the rules of
/// the real webhooks are in force, and the namespaces are there.
async fn prepare(worker: &Worker, namespaces: &[&str]) -> Result<()> {
    sweep(worker).await?;
    let client = worker.api.client();
    crds::install_crds(&client, Family::EventMesh, crds::upstream(Family::EventMesh).as_deref()).await?;
    policies::install(&client).await?;
    for namespace in namespaces {
        cluster::ensure_namespace(&client, namespace).await?;
    }
    Ok(())
}

/// Sets a scene. It borrows too much for a future that may go from thread to thread, so it stays on one.
async fn set(api: &Api, scene: Scene) -> Result<()> {
    let (client, runtime) = (api.client(), tokio::runtime::Handle::current());
    // A simulation has no other thread.
    if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
        return tokio::task::spawn_local(async move { scene.fill(&client).await }).await?;
    }
    tokio::task::spawn_blocking(move || runtime.block_on(scene.fill(&client))).await?
}

/// All controllers of an event mesh. Those of the fixture would ask for their CRDs again and again.
const MESH: [Controller; 10] = [
    Controller::HttpSource,
    Controller::Subscription,
    Controller::EventActivation,
    Controller::ServiceCatalog,
    Controller::ApplicationBroker,
    Controller::Broker,
    Controller::Trigger,
    Controller::KnativeSubscription,
    Controller::ApplicationOperator,
    Controller::Kubelet,
];

/// The controllers around the steps that change users' namespaces. They answer at once, and the same each time.
fn mesh(worker: &Worker) -> Standins {
    let behaviour = Behaviour {
        controllers: MESH.to_vec(),
        finalizer_delay: Duration::ZERO,
        steady_names: true,
        inject_once: true,
        play_pods: true,
        ..Behaviour::default()
    };
    Standins::start(&worker.api.client(), behaviour)
}

/// The upgrade of the chart: the operator rolls the event-services, which feed the mesh then.
async fn feed_the_mesh(worker: &Worker, applications: &[&str]) -> Result<()> {
    upgrade_operator(&worker.api.client(), INTEGRATION, NEW_EVENT_SERVICE).await?;
    cluster::wait_until("all event-services feed the mesh", Duration::from_secs(60), || async {
        let pods = worker.api.list(&Resource::core("pods"), Some(INTEGRATION), None).await?;
        let of = |application: &&&str| {
            let app = format!("{application}-event-service");
            let mut own = pods.iter().filter(|pod| pod["metadata"]["labels"]["app"] == app).peekable();
            own.peek().is_some() && own.all(|pod| pod["spec"]["containers"][0]["image"] == NEW_EVENT_SERVICE)
        };
        Ok(applications.iter().filter(of).count() == applications.len())
    })
    .await
}

fn legacy_subscriptions() -> Resource {
    Resource::new("eventing.kyma-project.io", "v1alpha1", "subscriptions")
}

fn triggers() -> Resource {
    Resource::new("eventing.knative.dev", "v1alpha1", "triggers")
}

/// The object of this name among objects of a kind; the namespace of one that has none is empty.
fn find<'a>(objects: &'a [Value], namespace: &str, name: &str) -> Option<&'a Value> {
    objects.iter().find(|object| {
        let metadata = &object["metadata"];
        metadata["namespace"].as_str().unwrap_or_default() == namespace && metadata["name"] == name
    })
}

/// Whether an object is Ready, and says so of the spec that it has now.
fn is_ready(object: &Value) -> bool {
    let observed = &object["status"]["observedGeneration"];
    let conditions = object["status"]["conditions"].as_array();
    let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    (observed.is_null() || *observed == object["metadata"]["generation"])
        && conditions.is_some_and(|conditions| conditions.iter().any(ready))
}

/// Plays the kubelet for a Deployment of one replica: these API servers have controllers, but no nodes.
async fn pretend_kubelet(api: &Api, namespace: &str, deployment: &str) -> Result<()> {
    let pods = Resource::core("pods");
    let what = format!("Deployment {namespace}/{deployment} is available");
    cluster::wait_until(&what, Duration::from_secs(60), || async {
        for pod in api.list(&pods, Some(namespace), None).await? {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            if name.starts_with(deployment) {
                let ready =
                    json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
                let status = json!({"status": {"phase": "Running", "conditions": [ready]}});
                api.merge(&pods, Some(namespace), name, Some("status"), &status).await?;
            }
        }
        let deployments = Resource::new("apps", "v1", "deployments");
        let found = api.get(&deployments, Some(namespace), deployment).await?;
        Ok(found.is_some_and(|found| found["status"]["availableReplicas"] == 1))
    })
    .await
}

/// Takes out of a Deployment what its controller counts as it goes: what was wanted is in the spec.
fn forget_the_controller(object: &mut Value) {
    if object["kind"] == "Deployment" {
        object.as_object_mut().map(|map| map.remove("status"));
        if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        {
            annotations.remove("deployment.kubernetes.io/revision");
            if annotations.is_empty() {
                object["metadata"].as_object_mut().map(|map| map.remove("annotations"));
            }
        }
    }
}

/// The family's home. There is one in a cluster, so each lane has an API server of its own.
fn home(worker: &Worker) -> String {
    worker.name("home")
}
