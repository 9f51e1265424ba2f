//! Creates, updates and patches: what each of them does on its way into the store.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::admission::Operation;
use super::call::Call;
use super::fields::{self, Writer};
use super::kinds::{Generation, Resource};
use super::status::{About, Result, Status, invalid_value, required_value};
use super::{Server, checks, defaults, lists, metadata, patch, scale};

/// The HTTP status of a success, and its body.
pub(crate) type Done = (u16, Value);

impl Server {
    fn track(call: &Call<'_>, old: Option<&Value>, new: &mut Value) {
        let reset = reset_field(call);
        let writer = Writer {
            manager: call.manager(),
            api_version: &call.resource.api_version(),
            subresource: &call.place.subresource,
            reset,
            now: call.now,
        };
        if let Some(old) = old
            && new["metadata"].get("managedFields").is_none()
        {
            metadata::keep(new, old, "managedFields");
        }
        // As the client sees it, and without what cannot be written at this place: that becomes nobody's.
        let resource = call.resource;
        let old = old.map(|old| lists::shown(resource, old.clone()));
        let mut seen = lists::shown(resource, new.clone());
        // What does not fit its schema at all is not tracked: that must still be seen.
        if resource.schema().is_none_or(|schema| schema.typed_faults(&seen).is_empty()) {
            keep_field(&mut seen, old.as_ref().unwrap_or(&Value::Null), reset);
        }
        match &old {
            Some(old) if call.place.subresource == "scale" => fields::track_scale(old, &mut seen, &writer),
            old => fields::track_update(old.as_ref(), &mut seen, &writer, resource.schema()),
        }
        metadata::keep(new, &seen, "managedFields");
    }

    pub(crate) fn create(&mut self, call: &Call<'_>) -> Result<Done> {
        let object = call.object()?;
        self.create_object(call, object, true)
    }

    /// Makes an object. With `tracked` the fields are yet to be noted as the writer's.
    fn create_object(&mut self, call: &Call<'_>, mut object: Value, tracked: bool) -> Result<Done> {
        let (resource, dry_run) = (call.resource.clone(), call.dry_run());
        fit_namespace(call, &mut object)?;
        if metadata::text(&object, "name").is_empty() && !metadata::text(&object, "generateName").is_empty() {
            let name = format!("{}{}", metadata::text(&object, "generateName"), self.store.next_suffix());
            metadata::set(&mut object, "name", name);
        }
        let name = metadata::text(&object, "name").to_owned();
        self.admit_into_namespace(call, &name)?;
        if resource.custom.as_ref().is_some_and(|custom| custom.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&About::resource(&resource, &name), why, Vec::new()));
        }
        let sent_version = metadata::text(&object, "resourceVersion").to_owned();
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
            metadata::unset(&mut object, field);
        }
        metadata::set(&mut object, "uid", self.store.next_uid());
        metadata::set(&mut object, "creationTimestamp", seconds(call.now));
        if tracked {
            Self::track(call, None, &mut object);
        }
        prepare_create(&resource, &mut object)?;
        validate(call, &object, None)?;
        self.admit(&resource, Operation::Create, &call.place.subresource, &object, None)?;
        self.admit_quota(&resource, &object)?;
        if !sent_version.is_empty() && sent_version != "0" {
            return Err(Status::internal("resourceVersion should not be set on objects to be created"));
        }
        if !dry_run {
            checks::check_size(&object)?;
        }
        let key = (call.place.namespace.clone(), name.clone());
        if let Some(there) = self.store.get(&resource.table, &key) {
            return Err(Status::already_exists(&resource, &name, metadata::is_terminating(there)));
        }
        if !dry_run {
            object = Value::clone(&self.commit(&resource.table, &key, object));
        }
        Ok((201, lists::shown(&resource, object)))
    }

    pub(crate) fn update(&mut self, call: &Call<'_>) -> Result<Done> {
        let (resource, place) = (call.resource, call.place);
        if place.subresource == "scale" {
            return self.update_scale(call, None);
        }
        let new = call.object()?;
        check_name(call, &new)?;
        let Some(old) = self.store.get(&resource.table, &call.key()).cloned() else {
            if resource.create_on_update && place.subresource.is_empty() {
                self.authorise(&call.request.user, place, "create")?;
                return self.create_object(call, new, true);
            }
            return Err(Status::not_found(resource, &place.name));
        };
        let uid = metadata::text(&new, "uid");
        if !uid.is_empty() && uid != metadata::text(&old, "uid") {
            let prefix = if resource.group.is_empty() || resource.custom.is_none() {
                String::new()
            } else {
                format!("{}/", resource.group)
            };
            let within =
                if place.namespace.is_empty() { String::new() } else { format!("{}/", place.namespace) };
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{prefix}{}/{within}{}, ResourceVersion: 0, \
                 AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                resource.plural,
                place.name,
                metadata::text(&old, "uid"),
            );
            return Err(Status::conflict(&About::resource(resource, &place.name), &why));
        }
        self.update_object(call, &old, new, true)
    }

    /// Puts an object in the place of another. With `tracked` the changed fields are yet to be noted as the writer's.
    pub(crate) fn update_object(
        &mut self,
        call: &Call<'_>,
        old: &Arc<Value>,
        mut new: Value,
        tracked: bool,
    ) -> Result<Done> {
        let (resource, dry_run) = (call.resource.clone(), call.dry_run());
        fit_namespace(call, &mut new)?;
        check_version(&resource, &call.place.name, old, &mut new)?;
        // A client can change none of these.
        metadata::keep(&mut new, old, "generation");
        metadata::keep(&mut new, old, "creationTimestamp");
        for field in ["uid", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            if new["metadata"].get(field).is_none()
                || (field == "deletionTimestamp" && metadata::is_terminating(old))
            {
                metadata::keep(&mut new, old, field);
            }
        }
        if tracked {
            Self::track(call, Some(old), &mut new);
        }
        prepare_update(&resource, &call.place.subresource, old, &mut new)?;
        validate(call, &new, Some(old))?;
        self.admit(&resource, Operation::Update, &call.place.subresource, &new, Some(old))?;
        if same_but_times(old, &new) {
            return Ok((200, lists::shown(&resource, Value::clone(old))));
        }
        if is_last_word(&resource, old, &new) {
            if !dry_run {
                self.remove(&resource.table, &call.key(), Value::clone(old));
            }
            return Ok((200, lists::shown(&resource, new)));
        }
        if !dry_run {
            checks::check_size(&new)?;
            new = Value::clone(&self.commit(&resource.table, &call.key(), new));
        }
        Ok((200, lists::shown(&resource, new)))
    }

    pub(crate) fn patch(&mut self, call: &Call<'_>) -> Result<Done> {
        let (resource, place) = (call.resource, call.place);
        let content_type = call.content_type();
        let old = self.store.get(&resource.table, &call.key()).cloned();
        if content_type == patch::APPLY {
            return self.apply(call, old.as_ref());
        }
        let Some(old) = old else { return Err(Status::not_found(resource, &place.name)) };
        if place.subresource == "scale" {
            return self.update_scale(call, Some(content_type));
        }
        let mut new =
            patch::patched(lists::shown(resource, Value::clone(&old)), content_type, &call.request.body)?;
        new = call.patched(new)?;
        check_name(call, &new)?;
        self.update_object(call, &old, new, true)
    }

    /// Server-side apply.
    fn apply(&mut self, call: &Call<'_>, old: Option<&Arc<Value>>) -> Result<Done> {
        let (resource, place) = (call.resource, call.place);
        if place.subresource == "scale" {
            return Err(Status::not_simulated("apply to a scale"));
        }
        if serde_json::from_slice::<Value>(&call.request.body).is_err() {
            if !call.request.body.starts_with(b"{") {
                return Err(Status::not_simulated("an apply in YAML"));
            }
            let why = "yaml: line 1: did not find expected ',' or '}'";
            let message = format!("error decoding YAML: error converting YAML to JSON: {why}");
            return Err(Status::bad_request(message));
        }
        let mut config = call.json()?;
        if config["metadata"].get("managedFields").is_some_and(|all| !all.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        if resource.custom.is_none() && !(config["kind"].is_string() && config["apiVersion"].is_string()) {
            return Err(Status::bad_request("invalid object type: /, Kind="));
        }
        call.check_type(&config)?;
        patch::refuse_untyped(call, &config)?;
        config["apiVersion"] = resource.api_version().into();
        config["kind"] = resource.kind.as_str().into();
        metadata::normalise(&mut config);
        if let Value::Object(fields) = &mut config {
            if place.subresource == "status" {
                fields.remove("spec");
            } else if resource.status {
                fields.remove("status");
            }
        }
        let writer = Writer {
            manager: call.manager(),
            api_version: &resource.api_version(),
            subresource: &place.subresource,
            reset: reset_field(call),
            now: call.now,
        };
        let live = old.map(|old| lists::shown(resource, Value::clone(old)));
        let merged =
            fields::apply(live.as_ref(), &config, &writer, call.query.flag("force"), resource.schema())
                .map_err(|conflicts| patch::apply_conflict(&conflicts))?;
        let mut new = call.stored(merged);
        check_name(call, &new)?;
        match old {
            Some(old) => self.update_object(call, old, new, false),
            None if place.subresource.is_empty() => {
                self.authorise(&call.request.user, place, "create")?;
                let uid = metadata::text(&new, "uid");
                if !uid.is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Status::conflict(&About::resource(resource, &place.name), &why));
                }
                // An apply may name a version of what is not there.
                metadata::unset(&mut new, "resourceVersion");
                self.create_object(call, new, false)
            }
            None => Err(Status::not_found(resource, &place.name)),
        }
    }
}

/// The field that cannot be written at this place.
fn reset_field(call: &Call<'_>) -> &'static str {
    match call.place.subresource.as_str() {
        "" | "finalize" if call.resource.status => "status",
        "status" => "spec",
        _ => "",
    }
}

pub(crate) fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What each kind makes of an object before it is there.
fn prepare_create(resource: &Resource, object: &mut Value) -> Result<()> {
    if resource.generation != Generation::Never {
        metadata::set(object, "generation", 1);
    }
    if resource.status
        && let Value::Object(fields) = object
    {
        fields.remove("status");
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"] = json!({"phase": "Active"});
        }
        ("", "pods") => {
            defaults::admit_pod(&mut object["spec"]);
            object["status"] = json!({"phase": "Pending", "qosClass": scale::quality(object)});
        }
        ("", "services") => object["status"] = json!({"loadBalancer": {}}),
        ("apps", "statefulsets") => object["status"] = json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "replicasets") => object["status"] = json!({"replicas": 0}),
        ("apps" | "batch" | "policy", _) if resource.status => object["status"] = json!({}),
        ("apiextensions.k8s.io", _) => super::crd::prepare_create(object)?,
        ("admissionregistration.k8s.io", _) => {
            super::admission::prepare_create(object)?;
            if resource.status {
                object["status"] = json!({});
            }
        }
        _ => {}
    }
    Ok(())
}

fn validate(call: &Call<'_>, object: &Value, old: Option<&Value>) -> Result<()> {
    let resource = &**call.resource;
    let mut causes = metadata::faults(resource, object);
    causes.extend(checks::metadata_faults(resource, object));
    if call.place.subresource.is_empty() {
        causes.extend(checks::object_faults(resource, object));
    }
    if resource.group == "events.k8s.io" && old.is_none() && object["eventTime"].is_null() {
        let about = About::other("", "Event", metadata::text(object, "name"));
        return Err(Status::invalid(&about, &[required_value("eventTime", "")]));
    }
    if let Some(old) = old {
        // The server looks twice, once for all kinds and once for each, and lists what it found both times.
        let changes = metadata::change_faults(old, object);
        causes.extend(changes.iter().chain(&changes).cloned());
        causes.extend(checks::fixed_faults(resource, old, object)?);
    }
    if let Some(schema) = resource.schema() {
        let mut found = schema.validate(object, old);
        if call.place.subresource == "status" {
            // There the server's sentences begin within status.
            for cause in &mut found {
                cause.message = cause.message.replacen(": status.", ": ", 1);
            }
        }
        causes.extend(found);
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&About::kind(resource, metadata::text(object, "name")), &causes))
}

/// The namespace of the object is that of the request.
fn fit_namespace(call: &Call<'_>, object: &mut Value) -> Result<()> {
    let said = metadata::text(object, "namespace");
    if !call.resource.namespaced {
        metadata::unset(object, "namespace");
    } else if said.is_empty() {
        metadata::set(object, "namespace", call.place.namespace.as_str());
    } else if said != call.place.namespace {
        return Err(Status::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// The name of the object is that of the path.
fn check_name(call: &Call<'_>, object: &Value) -> Result<()> {
    let (said, name) = (metadata::text(object, "name"), &call.place.name);
    if said.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if said != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({said}) does not match the name on the URL ({name})"
        )));
    }
    Ok(())
}

/// The version that was sent is that of the object, or none where none is needed.
fn check_version(resource: &Resource, name: &str, old: &Value, new: &mut Value) -> Result<()> {
    let (sent, is) = (metadata::text(new, "resourceVersion"), metadata::text(old, "resourceVersion"));
    if matches!(sent, "" | "0") {
        if !resource.unconditional {
            let cause =
                invalid_value("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(Status::invalid(&About::resource(resource, name), &[cause]));
        }
        metadata::keep(new, old, "resourceVersion");
    } else if sent.parse::<u64>().is_err() {
        return Err(Status::internal(format!("strconv.ParseUint: parsing \"{sent}\": invalid syntax")));
    } else if sent != is {
        return Err(Status::modified(resource, name));
    }
    Ok(())
}

/// What a write cannot change, by the place at which it came in; and the generation that follows from the rest.
fn prepare_update(resource: &Resource, subresource: &str, old: &Value, new: &mut Value) -> Result<()> {
    match subresource {
        "" => {
            if resource.status {
                keep_field(new, old, "status");
            }
            if resource.group.is_empty() && resource.plural == "namespaces" {
                // Only `/finalize` changes them.
                new["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
                if new["spec"]["finalizers"].is_null() {
                    new["spec"].as_object_mut().map(|spec| spec.remove("finalizers"));
                }
            }
            if resource.group == "admissionregistration.k8s.io" {
                super::admission::prepare_create(new)?;
            }
            if resource.group == "apiextensions.k8s.io" {
                super::crd::prepare_update(old, new)?;
            }
        }
        "status" if resource.custom.is_some() => {
            let status = new.as_object_mut().and_then(|fields| fields.remove("status"));
            let managed = new["metadata"].get("managedFields").cloned();
            *new = old.clone();
            if let Some(managed) = managed {
                metadata::set(new, "managedFields", managed);
            }
            if let Value::Object(fields) = new {
                match status {
                    Some(status) => fields.insert("status".to_owned(), status),
                    None => fields.remove("status"),
                };
            }
        }
        "status" => {
            // Of built-in kinds the metadata can be changed here too, with a few exceptions.
            keep_field(new, old, "spec");
            match resource.plural.as_str() {
                "deployments" => metadata::keep(new, old, "labels"),
                "pods" => {
                    metadata::keep(new, old, "ownerReferences");
                    if new["status"].get("qosClass").is_none() {
                        new["status"]["qosClass"] = old["status"]["qosClass"].clone();
                    }
                }
                _ => {}
            }
        }
        "finalize" => keep_field(new, old, "status"),
        "scale" => {}
        other => return Err(Status::not_simulated(format!("the subresource {other}"))),
    }
    let without = |object: &Value| {
        let mut rest = object.clone();
        if let Value::Object(fields) = &mut rest {
            fields.remove("metadata");
            fields.remove("apiVersion");
            fields.remove("kind");
        }
        rest
    };
    let annotations = |object: &Value| object["metadata"].get("annotations").cloned();
    let grows = match resource.generation {
        _ if subresource == "status" => false,
        Generation::Never => false,
        Generation::Spec => old.get("spec") != new.get("spec"),
        Generation::SpecAndAnnotations => {
            old.get("spec") != new.get("spec") || annotations(old) != annotations(new)
        }
        Generation::All => without(old) != without(new),
    };
    if grows {
        metadata::set(new, "generation", metadata::generation(old) + 1);
    }
    Ok(())
}

fn keep_field(new: &mut Value, old: &Value, field: &str) {
    if let Value::Object(fields) = new {
        match old.get(field) {
            Some(value) => fields.insert(field.to_owned(), value.clone()),
            None => fields.remove(field),
        };
    }
}

/// Whether nothing is new but the times in managedFields: such a write is none.
fn same_but_times(old: &Value, new: &Value) -> bool {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return old == new };
    let rest =
        |fields: &serde_json::Map<String, Value>| fields.keys().filter(|key| *key != "metadata").count();
    if rest(old) != rest(new)
        || old.iter().any(|(key, value)| key != "metadata" && new.get(key) != Some(value))
    {
        return false;
    }
    let bare = |metadata: Option<&Value>| {
        let mut metadata = metadata.cloned().unwrap_or_default();
        if let Some(all) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            for entry in all {
                entry.as_object_mut().map(|entry| entry.remove("time"));
            }
        }
        metadata
    };
    bare(old.get("metadata")) == bare(new.get("metadata"))
}

/// Whether a terminating object loses by this write the last that kept it.
fn is_last_word(resource: &Resource, old: &Value, new: &Value) -> bool {
    let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
    let held_by_spec =
        is_namespace && new["spec"]["finalizers"].as_array().is_some_and(|all| !all.is_empty());
    metadata::is_terminating(old)
        && metadata::finalizers(new).is_empty()
        && metadata::grace_period(old).is_none_or(|seconds| seconds == 0)
        && !held_by_spec
}
