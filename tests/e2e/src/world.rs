//! Where a test happens: an API server that no other test of the family uses meanwhile, swept clean, with stand-ins.
//!
//! A family has one lock in a cluster, and Applications belong to the whole of it: so tests of one family follow each
//! other on one API server, while those of the other family run beside them.

use std::{
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

use futures::future::try_join_all;
use harness::{
    Api, Fault, Outcome, Resource, StepCommand, Upstream,
    run::Running,
    state::{Area, State, clear},
};
use serde_json::{Value, json};
use standins::{
    Behaviour, Controller, Family, Standins, cluster, crds, fixtures,
    kinds::{
        APPLICATION, CHANNEL, CRD, DEPLOYMENT, EVENT_ACTIVATION, EVENT_MESH, GADGET, HTTP_SOURCE,
        KNATIVE_SERVICE, Kind, LEGACY_SUBSCRIPTION, REPLICA_SET, STATEFUL_SET, STATION, WIDGET,
    },
};
use tokio::sync::{Mutex, MutexGuard};

use crate::{apis, kubelet::Kubelet, policy, rights, scene::PROMPT};

/// Ample for anything that happens by itself.
pub const SOON: Duration = Duration::from_secs(60);

/// How many seconds a run is patient where nothing but patience depends on it. A test in which something passes by itself
/// that nobody puts in an order gives it more.
const IMPATIENT: &str = "0.3";

/// Namespace of the source controller: a Deployment that is available, made once on each API server.
pub const SYSTEM: &str = "e2e-system";
/// Its name.
pub const SOURCE_CONTROLLER: &str = "source-controller";

/// The Station of the fixture family.
pub const STATION_NAME: &str = "e2e";

pub(crate) struct Server {
    pub(crate) kubeconfig: PathBuf,
    mesh: Mutex<()>,
    fixture: Mutex<()>,
}

fn servers() -> &'static [Server] {
    static SERVERS: OnceLock<Vec<Server>> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let Some(named) = std::env::var_os(cluster::TEST_KUBECONFIG) else {
            panic!(
                "{} must name the kubeconfig of a cluster that these tests may change: one API server with its \
                 controllers, or several separated by colons",
                cluster::TEST_KUBECONFIG
            );
        };
        std::env::split_paths(&named)
            .map(|kubeconfig| Server { kubeconfig, mesh: Mutex::new(()), fixture: Mutex::new(()) })
            .collect()
    })
}

/// The first API server that no test of the family uses.
pub(crate) async fn free_server(family: Family) -> (&'static Server, MutexGuard<'static, ()>) {
    let waits = servers().iter().map(|server| {
        let lane = if family == Family::EventMesh { &server.mesh } else { &server.fixture };
        Box::pin(async move { (server, lane.lock().await) })
    });
    futures::future::select_all(waits).await.0
}

/// The kind as URLs name it.
#[must_use]
pub fn resource(kind: &Kind) -> Resource {
    Resource::new(kind.group, kind.version, kind.plural)
}

/// An executable: what the variable names, or the one beside this test.
#[must_use]
pub fn program(variable: &str, name: &str) -> PathBuf {
    if let Some(named) = std::env::var_os(variable) {
        let path = PathBuf::from(named);
        assert!(path.is_file(), "{variable} names {}, which does not exist", path.display());
        return path;
    }
    harness::executable(name)
        .unwrap_or_else(|error| panic!("{error} (cargo build -p {name}, or set {variable})"))
}

/// Where a test happens.
pub struct World {
    /// The API server, directly.
    pub api: Api,
    /// The API server, for the proxy in front of each run.
    pub upstream: Upstream,
    /// The controllers around the steps.
    pub standins: Standins,
    /// Namespace of lock, journals and reports.
    pub home: &'static str,
    /// Namespace of the objects that are migrated.
    pub place: &'static str,
    /// The kubeconfig of the API server.
    pub kubeconfig: PathBuf,
    program: PathBuf,
    areas: Vec<Area>,
    _alone: Option<MutexGuard<'static, ()>>,
}

impl World {
    /// A place for the event mesh's steps, without any Application.
    pub async fn mesh(behaviour: Behaviour) -> Self {
        let (server, alone) = free_server(Family::EventMesh).await;
        let world = Self::mesh_on(&server.kubeconfig, behaviour, Some(alone)).await;
        source_controller(&world.api).await;
        world
    }

    /// The same on an API server that nobody else uses, without a source controller.
    pub async fn mesh_on(
        kubeconfig: &Path,
        behaviour: Behaviour,
        alone: Option<MutexGuard<'static, ()>>,
    ) -> Self {
        let place = "e2e-integration";
        leaves_the_place_open(&behaviour);
        let controllers = vec![Controller::HttpSource];
        let behaviour = Behaviour { controllers, namespaces: vec![place.to_owned()], ..behaviour };
        let kinds = [HTTP_SOURCE, CHANNEL, KNATIVE_SERVICE, LEGACY_SUBSCRIPTION, EVENT_ACTIVATION];
        let mut areas = vec![Area::anywhere(resource(&APPLICATION))];
        areas.extend(kinds.iter().map(|kind| Area::within(resource(kind), place)));
        let program = program("BELAY_BIN", "belay");
        let world =
            Self::new(kubeconfig, Family::EventMesh, behaviour, "e2e-home", place, program, areas, alone);
        world.await
    }

    /// A place for the fixture step, filled with one object of each sort that it changes.
    pub async fn fixture(behaviour: Behaviour) -> Self {
        let (server, alone) = free_server(Family::Fixture).await;
        let place = "e2e-workshop";
        leaves_the_place_open(&behaviour);
        let controllers = vec![Controller::Widget, Controller::Gadget];
        let behaviour = Behaviour { controllers, namespaces: vec![place.to_owned()], ..behaviour };
        let mut areas: Vec<Area> =
            [WIDGET, GADGET].iter().map(|kind| Area::within(resource(kind), place)).collect();
        areas.push(Area::anywhere(resource(&STATION)));
        let program = program("FIXTURE_BIN", "fixture-step");
        let kubeconfig = &server.kubeconfig;
        let family = Family::Fixture;
        let world =
            Self::new(kubeconfig, family, behaviour, "e2e-fixture-home", place, program, areas, Some(alone))
                .await;
        world.fill_workshop().await;
        world
    }

    // Each is one thing that tells the two families apart; a struct would only say it twice.
    #[allow(clippy::too_many_arguments)]
    pub(crate) async fn new(
        kubeconfig: &Path,
        family: Family,
        behaviour: Behaviour,
        home: &'static str,
        place: &'static str,
        program: PathBuf,
        mut areas: Vec<Area>,
        alone: Option<MutexGuard<'static, ()>>,
    ) -> Self {
        let upstream = Upstream::from_kubeconfig(kubeconfig).await.unwrap();
        let api = Api::new(upstream.client());
        let namespaces = [home, place, SYSTEM];
        try_join_all(namespaces.iter().map(|namespace| api.ensure_namespace(namespace))).await.unwrap();
        areas
            .extend([DEPLOYMENT, STATEFUL_SET, REPLICA_SET].map(|kind| Area::within(resource(&kind), place)));
        for plural in ["pods", "configmaps"] {
            areas.push(Area::within(Resource::core(plural), place));
        }
        // Steps look at all users' namespaces, and a CRD goes only with all its objects: what another test has left in
        // another namespace is swept too.
        let kinds = if family == Family::EventMesh { &EVENT_MESH[..] } else { &[WIDGET, GADGET, STATION] };
        let mut swept: Vec<Area> = kinds.iter().map(|kind| Area::anywhere(resource(kind))).collect();
        let is_swept = |area: &&Area| kinds.iter().any(|kind| resource(kind) == area.kind);
        swept.extend(areas.iter().filter(|area| !is_swept(area)).cloned());
        for plural in ["secrets", "configmaps"] {
            swept.push(Area::within(Resource::core(plural), home).named("belay-"));
        }
        let of_mesh = async {
            if family == Family::EventMesh {
                let autoscalers = Resource::new("autoscaling", "v2", "horizontalpodautoscalers");
                sweep(&api, &[Area::anywhere(autoscalers)]).await;
                let_namespaces_go(&api).await;
            }
        };
        tokio::join!(policy::sweep(&api, place), rights::sweep(&api, home), sweep(&api, &swept), of_mesh);
        apis::prepare(&api.client(), kubeconfig, family).await;
        let world = Self {
            standins: Standins::start(&api.client(), behaviour),
            api,
            upstream,
            home,
            place,
            kubeconfig: kubeconfig.to_owned(),
            program,
            areas,
            _alone: alone,
        };
        world.remove_leases(family).await;
        world
    }

    async fn remove_leases(&self, family: Family) {
        let leases = leases();
        let of_family = format!("belay.dev/family={}", family.name());
        for lease in self.api.list(&leases, None, Some(&of_family)).await.unwrap() {
            let name = |pointer: &str| lease.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let namespace = name("/metadata/namespace");
            self.api.delete(&leases, Some(namespace), name("/metadata/name")).await.unwrap();
        }
    }

    /// `create-missing-sources` with these flags besides the usual ones.
    #[must_use]
    pub fn sources(&self, flags: &[&str]) -> StepCommand {
        let controller = format!("{SYSTEM}/{SOURCE_CONTROLLER}");
        self.command("create-missing-sources", flags)
            .env("BELAY_INTEGRATION_NAMESPACE", self.place)
            .env("BELAY_SOURCE_CONTROLLER", controller)
    }

    /// `scale-down-legacy` of these workloads (`KIND/NAME`), with these flags besides.
    #[must_use]
    pub fn scale_down(&self, workloads: &[&str], flags: &[&str]) -> StepCommand {
        let full = workloads.iter().map(|workload| {
            let (kind, name) = workload.split_once('/').unwrap();
            format!("{kind}/{}/{name}", self.place)
        });
        let workloads: Vec<String> = full.collect();
        self.command("scale-down-legacy", flags).env("BELAY_WORKLOADS", workloads.join(","))
    }

    /// The fixture step with these flags besides the usual ones.
    #[must_use]
    pub fn step(&self, flags: &[&str]) -> StepCommand {
        self.command("fixture", flags).args(["--workshop", self.place, "--station", STATION_NAME])
    }

    /// Another step's program, with these arguments, in the same place.
    #[must_use]
    pub fn other_step(&self, program: &str, flags: &[&str]) -> StepCommand {
        StepCommand { program: program.into(), ..self.command("--workshop", &[self.place]) }
            .args(flags.iter().copied())
    }

    /// An operation: status, report, restore, accept, unlock.
    #[must_use]
    pub fn operate(&self, operation: &str, flags: &[&str]) -> StepCommand {
        self.command(operation, flags)
    }

    fn command(&self, word: &str, flags: &[&str]) -> StepCommand {
        StepCommand::new(&self.program, &[word])
            .args(flags.iter().copied())
            .env("BELAY_HOME", self.home)
            .env("BELAY_NAMESPACE", self.home)
            .env("BELAY_CONCURRENCY", "32")
            .env("BELAY_DEADLINE", "40")
            .env("BELAY_UNDO_RESERVE", "20")
            .env("BELAY_TEST_PATIENCE", IMPATIENT)
            .bound(Duration::from_secs(120))
    }

    /// Runs a command to its end.
    pub async fn run(&self, command: &StepCommand) -> Outcome {
        self.run_with(command, Vec::new()).await
    }

    /// Runs a command to its end, with things going wrong.
    pub async fn run_with(&self, command: &StepCommand, faults: Vec<Fault>) -> Outcome {
        command.run(&self.upstream, faults).await.unwrap()
    }

    /// Starts a command.
    pub async fn start(&self, command: &StepCommand, faults: Vec<Fault>) -> Running {
        command.start(&self.upstream, faults).await.unwrap()
    }

    /// Creates an object.
    pub async fn create(&self, manifest: &Value) -> Value {
        self.api.create(&resource(&Kind::of(manifest).unwrap()), manifest).await.unwrap()
    }

    /// Creates Applications.
    pub async fn applications(&self, names: &[impl AsRef<str>]) {
        for name in names {
            self.create(&fixtures::application(name.as_ref())).await;
        }
    }

    /// An object of the place, or of the cluster.
    pub async fn get(&self, kind: &Kind, name: &str) -> Option<Value> {
        let namespace = kind.namespaced.then_some(self.place);
        self.api.get(&resource(kind), namespace, name).await.unwrap()
    }

    /// The names of the objects of a kind.
    pub async fn names(&self, kind: &Kind) -> Vec<String> {
        let namespace = kind.namespaced.then_some(self.place);
        let found = self.api.list(&resource(kind), namespace, None).await.unwrap();
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        found.iter().map(name).collect()
    }

    /// Waits until the objects of a kind have these names. After an undo the garbage collector may still hold what goes:
    /// of a kind whose CRD is new it hears only after half a minute.
    pub async fn until_names(&self, kind: &Kind, wanted: &[&str]) {
        cluster::wait_until(&format!("{} are {wanted:?}", kind.plural), SOON, async || {
            Ok(self.names(kind).await == wanted)
        })
        .await
        .unwrap();
    }

    /// Patches an object of the place, or of the cluster.
    pub async fn patch(&self, kind: &Kind, name: &str, patch: &Value) {
        let namespace = kind.namespaced.then_some(self.place);
        self.api.merge(&resource(kind), namespace, name, None, patch).await.unwrap();
    }

    /// Waits until an object is so.
    pub async fn until(&self, kind: &Kind, name: &str, what: &str, check: impl Fn(&Value) -> bool) {
        cluster::wait_until(&format!("{} {name} {what}", kind.kind), SOON, async || {
            Ok(self.get(kind, name).await.is_some_and(|object| check(&object)))
        })
        .await
        .unwrap();
    }

    /// Waits until an object of the place is gone.
    pub async fn until_gone(&self, kind: &Kind, name: &str) {
        cluster::wait_gone(&self.api.client(), kind, self.place, name, SOON).await.unwrap();
    }

    /// A workload of the place, with its pods there.
    pub async fn workload(&self, kind: &Kind, name: &str, replicas: u16) {
        self.create(&fixtures::workload(kind, name, self.place, replicas, fixtures::IMAGE)).await;
        self.until(kind, name, "has its pods", |live| live["status"]["replicas"] == replicas).await;
    }

    /// Takes an API away, with all its objects.
    pub async fn remove_crd(&self, name: &str) {
        let mut of_it = self.areas.clone();
        of_it.retain(|area| area.kind.to_string() == name);
        sweep(&self.api, &of_it).await;
        self.api.delete(&resource(&CRD), None, name).await.unwrap();
        cluster::wait_gone(&self.api.client(), &CRD, "", name, SOON).await.unwrap();
        // Discovery names its kind for a moment longer.
        let (plural, group) = name.split_once('.').unwrap();
        cluster::wait_until(&format!("{name} is not served"), SOON, async || {
            self.is_unserved(plural, group).await
        })
        .await
        .unwrap();
    }

    /// Whether discovery names a kind in no version of its group.
    async fn is_unserved(&self, plural: &str, group: &str) -> anyhow::Result<bool> {
        let client = self.api.client();
        let groups = client.list_api_groups().await?.groups;
        let versions = groups.into_iter().filter(|one| one.name == group).flat_map(|one| one.versions);
        for version in versions {
            match client.list_api_group_resources(&version.group_version).await {
                Ok(list) if list.resources.iter().any(|kind| kind.name == plural) => return Ok(false),
                // It went while we asked.
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                other => drop(other?),
            }
        }
        Ok(true)
    }

    /// Gives an API of the event mesh back that was taken away.
    pub async fn restore_crd(&self, name: &str) {
        let family = Family::EventMesh;
        let mut crds = crds::crds(family, crds::upstream(family).as_deref()).unwrap();
        crds.retain(|crd| crd["metadata"]["name"] == name);
        assert_eq!(crds.len(), 1, "{name} is no API of the event mesh");
        crds::install(&self.api.client(), &crds).await.unwrap();
    }

    /// Somebody who says that pods of the place run.
    #[must_use]
    pub fn kubelet(&self) -> Kubelet {
        Kubelet::start(&self.api, self.place)
    }

    /// A pod of the place that belongs to a workload, and that no delete takes away.
    pub async fn lasting_pod(&self, workload: &str, name: &str) {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": self.place, "labels": {"app": workload},
                "finalizers": ["e2e.belay.dev/stay"],
            },
            "spec": {"containers": [{"name": "main", "image": fixtures::IMAGE}]},
        });
        self.api.create(&Resource::core("pods"), &pod).await.unwrap();
    }

    /// All that a step could have changed, in a form that can be compared. What only tells how far a controller has
    /// come is left out.
    pub async fn state(&self) -> State {
        let mut areas = self.areas.clone();
        areas.retain(|area| !["pods", "replicasets"].contains(&area.kind.plural.as_str()));
        let adjust = |object: &mut Value| {
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
        };
        State::read_settled(&self.api, &areas, adjust, SOON).await.unwrap()
    }

    /// Belay's own object in the home.
    pub async fn own(&self, plural: &str, name: &str) -> Option<Value> {
        let kind = if plural == "leases" { leases() } else { Resource::core(plural) };
        self.api.get(&kind, Some(self.home), name).await.unwrap()
    }

    /// The head of a step's journals, newest journal first; nothing if it never had one.
    pub async fn journals(&self, step: &str) -> Vec<Value> {
        let Some(secret) = self.own("secrets", &format!("belay-{step}")).await else { return Vec::new() };
        let bytes: k8s_openapi::ByteString = serde_json::from_value(secret["data"]["head"].clone()).unwrap();
        let head: Value = serde_json::from_slice(&bytes.0).unwrap();
        head["journals"].as_array().unwrap().clone()
    }

    /// How the newest journal of a step stands.
    pub async fn journal_status(&self, step: &str) -> String {
        let journals = self.journals(step).await;
        journals.first().and_then(|journal| journal["status"].as_str()).unwrap_or("none").to_owned()
    }

    /// Who holds the family's lock; empty if nobody does.
    pub async fn holder(&self, family: Family) -> String {
        let lease = self.own("leases", &format!("belay-{}", family.name())).await.unwrap_or_default();
        lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// The report of a step.
    pub async fn report(&self, step: &str) -> Value {
        let stored = self.own("configmaps", &format!("belay-report-{step}")).await.expect("a report");
        serde_json::from_str(stored["data"]["report"].as_str().unwrap()).unwrap()
    }

    /// One object of each sort that the fixture step changes, with all that an undo could forget.
    async fn fill_workshop(&self) {
        self.create(&fixtures::station(STATION_NAME, "Closed")).await;
        for name in ["anvil", "bench"] {
            self.create(&fixtures::widget(name, self.place, 3)).await;
        }
        let mut part = fixtures::widget("crank", self.place, 5);
        part["metadata"]["labels"] = json!({"fixture": "part"});
        let owner = self.create(&part).await;
        let mut gadget = fixtures::gadget("drill", self.place, "crank");
        gadget["metadata"]["labels"] = json!({"fixture": "recreate", "shelf": "2"});
        gadget["metadata"]["annotations"] = json!({"belongs-to": "somebody"});
        gadget["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "name": "crank",
            "uid": owner["metadata"]["uid"],
        }]);
        self.create(&gadget).await;
        for (name, label) in [("manual", "replace"), ("leftover", "leftover")] {
            self.config_map(name, &json!({"fixture": label, "shelf": "1"}), "text").await;
        }
        let mut deployment = fixtures::deployment("engine", self.place, 2, fixtures::IMAGE);
        deployment["metadata"]["labels"] = json!({"fixture": "scale"});
        self.create(&deployment).await;
        cluster::wait_ready(&self.api.client(), &GADGET, self.place, "drill", SOON).await.unwrap();
        self.until(&DEPLOYMENT, "engine", "has its pods", |live| live["status"]["replicas"] == 2).await;
    }

    /// A ConfigMap of the place.
    pub async fn config_map(&self, name: &str, labels: &Value, data: &str) {
        let object = json!({
            "metadata": {
                "name": name, "namespace": self.place, "labels": labels, "annotations": {"note": "kept"},
            },
            "data": {"content": data},
        });
        self.api.create(&Resource::core("configmaps"), &object).await.unwrap();
    }
}

/// Takes away whatever is in these areas, side by side.
pub(crate) async fn sweep(api: &Api, areas: &[Area]) {
    let each = areas.iter().map(|area| clear(api, std::slice::from_ref(area), SOON));
    try_join_all(each).await.unwrap();
}

/// Stand-ins that let go of what is deleted soon enough for tests that wait for it.
#[must_use]
pub fn prompt() -> Behaviour {
    Behaviour { finalizer_delay: PROMPT, ..Behaviour::default() }
}

/// A world says itself which controllers act, and where: what a test asks for would be lost without a word.
pub(crate) fn leaves_the_place_open(asked: &Behaviour) {
    assert!(asked.controllers.is_empty(), "the world says which controllers act, not the test");
    assert!(asked.namespaces.is_empty(), "the world says in which namespaces controllers act, not the test");
}

/// Leases.
#[must_use]
pub fn leases() -> Resource {
    Resource::new("coordination.k8s.io", "v1", "leases")
}

/// A test that failed may have left a namespace on its way out, held by a ConfigMap: it is let go, and gone when this
/// returns.
async fn let_namespaces_go(api: &Api) {
    let namespaces = Resource::core("namespaces");
    let going = async || {
        let mut all = api.list(&namespaces, None, None).await?;
        all.retain(|namespace| namespace["metadata"].get("deletionTimestamp").is_some());
        let name = |namespace: &Value| namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        anyhow::Ok(all.iter().map(name).filter(|name| name.starts_with("e2e-")).collect::<Vec<_>>())
    };
    for name in going().await.unwrap() {
        sweep(api, &[Area::within(Resource::core("configmaps"), &name)]).await;
    }
    cluster::wait_until("no namespace is going", SOON, async || Ok(going().await?.is_empty())).await.unwrap();
}

/// The source controller's Deployment; it becomes available once and stays so, since nobody minds its pod. A test that
/// failed may have scaled it down.
async fn source_controller(api: &Api) {
    let deployments = resource(&DEPLOYMENT);
    let manifest = fixtures::deployment(SOURCE_CONTROLLER, SYSTEM, 1, fixtures::IMAGE);
    api.ensure(&deployments, &manifest).await.unwrap();
    let one = json!({"spec": {"replicas": 1}});
    api.merge(&deployments, Some(SYSTEM), SOURCE_CONTROLLER, None, &one).await.unwrap();
    let available = async || {
        let live = api.get(&deployments, Some(SYSTEM), SOURCE_CONTROLLER).await?.unwrap_or_default();
        let is_seen = live["status"]["observedGeneration"] == live["metadata"]["generation"];
        Ok(is_seen && live["status"]["availableReplicas"] == 1)
    };
    if available().await.unwrap_or(false) {
        return;
    }
    let _kubelet = Kubelet::start(api, SYSTEM);
    cluster::wait_until("the source controller is available", SOON, available).await.unwrap();
}
