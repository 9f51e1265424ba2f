//! The APIs of a family on an API server: its CRDs, and the rules that webhooks had.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use kube::{Client, ResourceExt as _, api::ListParams};
use standins::{
    Family, cluster, crds, install_crds,
    kinds::{CRD, EVENT_MESH, GADGET, STATION, WIDGET},
    policies,
};

use crate::world::{SOON, resource};

/// Name, uid and generation of CRDs.
type Installed = BTreeMap<String, (Option<String>, Option<i64>)>;

/// What was installed last on each API server, for each family. Installing it takes longer than many a test does, and
/// most tests leave it as it is.
static INSTALLED: Mutex<Option<HashMap<(PathBuf, &str), Installed>>> = Mutex::new(None);

/// Installs them, unless they are as this left them last.
pub(crate) async fn prepare(client: &Client, kubeconfig: &Path, family: Family) {
    let server = (kubeconfig.to_owned(), family.name());
    let kinds = if family == Family::EventMesh { &EVENT_MESH[..] } else { &[WIDGET, GADGET, STATION] };
    let names: Vec<String> = kinds.iter().map(|kind| resource(kind).to_string()).collect();
    let found = installed(client, &names).await;
    let known = {
        let mut known = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        known.get_or_insert_default().get(&server).cloned()
    };
    if known.is_some_and(|known| known == found) {
        return;
    }
    install_crds(client, family, crds::upstream(family).as_deref()).await.unwrap();
    if family == Family::EventMesh {
        policies::install(client).await.unwrap();
    }
    let now = installed(client, &names).await;
    INSTALLED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(server, now);
}

/// The CRDs of these names. A test that failed may have left one terminating; without objects it goes, and is gone when
/// this returns.
async fn installed(client: &Client, names: &[String]) -> Installed {
    let found = RefCell::new(Installed::new());
    cluster::wait_until("no CRD is going", SOON, async || {
        let all = CRD.everywhere(client).list_metadata(&ListParams::default()).await?.items;
        let ours = all.iter().filter(|crd| names.contains(&crd.name_any()));
        found.replace(ours.map(|crd| (crd.name_any(), (crd.uid(), crd.metadata.generation))).collect());
        Ok(!all.iter().any(|crd| crd.metadata.deletion_timestamp.is_some()))
    })
    .await
    .unwrap();
    found.into_inner()
}
