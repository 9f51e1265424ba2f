//! What `purge-legacy` removes, and what it refuses.

use e2e::{
    Told, World,
    scene::{INTEGRATION, ONE, SYSTEM},
    told::{Telling as _, is_move},
    world::{SOON, resource},
};
use harness::{At, Call, Fault, Resource, Scope, StepCommand, Verb};
use serde_json::{Value, json};
use standins::{
    Behaviour, Controller, Family, cluster, crds, fixtures,
    kinds::{CHANNEL, CRD, DEPLOYMENT, EVENT_ACTIVATION, KNATIVE_SUBSCRIPTION, LEGACY_SUBSCRIPTION},
    landscape::{Mesh, Scene},
};

const LEGACY_CRD: &str = "subscriptions.eventing.kyma-project.io";

/// The old bus is gone: nobody serves its finalizer.
fn without_the_bus() -> Behaviour {
    Behaviour { stopped: vec![Controller::Subscription, Controller::EventActivation], ..Behaviour::default() }
}

fn purge(world: &World, flags: &[&str]) -> StepCommand {
    world.mesh_step("purge-legacy", flags).env("BELAY_GONE_WITHIN", "10")
}

fn bus_channel(name: &str) -> Value {
    let mut channel = fixtures::channel(name, SYSTEM);
    channel["metadata"]["labels"] = json!({
        "kyma-source-id": "commerce", "kyma-event-type": "order.created", "kyma-event-type-version": "v1",
    });
    channel
}

/// Two dangling Knative Subscriptions, one of which hangs, a Channel of the bus, and objects of the mesh.
async fn leftovers() -> World {
    let world = World::scene(&Scene::new(&["commerce"]).on_mesh(ONE, Mesh::Not), without_the_bus()).await;
    for name in ["orders", "parcels"] {
        world.create(&fixtures::dangling_subscription(name, "gone", SYSTEM, "commerce")).await;
    }
    let hangs = fixtures::bus_subscription_name("parcels", "gone");
    world.api.delete(&resource(&KNATIVE_SUBSCRIPTION), Some(SYSTEM), &hangs).await.unwrap();
    world.create(&bus_channel("commerce-order-created")).await;
    world.create(&fixtures::channel("of-the-mesh", SYSTEM)).await;
    world.create(&fixtures::link("brokersub-kept", INTEGRATION, "commerce", ONE)).await;
    world
}

async fn crd(world: &World) -> Option<Value> {
    world.api.get(&resource(&CRD), None, LEGACY_CRD).await.unwrap()
}

#[tokio::test]
async fn bug_5_4_leftovers_with_dead_finalizers_go_then_the_crd_and_a_second_run_finds_nothing() {
    let world = leftovers().await;
    let run = world.run_with_its_rights(&purge(&world, &[])).await;
    run.exits(0).says("4 deleted").says("released");
    assert!(world.names_at(&KNATIVE_SUBSCRIPTION, SYSTEM).await.is_empty());
    assert_eq!(world.names_at(&CHANNEL, SYSTEM).await, ["of-the-mesh"]);
    assert!(crd(&world).await.is_none());
    assert!(world.get(&KNATIVE_SUBSCRIPTION, "brokersub-kept").await.is_some());
    let again = world.run(&purge(&world, &[])).await;
    again.exits(0).says("nothing of the old event bus is left").changes_nothing();
    // All that was not on its way out already is in the journal.
    world.run(&world.operate("restore", &["--step", "purge-legacy"])).await.exits(0);
    assert_that_all_is_back(&world).await;
}

async fn assert_that_all_is_back(world: &World) {
    assert!(crd(world).await.is_some());
    let kept = fixtures::bus_subscription_name("orders", "gone");
    assert_eq!(world.names_at(&KNATIVE_SUBSCRIPTION, SYSTEM).await, [kept]);
    assert_eq!(world.names_at(&CHANNEL, SYSTEM).await, ["commerce-order-created", "of-the-mesh"]);
}

/// The CRD of our own, which takes Subscriptions of both schemas; the real one of the Event Bus does not.
fn our_crd() -> Value {
    let ours = crds::crds(Family::EventMesh, None).unwrap();
    ours.into_iter().find(|crd| crd["metadata"]["name"] == LEGACY_CRD).unwrap()
}

#[tokio::test]
async fn a_subscription_of_either_schema_is_refused() {
    let world = leftovers().await;
    world
        .create(&fixtures::legacy_subscription("orders", ONE, "commerce", "order.created", "http://a.b/"))
        .await;
    world
        .run(&purge(&world, &[]))
        .await
        .exits(3)
        .says("Subscription/e2e-one/orders still exist")
        .changes_nothing();
    world.api.delete(&resource(&LEGACY_SUBSCRIPTION), Some(ONE), "orders").await.unwrap();
    crds::install(&world.api.client(), &[our_crd()]).await.unwrap();
    world.create(&fixtures::later_subscription("newer", ONE, "http://sink.ns")).await;
    world
        .run(&purge(&world, &[]))
        .await
        .exits(3)
        .says("Subscription/e2e-one/newer exist, and would be deleted with their CRD")
        .says("keep them")
        .changes_nothing();
}

#[tokio::test]
async fn a_cluster_that_has_moved_on_to_the_newer_subscriptions_has_nothing_to_remove() {
    let world = World::scene(&Scene::new(&["commerce"]).on_mesh(ONE, Mesh::Not), without_the_bus()).await;
    let mut newer = our_crd();
    newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["sink"] =
        json!({"type": "string"});
    crds::install(&world.api.client(), &[newer]).await.unwrap();
    world.create(&fixtures::later_subscription("newer", ONE, "http://sink.ns")).await;
    let run = world.run(&purge(&world, &[])).await;
    // With something to remove it is refused: what lives there may need it, and must not be deleted for that.
    world.create(&bus_channel("commerce-order-created")).await;
    let refused = world.run(&purge(&world, &[])).await;
    let left_out = ["--exclude", "Channel/kyma-system/commerce-order-created"];
    let passed = world.run(&purge(&world, &left_out)).await;
    crds::install(&world.api.client(), &[our_crd()]).await.unwrap();
    run.exits(0).says("serves the newer schema").says("1 Subscriptions exist").changes_nothing();
    refused
        .exits(3)
        .says("Subscription/e2e-one/newer exist, and may need what is left of the old bus")
        .says(&left_out.join(" "))
        .never_says("delete them")
        .changes_nothing();
    passed.exits(0).says("left out by --exclude").changes_nothing();
}

#[tokio::test]
async fn a_subscription_that_appears_meanwhile_keeps_the_crd_and_all_else() {
    let world = leftovers().await;
    let deletes = |call: &Call| {
        is_move(call) && call.verb == Verb::Delete && call.name.as_deref() == Some("commerce-order-created")
    };
    let (hold, holding) = Fault::hold(At::first(deletes));
    let run = world.start(&purge(&world, &[]), vec![hold]).await;
    run.until_it_says("deleted Subscription/kyma-system/orders--gone").await;
    let appeared = fixtures::legacy_subscription("late", ONE, "commerce", "order.created", "http://a.b/");
    world.create(&appeared).await;
    holding.release();
    run.wait()
        .await
        .unwrap()
        .exits(4)
        .says("Subscription/e2e-one/late has appeared, and would be deleted with the CRD");
    assert!(world.at(&LEGACY_SUBSCRIPTION, ONE, "late").await.is_some());
    assert_that_all_is_back(&world).await;
}

#[tokio::test]
async fn bug_5_10_activations_lose_the_finalizer_that_nobody_serves_and_those_that_hang_go() {
    let world = leftovers().await;
    for name in ["stays", "hangs"] {
        let mut activation = fixtures::event_activation(name, ONE, "commerce");
        activation["metadata"]["finalizers"] = json!(["eventactivation.finalizers.kyma-project.io"]);
        world.create(&activation).await;
    }
    world.api.delete(&resource(&EVENT_ACTIVATION), Some(ONE), "hangs").await.unwrap();
    let run = world.run_with_its_rights(&purge(&world, &[])).await;
    run.exits(0).says("patched EventActivation/e2e-one/stays").says("released EventActivation/e2e-one/hangs");
    assert_eq!(world.names_at(&EVENT_ACTIVATION, ONE).await, ["stays"]);
    let stays = world.at(&EVENT_ACTIVATION, ONE, "stays").await.unwrap();
    assert_eq!(stays["metadata"].get("finalizers"), None);
    world.run(&purge(&world, &[])).await.exits(0).changes_nothing();
}

#[tokio::test]
async fn bug_5_10_a_subscription_that_a_dead_finalizer_holds_is_refused_and_the_command_frees_it() {
    let world = leftovers().await;
    let mut stuck = fixtures::legacy_subscription("stuck", ONE, "commerce", "order.created", "http://a.b/");
    stuck["metadata"]["finalizers"] = json!(["subscription.finalizers.kyma-project.io"]);
    world.create(&stuck).await;
    world.api.delete(&resource(&LEGACY_SUBSCRIPTION), Some(ONE), "stuck").await.unwrap();
    let run = world.run(&purge(&world, &[])).await;
    run.exits(3)
        .says("Subscription/e2e-one/stuck (held by subscription.finalizers.kyma-project.io)")
        .says("kubectl patch subscriptions.eventing.kyma-project.io stuck --namespace e2e-one --type merge")
        .changes_nothing();
    world.change(&LEGACY_SUBSCRIPTION, ONE, "stuck", &json!({"metadata": {"finalizers": null}})).await;
    cluster::wait_gone(&world.api.client(), &LEGACY_SUBSCRIPTION, ONE, "stuck", SOON).await.unwrap();
    world.run(&purge(&world, &[])).await.exits(0);
}

/// The release's Deployment as Tiller installed it.
fn bus_deployment() -> Value {
    let mut deployment =
        fixtures::deployment("event-bus-subscription-controller", SYSTEM, 0, fixtures::IMAGE);
    deployment["metadata"]["labels"] = json!({
        "app.kubernetes.io/name": "subscription-controller", "app.kubernetes.io/instance": "event-bus",
        "app.kubernetes.io/managed-by": "Tiller", "app.kubernetes.io/part-of": "kyma",
    });
    deployment
}

#[tokio::test]
async fn while_the_release_is_there_nothing_is_removed() {
    let world = leftovers().await;
    let account = json!({
        "metadata": {"name": "event-bus-subscription-controller", "namespace": SYSTEM},
    });
    for (kind, object) in
        [(resource(&DEPLOYMENT), bus_deployment()), (Resource::core("serviceaccounts"), account)]
    {
        world.api.ensure(&kind, &object).await.unwrap();
        let run = world.run(&purge(&world, &[])).await;
        world.api.delete(&kind, Some(SYSTEM), "event-bus-subscription-controller").await.unwrap();
        run.exits(3).says("helm uninstall event-bus --namespace kyma-system").changes_nothing();
    }
}

#[tokio::test]
async fn without_the_crd_the_leftovers_still_wait_for_the_release_to_go() {
    let world = leftovers().await;
    world.remove_crd(LEGACY_CRD).await;
    world.create(&bus_deployment()).await;
    let run = world.run(&purge(&world, &[])).await;
    world
        .api
        .delete(&resource(&DEPLOYMENT), Some(SYSTEM), "event-bus-subscription-controller")
        .await
        .unwrap();
    run.exits(3).says("helm uninstall event-bus").changes_nothing();
    world.run(&purge(&world, &[])).await.exits(0).says("3 deleted");
}

#[tokio::test]
async fn a_failure_puts_the_leftovers_and_the_crd_back() {
    let world = leftovers().await;
    let deletes_crd = |call: &harness::Call| {
        e2e::told::is_move(call)
            && call.verb == harness::Verb::Delete
            && call.name.as_deref() == Some(LEGACY_CRD)
    };
    let fault =
        Fault::FailForGood { at: At::first(deletes_crd), status: 403, scope: Scope::Target, until: None };
    world.run_with(&purge(&world, &[]), vec![fault]).await.exits(4);
    assert_that_all_is_back(&world).await;
}

#[tokio::test]
async fn nothing_legacy_is_nothing_to_do() {
    let world = World::scene(&Scene::new(&["commerce"]).on_mesh(ONE, Mesh::Not), without_the_bus()).await;
    world.remove_crd(LEGACY_CRD).await;
    world
        .run(&purge(&world, &[]))
        .await
        .exits(0)
        .says("nothing of the old event bus is left")
        .changes_nothing();
}
