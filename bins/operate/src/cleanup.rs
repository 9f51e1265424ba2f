//! After `helm uninstall`: Helm forgets hook objects, so this removes them. What a broken run still needs stays.

use std::sync::Arc;

use belay_runtime::{
    Failure, Host, Kind, Meta, ObjectRef,
    cluster::{Cluster, Mode, Precondition},
    journal::{Ledger, Trouble},
    kinds,
    lock::{self, Errand, Holder, Lock, NotLocked},
    object::{text, uid},
    plan::Propagation,
    report::Result as Ended,
    run::Ending,
};
use serde_json::Value;

use crate::{
    PATIENCE, Shared, WATCHED, ending, family_named, number_of,
    restore::{refuse_second_home, release},
};

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
    pub(crate) shared: Shared,
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

pub(crate) async fn cleanup(
    host: &Arc<dyn Host>,
    args: &CleanupArgs,
    metas: &[Meta],
) -> anyhow::Result<Ending> {
    let meta = family_named(metas, &args.family)?;
    let cluster = args.shared.cluster(host, PATIENCE).await?;
    let home = args.shared.home_for_sure(&cluster, meta).await?;
    if let Err(not) = refuse_second_home(&cluster, meta, &home).await
        && !is_only_a_guest(&cluster, args, meta, &home, &not).await?
    {
        return Err(not.into());
    }
    let exists = exists(&cluster, args, &home).await?;
    let taken = if exists { take(&cluster, meta, &home).await } else { Ok(None) };
    let lock = match taken {
        Ok(lock) => lock,
        Err(NotLocked::Held { holder, lease }) => {
            return Ok(ending(
                Ended::NotNow,
                format!(
                    "not now, nothing was removed: {holder} holds the lock {lease}, is at work and needs its rights. \
                     When it has ended: belay cleanup --namespace {} --release {} --family {} --home {home}",
                    args.namespace, args.release, args.family
                ),
            ));
        }
        Err(other) => return Err(other.into()),
    };
    let cleaned = clean(&cluster, args, metas, exists.then_some(home.as_str())).await;
    let mut removed = 0;
    match (lock, &cleaned) {
        (Some(lock), Ok(Cleaned { open, shared: false, .. })) if open.is_empty() => {
            removed += usize::from(lock.remove().await?);
        }
        (Some(lock), _) => release(lock).await,
        (None, _) => {}
    }
    let Cleaned { removed: hooks, open, .. } = cleaned?;
    removed += hooks;
    let kept = if open.is_empty() {
        String::new()
    } else {
        format!(
            "; kept, because their journals are open: {}. See belay status --home {home}, then belay restore or accept",
            open.join(", ")
        )
    };
    Ok(ending(
        Ended::Done,
        format!("{} of release {} removed{kept}", number_of(removed, "object"), args.release),
    ))
}

/// Whether the family's home elsewhere is that of another release: then all runs of this one were refused, and what it has
/// here is nobody's way back. The other one's hooks can finish what is open there.
async fn is_only_a_guest(
    cluster: &Cluster,
    args: &CleanupArgs,
    meta: &Meta,
    home: &str,
    not: &NotLocked,
) -> Result<bool, Failure> {
    Ok(matches!(not, NotLocked::WrongHome(_))
        && !lock::is_home(cluster, meta.family, home).await?
        && has_other_release(cluster, args).await?)
}

/// Whether the home is there at all. On a fresh cluster it need not be: then no run has left anything in it, and the chart
/// could not render rights to look there. Whoever may not ask takes it to be there.
async fn exists(cluster: &Cluster, args: &CleanupArgs, home: &str) -> Result<bool, Failure> {
    if home == args.namespace {
        return Ok(true);
    }
    match cluster.get(&kinds::NAMESPACE.cluster_object(home)).await {
        Ok(namespace) => Ok(namespace.is_some()),
        Err(failure) if failure.is_forbidden() => Ok(true),
        Err(failure) => Err(failure),
    }
}

/// Takes the lock, where the family has one here. Without a Lease nobody is at work, and none is made: this may be the
/// home of nobody.
async fn take(cluster: &Arc<Cluster>, meta: &Meta, home: &str) -> Result<Option<Lock>, NotLocked> {
    if !lock::is_home(cluster, meta.family, home).await? {
        return Ok(None);
    }
    let until = cluster.clock().now() + WATCHED;
    let errand = Errand { doing: "cleanup".to_owned(), until, waits_for_the_living: false };
    Lock::take_for(cluster, meta, home, errand).await.map(Some)
}

/// What a cleanup did and found.
struct Cleaned {
    removed: usize,
    /// Steps whose journals are open.
    open: Vec<String>,
    /// Whether another release has steps of the family: its runs need the Lease to find the home.
    shared: bool,
}

async fn clean(
    cluster: &Arc<Cluster>,
    args: &CleanupArgs,
    metas: &[Meta],
    home: Option<&str>,
) -> anyhow::Result<Cleaned> {
    let open = match home {
        Some(home) => open_steps(cluster, metas, &args.family, home).await?,
        None => Vec::new(),
    };
    let mut removed = 0;
    for (object, uid) in hook_objects(cluster, args, &open).await? {
        removed += remove(cluster, &object, &uid).await?;
    }
    let shared = has_other_release(cluster, args).await?;
    Ok(Cleaned { removed, open, shared })
}

/// Whether another release has steps of this family. Each step has a `ClusterRole`, since it looks for other homes.
async fn has_other_release(cluster: &Cluster, args: &CleanupArgs) -> Result<bool, Failure> {
    let selector = format!("belay.dev/family={}", args.family);
    let mut others = false;
    cluster
        .list(&kinds::CLUSTER_ROLE, None, Some(&selector), |object| match object {
            Some(object) => {
                let is = |label: &str, value: &str| label_of(&object, label) == Some(value);
                others |=
                    !(is("belay.dev/release", &args.release) && is("belay.dev/namespace", &args.namespace));
            }
            None => others = false,
        })
        .await?;
    Ok(others)
}

/// Steps with an open journal: they need their rights to be finished or undone. A journal that cannot be read may be
/// open too.
async fn open_steps(
    cluster: &Arc<Cluster>,
    metas: &[Meta],
    family: &str,
    home: &str,
) -> anyhow::Result<Vec<String>> {
    let mut open = Vec::new();
    for meta in metas.iter().filter(|meta| meta.family == family) {
        match Ledger::load(cluster, home, meta.name).await {
            Ok(ledger) if ledger.open_journal().is_none() => {}
            Ok(_) => open.push(meta.name.to_owned()),
            Err(Trouble::Unusable(error)) => {
                log::warn!("{error:#}");
                open.push(meta.name.to_owned());
            }
            Err(Trouble::Call(failure)) => return Err(failure.into()),
        }
    }
    Ok(open)
}

async fn hook_objects(
    cluster: &Cluster,
    args: &CleanupArgs,
    open: &[String],
) -> anyhow::Result<Vec<(ObjectRef, String)>> {
    // A release of the same name in another namespace is another release.
    let mut selector = format!(
        "belay.dev/release={},belay.dev/namespace={},belay.dev/family={}",
        args.release, args.namespace, args.family
    );
    if let Holder::Pod { .. } = Holder::me(cluster.host()) {
        // Its own objects are removed by Helm when this has succeeded. Those of one that failed stay, for whoever says
        // this by hand.
        selector.push_str(",belay.dev/step!=cleanup");
    }
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
    let step = label_of(object, "belay.dev/step");
    let owned =
        object.pointer("/metadata/ownerReferences/0").is_some_and(|owner| text(owner, "/kind").is_some());
    !owned && !step.is_some_and(|step| open.iter().any(|kept| kept == step))
}

fn label_of<'a>(object: &'a Value, label: &str) -> Option<&'a str> {
    object.pointer("/metadata/labels").and_then(|labels| labels.get(label)?.as_str())
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
