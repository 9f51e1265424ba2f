//! The table, by subject.

mod access;
mod applying;
mod creating;
mod definitions;
mod deleting;
mod discovery;
mod fields;
mod listing;
mod namespaces;
mod owners;
mod patching;
mod policies;
mod refusals;
mod schemas;
mod updating;
mod watching;
mod workloads;

use serde_json::{Value, json};

use super::row::Case;

/// Every subject with its cases.
#[must_use]
pub fn subjects() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("access", access::cases()),
        ("applying", applying::cases()),
        ("creating", creating::cases()),
        ("definitions", definitions::cases()),
        ("deleting", deleting::cases()),
        ("discovery", discovery::cases()),
        ("fields", fields::cases()),
        ("listing", listing::cases()),
        ("namespaces", namespaces::cases()),
        ("owners", owners::cases()),
        ("patching", patching::cases()),
        ("policies", policies::cases()),
        ("refusals", refusals::cases()),
        ("schemas", schemas::cases()),
        ("updating", updating::cases()),
        ("watching", watching::cases()),
        ("workloads", workloads::cases()),
    ]
}

/// The cases of a subject.
#[must_use]
pub fn subject(name: &str) -> Vec<Case> {
    subjects().into_iter().find(|(subject, _)| *subject == name).map(|(_, cases)| cases).unwrap_or_default()
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
const SECRETS: &str = "/api/v1/namespaces/{ns}/secrets";
const PODS: &str = "/api/v1/namespaces/{ns}/pods";
const EVENTS: &str = "/api/v1/namespaces/{ns}/events";
const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/{ns}/events";
const NAMESPACES: &str = "/api/v1/namespaces";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/{ns}/deployments";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/{ns}/statefulsets";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/{ns}/replicasets";
const WIDGETS: &str = "/apis/fixture.belay.dev/v1/namespaces/{ns}/widgets";
const GADGETS: &str = "/apis/fixture.belay.dev/v1/namespaces/{ns}/gadgets";
const STATIONS: &str = "/apis/fixture.belay.dev/v1/stations";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The path of an object, with whatever follows its name.
fn at(collection: &str, name: &str) -> String {
    format!("{collection}/{name}")
}

/// A ConfigMap with one key.
fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

/// A Widget with as little as it needs.
fn widget(name: &str) -> Value {
    json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": 1}})
}

/// A Gadget.
fn gadget(name: &str) -> Value {
    json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": {"widget": "w"}})
}

/// A Station, whose name must be the case's own: it stands in no namespace.
fn station(name: &str) -> Value {
    json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Station", "metadata": {"name": name}, "spec": {"state": "Closed"}})
}

/// An object with more fields: a merge patch on top of it.
fn with(mut object: Value, more: &Value) -> Value {
    json_patch::merge(&mut object, more);
    object
}
