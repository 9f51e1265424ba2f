//! What a chart grants, against what a step says that it needs.
//!
//! Both sides are taken apart into single rights, so that the order and the grouping of rules do not matter.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    process::Command,
};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::{check::binds, manifest::Object, pod};

/// One verb on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// None: in every namespace, or the resource has none.
    pub namespace: Option<String>,
    /// The API group; empty for the core one.
    pub group: String,
    /// The resource, with its subresource if any.
    pub resource: String,
    /// None: every object.
    pub name: Option<String>,
    /// The verb.
    pub verb: String,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in namespace {namespace}"),
            None => write!(f, " in the whole cluster"),
        }
    }
}

/// A rendered Job, seen as a call of `belay`.
pub struct Run {
    /// kind/namespace/name of the Job.
    pub job: String,
    /// The Job's namespace.
    pub namespace: String,
    /// The ServiceAccount that it runs as.
    pub account: String,
    /// The arguments after the executable: the step's name first.
    pub arguments: Vec<String>,
    /// The plain variables of its environment.
    pub environment: BTreeMap<String, String>,
}

/// Every hook Job of a step.
#[must_use]
pub fn runs(manifests: &[Value]) -> Vec<Run> {
    let jobs = manifests
        .iter()
        .map(Object)
        .filter(|object| object.kind() == "Job" && object.label("app.kubernetes.io/component") == "step");
    jobs.map(|job| {
        let template = &job.0["spec"]["template"];
        let command = template.pointer("/spec/containers/0/command").and_then(Value::as_array);
        let words = command.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        Run {
            job: job.to_string(),
            namespace: job.namespace().to_owned(),
            account: job.text("/spec/template/spec/serviceAccountName").to_owned(),
            arguments: words.skip(1).collect(),
            environment: pod::environment(template)
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
        }
    })
    .collect()
}

/// Asks a step which rights it needs, in the very words and environment in which the Job would run it.
pub fn ask(belay: &Path, run: &Run) -> Result<Value> {
    let mut command = Command::new(belay);
    command.args(&run.arguments).arg("--print-rbac").env_clear().envs(&run.environment);
    let output = command.output().with_context(|| format!("cannot run {}", belay.display()))?;
    if !output.status.success() {
        bail!("{}: --print-rbac failed: {}", run.job, String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout)
        .with_context(|| format!("{}: --print-rbac did not print JSON", run.job))
}

/// The rights that manifests grant to an account.
#[must_use]
pub fn granted(manifests: &[Value], namespace: &str, account: &str) -> BTreeSet<Right> {
    let objects: Vec<Object> = manifests.iter().map(Object).collect();
    let mut rights = BTreeSet::new();
    for binding in objects.iter().filter(|object| binds(**object, namespace, account)) {
        let scope = (binding.kind() == "RoleBinding").then(|| binding.namespace());
        let role = objects.iter().find(|role| {
            role.kind() == binding.text("/roleRef/kind")
                && role.name() == binding.text("/roleRef/name")
                && (role.kind() == "ClusterRole" || role.namespace() == binding.namespace())
        });
        if let Some(role) = role {
            take_apart(&role.0["rules"], scope, &mut rights);
        }
    }
    rights
}

/// The rights in what `--print-rbac` prints.
#[must_use]
pub fn needed(printed: &Value) -> BTreeSet<Right> {
    let mut rights = BTreeSet::new();
    take_apart(&printed["clusterRules"], None, &mut rights);
    for (namespace, rules) in printed["namespaced"].as_object().into_iter().flatten() {
        take_apart(rules, Some(namespace), &mut rights);
    }
    rights
}

/// What differs, as sentences; empty when the chart grants exactly what the step needs.
#[must_use]
pub fn compare(job: &str, granted: &BTreeSet<Right>, needed: &BTreeSet<Right>) -> Vec<String> {
    let missing = needed
        .difference(granted)
        .map(|right| format!("{job} needs to {right}, but the chart does not grant it"));
    let surplus = granted.difference(needed).map(|right| format!("{job} may {right}, but does not need to"));
    missing.chain(surplus).collect()
}

fn take_apart(rules: &Value, namespace: Option<&str>, rights: &mut BTreeSet<Right>) {
    for rule in rules.as_array().into_iter().flatten() {
        let strings = |key: &str| -> Vec<String> {
            rule[key].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut names: Vec<Option<String>> = strings("resourceNames").into_iter().map(Some).collect();
        if names.is_empty() {
            names.push(None);
        }
        for group in strings("apiGroups") {
            for resource in strings("resources") {
                for name in &names {
                    for verb in strings("verbs") {
                        rights.insert(Right {
                            namespace: namespace.map(str::to_owned),
                            group: group.clone(),
                            resource: resource.clone(),
                            name: name.clone(),
                            verb,
                        });
                    }
                }
            }
        }
    }
}
