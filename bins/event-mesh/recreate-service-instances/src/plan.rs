//! What the step decides.

use std::collections::{BTreeMap, BTreeSet};

use belay_runtime::{
    Chain, Companion, Field, FieldPath, Finding, Item, Move, Plan, Removal, kinds, object::kept_by,
};
use event_mesh_kinds::{
    CHANNEL, EVENT_ACTIVATION, INJECTION_LABEL, KNATIVE_SUBSCRIPTION, LINK_APPLICATION_LABEL,
    LINK_NAMESPACE_LABEL, broker_url, ready,
};
use serde_json::{Value, json};

use crate::{
    Args, Recreate,
    obstacles::{begun_and_left_out, going_already, obstacles},
    snapshot::{Activation, Instance, LINK_PREFIX, Place, Snapshot, State, is_instance},
    waits::{
        activation_gate, going_gate, link_gate, link_scope, provisioned, until_in_use, until_linked,
        until_others_is_in_use,
    },
};

/// The value of the label by which Knative makes a Broker.
pub(crate) const ENABLED: &str = "enabled";

/// What the catalog sets by itself and refuses on create.
const NOT_ON_CREATE: &[&str] = &[
    "spec.serviceClassRef",
    "spec.servicePlanRef",
    "spec.clusterServiceClassRef",
    "spec.clusterServicePlanRef",
    "spec.userInfo",
];

/// How the instances of a pair get their link.
pub(crate) enum Way<'a> {
    /// All that makes one is there, or nothing can be done for it.
    None,
    /// This one is just being provisioned, and makes it.
    Await(&'a Instance),
    /// These are recreated, one after the other, and each makes it.
    Recreate(Vec<&'a Instance>),
    /// The step makes it, in place of this one, which cannot be deleted.
    Link(&'a Instance),
}

impl<'a> Way<'a> {
    /// The instances that the step does something for.
    pub(crate) fn instances(&self) -> &[&'a Instance] {
        match self {
            Self::None => &[],
            Self::Await(one) | Self::Link(one) => std::slice::from_ref(one),
            Self::Recreate(chosen) => chosen,
        }
    }
}

pub(crate) fn decide(args: &Args, snapshot: &Snapshot) -> Plan {
    let mut pairs: BTreeMap<Place, Vec<&Instance>> = BTreeMap::new();
    for instance in &snapshot.instances {
        pairs.entry(pair_of(instance)).or_default().push(instance);
    }
    let mut plan = Plan::default();
    let (mut gate, mut labels, mut chains) = (Vec::new(), Vec::new(), Vec::new());
    let (mut served, mut labelled, mut linked) = (BTreeSet::new(), BTreeSet::new(), 0);
    for (pair, instances) in &pairs {
        if snapshot.is_leaving(&pair.0) {
            let going =
                |one: &&Instance| Finding::skip(one.item.object.clone(), "its namespace is being deleted");
            plan.findings.extend(instances.iter().map(going));
            continue;
        }
        let way = way(args, snapshot, pair, instances);
        let going = instances.iter().filter_map(|one| going_already(snapshot, &way, one, instances));
        plan.findings.extend(going);
        plan.findings.extend(instances.iter().filter_map(|one| begun_and_left_out(one)));
        plan.findings.extend(left_alone(args, &way, instances));
        plan.findings.extend(way.instances().iter().flat_map(|one| obstacles(args, snapshot, &way, one)));
        // A link that the step makes itself comes without an EventActivation.
        let activated = if let Way::Link(_) = way { &[] } else { way.instances() };
        gate.extend(instances.iter().filter_map(|one| activation_gate(args, snapshot, activated, one)));
        match &way {
            Way::None => {
                linked += usize::from(snapshot.is_linked(pair));
                continue;
            }
            Way::Await(one) => {
                let waits = until_others_is_in_use(args, snapshot, one);
                chains.push(Chain::new(one.item.object.clone(), waits).in_turn(turn(pair)));
            }
            Way::Recreate(chosen) => {
                gate.extend(chosen.iter().filter_map(|one| going_gate(args, snapshot, one)));
                chains.extend(recreate(args, snapshot, pair, chosen));
            }
            Way::Link(one)
                if snapshot.links(pair).is_empty() && snapshot.taken.contains(&link_name(pair)) =>
            {
                let taken = KNATIVE_SUBSCRIPTION.object(&args.integration_namespace, link_name(pair));
                let why = format!("cannot be linked: {taken} bears the name of its link and is another one");
                plan.findings.push(Finding::skip(one.item.object.clone(), why));
            }
            Way::Link(one) => {
                if labelled.insert(&pair.0) {
                    labels.extend(snapshot.namespaces.get(&pair.0).and_then(inject));
                }
                chains.push(link_instead(args, snapshot, pair, one));
            }
        }
        served.insert(pair);
    }
    for (place, activation) in &snapshot.activations {
        let pair = (place.0.clone(), activation.source.clone());
        let lives = activation.item.is_there()
            && !snapshot.is_leaving(&pair.0)
            && snapshot.applications.get(&pair.1) == Some(&false);
        if lives && !served.contains(&pair) && !snapshot.is_linked(&pair) {
            let (why, cure) = match pairs.contains_key(&pair) {
                _ if snapshot.is_present(&pair) => (
                    "which is there and must be Ready",
                    format!(
                        "cure what its conditions say, delete that Knative Subscription so that the next run makes it \
                         anew, run with --recreate all --only-namespace {}",
                        pair.0
                    ),
                ),
                true => ("which none of its ServiceInstances is to make", "delete it".to_owned()),
                false => ("which no ServiceInstance would make", "delete it".to_owned()),
            };
            gate.push(link_gate(args, &pair, activation.item.object.clone(), why, &cure));
        }
    }
    if linked > 0 {
        let message = format!("{linked} pairs of a namespace and an Application are linked already");
        plan.findings.push(Finding::note(None, message));
    }
    // What nothing of this step can change comes first: if it fails, nothing has been touched yet.
    plan.phases = vec![gate, labels, chains];
    if snapshot.integration_missing && plan.writes().next().is_some() {
        plan.findings.push(Finding::refuse(
            kinds::NAMESPACE.cluster_object(&args.integration_namespace),
            "does not exist, and Channels and links belong there. Name the right one with --integration-namespace",
        ));
    }
    plan
}

/// Chains of one pair take turns: two provisions at once can make two links.
fn turn(pair: &Place) -> String {
    format!("{}/{}", pair.0, pair.1)
}

/// The namespace and the Application that an instance links.
pub(crate) fn pair_of(instance: &Instance) -> Place {
    (instance.item.object.namespace.clone().unwrap_or_default(), instance.application.clone())
}

/// Namespace and name of the `EventActivation` of an instance.
pub(crate) fn activation_of(instance: &Instance) -> Place {
    (instance.item.object.namespace.clone().unwrap_or_default(), instance.service.clone())
}

/// How the instances of a pair get their link.
fn way<'a>(args: &Args, snapshot: &Snapshot, pair: &Place, instances: &[&'a Instance]) -> Way<'a> {
    let usable: Vec<&Instance> =
        instances.iter().copied().filter(|one| one.item.is_there() && !one.excluded).collect();
    // What an earlier attempt has begun is finished, whatever it looks like now.
    let begun = instances.iter().copied().filter(|one| one.item.is_journalled());
    let mut chosen: Vec<&Instance> = begun.collect();
    if args.recreate == Recreate::All {
        chosen.extend(usable.iter().filter(|one| !one.bound && !one.item.is_journalled()));
    }
    if !chosen.is_empty() {
        return Way::Recreate(chosen);
    }
    if snapshot.is_present(pair) {
        return Way::None;
    }
    let fit = |one: &Instance| one.offered && one.in_catalog;
    if let Some(pending) = usable.iter().find(|one| one.state == State::Pending && fit(one)) {
        return Way::Await(pending);
    }
    // One brings the link back for all. Best is one that will be provisioned again, whose EventActivation does not hang in its
    // deletion, and that lacks one too.
    let bound = usable.iter().filter(|one| one.bound).min_by_key(|one| !one.offered);
    let can_link = bound.is_some_and(|one| one.offered);
    let free = usable.iter().filter(|one| !one.bound && (fit(one) || !can_link));
    let best = free.min_by_key(|one| {
        let activation = snapshot.activations.get(&activation_of(one));
        let hangs = activation.is_some_and(|activation| activation.item.is_going());
        (!one.offered, !one.in_catalog, hangs, one.state == State::Failed, activation.is_some())
    });
    match (best, bound) {
        (Some(best), _) => Way::Recreate(vec![best]),
        (None, Some(bound)) => Way::Link(bound),
        (None, None) => Way::None,
    }
}

/// What is said of instances that could have been recreated and are not.
fn left_alone(args: &Args, way: &Way<'_>, instances: &[&Instance]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let all = args.recreate == Recreate::All;
    for one in instances.iter().filter(|one| one.item.is_there() && !one.excluded) {
        let object = &one.item.object;
        let recreated = if let Way::Recreate(chosen) = way { chosen.first() } else { None };
        let message = if way.instances().iter().any(|other| other.item.object == *object) && !one.bound {
            let keeper = one.item.live().as_ref().and_then(kept_by).filter(|_| recreated.is_some());
            keeper.map(|keeper| format!("{keeper} manages it and may create it again before this step does"))
        } else if one.bound && matches!(way, Way::Link(_)) {
            Some(
                "has a ServiceBinding, so it cannot be deleted: it is linked instead of recreated".to_owned(),
            )
        } else if one.bound && (all || recreated.is_some() || one.state == State::Failed) {
            Some("has a ServiceBinding, so it cannot be deleted: it is left alone".to_owned())
        } else if one.state == State::Failed {
            Some(
                "its provisioning failed, and nobody ever tries that again. It is left alone, since its broker would \
                 take the link of its namespace away with it: delete it and create it again yourself, then run this \
                 step again"
                    .to_owned(),
            )
        } else {
            recreated.map(|other| {
                format!("is left alone: recreating {} restores the link for both", other.item.object)
            })
        };
        findings.extend(message.map(|message| Finding::note(object.clone(), message)));
    }
    findings
}

/// The label of a namespace by which it gets its Broker, as the step found it.
pub(crate) fn injection(namespace: &Item) -> Option<String> {
    let label = FieldPath::of(["metadata", "labels", INJECTION_LABEL]);
    label.get(&namespace.origin()).and_then(Value::as_str).map(str::to_owned)
}

/// Gives a namespace the label by which it gets its Broker. A value that somebody chose is left alone.
fn inject(namespace: &Item) -> Option<Chain> {
    injection(namespace).is_none().then(|| {
        let path = FieldPath::of(["metadata", "labels", INJECTION_LABEL]);
        let label = Move::patch(namespace, vec![Field { path, value: Some(ENABLED.into()) }]);
        Chain::new(namespace.object.clone(), vec![label])
    })
}

/// The chains of the instances of a pair that are recreated, one after the other.
fn recreate(args: &Args, snapshot: &Snapshot, pair: &Place, chosen: &[&Instance]) -> Vec<Chain> {
    let mut released = BTreeSet::new();
    let chain = |one: &&Instance| {
        let object = &one.item.object;
        let activation = activation_of(one);
        let mut moves = Vec::new();
        if let (Some(owned), true) =
            (snapshot.activations.get(&activation), released.insert(activation.clone()))
        {
            let stays = |other: &&&Instance| activation_of(other) == activation && other.item.is_there();
            let names = chosen.iter().filter(stays).filter(|other| !other.recreated);
            moves.extend(release(owned, names.map(|other| other.item.object.name.as_str())));
        }
        let removal = Removal::within(args.gone_within)
            .ready_when(provisioned())
            .not_on_create(NOT_ON_CREATE)
            .companions(companions(args, snapshot, pair, &activation));
        moves.push(Move::recreate(&one.item, removal));
        moves.extend(until_in_use(args, snapshot, one));
        Chain::new(object.clone(), moves).in_turn(turn(pair))
    };
    chosen.iter().map(chain).collect()
}

/// What the broker makes and takes away with an instance: its `EventActivation`, and the link, which is that of all
/// instances of the pair. A link that it makes where there was none stays, but two are one too many.
fn companions(args: &Args, snapshot: &Snapshot, pair: &Place, activation: &Place) -> Vec<Companion> {
    let known = snapshot.activations.get(activation).map(|activation| &activation.item);
    let activation = Companion::of(&EVENT_ACTIVATION.object(&activation.0, &activation.1), known);
    let links = snapshot.links(pair);
    let link = Companion::labelled(link_scope(args, pair), links.len(), links.len().max(1));
    let worked = !links.is_empty() && links.iter().all(|link| link.ready);
    vec![activation, if worked { link.ready_when(ready()) } else { link }]
}

/// Takes the references to some instances off an `EventActivation`: it would be collected as garbage with them. Other
/// owners keep it from that, and are left alone.
fn release<'a>(activation: &Activation, instances: impl Iterator<Item = &'a str>) -> Option<Move> {
    let live = activation.item.live().filter(|_| activation.item.is_there())?;
    let references = FieldPath::dotted("metadata.ownerReferences");
    let paths = instances.map(|name| references.clone().item("name", name));
    let owners = paths.filter(|path| path.get(&live).is_some_and(is_instance));
    let fields: Vec<Field> = owners.map(|path| Field { path, value: None }).collect();
    (!fields.is_empty()).then(|| Move::patch(&activation.item, fields))
}

/// Makes the link as the broker would.
fn link_instead(args: &Args, snapshot: &Snapshot, pair: &Place, instance: &Instance) -> Chain {
    let (namespace, application) = pair;
    let mut moves = Vec::new();
    if snapshot.links(pair).is_empty() {
        let object = KNATIVE_SUBSCRIPTION.object(&args.integration_namespace, link_name(pair));
        let mut body = object.manifest();
        body["metadata"]["labels"] =
            json!({LINK_NAMESPACE_LABEL: namespace, LINK_APPLICATION_LABEL: application});
        body["spec"] = json!({
            "channel": {"apiVersion": CHANNEL.api_version(), "kind": CHANNEL.kind, "name": application},
            "subscriber": {"uri": broker_url(namespace)},
        });
        moves.push(Move::create(object, &body, &["spec.channel.name", "spec.subscriber.uri"]));
    }
    moves.push(until_linked(args, instance.item.object.clone(), pair));
    Chain::new(instance.item.object.clone(), moves).in_turn(turn(pair))
}

/// The name of the link that the step makes for a pair.
fn link_name((namespace, application): &Place) -> String {
    format!("{LINK_PREFIX}{:016x}", stable_hash(&format!("{namespace}/{application}")))
}

/// FNV-1a: the same name for the same pair, in every version of this program.
fn stable_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use event_mesh_kinds::{owner_kinds::OwnerKinds, user_namespaces::UserNamespaces};
    use std::time::Duration;

    use belay_runtime::{
        ObjectRef,
        plan::{Action, Level},
    };
    use event_mesh_kinds::{ACTIVATION_FINALIZER, SERVICE_INSTANCE};
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::snapshot::Link;

    fn args(recreate: Recreate) -> Args {
        Args {
            recreate,
            namespaces: UserNamespaces::default(),
            integration_namespace: "kyma-integration".into(),
            subscription_controller: ("kyma-system".into(), "controller".into()),
            gone_within: Duration::from_secs(300),
            provisioned_within: Duration::from_secs(120),
            linked_within: Duration::from_secs(120),
            owners: OwnerKinds::default(),
        }
    }

    fn instance(namespace: &str, name: &str) -> Instance {
        let live = json!({"metadata": {"uid": format!("uid-{name}")}, "spec": {"externalID": "e"}});
        Instance {
            item: Item::new(SERVICE_INSTANCE.object(namespace, name), Some(&live), None),
            application: "commerce".into(),
            service: "service".into(),
            offered: true,
            in_catalog: true,
            excluded: false,
            bound: false,
            state: State::Provisioned,
            recreated: false,
        }
    }

    /// As an earlier attempt left it: there with this uid, or gone.
    fn journalled(namespace: &str, name: &str, live: Option<&str>) -> Item {
        let before = json!({"metadata": {"uid": format!("uid-{name}")}, "spec": {"externalID": "e"}});
        let live = live.map(|uid| json!({"metadata": {"uid": uid}}));
        Item::new(SERVICE_INSTANCE.object(namespace, name), live.as_ref(), Some(&before))
    }

    fn activation(namespace: &str, owners: &[&str]) -> (Place, Activation) {
        let references: Vec<Value> = owners
            .iter()
            .map(|name| {
                json!({"apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceInstance", "name": name})
            })
            .collect();
        let live = json!({"metadata": {"uid": "ea", "ownerReferences": references}});
        let activation = Activation {
            item: Item::new(EVENT_ACTIVATION.object(namespace, "service"), Some(&live), None),
            source: "commerce".into(),
            owners: owners.iter().map(|&name| name.to_owned()).collect(),
            held: true,
            is_new: false,
        };
        ((namespace.to_owned(), "service".to_owned()), activation)
    }

    fn namespace(name: &str, injected: bool) -> (String, Item) {
        let labels = if injected { json!({INJECTION_LABEL: "enabled"}) } else { json!({}) };
        let live = json!({"metadata": {"name": name, "labels": labels}});
        (name.to_owned(), Item::new(kinds::NAMESPACE.cluster_object(name), Some(&live), None))
    }

    /// The namespace `orders` from before the mesh, and a cluster that could link it.
    fn snapshot(instances: Vec<Instance>) -> Snapshot {
        Snapshot {
            namespaces: [namespace("orders", false)].into(),
            applications: [("commerce".to_owned(), false)].into(),
            instances,
            activations: [activation("orders", &["a"])].into(),
            sources: ["commerce".to_owned()].into(),
            channels: ["commerce".to_owned()].into(),
            controller_available: Some(true),
            ..Snapshot::default()
        }
    }

    fn linked(mut snapshot: Snapshot) -> Snapshot {
        let places: BTreeSet<Place> = snapshot.instances.iter().map(pair_of).collect();
        for (name, application) in places {
            let link = Link { name: "brokersub-x".into(), ready: true };
            snapshot.links.insert((name.clone(), application), vec![link]);
            snapshot.brokers.insert(name.clone(), true);
            snapshot.namespaces.extend([namespace(&name, true)]);
        }
        snapshot
    }

    fn decided(snapshot: &Snapshot) -> Plan {
        let plan = decide(&args(Recreate::Missing), snapshot);
        assert_eq!(plan.mistakes(), Vec::<String>::new());
        plan
    }

    fn orders() -> Place {
        ("orders".to_owned(), "commerce".to_owned())
    }

    fn subjects(plan: &Plan) -> Vec<String> {
        plan.chains().map(|(_, chain)| chain.subject.to_string()).collect()
    }

    fn writes(plan: &Plan) -> Vec<String> {
        plan.writes().map(|step| format!("{} {}", step.verb(), step.object)).collect()
    }

    fn refusals(plan: &Plan) -> Vec<String> {
        plan.refusals().map(ToString::to_string).collect()
    }

    #[test]
    fn the_instance_of_a_namespace_without_a_link_is_recreated_and_its_event_activation_released_first() {
        let plan = decided(&snapshot(vec![instance("orders", "a")]));
        let moves: Vec<&str> = plan.phases[2][0].moves.iter().map(Move::verb).collect();
        assert_eq!(moves, ["patch", "recreate", "wait", "wait"]);
        assert_eq!(
            writes(&plan),
            ["patch EventActivation/orders/service", "recreate ServiceInstance/orders/a"]
        );
        let Action::Patch { fields } = &plan.phases[2][0].moves[0].action else { panic!("not a patch") };
        assert_eq!(
            (fields[0].path.to_string().as_str(), &fields[0].value),
            ("metadata.ownerReferences[name=a]", &None)
        );
        let Action::Recreate(removal) = &plan.phases[2][0].moves[1].action else { panic!("not a recreate") };
        let [activation, link] = &removal.companions[..] else { panic!("not two companions") };
        assert_eq!(activation.scope.object(), Some(EVENT_ACTIVATION.object("orders", "service")));
        assert_eq!(activation.image.as_ref().unwrap().value()["metadata"]["uid"], "ea");
        assert_eq!(
            link.scope.to_string(),
            "subscriptions.messaging.knative.dev with broker-namespace=orders, application-name=commerce in namespace \
             kyma-integration"
        );
        assert_eq!((link.were, link.most, &link.ready), (0, Some(1), &None));
        assert_eq!(removal.ready, Some(provisioned()));
        let left_out: Vec<String> = removal.not_on_create.iter().map(ToString::to_string).collect();
        assert_eq!(left_out, NOT_ON_CREATE);
    }

    #[test]
    fn how_a_link_was_before_is_known_to_undo() {
        let mut snapshot = linked(snapshot(vec![instance("orders", "a")]));
        let link = |snapshot: &Snapshot| {
            let plan = decide(&args(Recreate::All), snapshot);
            let step = plan.writes().find(|step| step.verb() == "recreate").unwrap();
            let Action::Recreate(removal) = &step.action else { panic!("not a recreate") };
            let link = removal.companions[1].clone();
            (link.were, link.most, link.ready)
        };
        assert_eq!(link(&snapshot), (1, Some(1), Some(ready())));
        snapshot.links.get_mut(&orders()).unwrap()[0].ready = false;
        assert_eq!(link(&snapshot), (1, Some(1), None));
    }

    /// An `EventActivation` that is on its way out, held by these finalizers.
    fn going_activation(finalizers: &[&str]) -> (Place, Activation) {
        let (place, mut activation) = activation("orders", &["a"]);
        let live = json!({"metadata": {"uid": "ea", "deletionTimestamp": "now", "finalizers": finalizers}});
        activation.item = Item::new(activation.item.object.clone(), Some(&live), None);
        activation.held = finalizers.contains(&ACTIVATION_FINALIZER);
        (place, activation)
    }

    #[test]
    fn bug_2_3_an_instance_is_not_deleted_before_its_event_activation_that_is_going_is_gone() {
        let mut snapshot = snapshot(vec![instance("orders", "a")]);
        snapshot.activations = [going_activation(&[ACTIVATION_FINALIZER])].into();
        let plan = decided(&snapshot);
        assert_eq!(refusals(&plan), Vec::<String>::new());
        // Before any write, and with the subject of the chain that then is not begun.
        let gate = &plan.phases[0][0];
        assert_eq!(gate.subject, plan.phases[2][0].subject);
        let Action::Wait(wait) = &gate.moves[0].action else { panic!("not a wait") };
        for part in ["EventActivation/orders/service gone", "--exclude ServiceInstance/orders/a"] {
            assert!(wait.what.contains(part), "{}", wait.what);
        }
        // Nobody will finish that.
        snapshot.controller_available = Some(false);
        assert!(refusals(&decided(&snapshot))[0].contains("Deployment/kyma-system/controller"));
        // What this journal has deleted is finished.
        snapshot.instances[0].item = journalled("orders", "a", None);
        let plan = decided(&snapshot);
        assert_eq!((refusals(&plan).len(), plan.phases[0].len()), (0, 0));
    }

    #[test]
    fn bug_2_3_an_event_activation_that_somebody_else_holds_in_its_deletion_is_refused_with_the_cure() {
        let mut snapshot = snapshot(vec![instance("orders", "a")]);
        snapshot.activations = [going_activation(&[ACTIVATION_FINALIZER, "example.com/held"])].into();
        let refused = refusals(&decided(&snapshot));
        assert_eq!(refused.len(), 1, "{refused:?}");
        for part in [
            "EventActivation/orders/service is being deleted, and example.com/held holds it",
            "--exclude ServiceInstance/orders/a",
        ] {
            assert!(refused[0].contains(part), "{refused:?}");
        }
        // Another one of the pair is taken, where there is one.
        let mut other = instance("orders", "b");
        other.service = "other".into();
        snapshot.instances.push(other);
        let plan = decided(&snapshot);
        assert_eq!(writes(&plan), ["recreate ServiceInstance/orders/b"]);
        assert!(refusals(&plan).is_empty());
    }

    #[test]
    fn bug_2_3_a_second_run_writes_nothing_even_when_the_controller_is_scaled_down() {
        let mut snapshot = linked(snapshot(vec![instance("orders", "a"), instance("orders", "b")]));
        snapshot.controller_available = None;
        snapshot.sources.clear();
        let plan = decided(&snapshot);
        assert!(plan.chains().next().is_none() && plan.refusals().next().is_none());
    }

    #[test]
    fn a_link_counts_only_when_all_of_it_is_there() {
        let whole = || linked(snapshot(vec![instance("orders", "a")]));
        assert!(writes(&decided(&whole())).is_empty());
        let without: [fn(&mut Snapshot); 3] = [
            |snapshot| snapshot.brokers.clear(),
            |snapshot| snapshot.namespaces.extend([namespace("orders", false)]),
            |snapshot| drop(snapshot.links.remove(&orders())),
        ];
        for part in without {
            let mut snapshot = whole();
            part(&mut snapshot);
            assert_eq!(writes(&decided(&snapshot)).len(), 2);
        }
    }

    #[test]
    fn what_is_there_and_not_ready_just_now_is_waited_for_and_not_made_anew() {
        let not_ready: [fn(&mut Snapshot); 2] = [
            |snapshot| snapshot.brokers.extend([("orders".to_owned(), false)]),
            |snapshot| snapshot.links.get_mut(&orders()).unwrap()[0].ready = false,
        ];
        for part in not_ready {
            let mut snapshot = linked(snapshot(vec![instance("orders", "a")]));
            part(&mut snapshot);
            let plan = decided(&snapshot);
            assert_eq!(subjects(&plan), ["EventActivation/orders/service"]);
            assert_eq!((plan.phases[0].len(), plan.writes().count(), plan.refusals().count()), (1, 0, 0));
            let Action::Wait(wait) = &plan.phases[0][0].moves[0].action else { panic!("not a wait") };
            for cure in ["delete that Knative Subscription", "--recreate all --only-namespace orders"] {
                assert!(wait.what.contains(cure), "{}", wait.what);
            }
            // All are recreated where a person says so.
            assert_eq!(decide(&args(Recreate::All), &snapshot).writes().count(), 2);
        }
    }

    #[test]
    fn an_instance_that_is_just_being_provisioned_is_waited_for_and_not_deleted() {
        let mut pending = instance("orders", "b");
        pending.state = State::Pending;
        let mut snapshot = snapshot(vec![instance("orders", "a"), pending]);
        let plan = decided(&snapshot);
        assert_eq!(
            (subjects(&plan), plan.writes().count()),
            (vec!["ServiceInstance/orders/b".to_owned()], 0)
        );
        // In the phase of the recreations: those of other pairs need not wait for it.
        let chain = &plan.phases[2][0];
        let moves: Vec<&str> = chain.moves.iter().map(Move::verb).collect();
        assert_eq!((moves, chain.turn.as_deref()), (vec!["wait", "wait"], Some("orders/commerce")));
        let Action::Wait(wait) = &chain.moves[0].action else { panic!("not a wait") };
        assert!(wait.what.contains("--exclude ServiceInstance/orders/b"), "{}", wait.what);
        snapshot.instances[1].excluded = true;
        assert_eq!(writes(&decided(&snapshot)).len(), 2, "another one is taken");
    }

    #[test]
    fn where_the_chosen_instance_is_left_out_the_next_is_taken_and_without_any_the_gate_holds() {
        let mut snapshot = snapshot(vec![instance("orders", "a"), instance("orders", "b")]);
        snapshot.instances[0].excluded = true;
        assert_eq!(writes(&decided(&snapshot)), ["recreate ServiceInstance/orders/b"]);
        snapshot.instances[1].excluded = true;
        let mut plan = decided(&snapshot);
        assert_eq!(subjects(&plan), ["EventActivation/orders/service"]);
        let left_out = ["a", "b"].map(|name| format!("ServiceInstance/orders/{name}"));
        plan.exclude(&left_out, Vec::new());
        assert_eq!(subjects(&plan), ["EventActivation/orders/service"], "it has not gone with them");
        plan.exclude(&["EventActivation/orders/service".to_owned()], Vec::new());
        assert!(subjects(&plan).is_empty(), "a person may leave it out too");
        let going = json!({"metadata": {"name": "orders", "deletionTimestamp": "now"}});
        let object = kinds::NAMESPACE.cluster_object("orders");
        snapshot.namespaces.insert("orders".into(), Item::new(object, Some(&going), None));
        assert!(subjects(&decided(&snapshot)).is_empty(), "its namespace is going");
    }

    #[test]
    fn what_an_earlier_attempt_has_begun_cannot_be_left_out_any_more() {
        let mut gone = instance("orders", "a");
        gone.item = journalled("orders", "a", None);
        gone.excluded = true;
        let mut plan = decided(&snapshot(vec![gone]));
        plan.exclude(&["ServiceInstance/orders/a".to_owned()], Vec::new());
        assert!(refusals(&plan)[0].contains("ServiceInstance/orders/a cannot be left out any more"));
    }

    #[test]
    fn an_instance_that_would_never_be_provisioned_again_is_refused_and_another_taken_where_there_is_one() {
        let mut snapshot = snapshot(vec![instance("orders", "a")]);
        snapshot.mappings = Some(BTreeSet::new());
        let refused = refusals(&decided(&snapshot));
        assert!(refused[0].contains("ApplicationMapping/orders/commerce does not exist"), "{refused:?}");
        assert!(
            refused[0].ends_with("or leave it out with --exclude ServiceInstance/orders/a"),
            "{refused:?}"
        );
        snapshot.mappings = Some([orders()].into());
        assert!(refusals(&decided(&snapshot)).is_empty());
        snapshot.instances[0].in_catalog = false;
        let refused = refusals(&decided(&snapshot));
        assert!(refused[0].contains("the ServiceClass of the service service is not in namespace orders"));
        snapshot.instances.push(instance("orders", "b"));
        let plan = decided(&snapshot);
        assert_eq!(
            (writes(&plan), refusals(&plan).len()),
            (vec!["recreate ServiceInstance/orders/b".to_owned()], 0)
        );
    }

    #[test]
    fn where_a_bound_instance_can_be_linked_none_is_refused_for_its_service() {
        let mut lost = instance("orders", "a");
        lost.offered = false;
        let mut bound = instance("orders", "b");
        bound.bound = true;
        let plan = decided(&snapshot(vec![lost, bound]));
        assert_eq!((writes(&plan).len(), refusals(&plan).len()), (2, 0));
        assert_eq!(plan.phases[2][0].subject.name, "b");
    }

    #[test]
    fn the_label_is_set_once_for_all_links_of_a_namespace_and_never_against_its_users_will() {
        let mut bound = instance("orders", "a");
        bound.bound = true;
        let mut other = bound.clone();
        other.item.object.name = "b".into();
        other.application = "logistics".into();
        let mut snapshot = snapshot(vec![bound, other]);
        for set in [&mut snapshot.sources, &mut snapshot.channels] {
            set.insert("logistics".into());
        }
        snapshot.applications.insert("logistics".into(), false);
        let plan = decided(&snapshot);
        let labels: Vec<String> = plan.phases[1].iter().map(|chain| chain.subject.to_string()).collect();
        assert_eq!((labels, plan.phases[2].len()), (vec!["Namespace/orders".to_owned()], 2));
        let disabled = json!({"metadata": {"name": "orders", "labels": {INJECTION_LABEL: "disabled"}}});
        let object = kinds::NAMESPACE.cluster_object("orders");
        snapshot.namespaces.insert("orders".into(), Item::new(object, Some(&disabled), None));
        let plan = decided(&snapshot);
        assert!(plan.phases[1].is_empty());
        assert!(refusals(&plan)[0].contains("of namespace orders is 'disabled'"));
    }

    #[test]
    fn of_a_linked_pair_an_instance_that_is_going_is_named_where_another_one_needs_the_link() {
        let mut going = instance("orders", "a");
        let live = json!({"metadata": {"uid": "uid-a", "deletionTimestamp": "now"}});
        going.item = Item::new(going.item.object.clone(), Some(&live), None);
        let plan = decided(&linked(snapshot(vec![going.clone(), instance("orders", "b")])));
        assert!(
            plan.findings[0].to_string().contains("run this step again then, for ServiceInstance/orders/b")
        );
        assert_eq!((plan.writes().count(), plan.refusals().count()), (0, 0));
        assert!(!decided(&linked(snapshot(vec![going]))).findings.iter().any(|one| one.object.is_some()));
    }

    #[test]
    fn of_a_pair_one_is_recreated_and_the_others_are_left_alone_with_a_note() {
        let mut bound = instance("orders", "a");
        bound.bound = true;
        let plan = decided(&snapshot(vec![bound, instance("orders", "b"), instance("orders", "c")]));
        assert_eq!(writes(&plan), ["recreate ServiceInstance/orders/b"]);
        let notes: Vec<String> = plan.findings.iter().map(ToString::to_string).collect();
        assert!(
            notes[0].contains("orders/a: has a ServiceBinding, so it cannot be deleted: it is left alone")
        );
        assert!(
            notes[1].contains("orders/c: is left alone: recreating ServiceInstance/orders/b"),
            "{notes:?}"
        );
    }

    #[test]
    fn where_all_are_bound_the_step_links_instead_under_a_name_that_stays_the_same() {
        let mut bound = instance("orders", "a");
        bound.bound = true;
        let snapshot = snapshot(vec![bound]);
        let plan = decided(&snapshot);
        let verbs: Vec<&str> = plan.phases[2][0].moves.iter().map(Move::verb).collect();
        assert_eq!(verbs, ["create", "wait"]);
        assert_eq!(plan.phases[1][0].subject.to_string(), "Namespace/orders");
        let create = plan.writes().find(|step| step.verb() == "create").unwrap();
        let Action::Create { body, .. } = &create.action else { panic!("not a create") };
        let body = body.value();
        assert_eq!(body["spec"]["subscriber"]["uri"], "http://default-broker.orders");
        assert_eq!(body["spec"]["channel"]["name"], "commerce");
        assert_eq!(
            body["metadata"]["labels"],
            json!({"broker-namespace": "orders", "application-name": "commerce"})
        );
        assert_eq!(create.object.to_string(), "Subscription/kyma-integration/brokersub-d11225100684d2ce");
        assert!(plan.findings[0].message.contains("linked instead of recreated"));
        // Once it is there, the link is waited for, and nothing is made twice.
        let mut resumed = snapshot;
        let link = Link { name: create.object.name.clone(), ready: false };
        resumed.links.insert(("orders".to_owned(), "commerce".to_owned()), vec![link]);
        assert!(!writes(&decided(&resumed)).iter().any(|write| write.starts_with("create")));
    }

    #[test]
    fn an_instance_whose_link_cannot_have_its_name_is_left_alone_and_named() {
        let mut bound = instance("orders", "a");
        bound.bound = true;
        let mut snapshot = snapshot(vec![bound]);
        snapshot.taken.insert("brokersub-d11225100684d2ce".to_owned());
        let plan = decided(&snapshot);
        assert_eq!(writes(&plan), Vec::<String>::new());
        let skip = plan.findings.iter().find(|finding| finding.level == Level::Skip).unwrap();
        assert!(
            skip.message.contains("Subscription/kyma-integration/brokersub-d11225100684d2ce bears the name")
        );
    }

    #[test]
    fn bug_5_5_an_instance_whose_provisioning_failed_is_recreated_for_want_of_a_better_one_only() {
        let mut failed = instance("orders", "a");
        failed.state = State::Failed;
        let plan = decided(&snapshot(vec![failed.clone()]));
        assert_eq!(writes(&plan).len(), 2);
        let plan = decided(&snapshot(vec![failed.clone(), instance("orders", "b")]));
        assert_eq!(writes(&plan), ["recreate ServiceInstance/orders/b"]);
        // Its broker would take the link away, whoever made it.
        let plan = decided(&linked(snapshot(vec![failed.clone(), instance("orders", "b")])));
        assert_eq!((writes(&plan).len(), plan.findings[0].level), (0, Level::Note));
        assert!(plan.findings[0].message.contains("delete it and create it again yourself"));
        failed.bound = true;
        let plan = decided(&linked(snapshot(vec![failed, instance("orders", "b")])));
        assert_eq!((writes(&plan).len(), plan.findings[0].level), (0, Level::Note));
    }

    #[test]
    fn with_recreate_all_every_instance_takes_its_turn_and_a_shared_event_activation_is_released_once() {
        let mut snapshot = linked(snapshot(vec![instance("orders", "a"), instance("orders", "b")]));
        snapshot.activations = [activation("orders", &["a", "b", "stranger"])].into();
        let plan = decide(&args(Recreate::All), &snapshot);
        assert!(plan.mistakes().is_empty());
        let turns: Vec<Option<&str>> = plan.phases[2].iter().map(|chain| chain.turn.as_deref()).collect();
        assert_eq!(turns, [Some("orders/commerce"); 2]);
        assert_eq!(writes(&plan).len(), 3);
        let Action::Patch { fields } = &plan.phases[2][0].moves[0].action else { panic!("not a patch") };
        let paths: Vec<String> = fields.iter().map(|field| field.path.to_string()).collect();
        assert_eq!(paths, ["a", "b"].map(|name| format!("metadata.ownerReferences[name={name}]")));
        assert!(fields.iter().all(|field| field.value.is_none()));
    }

    #[test]
    fn with_recreate_all_a_bound_instance_is_noted_though_nothing_of_its_pair_is_recreated() {
        let mut bound = instance("orders", "a");
        bound.bound = true;
        let snapshot = linked(snapshot(vec![bound]));
        assert!(!decided(&snapshot).findings.iter().any(|one| one.object.is_some()));
        let plan = decide(&args(Recreate::All), &snapshot);
        assert_eq!((plan.writes().count(), plan.findings[0].level), (0, Level::Note));
        assert!(plan.findings[0].to_string().contains("ServiceInstance/orders/a: has a ServiceBinding"));
    }

    #[test]
    fn bug_2_3_killed_between_delete_and_create_the_instance_is_still_in_the_plan() {
        let mut gone = instance("orders", "a");
        gone.item = journalled("orders", "a", None);
        // Another one of the pair would do too, and must not be taken in its stead.
        let plan = decided(&snapshot(vec![gone, instance("orders", "b")]));
        assert_eq!(writes(&plan), ["recreate ServiceInstance/orders/a"]);
    }

    #[test]
    fn bug_2_3_an_instance_that_an_earlier_attempt_recreated_is_waited_for_and_its_new_owner_reference_stays()
    {
        let mut back = instance("orders", "a");
        back.item = journalled("orders", "a", Some("uid-new"));
        (back.recreated, back.state) = (true, State::Pending);
        let plan = decided(&snapshot(vec![back]));
        // The runtime finds the recreate made; a patch would take off what the broker has put there since.
        assert_eq!(writes(&plan), ["recreate ServiceInstance/orders/a"]);
    }

    /// What may have become of the world between an attempt that died and the next.
    const LATER: [fn(&mut Snapshot); 6] = [
        |snapshot| snapshot.sources.clear(),
        |snapshot| snapshot.channels.clear(),
        |snapshot| snapshot.applications.clear(),
        |snapshot| snapshot.controller_available = Some(false),
        |snapshot| snapshot.instances[0].in_catalog = false,
        |snapshot| snapshot.instances[0].bound = true,
    ];

    #[test]
    fn what_an_earlier_attempt_has_not_touched_is_asked_again_when_it_is_resumed() {
        let resumed = || {
            let mut untouched = instance("orders", "a");
            untouched.item = journalled("orders", "a", Some("uid-a"));
            snapshot(vec![untouched])
        };
        let plan = decided(&resumed());
        assert_eq!((writes(&plan).len(), refusals(&plan).len()), (2, 0));
        for change in LATER {
            let mut snapshot = resumed();
            change(&mut snapshot);
            assert_eq!(refusals(&decided(&snapshot)).len(), 1);
        }
    }

    #[test]
    fn what_an_earlier_attempt_has_deleted_is_finished_whatever_has_become_of_the_world() {
        let going = json!({"metadata": {"uid": "uid-a", "deletionTimestamp": "now"}});
        let before = json!({"metadata": {"uid": "uid-a"}});
        let deleted = Item::new(SERVICE_INSTANCE.object("orders", "a"), Some(&going), Some(&before));
        let gone = journalled("orders", "a", None);
        let back = journalled("orders", "a", Some("uid-new"));
        for (item, recreated) in [(deleted, false), (gone, false), (back, true)] {
            for change in LATER {
                let mut one = instance("orders", "a");
                (one.item, one.recreated) = (item.clone(), recreated);
                let mut snapshot = snapshot(vec![one]);
                change(&mut snapshot);
                let plan = decided(&snapshot);
                assert_eq!(refusals(&plan), Vec::<String>::new());
                assert_eq!(writes(&plan), ["recreate ServiceInstance/orders/a"]);
            }
        }
    }

    #[test]
    fn an_integration_namespace_that_does_not_exist_is_refused_where_something_is_to_be_written() {
        let mut snapshot = snapshot(vec![instance("orders", "a")]);
        snapshot.integration_missing = true;
        let refused = refusals(&decided(&snapshot));
        assert!(refused[0].starts_with("Namespace/kyma-integration: does not exist"), "{refused:?}");
        assert!(refused[0].contains("--integration-namespace"), "{refused:?}");
        snapshot.instances.clear();
        assert!(refusals(&decided(&snapshot)).is_empty());
    }

    #[test]
    fn all_that_stands_in_the_way_is_refused_at_once_with_the_cure() {
        let mut snapshot = snapshot(vec![instance("orders", "a"), instance("billing", "b")]);
        snapshot.namespaces.extend([namespace("billing", false)]);
        snapshot.sources.clear();
        snapshot.channels.clear();
        snapshot.controller_available = Some(false);
        let refused = refusals(&decided(&snapshot));
        assert_eq!(refused.len(), 5, "{refused:?}");
        assert!(refused.iter().all(|text| text.contains("--exclude ServiceInstance/")), "{refused:?}");
        assert!(refused.iter().any(|text| text.contains("Channel/kyma-integration/commerce is not Ready")));
        assert!(
            refused.iter().any(|text| text.contains("Deployment/kyma-system/controller is not available"))
        );
    }

    #[test]
    fn the_controller_is_not_needed_where_it_holds_nothing() {
        let mut snapshot = snapshot(vec![instance("orders", "a")]);
        snapshot.controller_available = None;
        assert_eq!(refusals(&decided(&snapshot)).len(), 1);
        snapshot.activations.values_mut().for_each(|activation| activation.held = false);
        assert!(refusals(&decided(&snapshot)).is_empty());
    }

    #[test]
    fn bug_5_8_an_instance_whose_application_or_service_is_gone_is_refused_and_left_alone_when_linked() {
        let mut lost = instance("orders", "a");
        lost.offered = false;
        let mut snapshot = snapshot(vec![lost]);
        assert!(refusals(&decided(&snapshot))[0].contains("has no service service any more"));
        snapshot.applications.insert("commerce".into(), true);
        assert!(refusals(&decided(&snapshot))[0].contains("is being deleted"));
        snapshot.applications.clear();
        assert!(refusals(&decided(&snapshot))[0].contains("its Application commerce is gone"));
        assert!(refusals(&decided(&linked(snapshot))).is_empty());
    }

    #[test]
    fn bug_2_3_an_instance_that_is_being_deleted_already_is_refused_but_not_when_the_step_did_it() {
        let going = json!({"metadata": {"uid": "uid-a", "deletionTimestamp": "now"}});
        let mut one = instance("orders", "a");
        one.item = Item::new(one.item.object.clone(), Some(&going), None);
        let plan = decided(&snapshot(vec![one.clone()]));
        assert!(refusals(&plan)[0].contains("is being deleted already"));
        assert!(writes(&plan).is_empty());
        one.item =
            Item::new(one.item.object.clone(), Some(&going), Some(&json!({"metadata": {"uid": "uid-a"}})));
        let plan = decided(&snapshot(vec![one]));
        assert_eq!((refusals(&plan).len(), writes(&plan).len()), (0, 1));
    }

    #[test]
    fn an_instance_that_is_being_deleted_is_only_noted_where_its_application_is_gone_and_nothing_is_to_be_done()
     {
        let going = json!({"metadata": {"uid": "uid-a", "deletionTimestamp": "now"}});
        let mut one = instance("orders", "a");
        one.item = Item::new(one.item.object.clone(), Some(&going), None);
        let mut snapshot = snapshot(vec![one]);
        snapshot.applications.clear();
        let plan = decided(&snapshot);
        assert_eq!((plan.chains().count(), plan.findings.len(), refusals(&plan).len()), (0, 1, 0));
        assert!(plan.findings[0].to_string().contains("its Application commerce is gone"));
        // Where another one of its pair is to be linked, it is in the way.
        snapshot.instances.push(instance("orders", "b"));
        assert!(refusals(&decided(&snapshot))[0].contains("is being deleted already, and takes the link"));
    }

    #[test]
    fn two_links_are_refused_since_the_broker_could_not_cope_with_them() {
        let mut snapshot = linked(snapshot(vec![instance("orders", "a")]));
        let links = snapshot.links.values_mut().next().unwrap();
        links.push(Link { name: "brokersub-y".into(), ready: true });
        assert!(refusals(&decided(&snapshot))[0].contains("brokersub-x and brokersub-y link it"));
    }

    #[test]
    fn an_event_activation_without_an_instance_must_be_linked_and_is_asked_for_before_any_write() {
        let mut snapshot = snapshot(Vec::new());
        let plan = decided(&snapshot);
        assert_eq!(plan.phases[0][0].subject.to_string(), "EventActivation/orders/service");
        assert_eq!((plan.phases[0].len(), plan.writes().count()), (1, 0));
        snapshot.applications.clear();
        assert!(decided(&snapshot).phases[0].is_empty(), "its Application is gone");
    }

    #[test]
    fn a_provisioned_instance_without_an_event_activation_is_asked_for_it_before_any_write() {
        let mut snapshot = linked(snapshot(vec![instance("orders", "a")]));
        snapshot.activations.clear();
        assert_eq!(decided(&snapshot).phases[0][0].subject.to_string(), "ServiceInstance/orders/a");
        snapshot.links.clear();
        let plan = decided(&snapshot);
        assert!(plan.phases[0].is_empty(), "it is recreated, and gets one");
        assert_eq!(writes(&plan), ["recreate ServiceInstance/orders/a"]);
        snapshot.instances[0].bound = true;
        let plan = decided(&snapshot);
        assert_eq!(
            plan.phases[0][0].subject.to_string(),
            "ServiceInstance/orders/a",
            "it is linked, and gets none"
        );
        assert_eq!(writes(&plan).len(), 1);
    }

    #[test]
    fn a_namespace_that_is_being_deleted_is_skipped() {
        let going = json!({"metadata": {"name": "orders", "deletionTimestamp": "now"}});
        let mut snapshot = snapshot(vec![instance("orders", "a")]);
        let item = Item::new(kinds::NAMESPACE.cluster_object("orders"), Some(&going), None);
        snapshot.namespaces.insert("orders".into(), item);
        let plan = decided(&snapshot);
        assert!(plan.chains().next().is_none());
        assert_eq!(plan.findings[0].level, Level::Skip);
    }

    /// An instance in any state: none, some or all of bound, failed, offered, journalled; there, going or gone.
    fn any_instance() -> impl Strategy<Value = Instance> {
        let state = prop_oneof![Just(State::Pending), Just(State::Provisioned), Just(State::Failed)];
        let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), state);
        (0..3usize, 0..6usize, 0..2usize, 0..2usize, flags, 0..6u8).prop_map(
            |(
                namespace,
                name,
                application,
                service,
                (bound, offered, in_catalog, excluded, state),
                found,
            )| {
                let object = SERVICE_INSTANCE.object(format!("ns{namespace}"), format!("i{name}"));
                let old = json!({"metadata": {"uid": "old"}});
                let going = json!({"metadata": {"uid": "old", "deletionTimestamp": "now"}});
                let new = json!({"metadata": {"uid": "new"}});
                let (live, before) = match found {
                    0 => (Some(&old), None),
                    1 => (Some(&going), None),
                    2 => (None, Some(&old)),
                    3 => (Some(&going), Some(&old)),
                    5 => (Some(&old), Some(&old)),
                    _ => (Some(&new), Some(&old)),
                };
                Instance {
                    item: Item::new(object, live, before),
                    application: format!("app{application}"),
                    service: format!("app{application}-s{service}"),
                    offered,
                    in_catalog,
                    excluded,
                    bound,
                    state,
                    recreated: found == 4,
                }
            },
        )
    }

    fn any_snapshot() -> impl Strategy<Value = Snapshot> {
        let instances = vec(any_instance(), 0..10).prop_map(|mut instances| {
            instances.sort_by(|a, b| a.item.object.cmp(&b.item.object));
            instances.dedup_by(|a, b| a.item.object == b.item.object);
            instances
        });
        let pairs = || vec((0..3usize, 0..2usize, 0..3usize, any::<bool>()), 0..6);
        let owners = vec((0..3usize, 0..2usize, 0..2usize, vec(0..6usize, 0..3)), 0..6);
        (instances, pairs(), owners, vec(any::<bool>(), 6), proptest::option::of(any::<bool>())).prop_map(
            |(instances, pairs, owners, flags, controller_available)| {
                let mut snapshot = Snapshot { instances, controller_available, ..Snapshot::default() };
                for (number, injected) in flags[..3].iter().enumerate() {
                    snapshot.namespaces.extend([namespace(&format!("ns{number}"), *injected)]);
                }
                for number in 0..2 {
                    snapshot.applications.insert(format!("app{number}"), flags[3 + number]);
                    snapshot.sources.insert(format!("app{number}"));
                }
                snapshot.channels.extend(flags[5].then(|| "app0".to_owned()));
                for (namespace, application, links, ready) in pairs {
                    let pair = (format!("ns{namespace}"), format!("app{application}"));
                    snapshot.brokers.insert(pair.0.clone(), ready);
                    let link = Link { name: "brokersub-x".into(), ready };
                    snapshot.links.insert(pair, vec![link; links]);
                }
                for (namespace, application, service, names) in owners {
                    let names: Vec<String> = names.iter().map(|name| format!("i{name}")).collect();
                    let names: Vec<&str> = names.iter().map(String::as_str).collect();
                    let ((namespace, _), mut one) = activation(&format!("ns{namespace}"), &names);
                    one.source = format!("app{application}");
                    let id = format!("app{application}-s{service}");
                    one.item =
                        Item::new(EVENT_ACTIVATION.object(&namespace, &id), one.item.live().as_ref(), None);
                    snapshot.activations.insert((namespace, id), one);
                }
                snapshot
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whatever_is_there_nothing_is_written_twice_and_nothing_that_is_bound_or_going_is_deleted(
            snapshot in any_snapshot(), all in any::<bool>(),
        ) {
            let plan = decide(&args(if all { Recreate::All } else { Recreate::Missing }), &snapshot);
            prop_assert_eq!(plan.mistakes(), Vec::<String>::new());
            for step in plan.writes().filter(|step| step.verb() == "recreate") {
                let one = snapshot.instances.iter().find(|one| one.item.object == step.object).unwrap();
                let free = !one.bound && !one.excluded && one.item.is_there();
                prop_assert!(one.item.is_journalled() || free, "{}", step.object);
                let refused = plan.refusals().any(|said| said.object.as_ref() == Some(&step.object));
                prop_assert!(one.is_half_way() || !one.bound || refused, "{} is bound", step.object);
            }
            for chain in &plan.phases[2] {
                let one = snapshot.instances.iter().find(|one| one.item.object == chain.subject).unwrap();
                let pair = pair_of(one);
                prop_assert_eq!(chain.turn.clone(), Some(format!("{}/{}", pair.0, pair.1)));
            }
            prop_assert!(plan.phases[0].iter().flat_map(|chain| &chain.moves).all(|step| !step.writes()));
        }

        #[test]
        fn whatever_is_there_no_pair_without_a_link_and_nothing_begun_is_forgotten(snapshot in any_snapshot()) {
            let plan = decide(&args(Recreate::Missing), &snapshot);
            let is_subject = |object: &ObjectRef| plan.chains().any(|(_, chain)| chain.subject == *object);
            let is_refused = |object: &ObjectRef| plan.refusals().any(|one| one.object.as_ref() == Some(object));
            let is_seen_to = |pair: &Place| {
                let mut of_pair = snapshot.instances.iter().filter(|one| pair_of(one) == *pair);
                of_pair.any(|one| is_subject(&one.item.object) || is_refused(&one.item.object))
            };
            for one in &snapshot.instances {
                let (object, pair) = (&one.item.object, pair_of(one));
                prop_assert!(is_subject(object) || !one.item.is_journalled(), "{object} was begun and is forgotten");
                let done = is_seen_to(&pair) || snapshot.is_present(&pair);
                prop_assert!(done || one.excluded, "{object} is forgotten");
            }
            for (place, activation) in &snapshot.activations {
                let pair = (place.0.clone(), activation.source.clone());
                let concerns = snapshot.applications.get(&pair.1) == Some(&false);
                let done = is_seen_to(&pair) || is_subject(&activation.item.object) || snapshot.is_linked(&pair);
                prop_assert!(done || !concerns, "{} is forgotten", activation.item.object);
            }
        }

        #[test]
        fn after_a_run_there_is_nothing_left_to_write(snapshot in any_snapshot()) {
            let mut after = linked(snapshot);
            for one in &mut after.instances {
                let live = json!({"metadata": {"uid": "after"}});
                one.item = Item::new(one.item.object.clone(), Some(&live), None);
                (one.state, one.recreated) = (State::Provisioned, false);
            }
            prop_assert_eq!(decide(&args(Recreate::Missing), &after).writes().count(), 0);
        }
    }
}
