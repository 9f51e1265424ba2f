//! The flags that every step has. Each is also an environment variable, so that a chart can set it for all.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum, builder::BoolishValueParser};

use crate::{cluster::Access, host::Host, step::Meta};

/// Flags of every step.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Namespace of the Helm release that the step belongs to.
    #[arg(long, env = "BELAY_NAMESPACE", value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// Name of the Helm release that the step belongs to.
    #[arg(long, env = "BELAY_RELEASE", value_name = "NAME", default_value = "")]
    pub release: String,
    /// Namespace that keeps the family's lock, journals and reports [default: the family's own]
    #[arg(long, env = "BELAY_HOME", value_name = "NAMESPACE")]
    pub home: Option<String>,
    /// Flags that say which cluster.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Show what would be done, ask the server whether it would be accepted, and write nothing.
    #[arg(long, env = "BELAY_DRY_RUN", value_parser = BoolishValueParser::new())]
    pub dry_run: bool,
    /// How --dry-run shows the plan.
    #[arg(long, short, env = "BELAY_OUTPUT", value_enum, default_value = "text", value_name = "FORMAT")]
    pub output: Output,
    /// Time for going forward, from the Job's start [default: the step's own].
    #[arg(long, env = "BELAY_DEADLINE", value_parser = duration, value_name = "TIME")]
    pub deadline: Option<Duration>,
    /// Time kept for undo after the deadline [default: the step's own].
    #[arg(long, env = "BELAY_UNDO_RESERVE", value_parser = duration, value_name = "TIME")]
    pub undo_reserve: Option<Duration>,
    /// Calls in flight at the most.
    #[arg(long, env = "BELAY_CONCURRENCY", default_value_t = 32, value_name = "N",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub concurrency: u16,
    /// What is taken back when a chain fails: the whole step, or that chain alone.
    #[arg(long, env = "BELAY_ON_FAILURE", value_enum, default_value = "step", value_name = "WHAT")]
    pub on_failure: OnFailure,
    /// Leave this object alone. May be repeated.
    #[arg(long, env = "BELAY_EXCLUDE", value_delimiter = ',', value_parser = object_name,
          value_name = "KIND/[NAMESPACE/]NAME")]
    pub exclude: Vec<String>,
    /// Do again what the step's done record says was done.
    #[arg(long, env = "BELAY_AGAIN", value_parser = BoolishValueParser::new())]
    pub again: bool,
    /// How log lines look.
    #[arg(long, env = "BELAY_LOG_FORMAT", value_enum, default_value = "text", value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Print the rights that the step needs and exit.
    #[arg(long, env = "BELAY_PRINT_RBAC", value_parser = BoolishValueParser::new())]
    pub print_rbac: bool,
}

/// Flags that say which cluster.
#[derive(Args, Clone, Debug, Default)]
pub struct AccessArgs {
    /// Kubeconfig file [default: KUBECONFIG if it is set, else the pod's own account, else ~/.kube/config]
    #[arg(long, env = "BELAY_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig.
    #[arg(long, env = "BELAY_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

impl AccessArgs {
    /// Where the cluster is.
    #[must_use]
    pub fn access(&self) -> Access {
        Access { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}

/// How a plan is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What is taken back when a chain fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFailure {
    /// All that the step did.
    Step,
    /// What that chain did.
    Chain,
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Common {
    /// The family's home.
    #[must_use]
    pub fn home(&self, meta: &Meta) -> String {
        self.home.clone().unwrap_or_else(|| meta.default_home.to_owned())
    }

    /// What is wrong with the namespaces, if anything. Not asked where rights are printed: there a chart may put its own
    /// words in their place.
    pub(crate) fn mistake(&self) -> Option<String> {
        let named = [("--namespace", &self.namespace), ("--home", &self.home)];
        named.into_iter().find_map(|(flag, name)| {
            let name = name.as_deref().filter(|name| !is_namespace_name(name))?;
            Some(format!(
                "{flag} '{name}' is not the name of a namespace: write lower-case letters, digits and '-'"
            ))
        })
    }

    /// The namespace in which the step's Job runs.
    #[must_use]
    pub fn namespace(&self) -> String {
        self.namespace.clone().unwrap_or_else(|| "default".to_owned())
    }

    /// Without a flag, the namespace is that of the pod.
    pub(crate) fn complete(&mut self, host: &dyn Host) {
        self.namespace = self.namespace.take().or_else(|| host.variable("BELAY_POD_NAMESPACE"));
    }
}

/// No step needs as long, and a clock cannot count to any number.
const DAYS_AT_MOST: u64 = 7;

/// Parses `90`, `90s`, `3m` or `1h`; a bare number is seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3600),
        _ => (text, 1),
    };
    let seconds = match digits.parse::<u64>() {
        Ok(number) => number.saturating_mul(factor),
        Err(_) => return Err(format!("'{text}' is not a time: write 90, 90s, 3m or 1h")),
    };
    if seconds > DAYS_AT_MOST * 24 * 3600 {
        return Err(format!("'{text}' is longer than {DAYS_AT_MOST} days"));
    }
    Ok(Duration::from_secs(seconds))
}

pub(crate) fn is_namespace_name(text: &str) -> bool {
    let is_inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    let ends_well = bytes.first().is_some_and(is_inner) && bytes.last().is_some_and(is_inner);
    ends_well && bytes.len() <= 63 && bytes.iter().all(|byte| is_inner(byte) || *byte == b'-')
}

/// Parses `NAMESPACE/NAME`.
pub fn namespaced_name(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok((namespace.to_owned(), name.to_owned()))
        }
        _ => Err(format!("'{text}' does not name an object in a namespace: write NAMESPACE/NAME")),
    }
}

fn object_name(text: &str) -> Result<String, String> {
    let parts: Vec<&str> = text.split('/').collect();
    if (2..=3).contains(&parts.len()) && parts.iter().all(|part| !part.is_empty()) {
        Ok(text.to_owned())
    } else {
        Err(format!("'{text}' does not name an object: write KIND/NAME or KIND/NAMESPACE/NAME"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("3m"), Ok(Duration::from_secs(180)));
        assert_eq!(duration("168h"), Ok(Duration::from_secs(7 * 24 * 3600)));
        assert!(duration("169h").is_err() && duration("9999999999999999h").is_err());
        assert!(duration("soon").is_err() && duration("").is_err() && duration("-1").is_err());
    }

    #[test]
    fn every_flag_is_also_an_environment_variable() {
        let command = Common::augment_args(clap::Command::new("step"));
        let flags: Vec<_> = command.get_arguments().filter(|arg| arg.get_long().is_some()).collect();
        assert!(flags.len() > 10);
        for flag in flags {
            let variable = format!("BELAY_{}", flag.get_id().as_str().to_uppercase());
            assert_eq!(flag.get_env().and_then(|env| env.to_str()), Some(variable.as_str()));
        }
    }

    #[test]
    fn a_namespaced_name_has_two_parts() {
        assert_eq!(namespaced_name("a/b"), Ok(("a".to_owned(), "b".to_owned())));
        for wrong in ["a", "/b", "a/", "a/b/c", ""] {
            assert!(namespaced_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_namespace_has_a_name_that_the_server_would_take() {
        assert!(is_namespace_name("kyma-system") && is_namespace_name("7"));
        for wrong in ["", "a/b", "A", "-a", "a-", "a.b", &"a".repeat(64)] {
            assert!(!is_namespace_name(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_switch_is_set_by_one_as_well_as_by_true() {
        let parsed = |value: &str| {
            let command = Common::augment_args(clap::Command::new("step"));
            let flag = command.get_arguments().find(|arg| arg.get_id() == "dry_run").cloned();
            flag.map(|flag| flag.env(None::<&str>).default_missing_value(value.to_owned()))
                .map(|flag| clap::Command::new("step").arg(flag))
                .and_then(|command| command.try_get_matches_from(["step", "--dry-run"]).ok())
                .map(|matches| matches.get_flag("dry_run"))
        };
        assert_eq!((parsed("1"), parsed("true"), parsed("no")), (Some(true), Some(true), Some(false)));
        assert_eq!(parsed("perhaps"), None);
    }

    #[test]
    fn an_exclusion_names_a_kind_and_a_name() {
        assert!(object_name("Application/a").is_ok() && object_name("Deployment/ns/a").is_ok());
        assert!(
            object_name("a").is_err() && object_name("Kind//a").is_err() && object_name("a/b/c/d").is_err()
        );
    }
}
