//! The kinds that stand-ins and fixtures know: group, version, kind, plural and scope, in one place.

use anyhow::{Context, Result};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;

/// One kind of one API version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version within the group.
    pub version: &'static str,
    /// The kind's name.
    pub kind: &'static str,
    /// The resource name that appears in URLs.
    pub plural: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

const fn kind(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind { group, version, kind, plural, namespaced }
}

/// A connected system; cluster scoped.
pub const APPLICATION: Kind =
    kind("applicationconnector.kyma-project.io", "v1alpha1", "Application", "applications", false);
/// Lets a namespace receive an Application's events over the Event Bus.
pub const EVENT_ACTIVATION: Kind =
    kind("applicationconnector.kyma-project.io", "v1alpha1", "EventActivation", "eventactivations", true);
/// Where an Application's events enter the mesh.
pub const HTTP_SOURCE: Kind = kind("sources.kyma-project.io", "v1alpha1", "HTTPSource", "httpsources", true);
/// The queue behind an HTTPSource.
pub const CHANNEL: Kind = kind("messaging.knative.dev", "v1alpha1", "Channel", "channels", true);
/// The adapter of an HTTPSource.
pub const KNATIVE_SERVICE: Kind = kind("serving.knative.dev", "v1alpha1", "Service", "services", true);
/// The Event Bus' own Subscription.
pub const LEGACY_SUBSCRIPTION: Kind =
    kind("eventing.kyma-project.io", "v1alpha1", "Subscription", "subscriptions", true);
/// The object that the runtime's fixture step changes.
pub const WIDGET: Kind = kind("fixture.belay.dev", "v1", "Widget", "widgets", true);
/// Belongs to a Widget; held by a finalizer.
pub const GADGET: Kind = kind("fixture.belay.dev", "v1", "Gadget", "gadgets", true);
/// Cluster scoped, with a state.
pub const STATION: Kind = kind("fixture.belay.dev", "v1", "Station", "stations", false);
/// Core Namespace.
pub const NAMESPACE: Kind = kind("", "v1", "Namespace", "namespaces", false);
/// Workload that `scale-down-legacy` scales.
pub const DEPLOYMENT: Kind = kind("apps", "v1", "Deployment", "deployments", true);
/// Workload that `scale-down-legacy` scales.
pub const STATEFUL_SET: Kind = kind("apps", "v1", "StatefulSet", "statefulsets", true);
/// Workload that `scale-down-legacy` scales.
pub const REPLICA_SET: Kind = kind("apps", "v1", "ReplicaSet", "replicasets", true);
/// Custom resource definitions themselves.
pub const CRD: Kind =
    kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false);

/// Every kind of this module.
pub const ALL: [Kind; 14] = [
    APPLICATION,
    EVENT_ACTIVATION,
    HTTP_SOURCE,
    CHANNEL,
    KNATIVE_SERVICE,
    LEGACY_SUBSCRIPTION,
    WIDGET,
    GADGET,
    STATION,
    NAMESPACE,
    DEPLOYMENT,
    STATEFUL_SET,
    REPLICA_SET,
    CRD,
];

impl Kind {
    /// `group/version`, or the bare version of the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// What kube needs to talk about this kind without a type.
    #[must_use]
    pub fn resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// All objects of this kind, in every namespace.
    #[must_use]
    pub fn everywhere(&self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource())
    }

    /// The objects of this kind in one namespace; the namespace does not matter to a cluster scoped kind.
    #[must_use]
    pub fn within(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        if self.namespaced {
            Api::namespaced_with(client.clone(), namespace, &self.resource())
        } else {
            self.everywhere(client)
        }
    }

    /// The kind that a manifest says it is of.
    pub fn of(manifest: &Value) -> Result<Self> {
        let api_version = manifest["apiVersion"].as_str().unwrap_or_default();
        let name = manifest["kind"].as_str().unwrap_or_default();
        ALL.into_iter()
            .find(|kind| kind.kind == name && kind.api_version() == api_version)
            .with_context(|| format!("the stand-ins don't know the kind {api_version} {name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_manifest_names_its_kind() {
        let knative = json!({"apiVersion": "serving.knative.dev/v1alpha1", "kind": "Service"});
        assert_eq!(Kind::of(&knative).unwrap(), KNATIVE_SERVICE);
        let core = json!({"apiVersion": "v1", "kind": "Service"});
        assert!(Kind::of(&core).unwrap_err().to_string().contains("v1 Service"));
    }
}
