//! Owner references, and what the garbage collector makes of them.

use serde_json::{Value, json};

use super::{CONFIG_MAPS, SECRETS, WIDGETS, at, config_map, widget, with};
use crate::conformance::row::{Case, case, delete, delete_with, get, merge, post};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![background(), foreground(), orphans(), unblocked(), dangling(), two_owners(), refused(), of_custom()]
}

fn owned(name: &str, blocks: bool) -> Value {
    with(
        config_map(name),
        &json!({"metadata": {"ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid:owner}", "blockOwnerDeletion": blocks,
        }]}}),
    )
}

fn background() -> Case {
    case(
        "what is owned goes after its owner in the background",
        [
            post(CONFIG_MAPS, config_map("owner")).gives(201, json!({})).keep("owner"),
            post(CONFIG_MAPS, owned("child", false)).gives(
                201,
                json!({"metadata": {"ownerReferences": [{"uid": "<uid-1>"}], "managedFields": [{"fieldsV1": {"f:metadata": {"f:ownerReferences": {
                    ".": {}, "k:{\"uid\":\"<uid-1>\"}": {},
                }}}}]}}),
            ),
            delete_with(at(CONFIG_MAPS, "owner"), json!({"propagationPolicy": "Background"})).gives(200, json!({"status": "Success"})),
            get(at(CONFIG_MAPS, "child")).gives(404, json!({"reason": "NotFound"})).eventually(),
            post(CONFIG_MAPS, config_map("owner")).gives(201, json!({})).keep("owner"),
            post(CONFIG_MAPS, owned("child", false)).gives(201, json!({})),
            delete(at(CONFIG_MAPS, "owner")).gives(200, json!({"status": "Success"})),
            get(at(CONFIG_MAPS, "child")).gives(404, json!({})).eventually(),
        ],
    )
}

fn foreground() -> Case {
    case(
        "in the foreground the owner waits for what it owns",
        [
            post(CONFIG_MAPS, config_map("owner")).gives(201, json!({})).keep("owner"),
            post(CONFIG_MAPS, with(owned("child", true), &json!({"metadata": {"finalizers": ["fixture.belay.dev/hold"]}}))).gives(201, json!({})),
            delete_with(
                at(CONFIG_MAPS, "owner?timeout=10s"),
                json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground", "preconditions": {"uid": "{uid:owner}"}}),
            )
            .gives(200, json!({"kind": "ConfigMap", "metadata": {"deletionTimestamp": "<time>", "finalizers": ["foregroundDeletion"]}})),
            get(at(CONFIG_MAPS, "child")).gives(200, json!({"metadata": {"deletionTimestamp": "<time>"}})).eventually(),
            get(at(CONFIG_MAPS, "owner")).gives(200, json!({"metadata": {"finalizers": ["foregroundDeletion"]}})),
            merge(at(CONFIG_MAPS, "child"), json!({"metadata": {"finalizers": null}})).gives(200, json!({})),
            get(at(CONFIG_MAPS, "owner")).gives(404, json!({})).eventually(),
            get(at(CONFIG_MAPS, "child")).gives(404, json!({})),
        ],
    )
}

fn orphans() -> Case {
    case(
        "orphans stay, and lose the reference",
        [
            post(CONFIG_MAPS, config_map("owner")).gives(201, json!({})).keep("owner"),
            post(CONFIG_MAPS, owned("child", true)).gives(201, json!({})),
            delete_with(at(CONFIG_MAPS, "owner"), json!({"propagationPolicy": "Orphan"}))
                .gives(200, json!({"metadata": {"finalizers": ["orphan"], "deletionTimestamp": "<time>"}})),
            get(at(CONFIG_MAPS, "owner")).gives(404, json!({})).eventually(),
            get(at(CONFIG_MAPS, "child"))
                .gives(200, json!({"metadata": {"ownerReferences": null, "deletionTimestamp": null}}))
                .in_part("whose the change is only a real controller knows"),
        ],
    )
}

fn unblocked() -> Case {
    case(
        "in the foreground an owner does not wait for what does not block it",
        [
            post(CONFIG_MAPS, config_map("owner")).gives(201, json!({})).keep("owner"),
            post(
                CONFIG_MAPS,
                with(owned("child", false), &json!({"metadata": {"finalizers": ["fixture.belay.dev/hold"]}})),
            )
            .gives(201, json!({})),
            delete_with(at(CONFIG_MAPS, "owner"), json!({"propagationPolicy": "Foreground"}))
                .gives(200, json!({"kind": "ConfigMap"})),
            get(at(CONFIG_MAPS, "owner")).gives(404, json!({})).eventually(),
            get(at(CONFIG_MAPS, "child"))
                .gives(200, json!({"metadata": {"deletionTimestamp": "<time>"}}))
                .eventually(),
            merge(at(CONFIG_MAPS, "child"), json!({"metadata": {"finalizers": null}})).gives(200, json!({})),
            post(CONFIG_MAPS, config_map("alone")).gives(201, json!({})),
            delete_with(at(CONFIG_MAPS, "alone"), json!({"propagationPolicy": "Foreground"}))
                .gives(200, json!({"metadata": {"finalizers": ["foregroundDeletion"]}})),
            get(at(CONFIG_MAPS, "alone")).gives(404, json!({})).eventually(),
        ],
    )
}

fn dangling() -> Case {
    case(
        "what names an owner that never was is collected",
        [
            post(CONFIG_MAPS, with(config_map("child"), &json!({"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "never", "uid": "11111111-2222-3333-4444-555555555555"},
            ]}})))
            .gives(201, json!({})),
            get(at(CONFIG_MAPS, "child")).gives(404, json!({})).eventually(),
            post(CONFIG_MAPS, config_map("owner")).gives(201, json!({})),
            post(CONFIG_MAPS, with(config_map("stale"), &json!({"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "11111111-2222-3333-4444-666666666666"},
            ]}})))
            .gives(201, json!({})),
            get(at(CONFIG_MAPS, "stale")).gives(404, json!({})).eventually(),
        ],
    )
}

fn two_owners() -> Case {
    let reference = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": format!("{{uid:{name}}}")});
    case(
        "what has two owners stays until the last one goes",
        [
            post(CONFIG_MAPS, config_map("one")).gives(201, json!({})).keep("one"),
            post(CONFIG_MAPS, config_map("two")).gives(201, json!({})).keep("two"),
            post(
                CONFIG_MAPS,
                with(
                    config_map("child"),
                    &json!({"metadata": {"ownerReferences": [reference("one"), reference("two")]}}),
                ),
            )
            .gives(201, json!({})),
            delete(at(CONFIG_MAPS, "one")).gives(200, json!({})),
            get(at(CONFIG_MAPS, "child"))
                .gives(200, json!({"metadata": {"ownerReferences": [{"name": "two"}]}}))
                .eventually()
                .in_part("whose the change is only a real controller knows"),
            delete(at(CONFIG_MAPS, "two")).gives(200, json!({})),
            get(at(CONFIG_MAPS, "child")).gives(404, json!({})).eventually(),
        ],
    )
}

fn refused() -> Case {
    let named =
        |reference: Value| with(config_map("child"), &json!({"metadata": {"ownerReferences": [reference]}}));
    case(
        "an owner reference needs version, kind, name and uid",
        [
            post(CONFIG_MAPS, named(json!({"kind": "ConfigMap", "name": "o", "uid": "u"}))).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, named(json!({"apiVersion": "v1", "name": "o", "uid": "u"}))).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, named(json!({"apiVersion": "v1", "kind": "ConfigMap", "uid": "u"}))).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, named(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o"}))).gives(422, json!({"reason": "Invalid"})),
            post(CONFIG_MAPS, with(config_map("child"), &json!({"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u", "controller": true},
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "p", "uid": "v", "controller": true},
            ]}})))
            .gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn of_custom() -> Case {
    case(
        "custom resources own and are owned",
        [
            post(WIDGETS, widget("w")).gives(201, json!({})).keep("w"),
            post(SECRETS, json!({"metadata": {"name": "s", "ownerReferences": [
                {"apiVersion": "fixture.belay.dev/v1", "kind": "Widget", "name": "w", "uid": "{uid:w}", "controller": true, "blockOwnerDeletion": true},
            ]}}))
            .gives(201, json!({"metadata": {"ownerReferences": [{"controller": true, "blockOwnerDeletion": true}]}})),
            delete_with(at(WIDGETS, "w"), json!({"propagationPolicy": "Foreground"})).gives(200, json!({"kind": "Widget", "metadata": {"finalizers": ["foregroundDeletion"], "generation": 2}})),
            get(at(WIDGETS, "w")).gives(404, json!({})).eventually(),
            get(at(SECRETS, "s")).gives(404, json!({})),
            post(CONFIG_MAPS, config_map("owner")).gives(201, json!({})).keep("owner"),
            post(WIDGETS, with(widget("v"), &json!({"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid:owner}"},
            ]}})))
            .gives(201, json!({})),
            delete(at(CONFIG_MAPS, "owner")).gives(200, json!({})),
            get(at(WIDGETS, "v")).gives(404, json!({})).eventually(),
        ],
    )
}
