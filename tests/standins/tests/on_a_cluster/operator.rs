//! The application-operator and the pods of what it rolls, against a real API server with its controllers.

use std::time::Duration;

use crate::ground::Ground;
use kube::api::{DynamicObject, ListParams};
use standins::Behaviour;
use standins::kinds::{APPLICATION, DEPLOYMENT, POD};
use standins::landscape::{NEW_EVENT_SERVICE, OLD_EVENT_SERVICE, Scene, upgrade_operator};

fn image(deployment: &DynamicObject) -> &str {
    deployment.data["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap()
}

fn feeds_mesh(deployment: &DynamicObject) -> bool {
    deployment.data["spec"]["template"]["spec"]["containers"][0]["args"]
        .to_string()
        .contains("--eventMeshURL=http://")
}

#[tokio::test]
async fn the_operator_rolls_event_services_to_the_image_that_its_argument_names() {
    let behaviour = Behaviour { play_pods: true, finalizer_delay: Duration::ZERO, ..Behaviour::default() };
    let ground = Ground::with_integration("operator", behaviour, &[]).await;
    let scene = ground.scene(Scene::new(&["fine", "crashing", "stuck"]).with_workloads());
    scene.fill(&ground.client).await.unwrap();
    let service = |name: &str| {
        let application = scene.applications.keys().find(|a| a.starts_with(name)).unwrap();
        format!("{application}-event-service")
    };
    let api = DEPLOYMENT.within(&ground.client, &ground.integration);
    let fine = api.get(&service("fine")).await.unwrap();
    assert_eq!(image(&fine), OLD_EVENT_SERVICE);
    assert!(!feeds_mesh(&fine));

    ground.standins.change(|b| {
        b.crash_loop.push("crashing".into());
        b.never_rolled.push("stuck*".into());
    });
    upgrade_operator(&ground.client, &ground.integration, NEW_EVENT_SERVICE).await.unwrap();
    let rolled = |d: &DynamicObject| {
        let status = &d.data["status"];
        status["observedGeneration"].as_i64() == d.metadata.generation
            && status["updatedReplicas"] == 1
            && status["availableReplicas"] == 1
            && status["replicas"] == 1
    };
    ground
        .until_in(&DEPLOYMENT, &ground.integration, &service("fine"), "is rolled", |d| {
            image(d) == NEW_EVENT_SERVICE && feeds_mesh(d) && rolled(d)
        })
        .await;
    let pods = POD.within(&ground.client, &ground.integration);
    let crashing = ListParams::default().labels(&format!("app={}", service("crashing")));
    standins::cluster::wait_until("a pod crashes", crate::ground::SOON, async || {
        let found = pods.list(&crashing).await?;
        Ok(found.iter().any(|pod| pod.data["status"].to_string().contains("CrashLoopBackOff")))
    })
    .await
    .unwrap();
    ground
        .until_in(&DEPLOYMENT, &ground.integration, &service("crashing"), "has its pod of before", |d| {
            // Beside the one that crashes.
            d.data["status"]["unavailableReplicas"] == 1 && d.data["status"]["availableReplicas"] == 1
        })
        .await;
    let stuck = scene.applications.keys().find(|name| name.starts_with("stuck")).unwrap();
    ground.looked_again(&APPLICATION, stuck).await;
    assert_eq!(image(&api.get(&service("stuck")).await.unwrap()), OLD_EVENT_SERVICE);
    ground.leave().await;
}
