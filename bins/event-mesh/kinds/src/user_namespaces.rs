//! Which namespaces are the users' own.

use crate::is_user_namespace;

/// Flags that say which namespaces are migrated.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct UserNamespaces {
    /// Leave this namespace alone, besides those of the system. May be repeated.
    #[arg(
        long = "exclude-namespace",
        env = "BELAY_EXCLUDE_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    pub exclude_namespaces: Vec<String>,
    /// Migrate this namespace and no other. May be repeated.
    #[arg(
        long = "only-namespace",
        env = "BELAY_ONLY_NAMESPACES",
        value_delimiter = ',',
        value_name = "NAMESPACE"
    )]
    pub only_namespaces: Vec<String>,
}

impl UserNamespaces {
    /// Whether a namespace is migrated.
    #[must_use]
    pub fn contain(&self, namespace: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == namespace);
        is_user_namespace(namespace)
            && !named(&self.exclude_namespaces)
            && (self.only_namespaces.is_empty() || named(&self.only_namespaces))
    }

    /// Why a namespace is not migrated, if it is not.
    #[must_use]
    pub fn why_not(&self, namespace: &str) -> Option<&'static str> {
        if self.contain(namespace) {
            None
        } else if !is_user_namespace(namespace) {
            Some("is in a namespace of the system")
        } else {
            Some("is in a namespace that was left out by --exclude-namespace or --only-namespace")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespaces_of_the_system_are_never_migrated_and_others_unless_left_out() {
        let all = UserNamespaces::default();
        assert!(all.contain("orders") && !all.contain("kyma-system") && !all.contain("natss"));
        let but_one =
            UserNamespaces { exclude_namespaces: vec!["orders".into()], ..UserNamespaces::default() };
        assert!(!but_one.contain("orders") && but_one.contain("billing"));
        let named = vec!["orders".into(), "kyma-system".into()];
        let only = UserNamespaces { only_namespaces: named, ..UserNamespaces::default() };
        assert!(only.contain("orders") && !only.contain("billing") && !only.contain("kyma-system"));
        assert!(only.why_not("billing").is_some() && only.why_not("orders").is_none());
    }
}
