//! The harness against real API servers, those of `BELAY_TEST_KUBECONFIGS`; without one there is nothing to try.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod toy_scenario;

use std::{sync::Arc, time::Duration};

use futures::{AsyncBufReadExt as _, TryStreamExt as _};
use harness::{
    Api, At, Class, Exit, Fault, Proxy, Resource, StepCommand, Upstream,
    call::Fate,
    crash::{Choice, drive, nothing_tried, servers},
    state::{Area, clear},
};
use http::Request;
use serde_json::{Value, json};
use toy_scenario::Toy;

const NAMESPACE: &str = "harness-proxy";

/// The API servers, with the namespace of these tests in the first one.
async fn prepared() -> Option<Vec<Upstream>> {
    let servers = servers().await.unwrap();
    let first = servers.first()?;
    Api::new(first.client()).ensure_namespace(NAMESPACE).await.unwrap();
    Some(servers)
}

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "namespace": NAMESPACE}, "data": {"a": "b"}})
}

#[tokio::test]
async fn calls_and_watches_pass_with_the_credentials_of_the_kubeconfig() {
    let Some(servers) = prepared().await else { return };
    let maps = Resource::core("configmaps");
    let direct = Api::new(servers[0].client());
    let mine = [Area::within(maps.clone(), NAMESPACE).named("pass-")];
    clear(&direct, &mine, Duration::from_secs(10)).await.unwrap();

    let proxy =
        Proxy::start(&servers[0], vec![Fault::LoseAnswer(At::first(|call| call.class == Class::Move))], None)
            .await
            .unwrap();
    let through = Api::new(Upstream::from_url(&format!("http://{}", proxy.address())).unwrap().client());
    let watch =
        Request::get(format!("{}?watch=true", maps.path(Some(NAMESPACE), None))).body(vec![]).unwrap();
    let mut lines = through.client().request_stream(watch).await.unwrap().lines();
    assert!(through.create(&maps, &map("pass-one")).await.is_err(), "its answer is lost");
    let error = through.create(&maps, &map("pass-one")).await.unwrap_err();
    assert!(format!("{error:#}").contains("already exists"), "{error:#}");
    through.create(&maps, &map("pass-two")).await.unwrap();
    let followed = async {
        let mut names = Vec::new();
        while names.len() < 2 {
            let event: Value = serde_json::from_str(&lines.try_next().await.unwrap().unwrap()).unwrap();
            let name = event["object"]["metadata"]["name"].as_str().unwrap().to_owned();
            if name.starts_with("pass-") {
                names.push(name);
            }
        }
        names
    };
    let names =
        tokio::time::timeout(Duration::from_secs(10), followed).await.expect("the watch tells in time");
    assert_eq!(names, ["pass-one", "pass-two"]);
    let record = proxy.stop().await;
    assert_eq!(record.struck[0].fate, Fate::AnswerLost);
    clear(&direct, &mine, Duration::from_secs(10)).await.unwrap();
}

#[tokio::test]
async fn kubectl_works_behind_the_proxy_and_dies_where_it_is_told() {
    let Some(servers) = prepared().await else { return };
    let Some(kubectl) = std::env::var_os("BELAY_TEST_KUBECTL") else {
        return nothing_tried("no kubectl (set BELAY_TEST_KUBECTL)").unwrap();
    };
    let maps = Resource::core("configmaps");
    let direct = Api::new(servers[0].client());
    let mine = [Area::within(maps.clone(), NAMESPACE).named("kubectl-")];
    clear(&direct, &mine, Duration::from_secs(10)).await.unwrap();
    let run = |args: &str, faults: Vec<Fault>| {
        let args: Vec<&str> = args.split(' ').chain(["-n", NAMESPACE]).collect();
        let command = StepCommand::new(&kubectl, &args).bound(Duration::from_secs(30));
        let upstream = servers[0].clone();
        async move { command.run(&upstream, faults).await.unwrap() }
    };
    let is_move = || At::first(|call| call.class == Class::Move);
    let there = async |name: &str| direct.get(&maps, Some(NAMESPACE), name).await.unwrap().is_some();

    let outcome = run("create configmap kubectl-one --from-literal=a=b", vec![]).await;
    assert_eq!(outcome.exit, Exit::Code(0), "{}", outcome.stderr);
    assert_eq!(outcome.calls.iter().filter(|call| call.class == Class::Move).count(), 1);
    let outcome = run("get configmap kubectl-one -o jsonpath={.data.a}", vec![]).await;
    assert_eq!(outcome.stdout, "b");
    let outcome = run("get configmap --watch --request-timeout=2s", vec![]).await;
    assert!(outcome.stdout.contains("kubectl-one"), "{}", outcome.stderr);
    assert!(outcome.calls.iter().any(|call| call.class == Class::Watch));

    let outcome = run("create configmap kubectl-two", vec![Fault::KillBefore(is_move())]).await;
    assert_eq!(outcome.exit, Exit::Signal(9));
    assert!(!there("kubectl-two").await);
    let outcome = run("create configmap kubectl-two", vec![Fault::KillAfter(is_move())]).await;
    assert_eq!(outcome.exit, Exit::Signal(9));
    assert!(there("kubectl-two").await);
    let outcome = run("create configmap kubectl-three", vec![Fault::KillAndLandLate(is_move())]).await;
    assert_eq!(outcome.exit, Exit::Signal(9));
    assert!(!there("kubectl-three").await);
    assert_eq!(outcome.held.unwrap().land().await.answer, Ok(201));
    assert!(there("kubectl-three").await);
    let outcome = run("create configmap kubectl-four", vec![Fault::forbid(is_move())]).await;
    assert_eq!(outcome.exit, Exit::Code(1));
    assert!(outcome.stderr.contains("is forbidden: User"), "{}", outcome.stderr);
    clear(&direct, &mine, Duration::from_secs(10)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_toy_step_survives_being_killed_on_a_real_api_server() {
    let Some(servers) = prepared().await else { return };
    let modes = ["kill-after", "land-late", "fail-422"].map(str::to_owned).to_vec();
    // All of them are tried on a server in memory; what is new here is the server.
    let choice = Choice { modes, sample: Some(15), ..Choice::default() };
    let tally = drive(Arc::new(Toy { bug: "" }), &servers, &choice).await.unwrap();
    println!("{tally}");
    assert!(tally.is_good());
}
