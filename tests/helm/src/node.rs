//! The processes of the cluster's node, which is this machine: the embedded cluster runs its pods here, in plain sight.

use std::{env, fs, process::Command};

/// Whether the cluster's node is this machine; if not, says that the test is left out.
pub fn is_here() -> bool {
    let cluster = env::var("CLUSTER").unwrap_or_default();
    let here = cluster.is_empty() || cluster == "embedded";
    if !here {
        println!(
            "left out: it signals a step's process, which only the embedded cluster runs on this machine"
        );
    }
    here
}

/// Sends a signal to every process of a container, as the kernel does when memory runs out: nobody is asked.
pub fn signal(container_id: &str, signal: &str) {
    let id = container_id.rsplit('/').next().unwrap_or_default();
    let processes = processes_of(id);
    assert!(
        !processes.is_empty(),
        "no process of container {id} is visible here: this test needs a cluster whose node is this machine"
    );
    for process in processes {
        let sent = Command::new("kill").args([&format!("-{signal}"), &process]).status();
        assert!(sent.is_ok_and(|status| status.success()), "process {process} could not be sent {signal}");
    }
}

/// Process ids of a container: its control group bears its id.
fn processes_of(container_id: &str) -> Vec<String> {
    assert!(container_id.len() >= 32, "'{container_id}' is not the id of a container");
    let entries = fs::read_dir("/proc").expect("/proc is there");
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|process| {
            // A process that ends while we look is not the one we look for.
            fs::read_to_string(format!("/proc/{process}/cgroup"))
                .is_ok_and(|groups| groups.contains(container_id))
        })
        .collect()
}
