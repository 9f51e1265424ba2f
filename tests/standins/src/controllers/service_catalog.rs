//! Plays the Service Catalog for `ServiceInstance`s.
//!
//! The facts it plays. On creation the finalizer `kubernetes-incubator/service-catalog` takes the place of all others,
//! `userInfo` is set and `externalID` made up if there is none: a webhook did that; here it happens a moment later. The
//! class and the plan are looked up and written as references, with labels. The broker is asked once: a provision that
//! failed is never tried again. A deleted instance is deprovisioned, unless a `ServiceBinding` refers to it; a broker
//! that refuses keeps it for ever.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha224};

use super::application_broker::{Answer, ApplicationBroker, Request};
use super::finalizer;
use crate::behaviour::{Behaviour, Controller, names};
use crate::conditions::{Condition, Shape, Truth, conditions, holds, now};
use crate::engine::{Action, Failed, Index, Look, Mirror, Setup, Shared, going, key, own_key, serve};
use crate::kinds::{SERVICE_BINDING, SERVICE_CLASS, SERVICE_INSTANCE, SERVICE_PLAN};

/// Held on every `ServiceInstance`.
pub const FINALIZER: &str = "kubernetes-incubator/service-catalog";
/// The broker of Applications, as classes name it.
pub const APPLICATION_BROKER: &str = "application-broker";

/// The broker is asked again after this long where it may think better of it.
const ASK_AGAIN: Duration = Duration::from_secs(1);

struct ServiceCatalog {
    shared: Arc<Shared>,
    classes: Mirror,
    classes_in: Index,
    plans: Mirror,
    plans_of: Index,
    bindings: Index,
    broker: ApplicationBroker,
}

/// Starts the controller, and the broker that it asks.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&SERVICE_INSTANCE);
    let instances_in = setup.index(&SERVICE_INSTANCE, namespace_of);
    for kind in [SERVICE_CLASS, SERVICE_PLAN] {
        let (on_offer, instances_in) = (queue.clone(), instances_in.clone());
        setup.on(&kind, move |seen| on_offer.related(seen, &instances_in, namespace_of));
    }
    let instances = setup.index(&SERVICE_INSTANCE, own_key);
    let on_binding = queue.clone();
    setup.on(&SERVICE_BINDING, move |seen| on_binding.related(seen, &instances, bound));
    let controller = ServiceCatalog {
        shared: setup.shared.clone(),
        classes: setup.mirror(&SERVICE_CLASS),
        classes_in: setup.index(&SERVICE_CLASS, namespace_of),
        plans: setup.mirror(&SERVICE_PLAN),
        plans_of: setup.index(&SERVICE_PLAN, class_of_plan),
        bindings: setup.index(&SERVICE_BINDING, bound),
        broker: ApplicationBroker::start(setup),
    };
    serve(setup, controller, queue, receiver);
}

impl Look for ServiceCatalog {
    const NAME: &'static str = "ServiceInstance";

    async fn look(&self, instance: Arc<DynamicObject>) -> Result<Action, Failed> {
        let Some(behaviour) = self.shared.acting(Controller::ServiceCatalog, &key(&instance).0) else {
            return Ok(Action::await_change());
        };
        if going(&instance) {
            return self.deprovision(&behaviour, instance).await;
        }
        let offer = self.offer(&instance);
        let instance = match admission(&instance, offer.as_ref()) {
            Some(patch) => self.shared.patch(&SERVICE_INSTANCE, &instance, patch).await?,
            None => instance,
        };
        let status = &instance.data["status"];
        let reconciled = status["reconciledGeneration"].as_i64() == instance.metadata.generation;
        let provisioned = status["provisionStatus"] == "Provisioned";
        if holds(&instance, "Failed") || (provisioned && reconciled) {
            return Ok(Action::await_change());
        }
        let Some(offer) = offer else {
            return self.report(instance, &Progress::NoClass).await.map(|()| Action::await_change());
        };
        if provisioned {
            return self.report(instance, &Progress::Provisioned).await.map(|()| Action::await_change());
        }
        self.provision(&behaviour, instance, &offer).await
    }
}

/// What an instance wants.
struct Offer {
    class: Arc<DynamicObject>,
    plan: Arc<DynamicObject>,
}

impl ServiceCatalog {
    async fn provision(
        &self,
        behaviour: &Behaviour,
        instance: Arc<DynamicObject>,
        offer: &Offer,
    ) -> Result<Action, Failed> {
        let (namespace, name) = key(&instance);
        let instance = if behaviour.instant {
            instance
        } else {
            let status = status_of(&instance, &Progress::Provisioning);
            self.shared.write_status(&SERVICE_INSTANCE, instance, status).await?
        };
        let ours = offer.class.data["spec"]["serviceBrokerName"] == APPLICATION_BROKER;
        let silent = ours && behaviour.stopped.contains(&Controller::ApplicationBroker);
        if silent || names(&behaviour.never_ready, &SERVICE_INSTANCE, &namespace, &name) {
            return Ok(Action::await_change());
        }
        if let Some(rest) = self.shared.remaining(&instance, "provision", behaviour.delay) {
            return Ok(Action::requeue(rest));
        }
        let answer = if ours {
            self.broker.provision(behaviour, &request(&instance, offer)).await?
        } else {
            Answer::Done
        };
        let (progress, next) = match answer {
            Answer::Done => (Progress::Provisioned, Action::await_change()),
            Answer::Wait(time) => return Ok(Action::requeue(time)),
            Answer::NotNow(why) => (Progress::ProvisionRefused(why), Action::requeue(ASK_AGAIN)),
            Answer::Failed(why) => (Progress::Failed(why), Action::await_change()),
        };
        self.report(instance, &progress).await.map(|()| next)
    }

    async fn deprovision(
        &self,
        behaviour: &Behaviour,
        instance: Arc<DynamicObject>,
    ) -> Result<Action, Failed> {
        let (namespace, name) = key(&instance);
        if !instance.finalizers().iter().any(|finalizer| finalizer == FINALIZER) {
            return Ok(Action::await_change());
        }
        if !self.bindings.get(&format!("{namespace}/{name}")).is_empty() {
            return self.report(instance, &Progress::Bound).await.map(|()| Action::await_change());
        }
        if names(&behaviour.hold_finalizer, &SERVICE_INSTANCE, &namespace, &name) {
            return Ok(Action::await_change());
        }
        if let Some(rest) = self.shared.remaining(&instance, "finalizer", behaviour.finalizer_delay) {
            return Ok(Action::requeue(rest));
        }
        let offer = self.offer(&instance);
        let asked = instance.data["status"]["deprovisionStatus"] == "Required";
        let ours = |offer: &Offer| offer.class.data["spec"]["serviceBrokerName"] == APPLICATION_BROKER;
        if let Some(offer) = offer.filter(|offer| asked && ours(offer)) {
            if behaviour.stopped.contains(&Controller::ApplicationBroker) {
                return Ok(Action::await_change());
            }
            match self.broker.deprovision(behaviour, &request(&instance, &offer)).await? {
                Answer::Done => {}
                Answer::Wait(time) => return Ok(Action::requeue(time)),
                Answer::NotNow(why) | Answer::Failed(why) => {
                    self.report(instance, &Progress::DeprovisionRefused(why)).await?;
                    return Ok(Action::requeue(ASK_AGAIN));
                }
            }
        }
        finalizer::release(&self.shared, &SERVICE_INSTANCE, FINALIZER, &instance).await?;
        Ok(Action::await_change())
    }

    async fn report(&self, instance: Arc<DynamicObject>, progress: &Progress) -> Result<(), Failed> {
        let status = status_of(&instance, progress);
        self.shared.write_status(&SERVICE_INSTANCE, instance, status).await.map(drop)
    }

    /// Class and plan: by reference once they were found, else by what the user said.
    fn offer(&self, instance: &DynamicObject) -> Option<Offer> {
        let (namespace, _) = key(instance);
        let spec = &instance.data["spec"];
        let class = if let Some(name) = spec["serviceClassRef"]["name"].as_str() {
            self.classes.get(&namespace, name)?
        } else {
            let mut classes = self.classes_in.get(&namespace).into_iter();
            classes.find(|class| is_said(spec, "serviceClass", class))?
        };
        if let Some(name) = spec["servicePlanRef"]["name"].as_str() {
            return Some(Offer { class, plan: self.plans.get(&namespace, name)? });
        }
        let plans = self.plans_of.get(&format!("{namespace}/{}", class.name_any()));
        // The only plan of a class need not be named.
        let said = ["ExternalName", "ExternalID", "Name"];
        let is_open =
            plans.len() == 1 && said.iter().all(|field| spec[format!("servicePlan{field}")].is_null());
        let plan = plans.into_iter().find(|plan| is_open || is_said(spec, "servicePlan", plan))?;
        Some(Offer { class, plan })
    }
}

fn request<'a>(instance: &'a DynamicObject, offer: &Offer) -> Request<'a> {
    let id =
        |object: &DynamicObject| object.data["spec"]["externalID"].as_str().unwrap_or_default().to_owned();
    Request { instance, class: id(&offer.class), plan: id(&offer.plan) }
}

/// Whether the user meant this class or plan.
fn is_said(spec: &Value, prefix: &str, object: &DynamicObject) -> bool {
    let same = |field: &str, value: &Value| {
        let said = &spec[format!("{prefix}{field}")];
        said.is_string() && said == value
    };
    same("ExternalName", &object.data["spec"]["externalName"])
        || same("ExternalID", &object.data["spec"]["externalID"])
        || same("Name", &object.name_any().into())
}

/// What the webhook of creation and the search for class and plan have to change.
fn admission(instance: &DynamicObject, offer: Option<&Offer>) -> Option<Value> {
    let spec = &instance.data["spec"];
    let mut patch = json!({});
    // On every creation, whatever its creator says: until the catalog has said something of it, it is new.
    if instance.data["status"].is_null() {
        let user = json!({
            "username": "kubernetes-admin", "uid": "", "groups": ["system:masters", "system:authenticated"],
        });
        if instance.finalizers() != [FINALIZER] || spec["userInfo"] != user {
            patch["metadata"]["finalizers"] = json!([FINALIZER]);
            patch["spec"]["userInfo"] = user;
        }
    }
    if spec["externalID"].as_str().is_none_or(str::is_empty) {
        // As good as any other made-up id, and the same when a look is repeated.
        patch["spec"]["externalID"] = format!("osb-{}", instance.uid().unwrap_or_default()).into();
    }
    if let Some(offer) = offer {
        for (field, object) in [("serviceClassRef", &offer.class), ("servicePlanRef", &offer.plan)] {
            let name = object.name_any();
            if spec[field]["name"] != name {
                patch["metadata"]["labels"][format!("servicecatalog.k8s.io/spec.{field}.name")] =
                    sha(&name).into();
                patch["spec"][field] = json!({"name": name});
            }
        }
    }
    patch.as_object().is_some_and(|patch| !patch.is_empty()).then_some(patch)
}

fn sha(text: &str) -> String {
    Sha224::digest(text.as_bytes()).iter().fold(String::new(), |mut hex, byte| {
        // Writing to a String can't fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// How far an instance is.
enum Progress {
    NoClass,
    Provisioning,
    ProvisionRefused(String),
    Provisioned,
    Failed(String),
    Bound,
    DeprovisionRefused(String),
}

fn status_of(instance: &DynamicObject, progress: &Progress) -> Value {
    let said = |field: &str| instance.data["spec"][field].as_str().unwrap_or_default().to_owned();
    let before = &instance.data["status"];
    let generation = instance.metadata.generation;
    let ready = |truth, reason: &str, message: &str| Condition::new("Ready", truth, reason, message);
    let mut provisioned = before["provisionStatus"] == "Provisioned";
    let mut deprovision = before["deprovisionStatus"].as_str().unwrap_or("NotRequired").to_owned();
    let mut reconciled = before["reconciledGeneration"].as_i64();
    let mut operation = None;
    let wanted = match progress {
        Progress::NoClass => vec![ready(
            Truth::False,
            "ReferencesNonexistentServiceClass",
            "The instance references a ServiceClass or ServicePlan that does not exist.",
        )],
        Progress::Provisioning => {
            "Required".clone_into(&mut deprovision);
            operation = Some("Provision");
            vec![ready(Truth::False, "Provisioning", "The instance is being provisioned asynchronously")]
        }
        Progress::ProvisionRefused(why) => {
            operation = Some("Provision");
            vec![ready(Truth::False, "ErrorCallingProvision", why)]
        }
        Progress::Provisioned => {
            "Required".clone_into(&mut deprovision);
            (provisioned, reconciled) = (true, generation);
            vec![ready(Truth::True, "ProvisionedSuccessfully", "The instance was provisioned successfully")]
        }
        Progress::Failed(why) => {
            "Required".clone_into(&mut deprovision);
            (provisioned, reconciled) = (false, generation);
            let message = format!("Provision call failed: {why}");
            vec![
                ready(Truth::False, "ProvisionCallFailed", &message),
                Condition::new("Failed", Truth::True, "ProvisionCallFailed", &message),
            ]
        }
        Progress::Bound => vec![ready(
            Truth::False,
            "DeprovisionBlockedByExistingCredentials",
            "All associated ServiceBindings must be removed before this ServiceInstance can be deleted",
        )],
        Progress::DeprovisionRefused(why) => {
            operation = Some("Deprovision");
            let message = format!("Deprovision call failed: {why}");
            vec![ready(Truth::Unknown, "DeprovisionCallFailed", &message)]
        }
    };
    let last = match progress {
        Progress::Provisioned => "Ready",
        Progress::NoClass => "ReferencesNonexistentServiceClass",
        Progress::Provisioning => "Provisioning",
        Progress::ProvisionRefused(_) => "ErrorCallingProvision",
        Progress::Failed(_) => "ProvisionCallFailed",
        Progress::Bound => "DeprovisionBlockedByExistingCredentials",
        Progress::DeprovisionRefused(_) => "DeprovisionCallFailed",
    };
    let mut status = json!({
        "conditions": conditions(instance, Shape::Standard, &wanted, &now()),
        "asyncOpInProgress": matches!(progress, Progress::Provisioning),
        "orphanMitigationInProgress": false,
        "provisionStatus": if provisioned { "Provisioned" } else { "NotProvisioned" },
        "deprovisionStatus": deprovision,
        "observedGeneration": generation,
        "reconciledGeneration": reconciled.unwrap_or_default(),
        "lastConditionState": last,
        "userSpecifiedClassName": format!("ServiceClass/{}", said("serviceClassExternalName")),
        "userSpecifiedPlanName": said("servicePlanExternalName"),
    });
    if let Some(operation) = operation {
        status["currentOperation"] = operation.into();
    }
    if provisioned {
        status["externalProperties"] = json!({"servicePlanExternalName": said("servicePlanExternalName")});
    }
    status
}

fn namespace_of(object: &DynamicObject) -> Option<String> {
    object.namespace()
}

/// The class of a plan.
fn class_of_plan(plan: &DynamicObject) -> Option<String> {
    let class = plan.data["spec"]["serviceClassRef"]["name"].as_str()?;
    Some(format!("{}/{class}", key(plan).0))
}

/// The instance of a binding.
fn bound(binding: &DynamicObject) -> Option<String> {
    let instance = binding.data["spec"]["instanceRef"]["name"].as_str()?;
    Some(format!("{}/{instance}", key(binding).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instance(spec: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceInstance",
            "metadata": {"name": "i", "namespace": "n", "uid": "u", "generation": 2, "finalizers": ["x/mine"]},
            "spec": spec,
        }))
        .unwrap()
    }

    #[test]
    fn on_creation_the_catalog_replaces_finalizers_and_keeps_the_external_id() {
        let patch = admission(&instance(&json!({"externalID": "kept"})), None).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!([FINALIZER]));
        assert!(patch["spec"]["userInfo"].is_object() && patch["spec"].get("externalID").is_none());
        let patch = admission(&instance(&json!({})), None).unwrap();
        assert_eq!(patch["spec"]["externalID"], "osb-u");
    }

    #[test]
    fn on_creation_the_catalog_replaces_finalizers_and_user_also_beside_its_own() {
        let said = json!({"externalID": "kept", "userInfo": {"username": "somebody"}});
        let mut new = instance(&said);
        new.metadata.finalizers = Some(vec![FINALIZER.into(), "x/mine".into()]);
        let patch = admission(&new, None).unwrap();
        assert_eq!(patch["metadata"]["finalizers"], json!([FINALIZER]));
        assert_eq!(patch["spec"]["userInfo"]["username"], "kubernetes-admin");
        // Later what others put on stays.
        new.data["status"] = json!({"provisionStatus": "Provisioned"});
        assert!(admission(&new, None).is_none());
    }

    #[test]
    fn a_failed_instance_says_so_twice() {
        let status = status_of(&instance(&json!({})), &Progress::Failed("no channel".into()));
        assert_eq!(status["provisionStatus"], "NotProvisioned");
        assert_eq!(status["conditions"][1]["type"], "Failed");
        assert!(status["conditions"][1]["message"].as_str().unwrap().contains("no channel"));
        assert_eq!(status["reconciledGeneration"], 2);
    }

    #[test]
    fn labels_of_references_fit_into_a_label() {
        assert_eq!(sha("a").len(), 56);
    }
}
