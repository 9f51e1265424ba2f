//! Whether a value can be read into the types of its schema: without that nothing can be merged, and nobody's fields are
//! tracked.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{Additional, ListType, Node};

/// What does not fit, in the words of the library that merges.
pub(super) fn faults(node: &Node, value: &Value, path: &str, found: &mut Vec<String>) {
    let wanted = node.types.first().map(String::as_str).unwrap_or_default();
    let wrong = match (wanted, value) {
        (_, Value::Null) | ("" | "object", Value::Object(_)) | ("" | "array", Value::Array(_)) => None,
        _ if node.types.len() != 1 || node.preserve_unknown => None,
        ("string", other) if !other.is_string() => Some(format!("expected string, got {other}")),
        ("boolean", other) if !other.is_boolean() => Some(format!("expected boolean, got {other}")),
        ("integer" | "number", other) if !other.is_number() => {
            Some(format!("expected numeric (int or float), got {}", go_type(other)))
        }
        ("array", other) => Some(format!("expected list, got {other}")),
        ("object", other) => Some(format!("expected map, got {other}")),
        _ => None,
    };
    if let Some(wrong) = wrong {
        found.push(format!("{path}: {wrong}"));
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let within = match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => property,
                    (None, Some(Additional::Of(of_all))) => of_all,
                    _ => continue,
                };
                faults(within, value, &format!("{path}.{name}"), found);
            }
        }
        Value::Array(items) => {
            if let ListType::Map(keys) = &node.list {
                let mut seen = BTreeSet::new();
                for item in items {
                    let key = shown(keys, item);
                    if !seen.insert(key.clone()) {
                        found.push(format!("{path}: duplicate entries for key [{key}]"));
                        return;
                    }
                }
            }
            for (index, item) in items.iter().enumerate() {
                if let Some(of_items) = node.items.as_deref() {
                    let within = match &node.list {
                        ListType::Map(keys) => format!("{path}[{}]", shown(keys, item)),
                        _ => format!("{path}[{index}]"),
                    };
                    faults(of_items, item, &within, found);
                }
            }
        }
        _ => {}
    }
}

fn shown(keys: &[String], item: &Value) -> String {
    let none = Map::new();
    let fields = item.as_object().unwrap_or(&none);
    let pairs = keys.iter().filter_map(|key| Some(format!("{key}={}", fields.get(key)?)));
    pairs.collect::<Vec<_>>().join(",")
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        _ => "map[string]interface {}",
    }
}
