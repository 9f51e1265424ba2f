//! What stands in the way of an instance: why it is refused.

use std::collections::BTreeSet;

use belay_runtime::{Finding, object::is_going};
use event_mesh_kinds::{ACTIVATION_FINALIZER, APPLICATION_MAPPING, INJECTION_LABEL};
use serde_json::Value;

use crate::{
    Args,
    plan::{ENABLED, Way, activation_of, injection, pair_of},
    snapshot::{Activation, Instance, Place, Snapshot},
};

/// Why an instance cannot be recreated, or linked, now. What an earlier attempt has deleted is not asked again: it is
/// finished. What that attempt only meant to recreate is: it may be long ago.
pub(crate) fn obstacles(
    args: &Args,
    snapshot: &Snapshot,
    way: &Way<'_>,
    instance: &Instance,
) -> Vec<Finding> {
    let (object, application) = (&instance.item.object, &instance.application);
    let pair = pair_of(instance);
    if instance.is_half_way() {
        return Vec::new();
    }
    let refuse = |why: String| {
        Finding::refuse(object.clone(), format!("{why}, or leave it out with --exclude {object}"))
    };
    let lost = match snapshot.applications.get(application) {
        None => Some(format!("its Application {application} is gone")),
        Some(true) => Some(format!("its Application {application} is being deleted")),
        Some(false) if !instance.offered => {
            Some(format!("its Application {application} has no service {} any more", instance.service))
        }
        Some(false) => None,
    };
    if let Some(lost) = lost {
        let why = "the broker cannot let go of an instance without it. Bring it back, delete the instance";
        return vec![refuse(format!("{lost}, and {why}"))];
    }
    let mut findings = Vec::new();
    for (kind, ready) in [("HTTPSource", &snapshot.sources), ("Channel", &snapshot.channels)] {
        if !ready.contains(application) {
            findings.push(refuse(format!(
                "{kind}/{}/{application} is not Ready, and an instance that is provisioned without it fails for ever. \
                 Run create-missing-sources first",
                args.integration_namespace
            )));
        }
    }
    if let links @ [_, _, ..] = snapshot.links(&pair) {
        let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        findings.push(refuse(format!(
            "{} link it, where there must be one: events arrive twice, and its broker fails. Delete all but one of \
             these Knative Subscriptions in namespace {}",
            names.join(" and "),
            args.integration_namespace
        )));
    }
    // Bound ones are not chosen: this one was before it had its binding.
    if matches!(way, Way::Recreate(_)) && instance.bound {
        findings.push(refuse(
            "has a ServiceBinding since an earlier attempt chose it, so it cannot be deleted any more. Run the step again, \
             which then links it instead, delete the binding"
                .to_owned(),
        ));
    }
    match way {
        Way::Link(_) => findings.extend(not_injectable(snapshot, &pair.0).map(refuse)),
        _ => findings.extend(not_provisionable(snapshot, instance).map(refuse)),
    }
    let activation = snapshot.activations.get(&activation_of(instance));
    if matches!(way, Way::Recreate(_)) {
        findings.extend(activation.and_then(hangs).map(refuse));
    }
    let held = activation.is_some_and(|activation| activation.held);
    if matches!(way, Way::Recreate(_)) && held && snapshot.controller_available != Some(true) {
        let (namespace, name) = &args.subscription_controller;
        let state =
            if snapshot.controller_available.is_none() { "does not exist" } else { "is not available" };
        findings.push(refuse(format!(
            "Deployment/{namespace}/{name} {state}, and only that serves the finalizer of its EventActivation. Bring it \
             up, name the right one with --subscription-controller"
        )));
    }
    findings
}

/// Why an `EventActivation` that is being deleted may stay so, if somebody else than the old bus holds it. What only the old
/// bus holds goes within seconds, and is waited for.
fn hangs(activation: &Activation) -> Option<String> {
    let going = activation.item.live().filter(is_going)?;
    let held = going.pointer("/metadata/finalizers").and_then(Value::as_array)?;
    let others: Vec<&str> =
        held.iter().filter_map(Value::as_str).filter(|name| *name != ACTIVATION_FINALIZER).collect();
    (!others.is_empty()).then(|| {
        format!(
            "{} is being deleted, and {} holds it, so the instance could not come back. Get rid of what holds it",
            activation.item.object,
            others.join(", ")
        )
    })
}

/// Why the broker would not provision an instance, though it would let go of it.
fn not_provisionable(snapshot: &Snapshot, instance: &Instance) -> Option<String> {
    let (namespace, application) = pair_of(instance);
    let is_mapped = |mapped: &BTreeSet<Place>| mapped.contains(&(namespace.clone(), application.clone()));
    if !snapshot.mappings.as_ref().is_none_or(is_mapped) {
        let mapping = APPLICATION_MAPPING.object(&namespace, &application);
        return Some(format!(
            "{mapping} does not exist, and without it an instance that is deleted is never provisioned again. Create \
             it, delete the instance"
        ));
    }
    (!instance.in_catalog).then(|| {
        format!(
            "the ServiceClass of the service {} is not in namespace {namespace} any more, and without it an instance \
             that is deleted is never provisioned again. Bring the class back, delete the instance",
            instance.service
        )
    })
}

/// Why a namespace cannot be given its Broker.
fn not_injectable(snapshot: &Snapshot, namespace: &str) -> Option<String> {
    let other = snapshot.namespaces.get(namespace).and_then(injection).filter(|label| label != ENABLED)?;
    Some(format!(
        "the label {INJECTION_LABEL} of namespace {namespace} is '{other}', so it gets no Broker, and without one no \
         event arrives. Set it to '{ENABLED}', leave the namespace alone with --exclude-namespace {namespace}"
    ))
}

/// What is said of an instance that somebody deletes. Where the step does nothing, it says only whom that concerns.
pub(crate) fn going_already(
    snapshot: &Snapshot,
    way: &Way<'_>,
    instance: &Instance,
    instances: &[&Instance],
) -> Option<Finding> {
    let (object, pair) = (&instance.item.object, pair_of(instance));
    if !instance.item.is_going() || instance.item.is_journalled() {
        return None;
    }
    let idle = matches!(way, Way::None);
    if idle && !snapshot.applications.contains_key(&pair.1) {
        let message = format!(
            "is being deleted already, and its Application {} is gone, so its broker may never let go of it. Nothing \
             else needs its link: it is left alone",
            pair.1
        );
        return Some(Finding::note(object.clone(), message));
    }
    let takes_it = "is being deleted already, and takes the link with it when it goes";
    if !(idle && snapshot.is_present(&pair)) {
        let message = format!("{takes_it}. Wait until it is gone, or leave it out with --exclude {object}");
        return Some(Finding::refuse(object.clone(), message));
    }
    let other = instances.iter().find(|other| other.item.is_there())?;
    let message = format!("{takes_it}: run this step again then, for {}", other.item.object);
    Some(Finding::note(object.clone(), message))
}

/// What an earlier attempt has begun must be finished: without its chain the instance might be lost.
pub(crate) fn begun_and_left_out(instance: &Instance) -> Option<Finding> {
    let object = &instance.item.object;
    (instance.excluded && instance.item.is_journalled()).then(|| {
        let message = format!(
            "{object} cannot be left out any more: an earlier attempt is recreating it. Run the step without --exclude \
             {object}, or take that attempt back with belay restore"
        );
        // Said of no object: what is said of one that is left out is left out too.
        Finding::refuse(None, message)
    })
}
