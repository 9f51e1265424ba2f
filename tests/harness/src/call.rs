//! What a request to the API server is: its target, its class, and the name that it has in every run.
//!
//! Everything that the harness knows about how a step talks to the cluster is in [`classify`], [`renews`] and
//! [`Call::what`].

use std::{fmt, time::Duration};

use bytes::Bytes;
use http::Method;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// What a request's path points at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// API group, empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace, none for cluster-scoped objects and for lists over all namespaces.
    pub namespace: Option<String>,
    /// Plural resource name; empty for discovery and other paths that name no resource.
    pub resource: String,
    /// Object name, none for collections.
    pub name: Option<String>,
    /// Subresource such as `scale` or `status`.
    pub subresource: Option<String>,
}

impl Target {
    /// Reads a path; anything that is not a resource path has an empty resource.
    #[must_use]
    pub fn parse(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Self::default(),
        };
        // The long-gone prefix form of watches; kubectl of old still sends it.
        let rest = if let ["watch", rest @ ..] = rest { rest } else { rest };
        let owned = |part: &&str| (*part).to_owned();
        let (namespace, rest) = match rest {
            // A namespace's own subresources look like a resource inside it.
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] => (Some(owned(namespace)), rest),
            _ => (None, rest),
        };
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            namespace,
            resource: rest.first().map(owned).unwrap_or_default(),
            name: rest.get(1).map(owned),
            subresource: rest.get(2).map(owned),
        }
    }
}

/// The API server's verbs, as RBAC names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read a collection.
    List,
    /// Follow a collection.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl fmt::Display for Verb {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        })
    }
}

/// What a call is for. See [`classify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Which APIs are served.
    Discovery,
    /// May we do this?
    AccessReview,
    /// The family's lock.
    Lease(LeaseUse),
    /// Journal head or chunk, read or written.
    Journal,
    /// Report, read or written.
    Report,
    /// Verdict on the Job.
    Event,
    /// A write that the server only pretends to make.
    DryRun,
    /// A watch on anything.
    Watch,
    /// A read of anything else: preflight, snapshot, or a move that looks before it acts.
    Read,
    /// A write to anything else: a move.
    Move,
}

/// What is done to the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseUse {
    /// Looked at.
    Read,
    /// Taken or renewed: the write names a holder.
    Hold,
    /// Given back: the write takes the holder out, or the Lease away.
    Release,
}

/// The table of classes, first match wins.
///
/// | request | class |
/// |---|---|
/// | any watch | `Watch` |
/// | a path that names no resource (`/api`, `/apis/G/V`, `/version`) | `Discovery` |
/// | create of anything in `authorization.k8s.io` | `AccessReview` |
/// | Lease `belay-*`, or a list of Leases: that asks for a lock elsewhere | `Lease` |
/// | Secret `belay-*` | `Journal` |
/// | ConfigMap `belay-report-*` | `Report` |
/// | write of an Event, of either group | `Event` |
/// | write with `dryRun` | `DryRun` |
/// | get or list | `Read` |
/// | the rest | `Move` |
///
/// A list of Secrets names no object, so it is a `Read`.
#[must_use]
pub fn classify(
    verb: Verb,
    target: &Target,
    name: Option<&str>,
    dry_run: bool,
    body: Option<&Value>,
) -> Class {
    let named = |prefix: &str| name.is_some_and(|name| name.starts_with(prefix));
    let writes = !matches!(verb, Verb::Get | Verb::List | Verb::Watch);
    match (target.group.as_str(), target.resource.as_str()) {
        _ if verb == Verb::Watch => Class::Watch,
        (_, "") => Class::Discovery,
        ("authorization.k8s.io", _) if verb == Verb::Create => Class::AccessReview,
        ("coordination.k8s.io", "leases") if named("belay-") || verb == Verb::List => {
            Class::Lease(lease_use(verb, body))
        }
        ("", "secrets") if named("belay-") && !dry_run => Class::Journal,
        ("", "configmaps") if named("belay-report-") && !dry_run => Class::Report,
        ("" | "events.k8s.io", "events") if writes => Class::Event,
        _ if writes && dry_run => Class::DryRun,
        _ if writes => Class::Move,
        _ => Class::Read,
    }
}

/// A replaced Lease without a holder is free; a patched one only if the patch says so.
fn lease_use(verb: Verb, body: Option<&Value>) -> LeaseUse {
    let holder = body.and_then(|body| body.pointer("/spec/holderIdentity"));
    let empty = |holder: &Value| holder.is_null() || holder == "";
    match verb {
        Verb::Get | Verb::List | Verb::Watch => LeaseUse::Read,
        Verb::Delete | Verb::DeleteCollection => LeaseUse::Release,
        Verb::Update if holder.is_none_or(empty) => LeaseUse::Release,
        Verb::Patch if holder.is_some_and(empty) => LeaseUse::Release,
        _ => LeaseUse::Hold,
    }
}

/// Whether a request is made to renew the lock, or may be: how many of these there are depends on the clock.
///
/// Once the lock is taken, a read of the Lease comes from a renewal or from the release, and nothing tells which. A list of
/// Leases asks for a lock elsewhere.
#[must_use]
pub fn renews(class: Class, verb: Verb, lock_taken: bool) -> bool {
    lock_taken && verb != Verb::List && matches!(class, Class::Lease(LeaseUse::Read | LeaseUse::Hold))
}

/// A call's name, the same in every run: what it asks for, and which of those that ask for it.
///
/// Not its number among all calls: the lists that begin watches come beside the moves of other chains, so that call 12
/// of one run is call 13 of the next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    /// What it asks for, as [`Call::what`] says it.
    pub what: String,
    /// Which of the run's calls that ask for it, from 1.
    pub nth: u32,
}

impl Name {
    /// Whether calls of this name change anything in the cluster, as [`Call::is_write`] says of a call.
    #[must_use]
    pub fn is_write(&self) -> bool {
        let (class, asks) = self.what.split_once(": ").unwrap_or_default();
        let reads = ["get ", "list ", "watch "].iter().any(|verb| asks.starts_with(verb));
        !reads && class != "AccessReview" && !asks.ends_with("(dry run)")
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.what)?;
        if self.nth > 1 { write!(out, " #{}", self.nth) } else { Ok(()) }
    }
}

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Still on its way.
    UnderWay,
    /// The API server's answer was passed on.
    Answered,
    /// The proxy answered in the API server's place.
    Invented,
    /// The step was killed before it was sent on.
    KilledBefore,
    /// The API server has answered, then the step was killed.
    KilledAfter,
    /// The API server has answered, then the connection was cut.
    AnswerLost,
    /// The step was killed; the request is held back, to be sent later.
    HeldBack,
    /// The connection was cut and nothing was sent on.
    Refused,
    /// The API server could not be reached, or did not answer in time.
    Unreachable(String),
}

/// One request, as the proxy saw it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Which of the run's calls that ask for the same, from 1; 0 until the proxy has counted it.
    pub nth: u32,
    /// Whether it renews the lock. See [`renews`].
    pub renews: bool,
    /// When it came, since the proxy started.
    pub at: Duration,
    /// The HTTP method.
    pub method: Method,
    /// The path without query.
    pub path: String,
    /// The query, empty if none.
    pub query: String,
    /// The path, taken apart.
    pub target: Target,
    /// The verb.
    pub verb: Verb,
    /// The object's name, for a create from the body.
    pub name: Option<String>,
    /// Whether the server only pretends.
    pub dry_run: bool,
    /// What it is for.
    pub class: Class,
    /// The body's type, as the request names it.
    pub content_type: String,
    /// SHA-256 of the body in hex, empty without a body.
    pub body_sha: String,
    /// The status that the step got, or would have got had it lived.
    pub status: Option<u16>,
    /// What became of it.
    pub fate: Fate,
    /// The whole answer of the API server; none of a watch, and of a call that got none.
    pub answer: Option<Bytes>,
    body: Bytes,
}

impl Call {
    /// Reads a request. The proxy counts it.
    #[must_use]
    pub fn new(method: &Method, path: &str, query: &str, body: Bytes, at: Duration) -> Self {
        let target = Target::parse(path);
        let json: Option<Value> = serde_json::from_slice(&body).ok();
        let watch = query_value(query, "watch").is_some_and(|value| value == "true" || value == "1")
            || path.contains("/v1/watch/");
        let one = target.name.is_some();
        let verb = match method.as_str() {
            "GET" | "HEAD" if watch => Verb::Watch,
            "POST" => Verb::Create,
            "PUT" => Verb::Update,
            "PATCH" => Verb::Patch,
            "DELETE" if one => Verb::Delete,
            "DELETE" => Verb::DeleteCollection,
            _ if one || target.resource.is_empty() => Verb::Get,
            _ => Verb::List,
        };
        let dry_run = query_value(query, "dryRun").is_some_and(|value| !value.is_empty())
            || json.as_ref().is_some_and(|body| body.get("dryRun").is_some_and(Value::is_array));
        let in_body = |field: &str| Some(json.as_ref()?.pointer(field)?.as_str()?.to_owned());
        let name = target.name.clone().or_else(|| {
            in_body("/metadata/name")
                .or_else(|| Some(in_body("/metadata/generateName")? + "*"))
                .filter(|_| verb == Verb::Create)
        });
        let class = classify(verb, &target, name.as_deref(), dry_run, json.as_ref());
        let body_sha = if body.is_empty() { String::new() } else { sha256(&body) };
        Self {
            nth: 0,
            renews: false,
            at,
            method: method.clone(),
            path: path.to_owned(),
            query: query.to_owned(),
            target,
            verb,
            name,
            dry_run,
            class,
            content_type: String::new(),
            body_sha,
            status: None,
            fate: Fate::UnderWay,
            answer: None,
            body,
        }
    }

    /// Size of the body in bytes.
    #[must_use]
    pub fn body_size(&self) -> usize {
        self.body.len()
    }

    /// The body, if it is JSON.
    #[must_use]
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Whether it changes anything in the cluster, Belay's own objects included.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !self.dry_run
            && self.class != Class::AccessReview
            && !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch)
    }

    /// Whether it reached the server and the server did what it asked.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        let sent = matches!(self.fate, Fate::Answered | Fate::KilledAfter | Fate::AnswerLost);
        sent && self.status.is_some_and(|status| (200..300).contains(&status))
    }

    /// Whether it is about the same object, or the same collection, as another.
    #[must_use]
    pub fn same_object(&self, other: &Self) -> bool {
        self.target.group == other.target.group
            && self.target.resource == other.target.resource
            && self.target.namespace == other.target.namespace
            && self.name == other.name
    }

    /// What it asks for, in words that two runs share: without the random part of an Event's name, without a page's
    /// token, and without what a selector or a precondition says.
    #[must_use]
    pub fn what(&self) -> String {
        let mut what = format!("{:?}: {} {}", self.class, self.verb, self.path);
        if let (Verb::Create, Some(name)) = (self.verb, &self.name) {
            what = format!("{what} {}", if self.class == Class::Event { "*" } else { name });
        }
        for (is, suffix) in [
            (self.begins_watch(), " (begins a watch)"),
            (query_value(&self.query, "continue").is_some(), " (next page)"),
            (self.dry_run, " (dry run)"),
        ] {
            if is {
                what.push_str(suffix);
            }
        }
        what
    }

    /// What it asks for, and which of those that do it is.
    #[must_use]
    pub fn named(&self) -> Name {
        Name { what: self.what(), nth: self.nth }
    }

    /// Whether it is a list with which a watch begins. Those are kube's own, and kube begins a query with `&`.
    ///
    /// They come beside the calls of a step, and nobody waits for their answer but the watch.
    #[must_use]
    pub fn begins_watch(&self) -> bool {
        self.verb == Verb::List && self.query.starts_with('&')
    }

    /// What makes two requests "the same call": a retry has it, a dry-run of a write or a watch of a list does not.
    #[must_use]
    pub fn key(&self) -> (Verb, &str, Option<&str>, bool) {
        (self.verb, &self.path, self.name.as_deref(), self.dry_run)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.named())?;
        match (&self.fate, self.status) {
            (Fate::Answered, Some(status)) => write!(out, " -> {status}"),
            (Fate::Answered, None) => Ok(()),
            (fate, Some(status)) => write!(out, " -> {fate:?} {status}"),
            (fate, None) => write!(out, " -> {fate:?}"),
        }
    }
}

/// The moves' writes and the journal's: what a run with nothing to do must not make.
///
/// Lease, report, Event and access reviews are left out, since every run makes them.
#[must_use]
pub fn writes_that_matter(calls: &[Call]) -> Vec<&Call> {
    calls
        .iter()
        .filter(|call| call.is_write() && matches!(call.class, Class::Move | Class::Journal))
        .collect()
}

/// The first value of a query parameter, as written (no percent-decoding: the values asked for have none).
#[must_use]
pub fn query_value<'a>(query: &'a str, name: &str) -> Option<&'a str> {
    query.split('&').find_map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (key == name).then_some(value)
    })
}

fn sha256(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(method: &str, uri: &str, body: &Value) -> Call {
        let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
        let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
        Call::new(&method.parse().unwrap(), path, query, body, Duration::ZERO)
    }

    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kyma-system/leases";

    #[test]
    fn every_path_a_step_uses_is_taken_apart() {
        let target = Target::parse("/apis/apps/v1/namespaces/a/deployments/b/scale");
        assert_eq!(target.group, "apps");
        assert_eq!(target.namespace.as_deref(), Some("a"));
        assert_eq!(target.resource, "deployments");
        assert_eq!(target.name.as_deref(), Some("b"));
        assert_eq!(target.subresource.as_deref(), Some("scale"));

        let target = Target::parse("/api/v1/namespaces/a");
        assert_eq!((target.resource.as_str(), target.name.as_deref()), ("namespaces", Some("a")));
        let target = Target::parse("/api/v1/namespaces/a/status");
        assert_eq!((target.resource.as_str(), target.subresource.as_deref()), ("namespaces", Some("status")));
        assert_eq!(target.namespace, None);
        let target = Target::parse("/api/v1/namespaces/a/pods");
        assert_eq!((target.resource.as_str(), target.name), ("pods", None));
        assert_eq!(Target::parse("/api/v1/namespaces").resource, "namespaces");
        for path in ["/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/readyz"] {
            assert_eq!(Target::parse(path).resource, "", "{path}");
        }
    }

    #[test]
    fn each_request_falls_into_its_class() {
        let named = |name: &str| json!({"metadata": {"name": name}});
        let held = json!({"metadata": {"name": "belay-event-mesh"}, "spec": {"holderIdentity": "host/1"}});
        let free = json!({"metadata": {"name": "belay-event-mesh"}, "spec": {"holderIdentity": null}});
        let renewed = json!({"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}});
        let lease = format!("{LEASES}/belay-event-mesh");
        let none = Value::Null;
        let table = [
            ("GET", "/apis", &none, Class::Discovery),
            ("GET", "/apis/apps/v1", &none, Class::Discovery),
            ("GET", "/version", &none, Class::Discovery),
            ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &none, Class::AccessReview),
            ("GET", &lease, &none, Class::Lease(LeaseUse::Read)),
            ("POST", LEASES, &held, Class::Lease(LeaseUse::Hold)),
            ("PUT", &lease, &held, Class::Lease(LeaseUse::Hold)),
            ("PATCH", &lease, &renewed, Class::Lease(LeaseUse::Hold)),
            ("PUT", &lease, &free, Class::Lease(LeaseUse::Release)),
            ("PATCH", &lease, &free, Class::Lease(LeaseUse::Release)),
            ("DELETE", &lease, &none, Class::Lease(LeaseUse::Release)),
            (
                "GET",
                "/apis/coordination.k8s.io/v1/leases?labelSelector=belay.dev%2Ffamily",
                &none,
                Class::Lease(LeaseUse::Read),
            ),
            ("GET", "/api/v1/namespaces/a/secrets/belay-scale-down-legacy", &none, Class::Journal),
            ("POST", "/api/v1/namespaces/a/secrets", &named("belay-scale-down-legacy-00"), Class::Journal),
            ("POST", "/api/v1/namespaces/a/secrets", &named("user"), Class::Move),
            ("PATCH", "/api/v1/namespaces/a/configmaps/belay-report-x", &named("x"), Class::Report),
            ("POST", "/api/v1/namespaces/a/configmaps", &named("belay-report-x"), Class::Report),
            ("POST", "/api/v1/namespaces/a/configmaps", &named("belay"), Class::Move),
            ("POST", "/apis/events.k8s.io/v1/namespaces/a/events", &named("x"), Class::Event),
            ("POST", "/api/v1/namespaces/a/events", &named("x"), Class::Event),
            ("GET", "/api/v1/namespaces/a/events", &none, Class::Read),
            ("GET", "/api/v1/namespaces/a/pods?watch=true", &none, Class::Watch),
            ("GET", "/api/v1/pods?watch=1", &none, Class::Watch),
            ("GET", "/api/v1/pods?limit=500", &none, Class::Read),
            ("POST", "/api/v1/namespaces/a/pods?dryRun=All", &named("x"), Class::DryRun),
            ("DELETE", "/api/v1/namespaces/a/pods/x", &json!({"dryRun": ["All"]}), Class::DryRun),
            ("DELETE", "/api/v1/namespaces/a/pods/x", &json!({"preconditions": {"uid": "1"}}), Class::Move),
            ("PATCH", "/apis/apps/v1/namespaces/a/deployments/x/scale", &none, Class::Move),
        ];
        for (method, uri, body, class) in table {
            assert_eq!(call(method, uri, body).class, class, "{method} {uri} {body}");
        }
    }

    #[test]
    fn only_what_comes_for_the_lock_once_it_is_taken_renews_it() {
        let (read, hold) = (Class::Lease(LeaseUse::Read), Class::Lease(LeaseUse::Hold));
        assert!(!renews(hold, Verb::Create, false), "taking the lock is a call like any other");
        assert!(renews(hold, Verb::Update, true));
        assert!(!renews(read, Verb::Get, false));
        assert!(renews(read, Verb::Get, true));
        assert!(!renews(read, Verb::List, true));
        assert!(!renews(Class::Lease(LeaseUse::Release), Verb::Update, true));
        for class in [Class::Discovery, Class::Watch, Class::Journal, Class::DryRun, Class::Move] {
            assert!(!renews(class, Verb::Get, true), "{class:?}");
        }
    }

    #[test]
    fn two_runs_share_the_names_of_their_calls() {
        let events = "/apis/events.k8s.io/v1/namespaces/a/events";
        let event = |name: &str| call("POST", events, &json!({"metadata": {"name": name}})).what();
        assert_eq!(event("belay.17f"), event("belay.18a"));
        let pods = |query: &str| call("GET", &format!("/api/v1/pods?{query}"), &Value::Null).what();
        assert_eq!(pods("limit=200"), "Read: list /api/v1/pods");
        assert_eq!(pods("limit=200&continue=abc"), "Read: list /api/v1/pods (next page)");
        assert_eq!(pods("limit=200&continue=abc"), pods("limit=200&continue=xyz"));
        assert_eq!(pods("&limit=200"), "Read: list /api/v1/pods (begins a watch)");
        assert_eq!(pods("&watch=true&resourceVersion=7"), pods("&watch=true&resourceVersion=8"));
        let pod = json!({"metadata": {"name": "x"}});
        let create = |query: &str| call("POST", &format!("/api/v1/namespaces/a/pods{query}"), &pod);
        assert_eq!(create("").what(), "Move: create /api/v1/namespaces/a/pods x");
        assert_eq!(create("?dryRun=All").what(), "DryRun: create /api/v1/namespaces/a/pods x (dry run)");
        let again = Call { nth: 2, ..create("") };
        assert_eq!(again.named().to_string(), "Move: create /api/v1/namespaces/a/pods x #2");
    }

    #[test]
    fn a_dry_run_and_an_access_review_are_no_writes() {
        let pod = json!({"metadata": {"name": "x"}});
        assert!(call("POST", "/api/v1/namespaces/a/pods", &pod).is_write());
        assert!(!call("POST", "/api/v1/namespaces/a/pods?dryRun=All", &pod).is_write());
        assert!(!call("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &pod).is_write());
        assert!(!call("GET", "/api/v1/pods", &Value::Null).is_write());
    }

    #[test]
    fn a_retry_is_the_same_call_and_a_dry_run_is_not() {
        let pod = json!({"metadata": {"name": "x"}});
        let other = json!({"metadata": {"name": "y"}});
        let first = call("POST", "/api/v1/namespaces/a/pods", &pod);
        assert_eq!(first.key(), call("POST", "/api/v1/namespaces/a/pods?timeout=5s", &pod).key());
        assert_ne!(first.key(), call("POST", "/api/v1/namespaces/a/pods", &other).key());
        assert_ne!(first.key(), call("POST", "/api/v1/namespaces/a/pods?dryRun=All", &pod).key());
        let list = call("GET", "/api/v1/namespaces/a/pods", &Value::Null);
        assert_ne!(list.key(), call("GET", "/api/v1/namespaces/a/pods?watch=true", &Value::Null).key());
    }
}
