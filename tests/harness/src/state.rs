//! The state of a cluster as far as a step matters to it, in a form that can be compared between runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use anyhow::{Result, bail};
use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::{
    api::{Api, Resource},
    call::Call,
};

/// Objects that belong to a scenario: a kind, and where to look.
#[derive(Clone, Debug)]
pub struct Area {
    /// The kind.
    pub kind: Resource,
    /// The namespace; none for cluster-scoped kinds and for all namespaces.
    pub namespace: Option<String>,
    /// Only objects whose name begins so.
    pub prefix: Option<String>,
    /// Only objects whose labels are so, as a label selector.
    pub selector: Option<String>,
}

impl Area {
    /// A kind in one namespace.
    #[must_use]
    pub fn within(kind: Resource, namespace: &str) -> Self {
        Self { kind, namespace: Some(namespace.to_owned()), prefix: None, selector: None }
    }

    /// A kind in the whole cluster.
    #[must_use]
    pub fn anywhere(kind: Resource) -> Self {
        Self { kind, namespace: None, prefix: None, selector: None }
    }

    /// Of those only the ones whose name begins so.
    #[must_use]
    pub fn named(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// Of those only the ones that this label selector chooses.
    #[must_use]
    pub fn labelled(mut self, selector: &str) -> Self {
        self.selector = Some(selector.to_owned());
        self
    }

    async fn list(&self, api: &Api) -> Result<Vec<Value>> {
        let mut found = api.list(&self.kind, self.namespace.as_deref(), self.selector.as_deref()).await?;
        if let Some(prefix) = &self.prefix {
            found.retain(|object| {
                object["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(prefix))
            });
        }
        Ok(found)
    }
}

/// What every namespace has without anybody's doing.
fn is_everywhere(object: &Value) -> bool {
    let name = object.pointer("/metadata/name").and_then(Value::as_str);
    matches!(
        (object["kind"].as_str(), name),
        (Some("ConfigMap"), Some("kube-root-ca.crt")) | (Some("ServiceAccount"), Some("default"))
    )
}

/// What a run keeps for itself: see [`Bookkeeping`].
fn is_own(object: &Value) -> bool {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    match object["kind"].as_str() {
        Some("ConfigMap") => name.starts_with("belay-report-"),
        Some("Secret" | "Lease") => name.starts_with("belay-"),
        _ => false,
    }
}

/// An object's name: kind/namespace/name.
pub type Key = String;

/// What distinguishes an object from a later one of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The uid.
    pub uid: String,
    /// Its kind, as URLs name it.
    pub resource: Resource,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// The names of its owners in the form of [`Key`]; their namespace is the object's or none.
    pub owners: Vec<Key>,
}

impl Identity {
    fn of(kind: &Resource, object: &Value) -> Self {
        let field = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            uid: uid(object),
            resource: kind.clone(),
            namespace: field("/metadata/namespace"),
            name: field("/metadata/name").unwrap_or_default(),
            owners: owners(object),
        }
    }

    /// Whether a call is about this object, in whatever version of its API.
    #[must_use]
    pub fn is_target_of(&self, call: &Call) -> bool {
        self.resource.group == call.target.group
            && self.resource.plural == call.target.resource
            && self.namespace == call.target.namespace
            && call.name.as_ref() == Some(&self.name)
    }
}

/// A cluster's state: comparable objects, and their identities on the side.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The objects without what differs from run to run.
    pub objects: BTreeMap<Key, Value>,
    /// Who they are.
    pub identities: BTreeMap<Key, Identity>,
}

impl State {
    /// Reads the cluster, without what Belay keeps for itself. `adjust` takes out what only the scenario knows to differ from run to run.
    pub async fn read(api: &Api, areas: &[Area], adjust: impl Fn(&mut Value)) -> Result<Self> {
        let mut found = Vec::new();
        for area in areas {
            let objects = area.list(api).await?.into_iter();
            let objects = objects.filter(|object| !is_everywhere(object) && !is_own(object));
            found.extend(objects.map(|object| (&area.kind, object)));
        }
        let mut uids: BTreeSet<String> = found.iter().map(|(_, object)| uid(object)).collect();
        uids.extend(owners_elsewhere(api, found.iter().map(|(_, object)| object), &uids).await?);
        let mut state = Self::default();
        for (kind, mut object) in found {
            let key = key(&object);
            let identity = Identity::of(kind, &object);
            normalise(&mut object, &uids);
            adjust(&mut object);
            drop_empty(&mut object["metadata"]);
            state.objects.insert(key.clone(), object);
            state.identities.insert(key, identity);
        }
        Ok(state)
    }

    /// Reads the cluster until two readings a moment apart are alike.
    pub async fn read_settled(
        api: &Api,
        areas: &[Area],
        adjust: impl Fn(&mut Value) + Copy,
        within: Duration,
    ) -> Result<Self> {
        let end = Instant::now() + within;
        let mut before = Self::read(api, areas, adjust).await?;
        loop {
            tokio::time::sleep(Duration::from_millis(250)).await;
            let now = Self::read(api, areas, adjust).await?;
            let diff = before.diff(&now);
            if diff.is_empty() && before.identities == now.identities {
                return Ok(now);
            }
            if Instant::now() > end {
                bail!("the cluster does not come to rest within {within:?}:\n{diff}");
            }
            before = now;
        }
    }

    /// What is different in `other`, which should be as this is.
    #[must_use]
    pub fn diff(&self, other: &Self) -> Diff {
        let mut lines = Vec::new();
        for (key, object) in &self.objects {
            match other.objects.get(key) {
                None => lines.push(format!("{key}: lost")),
                Some(there) => {
                    let mut paths = Vec::new();
                    compare("", object, there, &mut paths);
                    lines.extend(paths.into_iter().map(|line| format!("{key}: {line}")));
                }
            }
        }
        let extra = other.objects.keys().filter(|key| !self.objects.contains_key(*key));
        lines.extend(extra.map(|key| format!("{key}: should not be there")));
        Diff(lines)
    }

    /// Objects that are there under the same name, but are not the same ones. Objects for which `excused` is true
    /// may be others.
    #[must_use]
    pub fn replaced(&self, other: &Self, excused: impl Fn(&Key, &Identity) -> bool) -> Diff {
        let mut lines = Vec::new();
        for (key, identity) in &self.identities {
            if let Some(there) = other.identities.get(key)
                && there.uid != identity.uid
                && !excused(key, identity)
            {
                lines.push(format!("{key}: was replaced (uid {} is now {})", identity.uid, there.uid));
            }
        }
        Diff(lines)
    }
}

/// Differences, one per line; empty if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff(pub Vec<String>);

impl Diff {
    /// Whether all is as it should be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join("\n"))
    }
}

fn compare(path: &str, should: &Value, is: &Value, lines: &mut Vec<String>) {
    match (should, is) {
        (Value::Object(should), Value::Object(is)) => {
            for (name, value) in should {
                match is.get(name) {
                    Some(there) => compare(&format!("{path}.{name}"), value, there, lines),
                    None => lines.push(format!("{path}.{name}: should be {}, is not set", short(value))),
                }
            }
            for (name, value) in is.iter().filter(|(name, _)| !should.contains_key(*name)) {
                lines.push(format!("{path}.{name}: should not be set, is {}", short(value)));
            }
        }
        (Value::Array(should), Value::Array(is)) if should.len() == is.len() => {
            for (index, (should, is)) in should.iter().zip(is).enumerate() {
                compare(&format!("{path}[{index}]"), should, is, lines);
            }
        }
        (should, is) if should != is => {
            lines.push(format!("{path}: should be {}, is {}", short(should), short(is)));
        }
        _ => {}
    }
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 120 { text } else { text.chars().take(117).chain("...".chars()).collect() }
}

fn uid(object: &Value) -> String {
    object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn key(object: &Value) -> Key {
    let field = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    join_key(field("/kind"), field("/metadata/namespace"), field("/metadata/name"))
}

/// The key of an object.
#[must_use]
pub fn join_key(kind: &str, namespace: &str, name: &str) -> Key {
    [kind, namespace, name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

fn owner_references(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

fn owners(object: &Value) -> Vec<Key> {
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
    owner_references(object)
        .map(|owner| {
            let field = |name: &str| owner[name].as_str().unwrap_or_default();
            join_key(field("kind"), namespace, field("name"))
        })
        .collect()
}

/// Uids of owners that are not among the objects read, asked for one by one.
async fn owners_elsewhere(
    api: &Api,
    objects: impl Iterator<Item = &Value>,
    known: &BTreeSet<String>,
) -> Result<BTreeSet<String>> {
    let mut alive = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for object in objects {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        for owner in owner_references(object) {
            let field = |name: &str| owner[name].as_str().unwrap_or_default().to_owned();
            if known.contains(&field("uid")) || !asked.insert(field("uid")) {
                continue;
            }
            let Some((kind, namespaced)) = resource_of(api, &field("apiVersion"), &field("kind")).await?
            else {
                continue;
            };
            let found = api.get(&kind, namespace.filter(|_| namespaced), &field("name")).await?;
            if let Some(owner) = found {
                alive.insert(uid(&owner));
            }
        }
    }
    Ok(alive)
}

async fn resource_of(api: &Api, api_version: &str, kind: &str) -> Result<Option<(Resource, bool)>> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let uri = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let (_, served) = api.request(http::Method::GET, &uri, "application/json", None).await?;
    let is_it =
        |one: &&Value| one["kind"] == kind && one["name"].as_str().is_some_and(|name| !name.contains('/'));
    let found = served["resources"].as_array().into_iter().flatten().find(is_it);
    Ok(found.map(|one| {
        let plural = one["name"].as_str().unwrap_or_default();
        (Resource::new(group, version, plural), one["namespaced"] == true)
    }))
}

/// Takes out of an object what the server sets and what differs between two runs that did the same.
///
/// The value of the run annotation goes, its key stays; an owner reference's uid becomes `live` or `dangling`; a
/// deletionTimestamp becomes `going`; of conditions type, status and reason stay, and of managedFields only that a step
/// holds some: a mark that was left on somebody's object is in the way of the next apply.
pub fn normalise(object: &mut Value, live: &BTreeSet<String>) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"] {
            metadata.remove(field);
        }
        if let Some(Value::Array(managers)) = metadata.get_mut("managedFields") {
            managers.retain(|entry| entry["manager"] == "belay");
            managers.truncate(1);
            if let Some(entry) = managers.first_mut() {
                *entry = "belay".into();
            }
        }
        metadata.remove("deletionGracePeriodSeconds");
        if let Some(going) = metadata.get_mut("deletionTimestamp") {
            *going = "going".into();
        }
        if let Some(run) = metadata.get_mut("annotations").and_then(|all| all.get_mut("belay.dev/run")) {
            *run = "*".into();
        }
        if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
            for owner in owners {
                let uid = owner["uid"].as_str().unwrap_or_default();
                owner["uid"] = if live.contains(uid) { "live".into() } else { "dangling".into() };
            }
        }
    }
    drop_empty(&mut object["metadata"]);
    if let Some(status) = object.get_mut("status") {
        normalise_status(status);
    }
}

/// An emptied map and one that was never there are the same to everyone but a byte-wise comparison.
fn drop_empty(fields: &mut Value) {
    if let Some(fields) = fields.as_object_mut() {
        fields.retain(|_, value| !is_empty_container(value));
    }
}

fn is_empty_container(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn normalise_status(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !(name.ends_with("Time") || name == "observedGeneration"));
            if let Some(Value::Array(conditions)) = fields.get_mut("conditions") {
                for condition in conditions.iter_mut() {
                    let kept = ["type", "status", "reason"].map(|name| (name, condition[name].take()));
                    *condition = kept
                        .into_iter()
                        .filter(|(_, value)| !value.is_null())
                        .map(|(name, value)| (name.to_owned(), value))
                        .collect::<Map<_, _>>()
                        .into();
                }
                conditions.sort_by_key(|condition| condition["type"].to_string());
            }
            fields.values_mut().for_each(normalise_status);
        }
        Value::Array(items) => items.iter_mut().for_each(normalise_status),
        _ => {}
    }
}

/// Belay's own objects in a home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bookkeeping {
    /// Journal heads by name, with their status.
    pub journals: BTreeMap<String, String>,
    /// Leases by name, with their holder; empty: free.
    pub leases: BTreeMap<String, String>,
    /// Names of the reports.
    pub reports: BTreeSet<String>,
}

impl Bookkeeping {
    /// Reads a home.
    pub async fn read(api: &Api, home: &str) -> Result<Self> {
        let named = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let mut own = Self::default();
        for secret in api.list(&Resource::core("secrets"), Some(home), None).await? {
            if secret["type"] == "belay.dev/journal"
                && let Some(status) = journal_status(&secret)
            {
                own.journals.insert(named(&secret), status);
            }
        }
        for lease in api.list(&Resource::new("coordination.k8s.io", "v1", "leases"), Some(home), None).await?
        {
            if named(&lease).starts_with("belay-") {
                let holder =
                    lease.pointer("/spec/holderIdentity").and_then(Value::as_str).unwrap_or_default();
                own.leases.insert(named(&lease), holder.to_owned());
            }
        }
        for map in api.list(&Resource::core("configmaps"), Some(home), None).await? {
            if named(&map).starts_with("belay-report-") {
                own.reports.insert(named(&map));
            }
        }
        Ok(own)
    }

    /// The journals that are not closed, with their status.
    pub fn open_journals(&self) -> impl Iterator<Item = (&String, &String)> {
        self.journals.iter().filter(|(_, status)| is_open(status))
    }

    /// What is left open: journals that are not closed, locks that are not free.
    #[must_use]
    pub fn left_open(&self) -> Diff {
        let journals = self.open_journals();
        let leases = self.leases.iter().filter(|(_, holder)| !holder.is_empty());
        Diff(
            journals
                .map(|(name, status)| format!("journal {name} is still {status}"))
                .chain(leases.map(|(name, holder)| format!("lock {name} is still held by {holder}")))
                .collect(),
        )
    }
}

/// The status of the newest journal in a head, or of an older one that is still open; none for a chunk.
#[must_use]
pub fn journal_status(secret: &Value) -> Option<String> {
    let bytes = serde_json::from_value::<ByteString>(secret["data"]["head"].clone()).ok()?.0;
    let head: Value = serde_json::from_slice(&bytes).ok()?;
    let statuses: Vec<&str> =
        head["journals"].as_array()?.iter().filter_map(|one| one["status"].as_str()).collect();
    let open = statuses.iter().find(|status| is_open(status));
    open.or(statuses.first()).map(|status| (*status).to_owned())
}

fn is_open(status: &str) -> bool {
    !matches!(status, "done" | "undone" | "accepted")
}

/// The areas of Belay's own objects in a home, for clearing it.
#[must_use]
pub fn own_areas(home: &str) -> Vec<Area> {
    vec![
        Area::within(Resource::core("secrets"), home).named("belay-"),
        Area::within(Resource::core("configmaps"), home).named("belay-report-"),
        Area::within(Resource::new("coordination.k8s.io", "v1", "leases"), home).named("belay-"),
    ]
}

/// Deletes everything in these areas and waits until it is gone. Finalizers are taken off: their controllers may
/// not run here. Namespaces stay, since they take long to go: whoever compares one sets it back himself.
pub async fn clear(api: &Api, areas: &[Area], within: Duration) -> Result<()> {
    let end = Instant::now() + within;
    loop {
        let mut left = Vec::new();
        for area in areas {
            let stays = |object: &Value| is_everywhere(object) || object["kind"] == "Namespace";
            for object in area.list(api).await?.into_iter().filter(|object| !stays(object)) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
                let has_finalizers =
                    object.pointer("/metadata/finalizers").is_some_and(|all| !is_empty_container(all));
                if has_finalizers {
                    let off = json!({"metadata": {"finalizers": null}});
                    // It may go between the list and the patch.
                    let _ = api.merge(&area.kind, namespace, name, None, &off).await;
                }
                api.delete(&area.kind, namespace, name).await?;
                left.push(key(&object));
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > end {
            bail!("still there after {within:?}: {}", left.join(", "));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(objects: &[Value]) -> State {
        let mut state = State::default();
        for object in objects {
            let identity = Identity::of(&Resource::core("configmaps"), object);
            let mut plain = object.clone();
            normalise(&mut plain, &BTreeSet::from(["owner-uid".to_owned()]));
            state.identities.insert(key(object), identity);
            state.objects.insert(key(object), plain);
        }
        state
    }

    fn object(uid: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {
                "name": "a", "namespace": "n", "uid": uid, "resourceVersion": uid, "generation": 3,
                "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"manager": uid}],
                "annotations": {"belay.dev/run": uid, "kept": "yes"},
                "ownerReferences": [
                    {"kind": "Deployment", "name": "d", "uid": "owner-uid"},
                    {"kind": "Deployment", "name": "gone", "uid": "old-uid"},
                ],
            },
            "data": {"x": "1"},
            "status": {
                "observedGeneration": 3, "startTime": uid,
                "conditions": [
                    {"type": "Ready", "status": "True", "reason": "Fine", "message": uid, "lastTransitionTime": uid},
                ],
            },
        })
    }

    #[test]
    fn what_the_server_sets_does_not_count() {
        assert_eq!(state(&[object("1")]).diff(&state(&[object("2")])), Diff::default());
    }

    #[test]
    fn the_run_annotation_counts_but_not_its_value() {
        let mut without = object("1");
        without["metadata"]["annotations"].as_object_mut().unwrap().remove("belay.dev/run");
        let diff = state(&[object("1")]).diff(&state(&[without]));
        assert_eq!(
            diff.0,
            ["ConfigMap/n/a: .metadata.annotations.belay.dev/run: should be \"*\", is not set"]
        );
    }

    #[test]
    fn an_owner_is_live_or_dangling() {
        let state = state(&[object("1")]);
        let owners = &state.objects["ConfigMap/n/a"]["metadata"]["ownerReferences"];
        assert_eq!(owners[0]["uid"], "live");
        assert_eq!(owners[1]["uid"], "dangling");
    }

    #[test]
    fn of_conditions_type_status_and_reason_count() {
        let mut unready = object("1");
        unready["status"]["conditions"][0]["status"] = "False".into();
        let diff = state(&[object("1")]).diff(&state(&[unready]));
        assert_eq!(diff.0, ["ConfigMap/n/a: .status.conditions[0].status: should be \"True\", is \"False\""]);
    }

    #[test]
    fn lost_doubled_and_changed_objects_are_named() {
        let mut second = object("2");
        second["metadata"]["name"] = "b".into();
        let mut changed = object("1");
        changed["data"] = json!({"x": "2", "y": "3"});
        let diff = state(&[object("1"), second.clone()]).diff(&state(&[changed]));
        assert_eq!(
            diff.0,
            [
                "ConfigMap/n/a: .data.x: should be \"1\", is \"2\"",
                "ConfigMap/n/a: .data.y: should not be set, is \"3\"",
                "ConfigMap/n/b: lost",
            ]
        );
        let diff = state(&[object("1")]).diff(&state(&[object("1"), second]));
        assert_eq!(diff.0, ["ConfigMap/n/b: should not be there"]);
    }

    #[test]
    fn untouched_means_the_same_uid() {
        let (before, after) = (state(&[object("1")]), state(&[object("2")]));
        assert!(before.replaced(&before, |_, _| false).is_empty());
        assert_eq!(before.replaced(&after, |_, _| false).0.len(), 1);
        assert!(before.replaced(&after, |key, _| key == "ConfigMap/n/a").is_empty());
        assert_eq!(before.identities["ConfigMap/n/a"].owners, ["Deployment/n/d", "Deployment/n/gone"]);
    }

    #[test]
    fn the_status_of_a_head_is_that_of_its_newest_journal_or_of_one_left_open() {
        let head = |statuses: &[&str]| {
            let journals: Vec<Value> = statuses.iter().map(|status| json!({"status": status})).collect();
            let bytes = json!({"format": 1, "journals": journals}).to_string().into_bytes();
            journal_status(&json!({"data": {"head": ByteString(bytes)}}))
        };
        assert_eq!(head(&["done", "undone"]).as_deref(), Some("done"));
        assert_eq!(head(&["done", "undoing"]).as_deref(), Some("undoing"));
        assert_eq!(head(&[]), None);
        assert_eq!(journal_status(&json!({"data": {"entries": "H4sI"}})), None);
    }

    #[test]
    fn what_is_open_is_named() {
        let mut own = Bookkeeping::default();
        own.journals.insert("belay-x".into(), "open".into());
        own.journals.insert("belay-y".into(), "done".into());
        own.leases.insert("belay-f".into(), "host/1".into());
        assert_eq!(
            own.left_open().0,
            ["journal belay-x is still open", "lock belay-f is still held by host/1"]
        );
    }
}
