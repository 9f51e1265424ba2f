//! Before anything else: is there something to migrate, is every API there, is every verb allowed?

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cluster::{Answer, Cluster, Failure},
    object::{Kind, ObjectRef, keep, kinds, text},
    plan::Finding,
    step::{Needs, Rule},
};

/// How often a missing API is looked for again while a dependency installs it.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Helm made our rights a moment ago, and the authorizer may not have seen them yet.
const RIGHTS_MAY_COME: Duration = Duration::from_secs(5);

/// The cure for an old installation of which a part is gone.
const HALF: &str =
    "Half of an old installation is not \"nothing to migrate\": bring the CRDs back, or remove the rest";

/// What preflight found.
#[derive(Debug)]
pub enum Preflight {
    /// None of the source APIs exists, or no object that would need the target APIs.
    NothingToMigrate {
        /// Which of both, for the verdict.
        why: String,
        /// The APIs that are not served.
        unserved: Vec<Kind>,
    },
    /// The step can begin. Optional APIs may be missing.
    Ready {
        /// Optional APIs that are not served.
        unserved: Vec<Kind>,
        /// Namespaces that do not exist, and so hold nothing to migrate.
        absent: Vec<String>,
        /// What that means.
        findings: Vec<Finding>,
    },
    /// It cannot; all reasons at once.
    Refused(Vec<Finding>),
}

/// Checks APIs and rights. Missing target APIs are waited for until `until`.
pub async fn check(
    cluster: &Arc<Cluster>,
    needs: &Needs,
    rules: &[Rule],
    until: Instant,
) -> Result<Preflight, Failure> {
    let sources = not_served(cluster, &needs.sources).await?;
    let mut refusals: Vec<Finding> = Vec::new();
    if !needs.sources.is_empty()
        && sources.len() == needs.sources.len()
        && sources.iter().all(Missing::is_absent)
    {
        let none = format!("this cluster has none of {}", resources(&needs.sources));
        let left = old_workloads(cluster, &needs.workloads, rules).await?;
        if left.is_empty() {
            return Ok(Preflight::NothingToMigrate {
                why: format!("nothing to migrate: {none}"),
                unserved: needs.sources.clone(),
            });
        }
        refusals.extend(left.into_iter().map(|(workload, what)| {
            Finding::refuse(Some(workload), format!("{what}, although {none}. {HALF}"))
        }));
    } else {
        refusals.extend(sources.iter().map(|missing| Finding::refuse(None, missing.as_source())));
    }
    let (denied, absent) = forbidden(cluster, rules).await?;
    refusals.extend(denied);

    let mut missing = not_served(cluster, &needs.targets).await?;
    if refusals.is_empty() && !missing.is_empty() {
        if let Some((kind, is_old)) = &needs.evidence
            && !has_any(cluster, kind, *is_old).await?
        {
            return Ok(Preflight::NothingToMigrate {
                why: format!(
                    "nothing to migrate: none of the {} in this cluster needs it, and {} is not served",
                    kind.resource(),
                    shown(&missing)
                ),
                unserved: missing.into_iter().map(|missing| missing.kind).collect(),
            });
        }
        log::info!("waiting for {}: a dependency may be installing it", shown(&missing));
        let clock = cluster.clock();
        let look_again = clock.patience(LOOK_AGAIN);
        while !missing.is_empty() && clock.now() + look_again < until {
            tokio::select! {
                biased;
                halt = cluster.wait_halted() => return Err(Failure::Halted(halt)),
                () = clock.sleep(look_again) => {}
            }
            missing = not_served(cluster, &needs.targets).await?;
        }
    }
    refusals.extend(missing.iter().map(|missing| {
        Finding::refuse(
            None,
            format!("{}. Install what serves it, then run the step again", missing.sentence()),
        )
    }));
    if !refusals.is_empty() {
        return Ok(Preflight::Refused(refusals));
    }
    let optional = not_served(cluster, &needs.optional).await?;
    let without =
        |missing: &Missing| Finding::note(None, format!("{}: the step does without it", missing.sentence()));
    let empty = |namespace: &String| Finding::note(None, format!("namespace {namespace} does not exist"));
    let findings = optional.iter().map(without).chain(absent.iter().map(empty)).collect();
    let unserved = optional.into_iter().map(|missing| missing.kind).collect();
    Ok(Preflight::Ready { unserved, absent, findings })
}

struct Missing {
    kind: Kind,
    /// Versions that the step does not know.
    served_versions: Vec<String>,
}

impl Missing {
    /// Not there in any version.
    fn is_absent(&self) -> bool {
        self.served_versions.is_empty()
    }

    fn sentence(&self) -> String {
        if self.is_absent() {
            format!("the API {} is not served by this cluster", self.kind.resource())
        } else {
            format!(
                "the API {} is not served in version {}, which this step knows (served: {})",
                self.kind.resource(),
                self.kind.version,
                self.served_versions.join(", ")
            )
        }
    }

    /// Why a source that is missing stops the step. Objects may exist in a version that the step does not know, so
    /// that is not "nothing to migrate" either.
    fn as_source(&self) -> String {
        if self.is_absent() {
            format!("{}, although other APIs that this step migrates from are there. {HALF}", self.sentence())
        } else {
            format!(
                "{}. Its objects can't be read, so nobody can say that there is nothing to migrate: serve that version \
                 again, or use a version of this step that knows a served one",
                self.sentence()
            )
        }
    }
}

fn shown(missing: &[Missing]) -> String {
    missing.iter().map(|missing| missing.kind.resource()).collect::<Vec<_>>().join(", ")
}

fn resources(kinds: &[Kind]) -> String {
    kinds.iter().map(Kind::resource).collect::<Vec<_>>().join(", ")
}

/// Workloads of the old installation that are there, or of which nobody can tell; each with what is known.
async fn old_workloads(
    cluster: &Cluster,
    workloads: &[ObjectRef],
    rules: &[Rule],
) -> Result<Vec<(ObjectRef, String)>, Failure> {
    let mut left = Vec::new();
    let gone = if workloads.is_empty() { Vec::new() } else { absent(cluster, rules).await? };
    for object in
        workloads.iter().filter(|object| !object.namespace.as_ref().is_some_and(|ns| gone.contains(ns)))
    {
        let namespace = object.namespace.as_deref();
        let kind = &object.kind;
        // Asked first: without the right the answer would be awaited for as long as a 403 may pass.
        if !allowed(cluster, namespace, kind.group, kind.plural, "get", Some(&object.name)).await? {
            left.push((
                object.clone(),
                "nobody can tell whether it is there, for want of the right to get it".to_owned(),
            ));
        } else if cluster.get(object).await?.is_some() {
            left.push((object.clone(), "is still there".to_owned()));
        }
    }
    Ok(left)
}

/// Whether any object of a kind, wherever it is, passes a test.
async fn has_any(cluster: &Cluster, kind: &Kind, test: fn(&Value) -> bool) -> Result<bool, Failure> {
    let mut any = false;
    cluster.list(kind, None, None, |object| any |= object.is_some_and(|object| test(&object))).await?;
    Ok(any)
}

async fn not_served(cluster: &Cluster, kinds: &[Kind]) -> Result<Vec<Missing>, Failure> {
    let mut discovery = Discovery::new(cluster);
    let mut missing = Vec::new();
    for kind in kinds {
        if discovery.finds(kind.group, kind.version, |name, _| name == kind.plural).await?.is_some() {
            continue;
        }
        let mut served_versions = Vec::new();
        for version in discovery.versions(kind.group).await? {
            if discovery.finds(kind.group, &version, |name, _| name == kind.plural).await?.is_some() {
                served_versions.push(version);
            }
        }
        missing.push(Missing { kind: kind.clone(), served_versions });
    }
    Ok(missing)
}

/// What the API server says of its APIs, each page asked for once.
struct Discovery<'a> {
    cluster: &'a Cluster,
    pages: HashMap<String, Option<Value>>,
}

impl<'a> Discovery<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Self { cluster, pages: HashMap::new() }
    }

    /// The list that a page holds; none if there is no such page. A page that cannot be read is no answer: taken for
    /// "not served" it would let a step pass by what it should migrate.
    async fn list(&mut self, path: String, field: &str) -> Result<Option<Vec<Value>>, Failure> {
        if !self.pages.contains_key(&path) {
            let page = match self.cluster.get_path(&path).await {
                Ok(page) => Some(page),
                Err(failure) if failure.is_not_served() => None,
                Err(failure) => return Err(failure),
            };
            self.pages.insert(path.clone(), page);
        }
        let Some(page) = self.pages.get(&path).and_then(Option::as_ref) else { return Ok(None) };
        match page.get(field).and_then(Value::as_array) {
            Some(list) => Ok(Some(list.clone())),
            None => Err(Failure::Refused {
                call: format!("GET {path}"),
                answer: Answer {
                    code: 200,
                    message: format!("but the answer lists no {field}: what is served here cannot be told"),
                    ..Answer::default()
                },
            }),
        }
    }

    /// The versions of a group, the preferred one first.
    async fn versions(&mut self, group: &str) -> Result<Vec<String>, Failure> {
        if group.is_empty() {
            return Ok(vec!["v1".to_owned()]);
        }
        let path = format!("/apis/{group}");
        let listed = self.list(path.clone(), "versions").await?.unwrap_or_default();
        let mut versions: Vec<String> =
            listed.iter().filter_map(|version| text(version, "/version").map(str::to_owned)).collect();
        let page = self.pages.get(&path).and_then(Option::as_ref);
        let preferred = page.and_then(|page| text(page, "/preferredVersion/version")).unwrap_or_default();
        versions.sort_by_key(|version| version != preferred);
        Ok(versions)
    }

    /// The first resource of a version for whose name and kind `is_it` holds. Subresources are passed by.
    async fn finds(
        &mut self,
        group: &str,
        version: &str,
        is_it: impl Fn(&str, &str) -> bool,
    ) -> Result<Option<Kind>, Failure> {
        let path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        let listed = self.list(path, "resources").await?.unwrap_or_default();
        Ok(listed.iter().find_map(|resource| {
            let (name, kind) = (text(resource, "/name")?, text(resource, "/kind")?);
            (!name.contains('/') && is_it(name, kind)).then(|| Kind {
                group: keep(group.into()),
                version: keep(version.into()),
                kind: keep(kind.into()),
                plural: keep(name.into()),
                namespaced: resource.get("namespaced") == Some(&Value::Bool(true)),
            })
        }))
    }
}

/// Finds a kind by what an owner reference says of it.
pub(crate) async fn find_kind(
    cluster: &Cluster,
    api_version: &str,
    kind: &str,
) -> Result<Option<Kind>, Failure> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    Discovery::new(cluster).finds(group, version, |_, named| named == kind).await
}

/// Finds a resource by plural and group: in the version that the server prefers, else in any that is served. A group's
/// preferred version need not hold all its resources.
pub(crate) async fn find_resource(
    cluster: &Cluster,
    plural: &str,
    group: &str,
) -> Result<Option<Kind>, Failure> {
    let mut discovery = Discovery::new(cluster);
    for version in discovery.versions(group).await? {
        let found = discovery.finds(group, &version, |name, _| name == plural).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// One sentence for each right that is missing; and the namespaces in which rights are missing because there is no such
/// namespace, where none are needed.
async fn forbidden(cluster: &Cluster, rules: &[Rule]) -> Result<(Vec<Finding>, Vec<String>), Failure> {
    // Whoever may do everything need not be asked about each thing.
    if allowed(cluster, None, "*", "*", "*", None).await? {
        return Ok((Vec::new(), Vec::new()));
    }
    let mut asked: Vec<(&Rule, &str)> =
        rules.iter().flat_map(|rule| rule.verbs.iter().map(move |verb| (rule, *verb))).collect();
    let clock = cluster.clock();
    let patience = clock.now() + clock.patience(RIGHTS_MAY_COME);
    loop {
        let denied: Vec<(&Rule, &str)> = stream::iter(asked)
            .map(|(rule, verb)| async move {
                // A rule for names stands or falls as one: the first name answers for all.
                let name = rule.names.first().map(String::as_str);
                let namespace = rule.namespace.as_deref();
                let ok = allowed(cluster, namespace, &rule.group, &rule.resource, verb, name).await?;
                Ok::<_, Failure>((!ok).then_some((rule, verb)))
            })
            .buffer_unordered(16)
            .try_filter_map(|denied| async move { Ok(denied) })
            .try_collect()
            .await?;
        let absent = if denied.is_empty() { Vec::new() } else { absent(cluster, rules).await? };
        let denied: Vec<(&Rule, &str)> = denied
            .into_iter()
            .filter(|(rule, _)| !rule.namespace.as_ref().is_some_and(|namespace| absent.contains(namespace)))
            .collect();
        if denied.is_empty() || clock.now() >= patience {
            let mut sentences: Vec<String> = denied.iter().map(|(rule, verb)| refusal(rule, verb)).collect();
            sentences.sort();
            sentences.dedup();
            let findings = sentences.into_iter().map(|sentence| Finding::refuse(None, sentence)).collect();
            return Ok((findings, absent));
        }
        asked = denied;
        clock.sleep(clock.patience(Duration::from_secs(1))).await;
    }
}

/// The namespaces that do not exist, of those that the step may look at by their names.
async fn absent(cluster: &Cluster, rules: &[Rule]) -> Result<Vec<String>, Failure> {
    let mut absent = Vec::new();
    let known = rules.iter().filter(|rule| rule.resource == kinds::NAMESPACE.plural && rule.verbs == ["get"]);
    // Two rules may name the same.
    for name in known.flat_map(|rule| &rule.names).collect::<BTreeSet<_>>() {
        let object = kinds::NAMESPACE.cluster_object(name);
        if allowed(cluster, None, "", kinds::NAMESPACE.plural, "get", Some(name)).await?
            && cluster.get(&object).await?.is_none()
        {
            absent.push(name.clone());
        }
    }
    Ok(absent)
}

fn refusal(rule: &Rule, verb: &str) -> String {
    let resource = if rule.group.is_empty() {
        rule.resource.clone()
    } else {
        format!("{}.{}", rule.resource, rule.group)
    };
    let place = rule
        .namespace
        .as_ref()
        .map_or_else(|| "in the whole cluster".to_owned(), |namespace| format!("in namespace {namespace}"));
    let name = rule.names.first().map(|name| format!(" '{name}'")).unwrap_or_default();
    format!(
        "the step's account may not {verb} {resource}{name} {place}: the chart's RBAC gives it this right; \
         --print-rbac lists all that are needed"
    )
}

/// Whether this account may get objects of a kind, or one of them.
pub(crate) async fn may_get(
    cluster: &Cluster,
    kind: &Kind,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Result<bool, Failure> {
    allowed(cluster, namespace, kind.group, kind.plural, "get", name).await
}

async fn allowed(
    cluster: &Cluster,
    namespace: Option<&str>,
    group: &str,
    resource: &str,
    verb: &str,
    name: Option<&str>,
) -> Result<bool, Failure> {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "namespace": namespace.unwrap_or_default(), "group": group, "resource": resource,
            "subresource": subresource, "verb": verb, "name": name.unwrap_or_default(),
        }},
    });
    let answer = cluster.review("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &body).await?;
    Ok(answer.pointer("/status/allowed") == Some(&Value::Bool(true)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    const OLD: Kind = Kind::namespaced("old.io", "v1alpha1", "Old", "olds");
    const OLDER: Kind = Kind::namespaced("older.io", "v1", "Older", "olders");

    fn page_not_found() -> (u16, Value) {
        (404, "404 page not found\n".into())
    }

    fn group(versions: &[&str]) -> Value {
        let versions: Vec<Value> = versions.iter().map(|version| json!({"version": version})).collect();
        json!({"kind": "APIGroup", "preferredVersion": versions[0], "versions": versions})
    }

    fn serving(names: &[&str]) -> Value {
        let one = |name: &&str| json!({"name": name, "kind": "Old", "namespaced": true});
        json!({"kind": "APIResourceList", "resources": names.iter().map(one).collect::<Vec<_>>()})
    }

    type Page = (&'static str, fn() -> Value);

    /// An API server with these pages, where everything is allowed.
    fn server(pages: &'static [Page]) -> Fake {
        Fake::new(move |method, path| match pages.iter().find(|(at, _)| *at == path) {
            _ if method == "POST" => (200, json!({"status": {"allowed": true}})),
            Some((_, page)) => (200, page()),
            None if path.starts_with("/apis/apps/v1/namespaces/") => {
                let name = path.rsplit('/').next().unwrap_or_default();
                (404, json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}}))
            }
            None => page_not_found(),
        })
    }

    async fn checked(fake: &Fake, needs: Needs) -> Result<Preflight, Failure> {
        check(&Arc::new(fake.cluster(4)), &needs, &[], Instant::now()).await
    }

    fn from(sources: Vec<Kind>) -> Needs {
        Needs { sources, ..Needs::default() }
    }

    fn refusals(preflight: Result<Preflight, Failure>) -> Vec<String> {
        match preflight {
            Ok(Preflight::Refused(findings)) => findings.iter().map(ToString::to_string).collect(),
            other => panic!("it is not refused: {other:?}"),
        }
    }

    #[tokio::test]
    async fn no_source_at_all_is_nothing_to_migrate() {
        let fake = server(&[]);
        let found = checked(&fake, from(vec![OLD, OLDER])).await.unwrap();
        assert!(
            matches!(found, Preflight::NothingToMigrate { why, .. } if why.contains("none of olds.old.io, olders"))
        );
    }

    #[tokio::test]
    async fn a_source_that_is_served_in_another_version_only_is_refused_with_the_versions() {
        let fake = server(&[
            ("/apis/old.io", || group(&["v2", "v1beta1", "v1"])),
            ("/apis/old.io/v2", || serving(&["olds"])),
            ("/apis/old.io/v1beta1", || serving(&["others"])),
            ("/apis/old.io/v1", || serving(&["olds"])),
        ]);
        let said = refusals(checked(&fake, from(vec![OLD])).await);
        assert_eq!(said.len(), 1);
        assert!(
            said[0].contains("not served in version v1alpha1, which this step knows (served: v2, v1)"),
            "{said:?}"
        );
    }

    #[tokio::test]
    async fn a_part_of_the_sources_is_refused() {
        let fake = server(&[("/apis/old.io/v1alpha1", || serving(&["olds"]))]);
        let said = refusals(checked(&fake, from(vec![OLD, OLDER])).await);
        assert!(said.len() == 1 && said[0].contains("olders.older.io is not served"), "{said:?}");
    }

    #[tokio::test]
    async fn a_workload_of_the_old_installation_without_its_apis_is_refused() {
        let fake =
            server(&[("/apis/apps/v1/namespaces/ns/deployments/bus", || json!({"kind": "Deployment"}))]);
        let workloads = ["bus", "gone"].map(|name| kinds::DEPLOYMENT.object("ns", name)).to_vec();
        let said = refusals(checked(&fake, Needs { workloads, ..from(vec![OLD]) }).await);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("Deployment/ns/bus") && said[0].contains("this cluster has none of olds.old.io")
        );
        let workloads = vec![kinds::DEPLOYMENT.object("ns", "gone")];
        let found = checked(&fake, Needs { workloads, ..from(vec![OLD]) }).await.unwrap();
        assert!(matches!(found, Preflight::NothingToMigrate { .. }));
    }

    #[tokio::test]
    async fn a_missing_target_matters_only_where_an_object_would_need_it() {
        fn is_old(object: &Value) -> bool {
            object["spec"]["old"] == true
        }
        let needs = || Needs { targets: vec![OLDER], evidence: Some((OLD, is_old)), ..from(vec![OLD]) };
        let new = server(&[
            ("/apis/old.io/v1alpha1", || serving(&["olds"])),
            ("/apis/old.io/v1alpha1/olds", || json!({"items": [{"spec": {"old": false}}]})),
        ]);
        let found = checked(&new, needs()).await.unwrap();
        assert!(matches!(found, Preflight::NothingToMigrate { why, unserved }
            if why.contains("olders.older.io is not served") && unserved == [OLDER]));
        let old = server(&[
            ("/apis/old.io/v1alpha1", || serving(&["olds"])),
            ("/apis/old.io/v1alpha1/olds", || json!({"items": [{"spec": {}}, {"spec": {"old": true}}]})),
        ]);
        let said = refusals(checked(&old, needs()).await);
        assert!(said.len() == 1 && said[0].contains("olders.older.io is not served"), "{said:?}");
    }

    #[tokio::test]
    async fn a_discovery_answer_that_cannot_be_read_is_not_taken_for_not_served() {
        for unreadable in [json!({"kind": "Nonsense"}), json!([])] {
            let fake = Fake::new(move |_, _| (200, unreadable.clone()));
            let failed = checked(&fake, from(vec![OLD])).await;
            assert!(matches!(failed, Err(Failure::Refused { .. })), "{failed:?}");
            let failed = find_resource(&fake.cluster(1), "olds", "old.io").await;
            assert!(matches!(failed, Err(Failure::Refused { .. })), "{failed:?}");
        }
        let proxy = Fake::new(|_, _| (404, "<html>no such site</html>".into()));
        assert!(checked(&proxy, from(vec![OLD])).await.is_err());
    }

    #[tokio::test]
    async fn a_resource_is_found_in_whatever_version_is_served() {
        let fake = server(&[
            ("/apis/old.io", || group(&["v2", "v1"])),
            ("/apis/old.io/v2", || serving(&["others"])),
            ("/apis/old.io/v1", || serving(&["olds/status", "olds"])),
        ]);
        let found = find_resource(&fake.cluster(1), "olds", "old.io").await.unwrap().unwrap();
        assert_eq!((found.version, found.kind, found.namespaced), ("v1", "Old", true));
        assert!(find_resource(&fake.cluster(1), "news", "old.io").await.unwrap().is_none());
        assert!(find_resource(&fake.cluster(1), "olds", "other.io").await.unwrap().is_none());
    }
}
