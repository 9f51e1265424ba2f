//! What every test of this folder stands on: a cluster, the CRDs, and a namespace of its own.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use standins::kinds::{
    APPLICATION, EVENT_ACTIVATION, EVENT_MESH, GADGET, KNATIVE_SUBSCRIPTION, Kind, LEGACY_SUBSCRIPTION,
    NAMESPACE, SERVICE_BINDING, SERVICE_INSTANCE, TRIGGER,
};
use standins::landscape::Scene;
use standins::{Behaviour, Family, Standins, cluster, crds, install_crds, policies};
use tokio::sync::OnceCell;
use tokio::time::timeout;

/// Ample for anything that happens at once; also for the garbage collector, which hears of a new CRD only every 30 s.
pub const SOON: Duration = Duration::from_secs(90);
/// For what an earlier try has left.
const SWEPT: Duration = Duration::from_secs(120);

/// Done once, before the first test makes anything: kinds and policies are installed, and what an earlier try has left is
/// swept away. Some scenes have namespaces of fixed names, and nobody would let go of what is in them.
static PREPARED: OnceCell<()> = OnceCell::const_new();

async fn prepare(client: &Client) {
    for family in [Family::EventMesh, Family::Fixture] {
        install_crds(client, family, crds::upstream(family).as_deref()).await.unwrap();
    }
    policies::install(client).await.unwrap();
    for kind in EVENT_MESH.iter().chain(&[GADGET]) {
        cluster::empty(client, kind, SWEPT).await.unwrap();
    }
    let namespaces = NAMESPACE.everywhere(client);
    let ours = ["standins-", "user-", "migratefromevent"];
    cluster::wait_until("no namespace of an earlier try is left", SWEPT, async || {
        let found = namespaces.list_metadata(&ListParams::default()).await?.items;
        let left = found.iter().map(ResourceExt::name_any);
        let left: Vec<String> =
            left.filter(|name| ours.iter().any(|start| name.starts_with(start))).collect();
        for name in &left {
            cluster::delete(client, &NAMESPACE, "", name).await?;
        }
        Ok(left.is_empty())
    })
    .await
    .unwrap();
}

/// A test's own namespace, and stand-ins that act in it alone.
pub struct Ground {
    pub client: Client,
    pub namespace: String,
    /// Namespace of what belongs to Applications; the test's own one too, where there is only that.
    pub integration: String,
    pub standins: Standins,
    namespaces: Vec<String>,
    applications: RefCell<Vec<String>>,
    looks: AtomicUsize,
}

impl Ground {
    /// Prepares the ground. `UPSTREAM_CRDS` makes it the real CRDs, where there are any.
    pub async fn new(test: &str, behaviour: Behaviour) -> Self {
        let namespace = format!("standins-{test}-{}", std::process::id());
        Self::prepared(namespace.clone(), vec![namespace.clone()], namespace, behaviour).await
    }

    /// The same with a namespace for what belongs to Applications, and further namespaces for users.
    pub async fn with_integration(test: &str, behaviour: Behaviour, further: &[&str]) -> Self {
        let namespace = format!("standins-{test}-{}", std::process::id());
        let integration = format!("{namespace}-integration");
        let mut namespaces = vec![namespace.clone(), integration.clone()];
        namespaces.extend(further.iter().map(|name| format!("{namespace}-{name}")));
        Self::prepared(namespace, namespaces, integration, behaviour).await
    }

    async fn prepared(
        namespace: String,
        namespaces: Vec<String>,
        integration: String,
        behaviour: Behaviour,
    ) -> Self {
        let client = cluster::test_cluster().await.unwrap_or_else(|error| panic!("{error}"));
        PREPARED.get_or_init(|| prepare(&client)).await;
        for namespace in &namespaces {
            cluster::ensure_namespace(&client, namespace).await.unwrap();
        }
        let asked = (&behaviour.namespaces, &behaviour.integration, &behaviour.system);
        let usual = Behaviour::default();
        assert_eq!(
            asked,
            (&usual.namespaces, &usual.integration, &usual.system),
            "the ground says where, not the test"
        );
        let behaviour = Behaviour {
            namespaces: namespaces.clone(),
            integration: integration.clone(),
            system: integration.clone(),
            ..behaviour
        };
        let standins = Standins::start(&client, behaviour);
        Self {
            client,
            namespace,
            integration,
            standins,
            namespaces,
            applications: Vec::new().into(),
            looks: AtomicUsize::new(0),
        }
    }

    /// The further namespace of that name.
    pub fn beside(&self, name: &str) -> String {
        format!("{}-{name}", self.namespace)
    }

    /// The name of an Application of this test alone: they belong to the whole cluster.
    pub fn application(&self, name: &str) -> String {
        let own = format!("{name}-{}", self.namespace.trim_start_matches("standins-"));
        self.applications.borrow_mut().push(own.clone());
        own
    }

    /// The scene in this test's own namespaces, with Applications of its own.
    pub fn scene(&self, mut scene: Scene) -> Scene {
        (scene.integration, scene.system) = (self.integration.clone(), self.integration.clone());
        let applications = std::mem::take(&mut scene.applications);
        for (name, _) in applications {
            let own = self.application(&name);
            for instance in scene.instances.iter_mut().filter(|i| i.application == name) {
                instance.application.clone_from(&own);
            }
            for subscription in scene.subscriptions.iter_mut().filter(|s| s.application == name) {
                subscription.application.clone_from(&own);
            }
            let service = format!("{own}-events");
            scene.applications.insert(own, service);
        }
        scene
    }

    /// The names of the Knative Subscriptions that link Applications with namespaces.
    pub async fn links(&self) -> Vec<String> {
        let api = KNATIVE_SUBSCRIPTION.within(&self.client, &self.integration);
        let found = api.list(&ListParams::default().labels("broker-namespace")).await.unwrap();
        found.into_iter().map(|link| link.name_any()).collect()
    }

    pub async fn create(&self, manifest: serde_json::Value) -> DynamicObject {
        cluster::create(&self.client, &manifest).await.unwrap()
    }

    pub async fn get(&self, kind: &Kind, name: &str) -> Option<DynamicObject> {
        cluster::get(&self.client, kind, &self.namespace, name).await.unwrap()
    }

    pub async fn delete(&self, kind: &Kind, name: &str) {
        cluster::delete(&self.client, kind, &self.namespace, name).await.unwrap();
    }

    pub async fn ready(&self, kind: &Kind, name: &str) {
        cluster::wait_ready(&self.client, kind, &self.namespace, name, SOON).await.unwrap();
    }

    pub async fn gone(&self, kind: &Kind, name: &str) {
        cluster::wait_gone(&self.client, kind, &self.namespace, name, SOON).await.unwrap();
    }

    /// Waits until what is said about the object is true.
    pub async fn until(&self, kind: &Kind, name: &str, what: &str, check: impl Fn(&DynamicObject) -> bool) {
        self.until_in(kind, &self.namespace, name, what, check).await;
    }

    /// The same in another namespace.
    pub async fn until_in(
        &self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        what: &str,
        check: impl Fn(&DynamicObject) -> bool,
    ) {
        cluster::wait_until(&format!("{} {name} {what}", kind.kind), SOON, async || {
            let found = cluster::get(&self.client, kind, namespace, name).await?;
            Ok(found.is_some_and(|object| check(&object)))
        })
        .await
        .unwrap();
    }

    /// Has its controller look at the object once more, and returns the object as it is then. What the controller has not
    /// done by then it is not going to do by itself.
    pub async fn looked_again(&self, kind: &Kind, name: &str) -> DynamicObject {
        let namespace = if kind.namespaced { self.namespace.as_str() } else { "" };
        let api = kind.within(&self.client, namespace);
        let look = self.looks.fetch_add(1, Ordering::Relaxed).to_string();
        let patch = Patch::Merge(json!({"metadata": {"labels": {"standins.belay.dev/look": look}}}));
        let touched = api.patch(name, &PatchParams::default(), &patch).await.unwrap();
        self.looked_at(&touched).await;
        api.get(name).await.unwrap()
    }

    /// Waits until its controller has looked at the object as it is here.
    pub async fn looked_at(&self, object: &DynamicObject) {
        timeout(SOON, self.standins.looked_at(object)).await.unwrap();
    }

    /// Sees off what only a stand-in can let go of; the rest of the namespaces is left to the cluster.
    pub async fn leave(self) {
        self.standins.change(|behaviour| {
            behaviour.hold_finalizer.clear();
            behaviour.refuse_deprovision.clear();
            behaviour.stopped.clear();
            behaviour.bus_deployment = None;
            behaviour.race_links = true;
            behaviour.finalizer_delay = Duration::ZERO;
            behaviour.paused = false;
        });
        let kinds = [
            SERVICE_BINDING,
            SERVICE_INSTANCE,
            LEGACY_SUBSCRIPTION,
            EVENT_ACTIVATION,
            TRIGGER,
            KNATIVE_SUBSCRIPTION,
            GADGET,
        ];
        for kind in kinds {
            for namespace in &self.namespaces {
                let api = kind.within(&self.client, namespace);
                api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
                cluster::wait_until(&format!("no {} is left", kind.kind), SOON, async || {
                    Ok(api.list(&ListParams::default()).await?.items.is_empty())
                })
                .await
                .unwrap();
            }
        }
        for application in self.applications.take() {
            cluster::delete(&self.client, &APPLICATION, "", &application).await.unwrap();
        }
        for namespace in &self.namespaces {
            cluster::delete(&self.client, &NAMESPACE, "", namespace).await.unwrap();
        }
        self.standins.stop().await;
    }

    /// The same, with the namespaces of the scene.
    pub async fn leave_with(mut self, scene: &Scene) {
        self.namespaces.extend(scene.namespaces());
        self.leave().await;
    }
}
