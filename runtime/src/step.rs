//! What a step is: a few facts about it, what it needs, how it reads, and how it decides.

use std::{collections::HashMap, future::Future, sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    act::Outcome,
    args::Common,
    cluster::{Cluster, Failure},
    journal::Entries,
    object::{Kind, ObjectRef, kinds},
    plan::{Item, Plan},
};

/// Facts about a step that never change.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Its name: of the binary, the Job, the report.
    pub name: &'static str,
    /// The family it belongs to; one lock for all of them.
    pub family: &'static str,
    /// The names of the family's steps in the order in which they run. Undo goes the other way.
    pub family_steps: &'static [&'static str],
    /// What it is for, in one line.
    pub purpose: &'static str,
    /// The family's home where no other is given.
    pub default_home: &'static str,
    /// Time for going forward.
    pub deadline: Duration,
    /// Time kept for undo.
    pub undo_reserve: Duration,
    /// Whether the step cannot see in the cluster that it already ran, and so writes it down.
    pub keeps_done_record: bool,
}

/// One migration action.
pub trait Step: Send + Sync + 'static {
    /// Facts about it.
    const META: Meta;
    /// Its own flags.
    type Args: clap::Args + Send + Sync;
    /// All that it read before it decided.
    type Snapshot: Send + Sync;

    /// The APIs and rights it needs. Preflight checks this table and `--print-rbac` prints it.
    fn needs(args: &Self::Args, common: &Common) -> Needs;

    /// Reads.
    fn snapshot(
        args: &Self::Args,
        reader: &Reader,
    ) -> impl Future<Output = Result<Self::Snapshot, Failure>> + Send;

    /// Decides. Pure: the same snapshot gives the same plan.
    fn plan(args: &Self::Args, snapshot: &Self::Snapshot) -> Plan;
}

/// The APIs and rights that a step needs.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// APIs it moves away from. None served: nothing to migrate. A part missing: refused.
    pub sources: Vec<Kind>,
    /// APIs it moves to. They must be served; a dependency that is being installed is waited for.
    pub targets: Vec<Kind>,
    /// APIs without which the step does less.
    pub optional: Vec<Kind>,
    /// Rights.
    pub rules: Vec<Rule>,
}

/// A right: some verbs on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Where; none for the whole cluster.
    pub namespace: Option<String>,
    /// API group.
    pub group: String,
    /// Resource, with its subresource if any: `deployments/scale`.
    pub resource: String,
    /// Only objects of these names, where any are given.
    pub names: Vec<String>,
    /// Verbs.
    pub verbs: Vec<&'static str>,
}

impl Rule {
    /// Verbs on a kind, in one namespace or everywhere.
    #[must_use]
    pub fn on(kind: &Kind, namespace: Option<&str>, verbs: &[&'static str]) -> Self {
        Self {
            namespace: namespace.map(str::to_owned),
            group: kind.group.to_string(),
            resource: kind.plural.to_string(),
            names: Vec::new(),
            verbs: verbs.to_vec(),
        }
    }

    /// The same verbs on a subresource instead.
    #[must_use]
    pub fn subresource(mut self, name: &str) -> Self {
        self.resource = format!("{}/{name}", self.resource);
        self
    }

    /// Only for objects of these names.
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names = names.into_iter().collect();
        self
    }
}

/// What preflight found missing, and the step does without.
#[derive(Clone, Debug, Default)]
pub(crate) struct Missing {
    /// Optional APIs that are not served.
    pub unserved: Vec<Kind>,
    /// Namespaces that do not exist. The step has no rights there: it must not even ask.
    pub absent: Vec<String>,
}

impl Missing {
    fn has(&self, namespace: Option<&str>) -> bool {
        namespace.is_some_and(|namespace| self.absent.iter().any(|absent| absent == namespace))
    }
}

/// Reads the cluster for a snapshot, with an open journal laid over it.
pub struct Reader {
    cluster: Arc<Cluster>,
    entries: Arc<Entries>,
    missing: Missing,
    done: HashMap<String, String>,
    home: String,
    step: &'static str,
}

impl Reader {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        entries: Arc<Entries>,
        missing: Missing,
        done: HashMap<String, String>,
        home: String,
        step: &'static str,
    ) -> Self {
        Self { cluster, entries, missing, done, home, step }
    }

    /// Whether an optional API is there.
    #[must_use]
    pub fn is_served(&self, kind: &Kind) -> bool {
        !self.missing.unserved.contains(kind)
    }

    /// When this step was already done for a subject, by its done record. Nothing with `--again`.
    #[must_use]
    pub fn done_before(&self, subject: &ObjectRef) -> Option<&str> {
        self.done.get(&subject.to_string()).map(String::as_str)
    }

    /// One object, whole.
    pub async fn get(&self, object: &ObjectRef) -> Result<Item, Failure> {
        let live = if self.missing.has(object.namespace.as_deref()) {
            None
        } else {
            self.cluster.get(object).await?
        };
        Ok(self.item(object.clone(), live.map(Arc::new)))
    }

    /// All objects of a kind, whole, with those that an earlier attempt of this step took away.
    pub async fn list(&self, kind: &Kind, namespace: Option<&str>) -> Result<Vec<Item>, Failure> {
        self.list_selected(kind, namespace, None).await
    }

    /// The objects of a kind that a label selector chooses.
    pub async fn list_selected(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<Item>, Failure> {
        let mut items: Vec<Item> = Vec::new();
        if self.missing.has(namespace) {
            return Ok(items);
        }
        self.cluster
            .list(kind, namespace, selector, |object| match object {
                Some(object) => {
                    let name = kind.object_of(&object);
                    items.push(self.item(name, Some(Arc::new(object))));
                }
                None => items.clear(),
            })
            .await?;
        // What an earlier attempt took away has no labels to select by any more: it is always part of the list.
        for object in self.entries.taken_away(kind, namespace) {
            if !items.iter().any(|item| item.object == *object) {
                items.push(self.item(object.clone(), None));
            }
        }
        items.sort_by(|a, b| a.object.cmp(&b.object));
        Ok(items)
    }

    /// Lists a kind and keeps of each object only what `keep` takes out of it: for kinds with many objects that
    /// are only looked at.
    pub async fn scan<T>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        mut keep: impl FnMut(&Value) -> Option<T>,
    ) -> Result<Vec<T>, Failure> {
        let mut kept = Vec::new();
        if self.missing.has(namespace) {
            return Ok(kept);
        }
        self.cluster
            .list(kind, namespace, None, |object| match object {
                Some(object) => kept.extend(keep(&object)),
                None => kept.clear(),
            })
            .await?;
        Ok(kept)
    }

    /// Finds a resource by the name that people write, such as `subscriptions.eventing.kyma-project.io`, in the
    /// version that the server prefers. None if it is not served.
    pub async fn find_resource(&self, plural: &str, group: &str) -> Result<Option<Kind>, Failure> {
        crate::preflight::find_resource(&self.cluster, plural, group).await
    }

    /// What the last run that touched anything did, by object: what has changed since came back by itself.
    pub async fn touched_before(&self) -> Result<HashMap<String, Outcome>, Failure> {
        let stored = crate::report::read(&self.cluster, &self.home, self.step).await?;
        let outcomes = stored.as_ref().map(crate::report::outcomes).unwrap_or_default();
        Ok(outcomes.into_iter().map(|outcome| (outcome.object.clone(), outcome)).collect())
    }

    fn item(&self, object: ObjectRef, live: Option<Arc<Value>>) -> Item {
        let before = self.entries.origin(&object, live.as_deref()).map(Arc::new);
        Item { object, live, before }
    }
}

/// The rights that the runtime itself needs for a step: lock, journal, report, Event.
#[must_use]
pub fn runtime_rules(meta: &Meta, common: &Common) -> Vec<Rule> {
    let home = common.home(meta);
    let job_namespace = common.namespace();
    let heads = meta.family_steps.iter().map(|step| crate::journal::head_name(step));
    let own_secrets =
        std::iter::once(crate::journal::head_name(meta.name)).chain(crate::journal::chunk_names(meta.name));
    let report = crate::report::name(meta.name);
    vec![
        // A second home for the same family is found by its Lease, wherever it is.
        Rule::on(&kinds::LEASE, None, &["list"]),
        Rule::on(&kinds::LEASE, Some(&home), &["create"]),
        Rule::on(&kinds::LEASE, Some(&home), &["get", "update"]).named([crate::lock::name(meta.family)]),
        Rule::on(&kinds::SECRET, Some(&home), &["create"]),
        Rule::on(&kinds::SECRET, Some(&home), &["get"]).named(heads),
        Rule::on(&kinds::SECRET, Some(&home), &["get", "update", "delete"]).named(own_secrets),
        Rule::on(&kinds::CONFIG_MAP, Some(&home), &["create"]),
        Rule::on(&kinds::CONFIG_MAP, Some(&home), &["get", "update"]).named([report]),
        Rule::on(&kinds::EVENT, Some(&job_namespace), &["create"]),
        // Whether the lock's holder still lives, and since when the Job runs.
        Rule::on(&kinds::POD, Some(&job_namespace), &["get"]),
        Rule::on(&kinds::JOB, Some(&job_namespace), &["get"]),
    ]
}

/// The rules of a step in the shape of RBAC objects, in a stable order.
#[must_use]
pub fn rbac(rules: &[Rule]) -> Value {
    let mut sorted = rules.to_vec();
    for rule in &mut sorted {
        rule.verbs.sort_unstable();
    }
    sorted.sort();
    sorted.dedup();
    let policy = |rule: &Rule| {
        let mut policy = serde_json::json!({
            "apiGroups": [rule.group], "resources": [rule.resource], "verbs": rule.verbs,
        });
        if !rule.names.is_empty() {
            policy["resourceNames"] = rule.names.clone().into();
        }
        policy
    };
    let cluster: Vec<Value> = sorted.iter().filter(|rule| rule.namespace.is_none()).map(policy).collect();
    let mut namespaced = serde_json::Map::new();
    for rule in &sorted {
        if let Some(namespace) = &rule.namespace {
            let list = namespaced.entry(namespace.clone()).or_insert_with(|| Value::Array(Vec::new()));
            if let Some(list) = list.as_array_mut() {
                list.push(policy(rule));
            }
        }
    }
    serde_json::json!({"clusterRules": cluster, "namespaced": namespaced})
}
