//! Plays the application-operator as far as event services go.
//!
//! The facts it plays: it is a workload named `application-operator`, whose argument `--eventServiceImage` names the
//! image. It brings the Deployment `<application>-event-service` of every Application that does not skip its
//! installation to that image, and with it to the argument `--eventMeshURL`; it does not care whether that works. The
//! annotation [`EVENT_SERVICES`] says whether it is the operator of a release from before the mesh, which knows no such
//! argument. It does not make sources here: one step of the family exists because they may be missing.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;

use crate::behaviour::{Controller, names};
use crate::engine::{Action, Failed, Look, Mirror, Queue, Seen, Setup, Shared, going, key, serve};
use crate::fixtures::{event_service, event_service_args};
use crate::kinds::{APPLICATION, DEPLOYMENT, STATEFUL_SET};

/// Name of the operator's own workload.
pub const OPERATOR: &str = "application-operator";

/// On the operator's workload: `legacy` if its event services feed the Event Bus, `mesh` if they feed the mesh. Without
/// it they feed the mesh, but only from the next image on.
pub const EVENT_SERVICES: &str = "standins.belay.dev/event-services";

struct ApplicationOperator {
    shared: Arc<Shared>,
    deployments: Mirror,
    stateful_sets: Mirror,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&APPLICATION);
    for kind in [DEPLOYMENT, STATEFUL_SET] {
        let on_workload = queue.clone();
        setup.on(&kind, move |seen| workload_seen(&on_workload, seen));
    }
    let controller = ApplicationOperator {
        shared: setup.shared.clone(),
        deployments: setup.mirror(&DEPLOYMENT),
        stateful_sets: setup.mirror(&STATEFUL_SET),
    };
    serve(setup, controller, queue, receiver);
}

fn workload_seen(queue: &Queue, seen: &Seen<'_>) {
    let (Seen::Applied(object) | Seen::Deleted(object)) = seen else { return queue.push_all() };
    let name = key(object).1;
    if name == OPERATOR {
        queue.push_all();
    } else if let Some(application) = name.strip_suffix("-event-service") {
        queue.push("", application);
    }
}

impl Look for ApplicationOperator {
    const NAME: &'static str = "Application";

    async fn look(&self, application: Arc<DynamicObject>) -> Result<Action, Failed> {
        let until_changed = Ok(Action::await_change());
        let integration = self.shared.behaviour().integration.clone();
        let acting = self.shared.acting(Controller::ApplicationOperator, &integration);
        let skips = application.data["spec"]["skipInstallation"] == true;
        let Some(behaviour) = acting.filter(|_| !skips && !going(&application)) else {
            return until_changed;
        };
        let name = application.name_any();
        let operator = self.stateful_sets.get(&integration, OPERATOR);
        let Some(operator) = operator.or_else(|| self.deployments.get(&integration, OPERATOR)) else {
            return until_changed;
        };
        let Some(image) = image_of(&operator) else { return until_changed };
        if names(&behaviour.never_rolled, &APPLICATION, "", &name) {
            return until_changed;
        }
        let said = operator.annotations().get(EVENT_SERVICES);
        let feeds_mesh = said.is_none_or(|kind| kind != "legacy");
        let service = self.deployments.get(&integration, &format!("{name}-event-service"));
        let Some(service) = service else {
            self.shared.create(&DEPLOYMENT, event_service(&name, &integration, &image, feeds_mesh)).await?;
            return until_changed;
        };
        let container = &service.data["spec"]["template"]["spec"]["containers"][0];
        let args = event_service_args(&name, &integration, feeds_mesh);
        let done = container["image"] == image && (said.is_none() || container["args"] == args);
        if done || going(&service) || self.shared.is_behind(&service) {
            return until_changed;
        }
        if let Some(rest) = self.shared.remaining(&operator, "rollout", behaviour.rollout_delay) {
            return Ok(Action::requeue(rest));
        }
        let mut container = container.clone();
        container["image"] = image.into();
        container["args"] = args;
        let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        self.shared.patch(&DEPLOYMENT, &service, patch).await?;
        until_changed
    }
}

/// The image that the operator's argument names.
fn image_of(operator: &DynamicObject) -> Option<String> {
    let containers = operator.data["spec"]["template"]["spec"]["containers"].as_array()?;
    let mut args = containers.iter().filter_map(|container| container["args"].as_array()).flatten();
    args.find_map(|arg| arg.as_str()?.strip_prefix("--eventServiceImage=").map(str::to_owned))
}
