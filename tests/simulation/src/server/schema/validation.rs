//! What a schema accepts, and how a real server words what it does not.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{Additional, Cause, Limit, ListType, Node};

/// Checks the object against its schema, then the keys of its lists, then its rules, as a real server does.
pub(super) fn validate(root: &Node, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    check(root, object, old, "", &mut causes);
    let mut duplicates = Vec::new();
    check_lists(root, object, "", &mut duplicates);
    if !duplicates.is_empty() {
        // What has duplicates already may keep them.
        let mut before = Vec::new();
        if let Some(old) = old {
            check_lists(root, old, "", &mut before);
        }
        if before.is_empty() {
            causes.append(&mut duplicates);
        }
    }
    if has_rules(root) {
        if causes.iter().any(is_blocking) {
            let message = "Invalid value: null: some validation rules were not checked because the object was \
                           invalid; correct the existing errors to complete validation";
            causes.push(cause("FieldValueInvalid", message.to_owned(), "<nil>"));
        } else {
            check_rules(root, object, old, "", &mut causes);
        }
    }
    causes
}

fn is_blocking(cause: &Cause) -> bool {
    [
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    ]
    .contains(&cause.reason.as_str())
}

fn cause(reason: &str, message: String, field: &str) -> Cause {
    Cause { reason: reason.to_owned(), message, field: field.to_owned() }
}

fn invalid(value: &Value, path: &str, wrong: &str) -> Cause {
    cause("FieldValueInvalid", format!("Invalid value: {value}: {path} in body {wrong}"), path)
}

fn wrong_type(found: &str, path: &str, wanted: &str) -> Cause {
    let found = Value::from(found);
    let message = format!("Invalid value: {found}: {path} in body must be of type {wanted}: {found}");
    cause("FieldValueTypeInvalid", message, path)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn child(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn check(node: &Node, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    if old == Some(value) {
        return;
    }
    check_type(node, value, path, causes);
    if !value.is_null() {
        check_any_of(node, value, path, causes);
    }
    match value {
        Value::String(text) => check_text(node, text, path, causes),
        Value::Number(_) => check_number(node, value, path, causes),
        Value::Array(items) => check_items(node, items, old, path, causes),
        _ => {}
    }
    if let Some(allowed) = node.allowed.as_ref().filter(|allowed| !allowed.contains(value)) {
        let quoted = |value: &Value| match value {
            Value::String(_) => value.to_string(),
            other => Value::from(other.to_string()).to_string(),
        };
        let allowed: Vec<String> = allowed.iter().map(quoted).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", allowed.join(", "));
        causes.push(cause("FieldValueNotSupported", message, path));
    }
    if let Value::Object(fields) = value {
        check_fields(node, fields, old, path, causes);
    }
}

fn check_type(node: &Node, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let found = type_of(value);
    let is_wanted = |wanted: &String| {
        wanted == found
            || (wanted == "number" && found == "integer")
            || (wanted == "integer" && value.as_f64().is_some_and(|number| number.fract() == 0.0))
    };
    let is_allowed_null = value.is_null() && node.nullable;
    if !node.types.is_empty() && !is_allowed_null && !node.types.iter().any(is_wanted) {
        causes.push(wrong_type(found, path, &node.types.join(",")));
    }
}

fn check_any_of(node: &Node, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let attempt = |branch: &Node| {
        let mut wrong = Vec::new();
        check(branch, value, None, path, &mut wrong);
        wrong
    };
    let failures: Vec<Vec<Cause>> = node.any_of.iter().map(attempt).collect();
    if failures.is_empty() || failures.iter().any(Vec::is_empty) {
        return;
    }
    let path = Value::from(path);
    let message = format!("Invalid value: \"\": {path} must validate at least one schema (anyOf)");
    causes.push(cause("FieldValueInvalid", message, "<nil>"));
    causes.extend(failures.into_iter().next().unwrap_or_default());
}

fn check_text(node: &Node, text: &str, path: &str, causes: &mut Vec<Cause>) {
    let value = || Value::from(text);
    let length = text.chars().count() as u64;
    if let Some(max) = node.max_length.filter(|max| length > *max) {
        let unit = if max == 1 { "byte" } else { "bytes" };
        let message = format!("Too long: may not be more than {max} {unit}");
        causes.push(cause("FieldValueTooLong", message, path));
    }
    if let Some(min) = node.min_length.filter(|min| length < *min) {
        causes.push(invalid(&value(), path, &format!("should be at least {min} chars long")));
    }
    if let Some(pattern) = node.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
        causes.push(invalid(&value(), path, &format!("should match '{}'", pattern.as_str())));
    }
    if node.is_date_time && !is_date_time(text) {
        causes.push(wrong_type(text, path, "date-time"));
    }
}

fn is_date_time(text: &str) -> bool {
    text.contains(['T', 't']) && text.parse::<Timestamp>().is_ok()
}

fn check_number(node: &Node, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    let Some(number) = value.as_f64() else { return };
    let exceeds = |limit: &Limit| number > limit.value || (limit.exclusive && number >= limit.value);
    if let Some(limit) = node.maximum.filter(exceeds) {
        let or_equal = if limit.exclusive { "" } else { " or equal to" };
        causes.push(invalid(value, path, &format!("should be less than{or_equal} {}", limit.value)));
    }
    let falls_short = |limit: &Limit| number < limit.value || (limit.exclusive && number <= limit.value);
    if let Some(limit) = node.minimum.filter(falls_short) {
        let or_equal = if limit.exclusive { "" } else { " or equal to" };
        causes.push(invalid(value, path, &format!("should be greater than{or_equal} {}", limit.value)));
    }
}

fn check_items(node: &Node, items: &[Value], old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    if let Some(of_items) = node.items.as_deref() {
        for (index, item) in items.iter().enumerate() {
            let before = old.and_then(|old| same_item(node, old, item));
            check(of_items, item, before, &format!("{path}[{index}]"), causes);
        }
    }
    let count = items.len() as u64;
    if let Some(min) = node.min_items.filter(|min| count < *min) {
        causes.push(invalid(&count.into(), path, &format!("should have at least {min} items")));
    }
    too_many(count, node.max_items, path, causes);
}

fn too_many(count: u64, max: Option<u64>, path: &str, causes: &mut Vec<Cause>) {
    if let Some(max) = max.filter(|max| count > *max) {
        let unit = if max == 1 { "item" } else { "items" };
        let message = format!("Too many: {count}: must have at most {max} {unit}");
        causes.push(cause("FieldValueTooMany", message, path));
    }
}

/// The item of the old list that has the same keys. In other lists than maps nobody knows which one it was.
fn same_item<'a>(node: &Node, old: &'a Value, item: &Value) -> Option<&'a Value> {
    let ListType::Map(keys) = &node.list else { return None };
    let is_same = |before: &&Value| keys.iter().all(|key| before.get(key) == item.get(key));
    old.as_array()?.iter().find(is_same)
}

fn check_fields(
    node: &Node,
    fields: &Map<String, Value>,
    old: Option<&Value>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
    let count = fields.len() as u64;
    if let Some(min) = node.min_properties.filter(|min| count < *min) {
        causes.push(invalid(&count.into(), path, &format!("should have at least {min} properties")));
    }
    too_many(count, node.max_properties, path, causes);
    for (name, value) in fields {
        if let Some(field) = node.field(name) {
            check(field, value, old.and_then(|old| old.get(name)), &child(path, name), causes);
        }
    }
    for name in node.required.iter().filter(|name| !fields.contains_key(*name)) {
        causes.push(cause("FieldValueRequired", "Required value".to_owned(), &child(path, name)));
    }
}

/// Items of sets and keys of maps may be there once.
fn check_lists(node: &Node, value: &Value, path: &str, causes: &mut Vec<Cause>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let within = match (node.properties.get(name), &node.additional) {
                    (Some(property), _) => Some((property, child(path, name))),
                    (None, Some(Additional::Of(of_all))) => Some((&**of_all, format!("{path}[{name}]"))),
                    _ => None,
                };
                if let Some((field, path)) = within {
                    check_lists(field, value, &path, causes);
                }
            }
        }
        Value::Array(items) => {
            let keys_of = |item: &Value| match &node.list {
                ListType::Atomic => None,
                ListType::Set => Some(item.clone()),
                ListType::Map(keys) => {
                    let key = |key: &String| item.get(key).map(|value| (key.clone(), value.clone()));
                    Some(Value::Object(keys.iter().filter_map(key).collect()))
                }
            };
            let mut seen: BTreeMap<String, u32> = BTreeMap::new();
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                if matches!(node.list, ListType::Map(_)) && !item.is_object() {
                    let message =
                        format!("Invalid value: {item}: must be an object for an array of list-type map");
                    causes.push(cause("FieldValueInvalid", message, &path));
                } else if let Some(keys) = keys_of(item) {
                    let times = seen.entry(keys.to_string()).or_default();
                    *times += 1;
                    // However often it comes back, that is said once.
                    if *times == 2 {
                        let message = format!("Duplicate value: {keys}");
                        causes.push(cause("FieldValueDuplicate", message, &path));
                    }
                }
                if let Some(of_items) = node.items.as_deref() {
                    check_lists(of_items, item, &path, causes);
                }
            }
        }
        _ => {}
    }
}

fn has_rules(node: &Node) -> bool {
    let additional = node.additional.iter().filter_map(Additional::node);
    !node.rules.is_empty()
        || node.properties.values().chain(additional).chain(node.items.as_deref()).any(has_rules)
}

fn check_rules(node: &Node, value: &Value, old: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    for rule in node.rules.iter().filter(|rule| !rule.holds(value, old)) {
        let shown = match value {
            Value::Object(_) | Value::Array(_) => String::new(),
            scalar => format!(": {scalar}"),
        };
        let message = format!("Invalid value{shown}: {}", rule.message);
        causes.push(cause("FieldValueInvalid", message, path));
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let Some(field) = node.field(name) {
                    check_rules(field, value, old.and_then(|old| old.get(name)), &child(path, name), causes);
                }
            }
        }
        Value::Array(items) => {
            let Some(of_items) = node.items.as_deref() else { return };
            for (index, item) in items.iter().enumerate() {
                let before = old.and_then(|old| same_item(node, old, item));
                check_rules(of_items, item, before, &format!("{path}[{index}]"), causes);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use standins::crds::{Family, crds};
    use standins::fixtures;

    use super::super::Schema;
    use super::*;

    /// By its kind, or by its group where that has one kind only.
    fn of(family: Family, name: &str) -> Schema {
        let crds = crds(family, None).unwrap();
        let is_it = |crd: &&Value| crd["spec"]["names"]["kind"] == name || crd["spec"]["group"] == name;
        let crd = crds.iter().find(is_it).unwrap();
        Schema::parse(&crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]).unwrap()
    }

    fn said(schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<String> {
        let causes = schema.validate(object, old);
        causes.into_iter().map(|c| format!("{} {}: {}", c.reason, c.field, c.message)).collect()
    }

    fn widget(change: impl FnOnce(&mut Value)) -> Value {
        let mut widget = fixtures::widget("w", "ns", 1);
        change(&mut widget["spec"]);
        widget
    }

    #[test]
    fn what_is_wrong_is_said_in_the_servers_words() {
        let schema = of(Family::Fixture, "Widget");
        let said = |change: fn(&mut Value)| said(&schema, &widget(change), None);
        let unchecked = "FieldValueInvalid <nil>: Invalid value: null: some validation rules were not checked \
                         because the object was invalid; correct the existing errors to complete validation";
        assert!(said(|_| {}).is_empty());
        let most = "FieldValueInvalid spec.size: Invalid value: 101: spec.size in body should be less than or \
                    equal to 100";
        assert_eq!(said(|spec| spec["size"] = 101.into()), [most]);
        let kind = "FieldValueTypeInvalid spec.size: Invalid value: \"string\": spec.size in body must be of \
                    type integer: \"string\"";
        assert_eq!(said(|spec| spec["size"] = "1".into()), [kind, unchecked]);
        let phase = "FieldValueNotSupported spec.phase: Unsupported value: \"Gone\": supported values: \
                     \"Draft\", \"Active\", \"Retired\"";
        assert_eq!(said(|spec| spec["phase"] = "Gone".into()), [phase, unchecked]);
        let missing = |spec: &mut Value| drop(spec.as_object_mut().unwrap().remove("size"));
        assert_eq!(said(missing), ["FieldValueRequired spec.size: Required value", unchecked]);
        let long = "FieldValueTooLong spec.color: Too long: may not be more than 32 bytes";
        assert_eq!(said(|spec| spec["color"] = "x".repeat(33).into()), [long, unchecked]);
        let twice = "FieldValueDuplicate spec.parts[1]: Duplicate value: {\"name\":\"a\"}";
        assert_eq!(said(|spec| spec["parts"] = json!([{"name": "a"}, {"name": "a"}])), [twice]);
    }

    #[test]
    fn short_strings_patterns_and_alternatives_are_named_too() {
        let gadget = said(&of(Family::Fixture, "Gadget"), &fixtures::gadget("g", "ns", ""), None);
        let short = "FieldValueInvalid spec.widget: Invalid value: \"\": spec.widget in body should be at least \
                     1 chars long";
        assert_eq!(gadget, [short]);
        let legacy = json!({"metadata": {"name": "s"}, "spec": {"sink": "a", "protocol": 1}});
        assert!(said(&of(Family::EventMesh, "eventing.kyma-project.io"), &legacy, None).is_empty());
        let legacy = json!({"metadata": {"name": "s"}, "spec": {"source_id": "a"}});
        let neither = said(&of(Family::EventMesh, "eventing.kyma-project.io"), &legacy, None);
        let any = "FieldValueInvalid <nil>: Invalid value: \"\": \"spec\" must validate at least one schema (anyOf)";
        assert_eq!(neither[..2], [any, "FieldValueRequired spec.event_type: Required value"]);
        let pattern =
            Schema::parse(&json!({"properties": {"a": {"type": "string", "pattern": "^b$"}}})).unwrap();
        let wrong = "FieldValueInvalid a: Invalid value: \"c\": a in body should match '^b$'";
        assert_eq!(said(&pattern, &json!({"a": "c"}), None), [wrong]);
    }

    #[test]
    fn a_time_that_is_none_is_refused() {
        let schema = of(Family::Fixture, "Widget");
        let at = |time: &str| {
            let condition = json!({
                "type": "Ready", "status": "True", "reason": "", "message": "", "lastTransitionTime": time,
            });
            let mut widget = widget(|_| {});
            widget["status"] = json!({"conditions": [condition]});
            schema.validate(&widget, None).len()
        };
        assert_eq!(at("2026-01-01T00:00:00Z"), 0);
        assert_eq!(at("2026-01-01"), 2, "the time, and the rules that were not checked");
    }

    #[test]
    fn a_color_that_is_set_stays() {
        let schema = of(Family::Fixture, "Widget");
        let blue = widget(|_| {});
        let red = widget(|spec| spec["color"] = "red".into());
        let none = widget(|spec| drop(spec.as_object_mut().unwrap().remove("color")));
        let kept = "FieldValueInvalid spec: Invalid value: spec.color cannot be changed once it is set";
        assert_eq!(said(&schema, &red, Some(&blue)), [kept]);
        assert_eq!(said(&schema, &none, Some(&blue)), [kept]);
        assert!(said(&schema, &red, Some(&none)).is_empty());
        assert!(said(&schema, &red, None).is_empty());
    }

    #[test]
    fn what_was_wrong_before_may_stay_while_the_rest_changes() {
        let schema = of(Family::Fixture, "Widget");
        let old = widget(|spec| spec["parts"] = json!([{"name": "a", "count": -1}]));
        let mut new = old.clone();
        new["spec"]["size"] = 2.into();
        assert!(said(&schema, &new, Some(&old)).is_empty());
        new["spec"]["parts"][0]["count"] = (-2).into();
        assert_eq!(schema.validate(&new, Some(&old)).len(), 1);
    }
}
