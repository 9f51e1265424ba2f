//! Deadlines: for going forward, then for undo, both counted from the Job's start.

use e2e::{
    Told, World,
    told::is_move,
    world::{SOON, prompt},
};
use harness::{At, Exit, Fault, Resource};
use k8s_openapi::jiff::{Timestamp, ToSpan as _, Unit};
use serde_json::{Value, json};
use standins::{Behaviour, cluster, kinds::HTTP_SOURCE};

#[tokio::test]
async fn at_the_deadline_the_step_is_undone_within_its_reserve() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce", "logistics"]).await;
    let run = world.run(&world.sources(&["--deadline", "8", "--undo-reserve", "60"])).await;
    run.exits(4).says("Everything is as it was before");
    world.until_names(&HTTP_SOURCE, &[]).await;
    let seconds = world.report("create-missing-sources").await["seconds"].as_f64().unwrap();
    // How much longer is the machine's affair: an undo that does not end within its reserve is another verdict.
    assert!(seconds >= 8.0, "{seconds} s");
}

/// Undo waits for what is going, but not for ever: what is left then is named.
#[tokio::test]
async fn an_undo_that_does_not_end_within_its_reserve_is_exit_5_and_names_the_finalizer() {
    let world = World::fixture(Behaviour { hold_finalizer: vec!["anvil".into()], ..prompt() }).await;
    let before = world.state().await;
    let step = world.step(&["--deadline", "8", "--undo-reserve", "3"]);
    let run = world.run_with(&step, vec![crate::fails_late()]).await;
    run.exits(5).says("NOT everything could be put back").says("gadgets.fixture.belay.dev/hold");
    assert_eq!(world.journal_status("fixture").await, "undoing");
    world.standins.change(|behaviour| behaviour.hold_finalizer.clear());
    world.run(&world.operate("restore", &["--step", "fixture"])).await.exits(0);
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
}

fn jobs() -> Resource {
    Resource::new("batch", "v1", "jobs")
}

/// A Job that began then: the test says so itself, since no controller looks after it. Nobody runs its pods.
pub(crate) async fn job(world: &World, began: Timestamp) -> Value {
    let container = json!({"name": "step", "image": "none"});
    let pod = json!({"restartPolicy": "Never", "containers": [container]});
    let job = json!({
        "metadata": {"name": "step", "namespace": world.home},
        "spec": {"managedBy": "belay.dev/e2e", "template": {"spec": pod}},
    });
    world.api.delete(&jobs(), Some(world.home), "step").await.unwrap();
    world.api.create(&jobs(), &job).await.unwrap();
    // Kubernetes writes times to the second.
    let began = began.round(Unit::Second).unwrap();
    let status = json!({"status": {"startTime": began}});
    world.api.merge(&jobs(), Some(world.home), "step", Some("status"), &status).await.unwrap()
}

pub(crate) fn minutes_ago(minutes: i64) -> Timestamp {
    Timestamp::now() - (60 * minutes).seconds()
}

/// Between two pods of a Job somebody decides; the second one does not decide otherwise.
#[tokio::test]
async fn a_run_that_somebody_ended_by_hand_is_not_begun_again_by_the_next_pod_of_its_job() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    job(&world, minutes_ago(1)).await;
    let step = world.sources(&["--deadline", "300"]).env("BELAY_JOB_NAME", "step");
    for (operation, word) in [("restore", "restored by hand"), ("accept", "accepted")] {
        let killed = world.run_with(&step, vec![Fault::KillAfter(At::first(is_move))]).await;
        assert_eq!(killed.exit, Exit::Signal(9));
        world.run(&world.operate(operation, &["--step", "create-missing-sources"])).await.exits(0);
        let next = world.run(&step).await;
        next.exits(3).says("so this pod does not begin it again").says(word).changes_nothing();
        // Another Job is another decision; its runs come after its start, and times are written to the second.
        let opened = &world.journals("create-missing-sources").await[0]["opened"];
        let began = opened.as_str().unwrap().parse::<Timestamp>().unwrap() + 1.seconds();
        job(&world, began).await;
        cluster::wait_until("the Job has begun", SOON, async || Ok(Timestamp::now() >= began)).await.unwrap();
    }
    world.run(&step).await.exits(0);
    world.until_names(&HTTP_SOURCE, &["commerce", "logistics"]).await;
    world.api.delete(&jobs(), Some(world.home), "step").await.unwrap();
}

#[tokio::test]
async fn the_time_counts_from_the_start_of_the_job() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    let job = job(&world, minutes_ago(1)).await;
    let in_job = |flags: &[&str]| world.sources(flags).env("BELAY_JOB_NAME", "step");
    // Past the deadline nothing is begun ...
    let late = world.run(&in_job(&["--deadline", "3"])).await;
    late.exits(3).says("the deadline had passed before the step could begin").changes_nothing();
    // ... and what was begun is only undone.
    let in_time = in_job(&["--deadline", "300"]);
    world.run_with(&in_time, vec![Fault::Terminate(At::first(is_move))]).await.exits(143);
    let undone = world.run(&in_job(&["--deadline", "3"])).await;
    undone.exits(4).says("the deadline has passed, counted from the Job's start");
    world.until_names(&HTTP_SOURCE, &[]).await;

    let events = Resource::new("events.k8s.io", "v1", "events");
    let events = world.api.list(&events, Some(world.home), None).await.unwrap();
    let of_job: Vec<&Value> =
        events.iter().filter(|event| event["regarding"]["uid"] == job["metadata"]["uid"]).collect();
    let notes: Vec<&str> = of_job.iter().filter_map(|event| event["note"].as_str()).collect();
    assert!(notes.contains(&undone.verdict().as_str()), "{notes:?}");
    world.api.delete(&jobs(), Some(world.home), "step").await.unwrap();
}
