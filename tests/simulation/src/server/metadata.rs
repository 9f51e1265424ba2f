//! Rules about metadata that hold for every kind.

use serde_json::{Map, Value};

use super::kinds::Resource;
use super::schema::Cause;
use super::status::{forbidden_value, invalid_value, required_value};

/// What metadata can hold; the server drops the rest.
const KNOWN: [&str; 15] = [
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Brings metadata into the form in which the server keeps it: nothing that is unknown, null or empty. That
/// managedFields are empty says something, so they stay.
pub(crate) fn normalise(object: &mut Value) {
    let Value::Object(fields) = object else { return };
    let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if !metadata.is_object() {
        *metadata = Value::Object(Map::new());
    }
    if let Value::Object(metadata) = metadata {
        metadata.retain(|key, value| {
            let is_empty = match value {
                Value::Null => true,
                Value::String(text) => text.is_empty(),
                Value::Array(list) => list.is_empty() && key != "managedFields",
                Value::Object(map) => map.is_empty(),
                _ => false,
            };
            KNOWN.contains(&key.as_str()) && key != "selfLink" && !is_empty
        });
    }
}

/// Whether metadata can hold such a field.
pub(crate) fn is_known(field: &str) -> bool {
    KNOWN.contains(&field)
}

pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|all| all.get(field)).and_then(Value::as_str).unwrap_or_default()
}

pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    object["metadata"][field] = value.into();
}

pub(crate) fn unset(object: &mut Value, field: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove(field);
    }
}

/// The field as it is in another object: set, or not set.
pub(crate) fn keep(object: &mut Value, other: &Value, field: &str) {
    match other.get("metadata").and_then(|all| all.get(field)) {
        Some(value) => set(object, field, value.clone()),
        None => unset(object, field),
    }
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    let all = object.get("metadata").and_then(|all| all.get("finalizers")).and_then(Value::as_array);
    all.into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    if finalizers.is_empty() {
        unset(object, "finalizers");
    } else {
        set(object, "finalizers", finalizers.to_vec());
    }
}

pub(crate) fn is_terminating(object: &Value) -> bool {
    !text(object, "deletionTimestamp").is_empty()
}

pub(crate) fn grace_period(object: &Value) -> Option<i64> {
    object.get("metadata")?.get("deletionGracePeriodSeconds")?.as_i64()
}

pub(crate) fn generation(object: &Value) -> i64 {
    object.get("metadata").and_then(|all| all.get("generation")).and_then(Value::as_i64).unwrap_or_default()
}

pub(crate) const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

pub(crate) fn is_label(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(plain) && text.ends_with(plain) && text.chars().all(|c| plain(c) || c == '-')
}

/// What is wrong with a name, if anything.
fn name_faults(resource: &Resource, name: &str) -> Vec<String> {
    let too_long =
        |most: usize| (name.len() > most).then(|| format!("must be no more than {most} characters"));
    let (most, fits, rule) = match (resource.group.as_str(), resource.plural.as_str()) {
        // Names of RBAC objects may hold anything that can be in a path.
        ("rbac.authorization.k8s.io", _) => return path_faults(name),
        ("", "namespaces") => (63, is_label(name), LABEL),
        ("", "services") => {
            (63, is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase()), LABEL_1035)
        }
        _ => (253, name.split('.').all(is_label), SUBDOMAIN),
    };
    too_long(most).into_iter().chain((!fits).then(|| rule.to_owned())).collect()
}

fn path_faults(name: &str) -> Vec<String> {
    match name {
        "." => vec!["may not be '.'".to_owned()],
        ".." => vec!["may not be '..'".to_owned()],
        _ => ['/', '%']
            .into_iter()
            .filter(|bad| name.contains(*bad))
            .map(|bad| format!("may not contain '{bad}'"))
            .collect(),
    }
}

/// What is wrong with the metadata of any object.
pub(crate) fn faults(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(object, "name");
    if name.is_empty() {
        causes.push(required_value("metadata.name", "name or generateName is required"));
    } else {
        let wrong = name_faults(resource, name).into_iter();
        causes.extend(wrong.map(|why| invalid_value("metadata.name", &name.into(), &why)));
    }
    let owners = object.get("metadata").and_then(|all| all.get("ownerReferences")).and_then(Value::as_array);
    for owner in owners.into_iter().flatten() {
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner.get(field).and_then(Value::as_str).unwrap_or_default().is_empty() {
                causes.push(invalid_value(&format!("metadata.ownerReferences.{field}"), &"".into(), why));
            }
        }
    }
    let finalizers = finalizers(object);
    if finalizers.contains(&"orphan") && finalizers.contains(&"foregroundDeletion") {
        let why = "finalizer orphan and foregroundDeletion cannot be both set";
        causes.push(invalid_value("metadata.finalizers", &finalizers.into(), why));
    }
    causes
}

/// What is wrong with a change of metadata.
pub(crate) fn change_faults(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if is_terminating(old) {
        let had = finalizers(old);
        let mut added: Vec<&str> = finalizers(new).into_iter().filter(|one| !had.contains(one)).collect();
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let list = added.iter().map(|one| format!("\"{one}\"")).collect::<Vec<_>>().join(", ");
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
            );
            causes.push(forbidden_value("metadata.finalizers", &why));
        }
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let of = |object: &Value| object["metadata"].get(field).cloned().unwrap_or_default();
        if of(old) != of(new) {
            causes.push(invalid_value(&format!("metadata.{field}"), &of(new), "field is immutable"));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::kinds::built_in;

    fn name_fault(plural: &str, name: &str) -> Option<String> {
        let resource = built_in()[&(String::new(), "v1".to_owned(), plural.to_owned())].clone();
        faults(&resource, &json!({"metadata": {"name": name}})).first().map(|cause| cause.message.clone())
    }

    #[test]
    fn names_are_checked_as_the_server_checks_them() {
        assert_eq!(name_fault("configmaps", "a.b-c.2"), None);
        let said = name_fault("configmaps", "A_b").unwrap();
        assert!(said.starts_with("Invalid value: \"A_b\": a lowercase RFC 1123 subdomain must"), "{said}");
        assert!(
            said.ends_with(r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"),
            "{said}"
        );
        assert!(name_fault("namespaces", "a.b").unwrap().contains("RFC 1123 label"));
        assert_eq!(name_fault("configmaps", "").unwrap(), "Required value: name or generateName is required");
    }

    #[test]
    fn a_terminating_object_gets_no_new_finalizers() {
        let old = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"]}});
        let mut new = old.clone();
        assert!(change_faults(&old, &new).is_empty());
        new["metadata"]["finalizers"] = json!(["a/b", "z/c", "a/c"]);
        let causes = change_faults(&old, &new);
        assert!(causes[0].message.ends_with(r#"found new finalizers []string{"a/c", "z/c"}"#), "{causes:?}");
    }

    #[test]
    fn what_is_empty_or_unknown_is_not_kept() {
        let mut object =
            json!({"metadata": {"name": "a", "labels": {}, "finalizers": [], "odd": 1, "uid": null}});
        normalise(&mut object);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }
}
