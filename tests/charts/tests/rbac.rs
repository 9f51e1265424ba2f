//! The rights in the charts are those that the steps print: they cannot drift.
//!
//! Needs the executable: `BELAY_BIN`, else what `cargo build -p belay` has put beside these tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::{env, fs, path::PathBuf, process::Command};

use chart_tests::{
    helm::{Helm, shipped},
    rights::{ask, compare, granted, needed, runs},
};
use serde_json::Value;

/// How the files in charts/event-mesh/rbac are made: the step is told placeholders, which the chart fills from its values. Where one
/// call cannot name all that values may say, there are several, and the file holds what any of them prints.
const PRINTED: [(&str, &[&[&str]]); 7] = [
    (
        "create-missing-sources",
        &[&[
            "--integration-namespace=${integrationNamespace}",
            "--source-controller=${sourceControllerNamespace}/${sourceControllerName}",
        ]],
    ),
    ("recreate-service-instances", &[&[INTEGRATION, CONTROLLER, OWNER]]),
    ("recreate-triggers", &[&[CONTROLLER]]),
    ("verify-event-services", &[&[INTEGRATION, STATEFUL_OPERATOR], &[INTEGRATION, OPERATOR]]),
    (
        "retire-subscriptions",
        &[&[INTEGRATION, CONTROLLER, STATEFUL_OPERATOR, OWNER], &[INTEGRATION, CONTROLLER, OPERATOR, OWNER]],
    ),
    (
        "scale-down-legacy",
        &[&[
            "--workload=Deployment/${deployment-namespace}/${deployment-name}",
            "--workload=ReplicaSet/${replicaset-namespace}/${replicaset-name}",
            "--workload=StatefulSet/${statefulset-namespace}/${statefulset-name}",
            "--refuse-while=${refuseWhile-resource}.${refuseWhile-api.group}",
            "--release-finalizer=${release-resource}.${release-api.group}=any",
        ]],
    ),
    ("purge-legacy", &[&["--legacy-namespace=${legacyNamespace}"]]),
];

const INTEGRATION: &str = "--integration-namespace=${integrationNamespace}";
const CONTROLLER: &str =
    "--subscription-controller=${subscriptionControllerNamespace}/${subscriptionControllerName}";
const OWNER: &str = "--owner-kind=${owner-resource}.${owner-group}";
const OPERATOR: &str =
    "--application-operator=Deployment/${operatorDeployment-namespace}/${operatorDeployment-name}";
const STATEFUL_OPERATOR: &str =
    "--application-operator=StatefulSet/${operatorStatefulSet-namespace}/${operatorStatefulSet-name}";

fn belay() -> PathBuf {
    let beside = || env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("belay");
    let belay = env::var_os("BELAY_BIN").map_or_else(beside, PathBuf::from);
    assert!(
        belay.exists(),
        "{} does not exist: build it (cargo build -p belay) or set BELAY_BIN",
        belay.display()
    );
    belay
}

/// What a step prints for these arguments.
fn printed(step: &str, arguments: &[&str]) -> Value {
    let mut command = Command::new(belay());
    command
        .arg(step)
        .args(arguments)
        .args(["--home=${home}", "--namespace=${namespace}", "--print-rbac"])
        .env_clear();
    let output = command.output().unwrap();
    assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Adds the rules that are not there yet.
fn add(rules: &mut Value, more: &Value) {
    match (rules, more) {
        (Value::Object(rules), Value::Object(more)) => {
            for (key, more) in more {
                match rules.get_mut(key) {
                    Some(rules) => add(rules, more),
                    None => drop(rules.insert(key.clone(), more.clone())),
                }
            }
        }
        (Value::Array(rules), Value::Array(more)) => {
            for rule in more {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
        (rules, more) => assert_eq!(rules, more),
    }
}

/// `BELAY_WRITE_RBAC=1` writes the files instead of comparing them.
#[test]
fn the_rules_in_the_chart_are_what_the_steps_print() {
    for (step, calls) in PRINTED {
        let mut all = printed(step, calls[0]);
        for arguments in &calls[1..] {
            add(&mut all, &printed(step, arguments));
        }
        let file = shipped("event-mesh").join("rbac").join(format!("{step}.json"));
        if env::var_os("BELAY_WRITE_RBAC").is_some() {
            fs::write(&file, format!("{all:#}\n")).unwrap();
        }
        let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(compare(step, &needed(&stored), &needed(&all)), Vec::<String>::new());
    }
}

/// The same arguments and environment that the Job will use, so that any values are covered.
#[test]
fn every_step_is_granted_exactly_what_it_needs() {
    let usual: &[&str] = &[];
    let unusual = [
        "--set=home=kyma-system,integrationNamespace=integration,legacyNamespace=old-bus",
        "--set=steps.create-missing-sources.sourceController=sources/manager",
        "--set=subscriptionController=old-bus/controller",
        "--set=eventServices.applicationOperator=Deployment/connector/operator",
        "--set=userNamespaces.only={shop,lab},userNamespaces.exclude={lab}",
        "--set=dropUndeliverable=true,steps.retire-subscriptions.ownerKinds={functions.kubeless.io,deployments.apps,configmaps}",
        "--set=steps.retire-subscriptions.event=pre-upgrade,steps.retire-subscriptions.acceptEventLoss=true",
        "--set=steps.recreate-service-instances.recreate=all",
        "--set=steps.recreate-service-instances.ownerKinds={widgets.example.com,configmaps}",
        "--set=steps.purge-legacy.enabled=true",
        "--set-json=steps.scale-down-legacy.workloads=[{\"kind\":\"StatefulSet\",\"namespace\":\"bus\",\"name\":\"queue\"},\
         {\"kind\":\"Deployment\",\"name\":\"a\"},{\"kind\":\"ReplicaSet\",\"namespace\":\"bus\",\"name\":\"b\"}]",
        "--set=steps.scale-down-legacy.refuseWhile[0]=gadgets.example.com",
        "--set=steps.scale-down-legacy.releaseFinalizers={widgets.example.com=a/b,gadgets.example.com=c}",
    ];
    let purge = ["--set=only={purge-legacy,verify-event-services},eventServices.images={event-service:2}"];
    for helm in Helm::both() {
        for (values, steps) in [(usual, 6), (&unusual, 7), (&purge, 2)] {
            let manifests = helm.template(&shipped("event-mesh"), "mesh", values).unwrap();
            let runs = runs(&manifests);
            assert_eq!(runs.len(), steps);
            for run in runs {
                let needed = needed(&ask(&belay(), &run).unwrap());
                let granted = granted(&manifests, &run.namespace, &run.account);
                assert_eq!(compare(&run.job, &granted, &needed), Vec::<String>::new());
            }
        }
    }
}
