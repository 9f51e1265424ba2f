//! Whole scenes from before the mesh: Applications with their sources, namespaces that use them, legacy Subscriptions
//! that deliver, and the workloads of the system. Everything is made through the API, and the running stand-ins do
//! their part: `HttpSource`, `ServiceCatalog`, `Subscription` and `EventActivation` at least, for workloads `Kubelet`
//! (or nodes), and for namespaces on the mesh `KnativeSubscription`, `Broker` and `Trigger`.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::cluster::ensure_namespace;
use crate::conditions::holds;
use crate::engine::{MANAGER, key};
use crate::fixtures::{
    IMAGE, application_mapping, application_operator, application_with, broker, deployment, event_service,
    http_source, legacy_subscription, link, service_broker, service_class, service_id, service_instance,
    service_plan, trigger,
};
use crate::kinds::{
    BROKER, DEPLOYMENT, EVENT_ACTIVATION, HTTP_SOURCE, KNATIVE_SUBSCRIPTION, Kind, LEGACY_SUBSCRIPTION,
    NAMESPACE, SERVICE_INSTANCE, STATEFUL_SET, TRIGGER,
};
use crate::seed::{EVENT_BUS, INTEGRATION, SOURCE_CONTROLLER, SYSTEM};
use crate::{APPLICATION_OPERATOR, INJECTION_LABEL, RELEASE_ANNOTATION, SUBSCRIPTION_FINALIZER};

/// The image of event services before the upgrade.
pub const OLD_EVENT_SERVICE: &str = "event-service:b2aa1331";
/// The image of event services after the upgrade.
pub const NEW_EVENT_SERVICE: &str = "event-service:cd9874af";

/// Calls at the same time, while a scene is filled.
const AT_ONCE: usize = 24;

/// How far a namespace is on its way to the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mesh {
    /// Not at all: no link, no label, no Broker.
    #[default]
    Not,
    /// Its links exist, but neither the label nor a Broker.
    LinksOnly,
    /// Label and Broker exist, but no links.
    BrokerOnly,
    /// Complete: links, label, Broker, all Ready.
    Complete,
}

/// How far a subscription is on its way to the mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// A legacy Subscription alone.
    #[default]
    Legacy,
    /// A legacy Subscription, and already the Trigger that replaces it. Its namespace must have a Broker.
    Migrated,
    /// A Trigger alone. Its namespace must have a Broker.
    TriggerOnly,
}

/// A `ServiceInstance` of a scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Application whose service it is.
    pub application: String,
}

/// A subscription of a scene.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    /// Its namespace.
    pub namespace: String,
    /// Its name, and that of the Trigger.
    pub name: String,
    /// The source.
    pub application: String,
    /// The type; the version is always v1.
    pub event_type: String,
    /// Where the events go.
    pub endpoint: String,
    /// Labels of the object.
    pub labels: BTreeMap<String, String>,
    /// Subscription, Trigger, or both.
    pub state: State,
}

/// A scene. All fields can be changed before it is filled.
#[derive(Clone, Debug)]
pub struct Scene {
    /// Namespace of the system's own workloads.
    pub system: String,
    /// Namespace of what belongs to Applications.
    pub integration: String,
    /// Each Application with the id of its service.
    pub applications: BTreeMap<String, String>,
    /// Namespaces that are on the mesh, or on the way; all others are not.
    pub mesh: BTreeMap<String, Mesh>,
    /// What is in use.
    pub instances: Vec<Instance>,
    /// Whether instances bring the id that they have at their broker. The catalog would make up another one each time.
    pub known_ids: bool,
    /// Who receives events.
    pub subscriptions: Vec<Subscription>,
    /// Whether the workloads exist: the source controller, the Event Bus, the application-operator, event services.
    pub workloads: bool,
    /// Image of the workloads but the event services; on a cluster with nodes it must hold this crate's binary.
    pub image: String,
    /// Image of the event services, which do not feed the mesh.
    pub event_service_image: String,
    /// How long each part may take.
    pub within: Duration,
}

/// How big a scene is.
#[derive(Args, Clone, Copy, Debug)]
pub struct Size {
    /// Applications.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub applications: usize,
    /// Namespaces.
    #[arg(long, default_value_t = 2, value_name = "N")]
    pub namespaces: usize,
    /// Instances, spread over namespaces and Applications.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub instances: usize,
    /// Legacy Subscriptions, spread over the instances.
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub subscriptions: usize,
}

impl Scene {
    /// A scene with these Applications, and nothing that uses them.
    #[must_use]
    pub fn new(applications: &[&str]) -> Self {
        Self {
            system: SYSTEM.to_owned(),
            integration: INTEGRATION.to_owned(),
            applications: applications.iter().map(|name| ((*name).to_owned(), service_id(name))).collect(),
            mesh: BTreeMap::new(),
            instances: Vec::new(),
            known_ids: false,
            subscriptions: Vec::new(),
            workloads: false,
            image: IMAGE.to_owned(),
            event_service_image: OLD_EVENT_SERVICE.to_owned(),
            within: Duration::from_secs(60),
        }
    }

    /// Adds an instance of the Application's service, with the Application's name.
    #[must_use]
    pub fn instance(mut self, namespace: &str, application: &str) -> Self {
        self.instances.push(Instance {
            namespace: namespace.to_owned(),
            name: application.to_owned(),
            application: application.to_owned(),
        });
        self
    }

    /// Adds a subscription to `NAME.created` events, delivered to a service of the same name.
    #[must_use]
    pub fn subscription(mut self, namespace: &str, name: &str, application: &str, state: State) -> Self {
        self.subscriptions.push(Subscription {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            application: application.to_owned(),
            event_type: format!("{name}.created"),
            endpoint: format!("http://{name}.{namespace}:8080/"),
            labels: BTreeMap::new(),
            state,
        });
        self
    }

    /// Says how far a namespace is on its way to the mesh.
    #[must_use]
    pub fn on_mesh(mut self, namespace: &str, mesh: Mesh) -> Self {
        self.mesh.insert(namespace.to_owned(), mesh);
        self
    }

    /// With the workloads of the system.
    #[must_use]
    pub fn with_workloads(mut self) -> Self {
        self.workloads = true;
        self
    }

    /// What steps are crashed on: two namespaces, three instances, four Subscriptions, one of them already migrated,
    /// so that its namespace has a Broker, but no link.
    #[must_use]
    pub fn small(one: &str, other: &str) -> Self {
        Self::new(&["commerce", "logistics"])
            .instance(one, "commerce")
            .instance(one, "logistics")
            .instance(other, "commerce")
            .on_mesh(other, Mesh::BrokerOnly)
            .subscription(one, "orders", "commerce", State::Legacy)
            .subscription(one, "parcels", "logistics", State::Legacy)
            .subscription(other, "orders", "commerce", State::Legacy)
            .subscription(other, "invoices", "commerce", State::Migrated)
    }

    /// The scene of the real system's upgrade test: one namespace whose link exists but whose label and Broker were
    /// taken away, and one that is on the mesh and must be left alone.
    #[must_use]
    pub fn upgrade_test() -> Self {
        let bus = ("migratefromeventbusupgradetest", "migrate-eventbus-upgrade");
        let mesh = ("migratefromeventmeshupgradetest", "migrate-eventmesh-upgrade");
        let mut scene = Self::new(&[])
            .instance(bus.0, bus.1)
            .instance(mesh.0, mesh.1)
            .on_mesh(bus.0, Mesh::LinksOnly)
            .on_mesh(mesh.0, Mesh::Complete)
            .with_workloads();
        for ((namespace, name), state) in [(bus, State::Legacy), (mesh, State::TriggerOnly)] {
            scene.applications.insert(name.to_owned(), name.to_owned());
            scene.subscriptions.push(Subscription {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                application: name.to_owned(),
                event_type: name.to_owned(),
                endpoint: format!("http://{name}.{namespace}.svc.cluster.local:9000/v3/events"),
                labels: BTreeMap::from([("function".to_owned(), name.to_owned())]),
                state,
            });
        }
        scene
    }

    /// A scene of any size: nothing is on the mesh, and no workloads.
    #[must_use]
    pub fn many(size: Size) -> Self {
        let (namespaces, applications) = (size.namespaces.max(1), size.applications.max(1));
        let application = |n: usize| format!("app-{:04}", n % applications + 1);
        let namespace = |n: usize| format!("user-{:04}", n % namespaces + 1);
        let mut scene = Self::new(&[]);
        for n in 0..applications {
            scene.applications.insert(application(n), service_id(&application(n)));
        }
        for n in 0..size.instances {
            let application = application(n / namespaces);
            let name = format!("{application}-{n}");
            scene.instances.push(Instance { namespace: namespace(n), name, application });
        }
        for n in 0..size.subscriptions {
            // Of an instance's own source, since no other is activated in its namespace.
            let Some(instance) = scene.instances.get(n % size.instances.max(1)) else { break };
            scene.subscriptions.push(Subscription {
                namespace: instance.namespace.clone(),
                name: format!("orders-{n}"),
                application: instance.application.clone(),
                event_type: format!("order.created.{n}"),
                endpoint: format!("http://orders-{n}.{}:8080/", instance.namespace),
                ..Subscription::default()
            });
        }
        scene
    }

    /// The users' namespaces.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<String> {
        let instances = self.instances.iter().map(|instance| &instance.namespace);
        let subscriptions = self.subscriptions.iter().map(|subscription| &subscription.namespace);
        instances.chain(subscriptions).chain(self.mesh.keys()).cloned().collect()
    }

    /// Each namespace with each Application that is in use there.
    #[must_use]
    pub fn pairs(&self) -> Vec<(String, String)> {
        let pairs = self.instances.iter().map(|i| (i.namespace.clone(), i.application.clone()));
        pairs.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Makes all of it, and waits until it is as described. What is there already is left as it is, but for labels of
    /// the namespaces.
    pub async fn fill(&self, client: &Client) -> Result<()> {
        for namespace in [&self.system, &self.integration] {
            ensure_namespace(client, namespace).await?;
        }
        let namespaces = self.namespaces();
        each(namespaces.iter(), |namespace| self.begin(client, namespace)).await?;
        if self.workloads {
            put_all(client, self.workload_manifests()).await?;
        }
        let applications = self.applications.iter();
        put_all(client, applications.map(|(name, id)| application_with(name, &[(id, &["Events"])]))).await?;
        put_all(client, self.applications.keys().map(|name| http_source(name, &self.integration))).await?;
        let sources = self.applications.keys().map(|name| (self.integration.clone(), name.clone()));
        self.wait(client, &HTTP_SOURCE, sources.collect(), is_ready).await?;

        put_all(client, self.offers()?).await?;
        let instances = self.instances.iter();
        let made = instances.clone().map(|i| {
            let mut instance = service_instance(&i.name, &i.namespace, self.service(&i.application)?);
            if self.known_ids {
                instance["spec"]["externalID"] = format!("id-of-{}", i.name).into();
            }
            Ok(instance)
        });
        put_all(client, made.collect::<Result<Vec<_>>>()?).await?;
        let links = namespaces.iter().filter(|namespace| self.mesh_of(namespace) == Mesh::LinksOnly);
        let links = links.flat_map(|namespace| {
            let applications = self.applications_in(namespace);
            applications.into_iter().map(move |application| {
                let name = format!("brokersub-{namespace}-{application}");
                link(&name, &self.integration, application, namespace)
            })
        });
        put_all(client, links.collect::<Vec<_>>()).await?;
        let wanted = instances.clone().map(|i| (i.namespace.clone(), i.name.clone())).collect();
        self.wait(client, &SERVICE_INSTANCE, wanted, |i| {
            i.data["status"]["provisionStatus"] == "Provisioned"
        })
        .await?;
        let wanted = instances
            .map(|i| Ok((i.namespace.clone(), self.service(&i.application)?.to_owned())))
            .collect::<Result<_>>()?;
        self.wait(client, &EVENT_ACTIVATION, wanted, |_| true).await?;

        let legacy = self.subscriptions.iter().filter(|s| s.state != State::TriggerOnly);
        put_all(client, legacy.clone().map(|s| s.manifest(false))).await?;
        let wanted = legacy.map(|s| (s.namespace.clone(), s.name.clone())).collect();
        self.wait(client, &LEGACY_SUBSCRIPTION, wanted, |s| holds(s, "is-ready")).await?;

        self.fill_mesh(client, &namespaces).await?;
        each(namespaces.iter(), |namespace| annotate(client, namespace, json!({RELEASE_ANNOTATION: null})))
            .await?;
        if self.workloads {
            self.wait_for_workloads(client).await?;
        }
        Ok(())
    }

    /// What is on the mesh already.
    async fn fill_mesh(&self, client: &Client, namespaces: &BTreeSet<String>) -> Result<()> {
        let meshed =
            namespaces.iter().filter(|n| matches!(self.mesh_of(n), Mesh::BrokerOnly | Mesh::Complete));
        put_all(client, meshed.clone().map(|namespace| broker(namespace))).await?;
        let wanted = meshed.map(|namespace| (namespace.clone(), "default".to_owned())).collect();
        self.wait(client, &BROKER, wanted, is_ready).await?;
        let triggers = self.subscriptions.iter().filter(|s| s.state != State::Legacy);
        put_all(client, triggers.clone().map(|s| s.manifest(true))).await?;
        let wanted = triggers.map(|s| (s.namespace.clone(), s.name.clone())).collect();
        self.wait(client, &TRIGGER, wanted, is_ready).await?;
        let linked: BTreeSet<_> = namespaces
            .iter()
            .filter(|n| matches!(self.mesh_of(n), Mesh::LinksOnly | Mesh::Complete))
            .flat_map(|n| self.applications_in(n).into_iter().map(|a| (n.clone(), a.to_owned())))
            .collect();
        wait_for(client, &KNATIVE_SUBSCRIPTION, self.within, linked, is_ready, linked_pair).await
    }

    /// The namespace, without or with the label, and with a broker that knows nothing of the mesh where that is wanted.
    async fn begin(&self, client: &Client, namespace: &str) -> Result<()> {
        ensure_namespace(client, namespace).await?;
        let mesh = self.mesh_of(namespace);
        let release = if mesh == Mesh::Complete { Value::Null } else { "before-mesh".into() };
        let label = match mesh {
            Mesh::BrokerOnly | Mesh::Complete => "enabled".into(),
            Mesh::Not | Mesh::LinksOnly => Value::Null,
        };
        let patch = json!({"metadata": {
            "labels": {INJECTION_LABEL: label}, "annotations": {RELEASE_ANNOTATION: release},
        }});
        merge(client, &NAMESPACE, "", namespace, patch).await
    }

    fn mesh_of(&self, namespace: &str) -> Mesh {
        self.mesh.get(namespace).copied().unwrap_or_default()
    }

    fn service(&self, application: &str) -> Result<&str> {
        let id = self.applications.get(application).map(String::as_str);
        id.with_context(|| format!("the scene has no Application {application}"))
    }

    fn applications_in(&self, namespace: &str) -> BTreeSet<&str> {
        let instances = self.instances.iter().filter(|instance| instance.namespace == namespace);
        instances.map(|instance| instance.application.as_str()).collect()
    }

    /// What the Service Catalog offers in each namespace.
    fn offers(&self) -> Result<Vec<Value>> {
        let mut offers = Vec::new();
        for namespace in self.namespaces() {
            offers.push(service_broker(&namespace));
            for application in self.applications_in(&namespace) {
                let service = self.service(application)?;
                offers.push(application_mapping(application, &namespace));
                offers.push(service_class(service, &namespace));
                offers.push(service_plan(service, &namespace));
            }
        }
        Ok(offers)
    }

    fn workload_manifests(&self) -> Vec<Value> {
        let mut manifests: Vec<_> = [(SOURCE_CONTROLLER, 1)]
            .into_iter()
            .chain(EVENT_BUS)
            .map(|(name, replicas)| deployment(name, &self.system, replicas, &self.image))
            .collect();
        let mut operator = application_operator(&self.integration, &self.event_service_image);
        operator["spec"]["template"]["spec"]["containers"][0]["image"] = self.image.as_str().into();
        manifests.push(operator);
        for application in self.applications.keys() {
            manifests.push(event_service(application, &self.integration, &self.event_service_image, false));
        }
        manifests
    }

    async fn wait_for_workloads(&self, client: &Client) -> Result<()> {
        let available = |w: &DynamicObject| {
            w.data["status"]["availableReplicas"].as_u64().unwrap_or_default()
                >= w.data["spec"]["replicas"].as_u64().unwrap_or(1)
        };
        let system = [(SOURCE_CONTROLLER, 1)].into_iter().chain(EVENT_BUS);
        let system = system.map(|(name, _)| (self.system.clone(), name.to_owned()));
        let services =
            self.applications.keys().map(|a| (self.integration.clone(), format!("{a}-event-service")));
        self.wait(client, &DEPLOYMENT, system.chain(services).collect(), available).await?;
        let operator = BTreeSet::from([(self.integration.clone(), APPLICATION_OPERATOR.to_owned())]);
        self.wait(client, &STATEFUL_SET, operator, available).await
    }

    async fn wait(
        &self,
        client: &Client,
        kind: &Kind,
        wanted: BTreeSet<(String, String)>,
        check: impl Fn(&DynamicObject) -> bool,
    ) -> Result<()> {
        wait_for(client, kind, self.within, wanted, check, key).await
    }
}

impl Subscription {
    fn manifest(&self, as_trigger: bool) -> Value {
        let make = if as_trigger { trigger } else { legacy_subscription };
        let mut manifest =
            make(&self.name, &self.namespace, &self.application, &self.event_type, &self.endpoint);
        if !as_trigger {
            // What the Event Bus would put on first thing: a scene of thousands is filled sooner with it.
            manifest["metadata"]["finalizers"] = json!([SUBSCRIPTION_FINALIZER]);
        }
        if !self.labels.is_empty() {
            manifest["metadata"]["labels"] = json!(self.labels);
        }
        manifest
    }
}

/// Namespace and Application of every link that is Ready, in order: where one pair has two links, it is there twice.
pub async fn ready_links(client: &Client, integration: &str) -> Result<Vec<(String, String)>> {
    let of_the_broker = ListParams::default().labels("broker-namespace");
    let links = KNATIVE_SUBSCRIPTION.within(client, integration).list(&of_the_broker).await?;
    let mut pairs: Vec<_> = links.iter().filter(|link| is_ready(link)).map(linked_pair).collect();
    pairs.sort();
    Ok(pairs)
}

/// The namespace and the Application that a link is for.
fn linked_pair(link: &DynamicObject) -> (String, String) {
    let label = |name: &str| link.labels().get(name).cloned().unwrap_or_default();
    (label("broker-namespace"), label("application-name"))
}

/// Rolls the application-operator to an image of the event services, as the upgrade of its chart does.
pub async fn upgrade_operator(client: &Client, integration: &str, image: &str) -> Result<()> {
    let args =
        application_operator(integration, image)["spec"]["template"]["spec"]["containers"][0]["args"].take();
    let patch = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/args", "value": args}]);
    let patch: Patch<Value> = Patch::Json(serde_json::from_value(patch)?);
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    STATEFUL_SET.within(client, integration).patch(APPLICATION_OPERATOR, &params, &patch).await?;
    Ok(())
}

fn is_ready(object: &DynamicObject) -> bool {
    holds(object, "Ready")
}

async fn annotate(client: &Client, namespace: &str, annotations: Value) -> Result<()> {
    merge(client, &NAMESPACE, "", namespace, json!({"metadata": {"annotations": annotations}})).await
}

async fn merge(client: &Client, kind: &Kind, namespace: &str, name: &str, patch: Value) -> Result<()> {
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    kind.within(client, namespace).patch(name, &params, &Patch::Merge(patch)).await?;
    Ok(())
}

/// Does it for each, some at the same time.
async fn each<T, F: Future<Output = Result<()>>>(
    items: impl Iterator<Item = T>,
    act: impl Fn(T) -> F,
) -> Result<()> {
    stream::iter(items).map(act).buffer_unordered(AT_ONCE).try_for_each(|()| async { Ok(()) }).await
}

/// Creates what is not there yet.
async fn put_all(client: &Client, manifests: impl IntoIterator<Item = Value>) -> Result<()> {
    each(manifests.into_iter(), |manifest| async move {
        let kind = Kind::of(&manifest)?;
        let object: DynamicObject = serde_json::from_value(manifest)?;
        let (namespace, name) = key(&object);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match kind.within(client, &namespace).create(&params, &object).await {
            Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
            other => {
                other.map(drop).with_context(|| format!("cannot create {} {namespace}/{name}", kind.kind))
            }
        }
    })
    .await
}

/// Waits until an object with each wanted name is as it shall be. One watch, since there may be thousands.
async fn wait_for(
    client: &Client,
    kind: &Kind,
    within: Duration,
    mut wanted: BTreeSet<(String, String)>,
    check: impl Fn(&DynamicObject) -> bool,
    name_of: impl Fn(&DynamicObject) -> (String, String),
) -> Result<()> {
    if wanted.is_empty() {
        return Ok(());
    }
    let seen =
        watcher(kind.everywhere(client), watcher::Config::default()).default_backoff().touched_objects();
    let mut seen = pin!(seen);
    let all_there = async {
        while let Some(object) = seen.next().await {
            // A watch that breaks begins again by itself.
            let Ok(object) = object else { continue };
            let name = name_of(&object);
            if wanted.contains(&name) && check(&object) {
                wanted.remove(&name);
                if wanted.is_empty() {
                    break;
                }
            }
        }
    };
    if timeout(within, all_there).await.is_err() {
        let some: Vec<_> = wanted.iter().take(3).map(|(n, name)| format!("{n}/{name}")).collect();
        bail!(
            "{} of {} are not as they shall be after {within:?}: {} ...",
            wanted.len(),
            kind.kind,
            some.join(", ")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scene_of_any_size_spreads_over_namespaces_and_applications() {
        let size = Size { applications: 3, namespaces: 4, instances: 10, subscriptions: 25 };
        let scene = Scene::many(size);
        assert_eq!(scene.namespaces().len(), 4);
        assert_eq!((scene.instances.len(), scene.subscriptions.len()), (10, 25));
        for subscription in &scene.subscriptions {
            let applications = scene.applications_in(&subscription.namespace);
            assert!(applications.contains(subscription.application.as_str()), "{subscription:?}");
        }
        let names: BTreeSet<_> = scene.instances.iter().map(|i| (&i.namespace, &i.name)).collect();
        assert_eq!(names.len(), 10);
    }

    #[test]
    fn the_small_scene_is_what_steps_are_crashed_on() {
        let scene = Scene::small("a", "b");
        assert_eq!((scene.namespaces().len(), scene.instances.len(), scene.subscriptions.len()), (2, 3, 4));
        assert_eq!(scene.subscriptions.iter().filter(|s| s.state == State::Migrated).count(), 1);
    }
}
