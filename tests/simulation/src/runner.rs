//! Runs a step as a process of a simulated world.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use belay_runtime::{
    Registered,
    lock::{Holder, holder_of},
    program::Told,
};
use futures::future::BoxFuture;
use harness::{
    Action, Class, Exit, Fault, Gateway, KillSwitch, Name, Order, Outcome, Runner, StepCommand, Upstream,
};
use tokio::{sync::mpsc, task::JoinHandle, time::Instant};

use crate::{
    process::{Node, Process},
    world::World,
};

/// Runs steps in a world.
#[derive(Clone)]
pub struct Simulated {
    /// The world.
    pub world: World,
    /// The machine on which they run.
    pub node: Arc<Node>,
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
        Self { world: world.clone(), node: world.node.clone() }
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
        let process = self.world.processes.start(&self.node, command.env.clone(), self.world.draw_seed());
        let upstream = Upstream::from_client(self.world.client(&format!("pid {}", process.pid())));
        let mut faults = faults(&process);
        let (look, unlocked) = only_the_holder_writes(&self.world, &process);
        faults.insert(0, look);
        let gateway = Gateway::new(&upstream, faults, Some(switch));
        process.connect_by(gateway.client());
        let running = start(command, &process)?;
        let exit = mind(running, &process, orders, command.bound).await?;
        let duration = started.elapsed();
        let record = gateway.stop().await;
        // A machine may fall asleep between the last look at the lock and the call. What it asks for then is refused, since
        // what it has read is not so any more.
        let unlocked = unlocked.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for call in record.calls.iter().filter(|call| call.succeeded() && unlocked.contains(&call.named())) {
            self.world.violated(format!("{process:?} made {call} without the lock"));
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

/// The writes that a process sent while it did not hold the lock.
type Unlocked = Arc<Mutex<BTreeSet<Name>>>;

/// Looks at every write whether its sender holds the lock when it sends it.
fn only_the_holder_writes(world: &World, process: &Arc<Process>) -> (Fault, Unlocked) {
    let (world, me, unlocked) = (world.clone(), Holder::me(&**process), Unlocked::default());
    let found = unlocked.clone();
    let look = Fault::hook(move |call| {
        if call.is_write() && matches!(call.class, Class::Move | Class::Journal) {
            let leases = world.with_server(|server| server.list_raw("coordination.k8s.io", "leases"));
            if !leases.iter().filter_map(holder_of).any(|holder| holder == me) {
                found.lock().unwrap_or_else(PoisonError::into_inner).insert(call.named());
            }
        }
        Action::Forward
    });
    (look, unlocked)
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
