//! The Event Bus stand-ins, against a real API server.

use std::time::Duration;

use crate::ground::{Ground, SOON};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use standins::conditions::holds;
use standins::fixtures::{
    bus_subscription_name, deployment, event_activation, later_subscription, legacy_subscription,
};
use standins::kinds::{DEPLOYMENT, EVENT_ACTIVATION, KNATIVE_SUBSCRIPTION, LEGACY_SUBSCRIPTION};
use standins::{
    Behaviour, Controller, EVENT_ACTIVATION_FINALIZER, Family, SUBSCRIPTION_FINALIZER, cluster, crds,
};

fn event_bus() -> Behaviour {
    Behaviour {
        controllers: vec![Controller::Subscription, Controller::EventActivation],
        finalizer_delay: Duration::ZERO,
        ..Behaviour::default()
    }
}

fn subscription(name: &str, ground: &Ground) -> serde_json::Value {
    legacy_subscription(name, &ground.namespace, "shop", "order.created", "http://orders:8080/")
}

#[tokio::test]
async fn a_subscription_is_ready_while_its_source_is_activated() {
    let ground = Ground::new("bus", event_bus()).await;
    ground.create(subscription("orders", &ground)).await;
    ground
        .until(&LEGACY_SUBSCRIPTION, "orders", "waits for its activation", |s| {
            s.data["status"]["conditions"][0]["status"] == "False"
        })
        .await;
    ground.create(event_activation("shop-events", &ground.namespace, "shop")).await;
    ground.until(&LEGACY_SUBSCRIPTION, "orders", "is ready", |s| holds(s, "is-ready")).await;
    let found = ground.get(&LEGACY_SUBSCRIPTION, "orders").await.unwrap();
    assert!(holds(&found, "events-activated") && holds(&found, "kn-subscription-ready"));
    assert!(found.data["status"]["conditions"][0]["last_transition_time"].is_string());
    assert_eq!(found.finalizers(), [SUBSCRIPTION_FINALIZER]);
    ground
        .until(&EVENT_ACTIVATION, "shop-events", "has its finalizer", |activation| {
            activation.finalizers() == [EVENT_ACTIVATION_FINALIZER]
        })
        .await;
    ground.delete(&EVENT_ACTIVATION, "shop-events").await;
    ground.gone(&EVENT_ACTIVATION, "shop-events").await;
    ground.until(&LEGACY_SUBSCRIPTION, "orders", "is not ready any more", |s| !holds(s, "is-ready")).await;
    ground.delete(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.gone(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.leave().await;
}

#[tokio::test]
async fn a_held_finalizer_keeps_a_deleted_subscription() {
    let ground =
        Ground::new("held", Behaviour { hold_finalizer: vec!["orders".into()], ..event_bus() }).await;
    ground.create(subscription("orders", &ground)).await;
    ground.until(&LEGACY_SUBSCRIPTION, "orders", "has its finalizer", |s| !s.finalizers().is_empty()).await;
    ground.delete(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.looked_again(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.standins.change(|behaviour| behaviour.hold_finalizer.clear());
    ground.gone(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.leave().await;
}

#[tokio::test]
async fn a_bus_that_is_scaled_down_serves_no_finalizers() {
    let ground = Ground::new("scaled", event_bus()).await;
    let ns = ground.namespace.clone();
    ground.create(deployment("bus", &ns, 1, "none")).await;
    ground.standins.change(|behaviour| behaviour.bus_deployment = Some(format!("{ns}/bus")));
    ground.create(event_activation("shop-events", &ns, "shop")).await;
    ground.create(subscription("orders", &ground)).await;
    ground.until(&LEGACY_SUBSCRIPTION, "orders", "is ready", |s| holds(s, "is-ready")).await;
    ground.until(&EVENT_ACTIVATION, "shop-events", "is held", |a| !a.finalizers().is_empty()).await;
    let scale = |replicas: u8| {
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        let api = DEPLOYMENT.within(&ground.client, &ns);
        async move { api.patch("bus", &PatchParams::default(), &patch).await.map(drop) }
    };
    scale(0).await.unwrap();
    // It has seen that when it holds what is new no more.
    for number in 0.. {
        let marker = ground.create(subscription(&format!("marker-{number}"), &ground)).await;
        ground.looked_at(&marker).await;
        if ground.get(&LEGACY_SUBSCRIPTION, &marker.name_any()).await.unwrap().finalizers().is_empty() {
            break;
        }
    }
    ground.delete(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.delete(&EVENT_ACTIVATION, "shop-events").await;
    ground.looked_again(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.looked_again(&EVENT_ACTIVATION, "shop-events").await;
    scale(1).await.unwrap();
    ground.gone(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.gone(&EVENT_ACTIVATION, "shop-events").await;
    ground.leave().await;
}

#[tokio::test]
async fn the_bus_keeps_a_knative_subscription_in_the_system_namespace_while_it_delivers() {
    let controllers =
        vec![Controller::Subscription, Controller::EventActivation, Controller::KnativeSubscription];
    let ground = Ground::with_integration(
        "delivery",
        Behaviour { controllers, bus_objects: true, ..event_bus() },
        &[],
    )
    .await;
    let (ns, system) = (ground.namespace.clone(), ground.integration.clone());
    let name = bus_subscription_name("orders", &ns);
    ground.create(event_activation("shop-events", &ns, "shop")).await;
    ground.create(subscription("orders", &ground)).await;
    ground
        .until_in(&KNATIVE_SUBSCRIPTION, &system, &name, "is held and Ready", |s| {
            holds(s, "Ready") && s.finalizers().iter().any(|f| f == SUBSCRIPTION_FINALIZER)
        })
        .await;
    ground.delete(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.gone(&LEGACY_SUBSCRIPTION, "orders").await;
    cluster::wait_gone(&ground.client, &KNATIVE_SUBSCRIPTION, &system, &name, SOON).await.unwrap();
    ground.leave().await;
}

#[tokio::test]
async fn the_bus_leaves_subscriptions_of_the_later_schema_alone() {
    // The real CRD of the Event Bus does not take them.
    if crds::upstream(Family::EventMesh).is_some() {
        return;
    }
    let ground = Ground::new("later", event_bus()).await;
    ground.create(event_activation("shop-events", &ground.namespace, "shop")).await;
    ground.create(later_subscription("later", &ground.namespace, "http://orders")).await;
    ground.create(subscription("orders", &ground)).await;
    ground.until(&LEGACY_SUBSCRIPTION, "orders", "is ready", |s| holds(s, "is-ready")).await;
    let later = ground.get(&LEGACY_SUBSCRIPTION, "later").await.unwrap();
    assert!(later.finalizers().is_empty() && later.data["status"].is_null());
    ground.leave().await;
}
