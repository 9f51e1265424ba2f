//! After `helm uninstall`: Helm forgets hook objects, so this removes them.

use belay_runtime::{
    Kind, Meta,
    cluster::{Mode, Precondition},
    journal::Ledger,
    kinds, lock,
    object::uid,
    plan::Propagation,
    report::Result as Ended,
    run::Ending,
};

use crate::{PATIENCE, Shared, ending};

/// What a release's hooks consist of. The account that runs this comes last: without it nothing more can be removed.
const NAMESPACED: [Kind; 5] =
    [kinds::JOB, kinds::CRON_JOB, kinds::ROLE_BINDING, kinds::ROLE, kinds::SERVICE_ACCOUNT];
const CLUSTER_WIDE: [Kind; 2] = [kinds::CLUSTER_ROLE_BINDING, kinds::CLUSTER_ROLE];

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
    /// Another namespace in which the release has roles. May be repeated.
    #[arg(long = "also-in", env = "BELAY_ALSO_IN", value_delimiter = ',', value_name = "NAMESPACE")]
    also_in: Vec<String>,
}

pub(crate) async fn cleanup(args: &CleanupArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let cluster = args.shared.cluster(PATIENCE).await?;
    // Cluster-wide objects of a release of the same name in another namespace are not ours.
    let selector = format!("belay.dev/release={},belay.dev/namespace={}", args.release, args.namespace);
    // The cleanup's own objects are removed by Helm when this has succeeded.
    let selector = format!("{selector},belay.dev/step!=cleanup");
    let mut places: Vec<(Kind, Option<&str>)> = Vec::new();
    let mut namespaces: Vec<&str> = vec![&args.namespace];
    namespaces.extend(args.also_in.iter().map(String::as_str));
    namespaces.extend(args.shared.home.as_deref());
    namespaces.sort_unstable();
    namespaces.dedup();
    for namespace in namespaces {
        let here: &[Kind] = if namespace == args.namespace { &NAMESPACED } else { &NAMESPACED[2..4] };
        places.extend(here.iter().map(|kind| (kind.clone(), Some(namespace))));
    }
    places.extend(CLUSTER_WIDE.iter().map(|kind| (kind.clone(), None)));
    let mut removed = 0;
    for (kind, namespace) in places {
        let mut found = Vec::new();
        cluster
            .list(&kind, namespace, Some(&selector), |object| match object {
                Some(object) => found.push((kind.object_of(&object), uid(&object).to_owned())),
                None => found.clear(),
            })
            .await?;
        for (object, uid) in found {
            let precondition = Precondition { uid, resource_version: None };
            match cluster.delete(&object, &precondition, Propagation::Background, Mode::Real).await {
                Ok(_) => {
                    log::info!("removed {object}");
                    removed += 1;
                }
                Err(failure) if failure.is_not_found(&object.name) || failure.is_conflict() => {}
                Err(failure) => return Err(failure.into()),
            }
        }
    }
    let mut kept = Vec::new();
    let mut families: Vec<&Meta> = metas.iter().collect();
    families.dedup_by_key(|meta| meta.family);
    for meta in families {
        let home = args.shared.home.clone().unwrap_or_else(|| args.namespace.clone());
        let mut open = false;
        for step in meta.family_steps {
            open |= Ledger::load(&cluster, &home, step).await?.open_journal().is_some();
        }
        let lease = lock::lease(meta.family, &home);
        let Some(found) = cluster.get(&lease).await? else { continue };
        if open || lock::holder_of(&found).is_some() {
            kept.push(format!("{lease} (a journal is open, or a run is alive)"));
            continue;
        }
        let precondition = Precondition { uid: uid(&found).to_owned(), resource_version: None };
        cluster.delete(&lease, &precondition, Propagation::Background, Mode::Real).await?;
        removed += 1;
    }
    let kept = if kept.is_empty() { String::new() } else { format!("; kept: {}", kept.join(", ")) };
    Ok(ending(Ended::Done, format!("{removed} objects of release {} removed{kept}", args.release)))
}
