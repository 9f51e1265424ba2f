//! What merges with what: which lists and maps have parts that different managers can own.

use serde_json::{Map, Value, json};

use crate::server::schema::{Additional, ListType, Node, Schema};

/// The type of a value.
#[derive(Clone, Copy)]
pub(super) enum Type<'a> {
    /// That of a custom resource, or of a part of it.
    Custom(&'a Node),
    /// That of a built-in kind or of a part of it, known by its name and that of what it is in.
    BuiltIn { kind: &'a str, parent: &'a str, name: &'a str },
    /// Nobody knows: its maps have parts, its lists are one value.
    Unknown,
}

/// How a list's items are told apart.
pub(super) enum Items<'a> {
    Atomic,
    Set,
    /// By these keys, each with its default.
    Map(Vec<(&'a str, Option<Value>)>),
}

impl<'a> Type<'a> {
    /// The type of a resource: of a custom one by its schema, else of a built-in one.
    pub(super) fn of(kind: &'a str, schema: Option<&'a Schema>) -> Self {
        schema.map_or(Self::BuiltIn { kind, parent: "", name: kind }, |schema| Self::Custom(schema.root()))
    }

    /// The type of a field, and whether the field is one that the type has by name.
    pub(super) fn field(self, field: &'a str) -> (Self, bool) {
        match self {
            Self::Unknown => (Self::Unknown, false),
            Self::BuiltIn { kind, name, .. } => (Self::BuiltIn { kind, parent: name, name: field }, true),
            Self::Custom(node) => match (node.properties.get(field), &node.additional) {
                _ if node.embedded && field == "metadata" => {
                    (Self::BuiltIn { kind: "", parent: "", name: "metadata" }, true)
                }
                _ if node.embedded && (field == "apiVersion" || field == "kind") => (Self::Unknown, true),
                (Some(property), _) => (Self::Custom(property), true),
                (None, Some(Additional::Of(of_all))) => (Self::Custom(of_all), false),
                (None, _) => (Self::Unknown, false),
            },
        }
    }

    pub(super) fn item(self) -> Self {
        match self {
            Self::Custom(node) => node.items.as_deref().map_or(Self::Unknown, Self::Custom),
            // An item has the name of its list.
            other => other,
        }
    }

    /// Whether a map of this type is one value.
    pub(super) fn is_atomic_map(self) -> bool {
        match self {
            Self::Custom(node) => node.atomic_map,
            Self::BuiltIn { name, .. } => ATOMIC_MAPS.contains(&name),
            Self::Unknown => false,
        }
    }

    pub(super) fn items(self) -> Items<'a> {
        match self {
            Self::Unknown => Items::Atomic,
            Self::Custom(node) => match &node.list {
                ListType::Atomic => Items::Atomic,
                ListType::Set => Items::Set,
                ListType::Map(keys) => {
                    let with_default = |key: &'a String| {
                        let field = node.items.as_deref().and_then(|items| items.properties.get(key));
                        (key.as_str(), field.and_then(|field| field.default.clone()))
                    };
                    Items::Map(keys.iter().map(with_default).collect())
                }
            },
            Self::BuiltIn { kind, parent, name } => built_in_items(kind, parent, name),
        }
    }
}

/// Maps of built-in kinds that are one value: selectors and references.
const ATOMIC_MAPS: [&str; 23] = [
    "selector",
    "labelSelector",
    "namespaceSelector",
    "objectSelector",
    "podSelector",
    "nodeSelector",
    "scopeSelector",
    "configMapKeyRef",
    "secretKeyRef",
    "fieldRef",
    "resourceFieldRef",
    "secretRef",
    "claimRef",
    "roleRef",
    "involvedObject",
    "regarding",
    "paramKind",
    "paramRef",
    "matchConstraints",
    "matchResources",
    "imagePullSecrets",
    "ownerReferences",
    "variables",
];

fn built_in_items(kind: &str, parent: &str, name: &str) -> Items<'static> {
    let by = |keys: &[&'static str]| Items::Map(keys.iter().map(|key| (*key, None)).collect());
    match (parent, name) {
        ("metadata", "finalizers") | (_, "validationActions" | "podCIDRs") => Items::Set,
        (_, "ownerReferences") => by(&["uid"]),
        // A Job's conditions are one value, and so is every list that is not named here.
        ("status", "conditions") if kind == "Job" => Items::Atomic,
        (_, "conditions") => by(&["type"]),
        ("containers" | "initContainers" | "ephemeralContainers", "ports") => {
            Items::Map(vec![("containerPort", None), ("protocol", Some("TCP".into()))])
        }
        ("spec", "ports") => Items::Map(vec![("port", None), ("protocol", Some("TCP".into()))]),
        (
            _,
            "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "env"
            | "volumes"
            | "imagePullSecrets"
            | "webhooks"
            | "matchConditions"
            | "variables",
        )
        | ("ServiceAccount", "secrets") => by(&["name"]),
        (_, "volumeMounts") => by(&["mountPath"]),
        (_, "volumeDevices") => by(&["devicePath"]),
        (_, "hostAliases" | "podIPs") => by(&["ip"]),
        (_, "topologySpreadConstraints") => by(&["topologyKey", "whenUnsatisfiable"]),
        _ => Items::Atomic,
    }
}

/// What an object of that kind has before anything is in it. Where built-in kinds have a struct, an empty one is there
/// all the same, so nobody who fills it owns the whole of it.
pub(super) fn empty(kind: &str, schema: Option<&Schema>) -> Value {
    // A list that is always there, if only as null, is nobody's as a whole.
    let template = || json!({"metadata": {}, "spec": {"containers": null}});
    match kind {
        _ if schema.is_some() => Value::Object(Map::new()),
        "Deployment" => {
            json!({"metadata": {}, "spec": {"strategy": {}, "template": template()}, "status": {}})
        }
        "StatefulSet" | "DaemonSet" => {
            json!({"metadata": {}, "spec": {"updateStrategy": {}, "template": template()}, "status": {}})
        }
        "ReplicaSet" | "Job" => json!({"metadata": {}, "spec": {"template": template()}, "status": {}}),
        "CronJob" => {
            let job = json!({"metadata": {}, "spec": {"template": template()}});
            json!({"metadata": {}, "spec": {"jobTemplate": job}, "status": {}})
        }
        "CustomResourceDefinition" => {
            json!({
                "metadata": {},
                "spec": {"group": "", "names": {"plural": "", "kind": ""}, "scope": "", "versions": null},
                "status": {
                    "conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null,
                },
            })
        }
        "Pod" => json!({"metadata": {}, "spec": {"containers": null}, "status": {}}),
        // In the names of both of its groups.
        "Event" => json!({
            "metadata": {}, "eventTime": null, "source": {}, "firstTimestamp": null, "lastTimestamp": null,
            "involvedObject": {}, "reportingComponent": "", "reportingInstance": "", "regarding": {},
            "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null,
        }),
        "Service" => json!({"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}}),
        _ => json!({"metadata": {}, "spec": {}, "status": {}}),
    }
}
