//! The Service Catalog and the application-broker, against a real API server with its garbage collector.

use std::time::Duration;

use crate::ground::{Ground, SOON};
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::json;
use standins::conditions::{find, holds};
use standins::fixtures::{
    application, application_mapping, service_binding, service_class, service_id, service_instance,
    service_plan,
};
use standins::kinds::{
    APPLICATION, BROKER, EVENT_ACTIVATION, HTTP_SOURCE, NAMESPACE, SERVICE_BINDING, SERVICE_INSTANCE,
};
use standins::landscape::{Mesh, Scene};
use standins::{
    Behaviour, BrokerRelease, Controller, INJECTION_LABEL, KNATIVE_SUBSCRIPTION_FINALIZER,
    SERVICE_INSTANCE_FINALIZER, cluster,
};

fn quick() -> Behaviour {
    Behaviour { finalizer_delay: Duration::ZERO, ..Behaviour::default() }
}

/// The catalog lets go of the instance when it is told to.
fn holds_on() -> Behaviour {
    Behaviour { hold_finalizer: vec!["ServiceInstance:shop".into()], ..quick() }
}

fn is_provisioned(instance: &DynamicObject) -> bool {
    instance.data["status"]["provisionStatus"] == "Provisioned"
}

/// A namespace on the mesh, with one instance of one Application: the ground, the scene, and the Application.
async fn on_the_mesh(test: &str, behaviour: Behaviour) -> (Ground, String) {
    let ground = Ground::with_integration(test, behaviour, &[]).await;
    let namespace = ground.namespace.clone();
    let scene = Scene::new(&["shop"]).instance(&namespace, "shop").on_mesh(&namespace, Mesh::Complete);
    let scene = ground.scene(scene);
    scene.fill(&ground.client).await.unwrap();
    let application = scene.applications.keys().next().unwrap().clone();
    (ground, application)
}

/// The same without a source, so that the Application has no Channel, and without an instance.
async fn without_channel(test: &str, behaviour: Behaviour) -> (Ground, String) {
    let ground = Ground::with_integration(test, behaviour, &[]).await;
    let shop = ground.application("shop");
    let service = service_id(&shop);
    ground.create(application(&shop)).await;
    for manifest in [
        application_mapping(&shop, &ground.namespace),
        service_class(&service, &ground.namespace),
        service_plan(&service, &ground.namespace),
    ] {
        ground.create(manifest).await;
    }
    (ground, shop)
}

async fn provisioned(ground: &Ground, name: &str) -> DynamicObject {
    ground.until(&SERVICE_INSTANCE, name, "is provisioned", is_provisioned).await;
    ground.get(&SERVICE_INSTANCE, name).await.unwrap()
}

#[tokio::test]
async fn the_catalog_takes_a_new_instance_over_and_the_broker_links_its_namespace() {
    let (ground, shop) = on_the_mesh("provision", quick()).await;
    let mut manifest = service_instance("second", &ground.namespace, &service_id(&shop));
    manifest["metadata"]["finalizers"] = json!(["belay.dev/mine"]);
    manifest["spec"]["externalID"] = "my-own-id".into();
    ground.create(manifest).await;
    let second = provisioned(&ground, "second").await;
    assert_eq!(second.finalizers(), [SERVICE_INSTANCE_FINALIZER]);
    assert_eq!(second.data["spec"]["externalID"], "my-own-id");
    let another = Patch::Merge(json!({"spec": {"externalID": "another"}}));
    let instances = SERVICE_INSTANCE.within(&ground.client, &ground.namespace);
    let tried = instances.patch("second", &PatchParams::default(), &another).await;
    assert!(tried.is_err_and(|error| error.to_string().contains("spec.externalID is immutable")));
    assert_eq!(second.data["spec"]["serviceClassRef"]["name"], service_id(&shop));
    assert!(second.data["spec"]["servicePlanRef"]["name"].is_string());
    assert!(second.data["spec"]["userInfo"]["username"].is_string());
    assert!(second.labels().contains_key("servicecatalog.k8s.io/spec.serviceClassRef.name"));
    assert!(holds(&second, "Ready"));
    assert_eq!(second.data["status"]["reconciledGeneration"], json!(second.metadata.generation));
    // The EventActivation now belongs to the later instance.
    let activation = ground.get(&EVENT_ACTIVATION, &service_id(&shop)).await.unwrap();
    assert_eq!(activation.owner_references()[0].uid, second.uid().unwrap());
    assert_eq!(activation.data["spec"]["sourceId"], shop);
    assert_eq!(ground.links().await.len(), 1, "two instances share one link");
    let link = ground.links().await.remove(0);
    assert!(link.starts_with("brokersub-"));
    let api = standins::kinds::KNATIVE_SUBSCRIPTION.within(&ground.client, &ground.integration);
    let link = api.get(&link).await.unwrap();
    assert!(holds(&link, "Ready"));
    assert_eq!(link.finalizers(), [KNATIVE_SUBSCRIPTION_FINALIZER]);
    let uri = format!("http://default-broker.{}", ground.namespace);
    assert_eq!(link.data["spec"]["subscriber"]["uri"], uri);
    let namespace = cluster::get(&ground.client, &NAMESPACE, "", &ground.namespace).await.unwrap().unwrap();
    assert_eq!(namespace.labels()[INJECTION_LABEL], "enabled");
    ground.ready(&BROKER, "default").await;
    // Taking one of the two away takes the link of both away.
    ground.delete(&SERVICE_INSTANCE, "second").await;
    ground.gone(&SERVICE_INSTANCE, "second").await;
    assert!(ground.links().await.is_empty());
    ground.gone(&EVENT_ACTIVATION, &service_id(&shop)).await;
    ground.leave().await;
}

#[tokio::test]
async fn bug_5_5_without_a_channel_an_instance_is_failed_for_good() {
    let (ground, shop) = without_channel("channelless", quick()).await;
    ground.create(service_instance("shop", &ground.namespace, &service_id(&shop))).await;
    ground.until(&SERVICE_INSTANCE, "shop", "has failed", |i| holds(i, "Failed")).await;
    let source = standins::fixtures::http_source(&shop, &ground.integration);
    ground.create(source).await;
    cluster::wait_ready(&ground.client, &HTTP_SOURCE, &ground.integration, &shop, SOON).await.unwrap();
    let failed = ground.looked_again(&SERVICE_INSTANCE, "shop").await;
    assert!(holds(&failed, "Failed") && !is_provisioned(&failed), "it is never tried again");
    let message = find(&failed, "Failed").unwrap()["message"].as_str().unwrap().to_owned();
    assert!(message.contains("Knative channel"), "{message}");
    assert!(ground.get(&EVENT_ACTIVATION, &service_id(&shop)).await.is_some(), "made before it failed");
    ground.delete(&SERVICE_INSTANCE, "shop").await;
    ground.gone(&SERVICE_INSTANCE, "shop").await;
    ground.create(service_instance("shop", &ground.namespace, &service_id(&shop))).await;
    provisioned(&ground, "shop").await;
    ground.leave().await;
}

#[tokio::test]
async fn race_7500_an_activation_that_is_still_going_is_never_replaced() {
    let (ground, shop) = on_the_mesh("race", quick()).await;
    let activation = service_id(&shop);
    ground.until(&EVENT_ACTIVATION, &activation, "is held", |a| !a.finalizers().is_empty()).await;
    ground.standins.change(|b| b.hold_finalizer.push("EventActivation:*".into()));
    ground.delete(&SERVICE_INSTANCE, "shop").await;
    ground.gone(&SERVICE_INSTANCE, "shop").await;
    ground
        .until(&EVENT_ACTIVATION, &activation, "is going", |a| a.metadata.deletion_timestamp.is_some())
        .await;
    ground.create(service_instance("shop", &ground.namespace, &service_id(&shop))).await;
    provisioned(&ground, "shop").await;
    ground.standins.change(|b| b.hold_finalizer.clear());
    ground.gone(&EVENT_ACTIVATION, &activation).await;
    ground.looked_again(&SERVICE_INSTANCE, "shop").await;
    assert!(ground.get(&EVENT_ACTIVATION, &activation).await.is_none());
    ground.leave().await;
}

#[tokio::test]
async fn the_newer_broker_removes_an_ownerless_activation_with_the_last_instance() {
    let newer = Behaviour { broker_release: BrokerRelease::V1_11, ..quick() };
    let (ground, shop) = on_the_mesh("newer", newer).await;
    let activation = service_id(&shop);
    ground.create(service_instance("second", &ground.namespace, &service_id(&shop))).await;
    provisioned(&ground, "second").await;
    let found = ground.get(&EVENT_ACTIVATION, &activation).await.unwrap();
    assert!(found.owner_references().is_empty());
    ground.delete(&SERVICE_INSTANCE, "second").await;
    ground.gone(&SERVICE_INSTANCE, "second").await;
    assert_eq!(ground.get(&EVENT_ACTIVATION, &activation).await.unwrap().uid(), found.uid());
    ground.delete(&SERVICE_INSTANCE, "shop").await;
    ground.gone(&SERVICE_INSTANCE, "shop").await;
    ground.gone(&EVENT_ACTIVATION, &activation).await;
    ground.leave().await;
}

#[tokio::test]
async fn an_instance_with_a_binding_can_not_be_deleted() {
    // The catalog lets go of the instance only when it has seen the binding.
    let (ground, _) = on_the_mesh("bound", holds_on()).await;
    ground.create(service_binding("credentials", &ground.namespace, "shop")).await;
    ground.delete(&SERVICE_INSTANCE, "shop").await;
    ground
        .until(&SERVICE_INSTANCE, "shop", "says what blocks it", |i| {
            find(i, "Ready").is_some_and(|c| c["reason"] == "DeprovisionBlockedByExistingCredentials")
        })
        .await;
    ground.standins.change(|b| b.hold_finalizer.clear());
    ground.looked_again(&SERVICE_INSTANCE, "shop").await;
    ground.delete(&SERVICE_BINDING, "credentials").await;
    ground.gone(&SERVICE_INSTANCE, "shop").await;
    ground.leave().await;
}

#[tokio::test]
async fn bug_5_8_an_instance_whose_application_is_gone_stays_for_ever() {
    let (ground, shop) = on_the_mesh("orphan", holds_on()).await;
    cluster::delete(&ground.client, &APPLICATION, "", &shop).await.unwrap();
    // The broker knows that the Application is gone before it is asked: what came later has been seen.
    let later = ground.create(application(&ground.application("later"))).await;
    ground.looked_at(&later).await;
    ground.standins.change(|b| b.hold_finalizer.clear());
    ground.delete(&SERVICE_INSTANCE, "shop").await;
    ground
        .until(&SERVICE_INSTANCE, "shop", "says that the broker refused", |i| {
            find(i, "Ready").is_some_and(|c| c["reason"] == "DeprovisionCallFailed")
        })
        .await;
    ground.looked_again(&SERVICE_INSTANCE, "shop").await;
    ground.create(application(&shop)).await;
    ground.gone(&SERVICE_INSTANCE, "shop").await;
    ground.leave().await;
}

#[tokio::test]
async fn the_broker_misbehaves_as_told() {
    let behaviour = Behaviour {
        refuse: vec!["refused".into()],
        no_link: vec!["linkless".into()],
        no_activation: vec!["inactive".into()],
        never_ready: vec!["ServiceInstance:endless".into()],
        ..quick()
    };
    let (ground, shop) = without_channel("misbehave", behaviour).await;
    ground.create(standins::fixtures::http_source(&shop, &ground.integration)).await;
    cluster::wait_ready(&ground.client, &HTTP_SOURCE, &ground.integration, &shop, SOON).await.unwrap();
    for name in ["refused", "endless", "inactive"] {
        ground.create(service_instance(name, &ground.namespace, &service_id(&shop))).await;
    }
    provisioned(&ground, "inactive").await;
    assert!(ground.get(&EVENT_ACTIVATION, &service_id(&shop)).await.is_none());
    assert_eq!(ground.links().await.len(), 1);
    ground.delete(&SERVICE_INSTANCE, "inactive").await;
    ground.gone(&SERVICE_INSTANCE, "inactive").await;
    ground.create(service_instance("linkless", &ground.namespace, &service_id(&shop))).await;
    provisioned(&ground, "linkless").await;
    assert!(ground.links().await.is_empty());
    ground.until(&SERVICE_INSTANCE, "refused", "has failed", |i| holds(i, "Failed")).await;
    let endless = ground.get(&SERVICE_INSTANCE, "endless").await.unwrap();
    assert_eq!(endless.data["status"]["currentOperation"], "Provision");
    assert!(!is_provisioned(&endless));
    ground.leave().await;
}

#[tokio::test]
async fn two_links_are_more_than_the_broker_can_deprovision() {
    let (ground, shop) =
        without_channel("twice", Behaviour { two_links: vec!["shop".into()], ..quick() }).await;
    ground.create(standins::fixtures::http_source(&shop, &ground.integration)).await;
    cluster::wait_ready(&ground.client, &HTTP_SOURCE, &ground.integration, &shop, SOON).await.unwrap();
    ground.create(service_instance("shop", &ground.namespace, &service_id(&shop))).await;
    provisioned(&ground, "shop").await;
    let links = ground.links().await;
    assert_eq!(links.len(), 2);
    ground.delete(&SERVICE_INSTANCE, "shop").await;
    ground
        .until(&SERVICE_INSTANCE, "shop", "says that the broker refused", |i| {
            find(i, "Ready").is_some_and(|c| c["reason"] == "DeprovisionCallFailed")
        })
        .await;
    let kind = standins::kinds::KNATIVE_SUBSCRIPTION;
    cluster::delete(&ground.client, &kind, &ground.integration, &links[1]).await.unwrap();
    ground.gone(&SERVICE_INSTANCE, "shop").await;
    ground.leave().await;
}

#[tokio::test]
async fn a_silent_broker_answers_when_it_is_back() {
    let (ground, shop) = on_the_mesh("silent", quick()).await;
    ground.standins.change(|b| b.stopped.push(Controller::ApplicationBroker));
    ground.create(service_instance("second", &ground.namespace, &service_id(&shop))).await;
    ground
        .until(&SERVICE_INSTANCE, "second", "is in progress", |i| {
            i.data["status"]["asyncOpInProgress"] == true
        })
        .await;
    ground.delete(&SERVICE_INSTANCE, "shop").await;
    ground.looked_again(&SERVICE_INSTANCE, "shop").await;
    assert!(!is_provisioned(&ground.looked_again(&SERVICE_INSTANCE, "second").await));
    ground.standins.change(|b| b.stopped.clear());
    ground.gone(&SERVICE_INSTANCE, "shop").await;
    provisioned(&ground, "second").await;
    ground.leave().await;
}

#[tokio::test]
async fn instances_made_at_the_same_time_share_a_link_unless_the_broker_races() {
    let (ground, shop) = without_channel("together", quick()).await;
    ground.create(standins::fixtures::http_source(&shop, &ground.integration)).await;
    cluster::wait_ready(&ground.client, &HTTP_SOURCE, &ground.integration, &shop, SOON).await.unwrap();
    let manifests: Vec<_> =
        (0..5).map(|n| service_instance(&format!("i{n}"), &ground.namespace, &service_id(&shop))).collect();
    futures::future::try_join_all(manifests.iter().map(|m| cluster::create(&ground.client, m)))
        .await
        .unwrap();
    for n in 0..5 {
        provisioned(&ground, &format!("i{n}")).await;
    }
    assert_eq!(ground.links().await.len(), 1);
    // A broker that races takes a link that is going for one that is there: in the end there is none.
    ground.standins.change(|b| {
        b.race_links = true;
        b.hold_finalizer.push("Subscription:brokersub-*".into());
    });
    ground.delete(&SERVICE_INSTANCE, "i0").await;
    ground.gone(&SERVICE_INSTANCE, "i0").await;
    ground.create(manifests[0].clone()).await;
    provisioned(&ground, "i0").await;
    assert_eq!(ground.links().await.len(), 1);
    ground.standins.change(|b| b.hold_finalizer.clear());
    cluster::wait_until("the link is gone", SOON, async || Ok(ground.links().await.is_empty()))
        .await
        .unwrap();
    ground.looked_again(&SERVICE_INSTANCE, "i0").await;
    assert!(ground.links().await.is_empty());
    ground.leave().await;
}

#[tokio::test]
async fn with_api_packages_the_plan_is_the_service() {
    let (ground, shop) = without_channel("packages", quick()).await;
    ground.create(standins::fixtures::http_source(&shop, &ground.integration)).await;
    cluster::wait_ready(&ground.client, &HTTP_SOURCE, &ground.integration, &shop, SOON).await.unwrap();
    let package = format!("{shop}-package");
    ground.create(service_class(&package, &ground.namespace)).await;
    let mut plan = service_plan(&package, &ground.namespace);
    plan["spec"]["externalID"] = service_id(&shop).into();
    plan["spec"]["externalName"] = "orders".into();
    ground.create(plan).await;
    let mut instance = service_instance("shop", &ground.namespace, &package);
    instance["spec"]["servicePlanExternalName"] = "orders".into();
    ground.create(instance).await;
    provisioned(&ground, "shop").await;
    assert!(ground.get(&EVENT_ACTIVATION, &service_id(&shop)).await.is_some());
    assert_eq!(ground.links().await.len(), 1);
    ground.leave().await;
}
