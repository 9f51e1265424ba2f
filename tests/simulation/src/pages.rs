//! Lists in pages of one object each, and the token of every page that expires before the next one is asked for.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::{Result, ensure};
use harness::{Action, Call, Exit, Fault, Outcome, Scenario, crash::Lane};

use crate::{process::Process, runner::Simulated, server::Server, world::World};

/// What trials of this kind are called.
pub const NAME: &str = "page-expires";

/// How many further pages a run asks for.
pub async fn count<S: Scenario>(world: &World, lane: &Lane<S>) -> Result<usize> {
    let (run, asked) = in_pages(world, lane, None).await?;
    run.expect_exit(0)?;
    Ok(asked)
}

/// Lets the token expire with which a run asks for its n-th further page.
pub async fn expired<S: Scenario>(world: &World, lane: &Lane<S>, nth: usize) -> Result<()> {
    let (run, asked) = in_pages(world, lane, Some(nth)).await?;
    ensure!(asked >= nth, "it asked for {asked} further pages only:\n{}", run.tail(30));
    ensure!(run.exit == Exit::Code(0), "it should list anew, but ended with {}:\n{}", run.exit, run.tail(30));
    lane.done("after listing anew").await
}

/// A run whose lists come in pages of one object, and how many further pages it asked for.
async fn in_pages<S: Scenario>(
    world: &World,
    lane: &Lane<S>,
    expires: Option<usize>,
) -> Result<(Outcome, usize)> {
    lane.reset().await?;
    let asked = Arc::new(AtomicUsize::new(0));
    let faults = |process: &Arc<Process>| {
        world.set_page(&process.who(), 1);
        let (world, asked) = (world.clone(), asked.clone());
        vec![Fault::hook(move |call| {
            if asks_for_next_page(call) && Some(asked.fetch_add(1, Ordering::Relaxed) + 1) == expires {
                world.with_server(Server::expire_tokens);
            }
            Action::Forward
        })]
    };
    let command = lane.scenario.command(&lane.worker)?;
    let run = Simulated::new(world).run_with(&command, faults).await?;
    Ok((run, asked.load(Ordering::Relaxed)))
}

fn asks_for_next_page(call: &Call) -> bool {
    call.query.split('&').any(|part| part.starts_with("continue="))
}
