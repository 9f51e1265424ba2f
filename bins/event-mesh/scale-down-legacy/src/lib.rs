//! Scales the workloads of the old event bus to zero.
//!
//! **Why.** When every namespace is on the mesh, the bus must not run any more: it would deliver events a second time
//! as soon as somebody recreated one of its objects. It is not deleted yet, so that the way back stays open.
//!
//! **What it changes.** The replicas of the workloads that it is given, through the scale subresource, and waits
//! until their pods are gone, also those of a workload that is being deleted or was just deleted. A
//! `HorizontalPodAutoscaler` pauses by itself while its target has no replicas. Then it takes the finalizers that it is told
//! off the objects that stay: nobody would serve them any more, and neither the objects nor their namespaces could ever be
//! deleted. While a workload runs that was left out with `--exclude` it takes none off.
//!
//! **Undo** sets the replicas back, where they are still zero. The finalizers come back by the workload that serves them.
//!
//! **It refuses** while objects exist that only these workloads can finish: those it is told, and those that are being
//! deleted and hold such a finalizer. Where the workloads are down already, the latter are released too. It refuses a
//! `ReplicaSet` that a Deployment owns, since the Deployment would scale it up again. **It fails** when a pod is still there
//! at the deadline, and when an object that it would have refused for has appeared while the pods went, or is being deleted
//! since then: the replicas are set back, so that somebody finishes it.

mod plan;
mod snapshot;

use std::time::Duration;

use belay_runtime::{Common, Failure, Kind, Meta, Needs, ObjectRef, Plan, Reader, Rule, Step, kinds};
use clap::builder::BoolishValueParser;
use event_mesh_kinds::{FAMILY, STEPS, SYSTEM_NAMESPACE};

pub use snapshot::Snapshot;

/// What autoscales a workload from outside: it would scale it up again.
pub(crate) const SCALED_OBJECT: Kind =
    Kind::namespaced("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects");

/// The step.
pub struct ScaleDownLegacy;

/// Its flags.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Workload to scale to zero: a Deployment, StatefulSet or ReplicaSet. May be repeated.
    #[arg(long = "workload", env = "BELAY_WORKLOADS", value_delimiter = ',', value_parser = workload, required = true,
          value_name = "KIND/NAMESPACE/NAME")]
    pub workloads: Vec<ObjectRef>,
    /// Refuse when a workload does not exist, instead of skipping it.
    #[arg(long, env = "BELAY_MUST_EXIST", value_parser = BoolishValueParser::new())]
    pub must_exist: bool,
    /// Refuse while objects of this kind exist anywhere (with this field, where one is given). May be repeated.
    #[arg(long = "refuse-while", env = "BELAY_REFUSE_WHILE", value_delimiter = ',', value_parser = blocker,
          value_name = "RESOURCE.GROUP[:FIELD]")]
    pub refuse_while: Vec<Blocker>,
    /// Take this finalizer, which only the workloads serve, off all objects of this kind once they are down. May be
    /// repeated.
    #[arg(long = "release-finalizer", env = "BELAY_RELEASE_FINALIZERS", value_delimiter = ',', value_parser = release,
          value_name = "RESOURCE.GROUP=FINALIZER")]
    pub release_finalizers: Vec<Release>,
}

/// A finalizer that nobody serves once the workloads are down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// Resource name, such as `eventactivations`.
    pub plural: String,
    /// API group.
    pub group: String,
    /// The finalizer.
    pub finalizer: String,
}

/// A kind whose objects stand in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Resource name, such as `subscriptions`.
    pub plural: String,
    /// API group.
    pub group: String,
    /// Only objects that have this field.
    pub field: Option<String>,
}

fn workload(text: &str) -> Result<ObjectRef, String> {
    let kinds = [kinds::DEPLOYMENT, kinds::STATEFUL_SET, kinds::REPLICA_SET];
    match text.split('/').collect::<Vec<_>>()[..] {
        [kind, namespace, name] if !namespace.is_empty() && !name.is_empty() => kinds
            .iter()
            .find(|known| known.kind.eq_ignore_ascii_case(kind))
            .map(|known| known.object(namespace, name))
            .ok_or_else(|| {
                format!("'{kind}' cannot be scaled here: only Deployment, StatefulSet and ReplicaSet can")
            }),
        _ => Err(format!("'{text}' does not name a workload: write KIND/NAMESPACE/NAME")),
    }
}

/// Groups of Kubernetes itself may be one word: `apps`, `batch`.
fn is_group(text: &str) -> bool {
    text.split('.').all(|word| !word.is_empty())
}

fn release(text: &str) -> Result<Release, String> {
    match text.split_once('=').and_then(|(resource, finalizer)| Some((resource.split_once('.')?, finalizer)))
    {
        Some(((plural, group), finalizer))
            if !plural.is_empty() && is_group(group) && !finalizer.is_empty() =>
        {
            Ok(Release {
                plural: plural.to_owned(),
                group: group.to_owned(),
                finalizer: finalizer.to_owned(),
            })
        }
        _ => Err(format!("'{text}' does not name a finalizer of a resource: write RESOURCE.GROUP=FINALIZER")),
    }
}

fn blocker(text: &str) -> Result<Blocker, String> {
    let (resource, field) = match text.split_once(':') {
        Some((resource, field)) => (resource, Some(field.to_owned())),
        None => (text, None),
    };
    match resource.split_once('.') {
        Some((plural, group)) if !plural.is_empty() && is_group(group) && field.as_deref() != Some("") => {
            Ok(Blocker { plural: plural.to_owned(), group: group.to_owned(), field })
        }
        _ => Err(format!("'{text}' does not name a resource: write RESOURCE.GROUP or RESOURCE.GROUP:FIELD")),
    }
}

impl Step for ScaleDownLegacy {
    const META: Meta = Meta {
        name: "scale-down-legacy",
        family: FAMILY,
        family_steps: STEPS,
        purpose: "Scales the workloads of the old event bus to zero and waits until their pods are gone",
        default_home: SYSTEM_NAMESPACE,
        deadline: Duration::from_secs(180),
        undo_reserve: Duration::from_secs(60),
        keeps_done_record: false,
        read_only: false,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let mut rules: Vec<Rule> = args
            .refuse_while
            .iter()
            .map(|blocker| Rule {
                namespace: None,
                group: blocker.group.clone(),
                resource: blocker.plural.clone(),
                names: Vec::new(),
                verbs: vec!["list", "watch"],
            })
            .collect();
        rules.extend(args.release_finalizers.iter().map(|release| Rule {
            namespace: None,
            group: release.group.clone(),
            resource: release.plural.clone(),
            names: Vec::new(),
            verbs: vec!["get", "list", "watch", "patch"],
        }));
        for object in &args.workloads {
            let namespace = object.namespace.as_deref();
            let only = [object.name.clone()];
            rules.extend([
                // On a fresh cluster the namespace may not exist, and then rights in it cannot either.
                Rule::on(&kinds::NAMESPACE, None, &["get"]).named(object.namespace.clone()),
                Rule::on(&object.kind, namespace, &["list", "watch"]),
                // patch: only to take our own mark off managedFields, so that the workload's chart owns its replicas.
                Rule::on(&object.kind, namespace, &["get", "patch"]).named(only.clone()),
                Rule::on(&object.kind, namespace, &["patch"]).subresource("scale").named(only),
                Rule::on(&kinds::POD, namespace, &["list", "watch"]),
                Rule::on(&SCALED_OBJECT, namespace, &["list"]),
            ]);
        }
        Needs { optional: vec![SCALED_OBJECT], rules, ..Needs::default() }
    }

    async fn snapshot(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
        snapshot::read(args, reader).await
    }

    fn plan(args: &Args, snapshot: &Snapshot) -> Plan {
        plan::decide(args, snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_named_by_kind_namespace_and_name() {
        assert_eq!(workload("deployment/ns/a").unwrap().to_string(), "Deployment/ns/a");
        for wrong in ["Deployment/a", "DaemonSet/ns/a", "Deployment//a", ""] {
            assert!(workload(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_blocker_is_a_resource_with_its_group_and_perhaps_a_field() {
        let found = blocker("subscriptions.eventing.kyma-project.io:spec.source_id").unwrap();
        assert_eq!(
            (found.plural.as_str(), found.group.as_str()),
            ("subscriptions", "eventing.kyma-project.io")
        );
        assert_eq!(found.field.as_deref(), Some("spec.source_id"));
        assert_eq!(blocker("jobs.batch").unwrap().group, "batch");
        for wrong in ["subscriptions", "subscriptions.", "subscriptions..local", "a.b.c:"] {
            assert!(blocker(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_release_is_a_resource_with_its_group_and_a_finalizer() {
        let found = release("things.example.org=finalizers.example.org/things").unwrap();
        assert_eq!((found.plural.as_str(), found.group.as_str()), ("things", "example.org"));
        assert_eq!(found.finalizer, "finalizers.example.org/things");
        assert_eq!(release("deployments.apps=a/b").unwrap().group, "apps");
        for wrong in ["things.example.org", "things.example.org=", "things=x", "things.=x", "=x"] {
            assert!(release(wrong).is_err(), "{wrong}");
        }
    }
}
