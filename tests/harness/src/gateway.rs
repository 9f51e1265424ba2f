//! Between one run of a step and the API server: names and records the calls, and makes things go wrong.
//!
//! A step that is a process of its own comes in over a [`Proxy`](crate::proxy::Proxy); one that runs in this process has a
//! [`Gateway::client`].

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, timeout},
};

use crate::{
    call::{Call, Class, Fate, LeaseUse, Verb, renews},
    fault::{Action, Decision, Fault, Faults, status_object},
};

/// How long the API server may take for one call that is not a watch.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Headers that belong to one connection, or name whom it is for.
const NOT_PASSED_ON: [header::HeaderName; 6] = [
    header::HOST,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::CONTENT_LENGTH,
    header::UPGRADE,
    header::AUTHORIZATION,
];

/// The header of an answer that tells a step, in a build for tests, that its deadline is now.
pub const DEADLINE: &str = "belay-test-deadline";

/// The API server.
#[derive(Clone)]
pub struct Upstream {
    client: Client,
    /// Certificates of its authorities, in the form that a kubeconfig has them.
    pub(crate) authorities: String,
}

impl Upstream {
    /// The API server and the credentials of a kubeconfig's current context.
    pub async fn from_kubeconfig(path: &Path) -> Result<Self> {
        let read = Kubeconfig::read_from(path)
            .with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
            .await
            .with_context(|| format!("kubeconfig {} names no usable context", path.display()))?;
        Self::from_config(config)
    }

    /// An API server without TLS and credentials.
    pub fn from_url(url: &str) -> Result<Self> {
        let mut config = Config::new(url.parse().context("not a URL")?);
        config.root_cert = Some(Vec::new());
        Self::from_config(config)
    }

    /// Whatever this client talks to.
    #[must_use]
    pub fn from_client(client: Client) -> Self {
        Self { client, authorities: String::new() }
    }

    fn from_config(mut config: Config) -> Result<Self> {
        // A proxy that retries on its own would hide from the step what it must handle itself.
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        let pem: String = config
            .root_cert
            .iter()
            .flatten()
            .map(|certificate| {
                format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----", base64(certificate))
            })
            .chain([String::new()])
            .collect::<Vec<_>>()
            .join("\n");
        // Not even one: still something to read, so that nobody looks elsewhere.
        let authorities = base64(if pem.is_empty() { b"\n" } else { pem.as_bytes() });
        Ok(Self { client: Client::try_from(config).context("cannot build a client")?, authorities })
    }

    /// The client, for calls that are not the step's.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    async fn send(&self, message: Message) -> Result<Response<Body>> {
        let mut request = Request::builder().method(message.method).uri(message.uri);
        if let Some(headers) = request.headers_mut() {
            *headers = message.headers;
        }
        Ok(self.client.send(request.body(Body::from(message.body))?).await?)
    }

    /// Sends a request and waits for its whole answer.
    async fn send_whole(&self, message: Message) -> Result<Response<Bytes>> {
        let whole = async {
            let (parts, body) = self.send(message).await?.into_parts();
            Ok(Response::from_parts(parts, body.collect().await?.to_bytes()))
        };
        timeout(CALL_TIMEOUT, whole).await.map_err(|_| anyhow!("no answer in {CALL_TIMEOUT:?}"))?
    }
}

/// The parts of a request that are sent on.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) method: Method,
    pub(crate) uri: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Message {
    pub(crate) fn new(parts: http::request::Parts, body: Bytes) -> Self {
        Self {
            method: parts.method,
            uri: parts.uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
            headers: passed_on(&parts.headers),
            body,
        }
    }
}

/// A call whose sender was killed, and which has not reached the API server yet.
pub struct Held(Box<HeldParts>);

struct HeldParts {
    call: Call,
    message: Message,
    upstream: Upstream,
}

impl Held {
    /// The call.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.0.call
    }

    /// Sends it to the API server, now. Says what the API server answered.
    pub async fn land(self) -> Landed {
        let HeldParts { call, message, upstream } = *self.0;
        let answer = match upstream.send_whole(message).await {
            Ok(answer) => Ok(answer.status().as_u16()),
            Err(error) => Err(format!("{error:#}")),
        };
        Landed { call, before: None, answer }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "held back: {}", self.call())
    }
}

/// A call that has landed late.
#[derive(Clone, Debug)]
pub struct Landed {
    /// The call.
    pub call: Call,
    /// The call of the next run before which it landed; none: that run was over already.
    pub before: Option<Call>,
    /// The status it got.
    pub answer: std::result::Result<u16, String>,
}

/// What the owner of the step's process is asked to do to it.
#[derive(Debug)]
pub enum Order {
    /// Kill it, reap it, then answer.
    Kill(oneshot::Sender<()>),
    /// Send it SIGTERM, then answer.
    Terminate(oneshot::Sender<()>),
}

/// Ends the step, at once or by asking it to.
#[derive(Clone, Debug)]
pub struct KillSwitch(mpsc::Sender<Order>);

impl KillSwitch {
    /// A switch, and what the owner of the step's process listens to.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Order>) {
        let (sender, receiver) = mpsc::channel(4);
        (Self(sender), receiver)
    }

    async fn order(&self, order: fn(oneshot::Sender<()>) -> Order) {
        let (done, is_done) = oneshot::channel();
        // Nobody listens any more: the step has ended by itself.
        if self.0.send(order(done)).await.is_ok() {
            let _ = is_done.await;
        }
    }
}

/// What a proxy has seen when it is stopped.
#[derive(Debug, Default)]
pub struct Record {
    /// Every request in the order of arrival.
    pub calls: Vec<Call>,
    /// The calls at which a fault struck first.
    pub struck: Vec<Call>,
    /// A call that was held back.
    pub held: Option<Held>,
    /// Calls of an earlier run that landed in this one.
    pub landed: Vec<Landed>,
}

/// What is recorded while the proxy runs.
#[derive(Default)]
struct Log {
    record: Record,
    /// How many calls have asked for what.
    asked: HashMap<String, u32>,
    lock_taken: bool,
    /// Set when the step was killed: what still arrives from it then was already lost.
    dead: bool,
}

pub(crate) struct Shared {
    pub(crate) upstream: Upstream,
    started: Instant,
    kill: Option<KillSwitch>,
    log: Mutex<Log>,
    faults: Mutex<Faults>,
    /// Counts up when something new is in the log.
    news: watch::Sender<u64>,
    /// Requests being dealt with.
    under_way: watch::Sender<usize>,
    /// Until when connections are refused.
    pub(crate) refuse: watch::Sender<Option<Instant>>,
}

pub(crate) type ProxyBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The connection is closed without an answer.
#[derive(Debug)]
pub(crate) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the harness cut the connection")
    }
}

impl std::error::Error for Cut {}

/// What stands between one run and the API server.
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
}

impl Gateway {
    /// In front of an API server. Without a kill switch nothing can be killed, and faults that kill only cut the
    /// connection.
    #[must_use]
    pub fn new(upstream: &Upstream, faults: Vec<Fault>, kill: Option<KillSwitch>) -> Self {
        let shared = Shared {
            upstream: upstream.clone(),
            started: Instant::now(),
            kill,
            log: Mutex::default(),
            faults: Mutex::new(Faults::new(faults)),
            news: watch::Sender::new(0),
            under_way: watch::Sender::new(0),
            refuse: watch::Sender::new(None),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A client whose calls all go through it, without a socket.
    #[must_use]
    pub fn client(&self) -> Client {
        let shared = self.shared.clone();
        Client::new(tower::service_fn(move |request| serve_here(shared.clone(), request)), "default")
    }

    /// What it has seen so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.shared.log().record.calls.clone()
    }

    /// Waits until a call of which this is true has been dealt with.
    pub async fn when(&self, matcher: impl Fn(&Call) -> bool, within: Duration) -> Result<Call> {
        let mut news = self.shared.news.subscribe();
        let found = async {
            loop {
                news.borrow_and_update();
                let done = |call: &&Call| call.fate != Fate::UnderWay && matcher(call);
                let found = self.shared.log().record.calls.iter().find(done).cloned();
                if let Some(call) = found {
                    return Some(call);
                }
                if news.changed().await.is_err() {
                    return None;
                }
            }
        };
        timeout(within, found).await.ok().flatten().with_context(|| format!("no such call within {within:?}"))
    }

    /// Cuts all connections and accepts no new one for a while.
    pub fn refuse(&self, lasting: Duration) {
        self.shared.refuse.send_replace(Some(Instant::now() + lasting));
    }

    /// Waits for the calls under way, sends what should have landed late and has not, and hands out what it has seen.
    pub async fn stop(&self) -> Record {
        let mut under_way = self.shared.under_way.subscribe();
        let _ = timeout(CALL_TIMEOUT, under_way.wait_for(|count| *count == 0)).await;
        let late = lock(&self.shared.faults).unlanded();
        for held in late {
            let landed = held.land().await;
            self.shared.log().record.landed.push(landed);
        }
        std::mem::take(&mut self.shared.log().record)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Serves a client in this process. While connections are refused none is made, and those that there are are cut.
async fn serve_here(shared: Arc<Shared>, request: Request<Body>) -> Result<Response<ProxyBody>, Cut> {
    let mut refuse = shared.refuse.subscribe();
    if refuse.borrow_and_update().is_some_and(|until| Instant::now() < until) {
        return Err(Cut);
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let dealing = serve(shared, Message::new(parts, body));
    let answer = tokio::select! {
        biased;
        answer = dealing => answer?,
        Ok(()) = refuse.changed() => return Err(Cut),
    };
    let cut = async move {
        let _ = refuse.changed().await;
    };
    Ok(answer.map(|body| {
        StreamBody::new(body.into_data_stream().map(frame).take_until(Box::pin(cut))).boxed_unsync()
    }))
}

fn frame<E>(data: Result<Bytes, E>) -> Result<hyper::body::Frame<Bytes>, E> {
    data.map(hyper::body::Frame::data)
}

/// Deals with a request in a task of its own: one that is on its way must arrive even when its sender dies.
pub(crate) async fn serve(shared: Arc<Shared>, message: Message) -> Result<Response<ProxyBody>, Cut> {
    shared.under_way.send_modify(|count| *count += 1);
    let dealing = tokio::spawn(async move {
        let answer = deal(&shared, message).await;
        shared.under_way.send_modify(|count| *count -= 1);
        answer
    });
    dealing.await.map_err(|_| Cut)?
}

async fn deal(shared: &Arc<Shared>, message: Message) -> Result<Response<ProxyBody>, Cut> {
    let (path, query) = message.uri.split_once('?').unwrap_or((&message.uri, ""));
    let mut call = Call::new(&message.method, path, query, message.body.clone(), shared.started.elapsed());
    let content_type = message.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    content_type.unwrap_or_default().clone_into(&mut call.content_type);
    let Some((index, call)) = shared.record(call) else { return Err(Cut) };
    let decision = lock(&shared.faults).decide(&call);
    let Decision { land, delay, gates, action, struck } = decision;
    if struck {
        shared.log().record.struck.push(call.clone());
    }
    for held in land {
        let landed = Landed { before: Some(call.clone()), ..held.land().await };
        shared.log().record.landed.push(landed);
    }
    tokio::time::sleep(delay).await;
    for gate in gates {
        gate.pass().await;
    }
    if let (Action::Terminate, Some(switch)) = (&action, &shared.kill) {
        switch.order(Order::Terminate).await;
    }
    match action {
        Action::Forward | Action::Delay(_) | Action::Terminate | Action::ForwardAtDeadline => {
            let answer = shared.forward(index, &call, message).await?;
            shared.settle(index, Fate::Answered, Some(answer.status()));
            let answer = match answer {
                Answer::Whole(answer) => answer.map(whole),
                Answer::Stream(answer) => answer.map(|body| body.map_err(Into::into).boxed_unsync()),
            };
            Ok(if action == Action::ForwardAtDeadline { at_deadline(answer) } else { answer })
        }
        Action::KillBefore => {
            shared.settle(index, Fate::KilledBefore, None);
            shared.kill().await;
            Err(Cut)
        }
        Action::KillAfter => {
            let status = shared.forward(index, &call, message).await?.status();
            shared.settle(index, Fate::KilledAfter, Some(status));
            shared.kill().await;
            Err(Cut)
        }
        Action::LoseAnswer => {
            let status = shared.forward(index, &call, message).await?.status();
            shared.settle(index, Fate::AnswerLost, Some(status));
            Err(Cut)
        }
        Action::Hold => {
            shared.settle(index, Fate::HeldBack, None);
            shared.kill().await;
            shared.log().record.held =
                Some(Held(Box::new(HeldParts { call, message, upstream: shared.upstream.clone() })));
            Err(Cut)
        }
        Action::Answer(code, retry_after) => {
            shared.settle(index, Fate::Invented, Some(code));
            Ok(invented(code, &call, retry_after))
        }
        Action::AnswerAtDeadline(code) => {
            shared.settle(index, Fate::Invented, Some(code));
            Ok(at_deadline(invented(code, &call, None)))
        }
        Action::Cut => {
            shared.settle(index, Fate::Refused, None);
            Err(Cut)
        }
        Action::Silence { lands } => {
            if lands {
                let status = shared.forward(index, &call, message).await?.status();
                shared.settle(index, Fate::AnswerLost, Some(status));
            } else {
                shared.settle(index, Fate::Refused, None);
            }
            // Nobody waits for this one when the run has ended.
            shared.under_way.send_modify(|count| *count -= 1);
            std::future::pending().await
        }
        Action::Refuse(lasting) => {
            shared.settle(index, Fate::Refused, None);
            shared.refuse.send_replace(Some(Instant::now() + lasting));
            Err(Cut)
        }
    }
}

/// What the API server said: the whole of it, or a stream that goes on.
enum Answer {
    Whole(Response<Bytes>),
    Stream(Response<Body>),
}

impl Answer {
    fn status(&self) -> u16 {
        match self {
            Self::Whole(answer) => answer.status().as_u16(),
            Self::Stream(answer) => answer.status().as_u16(),
        }
    }
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.log)
    }

    /// Gives a call its name and its place in the record; none if its sender is dead already.
    fn record(&self, mut call: Call) -> Option<(usize, Call)> {
        let mut log = self.log();
        if log.dead {
            return None;
        }
        call.renews = renews(call.class, call.verb, log.lock_taken);
        let asked = log.asked.entry(call.what()).or_default();
        *asked += 1;
        call.nth = *asked;
        log.record.calls.push(call.clone());
        Some((log.record.calls.len() - 1, call))
    }

    async fn forward(&self, index: usize, call: &Call, message: Message) -> Result<Answer, Cut> {
        let sent = if call.verb == Verb::Watch {
            self.upstream.send(message).await.map(|answer| Answer::Stream(without_hop(answer)))
        } else {
            self.upstream.send_whole(message).await.map(|answer| Answer::Whole(without_hop(answer)))
        };
        match sent {
            Ok(answer) => {
                let mut log = self.log();
                if call.class == Class::Lease(LeaseUse::Hold) && answer.status() < 300 {
                    log.lock_taken = true;
                }
                // The bytes are shared, not copied.
                if let (Answer::Whole(answer), Some(call)) = (&answer, log.record.calls.get_mut(index)) {
                    call.answer = Some(answer.body().clone());
                }
                drop(log);
                Ok(answer)
            }
            // The step sees what it would see without a proxy: a connection that breaks.
            Err(error) => {
                self.settle(index, Fate::Unreachable(format!("{error:#}")), None);
                Err(Cut)
            }
        }
    }

    fn settle(&self, index: usize, fate: Fate, status: Option<u16>) {
        {
            let mut log = self.log();
            if let Some(call) = log.record.calls.get_mut(index) {
                call.fate = fate;
                call.status = status;
                let settled = call.clone();
                let same = |struck: &&mut Call| struck.named() == settled.named();
                if let Some(struck) = log.record.struck.iter_mut().find(same) {
                    *struck = settled;
                }
            }
        }
        self.news.send_modify(|news| *news += 1);
    }

    async fn kill(&self) {
        self.log().dead = true;
        if let Some(switch) = &self.kill {
            switch.order(Order::Kill).await;
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    let encoded = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap_or_default();
    encoded.as_str().unwrap_or_default().to_owned()
}

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in &NOT_PASSED_ON {
        headers.remove(name);
    }
    headers
}

fn without_hop<B>(mut answer: Response<B>) -> Response<B> {
    *answer.headers_mut() = passed_on(answer.headers());
    answer
}

fn whole(bytes: Bytes) -> ProxyBody {
    Full::new(bytes).map_err(|never: Infallible| match never {}).boxed_unsync()
}

fn invented(code: u16, call: &Call, retry_after: Option<u32>) -> Response<ProxyBody> {
    let mut answer = Response::new(whole(Bytes::from(status_object(code, call, retry_after).to_string())));
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

/// An answer that tells the step that its deadline is now.
fn at_deadline(mut answer: Response<ProxyBody>) -> Response<ProxyBody> {
    answer.headers_mut().insert(DEADLINE, HeaderValue::from_static("now"));
    answer
}
