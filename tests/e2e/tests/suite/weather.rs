//! An API server that is slow, busy, away for a while, or that forgets our rights: the run goes on and finishes.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use e2e::{
    Told, World,
    rights::Account,
    told::{Telling as _, is_move},
    world::{SOON, SOURCE_CONTROLLER, SYSTEM, prompt, resource},
};
use harness::{Action, Api, At, Call, Class, Fault, Resource, call::Fate, crash::nothing_tried};
use serde_json::json;
use standins::{
    Behaviour,
    cluster::mark_available,
    fixtures,
    kinds::{DEPLOYMENT, HTTP_SOURCE},
};
use tokio::net::{TcpListener, TcpStream};

async fn many(world: &World, count: usize) {
    for number in 0..count {
        world.applications(&[&format!("app-{number}")]).await;
    }
}

#[tokio::test]
async fn a_throttled_run_waits_as_it_is_told_and_finishes() {
    let world = World::mesh(Behaviour::default()).await;
    many(&world, 3).await;
    // The first page, the lock, the journal and each move: once.
    let mut told = BTreeSet::new();
    let busy = Fault::hook(move |call| {
        let is_it = call.is_write() || call.class == Class::Read && call.target.resource == "applications";
        let what = format!("{:?} {} {}", call.class, call.path, call.name.as_deref().unwrap_or_default());
        if is_it && told.insert(what) { Action::Answer(429, Some(1)) } else { Action::Forward }
    });
    let step = world.sources(&["--deadline", "200"]).bound(Duration::from_secs(260));
    let run = world.run_with(&step, vec![busy]).await;
    run.exits(0).says("3 created");
    let mut told_to_wait = BTreeSet::new();
    for (at, call) in run.calls.iter().enumerate().filter(|(_, call)| call.status == Some(429)) {
        let same = |next: &&Call| next.key() == call.key() && next.body_sha == call.body_sha;
        let next = run.calls[at + 1..].iter().find(same);
        // The lock has a pace of its own, and a run that is told to wait for its report may leave it at that.
        if let Some(next) = next.filter(|_| matches!(call.class, Class::Read | Class::Journal | Class::Move))
        {
            let waited = next.at.saturating_sub(call.at);
            assert!(waited >= Duration::from_secs(1), "{call} was tried again after {waited:?}");
            told_to_wait.insert(format!("{:?} {:?}", call.class, call.name));
        }
    }
    for what in ["Read None", "Journal Some(\"belay-create-missing-sources\")", "Move Some(\"app-2\")"] {
        assert!(told_to_wait.contains(what), "{what} is not among {told_to_wait:?}");
    }
}

/// What the API server itself says to an account that asks for too much.
#[tokio::test]
async fn a_tight_priority_level_slows_the_run_and_no_more() {
    let world = World::mesh(Behaviour::default()).await;
    many(&world, 3).await;
    let rules = world.run(&world.sources(&["--print-rbac"])).await.json();
    let account = Account::new(&world.api, world.home, "throttled", rules).await.unwrap();
    let flow = |plural: &str| Resource::new("flowcontrol.apiserver.k8s.io", "v1", plural);
    let level = json!({
        "metadata": {"name": "e2e-tight"},
        // One call at a time, and no more.
        "spec": {"type": "Limited", "limited": {
            "nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0,
            "limitResponse": {"type": "Reject"},
        }},
    });
    let subject =
        json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": world.home, "name": "throttled"}});
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true});
    let schema = json!({
        "metadata": {"name": "e2e-tight"},
        "spec": {
            "priorityLevelConfiguration": {"name": "e2e-tight"}, "matchingPrecedence": 10,
            "rules": [{"subjects": [subject], "resourceRules": [all]}],
        },
    });
    let upstream = account.upstream(&world.kubeconfig).await.unwrap();
    // Between two moves.
    let (hold, holding) = Fault::hold(At::first(crate::creates("app-1")));
    let step = world.sources(&[]).env("BELAY_CONCURRENCY", "1");
    let run = step.start(&upstream, vec![hold]).await.unwrap();
    run.until_it_sends(crate::creates("app-1")).await;
    world.api.ensure(&flow("prioritylevelconfigurations"), &level).await.unwrap();
    world.api.ensure(&flow("flowschemas"), &schema).await.unwrap();
    // The API server takes them up by a watch of its own, and says with every answer which one it went by.
    let uid = world.api.get(&flow("flowschemas"), None, "e2e-tight").await.unwrap().unwrap();
    let uid = uid["metadata"]["uid"].as_str().unwrap();
    standins::cluster::wait_until("the level is in force", SOON, async || {
        let request = http::Request::get("/api/v1/namespaces").body(kube::client::Body::empty())?;
        let answer = upstream.client().send(request).await?;
        let went_by = answer.headers().get("x-kubernetes-pf-flowschema-uid");
        Ok(went_by.is_some_and(|went_by| went_by == uid))
    })
    .await
    .unwrap();
    let lasting = lasting_call(&world, &Api::new(upstream.client())).await;
    holding.release();
    let refused = |call: &Call| crate::creates("app-1")(call) && call.status == Some(429);
    run.proxy.when(refused, SOON).await.unwrap();
    drop(lasting);
    run.wait().await.unwrap().exits(0).says("3 created");
    world.api.delete(&flow("flowschemas"), None, "e2e-tight").await.unwrap();
    world.api.delete(&flow("prioritylevelconfigurations"), None, "e2e-tight").await.unwrap();
    world.api.delete(&webhooks(), None, LASTING).await.unwrap();
}

/// What lasts until its connection is dropped.
const LASTING: &str = "e2e-lasting";

fn webhooks() -> Resource {
    Resource::new("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations")
}

/// A call of this account under way in the API server, which asks a webhook that does not answer. It ends with the
/// connection.
async fn lasting_call(world: &World, account: &Api) -> TcpStream {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap());
    let rule = json!({
        "apiGroups": [HTTP_SOURCE.group], "apiVersions": ["*"], "resources": [HTTP_SOURCE.plural], "operations": ["CREATE"],
    });
    let only_it = json!({"name": "only-it", "expression": format!("object.metadata.name == '{LASTING}'")});
    let webhook = json!({
        "metadata": {"name": LASTING},
        "webhooks": [{
            "name": "lasting.e2e.belay.dev", "clientConfig": {"url": url}, "rules": [rule], "matchConditions": [only_it],
            "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 30, "failurePolicy": "Ignore",
        }],
    });
    world.api.delete(&webhooks(), None, LASTING).await.unwrap();
    world.api.create(&webhooks(), &webhook).await.unwrap();
    let path = format!("{}?dryRun=All", resource(&HTTP_SOURCE).path(Some(world.place), None));
    let source = fixtures::http_source(LASTING, world.place);
    // The API server learns of a webhook by a watch of its own.
    loop {
        let (account, path, source) = (account.clone(), path.clone(), source.clone());
        let mut call = tokio::spawn(async move {
            account.request(http::Method::POST, &path, "application/json", Some(&source)).await.map(drop)
        });
        tokio::select! {
            asked = listener.accept() => return asked.unwrap().0,
            ended = &mut call => ended.unwrap().unwrap(),
        }
    }
}

#[tokio::test]
async fn rights_that_are_taken_and_given_again_under_a_run_do_not_stop_it() {
    let world = World::mesh(Behaviour::default()).await;
    many(&world, 3).await;
    let rules = world.run(&world.sources(&["--print-rbac"])).await.json();
    let account = Account::new(&world.api, world.home, "recreated", rules).await.unwrap();
    let upstream = account.upstream(&world.kubeconfig).await.unwrap();
    let step = world.sources(&["--deadline", "200"]).env("BELAY_CONCURRENCY", "1");
    // It cannot go on before its rights are gone, nor ask again before it has them back.
    let creates = crate::creates("app-1");
    let tries = AtomicUsize::new(0);
    let second = At::first(move |call| creates(call) && tries.fetch_add(1, Ordering::SeqCst) == 1);
    let (first, second) = (Fault::hold(At::first(crate::creates("app-1"))), Fault::hold(second));
    let run = step.start(&upstream, vec![first.0, second.0]).await.unwrap();
    run.until_it_sends(crate::creates("app-1")).await;
    account.revoke().await.unwrap();
    first.1.release();
    run.proxy.when(|call| is_move(call) && call.status == Some(403), SOON).await.unwrap();
    account.grant().await.unwrap();
    second.1.release();
    let run = run.wait().await.unwrap();
    run.exits(0).says("3 created");
}

#[tokio::test]
async fn connections_that_are_refused_for_a_while_do_not_stop_a_run() {
    let world = World::fixture(prompt()).await;
    let away = Fault::Refuse { at: At::first(is_move), lasting: Duration::from_secs(1) };
    world.run_with(&world.step(&[]), vec![away]).await.exits(0);
}

#[tokio::test]
async fn an_account_that_the_server_does_not_know_any_more_stops_at_once_and_undoes_nothing() {
    let world = World::mesh(Behaviour::default()).await;
    many(&world, 3).await;
    let mut gone = false;
    let unknown = Fault::hook(move |call| {
        gone |= is_move(call) && call.name.as_deref() == Some("app-2");
        if gone { Action::Answer(401, None) } else { Action::Forward }
    });
    let step = world.sources(&[]).env("BELAY_CONCURRENCY", "1");
    let run = world.run_with(&step, vec![unknown]).await;
    run.exits(1).says("does not know us any more (401)");
    assert_eq!(run.moves(), ["create app-0", "create app-1"]);
    world.run(&world.sources(&[])).await.exits(0).says("resuming");
    assert_eq!(world.names(&HTTP_SOURCE).await.len(), 3);
}

/// The index of the API server that this test has to itself.
const INDEX: &str = "8";

async fn manage(cluster: &str, action: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cluster/manage");
    // Built already where `tests/run` has done it: on a busy machine Go takes its time to find that out.
    let mut command = if let Some(built) = std::env::var_os("BELAY_MANAGE") {
        tokio::process::Command::new(built)
    } else {
        let mut go = tokio::process::Command::new("go");
        go.arg("-C").arg(folder).args(["run", "."]);
        go
    };
    let output =
        command.args(["apiserver", action, "--name", cluster, "--index", INDEX]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn an_api_server_that_is_killed_and_started_again_does_not_stop_a_run() {
    let Ok(cluster) = std::env::var("BELAY_TEST_CLUSTER") else {
        let why = "only an embedded cluster, named by BELAY_TEST_CLUSTER, has API servers to kill";
        return nothing_tried(why).unwrap();
    };
    let kubeconfig = manage(&cluster, "start").await;
    // Nothing becomes Ready before the API server is back: the run cannot have ended when it is killed.
    let behaviour = Behaviour { paused: true, collect_garbage: true, ..Behaviour::default() };
    let world = World::mesh_on(Path::new(&kubeconfig), behaviour, None).await;
    // Nobody looks after Deployments there.
    let controller = fixtures::deployment(SOURCE_CONTROLLER, SYSTEM, 1, fixtures::IMAGE);
    world.api.ensure(&resource(&DEPLOYMENT), &controller).await.unwrap();
    mark_available(&world.api.client(), SYSTEM, SOURCE_CONTROLLER).await.unwrap();
    many(&world, 30).await;
    let flags = ["--deadline", "300", "--ready-within", "300"];
    let step = world.sources(&flags).env("BELAY_CONCURRENCY", "2").bound(Duration::from_secs(330));
    let run = world.start(&step, vec![]).await;
    run.proxy.when(crate::creates("app-1"), SOON).await.unwrap();
    manage(&cluster, "kill").await;
    run.proxy.when(|call| matches!(call.fate, Fate::Unreachable(_)), SOON).await.unwrap();
    manage(&cluster, "start").await;
    world.standins.change(|behaviour| behaviour.paused = false);
    let run = run.wait().await.unwrap();
    run.exits(0).says("30 created");
    assert_eq!(world.names(&HTTP_SOURCE).await.len(), 30);
    assert_eq!(world.journal_status("create-missing-sources").await, "done");
    manage(&cluster, "stop").await;
}
