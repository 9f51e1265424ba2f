//! Events are served by two groups that name the same fields differently. They are stored as the core group has them.

use serde_json::{Map, Value};

/// The name in the core group, and in events.k8s.io.
const NAMES: [(&str, &str); 7] = [
    ("message", "note"),
    ("involvedObject", "regarding"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// As events.k8s.io shows it.
pub(crate) fn to_new(event: &mut Value) {
    rename(event, "events.k8s.io/v1", |(core, new)| (core, new));
    if let Value::Object(fields) = event {
        fields.retain(|name, value| !(name.starts_with("reporting") && value == ""));
    }
}

/// As it is stored.
pub(crate) fn to_core(event: &mut Value) {
    rename(event, "v1", |(core, new)| (new, core));
}

fn rename(
    event: &mut Value,
    api_version: &str,
    order: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Value::Object(fields) = event else { return };
    fields.insert("apiVersion".to_owned(), api_version.into());
    let mut renamed = Map::new();
    for pair in NAMES {
        let (from, to) = order(pair);
        if let Some(value) = fields.remove(from) {
            renamed.insert(to.to_owned(), value);
        }
    }
    fields.extend(renamed);
}
