//! A release from its install to its end.

use helm_tests::{
    ground::{
        APPLICATIONS, ELSEWHERE, Ground, RELEASE, SCALE_DOWN, SOON, SOURCES, STEPS, SYSTEM,
        on_a_fresh_cluster, on_an_old_cluster,
    },
    programs::{belay, kubectl},
    state::{must_be_same, state},
};
use k8s_openapi::api::core::v1::Pod;
use standins::cluster::wait_until_told;

under_helm!(
    core {
        helm_3: [
            a_fresh_cluster_has_nothing_to_migrate_and_installs_without_failing,
            uninstall_keeps_an_open_journal_with_what_it_needs,
        ],
        helm_4: [an_old_cluster_is_migrated_once_and_upgrade_rollback_and_uninstall_change_nothing_more]
    }
    more {
        helm_3: [
            an_old_cluster_is_migrated_once_and_upgrade_rollback_and_uninstall_change_nothing_more,
            uninstall_beside_a_live_run_removes_nothing_and_the_run_goes_on,
        ],
        helm_4: [
            a_fresh_cluster_has_nothing_to_migrate_and_installs_without_failing,
            uninstall_beside_a_live_run_removes_nothing_and_the_run_goes_on,
            uninstall_keeps_an_open_journal_with_what_it_needs,
        ]
    }
);

fn an_old_cluster_is_migrated_once_and_upgrade_rollback_and_uninstall_change_nothing_more(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        let said = ground.event_mesh("install", &[]).or_panic();
        said.must_say("create-missing-sources: done: 3 created");
        said.must_say("scale-down-legacy: done: 2 scaled");
        ground.sources_must_be(&APPLICATIONS).await;
        ground.event_bus_must_have([0, 0]).await;

        let migrated = state(&ground.client).await;
        let said = ground.event_mesh("upgrade", &["--set", "logFormat=json"]).or_panic();
        said.must_say("create-missing-sources: nothing to do");
        said.must_say("scale-down-legacy: nothing to do");
        let back = ["rollback", RELEASE, "1", "--namespace", SYSTEM, "--timeout", "5m"];
        ground.helm.run(&back).or_panic();
        let said = ground.event_mesh("upgrade", &[]).or_panic();
        said.must_say("create-missing-sources: nothing to do");
        assert_eq!(ground.helm.revision(RELEASE, SYSTEM), ("deployed".into(), 4));

        ground.helm.run(&["uninstall", RELEASE, "--namespace", SYSTEM, "--timeout", "5m"]).or_panic();
        assert_eq!(ground.remains(), [""; 0]);
        assert!(!ground.has_lease(), "the Lease is still there");
        let left = ground.journals_and_reports();
        for kept in [
            format!("configmap/belay-report-{SOURCES}"),
            format!("configmap/belay-report-{SCALE_DOWN}"),
            format!("secret/belay-{SOURCES}"),
            format!("secret/belay-{SCALE_DOWN}"),
        ] {
            assert!(left.contains(&kept), "{kept} is not among {left:?}");
        }
        must_be_same(&migrated, &state(&ground.client).await);
    });
}

fn a_fresh_cluster_has_nothing_to_migrate_and_installs_without_failing(helm: u8) {
    on_a_fresh_cluster(helm, async |ground| {
        // In a namespace that an old cluster knows nothing of, while the one that it would have is not there, and in that.
        for namespace in [ELSEWHERE, SYSTEM] {
            let all = STEPS.join(",");
            let there = ["--namespace", namespace, "--create-namespace", "--set", &format!("only={{{all}}}")];
            let said = ground.event_mesh("install", &there).or_panic();
            for step in STEPS {
                said.must_say(&format!("{step}: nothing to"));
            }
            ground.helm.run(&["uninstall", RELEASE, "--namespace", namespace]).or_panic();
            assert_eq!(ground.remains(), [""; 0]);
        }
        // With a home that is not there: the chart can grant no rights in it, and nobody needs any.
        let values = format!("home=nowhere,only={{{SOURCES}}}");
        let said = ground.event_mesh("install", &["--namespace", ELSEWHERE, "--set", &values]).or_panic();
        said.must_say(&format!("{SOURCES}: nothing to"));
        ground.helm.run(&["uninstall", RELEASE, "--namespace", ELSEWHERE]).or_panic();
        assert_eq!(ground.remains(), [""; 0]);
    });
}

/// What removes by hand what `helm uninstall` could not.
const CLEANUP: [&str; 9] =
    ["cleanup", "--namespace", SYSTEM, "--release", RELEASE, "--family", "event-mesh", "--home", SYSTEM];

/// Time for the step to be at work still when all that Helm does meanwhile has been done, on a slow machine.
const MUCH_TIME: &str = "steps.create-missing-sources.readyWithin=600,steps.create-missing-sources.deadline=600,\
                         steps.create-missing-sources.backstop=700";

/// Helm is interrupted while the step still waits for a source.
async fn left_at_work(ground: &Ground) -> Pod {
    ground.add_broken_application("slow").await;
    let helm = ground.event_mesh_meanwhile("install", &["--set", MUCH_TIME]);
    let pod = ground.half_way("slow").await;
    let said = helm.interrupt().failed();
    assert!(!said.all.contains("create-missing-sources: failed"), "{}", said.all);
    assert_eq!(ground.helm.revision(RELEASE, SYSTEM), ("failed".into(), 1));
    pod
}

fn uninstall_beside_a_live_run_removes_nothing_and_the_run_goes_on(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        let pod = left_at_work(&ground).await;
        let uninstall = ["uninstall", RELEASE, "--namespace", SYSTEM, "--timeout", "45s"];
        ground.helm.run(&uninstall).failed().must_say("not now, nothing was removed");
        let still = ground.half_way("slow").await;
        assert_eq!(still.metadata.uid, pod.metadata.uid, "the run that was alive");
        assert_eq!(ground.status(SOURCES)["state"], "running");

        ground.heal();
        wait_until_told("the run has ended well", SOON, async || {
            Ok(ground.status(SOURCES)["state"] == "done")
        })
        .await
        .unwrap();
        ground.sources_must_be(&[&APPLICATIONS[..], &["slow"]].concat()).await;
        // Helm has forgotten the release, and the cleanup that failed with it: a person removes both. Until then the
        // cleanup's own Job may be trying again, and hold the lock.
        wait_until_told("nothing is left", SOON, async || {
            Ok(belay(&CLEANUP).succeeded && ground.remains().is_empty())
        })
        .await
        .unwrap();
        assert!(!ground.has_lease(), "the Lease is still there");
    });
}

fn uninstall_keeps_an_open_journal_with_what_it_needs(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        left_at_work(&ground).await;
        // The run ends half-way. What its journal needs to be finished is kept.
        let job = format!("{RELEASE}-{SOURCES}");
        kubectl(&["delete", "job", "--namespace", SYSTEM, &job, "--cascade=foreground"]).or_panic();
        ground.helm.run(&["uninstall", RELEASE, "--namespace", SYSTEM, "--timeout", "5m"]).or_panic();
        assert_eq!(ground.status(SOURCES)["journals"][0]["status"], "open");
        belay(&CLEANUP).or_panic().must_say("kept, because their journals are open: create-missing-sources");

        ground.heal();
        let log = ground.run_by_hand(&job, "again").await;
        assert!(log.contains("resuming: an earlier attempt"), "{log}");
        ground.sources_must_be(&[&APPLICATIONS[..], &["slow"]].concat()).await;
        assert_eq!(ground.status(SOURCES)["journals"][0]["status"], "done");
        belay(&CLEANUP).or_panic();
        wait_until_told("all objects of the release are gone", SOON, async || {
            Ok(ground.remains().is_empty())
        })
        .await
        .unwrap();
    });
}
