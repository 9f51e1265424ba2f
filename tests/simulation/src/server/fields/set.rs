//! Sets of fields, as managedFields write them down (`FieldsV1`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// A set of fields: whether the field itself is in it, and what is within.
///
/// The keys are path elements as `FieldsV1` writes them: `f:` and a name, `k:` and the keys of an item, `v:` and a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) is_member: bool,
    pub(super) within: BTreeMap<String, Set>,
}

impl Set {
    /// The set of that one field.
    pub(super) fn of(path: &[&str]) -> Self {
        let leaf = Self { is_member: true, ..Self::default() };
        path.iter().rev().fold(leaf, |inner, name| {
            let within = BTreeMap::from([(format!("f:{name}"), inner)]);
            Self { is_member: false, within }
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.is_member && self.within.is_empty()
    }

    /// Puts what is within a path element there, unless that is nothing.
    pub(super) fn put(&mut self, element: String, inner: Self) {
        if !inner.is_empty() {
            self.within.insert(element, inner);
        }
    }

    pub(super) fn has(&self, path: &[&str]) -> bool {
        let Some((first, rest)) = path.split_first() else { return self.is_member };
        self.within.get(&format!("f:{first}")).is_some_and(|inner| inner.has(rest))
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.is_member |= other.is_member;
        for (element, inner) in &other.within {
            self.within.entry(element.clone()).or_default().add(inner);
        }
    }

    /// Takes these fields out, and none beside or within them.
    pub(super) fn subtract(&mut self, other: &Self) {
        self.is_member &= !other.is_member;
        for (element, inner) in &other.within {
            if let Some(own) = self.within.get_mut(element) {
                own.subtract(inner);
                if own.is_empty() {
                    self.within.remove(element);
                }
            }
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut both = Self { is_member: self.is_member && other.is_member, ..Self::default() };
        for (element, inner) in &self.within {
            if let Some(others) = other.within.get(element) {
                both.put(element.clone(), inner.intersection(others));
            }
        }
        both
    }

    /// Reads `FieldsV1`. An empty map is a field; one with `.` is a field and those within.
    pub(super) fn decode(fields: &Map<String, Value>) -> Option<Self> {
        let mut set = Self::default();
        for (element, inner) in fields {
            let inner = inner.as_object()?;
            if element == "." {
                set.is_member = true;
            } else {
                let mut inner_set = Self::decode(inner)?;
                inner_set.is_member |= inner.is_empty();
                set.within.insert(element.clone(), inner_set);
            }
        }
        Some(set)
    }

    pub(super) fn encode(&self) -> Value {
        let mut fields = Map::new();
        if self.is_member && !self.within.is_empty() {
            fields.insert(".".to_owned(), Value::Object(Map::new()));
        }
        fields.extend(self.within.iter().map(|(element, inner)| (element.clone(), inner.encode())));
        Value::Object(fields)
    }

    /// Its fields' paths, as a conflict names them: `.spec.parts[name="bolt"].count`.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.list("", &mut paths);
        paths
    }

    fn list(&self, path: &str, paths: &mut Vec<String>) {
        if self.is_member {
            paths.push(path.to_owned());
        }
        for (element, inner) in &self.within {
            inner.list(&format!("{path}{}", shown(element)), paths);
        }
    }
}

fn shown(element: &str) -> String {
    match element.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some((_, value)) => format!("[={value}]"),
        None => element.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(fields: &Value) -> Set {
        Set::decode(fields.as_object().unwrap()).unwrap()
    }

    #[test]
    fn what_is_read_is_written_the_same() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:a": {}}, "f:finalizers": {"v:\"x\"": {}}},
            "f:spec": {"f:parts": {"k:{\"name\":\"bolt\"}": {".": {}, "f:name": {}}}},
        });
        assert_eq!(set(&fields).encode(), fields);
    }

    #[test]
    fn taking_a_field_away_leaves_what_is_within_it() {
        let mut fields = set(&json!({"f:spec": {".": {}, "f:a": {}, "f:b": {}}}));
        fields.subtract(&set(&json!({"f:spec": {".": {}, "f:a": {}}})));
        assert_eq!(fields.encode(), json!({"f:spec": {"f:b": {}}}));
        fields.subtract(&Set::of(&["spec", "b"]));
        assert!(fields.is_empty());
    }

    #[test]
    fn paths_are_shown_as_a_conflict_names_them() {
        let fields = set(&json!({
            "f:metadata": {"f:finalizers": {"v:\"x\"": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:name": {}}}},
        }));
        let shown = [r#".metadata.finalizers[="x"]"#, r#".spec.ports[port=80,protocol="TCP"].name"#];
        assert_eq!(fields.paths(), shown);
    }
}
