//! One request to a resource: its options, and its body in the form in which it is stored.

use std::sync::Arc;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::kinds::Resource;
use super::path::{Place, Query};
use super::status::{About, Result, Status, invalid_value};
use super::store::Key;
use super::{Request, decode, defaults, events, metadata};

/// One request to a resource.
pub(crate) struct Call<'a> {
    pub resource: &'a Arc<Resource>,
    pub place: &'a Place,
    pub query: &'a Query,
    pub request: &'a Request,
    pub now: Timestamp,
}

impl<'a> Call<'a> {
    pub fn key(&self) -> Key {
        (self.place.namespace.clone(), self.place.name.clone())
    }

    pub fn dry_run(&self) -> bool {
        self.query.get("dryRun") == "All"
    }

    fn is_strict(&self) -> bool {
        self.query.get("fieldValidation") == "Strict"
    }

    /// The content type without its parameters.
    pub fn content_type(&self) -> &'a str {
        self.request.content_type.split(';').next().unwrap_or_default().trim()
    }

    /// The body of a create or an update is an object in a form that the server reads.
    pub fn check_content_type(&self) -> Result<()> {
        match self.content_type() {
            "" | "application/json" => Ok(()),
            other @ ("application/yaml" | "application/vnd.kubernetes.protobuf") => {
                Err(Status::not_simulated(format!("the content type {other}")))
            }
            _ => Err(Status::unsupported_media_type(&[
                "application/json",
                "application/yaml",
                "application/vnd.kubernetes.protobuf",
            ])),
        }
    }

    pub fn manager(&self) -> &'a str {
        match self.query.get("fieldManager") {
            "" if self.request.agent.is_empty() => "unknown",
            "" => &self.request.agent,
            named => named,
        }
    }

    /// The body as an object of the resource, in the form in which it is stored.
    pub fn object(&self) -> Result<Value> {
        let object = self.json()?;
        self.check_type(&object)?;
        if let Some(why) = decode::type_error(self.resource, &object) {
            return Err(self.unreadable(&why));
        }
        if self.is_strict() {
            let mut faults: Vec<String> = decode::duplicate_fields(&self.request.body)
                .into_iter()
                .map(|path| format!("duplicate field \"{path}\""))
                .collect();
            faults.extend(self.unknown_fields(&object));
            if !faults.is_empty() {
                return Err(self.unreadable(&format!("strict decoding error: {}", faults.join(", "))));
            }
        }
        Ok(self.stored(object))
    }

    fn unreadable(&self, why: &str) -> Status {
        let (kind, version) = (&self.resource.kind, &self.resource.version);
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    }

    pub fn json(&self) -> Result<Value> {
        let body = &self.request.body;
        let shown = String::from_utf8_lossy(body);
        let unrecognised = |why: &str, shown: &str| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse \
                 error: {why} ({shown})",
                self.resource.kind
            ))
        };
        let object: Value = serde_json::from_slice(body).map_err(|error| {
            let shown = if body.is_empty() { "<empty>" } else { &shown };
            unrecognised(&decode::syntax_error(body, &error), shown)
        })?;
        match object {
            Value::Object(_) => Ok(whole_numbers(object)),
            Value::Null if self.resource.custom.is_none() => Ok(Value::Object(serde_json::Map::new())),
            other => {
                let why = format!(
                    "json: cannot unmarshal {} into Go value of type struct {{ APIVersion string \
                     \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}",
                    decode::type_name(&other)
                );
                let shown = body.iter().take(30).fold(String::new(), |out, byte| format!("{out}{byte:02x}"));
                Err(unrecognised(&why, &shown))
            }
        }
    }

    pub fn check_type(&self, object: &Value) -> Result<()> {
        let resource = self.resource;
        let said = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
        let (kind, version) = (said("kind"), said("apiVersion"));
        if resource.custom.is_some() && (kind.is_empty() || version.is_empty()) {
            let missing = if kind.is_empty() { "Kind" } else { "apiVersion" };
            let body = String::from_utf8_lossy(&self.request.body);
            let summary: String = body.chars().take(30).collect();
            let summary = if body.len() > 30 { format!("{summary} ...") } else { summary };
            return Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): Object '{missing}' is missing in '{body}' \
                 ({summary})",
                resource.kind
            )));
        }
        if !version.is_empty() && version != resource.api_version() {
            if resource.custom.is_none() && !self.is_patch() {
                return Err(Status::bad_request(format!(
                    "{kind} in version \"{version}\" cannot be handled as a {}: {}",
                    resource.kind,
                    not_registered(kind, version)
                )));
            }
            return Err(Status::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({})",
                resource.api_version()
            )));
        }
        if !kind.is_empty() && kind != resource.kind {
            if resource.custom.is_some() {
                let cause = invalid_value("kind", &kind.into(), &format!("must be {}", resource.kind));
                let about = About::other(&resource.group, kind, metadata::text(object, "name"));
                return Err(Status::invalid(&about, &[cause]));
            }
            let package = if resource.group.is_empty() { "core" } else { &resource.group };
            let why = format!(
                "converting ({}.{kind}) to ({package}.{}): unknown conversion",
                resource.version, resource.kind
            );
            if self.is_patch() {
                return Err(Status::unreadable_patch(&why));
            }
            return Err(Status::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {}: {why}",
                resource.version, resource.kind
            )));
        }
        Ok(())
    }

    /// What the server makes of what it was sent: nothing that the schema does not know, and all defaults.
    pub fn stored(&self, mut object: Value) -> Value {
        let resource = self.resource;
        object["apiVersion"] = resource.stored_api_version().into();
        object["kind"] = resource.kind.as_str().into();
        if resource.group == "events.k8s.io" {
            events::to_core(&mut object);
        }
        metadata::normalise(&mut object);
        if let Some(schema) = resource.schema() {
            schema.prune(&mut object);
            schema.default(&mut object);
        } else if resource.custom.is_none() {
            decode::drop_unknown(resource, &mut object);
            defaults::complete(resource, &mut object);
        }
        object
    }

    /// What a patch has made of an object, in the form in which it is stored.
    pub fn patched(&self, object: Value) -> Result<Value> {
        self.check_type(&object)?;
        if let Some(why) = decode::type_error(self.resource, &object) {
            return Err(Status::unreadable_patch(&why));
        }
        let unknown = self.unknown_fields(&object);
        if self.is_strict() && !unknown.is_empty() {
            return Err(Status::unreadable_patch(&format!("strict decoding error: {}", unknown.join(", "))));
        }
        Ok(self.stored(object))
    }

    fn is_patch(&self) -> bool {
        self.request.method == Method::PATCH
    }

    /// What a strict client is told of.
    fn unknown_fields(&self, object: &Value) -> Vec<String> {
        let mut unknown =
            self.resource.schema().map(|schema| schema.unknown_fields(object)).unwrap_or_default();
        unknown.extend(decode::unknown_fields(self.resource, object));
        unknown.into_iter().map(|path| format!("unknown field \"{path}\"")).collect()
    }
}

/// A number without a fraction is a whole one, however it was written.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, whole_numbers(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Number(number) if number.is_f64() => {
            let text = number.to_string();
            let whole = text.strip_suffix(".0").and_then(|digits| digits.parse::<i64>().ok());
            whole.map_or(Value::Number(number), Value::from)
        }
        other => other,
    }
}

/// A kind that no built-in group has.
pub(crate) fn not_registered(kind: &str, version: &str) -> String {
    format!(
        "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
    )
}
