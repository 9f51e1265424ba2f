//! What the step reads.

use belay_runtime::{
    Failure, FieldPath, Item, ObjectRef, Reader, kinds,
    object::{is_going, text},
};
use serde_json::Value;

use crate::{Args, SCALED_OBJECT};

/// All that the step read before it decided.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The workloads that it was given.
    pub workloads: Vec<Workload>,
    /// Objects that stand in the way.
    pub blockers: Vec<ObjectRef>,
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Itself.
    pub item: Item,
    /// How its pods are chosen.
    pub selector: String,
    /// Pods of it that run or may still run.
    pub pods: usize,
    /// `ScaledObjects` that would scale it up again.
    pub scalers: Vec<ObjectRef>,
    /// When an earlier run of this step scaled it down.
    pub scaled_before: Option<String>,
}

pub(crate) async fn read(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
    let mut snapshot = Snapshot::default();
    let touched = reader.touched_before().await?;
    for object in &args.workloads {
        let item = reader.get(object).await?;
        let namespace = object.namespace.as_deref();
        let selector = item.live.as_deref().map(selector).unwrap_or_default();
        let pods = if selector.is_empty() {
            0
        } else {
            let pods = reader.list_selected(&kinds::POD, namespace, Some(&selector)).await?;
            pods.iter().filter_map(|pod| pod.live.as_deref()).filter(|pod| counts(pod)).count()
        };
        let scalers = if reader.is_served(&SCALED_OBJECT) {
            reader
                .scan(&SCALED_OBJECT, namespace, |scaler| {
                    (!is_going(scaler) && targets(scaler, object)).then(|| SCALED_OBJECT.object_of(scaler))
                })
                .await?
        } else {
            Vec::new()
        };
        let before = touched.get(&object.to_string()).filter(|outcome| outcome.what == "scaled");
        let scaled_before = before.map(|outcome| outcome.at.clone());
        snapshot.workloads.push(Workload { item, selector, pods, scalers, scaled_before });
    }
    for blocker in &args.refuse_while {
        // Not served means that none exist.
        let Some(kind) = reader.find_resource(&blocker.plural, &blocker.group).await? else { continue };
        let field = blocker.field.as_deref().map(FieldPath::dotted);
        let found = reader
            .scan(&kind, None, |object| {
                field.as_ref().is_none_or(|field| field.get(object).is_some()).then(|| kind.object_of(object))
            })
            .await?;
        snapshot.blockers.extend(found);
    }
    Ok(snapshot)
}

/// A pod in a terminal phase runs nothing any more.
pub(crate) fn counts(pod: &Value) -> bool {
    !matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"))
}

/// The label selector of a workload, in the form that queries take.
fn selector(workload: &Value) -> String {
    let selector = &workload["spec"]["selector"];
    let mut terms: Vec<String> = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        terms.push(format!("{key}={}", value.as_str().unwrap_or_default()));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = text(expression, "/key").unwrap_or_default();
        let values: Vec<&str> =
            expression["values"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        terms.push(match text(expression, "/operator") {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms.join(",")
}

fn targets(scaler: &Value, workload: &ObjectRef) -> bool {
    text(scaler, "/spec/scaleTargetRef/name") == Some(&workload.name)
        && text(scaler, "/spec/scaleTargetRef/kind").unwrap_or("Deployment") == workload.kind.kind
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_is_written_as_queries_take_it() {
        let workload = json!({"spec": {"selector": {
            "matchLabels": {"app": "bus"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }}});
        assert_eq!(selector(&workload), "app=bus,tier in (a,b),!old");
    }

    #[test]
    fn a_scaled_object_without_a_kind_means_a_deployment() {
        let scaler = json!({"spec": {"scaleTargetRef": {"name": "bus"}}});
        assert!(targets(&scaler, &kinds::DEPLOYMENT.object("ns", "bus")));
        assert!(!targets(&scaler, &kinds::STATEFUL_SET.object("ns", "bus")));
    }
}
