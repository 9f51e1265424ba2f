//! Every fault of every step, on an API server in memory under virtual time.
//!
//! - [`server`]: the API server;
//! - [`conformance`]: whether it answers as a real one does;
//! - [`world`]: time, and the way to the API server;
//! - [`process`]: what a step takes for its machine;
//! - [`runner`]: runs a step in it;
//! - [`disturb`]: what can go wrong only here;
//! - [`explore`]: tries all points of a scenario.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

pub mod conformance;
pub mod disturb;
pub mod explore;
pub mod mutants;
pub mod process;
pub mod runner;
pub mod server;
pub mod world;
