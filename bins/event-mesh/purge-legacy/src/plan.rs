//! What the step decides.

use belay_runtime::{
    Chain, Field, FieldPath, Finding, Item, Kind, Move, Plan, Progress, Removal, Scope, Test, Undo,
    object::{condition, kept_by, text},
};
use event_mesh_kinds::{ACTIVATION_FINALIZER, LEGACY_FINALIZER, ready};
use serde_json::{Value, json};

use crate::{
    Args,
    snapshot::{Snapshot, Subscription},
};

/// Objects that a refusal names; the rest is counted.
const NAMED: usize = 5;

pub(crate) fn decide(args: &Args, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let removal = || Removal::within(args.gone_within).ready_when(ready());
    // Subscriptions first: Knative takes them off their Channels, which must still be there for that.
    let subscriptions = snapshot.knative_subscriptions.iter().map(|item| {
        let removal = removal().orphaned_finalizers(&[LEGACY_FINALIZER]);
        Chain::new(item.object.clone(), vec![Move::delete(item, removal)])
    });
    let channels = snapshot
        .channels
        .iter()
        .map(|item| Chain::new(item.object.clone(), vec![Move::delete(item, removal())]));
    let mut phases = vec![subscriptions.collect::<Vec<_>>(), channels.collect()];
    if let Some(crd) = &snapshot.crd {
        if snapshot.is_newer {
            let message = "serves the newer schema that has taken over its name: it is left alone";
            plan.findings.push(Finding::skip(crd.object.clone(), message));
        } else {
            phases.push(vec![remove_crd(args, crd, snapshot.served.as_ref())]);
            plan.findings.extend(unseen(snapshot, crd));
            plan.findings.extend(not_restorable(crd));
            plan.findings.extend(crd.live().as_ref().and_then(kept_by).map(|keeper| {
                let message = format!("{keeper} manages it and may create it again: take it out there too");
                Finding::note(crd.object.clone(), message)
            }));
        }
    }
    match (phases.iter().all(Vec::is_empty), snapshot.subscriptions.len()) {
        (_, 0) => {}
        (true, there) => {
            let message = format!("{there} Subscriptions exist, and nothing that they may need is removed");
            plan.findings.push(Finding::note(None, message));
        }
        (false, _) => {
            let removed: Vec<String> =
                phases.iter().flatten().map(|chain| format!("--exclude {}", chain.subject)).collect();
            plan.findings.extend(subscriptions_in_the_way(snapshot, &removed));
        }
    }
    plan.point_of_no_return = snapshot.activations.iter().map(|item| release(args, item)).collect();
    let nothing = phases.iter().chain([&plan.point_of_no_return]).all(Vec::is_empty);
    match (release_in_the_way(args, snapshot), nothing) {
        (Some(message), true) => plan.findings.push(Finding::note(None, message)),
        (Some(message), false) => plan.findings.push(Finding::refuse(None, message)),
        (None, true) => plan.findings.push(Finding::note(None, "nothing of the old event bus is left")),
        (None, false) => {}
    }
    plan.phases = phases;
    plan
}

/// Takes the finalizer off an `EventActivation`: the application-broker still makes and deletes them.
fn release(args: &Args, item: &Item) -> Chain {
    let step = if item.is_going() {
        let removal = Removal::within(args.gone_within).orphaned_finalizers(&[ACTIVATION_FINALIZER]);
        Move::delete(item, removal)
    } else {
        let path = FieldPath::dotted("metadata.finalizers").member(ACTIVATION_FINALIZER);
        Move::patch(item, vec![Field { path, value: None }])
    };
    let reason =
        "only the old bus, installed again, may put its finalizer back: without it nobody would take it off";
    Chain::new(item.object.clone(), vec![step.undone_by(Undo::None { reason: reason.to_owned() })])
}

/// Looks again, as late as can be: with the CRD go all its objects. Once it is going they are, and though the server may still
/// name its API, nobody can look at them any more.
fn remove_crd(args: &Args, crd: &Item, served: Option<&Kind>) -> Chain {
    let mut moves = Vec::new();
    if let Some(kind) = served.filter(|_| crd.is_there()).cloned() {
        let scopes = vec![Scope::everywhere(kind.clone())];
        let what = format!("no object of {}", crd.object);
        moves.push(Move::wait_until(
            crd.object.clone(),
            what,
            scopes,
            args.gone_within,
            move |view| match view.list(&kind).first() {
                None => Progress::Done,
                Some(found) => Progress::Failed(format!(
                    "{} has appeared, and would be deleted with the CRD. Migrate it, then run the step again",
                    kind.object_of(found)
                )),
            },
        ));
    }
    let removal = Removal::within(args.gone_within).ready_when(Test::Condition("Established".to_owned()));
    moves.push(Move::delete(crd, removal));
    Chain::new(crd.object.clone(), moves)
}

/// What is not served cannot be looked at, and may still be stored.
fn unseen(snapshot: &Snapshot, crd: &Item) -> Option<Finding> {
    (snapshot.served.is_none() && crd.is_there()).then(|| {
        let message = format!(
            "is there but not served, so nobody can see whether it has objects: look at its conditions, or leave it out \
             with --exclude {}",
            crd.object
        );
        Finding::refuse(crd.object.clone(), message)
    })
}

/// A CRD that was made through the API's version v1beta1 may be stored in a form that its version v1 takes as an update, but
/// not as a new object: undo could not bring it back.
fn not_restorable(crd: &Item) -> Option<Finding> {
    let live = crd.live().filter(|_| crd.is_there())?;
    let versions = live.pointer("/spec/versions").and_then(Value::as_array)?;
    let untyped = |version: &Value| text(version, "/schema/openAPIV3Schema/type").is_none();
    let is_old = live.pointer("/spec/preserveUnknownFields") == Some(&Value::Bool(true))
        || versions.iter().any(untyped)
        || condition(&live, "NonStructuralSchema").and_then(|found| text(found, "/status")) == Some("True");
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let mut patch = vec![json!({"op": "add", "path": "/spec/preserveUnknownFields", "value": false})];
    patch.extend(
        (0..versions.len())
            .map(|n| json!({"op": "add", "path": format!("/spec/versions/{n}/schema"), "value": schema})),
    );
    is_old.then(|| {
        let message = format!(
            "has no structural schema, as CRDs of apiextensions.k8s.io/v1beta1 may have none, so it could not be created \
             again if the step had to be undone. Give it one, then run the step again: kubectl patch crd {} --type json \
             --patch '{}'",
            crd.object.name,
            Value::Array(patch)
        );
        Finding::refuse(crd.object.clone(), message)
    })
}

/// One refusal for all Subscriptions of the old bus that exist, one for those of the newer schema, which nobody may be told
/// to delete, and one for those that can never go by themselves. `removed` are the flags that leave out all that the step
/// would remove.
fn subscriptions_in_the_way(snapshot: &Snapshot, removed: &[String]) -> Vec<Finding> {
    let (going, there): (Vec<_>, Vec<_>) =
        snapshot.subscriptions.iter().partition(|subscription| subscription.held_by.is_some());
    let (legacy, newer): (Vec<_>, Vec<_>) =
        there.into_iter().partition(|subscription| subscription.is_legacy);
    let names = |those: &[&Subscription]| -> Vec<String> {
        those.iter().map(|subscription| subscription.object.to_string()).collect()
    };
    let mut findings = Vec::new();
    let resource = snapshot.served.as_ref().map(Kind::resource).unwrap_or_default();
    let would = if snapshot.crd.is_some() && !snapshot.is_newer {
        "would be deleted with their CRD"
    } else {
        "may need what is left of the old bus"
    };
    if !legacy.is_empty() {
        let message = format!(
            "{} still exist, and {would}. Migrate them (recreate-triggers, retire-subscriptions) or delete them first: \
             kubectl get {resource} --all-namespaces",
            list(&names(&legacy))
        );
        findings.push(Finding::refuse(None, message));
    }
    if !newer.is_empty() {
        let message = format!(
            "{} exist, and {would}. None of them is surely of the old bus, and no step migrates them: keep them. Leave out \
             all that this step would remove ({}), or do not run it on this cluster",
            list(&names(&newer)),
            list(removed)
        );
        findings.push(Finding::refuse(None, message));
    }
    if let Some(first) = going.first() {
        let held =
            |by: &Option<String>| by.clone().filter(|by| !by.is_empty()).unwrap_or("nothing".to_owned());
        let names: Vec<String> = going
            .iter()
            .map(|subscription| format!("{} (held by {})", subscription.object, held(&subscription.held_by)))
            .collect();
        let message = format!(
            "{} are being deleted and still there. If nobody serves the finalizer any more, take it off: kubectl patch \
             {resource} {} --namespace {} --type merge --patch '{{\"metadata\":{{\"finalizers\":null}}}}'",
            list(&names),
            first.object.name,
            first.object.namespace.as_deref().unwrap_or_default()
        );
        findings.push(Finding::refuse(None, message));
    }
    findings
}

fn release_in_the_way(args: &Args, snapshot: &Snapshot) -> Option<String> {
    if snapshot.release.is_empty() {
        return None;
    }
    let names: Vec<String> = snapshot.release.iter().map(ToString::to_string).collect();
    let (release, namespace) = (&args.legacy_release, &args.legacy_namespace);
    Some(format!(
        "the Helm release {release} is still there ({}). Remove it first: helm uninstall {release} --namespace {namespace} \
         (with Helm 2: helm delete --purge {release})",
        list(&names)
    ))
}

fn list(names: &[String]) -> String {
    let more = names.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", names[..names.len().min(NAMED)].join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_runtime::{
        kinds,
        plan::{Action, Level},
    };
    use event_mesh_kinds::{CHANNEL, EVENT_ACTIVATION, KNATIVE_SUBSCRIPTION, LEGACY_SUBSCRIPTION};
    use proptest::prelude::*;

    use super::*;

    fn args() -> Args {
        Args {
            legacy_namespace: "kyma-system".into(),
            legacy_release: "event-bus".into(),
            gone_within: Duration::from_secs(120),
        }
    }

    fn item(kind: &Kind, name: &str, live: Option<&Value>, before: Option<&Value>) -> Item {
        let object =
            if kind.namespaced { kind.object("kyma-system", name) } else { kind.cluster_object(name) };
        Item::new(object, live, before)
    }

    fn crd(live: Option<&Value>, before: Option<&Value>) -> Item {
        let name = LEGACY_SUBSCRIPTION.resource();
        item(&kinds::CUSTOM_RESOURCE_DEFINITION, &name, live, before)
    }

    fn there() -> Value {
        json!({"metadata": {"uid": "u"}})
    }

    /// Two Knative Subscriptions, a Channel and the CRD, and nothing in the way.
    fn leftovers() -> Snapshot {
        let live = there();
        Snapshot {
            crd: Some(crd(Some(&live), None)),
            served: Some(LEGACY_SUBSCRIPTION),
            knative_subscriptions: ["a--orders", "b--orders"]
                .iter()
                .map(|name| item(&KNATIVE_SUBSCRIPTION, name, Some(&live), None))
                .collect(),
            channels: vec![item(&CHANNEL, "commerce-order-created", Some(&live), None)],
            ..Snapshot::default()
        }
    }

    fn subscription(name: &str, held_by: Option<&str>, is_legacy: bool) -> Subscription {
        let object = LEGACY_SUBSCRIPTION.object("orders", name);
        Subscription { object, held_by: held_by.map(str::to_owned), is_legacy }
    }

    fn decided(snapshot: &Snapshot) -> Plan {
        let plan = decide(&args(), snapshot);
        assert_eq!(plan.mistakes(), Vec::<String>::new());
        plan
    }

    fn refused(snapshot: &Snapshot) -> String {
        decided(snapshot).refusals().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn subscriptions_go_before_channels_and_the_crd_goes_last_after_another_look() {
        let plan = decided(&leftovers());
        let kinds: Vec<Vec<&str>> = plan
            .phases
            .iter()
            .map(|phase| phase.iter().map(|chain| chain.subject.kind.kind).collect())
            .collect();
        let last = vec!["CustomResourceDefinition"];
        assert_eq!(kinds, [vec!["Subscription"; 2], vec!["Channel"], last]);
        let verbs: Vec<&str> = plan.phases[2][0].moves.iter().map(Move::verb).collect();
        assert_eq!(verbs, ["wait", "delete"]);
        assert!(plan.point_of_no_return.is_empty(), "all of it can be taken back");
    }

    #[test]
    fn bug_5_4_dangling_knative_subscriptions_lose_the_finalizer_that_nobody_serves_and_no_other() {
        let mut snapshot = leftovers();
        let going =
            json!({"metadata": {"uid": "u", "deletionTimestamp": "now", "finalizers": [LEGACY_FINALIZER]}});
        snapshot.knative_subscriptions.push(item(&KNATIVE_SUBSCRIPTION, "stuck--gone", Some(&going), None));
        let plan = decided(&snapshot);
        for chain in &plan.phases[0] {
            let Action::Delete(removal) = &chain.moves[0].action else { panic!("not a delete") };
            assert_eq!(removal.orphaned_finalizers, [LEGACY_FINALIZER]);
        }
        assert_eq!(plan.phases[0].len(), 3, "one that hangs already is freed too");
        let Action::Delete(removal) = &plan.phases[1][0].moves[0].action else { panic!("not a delete") };
        assert!(removal.orphaned_finalizers.is_empty());
    }

    #[test]
    fn any_subscription_of_either_schema_is_refused() {
        let mut snapshot = leftovers();
        snapshot.subscriptions = (0..7).map(|n| subscription(&format!("s{n}"), None, true)).collect();
        let text = refused(&snapshot);
        assert!(text.contains("Subscription/orders/s0") && text.contains("and 2 more still exist"), "{text}");
        assert!(text.contains("would be deleted with their CRD. Migrate them"), "{text}");
        // Where a person left the CRD out, they stay.
        snapshot.crd = None;
        let text = refused(&snapshot);
        assert!(text.contains("may need what is left of the old bus. Migrate them"), "{text}");
    }

    #[test]
    fn nobody_is_told_to_delete_a_subscription_of_the_newer_schema() {
        let mut snapshot = leftovers();
        snapshot.subscriptions = vec![subscription("newer", None, false)];
        let text = refused(&snapshot);
        assert!(
            text.contains("Subscription/orders/newer exist, and would be deleted with their CRD"),
            "{text}"
        );
        assert!(!text.contains("delete them") && !text.contains("Migrate"), "{text}");
        // A CRD of the newer schema stays, and what it serves with it.
        snapshot.is_newer = true;
        let text = refused(&snapshot);
        assert!(text.contains("exist, and may need what is left of the old bus"), "{text}");
        assert!(!text.contains("delete") && text.contains("keep them"), "{text}");
        for left in ["Subscription/kyma-system/a--orders", "Channel/kyma-system/commerce-order-created"] {
            assert!(text.contains(&format!("--exclude {left}")), "{text}");
        }
        // What a person has left out is in nobody's way.
        (snapshot.knative_subscriptions, snapshot.channels) = (Vec::new(), Vec::new());
        assert_eq!(refused(&snapshot), "");
    }

    #[test]
    fn bug_5_10_a_subscription_held_by_a_dead_finalizer_is_refused_with_the_command_that_frees_it() {
        let mut snapshot = leftovers();
        snapshot.subscriptions = vec![subscription("stuck", Some(LEGACY_FINALIZER), true)];
        let text = refused(&snapshot);
        assert!(text.contains(&format!("Subscription/orders/stuck (held by {LEGACY_FINALIZER})")), "{text}");
        assert!(
            text.contains("kubectl patch subscriptions.eventing.kyma-project.io stuck --namespace orders"),
            "{text}"
        );
    }

    #[test]
    fn the_release_is_refused_with_the_command_that_removes_it_but_only_if_there_is_something_to_remove() {
        let mut snapshot = leftovers();
        snapshot.release = vec![kinds::DEPLOYMENT.object("kyma-system", "event-bus-subscription-controller")];
        assert!(refused(&snapshot).contains("helm uninstall event-bus --namespace kyma-system"));
        let nothing = Snapshot { release: snapshot.release, ..Snapshot::default() };
        let plan = decided(&nothing);
        assert_eq!((plan.refusals().count(), plan.findings[0].level), (0, Level::Note));
    }

    #[test]
    fn subscriptions_of_a_cluster_that_moved_on_to_the_newer_schema_stop_nothing_that_touches_none_of_them() {
        let subscriptions = vec![subscription("newer", None, false)];
        let mut snapshot = Snapshot {
            crd: leftovers().crd,
            served: Some(LEGACY_SUBSCRIPTION),
            is_newer: true,
            subscriptions,
            ..Snapshot::default()
        };
        let plan = decided(&snapshot);
        assert_eq!((plan.writes().count(), plan.refusals().count()), (0, 0));
        let told = |plan: &Plan| {
            plan.findings.iter().any(|finding| finding.message.starts_with("1 Subscriptions exist"))
        };
        assert!(told(&plan));
        snapshot.activations = vec![activation(false)];
        assert_eq!((decided(&snapshot).writes().count(), refused(&snapshot)), (1, String::new()));
        snapshot.channels = leftovers().channels;
        assert!(refused(&snapshot).contains("Subscription/orders/newer exist"));
    }

    fn activation(going: bool) -> Item {
        let mut live = json!({"metadata": {"uid": "u", "finalizers": ["other", ACTIVATION_FINALIZER]}});
        if going {
            live["metadata"]["deletionTimestamp"] = "now".into();
        }
        item(&EVENT_ACTIVATION, "commerce-events", Some(&live), None)
    }

    #[test]
    fn an_activation_loses_the_finalizer_that_nobody_serves_and_one_that_hangs_goes() {
        for (going, verb) in [(false, "patch"), (true, "delete")] {
            let snapshot = Snapshot { activations: vec![activation(going)], ..leftovers() };
            let plan = decided(&snapshot);
            // A failure there must not undo the rest: what has been released stays released.
            let last = &plan.point_of_no_return[0].moves[0];
            assert!(matches!(last.undo, Undo::None { .. }));
            assert_eq!((last.verb(), plan.writes().count()), (verb, 5));
            let path = FieldPath::dotted("metadata.finalizers").member(ACTIVATION_FINALIZER);
            let fields = if going { Vec::new() } else { vec![Field { path, value: None }] };
            assert_eq!(last.action.fields(), fields);
        }
        // While the bus is installed it may serve them.
        let release = vec![kinds::SERVICE.object("kyma-system", "bus")];
        let snapshot = Snapshot { activations: vec![activation(false)], release, ..Snapshot::default() };
        assert!(refused(&snapshot).contains("helm uninstall event-bus"));
    }

    #[test]
    fn a_crd_of_the_newer_schema_is_left_alone_and_the_leftovers_still_go() {
        let snapshot = Snapshot { is_newer: true, ..leftovers() };
        let plan = decided(&snapshot);
        assert_eq!((plan.writes().count(), plan.findings[0].level), (3, Level::Skip));
        assert!(plan.writes().all(|step| step.object.kind != kinds::CUSTOM_RESOURCE_DEFINITION));
    }

    #[test]
    fn a_crd_that_is_not_served_is_refused_since_nobody_can_see_its_objects() {
        let mut snapshot = Snapshot { served: None, ..leftovers() };
        assert!(refused(&snapshot).contains("is there but not served"));
        // So it is when an earlier attempt had it in its journal and did not come to delete it.
        snapshot.crd = Some(crd(Some(&there()), Some(&there())));
        assert!(refused(&snapshot).contains("is there but not served"));
        // What an earlier attempt has deleted, or is deleting, is not served either.
        let going = json!({"metadata": {"uid": "u", "deletionTimestamp": "now"}});
        for live in [None, Some(&going)] {
            snapshot.crd = Some(crd(live, Some(&there())));
            assert_eq!(refused(&snapshot), "");
        }
    }

    #[test]
    fn a_crd_that_an_earlier_attempt_deleted_is_not_looked_into_though_its_api_is_still_named() {
        let going = json!({"metadata": {"uid": "u", "deletionTimestamp": "now"}});
        for live in [None, Some(&going)] {
            let plan = decided(&Snapshot { crd: Some(crd(live, Some(&there()))), ..leftovers() });
            assert_eq!(plan.phases[2][0].moves.iter().map(Move::verb).collect::<Vec<_>>(), ["delete"]);
        }
    }

    #[test]
    fn a_crd_that_could_not_be_created_again_is_refused_with_the_command_that_mends_it() {
        let schema = |root: Value| json!([{"name": "v1alpha1", "schema": {"openAPIV3Schema": root}}]);
        let sound = json!({
            "metadata": {"uid": "u"},
            "spec": {"preserveUnknownFields": false, "versions": schema(json!({"type": "object"}))},
            "status": {"conditions": [{"type": "NonStructuralSchema", "status": "False"}]},
        });
        let with = |pointer: &str, value: Value| {
            let mut live = sound.clone();
            *live.pointer_mut(pointer).unwrap() = value;
            refused(&Snapshot { crd: Some(crd(Some(&live), None)), ..leftovers() })
        };
        assert_eq!(with("/metadata/uid", "u".into()), "");
        for (pointer, value) in [
            ("/spec/preserveUnknownFields", json!(true)),
            ("/spec/versions", schema(json!({"properties": {}}))),
            ("/spec/versions", json!([{"name": "v1alpha1"}])),
            ("/status/conditions/0/status", json!("True")),
        ] {
            let text = with(pointer, value);
            assert!(text.contains("has no structural schema"), "{pointer}: {text}");
            assert!(
                text.contains(
                    "kubectl patch crd subscriptions.eventing.kyma-project.io --type json --patch '[{"
                ) && text.contains(r#""path":"/spec/versions/0/schema""#),
                "{text}"
            );
        }
        // One that is on its way out is not brought back.
        let mut going = sound.clone();
        going["metadata"]["deletionTimestamp"] = "now".into();
        going["spec"]["preserveUnknownFields"] = true.into();
        assert_eq!(refused(&Snapshot { crd: Some(crd(Some(&going), None)), ..leftovers() }), "");
    }

    #[test]
    fn with_nothing_left_it_says_so() {
        let plan = decided(&Snapshot::default());
        assert_eq!((plan.writes().count(), plan.refusals().count()), (0, 0));
        assert_eq!(plan.findings[0].message, "nothing of the old event bus is left");
    }

    fn any_item(kind: Kind) -> impl Strategy<Value = Item> {
        ("[a-c]{1,2}", 0..4u8).prop_map(move |(name, state)| {
            let going = json!({"metadata": {"uid": "u", "deletionTimestamp": "now"}});
            let (live, before) = match state {
                0 => (Some(there()), None),
                1 => (Some(going), None),
                2 => (None, Some(there())),
                _ => (Some(going), Some(there())),
            };
            item(&kind, &name, live.as_ref(), before.as_ref())
        })
    }

    fn any_items(kind: Kind) -> impl Strategy<Value = Vec<Item>> {
        proptest::collection::vec(any_item(kind), 0..5).prop_map(|mut items| {
            items.sort_by(|a, b| a.object.cmp(&b.object));
            items.dedup_by(|a, b| a.object == b.object);
            items
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whatever_is_there_the_crd_goes_only_when_nothing_else_is_left_and_no_subscription_exists(
            knative_subscriptions in any_items(KNATIVE_SUBSCRIPTION),
            channels in any_items(CHANNEL),
            crd in proptest::option::of(any_item(kinds::CUSTOM_RESOURCE_DEFINITION)),
            subscriptions in 0..2usize,
            flags in (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()),
        ) {
            let (is_newer, is_served, is_released, is_old) = flags;
            let release = vec![kinds::SERVICE.object("kyma-system", "bus")];
            let snapshot = Snapshot {
                subscriptions: vec![subscription("s", None, is_old); subscriptions],
                served: is_served.then_some(LEGACY_SUBSCRIPTION),
                release: if is_released { release } else { Vec::new() },
                knative_subscriptions,
                channels,
                activations: Vec::new(),
                crd,
                is_newer,
            };
            let plan = decide(&args(), &snapshot);
            prop_assert!(plan.mistakes().is_empty());
            let crd_goes = plan.writes().any(|step| step.object.kind == kinds::CUSTOM_RESOURCE_DEFINITION);
            prop_assert_eq!(crd_goes, snapshot.crd.is_some() && !is_newer);
            let refused = plan.refusals().next().is_some();
            prop_assert!(refused || subscriptions == 0 || plan.writes().count() == 0);
            prop_assert!(refused || !is_released || plan.writes().count() == 0);
            let leftovers = snapshot.knative_subscriptions.len() + snapshot.channels.len();
            prop_assert_eq!(plan.writes().count(), leftovers + usize::from(crd_goes));
            prop_assert!(plan.phases.iter().skip(2).flatten().all(|chain| !chain.subject.kind.namespaced));
        }
    }
}
