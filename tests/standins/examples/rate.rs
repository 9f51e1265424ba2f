//! Measures how fast instant stand-ins answer: creates N sources (default 5,000) as fast as the API server takes
//! them, lets the stand-ins loose, and waits until every one is Ready. The share that is printed last compares the
//! writes of both in the same run, so it means something on a busy machine too. Needs `BELAY_TEST_KUBECONFIG`.

use std::collections::HashSet;
use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use standins::conditions::holds;
use standins::fixtures::http_source;
use standins::kinds::{HTTP_SOURCE, NAMESPACE};
use standins::{Behaviour, Controller, Family, Standins, cluster, install_crds};

/// Channel, its status, the source's status.
const WRITES_PER_ANSWER: f64 = 3.0;

#[tokio::main]
async fn main() -> Result<()> {
    let count: u32 = std::env::args().nth(1).map_or(Ok(5_000), |n| n.parse()).context("how many sources?")?;
    let in_flight: usize =
        std::env::args().nth(2).map_or(Ok(32), |n| n.parse()).context("how many at once?")?;
    let client = cluster::test_cluster().await?;
    install_crds(&client, Family::EventMesh, None).await?;
    let namespace = format!("rate-{}", std::process::id());
    cluster::ensure_namespace(&client, &namespace).await?;
    let standins = Standins::start(
        &client,
        Behaviour {
            controllers: vec![Controller::HttpSource],
            namespaces: vec![namespace.clone()],
            instant: true,
            paused: true,
            ..Behaviour::default()
        },
    );

    let started = Instant::now();
    let names: Vec<String> = (0..count).map(|n| format!("source-{n:05}")).collect();
    stream::iter(&names)
        .map(|name| {
            let manifest = http_source(name, &namespace);
            let client = &client;
            async move { cluster::create(client, &manifest).await }
        })
        .buffer_unordered(in_flight)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    let raw = say("created", count, started.elapsed());

    standins.change(|behaviour| behaviour.paused = false);
    let started = Instant::now();
    tokio::time::timeout(Duration::from_secs(900), all_ready(&client, &namespace, names.len())).await?;
    let answers = say("answered", count, started.elapsed());
    let writes = answers * WRITES_PER_ANSWER;
    println!("{writes:.0} writes per second, {:.0} % of what the creator reached", 100.0 * writes / raw);
    cluster::delete(&client, &NAMESPACE, "", &namespace).await?;
    standins.stop().await;
    Ok(())
}

/// One watch, as a step has it: asking for thousands of objects again and again would slow down what is measured.
async fn all_ready(client: &Client, namespace: &str, count: usize) {
    let sources = watcher(HTTP_SOURCE.within(client, namespace), watcher::Config::default());
    let mut sources = pin!(sources.default_backoff().applied_objects());
    let mut ready = HashSet::new();
    while ready.len() < count {
        if let Some(Ok(source)) = sources.next().await
            && holds(&source, "Ready")
        {
            ready.insert(source.name_any());
        }
    }
}

fn say(what: &str, count: u32, took: Duration) -> f64 {
    let rate = f64::from(count) / took.as_secs_f64();
    println!("{what} {count} sources in {:.1} s: {rate:.0} per second", took.as_secs_f64());
    rate
}
