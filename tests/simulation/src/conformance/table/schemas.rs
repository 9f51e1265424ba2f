//! What the schemas of custom resources refuse, drop and add.

use serde_json::{Value, json};

use super::{GADGETS, STATIONS, WIDGETS, at, gadget, station, widget, with};
use crate::conformance::row::{Case, case, json_patch, merge, post, put_changed};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        required(),
        types(),
        limits(),
        pruning(),
        defaults(),
        lists(),
        rule(),
        status(),
        preserving(),
        shared(),
    ]
}

const APPLICATIONS: &str = "/apis/applicationconnector.kyma-project.io/v1alpha1/applications";
const SOURCES: &str = "/apis/sources.kyma-project.io/v1alpha1/namespaces/{ns}/httpsources";
const INSTANCES: &str = "/apis/servicecatalog.k8s.io/v1beta1/namespaces/{ns}/serviceinstances";

fn spec(spec: &Value) -> Value {
    with(widget("w"), &json!({"spec": spec}))
}

fn required() -> Case {
    case(
        "what is required must be there",
        [
            post(WIDGETS, json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "metadata": {"name": "w"}})).gives(
                422,
                json!({
                    "reason": "Invalid", "message": "Widget.fixture.belay.dev \"w\" is invalid: [spec: Required value, <nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation]",
                    "details": {"name": "w", "group": "fixture.belay.dev", "kind": "Widget", "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec"}, {"field": "<nil>"}]},
                }),
            ),
            post(WIDGETS, spec(&json!({"size": null, "color": "red"}))).gives(422, json!({"details": {"causes": [{"field": "spec.size"}, {"field": "<nil>"}]}})),
            post(WIDGETS, json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {}})).gives(422, json!({"reason": "Invalid"})),
            post(GADGETS, with(gadget("g"), &json!({"spec": {"widget": ""}}))).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, spec(&json!({"parts": [{"count": 1}]}))).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            merge(at(WIDGETS, "w"), json!({"spec": null})).gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w"), json!({"spec": {"size": null}})).gives(422, json!({"reason": "Invalid"})),
            json_patch(at(WIDGETS, "w"), json!([{"op": "remove", "path": "/spec/size"}])).gives(422, json!({"reason": "Invalid"})),
            put_changed(at(WIDGETS, "w"), "w", json!({"spec": {"size": null}})).gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn types() -> Case {
    case(
        "a value has the type of its field",
        [
            post(WIDGETS, spec(&json!({"size": "one"}))).gives(422, json!({"details": {"causes": [{"reason": "FieldValueTypeInvalid", "field": "spec.size"}, {"field": "<nil>"}]}})),
            post(WIDGETS, spec(&json!({"size": 1.5}))).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, spec(&json!({"size": true}))).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, spec(&json!({"color": 7}))).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, spec(&json!({"parts": {"name": "bolt"}}))).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, spec(&json!({"parts": ["bolt"]}))).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": "text"})).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": []})).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, spec(&json!({"size": 2.0}))).gives(201, json!({"spec": {"size": 2}})),
        ],
    )
}

fn limits() -> Case {
    case(
        "numbers, texts and enums have their limits",
        [
            post(WIDGETS, spec(&json!({"size": 101}))).gives(
                422,
                json!({
                    "message": "Widget.fixture.belay.dev \"w\" is invalid: spec.size: Invalid value: 101: spec.size in body should be less than or equal to 100",
                    "details": {"causes": [{"reason": "FieldValueInvalid", "field": "spec.size"}]},
                }),
            ),
            post(WIDGETS, spec(&json!({"size": -1}))).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, spec(&json!({"color": "c".repeat(33)}))).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, spec(&json!({"phase": "Lost"}))).gives(
                422,
                json!({"message": "~spec.phase: Unsupported value: \"Lost\": supported values: \"Draft\", \"Active\", \"Retired\""}),
            ),
            post(WIDGETS, spec(&json!({"size": 101, "phase": "Lost", "color": 1})))
.gives(422, json!({"reason": "Invalid", "details": {"causes": {"$has": [{"field": "spec.color"}, {"field": "spec.phase"}, {"field": "spec.size"}]}}}))
.in_part("a real server lists several causes in any order"),
            post(WIDGETS, spec(&json!({"parts": [{"name": "bolt", "count": -1}]}))).gives(422, json!({"reason": "Invalid"})),
            post(STATIONS, with(station("{ns}"), &json!({"spec": {"state": "Ajar"}}))).gives(422, json!({"reason": "Invalid"})),
            post(STATIONS, station("{ns}")).gives(201, json!({})),
            merge(at(STATIONS, "{ns}?dryRun=All"), json!({"spec": {"state": "Ajar"}})).gives(422, json!({"reason": "Invalid"})),
            post(APPLICATIONS, json!({"apiVersion": "applicationconnector.kyma-project.io/v1alpha1", "kind": "Application", "metadata": {"name": "{ns}"}, "spec": {"accessLabel": "no good", "services": []}})).gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn pruning() -> Case {
    case(
        "what a schema does not know is dropped, on create and on change",
        [
            post(
                WIDGETS,
                with(
                    spec(&json!({"unknown": {"a": 1}, "parts": [{"name": "bolt", "weight": 1}]})),
                    &json!({"more": true}),
                ),
            )
            .gives(
                201,
                json!({"more": null, "spec": {"unknown": null, "parts": [{"name": "bolt", "weight": null}]}}),
            ),
            merge(at(WIDGETS, "w"), json!({"spec": {"unknown": 2}}))
                .gives(200, json!({"metadata": {"generation": 1, "resourceVersion": "<rv-1>"}})),
            merge(at(WIDGETS, "w"), json!({"spec": {"unknown": 2, "size": 3}}))
                .gives(200, json!({"spec": {"size": 3, "unknown": null}})),
            post(STATIONS, with(station("{ns}"), &json!({"status": {"open": true}, "spec": {"x": 1}})))
                .gives(201, json!({"status": null, "spec": {"x": null}})),
        ],
    )
}

fn defaults() -> Case {
    case(
        "a default is filled in wherever its field is missing",
        [
            post(WIDGETS, widget("w")).gives(201, json!({"spec": {"phase": "Draft"}})),
            merge(at(WIDGETS, "w"), json!({"spec": {"phase": "Active"}}))
                .gives(200, json!({"spec": {"phase": "Active"}})),
            merge(at(WIDGETS, "w"), json!({"spec": {"phase": null}}))
                .gives(200, json!({"spec": {"phase": "Draft"}})),
            json_patch(at(WIDGETS, "w"), json!([{"op": "remove", "path": "/spec/phase"}]))
                .gives(200, json!({"spec": {"phase": "Draft"}})),
            post(WIDGETS, with(widget("n"), &json!({}))).gives(201, json!({"spec": {"phase": "Draft"}})),
        ],
    )
}

fn lists() -> Case {
    case(
        "a list that merges by key has each key once",
        [
            post(WIDGETS, spec(&json!({"parts": [{"name": "bolt"}, {"name": "bolt"}]}))).gives(
                422,
                json!({"details": {"causes": [{"reason": "FieldValueDuplicate", "field": "spec.parts[1]"}]}}),
            ),
            post(WIDGETS, spec(&json!({"parts": []}))).gives(201, json!({"spec": {"parts": []}})),
            merge(
                at(WIDGETS, "w"),
                json!({"spec": {"parts": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}}),
            )
            .gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w"), json!({"spec": {"parts": [{"name": "b"}, {"name": "a"}]}}))
                .gives(200, json!({"spec": {"parts": [{"name": "b"}, {"name": "a"}]}})),
        ],
    )
}

fn rule() -> Case {
    case(
        "a rule over old and new is enforced",
        [
            post(WIDGETS, widget("w")).gives(201, json!({})),
            merge(at(WIDGETS, "w"), json!({"spec": {"color": "red"}}))
                .gives(200, json!({"spec": {"color": "red"}}))
                .keep("w"),
            merge(at(WIDGETS, "w"), json!({"spec": {"color": "blue"}})).gives(
                422,
                json!({
                    "reason": "Invalid",
                    "message": "~spec.color cannot be changed once it is set",
                    "details": {"causes": [{"reason": "FieldValueInvalid", "field": "spec"}]},
                }),
            ),
            merge(at(WIDGETS, "w"), json!({"spec": {"color": null}}))
                .gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w?dryRun=All"), json!({"spec": {"color": "blue"}}))
                .gives(422, json!({"reason": "Invalid"})),
            put_changed(at(WIDGETS, "w"), "w", json!({"spec": {"color": "blue"}}))
                .gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w"), json!({"spec": {"color": "red", "size": 9}}))
                .gives(200, json!({"spec": {"size": 9}})),
            merge(at(WIDGETS, "w"), json!({"spec": {"color": "blue", "size": 900}}))
                .gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn status() -> Case {
    let condition = |more: Value| {
        with(
            json!({"type": "Ready", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2001-02-03T04:05:06Z"}),
            &more,
        )
    };
    case(
        "the schema of status holds at its path",
        [
            post(WIDGETS, with(widget("w"), &json!({"status": {"observedGeneration": "no number"}}))).gives(201, json!({"status": null})),
            merge(at(WIDGETS, "w/status"), json!({"status": {"observedGeneration": "no number"}})).gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w/status"), json!({"status": {"conditions": [condition(json!({"status": "Perhaps"}))]}})).gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w/status"), json!({"status": {"conditions": [condition(json!({"lastTransitionTime": "yesterday"}))]}})).gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w/status"), json!({"status": {"conditions": [condition(json!({})), condition(json!({}))]}})).gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w/status"), json!({"status": {"conditions": [condition(json!({})), condition(json!({"type": "Other"}))]}})).gives(200, json!({"status": {"conditions": [{"type": "Ready"}, {"type": "Other"}]}})),
        ],
    )
}

fn preserving() -> Case {
    case(
        "a schema may keep what it does not know",
        [
            post(SOURCES, json!({"apiVersion": "sources.kyma-project.io/v1alpha1", "kind": "HTTPSource", "metadata": {"name": "h"}, "spec": {"source": "s", "any": [1, {"x": null}]}, "extra": {"y": 1}}))
                .gives(201, json!({"spec": {"any": [1, {}]}, "extra": {"y": 1}})),
            post(INSTANCES, json!({"apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceInstance", "metadata": {"name": "i"}, "spec": {"serviceClassExternalName": "x", "parameters": {"deep": {"a": [1]}}, "odd": true}, "status": {"conditions": null}}))
                .gives(201, json!({"spec": {"odd": true, "parameters": {"deep": {"a": [1]}}}})),
            post(INSTANCES, json!({"apiVersion": "servicecatalog.k8s.io/v1beta1", "kind": "ServiceInstance", "metadata": {"name": "j"}, "spec": {"externalID": 7}})).gives(422, json!({"reason": "Invalid"})),
            merge(at(INSTANCES, "i"), json!({"spec": {"parameters": {"deep": null, "more": 1}, "odd": null}})).gives(200, json!({"spec": {"odd": null, "parameters": {"deep": null, "more": 1}}, "metadata": {"generation": 2}})),
            merge(at(INSTANCES, "i/status"), json!({"status": {"conditions": null, "asyncOpInProgress": false}})).gives(200, json!({"status": {"asyncOpInProgress": false}})),
            post(SOURCES, json!({"apiVersion": "sources.kyma-project.io/v1alpha1", "kind": "HTTPSource", "metadata": {"name": "g"}})).gives(201, json!({"spec": null})),
        ],
    )
}

fn shared() -> Case {
    let services = "/apis/serving.knative.dev/v1alpha1/namespaces/{ns}/services";
    let newer = "/apis/serving.knative.dev/v1/namespaces/{ns}/services";
    case(
        "an object is the same in all versions of its kind",
        [
            post(services, json!({"apiVersion": "serving.knative.dev/v1alpha1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"template": {}}})).gives(201, json!({"apiVersion": "serving.knative.dev/v1alpha1"})),
            crate::conformance::row::get(at(newer, "s")).gives(200, json!({"apiVersion": "serving.knative.dev/v1", "metadata": {"uid": "<uid-1>"}})),
            merge(at(newer, "s?fieldManager=x"), json!({"metadata": {"labels": {"l": "1"}}})).gives(200, json!({"apiVersion": "serving.knative.dev/v1"})),
            crate::conformance::row::get(services).gives(200, json!({"apiVersion": "serving.knative.dev/v1alpha1", "items": [{"apiVersion": "serving.knative.dev/v1alpha1"}]})),
        ],
    )
}
