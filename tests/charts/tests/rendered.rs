//! The shipped charts, as Helm 3 and Helm 4 render them, hold every rule.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use chart_tests::{
    check,
    helm::{Helm, shipped},
    rights::{Right, granted, runs},
};
use common::Copy;
use serde_json::{Value, json};

/// What the chart does with each step when nobody says otherwise.
struct Shipped {
    name: &'static str,
    on: bool,
    hook: &'static str,
    weight: &'static str,
    deadline: &'static str,
    undo_reserve: &'static str,
    backstop: u64,
}

const fn shipped_step(
    name: &'static str,
    hook: &'static str,
    weight: &'static str,
    [deadline, undo_reserve]: [&'static str; 2],
    backstop: u64,
) -> Shipped {
    Shipped { name, on: true, hook, weight, deadline, undo_reserve, backstop }
}

const BEFORE: &str = "pre-install,pre-upgrade";
const AFTER: &str = "post-install,post-upgrade";

/// In the order in which they run.
const STEPS: [Shipped; 7] = [
    shipped_step("create-missing-sources", BEFORE, "10", ["180", "60"], 270),
    shipped_step("recreate-service-instances", BEFORE, "20", ["840", "300"], 1200),
    shipped_step("recreate-triggers", BEFORE, "30", ["300", "60"], 390),
    shipped_step("verify-event-services", AFTER, "10", ["600", "0"], 630),
    shipped_step("retire-subscriptions", AFTER, "20", ["420", "150"], 600),
    shipped_step("scale-down-legacy", AFTER, "30", ["180", "60"], 270),
    Shipped { on: false, ..shipped_step("purge-legacy", BEFORE, "40", ["300", "120"], 480) },
];

/// The value that leaves these steps and no others.
fn only(steps: &[&str]) -> String {
    format!("--set=only={{{}}}", steps.join(","))
}

fn event_mesh() -> PathBuf {
    shipped("event-mesh")
}

#[track_caller]
fn sound(manifests: &[Value]) {
    assert_eq!(check(manifests), Vec::<String>::new());
}

fn names(manifests: &[Value], kind: &str) -> BTreeSet<String> {
    let objects = manifests.iter().filter(|object| object["kind"] == kind);
    objects.map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn find<'a>(manifests: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = manifests.iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn set<'a>(names: &[&'a str]) -> BTreeSet<&'a str> {
    names.iter().copied().collect()
}

/// The container of a Job, or of the Jobs that a CronJob makes.
fn container(job: &Value) -> &Value {
    let spec = if job["kind"] == "CronJob" { &job["spec"]["jobTemplate"]["spec"] } else { &job["spec"] };
    &spec["template"]["spec"]["containers"][0]
}

fn command(job: &Value) -> Vec<&str> {
    let command = container(job)["command"].as_array().unwrap();
    command.iter().map(|word| word.as_str().unwrap()).collect()
}

fn environment(job: &Value) -> BTreeMap<&str, &str> {
    let env = container(job)["env"].as_array().unwrap();
    env.iter().filter_map(|entry| Some((entry["name"].as_str()?, entry["value"].as_str()?))).collect()
}

#[test]
fn the_event_mesh_chart_is_sound_with_its_default_values() {
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &[]).unwrap();
        sound(&manifests);
        let mut jobs = BTreeSet::from(["mesh-event-mesh-cleanup".to_owned()]);
        let mut cron_jobs = BTreeSet::from(["mesh-event-mesh-status".to_owned()]);
        for step in STEPS.iter().filter(|step| step.on) {
            let name = format!("mesh-{}", step.name);
            jobs.insert(name.clone());
            // Where nothing is changed there is nothing to restore.
            if step.name != "verify-event-services" {
                cron_jobs.extend([format!("{name}-restore"), format!("{name}-accept")]);
            }
            cron_jobs.insert(name);
        }
        assert_eq!(names(&manifests, "Job"), jobs);
        assert_eq!(names(&manifests, "CronJob"), cron_jobs);
    }
}

#[test]
fn both_helms_render_the_same_objects() {
    let [three, four] = Helm::both().map(|helm| helm.template(&event_mesh(), "mesh", &[]).unwrap());
    assert_eq!(three, four);
}

#[test]
fn the_steps_run_in_the_order_of_the_migration_with_the_times_that_each_needs() {
    for helm in Helm::both() {
        let all = STEPS.map(|step| step.name);
        let manifests = helm.template(&event_mesh(), "mesh", &[&only(&all)]).unwrap();
        sound(&manifests);
        for step in &STEPS {
            let job = find(&manifests, "Job", &format!("mesh-{}", step.name));
            let annotations = &job["metadata"]["annotations"];
            assert_eq!(annotations["helm.sh/hook"], step.hook, "{}", step.name);
            assert_eq!(annotations["helm.sh/hook-weight"], step.weight, "{}", step.name);
            let environment = environment(job);
            assert_eq!(environment["BELAY_DEADLINE"], step.deadline, "{}", step.name);
            assert_eq!(environment["BELAY_UNDO_RESERVE"], step.undo_reserve, "{}", step.name);
            assert_eq!(
                job["spec"]["template"]["spec"]["activeDeadlineSeconds"], step.backstop,
                "{}",
                step.name
            );
        }
    }
}

#[test]
fn one_value_retires_subscriptions_right_after_their_triggers_were_made() {
    let early = "--set=steps.retire-subscriptions.event=pre-upgrade";
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &[early]).unwrap();
        sound(&manifests);
        let annotations = &find(&manifests, "Job", "mesh-retire-subscriptions")["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook"], BEFORE);
        assert_eq!(annotations["helm.sh/hook-weight"], "35");
        let moved = [early, "--set=steps.retire-subscriptions.weight=33"];
        let manifests = helm.template(&event_mesh(), "mesh", &moved).unwrap();
        let annotations = &find(&manifests, "Job", "mesh-retire-subscriptions")["metadata"]["annotations"];
        assert_eq!(annotations["helm.sh/hook-weight"], "33");
    }
}

#[test]
fn a_job_and_its_rerun_run_the_same_command() {
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &[]).unwrap();
        let name = "mesh-scale-down-legacy";
        let job = command(find(&manifests, "Job", name));
        assert_eq!(
            job,
            [
                "/belay",
                "scale-down-legacy",
                "--workload",
                "Deployment/kyma-system/event-bus-event-publish-service",
                "--workload",
                "Deployment/kyma-system/event-bus-subscription-controller",
                "--refuse-while",
                "subscriptions.eventing.kyma-project.io:spec.source_id",
                "--release-finalizer",
                "eventactivations.applicationconnector.kyma-project.io=eventactivation.finalizers.kyma-project.io",
            ]
        );
        assert_eq!(command(find(&manifests, "CronJob", name)), job);
        let restore = command(find(&manifests, "CronJob", "mesh-scale-down-legacy-restore"));
        assert_eq!(restore, ["/belay", "restore", "--step", "scale-down-legacy"]);
    }
}

/// Its verdict ends with the command that runs it again. A name that is too long is cut, and only the chart knows how.
#[test]
fn a_step_is_told_which_cron_job_runs_it_again() {
    for helm in Helm::both() {
        for release in ["mesh", &"r".repeat(53)] {
            let manifests = helm.template(&event_mesh(), release, &[]).unwrap();
            let component =
                |object: &Value| object["metadata"]["labels"]["app.kubernetes.io/component"].clone();
            let jobs = || manifests.iter().filter(|object| object["kind"] == "Job");
            assert_eq!(jobs().filter(|job| component(job) == "step").count(), 6);
            for job in jobs().filter(|job| component(job) == "step") {
                let told = environment(job)["BELAY_CRON_JOB"];
                let again = find(&manifests, "CronJob", told);
                assert_eq!(component(again), "rerun");
                assert_eq!((command(again), environment(again)), (command(job), environment(job)));
            }
            for other in manifests.iter().filter(|object| {
                ["restore", "accept", "status", "cleanup"].iter().any(|what| component(object) == *what)
                    && ["Job", "CronJob"].iter().any(|kind| object["kind"] == *kind)
            }) {
                assert!(!environment(other).contains_key("BELAY_CRON_JOB"), "{}", other["metadata"]["name"]);
            }
        }
    }
}

#[test]
fn typed_settings_become_arguments_and_environment() {
    let values = [
        "--set=home=kyma-system,onFailure=chain,concurrency=8,logFormat=json",
        "--set=steps.create-missing-sources.readyWithin=90,steps.create-missing-sources.deadline=150",
        "--set=steps.create-missing-sources.exclude[0]=Application/2fast",
        "--set=steps.create-missing-sources.args[0]=--dry-run",
        "--set=steps.create-missing-sources.sourceController=sources/manager",
    ];
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &values).unwrap();
        sound(&manifests);
        let job = find(&manifests, "Job", "mesh-create-missing-sources");
        assert_eq!(
            command(job)[1..],
            [
                "create-missing-sources",
                "--integration-namespace",
                "kyma-integration",
                "--source-controller",
                "sources/manager",
                "--ready-within",
                "90",
                "--exclude",
                "Application/2fast",
                "--dry-run",
            ]
        );
        let environment = environment(job);
        for (name, value) in [
            ("BELAY_HOME", "kyma-system"),
            ("BELAY_NAMESPACE", "demo"),
            ("BELAY_RELEASE", "mesh"),
            ("BELAY_DEADLINE", "150"),
            ("BELAY_UNDO_RESERVE", "60"),
            ("BELAY_ON_FAILURE", "chain"),
            ("BELAY_CONCURRENCY", "8"),
            ("BELAY_LOG_FORMAT", "json"),
        ] {
            assert_eq!(environment[name], value, "{name}");
        }
    }
}

/// The steps that have objects, status and cleanup left aside.
fn steps_of(manifests: &[Value]) -> BTreeSet<&str> {
    let steps = manifests.iter().filter_map(|object| object["metadata"]["labels"]["belay.dev/step"].as_str());
    steps.filter(|step| !["status", "cleanup"].contains(step)).collect()
}

#[test]
fn each_step_can_be_switched_off_and_leaves_nothing() {
    let on: BTreeSet<_> = STEPS.iter().filter(|step| step.on).map(|step| step.name).collect();
    for helm in Helm::both() {
        for off in &on {
            let manifests =
                helm.template(&event_mesh(), "mesh", &[&format!("--set=steps.{off}.enabled=false")]).unwrap();
            sound(&manifests);
            assert_eq!(steps_of(&manifests), on.iter().copied().filter(|step| step != off).collect());
        }
    }
}

#[test]
fn each_step_can_be_used_alone_also_in_somebodys_chart() {
    for helm in Helm::both() {
        let parent = Copy::of("parent", &helm);
        for Shipped { name, .. } in STEPS {
            let manifests = helm.template(&event_mesh(), "mesh", &[&only(&[name])]).unwrap();
            sound(&manifests);
            assert_eq!(steps_of(&manifests), set(&[name]));

            let in_parent = format!("--set=mesh.only={{{name}}}");
            let manifests = helm.template(&parent.chart(), "shop", &[&in_parent]).unwrap();
            sound(&manifests);
            assert_eq!(steps_of(&manifests), set(&[name, "tidy-up"]));
            let job = find(&manifests, "Job", &format!("shop-{name}"));
            assert_eq!(environment(job)["BELAY_RELEASE"], "shop");
        }
    }
}

/// The split of the chart's README, in the order in which the charts are applied: what must be there before the
/// event-services change over, then the chart that rolls them. Each runs its part, and they share one home.
#[test]
fn the_steps_can_be_spread_over_the_charts_of_several_releases() {
    let parts = [
        // A release later than the other two.
        ("cluster-essentials", &["purge-legacy"][..]),
        ("core", &["create-missing-sources", "recreate-service-instances", "recreate-triggers"]),
        (
            "application-connector",
            &["recreate-triggers", "verify-event-services", "retire-subscriptions", "scale-down-legacy"],
        ),
    ];
    for helm in Helm::both() {
        let mut cluster_wide = BTreeSet::new();
        for (release, steps) in parts {
            let values = [&only(steps), "--set=home=kyma-system"];
            let manifests = helm.template(&event_mesh(), release, &values).unwrap();
            sound(&manifests);
            assert_eq!(steps_of(&manifests), set(steps));
            for step in steps {
                let job = find(&manifests, "Job", &format!("{release}-{step}"));
                assert_eq!(environment(job)["BELAY_HOME"], "kyma-system");
            }
            for kind in ["ClusterRole", "ValidatingAdmissionPolicy"] {
                for name in names(&manifests, kind) {
                    assert!(cluster_wide.insert((kind, name.clone())), "{kind} {name} is in two releases");
                }
            }
        }
        // Of one release only one chart may hold the family.
        let parent = Copy::of("parent", &helm);
        let file = parent.chart().join("Chart.yaml");
        let twice = std::fs::read_to_string(&file).unwrap()
            + "  - {name: event-mesh, alias: again, version: 0.1.0, repository: file://../event-mesh}\n";
        std::fs::write(&file, twice).unwrap();
        let refusal = helm.template(&parent.chart(), "shop", &[]).unwrap_err().to_string();
        for words in [
            "the release shop holds the family event-mesh twice",
            "parent/charts/mesh",
            "parent/charts/again",
        ] {
            assert!(refusal.contains(words), "Helm {}: {refusal:?} does not say {words:?}", helm.major);
        }
    }
}

#[test]
fn with_all_steps_off_status_and_cleanup_remain() {
    let off = STEPS.map(|step| format!("steps.{}.enabled=false", step.name)).join(",");
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &[&format!("--set={off}")]).unwrap();
        sound(&manifests);
        assert_eq!(names(&manifests, "Job").into_iter().collect::<Vec<_>>(), ["mesh-event-mesh-cleanup"]);
        assert_eq!(names(&manifests, "CronJob").into_iter().collect::<Vec<_>>(), ["mesh-event-mesh-status"]);
    }
}

#[test]
fn status_may_see_reports_journal_heads_and_who_is_at_work_and_change_nothing() {
    for helm in Helm::both() {
        for home in ["demo", "kyma-system"] {
            let values = [format!("--set=home={home}")];
            let manifests = helm.template(&event_mesh(), "mesh", &[&values[0]]).unwrap();
            let rights: BTreeSet<String> = granted(&manifests, "demo", "mesh-event-mesh-status")
                .iter()
                .map(ToString::to_string)
                .collect();
            let mut expected: BTreeSet<String> = STEPS
                .iter()
                .flat_map(|step| {
                    ["secrets belay-", "configmaps belay-report-"]
                        .map(|what| format!("get {what}{} in namespace {home}", step.name))
                })
                .collect();
            expected.insert(format!("get leases.coordination.k8s.io belay-event-mesh in namespace {home}"));
            expected.insert("get pods in namespace demo".to_owned());
            assert_eq!(rights, expected);
        }
    }
}

#[test]
fn whoever_restores_or_accepts_has_the_rights_of_the_step() {
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &[]).unwrap();
        for step in STEPS.iter().filter(|step| step.on && step.name != "verify-event-services") {
            let name = format!("mesh-{}", step.name);
            for cron_job in [format!("{name}-restore"), format!("{name}-accept")] {
                let job = &find(&manifests, "CronJob", &cron_job)["spec"]["jobTemplate"]["spec"];
                assert_eq!(job["template"]["spec"]["serviceAccountName"], name.as_str());
            }
        }
    }
}

#[test]
fn a_restore_or_an_accept_is_not_tried_again_while_a_run_is_at_work_and_all_else_is() {
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &[]).unwrap();
        let ends_the_job = |kind: &str, name: &str| {
            let job = find(&manifests, kind, name);
            let spec = job["spec"].pointer("/jobTemplate/spec").unwrap_or(&job["spec"]);
            spec["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"].clone()
        };
        let name = "mesh-scale-down-legacy";
        for person in [format!("{name}-restore"), format!("{name}-accept")] {
            assert_eq!(ends_the_job("CronJob", &person), json!([2, 3, 4, 5, 6, 75]), "{person}");
        }
        for (kind, other) in [
            ("Job", name),
            ("CronJob", name),
            ("CronJob", "mesh-event-mesh-status"),
            ("Job", "mesh-event-mesh-cleanup"),
        ] {
            assert_eq!(ends_the_job(kind, other), json!([2, 3, 4, 5, 6]), "{kind} {other}");
        }
    }
}

#[test]
fn a_step_that_only_reads_may_write_no_secret() {
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &[]).unwrap();
        let rights = granted(&manifests, "demo", "mesh-verify-event-services");
        let of_secrets = rights.iter().filter(|right| right.resource == "secrets");
        assert_eq!(of_secrets.filter(|right| right.verb != "get").count(), 0);
    }
}

#[test]
fn only_a_release_of_the_familys_name_leaves_the_family_out_of_names() {
    for (release, status) in
        [("event-mesh", "event-mesh-status"), ("event-mesh-2", "event-mesh-2-event-mesh-status")]
    {
        for helm in Helm::both() {
            let manifests = helm.template(&event_mesh(), release, &[]).unwrap();
            sound(&manifests);
            assert!(names(&manifests, "CronJob").contains(status), "{:?}", names(&manifests, "CronJob"));
        }
    }
}

#[test]
fn owners_of_what_is_made_again_may_be_of_any_group_or_of_the_core() {
    for step in ["retire-subscriptions", "recreate-service-instances"] {
        let owners =
            format!("--set=steps.{step}.ownerKinds={{functions.kubeless.io,deployments.apps,configmaps}}");
        for helm in Helm::both() {
            let manifests = helm.template(&event_mesh(), "mesh", &[&owners]).unwrap();
            let rights: BTreeSet<String> = granted(&manifests, "demo", &format!("mesh-{step}"))
                .iter()
                .map(ToString::to_string)
                .collect();
            for owner in ["functions.kubeless.io", "deployments.apps", "configmaps"] {
                let right = format!("get {owner} in the whole cluster");
                assert!(rights.contains(&right), "no {right} in {rights:#?}");
            }
        }
    }
}

#[test]
fn cleanup_may_remove_what_a_step_that_is_off_left_behind() {
    let off = "--set=steps.scale-down-legacy.enabled=false";
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &[off]).unwrap();
        let rights = granted(&manifests, "demo", "mesh-event-mesh-cleanup");
        assert!(
            rights.iter().any(|right| right.verb == "delete"
                && right.name.as_deref() == Some("mesh-scale-down-legacy-restore"))
        );
    }
}

#[test]
fn cleanup_may_delete_every_hook_object_that_outlives_the_release_and_nothing_else() {
    for helm in Helm::both() {
        let values = ["--set=home=kyma-system"];
        let manifests = helm.template(&event_mesh(), "mesh", &values).unwrap();
        let rights = granted(&manifests, "demo", "mesh-event-mesh-cleanup");
        let may_delete = |object: &Value| {
            let resource = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
            rights.iter().any(|right| {
                right.verb == "delete"
                    && right.resource == resource
                    && right.name.as_deref() == object["metadata"]["name"].as_str()
                    && (right.namespace.is_none()
                        || right.namespace.as_deref() == object["metadata"]["namespace"].as_str())
            })
        };
        for object in &manifests {
            let hook = object["metadata"]["annotations"]["helm.sh/hook"].as_str();
            if hook.is_some_and(|hook| hook != "post-delete") {
                assert!(may_delete(object), "{} {}", object["kind"], object["metadata"]["name"]);
            }
        }
        let reads = ["get", "list"];
        let nameless =
            rights.iter().filter(|right| !reads.contains(&right.verb.as_str()) && right.name.is_none());
        assert_eq!(nameless.count(), 0, "cleanup may change objects that it does not know by name");
        assert!(rights.iter().filter(|right| right.resource == "secrets").all(|right| right.verb == "get"));
        let finds_other_homes = |right: &Right| {
            right.verb == "list" && right.resource.starts_with("leases") && right.namespace.is_none()
        };
        assert!(rights.iter().any(finds_other_homes), "cleanup cannot see where else the family lives");
        // On a fresh cluster the home may not be there, and no Role in it.
        let asks_for_home = |right: &&Right| right.resource == "namespaces";
        let asked: Vec<String> = rights.iter().filter(asks_for_home).map(ToString::to_string).collect();
        assert_eq!(asked, ["get namespaces kyma-system in the whole cluster"]);
    }
}

#[test]
fn cleanup_and_policy_can_be_switched_off() {
    for helm in Helm::both() {
        let off = "--set=cleanup.enabled=false,admissionPolicy.enabled=false";
        let manifests = helm.template(&event_mesh(), "mesh", &[off]).unwrap();
        sound(&manifests);
        assert!(
            manifests.iter().all(|object| object["metadata"]["annotations"]["helm.sh/hook"] != "post-delete")
        );
        assert!(names(&manifests, "ValidatingAdmissionPolicy").is_empty());
    }
}

#[test]
fn the_admission_policy_is_no_hook_and_names_the_accounts_of_the_steps() {
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &[]).unwrap();
        let policy = find(&manifests, "ValidatingAdmissionPolicy", "belay.demo.mesh.event-mesh");
        assert!(policy["metadata"].get("annotations").is_none());
        let condition = policy["spec"]["matchConditions"][0]["expression"].as_str().unwrap();
        for run in runs(&manifests) {
            assert!(
                condition.contains(&format!("\"system:serviceaccount:demo:{}\"", run.account)),
                "{condition}"
            );
        }
        let binding = find(&manifests, "ValidatingAdmissionPolicyBinding", "belay.demo.mesh.event-mesh");
        assert_eq!(
            binding["spec"],
            json!({ "policyName": "belay.demo.mesh.event-mesh", "validationActions": ["Deny"] })
        );
    }
}

#[test]
fn the_chart_works_as_an_aliased_dependency() {
    for helm in Helm::both() {
        let parent = Copy::of("parent", &helm);
        let manifests = helm.template(&parent.chart(), "shop", &[]).unwrap();
        sound(&manifests);
        let job = find(&manifests, "Job", "shop-create-missing-sources");
        assert_eq!(job["metadata"]["annotations"]["helm.sh/hook-weight"], "15");
        assert_eq!(environment(job)["BELAY_HOME"], "kyma-system");
        let places: BTreeSet<_> = manifests
            .iter()
            .filter(|object| {
                object["kind"] == "Role"
                    && object["metadata"]["labels"]["belay.dev/step"] == "create-missing-sources"
            })
            .map(|role| role["metadata"]["namespace"].as_str().unwrap())
            .collect();
        assert_eq!(places, set(&["demo", "integration", "kyma-system"]));
        let off = helm.template(&parent.chart(), "shop", &["--set=migrations.enabled=false"]).unwrap();
        assert_eq!(off.len(), 1, "only the parent's own object is left");
    }
}

#[test]
fn two_families_in_one_release_share_no_object() {
    for helm in Helm::both() {
        let parent = Copy::of("parent", &helm);
        let manifests = helm.template(&parent.chart(), "shop", &[]).unwrap();
        // A shared object would be rendered twice, which is a fault.
        sound(&manifests);
        let families: BTreeSet<_> = manifests
            .iter()
            .filter_map(|object| object["metadata"]["labels"]["belay.dev/family"].as_str())
            .collect();
        assert_eq!(families, set(&["event-mesh", "household"]));
    }
}

#[test]
fn the_charts_pass_helms_own_lint() {
    for helm in Helm::both() {
        for chart in ["belay", "event-mesh"] {
            let folder = shipped(chart);
            let lint =
                helm.run(&["lint", "--strict", "--kube-version=1.35.0", &folder.to_string_lossy()]).unwrap();
            assert!(lint.contains("0 chart(s) failed"), "{lint}");
        }
    }
}

#[test]
fn a_package_holds_the_library_and_renders_the_same() {
    for helm in Helm::both() {
        let folder = tempfile::tempdir().unwrap();
        helm.package_all(folder.path()).unwrap();
        assert!(folder.path().join("belay-0.1.0.tgz").is_file());
        let packaged = helm.template(&folder.path().join("event-mesh-0.1.0.tgz"), "mesh", &[]).unwrap();
        assert_eq!(packaged, helm.template(&event_mesh(), "mesh", &[]).unwrap());
    }
}

#[test]
fn a_chart_with_a_step_of_its_own_needs_a_name_a_weight_and_rules() {
    for helm in Helm::both() {
        let own = Copy::of("own-step", &helm);
        let manifests = helm.template(&own.chart(), "home", &[]).unwrap();
        sound(&manifests);
        let job = find(&manifests, "Job", "home-tidy-up");
        assert_eq!(command(job), ["/household", "tidy-up", "--gently"]);
        let granted: BTreeSet<String> =
            granted(&manifests, "demo", "home-tidy-up").iter().map(ToString::to_string).collect();
        let expected = [
            "create events.events.k8s.io in namespace demo",
            "create secrets in namespace demo",
            "delete gadgets.example.com a in namespace left",
            "delete gadgets.example.com b in namespace left",
            "delete gadgets.example.com c in namespace demo",
            "get gadgets.example.com a in namespace left",
            "get gadgets.example.com b in namespace left",
            "get gadgets.example.com c in namespace demo",
            "get secrets belay-tidy-up in namespace demo",
            "get secrets belay-tidy-up-00 in namespace demo",
            "list gadgets.example.com in the whole cluster",
            "list shelves.example.com in namespace demo",
            "list shelves.example.com in namespace left",
            "update secrets belay-tidy-up in namespace demo",
            "update secrets belay-tidy-up-00 in namespace demo",
        ];
        assert_eq!(granted.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    }
}

#[test]
fn the_defaults_of_the_library_are_those_that_the_event_mesh_chart_spells_out() {
    let unset = [
        "image",
        "imagePullSecrets",
        "home",
        "onFailure",
        "concurrency",
        "logFormat",
        "admissionPolicy",
        "cleanup",
        "resources",
        "nodeSelector",
        "tolerations",
        "affinity",
        "priorityClassName",
        "labels",
        "annotations",
        "podLabels",
        "podAnnotations",
    ];
    // Two steps have the times that the library gives to any.
    let times = ["deadline", "undoReserve", "backstop"].iter().flat_map(|key| {
        ["create-missing-sources", "scale-down-legacy"].map(|step| format!("--set=steps.{step}.{key}=null"))
    });
    let plain = ["exclude", "args"]
        .iter()
        .flat_map(|key| STEPS.map(|step| format!("--set=steps.{}.{key}=null", step.name)));
    let on = STEPS.iter().filter(|step| step.on);
    let steps = times.chain(plain).chain(on.map(|step| format!("--set=steps.{}.enabled=null", step.name)));
    let unset: Vec<String> = unset.iter().map(|key| format!("--set={key}=null")).chain(steps).collect();
    let unset: Vec<&str> = unset.iter().map(String::as_str).chain(["--skip-schema-validation"]).collect();
    for helm in Helm::both() {
        let spelt_out = helm.template(&event_mesh(), "mesh", &[]).unwrap();
        assert_eq!(helm.template(&event_mesh(), "mesh", &unset).unwrap(), spelt_out);
    }
}

#[test]
fn a_long_release_name_gives_short_names_that_still_say_the_step() {
    let long = "r".repeat(53);
    let longer = format!("{}x", "r".repeat(52));
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), &long, &[]).unwrap();
        sound(&manifests);
        let cron_jobs = names(&manifests, "CronJob");
        assert_eq!(cron_jobs.len(), 17);
        assert!(
            cron_jobs.iter().any(|name| name.ends_with("-create-missing-sources-restore")),
            "{cron_jobs:?}"
        );
        let others = names(&helm.template(&event_mesh(), &longer, &[]).unwrap(), "CronJob");
        assert!(cron_jobs.is_disjoint(&others), "two releases share a name");
    }
}

#[test]
fn usual_values_reach_every_pod_and_never_replace_what_belay_needs() {
    let values = [
        "--set=image.repository=registry.example/belay,image.tag=1.2.3,image.pullPolicy=Always",
        "--set=imagePullSecrets[0].name=pull,nodeSelector.disk=fast,priorityClassName=high",
        "--set=tolerations[0].key=spot,tolerations[0].operator=Exists",
        "--set=resources.limits.memory=256Mi",
        "--set-json=labels={\"team\":\"a\",\"belay.dev/release\":\"stolen\"}",
        "--set-json=annotations={\"note\":\"b\",\"helm.sh/hook-weight\":\"7\"}",
        "--set-json=podLabels={\"net\":\"open\",\"sidecar.istio.io/inject\":\"true\"}",
        "--set-json=podAnnotations={\"scrape\":\"no\"}",
    ];
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &values).unwrap();
        sound(&manifests);
        for object in &manifests {
            let metadata = &object["metadata"];
            assert_eq!(metadata["labels"]["team"], "a");
            assert_eq!(metadata["labels"]["belay.dev/release"], "mesh");
            assert_eq!(metadata["annotations"]["note"], "b");
        }
        for job in manifests.iter().filter(|object| object["kind"] == "Job") {
            let template = &job["spec"]["template"];
            assert_eq!(template["metadata"]["labels"]["net"], "open");
            assert_eq!(template["metadata"]["annotations"]["scrape"], "no");
            let pod = &template["spec"];
            assert_eq!(pod["containers"][0]["image"], "registry.example/belay:1.2.3");
            assert_eq!(pod["containers"][0]["imagePullPolicy"], "Always");
            assert_eq!(pod["containers"][0]["resources"]["limits"], json!({ "cpu": "1", "memory": "256Mi" }));
            assert_eq!(pod["imagePullSecrets"], json!([{ "name": "pull" }]));
            assert_eq!(pod["nodeSelector"], json!({ "disk": "fast" }));
            assert_eq!(pod["tolerations"], json!([{ "key": "spot", "operator": "Exists" }]));
            assert_eq!(pod["priorityClassName"], "high");
        }
    }
}

#[test]
fn a_digest_takes_the_place_of_the_tag() {
    let digest = format!("sha256:{}", "0".repeat(64));
    for helm in Helm::both() {
        let manifests =
            helm.template(&event_mesh(), "mesh", &[&format!("--set=image.digest={digest}")]).unwrap();
        let job = find(&manifests, "Job", "mesh-create-missing-sources");
        assert_eq!(job["spec"]["template"]["spec"]["containers"][0]["image"], format!("belay@{digest}"));
    }
}

#[test]
fn rules_follow_the_values_of_the_workloads() {
    let values = [
        "--set-json=steps.scale-down-legacy.workloads=[{\"kind\":\"StatefulSet\",\"namespace\":\"bus\",\"name\":\"queue\"}]",
        "--set-json=steps.scale-down-legacy.refuseWhile=[]",
    ];
    for helm in Helm::both() {
        let manifests = helm.template(&event_mesh(), "mesh", &values).unwrap();
        let rights: Vec<String> =
            granted(&manifests, "demo", "mesh-scale-down-legacy").iter().map(ToString::to_string).collect();
        assert!(
            rights.iter().any(|right| right.ends_with("statefulsets/scale.apps queue in namespace bus")),
            "{rights:#?}"
        );
        assert!(
            !rights.iter().any(|right| right.contains(" deployments.apps") || right.contains(" subscriptions.eventing")),
            "{rights:#?}"
        );
    }
}

#[test]
fn notes_name_the_order_the_commands_and_the_timeout() {
    let [_, four] = Helm::both();
    // Only Helm 4 renders notes without a cluster.
    let notes = |values: &[&str]| {
        let chart = event_mesh();
        let install = ["install", "mesh", &chart.to_string_lossy(), "--namespace=demo", "--dry-run=client"];
        let output = four.run(&[&install, values].concat()).unwrap();
        output.split("NOTES:").nth(1).unwrap().to_owned()
    };
    let usual = notes(&[]);
    for part in [
        "before the chart's objects, weight 10: create-missing-sources (at most 3m forward and 1m to undo)",
        "before the chart's objects, weight 20: recreate-service-instances (at most 14m forward and 5m to undo)",
        "before the chart's objects, weight 30: recreate-triggers",
        "after the chart's objects, weight 10: verify-event-services (at most 10m; only reads)",
        "after the chart's objects, weight 20: retire-subscriptions",
        "after the chart's objects, weight 30: scale-down-legacy",
        "Switched off: purge-legacy",
        "--from=cronjob/mesh-event-mesh-status ",
        "--from=cronjob/mesh-scale-down-legacy ",
        "--from=cronjob/mesh-scale-down-legacy-restore ",
        "belay-report-create-missing-sources",
        "pass --timeout 20m30s or more to helm install and upgrade.",
    ] {
        assert!(usual.contains(part), "{usual}\ndoes not say {part:?}");
    }
    assert!(!usual.contains("verify-event-services-restore"), "{usual}");
    let slower = notes(&["--set=steps.recreate-triggers.backstop=1600"]);
    assert!(slower.contains("pass --timeout 27m10s or more"), "{slower}");
    let quick = notes(&[&only(&["create-missing-sources", "scale-down-legacy"])]);
    assert!(quick.contains("must be 5m or more"), "{quick}");
    let off = STEPS.map(|step| format!("steps.{}.enabled=false", step.name)).join(",");
    let off = notes(&[&format!("--set={off}")]);
    assert!(off.contains("All steps are switched off"), "{off}");
}
