//! What every stand-in controller is made of: mirrors (one watch per kind, never one per object), a queue of objects
//! to look at, and a bounded number of looks at the same time.
//!
//! Not kube's `Controller`, because the children must be readable from memory: a GET per look would cost more than the
//! writes when thousands of objects appear at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Status;
use kube::runtime::reflector::{ObjectRef, Store, store::Writer};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::Event;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::behaviour::{Behaviour, Controller};
use crate::kinds::Kind;
use crate::scheduler;
pub use crate::scheduler::Action;

/// The name under which the stand-ins own fields.
pub const MANAGER: &str = "standins";

/// A look that hangs (the API server was killed under it) is given up after this long and tried again.
const LOOK_TIMEOUT: Duration = Duration::from_secs(20);
/// Soon enough to be unnoticed in a test, late enough not to be a load while the API server is away.
const TRY_AGAIN: Duration = Duration::from_millis(250);

/// Why a look at an object ended early.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The API server refused, or did not answer.
    #[error("{}", sentence(.0))]
    Call(#[from] kube::Error),
    /// No end in sight.
    #[error("gave up after {} s", LOOK_TIMEOUT.as_secs())]
    TooLong,
}

/// What the controllers of one set share.
pub struct Shared {
    /// The way to the API server.
    pub client: Client,
    behaviour: watch::Receiver<Arc<Behaviour>>,
    since: Mutex<HashMap<(String, i64, &'static str), Instant>>,
    written: Mutex<HashMap<String, u64>>,
    /// The newest version of each object that its controller has looked at.
    looked: watch::Sender<HashMap<String, u64>>,
}

impl Shared {
    /// Shared by all controllers that are started with it.
    #[must_use]
    pub fn new(client: Client, behaviour: watch::Receiver<Arc<Behaviour>>) -> Self {
        Self {
            client,
            behaviour,
            since: Mutex::default(),
            written: Mutex::default(),
            looked: watch::Sender::default(),
        }
    }

    /// Waits until a controller has looked at this version of the object, or at a later one. Each kind has one controller.
    pub async fn looked_at(&self, object: &DynamicObject) {
        let (Some(uid), Some(wanted)) = (object.uid(), version(object)) else { return };
        let looked = |all: &HashMap<String, u64>| all.get(&uid).is_some_and(|seen| *seen >= wanted);
        // The sender is ours: it cannot be gone.
        let _ = self.looked.subscribe().wait_for(looked).await;
    }

    /// A look at this version has ended.
    fn has_looked(&self, uid: String, version: u64) {
        self.looked.send_modify(|all| {
            let newest = all.entry(uid).or_default();
            *newest = version.max(*newest);
        });
    }

    /// How to behave at the moment.
    #[must_use]
    pub fn behaviour(&self) -> Arc<Behaviour> {
        self.behaviour.borrow().clone()
    }

    /// How to behave, if this controller is to act in this namespace at the moment.
    #[must_use]
    pub fn acting(&self, controller: Controller, namespace: &str) -> Option<Arc<Behaviour>> {
        let behaviour = self.behaviour();
        (behaviour.acts_in(namespace) && !behaviour.stopped.contains(&controller)).then_some(behaviour)
    }

    /// What is left of `delay` since this object, as it is now, was first asked about at this stage; nothing when it
    /// is over.
    #[must_use]
    pub fn remaining(
        &self,
        object: &DynamicObject,
        stage: &'static str,
        delay: Duration,
    ) -> Option<Duration> {
        if delay.is_zero() {
            return None;
        }
        let uid = object.uid().unwrap_or_default();
        let mut since = lock(&self.since);
        let generation = object.metadata.generation.unwrap_or_default();
        let passed = since.entry((uid, generation, stage)).or_insert_with(Instant::now).elapsed();
        delay.checked_sub(passed).filter(|rest| !rest.is_zero())
    }

    /// Whether this is the object as it was before our own last write. The mirror will show that write; whoever acts
    /// on the old state meanwhile only earns a conflict.
    #[must_use]
    pub fn is_behind(&self, object: &DynamicObject) -> bool {
        let mut written = lock(&self.written);
        let Some(uid) = object.uid() else { return false };
        let behind = written.get(&uid).is_some_and(|ours| version(object).is_some_and(|seen| seen < *ours));
        if !behind {
            written.remove(&uid);
        }
        behind
    }

    fn note(&self, object: &DynamicObject) {
        if let (Some(uid), Some(version)) = (object.uid(), version(object)) {
            lock(&self.written).insert(uid, version);
        }
    }

    /// Creates the object, and answers with it. One of that name that is there already is no error: the mirror will
    /// soon show it. Nor is a namespace on its way out: there is nothing left to do in it.
    pub async fn create(&self, kind: &Kind, manifest: Value) -> Result<Option<DynamicObject>, Failed> {
        let object: DynamicObject = serde_json::from_value(manifest).map_err(kube::Error::SerdeError)?;
        let api = kind.within(&self.client, &object.namespace().unwrap_or_default());
        match api.create(&params(), &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() || is_void(&status) => Ok(None),
            other => Ok(Some(other?)),
        }
    }

    /// Changes the object, provided that nobody else did meanwhile; answers with the object as it is then.
    pub async fn patch(
        &self,
        kind: &Kind,
        object: &DynamicObject,
        mut patch: Value,
    ) -> Result<Arc<DynamicObject>, Failed> {
        let (namespace, name) = key(object);
        patch["metadata"]["resourceVersion"] = object.resource_version().into();
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let api = kind.within(&self.client, &namespace);
        let written = api.patch(&name, &params, &Patch::Merge(patch)).await?;
        self.note(&written);
        Ok(Arc::new(written))
    }

    /// Writes the object's status, unless it is just that already; answers with the object as it is then.
    pub async fn write_status(
        &self,
        kind: &Kind,
        object: Arc<DynamicObject>,
        status: Value,
    ) -> Result<Arc<DynamicObject>, Failed> {
        if object.data["status"] == status {
            return Ok(object);
        }
        let (namespace, name) = key(&object);
        let mut changed = DynamicObject::clone(&object);
        changed.data["status"] = status;
        let api = kind.within(&self.client, &namespace);
        let written = api.replace_status(&name, &params(), &changed).await?;
        self.note(&written);
        Ok(Arc::new(written))
    }

    /// Sets the object's finalizers, provided that nobody changed it meanwhile.
    pub async fn write_finalizers(
        &self,
        kind: &Kind,
        object: &DynamicObject,
        finalizers: &[String],
    ) -> Result<Arc<DynamicObject>, Failed> {
        self.patch(kind, object, json!({"metadata": {"finalizers": finalizers}})).await
    }

    /// Deletes exactly this object; one that is gone already is no error.
    pub async fn delete(&self, kind: &Kind, object: &DynamicObject) -> Result<(), Failed> {
        let (namespace, name) = key(object);
        let params = DeleteParams::default()
            .preconditions(Preconditions { uid: object.uid(), resource_version: None });
        match kind.within(&self.client, &namespace).delete(&name, &params).await {
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            other => Ok(other.map(drop)?),
        }
    }
}

/// A panic elsewhere does not make these maps wrong.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The version of an object as a number; versions of one kind can be compared.
fn version(object: &DynamicObject) -> Option<u64> {
    object.metadata.resource_version.as_deref()?.parse().ok()
}

fn params() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}

/// The server's own sentence, without the rest of its answer.
fn sentence(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Whether the server refuses because the namespace is being deleted.
fn is_void(status: &Status) -> bool {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    causes.iter().any(|cause| cause.reason == "NamespaceTerminating")
}

/// Namespace and name of an object; the namespace of a cluster scoped one is empty.
#[must_use]
pub fn key(object: &DynamicObject) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Namespace and name of an object as one text, for an [`Index`].
#[must_use]
pub fn own_key(object: &DynamicObject) -> Option<String> {
    let name = object.metadata.name.as_deref()?;
    Some(format!("{}/{name}", object.metadata.namespace.as_deref().unwrap_or_default()))
}

/// Whether the object is on its way out.
#[must_use]
pub fn going(object: &DynamicObject) -> bool {
    object.metadata.deletion_timestamp.is_some()
}

/// All objects of one kind, as one watch has shown them.
#[derive(Clone)]
pub struct Mirror {
    resource: ApiResource,
    store: Store<DynamicObject>,
}

impl Mirror {
    /// The object of that name, if there is one.
    #[must_use]
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<DynamicObject>> {
        self.store.get(&self.reference(namespace, name))
    }

    /// Every object.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<DynamicObject>> {
        let mut all = self.store.state();
        // In an order that does not depend on hashes.
        all.sort_by_cached_key(|object| key(object));
        all
    }

    fn reference(&self, namespace: &str, name: &str) -> ObjectRef<DynamicObject> {
        let reference = ObjectRef::new_with(name, self.resource.clone());
        if namespace.is_empty() { reference } else { reference.within(namespace) }
    }
}

/// What a watch has shown.
pub enum Seen<'a> {
    /// The object is new or has changed.
    Applied(&'a DynamicObject),
    /// The object is gone.
    Deleted(&'a DynamicObject),
    /// All were listed (again): anything may have happened meanwhile.
    Listed,
}

/// What an object is found by, in an [`Index`].
type KeyOf = fn(&DynamicObject) -> Option<String>;
/// Told of everything that a watch shows.
type Listener = Box<dyn FnMut(&Seen<'_>) + Send>;

/// The objects of a mirror by something else than their names, so that nobody has to go through all of them.
#[derive(Clone)]
pub struct Index {
    mirror: Mirror,
    key_of: KeyOf,
    entries: Arc<Mutex<Entries>>,
}

#[derive(Default)]
struct Entries {
    found: HashMap<String, BTreeSet<(String, String)>>,
    keys: HashMap<(String, String), String>,
}

impl Entries {
    fn take(&mut self, object: &(String, String)) {
        let Some(key) = self.keys.remove(object) else { return };
        if let Some(found) = self.found.get_mut(&key) {
            found.remove(object);
            if found.is_empty() {
                self.found.remove(&key);
            }
        }
    }

    fn put(&mut self, object: (String, String), wanted: Option<String>) {
        if self.keys.get(&object) == wanted.as_ref() {
            return;
        }
        self.take(&object);
        if let Some(wanted) = wanted {
            self.found.entry(wanted.clone()).or_default().insert(object.clone());
            self.keys.insert(object, wanted);
        }
    }
}

impl Index {
    /// Every object with this key.
    #[must_use]
    pub fn get(&self, wanted: &str) -> Vec<Arc<DynamicObject>> {
        let names: Vec<_> = lock(&self.entries).found.get(wanted).into_iter().flatten().cloned().collect();
        names.iter().filter_map(|(namespace, name)| self.mirror.get(namespace, name)).collect()
    }

    fn see(&self, seen: &Seen<'_>) {
        let mut entries = lock(&self.entries);
        match seen {
            Seen::Applied(object) => entries.put(key(object), (self.key_of)(object)),
            Seen::Deleted(object) => entries.take(&key(object)),
            Seen::Listed => {
                *entries = Entries::default();
                for object in self.mirror.all() {
                    entries.put(key(&object), (self.key_of)(&object));
                }
            }
        }
    }
}

/// What controllers are started with. They say what they want to see, and in the end there is one watch per kind,
/// however many of them look at it.
pub struct Setup<'a> {
    /// Where the controllers run.
    pub tasks: &'a mut JoinSet<()>,
    /// What they share.
    pub shared: Arc<Shared>,
    watched: BTreeMap<Kind, Watched>,
}

struct Watched {
    mirror: Mirror,
    writer: Writer<DynamicObject>,
    indexes: Vec<Index>,
    listeners: Vec<Listener>,
}

impl<'a> Setup<'a> {
    /// Nothing is watched yet.
    #[must_use]
    pub fn new(tasks: &'a mut JoinSet<()>, shared: Arc<Shared>) -> Self {
        Self { tasks, shared, watched: BTreeMap::new() }
    }

    fn watched(&mut self, kind: &Kind) -> &mut Watched {
        self.watched.entry(*kind).or_insert_with(|| {
            let resource = kind.resource();
            let writer = Writer::new(resource.clone());
            let mirror = Mirror { resource, store: writer.as_reader() };
            Watched { mirror, writer, indexes: Vec::new(), listeners: Vec::new() }
        })
    }

    /// All objects of a kind.
    pub fn mirror(&mut self, kind: &Kind) -> Mirror {
        self.watched(kind).mirror.clone()
    }

    /// All objects of a kind, by something else than their names.
    pub fn index(&mut self, kind: &Kind, key_of: KeyOf) -> Index {
        let watched = self.watched(kind);
        let index = Index { mirror: watched.mirror.clone(), key_of, entries: Arc::default() };
        watched.indexes.push(index.clone());
        index
    }

    /// Calls the listener for everything that is seen of a kind, once mirror and indexes show it.
    pub fn on(&mut self, kind: &Kind, listener: impl FnMut(&Seen<'_>) + Send + 'static) {
        self.watched(kind).listeners.push(Box::new(listener));
    }

    /// A queue of a controller's main kind, in which every object is put when it is seen.
    pub fn queue(&mut self, kind: &Kind) -> (Queue, UnboundedReceiver<Name>) {
        let (queue, receiver) = Queue::new(self.mirror(kind));
        let on_main = queue.clone();
        self.on(kind, move |seen| on_main.same_name(seen));
        (queue, receiver)
    }

    /// Begins to watch.
    pub fn watch(self) {
        for (kind, watched) in self.watched {
            let Watched { writer, indexes, mut listeners, .. } = watched;
            self.tasks.spawn(keep(self.shared.client.clone(), kind, writer, move |seen| {
                for index in &indexes {
                    index.see(&seen);
                }
                for listener in &mut listeners {
                    listener(&seen);
                }
            }));
        }
    }
}

/// Watches again after [`TRY_AGAIN`], always. The usual backoff of up to 30 s would make a test wait that long for a
/// CRD that was just installed, or for an API server that is back.
struct Soon;

impl Iterator for Soon {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(TRY_AGAIN)
    }
}

impl Backoff for Soon {
    fn reset(&mut self) {}
}

/// Fills a mirror for ever, from every namespace, and calls `seen` once the mirror shows what was seen. A kind that
/// is not served yet is waited for.
async fn keep(
    client: Client,
    kind: Kind,
    writer: Writer<DynamicObject>,
    mut seen: impl FnMut(Seen<'_>) + Send,
) {
    let events = watcher(kind.everywhere(&client), watcher::Config::default())
        .modify(|object| object.metadata.managed_fields = None)
        .backoff(Soon)
        .reflect(writer);
    let mut events = pin!(events);
    let mut said = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object)) => seen(Seen::Applied(&object)),
            Ok(Event::Delete(object)) => seen(Seen::Deleted(&object)),
            Ok(Event::InitDone) => {
                said = false;
                seen(Seen::Listed);
            }
            Ok(Event::Init | Event::InitApply(_)) => {}
            Err(error) => {
                let level = if said { log::Level::Debug } else { log::Level::Info };
                log::log!(level, "cannot watch {}.{}, will go on trying: {error}", kind.plural, kind.group);
                said = true;
            }
        }
    }
}

/// Namespace and name of an object; the namespace of a cluster scoped one is empty.
type Name = (String, String);

/// Objects of a controller's main kind that wait to be looked at.
#[derive(Clone)]
pub struct Queue {
    main: Mirror,
    sender: UnboundedSender<Name>,
}

impl Queue {
    /// A queue of objects of the mirrored kind, and its other end.
    fn new(main: Mirror) -> (Self, UnboundedReceiver<Name>) {
        let (sender, receiver) = unbounded();
        (Self { main, sender }, receiver)
    }

    /// Looks at this object soon.
    pub fn push(&self, namespace: &str, name: &str) {
        // Fails only when the controller has been stopped: then nobody needs to look.
        drop(self.sender.unbounded_send((namespace.to_owned(), name.to_owned())));
    }

    /// Looks at every object soon.
    pub fn push_all(&self) {
        for object in self.main.all() {
            let (namespace, name) = key(&object);
            self.push(&namespace, &name);
        }
    }

    /// Looks at these objects soon.
    pub fn push_each(&self, objects: &[Arc<DynamicObject>]) {
        for object in objects {
            let (namespace, name) = key(object);
            self.push(&namespace, &name);
        }
    }

    /// Looks soon at the objects of an index that have to do with what was seen, or at all after a list.
    pub fn related(&self, seen: &Seen<'_>, index: &Index, key_of: KeyOf) {
        match seen {
            Seen::Applied(object) | Seen::Deleted(object) => {
                if let Some(key) = key_of(object) {
                    self.push_each(&index.get(&key));
                }
            }
            Seen::Listed => self.push_all(),
        }
    }

    /// Looks at the object whose namespace and name are those of what was seen: itself, or what it was made for.
    pub fn same_name(&self, seen: &Seen<'_>) {
        match seen {
            Seen::Applied(object) | Seen::Deleted(object) => {
                let (namespace, name) = key(object);
                self.push(&namespace, &name);
            }
            Seen::Listed => self.push_all(),
        }
    }
}

/// One stand-in: looks at an object and does the next thing about it.
pub trait Look: Send + Sync + 'static {
    /// For the log.
    const NAME: &'static str;

    /// Brings the object one or more states forward. It is called again whenever something it depends on changes.
    fn look(&self, object: Arc<DynamicObject>) -> impl Future<Output = Result<Action, Failed>> + Send;
}

/// Serves a queue for ever. All objects are looked at again when the behaviour changes.
pub fn serve<L: Look>(setup: &mut Setup<'_>, controller: L, queue: Queue, receiver: UnboundedReceiver<Name>) {
    let (tasks, shared) = (&mut *setup.tasks, setup.shared.clone());
    let (main, watched, controller) = (queue.main.clone(), shared.clone(), Arc::new(controller));
    let at_once = usize::from(shared.behaviour().concurrency);
    tasks.spawn(scheduler::serve(receiver, at_once, move |(namespace, name)| {
        let (object, shared, controller) = (main.get(&namespace, &name), watched.clone(), controller.clone());
        Box::pin(async move {
            let Some(object) = object.filter(|object| !shared.is_behind(object)) else {
                return Action::await_change();
            };
            let seen = object.uid().zip(version(&object));
            let looked = tokio::time::timeout(LOOK_TIMEOUT, controller.look(object)).await;
            let looked = looked.unwrap_or(Err(Failed::TooLong));
            // After a conflict it looks again, at what somebody else has made of the object.
            if let Some((uid, version)) = seen.filter(|_| !looked.as_ref().is_err_and(is_conflict)) {
                shared.has_looked(uid, version);
            }
            looked.unwrap_or_else(|error| {
                if !is_conflict(&error) {
                    log::warn!("{} {namespace}/{name}: {error}", L::NAME);
                }
                Action::requeue(TRY_AGAIN)
            })
        })
    }));
    let mut behaviour = shared.behaviour.clone();
    tasks.spawn(async move {
        while behaviour.changed().await.is_ok() {
            queue.push_all();
        }
    });
}

/// Somebody else was faster; the next look sees what they did.
fn is_conflict(error: &Failed) -> bool {
    matches!(error, Failed::Call(kube::Error::Api(status)) if status.is_conflict())
}
