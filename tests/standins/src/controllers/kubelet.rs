//! Says that pods run, for API servers without nodes: nobody schedules pods there, so without a word from somebody no
//! workload would ever be available. They vanish by themselves when they are deleted.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::{Value, json};

use crate::behaviour::Controller;
use crate::conditions::now;
use crate::engine::{Action, Failed, Look, Setup, Shared, going, key, serve};
use crate::kinds::POD;

struct Kubelet {
    shared: Arc<Shared>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&POD);
    let shared = setup.shared.clone();
    serve(setup, Kubelet { shared }, queue, receiver);
}

impl Look for Kubelet {
    const NAME: &'static str = "Pod";

    async fn look(&self, pod: Arc<DynamicObject>) -> Result<Action, Failed> {
        let (namespace, name) = key(&pod);
        let acting = self.shared.acting(Controller::Kubelet, &namespace);
        let scheduled = pod.data["spec"]["nodeName"].is_string();
        let Some(behaviour) = acting.filter(|b| b.play_pods && !going(&pod) && !scheduled) else {
            return Ok(Action::await_change());
        };
        let crashes = behaviour.crash_loop.iter().any(|start| name.starts_with(start.as_str()));
        let said = &pod.data["status"]["containerStatuses"][0];
        // Once is enough: the word carries a time, and would be another one every time. A pod that runs goes on.
        let is_news = if crashes { said.is_null() } else { said["ready"] != true };
        if is_news {
            let status = status_of(&pod, crashes);
            self.shared.write_status(&POD, pod, status).await?;
        }
        Ok(Action::await_change())
    }
}

fn status_of(pod: &DynamicObject, crashes: bool) -> Value {
    let now = now();
    let containers = pod.data["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let containers: Vec<_> = containers
        .iter()
        .map(|container| {
            let state = if crashes {
                json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off restarting failed container"}})
            } else {
                json!({"running": {"startedAt": now}})
            };
            json!({
                "name": container["name"],
                "image": container["image"],
                "imageID": "",
                "ready": !crashes,
                "started": !crashes,
                "restartCount": if crashes { 5 } else { 0 },
                "state": state,
            })
        })
        .collect();
    let truth = if crashes { "False" } else { "True" };
    let conditions: Vec<_> = [("Initialized", "True"), ("Ready", truth), ("ContainersReady", truth)]
        .iter()
        .map(|(kind, status)| json!({"type": kind, "status": status, "lastTransitionTime": now}))
        .collect();
    let mut status = pod.data["status"].clone();
    status["phase"] = "Running".into();
    status["conditions"] = conditions.into();
    status["containerStatuses"] = containers.into();
    status
}
