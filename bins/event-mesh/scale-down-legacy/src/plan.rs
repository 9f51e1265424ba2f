//! What the step decides.

use std::{collections::BTreeSet, time::Duration};

use belay_runtime::{
    Chain, Field, FieldPath, Finding, Kind, Move, ObjectRef, Plan, Progress, Removal, Scope, Undo, View,
    kinds,
    object::{is_going, kept_by, text},
};
use serde_json::Value;

use crate::{
    Args,
    snapshot::{Blocking, Releasing, Snapshot, Workload, counts},
};

/// Objects in the way that a refusal names; the rest is counted.
const NAMED: usize = 5;

/// Without the finalizer nothing of ours holds an object that is being deleted: what takes longer has another cause.
const GONE_WITHIN: Duration = Duration::from_secs(60);

/// A watch shows at once what is there; what takes longer is an API that answers nobody.
const LOOKS_WITHIN: Duration = Duration::from_secs(60);

pub(crate) fn decide(args: &Args, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let mut chains = Vec::new();
    let mut scaled_earlier = Vec::new();
    for workload in snapshot.workloads.iter().filter(|workload| !workload.is_excluded) {
        let object = &workload.item.object;
        let Some(live) = workload.item.live().filter(|_| workload.item.is_there()) else {
            plan.findings.push(absent(args, workload));
            if workload.pods > 0 {
                chains.push(Chain::new(object.clone(), vec![wait_until_no_pod(workload)]));
            }
            continue;
        };
        if let Some(owner) = deployment_of(&object.kind, &live) {
            plan.findings.push(Finding::refuse(
                object.clone(),
                format!("is owned by Deployment {owner}, which would scale it up again. Name the Deployment instead"),
            ));
            continue;
        }
        let replicas = replicas_of(&live);
        if replicas == 0 && workload.pods == 0 {
            scaled_earlier.extend(workload.item.is_journalled().then_some(object));
            continue;
        }
        plan.findings.extend(notes(workload, &live, replicas));
        let mut moves = Vec::new();
        if replicas != 0 {
            moves.push(Move::scale(&workload.item, 0));
        }
        moves.push(wait_until_no_pod(workload));
        chains.push(Chain::new(object.clone(), moves));
    }
    plan.findings.extend(snapshot.unserved.iter().map(|resource| {
        let message =
            "is not served by this cluster, so nothing of it is looked for. If the name is wrong, correct it";
        Finding::note(None, format!("{resource} {message}"))
    }));
    let left_running = left_running(snapshot);
    // Somebody may have made one meanwhile. Each chain that scaled looks, also where that was an attempt that died before
    // it could: whichever way failures are taken back, all of them are.
    let scaled_now = chains.iter().map(|chain: &Chain| {
        // What is being deleted is finished by a workload that is scaled up again. One that was down before would not be:
        // the next round frees what it left.
        let may_finish = left_running.is_empty() && chain.moves.iter().any(Move::writes);
        let releasing = if may_finish { &snapshot.releasing[..] } else { &[] };
        (&chain.subject, releasing)
    });
    let scaled = scaled_now.chain(scaled_earlier.into_iter().map(|object| (object, &[][..])));
    let looks: Vec<Chain> = scaled
        .filter_map(|(object, releasing)| {
            let look = look_again(object, &snapshot.blocking, releasing)?;
            Some(Chain::new(object.clone(), vec![look]))
        })
        .collect();
    let (released, going) = match still_served(snapshot, &left_running) {
        Some(finding) => {
            plan.findings.push(finding);
            (Vec::new(), Vec::new())
        }
        None => release(snapshot, chains.is_empty()),
    };
    if !released.is_empty() && snapshot.workloads.iter().all(|workload| workload.item.live().is_none()) {
        let message = "none of the workloads exists, so nobody serves the finalizers any more, and they are taken off. If a \
                       name is wrong, --must-exist says so";
        plan.findings.push(Finding::note(None, message));
    }
    plan.phases = vec![chains, looks, released];
    let writes = plan.writes().next().is_some();
    if writes {
        let blockers = "still exist, and only these workloads serve their finalizers: without them they could never be \
                        deleted. Migrate or delete them first";
        plan.findings.extend(blocked(&snapshot.blockers, blockers));
        let unfinished = "are being deleted, and only these workloads can finish that. Run the step again when they are \
                          gone";
        plan.findings.extend(blocked(&going, unfinished));
        // What is refused is never part of the plan: a later round has nothing to stop it by.
        if plan.refusals().any(|refusal| refusal.object.is_none()) {
            plan.phases.clear();
        }
    }
    plan
}

/// What is said of a workload that is gone, or is on its way out.
fn absent(args: &Args, workload: &Workload) -> Finding {
    let object = workload.item.object.clone();
    match (workload.item.is_going(), workload.pods) {
        (true, 0) => Finding::skip(object, "is being deleted and has no pods"),
        (true, _) => Finding::note(object, "is being deleted: its pods are waited for"),
        (false, _) if args.must_exist => {
            Finding::refuse(object, "does not exist, and --must-exist was given")
        }
        (false, 0) => Finding::skip(object, "does not exist, so it runs nothing"),
        (false, _) => Finding::note(object, "does not exist, but pods of it do: they are waited for"),
    }
}

/// An absent number of replicas means one.
fn replicas_of(live: &Value) -> i64 {
    live.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

/// The workloads that were left out and run: they may serve finalizers.
fn left_running(snapshot: &Snapshot) -> Vec<String> {
    let runs = |workload: &&Workload| {
        let scaled_up =
            workload.item.is_there() && workload.item.live().is_some_and(|live| replicas_of(&live) != 0);
        workload.is_excluded && (scaled_up || workload.pods > 0)
    };
    snapshot.workloads.iter().filter(runs).map(|workload| workload.item.object.to_string()).collect()
}

/// That no finalizer is released, if so.
fn still_served(snapshot: &Snapshot, running: &[String]) -> Option<Finding> {
    if running.is_empty() || snapshot.held.is_empty() {
        return None;
    }
    let message = format!(
        "{} objects keep their finalizer: {} was left out and runs, and may serve it",
        snapshot.held.len(),
        running.join(", ")
    );
    Some(Finding::note(None, message))
}

/// Takes finalizers that nobody will serve off the objects that hold them; and those objects that are being deleted,
/// which the workloads must finish first. Where they are `at_rest` nobody does, and those are released too.
fn release(snapshot: &Snapshot, at_rest: bool) -> (Vec<Chain>, Vec<ObjectRef>) {
    let mut chains = Vec::new();
    let mut going = Vec::new();
    for held in &snapshot.held {
        let object = held.item.object.clone();
        if held.item.is_going() {
            if at_rest {
                let orphaned: Vec<&str> = held.released.iter().map(String::as_str).collect();
                let removal = Removal::within(GONE_WITHIN).orphaned_finalizers(&orphaned);
                chains.push(Chain::new(object, vec![Move::delete(&held.item, removal)]));
            } else {
                going.push(object);
            }
            continue;
        }
        let path = |finalizer: &String| FieldPath::dotted("metadata.finalizers").member(finalizer);
        let fields =
            held.released.iter().map(|finalizer| Field { path: path(finalizer), value: None }).collect();
        // With --on-failure chain a workload may not have come down: whoever still runs would put it back.
        let may_run =
            |workload: &&Workload| !workload.is_excluded && (workload.item.is_there() || workload.pods > 0);
        let mut moves: Vec<Move> = snapshot.workloads.iter().filter(may_run).map(wait_until_no_pod).collect();
        // Its workload, scaled up again, puts it back, on the objects that are there then.
        moves.push(Move::patch(&held.item, fields).undone_by(Undo::Instead(Vec::new())));
        chains.push(Chain::new(object, moves));
    }
    (chains, going)
}

fn notes(workload: &Workload, live: &Value, replicas: i64) -> Vec<Finding> {
    let object = &workload.item.object;
    let mut notes = Vec::new();
    for scaler in &workload.scalers {
        notes.push(Finding::note(
            object.clone(),
            format!(
                "{scaler} scales it and may scale it up again: pause it with the annotation \
                 autoscaling.keda.sh/paused-replicas: \"0\""
            ),
        ));
    }
    if let Some(keeper) = kept_by(live) {
        notes.push(Finding::note(
            object.clone(),
            format!("{keeper} manages it and may set its replicas again"),
        ));
    }
    if let (Some(when), true) = (&workload.scaled_before, replicas > 0) {
        notes.push(Finding::note(
            object.clone(),
            format!(
                "was scaled down at {when} and has {replicas} replicas again: it is scaled down once more"
            ),
        ));
    }
    notes
}

/// One refusal for all objects that stand in the way.
fn blocked(objects: &[ObjectRef], why: &str) -> Option<Finding> {
    if objects.is_empty() {
        return None;
    }
    let named: Vec<String> = objects.iter().take(NAMED).map(ToString::to_string).collect();
    let more = objects.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(Finding::refuse(None, format!("{}{more} {why}", named.join(", "))))
}

fn deployment_of<'a>(kind: &Kind, live: &'a Value) -> Option<&'a str> {
    if *kind != kinds::REPLICA_SET {
        return None;
    }
    let owners = live.pointer("/metadata/ownerReferences")?.as_array()?;
    owners
        .iter()
        .find(|owner| text(owner, "/kind") == Some("Deployment"))
        .and_then(|owner| text(owner, "/name"))
}

fn wait_until_no_pod(workload: &Workload) -> Move {
    let object = workload.item.object.clone();
    let scopes = vec![Scope::of(&object), workload.pod_scope()];
    let what = format!("{object} without pods");
    // The step's own deadline is the only one: how long a pod may take to end is the pod's business.
    let within = Duration::from_secs(24 * 3600);
    let workload = workload.clone();
    Move::wait_until(object.clone(), what, scopes, within, move |view| {
        let pods: Vec<String> = view
            .list(&kinds::POD)
            .iter()
            .filter(|pod| counts(pod) && workload.has(pod))
            .map(|pod| kinds::POD.object_of(pod).to_string())
            .collect();
        if !pods.is_empty() {
            return Progress::Pending(format!("{} still exist", pods.join(", ")));
        }
        // No pod in sight may also mean that its controller has not acted yet. Of what is being deleted none will be made.
        match view.get(&object) {
            None => Progress::Done,
            Some(live) if is_going(&live) || is_settled(&live) => Progress::Done,
            Some(_) => Progress::Pending("its controller has not seen the change yet".to_owned()),
        }
    })
}

/// Looks once more for what stands in the way, now that nobody serves it. None if nothing may.
fn look_again(workload: &ObjectRef, blocking: &[Blocking], releasing: &[Releasing]) -> Option<Move> {
    let kinds = blocking.iter().map(|blocking| &blocking.kind).chain(releasing.iter().map(|one| &one.kind));
    let kinds: BTreeSet<Kind> = kinds.cloned().collect();
    if kinds.is_empty() {
        return None;
    }
    let scopes = kinds.into_iter().map(Scope::everywhere).collect();
    let (blocking, releasing) = (blocking.to_vec(), releasing.to_vec());
    let look = move |view: &View<'_>| {
        let first = |kind: &Kind, is_it: &dyn Fn(&Value) -> bool| {
            view.list(kind).iter().find(|object| is_it(object)).map(|object| kind.object_of(object))
        };
        let in_the_way =
            blocking.iter().find_map(|blocking| first(&blocking.kind, &|object| blocking.has(object)));
        if let Some(object) = in_the_way {
            return Progress::Failed(format!(
                "{object} has appeared, and only these workloads serve its finalizer. Migrate or delete it, then run the \
                 step again"
            ));
        }
        let going = releasing.iter().find_map(|one| first(&one.kind, &|object| one.holds_up(object)));
        match going {
            None => Progress::Done,
            Some(object) => Progress::Failed(format!(
                "{object} is being deleted, and only these workloads can finish that. Run the step again when it is gone"
            )),
        }
    };
    Some(Move::wait_until(workload.clone(), "nothing in the way", scopes, LOOKS_WITHIN, look))
}

fn is_settled(live: &Value) -> bool {
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    number("/status/observedGeneration") >= number("/metadata/generation") && number("/status/replicas") == 0
}

#[cfg(test)]
mod tests {
    use belay_runtime::plan::Level;
    use proptest::prelude::*;
    use serde_json::json;

    use belay_runtime::Item;

    use super::*;
    use crate::snapshot::Held;

    fn args() -> Args {
        Args {
            workloads: Vec::new(),
            must_exist: false,
            refuse_while: Vec::new(),
            release_finalizers: Vec::new(),
        }
    }

    fn workload(kind: &Kind, live: Option<&Value>, pods: usize) -> Workload {
        Workload {
            item: Item::new(kind.object("ns", "bus"), live, None),
            is_excluded: false,
            selector: "app=bus".into(),
            pods,
            scalers: Vec::new(),
            scaled_before: None,
        }
    }

    fn deployment(replicas: i64, pods: usize) -> Workload {
        workload(&kinds::DEPLOYMENT, Some(&json!({"spec": {"replicas": replicas}})), pods)
    }

    fn decided(workload: Workload) -> Plan {
        decide(&args(), &Snapshot { workloads: vec![workload], ..Snapshot::default() })
    }

    #[test]
    fn a_running_workload_is_scaled_to_zero_and_its_pods_are_waited_for() {
        let plan = decided(deployment(2, 2));
        let verbs: Vec<&str> = plan.phases[0][0].moves.iter().map(Move::verb).collect();
        assert_eq!(verbs, ["scale", "wait"]);
    }

    #[test]
    fn a_workload_at_zero_without_pods_needs_nothing() {
        assert!(decided(deployment(0, 0)).phases[0].is_empty());
    }

    #[test]
    fn a_workload_that_an_attempt_scaled_before_it_died_is_looked_at_again() {
        let mut scaled = deployment(0, 0);
        scaled.item = Item::new(
            scaled.item.object.clone(),
            Some(&json!({"spec": {"replicas": 0}})),
            Some(&json!({"spec": {"replicas": 2}})),
        );
        let blocking = vec![Blocking { kind: kinds::CONFIG_MAP, field: None }];
        let plan = decide(&args(), &Snapshot { workloads: vec![scaled], blocking, ..Snapshot::default() });
        let looks: Vec<&Chain> = plan.chains().map(|(_, chain)| chain).collect();
        assert!(looks.len() == 1 && plan.writes().next().is_none(), "{looks:?}");
        assert_eq!(looks[0].subject.name, "bus");
    }

    #[test]
    fn a_resource_that_is_not_served_is_named() {
        let unserved = ["subscription.eventing.kyma-project.io".to_owned()].into();
        let plan = decide(&args(), &Snapshot { unserved, ..Snapshot::default() });
        assert!(plan.findings[0].message.contains("subscription.eventing.kyma-project.io is not served"));
    }

    #[test]
    fn a_workload_at_zero_with_a_pod_is_waited_for() {
        let plan = decided(deployment(0, 1));
        assert_eq!((plan.phases[0].len(), plan.writes().count()), (1, 0));
    }

    #[test]
    fn a_missing_workload_is_skipped_unless_it_must_exist() {
        let missing = || workload(&kinds::DEPLOYMENT, None, 0);
        assert_eq!(decided(missing()).findings[0].level, Level::Skip);
        let strict = Args { must_exist: true, ..args() };
        let plan = decide(&strict, &Snapshot { workloads: vec![missing()], ..Snapshot::default() });
        assert_eq!(plan.refusals().count(), 1);
    }

    #[test]
    fn a_replica_set_of_a_deployment_is_refused() {
        let owned = json!({"metadata": {"ownerReferences": [{"kind": "Deployment", "name": "bus"}]},
                           "spec": {"replicas": 1}});
        let plan = decided(workload(&kinds::REPLICA_SET, Some(&owned), 1));
        assert!(plan.refusals().next().unwrap().message.contains("Name the Deployment instead"));
    }

    #[test]
    fn objects_in_the_way_are_refused_only_while_there_is_something_to_scale() {
        let blockers = vec![kinds::CONFIG_MAP.object("a", "x"); 7];
        let busy =
            Snapshot { workloads: vec![deployment(1, 1)], blockers: blockers.clone(), ..Snapshot::default() };
        let refusal = decide(&args(), &busy).refusals().next().unwrap().message.clone();
        assert!(refusal.contains("and 2 more still exist"), "{refusal}");
        let settled = Snapshot { workloads: vec![deployment(0, 0)], blockers, ..Snapshot::default() };
        assert_eq!(decide(&args(), &settled).refusals().count(), 0);
    }

    const FINALIZER: &str = "finalizers.example.org";

    fn held(name: &str, kept: &[&str], going: bool) -> Held {
        let mut finalizers = kept.to_vec();
        finalizers.push(FINALIZER);
        let mut live = json!({"metadata": {"name": name, "finalizers": finalizers}});
        if going {
            live["metadata"]["deletionTimestamp"] = "now".into();
        }
        Held {
            item: Item::new(kinds::CONFIG_MAP.object("a", name), Some(&live), None),
            released: vec![FINALIZER.into()],
        }
    }

    fn with_held(workload: Workload, held: Vec<Held>) -> Plan {
        let plan = decide(&args(), &Snapshot { workloads: vec![workload], held, ..Snapshot::default() });
        assert!(plan.mistakes().is_empty());
        plan
    }

    fn released(plan: &Plan) -> Vec<Field> {
        plan.phases[2].iter().flat_map(|chain| &chain.moves).flat_map(|step| step.action.fields()).collect()
    }

    fn without_finalizer() -> Field {
        Field { path: FieldPath::dotted("metadata.finalizers").member(FINALIZER), value: None }
    }

    #[test]
    fn finalizers_are_released_after_the_pods_are_gone_and_whatever_others_there_are_then_stay() {
        let plan = with_held(deployment(1, 1), vec![held("x", &[], false), held("y", &["other"], false)]);
        assert_eq!(plan.phases[0].len(), 1);
        assert_eq!(released(&plan), [without_finalizer(), without_finalizer()]);
        for chain in &plan.phases[2] {
            assert_eq!(chain.moves.iter().map(Move::verb).collect::<Vec<_>>(), ["wait", "patch"]);
            assert!(matches!(&chain.moves[1].undo, Undo::Instead(moves) if moves.is_empty()));
        }
    }

    #[test]
    fn what_may_not_be_in_the_way_is_looked_for_again_when_the_pods_are_gone() {
        let blocking = vec![Blocking { kind: kinds::CONFIG_MAP, field: None }; 2];
        let workloads = vec![deployment(1, 1), deployment(0, 0)];
        let snapshot = Snapshot { workloads, blocking, ..Snapshot::default() };
        let plan = decide(&args(), &snapshot);
        let looks = &plan.phases[1];
        assert_eq!((looks.len(), looks[0].moves[0].verb()), (1, "wait"));
        assert_eq!(looks[0].subject, plan.phases[0][0].subject, "a failure takes its scaling back");
    }

    #[test]
    fn what_is_being_deleted_by_then_is_looked_for_where_a_workload_can_be_scaled_up_again() {
        let releasing = vec![Releasing {
            kind: kinds::CONFIG_MAP,
            finalizers: vec![FINALIZER.into()],
            left_out: Vec::new(),
        }];
        let looks = |workloads: Vec<Workload>| {
            let snapshot = Snapshot { workloads, releasing: releasing.clone(), ..Snapshot::default() };
            decide(&args(), &snapshot).phases[1].len()
        };
        assert_eq!(looks(vec![deployment(1, 1)]), 1);
        assert_eq!(looks(vec![deployment(0, 1)]), 0, "nobody would finish it");
        let left_out = Workload { is_excluded: true, ..deployment(1, 1) };
        assert_eq!(looks(vec![deployment(1, 1), left_out]), 0, "that one may finish it");
    }

    #[test]
    fn pods_of_a_workload_that_is_going_or_gone_are_waited_for_and_it_is_not_at_rest() {
        let going = json!({"metadata": {"deletionTimestamp": "now"}, "spec": {"replicas": 1}});
        for live in [Some(&going), None] {
            let lost = workload(&kinds::DEPLOYMENT, live, 1);
            let plan = with_held(lost.clone(), vec![held("x", &[], false)]);
            assert_eq!(plan.phases[0][0].moves.iter().map(Move::verb).collect::<Vec<_>>(), ["wait"]);
            assert_eq!(plan.phases[2][0].moves.iter().map(Move::verb).collect::<Vec<_>>(), ["wait", "patch"]);
            let unfinished = with_held(lost, vec![held("x", &[], true), held("y", &[], false)]);
            assert_eq!(unfinished.refusals().count(), 1, "somebody may still finish it");
        }
        let empty = with_held(workload(&kinds::DEPLOYMENT, Some(&going), 0), vec![held("x", &[], true)]);
        assert_eq!(empty.phases[2][0].moves[0].verb(), "delete");
    }

    #[test]
    fn finalizers_that_are_released_without_any_workload_are_told() {
        let plan = with_held(workload(&kinds::DEPLOYMENT, None, 0), vec![held("x", &[], false)]);
        let told =
            plan.findings.iter().any(|finding| finding.message.starts_with("none of the workloads exists"));
        assert!(told && plan.writes().count() == 1);
    }

    #[test]
    fn a_workload_that_was_left_out_is_neither_touched_nor_waited_for_and_keeps_its_finalizers_while_it_runs()
    {
        let left_out = |replicas, pods| Workload { is_excluded: true, ..deployment(replicas, pods) };
        let plan = with_held(left_out(1, 1), vec![held("x", &[], false), held("y", &[], true)]);
        assert_eq!((plan.chains().count(), plan.refusals().count()), (0, 0));
        assert!(plan.findings[0].message.starts_with("2 objects keep their finalizer: Deployment/ns/bus"));
        let stopped = with_held(left_out(0, 0), vec![held("x", &[], false)]);
        assert_eq!(stopped.phases[2][0].moves.iter().map(Move::verb).collect::<Vec<_>>(), ["patch"]);
    }

    #[test]
    fn bug_5_4_leftovers_with_a_dead_finalizer_are_released_though_nothing_is_left_to_scale() {
        let plan = with_held(deployment(0, 0), vec![held("x", &[], false), held("y", &[], true)]);
        assert_eq!(plan.refusals().count(), 0);
        assert_eq!(plan.phases[2].len(), 2);
        assert_eq!(plan.phases[2][1].moves[0].verb(), "delete");
        let gone = with_held(workload(&kinds::DEPLOYMENT, None, 0), vec![held("x", &[], false)]);
        assert_eq!(released(&gone), [without_finalizer()]);
    }

    #[test]
    fn a_terminating_object_that_the_workloads_must_finish_is_refused() {
        let plan = with_held(deployment(1, 1), vec![held("x", &[], true), held("y", &[], false)]);
        let refusal = plan.refusals().next().unwrap().message.clone();
        assert!(refusal.starts_with("ConfigMap/a/x are being deleted"), "{refusal}");
    }

    #[test]
    fn a_second_run_after_the_release_has_nothing_to_do() {
        assert_eq!(with_held(deployment(0, 0), Vec::new()).chains().count(), 0);
    }

    #[test]
    fn a_scaler_that_would_scale_it_up_again_is_named() {
        let mut scaled = deployment(1, 1);
        scaled.scalers.push(crate::SCALED_OBJECT.object("ns", "bus-scaler"));
        let plan = decided(scaled);
        assert!(plan.findings[0].message.starts_with("ScaledObject/ns/bus-scaler"));
        assert_eq!(plan.writes().count(), 1);
    }

    #[test]
    fn replicas_that_came_back_are_scaled_down_again_and_that_is_said() {
        let mut back = deployment(3, 3);
        back.scaled_before = Some("2026-01-01T00:00:00Z".into());
        let plan = decided(back);
        assert_eq!(plan.writes().count(), 1);
        assert!(plan.findings[0].message.contains("has 3 replicas again"));
    }

    #[test]
    fn an_absent_number_of_replicas_means_one() {
        assert_eq!(decided(workload(&kinds::DEPLOYMENT, Some(&json!({"spec": {}})), 1)).writes().count(), 1);
    }

    fn any_workload() -> impl Strategy<Value = Workload> {
        let kind = prop_oneof![Just(kinds::DEPLOYMENT), Just(kinds::STATEFUL_SET), Just(kinds::REPLICA_SET)];
        let live = proptest::option::of((0..4i64, any::<bool>(), any::<bool>()));
        (kind, "[a-z]{1,4}", live, 0..3usize).prop_map(|(kind, name, live, pods)| {
            let live = live.map(|(replicas, owned, going)| {
                let mut live = json!({"metadata": {}, "spec": {"replicas": replicas}});
                if owned {
                    live["metadata"]["ownerReferences"] = json!([{"kind": "Deployment", "name": "owner"}]);
                }
                if going {
                    live["metadata"]["deletionTimestamp"] = "now".into();
                }
                live
            });
            let item = Item::new(kind.object("ns", name), live.as_ref(), None);
            let is_excluded = false;
            Workload {
                item,
                is_excluded,
                selector: "app=x".into(),
                pods,
                scalers: Vec::new(),
                scaled_before: None,
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn every_workload_is_scaled_waited_for_refused_skipped_or_at_rest(workload in any_workload()) {
            let plan = decided(workload.clone());
            prop_assert!(plan.mistakes().is_empty());
            let at_rest = workload.item.live().is_some_and(|live| live["spec"]["replicas"] == 0)
                && workload.pods == 0;
            prop_assert!(at_rest || !plan.phases[0].is_empty() || !plan.findings.is_empty());
            for step in plan.writes() {
                prop_assert_eq!(step.verb(), "scale");
            }
        }
    }
}
