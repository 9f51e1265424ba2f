//! Each mistake that Helm lets pass, made on purpose in sound manifests, and found. Needs neither Helm nor a cluster.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use chart_tests::{
    check,
    manifest::parse,
    rights::{Run, compare, granted, needed, runs},
};
use serde_json::{Value, json};

fn good() -> Vec<Value> {
    parse(include_str!("../data/good.yaml")).unwrap()
}

fn find<'a>(manifests: &'a mut [Value], kind: &str, name: &str) -> &'a mut Value {
    manifests
        .iter_mut()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
        .expect("no such object")
}

fn step_job(manifests: &mut [Value]) -> &mut Value {
    find(manifests, "Job", "home-tidy-up")
}

fn annotate(object: &mut Value, key: &str, value: impl Into<Value>) {
    object["metadata"]["annotations"][key] = value.into();
}

fn remove(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().remove(key).expect("there is nothing to remove");
}

/// Breaks the sound manifests and expects exactly one fault, which says all of `words`.
#[track_caller]
fn finds(words: &[&str], mistake: impl FnOnce(&mut Vec<Value>)) {
    let mut manifests = good();
    mistake(&mut manifests);
    let faults = check(&manifests);
    assert_eq!(faults.len(), 1, "{faults:#?}");
    for word in words {
        assert!(faults[0].contains(word), "{:?} does not say {word:?}", faults[0]);
    }
}

/// Breaks the sound manifests in a way that shows in several places; one fault says all of `words`.
#[track_caller]
fn finds_among_others(words: &[&str], mistake: impl FnOnce(&mut Vec<Value>)) {
    let mut manifests = good();
    mistake(&mut manifests);
    let faults = check(&manifests);
    assert!(faults.iter().any(|fault| words.iter().all(|word| fault.contains(word))), "{faults:#?}");
}

#[test]
fn sound_manifests_have_no_fault() {
    assert_eq!(check(&good()), Vec::<String>::new());
}

#[test]
fn a_misspelt_hook_is_found() {
    finds_among_others(&["Job/demo/home-tidy-up", "post-upgarde", "drop"], |manifests| {
        annotate(step_job(manifests), "helm.sh/hook", "post-install,post-upgrade,post-upgarde");
    });
}

#[test]
fn a_misspelt_annotation_is_found() {
    finds(&["helm.sh/hook-wait"], |manifests| annotate(step_job(manifests), "helm.sh/hook-wait", "1"));
}

#[test]
fn an_annotation_that_is_no_string_is_found() {
    finds_among_others(&["helm.sh/hook-weight: 20", "not a string"], |manifests| {
        annotate(step_job(manifests), "helm.sh/hook-weight", 20);
    });
}

#[test]
fn a_step_that_is_upgraded_but_not_installed_is_found() {
    finds(&["only one of the hooks post-install and post-upgrade"], |manifests| {
        annotate(step_job(manifests), "helm.sh/hook", "post-upgrade");
    });
}

#[test]
fn a_step_object_that_is_no_hook_is_found() {
    finds(&["CronJob/demo/home-tidy-up", "is no hook"], |manifests| {
        remove(&mut find(manifests, "CronJob", "home-tidy-up")["metadata"], "annotations");
    });
}

#[test]
fn a_weight_that_is_no_integer_is_found() {
    for weight in ["ten", "1.5", " 10", ""] {
        finds_among_others(&["Job/demo/home-tidy-up", "no integer"], |manifests| {
            annotate(step_job(manifests), "helm.sh/hook-weight", weight);
        });
    }
}

#[test]
fn a_missing_weight_is_found() {
    finds(&["ServiceAccount/demo/home-household-cleanup", "no hook weight"], |manifests| {
        let account = find(manifests, "ServiceAccount", "home-household-cleanup");
        remove(&mut account["metadata"]["annotations"], "helm.sh/hook-weight");
    });
}

#[test]
fn two_step_jobs_of_one_event_with_the_same_weight_are_found() {
    finds_among_others(&["both run at post-upgrade with weight 20"], |manifests| {
        let mut second = step_job(manifests).clone();
        second["metadata"]["name"] = json!("home-another");
        manifests.push(second);
    });
}

#[test]
fn two_step_jobs_of_different_events_may_share_a_weight() {
    let mut manifests = good();
    annotate(find(&mut manifests, "Job", "home-household-cleanup"), "helm.sh/hook-weight", "20");
    assert_eq!(check(&manifests), Vec::<String>::new());
}

#[test]
fn rights_with_another_delete_policy_than_their_job_are_found() {
    for (kind, name) in [
        ("ServiceAccount", "home-tidy-up"),
        ("Role", "home-tidy-up"),
        ("RoleBinding", "home-tidy-up"),
        ("ClusterRole", "belay.demo.home.tidy-up"),
        ("ClusterRoleBinding", "belay.demo.home.tidy-up"),
    ] {
        finds_among_others(&["Job/demo/home-tidy-up", kind, "different delete policies"], |manifests| {
            let policy = "before-hook-creation,hook-succeeded";
            annotate(find(manifests, kind, name), "helm.sh/hook-delete-policy", policy);
        });
    }
}

#[test]
fn a_step_job_that_is_deleted_on_success_or_failure_is_found() {
    for policy in ["hook-succeeded", "hook-failed"] {
        finds_among_others(&["Job/demo/home-tidy-up has the delete policy", policy], |manifests| {
            annotate(
                step_job(manifests),
                "helm.sh/hook-delete-policy",
                format!("before-hook-creation,{policy}"),
            );
        });
    }
}

#[test]
fn rights_that_are_deleted_on_success_or_failure_are_found_even_if_their_job_is_too() {
    finds_among_others(&["Role/demo/home-tidy-up has the delete policy hook-failed"], |manifests| {
        for object in manifests.iter_mut() {
            annotate(object, "helm.sh/hook-delete-policy", "before-hook-creation,hook-failed");
        }
    });
}

#[test]
fn a_missing_before_hook_creation_is_found() {
    finds_among_others(
        &["Job/demo/home-household-cleanup", "no delete policy before-hook-creation"],
        |manifests| {
            let job = find(manifests, "Job", "home-household-cleanup");
            annotate(job, "helm.sh/hook-delete-policy", "hook-succeeded");
        },
    );
}

#[test]
fn a_misspelt_delete_policy_is_found() {
    finds_among_others(&["delete policy hook-suceeded, which Helm does not know"], |manifests| {
        annotate(step_job(manifests), "helm.sh/hook-delete-policy", "before-hook-creation,hook-suceeded");
    });
}

#[test]
fn a_ttl_is_found() {
    finds(&["Job/demo/home-tidy-up", "TTL"], |manifests| {
        step_job(manifests)["spec"]["ttlSecondsAfterFinished"] = json!(0);
    });
}

#[test]
fn a_backstop_on_the_job_instead_of_the_pod_is_found() {
    finds_among_others(&["Job/demo/home-tidy-up", "belongs on the pod template"], |manifests| {
        let spec = &mut step_job(manifests)["spec"];
        remove(&mut spec["template"]["spec"], "activeDeadlineSeconds");
        spec["activeDeadlineSeconds"] = json!(270);
    });
}

#[test]
fn a_missing_backstop_is_found() {
    finds(&["CronJob/demo/home-tidy-up", "no backstop"], |manifests| {
        let job = find(manifests, "CronJob", "home-tidy-up");
        remove(&mut job["spec"]["jobTemplate"]["spec"]["template"]["spec"], "activeDeadlineSeconds");
    });
}

#[test]
fn a_backstop_before_deadline_and_reserve_are_over_is_found() {
    finds(&["180", "60", "239"], |manifests| {
        step_job(manifests)["spec"]["template"]["spec"]["activeDeadlineSeconds"] = json!(239);
    });
}

#[test]
fn a_cron_job_name_of_53_characters_is_found() {
    finds(&["52 characters"], |manifests| {
        find(manifests, "CronJob", "home-tidy-up")["metadata"]["name"] = json!("n".repeat(53));
    });
}

#[test]
fn a_cron_job_that_runs_by_itself_is_found() {
    finds(&["not suspended"], |manifests| {
        find(manifests, "CronJob", "home-tidy-up")["spec"]["suspend"] = json!(false);
    });
}

#[test]
fn a_pod_that_is_not_restricted_is_found() {
    for (place, key, value) in [
        ("/securityContext", "runAsNonRoot", json!(false)),
        ("/containers/0/securityContext", "runAsUser", json!(0)),
        ("/securityContext", "seccompProfile", json!({ "type": "Unconfined" })),
        ("/containers/0/securityContext", "allowPrivilegeEscalation", Value::Null),
        ("/containers/0/securityContext", "readOnlyRootFilesystem", json!(false)),
        ("/containers/0/securityContext", "capabilities", json!({ "drop": ["ALL"], "add": ["NET_RAW"] })),
        ("/containers/0/securityContext", "privileged", json!(true)),
        ("", "volumes", json!([{ "name": "host", "hostPath": { "path": "/" } }])),
        ("", "hostNetwork", json!(true)),
    ] {
        finds(&["not restricted"], |manifests| {
            let pod = &mut step_job(manifests)["spec"]["template"]["spec"];
            pod.pointer_mut(place).unwrap()[key] = value;
        });
    }
}

#[test]
fn a_pod_that_a_sidecar_may_enter_is_found() {
    for place in ["labels", "annotations"] {
        finds(&["sidecar", place], |manifests| {
            step_job(manifests)["spec"]["template"]["metadata"][place]["sidecar.istio.io/inject"] =
                json!("true");
        });
    }
}

#[test]
fn a_pod_without_limits_is_found() {
    finds(&["no memory limits"], |manifests| {
        let pod = &mut step_job(manifests)["spec"]["template"]["spec"];
        remove(&mut pod["containers"][0]["resources"]["limits"], "memory");
    });
}

#[test]
fn a_pod_failure_policy_in_the_wrong_order_is_found() {
    finds(&["pod failure policy"], |manifests| {
        step_job(manifests)["spec"]["podFailurePolicy"]["rules"].as_array_mut().unwrap().reverse();
    });
}

#[test]
fn a_pod_failure_policy_that_retries_a_refusal_is_found() {
    finds(&["pod failure policy"], |manifests| {
        step_job(manifests)["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] =
            json!([2, 4, 5, 6]);
    });
}

/// The retry would undo a run that was at work when somebody asked, and has ended since.
#[test]
fn a_restore_or_an_accept_that_waits_for_a_run_at_work_is_found() {
    for component in ["restore", "accept"] {
        finds(&["pod failure policy", "75"], |manifests| {
            let job = find(manifests, "CronJob", "home-tidy-up");
            job["metadata"]["labels"]["app.kubernetes.io/component"] = component.into();
        });
    }
    finds(&["pod failure policy"], |manifests| {
        step_job(manifests)["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] =
            json!([2, 3, 4, 5, 6, 75]);
    });
}

#[test]
fn too_few_retries_are_found() {
    finds(&["backoffLimit"], |manifests| step_job(manifests)["spec"]["backoffLimit"] = json!(1));
}

#[test]
fn a_log_that_helm_does_not_print_is_found() {
    finds(&["print its log"], |manifests| {
        remove(&mut step_job(manifests)["metadata"]["annotations"], "helm.sh/hook-output-log-policy");
    });
}

#[test]
fn an_account_that_is_not_rendered_is_found() {
    finds(&["runs as ServiceAccount home-household-cleanup"], |manifests| {
        manifests.retain(|object| {
            object["kind"] != "ServiceAccount" || object["metadata"]["name"] != "home-household-cleanup"
        });
    });
}

#[test]
fn rights_that_come_after_their_job_are_found() {
    finds(&["Role/demo/home-tidy-up does not come before"], |manifests| {
        annotate(find(manifests, "Role", "home-tidy-up"), "helm.sh/hook-weight", "20");
    });
}

#[test]
fn rights_of_another_event_are_found() {
    finds_among_others(&["RoleBinding/demo/home-tidy-up is not a hook of every event"], |manifests| {
        annotate(find(manifests, "RoleBinding", "home-tidy-up"), "helm.sh/hook", "pre-install,pre-upgrade");
    });
}

#[test]
fn an_object_that_is_rendered_twice_is_found() {
    finds(&["Role/demo/home-tidy-up is rendered twice"], |manifests| {
        let again = find(manifests, "Role", "home-tidy-up").clone();
        manifests.push(again);
    });
}

/// What the step of the sound manifests would print.
fn printed() -> Value {
    json!({
        "clusterRules": [{ "apiGroups": ["example.com"], "resources": ["gadgets"], "verbs": ["list"] }],
        "namespaced": { "demo": [
            { "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"] },
            { "apiGroups": [""], "resources": ["secrets"], "verbs": ["create"] },
            { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["belay-tidy-up"], "verbs": ["update", "get"] },
            { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["belay-tidy-up-00"], "verbs": ["get", "update"] },
            { "apiGroups": ["example.com"], "resources": ["shelves"], "verbs": ["list"] },
            { "apiGroups": ["example.com"], "resources": ["gadgets"], "resourceNames": ["c"], "verbs": ["delete", "get"] }
        ] }
    })
}

fn differences(manifests: &[Value]) -> Vec<String> {
    let [Run { job, namespace, account, .. }] = &runs(manifests)[..] else { panic!("not one step") };
    compare(job, &granted(manifests, namespace, account), &needed(&printed()))
}

#[test]
fn rights_that_a_step_prints_in_another_order_and_grouping_are_the_same() {
    assert_eq!(differences(&good()), Vec::<String>::new());
}

#[test]
fn a_right_that_the_step_does_not_need_is_found() {
    let mut manifests = good();
    let verbs = &mut find(&mut manifests, "ClusterRole", "belay.demo.home.tidy-up")["rules"][0]["verbs"];
    verbs.as_array_mut().unwrap().push(json!("delete"));
    let faults = differences(&manifests);
    assert_eq!(
        faults,
        ["Job/demo/home-tidy-up may delete gadgets.example.com in the whole cluster, but does not need to"]
    );
}

#[test]
fn a_right_that_the_step_lacks_is_found() {
    let mut manifests = good();
    let rules = find(&mut manifests, "Role", "home-tidy-up")["rules"].as_array_mut().unwrap();
    rules.retain(|rule| rule["resources"] != json!(["events"]));
    assert_eq!(
        differences(&manifests),
        [
            "Job/demo/home-tidy-up needs to create events.events.k8s.io in namespace demo, but the chart does not grant it"
        ]
    );
}

#[test]
fn a_right_in_every_namespace_is_not_the_same_as_one_in_a_single_one() {
    let mut manifests = good();
    manifests.retain(|object| object["kind"] != "RoleBinding");
    let mut role = find(&mut manifests, "Role", "home-tidy-up").clone();
    role["kind"] = json!("ClusterRole");
    let mut binding = find(&mut manifests, "ClusterRoleBinding", "belay.demo.home.tidy-up").clone();
    binding["metadata"]["name"] = json!("home-tidy-up");
    binding["roleRef"]["name"] = json!("home-tidy-up");
    manifests.extend([role, binding]);
    assert!(
        differences(&manifests).iter().any(|fault| fault.contains("create secrets in the whole cluster"))
    );
}
