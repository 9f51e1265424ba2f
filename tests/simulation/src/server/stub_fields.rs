//! Stands in for managedFields until they are there: the last writer's name and nothing else, and apply is a merge.
#![allow(missing_docs)]

use jiff::Timestamp;
use serde_json::{Value, json};

use super::schema::Schema;

pub struct Writer<'a> {
    pub manager: &'a str,
    pub api_version: &'a str,
    pub subresource: &'a str,
    pub now: Timestamp,
}

#[derive(Clone, Debug)]
pub struct Conflict {
    pub manager: String,
    pub field: String,
}

pub fn track_update(old: Option<&Value>, new: &mut Value, writer: &Writer<'_>, _schema: Option<&Schema>) {
    if old.is_some_and(|old| same(old, new)) {
        return;
    }
    new["metadata"]["managedFields"] = json!([{
        "manager": writer.manager, "operation": "Update", "apiVersion": writer.api_version,
        "time": writer.now.to_string(), "fieldsType": "FieldsV1", "fieldsV1": {},
    }]);
}

fn same(old: &Value, new: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        object["metadata"]["managedFields"] = Value::Null;
        object
    };
    bare(old) == bare(new)
}

pub fn apply(
    live: Option<&Value>,
    config: &Value,
    writer: &Writer<'_>,
    _force: bool,
    schema: Option<&Schema>,
) -> Result<Value, Vec<Conflict>> {
    let mut merged = live.cloned().unwrap_or_else(|| json!({}));
    json_patch::merge(&mut merged, config);
    track_update(live, &mut merged, writer, schema);
    Ok(merged)
}
