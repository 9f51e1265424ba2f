//! Before anything else: is there something to migrate, is every API there, is every verb allowed?

use std::{sync::Arc, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    cluster::{Cluster, Failure},
    object::{Kind, kinds, text},
    plan::Finding,
    step::{Needs, Rule},
};

/// How often a missing API is looked for again while a dependency installs it.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Helm made our rights a moment ago, and the authorizer may not have seen them yet.
const RIGHTS_MAY_COME: Duration = Duration::from_secs(5);

/// What preflight found.
pub enum Preflight {
    /// None of the source APIs exists.
    NothingToMigrate(String),
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
    if !needs.sources.is_empty() && sources.len() == needs.sources.len() {
        return Ok(Preflight::NothingToMigrate(format!(
            "nothing to migrate: this cluster has none of {}",
            resources(&needs.sources)
        )));
    }
    let mut refusals: Vec<Finding> = sources
        .iter()
        .map(|missing| {
            Finding::refuse(
                None,
                format!(
                    "{}, although other APIs that this step migrates from are there. Half of an old installation is \
                     not \"nothing to migrate\": bring the CRD back, or remove the rest",
                    missing.sentence()
                ),
            )
        })
        .collect();
    let (denied, absent) = forbidden(cluster, rules).await?;
    refusals.extend(denied);

    let mut missing = not_served(cluster, &needs.targets).await?;
    if refusals.is_empty() && !missing.is_empty() {
        log::info!("waiting for {}: a dependency may be installing it", shown(&missing));
        while !missing.is_empty() && Instant::now() + LOOK_AGAIN < until {
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                halt = cluster.wait_halted() => return Err(Failure::Halted(halt)),
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
    served_versions: Vec<String>,
}

impl Missing {
    fn sentence(&self) -> String {
        if self.served_versions.is_empty() {
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
}

fn shown(missing: &[Missing]) -> String {
    missing.iter().map(|missing| missing.kind.resource()).collect::<Vec<_>>().join(", ")
}

fn resources(kinds: &[Kind]) -> String {
    kinds.iter().map(Kind::resource).collect::<Vec<_>>().join(", ")
}

async fn not_served(cluster: &Cluster, kinds: &[Kind]) -> Result<Vec<Missing>, Failure> {
    let mut missing = Vec::new();
    let mut paths: Vec<String> = kinds.iter().map(Kind::api_path).collect();
    paths.sort();
    paths.dedup();
    let mut served: Vec<(String, Value)> = Vec::new();
    for path in paths {
        served.extend(discover(cluster, &path).await?.map(|list| (path, list)));
    }
    for kind in kinds {
        let path = kind.api_path();
        let list = served.iter().find(|(at, _)| *at == path).map(|(_, list)| list);
        let names = list.and_then(|list| list.get("resources")?.as_array());
        if names.is_some_and(|names| names.iter().any(|name| text(name, "/name") == Some(&kind.plural))) {
            continue;
        }
        let group = if kind.group.is_empty() {
            None
        } else {
            discover(cluster, &format!("/apis/{}", kind.group)).await?
        };
        let versions = group.as_ref().and_then(|group| group.get("versions")?.as_array());
        let others = versions.into_iter().flatten().filter_map(|version| text(version, "/version"));
        let mut served_versions = Vec::new();
        for version in others.filter(|version| *version != kind.version) {
            let list = discover(cluster, &format!("/apis/{}/{version}", kind.group)).await?;
            let names = list.as_ref().and_then(|list| list.get("resources")?.as_array());
            if names.is_some_and(|names| names.iter().any(|name| text(name, "/name") == Some(&kind.plural))) {
                served_versions.push(version.to_owned());
            }
        }
        missing.push(Missing { kind: kind.clone(), served_versions });
    }
    Ok(missing)
}

async fn discover(cluster: &Cluster, path: &str) -> Result<Option<Value>, Failure> {
    match cluster.get_path(path).await {
        Ok(list) => Ok(Some(list)),
        Err(failure) if failure.is_not_served() => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Finds a kind by what an owner reference says of it.
pub(crate) async fn find_kind(
    cluster: &Cluster,
    api_version: &str,
    kind: &str,
) -> Result<Option<Kind>, Failure> {
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", api_version));
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let Some(list) = discover(cluster, &path).await? else { return Ok(None) };
    let resources = list.get("resources").and_then(Value::as_array);
    let found = resources.into_iter().flatten().find(|resource| {
        text(resource, "/kind") == Some(kind)
            && text(resource, "/name").is_some_and(|name| !name.contains('/'))
    });
    Ok(found.map(|resource| Kind {
        group: group.to_owned().into(),
        version: version.to_owned().into(),
        kind: kind.to_owned().into(),
        plural: text(resource, "/name").unwrap_or_default().to_owned().into(),
        namespaced: resource.get("namespaced") == Some(&Value::Bool(true)),
    }))
}

/// Finds a resource by plural and group, in the version that the server prefers.
pub(crate) async fn find_resource(
    cluster: &Cluster,
    plural: &str,
    group: &str,
) -> Result<Option<Kind>, Failure> {
    let Some(served) = discover(cluster, &format!("/apis/{group}")).await? else { return Ok(None) };
    let preferred = text(&served, "/preferredVersion/groupVersion").unwrap_or_default().to_owned();
    let Some(list) = discover(cluster, &format!("/apis/{preferred}")).await? else { return Ok(None) };
    let resources = list.get("resources").and_then(Value::as_array);
    let found = resources.into_iter().flatten().find(|resource| text(resource, "/name") == Some(plural));
    let version = preferred.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(found.map(|resource| Kind {
        group: group.to_owned().into(),
        version: version.into(),
        kind: text(resource, "/kind").unwrap_or_default().to_owned().into(),
        plural: plural.to_owned().into(),
        namespaced: resource.get("namespaced") == Some(&Value::Bool(true)),
    }))
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
    let patience = Instant::now() + RIGHTS_MAY_COME;
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
        if denied.is_empty() || Instant::now() >= patience {
            let mut sentences: Vec<String> = denied.iter().map(|(rule, verb)| refusal(rule, verb)).collect();
            sentences.sort();
            sentences.dedup();
            let findings = sentences.into_iter().map(|sentence| Finding::refuse(None, sentence)).collect();
            return Ok((findings, absent));
        }
        asked = denied;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// The namespaces that do not exist, of those that the step may look at by their names.
async fn absent(cluster: &Cluster, rules: &[Rule]) -> Result<Vec<String>, Failure> {
    let mut absent = Vec::new();
    let known = rules.iter().filter(|rule| rule.resource == kinds::NAMESPACE.plural && rule.verbs == ["get"]);
    for name in known.flat_map(|rule| &rule.names) {
        let object = kinds::NAMESPACE.cluster_object(name);
        if allowed(cluster, None, "", &kinds::NAMESPACE.plural, "get", Some(name)).await?
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
