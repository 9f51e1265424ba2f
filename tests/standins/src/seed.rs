//! A small legacy landscape to upgrade: what a cluster looks like before the event mesh.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;

use crate::behaviour::duration;
use crate::cluster::{apply, ensure_namespace, get, wait_until};
use crate::fixtures::{
    IMAGE, application, deployment, event_activation, legacy_subscription, skipped_application,
};
use crate::kinds::DEPLOYMENT;

/// Namespace of the system's own workloads.
pub const SYSTEM: &str = "kyma-system";
/// Namespace of what belongs to Applications.
pub const INTEGRATION: &str = "kyma-integration";
/// The controller that makes an HTTPSource Ready.
pub const SOURCE_CONTROLLER: &str = "event-sources-controller-manager";
/// The workloads of the Event Bus, with the replicas they are shipped with.
pub const EVENT_BUS: [(&str, u16); 2] =
    [("event-bus-event-publish-service", 2), ("event-bus-subscription-controller", 1)];

const FIRST_NAMES: [&str; 4] = ["commerce", "logistics", "loyalty", "warehouse"];

/// What to seed.
#[derive(Args, Clone, Debug)]
pub struct Seed {
    /// How many Applications; the last one has `skipInstallation`.
    #[arg(long, default_value_t = 4, value_name = "N")]
    pub applications: usize,

    /// How many legacy Subscriptions, each activated, in the user's namespace.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub subscriptions: usize,

    /// The user's namespace.
    #[arg(long, default_value = "shop", value_name = "NAMESPACE")]
    pub user_namespace: String,

    /// Image of the workloads; it must hold this binary as /standins.
    #[arg(long, default_value = IMAGE, value_name = "IMAGE")]
    pub image: String,

    /// How long to wait until the Deployments are available; 0 does not wait.
    #[arg(long, default_value = "60s", value_parser = duration, value_name = "TIME")]
    pub wait: Duration,
}

/// The name of the n-th Application, counted from 0.
#[must_use]
pub fn application_name(n: usize) -> String {
    FIRST_NAMES.get(n).map_or_else(|| format!("app-{:04}", n + 1), |name| (*name).to_owned())
}

/// Creates the landscape, or puts its objects back as they were at the start.
pub async fn seed(client: &Client, seed: &Seed) -> Result<()> {
    for namespace in [SYSTEM, INTEGRATION] {
        ensure_namespace(client, namespace).await?;
    }
    let mut manifests: Vec<_> = (0..seed.applications)
        .map(|n| {
            let last = n + 1 == seed.applications && n > 0;
            let make = if last { skipped_application } else { application };
            make(&application_name(n))
        })
        .collect();
    let workloads: Vec<(&str, u16)> = [(SOURCE_CONTROLLER, 1)].into_iter().chain(EVENT_BUS).collect();
    for (name, replicas) in &workloads {
        manifests.push(deployment(name, SYSTEM, *replicas, &seed.image));
    }
    if seed.subscriptions > 0 && seed.applications > 0 {
        ensure_namespace(client, &seed.user_namespace).await?;
        for n in 0..seed.subscriptions {
            let source = application_name(n % seed.applications);
            let endpoint = format!("http://orders.{}:8080/", seed.user_namespace);
            manifests.push(event_activation(&format!("{source}-events"), &seed.user_namespace, &source));
            manifests.push(legacy_subscription(
                &format!("orders-{n}"),
                &seed.user_namespace,
                &source,
                "order.created",
                &endpoint,
            ));
        }
    }
    // A few at a time: a landscape of thousands is seeded for benchmarks.
    stream::iter(&manifests)
        .map(|manifest| apply(client, manifest))
        .buffer_unordered(16)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    if !seed.wait.is_zero() {
        for (name, replicas) in workloads {
            let what = format!("Deployment {SYSTEM}/{name} is available");
            wait_until(&what, seed.wait, || async {
                let found = get(client, &DEPLOYMENT, SYSTEM, name).await?;
                Ok(found.is_some_and(|d| d.data["status"]["availableReplicas"] == replicas))
            })
            .await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applications_have_names_that_an_adapter_can_have() {
        assert_eq!(application_name(0), "commerce");
        assert_eq!(application_name(4), "app-0005");
    }
}
