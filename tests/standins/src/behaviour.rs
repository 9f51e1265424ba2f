//! How the stand-ins behave, and how they misbehave when told to.

use std::time::Duration;

use clap::{Args, ValueEnum};

/// The controllers that can be played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Controller {
    /// HTTPSource, with its Channel and its Knative Service.
    HttpSource,
    /// Legacy Subscription.
    Subscription,
    /// The Event Bus' activation of a source in a namespace.
    EventActivation,
    /// Widget of the fixture family.
    Widget,
    /// Gadget of the fixture family.
    Gadget,
}

/// What the stand-ins do. All of it but `controllers` and `concurrency` can be changed while they run.
///
/// Where a list names objects, an entry is `NAME` or `NAMESPACE/NAME`, and a `*` at its end stands for any rest.
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

    /// How long each Channel, adapter, Subscription, Widget and Gadget takes to become Ready.
    #[arg(long, default_value = "0", value_parser = duration, value_name = "TIME")]
    pub delay: Duration,

    /// How long a deleted object is held by its finalizer.
    #[arg(long, default_value = "500ms", value_parser = duration, value_name = "TIME")]
    pub finalizer_delay: Duration,

    /// Objects that never become Ready; an HTTPSource because its adapter does not.
    #[arg(long = "never-ready", value_delimiter = ',', value_name = "OBJECT")]
    pub never_ready: Vec<String>,

    /// Sources whose Channel never gets an address, and so never an adapter.
    #[arg(long = "channel-never-ready", value_delimiter = ',', value_name = "OBJECT")]
    pub channel_never_ready: Vec<String>,

    /// Sources whose Channel is deleted once the adapter exists, and not made again.
    #[arg(long = "lose-channel", value_delimiter = ',', value_name = "OBJECT")]
    pub lose_channel: Vec<String>,

    /// Objects whose finalizer is never taken off: their deletion hangs.
    #[arg(long = "hold-finalizer", value_delimiter = ',', value_name = "OBJECT")]
    pub hold_finalizer: Vec<String>,

    /// Per HTTPSource only the writes that make it Ready: Channel, its status, the source's status; no adapter.
    #[arg(long)]
    pub instant: bool,

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
            delay: Duration::ZERO,
            finalizer_delay: Duration::from_millis(500),
            never_ready: Vec::new(),
            channel_never_ready: Vec::new(),
            lose_channel: Vec::new(),
            hold_finalizer: Vec::new(),
            instant: false,
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
pub fn names(entries: &[String], namespace: &str, name: &str) -> bool {
    let full = format!("{namespace}/{name}");
    entries.iter().any(|entry| {
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
            "--only-namespace=one",
        ]);
        let b = line.behaviour;
        assert!(
            b.plays(Controller::Widget) && b.plays(Controller::HttpSource) && !b.plays(Controller::Gadget)
        );
        assert_eq!(b.delay, Duration::from_millis(250));
        assert!(b.acts_in("one") && !b.acts_in("two"));
        assert!(names(&b.never_ready, "x", "a") && names(&b.never_ready, "ns", "bc"));
        assert!(!names(&b.never_ready, "other", "bc") && !names(&b.never_ready, "ns", "ab"));
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
