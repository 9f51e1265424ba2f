//! What a request asks for: the path and the query, taken apart.

use std::collections::BTreeMap;

use super::status::{Result, Status};

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Discovery, or anything else that is no object: the segments of the path.
    Page(Vec<String>),
    /// A collection, an object or a part of it.
    Object(Place),
}

/// Where an object, or a collection, is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub group: String,
    pub version: String,
    pub plural: String,
    /// Empty for cluster-scoped objects and for all namespaces.
    pub namespace: String,
    /// Empty for a collection.
    pub name: String,
    /// Empty for the object itself.
    pub subresource: String,
}

impl Target {
    pub fn parse(path: &str) -> Self {
        let segments: Vec<String> =
            path.split('/').filter(|part| !part.is_empty()).map(|part| decode(part, false)).collect();
        Self::place(&segments).map_or_else(|| Self::Page(segments), Self::Object)
    }

    fn place(segments: &[String]) -> Option<Place> {
        let (group, version, rest) = match segments {
            [api, version, rest @ ..] if api == "api" => (String::new(), version.clone(), rest),
            [apis, group, version, rest @ ..] if apis == "apis" => (group.clone(), version.clone(), rest),
            _ => return None,
        };
        let text = |part: Option<&String>| part.cloned().unwrap_or_default();
        let (namespace, rest) = match rest {
            // A namespace's own parts, and not resources in it.
            [all, _, part] if all == "namespaces" && (part == "status" || part == "finalize") => {
                (String::new(), rest)
            }
            [all, namespace, inner @ ..] if all == "namespaces" && !inner.is_empty() => {
                (namespace.clone(), inner)
            }
            _ => (String::new(), rest),
        };
        let plural = rest.first()?.clone();
        if rest.len() > 3 {
            return None;
        }
        Some(Place {
            group,
            version,
            plural,
            namespace,
            name: text(rest.get(1)),
            subresource: text(rest.get(2)),
        })
    }
}

/// The query's parameters. As at the real server, one that nobody knows means nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: BTreeMap<String, String>,
}

/// Parameters that mean something to a real server, and that this one cannot do.
const NOT_SIMULATED: [&str; 2] = ["ignoreStoreReadErrorWithClusterBreakingPotential", "orphanDependents"];

impl Query {
    pub fn parse(query: &str) -> Result<Self> {
        let mut pairs = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = decode(key, true);
            if NOT_SIMULATED.contains(&key.as_str()) {
                return Err(Status::not_simulated(format!("the query parameter {key}")));
            }
            pairs.entry(key).or_insert_with(|| decode(value, true));
        }
        Ok(Self { pairs })
    }

    /// The value; empty if there is none.
    pub fn get(&self, key: &str) -> &str {
        self.pairs.get(key).map(String::as_str).unwrap_or_default()
    }

    pub fn has(&self, key: &str) -> bool {
        self.pairs.contains_key(key)
    }

    /// As the server reads booleans of queries: anything but `false` and `0` is true.
    pub fn flag(&self, key: &str) -> bool {
        self.pairs.get(key).is_some_and(|value| !matches!(value.as_str(), "false" | "0"))
    }

    pub fn number(&self, key: &str) -> Result<Option<i64>> {
        match self.get(key) {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Status::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))
            }),
        }
    }
}

/// Undoes percent-encoding; in a query a plus is a blank.
fn decode(text: &str, in_query: bool) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let encoded = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok()))
            .flatten();
        out.push(match encoded {
            Some(byte) => byte,
            None if in_query && bytes[at] == b'+' => b' ',
            None => bytes[at],
        });
        at += if encoded.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Place {
        match Target::parse(path) {
            Target::Object(place) => place,
            Target::Page(page) => panic!("a page: {page:?}"),
        }
    }

    #[test]
    fn a_namespace_is_an_object_and_also_where_objects_are() {
        let own = place("/api/v1/namespaces/a/status");
        assert_eq!(
            (own.plural.as_str(), own.name.as_str(), own.subresource.as_str()),
            ("namespaces", "a", "status")
        );
        let inner = place("/api/v1/namespaces/a/pods");
        assert_eq!((inner.plural.as_str(), inner.namespace.as_str(), inner.name.as_str()), ("pods", "a", ""));
        let scale = place("/apis/apps/v1/namespaces/a/deployments/b/scale");
        assert_eq!(
            (scale.group.as_str(), scale.name.as_str(), scale.subresource.as_str()),
            ("apps", "b", "scale")
        );
        assert!(matches!(Target::parse("/apis/apps/v1"), Target::Page(page) if page.len() == 3));
    }

    #[test]
    fn a_parameter_that_this_server_cannot_do_is_refused() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+d&watch=true&force=0").unwrap();
        assert_eq!(query.get("labelSelector"), "a=b,c d");
        assert!(query.flag("watch") && !query.flag("force") && !query.flag("pretty"));
        assert!(Query::parse("unknown=1").is_ok());
        assert!(Query::parse("orphanDependents=true").unwrap_err().is_not_simulated());
    }
}
