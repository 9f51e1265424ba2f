//! Stand-ins: small controllers on a real API server that play the systems around the steps, and misbehave when
//! told to; the CRDs they need, and the admission rules of the real system; fixtures, whole scenes and waits for tests, and a
//! witness of what is delivered.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use standins::landscape::{Mesh, Scene, State};
//! use standins::{Behaviour, Family, Standins, cluster, crds, fixtures, kinds, policies};
//! use std::time::Duration;
//!
//! let client = cluster::test_cluster().await?;
//! crds::install_crds(&client, Family::EventMesh, crds::upstream(Family::EventMesh).as_deref()).await?;
//! policies::install(&client).await?;
//! let standins = Standins::start(&client, Behaviour { play_pods: true, ..Behaviour::default() });
//!
//! // A namespace that uses an Application over the Event Bus, and one that is on the mesh already.
//! let scene = Scene::new(&["commerce"])
//!     .instance("shop", "commerce")
//!     .subscription("shop", "orders", "commerce", State::Legacy)
//!     .instance("done", "commerce")
//!     .on_mesh("done", Mesh::Complete)
//!     .subscription("done", "orders", "commerce", State::TriggerOnly)
//!     .with_workloads();
//! scene.fill(&client).await?;
//!
//! standins.change(|behaviour| behaviour.never_ready.push("Trigger:shop/orders".into()));
//! cluster::create(&client, &fixtures::http_source("logistics", "kyma-integration")).await?;
//! let within = Duration::from_secs(10);
//! cluster::wait_ready(&client, &kinds::HTTP_SOURCE, "kyma-integration", "logistics", within).await?;
//! standins.stop().await;
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use kube::Client;
use kube::api::DynamicObject;
use tokio::sync::watch;
use tokio::task::JoinSet;

pub mod behaviour;
pub mod cluster;
pub mod conditions;
mod controllers;
pub mod crds;
pub mod delivery;
mod engine;
pub mod fixtures;
pub mod kinds;
pub mod landscape;
pub mod policies;
mod scheduler;
pub mod seed;

pub use behaviour::{Behaviour, BrokerRelease, Controller};
pub use controllers::application_broker::{INJECTION_LABEL, RELEASE_ANNOTATION};
pub use controllers::application_operator::OPERATOR as APPLICATION_OPERATOR;
pub use controllers::event_activation::FINALIZER as EVENT_ACTIVATION_FINALIZER;
pub use controllers::gadget::FINALIZER as GADGET_FINALIZER;
pub use controllers::knative_subscription::FINALIZER as KNATIVE_SUBSCRIPTION_FINALIZER;
pub use controllers::legacy_subscription::FINALIZER as SUBSCRIPTION_FINALIZER;
pub use controllers::service_catalog::{APPLICATION_BROKER, FINALIZER as SERVICE_INSTANCE_FINALIZER};
pub use controllers::trigger::{BROKER_LABEL, TRIGGER_LABEL};
pub use crds::{Family, install_crds};
pub use engine::MANAGER;

/// Starts one controller's tasks.
type Start = fn(&mut engine::Setup<'_>);

/// Running stand-ins. They stop when this is dropped.
pub struct Standins {
    behaviour: watch::Sender<Arc<Behaviour>>,
    shared: Arc<engine::Shared>,
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
        let all: [(Controller, Start); 11] = [
            (Controller::HttpSource, controllers::http_source::start),
            (Controller::Subscription, controllers::legacy_subscription::start),
            (Controller::EventActivation, controllers::event_activation::start),
            (Controller::ServiceCatalog, controllers::service_catalog::start),
            (Controller::Broker, controllers::broker::start),
            (Controller::Trigger, controllers::trigger::start),
            (Controller::KnativeSubscription, controllers::knative_subscription::start),
            (Controller::ApplicationOperator, controllers::application_operator::start),
            (Controller::Kubelet, controllers::kubelet::start),
            (Controller::Widget, controllers::widget::start),
            (Controller::Gadget, controllers::gadget::start),
        ];
        let mut setup = engine::Setup::new(&mut tasks, shared.clone());
        for (controller, start) in all {
            if behaviour.plays(controller) {
                start(&mut setup);
            }
        }
        setup.watch();
        Self { behaviour: sender, shared, tasks }
    }

    /// Changes the behaviour from now on; every object is looked at again.
    pub fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        self.behaviour.send_modify(|behaviour| change(Arc::make_mut(behaviour)));
    }

    /// Waits until its controller has looked at this version of the object, or at a later one: what it has not done by
    /// then, it is not going to do by itself. For ever, if no controller looks at its kind.
    pub async fn looked_at(&self, object: &DynamicObject) {
        self.shared.looked_at(object).await;
    }

    /// Stops all controllers; when this returns, none writes any more.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}
