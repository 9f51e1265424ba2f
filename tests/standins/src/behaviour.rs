//! How the stand-ins behave, and how they misbehave when told to.

use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::kinds::Kind;
use crate::seed::{INTEGRATION, SYSTEM};

/// The controllers that can be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Controller {
    /// HTTPSource, with its Channel and its Knative Service.
    HttpSource,
    /// Legacy Subscription.
    Subscription,
    /// The Event Bus' activation of a source in a namespace.
    EventActivation,
    /// The Service Catalog: `ServiceInstance`s.
    ServiceCatalog,
    /// The broker that the Service Catalog asks; played as a part of it, so it can be stopped but not run alone.
    ApplicationBroker,
    /// Knative's Broker, and its injection into labelled namespaces.
    Broker,
    /// Knative's Trigger.
    Trigger,
    /// Knative's Subscription.
    KnativeSubscription,
    /// Rolls the event services of Applications.
    ApplicationOperator,
    /// Says that pods run, on API servers without nodes; only with `play_pods`.
    Kubelet,
    /// Widget of the fixture family.
    Widget,
    /// Gadget of the fixture family.
    Gadget,
}

/// What the application-broker does besides answering; it changed from release to release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BrokerRelease {
    /// Makes an `EventActivation` that its `ServiceInstance` owns. Knows nothing of the mesh.
    #[value(name = "before-mesh")]
    BeforeMesh,
    /// Also links the namespace to the mesh.
    #[value(name = "1.10")]
    V1_10,
    /// The `EventActivation` has no owner; it is deleted with the last `ServiceInstance` of its service.
    #[value(name = "1.11")]
    V1_11,
}

/// What the stand-ins do. All of it but `controllers` and `concurrency` can be changed while they run.
///
/// Where a list names objects, an entry is `NAME` or `NAMESPACE/NAME`, and a `*` at its end stands for any rest. With
/// `KIND:` before it, it names objects of that kind only.
// Each switch is a way to misbehave of its own, and any of them may be combined: they are no hidden state machine.
#[allow(clippy::struct_excessive_bools)]
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// Controllers to run; all when none is named. Read once, at the start.
    #[arg(long = "controller", value_enum, value_delimiter = ',', value_name = "NAME")]
    pub controllers: Vec<Controller>,

    /// Act in these namespaces only; everywhere when none is named.
    #[arg(long = "only-namespace", value_delimiter = ',', value_name = "NAMESPACE")]
    pub namespaces: Vec<String>,

    /// Do nothing at all.
    #[arg(long)]
    pub paused: bool,

    /// Controllers that are dead at the moment, though they were started.
    #[arg(long = "stopped", value_enum, value_delimiter = ',', value_name = "NAME")]
    pub stopped: Vec<Controller>,

    /// Namespace of the system's own workloads.
    #[arg(long, default_value = SYSTEM, value_name = "NAMESPACE")]
    pub system: String,

    /// Namespace of what belongs to Applications.
    #[arg(long, default_value = INTEGRATION, value_name = "NAMESPACE")]
    pub integration: String,

    /// How long each thing takes to become Ready, and a `ServiceInstance` to be provisioned.
    #[arg(long, default_value = "0", value_parser = duration, value_name = "TIME")]
    pub delay: Duration,

    /// How long a deleted object is held by its finalizer.
    #[arg(long, default_value = "500ms", value_parser = duration, value_name = "TIME")]
    pub finalizer_delay: Duration,

    /// Objects that never become Ready, and say why; an HTTPSource because its adapter does not.
    #[arg(long = "never-ready", value_delimiter = ',', value_name = "OBJECT")]
    pub never_ready: Vec<String>,

    /// Triggers that become Ready, then are not for a while, and then are again.
    #[arg(long = "flap", value_delimiter = ',', value_name = "OBJECT")]
    pub flap: Vec<String>,

    /// Sources whose Channel never gets an address, and so never an adapter.
    #[arg(long = "channel-never-ready", value_delimiter = ',', value_name = "OBJECT")]
    pub channel_never_ready: Vec<String>,

    /// Sources whose Channel is deleted once the adapter exists, and not made again.
    #[arg(long = "lose-channel", value_delimiter = ',', value_name = "OBJECT")]
    pub lose_channel: Vec<String>,

    /// Objects whose finalizer is never taken off: their deletion hangs.
    #[arg(long = "hold-finalizer", value_delimiter = ',', value_name = "OBJECT")]
    pub hold_finalizer: Vec<String>,

    /// Only the writes that make things Ready: a source without adapter, a Trigger without a Subscription of its own,
    /// no word of what is still in progress, and no finalizer on Knative's Subscriptions.
    #[arg(long)]
    pub instant: bool,

    /// What the application-broker does. A namespace's annotation `standins.belay.dev/broker-release` overrides it.
    #[arg(long, value_enum, default_value_t = BrokerRelease::V1_10, value_name = "RELEASE")]
    pub broker_release: BrokerRelease,

    /// `ServiceInstance`s whose provisioning fails, for good.
    #[arg(long = "refuse", value_delimiter = ',', value_name = "OBJECT")]
    pub refuse: Vec<String>,

    /// `ServiceInstance`s that the broker never deprovisions: it says that it failed.
    #[arg(long = "refuse-deprovision", value_delimiter = ',', value_name = "OBJECT")]
    pub refuse_deprovision: Vec<String>,

    /// `ServiceInstance`s that are Provisioned without a link to the mesh.
    #[arg(long = "no-link", value_delimiter = ',', value_name = "OBJECT")]
    pub no_link: Vec<String>,

    /// `ServiceInstance`s that are Provisioned without an `EventActivation`.
    #[arg(long = "no-activation", value_delimiter = ',', value_name = "OBJECT")]
    pub no_activation: Vec<String>,

    /// `ServiceInstance`s whose provisioning makes two links.
    #[arg(long = "two-links", value_delimiter = ',', value_name = "OBJECT")]
    pub two_links: Vec<String>,

    /// Links that never become Ready, as `NAMESPACE/APPLICATION`.
    #[arg(long = "link-never-ready", value_delimiter = ',', value_name = "LINK")]
    pub link_never_ready: Vec<String>,

    /// The broker takes no care: provisions of the same Application and namespace at the same time make a link each,
    /// and a link that is still going counts as one that is there.
    #[arg(long)]
    pub race_links: bool,

    /// Links have the name `brokersub-NAMESPACE-APPLICATION` instead of a random one, for tests that compare.
    #[arg(long)]
    pub steady_names: bool,

    /// A labelled namespace gets its Broker once, and not again when somebody deletes it.
    #[arg(long)]
    pub inject_once: bool,

    /// The Event Bus only acts while this Deployment, `NAMESPACE/NAME`, has replicas.
    #[arg(long, value_name = "DEPLOYMENT")]
    pub bus_deployment: Option<String>,

    /// Each legacy Subscription that delivers has a Knative Subscription in the system namespace.
    #[arg(long)]
    pub bus_objects: bool,

    /// How long the application-operator takes to roll event services after its own change.
    #[arg(long, default_value = "0", value_parser = duration, value_name = "TIME")]
    pub rollout_delay: Duration,

    /// Applications whose event service is never rolled.
    #[arg(long = "never-rolled", value_delimiter = ',', value_name = "APPLICATION")]
    pub never_rolled: Vec<String>,

    /// Say that pods run. For API servers without nodes.
    #[arg(long)]
    pub play_pods: bool,

    /// Pods, by the start of their name, that crash again and again from their start; where pods are played.
    #[arg(long = "crash-loop", value_delimiter = ',', value_name = "POD")]
    pub crash_loop: Vec<String>,

    /// Leave `status.observedGeneration` out, as the source controller of the time did.
    #[arg(long)]
    pub no_observed_generation: bool,

    /// Delete what a deleted HTTPSource owned; for API servers that run without a garbage collector.
    #[arg(long)]
    pub collect_garbage: bool,

    /// Objects of one controller that are worked on at the same time. Read once, at the start.
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub concurrency: u16,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            controllers: Vec::new(),
            namespaces: Vec::new(),
            paused: false,
            stopped: Vec::new(),
            system: SYSTEM.to_owned(),
            integration: INTEGRATION.to_owned(),
            delay: Duration::ZERO,
            finalizer_delay: Duration::from_millis(500),
            never_ready: Vec::new(),
            flap: Vec::new(),
            channel_never_ready: Vec::new(),
            lose_channel: Vec::new(),
            hold_finalizer: Vec::new(),
            instant: false,
            broker_release: BrokerRelease::V1_10,
            refuse: Vec::new(),
            refuse_deprovision: Vec::new(),
            no_link: Vec::new(),
            no_activation: Vec::new(),
            two_links: Vec::new(),
            link_never_ready: Vec::new(),
            race_links: false,
            steady_names: false,
            inject_once: false,
            bus_deployment: None,
            bus_objects: false,
            rollout_delay: Duration::ZERO,
            never_rolled: Vec::new(),
            play_pods: false,
            crash_loop: Vec::new(),
            no_observed_generation: false,
            collect_garbage: false,
            concurrency: 32,
        }
    }
}

impl Behaviour {
    /// Whether this controller is to be started.
    #[must_use]
    pub fn plays(&self, controller: Controller) -> bool {
        self.controllers.is_empty() || self.controllers.contains(&controller)
    }

    /// Whether objects of this namespace are looked after at the moment.
    #[must_use]
    pub fn acts_in(&self, namespace: &str) -> bool {
        !self.paused && (self.namespaces.is_empty() || self.namespaces.iter().any(|n| n == namespace))
    }
}

/// Whether one of the entries names the object.
#[must_use]
pub fn names(entries: &[String], kind: &Kind, namespace: &str, name: &str) -> bool {
    if entries.is_empty() {
        return false;
    }
    let full = format!("{namespace}/{name}");
    entries.iter().any(|entry| {
        let entry = match entry.split_once(':') {
            Some((of, _)) if of != kind.kind => return false,
            Some((_, rest)) => rest,
            None => entry,
        };
        let subject = if entry.contains('/') { full.as_str() } else { name };
        entry.strip_suffix('*').map_or(subject == entry, |start| subject.starts_with(start))
    })
}

/// Reads `250ms`, `2s`, `3m`, or a bare number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| format!("'{text}' is not a time like 250ms, 2s or 3m"))?;
    match &text[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number)),
        "" | "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        unit => Err(format!("'{unit}' is not a unit of time; use ms, s or m")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::WIDGET;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        behaviour: Behaviour,
    }

    #[test]
    fn no_flags_are_the_default() {
        assert_eq!(Line::parse_from(["standins"]).behaviour, Behaviour::default());
    }

    #[test]
    fn flags_are_understood() {
        let line = Line::parse_from([
            "standins",
            "--controller=widget,http-source",
            "--delay=250ms",
            "--never-ready=a",
            "--never-ready=ns/b*",
            "--never-ready=Widget:w,Gadget:g",
            "--only-namespace=one",
        ]);
        let b = line.behaviour;
        assert!(
            b.plays(Controller::Widget) && b.plays(Controller::HttpSource) && !b.plays(Controller::Gadget)
        );
        assert_eq!(b.delay, Duration::from_millis(250));
        assert!(b.acts_in("one") && !b.acts_in("two"));
        let named = |namespace, name| names(&b.never_ready, &WIDGET, namespace, name);
        assert!(named("x", "a") && named("ns", "bc") && named("x", "w"));
        assert!(!named("other", "bc") && !named("ns", "ab") && !named("x", "g"));
    }

    #[test]
    fn a_paused_stand_in_acts_nowhere() {
        assert!(!Behaviour { paused: true, ..Behaviour::default() }.acts_in("one"));
    }

    #[test]
    fn times_are_read_and_refused() {
        assert_eq!(duration("3m"), Ok(Duration::from_secs(180)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        assert!(duration("soon").is_err() && duration("3h").is_err() && duration("").is_err());
    }
}
