//! Lists: their order, selectors and pages.

use serde_json::{Value, json};

use super::{
    CONFIG_MAPS, DEPLOYMENTS, LEASES, NEW_EVENTS, PODS, SECRETS, STATEFUL_SETS, STATIONS, WIDGETS,
    config_map, station, widget, with,
};
use crate::conformance::row::{Case, Row, case, delete, get, post};
use crate::server::Server;

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        order(),
        empty(),
        label_selectors(),
        field_selectors(),
        pages(),
        bad(),
        everywhere(),
        versions(),
        expired(),
        others(),
    ]
}

fn labelled(name: &str, labels: Value) -> Row {
    let mut widget = widget(name);
    widget["metadata"]["labels"] = labels;
    post(WIDGETS, widget).gives(201, json!({}))
}

fn names(names: &[&str]) -> Value {
    let items: Vec<Value> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    json!({"kind": "WidgetList", "items": items})
}

fn order() -> Case {
    case(
        "a list is ordered by name and its items bear no kind",
        [
            post(SECRETS, json!({"metadata": {"name": "b"}})).gives(201, json!({})),
            post(SECRETS, json!({"metadata": {"name": "a-1"}})).gives(201, json!({})),
            post(SECRETS, json!({"metadata": {"name": "a"}})).gives(201, json!({})),
            post(SECRETS, json!({"metadata": {"name": "a.b"}})).gives(201, json!({})),
            get(SECRETS).gives(
                200,
                json!({
                    "kind": "SecretList", "apiVersion": "v1", "metadata": {"resourceVersion": "<rv>", "continue": null},
                    "items": [
                        {"metadata": {"name": "a"}, "kind": null, "apiVersion": null}, {"metadata": {"name": "a-1"}},
                        {"metadata": {"name": "a.b"}}, {"metadata": {"name": "b"}},
                    ],
                }),
            ),
            labelled("x", json!({})),
            get(WIDGETS).gives(
                200,
                json!({
                    "kind": "WidgetList", "apiVersion": "fixture.belay.dev/v1", "metadata": {"resourceVersion": "<rv>"},
                    "items": [{"kind": "Widget", "apiVersion": "fixture.belay.dev/v1", "metadata": {"name": "x"}}],
                }),
            ),
        ],
    )
}

fn empty() -> Case {
    case(
        "an empty list has items all the same",
        [
            get(SECRETS).gives(200, json!({"kind": "SecretList", "items": []})),
            get(WIDGETS).gives(200, json!({"kind": "WidgetList", "items": []})),
            get(LEASES).gives(200, json!({"kind": "LeaseList", "items": []})),
            get(PODS).gives(200, json!({"kind": "PodList", "items": []})),
            get(DEPLOYMENTS).gives(200, json!({"kind": "DeploymentList", "apiVersion": "apps/v1", "items": []})),
            get(NEW_EVENTS).gives(200, json!({"kind": "EventList", "apiVersion": "events.k8s.io/v1", "items": []})),
            get(format!("{CONFIG_MAPS}?limit=200&labelSelector=belay.dev%2Fstep%3Dx")).gives(200, json!({"items": []})),
            get("/apis/fixture.belay.dev/v1/stations?labelSelector=case%3D{ns}").gives(200, json!({"kind": "StationList", "items": []})),
            get("/apis/fixture.belay.dev/v1/namespaces/{ns}/nothings").gives(404, json!("404 page not found\n")),
            get("/api/v1/namespaces/{ns}/nothings").gives(404, json!({"kind": "Status", "reason": "NotFound", "message": "the server could not find the requested resource"})),
        ],
    )
}

fn label_selectors() -> Case {
    let select = |selector: &str, found: &[&str]| {
        get(format!("{WIDGETS}?labelSelector={selector}")).gives(200, names(found))
    };
    case(
        "label selectors of every form",
        [
            labelled("a", json!({"x": "1", "y": "1"})),
            labelled("b", json!({"x": "2"})),
            labelled("c", json!({"x": ""})),
            labelled("d", json!({"belay.dev/family": "f"})),
            select("x", &["a", "b", "c"]),
            select("%21x", &["d"]),
            select("x%3D1", &["a"]),
            select("x%3D%3D1", &["a"]),
            select("x%21%3D1", &["b", "c", "d"]),
            select("x%3D", &["c"]),
            select("x%20in%20%281%2C2%29", &["a", "b"]),
            select("x%20notin%20%281%2C2%29", &["c", "d"]),
            select("x%2Cy%3D1", &["a"]),
            select("x%21%3D1%2C%20x%20%21%3D%202", &["c", "d"]),
            select("belay.dev%2Ffamily%3Df", &["d"]),
            select("x%3E1", &["b"]),
            select("x%3C2", &["a"]),
            select("", &["a", "b", "c", "d"]),
            select("none", &[]),
        ],
    )
}

fn field_selectors() -> Case {
    case(
        "field selectors know name and namespace",
        [
            labelled("a", json!({})),
            labelled("b", json!({})),
            get(format!("{WIDGETS}?fieldSelector=metadata.name%3Da")).gives(200, names(&["a"])),
            get(format!("{WIDGETS}?fieldSelector=metadata.name%21%3Da")).gives(200, names(&["b"])),
            get("/apis/fixture.belay.dev/v1/widgets?fieldSelector=metadata.namespace%3D{ns}")
                .gives(200, names(&["a", "b"])),
            get(format!("{WIDGETS}?fieldSelector=spec.size%3D1")).gives(400, json!({"reason": "BadRequest"})),
            get(format!("{CONFIG_MAPS}?fieldSelector=data%3D1")).gives(400, json!({"reason": "BadRequest"})),
            get(format!("{PODS}?fieldSelector=status.phase%3DRunning")).gives(200, json!({"items": []})),
            get(format!("{PODS}?fieldSelector=spec.nodeName%3D")).gives(200, json!({"items": []})),
        ],
    )
}

fn pages() -> Case {
    case(
        "a long list comes in pages",
        [
            labelled("a", json!({"p": "1"})),
            labelled("b", json!({})),
            labelled("c", json!({"p": "1"})),
            labelled("d", json!({"p": "1"})),
            labelled("e", json!({})),
            get(format!("{WIDGETS}?limit=2")).gives(200, json!({"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "b"}}], "metadata": {"continue": "<continue>", "remainingItemCount": 3}})).keep("one"),
            labelled("bb", json!({})),
            get(format!("{WIDGETS}?limit=2&continue={{continue:one}}")).gives(200, json!({"items": [{"metadata": {"name": "c"}}, {"metadata": {"name": "d"}}], "metadata": {"continue": "<continue>", "remainingItemCount": 1}})).keep("two"),
            get(format!("{WIDGETS}?limit=2&continue={{continue:two}}")).gives(200, json!({"items": [{"metadata": {"name": "e"}}], "metadata": {"continue": "", "remainingItemCount": null}})),
            get(format!("{WIDGETS}?limit=2&labelSelector=p%3D1")).gives(200, json!({"items": [{"metadata": {"name": "a"}}, {"metadata": {"name": "c"}}], "metadata": {"continue": "<continue>", "remainingItemCount": null}})).keep("sel"),
            get(format!("{WIDGETS}?limit=2&labelSelector=p%3D1&continue={{continue:sel}}")).gives(200, json!({"items": [{"metadata": {"name": "d"}}], "metadata": {"continue": ""}})),
            get(format!("{WIDGETS}?limit=6")).gives(200, json!({"metadata": {"continue": "", "remainingItemCount": null}})),
            get(format!("{WIDGETS}?limit=0")).gives(200, json!({"metadata": {"continue": ""}})),
            get(format!("{WIDGETS}?limit=500")).gives(200, names(&["a", "b", "bb", "c", "d", "e"])),
            post(SECRETS, json!({"metadata": {"name": "a"}})).gives(201, json!({})),
            post(SECRETS, json!({"metadata": {"name": "b"}})).gives(201, json!({})),
            get(format!("{SECRETS}?limit=1")).gives(200, json!({"metadata": {"continue": "<continue>", "remainingItemCount": 1}})).keep("s"),
            delete(format!("{SECRETS}/b")).gives(200, json!({})),
            get(format!("{SECRETS}?limit=1&continue={{continue:s}}")).gives(200, json!({"items": [{"metadata": {"name": "b"}}]})),
        ],
    )
}

fn bad() -> Case {
    case(
        "selectors, pages and versions that make no sense are refused",
        [
            get(format!("{WIDGETS}?labelSelector=a%20b")).gives(400, json!({"reason": "BadRequest"})),
            get(format!("{CONFIG_MAPS}?labelSelector=%3D%3D")).gives(400, json!({"reason": "BadRequest"})),
            get(format!("{CONFIG_MAPS}?labelSelector=x%20in%20%28"))
                .gives(400, json!({"reason": "BadRequest"})),
            get(format!("{WIDGETS}?fieldSelector=nonsense")).gives(400, json!({"reason": "BadRequest"})),
            get(format!("{WIDGETS}?limit=2&continue=nonsense")).gives(400, json!({"reason": "BadRequest"})),
            get(format!("{WIDGETS}?limit=two")).gives(400, json!({"reason": "BadRequest"})),
            get(format!("{WIDGETS}?limit=-1"))
                .gives(200, json!({}))
                .in_part("what it does then is nobody's business"),
            get(format!("{WIDGETS}?resourceVersion=word")).gives(400, json!({})),
            get(format!("{WIDGETS}?resourceVersion=5&resourceVersionMatch=Sometimes")).gives(422, json!({})),
            get(format!("{WIDGETS}?resourceVersionMatch=Exact")).gives(422, json!({})),
        ],
    )
}

fn everywhere() -> Case {
    let of_case = |object: Value| with(object, &json!({"metadata": {"labels": {"case": "{ns}"}}}));
    case(
        "a list over all namespaces is ordered by namespace",
        [
            post("/api/v1/namespaces", json!({"metadata": {"name": "{ns}-b"}})).gives(201, json!({})),
            post(WIDGETS, of_case(widget("z"))).gives(201, json!({})),
            post("/apis/fixture.belay.dev/v1/namespaces/{ns}-b/widgets", of_case(widget("a"))).gives(201, json!({})),
            get("/apis/fixture.belay.dev/v1/widgets?labelSelector=case%3D{ns}").gives(200, json!({"items": [
                {"metadata": {"name": "a", "namespace": "{ns}-b"}}, {"metadata": {"name": "z", "namespace": "{ns}"}},
            ]})),
            get("/apis/fixture.belay.dev/v1/widgets?limit=200&labelSelector=case%3D{ns}").gives(200, json!({"kind": "WidgetList"})),
            post(CONFIG_MAPS, of_case(config_map("c"))).gives(201, json!({})),
            get("/api/v1/configmaps?limit=200&labelSelector=case%3D{ns}").gives(200, json!({"kind": "ConfigMapList", "items": [{"metadata": {"name": "c"}}]})),
            post(STATIONS, of_case(station("{ns}"))).gives(201, json!({})),
            get(format!("{STATIONS}?limit=200&labelSelector=case%3D{{ns}}")).gives(200, json!({"items": [{"metadata": {"name": "{ns}"}}]})),
            get("/apis/coordination.k8s.io/v1/leases?labelSelector=case%3D{ns}").gives(200, json!({"kind": "LeaseList", "items": []})),
            get("/apis/apps/v1/deployments?labelSelector=case%3D{ns}").gives(200, json!({"kind": "DeploymentList", "items": []})),
        ],
    )
}

fn versions() -> Case {
    case(
        "a list may be one of the cache, or of a certain version",
        [
            labelled("a", json!({})).keep("a"),
            labelled("b", json!({})),
            get(format!("{WIDGETS}?resourceVersion=0")).gives(200, names(&["a", "b"])).eventually(),
            get(format!("{WIDGETS}?resourceVersion=0&limit=1")).gives(200, names(&["a", "b"])),
            get(format!("{WIDGETS}?resourceVersion={{rv:a}}&resourceVersionMatch=Exact"))
                .gives(200, names(&["a"])),
            get(format!("{WIDGETS}?resourceVersion={{rv:a}}&resourceVersionMatch=NotOlderThan"))
                .gives(200, names(&["a", "b"])),
            get(format!("{WIDGETS}/a?resourceVersion=0")).gives(200, json!({"metadata": {"name": "a"}})),
            get(format!("{WIDGETS}?resourceVersion=999999999999"))
                .gives(504, json!({"reason": "Timeout"}))
                .simulation_only(
                    "a real server waits three seconds for such a version, which tells nothing about steps",
                ),
        ],
    )
}

fn expired() -> Case {
    case(
        "a page of a list that has expired is gone",
        [
            labelled("a", json!({})),
            labelled("b", json!({})),
            get(format!("{WIDGETS}?limit=1")).gives(200, json!({})).keep("one"),
            get(format!("{WIDGETS}?limit=1&continue={{continue:one}}"))
                .gives(410, json!({
                    "kind": "Status", "apiVersion": "v1", "metadata": {"continue": "<continue>"}, "status": "Failure", "reason": "Expired", "code": 410, "details": null,
                    "message": "~The provided continue parameter is too old to display a consistent list result.",
                }))
                .after(Server::expire_tokens)
                .simulation_only("a real server forgets versions after minutes"),
        ],
    )
}

fn others() -> Case {
    let list = |collection: &str, kind: &str, version: &str| {
        get(format!("{collection}?labelSelector=none"))
            .gives(200, json!({"kind": kind, "apiVersion": version, "items": []}))
    };
    case(
        "what nobody has made is listed as nothing",
        [
            list(STATEFUL_SETS, "StatefulSetList", "apps/v1"),
            list("/api/v1/namespaces/{ns}/services", "ServiceList", "v1"),
            list("/api/v1/namespaces/{ns}/serviceaccounts", "ServiceAccountList", "v1"),
        ],
    )
}
