//! One request to a resource: its options, and its body in the form in which it is stored.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::kinds::Resource;
use super::path::{Place, Query};
use super::status::{About, Result, Status, invalid_value};
use super::store::Key;
use super::{Request, defaults, events, metadata};

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

    pub fn dry_run(&self) -> Result<bool> {
        match self.query.get("dryRun") {
            "" => Ok(false),
            "All" => Ok(true),
            other => Err(Status::not_simulated(format!("dryRun={other}"))),
        }
    }

    fn is_strict(&self) -> Result<bool> {
        match self.query.get("fieldValidation") {
            "" | "Warn" | "Ignore" => Ok(false),
            "Strict" => Ok(true),
            other => Err(Status::not_simulated(format!("fieldValidation={other}"))),
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
        if !matches!(self.request.content_type.as_str(), "" | "application/json") {
            return Err(Status::not_simulated(format!("the content type {}", self.request.content_type)));
        }
        let object = self.json()?;
        self.check_type(&object)?;
        self.stored(object)
    }

    pub fn json(&self) -> Result<Value> {
        let object: Value = serde_json::from_slice(&self.request.body).map_err(|error| {
            Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {error}",
                self.resource.kind
            ))
        })?;
        if object.is_object() {
            Ok(object)
        } else {
            Err(Status::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): it is no object",
                self.resource.kind
            )))
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
            return Err(Status::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({})",
                resource.api_version()
            )));
        }
        if !kind.is_empty() && kind != resource.kind {
            if resource.custom.is_some() {
                let cause = invalid_value("kind", &kind.into(), &format!("must be {}", resource.kind));
                let name = metadata::text(object, "name");
                return Err(Status::invalid(&About::kind(resource, name), &[cause]));
            }
            return Err(Status::bad_request(format!(
                "{kind} in version \"{}\" cannot be handled as a {}: converting ({kind}) to ({}): unknown conversion",
                resource.version, resource.kind, resource.kind
            )));
        }
        Ok(())
    }

    /// What the server makes of what it was sent: nothing that the schema does not know, and all defaults.
    pub fn stored(&self, mut object: Value) -> Result<Value> {
        let resource = self.resource;
        object["apiVersion"] = resource.stored_api_version().into();
        object["kind"] = resource.kind.as_str().into();
        if resource.group == "events.k8s.io" {
            events::to_core(&mut object);
        }
        metadata::normalise(&mut object);
        if let Some(schema) = resource.schema() {
            if self.is_strict()? {
                self.refuse_unknown_fields(&schema.unknown_fields(&object))?;
            }
            schema.prune(&mut object);
            schema.default(&mut object);
        } else if resource.custom.is_none() {
            defaults::complete(resource, &mut object);
        }
        Ok(object)
    }

    fn refuse_unknown_fields(&self, unknown: &[String]) -> Result<()> {
        if unknown.is_empty() {
            return Ok(());
        }
        let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        Err(Status::bad_request(format!(
            "{kind} in version \"{}\" cannot be handled as a {kind}: strict decoding error: {}",
            self.resource.version,
            unknown.join(", "),
            kind = self.resource.kind,
        )))
    }
}
