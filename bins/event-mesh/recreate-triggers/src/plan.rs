//! What the step decides.

use std::collections::BTreeMap;

use belay_runtime::{Chain, Field, FieldPath, Finding, Item, Move, ObjectRef, Plan, kinds};
use event_mesh_kinds::{
    BROKER, BROKER_NAME, INJECTION_LABEL, LEGACY_SUBSCRIPTION, TRIGGER, ready,
    trigger::{Delivery, Match, match_up},
};
use serde_json::Value;

use crate::{
    Args,
    snapshot::{Namespace, Snapshot, Subscription},
};

/// The value of the label by which Knative makes a Broker.
const ENABLED: &str = "enabled";

pub(crate) fn decide(args: &Args, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan { phases: vec![Vec::new(), Vec::new()], ..Plan::default() };
    let mut ready_already = 0;
    let empty =
        args.namespaces.only_namespaces.iter().filter(|name| !snapshot.namespaces.contains_key(*name));
    plan.findings.extend(empty.map(|name| {
        let message = "has no legacy Subscription, and --only-namespace names it: is the name right?";
        Finding::note(kinds::NAMESPACE.cluster_object(name), message)
    }));
    for (name, namespace) in &snapshot.namespaces {
        let object = kinds::NAMESPACE.cluster_object(name);
        if let Some(why) = args.namespaces.why_not(name) {
            let count = namespace.subscriptions.len();
            let left = format!(
                "{why}: its {count} Subscriptions are left alone, and get no events once the event-services feed the mesh"
            );
            plan.findings.push(Finding::skip(object, left));
            continue;
        }
        let Some(item) = namespace.item.as_ref().filter(|item| item.is_there()) else {
            plan.findings.push(Finding::skip(object, "is being deleted, and its Subscriptions with it"));
            continue;
        };
        plan.findings.extend(namespace.unclear.iter().map(|(subscription, why)| {
            let subject = LEGACY_SUBSCRIPTION.object(name, subscription);
            Finding::skip(subject, format!("{why}: it is left alone. Make it one of the two, or delete it"))
        }));
        let wanted = wanted(args, name, namespace, &mut plan.findings);
        let matches = match_up(name, &wanted, &namespace.triggers);
        ready_already += matches.values().filter(|found| matches!(found, Match::Ready(_))).count();
        let missing = matches.values().any(|found| !matches!(found, Match::Ready(_)));
        if matches.is_empty() {
            continue;
        }
        let broker = match Broker::of(item, namespace.broker_ready, missing) {
            Ok(broker) => broker,
            // What is refused is never part of the plan: a later round has nothing to stop it by.
            Err(why) => {
                plan.findings.push(Finding::refuse(object, why));
                continue;
            }
        };
        plan.phases[0].extend(broker.label(args, missing));
        for (subscription, found) in matches {
            let details = &namespace.subscriptions[subscription];
            let subject = LEGACY_SUBSCRIPTION.object(name, subscription);
            plan.phases[1].extend(trigger(args, subject, details, &found, &broker, &mut plan.findings));
        }
    }
    if ready_already > 0 {
        let message = format!("{ready_already} Subscriptions have a Trigger that is Ready");
        plan.findings.push(Finding::note(None, message));
    }
    plan
}

/// The Subscriptions of a namespace that must have a Trigger, with what each asks for.
fn wanted<'a>(
    args: &Args,
    namespace: &str,
    found: &'a Namespace,
    findings: &mut Vec<Finding>,
) -> BTreeMap<&'a str, &'a Delivery> {
    let mut wanted = BTreeMap::new();
    for (name, subscription) in &found.subscriptions {
        let subject = LEGACY_SUBSCRIPTION.object(namespace, name);
        match &subscription.delivery {
            _ if subscription.going => findings.push(Finding::skip(subject, "is being deleted")),
            Ok(delivery) => {
                wanted.insert(name.as_str(), delivery);
            }
            Err(lacks) if args.drop_undeliverable => findings.push(Finding::note(
                subject,
                format!("{lacks}, so nothing can be delivered: it gets no Trigger"),
            )),
            Err(lacks) => findings.push(Finding::refuse(
                subject.clone(),
                format!(
                    "{lacks}, so no Trigger can be made for it. Complete it, go on without it by \
                     --drop-undeliverable, or leave it alone with --exclude {subject}"
                ),
            )),
        }
    }
    wanted
}

/// A namespace's Broker, without which no Trigger becomes Ready, and what makes it.
struct Broker<'a> {
    namespace: &'a Item,
    /// The label that makes it is not set.
    unlabelled: bool,
    is_ready: bool,
}

impl<'a> Broker<'a> {
    /// A namespace's Broker; else why it cannot have one. `missing`: there are Triggers to be made or waited for.
    fn of(namespace: &'a Item, broker_ready: Option<bool>, missing: bool) -> Result<Self, String> {
        let origin = namespace.origin();
        let label = label().get(&origin).and_then(Value::as_str);
        if let (Some(other), None, true) = (label.filter(|label| *label != ENABLED), broker_ready, missing) {
            return Err(format!(
                "its label {INJECTION_LABEL} is '{other}', so it gets no Broker, and without one no Trigger works. Set it \
                 to '{ENABLED}' or leave the namespace alone with --exclude-namespace {}",
                namespace.object.name
            ));
        }
        Ok(Self { namespace, unlabelled: label.is_none(), is_ready: broker_ready == Some(true) })
    }

    /// Sets the label. Where no Trigger waits for the Broker, this does.
    fn label(&self, args: &Args, missing: bool) -> Option<Chain> {
        if !self.unlabelled {
            return None;
        }
        let field = Field { path: label(), value: Some(ENABLED.into()) };
        let mut moves = vec![Move::patch(self.namespace, vec![field])];
        if !missing {
            moves.push(self.wait(args));
        }
        Some(Chain::new(self.namespace.object.clone(), moves))
    }

    /// The first move for each Trigger: a namespace whose Broker fails gets none, whatever the others get.
    fn wait(&self, args: &Args) -> Move {
        let broker = BROKER.object(&self.namespace.object.name, BROKER_NAME);
        Move::wait_for(broker, ready(), args.ready_within)
    }
}

fn label() -> FieldPath {
    FieldPath::of(["metadata", "labels", INJECTION_LABEL])
}

/// Makes sure of a Subscription's Trigger.
fn trigger(
    args: &Args,
    subject: ObjectRef,
    subscription: &Subscription,
    found: &Match,
    broker: &Broker<'_>,
    findings: &mut Vec<Finding>,
) -> Option<Chain> {
    let namespace = subject.namespace.clone().unwrap_or_default();
    let object = TRIGGER.object(namespace, found.name());
    if subscription.names_itself {
        findings.push(Finding::note(
            subject.clone(),
            "has include_subscription_name_header: a Trigger adds no such header, so its deliveries come without it",
        ));
    }
    let mut moves = Vec::new();
    if broker.unlabelled || !broker.is_ready {
        moves.push(broker.wait(args));
    }
    match found {
        Match::Ready(_) => return None,
        Match::NotReady(_) => findings.push(Finding::note(
            subject.clone(),
            format!(
                "{object} delivers the same and is not Ready yet: it is waited for, since another one beside it would \
                 deliver twice. If it does not become Ready, cure what its conditions say, or delete it and run the step \
                 again"
            ),
        )),
        Match::Absent(_) => {
            findings.extend(notes(&subject, subscription, &object));
            let mut body: Value = serde_json::from_str(&subscription.body).unwrap_or_default();
            body["metadata"]["name"] = object.name.clone().into();
            let identity = ["spec.broker", "spec.filter.attributes", "spec.subscriber.uri"];
            moves.push(Move::create(object.clone(), &body, &identity));
        }
    }
    moves.push(Move::wait_for(object, ready(), args.ready_within));
    Some(Chain::new(subject, moves))
}

/// What a person should know of a Trigger that is made.
fn notes(subject: &ObjectRef, subscription: &Subscription, trigger: &ObjectRef) -> Vec<Finding> {
    let mut notes = Vec::new();
    if subject.name != trigger.name {
        notes.push(Finding::note(
            subject.clone(),
            format!("its Trigger is called {}, since its own name is taken or too long", trigger.name),
        ));
    }
    if !subscription.marks.is_empty() {
        let keeper = subscription.keeper.unwrap_or("the tool that manages it");
        notes.push(Finding::note(
            subject.clone(),
            format!(
                "its Trigger comes without {}, or {keeper} would prune it. Put the Trigger into {keeper}'s source too",
                subscription.marks.join(", ")
            ),
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_runtime::plan::{Action, Level};
    use event_mesh_kinds::{trigger::Found, user_namespaces::UserNamespaces};
    use proptest::{collection::btree_map, prelude::*};
    use serde_json::json;

    use super::*;

    fn args() -> Args {
        Args {
            namespaces: UserNamespaces::default(),
            drop_undeliverable: false,
            subscription_controller: ("kyma-system".into(), "controller".into()),
            ready_within: Duration::from_secs(120),
        }
    }

    fn subscription(name: &str, endpoint: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "shop", "labels": {"Function": "pay"}},
            "spec": {
                "source_id": "commerce", "event_type": "order.created", "event_type_version": "v1",
                "endpoint": endpoint,
            },
        })
    }

    /// A namespace with these Subscriptions; its label is this.
    fn namespace(label: Option<&str>, subscriptions: &[Value]) -> Namespace {
        let mut live = json!({"metadata": {"name": "shop", "labels": {}}});
        if let Some(label) = label {
            live["metadata"]["labels"][INJECTION_LABEL] = label.into();
        }
        let object = kinds::NAMESPACE.cluster_object("shop");
        Namespace {
            item: Some(Item::new(object, Some(&live), None)),
            subscriptions: subscriptions
                .iter()
                .map(|object| {
                    let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                    (name, Subscription::of(object))
                })
                .collect(),
            ..Namespace::default()
        }
    }

    fn decided(namespace: Namespace) -> Plan {
        let plan = decide(&args(), &of(namespace));
        assert!(plan.mistakes().is_empty());
        plan
    }

    fn of(namespace: Namespace) -> Snapshot {
        Snapshot { namespaces: [("shop".to_owned(), namespace)].into() }
    }

    /// Verb and object of every move.
    fn moves(plan: &Plan) -> Vec<String> {
        plan.chains()
            .flat_map(|(_, chain)| &chain.moves)
            .map(|step| format!("{} {}", step.verb(), step.object))
            .collect()
    }

    fn ready_trigger(name: &str, endpoint: &str) -> Found {
        Found {
            name: name.to_owned(),
            delivery: Delivery::of_subscription(&subscription(name, endpoint)).ok(),
            ready: true,
            going: false,
        }
    }

    fn refusals(plan: &Plan) -> Vec<String> {
        plan.refusals().map(ToString::to_string).collect()
    }

    #[test]
    fn the_broker_comes_first_and_then_a_trigger_for_each_subscription() {
        let plan =
            decided(namespace(None, &[subscription("a", "http://a/"), subscription("b", "http://b/")]));
        assert_eq!(
            moves(&plan),
            [
                "patch Namespace/shop",
                "wait Broker/shop/default",
                "create Trigger/shop/a",
                "wait Trigger/shop/a",
                "wait Broker/shop/default",
                "create Trigger/shop/b",
                "wait Trigger/shop/b",
            ]
        );
        assert_eq!(plan.phases.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2]);
        let Action::Create { body, .. } = &plan.phases[1][0].moves[1].action else { panic!("not a create") };
        assert_eq!(body.value()["spec"]["subscriber"], json!({"uri": "http://a/"}));
        assert_eq!(body.value()["metadata"]["labels"]["Function"], "pay");
    }

    #[test]
    fn a_second_run_has_nothing_to_do() {
        let mut done = namespace(Some(ENABLED), &[subscription("a", "http://a/")]);
        done.broker_ready = Some(true);
        done.triggers = vec![ready_trigger("a", "http://a/")];
        let plan = decided(done);
        assert!(moves(&plan).is_empty(), "{:?}", moves(&plan));
        assert_eq!(plan.findings[0].message, "1 Subscriptions have a Trigger that is Ready");
    }

    #[test]
    fn a_ready_broker_is_not_waited_for_and_a_label_that_is_there_is_not_set() {
        let mut labelled = namespace(Some(ENABLED), &[subscription("a", "http://a/")]);
        assert_eq!(moves(&decided(labelled.clone()))[0], "wait Broker/shop/default");
        labelled.broker_ready = Some(true);
        assert_eq!(moves(&decided(labelled))[0], "create Trigger/shop/a");
    }

    /// With `--on-failure chain` the Subscriptions of other namespaces go on: so each must see its own Broker fail.
    #[test]
    fn no_trigger_is_made_where_the_broker_is_not_waited_for() {
        let plan = decided(namespace(None, &[subscription("a", "http://a/")]));
        let verbs: Vec<&str> = plan.phases[1][0].moves.iter().map(Move::verb).collect();
        assert_eq!(verbs, ["wait", "create", "wait"]);
        assert_eq!(plan.phases[0][0].moves.len(), 1, "the label alone");
        // With nothing to make, the label's own chain waits.
        let mut all_there = namespace(None, &[subscription("a", "http://a/")]);
        all_there.triggers = vec![ready_trigger("a", "http://a/")];
        assert_eq!(moves(&decided(all_there)), ["patch Namespace/shop", "wait Broker/shop/default"]);
    }

    #[test]
    fn a_namespace_that_refuses_the_broker_is_refused_unless_it_has_one() {
        let mut disabled = namespace(Some("disabled"), &[subscription("a", "http://a/")]);
        let refused = refusals(&decided(disabled.clone()));
        assert!(moves(&decided(disabled.clone())).is_empty());
        assert!(
            refused[0].contains("'disabled'") && refused[0].contains("--exclude-namespace shop"),
            "{refused:?}"
        );
        disabled.broker_ready = Some(false);
        let plan = decided(disabled);
        assert_eq!((plan.refusals().count(), moves(&plan)[0].as_str()), (0, "wait Broker/shop/default"));
    }

    #[test]
    fn bug_2_3_a_missing_endpoint_is_refused_before_any_write_with_the_cure() {
        let mut without = subscription("a", "");
        without["spec"].as_object_mut().unwrap().remove("endpoint");
        let found = namespace(None, &[without, subscription("b", "http://b/")]);
        let refused = refusals(&decided(found.clone()));
        assert_eq!(refused.len(), 1);
        assert!(refused[0].starts_with("Subscription/shop/a: has no endpoint"), "{refused:?}");
        assert!(refused[0].contains("--drop-undeliverable"), "{refused:?}");
        let dropping = Args { drop_undeliverable: true, ..args() };
        let plan = decide(&dropping, &of(found));
        assert_eq!(plan.refusals().count(), 0);
        assert!(moves(&plan).contains(&"create Trigger/shop/b".to_owned()));
        assert!(!moves(&plan).contains(&"create Trigger/shop/a".to_owned()));
    }

    #[test]
    fn an_endpoint_that_knative_refuses_is_refused_before_any_write() {
        let found = namespace(None, &[subscription("a", "http:///x")]);
        let refused = refusals(&decided(found.clone()));
        assert!(
            refused[0].starts_with("Subscription/shop/a: has an endpoint without a host, so no"),
            "{refused:?}"
        );
        let plan = decide(&Args { drop_undeliverable: true, ..args() }, &of(found));
        assert_eq!((plan.refusals().count(), moves(&plan).len()), (0, 0));
    }

    #[test]
    fn bug_1_5_one_that_is_neither_kind_is_named_and_left_alone() {
        let mut found = namespace(None, &[]);
        found.unclear = [("odd".to_owned(), "has neither")].into();
        let plan = decided(found);
        assert_eq!((moves(&plan).len(), plan.findings[0].level), (0, Level::Skip));
        assert!(
            plan.findings[0].to_string().starts_with("Subscription/shop/odd: has neither: it is left alone")
        );
    }

    #[test]
    fn bug_2_3_a_trigger_that_delivers_something_else_is_no_match() {
        let mut found = namespace(None, &[subscription("a", "http://a/")]);
        found.triggers =
            vec![ready_trigger("x", "http://other/"), Found { delivery: None, ..ready_trigger("y", "") }];
        assert!(moves(&decided(found)).contains(&"create Trigger/shop/a".to_owned()));
    }

    #[test]
    fn a_matching_trigger_that_is_not_ready_is_waited_for_and_not_doubled() {
        let mut found = namespace(Some(ENABLED), &[subscription("a", "http://a/")]);
        found.triggers = vec![Found { ready: false, ..ready_trigger("x", "http://a/") }];
        let plan = decided(found);
        assert_eq!(moves(&plan), ["wait Broker/shop/default", "wait Trigger/shop/x"]);
        assert_eq!(plan.writes().count(), 0);
    }

    #[test]
    fn a_foreign_trigger_of_the_name_is_left_alone() {
        let mut found = namespace(Some(ENABLED), &[subscription("a", "http://a/")]);
        found.triggers = vec![ready_trigger("a", "http://other/")];
        let plan = decided(found);
        let made = &plan.writes().next().unwrap().object.name;
        assert!(made.starts_with("a-"), "{made}");
        assert!(plan.findings.iter().any(|finding| finding.message.contains("its Trigger is called")));
    }

    #[test]
    fn terminating_objects_are_skipped() {
        let mut going = subscription("a", "http://a/");
        going["metadata"]["deletionTimestamp"] = "now".into();
        let plan = decided(namespace(None, &[going]));
        assert_eq!((moves(&plan).len(), plan.findings[0].level), (0, Level::Skip));

        let mut found = namespace(None, &[subscription("a", "http://a/")]);
        let live = json!({"metadata": {"name": "shop", "deletionTimestamp": "now"}});
        found.item = Some(Item::new(kinds::NAMESPACE.cluster_object("shop"), Some(&live), None));
        let plan = decided(found);
        assert_eq!((moves(&plan).len(), plan.findings[0].level), (0, Level::Skip));
    }

    #[test]
    fn what_has_no_counterpart_is_noted() {
        let mut named = subscription("a", "http://a/");
        named["spec"]["include_subscription_name_header"] = true.into();
        named["metadata"]["annotations"] = json!({"argocd.argoproj.io/tracking-id": "x"});
        let mut there = namespace(None, &[named.clone()]);
        there.triggers = vec![ready_trigger("a", "http://a/")];
        let plan = decided(there);
        assert!(plan.findings[0].message.contains("include_subscription_name_header"), "{:?}", plan.findings);
        let plan = decided(namespace(None, &[named]));
        let notes: Vec<&str> = plan.findings.iter().map(|finding| finding.message.as_str()).collect();
        assert!(notes[0].contains("include_subscription_name_header"), "{notes:?}");
        assert_eq!(
            notes[1],
            "its Trigger comes without argocd.argoproj.io/tracking-id, or Argo CD would prune it. Put the Trigger into Argo \
             CD's source too"
        );
    }

    #[test]
    fn namespaces_of_the_system_and_those_left_out_are_skipped() {
        let found = namespace(None, &[subscription("a", "http://a/")]);
        let system = Snapshot { namespaces: [("kyma-system".to_owned(), found.clone())].into() };
        assert!(moves(&decide(&args(), &system)).is_empty());
        for (namespaces, noted) in [
            (
                UserNamespaces { exclude_namespaces: vec!["shop".into()], ..UserNamespaces::default() },
                &[][..],
            ),
            // A name that means nothing here may be misspelt.
            (
                UserNamespaces { only_namespaces: vec!["shpo".into()], ..UserNamespaces::default() },
                &["Namespace/shpo: has no legacy Subscription"],
            ),
        ] {
            let plan = decide(&Args { namespaces, ..args() }, &of(found.clone()));
            let (skips, notes): (Vec<&Finding>, Vec<&Finding>) =
                plan.findings.iter().partition(|finding| finding.level == Level::Skip);
            assert_eq!((moves(&plan).len(), skips.len(), notes.len()), (0, 1, noted.len()));
            assert!(
                notes.iter().zip(noted).all(|(note, said)| note.to_string().starts_with(said)),
                "{notes:?}"
            );
        }
    }

    fn any_namespace() -> impl Strategy<Value = Namespace> {
        let endpoint = prop_oneof![Just(""), Just("http://x/"), Just("http://y/")];
        let one = (endpoint.clone(), any::<bool>());
        let trigger = (endpoint, any::<bool>(), any::<bool>());
        (
            btree_map("[a-c]", one, 0..4),
            btree_map("[a-d]", trigger, 0..4),
            prop_oneof![Just(None), Just(Some(ENABLED)), Just(Some("disabled"))],
            proptest::option::of(any::<bool>()),
        )
            .prop_map(|(subscriptions, triggers, label, broker_ready)| {
                let subscriptions: Vec<Value> = subscriptions
                    .into_iter()
                    .map(|(name, (endpoint, going))| {
                        let mut object = subscription(&name, endpoint);
                        if going {
                            object["metadata"]["deletionTimestamp"] = "now".into();
                        }
                        object
                    })
                    .collect();
                let triggers = triggers
                    .into_iter()
                    .map(|(name, (endpoint, ready, going))| Found {
                        ready,
                        going,
                        ..ready_trigger(&name, endpoint)
                    })
                    .collect();
                Namespace { broker_ready, triggers, ..namespace(label, &subscriptions) }
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_subscription_is_forgotten_and_nothing_of_others_is_written(namespace in any_namespace()) {
            let plan = decided(namespace.clone());
            for (name, subscription) in &namespace.subscriptions {
                let subject = LEGACY_SUBSCRIPTION.object("shop", name);
                let chain = plan.chains().any(|(_, chain)| chain.subject == subject);
                let finding = plan.findings.iter().any(|finding| finding.object.as_ref() == Some(&subject));
                let matched = namespace.triggers.iter().any(|trigger| {
                    trigger.ready && !trigger.going && trigger.delivery.as_ref() == subscription.delivery.as_ref().ok()
                });
                let refused = plan.refusals().any(|finding| finding.object.as_ref().is_some_and(|o| o.name == "shop"));
                prop_assert!(chain || finding || matched || refused, "{name} is forgotten");
            }
            for step in plan.writes() {
                let there = namespace.triggers.iter().find(|trigger| trigger.name == step.object.name);
                let label = step.object.kind == kinds::NAMESPACE;
                prop_assert!(label || there.is_none_or(|there| there.going), "{} is there", step.object);
            }
        }

        #[test]
        fn after_a_run_there_is_nothing_left_to_do(mut namespace in any_namespace()) {
            let plan = decided(namespace.clone());
            if plan.refusals().next().is_none() {
                for step in plan.chains().flat_map(|(_, chain)| &chain.moves) {
                    if step.object.kind == BROKER {
                        namespace.broker_ready = Some(true);
                    }
                }
                let made: Vec<(String, String)> = plan.phases[1]
                    .iter()
                    .map(|chain| (chain.subject.name.clone(), chain.moves.last().unwrap().object.name.clone()))
                    .collect();
                for (subscription, trigger) in made {
                    let delivery = namespace.subscriptions[&subscription].delivery.clone().ok();
                    namespace.triggers.retain(|there| there.name != trigger);
                    namespace.triggers.push(Found { name: trigger, delivery, ready: true, going: false });
                }
                if !plan.phases[0].is_empty() {
                    let live = json!({"metadata": {"name": "shop", "labels": {INJECTION_LABEL: ENABLED}}});
                    namespace.item = Some(Item::new(kinds::NAMESPACE.cluster_object("shop"), Some(&live), None));
                }
                prop_assert_eq!(moves(&decided(namespace)), Vec::<String>::new());
            }
        }
    }
}
