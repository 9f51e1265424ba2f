//! What the steps of the event mesh need where there is much to migrate: time and peak memory of each, with stand-ins
//! that answer at once.
//!
//! 5,000 Subscriptions and 2,000 instances in 200 namespaces (`BENCH_SUBSCRIPTIONS`, `BENCH_INSTANCES`, `BENCH_NAMESPACES`)
//! on the API server of `BELAY_TEST_KUBECONFIG`. Nothing here passes or fails by the
//! clock; but no step may use more than 64 MB of memory, and in the end all must be migrated.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use e2e::{
    World,
    alone::{megabytes, run_alone, within_memory},
    scene::INTEGRATION,
    world::{program, resource},
};
use harness::StepCommand;
use standins::{
    Behaviour,
    kinds::{LEGACY_SUBSCRIPTION, TRIGGER},
    landscape::{Scene, Size, ready_links},
};

fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).map_or(otherwise, |text| text.parse().unwrap())
}

#[tokio::main]
async fn main() {
    let size = Size {
        applications: 20,
        namespaces: number("BENCH_NAMESPACES", 200),
        instances: number("BENCH_INSTANCES", 2000),
        subscriptions: number("BENCH_SUBSCRIPTIONS", 5000),
    };
    let binary =
        std::env::var_os("BELAY_RELEASE_BIN").map_or_else(|| program("BELAY_BIN", "belay"), PathBuf::from);
    println!("{size:?}, {}", binary.display());
    let scene = Scene::many(size).with_workloads();
    let world = World::scene(&scene, Behaviour { instant: true, ..Behaviour::default() }).await;
    println!("the scene is set");
    let long = ["--deadline", "3000", "--undo-reserve", "60"];
    // Waits as long as a slow machine needs: nothing here is judged by the clock.
    let patient = [
        "--recreate",
        "all",
        "--gone-within",
        "1200",
        "--provisioned-within",
        "1200",
        "--linked-within",
        "1200",
    ];
    let steps: [(&str, &[&str]); 3] = [
        ("recreate-service-instances", &patient),
        ("recreate-triggers", &["--ready-within", "1200"]),
        ("retire-subscriptions", &["--accept-event-loss"]),
    ];
    for (step, flags) in steps {
        let command: StepCommand = world.mesh_step(step, &[flags, &long].concat());
        let (took, peak) = run_alone(&binary, &command, &world.kubeconfig).await;
        println!("{step:28} {:8.1} s {:8.1} MB at the most", took.as_secs_f64(), megabytes(peak));
        within_memory(step, peak);
    }
    all_is_migrated(&world, &scene).await;
}

/// A step that did less would need less.
async fn all_is_migrated(world: &World, scene: &Scene) {
    assert_eq!(ready_links(&world.api.client(), INTEGRATION).await.unwrap(), scene.pairs());
    let triggers = world.api.list(&resource(&TRIGGER), None, None).await.unwrap();
    assert_eq!(triggers.len(), scene.subscriptions.len());
    let left = world.api.list(&resource(&LEGACY_SUBSCRIPTION), None, None).await.unwrap();
    assert!(left.is_empty(), "{} Subscriptions are left", left.len());
    println!(
        "{} links, {} Triggers, and no Subscription is left",
        scene.pairs().len(),
        scene.subscriptions.len()
    );
}
