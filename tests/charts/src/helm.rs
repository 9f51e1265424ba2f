//! Runs Helm 3 and Helm 4.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::manifest::parse;

/// What `helm template` is told about the cluster; without it each Helm assumes the version that it was built with.
const KUBE_VERSION: &str = "1.35.0";

/// The folder of a chart that the project ships.
#[must_use]
pub fn shipped(chart: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts").join(chart)
}

/// One Helm executable.
pub struct Helm {
    /// 3 or 4.
    pub major: u8,
    path: PathBuf,
}

impl Helm {
    /// Helm 3 from `HELM3`, else `helm3` on the PATH; Helm 4 likewise.
    #[must_use]
    pub fn both() -> [Self; 2] {
        [3, 4].map(|major| Self {
            major,
            path: env::var_os(format!("HELM{major}"))
                .map_or_else(|| PathBuf::from(format!("helm{major}")), PathBuf::from),
        })
    }

    /// Packages the charts as `make charts` does.
    pub fn package_all(&self, folder: &Path) -> Result<String> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tools/package-charts");
        self.output(Command::new(script).arg(folder).env("HELM", &self.path))
    }

    /// Runs Helm and gives back what it prints; an error holds what it complains about.
    pub fn run(&self, arguments: &[&str]) -> Result<String> {
        self.output(Command::new(&self.path).args(arguments))
    }

    fn output(&self, command: &mut Command) -> Result<String> {
        // Nothing here may reach a cluster that happens to be configured.
        let output = command.env("KUBECONFIG", "/dev/null").output().with_context(|| {
            format!(
                "cannot run {}: set HELM{} to the path of Helm {}",
                self.path.display(),
                self.major,
                self.major
            )
        })?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// The manifests of a chart, hooks included.
    pub fn template(&self, chart: &Path, release: &str, more: &[&str]) -> Result<Vec<Value>> {
        let chart = chart.to_string_lossy();
        let fixed = ["template", release, &chart, "--namespace", "demo", "--kube-version", KUBE_VERSION];
        parse(&self.run(&[&fixed, more].concat())?)
    }
}
