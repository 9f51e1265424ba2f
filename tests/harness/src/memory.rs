//! An API server of a few lines that keeps objects in memory, for tests of the harness itself.
//!
//! It knows uids, resourceVersions, preconditions, dry runs, merge patches and watches, but no schemas, no rights and
//! no controllers. Steps are tested against a real one.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use futures::stream;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::broadcast, task::JoinHandle};

use crate::{
    call::{Call, Class, Verb},
    fault::status_object,
    gateway::Upstream,
};

#[derive(Default)]
struct Store {
    /// By the path of the object.
    objects: BTreeMap<String, Value>,
    version: u64,
    requests: Vec<String>,
}

/// The server. It ends when it is dropped.
pub struct Memory {
    address: SocketAddr,
    store: Arc<Mutex<Store>>,
    serving: JoinHandle<()>,
}

type Answer = (StatusCode, Value);

impl Memory {
    /// Starts one on a free port of the loopback interface.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let store = Arc::new(Mutex::new(Store::default()));
        let (events, _) = broadcast::channel(1024);
        let shared = store.clone();
        let serving = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (store, events) = (shared.clone(), events.clone());
                connections.spawn(async move {
                    let service = service_fn(move |request| serve(store.clone(), events.clone(), request));
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, store, serving })
    }

    /// The way to it.
    pub fn upstream(&self) -> Result<Upstream> {
        Upstream::from_url(&format!("http://{}", self.address))
    }

    /// What it was asked for: method and path.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.store.lock().unwrap().requests.clone()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    store: Arc<Mutex<Store>>,
    events: broadcast::Sender<(String, Value)>,
    request: Request<Incoming>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, hyper::Error> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let call = Call::new(
        &parts.method,
        parts.uri.path(),
        parts.uri.query().unwrap_or_default(),
        body,
        Duration::ZERO,
    );
    let collection = collection_of(&call);
    if call.verb == Verb::Watch {
        let mut store = store.lock().unwrap();
        store.requests.push(format!("WATCH {}", call.path));
        let there: Vec<Value> = store
            .objects
            .iter()
            .filter(|(path, _)| is_in(path, &collection))
            .map(|(_, object)| json!({"type": "ADDED", "object": object}))
            .collect();
        let first = stream::iter(there);
        let later = stream::unfold((events.subscribe(), collection), |(mut events, collection)| async move {
            loop {
                let (path, event) = events.recv().await.ok()?;
                if is_in(&path, &collection) {
                    return Some((event, (events, collection)));
                }
            }
        });
        let lines = futures::StreamExt::map(futures::StreamExt::chain(first, later), |event| {
            Ok(Frame::data(Bytes::from(format!("{event}\n"))))
        });
        return Ok(Response::new(StreamBody::new(lines).boxed_unsync()));
    }
    let (status, answer) = {
        let mut store = store.lock().unwrap();
        store.requests.push(format!("{} {}", call.method, call.path));
        store.answer(&call, &collection, &events)
    };
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())).boxed_unsync());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    Ok(response)
}

fn collection_of(call: &Call) -> String {
    match (&call.target.name, &call.target.subresource) {
        (None, _) => call.path.clone(),
        (Some(name), None) => call.path.trim_end_matches(name).trim_end_matches('/').to_owned(),
        (Some(name), Some(sub)) => call
            .path
            .trim_end_matches(sub)
            .trim_end_matches('/')
            .trim_end_matches(name)
            .trim_end_matches('/')
            .to_owned(),
    }
}

fn is_in(path: &str, collection: &str) -> bool {
    path.rsplit_once('/').is_some_and(|(parent, _)| parent == collection)
}

impl Store {
    fn answer(
        &mut self,
        call: &Call,
        collection: &str,
        events: &broadcast::Sender<(String, Value)>,
    ) -> Answer {
        let fail = |code: u16| (StatusCode::from_u16(code).unwrap(), status_object(code, call, None));
        if call.class == Class::Discovery {
            return (StatusCode::OK, json!({"kind": "APIResourceList", "resources": []}));
        }
        if call.class == Class::AccessReview {
            return (StatusCode::CREATED, json!({"status": {"allowed": true}}));
        }
        let Some(name) = &call.name else {
            let items: Vec<&Value> = self
                .objects
                .iter()
                .filter(|(path, _)| is_in(path, collection))
                .map(|(_, object)| object)
                .collect();
            let kind = items.first().map_or("List".to_owned(), |item| {
                format!("{}List", item["kind"].as_str().unwrap_or_default())
            });
            return (
                StatusCode::OK,
                json!({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": items}),
            );
        };
        let path = format!("{collection}/{name}");
        let there = self.objects.get(&path).cloned();
        let body = call.json().unwrap_or_default();
        let clashes = |there: &Value, wanted: &Value| {
            ["uid", "resourceVersion"]
                .iter()
                .any(|field| !wanted[*field].is_null() && wanted[*field] != there["metadata"][*field])
        };
        let (kind, object) = match (call.verb, there) {
            (Verb::Create, Some(_)) => return fail(409),
            (Verb::Create, None) => ("ADDED", body),
            (_, None) => return fail(404),
            (Verb::Get, Some(there)) => return (StatusCode::OK, there),
            (Verb::Update | Verb::Patch, Some(there)) if clashes(&there, &body["metadata"]) => {
                return fail(409);
            }
            (Verb::Delete, Some(there)) if clashes(&there, &body["preconditions"]) => return fail(409),
            (Verb::Update, Some(there)) => {
                let mut body = body;
                body["metadata"]["uid"] = there["metadata"]["uid"].clone();
                ("MODIFIED", body)
            }
            (Verb::Delete, Some(there)) => ("DELETED", there),
            (_, Some(mut there)) => {
                merge(&mut there, &body);
                ("MODIFIED", there)
            }
        };
        let object = self.stored(object, &call.target.resource, call.target.namespace.as_deref());
        if !call.dry_run {
            if kind == "DELETED" {
                self.objects.remove(&path);
            } else {
                self.objects.insert(path.clone(), object.clone());
            }
            // Nobody watches: nobody to tell.
            let _ = events.send((path, json!({"type": kind, "object": object})));
        }
        (if kind == "ADDED" { StatusCode::CREATED } else { StatusCode::OK }, object)
    }

    fn stored(&mut self, mut object: Value, resource: &str, namespace: Option<&str>) -> Value {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = self.version.to_string().into();
        if metadata["uid"].is_null() {
            metadata["uid"] = format!("uid-{}", self.version).into();
        }
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        object["kind"] = resource.into();
        object
    }
}

/// RFC 7386.
fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *object = patch.clone();
        return;
    };
    if !object.is_object() {
        *object = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            object.as_object_mut().expect("an object").remove(name);
        } else {
            merge(&mut object[name], value);
        }
    }
}
