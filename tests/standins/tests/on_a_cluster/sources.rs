//! The HTTPSource stand-in, against a real API server.

use std::time::{Duration, Instant};

use crate::ground::{Ground, SOON};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::ResourceExt;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use standins::conditions::{find, holds};
use standins::fixtures::http_source;
use standins::kinds::{CHANNEL, HTTP_SOURCE, KNATIVE_SERVICE, Kind};
use standins::{Behaviour, Controller};
use tokio::time::timeout;

fn sources() -> Behaviour {
    Behaviour { controllers: vec![Controller::HttpSource], ..Behaviour::default() }
}

#[tokio::test]
async fn a_source_gets_a_channel_then_an_adapter_and_is_ready() {
    let ground = Ground::new("ready", sources()).await;
    let made = ground.create(http_source("shop", &ground.namespace)).await;
    ground.ready(&HTTP_SOURCE, "shop").await;
    let source = ground.get(&HTTP_SOURCE, "shop").await.unwrap();
    let channel = ground.get(&CHANNEL, "shop").await.unwrap();
    let adapter = ground.get(&KNATIVE_SERVICE, "shop").await.unwrap();
    assert_eq!(source.data["status"]["SinkURI"], channel.data["status"]["address"]["url"]);
    assert_eq!(source.data["status"]["observedGeneration"], 1);
    assert_eq!(find(&source, "PolicyCreated").unwrap()["severity"], "Info");
    for condition in ["BackingChannelReady", "Addressable", "Ready"] {
        assert!(holds(&channel, condition), "{condition}");
    }
    assert!(holds(&adapter, "Ready"));
    for child in [channel, adapter] {
        let owner = &child.owner_references()[0];
        assert_eq!((owner.uid.clone(), owner.controller), (made.uid().unwrap(), Some(true)));
        assert_eq!(child.labels()["application-name"], "shop");
    }
    ground.leave().await;
}

#[tokio::test]
async fn a_slow_source_is_not_ready_before_its_time() {
    let behaviour = Behaviour { delay: Duration::from_secs(1), ..sources() };
    let ground = Ground::new("slow", behaviour).await;
    let mut sources = changes(&ground, &HTTP_SOURCE).await;
    let mut channels = changes(&ground, &CHANNEL).await;
    let mut adapters = changes(&ground, &KNATIVE_SERVICE).await;
    let started = Instant::now();
    ground.create(http_source("shop", &ground.namespace)).await;
    ground.ready(&HTTP_SOURCE, "shop").await;
    assert!(started.elapsed() >= Duration::from_secs(2), "Channel and adapter take a second each");
    let reason = |source: &DynamicObject| Some(find(source, "Ready")?["reason"].as_str()?.to_owned());
    let mut reasons = Vec::new();
    until_seen(&mut sources, |source| {
        reasons.extend(reason(source));
        holds(source, "Ready")
    })
    .await;
    reasons.dedup();
    assert_eq!(reasons, ["SinkNotFound", "ServiceNotReady"]);
    let channel = until_seen(&mut channels, |channel| holds(channel, "Ready")).await;
    let adapter = until_seen(&mut adapters, |_| true).await;
    assert!(version(&channel) < version(&adapter), "the adapter waits for the Channel");
    ground.leave().await;
}

/// All that happens from now on to objects of a kind: a watch misses nothing, however short it is.
async fn changes(ground: &Ground, kind: &Kind) -> Changes {
    let api = kind.within(&ground.client, &ground.namespace);
    let before = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    api.watch(&WatchParams::default(), &before).await.unwrap().boxed()
}

type Changes = BoxStream<'static, kube::Result<WatchEvent<DynamicObject>>>;

/// The first of these objects of which this is true.
async fn until_seen(changes: &mut Changes, mut is_it: impl FnMut(&DynamicObject) -> bool) -> DynamicObject {
    loop {
        match timeout(SOON, changes.next()).await.unwrap().unwrap().unwrap() {
            WatchEvent::Added(object) | WatchEvent::Modified(object) if is_it(&object) => return object,
            WatchEvent::Added(_) | WatchEvent::Modified(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

fn version(object: &DynamicObject) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_source_that_is_never_ready_says_why_until_told_otherwise() {
    let behaviour =
        Behaviour { never_ready: vec!["deaf".into()], channel_never_ready: vec!["mute".into()], ..sources() };
    let ground = Ground::new("never", behaviour).await;
    for name in ["deaf", "mute", "fine"] {
        ground.create(http_source(name, &ground.namespace)).await;
    }
    ground.ready(&HTTP_SOURCE, "fine").await;
    ground
        .until(&HTTP_SOURCE, "deaf", "says what its adapter lacks", |source| {
            let message = find(source, "Ready").map(|c| c["message"].to_string()).unwrap_or_default();
            message.contains("The adapter Service is not yet ready") && message.contains("ready Revision")
        })
        .await;
    ground
        .until(&HTTP_SOURCE, "mute", "says that it has no sink", |source| {
            find(source, "SinkProvided").is_some_and(|c| c["reason"] == "SinkNotFound")
        })
        .await;
    for name in ["deaf", "mute"] {
        assert!(!holds(&ground.looked_again(&HTTP_SOURCE, name).await, "Ready"), "{name}");
    }
    assert!(ground.get(&KNATIVE_SERVICE, "mute").await.is_none());
    ground.standins.change(|behaviour| {
        behaviour.never_ready.clear();
        behaviour.channel_never_ready.clear();
    });
    for name in ["deaf", "mute"] {
        ground.ready(&HTTP_SOURCE, name).await;
    }
    ground.leave().await;
}

#[tokio::test]
async fn a_name_that_serving_refuses_never_gets_an_adapter() {
    let ground = Ground::new("names", sources()).await;
    for name in ["shop.eu", "2shop"] {
        ground.create(http_source(name, &ground.namespace)).await;
    }
    for name in ["shop.eu", "2shop"] {
        ground.until(&HTTP_SOURCE, name, "has a status", |s| find(s, "Ready").is_some()).await;
        ground.ready(&CHANNEL, name).await;
        assert!(!holds(&ground.looked_again(&HTTP_SOURCE, name).await, "Ready"), "{name}");
        assert!(ground.get(&KNATIVE_SERVICE, name).await.is_none());
    }
    ground.leave().await;
}

#[tokio::test]
async fn a_lost_channel_leaves_the_adapter_alone() {
    let ground = Ground::new("lost", Behaviour { lose_channel: vec!["shop".into()], ..sources() }).await;
    ground.create(http_source("shop", &ground.namespace)).await;
    ground.until(&KNATIVE_SERVICE, "shop", "exists", |_| true).await;
    ground.gone(&CHANNEL, "shop").await;
    ground.until(&HTTP_SOURCE, "shop", "has lost its sink", |s| find(s, "Ready").is_some()).await;
    let source = ground.looked_again(&HTTP_SOURCE, "shop").await;
    assert!(ground.get(&CHANNEL, "shop").await.is_none(), "it is not made again");
    assert!(!holds(&source, "Ready"));
    ground.standins.change(|behaviour| behaviour.lose_channel.clear());
    ground.ready(&HTTP_SOURCE, "shop").await;
    ground.ready(&CHANNEL, "shop").await;
    ground.leave().await;
}

#[tokio::test]
async fn a_channel_that_somebody_deletes_is_made_again() {
    let ground = Ground::new("again", sources()).await;
    ground.create(http_source("shop", &ground.namespace)).await;
    ground.ready(&HTTP_SOURCE, "shop").await;
    let first = ground.get(&CHANNEL, "shop").await.unwrap().uid();
    ground.delete(&CHANNEL, "shop").await;
    ground.until(&CHANNEL, "shop", "is another one", |c| c.uid() != first && holds(c, "Ready")).await;
    ground.leave().await;
}

#[tokio::test]
async fn instant_sources_have_no_adapter() {
    let behaviour = Behaviour { instant: true, no_observed_generation: true, ..sources() };
    let ground = Ground::new("instant", behaviour).await;
    ground.create(http_source("shop", &ground.namespace)).await;
    ground.ready(&HTTP_SOURCE, "shop").await;
    ground.ready(&CHANNEL, "shop").await;
    assert!(ground.get(&KNATIVE_SERVICE, "shop").await.is_none());
    let status = ground.get(&HTTP_SOURCE, "shop").await.unwrap().data["status"].clone();
    assert!(status.get("observedGeneration").is_none());
    ground.leave().await;
}

#[tokio::test]
async fn paused_stand_ins_do_nothing_until_they_go_on() {
    let ground = Ground::new("paused", Behaviour { paused: true, ..sources() }).await;
    let source = ground.create(http_source("shop", &ground.namespace)).await;
    ground.looked_at(&source).await;
    assert!(ground.get(&CHANNEL, "shop").await.is_none());
    ground.standins.change(|behaviour| behaviour.paused = false);
    ground.ready(&HTTP_SOURCE, "shop").await;
    ground.leave().await;
}

#[tokio::test]
async fn what_a_deleted_source_owned_goes_too() {
    // Whether the cluster has a garbage collector or not: with one, ours finds nothing left to do.
    let ground = Ground::new("garbage", Behaviour { collect_garbage: true, ..sources() }).await;
    ground.create(http_source("shop", &ground.namespace)).await;
    ground.ready(&HTTP_SOURCE, "shop").await;
    ground.delete(&HTTP_SOURCE, "shop").await;
    ground.gone(&CHANNEL, "shop").await;
    ground.gone(&KNATIVE_SERVICE, "shop").await;
    ground.leave().await;
}
