//! Knative's Brokers, Triggers and Subscriptions, and its admission rules, against a real API server.

use std::pin::pin;
use std::time::Duration;

use crate::ground::{Ground, SOON};
use futures::StreamExt as _;
use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use standins::conditions::{find, holds};
use standins::fixtures::{broker, http_source, link, service_instance, trigger};
use standins::kinds::{
    BROKER, CHANNEL, HTTP_SOURCE, KNATIVE_SERVICE, KNATIVE_SUBSCRIPTION, Kind, NAMESPACE, TRIGGER,
};
use standins::{BROKER_LABEL, Behaviour, INJECTION_LABEL, TRIGGER_LABEL, cluster};
use tokio::time::timeout;

fn quick() -> Behaviour {
    Behaviour { finalizer_delay: Duration::ZERO, ..Behaviour::default() }
}

async fn change(ground: &Ground, kind: &Kind, namespace: &str, name: &str, patch: Value) -> kube::Result<()> {
    let api = kind.within(&ground.client, namespace);
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
}

async fn label(ground: &Ground, value: Value) {
    let patch = json!({"metadata": {"labels": {INJECTION_LABEL: value}}});
    change(ground, &NAMESPACE, "", &ground.namespace, patch).await.unwrap();
}

/// Deletes the Broker and has the namespace looked at by somebody who knows: a Broker that came later has been seen.
async fn lose_broker(ground: &Ground, later: &str) {
    ground.delete(&BROKER, "default").await;
    let mut marker = broker(&ground.namespace);
    marker["metadata"]["name"] = later.into();
    let marker = ground.create(marker).await;
    ground.looked_at(&marker).await;
    ground.looked_again(&NAMESPACE, &ground.namespace).await;
}

#[tokio::test]
async fn a_labelled_namespace_gets_a_broker_and_gets_it_again() {
    let ground = Ground::new("injection", quick()).await;
    label(&ground, "enabled".into()).await;
    ground.ready(&BROKER, "default").await;
    let first = ground.get(&BROKER, "default").await.unwrap();
    assert_eq!(first.labels()["eventing.knative.dev/namespaceInjected"], "true");
    ground.delete(&BROKER, "default").await;
    ground.until(&BROKER, "default", "is another one", |b| b.uid() != first.uid()).await;
    label(&ground, Value::Null).await;
    ground.looked_again(&NAMESPACE, &ground.namespace).await;
    assert!(ground.get(&BROKER, "default").await.is_some(), "it stays when the label goes");
    lose_broker(&ground, "first").await;
    assert!(ground.get(&BROKER, "default").await.is_none());
    ground.standins.change(|b| b.inject_once = true);
    label(&ground, "enabled".into()).await;
    ground.ready(&BROKER, "default").await;
    lose_broker(&ground, "second").await;
    assert!(ground.get(&BROKER, "default").await.is_none());
    ground.leave().await;
}

#[tokio::test]
async fn a_trigger_that_flaps_is_ready_then_is_not_and_is_again() {
    let ground = Ground::new("flap", Behaviour { flap: vec!["orders".into()], ..quick() }).await;
    ground.create(broker(&ground.namespace)).await;
    ground.ready(&BROKER, "default").await;
    // A watch misses nothing, however short it is.
    let triggers = TRIGGER.within(&ground.client, &ground.namespace);
    let before = triggers.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    ground.create(trigger("orders", &ground.namespace, "shop", "order.created", "http://orders:8080/")).await;
    let mut seen = pin!(triggers.watch(&WatchParams::default(), &before).await.unwrap());
    let mut ready = Vec::new();
    while ready.len() < 4 {
        let event = timeout(SOON, seen.next()).await.expect("it flaps soon").unwrap().unwrap();
        match event {
            WatchEvent::Added(trigger) | WatchEvent::Modified(trigger) => {
                ready.push(holds(&trigger, "Ready"));
            }
            other => panic!("{other:?}"),
        }
        ready.dedup();
    }
    assert_eq!(ready, [false, true, false, true]);
    assert!(holds(&ground.looked_again(&TRIGGER, "orders").await, "Ready"), "it flaps once");
    ground.leave().await;
}

#[tokio::test]
async fn a_trigger_is_ready_when_its_broker_is() {
    let ground = Ground::new("trigger", quick()).await;
    let mut bare = trigger("orders", &ground.namespace, "shop", "order.created", "http://orders:8080/");
    bare["spec"].as_object_mut().unwrap().retain(|field, _| field == "subscriber");
    ground.create(bare).await;
    ground
        .until(&TRIGGER, "orders", "misses its Broker", |t| {
            find(t, "Ready").is_some_and(|c| c["reason"] == "BrokerDoesNotExist")
        })
        .await;
    let found = ground.get(&TRIGGER, "orders").await.unwrap();
    assert_eq!(found.data["spec"]["filter"], json!({}));
    assert_eq!(found.data["spec"]["broker"], "default");
    assert_eq!(found.labels()[BROKER_LABEL], "default");
    ground.create(broker(&ground.namespace)).await;
    ground.ready(&TRIGGER, "orders").await;
    let found = ground.get(&TRIGGER, "orders").await.unwrap();
    assert_eq!(found.data["status"]["subscriberURI"], "http://orders:8080/");
    let api = KNATIVE_SUBSCRIPTION.within(&ground.client, &ground.namespace);
    let own = api.list(&ListParams::default().labels(&format!("{TRIGGER_LABEL}=orders"))).await.unwrap();
    assert_eq!(own.items.len(), 1);
    assert!(holds(&own.items[0], "Ready"));
    assert_eq!(own.items[0].owner_references()[0].uid, found.uid().unwrap());
    ground.leave().await;
}

#[tokio::test]
async fn a_trigger_and_a_broker_that_are_never_ready_say_why() {
    let behaviour = Behaviour { never_ready: vec!["Trigger:deaf".into(), "Broker:mute".into()], ..quick() };
    let ground = Ground::new("deaf", behaviour).await;
    ground.create(broker(&ground.namespace)).await;
    let mut mute = broker(&ground.namespace);
    mute["metadata"]["name"] = "mute".into();
    ground.create(mute).await;
    for (name, broker) in [("deaf", "default"), ("other", "mute"), ("fine", "default")] {
        let mut wanted = trigger(name, &ground.namespace, "shop", "order.created", "http://orders:8080/");
        wanted["spec"]["broker"] = broker.into();
        ground.create(wanted).await;
    }
    ground.ready(&TRIGGER, "fine").await;
    for (name, reason) in [("deaf", "NotSubscribed"), ("other", "BrokerNotReady")] {
        ground
            .until(&TRIGGER, name, reason, |t| find(t, "Ready").is_some_and(|c| c["reason"] == reason))
            .await;
    }
    ground.leave().await;
}

#[tokio::test]
async fn a_link_is_ready_while_its_channel_is() {
    let ground = Ground::new("link", quick()).await;
    let ns = ground.namespace.clone();
    ground.create(link("brokersub-1", &ns, "shop", &ns)).await;
    ground
        .until(&KNATIVE_SUBSCRIPTION, "brokersub-1", "misses its Channel", |s| {
            find(s, "Ready").is_some_and(|c| c["reason"] == "ChannelNotReady")
        })
        .await;
    ground.create(http_source("shop", &ns)).await;
    ground.ready(&KNATIVE_SUBSCRIPTION, "brokersub-1").await;
    ground.standins.change(|b| b.link_never_ready.push(format!("{ns}/shop")));
    ground.until(&KNATIVE_SUBSCRIPTION, "brokersub-1", "is not Ready any more", |s| !holds(s, "Ready")).await;
    ground.ready(&HTTP_SOURCE, "shop").await;
    ground.leave().await;
}

#[tokio::test]
async fn the_rules_of_the_webhooks_are_enforced() {
    let ground = Ground::new("webhooks", quick()).await;
    let ns = ground.namespace.clone();
    let good = || trigger("orders", &ns, "shop", "order.created", "http://orders:8080/");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut manifest = good();
        change(&mut manifest);
        manifest
    };
    let reference = json!({"apiVersion": "v1", "kind": "Service", "name": "orders"});
    let refused = [
        with(&|t| t["spec"]["subscriber"] = json!({})),
        with(&|t| t["spec"]["subscriber"] = json!({"uri": "/orders"})),
        with(&|t| t["spec"]["subscriber"]["ref"] = reference.clone()),
        with(&|t| t["spec"]["filter"]["attributes"]["Event-Type"] = "x".into()),
        with(&|t| t["spec"]["filter"]["sourceAndType"] = json!({"source": "shop"})),
        {
            let mut instance = service_instance("shop", &ns, "shop");
            instance["spec"]["servicePlanRef"] = json!({"name": "default"});
            instance
        },
        {
            let mut service = http_source("2shop", &ns);
            service["apiVersion"] = KNATIVE_SERVICE.api_version().into();
            service["kind"] = KNATIVE_SERVICE.kind.into();
            service
        },
    ];
    for manifest in refused {
        let error = cluster::create(&ground.client, &manifest).await.expect_err("must be refused");
        assert!(format!("{error:#}").contains("standins.belay.dev"), "{error:#}");
    }
    cluster::try_create(
        &ground.client,
        &with(&|t| t["spec"]["subscriber"] = json!({"ref": reference.clone()})),
    )
    .await
    .unwrap();
    ground.create(good()).await;
    ground.create(link("brokersub-1", &ns, "shop", &ns)).await;
    // Rules about updates come into force at the same time, but that can't be seen beforehand.
    let patch = json!({"spec": {"broker": "other"}});
    cluster::wait_until("another broker is refused", SOON, async || {
        let tried = change(&ground, &TRIGGER, &ns, "orders", patch.clone()).await;
        let back = json!({"spec": {"broker": "default"}});
        let _ = change(&ground, &TRIGGER, &ns, "orders", back).await;
        Ok(tried.is_err())
    })
    .await
    .unwrap();
    let patch = json!({"spec": {"channel": {"name": "other"}}});
    let tried = change(&ground, &KNATIVE_SUBSCRIPTION, &ns, "brokersub-1", patch).await;
    assert!(tried.is_err(), "the channel is immutable");
    assert!(ground.get(&CHANNEL, "shop").await.is_none());
    ground.leave().await;
}
