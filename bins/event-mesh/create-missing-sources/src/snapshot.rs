//! What the step reads.

use std::collections::BTreeMap;

use belay_runtime::{
    Failure, Reader, kinds,
    object::{is_available, is_going, text},
};
use event_mesh_kinds::{APPLICATION, CHANNEL, HTTP_SOURCE, ready, skip_installation};
use serde_json::Value;

use crate::Args;

/// All that the step read before it decided.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The Applications, by name, without those that a person left out.
    pub applications: BTreeMap<String, Application>,
    /// The sources that exist, by name.
    pub sources: BTreeMap<String, State>,
    /// What the sources write into their events, where that is not their own name.
    pub renamed: BTreeMap<String, String>,
    /// The Channels that exist, by name.
    pub channels: BTreeMap<String, State>,
    /// Whether the controller that makes sources Ready is available; none if it does not exist.
    pub controller_available: Option<bool>,
    /// The namespace of the sources does not exist.
    pub namespace_missing: bool,
}

/// An Application.
#[derive(Clone, Copy, Debug, Default)]
pub struct Application {
    /// Its own Helm release is not installed.
    pub skips_installation: bool,
    /// It is being deleted.
    pub going: bool,
}

/// How a source or Channel stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It works.
    Ready,
    /// It is there.
    NotReady,
    /// It is being deleted.
    Going,
}

pub(crate) async fn read(args: &Args, reader: &Reader) -> Result<Snapshot, Failure> {
    let namespace = Some(args.integration_namespace.as_str());
    let (controller_namespace, controller) = &args.source_controller;
    let controller = reader.get(&kinds::DEPLOYMENT.object(controller_namespace, controller)).await?;
    let integration = reader.get(&kinds::NAMESPACE.cluster_object(&args.integration_namespace)).await?;
    let mut renamed = BTreeMap::new();
    let source = |object: &Value| {
        let said = text(object, "/spec/source").unwrap_or_default();
        let name = name(object).filter(|name| *name != said);
        renamed.extend(name.map(|name| (name, said.to_owned())));
        state(object)
    };
    let sources = reader.scan(&HTTP_SOURCE, namespace, source).await?.into_iter().collect();
    Ok(Snapshot {
        applications: reader
            .scan(&APPLICATION, None, |object| {
                let application = Application {
                    skips_installation: skip_installation().get(object) == Some(&Value::Bool(true)),
                    going: is_going(object),
                };
                // What is left out needs no controller either.
                let name = name(object)?;
                (!reader.is_excluded(&APPLICATION.cluster_object(&name))).then_some((name, application))
            })
            .await?
            .into_iter()
            .collect(),
        sources,
        renamed,
        channels: reader.scan(&CHANNEL, namespace, state).await?.into_iter().collect(),
        controller_available: controller.live().as_ref().map(is_available),
        namespace_missing: integration.live().is_none(),
    })
}

fn name(object: &Value) -> Option<String> {
    text(object, "/metadata/name").map(str::to_owned)
}

fn state(object: &Value) -> Option<(String, State)> {
    let state = if is_going(object) {
        State::Going
    } else if ready().holds(Some(object)) {
        State::Ready
    } else {
        State::NotReady
    };
    Some((name(object)?, state))
}
