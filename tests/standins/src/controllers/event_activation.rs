//! Plays the Event Bus' subscription controller for `EventActivation`s: all it does to them is to hold the finalizer
//! `eventactivation.finalizers.kyma-project.io`. That the Subscriptions of the namespace lose `events-activated` is
//! played where they are.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use tokio::task::JoinSet;

use super::finalizer::{self, Next};
use crate::engine::{Failed, Look, Queue, Shared, keep, key, mirror, serve};
use crate::kinds::EVENT_ACTIVATION;

/// Held on every `EventActivation`.
pub const FINALIZER: &str = "eventactivation.finalizers.kyma-project.io";

struct EventActivation {
    shared: Arc<Shared>,
}

/// Starts the controller.
pub fn start(tasks: &mut JoinSet<()>, shared: &Arc<Shared>) {
    let (activations, writer) = mirror(&EVENT_ACTIVATION);
    let (queue, receiver) = Queue::new(activations);
    let on_activation = queue.clone();
    tasks.spawn(keep(shared.client.clone(), EVENT_ACTIVATION, writer, move |seen| {
        on_activation.same_name(&seen);
    }));
    serve(tasks, shared, EventActivation { shared: shared.clone() }, queue, receiver);
}

impl Look for EventActivation {
    const NAME: &'static str = "EventActivation";

    async fn look(&self, activation: Arc<DynamicObject>) -> Result<Action, Failed> {
        let behaviour = self.shared.behaviour();
        if !behaviour.acts_in(&key(&activation).0) {
            return Ok(Action::await_change());
        }
        match finalizer::look(&self.shared, &behaviour, &EVENT_ACTIVATION, FINALIZER, activation).await? {
            Next::Live(_) => Ok(Action::await_change()),
            Next::Leaving(action) => Ok(action),
        }
    }
}
