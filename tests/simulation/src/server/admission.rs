//! Admission: namespaces, quotas, and the policies of the stand-ins. Their expressions are not evaluated but recognised,
//! and each has its rule here as a function.

use serde_json::{Value, json};

use super::Server;
use super::call::Call;
use super::kinds::Resource;
use super::metadata;
use super::status::{About, Result, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
}

/// Whether an object fits a rule; if that cannot be told, why.
type Rule = fn(&Value, &Value) -> std::result::Result<bool, String>;

/// Each expression that this server knows, and what it means.
const RULES: [(&str, Rule); 9] = [
    (
        "has(object.spec.subscriber.ref) != (has(object.spec.subscriber.uri) && isURL(object.spec.subscriber.uri) && \
         url(object.spec.subscriber.uri).getHost() != '')",
        |object, _| {
            let subscriber = key(key(object, "spec")?, "subscriber")?;
            Ok(has(subscriber, "ref") != subscriber["uri"].as_str().is_some_and(is_absolute))
        },
    ),
    (
        "!has(object.spec.filter) || !has(object.spec.filter.attributes) || !has(object.spec.filter.sourceAndType)",
        |object, _| {
            let filter = &key(object, "spec")?["filter"];
            Ok(!has(filter, "attributes") || !has(filter, "sourceAndType"))
        },
    ),
    (
        "!has(object.spec.filter) || !has(object.spec.filter.attributes) || \
         object.spec.filter.attributes.all(name, name.matches('^[a-z][a-z0-9]*$'))",
        |object, _| {
            let attributes = key(object, "spec")?["filter"]["attributes"].as_object();
            Ok(attributes.into_iter().flatten().all(|(name, _)| {
                name.starts_with(|c: char| c.is_ascii_lowercase())
                    && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
            }))
        },
    ),
    (
        "!has(oldObject.spec.broker) || oldObject.spec.broker == '' || (has(object.spec.broker) && object.spec.broker \
         == oldObject.spec.broker)",
        |object, old| is_kept(object, old, "broker"),
    ),
    ("object.spec.channel == oldObject.spec.channel", |object, old| {
        Ok(key(key(object, "spec")?, "channel")? == key(key(old, "spec")?, "channel")?)
    }),
    ("has(object.spec.subscriber) || has(object.spec.reply)", |object, _| {
        let spec = key(object, "spec")?;
        Ok(has(spec, "subscriber") || has(spec, "reply"))
    }),
    (
        "!has(object.spec.serviceClassRef) && !has(object.spec.servicePlanRef) && \
         !has(object.spec.clusterServiceClassRef) && !has(object.spec.clusterServicePlanRef)",
        |object, _| {
            let spec = key(object, "spec")?;
            let set =
                ["serviceClassRef", "servicePlanRef", "clusterServiceClassRef", "clusterServicePlanRef"];
            Ok(!set.iter().any(|name| has(spec, name)))
        },
    ),
    (
        "!has(oldObject.spec.externalID) || oldObject.spec.externalID == '' || (has(object.spec.externalID) && \
         object.spec.externalID == oldObject.spec.externalID)",
        |object, old| is_kept(object, old, "externalID"),
    ),
    (
        "object.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(object.metadata.name) <= 63",
        |object, _| {
            let name = metadata::text(object, "name");
            let starts = name.starts_with(|c: char| c.is_ascii_lowercase());
            Ok(starts && metadata::is_label(name) && name.len() <= 63)
        },
    ),
];

fn has(object: &Value, field: &str) -> bool {
    object.get(field).is_some_and(|value| !value.is_null())
}

fn key<'a>(object: &'a Value, field: &str) -> std::result::Result<&'a Value, String> {
    object.get(field).ok_or_else(|| format!("no such key: {field}"))
}

/// Whether a field of the spec, once it is set, stays as it is.
fn is_kept(object: &Value, old: &Value, field: &str) -> std::result::Result<bool, String> {
    let was = &key(old, "spec")?[field];
    Ok(was.is_null() || was == "" || key(object, "spec")?[field] == *was)
}

/// A URL with scheme and host.
fn is_absolute(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        && !host.is_empty()
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
        && !host.chars().any(|c| "\"<>\\^`{}|".contains(c))
}

fn rule(expression: &str) -> Option<Rule> {
    RULES.iter().find(|(known, _)| *known == expression).map(|(_, rule)| *rule)
}

/// Refuses a policy or a binding that says something which this server would not do.
pub(crate) fn prepare_create(object: &Value) -> Result<()> {
    let spec = object["spec"].as_object();
    let known: &[&str] = if object["kind"] == "ValidatingAdmissionPolicy" {
        &["failurePolicy", "matchConstraints", "validations"]
    } else {
        &["policyName", "validationActions"]
    };
    if let Some((field, _)) = spec.into_iter().flatten().find(|(field, _)| !known.contains(&field.as_str())) {
        return Err(Status::not_simulated(format!("{field} of an admission policy")));
    }
    let actions = object["spec"].get("validationActions");
    if actions.is_some_and(|actions| *actions != json!(["Deny"])) {
        return Err(Status::not_simulated("an action of a policy other than Deny".to_owned()));
    }
    for validation in object["spec"]["validations"].as_array().into_iter().flatten() {
        let expression = validation["expression"].as_str().unwrap_or_default();
        if rule(expression).is_none() {
            return Err(Status::not_simulated(format!("the expression {expression}")));
        }
    }
    Ok(())
}

impl Server {
    /// Nothing can be made in a namespace that is not there, or that is being deleted.
    pub(crate) fn admit_into_namespace(&self, call: &Call<'_>, name: &str) -> Result<()> {
        let namespace = &call.place.namespace;
        if !call.resource.namespaced {
            return Ok(());
        }
        let table = (String::new(), "namespaces".to_owned());
        let found = self.store.get(&table, &(String::new(), namespace.clone()));
        let Some(found) = found else { return Err(Status::namespace_not_found(namespace)) };
        if found["status"]["phase"] != "Terminating" {
            return Ok(());
        }
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = json!({
            "reason": "NamespaceTerminating", "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        });
        let name = if name.is_empty() { "Unknown" } else { name };
        Err(Status::forbidden(&About::resource(call.resource, name), &why, vec![cause]))
    }

    /// Asks every policy that is bound.
    pub(crate) fn admit(
        &self,
        resource: &Resource,
        operation: Operation,
        subresource: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<()> {
        let table = |plural: &str| ("admissionregistration.k8s.io".to_owned(), plural.to_owned());
        if resource.group == "admissionregistration.k8s.io" {
            // Nobody can lock himself out of the policies.
            return Ok(());
        }
        let Some(bindings) = self.store.table(&table("validatingadmissionpolicybindings")) else {
            return Ok(());
        };
        let policies = table("validatingadmissionpolicies");
        for binding in bindings.objects.values() {
            let policy = binding["spec"]["policyName"].as_str().unwrap_or_default();
            let Some(policy) = self.store.get(&policies, &(String::new(), policy.to_owned())) else {
                continue;
            };
            if !is_about(policy, resource, operation, subresource) {
                continue;
            }
            for validation in policy["spec"]["validations"].as_array().into_iter().flatten() {
                let expression = validation["expression"].as_str().unwrap_or_default();
                let Some(rule) = rule(expression) else { continue };
                let why = match rule(object, old.unwrap_or(&Value::Null)) {
                    Ok(true) => continue,
                    Ok(false) => match validation["message"].as_str() {
                        Some(message) => message.to_owned(),
                        None => format!("failed expression: {expression}"),
                    },
                    Err(error) => format!("expression '{expression}' resulted in error: {error}"),
                };
                let why = format!(
                    "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {why}",
                    metadata::text(policy, "name"),
                    metadata::text(binding, "name"),
                );
                let causes = vec![json!({"message": why})];
                let about = About::resource(resource, metadata::text(object, "name"));
                return Err(Status::denied(422, "Invalid", &about, &why, causes));
            }
        }
        Ok(())
    }

    /// Quotas of numbers of objects.
    pub(crate) fn admit_quota(&self, resource: &Resource, object: &Value) -> Result<()> {
        let table = (String::new(), "resourcequotas".to_owned());
        let namespace = metadata::text(object, "namespace");
        let quotas = self.store.table(&table).into_iter().flat_map(|table| &table.objects);
        for ((_, quota), found) in quotas.filter(|((home, _), _)| home == namespace) {
            for (key, limit) in found["spec"]["hard"].as_object().into_iter().flatten() {
                let counted = key.strip_prefix("count/").unwrap_or(key);
                let own = if resource.group.is_empty() {
                    resource.plural.clone()
                } else {
                    format!("{}.{}", resource.plural, resource.group)
                };
                let limit = limit.as_str().map_or_else(|| limit.as_u64(), |text| text.parse().ok());
                let Some(limit) = limit else {
                    return Err(Status::not_simulated(format!("a quota of {key}")));
                };
                if counted != own {
                    continue;
                }
                let objects =
                    self.store.table(&resource.table).into_iter().flat_map(|table| table.objects.keys());
                let used = objects.filter(|(home, _)| home == namespace).count();
                if used as u64 >= limit {
                    let why = format!(
                        "exceeded quota: {quota}, requested: {key}=1, used: {key}={used}, limited: {key}={limit}"
                    );
                    let about = About::resource(resource, metadata::text(object, "name"));
                    return Err(Status::forbidden(&about, &why, Vec::new()));
                }
            }
        }
        Ok(())
    }
}

/// Whether a policy is about this kind of call.
fn is_about(policy: &Value, resource: &Resource, operation: Operation, subresource: &str) -> bool {
    let operation = match operation {
        Operation::Create => "CREATE",
        Operation::Update => "UPDATE",
    };
    let plural = if subresource.is_empty() {
        resource.plural.clone()
    } else {
        format!("{}/{subresource}", resource.plural)
    };
    let mut rules = policy["spec"]["matchConstraints"]["resourceRules"].as_array().into_iter().flatten();
    rules.any(|rule| {
        let has = |field: &str, wanted: &str| {
            rule[field].as_array().into_iter().flatten().any(|one| one == "*" || *one == wanted)
        };
        // Equivalent versions are meant too, so the version does not matter.
        has("apiGroups", &resource.group) && has("resources", &plural) && has("operations", operation)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_uri_with_scheme_and_host_is_absolute() {
        for (text, absolute) in [
            ("http://a.b:8080/", true),
            ("https://a", true),
            ("http:///path", false),
            ("nowhere", false),
            ("/path", false),
            ("http://a b", false),
        ] {
            assert_eq!(is_absolute(text), absolute, "{text}");
        }
    }
}
