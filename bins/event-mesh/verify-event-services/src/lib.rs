//! Checks that every Application's event-service was updated and works.
//!
//! **Why.** An event-service of the old version feeds the old bus. Nobody else notices when the application-operator
//! could not update one of them: it writes that into a status and goes on. If the old path were taken away then, the
//! events of that Application would be lost.
//!
//! **What it changes.** Nothing: it reads, and waits until all are updated.
//!
//! **Undo** has nothing to do.
//!
//! **It refuses** when nothing says which image is the right one. **It fails** when an event-service is not updated or
//! does not work at the deadline, and at once when its rollout was given up or its pods crash again and again. An
//! Application that goes meanwhile is not waited for any longer. At the end it prints a table of all Applications,
//! whichever way it ends, and of event-services that no operator looks after: those of an Application with
//! `spec.skipInstallation`, or of none. Such a one is not waited for, since nobody would update it; but while it feeds the
//! old path, the Subscriptions of its source stay.

mod plan;
mod snapshot;

use std::time::Duration;

use belay_runtime::{Common, Failure, Meta, Needs, Plan, Reader, Rule, Step};
use event_mesh_kinds::{APPLICATION, FAMILY, HTTP_SOURCE, STEPS, SYSTEM_NAMESPACE, event_service::Expected};

pub use snapshot::Snapshot;

/// The step.
pub struct VerifyEventServices;

/// Its flags.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// What event-services there must be.
    #[command(flatten)]
    pub expected: Expected,
}

impl Step for VerifyEventServices {
    const META: Meta = Meta {
        name: "verify-event-services",
        family: FAMILY,
        family_steps: STEPS,
        purpose: "Checks that every Application's event-service was updated and works",
        default_home: SYSTEM_NAMESPACE,
        deadline: Duration::from_secs(600),
        undo_reserve: Duration::ZERO,
        keeps_done_record: false,
        read_only: true,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let mut rules = args.expected.rules(&["list", "watch"]);
        rules.push(Rule::on(&APPLICATION, None, &["list", "watch"]));
        Needs { sources: vec![APPLICATION], targets: vec![HTTP_SOURCE], rules, ..Needs::default() }
    }

    async fn snapshot(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
        snapshot::read(args, reader).await
    }

    fn plan(args: &Args, snapshot: &Snapshot) -> Plan {
        plan::decide(args, snapshot)
    }
}
