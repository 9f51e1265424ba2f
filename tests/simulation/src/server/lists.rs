//! Reading: one object, lists, and lists in pages, which all show the moment of the first page.

use serde_json::{Value, json};

use super::Server;
use super::kinds::Resource;
use super::path::{Place, Query};
use super::select::Selector;
use super::status::{Result, Status};
use super::store::Key;

const EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a \
    new list without the continue parameter, or use the continue token in this response to retrieve the remainder of \
    the results. Continuing with the provided token results in an inconsistent list - objects that were created, \
    modified, or deleted between the time the first chunk was returned and now may show up in the list.";

const BAD_TOKEN: &str = "invalid continue token: continue key is not valid: ";
/// What a real server makes of a token that is none; which letter it names depends on the token.
const NO_JSON: &str = "invalid character '\\u009e' looking for beginning of value";

/// Where a list goes on: the revision it shows, and the last key it has shown.
#[derive(Debug, PartialEq, Eq)]
struct Token {
    revision: u64,
    last: Key,
}

impl Token {
    fn written(&self) -> String {
        let text = json!({"rv": self.revision, "start": [self.last.0, self.last.1]}).to_string();
        // Opaque to clients; letters and digits only, so that nobody has to encode it.
        text.bytes().fold(String::new(), |out, byte| format!("{out}{byte:02x}"))
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes: Option<Vec<u8>> =
            (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect();
        let token: Value = serde_json::from_slice(&bytes?).ok()?;
        let part = |index: usize| token["start"][index].as_str().map(str::to_owned);
        Some(Self { revision: token["rv"].as_u64()?, last: (part(0)?, part(1)?) })
    }
}

/// By which the real server orders what it stores: the slash counts, so that `a-b` comes before `a`.
pub(crate) fn path_of((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}

/// A version that is no number, in the server's words.
pub(crate) fn bad_version(text: &str) -> String {
    format!(
        "resourceVersion: Invalid value: \"{text}\": strconv.ParseUint: parsing \"{text}\": invalid syntax"
    )
}

/// The object in the version that was asked for.
pub(crate) fn shown(resource: &Resource, mut object: Value) -> Value {
    if resource.group == "events.k8s.io" {
        super::events::to_new(&mut object);
    } else if resource.custom.is_some() {
        object["apiVersion"] = resource.api_version().into();
    }
    object
}

impl Server {
    pub(crate) fn get(&self, resource: &Resource, place: &Place) -> Result<Value> {
        let key = (place.namespace.clone(), place.name.clone());
        let object = self.store.get(&resource.table, &key);
        let object = object.ok_or_else(|| Status::not_found(resource, &place.name))?;
        Ok(shown(resource, Value::clone(object)))
    }

    pub(crate) fn list(&self, resource: &Resource, place: &Place, query: &Query) -> Result<Value> {
        let selector = Selector::parse(resource, query.get("labelSelector"), query.get("fieldSelector"))?;
        let limit = query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
        let token = match query.get("continue") {
            "" => None,
            text => {
                Some(Token::parse(text).ok_or_else(|| Status::bad_request(format!("{BAD_TOKEN}{NO_JSON}")))?)
            }
        };
        if token.is_some() && !matches!(query.get("resourceVersion"), "" | "0") {
            return Err(Status::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        if let Some(token) = &token
            && (token.revision < self.store.compacted() || token.revision < self.tokens_since)
        {
            // Whoever can live with it goes on with what is there now.
            let again = Token { revision: self.store.revision(), last: token.last.clone() };
            let mut expired = Status::expired(EXPIRED);
            expired.body["metadata"]["continue"] = again.written().into();
            return Err(expired);
        }
        let exact = self.wanted_revision(query)?;
        // Version 0 is "whatever the cache has", and the cache does not read in pages.
        let limit = if query.get("resourceVersion") == "0" { 0 } else { limit };
        let revision = token.as_ref().map_or(exact.unwrap_or(self.store.revision()), |token| token.revision);
        let past = (revision < self.store.revision())
            .then(|| self.store.table(&resource.table).map(|table| table.at(revision)))
            .flatten();
        let now = self.store.table(&resource.table).map(|table| &table.objects);
        let objects = past.as_ref().or(now);
        let after = token.map(|token| token.last);
        let mut found: Vec<_> = objects
            .into_iter()
            .flatten()
            .filter(|(key, object)| {
                (place.namespace.is_empty() || place.namespace == key.0)
                    && after.as_ref().is_none_or(|after| path_of(key) > path_of(after))
                    && selector.matches(object)
            })
            .collect();
        if place.namespace.is_empty() {
            found.sort_by_cached_key(|(key, _)| path_of(key));
        }
        let rest = if limit > 0 { found.len().saturating_sub(limit) } else { 0 };
        found.truncate(found.len() - rest);
        let last = found.last().map(|(key, _)| (*key).clone());
        let items: Vec<Value> =
            found.into_iter().map(|(_, object)| listed(resource, Value::clone(object))).collect();
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if resource.custom.is_some() {
            metadata["continue"] = "".into();
        }
        if let Some(last) = last.filter(|_| rest > 0) {
            metadata["continue"] = Token { revision, last }.written().into();
            if selector.is_empty() {
                metadata["remainingItemCount"] = rest.into();
            }
        }
        Ok(json!({
            "kind": resource.list_kind(), "apiVersion": resource.api_version(), "metadata": metadata,
            "items": items,
        }))
    }

    /// The revision that must be shown, where one is. "Not older than" is met by the newest.
    fn wanted_revision(&self, query: &Query) -> Result<Option<u64>> {
        let asked = query.get("resourceVersion");
        let number = |text: &str| {
            text.parse::<u64>()
                .map_err(|_| Status::bad_request(format!("invalid resource version: {}", bad_version(text))))
        };
        match query.get("resourceVersionMatch") {
            "" | "NotOlderThan" => {
                if !asked.is_empty() && number(asked)? > self.store.revision() {
                    return Err(Status::too_large_version(number(asked)?, self.store.revision()));
                }
                Ok(None)
            }
            "Exact" => {
                let wanted = number(asked)?;
                if wanted < self.store.compacted() {
                    return Err(Status::expired("The resourceVersion for the provided list is too old."));
                }
                Ok(Some(wanted))
            }
            other => Err(Status::not_simulated(format!("resourceVersionMatch={other}"))),
        }
    }
}

/// Items of built-in lists do not bear the kind that the list tells.
fn listed(resource: &Resource, object: Value) -> Value {
    let mut object = shown(resource, object);
    if resource.custom.is_none()
        && let Value::Object(fields) = &mut object
    {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_can_be_read_again_and_nothing_else_can() {
        let token = Token { revision: 7, last: ("a".to_owned(), "b".to_owned()) };
        assert_eq!(Token::parse(&token.written()), Some(token));
        assert_eq!(Token::parse("nonsense"), None);
    }
}
