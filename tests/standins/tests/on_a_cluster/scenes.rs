//! Whole scenes, against a real API server.

use std::time::{Duration, Instant};

use crate::ground::Ground;
use kube::ResourceExt;
use standins::conditions::holds;
use standins::kinds::{
    BROKER, EVENT_ACTIVATION, KNATIVE_SUBSCRIPTION, LEGACY_SUBSCRIPTION, NAMESPACE, SERVICE_INSTANCE, TRIGGER,
};
use standins::landscape::{Scene, Size};
use standins::{Behaviour, INJECTION_LABEL, cluster};

fn quick() -> Behaviour {
    Behaviour { finalizer_delay: Duration::ZERO, ..Behaviour::default() }
}

#[tokio::test]
async fn the_small_scene_is_before_the_mesh_but_for_one_subscription() {
    let ground = Ground::with_integration("small", quick(), &["other"]).await;
    let (one, other) = (ground.namespace.clone(), ground.beside("other"));
    let mut scene = ground.scene(Scene::small(&one, &other));
    scene.within = Duration::from_secs(30);
    let began = Instant::now();
    scene.fill(&ground.client).await.unwrap();
    println!("filled in {:?}", began.elapsed());
    for instance in &scene.instances {
        let found =
            cluster::get(&ground.client, &SERVICE_INSTANCE, &instance.namespace, &instance.name).await;
        let uid = found.unwrap().unwrap().uid().unwrap();
        let service = &scene.applications[&instance.application];
        let activation = cluster::get(&ground.client, &EVENT_ACTIVATION, &instance.namespace, service)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(activation.owner_references()[0].uid, uid);
    }
    let migrated = cluster::get(&ground.client, &TRIGGER, &other, "invoices").await.unwrap().unwrap();
    let legacy =
        cluster::get(&ground.client, &LEGACY_SUBSCRIPTION, &other, "invoices").await.unwrap().unwrap();
    assert!(holds(&migrated, "Ready") && holds(&legacy, "is-ready"));
    assert!(cluster::get(&ground.client, &BROKER, &one, "default").await.unwrap().is_none());
    let namespace = cluster::get(&ground.client, &NAMESPACE, "", &one).await.unwrap().unwrap();
    assert!(!namespace.labels().contains_key(INJECTION_LABEL) && namespace.annotations().is_empty());
    let links = ground.links().await;
    assert!(links.is_empty(), "{links:?}");
    ground.leave().await;
}

#[tokio::test]
async fn a_scene_of_many_objects_fills_within_its_time() {
    let ground = Ground::with_integration("many", Behaviour { instant: true, ..quick() }, &[]).await;
    let size = |name: &str, default| std::env::var(name).map_or(default, |text| text.parse().unwrap());
    let mut scene = ground.scene(Scene::many(Size {
        applications: size("APPLICATIONS", 5),
        namespaces: size("NAMESPACES", 8),
        instances: size("INSTANCES", 40),
        subscriptions: size("SUBSCRIPTIONS", 100),
    }));
    scene.within = Duration::from_secs(300);
    ground.standins.change(|behaviour| behaviour.namespaces.extend(scene.namespaces()));
    let began = Instant::now();
    scene.fill(&ground.client).await.unwrap();
    println!("{} objects in {:?}", scene.instances.len() + scene.subscriptions.len(), began.elapsed());
    ground.leave_with(&scene).await;
}

#[tokio::test]
async fn the_scene_of_the_upgrade_test_has_a_namespace_of_each_sort() {
    let ground = Ground::with_integration("upgrade", Behaviour { play_pods: true, ..quick() }, &[]).await;
    let scene = ground.scene(Scene::upgrade_test());
    ground.standins.change(|behaviour| behaviour.namespaces.extend(scene.namespaces()));
    scene.fill(&ground.client).await.unwrap();
    let bus = "migratefromeventbusupgradetest";
    let mesh = "migratefromeventmeshupgradetest";
    assert!(cluster::get(&ground.client, &BROKER, bus, "default").await.unwrap().is_none());
    let broker = cluster::get(&ground.client, &BROKER, mesh, "default").await.unwrap().unwrap();
    assert!(holds(&broker, "Ready"));
    let links = ground.links().await;
    assert_eq!(links.len(), 2);
    for link in &links {
        let api = KNATIVE_SUBSCRIPTION.within(&ground.client, &ground.integration);
        assert!(holds(&api.get(link).await.unwrap(), "Ready"), "{link}");
    }
    ground.leave_with(&scene).await;
}
