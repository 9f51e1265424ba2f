//! The cluster as tests talk to it: raw JSON, directly, not through the proxy.

use std::{fmt, time::Duration};

use anyhow::{Context, Result, bail};
use http::{Method, Request, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

/// A kind of object, by the names that its URLs need.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// API group, empty for the core group.
    pub group: String,
    /// API version.
    pub version: String,
    /// Plural name, as in URLs.
    pub plural: String,
}

impl Resource {
    /// A kind; the core group is the empty string.
    #[must_use]
    pub fn new(group: &str, version: &str, plural: &str) -> Self {
        Self { group: group.to_owned(), version: version.to_owned(), plural: plural.to_owned() }
    }

    /// A kind of the core group in version v1.
    #[must_use]
    pub fn core(plural: &str) -> Self {
        Self::new("", "v1", plural)
    }

    /// The path of the collection, or of one object in it.
    #[must_use]
    pub fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if let Some(namespace) = namespace {
            path = format!("{path}/namespaces/{namespace}");
        }
        path = format!("{path}/{}", self.plural);
        if let Some(name) = name {
            path = format!("{path}/{name}");
        }
        path
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.plural)?;
        if !self.group.is_empty() {
            write!(out, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// Raw access to the API server.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

impl Api {
    /// Over a client of one's own, or [`Upstream::client`](crate::gateway::Upstream::client).
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Any request; the answer's status and JSON.
    pub async fn request(
        &self,
        method: Method,
        uri: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value)> {
        let bytes = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request = Request::builder()
            .method(method.clone())
            .uri(uri)
            .header(http::header::CONTENT_TYPE, content_type)
            .header(http::header::ACCEPT, "application/json")
            .body(bytes.into())?;
        let sent = async {
            let answer = self.client.send(request).await?;
            let status = answer.status();
            let bytes = answer.into_body().collect_bytes().await?;
            Ok::<_, kube::Error>((status, bytes))
        };
        let (status, bytes) = tokio::time::timeout(Duration::from_secs(30), sent)
            .await
            .with_context(|| format!("{method} {uri}: no answer"))?
            .with_context(|| format!("{method} {uri}"))?;
        let json = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Ok((status, json))
    }

    async fn must(
        &self,
        method: Method,
        uri: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let (status, answer) = self.request(method.clone(), uri, content_type, body).await?;
        if !status.is_success() {
            bail!("{method} {uri}: {status}: {}", answer["message"].as_str().unwrap_or_default());
        }
        Ok(answer)
    }

    /// One object, none if it does not exist.
    pub async fn get(&self, kind: &Resource, namespace: Option<&str>, name: &str) -> Result<Option<Value>> {
        let uri = kind.path(namespace, Some(name));
        let (status, answer) = self.request(Method::GET, &uri, "application/json", None).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(answer)),
            status => bail!("GET {uri}: {status}: {}", answer["message"].as_str().unwrap_or_default()),
        }
    }

    /// Every object of a kind, in pages; none if the kind is not served. `selector` is a label selector.
    ///
    /// Items of a list bear no kind of their own; here they get it from the list.
    pub async fn list(
        &self,
        kind: &Resource,
        namespace: Option<&str>,
        selector: Option<&str>,
    ) -> Result<Vec<Value>> {
        let mut found = Vec::new();
        let mut after = String::new();
        loop {
            let mut uri = format!("{}?limit=500", kind.path(namespace, None));
            if let Some(selector) = selector {
                uri = format!("{uri}&labelSelector={}", escaped(selector));
            }
            if !after.is_empty() {
                uri = format!("{uri}&continue={}", escaped(&after));
            }
            let (status, mut page) = self.request(Method::GET, &uri, "application/json", None).await?;
            if status == StatusCode::NOT_FOUND {
                return Ok(found);
            }
            if !status.is_success() {
                bail!("GET {uri}: {status}: {}", page["message"].as_str().unwrap_or_default());
            }
            let api_version = page["apiVersion"].clone();
            let item_kind = page["kind"].as_str().unwrap_or_default().trim_end_matches("List").to_owned();
            if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
                for mut item in items {
                    item["apiVersion"] = api_version.clone();
                    item["kind"] = item_kind.clone().into();
                    found.push(item);
                }
            }
            match page.pointer("/metadata/continue").and_then(Value::as_str) {
                Some(more) if !more.is_empty() => more.clone_into(&mut after),
                _ => return Ok(found),
            }
        }
    }

    /// Creates an object, in the namespace that it names itself.
    pub async fn create(&self, kind: &Resource, object: &Value) -> Result<Value> {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        self.must(Method::POST, &kind.path(namespace, None), "application/json", Some(object)).await
    }

    /// Creates an object unless one of that name exists.
    pub async fn ensure(&self, kind: &Resource, object: &Value) -> Result<()> {
        let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
        let uri = kind.path(namespace, None);
        let (status, answer) = self.request(Method::POST, &uri, "application/json", Some(object)).await?;
        if !status.is_success() && status != StatusCode::CONFLICT {
            bail!("POST {uri}: {status}: {}", answer["message"].as_str().unwrap_or_default());
        }
        Ok(())
    }

    /// Creates a namespace unless it exists.
    pub async fn ensure_namespace(&self, name: &str) -> Result<()> {
        self.ensure(&Resource::core("namespaces"), &json!({"metadata": {"name": name}})).await
    }

    /// Creates or replaces a CRD and waits until it is served.
    pub async fn ensure_crd(&self, crd: &Value) -> Result<()> {
        let crds = Resource::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
        let name = crd.pointer("/metadata/name").and_then(Value::as_str).context("a CRD without a name")?;
        self.ensure(&crds, crd).await?;
        let end = Instant::now() + Duration::from_secs(30);
        while Instant::now() < end {
            let found = self.get(&crds, None, name).await?.unwrap_or_default();
            let conditions = found.pointer("/status/conditions").and_then(Value::as_array);
            let established = |one: &Value| one["type"] == "Established" && one["status"] == "True";
            if conditions.is_some_and(|all| all.iter().any(established)) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("CRD {name} is not established after 30 s")
    }

    /// Merge patch of an object or, with `subresource`, of a part of it.
    pub async fn merge(
        &self,
        kind: &Resource,
        namespace: Option<&str>,
        name: &str,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Result<Value> {
        let mut uri = kind.path(namespace, Some(name));
        if let Some(subresource) = subresource {
            uri = format!("{uri}/{subresource}");
        }
        self.must(Method::PATCH, &uri, "application/merge-patch+json", Some(patch)).await
    }

    /// Deletes an object; it may be gone already.
    pub async fn delete(&self, kind: &Resource, namespace: Option<&str>, name: &str) -> Result<()> {
        let uri = kind.path(namespace, Some(name));
        let options = json!({"propagationPolicy": "Background", "gracePeriodSeconds": 0});
        let (status, answer) = self.request(Method::DELETE, &uri, "application/json", Some(&options)).await?;
        if !status.is_success() && status != StatusCode::NOT_FOUND {
            bail!("DELETE {uri}: {status}: {}", answer["message"].as_str().unwrap_or_default());
        }
        Ok(())
    }
}

/// Percent-encodes what may not stand in a query.
fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api_server() {
        let pods = Resource::core("pods");
        assert_eq!(pods.path(Some("a"), Some("b")), "/api/v1/namespaces/a/pods/b");
        let deployments = Resource::new("apps", "v1", "deployments");
        assert_eq!(deployments.path(None, None), "/apis/apps/v1/deployments");
        assert_eq!(escaped("belay.dev/family=event-mesh"), "belay.dev%2Ffamily%3Devent-mesh");
    }
}
