//! Server-side apply, as stand-ins and Helm use it.

use serde_json::json;

use super::{
    CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, NAMESPACES, STATIONS, WIDGETS, at, config_map,
    definitions::definition,
    policies::{BINDINGS, POLICIES, binding},
    station, widget, with,
    workloads::deployment,
};
use crate::conformance::row::{APPLY, Case, apply, case, delete, get, merge, post, send};

const CONTROLLERS: &str = "controllers write it at once";

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        making(),
        conflicts(),
        leaving_out(),
        beside_updates(),
        refused(),
        dry(),
        cluster(),
        lists(),
        definitions(),
        admission(),
        workloads(),
    ]
}

fn making() -> Case {
    case(
        "an apply makes what is not there, and is a no-op the second time",
        [
            apply(at(CONFIG_MAPS, "a?fieldManager=standins&force=true"), config_map("a")).gives(
                201,
                json!({"data": {"a": "1"}, "metadata": {"managedFields": [{"manager": "standins", "operation": "Apply", "fieldsV1": {"f:data": {"f:a": {}}}}]}}),
            ),
            apply(at(CONFIG_MAPS, "a?fieldManager=standins&force=true"), config_map("a")).gives(200, json!({"metadata": {"resourceVersion": "<rv-1>"}})),
            apply(at(CONFIG_MAPS, "a?fieldManager=standins&force=true"), with(config_map("a"), &json!({"data": {"a": "2", "b": "3"}})))
                .gives(200, json!({"data": {"a": "2", "b": "3"}, "metadata": {"resourceVersion": "<rv-2>"}})),
            apply(at(WIDGETS, "w?fieldManager=standins&force=true"), widget("w")).gives(201, json!({"metadata": {"generation": 1}, "spec": {"phase": "Draft"}})),
            apply(at(WIDGETS, "w?fieldManager=standins&force=true"), widget("w")).gives(200, json!({"metadata": {"resourceVersion": "<rv-3>"}})),
            apply(at(WIDGETS, "w?fieldManager=standins&force=true"), with(widget("w"), &json!({"spec": {"size": 4}})))
                .gives(200, json!({"metadata": {"generation": 2}, "spec": {"size": 4}})),
        ],
    )
}

fn conflicts() -> Case {
    case(
        "two that apply the same field are in conflict until one of them forces it",
        [
            apply(at(CONFIG_MAPS, "a?fieldManager=one"), config_map("a")).gives(201, json!({})),
            apply(at(CONFIG_MAPS, "a?fieldManager=two"), with(config_map("a"), &json!({"data": {"a": "2"}}))).gives(
                409,
                json!({
                    "kind": "Status", "reason": "Conflict",
                    "message": "Apply failed with 1 conflict: conflict with \"one\": .data.a",
                    "details": {"causes": [{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a"}]},
                }),
            ),
            apply(at(CONFIG_MAPS, "a?fieldManager=two"), config_map("a")).gives(200, json!({"metadata": {"managedFields": [{"manager": "one"}, {"manager": "two"}]}})),
            apply(at(CONFIG_MAPS, "a?fieldManager=two&force=true"), with(config_map("a"), &json!({"data": {"a": "2"}})))
                .gives(200, json!({"data": {"a": "2"}})),
            apply(at(CONFIG_MAPS, "a?fieldManager=two&force=false"), with(config_map("a"), &json!({"data": {"a": "3"}}))).gives(200, json!({"data": {"a": "3"}})),
            apply(at(WIDGETS, "w?fieldManager=one"), with(widget("w"), &json!({"spec": {"color": "red"}}))).gives(201, json!({})),
            apply(at(WIDGETS, "w?fieldManager=two"), with(widget("w"), &json!({"spec": {"size": 7, "phase": "Active"}}))).gives(409, json!({
                "message": "~Apply failed with 1 conflict: conflict with \"one\"",
            })),
        ],
    )
}

fn leaving_out() -> Case {
    case(
        "what a manager stops applying goes, unless another one has it",
        [
            apply(at(CONFIG_MAPS, "a?fieldManager=one"), with(config_map("a"), &json!({"data": {"b": "2", "c": "3"}, "metadata": {"labels": {"l": "1"}}}))).gives(201, json!({})),
            apply(at(CONFIG_MAPS, "a?fieldManager=two"), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"b": "2"}})).gives(200, json!({})),
            apply(at(CONFIG_MAPS, "a?fieldManager=one"), config_map("a")).gives(200, json!({"data": {"a": "1", "b": "2", "c": null}, "metadata": {"labels": null}})),
            apply(at(CONFIG_MAPS, "a?fieldManager=two"), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})).gives(200, json!({"data": {"a": "1", "b": null}})),
        ],
    )
}

fn beside_updates() -> Case {
    case(
        "who updates a field is in conflict with who applies it",
        [
            apply(at(CONFIG_MAPS, "a?fieldManager=helm"), config_map("a")).gives(201, json!({})),
            merge(at(CONFIG_MAPS, "a?fieldManager=belay"), json!({"data": {"a": "2"}})).gives(
                200,
                json!({"metadata": {"managedFields": [{"manager": "belay", "operation": "Update"}]}}),
            ),
            apply(at(CONFIG_MAPS, "a?fieldManager=helm"), config_map("a"))
                .gives(409, json!({"message": "~conflict with \"belay\" using v1"})),
            apply(at(CONFIG_MAPS, "a?fieldManager=helm&force=true"), config_map("a"))
                .gives(200, json!({"data": {"a": "1"}})),
            post(format!("{CONFIG_MAPS}?fieldManager=kubectl-create"), config_map("b")).gives(201, json!({})),
            apply(
                at(CONFIG_MAPS, "b?fieldManager=helm"),
                with(config_map("b"), &json!({"data": {"a": "7"}})),
            )
            .gives(409, json!({"reason": "Conflict"})),
        ],
    )
}

fn refused() -> Case {
    case(
        "an apply needs a manager, the object's kind and no managed fields of its own",
        [
            apply(at(CONFIG_MAPS, "a"), config_map("a")).gives(422, json!({"kind": "Status"})),
            apply(at(CONFIG_MAPS, "a?fieldManager=one"), json!({"metadata": {"name": "a"}}))
                .gives(400, json!({"kind": "Status"})),
            apply(
                at(CONFIG_MAPS, "a?fieldManager=one"),
                with(config_map("a"), &json!({"metadata": {"managedFields": [{"manager": "x"}]}})),
            )
            .gives(400, json!({"kind": "Status"})),
            apply(at(CONFIG_MAPS, "a?fieldManager=one"), config_map("b"))
                .gives(400, json!({"kind": "Status"})),
            apply(
                at(CONFIG_MAPS, "a?fieldManager=one"),
                with(config_map("a"), &json!({"metadata": {"resourceVersion": "7"}})),
            )
            .gives(201, json!({})),
            apply(at(WIDGETS, "w?fieldManager=one"), with(widget("w"), &json!({"spec": {"size": "big"}})))
                .gives(500, json!({"kind": "Status"})),
            apply(at(WIDGETS, "w?fieldManager=one"), with(widget("w"), &json!({"spec": {"size": 101}})))
                .gives(422, json!({"kind": "Status"})),
            apply(at(WIDGETS, "w?fieldManager=one"), with(widget("w"), &json!({"spec": {"unknown": 1}})))
                .gives(500, json!({"kind": "Status"})),
            apply(at(CONFIG_MAPS, "c?fieldManager=one"), with(config_map("c"), &json!({"unknown": 1})))
                .gives(500, json!({"kind": "Status"})),
            merge(at(CONFIG_MAPS, "a?fieldManager=one&force=true"), json!({}))
                .gives(422, json!({"kind": "Status"})),
            send(http::Method::PATCH, at(CONFIG_MAPS, "a?fieldManager=one"), "{nonsense")
                .typed(APPLY)
                .gives(400, json!({"kind": "Status"})),
        ],
    )
}

fn dry() -> Case {
    case(
        "a dry run of an apply stores nothing",
        [
            apply(
                at(CONFIG_MAPS, "a?fieldManager=standins&force=true&dryRun=All&fieldValidation=Strict"),
                config_map("a"),
            )
            .gives(201, json!({})),
            get(at(CONFIG_MAPS, "a")).gives(404, json!({})),
            post(WIDGETS, widget("w")).gives(201, json!({})),
            apply(
                at(WIDGETS, "w?fieldManager=standins&force=true&dryRun=All&fieldValidation=Strict"),
                with(widget("w"), &json!({"spec": {"size": 5}})),
            )
            .gives(200, json!({"spec": {"size": 5}})),
            get(at(WIDGETS, "w"))
                .gives(200, json!({"spec": {"size": 1}, "metadata": {"resourceVersion": "<rv-1>"}})),
        ],
    )
}

fn cluster() -> Case {
    case(
        "namespaces and kinds of the cluster are applied too",
        [
            apply(
                at(NAMESPACES, "{ns}-b?fieldManager=standins&force=true"),
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}-b"}}),
            )
            .gives(201, json!({"status": {"phase": "Active"}})),
            apply(
                at(NAMESPACES, "{ns}-b?fieldManager=standins&force=true"),
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}-b"}}),
            )
            .gives(200, json!({"metadata": {"resourceVersion": "<rv-2>", "managedFields": [{"manager": "before-first-apply"}]}})),
            apply(at(STATIONS, "{ns}?fieldManager=standins&force=true"), station("{ns}"))
                .gives(201, json!({})),
            apply(
                at(STATIONS, "{ns}?fieldManager=standins&force=true"),
                with(station("{ns}"), &json!({"spec": {"state": "Open"}})),
            )
            .gives(200, json!({"metadata": {"generation": 2}})),
        ],
    )
}

fn lists() -> Case {
    let parts = |parts: serde_json::Value| with(widget("w"), &json!({"spec": {"parts": parts}}));
    case(
        "a list that merges by key belongs to several managers",
        [
            apply(at(WIDGETS, "w?fieldManager=one"), parts(json!([{"name": "bolt", "count": 4}]))).gives(201, json!({})),
            apply(at(WIDGETS, "w?fieldManager=two"), json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 1, "parts": [{"name": "nut", "count": 2}]}})).gives(
                200,
                json!({"spec": {"parts": [{"name": "bolt", "count": 4}, {"name": "nut", "count": 2}]}}),
            ),
            apply(at(WIDGETS, "w?fieldManager=one"), widget("w")).gives(200, json!({"spec": {"parts": [{"name": "nut", "count": 2}]}})),
            apply(at(WIDGETS, "w?fieldManager=one"), parts(json!([{"name": "bolt"}, {"name": "bolt"}]))).gives(500, json!({"kind": "Status"})),
        ],
    )
}

/// As whoever installs things does it.
fn forced(collection: &str, name: &str) -> String {
    at(collection, &format!("{name}?fieldManager=standins&force=true"))
}

// Cases of their own: controllers write these kinds at some time, and versions are counted within a case.

fn definitions() -> Case {
    let things = "things.{ns}.example";
    case(
        "a CRD that is there is applied again",
        [
            apply(forced(DEFINITIONS, things), definition()).gives(201, json!({})),
            apply(forced(DEFINITIONS, things), definition())
                .gives(200, json!({"metadata": {"generation": 1}, "spec": {"names": {"singular": "thing"}}}))
                .in_part(CONTROLLERS),
            delete(at(DEFINITIONS, things)).gives(200, json!({})).in_part(CONTROLLERS),
        ],
    )
}

fn admission() -> Case {
    // It fits nothing, so it is in nobody's way.
    let policy = || {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "{ns}.example"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{"apiGroups": ["{ns}.example"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["things"]}]},
                "validations": [{"expression": "has(object.spec.subscriber) || has(object.spec.reply)", "message": "neither"}],
            },
        })
    };
    let denies = json!({"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"generation": 1}, "spec": {"validationActions": ["Deny"]}});
    case(
        "a policy and its binding are applied, and applied again",
        [
            apply(forced(BINDINGS, "{ns}.example"), binding()).gives(201, denies.clone()),
            apply(forced(BINDINGS, "{ns}.example"), binding()).gives(200, denies),
            apply(forced(POLICIES, "{ns}.example"), policy()).gives(
                201,
                json!({"kind": "ValidatingAdmissionPolicy", "metadata": {"generation": 1}, "spec": {"matchConstraints": {"matchPolicy": "Equivalent"}}, "status": {}}),
            ),
            apply(forced(POLICIES, "{ns}.example"), policy())
                .gives(200, json!({"kind": "ValidatingAdmissionPolicy", "metadata": {"generation": 1}}))
                .in_part(CONTROLLERS),
            delete(at(BINDINGS, "{ns}.example")).gives(200, json!({"status": "Success"})),
            delete(at(POLICIES, "{ns}.example")).gives(200, json!({"status": "Success"})),
        ],
    )
}

fn workloads() -> Case {
    case(
        "a Deployment is applied, and applied again",
        [
            apply(forced(DEPLOYMENTS, "d"), deployment("d", 0)).gives(201, json!({"spec": {"replicas": 0}})),
            apply(forced(DEPLOYMENTS, "d"), deployment("d", 0))
                .gives(200, json!({"metadata": {"generation": 1}, "spec": {"replicas": 0}}))
                .in_part(CONTROLLERS),
        ],
    )
}
