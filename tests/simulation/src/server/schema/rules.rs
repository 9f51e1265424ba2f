//! Rules of `x-kubernetes-validations`, known by their text.
//!
//! There is no interpreter: a rule that a CRD of the tests has is written down here as a function.

use serde_json::Value;

/// Whether a rule holds for the new value and the old one.
type Holds = fn(&Value, &Value) -> bool;

/// A rule with what is said when it does not hold.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    holds: Holds,
    pub(super) message: String,
}

/// The rules there are. All of them compare with the old value, so without one they hold.
const KNOWN: [(&str, Holds); 1] =
    [("!has(oldSelf.color) || (has(self.color) && self.color == oldSelf.color)", color_stays)];

fn color_stays(new: &Value, old: &Value) -> bool {
    old.get("color").is_none_or(|before| new.get("color") == Some(before))
}

impl Rule {
    pub(super) fn parse(rule: &Value) -> Result<Self, String> {
        let fields = rule.as_object().ok_or("not a rule")?;
        if let Some(other) = fields.keys().find(|key| !["rule", "message"].contains(&key.as_str())) {
            return Err(format!("{other} is not known here"));
        }
        let text = rule["rule"].as_str().ok_or("a rule without text")?;
        let (_, holds) = KNOWN
            .iter()
            .find(|(known, _)| *known == text)
            .ok_or_else(|| format!("the rule '{text}' is not known here: write it as a function"))?;
        let message = rule["message"].as_str().map_or_else(|| format!("failed rule: {text}"), str::to_owned);
        Ok(Self { holds: *holds, message })
    }

    pub(super) fn holds(&self, new: &Value, old: Option<&Value>) -> bool {
        old.is_none_or(|old| (self.holds)(new, old))
    }
}
