//! The crash harness: runs a step through a proxy that names its calls, makes things go wrong at any one of them,
//! and compares what is left with what should be.
//!
//! - [`call`]: what a request is, and its name in every run;
//! - [`fault`]: what can go wrong;
//! - [`gateway`]: between one run and the API server;
//! - [`proxy`]: the way there for a step that is a process of its own;
//! - [`run`]: a step as a child process;
//! - [`state`]: the cluster in a form that can be compared;
//! - [`expect`]: the table of what must hold when a call fails for good;
//! - [`crash`]: every call of a step, in every way, spread over several API servers;
//! - [`api`]: the cluster for tests, in raw JSON;
//! - [`memory`]: an API server of a few lines, for the harness's own tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

pub mod api;
pub mod call;
pub mod crash;
pub mod expect;
pub mod fault;
pub mod gateway;
pub mod memory;
pub mod proxy;
pub mod run;
pub mod state;

pub use api::{Api, Resource};
pub use call::{Call, Class, LeaseUse, Name, Verb};
pub use crash::{Scenario, Suite, Worker};
pub use fault::{Action, At, Fault, Holding, Landing, Scope, Until};
pub use gateway::{Gateway, KillSwitch, Order, Upstream};
pub use proxy::Proxy;
pub use run::{Exit, Outcome, Runner, StepCommand, executable};
pub use state::{Area, Bookkeeping, State};
