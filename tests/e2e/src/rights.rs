//! Runs under an account that may do just this much.

use std::path::Path;

use anyhow::{Context as _, Result};
use harness::{Api, Resource, Upstream};
use kube::config::Kubeconfig;
use serde_json::{Value, json};
use standins::cluster::wait_until;

use crate::world::SOON;

/// An account and its rights, in the shape that `--print-rbac` prints.
pub struct Account {
    api: Api,
    name: String,
    namespace: String,
    rules: Value,
}

/// Says on roles and bindings in which namespace their account is.
const HOME: &str = "e2e.belay.dev/home";
/// Says on them what it is called.
const NAME: &str = "e2e.belay.dev/account";
/// Bindings before what they bind.
const KINDS: [&str; 4] = ["clusterrolebindings", "rolebindings", "clusterroles", "roles"];

/// Takes away the rights that tests which failed have left to accounts of this namespace.
pub async fn sweep(api: &Api, home: &str) {
    remove(api, &format!("{HOME}={home}")).await.unwrap();
}

async fn remove(api: &Api, selector: &str) -> Result<()> {
    for plural in KINDS {
        for left in api.list(&rbac(plural), None, Some(selector)).await? {
            let field = |name: &str| left["metadata"][name].as_str();
            api.delete(&rbac(plural), field("namespace"), field("name").unwrap_or_default()).await?;
        }
    }
    Ok(())
}

fn rbac(plural: &str) -> Resource {
    Resource::new("rbac.authorization.k8s.io", "v1", plural)
}

impl Account {
    /// A ServiceAccount with these rights. An earlier one of that name has gone with what it might do.
    pub async fn new(api: &Api, namespace: &str, name: &str, rules: Value) -> Result<Self> {
        let account =
            Self { api: api.clone(), name: name.to_owned(), namespace: namespace.to_owned(), rules };
        account.revoke().await?;
        let object = json!({"metadata": {"name": name, "namespace": namespace}});
        api.ensure(&Resource::core("serviceaccounts"), &object).await?;
        account.grant().await?;
        Ok(account)
    }

    /// The way to the API server as this account.
    pub async fn upstream(&self, kubeconfig: &Path) -> Result<Upstream> {
        let mut file = Kubeconfig::read_from(kubeconfig)?;
        let context = file.current_context.clone().context("no current context")?;
        let user = file
            .contexts
            .iter()
            .find(|one| one.name == context)
            .and_then(|one| one.context.as_ref()?.user.clone())
            .context("no user")?;
        let named = file.auth_infos.iter_mut().find(|one| one.name == user);
        let info = named.and_then(|one| one.auth_info.as_mut()).context("no credentials")?;
        info.impersonate = Some(self.user());
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("kubeconfig");
        std::fs::write(&path, serde_json::to_vec(&file)?)?;
        Upstream::from_kubeconfig(&path).await
    }

    /// Gives the rights, by roles in each namespace and one in the cluster. They are in force when it returns.
    pub async fn grant(&self) -> Result<()> {
        let role = format!("{}-{}", self.namespace, self.name);
        self.bind(["clusterroles", "clusterrolebindings"], &role, None, &self.rules["clusterRules"]).await?;
        for (namespace, rules) in self.rules["namespaced"].as_object().into_iter().flatten() {
            self.bind(["roles", "rolebindings"], &role, Some(namespace), rules).await?;
        }
        self.until_known(true).await
    }

    /// Waits until the API server goes by the rights as they are now: it learns of roles and bindings by watches.
    async fn until_known(&self, granted: bool) -> Result<()> {
        let what = if granted { "the rights are in force" } else { "no right is in force" };
        wait_until(what, SOON, async || {
            let namespaced = self.rules["namespaced"].as_object().into_iter().flatten();
            let namespaced = namespaced.map(|(namespace, rules)| (Some(namespace), rules));
            for (namespace, rules) in namespaced.chain([(None, &self.rules["clusterRules"])]) {
                // A role comes with all its rules.
                if let Some(rule) = rules.as_array().and_then(|rules| rules.last())
                    && self.may(namespace.map(String::as_str), rule).await? != granted
                {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    /// Whether the API server lets this account do what the rule says. Without groups, what everybody may is no part of
    /// the answer.
    async fn may(&self, namespace: Option<&str>, rule: &Value) -> Result<bool> {
        let resource = rule["resources"][0].as_str().unwrap_or_default();
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = json!({"spec": {
            "user": self.user(),
            "resourceAttributes": {
                "namespace": namespace, "group": rule["apiGroups"][0], "resource": resource,
                "subresource": subresource, "verb": rule["verbs"][0], "name": rule["resourceNames"][0],
            },
        }});
        let reviews = Resource::new("authorization.k8s.io", "v1", "subjectaccessreviews");
        Ok(self.api.create(&reviews, &review).await?["status"]["allowed"] == true)
    }

    fn user(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }

    async fn bind(&self, kinds: [&str; 2], name: &str, namespace: Option<&str>, rules: &Value) -> Result<()> {
        let mut metadata = json!({"name": name, "labels": {HOME: self.namespace, NAME: self.name}});
        if let Some(namespace) = namespace {
            metadata["namespace"] = namespace.into();
        }
        let kind = if namespace.is_some() { "Role" } else { "ClusterRole" };
        self.api.create(&rbac(kinds[0]), &json!({"metadata": metadata, "rules": rules})).await?;
        let binding = json!({
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": self.name, "namespace": self.namespace}],
        });
        self.api.create(&rbac(kinds[1]), &binding).await.map(drop)
    }

    /// Takes the rights away. They are gone when it returns.
    pub async fn revoke(&self) -> Result<()> {
        remove(&self.api, &format!("{HOME}={},{NAME}={}", self.namespace, self.name)).await?;
        self.until_known(false).await
    }
}
