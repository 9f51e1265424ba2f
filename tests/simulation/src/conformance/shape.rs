//! The sorts of calls that the table covers, so that calls which were recorded elsewhere can be checked against it: a call
//! of a sort that the table never compares may be answered in any way.

use std::{collections::BTreeSet, fmt, sync::LazyLock};

use http::Method;

use super::{
    row::{APPLY, Extent, JSON},
    table,
};

/// Groups of Kubernetes itself, as far as the table knows them. The kinds of all others are custom resources.
const BUILT_IN: [&str; 8] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apps",
    "authorization.k8s.io",
    "batch",
    "coordination.k8s.io",
    "events.k8s.io",
    "rbac.authorization.k8s.io",
];

/// A sort of call, with the status of its answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// What is asked for: the verb as RBAC has it, and of patches their kind.
    pub verb: &'static str,
    /// What it is asked of: `discovery`, `configmaps`, `deployments.apps`, `custom`, `custom of the cluster`.
    pub kind: String,
    /// `status`, `scale`, or nothing.
    pub subresource: String,
    /// With which status it was answered.
    pub status: u16,
}

impl Shape {
    /// The sort of a call.
    #[must_use]
    pub fn of(method: &Method, path: &str, query: &str, content_type: &str, status: u16) -> Self {
        let target = Target::parse(path);
        let is_watch = query.split('&').any(|part| part == "watch=true" || part == "watch=1");
        let verb = match (method.as_str(), target.named) {
            ("GET", _) if is_watch => "watch",
            ("GET", false) if target.kind != "discovery" => "list",
            ("GET", _) => "get",
            ("POST", _) => "create",
            ("PUT", _) => "update",
            ("PATCH", _) if content_type == APPLY => "apply",
            ("PATCH", _) if content_type == JSON => "json-patch",
            ("PATCH", _) => "merge-patch",
            ("DELETE", true) => "delete",
            ("DELETE", false) => "deletecollection",
            _ => "other",
        };
        Self { verb, kind: target.kind, subresource: target.subresource, status }
    }
}

struct Target {
    kind: String,
    named: bool,
    subresource: String,
}

impl Target {
    fn parse(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] => (*group, rest),
            _ => ("", [].as_slice()),
        };
        // A namespace is an object itself, unless something is asked for in it.
        let (namespaced, rest) = match rest {
            ["namespaces", _, subresource] if *subresource == "status" || *subresource == "finalize" => {
                (false, rest)
            }
            ["namespaces", _, rest @ ..] if !rest.is_empty() => (true, rest),
            rest => (false, rest),
        };
        let Some(plural) = rest.first() else {
            return Self { kind: "discovery".to_owned(), named: false, subresource: String::new() };
        };
        let is_built_in = group.is_empty() || BUILT_IN.contains(&group);
        let named = rest.len() > 1;
        let kind = match (is_built_in, namespaced || !named) {
            (true, _) if group.is_empty() => (*plural).to_owned(),
            (true, _) => format!("{plural}.{group}"),
            (false, true) => "custom".to_owned(),
            (false, false) => "custom of the cluster".to_owned(),
        };
        Self { kind, named, subresource: rest.get(2).copied().unwrap_or_default().to_owned() }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        write!(out, "{} {}{slash}{} -> {}", self.verb, self.kind, self.subresource, self.status)
    }
}

/// The sorts of all rows that both servers answer.
static COVERED: LazyLock<BTreeSet<Shape>> = LazyLock::new(|| {
    let rows = table::subjects().into_iter().flat_map(|(_, cases)| cases).flat_map(|case| case.rows);
    rows.filter(|row| !matches!(row.extent, Extent::SimulationOnly(_)) && row.left_out.is_none())
        .map(|row| Shape::of(&row.method, &row.path, &row.query, row.content_type, row.status))
        .collect()
});

/// Whether the table has a row of this sort.
#[must_use]
pub fn covers(shape: &Shape) -> bool {
    COVERED.contains(shape)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(method: &str, path: &str, query: &str) -> (&'static str, String, String) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let Shape { verb, kind, subresource, .. } = Shape::of(&method, path, query, "", 200);
        (verb, kind, subresource)
    }

    #[test]
    fn a_call_is_known_by_what_it_asks_of_what() {
        for (method, path, query, verb, kind, subresource) in [
            ("GET", "/version", "", "get", "discovery", ""),
            ("GET", "/apis/apps", "", "get", "discovery", ""),
            ("GET", "/api/v1", "", "get", "discovery", ""),
            ("GET", "/api/v1/namespaces/a", "", "get", "namespaces", ""),
            ("PUT", "/api/v1/namespaces/a/finalize", "", "update", "namespaces", "finalize"),
            ("GET", "/api/v1/namespaces/a/pods", "limit=1", "list", "pods", ""),
            ("GET", "/api/v1/pods", "watch=true", "watch", "pods", ""),
            (
                "PATCH",
                "/apis/apps/v1/namespaces/a/deployments/b/scale",
                "",
                "merge-patch",
                "deployments.apps",
                "scale",
            ),
            (
                "PUT",
                "/apis/fixture.belay.dev/v1/namespaces/a/widgets/b/status",
                "",
                "update",
                "custom",
                "status",
            ),
            ("DELETE", "/apis/fixture.belay.dev/v1/stations/b", "", "delete", "custom of the cluster", ""),
        ] {
            let expected = (verb, kind.to_owned(), subresource.to_owned());
            assert_eq!(shape(method, path, query), expected, "{method} {path}");
        }
    }
}
