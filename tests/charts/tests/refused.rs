//! Wrong values are refused by Helm before it touches anything, with a sentence that names them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;

use chart_tests::helm::{Helm, shipped};
use common::Copy;

#[track_caller]
fn refused(helm: &Helm, chart: &Path, values: &[&str], words: &[&str]) {
    let message = match helm.template(chart, "mesh", values) {
        Ok(_) => panic!("Helm {} takes {values:?}", helm.major),
        Err(message) => message.to_string(),
    };
    for word in words {
        assert!(message.contains(word), "Helm {}: {message:?} does not say {word:?}", helm.major);
    }
}

/// Both Helms refuse the event mesh chart with this value, and say all of `words`.
#[track_caller]
fn refuses(value: &str, words: &[&str]) {
    for helm in Helm::both() {
        refused(&helm, &shipped("event-mesh"), &[value], words);
    }
}

#[test]
fn an_unknown_value_is_refused() {
    refuses("--set=imge.tag=1", &["additional properties 'imge' not allowed"]);
}

#[test]
fn an_unknown_setting_of_a_step_is_refused() {
    refuses("--set=steps.scale-down-legacy.deadlin=1", &["scale-down-legacy", "'deadlin' not allowed"]);
}

#[test]
fn an_unknown_step_is_refused() {
    refuses("--set=steps.scale-down.enabled=true", &["'scale-down' not allowed"]);
}

#[test]
fn a_value_for_the_library_is_refused() {
    refuses("--set=belay.image.tag=1", &["/belay", "'image' not allowed"]);
}

#[test]
fn a_weight_that_is_a_string_is_refused() {
    refuses("--set-string=steps.scale-down-legacy.weight=30", &["weight", "got string, want integer"]);
}

#[test]
fn a_weight_that_is_no_integer_is_refused() {
    refuses("--set-json=steps.scale-down-legacy.weight=30.5", &["weight", "want integer"]);
}

#[test]
fn a_weight_before_the_accounts_is_refused() {
    refuses("--set=steps.scale-down-legacy.weight=-20", &["weight", "minimum"]);
}

#[test]
fn a_duration_with_a_unit_is_refused() {
    refuses("--set=steps.scale-down-legacy.deadline=3m", &["deadline", "got string, want integer"]);
}

#[test]
fn an_unknown_event_is_refused() {
    refuses("--set=steps.scale-down-legacy.event=post-upgarde", &["event", "post-upgrade"]);
}

#[test]
fn a_kind_of_workload_that_cannot_be_scaled_is_refused() {
    refuses(
        "--set-json=steps.scale-down-legacy.workloads=[{\"kind\":\"DaemonSet\",\"name\":\"x\"}]",
        &["/workloads/0/kind", "Deployment"],
    );
}

#[test]
fn no_workload_at_all_is_refused() {
    refuses("--set-json=steps.scale-down-legacy.workloads=[]", &["/workloads", "minItems"]);
    refuses("--set-json=steps.scale-down-legacy.workloads=null", &["scale-down-legacy", "workloads"]);
}

#[test]
fn an_owner_that_is_no_resource_is_refused() {
    for step in ["recreate-service-instances", "retire-subscriptions"] {
        refuses(&format!("--set=steps.{step}.ownerKinds={{Deployments}}"), &["/ownerKinds/0", "pattern"]);
    }
}

#[test]
fn a_source_controller_without_a_namespace_is_refused() {
    refuses("--set=steps.create-missing-sources.sourceController=manager", &["sourceController", "pattern"]);
}

#[test]
fn an_operator_that_is_no_workload_is_refused() {
    refuses("--set=eventServices.applicationOperator=operator", &["applicationOperator", "pattern"]);
}

#[test]
fn an_unknown_step_alone_is_refused() {
    refuses("--set=only={recreate-trigger}", &["/only/0", "recreate-triggers"]);
}

#[test]
fn a_choice_of_instances_that_does_not_exist_is_refused() {
    refuses("--set=steps.recreate-service-instances.recreate=some", &["recreate", "'missing', 'all'"]);
}

#[test]
fn a_step_that_changes_something_without_time_to_go_forward_is_refused() {
    refuses("--set=steps.recreate-triggers.deadline=0", &["deadline", "minimum"]);
}

#[test]
fn a_finalizer_without_a_resource_is_refused() {
    refuses(
        "--set=steps.scale-down-legacy.releaseFinalizers={finalizer}",
        &["/releaseFinalizers/0", "pattern"],
    );
}

#[test]
fn a_resource_without_a_group_is_refused() {
    refuses("--set=steps.scale-down-legacy.refuseWhile[0]=subscriptions", &["/refuseWhile/0", "pattern"]);
}

#[test]
fn a_wrong_value_is_refused_in_a_dependency_too() {
    for helm in Helm::both() {
        let parent = Copy::of("parent", &helm);
        refused(&helm, &parent.chart(), &["--set=mesh.hom=x"], &["mesh", "'hom' not allowed"]);
    }
}

#[test]
fn a_backstop_that_would_cut_the_undo_short_is_refused() {
    refuses(
        "--set=steps.scale-down-legacy.deadline=240",
        &["deadline 240 + undoReserve 60 is more than the backstop 270"],
    );
}

#[test]
fn two_steps_of_one_event_with_the_same_weight_are_refused() {
    for helm in Helm::both() {
        let values = ["--set=steps.scale-down-legacy.event=pre-upgrade,steps.scale-down-legacy.weight=10"];
        let words = ["create-missing-sources and scale-down-legacy both run at pre-upgrade with weight 10"];
        refused(&helm, &shipped("event-mesh"), &values, &words);
    }
}

#[test]
fn a_step_without_a_weight_is_refused() {
    for helm in Helm::both() {
        let own = Copy::of("own-step", &helm);
        refused(&helm, &own.chart(), &["--set=steps.tidy-up.weight=null"], &["step tidy-up has no weight"]);
    }
}

#[test]
fn a_step_without_rules_is_refused() {
    for helm in Helm::both() {
        let own = Copy::of("own-step", &helm);
        std::fs::remove_file(own.chart().join("rbac/tidy-up.json")).unwrap();
        refused(&helm, &own.chart(), &[], &["step tidy-up has no rules", "--print-rbac"]);
    }
}

#[test]
fn a_placeholder_that_nobody_fills_is_refused() {
    for helm in Helm::both() {
        let own = Copy::of("own-step", &helm);
        let file = own.chart().join("rbac/tidy-up.json");
        let rules = std::fs::read_to_string(&file).unwrap().replace("${shelf-gadget}", "${shelf-gizmo}");
        std::fs::write(&file, rules).unwrap();
        refused(&helm, &own.chart(), &[], &["step tidy-up", "${shelf-gizmo}"]);
    }
}

#[test]
fn an_old_cluster_is_refused() {
    for helm in Helm::both() {
        refused(&helm, &shipped("event-mesh"), &["--kube-version=1.32.0"], &["1.33.0"]);
    }
}
