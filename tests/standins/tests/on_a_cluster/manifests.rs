//! Every manifest that this crate makes is accepted by the server, whichever CRDs are installed.

use crate::ground::Ground;
use standins::fixtures::{
    IMAGE, application, application_mapping, application_operator, application_with, broker, channel,
    dangling_subscription, deployment, event_activation, event_service, gadget, http_source,
    later_subscription, legacy_subscription, link, service_binding, service_broker, service_class,
    service_instance, service_plan, skipped_application, station, trigger, widget, workload,
};
use standins::kinds::{REPLICA_SET, STATEFUL_SET};
use standins::{Behaviour, Family, cluster, crds};

#[tokio::test]
async fn every_fixture_is_accepted() {
    let ground = Ground::new("manifests", Behaviour { paused: true, ..Behaviour::default() }).await;
    let ns = ground.namespace.as_str();
    let manifests = [
        application("shop"),
        application("shop.eu"),
        skipped_application("shop"),
        http_source("shop", ns),
        http_source("2shop.eu", ns),
        event_activation("shop-events", ns, "shop"),
        legacy_subscription("orders", ns, "shop", "order.created", "http://orders:8080/"),
        application_with("shop", &[("shop-1", &["Events", "API"]), ("shop-2", &["API"])]),
        application_mapping("shop", ns),
        service_broker(ns),
        service_class("Shop-Zone", ns),
        service_plan("Shop-Zone", ns),
        service_instance("shop", ns, "Shop-Zone"),
        service_binding("shop", ns, "shop"),
        trigger("orders", ns, "shop", "order.created", "http://orders:8080/"),
        broker(ns),
        channel("shop", ns),
        link("brokersub-1", ns, "shop", ns),
        dangling_subscription("orders", "gone", ns, "shop"),
        event_service("shop", ns, IMAGE, true),
        application_operator(ns, IMAGE),
        widget("w", ns, 100),
        gadget("g", ns, "w"),
        station("s", "Closed"),
        deployment("bus", ns, 2, IMAGE),
        workload(&STATEFUL_SET, "bus", ns, 1, IMAGE),
        workload(&REPLICA_SET, "bus", ns, 1, IMAGE),
    ];
    for manifest in manifests {
        cluster::try_create(&ground.client, &manifest).await.unwrap_or_else(|error| panic!("{error:#}"));
    }
    ground.leave().await;
}

#[tokio::test]
async fn what_the_real_schemas_refuse_is_refused() {
    let ground = Ground::new("refusals", Behaviour { paused: true, ..Behaviour::default() }).await;
    let ns = ground.namespace.as_str();
    let mut untyped = application("shop");
    untyped["spec"]["services"][0]["entries"][0]["type"] = "Fax".into();
    let mut nameless = application("shop");
    nameless["spec"]["services"][0].as_object_mut().unwrap().remove("displayName");
    let mut long = application("shop");
    long["spec"]["accessLabel"] = "a".repeat(64).into();
    let mut versionless = legacy_subscription("orders", ns, "shop", "order.created", "http://orders");
    versionless["spec"].as_object_mut().unwrap().remove("event_type_version");
    let ftp = legacy_subscription("orders", ns, "shop", "order.created", "ftp://orders");
    let spaced = legacy_subscription("orders", ns, "a shop", "order.created", "http://orders");
    let spaced_activation = event_activation("shop-events", ns, "a shop");
    for manifest in [untyped, nameless, long, versionless, ftp, spaced, spaced_activation] {
        assert!(cluster::try_create(&ground.client, &manifest).await.is_err(), "{manifest}");
    }
    // No endpoint, on the other hand, is accepted; that is one of the traps.
    let mut silent = legacy_subscription("orders", ns, "shop", "order.created", "http://orders");
    silent["spec"].as_object_mut().unwrap().remove("endpoint");
    cluster::try_create(&ground.client, &silent).await.unwrap();
    // The later schema is refused by the real CRD of the Event Bus; ours takes both, for steps that must tell them apart.
    let later = later_subscription("orders", ns, "http://orders");
    let is_taken = cluster::try_create(&ground.client, &later).await.is_ok();
    assert_eq!(is_taken, crds::upstream(Family::EventMesh).is_none());
    ground.leave().await;
}
