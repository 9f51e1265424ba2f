//! What an instance is there for: from the instance to its class, and from the class to a service of an Application.

use std::collections::{BTreeMap, HashMap};

use belay_runtime::object::text;
use serde_json::Value;

use crate::snapshot::{Activation, Place, owned};

/// The broker that offers the services of Applications.
const APPLICATION_BROKER: &str = "application-broker";

/// What classes and plans offer, by namespace, and what Applications have.
#[derive(Default)]
pub(crate) struct Catalog {
    pub(crate) classes: HashMap<String, Vec<Offer>>,
    pub(crate) plans: HashMap<String, Vec<Offer>>,
    /// The Application of a service, and whether it has events, by the service's id.
    pub(crate) services: HashMap<String, (String, bool)>,
}

/// A class or a plan. Its name is its id with many characters escaped, so only the id tells what it is.
pub(crate) struct Offer {
    name: String,
    pub(crate) id: String,
    external_name: String,
    class: String,
    /// The broker does not offer it any more: who has it keeps it, but nobody gets it again.
    withdrawn: bool,
}

impl Offer {
    /// A class or plan of the broker for Applications, with its namespace.
    pub(crate) fn of(object: &Value) -> Option<(String, Self)> {
        if text(object, "/spec/serviceBrokerName") != Some(APPLICATION_BROKER) {
            return None;
        }
        let offer = Self {
            name: owned(object, "/metadata/name")?,
            id: owned(object, "/spec/externalID")?,
            external_name: owned(object, "/spec/externalName").unwrap_or_default(),
            class: owned(object, "/spec/serviceClassRef/name").unwrap_or_default(),
            withdrawn: object.pointer("/status/removedFromBrokerCatalog") == Some(&Value::Bool(true)),
        };
        Some((owned(object, "/metadata/namespace")?, offer))
    }
}

/// The services of an Application by their ids, and whether they have events.
pub(crate) fn services(application: &Value) -> Vec<(String, bool)> {
    let services = application.pointer("/spec/services").and_then(Value::as_array).into_iter().flatten();
    let has_events = |service: &Value| {
        let entries = service.get("entries").and_then(Value::as_array);
        entries.is_some_and(|entries| entries.iter().any(|entry| text(entry, "/type") == Some("Events")))
    };
    services.filter_map(|service| Some((owned(service, "/id")?, has_events(service)))).collect()
}

/// What an instance is there for.
#[derive(Debug, PartialEq)]
pub(crate) struct Purpose {
    pub(crate) application: String,
    pub(crate) service: String,
    /// An Application has the service, still.
    pub(crate) offered: bool,
    /// Its class, or its plan where that is the service, is in its namespace, still.
    pub(crate) in_catalog: bool,
}

impl Catalog {
    /// None for an instance that has nothing to do with the events of Applications.
    pub(crate) fn purpose(
        &self,
        place: &Place,
        spec: &Value,
        activations: &BTreeMap<Place, Activation>,
    ) -> Option<Purpose> {
        let (namespace, name) = place;
        // A class of the whole cluster is never one of an Application.
        if spec.as_object()?.keys().any(|field| field.starts_with("clusterService")) {
            return None;
        }
        let class = chosen(spec, "Class", self.classes.get(namespace), None);
        let plan = class.and_then(|class| chosen(spec, "Plan", self.plans.get(namespace), Some(&class.name)));
        // A class is a service. Where API packages are on, it is an Application, and its plans are the services.
        let mut offers = [class, plan].into_iter().flatten();
        if let Some(offer) = offers.find(|offer| self.services.contains_key(&offer.id)) {
            return self.offered(&offer.id, !offer.withdrawn);
        }
        // No Application has its service. Whether it was there for events, its EventActivation tells.
        let ids = [plan, class].into_iter().flatten().map(|offer| offer.id.as_str());
        // Of what is not in the catalog any more the name is left, which often is the id.
        let names = ["/servicePlanRef/name", "/serviceClassRef/name"].map(|field| text(spec, field));
        let mut ids = ids.chain(names.into_iter().flatten());
        let by_id = ids.find_map(|id| activations.get_key_value(&(namespace.clone(), id.to_owned())));
        let ((_, id), activation) = by_id.or_else(|| {
            let from = (namespace.clone(), String::new());
            let mut here = activations.range(from..).take_while(|((other, _), _)| other == namespace);
            here.find(|(_, activation)| activation.owners.contains(name))
        })?;
        if self.services.contains_key(id) {
            return self.offered(id, false);
        }
        let (application, service) = (activation.source.clone(), id.clone());
        Some(Purpose { application, service, offered: false, in_catalog: false })
    }

    /// None for a service without events.
    fn offered(&self, id: &str, in_catalog: bool) -> Option<Purpose> {
        let (application, _) = self.services.get(id).filter(|(_, events)| *events)?;
        Some(Purpose { application: application.clone(), service: id.to_owned(), offered: true, in_catalog })
    }
}

/// The class or plan of an instance: what the catalog has resolved, or else what the user wrote.
fn chosen<'a>(
    spec: &Value,
    what: &str,
    offers: Option<&'a Vec<Offer>>,
    class: Option<&str>,
) -> Option<&'a Offer> {
    let field = |end: &str| text(spec, &format!("/service{what}{end}"));
    let mut offers = offers?.iter().filter(|offer| class.is_none_or(|class| offer.class == class));
    if let Some(name) = field("Ref/name").or_else(|| field("Name")) {
        offers.find(|offer| offer.name == name)
    } else if let Some(id) = field("ExternalID") {
        offers.find(|offer| offer.id == id)
    } else {
        let name = field("ExternalName")?;
        offers.find(|offer| offer.external_name == name)
    }
}

#[cfg(test)]
mod tests {
    use belay_runtime::Item;
    use event_mesh_kinds::EVENT_ACTIVATION;
    use serde_json::json;

    use super::*;

    fn offer(name: &str, id: &str, class: &str) -> Offer {
        let external_name = format!("{id}-shown");
        Offer { name: name.into(), id: id.into(), external_name, class: class.into(), withdrawn: false }
    }

    /// `commerce` has the service A1 with events and the service b2 without.
    fn catalog() -> Catalog {
        let application = json!({"spec": {"services": [
            {"id": "A1z", "entries": [{"type": "API"}, {"type": "Events"}]},
            {"id": "b2", "entries": [{"type": "API"}]},
            {"id": "c3"},
        ]}});
        let services = services(&application).into_iter();
        Catalog {
            classes: HashMap::from([(
                "orders".to_owned(),
                vec![
                    offer("z41z1z7az", "A1z", ""),
                    offer("b2", "b2", ""),
                    offer("package", "of-commerce", ""),
                    offer("old", "gone", ""),
                ],
            )]),
            plans: HashMap::from([(
                "orders".to_owned(),
                vec![offer("plan-a", "A1z", "package"), offer("plan-b", "b2", "package")],
            )]),
            services: services.map(|(id, events)| (id, ("commerce".to_owned(), events))).collect(),
        }
    }

    fn activation(id: &str, owners: &[&str]) -> BTreeMap<Place, Activation> {
        let activation = Activation {
            item: Item::new(EVENT_ACTIVATION.object("orders", id), Some(&json!({})), None),
            source: "closed".into(),
            owners: owners.iter().map(|&name| name.to_owned()).collect(),
            held: false,
            is_new: false,
        };
        BTreeMap::from([(("orders".to_owned(), id.to_owned()), activation)])
    }

    fn purpose(spec: &Value, activations: &BTreeMap<Place, Activation>) -> Option<(String, String, bool)> {
        let place = ("orders".to_owned(), "shop".to_owned());
        let purpose = catalog().purpose(&place, spec, activations)?;
        Some((purpose.application, purpose.service, purpose.offered))
    }

    fn of_commerce() -> (String, String, bool) {
        ("commerce".to_owned(), "A1z".to_owned(), true)
    }

    #[test]
    fn an_instance_is_matched_by_the_id_of_its_class_and_not_by_its_escaped_name() {
        assert_eq!(
            purpose(&json!({"serviceClassRef": {"name": "z41z1z7az"}}), &BTreeMap::new()),
            Some(of_commerce())
        );
        assert_eq!(purpose(&json!({"serviceClassRef": {"name": "A1z"}}), &BTreeMap::new()), None);
    }

    #[test]
    fn bug_5_2_an_instance_without_a_class_ref_is_matched_by_what_the_user_wrote() {
        for spec in [
            json!({"serviceClassExternalName": "A1z-shown"}),
            json!({"serviceClassExternalID": "A1z"}),
            json!({"serviceClassName": "z41z1z7az"}),
        ] {
            assert_eq!(purpose(&spec, &BTreeMap::new()), Some(of_commerce()), "{spec}");
        }
    }

    #[test]
    fn bug_5_2_an_instance_of_a_cluster_wide_class_is_none_of_ours_whatever_it_is_called() {
        for spec in [
            json!({"clusterServiceClassExternalName": "A1z-shown", "clusterServicePlanExternalName": "default"}),
            json!({"clusterServiceClassRef": {"name": "A1z"}}),
            json!({}),
            Value::Null,
        ] {
            assert_eq!(purpose(&spec, &activation("A1z", &[])), None, "{spec}");
        }
    }

    #[test]
    fn bug_5_3_an_instance_of_a_service_without_events_is_none_of_ours() {
        assert_eq!(purpose(&json!({"serviceClassRef": {"name": "b2"}}), &activation("b2", &["shop"])), None);
    }

    #[test]
    fn where_packages_are_on_the_plan_tells_the_service() {
        let spec =
            |plan: &str| json!({"serviceClassRef": {"name": "package"}, "servicePlanRef": {"name": plan}});
        assert_eq!(purpose(&spec("plan-a"), &BTreeMap::new()), Some(of_commerce()));
        assert_eq!(purpose(&spec("plan-b"), &BTreeMap::new()), None);
        let written =
            json!({"serviceClassExternalID": "of-commerce", "servicePlanExternalName": "A1z-shown"});
        assert_eq!(purpose(&written, &BTreeMap::new()), Some(of_commerce()));
    }

    #[test]
    fn bug_5_8_an_instance_whose_service_is_gone_is_known_by_its_event_activation() {
        let lost = |id: &str| Some(("closed".to_owned(), id.to_owned(), false));
        let class = json!({"serviceClassRef": {"name": "old"}});
        assert_eq!(purpose(&class, &activation("gone", &[])), lost("gone"));
        assert_eq!(purpose(&class, &BTreeMap::new()), None);
        let without_class = json!({"serviceClassRef": {"name": "vanished"}});
        assert_eq!(purpose(&without_class, &activation("vanished", &[])), lost("vanished"));
        assert_eq!(purpose(&without_class, &activation("some-id", &["shop"])), lost("some-id"));
        assert_eq!(purpose(&without_class, &activation("some-id", &["other"])), None);
    }

    #[test]
    fn bug_5_8_where_packages_are_on_the_plan_of_a_service_that_is_gone_leads_to_its_event_activation() {
        let mut catalog = catalog();
        catalog.plans.get_mut("orders").unwrap().push(offer("plan-old", "gone-service", "package"));
        let place = ("orders".to_owned(), "shop".to_owned());
        for plan in ["plan-old", "gone-service"] {
            let spec = json!({"serviceClassRef": {"name": "package"}, "servicePlanRef": {"name": plan}});
            let purpose = catalog.purpose(&place, &spec, &activation("gone-service", &[])).unwrap();
            assert_eq!((purpose.application.as_str(), purpose.service.as_str()), ("closed", "gone-service"));
            assert!(!purpose.offered, "{plan}");
        }
    }

    #[test]
    fn an_instance_whose_class_is_gone_or_withdrawn_is_known_not_to_be_in_the_catalog() {
        let place = ("orders".to_owned(), "shop".to_owned());
        let in_catalog = |catalog: &Catalog, class: &str| {
            let spec = json!({"serviceClassRef": {"name": class}});
            catalog
                .purpose(&place, &spec, &activation("A1z", &["shop"]))
                .map(|one| (one.offered, one.in_catalog))
        };
        let mut catalog = catalog();
        assert_eq!(in_catalog(&catalog, "z41z1z7az"), Some((true, true)));
        assert_eq!(in_catalog(&catalog, "vanished"), Some((true, false)));
        catalog.classes.get_mut("orders").unwrap()[0].withdrawn = true;
        assert_eq!(in_catalog(&catalog, "z41z1z7az"), Some((true, false)));
    }

    #[test]
    fn classes_and_plans_of_other_brokers_do_not_count() {
        let class = |broker: &str| json!({"metadata": {"name": "n", "namespace": "orders"}, "spec": {"serviceBrokerName": broker, "externalID": "x"}});
        assert!(Offer::of(&class("application-broker")).is_some());
        assert!(Offer::of(&class("helm-broker")).is_none());
    }
}
