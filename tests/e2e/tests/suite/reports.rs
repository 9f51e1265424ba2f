//! What is left to read: verdict, report, Event, log.

use e2e::{Told, World};
use harness::{Call, Class, Resource, Verb};
use serde_json::{Value, json};
use standins::{Behaviour, fixtures};

#[tokio::test]
async fn the_last_log_line_is_the_first_line_of_the_report_and_the_event() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.create(&fixtures::skipped_application("loyalty")).await;
    let run = world.run(&world.sources(&["--release", "mesh"])).await;
    run.exits(0);
    assert_eq!(run.verdict(), "create-missing-sources: done: 2 created");
    let stored = world.own("configmaps", "belay-report-create-missing-sources").await.unwrap();
    let summary = stored["data"]["summary"].as_str().unwrap();
    assert_eq!(summary.lines().next(), Some(run.verdict().as_str()));
    assert!(summary.contains("Application/loyalty: has spec.skipInstallation"), "{summary}");
    let labels = json!({
        "belay.dev/family": "event-mesh", "belay.dev/step": "create-missing-sources", "belay.dev/release": "mesh",
    });
    assert_eq!(stored["metadata"]["labels"], labels);
    let report = world.report("create-missing-sources").await;
    assert_eq!((&report["result"], &report["counts"]["created"]), (&json!("done"), &json!(2)));
    // The counting proxy and the step agree on what came before the report, but for the lists with which watches begin,
    // which the step does not count, and for the lock, which is renewed beside all else.
    let is_report = |call: &Call| call.class == Class::Report;
    let written = run.calls.iter().rposition(|call| is_report(call) && call.is_write()).unwrap();
    let read = run.calls[..written].iter().rposition(is_report).unwrap_or(written);
    let is_watch = |call: &&Call| call.class == Class::Watch;
    let watched: Vec<&str> = run.calls.iter().filter(is_watch).map(|call| call.path.as_str()).collect();
    let begins_watch = |call: &Call| call.verb == Verb::List && watched.contains(&call.path.as_str());
    let is_lock = |call: &Call| matches!(call.class, Class::Lease(_));
    let counted = |call: &&Call| !is_watch(call) && !is_lock(call) && !begins_watch(call);
    let least = run.calls[..read].iter().filter(counted).count() as u64;
    let most = run.calls[..=written].iter().filter(|call| !is_watch(call)).count() as u64;
    let calls = report["calls"].as_u64().unwrap();
    assert!(least > 10 && (least..=most).contains(&calls), "{calls} of {least} to {most} calls");
    let events = Resource::new("events.k8s.io", "v1", "events");
    let events = world.api.list(&events, Some(world.home), None).await.unwrap();
    assert!(
        events.iter().any(|event| event["note"] == run.verdict() && event["reason"] == "Done"),
        "{events:?}"
    );
}

#[tokio::test]
async fn log_lines_can_be_json_one_object_a_line() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let run = world.run(&world.sources(&["--log-format", "json"])).await;
    let lines: Vec<Value> =
        run.exits(0).stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = lines.last().unwrap();
    assert!(last.to_string().contains("create-missing-sources: done: 1 created"), "{last}");
}
