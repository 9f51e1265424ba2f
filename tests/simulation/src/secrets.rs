//! Users' objects hold secrets, in the annotation in which kubectl keeps what was applied and in fields of their own. A step
//! may keep them in its journal, and tell them in no text.

use std::time::Duration;

use anyhow::Result;
use harness::{
    Api, Area, Call, Resource, Scenario, StepCommand, Worker,
    crash::{Guard, Mode, Objects},
    expect::{Allowed, Stage},
};
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::{Client, client::Body};
use serde_json::{Value, json};

/// What nobody else writes by chance. It stands for a password.
pub const SECRET: &str = "xyzzy-pa55w0rd";

/// The annotation in which kubectl keeps what was applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// A scenario in which every object that is there before the step begins holds a secret.
pub struct WithSecrets<S>(pub S);

impl<S: Scenario> Scenario for WithSecrets<S> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn command(&self, worker: &Worker) -> Result<StepCommand> {
        self.0.command(worker)
    }

    fn home(&self, worker: &Worker) -> String {
        self.0.home(worker)
    }

    fn areas(&self, worker: &Worker) -> Vec<Area> {
        self.0.areas(worker)
    }

    async fn setup(&self, worker: &Worker) -> Result<()> {
        self.0.setup(worker).await
    }

    fn standins(&self, worker: &Worker) -> Guard {
        self.0.standins(worker)
    }

    async fn fill(&self, worker: &Worker) -> Result<()> {
        self.0.fill(&Worker { api: Api::new(hiding(worker.api.client())), ..worker.clone() }).await
    }

    fn is_for_good(&self, call: &Call) -> bool {
        self.0.is_for_good(call)
    }

    fn adjust(&self, object: &mut Value) {
        self.0.adjust(object);
    }

    async fn holds_in_the_end(&self, worker: &Worker) -> Result<()> {
        self.0.holds_in_the_end(worker).await
    }

    fn too_early(&self, mv: &Call, objects: &Objects<'_>) -> Option<String> {
        self.0.too_early(mv, objects)
    }

    fn newcomer(&self, worker: &Worker) -> Option<(Resource, Value)> {
        self.0.newcomer(worker)
    }

    fn patience(&self) -> Duration {
        self.0.patience()
    }

    fn expect(&self, call: &Call, stage: Stage, ends: Vec<Allowed>) -> Vec<Allowed> {
        self.0.expect(call, stage, ends)
    }

    fn modes(&self) -> Vec<Mode> {
        self.0.modes()
    }
}

/// A client that hides a secret in every object that it creates.
fn hiding(client: Client) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            let (parts, body) = request.into_parts();
            let mut bytes = body.collect().await?.to_bytes().to_vec();
            if parts.method == Method::POST
                && let Ok(object) = serde_json::from_slice(&bytes)
            {
                bytes = with_secrets(object).to_string().into_bytes();
            }
            client.send(Request::from_parts(parts, Body::from(bytes))).await
        }
    });
    Client::new(service, "default")
}

/// An object with secrets in all the places that nobody reads a meaning into.
fn with_secrets(mut object: Value) -> Value {
    let kind = object["kind"].as_str().unwrap_or_default();
    match kind {
        "ConfigMap" => object["data"]["password"] = SECRET.into(),
        "Deployment" | "StatefulSet" => {
            let containers = object.pointer_mut("/spec/template/spec/containers");
            for container in containers.and_then(Value::as_array_mut).into_iter().flatten() {
                container["env"] = json!([{"name": "PASSWORD", "value": SECRET}]);
            }
        }
        "ServiceBinding" => object["spec"]["parameters"] = json!({"password": SECRET}),
        "Application" => object["spec"]["description"] = format!("The password is {SECRET}").into(),
        "EventActivation" => object["spec"]["displayName"] = format!("events, {SECRET}").into(),
        "Subscription" | "Trigger" => {
            for address in ["/spec/endpoint", "/spec/subscriber/uri"] {
                if let Some(Value::String(address)) = object.pointer_mut(address) {
                    *address = format!("{address}?token={SECRET}");
                }
            }
        }
        _ => {}
    }
    // As kubectl does; and a field that was in it once.
    let mut applied = object.clone();
    applied["metadata"]["annotations"]["example.com/password"] = SECRET.into();
    object["metadata"]["annotations"][LAST_APPLIED] = applied.to_string().into();
    object
}
