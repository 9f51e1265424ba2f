//! What the step waits for: an instance provisioned, legacy delivery back, a link complete.

use std::{sync::OnceLock, time::Duration};

use belay_runtime::{
    Chain, Field, FieldPath, Move, ObjectRef, Progress, Scope, Test, View, kinds,
    object::{is_going, shown_time, uid},
};
use event_mesh_kinds::{
    BROKER, BROKER_NAME, EVENT_ACTIVATION, INJECTION_LABEL, KNATIVE_SUBSCRIPTION, LEGACY_SUBSCRIPTION,
    LINK_APPLICATION_LABEL, LINK_NAMESPACE_LABEL, ready,
};
use jiff::Timestamp;

use crate::{
    Args,
    plan::{activation_of, pair_of},
    snapshot::{Instance, Place, Snapshot, State, delivers, has_failed, is_injected, linked_pair},
};

pub(crate) fn provisioned() -> Test {
    Test::Field(Field {
        path: FieldPath::dotted("status.provisionStatus"),
        value: Some("Provisioned".into()),
    })
}

/// Waits until an instance that the step recreates is provisioned, and all that hangs on it works.
pub(crate) fn until_in_use(args: &Args, snapshot: &Snapshot, one: &Instance) -> Vec<Move> {
    let object = one.item.object.clone();
    let what = format!("{object} provisioned");
    vec![until_provisioned(args, object, what), until_delivered(args, snapshot, one)]
}

/// Waits for the same of an instance that somebody else has just created.
pub(crate) fn until_others_is_in_use(args: &Args, snapshot: &Snapshot, one: &Instance) -> Vec<Move> {
    let object = one.item.object.clone();
    let what = format!(
        "{object} provisioned, which it is just being (delete it, or leave it out with --exclude {object}, and another one \
         of its namespace is taken)"
    );
    vec![until_provisioned(args, object, what), until_delivered(args, snapshot, one)]
}

fn until_provisioned(args: &Args, instance: ObjectRef, what: String) -> Move {
    let scopes = vec![Scope::of(&instance)];
    let seen = instance.clone();
    Move::wait_until(instance, what, scopes, args.provisioned_within, move |view| {
        let live = view.get(&seen);
        match live.as_ref().and_then(has_failed) {
            Some(why) => {
                Progress::Failed(format!("provisioning failed, and the catalog never tries again: {why}"))
            }
            None => provisioned().ask(live.as_ref()),
        }
    })
}

/// Waits until the mesh reaches the namespace and the old bus delivers again as it did, and says for how long either did
/// not. It is one wait, since the time of both counts from the end of provisioning.
fn until_delivered(args: &Args, snapshot: &Snapshot, one: &Instance) -> Move {
    let (pair, object) = (pair_of(one), one.item.object.clone());
    // Whether there was a link before an earlier attempt, nobody knows any more.
    let earlier = snapshot.opened.filter(|_| one.recreated || !one.item.is_there());
    let worked = !snapshot.links(&pair).is_empty() && snapshot.brokers.contains_key(&pair.0);
    let had_link = worked || earlier.is_some();
    let (mut scopes, delivered) = delivered_by_bus(snapshot, one, earlier);
    scopes.extend(link_scopes(args, &pair));
    let what = format!(
        "the link from Application {} to namespace {} and the old bus delivering as before",
        pair.1, pair.0
    );
    // When the bus was back is kept: the link may take longer.
    let bus = OnceLock::new();
    Move::wait_until(object.clone(), what, scopes, args.linked_within, move |view| {
        let bus = delivered(view).map(|line| bus.get_or_init(|| line));
        match (link_progress(view, &pair), bus) {
            (Progress::Done, Ok(bus)) => {
                let off = off_for(view, &object, earlier).filter(|_| had_link);
                let mesh = off.map(|off| {
                    let (namespace, application) = &pair;
                    format!(
                        "mesh delivery from {application} to namespace {namespace} was off for at most {}: its link \
                         was made anew",
                        shown_time(off)
                    )
                });
                let lines: Vec<String> = bus.iter().cloned().chain(mesh).collect();
                if lines.is_empty() { Progress::Done } else { Progress::DoneWith(lines.join("; ")) }
            }
            (Progress::Done, Err(bus)) => Progress::Pending(bus),
            (Progress::Pending(link), Err(bus)) => Progress::Pending(format!("{link}; {bus}")),
            (link, _) => link,
        }
    })
}

/// How long ago this chain, or the attempt before it, began to recreate an instance; none if neither did.
fn off_for(view: &View<'_>, instance: &ObjectRef, earlier: Option<Timestamp>) -> Option<Duration> {
    let off = match earlier {
        Some(opened) => view.wall().duration_since(opened).try_into().ok(),
        None => view.since(instance),
    };
    off.map(|off| off + Duration::from_secs(1))
}

/// Whether the old bus delivers as it did, and for how long it did not; else what is missing.
fn delivered_by_bus(
    snapshot: &Snapshot,
    one: &Instance,
    earlier: Option<Timestamp>,
) -> (Vec<Scope>, impl Fn(&View<'_>) -> Result<Option<String>, String> + use<>) {
    let (namespace, application) = pair_of(one);
    let object = one.item.object.clone();
    let activation = EVENT_ACTIVATION.object(&namespace, &one.service);
    let known = snapshot.activations.get(&activation_of(one));
    // What an earlier attempt saw of it is not known: one that is new, or not there, may have been replaced.
    let may_be_replaced = known.is_some() || snapshot.opened.is_some();
    let before =
        known.filter(|known| !known.is_new).and_then(|known| known.item.live_uid()).map(str::to_owned);
    // Names only: there may be thousands of chains with several each.
    let subscriptions =
        snapshot.legacy.get(&(namespace.clone(), application.clone())).cloned().unwrap_or_default();
    let subscription = {
        let namespace = namespace.clone();
        move |name: &String| LEGACY_SUBSCRIPTION.object(&namespace, name)
    };
    let scopes = std::iter::once(Scope::of(&activation))
        .chain(subscriptions.iter().map(|name| Scope::of(&subscription(name))))
        .collect();
    let delivered = move |view: &View<'_>| {
        let Some(live) = view.get(&activation).filter(|live| !is_going(live)) else {
            return Err(format!("{activation} is not there"));
        };
        let silent = |one: &ObjectRef| view.get(one).is_some_and(|live| !is_going(&live) && !delivers(&live));
        if let Some(silent) = subscriptions.iter().map(&subscription).find(silent) {
            return Err(format!("{silent} does not deliver yet"));
        }
        if !may_be_replaced || before.as_deref() == Some(uid(&live)) {
            return Ok(None);
        }
        let off = off_for(view, &object, earlier).map_or_else(|| "some seconds".to_owned(), shown_time);
        Ok(Some(format!(
            "legacy delivery from {application} to namespace {namespace} was off for at most {off}: the broker replaced \
             {activation}"
        )))
    };
    (scopes, delivered)
}

/// The links from an Application to a namespace. The broker gives them random names.
pub(crate) fn link_scope(args: &Args, pair: &Place) -> Scope {
    let labels = [(LINK_NAMESPACE_LABEL, pair.0.as_str()), (LINK_APPLICATION_LABEL, pair.1.as_str())];
    Scope::labelled(KNATIVE_SUBSCRIPTION, &args.integration_namespace, &labels)
}

fn link_scopes(args: &Args, pair: &Place) -> Vec<Scope> {
    vec![
        link_scope(args, pair),
        Scope::of(&kinds::NAMESPACE.cluster_object(&pair.0)),
        Scope::of(&BROKER.object(&pair.0, BROKER_NAME)),
    ]
}

/// Waits until the mesh reaches a namespace from an Application.
pub(crate) fn until_linked(args: &Args, subject: ObjectRef, pair: &Place) -> Move {
    let what = format!("the link from Application {} to namespace {}", pair.1, pair.0);
    let pair_seen = pair.clone();
    let check = move |view: &View<'_>| link_progress(view, &pair_seen);
    Move::wait_until(subject, what, link_scopes(args, pair), args.linked_within, check)
}

fn link_progress(view: &View<'_>, pair: &Place) -> Progress {
    let mut links = view.list(&KNATIVE_SUBSCRIPTION);
    links.retain(|link| linked_pair(link).as_ref() == Some(pair));
    let namespace = kinds::NAMESPACE.cluster_object(&pair.0);
    let broker = BROKER.object(&pair.0, BROKER_NAME);
    let link = match &links[..] {
        [] => return Progress::Pending("no Knative Subscription links them".to_owned()),
        [link] => link,
        [one, other, ..] => {
            return Progress::Failed(format!(
                "{} and {} both link them: events would arrive twice. Delete one of them",
                KNATIVE_SUBSCRIPTION.object_of(one),
                KNATIVE_SUBSCRIPTION.object_of(other)
            ));
        }
    };
    if let Progress::Pending(what) = ready().ask(Some(link)) {
        return Progress::Pending(format!("{} {what}", KNATIVE_SUBSCRIPTION.object_of(link)));
    }
    if !view.get(&namespace).is_some_and(|live| is_injected(&live)) {
        return Progress::Pending(format!("{namespace} has no label {INJECTION_LABEL}=enabled"));
    }
    match ready().ask(view.get(&broker).as_ref()) {
        Progress::Pending(what) => Progress::Pending(format!("{broker} {what}")),
        other => other,
    }
}

/// An `EventActivation` for which no chain makes a link must have one too: its namespace gets events today.
pub(crate) fn link_gate(args: &Args, pair: &Place, activation: ObjectRef, why: &str, cure: &str) -> Chain {
    let mut scopes = link_scopes(args, pair);
    scopes.push(Scope::of(&activation));
    let what =
        format!("a link for {activation}, {why} ({cure}, or leave it out with --exclude {activation})");
    let (seen, pair) = (activation.clone(), pair.clone());
    let check = move |view: &View<'_>| {
        let lives = view.get(&seen).is_some_and(|live| !is_going(&live));
        if lives { link_progress(view, &pair) } else { Progress::Done }
    };
    Chain::new(
        activation.clone(),
        vec![Move::wait_until(activation, what, scopes, args.linked_within, check)],
    )
}

/// An instance whose `EventActivation` is on its way out is not deleted before that is gone: its broker would take the old
/// one for the new, so it could not be created again.
pub(crate) fn going_gate(args: &Args, snapshot: &Snapshot, one: &Instance) -> Option<Chain> {
    let activation = snapshot.activations.get(&activation_of(one))?;
    if one.is_half_way() || !activation.item.is_going() {
        return None;
    }
    let (object, activation) = (one.item.object.clone(), activation.item.object.clone());
    let what = format!(
        "{activation} gone, which is being deleted, so the instance could not come back (look at what holds it, or leave the \
         instance out with --exclude {object})"
    );
    let scopes = vec![Scope::of(&activation)];
    let check = move |view: &View<'_>| match view.get(&activation).filter(is_going) {
        Some(going) => Test::Gone.ask(Some(&going)),
        None => Progress::Done,
    };
    let wait = Move::wait_until(object.clone(), what, scopes, args.gone_within, check);
    Some(Chain::new(object, vec![wait]))
}

/// A provisioned instance that is not recreated must have its `EventActivation`.
pub(crate) fn activation_gate(
    args: &Args,
    snapshot: &Snapshot,
    chosen: &[&Instance],
    one: &Instance,
) -> Option<Chain> {
    let place = activation_of(one);
    let there = snapshot.activations.get(&place).is_some_and(|activation| activation.item.is_there());
    let made_anyway = chosen.iter().any(|other| activation_of(other) == place);
    if one.state != State::Provisioned || !one.offered || !one.item.is_there() || there || made_anyway {
        return None;
    }
    let (object, activation) = (one.item.object.clone(), EVENT_ACTIVATION.object(place.0, place.1));
    let scopes = vec![Scope::of(&object), Scope::of(&activation)];
    let what = format!(
        "{activation} of {object}, which is provisioned (recreate the instance, or leave it out with --exclude {object})"
    );
    let instance = object.clone();
    let check = move |view: &View<'_>| {
        let lives = |object: &ObjectRef| view.get(object).is_some_and(|live| !is_going(&live));
        if lives(&activation) || !lives(&instance) {
            Progress::Done
        } else {
            Progress::Pending("does not exist".to_owned())
        }
    };
    let wait = Move::wait_until(object.clone(), what, scopes, args.linked_within, check);
    Some(Chain::new(object, vec![wait]))
}
