//! A trial: what goes wrong in a story, and what is known of it.

use std::{fmt, time::Duration};

use anyhow::{Result, bail, ensure};
use harness::{
    Exit, Scenario,
    call::writes_that_matter,
    crash::{Lane, Point},
};

use crate::{
    disturb::{Disturbance, disturbed},
    intervene::Kind,
    pages,
    respect::intervened,
    runner::Simulated,
    schedule::Schedule,
    world::World,
};

/// What is said of a trial that is listed as one that does not hold, and does.
pub const HOLDS_NOW: &str = "it holds now, and is still listed as known";

/// Longer than controllers and stand-ins are at work after the last write.
pub const AT_REST: Duration = Duration::from_secs(10);

/// Something that goes wrong, or several things.
#[derive(Clone, Debug)]
pub enum Trial {
    /// In a way that the crash harness knows too.
    Crash(Point),
    /// In a way that only a simulation can steer.
    Disturbed(Disturbance, Point),
    /// Somebody else writes.
    Intervened(Kind, Point),
    /// The token of its n-th further page expires.
    Paged(usize),
    /// Several things go wrong.
    Scheduled(Schedule),
}

impl fmt::Display for Trial {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crash(point) => write!(out, "{point}"),
            Self::Disturbed(disturbance, point) => {
                write!(out, "{} at {}", disturbance.name(point.mode), point.place)
            }
            Self::Intervened(kind, point) => write!(out, "{kind} at {}", point.place),
            Self::Paged(nth) => write!(out, "{} {nth}", pages::NAME),
            Self::Scheduled(schedule) => write!(out, "{schedule}"),
        }
    }
}

impl Trial {
    /// The way in which it goes wrong.
    #[must_use]
    pub fn mode(&self) -> String {
        match self {
            Self::Crash(point) => point.mode.to_string(),
            Self::Disturbed(disturbance, point) => disturbance.name(point.mode),
            Self::Intervened(kind, _) => kind.to_string(),
            Self::Paged(_) => pages::NAME.to_owned(),
            Self::Scheduled(_) => "schedule".to_owned(),
        }
    }

    /// What everything in its world is drawn from, where all else is drawn from this.
    #[must_use]
    pub fn seed(&self, of_others: u64) -> u64 {
        match self {
            Self::Scheduled(schedule) => schedule.seed,
            _ => of_others,
        }
    }

    /// How many faults are drawn for it.
    #[must_use]
    pub fn scheduled_faults(&self) -> usize {
        match self {
            Self::Scheduled(schedule) => schedule.faults(),
            _ => 0,
        }
    }

    /// Tries it in this world; an error says what does not hold.
    pub async fn run<S: Scenario>(&self, world: &World, lane: &Lane<S>) -> Result<()> {
        let was_idle = self.attempt(world, lane).await?;
        // What was judged must not be a moment on the way to something else. Only what is being deleted still goes.
        let mut judged = lane.read().await?;
        tokio::time::sleep(AT_REST).await;
        let mut later = lane.read().await?;
        judged.objects.retain(|key, object| {
            let stays = object.pointer("/metadata/deletionTimestamp").is_none();
            if !stays {
                later.objects.remove(key);
            }
            stays
        });
        let changed = judged.diff(&later);
        ensure!(changed.is_empty(), "it was not at rest:\n{changed}");
        if was_idle { Ok(()) } else { nothing_to_do(world, lane).await }
    }

    /// Returns whether the last run had nothing to do any more, or that was judged already.
    async fn attempt<S: Scenario>(&self, world: &World, lane: &Lane<S>) -> Result<bool> {
        match self {
            Self::Crash(point) => match lane.try_point(point).await {
                Ok(held) => Ok(held.was_idle),
                Err(failure) => {
                    bail!("{}{}", failure.call.map(|call| call + "\n").unwrap_or_default(), failure.why)
                }
            },
            Self::Disturbed(disturbance, point) => disturbed(world, lane, *disturbance, point).await,
            // Where somebody else writes, it depends on what they wrote whether something is left to do.
            Self::Intervened(kind, point) => intervened(world, lane, *kind, point).await.map(|()| true),
            Self::Paged(nth) => pages::expired(world, lane, *nth).await.map(|()| false),
            Self::Scheduled(schedule) => schedule.play(world, lane).await.map(|()| true),
        }
    }
}

/// A run of a step that is done finds nothing to do.
async fn nothing_to_do<S: Scenario>(world: &World, lane: &Lane<S>) -> Result<()> {
    let command = lane.scenario.command(&lane.worker)?;
    let run = Simulated::new(world).run_with(&command, |_| Vec::new()).await?;
    let writes: Vec<String> = writes_that_matter(&run.calls).iter().map(ToString::to_string).collect();
    ensure!(
        run.exit == Exit::Code(0) && writes.is_empty(),
        "one more run should find nothing to do: {}\n{}\n{}",
        run.exit,
        writes.join("\n"),
        run.tail(30)
    );
    Ok(())
}
