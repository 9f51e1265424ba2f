//! What a legacy Subscription asks for, the Trigger that gives the same, and which Trigger counts as it.
//!
//! Two steps must agree on this: the one that creates Triggers, and the one that takes Subscriptions away because there
//! is a Trigger for each.

use std::collections::{BTreeMap, BTreeSet};

use belay_runtime::{
    ObjectRef,
    object::{is_going, text},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{BROKER_NAME, ready};

/// The label by which Knative finds the Triggers of a Broker; its webhook sets it on every Trigger.
const BROKER_LABEL: &str = "eventing.knative.dev/broker";

/// kubectl's memory of a manifest: the Subscription's would make nonsense of the next `kubectl apply` of the Trigger.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Labels and annotations by which Argo CD and Flux know what is theirs begin so, and those by which Helm does.
const OWNERSHIP: [&str; 4] =
    ["argocd.argoproj.io/", "kustomize.toolkit.fluxcd.io/", "helm.toolkit.fluxcd.io/", "meta.helm.sh/"];

/// Labels that say the same, whatever they begin with: the first, with this value, is Helm's; the other is the one by
/// which Argo CD tracks unless it is told another.
const HELM_LABEL: (&str, &str) = ("app.kubernetes.io/managed-by", "Helm");
const ARGO_LABEL: &str = "app.kubernetes.io/instance";

/// Knative puts a Trigger's name into a label, and a label holds no more.
const NAME_AT_MOST: usize = 63;

/// Hexadecimal digits that make a name one of its own.
const SUFFIX: usize = 8;

/// What is delivered: events of a source, a type and a version, to an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Delivery {
    /// Name of the Application that sends.
    pub source: String,
    event_type: String,
    version: String,
    address: String,
}

impl Delivery {
    /// What a legacy Subscription asks for; else what it lacks, so that nothing can be delivered: "has no endpoint".
    pub fn of_subscription(subscription: &Value) -> Result<Self, &'static str> {
        let field = |name: &str, lacks: &'static str| {
            let value = subscription.get("spec").and_then(|spec| spec.get(name)).and_then(Value::as_str);
            value.filter(|value| !value.is_empty()).map(str::to_owned).ok_or(lacks)
        };
        let delivery = Self {
            source: field("source_id", "has no source_id")?,
            event_type: field("event_type", "has no event_type")?,
            version: field("event_type_version", "has no event_type_version")?,
            address: canonical(&field("endpoint", "has no endpoint")?),
        };
        flaw(&delivery.address).map_or(Ok(delivery), Err)
    }

    /// What a Trigger delivers, if that is something a legacy Subscription can ask for: from the Broker `default`, chosen
    /// by exactly three attributes, to one address.
    #[must_use]
    pub fn of_trigger(trigger: &Value) -> Option<Self> {
        let spec = trigger.get("spec")?;
        if text(spec, "/broker").unwrap_or(BROKER_NAME) != BROKER_NAME {
            return None;
        }
        let attributes = spec.pointer("/filter/attributes")?.as_object()?;
        if attributes.len() != 3 || spec.pointer("/filter/sourceAndType").is_some_and(|old| !old.is_null()) {
            return None;
        }
        let attribute = |name: &str| attributes.get(name)?.as_str().map(str::to_owned);
        // A reference is as good as the address that it stands for, once Knative has found that out.
        let by_reference = spec.pointer("/subscriber/ref").is_some_and(|reference| !reference.is_null());
        let address =
            if by_reference { text(trigger, "/status/subscriberURI") } else { text(spec, "/subscriber/uri") };
        Some(Self {
            source: attribute("source")?,
            event_type: attribute("type")?,
            version: attribute("eventtypeversion")?,
            address: canonical(address?),
        })
    }
}

/// An address without a path and one with the empty path `/` are the same.
fn canonical(address: &str) -> String {
    let host = address.split_once("://").map_or(address, |(_, rest)| rest);
    if host.contains(['/', '?', '#']) { address.to_owned() } else { format!("{address}/") }
}

/// Why an address is none that Knative takes, if so. The Event Bus' own rule for endpoints asks for less: anything behind
/// `http://`. Knative's webhook reads it as Go does.
fn flaw(address: &str) -> Option<&'static str> {
    let without_host = Some("has an endpoint without a host");
    let Some((scheme, rest)) = address.split_once("://") else { return without_host };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    if scheme.is_empty() || host.is_empty() {
        return without_host;
    }
    let is_in_host = |letter: char| {
        !letter.is_ascii() || letter.is_ascii_alphanumeric() || "-_.~!$&'()*+,;=:[]<>\"%".contains(letter)
    };
    // Of an IPv6 address in brackets only what follows them can be a port.
    let behind = host.rsplit(']').next().unwrap_or_default();
    let port = behind.rsplit_once(':').map_or("", |(_, port)| port);
    let path = path.split('?').next().unwrap_or_default();
    let is_url = host.chars().all(is_in_host)
        && port.bytes().all(|byte| byte.is_ascii_digit())
        && !address.chars().any(|letter| letter.is_ascii_control())
        && [authority, path].iter().all(|part| has_whole_escapes(part));
    (!is_url).then_some("has an endpoint that is no URL")
}

/// Whether behind each `%` there are two hexadecimal digits.
fn has_whole_escapes(text: &str) -> bool {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    text.split('%').skip(1).all(|rest| is_hex(rest.as_bytes().first()) && is_hex(rest.as_bytes().get(1)))
}

/// The labels and annotations of a Subscription by which a tool knows what is its own. A Trigger must not bear them: it is
/// not in the tool's source, and would be pruned.
#[must_use]
pub fn ownership_marks(subscription: &Value) -> Vec<String> {
    let marks = |field: &str| {
        let all = subscription.pointer(&format!("/metadata/{field}")).and_then(Value::as_object);
        all.into_iter().flatten().filter(|(key, value)| is_ownership(key, value)).map(|(key, _)| key.clone())
    };
    marks("labels").chain(marks("annotations")).collect()
}

fn is_ownership(key: &str, value: &Value) -> bool {
    OWNERSHIP.iter().any(|start| key.starts_with(start))
        || key == ARGO_LABEL
        || (key == HELM_LABEL.0 && value == HELM_LABEL.1)
}

/// The Trigger that does for a Subscription what the old bus did.
#[must_use]
pub fn body(object: &ObjectRef, subscription: &Value) -> Value {
    let kept = |field: &str| subscription.get("metadata").and_then(|metadata| metadata.get(field)).cloned();
    let unmarked = |field: &str| {
        let mut all = kept(field)?;
        all.as_object_mut()?.retain(|key, value| key != LAST_APPLIED && !is_ownership(key, value));
        Some(all)
    };
    let asked = |field: &str| subscription["spec"][field].clone();
    let mut body = object.manifest();
    body["metadata"]["labels"] = unmarked("labels").unwrap_or_else(|| json!({}));
    body["metadata"]["labels"][BROKER_LABEL] = BROKER_NAME.into();
    if let Some(annotations) = unmarked("annotations") {
        body["metadata"]["annotations"] = annotations;
    }
    if let Some(owners) = kept("ownerReferences") {
        body["metadata"]["ownerReferences"] = owners;
    }
    body["spec"] = json!({
        "broker": BROKER_NAME,
        "filter": {"attributes": {
            "source": asked("source_id"), "type": asked("event_type"),
            "eventtypeversion": asked("event_type_version"),
        }},
        "subscriber": {"uri": asked("endpoint")},
    });
    body
}

/// A Trigger that is there, and as much of it as counts here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// What it delivers, if a legacy Subscription can ask for that.
    pub delivery: Option<Delivery>,
    /// Whether it works.
    pub ready: bool,
    /// Whether it is being deleted.
    pub going: bool,
}

impl Found {
    /// What counts of a Trigger.
    #[must_use]
    pub fn of(trigger: &Value) -> Self {
        Self {
            name: text(trigger, "/metadata/name").unwrap_or_default().to_owned(),
            delivery: Delivery::of_trigger(trigger),
            ready: ready().holds(Some(trigger)),
            going: is_going(trigger),
        }
    }
}

/// The Trigger of a Subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// It is there and works.
    Ready(String),
    /// It is there and does not work yet. One beside it would deliver twice as soon as it does.
    NotReady(String),
    /// It is not there, and this will be its name.
    Absent(String),
}

impl Match {
    /// Its name, whether it is there or not.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Ready(name) | Self::NotReady(name) | Self::Absent(name) => name,
        }
    }
}

/// Finds the Trigger of each Subscription of one namespace.
///
/// Each Trigger belongs to one Subscription: two Subscriptions that ask for the same got each event twice, and still do.
/// One that bears a Subscription's name is that Subscription's before any other's, so that the answer is the same
/// however many of them exist already.
#[must_use]
pub fn match_up<'a>(
    namespace: &str,
    subscriptions: &BTreeMap<&'a str, &Delivery>,
    triggers: &[Found],
) -> BTreeMap<&'a str, Match> {
    let by_name: BTreeMap<&str, &Found> =
        triggers.iter().map(|trigger| (trigger.name.as_str(), trigger)).collect();
    let delivers = |trigger: &Found, wanted: &Delivery| trigger.delivery.as_ref() == Some(wanted);
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut matches: BTreeMap<&'a str, Match> = BTreeMap::new();
    for (&subscription, wanted) in subscriptions {
        let own = names(namespace, subscription)
            .take(2)
            .filter_map(|name| by_name.get(name.as_str()))
            .find(|trigger| !trigger.going && delivers(trigger, wanted) && !taken.contains(&trigger.name));
        if let Some(trigger) = own {
            taken.insert(trigger.name.clone());
            matches.insert(subscription, of(trigger));
        }
    }
    // Those that bear another name, the working ones first.
    let mut others: BTreeMap<&Delivery, Vec<&Found>> = BTreeMap::new();
    for trigger in triggers.iter().filter(|trigger| !trigger.going && !taken.contains(&trigger.name)) {
        if let Some(delivery) = &trigger.delivery {
            others.entry(delivery).or_default().push(trigger);
        }
    }
    for list in others.values_mut() {
        list.sort_by(|a, b| a.ready.cmp(&b.ready).then(b.name.cmp(&a.name)));
    }
    for (&subscription, wanted) in subscriptions {
        if matches.contains_key(subscription) {
            continue;
        }
        if let Some(trigger) = others.get_mut(wanted).and_then(Vec::pop) {
            matches.insert(subscription, of(trigger));
            continue;
        }
        // A Trigger of the name that is on its way out was this one: its place is waited for.
        let is_free = |name: &String| {
            let there = by_name.get(name.as_str());
            !taken.contains(name) && there.is_none_or(|there| there.going && delivers(there, wanted))
        };
        if let Some(name) = names(namespace, subscription).find(is_free) {
            taken.insert(name.clone());
            matches.insert(subscription, Match::Absent(name));
        }
    }
    matches
}

fn of(trigger: &Found) -> Match {
    if trigger.ready { Match::Ready(trigger.name.clone()) } else { Match::NotReady(trigger.name.clone()) }
}

/// Names for a Subscription's Trigger, best first: its own, then its own with a suffix that depends on nothing else, so
/// that a lost answer or another run cannot make a second Trigger.
fn names(namespace: &str, subscription: &str) -> impl Iterator<Item = String> {
    let own = (subscription.len() <= NAME_AT_MOST).then(|| subscription.to_owned());
    let full = format!("{namespace}/{subscription}");
    let short: String = subscription.chars().take(NAME_AT_MOST - SUFFIX - 1).collect();
    own.into_iter().chain((0_u32..).map(move |number| {
        let seed = if number == 0 { full.clone() } else { format!("{full}/{number}") };
        let hash = Sha256::digest(seed).iter().take(4).fold(0_u32, |hash, byte| hash << 8 | u32::from(*byte));
        format!("{}-{hash:0SUFFIX$x}", short.trim_end_matches(['-', '.']))
    }))
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::TRIGGER;

    fn subscription() -> Value {
        json!({
            "metadata": {
                "name": "orders", "namespace": "shop", "labels": {"Function": "pay"},
                "annotations": {"team": "a", LAST_APPLIED: "{}"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "pay", "uid": "1"}],
                "finalizers": ["subscription.finalizers.kyma-project.io"], "uid": "2",
            },
            "spec": {
                "source_id": "commerce", "event_type": "order.created", "event_type_version": "v1",
                "endpoint": "http://pay.shop:8080/",
            },
        })
    }

    fn trigger() -> Value {
        body(&TRIGGER.object("shop", "orders"), &subscription())
    }

    fn wanted() -> Delivery {
        Delivery::of_subscription(&subscription()).unwrap()
    }

    /// The same Trigger with one thing changed.
    fn but(change: impl FnOnce(&mut Value)) -> Option<Delivery> {
        let mut trigger = trigger();
        change(&mut trigger);
        Delivery::of_trigger(&trigger)
    }

    fn found(name: &str, delivery: &Delivery, ready: bool) -> Found {
        Found { name: name.into(), delivery: Some(delivery.clone()), ready, going: false }
    }

    fn matched(subscriptions: &[&'static str], triggers: &[Found]) -> Vec<Match> {
        let wanted = wanted();
        let subscriptions = subscriptions.iter().map(|&name| (name, &wanted)).collect();
        match_up("shop", &subscriptions, triggers).into_values().collect()
    }

    fn absent(name: &str) -> Match {
        Match::Absent(name.to_owned())
    }

    #[test]
    fn a_trigger_keeps_name_labels_annotations_and_owners_and_delivers_the_same() {
        let trigger = trigger();
        assert_eq!(trigger["metadata"]["name"], "orders");
        assert_eq!(trigger["metadata"]["labels"], json!({"Function": "pay", BROKER_LABEL: "default"}));
        assert_eq!(trigger["metadata"]["annotations"], json!({"team": "a"}));
        assert_eq!(trigger["metadata"]["ownerReferences"], subscription()["metadata"]["ownerReferences"]);
        assert!(trigger["metadata"].get("finalizers").is_none() && trigger["metadata"].get("uid").is_none());
        assert_eq!(trigger["spec"]["filter"]["attributes"].as_object().unwrap().len(), 3);
        assert_eq!(Delivery::of_trigger(&trigger), Some(wanted()));
    }

    #[test]
    fn a_trigger_bears_no_mark_by_which_a_tool_would_prune_it() {
        let mut owned = subscription();
        let metadata = &mut owned["metadata"];
        metadata["labels"] = json!({
            "Function": "pay", "argocd.argoproj.io/instance": "shop", "app.kubernetes.io/instance": "shop",
            "app.kubernetes.io/managed-by": "Helm", "kustomize.toolkit.fluxcd.io/name": "shop",
            "helm.toolkit.fluxcd.io/namespace": "flux",
        });
        metadata["annotations"] = json!({
            "team": "a", LAST_APPLIED: "{}", "argocd.argoproj.io/tracking-id": "x", "meta.helm.sh/release-name": "shop",
        });
        let trigger = body(&TRIGGER.object("shop", "orders"), &owned);
        assert_eq!(trigger["metadata"]["labels"], json!({"Function": "pay", BROKER_LABEL: "default"}));
        assert_eq!(trigger["metadata"]["annotations"], json!({"team": "a"}));
        assert_eq!(ownership_marks(&owned).len(), 7);
        let mut by_hand = subscription();
        by_hand["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "me".into();
        let trigger = body(&TRIGGER.object("shop", "orders"), &by_hand);
        assert_eq!(trigger["metadata"]["labels"]["app.kubernetes.io/managed-by"], "me");
        assert!(ownership_marks(&by_hand).is_empty());
    }

    #[test]
    fn an_endpoint_without_a_host_or_that_is_no_url_is_one_that_knative_refuses() {
        let to = |endpoint: &str| {
            let mut asks = subscription();
            asks["spec"]["endpoint"] = endpoint.into();
            Delivery::of_subscription(&asks).map(drop)
        };
        for wrong in ["http:///x", "http://?y", "http://#z", "http://user@/x", "pay.shop:8080/"] {
            assert_eq!(to(wrong), Err("has an endpoint without a host"), "{wrong}");
        }
        for wrong in [
            "http://pay shop:8080/",
            "http://pay:abc/",
            "http://[::1]:x/",
            "http://pay{shop}/",
            "http://pay/a%2",
            "http://pay/%zz?b",
            "http://pay/a\nb",
        ] {
            assert_eq!(to(wrong), Err("has an endpoint that is no URL"), "{wrong}");
        }
        for right in [
            "http://pay",
            "http://pay:/",
            "http://pay.shop:8080/a?b=c%&d",
            "https://user@pay/",
            "http://[::1]:80/",
            "http://pay/a b",
            "http://pay_1.shop/%2F",
        ] {
            assert_eq!(to(right), Ok(()), "{right}");
        }
    }

    #[test]
    fn a_bare_subscription_makes_a_trigger_too() {
        let mut bare = subscription();
        bare["metadata"] = json!({"name": "orders", "namespace": "shop"});
        let trigger = body(&TRIGGER.object("shop", "orders"), &bare);
        assert_eq!(Delivery::of_trigger(&trigger), Some(wanted()));
        assert!(trigger["metadata"].get("ownerReferences").is_none());
    }

    #[test]
    fn bug_2_3_a_nil_filter_is_no_match_and_no_panic() {
        assert_eq!(but(|trigger| trigger["spec"]["filter"] = Value::Null), None);
        assert_eq!(but(|trigger| drop(trigger["spec"].as_object_mut().unwrap().remove("filter"))), None);
        assert_eq!(but(|trigger| trigger["spec"]["filter"] = json!({})), None);
        assert_eq!(Delivery::of_trigger(&json!({})), None);
        assert_eq!(Delivery::of_trigger(&json!({"spec": {}})), None);
    }

    #[test]
    fn bug_2_3_a_trigger_on_another_broker_is_no_match() {
        assert_eq!(but(|trigger| trigger["spec"]["broker"] = "other".into()), None);
        // Knative's own default.
        assert_eq!(
            but(|trigger| drop(trigger["spec"].as_object_mut().unwrap().remove("broker"))),
            Some(wanted())
        );
    }

    #[test]
    fn bug_2_3_extra_or_missing_attributes_are_no_match() {
        assert_eq!(but(|trigger| trigger["spec"]["filter"]["attributes"]["subject"] = "x".into()), None);
        let without = |trigger: &mut Value| {
            trigger["spec"]["filter"]["attributes"].as_object_mut().unwrap().remove("eventtypeversion");
        };
        assert_eq!(but(without), None);
        assert_ne!(
            but(|trigger| trigger["spec"]["filter"]["attributes"]["eventtypeversion"] = "".into()),
            Some(wanted()),
            "an empty attribute means any"
        );
    }

    #[test]
    fn bug_2_3_a_ref_subscriber_counts_by_its_resolved_address_and_not_as_an_empty_one() {
        let by_reference = |trigger: &mut Value| {
            trigger["spec"]["subscriber"] = json!({"ref": {"kind": "Service", "name": "pay"}});
        };
        assert_eq!(but(by_reference), None);
        let resolved = |address: &'static str| {
            move |trigger: &mut Value| {
                trigger["spec"]["subscriber"] = json!({"ref": {"kind": "Service", "name": "pay"}});
                trigger["status"]["subscriberURI"] = address.into();
            }
        };
        assert_eq!(but(resolved("http://pay.shop:8080/")), Some(wanted()));
        assert_eq!(but(resolved("http://pay.shop:8080")), Some(wanted()), "the same address");
        assert_ne!(but(resolved("http://other.shop:8080/")), Some(wanted()));
    }

    #[test]
    fn bug_2_3_a_missing_endpoint_asks_for_nothing_that_a_trigger_could_match() {
        for missing in ["endpoint", "event_type", "event_type_version"] {
            let mut without = subscription();
            without["spec"].as_object_mut().unwrap().remove(missing);
            let lacks = format!("has no {missing}");
            assert_eq!(Delivery::of_subscription(&without), Err(lacks.as_str()));
            without["spec"][missing] = "".into();
            assert_eq!(Delivery::of_subscription(&without), Err(lacks.as_str()));
        }
        assert_eq!(but(|trigger| trigger["spec"]["subscriber"] = json!({})), None);
    }

    #[test]
    fn bug_2_3_two_identical_subscriptions_have_two_triggers() {
        assert_eq!(matched(&["a", "b"], &[]), [absent("a"), absent("b")]);
        let one = [found("by-hand", &wanted(), true)];
        assert_eq!(matched(&["a", "b"], &one), [Match::Ready("by-hand".into()), absent("b")]);
        let both = [found("by-hand", &wanted(), true), found("b", &wanted(), true)];
        assert_eq!(matched(&["a", "b"], &both), [Match::Ready("by-hand".into()), Match::Ready("b".into())]);
        // The one that bears a Subscription's name is that one's, whichever comes first.
        let own = [found("b", &wanted(), true)];
        assert_eq!(matched(&["a", "b"], &own), [absent("a"), Match::Ready("b".into())]);
    }

    #[test]
    fn bug_2_3_a_trigger_that_is_not_ready_is_waited_for_and_not_doubled() {
        let two = [found("x", &wanted(), false), found("y", &wanted(), true)];
        assert_eq!(matched(&["a"], &two), [Match::Ready("y".into())]);
        assert_eq!(matched(&["a"], &two[..1]), [Match::NotReady("x".into())]);
    }

    #[test]
    fn a_terminating_trigger_is_no_match() {
        let going = |name: &str| Found { going: true, ..found(name, &wanted(), true) };
        assert_eq!(matched(&["a"], &[going("x")]), [absent("a")]);
        // It was this one: its place is waited for.
        assert_eq!(matched(&["a"], &[going("a")]), [absent("a")]);
    }

    #[test]
    fn a_clash_with_a_foreign_trigger_is_resolved_by_a_suffix_that_stays_the_same() {
        let mut foreign = found("a", &wanted(), true);
        foreign.delivery = None;
        let first = matched(&["a"], &[foreign.clone()]);
        let name = first[0].name().to_owned();
        assert!(name.starts_with("a-") && name.len() == "a-".len() + SUFFIX, "{name}");
        assert_eq!(matched(&["a"], &[foreign.clone(), found(&name, &wanted(), true)]), [Match::Ready(name)]);
    }

    #[test]
    fn a_name_that_fits_no_label_is_cut_and_stays_one_of_its_own() {
        let long = "a".repeat(60) + "." + &"b".repeat(100);
        let other = "a".repeat(60) + "." + &"c".repeat(100);
        let name = |subscription: &str| names("shop", subscription).next().unwrap();
        assert!(name(&long).len() <= NAME_AT_MOST);
        assert_ne!(name(&long), name(&other));
        assert_ne!(name(&long), names("else", &long).next().unwrap());
        assert_eq!(name(&"a".repeat(63)), "a".repeat(63));
    }

    fn any_found() -> impl Strategy<Value = Found> {
        let delivery = proptest::option::of("[xy]".prop_map(|source| Delivery { source, ..wanted() }));
        ("[a-d]", delivery, any::<bool>(), any::<bool>()).prop_map(|(name, delivery, ready, going)| Found {
            name,
            delivery,
            ready,
            going,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn every_subscription_has_a_trigger_of_its_own_and_no_foreign_one_is_touched(
            subscriptions in proptest::collection::btree_map("[a-d]", "[xy]", 0..5),
            triggers in vec(any_found(), 0..5),
        ) {
            let mut triggers = triggers;
            triggers.sort_by(|a, b| a.name.cmp(&b.name));
            triggers.dedup_by(|a, b| a.name == b.name);
            let deliveries: BTreeMap<&str, Delivery> = subscriptions
                .iter()
                .map(|(name, source)| (name.as_str(), Delivery { source: source.clone(), ..wanted() }))
                .collect();
            let asked: BTreeMap<&str, &Delivery> = deliveries.iter().map(|(&name, one)| (name, one)).collect();
            let matches = match_up("shop", &asked, &triggers);
            prop_assert_eq!(matches.len(), asked.len());
            let names: BTreeSet<&str> = matches.values().map(Match::name).collect();
            prop_assert_eq!(names.len(), matches.len(), "one Trigger is the match of one Subscription");
            for (subscription, found) in &matches {
                let there = triggers.iter().find(|trigger| trigger.name == found.name());
                let same = there.is_some_and(|there| there.delivery.as_ref() == Some(asked[subscription]));
                match found {
                    Match::Absent(_) => prop_assert!(there.is_none_or(|there| there.going && same)),
                    _ => prop_assert!(same),
                }
            }
            // Once they are made and Ready, the same Triggers are found again, and none is made.
            for (subscription, found) in &matches {
                triggers.retain(|trigger| trigger.name != found.name());
                triggers.push(super::tests::found(found.name(), asked[subscription], true));
            }
            triggers.retain(|trigger| !trigger.going);
            let again = match_up("shop", &asked, &triggers);
            prop_assert!(again.values().all(|found| matches!(found, Match::Ready(_))), "{again:?}");
        }
    }
}
