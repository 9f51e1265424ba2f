//! What the step reads.

use belay_runtime::{
    Failure, Item, Kind, ObjectRef, Reader, kinds,
    object::{finalizers, is_going, text},
};
use event_mesh_kinds::{
    ACTIVATION_FINALIZER, CHANNEL, EVENT_ACTIVATION, KNATIVE_SUBSCRIPTION, LEGACY_FINALIZER,
    LEGACY_SUBSCRIPTION, is_legacy,
};
use serde_json::Value;

use crate::Args;

/// Labels that the old bus gave to the Knative objects it made, and that nobody else uses.
const LEGACY_LABELS: &[&str] = &["kyma-source-id", "kyma-event-type"];

/// Parts of the old bus's chart. Their `ServiceAccounts` bear no label: only these names, behind the release's, tell them.
const PARTS: &[&str] = &["event-publish-service", "subscription-controller"];

/// All that the step read before it decided.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The CRD, if it is there or was taken away by an earlier attempt, unless a person left it out.
    pub crd: Option<Item>,
    /// What the CRD serves, in the version that the server prefers.
    pub served: Option<Kind>,
    /// The CRD serves the newer schema that reuses its name.
    pub is_newer: bool,
    /// Subscriptions that exist, of whichever schema.
    pub subscriptions: Vec<Subscription>,
    /// Knative Subscriptions of the old bus, but those that a person left out.
    pub knative_subscriptions: Vec<Item>,
    /// Channels of the old bus, but those that a person left out.
    pub channels: Vec<Item>,
    /// `EventActivations` that hold the old bus's finalizer.
    pub activations: Vec<Item>,
    /// Objects of the old bus's Helm release.
    pub release: Vec<ObjectRef>,
}

/// A Subscription.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// Which.
    pub object: ObjectRef,
    /// By which finalizers it is held, if it is being deleted.
    pub held_by: Option<String>,
    /// It is one of the old bus, and surely not of the newer schema.
    pub is_legacy: bool,
}

pub(crate) async fn read(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
    let namespace = Some(args.legacy_namespace.as_str());
    let mut snapshot = Snapshot::default();
    let crd = kinds::CUSTOM_RESOURCE_DEFINITION.cluster_object(LEGACY_SUBSCRIPTION.resource());
    let is_excluded = reader.is_excluded(&crd);
    let crd = reader.get(&crd).await?;
    if !is_excluded && (crd.live().is_some() || crd.is_journalled()) {
        snapshot.is_newer = has_newer_schema(&crd.origin());
        snapshot.crd = Some(crd);
    }
    snapshot.served = reader.find_resource(LEGACY_SUBSCRIPTION.plural, LEGACY_SUBSCRIPTION.group).await?;
    if let Some(kind) = &snapshot.served {
        let subscription = |object: &Value| {
            let held_by = is_going(object).then(|| finalizers(object));
            Some(Subscription { object: kind.object_of(object), held_by, is_legacy: is_legacy(object) })
        };
        snapshot.subscriptions = reader.scan(kind, None, subscription).await?;
    }
    if reader.is_served(&KNATIVE_SUBSCRIPTION) {
        let mut found = reader.list(&KNATIVE_SUBSCRIPTION, namespace).await?;
        found.retain(|item| is_of_the_bus(&item.origin()) && !reader.is_excluded(&item.object));
        snapshot.knative_subscriptions = found;
    }
    if reader.is_served(&CHANNEL) {
        let mut found = reader.list(&CHANNEL, namespace).await?;
        found.retain(|item| is_of_the_bus(&item.origin()) && !reader.is_excluded(&item.object));
        snapshot.channels = found;
    }
    if reader.is_served(&EVENT_ACTIVATION) {
        let mut found = reader.list(&EVENT_ACTIVATION, None).await?;
        found.retain(|item| item.live().as_ref().is_some_and(is_held));
        snapshot.activations = found;
    }
    for kind in [kinds::DEPLOYMENT, kinds::SERVICE, kinds::SERVICE_ACCOUNT] {
        let of_release = |object: &Value| is_of_release(args, &kind, object).then(|| kind.object_of(object));
        snapshot.release.extend(reader.scan(&kind, namespace, of_release).await?);
    }
    Ok(snapshot)
}

/// The schema that took over the name years later delivers to `spec.sink`.
fn has_newer_schema(crd: &Value) -> bool {
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let sink = "/schema/openAPIV3Schema/properties/spec/properties/sink";
    versions.is_some_and(|versions| versions.iter().any(|version| version.pointer(sink).is_some()))
}

/// Whether a Knative object is one that the old bus made. Those of the mesh have neither its labels nor its finalizer.
fn is_of_the_bus(object: &Value) -> bool {
    let labels = object.pointer("/metadata/labels");
    let held = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    labels.is_some_and(|labels| LEGACY_LABELS.iter().all(|label| labels.get(label).is_some()))
        || held.is_some_and(|held| held.iter().any(|finalizer| finalizer == LEGACY_FINALIZER))
}

/// Whether an `EventActivation` holds the finalizer that the old bus served.
fn is_held(activation: &Value) -> bool {
    let held = activation.pointer("/metadata/finalizers").and_then(Value::as_array);
    held.is_some_and(|held| held.iter().any(|finalizer| finalizer == ACTIVATION_FINALIZER))
}

/// Whether an object belongs to the old bus's release: by Helm's own mark, which Helm 2 did not set, or by the labels that
/// charts of its time had. Hooks are no part of a release: Helm leaves them behind. Neither is what is on its way out: a
/// release that was just removed may still have some.
///
/// Helm keeps releases in Secrets, but whoever may list Secrets may become any account of the namespace.
fn is_of_release(args: &Args, kind: &Kind, object: &Value) -> bool {
    let metadata = |map: &str, key: &str| object.pointer(map)?.get(key)?.as_str();
    let note = |key: &str| metadata("/metadata/annotations", key);
    let label = |key: &str| metadata("/metadata/labels", key);
    if note("helm.sh/hook").is_some() || is_going(object) {
        return false;
    }
    let release = note("meta.helm.sh/release-name")
        .or_else(|| label("app.kubernetes.io/instance"))
        .or_else(|| label("release"));
    let name = text(object, "/metadata/name").unwrap_or_default();
    let is_part = || {
        let part = name.strip_prefix(args.legacy_release.as_str()).and_then(|rest| rest.strip_prefix('-'));
        *kind == kinds::SERVICE_ACCOUNT && part.is_some_and(|part| PARTS.contains(&part))
    };
    release.map_or_else(is_part, |release| release == args.legacy_release)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn args() -> Args {
        Args {
            legacy_namespace: "kyma-system".into(),
            legacy_release: "event-bus".into(),
            gone_within: Duration::from_secs(120),
        }
    }

    #[test]
    fn an_object_of_the_bus_is_known_by_its_labels_or_its_finalizer_and_one_of_the_mesh_has_neither() {
        let labels = json!({"metadata": {"labels": {
            "kyma-source-id": "commerce", "kyma-event-type": "order.created", "kyma-event-type-version": "v1",
        }}});
        assert!(is_of_the_bus(&labels));
        assert!(is_of_the_bus(
            &json!({"metadata": {"finalizers": ["subscription-controller", LEGACY_FINALIZER]}})
        ));
        let link = json!({"metadata": {
            "labels": {"broker-namespace": "orders", "application-name": "commerce"},
            "finalizers": ["subscription-controller"],
        }});
        assert!(!is_of_the_bus(&link));
        assert!(!is_of_the_bus(&json!({"metadata": {"labels": {"kyma-source-id": "commerce"}}})));
        assert!(!is_of_the_bus(&json!({"metadata": {}})));
    }

    #[test]
    fn an_object_of_the_release_is_known_by_the_marks_of_either_helm() {
        let is =
            |metadata: &Value| is_of_release(&args(), &kinds::DEPLOYMENT, &json!({"metadata": metadata}));
        let labels = json!({
            "app.kubernetes.io/name": "subscription-controller", "app.kubernetes.io/instance": "event-bus",
            "app.kubernetes.io/managed-by": "Tiller", "app.kubernetes.io/part-of": "kyma",
        });
        assert!(is(&json!({"annotations": {"meta.helm.sh/release-name": "event-bus"}})));
        assert!(is(&json!({"labels": labels})), "as releases 1.10 and 1.11 had them");
        assert!(is(&json!({"labels": {"release": "event-bus", "heritage": "Tiller"}})));
        let another = json!({"meta.helm.sh/release-name": "core"});
        assert!(!is(&json!({"annotations": another, "labels": {"release": "event-bus"}})));
        assert!(!is(&json!({})));
        assert!(!is(&json!({"labels": labels, "deletionTimestamp": "now"})), "it was just removed");
        // Helm leaves hooks behind when it removes a release.
        assert!(!is(&json!({"annotations": {"helm.sh/hook": "pre-upgrade"}, "labels": labels})));
    }

    #[test]
    fn a_service_account_of_the_release_bears_no_label_and_is_known_by_its_name() {
        let is = |kind: &Kind, name: &str| is_of_release(&args(), kind, &json!({"metadata": {"name": name}}));
        assert!(is(&kinds::SERVICE_ACCOUNT, "event-bus-subscription-controller"));
        assert!(!is(&kinds::SERVICE, "event-bus-subscription-controller"));
        assert!(!is(&kinds::SERVICE_ACCOUNT, "event-bus-subscription-controller-hooks"));
        assert!(!is(&kinds::SERVICE_ACCOUNT, "subscription-controller"));
    }

    #[test]
    fn a_crd_that_serves_the_newer_schema_is_not_the_legacy_one() {
        let with = |field: &str| {
            let spec = json!({"properties": {"spec": {"properties": {field: {}}}}});
            json!({"spec": {"versions": [{"name": "v1alpha1"}, {"name": "v1", "schema": {"openAPIV3Schema": spec}}]}})
        };
        assert!(has_newer_schema(&with("sink")));
        assert!(!has_newer_schema(&with("source_id")));
        assert!(!has_newer_schema(&json!({"spec": {}})));
    }
}
