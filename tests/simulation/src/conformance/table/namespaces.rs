//! Namespaces: made, terminating, gone.

use serde_json::json;

use super::{CONFIG_MAPS, LEASES, NAMESPACES, SECRETS, WIDGETS, at, config_map, widget, with};
use crate::conformance::row::{Case, case, delete, get, merge, post, put_changed};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![missing(), emptied(), terminating(), labels(), finalize()]
}

fn missing() -> Case {
    let none = "/api/v1/namespaces/{ns}-none/configmaps";
    case(
        "a namespace that is not there reads as empty and takes nothing",
        [
            get(at(NAMESPACES, "{ns}-none")).refused(404, "NotFound", "namespaces \"{ns}-none\" not found"),
            get(none).gives(200, json!({"kind": "ConfigMapList", "items": []})),
            get(at(none, "a")).refused(404, "NotFound", "configmaps \"a\" not found"),
            post(none, config_map("a")).gives(
                404,
                json!({"reason": "NotFound", "message": "namespaces \"{ns}-none\" not found", "details": {"name": "{ns}-none", "kind": "namespaces"}}),
            ),
            post(format!("{none}?dryRun=All"), config_map("a")).gives(404, json!({"details": {"kind": "namespaces"}})),
            post("/apis/fixture.belay.dev/v1/namespaces/{ns}-none/widgets", widget("w")).gives(404, json!({"details": {"kind": "namespaces"}})),
            get("/apis/fixture.belay.dev/v1/namespaces/{ns}-none/widgets").gives(200, json!({"items": []})),
            delete(at(none, "a")).gives(404, json!({"details": {"name": "a", "kind": "configmaps"}})),
        ],
    )
}

fn emptied() -> Case {
    case(
        "what is in a namespace goes with it",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})),
            post(WIDGETS, widget("w")).gives(201, json!({})),
            post(LEASES, json!({"metadata": {"name": "l"}})).gives(201, json!({})),
            delete(at(NAMESPACES, "{ns}")).gives(200, json!({"kind": "Namespace", "metadata": {"deletionTimestamp": "<time>"}, "status": {"phase": "Terminating"}, "spec": {"finalizers": ["kubernetes"]}})),
            get(at(NAMESPACES, "{ns}")).gives(404, json!({"reason": "NotFound"})).eventually(),
            get(at(CONFIG_MAPS, "a")).gives(404, json!({})),
            get(at(WIDGETS, "w")).gives(404, json!({})),
            get(at(LEASES, "l")).gives(404, json!({})),
        ],
    )
}

fn terminating() -> Case {
    case(
        "nothing can be made in a namespace that is terminating",
        [
            post(WIDGETS, with(widget("held"), &json!({"metadata": {"finalizers": ["fixture.belay.dev/hold"]}}))).gives(201, json!({})),
            delete(at(NAMESPACES, "{ns}")).gives(200, json!({"status": {"phase": "Terminating"}})),
            post(CONFIG_MAPS, config_map("b"))
                .gives(
                    403,
                    json!({
                        "reason": "Forbidden", "message": "configmaps \"b\" is forbidden: unable to create new content in namespace {ns} because it is being terminated",
                        "details": {"name": "b", "kind": "configmaps", "causes": [{"reason": "NamespaceTerminating", "message": "namespace {ns} is being terminated", "field": "metadata.namespace"}]},
                    }),
                )
                .eventually(),
            post(WIDGETS, widget("v")).gives(403, json!({"details": {"causes": [{"reason": "NamespaceTerminating"}]}})),
            post(format!("{SECRETS}?dryRun=All"), json!({"metadata": {"name": "s"}})).gives(403, json!({"details": {"causes": [{"reason": "NamespaceTerminating"}]}})),
            get(at(WIDGETS, "held")).gives(200, json!({"metadata": {"deletionTimestamp": "<time>"}})).eventually(),
            merge(at(WIDGETS, "held"), json!({"metadata": {"labels": {"l": "1"}}})).gives(200, json!({})),
            post(NAMESPACES, json!({"metadata": {"name": "{ns}"}})).gives(409, json!({"reason": "AlreadyExists"})),
            delete(at(NAMESPACES, "{ns}")).gives(200, json!({"status": {"phase": "Terminating"}})).in_part("controllers change it all the time"),
            merge(at(WIDGETS, "held"), json!({"metadata": {"finalizers": null}})).gives(200, json!({})),
            get(at(NAMESPACES, "{ns}")).gives(404, json!({})).eventually(),
        ],
    )
}

fn labels() -> Case {
    case(
        "a namespace is labelled with its name",
        [
            get(at(NAMESPACES, "{ns}")).gives(200, json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "{ns}"}}, "status": {"phase": "Active"}})).keep("n"),
            merge(at(NAMESPACES, "{ns}?fieldManager=belay"), json!({"metadata": {"labels": {"knative-eventing-injection": "enabled"}}})).gives(200, json!({"metadata": {"labels": {"knative-eventing-injection": "enabled"}}})),
            merge(at(NAMESPACES, "{ns}"), json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "other"}}})).gives(200, json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "{ns}"}}})),
            get(format!("{NAMESPACES}?labelSelector=kubernetes.io%2Fmetadata.name%3D{{ns}}")).gives(200, json!({"kind": "NamespaceList", "items": [{"metadata": {"name": "{ns}"}}]})),
            get(format!("{NAMESPACES}?fieldSelector=metadata.name%3D{{ns}}")).gives(200, json!({"items": [{"metadata": {"name": "{ns}"}}]})),
            post(NAMESPACES, json!({"metadata": {"name": "{ns}"}})).refused(409, "AlreadyExists", "namespaces \"{ns}\" already exists"),
            post(format!("{NAMESPACES}?dryRun=All"), json!({"metadata": {"name": "{ns}-dry"}})).gives(201, json!({"status": {"phase": "Active"}})),
            post(NAMESPACES, json!({"metadata": {"name": "Upper"}})).gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn finalize() -> Case {
    case(
        "the finalizers of a namespace's spec are written at a path of their own",
        [
            get(at(NAMESPACES, "{ns}")).gives(200, json!({"spec": {"finalizers": ["kubernetes"]}})).keep("n"),
            put_changed(at(NAMESPACES, "{ns}"), "n", json!({"spec": {"finalizers": null}}))
                .gives(200, json!({"spec": {"finalizers": ["kubernetes"]}})),
            put_changed(
                at(NAMESPACES, "{ns}/finalize"),
                "n",
                json!({"spec": {"finalizers": ["kubernetes", "fixture.belay.dev/hold"]}}),
            )
            .gives(200, json!({"spec": {"finalizers": ["kubernetes", "fixture.belay.dev/hold"]}}))
            .keep("n"),
            delete(at(NAMESPACES, "{ns}")).gives(200, json!({"status": {"phase": "Terminating"}})),
            get(at(NAMESPACES, "{ns}"))
                .gives(200, json!({"spec": {"finalizers": ["fixture.belay.dev/hold"]}}))
                .eventually()
                .in_part("controllers write conditions into it")
                .keep("n"),
            put_changed(
                at(NAMESPACES, "{ns}/finalize"),
                "n",
                json!({"spec": {"finalizers": null}, "metadata": {"resourceVersion": null}}),
            )
            .gives(200, json!({}))
            .in_part("controllers write conditions into it"),
            get(at(NAMESPACES, "{ns}")).gives(404, json!({})).eventually(),
        ],
    )
}
