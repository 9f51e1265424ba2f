//! What is served: the built-in kinds that steps and stand-ins use, and those of CRDs, in one form.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::schema::Schema;

/// What makes an object's generation grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Generation {
    /// It has none.
    Never,
    /// Its spec.
    Spec,
    /// Its spec, or its annotations: Deployments alone.
    SpecAndAnnotations,
    /// Anything but metadata, and status where that is a subresource: custom resources.
    All,
}

/// A resource in one version.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools)]
pub(crate) struct Resource {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub namespaced: bool,
    /// Whether `/status` is served, and status kept out of all other writes.
    pub status: bool,
    /// Whether `/scale` is served.
    pub scale: bool,
    pub generation: Generation,
    /// Whether an update may come without a resourceVersion.
    pub unconditional: bool,
    /// Whether an update makes what is not there.
    pub create_on_update: bool,
    /// Whether a delete answers with the object instead of a Status.
    pub returns_deleted: bool,
    /// Where its objects are stored: Events are served by two groups.
    pub table: TableKey,
    pub custom: Option<Custom>,
}

/// Group and plural.
pub(crate) type TableKey = (String, String);

/// What only custom resources have.
#[derive(Clone)]
pub(crate) struct Custom {
    pub list_kind: String,
    /// The version in which objects are stored.
    pub storage_version: String,
    pub schema: Option<Arc<Schema>>,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    /// Its definition is being deleted: nothing new can be made.
    pub terminating: bool,
}

impl Resource {
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    /// The form in which objects are stored.
    pub fn stored_api_version(&self) -> String {
        match &self.custom {
            Some(custom) => api_version(&self.group, &custom.storage_version),
            None => api_version(&self.table.0, "v1"),
        }
    }

    pub fn list_kind(&self) -> String {
        self.custom.as_ref().map_or_else(|| format!("{}List", self.kind), |custom| custom.list_kind.clone())
    }

    pub fn schema(&self) -> Option<&Schema> {
        self.custom.as_ref().and_then(|custom| custom.schema.as_deref())
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// All that is served, by group, version and plural.
pub(crate) type Served = BTreeMap<(String, String, String), Arc<Resource>>;

/// Lives in namespaces.
const NAMESPACED: u16 = 1;
/// Has a status subresource.
const STATUS: u16 = 1 << 1;
/// Has a scale subresource.
const SCALE: u16 = 1 << 2;
/// Its generation grows with its spec.
const GENERATION: u16 = 1 << 3;
/// Its generation grows with its annotations too.
const ANNOTATIONS: u16 = 1 << 4;
/// An update needs a resourceVersion.
const CONDITIONAL: u16 = 1 << 5;
/// An update makes what is not there.
const CREATES: u16 = 1 << 6;
/// A delete answers with the object.
const RETURNS: u16 = 1 << 7;

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// Group, kind, plural and what it can; the version is always v1.
const BUILT_IN: [(&str, &str, &str, u16); 27] = [
    ("", "ConfigMap", "configmaps", NAMESPACED),
    ("", "Event", "events", NAMESPACED | CREATES),
    ("", "Namespace", "namespaces", STATUS | RETURNS),
    ("", "Pod", "pods", NAMESPACED | STATUS | GENERATION | RETURNS),
    ("", "ResourceQuota", "resourcequotas", NAMESPACED | STATUS | RETURNS),
    ("", "Secret", "secrets", NAMESPACED),
    ("", "Service", "services", NAMESPACED | STATUS | RETURNS | CREATES),
    ("", "ServiceAccount", "serviceaccounts", NAMESPACED | RETURNS),
    (
        ADMISSION,
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        STATUS | GENERATION | CONDITIONAL,
    ),
    (
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        GENERATION | CONDITIONAL,
    ),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        STATUS | GENERATION | CONDITIONAL,
    ),
    ("apps", "ControllerRevision", "controllerrevisions", NAMESPACED),
    ("apps", "DaemonSet", "daemonsets", NAMESPACED | STATUS | GENERATION),
    ("apps", "Deployment", "deployments", NAMESPACED | STATUS | SCALE | GENERATION | ANNOTATIONS),
    ("apps", "ReplicaSet", "replicasets", NAMESPACED | STATUS | SCALE | GENERATION),
    ("apps", "StatefulSet", "statefulsets", NAMESPACED | STATUS | SCALE | GENERATION),
    ("authorization.k8s.io", "SelfSubjectAccessReview", "selfsubjectaccessreviews", 0),
    ("authorization.k8s.io", "SubjectAccessReview", "subjectaccessreviews", 0),
    ("batch", "CronJob", "cronjobs", NAMESPACED | STATUS | GENERATION),
    ("batch", "Job", "jobs", NAMESPACED | STATUS | GENERATION),
    ("coordination.k8s.io", "Lease", "leases", NAMESPACED | CONDITIONAL | CREATES),
    ("events.k8s.io", "Event", "events", NAMESPACED | CREATES),
    ("policy", "PodDisruptionBudget", "poddisruptionbudgets", NAMESPACED | STATUS | GENERATION | CONDITIONAL),
    (RBAC, "ClusterRole", "clusterroles", CREATES),
    (RBAC, "ClusterRoleBinding", "clusterrolebindings", CREATES),
    (RBAC, "Role", "roles", NAMESPACED | CREATES),
    (RBAC, "RoleBinding", "rolebindings", NAMESPACED | CREATES),
];

/// The built-in kinds.
pub(crate) fn built_in() -> Served {
    let one = |&(group, kind, plural, flags): &(&str, &str, &str, u16)| {
        let has = |flag: u16| flags & flag != 0;
        let generation = match (has(GENERATION), has(ANNOTATIONS)) {
            (false, _) => Generation::Never,
            (true, false) => Generation::Spec,
            (true, true) => Generation::SpecAndAnnotations,
        };
        let stored_in = if plural == "events" { "" } else { group };
        let resource = Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            namespaced: has(NAMESPACED),
            status: has(STATUS),
            scale: has(SCALE),
            generation,
            unconditional: !has(CONDITIONAL),
            create_on_update: has(CREATES),
            returns_deleted: has(RETURNS),
            table: (stored_in.to_owned(), plural.to_owned()),
            custom: None,
        };
        ((group.to_owned(), "v1".to_owned(), plural.to_owned()), Arc::new(resource))
    };
    BUILT_IN.iter().map(one).collect()
}

/// Resources of groups that are served here which a real server has and this one has not.
const UNKNOWN: [(&str, &str); 15] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "endpoints"),
    ("", "limitranges"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "persistentvolumes"),
    ("", "podtemplates"),
    ("", "replicationcontrollers"),
    (ADMISSION, "mutatingadmissionpolicies"),
    (ADMISSION, "mutatingadmissionpolicybindings"),
    (ADMISSION, "mutatingwebhookconfigurations"),
    (ADMISSION, "validatingwebhookconfigurations"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

/// Whether a real server has this resource and this one has not.
pub(crate) fn is_unknown(group: &str, plural: &str) -> bool {
    UNKNOWN.contains(&(group, plural))
}

/// Whether a real server has this subresource and this one has not.
pub(crate) fn is_unknown_part(plural: &str, subresource: &str) -> bool {
    match plural {
        "pods" => [
            "attach",
            "binding",
            "ephemeralcontainers",
            "eviction",
            "exec",
            "log",
            "portforward",
            "proxy",
            "resize",
        ]
        .contains(&subresource),
        "services" => subresource == "proxy",
        "serviceaccounts" => subresource == "token",
        _ => false,
    }
}

/// Groups of which every API server knows and this one does not: whoever asks for them shall not take them for absent.
pub(crate) const UNKNOWN_GROUPS: [&str; 14] = [
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "autoscaling",
    "certificates.k8s.io",
    "discovery.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
    "metrics.k8s.io",
];
