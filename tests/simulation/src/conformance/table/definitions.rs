//! CRDs themselves: installed, changed and removed while the server runs.

use serde_json::{Value, json};

use super::{DEFINITIONS, at, with};
use crate::conformance::row::{Case, apply, case, delete, delete_with, get, json_patch, merge, post};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![life(), held(), ours(), refused()]
}

const CONTROLLERS: &str = "controllers write it at once";

/// A CRD of a group that is the case's own.
pub(super) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.{ns}.example"},
        "spec": {
            "group": "{ns}.example", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
            }}}],
        },
    })
}

fn thing() -> Value {
    json!({"apiVersion": "{ns}.example/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"a": "x", "b": "y"}})
}

const THINGS: &str = "/apis/{ns}.example/v1/namespaces/{ns}/things";

fn life() -> Case {
    case(
        "a kind is served from its CRD on until the CRD goes",
        [
            get(THINGS).gives(404, json!("404 page not found\n")),
            get("/apis/{ns}.example").gives(404, json!("404 page not found\n")),
            apply(at(DEFINITIONS, "things.{ns}.example?fieldManager=standins&force=true"), definition()).gives(
                201,
                json!({
                    "kind": "CustomResourceDefinition", "metadata": {"generation": 1},
                    "spec": {"names": {"kind": "Thing", "listKind": "ThingList", "singular": "thing"}, "conversion": {"strategy": "None"}},
                    "status": {"storedVersions": ["v1"], "conditions": null},
                }),
            ),
            get(at(DEFINITIONS, "things.{ns}.example"))
                .gives(
                    200,
                    json!({"status": {"acceptedNames": {"kind": "Thing"}, "storedVersions": ["v1"], "conditions": {"$has": [
                        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found"},
                        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
                    ]}}}),
                )
                .eventually(),
            get(THINGS).gives(200, json!({"kind": "ThingList", "items": []})).eventually(),
            get("/apis/{ns}.example").gives(200, json!({"kind": "APIGroup", "preferredVersion": {"version": "v1"}})).eventually(),
            get("/apis/{ns}.example/v1").gives(200, json!({"resources": [{"name": "things", "kind": "Thing", "singularName": "thing"}]})).eventually(),
            post(THINGS, thing()).gives(201, json!({"spec": {"a": "x", "b": null}})),
            merge(at(DEFINITIONS, "things.{ns}.example"), json!({"spec": {"versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }}}]}}))
            .gives(200, json!({"metadata": {"generation": 2}})),
            post(format!("{THINGS}?dryRun=All"), with(thing(), &json!({"metadata": {"name": "u"}}))).gives(201, json!({"spec": {"b": "y"}})).eventually(),
            json_patch(at(DEFINITIONS, "things.{ns}.example"), json!([{"op": "add", "path": "/metadata/annotations", "value": {"belay.dev/run": "1"}}]))
                .gives(200, json!({"metadata": {"annotations": {"belay.dev/run": "1"}, "generation": 2}})),
            json_patch(at(DEFINITIONS, "things.{ns}.example"), json!([{"op": "test", "path": "/metadata/annotations/belay.dev~1run", "value": "2"}]))
                .gives(422, json!({"kind": "Status", "reason": "Invalid"})),
            delete_with(at(DEFINITIONS, "things.{ns}.example"), json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}))
                .gives(409, json!({"reason": "Conflict"})),
            delete(at(DEFINITIONS, "things.{ns}.example")).gives(200, json!({"kind": "CustomResourceDefinition", "metadata": {"deletionTimestamp": "<time>", "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]}})),
            get(at(DEFINITIONS, "things.{ns}.example")).gives(404, json!({"reason": "NotFound"})).eventually(),
            get(THINGS).gives(404, json!("404 page not found\n")).eventually(),
            get("/apis/{ns}.example").gives(404, json!("404 page not found\n")).eventually(),
        ],
    )
}

fn held() -> Case {
    case(
        "a CRD that is terminating waits for the objects of its kind",
        [
            post(DEFINITIONS, definition()).gives(201, json!({})),
            get(THINGS).gives(200, json!({"items": []})).eventually(),
            post(THINGS, with(thing(), &json!({"metadata": {"finalizers": ["fixture.belay.dev/hold"]}})))
                .gives(201, json!({}))
                .eventually(),
            delete(at(DEFINITIONS, "things.{ns}.example"))
                .gives(200, json!({"metadata": {"deletionTimestamp": "<time>"}})),
            get(at(THINGS, "t"))
                .gives(200, json!({"metadata": {"deletionTimestamp": "<time>"}}))
                .eventually(),
            get(at(DEFINITIONS, "things.{ns}.example"))
                .gives(
                    200,
                    json!({"status": {"conditions": {"$has": [{"type": "Terminating", "status": "True"}]}}}),
                )
                .eventually()
                .in_part(CONTROLLERS),
            post(THINGS, with(thing(), &json!({"metadata": {"name": "late"}})))
                .refused(403, "Forbidden", "things.{ns}.example \"late\" is forbidden: create not allowed while custom resource definition is terminating"),
            merge(at(THINGS, "t"), json!({"metadata": {"finalizers": null}})).gives(200, json!({})),
            get(at(DEFINITIONS, "things.{ns}.example")).gives(404, json!({})).eventually(),
        ],
    )
}

fn ours() -> Case {
    case(
        "the CRDs of the stand-ins are there to be read",
        [
            get(at(DEFINITIONS, "widgets.fixture.belay.dev"))
                .gives(200, json!({"spec": {"group": "fixture.belay.dev", "scope": "Namespaced"}, "status": {"conditions": {"$has": [{"type": "Established", "status": "True"}]}}}))
                .in_part("others install them too"),
            get(DEFINITIONS)
                .gives(200, json!({"kind": "CustomResourceDefinitionList", "apiVersion": "apiextensions.k8s.io/v1", "items": {"$has": [{"metadata": {"name": "stations.fixture.belay.dev"}}]}}))
                .in_part("others install them too"),
            get(at(DEFINITIONS, "none.fixture.belay.dev")).refused(404, "NotFound", "customresourcedefinitions.apiextensions.k8s.io \"none.fixture.belay.dev\" not found"),
        ],
    )
}

fn refused() -> Case {
    case(
        "a CRD must fit its name and have one stored version",
        [
            post(DEFINITIONS, with(definition(), &json!({"metadata": {"name": "other.{ns}.example"}})))
                .gives(422, json!({"reason": "Invalid"}))
                .in_part("what else is wrong is not asked by anybody"),
            post(DEFINITIONS, with(definition(), &json!({"spec": {"versions": []}})))
                .gives(422, json!({"reason": "Invalid"}))
                .in_part("what else is wrong is not asked by anybody"),
            post(format!("{DEFINITIONS}?dryRun=All"), definition())
                .gives(201, json!({"spec": {"names": {"singular": "thing"}}})),
            delete(at(DEFINITIONS, "things.{ns}.example")).gives(404, json!({"reason": "NotFound"})),
        ],
    )
}
