//! What a person does with runs: status, report, restore, accept, unlock.

use e2e::{
    Told, World,
    rights::Account,
    told::{Telling, is_move},
    world::{SOON, SYSTEM, leases, prompt, resource},
};
use harness::{At, Call, Class, Exit, Fault, Resource, Scope, StepCommand};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use standins::{
    Behaviour, Family, cluster,
    conditions::now,
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
    world.run(&second).await.exits(0).says("1 change was taken back");
    assert_eq!(world.get(&DEPLOYMENT, "publisher").await.unwrap()["spec"]["replicas"], 2);
    world
        .run(&first.clone().env("BELAY_DRY_RUN", "true"))
        .await
        .exits(0)
        .writes_nothing()
        .says("create HTTPSource/e2e-integration/commerce is taken back");
    world.run(&first).await.exits(0);
    world.until_names(&HTTP_SOURCE, &[]).await;
    world.run(&first).await.exits(0).says("is restored already").changes_nothing();
    // And forward again.
    world.run(&world.sources(&[])).await.exits(0).says("1 created");
}

/// Makes a source in each of two runs, and returns these, the newest first.
async fn two_runs(world: &World) -> Vec<String> {
    for application in ["commerce", "logistics"] {
        world.applications(&[application]).await;
        world.run(&world.sources(&[])).await.exits(0).says("1 created");
    }
    world.journals(SOURCES).await.iter().map(|one| text(&one["run"])).collect()
}

/// Whoever goes back the whole way must not think that one run was all.
#[tokio::test]
async fn a_restore_names_the_run_before_that_still_stands() {
    let world = World::mesh(Behaviour::default()).await;
    let runs = two_runs(&world).await;
    let newest = world.run(&world.operate("restore", &["--step", SOURCES])).await;
    newest.exits(0).says(&format!("1 change was taken back. Before it came run {} (begun ", runs[1]));
    let first = world.run(&world.operate("restore", &["--step", SOURCES, "--run", &runs[1]])).await;
    first.exits(0).says("1 change was taken back").never_says("Before it came");
    world.until_names(&HTTP_SOURCE, &[]).await;
}

/// A Job whose pod was killed after it had closed the journal tries again, and a person may press a key twice.
#[tokio::test]
async fn a_restore_takes_back_one_run_and_goes_further_back_only_when_told() {
    let world = World::mesh(Behaviour::default()).await;
    let runs = two_runs(&world).await;
    let restore = world.operate("restore", &["--step", SOURCES]);
    let older = restore.clone().args(["--run", &runs[1]]);
    world.run(&older).await.exits(3).says("must be taken back before run").changes_nothing();
    let killed = vec![Fault::KillAfter(At::first(|call| head_of(call).contains("\"undone\"")))];
    let killed = world.run_with(&restore, killed).await;
    assert_eq!(killed.exit, Exit::Signal(9));
    killed.says(&format!("taking back run {} (begun ", runs[0]));
    for _ in 0..2 {
        let again = world.run(&restore).await;
        again
            .exits(0)
            .changes_nothing()
            .says(&format!("run {} (begun ", runs[0]))
            .says("is restored already");
        again.says(&format!(
            "to take that back: belay restore --step {SOURCES} --home e2e-home --run {}",
            runs[1]
        ));
        world.until_names(&HTTP_SOURCE, &["commerce"]).await;
        assert_eq!(world.holder(Family::EventMesh).await, "");
        assert_eq!(world.report(SOURCES).await["result"], "taken-back");
    }
    let shown = world.run(&older.clone().args(["--dry-run"])).await;
    shown.exits(0).writes_nothing().says(&format!("run {} (begun ", runs[1])).says("1 move would be undone");
    world.run(&older).await.exits(0).says("1 change was taken back");
    world.until_names(&HTTP_SOURCE, &[]).await;
    world.run(&older).await.exits(0).says("is restored already").changes_nothing();
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The head that a call writes, as text; empty if it writes none.
fn head_of(call: &Call) -> String {
    let head = call.json().filter(|_| call.is_write()).map(|body| body["data"]["head"].clone());
    let bytes = head.and_then(|head| serde_json::from_value::<ByteString>(head).ok());
    bytes.map(|bytes| String::from_utf8(bytes.0).unwrap_or_default()).unwrap_or_default()
}

#[tokio::test]
async fn what_a_person_accepted_is_not_passed_over_by_a_restore() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.run(&world.sources(&[])).await.exits(0);
    world.applications(&["logistics"]).await;
    world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    world.run(&world.operate("accept", &["--step", SOURCES])).await.exits(0);
    let restore = world.operate("restore", &["--step", SOURCES]);
    let run = text(&world.journals(SOURCES).await[1]["run"]);
    world.run(&restore).await.exits(3).says("accepted").says(&format!("--run {run}")).changes_nothing();
    world.run(&restore.clone().args(["--run", &run])).await.exits(0).says("1 change was taken back");
    world.until_names(&HTTP_SOURCE, &["logistics"]).await;
}

#[tokio::test]
async fn a_dry_run_of_a_restore_tells_what_is_as_before_already() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    world.run(&world.sources(&[])).await.exits(0);
    world.api.delete(&resource(&HTTP_SOURCE), Some(world.place), "commerce").await.unwrap();
    world.until_gone(&HTTP_SOURCE, "commerce").await;
    let run = world.run(&world.operate("restore", &["--step", SOURCES, "--dry-run"])).await;
    run.exits(0).writes_nothing().says("create HTTPSource/e2e-integration/commerce is already as before");
    run.says("create HTTPSource/e2e-integration/logistics is taken back");
    run.says("1 move would be undone, 1 would stay as it is");
}

#[tokio::test]
async fn a_restore_that_cannot_close_its_journal_is_no_refusal_and_is_finished_by_the_next() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.run(&world.sources(&[])).await.exits(0);
    let restore = world.operate("restore", &["--step", SOURCES]);
    let closes = At::first(|call| head_of(call).contains("\"undone\""));
    let fault = Fault::FailForGood { at: closes, status: 422, scope: Scope::Target, until: None };
    let run = world.run_with(&restore, vec![fault]).await;
    run.exits(1).says("everything is put back (1 change was taken back), but the journal of run");
    assert_eq!(world.report(SOURCES).await["result"], "stopped");
    assert_eq!(world.journal_status(SOURCES).await, "undoing");
    world.run(&world.operate("status", &[])).await.exits(0).says("either finishes the undo");
    world.run(&restore).await.exits(0);
    assert_eq!(world.journal_status(SOURCES).await, "undone");
}

/// The done record lives in the report's ConfigMap, so the report cannot be written either.
#[tokio::test]
async fn a_restore_that_cannot_change_the_done_record_keeps_its_journal_open() {
    let world = World::fixture(prompt()).await;
    let noted = env!("CARGO_BIN_EXE_noted-step");
    world.run(&world.other_step(noted, &[])).await.exits(0);
    let restore = StepCommand { program: noted.into(), ..world.operate("restore", &["--step", "noted"]) };
    let record = At::first(|call| call.class == Class::Report && call.is_write());
    let fault = Fault::FailForGood { at: record, status: 422, scope: Scope::Target, until: None };
    let run = world.run_with(&restore, vec![fault]).await;
    run.exits(1).says("everything is put back (3 changes were taken back)").says("Restore again");
    assert_eq!(world.journal_status("noted").await, "undoing");
    world.run(&restore).await.exits(0);
    assert_eq!(world.run(&world.other_step(noted, &[])).await.exits(0).moves().len(), 3);
}

/// Its stand-in never lets the source go.
#[tokio::test]
async fn a_restore_whose_time_is_up_still_writes_its_report() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.run(&world.sources(&[])).await.exits(0);
    let stay = json!({"metadata": {"finalizers": ["e2e.belay.dev/stay"]}});
    world.patch(&HTTP_SOURCE, "commerce", &stay).await;
    let run = world.run(&world.operate("restore", &["--step", SOURCES, "--deadline", "3"])).await;
    run.exits(5).says("NOT everything could be put back");
    assert_eq!(world.report(SOURCES).await["result"], "not-restored");
    world.patch(&HTTP_SOURCE, "commerce", &json!({"metadata": {"finalizers": null}})).await;
    world.run(&world.operate("restore", &["--step", SOURCES])).await.exits(0);
}

#[tokio::test]
async fn a_run_that_died_can_be_restored_without_running_it_again() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    world.run(&world.operate("restore", &["--step", SOURCES])).await.exits(0).says("took the lock over");
    world.until_names(&HTTP_SOURCE, &[]).await;
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
    run.exits(0).writes_nothing().says("1 open journal: ").says("died half-way").says("OPEN since");
    run.says(
        "run create-missing-sources again or belay restore --step create-missing-sources --home e2e-home",
    );

    let rows = world.run(&status.clone().args(["-o", "json"])).await.exits(0).json();
    let row = |step: &str| rows.as_array().unwrap().iter().find(|row| row["step"] == step).unwrap();
    assert_eq!(row(SOURCES)["journals"][0]["status"], "open");
    assert_eq!(row(DOWN)["report"]["result"], "done");
    assert_eq!(row(DOWN)["report"]["counts"]["scaled"], 1);
    assert_eq!((&row(DOWN)["home"], &row(DOWN)["next"]), (&world.home.into(), &"-".into()));
    let rows = world.run(&status.clone().args(["-o", "json", "--release", "mesh"])).await.json();
    assert!(rows.as_array().unwrap().iter().any(|row| row["step"] == DOWN));
    world.run(&world.sources(&["--release", "mesh"])).await.exits(0);
    // What another release has left open holds this one up.
    world.applications(&["loyalty"]).await;
    world.run_with(&world.sources(&["--release", "mesh"]), vec![Fault::KillAfter(At::first(is_move))]).await;
    let run = world.run(&status.clone().args(["--release", "shop"])).await;
    run.exits(0).says("1 open journal: ").says("this is of release mesh").never_says(DOWN);
    world.run(&world.sources(&["--release", "mesh"])).await.exits(0);
    let none = world.run(&status.clone().args(["--release", "no-such"])).await;
    none.exits(0).says("no step of release no-such has run here").never_says(SOURCES);
}

/// The chart tells each step the name of the CronJob that runs it again.
#[tokio::test]
async fn verdict_and_status_end_with_the_command_that_runs_the_step_again() {
    let never = Behaviour { never_ready: vec!["commerce".to_owned()], ..Behaviour::default() };
    let world = World::mesh(never).await;
    world.applications(&["commerce"]).await;
    let sources = world.sources(&["--ready-within", "3"]).env("BELAY_CRON_JOB", "mesh-sources");
    let run = world.run(&sources).await;
    let command = "kubectl create job --namespace e2e-home --from=cronjob/mesh-sources again-";
    run.exits(4).says(&format!("Cure the cause, then upgrade again, or run this step alone: {command}"));
    let status = world.operate("status", &[]);
    world.run(&status).await.exits(0).says(&format!("cure the cause, then {command}"));
    let rerun = text(&world.report(SOURCES).await["rerun"]);
    assert!(rerun.starts_with(command), "{rerun}");
    // Who dies says nothing: the Job of the last command may be the one that died.
    // Times are written to the second, and this must be a later one.
    let then = now();
    cluster::wait_until("a second has passed", SOON, async || Ok(now() != then)).await.unwrap();
    world.standins.change(|behaviour| behaviour.never_ready.clear());
    world.run_with(&sources, vec![Fault::KillAfter(At::first(is_move))]).await;
    let row = world.run(&status.clone().args(["-o", "json"])).await.exits(0).json()[0].clone();
    let next = text(&row["next"]);
    assert!(next.starts_with(command) && !next.contains(&rerun), "{next}");
}

#[tokio::test]
async fn while_another_step_is_at_work_nobody_is_told_to_run_or_restore() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    world.run(&world.scale_down(&["Deployment/publisher"], &[])).await.exits(0);
    world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    let (hold, holding) = Fault::hold(At::first(is_move));
    let alive = world.start(&world.operate("restore", &["--step", DOWN]), vec![hold]).await;
    alive.until_it_says("taking back run").await;
    alive.until_it_sends(is_move).await;
    let rows = world.run(&world.operate("status", &["-o", "json"])).await.exits(0).json();
    let next = |step: &str| {
        let row = rows.as_array().unwrap().iter().find(|row| row["step"] == step).unwrap();
        text(&row["next"])
    };
    assert_eq!(next(SOURCES), "wait until restore scale-down-legacy has ended, then look again");
    assert_eq!(next(DOWN), "wait until it has ended");
    holding.release();
    alive.wait().await.unwrap().exits(0);
}

/// The chart sets it for every Job.
#[tokio::test]
async fn an_operation_logs_as_it_is_told_to() {
    let world = World::mesh(Behaviour::default()).await;
    let unlock = world.operate("unlock", &["--family", "event-mesh"]).env("BELAY_LOG_FORMAT", "json");
    let run = world.run(&unlock).await;
    let last: Value = serde_json::from_str(run.exits(0).stderr.lines().last().unwrap()).unwrap();
    assert_eq!(last["message"], "belay: nobody held the lock");
}

#[tokio::test]
async fn status_tells_who_is_at_work_on_what_and_since_when() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    let alive = world.start(&world.sources(&[]), vec![]).await;
    alive.proxy.when(is_move, SOON).await.unwrap();
    let status = world.operate("status", &[]);
    let run = world.run(&status).await;
    run.exits(0).writes_nothing().says("at work: create-missing-sources").says("wait until it has ended");
    run.says("is at work since ").says("(create-missing-sources)").never_says("died half-way");
    let row = world.run(&status.clone().args(["-o", "json"])).await.exits(0).json()[0].clone();
    assert_eq!((&row["state"], &row["lock"]["life"]), (&"running".into(), &"alive".into()));
    assert_eq!(row["lock"]["holder"].as_str().unwrap(), world.holder(Family::EventMesh).await);
    let keys: Vec<&String> = row.as_object().unwrap().keys().collect();
    let stable = [
        "family", "history", "home", "journals", "lock", "next", "notes", "problems", "report", "since",
        "state", "step",
    ];
    assert_eq!(keys, stable);

    alive.signal(rustix::process::Signal::KILL).unwrap();
    alive.wait().await.unwrap();
    let run = world.run(&status).await;
    run.exits(0).says("died half-way").says("has ended without giving the lock back").never_says("running");
    world.standins.change(|behaviour| behaviour.paused = false);
    world.run(&world.sources(&[])).await.exits(0);
    world.run(&status).await.exits(0).says("no open journals").never_says("died half-way");
}

/// Rights like those of the status CronJob, with or without what it takes to see who is at work.
fn rights_to_look(home: &str, lock: bool) -> Value {
    let get = |group: &str, resource: &str, names: Value| json!({"apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": ["get"]});
    let steps = belay_steps();
    let named = |prefix: &str| steps.iter().map(|step| format!("{prefix}{step}")).collect::<Vec<_>>();
    let mut rules = vec![
        get("", "secrets", json!(named("belay-"))),
        get("", "configmaps", json!(named("belay-report-"))),
    ];
    if lock {
        rules.push(get("coordination.k8s.io", "leases", json!(["belay-event-mesh"])));
    }
    json!({"clusterRules": [], "namespaced": {home: rules}})
}

fn belay_steps() -> Vec<String> {
    let listed = std::process::Command::new(e2e::world::program("BELAY_BIN", "belay")).arg("--list").output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    listed.lines().filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_run_of_which_the_lock_cannot_be_seen_is_not_called_dead() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    let alive = world.start(&world.sources(&[]), vec![]).await;
    alive.proxy.when(is_move, SOON).await.unwrap();
    let status = world.operate("status", &[]);
    for (lock, says) in [(false, "not known"), (true, "running")] {
        let rules = rights_to_look(world.home, lock);
        let account = Account::new(&world.api, world.home, "looks", rules).await.unwrap();
        let upstream = account.upstream(&world.kubeconfig).await.unwrap();
        let run = status.run(&upstream, vec![]).await.unwrap();
        run.exits(0).says(says).never_says("died half-way ").writes_nothing();
        let row = status.clone().args(["-o", "json"]).run(&upstream, vec![]).await.unwrap().json()[0].clone();
        assert_eq!(row["state"], says);
    }
    world.standins.change(|behaviour| behaviour.paused = false);
    alive.wait().await.unwrap().exits(0);
}

#[tokio::test]
async fn a_run_that_was_told_to_stop_is_not_called_dead() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    world.run_with(&world.sources(&[]), vec![Fault::Terminate(At::first(is_move))]).await.exits(143);
    let run = world.run(&world.operate("status", &[])).await;
    run.exits(0).says("told to stop").says("run create-missing-sources again or belay restore");
    run.never_says("died half-way");
}

/// A Lease made there would be a second home, and every run would be refused.
#[tokio::test]
async fn an_operation_in_a_namespace_where_the_family_does_not_live_leaves_nothing_there() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    let operations = [
        (world.operate("restore", &["--step", SOURCES, "--home", SYSTEM]), 3, "has nothing to restore"),
        (world.operate("accept", &["--step", SOURCES, "--home", SYSTEM]), 3, "has no open journal"),
        (world.operate("unlock", &["--family", "event-mesh", "--home", SYSTEM]), 0, "nobody held the lock"),
        (
            world.operate("cleanup", &["--release", "any", "--family", "event-mesh", "--home", SYSTEM]),
            0,
            "0 objects of release any removed",
        ),
    ];
    for (operation, ..) in &operations {
        let run = world.run(operation).await;
        run.exits(3).says("already has its home in namespace e2e-home").writes_nothing();
    }
    world.api.delete(&leases(), Some(world.home), "belay-event-mesh").await.unwrap();
    for (operation, exit, says) in &operations {
        world.run(operation).await.exits(*exit).says(says).writes_nothing();
    }
    world.run(&world.sources(&[])).await.exits(0).says("resuming");
}

#[tokio::test]
async fn after_a_restore_or_an_accept_status_says_so() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    let status = world.operate("status", &[]);
    world.run(&world.sources(&["--release", "mesh"])).await.exits(0);
    let restored = world.run(&world.operate("restore", &["--step", SOURCES])).await;
    restored.exits(0).never_says("Before it came");
    let run = world.run(&status).await;
    run.exits(0)
        .says("restored by hand, run ")
        .says(": 1 change was taken back")
        .never_says("done: 1 created");
    let row = world.run(&status.clone().args(["-o", "json", "--release", "mesh"])).await.json()[0].clone();
    assert_eq!((&row["state"], &row["next"]), (&"restored by hand".into(), &"-".into()));
    assert!(row["report"]["versions"]["cluster"].as_str().unwrap().starts_with('v'), "{row}");

    world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    let accept = world.operate("accept", &["--step", SOURCES, "--remark", "it is well"]);
    world.run(&accept).await.exits(0).says("accepted").says("it is well");
    let run = world.run(&status).await;
    run.exits(0).says("no open journals").says("is closed: it is well").never_says("died half-way");
    let row = world.run(&status.clone().args(["-o", "json"])).await.json()[0].clone();
    assert_eq!(row["state"], "accepted");
}

/// As after `helm uninstall`.
#[tokio::test]
async fn without_a_lease_the_home_is_where_the_reports_are() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.run(&world.sources(&[])).await.exits(0);
    world.api.delete(&leases(), Some(world.home), "belay-event-mesh").await.unwrap();
    for (operation, flags, says) in [
        ("status", &[][..], "create-missing-sources  e2e-home  done"),
        ("report", &[SOURCES], "created HTTPSource/e2e-integration/commerce"),
        ("restore", &["--step", SOURCES], "1 change was taken back"),
    ] {
        let mut command = world.operate(operation, flags);
        command.env.remove("BELAY_HOME");
        world.run(&command).await.exits(0).says(says);
    }
    world.until_names(&HTTP_SOURCE, &[]).await;
}

#[tokio::test]
async fn what_cannot_be_read_is_told_and_hides_no_other_step() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.workload(&DEPLOYMENT, "publisher", 1).await;
    world.run(&world.sources(&[])).await.exits(0);
    world.run(&world.scale_down(&["Deployment/publisher"], &[])).await.exits(0);
    let status = world.operate("status", &["-o", "json"]);
    let rows = async || {
        let run = world.run(&status).await;
        run.exits(3).says("1 step could not be read whole");
        let rows = run.json();
        let row =
            |step: &str| rows.as_array().unwrap().iter().find(|row| row["step"] == step).unwrap().clone();
        assert_eq!(row(DOWN)["state"], "done");
        row(SOURCES)
    };
    let gibberish = json!({"data": {"report": "gibberish"}});
    let name = "belay-report-create-missing-sources";
    world.api.merge(&Resource::core("configmaps"), Some(world.home), name, None, &gibberish).await.unwrap();
    let row = rows().await;
    assert_eq!(row["state"], "done", "the journal tells");
    assert!(row["problems"][0].as_str().unwrap().contains("is not readable"), "{row}");

    let gibberish = json!({"data": {"head": ByteString(b"gibberish".to_vec())}});
    let name = "belay-create-missing-sources";
    world.api.merge(&Resource::core("secrets"), Some(world.home), name, None, &gibberish).await.unwrap();
    let row = rows().await;
    assert_eq!((&row["state"], &row["next"]), (&"not known".into(), &"see below".into()));
    world.run(&world.operate("status", &[])).await.exits(3).says("NOT READABLE").says("scale-down-legacy");
}

#[tokio::test]
async fn an_account_without_rights_does_not_take_the_cluster_for_empty() {
    let world = World::mesh(Behaviour::default()).await;
    let nothing = json!({"clusterRules": [], "namespaced": {}});
    let account = Account::new(&world.api, world.home, "nothing", nothing).await.unwrap();
    let upstream = account.upstream(&world.kubeconfig).await.unwrap();
    let (at_home, mut anywhere) = (world.operate("status", &[]), world.operate("status", &[]));
    anywhere.env.remove("BELAY_HOME");
    for status in [at_home, anywhere] {
        let run = status.run(&upstream, vec![]).await.unwrap();
        run.exits(3)
            .says("this cluster could not be looked at")
            .says("forbidden")
            .never_says("no step has run");
    }
}

#[tokio::test]
async fn a_restore_that_is_told_to_stop_goes_on_when_it_is_said_again() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics", "loyalty"]).await;
    world.run(&world.sources(&[])).await.exits(0);
    let restore = world.operate("restore", &["--step", SOURCES]);
    let told = world.run_with(&restore, vec![Fault::Terminate(At::first(is_move))]).await;
    told.exits(143).says("told to stop: the same command goes on from here");
    assert_eq!(world.holder(Family::EventMesh).await, "");
    assert_eq!(world.journal_status(SOURCES).await, "undoing");
    let status = world.run(&world.operate("status", &[])).await;
    status.exits(0).says("either finishes the undo").says("told to stop").never_says("died half-way");
    world.run(&restore).await.exits(0).never_says("took the lock over");
    world.until_names(&HTTP_SOURCE, &[]).await;
    assert_eq!(world.journal_status(SOURCES).await, "undone");
}

/// As after `helm uninstall`, which forgets hooks.
#[tokio::test]
async fn cleanup_removes_what_hooks_left_but_not_what_an_open_journal_needs() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce", "logistics"]).await;
    let accounts = Resource::core("serviceaccounts");
    let account = async |name: &str, step: &str, release: &str| {
        let labels = json!({
            "belay.dev/family": "event-mesh", "belay.dev/step": step, "belay.dev/release": release,
            "belay.dev/namespace": world.home,
        });
        let object = json!({"metadata": {"name": name, "namespace": world.home, "labels": labels}});
        world.api.ensure(&accounts, &object).await.unwrap();
    };
    let left = async || {
        let mut names = Vec::new();
        for name in ["hook-sources", "hook-down", "hook-cleanup", "hook-of-another"] {
            let found = world.api.get(&accounts, Some(world.home), name).await.unwrap();
            names.extend(found.map(|_| name));
        }
        names
    };
    account("hook-sources", SOURCES, "mesh").await;
    account("hook-down", DOWN, "mesh").await;
    // One that failed in its pod.
    account("hook-cleanup", "cleanup", "mesh").await;
    account("hook-of-another", DOWN, "another").await;
    world.run_with(&world.sources(&[]), vec![Fault::KillAfter(At::first(is_move))]).await;
    let cleanup = world.operate("cleanup", &["--release", "mesh", "--family", "event-mesh"]);
    let run = world.run(&cleanup).await;
    run.exits(0).says("kept, because their journals are open: create-missing-sources");
    assert_eq!(left().await, ["hook-sources", "hook-of-another"]);
    assert!(world.own("leases", "belay-event-mesh").await.is_some());

    // Nobody knows whether a journal that cannot be read is open.
    let gibberish = json!({"data": {"head": ByteString(b"gibberish".to_vec())}});
    let (secrets, head) = (Resource::core("secrets"), "belay-create-missing-sources");
    let whole = world.own("secrets", head).await.unwrap()["data"].clone();
    world.api.merge(&secrets, Some(world.home), head, None, &gibberish).await.unwrap();
    world.run(&cleanup).await.exits(0).says("is not readable");
    assert_eq!(left().await, ["hook-sources", "hook-of-another"]);
    world.api.merge(&secrets, Some(world.home), head, None, &json!({"data": whole})).await.unwrap();

    world.run(&world.sources(&[])).await.exits(0);
    // While another release has steps of the family, its home stays.
    let roles = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
    let labels = json!({"belay.dev/family": "event-mesh", "belay.dev/release": "mesh", "belay.dev/namespace": "another"});
    let role = json!({"metadata": {"name": "e2e-of-another-release", "labels": labels}});
    world.api.ensure(&roles, &role).await.unwrap();
    world.run(&cleanup).await.exits(0).says("1 object of release mesh removed");
    world.api.delete(&roles, None, "e2e-of-another-release").await.unwrap();
    assert_eq!(left().await, ["hook-of-another"]);
    assert!(world.own("leases", "belay-event-mesh").await.is_some());
    assert_eq!(world.holder(Family::EventMesh).await, "");
    world.run(&cleanup).await.exits(0).says("1 object of release mesh removed");
    assert!(world.own("leases", "belay-event-mesh").await.is_none());
    assert!(world.own("secrets", head).await.is_some(), "journals stay");
    world.run(&world.operate("restore", &["--step", SOURCES])).await.exits(0);
}

/// As after `helm install` of a second release, whose steps refuse a second home, and its `helm uninstall`.
#[tokio::test]
async fn cleanup_removes_the_hooks_of_a_release_that_was_refused_since_another_one_has_the_home() {
    let world = World::mesh(Behaviour::default()).await;
    world.applications(&["commerce"]).await;
    world.run(&world.sources(&[])).await.exits(0);
    let labels = |release: &str, namespace: &str| {
        json!({
            "belay.dev/family": "event-mesh", "belay.dev/step": SOURCES, "belay.dev/release": release,
            "belay.dev/namespace": namespace,
        })
    };
    let accounts = Resource::core("serviceaccounts");
    let account =
        json!({"metadata": {"name": "hook", "namespace": SYSTEM, "labels": labels("second", SYSTEM)}});
    world.api.ensure(&accounts, &account).await.unwrap();
    let flags = ["--release", "second", "--family", "event-mesh", "--home", SYSTEM];
    let cleanup = world.operate("cleanup", &flags).env("BELAY_NAMESPACE", SYSTEM);
    // Without another release it is this one that has moved.
    world.run(&cleanup).await.exits(3).says("already has its home in namespace e2e-home").writes_nothing();
    let roles = Resource::new("rbac.authorization.k8s.io", "v1", "clusterroles");
    let role = json!({"metadata": {"name": "e2e-of-the-first", "labels": labels("first", world.home)}});
    world.api.ensure(&roles, &role).await.unwrap();
    let run = world.run(&cleanup).await;
    world.api.delete(&roles, None, "e2e-of-the-first").await.unwrap();
    run.exits(0).says("1 object of release second removed");
    assert!(world.api.get(&accounts, Some(SYSTEM), "hook").await.unwrap().is_none());
    assert!(world.own("leases", "belay-event-mesh").await.is_some(), "the home of the first one stays");
}

/// Its lock and its journals are not where the release is.
#[tokio::test]
async fn cleanup_finds_a_home_that_is_not_the_namespace_of_the_release() {
    let world = World::mesh(Behaviour { paused: true, ..Behaviour::default() }).await;
    world.applications(&["commerce"]).await;
    let accounts = Resource::core("serviceaccounts");
    let labels = json!({
        "belay.dev/family": "event-mesh", "belay.dev/step": SOURCES, "belay.dev/release": "mesh",
        "belay.dev/namespace": SYSTEM,
    });
    let account = json!({"metadata": {"name": "hook-sources", "namespace": SYSTEM, "labels": labels}});
    world.api.ensure(&accounts, &account).await.unwrap();
    let is_there = async || world.api.get(&accounts, Some(SYSTEM), "hook-sources").await.unwrap().is_some();
    let mut cleanup = world.operate("cleanup", &["--release", "mesh", "--family", "event-mesh"]);
    cleanup.env.insert("BELAY_NAMESPACE".to_owned(), SYSTEM.to_owned());
    cleanup.env.remove("BELAY_HOME");

    let alive = world.start(&world.sources(&[]), vec![]).await;
    alive.proxy.when(is_move, SOON).await.unwrap();
    world.run(&cleanup).await.exits(75).says("holds the lock").writes_nothing();
    alive.signal(rustix::process::Signal::KILL).unwrap();
    alive.wait().await.unwrap();
    world.run(&cleanup).await.exits(0).says("kept, because their journals are open: create-missing-sources");
    assert!(is_there().await);

    world.standins.change(|behaviour| behaviour.paused = false);
    world.run(&world.sources(&[])).await.exits(0);
    world.run(&cleanup).await.exits(0).says("2 objects of release mesh removed");
    assert!(!is_there().await && world.own("leases", "belay-event-mesh").await.is_none());
    // Without a Lease the reports tell.
    world.api.ensure(&accounts, &account).await.unwrap();
    world.run(&cleanup).await.exits(0).says("1 object of release mesh removed");
}

#[tokio::test]
async fn a_report_tells_all_its_findings_however_many() {
    let world = World::mesh(Behaviour::default()).await;
    let missing: Vec<String> = (0..205).map(|number| format!("Deployment/missing-{number}")).collect();
    let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
    world.run(&world.scale_down(&missing, &[])).await.exits(0);
    assert_eq!(world.report(DOWN).await["findings"].as_array().unwrap().len(), 201);
    let run = world.run(&world.operate("report", &[DOWN])).await;
    run.exits(0).says("/missing-0: ").says("/missing-204: ").never_says("more findings");
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
}

#[tokio::test]
async fn nothing_can_be_operated_while_a_run_is_alive_and_a_dead_lock_can_be_released() {
    let world = World::fixture(prompt()).await;
    world.standins.change(|behaviour| behaviour.paused = true);
    let alive = world.start(&world.step(&["--deadline", "60"]), vec![]).await;
    alive.proxy.when(is_move, SOON).await.unwrap();
    let unlock = world.operate("unlock", &["--family", "fixture"]);
    let (accept, restore) =
        (world.operate("accept", &["--step", "fixture"]), world.operate("restore", &["--step", "fixture"]));
    let cleanup = world.operate("cleanup", &["--release", "any", "--family", "fixture"]);
    for command in [&unlock, &accept, &restore, &cleanup] {
        world.run(command).await.exits(75).says("holds the lock").changes_nothing();
    }
    alive.signal(rustix::process::Signal::KILL).unwrap();
    alive.wait().await.unwrap();
    world.run(&unlock).await.exits(0).says("the lock of a run that had died is released").changes_nothing();
    assert_eq!(world.holder(Family::Fixture).await, "");
    world.run(&unlock).await.exits(0).says("nobody held the lock");
}
