//! Renders charts with Helm 3 and Helm 4 and looks for the mistakes that Helm lets pass in silence: a misspelt hook is dropped, a
//! weight that is no number counts as 0, and rights that go before their Job leave it helpless.
//!
//! [`check()`] judges rendered manifests, whatever chart they come from. [`rights`] compares what a chart grants with what a step says that
//! it needs. [`helm`] runs Helm.

pub mod helm;
pub mod manifest;
pub mod rights;

mod check;
mod pod;

pub use check::check;
