//! What the step decides.

use std::time::Duration;

use belay_runtime::{Chain, Finding, Move, ObjectRef, Plan, Progress, Scope, Test, kinds};
use event_mesh_kinds::{ADAPTER, APPLICATION, CHANNEL, HTTP_SOURCE, ready};
use serde_json::{Value, json};

use crate::{
    Args,
    snapshot::{Snapshot, State},
};

/// An adapter is made only after its Channel has an address, so one without a Channel has lost it. Controllers
/// recreate what they own within a second or two; after this long it stays lost.
const CHANNEL_STAYS_LOST: Duration = Duration::from_secs(5);

pub(crate) fn decide(args: &Args, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let mut chains = Vec::new();
    let mut ready_already = 0;
    for (name, application) in &snapshot.applications {
        let subject = APPLICATION.cluster_object(name);
        if application.going {
            plan.findings.push(Finding::skip(subject, "is being deleted"));
            continue;
        }
        let source = snapshot.sources.get(name);
        let object = HTTP_SOURCE.object(&args.integration_namespace, name);
        if let (Some(State::Ready | State::NotReady), Some(said)) = (source, snapshot.renamed.get(name)) {
            plan.findings.push(Finding::skip(
                object.clone(),
                format!(
                    "its spec.source is '{said}', and that becomes the source of every event: no Trigger for events of \
                     {name} gets them. It is left alone. Set spec.source to '{name}'"
                ),
            ));
        }
        if source == Some(&State::Ready) && snapshot.channels.get(name) == Some(&State::Ready) {
            ready_already += 1;
            continue;
        }
        if !is_dns_1035(name) {
            plan.findings.push(Finding::refuse(
                subject.clone(),
                format!(
                    "its name can never become that of a Knative Service, so its source can never become Ready (wanted: \
                     lower-case letters, digits and '-', a letter first, at most 63). Leave it out with --exclude {subject}"
                ),
            ));
            continue;
        }
        let mut moves = Vec::new();
        if source.is_none_or(|state| *state == State::Going) {
            if application.skips_installation {
                plan.findings.push(Finding::note(
                    subject.clone(),
                    "has spec.skipInstallation: it gets a source all the same, since its events need one",
                ));
            }
            moves.push(Move::create(object.clone(), &body(&object, name, args), &["spec.source"]));
        }
        moves.push(wait_until_ready(object, args.ready_within));
        chains.push(Chain::new(subject, moves));
    }
    if !chains.is_empty() {
        plan.findings.extend(controller_refusal(args, snapshot));
        plan.findings.extend(snapshot.namespace_missing.then(|| namespace_refusal(args)));
    }
    if ready_already > 0 {
        plan.findings
            .push(Finding::note(None, format!("{ready_already} Applications have a source that is Ready")));
    }
    plan.phases = vec![chains];
    plan
}

/// The source, marked as belonging to the Helm release of the Application, which renders the same object later:
/// without the marks that release would refuse to take it over.
fn body(object: &ObjectRef, application: &str, args: &Args) -> Value {
    let mut body = object.manifest();
    body["metadata"]["labels"] = json!({"app.kubernetes.io/managed-by": "Helm"});
    body["metadata"]["annotations"] = json!({
        "meta.helm.sh/release-name": application,
        "meta.helm.sh/release-namespace": args.integration_namespace,
    });
    body["spec"] = json!({"source": application});
    body
}

fn wait_until_ready(source: ObjectRef, within: Duration) -> Move {
    let namespace = source.namespace.clone().unwrap_or_default();
    let channel = CHANNEL.object(&namespace, &source.name);
    let adapter = ADAPTER.object(&namespace, &source.name);
    let scopes = vec![Scope::of(&source), Scope::of(&channel), Scope::of(&adapter)];
    let seen = source.clone();
    let what = format!("{source} and its Channel Ready");
    Move::wait_until(source, what, scopes, within, move |view| {
        let channel_now = view.get(&channel);
        if channel_now.is_none() && view.get(&adapter).is_some() {
            return Progress::Suspect(
                format!("{adapter} (the adapter) exists, but {channel} does not: events would be lost"),
                CHANNEL_STAYS_LOST,
            );
        }
        match (ask(&ready(), &seen, view.get(&seen).as_ref()), ask(&ready(), &channel, channel_now.as_ref()))
        {
            (None, None) => Progress::Done,
            (Some(source), None) => Progress::Pending(source),
            (None, Some(channel)) => Progress::Pending(channel),
            (Some(source), Some(channel)) => Progress::Pending(format!("{source}; {channel}")),
        }
    })
}

/// What an object still lacks, with its name.
fn ask(test: &Test, object: &ObjectRef, found: Option<&Value>) -> Option<String> {
    match test.ask(found) {
        Progress::Pending(what) => Some(format!("{object} {what}")),
        _ => None,
    }
}

fn controller_refusal(args: &Args, snapshot: &Snapshot) -> Option<Finding> {
    let (namespace, name) = &args.source_controller;
    let deployment = kinds::DEPLOYMENT.object(namespace, name);
    let why = match snapshot.controller_available {
        Some(true) => return None,
        Some(false) => "is not available",
        None => "does not exist",
    };
    Some(Finding::refuse(
        deployment,
        format!(
            "{why}, and without it no source becomes Ready. Bring it up, or name the right one with --source-controller"
        ),
    ))
}

/// A create in a namespace that does not exist is answered as in one that is going: the step would pass it by.
fn namespace_refusal(args: &Args) -> Finding {
    Finding::refuse(
        kinds::NAMESPACE.cluster_object(&args.integration_namespace),
        "does not exist, and the sources belong there. Create it, or name the right one with --integration-namespace",
    )
}

/// What Knative Serving demands of the name of a Service.
fn is_dns_1035(name: &str) -> bool {
    let bytes = name.as_bytes();
    let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-';
    (1..=63).contains(&bytes.len())
        && bytes[0].is_ascii_lowercase()
        && bytes.iter().all(inner)
        && bytes[bytes.len() - 1] != b'-'
}

#[cfg(test)]
mod tests {
    use belay_runtime::plan::{Action, Level};
    use proptest::{collection::btree_map, prelude::*};

    use super::*;
    use crate::snapshot::Application;

    fn args() -> Args {
        Args {
            integration_namespace: "kyma-integration".into(),
            source_controller: ("kyma-system".into(), "controller".into()),
            ready_within: Duration::from_secs(120),
        }
    }

    fn snapshot(applications: &[&str]) -> Snapshot {
        Snapshot {
            applications: applications
                .iter()
                .map(|&name| (name.to_owned(), Application::default()))
                .collect(),
            controller_available: Some(true),
            ..Snapshot::default()
        }
    }

    fn created(plan: &Plan) -> Vec<&str> {
        plan.writes().map(|step| step.object.name.as_str()).collect()
    }

    #[test]
    fn an_application_without_a_source_gets_one_that_its_own_release_can_take_over() {
        let plan = decide(&args(), &snapshot(&["commerce"]));
        let step = plan.writes().next().unwrap();
        let Action::Create { body, .. } = &step.action else { panic!("not a create") };
        assert_eq!(step.object.to_string(), "HTTPSource/kyma-integration/commerce");
        let body = body.value();
        assert_eq!(body["spec"], json!({"source": "commerce"}));
        assert_eq!(body["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
        assert_eq!(body["metadata"]["annotations"]["meta.helm.sh/release-name"], "commerce");
        assert_eq!(body["metadata"]["annotations"]["meta.helm.sh/release-namespace"], "kyma-integration");
    }

    #[test]
    fn a_source_that_is_not_ready_is_waited_for_and_not_changed() {
        let mut snapshot = snapshot(&["commerce"]);
        snapshot.sources.insert("commerce".into(), State::NotReady);
        let plan = decide(&args(), &snapshot);
        assert_eq!(plan.phases[0].len(), 1);
        assert!(created(&plan).is_empty());
    }

    #[test]
    fn a_ready_source_whose_channel_is_not_is_waited_for() {
        let mut snapshot = snapshot(&["commerce"]);
        snapshot.sources.insert("commerce".into(), State::Ready);
        assert_eq!(decide(&args(), &snapshot).phases[0].len(), 1);
        snapshot.channels.insert("commerce".into(), State::Ready);
        assert_eq!(decide(&args(), &snapshot).phases[0].len(), 0);
    }

    #[test]
    fn a_second_run_has_nothing_to_do_even_when_the_controller_is_gone() {
        let mut snapshot = snapshot(&["commerce"]);
        snapshot.sources.insert("commerce".into(), State::Ready);
        snapshot.channels.insert("commerce".into(), State::Ready);
        snapshot.controller_available = None;
        let plan = decide(&args(), &snapshot);
        assert_eq!((plan.writes().count(), plan.refusals().count()), (0, 0));
    }

    #[test]
    fn names_that_can_never_become_ready_are_refused_all_at_once_with_the_cure() {
        let plan = decide(&args(), &snapshot(&["good", "with.dot", "1digit", "x-"]));
        let refused: Vec<String> = plan.refusals().map(ToString::to_string).collect();
        assert_eq!(refused.len(), 3);
        assert!(refused.iter().any(|text| text.contains("--exclude Application/with.dot")), "{refused:?}");
    }

    #[test]
    fn an_excluded_bad_name_does_not_stop_the_others() {
        let mut plan = decide(&args(), &snapshot(&["good", "with.dot"]));
        plan.exclude(&["Application/with.dot".into()], Vec::new());
        assert_eq!((created(&plan), plan.refusals().count()), (vec!["good"], 0));
    }

    #[test]
    fn without_its_controller_the_step_refuses() {
        for available in [None, Some(false)] {
            let mut snapshot = snapshot(&["commerce"]);
            snapshot.controller_available = available;
            assert_eq!(decide(&args(), &snapshot).refusals().count(), 1);
        }
    }

    #[test]
    fn a_namespace_that_does_not_exist_is_refused_with_its_flag_but_not_where_nothing_is_to_be_done() {
        let mut snapshot = snapshot(&["commerce"]);
        snapshot.namespace_missing = true;
        let refused: Vec<String> = decide(&args(), &snapshot).refusals().map(ToString::to_string).collect();
        assert_eq!(refused.len(), 1);
        assert!(refused[0].starts_with("Namespace/kyma-integration: does not exist"), "{refused:?}");
        assert!(refused[0].contains("--integration-namespace"), "{refused:?}");
        snapshot.applications.clear();
        assert_eq!(decide(&args(), &snapshot).refusals().count(), 0);
    }

    #[test]
    fn an_application_that_skips_installation_is_included_with_a_note() {
        let mut snapshot = snapshot(&["commerce"]);
        snapshot.applications.get_mut("commerce").unwrap().skips_installation = true;
        let plan = decide(&args(), &snapshot);
        assert_eq!(created(&plan), ["commerce"]);
        assert_eq!(plan.findings[0].level, Level::Note);
    }

    #[test]
    fn a_source_that_gives_its_events_another_source_is_named_with_the_cure_and_not_changed() {
        let mut snapshot = snapshot(&["commerce"]);
        snapshot.renamed.insert("commerce".into(), "shop".into());
        snapshot.sources.insert("commerce".into(), State::Ready);
        snapshot.channels.insert("commerce".into(), State::Ready);
        let plan = decide(&args(), &snapshot);
        let said = plan.findings[0].to_string();
        assert!(
            said.starts_with("HTTPSource/kyma-integration/commerce: its spec.source is 'shop'"),
            "{said}"
        );
        assert_eq!((plan.findings[0].level, plan.writes().count()), (Level::Skip, 0));
    }

    #[test]
    fn an_application_that_is_being_deleted_is_skipped() {
        let mut snapshot = snapshot(&["commerce"]);
        snapshot.applications.get_mut("commerce").unwrap().going = true;
        let plan = decide(&args(), &snapshot);
        assert_eq!((plan.writes().count(), plan.findings[0].level), (0, Level::Skip));
    }

    /// Any mixture of applications, sources and Channels.
    fn any_snapshot() -> impl Strategy<Value = Snapshot> {
        let name = "[a-z0-9.-]{1,8}";
        let state = prop_oneof![Just(State::Ready), Just(State::NotReady), Just(State::Going)];
        let application = (any::<bool>(), any::<bool>())
            .prop_map(|(skips_installation, going)| Application { skips_installation, going });
        (
            btree_map(name, application, 0..12),
            btree_map(name, state.clone(), 0..12),
            btree_map(name, state, 0..12),
            proptest::option::of(any::<bool>()),
        )
            .prop_map(|(applications, sources, channels, controller_available)| Snapshot {
                applications,
                sources,
                channels,
                controller_available,
                ..Snapshot::default()
            })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whatever_is_there_no_existing_source_is_touched_and_no_name_is_forgotten(snapshot in any_snapshot()) {
            let plan = decide(&args(), &snapshot);
            prop_assert!(plan.mistakes().is_empty());
            for step in plan.writes() {
                let there = snapshot.sources.get(&step.object.name);
                prop_assert!(there.is_none_or(|state| *state == State::Going), "{} is there", step.object);
            }
            for (name, application) in &snapshot.applications {
                let subject = APPLICATION.cluster_object(name);
                let in_a_chain = plan.chains().any(|(_, chain)| chain.subject == subject);
                let in_a_finding = plan.findings.iter().any(|finding| finding.object.as_ref() == Some(&subject));
                let ready = |states: &std::collections::BTreeMap<String, State>| states.get(name) == Some(&State::Ready);
                let settled = !application.going && ready(&snapshot.sources) && ready(&snapshot.channels);
                prop_assert!(in_a_chain || in_a_finding || settled, "{name} is forgotten");
            }
        }

        #[test]
        fn after_a_run_there_is_nothing_left_to_do(mut snapshot in any_snapshot()) {
            let created: Vec<String> =
                decide(&args(), &snapshot).chains().map(|(_, chain)| chain.subject.name.clone()).collect();
            for name in created {
                snapshot.sources.insert(name.clone(), State::Ready);
                snapshot.channels.insert(name, State::Ready);
            }
            prop_assert_eq!(decide(&args(), &snapshot).writes().count(), 0);
        }
    }
}
