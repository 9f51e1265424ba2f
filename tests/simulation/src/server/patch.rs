//! Patches: what they make of an object, and how the server refuses those that make nothing of it.

use serde_json::{Value, json};

use super::call::Call;
use super::fields::Conflict;
use super::kinds::Resource;
use super::status::{Result, Status};
use super::{decode, metadata};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
/// Server-side apply.
pub(crate) const APPLY: &str = "application/apply-patch+yaml";

pub(crate) fn check_content_type(resource: &Resource, content_type: &str) -> Result<()> {
    match content_type {
        JSON | MERGE | APPLY => Ok(()),
        // Where no list merges by keys, it is a merge patch; see `patched`.
        STRATEGIC if resource.group.is_empty() && resource.plural == "configmaps" => Ok(()),
        STRATEGIC if resource.custom.is_none() => {
            Err(Status::not_simulated(format!("a strategic merge patch of {}", resource.plural)))
        }
        _ if resource.custom.is_none() => Err(Status::no_media_type()),
        _ => Err(Status::unsupported_media_type(&[JSON, MERGE, APPLY])),
    }
}

/// The object after the patch.
pub(crate) fn patched(mut object: Value, content_type: &str, patch: &[u8]) -> Result<Value> {
    if content_type == JSON {
        let operations = read(patch)?;
        if !operations.is_array() {
            return Err(unreadable(&operations, "[]handlers.jsonPatchOp"));
        }
        let patch: json_patch::Patch =
            serde_json::from_value(operations).map_err(|_| Status::patch_does_not_apply())?;
        json_patch::patch(&mut object, &patch).map_err(|_| Status::patch_does_not_apply())?;
    } else {
        let patch = read(patch)?;
        if !patch.is_object() {
            return Err(unreadable(&patch, "map[string]interface {}"));
        }
        if content_type == STRATEGIC && !is_plain(&patch) {
            return Err(Status::not_simulated("directives and merged lists of a strategic merge patch"));
        }
        json_patch::merge(&mut object, &patch);
    }
    Ok(object)
}

/// Whether a strategic merge patch says what a merge patch would.
fn is_plain(patch: &Value) -> bool {
    patch.as_object().into_iter().flatten().all(|(name, value)| {
        !name.starts_with('$')
            && !["finalizers", "ownerReferences"].contains(&name.as_str())
            && is_plain(value)
    })
}

fn read(patch: &[u8]) -> Result<Value> {
    serde_json::from_slice(patch).map_err(|error| {
        Status::bad_request(format!("error decoding patch: {}", decode::syntax_error(patch, &error)))
    })
}

fn unreadable(patch: &Value, wanted: &str) -> Status {
    let found = decode::type_name(patch);
    Status::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {wanted}"
    ))
}

/// A configuration that does not fit its type, or names fields which that does not have, cannot be merged.
pub(crate) fn refuse_untyped(call: &Call<'_>, config: &Value) -> Result<()> {
    let resource = call.resource;
    let mut faults = resource.schema().map(|schema| schema.typed_faults(config)).unwrap_or_default();
    let mut unknown = resource.schema().map(|schema| schema.unknown_fields(config)).unwrap_or_default();
    unknown.extend(decode::unknown_fields(resource, config));
    faults.extend(unknown.iter().map(|path| format!(".{path}: field not declared in schema")));
    let faults = match &faults[..] {
        [] => return Ok(()),
        [one] => one.clone(),
        all => format!("errors:\n  {}", all.join("\n  ")),
    };
    Err(Status::internal(format!(
        "failed to create typed patch object ({}/{}; {}/{}, Kind={}): {faults}",
        metadata::text(config, "namespace"),
        metadata::text(config, "name"),
        resource.group,
        resource.version,
        resource.kind,
    )))
}

/// Apply met fields that others own.
pub(crate) fn apply_conflict(conflicts: &[Conflict]) -> Status {
    let causes = conflicts.iter().map(|conflict| {
        json!({
            "reason": "FieldManagerConflict", "message": format!("conflict with {}", conflict.shown),
            "field": conflict.field,
        })
    });
    let message = match conflicts {
        [one] => format!("Apply failed with 1 conflict: conflict with {}: {}", one.shown, one.field),
        all => {
            let mut managers: Vec<&String> = all.iter().map(|conflict| &conflict.shown).collect();
            managers.sort();
            managers.dedup();
            let mut lines = Vec::new();
            for manager in managers {
                lines.push(format!("conflicts with {manager}:"));
                let of = all.iter().filter(|conflict| conflict.shown == *manager);
                lines.extend(of.map(|conflict| format!("- {}", conflict.field)));
            }
            format!("Apply failed with {} conflicts: {}", all.len(), lines.join("\n"))
        }
    };
    Status::apply_conflict(&message, &causes.collect::<Vec<_>>())
}
