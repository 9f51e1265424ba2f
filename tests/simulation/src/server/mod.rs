//! An API server in memory: what the steps and the stand-ins use, and no more. Whatever it does not know it refuses loudly.

pub mod fields;
pub mod schema;
pub mod workloads;

use bytes::Bytes;
use futures::channel::mpsc::UnboundedReceiver;
use http::Method;
use jiff::Timestamp;
use serde_json::Value;

/// What a client sends.
#[derive(Clone, Debug)]
pub struct Request {
    /// The HTTP method.
    pub method: Method,
    /// The path, still percent-encoded, without query.
    pub path: String,
    /// The query, still percent-encoded, without `?`.
    pub query: String,
    /// The content type; empty if there is none.
    pub content_type: String,
    /// The body.
    pub body: Bytes,
    /// Who sends it: a user name as RBAC knows it, such as `system:serviceaccount:home:step`. `admin` may do anything.
    pub user: String,
    /// What a field manager is called if the query does not name one: the first part of the user agent.
    pub agent: String,
}

/// What the server answers.
#[derive(Debug)]
pub enum Answer {
    /// All of it at once.
    Whole {
        /// The HTTP status.
        status: u16,
        /// The body: JSON, or, as a string, plain text.
        body: Value,
    },
    /// A watch: lines of JSON, each with its line end, until the client goes away or the world ends it.
    Watch {
        /// The lines.
        events: UnboundedReceiver<Bytes>,
        /// After how many seconds the client wants it to end.
        timeout: Option<u32>,
    },
}

/// The server. A clone has the same objects and no watches.
#[derive(Clone)]
pub struct Server {}

impl Server {
    /// Serves one request, at this time of day.
    pub fn handle(&mut self, _request: &Request, _now: Timestamp) -> Answer {
        Answer::Whole { status: 501, body: Value::Null }
    }

    /// One pass of the controllers that every cluster has. Returns whether anything was changed: then another pass may
    /// change more.
    pub fn reconcile(&mut self, _now: Timestamp) -> bool {
        false
    }
}
