//! Serves a queue of objects: each is looked at by one task at a time, only so many at once, and again when its time has come.
//!
//! Not kube's `applier`: it makes the order of its looks depend on hashes, and a simulation must be able to repeat them.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use futures::StreamExt as _;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, sleep_until};

/// When to look at an object again, if nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action(Option<Duration>);

impl Action {
    /// Not before something changes.
    #[must_use]
    pub const fn await_change() -> Self {
        Self(None)
    }

    /// After this time.
    #[must_use]
    pub const fn requeue(after: Duration) -> Self {
        Self(Some(after))
    }
}

/// What waits, runs, and waits for its time.
struct Scheduler<K> {
    waiting: VecDeque<K>,
    /// What is in `waiting`.
    queued: BTreeSet<K>,
    looks: JoinSet<Action>,
    running: HashMap<Id, K>,
    /// What is being looked at, and whether it is to be looked at again after that.
    under_way: BTreeMap<K, bool>,
    /// When to look again, in the order in which that was said.
    later: BTreeMap<(Instant, u64), K>,
    due: BTreeMap<K, (Instant, u64)>,
    said: u64,
}

impl<K: Clone + Ord + Hash> Scheduler<K> {
    fn push(&mut self, key: K) {
        if let Some(time) = self.due.remove(&key) {
            self.later.remove(&time);
        }
        if let Some(again) = self.under_way.get_mut(&key) {
            *again = true;
        } else if self.queued.insert(key.clone()) {
            self.waiting.push_back(key);
        }
    }

    fn push_later(&mut self, key: K, after: Duration) {
        self.said += 1;
        let time = (Instant::now() + after, self.said);
        self.later.insert(time, key.clone());
        self.due.insert(key, time);
    }

    fn push_due(&mut self) {
        let now = Instant::now();
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= now) {
            let key = first.remove();
            self.push(key);
        }
    }

    fn ended(&mut self, id: Id, action: Action) {
        let Some(key) = self.running.remove(&id) else { return };
        if self.under_way.remove(&key).unwrap_or_default() {
            self.push(key);
        } else if let Action(Some(after)) = action {
            self.push_later(key, after);
        }
    }
}

/// Serves a queue for ever. `look` never fails: what to do about an error is its own affair.
pub(crate) async fn serve<K: Clone + Ord + Hash>(
    mut queue: UnboundedReceiver<K>,
    at_once: usize,
    mut look: impl FnMut(K) -> BoxFuture<'static, Action>,
) {
    let mut scheduler: Scheduler<K> = Scheduler {
        waiting: VecDeque::new(),
        queued: BTreeSet::new(),
        looks: JoinSet::new(),
        running: HashMap::new(),
        under_way: BTreeMap::new(),
        later: BTreeMap::new(),
        due: BTreeMap::new(),
        said: 0,
    };
    loop {
        while scheduler.looks.len() < at_once
            && let Some(key) = scheduler.waiting.pop_front()
        {
            scheduler.queued.remove(&key);
            scheduler.under_way.insert(key.clone(), false);
            let id = scheduler.looks.spawn(look(key.clone())).id();
            scheduler.running.insert(id, key);
        }
        let next = scheduler.later.keys().next().map(|(time, _)| *time);
        let due = async {
            match next {
                Some(time) => sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            Some(ended) = scheduler.looks.join_next_with_id() => match ended {
                Ok((id, action)) => scheduler.ended(id, action),
                // A look that panicked has a bug, and what it looked at will not get better.
                Err(error) => {
                    log::error!("a stand-in has a bug: {error}");
                    scheduler.ended(error.id(), Action::await_change());
                }
            },
            key = queue.next() => match key {
                Some(key) => scheduler.push(key),
                None => return,
            },
            () = due => scheduler.push_due(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use futures::channel::mpsc::unbounded;

    use super::*;

    #[tokio::test]
    async fn an_object_that_is_pushed_while_it_is_looked_at_is_looked_at_once_more_and_never_twice_at_once() {
        let (sender, receiver) = unbounded();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (again, looked) = (sender.clone(), seen.clone());
        let serving = tokio::spawn(serve(receiver, 2, move |key: u32| {
            let (again, looked) = (again.clone(), looked.clone());
            Box::pin(async move {
                let first = !looked.lock().unwrap().contains(&key);
                looked.lock().unwrap().push(key);
                if first && key == 1 {
                    for _ in 0..3 {
                        again.unbounded_send(1).unwrap();
                    }
                    tokio::task::yield_now().await;
                }
                Action::await_change()
            })
        }));
        for key in [1, 2, 3] {
            sender.unbounded_send(key).unwrap();
        }
        while seen.lock().unwrap().len() < 4 {
            tokio::task::yield_now().await;
        }
        serving.abort();
        let mut all = seen.lock().unwrap().clone();
        all.sort_unstable();
        assert_eq!(all, [1, 1, 2, 3]);
    }

    #[tokio::test]
    async fn what_is_to_be_looked_at_later_is_looked_at_when_its_time_has_come() {
        let (sender, receiver) = unbounded();
        let (told, mut looks) = tokio::sync::mpsc::unbounded_channel();
        let serving = tokio::spawn(serve(receiver, 1, move |key: u32| {
            told.send(key).unwrap();
            Box::pin(async { Action::requeue(Duration::from_millis(1)) })
        }));
        sender.unbounded_send(7).unwrap();
        for _ in 0..3 {
            assert_eq!(looks.recv().await, Some(7));
        }
        serving.abort();
    }
}
