//! Plays a well-behaved controller of today for the runtime's fixture step: a Widget gets the condition Ready, and
//! the generation that was seen, after every change of its spec.

use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::behaviour::{Behaviour, names};
use crate::conditions::{Condition, Shape, Truth, conditions, now, status};
use crate::engine::{Failed, Look, Queue, Shared, going, keep, key, mirror, serve};
use crate::kinds::WIDGET;

struct Widget {
    shared: Arc<Shared>,
}

/// Starts the controller.
pub fn start(tasks: &mut JoinSet<()>, shared: &Arc<Shared>) {
    let (widgets, writer) = mirror(&WIDGET);
    let (queue, receiver) = Queue::new(widgets);
    let on_widget = queue.clone();
    tasks.spawn(keep(shared.client.clone(), WIDGET, writer, move |seen| on_widget.same_name(&seen)));
    serve(tasks, shared, Widget { shared: shared.clone() }, queue, receiver);
}

impl Look for Widget {
    const NAME: &'static str = "Widget";

    async fn look(&self, widget: Arc<DynamicObject>) -> Result<Action, Failed> {
        let behaviour = self.shared.behaviour();
        if going(&widget) || !behaviour.acts_in(&key(&widget).0) {
            return Ok(Action::await_change());
        }
        let rest = self.shared.remaining(&widget, "widget", behaviour.delay);
        if rest.is_none() {
            let status = readiness(&widget, &behaviour);
            self.shared.write_status(&WIDGET, widget, status).await?;
        }
        Ok(rest.map_or_else(Action::await_change, Action::requeue))
    }
}

/// The status of a fixture object: Ready, unless its name is on the list of those that never are.
pub(super) fn readiness(object: &DynamicObject, behaviour: &Behaviour) -> Value {
    let (namespace, name) = key(object);
    let ready = if names(&behaviour.never_ready, &namespace, &name) {
        Condition::new("Ready", Truth::False, "Refused", "told never to become Ready")
    } else {
        Condition::new("Ready", Truth::True, "Done", "all there")
    };
    let conditions = conditions(object, Shape::Standard, &[ready], &now());
    status(object, !behaviour.no_observed_generation, &conditions)
}
