//! The Event Bus stand-ins, against a real API server.

use std::time::Duration;

use crate::ground::{A_WHILE, Ground};
use kube::ResourceExt;
use standins::conditions::holds;
use standins::fixtures::{event_activation, legacy_subscription};
use standins::kinds::{EVENT_ACTIVATION, LEGACY_SUBSCRIPTION};
use standins::{Behaviour, Controller, EVENT_ACTIVATION_FINALIZER, SUBSCRIPTION_FINALIZER};

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
    let activation = ground.get(&EVENT_ACTIVATION, "shop-events").await.unwrap();
    assert_eq!(activation.finalizers(), [EVENT_ACTIVATION_FINALIZER]);
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
    tokio::time::sleep(A_WHILE).await;
    assert!(ground.get(&LEGACY_SUBSCRIPTION, "orders").await.is_some());
    ground.standins.change(|behaviour| behaviour.hold_finalizer.clear());
    ground.gone(&LEGACY_SUBSCRIPTION, "orders").await;
    ground.leave().await;
}
