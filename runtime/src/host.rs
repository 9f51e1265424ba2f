//! What a run has from outside: its clock, environment variables, identity, tasks, the way to the cluster, and somebody
//! who may ask it to stop.
//!
//! It is handed to the run. A program has [`ThisMachine`]; a test that plays a whole cluster gives each of its processes a
//! host of its own, so that one can die, sleep, or have a wrong clock while the others go on.

#![expect(clippy::disallowed_methods, reason = "everybody else asks the host")]

use std::{fmt, io::Write as _, sync::Arc};

use futures::future::BoxFuture;
use kube::Client;
use tokio::{signal::unix::SignalKind, task::AbortHandle};

use crate::{clock::Clock, cluster::Access};

/// Where a container's last words go.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// What a run has from outside.
pub trait Host: Send + Sync {
    /// The clock of this process.
    fn clock(&self) -> Clock;

    /// An environment variable; none where it is empty.
    fn variable(&self, name: &str) -> Option<String>;

    /// The name of the machine, for people.
    fn name(&self) -> String;

    /// This process.
    fn process(&self) -> Process;

    /// Whether a process runs, as far as that can be told from here.
    fn life(&self, process: &Process) -> Life;

    /// A client for the cluster.
    fn connect<'a>(&'a self, access: &'a Access) -> BoxFuture<'a, anyhow::Result<Client>>;

    /// Runs a task that ends, at the latest, with the process.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> AbortHandle;

    /// Begins to listen; the future resolves when this process is asked to stop.
    fn asked_to_stop(&self) -> std::io::Result<BoxFuture<'static, ()>>;

    /// What the delays between two tries are drawn from. None: differently each time.
    fn seed(&self) -> Option<u64> {
        None
    }

    /// Leaves a verdict where the kubelet looks for it.
    fn leave(&self, verdict: &str) -> std::io::Result<()>;
}

/// The machine on which the program runs.
pub struct ThisMachine {
    clock: Clock,
}

impl ThisMachine {
    /// As everything that asks for a host wants it.
    #[must_use]
    pub fn host() -> Arc<dyn Host> {
        Arc::new(Self { clock: Clock::of_this_machine() })
    }
}

impl Host for ThisMachine {
    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn name(&self) -> String {
        std::fs::read_to_string("/proc/sys/kernel/hostname")
            .map(|name| name.trim().to_owned())
            .unwrap_or_default()
    }

    fn process(&self) -> Process {
        let pid = std::process::id();
        Process { pid, started: started(pid).unwrap_or_default(), place: here() }
    }

    /// Only from where its id means something can be seen whether it runs.
    fn life(&self, process: &Process) -> Life {
        if process.place.is_none() || process.place != here() {
            return Life::Unknown;
        }
        if started(process.pid).as_ref() == Some(&process.started) { Life::Alive } else { Life::Dead }
    }

    fn connect<'a>(&'a self, access: &'a Access) -> BoxFuture<'a, anyhow::Result<Client>> {
        let is_set = |name: &str| self.variable(name).is_some();
        Box::pin(access.client(is_set("KUBECONFIG"), is_set("KUBERNETES_SERVICE_HOST")))
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> AbortHandle {
        tokio::spawn(task).abort_handle()
    }

    /// By SIGTERM or Ctrl-C.
    fn asked_to_stop(&self) -> std::io::Result<BoxFuture<'static, ()>> {
        let mut terminate = tokio::signal::unix::signal(SignalKind::terminate())?;
        let mut interrupt = tokio::signal::unix::signal(SignalKind::interrupt())?;
        Ok(Box::pin(async move {
            tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        }))
    }

    /// The file is the kubelet's: where there is none, this is no pod.
    fn leave(&self, verdict: &str) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).truncate(true).open(TERMINATION_LOG)?;
        file.write_all(verdict.as_bytes())
    }
}

/// A process, as far as others can tell it from the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its process id.
    pub pid: u32,
    /// When it started, in the kernel's ticks: process ids come back.
    pub started: String,
    /// Where its process id means something. Older versions did not write it.
    pub place: Option<Place>,
}

impl Process {
    pub(crate) fn parse(parts: &[&str]) -> Option<Self> {
        let (pid, started, place) = match *parts {
            [pid, started] => (pid, started, None),
            [pid, started, boot, pids] => {
                (pid, started, Some(Place { boot: boot.into(), pids: pids.into() }))
            }
            _ => return None,
        };
        Some(Self { pid: pid.parse().ok()?, started: started.into(), place })
    }
}

impl fmt::Display for Process {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.pid, self.started)?;
        self.place.as_ref().map_or(Ok(()), |place| write!(out, "/{}/{}", place.boot, place.pids))
    }
}

/// Where a process id means something: one boot of one machine, and one pid namespace in it. Host names do not tell: two
/// containers may share theirs, and see none of each other's processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The id that the kernel gave itself when it booted.
    pub boot: String,
    /// The number of the pid namespace.
    pub pids: String,
}

/// What is known of a holder of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Alive,
    /// It has ended.
    Dead,
    /// Nothing can be known.
    Unknown,
}

/// Where this process runs; none where there is no `/proc` to tell.
fn here() -> Option<Place> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_owned();
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    // pid:[4026531836]
    let pids: String = link.to_str()?.chars().filter(char::is_ascii_digit).collect();
    (!boot.is_empty() && !pids.is_empty()).then_some(Place { boot, pids })
}

/// When a process started, if it has not ended.
fn started(pid: u32) -> Option<String> {
    start_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The start time, field 22 of a line of `/proc/PID/stat`, unless the process has ended.
///
/// A zombie has ended: its parent has not asked for the exit code yet. But a killed process is one as soon as its first thread
/// has ended, and the others may still be in a call: while there are any (field 20), it lives.
fn start_of(stat: &str) -> Option<String> {
    // The name in field 2 may hold blanks and parentheses.
    let after_name = stat.rsplit_once(')')?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).copied();
    let ended = field(3)? == "Z" && field(20)?.parse::<u32>().ok()? <= 1;
    if ended { None } else { field(22).map(str::to_owned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_when_its_last_thread_has() {
        let stat = |state, threads| {
            format!("42 (a) S (b) {state} 1 2 3 0 -1 4194304 5 6 7 8 9 10 11 12 20 0 {threads} 0 4711 13 14")
        };
        assert_eq!(start_of(&stat("S", 9)), Some("4711".to_owned()));
        assert_eq!(start_of(&stat("Z", 9)), Some("4711".to_owned()));
        assert_eq!(start_of(&stat("Z", 1)), None);
    }

    #[test]
    fn a_process_is_judged_only_from_where_its_id_means_something() {
        let machine = ThisMachine { clock: Clock::default() };
        let me = machine.process();
        let here = me.place.clone().unwrap();
        let of = |pid, place| Process { pid, place, ..me.clone() };
        let other_boot = Place { boot: "another".into(), ..here.clone() };
        let other_pids = Place { pids: "1".into(), ..here.clone() };
        for (process, is) in [
            (me.clone(), Life::Alive),
            (of(u32::MAX, Some(here)), Life::Dead),
            // Each of the same host name, and none of them can be seen from here.
            (of(u32::MAX, Some(other_boot)), Life::Unknown),
            (of(u32::MAX, Some(other_pids)), Life::Unknown),
            (of(u32::MAX, None), Life::Unknown),
        ] {
            assert_eq!(machine.life(&process), is, "{process}");
        }
    }

    #[test]
    fn this_process_has_a_start_time_and_no_process_has_none() {
        assert!(started(std::process::id()).is_some());
        assert!(started(u32::MAX).is_none());
    }
}
