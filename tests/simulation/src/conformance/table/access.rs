//! Who may what: reviews, and refusals for want of rights.

use serde_json::{Value, json};

use super::{CONFIG_MAPS, DEPLOYMENTS, LEASES, SECRETS, STATIONS, WIDGETS, at, config_map, station, widget};
use crate::conformance::row::{Case, case, delete, get, merge, post, put, watch};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![admin(), nobody(), granted(), cluster_wide()]
}

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
const ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings";
const CLUSTER_ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
const CLUSTER_ROLE_BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const STEP: &str = "system:serviceaccount:{ns}:step";

fn question(
    namespace: &str,
    group: &str,
    resource: &str,
    subresource: &str,
    verb: &str,
    name: &str,
) -> Value {
    json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": namespace, "group": group, "resource": resource, "subresource": subresource, "verb": verb, "name": name,
        }},
    })
}

fn admin() -> Case {
    case(
        "who may do anything is told so",
        [
            post(REVIEWS, question("{ns}", "", "configmaps", "", "delete", "a")).gives(201, json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": true}})).in_part("the reason names the rule"),
            post(REVIEWS, question("", "nowhere.example", "things", "", "list", "")).gives(201, json!({"status": {"allowed": true}})).in_part("the reason names the rule"),
            post(REVIEWS, json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {}})).gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn nobody() -> Case {
    let who = "system:serviceaccount:{ns}:nobody";
    let forbidden = |verb: &str, what: &str| {
        json!({
            "kind": "Status", "reason": "Forbidden", "code": 403,
            "message": format!("{what} is forbidden: User \"system:serviceaccount:{{ns}}:nobody\" cannot {verb}"),
        })
    };
    case(
        "who may do nothing is told what",
        [
            post(REVIEWS, question("{ns}", "", "configmaps", "", "get", "a")).by(who).gives(201, json!({"status": {"allowed": false}})),
            get(at(CONFIG_MAPS, "a")).by(who).gives(403, forbidden("get resource \"configmaps\" in API group \"\" in the namespace \"{ns}\"", "configmaps \"a\"")),
            get(WIDGETS).by(who).gives(403, forbidden("list resource \"widgets\" in API group \"fixture.belay.dev\" in the namespace \"{ns}\"", "widgets.fixture.belay.dev")),
            post(WIDGETS, widget("w")).by(who).gives(403, forbidden("create resource \"widgets\" in API group \"fixture.belay.dev\" in the namespace \"{ns}\"", "widgets.fixture.belay.dev")),
            merge(at(WIDGETS, "w/status"), json!({})).by(who).gives(403, forbidden("patch resource \"widgets/status\" in API group \"fixture.belay.dev\" in the namespace \"{ns}\"", "widgets.fixture.belay.dev \"w\"")),
            put(at(LEASES, "l"), json!({})).by(who).gives(403, forbidden("update resource \"leases\" in API group \"coordination.k8s.io\" in the namespace \"{ns}\"", "leases.coordination.k8s.io \"l\"")),
            delete(at(SECRETS, "s")).by(who).gives(403, json!({"reason": "Forbidden", "details": {"name": "s", "kind": "secrets"}})),
            get(at(STATIONS, "s")).by(who).gives(403, forbidden("get resource \"stations\" in API group \"fixture.belay.dev\" at the cluster scope", "stations.fixture.belay.dev \"s\"")),
            get(format!("{WIDGETS}?watch=true")).by(who).gives(403, forbidden("watch resource \"widgets\" in API group \"fixture.belay.dev\" in the namespace \"{ns}\"", "widgets.fixture.belay.dev")),
            get("/api/v1/configmaps").by(who).gives(403, json!({"reason": "Forbidden"})),
            merge(at(DEPLOYMENTS, "d/scale"), json!({})).by(who).gives(403, forbidden("patch resource \"deployments/scale\" in API group \"apps\" in the namespace \"{ns}\"", "deployments.apps \"d\"")),
            get("/apis/fixture.belay.dev/v1/namespaces/{ns}/nothings").by(who).gives(403, json!({"reason": "Forbidden"})),
            get("/apis/fixture.belay.dev").by(who).gives(200, json!({"kind": "APIGroup"})),
        ],
    )
}

fn granted() -> Case {
    let rules = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "create"]},
        {"apiGroups": ["fixture.belay.dev"], "resources": ["widgets/status"], "verbs": ["*"]},
        {"apiGroups": ["fixture.belay.dev"], "resources": ["widgets"], "resourceNames": ["mine"], "verbs": ["get", "delete"]},
        {"apiGroups": ["apps"], "resources": ["deployments/scale"], "verbs": ["patch"]},
    ]);
    let subject = json!([{"kind": "ServiceAccount", "name": "step", "namespace": "{ns}"}]);
    case(
        "a role in a namespace grants what it lists and nothing else",
        [
            post(ROLES, json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "step"}, "rules": rules})).gives(201, json!({"kind": "Role"})),
            post(ROLE_BINDINGS, json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "step"}, "subjects": subject,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "step"},
            }))
            .gives(201, json!({"kind": "RoleBinding"})),
            post(REVIEWS, question("{ns}", "", "configmaps", "", "create", "")).by(STEP).gives(201, json!({"status": {"allowed": true}})).eventually().in_part("the reason names the rule"),
            post(CONFIG_MAPS, config_map("a")).by(STEP).gives(201, json!({})),
            get(at(CONFIG_MAPS, "a")).by(STEP).gives(200, json!({})),
            get(format!("{CONFIG_MAPS}?labelSelector=none")).by(STEP).gives(200, json!({"items": []})),
            watch(format!("{CONFIG_MAPS}?labelSelector=none"), &[]).by(STEP),
            delete(at(CONFIG_MAPS, "a")).by(STEP).gives(403, json!({"reason": "Forbidden"})),
            merge(at(CONFIG_MAPS, "a"), json!({})).by(STEP).gives(403, json!({"reason": "Forbidden"})),
            post(REVIEWS, question("{ns}", "", "configmaps", "", "delete", "a")).by(STEP).gives(201, json!({"status": {"allowed": false}})),
            post(REVIEWS, question("default", "", "configmaps", "", "get", "a")).by(STEP).gives(201, json!({"status": {"allowed": false}})),
            post(REVIEWS, question("{ns}", "fixture.belay.dev", "widgets", "status", "update", "")).by(STEP).gives(201, json!({"status": {"allowed": true}})).in_part("the reason names the rule"),
            post(REVIEWS, question("{ns}", "fixture.belay.dev", "widgets", "", "update", "")).by(STEP).gives(201, json!({"status": {"allowed": false}})),
            post(REVIEWS, question("{ns}", "fixture.belay.dev", "widgets", "", "get", "mine")).by(STEP).gives(201, json!({"status": {"allowed": true}})).in_part("the reason names the rule"),
            post(REVIEWS, question("{ns}", "fixture.belay.dev", "widgets", "", "get", "")).by(STEP).gives(201, json!({"status": {"allowed": false}})),
            get(at(WIDGETS, "mine")).by(STEP).gives(404, json!({"reason": "NotFound"})),
            get(at(WIDGETS, "other")).by(STEP).gives(403, json!({"reason": "Forbidden"})),
        ],
    )
}

fn cluster_wide() -> Case {
    case(
        "a cluster role grants in every namespace and in the cluster",
        [
            post(CLUSTER_ROLES, json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "{ns}"},
                "rules": [{"apiGroups": ["fixture.belay.dev"], "resources": ["*"], "verbs": ["get", "list"]}],
            }))
            .gives(201, json!({})),
            post(CLUSTER_ROLE_BINDINGS, json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "{ns}"},
                "subjects": [{"kind": "ServiceAccount", "name": "step", "namespace": "{ns}"}],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "{ns}"},
            }))
            .gives(201, json!({})),
            post(REVIEWS, question("", "fixture.belay.dev", "stations", "", "list", "")).by(STEP).gives(201, json!({"status": {"allowed": true}})).eventually().in_part("the reason names the rule"),
            get(at(STATIONS, "{ns}")).by(STEP).gives(404, json!({"reason": "NotFound"})),
            get(WIDGETS).by(STEP).gives(200, json!({"items": []})),
            post(STATIONS, station("{ns}")).by(STEP).gives(403, json!({"reason": "Forbidden"})),
            delete(at(CLUSTER_ROLE_BINDINGS, "{ns}")).gives(200, json!({"status": "Success"})),
            get(at(STATIONS, "{ns}")).by(STEP).gives(403, json!({"reason": "Forbidden"})).eventually(),
            delete(at(CLUSTER_ROLES, "{ns}")).gives(200, json!({"status": "Success"})),
        ],
    )
}
