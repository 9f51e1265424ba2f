//! Waits are watches: one watch for each kind and namespace, shared by all that wait for something there.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::StreamExt as _;
use kube::{
    Api,
    api::{ApiResource, DynamicObject},
    runtime::{WatchStreamExt as _, utils::Backoff, watcher},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{sync::Notify, task::JoinHandle};

use crate::{
    cluster::{Cluster, Halt, lock},
    object::{Kind, ObjectRef},
};

/// What a wait looks at: one object, or all objects of a kind that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Their kind.
    pub kind: Kind,
    /// In which namespace; none for everywhere.
    pub namespace: Option<String>,
    /// A label selector.
    pub selector: Option<String>,
    /// One name; the watch itself is still shared with the others of the kind.
    pub name: Option<String>,
}

impl Scope {
    /// One object.
    #[must_use]
    pub fn of(object: &ObjectRef) -> Self {
        Self {
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            selector: None,
            name: Some(object.name.clone()),
        }
    }

    /// All objects of a kind in a namespace that a label selector chooses.
    #[must_use]
    pub fn selected(kind: Kind, namespace: &str, selector: impl Into<String>) -> Self {
        Self { kind, namespace: Some(namespace.to_owned()), selector: Some(selector.into()), name: None }
    }

    fn key(&self) -> Key {
        (self.kind.clone(), self.namespace.clone(), self.selector.clone())
    }
}

type Key = (Kind, Option<String>, Option<String>);
type Name = (Option<String>, String);

/// All watches of a run.
pub struct Watches {
    cluster: Arc<Cluster>,
    watched: Mutex<HashMap<Key, Arc<Watched>>>,
}

struct Watched {
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

/// What one watch has seen. Objects are kept as text: parsed JSON takes five times the room, and with thousands of
/// objects on the watch most are looked at once.
#[derive(Default)]
struct State {
    objects: HashMap<Name, Arc<str>>,
    listed: bool,
    trouble: Option<String>,
    by_name: HashMap<Name, Vec<Arc<Notify>>>,
    by_any: Vec<Arc<Notify>>,
}

/// What a check sees: the newest state of the objects in its scopes.
pub struct View<'a> {
    watched: &'a [(Scope, Arc<Watched>)],
}

impl View<'_> {
    /// An object in one of the scopes, as it is now.
    #[must_use]
    pub fn get(&self, object: &ObjectRef) -> Option<Value> {
        let name = (object.namespace.clone(), object.name.clone());
        let (_, watched) = self.watched.iter().find(|(scope, _)| {
            scope.kind == object.kind && scope.name.as_ref().is_none_or(|only| *only == object.name)
        })?;
        lock(&watched.state).objects.get(&name).and_then(|text| serde_json::from_str(text).ok())
    }

    /// All objects of a kind in the scopes without a name.
    #[must_use]
    pub fn list(&self, kind: &Kind) -> Vec<Value> {
        self.watched
            .iter()
            .filter(|(scope, _)| scope.kind == *kind && scope.name.is_none())
            .flat_map(|(_, watched)| {
                lock(&watched.state)
                    .objects
                    .values()
                    .filter_map(|text| serde_json::from_str(text).ok())
                    .collect::<Vec<Value>>()
            })
            .collect()
    }
}

/// Somebody who waits: woken by every change in its scopes, and by nothing else.
pub struct Waiter {
    watched: Vec<(Scope, Arc<Watched>)>,
    woken: Arc<Notify>,
}

impl Waiter {
    /// What there is to see, once every watch has listed what exists; until then, why not.
    pub fn look<T>(&self, see: impl FnOnce(&View<'_>) -> T) -> Result<T, String> {
        for (scope, watched) in &self.watched {
            let state = lock(&watched.state);
            if !state.listed {
                let trouble = state.trouble.clone().unwrap_or_else(|| "not listed yet".to_owned());
                return Err(format!("the watch on {}: {trouble}", scope.kind.resource()));
            }
        }
        Ok(see(&View { watched: &self.watched }))
    }

    /// Resolves at the next change.
    pub async fn changed(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        for (scope, watched) in &self.watched {
            let mut state = lock(&watched.state);
            let others =
                |waiting: &mut Vec<Arc<Notify>>| waiting.retain(|one| !Arc::ptr_eq(one, &self.woken));
            match scope.name.clone() {
                None => others(&mut state.by_any),
                Some(name) => {
                    if let Entry::Occupied(mut entry) = state.by_name.entry((scope.namespace.clone(), name)) {
                        others(entry.get_mut());
                        if entry.get().is_empty() {
                            entry.remove();
                        }
                    }
                }
            }
        }
    }
}

impl Watches {
    /// No watches yet.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self { cluster, watched: Mutex::new(HashMap::new()) }
    }

    /// Begins to wait for changes in some scopes.
    #[must_use]
    pub fn waiter(&self, scopes: &[Scope]) -> Waiter {
        let woken = Arc::new(Notify::new());
        let watched = scopes
            .iter()
            .map(|scope| {
                let watched = self.watched(scope);
                {
                    let mut state = lock(&watched.state);
                    match scope.name.clone() {
                        None => state.by_any.push(woken.clone()),
                        Some(name) => {
                            let waiting = state.by_name.entry((scope.namespace.clone(), name)).or_default();
                            waiting.push(woken.clone());
                        }
                    }
                }
                (scope.clone(), watched)
            })
            .collect();
        Waiter { watched, woken }
    }

    fn watched(&self, scope: &Scope) -> Arc<Watched> {
        lock(&self.watched)
            .entry(scope.key())
            .or_insert_with(|| {
                let (cluster, scope) = (self.cluster.clone(), scope.clone());
                let state = Arc::new(Mutex::new(State::default()));
                let seen = state.clone();
                let task = tokio::spawn(async move { follow(&cluster, &scope, &seen).await });
                Arc::new(Watched { state, task })
            })
            .clone()
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        for watched in lock(&self.watched).values() {
            watched.task.abort();
        }
    }
}

/// How long to wait before a broken watch is taken up again. kube's own default goes up to 30 s, too long for a
/// step that has three minutes in all.
struct Patience(u32);

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0 = (self.0 + 1).min(5);
        Some(Duration::from_millis(100 << self.0))
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.0 = 0;
    }
}

async fn follow(cluster: &Cluster, scope: &Scope, state: &Mutex<State>) {
    let resource = ApiResource {
        group: scope.kind.group.to_string(),
        version: scope.kind.version.to_string(),
        api_version: scope.kind.api_version(),
        kind: scope.kind.kind.to_string(),
        plural: scope.kind.plural.to_string(),
    };
    let api: Api<DynamicObject> = match &scope.namespace {
        Some(namespace) => Api::namespaced_with(cluster.client(), namespace, &resource),
        None => Api::all_with(cluster.client(), &resource),
    };
    let mut config = watcher::Config::default();
    if let Some(selector) = &scope.selector {
        config = config.labels(selector);
    }
    let mut events = std::pin::pin!(watcher(api, config).backoff(Patience(0)));
    // A new list replaces the old one when it is complete: half a list would look like deletions.
    let mut fresh: HashMap<Name, Arc<str>> = HashMap::new();
    while let Some(event) = events.next().await {
        let mut state = lock(state);
        match event {
            Ok(watcher::Event::Init) => fresh.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                fresh.insert(name_of(&object), compact(object));
            }
            Ok(watcher::Event::InitDone) => {
                state.objects = std::mem::take(&mut fresh);
                state.listed = true;
                state.trouble = None;
                state.by_any.iter().chain(state.by_name.values().flatten()).for_each(|one| one.notify_one());
            }
            Ok(watcher::Event::Apply(object)) => {
                let name = name_of(&object);
                state.objects.insert(name.clone(), compact(object));
                state.wake(&name);
            }
            Ok(watcher::Event::Delete(object)) => {
                let name = name_of(&object);
                state.objects.remove(&name);
                state.wake(&name);
            }
            Err(error) => {
                let text = error.to_string();
                if text.contains("Unauthorized") {
                    cluster.halt(Halt::Unauthorized(text));
                    return;
                }
                log::debug!("the watch on {} broke and is taken up again: {text}", scope.kind.resource());
                state.trouble = Some(text);
            }
        }
    }
}

impl State {
    fn wake(&self, name: &Name) {
        let named = self.by_name.get(name).into_iter().flatten();
        self.by_any.iter().chain(named).for_each(|one| one.notify_one());
    }
}

fn name_of(object: &DynamicObject) -> Name {
    (object.metadata.namespace.clone(), object.metadata.name.clone().unwrap_or_default())
}

fn compact(mut object: DynamicObject) -> Arc<str> {
    object.metadata.managed_fields = None;
    serde_json::to_string(&object).unwrap_or_default().into()
}
