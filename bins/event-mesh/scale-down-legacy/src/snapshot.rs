//! What the step reads.

use std::collections::{BTreeMap, BTreeSet};

use belay_runtime::{
    Failure, FieldPath, Item, Kind, ObjectRef, Reader, Scope, kinds,
    object::{is_going, text},
};
use serde_json::Value;

use crate::{Args, SCALED_OBJECT};

/// All that the step read before it decided.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The workloads that it was given.
    pub workloads: Vec<Workload>,
    /// Kinds whose objects stand in the way, as far as they are served.
    pub blocking: Vec<Blocking>,
    /// Objects that stand in the way.
    pub blockers: Vec<ObjectRef>,
    /// Objects that hold a finalizer which only the workloads serve.
    pub held: Vec<Held>,
    /// Kinds of such objects, as far as they are served.
    pub releasing: Vec<Releasing>,
    /// Resources that flags name and that are not served: there are none of them, or the name is wrong.
    pub unserved: BTreeSet<String>,
}

/// A kind whose objects may hold finalizers which only the workloads serve.
#[derive(Clone, Debug)]
pub struct Releasing {
    /// Which.
    pub kind: Kind,
    /// Those finalizers.
    pub finalizers: Vec<String>,
    /// Objects that a person left out.
    pub left_out: Vec<ObjectRef>,
}

impl Releasing {
    /// The finalizers of an object that only the workloads serve.
    fn on(&self, object: &Value) -> Vec<String> {
        let on_it = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        let names = on_it.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        names.filter(|name| self.finalizers.contains(name)).collect()
    }

    /// Whether an object of the kind is being deleted, and only the workloads can finish that.
    pub(crate) fn holds_up(&self, object: &Value) -> bool {
        is_going(object)
            && !self.on(object).is_empty()
            && !self.left_out.contains(&self.kind.object_of(object))
    }
}

/// An object that holds finalizers which only the workloads serve.
#[derive(Clone, Debug)]
pub struct Held {
    /// Itself.
    pub item: Item,
    /// Those finalizers.
    pub released: Vec<String>,
}

/// A kind whose objects stand in the way.
#[derive(Clone, Debug)]
pub struct Blocking {
    /// Which.
    pub kind: Kind,
    /// Only objects that have this field.
    pub field: Option<FieldPath>,
}

impl Blocking {
    /// Whether an object of the kind stands in the way.
    pub(crate) fn has(&self, object: &Value) -> bool {
        self.field.as_ref().is_none_or(|field| field.get(object).is_some())
    }
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Itself.
    pub item: Item,
    /// A person left it out: it goes on as it is.
    pub is_excluded: bool,
    /// How its pods are chosen; empty if it is gone, and nobody knows any more.
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
    // Named twice, it is scaled once.
    for object in args.workloads.iter().collect::<BTreeSet<_>>() {
        let item = reader.get(object).await?;
        let namespace = object.namespace.as_deref();
        let selector = item.live().as_ref().map(selector).unwrap_or_default();
        let chosen = (!selector.is_empty()).then_some(selector.as_str());
        let pods = reader.list_selected(&kinds::POD, namespace, chosen).await?;
        let is_its = |pod: &Value| counts(pod) && (chosen.is_some() || is_made_for(pod, object));
        let pods = pods.iter().filter_map(Item::live).filter(is_its).count();
        let scalers = if reader.is_served(&SCALED_OBJECT) {
            reader
                .scan(&SCALED_OBJECT, namespace, |scaler| {
                    let scales = !is_going(scaler) && !is_paused(scaler) && targets(scaler, object);
                    scales.then(|| SCALED_OBJECT.object_of(scaler))
                })
                .await?
        } else {
            Vec::new()
        };
        let before = touched.get(&object.to_string()).filter(|outcome| outcome.what == "scaled");
        let scaled_before = before.map(|outcome| outcome.at.clone());
        let is_excluded = reader.is_excluded(object);
        snapshot.workloads.push(Workload { item, is_excluded, selector, pods, scalers, scaled_before });
    }
    for blocker in &args.refuse_while {
        let Some(kind) = reader.find_resource(&blocker.plural, &blocker.group).await? else {
            snapshot.unserved.insert(format!("{}.{}", blocker.plural, blocker.group));
            continue;
        };
        let blocking = Blocking { kind, field: blocker.field.as_deref().map(FieldPath::dotted) };
        let in_the_way = |object: &Value| blocking.has(object).then(|| blocking.kind.object_of(object));
        snapshot.blockers.extend(reader.scan(&blocking.kind, None, in_the_way).await?);
        snapshot.blocking.push(blocking);
    }
    read_held(args, reader, &mut snapshot).await?;
    Ok(snapshot)
}

async fn read_held(args: &Args, reader: &Reader, snapshot: &mut Snapshot) -> Result<(), Failure> {
    let mut by_resource: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
    for release in &args.release_finalizers {
        by_resource.entry((&release.plural, &release.group)).or_default().push(release.finalizer.clone());
    }
    for ((plural, group), finalizers) in by_resource {
        let Some(kind) = reader.find_resource(plural, group).await? else {
            snapshot.unserved.insert(format!("{plural}.{group}"));
            continue;
        };
        let mut releasing = Releasing { kind, finalizers, left_out: Vec::new() };
        for item in reader.list(&releasing.kind, None).await? {
            let released = item.live().map(|live| releasing.on(&live)).unwrap_or_default();
            if released.is_empty() {
                continue;
            }
            if reader.is_excluded(&item.object) {
                releasing.left_out.push(item.object);
            } else {
                snapshot.held.push(Held { item, released });
            }
        }
        snapshot.releasing.push(releasing);
    }
    Ok(())
}

/// A pod in a terminal phase runs nothing any more.
pub(crate) fn counts(pod: &Value) -> bool {
    !matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed"))
}

impl Workload {
    /// Where its pods are seen.
    pub(crate) fn pod_scope(&self) -> Scope {
        let namespace = self.item.object.namespace.clone();
        let selector = (!self.selector.is_empty()).then(|| self.selector.clone());
        Scope { namespace, selector, ..Scope::everywhere(kinds::POD) }
    }

    /// Whether a pod that is seen there is one of its own.
    pub(crate) fn has(&self, pod: &Value) -> bool {
        !self.selector.is_empty() || is_made_for(pod, &self.item.object)
    }
}

/// Whether a pod was made for a workload, by its owner's name: with the workload its selector is gone.
fn is_made_for(pod: &Value, workload: &ObjectRef) -> bool {
    let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
    owners.into_iter().flatten().any(|owner| {
        let (kind, name) = (text(owner, "/kind"), text(owner, "/name").unwrap_or_default());
        if workload.kind == kinds::DEPLOYMENT {
            // A Deployment's ReplicaSets are called after it, with a hash of their template behind.
            let hash = name.strip_prefix(workload.name.as_str()).and_then(|rest| rest.strip_prefix('-'));
            kind == Some("ReplicaSet") && hash.is_some_and(|hash| !hash.is_empty() && !hash.contains('-'))
        } else {
            kind == Some(workload.kind.kind) && name == workload.name
        }
    })
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

/// Whether a `ScaledObject` leaves its target at zero: the number of replicas to pause at goes before a plain pause.
fn is_paused(scaler: &Value) -> bool {
    let note = |key: &str| scaler.pointer("/metadata/annotations")?.get(key)?.as_str();
    match note("autoscaling.keda.sh/paused-replicas") {
        Some(replicas) => replicas == "0",
        None => note("autoscaling.keda.sh/paused") == Some("true"),
    }
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
    fn a_pod_of_a_workload_that_is_gone_is_known_by_its_owner() {
        let pod =
            |kind: &str, name: &str| json!({"metadata": {"ownerReferences": [{"kind": kind, "name": name}]}});
        let deployment = kinds::DEPLOYMENT.object("ns", "bus");
        assert!(is_made_for(&pod("ReplicaSet", "bus-6d4cf56db6"), &deployment));
        for other in ["bus", "bus-", "bus-extra-6d4cf56db6", "omnibus-6d4cf56db6"] {
            assert!(!is_made_for(&pod("ReplicaSet", other), &deployment), "{other}");
        }
        assert!(!is_made_for(&pod("StatefulSet", "bus-6d4cf56db6"), &deployment));
        assert!(is_made_for(&pod("StatefulSet", "bus"), &kinds::STATEFUL_SET.object("ns", "bus")));
        assert!(is_made_for(&pod("ReplicaSet", "bus"), &kinds::REPLICA_SET.object("ns", "bus")));
        assert!(!is_made_for(&json!({"metadata": {}}), &deployment));
    }

    #[test]
    fn a_scaled_object_is_paused_if_it_leaves_its_target_at_zero() {
        let scaler = |notes: &[(&str, &str)]| {
            let note = |(key, value): &(&str, &str)| (format!("autoscaling.keda.sh/{key}"), json!(value));
            json!({"metadata": {"annotations": notes.iter().map(note).collect::<serde_json::Map<_, _>>()}})
        };
        assert!(is_paused(&scaler(&[("paused-replicas", "0")])));
        assert!(is_paused(&scaler(&[("paused", "true")])));
        assert!(!is_paused(&scaler(&[("paused", "false")])));
        assert!(!is_paused(&scaler(&[("paused-replicas", "2"), ("paused", "true")])));
        assert!(!is_paused(&json!({"metadata": {}})));
    }

    #[test]
    fn an_object_that_is_being_deleted_and_holds_the_finalizer_must_be_finished_unless_it_was_left_out() {
        let left_out = vec![kinds::CONFIG_MAP.object("ns", "excluded")];
        let releasing = Releasing { kind: kinds::CONFIG_MAP, finalizers: vec!["ours".into()], left_out };
        let object = |name: &str, finalizer: &str, going: bool| {
            let mut object =
                json!({"metadata": {"name": name, "namespace": "ns", "finalizers": ["other", finalizer]}});
            if going {
                object["metadata"]["deletionTimestamp"] = "now".into();
            }
            object
        };
        assert!(releasing.holds_up(&object("a", "ours", true)));
        assert!(!releasing.holds_up(&object("a", "ours", false)));
        assert!(!releasing.holds_up(&object("a", "theirs", true)));
        assert!(!releasing.holds_up(&object("excluded", "ours", true)));
    }

    #[test]
    fn a_scaled_object_without_a_kind_means_a_deployment() {
        let scaler = json!({"spec": {"scaleTargetRef": {"name": "bus"}}});
        assert!(targets(&scaler, &kinds::DEPLOYMENT.object("ns", "bus")));
        assert!(!targets(&scaler, &kinds::STATEFUL_SET.object("ns", "bus")));
    }
}
