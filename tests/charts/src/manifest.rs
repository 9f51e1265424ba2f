//! Rendered objects, and the few questions that the checks ask them.

use std::{collections::BTreeSet, fmt};

use anyhow::{Context, Result};
use serde_json::Value;

/// Splits the output of `helm template` into its objects. Empty documents are dropped.
pub fn parse(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(yaml).context("the manifests are not valid YAML")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// One rendered object.
#[derive(Clone, Copy)]
pub(crate) struct Object<'a>(pub &'a Value);

/// What an object says about itself as a hook.
pub(crate) struct Hook<'a> {
    pub events: BTreeSet<&'a str>,
    pub policies: BTreeSet<&'a str>,
    pub weight: Option<i64>,
}

impl<'a> Object<'a> {
    /// The string at a JSON pointer; empty when there is none.
    pub fn text(self, pointer: &str) -> &'a str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn kind(self) -> &'a str {
        self.text("/kind")
    }

    pub fn name(self) -> &'a str {
        self.text("/metadata/name")
    }

    pub fn namespace(self) -> &'a str {
        self.text("/metadata/namespace")
    }

    pub fn annotations(self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let annotations = self.0.pointer("/metadata/annotations").and_then(Value::as_object);
        annotations.into_iter().flatten().map(|(key, value)| (key.as_str(), value))
    }

    pub fn label(self, key: &str) -> &'a str {
        self.0
            .pointer("/metadata/labels")
            .and_then(|labels| labels.get(key))
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn annotation(self, key: &str) -> Option<&'a str> {
        self.annotations().find(|(k, _)| *k == key).and_then(|(_, value)| value.as_str())
    }

    /// None for an object that is no hook.
    pub fn hook(self) -> Option<Hook<'a>> {
        let events = words(self.annotation("helm.sh/hook")?);
        let policies = words(self.annotation("helm.sh/hook-delete-policy").unwrap_or_default());
        let weight = self.annotation("helm.sh/hook-weight").and_then(|weight| weight.parse().ok());
        Some(Hook { events, policies, weight })
    }

    /// The spec of the Job that this object is, or makes. None for all other kinds.
    pub fn job_spec(self) -> Option<&'a Value> {
        match self.kind() {
            "Job" => self.0.get("spec"),
            "CronJob" => self.0.pointer("/spec/jobTemplate/spec"),
            _ => None,
        }
    }
}

/// kind/namespace/name, or kind/name for what has no namespace.
impl fmt::Display for Object<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            "" => write!(f, "{}/{}", self.kind(), self.name()),
            namespace => write!(f, "{}/{}/{}", self.kind(), namespace, self.name()),
        }
    }
}

/// The words of a comma-separated annotation, trimmed as Helm does.
pub(crate) fn words(list: &str) -> BTreeSet<&str> {
    list.split(',').map(str::trim).filter(|word| !word.is_empty()).collect()
}
