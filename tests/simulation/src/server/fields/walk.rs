//! Walks through objects by their types: which fields they have, how two of them differ, what they are together.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value};

use super::set::Set;
use super::types::{Items, Type};

/// How two objects differ. A field is in one of the sets at most.
#[derive(Default)]
pub(super) struct Comparison {
    pub(super) removed: Set,
    /// Changed or added.
    pub(super) written: Set,
}

impl Comparison {
    fn put(&mut self, element: &str, inner: Self) {
        self.removed.put(element.to_owned(), inner.removed);
        self.written.put(element.to_owned(), inner.written);
    }
}

/// The path elements of a list's items, in their order.
fn elements(items: &Items<'_>, list: &[Value]) -> Vec<String> {
    let element = |item: &Value| match items {
        Items::Map(keys) => {
            let key = |(key, default): &(&str, Option<Value>)| {
                let value = item.get(key).or(default.as_ref())?;
                Some(((*key).to_owned(), value.clone()))
            };
            let keys: Map<String, Value> = keys.iter().filter_map(key).collect();
            format!("k:{}", Value::Object(keys))
        }
        _ => format!("v:{item}"),
    };
    list.iter().map(element).collect()
}

fn by_element<'v>(items: &Items<'_>, list: Option<&'v Value>) -> BTreeMap<String, &'v Value> {
    let list = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    elements(items, list).into_iter().zip(list).collect()
}

fn field(name: &str) -> String {
    format!("f:{name}")
}

/// Whether there is nothing that could have parts.
fn is_blank(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// How the second differs from the first.
pub(super) fn compare(of: Type<'_>, old: Option<&Value>, new: Option<&Value>) -> Comparison {
    let mut found = Comparison::default();
    if old == new {
        return found;
    }
    let one = new.filter(|new| !new.is_null()).or(old);
    let both_are = |is_it: fn(&Value) -> bool| {
        [old, new].into_iter().flatten().all(|value| value.is_null() || is_it(value))
    };
    let has_parts = !(is_blank(old) && is_blank(new));
    match one {
        Some(Value::Object(_)) if both_are(Value::is_object) && has_parts && !of.is_atomic_map() => {
            let none = Map::new();
            let old = old.and_then(Value::as_object).unwrap_or(&none);
            let new = new.and_then(Value::as_object).unwrap_or(&none);
            for (name, value) in new {
                found.put(&field(name), compare(of.field(name).0, old.get(name), Some(value)));
            }
            for (name, value) in old.iter().filter(|(name, _)| !new.contains_key(*name)) {
                found.put(&field(name), compare(of.field(name).0, Some(value), None));
            }
        }
        Some(Value::Array(_))
            if both_are(Value::is_array) && has_parts && !matches!(of.items(), Items::Atomic) =>
        {
            let items = of.items();
            let (old, new) = (by_element(&items, old), by_element(&items, new));
            for (element, value) in &new {
                found.put(element, compare(of.item(), old.get(element).copied(), Some(value)));
            }
            for (element, value) in old.iter().filter(|(element, _)| !new.contains_key(*element)) {
                found.put(element, compare(of.item(), Some(value), None));
            }
        }
        _ => {
            if old.is_some() && new.is_some() {
                // What had parts and is something else now: the parts are gone too.
                let parts = old.filter(|value| !is_blank(Some(value)));
                found.removed.within = parts.map(|old| fields_of(of, old).within).unwrap_or_default();
                found.written.is_member = true;
            }
        }
    }
    found.written.is_member |= old.is_none();
    found.removed.is_member |= new.is_none();
    found
}

/// Every field that a value sets.
pub(super) fn fields_of(of: Type<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    match value {
        Value::Object(fields) if !of.is_atomic_map() => {
            for (name, value) in fields {
                let (of_field, is_named) = of.field(name);
                let mut inner = fields_of(of_field, value);
                let is_empty_map = value.as_object().is_some_and(Map::is_empty);
                inner.is_member |= value.is_null() || is_empty_map || !is_named;
                set.put(field(name), inner);
            }
        }
        Value::Array(list) if !matches!(of.items(), Items::Atomic) => {
            for (element, item) in elements(&of.items(), list).into_iter().zip(list) {
                let mut inner = fields_of(of.item(), item);
                inner.is_member = true;
                set.put(element, inner);
            }
        }
        _ => set.is_member = true,
    }
    set
}

/// The set with every named field that it has something within.
pub(super) fn with_parents(of: Type<'_>, set: &Set) -> Set {
    let mut with = Set { is_member: set.is_member, ..Set::default() };
    for (element, inner) in &set.within {
        let (of_inner, is_named) =
            element.strip_prefix("f:").map_or((of.item(), false), |name| of.field(name));
        let mut inner = with_parents(of_inner, inner);
        inner.is_member |= is_named;
        with.within.insert(element.clone(), inner);
    }
    with
}

/// The live value with what the configuration says.
pub(super) fn merge(of: Type<'_>, live: &Value, config: &Value) -> Value {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !of.is_atomic_map() => {
            let mut merged = live.clone();
            for (name, value) in config {
                let value = match live.get(name) {
                    Some(before) => merge(of.field(name).0, before, value),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(live), Value::Array(config)) if !matches!(of.items(), Items::Atomic) => {
            merge_lists(of, live, config).into()
        }
        _ => config.clone(),
    }
}

/// Items that both have come in the order of the configuration, and the others where they were among them.
fn merge_lists(of: Type<'_>, live: &[Value], config: &[Value]) -> Vec<Value> {
    let items = of.items();
    let (left, right) = (elements(&items, live), elements(&items, config));
    let of_live: BTreeMap<&String, &Value> = left.iter().zip(live).collect();
    let mut shared: VecDeque<&String> = right.iter().filter(|key| of_live.contains_key(key)).collect();
    let mut merged = Vec::new();
    let mut taken = 0;
    let take = |key: &String, item: &Value, shared: &mut VecDeque<&String>| {
        if shared.front() == Some(&key) {
            shared.pop_front();
        }
        merge_item(of.item(), of_live.get(key).copied(), item)
    };
    for (key, item) in left.iter().zip(live) {
        if !right.contains(key) {
            merged.push(item.clone());
            continue;
        }
        if shared.front() != Some(&key) {
            continue;
        }
        // Up to this one, all that the configuration says.
        while let (Some(next), Some(wanted)) = (right.get(taken), config.get(taken)) {
            taken += 1;
            merged.push(take(next, wanted, &mut shared));
            if next == key {
                break;
            }
        }
    }
    while let (Some(next), Some(wanted)) = (right.get(taken), config.get(taken)) {
        taken += 1;
        merged.push(take(next, wanted, &mut shared));
    }
    merged
}

fn merge_item(of: Type<'_>, live: Option<&Value>, config: &Value) -> Value {
    live.map_or_else(|| config.clone(), |live| merge(of, live, config))
}

/// The value without these fields; none if nothing is left of it.
pub(super) fn remove(of: Type<'_>, value: &Value, set: &Set) -> Option<Value> {
    match value {
        Value::Object(fields) if !of.is_atomic_map() => {
            let mut kept = Map::new();
            for (name, value) in fields {
                let value = match set.within.get(&field(name)) {
                    None => Some(value.clone()),
                    Some(inner) if inner.is_member => None,
                    Some(inner) => remove(of.field(name).0, value, inner),
                };
                kept.extend(value.map(|value| (name.clone(), value)));
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        Value::Array(list) if !matches!(of.items(), Items::Atomic) => {
            let keep = |(element, item): (String, &Value)| match set.within.get(&element) {
                None => Some(item.clone()),
                Some(inner) if inner.is_member => None,
                Some(inner) => remove(of.item(), item, inner),
            };
            let kept: Vec<Value> =
                elements(&of.items(), list).into_iter().zip(list).filter_map(keep).collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Value::Object(_) | Value::Array(_) => None,
        scalar => Some(scalar.clone()),
    }
}
