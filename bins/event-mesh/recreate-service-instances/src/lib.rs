//! Recreates `ServiceInstances` so that each namespace is linked to the mesh of each Application that it uses.
//!
//! **Why.** The link between an Application and a namespace (a Knative Subscription from the Application's Channel to
//! the namespace's Broker, and the label that makes the Broker) is made only when a `ServiceInstance` of the
//! Application is provisioned. Instances from before the mesh have none.
//!
//! **What it changes.** One link serves all instances of an Application in a namespace, so of each such pair without a
//! link, label or Broker one instance is deleted and created again as it was, pairs side by side. What is there and not
//! Ready just now is only waited for, and so is an instance that is just being provisioned. One whose provisioning failed
//! is the last choice, and left alone with a note where the pair is linked: its broker would take the link of the others
//! with it. An instance that a `ServiceBinding` uses cannot be deleted: where all of a pair are bound, the step makes the
//! link and the label itself. The owner reference of the `EventActivation` is taken off first, so that legacy delivery
//! does not stop; where the broker deletes the `EventActivation` all the same, or a link that worked is made anew, the
//! report says for how long. With `--recreate all` every instance that is not bound is recreated, linked or not; those of
//! a pair take turns, because two provisions at once can make two links.
//!
//! **The gate.** Every live `EventActivation` of an Application that exists must have exactly one link, Ready, and
//! every provisioned instance its `EventActivation`: also where nothing is to be changed, and where a person left the
//! instances out.
//!
//! **Undo** creates an instance again that is gone, waits until it is provisioned as before and has the link it had,
//! creates the `EventActivation` again if the broker does not, puts the owner reference back, and removes a link and a
//! namespace label that the step made. A link that the broker makes where there was none stays.
//!
//! **It refuses**, all at once and only for what it would touch: an instance that is being deleted already, one whose
//! Application or service is gone (the broker could never let go of it), one whose class or `ApplicationMapping` is gone
//! (it would never be provisioned again), one whose `EventActivation` somebody holds in its deletion (the instance could
//! not come back; one that only the old bus holds is waited for, before anything is changed), an Application whose source
//! or Channel is not Ready (provisioning would fail for good), two links where there must be one, a namespace whose user
//! has switched the Broker off, a subscription controller that is not available while it must serve the finalizers, and an
//! integration namespace that does not exist.
//! A run that resumes asks all this again of the instances that the attempt before it has not touched: there it is a
//! failure, and what was done is undone.

mod catalog;
mod obstacles;
mod plan;
mod snapshot;
mod waits;

use std::time::Duration;

use belay_runtime::{
    Common, Failure, Meta, Needs, Plan, Reader, Rule, Step,
    args::{duration, namespaced_name},
    kinds,
};
use event_mesh_kinds::{
    APPLICATION, APPLICATION_MAPPING, BROKER, CHANNEL, EVENT_ACTIVATION, FAMILY, HTTP_SOURCE,
    INTEGRATION_NAMESPACE, KNATIVE_SUBSCRIPTION, LEGACY_SUBSCRIPTION, SERVICE_BINDING, SERVICE_CLASS,
    SERVICE_INSTANCE, SERVICE_PLAN, STEPS, SYSTEM_NAMESPACE, owner_kinds::OwnerKinds,
    user_namespaces::UserNamespaces,
};

pub use snapshot::Snapshot;

/// The step.
pub struct RecreateServiceInstances;

/// Its flags.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Which instances are recreated.
    #[arg(long, env = "BELAY_RECREATE", value_enum, default_value = "missing", value_name = "WHICH")]
    pub recreate: Recreate,
    /// Which namespaces are migrated.
    #[command(flatten)]
    pub namespaces: UserNamespaces,
    /// Namespace in which Channels and links live.
    #[arg(long, env = "BELAY_INTEGRATION_NAMESPACE", default_value = INTEGRATION_NAMESPACE, value_name = "NAMESPACE")]
    pub integration_namespace: String,
    /// Deployment of the controller that serves the finalizers of `EventActivations`.
    #[arg(long, env = "BELAY_SUBSCRIPTION_CONTROLLER", default_value = "kyma-system/event-bus-subscription-controller",
          value_parser = namespaced_name, value_name = "NAMESPACE/NAME")]
    pub subscription_controller: (String, String),
    /// How long an instance may take until it is gone.
    #[arg(long, env = "BELAY_GONE_WITHIN", default_value = "5m", value_parser = duration, value_name = "TIME")]
    pub gone_within: Duration,
    /// How long an instance may take until it is provisioned.
    #[arg(long, env = "BELAY_PROVISIONED_WITHIN", default_value = "2m", value_parser = duration, value_name = "TIME")]
    pub provisioned_within: Duration,
    /// How long a provisioned instance may take until its link is complete, and until legacy delivery is back.
    #[arg(long, env = "BELAY_LINKED_WITHIN", default_value = "2m", value_parser = duration, value_name = "TIME")]
    pub linked_within: Duration,
    /// Which kinds own instances.
    #[command(flatten)]
    pub owners: OwnerKinds,
}

/// Which instances are recreated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Recreate {
    /// One for each link that is not there.
    Missing,
    /// All, in every run.
    All,
}

impl Step for RecreateServiceInstances {
    const META: Meta = Meta {
        name: "recreate-service-instances",
        family: FAMILY,
        family_steps: STEPS,
        purpose: "Recreates ServiceInstances so that each namespace is linked to the mesh",
        default_home: SYSTEM_NAMESPACE,
        deadline: Duration::from_secs(840),
        undo_reserve: Duration::from_secs(300),
        keeps_done_record: false,
        read_only: false,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let integration = Some(args.integration_namespace.as_str());
        let (controller_namespace, controller) = &args.subscription_controller;
        let mut rules = vec![
            Rule::on(&APPLICATION, None, &["list"]),
            Rule::on(&APPLICATION_MAPPING, None, &["list"]),
            Rule::on(&SERVICE_CLASS, None, &["list"]),
            Rule::on(&SERVICE_PLAN, None, &["list"]),
            Rule::on(&SERVICE_BINDING, None, &["list"]),
            // patch: to give the fields of what is made again back to those whose they were.
            Rule::on(&SERVICE_INSTANCE, None, &["get", "list", "watch", "create", "delete", "patch"]),
            // create: undo makes one again that the broker took away and does not bring back.
            Rule::on(&EVENT_ACTIVATION, None, &["get", "list", "watch", "create", "patch"]),
            Rule::on(&LEGACY_SUBSCRIPTION, None, &["list", "watch"]),
            Rule::on(&BROKER, None, &["list", "watch"]),
            // patch: the label that makes the Broker, where the step itself makes the link.
            Rule::on(&kinds::NAMESPACE, None, &["get", "list", "watch", "patch"]),
            Rule::on(&HTTP_SOURCE, integration, &["list"]),
            Rule::on(&CHANNEL, integration, &["list"]),
            Rule::on(&KNATIVE_SUBSCRIPTION, integration, &["get", "list", "watch", "create", "delete"]),
            Rule::on(&kinds::DEPLOYMENT, Some(controller_namespace), &["get"]).named([controller.clone()]),
            // On a fresh cluster these namespaces may not exist, and then rights in them cannot either.
            Rule::on(&kinds::NAMESPACE, None, &["get"])
                .named([args.integration_namespace.clone(), controller_namespace.clone()]),
        ];
        rules.extend(args.owners.rules());
        Needs {
            // The catalog brings all its kinds at once: one that is missing is half a catalog, of which nobody knows what
            // it does when an instance is deleted.
            sources: vec![
                APPLICATION,
                EVENT_ACTIVATION,
                SERVICE_INSTANCE,
                SERVICE_CLASS,
                SERVICE_PLAN,
                SERVICE_BINDING,
            ],
            workloads: vec![kinds::DEPLOYMENT.object(controller_namespace, controller)],
            targets: vec![HTTP_SOURCE, CHANNEL, KNATIVE_SUBSCRIPTION, BROKER],
            // Subscriptions: only to see when legacy delivery is back; without the API there is none. Mappings: only to see
            // whether an instance can be provisioned again.
            optional: vec![LEGACY_SUBSCRIPTION, APPLICATION_MAPPING],
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
