//! The event-service of an Application: which path its events take, and whether it works.
//!
//! An event takes one path, chosen by the version of the Application's event-service. So the old path may go only when
//! every instance of it feeds the new one: in the Deployment's spec and in every pod that still runs.

use belay_runtime::{
    Kind, ObjectRef, Rule, kinds,
    object::{condition, is_available, is_going, text},
};
use serde_json::Value;

use crate::{INTEGRATION_NAMESPACE, ready, skip_installation};

/// The argument by which an event-service knows the mesh.
const MESH_URL: &str = "eventMeshURL";

/// The argument by which the application-operator knows the image of event-services.
const IMAGE: &str = "eventServiceImage";

/// The status of an Application whose own release is installed.
const DEPLOYED: &str = "DEPLOYED";

/// Flags that say what event-services there must be.
#[derive(clap::Args, Clone, Debug)]
pub struct Expected {
    /// Namespace in which event-services and sources live.
    #[arg(long, env = "BELAY_INTEGRATION_NAMESPACE", default_value = INTEGRATION_NAMESPACE, value_name = "NAMESPACE")]
    pub integration_namespace: String,
    /// Image that event-services must run [default: the one that the application-operator installs]. May be repeated,
    /// where a registry mirror has another name for it.
    #[arg(long = "expect-image", env = "BELAY_EXPECT_IMAGES", value_delimiter = ',', value_name = "IMAGE")]
    pub images: Vec<String>,
    /// The application-operator, whose argument --eventServiceImage names the image.
    #[arg(long, env = "BELAY_APPLICATION_OPERATOR", default_value = "StatefulSet/kyma-integration/application-operator",
          value_parser = workload, value_name = "KIND/NAMESPACE/NAME")]
    pub application_operator: ObjectRef,
}

fn workload(written: &str) -> Result<ObjectRef, String> {
    match written.split('/').collect::<Vec<_>>()[..] {
        [kind, namespace, name] if !namespace.is_empty() && !name.is_empty() => {
            [kinds::STATEFUL_SET, kinds::DEPLOYMENT]
                .iter()
                .find(|known| known.kind.eq_ignore_ascii_case(kind))
                .map(|known| known.object(namespace, name))
                .ok_or_else(|| format!("'{kind}' is neither StatefulSet nor Deployment"))
        }
        _ => Err(format!("'{written}' does not name a workload: write KIND/NAMESPACE/NAME")),
    }
}

impl Expected {
    /// The rights to look at event-services, with these verbs on what may be many.
    #[must_use]
    pub fn rules(&self, verbs: &[&'static str]) -> Vec<Rule> {
        let integration = Some(self.integration_namespace.as_str());
        let operator = &self.application_operator;
        let looked_at: [&Kind; 3] = [&kinds::DEPLOYMENT, &kinds::POD, &crate::HTTP_SOURCE];
        let mut rules: Vec<Rule> = looked_at.iter().map(|kind| Rule::on(kind, integration, verbs)).collect();
        // On a fresh cluster a namespace may not exist, and then rights in it cannot either.
        let seen =
            |namespace: &str| Rule::on(&kinds::NAMESPACE, None, &["get"]).named([namespace.to_owned()]);
        rules.extend(integration.map(seen));
        if self.images.is_empty() {
            let namespace = operator.namespace.as_deref();
            rules.push(Rule::on(&operator.kind, namespace, &["get"]).named([operator.name.clone()]));
            rules.extend(namespace.filter(|_| namespace != integration).map(seen));
        }
        rules
    }

    /// The images that count, by the flags or by the operator's own argument; else why there are none.
    pub fn images(&self, operator: Option<&Value>) -> Result<Vec<String>, String> {
        if !self.images.is_empty() {
            return Ok(self.images.clone());
        }
        let cure = "name the image with --expect-image, or the operator with --application-operator";
        let Some(operator) = operator else {
            return Err(format!(
                "{} does not exist, so nobody says which image event-services must run: {cure}",
                self.application_operator
            ));
        };
        let containers = operator.pointer("/spec/template/spec/containers").and_then(Value::as_array);
        let image = containers.into_iter().flatten().find_map(|container| argument(container, IMAGE));
        image.map(|image| vec![image.to_owned()]).ok_or_else(|| {
            format!(
                "{} has no argument --{IMAGE}, so nobody says which image event-services must run: {cure}",
                self.application_operator
            )
        })
    }

    /// Says of an operator that nobody is there to update event-services, if so.
    #[must_use]
    pub fn operator_down(&self, operator: Option<&Value>) -> Option<String> {
        let down = operator.is_some_and(|operator| !is_available(operator));
        down.then(|| format!("{} was not available when this step looked", self.application_operator))
    }

    /// The event-service of an Application.
    #[must_use]
    pub fn deployment_of(&self, application: &str) -> ObjectRef {
        kinds::DEPLOYMENT.object(&self.integration_namespace, deployment_name(application))
    }

    /// The source of an Application.
    #[must_use]
    pub fn source_of(&self, application: &str) -> ObjectRef {
        crate::HTTP_SOURCE.object(&self.integration_namespace, application)
    }
}

/// What event-services are called, after their Application.
const SUFFIX: &str = "-event-service";

fn deployment_name(application: &str) -> String {
    format!("{application}{SUFFIX}")
}

/// The Application whose event-service bears this name.
#[must_use]
pub fn application_of(deployment: &str) -> Option<&str> {
    deployment.strip_suffix(SUFFIX).filter(|application| !application.is_empty())
}

/// What counts of an Application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installation {
    /// The operator installs an event-service for it.
    Installed,
    /// `spec.skipInstallation`: it has none, unless somebody made one by hand.
    Skipped,
    /// It is being deleted, and its event-service with it.
    Going,
}

impl Installation {
    /// How an Application stands.
    #[must_use]
    pub fn of(application: &Value) -> Self {
        if is_going(application) {
            Self::Going
        } else if skip_installation().get(application) == Some(&Value::Bool(true)) {
            Self::Skipped
        } else {
            Self::Installed
        }
    }
}

/// What the operator says of an Application that it could not install: the cause of much that is wrong with its
/// event-service.
#[must_use]
pub fn installation_trouble(application: &Value) -> Option<String> {
    let status = text(application, "/status/installationStatus/status")
        .filter(|status| !status.is_empty() && *status != DEPLOYED)?;
    let why = text(application, "/status/installationStatus/description").unwrap_or_default();
    let object = crate::APPLICATION.object_of(application);
    Some(if why.is_empty() {
        format!("the installation of {object} is {status}")
    } else {
        format!("the installation of {object} is {status}: {why}")
    })
}

/// What counts of an event-service's Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rollout {
    image: String,
    feeds_mesh: bool,
    /// Its controller has seen the newest change.
    seen: bool,
    wanted: i64,
    there: i64,
    updated: i64,
    available: i64,
    /// Why the rollout has been given up.
    given_up: Option<String>,
}

impl Rollout {
    /// Reads it.
    #[must_use]
    pub fn of(deployment: &Value) -> Self {
        let number = |pointer: &str| deployment.pointer(pointer).and_then(Value::as_i64);
        let status = |field: &str| number(&format!("/status/{field}")).unwrap_or_default();
        let container = container(deployment, "/spec/template/spec/containers", name_of(deployment));
        let progressing = condition(deployment, "Progressing");
        Self {
            image: image_of(container),
            feeds_mesh: feeds_mesh(container),
            seen: status("observedGeneration") >= number("/metadata/generation").unwrap_or_default(),
            // An absent number of replicas means one.
            wanted: number("/spec/replicas").unwrap_or(1),
            there: status("replicas"),
            updated: status("updatedReplicas"),
            available: status("availableReplicas"),
            given_up: progressing
                .filter(|found| text(found, "/reason") == Some("ProgressDeadlineExceeded"))
                .map(|found| text(found, "/message").unwrap_or("ProgressDeadlineExceeded").to_owned()),
        }
    }

    /// The image that its spec names.
    #[must_use]
    pub fn image(&self) -> &str {
        &self.image
    }
}

/// What counts of an event-service's pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    name: String,
    /// The Application, by the name that the Deployment gave it.
    application: String,
    image: String,
    feeds_mesh: bool,
    crash: Option<String>,
    /// Why one of its containers does not run, if the kubelet says so.
    waits: Option<String>,
}

impl Pod {
    /// Reads a pod. None if it is not one of an event-service, or runs no more.
    #[must_use]
    pub fn of(pod: &Value) -> Option<Self> {
        if matches!(text(pod, "/status/phase"), Some("Succeeded" | "Failed")) {
            return None;
        }
        let deployment = text(pod, "/metadata/labels/app")?;
        let application = application_of(deployment)?.to_owned();
        let container = container(pod, "/spec/containers", deployment);
        let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
        let statuses: Vec<&Value> =
            lists.iter().filter_map(|list| pod.pointer(list)?.as_array()).flatten().collect();
        let waiting = |status: &&Value| text(status, "/state/waiting/reason").map(str::to_owned);
        let looping = |status: &&&Value| waiting(status).as_deref() == Some("CrashLoopBackOff");
        let crash = statuses.iter().find(looping).map(|status| {
            let restarts = status.get("restartCount").and_then(Value::as_i64).unwrap_or_default();
            let name = text(status, "/name").unwrap_or_default();
            format!("its container {name} crashes again and again ({restarts} restarts)")
        });
        let waits = statuses.iter().find_map(|status| {
            let (reason, name) = (waiting(status)?, text(status, "/name").unwrap_or_default());
            let message = text(status, "/state/waiting/message");
            let message = message.map(|message| format!(", {message}")).unwrap_or_default();
            Some(format!("its container {name} waits: {reason}{message}"))
        });
        Some(Self {
            name: name_of(pod).to_owned(),
            application,
            image: image_of(container),
            feeds_mesh: feeds_mesh(container),
            crash,
            waits,
        })
    }

    /// The Application whose event-service it is a part of.
    #[must_use]
    pub fn application(&self) -> &str {
        &self.application
    }
}

/// How an event-service stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All of it feeds the mesh, and works.
    Updated,
    /// A part of it feeds the old path, or may.
    NotUpdated(String),
    /// All of it feeds the mesh, but its rollout is not finished: a pod is being replaced, or it is being scaled.
    Unsettled(String),
    /// It does not work, and may yet.
    Failing(String),
    /// It does not work and will not without somebody's help.
    Lost(String),
}

impl Verdict {
    /// The same, with other words for why.
    #[must_use]
    pub fn with(self, words: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Updated => Self::Updated,
            Self::NotUpdated(why) => Self::NotUpdated(words(why)),
            Self::Unsettled(why) => Self::Unsettled(words(why)),
            Self::Failing(why) => Self::Failing(words(why)),
            Self::Lost(why) => Self::Lost(words(why)),
        }
    }
}

/// Judges an event-service by its Deployment, its pods and its source. `namespace` is where they live.
#[must_use]
pub fn judge(
    images: &[String],
    namespace: &str,
    application: &str,
    rollout: Option<&Rollout>,
    pods: &[&Pod],
    source: Option<&str>,
) -> Verdict {
    let deployment = kinds::DEPLOYMENT.object(namespace, deployment_name(application));
    let Some(rollout) = rollout else {
        return Verdict::NotUpdated(format!("{deployment} does not exist"));
    };
    let is_wanted = |image: &str| images.iter().any(|wanted| wanted == image);
    if !is_wanted(&rollout.image) {
        let wanted = images.join(" or ");
        return Verdict::NotUpdated(format!("{deployment} has image {}, not {wanted}", rollout.image));
    }
    if !rollout.feeds_mesh {
        return Verdict::NotUpdated(format!("{deployment} has no argument --{MESH_URL}"));
    }
    // Without a pod in sight nobody can tell what runs.
    let is_fed = !pods.is_empty() && old_pod(Some(images), namespace, pods).is_none();
    let unrolled = |why| if is_fed { Verdict::Unsettled(why) } else { Verdict::NotUpdated(why) };
    if !rollout.seen {
        return unrolled(format!("the newest change of {deployment} is not rolled out yet"));
    }
    if let Some(why) = &rollout.given_up {
        return Verdict::Lost(format!("the rollout of {deployment} was given up: {why}"));
    }
    // An old pod that crashes is about to be replaced.
    let crash =
        pods.iter().filter(|pod| is_wanted(&pod.image)).find_map(|pod| Some((pod, pod.crash.as_ref()?)));
    if let Some((pod, crash)) = crash {
        return Verdict::Lost(format!("Pod/{namespace}/{}: {crash}", pod.name));
    }
    if let Some(unfinished) = unfinished(rollout) {
        let new = pods.iter().filter(|pod| is_wanted(&pod.image));
        let waits = new.into_iter().find_map(|pod| Some((pod, pod.waits.as_ref()?)));
        let waits = waits.map(|(pod, waits)| format!("; Pod/{namespace}/{}: {waits}", pod.name));
        let waits = waits.unwrap_or_default();
        return match unfinished.with(|why| format!("{deployment}: {why}{waits}")) {
            Verdict::NotUpdated(why) => unrolled(why),
            verdict => verdict,
        };
    }
    if let Some(why) = old_pod(Some(images), namespace, pods) {
        return Verdict::NotUpdated(why);
    }
    match source {
        None => Verdict::Updated,
        Some(why) => Verdict::Failing(format!("{} {why}", crate::HTTP_SOURCE.object(namespace, application))),
    }
}

/// Says of the first pod that feeds the old path, or may, by what one sees it. Where nobody names the images only the argument
/// counts, which versions from before the mesh do not have.
#[must_use]
pub fn old_pod(images: Option<&[String]>, namespace: &str, pods: &[&Pod]) -> Option<String> {
    let is_wanted = |pod: &&&Pod| images.is_none_or(|images| images.contains(&pod.image));
    let other =
        pods.iter().find(|pod| !is_wanted(pod)).map(|pod| (pod, format!("still runs image {}", pod.image)));
    let without = || {
        let pod = pods.iter().find(|pod| !pod.feeds_mesh)?;
        Some((pod, format!("has no argument --{MESH_URL}")))
    };
    other.or_else(without).map(|(pod, what)| format!("Pod/{namespace}/{} {what}", pod.name))
}

/// The rule of `kubectl rollout status`, and that something must be available at all.
fn unfinished(rollout: &Rollout) -> Option<Verdict> {
    let Rollout { wanted, there, updated, available, .. } = *rollout;
    if available == 0 {
        Some(Verdict::Failing("no replica is available".to_owned()))
    } else if updated < wanted {
        Some(Verdict::NotUpdated(format!("{updated} of {wanted} replicas are updated")))
    } else if there > updated {
        Some(Verdict::NotUpdated(format!("{} old replicas are not gone yet", there - updated)))
    } else if available < updated {
        Some(Verdict::Failing(format!("{available} of {updated} updated replicas are available")))
    } else {
        None
    }
}

/// What a source lacks; none if it is Ready.
#[must_use]
pub fn source_lacks(source: Option<&Value>) -> Option<String> {
    match ready().ask(source) {
        belay_runtime::Progress::Pending(why) => Some(why),
        _ => None,
    }
}

fn name_of(object: &Value) -> &str {
    text(object, "/metadata/name").unwrap_or_default()
}

/// The container of that name, else the first: sidecars are put behind it.
fn container<'a>(object: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    let containers = object.pointer(list)?.as_array()?;
    containers.iter().find(|container| text(container, "/name") == Some(name)).or_else(|| containers.first())
}

fn image_of(container: Option<&Value>) -> String {
    container.and_then(|container| text(container, "/image")).unwrap_or("none").to_owned()
}

fn feeds_mesh(container: Option<&Value>) -> bool {
    container.and_then(|container| argument(container, MESH_URL)).is_some()
}

/// The value of a flag in a container's command line, in each way that Go's flags can be written.
fn argument<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let words = |field| container.get(field).and_then(Value::as_array);
    let words: Vec<&str> =
        ["command", "args"].into_iter().filter_map(words).flatten().filter_map(Value::as_str).collect();
    let value = words.iter().enumerate().find_map(|(place, &word)| {
        let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
        match flag.strip_prefix(name)? {
            "" => words.get(place + 1).copied(),
            rest => rest.strip_prefix('='),
        }
    });
    value.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const NEW: &str = "registry/event-service:new";
    const OLD: &str = "registry/event-service:old";

    fn deployment() -> Value {
        json!({
            "metadata": {"name": "shop-event-service", "generation": 3},
            "spec": {"replicas": 2, "template": {"spec": {"containers": [
                {"name": "proxy", "image": "proxy"},
                {"name": "shop-event-service", "image": NEW,
                 "args": ["/eventservice", "--eventMeshURL=http://shop.kyma-integration"]},
            ]}}},
            "status": {"observedGeneration": 3, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2},
        })
    }

    fn pod() -> Value {
        json!({
            "metadata": {"name": "shop-1", "labels": {"app": "shop-event-service"}},
            "spec": {"containers": [
                {"name": "proxy", "image": "proxy"},
                {"name": "shop-event-service", "image": NEW, "args": ["--eventMeshURL", "http://shop"]},
            ]},
            "status": {"phase": "Running"},
        })
    }

    fn judged(deployment: Option<&Value>, pods: &[Value], source: Option<&str>) -> Verdict {
        let pods: Vec<Pod> = pods.iter().filter_map(Pod::of).collect();
        let pods: Vec<&Pod> = pods.iter().collect();
        let rollout = deployment.map(Rollout::of);
        judge(&[NEW.to_owned()], "ns", "shop", rollout.as_ref(), &pods, source)
    }

    /// The verdict on a service of which one field is another.
    fn with(pointer: &str, value: Value) -> Verdict {
        let mut changed = deployment();
        *changed.pointer_mut(pointer).unwrap() = value;
        judged(Some(&changed), &[pod()], None)
    }

    fn with_pod(change: impl FnOnce(&mut Value)) -> Verdict {
        let mut changed = pod();
        change(&mut changed);
        judged(Some(&deployment()), &[pod(), changed], None)
    }

    #[track_caller]
    fn not_updated(verdict: &Verdict, why: &str) {
        assert!(matches!(verdict, Verdict::NotUpdated(text) if text.contains(why)), "{verdict:?}");
    }

    #[track_caller]
    fn unsettled(verdict: &Verdict, why: &str) {
        assert!(matches!(verdict, Verdict::Unsettled(text) if text.contains(why)), "{verdict:?}");
    }

    #[track_caller]
    fn failing(verdict: &Verdict, why: &str) {
        assert!(matches!(verdict, Verdict::Failing(text) if text.contains(why)), "{verdict:?}");
    }

    #[track_caller]
    fn lost(verdict: &Verdict, why: &str) {
        assert!(matches!(verdict, Verdict::Lost(text) if text.contains(why)), "{verdict:?}");
    }

    #[test]
    fn one_that_runs_the_image_feeds_the_mesh_and_is_rolled_out_is_updated() {
        assert_eq!(judged(Some(&deployment()), &[pod(), pod()], None), Verdict::Updated);
    }

    #[test]
    fn absent_another_image_and_no_mesh_url_are_not_updated() {
        not_updated(&judged(None, &[], None), "Deployment/ns/shop-event-service does not exist");
        not_updated(&with("/spec/template/spec/containers/1/image", OLD.into()), OLD);
        not_updated(&with("/spec/template/spec/containers/1/args", json!([])), "--eventMeshURL");
        not_updated(
            &with("/spec/template/spec/containers/1/args", json!(["--eventMeshURL="])),
            "--eventMeshURL",
        );
    }

    #[test]
    fn the_rollout_is_finished_by_the_rule_of_kubectl() {
        for (pointer, number, why) in [
            ("/metadata/generation", 4, "not rolled out"),
            ("/spec/replicas", 3, "2 of 3"),
            ("/status/replicas", 3, "1 old replicas"),
        ] {
            let mut rolling = deployment();
            *rolling.pointer_mut(pointer).unwrap() = number.into();
            let mut old = pod();
            old["spec"]["containers"][1]["image"] = OLD.into();
            not_updated(&judged(Some(&rolling), &[pod(), old], None), why);
            not_updated(&judged(Some(&rolling), &[], None), why);
            // A pod is being replaced, or an autoscaler wants one more.
            unsettled(&judged(Some(&rolling), &[pod()], None), why);
        }
        failing(&with("/status/availableReplicas", 1.into()), "1 of 2");
        failing(&with("/status/availableReplicas", 0.into()), "no replica is available");
    }

    #[test]
    fn an_old_pod_that_still_runs_is_not_updated_and_one_that_has_ended_does_not_count() {
        not_updated(&with_pod(|pod| pod["spec"]["containers"][1]["image"] = OLD.into()), "Pod/ns/shop-1");
        not_updated(&with_pod(|pod| pod["spec"]["containers"][1]["args"] = json!([])), "--eventMeshURL");
        let ended = with_pod(|pod| {
            pod["spec"]["containers"][1]["image"] = OLD.into();
            pod["status"]["phase"] = "Failed".into();
        });
        assert_eq!(ended, Verdict::Updated);
    }

    #[test]
    fn a_rollout_that_was_given_up_is_lost_but_not_while_a_newer_one_is_under_way() {
        let given_up = json!([{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded",
                               "message": "timed out"}]);
        let mut stuck = deployment();
        stuck["status"]["conditions"] = given_up;
        lost(&judged(Some(&stuck), &[], None), "timed out");
        stuck["metadata"]["generation"] = 4.into();
        not_updated(&judged(Some(&stuck), &[], None), "not rolled out");
    }

    #[test]
    fn a_crash_loop_of_a_new_pod_is_lost_and_one_of_an_old_pod_is_about_to_go() {
        let crash = json!([{"name": "shop-event-service", "restartCount": 4,
                            "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
        lost(&with_pod(|pod| pod["status"]["containerStatuses"] = crash.clone()), "4 restarts");
        lost(&with_pod(|pod| pod["status"]["initContainerStatuses"] = crash.clone()), "4 restarts");
        let old = with_pod(|pod| {
            pod["status"]["containerStatuses"] = crash.clone();
            pod["spec"]["containers"][1]["image"] = OLD.into();
        });
        not_updated(&old, OLD);
    }

    #[test]
    fn what_the_kubelet_says_of_a_pod_that_does_not_start_is_said() {
        let mut stuck = deployment();
        stuck["status"]["availableReplicas"] = 1.into();
        let mut pulling = pod();
        pulling["status"]["containerStatuses"] = json!([
            {"name": "proxy", "state": {"running": {}}},
            {"name": "shop-event-service", "state": {"waiting": {
                "reason": "ImagePullBackOff", "message": "Back-off pulling image",
            }}},
        ]);
        let said = "1 of 2 updated replicas are available; Pod/ns/shop-1: its container shop-event-service waits: \
                    ImagePullBackOff, Back-off pulling image";
        failing(&judged(Some(&stuck), &[pulling], None), said);
    }

    #[test]
    fn what_the_operator_says_of_an_installation_that_failed_is_said() {
        let application = |status: &str, why: &str| {
            json!({
                "metadata": {"name": "shop"},
                "status": {"installationStatus": {"status": status, "description": why}},
            })
        };
        assert_eq!(installation_trouble(&application("DEPLOYED", "fine")), None);
        assert_eq!(installation_trouble(&json!({"metadata": {"name": "shop"}})), None);
        assert_eq!(
            installation_trouble(&application("FAILED", "timed out")),
            Some("the installation of Application/shop is FAILED: timed out".to_owned())
        );
    }

    #[test]
    fn a_source_that_is_not_ready_makes_it_fail() {
        failing(
            &judged(Some(&deployment()), &[pod()], Some("does not exist")),
            "HTTPSource/ns/shop does not",
        );
    }

    #[test]
    fn the_operators_argument_says_which_image_unless_a_flag_does() {
        let mut expected = Expected {
            integration_namespace: "ns".into(),
            images: Vec::new(),
            application_operator: workload("statefulset/ns/operator").unwrap(),
        };
        let operator = json!({"spec": {"template": {"spec": {"containers": [
            {"args": ["/manager", format!("--eventServiceImage={NEW}")]},
        ]}}}});
        assert_eq!(expected.images(Some(&operator)), Ok(vec![NEW.to_owned()]));
        assert!(expected.images(None).unwrap_err().contains("StatefulSet/ns/operator does not exist"));
        assert!(expected.images(Some(&json!({}))).unwrap_err().contains("--expect-image"));
        expected.images = vec![OLD.to_owned()];
        assert_eq!(expected.images(Some(&operator)), Ok(vec![OLD.to_owned()]));
        for wrong in ["operator", "Pod/ns/a", "StatefulSet//a"] {
            assert!(workload(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn of_pods_whose_image_nobody_names_only_the_argument_counts() {
        let (new, mut old) = (Pod::of(&pod()).unwrap(), pod());
        assert_eq!(old_pod(None, "ns", &[&new]), None);
        assert_eq!(
            old_pod(Some(&[OLD.to_owned()]), "ns", &[&new]),
            Some(format!("Pod/ns/shop-1 still runs image {NEW}"))
        );
        old["spec"]["containers"][1]["args"] = json!([]);
        let old = Pod::of(&old).unwrap();
        assert_eq!(
            old_pod(None, "ns", &[&new, &old]),
            Some("Pod/ns/shop-1 has no argument --eventMeshURL".to_owned())
        );
    }

    #[test]
    fn every_namespace_that_is_looked_into_may_be_seen_to_be_absent() {
        let mut expected = Expected {
            integration_namespace: "ns".into(),
            images: Vec::new(),
            application_operator: workload("Deployment/elsewhere/operator").unwrap(),
        };
        let seen = |expected: &Expected| -> Vec<String> {
            let rules = expected.rules(&["list"]);
            let of_namespaces = rules.iter().filter(|rule| rule.resource == "namespaces");
            of_namespaces.flat_map(|rule| rule.names.clone()).collect()
        };
        assert_eq!(seen(&expected), ["ns", "elsewhere"]);
        expected.images = vec![NEW.to_owned()];
        assert_eq!(seen(&expected), ["ns"], "the operator is not read");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn it_is_updated_only_if_nothing_at_all_feeds_the_old_path(
            new in any::<[bool; 3]>(), url in any::<[bool; 3]>(), counts in any::<[u8; 4]>(),
        ) {
            let image = |new: bool| if new { NEW } else { OLD };
            let args = |url: bool| if url { json!(["--eventMeshURL=x"]) } else { json!([]) };
            let mut deployment = deployment();
            let container = |at: usize| json!({"name": "shop-event-service", "image": image(new[at]), "args": args(url[at])});
            deployment["spec"]["template"]["spec"]["containers"] = json!([container(0)]);
            let [wanted, there, updated, available] = counts.map(|count| count % 4);
            deployment["spec"]["replicas"] = wanted.into();
            deployment["status"] = json!({
                "observedGeneration": 3, "replicas": there, "updatedReplicas": updated,
                "availableReplicas": available,
            });
            let pods: Vec<Value> = [1, 2].iter().map(|&at| {
                let mut pod = pod();
                pod["spec"]["containers"] = json!([container(at)]);
                pod
            }).collect();
            let updated_all = new.iter().chain(&url).all(|good| *good);
            let rolled_out = available > 0 && updated >= wanted && there <= updated && available >= updated;
            let verdict = judged(Some(&deployment), &pods, None);
            prop_assert_eq!(verdict == Verdict::Updated, updated_all && rolled_out);
        }
    }
}
