//! Naming things in a cluster: kinds, objects, fields of objects.
//!
//! Objects are raw JSON throughout. Typed structs drop the fields they do not know, and a pre-image that lost a
//! field cannot restore it.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::BTreeSet,
    fmt,
    io::Read as _,
    sync::{Arc, Mutex},
};

use flate2::{Compress, Compression, FlushCompress, Status, read::DeflateDecoder};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::cluster::lock;

/// A kind of object in one version of its API: enough to build every URL that a step needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: &'static str,
    /// The version the step speaks.
    pub version: &'static str,
    /// Kind as written in manifests.
    pub kind: &'static str,
    /// Resource name as written in URLs and RBAC rules.
    pub plural: &'static str,
    /// Whether objects of this kind live in a namespace.
    pub namespaced: bool,
}

/// Keeps a name of an API for as long as the program runs. There are a few dozen, and thousands of references to objects
/// that are read from a journal share them.
pub(crate) fn keep(name: Cow<'_, str>) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut all = lock(&KEPT);
    if let Some(known) = all.get(name.as_ref()) {
        return known;
    }
    let new: &'static str = Box::leak(name.into_owned().into_boxed_str());
    all.insert(new);
    new
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Written<'a> {
            #[serde(borrow)]
            group: Cow<'a, str>,
            #[serde(borrow)]
            version: Cow<'a, str>,
            #[serde(borrow)]
            kind: Cow<'a, str>,
            #[serde(borrow)]
            plural: Cow<'a, str>,
            namespaced: bool,
        }
        let written = Written::deserialize(deserializer)?;
        Ok(Self {
            group: keep(written.group),
            version: keep(written.version),
            kind: keep(written.kind),
            plural: keep(written.plural),
            namespaced: written.namespaced,
        })
    }
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
        Self { group, version, kind, plural, namespaced }
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
    /// `Service`
    pub const SERVICE: Kind = Kind::namespaced("", "v1", "Service", "services");
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
    /// `CustomResourceDefinition`
    pub const CUSTOM_RESOURCE_DEFINITION: Kind = Kind::cluster_wide(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
    );
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
        if !kind.eq_ignore_ascii_case(self.kind.kind) && !kind.eq_ignore_ascii_case(self.kind.plural) {
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

/// A whole object, kept as packed text. Parsed JSON takes fifteen times the room, plain text three to four times, and of
/// thousands of objects that a plan, a journal or a watch holds most are looked at twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(Kept);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    Packed(Arc<[u8]>),
    /// What packing would not make smaller.
    Plain(Arc<str>),
}

impl Body {
    /// Keeps an object.
    #[must_use]
    pub fn of(object: &impl Serialize) -> Self {
        let text = serde_json::to_string(object).unwrap_or_default();
        Self(
            pack(text.as_bytes())
                .map_or_else(|| Kept::Plain(text.into()), |bytes| Kept::Packed(bytes.into())),
        )
    }

    /// The object, parsed.
    #[must_use]
    pub fn value(&self) -> Value {
        // The text was JSON when it was packed, so it is when it is unpacked.
        match &self.0 {
            Kept::Plain(text) => serde_json::from_str(text),
            Kept::Packed(bytes) => {
                let mut text = Vec::with_capacity(4 * bytes.len());
                match DeflateDecoder::new(&bytes[..]).read_to_end(&mut text) {
                    Ok(_) => serde_json::from_slice(&text),
                    Err(error) => Err(serde_json::Error::io(error)),
                }
            }
        }
        .unwrap_or_default()
    }
}

/// Packs a text, if that makes it smaller.
fn pack(text: &[u8]) -> Option<Vec<u8>> {
    thread_local! {
        // A packer needs hundreds of kilobytes: there is one for all texts.
        static PACKER: RefCell<Compress> = RefCell::new(Compress::new(Compression::fast(), false));
    }
    PACKER.with_borrow_mut(|packer| {
        packer.reset();
        let mut packed = Vec::with_capacity(text.len());
        let status = packer.compress_vec(text, &mut packed, FlushCompress::Finish).ok()?;
        (status == Status::StreamEnd).then_some(packed)
    })
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|object| Self::of(&object))
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
    /// The item of a list of strings that is this one: what Kubernetes calls a list of type set. It is there, with itself
    /// as its value, or not.
    Member { member: String },
}

impl FieldPath {
    /// A path through maps alone.
    pub fn of<S: Into<String>>(keys: impl IntoIterator<Item = S>) -> Self {
        let mut segments: Vec<Segment> = keys.into_iter().map(|key| Segment::Key(key.into())).collect();
        // Thousands of moves name fields, and most paths are short.
        segments.shrink_to_fit();
        Self(segments)
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

    /// Goes on to one of the strings of a list, such as a finalizer. Whatever else is in the list is left alone.
    #[must_use]
    pub fn member(mut self, member: impl Into<String>) -> Self {
        self.0.push(Segment::Member { member: member.into() });
        self
    }

    /// Whether this is the other path, or leads further into the same field.
    #[must_use]
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
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
            Segment::Member { member } => value.as_array()?.iter().find(|item| *item == member),
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
                Segment::Item { .. } | Segment::Member { .. } => None,
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
            let Some(list) = list_at(target, value.is_some()) else { return };
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
        Segment::Member { member } => {
            let Some(list) = list_at(target, value.is_some()) else { return };
            let found = list.iter().position(|item| item == member);
            match (found, value) {
                (Some(index), None) => {
                    list.remove(index);
                }
                (None, Some(_)) => list.push(member.clone().into()),
                _ => {}
            }
        }
    }
}

/// The list that stands here, made where there is none and one is wanted.
fn list_at(target: &mut Value, make: bool) -> Option<&mut Vec<Value>> {
    if !target.is_array() && make {
        *target = Value::Array(Vec::new());
    }
    target.as_array_mut()
}

impl fmt::Display for FieldPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if key.contains(['.', '/']) => write!(out, "[{key}]")?,
                Segment::Key(key) if index == 0 => write!(out, "{key}")?,
                Segment::Key(key) => write!(out, ".{key}")?,
                Segment::Item { by, is } => write!(out, "[{by}={is}]")?,
                Segment::Member { member } => write!(out, "[{member}]")?,
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

/// Whether at least one pod of a Deployment is available. One of no replicas calls itself Available too, but nothing of
/// it runs.
#[must_use]
pub fn is_available(deployment: &Value) -> bool {
    deployment.pointer("/status/availableReplicas").and_then(Value::as_i64).unwrap_or_default() > 0
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
    fn an_object_comes_back_as_it_was_kept() {
        let words: Vec<String> = (0..200).map(|number| format!("word {number}")).collect();
        for object in
            [serde_json::json!({"a": "b"}), serde_json::json!({"words": words, "n": 1.5}), Value::Null]
        {
            assert_eq!(Body::of(&object).value(), object);
        }
        let Kept::Packed(bytes) = Body::of(&words).0 else { panic!("what repeats itself is packed") };
        assert!(bytes.len() < serde_json::to_string(&words).unwrap().len() / 2);
    }

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
    fn a_member_of_a_list_comes_and_goes_without_the_others() {
        let path = FieldPath::dotted("metadata.finalizers").member("ours");
        let mut object = json!({"metadata": {"finalizers": ["ours", "theirs"]}});
        assert_eq!(path.get(&object), Some(&json!("ours")));
        path.set(&mut object, None);
        assert_eq!(object, json!({"metadata": {"finalizers": ["theirs"]}}));
        assert_eq!(path.get(&object), None);
        path.set(&mut object, Some("ours".into()));
        assert_eq!(object, json!({"metadata": {"finalizers": ["theirs", "ours"]}}));
        assert_eq!(
            path.mergeable(&object),
            (vec!["metadata", "finalizers"], Some(&json!(["theirs", "ours"])))
        );
        assert_eq!(path.to_string(), "metadata.finalizers[ours]");
        let stored: FieldPath = serde_json::from_value(serde_json::to_value(&path).unwrap()).unwrap();
        assert_eq!(stored, path);
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
