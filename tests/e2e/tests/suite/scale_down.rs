//! What `scale-down-legacy` does to workloads, and what it does not.

use e2e::{
    Told, World,
    deadline::Deadline,
    kubelet::set_phase,
    scene::{ONE, PROMPT, SUBSCRIPTION_CONTROLLER, SYSTEM},
    told::{Telling as _, is_move},
    world::{SOON, resource},
};
use harness::{At, Call, Exit, Fault, Resource};
use http::Method;
use serde_json::{Value, json};
use standins::{
    Behaviour, cluster, crds, fixtures,
    kinds::{CRD, DEPLOYMENT, EVENT_ACTIVATION, LEGACY_SUBSCRIPTION, REPLICA_SET, STATEFUL_SET},
    landscape::Scene,
};

const ACTIVATION_FINALIZER: &str = "eventactivation.finalizers.kyma-project.io";

async fn replicas(world: &World, kind: &standins::kinds::Kind, name: &str) -> Value {
    world.get(kind, name).await.unwrap()["spec"]["replicas"].clone()
}

#[tokio::test]
async fn deployments_stateful_sets_and_bare_replica_sets_are_scaled_to_zero() {
    let world = World::mesh(Behaviour::default()).await;
    let _kubelet = world.kubelet();
    world.workload(&DEPLOYMENT, "publisher", 2).await;
    world.workload(&STATEFUL_SET, "store", 2).await;
    world.workload(&REPLICA_SET, "bare", 1).await;
    let run = world
        .run(&world.scale_down(&["Deployment/publisher", "StatefulSet/store", "replicaset/bare"], &[]))
        .await;
    run.exits(0)
        .says("3 scaled")
        .says("scaled Deployment/e2e-integration/publisher: spec.replicas from 2 to 0");
    assert!(world.api.list(&Resource::core("pods"), Some(world.place), None).await.unwrap().is_empty());
    for (kind, name) in [(&DEPLOYMENT, "publisher"), (&STATEFUL_SET, "store"), (&REPLICA_SET, "bare")] {
        let live = world.get(kind, name).await.unwrap();
        assert_eq!(live["spec"]["replicas"], 0);
        let ours = |entry: &Value| entry["manager"] == "belay";
        assert!(
            !live["metadata"]["managedFields"].as_array().unwrap().iter().any(ours),
            "{name}: Helm owns its fields"
        );
    }
}

#[tokio::test]
async fn it_refuses_while_objects_exist_that_only_the_workloads_can_finish() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    let subscription =
        fixtures::legacy_subscription("orders", world.place, "commerce", "order.created", "http://a/");
    world.create(&subscription).await;
    let step = |blocker: &str| world.scale_down(&["Deployment/publisher"], &["--refuse-while", blocker]);
    let run = world.run(&step("subscriptions.eventing.kyma-project.io:spec.source_id")).await;
    run.exits(3).says("Subscription/e2e-integration/orders still exist").changes_nothing();
    world.run(&step("subscriptions.eventing.kyma-project.io")).await.exits(3).changes_nothing();
    // Objects without that field, kinds that are not served: nothing in the way.
    let unserved = world.run(&step("nothings.example.org")).await;
    unserved.exits(0).says("nothings.example.org is not served by this cluster");
    world.patch(&DEPLOYMENT, "publisher", &json!({"spec": {"replicas": 1}})).await;
    world.run(&step("subscriptions.eventing.kyma-project.io:spec.nonsense")).await.exits(0);
    // With nothing to write nothing is in the way either.
    world.run(&step("subscriptions.eventing.kyma-project.io")).await.exits(0).changes_nothing();
    world.api.delete(&resource(&LEGACY_SUBSCRIPTION), Some(world.place), "orders").await.unwrap();
}

#[tokio::test]
async fn a_scaled_object_that_would_scale_it_up_again_is_a_finding() {
    let world = World::mesh(Behaviour::default()).await;
    let names = json!({"kind": "ScaledObject", "plural": "scaledobjects", "singular": "scaledobject"});
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "scaledobjects.keda.sh"},
        "spec": {"group": "keda.sh", "scope": "Namespaced", "names": names, "versions": [{
            "name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": anything},
        }]},
    });
    crds::install(&world.api.client(), &[crd]).await.unwrap();
    let scaler = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"name": "on-events", "namespace": world.place},
        "spec": {"scaleTargetRef": {"name": "publisher"}},
    });
    world.api.create(&Resource::new("keda.sh", "v1alpha1", "scaledobjects"), &scaler).await.unwrap();
    for name in ["publisher", "other"] {
        world.workload(&DEPLOYMENT, name, 1).await;
    }
    let run = world.run(&world.scale_down(&["Deployment/publisher", "Deployment/other"], &[])).await;
    world.api.delete(&resource(&CRD), None, "scaledobjects.keda.sh").await.unwrap();
    run.exits(0)
        .says("Deployment/e2e-integration/publisher: ScaledObject/e2e-integration/on-events scales it");
    run.never_says("Deployment/e2e-integration/other: ScaledObject");
}

#[tokio::test]
async fn a_replica_set_that_a_deployment_owns_is_refused() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    let owned = world.names(&REPLICA_SET).await.remove(0);
    let run = world.run(&world.scale_down(&[&format!("ReplicaSet/{owned}")], &[])).await;
    run.exits(3)
        .says("is owned by Deployment publisher")
        .says("Name the Deployment instead")
        .changes_nothing();
}

#[tokio::test]
async fn a_workload_that_does_not_exist_is_skipped_unless_it_must_exist() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    let both = ["Deployment/publisher", "StatefulSet/nobody", "Deployment/no-one"];
    let run = world.run(&world.scale_down(&both, &["--must-exist"])).await;
    run.exits(3)
        .says("StatefulSet/e2e-integration/nobody: does not exist, and --must-exist was given")
        .changes_nothing();
    run.says("Deployment/e2e-integration/no-one: does not exist");
    let run = world.run(&world.scale_down(&both, &[])).await;
    run.exits(0).says("1 scaled").says("skipping: StatefulSet/e2e-integration/nobody: does not exist");
}

#[tokio::test]
async fn replicas_that_come_back_are_scaled_down_again_and_that_is_said() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 2).await;
    let step = world.scale_down(&["Deployment/publisher"], &[]);
    world.run(&step).await.exits(0).never_says("once more");
    // A run that touches nothing does not forget what the one before did.
    world.run(&step).await.exits(0).changes_nothing();
    world.patch(&DEPLOYMENT, "publisher", &json!({"spec": {"replicas": 3}})).await;
    world
        .run(&step)
        .await
        .exits(0)
        .says("has 3 replicas again: it is scaled down once more")
        .says("1 scaled");
    assert_eq!(replicas(&world, &DEPLOYMENT, "publisher").await, 0);
}

#[tokio::test]
async fn a_pod_that_has_ended_does_not_count() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    for (name, phase) in [("done", "Succeeded"), ("evicted", "Failed")] {
        world.lasting_pod("publisher", name).await;
        set_phase(&world.api, world.place, name, phase).await.unwrap();
    }
    world.run(&world.scale_down(&["Deployment/publisher"], &[])).await.exits(0).says("1 scaled");
}

#[tokio::test]
async fn a_pod_that_stays_until_the_deadline_puts_the_replicas_back() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 3).await;
    world.workload(&STATEFUL_SET, "store", 1).await;
    world.lasting_pod("publisher", "stuck").await;
    let before = world.state().await;
    let step = world.scale_down(&["Deployment/publisher", "StatefulSet/store"], &[]);
    let (fault, deadline) = Deadline::told();
    let run = world.start(&step, vec![fault]).await;
    for name in ["publisher", "store"] {
        run.proxy.when(move |call| is_move(call) && call.name.as_deref() == Some(name), SOON).await.unwrap();
    }
    run.until_it_watches(&["pods"]).await;
    deadline.is_now();
    let run = run.wait().await.unwrap();
    run.exits(4)
        .says("Pod/e2e-integration/stuck still exist")
        .says("Everything is as it was before: 2 changes");
    assert_eq!(replicas(&world, &DEPLOYMENT, "publisher").await, 3);
    assert_eq!(replicas(&world, &STATEFUL_SET, "store").await, 1);
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
}

#[tokio::test]
async fn an_autoscaler_pauses_by_itself_and_is_left_alone() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 2).await;
    let autoscalers = Resource::new("autoscaling", "v2", "horizontalpodautoscalers");
    let autoscaler = json!({
        "metadata": {"name": "publisher", "namespace": world.place},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "publisher"},
            "minReplicas": 2, "maxReplicas": 4,
        },
    });
    let made = world.api.create(&autoscalers, &autoscaler).await.unwrap();
    let read = async || world.api.get(&autoscalers, Some(world.place), "publisher").await.unwrap().unwrap();
    world.run(&world.scale_down(&["Deployment/publisher"], &[])).await.exits(0);
    cluster::wait_until("the autoscaler has paused", SOON, async || {
        Ok(read().await["status"].to_string().contains("ScalingDisabled"))
    })
    .await
    .unwrap();
    assert_eq!(replicas(&world, &DEPLOYMENT, "publisher").await, 0);
    world.run(&world.operate("restore", &["--step", "scale-down-legacy"])).await.exits(0);
    assert_eq!(replicas(&world, &DEPLOYMENT, "publisher").await, 2);
    assert_eq!(read().await["spec"], made["spec"]);
}

#[tokio::test]
async fn a_workload_that_a_gitops_tool_keeps_is_scaled_down_and_that_is_told() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    let kept = json!({"metadata": {"labels": {"argocd.argoproj.io/instance": "mesh"}}});
    world.patch(&DEPLOYMENT, "publisher", &kept).await;
    let run = world.run(&world.scale_down(&["Deployment/publisher"], &[])).await;
    run.exits(0).says("1 scaled").says("publisher: Argo CD manages it and may set its replicas again");
}

/// The old bus with one activation, and how the chart scales it down.
async fn bus() -> (World, harness::StepCommand, String) {
    let behaviour = Behaviour { finalizer_delay: PROMPT, ..Behaviour::default() };
    let scene = Scene::new(&["commerce"]).instance(ONE, "commerce").with_workloads();
    let world = World::scene(&scene, behaviour).await;
    let blockers = "subscriptions.eventing.kyma-project.io:spec.source_id";
    let release = format!("eventactivations.applicationconnector.kyma-project.io={ACTIVATION_FINALIZER}");
    let workloads = ["event-bus-event-publish-service", SUBSCRIPTION_CONTROLLER];
    let workloads = workloads.map(|name| format!("Deployment/{SYSTEM}/{name}")).join(",");
    let step = world
        .mesh_step("scale-down-legacy", &["--refuse-while", blockers, "--release-finalizer", &release])
        .env("BELAY_WORKLOADS", workloads);
    (world, step, fixtures::service_id("commerce"))
}

async fn finalizers(world: &World, activation: &str) -> Value {
    world.at(&EVENT_ACTIVATION, ONE, activation).await.unwrap()["metadata"]["finalizers"].clone()
}

#[tokio::test]
async fn finalizers_that_nobody_serves_any_more_are_released_and_come_back_with_their_controller() {
    let (world, step, activation) = bus().await;
    assert_eq!(finalizers(&world, &activation).await, json!([ACTIVATION_FINALIZER]));
    let run = world.run_with_its_rights(&step).await;
    run.exits(0).says("2 scaled").says(&format!("patched EventActivation/{ONE}/{activation}"));
    assert_eq!(finalizers(&world, &activation).await, Value::Null);
    world.run(&step).await.exits(0).says("nothing to do").changes_nothing();
    world.run(&world.operate("restore", &["--step", "scale-down-legacy"])).await.exits(0);
    cluster::wait_until("the controller holds the activation again", SOON, async || {
        Ok(finalizers(&world, &activation).await == json!([ACTIVATION_FINALIZER]))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn bug_2_3_an_activation_that_is_being_deleted_must_be_finished_first() {
    let (world, step, activation) = bus().await;
    world.standins.change(|behaviour| behaviour.hold_finalizer.push(format!("EventActivation:{ONE}/*")));
    world.api.delete(&resource(&EVENT_ACTIVATION), Some(ONE), &activation).await.unwrap();
    let run = world.run(&step).await;
    run.exits(3)
        .says(&format!(
            "EventActivation/{ONE}/{activation} are being deleted, and only these workloads can finish that"
        ))
        .changes_nothing();
}

#[tokio::test]
async fn bug_5_4_a_leftover_with_a_dead_finalizer_is_released() {
    let (world, step, activation) = bus().await;
    world.scale_bus(0).await;
    let publisher = json!({"spec": {"replicas": 0}});
    world.change(&DEPLOYMENT, SYSTEM, "event-bus-event-publish-service", &publisher).await;
    cluster::wait_until("the bus is down", SOON, async || {
        let pods = world.api.list(&Resource::core("pods"), Some(SYSTEM), None).await?;
        Ok(!pods.iter().any(|pod| pod["metadata"]["labels"]["app"].to_string().contains("event-bus")))
    })
    .await
    .unwrap();
    world.api.delete(&resource(&EVENT_ACTIVATION), Some(ONE), &activation).await.unwrap();
    assert!(world.at(&EVENT_ACTIVATION, ONE, &activation).await.is_some());
    let run = world.run_with_its_rights(&step).await;
    run.exits(0).says("released");
    assert!(world.at(&EVENT_ACTIVATION, ONE, &activation).await.is_none());
    world.run(&step).await.exits(0).changes_nothing();
}

/// What has appeared between the two could never be deleted.
#[tokio::test]
async fn killed_after_the_scale_the_next_run_looks_once_more_for_what_is_in_the_way() {
    let world = World::mesh(Behaviour::default()).await;
    let _kubelet = world.kubelet();
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    // A Deployment whose status still changes would answer the first scale with a conflict.
    world
        .until(&DEPLOYMENT, "publisher", "is available", |live| live["status"]["availableReplicas"] == 1)
        .await;
    let blockers = "subscriptions.eventing.kyma-project.io:spec.source_id";
    // Named twice, it is scaled once.
    let twice = ["Deployment/publisher", "deployment/publisher"];
    let step = world.scale_down(&twice, &["--refuse-while", blockers]);
    let scales = |call: &Call| is_move(call) && call.target.subresource.as_deref() == Some("scale");
    let killed = world.run_with(&step, vec![Fault::KillAfter(At::first(scales))]).await;
    assert_eq!(killed.exit, Exit::Signal(9));
    cluster::wait_until("the pods are gone", SOON, async || {
        Ok(world.api.list(&Resource::core("pods"), Some(world.place), None).await?.is_empty())
    })
    .await
    .unwrap();
    let subscription =
        fixtures::legacy_subscription("orders", world.place, "commerce", "order.created", "http://a/");
    world.create(&subscription).await;
    world.run(&step).await.exits(4).says("has appeared, and only these workloads serve its finalizer");
    assert_eq!(replicas(&world, &DEPLOYMENT, "publisher").await, 1);
    world.api.delete(&resource(&LEGACY_SUBSCRIPTION), Some(world.place), "orders").await.unwrap();
    world.run(&step).await.exits(0).says("1 scaled");
}

#[tokio::test]
async fn a_finalizer_that_somebody_adds_meanwhile_stays() {
    let (world, step, activation) = bus().await;
    let patches = |call: &Call| is_move(call) && call.target.resource == "eventactivations";
    let (hold, holding) = Fault::hold(At::first(patches));
    let run = world.start(&step, vec![hold]).await;
    run.until_it_sends(patches).await;
    let both = json!({"metadata": {"finalizers": [ACTIVATION_FINALIZER, "e2e.belay.dev/added"]}});
    world.change(&EVENT_ACTIVATION, ONE, &activation, &both).await;
    holding.release();
    run.wait().await.unwrap().exits(0).says("1 patched");
    let left = finalizers(&world, &activation).await;
    world.change(&EVENT_ACTIVATION, ONE, &activation, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(left, json!(["e2e.belay.dev/added"]));
}

/// Runs the step to its deadline, which is when it waits for pods.
async fn pods_stay(world: &World, step: &harness::StepCommand) -> harness::Outcome {
    let (fault, deadline) = Deadline::told();
    let run = world.start(step, vec![fault]).await;
    run.until_it_watches(&["pods"]).await;
    deadline.is_now();
    run.wait().await.unwrap()
}

#[tokio::test]
async fn while_pods_run_of_a_workload_that_is_being_deleted_no_finalizer_is_released() {
    let (world, step, activation) = bus().await;
    // Held, so that its controller does nothing to it any more: its pods stay.
    let held = json!({"metadata": {"finalizers": ["e2e.belay.dev/stay"]}});
    world.change(&DEPLOYMENT, SYSTEM, SUBSCRIPTION_CONTROLLER, &held).await;
    world.api.delete(&resource(&DEPLOYMENT), Some(SYSTEM), SUBSCRIPTION_CONTROLLER).await.unwrap();
    let run = pods_stay(&world, &step).await;
    run.exits(4)
        .says(&format!(
            "Deployment/{SYSTEM}/{SUBSCRIPTION_CONTROLLER}: is being deleted: its pods are waited for"
        ))
        .says("still exist");
    assert_eq!(finalizers(&world, &activation).await, json!([ACTIVATION_FINALIZER]));
}

#[tokio::test]
async fn while_pods_run_of_a_workload_that_is_gone_no_finalizer_is_released() {
    let (world, step, activation) = bus().await;
    let deployment = resource(&DEPLOYMENT).path(Some(SYSTEM), Some(SUBSCRIPTION_CONTROLLER));
    let orphan = json!({"propagationPolicy": "Orphan"});
    world.api.request(Method::DELETE, &deployment, "application/json", Some(&orphan)).await.unwrap();
    cluster::wait_gone(&world.api.client(), &DEPLOYMENT, SYSTEM, SUBSCRIPTION_CONTROLLER, SOON)
        .await
        .unwrap();
    let run = pods_stay(&world, &step).await;
    run.exits(4).says("does not exist, but pods of it do: they are waited for").says("still exist");
    assert_eq!(finalizers(&world, &activation).await, json!([ACTIVATION_FINALIZER]));
}

#[tokio::test]
async fn what_appears_while_the_pods_go_puts_the_replicas_back() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 2).await;
    world.lasting_pod("publisher", "slow").await;
    let blocker = "subscriptions.eventing.kyma-project.io:spec.source_id";
    let step = world.scale_down(&["Deployment/publisher"], &["--refuse-while", blocker]);
    let run = world.start(&step, Vec::new()).await;
    run.until_it_says("scaled Deployment").await;
    let late = fixtures::legacy_subscription("late", world.place, "commerce", "order.created", "http://a/");
    world.create(&late).await;
    let pods = Resource::core("pods");
    world.api.delete(&pods, Some(world.place), "slow").await.unwrap();
    let free = json!({"metadata": {"finalizers": null}});
    world.api.merge(&pods, Some(world.place), "slow", None, &free).await.unwrap();
    run.wait()
        .await
        .unwrap()
        .exits(4)
        .says("Subscription/e2e-integration/late has appeared, and only these workloads serve its finalizer");
    assert_eq!(replicas(&world, &DEPLOYMENT, "publisher").await, 2);
}

/// Its controller is on its way out and would never finish it.
#[tokio::test]
async fn what_is_being_deleted_since_the_pods_go_puts_the_replicas_back_and_is_finished() {
    let (world, step, activation) = bus().await;
    world.standins.change(|behaviour| behaviour.hold_finalizer.push(format!("EventActivation:{ONE}/*")));
    let scales =
        |call: &Call| is_move(call) && call.name.as_deref() == Some("event-bus-event-publish-service");
    let (hold, holding) = Fault::hold(At::first(scales));
    let run = world.start(&step, vec![hold]).await;
    run.until_it_says(&format!("scaled Deployment/{SYSTEM}/{SUBSCRIPTION_CONTROLLER}")).await;
    world.api.delete(&resource(&EVENT_ACTIVATION), Some(ONE), &activation).await.unwrap();
    holding.release();
    run.wait()
        .await
        .unwrap()
        .exits(4)
        .says(&format!("EventActivation/{ONE}/{activation} is being deleted, and only these workloads can"))
        .says("Everything is as it was before");
    world.standins.change(|behaviour| behaviour.hold_finalizer.clear());
    let look = json!({"metadata": {"labels": {"look": "again"}}});
    world.change(&EVENT_ACTIVATION, ONE, &activation, &look).await;
    cluster::wait_gone(&world.api.client(), &EVENT_ACTIVATION, ONE, &activation, SOON).await.unwrap();
    world.run(&step).await.exits(0).says("2 scaled");
}

#[tokio::test]
async fn a_workload_that_was_left_out_runs_on_and_keeps_its_finalizers() {
    let (world, step, activation) = bus().await;
    let left_out = format!("Deployment/{SYSTEM}/{SUBSCRIPTION_CONTROLLER}");
    let run = world.run(&step.args(["--exclude", &left_out])).await;
    run.exits(0).says("1 scaled").never_says("patched EventActivation");
    run.says(&format!("1 objects keep their finalizer: {left_out} was left out and runs, and may serve it"));
    assert_eq!(finalizers(&world, &activation).await, json!([ACTIVATION_FINALIZER]));
}

#[tokio::test]
async fn without_the_crd_nothing_is_in_the_way_and_the_old_workloads_go() {
    let (world, step, activation) = bus().await;
    world.remove_crd("subscriptions.eventing.kyma-project.io").await;
    world.run_with_its_rights(&step).await.exits(0).says("2 scaled").says("1 patched");
    assert_eq!(finalizers(&world, &activation).await, Value::Null);
}
