//! Helm, kubectl and belay, called as a person would call them.

use std::{
    env,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::Instant,
};

use serde_json::Value;

use crate::clusters::kubeconfig;

/// What a program said, and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Whether it exited with 0.
    pub succeeded: bool,
    /// What it printed for programs to read.
    pub stdout: String,
    /// Everything that it printed.
    pub all: String,
}

impl Said {
    /// The same, provided that it succeeded.
    pub fn or_panic(self) -> Self {
        assert!(self.succeeded, "it should have succeeded, but said:\n{}", self.all);
        self
    }

    /// Panics unless it failed.
    pub fn failed(self) -> Self {
        assert!(!self.succeeded, "it should have failed, but succeeded and said:\n{}", self.all);
        self
    }

    /// Panics unless it said this.
    pub fn must_say(&self, sentence: &str) {
        assert!(self.all.contains(sentence), "it should have said \"{sentence}\", but said:\n{}", self.all);
    }
}

/// What a variable names, without which nothing can be tested.
pub fn needed(variable: &str, what: &str) -> PathBuf {
    match env::var_os(variable) {
        Some(value) if !value.is_empty() => value.into(),
        _ => panic!(
            "{variable} must name {what}: these tests work on a real cluster and run only when told on which one"
        ),
    }
}

/// Helm's hooks are some 200 calls, and its client pauses after the first 100 out of consideration for clusters that others
/// use too.
pub const UNTHROTTLED: [(&str, &str); 2] = [("HELM_QPS", "500"), ("HELM_BURST_LIMIT", "1000")];

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("KUBECONFIG", kubeconfig()).envs(UNTHROTTLED);
    command
}

fn call(program: &Path, arguments: &[&str]) -> Said {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Shown by the test runner when the test fails.
    let begun = Instant::now();
    let said = Meanwhile::start(command(program, arguments)).said();
    println!("{name} {} ({:.1} s)", arguments.join(" "), begun.elapsed().as_secs_f64());
    said
}

/// A program that runs beside the test. A test that ends before it, by a panic, takes it along: the next test would meet
/// it.
pub struct Meanwhile {
    child: Arc<Mutex<Child>>,
    hears: Option<JoinHandle<Said>>,
}

impl Meanwhile {
    fn start(mut command: Command) -> Self {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let child = Arc::new(Mutex::new(child));
        let process = child.clone();
        let hears = std::thread::spawn(move || {
            let aside = std::thread::spawn(move || read(stderr));
            let stdout = read(stdout);
            let stderr = aside.join().unwrap();
            // Only now: whoever wants to kill it must not wait for its end.
            let status = held(&process).wait().unwrap();
            Said { succeeded: status.success(), all: format!("{stdout}{stderr}"), stdout }
        });
        Self { child, hears: Some(hears) }
    }

    /// Interrupts it, as a pipeline does that is cancelled: Helm records the release as failed and leaves its hooks as they are.
    pub fn interrupt(self) -> Said {
        let process = held(&self.child).id().to_string();
        let sent = Command::new("kill").args(["-TERM", &process]).status();
        assert!(sent.is_ok_and(|status| status.success()), "process {process} could not be interrupted");
        self.said()
    }

    /// What it has said, once it has ended by itself.
    pub fn said(mut self) -> Said {
        self.hears.take().unwrap().join().unwrap()
    }
}

impl Drop for Meanwhile {
    fn drop(&mut self) {
        if let Some(hears) = self.hears.take() {
            // It may have ended by itself.
            let _ = held(&self.child).kill();
            let _ = hears.join();
        }
    }
}

fn held(child: &Mutex<Child>) -> MutexGuard<'_, Child> {
    child.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(mut from: impl Read) -> String {
    let mut bytes = Vec::new();
    from.read_to_end(&mut bytes).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Runs kubectl.
pub fn kubectl(arguments: &[&str]) -> Said {
    call(&needed("KUBECTL", "a kubectl"), arguments)
}

/// Runs belay on this machine.
pub fn belay(arguments: &[&str]) -> Said {
    call(&needed("BELAY_BIN", "the belay executable"), arguments)
}

/// One Helm executable.
#[derive(Clone, Debug)]
pub struct Helm {
    /// 3 or 4.
    pub major: u8,
    program: PathBuf,
}

impl Helm {
    /// Helm of this major version.
    #[must_use]
    pub fn of(major: u8) -> Self {
        Self { major, program: needed(&format!("HELM{major}"), &format!("a Helm {major}")) }
    }

    /// Runs it.
    pub fn run(&self, arguments: &[&str]) -> Said {
        call(&self.program, arguments)
    }

    /// Runs it in the background.
    #[must_use]
    pub fn meanwhile(&self, arguments: &[&str]) -> Meanwhile {
        Meanwhile::start(command(&self.program, arguments))
    }

    /// The flag that takes a failed release back. Helm 4 has given it another name.
    #[must_use]
    pub fn rollback_on_failure(&self) -> &'static str {
        if self.major == 3 { "--atomic" } else { "--rollback-on-failure" }
    }

    /// The status and the number of a release's newest revision.
    #[must_use]
    pub fn revision(&self, release: &str, namespace: &str) -> (String, u64) {
        let said = self.run(&["status", release, "--namespace", namespace, "--output", "json"]).or_panic();
        let status: Value = serde_json::from_str(&said.stdout).expect("helm status prints JSON");
        let word = status["info"]["status"].as_str().unwrap_or_default().to_owned();
        (word, status["version"].as_u64().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Meanwhile {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Meanwhile::start(command)
    }

    #[test]
    fn what_runs_beside_a_test_is_heard_to_its_end() {
        let said = shell("echo out; echo err >&2; exit 3").said().failed();
        assert_eq!((said.stdout.as_str(), said.all.as_str()), ("out\n", "out\nerr\n"));
    }

    #[test]
    fn what_runs_beside_a_test_can_be_interrupted() {
        shell("exec sleep 60").interrupt().failed();
    }

    #[test]
    fn what_runs_beside_a_test_ends_with_it() {
        let begun = Instant::now();
        let process = {
            let beside = shell("exec sleep 60");
            let id = held(&beside.child).id();
            format!("/proc/{id}")
        };
        assert!(!Path::new(&process).exists(), "{process} still runs");
        assert!(begun.elapsed().as_secs() < 30);
    }
}
