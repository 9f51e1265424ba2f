//! What `verify-event-services` waits for, and what it fails at.

use e2e::{
    Told, World,
    deadline::Deadline,
    scene::{INTEGRATION, PROMPT},
    told::Telling as _,
    world::resource,
};
use harness::{Outcome, StepCommand};
use serde_json::json;
use standins::{
    Behaviour, Controller, fixtures,
    kinds::{APPLICATION, DEPLOYMENT, STATEFUL_SET},
    landscape::{NEW_EVENT_SERVICE, OLD_EVENT_SERVICE, Scene, upgrade_operator},
};

const APPLICATIONS: [&str; 2] = ["commerce", "logistics"];

async fn two() -> World {
    let behaviour = Behaviour { finalizer_delay: PROMPT, ..Behaviour::default() };
    World::scene(&Scene::new(&APPLICATIONS).with_workloads(), behaviour).await
}

fn step(world: &World, flags: &[&str]) -> StepCommand {
    world.mesh_step("verify-event-services", flags)
}

/// One with more time than a test lets it take: what it does not see by itself it does not live to see.
fn with_much_time(world: &World) -> StepCommand {
    step(world, &["--deadline", "1h"])
}

/// What it waits on.
const WATCHED: [&str; 4] = ["applications", "deployments", "httpsources", "pods"];

/// Runs the step to its deadline, which is when it has begun to wait.
async fn at_the_deadline(world: &World, flags: &[&str]) -> Outcome {
    let (fault, deadline) = Deadline::told();
    let run = world.start(&step(world, flags), vec![fault]).await;
    run.until_it_watches(&WATCHED).await;
    deadline.is_now();
    run.wait().await.unwrap()
}

#[tokio::test]
async fn it_waits_until_the_operator_has_rolled_them_all() {
    let world = two().await;
    world.create(&fixtures::skipped_application("loyalty")).await;
    world.standins.change(|behaviour| behaviour.never_rolled.push("logistics".into()));
    upgrade_operator(&world.api.client(), INTEGRATION, NEW_EVENT_SERVICE).await.unwrap();
    let (run, account) = world.start_with_its_rights(&step(&world, &[])).await;
    run.until_it_watches(&WATCHED).await;
    world.standins.change(|behaviour| behaviour.never_rolled.clear());
    let run = run.wait().await.unwrap();
    account.revoke().await.unwrap();
    run.exits(0).never_says("forbidden").changes_nothing();
    run.says("nothing to do; 2 objects are as wanted")
        .says("Application/loyalty: has spec.skipInstallation")
        .says(&format!("logistics    {NEW_EVENT_SERVICE}  {NEW_EVENT_SERVICE}  updated"))
        .says("not installed: spec.skipInstallation");
    // And again, at once: what waits is in the log.
    let run = world.run(&step(&world, &[])).await;
    run.exits(0).changes_nothing().never_says("waiting for");
}

#[tokio::test]
async fn one_that_is_not_updated_fails_it_at_the_deadline_with_a_table_of_all() {
    let world = two().await;
    world.standins.change(|behaviour| behaviour.never_rolled.push("logistics".into()));
    upgrade_operator(&world.api.client(), INTEGRATION, NEW_EVENT_SERVICE).await.unwrap();
    let failed = json!({"status": {"installationStatus": {"status": "FAILED", "description": "timed out"}}});
    world.patch(&APPLICATION, "logistics", &failed).await;
    world.until_rolled("commerce").await;
    let run = at_the_deadline(&world, &[]).await;
    run.exits(4)
        .says("; the installation of Application/logistics is FAILED: timed out")
        .says(&format!(
            "not updated: Deployment/{INTEGRATION}/logistics-event-service has image {OLD_EVENT_SERVICE}, not {NEW_EVENT_SERVICE}"
        ))
        .says(&format!("commerce     {NEW_EVENT_SERVICE}  {NEW_EVENT_SERVICE}  updated"))
        .says(&format!("logistics    {NEW_EVENT_SERVICE}  {OLD_EVENT_SERVICE}  not updated"))
        .changes_nothing();
}

#[tokio::test]
async fn before_the_upgrade_the_old_image_is_not_enough() {
    let world = two().await;
    let run = at_the_deadline(&world, &[]).await;
    run.exits(4).says("commerce-event-service has no argument --eventMeshURL");
}

#[tokio::test]
async fn a_crash_loop_fails_it_at_once() {
    let world = two().await;
    world.standins.change(|behaviour| behaviour.crash_loop.push("logistics-event-service".into()));
    upgrade_operator(&world.api.client(), INTEGRATION, NEW_EVENT_SERVICE).await.unwrap();
    let run = world.run(&with_much_time(&world)).await;
    run.exits(4).says("crashes again and again").changes_nothing();
}

#[tokio::test]
async fn a_rollout_that_was_given_up_fails_it_at_once() {
    let world = two().await;
    let patch = json!({"spec": {"progressDeadlineSeconds": 2}});
    world.patch(&DEPLOYMENT, "logistics-event-service", &patch).await;
    // New pods never run.
    world.standins.change(|behaviour| behaviour.stopped.push(Controller::Kubelet));
    upgrade_operator(&world.api.client(), INTEGRATION, NEW_EVENT_SERVICE).await.unwrap();
    let run = world.run(&with_much_time(&world)).await;
    run.exits(4)
        .says(&format!("the rollout of Deployment/{INTEGRATION}/logistics-event-service was given up"))
        .changes_nothing();
}

#[tokio::test]
async fn bug_5_6_a_source_that_is_not_ready_fails_it() {
    let world = two().await;
    world.upgrade(&APPLICATIONS).await;
    world.break_source("logistics").await;
    let run = at_the_deadline(&world, &[]).await;
    run.exits(4).says(&format!("failing: HTTPSource/{INTEGRATION}/logistics Ready is"));
}

#[tokio::test]
async fn an_application_that_is_deleted_meanwhile_is_not_waited_for() {
    let world = two().await;
    world.standins.change(|behaviour| behaviour.never_rolled.push("logistics".into()));
    upgrade_operator(&world.api.client(), INTEGRATION, NEW_EVENT_SERVICE).await.unwrap();
    let run = world.start(&step(&world, &[]), vec![]).await;
    run.until_it_watches(&WATCHED).await;
    world.patch(&APPLICATION, "logistics", &json!({"metadata": {"finalizers": null}})).await;
    world.api.delete(&resource(&APPLICATION), None, "logistics").await.unwrap();
    let run = run.wait().await.unwrap();
    run.exits(0).says("Application/logistics was deleted meanwhile").changes_nothing();
}

/// Their Subscriptions are refused by the step after this one: it must be told why.
#[tokio::test]
async fn event_services_that_nobody_looks_after_are_in_the_table_as_they_are() {
    let world = two().await;
    world.upgrade(&APPLICATIONS).await;
    world.create(&fixtures::skipped_application("loyalty")).await;
    for name in ["loyalty", "stray"] {
        world.create(&fixtures::event_service(name, INTEGRATION, OLD_EVENT_SERVICE, false)).await;
    }
    let run = world.run_with_its_rights(&step(&world, &[])).await;
    run.exits(0).changes_nothing();
    run.says(&format!(
        "has spec.skipInstallation, and Deployment/{INTEGRATION}/loyalty-event-service all the same"
    ))
    .says(&format!("Deployment/{INTEGRATION}/stray-event-service: there is no Application stray"))
    .says("(spec.skipInstallation)")
    .says("(there is no Application)");
}

#[tokio::test]
async fn an_application_that_appears_while_it_waits_is_in_the_table_too() {
    let world = two().await;
    world.standins.change(|behaviour| behaviour.never_rolled.push("logistics".into()));
    upgrade_operator(&world.api.client(), INTEGRATION, NEW_EVENT_SERVICE).await.unwrap();
    let (fault, deadline) = Deadline::told();
    let run = world.start(&step(&world, &[]), vec![fault]).await;
    run.until_it_watches(&WATCHED).await;
    world.create(&fixtures::skipped_application("loyalty")).await;
    deadline.is_now();
    let run = run.wait().await.unwrap();
    run.exits(4).says("loyalty ").says("not installed: spec.skipInstallation");
}

#[tokio::test]
async fn without_an_operator_the_image_must_be_named() {
    let world = two().await;
    world.upgrade(&APPLICATIONS).await;
    world.api.delete(&resource(&STATEFUL_SET), Some(INTEGRATION), "application-operator").await.unwrap();
    let run = world.run(&step(&world, &[])).await;
    run.exits(3).says("application-operator does not exist").says("--expect-image").changes_nothing();
    world.run(&step(&world, &["--expect-image", NEW_EVENT_SERVICE])).await.exits(0);
    let other = at_the_deadline(&world, &["--expect-image", "another"]).await;
    other.exits(4).says("not another");
}
