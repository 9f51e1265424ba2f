//! Creates a Trigger for each Subscription of the old event bus.
//!
//! **Why.** On the mesh a Trigger does what a Subscription did on the bus. An event takes one of the two paths, chosen by
//! the Application's event-service, so both may exist at once without an event being delivered twice: the new path is
//! made here, before the event-services change over, and the old one is taken away after that, by another step.
//!
//! **What it changes.** It sets the label on a namespace by which Knative makes the Broker `default`, where it is
//! missing. Then, once the Broker is Ready, it creates one Trigger for each Subscription that has none, with its name,
//! labels, annotations and owners, and waits until it is Ready. What it does not keep are the labels and annotations by
//! which Argo CD, Flux and Helm know what is theirs: the Trigger is not in their source, so that they would prune it, and
//! deliveries with it. A Trigger that delivers exactly the same counts as the Subscription's own, but only once it is
//! Ready; it is never changed. Objects of the newer kind of the same name (`spec.sink`) are not looked at.
//!
//! **Undo** removes the Triggers that it made and that nobody has changed since, and the labels that it set. A Broker
//! stays: Knative does not take one away with the label, and somebody else may use it by then.
//!
//! **It refuses** a Subscription without an endpoint, or with one that names no host, which cannot become a Trigger
//! (`--drop-undeliverable` goes on without one), a namespace that refuses the Broker, and an Event Bus whose controller is
//! there although its API is not. **It fails** when a Broker or a Trigger is not Ready in time.

mod plan;
mod snapshot;

use std::time::Duration;

use belay_runtime::{
    Common, Failure, Meta, Needs, Plan, Reader, Rule, Step,
    args::{duration, namespaced_name},
    kinds,
};
use clap::builder::BoolishValueParser;
use event_mesh_kinds::{
    BROKER, FAMILY, LEGACY_SUBSCRIPTION, STEPS, SYSTEM_NAMESPACE, TRIGGER, is_legacy,
    user_namespaces::UserNamespaces,
};

pub use snapshot::Snapshot;

/// The step.
pub struct RecreateTriggers;

/// Its flags.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Which namespaces are migrated.
    #[command(flatten)]
    pub namespaces: UserNamespaces,
    /// Go on without a Trigger for a Subscription that has no endpoint, or none with a host, instead of refusing.
    #[arg(long, env = "BELAY_DROP_UNDELIVERABLE", value_parser = BoolishValueParser::new())]
    pub drop_undeliverable: bool,
    /// Deployment of the controller of Subscriptions: where it is there, an API that is not means half an installation.
    #[arg(long, env = "BELAY_SUBSCRIPTION_CONTROLLER", default_value = "kyma-system/event-bus-subscription-controller",
          value_parser = namespaced_name, value_name = "NAMESPACE/NAME")]
    pub subscription_controller: (String, String),
    /// How long a Broker may take to become Ready, and then a Trigger.
    #[arg(long, env = "BELAY_READY_WITHIN", default_value = "2m", value_parser = duration, value_name = "TIME")]
    pub ready_within: Duration,
}

impl Step for RecreateTriggers {
    const META: Meta = Meta {
        name: "recreate-triggers",
        family: FAMILY,
        family_steps: STEPS,
        purpose: "Creates a Trigger for each Subscription of the old event bus, and waits until it is Ready",
        default_home: SYSTEM_NAMESPACE,
        deadline: Duration::from_secs(300),
        undo_reserve: Duration::from_secs(60),
        keeps_done_record: false,
        read_only: false,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let (controller_namespace, controller) = &args.subscription_controller;
        // Users' namespaces are many and come and go: rights in the whole cluster, but on these kinds alone.
        Needs {
            sources: vec![LEGACY_SUBSCRIPTION],
            workloads: vec![kinds::DEPLOYMENT.object(controller_namespace, controller)],
            targets: vec![TRIGGER, BROKER],
            // Objects of the later kind alone need no mesh.
            evidence: Some((LEGACY_SUBSCRIPTION, is_legacy)),
            rules: vec![
                Rule::on(&LEGACY_SUBSCRIPTION, None, &["list"]),
                Rule::on(&kinds::NAMESPACE, None, &["get", "list", "patch"]),
                Rule::on(&BROKER, None, &["list", "watch"]),
                Rule::on(&TRIGGER, None, &["get", "list", "watch", "create", "delete"]),
                Rule::on(&kinds::DEPLOYMENT, Some(controller_namespace), &["get"])
                    .named([controller.clone()]),
                // On a fresh cluster this namespace may not exist, and then rights in it cannot either.
                Rule::on(&kinds::NAMESPACE, None, &["get"]).named([controller_namespace.clone()]),
            ],
            ..Needs::default()
        }
    }

    async fn snapshot(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
        snapshot::read(args, reader).await
    }

    fn plan(args: &Args, snapshot: &Snapshot) -> Plan {
        plan::decide(args, snapshot)
    }
}
