//! Somebody who says that pods run, for API servers without a node.
//!
//! Nobody schedules pods there, so they vanish at once when they are deleted, and no Deployment becomes available by
//! itself.

use std::time::Duration;

use harness::{Api, Resource};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Says of every pod in a namespace that it is Running and Ready, until it is dropped.
pub struct Kubelet(JoinHandle<()>);

impl Kubelet {
    /// Begins.
    #[must_use]
    pub fn start(api: &Api, namespace: &str) -> Self {
        let (api, namespace) = (api.clone(), namespace.to_owned());
        Self(tokio::spawn(async move {
            loop {
                // A pod may go between the look and the word; the next round sees the rest.
                let _ = look(&api, &namespace).await;
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
        }))
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn look(api: &Api, namespace: &str) -> anyhow::Result<()> {
    let pods = Resource::core("pods");
    for pod in api.list(&pods, Some(namespace), None).await? {
        let phase = pod.pointer("/status/phase").and_then(Value::as_str);
        if phase == Some("Pending") && pod["metadata"].get("deletionTimestamp").is_none() {
            let name = pod["metadata"]["name"].as_str().unwrap_or_default();
            set_phase(api, namespace, name, "Running").await?;
        }
    }
    Ok(())
}

/// Puts a pod into a phase; one that is Running is Ready too.
pub async fn set_phase(api: &Api, namespace: &str, name: &str, phase: &str) -> anyhow::Result<()> {
    let ready = if phase == "Running" { "True" } else { "False" };
    let status = json!({"status": {"phase": phase, "conditions": [{"type": "Ready", "status": ready}]}});
    api.merge(&Resource::core("pods"), Some(namespace), name, Some("status"), &status).await.map(drop)
}
