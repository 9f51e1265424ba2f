//! What the admission policies of the stand-ins refuse.

use serde_json::{Value, json};
use standins::fixtures;

use super::at;
use crate::conformance::row::{Case, case, delete, get, merge, post};

/// The cases.
pub fn cases() -> Vec<Case> {
    vec![triggers(), links(), instances(), services(), own()]
}

const TRIGGERS: &str = "/apis/eventing.knative.dev/v1alpha1/namespaces/{ns}/triggers";
const LINKS: &str = "/apis/messaging.knative.dev/v1alpha1/namespaces/{ns}/subscriptions";
const INSTANCES: &str = "/apis/servicecatalog.k8s.io/v1beta1/namespaces/{ns}/serviceinstances";
const SERVICES: &str = "/apis/serving.knative.dev/v1alpha1/namespaces/{ns}/services";
pub(super) const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
pub(super) const BINDINGS: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";

fn refused(policy: &str, kind: &str, name: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "reason": "Invalid",
        "message": format!("{kind} \"{name}\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {message}"),
    })
}

fn triggers() -> Case {
    let trigger = |name: &str, uri: &str| fixtures::trigger(name, "{ns}", "shop", "order", uri);
    let kind = "triggers.eventing.knative.dev";
    let mut odd = trigger("odd", "http://a.b");
    odd["spec"]["filter"]["attributes"]["Upper-Case"] = "x".into();
    let mut both = trigger("both", "http://a.b");
    both["spec"]["filter"]["sourceAndType"] = json!({"source": "s", "type": "t"});
    case(
        "a Trigger needs a subscriber that can be reached, and keeps its broker",
        [
            post(TRIGGERS, trigger("bad", "nowhere")).gives(
                422,
                refused(
                    "triggers.standins.belay.dev",
                    kind,
                    "bad",
                    "spec.subscriber needs a ref, or an absolute uri with scheme and host, and not both",
                ),
            ),
            post(format!("{TRIGGERS}?dryRun=All"), trigger("bad", "nowhere"))
                .gives(422, json!({"reason": "Invalid"})),
            post(TRIGGERS, odd).gives(
                422,
                refused(
                    "triggers.standins.belay.dev",
                    kind,
                    "odd",
                    "names of attributes are lower-case letters and digits, a letter first",
                ),
            ),
            post(TRIGGERS, both).gives(
                422,
                refused(
                    "triggers.standins.belay.dev",
                    kind,
                    "both",
                    "spec.filter has either attributes or sourceAndType",
                ),
            ),
            post(TRIGGERS, trigger("good", "http://a.b/c")).gives(201, json!({})),
            merge(at(TRIGGERS, "good"), json!({"spec": {"subscriber": {"uri": "/relative"}}}))
                .gives(422, json!({"reason": "Invalid"})),
            merge(at(TRIGGERS, "good"), json!({"spec": {"broker": "other"}})).gives(
                422,
                refused("trigger-broker.standins.belay.dev", kind, "good", "spec.broker is immutable"),
            ),
            merge(at(TRIGGERS, "good"), json!({"metadata": {"labels": {"l": "1"}}})).gives(200, json!({})),
            merge(at(TRIGGERS, "good/status"), json!({"status": {"ready": true}})).gives(200, json!({})),
            delete(at(TRIGGERS, "good")).gives(200, json!({"status": "Success"})),
        ],
    )
}

fn links() -> Case {
    let link = |name: &str| fixtures::link(name, "{ns}", "shop", "{ns}");
    let mut bare = link("bare");
    bare["spec"].as_object_mut().map(|spec| spec.remove("subscriber"));
    let kind = "subscriptions.messaging.knative.dev";
    case(
        "a Subscription needs a subscriber or a reply, and keeps its channel",
        [
            post(LINKS, bare).gives(
                422,
                refused(
                    "subscription-subscriber.standins.belay.dev",
                    kind,
                    "bare",
                    "spec needs a subscriber or a reply",
                ),
            ),
            post(LINKS, link("good")).gives(201, json!({})),
            merge(at(LINKS, "good"), json!({"spec": {"channel": {"name": "other"}}})).gives(
                422,
                refused("subscription-channel.standins.belay.dev", kind, "good", "spec.channel is immutable"),
            ),
            merge(
                at(LINKS, "good"),
                json!({"spec": {"subscriber": null, "reply": {"channel": {"name": "x"}}}}),
            )
            .gives(200, json!({})),
        ],
    )
}

fn instances() -> Case {
    let mut instance = fixtures::service_instance("bad", "{ns}", "shop");
    instance["spec"]["serviceClassRef"] = json!({"name": "shop"});
    let kind = "serviceinstances.servicecatalog.k8s.io";
    case(
        "a ServiceInstance comes without references, and keeps its id",
        [
            post(INSTANCES, instance).gives(
                422,
                refused(
                    "serviceinstances.standins.belay.dev",
                    kind,
                    "bad",
                    "references to class and plan must not be present on create",
                ),
            ),
            post(INSTANCES, fixtures::service_instance("good", "{ns}", "shop")).gives(201, json!({})),
            merge(
                at(INSTANCES, "good"),
                json!({"spec": {"externalID": "one", "serviceClassRef": {"name": "shop"}}}),
            )
            .gives(200, json!({})),
            merge(at(INSTANCES, "good"), json!({"spec": {"externalID": "two"}})).gives(
                422,
                refused(
                    "serviceinstance-id.standins.belay.dev",
                    kind,
                    "good",
                    "spec.externalID is immutable",
                ),
            ),
            merge(at(INSTANCES, "good"), json!({"spec": {"externalID": null}}))
                .gives(422, json!({"reason": "Invalid"})),
        ],
    )
}

fn services() -> Case {
    let service = |name: &str| json!({"apiVersion": "serving.knative.dev/v1alpha1", "kind": "Service", "metadata": {"name": name}, "spec": {}});
    case(
        "the name of an adapter is a label that begins with a letter",
        [
            post(SERVICES, service("2bad")).gives(
                422,
                refused(
                    "knative-services.standins.belay.dev",
                    "services.serving.knative.dev",
                    "2bad",
                    "not a DNS 1035 label prefix",
                ),
            ),
            post(SERVICES, service("a.b")).gives(422, json!({"reason": "Invalid"})),
            post(SERVICES, service("good-1")).gives(201, json!({})),
        ],
    )
}

/// A binding of a policy of the case's own.
pub(super) fn binding() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "{ns}.example"},
        "spec": {"policyName": "{ns}.example", "validationActions": ["Deny"]},
    })
}

fn own() -> Case {
    let rule = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "{ns}.example"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{"apiGroups": ["fixture.belay.dev"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["widgets"]}]},
            "validations": [{"expression": "object.metadata.name != '{ns}'", "message": "not this one"}],
        },
    });
    case(
        "policies and bindings are objects like others",
        [
            post(POLICIES, rule).gives(201, json!({"metadata": {"generation": 1}})).left_out(
                "only the expressions of the stand-ins' policies are known: there is no interpreter of CEL",
            ),
            post(BINDINGS, binding()).gives(201, json!({"spec": {"validationActions": ["Deny"]}})),
            get(at(BINDINGS, "{ns}.example")).gives(200, json!({"kind": "ValidatingAdmissionPolicyBinding"})),
            delete(at(BINDINGS, "{ns}.example")).gives(200, json!({"status": "Success"})),
            delete(at(POLICIES, "{ns}.example")).gives(200, json!({"status": "Success"})),
            get(at(POLICIES, "{ns}.example")).gives(404, json!({"reason": "NotFound"})),
        ],
    )
}
