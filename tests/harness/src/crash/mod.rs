//! Crash at every call: every call of a step is a point at which things go wrong in every way there is; afterwards
//! the cluster must be as after an undisturbed run, or as before it, as [`expect`](crate::expect) says.
//!
//! A step brings a [`Scenario`]: how to put the cluster into the state from which it starts, and which objects
//! matter. A [`Suite`] of scenarios is the main function of a test. Scenarios are spread over all API servers named
//! in `BELAY_TEST_KUBECONFIGS`, a list of kubeconfigs separated by colons.
//!
//! - `mode`: the ways in which things go wrong;
//! - `point`: a call by name, and what happens to it;
//! - `sample`: which points a short run takes;
//! - `lane`: an API server with a scenario set up and its undisturbed runs made;
//! - `trial`: one point on a lane, from a clean cluster to the judgement;
//! - `queue`: which API server does what next;
//! - `tally`: what came of it;
//! - `suite`: the command line.
//!
//! A point is tried once. Whatever does not hold then is a failure, and so is a call that is not made: a machine that is
//! slow makes a run slow, and nothing else.

mod lane;
mod mode;
mod point;
mod queue;
mod sample;
mod suite;
mod tally;
mod trial;

use std::{any::Any, path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use serde_json::Value;

use crate::{
    api::{Api, Resource},
    call::Call,
    expect::{Allowed, Stage},
    gateway::Upstream,
    run::{Runner, StepCommand},
    state::Area,
};

pub use lane::{Lane, Writes};
pub use mode::Mode;
pub use point::{Place, Point, is_conditional};
pub use queue::drive;
pub use suite::Suite;
pub use tally::{Failure, Tally};

/// The variable that names the API servers.
pub const KUBECONFIGS: &str = "BELAY_TEST_KUBECONFIGS";
/// The variable with which a caller says that everything has been prepared: whatever cannot be tried is then a failure.
const REQUIRED: &str = "BELAY_TEST_REQUIRED";

/// What lives for as long as a lane does: stand-in controllers, for instance.
pub type Guard = Box<dyn Any + Send + Sync>;

/// A place to run a step: an API server that nobody else uses meanwhile.
#[derive(Clone)]
pub struct Worker {
    /// The number of the API server.
    pub server: usize,
    /// What runs a step against it.
    pub runner: Arc<dyn Runner>,
    /// The API server, for the scenario itself.
    pub api: Api,
}

impl Worker {
    /// A name for namespaces and for prefixes of cluster-scoped objects that no other suite uses.
    #[must_use]
    pub fn name(&self, base: &str) -> String {
        format!("{base}-crash")
    }
}

/// The objects of a kind in the whole cluster, all at one moment. Only a simulation can look at them like this.
pub type Objects<'a> = dyn Fn(&Resource) -> Vec<Value> + 'a;

/// A step, and a cluster on which it has something to do.
pub trait Scenario: Send + Sync + 'static {
    /// The step's name, and what tells two scenarios of a step apart.
    fn name(&self) -> &str;

    /// How the step is started.
    fn command(&self, worker: &Worker) -> Result<StepCommand>;

    /// The namespace where the step keeps lock, journal and report.
    fn home(&self, worker: &Worker) -> String;

    /// The objects that matter. They are compared, and nothing else is.
    fn areas(&self, worker: &Worker) -> Vec<Area>;

    /// Once per API server: CRDs, namespaces, whatever stays as it is.
    fn setup(&self, worker: &Worker) -> impl Future<Output = Result<()>> + Send;

    /// Starts the controllers around the step. They live until what it returns is dropped.
    fn standins(&self, worker: &Worker) -> Guard;

    /// Before every point, when areas and home are empty: makes the objects from which the step starts, and waits
    /// until they are as they shall be.
    fn fill(&self, worker: &Worker) -> impl Future<Output = Result<()>> + Send;

    /// Whether a move stands behind the point of no return.
    fn is_for_good(&self, _call: &Call) -> bool {
        false
    }

    /// Takes out of an object what differs between two runs that did the same, beyond what
    /// [`normalise`](crate::state::normalise) takes out.
    fn adjust(&self, _object: &mut Value) {}

    /// What must hold besides when the step is done: for objects that cannot be compared, since a step that is undone
    /// leaves others there than it found. An error says what does not hold.
    fn holds_in_the_end(&self, _worker: &Worker) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Why a move must not take effect at this moment, if so: what it depends on is not there yet, or what depends on its
    /// object still is.
    fn too_early(&self, _mv: &Call, _objects: &Objects<'_>) -> Option<String> {
        None
    }

    /// One more object that the step would migrate, for somebody to create during a run.
    fn newcomer(&self, _worker: &Worker) -> Option<(Resource, Value)> {
        None
    }

    /// How long controllers and stand-ins may take to come to rest after a run. Only what never does so costs as much.
    fn patience(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// Narrows or widens what a run may come to when a call fails for good.
    fn expect(&self, _call: &Call, _stage: Stage, ends: Vec<Allowed>) -> Vec<Allowed> {
        ends
    }

    /// The ways in which things go wrong.
    fn modes(&self) -> Vec<Mode> {
        Mode::ALL.to_vec()
    }
}

/// Which points are tried.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Only these modes, by name; empty: all.
    pub modes: Vec<String>,
    /// Only these calls, by the number or the name that `--show` prints; empty: all.
    pub calls: Vec<String>,
    /// A sample of at most so many, and of each mode at least one; none: all.
    pub sample: Option<usize>,
    /// What the sample is drawn by.
    pub seed: usize,
    /// Try nothing, print the calls of an undisturbed run and what may come of them if they fail.
    pub show: bool,
}

/// The API servers named in the environment.
pub async fn servers() -> Result<Vec<Upstream>> {
    let named = std::env::var(KUBECONFIGS).unwrap_or_default();
    if named.is_empty() {
        nothing_tried(&format!("no API server (set {KUBECONFIGS})"))?;
        return Ok(Vec::new());
    }
    let mut servers = Vec::new();
    for path in named.split(':') {
        ensure!(!path.is_empty(), "{KUBECONFIGS} is '{named}': one of the kubeconfigs has no name");
        servers.push(Upstream::from_kubeconfig(&PathBuf::from(path)).await?);
    }
    Ok(servers)
}

/// Says why nothing is tried. An error for a caller who has prepared everything: there, nothing tried is nothing proven.
pub fn nothing_tried(why: &str) -> Result<()> {
    ensure!(std::env::var_os(REQUIRED).is_none(), "{why}, and {REQUIRED} is set: nothing could be tried");
    println!("{why}: nothing tried");
    Ok(())
}
