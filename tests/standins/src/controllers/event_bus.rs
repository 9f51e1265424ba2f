//! Whether the Event Bus' controller runs: its Deployment can be scaled down, and then nobody serves its finalizers.

use kube::api::DynamicObject;

use crate::behaviour::Behaviour;
use crate::engine::{Mirror, Queue, Seen, Setup, key};
use crate::kinds::DEPLOYMENT;

/// The Deployments of the cluster.
#[derive(Clone)]
pub struct Bus(Mirror);

/// Looks at all objects of the queue again when the Deployment changes.
pub fn start(setup: &mut Setup<'_>, queue: &Queue) -> Bus {
    let (shared, on_deployment) = (setup.shared.clone(), queue.clone());
    setup.on(&DEPLOYMENT, move |seen| {
        let Some(wanted) = shared.behaviour().bus_deployment.clone() else { return };
        let is_wanted = |object: &DynamicObject| {
            let (namespace, name) = key(object);
            wanted == format!("{namespace}/{name}")
        };
        match seen {
            Seen::Applied(object) | Seen::Deleted(object) if !is_wanted(object) => {}
            _ => on_deployment.push_all(),
        }
    });
    Bus(setup.mirror(&DEPLOYMENT))
}

impl Bus {
    /// Whether the controller runs, as far as the behaviour cares.
    #[must_use]
    pub fn runs(&self, behaviour: &Behaviour) -> bool {
        let Some(wanted) = &behaviour.bus_deployment else { return true };
        let (namespace, name) = wanted.split_once('/').unwrap_or((behaviour.system.as_str(), wanted));
        let found = self.0.get(namespace, name);
        found.is_some_and(|deployment| deployment.data["spec"]["replicas"].as_u64().unwrap_or(1) > 0)
    }
}
