//! What the step reads.

use std::collections::{BTreeMap, BTreeSet};

use belay_runtime::{
    Failure, Item, ObjectRef, Reader, kinds,
    object::{is_available, text},
};
use event_mesh_kinds::{
    APPLICATION, HTTP_SOURCE, LEGACY_SUBSCRIPTION, TRIGGER,
    event_service::{Installation, Pod, Rollout, application_of, source_lacks},
    is_legacy,
    trigger::Found,
    unclear,
};
use serde_json::Value;

use crate::Args;

/// All that the step read before it decided.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The legacy Subscriptions, with those that an earlier attempt took away.
    pub subscriptions: Vec<Item>,
    /// Subscriptions of which nobody can tell whether they are legacy ones, with the reason.
    pub unclear: Vec<(ObjectRef, &'static str)>,
    /// Triggers by namespace, where there are Subscriptions.
    pub triggers: BTreeMap<String, Vec<Found>>,
    /// Applications by name.
    pub applications: BTreeMap<String, Installation>,
    /// The event-services, by the name of their Application.
    pub rollouts: BTreeMap<String, Rollout>,
    /// Pods of event-services.
    pub pods: Vec<Pod>,
    /// Sources by name, with what each lacks.
    pub sources: BTreeMap<String, Option<String>>,
    /// The images that event-services must run; else why nobody says so.
    pub images: Result<Vec<String>, String>,
    /// Whether the controller that serves the finalizers is available; none if it does not exist.
    pub controller_available: Option<bool>,
}

pub(crate) async fn read(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
    let mut subscriptions = reader.list(&LEGACY_SUBSCRIPTION, None).await?;
    // What hangs on a Subscription that a person left out does not count either: the controller of its finalizer.
    subscriptions.retain(|item| !reader.is_excluded(&item.object));
    let odd = subscriptions.iter().filter_map(|item| Some((item.object.clone(), unclear(&item.origin())?)));
    let unclear = odd.collect();
    subscriptions.retain(|item| is_legacy(&item.origin()));
    let mut snapshot = Snapshot {
        triggers: BTreeMap::new(),
        applications: BTreeMap::new(),
        rollouts: BTreeMap::new(),
        pods: Vec::new(),
        sources: BTreeMap::new(),
        images: Ok(Vec::new()),
        controller_available: None,
        subscriptions,
        unclear,
    };
    let namespaces: BTreeSet<&str> =
        snapshot.subscriptions.iter().filter_map(|item| item.object.namespace.as_deref()).collect();
    if namespaces.is_empty() {
        return Ok(snapshot);
    }
    let triggers = reader
        .scan(&TRIGGER, None, |object| {
            let namespace = text(object, "/metadata/namespace").filter(|name| namespaces.contains(name))?;
            Some((namespace.to_owned(), Found::of(object)))
        })
        .await?;
    for (namespace, trigger) in triggers {
        snapshot.triggers.entry(namespace).or_default().push(trigger);
    }
    let integration = Some(args.expected.integration_namespace.as_str());
    snapshot.applications = reader
        .scan(&APPLICATION, None, |object| Some((name(object)?, Installation::of(object))))
        .await?
        .into_iter()
        .collect();
    snapshot.rollouts = reader
        .scan(&kinds::DEPLOYMENT, integration, |object| {
            let application = application_of(text(object, "/metadata/name")?)?;
            Some((application.to_owned(), Rollout::of(object)))
        })
        .await?
        .into_iter()
        .collect();
    snapshot.pods = reader.scan(&kinds::POD, integration, Pod::of).await?;
    snapshot.sources = reader
        .scan(&HTTP_SOURCE, integration, |object| Some((name(object)?, source_lacks(Some(object)))))
        .await?
        .into_iter()
        .collect();
    let operator = if args.expected.images.is_empty() {
        reader.get(&args.expected.application_operator).await?.live()
    } else {
        None
    };
    snapshot.images = args.expected.images(operator.as_ref());
    let controller = reader.get(&args.controller()).await?;
    snapshot.controller_available = controller.live().as_ref().map(is_available);
    Ok(snapshot)
}

fn name(object: &Value) -> Option<String> {
    text(object, "/metadata/name").map(str::to_owned)
}
