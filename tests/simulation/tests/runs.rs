//! Whether each scenario's runs go alike on the API server in memory and on a real one: see `simulation::conformance::runs`.
//!
//! The real one is that of `BELAY_TEST_KUBECONFIG`, and must be nobody else's meanwhile. Without it the simulated runs are
//! made all the same: the conformance table must have a row for every sort of call in them.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result, ensure};
use crash_tests::Visitor;
use harness::{Scenario, crash::nothing_tried};
use simulation::{
    conformance::runs::{compared, tell, tell_on_real},
    explore::in_world,
};
use standins::cluster::TEST_KUBECONFIG;

/// One scenario at a time has the real server.
static SERVER: Mutex<()> = Mutex::new(());

struct One {
    name: &'static str,
    outcome: Option<Result<()>>,
}

impl Visitor for One {
    fn visit<S: Scenario>(&mut self, scenario: S) {
        if scenario.name() == self.name {
            self.outcome = Some(alike(Arc::new(scenario)));
        }
    }
}

fn alike<S: Scenario>(scenario: Arc<S>) -> Result<()> {
    let name = scenario.name().to_owned();
    let simulated = in_world(1, async |_, worker| tell(scenario.clone(), worker).await)?;
    let Some(kubeconfig) = std::env::var_os(TEST_KUBECONFIG).filter(|named| !named.is_empty()) else {
        return nothing_tried(&format!(
            "no API server (set {TEST_KUBECONFIG}) to compare the simulation with"
        ));
    };
    let _alone = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    let real = tell_on_real(&PathBuf::from(kubeconfig), scenario)?;
    let compared = compared(&real, &simulated);
    println!("{name}: {compared}");
    ensure!(
        compared.differences.is_empty(),
        "the runs differ in {} places:\n{}",
        compared.differences.len(),
        compared.differences.join("\n")
    );
    Ok(())
}

fn run(name: &'static str) -> Result<()> {
    let mut one = One { name, outcome: None };
    crash_tests::scenarios(&mut one);
    one.outcome.context("no such scenario")?
}

macro_rules! scenarios {
    ($($test:ident: $scenario:literal,)*) => {
        $(
            #[test]
            fn $test() -> Result<()> {
                run($scenario)
            }
        )*

        #[test]
        fn every_scenario_has_a_test() {
            struct Names(Vec<String>);
            impl Visitor for Names {
                fn visit<S: Scenario>(&mut self, scenario: S) {
                    self.0.push(scenario.name().to_owned());
                }
            }
            let mut names = Names(Vec::new());
            crash_tests::scenarios(&mut names);
            assert_eq!(names.0, [$($scenario),*]);
        }
    };
}

scenarios! {
    fixture_runs_alike: "fixture",
    recreate_service_instances_of_the_newer_broker_runs_alike: "recreate-service-instances-1.11",
    recreate_service_instances_runs_alike: "recreate-service-instances",
    recreate_triggers_runs_alike: "recreate-triggers",
    scale_down_legacy_runs_alike: "scale-down-legacy",
    retire_subscriptions_runs_alike: "retire-subscriptions",
    purge_legacy_runs_alike: "purge-legacy",
    create_missing_sources_runs_alike: "create-missing-sources",
    verify_event_services_runs_alike: "verify-event-services",
    restore_scale_down_legacy_runs_alike: "restore-scale-down-legacy",
}
