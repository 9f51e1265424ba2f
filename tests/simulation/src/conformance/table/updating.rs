//! Replacing whole objects, and the versions that guard it.

use serde_json::json;

use super::{
    CONFIG_MAPS, LEASES, PODS, SECRETS, STATIONS, WIDGETS, at, config_map, station, widget, with,
    workloads::pod,
};
use crate::conformance::row::{Case, case, get, post, put, put_changed};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        swap(),
        blind(),
        nothing_changed(),
        identity(),
        immutable(),
        leases(),
        custom(),
        status(),
        dry(),
        upsert(),
        secrets(),
        pods(),
    ]
}

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

fn swap() -> Case {
    case(
        "a replace with an old version is a conflict",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})).keep("a"),
            put_changed(
                at(CONFIG_MAPS, "a?fieldManager=belay&timeout=10s"),
                "a",
                json!({"data": {"a": "2"}}),
            )
            .gives(
                200,
                json!({"data": {"a": "2"}, "metadata": {"uid": "<uid-1>", "resourceVersion": "<rv-2>"}}),
            ),
            put_changed(
                at(CONFIG_MAPS, "a?fieldManager=belay&timeout=10s"),
                "a",
                json!({"data": {"a": "3"}}),
            )
            .gives(
                409,
                json!({
                    "kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409,
                    "details": {"name": "a", "kind": "configmaps"},
                    "message": format!("Operation cannot be fulfilled on configmaps \"a\": {MODIFIED}"),
                }),
            ),
            get(at(CONFIG_MAPS, "a")).gives(200, json!({"data": {"a": "2"}})),
            put_changed(at(CONFIG_MAPS, "a"), "a", json!({"metadata": {"resourceVersion": "0"}}))
                .gives(200, json!({})),
            put_changed(at(CONFIG_MAPS, "a"), "a", json!({"metadata": {"resourceVersion": "word"}}))
                .gives(500, json!({})),
        ],
    )
}

fn blind() -> Case {
    case(
        "a replace without a version overwrites a built-in object, and is refused for a custom one",
        [
            post(CONFIG_MAPS, with(config_map("a"), &json!({"metadata": {"labels": {"l": "1"}}}))).gives(201, json!({})),
            put(at(CONFIG_MAPS, "a"), with(config_map("a"), &json!({"data": {"a": null, "b": "2"}}))).gives(
                200,
                json!({"data": {"a": null, "b": "2"}, "metadata": {"labels": null, "uid": "<uid-1>"}}),
            ),
            post(SECRETS, json!({"metadata": {"name": "s"}, "data": {"x": "AA=="}})).gives(201, json!({})),
            put(at(SECRETS, "s"), json!({"metadata": {"name": "s"}, "data": {"y": "AA=="}}))
                .gives(200, json!({"data": {"x": null, "y": "AA=="}})),
            put(at(SECRETS, "s"), json!({"metadata": {"name": "s"}, "type": "other"})).gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, widget("w")).gives(201, json!({})),
            put(at(WIDGETS, "w"), widget("w")).gives(
                422,
                json!({"reason": "Invalid", "message": "widgets.fixture.belay.dev \"w\" is invalid: metadata.resourceVersion: Invalid value: 0: must be specified for an update"}),
            ),
        ],
    )
}

fn nothing_changed() -> Case {
    case(
        "a write that changes nothing keeps the version",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})).keep("a"),
            put_changed(at(CONFIG_MAPS, "a"), "a", json!({}))
                .gives(200, json!({"metadata": {"resourceVersion": "<rv-1>"}})),
            put(at(CONFIG_MAPS, "a"), config_map("a"))
                .gives(200, json!({"metadata": {"resourceVersion": "<rv-1>"}})),
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            put_changed(at(WIDGETS, "w"), "w", json!({}))
                .gives(200, json!({"metadata": {"resourceVersion": "<rv-2>", "generation": 1}})),
            put_changed(at(WIDGETS, "w?fieldManager=other"), "w", json!({}))
                .gives(200, json!({"metadata": {"resourceVersion": "<rv-2>"}})),
        ],
    )
}

fn identity() -> Case {
    case(
        "a replace means the object that it names",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})).keep("a"),
            put_changed(at(CONFIG_MAPS, "b"), "a", json!({})).gives(400, json!({"reason": "BadRequest"})),
            put_changed(
                at(CONFIG_MAPS, "a"),
                "a",
                json!({"metadata": {"uid": "11111111-2222-3333-4444-555555555555"}}),
            )
            .gives(409, json!({"reason": "Conflict"})),
            put_changed(at(CONFIG_MAPS, "a"), "a", json!({"metadata": {"namespace": "other"}}))
                .gives(400, json!({"reason": "BadRequest"})),
            put_changed(
                at(CONFIG_MAPS, "a"),
                "a",
                json!({"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z"}}),
            )
            .gives(200, json!({"metadata": {"creationTimestamp": "<time>"}})),
            put(
                at(CONFIG_MAPS, "none"),
                with(config_map("none"), &json!({"metadata": {"resourceVersion": "7"}})),
            )
            .gives(404, json!({"reason": "NotFound"})),
            put(at(WIDGETS, "none"), with(widget("none"), &json!({"metadata": {"resourceVersion": "7"}})))
                .refused(404, "NotFound", "widgets.fixture.belay.dev \"none\" not found"),
        ],
    )
}

fn immutable() -> Case {
    case(
        "what is immutable stays as it is",
        [
            post(CONFIG_MAPS, with(config_map("a"), &json!({"immutable": true})))
                .gives(201, json!({}))
                .keep("a"),
            put_changed(at(CONFIG_MAPS, "a"), "a", json!({"data": {"a": "2"}}))
                .gives(422, json!({"reason": "Invalid"})),
            put_changed(at(CONFIG_MAPS, "a"), "a", json!({"metadata": {"labels": {"l": "1"}}}))
                .gives(200, json!({})),
            post(SECRETS, json!({"metadata": {"name": "s"}, "data": {"x": "AA=="}, "immutable": true}))
                .gives(201, json!({})),
            put(
                at(SECRETS, "s"),
                json!({"metadata": {"name": "s"}, "data": {"x": "AQ=="}, "immutable": true}),
            )
            .gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn leases() -> Case {
    let lease = |holder: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l", "resourceVersion": "{rv:l}"},
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 1,
                "acquireTime": "2001-02-03T04:05:06.000007Z", "renewTime": "2001-02-03T04:05:07.000000Z",
            },
        })
    };
    case(
        "of two that want a Lease one gets it",
        [
            post(
                format!("{LEASES}?timeout=10s"),
                with(lease("a"), &json!({"metadata": {"resourceVersion": null}})),
            )
            .gives(201, json!({}))
            .keep("l"),
            put(at(LEASES, "l?timeout=10s"), lease("b")).gives(200, json!({"spec": {"holderIdentity": "b"}})),
            put(at(LEASES, "l?timeout=10s"), lease("c")).refused(
                409,
                "Conflict",
                &format!("Operation cannot be fulfilled on leases.coordination.k8s.io \"l\": {MODIFIED}"),
            ),
            get(LEASES)
                .gives(200, json!({"kind": "LeaseList", "items": [{"spec": {"holderIdentity": "b"}}]})),
            put(
                at(LEASES, "l"),
                with(
                    lease("b"),
                    &json!({"metadata": {"resourceVersion": null}, "spec": {"leaseDurationSeconds": 0}}),
                ),
            )
            .gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn custom() -> Case {
    case(
        "the generation of a custom resource counts its changes but not those of metadata",
        [
            post(WIDGETS, widget("w")).gives(201, json!({"metadata": {"generation": 1}})).keep("w"),
            put_changed(at(WIDGETS, "w"), "w", json!({"metadata": {"labels": {"l": "1"}}}))
                .gives(200, json!({"metadata": {"generation": 1}}))
                .keep("w"),
            put_changed(at(WIDGETS, "w"), "w", json!({"spec": {"size": 2}}))
                .gives(200, json!({"metadata": {"generation": 2}}))
                .keep("w"),
            put_changed(at(WIDGETS, "w"), "w", json!({"metadata": {"generation": 7}}))
                .gives(200, json!({"metadata": {"generation": 2}})),
            put_changed(at(WIDGETS, "w"), "w", json!({"spec": {"phase": null}}))
                .gives(200, json!({"spec": {"phase": "Draft"}, "metadata": {"generation": 2}})),
            post(STATIONS, station("{ns}")).gives(201, json!({})).keep("s"),
            put_changed(at(STATIONS, "{ns}"), "s", json!({"spec": {"state": "Open"}}))
                .gives(200, json!({"metadata": {"generation": 2}})),
            put_changed(at(STATIONS, "{ns}"), "s", json!({"spec": {"state": "Opening"}}))
                .gives(409, json!({"reason": "Conflict"})),
        ],
    )
}

fn status() -> Case {
    case(
        "status is written at its own path and nothing else is there",
        [
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            put_changed(at(WIDGETS, "w/status?fieldManager=standins"), "w", json!({"spec": {"size": 7}, "metadata": {"labels": {"l": "1"}}, "status": {"observedGeneration": 1}})).gives(
                200,
                json!({"spec": {"size": 1}, "status": {"observedGeneration": 1}, "metadata": {"generation": 1}}),
            ).keep("v"),
            get(at(WIDGETS, "w/status")).gives(200, json!({"kind": "Widget", "status": {"observedGeneration": 1}})),
            put_changed(at(WIDGETS, "w"), "v", json!({"status": {"observedGeneration": 5}, "spec": {"size": 3}})).gives(
                200,
                json!({"status": {"observedGeneration": 1}, "metadata": {"generation": 2}}),
            ),
            put_changed(at(WIDGETS, "w/status"), "v", json!({"status": {"observedGeneration": 6}})).gives(409, json!({"reason": "Conflict"})),
            post(STATIONS, station("{ns}")).gives(201, json!({})).keep("s"),
            put_changed(at(STATIONS, "{ns}/status"), "s", json!({})).gives(404, json!({})),
            put_changed(at(WIDGETS, "none/status"), "v", json!({"metadata": {"name": "none", "uid": null}})).gives(404, json!({"reason": "NotFound"})),
        ],
    )
}

fn dry() -> Case {
    case(
        "a dry run of a replace stores nothing",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})).keep("a"),
            put_changed(at(CONFIG_MAPS, "a?dryRun=All"), "a", json!({"data": {"a": "2"}}))
                .gives(200, json!({"data": {"a": "2"}})),
            get(at(CONFIG_MAPS, "a"))
                .gives(200, json!({"data": {"a": "1"}, "metadata": {"resourceVersion": "<rv-1>"}})),
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            put_changed(at(WIDGETS, "w?dryRun=All"), "w", json!({"spec": {"size": 2}}))
                .gives(200, json!({"metadata": {"generation": 2}})),
            get(at(WIDGETS, "w")).gives(200, json!({"spec": {"size": 1}, "metadata": {"generation": 1}})),
        ],
    )
}

fn upsert() -> Case {
    case(
        "a replace of what is not there is refused for most kinds, and makes a Lease",
        [
            put(at(CONFIG_MAPS, "a"), config_map("a")).refused(404, "NotFound", "configmaps \"a\" not found"),
            put(at(SECRETS, "a"), json!({"metadata": {"name": "a"}})).refused(404, "NotFound", "secrets \"a\" not found"),
            put(
                at(LEASES, "a"),
                json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}}),
            )
            .gives(201, json!({"metadata": {"name": "a"}})),
        ],
    )
}

fn secrets() -> Case {
    case(
        "a Secret with an old version is not replaced",
        [
            post(SECRETS, json!({"metadata": {"name": "s"}, "data": {"x": "AA=="}}))
                .gives(201, json!({}))
                .keep("s"),
            put_changed(at(SECRETS, "s?fieldManager=belay&timeout=10s"), "s", json!({"data": {"x": "AAA="}}))
                .gives(200, json!({"data": {"x": "AAA="}})),
            put_changed(at(SECRETS, "s?fieldManager=belay&timeout=10s"), "s", json!({"data": {"x": "AQ=="}}))
                .gives(409, json!({"reason": "Conflict", "details": {"name": "s", "kind": "secrets"}})),
        ],
    )
}

fn pods() -> Case {
    let running = json!({"metadata": {"resourceVersion": null}, "status": {"phase": "Running", "containerStatuses": null}});
    case(
        "the status of a pod is replaced at its path, and nothing else with it",
        [
            post(PODS, pod("p")).gives(201, json!({})).eventually().keep("p"),
            put_changed(
                at(PODS, "p/status?fieldManager=standins"),
                "p",
                with(running, &json!({"spec": {"hostname": "other"}})),
            )
            .gives(200, json!({"status": {"phase": "Running"}, "spec": {"hostname": null}}))
            .in_part("a scheduler says that there is no node"),
        ],
    )
}
