//! The shipped charts on a real cluster, under Helm 3 and under Helm 4.
//!
//! `src/lib.rs` says what they need. They take turns on each cluster, whatever `--test-threads` says. A filter chooses among
//! them: `cargo test --workspace --test helm -- core::` runs the core alone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

/// Makes tests of scenarios, each under the Helms that it is named for. `core` is what `make test` runs: every way that a release
/// can take, once. `more` are the same scenarios under the other Helm, and the rest.
macro_rules! under_helm {
    ($($set:ident { helm_3: [$($three:ident),* $(,)?], helm_4: [$($four:ident),* $(,)?] })+) => {$(
        mod $set {
            mod helm_3 { $(#[test] fn $three() { super::super::$three(3); })* }
            mod helm_4 { $(#[test] fn $four() { super::super::$four(4); })* }
        }
    )+};
}

mod autoscaler;
mod failures;
mod guide;
mod interruptions;
mod migration;
mod ownership;
mod releases;
