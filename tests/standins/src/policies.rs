//! The rules that webhooks of the real system enforced, as admission policies: they are refused by the API server itself,
//! also where no stand-in runs. What those webhooks *changed* on the way in is done by the stand-ins a moment later.

use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::try_join_all;
use kube::api::{DeleteParams, PostParams};
use kube::{Client, api::DynamicObject};
use serde_json::{Value, json};

use crate::cluster::{apply, wait_until};
use crate::engine::MANAGER;
use crate::fixtures::{http_source, link, service_instance, trigger};
use crate::kinds::{
    KNATIVE_SERVICE, KNATIVE_SUBSCRIPTION, Kind, POLICY, POLICY_BINDING, SERVICE_INSTANCE, TRIGGER,
};

/// A policy is in force some time after it was created, on each API server for itself.
const IN_FORCE_WITHIN: Duration = Duration::from_secs(60);

struct Rule {
    expression: &'static str,
    message: &'static str,
}

struct Policy {
    name: &'static str,
    kind: Kind,
    operations: &'static [&'static str],
    rules: &'static [Rule],
    /// What it refuses, to see whether it is in force.
    refused: fn() -> Value,
}

const POLICIES: [Policy; 7] = [
    Policy {
        name: "triggers.standins.belay.dev",
        kind: TRIGGER,
        operations: &["CREATE", "UPDATE"],
        rules: &[
            Rule {
                expression: "has(object.spec.subscriber.ref) != (has(object.spec.subscriber.uri) && \
                    isURL(object.spec.subscriber.uri) && url(object.spec.subscriber.uri).getHost() != '')",
                message: "spec.subscriber needs a ref, or an absolute uri with scheme and host, and not both",
            },
            Rule {
                expression: "!has(object.spec.filter) || !has(object.spec.filter.attributes) || \
                    !has(object.spec.filter.sourceAndType)",
                message: "spec.filter has either attributes or sourceAndType",
            },
            Rule {
                expression: "!has(object.spec.filter) || !has(object.spec.filter.attributes) || \
                    object.spec.filter.attributes.all(name, name.matches('^[a-z][a-z0-9]*$'))",
                message: "names of attributes are lower-case letters and digits, a letter first",
            },
        ],
        refused: || trigger("probe", "default", "shop", "order", "nowhere"),
    },
    Policy {
        name: "trigger-broker.standins.belay.dev",
        kind: TRIGGER,
        operations: &["UPDATE"],
        rules: &[Rule {
            expression: "!has(oldObject.spec.broker) || oldObject.spec.broker == '' || \
                (has(object.spec.broker) && object.spec.broker == oldObject.spec.broker)",
            message: "spec.broker is immutable",
        }],
        refused: || Value::Null,
    },
    Policy {
        name: "subscription-channel.standins.belay.dev",
        kind: KNATIVE_SUBSCRIPTION,
        operations: &["UPDATE"],
        rules: &[Rule {
            expression: "object.spec.channel == oldObject.spec.channel",
            message: "spec.channel is immutable",
        }],
        refused: || Value::Null,
    },
    Policy {
        name: "subscription-subscriber.standins.belay.dev",
        kind: KNATIVE_SUBSCRIPTION,
        operations: &["CREATE", "UPDATE"],
        rules: &[Rule {
            expression: "has(object.spec.subscriber) || has(object.spec.reply)",
            message: "spec needs a subscriber or a reply",
        }],
        refused: || {
            let mut link = link("probe", "default", "shop", "default");
            link["spec"].as_object_mut().map(|spec| spec.remove("subscriber"));
            link
        },
    },
    Policy {
        name: "serviceinstances.standins.belay.dev",
        kind: SERVICE_INSTANCE,
        operations: &["CREATE"],
        rules: &[Rule {
            expression: "!has(object.spec.serviceClassRef) && !has(object.spec.servicePlanRef) && \
                !has(object.spec.clusterServiceClassRef) && !has(object.spec.clusterServicePlanRef)",
            message: "references to class and plan must not be present on create",
        }],
        refused: || {
            let mut instance = service_instance("probe", "default", "shop");
            instance["spec"]["serviceClassRef"] = json!({"name": "shop"});
            instance
        },
    },
    Policy {
        name: "serviceinstance-id.standins.belay.dev",
        kind: SERVICE_INSTANCE,
        operations: &["UPDATE"],
        rules: &[Rule {
            expression: "!has(oldObject.spec.externalID) || oldObject.spec.externalID == '' || \
                (has(object.spec.externalID) && object.spec.externalID == oldObject.spec.externalID)",
            message: "spec.externalID is immutable",
        }],
        refused: || Value::Null,
    },
    Policy {
        name: "knative-services.standins.belay.dev",
        kind: KNATIVE_SERVICE,
        operations: &["CREATE"],
        rules: &[Rule {
            expression: "object.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && \
                size(object.metadata.name) <= 63",
            message: "not a DNS 1035 label prefix",
        }],
        refused: || {
            let mut service = http_source("2probe", "default");
            service["apiVersion"] = KNATIVE_SERVICE.api_version().into();
            service["kind"] = KNATIVE_SERVICE.kind.into();
            service
        },
    },
];

/// Installs the policies and waits until they are in force. The CRDs must be installed.
pub async fn install(client: &Client) -> Result<()> {
    for policy in &POLICIES {
        for manifest in [policy.manifest(), policy.binding()] {
            apply(client, &manifest).await?;
        }
    }
    try_join_all(POLICIES.iter().map(|policy| policy.in_force(client))).await.map(drop)
}

/// Removes the policies.
pub async fn remove(client: &Client) -> Result<()> {
    for policy in &POLICIES {
        for kind in [POLICY_BINDING, POLICY] {
            match kind.everywhere(client).delete(policy.name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => {}
                other => drop(other?),
            }
        }
    }
    Ok(())
}

impl Policy {
    fn manifest(&self) -> Value {
        let validations: Vec<_> = self
            .rules
            .iter()
            .map(|rule| json!({"expression": rule.expression, "message": rule.message}))
            .collect();
        json!({
            "apiVersion": POLICY.api_version(),
            "kind": POLICY.kind,
            "metadata": {"name": self.name, "labels": {"app.kubernetes.io/managed-by": "standins"}},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [self.kind.group],
                    "apiVersions": [self.kind.version],
                    "operations": self.operations,
                    "resources": [self.kind.plural],
                }]},
                "validations": validations,
            },
        })
    }

    fn binding(&self) -> Value {
        json!({
            "apiVersion": POLICY_BINDING.api_version(),
            "kind": POLICY_BINDING.kind,
            "metadata": {"name": self.name, "labels": {"app.kubernetes.io/managed-by": "standins"}},
            "spec": {"policyName": self.name, "validationActions": ["Deny"]},
        })
    }

    /// Waits until what is to be refused is. Of a rule about updates nothing can be tried without an object.
    async fn in_force(&self, client: &Client) -> Result<()> {
        let manifest = (self.refused)();
        if manifest.is_null() {
            return Ok(());
        }
        let object: DynamicObject = serde_json::from_value(manifest).context("a probe is no object")?;
        let api = self.kind.within(client, "default");
        let params = PostParams { dry_run: true, field_manager: Some(MANAGER.to_owned()) };
        wait_until(&format!("{} is in force", self.name), IN_FORCE_WITHIN, || async {
            match api.create(&params, &object).await {
                Err(kube::Error::Api(status)) => Ok(status.message.contains(self.name)),
                Err(other) => Err(other.into()),
                Ok(_) => Ok(false),
            }
        })
        .await
    }
}
