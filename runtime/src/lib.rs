//! The runtime of Belay: what every migration step does the same way.
//!
//! A step says what it needs, reads a snapshot, and decides with a pure function what to do. The runtime does the
//! rest: it locks, recovers what an earlier attempt left, writes a journal before anything is changed, carries the
//! plan out, looks again, and either finishes or puts the cluster back as it was. [`run`](mod@run) tells that story
//! from top to bottom.

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test has no run whose clock it could ask"))]

pub mod act;
pub mod args;
pub mod clock;
pub mod cluster;
pub mod dry_run;
#[cfg(test)]
mod fake;
pub mod host;
pub mod journal;
pub mod lock;
pub mod logging;
pub mod object;
pub mod plan;
pub mod preflight;
pub mod program;
pub mod report;
pub mod run;
pub mod step;
pub mod undo;
pub mod watch;

pub use args::Common;
pub use clock::Clock;
pub use cluster::Failure;
pub use host::{Host, ThisMachine};
pub use object::{Body, FieldPath, Kind, ObjectRef, kinds};
pub use plan::{
    Chain, Closing, Companion, Field, Finding, Item, Move, Owner, Plan, Progress, Propagation, Removal, Test,
    Undo,
};
pub use program::{Registered, step_main};
pub use step::{Meta, Needs, Reader, Rule, Step};
pub use watch::{Scope, View};
