//! Plays a controller with a finalizer for the runtime's fixture step: a deleted Gadget stays for a while, as a
//! volume or a service instance would.

use std::sync::Arc;

use kube::api::DynamicObject;

use super::finalizer::{self, Next};
use super::widget::readiness;
use crate::behaviour::Controller;
use crate::engine::{Action, Failed, Look, Setup, Shared, key, serve};
use crate::kinds::GADGET;

/// Held on every Gadget.
pub const FINALIZER: &str = "gadgets.fixture.belay.dev/hold";

struct Gadget {
    shared: Arc<Shared>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&GADGET);
    let shared = setup.shared.clone();
    serve(setup, Gadget { shared }, queue, receiver);
}

impl Look for Gadget {
    const NAME: &'static str = "Gadget";

    async fn look(&self, gadget: Arc<DynamicObject>) -> Result<Action, Failed> {
        let Some(behaviour) = self.shared.acting(Controller::Gadget, &key(&gadget).0) else {
            return Ok(Action::await_change());
        };
        let after = behaviour.finalizer_delay;
        let next = finalizer::look(&self.shared, &behaviour, &GADGET, FINALIZER, after, gadget).await?;
        let gadget = match next {
            Next::Live(gadget) => gadget,
            Next::Leaving(action) => return Ok(action),
        };
        let rest = self.shared.remaining(&gadget, "gadget", behaviour.delay);
        if rest.is_none() {
            let status = readiness(&GADGET, &gadget, &behaviour);
            self.shared.write_status(&GADGET, gadget, status).await?;
        }
        Ok(rest.map_or_else(Action::await_change, Action::requeue))
    }
}
