//! Whether the API server in memory answers as a real one does, row by row: see `simulation::conformance`.
//!
//! The real one is that of `BELAY_TEST_KUBECONFIG`. Without it the simulation is compared with what was recorded.

use simulation::conformance::{Shape, covers, run::check, table};

macro_rules! subjects {
    ($($test:ident: $subject:literal,)*) => {
        $(
            #[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                check($subject, &table::subject($subject)).await
            }
        )*

        #[test]
        fn every_subject_has_a_test() {
            let tested = [$($subject),*];
            let known: Vec<_> = table::subjects().into_iter().map(|(name, _)| name).collect();
            assert_eq!(known, tested);
        }
    };
}

subjects! {
    who_may_what_is_answered_alike: "access",
    server_side_apply_is_answered_alike: "applying",
    creates_are_answered_alike: "creating",
    custom_resource_definitions_are_answered_alike: "definitions",
    deletes_are_answered_alike: "deleting",
    discovery_is_answered_alike: "discovery",
    managed_fields_are_kept_alike: "fields",
    lists_are_answered_alike: "listing",
    namespaces_are_answered_alike: "namespaces",
    what_is_owned_goes_alike: "owners",
    patches_are_answered_alike: "patching",
    admission_policies_refuse_alike: "policies",
    refusals_are_worded_alike: "refusals",
    schemas_are_enforced_alike: "schemas",
    updates_are_answered_alike: "updating",
    watches_are_answered_alike: "watching",
    workloads_are_answered_alike: "workloads",
}

#[test]
fn the_names_of_cases_are_theirs_alone_within_a_subject() {
    for (subject, cases) in table::subjects() {
        let mut names: Vec<_> = cases.iter().map(|case| case.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count, "{subject}");
    }
}

#[test]
fn the_table_has_what_every_step_does() {
    let shape = |verb, kind: &str, subresource: &str, status| Shape {
        verb,
        kind: kind.to_owned(),
        subresource: subresource.to_owned(),
        status,
    };
    for sort in [
        shape("get", "discovery", "", 200),
        shape("get", "discovery", "", 404),
        shape("create", "selfsubjectaccessreviews.authorization.k8s.io", "", 201),
        shape("create", "leases.coordination.k8s.io", "", 201),
        shape("update", "leases.coordination.k8s.io", "", 409),
        shape("update", "secrets", "", 200),
        shape("create", "events.events.k8s.io", "", 201),
        shape("merge-patch", "deployments.apps", "scale", 200),
        shape("json-patch", "configmaps", "", 422),
        shape("delete", "custom", "", 409),
        shape("watch", "custom", "", 200),
        shape("list", "custom", "", 404),
    ] {
        assert!(covers(&sort), "{sort:?}");
    }
}
