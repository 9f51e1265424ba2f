//! Pods that are killed, drained, deleted or overtaken half-way.

use helm_tests::{
    ground::{APPLICATIONS, Ground, INTEGRATION, SOURCES, container, on_an_old_cluster, pod_name},
    lock::Witness,
    node,
    programs::kubectl,
};
use k8s_openapi::api::core::v1::Pod;

// What becomes of a pod is between the step and the Job controller: Helm only waits, so each once is enough. A second upgrade is
// Helm's doing.
under_helm!(
    core {
        helm_3: [
            a_step_that_is_drained_is_taken_up_and_no_retry_is_used_up,
            a_second_upgrade_while_the_first_one_still_runs_never_makes_two_writers,
        ],
        helm_4: [a_step_that_is_killed_is_taken_up_by_the_next_pod]
    }
    more {
        helm_3: [a_step_whose_pod_is_deleted_is_taken_up_and_that_is_no_death],
        helm_4: [
            a_second_upgrade_while_the_first_one_still_runs_never_makes_two_writers,
            a_step_that_dies_three_times_is_undone,
        ]
    }
);

/// Only the step that is interrupted, with time enough for the Job controller, which waits 10, 20 and 40 s between the
/// pods where nobody has shortened that, and for a machine that is slow.
const ALONE: [&str; 4] = [
    "--set",
    "only={create-missing-sources},steps.create-missing-sources.readyWithin=600",
    "--set",
    "steps.create-missing-sources.deadline=600,steps.create-missing-sources.backstop=700",
];

/// What a pod says that finds the journal of one before it.
const RESUMES: &str = "resuming: an earlier attempt";

fn kill(pod: &Pod) {
    let (id, _) = container(pod).expect("the pod has a container");
    node::signal(&id, "KILL");
}

/// All sources are there and Ready, made by one run, and the journal is closed after so many deaths.
async fn all_is_done(ground: &Ground, deaths: u64) {
    ground.sources_must_be(&[&APPLICATIONS[..], &["slow"]].concat()).await;
    let journals = ground.status(SOURCES)["journals"].clone();
    let journals = journals.as_array().unwrap();
    assert_eq!(journals.len(), 1, "journals: {journals:?}");
    assert_eq!((&journals[0]["status"], &journals[0]["deaths"]), (&"done".into(), &deaths.into()));
    let sources = kubectl(&[
        "get",
        "httpsources",
        "--namespace",
        INTEGRATION,
        "--output",
        r"jsonpath={.items[*].metadata.annotations.belay\.dev/run}",
    ]);
    let mark = format!("{SOURCES}/{}", journals[0]["run"].as_str().unwrap());
    let marks = sources.or_panic().stdout;
    assert!(marks.split(' ').all(|made_by| made_by == mark), "made by {marks}, not all by {mark}");
}

fn a_step_that_is_killed_is_taken_up_by_the_next_pod(helm: u8) {
    if !node::is_here() {
        return;
    }
    on_an_old_cluster(helm, async |ground| {
        ground.add_broken_application("slow").await;
        let helm = ground.event_mesh_meanwhile("install", &ALONE);
        let pod = ground.half_way("slow").await;
        kill(&pod);
        ground.next_pod(&pod, RESUMES).await;
        ground.heal();
        let said = helm.said().or_panic();
        said.must_say("took the lock over from pod/kyma-system/");
        said.must_say(RESUMES);
        said.must_say("create-missing-sources: done: 4 created");
        all_is_done(&ground, 1).await;
    });
}

fn a_step_that_is_drained_is_taken_up_and_no_retry_is_used_up(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        ground.add_broken_application("slow").await;
        let helm = ground.event_mesh_meanwhile("install", &ALONE);
        let pod = ground.half_way("slow").await;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).expect("the pod is on a node");
        let drain =
            ["drain", &node, "--pod-selector", &format!("belay.dev/step={SOURCES}"), "--timeout", "180s"];
        let drained = kubectl(&drain);
        kubectl(&["uncordon", &node]).or_panic();
        drained.or_panic();
        ground.next_pod(&pod, RESUMES).await;
        ground.heal();
        let said = helm.said().or_panic();
        said.must_say("create-missing-sources: done: 4 created");
        let status = ground.job(SOURCES).await.status.unwrap();
        assert_eq!(status.failed.unwrap_or_default(), 0, "retries used up by an eviction");
        all_is_done(&ground, 0).await;
    });
}

fn a_step_whose_pod_is_deleted_is_taken_up_and_that_is_no_death(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        ground.add_broken_application("slow").await;
        let helm = ground.event_mesh_meanwhile("install", &ALONE);
        let pod = ground.half_way("slow").await;
        let log = ground.follow(&pod).await;
        ground.delete_pod(&pod).await;
        let log = log.await.unwrap();
        assert!(
            log.contains("create-missing-sources: told to stop: the next run goes on from here"),
            "{log}"
        );
        ground.next_pod(&pod, RESUMES).await;
        ground.heal();
        let said = helm.said().or_panic();
        said.must_say(RESUMES);
        said.must_say("create-missing-sources: done: 4 created");
        all_is_done(&ground, 0).await;
    });
}

fn a_second_upgrade_while_the_first_one_still_runs_never_makes_two_writers(helm: u8) {
    if !node::is_here() {
        return;
    }
    on_an_old_cluster(helm, async |ground| {
        ground.add_broken_application("slow").await;
        let witness = Witness::begin(&ground.client);
        // It counts for each hook: the Job is reached, however slow the machine is.
        ground.event_mesh("install", &[&ALONE[..], &["--timeout", "8s"]].concat()).failed();
        let first = ground.half_way("slow").await;
        let log = ground.follow(&first).await;
        // The first pod hangs: it hears that it is to stop, but cannot act on it before it is let go.
        let (id, _) = container(&first).unwrap();
        node::signal(&id, "STOP");
        let upgrade = ground.event_mesh_meanwhile("upgrade", &ALONE);
        let second = ground.next_pod(&first, "waiting for the lock Lease/kyma-system/belay-event-mesh").await;
        node::signal(&id, "CONT");
        let last_words = log.await.unwrap();
        let last_line = last_words.lines().last().unwrap_or_default();
        assert!(
            last_line.contains("told to stop") || last_line.contains("stopped at once"),
            "the first pod did not stop:\n{last_words}"
        );
        ground.next_pod(&first, RESUMES).await;
        ground.heal();
        let said = upgrade.said().or_panic();
        said.must_say(RESUMES);
        said.must_say("create-missing-sources: done: 4 created");
        let holders = witness.end();
        assert_eq!(holders.len(), 2, "the lock was held by {holders:?}");
        assert!(holders[0].contains(pod_name(&first)) && holders[1].contains(pod_name(&second)));
        ground.sources_must_be(&[&APPLICATIONS[..], &["slow"]].concat()).await;
    });
}

fn a_step_that_dies_three_times_is_undone(helm: u8) {
    if !node::is_here() {
        return;
    }
    on_an_old_cluster(helm, async |ground| {
        ground.add_broken_application("slow").await;
        let helm = ground.event_mesh_meanwhile("install", &ALONE);
        let mut pod = ground.half_way("slow").await;
        for death in 1..=3 {
            if death > 1 {
                pod = ground.next_pod(&pod, RESUMES).await;
            }
            kill(&pod);
        }
        let said = helm.said().failed();
        said.must_say("undoing: 3 attempts died half-way");
        said.must_say(
            "create-missing-sources: failed: 3 attempts died half-way. Everything is as it was before",
        );
        assert_eq!(ground.sources().await, []);
        assert_eq!(ground.status(SOURCES)["journals"][0]["status"], "undone");
    });
}
