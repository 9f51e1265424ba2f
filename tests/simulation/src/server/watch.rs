//! Watches: events from the history, then each write as it happens.

use std::sync::Arc;

use bytes::Bytes;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use serde_json::{Value, json};

use super::kinds::{Resource, TableKey};
use super::path::{Place, Query};
use super::select::Selector;
use super::status::{Result, Status};
use super::store::{Event, Key};
use super::{Answer, Server, lists};

/// One stream that is being served.
struct Watch {
    resource: Arc<Resource>,
    /// Empty for all namespaces.
    namespace: String,
    selector: Selector,
    bookmarks: bool,
    sender: UnboundedSender<Bytes>,
}

/// The streams that are being served. Whoever clones a server has none of them.
#[derive(Default)]
pub(crate) struct Watches(Vec<Watch>);

impl Clone for Watches {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Watch {
    /// What this watch says of a write: an object that enters or leaves its selection was added or deleted.
    fn line(&self, event: &Event) -> Option<Bytes> {
        if !self.namespace.is_empty() && self.namespace != event.key.0 {
            return None;
        }
        let was = event.old.as_ref().is_some_and(|old| self.selector.matches(old));
        let is = !event.deleted && self.selector.matches(&event.new);
        let (kind, object) = match (was, is) {
            (false, false) => return None,
            (false, true) => ("ADDED", Value::clone(&event.new)),
            (true, true) => ("MODIFIED", Value::clone(&event.new)),
            (true, false) => {
                // Of an object that only left the selection: as it was when it was in it, at the newest revision.
                let mut gone = if event.deleted {
                    Value::clone(&event.new)
                } else {
                    event.old.as_deref().cloned().unwrap_or_default()
                };
                gone["metadata"]["resourceVersion"] = event.revision.to_string().into();
                ("DELETED", gone)
            }
        };
        Some(line(kind, &lists::shown(&self.resource, object)))
    }
}

fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({"type": kind, "object": object})))
}

impl Watches {
    /// Tells of a write. Streams that nobody reads any more are forgotten.
    pub fn tell(&mut self, table: &TableKey, event: &Event) {
        self.0.retain(|watch| {
            if watch.resource.table != *table {
                return !watch.sender.is_closed();
            }
            watch.line(event).is_none_or(|line| watch.sender.unbounded_send(line).is_ok())
        });
    }

    /// Tells those that asked for bookmarks how far they are.
    pub fn bookmark(&mut self, revision: u64) {
        self.0.retain(|watch| {
            if !watch.bookmarks {
                return true;
            }
            let object = json!({
                "kind": watch.resource.kind, "apiVersion": watch.resource.api_version(),
                "metadata": {"resourceVersion": revision.to_string()},
            });
            watch.sender.unbounded_send(line("BOOKMARK", &object)).is_ok()
        });
    }

    pub fn end(&mut self) {
        self.0.clear();
    }

    /// Ends the streams of a resource that is not served any more.
    pub fn end_of(&mut self, table: &TableKey) {
        self.0.retain(|watch| watch.resource.table != *table);
    }
}

impl Server {
    pub(crate) fn watch(&mut self, resource: &Arc<Resource>, place: &Place, query: &Query) -> Result<Answer> {
        let selector = Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))?;
        let timeout = query.number("timeoutSeconds")?.and_then(|seconds| u32::try_from(seconds).ok());
        let (sender, events) = unbounded();
        let watch = Watch {
            resource: resource.clone(),
            namespace: place.namespace.clone(),
            selector,
            bookmarks: query.flag("allowWatchBookmarks"),
            sender,
        };
        let answer = Answer::Watch { events, timeout };
        let asked = query.get("resourceVersion");
        let from: u64 = match asked {
            "" => 0,
            text => text.parse().map_err(|_| Status::internal(lists::bad_version(text)))?,
        };
        let send = |line: Bytes| {
            // The other end is still in our hands.
            let _ = watch.sender.unbounded_send(line);
        };
        let is_initial = query.flag("sendInitialEvents");
        if query.has("sendInitialEvents") && (!is_initial || from != 0 || !watch.bookmarks) {
            return Err(Status::not_simulated("sendInitialEvents from a version, or without bookmarks"));
        }
        let table = self.store.table(&resource.table);
        if from == 0 {
            // In the order of the keys, as a list.
            let there = table.into_iter().flat_map(|table| table.objects.iter());
            let wanted = |(key, object): &(&Key, &Arc<Value>)| {
                (watch.namespace.is_empty() || watch.namespace == key.0) && watch.selector.matches(object)
            };
            let mut there: Vec<_> = there.filter(wanted).collect();
            if watch.namespace.is_empty() {
                there.sort_by_cached_key(|(key, _)| lists::path_of(key));
            }
            for (_, object) in there {
                send(line("ADDED", &lists::shown(resource, Value::clone(object))));
            }
            if is_initial {
                send(line(
                    "BOOKMARK",
                    &json!({
                        "kind": resource.kind, "apiVersion": resource.api_version(),
                        "metadata": {
                            "resourceVersion": self.store.revision().to_string(),
                            "annotations": {"k8s.io/initial-events-end": "true"},
                        },
                    }),
                ));
            }
        } else if from < self.store.compacted() {
            let why =
                Status::expired(format!("too old resource version: {from} ({})", self.store.compacted()));
            send(line("ERROR", &why.body));
            return Ok(answer);
        } else if from > self.store.revision() {
            return Err(Status::not_simulated(format!("a watch from revision {from}, which is yet to come")));
        } else {
            let since = table.map(|table| table.since(from)).unwrap_or_default();
            since.iter().filter_map(|event| watch.line(event)).for_each(send);
        }
        self.watches.0.push(watch);
        Ok(answer)
    }
}
