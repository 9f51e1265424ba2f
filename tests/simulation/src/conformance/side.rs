//! The two servers that the table is run on, each behind a client: a real one, and the one in memory.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use http_body_util::BodyStream;
use jiff::{SignedDuration, Timestamp};
use kube::{Client, client::Body};
use serde_json::Value;
use standins::{Family, crds, policies};
use tokio::time::{Instant, sleep, timeout};

use super::row::{Kept, Manner, Row};
use crate::server::{self, Server};

/// How long controllers of a real cluster may take.
const SETTLES_WITHIN: Duration = Duration::from_secs(60);
/// How long a real server may take to send an event of a watch.
const EVENT_WITHIN: Duration = Duration::from_secs(10);
/// How long is waited for an event that should not come.
const NO_EVENT_WITHIN: Duration = Duration::from_millis(150);
/// The name of the client, which is also that of its field manager where a request does not name one.
const AGENT: &str = "conformance";
/// More passes of controllers than any case needs: what still changes then never comes to rest.
const PASSES: usize = 50;

/// A server in memory, and its time of day.
struct World {
    server: Server,
    now: Timestamp,
    /// Whether controllers work after each request: as long as CRDs and policies are installed.
    busy: bool,
}

impl World {
    /// Time passes with each request, so that what should not depend on it is seen not to.
    fn handle(&mut self, request: &server::Request) -> server::Answer {
        self.now += SignedDuration::from_secs(1);
        let answer = self.server.handle(request, self.now);
        if self.busy {
            self.settle();
        }
        answer
    }

    fn settle(&mut self) {
        for _ in 0..PASSES {
            self.now += SignedDuration::from_secs(1);
            if !self.server.reconcile(self.now) {
                return;
            }
        }
    }
}

/// One of the two.
#[derive(Clone)]
pub struct Side {
    /// The client.
    pub client: Client,
    world: Option<Arc<Mutex<World>>>,
}

/// What was answered: the status, and the body, which of a watch is the list of its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The body; text that is no JSON is a string.
    pub body: Value,
}

impl Side {
    /// The real server of a kubeconfig, with the CRDs and policies that the table needs.
    pub async fn real(kubeconfig: &Path) -> Result<Self> {
        let side = Self { client: standins::cluster::connect(Some(kubeconfig)).await?, world: None };
        side.prepare().await?;
        Ok(side)
    }

    /// A new server in memory, with the same.
    pub async fn simulated() -> Result<Self> {
        let now = Timestamp::from_second(1_767_225_600)?;
        let world = Arc::new(Mutex::new(World { server: Server::new(now), now, busy: true }));
        let side = Self { client: client_of(world.clone()), world: Some(world.clone()) };
        let prepared = timeout(Duration::from_secs(5), side.prepare()).await;
        prepared.context("the CRDs and policies are not in force after 5 s")??;
        let mut world = world.lock().unwrap_or_else(PoisonError::into_inner);
        world.busy = false;
        world.server.enforce_rbac(true);
        // A real server that has run for a while does not know its first versions any more.
        world.server.cut_history();
        drop(world);
        Ok(side)
    }

    /// Whether it is the real one.
    #[must_use]
    pub fn is_real(&self) -> bool {
        self.world.is_none()
    }

    async fn prepare(&self) -> Result<()> {
        for family in [Family::Fixture, Family::EventMesh] {
            crds::install(&self.client, &crds::crds(family, None)?).await?;
        }
        policies::install(&self.client).await
    }

    /// Sends a row and returns what is answered; `fits` says whether an awaited answer has come.
    pub async fn send(
        &self,
        row: &Row,
        kept: &Kept,
        mut fits: impl FnMut(&Answered) -> bool,
    ) -> Result<Answered> {
        if let (Some(world), Some(happening)) = (&self.world, row.before) {
            happening(&mut world.lock().unwrap_or_else(PoisonError::into_inner).server);
        }
        match row.manner {
            Manner::Once => self.once(row, kept).await,
            Manner::Watch(events) => self.watch(row, kept, events).await,
            Manner::Eventually => {
                if let Some(world) = &self.world {
                    world.lock().unwrap_or_else(PoisonError::into_inner).settle();
                    return self.once(row, kept).await;
                }
                let end = Instant::now() + SETTLES_WITHIN;
                loop {
                    let answered = self.once(row, kept).await?;
                    if fits(&answered) || Instant::now() >= end {
                        return Ok(answered);
                    }
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    async fn open(&self, row: &Row, kept: &Kept) -> Result<Response<Body>> {
        let (path, query) = (kept.fill(&row.path), kept.fill(&row.query));
        let uri = if query.is_empty() { path } else { format!("{path}?{query}") };
        let mut request = Request::builder()
            .method(row.method.clone())
            .uri(uri)
            .header(http::header::CONTENT_TYPE, row.content_type)
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::USER_AGENT, AGENT);
        if let Some(user) = row.user {
            request = request.header("Impersonate-User", kept.fill(user));
        }
        let request = request.body(Body::from(kept.payload(&row.payload)))?;
        self.client.send(request).await.with_context(|| row.title())
    }

    async fn once(&self, row: &Row, kept: &Kept) -> Result<Answered> {
        let response = self.open(row, kept).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        Ok(Answered { status, body: parse(&bytes) })
    }

    /// Reads so many events, and one more if it comes.
    async fn watch(&self, row: &Row, kept: &Kept, events: usize) -> Result<Answered> {
        let response = self.open(row, kept).await?;
        let status = response.status().as_u16();
        if status != 200 {
            let bytes = response.into_body().collect_bytes().await?;
            return Ok(Answered { status, body: parse(&bytes) });
        }
        let mut stream = BodyStream::new(response.into_body());
        let (mut buffer, mut found) = (Vec::new(), Vec::new());
        while found.len() <= events {
            let patience = match (self.is_real(), found.len() < events) {
                (true, true) => EVENT_WITHIN,
                (true, false) => NO_EVENT_WITHIN,
                (false, _) => Duration::from_millis(5),
            };
            let Ok(Some(frame)) = timeout(patience, stream.next()).await else { break };
            buffer.extend_from_slice(&frame?.into_data().unwrap_or_default());
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                found.push(parse(&line));
            }
        }
        Ok(Answered { status, body: Value::Array(found) })
    }
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(bytes).into_owned()))
}

/// A client whose requests the server in memory answers.
fn client_of(world: Arc<Mutex<World>>) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let world = world.clone();
        async move {
            let (head, body) = request.into_parts();
            let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
            let request = server::Request {
                method: head.method.clone(),
                path: head.uri.path().to_owned(),
                query: head.uri.query().unwrap_or_default().to_owned(),
                content_type: header("content-type").unwrap_or_default().to_owned(),
                body: body.collect_bytes().await?,
                user: header("impersonate-user").unwrap_or("admin").to_owned(),
                agent: header("user-agent").unwrap_or_default().to_owned(),
            };
            let answer = world.lock().unwrap_or_else(PoisonError::into_inner).handle(&request);
            let (status, bytes) = match answer {
                server::Answer::Whole { status, body } => {
                    (status, Bytes::from(body.as_str().map_or_else(|| body.to_string(), str::to_owned)))
                }
                // Nothing happens while the table waits for events: whatever is to come is there by now.
                server::Answer::Watch { mut events, .. } => {
                    let mut lines = Vec::new();
                    while let Some(Some(line)) = events.next().now_or_never() {
                        lines.extend_from_slice(&line);
                    }
                    (200, Bytes::from(lines))
                }
            };
            Ok::<_, anyhow::Error>(Response::builder().status(status).body(Body::from(bytes))?)
        }
    });
    Client::new(service, "default")
}
