//! Creates, updates and patches: what each of them does on its way into the store.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::admission::Operation;
use super::fields::{self, Writer};
use super::kinds::{Generation, Resource};
use super::path::{Place, Query};
use super::status::{About, Result, Status, invalid_value, required_value};
use super::store::Key;
use super::{Request, Server, defaults, events, lists, metadata, patch, scale};

/// One request to a resource.
pub(crate) struct Call<'a> {
    pub resource: &'a Arc<Resource>,
    pub place: &'a Place,
    pub query: &'a Query,
    pub request: &'a Request,
    pub now: Timestamp,
}

/// The HTTP status of a success, and its body.
pub(crate) type Done = (u16, Value);

impl<'a> Call<'a> {
    pub fn key(&self) -> Key {
        (self.place.namespace.clone(), self.place.name.clone())
    }

    pub fn dry_run(&self) -> Result<bool> {
        match self.query.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(Status::not_simulated(format!("dryRun={other}"))),
        }
    }

    fn is_strict(&self) -> Result<bool> {
        match self.query.get("fieldValidation") {
            "" | "Warn" | "Ignore" => Ok(false),
            "Strict" => Ok(true),
            other => Err(Status::not_simulated(format!("fieldValidation={other}"))),
        }
    }

    fn manager(&self) -> &'a str {
        match self.query.get("fieldManager") {
            "" if self.request.agent.is_empty() => "unknown",
            "" => &self.request.agent,
            named => named,
        }
    }

    /// The body as an object of the resource, in the form in which it is stored.
    fn object(&self) -> Result<Value> {
        if !matches!(self.request.content_type.as_str(), "" | "application/json") {
            return Err(Status::not_simulated(format!("the content type {}", self.request.content_type)));
        }
        let object = self.json()?;
        self.check_type(&object)?;
        self.stored(object)
    }

    pub fn json(&self) -> Result<Value> {
        let object: Value = serde_json::from_slice(&self.request.body).map_err(|error| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {error}",
                self.resource.kind
            ))
        })?;
        if object.is_object() {
            Ok(object)
        } else {
            Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): it is no object",
                self.resource.kind
            )))
        }
    }

    fn check_type(&self, object: &Value) -> Result<()> {
        let resource = self.resource;
        let said = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (kind, version) = (said("kind"), said("apiVersion"));
        if resource.custom.is_some() && (kind.is_empty() || version.is_empty()) {
            let missing = if kind.is_empty() { "Kind" } else { "apiVersion" };
            let body = String::from_utf8_lossy(&self.request.body);
            let summary: String = body.chars().take(30).collect();
            let summary = if body.len() > 30 { format!("{summary} ...") } else { summary };
            return Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object '{missing}' is missing in '{body}' \
                 ({summary})",
                resource.kind
            )));
        }
        if !version.is_empty() && version != resource.api_version() {
            return Err(Status::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({})",
                resource.api_version()
            )));
        }
        if !kind.is_empty() && kind != resource.kind {
            if resource.custom.is_some() {
                let cause = invalid_value("kind", &kind.into(), &format!("must be {}", resource.kind));
                let name = metadata::text(object, "name");
                return Err(Status::invalid(&About::kind(resource, name), &[cause]));
            }
            return Err(Status::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {}: converting ({kind}) to ({}): unknown conversion",
                resource.version, resource.kind, resource.kind
            )));
        }
        Ok(())
    }

    /// What the server makes of what it was sent: nothing that the schema does not know, and all defaults.
    fn stored(&self, mut object: Value) -> Result<Value> {
        let resource = self.resource;
        object["apiVersion"] = resource.stored_api_version().into();
        object["kind"] = resource.kind.as_str().into();
        if resource.group == "events.k8s.io" {
            events::to_core(&mut object);
        }
        metadata::normalise(&mut object);
        if let Some(schema) = resource.schema() {
            let sent = self.is_strict()?.then(|| object.clone());
            schema.prune(&mut object);
            if let Some(sent) = sent {
                self.refuse_unknown_fields(&sent, &object)?;
            }
            schema.default(&mut object);
        } else if resource.custom.is_none() {
            defaults::complete(resource, &mut object);
        }
        Ok(object)
    }

    fn refuse_unknown_fields(&self, sent: &Value, kept: &Value) -> Result<()> {
        let mut unknown = Vec::new();
        lost("", sent, kept, &mut unknown);
        if unknown.is_empty() {
            return Ok(());
        }
        let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        Err(Status::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {kind}: strict decoding error: {}",
            self.resource.version,
            unknown.join(", "),
            kind = self.resource.kind,
        )))
    }
}

/// The paths of what was sent and not kept.
fn lost(path: &str, sent: &Value, kept: &Value, out: &mut Vec<String>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (name, value) in sent {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                match kept.get(name) {
                    Some(kept) => lost(&path, value, kept, out),
                    None => out.push(path),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            for (index, (sent, kept)) in sent.iter().zip(kept).enumerate() {
                lost(&format!("{path}[{index}]"), sent, kept, out);
            }
        }
        _ => {}
    }
}

impl Server {
    fn track(call: &Call<'_>, old: Option<&Value>, new: &mut Value) {
        let writer = Writer {
            manager: call.manager(),
            api_version: &call.resource.api_version(),
            subresource: &call.place.subresource,
            now: call.now,
        };
        if let Some(old) = old
            && new["metadata"].get("managedFields").is_none()
        {
            metadata::keep(new, old, "managedFields");
        }
        fields::track_update(old, new, &writer, call.resource.schema());
    }

    pub(crate) fn create(&mut self, call: &Call<'_>) -> Result<Done> {
        let object = call.object()?;
        self.create_object(call, object, true)
    }

    /// Makes an object. With `tracked` the fields are yet to be noted as the writer's.
    fn create_object(&mut self, call: &Call<'_>, mut object: Value, tracked: bool) -> Result<Done> {
        let (resource, dry_run) = (call.resource.clone(), call.dry_run()?);
        fit_namespace(call, &mut object)?;
        if metadata::text(&object, "name").is_empty() && !metadata::text(&object, "generateName").is_empty() {
            let name = format!("{}{}", metadata::text(&object, "generateName"), self.store.next_suffix());
            metadata::set(&mut object, "name", name);
        }
        let name = metadata::text(&object, "name").to_owned();
        self.admit_into_namespace(call, &name)?;
        if resource.custom.as_ref().is_some_and(|custom| custom.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(&About::resource(&resource, &call.place.name), why, Vec::new()));
        }
        let sent_version = metadata::text(&object, "resourceVersion").to_owned();
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion"] {
            metadata::unset(&mut object, field);
        }
        metadata::set(&mut object, "uid", self.store.next_uid());
        metadata::set(&mut object, "creationTimestamp", seconds(call.now));
        self.prepare_create(&resource, &mut object, call.now)?;
        if tracked {
            Self::track(call, None, &mut object);
        }
        self.validate(&resource, &object, None)?;
        self.admit(&resource, Operation::Create, &call.place.subresource, &object, None)?;
        self.admit_quota(&resource, &object)?;
        if !sent_version.is_empty() && sent_version != "0" {
            return Err(Status::internal("resourceVersion should not be set on objects to be created"));
        }
        let key = (call.place.namespace.clone(), name.clone());
        if self.store.get(&resource.table, &key).is_some() {
            return Err(Status::already_exists(&resource, &name));
        }
        if !dry_run {
            object = Value::clone(&self.commit(&resource.table, &key, object));
        }
        Ok((201, lists::shown(&resource, object)))
    }

    /// What each kind makes of an object before it is there.
    fn prepare_create(&mut self, resource: &Resource, object: &mut Value, now: Timestamp) -> Result<()> {
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
                object["status"] = json!({"phase": "Pending", "qosClass": scale::quality(object)})
            }
            ("", "services") => object["status"] = json!({"loadBalancer": {}}),
            ("apps" | "batch" | "policy", _) if resource.status => object["status"] = json!({}),
            ("apiextensions.k8s.io", _) => super::crd::prepare_create(object)?,
            ("admissionregistration.k8s.io", _) => super::admission::prepare_create(object)?,
            _ => {}
        }
        let _ = now;
        Ok(())
    }

    fn validate(&self, resource: &Resource, object: &Value, old: Option<&Value>) -> Result<()> {
        let mut causes = Vec::new();
        if let Some(old) = old {
            causes.extend(metadata::change_faults(old, object));
        } else {
            causes.extend(metadata::faults(resource, object));
        }
        if let Some(schema) = resource.schema() {
            causes.extend(schema.validate(object, old));
        }
        if causes.is_empty() {
            return Ok(());
        }
        Err(Status::invalid(&About::kind(resource, metadata::text(object, "name")), &causes))
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
                self.authorise(call, "create")?;
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
        let (resource, dry_run) = (call.resource.clone(), call.dry_run()?);
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
        prepare_update(&resource, &call.place.subresource, old, &mut new)?;
        if tracked {
            Self::track(call, Some(old), &mut new);
        }
        self.validate(&resource, &new, Some(old))?;
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
            new = Value::clone(&self.commit(&resource.table, &call.key(), new));
        }
        Ok((200, lists::shown(&resource, new)))
    }

    pub(crate) fn patch(&mut self, call: &Call<'_>) -> Result<Done> {
        let (resource, place) = (call.resource, call.place);
        let content_type = call.request.content_type.split(';').next().unwrap_or_default();
        patch::check_content_type(resource, content_type)?;
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
        call.check_type(&new)?;
        new = call.stored(new)?;
        check_name(call, &new)?;
        self.update_object(call, &old, new, true)
    }

    /// Server-side apply.
    fn apply(&mut self, call: &Call<'_>, old: Option<&Arc<Value>>) -> Result<Done> {
        let (resource, place) = (call.resource, call.place);
        if call.query.get("fieldManager").is_empty() {
            let cause = required_value("fieldManager", "is required for apply patch");
            return Err(Status::invalid_options("PatchOptions", &[cause]));
        }
        if place.subresource == "scale" {
            return Err(Status::not_simulated("apply to a scale"));
        }
        let mut config = call.json()?;
        if config["metadata"].get("managedFields").is_some_and(|all| !all.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        call.check_type(&config)?;
        if let Some(schema) = resource.schema()
            && call.is_strict()?
        {
            let sent = config.clone();
            schema.prune(&mut config);
            call.refuse_unknown_fields(&sent, &config)?;
        }
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
            now: call.now,
        };
        let live = old.map(|old| lists::shown(resource, Value::clone(old)));
        let merged =
            fields::apply(live.as_ref(), &config, &writer, call.query.flag("force"), resource.schema())
                .map_err(|conflicts| patch::apply_conflict(&conflicts))?;
        let new = call.stored(merged)?;
        check_name(call, &new)?;
        match old {
            Some(old) => self.update_object(call, old, new, false),
            None if place.subresource.is_empty() => {
                self.authorise(call, "create")?;
                let uid = metadata::text(&new, "uid");
                if !uid.is_empty() {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    );
                    return Err(Status::conflict(&About::resource(resource, &place.name), &why));
                }
                self.create_object(call, new, false)
            }
            None => Err(Status::not_found(resource, &place.name)),
        }
    }
}

pub(crate) fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
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
    let (said, namespace) = (metadata::text(object, "namespace"), &call.place.namespace);
    if !namespace.is_empty() && !said.is_empty() && said != namespace {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({said}) does not match the namespace on the request ({namespace})"
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
        let cause = invalid_value("metadata.resourceVersion", &sent.into(), "must be an unsigned integer");
        return Err(Status::invalid(&About::resource(resource, name), &[cause]));
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
        "status" => {
            let status = new.as_object_mut().and_then(|fields| fields.remove("status"));
            let sent = new["metadata"].take();
            *new = old.clone();
            if let Some(managed) = sent.get("managedFields") {
                metadata::set(new, "managedFields", managed.clone());
            }
            if resource.custom.is_none() {
                // Of built-in kinds these can be changed here too.
                for field in ["annotations", "finalizers"] {
                    match sent.get(field) {
                        Some(value) => metadata::set(new, field, value.clone()),
                        None => metadata::unset(new, field),
                    }
                }
            }
            if let Value::Object(fields) = new {
                match status {
                    Some(status) => fields.insert("status".to_owned(), status),
                    None => fields.remove("status"),
                };
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
