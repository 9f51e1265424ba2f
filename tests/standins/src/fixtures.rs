//! Manifests for tests and demos. Each is complete and accepted by our CRDs and by the real ones alike.

use serde_json::{Value, json};

use crate::kinds::{
    APPLICATION, DEPLOYMENT, EVENT_ACTIVATION, GADGET, HTTP_SOURCE, Kind, LEGACY_SUBSCRIPTION, STATION,
    WIDGET,
};

/// The image that holds this crate's binary, which can sleep: a scratch image has nothing else that could.
pub const IMAGE: &str = "belay-standins:dev";

fn object(kind: &Kind, namespace: &str, name: &str, spec: &Value) -> Value {
    let mut metadata = json!({"name": name});
    if kind.namespaced {
        metadata["namespace"] = namespace.into();
    }
    json!({"apiVersion": kind.api_version(), "kind": kind.kind, "metadata": metadata, "spec": spec})
}

/// An Application with one service that offers events.
#[must_use]
pub fn application(name: &str) -> Value {
    let spec = json!({
        "description": format!("Application {name}"),
        "accessLabel": name,
        "skipInstallation": false,
        "labels": {},
        "services": [{
            "id": format!("{name}-events"),
            "identifier": "",
            "name": format!("{name}-events"),
            "displayName": format!("{name} events"),
            "providerDisplayName": "Example",
            "description": "Events of this application",
            "entries": [{"type": "Events"}],
        }],
    });
    object(&APPLICATION, "", name, &spec)
}

/// An Application that its operator leaves alone.
#[must_use]
pub fn skipped_application(name: &str) -> Value {
    let mut application = application(name);
    application["spec"]["skipInstallation"] = true.into();
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
}
