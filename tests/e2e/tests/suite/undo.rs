//! A step that fails puts everything back; what somebody else has changed meanwhile is left alone and named.

use std::time::Duration;

use e2e::{
    Told, World,
    told::is_move,
    world::{SOON, STATION_NAME},
};
use harness::{At, Call, Fault, Scope};
use serde_json::json;
use standins::{
    Behaviour,
    kinds::{DEPLOYMENT, HTTP_SOURCE, STATION, WIDGET},
};

const STEP: &str = "create-missing-sources";

fn on_the_station(call: &Call) -> bool {
    is_move(call) && call.target.resource == "stations"
}

fn never_ready(name: &str) -> Behaviour {
    Behaviour { never_ready: vec![name.to_owned()], ..Behaviour::default() }
}

#[tokio::test]
async fn with_on_failure_chain_only_the_chain_that_failed_is_undone() {
    let world = World::mesh(never_ready("logistics")).await;
    world.applications(&["commerce", "logistics", "loyalty"]).await;
    let run = world.run(&world.sources(&["--on-failure", "chain", "--ready-within", "3"])).await;
    run.exits(4).says("failed for 1 of 3 objects, which are as they were before; the others are done");
    assert_eq!(world.names(&HTTP_SOURCE).await, ["commerce", "loyalty"]);
    // The next run has only that one to do.
    world.standins.change(|behaviour| behaviour.never_ready.clear());
    assert_eq!(world.run(&world.sources(&[])).await.exits(0).moves(), ["create logistics"]);
}

#[tokio::test]
async fn with_on_failure_step_all_is_undone() {
    let world = World::mesh(never_ready("logistics")).await;
    world.applications(&["commerce", "logistics", "loyalty"]).await;
    let before = world.state().await;
    let run = world.run(&world.sources(&["--ready-within", "3"])).await;
    run.exits(4).says("HTTPSource/e2e-integration/logistics").says("3 changes were taken back");
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
    assert_eq!(world.journal_status(STEP).await, "undone");
}

/// Objects, labels, annotations, owner references, replicas, states: after every kind of move.
#[tokio::test]
async fn a_step_that_fails_late_puts_back_every_kind_of_change() {
    let world = World::fixture(Behaviour::default()).await;
    let before = world.state().await;
    let run = world.run_with(&world.step(&[]), vec![crate::fails_late()]).await;
    run.exits(4).says("Everything is as it was before");
    let made = run.moves();
    for done in ["create anvil", "delete manual", "delete drill", "patch crank", "patch engine/scale"] {
        assert!(made.iter().any(|made| made == done), "{done} is not among {made:?}");
    }
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
    let recreated = |key: &String, _: &_| key.ends_with("/manual") || key.ends_with("/drill");
    assert!(before.replaced(&after, recreated).is_empty());
}

#[tokio::test]
async fn past_the_point_of_no_return_a_failure_is_exit_6_and_a_rerun_finishes() {
    let world = World::fixture(Behaviour::default()).await;
    let last = |call: &Call| is_move(call) && call.name.as_deref() == Some("leftover");
    let broken = Fault::FailForGood { at: At::first(last), status: 422, scope: Scope::Target, until: None };
    let run = world.run_with(&world.step(&[]), vec![broken]).await;
    run.exits(6).says("past the point of no return").says("Run the step again");
    let refused = world.run(&world.operate("restore", &["--step", "fixture"])).await;
    refused.exits(3).says("is past its point of no return and cannot be undone").changes_nothing();
    world.run(&world.step(&[])).await.exits(0);
    assert_eq!(world.get(&STATION, STATION_NAME).await.unwrap()["spec"]["state"], "Open");
    assert_eq!(world.journal_status("fixture").await, "done");
}

/// Runs the step to exit 5: somebody changes what it made while it waits.
async fn meddled_with() -> World {
    let world = World::mesh(never_ready("logistics")).await;
    world.applications(&["commerce", "logistics"]).await;
    let run = world.start(&world.sources(&["--ready-within", "4"]), vec![]).await;
    run.proxy.when(crate::creates("commerce"), SOON).await.unwrap();
    let mine = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}});
    world.patch(&HTTP_SOURCE, "commerce", &mine).await;
    let run = run.wait().await.unwrap();
    run.exits(5).says("NOT everything could be put back: HTTPSource/e2e-integration/commerce");
    run.says("belay restore --step create-missing-sources --home e2e-home, or belay accept");
    assert_eq!(world.names(&HTTP_SOURCE).await, ["commerce"], "the other one is taken back");
    assert_eq!(world.journal_status(STEP).await, "undoing");
    world
}

#[tokio::test]
async fn what_somebody_changed_is_left_alone_until_a_person_restores() {
    let world = meddled_with().await;
    let restore = world.operate("restore", &["--step", STEP]);
    world.run(&restore).await.exits(5).says("somebody has changed it since");
    let back = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}});
    world.patch(&HTTP_SOURCE, "commerce", &back).await;
    world.run(&restore).await.exits(0).says("1 changes of run");
    assert!(world.names(&HTTP_SOURCE).await.is_empty());
    assert_eq!(world.journal_status(STEP).await, "undone");
}

#[tokio::test]
async fn what_somebody_changed_is_left_alone_until_a_person_accepts() {
    let world = meddled_with().await;
    // Nobody has looked: the step itself does not begin anew either, it finishes its undo.
    world.run(&world.sources(&[])).await.exits(5).says("an earlier attempt was being undone");
    world.run(&world.operate("accept", &["--step", STEP])).await.exits(0).says("accepted");
    world.standins.change(|behaviour| behaviour.never_ready.clear());
    let run = world.run(&world.sources(&[])).await;
    assert_eq!(run.exits(0).moves(), ["create logistics"]);
    world.run(&world.operate("accept", &["--step", STEP])).await.exits(3).says("has no open journal");
}

#[tokio::test]
async fn fields_that_somebody_changed_after_us_are_not_put_back() {
    let world = World::fixture(Behaviour::default()).await;
    let later = Fault::Delay { at: Some(At::first(on_the_station)), by: Duration::from_secs(2) };
    let run = world.start(&world.step(&[]), vec![later, crate::fails_late()]).await;
    let scaled = |call: &Call| is_move(call) && call.target.subresource.is_some();
    run.proxy.when(scaled, SOON).await.unwrap();
    world.patch(&DEPLOYMENT, "engine", &json!({"spec": {"replicas": 5}})).await;
    let run = run.wait().await.unwrap();
    run.exits(5)
        .says("Deployment/e2e-workshop/engine somebody has changed it since: spec.replicas is left as it is");
    assert_eq!(world.get(&DEPLOYMENT, "engine").await.unwrap()["spec"]["replicas"], 5);
    // All the rest is back.
    assert_eq!(world.get(&WIDGET, "anvil").await.unwrap()["spec"]["phase"], "Draft");
}

/// What the plan saw is old when the move is made: undo must know the newest.
#[tokio::test]
async fn an_object_that_changes_before_it_is_deleted_is_restored_as_it_was_last() {
    let world = World::fixture(Behaviour::default()).await;
    let deletes = |call: &Call| {
        is_move(call) && call.verb == harness::Verb::Delete && call.name.as_deref() == Some("manual")
    };
    let late = Fault::Delay { at: Some(At::first(deletes)), by: Duration::from_secs(2) };
    let run = world.start(&world.step(&[]), vec![late, crate::fails_late()]).await;
    run.proxy.when(crate::creates("manual-new"), SOON).await.unwrap();
    let maps = harness::Resource::core("configmaps");
    let newer = json!({"data": {"content": "newer"}});
    world.api.merge(&maps, Some(world.place), "manual", None, &newer).await.unwrap();
    run.wait().await.unwrap().exits(4);
    let back = world.api.get(&maps, Some(world.place), "manual").await.unwrap().unwrap();
    assert_eq!(back["data"]["content"], "newer");
    assert_eq!(back["metadata"]["labels"]["shelf"], "1");
}
