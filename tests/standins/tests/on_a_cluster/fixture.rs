//! The stand-ins of the runtime's fixture family, and the rules of its CRDs, against a real API server.

use std::time::{Duration, Instant};

use crate::ground::Ground;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;
use standins::conditions::holds;
use standins::fixtures::{gadget, station, widget};
use standins::kinds::{GADGET, STATION, WIDGET};
use standins::{Behaviour, Controller, GADGET_FINALIZER, cluster};

fn fixtures() -> Behaviour {
    Behaviour { controllers: vec![Controller::Widget, Controller::Gadget], ..Behaviour::default() }
}

#[tokio::test]
async fn a_widget_is_ready_again_after_every_change() {
    let ground = Ground::new("widget", fixtures()).await;
    let mut manifest = widget("w", &ground.namespace, 3);
    cluster::apply(&ground.client, &manifest).await.unwrap();
    ground.ready(&WIDGET, "w").await;
    manifest["spec"]["size"] = 4.into();
    cluster::apply(&ground.client, &manifest).await.unwrap();
    ground
        .until(&WIDGET, "w", "is Ready in its second generation", |w| {
            w.data["status"]["observedGeneration"] == 2 && holds(w, "Ready")
        })
        .await;
    ground.leave().await;
}

#[tokio::test]
async fn a_widget_on_the_list_is_never_ready() {
    let ground = Ground::new("refused", Behaviour { never_ready: vec!["w*".into()], ..fixtures() }).await;
    ground.create(widget("w", &ground.namespace, 3)).await;
    ground
        .until(&WIDGET, "w", "is refused", |w| w.data["status"]["conditions"][0]["reason"] == "Refused")
        .await;
    ground.leave().await;
}

#[tokio::test]
async fn a_deleted_gadget_stays_for_a_while() {
    let behaviour = Behaviour { finalizer_delay: Duration::from_secs(1), ..fixtures() };
    let ground = Ground::new("gadget", behaviour).await;
    ground.create(gadget("g", &ground.namespace, "w")).await;
    ground.ready(&GADGET, "g").await;
    assert_eq!(ground.get(&GADGET, "g").await.unwrap().finalizers(), [GADGET_FINALIZER]);
    let deleted = Instant::now();
    let gadgets = GADGET.within(&ground.client, &ground.namespace);
    let stays = gadgets.delete("g", &DeleteParams::default()).await.unwrap().left();
    assert!(stays.is_some_and(|gadget| gadget.metadata.deletion_timestamp.is_some()));
    ground.gone(&GADGET, "g").await;
    assert!(deleted.elapsed() >= Duration::from_secs(1));
    ground.leave().await;
}

#[tokio::test]
async fn the_server_keeps_the_rules_of_the_fixture_kinds() {
    let ground = Ground::new("rules", fixtures()).await;
    let refused = async |manifest: serde_json::Value, why: &str| {
        let error = cluster::try_create(&ground.client, &manifest).await.unwrap_err();
        assert!(format!("{error:#}").contains(why), "{error:#}");
    };
    refused(widget("w", &ground.namespace, 101), "should be less than or equal to 100").await;
    let mut wrong = widget("w", &ground.namespace, 1);
    wrong["spec"]["phase"] = "Broken".into();
    refused(wrong, "Unsupported value").await;
    refused(station("s", "Ajar"), "Unsupported value").await;
    let mut unknown = gadget("g", &ground.namespace, "w");
    unknown["spec"]["wodget"] = "w".into();
    refused(unknown, "wodget").await;

    ground.create(widget("w", &ground.namespace, 1)).await;
    let mut repainted = widget("w", &ground.namespace, 1);
    repainted["spec"]["color"] = "red".into();
    refused(repainted, "spec.color cannot be changed").await;
    let part = json!({
        "apiVersion": WIDGET.api_version(), "kind": WIDGET.kind,
        "metadata": {"name": "w", "namespace": ground.namespace},
        "spec": {"size": 1, "parts": [{"name": "washer"}]},
    });
    let api = WIDGET.within(&ground.client, &ground.namespace);
    let params = kube::api::PatchParams::apply("somebody").force();
    let merged = api.patch("w", &params, &kube::api::Patch::Apply(part)).await.unwrap();
    assert_eq!(merged.data["spec"]["parts"].as_array().unwrap().len(), 3, "parts merge by name");

    let name = format!("station-{}", std::process::id());
    ground.create(station(&name, "Closed")).await;
    cluster::delete(&ground.client, &STATION, "", &name).await.unwrap();
    ground.leave().await;
}
