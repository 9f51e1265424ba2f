//! Schemas of CRDs: defaults, pruning, validation.
//!
//! A schema that asks for something this server does not know is refused when it is parsed, with the name of what it
//! asks for: a check that is left out would let a step pass that a real server stops.

mod rules;
mod typed;
mod validation;

use std::collections::BTreeMap;
use std::sync::Arc;

use regex::Regex;
use serde_json::{Map, Value};

use rules::Rule;

/// The schema of one version of a CRD. Clones share it.
#[derive(Clone, Debug)]
pub struct Schema {
    root: Arc<Node>,
}

/// Why an object is not accepted: one entry of `details.causes` of the Status that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `FieldValueInvalid` and its like.
    pub reason: String,
    /// What is wrong, without the field's name before it.
    pub message: String,
    /// Path of the field; `<nil>` if it is about none in particular.
    pub field: String,
}

/// One level of a schema.
#[allow(clippy::struct_excessive_bools, reason = "each is a keyword of its own")]
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    types: Vec<String>,
    nullable: bool,
    preserve_unknown: bool,
    pub(super) embedded: bool,
    pub(super) properties: BTreeMap<String, Node>,
    pub(super) additional: Option<Additional>,
    pub(super) items: Option<Box<Node>>,
    pub(super) list: ListType,
    pub(super) atomic_map: bool,
    pub(super) default: Option<Value>,
    required: Vec<String>,
    allowed: Option<Vec<Value>>,
    pattern: Option<Regex>,
    is_date_time: bool,
    minimum: Option<Limit>,
    maximum: Option<Limit>,
    min_length: Option<u64>,
    max_length: Option<u64>,
    min_items: Option<u64>,
    max_items: Option<u64>,
    min_properties: Option<u64>,
    max_properties: Option<u64>,
    any_of: Vec<Node>,
    rules: Vec<Rule>,
}

/// What may stand beside the properties that have names.
#[derive(Clone, Debug)]
pub(super) enum Additional {
    /// `additionalProperties: true`: any scalar; what is within is unknown.
    Any,
    /// Values of this schema.
    Of(Box<Node>),
}

impl Additional {
    fn node(&self) -> Option<&Node> {
        match self {
            Self::Any => None,
            Self::Of(node) => Some(node),
        }
    }
}

/// How items of a list are told apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ListType {
    /// Not at all: the list is one value.
    #[default]
    Atomic,
    /// By their value.
    Set,
    /// By these fields.
    Map(Vec<String>),
}

#[derive(Clone, Copy, Debug)]
struct Limit {
    value: f64,
    exclusive: bool,
}

/// What stays of a resource whatever its schema says.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// The formats that a real server drops from a schema before it validates.
const IGNORED_FORMATS: [&str; 6] = ["int32", "int64", "float", "double", "password", ""];

impl Schema {
    /// Reads `openAPIV3Schema`.
    pub fn parse(open_api_v3_schema: &Value) -> Result<Self, String> {
        let mut root = Node::parse(open_api_v3_schema, "")?;
        // The root is a resource, as an embedded one is.
        root.embedded = true;
        Ok(Self { root: Arc::new(root) })
    }

    /// Takes out the fields that the schema does not know, and the nulls that it does not allow and has no default for.
    pub fn prune(&self, object: &mut Value) {
        prune(object, Some(&self.root), "", &mut Vec::new());
        prune_nulls(object, Some(&self.root));
    }

    /// The paths of what [`Self::prune`] would take out, sorted: a strict client is told them.
    #[must_use]
    pub fn unknown_fields(&self, object: &Value) -> Vec<String> {
        let mut unknown = Vec::new();
        prune(&mut object.clone(), Some(&self.root), "", &mut unknown);
        unknown.sort();
        unknown
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value) {
        fill_in(object, &self.root);
    }

    /// What is wrong with the object. What was the same in the old one and wrong already is not complained about.
    #[must_use]
    pub fn validate(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        validation::validate(&self.root, object, old)
    }

    /// Why the object cannot be merged with another of its kind; nothing if it can.
    #[must_use]
    pub fn typed_faults(&self, object: &Value) -> Vec<String> {
        let mut found = Vec::new();
        typed::faults(&self.root, object, "", &mut found);
        found
    }

    pub(super) fn root(&self) -> &Node {
        &self.root
    }
}

fn prune(value: &mut Value, node: Option<&Node>, path: &str, unknown: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let within = || if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                let Some(node) = node else {
                    unknown.push(within());
                    return false;
                };
                if node.embedded && META_FIELDS.contains(&name.as_str()) {
                    return true;
                }
                if let Some(property) = node.properties.get(name) {
                    prune(value, Some(property), &within(), unknown);
                } else if let Some(additional) = &node.additional {
                    prune(value, additional.node(), &within(), unknown);
                } else if !node.preserve_unknown {
                    unknown.push(within());
                    return false;
                }
                true
            });
        }
        Value::Array(items) => {
            let of_items = node.and_then(|node| node.items.as_deref());
            if of_items.is_none() && node.is_some_and(|node| node.preserve_unknown) {
                return;
            }
            for (index, item) in items.iter_mut().enumerate() {
                prune(item, of_items, &format!("{path}[{index}]"), unknown);
            }
        }
        _ => {}
    }
}

fn prune_nulls(value: &mut Value, node: Option<&Node>) {
    let Some(node) = node else { return };
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let field = node.field(name);
            if value.is_null() && field.is_some_and(|field| !field.nullable && field.default.is_none()) {
                return false;
            }
            prune_nulls(value, field);
            true
        }),
        Value::Array(items) => {
            for item in items {
                prune_nulls(item, node.items.as_deref());
            }
        }
        _ => {}
    }
}

fn fill_in(value: &mut Value, node: &Node) {
    let missing =
        |value: &Value, node: &Node| node.default.clone().filter(|_| value.is_null() && !node.nullable);
    match value {
        Value::Object(fields) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                if fields.get(name).is_none_or(|value| value.is_null() && !property.nullable) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields {
                let Some(field) = node.field(name) else { continue };
                if let Some(default) = missing(value, field) {
                    *value = default;
                }
                fill_in(value, field);
            }
        }
        Value::Array(items) => {
            let Some(of_items) = node.items.as_deref() else { return };
            for item in items {
                if let Some(default) = missing(item, of_items) {
                    *item = default;
                }
                fill_in(item, of_items);
            }
        }
        _ => {}
    }
}

impl Node {
    /// The schema of a field, whether it has a name here or not.
    pub(super) fn field(&self, name: &str) -> Option<&Self> {
        self.properties.get(name).or_else(|| self.additional.as_ref().and_then(Additional::node))
    }

    fn parse(schema: &Value, path: &str) -> Result<Self, String> {
        let Value::Object(keywords) = schema else {
            return Err(format!("{}: not a schema: {schema}", place(path)));
        };
        let mut node = Self::default();
        for (keyword, value) in keywords {
            node.read(keyword, value, path)
                .map_err(|wrong| format!("{}: {keyword}: {wrong}", place(path)))?;
        }
        for (limit, keyword) in
            [(&mut node.minimum, "exclusiveMinimum"), (&mut node.maximum, "exclusiveMaximum")]
        {
            let exclusive = keywords.get(keyword).is_some_and(|value| value == true);
            if let Some(limit) = limit {
                limit.exclusive = exclusive;
            }
        }
        node.read_list_type(keywords).map_err(|wrong| format!("{}: {wrong}", place(path)))?;
        Ok(node)
    }

    fn read(&mut self, keyword: &str, value: &Value, path: &str) -> Result<(), String> {
        match keyword {
            // They say nothing about what is accepted; those of lists and limits are read together.
            "description"
            | "title"
            | "example"
            | "externalDocs"
            | "exclusiveMinimum"
            | "exclusiveMaximum"
            | "x-kubernetes-list-type"
            | "x-kubernetes-list-map-keys" => {}
            "type" => self.types = vec![text(value)?],
            "nullable" => self.nullable = flag(value)?,
            "properties" => {
                let properties = value.as_object().ok_or("not a map")?;
                for (name, schema) in properties {
                    let within = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    self.properties.insert(name.clone(), Self::parse(schema, &within)?);
                }
            }
            "additionalProperties" => {
                self.additional = match value {
                    Value::Bool(true) => Some(Additional::Any),
                    Value::Bool(false) => return Err("false is not known here".to_owned()),
                    schema => Some(Additional::Of(Box::new(Self::parse(schema, &format!("{path}.*"))?))),
                }
            }
            "items" => self.items = Some(Box::new(Self::parse(value, &format!("{path}[]"))?)),
            "required" => self.required = texts(value)?,
            "enum" => self.allowed = Some(value.as_array().ok_or("not a list")?.clone()),
            "pattern" => {
                let pattern = Regex::new(&text(value)?);
                self.pattern = Some(pattern.map_err(|error| error.to_string())?);
            }
            "format" => match text(value)?.as_str() {
                "date-time" => self.is_date_time = true,
                ignored if IGNORED_FORMATS.contains(&ignored) => {}
                other => return Err(format!("{other} is not known here")),
            },
            "minimum" => self.minimum = Some(limit(value)?),
            "maximum" => self.maximum = Some(limit(value)?),
            "minLength" => self.min_length = Some(count(value)?),
            "maxLength" => self.max_length = Some(count(value)?),
            "minItems" => self.min_items = Some(count(value)?),
            "maxItems" => self.max_items = Some(count(value)?),
            "minProperties" => self.min_properties = Some(count(value)?),
            "maxProperties" => self.max_properties = Some(count(value)?),
            "default" => self.default = Some(value.clone()),
            "anyOf" => {
                let branches = value.as_array().ok_or("not a list")?;
                let parse = |branch| Self::parse(branch, path);
                self.any_of = branches.iter().map(parse).collect::<Result<_, _>>()?;
            }
            "x-kubernetes-preserve-unknown-fields" => self.preserve_unknown = flag(value)?,
            "x-kubernetes-embedded-resource" => self.embedded = flag(value)?,
            "x-kubernetes-int-or-string" => {
                if flag(value)? {
                    self.types = vec!["integer".to_owned(), "string".to_owned()];
                }
            }
            "x-kubernetes-map-type" => {
                self.atomic_map = match text(value)?.as_str() {
                    "atomic" => true,
                    "granular" => false,
                    other => return Err(format!("{other} is not known here")),
                }
            }
            "x-kubernetes-validations" => {
                let rules = value.as_array().ok_or("not a list")?;
                self.rules = rules.iter().map(Rule::parse).collect::<Result<_, _>>()?;
            }
            _ => return Err("this keyword is not known here".to_owned()),
        }
        Ok(())
    }

    fn read_list_type(&mut self, keywords: &Map<String, Value>) -> Result<(), String> {
        let keys = keywords.get("x-kubernetes-list-map-keys").map(texts).transpose()?;
        self.list = match keywords.get("x-kubernetes-list-type").map(text).transpose()?.as_deref() {
            None | Some("atomic") => ListType::Atomic,
            Some("set") => ListType::Set,
            Some("map") => {
                ListType::Map(keys.ok_or("a list of type map without x-kubernetes-list-map-keys")?)
            }
            Some(other) => return Err(format!("x-kubernetes-list-type: {other} is not known here")),
        };
        Ok(())
    }
}

fn place(path: &str) -> &str {
    if path.is_empty() { "the schema's root" } else { path }
}

fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("not a string: {value}"))
}

fn texts(value: &Value) -> Result<Vec<String>, String> {
    value.as_array().ok_or_else(|| format!("not a list: {value}"))?.iter().map(text).collect()
}

fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("neither true nor false: {value}"))
}

fn count(value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| format!("not a count: {value}"))
}

fn limit(value: &Value) -> Result<Limit, String> {
    let value = value.as_f64().ok_or_else(|| format!("not a number: {value}"))?;
    Ok(Limit { value, exclusive: false })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use standins::crds::{Family, crds, upstream};

    use super::*;

    fn schema(spec: &Value) -> Schema {
        Schema::parse(&json!({"type": "object", "properties": {"spec": spec}})).unwrap()
    }

    #[test]
    fn every_crd_of_the_tests_is_understood() {
        for family in [Family::EventMesh, Family::Fixture] {
            for crd in crds(family, upstream(family).as_deref()).unwrap() {
                for version in crd["spec"]["versions"].as_array().unwrap() {
                    let parsed = Schema::parse(&version["schema"]["openAPIV3Schema"]);
                    parsed.unwrap_or_else(|wrong| panic!("{}: {wrong}", crd["metadata"]["name"]));
                }
            }
        }
    }

    #[test]
    fn what_is_not_known_is_refused_by_its_name() {
        let refused = |keyword: &str, value: Value| {
            let spec = json!({"type": "object", keyword: value});
            Schema::parse(&json!({"properties": {"spec": spec}})).unwrap_err()
        };
        assert!(refused("multipleOf", 2.into()).contains("spec: multipleOf: this keyword is not known"));
        assert!(refused("format", "ssn".into()).contains("ssn is not known"));
        let rule = json!([{"rule": "self.a > self.b"}]);
        assert!(refused("x-kubernetes-validations", rule).contains("self.a > self.b"));
    }

    #[test]
    fn unknown_fields_go_and_the_resources_own_stay() {
        let schema = schema(&json!({
            "type": "object",
            "properties": {
                "known": {"type": "string"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }));
        let mut object = json!({
            "apiVersion": "a/v1", "kind": "A", "metadata": {"anything": 1}, "other": 1,
            "spec": {
                "known": "a", "unknown": "b", "free": {"x": {"y": 1}},
                "list": [{"a": "1", "b": "2"}], "map": {"k": "v"},
            },
        });
        assert_eq!(schema.unknown_fields(&object), ["other", "spec.list[0].b", "spec.unknown"]);
        schema.prune(&mut object);
        let spec = json!({"known": "a", "free": {"x": {"y": 1}}, "list": [{"a": "1"}], "map": {"k": "v"}});
        assert_eq!(
            object,
            json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"anything": 1}, "spec": spec})
        );
    }

    #[test]
    fn nulls_go_unless_they_are_allowed_or_have_a_default() {
        let schema = schema(&json!({
            "type": "object",
            "properties": {
                "a": {"type": "string"},
                "b": {"type": "string", "nullable": true},
                "c": {"type": "string", "default": "d"},
            },
        }));
        let mut object = json!({"spec": {"a": null, "b": null, "c": null}});
        schema.prune(&mut object);
        schema.default(&mut object);
        assert_eq!(object, json!({"spec": {"b": null, "c": "d"}}));
    }

    #[test]
    fn defaults_reach_into_lists_and_into_defaults() {
        let item = json!({"type": "object", "properties": {"count": {"type": "integer", "default": 1}}});
        let schema = schema(&json!({
            "type": "object",
            "default": {},
            "properties": {"parts": {"type": "array", "items": item, "default": [{}]}},
        }));
        let mut object = json!({"kind": "A"});
        schema.default(&mut object);
        assert_eq!(object, json!({"kind": "A", "spec": {"parts": [{"count": 1}]}}));
    }
}
