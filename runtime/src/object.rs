//! Naming things in a cluster: kinds, objects, fields of objects.
//!
//! Objects are raw JSON throughout. Typed structs drop the fields they do not know, and a pre-image that lost a
//! field cannot restore it.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A kind of object in one version of its API: enough to build every URL that a step needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: Cow<'static, str>,
    /// The version the step speaks.
    pub version: Cow<'static, str>,
    /// Kind as written in manifests.
    pub kind: Cow<'static, str>,
    /// Resource name as written in URLs and RBAC rules.
    pub plural: Cow<'static, str>,
    /// Whether objects of this kind live in a namespace.
    pub namespaced: bool,
}

impl Kind {
    /// A kind whose objects live in a namespace.
    #[must_use]
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::with_scope(group, version, kind, plural, true)
    }

    /// A kind whose objects belong to the whole cluster.
    #[must_use]
    pub const fn cluster_wide(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self::with_scope(group, version, kind, plural, false)
    }

    const fn with_scope(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
        namespaced: bool,
    ) -> Self {
        Self {
            group: Cow::Borrowed(group),
            version: Cow::Borrowed(version),
            kind: Cow::Borrowed(kind),
            plural: Cow::Borrowed(plural),
            namespaced,
        }
    }

    /// `apiVersion` as written in manifests.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path under which this version of the API is served.
    #[must_use]
    pub fn api_path(&self) -> String {
        if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        }
    }

    /// The path of all objects of this kind, in one namespace or everywhere.
    #[must_use]
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("{}/namespaces/{namespace}/{}", self.api_path(), self.plural),
            None => format!("{}/{}", self.api_path(), self.plural),
        }
    }

    /// The name under which people and RBAC know the resource, such as `httpsources.sources.kyma-project.io`.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_string()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    /// Refers to an object of this kind in a namespace.
    #[must_use]
    pub fn object(&self, namespace: impl Into<String>, name: impl Into<String>) -> ObjectRef {
        ObjectRef { kind: self.clone(), namespace: Some(namespace.into()), name: name.into() }
    }

    /// Refers to a cluster-wide object of this kind.
    #[must_use]
    pub fn cluster_object(&self, name: impl Into<String>) -> ObjectRef {
        ObjectRef { kind: self.clone(), namespace: None, name: name.into() }
    }

    /// Refers to the object that this JSON is.
    #[must_use]
    pub fn object_of(&self, object: &Value) -> ObjectRef {
        ObjectRef {
            kind: self.clone(),
            namespace: if self.namespaced {
                text(object, "/metadata/namespace").map(str::to_owned)
            } else {
                None
            },
            name: text(object, "/metadata/name").unwrap_or_default().to_owned(),
        }
    }
}

/// Kinds of Kubernetes itself that the runtime and several steps use.
pub mod kinds {
    use super::Kind;

    /// `ConfigMap`
    pub const CONFIG_MAP: Kind = Kind::namespaced("", "v1", "ConfigMap", "configmaps");
    /// `Secret`
    pub const SECRET: Kind = Kind::namespaced("", "v1", "Secret", "secrets");
    /// `Pod`
    pub const POD: Kind = Kind::namespaced("", "v1", "Pod", "pods");
    /// `Namespace`
    pub const NAMESPACE: Kind = Kind::cluster_wide("", "v1", "Namespace", "namespaces");
    /// `ServiceAccount`
    pub const SERVICE_ACCOUNT: Kind = Kind::namespaced("", "v1", "ServiceAccount", "serviceaccounts");
    /// `Deployment`
    pub const DEPLOYMENT: Kind = Kind::namespaced("apps", "v1", "Deployment", "deployments");
    /// `StatefulSet`
    pub const STATEFUL_SET: Kind = Kind::namespaced("apps", "v1", "StatefulSet", "statefulsets");
    /// `ReplicaSet`
    pub const REPLICA_SET: Kind = Kind::namespaced("apps", "v1", "ReplicaSet", "replicasets");
    /// `Job`
    pub const JOB: Kind = Kind::namespaced("batch", "v1", "Job", "jobs");
    /// `CronJob`
    pub const CRON_JOB: Kind = Kind::namespaced("batch", "v1", "CronJob", "cronjobs");
    /// `Lease`
    pub const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");
    /// `Event`
    pub const EVENT: Kind = Kind::namespaced("events.k8s.io", "v1", "Event", "events");
    /// `Role`
    pub const ROLE: Kind = Kind::namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles");
    /// `RoleBinding`
    pub const ROLE_BINDING: Kind =
        Kind::namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");
    /// `ClusterRole`
    pub const CLUSTER_ROLE: Kind =
        Kind::cluster_wide("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
    /// `ClusterRoleBinding`
    pub const CLUSTER_ROLE_BINDING: Kind =
        Kind::cluster_wide("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");
}

/// One object in the cluster, by name. Shown to people as `Kind/namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; none for cluster-wide kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// The URL path of the object.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.kind.collection_path(self.namespace.as_deref()), self.name)
    }

    /// `apiVersion`, `kind`, `metadata.name` and `metadata.namespace`: the beginning of every manifest.
    #[must_use]
    pub fn manifest(&self) -> Value {
        let mut metadata = Map::new();
        metadata.insert("name".into(), self.name.clone().into());
        if let Some(namespace) = &self.namespace {
            metadata.insert("namespace".into(), namespace.clone().into());
        }
        serde_json::json!({
            "apiVersion": self.kind.api_version(), "kind": self.kind.kind, "metadata": metadata,
        })
    }

    /// Whether `KIND/[NAMESPACE/]NAME`, as a person wrote it, means this object.
    #[must_use]
    pub fn is_named(&self, written: &str) -> bool {
        let mut parts = written.split('/');
        let Some(kind) = parts.next() else { return false };
        if !kind.eq_ignore_ascii_case(&self.kind.kind) && !kind.eq_ignore_ascii_case(&self.kind.plural) {
            return false;
        }
        match (parts.next(), parts.next(), parts.next()) {
            (Some(name), None, None) => name == self.name,
            (Some(namespace), Some(name), None) => {
                name == self.name && self.namespace.as_deref() == Some(namespace)
            }
            _ => false,
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(out, "{}/{namespace}/{}", self.kind.kind, self.name),
            None => write!(out, "{}/{}", self.kind.kind, self.name),
        }
    }
}

/// The way from the root of an object to one of its fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FieldPath(Vec<Segment>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
enum Segment {
    /// A key of a map.
    Key(String),
    /// The item of a list whose field `by` has the value `is`: what Kubernetes calls a list of type map.
    Item { by: String, is: String },
}

impl FieldPath {
    /// A path through maps alone.
    pub fn of<S: Into<String>>(keys: impl IntoIterator<Item = S>) -> Self {
        Self(keys.into_iter().map(|key| Segment::Key(key.into())).collect())
    }

    /// Parses `spec.source_id`: keys without dots of their own.
    #[must_use]
    pub fn dotted(path: &str) -> Self {
        Self::of(path.split('.'))
    }

    /// Goes on into the item of a list whose field `by` has the value `is`.
    #[must_use]
    pub fn item(mut self, by: impl Into<String>, is: impl Into<String>) -> Self {
        self.0.push(Segment::Item { by: by.into(), is: is.into() });
        self
    }

    /// Goes on into a key of a map.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.push(Segment::Key(key.into()));
        self
    }

    /// The field's value, if it is there.
    #[must_use]
    pub fn get<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        self.0.iter().try_fold(object, |value, segment| match segment {
            Segment::Key(key) => value.get(key),
            Segment::Item { by, is } => {
                value.as_array()?.iter().find(|item| item.get(by).and_then(Value::as_str) == Some(is))
            }
        })
    }

    /// Sets the field, making the maps and list items on the way, or removes it where `value` is none.
    pub fn set(&self, object: &mut Value, value: Option<Value>) {
        set_segments(&self.0, object, value);
    }

    /// The part of the path before the first list, and what stands there in `object`.
    ///
    /// A merge patch can only replace a list as a whole, so this is the smallest thing it can send for the field.
    #[must_use]
    pub fn mergeable<'a>(&self, object: &'a Value) -> (Vec<&str>, Option<&'a Value>) {
        let keys: Vec<&str> = self
            .0
            .iter()
            .map_while(|segment| match segment {
                Segment::Key(key) => Some(key.as_str()),
                Segment::Item { .. } => None,
            })
            .collect();
        let value = keys.iter().try_fold(object, |value, key| value.get(*key));
        (keys, value)
    }
}

fn set_segments(segments: &[Segment], target: &mut Value, value: Option<Value>) {
    let Some((first, rest)) = segments.split_first() else {
        if let Some(value) = value {
            *target = value;
        }
        return;
    };
    match first {
        Segment::Key(key) => {
            if !target.is_object() {
                if value.is_none() {
                    return;
                }
                *target = Value::Object(Map::new());
            }
            let Some(map) = target.as_object_mut() else { return };
            if rest.is_empty() && value.is_none() {
                map.remove(key);
            } else if value.is_some() || map.contains_key(key) {
                set_segments(rest, map.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        Segment::Item { by, is } => {
            if !target.is_array() {
                if value.is_none() {
                    return;
                }
                *target = Value::Array(Vec::new());
            }
            let Some(list) = target.as_array_mut() else { return };
            let found = list.iter().position(|item| item.get(by).and_then(Value::as_str) == Some(is));
            match (found, rest.is_empty(), value) {
                (Some(index), true, None) => {
                    list.remove(index);
                }
                (Some(index), _, value) => set_segments(rest, &mut list[index], value),
                (None, _, None) => {}
                (None, _, Some(value)) => {
                    let mut item = serde_json::json!({ by.as_str(): is });
                    set_segments(rest, &mut item, Some(value));
                    list.push(item);
                }
            }
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if key.contains(['.', '/']) => write!(out, "[{key}]")?,
                Segment::Key(key) if index == 0 => write!(out, "{key}")?,
                Segment::Key(key) => write!(out, ".{key}")?,
                Segment::Item { by, is } => write!(out, "[{by}={is}]")?,
            }
        }
        Ok(())
    }
}

/// The text at a JSON pointer.
#[must_use]
pub fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// The object's uid, empty if it has none yet.
#[must_use]
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid").unwrap_or_default()
}

/// The object's resource version, empty if it has none yet.
#[must_use]
pub fn resource_version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion").unwrap_or_default()
}

/// Whether the object is on its way out: it can be neither kept nor rescued, only waited for.
#[must_use]
pub fn is_going(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// The finalizers that hold an object, for sentences.
#[must_use]
pub fn finalizers(object: &Value) -> String {
    let names: Vec<&str> = object
        .pointer("/metadata/finalizers")
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    names.join(", ")
}

/// A condition of the usual shape, by its type.
#[must_use]
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|c| text(c, "/type") == Some(kind))
}

/// The object as a person would have written it: without what the server sets, without status.
///
/// This is what a pre-image keeps, and what a restored object is made from.
#[must_use]
pub fn without_server_fields(object: &Value) -> Value {
    let mut clean = object.clone();
    if let Some(map) = clean.as_object_mut() {
        map.remove("status");
    }
    if let Some(metadata) = clean.get_mut("metadata").and_then(Value::as_object_mut) {
        for field in [
            "uid",
            "resourceVersion",
            "generation",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "managedFields",
            "selfLink",
        ] {
            metadata.remove(field);
        }
        metadata.retain(|_, value| match value {
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            Value::Null => false,
            _ => true,
        });
    }
    clean
}

/// Whether everything that `wanted` says is also what `found` says. Fields that `wanted` does not have are free:
/// servers default and controllers add, and neither makes the object somebody else's.
#[must_use]
pub fn holds(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| found.get(key).is_some_and(|found| holds(found, value)))
        }
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| holds(found, wanted))
        }
        (found, wanted) => found == wanted,
    }
}

/// Who puts an object back as it was, by the marks that GitOps tools leave. Changing such an object is a change
/// against somebody: it must be said.
#[must_use]
pub fn kept_by(object: &Value) -> Option<&'static str> {
    let label =
        |key: &str| object.pointer("/metadata/labels").is_some_and(|labels| labels.get(key).is_some());
    let annotation =
        |key: &str| object.pointer("/metadata/annotations").is_some_and(|notes| notes.get(key).is_some());
    if annotation("argocd.argoproj.io/tracking-id") || label("argocd.argoproj.io/instance") {
        Some("Argo CD")
    } else if label("kustomize.toolkit.fluxcd.io/name") || label("helm.toolkit.fluxcd.io/name") {
        Some("Flux")
    } else {
        None
    }
}

/// A duration for a sentence: `45 s`, `2 min`, `3 min 20 s`.
#[must_use]
pub fn shown_time(time: std::time::Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 60, seconds % 60) {
        (0, _) if time.as_millis() < 1000 => format!("{} ms", time.as_millis()),
        (0, seconds) => format!("{seconds} s"),
        (minutes, 0) => format!("{minutes} min"),
        (minutes, seconds) => format!("{minutes} min {seconds} s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_item_is_found_set_and_removed_by_its_key() {
        let mut kyma = json!({"spec": {"modules": [{"name": "keda"}]}});
        let channel = FieldPath::dotted("spec.modules").item("name", "istio").key("channel");
        channel.set(&mut kyma, Some("fast".into()));
        assert_eq!(
            kyma,
            json!({"spec": {"modules": [{"name": "keda"}, {"name": "istio", "channel": "fast"}]}})
        );
        assert_eq!(channel.get(&kyma), Some(&json!("fast")));
        FieldPath::dotted("spec.modules").item("name", "istio").set(&mut kyma, None);
        assert_eq!(kyma, json!({"spec": {"modules": [{"name": "keda"}]}}));
    }

    #[test]
    fn removing_a_field_that_is_not_there_changes_nothing() {
        let mut object = json!({"metadata": {"name": "a"}});
        FieldPath::of(["metadata", "labels", "x.y/z"]).set(&mut object, None);
        assert_eq!(object, json!({"metadata": {"name": "a"}}));
    }

    #[test]
    fn a_merge_patch_must_replace_a_list_as_a_whole() {
        let object = json!({"spec": {"modules": [{"name": "keda"}]}});
        let path = FieldPath::dotted("spec.modules").item("name", "keda").key("channel");
        assert_eq!(path.mergeable(&object), (vec!["spec", "modules"], Some(&json!([{"name": "keda"}]))));
    }

    #[test]
    fn an_exclusion_matches_by_kind_or_resource_with_or_without_namespace() {
        let source = Kind::namespaced("g", "v1", "HTTPSource", "httpsources").object("ns", "a");
        assert!(source.is_named("HTTPSource/a") && source.is_named("httpsources/ns/a"));
        assert!(
            !source.is_named("HTTPSource/other/a") && !source.is_named("Channel/a") && !source.is_named("a")
        );
    }

    #[test]
    fn what_the_server_adds_does_not_make_an_object_foreign() {
        let ours = json!({"spec": {"source": "a"}});
        assert!(holds(&json!({"spec": {"source": "a", "defaulted": 1}, "status": {}}), &ours));
        assert!(!holds(&json!({"spec": {"source": "b"}}), &ours));
    }

    #[test]
    fn a_pre_image_has_no_field_that_the_server_sets() {
        let clean = without_server_fields(&json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "labels": {}, "annotations": {"k": "v"}},
            "spec": {"x": 1}, "status": {"y": 2}
        }));
        assert_eq!(clean, json!({"metadata": {"name": "a", "annotations": {"k": "v"}}, "spec": {"x": 1}}));
    }
}
