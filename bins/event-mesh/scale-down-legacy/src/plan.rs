//! What the step decides.

use std::time::Duration;

use belay_runtime::{
    Chain, Finding, Item, Kind, Move, Plan, Progress, Scope, kinds,
    object::{kept_by, text},
};
use serde_json::Value;

use crate::{
    Args,
    snapshot::{Snapshot, Workload, counts},
};

/// Objects in the way that a refusal names; the rest is counted.
const NAMED: usize = 5;

pub(crate) fn decide(args: &Args, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let mut chains = Vec::new();
    for workload in &snapshot.workloads {
        let object = &workload.item.object;
        let Some(live) = workload.item.live.as_deref().filter(|_| workload.item.is_there()) else {
            plan.findings.push(if args.must_exist && !workload.item.is_going() {
                Finding::refuse(object.clone(), "does not exist, and --must-exist was given")
            } else {
                Finding::skip(object.clone(), "does not exist, so it runs nothing")
            });
            continue;
        };
        if let Some(owner) = deployment_of(&object.kind, live) {
            plan.findings.push(Finding::refuse(
                object.clone(),
                format!("is owned by Deployment {owner}, which would scale it up again. Name the Deployment instead"),
            ));
            continue;
        }
        // An absent number of replicas means one.
        let replicas = live.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1);
        if replicas == 0 && workload.pods == 0 {
            continue;
        }
        plan.findings.extend(notes(workload, live, replicas));
        let mut moves = Vec::new();
        if replicas != 0 {
            moves.push(Move::scale(&workload.item, 0));
        }
        moves.push(wait_until_no_pod(&workload.item, &workload.selector));
        chains.push(Chain::new(object.clone(), moves));
    }
    if chains.iter().flat_map(|chain| &chain.moves).any(Move::writes) {
        plan.findings.extend(blocked(snapshot));
    }
    plan.phases = vec![chains];
    plan
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
fn blocked(snapshot: &Snapshot) -> Option<Finding> {
    if snapshot.blockers.is_empty() {
        return None;
    }
    let named: Vec<String> = snapshot.blockers.iter().take(NAMED).map(ToString::to_string).collect();
    let more = snapshot.blockers.len() - named.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(Finding::refuse(
        None,
        format!(
            "{}{more} still exist, and only these workloads serve their finalizers: without them they could never be \
             deleted. Migrate or delete them first",
            named.join(", ")
        ),
    ))
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

fn wait_until_no_pod(item: &Item, selector: &str) -> Move {
    let object = item.object.clone();
    let namespace = object.namespace.clone().unwrap_or_default();
    let scopes = vec![Scope::of(&object), Scope::selected(kinds::POD, &namespace, selector)];
    let what = format!("{object} without pods");
    // The step's own deadline is the only one: how long a pod may take to end is the pod's business.
    let within = Duration::from_secs(24 * 3600);
    let workload = object.clone();
    Move::wait_until(object, what, scopes, within, move |view| {
        let pods: Vec<String> = view
            .list(&kinds::POD)
            .iter()
            .filter(|pod| counts(pod))
            .map(|pod| kinds::POD.object_of(pod).to_string())
            .collect();
        if !pods.is_empty() {
            return Progress::Pending(format!("{} still exist", pods.join(", ")));
        }
        // No pod in sight may also mean that its controller has not acted yet.
        match view.get(&workload) {
            None => Progress::Done,
            Some(live) if is_settled(&live) => Progress::Done,
            Some(_) => Progress::Pending("its controller has not seen the change yet".to_owned()),
        }
    })
}

fn is_settled(live: &Value) -> bool {
    let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
    number("/status/observedGeneration") >= number("/metadata/generation") && number("/status/replicas") == 0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belay_runtime::plan::Level;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn args() -> Args {
        Args { workloads: Vec::new(), must_exist: false, refuse_while: Vec::new() }
    }

    fn workload(kind: &Kind, live: Option<Value>, pods: usize) -> Workload {
        Workload {
            item: Item { object: kind.object("ns", "bus"), live: live.map(Arc::new), before: None },
            selector: "app=bus".into(),
            pods,
            scalers: Vec::new(),
            scaled_before: None,
        }
    }

    fn deployment(replicas: i64, pods: usize) -> Workload {
        workload(&kinds::DEPLOYMENT, Some(json!({"spec": {"replicas": replicas}})), pods)
    }

    fn decided(workload: Workload) -> Plan {
        decide(&args(), &Snapshot { workloads: vec![workload], blockers: Vec::new() })
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
    fn a_workload_at_zero_with_a_pod_is_waited_for() {
        let plan = decided(deployment(0, 1));
        assert_eq!((plan.phases[0].len(), plan.writes().count()), (1, 0));
    }

    #[test]
    fn a_missing_workload_is_skipped_unless_it_must_exist() {
        let missing = || workload(&kinds::DEPLOYMENT, None, 0);
        assert_eq!(decided(missing()).findings[0].level, Level::Skip);
        let strict = Args { must_exist: true, ..args() };
        let plan = decide(&strict, &Snapshot { workloads: vec![missing()], blockers: Vec::new() });
        assert_eq!(plan.refusals().count(), 1);
    }

    #[test]
    fn a_replica_set_of_a_deployment_is_refused() {
        let owned = json!({"metadata": {"ownerReferences": [{"kind": "Deployment", "name": "bus"}]},
                           "spec": {"replicas": 1}});
        let plan = decided(workload(&kinds::REPLICA_SET, Some(owned), 1));
        assert!(plan.refusals().next().unwrap().message.contains("Name the Deployment instead"));
    }

    #[test]
    fn objects_in_the_way_are_refused_only_while_there_is_something_to_scale() {
        let blockers = vec![kinds::CONFIG_MAP.object("a", "x"); 7];
        let busy = Snapshot { workloads: vec![deployment(1, 1)], blockers: blockers.clone() };
        let refusal = decide(&args(), &busy).refusals().next().unwrap().message.clone();
        assert!(refusal.contains("and 2 more still exist"), "{refusal}");
        let settled = Snapshot { workloads: vec![deployment(0, 0)], blockers };
        assert_eq!(decide(&args(), &settled).refusals().count(), 0);
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
        assert_eq!(decided(workload(&kinds::DEPLOYMENT, Some(json!({"spec": {}})), 1)).writes().count(), 1);
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
                Arc::new(live)
            });
            let item = Item { object: kind.object("ns", name), live, before: None };
            Workload { item, selector: "app=x".into(), pods, scalers: Vec::new(), scaled_before: None }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn every_workload_is_scaled_waited_for_refused_skipped_or_at_rest(workload in any_workload()) {
            let plan = decided(workload.clone());
            prop_assert!(plan.mistakes().is_empty());
            let at_rest = workload.item.live.as_deref().is_some_and(|live| live["spec"]["replicas"] == 0)
                && workload.pods == 0;
            prop_assert!(at_rest || !plan.phases[0].is_empty() || !plan.findings.is_empty());
            for step in plan.writes() {
                prop_assert_eq!(step.verb(), "scale");
            }
        }
    }
}
