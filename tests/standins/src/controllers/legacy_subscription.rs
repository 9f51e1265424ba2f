//! Plays the Event Bus' subscription controller for its Subscriptions.
//!
//! The facts it plays: the finalizer `subscription.finalizers.kyma-project.io`; the conditions `events-activated`
//! (an `EventActivation` with the same source lives in the namespace), `kn-subscription-ready`, and `is-ready` when the
//! other two are True; when told to, a Knative Subscription in the system namespace while events are activated, with
//! the same finalizer. Objects of the later schema that took the same name over (no `source_id`) are not its own.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::event_bus::{self, Bus};
use super::finalizer::{self, Next};
use crate::behaviour::{Behaviour, Controller, names};
use crate::conditions::{Condition, Shape, Truth, conditions, now};
use crate::engine::{Action, Failed, Index, Look, Mirror, Setup, Shared, going, key, serve};
use crate::fixtures::bus_subscription_name;
use crate::kinds::{CHANNEL, EVENT_ACTIVATION, KNATIVE_SUBSCRIPTION, LEGACY_SUBSCRIPTION};

/// Held on every legacy Subscription, and on its Knative Subscription.
pub const FINALIZER: &str = "subscription.finalizers.kyma-project.io";

struct LegacySubscription {
    shared: Arc<Shared>,
    activations: Index,
    bus: Bus,
    deliveries: Mirror,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&LEGACY_SUBSCRIPTION);
    let activations = setup.index(&EVENT_ACTIVATION, activated);
    let subscriptions = setup.index(&LEGACY_SUBSCRIPTION, subscribed);
    let on_activation = queue.clone();
    setup.on(&EVENT_ACTIVATION, move |seen| on_activation.related(seen, &subscriptions, activated));
    let bus = event_bus::start(setup, &queue);
    let deliveries = setup.mirror(&KNATIVE_SUBSCRIPTION);
    let shared = setup.shared.clone();
    serve(setup, LegacySubscription { shared, activations, bus, deliveries }, queue, receiver);
}

impl Look for LegacySubscription {
    const NAME: &'static str = "Subscription";

    async fn look(&self, subscription: Arc<DynamicObject>) -> Result<Action, Failed> {
        let (namespace, name) = key(&subscription);
        let acting = self.shared.acting(Controller::Subscription, &namespace);
        let (Some(behaviour), Some(source)) =
            (acting.filter(|behaviour| self.bus.runs(behaviour)), subscribed(&subscription))
        else {
            return Ok(Action::await_change());
        };
        if going(&subscription) {
            self.deliver(&behaviour, &subscription, false).await?;
        }
        let after = behaviour.finalizer_delay;
        let next =
            finalizer::look(&self.shared, &behaviour, &LEGACY_SUBSCRIPTION, FINALIZER, after, subscription);
        let subscription = match next.await? {
            Next::Live(subscription) => subscription,
            Next::Leaving(action) => return Ok(action),
        };
        let active = self.activations.get(&source).iter().any(|activation| !going(activation));
        self.deliver(&behaviour, &subscription, active).await?;
        let rest = self.shared.remaining(&subscription, "subscription", behaviour.delay);
        let never = names(&behaviour.never_ready, &LEGACY_SUBSCRIPTION, &namespace, &name);
        let delivers = active && rest.is_none() && !never;
        let truth = |holds: bool| if holds { Truth::True } else { Truth::False };
        let wanted = [
            Condition::new("events-activated", truth(active), "", ""),
            Condition::new("kn-subscription-ready", truth(delivers), "", ""),
            Condition::new("is-ready", truth(delivers), "", ""),
        ];
        let conditions = conditions(&subscription, Shape::EventBus, &wanted, &now());
        let status = json!({"conditions": conditions});
        self.shared.write_status(&LEGACY_SUBSCRIPTION, subscription, status).await?;
        Ok(rest.map_or_else(Action::await_change, Action::requeue))
    }
}

impl LegacySubscription {
    /// Makes the Knative Subscription of this Subscription, or removes it with its finalizer.
    async fn deliver(
        &self,
        behaviour: &Behaviour,
        subscription: &DynamicObject,
        wanted: bool,
    ) -> Result<(), Failed> {
        if !behaviour.bus_objects {
            return Ok(());
        }
        let (namespace, name) = key(subscription);
        let found = self.deliveries.get(&behaviour.system, &bus_subscription_name(&name, &namespace));
        match found {
            None if wanted => {
                let manifest = delivery_of(subscription, &behaviour.system);
                self.shared.create(&KNATIVE_SUBSCRIPTION, manifest).await.map(drop)
            }
            Some(found) if !wanted => {
                finalizer::release(&self.shared, &KNATIVE_SUBSCRIPTION, FINALIZER, &found).await?;
                self.shared.delete(&KNATIVE_SUBSCRIPTION, &found).await
            }
            _ => Ok(()),
        }
    }
}

fn delivery_of(subscription: &DynamicObject, system: &str) -> Value {
    let (namespace, name) = key(subscription);
    let spec = &subscription.data["spec"];
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    let (source, event, version) = (text("source_id"), text("event_type"), text("event_type_version"));
    let mut manifest = json!({
        "apiVersion": KNATIVE_SUBSCRIPTION.api_version(),
        "kind": KNATIVE_SUBSCRIPTION.kind,
        "metadata": {
            "name": bus_subscription_name(&name, &namespace),
            "namespace": system,
            "labels": {
                "kyma-ns": namespace,
                "kyma-source-id": source,
                "kyma-event-type": event,
                "kyma-event-type-version": version,
            },
            "finalizers": [FINALIZER],
        },
        "spec": {"channel": {
            "apiVersion": CHANNEL.api_version(),
            "kind": CHANNEL.kind,
            "name": format!("{source}--{event}--{version}").to_lowercase(),
        }},
    });
    if let Some(endpoint) = spec["endpoint"].as_str() {
        manifest["spec"]["subscriber"] = json!({"uri": endpoint});
    }
    manifest
}

/// Namespace and source of a legacy Subscription; none of one with the later schema.
fn subscribed(subscription: &DynamicObject) -> Option<String> {
    let source = subscription.data["spec"]["source_id"].as_str()?;
    Some(format!("{}/{source}", key(subscription).0))
}

/// Namespace and source of an `EventActivation`.
fn activated(activation: &DynamicObject) -> Option<String> {
    let source = activation.data["spec"]["sourceId"].as_str()?;
    Some(format!("{}/{source}", key(activation).0))
}
