//! Plays the Event Bus' subscription controller for `EventActivation`s: all it does to them is to hold the finalizer
//! `eventactivation.finalizers.kyma-project.io`. That the Subscriptions of the namespace lose `events-activated` is
//! played where they are.

use std::sync::Arc;

use kube::api::DynamicObject;

use super::event_bus::{self, Bus};
use super::finalizer::{self, Next};
use crate::behaviour::Controller;
use crate::engine::{Action, Failed, Look, Setup, Shared, key, serve};
use crate::kinds::EVENT_ACTIVATION;

/// Held on every `EventActivation`.
pub const FINALIZER: &str = "eventactivation.finalizers.kyma-project.io";

struct EventActivation {
    shared: Arc<Shared>,
    bus: Bus,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&EVENT_ACTIVATION);
    let bus = event_bus::start(setup, &queue);
    let shared = setup.shared.clone();
    serve(setup, EventActivation { shared, bus }, queue, receiver);
}

impl Look for EventActivation {
    const NAME: &'static str = "EventActivation";

    async fn look(&self, activation: Arc<DynamicObject>) -> Result<Action, Failed> {
        let acting = self.shared.acting(Controller::EventActivation, &key(&activation).0);
        let Some(behaviour) = acting.filter(|behaviour| self.bus.runs(behaviour)) else {
            return Ok(Action::await_change());
        };
        let after = behaviour.finalizer_delay;
        let kind = EVENT_ACTIVATION;
        match finalizer::look(&self.shared, &behaviour, &kind, FINALIZER, after, activation).await? {
            Next::Live(_) => Ok(Action::await_change()),
            Next::Leaving(action) => Ok(action),
        }
    }
}
