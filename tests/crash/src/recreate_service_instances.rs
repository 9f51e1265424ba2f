//! Two namespaces from before the mesh, one of them with a Broker already, three instances, four legacy Subscriptions
//! of which one is migrated; one instance has a binding and is linked instead. In a third namespace the only instance has
//! a binding: there nobody but the step writes label and link, so that both are compared.

use std::time::Duration;

use anyhow::{Result, ensure};
use harness::{Area, Resource, Scenario, StepCommand, Worker, crash::Guard};
use serde_json::{Value, json};
use standins::{
    Behaviour, BrokerRelease, INJECTION_LABEL, Standins, cluster, fixtures,
    landscape::{Scene, ready_links},
    seed::{INTEGRATION, SYSTEM},
};

/// The scenario.
pub struct RecreateServiceInstances {
    /// With the broker of the next release, which deletes an `EventActivation` itself.
    pub newer: bool,
}

const STEP: &str = "recreate-service-instances";

/// Serves the finalizers, as far as the step can tell.
const CONTROLLER: &str = "event-bus-subscription-controller";

/// What a user has in a namespace. The broker's links are left out: whoever recreates an instance gets one, also where a
/// failed step puts it back.
const OF_USERS: &[(&str, &str, &str)] = &[
    ("servicecatalog.k8s.io", "v1beta1", "serviceinstances"),
    ("servicecatalog.k8s.io", "v1beta1", "servicebindings"),
    ("applicationconnector.kyma-project.io", "v1alpha1", "eventactivations"),
    ("eventing.kyma-project.io", "v1alpha1", "subscriptions"),
];

/// What must be gone before the next point, and is not compared.
const AROUND: &[(&str, &str, &str)] = &[
    ("servicecatalog.k8s.io", "v1beta1", "serviceclasses"),
    ("servicecatalog.k8s.io", "v1beta1", "serviceplans"),
    ("servicecatalog.k8s.io", "v1beta1", "servicebrokers"),
    ("applicationconnector.kyma-project.io", "v1alpha1", "applicationmappings"),
    ("eventing.knative.dev", "v1alpha1", "triggers"),
    ("eventing.knative.dev", "v1alpha1", "brokers"),
];

/// In the last one everything is bound.
fn namespaces(worker: &Worker) -> [String; 3] {
    [worker.name("one"), worker.name("other"), worker.name("third")]
}

fn scene(worker: &Worker) -> Scene {
    let [one, other, third] = namespaces(worker);
    let scene = Scene::small(&one, &other).instance(&third, "logistics");
    // So the instances can be compared.
    Scene { known_ids: true, ..scene }
}

fn links() -> Area {
    Area::within(Resource::new("messaging.knative.dev", "v1alpha1", "subscriptions"), INTEGRATION)
}

impl Scenario for RecreateServiceInstances {
    fn name(&self) -> &'static str {
        if self.newer { "recreate-service-instances-1.11" } else { STEP }
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        let times = ["--gone-within", "8", "--provisioned-within", "8", "--linked-within", "8"];
        Ok(crate::command("belay", STEP, &self.home(worker)).args(times))
    }

    fn home(&self, worker: &Worker) -> String {
        crate::home(worker)
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        let mut areas = Vec::new();
        for namespace in namespaces(worker) {
            let within = |(group, version, plural): &(&str, &str, &str)| {
                Area::within(Resource::new(group, version, plural), &namespace)
            };
            areas.extend(OF_USERS.iter().map(within));
        }
        let [_, _, third] = namespaces(worker);
        areas.push(links().labelled(&format!("broker-namespace={third}")));
        areas.push(Area::anywhere(Resource::core("namespaces")).named(&third));
        areas
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        crate::prepare(worker, &[SYSTEM, INTEGRATION, &self.home(worker)]).await?;
        let controller = fixtures::deployment(CONTROLLER, SYSTEM, 1, "none");
        worker.api.ensure(&Resource::new("apps", "v1", "deployments"), &controller).await?;
        crate::pretend_kubelet(&worker.api, SYSTEM, CONTROLLER).await
    }

    fn standins(&self, worker: &Worker) -> Guard {
        let broker_release = if self.newer { BrokerRelease::V1_11 } else { BrokerRelease::V1_10 };
        let behaviour = Behaviour {
            controllers: crate::MESH.to_vec(),
            broker_release,
            steady_names: true,
            finalizer_delay: Duration::from_millis(20),
            ..Behaviour::default()
        };
        Box::new(Standins::start(&worker.api.client(), behaviour))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        let [one, other, third] = namespaces(worker);
        let mut around = vec![links()];
        let unlabelled = json!({"metadata": {"labels": {INJECTION_LABEL: null}}});
        for namespace in [&one, &other, &third] {
            // A labelled namespace would get its Broker again.
            cluster::ensure_namespace(&worker.api.client(), namespace).await?;
            worker.api.merge(&Resource::core("namespaces"), None, namespace, None, &unlabelled).await?;
            let within = |(group, version, plural): &(&str, &str, &str)| {
                Area::within(Resource::new(group, version, plural), namespace)
            };
            around.extend(AROUND.iter().map(within));
        }
        harness::state::clear(&worker.api, &around, Duration::from_secs(20)).await?;
        crate::set(&worker.api, scene(worker)).await?;
        for namespace in [&one, &third] {
            let binding = fixtures::service_binding("key", namespace, "logistics");
            cluster::create(&worker.api.client(), &binding).await?;
        }
        Ok(())
    }

    /// Exactly one link for each namespace and Application.
    async fn holds_in_the_end(&self, worker: &Worker) -> Result<()> {
        let links = ready_links(&worker.api.client(), INTEGRATION).await?;
        let wanted = scene(worker).pairs();
        ensure!(links == wanted, "links that are Ready: {links:?}, wanted: {wanted:?}");
        Ok(())
    }

    /// Who asked for an instance, and how often the catalog has looked at it, is another for each that is made.
    /// The newer broker makes an `EventActivation` without an owner: whether one has an owner tells who made it last.
    fn adjust(&self, object: &mut Value) {
        if self.newer
            && object["kind"] == "EventActivation"
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.remove("ownerReferences");
        }
        for (part, fields) in
            [("spec", &["userInfo"][..]), ("status", &["reconciledGeneration", "observedGeneration"])]
        {
            if let Some(part) = object.get_mut(part).and_then(Value::as_object_mut) {
                part.retain(|field, _| !fields.contains(&field.as_str()));
            }
        }
    }
}
