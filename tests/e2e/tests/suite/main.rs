//! End to end: the real binaries, as child processes, against a real API server.
//!
//! `BELAY_TEST_KUBECONFIG` names the kubeconfig of an API server with its controllers that the tests may change (or
//! several, separated by colons: then that many tests of a family run at once). `BELAY_BIN` and `FIXTURE_BIN` name the
//! executables, if not those beside the tests are meant. With `UPSTREAM_CRDS` the event mesh's CRDs are the real ones.
//! `BELAY_TEST_CLUSTER` names the embedded cluster, for the one test that must kill an API server of it.

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
