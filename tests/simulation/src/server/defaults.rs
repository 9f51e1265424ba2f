//! What the server puts into built-in objects that do not say it: only what scenarios can see.

use serde_json::{Map, Value, json};

use super::kinds::Resource;

/// Sets a field that is not there.
fn default(object: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = object
        && fields.get(field).is_none_or(Value::is_null)
    {
        fields.insert(field.to_owned(), value.into());
    }
}

/// Brings a built-in object into the form in which it is kept.
pub(crate) fn complete(resource: &Resource, object: &mut Value) {
    drop_nulls(object);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "secrets") => complete_secret(object),
        ("", "configmaps") => drop_empty(object, &["data", "binaryData"]),
        ("", "namespaces") => complete_namespace(object),
        ("", "pods") => {
            default(object, "spec", json!({}));
            complete_pod(&mut object["spec"]);
            default(&mut object["spec"], "enableServiceLinks", true);
        }
        ("", "services") => complete_service(object),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => {
            complete_workload(&resource.plural, object);
        }
        ("batch", "jobs") => complete_job(&mut object["spec"]),
        ("batch", "cronjobs") => {
            let spec = &mut object["spec"];
            default(spec, "concurrencyPolicy", "Allow");
            default(spec, "suspend", false);
            default(spec, "successfulJobsHistoryLimit", 3);
            default(spec, "failedJobsHistoryLimit", 1);
            if spec["jobTemplate"]["spec"].is_object() {
                complete_job(&mut spec["jobTemplate"]["spec"]);
            }
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => {
            let spec = &mut object["spec"];
            default(spec, "failurePolicy", "Fail");
            let constraints = &mut spec["matchConstraints"];
            default(constraints, "matchPolicy", "Equivalent");
            default(constraints, "namespaceSelector", json!({}));
            default(constraints, "objectSelector", json!({}));
            for rule in
                constraints.get_mut("resourceRules").and_then(Value::as_array_mut).into_iter().flatten()
            {
                default(rule, "scope", "*");
            }
        }
        ("apiextensions.k8s.io", _) => super::crd::complete(object),
        ("coordination.k8s.io", "leases") => default(object, "spec", json!({})),
        ("" | "events.k8s.io", "events") => complete_event(object),
        _ => {}
    }
}

/// Null is "not set" to every built-in kind.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

fn drop_empty(object: &mut Value, names: &[&str]) {
    if let Value::Object(fields) = object {
        fields.retain(|key, value| {
            !(names.contains(&key.as_str()) && value.as_object().is_some_and(Map::is_empty))
        });
    }
}

fn complete_secret(object: &mut Value) {
    if let Some(Value::Object(plain)) = object.as_object_mut().and_then(|fields| fields.remove("stringData"))
    {
        for (key, value) in plain {
            object["data"][key] = base64(value.as_str().unwrap_or_default().as_bytes()).into();
        }
    }
    drop_empty(object, &["data"]);
    default(object, "type", "Opaque");
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let mut word = 0_usize;
        for index in 0..3 {
            word = word << 8 | usize::from(chunk.get(index).copied().unwrap_or_default());
        }
        for index in 0..4 {
            let digit = DIGITS[word >> (18 - 6 * index) & 63];
            out.push(if index <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

fn complete_namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    if name.is_string() {
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
    default(object, "spec", json!({}));
    default(object, "status", json!({}));
}

/// What is always there in an Event, if only as nothing.
fn complete_event(object: &mut Value) {
    for field in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        default(object, field, Value::Null);
    }
    for field in ["involvedObject", "source"] {
        default(object, field, json!({}));
    }
    for field in ["reportingComponent", "reportingInstance"] {
        default(object, field, "");
    }
    // A reference says nothing by an empty text.
    for field in ["involvedObject", "related", "source"] {
        if let Some(Value::Object(fields)) = object.get_mut(field) {
            fields.retain(|_, value| value != "");
        }
    }
}

fn complete_service(object: &mut Value) {
    default(object, "spec", json!({}));
    let spec = &mut object["spec"];
    default(spec, "type", "ClusterIP");
    default(spec, "sessionAffinity", "None");
    default(spec, "internalTrafficPolicy", "Cluster");
    if let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) {
        for port in ports {
            let number = port["port"].clone();
            default(port, "protocol", "TCP");
            default(port, "targetPort", number);
        }
    }
    default(object, "status", json!({"loadBalancer": {}}));
}

fn complete_workload(plural: &str, object: &mut Value) {
    default(object, "spec", json!({}));
    default(object, "status", json!({}));
    let spec = &mut object["spec"];
    if plural != "daemonsets" {
        default(spec, "replicas", 1);
    }
    match plural {
        "deployments" => {
            default(spec, "strategy", json!({}));
            default(&mut spec["strategy"], "type", "RollingUpdate");
            if spec["strategy"]["type"] == "RollingUpdate" {
                default(&mut spec["strategy"], "rollingUpdate", json!({}));
                default(&mut spec["strategy"]["rollingUpdate"], "maxUnavailable", "25%");
                default(&mut spec["strategy"]["rollingUpdate"], "maxSurge", "25%");
            }
            default(spec, "revisionHistoryLimit", 10);
            default(spec, "progressDeadlineSeconds", 600);
        }
        "statefulsets" => {
            default(spec, "podManagementPolicy", "OrderedReady");
            default(spec, "updateStrategy", json!({"type": "RollingUpdate"}));
            if spec["updateStrategy"]["type"] == "RollingUpdate" {
                default(&mut spec["updateStrategy"], "rollingUpdate", json!({"partition": 0}));
            }
            default(spec, "revisionHistoryLimit", 10);
            let retention = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            default(spec, "persistentVolumeClaimRetentionPolicy", retention);
        }
        _ => {}
    }
    complete_template(spec);
}

fn complete_job(spec: &mut Value) {
    if spec.get("parallelism").is_none() {
        default(spec, "completions", 1);
    }
    default(spec, "parallelism", 1);
    default(spec, "backoffLimit", if spec.get("backoffLimitPerIndex").is_some() { i32::MAX } else { 6 });
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    default(spec, "manualSelector", false);
    let replaced = if spec.get("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
    default(spec, "podReplacementPolicy", replaced);
    complete_template(spec);
}

fn complete_template(spec: &mut Value) {
    if spec["template"]["spec"].is_object() {
        complete_pod(&mut spec["template"]["spec"]);
    }
}

/// What admission puts into pods. The volume with the account's token is left out: nothing runs that would read it.
pub(crate) fn admit_pod(spec: &mut Value) {
    default(spec, "serviceAccountName", "default");
    let account = spec["serviceAccountName"].clone();
    default(spec, "serviceAccount", account);
    default(spec, "priority", 0);
    default(spec, "preemptionPolicy", "PreemptLowerPriority");
    let node = |problem: &str| {
        json!({
            "key": format!("node.kubernetes.io/{problem}"), "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300,
        })
    };
    default(spec, "tolerations", json!([node("not-ready"), node("unreachable")]));
}

fn complete_pod(spec: &mut Value) {
    default(spec, "restartPolicy", "Always");
    default(spec, "terminationGracePeriodSeconds", 30);
    default(spec, "dnsPolicy", "ClusterFirst");
    default(spec, "securityContext", json!({}));
    default(spec, "schedulerName", "default-scheduler");
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        default(spec, "serviceAccount", account);
    }
    for list in ["initContainers", "containers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let image = container["image"].as_str().unwrap_or_default();
            let tag = image.rsplit('/').next().unwrap_or_default().split_once(':').map(|(_, tag)| tag);
            let newest = !image.contains('@') && tag.is_none_or(|tag| tag == "latest");
            default(container, "imagePullPolicy", if newest { "Always" } else { "IfNotPresent" });
            default(container, "terminationMessagePath", "/dev/termination-log");
            default(container, "terminationMessagePolicy", "File");
            default(container, "resources", json!({}));
            for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
                default(port, "protocol", "TCP");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_base64() {
        for (bytes, text) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj"), ("abcd", "YWJjZA==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn the_tag_says_how_an_image_is_pulled() {
        let policy = |image: &str| {
            let mut spec = json!({"containers": [{"name": "main", "image": image}]});
            complete_pod(&mut spec);
            spec["containers"][0]["imagePullPolicy"].as_str().unwrap().to_owned()
        };
        assert_eq!(policy("a:1"), "IfNotPresent");
        assert_eq!(policy("host:5000/a"), "Always");
        assert_eq!(policy("a:latest"), "Always");
        assert_eq!(policy("a@sha256:00"), "IfNotPresent");
    }
}
