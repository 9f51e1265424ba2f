//! Deletes: which object is meant, what is answered, and what a finalizer holds back.

use serde_json::json;

use super::{
    CONFIG_MAPS, GADGETS, LEASES, SECRETS, STATIONS, WIDGETS, at, config_map, gadget, station, widget, with,
};
use crate::conformance::row::{Case, apply, case, delete, delete_with, get, merge, post, put_changed};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![plain(), preconditions(), finalizers(), terminating(), dry(), options(), collections(), others()]
}

fn plain() -> Case {
    case(
        "a delete answers with a Status that names the object",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})).keep("a"),
            delete(at(CONFIG_MAPS, "a")).gives(
                200,
                json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": {"name": "a", "kind": "configmaps", "uid": "<uid-1>"},
                }),
            ),
            get(at(CONFIG_MAPS, "a")).refused(404, "NotFound", "configmaps \"a\" not found"),
            delete(at(CONFIG_MAPS, "a")).refused(404, "NotFound", "configmaps \"a\" not found"),
            post(WIDGETS, widget("w")).gives(201, json!({})),
            delete(at(WIDGETS, "w")).gives(
                200,
                json!({"status": "Success", "details": {"name": "w", "group": "fixture.belay.dev", "kind": "widgets", "uid": "<uid-2>"}}),
            ),
            delete(at(WIDGETS, "w")).refused(404, "NotFound", "widgets.fixture.belay.dev \"w\" not found"),
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({"metadata": {"uid": "<uid-3>"}})),
        ],
    )
}

fn preconditions() -> Case {
    let options = |uid: &str, version: Option<&str>| {
        json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": uid, "resourceVersion": version},
        })
    };
    let other = "11111111-2222-3333-4444-555555555555";
    case(
        "a delete with preconditions means one object in one version",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})).keep("a"),
            delete_with(at(CONFIG_MAPS, "a?timeout=10s"), options(other, None)).gives(
                409,
                json!({
                    "kind": "Status", "reason": "Conflict", "details": {"name": "a", "kind": "ConfigMap"},
"message": format!("Operation cannot be fulfilled on ConfigMap \"a\": the UID in the precondition ({other}) does not match the UID in record (<uid-1>). The object might have been deleted and then recreated"),
                }),
            ),
            merge(at(CONFIG_MAPS, "a"), json!({"data": {"a": "2"}})).gives(200, json!({})),
            delete_with(at(CONFIG_MAPS, "a?timeout=10s"), options("{uid:a}", Some("{rv:a}"))).refused(
                409,
                "Conflict",
                "Operation cannot be fulfilled on ConfigMap \"a\": the ResourceVersion in the precondition (<rv-1>) does not match the ResourceVersion in record (<rv-2>). The object might have been modified",
            ),
            delete_with(at(CONFIG_MAPS, "a?timeout=10s"), options("{uid:a}", None)).gives(200, json!({"status": "Success"})),
            delete_with(at(CONFIG_MAPS, "a?timeout=10s"), options("{uid:a}", None)).gives(404, json!({"reason": "NotFound"})),
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            delete_with(at(WIDGETS, "w"), options(other, None)).gives(409, json!({"details": {"group": "fixture.belay.dev"}})),
            delete_with(at(WIDGETS, "w"), options("{uid:w}", Some("1"))).gives(409, json!({"reason": "Conflict"})),
            delete_with(at(WIDGETS, "w"), options("{uid:w}", Some("{rv:w}"))).gives(200, json!({"status": "Success"})),
            post(STATIONS, station("{ns}")).gives(201, json!({})).keep("s"),
            delete_with(at(STATIONS, "{ns}"), options(other, None)).gives(409, json!({"reason": "Conflict"})),
            delete_with(at(STATIONS, "{ns}"), options("{uid:s}", Some("{rv:s}"))).gives(200, json!({"status": "Success"})),
        ],
    )
}

fn finalizers() -> Case {
    case(
        "a finalizer holds an object until it is taken off",
        [
            post(GADGETS, with(gadget("g"), &json!({"metadata": {"finalizers": ["fixture.belay.dev/gadget"]}}))).gives(201, json!({})).keep("g"),
            delete(at(GADGETS, "g")).gives(
                200,
                json!({
                    "kind": "Gadget",
                    "metadata": {"uid": "<uid-1>", "deletionTimestamp": "<time>", "deletionGracePeriodSeconds": 0, "generation": 2, "resourceVersion": "<rv-2>"},
                }),
            ),
            get(at(GADGETS, "g")).gives(200, json!({"metadata": {"deletionTimestamp": "<time>"}})),
            delete(at(GADGETS, "g")).gives(200, json!({"metadata": {"resourceVersion": "<rv-2>"}})),
            post(GADGETS, gadget("g")).gives(409, json!({"reason": "AlreadyExists"})),
            merge(at(GADGETS, "g"), json!({"metadata": {"finalizers": []}})).gives(200, json!({"kind": "Gadget", "metadata": {"finalizers": null, "uid": "<uid-1>"}})),
            get(at(GADGETS, "g")).gives(404, json!({"reason": "NotFound"})),
            post(CONFIG_MAPS, with(config_map("a"), &json!({"metadata": {"finalizers": ["fixture.belay.dev/a"]}}))).gives(201, json!({})).keep("a"),
            delete_with(at(CONFIG_MAPS, "a"), json!({"propagationPolicy": "Background", "preconditions": {"uid": "{uid:a}"}})).gives(
                200,
                json!({"kind": "ConfigMap", "metadata": {"deletionTimestamp": "<time>", "generation": null}}),
            ).keep("b"),
            put_changed(at(CONFIG_MAPS, "a"), "b", json!({"metadata": {"finalizers": null}})).gives(200, json!({"metadata": {"finalizers": null}})),
            get(at(CONFIG_MAPS, "a")).gives(404, json!({})),
        ],
    )
}

fn terminating() -> Case {
    case(
        "what is terminating takes changes but no new finalizers",
        [
            post(WIDGETS, with(widget("w"), &json!({"metadata": {"finalizers": ["fixture.belay.dev/a"]}})))
                .gives(201, json!({})),
            delete(at(WIDGETS, "w")).gives(200, json!({"metadata": {"generation": 2}})),
            merge(at(WIDGETS, "w"), json!({"spec": {"size": 2}, "metadata": {"labels": {"l": "1"}}}))
                .gives(200, json!({"spec": {"size": 2}, "metadata": {"generation": 3}})),
            merge(
                at(WIDGETS, "w"),
                json!({"metadata": {"finalizers": ["fixture.belay.dev/a", "fixture.belay.dev/b"]}}),
            )
            .gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w/status"), json!({"status": {"observedGeneration": 2}}))
                .gives(200, json!({"status": {"observedGeneration": 2}})),
            apply(at(WIDGETS, "w?fieldManager=standins&force=true"), widget("w"))
                .gives(200, json!({"metadata": {"deletionTimestamp": "<time>"}})),
            merge(at(WIDGETS, "w"), json!({"metadata": {"deletionTimestamp": null}}))
                .gives(200, json!({"metadata": {"deletionTimestamp": "<time>"}})),
            merge(at(WIDGETS, "w?dryRun=All"), json!({"metadata": {"finalizers": null}}))
                .gives(200, json!({"metadata": {"finalizers": null}})),
            get(at(WIDGETS, "w")).gives(200, json!({"metadata": {"finalizers": ["fixture.belay.dev/a"]}})),
            merge(at(WIDGETS, "w"), json!({"metadata": {"finalizers": null}})).gives(200, json!({})),
            get(at(WIDGETS, "w")).gives(404, json!({})),
        ],
    )
}

fn dry() -> Case {
    case(
        "a dry run of a delete deletes nothing",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})).keep("a"),
            delete(at(CONFIG_MAPS, "a?dryRun=All")).gives(200, json!({"status": "Success"})),
            delete_with(
                at(CONFIG_MAPS, "a?timeout=10s&dryRun=All"),
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground", "preconditions": {"uid": "{uid:a}", "resourceVersion": "{rv:a}"}, "dryRun": ["All"]}),
            )
            .gives(200, json!({})),
            delete_with(at(CONFIG_MAPS, "a"), json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}, "dryRun": ["All"]})).gives(409, json!({"reason": "Conflict"})),
            get(at(CONFIG_MAPS, "a")).gives(200, json!({"metadata": {"resourceVersion": "<rv-1>", "deletionTimestamp": null}})),
            post(GADGETS, with(gadget("g"), &json!({"metadata": {"finalizers": ["fixture.belay.dev/gadget"]}}))).gives(201, json!({})),
            delete_with(at(GADGETS, "g"), json!({"dryRun": ["All"]})).gives(200, json!({"kind": "Gadget"})),
            get(at(GADGETS, "g")).gives(200, json!({"metadata": {"deletionTimestamp": null}})),
            post(WIDGETS, widget("w")).gives(201, json!({})),
            delete_with(at(WIDGETS, "w"), json!({"dryRun": ["All"], "propagationPolicy": "Background"})).gives(200, json!({"status": "Success"})),
            get(at(WIDGETS, "w")).gives(200, json!({})),
            delete_with(at(WIDGETS, "none"), json!({"dryRun": ["All"]})).gives(404, json!({})),
        ],
    )
}

fn options() -> Case {
    case(
        "options of a delete that make no sense are refused",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})),
            delete_with(at(CONFIG_MAPS, "a"), json!({"propagationPolicy": "Sideways"}))
                .gives(422, json!({"reason": "Invalid"})),
            delete_with(at(CONFIG_MAPS, "a"), json!({"dryRun": ["Some"]}))
                .gives(422, json!({"reason": "Invalid"})),
            delete_with(
                at(CONFIG_MAPS, "a"),
                json!({"orphanDependents": true, "propagationPolicy": "Orphan"}),
            )
            .gives(422, json!({"reason": "Invalid"})),
            delete_with(at(CONFIG_MAPS, "a"), json!({"apiVersion": "v1", "kind": "ConfigMap"}))
                .gives(400, json!({"reason": "BadRequest"})),
            delete(at(CONFIG_MAPS, "a?propagationPolicy=Sideways")).gives(422, json!({"reason": "Invalid"})),
            delete_with(
                at(CONFIG_MAPS, "a"),
                json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0}),
            )
            .gives(200, json!({"status": "Success"})),
        ],
    )
}

fn collections() -> Case {
    let labelled =
        |name: &str, value: &str| with(config_map(name), &json!({"metadata": {"labels": {"of": value}}}));
    case(
        "a collection is deleted as far as a selector goes",
        [
            post(CONFIG_MAPS, labelled("a", "x")).gives(201, json!({})),
            post(CONFIG_MAPS, labelled("b", "x")).gives(201, json!({})),
            post(CONFIG_MAPS, labelled("c", "y")).gives(201, json!({})),
            delete(format!("{CONFIG_MAPS}?labelSelector=of%3Dx")).gives(200, json!({})),
            get(format!("{CONFIG_MAPS}?labelSelector=of"))
                .gives(200, json!({"items": [{"metadata": {"name": "c"}}]})),
        ],
    )
}

fn others() -> Case {
    case(
        "each kind says what was deleted",
        [
            post(SECRETS, json!({"metadata": {"name": "s"}})).gives(201, json!({})).keep("s"),
            delete_with(at(SECRETS, "s?timeout=10s"), json!({"propagationPolicy": "Background", "preconditions": {"uid": "{uid:s}"}}))
                .gives(200, json!({"details": {"kind": "secrets", "group": null}})),
            post(LEASES, json!({"metadata": {"name": "l"}})).gives(201, json!({})).keep("l"),
            delete_with(at(LEASES, "l?timeout=10s"), json!({"propagationPolicy": "Background", "preconditions": {"uid": "{uid:l}", "resourceVersion": "{rv:l}"}}))
                .gives(200, json!({"details": {"kind": "leases", "group": "coordination.k8s.io"}})),
            post(STATIONS, station("{ns}")).gives(201, json!({})),
            delete(at(STATIONS, "{ns}")).gives(200, json!({"details": {"kind": "stations"}})),
        ],
    )
}
