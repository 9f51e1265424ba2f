//! Workloads and their pods, as far as steps scale and watch them.

use serde_json::{Value, json};
use standins::{fixtures, kinds};

use super::{DEPLOYMENTS, PODS, REPLICA_SETS, STATEFUL_SETS, at, with};
use crate::conformance::row::{Case, case, delete, delete_with, get, merge, post, put, put_changed};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![
        defaults(),
        stateful(),
        replicas(),
        scaling(),
        scale_refused(),
        rollout(),
        status(),
        generation(),
        immutable(),
        pods(),
        deleted_pods(),
        held_pods(),
        dry(),
        gone(),
    ]
}

const CONTROLLERS: &str = "controllers write it at once";

/// A Deployment as fixtures make them.
pub fn deployment(name: &str, replicas: u16) -> Value {
    fixtures::deployment(name, "{ns}", replicas, "example/image:1")
}

/// A StatefulSet without pods.
pub fn stateful_set(name: &str) -> Value {
    fixtures::workload(&kinds::STATEFUL_SET, name, "{ns}", 0, "example/image:1")
}

/// A pod that nobody schedules.
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "main", "image": "example/image:1"}]},
    })
}

fn defaults() -> Case {
    case(
        "a Deployment comes back with its defaults",
        [
            post(format!("{DEPLOYMENTS}?fieldManager=helm"), deployment("d", 0)).gives(
                201,
                json!({
                    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"generation": 1}, "status": {},
                    "spec": {
                        "replicas": 0, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600,
                        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
                        "template": {"spec": {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"}},
                    },
                }),
            ),
            post(DEPLOYMENTS, with(deployment("one", 0), &json!({"spec": {"replicas": null}}))).gives(201, json!({"spec": {"replicas": 1}})),
            post(DEPLOYMENTS, with(deployment("d", 0), &json!({}))).gives(409, json!({"reason": "AlreadyExists", "message": "deployments.apps \"d\" already exists"})),
            post(DEPLOYMENTS, with(deployment("bad", 0), &json!({"spec": {"selector": {"matchLabels": {"app": "other"}}}}))).gives(422, json!({"reason": "Invalid"})).in_part("what else is wrong is not asked by anybody"),
        ],
    )
}

fn stateful() -> Case {
    case(
        "a StatefulSet comes back with its defaults",
        [
            post(STATEFUL_SETS, stateful_set("s")).gives(
                201,
                json!({"metadata": {"generation": 1}, "spec": {"replicas": 0, "podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "RollingUpdate"}}}),
            ),
            get(at(STATEFUL_SETS, "s/scale")).gives(200, json!({"kind": "Scale", "apiVersion": "autoscaling/v1", "spec": {}, "status": {"replicas": 0, "selector": "app=s"}})).in_part(CONTROLLERS),
            merge(at(STATEFUL_SETS, "s/scale?fieldManager=belay&timeout=10s"), json!({"spec": {"replicas": 1}})).gives(200, json!({"kind": "Scale", "spec": {"replicas": 1}})).in_part(CONTROLLERS),
            get(at(STATEFUL_SETS, "s")).gives(200, json!({"spec": {"replicas": 1}, "metadata": {"generation": 2}, "status": {"observedGeneration": 2, "replicas": 1}})).eventually().in_part(CONTROLLERS),
            get(at(PODS, "s-0")).gives(200, json!({"metadata": {"ownerReferences": [{"kind": "StatefulSet", "name": "s", "controller": true, "blockOwnerDeletion": true}]}})).in_part(CONTROLLERS),
            delete(at(STATEFUL_SETS, "s")).gives(200, json!({"status": "Success", "details": {"kind": "statefulsets", "group": "apps"}})),
        ],
    )
}

fn replicas() -> Case {
    case(
        "a ReplicaSet makes its pods",
        [
            post(REPLICA_SETS, fixtures::workload(&kinds::REPLICA_SET, "r", "{ns}", 1, "example/image:1")).gives(201, json!({"metadata": {"generation": 1}, "status": {"replicas": 0}})),
            get(at(REPLICA_SETS, "r")).gives(200, json!({"status": {"replicas": 1, "fullyLabeledReplicas": 1, "observedGeneration": 1, "terminatingReplicas": 0}})).eventually().in_part(CONTROLLERS),
            get(format!("{PODS}?labelSelector=app%3Dr")).gives(200, json!({"items": [{"metadata": {"name": "r-<generated-1>", "generateName": "r-", "labels": {"app": "r"}, "ownerReferences": [{"kind": "ReplicaSet", "name": "r"}]}, "status": {"phase": "Pending"}}]})).in_part(CONTROLLERS),
            merge(at(REPLICA_SETS, "r/scale"), json!({"spec": {"replicas": 0}})).gives(200, json!({"kind": "Scale"})).in_part(CONTROLLERS),
            get(format!("{PODS}?labelSelector=app%3Dr")).gives(200, json!({"items": []})).eventually(),
        ],
    )
}

fn scaling() -> Case {
    case(
        "a scale is read and written in small",
        [
            post(format!("{DEPLOYMENTS}?fieldManager=helm"), deployment("d", 2)).gives(201, json!({})),
            get(at(DEPLOYMENTS, "d/scale")).gives(
                200,
                json!({
                    "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "d", "namespace": "{ns}", "uid": "<uid-1>", "generation": null, "managedFields": null},
                    "spec": {"replicas": 2}, "status": {"selector": "app=d"},
                }),
            )
            .in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "d/scale?fieldManager=belay&timeout=10s&dryRun=All"), json!({"spec": {"replicas": 0}})).gives(200, json!({"spec": {"replicas": null}})).in_part(CONTROLLERS),
            get(at(DEPLOYMENTS, "d/scale")).gives(200, json!({"spec": {"replicas": 2}})).in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "d/scale?fieldManager=belay&timeout=10s"), json!({"spec": {"replicas": 0}})).gives(200, json!({"kind": "Scale", "spec": {"replicas": null}})).in_part(CONTROLLERS),
            get(at(DEPLOYMENTS, "d")).gives(200, json!({"spec": {"replicas": 0}, "metadata": {"generation": 2}})).in_part(CONTROLLERS),
            get(at(DEPLOYMENTS, "d")).gives(200, json!({"status": {"observedGeneration": 2, "replicas": null, "availableReplicas": null}})).eventually().in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "d/scale"), json!({"spec": {"replicas": 0}})).gives(200, json!({})).in_part(CONTROLLERS),
            get(at(DEPLOYMENTS, "d")).gives(200, json!({"metadata": {"generation": 2}})).in_part(CONTROLLERS),
        ],
    )
}

fn scale_refused() -> Case {
    case(
        "a scale that makes no sense is refused",
        [
            post(DEPLOYMENTS, with(deployment("d", 0), &json!({"spec": {"paused": true}}))).gives(201, json!({})).keep("d"),
            merge(at(DEPLOYMENTS, "d/scale"), json!({"spec": {"replicas": -1}})).gives(422, json!({"reason": "Invalid"})),
            merge(at(DEPLOYMENTS, "d/scale"), json!({"spec": {"replicas": "two"}})).gives(422, json!({})).in_part("the words are those of a parser"),
            merge(at(DEPLOYMENTS, "d/scale"), json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}})).gives(409, json!({"reason": "Conflict"})).in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "none/scale"), json!({"spec": {"replicas": 1}})).gives(404, json!({"reason": "NotFound", "message": "deployments.apps \"none\" not found", "details": {"name": "none", "group": "apps", "kind": "deployments"}})),
            get(at(DEPLOYMENTS, "none/scale")).gives(404, json!({"reason": "NotFound"})),
            put(at(DEPLOYMENTS, "d/scale"), json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "d", "namespace": "{ns}"}, "spec": {"replicas": 3}})).gives(200, json!({"spec": {"replicas": 3}})).in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "d/scale"), json!({"spec": {"replicas": 1, "unknown": 1}})).gives(200, json!({"spec": {"replicas": 1}})).in_part(CONTROLLERS),
        ],
    )
}

fn rollout() -> Case {
    case(
        "a Deployment has a ReplicaSet, which has pods, and all go with it",
        [
            post(format!("{DEPLOYMENTS}?fieldManager=helm"), deployment("d", 1)).gives(201, json!({})),
            get(at(DEPLOYMENTS, "d")).gives(200, json!({"metadata": {"annotations": {"deployment.kubernetes.io/revision": "1"}}, "status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "unavailableReplicas": 1, "availableReplicas": null, "terminatingReplicas": 0}})).eventually().in_part(CONTROLLERS),
            get(format!("{REPLICA_SETS}?labelSelector=app%3Dd")).gives(
                200,
                json!({"items": [{"metadata": {"ownerReferences": [{"kind": "Deployment", "name": "d", "controller": true}], "labels": {"app": "d", "pod-template-hash": "<any>"}}, "spec": {"replicas": 1}}]}),
            )
            .in_part(CONTROLLERS),
            get(format!("{PODS}?labelSelector=app%3Dd")).gives(200, json!({"items": [{"metadata": {"ownerReferences": [{"kind": "ReplicaSet"}]}, "status": {"phase": "Pending"}}]})).eventually().in_part(CONTROLLERS),
            delete_with(at(DEPLOYMENTS, "d"), json!({"propagationPolicy": "Background"})).gives(200, json!({"status": "Success"})),
            get(format!("{REPLICA_SETS}?labelSelector=app%3Dd")).gives(200, json!({"items": []})).eventually(),
            get(format!("{PODS}?labelSelector=app%3Dd")).gives(200, json!({"items": []})).eventually(),
        ],
    )
}

fn status() -> Case {
    case(
        "the status of a Deployment is written at its path",
        [
            post(DEPLOYMENTS, with(deployment("d", 0), &json!({"status": {"replicas": 7}}))).gives(201, json!({"status": {"replicas": null}})),
            get(at(DEPLOYMENTS, "d")).gives(200, json!({"status": {"observedGeneration": 1}})).eventually().in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "d/status?fieldManager=standins"), json!({"status": {"conditions": [
                {"type": "Checked", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2001-02-03T04:05:06Z", "lastUpdateTime": "2001-02-03T04:05:06Z"},
            ]}}))
            .gives(200, json!({"kind": "Deployment", "status": {"conditions": {"$has": [{"type": "Checked"}]}}, "metadata": {"generation": 1}})).in_part(CONTROLLERS),
            get(at(DEPLOYMENTS, "d/status")).gives(200, json!({"kind": "Deployment"})).in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "d/status"), json!({"spec": {"replicas": 5}})).gives(200, json!({"spec": {"replicas": 0}})).in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "none/status"), json!({})).gives(404, json!({"reason": "NotFound"})),
        ],
    )
}

fn generation() -> Case {
    case(
        "the generation of a Deployment counts changes of its spec",
        [
            post(DEPLOYMENTS, deployment("d", 0)).gives(201, json!({"metadata": {"generation": 1}})),
            merge(at(DEPLOYMENTS, "d"), json!({"metadata": {"labels": {"l": "1"}}}))
                .gives(200, json!({"metadata": {"generation": 1}}))
                .in_part(CONTROLLERS),
            merge(
                at(DEPLOYMENTS, "d"),
                json!({"spec": {"template": {"metadata": {"annotations": {"a": "1"}}}}}),
            )
            .gives(200, json!({"metadata": {"generation": 2}}))
            .in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "d"), json!({"spec": {"replicas": null}}))
                .gives(200, json!({"spec": {"replicas": 1}, "metadata": {"generation": 3}}))
                .in_part(CONTROLLERS),
            merge(at(DEPLOYMENTS, "d"), json!({"status": {"replicas": 9}}))
                .gives(200, json!({"metadata": {"generation": 3}}))
                .in_part(CONTROLLERS),
        ],
    )
}

fn immutable() -> Case {
    case(
        "the selector of a workload stays",
        [
            post(DEPLOYMENTS, deployment("d", 0)).gives(201, json!({})),
            merge(at(DEPLOYMENTS, "d"), json!({"spec": {"selector": {"matchLabels": {"app": "e"}}, "template": {"metadata": {"labels": {"app": "e"}}}}})).gives(422, json!({"reason": "Invalid"})).in_part("it prints the selector as Go does"),
            post(STATEFUL_SETS, stateful_set("s")).gives(201, json!({})),
            merge(at(STATEFUL_SETS, "s"), json!({"spec": {"serviceName": "other"}})).gives(422, json!({"reason": "Invalid"})).in_part("it lists what else may be changed"),
        ],
    )
}

fn pods() -> Case {
    case(
        "a pod that nobody schedules is pending until somebody writes its status",
        [
            post(PODS, pod("p"))
                .gives(201, json!({"spec": {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "serviceAccountName": "default", "containers": [{"imagePullPolicy": "IfNotPresent"}]}, "status": {"phase": "Pending", "qosClass": "BestEffort"}}))
                .eventually()
                .keep("p"),
            get(at(PODS, "p")).gives(200, json!({"status": {"phase": "Pending"}})).in_part("a scheduler says that there is no node"),
            merge(at(PODS, "p/status?fieldManager=standins"), json!({"status": {"phase": "Running", "containerStatuses": [
                {"name": "main", "image": "example/image:1", "imageID": "", "ready": true, "started": true, "restartCount": 0, "state": {"running": {"startedAt": "2001-02-03T04:05:06Z"}}},
            ]}}))
            .gives(200, json!({"status": {"phase": "Running", "containerStatuses": [{"ready": true}]}})).in_part("a scheduler says that there is no node"),
            merge(at(PODS, "p"), json!({"metadata": {"labels": {"l": "1"}}})).gives(200, json!({"metadata": {"labels": {"l": "1"}}})).in_part("a scheduler says that there is no node"),
            get(format!("{PODS}?fieldSelector=status.phase%3DRunning")).gives(200, json!({"items": [{"metadata": {"name": "p"}}]})).in_part("a scheduler says that there is no node"),
            get(format!("{PODS}?fieldSelector=status.phase%21%3DRunning")).gives(200, json!({"items": []})),
        ],
    )
}

fn deleted_pods() -> Case {
    case(
        "a pod that runs nowhere is gone at once when it is deleted",
        [
            post(PODS, pod("p")).gives(201, json!({})).eventually().keep("p"),
            delete_with(
                at(PODS, "p"),
                json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}),
            )
            .gives(409, json!({"reason": "Conflict"})),
            delete_with(
                at(PODS, "p"),
                json!({"propagationPolicy": "Background", "preconditions": {"uid": "{uid:p}"}}),
            )
            .gives(200, json!({"kind": "Pod", "metadata": {"name": "p"}}))
            .in_part("a scheduler says that there is no node"),
            get(at(PODS, "p"))
                .gives(404, json!({"reason": "NotFound", "message": "pods \"p\" not found"}))
                .eventually(),
        ],
    )
}

/// A case of its own: a scheduler writes a pod's status at some time, and versions are counted within a case.
fn held_pods() -> Case {
    case(
        "a pod with a finalizer is there until that is taken off",
        [
            post(PODS, with(pod("q"), &json!({"metadata": {"finalizers": ["fixture.belay.dev/hold"]}})))
                .gives(201, json!({}))
                .eventually(),
            delete_with(at(PODS, "q"), json!({"gracePeriodSeconds": 0}))
                .gives(200, json!({"kind": "Pod", "metadata": {"deletionTimestamp": "<time>"}}))
                .in_part("a scheduler says that there is no node"),
            merge(at(PODS, "q"), json!({"metadata": {"finalizers": null}}))
                .gives(200, json!({}))
                .in_part("a scheduler says that there is no node"),
            get(at(PODS, "q")).gives(404, json!({})),
        ],
    )
}

fn dry() -> Case {
    case(
        "dry runs of workloads make nothing",
        [
            post(format!("{DEPLOYMENTS}?dryRun=All&fieldManager=belay&fieldValidation=Strict"), deployment("d", 1)).gives(201, json!({"metadata": {"generation": 1}})),
            get(at(DEPLOYMENTS, "d")).gives(404, json!({"reason": "NotFound"})),
            post(DEPLOYMENTS, deployment("e", 0)).gives(201, json!({})).keep("e"),
            delete_with(at(DEPLOYMENTS, "e?dryRun=All"), json!({"propagationPolicy": "Foreground", "preconditions": {"uid": "{uid:e}"}, "dryRun": ["All"]})).gives(200, json!({})).in_part(CONTROLLERS),
            put_changed(at(DEPLOYMENTS, "e?dryRun=All"), "e", json!({"metadata": {"resourceVersion": null}, "spec": {"replicas": 3}})).gives(200, json!({"spec": {"replicas": 3}, "metadata": {"generation": 2}})).in_part(CONTROLLERS),
            get(at(DEPLOYMENTS, "e")).gives(200, json!({"spec": {"replicas": 0}, "metadata": {"generation": 1, "deletionTimestamp": null}})).in_part(CONTROLLERS),
        ],
    )
}

fn gone() -> Case {
    let absent = |collection: &str, what: &str| {
        delete(at(collection, "none")).refused(404, "NotFound", &format!("{what} \"none\" not found"))
    };
    case(
        "what is not there cannot be deleted",
        [
            absent(DEPLOYMENTS, "deployments.apps"),
            absent(STATEFUL_SETS, "statefulsets.apps"),
            absent(REPLICA_SETS, "replicasets.apps"),
            absent(PODS, "pods"),
            post(REPLICA_SETS, fixtures::workload(&kinds::REPLICA_SET, "r", "{ns}", 0, "example/image:1"))
                .gives(201, json!({})),
            delete(at(REPLICA_SETS, "r")).gives(
                200,
                json!({"status": "Success", "details": {"kind": "replicasets", "group": "apps"}}),
            ),
        ],
    )
}
