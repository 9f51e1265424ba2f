//! Whose a field is, after the steps have changed it: the charts that render these objects must not notice.

use helm_tests::{
    ground::{APPLICATIONS, INTEGRATION, SYSTEM, on_an_old_cluster, test_chart},
    programs::{Helm, kubectl},
};

under_helm!(
    core {
        helm_3: [a_workload_that_was_scaled_down_is_upgraded_and_rolled_back_by_its_own_chart],
        helm_4: [a_source_that_the_step_made_is_taken_over_by_its_applications_own_release]
    }
    more {
        helm_3: [a_source_that_the_step_made_is_taken_over_by_its_applications_own_release],
        helm_4: [a_workload_that_was_scaled_down_is_upgraded_and_rolled_back_by_its_own_chart]
    }
);

const BUS: &str = "legacy-bus";

/// Scales down that workload and nothing else.
const SCALE_THE_BUS: [&str; 4] = [
    "--set",
    "only={scale-down-legacy}",
    "--set-json",
    r#"steps.scale-down-legacy.workloads=[{"kind":"Deployment","name":"legacy-bus"}]"#,
];

fn a_workload_that_was_scaled_down_is_upgraded_and_rolled_back_by_its_own_chart(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        // Helm 4 applies on the server, where every field has an owner; Helm 3 patches and asks nobody.
        let four = Helm::of(4);
        let chart = test_chart("bus");
        let there = ["--namespace", SYSTEM];
        four.run(&[&["install", BUS, &chart, "--wait"], &there[..]].concat()).or_panic();
        ground.event_mesh("install", &SCALE_THE_BUS).or_panic().must_say("scale-down-legacy: done: 1 scaled");
        assert_eq!(ground.replicas(BUS).await, 0);
        let path = "jsonpath={.metadata.managedFields[*].manager}";
        let get = ["get", "deployment", BUS, "--show-managed-fields", "--output", path];
        let managers = kubectl(&[&get[..], &there].concat());
        assert!(!managers.or_panic().stdout.contains("belay"), "the step owns fields of the chart's object");

        // The chart puts its replicas back, and the next run of the step says so and scales down again.
        let recoloured = [&["upgrade", BUS, &chart, "--set", "colour=blue"], &there[..]].concat();
        four.run(&recoloured).or_panic();
        assert_eq!(ground.replicas(BUS).await, 2);
        let said = ground.event_mesh("upgrade", &SCALE_THE_BUS).or_panic();
        said.must_say("has 2 replicas again: it is scaled down once more");
        assert_eq!(ground.replicas(BUS).await, 0);

        four.run(&[&["rollback", BUS, "1"], &there[..]].concat()).or_panic();
        assert_eq!(ground.replicas(BUS).await, 2);
        ground.event_mesh("upgrade", &SCALE_THE_BUS).or_panic();
        // The Helm under test does the same once more, on what the other one has left.
        ground.helm.run(&recoloured).or_panic();
        ground.helm.run(&[&["rollback", BUS, "1"], &there[..]].concat()).or_panic();
    });
}

fn a_source_that_the_step_made_is_taken_over_by_its_applications_own_release(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        let alone = ["--set", "only={create-missing-sources}"];
        ground.event_mesh("install", &alone).or_panic();
        let (application, chart) = (APPLICATIONS[0], test_chart("application"));
        let there = ["--namespace", INTEGRATION];
        ground.helm.run(&[&["install", application, &chart], &there[..]].concat()).or_panic();
        ground.helm.run(&[&["upgrade", application, &chart], &there[..]].concat()).or_panic();
        ground.sources_must_be(&APPLICATIONS).await;
        ground.event_mesh("upgrade", &alone).or_panic().must_say("create-missing-sources: nothing to do");
        ground.helm.run(&[&["uninstall", application], &there[..]].concat()).or_panic();
        ground.sources_must_be(&APPLICATIONS[1..]).await;
    });
}
