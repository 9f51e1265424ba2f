//! Label and field selectors.

use serde_json::Value;

use super::kinds::Resource;
use super::status::{Result, Status};

/// Which objects of a collection are meant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<(String, bool, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    /// Greater, or less, than a number.
    Beyond(String, bool, i64),
}

impl Selector {
    pub fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(resource, fields)? })
    }

    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| {
            object.get("metadata")?.get("labels")?.get(key).map(|value| value.as_str().unwrap_or_default())
        };
        let has = |requirement: &Requirement| match requirement {
            Requirement::In(key, values) => label(key).is_some_and(|is| values.iter().any(|one| one == is)),
            Requirement::NotIn(key, values) => label(key).is_none_or(|is| values.iter().all(|one| one != is)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
            Requirement::Beyond(key, greater, limit) => label(key)
                .and_then(|is| is.parse::<i64>().ok())
                .is_some_and(|is| if *greater { is > *limit } else { is < *limit }),
        };
        let is = |(path, equal, wanted): &(String, bool, String)| {
            let pointer = format!("/{}", path.replace('.', "/"));
            let value = object.pointer(&pointer).and_then(Value::as_str).unwrap_or_default();
            (value == wanted) == *equal
        };
        self.labels.iter().all(has) && self.fields.iter().all(is)
    }
}

/// Commas part requirements, but not within parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>> {
    split(text).into_iter().map(|part| parse_label(part, text)).collect()
}

fn parse_label(part: &str, whole: &str) -> Result<Requirement> {
    let broken = || {
        // The most frequent mistakes in the server's words.
        let operators = ["==", "=", "!="];
        Status::bad_request(if let Some(sign) = operators.into_iter().find(|sign| part.starts_with(sign)) {
            format!("found '{sign}', expected: !, identifier, or 'end of string'")
        } else if part.contains('(') && !part.contains(')') {
            "unable to parse requirement: found '', expected: ',', ')' or identifier".to_owned()
        } else {
            let found = whole.split_whitespace().nth(1).unwrap_or_default();
            format!("unable to parse requirement: found '{found}', expected: in, notin, =, ==, !=, gt, lt")
        })
    };
    let is_key =
        |key: &str| !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./".contains(c));
    let requirement = if let Some(key) = part.strip_prefix('!') {
        Requirement::Absent(key.trim().to_owned())
    } else if let Some((key, value)) = part.split_once("!=") {
        Requirement::NotIn(key.trim().to_owned(), vec![value.trim().to_owned()])
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        Requirement::In(key.trim().to_owned(), vec![value.trim().to_owned()])
    } else if let Some((key, limit)) = part.split_once(['>', '<']) {
        let limit = limit.trim().parse().map_err(|_| broken())?;
        Requirement::Beyond(key.trim().to_owned(), part.contains('>'), limit)
    } else if let Some((head, values)) = part.split_once('(') {
        let values = values.trim_end().strip_suffix(')').ok_or_else(broken)?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        match head.trim().rsplit_once(char::is_whitespace) {
            Some((key, "in")) => Requirement::In(key.trim().to_owned(), values),
            Some((key, "notin")) => Requirement::NotIn(key.trim().to_owned(), values),
            _ => return Err(broken()),
        }
    } else {
        Requirement::Exists(part.to_owned())
    };
    match &requirement {
        Requirement::In(key, _)
        | Requirement::NotIn(key, _)
        | Requirement::Exists(key)
        | Requirement::Absent(key)
        | Requirement::Beyond(key, _, _)
            if is_key(key) =>
        {
            Ok(requirement)
        }
        _ => Err(broken()),
    }
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<(String, bool, String)>> {
    split(text)
        .into_iter()
        .map(|part| {
            let (key, equal, value) = if let Some((key, value)) = part.split_once("!=") {
                (key, false, value)
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (key, true, value)
            } else {
                return Err(Status::bad_request(format!(
                    "invalid selector: '{text}'; can't understand '{part}'"
                )));
            };
            if !is_selectable(resource, key) {
                let is_plain = resource.custom.is_none() && own_fields(resource).is_empty();
                if is_plain {
                    return Err(Status::bad_request(format!(
                        "\"{key}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )));
                }
                return Err(Status::bad_request(format!("field label not supported: {key}")));
            }
            Ok((key.to_owned(), equal, value.to_owned()))
        })
        .collect()
}

fn is_selectable(resource: &Resource, field: &str) -> bool {
    matches!(field, "metadata.name" | "metadata.namespace") || own_fields(resource).contains(&field)
}

/// What objects of a kind can be selected by besides their name.
fn own_fields(resource: &Resource) -> &'static [&'static str] {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => &["spec.nodeName", "spec.restartPolicy", "status.phase", "spec.serviceAccountName"],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "reason",
            "type",
        ],
        ("", "namespaces") => &["status.phase"],
        ("", "secrets") => &["type"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::kinds::built_in;

    fn chooses(labels: &str, fields: &str) -> Result<bool> {
        let pods = built_in()[&(String::new(), "v1".to_owned(), "pods".to_owned())].clone();
        let pod = json!({
            "metadata": {"name": "a", "namespace": "n", "labels": {"app": "x", "tier": "back"}},
            "status": {"phase": "Running"},
        });
        Selector::parse(&pods, labels, fields).map(|selector| selector.matches(&pod))
    }

    #[test]
    fn all_forms_of_label_selectors_are_read() {
        for (selector, chosen) in [
            ("", true),
            ("app=x", true),
            ("app==x,tier!=front", true),
            ("app!=x", false),
            ("none!=x", true),
            ("app in (x, y),!none", true),
            ("app notin (x,y)", false),
            ("none notin (x)", true),
            ("app", true),
            ("!app", false),
            ("none", false),
        ] {
            assert_eq!(chooses(selector, "").unwrap(), chosen, "{selector}");
        }
        assert_eq!(chooses("app in x", "").unwrap_err().code, 400);
    }

    #[test]
    fn a_field_that_cannot_be_selected_by_is_refused_as_by_the_server() {
        assert!(chooses("", "metadata.name=a,status.phase!=Failed").unwrap());
        assert!(!chooses("", "metadata.namespace=other").unwrap());
        let refused = chooses("", "spec.color=blue").unwrap_err();
        assert_eq!((refused.code, refused.message()), (400, "field label not supported: spec.color"));
    }
}
