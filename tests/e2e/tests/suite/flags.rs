//! Command lines, good and bad. No cluster is asked.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, Output},
};

use e2e::world::program;

fn belay() -> Command {
    let mut command = Command::new(program("BELAY_BIN", "belay"));
    command.env_clear().env("HOME", "/nonexistent");
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

#[test]
fn bad_usage_ends_with_2_and_a_sentence() {
    let sources = "create-missing-sources";
    let down = "scale-down-legacy";
    for (words, says) in [
        (&[sources, "--no-such-flag"][..], "unexpected argument '--no-such-flag'"),
        (&[sources, "--deadline", "soon"], "'soon' is not a time: write 90, 90s, 3m or 1h"),
        (&[sources, "--undo-reserve", "1d"], "'1d' is not a time"),
        (&[sources, "--exclude", "commerce"], "write KIND/NAME or KIND/NAMESPACE/NAME"),
        (&[sources, "--concurrency", "0"], "--concurrency"),
        (&[sources, "--on-failure", "never"], "[possible values: step, chain]"),
        (&[sources, "--source-controller", "nobody"], "write NAMESPACE/NAME"),
        (&[sources, "-o", "yaml"], "[possible values: text, json]"),
        (&[sources, "--home", "a/b"], "--home 'a/b' is not the name of a namespace"),
        (&[sources, "--namespace", ""], "--namespace '' is not the name of a namespace"),
        (&[sources, "--integration-namespace", "a b"], "'a b' is not the name of a namespace"),
        (&[sources, "--source-controller", "a/b?c"], "'b?c' is not the name of an object"),
        (&[down, "--workload", "Deployment/a/b c"], "'b c' is not the name of an object"),
        (
            &[down, "--workload", "Deployment/a/b", "--refuse-while", "x y.z"],
            "'x y.z' does not name a resource",
        ),
        (&[down], "--workload <KIND/NAMESPACE/NAME>"),
        (&[down, "--workload", "publisher"], "write KIND/NAMESPACE/NAME"),
        (&[down, "--workload", "DaemonSet/a/b"], "only Deployment, StatefulSet and ReplicaSet can"),
        (&[down, "--workload", "Deployment/a/b", "--refuse-while", "subscriptions"], "write RESOURCE.GROUP"),
        (&["no-such-step"], "unrecognized subcommand 'no-such-step'"),
        (&[], "say what to do"),
        (&["restore"], "--step <NAME>"),
        (&["status", "-o", "yaml"], "[possible values: table, json]"),
        (&["status", "--family", "nonsense"], "there is no family 'nonsense': the families are event-mesh"),
        (
            &["report", "no-such-step"],
            "there is no step 'no-such-step': the steps are create-missing-sources",
        ),
        (&["restore", "--step", "no-such-step"], "there is no step 'no-such-step'"),
        (&["accept", "--step", "no-such-step"], "there is no step 'no-such-step'"),
        (&["unlock", "--family", "nonsense"], "there is no family 'nonsense'"),
    ] {
        let output = belay().args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output));
        assert!(text(&output).contains(says), "{words:?} does not say {says:?}: {}", text(&output));
    }
}

#[test]
fn no_cluster_to_talk_to_is_bad_configuration() {
    let sources = "create-missing-sources";
    for (words, says) in [
        (&[sources][..], "no cluster: give --kubeconfig"),
        (&[sources, "--kubeconfig", "/nonexistent/config"], "cannot read the kubeconfig /nonexistent/config"),
        (&[sources, "--kubeconfig", "/dev/null"], "the kubeconfig /dev/null does not describe a cluster"),
        (&["status"], "no cluster: give --kubeconfig"),
        (
            &["restore", "--step", sources, "--kubeconfig", "/nonexistent/config"],
            "cannot read the kubeconfig",
        ),
    ] {
        let output = belay().args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", text(&output));
        assert!(text(&output).contains(says), "{words:?} does not say {says:?}: {}", text(&output));
    }
}

#[test]
fn a_flag_may_come_from_the_environment() {
    let output = belay().arg("create-missing-sources").env("BELAY_DEADLINE", "soon").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("'soon' is not a time"), "{}", text(&output));
}

#[test]
fn a_switch_of_a_step_is_set_by_one_and_yes_as_well_as_by_true() {
    let workload = ["--workload", "Deployment/a/b"];
    for (step, flags, variable) in [
        ("recreate-triggers", &[][..], "BELAY_DROP_UNDELIVERABLE"),
        ("retire-subscriptions", &[], "BELAY_DROP_UNDELIVERABLE"),
        ("retire-subscriptions", &[], "BELAY_ACCEPT_EVENT_LOSS"),
        ("scale-down-legacy", &workload, "BELAY_MUST_EXIST"),
    ] {
        let with = |value: &str| {
            belay().arg(step).args(flags).arg("--print-rbac").env(variable, value).output().unwrap()
        };
        for value in ["1", "yes", "true", "0", "no", "false"] {
            let output = with(value);
            assert!(output.status.success(), "{step} {variable}={value}: {}", text(&output));
        }
        let output = with("perhaps");
        assert_eq!(output.status.code(), Some(2), "{step} {variable}: {}", text(&output));
    }
}

#[test]
fn every_step_is_listed_and_runs_under_its_own_name_too() {
    let listed = belay().arg("--list").output().unwrap();
    assert!(listed.status.success());
    for line in text(&listed).lines() {
        let step = line.split_whitespace().next().unwrap();
        for command in
            [belay().args([step, "--version"]), belay().arg0(Path::new("/").join(step)).arg("--version")]
        {
            let output = command.output().unwrap();
            assert!(output.status.success() && text(&output).starts_with(step), "{}", text(&output));
        }
    }
    let lines: Vec<String> =
        text(&listed).lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        lines,
        [
            "create-missing-sources event-mesh Creates an HTTPSource for each Application that has none, and waits until it is Ready",
            "recreate-service-instances event-mesh Recreates ServiceInstances so that each namespace is linked to the mesh",
            "recreate-triggers event-mesh Creates a Trigger for each Subscription of the old event bus, and waits until it is Ready",
            "verify-event-services event-mesh Checks that every Application's event-service was updated and works",
            "retire-subscriptions event-mesh Deletes the Subscriptions of the old event bus, each of which has a Trigger that is Ready",
            "scale-down-legacy event-mesh Scales the workloads of the old event bus to zero and waits until their pods are gone",
            "purge-legacy event-mesh Removes what the old event bus left behind, its CRD last",
        ]
    );
}

/// Answers every request that it cannot, and that the asker's time is up: nobody has to wait for that.
fn out_of_order() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            // As much as has come is enough: a request without a body comes at once.
            let _ = stream.read(&mut [0; 4096]);
            let answer = "HTTP/1.1 503 Service Unavailable\r\nbelay-test-deadline: now\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    address
}

#[test]
fn an_api_server_that_never_answers_is_a_refusal_and_not_an_empty_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let out_of_order = out_of_order();
    for (number, (words, server, says)) in [
        (
            &["create-missing-sources", "--deadline", "3"][..],
            "127.0.0.1:1",
            ["nothing was written", "refused"],
        ),
        (&["status"], &out_of_order, ["this cluster could not be looked at", "503"]),
        (&["status", "--home", "anywhere"], &out_of_order, ["this cluster could not be looked at", "503"]),
    ]
    .into_iter()
    .enumerate()
    {
        let kubeconfig = folder.path().join(number.to_string());
        let there = serde_json::json!({
            "clusters": [{"name": "a", "cluster": {"server": format!("http://{server}")}}], "users": [],
            "contexts": [{"name": "a", "context": {"cluster": "a"}}], "current-context": "a",
        });
        std::fs::write(&kubeconfig, there.to_string()).unwrap();
        // What somebody set counts more than the pod in which it happens to run.
        let output = belay()
            .args(words)
            .env("KUBECONFIG", &kubeconfig)
            .env("KUBERNETES_SERVICE_HOST", "192.0.2.1")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        for says in says {
            assert!(text(&output).contains(says), "{words:?} does not say {says:?}: {}", text(&output));
        }
    }
}
