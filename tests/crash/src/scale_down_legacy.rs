//! Two workloads to scale down, one that is at zero already, and one that does not exist.

use std::time::Duration;

use anyhow::Result;
use harness::{Area, Resource, Scenario, StepCommand, Worker, crash::Guard};
use serde_json::Value;
use standins::{Family, cluster, crds, fixtures};

/// The scenario.
pub struct ScaleDownLegacy;

const WORKLOADS: [(&str, u16); 3] = [("publisher", 2), ("controller", 1), ("idle", 0)];

impl Scenario for ScaleDownLegacy {
    fn name(&self) -> &'static str {
        "scale-down-legacy"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        let namespace = worker.name("bus");
        let mut command = crate::command("belay", self.name(), &self.home(worker))?
            .args(["--refuse-while", "subscriptions.eventing.kyma-project.io:spec.source_id"])
            .args(["--workload", &format!("Deployment/{namespace}/missing")]);
        for (name, _) in WORKLOADS {
            command = command.args(["--workload", &format!("Deployment/{namespace}/{name}")]);
        }
        Ok(command)
    }

    fn deadline(&self) -> Duration {
        crate::DEADLINE
    }

    fn home(&self, worker: &Worker) -> String {
        crate::home(worker)
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        vec![Area::within(Resource::new("apps", "v1", "deployments"), &worker.name("bus"))]
    }

    async fn setup(&self, worker: &Worker) -> Result<Guard> {
        let client = worker.api.client();
        crds::install_crds(&client, Family::EventMesh, crds::upstream(Family::EventMesh).as_deref()).await?;
        for namespace in [worker.name("bus"), self.home(worker)] {
            cluster::ensure_namespace(&client, &namespace).await?;
        }
        Ok(Box::new(()))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        for (name, replicas) in WORKLOADS {
            let deployment = fixtures::deployment(name, &worker.name("bus"), replicas, "none");
            cluster::create(&worker.api.client(), &deployment).await?;
        }
        Ok(())
    }

    fn adjust(&self, object: &mut Value) {
        crate::forget_the_controller(object);
    }
}
