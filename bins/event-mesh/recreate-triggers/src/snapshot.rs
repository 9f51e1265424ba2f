//! What the step reads.

use std::collections::{BTreeMap, BTreeSet};

use belay_runtime::{
    Failure, Item, Reader, kinds,
    object::{is_going, kept_by, text},
};
use event_mesh_kinds::{
    BROKER, BROKER_NAME, LEGACY_SUBSCRIPTION, TRIGGER, is_legacy, ready,
    trigger::{Delivery, Found, body, ownership_marks},
    unclear,
};
use serde_json::Value;

use crate::Args;

/// All that the step read before it decided.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The namespaces that have legacy Subscriptions, by their names.
    pub namespaces: BTreeMap<String, Namespace>,
}

/// A namespace and what counts of it.
#[derive(Clone, Debug, Default)]
pub struct Namespace {
    /// Itself; none for one that is not migrated.
    pub item: Option<Item>,
    /// Whether its Broker `default` is Ready; none if it has none.
    pub broker_ready: Option<bool>,
    /// Its Subscriptions of which nobody can tell whether they are legacy ones, by their names, with the reason.
    pub unclear: BTreeMap<String, &'static str>,
    /// Its legacy Subscriptions, by their names.
    pub subscriptions: BTreeMap<String, Subscription>,
    /// Its Triggers.
    pub triggers: Vec<Found>,
}

/// A legacy Subscription, and no more of it than is needed: there may be thousands.
#[derive(Clone, Debug)]
pub struct Subscription {
    /// What it asks for; else what it lacks, so that nothing can be delivered.
    pub delivery: Result<Delivery, &'static str>,
    /// The Trigger that does the same, as text: parsed it takes five times the room.
    pub body: String,
    /// It is being deleted.
    pub going: bool,
    /// `include_subscription_name_header`: it adds its own name to every delivery.
    pub names_itself: bool,
    /// Who keeps it as it is, by the marks it bears.
    pub keeper: Option<&'static str>,
    /// Marks that its Trigger does not bear.
    pub marks: Vec<String>,
}

impl Subscription {
    /// What counts of a Subscription.
    #[must_use]
    pub fn of(subscription: &Value) -> Self {
        let object = TRIGGER.object_of(subscription);
        Self {
            delivery: Delivery::of_subscription(subscription),
            body: body(&object, subscription).to_string(),
            going: is_going(subscription),
            names_itself: subscription.pointer("/spec/include_subscription_name_header")
                == Some(&Value::Bool(true)),
            keeper: kept_by(subscription),
            marks: ownership_marks(subscription),
        }
    }
}

pub(crate) async fn read(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
    let mut namespaces: BTreeMap<String, Namespace> = BTreeMap::new();
    let subscriptions = reader
        .scan(&LEGACY_SUBSCRIPTION, None, |object| {
            let (namespace, name) = full_name(object)?;
            let found = match unclear(object) {
                Some(why) => Err(why),
                None if is_legacy(object) => Ok(Subscription::of(object)),
                None => return None,
            };
            // What a person left out must not have its namespace labelled either.
            let out = reader.is_excluded(&LEGACY_SUBSCRIPTION.object(&namespace, &name));
            (!out).then_some((namespace, name, found))
        })
        .await?;
    for (namespace, name, found) in subscriptions {
        let namespace = namespaces.entry(namespace).or_default();
        match found {
            Ok(subscription) => drop(namespace.subscriptions.insert(name, subscription)),
            Err(why) => drop(namespace.unclear.insert(name, why)),
        }
    }
    let migrated: BTreeSet<String> =
        namespaces.keys().filter(|name| args.namespaces.contain(name)).cloned().collect();
    if migrated.is_empty() {
        return Ok(Snapshot { namespaces });
    }
    for item in reader.list(&kinds::NAMESPACE, None).await? {
        if let Some(namespace) = namespaces.get_mut(&item.object.name)
            && migrated.contains(&item.object.name)
        {
            namespace.item = Some(item);
        }
    }
    let of_ours = |object: &Value| full_name(object).filter(|(namespace, _)| migrated.contains(namespace));
    let brokers = reader
        .scan(&BROKER, None, |object| {
            let (namespace, name) = of_ours(object)?;
            (name == BROKER_NAME).then(|| (namespace, ready().holds(Some(object))))
        })
        .await?;
    for (namespace, is_ready) in brokers {
        namespaces.entry(namespace).or_default().broker_ready = Some(is_ready);
    }
    let triggers =
        reader.scan(&TRIGGER, None, |object| Some((of_ours(object)?.0, Found::of(object)))).await?;
    for (namespace, trigger) in triggers {
        namespaces.entry(namespace).or_default().triggers.push(trigger);
    }
    Ok(Snapshot { namespaces })
}

fn full_name(object: &Value) -> Option<(String, String)> {
    Some((text(object, "/metadata/namespace")?.to_owned(), text(object, "/metadata/name")?.to_owned()))
}
