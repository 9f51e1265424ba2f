//! Small helpers for tests: connect, create, look, wait.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::conditions::holds;
use crate::engine::MANAGER;
use crate::kinds::{self, Kind};

/// Names the kubeconfig of the cluster that tests may use as they like. Deliberately not `KUBECONFIG`: nobody's own
/// cluster is to be tested on because a variable happened to be set.
pub const TEST_KUBECONFIG: &str = "BELAY_TEST_KUBECONFIG";

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Connects with the given kubeconfig, or else as kubectl would: `KUBECONFIG`, `~/.kube/config`, or in a pod.
pub async fn connect(kubeconfig: Option<&Path>) -> Result<Client> {
    let mut config = match kubeconfig {
        Some(file) => {
            let read = Kubeconfig::read_from(file)
                .with_context(|| format!("cannot read the kubeconfig {}", file.display()))?;
            Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?
        }
        None => Config::infer().await.context("no cluster is configured: name one with --kubeconfig")?,
    };
    // kube would repeat a call for minutes; the stand-ins look again by themselves, and tests want to know.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}

/// Connects to the cluster that tests may use, or says how to get one.
pub async fn test_cluster() -> Result<Client> {
    let Some(file) = std::env::var_os(TEST_KUBECONFIG) else {
        bail!("{TEST_KUBECONFIG} must name the kubeconfig of a cluster that these tests may change");
    };
    connect(Some(Path::new(&file))).await
}

/// Creates the object of a manifest; the kind must be one of [`kinds::ALL`].
pub async fn create(client: &Client, manifest: &Value) -> Result<DynamicObject> {
    let (kind, object, namespace) = typed(manifest)?;
    let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    let made = kind.within(client, &namespace).create(&params, &object).await;
    made.with_context(|| format!("cannot create {} {}", kind.kind, manifest["metadata"]["name"]))
}

/// Asks the server whether it would accept the manifest, unknown fields being an error too. Nothing is stored.
pub async fn try_create(client: &Client, manifest: &Value) -> Result<()> {
    let (kind, object, namespace) = typed(manifest)?;
    let api = kind.within(client, &namespace);
    let params = PatchParams { dry_run: true, ..PatchParams::apply(MANAGER).force().validation_strict() };
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let tried = api.patch(name, &params, &Patch::Apply(manifest)).await;
    tried.map(drop).with_context(|| format!("{} {} is not accepted", kind.kind, manifest["metadata"]["name"]))
}

/// Creates or changes the object so that it is as the manifest says (server-side apply).
pub async fn apply(client: &Client, manifest: &Value) -> Result<DynamicObject> {
    let (kind, object, namespace) = typed(manifest)?;
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let params = PatchParams::apply(MANAGER).force();
    let made = kind.within(client, &namespace).patch(name, &params, &Patch::Apply(manifest)).await;
    made.with_context(|| format!("cannot apply {} {}", kind.kind, manifest["metadata"]["name"]))
}

/// Creates the namespace unless it is there.
pub async fn ensure_namespace(client: &Client, name: &str) -> Result<()> {
    let manifest = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    apply(client, &manifest).await.map(drop)
}

/// The object, if it is there.
pub async fn get(client: &Client, kind: &Kind, namespace: &str, name: &str) -> Result<Option<DynamicObject>> {
    Ok(kind.within(client, namespace).get_opt(name).await?)
}

/// Deletes the object; that it is gone already is no error.
pub async fn delete(client: &Client, kind: &Kind, namespace: &str, name: &str) -> Result<()> {
    match kind.within(client, namespace).delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        other => Ok(other.map(drop)?),
    }
}

/// Deletes all objects of a kind, where it is served, and waits until they are gone. Nobody is there to serve finalizers:
/// they are taken off.
pub async fn empty(client: &Client, kind: &Kind, within: Duration) -> Result<()> {
    let all = kind.everywhere(client);
    wait_until(&format!("no {} is left", kind.kind), within, async || {
        let found = match all.list_metadata(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(true),
            found => found?.items,
        };
        for object in &found {
            let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
            let name = object.metadata.name.as_deref().unwrap_or_default();
            if object.metadata.finalizers.as_ref().is_some_and(|held| !held.is_empty()) {
                let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                let freed = kind.within(client, namespace).patch(name, &PatchParams::default(), &free).await;
                if let Err(error) = freed.map(drop)
                    && !matches!(&error, kube::Error::Api(status) if status.code == 404)
                {
                    return Err(error.into());
                }
            }
            delete(client, kind, namespace, name).await?;
        }
        Ok(found.is_empty())
    })
    .await
}

/// Puts fields into the object's status, for states that no stand-in produces.
pub async fn patch_status(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    name: &str,
    status: &Value,
) -> Result<()> {
    let patch = Patch::Merge(json!({"status": status}));
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    kind.within(client, namespace).patch_status(name, &params, &patch).await?;
    Ok(())
}

/// Waits until the object's condition Ready is True.
pub async fn wait_ready(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    name: &str,
    within: Duration,
) -> Result<()> {
    let what = format!("{} {namespace}/{name} is Ready", kind.kind);
    wait_until(&what, within, || async {
        Ok(get(client, kind, namespace, name).await?.is_some_and(|object| holds(&object, "Ready")))
    })
    .await
}

/// Waits until the object is gone.
pub async fn wait_gone(
    client: &Client,
    kind: &Kind,
    namespace: &str,
    name: &str,
    within: Duration,
) -> Result<()> {
    let what = format!("{} {namespace}/{name} is gone", kind.kind);
    wait_until(&what, within, || async { Ok(get(client, kind, namespace, name).await?.is_none()) }).await
}

/// Asks again and again until the answer is yes; an error, or no yes in time, is an error that says what was awaited.
pub async fn wait_until<F: Future<Output = Result<bool>>>(
    what: &str,
    within: Duration,
    check: impl FnMut() -> F,
) -> Result<()> {
    wait_looking_every(LOOK_EVERY, what, within, check).await
}

/// The same for a check that starts a program: twice a second, since more would keep the machine from what is waited for.
pub async fn wait_until_told<F: Future<Output = Result<bool>>>(
    what: &str,
    within: Duration,
    check: impl FnMut() -> F,
) -> Result<()> {
    wait_looking_every(Duration::from_millis(500), what, within, check).await
}

async fn wait_looking_every<F: Future<Output = Result<bool>>>(
    every: Duration,
    what: &str,
    within: Duration,
    mut check: impl FnMut() -> F,
) -> Result<()> {
    let deadline = Instant::now() + within;
    loop {
        if check().await.with_context(|| format!("while waiting until {what}"))? {
            return Ok(());
        }
        if Instant::now() >= deadline {
            bail!("waited {within:?} in vain until {what}");
        }
        tokio::time::sleep(every).await;
    }
}

/// Says that a Deployment is available, for API servers without the controllers that would find out.
pub async fn mark_available(client: &Client, namespace: &str, name: &str) -> Result<()> {
    let deployment = get(client, &kinds::DEPLOYMENT, namespace, name).await?;
    let deployment = deployment.with_context(|| format!("no Deployment {namespace}/{name}"))?;
    let replicas = &deployment.data["spec"]["replicas"];
    let now = crate::conditions::now();
    let status = json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": replicas,
        "updatedReplicas": replicas,
        "readyReplicas": replicas,
        "availableReplicas": replicas,
        "conditions": [{
            "type": "Available", "status": "True", "reason": "MinimumReplicasAvailable",
            "message": "told so", "lastTransitionTime": now, "lastUpdateTime": now,
        }],
    });
    patch_status(client, &kinds::DEPLOYMENT, namespace, name, &status).await
}

fn typed(manifest: &Value) -> Result<(Kind, DynamicObject, String)> {
    let kind = Kind::of(manifest)?;
    let object: DynamicObject = serde_json::from_value(manifest.clone())?;
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    Ok((kind, object, namespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_ends_with_the_first_yes() {
        let mut asked = 0;
        wait_until("the third time", Duration::from_secs(5), || {
            asked += 1;
            std::future::ready(Ok(asked == 3))
        })
        .await
        .unwrap();
        assert_eq!(asked, 3);
    }

    #[tokio::test]
    async fn waiting_in_vain_says_for_what() {
        let error =
            wait_until("pigs fly", Duration::from_millis(60), || async { Ok(false) }).await.unwrap_err();
        assert_eq!(error.to_string(), "waited 60ms in vain until pigs fly");
    }
}
