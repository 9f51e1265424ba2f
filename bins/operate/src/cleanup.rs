//! After `helm uninstall`: Helm forgets hook objects, so this removes them. What a broken run still needs stays.

use std::sync::Arc;

use belay_runtime::{
    Kind, Meta, ObjectRef,
    cluster::{Cluster, Mode, Precondition},
    journal::Ledger,
    kinds,
    lock::{self, Life},
    object::{text, uid},
    plan::Propagation,
    report::Result as Ended,
    run::Ending,
};
use serde_json::Value;

use crate::{PATIENCE, Shared, ending};

/// What a release's hooks consist of, and whether it may be outside the release's namespace, as roles may. What runs
/// goes first: nothing shall lose its rights while it is at work.
const HOOKS: [(Kind, bool); 7] = [
    (kinds::CRON_JOB, false),
    (kinds::JOB, false),
    (kinds::ROLE_BINDING, true),
    (kinds::ROLE, true),
    (kinds::CLUSTER_ROLE_BINDING, true),
    (kinds::CLUSTER_ROLE, true),
    (kinds::SERVICE_ACCOUNT, false),
];

#[derive(clap::Args)]
pub(crate) struct CleanupArgs {
    #[command(flatten)]
    shared: Shared,
    /// Namespace of the Helm release.
    #[arg(long, env = "BELAY_NAMESPACE", value_name = "NAMESPACE")]
    namespace: String,
    /// Name of the Helm release.
    #[arg(long, env = "BELAY_RELEASE", value_name = "NAME")]
    release: String,
    /// The family whose hooks to remove.
    #[arg(long, env = "BELAY_FAMILY", value_name = "NAME")]
    family: String,
}

pub(crate) async fn cleanup(args: &CleanupArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let cluster = args.shared.cluster(PATIENCE).await?;
    let home = args.shared.home.clone().unwrap_or_else(|| args.namespace.clone());
    let open = open_steps(&cluster, metas, &args.family, &home).await?;
    let lease = lock::lease(&args.family, &home);
    let found = cluster.get(&lease).await?;
    let alive = match found.as_ref().and_then(lock::holder_of) {
        Some(holder) => lock::life(&cluster, &holder).await? != Life::Dead,
        None => false,
    };
    if alive {
        return Ok(ending(
            Ended::Done,
            format!(
                "nothing was removed: a run of {} is alive and needs its rights. When it has ended: belay cleanup \
                 --namespace {} --release {} --family {} --home {home}",
                args.family, args.namespace, args.release, args.family
            ),
        ));
    }

    let mut removed = 0;
    for (object, uid) in hook_objects(&cluster, args, &open).await? {
        removed += remove(&cluster, &object, &uid).await?;
    }
    if open.is_empty()
        && let Some(found) = &found
    {
        removed += remove(&cluster, &lease, uid(found)).await?;
    }
    let kept = if open.is_empty() {
        String::new()
    } else {
        format!(
            "; kept, because their journals are open: {}. See belay status --home {home}, then belay restore or accept",
            open.join(", ")
        )
    };
    Ok(ending(Ended::Done, format!("{removed} objects of release {} removed{kept}", args.release)))
}

/// Steps with an open journal: they need their rights to be finished or undone.
async fn open_steps(
    cluster: &Arc<Cluster>,
    metas: &[Meta],
    family: &str,
    home: &str,
) -> anyhow::Result<Vec<String>> {
    let mut open = Vec::new();
    for meta in metas.iter().filter(|meta| meta.family == family) {
        if Ledger::load(cluster, home, meta.name).await?.open_journal().is_some() {
            open.push(meta.name.to_owned());
        }
    }
    Ok(open)
}

async fn hook_objects(
    cluster: &Cluster,
    args: &CleanupArgs,
    open: &[String],
) -> anyhow::Result<Vec<(ObjectRef, String)>> {
    // A release of the same name in another namespace is another release. The cleanup's own objects are removed by Helm
    // when this has succeeded.
    let selector = format!(
        "belay.dev/release={},belay.dev/namespace={},belay.dev/family={},belay.dev/step!=cleanup",
        args.release, args.namespace, args.family
    );
    let mut all = Vec::new();
    for (kind, anywhere) in HOOKS {
        let begin = all.len();
        let namespace = (!anywhere).then_some(args.namespace.as_str());
        cluster
            .list(&kind, namespace, Some(&selector), |object| match object {
                Some(object) if is_wanted(&object, open) => {
                    all.push((kind.object_of(&object), uid(&object).to_owned()));
                }
                Some(_) => {}
                None => all.truncate(begin),
            })
            .await?;
    }
    Ok(all)
}

/// Not what an open journal needs, and not what goes by itself with its CronJob.
fn is_wanted(object: &Value, open: &[String]) -> bool {
    let step = object.pointer("/metadata/labels").and_then(|labels| labels.get("belay.dev/step")?.as_str());
    let owned =
        object.pointer("/metadata/ownerReferences/0").is_some_and(|owner| text(owner, "/kind").is_some());
    !owned && !step.is_some_and(|step| open.iter().any(|kept| kept == step))
}

async fn remove(cluster: &Cluster, object: &ObjectRef, uid: &str) -> anyhow::Result<usize> {
    let precondition = Precondition { uid: uid.to_owned(), resource_version: None };
    match cluster.delete(object, &precondition, Propagation::Background, Mode::Real).await {
        Ok(_) => {
            log::info!("removed {object}");
            Ok(1)
        }
        Err(failure) if failure.is_not_found(&object.name) || failure.is_conflict() => Ok(0),
        Err(failure) => Err(failure.into()),
    }
}
