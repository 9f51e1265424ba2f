//! The one executable that the image ships.
//!
//! Called by a step's name (a hard link, as in the image, or the first argument) it is that step; called as `belay` it
//! is what a person operates with. One file for all: a dozen static binaries would be a dozen times as large.

use std::{ffi::OsString, path::Path, process::ExitCode};

use belay_runtime::Registered;

/// Every step there is, in the order in which each family runs.
fn steps() -> Vec<Registered> {
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

fn main() -> ExitCode {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let steps = steps();
    let named = |word: Option<&OsString>| {
        let name = Path::new(word?).file_name()?.to_str()?.to_owned();
        steps.iter().find(|step| step.meta.name == name)
    };
    if let Some(step) = named(words.first()) {
        return step.main(words);
    }
    if let Some(step) = named(words.get(1)) {
        words.remove(0);
        return step.main(words);
    }
    operate::main(words, &steps)
}
