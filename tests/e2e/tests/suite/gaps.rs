//! For how long events have nowhere to go while instances are recreated: as long as the report says, and no longer.

use std::time::Duration;

use e2e::{
    Told, World,
    scene::{ONE, PROMPT, TWO},
    told::Telling as _,
};
use harness::{At, Call, Fault};
use rustix::process::Signal;
use standins::{
    Behaviour, BrokerRelease,
    delivery::{Gap, Route, Witness},
    landscape::{Mesh, Scene, State},
};

const STEP: &str = "recreate-service-instances";

/// The links of both namespaces are of one Application; events of the first take the old path, those of the other the
/// mesh.
fn scene() -> Scene {
    Scene::new(&["commerce"])
        .instance(ONE, "commerce")
        .subscription(ONE, "orders", "commerce", State::Legacy)
        .subscription(ONE, "invoices", "commerce", State::Legacy)
        .instance(TWO, "commerce")
        .on_mesh(TWO, Mesh::Complete)
        .subscription(TWO, "orders", "commerce", State::TriggerOnly)
        .with_workloads()
}

/// What a witness saw while the step ran with these flags, and what the step's report said of it. The gap, if there is to
/// be one, is in this namespace.
async fn gaps(release: BrokerRelease, flags: &[&str], gap: Option<&'static str>) -> (Vec<Gap>, String) {
    let scene = scene();
    let behaviour = Behaviour {
        broker_release: release,
        finalizer_delay: PROMPT,
        steady_names: true,
        ..Behaviour::default()
    };
    let world = World::scene(&scene, behaviour).await;
    let witness = Witness::begin(&world.api.client(), Route::of(&scene)).await;
    let creates = move |call: &Call| {
        crate::creates("commerce")(call) && gap.is_some() && call.target.namespace.as_deref() == gap
    };
    let (hold, holding) = Fault::hold(At::first(creates));
    let run = world.start(&world.mesh_step(STEP, flags), vec![hold]).await;
    if gap.is_some() {
        run.until_it_sends(creates).await;
        // The witness sees the end of the gap before the step can: what it measures must be no longer, by however little.
        run.signal(Signal::STOP).unwrap();
        holding.release();
        witness.until_whole().await;
        run.signal(Signal::CONT).unwrap();
    }
    run.wait().await.unwrap().exits(0);
    let gaps = witness.end().await;
    (gaps, world.run(&world.operate("report", &[STEP])).await.stdout)
}

/// For how long delivery of this Application's events to this namespace was off at most, by the report.
fn reported(report: &str, path: &str, namespace: &str) -> Option<Duration> {
    let line = format!("{path} delivery from commerce to namespace {namespace} was off for at most ");
    let (_, rest) = report.split_once(&line)?;
    let (time, _) = rest.split_once(':').expect("it says why");
    let seconds = time.strip_suffix(" s").and_then(|seconds| seconds.parse().ok());
    Some(Duration::from_secs(seconds.unwrap_or_else(|| panic!("{time:?} is no number of seconds"))))
}

/// Every gap is in this namespace, and no longer than the report says.
fn all_are_reported(gaps: &[Gap], report: &str, path: &str, namespace: &str) {
    let told = reported(report, path, namespace).unwrap_or_else(|| panic!("no gap is told:\n{report}"));
    for gap in gaps {
        assert!(gap.route.namespace == namespace && gap.lasted <= told, "{gap}; the report:\n{report}");
    }
}

// On threads of their own, so that neither the stand-ins nor the witness wait for each other: a gap is measured.
#[tokio::test(flavor = "multi_thread")]
async fn bug_5_9_where_the_broker_keeps_the_event_activation_there_is_no_gap_and_none_is_told() {
    let (gaps, report) = gaps(BrokerRelease::V1_10, &[], None).await;
    assert!(gaps.is_empty(), "{gaps:?}");
    assert!(!report.contains("was off"), "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bug_5_9_where_the_broker_deletes_the_event_activation_no_gap_is_longer_than_the_report_says() {
    let (gaps, report) = gaps(BrokerRelease::V1_11, &[], Some(ONE)).await;
    assert_eq!(gaps.len(), 2, "one for each subscriber: {gaps:?}");
    all_are_reported(&gaps, &report, "legacy", ONE);
    assert_eq!(reported(&report, "mesh", TWO), None, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bug_5_9_where_a_link_that_worked_is_made_anew_no_gap_is_longer_than_the_report_says() {
    let (gaps, report) = gaps(BrokerRelease::V1_10, &["--recreate", "all"], Some(TWO)).await;
    assert_eq!(gaps.len(), 1, "{gaps:?}");
    all_are_reported(&gaps, &report, "mesh", TWO);
    assert_eq!(reported(&report, "legacy", ONE), None, "{report}");
}
