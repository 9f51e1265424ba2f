//! `StatefulSets`: Pods with numbers, made and taken away in their order.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Objects, Pass, as_count, is_available, is_ready, is_terminating, name, number, pod, put_count, replicas,
    template_hash, text, uid,
};

const REVISION: &str = "controller-revision-hash";

pub(super) fn reconcile<O: Objects>(pass: &mut Pass<'_, O>) {
    let sets = pass.list("statefulsets");
    if sets.is_empty() {
        return;
    }
    let mut pods = pass.by_owner("pods");
    for set in sets {
        for field in ["volumeClaimTemplates", "ordinals"] {
            let is_absent = |value: &Value| value.is_null() || *value == json!([]);
            let plays = set["spec"].get(field).is_none_or(is_absent);
            assert!(plays, "StatefulSet {}: nobody plays {field} here", name(&set));
        }
        let numbered = |pod: Arc<Value>| {
            let number = name(&pod).rsplit_once('-').and_then(|(_, number)| number.parse::<i64>().ok())?;
            Some((number, pod))
        };
        let pods: BTreeMap<i64, Arc<Value>> =
            pods.remove(uid(&set)).unwrap_or_default().into_iter().filter_map(numbered).collect();
        if !is_terminating(&set) {
            advance(pass, &set, &pods);
        }
        let status = status(pass, &set, &pods);
        pass.update_status("statefulsets", &set, status);
    }
}

fn revision(set: &Value) -> String {
    format!("{}-{}", name(set), template_hash(set))
}

fn is_healthy(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running" && is_ready(pod) && !is_terminating(pod)
}

/// Makes the Pods that are missing, one after the other unless the set wants them all at once; then takes away those too
/// many, then those of an old template, in each case the last one first.
fn advance<O: Objects>(pass: &mut Pass<'_, O>, set: &Value, pods: &BTreeMap<i64, Arc<Value>>) {
    let wanted = replicas(set);
    let in_order = set["spec"]["podManagementPolicy"] != "Parallel";
    for number in 0..wanted {
        match pods.get(&number) {
            None => create(pass, set, number),
            Some(pod) if is_terminating(pod) => {}
            Some(pod) if ["Failed", "Succeeded"].contains(&text(pod, "/status/phase")) => {
                pass.delete_pod(pod);
            }
            Some(pod) if is_healthy(pod) => continue,
            Some(_) => {}
        }
        if in_order {
            return;
        }
    }
    let too_many: Vec<&Arc<Value>> = pods.range(wanted..).rev().map(|(_, pod)| pod).collect();
    for pod in &too_many {
        if !is_terminating(pod) {
            pass.delete_pod(pod);
        }
        if in_order {
            return;
        }
    }
    if set["spec"]["updateStrategy"]["type"] == "OnDelete" || !too_many.is_empty() {
        return;
    }
    let current = revision(set);
    for pod in pods.values().rev() {
        if pod["metadata"]["labels"][REVISION] != current.as_str() {
            if !is_terminating(pod) {
                pass.delete_pod(pod);
            }
            return;
        }
        if !is_healthy(pod) {
            return;
        }
    }
}

fn create<O: Objects>(pass: &mut Pass<'_, O>, set: &Value, number: i64) {
    let pod_name = format!("{}-{number}", name(set));
    let mut pod = pod(set, "StatefulSet", &pod_name);
    let labels = &mut pod["metadata"]["labels"];
    labels[REVISION] = revision(set).into();
    labels["statefulset.kubernetes.io/pod-name"] = pod_name.as_str().into();
    labels["apps.kubernetes.io/pod-index"] = number.to_string().into();
    pod["metadata"]["generateName"] = format!("{}-", name(set)).into();
    pod["spec"]["hostname"] = pod_name.into();
    pod["spec"]["subdomain"] = set["spec"]["serviceName"].clone();
    pass.create("pods", pod);
}

fn status<O>(pass: &Pass<'_, O>, set: &Value, pods: &BTreeMap<i64, Arc<Value>>) -> Value {
    let update = revision(set);
    let before = text(set, "/status/currentRevision");
    let of =
        |pod: &Value, revision: &str| !is_terminating(pod) && pod["metadata"]["labels"][REVISION] == revision;
    let count = |is_it: &dyn Fn(&Value) -> bool| as_count(pods.values().filter(|pod| is_it(pod)).count());
    let is_rolled_out =
        pods.values().all(|pod| of(pod, &update) && is_healthy(pod)) && as_count(pods.len()) == replicas(set);
    let current = if before.is_empty() || is_rolled_out { update.clone() } else { before.to_owned() };
    let mut status = json!({
        "observedGeneration": number(set, "/metadata/generation"),
        "replicas": pods.len(),
        "availableReplicas": count(&|pod: &Value| is_available(pod, set, pass.now)),
        "currentRevision": current,
        "updateRevision": update,
        "collisionCount": 0,
    });
    put_count(&mut status, "readyReplicas", count(&is_ready));
    put_count(&mut status, "currentReplicas", count(&|pod: &Value| of(pod, &current)));
    put_count(&mut status, "updatedReplicas", count(&|pod: &Value| of(pod, &update)));
    status
}
