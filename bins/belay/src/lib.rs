//! Every step that Belay ships.

use belay_runtime::Registered;

/// Every step there is, in the order in which each family runs.
#[must_use]
pub fn steps() -> Vec<Registered> {
    vec![
        Registered::of::<create_missing_sources::CreateMissingSources>(),
        Registered::of::<recreate_service_instances::RecreateServiceInstances>(),
        Registered::of::<recreate_triggers::RecreateTriggers>(),
        Registered::of::<verify_event_services::VerifyEventServices>(),
        Registered::of::<retire_subscriptions::RetireSubscriptions>(),
        Registered::of::<scale_down_legacy::ScaleDownLegacy>(),
        Registered::of::<purge_legacy::PurgeLegacy>(),
    ]
}
