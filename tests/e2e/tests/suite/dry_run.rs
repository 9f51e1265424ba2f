//! `--dry-run` shows what would be done, asks the server, and writes nothing: no lock, no report, no Event either.

use e2e::{
    Told, World, policy,
    world::{prompt, resource},
};
use standins::{
    Behaviour, fixtures,
    kinds::{DEPLOYMENT, GADGET, HTTP_SOURCE},
};

#[tokio::test]
async fn a_dry_run_shows_a_diff_and_writes_nothing() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    let run = world.run(&world.sources(&["--dry-run"])).await;
    run.exits(0).writes_nothing().says("dry run, nothing was written: 2 moves planned");
    run.says("create HTTPSource/e2e-integration/commerce  (the server accepts it)");
    run.says("+     \"source\": \"commerce\"");
    run.says("until HTTPSource/e2e-integration/commerce and its Channel Ready");

    world.workload(&DEPLOYMENT, "publisher", 2).await;
    let run = world.run(&world.scale_down(&["Deployment/publisher"], &["--dry-run"])).await;
    run.exits(0).writes_nothing().says("~ spec.replicas from 2 to 0");
    assert!(world.own("leases", "belay-event-mesh").await.is_none());
}

#[tokio::test]
async fn a_dry_run_of_every_move_is_readable_for_programs() {
    let world = World::fixture(prompt()).await;
    let before = world.state().await;
    let run = world.run(&world.step(&["--dry-run", "-o", "json"])).await;
    let shown = run.exits(0).writes_nothing().json();
    let chains = |part: &str| shown["plan"][part].as_array().unwrap().clone();
    let phases = chains("phases");
    let first: Vec<_> = phases.iter().flat_map(|phase| phase.as_array().unwrap().clone()).collect();
    let moves: Vec<_> = first
        .iter()
        .chain(&chains("pointOfNoReturn"))
        .flat_map(|chain| chain["moves"].as_array().unwrap().clone())
        .collect();
    for action in ["create", "delete", "recreate", "patch", "scale", "advance", "wait"] {
        assert!(moves.iter().any(|one| one["action"] == action), "{action}");
    }
    // What depends on an object that is not there yet is not tried.
    let owned = moves.iter().find(|one| one["object"] == "ConfigMap/e2e-workshop/anvil-manual").unwrap();
    assert_eq!(owned["server"]["notTried"], "its owner Gadget/e2e-workshop/anvil is not there yet");
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
}

#[tokio::test]
async fn a_dry_run_tells_what_the_server_would_refuse() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    let example = fixtures::http_source("logistics", world.place);
    let unless = "object.spec.source != 'logistics'";
    policy::refuse_create(&world.api, "e2e-no-sources", &resource(&HTTP_SOURCE), unless, &example).await;
    let tried = world.run(&world.sources(&["--dry-run"])).await;
    let done = world.run(&world.sources(&[])).await;
    policy::remove(&world.api, "e2e-no-sources").await;
    tried.exits(3).writes_nothing().says("the server would refuse 1 of 2 moves");
    tried
        .says("create HTTPSource/e2e-integration/logistics  (THE SERVER REFUSES IT: ")
        .says("this policy says no");
    // Done in earnest, the same is a failure that takes the other one back.
    done.exits(4).says("this policy says no");
    world.until_names(&HTTP_SOURCE, &[]).await;
}

#[tokio::test]
async fn a_dry_run_works_beside_a_run_that_is_alive() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    let alive = world.start(&world.sources(&[]), vec![]).await;
    alive.proxy.when(e2e::told::is_move, e2e::world::SOON).await.unwrap();
    world.applications(&["logistics"]).await;
    world
        .run(&world.sources(&["--dry-run"]))
        .await
        .exits(0)
        .writes_nothing()
        .says("create HTTPSource/e2e-integration/logistics");
    world.standins.change(|behaviour| behaviour.paused = false);
    alive.wait().await.unwrap().exits(0).says("2 created");
}

#[tokio::test]
async fn a_dry_run_refuses_what_the_run_itself_would_refuse() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["good", "with.dot"]).await;
    world
        .run(&world.sources(&["--dry-run"]))
        .await
        .exits(3)
        .writes_nothing()
        .says("--exclude Application/with.dot");
}

#[tokio::test]
async fn a_dry_run_refuses_to_take_away_what_could_not_be_made_again() {
    let world = World::fixture(prompt()).await;
    let example = fixtures::gadget("drill", world.place, "crank");
    let unless = "object.metadata.name != 'drill'";
    policy::refuse_create(&world.api, "e2e-no-drill", &resource(&GADGET), unless, &example).await;
    let tried = world.run(&world.step(&["--dry-run"])).await;
    policy::remove(&world.api, "e2e-no-drill").await;
    tried.exits(3).writes_nothing();
    tried.says("Gadget/e2e-workshop/drill: will not be deleted, since it could not be created again");
}
