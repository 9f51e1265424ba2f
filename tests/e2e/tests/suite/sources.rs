//! What `create-missing-sources` does to an Application, and what it does not.

use std::time::Duration;

use e2e::{
    Told, World,
    rights::Account,
    world::{SOON, SOURCE_CONTROLLER, SYSTEM, resource},
};
use harness::{Api, Resource};
use serde_json::json;
use standins::{
    Behaviour, cluster, fixtures,
    kinds::{APPLICATION, CHANNEL, DEPLOYMENT, HTTP_SOURCE},
};

#[tokio::test]
async fn a_created_source_can_be_taken_over_by_its_applications_release() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.create(&fixtures::skipped_application("loyalty")).await;
    let run = world.run(&world.sources(&[])).await;
    run.exits(0).says("2 created").says("Application/loyalty: has spec.skipInstallation");
    run.never_says("Application/commerce: has");
    let source = world.get(&HTTP_SOURCE, "commerce").await.unwrap();
    assert_eq!(source["spec"], json!({"source": "commerce"}));
    assert_eq!(source["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
    let annotations = &source["metadata"]["annotations"];
    assert_eq!(annotations["meta.helm.sh/release-name"], "commerce");
    assert_eq!(annotations["meta.helm.sh/release-namespace"], world.place);
    let run = &world.journals("create-missing-sources").await[0]["run"];
    assert_eq!(annotations["belay.dev/run"], format!("create-missing-sources/{}", run.as_str().unwrap()));
}

#[tokio::test]
async fn a_source_that_exists_is_waited_for_and_never_changed() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    world.create(&fixtures::http_source("commerce", world.place)).await;
    cluster::wait_ready(&world.api.client(), &HTTP_SOURCE, world.place, "commerce", SOON).await.unwrap();
    let before = world.get(&HTTP_SOURCE, "commerce").await.unwrap();
    assert_eq!(world.run(&world.sources(&[])).await.exits(0).moves(), ["create logistics"]);
    assert_eq!(world.get(&HTTP_SOURCE, "commerce").await.unwrap(), before);

    world.standins.change(|behaviour| behaviour.never_ready.push("loyalty".into()));
    world.applications(&["loyalty"]).await;
    world.create(&fixtures::http_source("loyalty", world.place)).await;
    let run = world.run(&world.sources(&["--ready-within", "3"])).await;
    run.exits(4)
        .says("HTTPSource/e2e-integration/loyalty")
        .says("Nothing had been changed")
        .changes_nothing();
    assert!(world.get(&HTTP_SOURCE, "loyalty").await.is_some());
}

#[tokio::test]
async fn an_adapter_without_a_channel_fails_the_step_before_the_wait_is_over() {
    let world =
        World::mesh(Behaviour { lose_channel: vec!["logistics".into()], ..Behaviour::default() }).await;
    world.applications(&["commerce", "logistics"]).await;
    let run = world.run(&world.sources(&[])).await;
    run.exits(4).says("Service/e2e-integration/logistics (the adapter) exists, but Channel/e2e-integration/logistics does not");
    assert!(run.duration >= Duration::from_secs(5), "seen twice, 5 s apart");
    world.until_names(&HTTP_SOURCE, &[]).await;
}

/// A controller recreates what it owns within a moment: that is no loss.
#[tokio::test]
async fn a_channel_that_comes_back_is_not_lost() {
    let world =
        World::mesh(Behaviour { lose_channel: vec!["logistics".into()], ..Behaviour::default() }).await;
    world.applications(&["logistics"]).await;
    let run = world.start(&world.sources(&[]), vec![]).await;
    cluster::wait_until("the channel is lost", SOON, async || {
        let adapter = world.get(&standins::kinds::KNATIVE_SERVICE, "logistics").await;
        Ok(adapter.is_some() && world.get(&CHANNEL, "logistics").await.is_none())
    })
    .await
    .unwrap();
    world.standins.change(|behaviour| behaviour.lose_channel.clear());
    run.wait().await.unwrap().exits(0).says("1 created");
}

#[tokio::test]
async fn a_channel_that_is_not_ready_in_time_fails_the_step() {
    let behaviour = Behaviour { channel_never_ready: vec!["logistics".into()], ..Behaviour::default() };
    let world = World::mesh(behaviour).await;
    world.applications(&["commerce", "logistics"]).await;
    let run = world.run(&world.sources(&["--ready-within", "3"])).await;
    run.exits(4).says("waited 3").says("Channel/e2e-integration/logistics Ready is");
    world.until_names(&HTTP_SOURCE, &[]).await;
}

/// A controller of that time did not say which generation it had seen.
#[tokio::test]
async fn a_status_without_observed_generation_counts() {
    let world = World::mesh(Behaviour { no_observed_generation: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    world.run(&world.sources(&[])).await.exits(0).says("1 created");
}

async fn set_replicas(api: &Api, replicas: u16) {
    let scale = json!({"spec": {"replicas": replicas}});
    let deployments = resource(&DEPLOYMENT);
    api.merge(&deployments, Some(SYSTEM), SOURCE_CONTROLLER, None, &scale).await.unwrap();
}

#[tokio::test]
async fn without_an_available_source_controller_nothing_is_begun() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    set_replicas(&world.api, 0).await;
    cluster::wait_until("the controller is scaled down", SOON, async || {
        let live = world.api.get(&resource(&DEPLOYMENT), Some(SYSTEM), SOURCE_CONTROLLER).await?.unwrap();
        Ok(live["status"].get("availableReplicas").is_none())
    })
    .await
    .unwrap();
    let run = world.run(&world.sources(&[])).await;
    set_replicas(&world.api, 1).await;
    run.exits(3).says("source-controller: is not available").changes_nothing();
}

#[tokio::test]
async fn a_name_that_can_never_become_ready_can_be_left_out() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "with.dot", "1digit"]).await;
    let flags = ["--exclude", "Application/with.dot", "--exclude", "applications/1digit"];
    let run = world.run(&world.sources(&flags)).await;
    run.exits(0).says("1 created").says("Application/with.dot: left out by --exclude");
    assert_eq!(world.names(&HTTP_SOURCE).await, ["commerce"]);
}

#[tokio::test]
async fn an_application_that_appears_during_the_run_gets_its_source_too() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    let run = world.start(&world.sources(&[]), vec![]).await;
    run.proxy.when(crate::creates("commerce"), SOON).await.unwrap();
    world.applications(&["logistics"]).await;
    world.standins.change(|behaviour| behaviour.paused = false);
    run.wait().await.unwrap().exits(0).says("2 created");
    assert_eq!(world.names(&HTTP_SOURCE).await, ["commerce", "logistics"]);
}

#[tokio::test]
async fn an_application_that_is_being_deleted_is_left_alone() {
    let world = World::mesh(Behaviour::default()).await;
    let mut going = fixtures::application("logistics");
    going["metadata"]["finalizers"] = json!(["e2e.belay.dev/stay"]);
    world.create(&going).await;
    world.api.delete(&resource(&APPLICATION), None, "logistics").await.unwrap();
    let run = world.run(&world.sources(&[])).await;
    run.exits(0).says("Application/logistics: is being deleted").changes_nothing();
}

/// A namespace that is going takes its objects with it: there is nothing to migrate, nor to restore.
#[tokio::test]
async fn a_namespace_that_is_being_deleted_voids_its_chains() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let namespaces = Resource::core("namespaces");
    let maps = Resource::core("configmaps");
    world.api.ensure_namespace("e2e-going").await.unwrap();
    let stays = json!({
        "metadata": {"name": "stays", "namespace": "e2e-going", "finalizers": ["e2e.belay.dev/stay"]},
    });
    world.api.ensure(&maps, &stays).await.unwrap();
    world.api.delete(&namespaces, None, "e2e-going").await.unwrap();
    let run = world.run(&world.sources(&["--integration-namespace", "e2e-going"])).await;
    let let_go = json!({"metadata": {"finalizers": null}});
    world.api.merge(&maps, Some("e2e-going"), "stays", None, &let_go).await.unwrap();
    run.exits(0).says("Application/commerce: its namespace is being deleted");
    assert_eq!(world.journal_status("create-missing-sources").await, "done");
}

/// On a fresh cluster the CRDs may come before the namespaces, and no Role can be in a namespace that is not there.
#[tokio::test]
async fn without_its_namespaces_and_without_applications_there_is_nothing_to_do() {
    let world = World::mesh(Behaviour::default()).await;
    let flags =
        ["--integration-namespace", "e2e-not-yet", "--source-controller", "e2e-not-yet-either/manager"];
    let step = world.sources(&flags);
    let mut rules = world.run(&step.clone().args(["--print-rbac"])).await.json();
    rules["namespaced"].as_object_mut().unwrap().retain(|name, _| name == world.home);
    let account = Account::new(&world.api, world.home, "fresh", rules).await.unwrap();
    let upstream = account.upstream(&world.kubeconfig).await.unwrap();
    let run = step.run(&upstream, vec![]).await.unwrap();
    account.revoke().await.unwrap();
    run.exits(0).changes_nothing();
}

/// The server's answer to a create there looks like that of a namespace that is going.
#[tokio::test]
async fn a_misspelt_integration_namespace_is_refused() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let run = world.run(&world.sources(&["--integration-namespace", "e2e-misspelt"])).await;
    run.exits(3)
        .says("Namespace/e2e-misspelt: does not exist")
        .says("--integration-namespace")
        .changes_nothing();
}

#[tokio::test]
async fn where_every_application_is_left_out_the_controller_is_not_needed() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let missing = ["--source-controller", "e2e-system/missing"];
    world.run(&world.sources(&missing)).await.exits(3).changes_nothing();
    let run = world.run(&world.sources(&missing).args(["--exclude", "Application/commerce"])).await;
    run.exits(0).says("Application/commerce: left out by --exclude").changes_nothing();
}

#[tokio::test]
async fn a_source_that_gives_its_events_another_source_is_named() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let mut source = fixtures::http_source("commerce", world.place);
    source["spec"]["source"] = "shop".into();
    world.create(&source).await;
    let run = world.run(&world.sources(&[])).await;
    run.exits(0).says("HTTPSource/e2e-integration/commerce: its spec.source is 'shop'").changes_nothing();
}
