//! What is refused before it comes to any object: names, bodies, methods and types.

use http::Method;
use serde_json::json;

use super::{CONFIG_MAPS, GADGETS, LEASES, SECRETS, STATIONS, WIDGETS, at, config_map, gadget, widget, with};
use crate::conformance::row::{APPLY, Case, JSON, MERGE, case, delete, get, merge, post, put, send};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![names(), metadata(), bodies(), methods(), types(), strict(), scopes(), data(), sizes(), queries()]
}

fn names() -> Case {
    let long = "n".repeat(254);
    case(
        "a name must be one",
        [
            post(CONFIG_MAPS, config_map("Upper")).gives(422, json!({"reason": "Invalid", "details": {"name": "Upper", "kind": "ConfigMap", "causes": [{"reason": "FieldValueInvalid", "field": "metadata.name"}]}})),
            post(CONFIG_MAPS, config_map("under_score")).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, config_map("-a")).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, config_map(&long)).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, config_map("a.b-c")).gives(201, json!({})),
            post(WIDGETS, widget("Upper")).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, widget("a/b")).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, widget(".")).gives(422, json!({"reason": "Invalid"})),
            post(LEASES, json!({"metadata": {"name": "Upper"}})).gives(422, json!({"reason": "Invalid"})),
            post(STATIONS, json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Station", "metadata": {"name": "A"}, "spec": {"state": "Open"}})).gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn metadata() -> Case {
    let labelled =
        |labels: serde_json::Value| with(config_map("a"), &json!({"metadata": {"labels": labels}}));
    case(
        "labels, annotations and finalizers have their rules",
        [
            post(CONFIG_MAPS, labelled(json!({"a b": "1"}))).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, labelled(json!({"a": "x y"}))).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, labelled(json!({"a": "v".repeat(64)})))
                .gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, labelled(json!({"a/b/c": "1"}))).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, labelled(json!({"a": 1}))).gives(400, json!({"reason": "BadRequest"})),
            post(CONFIG_MAPS, with(config_map("a"), &json!({"metadata": {"annotations": {"a b": "1"}}})))
                .gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, with(config_map("a"), &json!({"metadata": {"finalizers": ["bare"]}})))
                .gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, with(widget("w"), &json!({"metadata": {"labels": {"a": "x y"}}})))
                .gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, with(widget("w"), &json!({"metadata": {"labels": {"a": 1}}})))
                .gives(400, json!({"reason": "BadRequest"})),
        ],
    )
}

fn bodies() -> Case {
    case(
        "a body must be an object of the kind",
        [
            send(Method::POST, CONFIG_MAPS, "").gives(400, json!({"kind": "Status"})),
            send(Method::POST, CONFIG_MAPS, "{nonsense")
                .gives(400, json!({"kind": "Status", "reason": "BadRequest"})),
            send(Method::POST, CONFIG_MAPS, "[]").gives(400, json!({"kind": "Status"})),
            send(Method::POST, CONFIG_MAPS, "7").gives(400, json!({"kind": "Status"})),
            send(Method::POST, CONFIG_MAPS, "null").gives(422, json!({"kind": "Status"})),
            send(Method::POST, WIDGETS, "{nonsense").gives(400, json!({"kind": "Status"})),
            send(Method::POST, WIDGETS, "").gives(400, json!({"kind": "Status"})),
            post(CONFIG_MAPS, json!({"metadata": {"name": "a"}, "data": {"a": 1}}))
                .gives(400, json!({"reason": "BadRequest"})),
            post(CONFIG_MAPS, json!({"metadata": {"name": "a"}, "data": "text"}))
                .gives(400, json!({"reason": "BadRequest"})),
            post(CONFIG_MAPS, config_map("there")).gives(201, json!({})),
            send(Method::PATCH, at(CONFIG_MAPS, "there"), "{nonsense")
                .typed(MERGE)
                .gives(400, json!({"kind": "Status"})),
            send(Method::PATCH, at(CONFIG_MAPS, "there"), "{nonsense")
                .typed(JSON)
                .gives(400, json!({"kind": "Status"})),
            send(Method::PATCH, at(CONFIG_MAPS, "there"), "[1]")
                .typed(MERGE)
                .gives(400, json!({"kind": "Status"})),
            send(Method::PUT, at(CONFIG_MAPS, "there"), "{nonsense").gives(400, json!({"kind": "Status"})),
            send(Method::DELETE, at(CONFIG_MAPS, "there"), "{nonsense").gives(400, json!({"kind": "Status"})),
            merge(at(CONFIG_MAPS, "there"), json!({"data": {"a": 1}}))
                .gives(422, json!({"reason": "Invalid", "message": "~is invalid: patch: Invalid value: "}))
                .in_part("the message quotes the object as Go prints it"),
        ],
    )
}

fn methods() -> Case {
    case(
        "a path takes the methods that it has",
        [
            put(CONFIG_MAPS, config_map("a")).gives(405, json!({"reason": "MethodNotAllowed"})),
            merge(CONFIG_MAPS, json!({})).gives(405, json!({"reason": "MethodNotAllowed"})),
            post(at(CONFIG_MAPS, "a"), config_map("a")).gives(405, json!({"reason": "MethodNotAllowed"})),
            get("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
                .gives(405, json!({"reason": "MethodNotAllowed"})),
            delete(at(WIDGETS, "a/status")).gives(405, json!({"reason": "MethodNotAllowed"})),
            post("/api/v1/configmaps", config_map("a")).gives(405, json!({})),
            post("/apis/fixture.belay.dev/v1/widgets", widget("a")).gives(404, json!("404 page not found\n")),
            get(at(CONFIG_MAPS, "a/status")).gives(404, json!({"reason": "NotFound"})),
            get(at(WIDGETS, "a/scale")).gives(404, json!({})),
        ],
    )
}

fn types() -> Case {
    case(
        "a body comes in a type that the server reads",
        [
            post(CONFIG_MAPS, config_map("a"))
                .typed("text/plain")
                .gives(415, json!({"reason": "UnsupportedMediaType"})),
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})),
            put(at(CONFIG_MAPS, "a"), config_map("a"))
                .typed("text/plain")
                .gives(415, json!({"reason": "UnsupportedMediaType"})),
            merge(at(CONFIG_MAPS, "a"), json!({}))
                .typed("application/json")
                .gives(415, json!({"reason": "UnsupportedMediaType"})),
            merge(at(CONFIG_MAPS, "a"), json!({"data": {"a": "2"}}))
                .typed("application/strategic-merge-patch+json")
                .gives(200, json!({"data": {"a": "2"}})),
            post(WIDGETS, widget("w")).gives(201, json!({})),
            merge(at(WIDGETS, "w"), json!({"spec": {"size": 2}}))
                .typed("application/strategic-merge-patch+json")
                .gives(415, json!({"reason": "UnsupportedMediaType"})),
            post(WIDGETS, widget("v"))
                .typed("text/plain")
                .gives(415, json!({"reason": "UnsupportedMediaType"})),
            merge(at(WIDGETS, "w?fieldManager=x"), widget("w")).typed(APPLY).gives(200, json!({})),
        ],
    )
}

fn strict() -> Case {
    case(
        "unknown fields are dropped, or refused when validation is strict",
        [
            post(CONFIG_MAPS, with(config_map("a"), &json!({"unknown": 1})))
                .gives(201, json!({"unknown": null})),
            post(
                format!("{CONFIG_MAPS}?fieldValidation=Strict"),
                with(config_map("b"), &json!({"unknown": 1})),
            )
            .gives(400, json!({"reason": "BadRequest"})),
            post(
                format!("{CONFIG_MAPS}?fieldValidation=Ignore"),
                with(config_map("c"), &json!({"unknown": 1})),
            )
            .gives(201, json!({"unknown": null})),
            post(format!("{CONFIG_MAPS}?fieldValidation=Maybe"), config_map("d")).gives(422, json!({})),
            post(WIDGETS, with(widget("a"), &json!({"spec": {"unknown": 1}})))
                .gives(201, json!({"spec": {"unknown": null}})),
            post(
                format!("{WIDGETS}?fieldValidation=Strict"),
                with(widget("b"), &json!({"spec": {"unknown": 1}, "other": 2})),
            )
            .gives(400, json!({"reason": "BadRequest"})),
            post(
                format!("{WIDGETS}?fieldValidation=Strict"),
                with(widget("b"), &json!({"metadata": {"unknown": 1}})),
            )
            .gives(400, json!({"reason": "BadRequest"})),
            merge(at(WIDGETS, "a?fieldValidation=Strict"), json!({"spec": {"unknown": 1}}))
                .gives(422, json!({"reason": "Invalid", "message": "~strict decoding error: unknown field \"spec.unknown\""}))
                .in_part("the message quotes the object as Go prints it"),
            send(
                Method::POST,
                format!("{CONFIG_MAPS}?fieldValidation=Strict"),
                r#"{"metadata":{"name":"twice","name":"again"}}"#,
            )
            .gives(400, json!({"reason": "BadRequest"})),
        ],
    )
}

fn scopes() -> Case {
    case(
        "a kind stands in namespaces or in the cluster",
        [
            get("/apis/fixture.belay.dev/v1/namespaces/{ns}/stations").gives(404, json!("404 page not found\n")),
            get("/apis/fixture.belay.dev/v1/widgets/a").gives(404, json!("404 page not found\n")),
            get("/api/v1/configmaps/a").gives(404, json!({})),
            post(STATIONS, json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Station", "metadata": {"name": "{ns}", "namespace": "{ns}"}, "spec": {"state": "Open"}})).gives(201, json!({"metadata": {"namespace": null}})),
            get("/apis/fixture.belay.dev/v2/namespaces/{ns}/widgets").gives(404, json!("404 page not found\n")),
            get("/apis/fixture.belay.dev/v1/namespaces/{ns}/nothings/a").gives(404, json!("404 page not found\n")),
            get("/apis/apps/v1/namespaces/{ns}/nothings/a").gives(404, json!({"reason": "NotFound"})),
        ],
    )
}

fn data() -> Case {
    let data = |key: &str| json!({"metadata": {"name": "a"}, "data": {key: ""}});
    case(
        "keys and values of data have their rules",
        [
            post(CONFIG_MAPS, data("a/b")).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, data("..")).gives(422, json!({"reason": "Invalid"})),
            post(SECRETS, data("a b")).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, json!({"metadata": {"name": "a"}, "data": {"x": ""}, "binaryData": {"x": ""}}))
                .gives(422, json!({"reason": "Invalid"})),
            post(SECRETS, json!({"metadata": {"name": "tls"}, "type": "kubernetes.io/tls", "data": {}}))
                .gives(422, json!({"reason": "Invalid"})),
            post(SECRETS, json!({"metadata": {"name": "big"}, "data": {"x": "A".repeat(1_398_108)}}))
                .gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn sizes() -> Case {
    let large =
        |name: &str, bytes: usize| with(gadget(name), &json!({"spec": {"widget": "x".repeat(bytes)}}));
    let annotated = |bytes: usize| json!({"metadata": {"annotations": {"a": "x".repeat(bytes)}}});
    let too_large = || json!({"message": "etcdserver: request is too large"});
    case(
        "an object, and what is sent, can only be so large",
        [
            post(GADGETS, large("a", 1_570_000))
                .gives(201, json!({"kind": "Gadget"}))
                .in_part("there is no use in keeping so many bytes"),
            merge(at(GADGETS, "a"), annotated(10_000)).gives(500, too_large()),
            post(GADGETS, large("b", 1_573_000)).gives(500, too_large()),
            post(GADGETS, large("b", 2_100_000))
                .gives(500, json!({"message": "~trying to send message larger than max"}))
                .in_part("the message tells the size of a message to etcd"),
            post(GADGETS, large("b", 3_145_728)).gives(413, json!({"reason": "RequestEntityTooLarge"})),
            merge(at(GADGETS, "a"), annotated(3_145_728))
                .gives(413, json!({"reason": "RequestEntityTooLarge"})),
            put(at(GADGETS, "a"), large("a", 3_145_728))
                .gives(413, json!({"reason": "RequestEntityTooLarge"})),
            post(CONFIG_MAPS, with(config_map("a"), &annotated(262_143)))
                .gives(201, json!({"kind": "ConfigMap"}))
                .in_part("there is no use in keeping so many bytes"),
            post(CONFIG_MAPS, with(config_map("b"), &annotated(262_144)))
                .gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn queries() -> Case {
    case(
        "a query must make sense",
        [
            post(format!("{CONFIG_MAPS}?timeout=soon"), config_map("a")).gives(400, json!({})),
            get(format!("{CONFIG_MAPS}?timeoutSeconds=soon")).gives(400, json!({})),
            post(format!("{CONFIG_MAPS}?fieldManager="), config_map("a"))
                .gives(201, json!({"metadata": {"managedFields": [{"manager": "conformance"}]}})),
            get(at(CONFIG_MAPS, "a?unknown=1&pretty=false")).gives(200, json!({})),
        ],
    )
}
