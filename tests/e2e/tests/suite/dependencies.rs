//! An API that is not there yet, because a dependency is being installed.

use std::time::Duration;

use e2e::{Told, World, told::Telling, world::SOON};
use standins::{Behaviour, cluster, kinds::HTTP_SOURCE};

#[tokio::test]
async fn a_crd_that_appears_while_the_step_waits_is_picked_up() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.remove_crd("httpsources.sources.kyma-project.io").await;
    let run =
        world.start(&world.sources(&["--deadline", "300"]).bound(Duration::from_secs(360)), vec![]).await;
    run.until_it_says("waiting for httpsources").await;
    // It looks again, however often: a dependency may well take a while.
    let looked = run.proxy.calls().len();
    cluster::wait_until("it has looked again", SOON, async || Ok(run.proxy.calls().len() > looked + 1))
        .await
        .unwrap();
    world.restore_crd("httpsources.sources.kyma-project.io").await;
    run.wait().await.unwrap().exits(0).says("waiting for httpsources").says("1 created");
    assert_eq!(world.names(&HTTP_SOURCE).await, ["commerce"]);
}
