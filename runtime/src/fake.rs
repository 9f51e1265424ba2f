//! An API server of a few lines, for tests of what is done with its answers.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::Value;
use tokio::sync::Notify;

use crate::{
    cluster::{Cluster, lock},
    host::ThisMachine,
};

/// A path below which no answer comes until the test says so.
const SLOW: &str = "/slow";

type Answers = dyn Fn(&str, &str) -> (u16, Value) + Send + Sync;

/// The API server.
pub(crate) struct Fake {
    answers: Arc<Answers>,
    seen: Arc<Mutex<Vec<(String, String)>>>,
    arrived: Arc<Notify>,
    go_on: Arc<Notify>,
}

impl Fake {
    /// `answers` gives status and body for a method and a path; a string as body is sent as it is.
    pub(crate) fn new(answers: impl Fn(&str, &str) -> (u16, Value) + Send + Sync + 'static) -> Self {
        Self {
            answers: Arc::new(answers),
            seen: Arc::default(),
            arrived: Arc::default(),
            go_on: Arc::default(),
        }
    }

    /// The way to it.
    pub(crate) fn cluster(&self, concurrency: usize) -> Cluster {
        let (answers, seen) = (self.answers.clone(), self.seen.clone());
        let (arrived, go_on) = (self.arrived.clone(), self.go_on.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            lock(&seen).push((method.clone(), path.clone()));
            arrived.notify_one();
            let (answers, go_on) = (answers.clone(), go_on.clone());
            async move {
                if path.starts_with(SLOW) {
                    go_on.notified().await;
                }
                let (code, body) = answers(&method, &path);
                let bytes = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
                Response::builder().status(code).body(Body::from(bytes.into_bytes()))
            }
        });
        Cluster::new(
            Client::new(service, "default"),
            ThisMachine::host(),
            concurrency,
            Duration::from_secs(5),
        )
    }

    /// Methods and paths of all calls so far.
    pub(crate) fn seen(&self) -> Vec<(String, String)> {
        lock(&self.seen).clone()
    }

    /// Waits until so many calls have come.
    pub(crate) async fn until_seen(&self, calls: usize) {
        while self.seen().len() < calls {
            self.arrived.notified().await;
        }
    }

    /// Lets the slow answer come.
    pub(crate) fn go_on(&self) {
        self.go_on.notify_one();
    }
}
