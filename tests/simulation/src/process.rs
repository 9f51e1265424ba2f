//! A process of the simulated world: its node, its clock, its life.
//!
//! Everything that a process does is polled through [`Process::scoped`]: a process that is dead is never polled again, one
//! that sleeps is not polled until it wakes, and what is logged meanwhile is its own.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use anyhow::Context as _;
use belay_runtime::{
    Clock, Host,
    clock::Time,
    cluster::Access,
    host::{self, Life, Place},
};
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

/// A machine of the simulated world.
#[derive(Debug)]
pub struct Node {
    /// What tells it from other machines, and this boot from others.
    pub name: String,
    /// When the world began, by tokio's clock.
    began: Instant,
    /// What its clock showed then.
    epoch: Timestamp,
    /// By how much its time of day is off, in milliseconds.
    skew: Mutex<i64>,
}

impl Node {
    /// A machine whose clock is right.
    #[must_use]
    pub fn new(name: &str, began: Instant, epoch: Timestamp) -> Self {
        Self { name: name.to_owned(), began, epoch, skew: Mutex::new(0) }
    }

    /// Its clock jumps to this much before or after the right time.
    pub fn set_skew(&self, milliseconds: i64) {
        *lock(&self.skew) = milliseconds;
    }
}

/// How a process is.
#[derive(Debug, Default)]
struct State {
    ended: bool,
    asleep: bool,
    slept: Duration,
    /// What wants to be polled once it is awake.
    wakers: Vec<Waker>,
    tasks: Vec<AbortHandle>,
    log: String,
    last_words: Option<String>,
}

/// A process of the simulated world.
pub struct Process {
    pid: u32,
    node: Arc<Node>,
    state: Arc<Mutex<State>>,
    variables: BTreeMap<String, String>,
    client: OnceLock<Client>,
    stop: Arc<Notify>,
    seed: u64,
    /// The states of all processes, by pid: who is on the same node sees whether they run.
    others: Table,
}

/// All processes of a world.
#[derive(Clone, Default)]
pub struct Processes(Table);

/// Processes by pid, with their nodes.
type Table = Arc<Mutex<BTreeMap<u32, (Arc<Node>, Arc<Mutex<State>>)>>>;

impl Processes {
    /// Starts a process on a node.
    #[must_use]
    pub fn start(&self, node: &Arc<Node>, variables: BTreeMap<String, String>, seed: u64) -> Arc<Process> {
        let state = Arc::new(Mutex::new(State::default()));
        let mut all = lock(&self.0);
        let pid = 100 + u32::try_from(all.len()).unwrap_or_default();
        all.insert(pid, (node.clone(), state.clone()));
        let (node, others) = (node.clone(), self.0.clone());
        Arc::new(Process {
            pid,
            node,
            state,
            variables,
            client: OnceLock::new(),
            stop: Arc::default(),
            seed,
            others,
        })
    }
}

impl Processes {
    /// What the world calls them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        lock(&self.0).keys().map(|pid| name(*pid)).collect()
    }

    /// Whether the one of this name has not ended.
    #[must_use]
    pub fn is_alive(&self, who: &str) -> bool {
        lock(&self.0).iter().any(|(pid, (_, state))| name(*pid) == who && !lock(state).ended)
    }

    /// Whether one of them sleeps.
    #[must_use]
    pub fn any_asleep(&self) -> bool {
        lock(&self.0).values().any(|(_, state)| lock(state).asleep)
    }
}

impl Process {
    /// SIGKILL: nothing of it is polled any more.
    pub fn kill(&self) {
        let tasks = {
            let mut state = lock(&self.state);
            state.ended = true;
            std::mem::take(&mut state.tasks)
        };
        tasks.iter().for_each(AbortHandle::abort);
    }

    /// SIGTERM.
    pub fn terminate(&self) {
        self.stop.notify_one();
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What the world calls it.
    #[must_use]
    pub fn who(&self) -> String {
        name(self.pid)
    }

    /// Says how it talks to the cluster.
    pub fn connect_by(&self, client: Client) {
        // Said once.
        let _ = self.client.set(client);
    }

    /// The clock of its machine jumps to this much before or after the right time, in milliseconds.
    pub fn set_clock(&self, milliseconds: i64) {
        self.node.set_skew(milliseconds);
    }

    /// Its machine sleeps for a while: nothing of it is polled, its monotonic clock stands, and the world goes on.
    pub fn fall_asleep(&self, time: Duration) {
        let state = self.state.clone();
        lock(&state).asleep = true;
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            let wakers = {
                let mut state = lock(&state);
                state.asleep = false;
                state.slept += time;
                std::mem::take(&mut state.wakers)
            };
            wakers.into_iter().for_each(Waker::wake);
        });
    }

    /// What it has logged.
    #[must_use]
    pub fn log(&self) -> String {
        lock(&self.state).log.clone()
    }

    /// Its termination message.
    #[must_use]
    pub fn last_words(&self) -> Option<String> {
        lock(&self.state).last_words.clone()
    }

    /// A future that belongs to this process. None comes of it once the process is dead.
    pub fn scoped<F: Future>(&self, future: F) -> Scoped<F> {
        Scoped { state: self.state.clone(), future: Box::pin(future) }
    }
}

/// A future that belongs to a process.
pub struct Scoped<F> {
    state: Arc<Mutex<State>>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.get_mut();
        {
            let mut state = lock(&this.state);
            if state.ended {
                return Poll::Pending;
            }
            if state.asleep {
                state.wakers.push(context.waker().clone());
                return Poll::Pending;
            }
        }
        let before = CURRENT.replace(Some(this.state.clone()));
        let polled = this.future.as_mut().poll(context);
        CURRENT.set(before);
        polled
    }
}

thread_local! {
    /// Whose future is being polled.
    static CURRENT: RefCell<Option<Arc<Mutex<State>>>> = const { RefCell::new(None) };
    /// What panicked on this thread, and nobody has asked for yet.
    static PANICS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// What panicked on this thread since this was last asked. Tasks are caught, and nobody waits for most of them.
#[must_use]
pub fn take_panics() -> Vec<String> {
    PANICS.take()
}

/// Gives each process the log lines that it writes.
struct Logs;

impl log::Log for Logs {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        use std::fmt::Write as _;
        if !self.enabled(record.metadata()) {
            return;
        }
        CURRENT.with_borrow(|current| {
            if let Some(state) = current {
                // Writing to a String cannot fail.
                let _ = writeln!(lock(state).log, "{:<5} {}", record.level(), record.args());
            }
        });
    }

    fn flush(&self) {}
}

/// From now on what a simulated process logs is kept for it, and so is what panics.
pub fn keep_logs() {
    if log::set_logger(&Logs).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            PANICS.with_borrow_mut(|panics| panics.push(panic.to_string()));
            usual(panic);
        }));
    }
}

/// The times that a process sees.
#[derive(Debug)]
struct Times {
    node: Arc<Node>,
    state: Arc<Mutex<State>>,
}

impl Time for Times {
    fn since_boot(&self) -> Duration {
        // No machine was started just now.
        Duration::from_secs(1000) + self.node.began.elapsed()
    }

    fn wall(&self) -> Timestamp {
        let skew = jiff::SignedDuration::from_millis(*lock(&self.node.skew));
        self.node.epoch + self.node.began.elapsed() + skew
    }

    fn slept(&self) -> Duration {
        lock(&self.state).slept
    }
}

impl Host for Process {
    fn clock(&self) -> Clock {
        Clock::new(Arc::new(Times { node: self.node.clone(), state: self.state.clone() }))
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.variables.get(name).filter(|value| !value.is_empty()).cloned()
    }

    fn name(&self) -> String {
        self.node.name.clone()
    }

    fn process(&self) -> host::Process {
        let place = Place { boot: self.node.name.clone(), pids: "1".to_owned() };
        host::Process { pid: self.pid, started: "1".to_owned(), place: Some(place) }
    }

    fn life(&self, process: &host::Process) -> Life {
        match lock(&self.others).get(&process.pid) {
            Some((node, _)) if node.name != self.node.name => Life::Unknown,
            Some((_, state)) if !lock(state).ended => Life::Alive,
            _ => Life::Dead,
        }
    }

    fn connect<'a>(&'a self, _: &'a Access) -> BoxFuture<'a, anyhow::Result<Client>> {
        let client = self.client.get().cloned().context("this process has no way to the cluster");
        Box::pin(std::future::ready(client))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> AbortHandle {
        let task = tokio::spawn(self.scoped(task)).abort_handle();
        lock(&self.state).tasks.push(task.clone());
        task
    }

    fn asked_to_stop(&self) -> std::io::Result<BoxFuture<'static, ()>> {
        let stop = self.stop.clone();
        Ok(Box::pin(async move { stop.notified().await }))
    }

    fn seed(&self) -> Option<u64> {
        Some(self.seed)
    }

    fn leave(&self, verdict: &str) -> std::io::Result<()> {
        lock(&self.state).last_words = Some(verdict.to_owned());
        Ok(())
    }
}

fn name(pid: u32) -> String {
    format!("pid {pid}")
}

impl fmt::Debug for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "process {} on {}", self.pid, self.node.name)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
