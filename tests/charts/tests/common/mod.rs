//! Copies of charts that a test may write into.

use std::{
    fs,
    path::{Path, PathBuf},
};

use chart_tests::helm::{Helm, shipped};
use tempfile::TempDir;

/// A chart of tests/charts/data with its dependencies fetched, beside copies of those: `helm dependency` writes into the
/// chart's folder.
pub struct Copy {
    folder: TempDir,
    name: &'static str,
}

impl Copy {
    pub fn of(name: &'static str, helm: &Helm) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for chart in ["belay", "event-mesh"] {
            copy(&shipped(chart), &folder.path().join(chart));
        }
        for chart in ["own-step", "parent"] {
            copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("data").join(chart), &folder.path().join(chart));
            helm.run(&["dependency", "update", &folder.path().join(chart).to_string_lossy()]).unwrap();
        }
        Self { folder, name }
    }

    pub fn chart(&self) -> PathBuf {
        self.folder.path().join(self.name)
    }
}

/// Follows links, as Helm does.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let from = entry.unwrap().path();
        let to = to.join(from.file_name().unwrap());
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}
