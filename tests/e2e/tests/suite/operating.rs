//! What a person does with runs: status, report, restore, accept, unlock.

use e2e::{Told, World, told::is_move, world::SOON};
use harness::{At, Fault};
use standins::{
    Behaviour, Family,
    kinds::{DEPLOYMENT, HTTP_SOURCE},
};

const SOURCES: &str = "create-missing-sources";
const DOWN: &str = "scale-down-legacy";

#[tokio::test]
async fn finished_steps_are_undone_in_the_reverse_of_their_order() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.workload(&DEPLOYMENT, "publisher", 2).await;
    world.run(&world.sources(&[])).await.exits(0);
    world.run(&world.scale_down(&["Deployment/publisher"], &[])).await.exits(0);
    let first = world.operate("restore", &["--step", SOURCES]);
    let second = world.operate("restore", &["--step", DOWN]);

    let run = world.run(&first).await;
    run.exits(3).changes_nothing();
    run.says("scale-down-legacy ran after create-missing-sources and must be undone before it");
    world
        .run(&second.clone().args(["--dry-run"]))
        .await
        .exits(0)
        .writes_nothing()
        .says("scale Deployment/e2e-integration/publisher is taken back");
    world.run(&second).await.exits(0).says("1 changes of run");
    assert_eq!(world.get(&DEPLOYMENT, "publisher").await.unwrap()["spec"]["replicas"], 2);
    world
        .run(&first.clone().args(["--dry-run"]))
        .await
        .exits(0)
        .writes_nothing()
        .says("create HTTPSource/e2e-integration/commerce is taken back");
    world.run(&first).await.exits(0);
    assert!(world.names(&HTTP_SOURCE).await.is_empty());
    world.run(&first).await.exits(3).says("has nothing to restore");
    // And forward again.
    world.run(&world.sources(&[])).await.exits(0).says("1 created");
}

#[tokio::test]
async fn a_run_that_died_can_be_restored_without_running_it_again() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    world.run(&world.operate("restore", &["--step", SOURCES])).await.exits(0).says("took the lock over");
    assert!(world.names(&HTTP_SOURCE).await.is_empty());
    assert_eq!(world.journal_status(SOURCES).await, "undone");
}

#[tokio::test]
async fn status_tells_of_every_step_what_happened_and_what_to_do_next() {
    let world = World::mesh(Behaviour::default()).await;
    let mut status = world.operate("status", &[]);
    // The home is found by the family's Lease.
    status.env.remove("BELAY_HOME");
    world.run(&status).await.exits(0).says("no step has run here yet").writes_nothing();

    world.applications(&["commerce", "logistics"]).await;
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    world.run(&world.scale_down(&["Deployment/publisher"], &["--release", "mesh"])).await.exits(0);
    world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    let run = world.run(&status).await;
    run.exits(0).writes_nothing().says("1 open journals").says("died half-way").says("OPEN since");
    run.says(
        "run create-missing-sources again, or belay restore --step create-missing-sources --home e2e-home",
    );

    let rows = world.run(&status.clone().args(["-o", "json"])).await.exits(0).json();
    let row = |step: &str| rows.as_array().unwrap().iter().find(|row| row["step"] == step).unwrap();
    assert_eq!(row(SOURCES)["journals"][0]["status"], "open");
    assert_eq!(row(DOWN)["report"]["result"], "done");
    assert_eq!(row(DOWN)["report"]["counts"]["scaled"], 1);
    assert_eq!((&row(DOWN)["home"], &row(DOWN)["next"]), (&world.home.into(), &"-".into()));
    let rows = world.run(&status.clone().args(["-o", "json", "--release", "mesh"])).await.json();
    assert!(rows.as_array().unwrap().iter().any(|row| row["step"] == DOWN));
}

#[tokio::test]
async fn a_report_tells_what_was_done_to_each_object_also_after_a_run_that_did_nothing() {
    let world = World::mesh(Behaviour::default()).await;
    world
        .run(&world.operate("report", &[SOURCES]))
        .await
        .exits(3)
        .says("has left no report in namespace e2e-home");
    world.applications(&["commerce", "logistics"]).await;
    world.run(&world.sources(&[])).await.exits(0);
    world.run(&world.sources(&[])).await.exits(0);
    let run = world.run(&world.operate("report", &[SOURCES])).await;
    run.exits(0).writes_nothing().says("create-missing-sources: nothing to do");
    run.says("created HTTPSource/e2e-integration/commerce")
        .says("created HTTPSource/e2e-integration/logistics");
    run.says("Earlier verdicts:").says("create-missing-sources: done: 2 created");
    world
        .run(&world.operate("report", &["no-such-step"]))
        .await
        .exits(3)
        .says("the steps are create-missing-sources");
}

#[tokio::test]
async fn nothing_can_be_operated_while_a_run_is_alive_and_a_dead_lock_can_be_released() {
    let world = World::fixture(Behaviour::default()).await;
    world.standins.change(|behaviour| behaviour.paused = true);
    let alive = world.start(&world.step(&["--deadline", "60"]), vec![]).await;
    alive.proxy.when(is_move, SOON).await.unwrap();
    let unlock = world.operate("unlock", &["--family", "fixture"]);
    let (accept, restore) =
        (world.operate("accept", &["--step", "fixture"]), world.operate("restore", &["--step", "fixture"]));
    for run in futures::future::join_all([&unlock, &accept, &restore].map(|command| world.run(command))).await
    {
        run.exits(75).says("holds the lock").changes_nothing();
    }
    alive.signal(rustix::process::Signal::KILL).unwrap();
    alive.wait().await.unwrap();
    world.run(&unlock).await.exits(0).says("the lock of a run that had died is released").changes_nothing();
    assert_eq!(world.holder(Family::Fixture).await, "");
    world.run(&unlock).await.exits(0).says("nobody held the lock");
    world
        .run(&world.operate("unlock", &["--family", "nonsense"]))
        .await
        .exits(3)
        .says("there is no family 'nonsense'");
}
