//! Takes out of answers what differs from run to run, and nothing else: uids, versions, times of the server, the case's
//! namespace, and names that the server makes up. What is equal within a case stays equal, so that an answer which names
//! the wrong uid or an old version is still another one.

use jiff::Timestamp;
use serde_json::Value;

/// Times of this year were written by the table: the server must give them back as they are.
const WRITTEN: &str = "2001-";

/// Labels whose values are hashes of a pod template. No client computes them, and no server promises which they are.
const HASHES: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// Texts before a version in a sentence of the server.
const BEFORE_VERSIONS: [&str; 2] = ["ResourceVersion in the precondition (", "ResourceVersion in record ("];

/// The length of a uid. A shorter one was written by the table.
const UID: usize = 36;

/// What was seen in the answers to one case.
#[derive(Clone, Debug)]
pub struct Normaliser {
    namespace: String,
    uids: Vec<String>,
    versions: Vec<String>,
    names: Vec<(String, String)>,
}

impl Normaliser {
    /// For a case in this namespace.
    #[must_use]
    pub fn new(namespace: &str) -> Self {
        Self { namespace: namespace.to_owned(), uids: vec![], versions: vec![], names: vec![] }
    }

    /// The answer without what differs from run to run.
    pub fn normal(&mut self, answer: &Value) -> Value {
        self.learn(answer);
        self.replaced(answer, "", &Place::default())
    }

    /// Finds what the server made up, before anything is replaced: a sentence may name it ahead of the field.
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| self.learn(one)),
            Value::Object(all) => {
                let text = |key: &str| all.get(key).and_then(Value::as_str);
                if let Some(uid) = text("uid").filter(|uid| uid.len() == UID) {
                    number(&mut self.uids, uid);
                }
                if let (Some(prefix), Some(name)) = (text("generateName"), text("name"))
                    && !self.names.iter().any(|(known, _)| known == name)
                    && name.starts_with(prefix)
                {
                    let count = self.names.len() + 1;
                    self.known_as(name, format!("{prefix}<generated-{count}>"));
                }
                for label in HASHES {
                    if let Some(hash) = text(label)
                        && !self.names.iter().any(|(known, _)| known == hash)
                    {
                        let count = self.names.len() + 1;
                        self.known_as(hash, format!("<hash-{count}>"));
                    }
                }
                all.values().for_each(|one| self.learn(one));
            }
            _ => {}
        }
    }

    /// The longest come first: a pod's name holds the hash of its template.
    fn known_as(&mut self, name: &str, label: String) {
        let at = self.names.partition_point(|(known, _)| known.len() >= name.len());
        self.names.insert(at, (name.to_owned(), label));
    }

    fn replaced(&mut self, value: &Value, key: &str, place: &Place) -> Value {
        match value {
            // The server orders them by the second in which they were written, and by name within one: how long a case
            // takes would decide.
            Value::Array(all) if key == "managedFields" => {
                let mut sorted: Vec<&Value> = all.iter().collect();
                let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
                sorted.sort_by_key(|entry| {
                    ["operation", "manager", "subresource", "apiVersion"].map(|key| text(entry, key))
                });
                sorted.into_iter().map(|one| self.replaced(one, key, place)).collect()
            }
            // Discovery lists the kinds of CRDs in no order at all.
            Value::Array(all) if key == "resources" && all.iter().all(|one| one["name"].is_string()) => {
                let mut sorted: Vec<&Value> = all.iter().collect();
                sorted.sort_by_key(|one| one["name"].as_str().unwrap_or_default().to_owned());
                sorted.into_iter().map(|one| self.replaced(one, key, place)).collect()
            }
            Value::Array(all) => all.iter().map(|one| self.replaced(one, key, place)).collect(),
            Value::Object(all) => {
                let inner = Place { list: all.contains_key("items"), bookmark: place.is_bookmark(all) };
                let of = |key: &str, one: &Value| match one {
                    Value::String(_) => place.clone(),
                    _ if key == "metadata" => place.or(&inner),
                    _ => inner.clone(),
                };
                // Under which hash a server stores a kind is its own affair: no client reads it.
                all.iter()
                    .filter(|(key, _)| *key != "storageVersionHash")
                    .map(|(key, one)| (self.in_text(key), self.replaced(one, key, &of(key, one))))
                    .collect()
            }
            Value::String(text) => Value::String(match key {
                "uid" => self.in_text(text),
                // The version of a list is that of the store, where others write too.
                "resourceVersion" if place.list || place.bookmark => "<rv>".to_owned(),
                "resourceVersion" => format!("<rv-{}>", number(&mut self.versions, text)),
                "continue" if !text.is_empty() => "<continue>".to_owned(),
                _ => time(text).unwrap_or_else(|| self.in_text(text)),
            }),
            other => other.clone(),
        }
    }

    /// Replaces names and uids within a text.
    fn in_text(&mut self, text: &str) -> String {
        let mut text = text.replace(&self.namespace, "{ns}");
        // Several API servers may share one etcd, each below a prefix of its own.
        if let Some((before, (prefix, after))) = text
            .split_once("Key: /registry-")
            .and_then(|(before, rest)| Some((before, rest.split_once('/')?)))
            && prefix.bytes().all(|byte| byte.is_ascii_digit())
        {
            text = format!("{before}Key: /registry/{after}");
        }
        for (index, uid) in self.uids.iter().enumerate() {
            text = text.replace(uid, &format!("<uid-{}>", index + 1));
        }
        for (name, label) in &self.names {
            text = text.replace(name, label);
        }
        for before in BEFORE_VERSIONS {
            if let Some((head, tail)) = text.clone().split_once(before) {
                let end = tail.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(tail.len());
                let label = format!("<rv-{}>", number(&mut self.versions, &tail[..end]));
                text = format!("{head}{before}{label}{}", &tail[end..]);
            }
        }
        text
    }
}

/// Whose metadata it is.
#[derive(Clone, Debug, Default)]
struct Place {
    list: bool,
    bookmark: bool,
}

impl Place {
    fn is_bookmark(&self, event: &serde_json::Map<String, Value>) -> bool {
        self.bookmark || event.get("type").is_some_and(|kind| kind == "BOOKMARK")
    }

    fn or(&self, other: &Self) -> Self {
        Self { list: other.list, bookmark: self.bookmark || other.bookmark }
    }
}

/// The number of a text among those that were seen, from 1 on.
fn number(seen: &mut Vec<String>, text: &str) -> usize {
    if let Some(index) = seen.iter().position(|known| known == text) {
        return index + 1;
    }
    seen.push(text.to_owned());
    seen.len()
}

fn time(text: &str) -> Option<String> {
    let is_time = text.len() >= 20 && text.as_bytes()[4] == b'-' && text.parse::<Timestamp>().is_ok();
    let label = if text.contains('.') { "<microtime>" } else { "<time>" };
    (is_time && !text.starts_with(WRITTEN)).then(|| label.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_equal_in_a_case_stays_equal_and_all_else_is_numbered() {
        let mut normaliser = Normaliser::new("c-7");
        let first = normaliser.normal(&json!({
            "metadata": {"uid": "11111111-2222-3333-4444-555555555555", "resourceVersion": "70", "namespace": "c-7", "creationTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"at": "2001-02-03T04:05:06.000000Z"},
        }));
        assert_eq!(
            first,
            json!({
                "metadata": {"uid": "<uid-1>", "resourceVersion": "<rv-1>", "namespace": "{ns}", "creationTimestamp": "<time>"},
                "spec": {"at": "2001-02-03T04:05:06.000000Z"},
            })
        );
        let second = normaliser.normal(&json!({
            "message": "11111111-2222-3333-4444-555555555555: the ResourceVersion in the precondition (70) does not match the ResourceVersion in record (71).",
        }));
        assert_eq!(
            second["message"],
            "<uid-1>: the ResourceVersion in the precondition (<rv-1>) does not match the ResourceVersion in record (<rv-2>)."
        );
    }

    #[test]
    fn where_an_api_server_keeps_its_objects_does_not_count() {
        let message = |prefix: &str| {
            let text = format!("invalid object, Key: /{prefix}/configmaps/ns/a, ResourceVersion: 0");
            Normaliser::new("ns").normal(&json!({"message": text}))
        };
        assert_eq!(message("registry-6"), message("registry"));
    }

    #[test]
    fn lists_and_bookmarks_have_the_version_of_the_store() {
        let mut normaliser = Normaliser::new("c-7");
        let list =
            json!({"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"resourceVersion": "8"}}]});
        assert_eq!(
            normaliser.normal(&list),
            json!({"metadata": {"resourceVersion": "<rv>"}, "items": [{"metadata": {"resourceVersion": "<rv-1>"}}]})
        );
        let bookmark = json!([{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "12"}}}]);
        assert_eq!(
            normaliser.normal(&bookmark)[0]["object"],
            json!({"metadata": {"resourceVersion": "<rv>"}})
        );
    }

    #[test]
    fn names_that_the_server_makes_up_are_numbered_wherever_they_stand() {
        let mut normaliser = Normaliser::new("c-7");
        let made = json!({"metadata": {"generateName": "a-", "name": "a-x1y2z"}});
        assert_eq!(normaliser.normal(&made)["metadata"]["name"], "a-<generated-1>");
        assert_eq!(normaliser.normal(&json!("no a-x1y2z here")), json!("no a-<generated-1> here"));
    }

    #[test]
    fn a_name_that_holds_a_hash_that_is_known_already_is_numbered_all_the_same() {
        let mut normaliser = Normaliser::new("c-7");
        let pod = |name: &str| {
            let labels = json!({"pod-template-hash": "5666fb984c"});
            json!({"metadata": {"generateName": "a-5666fb984c-", "name": name, "labels": labels}})
        };
        for (name, normal) in [
            ("a-5666fb984c-x1y2z", "a-<hash-2>-<generated-1>"),
            ("a-5666fb984c-v3w4x", "a-<hash-2>-<generated-3>"),
        ] {
            assert_eq!(normaliser.normal(&pod(name))["metadata"]["name"], normal);
        }
    }
}
