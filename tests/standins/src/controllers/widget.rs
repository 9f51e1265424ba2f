//! Plays a well-behaved controller of today for the runtime's fixture step: a Widget gets the condition Ready, and
//! the generation that was seen, after every change of its spec.

use std::sync::Arc;

use kube::api::DynamicObject;
use serde_json::Value;

use crate::behaviour::{Behaviour, Controller, names};
use crate::conditions::{Condition, Shape, Truth, conditions, now, status};
use crate::engine::{Action, Failed, Look, Setup, Shared, going, key, serve};
use crate::kinds::{Kind, WIDGET};

struct Widget {
    shared: Arc<Shared>,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&WIDGET);
    let shared = setup.shared.clone();
    serve(setup, Widget { shared }, queue, receiver);
}

impl Look for Widget {
    const NAME: &'static str = "Widget";

    async fn look(&self, widget: Arc<DynamicObject>) -> Result<Action, Failed> {
        let acting = self.shared.acting(Controller::Widget, &key(&widget).0);
        let Some(behaviour) = acting.filter(|_| !going(&widget)) else {
            return Ok(Action::await_change());
        };
        let rest = self.shared.remaining(&widget, "widget", behaviour.delay);
        if rest.is_none() {
            let status = readiness(&WIDGET, &widget, &behaviour);
            self.shared.write_status(&WIDGET, widget, status).await?;
        }
        Ok(rest.map_or_else(Action::await_change, Action::requeue))
    }
}

/// The status of a fixture object: Ready, unless its name is on the list of those that never are.
pub(super) fn readiness(kind: &Kind, object: &DynamicObject, behaviour: &Behaviour) -> Value {
    let (namespace, name) = key(object);
    let ready = if names(&behaviour.never_ready, kind, &namespace, &name) {
        Condition::new("Ready", Truth::False, "Refused", "told never to become Ready")
    } else {
        Condition::new("Ready", Truth::True, "Done", "all there")
    };
    let conditions = conditions(object, Shape::Standard, &[ready], &now());
    status(object, !behaviour.no_observed_generation, &conditions)
}
