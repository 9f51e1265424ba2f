//! The rules for a step's pod: the restricted Pod Security Standard, and what keeps others out of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The plain variables of a pod's first container.
pub(crate) fn environment(template: &Value) -> BTreeMap<&str, &str> {
    let env = template.pointer("/spec/containers/0/env").and_then(Value::as_array);
    env.into_iter()
        .flatten()
        .filter_map(|entry| Some((entry["name"].as_str()?, entry["value"].as_str()?)))
        .collect()
}

/// What is wrong with a pod template.
pub(crate) fn check(template: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let spec = &template["spec"];
    if spec["restartPolicy"] != "Never" {
        faults.push("restartPolicy is not Never".to_owned());
    }
    if spec["terminationGracePeriodSeconds"] != 30 {
        faults.push("terminationGracePeriodSeconds is not 30".to_owned());
    }
    if spec["automountServiceAccountToken"] != true {
        faults.push("the pod does not ask for its account's token".to_owned());
    }
    for place in ["labels", "annotations"] {
        if template["metadata"][place]["sidecar.istio.io/inject"] != "false" {
            faults.push(format!(
                "no sidecar.istio.io/inject \"false\" among its {place}: a sidecar would keep the Job alive"
            ));
        }
    }
    for host in ["hostNetwork", "hostPID", "hostIPC"] {
        if spec.get(host).is_some_and(|value| value != false) {
            faults.push(format!("the pod is not restricted: {host}"));
        }
    }
    for volume in spec.get("volumes").and_then(Value::as_array).into_iter().flatten() {
        if volume.get("hostPath").is_some() {
            faults.push("the pod is not restricted: a hostPath volume".to_owned());
        }
    }
    let containers =
        ["containers", "initContainers"].into_iter().filter_map(|list| spec[list].as_array()).flatten();
    for container in containers {
        container_faults(container, &spec["securityContext"], &mut faults);
    }
    faults
}

fn container_faults(container: &Value, pod: &Value, faults: &mut Vec<String>) {
    let own = &container["securityContext"];
    // A container's own setting wins over its pod's.
    let either = |key: &str| own.get(key).or_else(|| pod.get(key)).cloned().unwrap_or_default();
    let expected = [
        ("runAsNonRoot", either("runAsNonRoot"), json!(true)),
        ("runAsUser", either("runAsUser"), json!(65532)),
        ("seccompProfile", either("seccompProfile"), json!({ "type": "RuntimeDefault" })),
        ("allowPrivilegeEscalation", own["allowPrivilegeEscalation"].clone(), json!(false)),
        ("readOnlyRootFilesystem", own["readOnlyRootFilesystem"].clone(), json!(true)),
        ("capabilities", own["capabilities"].clone(), json!({ "drop": ["ALL"] })),
    ];
    for (key, found, wanted) in expected {
        if found != wanted {
            faults.push(format!("the pod is not restricted: {key} is {found}, not {wanted}"));
        }
    }
    if own.get("privileged").is_some_and(|value| value != false) {
        faults.push("the pod is not restricted: privileged".to_owned());
    }
    for kind in ["requests", "limits"] {
        for resource in ["cpu", "memory"] {
            if container["resources"][kind].get(resource).is_none() {
                faults.push(format!("no {resource} {kind}"));
            }
        }
    }
}
