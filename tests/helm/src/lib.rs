//! The shipped charts under real Helm, on a real cluster: what the tests stand on.
//!
//! They need a cluster that they may change as they like, whose node holds the images `belay:dev` and
//! `belay-standins:dev`, and these variables: `BELAY_TEST_KUBECONFIG`, `HELM3`, `HELM4`, `KUBECTL`, `BELAY_BIN`. With the
//! kubeconfigs of several clusters, joined by colons, as many tests run side by side.
// Tests say what went wrong by panicking, and call programs for what they do, not for what they say.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::missing_panics_doc)]
#![allow(clippy::must_use_candidate, clippy::return_self_not_must_use)]

pub mod clusters;
pub mod ground;
pub mod guide;
pub mod lock;
pub mod node;
pub mod programs;
pub mod state;
