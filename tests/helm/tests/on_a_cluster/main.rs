//! The shipped charts on a real cluster, each scenario under Helm 3 and under Helm 4.
//!
//! `src/lib.rs` says what they need. They take turns on the one cluster, whatever `--test-threads` says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Makes of each scenario one test under Helm 3 and one under Helm 4.
macro_rules! under_both_helms {
    ($($scenario:ident),+ $(,)?) => {
        mod helm_3 { $(#[test] fn $scenario() { super::$scenario(3); })+ }
        mod helm_4 { $(#[test] fn $scenario() { super::$scenario(4); })+ }
    };
}

mod autoscaler;
mod failures;
mod interruptions;
mod migration;
mod ownership;
mod releases;
