//! What the cluster looks like, so that a test can say "as it was".

use std::collections::BTreeMap;

use kube::{Client, ResourceExt, api::ListParams};
use serde_json::Value;
use standins::kinds::{APPLICATION, CHANNEL, DEPLOYMENT, HTTP_SOURCE, KNATIVE_SERVICE};

/// Every object that the steps may change, or that follows what they change, by kind and name.
pub type State = BTreeMap<String, Value>;

/// Looks at all of them.
pub async fn state(client: &Client) -> State {
    let mut state = State::new();
    for kind in [APPLICATION, HTTP_SOURCE, CHANNEL, KNATIVE_SERVICE, DEPLOYMENT] {
        for object in kind.everywhere(client).list(&ListParams::default()).await.expect(kind.plural) {
            let key =
                format!("{}/{}/{}", kind.kind, object.namespace().unwrap_or_default(), object.name_any());
            let mut object = serde_json::to_value(object).unwrap();
            if kind == DEPLOYMENT {
                // Written whenever a pod comes or goes; the rest of a Deployment is its user's.
                object.as_object_mut().unwrap().remove("status");
                let metadata = object["metadata"].as_object_mut().unwrap();
                for moving in ["resourceVersion", "generation", "managedFields"] {
                    metadata.remove(moving);
                }
                metadata
                    .get_mut("annotations")
                    .and_then(Value::as_object_mut)
                    .map(|all| all.remove("deployment.kubernetes.io/revision"));
            }
            state.insert(key, object);
        }
    }
    state
}

/// Panics, naming the differences, unless both are the same: the same objects, and not one written to.
pub fn must_be_same(before: &State, after: &State) {
    let mut differences = Vec::new();
    for key in before.keys().chain(after.keys()).collect::<std::collections::BTreeSet<_>>() {
        match (before.get(key), after.get(key)) {
            (Some(_), None) => differences.push(format!("{key} is gone")),
            (None, Some(_)) => differences.push(format!("{key} is new")),
            (Some(was), Some(is)) if was != is => {
                differences.push(format!("{key} was\n{was:#}\nand is\n{is:#}"));
            }
            _ => {}
        }
    }
    assert!(differences.is_empty(), "the cluster is not as it was:\n{}", differences.join("\n"));
}
