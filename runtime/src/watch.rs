//! Waits are watches: one watch for each kind and namespace, shared by all that wait for something there.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    fmt,
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
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use crate::{
    clock::Clock,
    cluster::{Cluster, Halt, PAGE, lock},
    object::{Body, Kind, ObjectRef},
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
    /// Labels that the objects have. Unlike with a selector the watch is shared with the others of the kind, and an
    /// index finds the objects: for thousands of waits that each look for objects of a random name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<Label>,
}

/// A label's key and value.
pub type Label = (String, String);

impl Scope {
    /// One object.
    #[must_use]
    pub fn of(object: &ObjectRef) -> Self {
        Self {
            kind: object.kind.clone(),
            namespace: object.namespace.clone(),
            selector: None,
            name: Some(object.name.clone()),
            labels: Vec::new(),
        }
    }

    /// All objects of a kind in a namespace that a label selector chooses.
    #[must_use]
    pub fn selected(kind: Kind, namespace: &str, selector: impl Into<String>) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            selector: Some(selector.into()),
            ..Self::everywhere(kind)
        }
    }

    /// All objects of a kind, in all namespaces.
    #[must_use]
    pub fn everywhere(kind: Kind) -> Self {
        Self { kind, namespace: None, selector: None, name: None, labels: Vec::new() }
    }

    /// The objects of a kind in a namespace that have all these labels.
    #[must_use]
    pub fn labelled(kind: Kind, namespace: &str, labels: &[(&str, &str)]) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Self::everywhere(kind)
        }
    }

    /// The object, where it is one.
    #[must_use]
    pub fn object(&self) -> Option<ObjectRef> {
        let name = self.name.clone()?;
        Some(ObjectRef { kind: self.kind.clone(), namespace: self.namespace.clone(), name })
    }

    /// Whether it covers a namespace.
    pub(crate) fn has(&self, namespace: Option<&str>) -> bool {
        self.namespace.is_none() || self.namespace.as_deref() == namespace
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(object) = self.object() {
            return fmt::Display::fmt(&object, out);
        }
        out.write_str(&self.kind.resource())?;
        let labels: Vec<String> = self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let chosen: Vec<&str> = labels.iter().map(String::as_str).chain(self.selector.as_deref()).collect();
        if !chosen.is_empty() {
            write!(out, " with {}", chosen.join(", "))?;
        }
        self.namespace.as_ref().map_or(Ok(()), |namespace| write!(out, " in namespace {namespace}"))
    }
}

type Key = (Kind, Option<String>, Option<String>);
type Name = (Option<String>, String);

/// Kinds, by group and resource, that may be watched in all namespaces at once.
pub type Everywhere = BTreeSet<(String, String)>;

/// All watches of a run.
pub struct Watches {
    cluster: Arc<Cluster>,
    everywhere: Everywhere,
    watched: Mutex<BTreeMap<Key, Arc<Watched>>>,
}

struct Watched {
    state: Arc<Mutex<State>>,
    task: AbortHandle,
}

/// What one watch has seen.
#[derive(Default)]
struct State {
    objects: BTreeMap<Name, Body>,
    listed: bool,
    trouble: Option<String>,
    by_name: BTreeMap<Name, Vec<Arc<Notify>>>,
    by_label: BTreeMap<Label, Vec<Arc<Notify>>>,
    by_any: Vec<Arc<Notify>>,
    /// Label keys by which somebody looks, and the objects by such labels.
    indexed: BTreeSet<String>,
    labelled: BTreeMap<Label, BTreeSet<Name>>,
}

/// What a check sees: the newest state of the objects in its scopes.
pub struct View<'a> {
    scopes: &'a [Scope],
    /// What each scope is watched by.
    watched: &'a [Arc<Watched>],
    began: &'a [(ObjectRef, Instant)],
    clock: &'a Clock,
}

impl View<'_> {
    /// An object in one of the scopes, as it is now.
    #[must_use]
    pub fn get(&self, object: &ObjectRef) -> Option<Value> {
        let name = (object.namespace.clone(), object.name.clone());
        let (_, watched) = self.scopes.iter().zip(self.watched).find(|(scope, _)| {
            scope.kind == object.kind
                && scope.has(object.namespace.as_deref())
                && scope.name.as_ref().is_none_or(|only| *only == object.name)
        })?;
        lock(&watched.state).objects.get(&name).map(Body::value)
    }

    /// How long ago this chain began its own move on an object; none if it has made none in this process.
    #[must_use]
    pub fn since(&self, object: &ObjectRef) -> Option<Duration> {
        self.began.iter().find(|(known, _)| known == object).map(|(_, began)| self.clock.since(*began))
    }

    /// The time of day, for times that objects or the journal tell.
    #[must_use]
    pub fn wall(&self) -> jiff::Timestamp {
        self.clock.wall()
    }

    /// All objects of a kind in the scopes without a name.
    #[must_use]
    pub fn list(&self, kind: &Kind) -> Vec<Value> {
        self.list_where(kind, |_| true)
    }

    /// The objects of a kind in the scopes without a name whose own name is wanted. Only those are parsed.
    pub fn list_where(&self, kind: &Kind, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
        self.scopes
            .iter()
            .zip(self.watched)
            .filter(|(scope, _)| scope.kind == *kind && scope.name.is_none())
            .flat_map(|(scope, watched)| lock(&watched.state).of_scope(scope, &wanted))
            .collect()
    }
}

/// Somebody who waits: woken by every change in its scopes, and by nothing else.
pub struct Waiter<'a> {
    scopes: &'a [Scope],
    /// What each scope is watched by.
    watched: Vec<Arc<Watched>>,
    woken: Arc<Notify>,
    clock: Clock,
}

impl Waiter<'_> {
    /// What there is to see, once every watch has listed what exists; until then, why not. `began` tells since when
    /// the chain that looks has been changing which objects.
    pub fn look<T>(
        &self,
        began: &[(ObjectRef, Instant)],
        see: impl FnOnce(&View<'_>) -> T,
    ) -> Result<T, String> {
        for (scope, watched) in self.scopes.iter().zip(&self.watched) {
            let state = lock(&watched.state);
            if !state.listed {
                let trouble = state.trouble.clone().unwrap_or_else(|| "not listed yet".to_owned());
                return Err(format!("the watch on {}: {trouble}", scope.kind.resource()));
            }
        }
        Ok(see(&View { scopes: self.scopes, watched: &self.watched, began, clock: &self.clock }))
    }

    /// Resolves at the next change.
    pub async fn changed(&self) {
        self.woken.notified().await;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        for (scope, watched) in self.scopes.iter().zip(&self.watched) {
            let mut state = lock(&watched.state);
            let others =
                |waiting: &mut Vec<Arc<Notify>>| waiting.retain(|one| !Arc::ptr_eq(one, &self.woken));
            match scope.name.clone() {
                None => match scope.labels.first() {
                    None => others(&mut state.by_any),
                    Some(label) => {
                        if let Entry::Occupied(mut entry) = state.by_label.entry(label.clone()) {
                            others(entry.get_mut());
                            if entry.get().is_empty() {
                                entry.remove();
                            }
                        }
                    }
                },
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
    /// No watches yet. Kinds that may be watched `everywhere` get one watch over all namespaces, instead of one for
    /// each namespace in which something is waited for.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>, everywhere: Everywhere) -> Self {
        Self { cluster, everywhere, watched: Mutex::new(BTreeMap::new()) }
    }

    /// Ends all watches and forgets what they saw. Nobody may be waiting.
    pub fn forget(&self) {
        let ended = std::mem::take(&mut *lock(&self.watched));
        for watched in ended.values() {
            watched.task.abort();
        }
    }

    /// Begins to wait for changes in some scopes.
    #[must_use]
    pub fn waiter<'a>(&self, scopes: &'a [Scope]) -> Waiter<'a> {
        let woken = Arc::new(Notify::new());
        let watched = scopes
            .iter()
            .map(|scope| {
                let watched = self.watched(scope);
                {
                    let mut state = lock(&watched.state);
                    match scope.name.clone() {
                        None => match scope.labels.first() {
                            None => state.by_any.push(woken.clone()),
                            Some(label) => {
                                state.index(&label.0);
                                state.by_label.entry(label.clone()).or_default().push(woken.clone());
                            }
                        },
                        Some(name) => {
                            let waiting = state.by_name.entry((scope.namespace.clone(), name)).or_default();
                            waiting.push(woken.clone());
                        }
                    }
                }
                watched
            })
            .collect();
        Waiter { scopes, watched, woken, clock: self.cluster.clock().clone() }
    }

    fn watched(&self, scope: &Scope) -> Arc<Watched> {
        let resource = (scope.kind.group.to_string(), scope.kind.plural.to_string());
        let broad = scope.selector.is_none() && self.everywhere.contains(&resource);
        let namespace = scope.namespace.clone().filter(|_| !broad);
        let key = (scope.kind.clone(), namespace.clone(), scope.selector.clone());
        lock(&self.watched)
            .entry(key)
            .or_insert_with(|| {
                let cluster = self.cluster.clone();
                let scope = Scope { namespace, ..scope.clone() };
                let state = Arc::new(Mutex::new(State::default()));
                let seen = state.clone();
                let task =
                    self.cluster.host().spawn(Box::pin(async move { follow(&cluster, &scope, &seen).await }));
                Arc::new(Watched { state, task })
            })
            .clone()
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.forget();
    }
}

/// After this long the server ends a watch, and it is begun anew from where it was.
const WATCH_SECONDS: u32 = 25;

/// How long to wait before a broken watch is taken up again. kube's own default goes up to 30 s, too long for a
/// step that has three minutes in all.
struct Patience {
    tries: u32,
    clock: Clock,
}

impl Iterator for Patience {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.tries = (self.tries + 1).min(5);
        Some(self.clock.patience(Duration::from_millis(100 << self.tries)))
    }
}

impl Backoff for Patience {
    fn reset(&mut self) {
        self.tries = 0;
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
    // kube's own default is longer than a step has time: a connection that died silently would never be found out.
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
    if let Some(selector) = &scope.selector {
        config = config.labels(selector);
    }
    let mut events =
        std::pin::pin!(watcher(api, config).backoff(Patience { tries: 0, clock: cluster.clock().clone() }));
    // A new list replaces the old one when it is complete: half a list would look like deletions.
    let mut fresh: BTreeMap<Name, Body> = BTreeMap::new();
    while let Some(event) = events.next().await {
        let mut state = lock(state);
        match event {
            Ok(watcher::Event::Init) => fresh.clear(),
            Ok(watcher::Event::InitApply(object)) => {
                fresh.insert(name_of(&object), compact(object));
            }
            Ok(watcher::Event::InitDone) => {
                state.objects = std::mem::take(&mut fresh);
                state.index_anew();
                state.listed = true;
                state.trouble = None;
                let by_label = state.by_label.values().flatten();
                let all = state.by_any.iter().chain(state.by_name.values().flatten()).chain(by_label);
                all.for_each(|one| one.notify_one());
            }
            Ok(watcher::Event::Apply(object)) => {
                let name = name_of(&object);
                let had = state.labels_of(&name);
                let has = state.indexed_labels(object.metadata.labels.as_ref());
                state.objects.insert(name.clone(), compact(object));
                state.relabel(&name, &had, &has);
                state.wake(&name, had.iter().chain(&has));
            }
            Ok(watcher::Event::Delete(object)) => {
                let name = name_of(&object);
                let had = state.labels_of(&name);
                state.objects.remove(&name);
                state.relabel(&name, &had, &[]);
                state.wake(&name, had.iter());
            }
            Err(error) => {
                let text = error.to_string();
                if code_of(&error) == Some(401) {
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
    fn wake<'a>(&self, name: &Name, labels: impl Iterator<Item = &'a Label>) {
        let named = self.by_name.get(name).into_iter().flatten();
        let labelled = labels.filter_map(|label| self.by_label.get(label)).flatten();
        self.by_any.iter().chain(named).chain(labelled).for_each(|one| one.notify_one());
    }

    fn of_scope(&self, scope: &Scope, wanted: impl Fn(&str) -> bool) -> Vec<Value> {
        let has_labels = |object: &Value| {
            let labels = object.pointer("/metadata/labels");
            scope.labels.iter().all(|(key, value)| {
                labels.and_then(|labels| labels.get(key)).and_then(Value::as_str) == Some(value)
            })
        };
        let parse = |(name, object): (&Name, &Body)| {
            let wanted = scope.has(name.0.as_deref()) && wanted(&name.1);
            wanted.then(|| object.value()).filter(has_labels)
        };
        match scope.labels.first() {
            None => self.objects.iter().filter_map(parse).collect(),
            Some(label) => {
                let names = self.labelled.get(label).into_iter().flatten();
                names.filter_map(|name| self.objects.get_key_value(name)).filter_map(parse).collect()
            }
        }
    }

    /// Begins to index by a label key.
    fn index(&mut self, key: &str) {
        if self.indexed.insert(key.to_owned()) {
            self.index_anew();
        }
    }

    fn index_anew(&mut self) {
        self.labelled.clear();
        if self.indexed.is_empty() {
            return;
        }
        let names: Vec<Name> = self.objects.keys().cloned().collect();
        for name in names {
            let has = self.labels_of(&name);
            self.relabel(&name, &[], &has);
        }
    }

    fn relabel(&mut self, name: &Name, had: &[Label], has: &[Label]) {
        for label in had.iter().filter(|label| !has.contains(label)) {
            if let Some(names) = self.labelled.get_mut(label) {
                names.remove(name);
            }
        }
        for label in has {
            self.labelled.entry(label.clone()).or_default().insert(name.clone());
        }
    }

    /// The labels of an object as it is kept, as far as somebody looks by them.
    fn labels_of(&self, name: &Name) -> Vec<Label> {
        if self.indexed.is_empty() {
            return Vec::new();
        }
        let labels = self.objects.get(name).and_then(|object| {
            serde_json::from_value(object.value().pointer_mut("/metadata/labels")?.take()).ok()
        });
        self.indexed_labels(labels.as_ref())
    }

    fn indexed_labels(&self, labels: Option<&BTreeMap<String, String>>) -> Vec<Label> {
        let labels = labels.into_iter().flatten();
        labels
            .filter(|(key, _)| self.indexed.contains(*key))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

/// The code with which the API server answered, if it did.
fn code_of(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::WatchError(status)
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

fn name_of(object: &DynamicObject) -> Name {
    (object.metadata.namespace.clone(), object.metadata.name.clone().unwrap_or_default())
}

fn compact(mut object: DynamicObject) -> Body {
    object.metadata.managed_fields = None;
    Body::of(&object)
}
