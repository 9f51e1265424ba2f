//! A witness of the family's lock: who held it, one after the other.

use std::sync::{Arc, Mutex};

use futures::TryStreamExt as _;
use k8s_openapi::api::{coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client,
    runtime::{WatchStreamExt as _, watcher},
};
use tokio::task::JoinHandle;

use crate::ground::{LEASE, SYSTEM};

/// Watches the Lease from now on.
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    holders: Vec<String>,
    overlaps: Vec<String>,
}

impl Witness {
    /// Begins to watch.
    #[must_use]
    pub fn begin(client: &Client) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let task = tokio::spawn(look(client.clone(), seen.clone()));
        Self { seen, task }
    }

    /// The pods that held the lock, in this order. Panics if one took it while the one before was alive.
    #[must_use]
    pub fn end(self) -> Vec<String> {
        self.task.abort();
        let seen = self.seen.lock().unwrap();
        assert!(seen.overlaps.is_empty(), "{}", seen.overlaps.join("; "));
        seen.holders.clone()
    }
}

async fn look(client: Client, seen: Arc<Mutex<Seen>>) {
    let leases: Api<Lease> = Api::namespaced(client.clone(), SYSTEM);
    let config = watcher::Config::default().fields(&format!("metadata.name={LEASE}"));
    let mut changes = std::pin::pin!(watcher(leases, config).default_backoff().applied_objects());
    let mut last = String::new();
    loop {
        // A watch that breaks is taken up again by itself.
        let Ok(Some(lease)) = changes.try_next().await else { continue };
        let holder = lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default();
        if holder == last {
            continue;
        }
        // Nobody comes back from the dead: whoever is alive now was alive when the lock was taken from them.
        let alive = !last.is_empty() && !holder.is_empty() && is_alive(&client, &last).await;
        let mut seen = seen.lock().unwrap();
        if alive {
            seen.overlaps.push(format!("{holder} took the lock while {last} was alive"));
        }
        if !holder.is_empty() && seen.holders.last() != Some(&holder) {
            seen.holders.push(holder.clone());
        }
        last = holder;
    }
}

/// Whether the pod of a holder (`pod/NAMESPACE/NAME/UID/...`) still runs.
async fn is_alive(client: &Client, holder: &str) -> bool {
    let ["pod", namespace, name, uid, ..] = holder.split('/').collect::<Vec<_>>()[..] else {
        panic!("'{holder}' is not a pod");
    };
    let pod = Api::<Pod>::namespaced(client.clone(), namespace).get_opt(name).await.unwrap();
    pod.is_some_and(|pod| {
        let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
        pod.metadata.uid.as_deref() == Some(uid) && !["Succeeded", "Failed"].contains(&phase.as_str())
    })
}
