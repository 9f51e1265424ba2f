//! Creates an `HTTPSource` for each Application that has none.
//!
//! **Why.** Events of an Application enter the mesh through an `HTTPSource` of its name. The Application's own chart
//! renders one, but only when it is next upgraded, and not at all where its installation is skipped: without this
//! step the later ones would link namespaces to channels that do not exist.
//!
//! **What it changes.** It creates sources, and waits until source and Channel are Ready. Sources that exist already
//! are never changed, but they are waited for too; one that gives its events another source is named. What it creates bears the ownership marks of the Application's own
//! Helm release, so that this release can take it over.
//!
//! **Undo** removes the sources that it made and that nobody has changed since; their Channels and adapters go with
//! them.
//!
//! **It refuses** when a name can never work as that of a Knative Service, when the controller that makes sources Ready
//! is not available, and when the namespace of the sources does not exist. **It fails** when a source or Channel is not Ready in time, and at once when an adapter is
//! without its Channel.

mod plan;
mod snapshot;

use std::time::Duration;

use belay_runtime::{
    Common, Failure, Meta, Needs, Plan, Reader, Rule, Step,
    args::{duration, namespaced_name},
    kinds,
};
use event_mesh_kinds::{
    ADAPTER, APPLICATION, CHANNEL, FAMILY, HTTP_SOURCE, INTEGRATION_NAMESPACE, STEPS, SYSTEM_NAMESPACE,
};

pub use snapshot::Snapshot;

/// The step.
pub struct CreateMissingSources;

/// Its flags.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Namespace in which the sources live.
    #[arg(long, env = "BELAY_INTEGRATION_NAMESPACE", default_value = INTEGRATION_NAMESPACE, value_name = "NAMESPACE")]
    pub integration_namespace: String,
    /// Deployment of the controller that makes sources Ready.
    #[arg(long, env = "BELAY_SOURCE_CONTROLLER", default_value = "kyma-system/event-sources-controller-manager",
          value_parser = namespaced_name, value_name = "NAMESPACE/NAME")]
    pub source_controller: (String, String),
    /// How long source and Channel may take to become Ready.
    #[arg(long, env = "BELAY_READY_WITHIN", default_value = "2m", value_parser = duration, value_name = "TIME")]
    pub ready_within: Duration,
}

impl Step for CreateMissingSources {
    const META: Meta = Meta {
        name: "create-missing-sources",
        family: FAMILY,
        family_steps: STEPS,
        purpose: "Creates an HTTPSource for each Application that has none, and waits until it is Ready",
        default_home: SYSTEM_NAMESPACE,
        deadline: Duration::from_secs(180),
        undo_reserve: Duration::from_secs(60),
        keeps_done_record: false,
        read_only: false,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let integration = Some(args.integration_namespace.as_str());
        let (controller_namespace, controller) = &args.source_controller;
        Needs {
            sources: vec![APPLICATION],
            targets: vec![HTTP_SOURCE, CHANNEL, ADAPTER],
            rules: vec![
                Rule::on(&APPLICATION, None, &["list"]),
                Rule::on(&HTTP_SOURCE, integration, &["get", "list", "watch", "create", "delete"]),
                Rule::on(&CHANNEL, integration, &["list", "watch"]),
                Rule::on(&ADAPTER, integration, &["list", "watch"]),
                Rule::on(&kinds::DEPLOYMENT, Some(controller_namespace), &["get"])
                    .named([controller.clone()]),
                // On a fresh cluster these namespaces may not exist, and then rights in them cannot either.
                Rule::on(&kinds::NAMESPACE, None, &["get"])
                    .named([args.integration_namespace.clone(), controller_namespace.clone()]),
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
