//! The controllers that are played, one per file.

pub mod application_broker;
pub mod application_operator;
pub mod broker;
pub mod event_activation;
pub mod event_bus;
pub mod finalizer;
pub mod gadget;
pub mod garbage;
pub mod http_source;
pub mod knative_subscription;
pub mod kubelet;
pub mod legacy_subscription;
pub mod service_catalog;
pub mod trigger;
pub mod widget;
