//! The whole migration, from the Event Bus to the mesh, and the way back: by the commands of the upgrade guide.

use std::{collections::BTreeMap, fs, os::unix::fs::symlink, path::PathBuf};

use helm_tests::{
    ground::{Ground, INTEGRATION, SOON, STEPS, SYSTEM, on_a_scene, test_chart},
    guide::Reader,
    programs::Said,
};
use kube::{ResourceExt as _, api::ListParams};
use serde_json::json;
use standins::{
    APPLICATION_OPERATOR,
    cluster::{self, wait_gone},
    conditions::holds,
    delivery::{Route, Witness},
    fixtures,
    kinds::{
        BROKER, CHANNEL, CRD, DEPLOYMENT, EVENT_ACTIVATION, HTTP_SOURCE, KNATIVE_SERVICE,
        KNATIVE_SUBSCRIPTION, Kind, LEGACY_SUBSCRIPTION, SERVICE_INSTANCE, STATEFUL_SET, TRIGGER,
    },
    landscape::{Instance, Scene, State},
};

use crate::guide::{LOOK, LOOK_FIRST, PURGE, UNDO, UNDO_WITH_KUBECTL, UPGRADE};

// The way back once is enough: Helm's part in it is a rollback, which has tests of its own.
under_helm!(more {
    helm_3: [bug_5_9_every_namespace_moves_to_the_mesh_without_a_gap_and_the_bus_is_purged_a_release_later],
    helm_4: [
        bug_5_9_every_namespace_moves_to_the_mesh_without_a_gap_and_the_bus_is_purged_a_release_later,
        the_whole_migration_is_taken_back_without_a_gap,
    ]
});

/// Two names of the one image that the node holds: what counts is that they differ.
const OLD_IMAGE: &str = "docker.io/library/belay-standins:dev";

/// What Helm calls the release before: the first revision.
const OLD_REVISION: &str = "1";

/// The namespace that is on the mesh before the upgrade.
const ON_MESH: &str = "migratefromeventmeshupgradetest";

/// The real system's upgrade test, and beside it a namespace that the mesh has never heard of, and an Application
/// that nobody uses.
fn scene() -> Scene {
    let mut scene = Scene::upgrade_test()
        .instance("shop", "commerce")
        .subscription("shop", "orders", "commerce", State::Legacy)
        .subscription("shop", "invoices", "commerce", State::Legacy);
    for application in ["commerce", "loyalty"] {
        scene.applications.insert(application.to_owned(), format!("{application}-events"));
    }
    OLD_IMAGE.clone_into(&mut scene.event_service_image);
    scene.within = SOON;
    scene
}

/// The release before: event-services that feed the Event Bus, no migration. One Application has lost its source, and a
/// namespace that was deleted long ago has left an object of the Event Bus behind, which nothing can delete.
async fn the_release_before(ground: &Ground) {
    // The scene's own stands in the way of the chart's.
    cluster::delete(&ground.client, &STATEFUL_SET, INTEGRATION, APPLICATION_OPERATOR).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let old = place.path().display().to_string();
    let new = PathBuf::from(test_chart("installation"));
    for part in ["Chart.yaml", "charts", "templates"] {
        symlink(new.join(part), place.path().join(part)).unwrap();
    }
    let values = json!({
        "image": fixtures::IMAGE, "migrations": {"enabled": false}, "mesh": false, "eventServiceImage": OLD_IMAGE,
    });
    fs::write(place.path().join("values.yaml"), values.to_string()).unwrap();
    ground.helm.run(&["install", "installation", &old, "--namespace", SYSTEM, "--wait"]).or_panic();
    cluster::delete(&ground.client, &HTTP_SOURCE, INTEGRATION, "loyalty").await.unwrap();
    wait_gone(&ground.client, &CHANNEL, INTEGRATION, "loyalty", SOON).await.unwrap();
    let left = fixtures::dangling_subscription("orders", "gone", SYSTEM, "commerce");
    cluster::create(&ground.client, &left).await.unwrap();
}

/// The uids of all objects of the mesh in the namespace that is on it already.
async fn uids_on_mesh(ground: &Ground) -> BTreeMap<String, String> {
    let mut uids = BTreeMap::new();
    for kind in [SERVICE_INSTANCE, EVENT_ACTIVATION, BROKER, TRIGGER] {
        for object in list(ground, &kind, ON_MESH).await {
            uids.insert(format!("{}/{}", kind.kind, object.name_any()), object.uid().unwrap());
        }
    }
    for link in list(ground, &KNATIVE_SUBSCRIPTION, INTEGRATION).await {
        if link.labels().get("broker-namespace").is_some_and(|namespace| namespace == ON_MESH) {
            uids.insert(format!("link/{}", link.name_any()), link.uid().unwrap());
        }
    }
    assert_eq!(uids.len(), 5, "{uids:?}");
    uids
}

async fn list(ground: &Ground, kind: &Kind, namespace: &str) -> Vec<kube::api::DynamicObject> {
    kind.within(&ground.client, namespace).list(&ListParams::default()).await.unwrap().items
}

/// What the real system's upgrade test asserts, and what it forgot.
async fn all_is_on_the_mesh(ground: &Ground, scene: &Scene) {
    for application in scene.applications.keys() {
        for kind in [HTTP_SOURCE, CHANNEL, KNATIVE_SERVICE] {
            let found = cluster::get(&ground.client, &kind, INTEGRATION, application).await.unwrap();
            assert!(found.is_some_and(|object| holds(&object, "Ready")), "{} {application}", kind.kind);
        }
    }
    for instance in &scene.instances {
        let found = cluster::get(&ground.client, &SERVICE_INSTANCE, &instance.namespace, &instance.name)
            .await
            .unwrap();
        assert_eq!(found.unwrap().data["status"]["provisionStatus"], "Provisioned", "{}", instance.name);
    }
    for subscription in &scene.subscriptions {
        let namespace = &subscription.namespace;
        let broker = cluster::get(&ground.client, &BROKER, namespace, "default").await.unwrap();
        assert!(broker.is_some_and(|broker| holds(&broker, "Ready")), "Broker of {namespace}");
        let triggers = list(ground, &TRIGGER, namespace).await;
        let mine = triggers
            .iter()
            .filter(|trigger| trigger.data["spec"]["subscriber"]["uri"] == subscription.endpoint);
        let mine: Vec<_> = mine.collect();
        assert_eq!(mine.len(), 1, "Triggers to {}", subscription.endpoint);
        assert!(holds(mine[0], "Ready"));
        for (key, value) in &subscription.labels {
            assert_eq!(mine[0].labels().get(key), Some(value));
        }
    }
    let left = LEGACY_SUBSCRIPTION.everywhere(&ground.client).list(&ListParams::default()).await.unwrap();
    assert_eq!(left.items.len(), 0, "legacy Subscriptions");
    ground.event_bus_must_have([0, 0]).await;
}

/// All is as before the upgrade, but that instances were provisioned anew, and links and Brokers stay.
async fn all_is_on_the_bus(ground: &Ground, scene: &Scene) {
    ground.event_bus_must_have([2, 1]).await;
    for Instance { namespace, name, application } in &scene.instances {
        let instance =
            cluster::get(&ground.client, &SERVICE_INSTANCE, namespace, name).await.unwrap().unwrap();
        assert_eq!(instance.data["status"]["provisionStatus"], "Provisioned", "{namespace}/{name}");
        let activation = &scene.applications[application];
        let activation =
            cluster::get(&ground.client, &EVENT_ACTIVATION, namespace, activation).await.unwrap().unwrap();
        let owners: Vec<_> = activation.owner_references().iter().map(|owner| owner.uid.clone()).collect();
        assert_eq!(owners, [instance.uid().unwrap()], "owners of {namespace}/{}", activation.name_any());
    }
    for subscription in scene.subscriptions.iter().filter(|subscription| subscription.state == State::Legacy)
    {
        let (namespace, name) = (&subscription.namespace, &subscription.name);
        let found = cluster::get(&ground.client, &LEGACY_SUBSCRIPTION, namespace, name).await.unwrap();
        assert!(found.is_some_and(|found| holds(&found, "is-ready")), "Subscription {namespace}/{name}");
        assert_eq!(list(ground, &TRIGGER, namespace).await.len(), 0, "Triggers in {namespace}");
    }
    assert!(cluster::get(&ground.client, &HTTP_SOURCE, INTEGRATION, "loyalty").await.unwrap().is_none());
    for service in list(ground, &DEPLOYMENT, INTEGRATION).await {
        let container = &service.data["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], OLD_IMAGE, "{}", service.name_any());
    }
}

/// Every step but the last says that there is nothing to do, or, when the APIs are gone, to migrate.
fn nothing_to_do(said: &Said) {
    for step in &STEPS[..6] {
        said.must_say(&format!("{step}: nothing to "));
    }
}

async fn no_gap(witness: Witness) {
    let gaps: Vec<String> = witness.end().await.iter().map(ToString::to_string).collect();
    assert!(gaps.is_empty(), "events had nowhere to go:\n{}", gaps.join("\n"));
}

fn bug_5_9_every_namespace_moves_to_the_mesh_without_a_gap_and_the_bus_is_purged_a_release_later(helm: u8) {
    let scene = scene();
    on_a_scene(helm, &scene, async |ground| {
        the_release_before(&ground).await;
        let before = uids_on_mesh(&ground).await;
        let reader = Reader::with(helm, &test_chart("installation"), OLD_REVISION, OLD_IMAGE);
        let witness = Witness::begin(&ground.client, Route::of(&scene)).await;

        reader.run(LOOK_FIRST).or_panic();
        reader.run(UPGRADE).or_panic();
        all_is_on_the_mesh(&ground, &scene).await;
        assert_eq!(uids_on_mesh(&ground).await, before, "the namespace that was on the mesh");
        reader.run(LOOK).or_panic();
        nothing_to_do(&reader.run(UPGRADE).or_panic());
        assert_eq!(uids_on_mesh(&ground).await, before, "the namespace that was on the mesh");

        reader.run(PURGE).or_panic();
        no_gap(witness).await;
        let crd = "subscriptions.eventing.kyma-project.io";
        assert!(cluster::get(&ground.client, &CRD, "", crd).await.unwrap().is_none(), "{crd} is still there");
        let left = list(&ground, &KNATIVE_SUBSCRIPTION, SYSTEM).await;
        assert!(left.is_empty(), "{} objects of the Event Bus are still there", left.len());
        nothing_to_do(&reader.run(UPGRADE).or_panic());
    });
}

fn the_whole_migration_is_taken_back_without_a_gap(helm: u8) {
    let scene = scene();
    on_a_scene(helm, &scene, async |ground| {
        the_release_before(&ground).await;
        let before = uids_on_mesh(&ground).await;
        let reader = Reader::with(helm, &test_chart("installation"), OLD_REVISION, OLD_IMAGE);
        reader.run(UPGRADE).or_panic();
        // Whoever upgrades twice finds the release before two revisions back.
        nothing_to_do(&reader.run(UPGRADE).or_panic());
        let witness = Witness::begin(&ground.client, Route::of(&scene)).await;
        for part in UNDO {
            reader.run(part).or_panic();
        }
        no_gap(witness).await;
        all_is_on_the_bus(&ground, &scene).await;
        assert_eq!(uids_on_mesh(&ground).await, before, "the namespace that was on the mesh");
        // And there again.
        reader.run(UPGRADE).or_panic();
        all_is_on_the_mesh(&ground, &scene).await;
        reader.run(UNDO_WITH_KUBECTL).or_panic();
        ground.event_bus_must_have([2, 1]).await;
    });
}
