//! Leftovers of the old bus: two Knative Subscriptions held by a finalizer that nobody serves, a Channel, and the CRD;
//! beside them a Channel and a link of the mesh, which stay. None is on its way out: that cannot be put back. Behind the point
//! of no return are two activations that the bus held, one of which hangs.

use std::time::Duration;

use anyhow::Result;
use harness::{Area, Call, Resource, Scenario, StepCommand, Worker, crash::Guard};
use serde_json::json;
use standins::{
    Behaviour, Controller, Family, Standins, cluster, crds, fixtures,
    kinds::CRD,
    seed::{INTEGRATION, SYSTEM},
};

/// The scenario.
pub struct PurgeLegacy;

const LEGACY_CRD: &str = "subscriptions.eventing.kyma-project.io";

fn crds_of_bus() -> Resource {
    Resource::new(CRD.group, CRD.version, CRD.plural)
}

fn subscriptions() -> Resource {
    Resource::new("messaging.knative.dev", "v1alpha1", "subscriptions")
}

fn activations() -> Resource {
    Resource::new("applicationconnector.kyma-project.io", "v1alpha1", "eventactivations")
}

impl Scenario for PurgeLegacy {
    fn name(&self) -> &'static str {
        "purge-legacy"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        Ok(crate::command("belay", self.name(), &self.home(worker)).args(["--gone-within", "8"]))
    }

    fn home(&self, worker: &Worker) -> String {
        crate::home(worker)
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        vec![
            Area::within(subscriptions(), SYSTEM),
            Area::within(subscriptions(), INTEGRATION),
            Area::within(Resource::new("messaging.knative.dev", "v1alpha1", "channels"), SYSTEM),
            Area::anywhere(crds_of_bus()).named(LEGACY_CRD),
            Area::within(activations(), &worker.name("user")),
        ]
    }

    fn is_for_good(&self, call: &Call) -> bool {
        call.target.resource == activations().plural
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        crate::prepare(worker, &[SYSTEM, INTEGRATION, &worker.name("user"), &self.home(worker)]).await
    }

    fn standins(&self, worker: &Worker) -> Guard {
        let behaviour = Behaviour {
            controllers: vec![Controller::KnativeSubscription],
            finalizer_delay: Duration::from_millis(20),
            ..Behaviour::default()
        };
        Box::new(Standins::start(&worker.api.client(), behaviour))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        let client = worker.api.client();
        crds::install_crds(&client, Family::EventMesh, crds::upstream(Family::EventMesh).as_deref()).await?;
        let mut channel = fixtures::channel("commerce-order-created", SYSTEM);
        channel["metadata"]["labels"] =
            json!({"kyma-source-id": "commerce", "kyma-event-type": "order.created"});
        for object in [
            fixtures::dangling_subscription("orders", "gone", SYSTEM, "commerce"),
            fixtures::dangling_subscription("parcels", "gone", SYSTEM, "commerce"),
            channel,
            fixtures::channel("of-the-mesh", SYSTEM),
            fixtures::link("brokersub-kept", INTEGRATION, "commerce", "gone"),
        ] {
            cluster::create(&client, &object).await?;
        }
        let user = worker.name("user");
        for name in ["stays", "hangs"] {
            let mut activation = fixtures::event_activation(name, &user, "commerce");
            activation["metadata"]["finalizers"] = json!(["eventactivation.finalizers.kyma-project.io"]);
            cluster::create(&client, &activation).await?;
        }
        worker.api.delete(&activations(), Some(&user), "hangs").await?;
        Ok(())
    }
}
