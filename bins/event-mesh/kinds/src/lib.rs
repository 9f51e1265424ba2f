//! The event-mesh family: from an event bus of its own to a mesh of Knative objects.
//!
//! What all steps of the family share: the kinds they read and write, and the order in which they run.

pub mod event_service;
pub mod owner_kinds;
pub mod trigger;
pub mod user_namespaces;

use belay_runtime::{FieldPath, Kind, Test};
use serde_json::Value;

/// The family's name: one lock for all its steps.
pub const FAMILY: &str = "event-mesh";

/// The steps in the order in which they run. Undo goes the other way.
pub const STEPS: &[&str] = &[
    "create-missing-sources",
    "recreate-service-instances",
    "recreate-triggers",
    "verify-event-services",
    "retire-subscriptions",
    "scale-down-legacy",
    "purge-legacy",
];

/// The namespace of the old bus, and the family's home where no other is given.
pub const SYSTEM_NAMESPACE: &str = "kyma-system";

/// The namespace in which an Application's own objects live.
pub const INTEGRATION_NAMESPACE: &str = "kyma-integration";

/// Namespaces that belong to the platform: what users made is elsewhere.
pub const SYSTEM_NAMESPACES: &[&str] = &[
    "istio-system",
    "knative-eventing",
    "knative-serving",
    "kube-node-lease",
    "kube-public",
    "kube-system",
    "kyma-installer",
    INTEGRATION_NAMESPACE,
    SYSTEM_NAMESPACE,
    "natss",
];

/// The Deployment of the old bus that serves the finalizers of legacy Subscriptions and `EventActivations`.
pub const SUBSCRIPTION_CONTROLLER: &str = "event-bus-subscription-controller";

/// The finalizer of a legacy Subscription, and of the Knative Subscription that the old bus made for it.
pub const LEGACY_FINALIZER: &str = "subscription.finalizers.kyma-project.io";

/// The finalizer of an `EventActivation`.
pub const ACTIVATION_FINALIZER: &str = "eventactivation.finalizers.kyma-project.io";

/// The label of a namespace that has Knative make the Broker `default` in it; its value is `enabled`.
pub const INJECTION_LABEL: &str = "knative-eventing-injection";

/// The name of the Broker that every namespace of the mesh has.
pub const BROKER_NAME: &str = "default";

/// Labels of the Knative Subscription that links an Application to a namespace.
pub const LINK_NAMESPACE_LABEL: &str = "broker-namespace";
/// The other one.
pub const LINK_APPLICATION_LABEL: &str = "application-name";

/// An external system that sends events. Cluster-wide.
pub const APPLICATION: Kind =
    Kind::cluster_wide("applicationconnector.kyma-project.io", "v1alpha1", "Application", "applications");

/// The mesh's entrance for one Application: its controller makes a Channel and an adapter of the same name.
pub const HTTP_SOURCE: Kind =
    Kind::namespaced("sources.kyma-project.io", "v1alpha1", "HTTPSource", "httpsources");

/// Where a source's events go.
pub const CHANNEL: Kind = Kind::namespaced("messaging.knative.dev", "v1alpha1", "Channel", "channels");

/// The adapter behind a source: a Knative Service.
pub const ADAPTER: Kind = Kind::namespaced("serving.knative.dev", "v1alpha1", "Service", "services");

/// Says that a namespace wants the events of an Application; its name is the id of the Application's service.
pub const EVENT_ACTIVATION: Kind = Kind::namespaced(
    "applicationconnector.kyma-project.io",
    "v1alpha1",
    "EventActivation",
    "eventactivations",
);

/// Binds an Application to a namespace.
pub const APPLICATION_MAPPING: Kind = Kind::namespaced(
    "applicationconnector.kyma-project.io",
    "v1alpha1",
    "ApplicationMapping",
    "applicationmappings",
);

/// A subscription of the old bus. The same API was reused later for something else: see [`is_legacy`].
pub const LEGACY_SUBSCRIPTION: Kind =
    Kind::namespaced("eventing.kyma-project.io", "v1alpha1", "Subscription", "subscriptions");

/// A subscription of a Channel: the mesh's link between an Application and a namespace is one.
pub const KNATIVE_SUBSCRIPTION: Kind =
    Kind::namespaced("messaging.knative.dev", "v1alpha1", "Subscription", "subscriptions");

/// What a namespace does with an event of the mesh.
pub const TRIGGER: Kind = Kind::namespaced("eventing.knative.dev", "v1alpha1", "Trigger", "triggers");

/// The mesh's entrance of a namespace.
pub const BROKER: Kind = Kind::namespaced("eventing.knative.dev", "v1alpha1", "Broker", "brokers");

/// A use of a service, in a namespace.
pub const SERVICE_INSTANCE: Kind =
    Kind::namespaced("servicecatalog.k8s.io", "v1beta1", "ServiceInstance", "serviceinstances");

/// A service that can be used.
pub const SERVICE_CLASS: Kind =
    Kind::namespaced("servicecatalog.k8s.io", "v1beta1", "ServiceClass", "serviceclasses");

/// A way in which a service can be used.
pub const SERVICE_PLAN: Kind =
    Kind::namespaced("servicecatalog.k8s.io", "v1beta1", "ServicePlan", "serviceplans");

/// Credentials for a used service. While one is there, its instance cannot be deleted.
pub const SERVICE_BINDING: Kind =
    Kind::namespaced("servicecatalog.k8s.io", "v1beta1", "ServiceBinding", "servicebindings");

/// Whether an object of [`LEGACY_SUBSCRIPTION`] is one of the old bus, by the field that only those have. One that also
/// has the field of the later kind is nobody's to touch: see [`unclear`].
#[must_use]
pub fn is_legacy(subscription: &Value) -> bool {
    matches!(fields(subscription), (true, false))
}

/// Why nobody can tell of an object of [`LEGACY_SUBSCRIPTION`] whether it is one of the old bus, if so.
#[must_use]
pub fn unclear(subscription: &Value) -> Option<&'static str> {
    match fields(subscription) {
        (true, true) => {
            Some("has both source_id, of the Event Bus, and sink, of the later kind of that name")
        }
        (false, false) => {
            Some("has neither source_id, of the Event Bus, nor sink, of the later kind of that name")
        }
        _ => None,
    }
}

/// Whether it has the field of the old bus, and that of the later kind.
fn fields(subscription: &Value) -> (bool, bool) {
    let has = |field| subscription.pointer(field).is_some_and(|value| !value.is_null());
    (has("/spec/source_id"), has("/spec/sink"))
}

/// Where a namespace's Broker takes events.
#[must_use]
pub fn broker_url(namespace: &str) -> String {
    format!("http://{BROKER_NAME}-broker.{namespace}")
}

/// Whether a namespace is a user's.
#[must_use]
pub fn is_user_namespace(namespace: &str) -> bool {
    !SYSTEM_NAMESPACES.contains(&namespace)
}

/// The condition by which Knative objects say that they work.
#[must_use]
pub fn ready() -> Test {
    Test::Condition("Ready".to_owned())
}

/// `spec.skipInstallation` of an Application: its own Helm release is not installed.
#[must_use]
pub fn skip_installation() -> FieldPath {
    FieldPath::dotted("spec.skipInstallation")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bug_1_5_only_what_is_surely_of_the_old_bus_is_touched() {
        let legacy = json!({"spec": {"source_id": "commerce", "event_type": "order.created"}});
        assert!(is_legacy(&legacy) && unclear(&legacy).is_none());
        let later = json!({"spec": {"sink": "http://sink.example/", "filter": {}}});
        assert!(!is_legacy(&later) && unclear(&later).is_none());
        for neither in [
            json!({"spec": {"source_id": "commerce", "sink": "http://sink.example/"}}),
            json!({"spec": {}}),
            json!({"metadata": {"name": "a"}}),
        ] {
            assert!(!is_legacy(&neither) && unclear(&neither).is_some(), "{neither}");
        }
    }
}
