//! The life of a CRD: its names are accepted, it is established, served, and in the end cleaned up.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::delete::Options;
use super::fields::{self, Writer};
use super::kinds::{Custom, Generation, Resource};
use super::schema::Schema;
use super::status::{Result, Status};
use super::store::Key;
use super::write::seconds;
use super::{Server, metadata};

const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Sets a condition; its time moves with its status.
fn set_condition(crd: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: Timestamp) {
    let mut condition = json!({
        "type": kind, "status": status, "lastTransitionTime": seconds(now), "reason": reason, "message": message,
    });
    if !crd["status"]["conditions"].is_array() {
        crd["status"]["conditions"] = json!([]);
    }
    let Some(all) = crd["status"]["conditions"].as_array_mut() else { return };
    match all.iter_mut().find(|one| one["type"] == kind) {
        Some(there) => {
            if there["status"] == status {
                condition["lastTransitionTime"] = there["lastTransitionTime"].clone();
            }
            *there = condition;
        }
        None => all.push(condition),
    }
}

pub(crate) fn has_condition(crd: &Value, kind: &str) -> bool {
    let mut all = crd["status"]["conditions"].as_array().into_iter().flatten();
    all.any(|one| one["type"] == kind && one["status"] == "True")
}

/// The defaults of a definition.
pub(crate) fn complete(crd: &mut Value) {
    let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let names = &mut crd["spec"]["names"];
    if names["singular"].as_str().unwrap_or_default().is_empty() {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].as_str().unwrap_or_default().is_empty() {
        names["listKind"] = format!("{kind}List").into();
    }
    if crd["spec"].get("conversion").is_none() {
        crd["spec"]["conversion"] = json!({"strategy": "None"});
    }
}

fn storage_version(crd: &Value) -> Option<&str> {
    let mut versions = crd["spec"]["versions"].as_array()?.iter();
    versions.find(|version| version["storage"] == true)?["name"].as_str()
}

pub(crate) fn prepare_create(crd: &mut Value) -> Result<()> {
    let stored = check(crd)?;
    crd["status"] = json!({
        "conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": [stored],
    });
    Ok(())
}

pub(crate) fn prepare_update(old: &Value, crd: &mut Value) -> Result<()> {
    let stored = check(crd)?;
    if storage_version(old) != Some(stored.as_str())
        && let Some(all) = crd["status"]["storedVersions"].as_array_mut()
        && !all.iter().any(|one| *one == stored)
    {
        all.push(stored.into());
    }
    Ok(())
}

/// Refuses what this server would not do; the version that is stored.
fn check(crd: &Value) -> Result<String> {
    if crd["spec"]["conversion"]["strategy"] != "None" {
        return Err(Status::not_simulated("conversion by a webhook"));
    }
    for version in crd["spec"]["versions"].as_array().into_iter().flatten() {
        if version["subresources"].get("scale").is_some() {
            return Err(Status::not_simulated("the scale of a custom resource"));
        }
        if version.get("selectableFields").is_some() {
            return Err(Status::not_simulated("selectable fields of a custom resource"));
        }
    }
    // One without is refused by validation.
    Ok(storage_version(crd).unwrap_or_default().to_owned())
}

/// What the first delete does.
pub(crate) fn begin_to_terminate(crd: &mut Value, now: Timestamp) {
    let mut finalizers: Vec<String> = metadata::finalizers(crd).into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|one| one == CLEANUP) {
        finalizers.push(CLEANUP.to_owned());
    }
    metadata::set_finalizers(crd, &finalizers);
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    set_condition(crd, "Terminating", "True", "InstanceDeletionPending", message, now);
}

/// What a definition serves.
fn resources(crd: &Value) -> std::result::Result<Vec<Resource>, String> {
    if !has_condition(crd, "Established") {
        return Ok(Vec::new());
    }
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let texts = |value: &Value| value.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let (group, names) = (text(&spec["group"]), &spec["names"]);
    let mut served = Vec::new();
    for version in spec["versions"].as_array().into_iter().flatten().filter(|one| one["served"] == true) {
        let schema = match version["schema"].get("openAPIV3Schema") {
            Some(schema) => Some(Arc::new(Schema::parse(schema)?)),
            None => None,
        };
        served.push(Resource {
            group: group.clone(),
            version: text(&version["name"]),
            kind: text(&names["kind"]),
            plural: text(&names["plural"]),
            singular: text(&names["singular"]),
            namespaced: spec["scope"] == "Namespaced",
            status: version["subresources"].get("status").is_some(),
            scale: false,
            generation: Generation::All,
            unconditional: false,
            create_on_update: false,
            returns_deleted: false,
            table: (group.clone(), text(&names["plural"])),
            custom: Some(Custom {
                list_kind: text(&names["listKind"]),
                storage_version: storage_version(crd).unwrap_or_default().to_owned(),
                schema,
                short_names: texts(&names["shortNames"]),
                categories: texts(&names["categories"]),
                terminating: has_condition(crd, "Terminating"),
            }),
        });
    }
    Ok(served)
}

fn table() -> super::kinds::TableKey {
    ("apiextensions.k8s.io".to_owned(), "customresourcedefinitions".to_owned())
}

impl Server {
    /// Serves what a definition says now, and no more what it said before.
    pub(crate) fn serve_crd(&mut self, name: &str, crd: Option<&Value>) {
        let Some((plural, group)) = name.split_once('.') else { return };
        let served = Arc::make_mut(&mut self.served);
        served.retain(|(known, _, resource), one| {
            !(known == group && resource == plural && one.custom.is_some())
        });
        let found = crd.map(resources).transpose();
        match found {
            Ok(found) => {
                for resource in found.into_iter().flatten() {
                    let key = (resource.group.clone(), resource.version.clone(), resource.plural.clone());
                    served.insert(key, Arc::new(resource));
                }
            }
            Err(why) => self.unknown.push(format!("the schema of {name}: {why}")),
        }
        if crd.is_none() {
            self.watches.end_of(&(group.to_owned(), plural.to_owned()));
        }
    }

    /// One pass over all definitions: the next step in the life of each.
    pub(crate) fn reconcile_crds(&mut self, now: Timestamp) -> bool {
        let found = self.store.table(&table());
        let all: Vec<(Key, Arc<Value>)> = found
            .into_iter()
            .flat_map(|table| &table.objects)
            .filter(|(_, crd)| !has_condition(crd, "Established") || metadata::is_terminating(crd))
            .map(|(key, crd)| (key.clone(), crd.clone()))
            .collect();
        let mut changed = false;
        for (key, crd) in all {
            let mut new = Value::clone(&crd);
            if metadata::is_terminating(&crd) {
                if !metadata::finalizers(&crd).contains(&CLEANUP) {
                    continue;
                }
                let resource = self.served.values().find(|one| one.table == of(&crd)).cloned();
                let left: Vec<Key> = self
                    .store
                    .table(&of(&crd))
                    .map(|table| table.objects.iter().filter(|(_, one)| !metadata::is_terminating(one)))
                    .map(|objects| objects.map(|(key, _)| key.clone()).collect())
                    .unwrap_or_default();
                let message = "CustomResource deletion is in progress";
                set_condition(&mut new, "Terminating", "True", "InstanceDeletionInProgress", message, now);
                if let Some(resource) = resource {
                    for one in left {
                        changed |= self.delete_object(&resource, &one, &Options::default(), now).is_ok();
                    }
                }
                if self.store.table(&of(&crd)).is_none_or(|table| table.objects.is_empty()) {
                    let message = "removed all instances";
                    set_condition(
                        &mut new,
                        "Terminating",
                        "False",
                        "InstanceDeletionCompleted",
                        message,
                        now,
                    );
                    let finalizers = metadata::finalizers(&crd).into_iter().filter(|one| *one != CLEANUP);
                    let finalizers: Vec<String> = finalizers.map(str::to_owned).collect();
                    metadata::set_finalizers(&mut new, &finalizers);
                    if finalizers.is_empty() {
                        self.remove(&table(), &key, Value::clone(&crd));
                        changed = true;
                        continue;
                    }
                }
            } else if has_condition(&crd, "NamesAccepted") {
                let message = "the initial names have been accepted";
                set_condition(&mut new, "Established", "True", "InitialNamesAccepted", message, now);
            } else {
                new["status"]["acceptedNames"] = new["spec"]["names"].clone();
                set_condition(&mut new, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now);
                let message = "the initial names have been accepted";
                set_condition(&mut new, "Established", "False", "Installing", message, now);
            }
            if *crd != new {
                let writer = Writer {
                    manager: "kube-apiserver",
                    api_version: "apiextensions.k8s.io/v1",
                    subresource: "status",
                    reset: "spec",
                    now,
                };
                fields::track_update(Some(&crd), &mut new, &writer, None);
                self.commit(&table(), &key, new);
                changed = true;
            }
        }
        changed
    }
}

/// Where the instances of a definition are stored.
fn of(crd: &Value) -> super::kinds::TableKey {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"]))
}
