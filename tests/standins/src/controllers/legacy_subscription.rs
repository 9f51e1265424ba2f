//! Plays the Event Bus' subscription controller for its Subscriptions.
//!
//! The facts it plays: the finalizer `subscription.finalizers.kyma-project.io`; the conditions `events-activated`
//! (an `EventActivation` with the same source lives in the namespace), `kn-subscription-ready`, and `is-ready` when the
//! other two are True. Objects of the later schema that took the same name over (no `source_id`) are not its own.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use tokio::task::JoinSet;

use super::finalizer::{self, Next};
use crate::behaviour::names;
use crate::conditions::{Condition, Shape, Truth, conditions, now};
use crate::engine::{Failed, Look, Mirror, Queue, Seen, Shared, going, keep, key, mirror, serve};
use crate::kinds::{EVENT_ACTIVATION, LEGACY_SUBSCRIPTION};

/// Held on every legacy Subscription.
pub const FINALIZER: &str = "subscription.finalizers.kyma-project.io";

struct LegacySubscription {
    shared: Arc<Shared>,
    activations: Mirror,
}

/// Starts the controller.
pub fn start(tasks: &mut JoinSet<()>, shared: &Arc<Shared>) {
    let (subscriptions, writer) = mirror(&LEGACY_SUBSCRIPTION);
    let (queue, receiver) = Queue::new(subscriptions.clone());
    let on_subscription = queue.clone();
    tasks.spawn(keep(shared.client.clone(), LEGACY_SUBSCRIPTION, writer, move |seen| {
        on_subscription.same_name(&seen);
    }));
    let (activations, writer) = mirror(&EVENT_ACTIVATION);
    let on_activation = queue.clone();
    tasks.spawn(keep(shared.client.clone(), EVENT_ACTIVATION, writer, move |seen| match seen {
        Seen::Applied(activation) | Seen::Deleted(activation) => {
            let (namespace, _) = key(activation);
            for subscription in subscriptions.all() {
                let (own, name) = key(&subscription);
                if own == namespace && source_of(&subscription) == activated(activation) {
                    on_activation.push(&own, &name);
                }
            }
        }
        Seen::Listed => on_activation.push_all(),
    }));
    serve(tasks, shared, LegacySubscription { shared: shared.clone(), activations }, queue, receiver);
}

impl Look for LegacySubscription {
    const NAME: &'static str = "Subscription";

    async fn look(&self, subscription: Arc<DynamicObject>) -> Result<Action, Failed> {
        let behaviour = self.shared.behaviour();
        let (namespace, name) = key(&subscription);
        if source_of(&subscription).is_none() || !behaviour.acts_in(&namespace) {
            return Ok(Action::await_change());
        }
        let next =
            finalizer::look(&self.shared, &behaviour, &LEGACY_SUBSCRIPTION, FINALIZER, subscription).await?;
        let subscription = match next {
            Next::Live(subscription) => subscription,
            Next::Leaving(action) => return Ok(action),
        };
        let active = self.activations.all().iter().any(|activation| {
            !going(activation)
                && key(activation).0 == namespace
                && activated(activation) == source_of(&subscription)
        });
        let rest = self.shared.remaining(&subscription, "subscription", behaviour.delay);
        let delivers = active && rest.is_none() && !names(&behaviour.never_ready, &namespace, &name);
        let truth = |holds: bool| if holds { Truth::True } else { Truth::False };
        let wanted = [
            Condition::new("events-activated", truth(active), "", ""),
            Condition::new("kn-subscription-ready", truth(delivers), "", ""),
            Condition::new("is-ready", truth(delivers), "", ""),
        ];
        let conditions = conditions(&subscription, Shape::EventBus, &wanted, &now());
        let status = serde_json::json!({"conditions": conditions});
        self.shared.write_status(&LEGACY_SUBSCRIPTION, subscription, status).await?;
        Ok(rest.map_or_else(Action::await_change, Action::requeue))
    }
}

fn source_of(subscription: &DynamicObject) -> Option<&str> {
    subscription.data["spec"]["source_id"].as_str()
}

fn activated(activation: &DynamicObject) -> Option<&str> {
    activation.data["spec"]["sourceId"].as_str()
}
