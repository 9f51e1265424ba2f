//! Helm, kubectl and belay, called as a person would call them.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::JoinHandle,
    time::Instant,
};

use serde_json::Value;

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

/// A variable without which nothing can be tested.
fn needed(variable: &str, what: &str) -> PathBuf {
    match env::var_os(variable) {
        Some(value) if !value.is_empty() => value.into(),
        _ => panic!(
            "{variable} must name {what}: these tests work on a real cluster and run only when told on which one"
        ),
    }
}

/// The kubeconfig of the cluster that the tests may change.
#[must_use]
pub fn kubeconfig() -> PathBuf {
    needed("BELAY_TEST_KUBECONFIG", "the kubeconfig of a cluster that these tests may change as they like")
}

fn call(program: &Path, arguments: &[&str]) -> Said {
    let begun = Instant::now();
    let output = Command::new(program)
        .args(arguments)
        .env("KUBECONFIG", kubeconfig())
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", program.display()));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Shown by the test runner when the test fails.
    println!("{name} {} ({:.1} s)", arguments.join(" "), begun.elapsed().as_secs_f64());
    Said { succeeded: output.status.success(), all: format!("{stdout}{stderr}"), stdout }
}

/// Runs kubectl.
pub fn kubectl(arguments: &[&str]) -> Said {
    call(&needed("KUBECTL", "a kubectl"), arguments)
}

/// Runs kubectl in the background until it ends by itself.
#[must_use]
pub fn kubectl_meanwhile(arguments: &[&str]) -> JoinHandle<Said> {
    meanwhile(needed("KUBECTL", "a kubectl"), arguments)
}

/// Runs belay on this machine.
pub fn belay(arguments: &[&str]) -> Said {
    call(&needed("BELAY_BIN", "the belay executable"), arguments)
}

fn meanwhile(program: PathBuf, arguments: &[&str]) -> JoinHandle<Said> {
    let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
    std::thread::spawn(move || {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        call(&program, &arguments)
    })
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
    pub fn meanwhile(&self, arguments: &[&str]) -> JoinHandle<Said> {
        meanwhile(self.program.clone(), arguments)
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
