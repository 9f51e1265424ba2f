//! The controllers that are played, one per file.

pub mod event_activation;
pub mod finalizer;
pub mod gadget;
pub mod garbage;
pub mod http_source;
pub mod legacy_subscription;
pub mod widget;
