//! What `retire-subscriptions` takes away, and when it does not.

use e2e::{
    Told, World,
    deadline::Deadline,
    rights::Account,
    scene::{INTEGRATION, ONE, PROMPT, SUBSCRIPTION_CONTROLLER, SYSTEM, migrated},
    told::{Telling as _, is_move},
    world::{SOON, resource},
};
use harness::{At, Call, Exit, Fault, StepCommand};
use serde_json::json;
use standins::{
    Behaviour, cluster, fixtures,
    kinds::{APPLICATION, DEPLOYMENT, LEGACY_SUBSCRIPTION, STATEFUL_SET, TRIGGER},
};

const APPLICATIONS: [&str; 2] = ["commerce", "logistics"];

fn quick() -> Behaviour {
    Behaviour { finalizer_delay: PROMPT, ..Behaviour::default() }
}

fn step(world: &World, flags: &[&str]) -> StepCommand {
    world.mesh_step("retire-subscriptions", flags)
}

async fn upgraded() -> World {
    let world = World::scene(&migrated(), quick()).await;
    world.upgrade(&APPLICATIONS).await;
    world
}

async fn subscriptions(world: &World) -> Vec<String> {
    world.names_at(&LEGACY_SUBSCRIPTION, ONE).await
}

fn endpoint(name: &str) -> String {
    format!("http://{name}.{ONE}:8080/")
}

#[tokio::test]
async fn they_go_when_nothing_feeds_the_old_path_and_come_back_ready() {
    let world = World::scene(&migrated(), quick()).await;
    let before = world.state().await;
    // Before the upgrade: every source feeds the old path.
    let run = world.run(&step(&world, &[])).await;
    run.exits(3).changes_nothing();
    for (name, application) in [("orders", "commerce"), ("parcels", "logistics")] {
        run.says(&format!("Subscription/{ONE}/{name}: its source still feeds the old path")).says(&format!(
            "Deployment/{INTEGRATION}/{application}-event-service has no argument --eventMeshURL"
        ));
    }
    world.upgrade(&APPLICATIONS).await;
    let run = world.run_with_its_rights(&step(&world, &[])).await;
    run.exits(0).says("2 deleted");
    assert!(subscriptions(&world).await.is_empty());

    // With the controllers down a second run still has nothing to do.
    world.scale_bus(0).await;
    world.run(&step(&world, &[])).await.exits(0).says("nothing to do").changes_nothing();
    world.scale_bus(1).await;

    world.run(&world.operate("restore", &["--step", "retire-subscriptions"])).await.exits(0);
    assert_eq!(subscriptions(&world).await, ["orders", "parcels"]);
    let restored = world.at(&LEGACY_SUBSCRIPTION, ONE, "orders").await.unwrap();
    let ready =
        |condition: &serde_json::Value| condition["type"] == "is-ready" && condition["status"] == "True";
    assert!(restored["status"]["conditions"].as_array().unwrap().iter().any(ready), "{restored}");
    let after = world.state().await;
    let differs = before.diff(&after).to_string();
    assert!(differs.contains("event-service"), "what the upgrade changed is seen: {differs}");
    assert!(!differs.contains("Subscription/") && !differs.contains("Trigger/"), "{differs}");
}

#[tokio::test]
async fn bug_1_5_the_later_schema_is_never_touched() {
    let world = upgraded().await;
    world.later_subscription(ONE, "newer").await;
    world.run(&step(&world, &[])).await.exits(0).says("2 deleted").never_says("newer");
    assert_eq!(subscriptions(&world).await, ["newer"], "spec.sink is not the old bus's");
}

/// A tool that keeps it, or a person, was quicker than the step's second look.
#[tokio::test]
async fn one_that_is_there_again_is_no_success_without_a_word() {
    let world = upgraded().await;
    let mut kept = world.at(&LEGACY_SUBSCRIPTION, ONE, "orders").await.unwrap();
    kept["metadata"] = json!({
        "name": "orders", "namespace": ONE, "labels": {"kustomize.toolkit.fluxcd.io/name": "shop"},
    });
    world.standins.change(|behaviour| behaviour.hold_finalizer.push(format!("{ONE}/parcels")));
    let run = world.start(&step(&world, &[]), vec![]).await;
    cluster::wait_until("one is gone", SOON, async || {
        Ok(world.at(&LEGACY_SUBSCRIPTION, ONE, "orders").await.is_none())
    })
    .await
    .unwrap();
    world.create(&kept).await;
    world.standins.change(|behaviour| behaviour.hold_finalizer.clear());
    world
        .change(&LEGACY_SUBSCRIPTION, ONE, "parcels", &json!({"metadata": {"labels": {"look": "again"}}}))
        .await;
    let run = run.wait().await.unwrap();
    run.exits(0).says("2 deleted").says(&format!(
        "Subscription/{ONE}/orders: is there again since this step deleted it: remove it from its source (Flux), then run \
         retire-subscriptions again"
    ));
    assert_eq!(subscriptions(&world).await, ["orders"]);
}

fn deletes_orders(call: &Call) -> bool {
    is_move(call) && call.verb == harness::Verb::Delete && call.name.as_deref() == Some("orders")
}

#[tokio::test]
async fn one_that_was_edited_since_an_attempt_that_died_is_judged_as_it_is() {
    let world = upgraded().await;
    let died = world.run_with(&step(&world, &[]), vec![Fault::KillBefore(At::first(deletes_orders))]).await;
    assert_eq!(died.exit, Exit::Signal(9));
    let elsewhere = json!({"spec": {"endpoint": "http://elsewhere/"}});
    world.change(&LEGACY_SUBSCRIPTION, ONE, "orders", &elsewhere).await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(4).says(&format!("Subscription/{ONE}/orders: it has no Trigger"));
    run.says("Everything is as it was before").never_says("nothing was written");
    assert_eq!(subscriptions(&world).await, ["orders", "parcels"]);
}

/// Its Trigger is that of the old endpoint: with the new one it would go, and nothing would deliver there.
#[tokio::test]
async fn one_that_somebody_changes_after_the_step_has_looked_stays() {
    let world = upgraded().await;
    let (hold, holding) = Fault::hold(At::first(deletes_orders));
    let run = world.start(&step(&world, &[]), vec![hold]).await;
    run.until_it_sends(deletes_orders).await;
    world
        .change(&LEGACY_SUBSCRIPTION, ONE, "orders", &json!({"spec": {"endpoint": "http://elsewhere/"}}))
        .await;
    holding.release();
    let run = run.wait().await.unwrap();
    run.exits(0).says("1 deleted").says(&format!(
        "Subscription/{ONE}/orders: was changed after this step had looked at it: run the step again"
    ));
    assert_eq!(subscriptions(&world).await, ["orders"]);
}

#[tokio::test]
async fn what_is_left_out_needs_no_controller() {
    let world = upgraded().await;
    world.scale_bus(0).await;
    let (orders, parcels) = (format!("Subscription/{ONE}/orders"), format!("Subscription/{ONE}/parcels"));
    let run = world.run(&step(&world, &["--exclude", &orders, "--exclude", &parcels])).await;
    run.exits(0).says(&format!("{orders}: left out by --exclude")).changes_nothing();
    let run = world.run(&step(&world, &["--exclude-namespace", ONE])).await;
    run.exits(0).says(&format!("Namespace/{ONE}: is in a namespace that was left out")).changes_nothing();
}

#[tokio::test]
async fn bug_2_3_one_that_somebody_else_deletes_and_that_hangs_names_its_controller() {
    let world = upgraded().await;
    world.standins.change(|behaviour| behaviour.hold_finalizer.push(format!("{ONE}/orders")));
    world.api.delete(&resource(&LEGACY_SUBSCRIPTION), Some(ONE), "orders").await.unwrap();
    let parcels = format!("Subscription/{ONE}/parcels");
    let run = world.run(&step(&world, &["--gone-within", "3", "--exclude", &parcels])).await;
    run.exits(4)
        .says("held by finalizer subscription.finalizers.kyma-project.io")
        .says(&format!("Deployment/{SYSTEM}/{SUBSCRIPTION_CONTROLLER}, which serves it, is available"))
        .changes_nothing();
    world.standins.change(|behaviour| behaviour.hold_finalizer.clear());
}

/// It feeds nothing, neither path: that is another trouble than an event-service of the old version.
#[tokio::test]
async fn bug_5_6_an_event_service_that_does_not_work_is_waited_for_a_moment() {
    let world = upgraded().await;
    world.break_source("commerce").await;
    let waits = "waiting for the event-service of its source commerce to work";
    let (fault, deadline) = Deadline::told();
    let run = world.start(&step(&world, &[]), vec![fault]).await;
    run.until_it_says(waits).await;
    deadline.is_now();
    let run = run.wait().await.unwrap();
    run.exits(4)
        .says("for the event-service of its source commerce to work: HTTPSource/kyma-integration/commerce Ready is")
        .never_says("feeds the old path");
    assert!(run.moves().is_empty(), "{:?}", run.moves());
    assert_eq!(subscriptions(&world).await, ["orders", "parcels"]);
    let run = world.start(&step(&world, &[]), vec![]).await;
    run.until_it_says(waits).await;
    world.standins.change(|behaviour| behaviour.never_ready.clear());
    world.renew_adapter("commerce").await;
    run.wait().await.unwrap().exits(0).says("2 deleted");
}

#[tokio::test]
async fn bug_2_3_without_a_trigger_that_is_ready_they_stay() {
    let world = upgraded().await;
    world.api.delete(&resource(&TRIGGER), Some(ONE), "orders").await.unwrap();
    // It looks the same to whoever does not look at the broker.
    let mut other = fixtures::trigger("look-alike", ONE, "commerce", "orders.created", &endpoint("orders"));
    other["spec"]["broker"] = "other".into();
    world.create(&other).await;
    world.standins.change(|behaviour| behaviour.never_ready.push(format!("Trigger:{ONE}/parcels")));
    world.change(&TRIGGER, ONE, "parcels", &json!({"metadata": {"labels": {"look": "again"}}})).await;
    cluster::wait_until("the Trigger is not Ready", SOON, async || {
        let trigger = world.at(&TRIGGER, ONE, "parcels").await.unwrap();
        let conditions = trigger["status"]["conditions"].as_array().unwrap().clone();
        Ok(conditions.iter().any(|one| one["type"] == "Ready" && one["status"] != "True"))
    })
    .await
    .unwrap();
    let run = world.run(&step(&world, &[])).await;
    run.exits(3)
        .says(&format!("Subscription/{ONE}/orders: it has no Trigger, so it must stay"))
        .says(&format!("Subscription/{ONE}/parcels: its Trigger parcels is not Ready"))
        .says("belay recreate-triggers")
        .changes_nothing();
}

#[tokio::test]
async fn event_loss_can_be_accepted_before_the_upgrade() {
    let world = World::scene(&migrated(), quick()).await;
    let run = world.run(&step(&world, &["--accept-event-loss"])).await;
    run.exits(0).says("events of its source may be lost, as --accept-event-loss allows").says("2 deleted");
    assert!(subscriptions(&world).await.is_empty());
}

#[tokio::test]
async fn bug_2_3_one_that_is_not_gone_in_time_fails_the_step_and_says_what_holds_it() {
    let world = upgraded().await;
    world.standins.change(|behaviour| behaviour.hold_finalizer.push(format!("{ONE}/parcels")));
    let run =
        world.run(&step(&world, &["--gone-within", "4", "--deadline", "10", "--undo-reserve", "5"])).await;
    // What is going cannot be rescued, only waited for: a person must look.
    run.exits(5)
        .says(&format!("Subscription/{ONE}/parcels"))
        .says("held by finalizer subscription.finalizers.kyma-project.io")
        .says(&format!("Deployment/{SYSTEM}/{SUBSCRIPTION_CONTROLLER}"));
    assert_eq!(subscriptions(&world).await, ["orders", "parcels"], "the other one is back");
    // When it is let go, the undo can be finished.
    world.standins.change(|behaviour| behaviour.hold_finalizer.clear());
    world
        .change(&LEGACY_SUBSCRIPTION, ONE, "parcels", &json!({"metadata": {"labels": {"look": "again"}}}))
        .await;
    world.run(&world.operate("restore", &["--step", "retire-subscriptions"])).await.exits(0);
    assert_eq!(subscriptions(&world).await, ["orders", "parcels"]);
}

#[tokio::test]
async fn bug_2_3_without_the_controller_that_serves_their_finalizers_they_stay() {
    let world = upgraded().await;
    world.scale_bus(0).await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(3)
        .says(&format!("Deployment/{SYSTEM}/{SUBSCRIPTION_CONTROLLER}: is not available"))
        .changes_nothing();
}

#[tokio::test]
async fn one_that_appears_meanwhile_without_a_trigger_is_a_finding_with_the_command() {
    let world = upgraded().await;
    world.standins.change(|behaviour| behaviour.hold_finalizer.push(format!("{ONE}/orders")));
    let run = world.start(&step(&world, &[]), vec![]).await;
    run.proxy.when(deletes_orders, SOON).await.unwrap();
    world.create(&fixtures::legacy_subscription("late", ONE, "commerce", "late", &endpoint("late"))).await;
    world.standins.change(|behaviour| behaviour.hold_finalizer.clear());
    let run = run.wait().await.unwrap();
    run.exits(0).says("2 deleted").says(&format!(
        "Subscription/{ONE}/late: it has no Trigger, so it must stay. Run recreate-triggers first"
    ));
    assert_eq!(subscriptions(&world).await, ["late"]);
}

#[tokio::test]
async fn a_source_without_an_application_holds_nothing_back() {
    let world = upgraded().await;
    for application in APPLICATIONS {
        world
            .api
            .merge(
                &resource(&APPLICATION),
                None,
                application,
                None,
                &json!({"metadata": {"finalizers": null}}),
            )
            .await
            .unwrap();
        world.api.delete(&resource(&APPLICATION), None, application).await.unwrap();
        let name = format!("{application}-event-service");
        world.api.delete(&resource(&DEPLOYMENT), Some(INTEGRATION), &name).await.unwrap();
    }
    world.api.delete(&resource(&STATEFUL_SET), Some(INTEGRATION), "application-operator").await.unwrap();
    let run = world.run(&step(&world, &[])).await;
    run.exits(0)
        .says("nothing feeds its source commerce: there is no Application. Whoever posts to the publish")
        .says("2 deleted");
}

#[tokio::test]
async fn bug_2_3_one_without_an_endpoint_goes_only_by_the_flag() {
    let world = upgraded().await;
    let mut without = fixtures::legacy_subscription("silent", ONE, "commerce", "silent", "");
    without["spec"].as_object_mut().unwrap().remove("endpoint");
    world.create(&without).await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(3).says(&format!("Subscription/{ONE}/silent: has no endpoint")).changes_nothing();
    world.run(&step(&world, &["--drop-undeliverable"])).await.exits(0).says("3 deleted");
}

/// A restored Subscription must have its owner again, with the uid that it has then.
#[tokio::test]
async fn an_owner_that_may_not_be_read_is_refused_before_anything_is_deleted() {
    let world = upgraded().await;
    let reference = world.owner(ONE).await;
    let patch = json!({"metadata": {"ownerReferences": [reference]}});
    world.change(&LEGACY_SUBSCRIPTION, ONE, "orders", &patch).await;
    let rules = world.run(&step(&world, &["--print-rbac"])).await.json();
    let account = Account::new(&world.api, world.home, "owners", rules).await.unwrap();
    let upstream = account.upstream(&world.kubeconfig).await.unwrap();
    let run = step(&world, &[]).run(&upstream, vec![]).await.unwrap();
    account.revoke().await.unwrap();
    run.exits(3).says("ConfigMap/owner").changes_nothing();
}

#[tokio::test]
async fn nothing_of_the_old_bus_is_nothing_to_migrate() {
    let scene = standins::landscape::Scene::new(&[]);
    let world = World::scene(&scene, quick()).await;
    for step in ["recreate-triggers", "retire-subscriptions", "verify-event-services"] {
        world.run(&world.mesh_step(step, &[])).await.exits(0).says("nothing to do").changes_nothing();
    }
    world.remove_crd("subscriptions.eventing.kyma-project.io").await;
    for step in ["recreate-triggers", "retire-subscriptions"] {
        world.run(&world.mesh_step(step, &[])).await.exits(0).says("nothing to migrate").changes_nothing();
    }
}

/// On a fresh cluster the CRDs may come before the namespaces, or neither may be there, and the release be elsewhere. No
/// Role can be in a namespace that is not there.
#[tokio::test]
async fn without_the_namespaces_of_the_system_there_is_nothing_to_do() {
    let world = World::scene(&standins::landscape::Scene::new(&[]), quick()).await;
    let integration = [
        "--integration-namespace",
        "e2e-not-yet",
        "--application-operator",
        "StatefulSet/e2e-nor-this/application-operator",
    ];
    let controller = ["--subscription-controller", "e2e-not-yet-either/controller"];
    let steps = [
        step(&world, &[&integration[..], &controller[..]].concat()),
        world.mesh_step("verify-event-services", &integration),
    ];
    for (crds, says) in [(true, "nothing to do"), (false, "nothing to migrate")] {
        if !crds {
            world.remove_crd("subscriptions.eventing.kyma-project.io").await;
            world.remove_crd("applications.applicationconnector.kyma-project.io").await;
        }
        for step in &steps {
            let mut rules = world.run(&step.clone().args(["--print-rbac"])).await.json();
            rules["namespaced"].as_object_mut().unwrap().retain(|name, _| name == world.home);
            let account = Account::new(&world.api, world.home, "fresh", rules).await.unwrap();
            let upstream = account.upstream(&world.kubeconfig).await.unwrap();
            let run = step.run(&upstream, vec![]).await.unwrap();
            account.revoke().await.unwrap();
            run.exits(0).says(says).changes_nothing();
        }
    }
}
