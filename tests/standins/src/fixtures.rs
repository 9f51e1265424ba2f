//! Manifests for tests and demos. Each is complete and accepted by our CRDs and by the real ones alike.

use serde_json::{Value, json};

use crate::kinds::{
    APPLICATION, APPLICATION_MAPPING, BROKER, CHANNEL, DEPLOYMENT, EVENT_ACTIVATION, GADGET, HTTP_SOURCE,
    KNATIVE_SUBSCRIPTION, Kind, LEGACY_SUBSCRIPTION, SERVICE_BINDING, SERVICE_BROKER, SERVICE_CLASS,
    SERVICE_INSTANCE, SERVICE_PLAN, STATEFUL_SET, STATION, TRIGGER, WIDGET,
};
use crate::{APPLICATION_BROKER, SUBSCRIPTION_FINALIZER};

/// The image that holds this crate's binary, which can sleep: a scratch image has nothing else that could.
pub const IMAGE: &str = "belay-standins:dev";

fn object(kind: &Kind, namespace: &str, name: &str, spec: &Value) -> Value {
    let mut metadata = json!({"name": name});
    if kind.namespaced {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "spec": spec})
}

/// An Application with one service that offers events; [`service_id`] is its id. It is installed.
#[must_use]
pub fn application(name: &str) -> Value {
    application_with(name, &[(&service_id(name), &["Events"])])
}

/// An Application with these services: each its id, and the types of its entries, `Events` or `API`.
#[must_use]
pub fn application_with(name: &str, services: &[(&str, &[&str])]) -> Value {
    let services: Vec<_> = services
        .iter()
        .map(|(id, entries)| {
            let entries: Vec<_> = entries.iter().map(|entry| json!({"type": entry})).collect();
            json!({
                "id": id,
                "identifier": "",
                "name": id,
                "displayName": format!("{name} events"),
                "providerDisplayName": "Example",
                "description": "A service of this application",
                "entries": entries,
            })
        })
        .collect();
    let spec = json!({
        "description": format!("Application {name}"),
        "accessLabel": name,
        "labels": {},
        "services": services,
    });
    let mut application = object(&APPLICATION, "", name, &spec);
    application["status"] = json!({"installationStatus": {"status": "DEPLOYED", "description": "Installed"}});
    application
}

/// The id of the service that [`application`] gives an Application.
#[must_use]
pub fn service_id(application: &str) -> String {
    format!("{application}-events")
}

/// An Application that its operator leaves alone.
#[must_use]
pub fn skipped_application(name: &str) -> Value {
    let mut application = application(name);
    application["spec"]["skipInstallation"] = true.into();
    application["status"]["installationStatus"]["status"] = "INSTALLATION_SKIPPED".into();
    application
}

/// An HTTPSource as the Application's own chart renders it.
#[must_use]
pub fn http_source(name: &str, namespace: &str) -> Value {
    object(&HTTP_SOURCE, namespace, name, &json!({"source": name}))
}

/// Lets the namespace receive the Application's events over the Event Bus.
#[must_use]
pub fn event_activation(name: &str, namespace: &str, application: &str) -> Value {
    let spec = json!({"sourceId": application, "displayName": format!("{application} events")});
    object(&EVENT_ACTIVATION, namespace, name, &spec)
}

/// A legacy Subscription to `event_type`, version v1, of the Application.
#[must_use]
pub fn legacy_subscription(
    name: &str,
    namespace: &str,
    application: &str,
    event_type: &str,
    endpoint: &str,
) -> Value {
    let spec = json!({
        "source_id": application,
        "event_type": event_type,
        "event_type_version": "v1",
        "endpoint": endpoint,
        "include_subscription_name_header": false,
    });
    object(&LEGACY_SUBSCRIPTION, namespace, name, &spec)
}

/// A Subscription of the years after: same group, version and kind, another schema. The real CRD of the Event Bus does
/// not take it; ours does.
#[must_use]
pub fn later_subscription(name: &str, namespace: &str, sink: &str) -> Value {
    let spec = json!({"sink": sink, "protocol": "", "filter": {"filters": []}});
    object(&LEGACY_SUBSCRIPTION, namespace, name, &spec)
}

/// The name of the Knative Subscription that the Event Bus makes for a Subscription of its own.
#[must_use]
pub fn bus_subscription_name(name: &str, namespace: &str) -> String {
    format!("{name}--{}", namespace.replace('-', "-d").replace('.', "-p"))
}

/// What the Event Bus left behind of a Subscription whose namespace is gone: a Knative Subscription in the system
/// namespace, with a finalizer that only the Event Bus serves.
#[must_use]
pub fn dangling_subscription(name: &str, namespace: &str, system: &str, application: &str) -> Value {
    let channel = json!({
        "apiVersion": CHANNEL.api_version(), "kind": CHANNEL.kind, "name": format!("{application}--order-v1"),
    });
    let spec = json!({"channel": channel, "subscriber": {"uri": format!("http://{name}.{namespace}")}});
    let mut left = object(&KNATIVE_SUBSCRIPTION, system, &bus_subscription_name(name, namespace), &spec);
    left["metadata"]["labels"] = json!({
        "kyma-ns": namespace, "kyma-source-id": application, "kyma-event-type": "order",
        "kyma-event-type-version": "v1",
    });
    left["metadata"]["finalizers"] = json!([SUBSCRIPTION_FINALIZER]);
    left
}

/// A Channel of the old bus or of a source, as its owner would have made it.
#[must_use]
pub fn channel(name: &str, namespace: &str) -> Value {
    let spec = json!({"channelTemplate": {"apiVersion": CHANNEL.api_version(), "kind": "NatssChannel"}});
    object(&CHANNEL, namespace, name, &spec)
}

/// Offers the Application's services in the namespace.
#[must_use]
pub fn application_mapping(application: &str, namespace: &str) -> Value {
    object(&APPLICATION_MAPPING, namespace, application, &json!({}))
}

/// The broker of Applications, registered in a namespace.
#[must_use]
pub fn service_broker(namespace: &str) -> Value {
    let url = format!("http://application-broker.kyma-integration.svc.cluster.local/ns/{namespace}");
    object(&SERVICE_BROKER, namespace, APPLICATION_BROKER, &json!({"url": url}))
}

/// The name that the Service Catalog gives the class of a service: what may not be in a name is escaped, and so is the
/// letter that escapes.
#[must_use]
pub fn catalog_name(external_id: &str) -> String {
    external_id
        .chars()
        .map(|c| match c {
            'a'..='y' | '0'..='9' | '.' | '-' => c.to_string(),
            other => format!("z{:x}z", u32::from(other)),
        })
        .collect()
}

/// The class of an Application's service in a namespace. Its external name is the id too.
#[must_use]
pub fn service_class(service_id: &str, namespace: &str) -> Value {
    let spec = json!({
        "serviceBrokerName": APPLICATION_BROKER,
        "externalName": service_id,
        "externalID": service_id,
        "description": "A service of an application",
        "bindable": false,
        "tags": [],
    });
    object(&SERVICE_CLASS, namespace, &catalog_name(service_id), &spec)
}

/// The plan `default` of the class.
#[must_use]
pub fn service_plan(service_id: &str, namespace: &str) -> Value {
    let spec = json!({
        "serviceBrokerName": APPLICATION_BROKER,
        "serviceClassRef": {"name": catalog_name(service_id)},
        "externalName": "default",
        "externalID": format!("{service_id}-plan"),
        "description": "Default plan",
        "free": true,
    });
    object(&SERVICE_PLAN, namespace, &format!("{}-plan", catalog_name(service_id)), &spec)
}

/// An instance of the service, as a user creates it.
#[must_use]
pub fn service_instance(name: &str, namespace: &str, service_id: &str) -> Value {
    let spec = json!({"serviceClassExternalName": service_id, "servicePlanExternalName": "default"});
    object(&SERVICE_INSTANCE, namespace, name, &spec)
}

/// Credentials for the instance, which can't be deleted as long as they exist.
#[must_use]
pub fn service_binding(name: &str, namespace: &str, instance: &str) -> Value {
    object(&SERVICE_BINDING, namespace, name, &json!({"instanceRef": {"name": instance}, "secretName": name}))
}

/// The Broker `default` of a namespace, as injection makes it.
#[must_use]
pub fn broker(namespace: &str) -> Value {
    let template = json!({"apiVersion": CHANNEL.api_version(), "kind": "NatssChannel"});
    let mut broker = object(&BROKER, namespace, "default", &json!({"channelTemplateSpec": template}));
    broker["metadata"]["labels"] = json!({"eventing.knative.dev/namespaceInjected": "true"});
    broker
}

/// The Trigger that replaces [`legacy_subscription`] with the same arguments.
#[must_use]
pub fn trigger(name: &str, namespace: &str, application: &str, event_type: &str, uri: &str) -> Value {
    let attributes = json!({"source": application, "type": event_type, "eventtypeversion": "v1"});
    let spec = json!({
        "broker": "default",
        "filter": {"attributes": attributes},
        "subscriber": {"uri": uri},
    });
    object(&TRIGGER, namespace, name, &spec)
}

/// The link from an Application to a namespace, as the application-broker makes it.
#[must_use]
pub fn link(name: &str, integration: &str, application: &str, namespace: &str) -> Value {
    let channel = json!({"apiVersion": CHANNEL.api_version(), "kind": CHANNEL.kind, "name": application});
    let uri = format!("http://default-broker.{namespace}");
    let spec = json!({"channel": channel, "subscriber": {"uri": uri}});
    let mut link = object(&KNATIVE_SUBSCRIPTION, integration, name, &spec);
    link["metadata"]["labels"] = json!({"broker-namespace": namespace, "application-name": application});
    link
}

/// The event service of an Application. One that feeds the mesh has an argument that says where that is.
#[must_use]
pub fn event_service(application: &str, integration: &str, image: &str, feeds_mesh: bool) -> Value {
    let name = format!("{application}-event-service");
    let mut service = deployment(&name, integration, 1, image);
    let labels = json!({"app": name, "release": application});
    service["metadata"]["labels"] = labels.clone();
    service["spec"]["selector"]["matchLabels"] = labels.clone();
    service["spec"]["template"]["metadata"]["labels"] = labels;
    let container = &mut service["spec"]["template"]["spec"]["containers"][0];
    container["name"] = name.into();
    container["args"] = event_service_args(application, integration, feeds_mesh);
    service
}

/// The arguments of an event service.
pub(crate) fn event_service_args(application: &str, integration: &str, feeds_mesh: bool) -> Value {
    let mut args = vec!["--externalAPIPort=8081".to_owned(), format!("--sourceId={application}")];
    if feeds_mesh {
        args.push(format!("--eventMeshURL=http://{application}.{integration}"));
    }
    json!(args)
}

/// The application-operator, a `StatefulSet`, which rolls event services to this image.
#[must_use]
pub fn application_operator(integration: &str, event_service_image: &str) -> Value {
    let mut operator = workload(&STATEFUL_SET, "application-operator", integration, 1, IMAGE);
    let container = &mut operator["spec"]["template"]["spec"]["containers"][0];
    container["args"] = json!([
        "--appName=application-operator",
        format!("--namespace={integration}"),
        format!("--eventServiceImage={event_service_image}"),
    ]);
    operator
}

/// A Widget of the given size, Draft, with a color that can't be changed and two parts.
#[must_use]
pub fn widget(name: &str, namespace: &str, size: u8) -> Value {
    let spec = json!({
        "size": size,
        "color": "blue",
        "phase": "Draft",
        "parts": [{"name": "bolt", "count": 4}, {"name": "nut", "count": 4}],
    });
    object(&WIDGET, namespace, name, &spec)
}

/// A Gadget that belongs to a Widget.
#[must_use]
pub fn gadget(name: &str, namespace: &str, widget: &str) -> Value {
    object(&GADGET, namespace, name, &json!({"widget": widget}))
}

/// A Station in the given state: Closed, Opening or Open.
#[must_use]
pub fn station(name: &str, state: &str) -> Value {
    object(&STATION, "", name, &json!({"state": state}))
}

/// A Deployment, StatefulSet or ReplicaSet whose pods do nothing but wait for the end. It fits the restricted Pod
/// Security level, so that it can run wherever a step does.
#[must_use]
pub fn workload(kind: &Kind, name: &str, namespace: &str, replicas: u16, image: &str) -> Value {
    let mut spec = json!({
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "automountServiceAccountToken": false,
                "securityContext": {
                    "runAsNonRoot": true,
                    "runAsUser": 65532,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [{
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["/standins", "sleep"],
                    "securityContext": {
                        "allowPrivilegeEscalation": false,
                        "readOnlyRootFilesystem": true,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "resources": {
                        "requests": {"cpu": "1m", "memory": "8Mi"},
                        "limits": {"memory": "64Mi"},
                    },
                }],
            },
        },
    });
    if kind.kind == "StatefulSet" {
        spec["serviceName"] = name.into();
    }
    object(kind, namespace, name, &spec)
}

/// A Deployment as [`workload`] makes them.
#[must_use]
pub fn deployment(name: &str, namespace: &str, replicas: u16, image: &str) -> Value {
    workload(&DEPLOYMENT, name, namespace, replicas, image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_scoped_objects_have_no_namespace() {
        assert!(application("a")["metadata"].get("namespace").is_none());
        assert!(station("s", "Open")["metadata"].get("namespace").is_none());
        assert_eq!(http_source("a", "n")["metadata"]["namespace"], "n");
    }

    #[test]
    fn the_catalog_escapes_what_may_not_be_in_a_name() {
        assert_eq!(catalog_name("shop-1.events"), "shop-1.events");
        assert_eq!(catalog_name("Az_"), "z41zz7azz5fz");
    }

    #[test]
    fn the_bus_escapes_the_namespace_in_its_names() {
        assert_eq!(bus_subscription_name("orders", "my-shop.eu"), "orders--my-dshop-peu");
    }
}
