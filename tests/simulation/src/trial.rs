//! A trial: what goes wrong in a story, and what is known of it.

use std::{fmt, time::Duration};

use anyhow::{Result, bail, ensure};
use harness::{
    Scenario,
    crash::{Lane, Point},
};

use crate::{
    disturb::{Disturbance, disturbed},
    intervene::Kind,
    known::known,
    pages,
    respect::intervened,
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
            Self::Disturbed(disturbance, point) => write!(out, "{disturbance} at {}", point.place),
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
            Self::Disturbed(disturbance, _) => disturbance.to_string(),
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
        self.attempt(world, lane).await?;
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
        Ok(())
    }

    async fn attempt<S: Scenario>(&self, world: &World, lane: &Lane<S>) -> Result<()> {
        match self {
            Self::Crash(point) => match lane.try_point(point).await {
                Ok(_) => Ok(()),
                Err(failure) => {
                    bail!("{}{}", failure.call.map(|call| call + "\n").unwrap_or_default(), failure.why)
                }
            },
            Self::Disturbed(disturbance, point) => disturbed(world, lane, *disturbance, point).await,
            Self::Intervened(kind, point) => intervened(world, lane, *kind, point).await,
            Self::Paged(nth) => pages::expired(world, lane, *nth).await,
            Self::Scheduled(schedule) => schedule.play(world, lane).await,
        }
    }

    /// What came of it, where some are known not to hold yet.
    pub fn judged(&self, scenario: &str, tried: Result<()>) -> Result<()> {
        match (known(scenario, &self.to_string()), tried) {
            (None, tried) => tried,
            (Some(_), Err(_)) => Ok(()),
            (Some(why), Ok(())) => bail!("{HOLDS_NOW}: {why}"),
        }
    }
}
