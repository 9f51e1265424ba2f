//! How the server words a refusal: one constructor for each reason.

use serde_json::{Map, Value, json};

use super::kinds::Resource;
use super::schema::Cause;

/// A refusal: the HTTP status and the Status object that is its body.
#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub code: u16,
    pub body: Value,
}

pub(crate) type Result<T> = std::result::Result<T, Status>;

/// What an answer says it is about: a resource, or a kind where the real server puts that in its place.
pub(crate) struct About<'a> {
    group: &'a str,
    kind: &'a str,
    name: &'a str,
}

impl<'a> About<'a> {
    /// Something that is no object of a resource: a Scale, a review.
    pub fn other(group: &'a str, kind: &'a str, name: &'a str) -> Self {
        Self { group, kind, name }
    }

    pub fn resource(resource: &'a Resource, name: &'a str) -> Self {
        Self { group: &resource.group, kind: &resource.plural, name }
    }

    pub fn kind(resource: &'a Resource, name: &'a str) -> Self {
        Self { group: &resource.group, kind: &resource.kind, name }
    }

    fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    fn details(&self, causes: Vec<Value>) -> Value {
        let mut details = Map::new();
        for (key, text) in [("name", self.name), ("group", self.group), ("kind", self.kind)] {
            if !text.is_empty() {
                details.insert(key.to_owned(), text.into());
            }
        }
        if !causes.is_empty() {
            details.insert("causes".to_owned(), causes.into());
        }
        Value::Object(details)
    }
}

impl Status {
    fn new(code: u16, reason: &str, message: impl Into<String>, details: Value) -> Self {
        let mut body =
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code});
        body["message"] = Value::String(message.into());
        if !reason.is_empty() {
            body["reason"] = reason.into();
        }
        if !details.is_null() {
            body["details"] = details;
        }
        Self { code, body }
    }

    /// What this server does not know. Nobody may take it for an answer of the real one.
    pub fn not_simulated(what: impl Into<String>) -> Self {
        Self::new(501, "NotSimulated", what, Value::Null)
    }

    pub fn is_not_simulated(&self) -> bool {
        self.code == 501
    }

    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// A path below which nothing is served.
    pub fn page_not_found() -> Self {
        Self { code: 404, body: Value::String("404 page not found\n".to_owned()) }
    }

    /// A path below a built-in group at which nothing is.
    pub fn nothing_served() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::new(404, "NotFound", message, json!({}))
    }

    /// A version that is yet to come. A real server waits a few seconds for it.
    pub fn too_large_version(asked: u64, is: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {is}");
        let causes = [json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"})];
        Self::new(504, "Timeout", message, json!({"causes": causes, "retryAfterSeconds": 1}))
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message, Value::Null)
    }

    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::missing(&About::resource(resource, name))
    }

    pub fn namespace_not_found(name: &str) -> Self {
        Self::missing(&About { group: "", kind: "namespaces", name })
    }

    fn missing(about: &About<'_>) -> Self {
        let message = format!("{} \"{}\" not found", about.qualified(), about.name);
        Self::new(404, "NotFound", message, about.details(Vec::new()))
    }

    pub fn already_exists(resource: &Resource, name: &str, is_terminating: bool) -> Self {
        let about = About::resource(resource, name);
        let why = if is_terminating { "object is being deleted: " } else { "" };
        let message = format!("{why}{} \"{name}\" already exists", about.qualified());
        Self::new(409, "AlreadyExists", message, about.details(Vec::new()))
    }

    pub fn conflict(about: &About<'_>, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{}\": {why}", about.qualified(), about.name);
        Self::new(409, "Conflict", message, about.details(Vec::new()))
    }

    /// The object is not the one that was read.
    pub fn modified(resource: &Resource, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(&About::resource(resource, name), why)
    }

    /// Server-side apply met fields of others.
    pub fn apply_conflict(message: &str, causes: &[Value]) -> Self {
        Self::new(409, "Conflict", message, json!({"causes": causes}))
    }

    pub fn forbidden(about: &About<'_>, why: &str, causes: Vec<Value>) -> Self {
        Self::denied(403, "Forbidden", about, why, causes)
    }

    /// Worded as forbidden, with a code of its own: what an admission policy refuses.
    pub fn denied(code: u16, reason: &str, about: &About<'_>, why: &str, causes: Vec<Value>) -> Self {
        let what = if about.name.is_empty() {
            about.qualified()
        } else {
            format!("{} \"{}\"", about.qualified(), about.name)
        };
        Self::new(code, reason, format!("{what} is forbidden: {why}"), about.details(causes))
    }

    pub fn invalid(about: &About<'_>, causes: &[Cause]) -> Self {
        let mut said: Vec<String> = Vec::new();
        for cause in causes {
            let sentence = if cause.field.is_empty() {
                cause.message.clone()
            } else {
                format!("{}: {}", cause.field, cause.message)
            };
            if !said.contains(&sentence) {
                said.push(sentence);
            }
        }
        let all = if said.len() == 1 { said.remove(0) } else { format!("[{}]", said.join(", ")) };
        let message = format!("{} \"{}\" is invalid: {all}", about.qualified(), about.name);
        let causes = causes.iter().map(cause_object).collect();
        Self::new(422, "Invalid", message, about.details(causes))
    }

    /// What a patch makes of an object cannot be read. The real server quotes the object too, as Go prints it.
    pub fn unreadable_patch(why: &str) -> Self {
        let cause = invalid_value("patch", &"...".into(), why);
        Self::invalid(&About { group: "", kind: "", name: "" }, &[cause])
    }

    /// The options of a call make no sense.
    pub fn invalid_options(kind: &str, causes: &[Cause]) -> Self {
        Self::invalid(&About { group: "meta.k8s.io", kind, name: "" }, causes)
    }

    /// A JSON patch does not fit the object. The real server keeps to itself which operation failed.
    pub fn patch_does_not_apply() -> Self {
        let message = "the server rejected our request due to an error in our request".to_owned();
        Self::new(422, "Invalid", message, json!({}))
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message, Value::Null)
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource".to_owned();
        Self::new(405, "MethodNotAllowed", message, json!({}))
    }

    /// What a subresource of a custom resource cannot.
    pub fn verb_not_supported(resource: &Resource, verb: &str) -> Self {
        let about = About::resource(resource, "");
        let message = format!("{verb} is not supported on resources of kind \"{}\"", about.qualified());
        Self::new(405, "MethodNotAllowed", message, about.details(Vec::new()))
    }

    /// A built-in kind's patch in a type that is none.
    pub fn no_media_type() -> Self {
        Self::new(415, "UnsupportedMediaType", "415: Unsupported Media Type", json!({}))
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message, Value::Null)
    }

    /// The store itself refuses, for which the server has no reason to give.
    /// A body of which the server does not even read the end.
    pub fn body_too_large(most: usize) -> Self {
        let message = format!("Request entity too large: limit is {most}");
        Self::new(413, "RequestEntityTooLarge", message, Value::Null)
    }

    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message, Value::Null)
    }

    /// An answer to a delete that removed the object.
    pub fn deleted(resource: &Resource, name: &str, uid: &Value) -> Value {
        let mut details = About::resource(resource, name).details(Vec::new());
        details["uid"] = uid.clone();
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }
}

fn cause_object(cause: &Cause) -> Value {
    let mut object = json!({"reason": cause.reason, "message": cause.message, "field": cause.field});
    if let Value::Object(fields) = &mut object {
        fields.retain(|_, value| value != "");
    }
    object
}

/// `Invalid value`, as every rule of a field words it.
pub(crate) fn invalid_value(field: &str, value: &Value, why: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid".to_owned(),
        message: format!("Invalid value: {value}: {why}"),
        field: field.to_owned(),
    }
}

pub(crate) fn required_value(field: &str, why: &str) -> Cause {
    let message = if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
    Cause { reason: "FieldValueRequired".to_owned(), message, field: field.to_owned() }
}

pub(crate) fn unsupported_value(field: &str, value: &Value, supported: &[&str]) -> Cause {
    let supported: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
    Cause {
        reason: "FieldValueNotSupported".to_owned(),
        message: format!("Unsupported value: {value}: supported values: {}", supported.join(", ")),
        field: field.to_owned(),
    }
}

pub(crate) fn too_long(field: &str, most: usize) -> Cause {
    Cause {
        reason: "FieldValueTooLong".to_owned(),
        message: format!("Too long: may not be more than {most} bytes"),
        field: field.to_owned(),
    }
}

pub(crate) fn forbidden_value(field: &str, why: &str) -> Cause {
    Cause {
        reason: "FieldValueForbidden".to_owned(),
        message: format!("Forbidden: {why}"),
        field: field.to_owned(),
    }
}
