//! What the server says of itself and its APIs.

use serde_json::json;

use crate::conformance::row::{Case, case, get};

const OTHERS: &str = "a real server has more kinds than anybody here asks for";

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![groups(), built_in(), custom(), unknown()]
}

fn groups() -> Case {
    case(
        "the server names its version and its groups",
        [
            get("/version")
                .gives(200, json!({"major": "1", "minor": "35", "gitVersion": "~v1.35."}))
                .in_part("builds differ"),
            get("/api")
                .gives(200, json!({"kind": "APIVersions", "versions": ["v1"]}))
                .in_part("it names the server's address"),
            get("/apis")
                .gives(
                    200,
                    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": {"$has": [
                        {"name": "apps", "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"}},
                        {"name": "coordination.k8s.io", "preferredVersion": {"version": "v1"}},
                        {"name": "events.k8s.io", "preferredVersion": {"version": "v1"}},
                        {"name": "authorization.k8s.io", "preferredVersion": {"version": "v1"}},
                        {"name": "apiextensions.k8s.io", "preferredVersion": {"version": "v1"}},
                        {"name": "fixture.belay.dev", "versions": [{"groupVersion": "fixture.belay.dev/v1", "version": "v1"}]},
                        {"name": "servicecatalog.k8s.io", "preferredVersion": {"version": "v1beta1"}},
                    ]}}),
                )
                .in_part(OTHERS),
            get("/readyz").gives(200, json!("ok")),
        ],
    )
}

fn built_in() -> Case {
    let lists = |path: &str, version: &str, resources: serde_json::Value| {
        let body =
            json!({"kind": "APIResourceList", "groupVersion": version, "resources": {"$has": resources}});
        get(path).gives(200, body).in_part(OTHERS)
    };
    case(
        "the groups of Kubernetes list their kinds",
        [
            get("/apis/apps").gives(
                200,
                json!({
                    "kind": "APIGroup", "apiVersion": "v1", "name": "apps",
                    "versions": [{"groupVersion": "apps/v1", "version": "v1"}],
                    "preferredVersion": {"groupVersion": "apps/v1", "version": "v1"},
                }),
            ),
            get("/apis/events.k8s.io")
                .gives(200, json!({"name": "events.k8s.io", "preferredVersion": {"version": "v1"}})),
            get("/apis/apiextensions.k8s.io").gives(200, json!({"preferredVersion": {"version": "v1"}})),
            get("/apis/coordination.k8s.io").gives(200, json!({"preferredVersion": {"version": "v1"}})),
            get("/apis/authorization.k8s.io").gives(200, json!({"preferredVersion": {"version": "v1"}})),
            get("/apis/batch").gives(200, json!({"preferredVersion": {"version": "v1"}})),
            lists(
                "/api/v1",
                "v1",
                json!([
                    {"name": "configmaps", "kind": "ConfigMap", "namespaced": true, "singularName": "configmap"},
                    {"name": "secrets", "kind": "Secret", "namespaced": true},
                    {"name": "events", "kind": "Event", "namespaced": true},
                    {"name": "pods", "kind": "Pod", "namespaced": true},
                    {"name": "pods/status", "kind": "Pod", "namespaced": true},
                    {"name": "namespaces", "kind": "Namespace", "namespaced": false},
                ]),
            ),
            lists(
                "/apis/apps/v1",
                "apps/v1",
                json!([
                    {"name": "deployments", "kind": "Deployment", "namespaced": true},
                    {"name": "deployments/scale", "kind": "Scale", "group": "autoscaling", "version": "v1", "verbs": ["get", "patch", "update"]},
                    {"name": "deployments/status", "kind": "Deployment", "namespaced": true},
                    {"name": "statefulsets", "kind": "StatefulSet", "namespaced": true},
                    {"name": "replicasets", "kind": "ReplicaSet", "namespaced": true},
                ]),
            ),
            lists(
                "/apis/coordination.k8s.io/v1",
                "coordination.k8s.io/v1",
                json!([{"name": "leases", "kind": "Lease", "namespaced": true}]),
            ),
            lists(
                "/apis/events.k8s.io/v1",
                "events.k8s.io/v1",
                json!([{"name": "events", "kind": "Event", "namespaced": true}]),
            ),
            lists(
                "/apis/authorization.k8s.io/v1",
                "authorization.k8s.io/v1",
                json!([{"name": "selfsubjectaccessreviews", "kind": "SelfSubjectAccessReview", "namespaced": false, "verbs": ["create"]}]),
            ),
            lists(
                "/apis/apiextensions.k8s.io/v1",
                "apiextensions.k8s.io/v1",
                json!([{"name": "customresourcedefinitions", "kind": "CustomResourceDefinition", "namespaced": false}]),
            ),
        ],
    )
}

fn custom() -> Case {
    case(
        "the groups of CRDs are listed like any other",
        [
            get("/apis/fixture.belay.dev").gives(
                200,
                json!({
                    "kind": "APIGroup", "apiVersion": "v1", "name": "fixture.belay.dev",
                    "versions": [{"groupVersion": "fixture.belay.dev/v1", "version": "v1"}],
                    "preferredVersion": {"groupVersion": "fixture.belay.dev/v1", "version": "v1"},
                }),
            ),
            get("/apis/serving.knative.dev").gives(
                200,
                json!({
                    "versions": [{"version": "v1"}, {"version": "v1beta1"}, {"version": "v1alpha1"}],
                    "preferredVersion": {"version": "v1"},
                }),
            ),
            get("/apis/fixture.belay.dev/v1").gives(
                200,
                json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "fixture.belay.dev/v1",
                    "resources": {"$has": [
                        {"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget"},
                        {"name": "widgets/status", "namespaced": true, "kind": "Widget", "verbs": ["get", "patch", "update"]},
                        {"name": "stations", "singularName": "station", "namespaced": false, "kind": "Station"},
                    ]},
                }),
            ),
            get("/apis/applicationconnector.kyma-project.io/v1alpha1").gives(
                200,
                json!({"resources": {"$has": [{"name": "applications", "namespaced": false, "shortNames": ["app"]}]}}),
            ),
        ],
    )
}

fn unknown() -> Case {
    case(
        "what is not served names no object",
        [
            get("/apis/nowhere.example").gives(404, json!("404 page not found\n")),
            get("/apis/nowhere.example/v1").gives(404, json!("404 page not found\n")),
            get("/apis/nowhere.example/v1/things").gives(404, json!("404 page not found\n")),
            get("/apis/fixture.belay.dev/v2").gives(404, json!("404 page not found\n")),
            get("/apis/apps/v1beta1").refused(
                404,
                "NotFound",
                "the server could not find the requested resource",
            ),
            get("/api/v2").refused(404, "NotFound", "the server could not find the requested resource"),
        ],
    )
}
