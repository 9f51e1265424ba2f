//! Tells a run when its deadline is, so that no test waits for a clock.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use harness::{Action, Class, Fault};

/// The deadline of a run, which is when a test says so.
pub struct Deadline(Arc<AtomicBool>);

impl Deadline {
    /// What the run is started with, and what says that it is now.
    #[must_use]
    pub fn told() -> (Fault, Self) {
        let due = Arc::new(AtomicBool::new(false));
        let told = due.clone();
        let fault = Fault::hook(move |call| {
            // Watches, and the lists with which they begin, are not listened to.
            let listens = call.class != Class::Watch && !call.begins_watch();
            // Once: what comes later would be told to the undo.
            if listens && told.swap(false, Ordering::SeqCst) {
                Action::ForwardAtDeadline
            } else {
                Action::Forward
            }
        });
        (fault, Self(due))
    }

    /// It is now. The next answer tells it; a run that only waits hears it when it renews its lock, within seconds.
    pub fn is_now(self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
