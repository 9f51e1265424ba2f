//! Two workloads to scale down, one that is at zero already, and one that does not exist; and two objects that hold a
//! finalizer which only one of the workloads serves.

use std::time::Duration;

use anyhow::Result;
use harness::{Area, Resource, Scenario, StepCommand, Worker, crash::Guard};
use serde_json::Value;
use standins::{Behaviour, Controller, Standins, cluster, fixtures};

/// The scenario.
pub struct ScaleDownLegacy;

const FINALIZER: &str = "eventactivation.finalizers.kyma-project.io";
const WORKLOADS: [(&str, u16); 3] = [("publisher", 2), ("controller", 1), ("idle", 0)];

fn activations() -> Resource {
    Resource::new("applicationconnector.kyma-project.io", "v1alpha1", "eventactivations")
}

impl Scenario for ScaleDownLegacy {
    fn name(&self) -> &'static str {
        "scale-down-legacy"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        let namespace = worker.name("bus");
        let mut command = crate::command("belay", self.name(), &self.home(worker))
            .args(["--refuse-while", "subscriptions.eventing.kyma-project.io:spec.source_id"])
            .args(["--release-finalizer"])
            .args([format!("eventactivations.applicationconnector.kyma-project.io={FINALIZER}")])
            .args(["--workload", &format!("Deployment/{namespace}/missing")]);
        for (name, _) in WORKLOADS {
            command = command.args(["--workload", &format!("Deployment/{namespace}/{name}")]);
        }
        Ok(command)
    }

    fn home(&self, worker: &Worker) -> String {
        crate::home(worker)
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        vec![
            Area::within(Resource::new("apps", "v1", "deployments"), &worker.name("bus")),
            Area::within(activations(), &worker.name("user")),
        ]
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        crate::prepare(worker, &[&worker.name("bus"), &worker.name("user"), &self.home(worker)]).await
    }

    fn standins(&self, worker: &Worker) -> Guard {
        let behaviour = Behaviour {
            controllers: vec![Controller::EventActivation],
            bus_deployment: Some(format!("{}/controller", worker.name("bus"))),
            ..Behaviour::default()
        };
        Box::new(Standins::start(&worker.api.client(), behaviour))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        for (name, replicas) in WORKLOADS {
            let deployment = fixtures::deployment(name, &worker.name("bus"), replicas, "none");
            cluster::create(&worker.api.client(), &deployment).await?;
        }
        let user = worker.name("user");
        for name in ["orders", "parcels"] {
            let activation = fixtures::event_activation(name, &user, "commerce");
            cluster::create(&worker.api.client(), &activation).await?;
        }
        cluster::wait_until("the controller holds the activations", Duration::from_secs(20), || async {
            let found = worker.api.list(&activations(), Some(&user), None).await?;
            Ok(found.iter().all(|activation| activation["metadata"]["finalizers"][0] == FINALIZER))
        })
        .await
    }

    fn adjust(&self, object: &mut Value) {
        crate::forget_the_controller(object);
    }
}
