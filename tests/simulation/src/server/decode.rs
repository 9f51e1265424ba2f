//! How the real server reads a body into the types of its own kinds, and what it says when it cannot.
//!
//! Only what scenarios can see is typed: metadata, and the outermost fields of built-in kinds. What is further within is
//! taken as it comes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::kinds::Resource;
use super::metadata;

/// A syntax error in Go's words.
pub(crate) fn syntax_error(body: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() || body.is_empty() {
        return "unexpected end of JSON input".to_owned();
    }
    let line = body.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let letter = line.get(error.column().saturating_sub(1)).copied().map_or(' ', char::from);
    let said = error.to_string();
    let place = if said.starts_with("key must be a string") {
        "looking for beginning of object key string"
    } else if said.starts_with("trailing characters") {
        "after top-level value"
    } else {
        "looking for beginning of value"
    };
    format!("invalid character '{letter}' {place}")
}

/// What Go calls a value's type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// What cannot be read into the type of its field.
pub(crate) fn type_error(resource: &Resource, object: &Value) -> Option<String> {
    let within = if resource.custom.is_some() { "" } else { "metadata." };
    for field in ["labels", "annotations"] {
        let place = format!("ObjectMeta.{within}{field}");
        if let Some(found) = text_map_error(&object["metadata"][field], &place) {
            return Some(found);
        }
    }
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "configmaps") => text_map_error(&object["data"], "ConfigMap.data"),
        ("", "secrets") => {
            let all = object["data"].as_object().into_iter().flatten();
            all.map(|(_, value)| value.as_str().unwrap_or_default())
                .find_map(bad_base64)
                .map(|at| format!("illegal base64 data at input byte {at}"))
        }
        _ => None,
    }
}

fn text_map_error(map: &Value, place: &str) -> Option<String> {
    let wrong = |found: &Value, wanted: &str| {
        Some(format!(
            "json: cannot unmarshal {} into Go struct field {place} of type {wanted}",
            type_name(found)
        ))
    };
    match map {
        Value::Null => None,
        Value::Object(all) => all
            .values()
            .find(|value| !value.is_string() && !value.is_null())
            .and_then(|value| wrong(value, "string")),
        other => wrong(other, "map[string]string"),
    }
}

/// Where a text ceases to be base64.
fn bad_base64(text: &str) -> Option<usize> {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if let Some(at) = digits.bytes().position(|byte| !is_digit(byte)) {
        return Some(at);
    }
    (padding > 2 || !text.len().is_multiple_of(4)).then_some(text.len())
}

/// How many bytes a text in base64 stands for.
pub(crate) fn decoded_size(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// The outermost fields of a built-in kind besides its type and metadata; none where they are taken as they come.
fn known_fields(resource: &Resource) -> Option<&'static [&'static str]> {
    Some(match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "configmaps") => &["binaryData", "data", "immutable"],
        ("", "secrets") => &["data", "immutable", "stringData", "type"],
        ("", "serviceaccounts") => &["automountServiceAccountToken", "imagePullSecrets", "secrets"],
        ("", "namespaces" | "pods" | "services" | "resourcequotas")
        | ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
        | ("batch" | "policy" | "coordination.k8s.io" | "apiextensions.k8s.io", _) => &["spec", "status"],
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") => &["aggregationRule", "rules"],
        ("rbac.authorization.k8s.io", _) => &["roleRef", "subjects"],
        _ => return None,
    })
}

/// The fields of an object that its type does not have, of metadata and, of built-in kinds, the outermost.
pub(crate) fn unknown_fields(resource: &Resource, object: &Value) -> Vec<String> {
    let mut unknown = Vec::new();
    if let (Some(known), Some(fields)) = (known_fields(resource), object.as_object()) {
        let is_known =
            |name: &str| ["apiVersion", "kind", "metadata"].contains(&name) || known.contains(&name);
        unknown.extend(fields.keys().filter(|name| !is_known(name)).cloned());
    }
    let metadata = object["metadata"].as_object().into_iter().flatten();
    unknown.extend(
        metadata.filter(|(name, _)| !metadata::is_known(name)).map(|(name, _)| format!("metadata.{name}")),
    );
    unknown
}

/// Takes out the outermost fields that a built-in kind does not have.
pub(crate) fn drop_unknown(resource: &Resource, object: &mut Value) {
    if let (Some(known), Some(fields)) = (known_fields(resource), object.as_object_mut()) {
        fields.retain(|name, _| {
            ["apiVersion", "kind", "metadata"].contains(&name.as_str()) || known.contains(&name.as_str())
        });
    }
}

/// The paths of fields that a body, which is JSON, names twice. Whoever reads it into a map sees only the last of them.
pub(crate) fn duplicate_fields(body: &[u8]) -> Vec<String> {
    let mut names = Names { body, at: 0, found: Vec::new() };
    names.value("");
    names.found
}

/// Walks through JSON that was read before, so that it is known to be some.
struct Names<'a> {
    body: &'a [u8],
    at: usize,
    found: Vec<String>,
}

impl Names<'_> {
    /// The next letter that means something.
    fn peek(&mut self) -> u8 {
        while self.body.get(self.at).is_some_and(|byte| byte.is_ascii_whitespace() || b":,".contains(byte)) {
            self.at += 1;
        }
        self.body.get(self.at).copied().unwrap_or_default()
    }

    fn text(&mut self) -> String {
        let start = self.at;
        self.at += 1;
        while self.body.get(self.at).is_some_and(|byte| *byte != b'"') {
            self.at += if self.body[self.at] == b'\\' { 2 } else { 1 };
        }
        self.at += 1;
        serde_json::from_slice(self.body.get(start..self.at).unwrap_or_default()).unwrap_or_default()
    }

    fn value(&mut self, path: &str) {
        match self.peek() {
            b'{' => self.map(path),
            b'[' => {
                self.at += 1;
                let mut index = 0;
                while !matches!(self.peek(), b']' | 0) {
                    self.value(&format!("{path}[{index}]"));
                    index += 1;
                }
                self.at += 1;
            }
            b'"' => drop(self.text()),
            _ => {
                while self.body.get(self.at).is_some_and(|byte| !b",]} \n\t\r".contains(byte)) {
                    self.at += 1;
                }
            }
        }
    }

    fn map(&mut self, path: &str) {
        self.at += 1;
        let mut seen = BTreeSet::new();
        while self.peek() == b'"' {
            let name = self.text();
            let within = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.value(&within);
            if !seen.insert(name) {
                self.found.push(within);
            }
        }
        self.at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_stands_twice_is_found_wherever_it_is() {
        let body = br#"{"metadata": {"name": "a", "name": "b"}, "list": [{"x": 1, "x": null}], "data": {"name": "c"}}"#;
        assert_eq!(duplicate_fields(body), ["metadata.name", "list[0].x"]);
    }

    #[test]
    fn base64_is_read_as_go_reads_it() {
        for (text, at) in [("", None), ("YQ==", None), ("YWJj", None), ("?", Some(0)), ("YQ", Some(2))] {
            assert_eq!(bad_base64(text), at, "{text}");
        }
    }

    #[test]
    fn a_syntax_error_names_the_letter() {
        let said = |body: &str| {
            let error = serde_json::from_str::<Value>(body).unwrap_err();
            syntax_error(body.as_bytes(), &error)
        };
        assert_eq!(said("{nonsense"), "invalid character 'n' looking for beginning of object key string");
        assert_eq!(said(""), "unexpected end of JSON input");
        assert_eq!(said("?"), "invalid character '?' looking for beginning of value");
    }
}
