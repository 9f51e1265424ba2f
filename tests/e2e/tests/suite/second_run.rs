//! A second run has nothing to do, and writes nothing but what every run writes.

use e2e::{Told, World, world::prompt};
use standins::{
    Behaviour,
    kinds::{DEPLOYMENT, STATEFUL_SET},
};

#[tokio::test]
async fn create_missing_sources_writes_nothing_the_second_time() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics", "loyalty"]).await;
    assert_eq!(world.run(&world.sources(&[])).await.exits(0).moves().len(), 3);
    let before = world.state().await;
    world.run(&world.sources(&[])).await.exits(0).says("nothing to do").changes_nothing();
    let after = world.state().await;
    assert!(before.diff(&after).is_empty() && before.identities == after.identities);
}

#[tokio::test]
async fn scale_down_legacy_writes_nothing_the_second_time() {
    let world = World::mesh(Behaviour::default()).await;
    world.workload(&DEPLOYMENT, "publisher", 2).await;
    world.workload(&STATEFUL_SET, "store", 1).await;
    let step = world.scale_down(&["Deployment/publisher", "StatefulSet/store"], &[]);
    world.run(&step).await.exits(0).says("2 scaled");
    world.run(&step).await.exits(0).says("nothing to do").changes_nothing();
}

#[tokio::test]
async fn the_fixture_step_writes_nothing_the_second_time() {
    let world = World::fixture(prompt()).await;
    world.run(&world.step(&[])).await.exits(0);
    let before = world.state().await;
    world.run(&world.step(&[])).await.exits(0).says("nothing to do").changes_nothing();
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
}
