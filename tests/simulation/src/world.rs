//! One virtual world: an API server, the way to it, and the controllers that every cluster has.
//!
//! Whatever may differ between two runs is drawn from the seed: how long a call takes on its way and back, when an event of
//! a watch arrives, and when the controllers wake up.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    ops::RangeInclusive,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use belay_runtime::lock::{Holder, holder_of};
use bytes::Bytes;
use futures::StreamExt as _;
use harness::{Call, Class, crash::Objects};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use jiff::Timestamp;
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::{sync::watch, time::Instant};

use crate::{
    conformance::{Shape, covers},
    invariants,
    process::{Node, Processes},
    server::{self, Answer, Server},
    traffic::Traffic,
};

/// Who is around the steps: the scenario and the stand-ins.
pub const AROUND: &str = "around";
/// When every world begins.
const EPOCH: &str = "2026-01-01T00:00:00Z";
/// How long a call takes on its way, at the most, in milliseconds; and at least one, since nothing happens at once.
const ON_ITS_WAY: u64 = 3;
/// How many events of a watch may be on their way at once.
const ON_THEIR_WAY: usize = 10_000;
/// How long controllers take to notice something, in milliseconds.
const NOTICED: (u64, u64) = (5, 25);

/// Why a move must not take effect at this moment, if so: [`Scenario::too_early`](harness::Scenario::too_early).
pub type TooEarly = Arc<dyn Fn(&Call, &Objects<'_>) -> Option<String> + Send + Sync>;

type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;

/// A world at some moment: others begin there.
#[derive(Clone)]
pub struct Moment {
    server: Server,
    time: Timestamp,
}

impl Moment {
    /// Before anything has happened.
    fn first() -> Self {
        let time: Timestamp = EPOCH.parse().expect("a time");
        Self { server: Server::new(time), time }
    }
}

/// A world. A clone is the same one.
#[derive(Clone)]
pub struct World {
    shared: Arc<Mutex<Shared>>,
    seed: u64,
    /// Whether it has no other world behind it.
    from_the_first: bool,
    /// The time of day at which it began.
    epoch: Timestamp,
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
    /// How clients are served, by their names.
    connections: BTreeMap<String, Connection>,
    /// How many faults of a schedule have struck.
    struck: usize,
    /// Whether somebody who should have written found nothing to write to.
    idle: bool,
    /// Whether steps run in pods.
    in_pods: bool,
    /// What happened, if somebody wants to know.
    trace: Option<Vec<String>>,
    /// What must never happen, and did.
    violations: Vec<String>,
    /// Why a move must not take effect now, if so.
    too_early: Option<TooEarly>,
    /// How processes call themselves where they hold a lock.
    holders: BTreeMap<String, Holder>,
    /// Who has created what, by its path.
    created: Vec<(String, String)>,
    /// The sorts of all calls that were answered.
    shapes: BTreeSet<Shape>,
}

/// How a client is served: each may talk to an API server of its own.
struct Connection {
    /// How late events of watches come.
    lag: Duration,
    /// How many objects a page holds, if fewer than asked for.
    page: Option<u32>,
    /// What went over it.
    traffic: Traffic,
    /// Ends the watches that there are.
    ends: watch::Sender<()>,
}

impl Default for Connection {
    fn default() -> Self {
        Self { lag: Duration::ZERO, page: None, traffic: Traffic::default(), ends: watch::Sender::new(()) }
    }
}

impl World {
    /// A new world.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { from_the_first: true, ..Self::begin(&Moment::first(), seed) }
    }

    /// A world that begins at a moment of another, as tokio's clock stands: that must be a paused one.
    #[must_use]
    pub fn begin(moment: &Moment, seed: u64) -> Self {
        let (began, epoch) = (Instant::now(), moment.time);
        standins::conditions::set_time(move || epoch + began.elapsed());
        Self {
            shared: Arc::new(Mutex::new(Shared {
                server: moment.server.clone(),
                random: fastrand::Rng::with_seed(seed),
                noticed: false,
                connections: BTreeMap::new(),
                struck: 0,
                idle: false,
                in_pods: false,
                trace: None,
                violations: Vec::new(),
                too_early: None,
                holders: BTreeMap::new(),
                created: Vec::new(),
                shapes: BTreeSet::new(),
            })),
            seed,
            from_the_first: false,
            epoch,
            began,
            node: Arc::new(Node::new("node-a", began, epoch)),
            processes: Processes::default(),
        }
    }

    /// The right time of day.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.epoch + self.began.elapsed()
    }

    /// This moment: what is there, without those who look at it.
    #[must_use]
    pub fn moment(&self) -> Moment {
        Moment { server: self.shared().server.clone(), time: self.now() }
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

    /// A number within a range, from the seed.
    #[must_use]
    pub fn draw(&self, within: RangeInclusive<i64>) -> i64 {
        self.shared().random.i64(within)
    }

    /// From now on each step that is started runs in a pod.
    pub fn run_in_pods(&self) {
        self.shared().in_pods = true;
    }

    /// Whether that is so.
    #[must_use]
    pub fn runs_in_pods(&self) -> bool {
        self.shared().in_pods
    }

    /// What the server was asked for and does not know.
    #[must_use]
    pub fn unknown(&self) -> Vec<String> {
        self.shared().server.unknown().to_vec()
    }

    /// The server, between two calls. What is written to it is looked at.
    pub fn with_server<T>(&self, look: impl FnOnce(&mut Server) -> T) -> T {
        let (given, broken) = {
            let server = &mut self.shared().server;
            let before = server.revision();
            let given = look(server);
            let written = server.revision() > before;
            (given, if written { invariants::broken_by_writes(server, before) } else { Vec::new() })
        };
        for what in broken {
            self.violated(what);
        }
        given
    }

    /// The most that a process of this world has sent and got.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let shared = self.shared();
        let of_processes = self.processes.names().into_iter().filter_map(|who| shared.connections.get(&who));
        of_processes.map(|connection| connection.traffic).fold(Traffic::default(), Traffic::most)
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

    /// From now on this says which moves come too early.
    pub fn judge_order(&self, too_early: TooEarly) {
        self.shared().too_early = Some(too_early);
    }

    /// From now on no move comes too early: a person has changed what moves depend on, perhaps behind a step's back.
    pub fn forgive_order(&self) {
        self.shared().too_early = None;
    }

    /// Why the move that a process asks for comes too early, if it does.
    fn too_early(&self, who: &str, request: &server::Request) -> Option<String> {
        let server::Request { method, path, query, body, .. } = request;
        if method == Method::GET || !is_process(who) {
            return None;
        }
        let too_early = self.shared().too_early.clone()?;
        let call = Call::new(method, path, query, body.clone(), self.began.elapsed());
        if call.class != Class::Move {
            return None;
        }
        let why = self.with_server(|server| {
            too_early(&call, &|kind| server.objects(&kind.group, &kind.plural).cloned().collect())
        });
        why.map(|why| format!("{who}: {call} comes too early: {why}"))
    }

    /// From now on it is known as which holder of a lock a process is met.
    pub fn meets(&self, who: &str, holder: Holder) {
        self.shared().holders.insert(who.to_owned(), holder);
    }

    /// Who else of the processes holds a lock at this moment.
    fn other_holder(&self, who: &str) -> Option<String> {
        let shared = self.shared();
        let held = shared.server.objects("coordination.k8s.io", "leases").filter_map(holder_of);
        let of_others = held.filter_map(|holder| shared.holders.iter().find(|(_, known)| **known == holder));
        of_others.map(|(other, _)| other.clone()).find(|other| other != who)
    }

    /// A fault of a schedule strikes.
    pub fn strike(&self) {
        self.shared().struck += 1;
    }

    /// How many have struck.
    #[must_use]
    pub fn struck(&self) -> usize {
        self.shared().struck
    }

    /// Somebody who should have written found nothing to write to.
    pub fn set_idle(&self) {
        self.shared().idle = true;
    }

    /// Whether that was so.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.shared().idle
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

    /// The sorts of all calls that were answered.
    #[must_use]
    pub fn shapes(&self) -> BTreeSet<Shape> {
        self.shared().shapes.clone()
    }

    /// Those of them that the conformance table has no row for: nobody knows whether a real server answers so.
    #[must_use]
    pub fn uncovered(&self) -> Vec<String> {
        // A real server forgets the versions of lists after minutes only, so no row can ask it.
        let can_be_asked = |shape: &&Shape| shape.status != 410;
        let shared = self.shared();
        let shapes = shared.shapes.iter().filter(can_be_asked).filter(|shape| !covers(shape));
        shapes.map(ToString::to_string).collect()
    }

    /// Another machine, whose clock is right.
    #[must_use]
    pub fn machine(&self, name: &str) -> Arc<Node> {
        Arc::new(Node::new(name, self.began, self.epoch))
    }

    /// The API server of a client restarts: its watches end, and versions from before are too old.
    pub fn restart(&self, who: &str) {
        let mut shared = self.shared();
        shared.server.cut_history();
        shared.connections.entry(who.to_owned()).or_default().ends.send_replace(());
    }

    /// From now on a client talks to another API server, whose watch cache is behind: its watches end, and events of new ones
    /// come this late. Lists do not come from that cache unless they ask for it, and none does.
    pub fn move_behind(&self, who: &str, lag: Duration) {
        let mut shared = self.shared();
        let connection = shared.connections.entry(who.to_owned()).or_default();
        connection.lag = lag;
        connection.ends.send_replace(());
    }

    /// From now on a client's lists come in pages of at most so many objects: a server may hand out fewer than asked for.
    pub fn set_page(&self, who: &str, objects: u32) {
        self.shared().connections.entry(who.to_owned()).or_default().page = Some(objects);
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
            query: self.paged(&who, parts.uri.query().unwrap_or_default()),
            content_type: text(header::CONTENT_TYPE).to_owned(),
            agent: text(header::USER_AGENT).to_owned(),
            method: parts.method,
            body,
            user: "admin".to_owned(),
        };
        self.travel().await;
        self.count(&who, |traffic| traffic.sends(request.body.len()));
        let answer = self.serve(&who, &request);
        self.travel().await;
        Ok(match answer {
            Answer::Whole { status, body } => {
                let (text, kind) = written(body);
                self.count(&who, |traffic| traffic.gets(text.len()));
                whole(status, text, kind)
            }
            Answer::Watch { events, timeout } => self.watch(who, events, timeout),
        })
    }

    fn count(&self, who: &str, count: impl FnOnce(&mut Traffic)) {
        let mut shared = self.shared();
        match shared.connections.get_mut(who) {
            Some(connection) => count(&mut connection.traffic),
            None => count(&mut shared.connections.entry(who.to_owned()).or_default().traffic),
        }
    }

    /// The server serves a request, at this very moment.
    fn serve(&self, who: &str, request: &server::Request) -> Answer {
        if is_process(who) && request.query.split('&').any(|part| part == "resourceVersion=0") {
            self.violated(format!("{who} asks for whatever the watch cache has: {}", request.path));
        }
        let early = self.too_early(who, request);
        let now = self.now();
        let answer = self.with_server(|server| server.handle(request, now));
        self.note(who, || told(request, &answer));
        if let Answer::Whole { status: 200..300, .. } = &answer
            && let Some(early) = early
        {
            self.violated(early);
        }
        self.judge_landing(who, request, &answer);
        if let Some(path) = created(request, &answer) {
            self.shared().created.push((who.to_owned(), path));
        }
        let status = if let Answer::Whole { status, .. } = &answer { *status } else { 200 };
        let server::Request { method, path, query, content_type, .. } = request;
        // What stand-ins come to ask when somebody else disturbs them is no concern of the steps.
        if self.from_the_first || is_process(who) {
            self.shared().shapes.insert(Shape::of(method, path, query, content_type, status));
        }
        if request.method != Method::GET && !std::mem::replace(&mut self.shared().noticed, true) {
            tokio::spawn(self.clone().reconcile());
        }
        answer
    }

    /// A write must not take effect while another run holds the lock, unless nobody is left to keep it back.
    fn judge_landing(&self, who: &str, request: &server::Request, answer: &Answer) {
        let server::Request { method, path, query, body, .. } = request;
        let took_effect = matches!(answer, Answer::Whole { status: 200..300, .. });
        if method == Method::GET || !took_effect || !self.processes.is_alive(who) {
            return;
        }
        let call = Call::new(method, path, query, body.clone(), self.began.elapsed());
        if call.is_write()
            && matches!(call.class, Class::Move | Class::Journal)
            && let Some(other) = self.other_holder(who)
        {
            self.violated(format!("{who} made {call} while {other} held the lock"));
        }
    }

    /// Somebody who is no process of this world asks the server, at this very moment, between two calls of others. What it
    /// answered; none if it refused.
    pub fn ask(&self, who: &str, request: server::Request) -> Option<Value> {
        let request = server::Request { agent: who.to_owned(), ..request };
        match self.serve(who, &request) {
            Answer::Whole { status, body } if status < 300 => Some(body),
            _ => None,
        }
    }

    /// Who has created what so far, by its path.
    #[must_use]
    pub fn created(&self) -> Vec<(String, String)> {
        self.shared().created.clone()
    }

    /// An object as it is, by its path.
    #[must_use]
    pub fn object(&self, path: &str) -> Option<Value> {
        let (request, now) = (server::Request::new(Method::GET, path), self.now());
        match self.with_server(|server| server.handle(&request, now)) {
            Answer::Whole { status: 200, body } => Some(body),
            _ => None,
        }
    }

    /// A query that asks for pages of the size that this client gets.
    fn paged(&self, who: &str, query: &str) -> String {
        let page = self.shared().connections.get(who).and_then(|connection| connection.page);
        let Some(page) = page else { return query.to_owned() };
        let parts = query.split('&');
        let limited = parts
            .map(|part| if part.starts_with("limit=") { format!("limit={page}") } else { part.to_owned() });
        limited.collect::<Vec<_>>().join("&")
    }

    fn watch(
        &self,
        who: String,
        events: futures::channel::mpsc::UnboundedReceiver<Bytes>,
        timeout: Option<u32>,
    ) -> Response<AnswerBody> {
        let mut ends = self.shared().connections.entry(who.clone()).or_default().ends.subscribe();
        let world = self.clone();
        let lines = events.map(move |line| {
            let (world, who) = (world.clone(), who.clone());
            async move {
                world.travel().await;
                world.count(&who, |traffic| traffic.gets(line.len()));
                let lag = world.shared().connections.get(&who).map(|connection| connection.lag);
                tokio::time::sleep(lag.unwrap_or_default()).await;
                Ok(http_body::Frame::data(line))
            }
        });
        // In their order, and all of them on their way at once: each is late by as much.
        let lines = lines.buffered(ON_THEIR_WAY);
        let end = async move {
            let changed = ends.changed();
            let _ = match timeout {
                Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds.into()), changed).await,
                None => Ok(changed.await),
            };
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
            self.shared().noticed = false;
            if !self.with_server(|server| server.reconcile(now)) {
                return;
            }
            self.shared().noticed = true;
        }
    }
}

/// Whether that is the name of a process, and not of somebody around it.
#[must_use]
pub fn is_process(who: &str) -> bool {
    who.starts_with("pid ")
}

/// The path of the object that a request has created.
fn created(request: &server::Request, answer: &Answer) -> Option<String> {
    match answer {
        Answer::Whole { status: 201, body }
            if request.method == Method::POST && !request.query.contains("dryRun=") =>
        {
            Some(format!("{}/{}", request.path, body["metadata"]["name"].as_str()?))
        }
        _ => None,
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

/// A body as it goes over the wire, and its type.
fn written(body: Value) -> (String, &'static str) {
    match body {
        Value::String(text) => (text, "text/plain"),
        json => (json.to_string(), "application/json"),
    }
}

fn whole(status: u16, text: String, kind: &'static str) -> Response<AnswerBody> {
    let mut response = Response::new(Full::new(Bytes::from(text)).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
