//! Every fault of every step, on an API server in memory under virtual time.
//!
//! - [`server`]: the API server;
//! - [`conformance`]: whether it answers as a real one does;
//! - [`world`]: time, and the way to the API server;
//! - [`process`]: what a step takes for its machine;
//! - [`pod`]: the pod that it runs in;
//! - [`runner`]: runs a step in it;
//! - [`disturb`]: what can go wrong only here;
//! - [`intervene`]: what somebody else may do meanwhile;
//! - [`respect`]: how that is judged;
//! - [`pages`]: tokens of pages that expire;
//! - [`schedule`]: several things that go wrong in one story;
//! - [`invariants`]: what must hold at every moment, whatever goes wrong;
//! - [`secrets`]: what no text may tell;
//! - [`traffic`]: how much a process sends and gets;
//! - [`known`]: what is known not to hold yet;
//! - [`trial`]: one of all these;
//! - [`watchdog`]: ends what never ends;
//! - [`explore`]: tries all points of a scenario.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

/// Worlds are made of JSON.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

pub mod conformance;
pub mod disturb;
pub mod explore;
pub mod intervene;
pub mod invariants;
pub mod known;
pub mod mutants;
pub mod pages;
pub mod pod;
pub mod process;
pub mod respect;
pub mod runner;
pub mod schedule;
pub mod secrets;
pub mod server;
pub mod traffic;
pub mod trial;
pub mod watchdog;
pub mod world;
