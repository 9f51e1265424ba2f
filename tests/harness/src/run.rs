//! One run of a step as a child process behind a proxy.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fmt,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use futures::future::BoxFuture;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::{process::Child, sync::mpsc, task::JoinHandle};

use crate::{
    call::Call,
    fault::Fault,
    gateway::{Held, KillSwitch, Landed, Order, Upstream},
    proxy::Proxy,
};

/// How a step is started.
#[derive(Clone, Debug)]
pub struct StepCommand {
    /// The executable: a path, or the name of one of the workspace's.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// What its environment has besides `PATH`, `HOME` and the kubeconfig. Nothing else is inherited, so that a
    /// `BELAY_…` of the person who tests has no part in it.
    pub env: BTreeMap<String, String>,
    /// It is killed when it takes longer.
    pub bound: Duration,
}

impl StepCommand {
    /// A step with its calls one after the other, so that two runs make the same calls in nearly the same order.
    pub fn new(program: impl Into<PathBuf>, args: &[&str]) -> Self {
        Self {
            program: program.into(),
            args: args.iter().map(|&arg| arg.to_owned()).collect(),
            env: BTreeMap::from([("BELAY_CONCURRENCY".to_owned(), "1".to_owned())]),
            bound: Duration::from_secs(60),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<S: Into<String>>(mut self, args: impl IntoIterator<Item = S>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    /// Sets how long it may take.
    #[must_use]
    pub fn bound(mut self, bound: Duration) -> Self {
        self.bound = bound;
        self
    }

    /// Starts it behind a proxy of its own.
    pub async fn start(&self, upstream: &Upstream, faults: Vec<Fault>) -> Result<Running> {
        let (switch, kills) = KillSwitch::new();
        let proxy = Proxy::start(upstream, faults, Some(switch)).await?;
        let folder = tempfile::tempdir().context("cannot make a folder for the run")?;
        let kubeconfig = folder.path().join("kubeconfig");
        tokio::fs::write(&kubeconfig, proxy.kubeconfig()).await?;
        let log = |name: &str| std::fs::File::create(folder.path().join(name)).map(Stdio::from);
        let is_name = self.program.components().count() == 1;
        let program = if is_name { executable(&self.program)? } else { self.program.clone() };
        let mut command = tokio::process::Command::new(program);
        command
            .args(&self.args)
            .env_clear()
            .envs(["PATH", "HOME"].into_iter().filter_map(|name| Some((name, std::env::var_os(name)?))))
            .env("KUBECONFIG", &kubeconfig)
            .env("BELAY_KUBECONFIG", &kubeconfig)
            .envs(&self.env)
            .stdin(Stdio::null())
            .stdout(log("stdout")?)
            .stderr(log("stderr")?)
            .kill_on_drop(true);
        let started = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        let pid = child.id().context("the step ended before it began")?;
        let (signals, asked) = mpsc::unbounded_channel();
        let minding = tokio::spawn(mind(child, pid, kills, asked, started + self.bound));
        Ok(Running { proxy, folder, signals, started, minding })
    }

    /// Runs it to its end.
    pub async fn run(&self, upstream: &Upstream, faults: Vec<Fault>) -> Result<Outcome> {
        self.start(upstream, faults).await?.wait().await
    }
}

/// What runs a step against an API server, as a process of its own or in this one.
pub trait Runner: Send + Sync {
    /// Runs it to its end.
    fn run<'a>(&'a self, command: &'a StepCommand, faults: Vec<Fault>) -> BoxFuture<'a, Result<Outcome>>;
}

impl Runner for Upstream {
    fn run<'a>(&'a self, command: &'a StepCommand, faults: Vec<Fault>) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(command.run(self, faults))
    }
}

/// Where an executable of the workspace is: next to the test that asks, or where `BELAY_TEST_BIN` says.
pub fn executable(name: impl AsRef<Path>) -> Result<PathBuf> {
    let folder = if let Some(folder) = std::env::var_os("BELAY_TEST_BIN") {
        PathBuf::from(folder)
    } else {
        let test = std::env::current_exe()?;
        // target/PROFILE/deps/test-HASH, or target/PROFILE/program
        let folder = test.parent().ok_or_else(|| anyhow!("no folder"))?;
        if folder.ends_with("deps") {
            folder.parent().unwrap_or(folder).to_owned()
        } else {
            folder.to_owned()
        }
    };
    let path = folder.join(name);
    if !path.is_file() {
        bail!("{} does not exist: build it first, or set BELAY_TEST_BIN", path.display());
    }
    Ok(path)
}

/// A run that is under way.
pub struct Running {
    /// Its proxy.
    pub proxy: Proxy,
    folder: TempDir,
    signals: mpsc::UnboundedSender<Signal>,
    started: Instant,
    minding: JoinHandle<Result<End>>,
}

/// How the process ended.
struct End {
    status: ExitStatus,
    timed_out: bool,
    max_rss_kib: u64,
}

impl Running {
    /// Sends the step a signal, for instance `Signal::TERM`. An error if it has ended.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.signals.send(signal).context("the step has ended")
    }

    /// Waits until the process has ended, and leaves the rest to [`wait`](Self::wait).
    pub async fn ended(&self) {
        self.signals.closed().await;
    }

    /// What it has written to stderr so far.
    #[must_use]
    pub fn stderr(&self) -> String {
        read(self.folder.path(), "stderr")
    }

    /// Waits for its end.
    pub async fn wait(self) -> Result<Outcome> {
        let end = self.minding.await.context("the task that minds the step")??;
        let duration = self.started.elapsed();
        let record = self.proxy.stop().await;
        let exit = match (end.timed_out, end.status.code()) {
            (true, _) => Exit::TimedOut,
            (false, Some(code)) => Exit::Code(code),
            (false, None) => Exit::Signal(end.status.signal().unwrap_or_default()),
        };
        Ok(Outcome {
            exit,
            stdout: read(self.folder.path(), "stdout"),
            stderr: read(self.folder.path(), "stderr"),
            calls: record.calls,
            struck: record.struck,
            held: record.held,
            landed: record.landed,
            duration,
            max_rss_kib: end.max_rss_kib,
        })
    }
}

fn read(folder: &Path, name: &str) -> String {
    let bytes = std::fs::read(folder.join(OsString::from(name))).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Waits for the process, kills it when asked or when its time is up, and watches its memory.
///
/// Memory is read from /proc and not from rusage: there the peak of a child begins with that of its parent.
async fn mind(
    mut child: Child,
    pid: u32,
    mut orders: mpsc::Receiver<Order>,
    mut signals: mpsc::UnboundedReceiver<Signal>,
    end: Instant,
) -> Result<End> {
    let mut max_rss_kib = 0;
    let mut timed_out = false;
    let mut tick = tokio::time::interval(Duration::from_millis(25));
    let mut waiting = Vec::new();
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            Some(order) = orders.recv() => match order {
                Order::Kill(dead) => {
                    child.start_kill()?;
                    waiting.push(dead);
                }
                Order::Terminate(told) => {
                    signal(&child, Signal::TERM)?;
                    let _ = told.send(());
                }
            },
            Some(wanted) = signals.recv() => signal(&child, wanted)?,
            _ = tick.tick() => {
                max_rss_kib = peak_memory(pid).unwrap_or_default().max(max_rss_kib);
                if !timed_out && Instant::now() > end {
                    timed_out = true;
                    child.start_kill()?;
                }
            }
        }
    };
    for dead in waiting {
        // Whoever asked may have gone; the step is dead all the same.
        let _ = dead.send(());
    }
    Ok(End { status, timed_out, max_rss_kib })
}

/// Sends a signal to a process that is not reaped yet, so that its pid is still its own.
fn signal(child: &Child, signal: Signal) -> Result<()> {
    if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw) {
        kill_process(pid, signal)?;
    }
    Ok(())
}

/// Peak resident memory of a process in KiB, none once it is gone.
#[must_use]
pub fn peak_memory(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It took longer than allowed.
    TimedOut,
}

impl fmt::Display for Exit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(out, "exit {code}"),
            Self::Signal(signal) => write!(out, "signal {signal}"),
            Self::TimedOut => out.write_str("not ended in time"),
        }
    }
}

/// What a run has done.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub exit: Exit,
    /// What it wrote.
    pub stdout: String,
    /// What it logged.
    pub stderr: String,
    /// What it asked the API server for.
    pub calls: Vec<Call>,
    /// The calls at which a fault struck first.
    pub struck: Vec<Call>,
    /// A call that was held back.
    pub held: Option<Held>,
    /// Calls of an earlier run that landed in this one.
    pub landed: Vec<Landed>,
    /// How long it took.
    pub duration: Duration,
    /// Peak resident memory.
    pub max_rss_kib: u64,
}

impl Outcome {
    /// The last lines of its log.
    #[must_use]
    pub fn tail(&self, lines: usize) -> String {
        let all: Vec<&str> = self.stderr.lines().chain(self.stdout.lines()).collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// An error with the log if it did not exit with this code.
    pub fn expect_exit(&self, code: i32) -> Result<&Self> {
        if self.exit != Exit::Code(code) {
            bail!("{} instead of exit {code}; its log ends:\n{}", self.exit, self.tail(40));
        }
        Ok(self)
    }
}
