//! What the step decides.

use std::{collections::BTreeMap, time::Duration};

use belay_runtime::{
    Chain, Finding, Item, Move, Plan, Progress, Removal, Scope, Test, kinds,
    object::{kept_by, text},
    plan::Level,
};
use event_mesh_kinds::{
    LEGACY_FINALIZER,
    event_service::{Installation, Pod, Rollout, Verdict, judge, old_pod, source_lacks},
    trigger::{Delivery, Match, match_up},
};
use serde_json::Value;

use crate::{Args, snapshot::Snapshot};

/// The condition by which the old bus says that it delivers.
const IS_READY: &str = "is-ready";

/// How long an event-service that does not work may take to do so again: as long as a pod takes to be replaced.
const WORKS_WITHIN: Duration = Duration::from_secs(60);

/// Finalizers that Kubernetes itself serves.
const OF_KUBERNETES: [&str; 2] = ["foregroundDeletion", "orphan"];

/// A Subscription, as far as deciding on it needs.
struct Subscription<'a> {
    item: &'a Item,
    delivery: Result<Delivery, &'static str>,
    finalizers: Vec<String>,
    keeper: Option<&'static str>,
    /// This step deleted it, and somebody has made it again since.
    is_back: bool,
}

impl<'a> Subscription<'a> {
    fn of(item: &'a Item) -> Self {
        let is_another = item.is_journalled()
            && item.live_uid().is_some_and(|uid| Some(uid) != text(&item.origin(), "/metadata/uid"));
        // Of one that came back only the new one counts, also when that is on its way out.
        let again = item.live().filter(|_| is_another);
        let found = again.unwrap_or_else(|| item.origin());
        let finalizers = found.pointer("/metadata/finalizers").and_then(Value::as_array);
        Self {
            item,
            delivery: Delivery::of_subscription(&found),
            finalizers: finalizers
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            keeper: kept_by(&found),
            is_back: is_another,
        }
    }

    fn is_held(&self) -> bool {
        self.finalizers.iter().any(|finalizer| finalizer == LEGACY_FINALIZER)
    }

    /// Whether somebody else deletes it.
    fn goes_by_itself(&self) -> bool {
        self.item.is_going() && (self.is_back || !self.item.is_journalled())
    }
}

pub(crate) fn decide(args: &Args, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let (mut waits, mut removals) = (Vec::new(), Vec::new());
    let mut sources = Sources { args, snapshot, known: BTreeMap::new() };
    let unserved = controller_refusal(args, snapshot);
    let mut held = false;
    for (object, why) in &snapshot.unclear {
        if args.namespaces.contain(object.namespace.as_deref().unwrap_or_default()) {
            let left = format!("{why}: it is left alone. Make it one of the two, or delete it");
            plan.findings.push(Finding::skip(object.clone(), left));
        }
    }
    for (namespace, subscriptions) in by_namespace(snapshot) {
        if let Some(why) = args.namespaces.why_not(namespace) {
            let left = format!("{why}: its {} Subscriptions are left alone", subscriptions.len());
            plan.findings.push(Finding::skip(kinds::NAMESPACE.cluster_object(namespace), left));
            continue;
        }
        // One that somebody else deletes has no claim on a Trigger: recreate-triggers makes none for it either.
        let wanted: BTreeMap<&str, &Delivery> = subscriptions
            .iter()
            .filter(|(_, subscription)| !subscription.goes_by_itself())
            .filter_map(|(&name, subscription)| Some((name, subscription.delivery.as_ref().ok()?)))
            .collect();
        let none = Vec::new();
        let triggers = snapshot.triggers.get(namespace).unwrap_or(&none);
        let matches = match_up(namespace, &wanted, triggers);
        for (name, subscription) in &subscriptions {
            let item = subscription.item;
            let object = item.object.clone();
            plan.findings.extend(foreign_finalizers(subscription));
            if subscription.is_back && item.is_there() {
                plan.findings.push(is_back(subscription));
                continue;
            }
            let mut look = Look::default();
            if item.is_there() {
                look = self::look(args, subscription, matches.get(name), &mut sources);
            }
            let mut refused = look.findings.iter().any(|finding| finding.level == Level::Refuse);
            plan.findings.extend(look.findings);
            if subscription.is_held() && item.live_uid().is_some() && unserved.is_some() {
                refused = true;
                held = true;
            }
            // What is refused is never part of the plan: a later round has nothing to stop it by.
            if let (Some(step), false) = (removal(args, subscription), refused) {
                waits.extend(look.wait.map(|wait| Chain::new(object.clone(), vec![wait])));
                removals.push(Chain::new(object, vec![step]));
            }
        }
    }
    if held {
        plan.findings.extend(unserved);
    }
    // Nothing is deleted before every event-service works: one that does not would have all of it taken back.
    plan.phases = vec![waits, removals];
    plan
}

fn by_namespace(snapshot: &Snapshot) -> BTreeMap<&str, BTreeMap<&str, Subscription<'_>>> {
    let mut namespaces: BTreeMap<&str, BTreeMap<&str, Subscription<'_>>> = BTreeMap::new();
    for item in &snapshot.subscriptions {
        let namespace = item.object.namespace.as_deref().unwrap_or_default();
        namespaces.entry(namespace).or_default().insert(&item.object.name, Subscription::of(item));
    }
    namespaces
}

/// How a Subscription goes; none if it is gone.
fn removal(args: &Args, subscription: &Subscription<'_>) -> Option<Move> {
    let item = subscription.item;
    item.live_uid()?;
    if subscription.goes_by_itself() {
        // There is nothing to restore, but it must be gone all the same.
        return Some(Move::wait_gone(item, args.gone_within, &args.controller()));
    }
    // Its Trigger was looked for as it was then: with another spec it would go without one.
    let removal = Removal::within(args.gone_within)
        .only_as_seen()
        .ready_when(Test::Condition(IS_READY.to_owned()))
        .served_by(args.controller());
    Some(Move::delete(item, removal))
}

/// It would only come back again.
fn is_back(subscription: &Subscription<'_>) -> Finding {
    let source = match subscription.keeper {
        Some(keeper) => format!("its source ({keeper})"),
        None => "where it comes from".to_owned(),
    };
    Finding::skip(
        subscription.item.object.clone(),
        format!(
            "is there again since this step deleted it: remove it from {source}, then run retire-subscriptions again"
        ),
    )
}

/// What this step knows nothing of may hold a Subscription for ever.
fn foreign_finalizers(subscription: &Subscription<'_>) -> Vec<Finding> {
    let is_foreign = |name: &&String| *name != LEGACY_FINALIZER && !OF_KUBERNETES.contains(&name.as_str());
    let there = subscription.item.live_uid().is_some();
    let foreign = subscription.finalizers.iter().filter(is_foreign).filter(|_| there);
    let note = |name: &String| {
        let message = format!(
            "has the finalizer {name}, which the Event Bus does not serve: it is gone only when whoever set it takes it off"
        );
        Finding::note(subscription.item.object.clone(), message)
    };
    foreign.map(note).collect()
}

/// What speaks against the removal of a Subscription.
#[derive(Default)]
struct Look {
    findings: Vec<Finding>,
    /// What must hold first.
    wait: Option<Move>,
}

/// Why a Subscription may not go yet, and what should be known when it does.
fn look(
    args: &Args,
    subscription: &Subscription<'_>,
    trigger: Option<&Match>,
    sources: &mut Sources<'_>,
) -> Look {
    let object = &subscription.item.object;
    let mut look = Look::default();
    let findings = &mut look.findings;
    if let Some(keeper) = subscription.keeper {
        let message =
            format!("{keeper} manages it and may create it again: remove it from {keeper}'s source");
        findings.push(Finding::note(object.clone(), message));
    }
    let delivery = match &subscription.delivery {
        Ok(delivery) => delivery,
        Err(lacks) if args.drop_undeliverable => {
            let message = format!("{lacks}, so nothing is delivered to it: it goes without a Trigger");
            findings.push(Finding::note(object.clone(), message));
            return look;
        }
        Err(lacks) => {
            let message = format!(
                "{lacks}, so it has no Trigger. Delete it all the same by --drop-undeliverable, or leave it alone \
                 with --exclude {object}"
            );
            findings.push(Finding::refuse(object.clone(), message));
            return look;
        }
    };
    let lacks = match trigger {
        Some(Match::Ready(_)) => None,
        Some(Match::NotReady(name)) => Some(format!("its Trigger {name} is not Ready")),
        Some(Match::Absent(_)) | None => Some("it has no Trigger".to_owned()),
    };
    if let Some(lacks) = lacks {
        let message = format!(
            "{lacks}, so it must stay. Run recreate-triggers first (belay recreate-triggers), then this step again"
        );
        findings.push(Finding::refuse(object.clone(), message));
    }
    findings.extend(match sources.feeds(&delivery.source) {
        Feeds::Mesh => None,
        Feeds::Nothing(why) => Some(Finding::note(object.clone(), why)),
        Feeds::OldPath(why) | Feeds::Failing(why) | Feeds::Lost(why) if args.accept_event_loss => {
            Some(Finding::note(
                object.clone(),
                format!("events of its source may be lost, as --accept-event-loss allows: {why}"),
            ))
        }
        Feeds::OldPath(why) => Some(Finding::refuse(
            object.clone(),
            format!(
                "its source still feeds the old path, or may: {why}. Wait until the event-service is updated (belay \
                 verify-event-services), or lose its events with --accept-event-loss"
            ),
        )),
        Feeds::Lost(why) => Some(Finding::refuse(
            object.clone(),
            format!(
                "its event-service does not work: {why}. Cure that, or lose its events with --accept-event-loss"
            ),
        )),
        Feeds::Failing(_) => {
            look.wait = sources.wait(&delivery.source);
            None
        }
    });
    look
}

/// Where a source's events go.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Feeds {
    Mesh,
    /// There is nothing that could feed anything.
    Nothing(String),
    OldPath(String),
    /// To the mesh, once its event-service works and its rollout is finished, which may be in a moment.
    Failing(String),
    /// Nowhere: its event-service needs somebody's help.
    Lost(String),
}

/// Looks each source up once.
struct Sources<'a> {
    args: &'a Args,
    snapshot: &'a Snapshot,
    known: BTreeMap<String, Feeds>,
}

impl Sources<'_> {
    fn feeds(&mut self, source: &str) -> Feeds {
        if let Some(known) = self.known.get(source) {
            return known.clone();
        }
        let feeds = self.find_out(source);
        self.known.insert(source.to_owned(), feeds.clone());
        feeds
    }

    fn find_out(&self, source: &str) -> Feeds {
        let installation = self.snapshot.applications.get(source);
        let rollout = self.snapshot.rollouts.get(source);
        let pods: Vec<&Pod> = self.snapshot.pods.iter().filter(|pod| pod.application() == source).collect();
        let namespace = &self.args.expected.integration_namespace;
        if rollout.is_none() && installation != Some(&Installation::Installed) {
            // Pods may outlive their Deployment: orphaned, or still on their way out.
            let images = self.snapshot.images.as_deref().ok();
            if let Some(why) = old_pod(images, namespace, &pods) {
                return Feeds::OldPath(format!("{why}, although its Deployment is gone"));
            }
            let why = match installation {
                None => {
                    "there is no Application. Whoever posts to the publish service itself, inside the cluster, is not seen \
                     here: its events are lost"
                }
                Some(Installation::Going) => "it is being deleted",
                _ => "it has spec.skipInstallation",
            };
            return Feeds::Nothing(format!("nothing feeds its source {source}: {why}"));
        }
        let images = match &self.snapshot.images {
            Ok(images) => images,
            Err(why) => return Feeds::OldPath(why.clone()),
        };
        let missing = Some("does not exist".to_owned());
        let lacks = self.snapshot.sources.get(source).unwrap_or(&missing).as_deref();
        match judge(images, namespace, source, rollout, &pods, lacks) {
            Verdict::Updated => Feeds::Mesh,
            Verdict::NotUpdated(why) => Feeds::OldPath(why),
            Verdict::Failing(why) | Verdict::Unsettled(why) => Feeds::Failing(why),
            Verdict::Lost(why) => Feeds::Lost(why),
        }
    }

    /// Waits until an event-service that does not work does.
    fn wait(&self, source: &str) -> Option<Move> {
        let expected = self.args.expected.clone();
        let images = self.snapshot.images.clone().ok()?;
        let (deployment, http_source) = (expected.deployment_of(source), expected.source_of(source));
        let labels = [("app", deployment.name.as_str())];
        let scopes = vec![
            Scope::of(&deployment),
            Scope::of(&http_source),
            Scope::labelled(kinds::POD, &expected.integration_namespace, &labels),
        ];
        let what = format!("the event-service of its source {source} to work");
        let (watched, source) = (deployment.clone(), source.to_owned());
        Some(Move::wait_until(deployment, what, scopes, WORKS_WITHIN, move |view| {
            let pods: Vec<Pod> = view.list(&kinds::POD).iter().filter_map(Pod::of).collect();
            let rollout = view.get(&watched).as_ref().map(Rollout::of);
            let lacks = source_lacks(view.get(&http_source).as_ref());
            let namespace = &expected.integration_namespace;
            let pods: Vec<&Pod> = pods.iter().collect();
            match judge(&images, namespace, &source, rollout.as_ref(), &pods, lacks.as_deref()) {
                Verdict::Updated => Progress::Done,
                Verdict::Failing(why) | Verdict::Unsettled(why) => Progress::Pending(why),
                Verdict::NotUpdated(why) | Verdict::Lost(why) => Progress::Failed(why),
            }
        }))
    }
}

fn controller_refusal(args: &Args, snapshot: &Snapshot) -> Option<Finding> {
    let why = match snapshot.controller_available {
        Some(true) => return None,
        Some(false) => "is not available",
        None => "does not exist",
    };
    Some(Finding::refuse(
        args.controller(),
        format!(
            "{why}, and only it takes the finalizer {LEGACY_FINALIZER} off Subscriptions: without it none could ever be gone. \
             Bring it up, or name the right one with --subscription-controller"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use event_mesh_kinds::{
        LEGACY_SUBSCRIPTION, event_service::Expected, owner_kinds::OwnerKinds, trigger::Found,
        user_namespaces::UserNamespaces,
    };
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const IMAGE: &str = "event-service:new";

    fn args() -> Args {
        Args {
            namespaces: UserNamespaces::default(),
            expected: Expected {
                integration_namespace: "kyma-integration".into(),
                images: Vec::new(),
                application_operator: kinds::STATEFUL_SET.object("kyma-integration", "application-operator"),
            },
            accept_event_loss: false,
            drop_undeliverable: false,
            subscription_controller: ("kyma-system".into(), "controller".into()),
            gone_within: Duration::from_secs(300),
            owners: OwnerKinds::default(),
        }
    }

    fn subscription(name: &str) -> Value {
        json!({
            "metadata": {"name": name, "namespace": "shop", "uid": name, "finalizers": [LEGACY_FINALIZER]},
            "spec": {
                "source_id": "commerce", "event_type": "order.created", "event_type_version": "v1",
                "endpoint": format!("http://{name}/"),
            },
        })
    }

    fn item(live: Option<&Value>, before: Option<&Value>) -> Item {
        let object = live.or(before).unwrap();
        Item::new(LEGACY_SUBSCRIPTION.object_of(object), live, before)
    }

    fn trigger(name: &str) -> Found {
        let delivery = Delivery::of_subscription(&subscription(name)).ok();
        Found { name: name.to_owned(), delivery, ready: true, going: false }
    }

    fn rollout(image: &str) -> Rollout {
        Rollout::of(&json!({
            "metadata": {"name": "commerce-event-service"},
            "spec": {"replicas": 1, "template": {"spec": {"containers": [
                {"name": "commerce-event-service", "image": image, "args": ["--eventMeshURL=http://commerce"]},
            ]}}},
            "status": {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
        }))
    }

    /// All is well: these Subscriptions may go.
    fn snapshot(items: Vec<Item>) -> Snapshot {
        let triggers = items.iter().map(|item| trigger(&item.object.name)).collect();
        Snapshot {
            subscriptions: items,
            unclear: Vec::new(),
            triggers: [("shop".to_owned(), triggers)].into(),
            applications: [("commerce".to_owned(), Installation::Installed)].into(),
            rollouts: [("commerce".to_owned(), rollout(IMAGE))].into(),
            pods: Vec::new(),
            sources: [("commerce".to_owned(), None)].into(),
            images: Ok(vec![IMAGE.to_owned()]),
            controller_available: Some(true),
        }
    }

    fn one() -> Snapshot {
        snapshot(vec![item(Some(&subscription("a")), None)])
    }

    fn decided(snapshot: &Snapshot) -> Plan {
        let plan = decide(&args(), snapshot);
        assert!(plan.mistakes().is_empty());
        plan
    }

    #[track_caller]
    fn refused(snapshot: &Snapshot, why: &str) {
        let plan = decided(snapshot);
        let refusals: Vec<String> = plan.refusals().map(ToString::to_string).collect();
        assert!(refusals.len() == 1 && refusals[0].contains(why), "{refusals:?}");
    }

    fn moves(plan: &Plan) -> Vec<String> {
        let all = plan.chains().flat_map(|(_, chain)| &chain.moves);
        all.map(|step| format!("{} {}", step.verb(), step.object)).collect()
    }

    #[test]
    fn one_with_a_ready_trigger_and_an_updated_source_is_deleted() {
        let plan = decided(&one());
        assert_eq!(moves(&plan), ["delete Subscription/shop/a"]);
        assert!(plan.findings.is_empty(), "{:?}", plan.findings);
    }

    #[test]
    fn nothing_left_is_nothing_to_do_whatever_the_controllers_are() {
        let gone = Snapshot {
            images: Err("nobody says".into()),
            controller_available: None,
            applications: BTreeMap::new(),
            ..snapshot(Vec::new())
        };
        let plan = decided(&gone);
        assert_eq!((moves(&plan).len(), plan.findings.len()), (0, 0));
    }

    #[test]
    fn bug_2_3_without_a_trigger_that_is_ready_and_delivers_the_same_it_stays() {
        let with = |triggers: Vec<Found>| Snapshot { triggers: [("shop".into(), triggers)].into(), ..one() };
        refused(&with(Vec::new()), "it has no Trigger, so it must stay. Run recreate-triggers first");
        refused(&with(vec![trigger("b")]), "it has no Trigger");
        refused(&with(vec![Found { delivery: None, ..trigger("a") }]), "it has no Trigger");
        refused(&with(vec![Found { ready: false, ..trigger("a") }]), "its Trigger a is not Ready");
        refused(&with(vec![Found { going: true, ..trigger("a") }]), "it has no Trigger");
    }

    #[test]
    fn bug_2_3_two_identical_subscriptions_need_two_triggers() {
        let mut twin = subscription("a");
        twin["metadata"]["name"] = "b".into();
        let items = vec![item(Some(&subscription("a")), None), item(Some(&twin), None)];
        let same = |name: &str| Found { name: name.into(), ..trigger("a") };
        let with = |triggers: Vec<Found>| Snapshot {
            triggers: [("shop".into(), triggers)].into(),
            ..snapshot(items.clone())
        };
        refused(&with(vec![trigger("a")]), "Subscription/shop/b: it has no Trigger");
        assert_eq!(decided(&with(vec![trigger("a"), same("b")])).refusals().count(), 0);
        assert_eq!(decided(&with(vec![same("x"), same("y")])).refusals().count(), 0);
    }

    #[test]
    fn it_stays_while_an_event_service_feeds_the_old_path_unless_loss_is_accepted() {
        let old = |rollouts: BTreeMap<String, Rollout>| Snapshot { rollouts, ..one() };
        let outdated = old([("commerce".to_owned(), rollout("old"))].into());
        refused(
            &outdated,
            "its source still feeds the old path, or may: Deployment/kyma-integration/commerce-event-service",
        );
        refused(&old(BTreeMap::new()), "does not exist");
        let lossy = decide(&Args { accept_event_loss: true, ..args() }, &outdated);
        assert_eq!((lossy.refusals().count(), moves(&lossy).len()), (0, 1));
        assert!(lossy.findings[0].message.contains("--accept-event-loss"));
    }

    #[test]
    fn it_stays_while_the_source_is_not_ready_or_nobody_names_the_image() {
        let broken = Snapshot { sources: BTreeMap::new(), ..one() };
        let plan = decided(&broken);
        // It may work in a moment: nothing is deleted before.
        let waiting = "wait Deployment/kyma-integration/commerce-event-service";
        assert_eq!(moves(&plan), [waiting, "delete Subscription/shop/a"]);
        assert_eq!(plan.phases.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(
            plan.phases[0][0].subject, plan.phases[1][0].subject,
            "if the one fails, the other is left out"
        );
        let lossy = decide(&Args { accept_event_loss: true, ..args() }, &broken);
        assert_eq!(moves(&lossy), ["delete Subscription/shop/a"]);
        refused(&Snapshot { images: Err("nobody says".into()), ..one() }, "nobody says");
    }

    #[test]
    fn it_stays_when_its_event_service_will_not_work_again_by_itself() {
        let pods = vec![
            Pod::of(&json!({
                "metadata": {"name": "commerce-1", "labels": {"app": "commerce-event-service"}},
                "spec": {"containers": [
                    {"name": "commerce-event-service", "image": IMAGE, "args": ["--eventMeshURL=http://commerce"]},
                ]},
                "status": {"containerStatuses": [
                    {"name": "main", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
                ]},
            }))
            .unwrap(),
        ];
        refused(
            &Snapshot { pods, ..one() },
            "its event-service does not work: Pod/kyma-integration/commerce-1",
        );
    }

    fn pod(image: &str, url: &[&str]) -> Pod {
        Pod::of(&json!({
            "metadata": {"name": "commerce-1", "labels": {"app": "commerce-event-service"}},
            "spec": {"containers": [{"name": "commerce-event-service", "image": image, "args": url}]},
        }))
        .unwrap()
    }

    #[test]
    fn a_pod_that_is_being_replaced_is_waited_for_unless_an_old_one_runs() {
        let replacing = Rollout::of(&json!({
            "metadata": {"name": "commerce-event-service"},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "commerce-event-service", "image": IMAGE, "args": ["--eventMeshURL=http://commerce"]},
            ]}}},
            "status": {"replicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
        }));
        let with =
            |pods| Snapshot { rollouts: [("commerce".to_owned(), replacing.clone())].into(), pods, ..one() };
        let plan = decided(&with(vec![pod(IMAGE, &["--eventMeshURL=x"])]));
        let waiting = "wait Deployment/kyma-integration/commerce-event-service";
        assert_eq!(moves(&plan), [waiting, "delete Subscription/shop/a"]);
        refused(&with(vec![pod("old", &["--eventMeshURL=x"])]), "feeds the old path, or may: Deployment");
    }

    #[test]
    fn a_pod_that_outlives_its_deployment_still_feeds_the_old_path() {
        let orphaned = |pods, images| Snapshot {
            applications: BTreeMap::new(),
            rollouts: BTreeMap::new(),
            pods,
            images,
            ..one()
        };
        let images = || Ok(vec![IMAGE.to_owned()]);
        refused(
            &orphaned(vec![pod("old", &[])], images()),
            "Pod/kyma-integration/commerce-1 still runs image old, although its Deployment is gone",
        );
        refused(
            &orphaned(vec![pod("old", &[])], Err("nobody says".into())),
            "has no argument --eventMeshURL",
        );
        let new = vec![pod(IMAGE, &["--eventMeshURL=x"])];
        for images in [images(), Err("nobody says".into())] {
            assert_eq!(decided(&orphaned(new.clone(), images)).refusals().count(), 0);
        }
    }

    #[test]
    fn a_source_that_nothing_feeds_holds_nothing_back() {
        for (installation, why) in [
            (None, "there is no Application. Whoever posts to the publish service itself"),
            (Some(Installation::Skipped), "spec.skipInstallation"),
            (Some(Installation::Going), "being deleted"),
        ] {
            let applications = installation.map(|how| ("commerce".to_owned(), how)).into_iter().collect();
            let found = Snapshot { applications, rollouts: BTreeMap::new(), ..one() };
            let plan = decided(&found);
            assert_eq!((plan.refusals().count(), moves(&plan).len()), (0, 1));
            assert!(plan.findings[0].message.contains(why), "{:?}", plan.findings);
            // But an event-service that is there all the same counts.
            let rollouts = [("commerce".to_owned(), rollout("old"))].into();
            refused(&Snapshot { rollouts, ..found }, "old");
        }
    }

    #[test]
    fn bug_2_3_without_an_endpoint_it_goes_only_by_the_flag() {
        let mut without = subscription("a");
        without["spec"].as_object_mut().unwrap().remove("endpoint");
        let found = Snapshot { triggers: BTreeMap::new(), ..snapshot(vec![item(Some(&without), None)]) };
        refused(&found, "has no endpoint");
        let plan = decide(&Args { drop_undeliverable: true, ..args() }, &found);
        assert_eq!((plan.refusals().count(), moves(&plan).len()), (0, 1));
    }

    #[test]
    fn one_with_an_endpoint_that_knative_refuses_goes_only_by_the_flag() {
        let mut nowhere = subscription("a");
        nowhere["spec"]["endpoint"] = "http:///x".into();
        let found = Snapshot { triggers: BTreeMap::new(), ..snapshot(vec![item(Some(&nowhere), None)]) };
        refused(&found, "has an endpoint without a host, so it has no Trigger");
        let plan = decide(&Args { drop_undeliverable: true, ..args() }, &found);
        assert_eq!((plan.refusals().count(), moves(&plan).len()), (0, 1));
    }

    #[test]
    fn one_that_is_there_again_is_named_and_left_alone() {
        let mut again = subscription("a");
        again["metadata"]["uid"] = "another".into();
        let plan = decided(&snapshot(vec![item(Some(&again), Some(&subscription("a")))]));
        assert!(moves(&plan).is_empty());
        assert_eq!(plan.findings[0].level, Level::Skip);
        assert_eq!(
            plan.findings[0].message,
            "is there again since this step deleted it: remove it from where it comes from, then run retire-subscriptions again"
        );
        again["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/name": "x"});
        let plan = decided(&snapshot(vec![item(Some(&again), Some(&subscription("a")))]));
        assert!(
            plan.findings[0].message.contains("remove it from its source (Flux), then"),
            "{:?}",
            plan.findings
        );
        // Somebody takes the new one away too: nothing of it is ours to restore.
        again["metadata"]["deletionTimestamp"] = "now".into();
        let plan = decided(&snapshot(vec![item(Some(&again), Some(&subscription("a")))]));
        assert_eq!(moves(&plan), ["wait Subscription/shop/a"]);
    }

    #[test]
    fn one_that_somebody_else_deletes_has_no_claim_on_a_trigger() {
        let (mut going, mut twin) = (subscription("a"), subscription("a"));
        going["metadata"]["deletionTimestamp"] = "now".into();
        twin["metadata"]["name"] = "b".into();
        let items = vec![item(Some(&going), None), item(Some(&twin), None)];
        let found = Snapshot { triggers: [("shop".into(), vec![trigger("a")])].into(), ..snapshot(items) };
        let plan = decided(&found);
        assert_eq!(plan.refusals().count(), 0, "{:?}", plan.findings);
        assert_eq!(moves(&plan), ["wait Subscription/shop/a", "delete Subscription/shop/b"]);
    }

    #[test]
    fn a_finalizer_that_the_event_bus_does_not_serve_is_told() {
        let mut held = subscription("a");
        held["metadata"]["finalizers"] = json!([LEGACY_FINALIZER, "example.com/keep", "foregroundDeletion"]);
        let plan = decided(&snapshot(vec![item(Some(&held), None)]));
        assert_eq!((moves(&plan).len(), plan.findings.len()), (1, 1));
        assert!(plan.findings[0].message.starts_with("has the finalizer example.com/keep, which"));
    }

    #[test]
    fn bug_1_5_one_that_is_neither_kind_is_named_and_left_alone() {
        let odd = (LEGACY_SUBSCRIPTION.object("shop", "odd"), "has neither");
        let plan = decided(&Snapshot { unclear: vec![odd], ..snapshot(Vec::new()) });
        assert_eq!((moves(&plan).len(), plan.findings[0].level), (0, Level::Skip));
    }

    #[test]
    fn without_its_controller_the_finalizer_would_hold_it_for_ever() {
        for available in [None, Some(false)] {
            let found = Snapshot { controller_available: available, ..one() };
            refused(&found, "only it takes the finalizer subscription.finalizers.kyma-project.io off");
            let mut free = subscription("a");
            free["metadata"]["finalizers"] = json!([]);
            let found =
                Snapshot { controller_available: available, ..snapshot(vec![item(Some(&free), None)]) };
            assert_eq!(decided(&found).refusals().count(), 0);
        }
    }

    #[test]
    fn one_that_somebody_else_deletes_is_waited_for_whatever_its_trigger() {
        let mut going = subscription("a");
        going["metadata"]["deletionTimestamp"] = "now".into();
        let found = Snapshot { triggers: BTreeMap::new(), ..snapshot(vec![item(Some(&going), None)]) };
        let plan = decided(&found);
        assert_eq!(moves(&plan), ["wait Subscription/shop/a"]);
        assert_eq!((plan.writes().count(), plan.refusals().count()), (0, 0));
        // With nobody to take its finalizer off it would never be gone.
        refused(&Snapshot { controller_available: None, ..found }, "only it takes the finalizer");
    }

    #[test]
    fn what_an_earlier_attempt_deleted_is_not_judged_again() {
        let mut going = subscription("a");
        going["metadata"]["deletionTimestamp"] = "now".into();
        let items = vec![
            item(Some(&going), Some(&subscription("a"))),
            item(None, Some(&subscription("b"))),
            item(Some(&subscription("c")), Some(&subscription("c"))),
        ];
        let plan = decided(&snapshot(items));
        assert_eq!(moves(&plan), ["delete Subscription/shop/a", "delete Subscription/shop/c"]);
    }

    #[test]
    fn namespaces_of_the_system_are_left_alone() {
        let mut elsewhere = subscription("a");
        elsewhere["metadata"]["namespace"] = "kyma-system".into();
        let plan = decided(&snapshot(vec![item(Some(&elsewhere), None)]));
        assert_eq!((moves(&plan).len(), plan.findings[0].level), (0, Level::Skip));
    }

    #[test]
    fn one_that_a_gitops_tool_keeps_is_deleted_and_that_is_told() {
        let mut kept = subscription("a");
        kept["metadata"]["labels"] = json!({"kustomize.toolkit.fluxcd.io/name": "x"});
        let plan = decided(&snapshot(vec![item(Some(&kept), None)]));
        assert_eq!(moves(&plan).len(), 1);
        assert!(plan.findings[0].message.starts_with("Flux manages it"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn nothing_goes_unrefused_that_lacks_a_trigger_or_an_updated_source(
            ready in any::<[bool; 3]>(), there in any::<[bool; 3]>(), new in any::<bool>(),
            source in any::<bool>(), available in any::<bool>(),
        ) {
            let names = ["a", "b", "c"];
            let items: Vec<Item> = names.iter().map(|name| item(Some(&subscription(name)), None)).collect();
            let triggers = (0..3)
                .filter(|&at| there[at])
                .map(|at| Found { ready: ready[at], ..trigger(names[at]) })
                .collect();
            let found = Snapshot {
                triggers: [("shop".to_owned(), triggers)].into(),
                rollouts: [("commerce".to_owned(), rollout(if new { IMAGE } else { "old" }))].into(),
                sources: [("commerce".to_owned(), (!source).then(|| "is not Ready".to_owned()))].into(),
                controller_available: Some(available),
                ..snapshot(items)
            };
            let plan = decided(&found);
            let all_well = new && available && (0..3).all(|at| there[at] && ready[at]);
            prop_assert_eq!(plan.refusals().count() == 0, all_well);
            let may_go = |at: usize| new && available && there[at] && ready[at];
            let waits = plan.phases[0].len();
            prop_assert_eq!(waits, if source { 0 } else { (0..3).filter(|&at| may_go(at)).count() });
            let gone: Vec<&str> = plan.writes().map(|step| step.object.name.as_str()).collect();
            let expected: Vec<&str> = (0..3).filter(|&at| may_go(at)).map(|at| names[at]).collect();
            prop_assert_eq!(gone, expected, "what is refused is never planned");
        }
    }
}
