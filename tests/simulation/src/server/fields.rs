//! managedFields and server-side apply.
//!
//! Every write tells whose the fields are that it changed. The rules are those of a real API server (1.35), down to the
//! order of the entries; of its limits one is missing: there, of more than ten updaters the oldest are thrown together.

mod set;
mod types;
mod walk;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::set::Set;
use self::types::Type;
use super::schema::Schema;

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The name of the field manager.
    pub manager: &'a str,
    /// The version that the request is in, such as `apps/v1`.
    pub api_version: &'a str,
    /// `status`, or nothing for the object itself.
    pub subresource: &'a str,
    /// The field that cannot be written at this place, if there is one: nobody owns what is in it by such a write.
    pub reset: &'a str,
    /// The time of the write.
    pub now: Timestamp,
}

/// A field that another manager owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The name of that manager.
    pub manager: String,
    /// The manager as the server's message shows it: `"kubectl" using apps/v1`.
    pub shown: String,
    /// The field, such as `.spec.replicas`.
    pub field: String,
}

/// Who owns what is there already when an object without managedFields is applied for the first time.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields of `metadata` that belong to the server.
const NEVER_TRACKED: [&str; 8] = [
    "name",
    "namespace",
    "creationTimestamp",
    "selfLink",
    "uid",
    "generation",
    "managedFields",
    "resourceVersion",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Operation {
    Apply,
    Update,
}

/// An entry of managedFields.
#[derive(Clone, Debug)]
struct Entry {
    manager: String,
    operation: Operation,
    api_version: String,
    subresource: String,
    time: Option<String>,
    fields: Set,
}

impl Entry {
    fn new(operation: Operation, writer: &Writer<'_>, fields: Set) -> Self {
        Self {
            manager: writer.manager.to_owned(),
            operation,
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            time: Some(writer.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
            fields,
        }
    }

    /// Whether both are one manager's. Whoever applies is the same in every version.
    fn is_same(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    fn decode(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).map(str::to_owned);
        let operation = match entry.get("operation")?.as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if entry.get("fieldsType").is_some_and(|kind| kind != "FieldsV1") {
            return None;
        }
        let fields = match entry.get("fieldsV1") {
            None | Some(Value::Null) => Set::default(),
            Some(fields) => Set::decode(fields.as_object()?)?,
        };
        Some(Self {
            manager: text("manager").unwrap_or_default(),
            operation,
            api_version: text("apiVersion").filter(|version| !version.is_empty())?,
            subresource: text("subresource").unwrap_or_default(),
            time: text("time"),
            fields,
        })
    }

    fn encode(&self) -> Value {
        let operation = if self.operation == Operation::Apply { "Apply" } else { "Update" };
        let mut entry = json!({
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.encode(),
            "operation": operation,
        });
        for (key, text) in [("manager", &self.manager), ("subresource", &self.subresource)] {
            if !text.is_empty() {
                entry[key] = text.as_str().into();
            }
        }
        if let Some(time) = &self.time {
            entry["time"] = time.as_str().into();
        }
        entry
    }

    fn shown(&self) -> String {
        let mut shown = Value::from(self.manager.as_str()).to_string();
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource \"{}\"", self.subresource);
        }
        if self.operation == Operation::Update {
            shown = format!("{shown} using {}", self.api_version);
        }
        shown
    }
}

/// All entries, if each of them can be read.
fn decode(managed: &Value) -> Option<Vec<Entry>> {
    managed.as_array()?.iter().map(Entry::decode).collect()
}

fn managed_of(object: Option<&Value>) -> Vec<Entry> {
    object.and_then(|object| object.pointer("/metadata/managedFields")).and_then(decode).unwrap_or_default()
}

/// Writes the entries into the object, sorted; none at all if there is none.
fn put(object: &mut Value, mut entries: Vec<Entry>) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    // Times are all of one shape, so that they sort as text; none is before any.
    let order = |a: &Entry| {
        (a.operation, a.time.clone(), a.manager.clone(), a.api_version.clone(), a.subresource.clone())
    };
    entries.sort_by_key(order);
    metadata.insert("managedFields".to_owned(), entries.iter().map(Entry::encode).collect());
}

fn without_managed(object: &Value) -> Value {
    let mut object = object.clone();
    take_managed(&mut object);
    object
}

fn take_managed(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn kind_of(object: &Value) -> &str {
    object.get("kind").and_then(Value::as_str).unwrap_or_default()
}

/// Takes out what nobody ever owns.
fn strip(set: &mut Set) {
    set.is_member = false;
    for name in ["apiVersion", "kind", "metadata"] {
        set.subtract(&Set::of(&[name]));
    }
    for name in NEVER_TRACKED {
        set.subtract(&Set::of(&["metadata", name]));
    }
}

/// Sets the managedFields of an object that was created, updated or patched, but not applied.
///
/// `new` is as it will be stored, with the managedFields that the client sent; if it sent none, those of `old` go on. An
/// empty list, or one empty entry, forgets them all: from then on nothing is tracked until somebody applies.
pub fn track_update(old: Option<&Value>, new: &mut Value, writer: &Writer<'_>, schema: Option<&Schema>) {
    let sent = take_managed(new).filter(|sent| !sent.is_null());
    let mut entries = match sent {
        // A subresource has no say in the entries themselves.
        Some(sent) if writer.subresource.is_empty() => {
            if is_reset(&sent, schema.is_some()) {
                Vec::new()
            } else {
                decode(&sent).filter(|sent| !sent.is_empty()).unwrap_or_else(|| managed_of(old))
            }
        }
        _ => managed_of(old),
    };
    // What does not fit its schema cannot be compared: it is left to validation.
    let is_typed = schema.is_none_or(|schema| schema.typed_faults(new).is_empty());
    if is_typed && !(entries.is_empty() && old.is_some()) {
        update(&mut entries, old, new, writer, schema);
    }
    put(new, entries);
}

/// Of a custom resource an empty list says as little as none.
fn is_reset(sent: &Value, is_custom: bool) -> bool {
    let is_blank = |entry: &Value| entry.as_object().is_some_and(Map::is_empty);
    sent.as_array().is_some_and(|sent| match sent.as_slice() {
        [] => !is_custom,
        [one] => is_blank(one),
        _ => false,
    })
}

fn update(
    entries: &mut Vec<Entry>,
    old: Option<&Value>,
    new: &Value,
    writer: &Writer<'_>,
    schema: Option<&Schema>,
) {
    let kind = kind_of(new).to_owned();
    let empty;
    let old = if let Some(old) = old {
        old
    } else {
        empty = types::empty(&kind, schema);
        &empty
    };
    let mut found = walk::compare(Type::of(&kind, schema), Some(old), Some(new));
    strip(&mut found.written);
    strip(&mut found.removed);
    for entry in &mut *entries {
        entry.fields.subtract(&found.written);
        entry.fields.subtract(&found.removed);
    }
    if !found.written.is_empty() {
        own(entries, Entry::new(Operation::Update, writer, found.written));
    }
    entries.retain(|entry| !entry.fields.is_empty());
}

/// Adds an entry, or its fields to the same manager's.
fn own(entries: &mut Vec<Entry>, entry: Entry) {
    if let Some(known) = entries.iter_mut().find(|known| known.is_same(&entry)) {
        known.fields.add(&entry.fields);
        known.time = entry.time;
        known.api_version = entry.api_version;
    } else {
        entries.push(entry);
    }
}

/// Sets the managedFields of a built-in workload that was scaled through its subresource: whoever had the replicas loses
/// them to the writer, whose entry has the subresource `scale`. If nobody had them, or they are 0 now, nobody has them
/// afterwards.
///
/// The writer's version is that of the workload, such as `apps/v1`, and not that of the Scale.
pub fn track_scale(old: &Value, new: &mut Value, writer: &Writer<'_>) {
    const REPLICAS: [&str; 2] = ["spec", "replicas"];
    let mut entries = managed_of(Some(old));
    let is_changed = old.pointer("/spec/replicas") != new.pointer("/spec/replicas");
    let is_owned = entries.iter().any(|entry| entry.fields.has(&REPLICAS));
    if is_changed && is_owned {
        let replicas = Set::of(&REPLICAS);
        for entry in &mut entries {
            entry.fields.subtract(&replicas);
        }
        entries.retain(|entry| !entry.fields.is_empty());
        // A Scale leaves out replicas that are 0, so nobody is seen to set them.
        if new.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default() != 0 {
            let writer = Writer { subresource: "scale", ..*writer };
            own(&mut entries, Entry::new(Operation::Update, &writer, replicas));
        }
    }
    put(new, entries);
}

/// Server-side apply: the live object with what the configuration says and without what the manager said before and says
/// no more, unless somebody else owns that. The result has its managedFields.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    force: bool,
    schema: Option<&Schema>,
) -> Result<Value, Vec<Conflict>> {
    let kind = kind_of(config).to_owned();
    let of = Type::of(&kind, schema);
    let config = without_managed(config);
    let mut entries = managed_of(live);
    let live = live.map(without_managed);
    if let Some(live) = live.as_ref().filter(|_| entries.is_empty()) {
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        let mut writable = live.clone();
        if let Value::Object(fields) = &mut writable {
            fields.remove(writer.reset);
        }
        update(&mut entries, None, &writable, &before, schema);
    }

    let sent_with_name = walk::fields_of(of, &config);
    let mut sent = sent_with_name.clone();
    strip(&mut sent);
    let ours = Entry::new(Operation::Apply, writer, sent);
    let last = entries.iter().position(|entry| entry.is_same(&ours)).map(|index| entries.remove(index));

    let empty = types::empty(&kind, schema);
    let base = live.as_ref().unwrap_or(&empty);
    let merged = match &live {
        Some(live) => walk::merge(of, live, &config),
        None => config.clone(),
    };
    let mut merged = match &last {
        Some(last) => {
            // The name too: without it metadata would go with the last label.
            let mut owned = sent_with_name;
            for entry in &entries {
                owned.add(&entry.fields);
            }
            prune(of, merged, &last.fields, &owned)
        }
        None => merged,
    };

    let mut found = walk::compare(of, Some(base), Some(&merged));
    strip(&mut found.written);
    strip(&mut found.removed);
    let conflicts = conflicts(&entries, &found.written);
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    for entry in &mut entries {
        entry.fields.subtract(&found.written);
        entry.fields.subtract(&found.removed);
    }
    // Whoever applies what is there already has not written anything, so the time stays.
    let is_changed = live.as_ref() != Some(&merged);
    let time = if is_changed { ours.time.clone() } else { last.and_then(|last| last.time) };
    entries.push(Entry { time, ..ours });
    entries.retain(|entry| !entry.fields.is_empty());
    put(&mut merged, entries);
    Ok(merged)
}

fn conflicts(entries: &[Entry], written: &Set) -> Vec<Conflict> {
    let of_entry = |entry: &Entry| {
        let paths = entry.fields.intersection(written).paths();
        let conflict = |field| Conflict { manager: entry.manager.clone(), shown: entry.shown(), field };
        paths.into_iter().map(conflict).collect::<Vec<_>>()
    };
    entries.iter().flat_map(of_entry).collect()
}

/// Takes out of the merged object what the manager applied last time, unless it is owned now or something stays in it.
fn prune(of: Type<'_>, merged: Value, last: &Set, owned: &Set) -> Value {
    let fields = |value: &Value| walk::with_parents(of, &walk::fields_of(of, value));
    let without = |set: &Set| walk::remove(of, &merged, set).unwrap_or_else(|| json!({}));
    let last = walk::with_parents(of, last);
    let all = fields(&merged);

    let mut kept = fields(&without(&last));
    kept.add(&walk::with_parents(of, owned));
    let mut unowned = all.clone();
    unowned.subtract(&kept);

    let mut gone = all;
    gone.subtract(&fields(&without(&unowned)));
    let pruned = walk::remove(of, &merged, &gone.intersection(&last));
    pruned.unwrap_or(merged)
}

#[cfg(test)]
mod tests {
    use standins::crds::{Family, crds};
    use standins::fixtures;

    use super::*;

    fn schema(kind: &str) -> Schema {
        let crds = crds(Family::Fixture, None).unwrap();
        let crd = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == kind).unwrap();
        Schema::parse(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn writer(manager: &str, second: i64) -> Writer<'_> {
        Writer { manager, api_version: "v1", subresource: "", reset: "", now: at(second) }
    }

    fn made(mut object: Value, by: &Writer<'_>, schema: Option<&Schema>) -> Value {
        track_update(None, &mut object, by, schema);
        object["metadata"]["uid"] = "1".into();
        object
    }

    fn changed(
        old: &Value,
        by: &Writer<'_>,
        schema: Option<&Schema>,
        change: impl FnOnce(&mut Value),
    ) -> Value {
        let mut new = old.clone();
        change(&mut new);
        track_update(Some(old), &mut new, by, schema);
        new
    }

    /// Of each manager the fields that it owns, in the order of the entries.
    fn owners(object: &Value) -> Vec<(String, Value)> {
        let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let owner =
            |entry: &Value| (entry["manager"].as_str().unwrap().to_owned(), entry["fieldsV1"].clone());
        entries.iter().map(owner).collect()
    }

    fn owner(name: &str, fields: Value) -> (String, Value) {
        (name.to_owned(), fields)
    }

    #[test]
    fn whoever_creates_a_custom_resource_owns_all_of_it() {
        let schema = schema("Widget");
        let widget = made(fixtures::widget("w", "ns", 3), &writer("helm", 0), Some(&schema));
        let part = json!({".": {}, "f:name": {}, "f:count": {}});
        let fields = json!({"f:spec": {
            ".": {}, "f:size": {}, "f:color": {}, "f:phase": {},
            "f:parts": {
                ".": {}, r#"k:{"name":"bolt"}"#: part, r#"k:{"name":"nut"}"#: part,
            },
        }});
        let entry = json!({
            "manager": "helm", "operation": "Update", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        });
        assert_eq!(widget["metadata"]["managedFields"], json!([entry]));
    }

    #[test]
    fn of_a_built_in_kind_nobody_owns_the_structs_as_a_whole() {
        let mut deployment = fixtures::deployment("d", "ns", 2, "image");
        deployment["metadata"]["labels"] = json!({"a": "b"});
        let made = made(deployment, &writer("helm", 0), None);
        let fields = &owners(&made)[0].1;
        assert_eq!(fields["f:metadata"], json!({"f:labels": {".": {}, "f:a": {}}}));
        assert_eq!(fields["f:spec"]["f:selector"], json!({}));
        assert_eq!(fields["f:spec"].get("."), None);
        let template = &fields["f:spec"]["f:template"];
        assert_eq!(template["f:metadata"], json!({"f:labels": {".": {}, "f:app": {}}}));
        let container = &template["f:spec"]["f:containers"][r#"k:{"name":"main"}"#];
        assert_eq!(container["f:command"], json!({}));
        assert_eq!(container["f:resources"]["."], json!({}));
    }

    #[test]
    fn what_is_changed_changes_hands_and_what_is_removed_is_nobodys() {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1", "b": "2"},
        });
        let map = made(map, &writer("helm", 0), None);
        let map = changed(&map, &writer("belay", 1), None, |map| map["data"]["a"] = "3".into());
        let helm = json!({"f:data": {".": {}, "f:b": {}}});
        assert_eq!(owners(&map), [owner("helm", helm), owner("belay", json!({"f:data": {"f:a": {}}}))]);
        let map = changed(&map, &writer("x", 2), None, |map| {
            map["data"].as_object_mut().unwrap().remove("a");
        });
        assert_eq!(owners(&map), [owner("helm", json!({"f:data": {".": {}, "f:b": {}}}))]);
    }

    #[test]
    fn a_write_that_changes_nothing_leaves_the_entries_alone() {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
        let map = made(map, &writer("helm", 0), None);
        let same = changed(&map, &writer("belay", 1), None, |map| map["metadata"]["generation"] = 2.into());
        assert_eq!(same["metadata"]["managedFields"], map["metadata"]["managedFields"]);
    }

    #[test]
    fn finalizers_and_owner_references_have_an_owner_each() {
        let schema = schema("Gadget");
        let gadget = made(fixtures::gadget("g", "ns", "w"), &writer("helm", 0), Some(&schema));
        let gadget = changed(&gadget, &writer("controller", 1), Some(&schema), |gadget| {
            gadget["metadata"]["finalizers"] = json!(["x/y"]);
            gadget["metadata"]["ownerReferences"] = json!([{"uid": "u", "kind": "Widget"}]);
        });
        let fields = json!({"f:metadata": {
            "f:finalizers": {".": {}, "v:\"x/y\"": {}},
            "f:ownerReferences": {".": {}, r#"k:{"uid":"u"}"#: {}},
        }});
        assert_eq!(owners(&gadget)[1], owner("controller", fields));
    }

    #[test]
    fn whoever_writes_the_status_has_an_entry_for_that() {
        let schema = schema("Gadget");
        let gadget = made(fixtures::gadget("g", "ns", "w"), &writer("one", 0), Some(&schema));
        let status = Writer { subresource: "status", ..writer("one", 1) };
        let ready = |gadget: &mut Value| {
            gadget["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
            // It has no say in the entries.
            gadget["metadata"]["managedFields"] = json!([]);
        };
        let gadget = changed(&gadget, &status, Some(&schema), ready);
        let entries = &gadget["metadata"]["managedFields"];
        assert_eq!(entries[1]["subresource"], "status");
        let condition = json!({".": {}, "f:type": {}, "f:status": {}});
        let conditions = json!({".": {}, r#"k:{"type":"Ready"}"#: condition});
        assert_eq!(entries[1]["fieldsV1"], json!({"f:status": {".": {}, "f:conditions": conditions}}));
        assert_eq!(entries[0].get("subresource"), None);
    }

    #[test]
    fn an_entry_that_the_client_takes_out_is_out() {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
        let map = made(map, &writer("helm", 0), None);
        let map = changed(&map, &writer("belay", 1), None, |map| map["data"]["b"] = "2".into());
        let disowned = changed(&map, &writer("belay", 2), None, |map| {
            map["metadata"]["managedFields"].as_array_mut().unwrap().remove(1);
        });
        assert_eq!(owners(&disowned), [owner("helm", json!({"f:data": {".": {}, "f:a": {}}}))]);
        for reset in [json!([]), json!([{}])] {
            let none = changed(&map, &writer("belay", 2), None, |map| {
                map["metadata"]["managedFields"] = reset;
            });
            assert_eq!(none["metadata"].get("managedFields"), None);
            let later = changed(&none, &writer("x", 3), None, |map| map["data"]["a"] = "4".into());
            assert_eq!(later["metadata"].get("managedFields"), None, "not tracked until somebody applies");
        }
    }

    #[test]
    fn entries_are_sorted_by_operation_time_and_name() {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
        let map = made(map, &writer("z", 5), None);
        let map = changed(&map, &writer("y", 5), None, |map| map["data"]["b"] = "2".into());
        let map = changed(&map, &writer("a", 6), None, |map| map["data"]["c"] = "3".into());
        let config =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"d": "4"}});
        let map = apply(Some(&map), &config, &writer("applier", 9), false, None).unwrap();
        let names: Vec<String> = owners(&map).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["applier", "y", "z", "a"]);
    }

    #[test]
    fn scaling_takes_the_replicas_from_their_owner() {
        let apps = |manager, second| Writer { api_version: "apps/v1", ..writer(manager, second) };
        let deployment = made(fixtures::deployment("d", "ns", 2, "image"), &apps("helm", 0), None);
        let to = |replicas: i64| {
            let mut scaled = deployment.clone();
            scaled["spec"]["replicas"] = replicas.into();
            track_scale(&deployment, &mut scaled, &apps("belay", 1));
            scaled
        };
        let scaled = to(1);
        let entries = &scaled["metadata"]["managedFields"];
        assert_eq!(entries[0]["fieldsV1"]["f:spec"].get("f:replicas"), None);
        assert_eq!(entries[1]["manager"], "belay");
        assert_eq!(entries[1]["subresource"], "scale");
        assert_eq!(entries[1]["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
        let stopped = to(0);
        assert_eq!(owners(&stopped).len(), 1, "a Scale leaves out replicas that are 0");
        let mut again = stopped.clone();
        again["spec"]["replicas"] = 2.into();
        track_scale(&stopped, &mut again, &apps("belay", 2));
        assert_eq!(owners(&again).len(), 1, "what nobody owned is still nobody's");
    }

    #[test]
    fn lists_merge_by_key_and_fields_of_others_stay() {
        let schema = schema("Widget");
        let widget = made(fixtures::widget("w", "ns", 1), &writer("standins", 0), Some(&schema));
        let part = json!({
            "apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "ns"},
            "spec": {"size": 1, "parts": [{"name": "washer"}]},
        });
        let merged = apply(Some(&widget), &part, &writer("somebody", 1), true, Some(&schema)).unwrap();
        let names: Vec<&Value> =
            merged["spec"]["parts"].as_array().unwrap().iter().map(|part| &part["name"]).collect();
        assert_eq!(names, ["bolt", "nut", "washer"]);
        let washer = json!({r#"k:{"name":"washer"}"#: {".": {}, "f:name": {}}});
        let fields = json!({"f:spec": {"f:size": {}, "f:parts": washer}});
        assert_eq!(owners(&merged)[0], owner("somebody", fields));
        assert_eq!(owners(&merged)[1].1["f:spec"]["f:size"], json!({}), "the same value is owned by both");
    }

    #[test]
    fn another_value_of_another_manager_is_a_conflict_unless_it_is_forced() {
        let schema = schema("Widget");
        let widget = made(fixtures::widget("w", "ns", 1), &writer("kubectl", 0), Some(&schema));
        let mut config = fixtures::widget("w", "ns", 2);
        config["spec"].as_object_mut().unwrap().retain(|name, _| name == "size");
        let refused = apply(Some(&widget), &config, &writer("helm", 1), false, Some(&schema)).unwrap_err();
        let conflict = Conflict {
            manager: "kubectl".to_owned(),
            shown: "\"kubectl\" using v1".to_owned(),
            field: ".spec.size".to_owned(),
        };
        assert_eq!(refused, [conflict]);
        let forced = apply(Some(&widget), &config, &writer("helm", 1), true, Some(&schema)).unwrap();
        assert_eq!(forced["spec"]["size"], 2);
        assert_eq!(owners(&forced)[1].1["f:spec"].get("f:size"), None);
    }

    #[test]
    fn what_is_not_applied_any_more_goes_unless_somebody_else_owns_it() {
        let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data});
        let map =
            apply(None, &config(json!({"a": "1", "b": "2", "c": "3"})), &writer("helm", 0), false, None);
        let map = changed(&map.unwrap(), &writer("x", 1), None, |map| map["data"]["b"] = "4".into());
        let map = apply(Some(&map), &config(json!({"c": "3"})), &writer("helm", 2), false, None).unwrap();
        assert_eq!(map["data"], json!({"b": "4", "c": "3"}));
        let gone = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
        let map = apply(Some(&map), &gone, &writer("helm", 3), false, None).unwrap();
        assert_eq!(map["data"], json!({"b": "4"}));
        assert_eq!(owners(&map), [owner("x", json!({"f:data": {"f:b": {}}}))]);
    }

    #[test]
    fn applying_the_same_again_changes_nothing_at_all() {
        let schema = schema("Widget");
        let mut widget =
            apply(None, &fixtures::widget("w", "ns", 1), &writer("helm", 0), true, Some(&schema)).unwrap();
        widget["metadata"]["uid"] = "1".into();
        let again =
            apply(Some(&widget), &fixtures::widget("w", "ns", 1), &writer("helm", 9), true, Some(&schema));
        assert_eq!(again.unwrap(), widget);
    }

    #[test]
    fn what_nobody_owned_belongs_to_the_time_before_the_first_apply() {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
        let mut config = map.clone();
        config["data"]["a"] = "2".into();
        let refused = apply(Some(&map), &config, &writer("helm", 0), false, None).unwrap_err();
        assert_eq!(refused[0].manager, BEFORE_FIRST_APPLY);
        assert_eq!(refused[0].field, ".data.a");
        let forced = apply(Some(&map), &config, &writer("helm", 0), true, None).unwrap();
        assert_eq!(owners(&forced)[1], owner(BEFORE_FIRST_APPLY, json!({"f:data": {}})));
    }
}
