//! The rules for hooks. Each fault is a sentence that names the object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{
    manifest::{Hook, Object},
    pod,
};

/// One unknown word in `helm.sh/hook` and Helm drops the whole object, with no more than a line in its log.
const EVENTS: [&str; 9] = [
    "pre-install",
    "post-install",
    "pre-delete",
    "post-delete",
    "pre-upgrade",
    "post-upgrade",
    "pre-rollback",
    "post-rollback",
    "test",
];

const POLICIES: [&str; 3] = ["before-hook-creation", "hook-succeeded", "hook-failed"];

const ANNOTATIONS: [&str; 5] = [
    "helm.sh/hook",
    "helm.sh/hook-weight",
    "helm.sh/hook-delete-policy",
    "helm.sh/hook-output-log-policy",
    "helm.sh/resource-policy",
];

/// Kubernetes appends 11 characters to a CronJob's name for each Job.
const CRON_JOB_NAME: usize = 52;

/// All that is wrong with rendered manifests; empty when they are sound.
#[must_use]
pub fn check(manifests: &[Value]) -> Vec<String> {
    let objects: Vec<Object> = manifests.iter().map(Object).collect();
    let mut faults = Vec::new();
    for object in &objects {
        annotations(*object, &mut faults);
        match object.hook() {
            Some(hook) => {
                events(*object, &hook, &mut faults);
                delete_policy(*object, &hook, &mut faults);
            }
            None if !object.label("belay.dev/step").is_empty() => {
                faults.push(format!(
                    "{object} belongs to a step but is no hook: it is not there when the step runs"
                ));
            }
            None => {}
        }
        job(*object, &mut faults);
    }
    names(&objects, &mut faults);
    order(&objects, &mut faults);
    accounts(&objects, &mut faults);
    faults
}

fn annotations(object: Object, faults: &mut Vec<String>) {
    for (key, value) in object.annotations() {
        if key.starts_with("helm.sh/") && !ANNOTATIONS.contains(&key) {
            faults.push(format!("{object} has the annotation {key}, which Helm does not know"));
        }
        if !value.is_string() {
            faults.push(format!("{object} has the annotation {key}: {value}, which is not a string"));
        }
    }
}

fn events(object: Object, hook: &Hook, faults: &mut Vec<String>) {
    for event in hook.events.iter().filter(|event| !EVENTS.contains(event)) {
        faults.push(format!(
            "{object} has the hook {event}, which Helm does not know: it would drop the object"
        ));
    }
    for phase in ["pre", "post"] {
        let install = hook.events.contains(format!("{phase}-install").as_str());
        let upgrade = hook.events.contains(format!("{phase}-upgrade").as_str());
        if install != upgrade {
            faults.push(format!(
                "{object} has only one of the hooks {phase}-install and {phase}-upgrade: a chart that joins an old cluster is installed"
            ));
        }
    }
    match object.annotations().find(|(key, _)| *key == "helm.sh/hook-weight") {
        None => faults.push(format!("{object} has no hook weight: Helm would order it by its name")),
        Some((_, weight)) if hook.weight.is_none() => {
            faults.push(format!(
                "{object} has the hook weight {weight}, which is no integer: Helm would take it for 0"
            ));
        }
        Some(_) => {}
    }
}

fn delete_policy(object: Object, hook: &Hook, faults: &mut Vec<String>) {
    for policy in hook.policies.iter().filter(|policy| !POLICIES.contains(policy)) {
        faults.push(format!("{object} has the delete policy {policy}, which Helm does not know"));
    }
    if !hook.policies.contains("before-hook-creation") {
        faults.push(format!(
            "{object} has no delete policy before-hook-creation: the next upgrade would find it in its way"
        ));
    }
    // What runs after the release is gone has nobody left who needs its rights or its log.
    if hook.events == BTreeSet::from(["post-delete"]) {
        return;
    }
    for policy in ["hook-succeeded", "hook-failed"] {
        if hook.policies.contains(policy) {
            faults.push(format!(
                "{object} has the delete policy {policy}: it takes rights from a pod that still undoes, or logs from who needs them"
            ));
        }
    }
}

fn job(object: Object, faults: &mut Vec<String>) {
    let Some(spec) = object.job_spec() else { return };
    if object.kind() == "CronJob" {
        if object.name().len() > CRON_JOB_NAME {
            faults.push(format!("{object} has a name of more than {CRON_JOB_NAME} characters"));
        }
        if object.0.pointer("/spec/suspend") != Some(&Value::Bool(true)) {
            faults.push(format!("{object} is not suspended: it would run by itself"));
        }
    } else {
        if object.name().len() > 63 {
            faults.push(format!("{object} has a name of more than 63 characters"));
        }
        let policy = object.annotations().find(|(key, _)| *key == "helm.sh/hook-output-log-policy");
        if policy.is_none_or(|(_, policy)| policy != "hook-succeeded,hook-failed") {
            faults.push(format!(
                "{object} does not have Helm print its log, which is all that Helm's user sees"
            ));
        }
    }
    if spec.get("ttlSecondsAfterFinished").is_some() {
        faults.push(format!("{object} has a TTL: Helm may look for the Job when it is gone"));
    }
    if spec.get("activeDeadlineSeconds").is_some() {
        faults.push(format!("{object} has its backstop on the Job, which deletes the pod with its log: it belongs on the pod template"));
    }
    retries(object, spec, faults);
    deadlines(object, spec, faults);
    for fault in pod::check(&spec["template"]) {
        faults.push(format!("{object}: {fault}"));
    }
}

fn retries(object: Object, spec: &Value, faults: &mut Vec<String>) {
    let component = object.label("app.kubernetes.io/component");
    if ["step", "rerun", "restore", "accept"].contains(&component) && spec["backoffLimit"] != 4 {
        faults.push(format!("{object} does not have backoffLimit 4: two resumes and then the undo"));
    }
    // A retry that comes after the run at work has ended would take back, or accept, what that run did meanwhile.
    let decided = if ["restore", "accept"].contains(&component) {
        json!([2, 3, 4, 5, 6, 75])
    } else {
        json!([2, 3, 4, 5, 6])
    };
    let rules = spec.pointer("/podFailurePolicy/rules").and_then(Value::as_array).map(Vec::as_slice);
    let sound = matches!(rules, Some([evicted, ended])
        if evicted["action"] == "Ignore"
            && evicted.pointer("/onPodConditions/0/type").is_some_and(|condition| condition == "DisruptionTarget")
            && ended["action"] == "FailJob"
            && ended.pointer("/onExitCodes/operator").is_some_and(|operator| operator == "In")
            && ended.pointer("/onExitCodes/values") == Some(&decided));
    if !sound {
        faults.push(format!(
            "{object} does not have the pod failure policy: first ignore DisruptionTarget, then fail the Job on {decided}"
        ));
    }
}

fn deadlines(object: Object, spec: &Value, faults: &mut Vec<String>) {
    let Some(backstop) = spec.pointer("/template/spec/activeDeadlineSeconds").and_then(Value::as_u64) else {
        faults.push(format!("{object} has no backstop on its pod template: a hung process would stay"));
        return;
    };
    let environment = pod::environment(&spec["template"]);
    let seconds = |name: &str| environment.get(name).map(|value| value.parse::<u64>());
    match (seconds("BELAY_DEADLINE"), seconds("BELAY_UNDO_RESERVE")) {
        (None, None) => {}
        (Some(Ok(deadline)), Some(Ok(reserve))) if deadline + reserve <= backstop => {}
        (Some(Ok(deadline)), Some(Ok(reserve))) => faults.push(format!(
            "{object} has deadline {deadline} + undo reserve {reserve} > backstop {backstop}: the pod would be killed while it undoes"
        )),
        _ => faults.push(format!("{object} does not have deadline and undo reserve in whole seconds")),
    }
}

/// Names that Kubernetes would take for the same object.
fn names(objects: &[Object], faults: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for object in objects {
        if !seen.insert(object.to_string()) {
            faults.push(format!("{object} is rendered twice"));
        }
    }
}

/// Helm waits for Jobs only, so only Jobs must not share a weight. Cleanups of different families do not meet.
fn order(objects: &[Object], faults: &mut Vec<String>) {
    let mut places: BTreeMap<(&str, i64), Object> = BTreeMap::new();
    for object in objects.iter().filter(|object| object.kind() == "Job") {
        let Some(Hook { mut events, weight: Some(weight), .. }) = object.hook() else { continue };
        events.remove("post-delete");
        for event in events {
            if let Some(other) = places.insert((event, weight), *object) {
                faults.push(format!("{other} and {object} both run at {event} with weight {weight}: Helm would order them by name"));
            }
        }
    }
}

/// A Job's account and rights must be there before it and stay as long as it does.
fn accounts(objects: &[Object], faults: &mut Vec<String>) {
    for object in objects {
        let Some(account) =
            object.job_spec().and_then(|spec| spec.pointer("/template/spec/serviceAccountName"))
        else {
            continue;
        };
        let Some(hook) = object.hook() else { continue };
        let account = account.as_str().unwrap_or_default();
        let found = objects.iter().any(|other| {
            other.kind() == "ServiceAccount"
                && other.name() == account
                && other.namespace() == object.namespace()
        });
        if !found {
            faults
                .push(format!("{object} runs as ServiceAccount {account}, which the chart does not render"));
        }
        for needed in objects.iter().filter(|other| serves(**other, objects, object.namespace(), account)) {
            let Some(theirs) = needed.hook() else {
                faults.push(format!("{needed} is no hook, but {object} needs it"));
                continue;
            };
            if theirs.policies != hook.policies {
                faults.push(format!("{object} and {needed} have different delete policies"));
            }
            if !theirs.events.is_superset(&hook.events) {
                faults.push(format!("{needed} is not a hook of every event of {object}"));
            }
            if object.kind() == "Job" && theirs.weight >= hook.weight {
                faults.push(format!("{needed} does not come before {object}: its weight must be smaller"));
            }
        }
    }
}

/// Whether an object is the account, binds it, or is a role that is bound to it.
fn serves(object: Object, objects: &[Object], namespace: &str, account: &str) -> bool {
    match object.kind() {
        "ServiceAccount" => object.name() == account && object.namespace() == namespace,
        "RoleBinding" | "ClusterRoleBinding" => binds(object, namespace, account),
        "Role" | "ClusterRole" => objects.iter().any(|binding| {
            binds(*binding, namespace, account)
                && binding.text("/roleRef/kind") == object.kind()
                && binding.text("/roleRef/name") == object.name()
                && (object.kind() == "ClusterRole" || binding.namespace() == object.namespace())
        }),
        _ => false,
    }
}

/// Whether an object is a binding that names the account.
pub(crate) fn binds(object: Object, namespace: &str, account: &str) -> bool {
    let subjects = object.0.get("subjects").and_then(Value::as_array);
    object.kind().ends_with("RoleBinding")
        && subjects.into_iter().flatten().any(|subject| {
            subject["kind"] == "ServiceAccount"
                && subject["name"] == account
                && subject["namespace"] == namespace
        })
}
