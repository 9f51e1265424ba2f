//! An API server that refuses certain objects, by an admission policy.

use std::time::Duration;

use harness::{Api, Resource};
use http::Method;
use serde_json::{Value, json};

/// Says on a policy for which namespace it is.
const PLACE: &str = "e2e.belay.dev/place";

fn resource(plural: &str) -> Resource {
    Resource::new("admissionregistration.k8s.io", "v1", plural)
}

/// Refuses to create objects of a resource in a namespace for which `unless` (CEL, on `object`) is not true, and
/// returns when it does so for `example`.
pub async fn refuse_create(api: &Api, name: &str, kind: &Resource, unless: &str, example: &Value) {
    let namespace = example["metadata"]["namespace"].as_str().unwrap();
    let rule = json!({
        "apiGroups": [kind.group], "apiVersions": ["*"], "resources": [kind.plural], "operations": ["CREATE"],
    });
    let only_here = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    let labels = json!({ PLACE: namespace });
    let policy = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only_here},
            "validations": [{"expression": unless, "message": "this policy says no"}],
        },
    });
    let binding = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    remove(api, name).await;
    api.create(&resource("validatingadmissionpolicies"), &policy).await.unwrap();
    api.create(&resource("validatingadmissionpolicybindings"), &binding).await.unwrap();
    // The API server learns of a policy by a watch of its own.
    let path = format!("{}?dryRun=All", kind.path(Some(namespace), None));
    standins::cluster::wait_until("the policy is in force", Duration::from_secs(30), async || {
        let (_, answer) = api.request(Method::POST, &path, "application/json", Some(example)).await?;
        Ok(answer["message"].as_str().is_some_and(|message| message.contains("this policy says no")))
    })
    .await
    .unwrap();
}

/// Takes away what a test that failed has left for this namespace.
pub async fn sweep(api: &Api, namespace: &str) {
    let of_it = format!("{PLACE}={namespace}");
    let left = api.list(&resource("validatingadmissionpolicies"), None, Some(&of_it)).await.unwrap();
    for name in left.iter().filter_map(|policy| policy["metadata"]["name"].as_str()) {
        remove(api, name).await;
    }
}

/// Takes the policy away again.
pub async fn remove(api: &Api, name: &str) {
    for plural in ["validatingadmissionpolicybindings", "validatingadmissionpolicies"] {
        api.delete(&resource(plural), None, name).await.unwrap();
    }
}
