//! The harness itself: a step that keeps its promises passes every point, and each broken promise is found.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod toy_scenario;

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use harness::{
    At, Class, Exit, Fault, StepCommand,
    crash::{Choice, Failure, Mode, Tally, drive},
    memory::Memory,
};
use toy_scenario::Toy;

async fn try_with(bug: &'static str, modes: &[&str], calls: &[&str]) -> Result<Tally> {
    let servers = [Memory::start().await?, Memory::start().await?];
    let upstreams = [servers[0].upstream()?, servers[1].upstream()?];
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
    let choice = Choice { modes: owned(modes), calls: owned(calls), ..Choice::default() };
    drive(Arc::new(Toy { bug }), &upstreams, &choice).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_keeps_its_promises_passes_every_point() {
    // Those that differ from one of these only in what they wait for are left to the tests on a real API server.
    let quick = [
        "kill-after",
        "lose-answer",
        "land-late",
        "terminate",
        "die-after",
        "fail-422",
        "fail-500",
        "undo-kill-after",
        "undo-lose-answer",
    ];
    let tally = try_with("", &quick, &[]).await.unwrap();
    println!("{tally}");
    assert!(tally.is_good());
    assert_eq!(tally.points.len(), quick.len());
    assert!(tally.points[&Mode::KillAfter].tried >= tally.calls - tally.left_out.len());
    assert!(tally.calls > 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_its_time_holds_too() {
    let slow = ["outage", "fail-403"];
    let tally = try_with("", &slow, &["2", "12"]).await.unwrap();
    println!("{tally}");
    assert!(tally.is_good());
    assert_eq!(tally.total(), (4, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_has_a_point_of_every_mode() {
    let servers = [Memory::start().await.unwrap()];
    let upstreams = [servers[0].upstream().unwrap()];
    let choice = Choice { sample: Some(15), ..Choice::default() };
    let tally = drive(Arc::new(Toy { bug: "" }), &upstreams, &choice).await.unwrap();
    println!("{tally}");
    assert!(tally.is_good());
    let modes: Vec<Mode> = tally.points.keys().copied().collect();
    assert_eq!(modes, Mode::ALL);
    assert!(tally.all.0 > tally.all.1 && tally.all.1 > 100, "{:?}", tally.all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_not_made_is_a_failure() {
    // A call that lands late does so while runs have all of their patience.
    let tally = try_with("quiet", &["land-late"], &[]).await.unwrap();
    let unmade = |failure: &Failure| failure.why.starts_with("the call was not made");
    assert!(tally.failures.iter().any(unmade), "{tally}");
    assert!(!tally.is_good());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_differ_from_run_to_run_are_found() {
    let error = try_with("random-name", &["kill-after"], &[]).await.unwrap_err();
    assert!(format!("{error:#}").contains("two undisturbed runs make other calls"), "{error:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_process_knew_is_found_lost() {
    let tally = try_with("no-journal", &["kill-after"], &[]).await.unwrap();
    assert!(tally.failures.iter().any(|failure| failure.why.contains(": lost")), "{tally}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_is_not_taken_back_is_found() {
    let tally = try_with("no-undo", &["fail-422"], &[]).await.unwrap();
    assert!(
        tally.failures.iter().any(|failure| failure.why.contains("which should be restored differs")),
        "{tally}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_delete_that_takes_the_wrong_object_is_found() {
    let tally = try_with("no-precondition", &["land-last"], &[]).await.unwrap();
    assert!(tally.failures.iter().any(|failure| failure.why.contains("/again: lost")), "{tally}");
    let tally = try_with("", &["land-last"], &[]).await.unwrap();
    assert!(tally.is_good(), "{tally}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_run_that_writes_is_found() {
    let error = try_with("busy", &["kill-before"], &[]).await.unwrap_err();
    assert!(format!("{error:#}").contains("the second run should find nothing to do"), "{error:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_measured_and_bounded() {
    let memory = Memory::start().await.unwrap();
    let upstream = memory.upstream().unwrap();
    let sleep = StepCommand::new("/bin/sleep", &["30"]).bound(Duration::from_millis(200));
    let outcome = sleep.run(&upstream, vec![]).await.unwrap();
    assert_eq!(outcome.exit, Exit::TimedOut);
    assert!(outcome.duration < Duration::from_secs(5));
    assert!(outcome.max_rss_kib > 0);

    let toy = StepCommand::new(env!("CARGO_BIN_EXE_toy-step"), &["--namespace", "a", "--deadline", "5"]);
    let hold =
        Fault::Delay { at: Some(At::first(|call| call.class == Class::Read)), by: Duration::from_secs(5) };
    let running = toy.start(&upstream, vec![hold]).await.unwrap();
    running.proxy.when(|call| call.class == Class::Journal, Duration::from_secs(10)).await.unwrap();
    running.signal(rustix::process::Signal::TERM).unwrap();
    let outcome = running.wait().await.unwrap();
    assert_eq!(outcome.exit, Exit::Code(143));
}
