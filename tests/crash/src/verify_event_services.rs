//! Two Applications whose event-services feed the mesh, and one that skips its installation. The step only reads.

use anyhow::Result;
use harness::{Area, Resource, Scenario, StepCommand, Worker, crash::Guard};
use standins::{cluster, fixtures, landscape::Scene};

/// The scenario.
pub struct VerifyEventServices;

fn scene() -> Scene {
    Scene::new(&["commerce", "logistics"]).with_workloads()
}

impl Scenario for VerifyEventServices {
    fn name(&self) -> &'static str {
        "verify-event-services"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        Ok(crate::command("belay", self.name(), &self.home(worker)))
    }

    fn home(&self, worker: &Worker) -> String {
        crate::home(worker)
    }

    fn areas(&self, _: &Worker) -> Vec<Area> {
        vec![Area::anywhere(Resource::new(
            "applicationconnector.kyma-project.io",
            "v1alpha1",
            "applications",
        ))]
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        crate::prepare(worker, &[&self.home(worker)]).await?;
        let standins = crate::mesh(worker);
        crate::set(&worker.api, scene()).await?;
        crate::feed_the_mesh(worker, &["commerce", "logistics"]).await?;
        standins.stop().await;
        Ok(())
    }

    fn standins(&self, worker: &Worker) -> Guard {
        Box::new(crate::mesh(worker))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        cluster::create(&worker.api.client(), &fixtures::skipped_application("loyalty")).await?;
        crate::set(&worker.api, scene()).await
    }
}
