//! What the step reads.

use std::collections::{BTreeMap, BTreeSet};

use belay_runtime::{
    Failure, Item, Reader, kinds,
    object::{condition, is_available, is_going, text, uid},
};
use event_mesh_kinds::{
    ACTIVATION_FINALIZER, APPLICATION, APPLICATION_MAPPING, BROKER, BROKER_NAME, CHANNEL, EVENT_ACTIVATION,
    HTTP_SOURCE, INJECTION_LABEL, KNATIVE_SUBSCRIPTION, LEGACY_SUBSCRIPTION, LINK_APPLICATION_LABEL,
    LINK_NAMESPACE_LABEL, SERVICE_BINDING, SERVICE_CLASS, SERVICE_INSTANCE, SERVICE_PLAN, is_legacy, ready,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Args,
    catalog::{Catalog, Offer, services},
};

/// A namespace, and a name in it or an Application that is linked to it.
pub(crate) type Place = (String, String);

/// All that the step read before it decided.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The namespaces that are covered, by name.
    pub namespaces: BTreeMap<String, Item>,
    /// Whether an Application is being deleted, by name.
    pub applications: BTreeMap<String, bool>,
    /// The instances that are there for the events of an Application, in the order of their names.
    pub instances: Vec<Instance>,
    /// The `EventActivations` in the covered namespaces, by namespace and name. The name is the id of a service.
    pub activations: BTreeMap<Place, Activation>,
    /// The Knative Subscriptions that link, by namespace and Application.
    pub links: BTreeMap<Place, Vec<Link>>,
    /// Names of Knative Subscriptions that begin as those of links and are none of a pair.
    pub taken: BTreeSet<String>,
    /// Namespaces that have a Broker, and whether it is Ready.
    pub brokers: BTreeMap<String, bool>,
    /// Namespaces and the Applications whose services may be used there; none where that is not restricted.
    pub mappings: Option<BTreeSet<Place>>,
    /// Applications whose source is Ready.
    pub sources: BTreeSet<String>,
    /// Applications whose Channel is Ready.
    pub channels: BTreeSet<String>,
    /// Legacy Subscriptions that worked when the step began, by namespace and source.
    pub legacy: BTreeMap<Place, Vec<String>>,
    /// Whether the subscription controller is available; none if it does not exist.
    pub controller_available: Option<bool>,
    /// When an earlier attempt opened the journal that is being resumed.
    pub opened: Option<Timestamp>,
    /// The namespace of Channels and links does not exist.
    pub integration_missing: bool,
}

/// An instance that is there for the events of an Application.
// Each is a fact of its own about it, and any of them may hold together.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Debug)]
pub struct Instance {
    /// Itself.
    pub item: Item,
    /// Its Application.
    pub application: String,
    /// The id of its service, which is the name of its `EventActivation`.
    pub service: String,
    /// An Application has that service, still.
    pub offered: bool,
    /// Its class is in its namespace, still: without it nothing can be provisioned.
    pub in_catalog: bool,
    /// A person left it out with `--exclude`.
    pub excluded: bool,
    /// A `ServiceBinding` uses it.
    pub bound: bool,
    /// How far the catalog has come with it.
    pub state: State,
    /// An earlier attempt has recreated it.
    pub recreated: bool,
}

/// How far the catalog has come with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is at it.
    Pending,
    /// It is done.
    Provisioned,
    /// It has given up, for good.
    Failed,
}

/// An `EventActivation`.
#[derive(Clone, Debug)]
pub struct Activation {
    /// Itself.
    pub item: Item,
    /// The Application whose events it activates.
    pub source: String,
    /// Names of the instances that own it.
    pub owners: Vec<String>,
    /// The old bus holds it by a finalizer.
    pub held: bool,
    /// It was made after an earlier attempt had begun.
    pub is_new: bool,
}

/// A Knative Subscription from an Application to a namespace.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// It works.
    pub ready: bool,
}

impl Instance {
    /// Whether an earlier attempt has deleted it. One that is only in the journal, and still as it was, is not begun: all
    /// pre-images are stored before the first move.
    pub(crate) fn is_half_way(&self) -> bool {
        self.item.is_journalled() && (self.recreated || !self.item.is_there())
    }
}

impl Snapshot {
    /// The links from an Application to a namespace.
    pub(crate) fn links(&self, pair: &Place) -> &[Link] {
        self.links.get(pair).map_or(&[], Vec::as_slice)
    }

    /// Whether all that the mesh needs to reach a namespace from an Application is there, Ready or not.
    pub(crate) fn is_present(&self, pair: &Place) -> bool {
        self.links(pair).len() == 1
            && self.brokers.contains_key(&pair.0)
            && self.namespaces.get(&pair.0).and_then(Item::live).is_some_and(|live| is_injected(&live))
    }

    /// Whether the mesh reaches a namespace from an Application.
    pub(crate) fn is_linked(&self, pair: &Place) -> bool {
        self.is_present(pair)
            && self.links(pair).iter().all(|link| link.ready)
            && self.brokers.get(&pair.0) == Some(&true)
    }

    /// Whether a namespace is being deleted: all in it goes too.
    pub(crate) fn is_leaving(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(Item::is_going)
    }
}

pub(crate) async fn read(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
    let opened = reader.journal_opened().and_then(|time| time.parse().ok());
    let integration = Some(args.integration_namespace.as_str());
    let (controller_namespace, controller) = &args.subscription_controller;
    let controller = reader.get(&kinds::DEPLOYMENT.object(controller_namespace, controller)).await?;
    let namespace = reader.get(&kinds::NAMESPACE.cluster_object(&args.integration_namespace)).await?;
    let mut snapshot = Snapshot {
        brokers: reader.scan(&BROKER, None, broker).await?.into_iter().collect(),
        sources: reader.scan(&HTTP_SOURCE, integration, name_if_ready).await?.into_iter().collect(),
        channels: reader.scan(&CHANNEL, integration, name_if_ready).await?.into_iter().collect(),
        controller_available: controller.live().as_ref().map(is_available),
        opened,
        integration_missing: namespace.live().is_none(),
        ..Snapshot::default()
    };
    for item in reader.list(&kinds::NAMESPACE, None).await? {
        if args.namespaces.contain(&item.object.name) {
            snapshot.namespaces.insert(item.object.name.clone(), item);
        }
    }
    for subscription in reader.scan(&KNATIVE_SUBSCRIPTION, integration, link_or_name).await? {
        match subscription {
            Ok((pair, link)) => snapshot.links.entry(pair).or_default().push(link),
            Err(name) => drop(snapshot.taken.insert(name)),
        }
    }
    if reader.is_served(&APPLICATION_MAPPING) {
        let mappings = reader.scan(&APPLICATION_MAPPING, None, named).await?;
        snapshot.mappings = Some(mappings.into_iter().collect());
    }
    if reader.is_served(&LEGACY_SUBSCRIPTION) {
        let worked = reader.scan(&LEGACY_SUBSCRIPTION, None, |object| worked(args, object, opened)).await?;
        for (source, name) in worked {
            snapshot.legacy.entry(source).or_default().push(name);
        }
    }
    for item in reader.list(&EVENT_ACTIVATION, None).await? {
        if let (Some(place), Some(live)) = (place(args, &item), item.live()) {
            snapshot.activations.insert(place, activation(item, &live, opened));
        }
    }
    let catalog = read_catalog(reader, &mut snapshot).await?;
    let bound: BTreeSet<Place> =
        reader.scan(&SERVICE_BINDING, None, bound_instance).await?.into_iter().collect();
    for item in reader.list(&SERVICE_INSTANCE, None).await? {
        let Some(place) = place(args, &item) else { continue };
        let (origin, live) = (item.origin(), item.live().unwrap_or_default());
        let Some(purpose) = catalog.purpose(&place, &origin["spec"], &snapshot.activations) else { continue };
        snapshot.instances.push(Instance {
            application: purpose.application,
            service: purpose.service,
            offered: purpose.offered,
            in_catalog: purpose.in_catalog,
            excluded: reader.is_excluded(&item.object),
            bound: bound.contains(&place),
            state: state(&live),
            recreated: item.is_there() && item.is_journalled() && uid(&live) != uid(&origin),
            item,
        });
    }
    Ok(snapshot)
}

async fn read_catalog(reader: &Reader, snapshot: &mut Snapshot) -> Result<Catalog, Failure> {
    let mut catalog = Catalog::default();
    let application = |object: &Value| {
        let name = owned(object, "/metadata/name")?;
        Some((name, is_going(object), services(object)))
    };
    for (name, going, services) in reader.scan(&APPLICATION, None, application).await? {
        for (id, events) in services {
            catalog.services.insert(id, (name.clone(), events));
        }
        snapshot.applications.insert(name, going);
    }
    for (namespace, class) in reader.scan(&SERVICE_CLASS, None, Offer::of).await? {
        catalog.classes.entry(namespace).or_default().push(class);
    }
    // Most plans are no service, and there may be thousands. One whose service is gone is known by its EventActivation.
    let (services, activations) = (&catalog.services, &snapshot.activations);
    let of_service = |object: &Value| {
        let (namespace, plan) = Offer::of(object)?;
        let place = (namespace, plan.id.clone());
        let counts = services.contains_key(&plan.id) || activations.contains_key(&place);
        counts.then_some((place.0, plan))
    };
    for (namespace, plan) in reader.scan(&SERVICE_PLAN, None, of_service).await? {
        catalog.plans.entry(namespace).or_default().push(plan);
    }
    Ok(catalog)
}

/// The text at a JSON pointer, to keep.
pub(crate) fn owned(object: &Value, pointer: &str) -> Option<String> {
    text(object, pointer).map(str::to_owned)
}

/// Where an object is, if that namespace is covered.
fn place(args: &Args, item: &Item) -> Option<Place> {
    let namespace = item.object.namespace.clone().filter(|namespace| args.namespaces.contain(namespace))?;
    Some((namespace, item.object.name.clone()))
}

/// Whether something happened after an earlier attempt had begun.
fn is_since(object: &Value, pointer: &str, opened: Option<Timestamp>) -> bool {
    let time = text(object, pointer).and_then(|time| time.parse::<Timestamp>().ok());
    matches!((time, opened), (Some(time), Some(opened)) if time >= opened)
}

fn activation(item: Item, live: &Value, opened: Option<Timestamp>) -> Activation {
    let list = |pointer: &str| live.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    let owners = list("/metadata/ownerReferences").filter(|owner| is_instance(owner));
    Activation {
        source: owned(live, "/spec/sourceId").unwrap_or_default(),
        owners: owners.filter_map(|owner| owned(owner, "/name")).collect(),
        held: list("/metadata/finalizers").any(|name| name == ACTIVATION_FINALIZER),
        is_new: is_since(live, "/metadata/creationTimestamp", opened),
        item,
    }
}

/// Whether an owner reference names a `ServiceInstance`, of whichever version.
pub(crate) fn is_instance(owner: &Value) -> bool {
    let group =
        text(owner, "/apiVersion").and_then(|version| version.split_once('/')).map(|(group, _)| group);
    text(owner, "/kind") == Some(SERVICE_INSTANCE.kind) && group == Some(SERVICE_INSTANCE.group)
}

/// Whether a namespace has the label by which it gets its Broker.
pub(crate) fn is_injected(namespace: &Value) -> bool {
    label(namespace, INJECTION_LABEL) == Some("enabled")
}

fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels")?.get(key)?.as_str()
}

fn state(instance: &Value) -> State {
    if has_failed(instance).is_some() {
        State::Failed
    } else if text(instance, "/status/provisionStatus") == Some("Provisioned") {
        State::Provisioned
    } else {
        State::Pending
    }
}

/// Why the catalog gave up on an instance, if it did: it never tries again.
pub(crate) fn has_failed(instance: &Value) -> Option<String> {
    let failed = condition(instance, "Failed").filter(|failed| text(failed, "/status") == Some("True"))?;
    let why = [text(failed, "/reason"), text(failed, "/message")];
    Some(why.into_iter().flatten().collect::<Vec<_>>().join(": "))
}

/// Namespace and name of an object.
fn named(object: &Value) -> Option<Place> {
    Some((owned(object, "/metadata/namespace")?, owned(object, "/metadata/name")?))
}

fn bound_instance(binding: &Value) -> Option<Place> {
    Some((owned(binding, "/metadata/namespace")?, owned(binding, "/spec/instanceRef/name")?))
}

/// Namespace of a Broker that events of the mesh go to, and whether it is Ready. One that is being deleted takes none.
fn broker(broker: &Value) -> Option<(String, bool)> {
    let (namespace, name) = named(broker)?;
    (name == BROKER_NAME && !is_going(broker)).then(|| (namespace, ready().holds(Some(broker))))
}

fn name_if_ready(object: &Value) -> Option<String> {
    ready().holds(Some(object)).then(|| owned(object, "/metadata/name")).flatten()
}

/// What begins the names of links.
pub(crate) const LINK_PREFIX: &str = "brokersub-";

/// A link, or the name of something else that bears one of a link.
fn link_or_name(object: &Value) -> Option<Result<(Place, Link), String>> {
    let name = owned(object, "/metadata/name")?;
    if let Some(pair) = linked_pair(object) {
        return Some(Ok((pair, Link { name, ready: ready().holds(Some(object)) })));
    }
    (name.starts_with(LINK_PREFIX) && !is_going(object)).then_some(Err(name))
}

/// The namespace and the Application that a Knative Subscription links. One that is being deleted links nothing.
pub(crate) fn linked_pair(subscription: &Value) -> Option<Place> {
    let of = |key: &str| label(subscription, key).map(str::to_owned);
    Some((of(LINK_NAMESPACE_LABEL)?, of(LINK_APPLICATION_LABEL)?)).filter(|_| !is_going(subscription))
}

/// A legacy Subscription that works, or that stopped only after an earlier attempt had begun.
fn worked(args: &Args, object: &Value, opened: Option<Timestamp>) -> Option<(Place, String)> {
    let namespace =
        owned(object, "/metadata/namespace").filter(|namespace| args.namespaces.contain(namespace))?;
    let stopped =
        condition(object, "is-ready").is_some_and(|is| is_since(is, "/last_transition_time", opened));
    if !is_legacy(object) || is_going(object) || !(delivers(object) || stopped) {
        return None;
    }
    Some(((namespace, owned(object, "/spec/source_id")?), owned(object, "/metadata/name")?))
}

/// Whether a legacy Subscription says that it works.
pub(crate) fn delivers(subscription: &Value) -> bool {
    condition(subscription, "is-ready").and_then(|is| text(is, "/status")) == Some("True")
}
