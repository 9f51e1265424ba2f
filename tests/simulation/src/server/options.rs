//! The options that come with a query: whether they make sense, and how the server says that they do not.

use serde_json::{Value, json};

use super::call::Call;
use super::patch;
use super::path::Query;
use super::schema::Cause;
use super::status::{Result, Status, forbidden_value, required_value, too_long, unsupported_value};

/// The longest name that a field manager can have.
const LONGEST_MANAGER: usize = 128;

/// Refuses what the server refuses before it reads any body.
pub(crate) fn check(call: &Call<'_>, verb: &str) -> Result<()> {
    let query = call.query;
    let kind = match verb {
        "list" | "watch" => return check_list(query),
        "deletecollection" => {
            check_list(query)?;
            return Ok(());
        }
        "create" => "CreateOptions",
        "update" => "UpdateOptions",
        "patch" => "PatchOptions",
        _ => return Ok(()),
    };
    let mut causes = Vec::new();
    if verb == "patch" {
        causes.extend(patch_faults(call));
    }
    if query.get("fieldManager").len() > LONGEST_MANAGER {
        causes.push(too_long("fieldManager", LONGEST_MANAGER));
    }
    if !matches!(query.get("dryRun"), "" | "All") {
        causes.push(dry_run(&json!([query.get("dryRun")])));
    }
    let validation = query.get("fieldValidation");
    if !matches!(validation, "" | "Ignore" | "Strict" | "Warn") {
        let supported = ["", "Ignore", "Strict", "Warn"];
        causes.push(unsupported_value("fieldValidation", &validation.into(), &supported));
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid_options(kind, &causes)) }
}

/// A dry run is of everything or of nothing.
pub(crate) fn dry_run(value: &Value) -> Cause {
    unsupported_value("dryRun", value, &["All"])
}

fn patch_faults(call: &Call<'_>) -> Option<Cause> {
    let is_apply = call.content_type() == patch::APPLY;
    if is_apply && call.query.get("fieldManager").is_empty() {
        return Some(required_value("fieldManager", "is required for apply patch"));
    }
    (!is_apply && call.query.has("force"))
        .then(|| forbidden_value("force", "may not be specified for non-apply patch"))
}

fn check_list(query: &Query) -> Result<()> {
    query.number("timeoutSeconds")?;
    let wanted = query.get("resourceVersionMatch");
    let is_initial = query.has("sendInitialEvents");
    let cause = if is_initial && !query.flag("watch") {
        forbidden_value("sendInitialEvents", "sendInitialEvents is forbidden for list")
    } else if is_initial && wanted != "NotOlderThan" {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        forbidden_value("resourceVersionMatch", why)
    } else if is_initial || wanted.is_empty() {
        return Ok(());
    } else if query.get("resourceVersion").is_empty() {
        let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
        forbidden_value("resourceVersionMatch", why)
    } else if !matches!(wanted, "Exact" | "NotOlderThan") {
        unsupported_value("resourceVersionMatch", &wanted.into(), &["Exact", "NotOlderThan", ""])
    } else {
        return Ok(());
    };
    Err(Status::invalid_options("ListOptions", &[cause]))
}

/// How long the client would wait. Nothing takes any time here, so only nonsense matters.
pub(crate) fn check_timeout(query: &Query) -> Result<()> {
    let text = query.get("timeout");
    let is_duration = text.is_empty()
        || text == "0"
        || (text.starts_with(|first: char| first.is_ascii_digit())
            && text.ends_with(['s', 'm', 'h'])
            && text.chars().all(|letter| letter.is_ascii_digit() || ".nuµmsh".contains(letter)));
    if is_duration {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "invalid timeout specified in the request URL - time: invalid duration \"{text}\""
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_a_duration_as_go_writes_it() {
        for (query, fits) in
            [("", true), ("timeout=10s", true), ("timeout=1m30s", true), ("timeout=soon", false)]
        {
            assert_eq!(check_timeout(&Query::parse(query).unwrap()).is_ok(), fits, "{query}");
        }
    }
}
