//! The event-mesh family: from an event bus of its own to a mesh of Knative objects.
//!
//! What all steps of the family share: the kinds they read and write, and the order in which they run.

use belay_runtime::{FieldPath, Kind, Test};

/// The family's name: one lock for all its steps.
pub const FAMILY: &str = "event-mesh";

/// The steps in the order in which they run. Undo goes the other way.
pub const STEPS: &[&str] = &["create-missing-sources", "scale-down-legacy"];

/// The namespace of the old bus, and the family's home where no other is given.
pub const SYSTEM_NAMESPACE: &str = "kyma-system";

/// The namespace in which an Application's own objects live.
pub const INTEGRATION_NAMESPACE: &str = "kyma-integration";

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
