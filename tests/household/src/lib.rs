//! Replaces the settings of the old format on a shelf by settings of the new one.
//!
//! **Why.** The next version of the chart reads `settings.json` and no longer `settings`.
//!
//! **What it changes.** For each `ConfigMap` labelled `format: v1` it makes `NAME-v2`, then deletes the old one.
//!
//! **Undo** creates the old one again and removes the new one.
//!
//! **It refuses** a `ConfigMap` without settings, and leaves alone one whose new name is taken.

mod plan;

use std::time::Duration;

use belay_runtime::{Common, Failure, Item, Meta, Needs, Plan, Reader, Rule, Step, kinds};

/// The step.
pub struct TidyUp;

/// Its flags.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Namespace whose settings are replaced.
    #[arg(long, value_name = "NAMESPACE")]
    pub shelf: String,
}

/// All that it read before it decided.
pub struct Snapshot {
    /// The `ConfigMaps` on the shelf, and those that an earlier attempt took away.
    pub config_maps: Vec<Item>,
}

impl Step for TidyUp {
    const META: Meta = Meta {
        name: "tidy-up",
        family: "household",
        family_steps: &["tidy-up"],
        purpose: "Replaces settings of the old format by settings of the new one",
        default_home: "household",
        deadline: Duration::from_secs(180),
        undo_reserve: Duration::from_secs(60),
        keeps_done_record: false,
        read_only: false,
    };
    type Args = Args;
    type Snapshot = Snapshot;

    fn needs(args: &Args, _: &Common) -> Needs {
        let verbs = &["get", "list", "watch", "create", "delete", "patch"];
        Needs { rules: vec![Rule::on(&kinds::CONFIG_MAP, Some(&args.shelf), verbs)], ..Needs::default() }
    }

    async fn snapshot(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
        Ok(Snapshot { config_maps: reader.list(&kinds::CONFIG_MAP, Some(&args.shelf)).await? })
    }

    fn plan(args: &Args, snapshot: &Snapshot) -> Plan {
        plan::decide(args, snapshot)
    }
}
