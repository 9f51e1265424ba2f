//! What a run refuses: before the first write, all at once, a sentence for each, exit 3.

use e2e::{
    Told, World, policy,
    rights::Account,
    scene::{ONE, SUBSCRIPTION_CONTROLLER, TWO},
    told::{Telling as _, is_move},
    world::{SOON, STATION_NAME, SYSTEM, prompt, resource},
};
use futures::future::join_all;
use harness::{At, Fault, Outcome, Resource};
use serde_json::{Value, json};
use standins::{
    Behaviour, Family, crds, fixtures,
    kinds::{
        APPLICATION, BROKER, CHANNEL, DEPLOYMENT, EVENT_ACTIVATION, GADGET, HTTP_SOURCE, KNATIVE_SERVICE,
        KNATIVE_SUBSCRIPTION, SERVICE_BINDING, SERVICE_CLASS, SERVICE_INSTANCE, SERVICE_PLAN, STATION,
        TRIGGER,
    },
    landscape::{Mesh, Scene},
};

/// A step with two source APIs.
const NOTED: &str = env!("CARGO_BIN_EXE_noted-step");

/// Its refusals, one a line.
fn refusals(outcome: &Outcome) -> Vec<&str> {
    outcome.stderr.lines().filter_map(|line| Some(line.split_once("refused: ")?.1)).collect()
}

#[tokio::test]
async fn without_the_source_api_there_is_nothing_to_migrate() {
    let world = World::mesh(Behaviour::default()).await;
    world.remove_crd("applications.applicationconnector.kyma-project.io").await;
    let run = world.run(&world.sources(&[])).await;
    run.exits(0).says("nothing to migrate: this cluster has none of applications.").changes_nothing();
}

#[tokio::test]
async fn without_the_source_api_no_step_has_anything_to_migrate() {
    let world = World::fixture(prompt()).await;
    world.remove_crd("widgets.fixture.belay.dev").await;
    world.run(&world.step(&[])).await.exits(0).says("nothing to migrate").changes_nothing();
}

/// Half of an old installation is not "nothing to migrate".
#[tokio::test]
async fn a_source_api_that_is_missing_beside_others_is_refused() {
    let world = World::fixture(prompt()).await;
    world.remove_crd("gadgets.fixture.belay.dev").await;
    let run = world.run(&world.other_step(NOTED, &[])).await;
    run.exits(3).changes_nothing();
    run.says("the API gadgets.fixture.belay.dev is not served by this cluster, although other APIs");
    world.remove_crd("widgets.fixture.belay.dev").await;
    world.run(&world.other_step(NOTED, &[])).await.exits(0).says("nothing to migrate").changes_nothing();
}

#[tokio::test]
async fn every_missing_target_api_is_named() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.remove_crd("httpsources.sources.kyma-project.io").await;
    world.remove_crd("channels.messaging.knative.dev").await;
    let run = world.run(&world.sources(&["--deadline", "6"])).await;
    run.exits(3).says("waiting for httpsources").changes_nothing();
    assert_eq!(refusals(&run).len(), 2, "{}", run.stderr);
    run.says("the API httpsources.sources.kyma-project.io is not served by this cluster");
    run.says("the API channels.messaging.knative.dev is not served by this cluster");
}

/// For every API without which a step would stop half-way: the step names it and touches nothing.
#[tokio::test]
async fn bug_2_3_every_missing_api_of_every_step_is_refused() {
    let world = World::scene(&Scene::new(&[]).on_mesh(ONE, Mesh::Not), Behaviour::default()).await;
    // Without one of these two steps have nothing to migrate, whatever is missing.
    world
        .create(&fixtures::legacy_subscription("orders", ONE, "commerce", "order.created", "http://a.b/"))
        .await;
    let (sources, instances, triggers, verify, retire) = (
        "create-missing-sources",
        "recreate-service-instances",
        "recreate-triggers",
        "verify-event-services",
        "retire-subscriptions",
    );
    for (kind, steps) in [
        (HTTP_SOURCE, &[sources, instances, verify, retire][..]),
        (CHANNEL, &[sources, instances]),
        (KNATIVE_SERVICE, &[sources]),
        (KNATIVE_SUBSCRIPTION, &[instances]),
        (BROKER, &[instances, triggers]),
        (TRIGGER, &[triggers, retire]),
        (APPLICATION, &[instances, retire]),
        (EVENT_ACTIVATION, &[instances]),
        (SERVICE_INSTANCE, &[instances]),
        (SERVICE_CLASS, &[instances]),
        (SERVICE_PLAN, &[instances]),
        (SERVICE_BINDING, &[instances]),
    ] {
        let api = resource(&kind).to_string();
        world.remove_crd(&api).await;
        let commands: Vec<_> = steps.iter().map(|step| world.mesh_step(step, &["--deadline", "3"])).collect();
        for run in join_all(commands.iter().map(|command| world.run(command))).await {
            run.exits(3).changes_nothing();
            run.says(&format!("the API {api} is not served by this cluster"));
        }
        world.restore_crd(&api).await;
    }
}

/// Takes a verb on a resource out of the rights that a step prints.
fn without(rules: &mut Value, verb: &str, resource: &str) {
    let mut taken = 0;
    let mut take_from = |list: &mut Value| {
        let list = list.as_array_mut().unwrap();
        for rule in list.iter_mut().filter(|rule| rule["resources"] == json!([resource])) {
            let verbs = rule["verbs"].as_array_mut().unwrap();
            taken += verbs.iter().filter(|one| *one == verb).count();
            verbs.retain(|one| one != verb);
        }
        // The server takes no rule without verbs.
        list.retain(|rule| rule["verbs"] != json!([]));
    };
    take_from(&mut rules["clusterRules"]);
    rules["namespaced"].as_object_mut().unwrap().values_mut().for_each(take_from);
    assert!(taken > 0, "no rule lets the step {verb} {resource}");
}

#[tokio::test]
async fn a_missing_verb_of_every_step_is_refused_before_the_first_write() {
    let scene = Scene::small(ONE, TWO).with_workloads();
    let world = World::scene(&scene, Behaviour::default()).await;
    let workload = format!("Deployment/kyma-system/{SUBSCRIPTION_CONTROLLER}");
    let before = world.state().await;
    for (step, flags, verb, of) in [
        ("create-missing-sources", &[][..], "delete", "httpsources"),
        ("recreate-service-instances", &[], "create", "serviceinstances"),
        ("recreate-triggers", &[], "create", "triggers"),
        ("verify-event-services", &[], "list", "deployments"),
        ("retire-subscriptions", &[], "create", "subscriptions"),
        ("scale-down-legacy", &["--workload", workload.as_str()], "patch", "deployments/scale"),
        ("purge-legacy", &[], "delete", "customresourcedefinitions"),
    ] {
        let command = world.mesh_step(step, flags);
        let mut rules = world.run(&command.clone().args(["--print-rbac"])).await.json();
        without(&mut rules, verb, of);
        let account = Account::new(&world.api, world.home, "too-little", rules).await.unwrap();
        let upstream = account.upstream(&world.kubeconfig).await.unwrap();
        let run = command.run(&upstream, vec![]).await.unwrap();
        account.revoke().await.unwrap();
        run.exits(3).says(&format!("may not {verb} {of}")).changes_nothing();
    }
    assert!(before.diff(&world.state().await).is_empty());
}

#[tokio::test]
async fn a_version_that_is_not_served_is_told_with_those_that_are() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let from = crds::upstream(Family::EventMesh);
    let all = crds::crds(Family::EventMesh, from.as_deref()).unwrap();
    let mut channel = all.into_iter().find(|crd| crd["spec"]["names"]["kind"] == "Channel").unwrap();
    let versions = channel["spec"]["versions"].as_array_mut().unwrap();
    versions.retain(|version| version["name"] == "v1alpha1");
    let mut next = versions[0].clone();
    next["name"] = "v2".into();
    next["storage"] = false.into();
    versions[0]["served"] = false.into();
    versions.push(next);
    crds::install(&world.api.client(), &[channel]).await.unwrap();
    let run = world.run(&world.sources(&["--deadline", "6"])).await;
    run.exits(3).changes_nothing();
    run.says("is not served in version v1alpha1, which this step knows (served: v2)");
}

#[tokio::test]
async fn every_verb_that_is_forbidden_is_named_in_one_message() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let mut rules = world.run(&world.sources(&["--print-rbac"])).await.json();
    let sources = rules["namespaced"][world.place].as_array_mut().unwrap();
    let rule = sources.iter_mut().find(|rule| rule["resources"] == json!(["httpsources"])).unwrap();
    rule["verbs"] = json!(["get", "list", "watch"]);
    rules["clusterRules"].as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["applications"]));
    let account = Account::new(&world.api, world.home, "too-little", rules).await.unwrap();
    let upstream = account.upstream(&world.kubeconfig).await.unwrap();
    let run = world.sources(&[]).run(&upstream, vec![]).await.unwrap();
    run.exits(3).changes_nothing();
    assert_eq!(refusals(&run).len(), 3, "{}", run.stderr);
    for verb in ["create httpsources", "delete httpsources", "list applications"] {
        assert!(run.verdict().contains(&format!("may not {verb}")), "{}", run.verdict());
    }
}

/// Whoever cures one cause shall not have to run it again to learn of the next.
#[tokio::test]
async fn missing_apis_and_missing_rights_are_told_together() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.remove_crd("channels.messaging.knative.dev").await;
    let mut rules = world.run(&world.sources(&["--print-rbac"])).await.json();
    rules["clusterRules"].as_array_mut().unwrap().retain(|rule| rule["resources"] != json!(["applications"]));
    let account = Account::new(&world.api, world.home, "too-little", rules).await.unwrap();
    let upstream = account.upstream(&world.kubeconfig).await.unwrap();
    let run = world.sources(&["--deadline", "6"]).run(&upstream, vec![]).await.unwrap();
    run.exits(3).changes_nothing();
    assert_eq!(refusals(&run).len(), 2, "{}", run.stderr);
    for reason in ["the API channels.messaging.knative.dev is not served", "may not list applications"] {
        assert!(run.verdict().contains(reason), "{}", run.verdict());
    }
}

/// The rights that a step prints are all it needs: to go forward, and to undo.
#[tokio::test]
async fn the_rights_that_are_printed_are_enough() {
    let world = World::mesh(Behaviour { never_ready: vec!["loyalty".into()], ..Behaviour::default() }).await;
    world.applications(&["commerce", "loyalty"]).await;
    world.workload(&DEPLOYMENT, "publisher", 2).await;
    let sources = world.sources(&["--ready-within", "2"]);
    let without = world.sources(&["--exclude", "Application/loyalty"]);
    let blocker = ["--refuse-while", "subscriptions.eventing.kyma-project.io"];
    let down = world.scale_down(&["Deployment/publisher"], &blocker);
    for (step, exit) in [(without, 0), (sources, 4), (down, 0)] {
        let rules = world.run(&step.clone().args(["--print-rbac"])).await.json();
        let account = Account::new(&world.api, world.home, "exact", rules).await.unwrap();
        let upstream = account.upstream(&world.kubeconfig).await.unwrap();
        let run = step.run(&upstream, vec![]).await.unwrap();
        run.exits(exit).never_says("forbidden").never_says("could not be");
    }
}

#[tokio::test]
async fn the_rights_that_are_printed_are_enough_for_every_move_and_its_undo() {
    let world = World::fixture(prompt()).await;
    let rules = world.run(&world.step(&["--print-rbac"])).await.json();
    let account = Account::new(&world.api, world.home, "exact", rules).await.unwrap();
    let upstream = account.upstream(&world.kubeconfig).await.unwrap();
    let step = world.step(&[]);
    let undone = step.run(&upstream, vec![crate::fails_late()]).await.unwrap();
    undone.exits(4).never_says("forbidden").never_says("could not be");
    step.run(&upstream, vec![]).await.unwrap().exits(0).never_says("forbidden");
}

#[tokio::test]
async fn another_steps_open_journal_is_refused_unless_there_is_nothing_to_write() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    let run = world.run(&world.scale_down(&["Deployment/publisher"], &[])).await;
    run.exits(3).says("the step create-missing-sources has an open journal").changes_nothing();
    run.says("belay restore --step create-missing-sources --home e2e-home");
    run.says("belay accept --step create-missing-sources --home e2e-home");
    world.run(&world.scale_down(&["Deployment/nothing-there"], &[])).await.exits(0).changes_nothing();
    // With another refusal both are said.
    let both = world.run(&world.scale_down(&["Deployment/nothing-there"], &["--must-exist"])).await;
    both.exits(3).says("--must-exist was given").says("create-missing-sources has an open journal");
    world.run(&world.sources(&[])).await.exits(0);
    world.run(&world.scale_down(&["Deployment/publisher"], &[])).await.exits(0);
}

#[tokio::test]
async fn what_the_step_itself_refuses_is_told_all_at_once() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["good", "with.dot", "1digit"]).await;
    let long: Vec<String> = (0..12).map(|number| format!("{number}-{}", "x".repeat(60))).collect();
    world.applications(&long).await;
    let run = world.run(&world.sources(&["--source-controller", &format!("{SYSTEM}/nobody")])).await;
    run.exits(3).changes_nothing();
    assert_eq!(refusals(&run).len(), 15, "{}", run.stderr);
    assert!(run.verdict().len() <= 1000, "an Event takes no more");
    run.says("--exclude Application/with.dot").says("--exclude Application/1digit");
    run.says("Deployment/e2e-system/nobody: does not exist");
}

/// Nothing is deleted that could not be created again.
#[tokio::test]
async fn an_object_that_could_not_be_created_again_is_not_deleted() {
    let world = World::fixture(prompt()).await;
    let before = world.state().await;
    let manual =
        world.api.get(&Resource::core("configmaps"), Some(world.place), "manual").await.unwrap().unwrap();
    let unless = "!has(object.metadata.labels) || !('shelf' in object.metadata.labels)";
    for (name, kind, live) in [
        ("e2e-no-maps", Resource::core("configmaps"), manual),
        ("e2e-no-gadgets", resource(&GADGET), world.get(&GADGET, "drill").await.unwrap()),
    ] {
        let mut example = json!({
            "apiVersion": live["apiVersion"], "kind": live["kind"],
            "metadata": {"name": "example", "namespace": world.place, "labels": live["metadata"]["labels"]},
        });
        example["spec"] = live.get("spec").cloned().unwrap_or(Value::Null);
        policy::refuse_create(&world.api, name, &kind, unless, &example).await;
    }
    let run = world.run(&world.step(&[])).await;
    for name in ["e2e-no-maps", "e2e-no-gadgets"] {
        policy::remove(&world.api, name).await;
    }
    run.exits(3).changes_nothing().says("this policy says no");
    for object in ["ConfigMap/e2e-workshop/manual", "Gadget/e2e-workshop/drill"] {
        run.says(&format!("{object}: will not be deleted, since it could not be created again"));
    }
    let after = world.state().await;
    assert!(before.diff(&after).is_empty() && before.identities == after.identities);
}

#[tokio::test]
async fn an_object_in_the_way_skips_its_chain_and_the_others_go_on() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics", "loyalty"]).await;
    let (hold, holding) = Fault::hold(At::first(crate::creates("logistics")));
    let run = world.start(&world.sources(&[]), vec![hold]).await;
    run.proxy.when(crate::creates("loyalty"), SOON).await.unwrap();
    let mut other = standins::fixtures::http_source("logistics", world.place);
    other["spec"]["source"] = "another".into();
    run.until_it_sends(crate::creates("logistics")).await;
    world.create(&other).await;
    holding.release();
    let run = run.wait().await.unwrap();
    run.exits(0).says("2 created").says("1 skipped");
    run.says("HTTPSource/e2e-integration/logistics: exists already and is another one");
    let found = world.get(&HTTP_SOURCE, "logistics").await.unwrap();
    assert_eq!(found["spec"]["source"], "another");
    let findings = world.report("create-missing-sources").await["findings"].clone();
    assert!(findings.to_string().contains("is another one"), "{findings}");
}

/// Trying again would not make it: that is not "the lock is lost".
#[tokio::test]
async fn a_home_that_does_not_exist_is_refused() {
    let world = World::fixture(prompt()).await;
    let run = world.run(&world.step(&["--home", "e2e-nowhere"])).await;
    run.exits(3).says("e2e-nowhere").says("--home").changes_nothing();
}

#[tokio::test]
async fn what_a_step_cannot_do_without_is_its_own_refusal() {
    let world = World::fixture(prompt()).await;
    world.api.delete(&resource(&STATION), None, STATION_NAME).await.unwrap();
    world.run(&world.step(&[])).await.exits(3).says("Station/e2e: does not exist").changes_nothing();
}
