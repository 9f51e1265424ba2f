//! `ReplicaSets`: as many Pods as they say.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Objects, Pass, as_count, is_active, is_available, is_ready, is_terminating, name, number, pod, put_count,
    replicas, suffix, text, uid,
};

pub(super) fn reconcile<O: Objects>(pass: &mut Pass<'_, O>) {
    let sets = pass.list("replicasets");
    if sets.is_empty() {
        return;
    }
    let mut pods = pass.by_owner("pods");
    for set in sets {
        let pods = pods.remove(uid(&set)).unwrap_or_default();
        let terminating = pods.iter().filter(|pod| is_terminating(pod)).count();
        let active: Vec<Arc<Value>> = pods.into_iter().filter(|pod| is_active(pod)).collect();
        if !is_terminating(&set) {
            scale(pass, &set, &active);
        }
        let mut status = status(pass, &set, &active);
        status["terminatingReplicas"] = terminating.into();
        pass.update_status("replicasets", &set, status);
    }
}

fn scale<O: Objects>(pass: &mut Pass<'_, O>, set: &Value, active: &[Arc<Value>]) {
    let missing = replicas(set) - as_count(active.len());
    for index in 0..missing {
        // No name comes back: that of a Pod which was deleted may still be looked for.
        let seed = format!("{}/{}/{index}", uid(set), pass.now);
        let prefix = format!("{}-", name(set));
        let mut pod = pod(set, "ReplicaSet", &format!("{prefix}{}", suffix(&seed, 5)));
        pod["metadata"]["generateName"] = prefix.into();
        pass.create("pods", pod);
    }
    if missing < 0 {
        let mut active: Vec<&Arc<Value>> = active.iter().collect();
        active.sort_by_key(|pod| worth(pod));
        for pod in active.iter().take(usize::try_from(-missing).unwrap_or_default()) {
            pass.delete_pod(pod);
        }
    }
}

/// What is worth least is deleted first: what has no node, does not run, is not ready, is young.
fn worth(pod: &Value) -> (bool, u8, bool, Reverse<String>, String) {
    let phase = match text(pod, "/status/phase") {
        "Running" => 2,
        "Unknown" => 1,
        _ => 0,
    };
    let has_node = !text(pod, "/spec/nodeName").is_empty();
    let since = text(pod, "/metadata/creationTimestamp").to_owned();
    (has_node, phase, is_ready(pod), Reverse(since), name(pod).to_owned())
}

fn status<O>(pass: &Pass<'_, O>, set: &Value, active: &[Arc<Value>]) -> Value {
    let count = |is_it: &dyn Fn(&Value) -> bool| as_count(active.iter().filter(|pod| is_it(pod)).count());
    let mut status =
        json!({"replicas": active.len(), "observedGeneration": number(set, "/metadata/generation")});
    let template = set.pointer("/spec/template/metadata/labels").and_then(Value::as_object);
    let is_labelled = |pod: &Value| {
        let labels = &pod["metadata"]["labels"];
        template.is_none_or(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
    };
    put_count(&mut status, "fullyLabeledReplicas", count(&is_labelled));
    put_count(&mut status, "readyReplicas", count(&is_ready));
    put_count(&mut status, "availableReplicas", count(&|pod: &Value| is_available(pod, set, pass.now)));
    status
}
