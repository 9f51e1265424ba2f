//! The one clock of a run. Everything that depends on time asks it, and it is handed to the run: a test can have a run
//! that is less patient, and two runs in one process can each have their own.

#![expect(clippy::disallowed_methods, reason = "everybody else asks this clock")]

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;

/// The times of a machine besides that by which tokio waits.
pub trait Time: fmt::Debug + Send + Sync {
    /// Time since the machine was started, asleep or not.
    fn since_boot(&self) -> Duration;

    /// The time of day, which may jump.
    fn wall(&self) -> Timestamp;

    /// For how long the process has stood still, while the clock by which tokio waits went on. On a machine that sleeps
    /// both stand still.
    fn slept(&self) -> Duration {
        Duration::ZERO
    }
}

/// The times of the machine on which the program runs.
#[derive(Debug)]
struct ThisMachine;

impl Time for ThisMachine {
    fn since_boot(&self) -> Duration {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let id = rustix::time::ClockId::Boottime;
        // Elsewhere the monotonic clock goes on while the machine sleeps.
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let id = rustix::time::ClockId::Monotonic;
        let time = rustix::time::clock_gettime(id);
        Duration::new(
            u64::try_from(time.tv_sec).unwrap_or_default(),
            u32::try_from(time.tv_nsec).unwrap_or_default(),
        )
    }

    fn wall(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// What a run knows of time. A copy is the same clock.
#[derive(Clone, Debug)]
pub struct Clock {
    time: Arc<dyn Time>,
    #[cfg(debug_assertions)]
    orders: testing::Orders,
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(Arc::new(ThisMachine))
    }
}

impl Clock {
    /// A clock that shows these times.
    #[must_use]
    pub fn new(time: Arc<dyn Time>) -> Self {
        Self {
            time,
            #[cfg(debug_assertions)]
            orders: testing::Orders::default(),
        }
    }

    /// The clock of the machine on which the program runs. A debug build lets tests shorten its patience.
    #[must_use]
    pub fn of_this_machine() -> Self {
        #[cfg(debug_assertions)]
        return Self { orders: testing::Orders::from_environment(), ..Self::default() };
        #[cfg(not(debug_assertions))]
        Self::default()
    }

    /// Monotonic time, which stands still while the machine sleeps: for deadlines and waits.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::now() - self.time.slept()
    }

    /// How long ago that was.
    #[must_use]
    pub fn since(&self, then: Instant) -> Duration {
        self.now().saturating_duration_since(then)
    }

    /// Time since the machine was started, asleep or not: for what others count on while we sleep.
    #[must_use]
    pub fn since_boot(&self) -> Duration {
        self.time.since_boot()
    }

    /// The time of day, which may jump: for what people read, and for times that the cluster tells.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        self.time.wall()
    }

    /// The time of day in seconds, as Kubernetes writes it.
    #[must_use]
    pub fn timestamp(&self) -> String {
        self.wall().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// The time of day in microseconds, as Leases and Events have it.
    #[must_use]
    pub fn timestamp_micros(&self) -> String {
        self.wall().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
    }

    /// Sleeps.
    pub async fn sleep(&self, time: Duration) {
        self.sleep_until(self.now() + time).await;
    }

    /// Sleeps until then.
    pub async fn sleep_until(&self, then: Instant) {
        loop {
            let slept = self.time.slept();
            tokio::time::sleep_until(then + slept).await;
            // A process that stood still meanwhile has waited for less.
            if self.time.slept() == slept {
                return;
            }
        }
    }

    /// What comes of a future, or none if it takes longer.
    pub async fn within<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            output = future => Some(output),
            () = self.sleep(time) => None,
        }
    }

    /// How long to be patient, where nothing but patience depends on it: another duration would be right too, and only
    /// find fewer troubles that pass by themselves.
    #[must_use]
    pub fn patience(&self, full: Duration) -> Duration {
        #[cfg(debug_assertions)]
        return self.orders.patience().map_or(full, |most| full.min(most));
        #[cfg(not(debug_assertions))]
        full
    }

    /// Whether this deadline has passed.
    #[must_use]
    pub fn is_past(&self, deadline: Instant) -> bool {
        #[cfg(debug_assertions)]
        if self.orders.deadline_is_now() {
            return true;
        }
        self.now() >= deadline
    }

    /// Whether an answer bears a test's order that the deadline is now. From then on it is.
    #[cfg(debug_assertions)]
    pub(crate) fn obey(&self, answer: &http::HeaderMap) -> bool {
        self.orders.obey(answer)
    }
}

/// What tests may order, in debug builds alone.
#[cfg(debug_assertions)]
mod testing {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        time::Duration,
    };

    /// The variable that says how many seconds patience lasts at most.
    const PATIENCE: &str = "BELAY_TEST_PATIENCE";
    /// The header of an answer that says that the deadline is now: a test that waits for a deadline only waits.
    const DEADLINE: &str = "belay-test-deadline";

    #[derive(Clone, Debug, Default)]
    pub(super) struct Orders {
        patience: Option<Duration>,
        deadline_is_now: Arc<AtomicBool>,
    }

    impl Orders {
        pub(super) fn from_environment() -> Self {
            Self::parse(std::env::var(PATIENCE).ok().as_deref())
        }

        fn parse(patience: Option<&str>) -> Self {
            let seconds = patience.and_then(|text| text.parse().ok());
            Self {
                patience: seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
                ..Self::default()
            }
        }

        pub(super) fn patience(&self) -> Option<Duration> {
            self.patience
        }

        pub(super) fn deadline_is_now(&self) -> bool {
            self.deadline_is_now.load(Ordering::Relaxed)
        }

        pub(super) fn obey(&self, answer: &http::HeaderMap) -> bool {
            let ordered = answer.contains_key(DEADLINE);
            if ordered {
                self.deadline_is_now.store(true, Ordering::Relaxed);
            }
            ordered
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::clock::Clock;

        #[test]
        fn patience_is_never_longer_than_it_is_without_a_test() {
            let clock = |text| Clock { orders: Orders::parse(text), ..Clock::default() };
            let full = Duration::from_secs(15);
            assert_eq!(clock(None).patience(full), full);
            assert_eq!(clock(Some("nonsense")).patience(full), full);
            assert_eq!(clock(Some("-1")).patience(full), full);
            assert_eq!(clock(Some("0.3")).patience(full), Duration::from_millis(300));
            assert_eq!(clock(Some("60")).patience(full), full);
        }

        #[test]
        fn an_answer_can_say_that_the_deadline_is_now_and_every_copy_of_the_clock_knows() {
            let clock = Clock::default();
            let copy = clock.clone();
            let deadline = clock.now() + Duration::from_secs(60);
            let mut answer = http::HeaderMap::new();
            assert!(!clock.obey(&answer) && !copy.is_past(deadline));
            answer.insert(DEADLINE, http::HeaderValue::from_static("now"));
            assert!(clock.obey(&answer) && copy.is_past(deadline));
        }
    }
}
