//! A cluster that is as a test wants it: an old one with something to migrate, or a fresh one.

use std::{
    fmt::Debug,
    path::{Path, PathBuf},
    time::Duration,
};

use futures::AsyncReadExt as _;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, StatefulSet},
        autoscaling::v2::HorizontalPodAutoscaler,
        batch::v1::{CronJob, Job},
        coordination::v1::Lease,
        core::v1::{ConfigMap, Pod, Secret, ServiceAccount},
        rbac::v1::{Role, RoleBinding},
    },
    serde::de::DeserializeOwned,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, LogParams},
};
use serde_json::Value;
use standins::{
    Behaviour, Controller, Family, Standins, cluster,
    conditions::holds,
    crds, fixtures, install_crds,
    kinds::{DEPLOYMENT, EVENT_MESH, HTTP_SOURCE},
    landscape::Scene,
    policies,
    seed::{self, Seed, seed},
};
use tokio::task::JoinHandle;

use crate::{
    clusters::{Pool, kubeconfig},
    programs::{Helm, Meanwhile, Said, belay, kubectl},
};

/// The family's home, and the release's namespace.
pub const SYSTEM: &str = seed::SYSTEM;
/// Where sources live.
pub const INTEGRATION: &str = seed::INTEGRATION;
/// The family's lock.
pub const LEASE: &str = "belay-event-mesh";
/// The release that runs the steps.
pub const RELEASE: &str = "event-mesh";
/// The step that runs before the chart's objects.
pub const SOURCES: &str = "create-missing-sources";
/// The step that runs after them.
pub const SCALE_DOWN: &str = "scale-down-legacy";
/// All steps of the family, in the order in which they run.
pub const STEPS: [&str; 7] = [
    SOURCES,
    "recreate-service-instances",
    "recreate-triggers",
    "verify-event-services",
    "retire-subscriptions",
    SCALE_DOWN,
    "purge-legacy",
];
/// The Applications of an old cluster.
pub const APPLICATIONS: [&str; 3] = ["commerce", "logistics", "loyalty"];

/// Whatever is awaited comes within this time, or the test fails. Generous: nothing waits longer than it must, and a
/// machine with two cores that are busy is slow.
pub const SOON: Duration = Duration::from_secs(180);

/// A namespace that tests may fill, and that is deleted before the next test.
pub const ELSEWHERE: &str = "elsewhere";

/// The users' namespaces of all scenes.
const USERS: [&str; 3] = ["migratefromeventbusupgradetest", "migratefromeventmeshupgradetest", "shop"];

/// What the family keeps in its home.
const OF_THE_FAMILY: &str = "belay.dev/family=event-mesh";
/// What the charts of the family make for a release, wherever it is.
const OF_A_RELEASE: &str = "belay.dev/release,belay.dev/family=event-mesh";

/// The clusters, as the tests of the event mesh share them.
static CLUSTERS: Pool = Pool::new();

/// A cluster with something to migrate: Applications without sources, and an Event Bus that runs.
pub fn on_an_old_cluster(helm: u8, test: impl AsyncFnOnce(Ground)) {
    on_a_cluster(helm, async |ground| {
        let upstream = crds::upstream(Family::EventMesh);
        install_crds(&ground.client, Family::EventMesh, upstream.as_deref()).await.unwrap();
        policies::install(&ground.client).await.unwrap();
        let wanted = Seed {
            applications: APPLICATIONS.len(),
            subscriptions: 0,
            user_namespace: "shop".into(),
            image: fixtures::IMAGE.into(),
            wait: SOON,
        };
        seed(&ground.client, &wanted).await.unwrap();
        test(ground).await;
    });
}

/// A cluster that has never heard of what is migrated: neither its kinds nor its namespaces.
pub fn on_a_fresh_cluster(helm: u8, test: impl AsyncFnOnce(Ground)) {
    on_a_cluster(helm, async |ground| {
        policies::remove(&ground.client).await.unwrap();
        crds::remove_crds(&ground.client, Family::EventMesh).await.unwrap();
        delete_namespaces(&[SYSTEM, INTEGRATION]);
        test(ground).await;
    });
}

/// A cluster before the mesh, as the scene has it, with the Event Bus as a Helm release of its own. All controllers of the
/// old and of the new world are played.
pub fn on_a_scene(helm: u8, scene: &Scene, test: impl AsyncFnOnce(Ground)) {
    let behaviour = Behaviour {
        controllers: vec![
            Controller::HttpSource,
            Controller::Subscription,
            Controller::EventActivation,
            Controller::ServiceCatalog,
            Controller::ApplicationBroker,
            Controller::Broker,
            Controller::Trigger,
            Controller::KnativeSubscription,
            Controller::ApplicationOperator,
        ],
        // Scaled to 0 it serves nothing any more.
        bus_deployment: Some(format!("{SYSTEM}/{}", seed::EVENT_BUS[1].0)),
        ..Behaviour::default()
    };
    on_a_cluster_with(helm, behaviour, async |ground| {
        for namespace in [SYSTEM, INTEGRATION] {
            cluster::ensure_namespace(&ground.client, namespace).await.unwrap();
        }
        kubectl(&["delete", "deployments", "--all", "--namespace", SYSTEM]).or_panic();
        let upstream = crds::upstream(Family::EventMesh);
        install_crds(&ground.client, Family::EventMesh, upstream.as_deref()).await.unwrap();
        policies::install(&ground.client).await.unwrap();
        let bus = test_chart("event-bus");
        ground.helm.run(&["install", "event-bus", &bus, "--namespace", SYSTEM, "--wait"]).or_panic();
        scene.fill(&ground.client).await.unwrap();
        test(ground).await;
    });
}

fn on_a_cluster(helm: u8, test: impl AsyncFnOnce(Ground)) {
    let behaviour = Behaviour { controllers: vec![Controller::HttpSource], ..Behaviour::default() };
    on_a_cluster_with(helm, behaviour, test);
}

fn on_a_cluster_with(helm: u8, behaviour: Behaviour, test: impl AsyncFnOnce(Ground)) {
    let _taken = CLUSTERS.take();
    // Two threads of its own for the stand-ins: the test itself blocks while Helm runs.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let client = cluster::connect(Some(&kubeconfig())).await.unwrap();
        // Before anybody is there who would put back what is removed.
        clear(&client).await;
        let standins = Standins::start(&client, behaviour);
        test(Ground { client, helm: Helm::of(helm), standins }).await;
    });
}

/// Removes what earlier tests have left behind, whichever way they ended.
async fn clear(client: &Client) {
    kubectl(&["uncordon", "--selector", "kubernetes.io/os=linux"]).or_panic();
    let all = ListParams::default();
    let of_a_release = ListParams::default().labels(OF_A_RELEASE);
    let of_the_family = ListParams::default().labels(OF_THE_FAMILY);
    let of_a_test = ListParams::default().labels("belay-tests");
    for namespace in [SYSTEM, INTEGRATION] {
        clear_of::<Job>(client, namespace, &of_a_release).await;
        clear_of::<CronJob>(client, namespace, &of_a_release).await;
        clear_of::<RoleBinding>(client, namespace, &of_a_release).await;
        clear_of::<Role>(client, namespace, &of_a_release).await;
        clear_of::<ServiceAccount>(client, namespace, &of_a_release).await;
        clear_of::<HorizontalPodAutoscaler>(client, namespace, &of_a_test).await;
        clear_of::<Deployment>(client, namespace, &of_a_test).await;
        clear_of::<Pod>(client, namespace, &of_a_test).await;
    }
    clear_of::<Deployment>(client, INTEGRATION, &all).await;
    clear_of::<StatefulSet>(client, INTEGRATION, &all).await;
    kubectl(&[
        "delete",
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings",
        "--selector",
        OF_A_RELEASE,
    ])
    .or_panic();
    // A step that still runs writes its journal and holds its lock: these go when it is gone.
    let pods: Api<Pod> = Api::namespaced(client.clone(), SYSTEM);
    cluster::wait_until("no step runs any more", SOON, async || {
        Ok(pods.list_metadata(&of_a_release).await?.items.is_empty())
    })
    .await
    .unwrap();
    for namespace in [SYSTEM, INTEGRATION] {
        clear_of::<Lease>(client, namespace, &of_the_family).await;
        clear_of::<ConfigMap>(client, namespace, &of_the_family).await;
        for kind in ["helm.sh/release.v1", "belay.dev/journal"] {
            clear_of::<Secret>(client, namespace, &ListParams::default().fields(&format!("type={kind}")))
                .await;
        }
    }
    for kind in EVENT_MESH {
        cluster::empty(client, &kind, SOON).await.unwrap();
    }
    delete_namespaces(&[&[ELSEWHERE], &USERS[..]].concat());
}

async fn clear_of<K>(client: &Client, namespace: &str, which: &ListParams)
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let _ = api.delete_collection(&DeleteParams::background(), which).await.unwrap();
}

/// Where a test stands.
pub struct Ground {
    /// The way to the API server.
    pub client: Client,
    /// The Helm that the test is about.
    pub helm: Helm,
    /// Make sources Ready, or not.
    pub standins: Standins,
}

impl Ground {
    /// `helm VERB event-mesh charts/event-mesh` in the family's home, with the first and the sixth step unless `more`
    /// says otherwise.
    pub fn event_mesh(&self, verb: &str, more: &[&str]) -> Said {
        self.helm.run(&as_words(&event_mesh(verb, more)))
    }

    /// The same in the background.
    #[must_use]
    pub fn event_mesh_meanwhile(&self, verb: &str, more: &[&str]) -> Meanwhile {
        self.helm.meanwhile(&as_words(&event_mesh(verb, more)))
    }

    /// Adds an Application.
    pub async fn add_application(&self, name: &str) {
        cluster::create(&self.client, &fixtures::application(name)).await.unwrap();
    }

    /// Adds an Application whose source never becomes Ready, until [`Self::heal`].
    pub async fn add_broken_application(&self, name: &str) {
        let broken = name.to_owned();
        self.standins.change(|behaviour| behaviour.never_ready.push(broken));
        self.add_application(name).await;
    }

    /// Lets every source become Ready.
    pub fn heal(&self) {
        self.standins.change(|behaviour| behaviour.never_ready.clear());
    }

    /// The sources that are there, each with whether it is Ready.
    pub async fn sources(&self) -> Vec<(String, bool)> {
        let found = HTTP_SOURCE.within(&self.client, INTEGRATION).list(&ListParams::default()).await.unwrap();
        found
            .iter()
            .map(|source| (source.metadata.name.clone().unwrap_or_default(), holds(source, "Ready")))
            .collect()
    }

    /// Panics unless exactly these sources are there, all of them Ready.
    pub async fn sources_must_be(&self, names: &[&str]) {
        let mut wanted: Vec<(String, bool)> = names.iter().map(|&name| (name.to_owned(), true)).collect();
        wanted.sort();
        assert_eq!(self.sources().await, wanted, "sources, and whether each is Ready");
    }

    /// The replicas that a Deployment of the system is to have.
    pub async fn replicas(&self, deployment: &str) -> i64 {
        let found = cluster::get(&self.client, &DEPLOYMENT, SYSTEM, deployment).await.unwrap();
        found.expect(deployment).data["spec"]["replicas"].as_i64().unwrap()
    }

    /// Panics unless the Deployments of the Event Bus have these replicas.
    pub async fn event_bus_must_have(&self, replicas: [i64; 2]) {
        let mut found = [0; 2];
        for (found, (name, _)) in found.iter_mut().zip(seed::EVENT_BUS) {
            *found = self.replicas(name).await;
        }
        assert_eq!(found, replicas, "replicas of the Event Bus");
    }

    /// Waits until the step is half-way: a pod of it runs, and it has made the source of that Application, which does
    /// not become Ready.
    pub async fn half_way(&self, application: &str) -> Pod {
        cluster::wait_until(&format!("{SOURCES} has made the source {application}"), SOON, async || {
            let made = cluster::get(&self.client, &HTTP_SOURCE, INTEGRATION, application).await?;
            Ok(made.is_some() && !self.running_pods(SOURCES).await.is_empty())
        })
        .await
        .unwrap();
        let pods = self.running_pods(SOURCES).await;
        assert_eq!(pods.len(), 1, "pods of {SOURCES} that run");
        pods.into_iter().next().unwrap()
    }

    /// Waits until another pod than this one is at the step and has said this.
    pub async fn next_pod(&self, before: &Pod, sentence: &str) -> Pod {
        let another = async || {
            let pods = self.running_pods(SOURCES).await;
            pods.into_iter().find(|pod| pod.metadata.uid != before.metadata.uid)
        };
        cluster::wait_until("the next pod runs", SOON * 2, async || Ok(another().await.is_some()))
            .await
            .unwrap();
        let pod = another().await.expect("the next pod still runs");
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        cluster::wait_until(&format!("the next pod says {sentence}"), SOON, async || {
            // The kubelet has no log of a container that begins to run.
            let log = pods.logs(pod_name(&pod), &LogParams::default()).await.unwrap_or_default();
            Ok(log.contains(sentence))
        })
        .await
        .unwrap();
        pod
    }

    /// Follows what a pod says, to its end. From when this returns nothing is missed, even if the pod is deleted.
    pub async fn follow(&self, pod: &Pod) -> JoinHandle<String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        let to_the_end = LogParams { follow: true, ..LogParams::default() };
        let mut lines = Box::pin(pods.log_stream(pod_name(pod), &to_the_end).await.unwrap());
        tokio::spawn(async move {
            let mut log = String::new();
            lines.read_to_string(&mut log).await.unwrap();
            log
        })
    }

    /// Pods of a step whose container runs.
    pub async fn running_pods(&self, step: &str) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        let of_step = ListParams::default().labels(&format!("belay.dev/step={step}"));
        let mut found = pods.list(&of_step).await.unwrap().items;
        found.retain(|pod| container(pod).is_some_and(|(_, runs)| runs));
        found
    }

    /// The Job of the step.
    pub async fn job(&self, step: &str) -> Job {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), SYSTEM);
        jobs.get(&format!("{RELEASE}-{step}")).await.unwrap()
    }

    /// What `belay status` says of a step: its report, its journals, the next command.
    #[must_use]
    pub fn status(&self, step: &str) -> Value {
        let said = belay(&["status", "--output", "json"]).or_panic();
        let rows: Vec<Value> = serde_json::from_str(&said.stdout).expect("belay status prints JSON");
        rows.into_iter().find(|row| row["step"] == step).unwrap_or_default()
    }

    /// Runs a Job from a CronJob, as a person with nothing but kubectl does, and gives back its log once it has ended.
    pub async fn run_by_hand(&self, cron_job: &str, name: &str) -> String {
        let from = format!("--from=cronjob/{cron_job}");
        kubectl(&["create", "job", "--namespace", SYSTEM, &from, name]).or_panic();
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), SYSTEM);
        cluster::wait_until(&format!("Job {name} has ended"), SOON, async || {
            let status = jobs.get(name).await?.status.unwrap_or_default();
            let ended = |kind: &str| kind == "Complete" || kind == "Failed";
            Ok(status.conditions.unwrap_or_default().iter().any(|condition| ended(&condition.type_)))
        })
        .await
        .unwrap();
        kubectl(&["logs", "--namespace", SYSTEM, &format!("job/{name}")]).or_panic().all
    }

    /// Names, with their kinds, of what is left of the release and its hooks.
    #[must_use]
    pub fn remains(&self) -> Vec<String> {
        let lists = [
            &["jobs,cronjobs,roles,rolebindings,serviceaccounts,pods", "--all-namespaces"][..],
            &[
                "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings",
            ],
        ];
        let mut remains = Vec::new();
        for list in lists {
            let arguments = [&["get"], list, &["--selector", OF_A_RELEASE, "--output", "name"]].concat();
            remains.extend(kubectl(&arguments).or_panic().stdout.lines().map(str::to_owned));
        }
        remains
    }

    /// The journal Secrets and reports in the family's home.
    #[must_use]
    pub fn journals_and_reports(&self) -> Vec<String> {
        let get = |what: &str, selector: [&str; 2]| {
            let said =
                kubectl(&["get", what, "--namespace", SYSTEM, selector[0], selector[1], "--output", "name"]);
            said.or_panic().stdout.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let mut found = get("secrets", ["--field-selector", "type=belay.dev/journal"]);
        found.extend(get("configmaps", ["--selector", OF_THE_FAMILY]));
        found
    }

    /// The Lease, if it is there.
    #[must_use]
    pub fn has_lease(&self) -> bool {
        kubectl(&["get", "lease", "--namespace", SYSTEM, LEASE]).succeeded
    }

    /// Deletes a pod as somebody who does not wait.
    pub async fn delete_pod(&self, pod: &Pod) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), SYSTEM);
        pods.delete(pod_name(pod), &DeleteParams::default()).await.unwrap();
    }
}

/// A pod's name.
#[must_use]
pub fn pod_name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// The id of the step's container, and whether it runs.
#[must_use]
pub fn container(pod: &Pod) -> Option<(String, bool)> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    let runs = status.state.as_ref().is_some_and(|state| state.running.is_some());
    Some((status.container_id.clone()?, runs))
}

/// The folder of a chart that only the tests use.
#[must_use]
pub fn test_chart(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("charts").join(name).display().to_string()
}

fn event_mesh(verb: &str, more: &[&str]) -> Vec<String> {
    let chart: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/event-mesh");
    let mut words = vec![verb.to_owned(), RELEASE.to_owned(), chart.display().to_string()];
    words.extend(["--namespace", SYSTEM].map(str::to_owned));
    // Whoever wants it otherwise says so: of two the later one counts. Two steps show what Helm does with any.
    words.extend(["--timeout", "15m", "--set"].map(str::to_owned));
    words.push(format!("only={{{SOURCES},{SCALE_DOWN}}}"));
    words.extend(more.iter().map(|&word| word.to_owned()));
    words
}

fn as_words(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

fn delete_namespaces(names: &[&str]) {
    kubectl(&[&["delete", "namespace", "--ignore-not-found"], names].concat()).or_panic();
}
