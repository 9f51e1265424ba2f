//! A step's pod, as the API server knows it: on a node of its own, whose clock is not quite right.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::{Context as _, Result, anyhow};
use harness::StepCommand;
use serde_json::{Value, json};

use crate::{process::Node, world::World};

/// By how much the clock of a node may be off, in milliseconds.
const OFF: i64 = 5_000;

/// A pod that runs, until it is told that it has ended.
pub struct Pod {
    world: World,
    /// The machine on which it runs.
    pub node: Arc<Node>,
    object: Value,
}

impl Pod {
    /// Starts one for a step, as its chart does; an operator's program is in none.
    pub fn of(world: &World, command: &StepCommand) -> Result<Option<Self>> {
        let mut words = command.args.iter();
        if words.next().is_none_or(|step| step == "restore") {
            return Ok(None);
        }
        let namespace = words.skip_while(|word| *word != "--home").nth(1).context("a step has a home")?;
        let number = world.processes.names().len();
        let node = world.machine(&format!("node-{number}"));
        node.set_skew(world.draw(-OFF..=OFF));
        let pod = json!({
            "metadata": {"name": format!("step-{number}"), "namespace": namespace},
            "spec": {"nodeName": node.name, "containers": [{"name": "step", "image": "belay"}], "restartPolicy": "Never"},
        });
        let now = world.now();
        let made = world.with_server(|server| server.controller_create("", "pods", pod, now));
        let object = made.map_err(|refused| anyhow!("no pod: {refused}"))?;
        Ok(Some(Self { world: world.clone(), node, object }))
    }

    /// What a process in it finds in its environment.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<String, String> {
        let of = |field: &str| self.object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let names = [("NAMESPACE", "namespace"), ("NAME", "name"), ("UID", "uid")];
        names.map(|(name, field)| (format!("BELAY_POD_{name}"), of(field))).into()
    }

    /// Its process has ended, and the kubelet has said so.
    pub fn ended(&self, well: bool) -> Result<()> {
        let phase = if well { "Succeeded" } else { "Failed" };
        let pod = json!({"metadata": self.object["metadata"], "spec": self.object["spec"], "status": {"phase": phase}});
        let now = self.world.now();
        let told = self.world.with_server(|server| server.controller_update_status("", "pods", pod, now));
        told.map(drop).map_err(|refused| anyhow!("its pod did not end: {refused}"))
    }
}
