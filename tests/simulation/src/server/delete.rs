//! Deletes: what is removed at once, and what only begins to terminate.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::call::{Call, not_registered};
use super::kinds::Resource;
use super::schema::Cause;
use super::status::{About, Result, Status, invalid_value, unsupported_value};
use super::store::Key;
use super::write::{Done, seconds};
use super::{Server, crd, decode, lists, metadata, options};

/// Holds an object until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Holds an object until its dependents do not name it any more.
pub(crate) const ORPHAN: &str = "orphan";

/// What becomes of an object's dependents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// Nobody said.
    #[default]
    Default,
    Background,
    Foreground,
    Orphan,
}

/// How to delete.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
    pub propagation: Propagation,
    pub grace_period: Option<i64>,
    pub dry_run: bool,
}

impl Options {
    /// From the body, or, where there is none, from the query.
    fn of(call: &Call<'_>) -> Result<Self> {
        let said = if call.request.body.is_empty() {
            json!({
                "dryRun": if call.query.has("dryRun") { json!([call.query.get("dryRun")]) } else { Value::Null },
                "gracePeriodSeconds": call.query.number("gracePeriodSeconds")?,
                "propagationPolicy": Some(call.query.get("propagationPolicy")).filter(|text| !text.is_empty()),
            })
        } else {
            read(call)?
        };
        let faults = faults(&said);
        if !faults.is_empty() {
            return Err(Status::invalid_options("DeleteOptions", &faults));
        }
        let mut options = Self::default();
        for (key, value) in said.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null()) {
            match key.as_str() {
                "apiVersion" | "kind" => {}
                "dryRun" => match value.as_array().map(Vec::as_slice) {
                    Some([]) => {}
                    Some([all]) if all == "All" => options.dry_run = true,
                    _ => return Err(Status::not_simulated(format!("dryRun: {value}"))),
                },
                "gracePeriodSeconds" => options.grace_period = value.as_i64(),
                "preconditions" => {
                    let text = |field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
                    options.uid = text("uid");
                    options.resource_version = text("resourceVersion");
                }
                "propagationPolicy" => {
                    options.propagation = match value.as_str().unwrap_or_default() {
                        "Background" => Propagation::Background,
                        "Foreground" => Propagation::Foreground,
                        "Orphan" => Propagation::Orphan,
                        other => {
                            return Err(Status::not_simulated(format!("the propagation policy {other}")));
                        }
                    }
                }
                other => return Err(Status::not_simulated(format!("the delete option {other}"))),
            }
        }
        Ok(options)
    }
}

/// Options in the body of a delete.
fn read(call: &Call<'_>) -> Result<Value> {
    let body = &call.request.body;
    let said: Value = serde_json::from_slice(body).map_err(|error| {
        let why = decode::syntax_error(body, &error);
        Status::bad_request(format!("couldn't get version/kind; json parse error: {why}"))
    })?;
    let text = |field: &str| said[field].as_str().unwrap_or_default();
    if !matches!(text("kind"), "" | "DeleteOptions") {
        return Err(Status::bad_request(not_registered(text("kind"), text("apiVersion"))));
    }
    Ok(said)
}

/// Options that make no sense.
fn faults(said: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let policy = &said["propagationPolicy"];
    if !policy.is_null() && !said["orphanDependents"].is_null() {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(invalid_value("propagationPolicy", policy, why));
    }
    let known = ["Foreground", "Background", "Orphan", "nil"];
    if policy.as_str().is_some_and(|policy| !known[..3].contains(&policy)) {
        causes.push(unsupported_value("propagationPolicy", policy, &known));
    }
    let dry_run = said["dryRun"].as_array().map(Vec::as_slice).unwrap_or_default();
    if dry_run.iter().any(|one| one != "All") {
        causes.push(options::dry_run(&said["dryRun"]));
    }
    causes
}

impl Server {
    pub(crate) fn delete(&mut self, call: &Call<'_>) -> Result<Done> {
        if !call.place.subresource.is_empty() && call.resource.custom.is_some() {
            return Err(Status::verb_not_supported(call.resource, "delete"));
        }
        if !call.place.subresource.is_empty() {
            return Err(Status::method_not_allowed());
        }
        let options = Options::of(call)?;
        Ok((200, self.delete_object(call.resource, &call.key(), &options, call.now)?))
    }

    pub(crate) fn delete_collection(&mut self, call: &Call<'_>) -> Result<Done> {
        let options = Options::of(call)?;
        if call.resource.namespaced && call.place.namespace.is_empty() {
            return Err(Status::method_not_allowed());
        }
        let found = self.list(call.resource, call.place, call.query)?;
        for item in found["items"].as_array().into_iter().flatten() {
            let key = (call.place.namespace.clone(), metadata::text(item, "name").to_owned());
            self.delete_object(call.resource, &key, &options, call.now)?;
        }
        Ok((200, found))
    }

    /// Deletes an object, or lets it begin to terminate; the body of the answer.
    pub(crate) fn delete_object(
        &mut self,
        resource: &Arc<Resource>,
        key: &Key,
        options: &Options,
        now: Timestamp,
    ) -> Result<Value> {
        let Some(old) = self.store.get(&resource.table, key).cloned() else {
            return Err(Status::not_found(resource, &key.1));
        };
        check_preconditions(resource, &old, options)?;
        let first = !metadata::is_terminating(&old);
        let is_namespace = resource.group.is_empty() && resource.plural == "namespaces";
        if is_namespace {
            if matches!(key.1.as_str(), "default" | "kube-system" | "kube-public") {
                let why = "this namespace may not be deleted";
                return Err(Status::forbidden(&About::resource(resource, &key.1), why, Vec::new()));
            }
            if first {
                let mut new = Value::clone(&old);
                metadata::set(&mut new, "deletionTimestamp", seconds(now));
                new["status"]["phase"] = "Terminating".into();
                set_finalizers(&mut new, options.propagation);
                return Ok(self.written(resource, key, new, options));
            }
            if old["spec"]["finalizers"].as_array().is_some_and(|all| !all.is_empty()) {
                return Ok(Value::clone(&old));
            }
        }
        if resource.group == "apiextensions.k8s.io" && first {
            let mut new = Value::clone(&old);
            metadata::set(&mut new, "deletionTimestamp", seconds(now));
            crd::begin_to_terminate(&mut new, now);
            return Ok(self.written(resource, key, new, options));
        }
        let is_pod = resource.group.is_empty() && resource.plural == "pods";
        let grace = if is_pod { pod_grace(&old, options) } else { 0 };
        // A pod that terminates already can only be hurried.
        if is_pod && !first && metadata::grace_period(&old).is_some_and(|left| left > 0 && grace >= left) {
            return Ok(lists::shown(resource, Value::clone(&old)));
        }
        let mut new = Value::clone(&old);
        set_finalizers(&mut new, options.propagation);
        if metadata::finalizers(&new).is_empty() && grace == 0 {
            if !options.dry_run {
                self.remove(&resource.table, key, Value::clone(&old));
            }
            return Ok(if resource.returns_deleted {
                lists::shown(resource, Value::clone(&old))
            } else {
                Status::deleted(resource, &key.1, &old["metadata"]["uid"])
            });
        }
        if first && metadata::generation(&old) > 0 {
            metadata::set(&mut new, "generation", metadata::generation(&old) + 1);
        }
        if first || grace < metadata::grace_period(&old).unwrap_or_default() {
            metadata::set(&mut new, "deletionTimestamp", seconds(now + SignedDuration::from_secs(grace)));
        }
        metadata::set(&mut new, "deletionGracePeriodSeconds", grace);
        Ok(self.written(resource, key, new, options))
    }

    fn written(&mut self, resource: &Resource, key: &Key, new: Value, options: &Options) -> Value {
        let is_same = self.store.get(&resource.table, key).is_some_and(|old| **old == new);
        if options.dry_run || is_same {
            return lists::shown(resource, new);
        }
        lists::shown(resource, Value::clone(&self.commit(&resource.table, key, new)))
    }
}

fn check_preconditions(resource: &Resource, old: &Value, options: &Options) -> Result<()> {
    let (name, uid, version) =
        (metadata::text(old, "name"), metadata::text(old, "uid"), metadata::text(old, "resourceVersion"));
    // Namespaces and definitions look for themselves, in words of their own.
    let own_words = resource.group == "apiextensions.k8s.io"
        || (resource.group.is_empty() && resource.plural == "namespaces");
    let about = if own_words { About::resource(resource, name) } else { About::kind(resource, name) };
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = if own_words {
            format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}")
        } else {
            format!(
                "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might \
                 have been deleted and then recreated"
            )
        };
        return Err(Status::conflict(&about, &why));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        let why = if own_words {
            format!(
                "Precondition failed: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: \
                 {version}"
            )
        } else {
            format!(
                "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
                 ({version}). The object might have been modified"
            )
        };
        return Err(Status::conflict(&about, &why));
    }
    Ok(())
}

/// How long a pod may take to end. Without a node nobody would ever say that it has.
fn pod_grace(pod: &Value, options: &Options) -> i64 {
    let is_over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    if is_over || !pod["spec"]["nodeName"].is_string() {
        return 0;
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or_default();
    let grace = options.grace_period.unwrap_or(own);
    if grace < 0 { 1 } else { grace }
}

/// The garbage collector's finalizers, as the propagation wants them; where nobody said, those that are there stay.
fn set_finalizers(object: &mut Value, propagation: Propagation) {
    let is_its = |name: &str| name == FOREGROUND || name == ORPHAN;
    let had: Vec<String> = metadata::finalizers(object).into_iter().map(str::to_owned).collect();
    let mut wanted: Vec<String> = match propagation {
        Propagation::Default => return,
        _ => had.iter().filter(|name| !is_its(name)).cloned().collect(),
    };
    match propagation {
        Propagation::Foreground => wanted.push(FOREGROUND.to_owned()),
        Propagation::Orphan => wanted.push(ORPHAN.to_owned()),
        Propagation::Default | Propagation::Background => {}
    }
    let same = wanted.len() == had.len() && wanted.iter().all(|name| had.contains(name));
    if !same {
        metadata::set_finalizers(object, &wanted);
    }
}
