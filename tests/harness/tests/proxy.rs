//! The proxy against an API server in memory: what each fault does, seen from both sides.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use harness::{
    Action, Api, At, Call, Class, Fault, Landing, Name, Proxy, Resource, Scope, Until, Upstream,
    call::Fate,
    gateway::{DEADLINE, KillSwitch, Order, Record},
    memory::Memory,
};
use http::{Method, Request, StatusCode};
use serde_json::{Value, json};

const CONFIG_MAPS: &str = "/api/v1/namespaces/a/configmaps";

/// The first call that creates a ConfigMap of this name.
fn creates(name: &str) -> At {
    At::Named(Name { what: format!("Move: create {CONFIG_MAPS} {name}"), nth: 1 })
}

/// The n-th call that reads a ConfigMap of this name.
fn gets(name: &str, nth: u32) -> At {
    At::Named(Name { what: format!("Read: get {CONFIG_MAPS}/{name}"), nth })
}

/// A server, a proxy before it, and a client that talks to the proxy.
struct Stage {
    memory: Memory,
    proxy: Proxy,
    api: Api,
    killed: Arc<AtomicUsize>,
}

async fn stage(faults: Vec<Fault>) -> Stage {
    let memory = Memory::start().await.unwrap();
    stage_on(memory, faults).await
}

async fn stage_on(memory: Memory, faults: Vec<Fault>) -> Stage {
    let (switch, mut kills) = KillSwitch::new();
    let killed = Arc::new(AtomicUsize::new(0));
    let counter = killed.clone();
    tokio::spawn(async move {
        while let Some(order) = kills.recv().await {
            match order {
                Order::Kill(done) => {
                    counter.fetch_add(1, Ordering::SeqCst);
                    done.send(()).unwrap();
                }
                Order::Terminate(done) => {
                    counter.fetch_add(100, Ordering::SeqCst);
                    done.send(()).unwrap();
                }
            }
        }
    });
    let proxy = Proxy::start(&memory.upstream().unwrap(), faults, Some(switch)).await.unwrap();
    let api = Api::new(Upstream::from_url(&format!("http://{}", proxy.address())).unwrap().client());
    Stage { memory, proxy, api, killed }
}

impl Stage {
    async fn ask(
        &self,
        method: Method,
        uri: &str,
        body: Option<Value>,
    ) -> anyhow::Result<(StatusCode, Value)> {
        self.api.request(method, uri, "application/json", body.as_ref()).await
    }

    async fn create(&self, name: &str) -> anyhow::Result<(StatusCode, Value)> {
        self.ask(Method::POST, CONFIG_MAPS, Some(json!({"metadata": {"name": name}}))).await
    }

    async fn get(&self, name: &str) -> anyhow::Result<(StatusCode, Value)> {
        self.ask(Method::GET, &format!("{CONFIG_MAPS}/{name}"), None).await
    }

    fn killed(&self) -> usize {
        self.killed.load(Ordering::SeqCst)
    }

    async fn end(self) -> (Memory, Record) {
        (self.memory, self.proxy.stop().await)
    }
}

#[tokio::test]
async fn calls_pass_and_are_named_and_recorded() {
    let stage = stage(vec![]).await;
    assert_eq!(stage.ask(Method::GET, "/apis", None).await.unwrap().0, 200);
    assert_eq!(stage.create("x").await.unwrap().0, 201);
    assert_eq!(stage.create("x").await.unwrap().0, 409);
    let dry = format!("{CONFIG_MAPS}?dryRun=All");
    stage.ask(Method::POST, &dry, Some(json!({"metadata": {"name": "y"}}))).await.unwrap();
    assert_eq!(stage.get("y").await.unwrap().0, 404, "a dry run makes nothing");
    let (_, record) = stage.end().await;
    let seen: Vec<_> = record.calls.iter().map(|call| (call.nth, call.class, call.status)).collect();
    assert_eq!(
        seen,
        [
            (1, Class::Discovery, Some(200)),
            (1, Class::Move, Some(201)),
            (2, Class::Move, Some(409)),
            (1, Class::DryRun, Some(201)),
            (1, Class::Read, Some(404)),
        ]
    );
    assert_eq!(record.calls[1].body_sha, record.calls[2].body_sha);
    assert_eq!(record.calls[1].body_sha.len(), 64);
    assert_eq!(record.calls[1].body_size(), r#"{"metadata":{"name":"x"}}"#.len());
    assert!(record.calls[1].succeeded() && !record.calls[2].succeeded());
    assert_eq!(record.calls[3].to_string(), format!("DryRun: create {CONFIG_MAPS} y (dry run) -> 201"));
    assert_eq!(record.calls[2].to_string(), format!("Move: create {CONFIG_MAPS} x #2 -> 409"));
}

#[tokio::test]
async fn what_comes_for_the_lock_once_it_is_taken_renews_it() {
    let stage = stage(vec![]).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases";
    let lease = format!("{leases}/belay-f");
    let held = json!({"metadata": {"name": "belay-f"}, "spec": {"holderIdentity": "me"}});
    let free = json!({"metadata": {"name": "belay-f"}, "spec": {}});
    stage.ask(Method::GET, &lease, None).await.unwrap();
    stage.ask(Method::POST, leases, Some(held.clone())).await.unwrap();
    stage.ask(Method::PUT, &lease, Some(held)).await.unwrap();
    stage.get("x").await.unwrap();
    stage.ask(Method::GET, &lease, None).await.unwrap();
    stage.ask(Method::PUT, &lease, Some(free)).await.unwrap();
    let (_, record) = stage.end().await;
    let renews: Vec<_> = record.calls.iter().map(|call| call.renews).collect();
    assert_eq!(renews, [false, false, true, false, true, false]);
}

#[tokio::test]
async fn killed_before_a_call_the_server_never_sees_it() {
    let stage = stage(vec![Fault::KillBefore(creates("x"))]).await;
    stage.get("x").await.unwrap();
    assert!(stage.create("x").await.is_err());
    assert_eq!(stage.killed(), 1);
    assert!(stage.get("x").await.is_err(), "the dead make no calls");
    let (memory, record) = stage.end().await;
    assert_eq!(memory.requests().len(), 1);
    assert_eq!(record.calls.len(), 2);
    assert_eq!(record.calls[1].fate, Fate::KilledBefore);
    assert_eq!(record.struck[0].named(), record.calls[1].named());
}

#[tokio::test]
async fn killed_after_a_call_the_server_has_done_it() {
    let stage = stage(vec![Fault::KillAfter(creates("x"))]).await;
    assert!(stage.create("x").await.is_err());
    assert_eq!(stage.killed(), 1);
    let (memory, record) = stage.end().await;
    assert_eq!(memory.requests(), [format!("POST {CONFIG_MAPS}")]);
    assert_eq!((record.calls[0].fate.clone(), record.calls[0].status), (Fate::KilledAfter, Some(201)));
    assert!(record.struck[0].succeeded());
}

#[tokio::test]
async fn told_to_stop_a_step_still_gets_its_answer() {
    let stage = stage(vec![Fault::Terminate(creates("x"))]).await;
    assert_eq!(stage.create("x").await.unwrap().0, 201);
    assert_eq!(stage.killed(), 100);
    assert_eq!(stage.get("x").await.unwrap().0, 200);
}

#[tokio::test]
async fn with_its_answer_lost_a_call_is_done_and_the_next_one_passes() {
    let stage = stage(vec![Fault::LoseAnswer(creates("x"))]).await;
    assert!(stage.create("x").await.is_err());
    assert_eq!(stage.create("x").await.unwrap().0, 409, "the first one was done");
    assert_eq!(stage.killed(), 0);
    let (_, record) = stage.end().await;
    assert_eq!(record.calls[0].fate, Fate::AnswerLost);
}

#[tokio::test]
async fn a_call_that_lands_late_lands_in_the_next_run() {
    let first = stage(vec![Fault::KillAndLandLate(creates("late"))]).await;
    assert!(first.create("late").await.is_err());
    assert_eq!(first.killed(), 1);
    let (memory, mut record) = first.end().await;
    assert_eq!(memory.requests().len(), 0);
    let held = record.held.take().expect("the call is held back");
    assert_eq!(held.call().name.as_deref(), Some("late"));

    let next = stage_on(memory, vec![Fault::Land { held, when: Landing::BeforeFirstMove }]).await;
    assert_eq!(next.get("late").await.unwrap().0, 404);
    assert_eq!(next.create("other").await.unwrap().0, 201);
    assert_eq!(next.get("late").await.unwrap().0, 200);
    let (memory, record) = next.end().await;
    assert_eq!(memory.requests().len(), 4);
    assert_eq!(record.calls.len(), 3, "it is no call of the next run");
    assert_eq!(record.landed[0].answer, Ok(201));
    assert_eq!(record.landed[0].before.as_ref().unwrap().name.as_deref(), Some("other"));
}

#[tokio::test]
async fn a_call_lands_at_the_latest_before_the_lock_is_given_back_or_when_the_run_is_over() {
    for (release, before) in [(true, true), (false, false)] {
        let first = stage(vec![Fault::KillAndLandLate(creates("late"))]).await;
        assert!(first.create("late").await.is_err());
        let (memory, mut record) = first.end().await;
        let held = record.held.take().unwrap();
        let next = stage_on(memory, vec![Fault::Land { held, when: Landing::BeforeFirstMove }]).await;
        next.get("x").await.unwrap();
        if release {
            let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/belay-f";
            next.ask(Method::DELETE, lease, None).await.unwrap();
        }
        let (memory, record) = next.end().await;
        assert_eq!(record.landed.len(), 1);
        assert_eq!(record.landed[0].before.is_some(), before);
        assert!(memory.requests().contains(&format!("POST {CONFIG_MAPS}")));
    }
}

#[tokio::test]
async fn a_call_that_fails_for_good_fails_again_and_all_else_passes() {
    let forbidden = stage(vec![Fault::forbid(creates("x"))]).await;
    forbidden.get("x").await.unwrap();
    for _ in 0..2 {
        let (status, answer) = forbidden.create("x").await.unwrap();
        assert_eq!((status.as_u16(), &answer["reason"]), (403, &json!("Forbidden")));
        assert_eq!(answer["kind"], "Status");
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains("cannot create resource \"configmaps\""), "{message}");
        assert!(message.contains("User \"system:"), "{message}");
    }
    assert_eq!(forbidden.create("y").await.unwrap().0, 201);
    assert_eq!(forbidden.get("x").await.unwrap().0, 404);
    let (memory, record) = forbidden.end().await;
    assert_eq!(memory.requests().len(), 3);
    assert_eq!(record.struck.len(), 1, "it strikes once, then it goes on");
}

#[tokio::test]
async fn what_is_invalid_is_the_body() {
    let invalid = Fault::FailForGood { at: creates("x"), status: 422, scope: Scope::Body, until: None };
    let stage = stage(vec![invalid]).await;
    let (status, answer) = stage.create("x").await.unwrap();
    assert_eq!((status.as_u16(), &answer["details"]["causes"][0]["field"]), (422, &json!("spec")));
    let other = json!({"metadata": {"name": "x"}, "data": {"changed": "yes"}});
    assert_eq!(stage.ask(Method::POST, CONFIG_MAPS, Some(other)).await.unwrap().0, 201);
}

/// The status of an answer, and whether it tells that the deadline is now.
async fn told(stage: &Stage, uri: &str) -> (u16, bool) {
    let request = Request::get(uri).body(kube::client::Body::empty()).unwrap();
    let answer = stage.api.client().send(request).await.unwrap();
    (answer.status().as_u16(), answer.headers().get(DEADLINE).is_some_and(|when| when == "now"))
}

#[tokio::test]
async fn what_fails_until_the_deadline_tells_at_the_third_try_that_it_is_now_and_works_from_then_on() {
    let failing =
        |at| Fault::FailForGood { at, status: 500, scope: Scope::Target, until: Some(Until::Deadline) };
    let one = stage(vec![failing(gets("x", 2))]).await;
    let (x, y) = (format!("{CONFIG_MAPS}/x"), format!("{CONFIG_MAPS}/y"));
    assert_eq!(told(&one, &x).await, (404, false));
    assert_eq!(told(&one, &x).await, (500, false));
    assert_eq!(told(&one, &x).await, (500, false));
    assert_eq!(told(&one, &y).await, (404, false), "all else passes");
    assert_eq!(told(&one, &x).await, (500, true));
    assert_eq!(told(&one, &x).await, (404, false));

    // Who watches does not look at headers: the next answer to another call tells it.
    let list = format!("{CONFIG_MAPS}?&limit=5");
    let at = At::first(Call::begins_watch);
    let two = stage(vec![failing(at)]).await;
    for _ in 0..4 {
        assert_eq!(told(&two, &list).await, (500, false));
    }
    assert_eq!(told(&two, &y).await, (404, true));
    assert_eq!(told(&two, &list).await, (200, false));
}

#[tokio::test]
async fn a_call_is_held_back_until_the_lock_is_renewed() {
    let (hold, renewal) = Fault::hold_until_renewal(creates("x"));
    let stage = stage(vec![Fault::LoseAnswer(renewal), hold]).await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/a/leases";
    let lease = json!({"metadata": {"name": "belay-f"}, "spec": {"holderIdentity": "me"}});
    let renew = || stage.ask(Method::GET, "/apis/coordination.k8s.io/v1/namespaces/a/leases/belay-f", None);
    stage.ask(Method::POST, leases, Some(lease)).await.unwrap();
    assert_eq!(renew().await.unwrap().0, 200, "what is renewed before is not meant");
    let api = stage.api.clone();
    let body = json!({"metadata": {"name": "x"}});
    let waiting =
        tokio::spawn(
            async move { api.request(Method::POST, CONFIG_MAPS, "application/json", Some(&body)).await },
        );
    while stage.proxy.calls().len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(stage.get("x").await.unwrap().0, 404);
    assert!(!waiting.is_finished());
    assert!(renew().await.is_err(), "its answer is lost");
    assert_eq!(waiting.await.unwrap().unwrap().0, 201);
    let (_, record) = stage.end().await;
    assert!(record.struck[0].renews);
}

#[tokio::test]
async fn a_share_of_the_calls_is_throttled() {
    let stage = stage(vec![Fault::Throttle { every: 3, retry_after: 1 }]).await;
    let mut throttled = 0;
    for _ in 0..9 {
        let request = Request::get(format!("{CONFIG_MAPS}/x")).body(kube::client::Body::empty()).unwrap();
        let answer = stage.api.client().send(request).await.unwrap();
        if answer.status() == 429 {
            assert_eq!(answer.headers()["retry-after"], "1");
            throttled += 1;
        }
    }
    assert_eq!(throttled, 3);
}

#[tokio::test]
async fn calls_can_be_delayed_one_or_all() {
    // Longer than a call takes that is not delayed, on any machine.
    let by = Duration::from_millis(1500);
    let one = stage(vec![Fault::Delay { at: Some(gets("x", 2)), by }]).await;
    let mut slow = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        one.get("x").await.unwrap();
        slow.push(started.elapsed() >= by);
    }
    assert_eq!(slow, [false, true, false]);
    let all = stage(vec![Fault::Delay { at: None, by }, Fault::forbid(gets("x", 1))]).await;
    let started = Instant::now();
    assert_eq!(all.get("x").await.unwrap().0, 403, "faults add up");
    assert!(started.elapsed() >= by);
}

#[tokio::test]
async fn a_call_is_held_back_until_it_is_released_and_so_is_its_next_try() {
    let (hold, holding) = Fault::hold(creates("x"));
    let stage = stage(vec![hold]).await;
    stage.get("x").await.unwrap();
    let create = |name: &'static str| {
        let api = stage.api.clone();
        let body = json!({"metadata": {"name": name}});
        tokio::spawn(
            async move { api.request(Method::POST, CONFIG_MAPS, "application/json", Some(&body)).await },
        )
    };
    let tries = [create("x"), create("x")];
    while stage.proxy.calls().len() < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(stage.create("y").await.unwrap().0, 201, "all else passes");
    assert_eq!(stage.get("x").await.unwrap().0, 404);
    assert!(tries.iter().all(|one| !one.is_finished()));
    holding.release();
    let mut answers = Vec::new();
    for one in tries {
        answers.push(one.await.unwrap().unwrap().0.as_u16());
    }
    answers.sort_unstable();
    assert_eq!(answers, [201, 409]);
    let (_, record) = stage.end().await;
    assert!(record.struck.is_empty(), "nothing went wrong");
}

#[tokio::test]
async fn a_call_that_nobody_can_release_any_more_passes() {
    let (hold, holding) = Fault::hold(creates("x"));
    drop(holding);
    assert_eq!(stage(vec![hold]).await.create("x").await.unwrap().0, 201);
}

#[tokio::test]
async fn connections_are_refused_for_a_time_and_watches_are_cut() {
    // Long enough to find the port closed, on any machine.
    let lasting = Duration::from_secs(3);
    let at = At::first(|call| call.class == Class::Move);
    let stage = stage(vec![Fault::Refuse { at, lasting }]).await;
    let watch = Request::get(format!("{CONFIG_MAPS}?watch=true")).body(vec![]).unwrap();
    let mut lines = stage.api.client().request_stream(watch).await.unwrap().lines();
    let started = Instant::now();
    assert!(stage.create("x").await.is_err());
    let cut =
        tokio::time::timeout(Duration::from_secs(30), lines.try_next()).await.expect("the watch is cut");
    assert!(!matches!(cut, Ok(Some(_))));
    let address = stage.proxy.address();
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the port is closed");
    while stage.create("x").await.is_err() {
        assert!(started.elapsed() < Duration::from_secs(30), "it never came back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(started.elapsed() >= lasting);
}

#[tokio::test]
async fn watches_stream_and_are_named() {
    let stage = stage(vec![]).await;
    stage.create("before").await.unwrap();
    let watch = Request::get(format!("{CONFIG_MAPS}?watch=true")).body(vec![]).unwrap();
    let mut lines = stage.api.client().request_stream(watch).await.unwrap().lines();
    let mut next = async || -> Value {
        let line = tokio::time::timeout(Duration::from_secs(30), lines.try_next()).await.expect("in time");
        serde_json::from_str(&line.unwrap().unwrap()).unwrap()
    };
    assert_eq!(next().await["object"]["metadata"]["name"], "before");
    stage.create("after").await.unwrap();
    assert_eq!(next().await["object"]["metadata"]["name"], "after");
    let calls = stage.proxy.calls();
    let watches: Vec<_> = calls.iter().map(|call| call.class == Class::Watch).collect();
    assert_eq!(watches, [false, true, false]);
    assert_eq!(calls[1].named().to_string(), format!("Watch: watch {CONFIG_MAPS}"));
    assert_eq!(calls[1].status, Some(200));
}

#[tokio::test]
async fn a_hook_decides_as_it_likes_and_a_call_can_be_waited_for() {
    let hook = Fault::hook(|call| {
        if call.name.as_deref() == Some("x") { Action::Answer(503, Some(2)) } else { Action::Forward }
    });
    let stage = stage(vec![hook]).await;
    assert_eq!(stage.get("x").await.unwrap().0, 503);
    assert_eq!(stage.get("y").await.unwrap().0, 404);
    let waited =
        stage.proxy.when(|call| call.name.as_deref() == Some("y"), Duration::from_secs(10)).await.unwrap();
    assert_eq!(waited.status, Some(404));
    assert!(stage.proxy.when(|call| call.class == Class::Move, Duration::from_millis(50)).await.is_err());
}

#[tokio::test]
async fn a_call_on_its_way_arrives_although_its_sender_is_gone() {
    let (hold, holding) = Fault::hold(creates("x"));
    let stage = stage(vec![hold]).await;
    let api = stage.api.clone();
    let sender = tokio::spawn(async move {
        let body = json!({"metadata": {"name": "x"}});
        api.request(Method::POST, CONFIG_MAPS, "application/json", Some(&body)).await
    });
    while stage.proxy.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    sender.abort();
    assert!(sender.await.is_err_and(|error| error.is_cancelled()));
    holding.release();
    let (memory, record) = stage.end().await;
    assert_eq!(memory.requests(), [format!("POST {CONFIG_MAPS}")]);
    assert_eq!(record.calls[0].status, Some(201));
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_looks_like_one_without_a_proxy() {
    let nowhere = Upstream::from_url("http://127.0.0.1:1").unwrap();
    let proxy = Proxy::start(&nowhere, vec![], None).await.unwrap();
    let api = Api::new(Upstream::from_url(&format!("http://{}", proxy.address())).unwrap().client());
    assert!(api.get(&Resource::core("configmaps"), Some("a"), "x").await.is_err());
    let record = proxy.stop().await;
    assert!(matches!(record.calls[0].fate, Fate::Unreachable(_)));
}
