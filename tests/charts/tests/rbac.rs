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

/// How the files in charts/event-mesh/rbac are made: the step is told placeholders, which the chart fills from its values.
const PRINTED: [(&str, &[&str]); 2] = [
    (
        "create-missing-sources",
        &[
            "--integration-namespace=${integrationNamespace}",
            "--source-controller=${sourceControllerNamespace}/${sourceControllerName}",
        ],
    ),
    (
        "scale-down-legacy",
        &[
            "--workload=Deployment/${deployment-namespace}/${deployment-name}",
            "--workload=ReplicaSet/${replicaset-namespace}/${replicaset-name}",
            "--workload=StatefulSet/${statefulset-namespace}/${statefulset-name}",
            "--refuse-while=${refuseWhile-resource}.${refuseWhile-api.group}",
        ],
    ),
];

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

/// `BELAY_WRITE_RBAC=1` writes the files instead of comparing them.
#[test]
fn the_rules_in_the_chart_are_what_the_steps_print() {
    for (step, arguments) in PRINTED {
        let mut command = Command::new(belay());
        command
            .arg(step)
            .args(arguments)
            .args(["--home=${home}", "--namespace=${namespace}", "--print-rbac"])
            .env_clear();
        let output = command.output().unwrap();
        assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
        let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
        let file = shipped("event-mesh").join("rbac").join(format!("{step}.json"));
        if env::var_os("BELAY_WRITE_RBAC").is_some() {
            fs::write(&file, format!("{printed:#}\n")).unwrap();
        }
        let stored: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(compare(step, &needed(&stored), &needed(&printed)), Vec::<String>::new());
    }
}

/// The same arguments and environment that the Job will use, so that any values are covered.
#[test]
fn every_step_is_granted_exactly_what_it_needs() {
    let usual: &[&str] = &[];
    let unusual = [
        "--set=home=kyma-system",
        "--set=steps.create-missing-sources.integrationNamespace=integration",
        "--set=steps.create-missing-sources.sourceController=sources/manager",
        "--set-json=steps.scale-down-legacy.workloads=[{\"kind\":\"StatefulSet\",\"namespace\":\"bus\",\"name\":\"queue\"},\
         {\"kind\":\"Deployment\",\"name\":\"a\"},{\"kind\":\"ReplicaSet\",\"namespace\":\"bus\",\"name\":\"b\"}]",
        "--set=steps.scale-down-legacy.refuseWhile[0]=gadgets.example.com",
    ];
    for helm in Helm::both() {
        for values in [usual, &unusual] {
            let manifests = helm.template(&shipped("event-mesh"), "mesh", values).unwrap();
            let runs = runs(&manifests);
            assert_eq!(runs.len(), PRINTED.len());
            for run in runs {
                let needed = needed(&ask(&belay(), &run).unwrap());
                let granted = granted(&manifests, &run.namespace, &run.account);
                assert_eq!(compare(&run.job, &granted, &needed), Vec::<String>::new());
            }
        }
    }
}
