//! What the step decides: what to wait for, and what to say of it at the end.

use std::{collections::BTreeSet, time::Duration};

use belay_runtime::{Chain, Closing, Finding, Move, Plan, Progress, Scope, View, kinds, object::text};
use event_mesh_kinds::{
    APPLICATION, HTTP_SOURCE,
    event_service::{
        Expected, Installation, Pod, Rollout, Verdict, installation_trouble, judge, source_lacks,
    },
};

use crate::{Args, snapshot::Snapshot};

pub(crate) fn decide(args: &Args, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let installed: Vec<&str> = snapshot
        .applications
        .iter()
        .filter(|(_, installation)| **installation == Installation::Installed)
        .map(|(name, _)| name.as_str())
        .collect();
    plan.findings = notes(&args.expected, snapshot);
    let unattended = snapshot.services.iter().any(|name| {
        !matches!(snapshot.applications.get(name), Some(Installation::Installed | Installation::Going))
    });
    let images = match &snapshot.images {
        _ if installed.is_empty() && !unattended => return plan,
        Ok(images) => images,
        Err(_) if installed.is_empty() => return plan,
        Err(why) => {
            plan.findings.push(Finding::refuse(args.expected.application_operator.clone(), why.clone()));
            return plan;
        }
    };
    let judge = Judge {
        expected: args.expected.clone(),
        images: images.clone(),
        operator_down: snapshot.operator_down.clone(),
    };
    let chain = |application: &&str| {
        let subject = APPLICATION.cluster_object(*application);
        Chain::new(subject, vec![wait(judge.clone(), application)])
    };
    plan.phases = vec![installed.iter().map(chain).collect()];
    let names = snapshot.applications.keys().chain(&snapshot.services).cloned().collect();
    plan.closing = Some(table(judge, names));
    plan
}

/// What is not waited for, and why.
fn notes(expected: &Expected, snapshot: &Snapshot) -> Vec<Finding> {
    let mut notes = Vec::new();
    for (name, installation) in &snapshot.applications {
        let subject = APPLICATION.cluster_object(name);
        notes.extend(match installation {
            Installation::Installed => None,
            Installation::Skipped if snapshot.services.contains(name) => Some(Finding::note(
                subject,
                format!(
                    "has spec.skipInstallation, and {} all the same: nobody updates that one. While it feeds the old path, \
                     the Subscriptions of its source stay",
                    expected.deployment_of(name)
                ),
            )),
            Installation::Skipped => Some(Finding::note(
                subject,
                "has spec.skipInstallation: nobody installs an event-service for it",
            )),
            Installation::Going => Some(Finding::skip(subject, "is being deleted")),
        });
    }
    for name in snapshot.services.iter().filter(|name| !snapshot.applications.contains_key(*name)) {
        notes.push(Finding::note(
            expected.deployment_of(name),
            format!(
                "there is no Application {name} that it could belong to: nobody updates it. While it feeds the old path, the \
                 Subscriptions of its source stay"
            ),
        ));
    }
    notes
}

/// All that is needed to judge an event-service by what is in sight.
#[derive(Clone)]
struct Judge {
    expected: Expected,
    images: Vec<String>,
    operator_down: Option<String>,
}

impl Judge {
    /// The image that an event-service has, and how it stands.
    fn look(&self, application: &str, pods: &[Pod], view: &View<'_>) -> (Option<String>, Verdict) {
        let expected = &self.expected;
        let rollout = view.get(&expected.deployment_of(application)).as_ref().map(Rollout::of);
        let pods: Vec<&Pod> = pods.iter().filter(|pod| pod.application() == application).collect();
        let source = source_lacks(view.get(&expected.source_of(application)).as_ref());
        let namespace = &expected.integration_namespace;
        let verdict = judge(&self.images, namespace, application, rollout.as_ref(), &pods, source.as_deref());
        let trouble =
            view.get(&APPLICATION.cluster_object(application)).as_ref().and_then(installation_trouble);
        let down = self
            .operator_down
            .clone()
            .filter(|_| matches!(verdict, Verdict::NotUpdated(_) | Verdict::Unsettled(_)));
        let verdict = verdict
            .with(|why| [Some(why), trouble, down].into_iter().flatten().collect::<Vec<_>>().join("; "));
        (rollout.map(|rollout| rollout.image().to_owned()), verdict)
    }
}

fn wait(judge: Judge, application: &str) -> Move {
    let object = judge.expected.deployment_of(application);
    let subject = APPLICATION.cluster_object(application);
    let what = format!("the event-service of {subject} updated and working");
    // The step's own deadline is the only one.
    let within = Duration::from_secs(24 * 3600);
    let labels = [("app", object.name.as_str())];
    let scopes = vec![
        Scope::of(&subject),
        Scope::of(&object),
        Scope::of(&judge.expected.source_of(application)),
        Scope::labelled(kinds::POD, &judge.expected.integration_namespace, &labels),
    ];
    let application = application.to_owned();
    Move::wait_until(object, what, scopes, within, move |view| {
        // It was there, and to be installed, when the step began.
        match view.get(&subject).as_ref().map(Installation::of) {
            Some(Installation::Installed) => {}
            Some(Installation::Skipped) => {
                return Progress::DoneWith(format!("{subject} got spec.skipInstallation meanwhile"));
            }
            Some(Installation::Going) | None => {
                return Progress::DoneWith(format!("{subject} was deleted meanwhile"));
            }
        }
        match judge.look(&application, &pods(view), view).1 {
            Verdict::Updated => Progress::Done,
            Verdict::NotUpdated(why) | Verdict::Unsettled(why) => {
                Progress::Pending(format!("not updated: {why}"))
            }
            Verdict::Failing(why) => Progress::Pending(format!("failing: {why}")),
            Verdict::Lost(why) => Progress::Failed(format!("failing: {why}")),
        }
    })
}

/// The pods of event-services that are in sight.
fn pods(view: &View<'_>) -> Vec<Pod> {
    view.list(&kinds::POD).iter().filter_map(Pod::of).collect()
}

/// Every Application and every event-service, what it should have and what it has.
fn table(judge: Judge, names: BTreeSet<String>) -> Closing {
    let namespace = &judge.expected.integration_namespace;
    let watched = [kinds::DEPLOYMENT, kinds::POD, HTTP_SOURCE];
    let watched = watched.map(|kind| Scope { namespace: Some(namespace.clone()), ..Scope::everywhere(kind) });
    let scopes = watched.into_iter().chain([Scope::everywhere(APPLICATION)]).collect();
    Closing::new(scopes, move |view| {
        let pods = pods(view);
        let mut rows = vec![["APPLICATION", "WANTED", "FOUND", "STATE"].map(str::to_owned)];
        // Applications may have come while the step waited.
        let came = view.list(&APPLICATION);
        let came = came.iter().filter_map(|application| text(application, "/metadata/name"));
        for name in names.iter().map(String::as_str).chain(came).collect::<BTreeSet<_>>() {
            let installation = view.get(&APPLICATION.cluster_object(name)).as_ref().map(Installation::of);
            let (image, verdict) = judge.look(name, &pods, view);
            rows.push(row(name, installation, image, verdict, &judge.images));
        }
        aligned(&rows)
    })
}

fn row(
    name: &str,
    installation: Option<Installation>,
    found: Option<String>,
    verdict: Verdict,
    images: &[String],
) -> [String; 4] {
    let state = match verdict {
        Verdict::Updated => "updated".to_owned(),
        Verdict::NotUpdated(why) | Verdict::Unsettled(why) => format!("not updated: {why}"),
        Verdict::Failing(why) | Verdict::Lost(why) => format!("failing: {why}"),
    };
    let is_judged = found.is_some() || installation == Some(Installation::Installed);
    let state = match installation {
        Some(Installation::Installed) => state,
        Some(Installation::Going) => "is being deleted".to_owned(),
        Some(Installation::Skipped) if is_judged => format!("{state} (spec.skipInstallation)"),
        Some(Installation::Skipped) => "not installed: spec.skipInstallation".to_owned(),
        None if is_judged => format!("{state} (there is no Application)"),
        None => "is gone".to_owned(),
    };
    let wanted = if is_judged && installation != Some(Installation::Going) {
        images.join(" or ")
    } else {
        "-".to_owned()
    };
    [name.to_owned(), wanted, found.unwrap_or_else(|| "-".to_owned()), state]
}

/// Columns as wide as their widest cell; the last one needs no width.
fn aligned(rows: &[[String; 4]]) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let [first, second, third] = [width(0), width(1), width(2)];
    rows.iter()
        .map(|[application, wanted, found, state]| {
            format!("{application:first$}  {wanted:second$}  {found:third$}  {state}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use belay_runtime::plan::Level;

    use super::*;

    fn args() -> Args {
        Args {
            expected: Expected {
                integration_namespace: "kyma-integration".into(),
                images: Vec::new(),
                application_operator: kinds::STATEFUL_SET.object("kyma-integration", "application-operator"),
            },
        }
    }

    fn snapshot(applications: &[(&str, Installation)]) -> Snapshot {
        Snapshot {
            applications: applications.iter().map(|(name, how)| ((*name).to_owned(), *how)).collect(),
            services: BTreeSet::new(),
            images: Ok(vec!["new".into()]),
            operator_down: None,
        }
    }

    #[test]
    fn every_installed_application_is_waited_for_and_nothing_is_written() {
        let plan = decide(
            &args(),
            &snapshot(&[
                ("a", Installation::Installed),
                ("b", Installation::Skipped),
                ("c", Installation::Going),
                ("d", Installation::Installed),
            ]),
        );
        let subjects: Vec<&str> = plan.chains().map(|(_, chain)| chain.subject.name.as_str()).collect();
        assert_eq!(subjects, ["a", "d"]);
        assert_eq!(plan.writes().count(), 0);
        let levels: Vec<Level> = plan.findings.iter().map(|finding| finding.level).collect();
        assert_eq!(levels, [Level::Note, Level::Skip]);
        assert!(plan.closing.is_some());
    }

    #[test]
    fn without_an_image_to_expect_it_refuses_but_only_if_there_is_something_to_check() {
        let nobody = |applications| Snapshot { images: Err("nobody says".into()), ..snapshot(applications) };
        let plan = decide(&args(), &nobody(&[("a", Installation::Installed)]));
        assert_eq!((plan.refusals().count(), plan.chains().count()), (1, 0));
        let plan = decide(&args(), &nobody(&[("a", Installation::Skipped)]));
        assert_eq!((plan.refusals().count(), plan.chains().count()), (0, 0));
    }

    #[test]
    fn an_event_service_that_nobody_looks_after_is_told_and_judged_in_the_table() {
        let found =
            |applications| Snapshot { services: ["loyalty".to_owned()].into(), ..snapshot(applications) };
        for (applications, said) in [
            (
                &[("loyalty", Installation::Skipped)][..],
                "has spec.skipInstallation, and Deployment/kyma-integration/loyalty",
            ),
            (&[][..], "there is no Application loyalty that it could belong to"),
        ] {
            let plan = decide(&args(), &found(applications));
            assert_eq!((plan.chains().count(), plan.refusals().count()), (0, 0));
            assert!(plan.findings[0].message.contains(said), "{:?}", plan.findings);
            assert!(plan.closing.is_some());
        }
        let updated = |installation, found: Option<&str>| {
            row(
                "loyalty",
                installation,
                found.map(str::to_owned),
                Verdict::NotUpdated("old".into()),
                &["new".into()],
            )
        };
        assert_eq!(
            updated(None, Some("old")),
            ["loyalty", "new", "old", "not updated: old (there is no Application)"]
        );
        assert_eq!(
            updated(Some(Installation::Skipped), Some("old")),
            ["loyalty", "new", "old", "not updated: old (spec.skipInstallation)"]
        );
        assert_eq!(
            updated(Some(Installation::Skipped), None),
            ["loyalty", "-", "-", "not installed: spec.skipInstallation"]
        );
        assert_eq!(updated(None, None), ["loyalty", "-", "-", "is gone"]);
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["A", "B", "C", "D"], ["aaa", "b", "cc", "d d"]].map(|row| row.map(str::to_owned));
        assert_eq!(aligned(&rows), ["A    B  C   D", "aaa  b  cc  d d"]);
    }
}
