//! What `recreate-triggers` makes of Subscriptions, and what it does not.

use e2e::{
    Told, World,
    rights::Account,
    scene::{ONE, PROMPT, SUBSCRIPTION_CONTROLLER, SYSTEM, TWO},
    world::{SOON, resource},
};
use harness::{Outcome, StepCommand};
use serde_json::{Value, json};
use standins::{
    Behaviour, Controller, cluster, fixtures,
    kinds::{BROKER, LEGACY_SUBSCRIPTION, TRIGGER},
    landscape::{Mesh, Scene, State},
};

fn small() -> Scene {
    Scene::small(ONE, TWO)
}

fn quick() -> Behaviour {
    Behaviour { finalizer_delay: PROMPT, ..Behaviour::default() }
}

fn step(world: &World, flags: &[&str]) -> StepCommand {
    world.mesh_step("recreate-triggers", flags)
}

/// The names of created Triggers, in order.
fn created(run: &Outcome) -> Vec<String> {
    let mut names: Vec<String> =
        run.moves().iter().filter_map(|made| Some(made.strip_prefix("create ")?.to_owned())).collect();
    names.sort();
    names
}

/// One namespace on the mesh with one Subscription: `orders` of `commerce`.
async fn one_subscription(state: State) -> World {
    let scene = Scene::new(&["commerce"])
        .instance(ONE, "commerce")
        .on_mesh(ONE, Mesh::BrokerOnly)
        .subscription(ONE, "orders", "commerce", state);
    World::scene(&scene, quick()).await
}

async fn uid(world: &World, namespace: &str, name: &str) -> Value {
    world.at(&TRIGGER, namespace, name).await.unwrap()["metadata"]["uid"].clone()
}

#[tokio::test]
async fn bug_5_3_every_subscription_gets_a_trigger_and_a_second_run_writes_nothing() {
    let world = World::scene(&small(), quick()).await;
    let reference = world.owner(ONE).await;
    let marks = json!({"metadata": {
        "labels": {"Function": "pay", "argocd.argoproj.io/instance": "shop"},
        "annotations": {"team": "a"}, "ownerReferences": [reference],
    }});
    world.change(&LEGACY_SUBSCRIPTION, ONE, "orders", &marks).await;
    let (before, migrated) = (world.state().await, uid(&world, TWO, "invoices").await);
    assert_eq!(world.injection(ONE).await, Value::Null);

    let run = world.run_with_its_rights(&step(&world, &[])).await;
    run.exits(0).says("3 created").says("1 Subscriptions have a Trigger that is Ready");
    assert_eq!(created(&run), ["orders", "orders", "parcels"]);
    let trigger = world.at(&TRIGGER, ONE, "orders").await.unwrap();
    assert_eq!(trigger["spec"]["broker"], "default");
    assert_eq!(
        trigger["spec"]["filter"]["attributes"],
        json!({"source": "commerce", "type": "orders.created", "eventtypeversion": "v1"})
    );
    assert_eq!(trigger["spec"]["subscriber"], json!({"uri": format!("http://orders.{ONE}:8080/")}));
    assert_eq!(trigger["metadata"]["labels"]["Function"], "pay");
    assert_eq!(trigger["metadata"]["annotations"]["team"], "a");
    assert_eq!(trigger["metadata"]["ownerReferences"], json!([reference]));
    assert_eq!(world.injection(ONE).await, "enabled");
    assert_eq!(uid(&world, TWO, "invoices").await, migrated);
    assert_eq!(
        trigger["metadata"]["labels"]["argocd.argoproj.io/instance"],
        Value::Null,
        "or it would be pruned"
    );
    run.says("its Trigger comes without argocd.argoproj.io/instance, or Argo CD would prune it");

    world.run(&step(&world, &[])).await.exits(0).says("nothing to do").changes_nothing();

    world.run(&world.operate("restore", &["--step", "recreate-triggers"])).await.exits(0);
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
    assert_eq!(world.injection(ONE).await, Value::Null);
}

#[tokio::test]
async fn bug_1_5_the_later_schema_is_never_touched() {
    let world = World::scene(&small(), quick()).await;
    world.later_subscription(ONE, "newer").await;
    world.run(&step(&world, &[])).await.exits(0).says("3 created").never_says("newer");
    assert!(world.at(&TRIGGER, ONE, "newer").await.is_none(), "spec.sink is not the old bus's");
}

/// A cluster of the years after: the API is there again, and the mesh is not.
#[tokio::test]
async fn bug_1_5_the_later_schema_alone_needs_no_mesh() {
    let world = World::scene(&Scene::new(&[]), quick()).await;
    world.api.ensure_namespace(ONE).await.unwrap();
    world.later_subscription(ONE, "newer").await;
    for crd in ["triggers.eventing.knative.dev", "brokers.eventing.knative.dev"] {
        world.remove_crd(crd).await;
    }
    for step in ["recreate-triggers", "retire-subscriptions"] {
        let run = world.run(&world.mesh_step(step, &["--deadline", "30"])).await;
        run.exits(0).says("nothing to migrate").changes_nothing();
    }
}

#[tokio::test]
async fn half_an_event_bus_is_not_nothing_to_migrate() {
    let world = World::scene(&Scene::new(&["commerce"]).with_workloads(), quick()).await;
    world.remove_crd("subscriptions.eventing.kyma-project.io").await;
    let run = world.run_with_its_rights(&step(&world, &[])).await;
    run.exits(3)
        .says(&format!("Deployment/{SYSTEM}/{SUBSCRIPTION_CONTROLLER}: is still there"))
        .changes_nothing();
    let other = ["--subscription-controller", "kyma-system/no-such-controller"];
    world.run(&step(&world, &other)).await.exits(0).says("nothing to migrate");
}

/// On a fresh cluster neither the CRDs nor the system's namespace may be there, and no Role can be in a namespace that is
/// not.
#[tokio::test]
async fn without_the_namespace_of_the_old_bus_there_is_nothing_to_do() {
    let world = World::scene(&Scene::new(&[]), quick()).await;
    let step = step(&world, &["--subscription-controller", "e2e-not-yet/controller"]);
    let mut rules = world.run(&step.clone().args(["--print-rbac"])).await.json();
    rules["namespaced"].as_object_mut().unwrap().retain(|name, _| name == world.home);
    let account = Account::new(&world.api, world.home, "fresh", rules).await.unwrap();
    let upstream = account.upstream(&world.kubeconfig).await.unwrap();
    step.run(&upstream, vec![]).await.unwrap().exits(0).changes_nothing();
    world.remove_crd("subscriptions.eventing.kyma-project.io").await;
    let run = step.run(&upstream, vec![]).await.unwrap();
    account.revoke().await.unwrap();
    run.exits(0).says("nothing to migrate").changes_nothing();
}

#[tokio::test]
async fn what_is_left_out_has_no_namespace_labelled_and_no_broker_waited_for() {
    let world = World::scene(&small(), quick()).await;
    let (orders, parcels) = (format!("Subscription/{ONE}/orders"), format!("Subscription/{ONE}/parcels"));
    let run = world.run(&step(&world, &["--exclude", &orders, "--exclude", &parcels])).await;
    run.exits(0).says(&format!("{orders}: left out by --exclude")).never_says(&format!("Broker/{ONE}"));
    assert_eq!(created(&run), ["orders"]);
    assert!(world.names_at(&TRIGGER, ONE).await.is_empty());
    assert_eq!(world.injection(ONE).await, Value::Null);
}

#[tokio::test]
async fn namespaces_are_left_out_by_either_flag() {
    let world = World::scene(&small(), quick()).await;
    for flags in [["--exclude-namespace", ONE], ["--only-namespace", TWO]] {
        let run = world.run(&step(&world, &flags)).await;
        run.exits(0).says(&format!("Namespace/{ONE}: is in a namespace that was left out"));
        assert!(world.names_at(&TRIGGER, ONE).await.is_empty());
        assert_eq!(world.injection(ONE).await, Value::Null);
    }
    assert_eq!(world.names_at(&TRIGGER, TWO).await.len(), 2);
}

#[tokio::test]
async fn bug_2_3_a_nil_filter_is_no_panic() {
    let world = one_subscription(State::Legacy).await;
    // Else the filter would be there a moment later.
    world.standins.change(|behaviour| behaviour.stopped.push(Controller::Trigger));
    let mut nil = fixtures::trigger("nil", ONE, "commerce", "orders.created", "http://else.example/");
    nil["spec"].as_object_mut().unwrap().remove("filter");
    world.create(&nil).await;
    let run = world.run(&step(&world, &["--ready-within", "3"])).await;
    run.exits(4).says(&format!("Trigger/{ONE}/orders")).never_says("panicked");
    assert!(world.at(&TRIGGER, ONE, "nil").await.unwrap()["spec"].get("filter").is_none());
}

#[tokio::test]
async fn a_header_that_no_trigger_adds_is_told() {
    let world = one_subscription(State::Migrated).await;
    let patch = json!({"spec": {"include_subscription_name_header": true}});
    world.change(&LEGACY_SUBSCRIPTION, ONE, "orders", &patch).await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(0)
        .says(&format!("Subscription/{ONE}/orders: has include_subscription_name_header: a Trigger adds no"))
        .changes_nothing();
}

#[tokio::test]
async fn an_endpoint_that_knative_refuses_is_refused_before_any_write() {
    let world = one_subscription(State::Legacy).await;
    let nowhere = fixtures::legacy_subscription("nowhere", ONE, "commerce", "nowhere", "http:///x");
    world.create(&nowhere).await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(3)
        .says(&format!(
            "Subscription/{ONE}/nowhere: has an endpoint without a host, so no Trigger can be made for it"
        ))
        .changes_nothing();
    let run = world.run(&step(&world, &["--drop-undeliverable"])).await;
    assert_eq!(created(run.exits(0)), ["orders"]);
}

#[tokio::test]
async fn bug_2_3_triggers_that_only_look_the_same_are_no_match() {
    let world = one_subscription(State::Legacy).await;
    let like = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut trigger =
            fixtures::trigger(name, ONE, "commerce", "orders.created", &format!("http://orders.{ONE}:8080/"));
        change(&mut trigger["spec"]);
        trigger
    };
    let reference = json!({"ref": {"apiVersion": "v1", "kind": "Service", "name": "orders"}});
    for trigger in [
        like("other-broker", &|spec| spec["broker"] = "other".into()),
        like("extra-attribute", &|spec| spec["filter"]["attributes"]["subject"] = "x".into()),
        like("fewer-attributes", &|spec| {
            spec["filter"]["attributes"].as_object_mut().unwrap().remove("eventtypeversion");
        }),
        like("nil-filter", &|spec| drop(spec.as_object_mut().unwrap().remove("filter"))),
        like("ref-subscriber", &|spec| spec["subscriber"] = reference.clone()),
        like("other-address", &|spec| spec["subscriber"]["uri"] = "http://else.example/".into()),
    ] {
        world.create(&trigger).await;
    }
    let run = world.run(&step(&world, &[])).await;
    assert_eq!(created(run.exits(0)), ["orders"]);
}

#[tokio::test]
async fn bug_2_3_a_missing_endpoint_is_refused_before_any_write() {
    let world = World::scene(&small(), quick()).await;
    let mut without = fixtures::legacy_subscription("silent", ONE, "commerce", "silent", "");
    without["spec"].as_object_mut().unwrap().remove("endpoint");
    world.create(&without).await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(3)
        .says(&format!("Subscription/{ONE}/silent: has no endpoint"))
        .says("--drop-undeliverable")
        .changes_nothing();
    let run = world.run(&step(&world, &["--drop-undeliverable"])).await;
    run.exits(0).says("it gets no Trigger").says("3 created");
    assert!(world.at(&LEGACY_SUBSCRIPTION, ONE, "silent").await.is_some());
}

#[tokio::test]
async fn bug_2_3_two_identical_subscriptions_give_two_triggers() {
    let world = one_subscription(State::Migrated).await;
    let twin = fixtures::legacy_subscription(
        "twin",
        ONE,
        "commerce",
        "orders.created",
        &format!("http://orders.{ONE}:8080/"),
    );
    world.create(&twin).await;
    assert_eq!(created(world.run(&step(&world, &[])).await.exits(0)), ["twin"]);
    world.run(&step(&world, &[])).await.exits(0).changes_nothing();
    assert_eq!(world.names_at(&TRIGGER, ONE).await, ["orders", "twin"]);
}

#[tokio::test]
async fn a_foreign_trigger_of_the_same_name_is_left_alone() {
    let world = one_subscription(State::Legacy).await;
    let foreign = fixtures::trigger("orders", ONE, "commerce", "something.else", "http://else.example/");
    let foreign = world.create(&foreign).await;
    let made = created(world.run(&step(&world, &[])).await.exits(0).says("its Trigger is called orders-"));
    assert!(made.len() == 1 && made[0].starts_with("orders-"), "{made:?}");
    assert_eq!(world.at(&TRIGGER, ONE, "orders").await.unwrap()["spec"], foreign["spec"]);
    world.run(&step(&world, &[])).await.exits(0).changes_nothing();
}

#[tokio::test]
async fn bug_5_1_a_trigger_that_stays_not_subscribed_is_named_and_taken_back() {
    let world = World::scene(&small(), quick()).await;
    world.standins.change(|behaviour| behaviour.never_ready.push(format!("Trigger:{ONE}/parcels")));
    let before = world.state().await;
    let run = world.run_with_its_rights(&step(&world, &["--ready-within", "12"])).await;
    run.exits(4)
        .says(&format!("for Trigger/{ONE}/parcels Ready: Ready is False: NotSubscribed"))
        .says("Everything is as it was before");
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
    assert_eq!(world.injection(ONE).await, Value::Null);
}

#[tokio::test]
async fn a_broker_that_does_not_become_ready_leaves_no_trigger() {
    let world = World::scene(&small(), quick()).await;
    world.standins.change(|behaviour| behaviour.never_ready.push(format!("Broker:{ONE}/default")));
    let run = world.run(&step(&world, &["--ready-within", "12"])).await;
    run.exits(4).says(&format!("Broker/{ONE}/default"));
    assert!(world.names_at(&TRIGGER, ONE).await.is_empty());
    // What the other namespaces got meanwhile is taken back.
    assert_eq!(world.names_at(&TRIGGER, TWO).await, ["invoices"]);
    assert_eq!(world.injection(ONE).await, Value::Null);
}

#[tokio::test]
async fn with_chains_a_namespace_whose_broker_fails_gets_no_trigger_and_the_others_do() {
    let world = World::scene(&small(), quick()).await;
    world.standins.change(|behaviour| behaviour.never_ready.push(format!("Broker:{ONE}/default")));
    let run = world.run(&step(&world, &["--ready-within", "12", "--on-failure", "chain"])).await;
    run.exits(4).says(&format!("Broker/{ONE}/default"));
    assert_eq!(created(&run), ["orders"]);
    assert!(world.names_at(&TRIGGER, ONE).await.is_empty());
    assert_eq!(world.names_at(&TRIGGER, TWO).await.len(), 2);
}

/// A second one beside it would deliver every event twice as soon as the first works.
#[tokio::test]
async fn a_matching_trigger_that_is_not_ready_yet_is_waited_for_and_not_doubled() {
    let world = one_subscription(State::Migrated).await;
    world.standins.change(|behaviour| behaviour.never_ready.push("Broker:default".into()));
    world.api.delete(&resource(&BROKER), Some(ONE), "default").await.unwrap();
    cluster::wait_until("the Trigger is not Ready", SOON, async || {
        let trigger = world.at(&TRIGGER, ONE, "orders").await.unwrap();
        let conditions = trigger["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(conditions.iter().any(|one| one["type"] == "Ready" && one["status"] != "True"))
    })
    .await
    .unwrap();
    let run = world.run(&step(&world, &["--ready-within", "2"])).await;
    run.exits(4)
        .says(&format!("Trigger/{ONE}/orders delivers the same and is not Ready yet"))
        .changes_nothing();
    world.standins.change(|behaviour| behaviour.never_ready.clear());
    world.change(&BROKER, ONE, "default", &json!({"metadata": {"labels": {"look": "again"}}})).await;
    world.run(&step(&world, &[])).await.exits(0).changes_nothing();
    assert_eq!(world.names_at(&TRIGGER, ONE).await, ["orders"]);
}

#[tokio::test]
async fn bug_2_3_terminating_subscriptions_are_skipped() {
    let world = one_subscription(State::Legacy).await;
    world.standins.change(|behaviour| behaviour.hold_finalizer.push("orders".into()));
    let subscriptions = resource(&LEGACY_SUBSCRIPTION);
    world.api.delete(&subscriptions, Some(ONE), "orders").await.unwrap();
    let run = world.run(&step(&world, &[])).await;
    run.exits(0).says(&format!("Subscription/{ONE}/orders: is being deleted")).changes_nothing();
}

#[tokio::test]
async fn bug_2_3_a_missing_crd_is_told_from_nothing_to_do() {
    let world = one_subscription(State::Legacy).await;
    for crd in ["triggers.eventing.knative.dev", "brokers.eventing.knative.dev"] {
        world.remove_crd(crd).await;
        let run = world.run(&step(&world, &["--deadline", "6"])).await;
        run.exits(3).says(&format!("the API {crd} is not served")).changes_nothing();
        world.restore_crd(crd).await;
    }
    world.remove_crd("subscriptions.eventing.kyma-project.io").await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(0).says("nothing to migrate").changes_nothing();
}
