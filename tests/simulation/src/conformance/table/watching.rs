//! Watches: which events come, in which order, and when there are none.

use serde_json::{Value, json};

use super::{
    CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, GADGETS, LEASES, PODS, STATEFUL_SETS, STATIONS, WIDGETS, at,
    config_map, gadget, station, widget, with,
    workloads::{deployment, pod, stateful_set},
};
use crate::conformance::row::{Case, Row, case, delete, get, merge, post, watch};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        from_version(),
        from_nothing(),
        selectors(),
        built_in(),
        deployments(),
        stateful_sets(),
        pods(),
        definitions(),
        held(),
        nothing(),
        cluster(),
        fields(),
        unserved(),
        old(),
    ]
}

fn event(kind: &str, name: &str) -> Value {
    json!({"type": kind, "object": {"metadata": {"name": name}}})
}

fn from_version() -> Case {
    case(
        "a watch from a version tells what came after it",
        [
            post(WIDGETS, widget("before")).gives(201, json!({})),
            get(WIDGETS).gives(200, json!({})).keep("list"),
            post(WIDGETS, widget("a")).gives(201, json!({})).keep("a"),
            merge(at(WIDGETS, "a"), json!({"spec": {"size": 2}})).gives(200, json!({})),
            merge(at(WIDGETS, "a"), json!({"spec": {"size": 2}})).gives(200, json!({})),
            merge(at(WIDGETS, "a/status"), json!({"status": {"observedGeneration": 2}}))
                .gives(200, json!({})),
            delete(at(WIDGETS, "a")).gives(200, json!({})),
            watch(
                format!("{WIDGETS}?resourceVersion={{rv:list}}"),
                &[
                    json!({"type": "ADDED", "object": {"kind": "Widget", "apiVersion": "fixture.belay.dev/v1", "metadata": {"name": "a", "resourceVersion": "<rv-2>"}}}),
                    json!({"type": "MODIFIED", "object": {"spec": {"size": 2}}}),
                    json!({"type": "MODIFIED", "object": {"status": {"observedGeneration": 2}}}),
                    json!({"type": "DELETED", "object": {"spec": {"size": 2}, "metadata": {"resourceVersion": "<rv-5>", "deletionTimestamp": null}}}),
                ],
            ),
            watch(
                format!("{WIDGETS}?resourceVersion={{rv:a}}"),
                &[event("MODIFIED", "a"), event("MODIFIED", "a"), event("DELETED", "a")],
            ),
            watch(
                format!("{WIDGETS}?resourceVersion={{rv:list}}&allowWatchBookmarks=true"),
                &[event("ADDED", "a"), event("MODIFIED", "a"), event("MODIFIED", "a"), event("DELETED", "a")],
            ),
        ],
    )
}

fn from_nothing() -> Case {
    case(
        "a watch from nowhere begins with what is there",
        [
            post(WIDGETS, widget("b")).gives(201, json!({})),
            post(WIDGETS, widget("a")).gives(201, json!({})),
            post(WIDGETS, widget("gone")).gives(201, json!({})),
            delete(at(WIDGETS, "gone")).gives(200, json!({})),
            watch(WIDGETS, &[event("ADDED", "a"), event("ADDED", "b")]),
            watch(format!("{WIDGETS}?resourceVersion=0"), &[event("ADDED", "a"), event("ADDED", "b")]),
            watch(
                format!(
                    "{WIDGETS}?sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
                ),
                &[
                    event("ADDED", "a"),
                    event("ADDED", "b"),
                    json!({"type": "BOOKMARK", "object": {"kind": "Widget", "apiVersion": "fixture.belay.dev/v1", "metadata": {
                        "resourceVersion": "<rv>", "annotations": {"k8s.io/initial-events-end": "true"},
                    }}}),
                ],
            ),
        ],
    )
}

fn selectors() -> Case {
    let labels = |value: Option<&str>| json!({"metadata": {"labels": {"w": value}}});
    case(
        "what begins or ceases to match a selector is added or deleted for its watch",
        [
            get(WIDGETS).gives(200, json!({})).keep("list"),
            post(WIDGETS, widget("a")).gives(201, json!({})),
            merge(at(WIDGETS, "a"), labels(Some("1"))).gives(200, json!({})),
            merge(at(WIDGETS, "a"), json!({"spec": {"size": 5}})).gives(200, json!({})),
            merge(at(WIDGETS, "a"), labels(Some("2"))).gives(200, json!({})),
            merge(at(WIDGETS, "a"), json!({"spec": {"size": 6}})).gives(200, json!({})),
            merge(at(WIDGETS, "a"), labels(Some("1"))).gives(200, json!({})),
            delete(at(WIDGETS, "a")).gives(200, json!({})),
            watch(
                format!("{WIDGETS}?resourceVersion={{rv:list}}&labelSelector=w%3D1"),
                &[
                    event("ADDED", "a"),
                    event("MODIFIED", "a"),
                    json!({"type": "DELETED", "object": {"metadata": {"labels": {"w": "1"}, "resourceVersion": "<rv-4>"}, "spec": {"size": 5}}}),
                    event("ADDED", "a"),
                    event("DELETED", "a"),
                ],
            ),
            watch(format!("{WIDGETS}?resourceVersion={{rv:list}}&labelSelector=none"), &[]),
            watch(
                "/apis/fixture.belay.dev/v1/widgets?resourceVersion={rv:list}&labelSelector=w&fieldSelector=metadata.namespace%3D{ns}",
                &[
                    event("ADDED", "a"),
                    event("MODIFIED", "a"),
                    event("MODIFIED", "a"),
                    event("MODIFIED", "a"),
                    event("MODIFIED", "a"),
                    event("DELETED", "a"),
                ],
            ),
        ],
    )
}

fn built_in() -> Case {
    case(
        "built-in kinds are watched like others",
        [
            get(LEASES).gives(200, json!({})).keep("leases"),
            post(LEASES, json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}})).gives(201, json!({})),
            merge(at(LEASES, "l"), json!({"spec": {"holderIdentity": "y"}})).gives(200, json!({})),
            delete(at(LEASES, "l")).gives(200, json!({})),
            watch(format!("{LEASES}?resourceVersion={{rv:leases}}"), &[
                json!({"type": "ADDED", "object": {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}}),
                event("MODIFIED", "l"),
                event("DELETED", "l"),
            ]),
            post(CONFIG_MAPS, with(config_map("a"), &json!({"metadata": {"labels": {"case": "{ns}"}}}))).gives(201, json!({})).keep("a"),
            merge(at(CONFIG_MAPS, "a"), json!({"data": {"a": "2"}})).gives(200, json!({})),
            watch("/api/v1/configmaps?resourceVersion={rv:a}&labelSelector=case%3D{ns}", &[json!({"type": "MODIFIED", "object": {"kind": "ConfigMap", "data": {"a": "2"}}})]),
        ],
    )
}

/// Of an object that its controllers write at once: how often they do is theirs. Each has a case of its own, since versions
/// are counted within a case.
fn begins(path: &str, kind: &str, name: &str) -> Row {
    let first = json!({"type": "ADDED", "object": {"kind": kind, "metadata": {"name": name}}});
    watch(format!("{path}?fieldSelector=metadata.name%3D{name}"), &[Value::Null])
        .gives(200, json!({"$has": [first]}))
        .in_part("controllers write it at once")
}

fn deployments() -> Case {
    case(
        "Deployments are watched like others",
        [post(DEPLOYMENTS, deployment("d", 0)).gives(201, json!({})), begins(DEPLOYMENTS, "Deployment", "d")],
    )
}

fn stateful_sets() -> Case {
    case(
        "StatefulSets are watched like others",
        [
            post(STATEFUL_SETS, stateful_set("s")).gives(201, json!({})),
            begins(STATEFUL_SETS, "StatefulSet", "s"),
        ],
    )
}

fn pods() -> Case {
    case(
        "pods are watched like others",
        [post(PODS, pod("p")).gives(201, json!({})).eventually(), begins(PODS, "Pod", "p")],
    )
}

fn definitions() -> Case {
    let widgets = "widgets.fixture.belay.dev";
    case("CRDs are watched like others", [begins(DEFINITIONS, "CustomResourceDefinition", widgets)])
}

fn held() -> Case {
    case(
        "an object that a finalizer holds is modified first and deleted when it goes",
        [
            post(
                GADGETS,
                with(gadget("g"), &json!({"metadata": {"finalizers": ["fixture.belay.dev/gadget"]}})),
            )
            .gives(201, json!({}))
            .keep("g"),
            delete(at(GADGETS, "g")).gives(200, json!({})),
            merge(at(GADGETS, "g"), json!({"metadata": {"finalizers": null}})).gives(200, json!({})),
            post(GADGETS, gadget("g")).gives(201, json!({})),
            watch(
                format!("{GADGETS}?resourceVersion={{rv:g}}"),
                &[
                    json!({"type": "MODIFIED", "object": {"metadata": {"deletionTimestamp": "<time>", "generation": 2}}}),
                    json!({"type": "DELETED", "object": {"metadata": {"deletionTimestamp": "<time>", "finalizers": ["fixture.belay.dev/gadget"]}}}),
                    json!({"type": "ADDED", "object": {"metadata": {"uid": "<uid-2>", "generation": 1}}}),
                ],
            ),
        ],
    )
}

fn nothing() -> Case {
    case(
        "refused, dry and empty writes are no events",
        [
            post(WIDGETS, widget("a")).gives(201, json!({})).keep("a"),
            merge(at(WIDGETS, "a"), json!({"spec": {"size": 1}})).gives(200, json!({})),
            merge(at(WIDGETS, "a?dryRun=All"), json!({"spec": {"size": 2}})).gives(200, json!({})),
            merge(at(WIDGETS, "a"), json!({"spec": {"size": 1000}})).gives(422, json!({})),
            post(format!("{WIDGETS}?dryRun=All"), widget("b")).gives(201, json!({})),
            delete(at(WIDGETS, "a?dryRun=All")).gives(200, json!({})),
            watch(format!("{WIDGETS}?resourceVersion={{rv:a}}"), &[]),
        ],
    )
}

fn cluster() -> Case {
    case(
        "kinds of the cluster are watched like others",
        [
            post(STATIONS, with(station("{ns}"), &json!({"metadata": {"labels": {"case": "{ns}"}}})))
                .gives(201, json!({}))
                .keep("s"),
            merge(at(STATIONS, "{ns}"), json!({"spec": {"state": "Open"}})).gives(200, json!({})),
            delete(at(STATIONS, "{ns}")).gives(200, json!({})),
            watch(
                format!("{STATIONS}?resourceVersion={{rv:s}}&labelSelector=case%3D{{ns}}"),
                &[event("MODIFIED", "{ns}"), event("DELETED", "{ns}")],
            ),
            watch(
                "/api/v1/namespaces?labelSelector=kubernetes.io%2Fmetadata.name%3D{ns}",
                &[event("ADDED", "{ns}")],
            ),
        ],
    )
}

fn fields() -> Case {
    case(
        "one object is watched by its name",
        [
            post(WIDGETS, widget("a")).gives(201, json!({})).keep("a"),
            post(WIDGETS, widget("b")).gives(201, json!({})),
            merge(at(WIDGETS, "b"), json!({"spec": {"size": 2}})).gives(200, json!({})),
            merge(at(WIDGETS, "a"), json!({"spec": {"size": 2}})).gives(200, json!({})),
            watch(
                format!("{WIDGETS}?resourceVersion={{rv:a}}&fieldSelector=metadata.name%3Da"),
                &[event("MODIFIED", "a")],
            ),
        ],
    )
}

fn unserved() -> Case {
    case(
        "a watch of what is not served, or from no version, is refused",
        [
            get("/apis/fixture.belay.dev/v1/namespaces/{ns}/nothings?watch=true")
                .gives(404, json!("404 page not found\n")),
            get("/api/v1/namespaces/{ns}/nothings?watch=true").gives(404, json!({"reason": "NotFound"})),
            get(format!("{WIDGETS}?watch=true&resourceVersion=word")).gives(500, json!({})),
            get(format!("{WIDGETS}?watch=true&labelSelector=a%20b")).gives(400, json!({})),
            get(format!("{WIDGETS}?watch=true&sendInitialEvents=true")).gives(422, json!({})),
        ],
    )
}

fn old() -> Case {
    case(
        "a watch from a version that is forgotten says so in its first event",
        [watch(format!("{LEASES}?resourceVersion=1"), &[json!({
            "type": "ERROR",
            "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410, "message": "~too old resource version: 1"},
        })])
        .in_part("the message names the oldest version there is")],
    )
}
