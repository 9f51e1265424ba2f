//! Removes what the old event bus left behind, its CRD last.
//!
//! **Why.** Since every namespace is on the mesh and the bus's own Helm release is removed, nobody serves what the bus
//! made: Knative Subscriptions and Channels of its own, held by a finalizer that nobody takes off any more, and the CRD
//! of the legacy Subscriptions.
//!
//! **What it changes.** It deletes the bus's Knative Subscriptions in its namespace, with their orphaned finalizer, then
//! its Channels, then looks once more whether a Subscription exists anywhere, and deletes the CRD. Last it takes the bus's
//! finalizer off the `EventActivations` that still have it (scale-down-legacy does so too, where it ran): they stay, and
//! could never be deleted.
//!
//! **Undo** creates the CRD, the Channels and the Knative Subscriptions again. `EventActivations` are beyond it: with the
//! first finalizer that it takes off one, the step is past its point of no return, and can only be run again.
//!
//! **It refuses**, where there is something to remove, while any Subscription of the CRD exists, of the old schema or
//! of the newer one that reuses its name (deleting the CRD would delete them, and what is left of the bus may be of use
//! to them), and while the bus's Helm release is there. It knows the release by its objects: where Helm keeps its records, in Secrets, the step may not look. A release
//! of which only records are left is not seen. It also refuses a CRD that is stored as v1beta1 took it, without a structural
//! schema: v1 would not let undo create it again. A CRD that serves the newer schema is left alone.

mod plan;
mod snapshot;

use std::time::Duration;

use belay_runtime::{Common, Failure, Meta, Needs, Plan, Reader, Rule, Step, args::duration, kinds};
use event_mesh_kinds::{
    CHANNEL, EVENT_ACTIVATION, FAMILY, KNATIVE_SUBSCRIPTION, LEGACY_SUBSCRIPTION, STEPS, SYSTEM_NAMESPACE,
};

pub use snapshot::Snapshot;

/// The step.
pub struct PurgeLegacy;

/// Its flags.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Namespace of the old bus.
    #[arg(long, env = "BELAY_LEGACY_NAMESPACE", default_value = SYSTEM_NAMESPACE, value_name = "NAMESPACE")]
    pub legacy_namespace: String,
    /// Helm release of the old bus, in that namespace.
    #[arg(long, env = "BELAY_LEGACY_RELEASE", default_value = "event-bus", value_name = "NAME")]
    pub legacy_release: String,
    /// How long an object may take until it is gone.
    #[arg(long, env = "BELAY_GONE_WITHIN", default_value = "2m", value_parser = duration, value_name = "TIME")]
    pub gone_within: Duration,
}

impl Step for PurgeLegacy {
    const META: Meta = Meta {
        name: "purge-legacy",
        family: FAMILY,
        family_steps: STEPS,
        purpose: "Removes what the old event bus left behind, its CRD last",
        default_home: SYSTEM_NAMESPACE,
        deadline: Duration::from_secs(300),
        undo_reserve: Duration::from_secs(120),
        keeps_done_record: false,
        read_only: false,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let namespace = Some(args.legacy_namespace.as_str());
        let crd = || [LEGACY_SUBSCRIPTION.resource()];
        Needs {
            // Leftovers may be there without the CRD, and the CRD without leftovers: each is removed where it is.
            optional: vec![LEGACY_SUBSCRIPTION, KNATIVE_SUBSCRIPTION, CHANNEL, EVENT_ACTIVATION],
            rules: vec![
                Rule::on(&LEGACY_SUBSCRIPTION, None, &["list", "watch"]),
                Rule::on(&kinds::CUSTOM_RESOURCE_DEFINITION, None, &["create", "list", "watch"]),
                // patch: undo gives the fields of what it makes again back to those whose they were.
                Rule::on(&kinds::CUSTOM_RESOURCE_DEFINITION, None, &["get", "delete", "patch"]).named(crd()),
                // patch: the orphaned finalizer too.
                Rule::on(
                    &KNATIVE_SUBSCRIPTION,
                    namespace,
                    &["get", "list", "watch", "create", "delete", "patch"],
                ),
                Rule::on(&CHANNEL, namespace, &["get", "list", "watch", "create", "delete", "patch"]),
                Rule::on(&EVENT_ACTIVATION, None, &["get", "list", "watch", "patch"]),
                Rule::on(&kinds::DEPLOYMENT, namespace, &["list"]),
                Rule::on(&kinds::SERVICE, namespace, &["list"]),
                Rule::on(&kinds::SERVICE_ACCOUNT, namespace, &["list"]),
                // On a fresh cluster the namespace may not exist, and then rights in it cannot either.
                Rule::on(&kinds::NAMESPACE, None, &["get"]).named([args.legacy_namespace.clone()]),
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
