//! managedFields: who set what, after each sort of write.

use serde_json::json;

use super::{CONFIG_MAPS, DEPLOYMENTS, WIDGETS, at, config_map, widget, with, workloads::deployment};
use crate::conformance::row::{Case, apply, case, get, json_patch, merge, post, put_changed};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        managers(),
        same_manager(),
        taken_over(),
        dropped(),
        given_back(),
        reset(),
        bad(),
        custom(),
        subresources(),
    ]
}

fn managers() -> Case {
    case(
        "each manager has an entry for each of its operations",
        [
            post(format!("{CONFIG_MAPS}?fieldManager=one"), with(config_map("a"), &json!({"metadata": {"labels": {"l": "1"}}}))).gives(
                201,
                json!({"metadata": {"managedFields": [{"manager": "one", "operation": "Update", "fieldsV1": {
                    "f:data": {".": {}, "f:a": {}}, "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
                }}]}}),
            ),
            merge(at(CONFIG_MAPS, "a?fieldManager=two"), json!({"data": {"b": "2"}, "metadata": {"annotations": {"n": "1"}}})).gives(
                200,
                json!({"metadata": {"managedFields": [{"manager": "one"}, {"manager": "two", "fieldsV1": {
                    "f:data": {"f:b": {}}, "f:metadata": {"f:annotations": {".": {}, "f:n": {}}},
                }}]}}),
            ),
            apply(at(CONFIG_MAPS, "a?fieldManager=two"), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"c": "3"}})).gives(
                200,
                json!({"metadata": {"managedFields": [{"manager": "two", "operation": "Apply"}, {"manager": "one"}, {"manager": "two", "operation": "Update"}]}}),
            ),
            merge(at(CONFIG_MAPS, "a"), json!({"data": {"d": "4"}})).gives(200, json!({"metadata": {"managedFields": [{}, {"manager": "conformance"}, {}, {}]}})),
        ],
    )
}

fn same_manager() -> Case {
    case(
        "a manager that writes again has one entry",
        [
            post(format!("{CONFIG_MAPS}?fieldManager=one"), config_map("a")).gives(201, json!({})).keep("a"),
            merge(at(CONFIG_MAPS, "a?fieldManager=one"), json!({"data": {"b": "2"}})).gives(200, json!({"metadata": {"managedFields": [{"fieldsV1": {"f:data": {"f:a": {}, "f:b": {}}}}]}})),
            json_patch(at(CONFIG_MAPS, "a?fieldManager=one"), json!([{"op": "remove", "path": "/data/a"}])).gives(200, json!({"metadata": {"managedFields": [{"fieldsV1": {"f:data": {"f:a": null, "f:b": {}}}}]}})).keep("a"),
            put_changed(at(CONFIG_MAPS, "a?fieldManager=one"), "a", json!({"data": {"c": "3"}})).gives(200, json!({"metadata": {"managedFields": [{"fieldsV1": {"f:data": {"f:b": {}, "f:c": {}}}}]}})),
            merge(at(CONFIG_MAPS, "a?fieldManager=one"), json!({"data": null})).gives(200, json!({})),
        ],
    )
}

fn taken_over() -> Case {
    case(
        "a field belongs to the manager that changed it last",
        [
            post(format!("{CONFIG_MAPS}?fieldManager=one"), config_map("a")).gives(201, json!({})),
            merge(at(CONFIG_MAPS, "a?fieldManager=two"), json!({"data": {"a": "1"}})).gives(200, json!({"metadata": {"managedFields": [{"manager": "one"}]}})),
            merge(at(CONFIG_MAPS, "a?fieldManager=two"), json!({"data": {"a": "2"}})).gives(
                200,
                json!({"metadata": {"managedFields": [{"manager": "one", "fieldsV1": {"f:data": {".": null}}}, {"manager": "two", "fieldsV1": {"f:data": {"f:a": {}}}}]}}),
            ),
            merge(at(CONFIG_MAPS, "a?fieldManager=three"), json!({"data": {"a": null}})).gives(200, json!({"data": null, "metadata": {"managedFields": null}})),
        ],
    )
}

fn dropped() -> Case {
    case(
        "a JSON patch takes one entry out of managedFields",
        [
            apply(at(CONFIG_MAPS, "a?fieldManager=helm"), config_map("a")).gives(201, json!({})),
            merge(at(CONFIG_MAPS, "a?fieldManager=belay"), json!({"metadata": {"labels": {"l": "1"}}}))
                .gives(
                    200,
                    json!({"metadata": {"managedFields": [{"manager": "helm"}, {"manager": "belay"}]}}),
                ),
            json_patch(
                at(CONFIG_MAPS, "a?fieldManager=belay&timeout=10s"),
                json!([
                    {"op": "test", "path": "/metadata/managedFields/1/manager", "value": "belay"},
                    {"op": "remove", "path": "/metadata/managedFields/1"},
                ]),
            )
            .gives(200, json!({"metadata": {"labels": {"l": "1"}, "managedFields": [{"manager": "helm"}]}})),
            json_patch(
                at(CONFIG_MAPS, "a?fieldManager=belay&timeout=10s"),
                json!([
                    {"op": "test", "path": "/metadata/managedFields/1/manager", "value": "belay"},
                    {"op": "remove", "path": "/metadata/managedFields/1"},
                ]),
            )
            .gives(422, json!({})),
            get(at(CONFIG_MAPS, "a"))
                .gives(200, json!({"metadata": {"managedFields": [{"manager": "helm"}]}})),
            post(format!("{WIDGETS}?fieldManager=belay"), widget("w")).gives(201, json!({})),
            json_patch(
                at(WIDGETS, "w?fieldManager=belay"),
                json!([{"op": "remove", "path": "/metadata/managedFields/0"}]),
            )
            .gives(200, json!({})),
        ],
    )
}

fn given_back() -> Case {
    case(
        "managedFields can be replaced by those of before",
        [
            post(format!("{CONFIG_MAPS}?fieldManager=belay"), config_map("a")).gives(201, json!({})).keep("a"),
            json_patch(at(CONFIG_MAPS, "a?fieldManager=belay&timeout=10s"), json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": "{rv:a}"},
                {"op": "replace", "path": "/metadata/managedFields", "value": [
                    {"manager": "helm", "operation": "Apply", "apiVersion": "v1", "time": "2001-02-03T04:05:06Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}},
                ]},
            ]))
            .gives(200, json!({"metadata": {"managedFields": [{"manager": "helm", "operation": "Apply", "time": "2001-02-03T04:05:06Z"}]}})),
            apply(at(CONFIG_MAPS, "a?fieldManager=helm"), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "2"}}))
                .gives(200, json!({"data": {"a": null, "b": "2"}})),
            post(format!("{WIDGETS}?fieldManager=belay"), widget("w")).gives(201, json!({})),
            json_patch(at(WIDGETS, "w?fieldManager=belay"), json!([{"op": "replace", "path": "/metadata/managedFields", "value": [
                {"manager": "helm", "operation": "Update", "apiVersion": "fixture.belay.dev/v1", "time": "2001-02-03T04:05:06Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:size": {}}}},
                {"manager": "helm", "operation": "Update", "subresource": "status", "apiVersion": "fixture.belay.dev/v1", "time": "2001-02-03T04:05:06Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:status": {}}},
            ]}]))
            .gives(200, json!({"metadata": {"generation": 1}})),
        ],
    )
}

fn reset() -> Case {
    case(
        "an empty entry resets managedFields",
        [
            post(format!("{CONFIG_MAPS}?fieldManager=one"), config_map("a")).gives(201, json!({})).keep("a"),
            merge(at(CONFIG_MAPS, "a?fieldManager=two"), json!({"metadata": {"managedFields": [{}]}}))
                .gives(200, json!({"metadata": {"managedFields": null}})),
            merge(at(CONFIG_MAPS, "a?fieldManager=two"), json!({"data": {"b": "2"}})).gives(200, json!({})),
            post(format!("{CONFIG_MAPS}?fieldManager=one"), config_map("b")).gives(201, json!({})).keep("b"),
            put_changed(
                at(CONFIG_MAPS, "b?fieldManager=two"),
                "b",
                json!({"metadata": {"managedFields": []}, "data": {"x": "1"}}),
            )
            .gives(200, json!({})),
            merge(
                at(CONFIG_MAPS, "b?fieldManager=two"),
                json!({"metadata": {"managedFields": null}, "data": {"y": "1"}}),
            )
            .gives(200, json!({})),
        ],
    )
}

fn bad() -> Case {
    case(
        "managedFields that make no sense are set aside",
        [
            post(format!("{CONFIG_MAPS}?fieldManager=one"), with(config_map("a"), &json!({"metadata": {"managedFields": [
                {"manager": "old", "operation": "Update", "apiVersion": "v1", "time": "2001-02-03T04:05:06Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:a": {}}}},
            ]}})))
            .gives(201, json!({})),
            merge(at(CONFIG_MAPS, "a?fieldManager=one"), json!({"metadata": {"managedFields": [{"manager": "x", "operation": "Guess", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]}})).gives(200, json!({"metadata": {"resourceVersion": "<rv-1>", "managedFields": [{"manager": "one"}]}})),
            merge(at(CONFIG_MAPS, "a?fieldManager=one"), json!({"metadata": {"managedFields": [{"manager": "x", "operation": "Update", "apiVersion": "v1", "fieldsType": "Other", "fieldsV1": {}}]}})).gives(200, json!({"metadata": {"resourceVersion": "<rv-1>", "managedFields": [{"manager": "one"}]}})),
            merge(at(CONFIG_MAPS, &format!("a?fieldManager={}", "m".repeat(129))), json!({})).gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn custom() -> Case {
    case(
        "managedFields of custom resources know lists by their keys",
        [
            post(format!("{WIDGETS}?fieldManager=one"), with(widget("w"), &json!({"metadata": {"finalizers": ["fixture.belay.dev/a"]}, "spec": {"parts": [{"name": "bolt", "count": 1}]}}))).gives(
                201,
                json!({"metadata": {"managedFields": [{"fieldsV1": {"f:metadata": {"f:finalizers": {".": {}, "v:\"fixture.belay.dev/a\"": {}}}}}]}}),
            ),
            merge(at(WIDGETS, "w?fieldManager=two"), json!({"spec": {"parts": [{"name": "bolt", "count": 2}, {"name": "nut", "count": 1}]}})).gives(
                200,
                json!({"metadata": {"managedFields": [{"manager": "one"}, {"manager": "two", "fieldsV1": {"f:spec": {"f:parts": {
                    "k:{\"name\":\"bolt\"}": {"f:count": {}}, "k:{\"name\":\"nut\"}": {".": {}, "f:count": {}, "f:name": {}},
                }}}}]}}),
            ),
            merge(at(WIDGETS, "w/status?fieldManager=standins"), json!({"status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2001-02-03T04:05:06Z"},
            ]}}))
            .gives(200, json!({"metadata": {"managedFields": {"$has": [{"manager": "standins", "subresource": "status"}]}}})),
            merge(at(WIDGETS, "w?fieldManager=standins"), json!({"metadata": {"finalizers": null, "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "11111111-2222-3333-4444-555555555555"},
            ]}}))
            .gives(200, json!({})),
            post(
                "/apis/sources.kyma-project.io/v1alpha1/namespaces/{ns}/httpsources",
                json!({
                    "apiVersion": "sources.kyma-project.io/v1alpha1", "kind": "HTTPSource", "metadata": {"name": "h"},
                    "spec": {"source": "s", "deep": {"list": [{"a": 1}, {"b": 2}], "empty": {}}},
                }),
            )
            .gives(201, json!({"metadata": {"managedFields": [{"fieldsV1": {"f:spec": {".": {}, "f:deep": {".": {}, "f:empty": {}, "f:list": {}}, "f:source": {}}}}]}})),
        ],
    )
}

fn subresources() -> Case {
    case(
        "scale and status have entries of their own",
        [
            post(format!("{DEPLOYMENTS}?fieldManager=helm"), deployment("d", 0)).gives(201, json!({})).in_part("controllers write it at once"),
            merge(at(DEPLOYMENTS, "d/scale?fieldManager=belay"), json!({"spec": {"replicas": 1}})).gives(200, json!({"spec": {"replicas": 1}})).in_part("controllers write it at once"),
            get(at(DEPLOYMENTS, "d")).gives(
                200,
                json!({"metadata": {"managedFields": {"$has": [
                    {"manager": "helm", "operation": "Update", "apiVersion": "apps/v1", "subresource": null},
                    {"manager": "belay", "operation": "Update", "subresource": "scale", "apiVersion": "apps/v1", "fieldsV1": {"f:spec": {"f:replicas": {}}}},
                ]}}}),
            )
            .in_part("controllers write it at once"),
        ],
    )
}
