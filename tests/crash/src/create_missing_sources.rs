//! Two Applications without a source, one that skips its installation, and one whose source is there already.

use std::time::Duration;

use anyhow::Result;
use harness::{Area, Resource, Scenario, StepCommand, Worker, crash::Guard};
use serde_json::Value;
use standins::{
    Behaviour, Controller, Standins, cluster, fixtures, kinds,
    seed::{INTEGRATION, SOURCE_CONTROLLER, SYSTEM},
};

/// The scenario.
pub struct CreateMissingSources;

impl Scenario for CreateMissingSources {
    fn name(&self) -> &'static str {
        "create-missing-sources"
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        Ok(crate::command("belay", self.name(), &self.home(worker)).args(["--ready-within", "8"]))
    }

    fn home(&self, worker: &Worker) -> String {
        crate::home(worker)
    }

    fn areas(&self, _: &Worker) -> Vec<Area> {
        vec![
            Area::anywhere(Resource::new("applicationconnector.kyma-project.io", "v1alpha1", "applications")),
            Area::within(Resource::new("sources.kyma-project.io", "v1alpha1", "httpsources"), INTEGRATION),
            Area::within(Resource::new("messaging.knative.dev", "v1alpha1", "channels"), INTEGRATION),
            Area::within(Resource::new("serving.knative.dev", "v1alpha1", "services"), INTEGRATION),
        ]
    }

    fn newcomer(&self, _: &Worker) -> Option<(Resource, Value)> {
        let applications = Resource::new("applicationconnector.kyma-project.io", "v1alpha1", "applications");
        Some((applications, fixtures::application("newcomer")))
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        crate::prepare(worker, &[SYSTEM, INTEGRATION, &self.home(worker)]).await?;
        let controller = fixtures::deployment(SOURCE_CONTROLLER, SYSTEM, 1, "none");
        worker.api.ensure(&Resource::new("apps", "v1", "deployments"), &controller).await?;
        crate::pretend_kubelet(&worker.api, SYSTEM, SOURCE_CONTROLLER).await
    }

    fn standins(&self, worker: &Worker) -> Guard {
        let behaviour = Behaviour { controllers: vec![Controller::HttpSource], ..Behaviour::default() };
        Box::new(Standins::start(&worker.api.client(), behaviour))
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        let client = worker.api.client();
        for name in ["alpha", "beta", "there"] {
            cluster::create(&client, &fixtures::application(name)).await?;
        }
        cluster::create(&client, &fixtures::skipped_application("skipped")).await?;
        cluster::create(&client, &fixtures::http_source("there", INTEGRATION)).await?;
        let patience = Duration::from_secs(20);
        cluster::wait_ready(&client, &kinds::HTTP_SOURCE, INTEGRATION, "there", patience).await
    }
}
