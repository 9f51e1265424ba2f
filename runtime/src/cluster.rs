//! Every call to the API server goes through here: one place for timeouts, retries, the limit of calls in flight,
//! and the gate that shuts when this run may not write any more.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
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
    sync::{Notify, Semaphore, SemaphorePermit, watch},
    time::Instant,
};

use crate::{
    clock::Clock,
    host::Host,
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

/// How long a create may be answered with a conflict.
const CONFLICT_MAY_PASS: Duration = Duration::from_secs(15);

/// What the admission of quotas says.
const EXCEEDED_QUOTA: &str = "exceeded quota";

/// How many objects are listed at a time. Several lists may be under way, and a page is parsed as a whole, which takes ten
/// times its size: of 500 objects several megabytes.
pub(crate) const PAGE: u32 = 200;

/// How often a list that expired is begun anew. One that can't be read in this many times never can.
const LISTS_BEGUN_ANEW: usize = 5;

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
    /// There was never a lock to lose.
    #[error("the lock could not be had: {0}")]
    NoLock(String),
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
    /// That object is a namespace.
    pub about_namespace: bool,
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
    Quota,
    Unauthorized,
    Permanent,
}

impl Answer {
    fn verdict(&self) -> Verdict {
        match self.code {
            401 => Verdict::Unauthorized,
            403 if self.namespace_terminating => Verdict::Permanent,
            403 if self.message.contains(EXCEEDED_QUOTA) => Verdict::Quota,
            403 => Verdict::RetryForAWhile,
            408 | 429 | 500 | 502 | 503 | 504 => Verdict::Retry,
            _ => Verdict::Permanent,
        }
    }

    /// Whether the server may still be at work on the call: a proxy lost patience or the server, or the server did with
    /// its store.
    fn may_still_land(&self) -> bool {
        matches!(self.code, 408 | 502 | 504) || self.message.contains("timed out")
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
            about_namespace: text("/details/kind") == "namespaces",
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

    /// The resource itself is not served. Only the API server's own words count: a 404 of something in between says
    /// nothing about the cluster.
    #[must_use]
    pub fn is_not_served(&self) -> bool {
        self.answer().is_some_and(|answer| {
            let in_its_words = answer.reason == "NotFound" || answer.message == "404 page not found";
            answer.code == 404 && answer.about.is_empty() && in_its_words
        })
    }

    /// A list took longer than the server keeps old versions.
    fn is_expired(&self) -> bool {
        self.answer().is_some_and(|answer| answer.code == 410)
    }

    /// The namespace is being deleted, or is gone: a create in it is answered with a 404 that names the namespace.
    #[must_use]
    pub fn namespace_is_going(&self) -> bool {
        let Self::Refused { call, answer } = self else { return false };
        let gone = answer.code == 404 && answer.about_namespace && call.starts_with("POST ");
        answer.namespace_terminating || gone
    }

    /// We may not.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.answer().is_some_and(|answer| answer.code == 403)
    }

    /// A quota stands in the way.
    #[must_use]
    pub fn is_quota(&self) -> bool {
        self.answer().is_some_and(|answer| answer.code == 403 && answer.message.contains(EXCEEDED_QUOTA))
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
    /// Finds the configuration: what was named, else KUBECONFIG, else the pod's own, else the person's kubeconfig.
    async fn config(&self, variable: bool, in_a_pod: bool) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match self.way(variable, in_a_pod) {
            Way::File(path) => {
                let file = Kubeconfig::read_from(path)
                    .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
                Config::from_custom_kubeconfig(file, &options)
                    .await
                    .with_context(|| format!("the kubeconfig {} does not describe a cluster", path.display()))
            }
            Way::Pod => Config::incluster().context(
                "in a pod, but without a usable service account token: is automountServiceAccountToken off?",
            ),
            Way::Variable => Config::from_kubeconfig(&options)
                .await
                .context("KUBECONFIG is set, but what it names does not describe a cluster"),
            Way::Default => Config::from_kubeconfig(&options).await.context(
                "no cluster: give --kubeconfig, set KUBECONFIG, or run in a pod with a service account",
            ),
        }
    }

    /// What a person says counts more than where the program happens to run: in a pod too, as in a debug container, a
    /// kubeconfig that somebody set is meant.
    fn way(&self, variable: bool, in_a_pod: bool) -> Way<'_> {
        match &self.kubeconfig {
            Some(path) => Way::File(path),
            None if variable => Way::Variable,
            // A context can only be one of a kubeconfig.
            None if in_a_pod && self.context.is_none() => Way::Pod,
            None => Way::Default,
        }
    }

    /// A client for the cluster. `variable` says whether KUBECONFIG is set.
    pub(crate) async fn client(&self, variable: bool, in_a_pod: bool) -> anyhow::Result<Client> {
        let mut config = self.config(variable, in_a_pod).await?;
        // kube would retry 15 times by itself, for up to 8 minutes: longer than Helm waits. Ours is the only retry.
        config.default_retry = false;
        config.connect_timeout = Some(Duration::from_secs(5));
        Client::try_from(config).context("cannot set up the connection to the cluster")
    }
}

/// Where the configuration comes from.
#[derive(Debug, PartialEq, Eq)]
enum Way<'a> {
    /// The file that a flag names.
    File(&'a Path),
    /// What KUBECONFIG names.
    Variable,
    /// The pod's own account.
    Pod,
    /// `~/.kube/config`.
    Default,
}

/// Whether calls may be made.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// The lock could not be renewed for a while: no writes until it is sure again whose it is.
    Paused,
    Shut(Halt),
}

impl Gate {
    fn lets(&self, call: &Call<'_>) -> bool {
        match self {
            Self::Open => true,
            Self::Paused => !call.writes(),
            Self::Shut(_) => false,
        }
    }
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

/// A call that waits for a slot, however its wait ends.
struct Queued<'a>(&'a Cluster);

impl<'a> Queued<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        cluster.queued.fetch_add(1, Ordering::Relaxed);
        Self(cluster)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Ordering::Relaxed);
        self.0.room.notify_one();
    }
}

/// The connection to the cluster.
pub struct Cluster {
    client: Client,
    host: Arc<dyn Host>,
    slots: Semaphore,
    concurrency: usize,
    /// Calls that wait for a slot.
    queued: AtomicUsize,
    room: Notify,
    clock: Clock,
    until: watch::Sender<Instant>,
    forbidden_may_pass: Duration,
    gate: watch::Sender<Gate>,
    sure_until: Mutex<Option<Duration>>,
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
    /// Wraps a client. `concurrency` bounds the calls in flight, and retrying ends when `patience` does.
    #[must_use]
    pub fn new(client: Client, host: Arc<dyn Host>, concurrency: usize, patience: Duration) -> Self {
        let clock = host.clock();
        Self {
            client,
            host,
            slots: Semaphore::new(concurrency.max(1)),
            concurrency: concurrency.max(1),
            queued: AtomicUsize::new(0),
            room: Notify::new(),
            until: watch::Sender::new(clock.now() + patience),
            forbidden_may_pass: FORBIDDEN_MAY_PASS,
            clock,
            gate: watch::Sender::new(Gate::Open),
            sure_until: Mutex::new(None),
            lands_until: Mutex::new(None),
            calls: AtomicU64::new(0),
        }
    }

    /// Takes 403 for an answer at once: for a person's question, which nobody's RBAC is about to be re-created under.
    #[must_use]
    pub fn impatient(mut self) -> Self {
        self.forbidden_may_pass = Duration::ZERO;
        self
    }

    /// The client, for watches.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// What the run has from outside.
    #[must_use]
    pub fn host(&self) -> &dyn Host {
        &*self.host
    }

    /// The run's clock.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Sets the moment at which retrying ends.
    pub fn set_deadline(&self, until: Instant) {
        self.until.send_replace(until);
    }

    /// The moment at which retrying ends.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        *self.until.borrow()
    }

    /// The moment at which retrying ends, as it changes.
    pub(crate) fn deadlines(&self) -> watch::Receiver<Instant> {
        self.until.subscribe()
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

    /// Says until when it is sure whose the lock is, as time since boot: others count while this machine sleeps. None
    /// where there is no lock.
    pub fn sure_until(&self, until: Option<Duration>) {
        *lock(&self.sure_until) = until;
    }

    /// Holds writes back as soon as it is not sure any more whose the lock is. A process that was stopped for a while
    /// (a debugger, a frozen cgroup, a machine asleep) would else write before it has found out that another one has the
    /// lock by now.
    fn pause_if_unsure(&self, call: &Call<'_>) {
        let until = *lock(&self.sure_until);
        if call.writes() && until.is_some_and(|until| self.clock.since_boot() >= until) {
            self.pause(true);
        }
    }

    /// Notes that calls whose answers nobody saw may still land: until when?
    pub fn may_land_late(&self) {
        *lock(&self.lands_until) = Some(self.clock.now() + self.clock.patience(SERVER_TIMEOUT));
    }

    /// Until when a call that nobody waits for may still land, if there is one.
    #[must_use]
    pub fn lands_until(&self) -> Option<Instant> {
        *lock(&self.lands_until)
    }

    /// Waits until few calls are waiting to be sent. A plan of thousands of chains begins them all at once: whoever
    /// has passed here reads and builds what it sends, and thousands of parsed objects need more memory than a step has.
    ///
    /// Nothing is held: what is stuck, in a wait or between two tries, keeps nobody else out.
    pub(crate) async fn room(&self) {
        loop {
            let woken = self.room.notified();
            if self.queued.load(Ordering::Relaxed) < self.concurrency {
                // Whoever is let in may have nothing to send: the next one looks too.
                self.room.notify_one();
                return;
            }
            woken.await;
        }
    }

    /// A slot for a call, once it may be sent. Whoever queued for a slot may find the gate shut when his turn comes, so
    /// the gate is asked again then.
    async fn admit(&self, call: &Call<'_>) -> Result<SemaphorePermit<'_>, Failure> {
        let _queued = Queued::new(self);
        loop {
            self.pass(call).await?;
            // Nobody closes the slots, so there is always one to come.
            let Ok(slot) = self.slots.acquire().await else { continue };
            self.pause_if_unsure(call);
            if self.gate.borrow().lets(call) {
                return Ok(slot);
            }
        }
    }

    /// Waits until the gate is open.
    async fn pass(&self, call: &Call<'_>) -> Result<(), Failure> {
        self.pause_if_unsure(call);
        let mut gate = self.gate.subscribe();
        loop {
            match &*gate.borrow_and_update() {
                Gate::Shut(why) => return Err(Failure::Halted(why.clone())),
                gate if gate.lets(call) => return Ok(()),
                _ => {}
            }
            tokio::select! {
                biased;
                changed = gate.changed() => if changed.is_err() { return Ok(()) },
                () = self.clock.sleep_until(self.deadline()) => {
                    return Err(Failure::OutOfTime {
                        call: call.to_string(), tries: 0, last: "the lock could not be renewed".to_owned(),
                    });
                }
            }
        }
    }

    /// One call, with all its retries.
    async fn call(&self, call: Call<'_>) -> Result<Value, Failure> {
        let longest = self.clock.patience(Duration::from_secs(5));
        let mut delays = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(100).min(longest))
            .with_max_delay(longest)
            .with_jitter()
            .without_max_times();
        if let Some(seed) = self.host.seed() {
            delays = delays.with_jitter_seed(seed);
        }
        let mut delays = delays.build();
        let mut refused_since: Option<Instant> = None;
        let mut tries = 0;
        loop {
            let slot = self.admit(&call).await?;
            tries += 1;
            // In a box: of thousands of calls that wait for a slot or for their next try none needs the room for this.
            let answer = Box::pin(self.send(&call)).await;
            // The slot is free again before anybody waits for anything.
            drop(slot);
            let (last, wait) = match answer {
                Ok(value) => return Ok(value),
                Err(Missed::Lost(error)) => {
                    if call.writes() {
                        self.may_land_late();
                    }
                    (error, None)
                }
                Err(Missed::Answered(answer)) => match answer.verdict() {
                    // Nothing that we read is compared with a create: what changed meanwhile is a ResourceQuota.
                    Verdict::Permanent
                        if call.method == Method::POST
                            && answer.code == 409
                            && answer.reason != "AlreadyExists"
                            && self.is_within(CONFLICT_MAY_PASS, &mut refused_since) =>
                    {
                        (answer.to_string(), answer.retry_after)
                    }
                    // What is still there counts, and will when it is tried again; what was just deleted soon does not.
                    Verdict::Quota if !call.writes() => {
                        return Err(Failure::Refused { call: call.to_string(), answer });
                    }
                    Verdict::Permanent => return Err(Failure::Refused { call: call.to_string(), answer }),
                    Verdict::Unauthorized => {
                        let why = Halt::Unauthorized(answer.message);
                        self.halt(why.clone());
                        return Err(Failure::Halted(why));
                    }
                    Verdict::RetryForAWhile | Verdict::Quota => {
                        if !self.is_within(self.forbidden_may_pass, &mut refused_since) {
                            return Err(Failure::Refused { call: call.to_string(), answer });
                        }
                        (answer.to_string(), answer.retry_after)
                    }
                    Verdict::Retry => {
                        // Somebody on the way gave up waiting for the answer: the call itself may still be at work.
                        if call.writes() && answer.may_still_land() {
                            self.may_land_late();
                        }
                        (answer.to_string(), answer.retry_after)
                    }
                },
            };
            let delay = delays.next().unwrap_or(longest).max(wait.unwrap_or_default());
            if self.clock.now() + delay >= self.deadline() {
                return Err(Failure::OutOfTime { call: call.to_string(), tries, last });
            }
            // Hiccups pass unseen; what lasts must not look like a hung program.
            let level = if tries % 5 == 0 { log::Level::Warn } else { log::Level::Debug };
            log::log!(level, "{call}: {last}; trying again in {delay:.1?} (try {tries})");
            tokio::select! {
                biased;
                halt = self.wait_halted() => return Err(Failure::Halted(halt)),
                () = self.clock.sleep(delay) => {}
            }
        }
    }

    /// Whether what is refused since the first such answer may still pass.
    fn is_within(&self, patience: Duration, since: &mut Option<Instant>) -> bool {
        let since = *since.get_or_insert_with(|| self.clock.now());
        self.clock.since(since) < self.clock.patience(patience)
    }

    async fn send(&self, call: &Call<'_>) -> Result<Value, Missed> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let lost = |error: &dyn std::error::Error| Missed::Lost(chain_of(error));
        let request = call.request().map_err(|error| lost(&error))?;
        let exchange = async {
            let response = self.client.send(request).await.map_err(|error| lost(&error))?;
            #[cfg(debug_assertions)]
            if self.clock.obey(response.headers()) {
                self.set_deadline(self.clock.now());
            }
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
        self.clock
            .within(ANSWER_TIMEOUT, exchange)
            .await
            .unwrap_or_else(|| Err(Missed::Lost(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs()))))
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

    /// The version of the cluster, as its API server gives it. It is only for people to know: one try, a few seconds, and
    /// nothing where it is not told.
    pub async fn server_version(&self) -> Option<String> {
        let asked = self.unguarded(Method::GET, "/version".to_owned(), None);
        match self.clock.within(Duration::from_secs(5), asked).await {
            Some(Ok(version)) => version.get("gitVersion").and_then(Value::as_str).map(str::to_owned),
            Some(Err(missed)) => {
                log::debug!("the cluster's version is not known: {missed:?}");
                None
            }
            None => None,
        }
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
        let mut begun_anew = 0;
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
                Err(failure) if failure.is_expired() && begun_anew < LISTS_BEGUN_ANEW => {
                    begun_anew += 1;
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
        let body = delete_options(precondition, propagation, mode);
        let call = Call::new(Method::DELETE, object.path()).with("timeout", timeout_text()).dry(mode);
        self.call(call.body(&body)).await
    }

    /// Replaces an object; its resource version makes it a compare-and-swap.
    pub async fn replace(&self, object: &ObjectRef, body: &Value) -> Result<Value, Failure> {
        self.call(Self::writing(Method::PUT, object.path(), Mode::Real).body(body)).await
    }

    /// Whether it can be told if an object is there, asked without the patience for a 403. No answer at all is asked for
    /// again like any other call.
    pub(crate) async fn can_tell_of(&self, object: &ObjectRef) -> Result<bool, Failure> {
        match self.unguarded(Method::GET, object.path(), None).await {
            Ok(_) => Ok(true),
            Err(Missed::Answered(answer)) if answer.verdict() != Verdict::Retry => {
                Ok(answer.code == 404 && answer.about == object.name)
            }
            Err(_) => self.get(object).await.map(|_| true),
        }
    }

    /// Replaces an object with one try that passes by gate, slots and retries.
    pub(crate) async fn replace_now(&self, object: &ObjectRef, body: &Value) -> Result<(), Failure> {
        match self.unguarded(Method::PUT, object.path(), Some(body)).await {
            Ok(_) => Ok(()),
            Err(Missed::Answered(answer)) => {
                Err(Failure::Refused { call: format!("PUT {}", object.path()), answer })
            }
            Err(Missed::Lost(last)) => {
                Err(Failure::OutOfTime { call: format!("PUT {}", object.path()), tries: 1, last })
            }
        }
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

/// What a delete says besides the name: which object it means, and what becomes of those that belong to it.
fn delete_options(precondition: &Precondition, propagation: Propagation, mode: Mode) -> Value {
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
    body
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
    use std::sync::Arc;

    use super::*;
    use crate::fake::Fake;

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
    fn a_namespace_that_is_gone_is_told_from_one_that_is_asked_for() {
        let gone = r#"{"reason":"NotFound","details":{"name":"ns","kind":"namespaces"}}"#;
        let refused = |call: &str| Failure::Refused { call: call.into(), answer: answer(404, gone) };
        assert!(refused("POST /api/v1/namespaces/ns/configmaps").namespace_is_going());
        assert!(!refused("GET /api/v1/namespaces/ns").namespace_is_going());
    }

    #[test]
    fn a_delete_means_the_object_that_was_read_and_no_other() {
        let read = |version: Option<&str>| Precondition {
            uid: "7f".to_owned(),
            resource_version: version.map(str::to_owned),
        };
        let sent = |version, mode| delete_options(&read(version), Propagation::Foreground, mode);
        let mut options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground",
            "preconditions": {"uid": "7f", "resourceVersion": "12"},
        });
        assert_eq!(sent(Some("12"), Mode::Real), options);
        options["preconditions"] = json!({"uid": "7f"});
        assert_eq!(sent(None, Mode::Real), options);
        options["dryRun"] = json!(["All"]);
        assert_eq!(sent(None, Mode::DryRun), options);
    }

    #[tokio::test]
    async fn a_create_that_conflicts_with_a_quota_is_tried_again() {
        let tries = std::sync::atomic::AtomicU32::new(0);
        let fake = Fake::new(move |_, _| match tries.fetch_add(1, Ordering::Relaxed) {
            0 => {
                (409, json!({"kind": "Status", "reason": "Conflict", "details": {"kind": "resourcequotas"}}))
            }
            _ => (201, json!({})),
        });
        let object = crate::kinds::CONFIG_MAP.object("ns", "a");
        assert!(fake.cluster(1).create(&object, &object.manifest(), Mode::Real).await.is_ok());
        let fake = Fake::new(|_, _| (409, json!({"kind": "Status", "reason": "AlreadyExists"})));
        let exists = fake.cluster(1).create(&object, &object.manifest(), Mode::Real).await;
        assert!(exists.is_err_and(|failure| failure.is_already_exists()) && fake.seen().len() == 1);
    }

    #[tokio::test]
    async fn a_quota_is_an_answer_at_once_to_a_dry_run_only() {
        let fake = Fake::new(|_, _| (403, json!({"kind": "Status", "message": "exceeded quota: tight"})));
        let object = crate::kinds::CONFIG_MAP.object("ns", "a");
        let tried = fake.cluster(1).create(&object, &object.manifest(), Mode::DryRun).await;
        assert!(tried.is_err_and(|failure| failure.is_quota()) && fake.seen().len() == 1);
    }

    #[test]
    fn a_404_that_does_not_name_the_object_is_not_an_answer_about_it() {
        let refused = |body| Failure::Refused { call: "GET /x".into(), answer: answer(404, body) };
        assert!(
            refused(r#"{"reason":"NotFound","details":{"name":"a","kind":"configmaps"}}"#).is_not_found("a")
        );
        let api_gone = refused("404 page not found\n");
        assert!(!api_gone.is_not_found("a") && api_gone.is_not_served());
        let in_between = refused("<html>404 no such site</html>");
        assert!(!in_between.is_not_found("a") && !in_between.is_not_served());
    }

    #[test]
    fn already_exists_is_not_a_conflict() {
        let refused = |body| Failure::Refused { call: "POST /x".into(), answer: answer(409, body) };
        let exists = refused(r#"{"reason":"AlreadyExists"}"#);
        assert!(exists.is_already_exists() && !exists.is_conflict());
        assert!(refused(r#"{"reason":"Conflict"}"#).is_conflict());
    }

    #[test]
    fn a_kubeconfig_that_somebody_set_counts_more_than_the_pods_own_account() {
        let access = |file: Option<&str>, context: Option<&str>| Access {
            kubeconfig: file.map(PathBuf::from),
            context: context.map(str::to_owned),
        };
        assert_eq!(access(Some("a"), None).way(true, true), Way::File(Path::new("a")));
        assert_eq!(access(None, None).way(true, true), Way::Variable);
        assert_eq!(access(None, None).way(false, true), Way::Pod);
        assert_eq!(access(None, Some("c")).way(false, true), Way::Default);
        assert_eq!(access(None, None).way(false, false), Way::Default);
    }

    fn calls_in(fake: &Fake) -> Vec<String> {
        fake.seen().into_iter().map(|(method, path)| format!("{method} {path}")).collect()
    }

    /// One slot, taken by a call that the server does not answer, and a write that queues for it.
    async fn with_a_write_in_the_queue(fake: &Fake, then: impl FnOnce(&Cluster)) -> Result<Value, Failure> {
        let cluster = Arc::new(fake.cluster(1));
        let slow = tokio::spawn({
            let cluster = cluster.clone();
            async move { cluster.get_path("/slow").await }
        });
        fake.until_seen(1).await;
        let object = crate::kinds::CONFIG_MAP.object("ns", "a");
        let body = object.manifest();
        let queued = cluster.create(&object, &body, Mode::Real);
        tokio::pin!(queued);
        // It takes its place in the queue.
        assert!(futures::poll!(&mut queued).is_pending());
        then(&cluster);
        fake.go_on();
        let ended = queued.await;
        let _ = slow.await;
        ended
    }

    #[tokio::test]
    async fn a_call_that_queued_for_a_slot_is_not_sent_after_the_gate_was_shut() {
        for why in [Halt::Terminated, Halt::LockLost("taken".into())] {
            let fake = Fake::new(|_, _| (200, json!({})));
            let ended = with_a_write_in_the_queue(&fake, |cluster| cluster.halt(why.clone())).await;
            assert!(matches!(ended, Err(Failure::Halted(halted)) if halted == why));
            assert_eq!(calls_in(&fake), ["GET /slow"]);
        }
    }

    #[tokio::test]
    async fn a_write_that_queued_for_a_slot_waits_while_it_is_not_sure_whose_the_lock_is() {
        let fake = Fake::new(|_, _| (200, json!({})));
        let paused = |cluster: &Cluster| {
            cluster.set_deadline(Instant::now() + Duration::from_millis(200));
            cluster.pause(true);
        };
        let ended = with_a_write_in_the_queue(&fake, paused).await;
        assert!(matches!(ended, Err(Failure::OutOfTime { tries: 0, .. })), "{ended:?}");
        assert_eq!(calls_in(&fake), ["GET /slow"]);
    }

    #[tokio::test]
    async fn when_it_is_not_sure_any_more_whose_the_lock_is_reads_pass_and_writes_wait() {
        let fake = Fake::new(|_, _| (200, json!({})));
        let cluster = fake.cluster(4);
        cluster.set_deadline(Instant::now() + Duration::from_millis(100));
        cluster.sure_until(Some(cluster.clock().since_boot()));
        let object = crate::kinds::CONFIG_MAP.object("ns", "a");
        let held = cluster.create(&object, &object.manifest(), Mode::Real).await;
        assert!(matches!(held, Err(Failure::OutOfTime { tries: 0, .. })), "{held:?}");
        assert!(cluster.get_path("/apis").await.is_ok());
        assert_eq!(calls_in(&fake), ["GET /apis"]);
        cluster.set_deadline(Instant::now() + Duration::from_secs(5));
        cluster.sure_until(Some(cluster.clock().since_boot() + Duration::from_secs(5)));
        cluster.pause(false);
        assert!(cluster.create(&object, &object.manifest(), Mode::Real).await.is_ok());
    }

    #[tokio::test]
    async fn a_list_that_expires_again_and_again_is_given_up() {
        let fake = Fake::new(|_, _| (410, json!({"kind": "Status", "reason": "Expired"})));
        let mut begun_anew = 0;
        let listed = fake.cluster(1).list(&crate::kinds::CONFIG_MAP, None, None, |_| begun_anew += 1).await;
        assert!(matches!(listed, Err(Failure::Refused { .. })), "{listed:?}");
        assert_eq!(begun_anew, LISTS_BEGUN_ANEW);
    }

    #[tokio::test]
    async fn the_clusters_version_is_told_and_its_absence_costs_nothing() {
        let fake = Fake::new(|_, path| match path {
            "/version" => (200, json!({"gitVersion": "v1.35.0"})),
            _ => (404, json!({})),
        });
        assert_eq!(fake.cluster(1).server_version().await.as_deref(), Some("v1.35.0"));
        for (code, body) in [(403, json!({})), (500, json!({})), (200, json!([]))] {
            let fake = Fake::new(move |_, _| (code, body.clone()));
            assert_eq!(fake.cluster(1).server_version().await, None);
            assert_eq!(fake.seen().len(), 1, "it is asked once");
        }
    }

    #[test]
    fn query_values_are_escaped() {
        assert_eq!(percent("a=b,c!=d"), "a%3Db%2Cc%21%3Dd");
    }
}
