//! The stand-ins against a real API server. `BELAY_TEST_KUBECONFIG` names the cluster; without it every test fails and
//! says so, since a test that skips itself proves nothing. `UPSTREAM_CRDS` runs all of it on the real CRDs.

#![allow(clippy::unwrap_used, clippy::panic)]

mod catalog;
mod fixture;
mod ground;
mod legacy;
mod manifests;
mod mesh;
mod operator;
mod scenes;
mod sources;
