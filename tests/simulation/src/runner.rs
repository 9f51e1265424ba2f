//! Runs a step as a process of a simulated world.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use belay_runtime::{Registered, lock::Holder, program::Told};
use futures::future::BoxFuture;
use harness::{Exit, Fault, Gateway, KillSwitch, Order, Outcome, Runner, StepCommand, Upstream};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};

use crate::{
    invariants,
    pod::Pod,
    process::{Node, Process},
    world::World,
};

/// Runs steps in a world.
#[derive(Clone)]
pub struct Simulated {
    /// The world.
    pub world: World,
    /// The machine on which they run that are in no pod.
    pub node: Arc<Node>,
    /// Whether none is in a pod, also where steps run in pods.
    pub outside: bool,
}

impl Runner for Simulated {
    fn run<'a>(&'a self, command: &'a StepCommand, faults: Vec<Fault>) -> BoxFuture<'a, Result<Outcome>> {
        Box::pin(self.run_with(command, |_| faults))
    }
}

/// The steps that a program holds.
fn steps_of(program: &str) -> Result<Vec<Registered>> {
    match program {
        "belay" => Ok(belay::steps()),
        "fixture-step" => Ok(vec![Registered::of::<fixture_step::Fixture>()]),
        other => bail!("the simulation does not know the program {other}"),
    }
}

impl Simulated {
    /// On the world's first machine.
    #[must_use]
    pub fn new(world: &World) -> Self {
        Self { world: world.clone(), node: world.node.clone(), outside: false }
    }

    /// Runs a step to its end. Its faults may depend on the process.
    pub async fn run_with(
        &self,
        command: &StepCommand,
        faults: impl FnOnce(&Arc<Process>) -> Vec<Fault>,
    ) -> Result<Outcome> {
        let (switch, orders) = KillSwitch::new();
        let started = Instant::now();
        self.world.begin_anew();
        let has_pod = self.world.runs_in_pods() && !self.outside;
        let pod = if has_pod { Pod::of(&self.world, command)? } else { None };
        let node = pod.as_ref().map_or(&self.node, |pod| &pod.node);
        let mut variables = command.env.clone();
        variables.extend(pod.iter().flat_map(Pod::variables));
        let process = self.world.processes.start(node, variables, self.world.draw_seed());
        self.world.meets(&process.who(), Holder::me(&*process));
        let upstream = Upstream::from_client(self.world.client(&process.who()));
        let mut faults = faults(&process);
        let (look, unlocked) = invariants::only_the_holder_writes(&self.world, &process);
        faults.splice(0..0, [look, invariants::only_what_a_server_takes(&self.world, &process)]);
        let gateway = Gateway::new(&upstream, faults, Some(switch));
        process.connect_by(gateway.client());
        let running = start(command, &process)?;
        let exit = mind(running, &process, orders, command.bound).await?;
        if let Some(pod) = pod {
            pod.ended(exit == Exit::Code(0))?;
        }
        let duration = started.elapsed();
        let record = gateway.stop().await;
        unlocked.report(&self.world, &process, &record.calls);
        invariants::no_secret_is_told(&self.world, &process);
        if let Exit::Code(code) = exit {
            invariants::all_say_the_same(&self.world, &process, code, &record.calls);
        }
        Ok(Outcome {
            exit,
            stdout: String::new(),
            stderr: process.log(),
            calls: record.calls,
            struck: record.struck,
            held: record.held,
            landed: record.landed,
            duration,
            max_rss_kib: 0,
        })
    }
}

/// Starts the program in this process of the world.
fn start(command: &StepCommand, process: &Arc<Process>) -> Result<JoinHandle<u8>> {
    let program = command.program.to_str().context("a program's name is text")?;
    let steps = steps_of(program)?;
    let words = std::iter::once(program).chain(command.args.iter().map(String::as_str));
    let words = words.map(Into::into).collect();
    match operate::story(words, &steps, process.clone())? {
        Told::Text(text) => bail!("it only says:\n{text}"),
        Told::Story { story, .. } => Ok(tokio::task::spawn_local(process.scoped(story))),
    }
}

/// Waits for its end, and kills or interrupts it when asked to.
async fn mind(
    mut running: JoinHandle<u8>,
    process: &Process,
    mut orders: mpsc::Receiver<Order>,
    bound: Duration,
) -> Result<Exit> {
    let end = Instant::now() + bound;
    loop {
        tokio::select! {
            biased;
            Some(order) = orders.recv() => match order {
                Order::Kill(dead) => {
                    process.kill();
                    running.abort();
                    // It has ended when nothing of it is left.
                    let _ = (&mut running).await;
                    // Whoever asked may have gone; it is dead all the same.
                    let _ = dead.send(());
                    return Ok(Exit::Signal(9));
                }
                Order::Terminate(told) => {
                    process.terminate();
                    let _ = told.send(());
                }
            },
            code = &mut running => {
                process.kill();
                return Ok(Exit::Code(code.context("the step panicked")?.into()));
            }
            () = tokio::time::sleep_until(end) => {
                process.kill();
                running.abort();
                let _ = (&mut running).await;
                return Ok(Exit::TimedOut);
            }
        }
    }
}
