//! A run that is told to stop, or killed: the next one goes on from there.

use e2e::{
    Told, World,
    told::{Telling as _, is_move},
    world::{SOON, prompt},
};
use harness::{At, Class, Exit, Fault};
use rustix::process::Signal;
use standins::{Behaviour, Family, kinds::HTTP_SOURCE};

const STEP: &str = "create-missing-sources";

#[tokio::test]
async fn sigterm_half_way_leaves_the_work_to_the_next_run_and_is_no_death() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce", "logistics"]).await;
    for attempt in 0..4 {
        let run = world.start(&world.sources(&[]), vec![]).await;
        let at =
            move |call: &harness::Call| if attempt == 0 { is_move(call) } else { call.class == Class::Watch };
        run.proxy.when(at, SOON).await.unwrap();
        run.signal(Signal::TERM).unwrap();
        let told = run.wait().await.unwrap();
        told.exits(143).says("told to stop: the next run goes on from here");
        assert!(told.moves().iter().all(|made| made.starts_with("create")), "no undo: {:?}", told.moves());
        assert_eq!(world.holder(Family::EventMesh).await, "");
        assert_eq!(world.journals(STEP).await[0]["deaths"], 0);
    }
    world.standins.change(|behaviour| behaviour.paused = false);
    world.run(&world.sources(&[])).await.exits(0).says("resuming");
    assert_eq!(world.names(&HTTP_SOURCE).await.len(), 2);
    let journals = world.journals(STEP).await;
    assert_eq!((journals.len(), &journals[0]["status"]), (1, &"done".into()));
}

#[tokio::test]
async fn sigterm_in_the_midst_of_every_move_loses_nothing() {
    let undisturbed = {
        let world = World::fixture(prompt()).await;
        world.run(&world.step(&[])).await.exits(0);
        world.state().await
    };
    let world = World::fixture(prompt()).await;
    let mut interrupted = 0;
    loop {
        assert!(interrupted < 30, "it never finishes");
        // One call at a time, so that each attempt comes a little further.
        let step = world.step(&[]).env("BELAY_CONCURRENCY", "1");
        // The signal comes before the answer to the first move.
        let run = world.run_with(&step, vec![Fault::Terminate(At::first(is_move))]).await;
        if run.exit == Exit::Code(0) {
            break;
        }
        run.exits(143);
        interrupted += 1;
    }
    assert!(interrupted >= 5, "only {interrupted} runs were interrupted");
    let after = world.state().await;
    assert!(undisturbed.diff(&after).is_empty(), "{}", undisturbed.diff(&after));
}

#[tokio::test]
async fn sigterm_ends_a_wait_for_the_lock_or_for_an_api_at_once() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    let works = world.start(&world.sources(&[]), vec![]).await;
    works.proxy.when(is_move, SOON).await.unwrap();
    let waits = world.start(&world.sources(&["--deadline", "120"]), vec![]).await;
    waits.until_it_says("waiting for the lock").await;
    let looked = waits.proxy.calls().len();
    waits.signal(Signal::TERM).unwrap();
    let told = waits.wait().await.unwrap();
    // It would have looked again and again, for a minute.
    assert!(told.exits(143).calls.len() <= looked + 2, "{:?}", &told.calls[looked..]);
    assert_ne!(world.holder(Family::EventMesh).await, "", "the other one still works");
    works.signal(Signal::TERM).unwrap();
    works.wait().await.unwrap().exits(143);
    world.run(&world.operate("restore", &["--step", STEP])).await.exits(0);

    world.remove_crd("httpsources.sources.kyma-project.io").await;
    // It would wait for longer than it may live here.
    let waits = world.start(&world.sources(&["--deadline", "1h"]), vec![]).await;
    waits.until_it_says("waiting for httpsources").await;
    waits.signal(Signal::TERM).unwrap();
    waits.wait().await.unwrap().exits(143).changes_nothing();
}

#[tokio::test]
async fn a_step_that_dies_three_times_is_undone_by_the_fourth_run() {
    let world = World::fixture(prompt()).await;
    let before = world.state().await;
    world.standins.change(|behaviour| behaviour.never_ready = vec!["anvil".into(), "bench".into()]);
    for deaths in 0..3 {
        let run = world.start(&world.step(&[]), vec![]).await;
        let at =
            move |call: &harness::Call| if deaths == 0 { is_move(call) } else { call.class == Class::Watch };
        run.proxy.when(at, SOON).await.unwrap();
        run.signal(Signal::KILL).unwrap();
        assert_eq!(run.wait().await.unwrap().exit, Exit::Signal(9));
        assert_eq!(world.journals("fixture").await[0]["deaths"], deaths);
    }
    let run = world.run(&world.step(&[])).await;
    run.exits(4).says("3 attempts died half-way").says("Everything is as it was before");
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
    assert_eq!(world.journal_status("fixture").await, "undone");
    // Undone is not the end: with the cause gone the step runs again.
    world.standins.change(|behaviour| behaviour.never_ready.clear());
    world.run(&world.step(&[])).await.exits(0);
}
