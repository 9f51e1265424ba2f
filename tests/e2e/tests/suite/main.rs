//! End to end: the real binaries, as child processes, against a real API server.
//!
//! `BELAY_TEST_KUBECONFIG` names the kubeconfig of an API server with its controllers that the tests may change (or
//! several, separated by colons: then that many tests of a family run at once). `BELAY_BIN` and `FIXTURE_BIN` name the
//! executables, if not those beside the tests are meant. With `UPSTREAM_CRDS` the event mesh's CRDs are the real ones.
//! `BELAY_TEST_CLUSTER` names the embedded cluster, for the one test that must kill an API server of it, and `BELAY_MANAGE`
//! the program that does so, if it is not to be built for that.
//!
//! A test whose name begins with `bug_` and a number shows that a known bug of the program that moved users' namespaces
//! before, or of the system around it, is not ours: 1.5 the schemas of Subscription; 2.3 and 2.5 errors and partial
//! failure; 5.1 Triggers that stay `NotSubscribed`; 5.2 instances without a class reference; 5.3 runs after the first, and
//! instances that are none of its business; 5.4 dead finalizers; 5.5 provisioning without Channel or Broker; 5.6 sources
//! that are not Ready; 5.8 instances without an Application; 5.9 events that are lost on the way; 5.10 the order of it all.
//! 5.7 has no test: what an event-service answers to a sender while the mesh cannot be reached is no object in the
//! cluster, so no step can meet it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod dependencies;
mod done_record;
mod dry_run;
mod event_services;
mod flags;
mod gaps;
mod journals;
mod locking;
mod many;
mod operating;
mod purge;
mod refusals;
mod reports;
mod retire;
mod scale_down;
mod second_run;
mod service_instances;
mod signals;
mod sources;
mod time;
mod triggers;
mod undo;
mod weather;

use harness::{At, Call, Fault, Scope};

/// The fixture step's last move before its point of no return fails for good: all the others are made by then.
fn fails_late() -> Fault {
    let last = |call: &Call| e2e::told::is_move(call) && call.target.resource == "stations";
    Fault::FailForGood { at: At::first(last), status: 422, scope: Scope::Target, until: None }
}

/// Whether a call is the move that creates an object of this name.
fn creates(name: &'static str) -> impl Fn(&Call) -> bool + Clone + Send + Sync + 'static {
    move |call| {
        e2e::told::is_move(call) && call.verb == harness::Verb::Create && call.name.as_deref() == Some(name)
    }
}
