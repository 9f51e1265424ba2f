//! One virtual world: an API server, the way to it, and the controllers that every cluster has.
//!
//! Whatever may differ between two runs is drawn from the seed: how long a call takes on its way and back, when an event of
//! a watch arrives, and when the controllers wake up.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    process::{Node, Processes},
    server::{self, Answer, Server},
};

/// When every world begins.
const EPOCH: &str = "2026-01-01T00:00:00Z";
/// How long a call takes on its way, at the most, in milliseconds; and at least one, since nothing happens at once.
const ON_ITS_WAY: u64 = 3;
/// How long controllers take to notice something, in milliseconds.
const NOTICED: (u64, u64) = (5, 25);

type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

/// A world. A clone is the same one.
#[derive(Clone)]
pub struct World {
    shared: Arc<Mutex<Shared>>,
    seed: u64,
    /// When it began.
    pub began: Instant,
    /// Where processes run unless a schedule says otherwise.
    pub node: Arc<Node>,
    /// All processes.
    pub processes: Processes,
}

struct Shared {
    server: Server,
    random: fastrand::Rng,
    /// Whether the controllers are about to look.
    noticed: bool,
    /// How late events of watches come.
    lag: Duration,
    /// What happened, if somebody wants to know.
    trace: Option<Vec<String>>,
    /// What must never happen, and did.
    violations: Vec<String>,
}

impl World {
    /// A new world, as tokio's clock stands: that must be a paused one.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let began = Instant::now();
        let epoch: Timestamp = EPOCH.parse().expect("a time");
        standins::conditions::set_time(move || epoch + began.elapsed());
        Self {
            shared: Arc::new(Mutex::new(Shared {
                server: Server::new(epoch),
                random: fastrand::Rng::with_seed(seed),
                noticed: false,
                lag: Duration::ZERO,
                trace: None,
                violations: Vec::new(),
            })),
            seed,
            began,
            node: Arc::new(Node::new("node-a", began, epoch)),
            processes: Processes::default(),
        }
    }

    /// The right time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        EPOCH.parse::<Timestamp>().expect("a time") + self.began.elapsed()
    }

    /// Draws anew from the seed: a run that starts from the same state is the same run, whatever was before it.
    pub fn begin_anew(&self) {
        self.shared().random.seed(self.seed);
    }

    /// A number of a process's own, from the seed.
    #[must_use]
    pub fn draw_seed(&self) -> u64 {
        self.shared().random.u64(..)
    }

    /// What the server was asked for and does not know.
    #[must_use]
    pub fn unknown(&self) -> Vec<String> {
        self.shared().server.unknown().to_vec()
    }

    /// The server, between two calls.
    pub fn with_server<T>(&self, look: impl FnOnce(&mut Server) -> T) -> T {
        look(&mut self.shared().server)
    }

    /// A client of this world. `who` is only for people.
    #[must_use]
    pub fn client(&self, who: &str) -> Client {
        let (world, who) = (self.clone(), who.to_owned());
        let service =
            tower::service_fn(move |request: Request<Body>| world.clone().call(who.clone(), request));
        Client::new(service, "default")
    }

    /// From now on what happens is written down.
    pub fn trace(&self) {
        self.shared().trace = Some(Vec::new());
    }

    /// What happened since then, a line each: when, who, what, and what the server said.
    #[must_use]
    pub fn traced(&self) -> Vec<String> {
        self.shared().trace.clone().unwrap_or_default()
    }

    /// Writes something down, if somebody wants to know.
    pub fn note(&self, who: &str, what: impl FnOnce() -> String) {
        let at = self.began.elapsed();
        if let Some(trace) = &mut self.shared().trace {
            trace.push(format!("{:>9.3} {who:<10} {}", at.as_secs_f64(), what()));
        }
    }

    /// Something has happened that must never happen.
    pub fn violated(&self, what: String) {
        self.note("VIOLATION", || what.clone());
        self.shared().violations.push(what);
    }

    /// What has happened that must never happen.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.shared().violations.clone()
    }

    /// Another machine, whose clock is right.
    #[must_use]
    pub fn machine(&self, name: &str) -> Arc<Node> {
        Arc::new(Node::new(name, self.began, EPOCH.parse().expect("a time")))
    }

    /// The API server restarts: watches end, and versions from before are too old.
    pub fn restart(&self) {
        self.with_server(|server| {
            server.end_watches();
            server.cut_history();
        });
    }

    /// From now on events of watches come this late.
    pub fn set_lag(&self, lag: Duration) {
        self.shared().lag = lag;
    }

    /// Waits until a process has fallen asleep.
    pub async fn until_asleep(&self) {
        while !self.processes.any_asleep() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A while on the way to or from the server.
    async fn travel(&self) {
        let milliseconds = self.shared().random.u64(1..=ON_ITS_WAY);
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
    }

    async fn call(self, who: String, request: Request<Body>) -> Result<Response<AnswerBody>, kube::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let text = |name| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let request = server::Request {
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            content_type: text(header::CONTENT_TYPE).to_owned(),
            agent: text(header::USER_AGENT).to_owned(),
            method: parts.method,
            body,
            user: "admin".to_owned(),
        };
        self.travel().await;
        let answer = {
            let now = self.now();
            let mut shared = self.shared();
            let answer = shared.server.handle(&request, now);
            drop(shared);
            self.note(&who, || told(&request, &answer));
            let mut shared = self.shared();
            if request.method != http::Method::GET && !std::mem::replace(&mut shared.noticed, true) {
                tokio::spawn(self.clone().reconcile());
            }
            answer
        };
        self.travel().await;
        Ok(match answer {
            Answer::Whole { status, body } => whole(status, body),
            Answer::Watch { events, timeout } => self.watch(events, timeout),
        })
    }

    fn watch(
        &self,
        events: futures::channel::mpsc::UnboundedReceiver<Bytes>,
        timeout: Option<u32>,
    ) -> Response<AnswerBody> {
        let world = self.clone();
        let lines = events.then(move |line| {
            let world = world.clone();
            async move {
                world.travel().await;
                let lag = world.shared().lag;
                tokio::time::sleep(lag).await;
                Ok(http_body::Frame::data(line))
            }
        });
        let end = async move {
            match timeout {
                Some(seconds) => tokio::time::sleep(Duration::from_secs(seconds.into())).await,
                None => std::future::pending().await,
            }
        };
        let mut response = Response::new(StreamBody::new(lines.take_until(Box::pin(end))).boxed_unsync());
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        response
    }

    /// The controllers look, some time after something was written, and again until they have nothing to do.
    async fn reconcile(self) {
        loop {
            let milliseconds = {
                let mut shared = self.shared();
                shared.random.u64(NOTICED.0..=NOTICED.1)
            };
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            let now = self.now();
            let mut shared = self.shared();
            shared.noticed = false;
            if !shared.server.reconcile(now) {
                return;
            }
            shared.noticed = true;
        }
    }
}

/// A call and its answer in a line.
fn told(request: &server::Request, answer: &Answer) -> String {
    let query = if request.query.is_empty() { String::new() } else { format!("?{}", request.query) };
    let body = String::from_utf8_lossy(&request.body);
    let (status, said) = match answer {
        Answer::Whole { status, body } if *status >= 300 => {
            (*status, body["message"].as_str().unwrap_or_default().to_owned())
        }
        Answer::Whole { status, .. } => (*status, String::new()),
        Answer::Watch { .. } => (200, "a watch".to_owned()),
    };
    format!("{} {}{query} {body} -> {status} {said}", request.method, request.path)
}

fn whole(status: u16, body: Value) -> Response<AnswerBody> {
    let (text, kind) = match body {
        Value::String(text) => (text, "text/plain"),
        json => (json.to_string(), "application/json"),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
