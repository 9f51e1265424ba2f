//! An API server in memory: what the steps and the stand-ins use, and no more. Whatever it does not know it refuses loudly.
//!
//! It is a state machine without threads, clocks and chance: the same calls at the same times give the same answers.
//!
//! - A request is taken apart in `path`, routed here, and served by `lists`, `watch`, `write`,
//!   `delete` and `scale`.
//! - What is there is in `store`; what is served in `kinds` and, for CRDs, in `crd`.
//! - What may be done is decided by `access` and `admission`; how it is refused is worded in `status`.
//! - What a cluster does by itself is in `controllers`.

mod access;
mod admission;
mod call;
mod checks;
mod controllers;
mod crd;
mod decode;
mod defaults;
mod delete;
mod discovery;
mod events;
pub mod fields;
mod kinds;
mod lists;
mod metadata;
mod options;
mod patch;
mod path;
mod scale;
pub mod schema;
mod select;
mod status;
mod store;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod through_kube;
mod watch;
pub mod workloads;
mod write;

use std::sync::Arc;

use bytes::Bytes;
use futures::channel::mpsc::UnboundedReceiver;
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};

use access::CONTROLLER;
use call::Call;
use kinds::{Resource, Served, TableKey};
use path::{Place, Query, Target};
use status::{Result, Status};
use store::{Key, Store};
use watch::Watches;
use workloads::Objects;

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

impl Request {
    /// A request without query and body, by somebody who may do anything.
    #[must_use]
    pub fn new(method: Method, path: &str) -> Self {
        Self {
            method,
            path: path.to_owned(),
            query: String::new(),
            content_type: "application/json".to_owned(),
            body: Bytes::new(),
            user: "admin".to_owned(),
            agent: String::new(),
        }
    }
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
pub struct Server {
    store: Store,
    served: Arc<Served>,
    watches: Watches,
    unknown: Vec<String>,
    rbac: bool,
    /// Lists in pages that began before this revision have expired.
    tokens_since: u64,
    /// Something was written since the controllers found nothing to do.
    unsettled: bool,
    /// A workload, or a Pod, was written since their controllers looked.
    workloads_changed: bool,
}

impl Server {
    /// A server as it is after its start: with the namespaces that every cluster has.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        let mut server = Self {
            store: Store::default(),
            served: Arc::new(kinds::built_in()),
            watches: Watches::default(),
            unknown: Vec::new(),
            rbac: false,
            tokens_since: 0,
            unsettled: true,
            workloads_changed: true,
        };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let made = server.controller_create("", "namespaces", json!({"metadata": {"name": name}}), now);
            assert!(made.is_ok(), "a namespace can always be made");
        }
        server
    }

    /// Serves one request, at this time of day.
    pub fn handle(&mut self, request: &Request, now: Timestamp) -> Answer {
        self.route(request, now).unwrap_or_else(|refused| {
            if refused.is_not_simulated() {
                self.unknown.push(format!("{} {}: {}", request.method, request.path, refused.message()));
            }
            Answer::Whole { status: refused.code, body: refused.body }
        })
    }

    /// One pass of the controllers that every cluster has. Returns whether anything was changed: then another pass may
    /// change more.
    pub fn reconcile(&mut self, now: Timestamp) -> bool {
        let workloads = std::mem::take(&mut self.workloads_changed) && workloads::reconcile(self, now);
        if std::mem::take(&mut self.unsettled) {
            let crds = self.reconcile_crds(now);
            let namespaces = self.reconcile_namespaces(now) | self.furnish_namespaces(now);
            let garbage = self.collect_garbage(now);
            self.unsettled |= crds || namespaces || garbage;
        }
        workloads || self.unsettled || self.workloads_changed
    }

    /// What was asked of this server that it does not know. A test in which there is anything has proved nothing.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// Whether users other than `admin` may do only what RBAC lets them.
    pub fn enforce_rbac(&mut self, enforced: bool) {
        self.rbac = enforced;
    }

    /// Lets all lists expire that are being read in pages.
    pub fn expire_tokens(&mut self) {
        // Something was written somewhere: what is listed from now on is newer.
        self.tokens_since = self.store.skip_revision();
    }

    /// Tells watches that asked for it how far they are.
    pub fn bookmark(&mut self) {
        self.watches.bookmark(self.store.revision());
    }

    /// Forgets what happened so far, as etcd does every few minutes: watches from before now cannot be resumed.
    pub fn cut_history(&mut self) {
        self.store.compact();
    }

    /// Ends all watches, as the restart of an API server does.
    pub fn end_watches(&mut self) {
        self.watches.end();
    }

    /// The revision of the last write.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.store.revision()
    }

    fn route(&mut self, request: &Request, now: Timestamp) -> Result<Answer> {
        let whole = |(status, body): (u16, Value)| Ok(Answer::Whole { status, body });
        let place = match Target::parse(&request.path) {
            Target::Page(segments) if request.method == Method::GET => {
                return whole((200, self.page(&segments)?));
            }
            Target::Page(segments) => {
                return Err(Status::not_simulated(format!("{} of /{}", request.method, segments.join("/"))));
            }
            Target::Object(place) => place,
        };
        let query = Query::parse(&request.query)?;
        options::check_timeout(&query)?;
        let is_collection = place.name.is_empty();
        let verb = match request.method {
            Method::GET if is_collection && query.flag("watch") => "watch",
            Method::GET if is_collection => "list",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if is_collection => "deletecollection",
            Method::DELETE => "delete",
            _ => return Err(Status::not_simulated(format!("the method {}", request.method))),
        };
        let resource = self.resource(&place);
        if resource.is_err() {
            // Whether somebody may ask comes before whether there is anything.
            self.authorise(&request.user, &place, verb)?;
        }
        let resource = resource?;
        let call = Call { resource: &resource, place: &place, query: &query, request, now };
        if resource.group == "authorization.k8s.io" {
            return if verb == "create" {
                whole(self.review(&call)?)
            } else {
                Err(Status::method_not_allowed())
            };
        }
        self.authorise(&request.user, &place, verb)?;
        check_place(&call, verb)?;
        checks::check_body(&request.body)?;
        if verb == "patch" {
            patch::check_content_type(&resource, call.content_type())?;
        } else if matches!(verb, "create" | "update") {
            call.check_content_type()?;
        }
        options::check(&call, verb)?;
        match verb {
            "watch" => self.watch(&resource, &place, &query),
            "list" => whole((200, self.list(&resource, &place, &query)?)),
            "get" if place.subresource == "scale" => whole((200, self.get_scale(&call)?)),
            "get" => whole((200, self.get(&resource, &place)?)),
            "create" => whole(self.create(&call)?),
            "update" => whole(self.update(&call)?),
            "patch" => whole(self.patch(&call)?),
            "deletecollection" => whole(self.delete_collection(&call)?),
            _ => whole(self.delete(&call)?),
        }
    }

    fn resource(&self, place: &Place) -> Result<Arc<Resource>> {
        let key = (place.group.clone(), place.version.clone(), place.plural.clone());
        let found = self.served.get(&key).cloned();
        let Some(resource) = found else {
            discovery::refuse_unknown(&place.group)?;
            let built_in = self.served.values().any(|one| one.group == place.group && one.custom.is_none());
            if built_in && kinds::is_unknown(&place.group, &place.plural) {
                let what = format!("{} in the group \"{}\"", place.plural, place.group);
                return Err(Status::not_simulated(what));
            }
            if built_in {
                return Err(Status::nothing_served());
            }
            return Err(Status::page_not_found());
        };
        Ok(resource)
    }

    /// Stores an object, and tells whom it may concern.
    fn commit(&mut self, table: &TableKey, key: &Key, object: Value) -> Arc<Value> {
        let event = self.store.put(table, key, object);
        self.spread(table, &event);
        event.new
    }

    fn remove(&mut self, table: &TableKey, key: &Key, last: Value) {
        let event = self.store.remove(table, key, last);
        self.spread(table, &event);
    }

    fn spread(&mut self, table: &TableKey, event: &store::Event) {
        self.watches.tell(table, event);
        let is_crd = table.1 == "customresourcedefinitions" && table.0 == "apiextensions.k8s.io";
        if is_crd {
            self.serve_crd(&event.key.1, (!event.deleted).then_some(&*event.new));
        }
        // Nothing else gives the controllers anything to do.
        let is_owned = event.new["metadata"].get("ownerReferences").is_some();
        let is_new_namespace = table.1 == "namespaces" && event.old.is_none();
        let is_terminating = metadata::is_terminating(&event.new);
        self.unsettled |= is_crd || is_new_namespace || event.deleted || is_owned || is_terminating;
        self.workloads_changed |= table.0 == "apps" || (table.0.is_empty() && table.1 == "pods");
    }
}

/// What cannot be done at a place, whatever the body says.
fn check_place(call: &Call<'_>, verb: &str) -> Result<()> {
    let (resource, place) = (call.resource, call.place);
    let is_custom = resource.custom.is_some();
    let nothing = || if is_custom { Status::page_not_found() } else { Status::nothing_served() };
    if !resource.namespaced && !place.namespace.is_empty() {
        return Err(nothing());
    }
    if resource.namespaced && place.namespace.is_empty() && !matches!(verb, "list" | "watch") {
        return Err(if place.name.is_empty() && !is_custom {
            Status::method_not_allowed()
        } else {
            nothing()
        });
    }
    if place.name.is_empty() && matches!(verb, "update" | "patch") {
        return Err(Status::method_not_allowed());
    }
    let is_served = match place.subresource.as_str() {
        "" => true,
        "status" => resource.status,
        "scale" => resource.scale,
        "finalize" => resource.plural == "namespaces" && resource.group.is_empty(),
        _ => false,
    };
    if !is_served {
        return Err(if resource.custom.is_some() {
            Status::not_found(resource, &place.name)
        } else if kinds::is_unknown_part(&place.plural, &place.subresource) {
            Status::not_simulated(format!("{}/{}", place.plural, place.subresource))
        } else {
            Status::nothing_served()
        });
    }
    if verb == "create" && !place.name.is_empty() {
        return Err(Status::method_not_allowed());
    }
    Ok(())
}

/// For controllers: the objects themselves, without rights and without the form of the API.
impl Server {
    /// All objects of a resource; of Events those of the core group.
    #[must_use]
    pub fn list_raw(&self, group: &str, resource: &str) -> Vec<Value> {
        let table = self.store.table(&(group.to_owned(), resource.to_owned()));
        table
            .into_iter()
            .flat_map(|table| table.objects.values())
            .map(|object| Value::clone(object))
            .collect()
    }

    /// All objects of a resource, where they are.
    pub fn objects(&self, group: &str, resource: &str) -> impl Iterator<Item = &Value> {
        let table = self.store.table(&(group.to_owned(), resource.to_owned()));
        table.into_iter().flat_map(|table| table.objects.values()).map(|object| &**object)
    }

    /// One object, where it is.
    #[must_use]
    pub fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        let key = (namespace.to_owned(), name.to_owned());
        self.store.get(&(group.to_owned(), resource.to_owned()), &key).map(|object| &**object)
    }

    /// The objects of a resource that were written since a revision, as each write left them: of a deleted one its last
    /// state.
    pub fn written_since(&self, group: &str, resource: &str, revision: u64) -> impl Iterator<Item = &Value> {
        let table = self.store.table(&(group.to_owned(), resource.to_owned()));
        table.into_iter().flat_map(move |table| table.since(revision)).map(|event| &*event.new)
    }

    /// One object.
    #[must_use]
    pub fn get_raw(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let key = (namespace.to_owned(), name.to_owned());
        self.store.get(&(group.to_owned(), resource.to_owned()), &key).map(|object| Value::clone(object))
    }

    /// Creates an object in the namespace that it names; on refusal the Status.
    pub fn controller_create(
        &mut self,
        group: &str,
        resource: &str,
        object: Value,
        now: Timestamp,
    ) -> std::result::Result<Value, Value> {
        let namespace = metadata::text(&object, "namespace").to_owned();
        self.controller_call(Method::POST, [group, resource, &namespace, "", ""], object, now)
    }

    /// Replaces an object; its resourceVersion makes sure that nobody else has meanwhile.
    pub fn controller_update(
        &mut self,
        group: &str,
        resource: &str,
        object: Value,
        now: Timestamp,
    ) -> std::result::Result<Value, Value> {
        let (namespace, name) = (metadata::text(&object, "namespace"), metadata::text(&object, "name"));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.controller_call(Method::PUT, [group, resource, &namespace, &name, ""], object, now)
    }

    /// Replaces an object's status.
    pub fn controller_update_status(
        &mut self,
        group: &str,
        resource: &str,
        object: Value,
        now: Timestamp,
    ) -> std::result::Result<Value, Value> {
        let (namespace, name) = (metadata::text(&object, "namespace"), metadata::text(&object, "name"));
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.controller_call(Method::PUT, [group, resource, &namespace, &name, "/status"], object, now)
    }

    /// Deletes an object.
    pub fn controller_delete(
        &mut self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
        now: Timestamp,
    ) -> std::result::Result<Value, Value> {
        self.controller_call(Method::DELETE, [group, resource, namespace, name, ""], json!({}), now)
    }

    fn controller_call(
        &mut self,
        method: Method,
        [group, resource, namespace, name, part]: [&str; 5],
        mut body: Value,
        now: Timestamp,
    ) -> std::result::Result<Value, Value> {
        let served = self.resource_of(&(group.to_owned(), resource.to_owned()));
        let version = served.map_or_else(|| "v1".to_owned(), |served| served.version.clone());
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let within = if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
        let name = if name.is_empty() { String::new() } else { format!("/{name}") };
        if body.get("apiVersion").is_some() {
            body["apiVersion"] = kinds::api_version(group, &version).into();
        }
        let request = Request {
            method,
            path: format!("{root}{within}/{resource}{name}{part}"),
            query: String::new(),
            content_type: "application/json".to_owned(),
            body: body.to_string().into(),
            user: CONTROLLER.to_owned(),
            agent: "kube-controller-manager".to_owned(),
        };
        match self.handle(&request, now) {
            Answer::Whole { status: 200..300, body } => Ok(body),
            Answer::Whole { body, .. } => Err(body),
            Answer::Watch { .. } => Err(Value::Null),
        }
    }
}

/// The controllers of workloads write as any other does. A refusal is theirs to live with: they look again.
impl Objects for Server {
    fn list(&self, group: &str, resource: &str) -> Vec<Arc<Value>> {
        let table = self.store.table(&(group.to_owned(), resource.to_owned()));
        table.into_iter().flat_map(|table| table.objects.values()).cloned().collect()
    }

    fn create(&mut self, group: &str, resource: &str, object: Value, now: Timestamp) {
        let _ = self.controller_create(group, resource, object, now);
    }

    fn update(&mut self, group: &str, resource: &str, object: Value, now: Timestamp) {
        let _ = self.controller_update(group, resource, object, now);
    }

    fn update_status(&mut self, group: &str, resource: &str, object: Value, now: Timestamp) {
        let _ = self.controller_update_status(group, resource, object, now);
    }

    fn delete(&mut self, group: &str, resource: &str, namespace: &str, name: &str, now: Timestamp) {
        let _ = self.controller_delete(group, resource, namespace, name, now);
    }
}
