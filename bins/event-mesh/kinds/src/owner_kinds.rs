//! Which kinds own what a step deletes.

use belay_runtime::Rule;

/// Flags that say which owners undo must be able to look up: a restored object refers to its owner by the uid that it has
/// then.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct OwnerKinds {
    /// A kind that owns what this step deletes: undo looks up which of its objects are there. May be repeated.
    #[arg(
        long = "owner-kind",
        env = "BELAY_OWNER_KINDS",
        value_delimiter = ',',
        value_parser = resource,
        value_name = "RESOURCE[.GROUP]"
    )]
    pub owner_kinds: Vec<(String, String)>,
}

impl OwnerKinds {
    /// The rights to look them up.
    pub fn rules(&self) -> impl Iterator<Item = Rule> {
        self.owner_kinds.iter().map(|(plural, group)| Rule {
            namespace: None,
            group: group.clone(),
            resource: plural.clone(),
            names: Vec::new(),
            verbs: vec!["get"],
        })
    }
}

/// A resource and its group, which is empty for what belongs to Kubernetes' core: `configmaps`, `deployments.apps`,
/// `functions.kubeless.io`.
fn resource(written: &str) -> Result<(String, String), String> {
    let (plural, group) = match written.split_once('.') {
        Some((plural, group)) if !group.is_empty() => (plural, group),
        None => (written, ""),
        Some(_) => ("", ""),
    };
    if plural.is_empty() {
        return Err(format!(
            "'{written}' does not name a resource: write RESOURCE.GROUP, or RESOURCE alone for one of the core group"
        ));
    }
    Ok((plural.to_owned(), group.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_has_a_group_of_any_form_or_is_of_the_core_group() {
        for (written, plural, group) in [
            ("functions.kubeless.io", "functions", "kubeless.io"),
            ("deployments.apps", "deployments", "apps"),
            ("configmaps", "configmaps", ""),
        ] {
            assert_eq!(resource(written), Ok((plural.to_owned(), group.to_owned())));
        }
        for wrong in ["", ".", ".apps", "deployments."] {
            assert!(resource(wrong).is_err_and(|why| why.contains("RESOURCE.GROUP")), "{wrong}");
        }
        let kinds = OwnerKinds { owner_kinds: vec![("configmaps".into(), String::new())] };
        let rule = kinds.rules().next().unwrap();
        assert_eq!(
            (rule.group.as_str(), rule.resource.as_str(), rule.verbs),
            ("", "configmaps", vec!["get"])
        );
    }
}
