//! A step as it runs alone: what the benchmarks measure.

use std::{
    io::{Read as _, Seek as _, SeekFrom},
    path::Path,
    time::{Duration, Instant},
};

use harness::StepCommand;

/// What a step's pod requests: no step needs more, however much there is to migrate.
pub const MEMORY_KIB: u64 = 64 * 1024;

/// Ends the benchmark if a step has used more than its pod requests.
pub fn within_memory(step: &str, peak_kib: u32) {
    assert!(
        u64::from(peak_kib) < MEMORY_KIB,
        "{step} used {peak_kib} KiB, and its pod requests {MEMORY_KIB}"
    );
}

/// Runs a step without a proxy in between; its time, and its peak memory in KiB.
pub async fn run_alone(binary: &Path, step: &StepCommand, kubeconfig: &Path) -> (Duration, u32) {
    let mut log = tempfile::tempfile().unwrap();
    let begun = Instant::now();
    let mut child = tokio::process::Command::new(binary)
        .args(&step.args)
        .env_clear()
        .envs(&step.env)
        .env("BELAY_KUBECONFIG", kubeconfig)
        // As in the image.
        .env("MALLOC_ARENA_MAX", "1")
        .stderr(log.try_clone().unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id().unwrap());
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
                let text = std::fs::read_to_string(&status).unwrap_or_default();
                let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let now = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
                peak = now.unwrap_or(0).max(peak);
            }
        }
    }
}
