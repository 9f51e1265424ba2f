//! Every call to the API server goes through here: one place for timeouts, retries, the limit of calls in flight,
//! and the gate that shuts when this run may not write any more.

use std::{
    fmt::Write as _,
    path::PathBuf,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use backon::{BackoffBuilder, ExponentialBuilder};
use http::{Method, Request};
use kube::{
    Client, Config,
    client::Body,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};
use tokio::{
    sync::{Semaphore, watch},
    time::Instant,
};

use crate::{
    object::{Kind, ObjectRef},
    plan::Propagation,
};

/// How long the server may work on one of our calls. It is sent along, so that a call of a process that died cannot
/// land later than this.
pub const SERVER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long we wait for an answer: longer than the server may take, so that silence means a lost connection.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Helm re-creates RBAC under a running pod for a third of a second, and a restarted API server answers 403 until
/// its own RBAC cache is filled. Both pass well within this time.
const FORBIDDEN_MAY_PASS: Duration = Duration::from_secs(15);

/// The page size of every list; also client-go's.
const PAGE: usize = 500;

/// The name under which our writes stand in managedFields.
pub const FIELD_MANAGER: &str = "belay";

/// Why a call did not give what it was made for.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// The server said no, and would say so again.
    #[error("{call}: {answer}")]
    Refused {
        /// Verb and path.
        call: String,
        /// What it said.
        answer: Answer,
    },
    /// It did not work until the time was up.
    #[error("{call}: gave up at the deadline, after {tries} tries; the last answer was: {last}")]
    OutOfTime {
        /// Verb and path.
        call: String,
        /// How often it was tried.
        tries: u32,
        /// The last error.
        last: String,
    },
    /// This run may not go on.
    #[error("{0}")]
    Halted(Halt),
}

/// Why a run may not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halt {
    /// Somebody asked us to stop.
    #[error("told to stop by SIGTERM")]
    Terminated,
    /// Another run may be writing now.
    #[error("the lock is lost: {0}")]
    LockLost(String),
    /// Our rights were taken away.
    #[error("the API server does not know us any more (401): {0}")]
    Unauthorized(String),
}

/// An error as the API server words it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: String,
    /// The server's own sentence.
    pub message: String,
    /// The object that the answer is about; empty when the answer is about the API itself.
    pub about: String,
    /// The namespace is being deleted: nothing can be made in it any more.
    pub namespace_terminating: bool,
    /// After how long the server wants to be asked again.
    pub retry_after: Option<Duration>,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.code, if self.message.is_empty() { &self.reason } else { &self.message })
    }
}

/// What an answer means for the call that got it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Retry,
    RetryForAWhile,
    Unauthorized,
    Permanent,
}

impl Answer {
    fn verdict(&self) -> Verdict {
        match self.code {
            401 => Verdict::Unauthorized,
            403 if self.namespace_terminating => Verdict::Permanent,
            403 => Verdict::RetryForAWhile,
            408 | 429 | 500 | 502 | 503 | 504 => Verdict::Retry,
            _ => Verdict::Permanent,
        }
    }

    fn parse(code: u16, retry_after: Option<Duration>, body: &[u8]) -> Self {
        let Ok(status) = serde_json::from_slice::<Value>(body) else {
            // Not a Status: a proxy in between, or an API server that is starting.
            let message = String::from_utf8_lossy(body).trim().chars().take(200).collect();
            return Self { code, message, retry_after, ..Self::default() };
        };
        let text =
            |pointer: &str| status.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let causes = status.pointer("/details/causes").and_then(Value::as_array);
        let hinted =
            status.pointer("/details/retryAfterSeconds").and_then(Value::as_u64).map(Duration::from_secs);
        Self {
            code,
            reason: text("/reason"),
            message: text("/message"),
            about: text("/details/name"),
            namespace_terminating: causes.is_some_and(|causes| {
                causes.iter().any(|cause| cause.get("reason") == Some(&json!("NamespaceTerminating")))
            }),
            retry_after: retry_after.or(hinted),
        }
    }
}

impl Failure {
    fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Refused { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// The object changed since we read it: read it again, decide again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.answer().is_some_and(|answer| answer.code == 409 && answer.reason != "AlreadyExists")
    }

    /// Something bears the name already.
    #[must_use]
    pub fn is_already_exists(&self) -> bool {
        self.answer().is_some_and(|answer| answer.code == 409 && answer.reason == "AlreadyExists")
    }

    /// This very object does not exist. A 404 that does not name it means that the API is gone, which is no answer.
    #[must_use]
    pub fn is_not_found(&self, name: &str) -> bool {
        self.answer().is_some_and(|answer| answer.code == 404 && answer.about == name)
    }

    /// The resource itself is not served.
    #[must_use]
    pub fn is_not_served(&self) -> bool {
        self.answer().is_some_and(|answer| answer.code == 404 && answer.about.is_empty())
    }

    /// A list took longer than the server keeps old versions.
    fn is_expired(&self) -> bool {
        self.answer().is_some_and(|answer| answer.code == 410)
    }

    /// The namespace is being deleted.
    #[must_use]
    pub fn namespace_is_going(&self) -> bool {
        self.answer().is_some_and(|answer| answer.namespace_terminating)
    }

    /// A quota stands in the way.
    #[must_use]
    pub fn is_quota(&self) -> bool {
        self.answer().is_some_and(|answer| answer.code == 403 && answer.message.contains("exceeded quota"))
    }
}

/// Where the API server is, and as whom we speak to it.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// A kubeconfig file.
    pub kubeconfig: Option<PathBuf>,
    /// A context in it.
    pub context: Option<String>,
}

impl Access {
    /// Finds the configuration: what was named, else the pod's own, else the person's kubeconfig.
    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        if let Some(path) = &self.kubeconfig {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            return Config::from_custom_kubeconfig(file, &options)
                .await
                .with_context(|| format!("the kubeconfig {} does not describe a cluster", path.display()));
        }
        if self.context.is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            return Config::incluster().context(
                "in a pod, but without a usable service account token: is automountServiceAccountToken off?",
            );
        }
        Config::from_kubeconfig(&options)
            .await
            .context("no cluster: give --kubeconfig, set KUBECONFIG, or run in a pod with a service account")
    }

    /// A client for the cluster.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        // kube would retry 15 times by itself, for up to 8 minutes: longer than Helm waits. Ours is the only retry.
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        Client::try_from(config).context("cannot set up the connection to the cluster")
    }
}

/// Whether calls may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// The lock could not be renewed for a while: no writes until it is sure again whose it is.
    Paused,
    Shut(Halt),
}

/// Which object a delete means: the one just read, and no other of the same name.
#[derive(Clone, Debug)]
pub struct Precondition {
    /// Its uid.
    pub uid: String,
    /// Its version; none where only the identity matters.
    pub resource_version: Option<String>,
}

/// Whether the server shall do it or only say what it would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Do it.
    Real,
    /// Run admission and validation, store nothing.
    DryRun,
}

/// The connection to the cluster.
pub struct Cluster {
    client: Client,
    slots: Semaphore,
    until: Mutex<Instant>,
    gate: watch::Sender<Gate>,
    lands_until: Mutex<Option<Instant>>,
    calls: AtomicU64,
}

struct Call<'a> {
    method: Method,
    path: String,
    query: Vec<(&'static str, String)>,
    body: Option<&'a Value>,
    content_type: &'static str,
}

impl<'a> Call<'a> {
    fn new(method: Method, path: String) -> Self {
        Self { method, path, query: Vec::new(), body: None, content_type: "application/json" }
    }

    fn body(mut self, body: &'a Value) -> Self {
        self.body = Some(body);
        self
    }

    fn with(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.query.push((key, value.into()));
        self
    }

    fn writes(&self) -> bool {
        self.method != Method::GET && !self.query.iter().any(|(key, _)| *key == "dryRun")
    }

    fn dry(self, mode: Mode) -> Self {
        if mode == Mode::DryRun { self.with("dryRun", "All") } else { self }
    }

    fn request(&self) -> Result<Request<Body>, http::Error> {
        let query: Vec<String> =
            self.query.iter().map(|(key, value)| format!("{key}={}", percent(value))).collect();
        let uri =
            if query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, query.join("&")) };
        let body = self.body.map(ToString::to_string).unwrap_or_default();
        Request::builder()
            .method(self.method.clone())
            .uri(uri)
            .header(http::header::CONTENT_TYPE, self.content_type)
            .header(http::header::ACCEPT, "application/json")
            .body(Body::from(body.into_bytes()))
    }
}

impl std::fmt::Display for Call<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", self.method, self.path)
    }
}

fn percent(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

impl Cluster {
    /// Wraps a client. `concurrency` bounds the calls in flight, `until` is when retrying ends.
    #[must_use]
    pub fn new(client: Client, concurrency: usize, until: Instant) -> Self {
        Self {
            client,
            slots: Semaphore::new(concurrency.max(1)),
            until: Mutex::new(until),
            gate: watch::Sender::new(Gate::Open),
            lands_until: Mutex::new(None),
            calls: AtomicU64::new(0),
        }
    }

    /// The client, for watches.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Sets the moment at which retrying ends.
    pub fn set_deadline(&self, until: Instant) {
        *lock(&self.until) = until;
    }

    /// The moment at which retrying ends.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        *lock(&self.until)
    }

    /// How many calls were made.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Shuts the gate for good: no further call is started. The first reason stays.
    pub fn halt(&self, why: Halt) {
        self.gate.send_modify(|gate| {
            if !matches!(gate, Gate::Shut(_)) {
                *gate = Gate::Shut(why);
            }
        });
    }

    /// Why the gate is shut, if it is.
    #[must_use]
    pub fn halted(&self) -> Option<Halt> {
        match &*self.gate.borrow() {
            Gate::Shut(why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Resolves when the gate is shut.
    pub async fn wait_halted(&self) -> Halt {
        let mut gate = self.gate.subscribe();
        loop {
            if let Gate::Shut(why) = &*gate.borrow_and_update() {
                return why.clone();
            }
            if gate.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Holds writes back, or lets them go on: for the time in which it is not sure whose the lock is.
    pub fn pause(&self, paused: bool) {
        self.gate.send_if_modified(|gate| {
            let next = if paused { Gate::Paused } else { Gate::Open };
            let change = !matches!(gate, Gate::Shut(_)) && *gate != next;
            if change {
                *gate = next;
            }
            change
        });
    }

    /// Notes that calls whose answers nobody saw may still land: until when?
    pub fn may_land_late(&self) {
        *lock(&self.lands_until) = Some(Instant::now() + SERVER_TIMEOUT);
    }

    /// Until when a call that nobody waits for may still land, if there is one.
    #[must_use]
    pub fn lands_until(&self) -> Option<Instant> {
        *lock(&self.lands_until)
    }

    async fn pass(&self, call: &Call<'_>) -> Result<(), Failure> {
        let mut gate = self.gate.subscribe();
        loop {
            match &*gate.borrow_and_update() {
                Gate::Shut(why) => return Err(Failure::Halted(why.clone())),
                Gate::Open => return Ok(()),
                Gate::Paused if !call.writes() => return Ok(()),
                Gate::Paused => {}
            }
            tokio::select! {
                changed = gate.changed() => if changed.is_err() { return Ok(()) },
                () = tokio::time::sleep_until(self.deadline()) => {
                    return Err(Failure::OutOfTime {
                        call: call.to_string(), tries: 0, last: "the lock could not be renewed".to_owned(),
                    });
                }
            }
        }
    }

    /// One call, with all its retries.
    async fn call(&self, call: Call<'_>) -> Result<Value, Failure> {
        let mut delays = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(5))
            .with_jitter()
            .without_max_times()
            .build();
        let mut forbidden_since: Option<Instant> = None;
        let mut tries = 0;
        loop {
            self.pass(&call).await?;
            tries += 1;
            let (last, wait) = match self.once(&call).await {
                Ok(value) => return Ok(value),
                Err(Missed::Lost(error)) => {
                    if call.writes() {
                        self.may_land_late();
                    }
                    (error, None)
                }
                Err(Missed::Answered(answer)) => match answer.verdict() {
                    Verdict::Permanent => return Err(Failure::Refused { call: call.to_string(), answer }),
                    Verdict::Unauthorized => {
                        let why = Halt::Unauthorized(answer.message);
                        self.halt(why.clone());
                        return Err(Failure::Halted(why));
                    }
                    Verdict::RetryForAWhile => {
                        let since = *forbidden_since.get_or_insert_with(Instant::now);
                        if since.elapsed() >= FORBIDDEN_MAY_PASS {
                            return Err(Failure::Refused { call: call.to_string(), answer });
                        }
                        (answer.to_string(), answer.retry_after)
                    }
                    Verdict::Retry => (answer.to_string(), answer.retry_after),
                },
            };
            let delay = delays.next().unwrap_or(Duration::from_secs(5)).max(wait.unwrap_or_default());
            if Instant::now() + delay >= self.deadline() {
                return Err(Failure::OutOfTime { call: call.to_string(), tries, last });
            }
            // Hiccups pass unseen; what lasts must not look like a hung program.
            let level = if tries % 5 == 0 { log::Level::Warn } else { log::Level::Debug };
            log::log!(level, "{call}: {last}; trying again in {delay:.1?} (try {tries})");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                halt = self.wait_halted() => return Err(Failure::Halted(halt)),
            }
        }
    }

    /// One call, once. Its slot is free again before anybody waits for anything.
    async fn once(&self, call: &Call<'_>) -> Result<Value, Missed> {
        let _slot = self.slots.acquire().await.map_err(|error| Missed::Lost(error.to_string()))?;
        self.send(call).await
    }

    async fn send(&self, call: &Call<'_>) -> Result<Value, Missed> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let lost = |error: &dyn std::error::Error| Missed::Lost(chain_of(error));
        let request = call.request().map_err(|error| lost(&error))?;
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| lost(&error))?;
            let code = response.status().as_u16();
            let retry_after = response
                .headers()
                .get(http::header::RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok())
                .map(Duration::from_secs);
            let body = response.into_body().collect_bytes().await.map_err(|error| lost(&error))?;
            if (200..300).contains(&code) {
                serde_json::from_slice(&body).map_err(|error| lost(&error))
            } else {
                Err(Missed::Answered(Answer::parse(code, retry_after, &body)))
            }
        };
        tokio::time::timeout(ANSWER_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|_| Err(Missed::Lost(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))))
    }

    /// One try that passes by gate, slots and retries: the lock's own calls must get through when others may not.
    pub(crate) async fn unguarded(
        &self,
        method: Method,
        path: String,
        body: Option<&Value>,
    ) -> Result<Value, Missed> {
        let mut call = Call::new(method, path).with("timeout", timeout_text());
        call.body = body;
        self.send(&call).await
    }

    fn writing<'a>(method: Method, path: String, mode: Mode) -> Call<'a> {
        Call::new(method, path).with("fieldManager", FIELD_MANAGER).with("timeout", timeout_text()).dry(mode)
    }

    /// Reads an object; none if this very object does not exist.
    pub async fn get(&self, object: &ObjectRef) -> Result<Option<Value>, Failure> {
        match self.call(Call::new(Method::GET, object.path())).await {
            Ok(value) => Ok(Some(value)),
            Err(failure) if failure.is_not_found(&object.name) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Reads a path that is not an object: discovery.
    pub async fn get_path(&self, path: &str) -> Result<Value, Failure> {
        self.call(Call::new(Method::GET, path.to_owned())).await
    }

    /// Lists all objects of a kind, page by page, and hands each to `each`. An expired list starts again, and
    /// `each` is told so by `None`.
    pub async fn list(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
        mut each: impl FnMut(Option<Value>),
    ) -> Result<(), Failure> {
        let mut token = String::new();
        loop {
            let mut call =
                Call::new(Method::GET, kind.collection_path(namespace)).with("limit", PAGE.to_string());
            if let Some(selector) = selector {
                call = call.with("labelSelector", selector);
            }
            if !token.is_empty() {
                call = call.with("continue", std::mem::take(&mut token));
            }
            let mut page = match self.call(call).await {
                Ok(page) => page,
                Err(failure) if failure.is_expired() => {
                    each(None);
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                for item in items {
                    each(Some(item));
                }
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(more) if !more.is_empty() => more.clone_into(&mut token),
                _ => return Ok(()),
            }
        }
    }

    /// Creates an object.
    pub async fn create(&self, object: &ObjectRef, body: &Value, mode: Mode) -> Result<Value, Failure> {
        let path = object.kind.collection_path(object.namespace.as_deref());
        self.call(Self::writing(Method::POST, path, mode).with("fieldValidation", "Strict").body(body)).await
    }

    /// Posts to a path that stores nothing: an access review.
    pub async fn review(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.call(Call::new(Method::POST, path.to_owned()).body(body)).await
    }

    /// Deletes the object that was just read, and no other.
    pub async fn delete(
        &self,
        object: &ObjectRef,
        precondition: &Precondition,
        propagation: Propagation,
        mode: Mode,
    ) -> Result<Value, Failure> {
        let mut body = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": format!("{propagation:?}"),
            "preconditions": {"uid": precondition.uid},
        });
        if let Some(version) = &precondition.resource_version {
            body["preconditions"]["resourceVersion"] = version.as_str().into();
        }
        if mode == Mode::DryRun {
            // In the body too: where a delete has a body, the server does not look for options in the query.
            body["dryRun"] = json!(["All"]);
        }
        let call = Call::new(Method::DELETE, object.path()).with("timeout", timeout_text()).dry(mode);
        self.call(call.body(&body)).await
    }

    /// Replaces an object; its resource version makes it a compare-and-swap.
    pub async fn replace(&self, object: &ObjectRef, body: &Value) -> Result<Value, Failure> {
        self.call(Self::writing(Method::PUT, object.path(), Mode::Real).body(body)).await
    }

    /// Merges a patch into an object.
    pub async fn merge(&self, object: &ObjectRef, patch: &Value, mode: Mode) -> Result<Value, Failure> {
        self.merge_at(object.path(), patch, mode).await
    }

    /// Merges a patch into an object's scale.
    pub async fn merge_scale(&self, object: &ObjectRef, patch: &Value, mode: Mode) -> Result<Value, Failure> {
        self.merge_at(format!("{}/scale", object.path()), patch, mode).await
    }

    async fn merge_at(&self, at: String, patch: &Value, mode: Mode) -> Result<Value, Failure> {
        let mut call = Self::writing(Method::PATCH, at, mode).body(patch);
        call.content_type = "application/merge-patch+json";
        self.call(call).await
    }

    /// Applies a JSON patch: the only kind that can take one entry out of managedFields.
    pub async fn json_patch(&self, object: &ObjectRef, patch: &Value) -> Result<Value, Failure> {
        let mut call = Self::writing(Method::PATCH, object.path(), Mode::Real).body(patch);
        call.content_type = "application/json-patch+json";
        self.call(call).await
    }
}

fn timeout_text() -> String {
    format!("{}s", SERVER_TIMEOUT.as_secs())
}

/// A call without a good answer.
#[derive(Debug)]
pub(crate) enum Missed {
    /// No answer: the call may have been carried out or not.
    Lost(String),
    /// An error as answer.
    Answered(Answer),
}

/// An error with its causes: the outermost one alone is mostly "service error".
fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

/// A lock whose holder panicked is still the data: this program aborts on panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, body: &str) -> Answer {
        Answer::parse(code, None, body.as_bytes())
    }

    #[test]
    fn each_status_code_has_its_verdict() {
        for code in [408, 429, 500, 502, 503, 504] {
            assert_eq!(answer(code, "").verdict(), Verdict::Retry, "{code}");
        }
        for code in [400, 404, 405, 409, 410, 415, 422] {
            assert_eq!(answer(code, "").verdict(), Verdict::Permanent, "{code}");
        }
        assert_eq!(answer(401, "").verdict(), Verdict::Unauthorized);
        assert_eq!(answer(403, "").verdict(), Verdict::RetryForAWhile);
    }

    #[test]
    fn a_terminating_namespace_is_permanent_although_it_answers_403() {
        let body = r#"{"kind":"Status","details":{"causes":[{"reason":"NamespaceTerminating"}]}}"#;
        assert_eq!(answer(403, body).verdict(), Verdict::Permanent);
    }

    #[test]
    fn a_404_that_does_not_name_the_object_is_not_an_answer_about_it() {
        let refused = |body| Failure::Refused { call: "GET /x".into(), answer: answer(404, body) };
        assert!(
            refused(r#"{"reason":"NotFound","details":{"name":"a","kind":"configmaps"}}"#).is_not_found("a")
        );
        let api_gone = refused("404 page not found");
        assert!(!api_gone.is_not_found("a") && api_gone.is_not_served());
    }

    #[test]
    fn already_exists_is_not_a_conflict() {
        let refused = |body| Failure::Refused { call: "POST /x".into(), answer: answer(409, body) };
        let exists = refused(r#"{"reason":"AlreadyExists"}"#);
        assert!(exists.is_already_exists() && !exists.is_conflict());
        assert!(refused(r#"{"reason":"Conflict"}"#).is_conflict());
    }

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(percent("a=b,c!=d"), "a%3Db%2Cc%21%3Dd");
    }
}
