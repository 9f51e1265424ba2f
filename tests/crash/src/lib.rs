//! The scenarios: for each step a small cluster on which every kind of move is made, and something is done already.

mod create_missing_sources;
mod fixture;
mod scale_down_legacy;

use std::time::Duration;

use anyhow::Result;
use harness::{Api, Resource, StepCommand, Worker, executable};
use serde_json::{Value, json};
use standins::cluster;

pub use create_missing_sources::CreateMissingSources;
pub use fixture::Fixture;
pub use scale_down_legacy::ScaleDownLegacy;

/// Long enough for an undisturbed run on a busy machine; every call that fails until the deadline costs as much.
const DEADLINE: Duration = Duration::from_secs(10);

/// A step as a child process: one call at a time, so that call k is the same call in every run.
fn command(program: &str, step: &str, home: &str) -> Result<StepCommand> {
    Ok(StepCommand::new(
        executable(program)?,
        &[step, "--home", home, "--namespace", home, "--concurrency", "1"],
    )
    .args(["--deadline", &DEADLINE.as_secs().to_string(), "--undo-reserve", "40"])
    .bound(Duration::from_secs(90)))
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

/// The namespace of one worker. A family has one home in a cluster, so each worker has an API server of its own.
fn home(worker: &Worker) -> String {
    worker.name("home")
}
