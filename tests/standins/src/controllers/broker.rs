//! Plays Knative's injection of Brokers and its controller of Brokers.
//!
//! A namespace with the label `knative-eventing-injection=enabled` gets the Broker `default`, and gets it again when
//! somebody deletes it. That the label goes away removes nothing.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::application_broker::INJECTION_LABEL;
use super::http_source::knative_status;
use crate::behaviour::{Behaviour, Controller, names};
use crate::conditions::{Condition, Truth};
use crate::engine::{Action, Failed, Look, Mirror, Seen, Setup, Shared, going, key, serve};
use crate::fixtures;
use crate::kinds::{BROKER, NAMESPACE};

struct Injection {
    shared: Arc<Shared>,
    brokers: Mirror,
    injected: Mutex<HashSet<String>>,
}

struct Broker {
    shared: Arc<Shared>,
}

/// Starts both controllers.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&BROKER);
    let shared = setup.shared.clone();
    serve(setup, Broker { shared }, queue, receiver);

    let (queue, receiver) = setup.queue(&NAMESPACE);
    let on_broker = queue.clone();
    setup.on(&BROKER, move |seen| match seen {
        Seen::Deleted(broker) => on_broker.push("", &key(broker).0),
        Seen::Listed => on_broker.push_all(),
        Seen::Applied(_) => {}
    });
    let controller = Injection {
        shared: setup.shared.clone(),
        brokers: setup.mirror(&BROKER),
        injected: Mutex::default(),
    };
    serve(setup, controller, queue, receiver);
}

impl Look for Injection {
    const NAME: &'static str = "Broker injection";

    async fn look(&self, namespace: Arc<DynamicObject>) -> Result<Action, Failed> {
        let name = namespace.name_any();
        let acting = self.shared.acting(Controller::Broker, &name);
        let Some(behaviour) = acting.filter(|_| !going(&namespace)) else {
            return Ok(Action::await_change());
        };
        let uid = namespace.uid().unwrap_or_default();
        let enabled = namespace.labels().get(INJECTION_LABEL).is_some_and(|value| value == "enabled");
        let is_first = {
            let mut injected = self.injected.lock().unwrap_or_else(PoisonError::into_inner);
            if enabled {
                injected.insert(uid)
            } else {
                injected.remove(&uid);
                false
            }
        };
        let wanted = enabled && (is_first || !behaviour.inject_once);
        if wanted && self.brokers.get(&name, "default").is_none() {
            self.shared.create(&BROKER, fixtures::broker(&name)).await?;
        }
        Ok(Action::await_change())
    }
}

impl Look for Broker {
    const NAME: &'static str = "Broker";

    async fn look(&self, broker: Arc<DynamicObject>) -> Result<Action, Failed> {
        let (namespace, name) = key(&broker);
        let acting = self.shared.acting(Controller::Broker, &namespace);
        let Some(behaviour) = acting.filter(|_| !going(&broker)) else {
            return Ok(Action::await_change());
        };
        let never = names(&behaviour.never_ready, &BROKER, &namespace, &name);
        let rest = self.shared.remaining(&broker, "broker", behaviour.delay);
        if never || rest.is_none() {
            let status = status_of(&broker, &behaviour, !never);
            self.shared.write_status(&BROKER, broker, status).await?;
        }
        Ok(rest.filter(|_| !never).map_or_else(Action::await_change, Action::requeue))
    }
}

fn status_of(broker: &DynamicObject, behaviour: &Behaviour, ready: bool) -> Value {
    let (namespace, name) = key(broker);
    let parts = ["Addressable", "FilterReady", "IngressReady", "Ready", "TriggerChannelReady"];
    let wanted = parts.map(|part| {
        if ready || part == "TriggerChannelReady" {
            Condition::met(part)
        } else {
            Condition::new(
                part,
                Truth::False,
                "DeploymentUnavailable",
                "The ingress Deployment is unavailable",
            )
        }
    });
    let mut status = knative_status(broker, behaviour, &wanted);
    if ready {
        let url = format!("http://{name}-broker.{namespace}.svc.cluster.local");
        status["address"] = json!({"url": url});
    }
    status
}
