//! Plays the source controller and, for what it owns, Knative's Channel and Service controllers.
//!
//! The facts it plays: for each HTTPSource a Channel of the same name, with a controller reference and the label
//! `application-name`; the adapter (a Knative Service of the same name) only once the Channel has an address; Ready =
//! `SinkProvided` and `Deployed`, while `PolicyCreated` is for information only; the sink's address in `SinkURI`,
//! spelled like that. A source is not Ready for a moment (`SinkNotFound`, then `ServiceNotReady`) before it is. Knative
//! Serving refuses an adapter whose name is not DNS-1035; the source controller then fails before it gets to the
//! status, which stays `SinkNotFound` for good.

use std::sync::Arc;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::garbage;
use crate::behaviour::{Behaviour, Controller, names};
use crate::conditions::{Condition, Shape, Truth, conditions, holds, now, status};
use crate::engine::{Action, Failed, Look, Mirror, Seen, Setup, Shared, going, key, serve};
use crate::kinds::{CHANNEL, HTTP_SOURCE, KNATIVE_SERVICE};

/// One thing at a time: a child that was just made is worked on when the mirror shows it. By then the server's own
/// cache has it too; a status written at once would make the server read it back first, at twice the price.
struct HttpSource {
    shared: Arc<Shared>,
    channels: Mirror,
    services: Mirror,
}

/// Starts the controller.
pub fn start(setup: &mut Setup<'_>) {
    let (queue, receiver) = setup.queue(&HTTP_SOURCE);
    let sweeper = garbage::start(setup);
    let sweep = sweeper.clone();
    setup.on(&HTTP_SOURCE, move |seen| {
        if let Seen::Deleted(source) = seen {
            sweep.owner_gone(source);
        }
    });
    let [channels, services] = [CHANNEL, KNATIVE_SERVICE].map(|kind| {
        let (on_child, sweep) = (queue.clone(), sweeper.clone());
        setup.on(&kind, move |seen| {
            on_child.same_name(seen);
            if let Seen::Applied(child) = seen {
                sweep.child_seen(child);
            }
        });
        setup.mirror(&kind)
    });
    let shared = setup.shared.clone();
    serve(setup, HttpSource { shared, channels, services }, queue, receiver);
}

impl Look for HttpSource {
    const NAME: &'static str = "HTTPSource";

    async fn look(&self, source: Arc<DynamicObject>) -> Result<Action, Failed> {
        let (namespace, name) = key(&source);
        let named = |entries: &[String]| names(entries, &HTTP_SOURCE, &namespace, &name);
        let until_changed = Ok(Action::await_change());
        let acting = self.shared.acting(Controller::HttpSource, &namespace);
        let Some(behaviour) = acting.filter(|_| !going(&source)) else {
            return until_changed;
        };

        let seen_channel = self.channels.get(&namespace, &name);
        let seen_service = self.services.get(&namespace, &name);
        let behind =
            |child: &Option<Arc<DynamicObject>>| child.as_deref().is_some_and(|c| self.shared.is_behind(c));
        if behind(&seen_channel) || behind(&seen_service) {
            return until_changed;
        }
        if named(&behaviour.lose_channel) && seen_service.is_some() {
            if let Some(channel) = seen_channel.filter(|channel| !going(channel)) {
                self.shared.delete(&CHANNEL, &channel).await?;
            }
            self.report(source, &behaviour, &Progress::NoSink).await?;
            return until_changed;
        }

        let Some(mut channel) = seen_channel else {
            self.shared.create(&CHANNEL, channel_of(&source)).await?;
            return until_changed;
        };
        if going(&channel) {
            return until_changed;
        }
        if !holds(&channel, "Ready") {
            let never = named(&behaviour.channel_never_ready);
            let rest = self.shared.remaining(&channel, "channel", behaviour.delay);
            if never || rest.is_some() {
                if never {
                    let status = channel_not_ready(&channel, &behaviour);
                    self.shared.write_status(&CHANNEL, channel, status).await?;
                }
                if !behaviour.instant {
                    self.report(source, &behaviour, &Progress::NoSink).await?;
                }
                return Ok(rest.filter(|_| !never).map_or_else(Action::await_change, Action::requeue));
            }
            let status = channel_ready(&channel, &behaviour);
            channel = self.shared.write_status(&CHANNEL, channel, status).await?;
        }
        let sink = channel.data["status"]["address"]["url"].as_str().unwrap_or_default().to_owned();
        if behaviour.instant {
            self.report(source, &behaviour, &Progress::Ready { sink }).await?;
            return until_changed;
        }

        if !is_dns_1035(&name) {
            self.report(source, &behaviour, &Progress::NoSink).await?;
            return until_changed;
        }
        let Some(service) = seen_service else {
            self.shared.create(&KNATIVE_SERVICE, service_of(&source, &sink)).await?;
            return until_changed;
        };
        if going(&service) {
            return until_changed;
        }
        if !holds(&service, "Ready") {
            if named(&behaviour.never_ready) {
                let why = format!("Configuration {name:?} does not have any ready Revision.");
                let status = service_not_ready(&service, &behaviour, &why);
                self.shared.write_status(&KNATIVE_SERVICE, service, status).await?;
                self.report(source, &behaviour, &Progress::NotDeployed { sink, why: Some(why) }).await?;
                return until_changed;
            }
            if let Some(rest) = self.shared.remaining(&service, "adapter", behaviour.delay) {
                self.report(source, &behaviour, &Progress::NotDeployed { sink, why: None }).await?;
                return Ok(Action::requeue(rest));
            }
            let status = service_ready(&service, &behaviour);
            self.shared.write_status(&KNATIVE_SERVICE, service, status).await?;
        }
        self.report(source, &behaviour, &Progress::Ready { sink }).await?;
        until_changed
    }
}

impl HttpSource {
    async fn report(
        &self,
        source: Arc<DynamicObject>,
        behaviour: &Behaviour,
        progress: &Progress,
    ) -> Result<(), Failed> {
        let status = source_status(&source, behaviour, progress);
        self.shared.write_status(&HTTP_SOURCE, source, status).await.map(drop)
    }
}

/// How far a source is.
#[derive(Debug)]
enum Progress {
    NoSink,
    NotDeployed { sink: String, why: Option<String> },
    Ready { sink: String },
}

fn source_status(source: &DynamicObject, behaviour: &Behaviour, progress: &Progress) -> Value {
    let (wanted, sink) = match progress {
        Progress::NoSink => {
            let (reason, message) = ("SinkNotFound", "The sink does not exist or its URL is not set");
            let wanted = vec![
                Condition::new("Deployed", Truth::Unknown, "", ""),
                Condition::new("Ready", Truth::False, reason, message),
                Condition::new("SinkProvided", Truth::False, reason, message),
            ];
            (wanted, None)
        }
        Progress::NotDeployed { sink, why } => {
            let reason = "ServiceNotReady";
            let mut message = "The adapter Service is not yet ready".to_owned();
            if let Some(why) = why {
                message = format!("{message}: {why}");
            }
            let wanted = vec![
                Condition::new("Deployed", Truth::False, reason, &message),
                Condition::new(
                    "PolicyCreated",
                    Truth::Unknown,
                    "PolicyNotCreated",
                    "The policy is not created",
                )
                .informational(),
                Condition::new("Ready", Truth::False, reason, &message),
                Condition::met("SinkProvided"),
            ];
            (wanted, Some(sink))
        }
        Progress::Ready { sink } => {
            let wanted = vec![
                Condition::met("Deployed"),
                Condition::met("PolicyCreated").informational(),
                Condition::met("Ready"),
                Condition::met("SinkProvided"),
            ];
            (wanted, Some(sink))
        }
    };
    let mut status = knative_status(source, behaviour, &wanted);
    if let Some(sink) = sink {
        status["SinkURI"] = sink.as_str().into();
    }
    status
}

/// A status of conditions as Knative writes them.
pub(super) fn knative_status(object: &DynamicObject, behaviour: &Behaviour, wanted: &[Condition]) -> Value {
    let conditions = conditions(object, Shape::Knative, wanted, &now());
    status(object, !behaviour.no_observed_generation, &conditions)
}

/// The controller reference that Channel and adapter carry.
fn owner(source: &DynamicObject) -> Value {
    json!([{
        "apiVersion": HTTP_SOURCE.api_version(),
        "kind": HTTP_SOURCE.kind,
        "name": source.name_any(),
        "uid": source.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    }])
}

fn channel_of(source: &DynamicObject) -> Value {
    let (namespace, name) = key(source);
    json!({
        "apiVersion": CHANNEL.api_version(),
        "kind": CHANNEL.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"application-name": name},
            "ownerReferences": owner(source),
        },
        // What the messaging webhook would fill in.
        "spec": {"channelTemplate": {"apiVersion": CHANNEL.api_version(), "kind": "NatssChannel"}},
    })
}

fn channel_ready(channel: &DynamicObject, behaviour: &Behaviour) -> Value {
    let (namespace, name) = key(channel);
    let host = format!("{name}-kn-channel.{namespace}.svc.cluster.local");
    let wanted =
        [Condition::met("Addressable"), Condition::met("BackingChannelReady"), Condition::met("Ready")];
    let mut status = knative_status(channel, behaviour, &wanted);
    status["address"] = json!({"hostname": host, "url": format!("http://{host}")});
    status["channel"] = json!({
        "apiVersion": CHANNEL.api_version(), "kind": "NatssChannel", "name": name, "namespace": namespace,
    });
    status
}

fn channel_not_ready(channel: &DynamicObject, behaviour: &Behaviour) -> Value {
    let (reason, message) = ("NotReady", "the backing channel has no address");
    let wanted = [
        Condition::new("Addressable", Truth::False, reason, message),
        Condition::new("BackingChannelReady", Truth::False, reason, message),
        Condition::new("Ready", Truth::False, reason, message),
    ];
    knative_status(channel, behaviour, &wanted)
}

fn service_of(source: &DynamicObject, sink: &str) -> Value {
    let (namespace, name) = key(source);
    json!({
        "apiVersion": KNATIVE_SERVICE.api_version(),
        "kind": KNATIVE_SERVICE.kind,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"application-name": name, "serving.knative.dev/visibility": "cluster-local"},
            "ownerReferences": owner(source),
        },
        "spec": {"template": {
            "metadata": {
                "annotations": {"autoscaling.knative.dev/minScale": "1"},
                "labels": {"kyma-project.io/dashboard": "event-mesh"},
            },
            "spec": {"containers": [{
                "image": "http-source-adapter",
                "ports": [{"containerPort": 8080}],
                "readinessProbe": {"httpGet": {"path": "/healthz"}},
                "env": [
                    {"name": "EVENT_SOURCE", "value": source.data["spec"]["source"]},
                    {"name": "SINK_URI", "value": sink},
                    {"name": "NAMESPACE", "value": namespace},
                ],
            }]},
        }},
    })
}

fn service_ready(service: &DynamicObject, behaviour: &Behaviour) -> Value {
    let (namespace, name) = key(service);
    let url = format!("http://{name}.{namespace}.svc.cluster.local");
    let wanted =
        [Condition::met("ConfigurationsReady"), Condition::met("Ready"), Condition::met("RoutesReady")];
    let mut status = knative_status(service, behaviour, &wanted);
    status["url"] = url.as_str().into();
    status["address"] = json!({"url": url});
    status["latestCreatedRevisionName"] = format!("{name}-00001").into();
    status["latestReadyRevisionName"] = format!("{name}-00001").into();
    status
}

fn service_not_ready(service: &DynamicObject, behaviour: &Behaviour, why: &str) -> Value {
    let reason = "RevisionMissing";
    let wanted = [
        Condition::new("ConfigurationsReady", Truth::False, reason, why),
        Condition::new("Ready", Truth::False, reason, why),
        Condition::new("RoutesReady", Truth::Unknown, reason, why),
    ];
    knative_status(service, behaviour, &wanted)
}

/// Lower-case letters, digits and hyphens; a letter first, no hyphen last; at most 63.
fn is_dns_1035(name: &str) -> bool {
    name.len() <= 63
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "sources.kyma-project.io/v1alpha1", "kind": "HTTPSource",
            "metadata": {"name": "shop", "namespace": "mesh", "uid": "u1", "generation": 2},
            "spec": {"source": "shop"},
        }))
        .unwrap()
    }

    #[test]
    fn names_that_knative_serving_refuses() {
        for good in ["shop", "a", "shop-2"] {
            assert!(is_dns_1035(good), "{good}");
        }
        for bad in ["", "shop.eu", "2shop", "-shop", "shop-", "Shop", &"a".repeat(64)] {
            assert!(!is_dns_1035(bad), "{bad}");
        }
    }

    #[test]
    fn a_ready_source_says_where_its_sink_is() {
        let status =
            source_status(&source(), &Behaviour::default(), &Progress::Ready { sink: "http://x".into() });
        assert_eq!(status["SinkURI"], "http://x");
        assert_eq!(status["observedGeneration"], 2);
        let policy = &status["conditions"][1];
        assert_eq!((&policy["type"], &policy["severity"]), (&json!("PolicyCreated"), &json!("Info")));
    }

    #[test]
    fn a_source_without_sink_is_not_ready_for_the_same_reason() {
        let quiet = Behaviour { no_observed_generation: true, ..Behaviour::default() };
        let status = source_status(&source(), &quiet, &Progress::NoSink);
        assert_eq!(status["conditions"][1]["reason"], "SinkNotFound");
        assert_eq!(status["conditions"][1]["reason"], status["conditions"][2]["reason"]);
        assert!(status.get("SinkURI").is_none() && status.get("observedGeneration").is_none());
    }

    #[test]
    fn children_are_controlled_by_their_source() {
        for child in [channel_of(&source()), service_of(&source(), "http://x")] {
            assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], "u1");
            assert_eq!(child["metadata"]["ownerReferences"][0]["controller"], true);
            assert_eq!(child["metadata"]["labels"]["application-name"], "shop");
        }
    }
}
