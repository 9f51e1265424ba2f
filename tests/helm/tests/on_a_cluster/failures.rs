//! Steps that fail, and what is left of them.

use helm_tests::{
    ground::{APPLICATIONS, Ground, RELEASE, SCALE_DOWN, SOON, SOURCES, SYSTEM, on_an_old_cluster},
    programs::kubectl,
    state::{State, must_be_same, state},
};
use standins::{cluster::wait_until, fixtures::IMAGE, seed::EVENT_BUS};

under_helm!(
    core {
        helm_3: [an_upgrade_that_fails_says_why_leaves_every_object_as_it_was_and_is_rerun_by_hand],
        helm_4: [a_failed_upgrade_can_be_rolled_back_by_helm]
    }
    more {
        helm_3: [
            a_failed_upgrade_can_be_rolled_back_by_helm,
            an_install_that_fails_can_be_taken_back_by_helm,
            a_pod_that_does_not_end_fails_the_second_step_and_the_workloads_come_back,
        ],
        helm_4: [
            an_upgrade_that_fails_says_why_leaves_every_object_as_it_was_and_is_rerun_by_hand,
            an_install_that_fails_can_be_taken_back_by_helm,
            a_pod_that_does_not_end_fails_the_second_step_and_the_workloads_come_back,
        ]
    }
);

/// Only the step that fails; the other one would cost time.
const ALONE: [&str; 2] = ["--set", "only={create-missing-sources}"];

/// That step, with a wait that is over soon.
const SHORT_WAIT: [&str; 2] =
    ["--set", "only={create-missing-sources},steps.create-missing-sources.readyWithin=5"];

/// What the step says when the source of the Application `broken` does not become Ready. Without the quotes that
/// Helm 4 would escape.
const VERDICT: &str = "create-missing-sources: failed: waited 5 s for HTTPSource/kyma-integration/broken and its Channel \
                       Ready: HTTPSource/kyma-integration/broken Ready is False: ServiceNotReady, The adapter Service is \
                       not yet ready";
const RESTORED: &str = "Everything is as it was before: 2 changes were taken back";

/// One more Application that is well, and one whose source never becomes Ready.
async fn add_trouble(ground: &Ground) {
    ground.add_application("returns").await;
    ground.add_broken_application("broken").await;
}

/// What the removed sources owned is collected a moment later, by Kubernetes; then nothing may differ.
async fn all_must_be_as(ground: &Ground, before: &State) {
    wait_until("what the removed sources owned is gone too", SOON, async || {
        Ok(state(&ground.client).await.len() == before.len())
    })
    .await
    .unwrap();
    must_be_same(before, &state(&ground.client).await);
}

fn an_upgrade_that_fails_says_why_leaves_every_object_as_it_was_and_is_rerun_by_hand(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        ground.event_mesh("install", &ALONE).or_panic();
        add_trouble(&ground).await;
        let before = state(&ground.client).await;
        let said = ground.event_mesh("upgrade", &SHORT_WAIT).failed();
        said.must_say(VERDICT);
        said.must_say(RESTORED);
        said.must_say(&format!(
            "run this step alone: kubectl create job --namespace {SYSTEM} --from=cronjob/{RELEASE}-{SOURCES} again-"
        ));
        assert_eq!(ground.helm.revision(RELEASE, SYSTEM), ("failed".into(), 2));
        all_must_be_as(&ground, &before).await;
        assert_eq!(ground.job(SOURCES).await.status.unwrap().failed, Some(1), "a verdict is no crash");

        ground.heal();
        let log = ground.run_by_hand(&format!("{RELEASE}-{SOURCES}"), "again").await;
        assert!(log.contains("create-missing-sources: done: 2 created"), "{log}");
        ground.sources_must_be(&[&APPLICATIONS[..], &["broken", "returns"]].concat()).await;
        let log = ground.run_by_hand(&format!("{RELEASE}-status"), "look").await;
        assert!(log.contains("no open journals"), "{log}");
    });
}

fn a_failed_upgrade_can_be_rolled_back_by_helm(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        ground.event_mesh("install", &ALONE).or_panic();
        add_trouble(&ground).await;
        let before = state(&ground.client).await;
        let flag = [ground.helm.rollback_on_failure()];
        let said = ground.event_mesh("upgrade", &[&SHORT_WAIT[..], &flag].concat()).failed();
        said.must_say(VERDICT);
        assert_eq!(ground.helm.revision(RELEASE, SYSTEM), ("deployed".into(), 3));
        all_must_be_as(&ground, &before).await;

        ground.heal();
        let said = ground.event_mesh("upgrade", &ALONE).or_panic();
        said.must_say("create-missing-sources: done: 2 created");
    });
}

fn an_install_that_fails_can_be_taken_back_by_helm(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        ground.add_broken_application("broken").await;
        let flag = [ground.helm.rollback_on_failure()];
        let said = ground.event_mesh("install", &[&SHORT_WAIT[..], &flag].concat()).failed();
        said.must_say(VERDICT);
        assert_eq!(ground.remains(), [""; 0]);
        assert_eq!(ground.sources().await, []);
        ground.event_bus_must_have([2, 1]).await;
        assert_eq!(
            ground.status(SOURCES)["journals"][0]["status"],
            "undone",
            "what was done outlives the release"
        );
    });
}

fn a_pod_that_does_not_end_fails_the_second_step_and_the_workloads_come_back(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        // A pod of the Event Bus that no scheduler knows: it waits for ever.
        let (deployment, _) = EVENT_BUS[1];
        let spec = r#"{"spec":{"schedulerName":"nobody"}}"#;
        let label = format!("app={deployment},belay-tests=yes");
        let run = [
            "run",
            "stuck",
            "--image",
            IMAGE,
            "--labels",
            &label,
            "--overrides",
            spec,
            "--namespace",
            SYSTEM,
        ];
        kubectl(&run).or_panic();
        let before = state(&ground.client).await;
        let short = "steps.scale-down-legacy.deadline=20,steps.scale-down-legacy.undoReserve=60";
        let said = ground.event_mesh("install", &["--set", short]).failed();
        said.must_say("scale-down-legacy: failed: ");
        said.must_say("Pod/kyma-system/stuck still exist");
        said.must_say("Everything is as it was before: 2 changes were taken back");
        // The first step has ended well before, and stays.
        ground.sources_must_be(&APPLICATIONS).await;
        let mut after = state(&ground.client).await;
        after.retain(|object, _| object.starts_with("Deployment/"));
        let deployments = before.into_iter().filter(|(object, _)| object.starts_with("Deployment/"));
        must_be_same(&deployments.collect(), &after);
        assert_eq!(ground.status(SCALE_DOWN)["journals"][0]["status"], "undone");
    });
}
