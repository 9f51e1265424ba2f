//! What `recreate-service-instances` does to an instance, and what it does not.

use std::time::Duration;

use e2e::{
    Told, World,
    scene::{INTEGRATION, ONE, SYSTEM, TWO},
    told::{Telling as _, is_move},
    world::{SOON, resource},
};
use harness::{At, Call, Fault, Outcome, Scope, StepCommand, run::Running};
use serde_json::{Value, json};
use standins::{
    Behaviour, BrokerRelease, Controller, cluster, fixtures,
    kinds::{
        APPLICATION, APPLICATION_MAPPING, BROKER, CHANNEL, CRD, EVENT_ACTIVATION, KNATIVE_SUBSCRIPTION,
        LEGACY_SUBSCRIPTION, SERVICE_CLASS, SERVICE_INSTANCE,
    },
    landscape::{Instance, Mesh, Scene, State},
};

const STEP: &str = "recreate-service-instances";

/// The link of the Application to the first namespace, where links have steady names.
const LINK: &str = "brokersub-e2e-one-commerce";

/// What differs from a stand-in's manners is said in the test.
fn quick() -> Behaviour {
    Behaviour { steady_names: true, finalizer_delay: Duration::from_millis(100), ..Behaviour::default() }
}

/// The step, with times that fit a test.
fn step(world: &World, flags: &[&str]) -> StepCommand {
    let command = world.mesh_step(STEP, flags);
    ["BELAY_GONE_WITHIN", "BELAY_PROVISIONED_WITHIN", "BELAY_LINKED_WITHIN"]
        .into_iter()
        .fold(command, |command, time| command.env(time, "10"))
}

async fn set(scene: Scene, behaviour: Behaviour) -> World {
    World::scene(&scene.with_workloads(), behaviour).await
}

fn commerce() -> String {
    fixtures::service_id("commerce")
}

/// One instance in one namespace, with a legacy Subscription that delivers.
fn one_instance() -> Scene {
    Scene::new(&["commerce"]).instance(ONE, "commerce").subscription(ONE, "orders", "commerce", State::Legacy)
}

fn uid(object: Option<Value>) -> String {
    object.expect("it is there")["metadata"]["uid"].as_str().unwrap().to_owned()
}

async fn instance_uid(world: &World, namespace: &str, name: &str) -> String {
    uid(world.at(&SERVICE_INSTANCE, namespace, name).await)
}

async fn activation_uid(world: &World, namespace: &str) -> String {
    uid(world.at(&EVENT_ACTIVATION, namespace, &commerce()).await)
}

/// Namespace and Application of every link that is Ready.
async fn links(world: &World) -> Vec<String> {
    let found = world.api.list(&resource(&KNATIVE_SUBSCRIPTION), Some(INTEGRATION), None).await.unwrap();
    let pair = |link: &Value| {
        let label = |key: &str| link["metadata"]["labels"][key].as_str().unwrap().to_owned();
        format!("{}/{}", label("broker-namespace"), label("application-name"))
    };
    let is_ready = |link: &&Value| has_condition(link, "Ready");
    let mut links: Vec<String> = found.iter().filter(is_ready).map(pair).collect();
    links.sort();
    links
}

/// Whether a condition of this type is True.
fn has_condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == kind && one["status"] == "True"))
}

/// Creates another instance, and waits until it has a condition of this type.
async fn make_instance(world: &World, manifest: &Value, condition: &str) {
    world.create(manifest).await;
    let name = manifest["metadata"]["name"].as_str().unwrap();
    let namespace = manifest["metadata"]["namespace"].as_str().unwrap();
    cluster::wait_until(&format!("{name} is {condition}"), SOON, async || {
        let live = world.at(&SERVICE_INSTANCE, namespace, name).await;
        Ok(live.is_some_and(|live| has_condition(&live, condition)))
    })
    .await
    .unwrap();
}

async fn bind(world: &World, namespace: &str, instance: &str) {
    world.create(&fixtures::service_binding(&format!("{instance}-key"), namespace, instance)).await;
}

/// Kills the run at its first move: all pre-images are stored by then, and nothing is touched.
fn killed_before_the_first_move() -> Fault {
    Fault::KillBefore(At::first(e2e::told::is_move))
}

/// Kills the run when this instance has been deleted and before it is created again.
fn killed_before_create(name: &'static str) -> Fault {
    Fault::KillBefore(At::first(crate::creates(name)))
}

#[tokio::test]
async fn bug_5_3_a_namespace_from_before_the_mesh_is_linked_once_and_its_legacy_delivery_never_stops() {
    let world = set(Scene::small(ONE, TWO), quick()).await;
    let (before, activation) =
        (instance_uid(&world, ONE, "commerce").await, activation_uid(&world, ONE).await);
    let external = world.at(&SERVICE_INSTANCE, ONE, "commerce").await.unwrap()["spec"]["externalID"].clone();
    world
        .change(
            &SERVICE_INSTANCE,
            ONE,
            "commerce",
            &json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}),
        )
        .await;
    let run = world.run_with_its_rights(&step(&world, &[])).await;
    run.exits(0).says("3 recreated").never_says("was off");
    assert_eq!(links(&world).await, ["e2e-one/commerce", "e2e-one/logistics", "e2e-two/commerce"]);
    let live = world.at(&SERVICE_INSTANCE, ONE, "commerce").await.unwrap();
    assert_ne!(uid(Some(live.clone())), before);
    assert_eq!(live["spec"]["externalID"], external);
    assert_eq!(
        (&live["metadata"]["labels"]["team"], &live["metadata"]["annotations"]["note"]),
        (&json!("a"), &json!("b"))
    );
    // The same EventActivation, which the broker has given its new owner.
    let now = world.at(&EVENT_ACTIVATION, ONE, &commerce()).await.unwrap();
    assert_eq!(uid(Some(now.clone())), activation);
    assert_eq!(now["metadata"]["ownerReferences"][0]["uid"], live["metadata"]["uid"]);
    // And again: nothing to do.
    world
        .run(&step(&world, &[]))
        .await
        .exits(0)
        .says("3 pairs of a namespace and an Application are linked already")
        .changes_nothing();
}

#[tokio::test]
async fn bug_2_3_a_namespace_that_is_on_the_mesh_is_left_alone() {
    let scene = Scene::new(&["commerce"])
        .instance(ONE, "commerce")
        .instance(TWO, "commerce")
        .on_mesh(ONE, Mesh::LinksOnly)
        .on_mesh(TWO, Mesh::Complete);
    let world = set(scene, quick()).await;
    let untouched = instance_uid(&world, TWO, "commerce").await;
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
    assert_eq!(instance_uid(&world, TWO, "commerce").await, untouched);
    assert_eq!(links(&world).await, ["e2e-one/commerce", "e2e-two/commerce"]);
    let broker = world.at(&BROKER, ONE, "default").await.unwrap();
    assert_eq!(broker["metadata"]["labels"]["eventing.knative.dev/namespaceInjected"], "true");
}

#[tokio::test]
async fn bug_5_9_where_the_newer_broker_deletes_the_event_activation_the_report_says_for_how_long() {
    let behaviour = Behaviour { broker_release: BrokerRelease::V1_11, ..quick() };
    let world = set(one_instance(), behaviour).await;
    let before = activation_uid(&world, ONE).await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(0).says("legacy delivery from commerce to namespace e2e-one was off for at most");
    assert_ne!(activation_uid(&world, ONE).await, before);
    let report = world.run(&world.operate("report", &[STEP])).await;
    report.exits(0).says("was off for at most");
    let subscription = world.at(&LEGACY_SUBSCRIPTION, ONE, "orders").await.unwrap();
    let conditions = subscription["status"]["conditions"].as_array().unwrap();
    assert!(conditions.iter().any(|one| one["type"] == "is-ready" && one["status"] == "True"));
}

#[tokio::test]
async fn bug_2_3_killed_between_delete_and_create_the_instance_comes_back_in_the_next_run() {
    let world = set(one_instance(), quick()).await;
    let before = world.at(&SERVICE_INSTANCE, ONE, "commerce").await.unwrap();
    let killed = world.run_with(&step(&world, &[]), vec![killed_before_create("commerce")]).await;
    assert_eq!(killed.exit, harness::Exit::Signal(9), "{}", killed.tail(20));
    assert!(world.at(&SERVICE_INSTANCE, ONE, "commerce").await.is_none());
    world.run(&step(&world, &[])).await.exits(0).says("resuming");
    let after = world.at(&SERVICE_INSTANCE, ONE, "commerce").await.unwrap();
    assert_eq!(after["spec"]["externalID"], before["spec"]["externalID"]);
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
    world.run(&step(&world, &[])).await.exits(0).changes_nothing();
}

#[tokio::test]
async fn bug_5_5_a_resumed_run_asks_again_of_what_the_one_before_did_not_touch() {
    let world = set(one_instance(), quick()).await;
    let before = instance_uid(&world, ONE, "commerce").await;
    let killed = world.run_with(&step(&world, &[]), vec![killed_before_the_first_move()]).await;
    assert_eq!(killed.exit, harness::Exit::Signal(9), "{}", killed.tail(20));
    // Days later.
    world.standins.change(|now| now.stopped = vec![Controller::HttpSource]);
    world.api.delete(&resource(&CHANNEL), Some(INTEGRATION), "commerce").await.unwrap();
    let run = world.run(&step(&world, &[])).await;
    world.standins.change(|now| now.stopped.clear());
    run.exits(4).says("Channel/kyma-integration/commerce is not Ready");
    assert!(!run.moves().iter().any(|made| made.starts_with("delete")), "{:?}", run.moves());
    assert_eq!(instance_uid(&world, ONE, "commerce").await, before);
    assert_eq!(world.journal_status(STEP).await, "undone");
    world.until(&CHANNEL, "commerce", "is back", |live| has_condition(live, "Ready")).await;
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
}

#[tokio::test]
async fn bug_2_3_an_instance_that_got_its_binding_before_the_run_was_resumed_is_not_deleted() {
    let world = set(one_instance(), quick()).await;
    let before = instance_uid(&world, ONE, "commerce").await;
    let killed = world.run_with(&step(&world, &[]), vec![killed_before_the_first_move()]).await;
    assert_eq!(killed.exit, harness::Exit::Signal(9), "{}", killed.tail(20));
    bind(&world, ONE, "commerce").await;
    world.run(&step(&world, &[])).await.exits(4).says("has a ServiceBinding since an earlier attempt");
    world.run(&step(&world, &[])).await.exits(0).says("it is linked instead of recreated");
    assert_eq!(instance_uid(&world, ONE, "commerce").await, before);
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
}

#[tokio::test]
async fn an_instance_with_owners_and_parameters_is_recreated_with_them() {
    let world = set(Scene::new(&["commerce"]).instance(ONE, "commerce"), quick()).await;
    let owner = world.owner(ONE).await;
    // Their broker takes none but empty ones.
    let (none, from) = (json!({}), json!([{"secretKeyRef": {"name": "parameters", "key": "none"}}]));
    let theirs = json!({
        "metadata": {"ownerReferences": [owner]}, "spec": {"parameters": none, "parametersFrom": from},
    });
    world.change(&SERVICE_INSTANCE, ONE, "commerce", &theirs).await;
    let before = instance_uid(&world, ONE, "commerce").await;
    let run = world.run_with_its_rights(&step(&world, &["--owner-kind", "configmaps"])).await;
    run.exits(0).says("1 recreated");
    let live = world.at(&SERVICE_INSTANCE, ONE, "commerce").await.unwrap();
    assert_ne!(uid(Some(live.clone())), before);
    assert_eq!(live["metadata"]["ownerReferences"], json!([owner]));
    assert_eq!((&live["spec"]["parameters"], &live["spec"]["parametersFrom"]), (&none, &from));
}

#[tokio::test]
async fn bug_2_5_a_create_that_is_refused_for_ever_is_shown_and_the_instance_is_not_lost() {
    for status in [403, 422] {
        a_create_that_is_refused(status).await;
    }
}

async fn a_create_that_is_refused(status: u16) {
    let world = set(one_instance(), quick()).await;
    let before = activation_uid(&world, ONE).await;
    // Refused from the moment at which it is needed, and until a person has looked.
    let fault = Fault::FailForGood {
        at: At::first(crate::creates("commerce")),
        status,
        scope: Scope::Target,
        until: None,
    };
    let run = world.run_with(&step(&world, &[]), vec![fault]).await;
    run.exits(5)
        .says(&format!("the API server refused the POST: {status}"))
        .says("belay restore --step recreate-service-instances");
    assert!(world.at(&SERVICE_INSTANCE, ONE, "commerce").await.is_none());
    // The rerun does not turn the loss into success: it finishes the undo from the journal.
    let again = world.run(&step(&world, &[])).await;
    again.exits(4);
    assert!(world.at(&SERVICE_INSTANCE, ONE, "commerce").await.is_some());
    assert_eq!(activation_uid(&world, ONE).await, before);
    let owner =
        &world.at(&EVENT_ACTIVATION, ONE, &commerce()).await.unwrap()["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], json!(instance_uid(&world, ONE, "commerce").await));
}

#[tokio::test]
async fn bug_2_5_one_stuck_instance_does_not_hold_up_the_others_and_with_on_failure_chain_takes_none_back() {
    let scene = Scene::new(&["commerce"]).instance(ONE, "commerce").instance(TWO, "commerce");
    let behaviour = Behaviour { refuse_deprovision: vec!["e2e-one/commerce".into()], ..quick() };
    let world = set(scene, behaviour).await;
    let flags = ["--gone-within", "4", "--deadline", "14", "--undo-reserve", "4", "--on-failure", "chain"];
    let run = world.run(&step(&world, &flags)).await;
    // What is being deleted can't be rescued: a person must look at it, and the others are done.
    run.exits(5).says("ServiceInstance/e2e-one/commerce").says("kubernetes-incubator/service-catalog");
    assert_eq!(links(&world).await, ["e2e-two/commerce"]);
    // Once the broker lets go, the next run puts it back.
    world.standins.change(|behaviour| behaviour.refuse_deprovision.clear());
    cluster::wait_gone(&world.api.client(), &SERVICE_INSTANCE, ONE, "commerce", SOON).await.unwrap();
    let restored = world.run(&world.operate("restore", &["--step", STEP])).await;
    restored.exits(0);
    assert!(world.at(&SERVICE_INSTANCE, ONE, "commerce").await.is_some());
}

#[tokio::test]
async fn bug_5_5_an_instance_that_failed_before_is_recreated_and_one_that_fails_now_fails_the_step_at_once() {
    let scene = Scene::new(&["commerce"]).instance(TWO, "commerce").on_mesh(TWO, Mesh::Not);
    let world = set(scene, quick()).await;
    world.standins.change(|now| now.refuse = vec!["commerce".into()]);
    let run = world.run(&step(&world, &["--deadline", "8", "--undo-reserve", "4"])).await;
    run.exits(5)
        .says("provisioning failed, and the catalog never tries again")
        .says("the broker was told to refuse");
    // It worked before: a person has to look. Once the broker takes it again, the next run recreates it.
    world.run(&world.operate("accept", &["--step", STEP])).await.exits(0);
    world.standins.change(|now| now.refuse.clear());
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
    assert_eq!(links(&world).await, ["e2e-two/commerce"]);
}

#[tokio::test]
async fn bug_5_5_a_failed_instance_of_a_linked_pair_is_left_alone_with_the_cure() {
    let scene = Scene::new(&["commerce"]).instance(TWO, "commerce").on_mesh(TWO, Mesh::Complete);
    let world = set(scene, quick()).await;
    world.standins.change(|now| now.refuse = vec!["commerce-2".into()]);
    make_instance(&world, &fixtures::service_instance("commerce-2", TWO, &commerce()), "Failed").await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(0)
        .says("ServiceInstance/e2e-two/commerce-2: its provisioning failed, and nobody ever tries that again")
        .changes_nothing();
    assert_eq!(links(&world).await, ["e2e-two/commerce"]);
}

#[tokio::test]
async fn bug_2_3_an_instance_with_a_binding_is_linked_instead_and_undo_takes_link_and_label_away_again() {
    let world = set(one_instance(), quick()).await;
    bind(&world, ONE, "commerce").await;
    let before = instance_uid(&world, ONE, "commerce").await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(0).says("it is linked instead of recreated");
    assert_eq!(instance_uid(&world, ONE, "commerce").await, before);
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
    world.run(&step(&world, &[])).await.exits(0).changes_nothing();
    world.run(&world.operate("restore", &["--step", STEP])).await.exits(0);
    assert!(links(&world).await.is_empty());
    assert_eq!(world.injection(ONE).await, Value::Null);
}

#[tokio::test]
async fn two_instances_of_an_application_take_turns_and_make_one_link() {
    let mut scene = Scene::new(&["commerce"]).instance(ONE, "commerce");
    let second =
        Instance { namespace: ONE.into(), name: "commerce-2".into(), application: "commerce".into() };
    scene.instances.push(second);
    let world = set(scene, Behaviour { race_links: true, ..quick() }).await;
    world.run(&step(&world, &["--recreate", "all"])).await.exits(0).says("2 recreated");
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
}

#[tokio::test]
async fn bug_2_3_all_that_stands_in_the_way_is_refused_at_once_and_nothing_is_written() {
    let scene = Scene::small(ONE, TWO);
    let world = set(scene, quick()).await;
    world.standins.change(|now| now.stopped = vec![Controller::HttpSource]);
    world.api.delete(&resource(&CHANNEL), Some(INTEGRATION), "commerce").await.unwrap();
    let run = world.run(&step(&world, &["--subscription-controller", "kyma-system/missing"])).await;
    run.exits(3)
        .says("Channel/kyma-integration/commerce is not Ready")
        .says("Deployment/kyma-system/missing does not exist")
        .says("ServiceInstance/e2e-one/logistics")
        .changes_nothing();
    world.standins.change(|now| now.stopped.clear());
    world.until(&CHANNEL, "commerce", "is back", |_| true).await;
}

#[tokio::test]
async fn bug_5_8_an_instance_whose_application_is_gone_is_refused_and_can_be_left_out() {
    let scene = Scene::new(&["commerce", "logistics"]).instance(ONE, "commerce").instance(TWO, "logistics");
    let world = set(scene, quick()).await;
    world.api.delete(&resource(&APPLICATION), None, "commerce").await.unwrap();
    cluster::wait_gone(&world.api.client(), &APPLICATION, "", "commerce", SOON).await.unwrap();
    let run = world.run(&step(&world, &[])).await;
    run.exits(3).says("its Application commerce is gone").changes_nothing();
    let run = world.run(&step(&world, &["--exclude", "ServiceInstance/e2e-one/commerce"])).await;
    run.exits(0).says("1 recreated");
}

#[tokio::test]
async fn bug_2_3_an_instance_that_is_being_deleted_already_is_refused() {
    let behaviour = Behaviour { hold_finalizer: vec!["ServiceInstance:commerce".into()], ..quick() };
    let world = set(one_instance(), behaviour).await;
    world.api.delete(&resource(&SERVICE_INSTANCE), Some(ONE), "commerce").await.unwrap();
    world.run(&step(&world, &[])).await.exits(3).says("is being deleted already").changes_nothing();
}

/// Fails as the gate does, in words that name what is missing.
fn gate_fails(run: &Outcome, what: &str) {
    run.exits(4).says(what);
}

#[tokio::test]
async fn bug_2_3_the_gate_fails_without_a_link_with_one_that_is_not_ready_and_at_once_with_two() {
    let short = ["--linked-within", "3"];
    let world = set(one_instance(), Behaviour { no_link: vec!["commerce".into()], ..quick() }).await;
    let activation = activation_uid(&world, ONE).await;
    gate_fails(&world.run(&step(&world, &short)).await, "no Knative Subscription links them");
    assert_eq!(world.names_at(&KNATIVE_SUBSCRIPTION, INTEGRATION).await, Vec::<String>::new());
    world.standins.change(|now| {
        now.no_link.clear();
        now.link_never_ready = vec!["e2e-one/commerce".into()];
    });
    gate_fails(
        &world.run(&step(&world, &short)).await,
        "Subscription/kyma-integration/brokersub-e2e-one-commerce",
    );
    // The broker has made a link where there was none: that is no loss.
    assert_eq!(world.names_at(&KNATIVE_SUBSCRIPTION, INTEGRATION).await, [LINK]);
    world.standins.change(|now| {
        now.link_never_ready.clear();
        now.two_links = vec!["commerce".into()];
    });
    let run = world.run(&step(&world, &["--recreate", "all", "--linked-within", "300"])).await;
    // At once, not when its time is up; and no undo can make one of two.
    run.exits(5).says("both link them").never_says("waited").says(&format!(
        "Subscription/kyma-integration/{LINK} and Subscription/kyma-integration/{LINK}-again are there"
    ));
    assert_eq!(
        world.names_at(&KNATIVE_SUBSCRIPTION, INTEGRATION).await,
        [LINK.to_owned(), format!("{LINK}-again")]
    );
    assert_eq!(activation_uid(&world, ONE).await, activation);
    // Two that are there before are refused: the broker could let go of neither.
    world.run(&world.operate("accept", &["--step", STEP])).await.exits(0);
    world.run(&step(&world, &[])).await.exits(3).says("link it, where there must be one").changes_nothing();
}

#[tokio::test]
async fn bug_2_3_a_link_that_was_there_and_does_not_come_back_is_named_and_nothing_is_called_as_before() {
    let scene = Scene::new(&["commerce"]).instance(ONE, "commerce").on_mesh(ONE, Mesh::Complete);
    let world = set(scene, quick()).await;
    let activation = activation_uid(&world, ONE).await;
    world.standins.change(|now| now.no_link = vec!["commerce".into()]);
    let flags = ["--recreate", "all", "--linked-within", "3", "--deadline", "10", "--undo-reserve", "4"];
    let run = world.run(&step(&world, &flags)).await;
    run.exits(5)
        .says("subscriptions.messaging.knative.dev with broker-namespace=e2e-one, application-name=commerce")
        .says("0 of 1 are there");
    assert_eq!(activation_uid(&world, ONE).await, activation);
    assert!(links(&world).await.is_empty());
    // Whoever cures the broker and accepts what is left gets the link by the next run.
    world.run(&world.operate("accept", &["--step", STEP])).await.exits(0);
    world.standins.change(|now| now.no_link.clear());
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
}

#[tokio::test]
async fn the_gate_is_asked_where_nothing_is_to_be_written_too() {
    let scene = Scene::new(&["commerce"])
        .instance(ONE, "commerce")
        .on_mesh(ONE, Mesh::Complete)
        .on_mesh(TWO, Mesh::Not);
    let world = set(scene, quick()).await;
    world.create(&fixtures::event_activation("left-over", TWO, "commerce")).await;
    let run = world.run(&step(&world, &["--linked-within", "2"])).await;
    run.exits(4)
        .says("a link for EventActivation/e2e-two/left-over")
        .says("Nothing had been changed")
        .changes_nothing();
    world.api.delete(&resource(&EVENT_ACTIVATION), Some(TWO), "left-over").await.unwrap();
    // The converse: provisioned, but no EventActivation.
    world.api.delete(&resource(&EVENT_ACTIVATION), Some(ONE), &commerce()).await.unwrap();
    cluster::wait_gone(&world.api.client(), &EVENT_ACTIVATION, ONE, &commerce(), SOON).await.unwrap();
    let run = world.run(&step(&world, &["--linked-within", "2"])).await;
    run.exits(4).says("of ServiceInstance/e2e-one/commerce, which is provisioned").changes_nothing();
    // The same where the step would make the link itself: that brings no EventActivation.
    bind(&world, ONE, "commerce").await;
    let links = resource(&KNATIVE_SUBSCRIPTION);
    for name in world.names_at(&KNATIVE_SUBSCRIPTION, INTEGRATION).await {
        world.api.delete(&links, Some(INTEGRATION), &name).await.unwrap();
    }
    let run = world.run(&step(&world, &["--linked-within", "2"])).await;
    run.exits(4).says("of ServiceInstance/e2e-one/commerce, which is provisioned");
    assert!(run.moves().is_empty(), "{:?}", run.moves());
}

#[tokio::test]
async fn bug_5_2_instances_of_cluster_wide_classes_and_of_other_brokers_are_none_of_ours() {
    let world = set(one_instance(), quick()).await;
    let cluster_wide = json!({
        "apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceInstance",
        "metadata": {"name": "database", "namespace": ONE},
        "spec": {"clusterServiceClassExternalName": "postgres", "clusterServicePlanExternalName": "small"},
    });
    let before = uid(Some(world.create(&cluster_wide).await));
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
    assert_eq!(instance_uid(&world, ONE, "database").await, before);
}

#[tokio::test]
async fn bug_2_3_a_missing_api_of_any_kind_is_refused_and_none_at_all_is_nothing_to_migrate() {
    let world = set(Scene::new(&["commerce"]), quick()).await;
    let sources = [
        "applications.applicationconnector.kyma-project.io",
        "eventactivations.applicationconnector.kyma-project.io",
        "serviceinstances.servicecatalog.k8s.io",
        "serviceclasses.servicecatalog.k8s.io",
        "serviceplans.servicecatalog.k8s.io",
        "servicebindings.servicecatalog.k8s.io",
    ];
    let crds = resource(&CRD);
    let mut manifests = Vec::new();
    for name in sources {
        let mut manifest = world.api.get(&crds, None, name).await.unwrap().unwrap();
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
            manifest["metadata"].as_object_mut().unwrap().remove(field);
        }
        manifest.as_object_mut().unwrap().remove("status");
        manifests.push(manifest);
    }
    for (name, manifest) in sources.iter().zip(&manifests) {
        world.remove_crd(name).await;
        world
            .run(&step(&world, &[]))
            .await
            .exits(3)
            .says(&format!("the API {name} is not served"))
            .changes_nothing();
        world.api.create(&crds, manifest).await.unwrap();
        cluster::wait_until("it is served again", SOON, async || {
            let live = world.api.get(&crds, None, name).await?.unwrap_or_default();
            let conditions = live["status"]["conditions"].as_array().cloned().unwrap_or_default();
            Ok(conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True"))
        })
        .await
        .unwrap();
    }
    for name in sources {
        world.remove_crd(name).await;
    }
    let fresh = world.run(&step(&world, &["--subscription-controller", &format!("{SYSTEM}/missing")])).await;
    fresh.exits(0).says("nothing to migrate").changes_nothing();
}

#[tokio::test]
async fn where_the_chosen_instance_is_left_out_another_is_taken_and_without_any_the_step_fails() {
    let world = set(one_instance(), quick()).await;
    let left_out = ["--exclude", "ServiceInstance/e2e-one/commerce", "--linked-within", "2"];
    let run = world.run(&step(&world, &left_out)).await;
    run.exits(4)
        .says(&format!("a link for EventActivation/e2e-one/{}", commerce()))
        .says("which none of its ServiceInstances is to make")
        .says("ServiceInstance/e2e-one/commerce: left out by --exclude")
        .changes_nothing();
    // A person may know better.
    let activation = format!("EventActivation/e2e-one/{}", commerce());
    let run = world.run(&step(&world, &left_out).args(["--exclude", &activation])).await;
    run.exits(0).changes_nothing();
    from_before_the_mesh(&world, &[], &fixtures::service_instance("commerce-2", ONE, &commerce())).await;
    let before = instance_uid(&world, ONE, "commerce").await;
    world.run(&step(&world, &left_out[..2])).await.exits(0).says("1 recreated");
    assert_eq!(instance_uid(&world, ONE, "commerce").await, before);
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
}

#[tokio::test]
async fn a_link_that_is_not_ready_just_now_is_waited_for_and_not_made_anew() {
    let scene = Scene::new(&["commerce"]).instance(ONE, "commerce").on_mesh(ONE, Mesh::Complete);
    let world = set(scene, quick()).await;
    let before = instance_uid(&world, ONE, "commerce").await;
    world.standins.change(|now| now.never_ready = vec!["Broker:default".into()]);
    world.api.delete(&resource(&BROKER), Some(ONE), "default").await.unwrap();
    cluster::wait_until("the Broker is not Ready", SOON, async || {
        let live = world.at(&BROKER, ONE, "default").await;
        Ok(live.is_some_and(|live| live.get("status").is_some() && !has_condition(&live, "Ready")))
    })
    .await
    .unwrap();
    let run = world.run(&step(&world, &["--linked-within", "2"])).await;
    run.exits(4)
        .says("which is there and must be Ready")
        .says("Broker/e2e-one/default")
        .says("run with --recreate all --only-namespace e2e-one")
        .changes_nothing();
    let run = world.start(&step(&world, &["--linked-within", "30"]), vec![]).await;
    run.until_it_watches(&["brokers", "subscriptions"]).await;
    world.standins.change(|now| now.never_ready.clear());
    run.wait().await.unwrap().exits(0).changes_nothing();
    assert_eq!(instance_uid(&world, ONE, "commerce").await, before);
}

#[tokio::test]
async fn an_instance_that_is_just_being_provisioned_is_waited_for_and_not_deleted() {
    let world = set(Scene::new(&["commerce"]).instance(ONE, "commerce"), quick()).await;
    world.standins.change(|now| now.never_ready = vec!["ServiceInstance:commerce-2".into()]);
    world.create(&fixtures::service_instance("commerce-2", ONE, &commerce())).await;
    cluster::wait_until("it is in progress", SOON, async || {
        let live = world.at(&SERVICE_INSTANCE, ONE, "commerce-2").await.unwrap();
        Ok(live["status"]["currentOperation"] == "Provision")
    })
    .await
    .unwrap();
    let uids = (instance_uid(&world, ONE, "commerce").await, instance_uid(&world, ONE, "commerce-2").await);
    let run = world.start(&step(&world, &["--provisioned-within", "30"]), vec![]).await;
    run.until_it_watches(&["serviceinstances"]).await;
    world.standins.change(|now| now.never_ready.clear());
    run.wait().await.unwrap().exits(0).changes_nothing();
    let now = (instance_uid(&world, ONE, "commerce").await, instance_uid(&world, ONE, "commerce-2").await);
    assert_eq!((now, links(&world).await), (uids, vec!["e2e-one/commerce".to_owned()]));
}

#[tokio::test]
async fn what_would_never_be_provisioned_again_is_refused() {
    let world = set(one_instance(), quick()).await;
    let mapping = fixtures::application_mapping("commerce", ONE);
    world.api.delete(&resource(&APPLICATION_MAPPING), Some(ONE), "commerce").await.unwrap();
    let run = world.run(&step(&world, &[])).await;
    run.exits(3).says("ApplicationMapping/e2e-one/commerce does not exist").changes_nothing();
    world.create(&mapping).await;
    world
        .api
        .delete(&resource(&SERVICE_CLASS), Some(ONE), &fixtures::catalog_name(&commerce()))
        .await
        .unwrap();
    let run = world.run(&step(&world, &[])).await;
    run.exits(3).says("the ServiceClass of the service commerce-events").changes_nothing();
    world.create(&fixtures::service_class(&commerce(), ONE)).await;
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
}

#[tokio::test]
async fn a_namespace_whose_user_has_switched_the_broker_off_is_refused_where_the_step_would_link_it() {
    let world = set(one_instance(), quick()).await;
    bind(&world, ONE, "commerce").await;
    let namespaces = harness::Resource::core("namespaces");
    let label = |value: Value| json!({"metadata": {"labels": {"knative-eventing-injection": value}}});
    world.api.merge(&namespaces, None, ONE, None, &label("disabled".into())).await.unwrap();
    let run = world.run(&step(&world, &[])).await;
    world.api.merge(&namespaces, None, ONE, None, &label(Value::Null)).await.unwrap();
    run.exits(3).says("of namespace e2e-one is 'disabled'").changes_nothing();
    world.run(&step(&world, &[])).await.exits(0).says("linked instead");
}

#[tokio::test]
async fn bug_5_9_where_a_link_that_worked_is_made_anew_the_report_says_for_how_long() {
    let scene = Scene::new(&["commerce"]).instance(ONE, "commerce").on_mesh(ONE, Mesh::Complete);
    let world = set(scene, quick()).await;
    let run = world.run(&step(&world, &["--recreate", "all"])).await;
    run.exits(0).says("mesh delivery from commerce to namespace e2e-one was off for at most");
    world.run(&world.operate("report", &[STEP])).await.exits(0).says("its link was made anew");
}

#[tokio::test]
async fn bug_2_3_7500_no_instance_is_created_while_its_activation_is_going() {
    let behaviour = Behaviour {
        broker_release: BrokerRelease::V1_11,
        hold_finalizer: vec!["EventActivation:e2e-one/*".into()],
        ..quick()
    };
    let world = set(one_instance().instance(TWO, "commerce"), behaviour).await;
    let run = recreated_after_the_first(&world, &[]).await;
    let going = world.at(&EVENT_ACTIVATION, ONE, &commerce()).await.expect("it is held");
    assert!(going["metadata"].get("deletionTimestamp").is_some());
    assert!(!run.proxy.calls().iter().any(|call| creates_in(call, ONE)), "created while it is going");
    world.standins.change(|now| now.hold_finalizer.clear());
    run.wait().await.unwrap().exits(0).says("2 recreated");
    let now = world.at(&EVENT_ACTIVATION, ONE, &commerce()).await.unwrap();
    assert_ne!(now["metadata"]["uid"], going["metadata"]["uid"]);
    assert_eq!(links(&world).await, ["e2e-one/commerce", "e2e-two/commerce"]);
}

/// Whether a call creates the instance of this namespace.
fn creates_in(call: &Call, namespace: &str) -> bool {
    crate::creates("commerce")(call) && call.target.namespace.as_deref() == Some(namespace)
}

/// Starts the step, and returns when it has created the instance of the second namespace: by then it has seen, on the same
/// watch, that the one of the first is gone, and has done what it does about that.
async fn recreated_after_the_first(world: &World, flags: &[&str]) -> Running {
    let deletes = |call: &Call| {
        is_move(call)
            && call.verb == harness::Verb::Delete
            && call.target.resource == "serviceinstances"
            && call.target.namespace.as_deref() == Some(TWO)
    };
    let (hold, holding) = Fault::hold(At::first(deletes));
    let run = world.start(&step(world, flags), vec![hold]).await;
    cluster::wait_gone(&world.api.client(), &SERVICE_INSTANCE, ONE, "commerce", SOON).await.unwrap();
    holding.release();
    run.proxy.when(|call| creates_in(call, TWO), SOON).await.unwrap();
    run
}

#[tokio::test]
async fn bug_2_3_no_instance_is_created_while_the_old_link_of_its_pair_is_going() {
    let scene = Scene::new(&["commerce"])
        .instance(ONE, "commerce")
        .on_mesh(ONE, Mesh::Complete)
        .instance(TWO, "commerce")
        .on_mesh(TWO, Mesh::Not);
    // A broker that takes a link that is going for one that is there, and gives them random names.
    let behaviour = Behaviour { race_links: true, steady_names: false, ..quick() };
    let world = set(scene, behaviour).await;
    let before = world.names_at(&KNATIVE_SUBSCRIPTION, INTEGRATION).await;
    world.standins.change(|now| now.hold_finalizer = vec!["Subscription:brokersub-*".into()]);
    let run = recreated_after_the_first(&world, &["--recreate", "all"]).await;
    assert!(!run.proxy.calls().iter().any(|call| creates_in(call, ONE)), "created while it is going");
    world.standins.change(|now| now.hold_finalizer.clear());
    run.wait().await.unwrap().exits(0).says("2 recreated");
    assert_eq!(links(&world).await, ["e2e-one/commerce", "e2e-two/commerce"]);
    assert!(!world.names_at(&KNATIVE_SUBSCRIPTION, INTEGRATION).await.contains(&before[0]));
}

/// Then there is no owner to take off it, and the instance is recreated all the same.
#[tokio::test]
async fn bug_2_3_an_activation_that_somebody_deletes_before_it_is_released_does_not_keep_the_link_away() {
    let world = set(one_instance(), quick()).await;
    let releases = |call: &Call| is_move(call) && call.target.resource == "eventactivations";
    let (hold, holding) = Fault::hold(At::first(releases));
    let run = world.start(&step(&world, &[]), vec![hold]).await;
    run.until_it_sends(releases).await;
    world.api.delete(&resource(&EVENT_ACTIVATION), Some(ONE), &commerce()).await.unwrap();
    cluster::wait_gone(&world.api.client(), &EVENT_ACTIVATION, ONE, &commerce(), SOON).await.unwrap();
    holding.release();
    run.wait().await.unwrap().exits(0).says("1 recreated");
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
}

#[tokio::test]
async fn bug_2_3_an_instance_whose_activation_is_going_is_not_deleted_before_that_is_gone() {
    let world = set(one_instance(), quick()).await;
    let before = instance_uid(&world, ONE, "commerce").await;
    world.standins.change(|now| now.hold_finalizer = vec!["EventActivation:*".into()]);
    world.api.delete(&resource(&EVENT_ACTIVATION), Some(ONE), &commerce()).await.unwrap();
    let run = world.run(&step(&world, &["--gone-within", "2"])).await;
    run.exits(4)
        .says(&format!("EventActivation/e2e-one/{} gone", commerce()))
        .says("held by finalizer eventactivation.finalizers.kyma-project.io")
        .says("--exclude ServiceInstance/e2e-one/commerce");
    assert!(run.moves().is_empty(), "{:?}", run.moves());
    assert_eq!(instance_uid(&world, ONE, "commerce").await, before);
    // One that goes, if slowly, holds nobody up.
    let run = world.start(&step(&world, &[]), vec![]).await;
    run.proxy.when(|call| call.target.resource == "eventactivations", SOON).await.unwrap();
    world.standins.change(|now| now.hold_finalizer.clear());
    run.wait().await.unwrap().exits(0).says("1 recreated");
    assert_ne!(instance_uid(&world, ONE, "commerce").await, before);
    assert!(world.at(&EVENT_ACTIVATION, ONE, &commerce()).await.is_some());
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
}

#[tokio::test]
async fn bug_2_3_an_instance_whose_activation_somebody_holds_in_its_deletion_is_refused_and_can_be_left_out()
{
    let world = set(one_instance(), quick()).await;
    let before = instance_uid(&world, ONE, "commerce").await;
    let finalizers = |names: Value| json!({"metadata": {"finalizers": names}});
    let held = ["eventactivation.finalizers.kyma-project.io", "e2e.belay.dev/held"];
    world.change(&EVENT_ACTIVATION, ONE, &commerce(), &finalizers(json!(held))).await;
    world.api.delete(&resource(&EVENT_ACTIVATION), Some(ONE), &commerce()).await.unwrap();
    let run = world.run(&step(&world, &[])).await;
    let left_out = world.run(&step(&world, &["--exclude", "ServiceInstance/e2e-one/commerce"])).await;
    let after = instance_uid(&world, ONE, "commerce").await;
    world.change(&EVENT_ACTIVATION, ONE, &commerce(), &finalizers(Value::Null)).await;
    run.exits(3)
        .says(&format!(
            "EventActivation/e2e-one/{} is being deleted, and e2e.belay.dev/held holds it",
            commerce()
        ))
        .says("or leave it out with --exclude ServiceInstance/e2e-one/commerce")
        .changes_nothing();
    left_out.exits(0).changes_nothing();
    assert_eq!(after, before);
    cluster::wait_gone(&world.api.client(), &EVENT_ACTIVATION, ONE, &commerce(), SOON).await.unwrap();
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
    assert!(world.at(&EVENT_ACTIVATION, ONE, &commerce()).await.is_some());
}

#[tokio::test]
async fn bug_2_3_a_silent_broker_is_undone_or_named() {
    let world = set(one_instance(), quick()).await;
    world.standins.change(|now| now.stopped = vec![Controller::ApplicationBroker]);
    let run =
        world.run(&step(&world, &["--gone-within", "3", "--deadline", "8", "--undo-reserve", "4"])).await;
    run.exits(5).says("ServiceInstance/e2e-one/commerce").says("kubernetes-incubator/service-catalog");
    world.standins.change(|now| now.stopped.clear());
    cluster::wait_gone(&world.api.client(), &SERVICE_INSTANCE, ONE, "commerce", SOON).await.unwrap();
    world.run(&world.operate("restore", &["--step", STEP])).await.exits(0);
    let live = world.at(&SERVICE_INSTANCE, ONE, "commerce").await.unwrap();
    assert_eq!(live["status"]["provisionStatus"], "Provisioned");
}

#[tokio::test]
async fn bug_5_5_a_broker_that_is_never_ready_fails_the_gate() {
    let behaviour = Behaviour { never_ready: vec!["Broker:default".into()], ..quick() };
    let world = set(one_instance(), behaviour).await;
    let run = world.run(&step(&world, &["--linked-within", "3"])).await;
    gate_fails(&run, "Broker/e2e-one/default");
}

#[tokio::test]
async fn bug_5_5_without_a_channel_nothing_is_recreated() {
    let world = set(one_instance(), quick()).await;
    world.standins.change(|now| now.stopped = vec![Controller::HttpSource]);
    world.api.delete(&resource(&CHANNEL), Some(INTEGRATION), "commerce").await.unwrap();
    let before = instance_uid(&world, ONE, "commerce").await;
    let run = world.run(&step(&world, &[])).await;
    run.exits(3).says("Channel/kyma-integration/commerce is not Ready").changes_nothing();
    assert_eq!(instance_uid(&world, ONE, "commerce").await, before);
    world.standins.change(|now| now.stopped.clear());
    world.until(&CHANNEL, "commerce", "is back", |_| true).await;
}

#[tokio::test]
async fn bug_5_3_instances_without_events_and_of_other_brokers_are_left_alone() {
    let world = set(one_instance(), quick()).await;
    let application =
        fixtures::application_with("commerce", &[(&commerce(), &["Events"]), ("commerce-api", &["API"])]);
    let spec = json!({"spec": {"services": application["spec"]["services"]}});
    world.api.merge(&resource(&APPLICATION), None, "commerce", None, &spec).await.unwrap();
    let mut foreign = fixtures::service_class("database", ONE);
    foreign["spec"]["serviceBrokerName"] = "helm-broker".into();
    for manifest in [
        fixtures::service_class("commerce-api", ONE),
        fixtures::service_plan("commerce-api", ONE),
        foreign,
        fixtures::service_instance("database", ONE, "database"),
    ] {
        world.create(&manifest).await;
    }
    make_instance(&world, &fixtures::service_instance("api", ONE, "commerce-api"), "Ready").await;
    let before = (instance_uid(&world, ONE, "api").await, instance_uid(&world, ONE, "database").await);
    let run = world.run(&step(&world, &["--recreate", "all"])).await;
    let moves = run.exits(0).says("1 recreated").moves();
    assert!(moves.iter().all(|made| made.contains("commerce")), "{moves:?}");
    let after = (instance_uid(&world, ONE, "api").await, instance_uid(&world, ONE, "database").await);
    assert_eq!(after, before);
}

/// The catalog sets the reference, and may not have come to it, or may have lost it.
#[tokio::test]
async fn bug_5_2_an_instance_without_a_class_ref_is_recreated() {
    let world = set(one_instance(), quick()).await;
    world.standins.change(|now| now.stopped = vec![Controller::ServiceCatalog]);
    let without = json!({"spec": {"serviceClassRef": null, "servicePlanRef": null}});
    world.change(&SERVICE_INSTANCE, ONE, "commerce", &without).await;
    let run = world.start(&step(&world, &[]), vec![]).await;
    run.proxy
        .when(|call| e2e::told::is_move(call) && call.verb == harness::Verb::Delete, SOON)
        .await
        .unwrap();
    world.standins.change(|now| now.stopped.clear());
    run.wait().await.unwrap().exits(0).says("1 recreated");
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
}

/// Provisions an instance of the Application as a broker does that knows nothing of the mesh yet.
async fn from_before_the_mesh(world: &World, manifests: &[Value], instance: &Value) {
    world.standins.change(|now| now.broker_release = BrokerRelease::BeforeMesh);
    for manifest in manifests {
        world.create(manifest).await;
    }
    make_instance(world, instance, "Ready").await;
    world.standins.change(|now| now.broker_release = BrokerRelease::V1_10);
}

#[tokio::test]
async fn with_api_packages_the_plan_tells_the_service() {
    let world = set(Scene::new(&["commerce"]).on_mesh(ONE, Mesh::Not), quick()).await;
    let mut plan = fixtures::service_plan("commerce-package", ONE);
    plan["spec"]["externalID"] = commerce().into();
    plan["spec"]["externalName"] = "orders".into();
    let mut instance = fixtures::service_instance("shop", ONE, "commerce-package");
    instance["spec"]["servicePlanExternalName"] = "orders".into();
    let around = [
        fixtures::application_mapping("commerce", ONE),
        fixtures::service_class("commerce-package", ONE),
        plan,
    ];
    from_before_the_mesh(&world, &around, &instance).await;
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
    world.run(&step(&world, &[])).await.exits(0).changes_nothing();
    // Without its Application it could not be recreated, and is known all the same.
    world.api.delete(&resource(&APPLICATION), None, "commerce").await.unwrap();
    cluster::wait_gone(&world.api.client(), &APPLICATION, "", "commerce", SOON).await.unwrap();
    let run = world.run(&step(&world, &["--recreate", "all"])).await;
    run.exits(3).says("ServiceInstance/e2e-one/shop: its Application commerce is gone").changes_nothing();
}

/// The name of the class is the id with `z` and upper case escaped: only the id tells what it is.
#[tokio::test]
async fn an_id_that_the_catalog_escapes_is_recognised() {
    let mut scene = Scene::new(&[]).on_mesh(ONE, Mesh::Not).instance(ONE, "commerce");
    scene.applications.insert("commerce".to_owned(), "zebra-17".to_owned());
    let world = set(scene, quick()).await;
    assert_ne!(fixtures::catalog_name("zebra-17"), "zebra-17");
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
    world.run(&step(&world, &[])).await.exits(0).changes_nothing();
}

#[tokio::test]
async fn bug_2_3_7500_provisioned_without_an_activation_fails() {
    let behaviour = Behaviour { broker_release: BrokerRelease::V1_11, ..quick() };
    let world = set(one_instance(), behaviour).await;
    let labels = json!({"metadata": {"labels": {"team": "a"}}});
    world.change(&EVENT_ACTIVATION, ONE, &commerce(), &labels).await;
    let before = world.at(&EVENT_ACTIVATION, ONE, &commerce()).await.unwrap();
    world.standins.change(|now| now.no_activation = vec!["commerce".into()]);
    let run = world.run_with_its_rights(&step(&world, &["--linked-within", "3"])).await;
    // The broker has deleted it and makes none: undo does.
    run.exits(4)
        .says(&format!("EventActivation/e2e-one/{} is not there", commerce()))
        .says(&format!("restored EventActivation/e2e-one/{}", commerce()));
    let after = world.at(&EVENT_ACTIVATION, ONE, &commerce()).await.unwrap();
    assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["spec"], before["spec"]);
    for field in ["labels", "annotations", "finalizers"] {
        assert_eq!(after["metadata"][field], before["metadata"][field], "{field}");
    }
    // Whoever owned it owns it again, under the uid that the instance has now.
    let owner = |object: &Value| object["metadata"]["ownerReferences"][0]["name"].clone();
    assert_eq!(owner(&after), owner(&before));
    let instance = instance_uid(&world, ONE, "commerce").await;
    let owned_by = &after["metadata"]["ownerReferences"][0]["uid"];
    assert!(owned_by.is_null() || *owned_by == json!(instance), "{owned_by}");
    // The link that the broker has made where there was none stays.
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
}

#[tokio::test]
async fn only_the_namespaces_that_are_asked_for_are_changed() {
    let scene = Scene::new(&["commerce"]).instance(ONE, "commerce").instance(TWO, "commerce");
    let world = set(scene, quick()).await;
    world.run(&step(&world, &["--only-namespace", ONE])).await.exits(0).says("1 recreated");
    assert_eq!(links(&world).await, ["e2e-one/commerce"]);
    world.run(&step(&world, &["--exclude-namespace", TWO])).await.exits(0).changes_nothing();
    world.run(&step(&world, &[])).await.exits(0).says("1 recreated");
    assert_eq!(links(&world).await, ["e2e-one/commerce", "e2e-two/commerce"]);
}
