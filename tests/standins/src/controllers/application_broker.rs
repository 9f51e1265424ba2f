//! Plays the application-broker: what the Service Catalog asks when an Application's service is wanted in a namespace.
//!
//! The facts it plays. A provision needs an `ApplicationMapping`; for a service with events it makes an
//! `EventActivation` named like the service, then the link (a Knative Subscription from the Application's Channel to
//! the namespace's Broker, unless there is exactly one), then labels the namespace. Without a Channel it fails after
//! the `EventActivation` was made. One `EventActivation` that is there already is taken over, even one that is going:
//! then there is none in the end. A deprovision removes the link, whatever the service was, and fails where the
//! Application is gone or where there are two links.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use clap::ValueEnum;
use kube::ResourceExt;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Mutex as AsyncMutex;

use super::event_activation::FINALIZER;
use crate::behaviour::{Behaviour, BrokerRelease, names};
use crate::engine::{Failed, Index, MANAGER, Mirror, Seen, Setup, Shared, going, key};
use crate::kinds::{
    APPLICATION, APPLICATION_MAPPING, CHANNEL, EVENT_ACTIVATION, KNATIVE_SUBSCRIPTION, NAMESPACE,
    SERVICE_INSTANCE,
};

/// Makes Knative put a Broker into a namespace.
pub const INJECTION_LABEL: &str = "knative-eventing-injection";
/// On a namespace: what the broker does there, in place of the behaviour.
pub const RELEASE_ANNOTATION: &str = "standins.belay.dev/broker-release";

/// How soon the catalog asks how far it is.
const POLL: Duration = Duration::from_millis(30);

/// What the broker says.
pub enum Answer {
    /// It is done.
    Done,
    /// Ask again.
    Wait(Duration),
    /// Not done, and nothing was begun: the catalog may ask again.
    NotNow(String),
    /// It was tried and failed, for good.
    Failed(String),
}

/// What the catalog wants of the broker.
pub struct Request<'a> {
    /// For this instance,
    pub instance: &'a DynamicObject,
    /// of the class with this external id,
    pub class: String,
    /// and of the plan with that one. In API-packages mode the plan is the service, and the class the Application.
    pub plan: String,
}

/// The broker.
pub struct ApplicationBroker {
    shared: Arc<Shared>,
    services: Arc<Mutex<HashMap<String, Service>>>,
    mappings: Mirror,
    channels: Index,
    links: Index,
    instances: Index,
    namespaces: Mirror,
    pairs: Mutex<HashMap<String, Arc<AsyncMutex<()>>>>,
    own: Arc<Mutex<Own>>,
}

/// A service of an Application.
#[derive(Clone)]
struct Service {
    id: String,
    application: String,
    display_name: String,
    has_events: bool,
}

/// What the mirror of links does not show yet: by Application and namespace the one that was made, and those that were
/// removed.
#[derive(Default)]
struct Own {
    made: HashMap<String, String>,
    removed: HashSet<String>,
}

impl ApplicationBroker {
    /// Begins to watch what the broker knows.
    pub fn start(setup: &mut Setup<'_>) -> Self {
        let own = Arc::<Mutex<Own>>::default();
        let seen_links = own.clone();
        setup.on(&KNATIVE_SUBSCRIPTION, move |seen| {
            let mut own = lock(&seen_links);
            match seen {
                Seen::Applied(link) => own.made.retain(|_, made| link.metadata.uid.as_ref() != Some(made)),
                Seen::Deleted(link) => {
                    own.made.retain(|_, made| link.metadata.uid.as_ref() != Some(made));
                    own.removed.remove(&link.uid().unwrap_or_default());
                }
                Seen::Listed => *own = Own::default(),
            }
        });
        let services = Arc::<Mutex<HashMap<String, Service>>>::default();
        let (all, known) = (setup.mirror(&APPLICATION), services.clone());
        setup.on(&APPLICATION, move |seen| {
            let mut known = lock(&known);
            match seen {
                Seen::Applied(application) | Seen::Deleted(application) => {
                    let name = application.name_any();
                    known.retain(|_, service| service.application != name);
                    if matches!(seen, Seen::Applied(_)) {
                        known.extend(services_of(application));
                    }
                }
                Seen::Listed => *known = all.all().iter().flat_map(|a| services_of(a)).collect(),
            }
        });
        Self {
            shared: setup.shared.clone(),
            services,
            mappings: setup.mirror(&APPLICATION_MAPPING),
            channels: setup.index(&CHANNEL, channel_of),
            links: setup.index(&KNATIVE_SUBSCRIPTION, linked),
            instances: setup.index(&SERVICE_INSTANCE, same_service),
            namespaces: setup.mirror(&NAMESPACE),
            pairs: Mutex::default(),
            own,
        }
    }

    /// Provides the service in the instance's namespace.
    pub async fn provision(&self, behaviour: &Behaviour, request: &Request<'_>) -> Result<Answer, Failed> {
        let instance = request.instance;
        let (namespace, name) = key(instance);
        let named = |entries: &[String]| names(entries, &SERVICE_INSTANCE, &namespace, &name);
        if instance.data["spec"]["parameters"].as_object().is_some_and(|given| !given.is_empty()) {
            let why = "application-broker does not support configuration options for provisioning";
            return Ok(Answer::Failed(why.to_owned()));
        }
        let Some(service) = self.service(request) else {
            return Ok(Answer::NotNow(format!("no Application has the service {}", request.class)));
        };
        let application = &service.application;
        if self.mappings.get(&namespace, application).is_none() {
            let why = format!(
                "Forbidden provisioning instance for application {application} in namespace {namespace}: \
                 there is no ApplicationMapping"
            );
            return Ok(Answer::Failed(why));
        }
        if named(&behaviour.refuse) {
            return Ok(Answer::Failed("the broker was told to refuse".to_owned()));
        }
        if !service.has_events {
            return Ok(Answer::Done);
        }
        let release = self.release(behaviour, &namespace);
        if !named(&behaviour.no_activation)
            && let Err(why) = self.activate(behaviour, release, instance, &service).await?
        {
            return Ok(Answer::Failed(format!("provisioning failed while creating EventActivation: {why}")));
        }
        if release == BrokerRelease::BeforeMesh || named(&behaviour.no_link) {
            return Ok(Answer::Done);
        }
        let pair = pair(&namespace, application);
        let channel = self.channels.get(&format!("{}/{application}", behaviour.integration));
        let Some(channel) = channel.first().map(|channel| channel.name_any()) else {
            let why = format!(
                "provisioning failed while persisting Knative Subscription for application: {application} \
                 namespace: {namespace} on error: getting the Knative channel for the application: not found"
            );
            return Ok(Answer::Failed(why));
        };
        let one_at_a_time = lock(&self.pairs).entry(pair.clone()).or_default().clone();
        let alone = if behaviour.race_links { None } else { Some(one_at_a_time.lock().await) };
        let there = self.links.get(&pair);
        if !behaviour.race_links && there.iter().any(|link| self.is_leaving(link)) {
            return Ok(Answer::Wait(POLL));
        }
        let made = !behaviour.race_links && lock(&self.own).made.contains_key(&pair);
        if there.len() > 1 {
            return Ok(Answer::Failed(format!("{} Knative Subscriptions link {pair}", there.len())));
        }
        if there.is_empty() && !made {
            let manifest = link(behaviour, &namespace, application, &channel);
            self.make_link(&pair, manifest.clone()).await?;
            if named(&behaviour.two_links) {
                let mut second = manifest;
                if let Some(name) = second["metadata"]["name"].as_str() {
                    second["metadata"]["name"] = format!("{name}-again").into();
                }
                self.make_link(&pair, second).await?;
            }
        }
        drop(alone);
        self.enable_injection(&namespace).await?;
        Ok(Answer::Done)
    }

    /// Takes the service away from the instance's namespace.
    pub async fn deprovision(&self, behaviour: &Behaviour, request: &Request<'_>) -> Result<Answer, Failed> {
        let instance = request.instance;
        let (namespace, name) = key(instance);
        if names(&behaviour.refuse_deprovision, &SERVICE_INSTANCE, &namespace, &name) {
            return Ok(Answer::Failed("the broker was told to refuse".to_owned()));
        }
        let Some(service) = self.service(request) else {
            let why = format!("getting application with id {} from storage: not found", request.class);
            return Ok(Answer::Failed(why));
        };
        let links = self.links.get(&pair(&namespace, &service.application));
        let staying: Vec<_> = links.iter().filter(|link| !self.is_leaving(link)).collect();
        if staying.len() > 1 {
            return Ok(Answer::Failed("failed to deprovision Subscription: there are two".to_owned()));
        }
        for link in &staying {
            self.shared.delete(&KNATIVE_SUBSCRIPTION, link).await?;
            lock(&self.own).removed.insert(link.uid().unwrap_or_default());
        }
        let others = same_service(instance).map(|same| self.instances.get(&same)).unwrap_or_default();
        let is_last = !others.iter().any(|other| other.uid() != instance.uid() && !going(other));
        if self.release(behaviour, &namespace) == BrokerRelease::V1_11 && is_last {
            let api = EVENT_ACTIVATION.within(&self.shared.client, &namespace);
            if let Some(activation) = api.get_opt(&service.id).await? {
                self.shared.delete(&EVENT_ACTIVATION, &activation).await?;
            }
        }
        // The catalog asks whether it is done a second later, when Knative has long let the link go.
        let wait = if behaviour.race_links { !staying.is_empty() } else { !links.is_empty() };
        Ok(if wait { Answer::Wait(POLL) } else { Answer::Done })
    }

    fn service(&self, request: &Request<'_>) -> Option<Service> {
        let services = lock(&self.services);
        services.get(&request.class).or_else(|| services.get(&request.plan)).cloned()
    }

    fn release(&self, behaviour: &Behaviour, namespace: &str) -> BrokerRelease {
        let found = self.namespaces.get("", namespace);
        let said = found.as_ref().and_then(|n| n.annotations().get(RELEASE_ANNOTATION));
        said.and_then(|said| BrokerRelease::from_str(said, false).ok()).unwrap_or(behaviour.broker_release)
    }

    /// Whether the link is going, or about to.
    fn is_leaving(&self, link: &DynamicObject) -> bool {
        going(link) || lock(&self.own).removed.contains(&link.uid().unwrap_or_default())
    }

    /// Makes the `EventActivation`, or takes over the one that bears the name; says what went wrong.
    async fn activate(
        &self,
        behaviour: &Behaviour,
        release: BrokerRelease,
        instance: &DynamicObject,
        service: &Service,
    ) -> Result<Result<(), String>, Failed> {
        let (namespace, name) = key(instance);
        let owners = json!([{
            "apiVersion": SERVICE_INSTANCE.api_version(),
            "kind": SERVICE_INSTANCE.kind,
            "name": name,
            "uid": instance.uid(),
        }]);
        let mut manifest = json!({
            "apiVersion": EVENT_ACTIVATION.api_version(),
            "kind": EVENT_ACTIVATION.kind,
            "metadata": {"name": service.id, "namespace": namespace},
            "spec": {"sourceId": service.application, "displayName": service.display_name},
        });
        if behaviour.instant {
            // The Event Bus would put it on first thing: one write less.
            manifest["metadata"]["finalizers"] = json!([FINALIZER]);
        }
        let owned = release != BrokerRelease::V1_11;
        if owned {
            manifest["metadata"]["ownerReferences"] = owners.clone();
        }
        if self.shared.create(&EVENT_ACTIVATION, manifest).await?.is_none() && owned {
            let patch = Patch::Merge(json!({"metadata": {"ownerReferences": owners}}));
            let api = EVENT_ACTIVATION.within(&self.shared.client, &namespace);
            match api.patch(&service.id, &by_us(), &patch).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Err(status.message)),
                other => drop(other?),
            }
        }
        Ok(Ok(()))
    }

    async fn make_link(&self, pair: &str, manifest: Value) -> Result<(), Failed> {
        let Some(made) = self.shared.create(&KNATIVE_SUBSCRIPTION, manifest).await? else { return Ok(()) };
        let uid = made.uid().unwrap_or_default();
        if !self.links.get(pair).iter().any(|link| link.metadata.uid.as_ref() == Some(&uid)) {
            lock(&self.own).made.insert(pair.to_owned(), uid);
        }
        Ok(())
    }

    async fn enable_injection(&self, namespace: &str) -> Result<(), Failed> {
        let found = self.namespaces.get("", namespace);
        if found.is_some_and(|n| n.labels().get(INJECTION_LABEL).is_some_and(|value| value == "enabled")) {
            return Ok(());
        }
        let patch = Patch::Merge(json!({"metadata": {"labels": {INJECTION_LABEL: "enabled"}}}));
        NAMESPACE.everywhere(&self.shared.client).patch(namespace, &by_us(), &patch).await?;
        Ok(())
    }
}

fn by_us() -> PatchParams {
    PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pair(namespace: &str, application: &str) -> String {
    format!("{namespace}/{application}")
}

fn link(behaviour: &Behaviour, namespace: &str, application: &str, channel: &str) -> Value {
    let mut manifest = json!({
        "apiVersion": KNATIVE_SUBSCRIPTION.api_version(),
        "kind": KNATIVE_SUBSCRIPTION.kind,
        "metadata": {
            "namespace": behaviour.integration,
            "labels": {"broker-namespace": namespace, "application-name": application},
        },
        "spec": {
            "channel": {"apiVersion": CHANNEL.api_version(), "kind": CHANNEL.kind, "name": channel},
            "subscriber": {"uri": format!("http://default-broker.{namespace}")},
        },
    });
    if behaviour.steady_names {
        manifest["metadata"]["name"] = format!("brokersub-{namespace}-{application}").into();
    } else {
        manifest["metadata"]["generateName"] = "brokersub-".into();
    }
    manifest
}

fn services_of(application: &DynamicObject) -> Vec<(String, Service)> {
    let services = application.data["spec"]["services"].as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    services
        .iter()
        .map(|service| {
            let entries = service["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
            let id = text(&service["id"]);
            let service = Service {
                id: id.clone(),
                application: application.name_any(),
                display_name: text(&service["displayName"]),
                has_events: entries.iter().any(|entry| entry["type"] == "Events"),
            };
            (id, service)
        })
        .collect()
}

/// Namespace and Application of a Channel.
fn channel_of(channel: &DynamicObject) -> Option<String> {
    let application = channel.labels().get("application-name")?;
    Some(format!("{}/{application}", key(channel).0))
}

/// Namespace and Application that a Knative Subscription links.
pub fn linked(subscription: &DynamicObject) -> Option<String> {
    let labels = subscription.labels();
    Some(pair(labels.get("broker-namespace")?, labels.get("application-name")?))
}

/// Namespace, class and plan of an instance.
fn same_service(instance: &DynamicObject) -> Option<String> {
    let spec = &instance.data["spec"];
    let (class, plan) = (spec["serviceClassRef"]["name"].as_str()?, spec["servicePlanRef"]["name"].as_str()?);
    Some(format!("{}/{class}/{plan}", key(instance).0))
}
