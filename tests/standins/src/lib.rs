//! Stand-ins: small controllers on a real API server that play the systems around the steps, and misbehave when
//! told to; the CRDs they need; and fixtures and waits for tests.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use standins::{Behaviour, Family, Standins, cluster, crds, fixtures, kinds};
//! use std::time::Duration;
//!
//! let client = cluster::test_cluster().await?;
//! crds::install_crds(&client, Family::EventMesh, crds::upstream(Family::EventMesh).as_deref()).await?;
//! let standins = Standins::start(&client, Behaviour { namespaces: vec!["mine".into()], ..Behaviour::default() });
//! cluster::ensure_namespace(&client, "mine").await?;
//! cluster::create(&client, &fixtures::http_source("commerce", "mine")).await?;
//! cluster::wait_ready(&client, &kinds::HTTP_SOURCE, "mine", "commerce", Duration::from_secs(10)).await?;
//! standins.change(|behaviour| behaviour.never_ready.push("logistics".into()));
//! standins.stop().await;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub mod behaviour;
pub mod cluster;
pub mod conditions;
mod controllers;
pub mod crds;
mod engine;
pub mod fixtures;
pub mod kinds;
pub mod seed;

pub use behaviour::{Behaviour, Controller};
pub use controllers::event_activation::FINALIZER as EVENT_ACTIVATION_FINALIZER;
pub use controllers::gadget::FINALIZER as GADGET_FINALIZER;
pub use controllers::legacy_subscription::FINALIZER as SUBSCRIPTION_FINALIZER;
pub use crds::{Family, install_crds};
pub use engine::MANAGER;

/// Starts one controller's tasks.
type Start = fn(&mut JoinSet<()>, &Arc<engine::Shared>);

/// Running stand-ins. They stop when this is dropped.
pub struct Standins {
    behaviour: watch::Sender<Arc<Behaviour>>,
    tasks: JoinSet<()>,
}

impl Standins {
    /// Starts the controllers that the behaviour names, as tasks of the current runtime. Kinds that are not installed
    /// yet are waited for.
    #[must_use]
    pub fn start(client: &Client, behaviour: Behaviour) -> Self {
        let behaviour = Arc::new(behaviour);
        let (sender, receiver) = watch::channel(behaviour.clone());
        let shared = Arc::new(engine::Shared::new(client.clone(), receiver));
        let mut tasks = JoinSet::new();
        let all: [(Controller, Start); 5] = [
            (Controller::HttpSource, controllers::http_source::start),
            (Controller::Subscription, controllers::legacy_subscription::start),
            (Controller::EventActivation, controllers::event_activation::start),
            (Controller::Widget, controllers::widget::start),
            (Controller::Gadget, controllers::gadget::start),
        ];
        for (controller, start) in all {
            if behaviour.plays(controller) {
                start(&mut tasks, &shared);
            }
        }
        Self { behaviour: sender, tasks }
    }

    /// Changes the behaviour from now on; every object is looked at again.
    pub fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        self.behaviour.send_modify(|behaviour| change(Arc::make_mut(behaviour)));
    }

    /// Stops all controllers; when this returns, none writes any more.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}
