//! Creates, and what comes back.

use serde_json::json;

use super::{
    CONFIG_MAPS, DEFINITIONS, EVENTS, LEASES, NAMESPACES, NEW_EVENTS, SECRETS, STATEFUL_SETS, STATIONS,
    WIDGETS, at, config_map, definitions::definition, gadget, station, widget, with, workloads::stateful_set,
};
use crate::conformance::row::{Case, case, delete, get, post};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        config_maps(),
        secrets(),
        leases(),
        events(),
        custom(),
        cluster(),
        generated(),
        dry(),
        taken(),
        taken_built_in(),
        references(),
        kinds_left_out(),
        set_by_the_server(),
    ]
}

fn config_maps() -> Case {
    case(
        "a ConfigMap comes back with what the server adds",
        [
            post(CONFIG_MAPS, config_map("a"))
                .gives(
                    201,
                    json!({
                        "apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1"},
                        "metadata": {
                            "name": "a", "namespace": "{ns}", "uid": "<uid-1>", "resourceVersion": "<rv-1>",
                            "creationTimestamp": "<time>", "generation": null, "managedFields": [{
                                "manager": "conformance", "operation": "Update", "apiVersion": "v1", "time": "<time>",
                                "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {".": {}, "f:a": {}}},
                            }],
                        },
                    }),
                ),
            get(at(CONFIG_MAPS, "a")).gives(200, json!({"metadata": {"uid": "<uid-1>", "resourceVersion": "<rv-1>"}})),
            post(format!("{CONFIG_MAPS}?fieldManager=belay&timeout=10s&fieldValidation=Strict"), config_map("b"))
                .gives(201, json!({"metadata": {"managedFields": [{"manager": "belay"}]}})),
            post(CONFIG_MAPS, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "empty"}}))
                .gives(201, json!({"data": null, "metadata": {"managedFields": null}})),
            post(
                CONFIG_MAPS,
                with(config_map("full"), &json!({
                    "metadata": {"labels": {"l": "1"}, "annotations": {"n": "2"}, "finalizers": ["fixture.belay.dev/hold"]},
                    "binaryData": {"b": "AAE="}, "immutable": false,
                })),
            )
            .gives(201, json!({
                "binaryData": {"b": "AAE="}, "immutable": false,
                "metadata": {"labels": {"l": "1"}, "annotations": {"n": "2"}, "finalizers": ["fixture.belay.dev/hold"]},
            })),
        ],
    )
}

fn secrets() -> Case {
    let secret = |more: serde_json::Value| {
        with(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}), &more)
    };
    case(
        "a Secret has a type and its data in base64",
        [
            post(
                SECRETS,
                secret(
                    json!({"data": {"head": "aGVhZA=="}, "metadata": {"labels": {"belay.dev/step": "x"}}}),
                ),
            )
            .gives(201, json!({"type": "Opaque", "data": {"head": "aGVhZA=="}})),
            get(at(SECRETS, "s")).gives(200, json!({"kind": "Secret", "apiVersion": "v1", "type": "Opaque"})),
            post(
                SECRETS,
                secret(json!({"metadata": {"name": "t"}, "type": "belay.dev/journal", "immutable": true})),
            )
            .gives(201, json!({"type": "belay.dev/journal", "immutable": true})),
            post(SECRETS, secret(json!({"metadata": {"name": "u"}, "stringData": {"plain": "text"}})))
                .gives(201, json!({"data": {"plain": "dGV4dA=="}, "stringData": null})),
            post(SECRETS, secret(json!({"metadata": {"name": "v"}, "data": {"bad": "%%"}})))
                .gives(400, json!({"kind": "Status", "reason": "BadRequest"})),
        ],
    )
}

fn leases() -> Case {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "belay-f", "labels": {"belay.dev/family": "f"}, "annotations": {"belay.dev/doing": "apply"}},
        "spec": {
            "holderIdentity": "process/h/1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2001-02-03T04:05:06.000007Z", "renewTime": "2001-02-03T04:05:06.000000Z",
        },
    });
    case(
        "a Lease keeps its times to the microsecond",
        [
            get(at(LEASES, "belay-f?timeout=10s")).refused(
                404,
                "NotFound",
                r#"leases.coordination.k8s.io "belay-f" not found"#,
            ),
            post(format!("{LEASES}?timeout=10s"), lease.clone()).gives(
                201,
                json!({"spec": {
                    "holderIdentity": "process/h/1", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                    "acquireTime": "2001-02-03T04:05:06.000007Z", "renewTime": "2001-02-03T04:05:06.000000Z",
                }, "metadata": {"managedFields": [{"manager": "conformance"}]}}),
            ),
            get(at(LEASES, "belay-f?timeout=10s")).gives(200, json!({"kind": "Lease"})),
            post(LEASES, lease).refused(
                409,
                "AlreadyExists",
                r#"leases.coordination.k8s.io "belay-f" already exists"#,
            ),
            post(
                LEASES,
                json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "bare"}}),
            )
            .gives(201, json!({"metadata": {"name": "bare"}})),
        ],
    )
}

fn events() -> Case {
    case(
        "an Event is the same object in both of its groups",
        [
            post(
                format!("{NEW_EVENTS}?fieldManager=belay&timeout=10s&fieldValidation=Strict"),
                json!({
                    "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "x.run"},
                    "eventTime": "2001-02-03T04:05:06.000007Z", "reportingController": "belay.dev/step",
                    "reportingInstance": "x", "action": "Migrate", "reason": "Done", "type": "Normal", "note": "all done",
                    "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "{ns}", "uid": "u"},
                }),
            )
            .gives(201, json!({"kind": "Event", "apiVersion": "events.k8s.io/v1", "note": "all done", "action": "Migrate"})),
            get(at(EVENTS, "x.run")).gives(
                200,
                json!({
                    "apiVersion": "v1", "kind": "Event", "message": "all done", "reportingComponent": "belay.dev/step",
                    "reportingInstance": "x", "involvedObject": {"kind": "Pod", "name": "p"},
                }),
            ),
            get(at(NEW_EVENTS, "x.run")).gives(200, json!({"apiVersion": "events.k8s.io/v1", "regarding": {"name": "p"}})),
            post(
                EVENTS,
                json!({
                    "apiVersion": "v1", "kind": "Event", "metadata": {"name": "old"}, "reason": "Seen", "message": "m",
                    "type": "Warning", "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
                }),
            )
            .gives(201, json!({"reason": "Seen", "type": "Warning"})),
            get(EVENTS).gives(200, json!({"kind": "EventList", "items": [{"metadata": {"name": "old"}}, {"metadata": {"name": "x.run"}}]})),
            post(
                NEW_EVENTS,
                json!({
                    "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "timeless"},
                    "reportingController": "belay.dev/step", "reportingInstance": "x", "action": "Migrate", "reason": "Done",
                    "type": "Normal", "regarding": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
                }),
            )
            .gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn custom() -> Case {
    case(
        "a custom resource has a generation and the defaults of its schema",
        [
            post(format!("{WIDGETS}?fieldManager=standins"), widget("w")).gives(
                201,
                json!({
                    "apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "spec": {"size": 1, "phase": "Draft"},
                    "status": null,
                    "metadata": {
                        "generation": 1, "uid": "<uid-1>", "managedFields": [{
                            "manager": "standins", "operation": "Update", "apiVersion": "fixture.belay.dev/v1",
                            "fieldsV1": {"f:spec": {".": {}, "f:phase": {}, "f:size": {}}},
                        }],
                    },
                }),
            ),
            get(at(WIDGETS, "w")).gives(200, json!({"metadata": {"generation": 1}, "spec": {"phase": "Draft"}})),
            post(WIDGETS, with(widget("x"), &json!({"status": {"observedGeneration": 1}})))
                .gives(201, json!({"status": null})),
            post(super::GADGETS, with(gadget("g"), &json!({"metadata": {"finalizers": ["fixture.belay.dev/gadget"]}})))
                .gives(201, json!({"metadata": {"finalizers": ["fixture.belay.dev/gadget"], "generation": 1}})),
            post(WIDGETS, with(widget("y"), &json!({"spec": {"parts": [{"name": "bolt", "count": 4}, {"name": "nut"}]}}))).gives(
                201,
                json!({"metadata": {"managedFields": [{"fieldsV1": {"f:spec": {"f:parts": {
                    ".": {}, "k:{\"name\":\"bolt\"}": {".": {}, "f:count": {}, "f:name": {}}, "k:{\"name\":\"nut\"}": {".": {}, "f:name": {}},
                }}}}]}}),
            ),
        ],
    )
}

fn cluster() -> Case {
    case(
        "a kind of the cluster has no namespace",
        [
            post(STATIONS, station("{ns}")).gives(201, json!({"metadata": {"namespace": null, "generation": 1}})),
            get(at(STATIONS, "{ns}")).gives(200, json!({"spec": {"state": "Closed"}})),
            post(
                "/apis/applicationconnector.kyma-project.io/v1alpha1/applications",
                json!({
                    "apiVersion": "applicationconnector.kyma-project.io/v1alpha1", "kind": "Application",
                    "metadata": {"name": "{ns}"}, "spec": {"description": "d", "services": [], "unknown": {"kept": true}},
                    "status": {"installationStatus": {"status": "DEPLOYED"}},
                }),
            )
            .gives(201, json!({"spec": {"unknown": {"kept": true}}, "status": {"installationStatus": {"status": "DEPLOYED"}}})),
            post(NAMESPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}-b", "labels": {"l": "1"}}})).gives(
                201,
                json!({
                    "metadata": {"labels": {"kubernetes.io/metadata.name": "{ns}-b", "l": "1"}},
                    "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
                }),
            ),
        ],
    )
}

fn generated() -> Case {
    case(
        "a name is made up from generateName",
        [
            post(CONFIG_MAPS, json!({"metadata": {"generateName": "gen-"}}))
                .gives(201, json!({"metadata": {"generateName": "gen-", "name": "gen-<generated-1>"}}))
                .keep("g"),
            get(at(CONFIG_MAPS, "{name:g}")).gives(200, json!({"metadata": {"name": "gen-<generated-1>"}})),
            post(CONFIG_MAPS, json!({"metadata": {}}))
                .refused(422, "Invalid", "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required"),
            post(WIDGETS, json!({"apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "metadata": {"generateName": "w-"}, "spec": {"size": 2}}))
                .gives(201, json!({"metadata": {"name": "w-<generated-2>"}})),
        ],
    )
}

fn dry() -> Case {
    case(
        "a dry run answers as if it were done, and nothing is",
        [
            post(
                format!("{CONFIG_MAPS}?dryRun=All&fieldManager=belay&fieldValidation=Strict"),
                config_map("a"),
            )
            .gives(201, json!({"metadata": {"uid": "<uid-1>", "resourceVersion": null}})),
            get(at(CONFIG_MAPS, "a")).refused(404, "NotFound", r#"configmaps "a" not found"#),
            post(format!("{WIDGETS}?dryRun=All"), widget("w"))
                .gives(201, json!({"metadata": {"generation": 1}})),
            get(at(WIDGETS, "w")).refused(404, "NotFound", r#"widgets.fixture.belay.dev "w" not found"#),
            post(format!("{WIDGETS}?dryRun=All"), with(widget("w"), &json!({"spec": {"size": 101}})))
                .gives(422, json!({"reason": "Invalid"})),
            post(format!("{STATIONS}?dryRun=All"), station("{ns}")).gives(201, json!({"kind": "Station"})),
            post(format!("{CONFIG_MAPS}?dryRun=Some"), config_map("a")).gives(422, json!({"kind": "Status"})),
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})),
            post(format!("{CONFIG_MAPS}?dryRun=All"), config_map("a")).refused(
                409,
                "AlreadyExists",
                r#"configmaps "a" already exists"#,
            ),
        ],
    )
}

fn taken() -> Case {
    case(
        "a name is taken once in its namespace",
        [
            post(CONFIG_MAPS, config_map("a")).gives(201, json!({})),
            post(CONFIG_MAPS, config_map("a")).gives(
                409,
                json!({
                    "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "AlreadyExists", "code": 409,
                    "message": "configmaps \"a\" already exists", "details": {"name": "a", "kind": "configmaps"}, "metadata": {},
                }),
            ),
            post(SECRETS, json!({"metadata": {"name": "a"}})).gives(201, json!({})),
            post(WIDGETS, widget("a")).gives(201, json!({})),
            post(WIDGETS, widget("a")).gives(
                409,
                json!({
                    "message": "widgets.fixture.belay.dev \"a\" already exists",
                    "details": {"name": "a", "group": "fixture.belay.dev", "kind": "widgets"},
                }),
            ),
        ],
    )
}

fn kinds_left_out() -> Case {
    case(
        "kind and version may be left out where they are known, and must not be others",
        [
            post(CONFIG_MAPS, json!({"metadata": {"name": "a"}}))
                .gives(201, json!({"kind": "ConfigMap", "apiVersion": "v1"})),
            post(CONFIG_MAPS, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "b"}}))
                .gives(400, json!({"reason": "BadRequest"})),
            post(CONFIG_MAPS, json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "b"}}))
                .gives(400, json!({"reason": "BadRequest"})),
            post(WIDGETS, json!({"metadata": {"name": "a"}, "spec": {"size": 1}}))
                .gives(400, json!({"reason": "BadRequest"})),
            post(WIDGETS, with(widget("a"), &json!({"kind": "Gadget"})))
                .gives(422, json!({"reason": "Invalid"})),
            post(WIDGETS, with(widget("a"), &json!({"apiVersion": "fixture.belay.dev/v2"})))
                .gives(400, json!({"reason": "BadRequest"})),
        ],
    )
}

fn set_by_the_server() -> Case {
    case(
        "what only the server sets is not taken from a create",
        [
            post(
                CONFIG_MAPS,
                with(config_map("a"), &json!({"metadata": {
                    "uid": "11111111-2222-3333-4444-555555555555", "creationTimestamp": "2001-01-01T00:00:00Z",
                    "deletionTimestamp": "2001-01-01T00:00:00Z", "deletionGracePeriodSeconds": 7, "selfLink": "/x", "generation": 9,
                }})),
            )
            .gives(201, json!({"metadata": {"uid": "<uid-1>", "creationTimestamp": "<time>", "deletionTimestamp": null}})),
            post(CONFIG_MAPS, with(config_map("b"), &json!({"metadata": {"resourceVersion": "7"}})))
                .gives(500, json!({"message": "resourceVersion should not be set on objects to be created"})),
            post(WIDGETS, with(widget("w"), &json!({"metadata": {"generation": 9, "resourceVersion": "7"}}))).gives(500, json!({})),
            post(WIDGETS, with(widget("x"), &json!({"metadata": {"generation": 9, "uid": "22222222-2222-3333-4444-555555555555"}})))
                .gives(201, json!({"metadata": {"generation": 1}})),
            post(CONFIG_MAPS, with(config_map("d"), &json!({"metadata": {"namespace": "{ns}"}}))).gives(201, json!({})),
            post(CONFIG_MAPS, with(config_map("e"), &json!({"metadata": {"namespace": "other"}}))).gives(400, json!({"reason": "BadRequest"})),
        ],
    )
}

fn taken_built_in() -> Case {
    let event = || {
        json!({
            "metadata": {"name": "e"}, "eventTime": "2001-02-03T04:05:06.000007Z", "reportingController": "belay.dev/step",
            "reportingInstance": "x", "action": "Migrate", "reason": "Done", "type": "Normal", "note": "all done",
            "regarding": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
        })
    };
    let exists = |what: &str, name: &str| json!({"reason": "AlreadyExists", "message": format!("{what} \"{name}\" already exists")});
    case(
        "a name that is taken is taken for every kind",
        [
            post(SECRETS, json!({"metadata": {"name": "s"}})).gives(201, json!({})),
            post(SECRETS, json!({"metadata": {"name": "s"}})).gives(409, exists("secrets", "s")),
            post(NEW_EVENTS, event()).gives(201, json!({})),
            post(NEW_EVENTS, event()).gives(409, exists("events.events.k8s.io", "e")),
            post(STATEFUL_SETS, stateful_set("s")).gives(201, json!({})),
            post(STATEFUL_SETS, stateful_set("s")).gives(409, exists("statefulsets.apps", "s")),
            post(DEFINITIONS, definition()).gives(201, json!({})),
            post(DEFINITIONS, definition())
                .gives(409, exists("customresourcedefinitions.apiextensions.k8s.io", "things.{ns}.example")),
            delete(at(DEFINITIONS, "things.{ns}.example"))
                .gives(200, json!({}))
                .in_part("controllers write it at once"),
        ],
    )
}

fn references() -> Case {
    case(
        "a reference to an object says nothing by an empty text",
        [
            post(
                NEW_EVENTS,
                json!({
                    "metadata": {"name": "e"}, "eventTime": "2001-02-03T04:05:06.000007Z", "reportingController": "belay.dev/step",
                    "reportingInstance": "x", "action": "Migrate", "reason": "Done", "type": "Normal", "note": "all done",
                    "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "p", "namespace": "{ns}", "uid": ""},
                }),
            )
            .gives(201, json!({"regarding": {"name": "p", "uid": null}})),
            get(at(EVENTS, "e")).gives(200, json!({"involvedObject": {"name": "p", "uid": null}})),
        ],
    )
}
