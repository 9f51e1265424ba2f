//! How fast a step is, in ratios: against what the API server does at most, measured in the same run with the same
//! concurrency, and against a client with client-go's default limits.
//!
//! 5,000 Applications (`BENCH_OBJECTS`) on the API server of `BELAY_TEST_KUBECONFIG`, with stand-ins that answer at once,
//! and `create-missing-sources` of `BELAY_RELEASE_BIN` (else of `BELAY_BIN`, else the one beside this program). Nothing
//! here passes or fails by the clock; but the step may not use more than 64 MB of memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};

use e2e::{
    World,
    alone::{megabytes, run_alone, within_memory},
    world::{program, resource},
};
use futures::{StreamExt as _, stream};
use harness::{Api, Class, Exit, Outcome, StepCommand, Verb, call::query_value};
use http::Method;
use serde_json::{Value, json};
use standins::{
    Behaviour, cluster, fixtures,
    kinds::{APPLICATION, CHANNEL, HTTP_SOURCE, Kind},
};

/// Calls in flight: the step's default.
const CONCURRENCY: usize = 32;
/// client-go's defaults.
const QPS: u32 = 5;
const BURST: u32 = 10;
/// Objects that the limited client really makes; the rest is extrapolated.
const SAMPLE: u32 = 100;
/// Where objects lie that no stand-in looks after.
const ASIDE: &str = "e2e-aside";

#[tokio::main]
async fn main() {
    let objects: u32 = std::env::var("BENCH_OBJECTS").map_or(5000, |text| text.parse().unwrap());
    let binary =
        std::env::var_os("BELAY_RELEASE_BIN").map_or_else(|| program("BELAY_BIN", "belay"), PathBuf::from);
    let world = World::mesh(Behaviour { instant: true, ..Behaviour::default() }).await;
    world.api.ensure_namespace(ASIDE).await.unwrap();
    println!("{objects} Applications, {CONCURRENCY} calls in flight, {}", binary.display());
    println!("creating the Applications");
    let applications = names(objects).map(|name| fixtures::application(&name)).collect();
    create_all(&world.api, &APPLICATION, applications).await;

    println!("a bare client creates the sources: where nobody answers, then where the stand-ins do");
    let raw_before = raw(&world, objects).await;
    let answered = raw_answered(&world, objects).await;
    sweep(&world).await;
    println!("the step does");
    let step = world.sources(&["--deadline", "900", "--ready-within", "900"]);
    let (step_took, rss) = run_alone(&binary, &step, &world.kubeconfig).await;
    assert_eq!(world.names(&HTTP_SOURCE).await.len(), objects as usize);
    sweep(&world).await;
    println!("the bare client once more");
    let raw_after = raw(&world, objects).await;

    println!("the step with its calls counted, and a second time with nothing to do");
    let step = StepCommand { program: binary, ..step }.bound(Duration::from_secs(900));
    let counting = world.run(&step).await;
    assert_eq!(counting.exit, Exit::Code(0), "{}", counting.tail(20));
    let second = world.run(&step).await;
    println!("a client with client-go's limits");
    let limited = limited(&world.api).await;
    println!("the step is undone");
    let restore = world.operate("restore", &["--step", "create-missing-sources", "--deadline", "900"]);
    let (undo_took, undo_rss) = run_alone(&step.program, &restore, &world.kubeconfig).await;
    let left = world.api.list(&resource(&HTTP_SOURCE), Some(world.place), None).await.unwrap();
    assert!(left.iter().all(|source| source["metadata"]["deletionTimestamp"].is_string()));

    let rate = |took: Duration| f64::from(objects) / took.as_secs_f64();
    let raw = f64::midpoint(rate(raw_before), rate(raw_after));
    let (step_rate, answered) = (rate(step_took), rate(answered));
    println!("\nthe step             {step_rate:8.0} objects/s  ({:.1} s in all)", step_took.as_secs_f64());
    println!(
        "raw creates          {raw:8.0} objects/s  (a bare client, nobody answers; {:.0} before, {:.0} after)",
        rate(raw_before),
        rate(raw_after)
    );
    println!("raw, until all Ready {answered:8.0} objects/s  (a bare client, the same stand-ins answer)");
    println!("share of the raw creates            {:5.1} %", 100.0 * step_rate / raw);
    println!("share of raw until all Ready        {:5.1} %", 100.0 * step_rate / answered);
    // Per object the step writes one, and the stand-ins write the Channel, its status and the source's.
    println!("share in writes, stand-ins' included {:4.1} %", 100.0 * 4.0 * step_rate / raw);
    println!("peak memory          {:8.1} MB", megabytes(rss));
    println!(
        "undone by restore    {:8.0} objects/s  ({:.1} s in all, at most {:.1} MB; the garbage collector has still {} to \
         take away)",
        rate(undo_took),
        undo_took.as_secs_f64(),
        megabytes(undo_rss),
        left.len()
    );
    println!("watch requests       {:8}    ({})", watches(&counting).len(), watches(&counting).join(", "));
    println!(
        "LIST pages           {:8}    (at most {} objects each)",
        pages(&counting),
        largest_page(&counting)
    );
    println!(
        "calls                {:8}    (a second run, with nothing to do: {} calls, {} LIST pages, {} writes)",
        counting.calls.len(),
        second.calls.len(),
        pages(&second),
        harness::call::writes_that_matter(&second.calls).len()
    );
    let whole = Duration::from_secs_f64(f64::from(objects - BURST) / limited);
    println!(
        "client-go's defaults {limited:8.1} objects/s  ({QPS} QPS, burst {BURST}: {:.0} s for all, {:.0} times the step)",
        whole.as_secs_f64(),
        whole.as_secs_f64() / step_took.as_secs_f64()
    );
    within_memory("create-missing-sources", rss);
    within_memory("restore", undo_rss);
}

fn names(objects: u32) -> impl Iterator<Item = String> {
    (0..objects).map(|number| format!("app-{number:05}"))
}

/// A source of the size that the step makes.
fn source(name: &str, namespace: &str) -> Value {
    let mut source = fixtures::http_source(name, namespace);
    source["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
    source["metadata"]["annotations"] = json!({
        "meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace,
        "belay.dev/run": "create-missing-sources/20260101000000-1",
    });
    source
}

async fn timed<T>(work: impl Future<Output = T>) -> Duration {
    let begun = Instant::now();
    work.await;
    begun.elapsed()
}

async fn create_all(api: &Api, kind: &Kind, objects: Vec<Value>) {
    let kind = resource(kind);
    stream::iter(&objects)
        .for_each_concurrent(CONCURRENCY, async |object| drop(api.create(&kind, object).await.unwrap()))
        .await;
}

async fn delete_all(api: &Api, kind: &Kind, namespace: Option<&str>) {
    let path = resource(kind).path(namespace, None);
    let (status, answer) = api.request(Method::DELETE, &path, "application/json", None).await.unwrap();
    assert!(status.is_success(), "{answer}");
}

/// Takes away all sources and what belongs to them. The garbage collector would take minutes for the Channels.
async fn sweep(world: &World) {
    for kind in [&HTTP_SOURCE, &CHANNEL] {
        cluster::wait_until("all is swept", Duration::from_secs(120), async || {
            delete_all(&world.api, kind, Some(world.place)).await;
            Ok(world.names(kind).await.is_empty())
        })
        .await
        .unwrap();
    }
}

/// How long a bare client takes to create as many sources where nobody answers.
async fn raw(world: &World, objects: u32) -> Duration {
    let sources = names(objects).map(|name| source(&name, ASIDE)).collect();
    let took = timed(create_all(&world.api, &HTTP_SOURCE, sources)).await;
    delete_all(&world.api, &HTTP_SOURCE, Some(ASIDE)).await;
    took
}

/// How long it takes until they are all Ready where the stand-ins answer: what no client could do faster.
async fn raw_answered(world: &World, objects: u32) -> Duration {
    let sources = names(objects).map(|name| source(&name, world.place)).collect();
    timed(async {
        create_all(&world.api, &HTTP_SOURCE, sources).await;
        cluster::wait_until("all are Ready", Duration::from_secs(600), async || {
            let all = world.api.list(&resource(&HTTP_SOURCE), Some(world.place), None).await?;
            let ready = all.iter().filter(|source| source["status"].to_string().contains("SinkURI"));
            Ok(ready.count() == objects as usize)
        })
        .await
        .unwrap();
    })
    .await
}

fn watches(outcome: &Outcome) -> Vec<&str> {
    let watches = outcome.calls.iter().filter(|call| call.class == Class::Watch);
    watches.map(|call| call.target.resource.as_str()).collect()
}

fn pages(outcome: &Outcome) -> usize {
    outcome.calls.iter().filter(|call| call.verb == Verb::List).count()
}

fn largest_page(outcome: &Outcome) -> String {
    let lists = outcome.calls.iter().filter(|call| call.verb == Verb::List);
    let limits =
        lists.map(|call| query_value(&call.query, "limit").and_then(|limit| limit.parse::<u32>().ok()));
    limits
        .max_by_key(|limit| limit.unwrap_or(u32::MAX))
        .flatten()
        .map_or("unbounded".to_owned(), |n| n.to_string())
}

/// Objects a second once the burst is used up, of a client that waits before each call as client-go does.
async fn limited(api: &Api) -> f64 {
    let kind = resource(&HTTP_SOURCE);
    let mut every = tokio::time::interval(Duration::from_secs(1) / QPS);
    let mut begun = Instant::now();
    for (number, name) in (1..=SAMPLE).zip(names(SAMPLE)) {
        if number > BURST {
            every.tick().await;
        } else {
            every.reset();
            begun = Instant::now();
        }
        api.create(&kind, &source(&name, ASIDE)).await.unwrap();
    }
    let took = begun.elapsed();
    delete_all(api, &HTTP_SOURCE, Some(ASIDE)).await;
    f64::from(SAMPLE - BURST) / took.as_secs_f64()
}
