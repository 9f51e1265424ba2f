//! What the end-to-end tests and the benchmark stand on: an API server that a test has to itself, stand-ins on it, and
//! the real binaries as child processes behind a proxy that sees every call.
//!
//! - [`world`]: where a test happens;
//! - [`scene`]: the same with a whole landscape of the old bus in it;
//! - [`told`]: what a run said and did;
//! - [`kubelet`]: somebody who says that pods run, where no kubelet does;
//! - [`deadline`]: tells a run when its deadline is;
//! - [`rights`]: runs under an account that may do just this much;
//! - [`alone`]: a step without a proxy, and what it needs;
//! - [`policy`]: an API server that refuses certain objects.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]

pub mod alone;
mod apis;
pub mod deadline;
pub mod kubelet;
pub mod policy;
pub mod rights;
pub mod scene;
pub mod told;
pub mod world;

pub use told::Told;
pub use world::World;
