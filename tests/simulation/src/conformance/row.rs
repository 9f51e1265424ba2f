//! What the table is made of: cases, and the rows of a case.
//!
//! Paths, queries and bodies may hold placeholders: `{ns}` is the namespace of the case, and `{uid:NAME}`, `{rv:NAME}`,
//! `{name:NAME}` and `{continue:NAME}` are taken from the answer that an earlier row kept as NAME.

use std::collections::HashMap;

use http::Method;
use serde_json::{Value, json};

use crate::server::Server;

/// A merge patch.
pub const MERGE: &str = "application/merge-patch+json";
/// A JSON patch.
pub const JSON: &str = "application/json-patch+json";
/// A server-side apply. What is sent is JSON, which is YAML too.
pub const APPLY: &str = "application/apply-patch+yaml";

/// A short story.
#[derive(Clone, Debug)]
pub struct Case {
    /// What it shows, as a sentence.
    pub name: &'static str,
    /// The requests, in order.
    pub rows: Vec<Row>,
}

/// A case of these rows.
#[must_use]
pub fn case(name: &'static str, rows: impl IntoIterator<Item = Row>) -> Case {
    Case { name, rows: rows.into_iter().collect() }
}

/// What is sent as body.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Nothing.
    None,
    /// JSON.
    Json(Value),
    /// Text that may not be JSON at all.
    Text(&'static str),
    /// An object as an earlier row got it, with a merge patch on top: read, change, write.
    Changed(&'static str, Value),
}

/// How the answer comes about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// At once.
    Once,
    /// After controllers have been at work: the request is repeated until the answer is as expected.
    Eventually,
    /// As a stream: so many events and no more.
    Watch(usize),
}

/// How much of an answer must be the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// Only what the table writes down, for this reason.
    Pattern(&'static str),
    /// A real server cannot be brought to answer so, for this reason.
    SimulationOnly(&'static str),
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Row {
    /// The HTTP method.
    pub method: Method,
    /// The path with placeholders.
    pub path: String,
    /// The query with placeholders, percent-encoded.
    pub query: String,
    /// The content type.
    pub content_type: &'static str,
    /// The body.
    pub payload: Payload,
    /// Who asks; none: somebody who may do anything.
    pub user: Option<&'static str>,
    /// How the answer comes about.
    pub manner: Manner,
    /// How much of it counts.
    pub extent: Extent,
    /// What happens to the simulated server before, where a real one cannot be brought to it.
    pub before: Option<fn(&mut Server)>,
    /// Why the simulation leaves this out: there the answer is 501, and the rest of the case is not tried.
    pub left_out: Option<&'static str>,
    /// Under which name the answer is kept for later rows.
    pub keep: Option<&'static str>,
    /// The status that is expected.
    pub status: u16,
    /// What is expected of the body: see [`pattern`](super::pattern).
    pub body: Value,
}

impl Row {
    fn new(method: Method, path: impl Into<String>, payload: Payload) -> Self {
        let path = path.into();
        let (path, query) = path.split_once('?').unwrap_or((&path, ""));
        Self {
            method,
            path: path.to_owned(),
            query: query.to_owned(),
            content_type: "application/json",
            payload,
            user: None,
            manner: Manner::Once,
            extent: Extent::Whole,
            before: None,
            left_out: None,
            keep: None,
            status: 0,
            body: Value::Null,
        }
    }

    /// What is expected: a status, and a pattern of the body.
    #[must_use]
    pub fn gives(mut self, status: u16, body: Value) -> Self {
        (self.status, self.body) = (status, body);
        self
    }

    /// A refusal: a Status with this reason and message.
    #[must_use]
    pub fn refused(self, status: u16, reason: &str, message: &str) -> Self {
        let body = json!({"kind": "Status", "code": status, "reason": reason, "message": message});
        self.gives(status, body)
    }

    /// Keeps the answer under a name.
    #[must_use]
    pub fn keep(mut self, name: &'static str) -> Self {
        self.keep = Some(name);
        self
    }

    /// Asks as somebody else.
    #[must_use]
    pub fn by(mut self, user: &'static str) -> Self {
        self.user = Some(user);
        self
    }

    /// Another content type.
    #[must_use]
    pub fn typed(mut self, content_type: &'static str) -> Self {
        self.content_type = content_type;
        self
    }

    /// Lets controllers work until the answer is as expected.
    #[must_use]
    pub fn eventually(mut self) -> Self {
        self.manner = Manner::Eventually;
        self
    }

    /// Compares only what the table writes down.
    #[must_use]
    pub fn in_part(mut self, why: &'static str) -> Self {
        self.extent = Extent::Pattern(why);
        self
    }

    /// Lets something happen to the simulated server first.
    #[must_use]
    pub fn after(mut self, happening: fn(&mut Server)) -> Self {
        self.before = Some(happening);
        self
    }

    /// Says that the simulation does not know this, and why it need not: it answers 501, and the case ends there.
    #[must_use]
    pub fn left_out(mut self, why: &'static str) -> Self {
        self.left_out = Some(why);
        self
    }

    /// Leaves the real server out.
    #[must_use]
    pub fn simulation_only(mut self, why: &'static str) -> Self {
        self.extent = Extent::SimulationOnly(why);
        self
    }

    /// Method, path and query, as they stand in the table.
    #[must_use]
    pub fn title(&self) -> String {
        let mark = if self.query.is_empty() { "" } else { "?" };
        format!("{} {}{mark}{}", self.method, self.path, self.query)
    }
}

/// Reads.
pub fn get(path: impl Into<String>) -> Row {
    Row::new(Method::GET, path, Payload::None)
}

/// Creates.
pub fn post(path: impl Into<String>, body: Value) -> Row {
    Row::new(Method::POST, path, Payload::Json(body))
}

/// Replaces.
pub fn put(path: impl Into<String>, body: Value) -> Row {
    Row::new(Method::PUT, path, Payload::Json(body))
}

/// Replaces by what an earlier row got, with a merge patch on top.
pub fn put_changed(path: impl Into<String>, kept: &'static str, change: Value) -> Row {
    Row::new(Method::PUT, path, Payload::Changed(kept, change))
}

/// A merge patch.
pub fn merge(path: impl Into<String>, body: Value) -> Row {
    Row::new(Method::PATCH, path, Payload::Json(body)).typed(MERGE)
}

/// A JSON patch.
pub fn json_patch(path: impl Into<String>, body: Value) -> Row {
    Row::new(Method::PATCH, path, Payload::Json(body)).typed(JSON)
}

/// A server-side apply.
pub fn apply(path: impl Into<String>, body: Value) -> Row {
    Row::new(Method::PATCH, path, Payload::Json(body)).typed(APPLY)
}

/// Deletes without a word on how.
pub fn delete(path: impl Into<String>) -> Row {
    Row::new(Method::DELETE, path, Payload::None)
}

/// Deletes with options.
pub fn delete_with(path: impl Into<String>, options: Value) -> Row {
    Row::new(Method::DELETE, path, Payload::Json(options))
}

/// Sends text that may be anything.
pub fn send(method: Method, path: impl Into<String>, text: &'static str) -> Row {
    Row::new(method, path, Payload::Text(text))
}

/// Watches: these events come, in this order, and no others. The query is completed by `watch=true`.
pub fn watch(path: impl Into<String>, events: &[Value]) -> Row {
    let mut row = get(path);
    let mark = if row.query.is_empty() { "" } else { "&" };
    row.query = format!("{}{mark}watch=true&timeoutSeconds=20", row.query);
    row.manner = Manner::Watch(events.len());
    row.gives(200, Value::Array(events.to_vec()))
}

/// The answers that were kept, and the namespace of the case.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The namespace.
    pub namespace: String,
    /// Answers by name.
    pub answers: HashMap<&'static str, Value>,
}

impl Kept {
    /// Fills the placeholders of a text.
    #[must_use]
    pub fn fill(&self, text: &str) -> String {
        let mut text = text.replace("{ns}", &self.namespace);
        for (name, answer) in &self.answers {
            for (word, pointer) in [
                ("uid", "/metadata/uid"),
                ("rv", "/metadata/resourceVersion"),
                ("name", "/metadata/name"),
                ("continue", "/metadata/continue"),
            ] {
                if let Some(value) = answer.pointer(pointer).and_then(Value::as_str) {
                    text = text.replace(&format!("{{{word}:{name}}}"), value);
                }
            }
        }
        text
    }

    /// Fills the placeholders of all strings and keys of a value.
    #[must_use]
    pub fn fill_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(all) => all.iter().map(|one| self.fill_value(one)).collect(),
            Value::Object(all) => {
                all.iter().map(|(key, one)| (self.fill(key), self.fill_value(one))).collect()
            }
            other => other.clone(),
        }
    }

    /// The bytes that a row sends.
    #[must_use]
    pub fn payload(&self, payload: &Payload) -> Vec<u8> {
        match payload {
            Payload::None => Vec::new(),
            Payload::Json(value) => self.fill_value(value).to_string().into_bytes(),
            Payload::Text(text) => self.fill(text).into_bytes(),
            Payload::Changed(name, change) => {
                let mut object = self.answers.get(name).cloned().unwrap_or_default();
                json_patch::merge(&mut object, &self.fill_value(change));
                object.to_string().into_bytes()
            }
        }
    }
}
