//! What every test of this folder stands on: a cluster, the CRDs, and a namespace of its own.

use std::time::Duration;

use kube::Client;
use kube::api::{DeleteParams, DynamicObject, ListParams};
use standins::kinds::{EVENT_ACTIVATION, GADGET, Kind, LEGACY_SUBSCRIPTION, NAMESPACE};
use standins::{Behaviour, Family, Standins, cluster, crds, install_crds};

/// Ample for anything that happens at once.
pub const SOON: Duration = Duration::from_secs(20);
/// Long enough that what has not happened by then is not going to.
pub const A_WHILE: Duration = Duration::from_secs(2);

/// A test's own namespace, and stand-ins that act in it alone.
pub struct Ground {
    pub client: Client,
    pub namespace: String,
    pub standins: Standins,
}

impl Ground {
    /// Prepares the ground. `UPSTREAM_CRDS` makes it the real CRDs, where there are any.
    pub async fn new(test: &str, behaviour: Behaviour) -> Self {
        let client = cluster::test_cluster().await.unwrap_or_else(|error| panic!("{error}"));
        for family in [Family::EventMesh, Family::Fixture] {
            install_crds(&client, family, crds::upstream(family).as_deref()).await.unwrap();
        }
        let namespace = format!("standins-{test}-{}", std::process::id());
        cluster::ensure_namespace(&client, &namespace).await.unwrap();
        let behaviour = Behaviour { namespaces: vec![namespace.clone()], ..behaviour };
        let standins = Standins::start(&client, behaviour);
        Self { client, namespace, standins }
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
        cluster::wait_until(&format!("{} {name} {what}", kind.kind), SOON, async || {
            Ok(self.get(kind, name).await.is_some_and(|object| check(&object)))
        })
        .await
        .unwrap();
    }

    /// Sees off what only a stand-in can let go of; the rest of the namespace is left to the cluster.
    pub async fn leave(self) {
        self.standins.change(|behaviour| {
            behaviour.hold_finalizer.clear();
            behaviour.finalizer_delay = Duration::ZERO;
            behaviour.paused = false;
        });
        for kind in [LEGACY_SUBSCRIPTION, EVENT_ACTIVATION, GADGET] {
            let api = kind.within(&self.client, &self.namespace);
            api.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
            cluster::wait_until(&format!("no {} is left", kind.kind), SOON, async || {
                Ok(api.list(&ListParams::default()).await?.items.is_empty())
            })
            .await
            .unwrap();
        }
        cluster::delete(&self.client, &NAMESPACE, "", &self.namespace).await.unwrap();
        self.standins.stop().await;
    }
}
