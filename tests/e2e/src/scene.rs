//! A world with a whole landscape of the old bus in it: Applications, users' namespaces, legacy Subscriptions that
//! deliver, the workloads of the system, and all the controllers around them.

use std::time::Duration;

use harness::{Api, Resource, StepCommand, Upstream, run::Running, state::Area};
use serde_json::{Value, json};
use standins::{
    Behaviour, Controller, Family, cluster, crds, fixtures,
    kinds::{
        APPLICATION, DEPLOYMENT, EVENT_ACTIVATION, HTTP_SOURCE, KNATIVE_SERVICE, Kind, LEGACY_SUBSCRIPTION,
        REPLICA_SET, SERVICE_INSTANCE, STATEFUL_SET, TRIGGER,
    },
    landscape::{NEW_EVENT_SERVICE, Scene, upgrade_operator},
};

use crate::{
    Told, World,
    rights::Account,
    world::{SOON, free_server, leaves_the_place_open, program, resource, sweep},
};

/// Namespace of Applications' own objects.
pub const INTEGRATION: &str = "kyma-integration";
/// Namespace of the old bus.
pub const SYSTEM: &str = "kyma-system";
/// A user's namespace.
pub const ONE: &str = "e2e-one";
/// Another one.
pub const TWO: &str = "e2e-two";
/// Whose finalizers the old bus serves.
pub const SUBSCRIPTION_CONTROLLER: &str = "event-bus-subscription-controller";

/// Controllers of the mesh and of the old bus; not those of the fixture family, whose tests run beside.
const CONTROLLERS: [Controller; 10] = [
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

impl World {
    /// A place in which the scene is set.
    pub async fn scene(scene: &Scene, behaviour: Behaviour) -> Self {
        let (server, alone) = free_server(Family::EventMesh).await;
        let compared =
            [APPLICATION, HTTP_SOURCE, LEGACY_SUBSCRIPTION, EVENT_ACTIVATION, SERVICE_INSTANCE, TRIGGER];
        let mut areas: Vec<Area> = compared.iter().map(|kind| Area::anywhere(resource(kind))).collect();
        for namespace in [SYSTEM, INTEGRATION] {
            areas.extend([DEPLOYMENT, STATEFUL_SET].map(|kind| Area::within(resource(&kind), namespace)));
        }
        // Workloads of the test before this one.
        let upstream = Upstream::from_kubeconfig(&server.kubeconfig).await.unwrap();
        let api = Api::new(upstream.client());
        let mut left = Vec::new();
        for namespace in [SYSTEM, INTEGRATION] {
            let workloads = [DEPLOYMENT, STATEFUL_SET, REPLICA_SET];
            left.extend(workloads.iter().map(|kind| Area::within(resource(kind), namespace)));
            left.push(Area::within(Resource::core("pods"), namespace));
        }
        sweep(&api, &left).await;

        let mut namespaces = vec![SYSTEM.to_owned(), INTEGRATION.to_owned()];
        namespaces.extend(scene.namespaces());
        leaves_the_place_open(&behaviour);
        assert!(!behaviour.play_pods && behaviour.bus_deployment.is_none(), "a scene says so itself");
        let behaviour = Behaviour {
            controllers: CONTROLLERS.to_vec(),
            namespaces,
            play_pods: true,
            bus_deployment: scene.workloads.then(|| format!("{SYSTEM}/{SUBSCRIPTION_CONTROLLER}")),
            ..behaviour
        };
        let program = program("BELAY_BIN", "belay");
        let (kubeconfig, family) = (&server.kubeconfig, Family::EventMesh);
        let world =
            Self::new(kubeconfig, family, behaviour, "e2e-home", INTEGRATION, program, areas, Some(alone))
                .await;
        scene.fill(&world.api.client()).await.unwrap();
        world
    }

    /// A step with these flags besides the usual ones.
    #[must_use]
    pub fn mesh_step(&self, step: &str, flags: &[&str]) -> StepCommand {
        self.operate(step, flags)
    }

    /// An object of any namespace.
    pub async fn at(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Value> {
        self.api.get(&resource(kind), Some(namespace), name).await.unwrap()
    }

    /// The names of the objects of a kind in a namespace.
    pub async fn names_at(&self, kind: &Kind, namespace: &str) -> Vec<String> {
        let found = self.api.list(&resource(kind), Some(namespace), None).await.unwrap();
        found.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Patches an object of any namespace.
    pub async fn change(&self, kind: &Kind, namespace: &str, name: &str, patch: &Value) {
        self.api.merge(&resource(kind), Some(namespace), name, None, patch).await.unwrap();
    }

    /// A Subscription of the later kind, which only our CRD takes: the Event Bus' own wants the fields of its time.
    pub async fn later_subscription(&self, namespace: &str, name: &str) {
        let mut ours = crds::crds(Family::EventMesh, None).unwrap();
        ours.retain(|crd| crd["metadata"]["name"] == "subscriptions.eventing.kyma-project.io");
        crds::install(&self.api.client(), &ours).await.unwrap();
        self.create(&fixtures::later_subscription(name, namespace, "http://sink.example/")).await;
    }

    /// The label by which a namespace gets its Broker.
    pub async fn injection(&self, namespace: &str) -> Value {
        let live = self.api.get(&Resource::core("namespaces"), None, namespace).await.unwrap().unwrap();
        live["metadata"]["labels"]["knative-eventing-injection"].clone()
    }

    /// The chart's own upgrade: the operator rolls the event-services, and all of them feed the mesh then.
    pub async fn upgrade(&self, applications: &[&str]) {
        upgrade_operator(&self.api.client(), INTEGRATION, NEW_EVENT_SERVICE).await.unwrap();
        for application in applications {
            self.until_rolled(application).await;
        }
        cluster::wait_until("no old pod is left", SOON, async || {
            let pods = self.api.list(&Resource::core("pods"), Some(INTEGRATION), None).await?;
            let old =
                |pod: &Value| pod["spec"]["containers"][0]["image"] == standins::landscape::OLD_EVENT_SERVICE;
            Ok(!pods.iter().any(old))
        })
        .await
        .unwrap();
    }

    /// Waits until the event-service of an Application has its new image.
    pub async fn until_rolled(&self, application: &str) {
        let name = format!("{application}-event-service");
        self.until(&DEPLOYMENT, &name, "is rolled out", |live| {
            let container = &live["spec"]["template"]["spec"]["containers"][0];
            let status = &live["status"];
            container["image"] == NEW_EVENT_SERVICE
                && status["observedGeneration"] == live["metadata"]["generation"]
                && status["availableReplicas"] == 1
                && status["replicas"] == 1
                && status["updatedReplicas"] == 1
        })
        .await;
    }

    /// Has the adapter of an Application's source made anew, and never become Ready.
    pub async fn break_source(&self, application: &str) {
        let broken = format!("HTTPSource:{INTEGRATION}/{application}");
        self.standins.change(|behaviour| behaviour.never_ready.push(broken));
        self.renew_adapter(application).await;
        self.until(&HTTP_SOURCE, application, "is not Ready", |source| {
            let conditions = source["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Ready" && one["status"] != "True")
        })
        .await;
    }

    /// Deletes the adapter of a source: its controller makes another one. What people did to cure one that hung.
    pub async fn renew_adapter(&self, application: &str) {
        self.api.delete(&resource(&KNATIVE_SERVICE), Some(INTEGRATION), application).await.unwrap();
    }

    /// Scales the controller that serves the old bus's finalizers, and waits until that is so.
    pub async fn scale_bus(&self, replicas: u16) {
        let patch = json!({"spec": {"replicas": replicas}});
        self.change(&DEPLOYMENT, SYSTEM, SUBSCRIPTION_CONTROLLER, &patch).await;
        cluster::wait_until("the bus is scaled", SOON, async || {
            let live = self.at(&DEPLOYMENT, SYSTEM, SUBSCRIPTION_CONTROLLER).await.unwrap();
            Ok(live["status"]["availableReplicas"].as_u64().unwrap_or_default() == u64::from(replicas))
        })
        .await
        .unwrap();
    }

    /// An owner in a namespace, as owner references name it.
    pub async fn owner(&self, namespace: &str) -> Value {
        let maps = Resource::core("configmaps");
        let owner = json!({"metadata": {"name": "owner", "namespace": namespace}});
        self.api.ensure(&maps, &owner).await.unwrap();
        let live = self.api.get(&maps, Some(namespace), "owner").await.unwrap().unwrap();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": live["metadata"]["uid"]})
    }

    /// Starts a step under an account that has just the rights that the step prints.
    pub async fn start_with_its_rights(&self, step: &StepCommand) -> (Running, Account) {
        let rules = self.run(&step.clone().args(["--print-rbac"])).await.json();
        let account = Account::new(&self.api, self.home, "exact", rules).await.unwrap();
        let upstream = account.upstream(&self.kubeconfig).await.unwrap();
        (step.start(&upstream, vec![]).await.unwrap(), account)
    }

    /// Runs a step under an account that has just the rights that the step prints.
    pub async fn run_with_its_rights(&self, step: &StepCommand) -> harness::Outcome {
        let (run, account) = self.start_with_its_rights(step).await;
        let run = run.wait().await.unwrap();
        account.revoke().await.unwrap();
        run.never_says("forbidden").never_says("could not be");
        run
    }
}

/// A scene in which every Subscription has its Trigger already, in one namespace.
#[must_use]
pub fn migrated() -> Scene {
    use standins::landscape::{Mesh, State};
    Scene::new(&["commerce", "logistics"])
        .instance(ONE, "commerce")
        .instance(ONE, "logistics")
        .on_mesh(ONE, Mesh::BrokerOnly)
        .subscription(ONE, "orders", "commerce", State::Migrated)
        .subscription(ONE, "parcels", "logistics", State::Migrated)
        .with_workloads()
}

/// Quick enough for tests that wait for it.
pub const PROMPT: Duration = Duration::from_millis(50);
