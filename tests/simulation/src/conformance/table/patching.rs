//! Merge patches and JSON patches.

use serde_json::{Value, json};

use super::{
    CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, SECRETS, STATEFUL_SETS, STATIONS, WIDGETS, at, config_map, station,
    widget, with,
    workloads::{deployment, stateful_set},
};
use crate::conformance::row::{Case, case, get, json_patch, merge, post};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        merging(),
        versions(),
        finalizers(),
        json(),
        tests(),
        status(),
        cluster(),
        dry(),
        identity(),
        missing(),
        namespaces(),
        labelled("a JSON patch reaches a Deployment", DEPLOYMENTS, deployment("w", 0)),
        labelled("a JSON patch reaches a StatefulSet", STATEFUL_SETS, stateful_set("w")),
        absent(),
    ]
}

fn merging() -> Case {
    case(
        "a merge patch sets, removes and keeps",
        [
            post(CONFIG_MAPS, with(config_map("a"), &json!({"data": {"b": "2"}, "metadata": {"labels": {"x": "1", "y": "2"}}}))).gives(201, json!({})),
            merge(at(CONFIG_MAPS, "a?fieldManager=belay&timeout=10s"), json!({"data": {"a": "new", "b": null}, "metadata": {"labels": {"x": null, "z": "3"}}})).gives(
                200,
                json!({"data": {"a": "new", "b": null}, "metadata": {"labels": {"x": null, "y": "2", "z": "3"}}}),
            ),
            merge(at(CONFIG_MAPS, "a"), json!({"data": {"a": "new"}})).gives(200, json!({"metadata": {"resourceVersion": "<rv-2>"}})),
            merge(at(CONFIG_MAPS, "a"), json!({})).gives(200, json!({"metadata": {"resourceVersion": "<rv-2>"}})),
            merge(at(CONFIG_MAPS, "a"), json!({"metadata": {"labels": null}})).gives(200, json!({"metadata": {"labels": null}})),
            merge(at(CONFIG_MAPS, "a"), json!({"data": null})).gives(200, json!({"data": null})),
            post(WIDGETS, with(widget("w"), &json!({"spec": {"parts": [{"name": "bolt", "count": 4}, {"name": "nut", "count": 4}]}}))).gives(201, json!({})),
            merge(at(WIDGETS, "w?fieldManager=belay"), json!({"spec": {"parts": [{"name": "bolt", "count": 5}]}})).gives(
                200,
                json!({"spec": {"parts": [{"name": "bolt", "count": 5}]}, "metadata": {"generation": 2}}),
            ),
            merge(at(WIDGETS, "w"), json!({"metadata": {"annotations": {"belay.dev/run": "r"}}})).gives(200, json!({"metadata": {"generation": 2}})),
        ],
    )
}

fn versions() -> Case {
    case(
        "a merge patch with a version is a conflict when it is an old one",
        [
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            merge(at(WIDGETS, "w"), json!({"metadata": {"resourceVersion": "{rv:w}"}, "spec": {"size": 2}})).gives(200, json!({"spec": {"size": 2}})),
            merge(at(WIDGETS, "w"), json!({"metadata": {"resourceVersion": "{rv:w}"}, "spec": {"size": 3}})).refused(
                409,
                "Conflict",
                "Operation cannot be fulfilled on widgets.fixture.belay.dev \"w\": the object has been modified; please apply your changes to the latest version and try again",
            ),
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})).keep("a"),
            merge(at(CONFIG_MAPS, "a"), json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}})).gives(422, json!({"reason": "Invalid"})),
            merge(at(CONFIG_MAPS, "a"), json!({"metadata": {"uid": "{uid:a}", "resourceVersion": "{rv:a}"}, "data": {"a": "2"}})).gives(200, json!({"data": {"a": "2"}})),
            merge(at(CONFIG_MAPS, "a"), json!({"metadata": {"uid": "{uid:a}", "resourceVersion": "{rv:a}"}, "data": {"a": "3"}})).gives(409, json!({"reason": "Conflict"})),
        ],
    )
}

fn finalizers() -> Case {
    case(
        "finalizers can be put on and taken off",
        [
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            merge(at(WIDGETS, "w?fieldManager=standins"), json!({"metadata": {"resourceVersion": "{rv:w}", "finalizers": ["fixture.belay.dev/a", "fixture.belay.dev/b"]}}))
                .gives(200, json!({"metadata": {"finalizers": ["fixture.belay.dev/a", "fixture.belay.dev/b"], "generation": 1}})),
            merge(at(WIDGETS, "w"), json!({"metadata": {"finalizers": ["fixture.belay.dev/b"]}}))
                .gives(200, json!({"metadata": {"finalizers": ["fixture.belay.dev/b"]}})),
            merge(at(WIDGETS, "w"), json!({"metadata": {"finalizers": null}})).gives(200, json!({"metadata": {"finalizers": null}})),
            merge(at(WIDGETS, "w"), json!({"metadata": {"finalizers": ["bare"]}})).gives(200, json!({"metadata": {"finalizers": ["bare"]}})),
        ],
    )
}

fn json() -> Case {
    case(
        "a JSON patch adds, replaces, removes, moves and copies",
        [
            post(CONFIG_MAPS, with(config_map("a"), &json!({"data": {"b": "2"}}))).gives(201, json!({})),
            json_patch(at(CONFIG_MAPS, "a?fieldManager=belay&timeout=10s"), json!([
                {"op": "add", "path": "/data/c", "value": "3"},
                {"op": "replace", "path": "/data/a", "value": "9"},
                {"op": "remove", "path": "/data/b"},
            ]))
            .gives(200, json!({"data": {"a": "9", "b": null, "c": "3"}})),
            json_patch(at(CONFIG_MAPS, "a"), json!([{"op": "copy", "from": "/data/a", "path": "/data/d"}, {"op": "move", "from": "/data/c", "path": "/data/e"}])).gives(200, json!({"data": {"c": null, "d": "9", "e": "3"}})),
json_patch(at(CONFIG_MAPS, "a"), json!([{"op": "add", "path": "/metadata/annotations", "value": {"belay.dev/run": "1"}}, {"op": "replace", "path": "/metadata/annotations/belay.dev~1run", "value": "2"}])).gives(200, json!({"metadata": {"annotations": {"belay.dev/run": "2"}}})),
            json_patch(at(CONFIG_MAPS, "a"), json!([{"op": "remove", "path": "/data/none"}])).gives(422, json!({"kind": "Status"})),
            json_patch(at(CONFIG_MAPS, "a"), json!([{"op": "add", "path": "/metadata/labels/x", "value": "1"}])).gives(422, json!({"kind": "Status"})),
            json_patch(at(CONFIG_MAPS, "a"), json!([{"op": "add", "path": "/metadata/labels", "value": {"x": "1"}}])).gives(200, json!({"metadata": {"labels": {"x": "1"}}})),
            json_patch(at(CONFIG_MAPS, "a"), json!([])).gives(200, json!({})),
            json_patch(at(CONFIG_MAPS, "a"), json!({"op": "add"})).gives(400, json!({"kind": "Status"})),
            json_patch(at(CONFIG_MAPS, "a"), json!([{"op": "shuffle", "path": "/data"}])).gives(422, json!({"kind": "Status"})),
        ],
    )
}

fn tests() -> Case {
    case(
        "a JSON patch whose test fails changes nothing",
        [
            post(CONFIG_MAPS, with(config_map("a"), &json!({"metadata": {"labels": {"l": "1"}}}))).gives(201, json!({})).keep("a"),
            json_patch(at(CONFIG_MAPS, "a"), json!([
                {"op": "test", "path": "/metadata/uid", "value": "{uid:a}"},
                {"op": "test", "path": "/metadata/labels/l", "value": "1"},
                {"op": "replace", "path": "/data/a", "value": "2"},
            ]))
            .gives(200, json!({"data": {"a": "2"}})),
            json_patch(at(CONFIG_MAPS, "a"), json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": "{rv:a}"},
                {"op": "replace", "path": "/data/a", "value": "3"},
            ]))
            .gives(422, json!({"kind": "Status", "reason": "Invalid", "message": "the server rejected our request due to an error in our request"})),
            json_patch(at(CONFIG_MAPS, "a"), json!([{"op": "test", "path": "/data/none", "value": "x"}])).gives(422, json!({"kind": "Status"})),
            get(at(CONFIG_MAPS, "a")).gives(200, json!({"data": {"a": "2"}})),
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            json_patch(at(WIDGETS, "w"), json!([
                {"op": "test", "path": "/metadata/resourceVersion", "value": "{rv:w}"},
                {"op": "replace", "path": "/spec/size", "value": 2},
            ]))
            .gives(200, json!({"spec": {"size": 2}, "metadata": {"generation": 2}})),
            json_patch(at(WIDGETS, "w"), json!([{"op": "test", "path": "/spec/size", "value": 1}])).gives(422, json!({"kind": "Status"})),
            json_patch(at(WIDGETS, "w"), json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "{rv:w}"}, {"op": "replace", "path": "/spec/size", "value": 3}])).gives(409, json!({"reason": "Conflict"})),
        ],
    )
}

fn status() -> Case {
    case(
        "a patch of status changes status alone",
        [
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            merge(at(WIDGETS, "w/status?fieldManager=standins"), json!({"status": {"observedGeneration": 1, "conditions": [
                {"type": "Ready", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2001-02-03T04:05:06Z"},
            ]}}))
            .gives(200, json!({"status": {"observedGeneration": 1, "conditions": [{"type": "Ready"}]}, "metadata": {"generation": 1}})),
            merge(at(WIDGETS, "w/status"), json!({"spec": {"size": 9}, "metadata": {"labels": {"l": "1"}}})).gives(200, json!({"spec": {"size": 1}})),
            merge(at(WIDGETS, "w"), json!({"status": {"observedGeneration": 9}})).gives(200, json!({"status": {"observedGeneration": 1}, "metadata": {"generation": 1}})),
            merge(at(WIDGETS, "w/status"), json!({"status": {"conditions": [{"type": "Ready"}]}})).gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w/status"), json!({"status": {"unknown": true}})).gives(200, json!({"status": {"unknown": null}})),
            json_patch(at(WIDGETS, "w/status"), json!([{"op": "replace", "path": "/status/observedGeneration", "value": 2}])).gives(200, json!({"status": {"observedGeneration": 2}})),
            merge(at(WIDGETS, "w/status"), json!({"metadata": {"resourceVersion": "{rv:w}"}, "status": {"observedGeneration": 3}})).gives(409, json!({"reason": "Conflict"})),
            merge(at(WIDGETS, "none/status"), json!({"status": {}})).gives(404, json!({"reason": "NotFound"})),
        ],
    )
}

fn cluster() -> Case {
    case(
        "objects of the cluster are patched like others",
        [
            post(STATIONS, station("{ns}")).gives(201, json!({})).keep("s"),
            merge(at(STATIONS, "{ns}?fieldManager=belay"), json!({"spec": {"state": "Opening"}}))
                .gives(200, json!({"spec": {"state": "Opening"}, "metadata": {"generation": 2}})),
            json_patch(
                at(STATIONS, "{ns}"),
                json!([{"op": "test", "path": "/spec/state", "value": "Closed"}]),
            )
            .gives(422, json!({})),
            json_patch(
                at(STATIONS, "{ns}"),
                json!([{"op": "replace", "path": "/spec/state", "value": "Open"}]),
            )
            .gives(200, json!({"metadata": {"generation": 3}})),
            merge(
                at(STATIONS, "{ns}"),
                json!({"metadata": {"resourceVersion": "{rv:s}"}, "spec": {"state": "Open"}}),
            )
            .gives(409, json!({"reason": "Conflict"})),
            merge(at(STATIONS, "{ns}-none"), json!({"spec": {"state": "Open"}})).refused(
                404,
                "NotFound",
                "stations.fixture.belay.dev \"{ns}-none\" not found",
            ),
        ],
    )
}

fn dry() -> Case {
    case(
        "a dry run of a patch stores nothing",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})),
            merge(at(CONFIG_MAPS, "a?fieldManager=belay&dryRun=All"), json!({"data": {"a": "2"}}))
                .gives(200, json!({"data": {"a": "2"}})),
            json_patch(at(CONFIG_MAPS, "a?dryRun=All"), json!([{"op": "remove", "path": "/data/a"}]))
                .gives(200, json!({"data": null})),
            get(at(CONFIG_MAPS, "a"))
                .gives(200, json!({"data": {"a": "1"}, "metadata": {"resourceVersion": "<rv-1>"}})),
            post(WIDGETS, widget("w")).gives(201, json!({})),
            merge(at(WIDGETS, "w?dryRun=All"), json!({"spec": {"size": 2}}))
                .gives(200, json!({"metadata": {"generation": 2}})),
            merge(at(WIDGETS, "w?dryRun=All"), json!({"spec": {"size": 1000}}))
                .gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w/status?dryRun=All"), json!({"status": {"observedGeneration": 2}}))
                .gives(200, json!({"status": {"observedGeneration": 2}})),
            get(at(WIDGETS, "w")).gives(200, json!({"spec": {"size": 1}, "status": null})),
        ],
    )
}

fn identity() -> Case {
    case(
        "a patch cannot rename, move or re-type an object",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})),
            merge(at(CONFIG_MAPS, "a"), json!({"metadata": {"name": "b"}}))
                .gives(400, json!({"reason": "BadRequest"})),
            merge(at(CONFIG_MAPS, "a"), json!({"metadata": {"namespace": "other"}}))
                .gives(400, json!({"reason": "BadRequest"})),
            merge(at(CONFIG_MAPS, "a"), json!({"kind": "Secret"}))
                .gives(422, json!({"reason": "Invalid", "message": "~is invalid: patch: Invalid value: "}))
                .in_part("the message quotes the object as Go prints it"),
            merge(at(CONFIG_MAPS, "a"), json!({"metadata": {"creationTimestamp": null}}))
                .gives(200, json!({"metadata": {"creationTimestamp": "<time>"}})),
            merge(at(CONFIG_MAPS, "a"), json!({"metadata": {"deletionTimestamp": "2001-01-01T00:00:00Z"}}))
                .gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, widget("w")).gives(201, json!({})),
            merge(at(WIDGETS, "w"), json!({"metadata": {"name": "b"}}))
                .gives(400, json!({"reason": "BadRequest"})),
            merge(at(WIDGETS, "w"), json!({"kind": "Gadget"})).gives(422, json!({"reason": "Invalid"})),
            merge(at(WIDGETS, "w"), json!({"metadata": {"generation": 5}}))
                .gives(200, json!({"metadata": {"generation": 1}})),
        ],
    )
}

fn missing() -> Case {
    case(
        "a patch of what is not there makes nothing",
        [
            merge(at(CONFIG_MAPS, "a"), json!({"data": {}})).refused(
                404,
                "NotFound",
                "configmaps \"a\" not found",
            ),
            json_patch(at(CONFIG_MAPS, "a"), json!([])).refused(
                404,
                "NotFound",
                "configmaps \"a\" not found",
            ),
            merge(at(SECRETS, "a"), json!({"data": {}})).refused(404, "NotFound", "secrets \"a\" not found"),
            merge(at(WIDGETS, "a"), json!({"spec": {}})).refused(
                404,
                "NotFound",
                "widgets.fixture.belay.dev \"a\" not found",
            ),
        ],
    )
}

fn namespaces() -> Case {
    let tested = |version: &str| {
        json!([
            {"op": "test", "path": "/metadata/resourceVersion", "value": version},
            {"op": "add", "path": "/metadata/labels/l", "value": "1"},
        ])
    };
    case(
        "a namespace is patched like any other object",
        [
            get(at(NAMESPACES, "{ns}")).gives(200, json!({})).keep("ns"),
            json_patch(at(NAMESPACES, "{ns}?fieldManager=belay"), tested("{rv:ns}"))
                .gives(200, json!({"metadata": {"labels": {"l": "1"}, "resourceVersion": "<rv-2>"}})),
            json_patch(at(NAMESPACES, "{ns}?fieldManager=belay"), tested("{rv:ns}"))
                .gives(422, json!({"reason": "Invalid"})),
            merge(
                at(NAMESPACES, "{ns}?fieldManager=belay"),
                json!({"metadata": {"resourceVersion": "{rv:ns}", "labels": {"l": "2"}}}),
            )
            .gives(409, json!({"reason": "Conflict"})),
        ],
    )
}

/// Each kind has a case of its own: controllers write it at once, and versions are counted within a case.
fn labelled(name: &'static str, collection: &str, object: Value) -> Case {
    let patch = json!([
        {"op": "test", "path": "/metadata/name", "value": "w"},
        {"op": "add", "path": "/metadata/labels", "value": {"l": "1"}},
    ]);
    case(
        name,
        [
            json_patch(at(collection, "w"), patch.clone()).gives(404, json!({"reason": "NotFound"})),
            post(collection, object).gives(201, json!({})),
            json_patch(at(collection, "w"), patch)
                .gives(200, json!({"metadata": {"labels": {"l": "1"}, "generation": 1}}))
                .in_part("controllers write it at once"),
        ],
    )
}

fn absent() -> Case {
    let patch = || json!([{"op": "add", "path": "/metadata/labels", "value": {"l": "1"}}]);
    case(
        "a JSON patch of what is not there finds nothing",
        [
            json_patch(at(WIDGETS, "w"), patch()).gives(404, json!({"reason": "NotFound"})),
            json_patch(at(STATIONS, "none-{ns}"), patch()).gives(404, json!({"reason": "NotFound"})),
        ],
    )
}
