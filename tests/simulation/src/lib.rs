//! Every fault of every step, on an API server in memory under virtual time.
//!
//! - [`server`]: the API server.
//! - [`conformance`]: whether it answers as a real one does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

pub mod conformance;
pub mod server;
