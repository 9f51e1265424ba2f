//! Status conditions, in the shapes that the real controllers write.

use std::cell::RefCell;

use jiff::Timestamp;
use kube::api::DynamicObject;
use serde_json::{Map, Value, json};

/// A condition's three values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// Not known yet.
    Unknown,
}

impl Truth {
    const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition as a controller wants it; when it last changed is worked out while writing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    kind: &'static str,
    status: Truth,
    reason: String,
    message: String,
    informational: bool,
}

impl Condition {
    /// A condition that holds: Knative gives no reason then.
    #[must_use]
    pub fn met(kind: &'static str) -> Self {
        Self::new(kind, Truth::True, "", "")
    }

    /// A condition with its reason and message.
    #[must_use]
    pub fn new(kind: &'static str, status: Truth, reason: &str, message: &str) -> Self {
        Self { kind, status, reason: reason.to_owned(), message: message.to_owned(), informational: false }
    }

    /// Marks a condition that readiness does not depend on (severity Info).
    #[must_use]
    pub fn informational(self) -> Self {
        Self { informational: true, ..self }
    }
}

/// How a kind spells its conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Knative: camel case; reason and message only where there is something to say.
    Knative,
    /// Kubernetes' own: every field, always.
    Standard,
    /// The Event Bus: snake case.
    EventBus,
}

/// The list to write. A condition whose status is as before keeps the time of its last transition, and when nothing
/// at all differs the result equals what is there, so that the caller can spare itself the write.
#[must_use]
pub fn conditions(object: &DynamicObject, shape: Shape, wanted: &[Condition], now: &str) -> Value {
    let time = if shape == Shape::EventBus { "last_transition_time" } else { "lastTransitionTime" };
    wanted
        .iter()
        .map(|want| {
            let mut entry = Map::new();
            entry.insert("type".into(), want.kind.into());
            entry.insert("status".into(), want.status.as_str().into());
            if want.informational {
                entry.insert("severity".into(), "Info".into());
            }
            let before = find(object, want.kind);
            let since = before
                .filter(|b| b["status"] == want.status.as_str())
                .and_then(|b| b[time].as_str())
                .unwrap_or(now);
            entry.insert(time.into(), since.into());
            for (key, text) in [("reason", &want.reason), ("message", &want.message)] {
                if !text.is_empty() || shape == Shape::Standard {
                    entry.insert(key.into(), text.as_str().into());
                }
            }
            Value::Object(entry)
        })
        .collect()
}

/// The object's condition of that type.
#[must_use]
pub fn find<'a>(object: &'a DynamicObject, kind: &str) -> Option<&'a Value> {
    object.data["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// Whether the object's condition of that type is True.
#[must_use]
pub fn holds(object: &DynamicObject, kind: &str) -> bool {
    find(object, kind).is_some_and(|c| c["status"] == "True")
}

thread_local! {
    static WALL: RefCell<Option<Box<dyn Fn() -> Timestamp>>> = const { RefCell::new(None) };
}

/// From now on this thread has this time of day: a simulation has one of its own, and runs on one thread.
pub fn set_time(wall: impl Fn() -> Timestamp + 'static) {
    WALL.set(Some(Box::new(wall)));
}

/// The time now, as Kubernetes writes it.
#[must_use]
pub fn now() -> String {
    let now = WALL.with_borrow(|wall| wall.as_ref().map_or_else(Timestamp::now, |wall| wall()));
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A status of conditions alone, with the generation that was seen unless that is to be left out.
#[must_use]
pub fn status(object: &DynamicObject, observed_generation: bool, conditions: &Value) -> Value {
    let mut status = json!({"conditions": conditions});
    if let Some(generation) = object.metadata.generation.filter(|_| observed_generation) {
        status["observedGeneration"] = generation.into();
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(status: &Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a", "generation": 3}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn the_time_of_a_transition_is_kept_while_the_status_stays() {
        let before = object(&json!({"conditions": [
            {"type": "Ready", "status": "False", "lastTransitionTime": "2020-02-11T00:00:00Z", "reason": "Old"},
        ]}));
        let same = [Condition::new("Ready", Truth::False, "New", "still not")];
        let written = conditions(&before, Shape::Knative, &same, "2026-01-01T00:00:00Z");
        assert_eq!(written[0]["lastTransitionTime"], "2020-02-11T00:00:00Z");
        assert_eq!(written[0]["reason"], "New");
        let written = conditions(&before, Shape::Knative, &[Condition::met("Ready")], "2026-01-01T00:00:00Z");
        assert_eq!(
            written[0],
            json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"})
        );
    }

    #[test]
    fn each_shape_spells_its_own_way() {
        let empty = object(&Value::Null);
        let want = [Condition::met("is-ready")];
        let bus = conditions(&empty, Shape::EventBus, &want, "t");
        assert_eq!(bus[0], json!({"type": "is-ready", "status": "True", "last_transition_time": "t"}));
        let standard = conditions(&empty, Shape::Standard, &want, "t");
        assert_eq!(standard[0]["reason"], "");
        let info = conditions(&empty, Shape::Knative, &[Condition::met("P").informational()], "t");
        assert_eq!(info[0]["severity"], "Info");
    }

    #[test]
    fn what_was_written_once_is_not_different_the_next_time() {
        let mut object = object(&Value::Null);
        let want = [Condition::met("Ready"), Condition::new("Deployed", Truth::Unknown, "Why", "because")];
        object.data["status"] = status(&object, true, &conditions(&object, Shape::Knative, &want, "then"));
        assert_eq!(object.data["status"]["observedGeneration"], 3);
        assert_eq!(
            object.data["status"],
            status(&object, true, &conditions(&object, Shape::Knative, &want, "now"))
        );
        assert!(holds(&object, "Ready") && !holds(&object, "Deployed") && !holds(&object, "Other"));
    }
}
