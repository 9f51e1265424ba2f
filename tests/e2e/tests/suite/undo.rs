//! A step that fails puts everything back; what somebody else has changed meanwhile is left alone and named.

use std::time::{Duration, Instant};

use e2e::{
    Told, World,
    told::{Telling as _, is_move},
    world::{SOON, STATION_NAME, prompt, resource},
};
use harness::{At, Call, Class, Exit, Fault, Holding, Resource, Scope};
use serde_json::json;
use standins::{
    Behaviour,
    kinds::{DEPLOYMENT, GADGET, HTTP_SOURCE, STATION, WIDGET},
};

const STEP: &str = "create-missing-sources";

fn on_the_station(call: &Call) -> bool {
    is_move(call) && call.target.resource == "stations"
}

fn never_ready(name: &str) -> Behaviour {
    Behaviour { never_ready: vec![name.to_owned()], ..Behaviour::default() }
}

/// Its Channel goes, and does not come back: the step sees that by itself, whatever time the others need.
fn hopeless(name: &str) -> Behaviour {
    Behaviour { lose_channel: vec![name.to_owned()], ..Behaviour::default() }
}

#[tokio::test]
async fn with_on_failure_chain_only_the_chain_that_failed_is_undone() {
    let world = World::mesh(hopeless("logistics")).await;
    world.applications(&["commerce", "logistics", "loyalty"]).await;
    let run = world.run(&world.sources(&["--on-failure", "chain"])).await;
    run.exits(4).says("failed for 1 of 3 objects, which are as they were before; the others are done");
    world.until_names(&HTTP_SOURCE, &["commerce", "loyalty"]).await;
    // The next run has only that one to do.
    world.standins.change(|behaviour| behaviour.lose_channel.clear());
    assert_eq!(world.run(&world.sources(&[])).await.exits(0).moves(), ["create logistics"]);
}

#[tokio::test]
async fn with_on_failure_step_all_is_undone() {
    let world = World::mesh(never_ready("logistics")).await;
    world.applications(&["commerce", "logistics", "loyalty"]).await;
    let before = world.state().await;
    // The one that fails comes last.
    let (hold, holding) = Fault::hold(At::first(crate::creates("logistics")));
    let run = world.start(&world.sources(&["--ready-within", "3"]), vec![hold]).await;
    for name in ["commerce", "loyalty"] {
        run.proxy.when(crate::creates(name), SOON).await.unwrap();
    }
    holding.release();
    let run = run.wait().await.unwrap();
    run.exits(4).says("HTTPSource/e2e-integration/logistics").says("3 changes were taken back");
    world.until_names(&HTTP_SOURCE, &[]).await;
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
    assert_eq!(world.journal_status(STEP).await, "undone");
}

/// Of thousands of objects the garbage collector takes away a few each second: undo does not wait for the last one.
#[tokio::test]
async fn what_only_the_garbage_collector_still_holds_is_taken_back() {
    let world = World::mesh(never_ready("logistics")).await;
    world.applications(&["logistics"]).await;
    // It cannot be taken back before something belongs to it.
    let takes_back = |call: &Call| is_move(call) && call.verb == harness::Verb::Delete;
    let (hold, holding) = Fault::hold(At::first(takes_back));
    let running = world.start(&world.sources(&["--ready-within", "1"]), vec![hold]).await;
    running.until_it_sends(takes_back).await;
    let source = world.get(&HTTP_SOURCE, "logistics").await.unwrap();
    // Something that belongs to it and does not go for now.
    let owner = json!({
        "apiVersion": source["apiVersion"], "kind": source["kind"], "name": "logistics",
        "uid": source["metadata"]["uid"], "blockOwnerDeletion": true,
    });
    let part = json!({
        "metadata": {
            "name": "part", "namespace": world.place, "ownerReferences": [owner],
            "finalizers": ["e2e.belay.dev/stay"],
        },
    });
    let config_maps = Resource::core("configmaps");
    world.api.create(&config_maps, &part).await.unwrap();
    holding.release();
    let run = running.wait().await.unwrap();
    run.exits(4).says("Everything is as it was before: 1 change was taken back");
    run.says("the garbage collector is still taking away 1 object that the step had made");
    assert_eq!(world.journal_status(STEP).await, "undone");
    let released = json!({"metadata": {"finalizers": null}});
    world.api.merge(&config_maps, Some(world.place), "part", None, &released).await.unwrap();
    world.until_gone(&HTTP_SOURCE, "logistics").await;
}

/// Objects, labels, annotations, owner references, replicas, states: after every kind of move.
#[tokio::test]
async fn a_step_that_fails_late_puts_back_every_kind_of_change() {
    let world = World::fixture(prompt()).await;
    let before = world.state().await;
    let run = world.run_with(&world.step(&[]), vec![crate::fails_late()]).await;
    run.exits(4).says("Everything is as it was before");
    let made = run.moves();
    for done in ["create anvil", "delete manual", "delete drill", "patch crank", "patch engine/scale"] {
        assert!(made.iter().any(|made| made == done), "{done} is not among {made:?}");
    }
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
    let recreated = |key: &String, _: &_| key.ends_with("/manual") || key.ends_with("/drill");
    assert!(before.replaced(&after, recreated).is_empty());
}

#[tokio::test]
async fn past_the_point_of_no_return_a_failure_is_exit_6_and_a_rerun_finishes() {
    let world = World::fixture(prompt()).await;
    let last = |call: &Call| is_move(call) && call.name.as_deref() == Some("leftover");
    let broken = Fault::FailForGood { at: At::first(last), status: 422, scope: Scope::Target, until: None };
    let run = world.run_with(&world.step(&[]), vec![broken]).await;
    run.exits(6).says("past the point of no return").says("Run the step again");
    let refused = world.run(&world.operate("restore", &["--step", "fixture"])).await;
    refused.exits(3).says("is past its point of no return and cannot be undone").changes_nothing();
    world.run(&world.step(&[])).await.exits(0);
    assert_eq!(world.get(&STATION, STATION_NAME).await.unwrap()["spec"]["state"], "Open");
    assert_eq!(world.journal_status("fixture").await, "done");
}

/// Runs the step to exit 5: somebody changes what it made while it waits.
async fn meddled_with() -> World {
    let world = World::mesh(never_ready("logistics")).await;
    world.applications(&["commerce", "logistics"]).await;
    // The one that fails is made when the other one has been changed.
    let (hold, holding) = Fault::hold(At::first(crate::creates("logistics")));
    let run = world.start(&world.sources(&["--ready-within", "3"]), vec![hold]).await;
    run.proxy.when(crate::creates("commerce"), SOON).await.unwrap();
    let mine = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "somebody"}}});
    world.patch(&HTTP_SOURCE, "commerce", &mine).await;
    holding.release();
    let run = run.wait().await.unwrap();
    run.exits(5).says("NOT everything could be put back: HTTPSource/e2e-integration/commerce");
    run.says("belay restore --step create-missing-sources --home e2e-home, or belay accept");
    // The other one is taken back.
    world.until_names(&HTTP_SOURCE, &["commerce"]).await;
    assert_eq!(world.journal_status(STEP).await, "undoing");
    world
}

#[tokio::test]
async fn what_somebody_changed_is_left_alone_until_a_person_restores() {
    let world = meddled_with().await;
    let restore = world.operate("restore", &["--step", STEP]);
    world.run(&restore).await.exits(5).says("somebody has changed it since");
    let back = json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}});
    world.patch(&HTTP_SOURCE, "commerce", &back).await;
    world.run(&restore).await.exits(0).says("1 change was taken back");
    world.until_names(&HTTP_SOURCE, &[]).await;
    assert_eq!(world.journal_status(STEP).await, "undone");
}

#[tokio::test]
async fn what_somebody_changed_is_left_alone_until_a_person_accepts() {
    let world = meddled_with().await;
    // Nobody has looked: the step itself does not begin anew either, it finishes its undo.
    world.run(&world.sources(&[])).await.exits(5).says("an earlier attempt was being undone");
    world.run(&world.operate("accept", &["--step", STEP])).await.exits(0).says("accepted");
    world.standins.change(|behaviour| behaviour.never_ready.clear());
    let run = world.run(&world.sources(&[])).await;
    assert_eq!(run.exits(0).moves(), ["create logistics"]);
    world.run(&world.operate("accept", &["--step", STEP])).await.exits(3).says("has no open journal");
}

#[tokio::test]
async fn fields_that_somebody_changed_after_us_are_not_put_back() {
    let world = World::fixture(prompt()).await;
    let (hold, holding) = Fault::hold(At::first(on_the_station));
    let run = world.start(&world.step(&[]), vec![hold, crate::fails_late()]).await;
    let scaled = |call: &Call| is_move(call) && call.target.subresource.is_some();
    run.proxy.when(scaled, SOON).await.unwrap();
    world.patch(&DEPLOYMENT, "engine", &json!({"spec": {"replicas": 5}})).await;
    holding.release();
    let run = run.wait().await.unwrap();
    run.exits(5)
        .says("Deployment/e2e-workshop/engine somebody has changed it since: spec.replicas is left as it is");
    assert_eq!(world.get(&DEPLOYMENT, "engine").await.unwrap()["spec"]["replicas"], 5);
    // All the rest is back.
    assert_eq!(world.get(&WIDGET, "anvil").await.unwrap()["spec"]["phase"], "Draft");
}

/// What the plan saw is old when the move is made: undo must know the newest.
#[tokio::test]
async fn an_object_that_changes_before_it_is_deleted_is_restored_as_it_was_last() {
    let world = World::fixture(prompt()).await;
    let deletes = |call: &Call| {
        is_move(call) && call.verb == harness::Verb::Delete && call.name.as_deref() == Some("manual")
    };
    let (hold, holding) = Fault::hold(At::first(deletes));
    let run = world.start(&world.step(&[]), vec![hold, crate::fails_late()]).await;
    run.proxy.when(crate::creates("manual-new"), SOON).await.unwrap();
    let maps = harness::Resource::core("configmaps");
    let newer = json!({"data": {"content": "newer"}});
    world.api.merge(&maps, Some(world.place), "manual", None, &newer).await.unwrap();
    holding.release();
    run.wait().await.unwrap().exits(4);
    let back = world.api.get(&maps, Some(world.place), "manual").await.unwrap().unwrap();
    assert_eq!(back["data"]["content"], "newer");
    assert_eq!(back["metadata"]["labels"]["shelf"], "1");
}

fn scales(call: &Call) -> bool {
    is_move(call) && call.target.subresource.is_some()
}

/// The journal's entry is of the first run, and the field is not as it was then.
#[tokio::test]
async fn a_field_that_changed_between_a_death_and_the_resume_is_put_back_as_it_was_last() {
    let world = World::fixture(prompt()).await;
    let killed = world.run_with(&world.step(&[]), vec![Fault::KillBefore(At::first(scales))]).await;
    assert_eq!(killed.exit, Exit::Signal(9));
    world.patch(&DEPLOYMENT, "engine", &json!({"spec": {"replicas": 5}})).await;
    let run = world.run_with(&world.step(&[]), vec![crate::fails_late()]).await;
    run.exits(4).says("resuming");
    assert_eq!(world.get(&DEPLOYMENT, "engine").await.unwrap()["spec"]["replicas"], 5);
}

/// Kills the step once it has asked for the drill's deletion.
async fn killed_half_way(world: &World) {
    let deletes = |call: &Call| {
        is_move(call) && call.verb == harness::Verb::Delete && call.name.as_deref() == Some("drill")
    };
    let killed = world.run_with(&world.step(&[]), vec![Fault::KillAfter(At::first(deletes))]).await;
    assert_eq!(killed.exit, Exit::Signal(9));
}

async fn is_left_out_and_not_lost(world: &World) {
    let run = world.start(&world.step(&["--exclude", "Gadget/drill"]), vec![]).await;
    // What is still going may go once the run has seen it so.
    run.proxy
        .when(|call| call.target.resource == "gadgets" && call.class == Class::Watch, SOON)
        .await
        .unwrap();
    world.standins.change(|behaviour| behaviour.hold_finalizer.clear());
    let run = run.wait().await.unwrap();
    run.exits(0).says("Gadget/e2e-workshop/drill: left out by --exclude");
    run.says("restored Gadget/e2e-workshop/drill");
    let findings = world.report("fixture").await["findings"].to_string();
    assert!(findings.contains("was left half-way by an earlier attempt"), "{findings}");
    assert!(world.get(&GADGET, "drill").await.is_some());
    assert_eq!(world.journal_status("fixture").await, "done");
}

#[tokio::test]
async fn an_object_that_is_excluded_while_its_recreation_deletes_it_is_not_lost() {
    let world = World::fixture(prompt()).await;
    world.standins.change(|behaviour| behaviour.hold_finalizer.push("Gadget:drill".into()));
    killed_half_way(&world).await;
    assert!(world.get(&GADGET, "drill").await.is_some(), "it should still be going");
    is_left_out_and_not_lost(&world).await;
}

#[tokio::test]
async fn an_object_that_is_excluded_half_way_through_its_recreation_is_not_lost() {
    let world = World::fixture(prompt()).await;
    killed_half_way(&world).await;
    world.until_gone(&GADGET, "drill").await;
    is_left_out_and_not_lost(&world).await;
}

#[tokio::test]
async fn an_undo_of_one_chain_that_dies_is_finished_before_anything_else() {
    let world = World::mesh(hopeless("logistics")).await;
    world.applications(&["commerce", "logistics"]).await;
    let step = world.sources(&["--on-failure", "chain"]);
    let takes_back = |call: &Call| is_move(call) && call.verb == harness::Verb::Delete;
    let killed = world.run_with(&step, vec![Fault::KillBefore(At::first(takes_back))]).await;
    assert_eq!(killed.exit, Exit::Signal(9));
    let journal = &world.journals(STEP).await[0];
    assert_eq!(
        (&journal["status"], &journal["undoing"][0]["name"]),
        (&json!("undoing"), &json!("logistics"))
    );
    world.standins.change(|behaviour| behaviour.lose_channel.clear());
    let run = world.run(&world.sources(&[])).await;
    assert_eq!(run.exits(0).moves(), ["delete logistics", "create logistics"]);
    let journal = &world.journals(STEP).await[0];
    assert_eq!((&journal["status"], &journal["undoing"]), (&json!("done"), &json!(null)));
}

/// What the next pod finds past the deadline: the tenants whose chains were done keep what they have.
#[tokio::test]
async fn an_undo_of_one_chain_that_dies_past_the_deadline_does_not_take_the_others_back() {
    let world = World::mesh(hopeless("logistics")).await;
    world.applications(&["commerce", "logistics"]).await;
    crate::time::job(&world, crate::time::minutes_ago(1)).await;
    let in_job = |flags: &[&str]| world.sources(flags).env("BELAY_JOB_NAME", "step");
    let step = in_job(&["--on-failure", "chain", "--deadline", "300"]);
    let takes_back = |call: &Call| is_move(call) && call.verb == harness::Verb::Delete;
    let killed = world.run_with(&step, vec![Fault::KillBefore(At::first(takes_back))]).await;
    assert_eq!(killed.exit, Exit::Signal(9));
    let run = world.run(&in_job(&["--on-failure", "chain", "--deadline", "2"])).await;
    run.exits(4).says("failed for 1 of 2 objects, which are as they were before; the others are done");
    world.until_names(&HTTP_SOURCE, &["commerce"]).await;
    assert_eq!(world.journal_status(STEP).await, "done");
    world.run(&world.operate("restore", &["--step", STEP])).await.exits(0).says("1 change was taken back");
    world.until_names(&HTTP_SOURCE, &[]).await;
}

/// A pod dies with a call in flight. It lands when the undo has looked at its object, and is still busy with another.
#[tokio::test]
async fn a_call_that_lands_while_undo_is_busy_with_another_object_is_taken_back_too() {
    let world = World::fixture(prompt()).await;
    let before = world.state().await;
    let killed = world
        .run_with(&world.step(&[]), vec![Fault::KillAndLandLate(At::first(crate::creates("anvil")))])
        .await;
    assert_eq!(killed.exit, Exit::Signal(9));
    let looks_at = |plural: &'static str, name: &'static str| {
        move |call: &Call| {
            call.verb == harness::Verb::Get
                && call.target.resource == plural
                && call.name.as_deref() == Some(name)
        }
    };
    let (busy, holding) = Fault::hold(At::first(looks_at("deployments", "engine")));
    let restore = world.start(&world.operate("restore", &["--step", "fixture"]), vec![busy]).await;
    restore.until_it_sends(looks_at("deployments", "engine")).await;
    let busy_since = Instant::now();
    restore.proxy.when(looks_at("gadgets", "anvil"), SOON).await.unwrap();
    let landed = killed.held.unwrap().land().await;
    assert_eq!(landed.answer, Ok(201));
    // Longer than a call may be on its way, in a run that is as impatient as those of tests are.
    tokio::time::sleep(Duration::from_secs(1).saturating_sub(busy_since.elapsed())).await;
    holding.release();
    restore.wait().await.unwrap().exits(0).says("looking once more");
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
}

/// What failed was put back and is its owner's again, whatever becomes of it afterwards.
#[tokio::test]
async fn a_restore_passes_by_the_chains_that_were_taken_back_at_once() {
    let world = World::fixture(prompt()).await;
    let broken = At::first(crate::creates("anvil-manual"));
    let broken = Fault::FailForGood { at: broken, status: 422, scope: Scope::Target, until: None };
    let step = world.step(&["--reversible", "--on-failure", "chain"]);
    world.run_with(&step, vec![broken]).await.exits(4).says("failed for 1 of ");
    assert_eq!(world.journal_status("fixture").await, "done");
    world.patch(&WIDGET, "anvil", &json!({"spec": {"phase": "Retired"}})).await;
    world.run(&world.operate("restore", &["--step", "fixture"])).await.exits(0);
    assert_eq!(world.get(&WIDGET, "anvil").await.unwrap()["spec"]["phase"], "Retired");
    assert_eq!(world.get(&WIDGET, "bench").await.unwrap()["spec"]["phase"], "Draft");
}

/// The step did not know of it when it planned what cannot be taken back.
#[tokio::test]
async fn with_something_in_the_way_the_point_of_no_return_is_not_passed() {
    let world = World::fixture(prompt()).await;
    let (hold, holding) = Fault::hold(At::first(crate::creates("anvil")));
    let run = world.start(&world.step(&[]), vec![hold]).await;
    run.until_it_sends(crate::creates("anvil")).await;
    world.create(&standins::fixtures::gadget("anvil", world.place, "somebody")).await;
    holding.release();
    let run = run.wait().await.unwrap();
    run.exits(0)
        .says("what cannot be taken back was not done, since Widget/e2e-workshop/anvil was left alone");
    let station = world.api.get(&resource(&STATION), None, STATION_NAME).await.unwrap().unwrap();
    assert_eq!(station["spec"]["state"], "Opening");
    let maps = harness::Resource::core("configmaps");
    assert!(world.api.get(&maps, Some(world.place), "leftover").await.unwrap().is_some());
    assert_eq!(world.get(&WIDGET, "bench").await.unwrap()["spec"]["phase"], "Active");
}

/// Holds a call back, so that there is time to do something before, and lets it fail when it is released.
fn fails_when_released(is_it: fn(&Call) -> bool) -> (Vec<Fault>, Holding) {
    let fails = Fault::FailForGood { at: At::first(is_it), status: 422, scope: Scope::Target, until: None };
    let (hold, holding) = Fault::hold(At::first(is_it));
    (vec![hold, fails], holding)
}

#[tokio::test]
async fn what_was_never_begun_is_not_taken_back_whatever_somebody_makes_of_it() {
    let world = World::fixture(prompt()).await;
    let (faults, holding) = fails_when_released(scales);
    let run = world.start(&world.step(&[]), faults).await;
    run.until_it_sends(scales).await;
    // The station's own move would come in the next phase.
    let opening = json!({"spec": {"state": "Opening"}});
    world.api.merge(&resource(&STATION), None, STATION_NAME, None, &opening).await.unwrap();
    holding.release();
    run.wait().await.unwrap().exits(4).says("Everything is as it was before");
    let station = world.api.get(&resource(&STATION), None, STATION_NAME).await.unwrap().unwrap();
    assert_eq!(station["spec"]["state"], "Opening");
}

#[tokio::test]
async fn an_object_that_is_gone_when_it_would_be_changed_is_left_out_and_the_rest_is_done() {
    let world = World::fixture(prompt()).await;
    let (hold, holding) = Fault::hold(At::first(scales));
    let run = world.start(&world.step(&[]), vec![hold]).await;
    run.until_it_sends(scales).await;
    world.api.delete(&resource(&DEPLOYMENT), Some(world.place), "engine").await.unwrap();
    holding.release();
    let run = run.wait().await.unwrap();
    run.exits(0).says("Deployment/e2e-workshop/engine: was deleted by somebody else in the meantime");
    assert_eq!(world.get(&WIDGET, "anvil").await.unwrap()["spec"]["phase"], "Active");
}

/// A pod that was deleted by force may live on beside its successor.
#[tokio::test]
async fn a_run_whose_journal_another_one_has_written_undoes_nothing() {
    let world = World::fixture(prompt()).await;
    let (faults, holding) = fails_when_released(on_the_station);
    let run = world.start(&world.step(&[]), faults).await;
    run.until_it_sends(on_the_station).await;
    let mut journals = world.journals("fixture").await;
    journals[0]["deaths"] = 1.into();
    let head = json!({"format": 1, "journals": journals}).to_string();
    let taken_up = json!({"data": {"head": k8s_openapi::ByteString(head.into_bytes())}});
    let secrets = Resource::core("secrets");
    world.api.merge(&secrets, Some(world.home), "belay-fixture", None, &taken_up).await.unwrap();
    holding.release();
    let run = run.wait().await.unwrap();
    run.exits(1).says("the journal was written by another run");
    assert_eq!(world.get(&WIDGET, "anvil").await.unwrap()["spec"]["phase"], "Active");
    world.run(&world.step(&[])).await.exits(0).says("resuming");
}

/// What somebody puts back is not fought over, round after round.
#[tokio::test]
async fn what_somebody_changes_back_while_the_step_runs_is_left_alone_and_named() {
    let world = World::fixture(prompt()).await;
    let (hold, holding) = Fault::hold(At::first(on_the_station));
    let run = world.start(&world.step(&[]), vec![hold]).await;
    // The station comes when all before it is done: the step has seen the engine at rest.
    run.until_it_sends(on_the_station).await;
    world.patch(&DEPLOYMENT, "engine", &json!({"spec": {"replicas": 5}})).await;
    holding.release();
    let run = run.wait().await.unwrap();
    run.exits(0).says("Deployment/e2e-workshop/engine: was changed back by somebody while the step ran");
    assert_eq!(run.calls.iter().filter(|call| scales(call)).count(), 1);
    assert_eq!(world.get(&DEPLOYMENT, "engine").await.unwrap()["spec"]["replicas"], 5);
}

/// Owning a field makes the next server-side apply of the chart that renders it fail.
#[tokio::test]
async fn what_is_made_again_belongs_to_those_whose_it_was() {
    let world = World::fixture(prompt()).await;
    let maps = harness::Resource::core("configmaps");
    let owners = async || {
        let manual = world.api.get(&maps, Some(world.place), "manual").await.unwrap().unwrap();
        let drill = world.get(&GADGET, "drill").await.unwrap();
        [manual, drill].map(|object| {
            let managers = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
            let of_spec = managers.iter().filter(|entry| entry.get("subresource").is_none());
            let mut names: Vec<String> = of_spec.map(|entry| entry["manager"].to_string()).collect();
            names.sort();
            names.dedup();
            names
        })
    };
    let before = owners().await;
    let run = world.run_with(&world.step(&[]), vec![crate::fails_late()]).await;
    run.exits(4);
    let after = owners().await;
    assert!(!after.iter().flatten().any(|name| name == "\"belay\""), "{after:?}");
    assert_eq!(before[0], after[0]);
    world.run(&world.step(&[])).await.exits(0);
    let drill = world.get(&GADGET, "drill").await.unwrap();
    assert!(!drill["metadata"]["managedFields"].to_string().contains(r#""manager":"belay""#), "{drill}");
}

#[tokio::test]
async fn an_undo_that_cannot_be_marked_in_the_journal_is_done_all_the_same() {
    let world = World::fixture(prompt()).await;
    let before = world.state().await;
    let head = |call: &Call| {
        call.class == Class::Journal
            && call.verb == harness::Verb::Update
            && call.name.as_deref() == Some("belay-fixture")
    };
    let unmarked = Fault::FailForGood { at: At::first(head), status: 422, scope: Scope::Target, until: None };
    let run = world.run_with(&world.step(&[]), vec![crate::fails_late(), unmarked]).await;
    run.exits(4).says("the journal could not be marked, it is undone all the same");
    let after = world.state().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
}
