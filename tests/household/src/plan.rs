//! What the step decides.

use std::time::Duration;

use belay_runtime::{Chain, Finding, Item, Move, Plan, Removal, kinds, object::text};
use serde_json::json;

use crate::{Args, Snapshot};

/// Nothing holds a `ConfigMap` back: what takes longer than this hangs.
const GONE_WITHIN: Duration = Duration::from_secs(30);

pub(crate) fn decide(args: &Args, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let mut chains = Vec::new();
    for old in snapshot.config_maps.iter().filter(|item| is_old(item)) {
        let subject = old.object.clone();
        if old.is_going() {
            plan.findings.push(Finding::skip(subject, "is being deleted"));
            continue;
        }
        // As the step found it: on a resume it may be gone already.
        let before = old.origin();
        let Some(settings) = text(&before, "/data/settings") else {
            let cure = format!("has no settings. Leave it out with --exclude {subject}");
            plan.findings.push(Finding::refuse(subject, cure));
            continue;
        };
        let new = kinds::CONFIG_MAP.object(&args.shelf, format!("{}-v2", subject.name));
        let data = json!({"settings.json": json!({"text": settings}).to_string()});
        let there = snapshot.config_maps.iter().find(|item| item.object == new && item.is_there());
        let mut moves = Vec::new();
        match there.and_then(Item::live) {
            // Planned only while it is absent, so that a second run has nothing to do.
            None => {
                let mut body = new.manifest();
                body["data"] = data;
                moves.push(Move::create(new, &body, &["data"]));
            }
            Some(live) if live["data"] == data => {}
            Some(_) => {
                plan.findings
                    .push(Finding::skip(subject, format!("{new} exists already and is another one")));
                continue;
            }
        }
        // Make before break: the new one is there when the old one goes.
        moves.push(Move::delete(old, Removal::within(GONE_WITHIN)));
        chains.push(Chain::new(subject, moves));
    }
    plan.phases = vec![chains];
    plan
}

fn is_old(item: &Item) -> bool {
    text(&item.origin(), "/metadata/labels/format") == Some("v1")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn old() -> Value {
        json!({"metadata": {"name": "a", "labels": {"format": "v1"}}, "data": {"settings": "x"}})
    }

    fn item(name: &str, live: Option<&Value>, before: Option<&Value>) -> Item {
        Item::new(kinds::CONFIG_MAP.object("shelf", name), live, before)
    }

    fn verbs(config_maps: Vec<Item>) -> Vec<&'static str> {
        let plan = decide(&Args { shelf: "shelf".into() }, &Snapshot { config_maps });
        assert!(plan.mistakes().is_empty());
        plan.writes().map(Move::verb).collect()
    }

    #[test]
    fn the_new_one_is_made_before_the_old_one_goes() {
        assert_eq!(verbs(vec![item("a", Some(&old()), None)]), ["create", "delete"]);
    }

    #[test]
    fn an_old_one_that_an_earlier_attempt_deleted_is_not_forgotten() {
        assert_eq!(verbs(vec![item("a", None, Some(&old()))]), ["create", "delete"]);
    }

    #[test]
    fn one_whose_new_name_is_taken_is_left_alone() {
        let taken = json!({"metadata": {"name": "a-v2"}, "data": {"other": "y"}});
        assert!(verbs(vec![item("a", Some(&old()), None), item("a-v2", Some(&taken), None)]).is_empty());
    }
}
