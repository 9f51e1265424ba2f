//! Deletes the Subscriptions of the old event bus, each of which has a Trigger by now.
//!
//! **Why.** As long as a Subscription exists, the bus keeps its path for it, and the controller that serves its finalizer
//! cannot be stopped. It may go once nothing feeds that path any more: when the event-service of its source, in every
//! pod, sends to the mesh.
//!
//! **What it changes.** It deletes legacy Subscriptions and waits until they are gone. Objects of the newer kind of the
//! same name (`spec.sink`) are not looked at.
//!
//! **Undo** creates them again and waits until they are ready, if they were.
//!
//! **It refuses**, all at once, a Subscription without a Trigger that is Ready, one whose source still feeds the old path
//! or whose event-service will not work again by itself (`--accept-event-loss` goes on all the same), one without an
//! endpoint or with one that names no host (`--drop-undeliverable`), and all of them when the controller that serves their
//! finalizers is not available. **It fails** when an event-service that does not work at the moment, or of which a pod is
//! being replaced, still does not a minute later, and when a Subscription is not gone in time: then it names the finalizer that holds it and the state of its
//! controller. One that comes back after it was deleted is left alone and named: whoever keeps it must let go of it first.

mod plan;
mod snapshot;

use std::time::Duration;

use belay_runtime::{
    Common, Failure, Meta, Needs, ObjectRef, Plan, Reader, Rule, Step,
    args::{duration, namespaced_name},
    kinds,
};
use clap::builder::BoolishValueParser;
use event_mesh_kinds::{
    APPLICATION, FAMILY, HTTP_SOURCE, LEGACY_SUBSCRIPTION, STEPS, SYSTEM_NAMESPACE, TRIGGER,
    event_service::Expected, is_legacy, owner_kinds::OwnerKinds, user_namespaces::UserNamespaces,
};

pub use snapshot::Snapshot;

/// The step.
pub struct RetireSubscriptions;

/// Its flags.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Which namespaces are migrated.
    #[command(flatten)]
    pub namespaces: UserNamespaces,
    /// What event-services there must be.
    #[command(flatten)]
    pub expected: Expected,
    /// Delete Subscriptions although an event-service still feeds the old path or does not work: its events are lost.
    #[arg(long, env = "BELAY_ACCEPT_EVENT_LOSS", value_parser = BoolishValueParser::new())]
    pub accept_event_loss: bool,
    /// Delete Subscriptions without an endpoint, or with one that is no URL, to which nothing can be delivered, although they have no Trigger.
    #[arg(long, env = "BELAY_DROP_UNDELIVERABLE", value_parser = BoolishValueParser::new())]
    pub drop_undeliverable: bool,
    /// Deployment of the controller that serves the finalizers of Subscriptions.
    #[arg(long, env = "BELAY_SUBSCRIPTION_CONTROLLER", default_value = "kyma-system/event-bus-subscription-controller",
          value_parser = namespaced_name, value_name = "NAMESPACE/NAME")]
    pub subscription_controller: (String, String),
    /// How long a Subscription may take to be gone.
    #[arg(long, env = "BELAY_GONE_WITHIN", default_value = "5m", value_parser = duration, value_name = "TIME")]
    pub gone_within: Duration,
    /// Which kinds own Subscriptions.
    #[command(flatten)]
    pub owners: OwnerKinds,
}

impl Args {
    fn controller(&self) -> ObjectRef {
        let (namespace, name) = &self.subscription_controller;
        kinds::DEPLOYMENT.object(namespace, name)
    }
}

impl Step for RetireSubscriptions {
    const META: Meta = Meta {
        name: "retire-subscriptions",
        family: FAMILY,
        family_steps: STEPS,
        purpose: "Deletes the Subscriptions of the old event bus, each of which has a Trigger that is Ready",
        default_home: SYSTEM_NAMESPACE,
        deadline: Duration::from_secs(420),
        undo_reserve: Duration::from_secs(150),
        keeps_done_record: false,
        read_only: false,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let (controller_namespace, controller) = &args.subscription_controller;
        let mut rules = args.expected.rules(&["list", "watch"]);
        rules.extend([
            Rule::on(&APPLICATION, None, &["list"]),
            // patch: undo gives the fields of what it makes again back to those whose they were.
            Rule::on(&LEGACY_SUBSCRIPTION, None, &["get", "list", "watch", "create", "delete", "patch"]),
            Rule::on(&TRIGGER, None, &["list"]),
            Rule::on(&kinds::DEPLOYMENT, Some(controller_namespace), &["get"]).named([controller.clone()]),
            Rule::on(&kinds::DEPLOYMENT, Some(controller_namespace), &["list", "watch"]),
            // On a fresh cluster the namespace may not exist, and then rights in it cannot either.
            Rule::on(&kinds::NAMESPACE, None, &["get"]).named([controller_namespace.clone()]),
        ]);
        rules.extend(args.owners.rules());
        Needs {
            sources: vec![LEGACY_SUBSCRIPTION],
            workloads: vec![args.controller()],
            targets: vec![TRIGGER, APPLICATION, HTTP_SOURCE],
            // Objects of the later kind alone need no mesh.
            evidence: Some((LEGACY_SUBSCRIPTION, is_legacy)),
            rules,
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
