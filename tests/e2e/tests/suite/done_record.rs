//! Steps that cannot see in the cluster that they already ran write it down.

use e2e::{Told, World, world::prompt};
use harness::{At, Exit, Fault, Resource, StepCommand};
use standins::fixtures;

const NOTED: &str = env!("CARGO_BIN_EXE_noted-step");

#[tokio::test]
async fn what_a_user_has_since_undone_on_purpose_is_not_done_again() {
    let world = World::fixture(prompt()).await;
    let maps = Resource::core("configmaps");
    let step = |flags: &[&str]| world.other_step(NOTED, flags);
    world.run(&step(&[])).await.exits(0).says("3 created");
    world.api.delete(&maps, Some(world.place), "anvil-note").await.unwrap();
    world.run(&step(&[])).await.exits(0).says("nothing to do").changes_nothing();
    // What is new is done, and what was done before is still known then.
    world.create(&fixtures::widget("drum", world.place, 1)).await;
    assert_eq!(world.run(&step(&[])).await.exits(0).moves(), ["create drum-note"]);
    world.run(&step(&[])).await.exits(0).changes_nothing();
    assert_eq!(world.run(&step(&["--again"])).await.exits(0).moves(), ["create anvil-note"]);
}

#[tokio::test]
async fn what_a_run_did_before_it_died_is_on_record_when_the_next_one_has_finished() {
    let world = World::fixture(prompt()).await;
    let step = world.other_step(NOTED, &[]).env("BELAY_CONCURRENCY", "1");
    let killed = world.run_with(&step, vec![Fault::KillAfter(At::first(e2e::told::is_move))]).await;
    assert_eq!((killed.exit, killed.moves()), (Exit::Signal(9), vec!["create anvil-note".to_owned()]));
    world.run(&step).await.exits(0).says("resuming");
    world.run(&step).await.exits(0).says("nothing to do").changes_nothing();
    for note in ["anvil-note", "bench-note"] {
        world.api.delete(&Resource::core("configmaps"), Some(world.place), note).await.unwrap();
    }
    world.run(&step).await.exits(0).says("nothing to do").changes_nothing();
}

#[tokio::test]
async fn what_was_restored_is_off_the_record_and_can_be_done_again() {
    let world = World::fixture(prompt()).await;
    let step = world.other_step(NOTED, &[]);
    world.run(&step).await.exits(0).says("3 created");
    let restore = StepCommand { program: NOTED.into(), ..world.operate("restore", &["--step", "noted"]) };
    world.run(&restore).await.exits(0).says("3 changes were taken back");
    assert_eq!(world.run(&step).await.exits(0).moves().len(), 3);
    world.run(&step).await.exits(0).says("nothing to do").changes_nothing();
}

#[tokio::test]
async fn an_optional_api_that_is_missing_is_noted() {
    let world = World::fixture(prompt()).await;
    world.remove_crd("stations.fixture.belay.dev").await;
    let run = world.run(&world.other_step(NOTED, &[])).await;
    run.exits(0).says("3 created");
    let findings = world.report("noted").await["findings"].to_string();
    assert!(
        findings
            .contains("stations.fixture.belay.dev is not served by this cluster: the step does without it"),
        "{findings}"
    );
}
