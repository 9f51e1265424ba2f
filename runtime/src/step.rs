//! What a step is: a few facts about it, what it needs, how it reads, and how it decides.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use serde_json::Value;

use crate::{
    act::{Outcome, hash_of},
    args::{Common, is_namespace_name},
    cluster::{Cluster, Failure, lock},
    journal::Entries,
    object::{Kind, ObjectRef, kinds},
    plan::{Item, Plan},
    watch::Everywhere,
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
    /// Whether it changes nothing: then it has no journal, and gets no right to write one.
    pub read_only: bool,
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

/// A kind, and whether an object of it is to be migrated.
pub type Evidence = (Kind, fn(&Value) -> bool);

/// The APIs and rights that a step needs.
#[derive(Clone, Debug, Default)]
pub struct Needs {
    /// APIs it moves away from. None served: nothing to migrate. A part missing: refused.
    pub sources: Vec<Kind>,
    /// Workloads of the old installation, which it may get. While one of them is there, source APIs that are all missing
    /// are not "nothing to migrate".
    pub workloads: Vec<ObjectRef>,
    /// APIs it moves to. They must be served; a dependency that is being installed is waited for.
    pub targets: Vec<Kind>,
    /// A source kind, which the step may list everywhere, and how one sees that an object of it is to be migrated. Where
    /// target APIs are missing and no object is, there is nothing to migrate: the target is not waited for.
    pub evidence: Option<Evidence>,
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
    opened: Option<String>,
    deleted: Option<HashSet<u64>>,
    excluded: Vec<String>,
    left_out: Mutex<BTreeSet<ObjectRef>>,
}

impl Reader {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        entries: Arc<Entries>,
        missing: Missing,
        home: String,
        step: &'static str,
    ) -> Self {
        Self {
            cluster,
            entries,
            missing,
            done: HashMap::new(),
            home,
            step,
            opened: None,
            deleted: None,
            excluded: Vec::new(),
            left_out: Mutex::default(),
        }
    }

    pub(crate) fn with_excluded(mut self, excluded: &[String]) -> Self {
        self.excluded = excluded.to_vec();
        self
    }

    pub(crate) fn with_done_record(mut self, done: HashMap<String, String>) -> Self {
        self.done = done;
        self
    }

    pub(crate) fn with_journal_opened(mut self, opened: Option<String>) -> Self {
        self.opened = opened;
        self
    }

    /// What this process has deleted itself, by hashes, where it goes on with an earlier attempt's journal.
    pub(crate) fn with_deleted(mut self, deleted: Option<HashSet<u64>>) -> Self {
        self.deleted = deleted;
        self
    }

    /// When the journal was opened that an earlier attempt left and this one goes on with.
    #[must_use]
    pub fn journal_opened(&self) -> Option<&str> {
        self.opened.as_deref()
    }

    /// Whether a person left this object out with `--exclude`. The plan is freed of chains and findings about it anyway; a
    /// step asks where more than the object's own chain hangs on it.
    #[must_use]
    pub fn is_excluded(&self, object: &ObjectRef) -> bool {
        let is = self.excluded.iter().any(|name| object.is_named(name));
        if is {
            lock(&self.left_out).insert(object.clone());
        }
        is
    }

    /// What the step asked about and a person had left out: it may not be in the plan, but is to be in the report.
    pub(crate) fn left_out(&self) -> Vec<ObjectRef> {
        lock(&self.left_out).iter().cloned().collect()
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
        Ok(self.item(object.clone(), live.as_ref()))
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
                    items.push(self.item(name, Some(&object)));
                }
                None => items.clear(),
            })
            .await?;
        // What an earlier attempt took away has no labels to select by any more: it is always part of the list.
        let there: HashSet<ObjectRef> = items.iter().map(|item| item.object.clone()).collect();
        for object in self.entries.taken_away(kind, namespace).filter(|object| !there.contains(object)) {
            items.push(self.item(object.clone(), None));
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

    fn item(&self, object: ObjectRef, live: Option<&Value>) -> Item {
        // What an earlier attempt has restored, and could not say so, is as if it had never been deleted.
        let resumes = self.deleted.as_ref().is_some_and(|deleted| !deleted.contains(&hash_of(&object)));
        let before = match live {
            Some(live) if resumes && self.entries.is_restored(&object, live) => {
                self.entries.origin_of_restored(&object, live)
            }
            _ => self.entries.origin(&object, live),
        };
        Item::new(object, live, before.as_ref())
    }
}

/// What the flags name and cannot be the name of anything, if there is something: the paths of calls are made from it.
pub(crate) fn misnamed(rules: &[Rule]) -> Option<String> {
    let is_word = |text: &str| {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        !text.is_empty() && text.bytes().all(fits) && !text.chars().all(|letter| letter == '.')
    };
    rules.iter().find_map(|rule| {
        let namespace = rule.namespace.iter().filter(|name| !is_namespace_name(name));
        let namespace = namespace.map(|name| {
            format!("'{name}' is not the name of a namespace: write lower-case letters, digits and '-'")
        });
        let name = rule.names.iter().filter(|name| !is_word(name));
        let name = name
            .map(|name| format!("'{name}' is not the name of an object: it has letters that no name has"));
        let resource =
            rule.resource.split('/').chain((!rule.group.is_empty()).then_some(rule.group.as_str()));
        let resource = resource.filter(|part| !is_word(part)).map(|_| {
            format!("'{}.{}' does not name a resource: write RESOURCE.GROUP", rule.resource, rule.group)
        });
        namespace.chain(name).chain(resource).next()
    })
}

/// The kinds that the rules let a step watch in all namespaces at once.
#[must_use]
pub fn watched_everywhere(rules: &[Rule]) -> Everywhere {
    let everywhere = |rule: &&Rule| {
        rule.namespace.is_none()
            && rule.names.is_empty()
            && rule.verbs.contains(&"list")
            && rule.verbs.contains(&"watch")
    };
    rules.iter().filter(everywhere).map(|rule| (rule.group.clone(), rule.resource.clone())).collect()
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
    let mut rules = vec![
        // A second home for the same family is found by its Lease, wherever it is.
        Rule::on(&kinds::LEASE, None, &["list"]),
        Rule::on(&kinds::LEASE, Some(&home), &["create"]),
        Rule::on(&kinds::LEASE, Some(&home), &["get", "update"]).named([crate::lock::name(meta.family)]),
        Rule::on(&kinds::SECRET, Some(&home), &["get"]).named(heads),
        Rule::on(&kinds::CONFIG_MAP, Some(&home), &["create"]),
        Rule::on(&kinds::CONFIG_MAP, Some(&home), &["get", "update"]).named([report]),
        Rule::on(&kinds::EVENT, Some(&job_namespace), &["create"]),
        // Whether the lock's holder still lives, and since when the Job runs.
        Rule::on(&kinds::POD, Some(&job_namespace), &["get"]),
        Rule::on(&kinds::JOB, Some(&job_namespace), &["get"]),
    ];
    if !meta.read_only {
        rules.extend([
            Rule::on(&kinds::SECRET, Some(&home), &["create"]),
            Rule::on(&kinds::SECRET, Some(&home), &["get", "update"]).named(own_secrets),
        ]);
    }
    rules
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
