//! The scale of a workload: a small object of its own, made from the workload and written back into it.

use serde_json::{Value, json};

use super::call::Call;
use super::path::Place;
use super::status::{About, Result, Status, invalid_value};
use super::write::Done;
use super::{Server, decode, metadata, patch};

/// The scale of a workload.
pub(crate) fn of(workload: &Value) -> Value {
    let mut metadata = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        metadata[field] = workload["metadata"][field].clone();
    }
    let replicas = workload["spec"]["replicas"].as_i64().unwrap_or_default();
    // The API leaves zeros out here.
    let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
    let mut status = json!({"replicas": workload["status"]["replicas"].as_i64().unwrap_or_default()});
    let selector = selector(&workload["spec"]["selector"]);
    if !selector.is_empty() {
        status["selector"] = selector.into();
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status,
    })
}

/// The labels as a selector's text. Expressions are left to whoever uses them first.
fn selector(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object();
    let pairs = labels.into_iter().flatten();
    pairs
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(",")
}

/// The quality of service of a pod, from what its containers ask for.
pub(crate) fn quality(pod: &Value) -> &'static str {
    let containers = pod["spec"]["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    let resources =
        |container: &Value, kind: &str| container["resources"][kind].as_object().cloned().unwrap_or_default();
    if containers
        .iter()
        .all(|one| resources(one, "requests").is_empty() && resources(one, "limits").is_empty())
    {
        return "BestEffort";
    }
    let guaranteed = containers.iter().all(|one| {
        let (requests, limits) = (resources(one, "requests"), resources(one, "limits"));
        ["cpu", "memory"].iter().all(|kind| {
            let limit = limits.get(*kind);
            limit.is_some() && requests.get(*kind).or(limit) == limit
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

impl Server {
    pub(crate) fn get_scale(&self, call: &Call<'_>) -> Result<Value> {
        let Place { name, .. } = call.place;
        let workload = self.store.get(&call.resource.table, &call.key());
        workload.map(|workload| of(workload)).ok_or_else(|| Status::not_found(call.resource, name))
    }

    /// Replaces the scale, or patches it.
    pub(crate) fn update_scale(&mut self, call: &Call<'_>, patch: Option<&str>) -> Result<Done> {
        let Some(old) = self.store.get(&call.resource.table, &call.key()).cloned() else {
            return Err(Status::not_found(call.resource, &call.place.name));
        };
        let scale = match patch {
            Some(content_type) => patch::patched(of(&old), content_type, &call.request.body)?,
            None => call.json()?,
        };
        let replicas = scale["spec"].get("replicas").filter(|replicas| !replicas.is_null());
        let replicas = match replicas {
            None => 0,
            Some(replicas) => replicas.as_i64().ok_or_else(|| {
                let why = format!(
                    "json: cannot unmarshal {} into Go struct field ScaleSpec.spec.replicas of type int32",
                    decode::type_name(replicas)
                );
                if patch.is_some() {
                    return Status::unreadable_patch(&why);
                }
                Status::bad_request(format!("Scale in version \"v1\" cannot be handled as a Scale: {why}"))
            })?,
        };
        if replicas < 0 {
            let why = "must be greater than or equal to 0";
            let cause = invalid_value("spec.replicas", &replicas.into(), why);
            let about = About::other("autoscaling", "Scale", &call.place.name);
            return Err(Status::invalid(&about, &[cause]));
        }
        let mut new = Value::clone(&old);
        new["spec"]["replicas"] = replicas.into();
        metadata::keep(&mut new, &scale, "resourceVersion");
        let uid = metadata::text(&scale, "uid");
        if !uid.is_empty() {
            metadata::set(&mut new, "uid", uid);
        }
        let (status, written) = self.update_object(call, &old, new, true)?;
        Ok((status, of(&written)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_of_zero_does_not_say_so() {
        let workload = json!({
            "metadata": {"name": "a"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"b": "2", "a": "1"}}},
            "status": {"replicas": 2},
        });
        let scale = of(&workload);
        assert_eq!(scale["spec"], json!({}));
        assert_eq!(scale["status"], json!({"replicas": 2, "selector": "a=1,b=2"}));
    }

    #[test]
    fn requests_make_a_pod_burstable() {
        let pod = |resources: Value| json!({"spec": {"containers": [{"resources": resources}]}});
        assert_eq!(quality(&pod(json!({}))), "BestEffort");
        assert_eq!(quality(&pod(json!({"requests": {"cpu": "1m"}}))), "Burstable");
        assert_eq!(quality(&pod(json!({"limits": {"cpu": "1", "memory": "1Gi"}}))), "Guaranteed");
    }
}
