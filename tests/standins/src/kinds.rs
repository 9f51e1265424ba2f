//! The kinds that stand-ins and fixtures know: group, version, kind, plural and scope, in one place.

use anyhow::{Context, Result};
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::Value;

/// One kind of one API version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

const fn catalog(name: &'static str, plural: &'static str) -> Kind {
    kind("servicecatalog.k8s.io", "v1beta1", name, plural, true)
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
/// Offers an Application's services in a namespace.
pub const APPLICATION_MAPPING: Kind = kind(
    "applicationconnector.kyma-project.io",
    "v1alpha1",
    "ApplicationMapping",
    "applicationmappings",
    true,
);
/// Takes events from a Channel to a subscriber.
pub const KNATIVE_SUBSCRIPTION: Kind =
    kind("messaging.knative.dev", "v1alpha1", "Subscription", "subscriptions", true);
/// Where the events of a namespace arrive.
pub const BROKER: Kind = kind("eventing.knative.dev", "v1alpha1", "Broker", "brokers", true);
/// Sends some of a Broker's events to a subscriber.
pub const TRIGGER: Kind = kind("eventing.knative.dev", "v1alpha1", "Trigger", "triggers", true);
/// A service of an Application, in use in a namespace.
pub const SERVICE_INSTANCE: Kind = catalog("ServiceInstance", "serviceinstances");
/// A service of an Application, on offer in a namespace.
pub const SERVICE_CLASS: Kind = catalog("ServiceClass", "serviceclasses");
/// How a service can be had.
pub const SERVICE_PLAN: Kind = catalog("ServicePlan", "serviceplans");
/// Credentials for a service that is in use.
pub const SERVICE_BINDING: Kind = catalog("ServiceBinding", "servicebindings");
/// Whom the catalog asks.
pub const SERVICE_BROKER: Kind = catalog("ServiceBroker", "servicebrokers");
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
/// What a workload is made of.
pub const POD: Kind = kind("", "v1", "Pod", "pods", true);
/// What the API server refuses by an expression.
pub const POLICY: Kind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicy",
    "validatingadmissionpolicies",
    false,
);
/// Puts a policy into force.
pub const POLICY_BINDING: Kind = kind(
    "admissionregistration.k8s.io",
    "v1",
    "ValidatingAdmissionPolicyBinding",
    "validatingadmissionpolicybindings",
    false,
);
/// Custom resource definitions themselves.
pub const CRD: Kind =
    kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false);

/// Every kind of this module.
pub const ALL: [Kind; 26] = [
    APPLICATION,
    EVENT_ACTIVATION,
    HTTP_SOURCE,
    CHANNEL,
    KNATIVE_SERVICE,
    LEGACY_SUBSCRIPTION,
    APPLICATION_MAPPING,
    KNATIVE_SUBSCRIPTION,
    BROKER,
    TRIGGER,
    SERVICE_INSTANCE,
    SERVICE_CLASS,
    SERVICE_PLAN,
    SERVICE_BINDING,
    SERVICE_BROKER,
    WIDGET,
    GADGET,
    STATION,
    NAMESPACE,
    DEPLOYMENT,
    STATEFUL_SET,
    REPLICA_SET,
    POD,
    POLICY,
    POLICY_BINDING,
    CRD,
];

/// The kinds of the event mesh: whatever a scene, a step or a stand-in makes, each before what it owns.
pub const EVENT_MESH: [Kind; 15] = [
    LEGACY_SUBSCRIPTION,
    TRIGGER,
    SERVICE_BINDING,
    SERVICE_INSTANCE,
    SERVICE_CLASS,
    SERVICE_PLAN,
    SERVICE_BROKER,
    EVENT_ACTIVATION,
    APPLICATION_MAPPING,
    KNATIVE_SUBSCRIPTION,
    BROKER,
    HTTP_SOURCE,
    APPLICATION,
    CHANNEL,
    KNATIVE_SERVICE,
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
