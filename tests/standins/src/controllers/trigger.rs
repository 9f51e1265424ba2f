//! Plays Knative's webhook and controller of Triggers.
//!
//! The facts it plays: an absent broker is `default`, an absent filter is empty, and the label
//! `eventing.knative.dev/broker` is forced; a webhook did that, here it happens a moment later. A Trigger owns a Knative
//! Subscription in its namespace, and is Ready when that one and the Broker are.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::http_source::knative_status;
use crate::behaviour::{Behaviour, Controller, names};
use crate::conditions::{Condition, Truth, holds};
use crate::engine::{Action, Failed, Index, Look, Mirror, Seen, Setup, Shared, going, key, own_key, serve};
use crate::kinds::{BROKER, CHANNEL, KNATIVE_SUBSCRIPTION, TRIGGER};

/// Says which Broker a Trigger belongs to.
pub const BROKER_LABEL: &str = "eventing.knative.dev/broker";
/// Says which Trigger a Knative Subscription belongs to.
pub const TRIGGER_LABEL: &str = "eventing.knative.dev/trigger";

/// How long a Trigger that flaps is Ready at first, and then is not.
const FLAP: Duration = Duration::from_millis(300);

struct Trigger {
    shared: Arc<Shared>,
    brokers: Mirror,
    subscriptions: Index,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&TRIGGER);
    let triggers = setup.index(&TRIGGER, broker_of);
    let on_broker = queue.clone();
    setup.on(&BROKER, move |seen| on_broker.related(seen, &triggers, own_key));
    let on_subscription = queue.clone();
    setup.on(&KNATIVE_SUBSCRIPTION, move |seen| match seen {
        Seen::Applied(subscription) | Seen::Deleted(subscription) => {
            if let Some(trigger) = subscription.labels().get(TRIGGER_LABEL) {
                on_subscription.push(&key(subscription).0, trigger);
            }
        }
        Seen::Listed => on_subscription.push_all(),
    });
    let controller = Trigger {
        shared: setup.shared.clone(),
        brokers: setup.mirror(&BROKER),
        subscriptions: setup.index(&KNATIVE_SUBSCRIPTION, trigger_of),
    };
    serve(setup, controller, queue, receiver);
}

impl Look for Trigger {
    const NAME: &'static str = "Trigger";

    async fn look(&self, trigger: Arc<DynamicObject>) -> Result<Action, Failed> {
        let (namespace, name) = key(&trigger);
        let acting = self.shared.acting(Controller::Trigger, &namespace);
        let Some(behaviour) = acting.filter(|_| !going(&trigger)) else {
            return Ok(Action::await_change());
        };
        let trigger = match admission(&trigger) {
            Some(patch) => self.shared.patch(&TRIGGER, &trigger, patch).await?,
            None => trigger,
        };
        let broker = trigger.data["spec"]["broker"].as_str().unwrap_or("default");
        let progress = match self.brokers.get(&namespace, broker) {
            None => Progress::NoBroker,
            Some(broker) if !holds(&broker, "Ready") => Progress::BrokerNotReady,
            Some(_) if names(&behaviour.never_ready, &TRIGGER, &namespace, &name) => Progress::NotSubscribed,
            Some(_) if behaviour.instant => Progress::Ready,
            Some(_) => {
                let found = self.subscriptions.get(&format!("{namespace}/{name}"));
                let own = found.iter().find(|s| {
                    s.owner_references().iter().any(|o| Some(&o.uid) == trigger.metadata.uid.as_ref())
                });
                match own {
                    None => {
                        self.shared.create(&KNATIVE_SUBSCRIPTION, subscription_of(&trigger, broker)).await?;
                        return Ok(Action::await_change());
                    }
                    Some(own) if holds(own, "Ready") => Progress::Ready,
                    Some(_) => Progress::NotSubscribed,
                }
            }
        };
        let (progress, flapping) = self.flap(&behaviour, &trigger, progress);
        let rest = self.shared.remaining(&trigger, "trigger", behaviour.delay).or(flapping);
        if rest.is_none() || flapping.is_some() || !matches!(progress, Progress::Ready) {
            let status = status_of(&trigger, &behaviour, &progress);
            self.shared.write_status(&TRIGGER, trigger, status).await?;
        }
        Ok(rest.map_or_else(Action::await_change, Action::requeue))
    }
}

impl Trigger {
    /// What a Trigger that flaps says in place of Ready, and for how long.
    fn flap(
        &self,
        behaviour: &Behaviour,
        trigger: &DynamicObject,
        progress: Progress,
    ) -> (Progress, Option<Duration>) {
        let (namespace, name) = key(trigger);
        if !matches!(progress, Progress::Ready) || !names(&behaviour.flap, &TRIGGER, &namespace, &name) {
            return (progress, None);
        }
        if let Some(rest) = self.shared.remaining(trigger, "ready at first", FLAP) {
            return (Progress::Ready, Some(rest));
        }
        match self.shared.remaining(trigger, "not ready then", FLAP) {
            Some(rest) => (Progress::NotSubscribed, Some(rest)),
            None => (Progress::Ready, None),
        }
    }
}

/// What the webhook would have changed.
fn admission(trigger: &DynamicObject) -> Option<Value> {
    let spec = &trigger.data["spec"];
    let broker = spec["broker"].as_str().filter(|broker| !broker.is_empty());
    let mut patch = json!({});
    if broker.is_none() {
        patch["spec"]["broker"] = "default".into();
    }
    if spec["filter"].is_null() {
        patch["spec"]["filter"] = json!({});
    }
    let broker = broker.unwrap_or("default");
    if trigger.labels().get(BROKER_LABEL).is_none_or(|label| label != broker) {
        patch["metadata"]["labels"][BROKER_LABEL] = broker.into();
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

/// How far a Trigger is.
enum Progress {
    NoBroker,
    BrokerNotReady,
    NotSubscribed,
    Ready,
}

fn status_of(trigger: &DynamicObject, behaviour: &Behaviour, progress: &Progress) -> Value {
    let (broker, subscribed, why) = match progress {
        Progress::NoBroker => (Truth::False, Truth::Unknown, ("BrokerDoesNotExist", "Broker does not exist")),
        Progress::BrokerNotReady => (Truth::False, Truth::Unknown, ("BrokerNotReady", "Broker is not ready")),
        Progress::NotSubscribed => {
            (Truth::True, Truth::False, ("NotSubscribed", "The Knative Subscription is not ready"))
        }
        Progress::Ready => (Truth::True, Truth::True, ("", "")),
    };
    let condition = |kind, truth| {
        if truth == Truth::True { Condition::met(kind) } else { Condition::new(kind, truth, why.0, why.1) }
    };
    let ready = if subscribed == Truth::True { Truth::True } else { Truth::False };
    let wanted = [
        condition("BrokerReady", broker),
        Condition::met("DependencyReady"),
        condition("Ready", ready),
        condition("Subscribed", subscribed),
        Condition::met("SubscriberResolved"),
    ];
    let mut status = knative_status(trigger, behaviour, &wanted);
    status["subscriberURI"] = address(trigger).into();
    status
}

/// Where the events go: the URI itself, or the address of what is referred to.
fn address(trigger: &DynamicObject) -> String {
    let subscriber = &trigger.data["spec"]["subscriber"];
    if let Some(name) = subscriber["ref"]["name"].as_str() {
        let namespace = subscriber["ref"]["namespace"].as_str().map_or_else(|| key(trigger).0, str::to_owned);
        let path = subscriber["uri"].as_str().unwrap_or_default();
        return format!("http://{name}.{namespace}.svc.cluster.local{path}");
    }
    subscriber["uri"].as_str().unwrap_or_default().to_owned()
}

fn subscription_of(trigger: &DynamicObject, broker: &str) -> Value {
    let (namespace, name) = key(trigger);
    let uid = trigger.uid().unwrap_or_default();
    // Only the beginning of a long name, as Knative does: the uid makes it unique.
    let start: String = name.chars().take(40).collect();
    json!({
        "apiVersion": KNATIVE_SUBSCRIPTION.api_version(),
        "kind": KNATIVE_SUBSCRIPTION.kind,
        "metadata": {
            "name": format!("{broker}-{start}-{uid}"),
            "namespace": namespace,
            "labels": {BROKER_LABEL: broker, TRIGGER_LABEL: name},
            "ownerReferences": [{
                "apiVersion": TRIGGER.api_version(),
                "kind": TRIGGER.kind,
                "name": name,
                "uid": uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "channel": {
                "apiVersion": CHANNEL.api_version(),
                "kind": "NatssChannel",
                "name": format!("{broker}-kne-trigger"),
            },
            "subscriber": {
                "uri": format!("http://{broker}-broker-filter.{namespace}.svc.cluster.local/triggers/{namespace}/{name}/{uid}"),
            },
        },
    })
}

/// Namespace and Broker of a Trigger.
fn broker_of(trigger: &DynamicObject) -> Option<String> {
    let namespace = trigger.metadata.namespace.as_deref()?;
    let broker = trigger.data["spec"]["broker"].as_str().unwrap_or("default");
    Some(format!("{namespace}/{broker}"))
}

/// Namespace and Trigger of a Knative Subscription.
fn trigger_of(subscription: &DynamicObject) -> Option<String> {
    let trigger = subscription.labels().get(TRIGGER_LABEL)?;
    Some(format!("{}/{trigger}", key(subscription).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "eventing.knative.dev/v1alpha1", "kind": "Trigger",
            "metadata": {"name": "t", "namespace": "n", "uid": "u", "generation": 1}, "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn the_webhook_fills_in_broker_filter_and_label() {
        let patch = admission(&trigger(&json!({"subscriber": {"uri": "http://x"}}))).unwrap();
        assert_eq!(patch["spec"], json!({"broker": "default", "filter": {}}));
        assert_eq!(patch["metadata"]["labels"][BROKER_LABEL], "default");
        let mut complete = trigger(&json!({"broker": "b", "filter": {"attributes": {}}, "subscriber": {}}));
        complete.labels_mut().insert(BROKER_LABEL.into(), "b".into());
        assert!(admission(&complete).is_none());
    }

    #[test]
    fn a_reference_is_resolved_to_an_address() {
        let to = |subscriber: Value| address(&trigger(&json!({"subscriber": subscriber})));
        assert_eq!(to(json!({"uri": "http://x/y"})), "http://x/y");
        assert_eq!(to(json!({"ref": {"name": "svc"}})), "http://svc.n.svc.cluster.local");
        assert_eq!(
            to(json!({"ref": {"name": "svc", "namespace": "m"}, "uri": "/p"})),
            "http://svc.m.svc.cluster.local/p"
        );
    }
}
