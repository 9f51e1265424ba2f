//! Journals that cannot be used: refused, with what to do about it.

use std::time::Duration;

use e2e::{Told, World, told::is_move, world::prompt};
use harness::{At, Call, Class, Exit, Fault, Resource, Scope};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use standins::{Behaviour, kinds::HTTP_SOURCE};

const STEP: &str = "create-missing-sources";

/// A cluster in which a run died half-way.
async fn after_a_death() -> World {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    let killed = world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    assert_eq!(killed.exit, Exit::Signal(9));
    assert_eq!(world.journal_status(STEP).await, "open");
    world
}

async fn write(world: &World, secret: &str, key: &str, bytes: &[u8]) {
    let data = json!({"data": {key: ByteString(bytes.to_vec())}});
    world.api.merge(&Resource::core("secrets"), Some(world.home), secret, None, &data).await.unwrap();
}

#[tokio::test]
async fn a_journal_of_an_unknown_format_is_refused() {
    let world = after_a_death().await;
    for (head, says) in [
        (
            &br#"{"format": 99, "journals": []}"#[..],
            "has format 99, and this version of belay reads format 1",
        ),
        (b"{}", "does not say its format"),
        (b"gibberish", "is not readable"),
    ] {
        write(&world, "belay-create-missing-sources", "head", head).await;
        world.run(&world.sources(&[])).await.exits(3).says(says).changes_nothing();
        // A step cannot know what another step's journal holds either.
        let other = world.scale_down(&["Deployment/nothing-there"], &[]);
        world.run(&other).await.exits(3).says(says).changes_nothing();
    }
}

#[tokio::test]
async fn a_broken_chunk_is_refused_until_a_person_accepts() {
    let world = after_a_death().await;
    write(&world, "belay-create-missing-sources-00", "entries", b"gibberish").await;
    let run = world.run(&world.sources(&[])).await;
    run.exits(3).changes_nothing().says("Secret/e2e-home/belay-create-missing-sources-00");
    run.says("is not what was written").says("belay accept --step create-missing-sources --home e2e-home");
    world.run(&world.operate("restore", &["--step", STEP])).await.exits(3).says("is not what was written");

    world.run(&world.operate("accept", &["--step", STEP, "--remark", "looked at it"])).await.exits(0);
    let journal = &world.journals(STEP).await[0];
    assert_eq!((&journal["status"], &journal["remark"]), (&json!("accepted"), &json!("looked at it")));
    world.run(&world.sources(&[])).await.exits(0);
    assert_eq!(world.names(&HTTP_SOURCE).await.len(), 2);
}

#[tokio::test]
async fn a_missing_chunk_is_refused() {
    let world = after_a_death().await;
    let secrets = Resource::core("secrets");
    world.api.delete(&secrets, Some(world.home), "belay-create-missing-sources-00").await.unwrap();
    let run = world.run(&world.sources(&[])).await;
    run.exits(3).changes_nothing().says("belay-create-missing-sources-00").says("is missing");
}

/// Text that does not become smaller: every object then counts in full.
fn noise(bytes: usize) -> String {
    use std::io::Read as _;
    let mut random = vec![0; bytes];
    std::fs::File::open("/dev/urandom").unwrap().read_exact(&mut random).unwrap();
    let encoded: Value = serde_json::to_value(ByteString(random)).unwrap();
    encoded.as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_journal_that_would_be_too_large_is_refused() {
    let world = World::fixture(prompt()).await;
    let label = json!({"fixture": "replace"});
    for number in 0..17 {
        world.config_map(&format!("large-{number}"), &label, &noise(720_000)).await;
    }
    // Packing that much takes its time in a build that is not optimised.
    let step = world.step(&["--deadline", "300"]).bound(Duration::from_secs(300));
    let run = world.run(&step).await;
    run.exits(3).says("the journal of fixture is too large").says("--exclude").changes_nothing();
    assert_eq!(world.journal_status("fixture").await, "none");
}

/// Each of them fits into a Secret, but no two of them do.
#[tokio::test]
async fn large_objects_are_journalled_too() {
    let world = World::fixture(prompt()).await;
    for number in 0..2 {
        world.config_map(&format!("large-{number}"), &json!({"fixture": "replace"}), &noise(600_000)).await;
    }
    world.run(&world.step(&[])).await.exits(0);
}

#[tokio::test]
async fn only_the_last_few_journals_are_kept() {
    let world = World::mesh(Behaviour::default()).await;
    for name in ["one", "two", "three", "four", "five", "six"] {
        world.applications(&[name]).await;
        world.run(&world.sources(&[])).await.exits(0);
    }
    let journals = world.journals(STEP).await;
    assert_eq!(journals.len(), 4);
    assert!(journals.iter().all(|journal| journal["status"] == "done"));
}

/// "Nothing was written" is true of this run, and half of the truth: a refusal would end the Job half-way.
#[tokio::test]
async fn a_call_that_fails_before_the_journal_is_read_is_a_refusal_only_where_no_journal_is_open() {
    let review = |call: &Call| call.path.contains("selfsubjectaccessreviews");
    let broken =
        || Fault::FailForGood { at: At::first(review), status: 422, scope: Scope::Target, until: None };
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    world.run_with(&world.sources(&[]), vec![broken()]).await.exits(3).says("nothing was written");
    drop(world);
    let world = after_a_death().await;
    let run = world.run_with(&world.sources(&[]), vec![broken()]).await;
    run.exits(1)
        .says("an earlier attempt left its journal open, and it could not be taken up")
        .changes_nothing();
    world.run(&world.sources(&[])).await.exits(0).says("resuming");
}

#[tokio::test]
async fn a_run_that_could_not_close_its_journal_is_no_death() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let closes = |call: &Call| {
        call.class == Class::Journal
            && call.verb == harness::Verb::Update
            && call.name.as_deref() == Some("belay-create-missing-sources")
    };
    let broken = Fault::FailForGood { at: At::first(closes), status: 422, scope: Scope::Body, until: None };
    let run = world.run_with(&world.sources(&[]), vec![broken]).await;
    run.exits(1).says("all is done, but the journal could not be closed");
    assert_eq!(world.journals(STEP).await[0]["handedOn"], true);
    world.run(&world.sources(&[])).await.exits(0);
    let journal = &world.journals(STEP).await[0];
    assert_eq!((&journal["status"], &journal["deaths"]), (&json!("done"), &json!(0)));
}
