//! The controllers of workloads: Deployments make `ReplicaSets`, and those and `StatefulSets` make Pods, as
//! kube-controller-manager has them do.
//!
//! Nobody runs the Pods: they are Pending until somebody writes their status.

mod deployments;
mod replica_sets;
mod stateful_sets;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

/// What the controllers need of a server. The group of core kinds is empty; every object has its `resourceVersion`.
pub trait Objects {
    /// All objects of the resource, in every namespace.
    fn list(&self, group: &str, resource: &str) -> Vec<Arc<Value>>;
    /// Creates an object.
    fn create(&mut self, group: &str, resource: &str, object: Value, now: Timestamp);
    /// Replaces an object, all but its status.
    fn update(&mut self, group: &str, resource: &str, object: Value, now: Timestamp);
    /// Replaces an object's status.
    fn update_status(&mut self, group: &str, resource: &str, object: Value, now: Timestamp);
    /// Deletes an object.
    fn delete(&mut self, group: &str, resource: &str, namespace: &str, name: &str, now: Timestamp);
}

/// One pass over all workloads. Returns whether anything was changed: then another pass may change more.
pub fn reconcile(objects: &mut impl Objects, now: Timestamp) -> bool {
    let mut pass = Pass { objects, now, changed: false };
    deployments::reconcile(&mut pass);
    replica_sets::reconcile(&mut pass);
    stateful_sets::reconcile(&mut pass);
    pass.changed
}

/// Whether a Pod that is deleted is gone at once: nobody has to stop what was given to no node, or has ended.
#[must_use]
pub fn is_removed_at_once(pod: &Value) -> bool {
    let has_ended = ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"));
    text(pod, "/spec/nodeName").is_empty() || has_ended
}

/// One pass, which remembers whether it wrote.
struct Pass<'a, O> {
    objects: &'a mut O,
    now: Timestamp,
    changed: bool,
}

impl<O: Objects> Pass<'_, O> {
    fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        self.objects.list(group_of(resource), resource)
    }

    fn create(&mut self, resource: &str, object: Value) {
        self.changed = true;
        self.objects.create(group_of(resource), resource, object, self.now);
    }

    fn update(&mut self, resource: &str, object: Value) {
        self.changed = true;
        self.objects.update(group_of(resource), resource, object, self.now);
    }

    /// Writes annotations at the place of the status.
    fn annotate(&mut self, resource: &str, object: Value) {
        self.changed = true;
        self.objects.update_status(group_of(resource), resource, object, self.now);
    }

    /// Writes a status that differs.
    fn update_status(&mut self, resource: &str, object: &Value, status: Value) {
        if object.get("status") != Some(&status) {
            self.changed = true;
            let mut object = object.clone();
            object["status"] = status;
            self.objects.update_status(group_of(resource), resource, object, self.now);
        }
    }

    fn delete_pod(&mut self, pod: &Value) {
        self.changed = true;
        let (namespace, name) = (text(pod, "/metadata/namespace"), name(pod));
        self.objects.delete("", "pods", namespace, name, self.now);
    }

    /// The objects of a resource by the uid of their controller.
    fn by_owner(&self, resource: &str) -> BTreeMap<String, Vec<Arc<Value>>> {
        let mut found: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
        for object in self.list(resource) {
            if let Some(owner) = controller_of(&object) {
                found.entry(owner.to_owned()).or_default().push(object);
            }
        }
        found
    }
}

fn group_of(resource: &str) -> &'static str {
    if resource == "pods" { "" } else { "apps" }
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// How many replicas are wanted: one, if nothing is said.
fn replicas(workload: &Value) -> i64 {
    workload.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

fn controller_of(object: &Value) -> Option<&str> {
    let owners = object.pointer("/metadata/ownerReferences")?.as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

/// The owner reference of what a controller makes.
fn owned_by(owner: &Value, kind: &str) -> Value {
    json!([{
        "apiVersion": "apps/v1", "kind": kind, "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// A Pod of a template.
fn pod(owner: &Value, kind: &str, name: &str) -> Value {
    let template = &owner["spec"]["template"];
    let mut metadata = json!({
        "name": name,
        "namespace": text(owner, "/metadata/namespace"),
        "ownerReferences": owned_by(owner, kind),
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field).filter(|value| !value.is_null()) {
            metadata[field] = value.clone();
        }
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"],
        "status": {"phase": "Pending"},
    })
}

/// Whether a Pod counts: it is neither over nor about to be.
fn is_active(pod: &Value) -> bool {
    !is_terminating(pod) && !["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

fn ready_condition(pod: &Value) -> Option<&Value> {
    let conditions = pod.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn is_ready(pod: &Value) -> bool {
    ready_condition(pod).is_some()
}

/// Whether a Pod has been ready for as long as the workload asks for.
fn is_available(pod: &Value, workload: &Value, now: Timestamp) -> bool {
    let wanted = number(workload, "/spec/minReadySeconds");
    ready_condition(pod).is_some_and(|ready| {
        let since = ready["lastTransitionTime"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        wanted == 0 || since.is_some_and(|since| since.as_second() + wanted <= now.as_second())
    })
}

fn time_text(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A suffix for names: always the same for the same text, in the letters that Kubernetes uses for that.
fn suffix(of: &str, length: usize) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    // FNV-1a, which spreads short texts well enough and needs no crate.
    let mut hash = of.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let mut letters = String::new();
    for _ in 0..length {
        let index = usize::try_from(hash % 27).unwrap_or_default();
        letters.push(char::from(LETTERS[index]));
        hash /= 27;
    }
    letters
}

/// The hash of a workload's template.
fn template_hash(workload: &Value) -> String {
    suffix(&workload["spec"]["template"].to_string(), 10)
}

/// Sets a count, which is left out where it is zero.
fn put_count(status: &mut Value, field: &str, count: i64) {
    if count > 0 {
        status[field] = count.into();
    }
}

fn as_count(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
