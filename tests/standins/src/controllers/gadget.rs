//! Plays a controller with a finalizer for the runtime's fixture step: a deleted Gadget stays for a while, as a
//! volume or a service instance would.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use tokio::task::JoinSet;

use super::finalizer::{self, Next};
use super::widget::readiness;
use crate::engine::{Failed, Look, Queue, Shared, keep, key, mirror, serve};
use crate::kinds::GADGET;

/// Held on every Gadget.
pub const FINALIZER: &str = "gadgets.fixture.belay.dev/hold";

struct Gadget {
    shared: Arc<Shared>,
}

/// Starts the controller.
pub fn start(tasks: &mut JoinSet<()>, shared: &Arc<Shared>) {
    let (gadgets, writer) = mirror(&GADGET);
    let (queue, receiver) = Queue::new(gadgets);
    let on_gadget = queue.clone();
    tasks.spawn(keep(shared.client.clone(), GADGET, writer, move |seen| on_gadget.same_name(&seen)));
    serve(tasks, shared, Gadget { shared: shared.clone() }, queue, receiver);
}

impl Look for Gadget {
    const NAME: &'static str = "Gadget";

    async fn look(&self, gadget: Arc<DynamicObject>) -> Result<Action, Failed> {
        let behaviour = self.shared.behaviour();
        if !behaviour.acts_in(&key(&gadget).0) {
            return Ok(Action::await_change());
        }
        let next = finalizer::look(&self.shared, &behaviour, &GADGET, FINALIZER, gadget).await?;
        let gadget = match next {
            Next::Live(gadget) => gadget,
            Next::Leaving(action) => return Ok(action),
        };
        let rest = self.shared.remaining(&gadget, "gadget", behaviour.delay);
        if rest.is_none() {
            let status = readiness(&gadget, &behaviour);
            self.shared.write_status(&GADGET, gadget, status).await?;
        }
        Ok(rest.map_or_else(Action::await_change, Action::requeue))
    }
}
