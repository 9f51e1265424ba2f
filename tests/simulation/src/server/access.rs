//! RBAC, and the reviews in which a user asks what it allows.

use serde_json::{Value, json};

use super::Server;
use super::call::Call;
use super::fields::{self, Writer};
use super::path::Place;
use super::status::{About, Result, Status, invalid_value};
use super::write::Done;

const GROUP_OF_REVIEWS: &str = "authorization.k8s.io";
const GROUP: &str = "rbac.authorization.k8s.io";

/// May do anything, and is what the server's own controllers are called.
pub(crate) const CONTROLLER: &str = "system:controller";

/// What somebody wants to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    pub user: &'a str,
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    /// Empty for the whole cluster.
    pub namespace: &'a str,
    /// Empty for a collection.
    pub name: &'a str,
}

impl Wish<'_> {
    /// Whether a rule of a role covers it.
    fn is_covered_by(&self, rule: &Value) -> bool {
        let list = |field: &str| rule[field].as_array().map(Vec::as_slice).unwrap_or_default();
        let has = |field: &str, wanted: &str| list(field).iter().any(|one| one == "*" || *one == wanted);
        let resource = list("resources").iter().filter_map(Value::as_str).any(|one| {
            let whole = if self.subresource.is_empty() {
                self.resource.to_owned()
            } else {
                format!("{}/{}", self.resource, self.subresource)
            };
            let any_of_it = !self.subresource.is_empty() && one == format!("*/{}", self.subresource);
            one == "*" || one == whole || any_of_it
        });
        let only = list("resourceNames");
        let named = only.is_empty() || (!self.name.is_empty() && only.iter().any(|one| *one == self.name));
        has("verbs", self.verb) && has("apiGroups", self.group) && resource && named
    }

    /// Whether a binding in `namespace` is about this user.
    fn is_of(&self, subject: &Value, namespace: &str) -> bool {
        let name = subject["name"].as_str().unwrap_or_default();
        let account = self.user.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'));
        match subject["kind"].as_str() {
            Some("User") => name == self.user,
            Some("Group") => {
                name == "system:authenticated"
                    || account.is_some_and(|(home, _)| {
                        name == "system:serviceaccounts" || name == format!("system:serviceaccounts:{home}")
                    })
            }
            Some("ServiceAccount") => {
                let home = subject["namespace"].as_str().unwrap_or(namespace);
                account == Some((home, name))
            }
            _ => false,
        }
    }
}

impl Server {
    /// Whether the rules that are stored let somebody do something; by which binding.
    fn allows(&self, wish: &Wish<'_>) -> Option<String> {
        if !self.rbac || matches!(wish.user, "admin" | CONTROLLER) {
            return Some(String::new());
        }
        let table = |plural: &str| (GROUP.to_owned(), plural.to_owned());
        for (plural, kind) in [("clusterrolebindings", "ClusterRoleBinding"), ("rolebindings", "RoleBinding")]
        {
            let bindings = self.store.table(&table(plural));
            for ((namespace, name), binding) in bindings.into_iter().flat_map(|table| &table.objects) {
                let here = namespace.is_empty() || namespace == wish.namespace;
                let mut subjects = binding["subjects"].as_array().into_iter().flatten();
                if !here || !subjects.any(|subject| wish.is_of(subject, namespace)) {
                    continue;
                }
                let role = binding["roleRef"]["name"].as_str().unwrap_or_default();
                let role_kind = binding["roleRef"]["kind"].as_str().unwrap_or_default();
                if self.rules(role_kind, namespace, role).iter().any(|rule| wish.is_covered_by(rule)) {
                    let place =
                        if namespace.is_empty() { name.clone() } else { format!("{name}/{namespace}") };
                    return Some(format!("RBAC: allowed by {kind} \"{place}\" of {role_kind} \"{role}\""));
                }
            }
        }
        None
    }

    fn rules(&self, kind: &str, namespace: &str, name: &str) -> Vec<Value> {
        if kind == "ClusterRole" && name == "cluster-admin" {
            return vec![json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})];
        }
        let (plural, namespace) =
            if kind == "ClusterRole" { ("clusterroles", "") } else { ("roles", namespace) };
        let role =
            self.store.get(&(GROUP.to_owned(), plural.to_owned()), &(namespace.to_owned(), name.to_owned()));
        role.and_then(|role| role["rules"].as_array().cloned()).unwrap_or_default()
    }

    /// Refuses what the caller may not do.
    pub(crate) fn authorise(&self, user: &str, place: &Place, verb: &str) -> Result<()> {
        let wish = Wish {
            user,
            verb,
            group: &place.group,
            resource: &place.plural,
            subresource: &place.subresource,
            namespace: &place.namespace,
            name: &place.name,
        };
        if self.allows(&wish).is_some() {
            return Ok(());
        }
        let part = if place.subresource.is_empty() {
            place.plural.clone()
        } else {
            format!("{}/{}", place.plural, place.subresource)
        };
        let scope = if place.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace \"{}\"", place.namespace)
        };
        let why = format!(
            "User \"{}\" cannot {verb} resource \"{part}\" in API group \"{}\" {scope}",
            wish.user, place.group
        );
        let about = About::other(&place.group, &place.plural, &place.name);
        Err(Status::forbidden(&about, &why, Vec::new()))
    }

    /// An access review: it is answered, and nothing is stored.
    pub(crate) fn review(&self, call: &Call<'_>) -> Result<Done> {
        let mut review = call.json()?;
        // The API leaves empty attributes out.
        if let Some(all) = review["spec"].get_mut("resourceAttributes").and_then(Value::as_object_mut) {
            all.retain(|_, value| value != "");
        }
        let spec = &review["spec"];
        if spec.get("nonResourceAttributes").is_some_and(|all| !all.is_null()) {
            return Err(Status::not_simulated("a review of a path that is no resource"));
        }
        if spec.get("resourceAttributes").is_none_or(Value::is_null) {
            let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let cause = invalid_value("spec.resourceAttributes", &Value::Null, why);
            return Err(Status::invalid(&About::other(GROUP_OF_REVIEWS, "", ""), &[cause]));
        }
        let attribute = |name: &str| spec["resourceAttributes"][name].as_str().unwrap_or_default();
        let own = call.resource.kind == "SelfSubjectAccessReview";
        let user = if own { call.request.user.as_str() } else { spec["user"].as_str().unwrap_or_default() };
        let wish = Wish {
            user,
            verb: attribute("verb"),
            group: attribute("group"),
            resource: attribute("resource"),
            subresource: attribute("subresource"),
            namespace: attribute("namespace"),
            name: attribute("name"),
        };
        let allowed = self.allows(&wish);
        let mut status = json!({"allowed": allowed.is_some()});
        if let Some(reason) = allowed.filter(|reason| !reason.is_empty()) {
            status["reason"] = reason.into();
        }
        review["kind"] = call.resource.kind.as_str().into();
        review["apiVersion"] = call.resource.api_version().into();
        review["metadata"] = json!({});
        let writer = Writer {
            manager: call.manager(),
            api_version: &call.resource.api_version(),
            subresource: "",
            reset: "status",
            now: call.now,
        };
        fields::track_update(None, &mut review, &writer, None);
        review["status"] = status;
        Ok((201, review))
    }
}
