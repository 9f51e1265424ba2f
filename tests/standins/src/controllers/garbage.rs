//! Plays the garbage collector for what an HTTPSource owned, when told to.
//!
//! A bare API server keeps the Channel and adapter of a deleted source for ever; the garbage collector of a whole
//! cluster deletes them, also those that were made with a stale owner a moment too late. Off unless
//! `collect_garbage` is set: two collectors would only get into each other's way.

use std::sync::Arc;

use futures::StreamExt;
use futures::channel::mpsc::{UnboundedSender, unbounded};
use kube::ResourceExt;
use kube::api::DynamicObject;

use crate::engine::{Failed, Mirror, Setup, Shared, key};
use crate::kinds::{CHANNEL, HTTP_SOURCE, KNATIVE_SERVICE};

/// Where possible garbage is reported.
#[derive(Clone)]
pub struct Sweeper {
    shared: Arc<Shared>,
    owners: Mirror,
    sender: UnboundedSender<(String, String)>,
}

/// Starts the collector.
pub fn start(setup: &mut Setup<'_>) -> Sweeper {
    let (sender, receiver) = unbounded::<(String, String)>();
    let owners = setup.mirror(&HTTP_SOURCE);
    let sweeping = setup.shared.clone();
    setup.tasks.spawn(receiver.for_each_concurrent(8, move |(namespace, name)| {
        let shared = sweeping.clone();
        async move {
            if let Err(error) = sweep(&shared, &namespace, &name).await {
                log::warn!("collecting what HTTPSource {namespace}/{name} owned: {error}");
            }
        }
    }));
    Sweeper { shared: setup.shared.clone(), owners, sender }
}

impl Sweeper {
    /// This source is gone.
    pub fn owner_gone(&self, source: &DynamicObject) {
        self.report(source);
    }

    /// This child is there; its owner perhaps is not.
    pub fn child_seen(&self, child: &DynamicObject) {
        let (namespace, name) = key(child);
        let wanted = owner_uid(child);
        let live = self.owners.get(&namespace, &name).and_then(|source| source.uid());
        if wanted.is_some() && wanted != live {
            self.report(child);
        }
    }

    fn report(&self, object: &DynamicObject) {
        let (namespace, name) = key(object);
        let behaviour = self.shared.behaviour();
        if behaviour.collect_garbage && behaviour.acts_in(&namespace) {
            // Fails only when the stand-ins have been stopped.
            drop(self.sender.unbounded_send((namespace, name)));
        }
    }
}

/// Asks the server itself, since a mirror may lag behind, and deletes what has no owner any more.
async fn sweep(shared: &Shared, namespace: &str, name: &str) -> Result<(), Failed> {
    for kind in [CHANNEL, KNATIVE_SERVICE] {
        let Some(child) = kind.within(&shared.client, namespace).get_opt(name).await? else { continue };
        let Some(owner) = owner_uid(&child) else { continue };
        let source = HTTP_SOURCE.within(&shared.client, namespace).get_opt(name).await?;
        if source.and_then(|source| source.uid()) != Some(owner) {
            shared.delete(&kind, &child).await?;
        }
    }
    Ok(())
}

fn owner_uid(child: &DynamicObject) -> Option<String> {
    child
        .owner_references()
        .iter()
        .find(|owner| owner.kind == HTTP_SOURCE.kind)
        .map(|owner| owner.uid.clone())
}
