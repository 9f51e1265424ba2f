//! Two runs of one family never write at the same time.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use e2e::{
    Told, World,
    kubelet::set_phase,
    told::{Telling as _, is_move},
    world::{SOON, SYSTEM, leases, prompt},
};
use futures::future::join_all;
use harness::{
    At, Call, Class, Exit, Fault, LeaseUse, Outcome, Resource, StepCommand, Verb,
    state::{Area, clear},
};
use serde_json::json;
use standins::{Behaviour, Family, cluster};

/// How long a Lease counts after its last renewal.
const LASTS: Duration = Duration::from_secs(15);

async fn hold(world: &World, family: Family, holder: &str) {
    let lease = json!({
        "metadata": {
            "name": format!("belay-{}", family.name()), "namespace": world.home,
            "labels": {"belay.dev/family": family.name()},
        },
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
    });
    let name = lease["metadata"]["name"].as_str().unwrap();
    world.api.delete(&leases(), Some(world.home), name).await.unwrap();
    world.api.create(&leases(), &lease).await.unwrap();
}

/// When a run looked at the lock first, how often it looked, and when it took it.
fn taking(outcome: &Outcome) -> (Duration, usize, Option<Duration>) {
    let of = |wanted: LeaseUse| outcome.calls.iter().filter(move |call| call.class == Class::Lease(wanted));
    let taken = of(LeaseUse::Hold).map(|call| call.at).next();
    let looks: Vec<Duration> = of(LeaseUse::Read)
        .filter(|call| call.verb == Verb::Get)
        .map(|call| call.at)
        .filter(|at| taken.is_none_or(|taken| *at < taken))
        .collect();
    (looks[0], looks.len(), taken)
}

#[tokio::test]
async fn while_one_run_works_another_waits_or_leaves() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce", "logistics"]).await;
    // Time enough for the other two, however slow the machine is.
    let works = world.start(&world.sources(&["--deadline", "100"]), vec![]).await;
    works.proxy.when(is_move, SOON).await.unwrap();
    let waits = world.start(&world.sources(&["--deadline", "100"]), vec![]).await;
    waits.until_it_says("waiting for the lock").await;
    let leaves = world.run(&world.sources(&["--deadline", "6"])).await;
    leaves.exits(75).says("not now: process/").says("holds the lock").changes_nothing();
    world.standins.change(|behaviour| behaviour.paused = false);
    waits.wait().await.unwrap().exits(0).says("nothing to do").changes_nothing();
    assert_eq!(works.wait().await.unwrap().exits(0).moves().len(), 2);
}

#[tokio::test]
async fn of_four_runs_at_once_one_writes() {
    let world = World::fixture(prompt()).await;
    // Time enough for the last of them, however slow the machine is.
    let step = world.step(&["--deadline", "100"]);
    let ended = join_all((0..4).map(|_| world.run(&step))).await;
    for run in &ended {
        run.exits(0);
    }
    assert_eq!(ended.iter().filter(|run| !run.moves().is_empty()).count(), 1);
}

#[tokio::test]
async fn the_lock_of_a_killed_process_is_taken_over_at_once() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    let killed = world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    assert_eq!(killed.exit, Exit::Signal(9));
    let next = world.run(&world.sources(&[])).await;
    next.exits(0).says("took the lock over from process/");
    assert_eq!(taking(&next).1, 1, "it looked once and took it");
    assert_eq!(world.holder(Family::EventMesh).await, "");
}

#[tokio::test]
async fn the_lock_of_a_pod_is_taken_over_when_the_pod_has_ended_and_not_before() {
    let world = World::mesh(Behaviour::default()).await;
    world.lasting_pod("somebody", "holder").await;
    let pod =
        world.api.get(&harness::Resource::core("pods"), Some(world.place), "holder").await.unwrap().unwrap();
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let held_by = |name: &str, uid: &str| format!("pod/{}/{name}/{uid}", world.place);

    hold(&world, Family::EventMesh, &held_by("holder", uid)).await;
    set_phase(&world.api, world.place, "holder", "Running").await.unwrap();
    world.run(&world.sources(&["--deadline", "6"])).await.exits(75).says("not now: pod/");
    set_phase(&world.api, world.place, "holder", "Failed").await.unwrap();
    world.run(&world.sources(&[])).await.exits(0).says("took the lock over");

    for gone in [held_by("holder", "another-uid"), held_by("nobody", "uid")] {
        hold(&world, Family::EventMesh, &gone).await;
        let run = world.run(&world.sources(&[])).await;
        run.exits(0).says("took the lock over");
        assert_eq!(taking(&run).1, 1);
    }
}

/// As `kubectl exec` lets somebody into the pod of a run.
#[tokio::test]
async fn a_second_process_in_the_pod_of_a_run_is_not_that_run() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    let in_pod = |command: StepCommand| {
        command
            .env("BELAY_POD_NAMESPACE", world.home)
            .env("BELAY_POD_NAME", "step-x7k2p")
            .env("BELAY_POD_UID", "5f0c")
    };
    let works = world.start(&in_pod(world.sources(&["--deadline", "100"])), vec![]).await;
    works.proxy.when(is_move, SOON).await.unwrap();
    let restore = in_pod(world.operate("restore", &["--step", "create-missing-sources"]));
    world.run(&restore).await.exits(75).says("step-x7k2p/5f0c holds the lock").changes_nothing();
    works.signal(rustix::process::Signal::KILL).unwrap();
    works.wait().await.unwrap();
    world.standins.change(|behaviour| behaviour.paused = false);
    let next = world.run(&in_pod(world.sources(&[]))).await;
    next.exits(0).says("took the lock over from pod/");
    assert_eq!(taking(&next).1, 1, "it looked once and took it");
}

#[tokio::test]
async fn a_lock_of_which_nothing_can_be_known_is_taken_only_after_it_stood_still() {
    let world = World::mesh(Behaviour::default()).await;
    hold(&world, Family::EventMesh, "somebody").await;
    let run = world.run(&world.sources(&["--deadline", "60"])).await;
    let (first, _, taken) = taking(run.exits(0));
    assert!(taken.unwrap() >= first + LASTS);
}

#[tokio::test]
async fn a_lock_that_somebody_unknown_renews_is_never_taken() {
    let world = World::fixture(prompt()).await;
    hold(&world, Family::Fixture, "process/another-host/7/99").await;
    // A look a second, as without a test; and it cannot look again before the Lease is renewed.
    let command = world.step(&["--deadline", "36"]).env("BELAY_TEST_PATIENCE", "1");
    let (holds, holdings): (Vec<_>, Vec<_>) = (0..40).map(|number| Fault::hold(nth_look(number))).unzip();
    let run = world.start(&command, holds).await;
    for (number, holding) in holdings.into_iter().enumerate() {
        let looked = async || Ok(run.proxy.calls().iter().filter(|call| looks(call)).count() > number);
        tokio::select! {
            looked = cluster::wait_until("it looks again", SOON, looked) => looked.unwrap(),
            () = run.ended() => break,
        }
        let renewed = json!({"metadata": {"annotations": {"renewed": number.to_string()}}});
        world.api.merge(&leases(), Some(world.home), "belay-fixture", None, &renewed).await.unwrap();
        holding.release();
    }
    let run = run.wait().await.unwrap();
    run.exits(75).changes_nothing();
    let times: Vec<Duration> = run.calls.iter().filter(|call| looks(call)).map(|call| call.at).collect();
    assert!(times[times.len() - 1] >= times[0] + LASTS, "it has not looked for long enough: {times:?}");
    assert_eq!(taking(&run).2, None);
}

fn looks(call: &Call) -> bool {
    call.class == Class::Lease(LeaseUse::Read) && call.verb == Verb::Get
}

/// A run's look at the lock, counted from 0.
fn nth_look(number: usize) -> At {
    let seen = AtomicUsize::new(0);
    At::first(move |call| looks(call) && seen.fetch_add(1, Ordering::SeqCst) == number)
}

#[tokio::test]
async fn a_run_that_loses_its_lock_stops_at_once_and_the_next_one_finishes() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    let run = world.start(&world.sources(&[]), vec![]).await;
    run.proxy.when(is_move, SOON).await.unwrap();
    let taken = json!({"spec": {"holderIdentity": "somebody else"}});
    world.api.merge(&leases(), Some(world.home), "belay-event-mesh", None, &taken).await.unwrap();
    let lost = run.wait().await.unwrap();
    lost.exits(1).says("the lock is lost").says("is now held by 'somebody else'");
    assert_eq!(lost.moves(), ["create commerce"], "no undo: somebody else may be writing");
    assert_eq!(world.journal_status("create-missing-sources").await, "open");

    let free = json!({"spec": {"holderIdentity": ""}});
    world.api.merge(&leases(), Some(world.home), "belay-event-mesh", None, &free).await.unwrap();
    world.standins.change(|behaviour| behaviour.paused = false);
    world.run(&world.sources(&[])).await.exits(0).says("resuming");
}

#[tokio::test]
async fn a_second_home_for_one_family_is_refused() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.run(&world.sources(&[])).await.exits(0);
    world.applications(&["logistics"]).await;
    let elsewhere = world.run(&world.sources(&["--home", SYSTEM])).await;
    elsewhere.exits(3).says("already has its home in namespace e2e-home").changes_nothing();
    let own = elsewhere.calls.iter().find(|call| call.is_write() && matches!(call.class, Class::Lease(_)));
    assert!(own.is_none(), "a refused home gets no Lease");
    let report = "belay-report-create-missing-sources";
    let left = world.api.get(&harness::Resource::core("configmaps"), Some(SYSTEM), report).await.unwrap();
    assert!(left.is_none(), "and no report: it would be taken for a home");
    let tried = world.run(&world.sources(&["--home", SYSTEM, "--dry-run"])).await;
    tried.exits(3).says("already has its home in namespace e2e-home").writes_nothing();
}

/// Both look for another home before either has made its own.
#[tokio::test]
async fn of_two_first_runs_with_two_homes_one_goes_on() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let makes = |call: &Call| call.class == Class::Lease(LeaseUse::Hold);
    let (first, second) = (Fault::hold(At::first(makes)), Fault::hold(At::first(makes)));
    let here = world.start(&world.sources(&[]), vec![first.0]).await;
    let there = world.start(&world.sources(&["--home", SYSTEM]), vec![second.0]).await;
    here.until_it_sends(makes).await;
    there.until_it_sends(makes).await;
    first.1.release();
    second.1.release();
    let (here, there) = tokio::join!(here.wait(), there.wait());
    let (here, there) = (here.unwrap(), there.unwrap());
    let homes = world.api.list(&leases(), None, Some("belay.dev/family=event-mesh")).await.unwrap();
    for plural in ["secrets", "configmaps"] {
        let left = Area::within(Resource::core(plural), SYSTEM).named("belay-");
        clear(&world.api, &[left], SOON).await.unwrap();
    }
    // Which of them is chance.
    let (goes_on, gives_way) = if there.exit == Exit::Code(0) { (there, here) } else { (here, there) };
    goes_on.exits(0).says("1 created");
    gives_way.exits(3).says("already has its home in namespace").changes_nothing();
    assert_eq!(homes.len(), 1, "{homes:?}");
}
