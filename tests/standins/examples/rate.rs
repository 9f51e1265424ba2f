//! Measures how fast instant stand-ins answer: creates N sources (default 5,000) as fast as the API server takes
//! them, lets the stand-ins loose, and waits until every one is Ready. The share that is printed last compares the
//! writes of both in the same run, so it means something on a busy machine too. Needs `BELAY_TEST_KUBECONFIG`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::ListParams;
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
    let sources = HTTP_SOURCE.within(&client, &namespace);
    cluster::wait_until("all sources are Ready", Duration::from_secs(600), async || {
        // Looked at rarely: reading thousands of objects would slow down what is measured.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let last = sources.get(&names[names.len() - 1]).await?;
        if !holds(&last, "Ready") {
            return Ok(false);
        }
        Ok(sources.list(&ListParams::default()).await?.iter().all(|source| holds(source, "Ready")))
    })
    .await?;
    let answers = say("answered", count, started.elapsed());
    let writes = answers * WRITES_PER_ANSWER;
    println!("{writes:.0} writes per second, {:.0} % of what the creator reached", 100.0 * writes / raw);
    cluster::delete(&client, &NAMESPACE, "", &namespace).await?;
    standins.stop().await;
    Ok(())
}

fn say(what: &str, count: u32, took: Duration) -> f64 {
    let rate = f64::from(count) / took.as_secs_f64();
    println!("{what} {count} sources in {:.1} s: {rate:.0} per second", took.as_secs_f64());
    rate
}
