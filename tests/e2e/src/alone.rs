//! A step as it runs alone: what the benchmarks measure.

use std::{
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::{Duration, Instant},
};

use harness::{StepCommand, run::peak_memory};

/// 64 MB: no step needs more, however much there is to migrate.
pub const MEMORY_KIB: u64 = 64_000_000 / 1024;

/// Ends the benchmark if a step has used more memory than any may.
pub fn within_memory(step: &str, peak_kib: u64) {
    assert!(peak_kib < MEMORY_KIB, "{step} used {peak_kib} KiB, and 64 MB are {MEMORY_KIB} KiB");
}

/// KiB in millions of bytes, for people.
#[must_use]
pub fn megabytes(kib: u64) -> f64 {
    #[allow(clippy::cast_precision_loss)] // A number for people.
    let kib = kib as f64;
    kib * 1024.0 / 1e6
}

/// What the image sets in the environment of a step.
fn of_the_image() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("../../../Dockerfile").lines();
    lines.filter_map(|line| line.strip_prefix("ENV ")?.split_once('='))
}

/// Runs a step without a proxy in between; its time, and its peak memory in KiB.
pub async fn run_alone(binary: &Path, step: &StepCommand, kubeconfig: &Path) -> (Duration, u64) {
    let mut log = tempfile::tempfile().unwrap();
    let begun = Instant::now();
    let mut child = tokio::process::Command::new(binary)
        .args(&step.args)
        .env_clear()
        .envs(&step.env)
        .env("BELAY_KUBECONFIG", kubeconfig)
        .envs(of_the_image())
        .stderr(log.try_clone().unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let pid = child.id().unwrap();
    let mut peak = 0;
    loop {
        tokio::select! {
            ended = child.wait() => {
                if !ended.unwrap().success() {
                    let mut said = String::new();
                    log.seek(SeekFrom::Start(0)).unwrap();
                    log.read_to_string(&mut said).unwrap();
                    panic!("the step failed: {}", said.lines().last().unwrap_or_default());
                }
                return (begun.elapsed(), peak);
            }
            () = tokio::time::sleep(Duration::from_millis(25)) => {
                peak = peak_memory(pid).unwrap_or_default().max(peak);
            }
        }
    }
}
