//! The clusters that the tests may change, and which test has which of them.

use std::{
    cell::RefCell,
    env,
    path::PathBuf,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::programs::needed;

/// Names the clusters by their kubeconfigs, joined by colons as in `KUBECONFIG`.
const VARIABLE: &str = "BELAY_TEST_KUBECONFIG";

/// The clusters as the tests of one family share them. Two tests of a family would change the same objects, so each has a cluster to
/// itself, whatever the test runner is told; those of another family touch what bears that family's label, and have a pool of their
/// own.
pub struct Pool {
    /// Read from the variable by the first test.
    free: Mutex<Option<Vec<PathBuf>>>,
    given_back: Condvar,
}

thread_local! {
    /// A test runs in a thread of its own, from which it calls its programs.
    static MINE: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

impl Pool {
    /// All clusters, and nobody uses them.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a default cannot be made in a static")]
    pub const fn new() -> Self {
        Self { free: Mutex::new(None), given_back: Condvar::new() }
    }

    /// Waits for a cluster that no other test has, and keeps it for this thread.
    pub fn take(&self) -> Taken<'_> {
        let named = || {
            let all =
                needed(VARIABLE, "the kubeconfigs of clusters that these tests may change as they like");
            env::split_paths(&all).collect()
        };
        let mut free = self.lock();
        let kubeconfig = loop {
            if let Some(one) = free.get_or_insert_with(named).pop() {
                break one;
            }
            free = self.given_back.wait(free).unwrap_or_else(PoisonError::into_inner);
        };
        MINE.set(Some(kubeconfig.clone()));
        Taken { pool: self, kubeconfig }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<PathBuf>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A cluster that one test has to itself, until this is dropped.
pub struct Taken<'pool> {
    pool: &'pool Pool,
    kubeconfig: PathBuf,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        MINE.set(None);
        self.pool.lock().get_or_insert_default().push(self.kubeconfig.clone());
        self.pool.given_back.notify_one();
    }
}

/// The kubeconfig of the cluster that this test has.
#[must_use]
pub fn kubeconfig() -> PathBuf {
    MINE.with_borrow(Clone::clone).expect("the thread of a test that has taken a cluster")
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn no_two_tests_have_the_same_cluster() {
        let pool = Pool { free: Mutex::new(Some(vec!["a".into(), "b".into()])), given_back: Condvar::new() };
        let in_use = Mutex::new(Vec::<PathBuf>::new());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let taken = pool.take();
                    assert_eq!(kubeconfig(), taken.kubeconfig);
                    let mut used = in_use.lock().unwrap();
                    assert!(!used.contains(&taken.kubeconfig), "{used:?}");
                    used.push(taken.kubeconfig.clone());
                    drop(used);
                    thread::yield_now();
                    in_use.lock().unwrap().retain(|one| *one != taken.kubeconfig);
                });
            }
        });
        let mut free = pool.lock().clone().unwrap();
        free.sort();
        assert_eq!(free, [PathBuf::from("a"), PathBuf::from("b")]);
    }
}
