//! Plays Knative's controller of Subscriptions: Ready when their Channel is, and held by a finalizer that is taken off at
//! once. Of other sorts of channel, which nobody plays here, it believes that they are Ready.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::application_broker::linked;
use super::finalizer::{self, Next};
use super::http_source::knative_status;
use crate::behaviour::{Behaviour, Controller, names};
use crate::conditions::{Condition, Truth, holds};
use crate::engine::{Action, Failed, Look, Mirror, Setup, Shared, going, key, own_key, serve};
use crate::kinds::{CHANNEL, KNATIVE_SUBSCRIPTION};

/// Held on every Knative Subscription.
pub const FINALIZER: &str = "subscription-controller";

struct KnativeSubscription {
    shared: Arc<Shared>,
    channels: Mirror,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&KNATIVE_SUBSCRIPTION);
    let subscriptions = setup.index(&KNATIVE_SUBSCRIPTION, channel_of);
    let on_channel = queue.clone();
    setup.on(&CHANNEL, move |seen| on_channel.related(seen, &subscriptions, own_key));
    let controller = KnativeSubscription { shared: setup.shared.clone(), channels: setup.mirror(&CHANNEL) };
    serve(setup, controller, queue, receiver);
}

impl Look for KnativeSubscription {
    const NAME: &'static str = "Knative Subscription";

    async fn look(&self, subscription: Arc<DynamicObject>) -> Result<Action, Failed> {
        let (namespace, name) = key(&subscription);
        let labels = subscription.labels();
        // What lies in a namespace of the system belongs to the user's namespace that it was made for.
        let user = labels.get("broker-namespace").or_else(|| labels.get("kyma-ns")).unwrap_or(&namespace);
        let Some(behaviour) = self.shared.acting(Controller::KnativeSubscription, user) else {
            return Ok(Action::await_change());
        };
        let subscription = if behaviour.instant && !going(&subscription) {
            subscription
        } else {
            let kind = KNATIVE_SUBSCRIPTION;
            let after = Duration::ZERO;
            match finalizer::look(&self.shared, &behaviour, &kind, FINALIZER, after, subscription).await? {
                Next::Live(subscription) => subscription,
                Next::Leaving(action) => return Ok(action),
            }
        };
        let spec = &subscription.data["spec"]["channel"];
        let played = spec["kind"] == CHANNEL.kind && !subscription.labels().contains_key("kyma-ns");
        let channel = spec["name"].as_str().unwrap_or_default();
        let channel_ready =
            !played || self.channels.get(&namespace, channel).is_some_and(|channel| holds(&channel, "Ready"));
        let never = linked(&subscription).is_some_and(|link| behaviour.link_never_ready.contains(&link))
            || names(&behaviour.never_ready, &KNATIVE_SUBSCRIPTION, &namespace, &name);
        let rest = self.shared.remaining(&subscription, "subscription", behaviour.delay);
        if never || rest.is_none() {
            let status = status_of(&subscription, &behaviour, channel_ready, !never);
            self.shared.write_status(&KNATIVE_SUBSCRIPTION, subscription, status).await?;
        }
        Ok(rest.filter(|_| !never).map_or_else(Action::await_change, Action::requeue))
    }
}

fn status_of(
    subscription: &DynamicObject,
    behaviour: &Behaviour,
    channel_ready: bool,
    resolved: bool,
) -> Value {
    let condition = |kind, holds: bool, reason, message| {
        if holds { Condition::met(kind) } else { Condition::new(kind, Truth::False, reason, message) }
    };
    let channel = ("ChannelNotReady", "The Channel does not exist or is not ready");
    let subscriber = ("SubscriberResolveFailed", "Failed to resolve the subscriber");
    let why = if resolved { channel } else { subscriber };
    let wanted = [
        condition("AddedToChannel", channel_ready && resolved, why.0, why.1),
        condition("ChannelReady", channel_ready, channel.0, channel.1),
        condition("Ready", channel_ready && resolved, why.0, why.1),
        condition("Resolved", resolved, subscriber.0, subscriber.1),
    ];
    let mut status = knative_status(subscription, behaviour, &wanted);
    if resolved {
        let uri = &subscription.data["spec"]["subscriber"]["uri"];
        status["physicalSubscription"] = json!({"subscriberURI": uri});
    }
    status
}

fn channel_of(subscription: &DynamicObject) -> Option<String> {
    let channel = subscription.data["spec"]["channel"]["name"].as_str()?;
    Some(format!("{}/{channel}", key(subscription).0))
}
