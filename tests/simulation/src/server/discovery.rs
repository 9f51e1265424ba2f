//! Discovery: which groups, versions and resources are served.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Server;
use super::kinds::{Resource, UNKNOWN_GROUPS, api_version};
use super::status::{Result, Status};

const ALL_VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const PART_VERBS: [&str; 3] = ["get", "patch", "update"];

impl Server {
    pub(crate) fn page(&self, segments: &[String]) -> Result<Value> {
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments[..] {
            ["version"] => Ok(json!({
                "major": "1", "minor": "35", "gitVersion": "v1.35.4", "gitCommit": "", "gitTreeState": "clean",
                "buildDate": "2026-01-01T00:00:00Z", "goVersion": "go1.25", "compiler": "gc",
                "platform": "linux/amd64",
            })),
            ["api"] => Ok(json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:6443"}],
            })),
            ["apis"] => {
                let groups: Vec<Value> = self.groups().iter().filter_map(|group| self.group(group)).collect();
                Ok(json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
            }
            ["api", version] => self.version("", version),
            ["apis", group] => {
                refuse_unknown(group)?;
                let mut page = self.group(group).ok_or_else(Status::page_not_found)?;
                page["kind"] = "APIGroup".into();
                page["apiVersion"] = "v1".into();
                Ok(page)
            }
            ["apis", group, version] => {
                refuse_unknown(group)?;
                self.version(group, version)
            }
            ["healthz" | "readyz" | "livez"] => Ok("ok".into()),
            _ => Err(Status::not_simulated(format!("the page /{}", segments.join("/")))),
        }
    }

    /// Every group but the core group.
    fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = self.served.keys().map(|(group, _, _)| group.clone()).collect();
        groups.retain(|group| !group.is_empty());
        groups.dedup();
        groups
    }

    fn group(&self, group: &str) -> Option<Value> {
        let of = self.served.keys().filter(|(known, _, _)| known == group);
        let mut versions: Vec<&str> = of.map(|(_, version, _)| version.as_str()).collect();
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
        versions.dedup();
        let entries: Vec<Value> = versions
            .iter()
            .map(|version| json!({"groupVersion": api_version(group, version), "version": version}))
            .collect();
        let preferred = entries.first()?.clone();
        Some(json!({"name": group, "versions": entries, "preferredVersion": preferred}))
    }

    fn version(&self, group: &str, version: &str) -> Result<Value> {
        let of = self.served.values().filter(|one| one.group == group && one.version == version);
        let resources: Vec<Value> = of.flat_map(entries).collect();
        if resources.is_empty() {
            let is_built_in = self.served.values().any(|one| one.group == group && one.custom.is_none());
            return Err(if is_built_in { Status::nothing_served() } else { Status::page_not_found() });
        }
        Ok(json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version(group, version),
            "resources": resources,
        }))
    }
}

/// A group that every API server has and this one has not is not absent.
pub(crate) fn refuse_unknown(group: &str) -> Result<()> {
    if UNKNOWN_GROUPS.contains(&group) {
        return Err(Status::not_simulated(format!("the group {group}")));
    }
    Ok(())
}

/// Stable versions first, then beta, then alpha; of those the higher numbers.
fn rank(version: &str) -> (u8, u32, u32) {
    let rest = version.strip_prefix('v').unwrap_or(version);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let major = rest[..digits].parse().unwrap_or_default();
    let number = |text: &str| text.parse().unwrap_or_default();
    match &rest[digits..] {
        "" => (3, major, 0),
        end if end.starts_with("beta") => (2, major, number(&end[4..])),
        end if end.starts_with("alpha") => (1, major, number(&end[5..])),
        _ => (0, 0, 0),
    }
}

/// A resource and its subresources, as discovery lists them.
fn entries(resource: &Arc<Resource>) -> Vec<Value> {
    let is_review = resource.group == "authorization.k8s.io";
    let verbs: &[&str] = if is_review { &["create"] } else { &ALL_VERBS };
    let mut own = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
        "kind": resource.kind, "verbs": verbs,
    });
    if let Some(custom) = &resource.custom {
        own["verbs"] = if custom.terminating {
            json!(["delete", "deletecollection", "get", "list", "watch"])
        } else {
            json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"])
        };
        for (field, list) in [("shortNames", &custom.short_names), ("categories", &custom.categories)] {
            if !list.is_empty() {
                own[field] = json!(list);
            }
        }
    } else if resource.plural == "namespaces" {
        own["verbs"] = json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    }
    let part = |name: &str, kind: &str, verbs: &[&str]| {
        json!({
            "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
            "kind": kind, "verbs": verbs,
        })
    };
    let mut entries = vec![own];
    if resource.plural == "namespaces" {
        entries.push(part("finalize", &resource.kind, &["update"]));
    }
    if resource.scale {
        let mut scale = part("scale", "Scale", &PART_VERBS);
        scale["group"] = "autoscaling".into();
        scale["version"] = "v1".into();
        entries.push(scale);
    }
    if resource.status {
        entries.push(part("status", &resource.kind, &PART_VERBS));
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = vec!["v1alpha1", "v1", "v1beta1", "v2", "v1beta2"];
        versions.sort_by_key(|version| std::cmp::Reverse(rank(version)));
        assert_eq!(versions, ["v2", "v1", "v1beta2", "v1beta1", "v1alpha1"]);
    }
}
