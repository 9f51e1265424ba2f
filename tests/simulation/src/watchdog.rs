//! Ends the program when a trial never ends. Time in a world is virtual, so one that takes minutes is caught in a loop in which
//! no time passes, and no limit of the trial's own would ever be reached.

use std::{
    sync::mpsc::{self, RecvTimeoutError, Sender},
    time::Duration,
};

/// A thousand times what a trial takes, also where nothing is optimised and the machine is busy.
const LIMIT: Duration = Duration::from_secs(240);

/// Watches until it is dropped.
pub struct Watchdog {
    _ended: Sender<()>,
}

impl Watchdog {
    /// Begins to watch. If it comes to that, `what` says what never ended.
    #[must_use]
    pub fn over(what: String) -> Self {
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || {
            if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                println!("{what}\n  it did not end within {} s", LIMIT.as_secs());
                std::process::exit(1);
            }
        });
        Self { _ended: sender }
    }
}
