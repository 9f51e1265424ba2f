//! What the real server checks in built-in objects, and in the metadata of all: labels, annotations, finalizers, owners,
//! and the keys of data.

use serde_json::Value;

use super::decode;
use super::kinds::Resource;
use super::metadata;
use super::schema::Cause;
use super::status::{Result, Status, forbidden_value, invalid_value, required_value, too_long};

const NAME_PART: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
    alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
    '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
    '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
    used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const DATA_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
    or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
/// The most that a Secret or a ConfigMap can hold.
const MOST_DATA: usize = 1_048_576;
/// The most that the annotations of an object can hold.
const MOST_ANNOTATIONS: usize = 262_144;
/// The largest body that is read.
const LARGEST_BODY: usize = 3_145_728;
/// The largest object that etcd stores.
const LARGEST_OBJECT: usize = 1_572_864;
/// The largest message that is sent to etcd.
const LARGEST_MESSAGE: usize = 2_097_152;
/// The longest part of a label.
const LONGEST_PART: usize = 63;
/// Finalizers that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["foregroundDeletion", "kubernetes", "orphan"];

/// Letters and digits at both ends, and a few others between them.
fn is_name_part(text: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric();
    text.starts_with(is_plain)
        && text.ends_with(is_plain)
        && text.chars().all(|letter| is_plain(letter) || "-_.".contains(letter))
}

/// What is wrong with a key that may have a domain before it.
fn qualified_name_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [domain, name] => {
            if domain.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else if !domain.split('.').all(metadata::is_label) {
                faults.push(format!("prefix part {}", metadata::SUBDOMAIN));
            }
            name
        }
        _ => {
            let rule = format!("a valid label key {NAME_PART}");
            return vec![format!(
                "{rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > LONGEST_PART {
        faults.push(format!("name part must be no more than {LONGEST_PART} bytes"));
    }
    if !is_name_part(name) {
        faults.push(format!("name part {NAME_PART}"));
    }
    faults
}

/// What is wrong with labels, annotations, finalizers and owners.
pub(crate) fn metadata_faults(resource: &Resource, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["labels", "annotations"] {
        let place = format!("metadata.{field}");
        for (key, value) in object["metadata"][field].as_object().into_iter().flatten() {
            // Annotations are checked in lower case.
            let checked = if field == "labels" { key.clone() } else { key.to_lowercase() };
            let wrong = qualified_name_faults(&checked).into_iter();
            causes.extend(wrong.map(|why| invalid_value(&place, &key.as_str().into(), &why)));
            let text = value.as_str().unwrap_or_default();
            if field == "labels" && text.len() > LONGEST_PART {
                let why = format!("must be no more than {LONGEST_PART} bytes");
                causes.push(invalid_value(&place, value, &why));
            }
            if field == "labels" && !text.is_empty() && !is_name_part(text) {
                causes.push(invalid_value(&place, value, LABEL_VALUE));
            }
        }
    }
    let annotations = object["metadata"]["annotations"].as_object().into_iter().flatten();
    let size: usize =
        annotations.map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum();
    if size > MOST_ANNOTATIONS {
        causes.push(too_long("metadata.annotations", MOST_ANNOTATIONS));
    }
    causes.extend(controller_fault(object));
    for (index, name) in metadata::finalizers(object).into_iter().enumerate() {
        let place = format!("metadata.finalizers[{index}]");
        let wrong = qualified_name_faults(name).into_iter();
        causes.extend(wrong.map(|why| invalid_value(&place, &name.into(), &why)));
        // Custom resources may have any.
        if resource.custom.is_none() && !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(invalid_value(&place, &name.into(), why));
        }
    }
    causes
}

/// Whether a body is one that is read to its end.
pub(crate) fn check_body(body: &[u8]) -> Result<()> {
    if body.len() > LARGEST_BODY {
        return Err(Status::body_too_large(LARGEST_BODY));
    }
    Ok(())
}

/// Whether etcd would store an object. The real server stores built-in ones in a shorter form.
pub(crate) fn check_size(object: &Value) -> Result<()> {
    let mut size = Size(0);
    // Counting cannot fail.
    let _ = serde_json::to_writer(&mut size, object);
    let size = size.0;
    if size > LARGEST_MESSAGE {
        return Err(Status::internal(format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({size} vs. \
             {LARGEST_MESSAGE})"
        )));
    }
    if size > LARGEST_OBJECT {
        return Err(Status::internal("etcdserver: request is too large"));
    }
    Ok(())
}

/// Counts what is written.
struct Size(usize);

impl std::io::Write for Size {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Nobody has two controllers.
fn controller_fault(object: &Value) -> Option<Cause> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let mut controllers = owners.iter().filter(|owner| owner["controller"] == true);
    let (first, second) = (controllers.next()?, controllers.next()?);
    let name = |owner: &Value| {
        format!(
            "{}/{}",
            owner["kind"].as_str().unwrap_or_default(),
            owner["name"].as_str().unwrap_or_default()
        )
    };
    // In the order in which Go has the fields.
    let fields = ["apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion"];
    let shown = |owner: &Value| {
        let all = fields.iter().filter_map(|field| Some(format!("\"{field}\":{}", owner.get(field)?)));
        format!("{{{}}}", all.collect::<Vec<_>>().join(","))
    };
    let all = owners.iter().map(shown).collect::<Vec<_>>().join(",");
    Some(Cause {
        reason: "FieldValueInvalid".to_owned(),
        message: format!(
            "Invalid value: [{all}]: Only one reference can have Controller set to true. Found \"true\" in references \
             for {} and {}",
            name(first),
            name(second)
        ),
        field: "metadata.ownerReferences".to_owned(),
    })
}

/// What is wrong with a built-in object besides its metadata.
pub(crate) fn object_faults(resource: &Resource, object: &Value) -> Vec<Cause> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "configmaps") => data_faults(object, false),
        ("", "secrets") => data_faults(object, true),
        ("apiextensions.k8s.io", _) => definition_faults(object),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => selector_faults(object),
        _ => Vec::new(),
    }
}

fn data_faults(object: &Value, is_secret: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in object[field].as_object().into_iter().flatten() {
            let place = format!("{field}[{key}]");
            let shown = Value::from(key.as_str());
            if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c)) {
                causes.push(invalid_value(&place, &shown, DATA_KEY));
            } else if key == "." || key == ".." {
                causes.push(invalid_value(&place, &shown, &format!("must not be '{key}'")));
            }
            if field == "data" && object["binaryData"].get(key).is_some() {
                causes.push(invalid_value(&place, &shown, "duplicate of key present in binaryData"));
            }
            let text = value.as_str().unwrap_or_default();
            size += if is_secret || field == "binaryData" { decode::decoded_size(text) } else { text.len() };
        }
    }
    if size > MOST_DATA {
        causes.push(too_long(if is_secret { "data" } else { "" }, MOST_DATA));
    }
    if is_secret && object["type"] == "kubernetes.io/tls" {
        let missing = ["tls.crt", "tls.key"].into_iter().filter(|key| object["data"].get(key).is_none());
        causes.extend(missing.map(|key| required_value(&format!("data[{key}]"), "")));
    }
    causes
}

fn definition_faults(crd: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &crd["spec"];
    let name = metadata::text(crd, "name");
    if name != format!("{}.{}", text(&spec["names"]["plural"]), text(&spec["group"])) {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(invalid_value("metadata.name", &name.into(), why));
    }
    let versions = spec["versions"].as_array().into_iter().flatten();
    if versions.filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(invalid_value("spec.versions", &spec["versions"], why));
    }
    causes
}

/// A workload selects the pods that it makes.
fn selector_faults(workload: &Value) -> Vec<Cause> {
    let selector = &workload["spec"]["selector"];
    if selector.is_null() {
        return vec![required_value("spec.selector", "")];
    }
    let labels = &workload["spec"]["template"]["metadata"]["labels"];
    let mut wanted = selector["matchLabels"].as_object().into_iter().flatten();
    if wanted.all(|(key, value)| labels.get(key) == Some(value)) {
        return Vec::new();
    }
    let why = "`selector` does not match template `labels`";
    vec![invalid_value("spec.template.metadata.labels", labels, why)]
}

/// What cannot be changed once it is there, besides metadata.
pub(crate) fn fixed_faults(resource: &Resource, old: &Value, new: &Value) -> Result<Vec<Cause>> {
    let differs = |pointer: &str| old.pointer(pointer) != new.pointer(pointer);
    let mut causes = Vec::new();
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "secrets" | "configmaps") => {
            if differs("/type") {
                causes.push(invalid_value("type", &new["type"], "field is immutable"));
            }
            if old["immutable"] == true {
                let why = "field is immutable when `immutable` is set";
                let fixed = ["immutable", "data", "binaryData"].into_iter();
                let changed = fixed.filter(|field| differs(&format!("/{field}")));
                causes.extend(changed.map(|field| forbidden_value(field, why)));
            }
        }
        ("apps", "statefulsets")
            if ["selector", "serviceName", "podManagementPolicy", "volumeClaimTemplates"]
                .iter()
                .any(|field| differs(&format!("/spec/{field}"))) =>
        {
            let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                       'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                       'minReadySeconds' are forbidden";
            causes.push(forbidden_value("spec", why));
        }
        ("apps" | "batch", _) if differs("/spec/selector") => {
            causes.push(invalid_value("spec.selector", &new["spec"]["selector"], "field is immutable"));
        }
        ("rbac.authorization.k8s.io", _) if differs("/roleRef") => {
            return Err(Status::not_simulated("a change of a binding's role"));
        }
        _ => {}
    }
    Ok(causes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::kinds::built_in;

    #[test]
    fn keys_of_labels_have_at_most_one_domain() {
        for (key, count) in [("a", 0), ("belay.dev/a", 0), ("a b", 1), ("a/b/c", 1), ("/a", 1), ("a/", 2)] {
            assert_eq!(qualified_name_faults(key).len(), count, "{key}");
        }
    }

    #[test]
    fn a_finalizer_needs_a_domain_unless_it_is_one_of_the_standard() {
        let pods = built_in()[&(String::new(), "v1".to_owned(), "pods".to_owned())].clone();
        let faults = |name: &str| metadata_faults(&pods, &json!({"metadata": {"finalizers": [name]}})).len();
        assert_eq!((faults("orphan"), faults("belay.dev/x"), faults("bare")), (0, 0, 1));
    }
}
