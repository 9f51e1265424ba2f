//! Installs the test CRDs: ours, which are part of this crate, or those of a folder (the real ones, where at hand).

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use futures::future::try_join_all;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::Value;

use crate::cluster::wait_until;
use crate::conditions::holds;
use crate::engine::MANAGER;
use crate::kinds::CRD;

/// Names the folder with the real CRDs, one folder per family in it.
pub const UPSTREAM_CRDS: &str = "UPSTREAM_CRDS";

const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// Kinds that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Family {
    /// Applications, sources, channels, the Service Catalog, Knative's eventing, legacy subscriptions.
    EventMesh,
    /// What the runtime's own fixture step works on.
    Fixture,
}

impl Family {
    /// The family's name, which is also that of its folder.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EventMesh => "event-mesh",
            Self::Fixture => "fixture",
        }
    }

    const fn ours(self) -> &'static [&'static str] {
        match self {
            Self::EventMesh => &[
                include_str!("../crds/event-mesh/application-mapping.yaml"),
                include_str!("../crds/event-mesh/application.yaml"),
                include_str!("../crds/event-mesh/broker.yaml"),
                include_str!("../crds/event-mesh/channel.yaml"),
                include_str!("../crds/event-mesh/event-activation.yaml"),
                include_str!("../crds/event-mesh/httpsource.yaml"),
                include_str!("../crds/event-mesh/knative-service.yaml"),
                include_str!("../crds/event-mesh/knative-subscription.yaml"),
                include_str!("../crds/event-mesh/legacy-subscription.yaml"),
                include_str!("../crds/event-mesh/service-binding.yaml"),
                include_str!("../crds/event-mesh/service-broker.yaml"),
                include_str!("../crds/event-mesh/service-class.yaml"),
                include_str!("../crds/event-mesh/service-instance.yaml"),
                include_str!("../crds/event-mesh/service-plan.yaml"),
                include_str!("../crds/event-mesh/trigger.yaml"),
            ],
            Self::Fixture => &[
                include_str!("../crds/fixture/gadget.yaml"),
                include_str!("../crds/fixture/station.yaml"),
                include_str!("../crds/fixture/widget.yaml"),
            ],
        }
    }
}

/// The folder with the family's real CRDs, if the environment names one. No fixture has real ones.
///
/// Whether the folder is there is not asked here: whoever wants the real CRDs shall fail on a folder that is not, instead of
/// being told that all is well with ours.
#[must_use]
pub fn upstream(family: Family) -> Option<PathBuf> {
    let named =
        std::env::var_os(UPSTREAM_CRDS).filter(|named| !named.is_empty() && family != Family::Fixture);
    named.map(|named| PathBuf::from(named).join(family.name()))
}

/// The family's CRDs: ours, or those of a folder or of the family's folder in it. Of what the folder lacks, ours.
pub fn crds(family: Family, from: Option<&Path>) -> Result<Vec<Value>> {
    let ours = family.ours().iter().map(|text| parse(text)).collect::<Result<Vec<_>>>()?;
    let Some(folder) = from else {
        return Ok(ours);
    };
    let inner = folder.join(family.name());
    let folder = if inner.is_dir() { inner } else { folder.to_owned() };
    let entries = std::fs::read_dir(&folder).with_context(|| {
        format!("cannot read {} ({UPSTREAM_CRDS} is the full path of the folder above it)", folder.display())
    })?;
    let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.retain(|file| file.extension().is_some_and(|end| end == "yaml" || end == "yml"));
    files.sort();
    ensure!(!files.is_empty(), "no CRD files in {}", folder.display());
    let read = |file: &PathBuf| {
        let text = std::fs::read_to_string(file)?;
        parse(&text).with_context(|| format!("in {}", file.display()))
    };
    let mut found = files.iter().map(read).collect::<Result<Vec<_>>>()?;
    let names: Vec<_> = found.iter().map(|crd| crd["metadata"]["name"].clone()).collect();
    found.extend(ours.into_iter().filter(|crd| !names.contains(&crd["metadata"]["name"])));
    Ok(found)
}

fn parse(text: &str) -> Result<Value> {
    let crd: Value = serde_saphyr::from_str(text).context("not YAML")?;
    if crd["kind"] != CRD.kind {
        bail!("not a {}", CRD.kind);
    }
    Ok(crd)
}

/// Installs the family's CRDs, as [`crds`] finds them, and waits until every one of them is served.
pub async fn install_crds(client: &Client, family: Family, from: Option<&Path>) -> Result<()> {
    install(client, &crds(family, from)?).await
}

/// Installs these CRDs and waits until every one of them is served. Ours and the real ones can replace each other.
pub async fn install(client: &Client, crds: &[Value]) -> Result<()> {
    try_join_all(crds.iter().map(|crd| install_one(client, crd))).await.map(drop)
}

async fn install_one(client: &Client, crd: &Value) -> Result<()> {
    let api = CRD.everywhere(client);
    let name = crd["metadata"]["name"].as_str().context("a CRD without a name")?;
    let params = PatchParams::apply(MANAGER).force();
    api.patch(name, &params, &Patch::Apply(crd)).await.with_context(|| format!("cannot install {name}"))?;
    wait_until(&format!("{name} is established"), SERVED_WITHIN, || async {
        Ok(api.get_opt(name).await?.is_some_and(|crd| holds(&crd, "Established")))
    })
    .await?;
    // Established comes a moment before the API answers, and a moment after for another API server on the same etcd.
    for resource in resources(crd) {
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        let what = format!("{name} is served as {}", resource.version);
        wait_until(&what, SERVED_WITHIN, || async {
            Ok(objects.list_metadata(&ListParams::default().limit(1)).await.is_ok())
        })
        .await?;
    }
    Ok(())
}

/// What the CRD serves.
fn resources(crd: &Value) -> Vec<ApiResource> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let versions = crd["spec"]["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let served = versions.iter().filter(|version| version["served"] == true);
    served
        .map(|version| {
            let (group, version) = (text(&crd["spec"]["group"]), text(&version["name"]));
            ApiResource {
                api_version: format!("{group}/{version}"),
                group,
                version,
                kind: text(&crd["spec"]["names"]["kind"]),
                plural: text(&crd["spec"]["names"]["plural"]),
            }
        })
        .collect()
}

/// Removes the family's CRDs, and with them every object of their kinds, and waits until they are gone. Objects with
/// finalizers hold this up until their controller lets go.
pub async fn remove_crds(client: &Client, family: Family) -> Result<()> {
    let api = CRD.everywhere(client);
    for crd in crds(family, None)? {
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        match api.delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => continue,
            other => drop(other?),
        }
        wait_until(&format!("{name} is gone"), SERVED_WITHIN, || async {
            Ok(api.get_opt(name).await?.is_none())
        })
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    #[test]
    fn our_crds_are_the_kinds_that_we_know() {
        for family in [Family::EventMesh, Family::Fixture] {
            for crd in crds(family, None).unwrap() {
                let served = resources(&crd);
                let known = kinds::ALL.iter().find(|kind| served.contains(&kind.resource()));
                let known = known.unwrap_or_else(|| panic!("{} is unknown", crd["metadata"]["name"]));
                assert_eq!(crd["spec"]["scope"] == "Namespaced", known.namespaced, "{}", known.kind);
                assert_eq!(crd["metadata"]["name"], format!("{}.{}", known.plural, known.group));
            }
        }
    }

    #[test]
    fn the_adapter_has_three_versions_and_one_is_stored() {
        let crds = crds(Family::EventMesh, None).unwrap();
        let adapter = crds.iter().find(|crd| crd["spec"]["names"]["kind"] == "Service").unwrap();
        let versions: Vec<_> = resources(adapter).into_iter().map(|r| r.version).collect();
        assert_eq!(versions, ["v1alpha1", "v1beta1", "v1"]);
        let stored = adapter["spec"]["versions"].as_array().unwrap().iter().filter(|v| v["storage"] == true);
        assert_eq!(stored.count(), 1);
    }

    #[test]
    fn only_what_the_application_connector_owns_lacks_the_status_subresource() {
        for crd in crds(Family::EventMesh, None).unwrap() {
            let kind = crd["spec"]["names"]["kind"].as_str().unwrap();
            let without = crd["spec"]["versions"][0].get("subresources").is_none();
            assert_eq!(
                without,
                ["Application", "ApplicationMapping", "EventActivation"].contains(&kind),
                "{kind}"
            );
        }
    }

    #[test]
    fn a_folder_without_crds_is_refused() {
        let error = crds(Family::Fixture, Some(Path::new(env!("CARGO_MANIFEST_DIR")))).unwrap_err();
        assert!(error.to_string().starts_with("no CRD files in"), "{error}");
        assert!(crds(Family::Fixture, Some(Path::new("/nowhere"))).is_err());
    }

    #[test]
    fn real_crds_that_are_named_and_not_there_are_an_error() {
        let error = crds(Family::EventMesh, Some(Path::new("nowhere/event-mesh"))).unwrap_err();
        assert!(error.to_string().starts_with("cannot read nowhere/event-mesh (UPSTREAM_CRDS"), "{error}");
    }

    #[test]
    fn what_a_folder_lacks_is_ours() {
        let folder = std::env::temp_dir().join(format!("standins-crds-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let theirs = Family::EventMesh.ours()[0].replace("shortNames: [am]", "shortNames: [mapping]");
        std::fs::write(folder.join("one.yaml"), theirs).unwrap();
        let found = crds(Family::EventMesh, Some(&folder)).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(found.len(), Family::EventMesh.ours().len());
        assert_eq!(found[0]["spec"]["names"]["shortNames"][0], "mapping");
    }

    #[test]
    fn our_own_folder_can_be_named_too() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
        for family in [Family::EventMesh, Family::Fixture] {
            let named = crds(family, Some(&folder)).unwrap();
            assert_eq!(named, crds(family, None).unwrap());
        }
    }
}
