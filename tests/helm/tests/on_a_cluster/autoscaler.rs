//! A workload with a `HorizontalPodAutoscaler`.

use helm_tests::{
    ground::{RELEASE, SCALE_DOWN, SOON, SYSTEM, on_an_old_cluster},
    programs::kubectl,
};
use standins::{cluster::wait_until_told, seed::EVENT_BUS};

// Once is enough: no Helm has a part in it.
under_helm!(more { helm_3: [], helm_4: [an_autoscaler_pauses_at_zero_and_resumes_after_restore] });

fn an_autoscaler_pauses_at_zero_and_resumes_after_restore(helm: u8) {
    on_an_old_cluster(helm, async |ground| {
        let (deployment, _) = EVENT_BUS[0];
        let there = ["--namespace", SYSTEM];
        kubectl(
            &[&["autoscale", "deployment", deployment, "--min=1", "--max=3", "--cpu=50%"], &there[..]]
                .concat(),
        )
        .or_panic();
        kubectl(&[&["label", "hpa", deployment, "belay-tests=yes"], &there[..]].concat()).or_panic();
        let why = async || {
            let path = r#"jsonpath={.status.conditions[?(@.type=="ScalingActive")].reason}"#;
            let said = kubectl(&[&["get", "hpa", deployment, "--output", path], &there[..]].concat());
            said.or_panic().stdout
        };
        ground.event_mesh("install", &[]).or_panic();
        wait_until_told("the autoscaler pauses", SOON, async || Ok(why().await == "ScalingDisabled"))
            .await
            .unwrap();
        ground.event_bus_must_have([0, 0]).await;

        let log = ground.run_by_hand(&format!("{RELEASE}-{SCALE_DOWN}-restore"), "undo").await;
        assert!(log.contains("2 changes were taken back"), "{log}");
        ground.event_bus_must_have([2, 1]).await;
        // Without metrics it cannot scale, but it tries again.
        wait_until_told("the autoscaler resumes", SOON, async || Ok(why().await != "ScalingDisabled"))
            .await
            .unwrap();
    });
}
