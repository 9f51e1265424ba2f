//! A witness of delivery: did every event have a way to its subscriber, at every moment?
//!
//! It watches every object of both paths, and afterwards goes through all that was seen in the order in which the API
//! server did it: resource versions count the changes of the whole cluster, so that what happened to objects of
//! different kinds is never seen the wrong way round.

// A witness is the last line of a test: it says what went wrong by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::missing_panics_doc)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use kube::{
    Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{Config, Error, Event, watcher},
    },
};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::{
    cluster::wait_until,
    kinds::{
        BROKER, CHANNEL, DEPLOYMENT, EVENT_ACTIVATION, HTTP_SOURCE, KNATIVE_SUBSCRIPTION, Kind,
        LEGACY_SUBSCRIPTION, TRIGGER,
    },
    landscape::{Scene, State, Subscription},
    seed::{INTEGRATION, SYSTEM},
};

/// By then every watch has told what has happened, also on a machine that is busy.
const SOON: Duration = Duration::from_secs(180);

/// Everything that an event passes on either path.
const KINDS: [Kind; 8] = [
    BROKER,
    CHANNEL,
    DEPLOYMENT,
    EVENT_ACTIVATION,
    HTTP_SOURCE,
    KNATIVE_SUBSCRIPTION,
    LEGACY_SUBSCRIPTION,
    TRIGGER,
];

/// The entrance of the old bus.
const PUBLISH_SERVICE: &str = "event-bus-event-publish-service";

/// The argument by which an event-service feeds the mesh.
const MESH_URL: &str = "--eventMeshURL=";

/// Events of one kind, and where they are to arrive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The subscriber's namespace.
    pub namespace: String,
    /// The Application that sends them.
    pub source: String,
    /// Their type.
    pub event_type: String,
    /// The type's version.
    pub version: String,
    /// The subscriber.
    pub endpoint: String,
    /// Whether its Application sends straight to the mesh. Else its event-service decides where its events go.
    pub direct: bool,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} of {} to {} in namespace {}",
            self.event_type, self.version, self.source, self.endpoint, self.namespace
        )
    }
}

impl Route {
    /// The routes of all subscribers of a scene.
    #[must_use]
    pub fn of(scene: &Scene) -> Vec<Self> {
        let route = |subscription: &Subscription| Self {
            namespace: subscription.namespace.clone(),
            source: subscription.application.clone(),
            event_type: subscription.event_type.clone(),
            version: "v1".to_owned(),
            endpoint: subscription.endpoint.clone(),
            // The old bus would not know whom to give them to.
            direct: subscription.state == State::TriggerOnly,
        };
        scene.subscriptions.iter().map(route).collect()
    }
}

/// A time in which events of a route had nowhere to go.
#[derive(Debug)]
pub struct Gap {
    /// Whose events.
    pub route: Route,
    /// How long.
    pub lasted: Duration,
    /// What was missing when it began.
    pub why: String,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: no way for {:.1} s: {}", self.route, self.lasted.as_secs_f64(), self.why)
    }
}

/// Watches from now on.
pub struct Witness {
    client: Client,
    routes: Vec<Route>,
    seen: Arc<Mutex<Record>>,
    tasks: Vec<JoinHandle<()>>,
}

/// One change.
#[derive(Clone)]
struct Seen {
    version: u64,
    at: Instant,
    key: Key,
    /// None: it is gone.
    object: Option<Value>,
    /// It was there when we began.
    first: bool,
}

/// Resource, namespace and name: two groups have a kind Subscription.
type Key = (String, String, String);

impl Witness {
    /// Begins to watch, and returns when everything has been seen once.
    pub async fn begin(client: &Client, routes: Vec<Route>) -> Self {
        let seen = Arc::new(Mutex::new(Record::default()));
        let mut ready = Vec::new();
        let mut tasks = Vec::new();
        for kind in KINDS {
            let (tell, told) = tokio::sync::oneshot::channel();
            ready.push(told);
            tasks.push(tokio::spawn(watch(client.clone(), kind, seen.clone(), tell)));
        }
        for told in ready {
            told.await.expect("a watch ended before it began");
        }
        Self { client: client.clone(), routes, seen, tasks }
    }

    /// Waits until every route has a complete path again, as far as was seen.
    pub async fn until_whole(&self) {
        wait_until("every route has a complete path", SOON, async || {
            let seen = self.seen.lock().unwrap();
            let mut seen: Vec<&Seen> = seen.0.iter().collect();
            seen.sort_by_key(|change| (!change.first, change.version));
            let mut world = World::default();
            for change in seen {
                world.learn(change);
            }
            Ok(self.routes.iter().all(|route| world.covers(route).is_ok()))
        })
        .await
        .unwrap();
    }

    /// Ends it: every time in which a route had no complete path.
    pub async fn end(self) -> Vec<Gap> {
        for kind in KINDS {
            let list = match kind.everywhere(&self.client).list(&ListParams::default()).await {
                // Its CRD was deleted meanwhile.
                Err(kube::Error::Api(status)) if status.code == 404 => continue,
                list => list.unwrap(),
            };
            let read: u64 = list.metadata.resource_version.unwrap_or_default().parse().unwrap();
            let there = list.items.iter().map(|object| (key(&kind, object), version(object))).collect();
            wait_until(&format!("the witness has seen all of {}", kind.plural), SOON, async || {
                Ok(self.seen.lock().unwrap().has_seen(&resource(&kind), read, &there))
            })
            .await
            .unwrap();
        }
        for task in &self.tasks {
            task.abort();
        }
        let seen = self.seen.lock().unwrap();
        gaps(&self.routes, &seen.0)
    }
}

/// All that was seen, in the order of arrival.
#[derive(Default)]
struct Record(Vec<Seen>);

impl Record {
    /// The newest that is known of each object: its version, and whether it is there.
    fn latest(&self) -> BTreeMap<&Key, (u64, bool)> {
        let mut latest = BTreeMap::new();
        for change in &self.0 {
            let newer = (change.version, change.object.is_some());
            let known = latest.entry(&change.key).or_insert(newer);
            if newer.0 >= known.0 {
                *known = newer;
            }
        }
        latest
    }

    /// A watch that broke has listed a resource anew: what is not in the list is gone. When it went nobody has seen; from
    /// all that was seen so far on it counts as gone.
    fn relisted(&mut self, resource: &str, there: &BTreeSet<Key>) {
        let version = self.0.iter().map(|change| change.version).max().unwrap_or_default();
        let is_lost = |key: &Key, is_there: bool| key.0 == resource && is_there && !there.contains(key);
        let latest = self.latest().into_iter();
        let lost: Vec<Key> = latest
            .filter(|(key, (_, is_there))| is_lost(key, *is_there))
            .map(|(key, _)| key.clone())
            .collect();
        let gone = |key| Seen { version, at: Instant::now(), key, object: None, first: false };
        self.0.extend(lost.into_iter().map(gone));
    }

    /// Whether all of a resource that a list read at this version showed has been seen, and that the rest is gone. Whatever
    /// was changed since is newer than the list.
    fn has_seen(&self, resource: &str, read: u64, there: &BTreeMap<Key, u64>) -> bool {
        let latest = self.latest();
        let all = there.iter().all(|(key, version)| latest.get(key).is_some_and(|(seen, _)| seen >= version));
        let mut of_it = latest.iter().filter(|(key, _)| key.0 == resource);
        all && of_it
            .all(|(key, (version, is_there))| !is_there || *version > read || there.contains_key(*key))
    }
}

fn resource(kind: &Kind) -> String {
    format!("{}.{}", kind.plural, kind.group)
}

fn key(kind: &Kind, object: &DynamicObject) -> Key {
    (resource(kind), object.namespace().unwrap_or_default(), object.name_any())
}

fn version(object: &DynamicObject) -> u64 {
    object
        .resource_version()
        .and_then(|version| version.parse().ok())
        .expect("a resource version is a number")
}

async fn watch(
    client: Client,
    kind: Kind,
    seen: Arc<Mutex<Record>>,
    ready: tokio::sync::oneshot::Sender<()>,
) {
    let mut ready = Some(ready);
    let mut listed = BTreeSet::new();
    let mut changes = pin!(watcher(kind.everywhere(&client), Config::default()).default_backoff());
    while let Some(change) = changes.next().await {
        let (object, there) = match change {
            Ok(Event::Init) => {
                listed.clear();
                continue;
            }
            Ok(Event::InitApply(object)) => {
                listed.insert(key(&kind, &object));
                (object, true)
            }
            Ok(Event::InitDone) => {
                seen.lock().unwrap().relisted(&resource(&kind), &listed);
                if let Some(ready) = ready.take() {
                    let _ = ready.send(());
                }
                continue;
            }
            Ok(Event::Apply(object)) => (object, true),
            Ok(Event::Delete(object)) => (object, false),
            // With its CRD all its objects went.
            Err(Error::InitialListFailed(kube::Error::Api(status))) if status.code == 404 => {
                seen.lock().unwrap().relisted(&resource(&kind), &BTreeSet::new());
                continue;
            }
            // A watch that breaks is taken up again by itself.
            Err(_) => continue,
        };
        let change = Seen {
            version: version(&object),
            at: Instant::now(),
            key: key(&kind, &object),
            object: there.then(|| serde_json::to_value(&object).unwrap()),
            first: ready.is_some(),
        };
        seen.lock().unwrap().0.push(change);
    }
}

/// Goes through what was seen, in the order in which it happened.
fn gaps(routes: &[Route], seen: &[Seen]) -> Vec<Gap> {
    let mut seen: Vec<&Seen> = seen.iter().collect();
    seen.sort_by_key(|change| (!change.first, change.version));
    let mut world = World::default();
    let mut open: BTreeMap<&Route, (Instant, String)> = BTreeMap::new();
    let mut found = Vec::new();
    for (index, change) in seen.iter().enumerate() {
        world.learn(change);
        if seen.get(index + 1).is_some_and(|next| next.first) {
            continue;
        }
        for route in routes {
            match (world.covers(route), open.contains_key(route)) {
                (Err(why), false) => {
                    open.insert(route, (change.at, why));
                }
                (Ok(()), true) => {
                    if let Some((since, why)) = open.remove(route) {
                        found.push(Gap {
                            route: route.clone(),
                            lasted: change.at.saturating_duration_since(since),
                            why,
                        });
                    }
                }
                _ => {}
            }
        }
    }
    found.extend(open.into_iter().map(|(route, (since, why))| Gap {
        route: route.clone(),
        lasted: since.elapsed(),
        why: format!("{why}, to the end"),
    }));
    found
}

/// The objects at one moment.
#[derive(Default)]
struct World(BTreeMap<Key, Value>);

impl World {
    fn learn(&mut self, change: &Seen) {
        match &change.object {
            Some(object) => self.0.insert(change.key.clone(), object.clone()),
            None => self.0.remove(&change.key),
        };
    }

    fn all<'a>(&'a self, kind: &Kind, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
        let resource = resource(kind);
        self.0
            .iter()
            .filter(move |((of, within, _), _)| *of == resource && within == namespace)
            .map(|(_, object)| object)
    }

    fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Option<&Value> {
        self.0.get(&(resource(kind), namespace.to_owned(), name.to_owned()))
    }

    /// An event takes the path that its Application's event-service feeds; while pods of both versions run, either.
    fn covers(&self, route: &Route) -> Result<(), String> {
        if route.direct {
            return self.mesh(route);
        }
        let name = format!("{}-event-service", route.source);
        let service =
            self.get(&DEPLOYMENT, INTEGRATION, &name).ok_or(format!("there is no Deployment {name}"))?;
        match (is_rolled(service), feeds_mesh(service)) {
            (true, false) => self.legacy(route),
            (true, true) => self.mesh(route),
            (false, _) => self.legacy(route).and_then(|()| self.mesh(route)),
        }
    }

    fn legacy(&self, route: &Route) -> Result<(), String> {
        let missing = |what: &str| Err(format!("on the old path {what}"));
        let publishes = |service: &Value| service["status"]["availableReplicas"].as_u64() > Some(0);
        if !self.get(&DEPLOYMENT, SYSTEM, PUBLISH_SERVICE).is_some_and(publishes) {
            return missing("the publish service does not run");
        }
        let activated = self
            .all(&EVENT_ACTIVATION, &route.namespace)
            .any(|activation| stays(activation) && activation["spec"]["sourceId"] == route.source);
        if !activated {
            return missing("there is no EventActivation");
        }
        let subscribed = self.all(&LEGACY_SUBSCRIPTION, &route.namespace).any(|subscription| {
            let spec = &subscription["spec"];
            stays(subscription)
                && holds(subscription, "is-ready")
                && spec["source_id"] == route.source
                && spec["event_type"] == route.event_type
                && spec["event_type_version"] == route.version
                && spec["endpoint"] == route.endpoint
        });
        if subscribed { Ok(()) } else { missing("there is no legacy Subscription that is ready") }
    }

    fn mesh(&self, route: &Route) -> Result<(), String> {
        let ready =
            |object: Option<&Value>| object.is_some_and(|object| stays(object) && holds(object, "Ready"));
        let parts = [
            ("HTTPSource", ready(self.get(&HTTP_SOURCE, INTEGRATION, &route.source))),
            ("Channel", ready(self.get(&CHANNEL, INTEGRATION, &route.source))),
            ("Broker", ready(self.get(&BROKER, &route.namespace, "default"))),
            (
                "Knative Subscription",
                self.all(&KNATIVE_SUBSCRIPTION, INTEGRATION).any(|link| {
                    let labels = &link["metadata"]["labels"];
                    labels["broker-namespace"] == route.namespace
                        && labels["application-name"] == route.source
                        && ready(Some(link))
                }),
            ),
            (
                "Trigger",
                self.all(&TRIGGER, &route.namespace).any(|trigger| {
                    let attributes = &trigger["spec"]["filter"]["attributes"];
                    trigger["spec"]["broker"] == "default"
                        && attributes["source"] == route.source
                        && attributes["type"] == route.event_type
                        && attributes["eventtypeversion"] == route.version
                        && trigger["spec"]["subscriber"]["uri"] == route.endpoint
                        && ready(Some(trigger))
                }),
            ),
        ];
        match parts.into_iter().find(|(_, there)| !there) {
            Some((what, _)) => Err(format!("on the mesh there is no {what} that is Ready")),
            None => Ok(()),
        }
    }
}

/// Whether nobody has asked to delete it.
fn stays(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_null()
}

fn holds(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|found| found["type"] == condition && found["status"] == "True")
}

/// Whether an event-service sends what it gets to the mesh.
fn feeds_mesh(service: &Value) -> bool {
    let container = &service["spec"]["template"]["spec"]["containers"][0];
    let words = ["command", "args"].into_iter().filter_map(|field| container[field].as_array()).flatten();
    words.filter_map(Value::as_str).any(|word| word.starts_with(MESH_URL))
}

/// Whether all pods of a Deployment are of its newest version.
fn is_rolled(service: &Value) -> bool {
    let status = &service["status"];
    let number = |field: &str| status[field].as_u64().unwrap_or_default();
    number("observedGeneration") >= service["metadata"]["generation"].as_u64().unwrap_or_default()
        && number("availableReplicas") > 0
        && number("updatedReplicas") == number("replicas")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SHOP: &str = "shop";
    const COMMERCE: &str = "commerce";
    const ENDPOINT: &str = "http://orders.shop:8080/";

    fn route() -> Route {
        Route {
            namespace: SHOP.to_owned(),
            source: COMMERCE.to_owned(),
            event_type: "order.created".to_owned(),
            version: "v1".to_owned(),
            endpoint: ENDPOINT.to_owned(),
            direct: false,
        }
    }

    fn ready(condition: &str) -> Value {
        json!({"conditions": [{"type": condition, "status": "True"}]})
    }

    /// The Application's event-service: how many of its two pods are new, and whether the new ones feed the mesh.
    fn event_service(updated: u64, feeds_mesh: bool) -> Value {
        let arguments = if feeds_mesh { json!([format!("{MESH_URL}http://commerce")]) } else { json!([]) };
        json!({
            "metadata": {"generation": 2},
            "spec": {"template": {"spec": {"containers": [{"args": arguments}]}}},
            "status": {
                "observedGeneration": 2, "replicas": 2, "availableReplicas": 2, "updatedReplicas": updated,
            },
        })
    }

    fn trigger() -> Value {
        let attributes = json!({"source": COMMERCE, "type": "order.created", "eventtypeversion": "v1"});
        json!({
            "spec": {
                "broker": "default", "filter": {"attributes": attributes}, "subscriber": {"uri": ENDPOINT},
            },
            "status": ready("Ready"),
        })
    }

    /// What is seen, in the order of arrival; versions count up by ten.
    struct Story(Record);

    impl Story {
        /// Both paths are complete when the witness begins, and events take the old one.
        fn of_both_paths() -> Self {
            let mut story = Self(Record::default());
            let spec = json!({
                "source_id": COMMERCE, "event_type": "order.created", "event_type_version": "v1",
                "endpoint": ENDPOINT,
            });
            let labels = json!({"broker-namespace": SHOP, "application-name": COMMERCE});
            let works = json!({"status": ready("Ready")});
            story.now(&DEPLOYMENT, INTEGRATION, "commerce-event-service", &event_service(2, false));
            story.now(&DEPLOYMENT, SYSTEM, PUBLISH_SERVICE, &json!({"status": {"availableReplicas": 1}}));
            story.now(&EVENT_ACTIVATION, SHOP, "events", &json!({"spec": {"sourceId": COMMERCE}}));
            let subscription = json!({"spec": spec, "status": ready("is-ready")});
            story.now(&LEGACY_SUBSCRIPTION, SHOP, "orders", &subscription);
            story.now(&HTTP_SOURCE, INTEGRATION, COMMERCE, &works);
            story.now(&CHANNEL, INTEGRATION, COMMERCE, &works);
            story.now(&BROKER, SHOP, "default", &works);
            let link = json!({"metadata": {"labels": labels}, "status": ready("Ready")});
            story.now(&KNATIVE_SUBSCRIPTION, INTEGRATION, "brokersub-1", &link);
            story.now(&TRIGGER, SHOP, "orders", &trigger());
            story.0.0.iter_mut().for_each(|change| change.first = true);
            story
        }

        /// The same when events take the mesh.
        fn of_the_mesh() -> Self {
            let mut story = Self::of_both_paths();
            story.now(&DEPLOYMENT, INTEGRATION, "commerce-event-service", &event_service(2, true));
            story
        }

        fn next(&self) -> u64 {
            10 + self.0.0.iter().map(|change| change.version).max().unwrap_or_default()
        }

        fn see(&mut self, version: u64, kind: &Kind, namespace: &str, name: &str, object: Option<&Value>) {
            let key = (resource(kind), namespace.to_owned(), name.to_owned());
            let (at, object) = (Instant::now(), object.cloned());
            self.0.0.push(Seen { version, at, key, object, first: false });
        }

        fn now(&mut self, kind: &Kind, namespace: &str, name: &str, object: &Value) {
            self.see(self.next(), kind, namespace, name, Some(object));
        }

        fn gone(&mut self, kind: &Kind, namespace: &str, name: &str) {
            self.see(self.next(), kind, namespace, name, None);
        }

        fn rolls(&mut self, updated: u64) {
            let service = event_service(updated, true);
            self.now(&DEPLOYMENT, INTEGRATION, "commerce-event-service", &service);
        }

        fn gaps(&self) -> Vec<String> {
            gaps(&[route()], &self.0.0).into_iter().map(|gap| gap.why).collect()
        }
    }

    #[test]
    fn events_that_always_have_a_way_have_no_gap() {
        let mut story = Story::of_both_paths();
        assert_eq!(story.gaps(), Vec::<String>::new());
        // What the old path needs may go when all event-services feed the mesh.
        story.rolls(1);
        story.rolls(2);
        story.gone(&LEGACY_SUBSCRIPTION, SHOP, "orders");
        story.gone(&DEPLOYMENT, SYSTEM, PUBLISH_SERVICE);
        assert_eq!(story.gaps(), Vec::<String>::new());
    }

    #[test]
    fn every_part_of_either_path_that_is_lost_is_a_gap() {
        let parts = [
            (&HTTP_SOURCE, INTEGRATION, COMMERCE),
            (&CHANNEL, INTEGRATION, COMMERCE),
            (&BROKER, SHOP, "default"),
            (&KNATIVE_SUBSCRIPTION, INTEGRATION, "brokersub-1"),
            (&TRIGGER, SHOP, "orders"),
        ];
        for (kind, namespace, name) in parts {
            let mut story = Story::of_the_mesh();
            story.gone(kind, namespace, name);
            assert_eq!(story.gaps().len(), 1, "{}", kind.kind);
            assert!(story.gaps()[0].ends_with("that is Ready, to the end"), "{:?}", story.gaps());
        }
        let parts = [
            (&DEPLOYMENT, SYSTEM, PUBLISH_SERVICE),
            (&EVENT_ACTIVATION, SHOP, "events"),
            (&LEGACY_SUBSCRIPTION, SHOP, "orders"),
            (&DEPLOYMENT, INTEGRATION, "commerce-event-service"),
        ];
        for (kind, namespace, name) in parts {
            let mut story = Story::of_both_paths();
            story.gone(kind, namespace, name);
            assert_eq!(story.gaps().len(), 1, "{}", kind.kind);
        }
    }

    #[test]
    fn a_part_that_does_not_work_or_is_being_deleted_is_a_gap_until_it_works_again() {
        let going = json!({"metadata": {"deletionTimestamp": "now"}, "status": ready("Ready")});
        for broken in [json!({}), going] {
            let mut story = Story::of_the_mesh();
            story.now(&BROKER, SHOP, "default", &broken);
            story.now(&BROKER, SHOP, "default", &json!({"status": ready("Ready")}));
            assert_eq!(story.gaps(), ["on the mesh there is no Broker that is Ready"]);
        }
    }

    #[test]
    fn what_is_missing_from_the_beginning_is_a_gap() {
        let mut story = Story::of_both_paths();
        story.0.0.retain(|change| change.key.0 != resource(&LEGACY_SUBSCRIPTION));
        assert_eq!(story.gaps().len(), 1);
    }

    #[test]
    fn while_an_event_service_rolls_both_paths_must_be_there() {
        for (kind, name) in [(&LEGACY_SUBSCRIPTION, "orders"), (&TRIGGER, "orders")] {
            let mut story = Story::of_both_paths();
            story.rolls(1);
            story.gone(kind, SHOP, name);
            assert_eq!(story.gaps().len(), 1, "{}", kind.kind);
        }
        // Its spec has changed, and its controller has not yet seen it: old pods run.
        let mut story = Story::of_both_paths();
        let mut unseen = event_service(2, true);
        unseen["metadata"]["generation"] = 3.into();
        story.now(&DEPLOYMENT, INTEGRATION, "commerce-event-service", &unseen);
        story.gone(&LEGACY_SUBSCRIPTION, SHOP, "orders");
        assert_eq!(story.gaps().len(), 1);
    }

    #[test]
    fn what_happened_counts_and_not_when_it_was_heard_of() {
        let mut story = Story::of_the_mesh();
        let at = story.next();
        // The new one was there before the old one went.
        story.see(at + 1, &TRIGGER, SHOP, "orders", None);
        story.see(at, &TRIGGER, SHOP, "another", Some(&trigger()));
        assert_eq!(story.gaps(), Vec::<String>::new());
        // And the other way round.
        story.see(at + 4, &TRIGGER, SHOP, "third", Some(&trigger()));
        story.see(at + 3, &TRIGGER, SHOP, "another", None);
        assert_eq!(story.gaps(), ["on the mesh there is no Trigger that is Ready"]);
    }

    #[test]
    fn what_a_new_list_does_not_have_is_gone() {
        let mut story = Story::of_the_mesh();
        let broker: Key = (resource(&BROKER), SHOP.to_owned(), "default".to_owned());
        story.0.relisted(&resource(&BROKER), &BTreeSet::from([broker]));
        assert_eq!(story.gaps(), Vec::<String>::new());
        story.0.relisted(&resource(&BROKER), &BTreeSet::new());
        assert_eq!(story.gaps(), ["on the mesh there is no Broker that is Ready, to the end"]);
        let seen = story.0.0.len();
        story.0.relisted(&resource(&BROKER), &BTreeSet::new());
        assert_eq!(story.0.0.len(), seen, "it has gone once");
        story.now(&BROKER, SHOP, "default", &json!({"status": ready("Ready")}));
        assert_eq!(story.gaps(), ["on the mesh there is no Broker that is Ready"]);
    }

    #[test]
    fn the_end_waits_for_what_was_made_and_for_what_went() {
        let mut story = Story::of_the_mesh();
        let brokers = resource(&BROKER);
        let key = |name: &str| (brokers.clone(), SHOP.to_owned(), name.to_owned());
        let version = story.0.latest()[&key("default")].0;
        let read = story.next();
        let there = |name: &str, version| BTreeMap::from([(key(name), version)]);
        assert!(story.0.has_seen(&brokers, read, &there("default", version)));
        assert!(!story.0.has_seen(&brokers, read, &there("default", version + 1)));
        assert!(!story.0.has_seen(&brokers, read, &BTreeMap::new()), "that it went is not yet heard of");
        story.see(read + 1, &BROKER, SHOP, "newer", Some(&json!({})));
        assert!(story.0.has_seen(&brokers, read, &there("default", version)));
    }
}
