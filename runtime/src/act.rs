//! Carries out moves: chains side by side, the moves of a chain one after the other.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher as _},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::{
    sync::{RwLock, watch},
    time::Instant,
};

use crate::{
    cluster::{Cluster, FIELD_MANAGER, Failure, Halt, Mode, Precondition, lock},
    journal::{Before, Entries, Entry, Ledger, PreImage, Trouble},
    object::{
        Body, FieldPath, Kind, ObjectRef, is_going, kinds, resource_version, shown_time, text, uid,
        without_server_fields,
    },
    plan::{
        Action, Chain, Check, Closing, Field, Finding, Move, Owner, Progress, Removal, Test, Wait, shown,
    },
    watch::{Everywhere, Scope, View, Watches},
};

/// The annotation on objects that a step made: `step/run`.
pub const RUN_ANNOTATION: &str = "belay.dev/run";

/// What is said of an object that is being deleted when finalizers that nobody serves are taken off it.
pub(crate) const RELEASED: &str = "released";

/// How often a changed object is read and decided on again before that counts as a failure.
pub(crate) const CONFLICTS: u32 = 30;

/// How long a watch that is behind is given to catch up before it is asked again.
const BEHIND: Duration = Duration::from_millis(200);

/// How long a wait goes on before the log says what it waits for.
pub(crate) const SAY_AFTER: Duration = Duration::from_secs(5);

/// What was done to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which, as `Kind/namespace/name`.
    pub object: String,
    /// What: created, deleted, restored, left alone, ...
    pub what: String,
    /// Why, or how.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
    /// When.
    pub at: String,
}

/// How a chain ended.
#[derive(Debug)]
pub enum ChainEnd {
    /// All its moves are made.
    Done,
    /// It was left alone for something in its way, and nothing of it was done.
    Skipped(Finding),
    /// There is nothing to do any more: somebody has deleted its object, or deletes its namespace.
    Void(Finding),
    /// It failed.
    Failed {
        /// Why.
        why: String,
        /// Whether it could never have worked, as against a wait that took too long.
        hopeless: bool,
    },
    /// It was not begun or not finished because the step stops.
    Stopped,
    /// This run may not go on.
    Halted(Halt),
}

/// Why a move was not made.
#[derive(Debug)]
pub(crate) enum Broken {
    /// A call failed.
    Call(Failure),
    /// A sentence.
    Because(String),
    /// What was waited for can never hold.
    Hopeless(String),
    /// Something is in the way that is not ours: leave the chain.
    InTheWay(Finding),
    /// Somebody has deleted it meanwhile: nothing of the chain is left to do.
    Gone(Finding),
    /// Another chain failed.
    Stopped,
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self::Call(failure)
    }
}

impl From<Trouble> for Broken {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Call(failure) => Self::Call(failure),
            Trouble::Unusable(error) => Self::Because(format!("{error:#}")),
        }
    }
}

/// What a chain's own moves made of objects: a wait must not be content with what was there before.
///
/// Lists without room to spare, not maps: a chain has a handful of moves, and thousands of chains each have a trail.
#[derive(Default)]
pub(crate) struct Trail {
    /// What the moves left behind.
    left: Vec<(ObjectRef, Left)>,
    /// When the first move on an object began.
    began: Vec<(ObjectRef, Instant)>,
}

/// An object as a move left it.
struct Left {
    uid: String,
    generation: i64,
    /// Made by the move, not only changed by it.
    made: bool,
}

impl Left {
    /// Whether a watch has seen the change.
    fn has_arrived(&self, seen: Option<&Value>) -> bool {
        match seen {
            Some(live) if uid(live) == self.uid => generation(live) >= self.generation,
            // Of what was there before the move, another one, or none, can only be newer.
            _ => !self.made,
        }
    }
}

fn generation(live: &Value) -> i64 {
    live.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
}

impl Trail {
    /// A move made this object.
    pub(crate) fn made(&mut self, object: &ObjectRef, live: &Value) {
        self.leave(object, Left { uid: uid(live).to_owned(), generation: generation(live), made: true });
    }

    /// A move changed this object, or found it as wanted.
    pub(crate) fn changed(&mut self, object: &ObjectRef, live: &Value) {
        self.leave(object, Left { uid: uid(live).to_owned(), generation: generation(live), made: false });
    }

    fn leave(&mut self, object: &ObjectRef, left: Left) {
        if let Some((_, before)) = self.left.iter_mut().find(|(known, _)| known == object) {
            *before = left;
            return;
        }
        self.left.reserve_exact(1);
        self.left.push((object.clone(), left));
    }

    /// A move on this object begins.
    fn begin(&mut self, object: &ObjectRef, now: Instant) {
        if !self.began.iter().any(|(known, _)| known == object) {
            self.began.reserve_exact(1);
            self.began.push((object.clone(), now));
        }
    }

    fn uid_of(&self, object: &ObjectRef) -> Option<&str> {
        self.left.iter().find(|(known, _)| known == object).map(|(_, left)| left.uid.as_str())
    }

    /// The first of our own changes that has not reached the watch yet.
    fn not_arrived(&self, scopes: &[Scope], view: &View<'_>) -> Option<&ObjectRef> {
        self.left
            .iter()
            .filter(|(object, _)| {
                scopes.iter().any(|scope| {
                    scope.kind == object.kind
                        && scope.has(object.namespace.as_deref())
                        && scope.name.as_ref().is_none_or(|name| *name == object.name)
                })
            })
            .find(|(object, left)| !left.has_arrived(view.get(object).as_ref()))
            .map(|(object, _)| object)
    }
}

/// Carries out moves and keeps count.
pub struct Actor {
    pub(crate) cluster: Arc<Cluster>,
    watches: Watches,
    ledger: Arc<tokio::sync::Mutex<Ledger>>,
    entries: RwLock<Arc<Entries>>,
    run: String,
    outcomes: Mutex<Vec<Outcome>>,
    waiting: Mutex<BTreeMap<ObjectRef, String>>,
    stop: watch::Sender<bool>,
    kinds: tokio::sync::Mutex<HashMap<(String, String), Option<Kind>>>,
    /// Kinds, with the namespace, that this account may get or not.
    readable: tokio::sync::Mutex<HashMap<(Kind, Option<String>), bool>>,
    /// Fields that this process has set, by object.
    set: Mutex<HashMap<ObjectRef, Vec<Field>>>,
    /// The uids of what this process has brought back.
    revived: Mutex<HashMap<ObjectRef, String>>,
    /// What this process has made, by hashes: there may be thousands.
    made: Mutex<HashSet<u64>>,
    /// What this process has deleted, by hashes.
    deleted: Mutex<HashSet<u64>>,
    /// The moves that this process has begun, where it alone has made any of the journal's. By hashes too.
    tried: Option<Mutex<HashSet<u64>>>,
}

/// When the failure of one chain stops the others at their next move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopAll {
    /// Whenever one fails.
    AtAnyFailure,
    /// When one fails that could never have worked. Those that only take too long all do so: each shall be named.
    WhenHopeless,
    /// Never.
    Never,
}

impl StopAll {
    fn at(self, end: &ChainEnd) -> bool {
        match self {
            Self::AtAnyFailure => matches!(end, ChainEnd::Failed { .. }),
            Self::WhenHopeless => matches!(end, ChainEnd::Failed { hopeless: true, .. }),
            Self::Never => false,
        }
    }
}

/// How the chains of a phase are run.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// When all stop.
    pub stop_all: StopAll,
    /// Whether a chain that has not begun when the deadline has passed is not begun any more.
    pub bound: bool,
}

impl Actor {
    /// An actor for a run. `run` is the value of the run annotation; kinds that may be watched `everywhere` share one
    /// watch over all namespaces.
    #[must_use]
    pub fn new(
        cluster: Arc<Cluster>,
        ledger: Arc<tokio::sync::Mutex<Ledger>>,
        entries: Arc<Entries>,
        run: String,
        everywhere: Everywhere,
    ) -> Self {
        Self {
            watches: Watches::new(cluster.clone(), everywhere),
            cluster,
            ledger,
            tried: entries.all().is_empty().then(Mutex::default),
            entries: RwLock::new(entries),
            run,
            outcomes: Mutex::default(),
            waiting: Mutex::default(),
            stop: watch::Sender::new(false),
            kinds: tokio::sync::Mutex::default(),
            readable: tokio::sync::Mutex::default(),
            set: Mutex::default(),
            revived: Mutex::default(),
            made: Mutex::default(),
            deleted: Mutex::default(),
        }
    }

    /// Hands the actor the journal's entries as they are now.
    pub async fn set_entries(&self, entries: Arc<Entries>) {
        *self.entries.write().await = entries;
    }

    /// The journal's entries as they are now.
    pub async fn entries(&self) -> Arc<Entries> {
        self.entries.read().await.clone()
    }

    /// The value of the run annotation on what this run, and the ones it took over from, made.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }

    /// Adds what an earlier attempt of this run had done, as far as the journal tells: the report is about all of it.
    pub fn add_earlier<'a>(&self, entries: impl Iterator<Item = &'a Entry>) {
        let mut outcomes = lock(&self.outcomes);
        for entry in entries {
            let (object, what) = (entry.object.to_string(), past_tense(&entry.action));
            if !outcomes.iter().any(|known| known.object == object) {
                let detail = "by an earlier attempt".to_owned();
                outcomes.push(Outcome {
                    object,
                    what: what.to_owned(),
                    detail,
                    at: self.cluster.clock().timestamp(),
                });
            }
        }
    }

    /// What was done so far.
    #[must_use]
    pub fn outcomes(&self) -> Vec<Outcome> {
        lock(&self.outcomes).clone()
    }

    /// A few of the things that are waited for, and how many more there are.
    #[must_use]
    pub fn waiting_for(&self) -> (Vec<String>, usize) {
        let waiting = lock(&self.waiting);
        let some: Vec<String> = waiting.values().take(3).cloned().collect();
        let more = waiting.len() - some.len();
        (some, more)
    }

    pub(crate) fn note(&self, object: &ObjectRef, what: &str, detail: impl Into<String>) {
        let detail = detail.into();
        let level =
            if matches!(what, "failed" | "not put back") { log::Level::Error } else { log::Level::Info };
        if detail.is_empty() {
            log::log!(level, "{what} {object}");
        } else {
            log::log!(level, "{what} {object}: {detail}");
        }
        let outcome = Outcome {
            object: object.to_string(),
            what: what.to_owned(),
            detail,
            at: self.cluster.clock().timestamp(),
        };
        lock(&self.outcomes).push(outcome);
    }

    /// Forgets what the watches saw, when all chains have ended: to look again needs the room, and seldom leads to waits.
    pub fn forget_watches(&self) {
        self.watches.forget();
    }

    /// Lets waits go on again after a stop: undo waits too.
    pub fn resume_waits(&self) {
        self.stop.send_replace(false);
    }

    /// Runs chains side by side, and those that share a turn one after the other.
    pub async fn run_chains(
        &self,
        chains: &[&Chain],
        manner: Manner,
        ended: impl Fn(&Chain, &ChainEnd),
    ) -> Vec<(ObjectRef, ChainEnd)> {
        let mut groups: Vec<Vec<&Chain>> = Vec::with_capacity(chains.len());
        let mut turns: HashMap<&str, usize> = HashMap::new();
        for &chain in chains {
            let group = match &chain.turn {
                Some(turn) => *turns.entry(turn).or_insert(groups.len()),
                None => groups.len(),
            };
            match groups.get_mut(group) {
                Some(group) => group.push(chain),
                None => groups.push(vec![chain]),
            }
        }
        let mut running: FuturesUnordered<_> =
            groups.into_iter().map(|group| self.in_turn(group, manner, &ended)).collect();
        let mut ends = Vec::with_capacity(chains.len());
        while let Some(more) = running.next().await {
            ends.extend(more);
        }
        ends
    }

    async fn in_turn(
        &self,
        group: Vec<&Chain>,
        manner: Manner,
        ended: &impl Fn(&Chain, &ChainEnd),
    ) -> Vec<(ObjectRef, ChainEnd)> {
        // Room for the ends is made at the end: thousands of groups wait at the same time.
        let mut ends = Vec::new();
        let mut failed: Option<&ObjectRef> = None;
        for chain in group {
            let end = match failed {
                // Whoever takes turns shares something, and nobody knows how the one that failed left it.
                Some(before) if !*self.stop.borrow() && chain.moves.iter().any(Move::writes) => {
                    self.not_begun(chain, before)
                }
                _ => self.run_chain(chain, manner.bound).await,
            };
            if matches!(end, ChainEnd::Failed { .. }) {
                failed.get_or_insert(&chain.subject);
            }
            if manner.stop_all.at(&end) {
                self.stop.send_replace(true);
            }
            ended(chain, &end);
            ends.push((chain.subject.clone(), end));
        }
        ends
    }

    fn not_begun(&self, chain: &Chain, before: &ObjectRef) -> ChainEnd {
        let why = format!("{}: not begun, since {before} failed, with which it takes turns", chain.subject);
        self.note(&chain.subject, "failed", why.clone());
        ChainEnd::Failed { why, hopeless: true }
    }

    async fn run_chain(&self, chain: &Chain, bound: bool) -> ChainEnd {
        let mut trail = Trail::default();
        let mut wrote = false;
        for step in &chain.moves {
            if step.writes() {
                self.cluster.room().await;
            }
            // A wait looks once before it stops: what has failed already is worth its name in the verdict.
            if step.writes() && *self.stop.borrow() {
                return ChainEnd::Stopped;
            }
            if step.writes() && bound && !wrote && self.cluster.clock().now() >= self.cluster.deadline() {
                let why = format!("{}: the deadline has passed before it could be begun", chain.subject);
                self.note(&chain.subject, "failed", why.clone());
                return ChainEnd::Failed { why, hopeless: true };
            }
            if step.writes() {
                trail.begin(&step.object, self.cluster.clock().now());
                self.begin(step);
            }
            match self.make(step, &mut trail).await {
                Ok(()) => wrote |= step.writes(),
                Err(Broken::Stopped) => return ChainEnd::Stopped,
                Err(Broken::Call(Failure::Halted(halt))) => return ChainEnd::Halted(halt),
                Err(Broken::InTheWay(finding)) if !wrote => {
                    self.note(&chain.subject, "skipped", finding.to_string());
                    return ChainEnd::Skipped(finding);
                }
                // Fields of something else than what the chain is about were to be cleared: with that they are gone.
                Err(Broken::Gone(_)) if step.object != chain.subject && step.only_clears() => {}
                Err(Broken::Gone(finding)) if !wrote => {
                    self.note(&chain.subject, "skipped", finding.to_string());
                    return ChainEnd::Void(finding);
                }
                // The namespace is going and takes the object with it: there is nothing to migrate, nor to restore.
                Err(Broken::Call(failure)) if failure.namespace_is_going() => {
                    let finding = Finding::skip(chain.subject.clone(), "its namespace is being deleted");
                    self.note(&chain.subject, "skipped", finding.message.clone());
                    return ChainEnd::Void(finding);
                }
                Err(broken) => {
                    let hopeless = matches!(broken, Broken::Hopeless(_)) || step.writes();
                    let why = match step.action {
                        Action::Wait(_) => sentence(broken),
                        _ => format!("{} {}: {}", step.verb(), step.object, sentence(broken)),
                    };
                    self.note(&chain.subject, "failed", why.clone());
                    return ChainEnd::Failed { why, hopeless };
                }
            }
        }
        match Box::pin(self.give_back_all(chain)).await {
            Ok(()) => ChainEnd::Done,
            Err(Broken::Call(Failure::Halted(halt))) => ChainEnd::Halted(halt),
            Err(broken) => {
                let why = format!("{}: {}", chain.subject, sentence(broken));
                self.note(&chain.subject, "failed", why.clone());
                ChainEnd::Failed { why, hopeless: true }
            }
        }
    }

    /// Gives back the fields of what a chain has recreated, at its end.
    async fn give_back_all(&self, chain: &Chain) -> Result<(), Broken> {
        for step in chain.moves.iter().filter(|step| matches!(step.action, Action::Recreate(_))) {
            if let Some(image) = self.image_of(step).await {
                self.give_back(&step.object, &image).await?;
            }
        }
        Ok(())
    }

    /// Makes one move; finds it made already where it is.
    ///
    /// Each kind of move is a future in a box of its own: thousands of chains wait at the same time, and none of them
    /// should carry the room that the largest move would need.
    pub(crate) async fn make(&self, step: &Move, trail: &mut Trail) -> Result<(), Broken> {
        match &step.action {
            Action::Create { body, identity, owners } => {
                Box::pin(self.create(&step.object, body, identity, owners, trail)).await
            }
            Action::Delete(removal) => Box::pin(self.delete_known(step, removal)).await,
            Action::Recreate(removal) => Box::pin(self.recreate(step, removal, trail)).await,
            Action::Patch { .. } | Action::Scale { .. } | Action::Advance { .. } => {
                Box::pin(self.change(step, trail)).await
            }
            Action::Wait(wait) => Box::pin(self.wait(&step.object, wait, trail)).await,
        }
    }

    async fn image_of(&self, step: &Move) -> Option<PreImage> {
        self.entries().await.find(step).and_then(|entry| entry.pre_image().cloned())
    }

    async fn create(
        &self,
        object: &ObjectRef,
        body: &Body,
        identity: &[FieldPath],
        owners: &[Owner],
        trail: &mut Trail,
    ) -> Result<(), Broken> {
        let mut full = body.value();
        full["metadata"]["annotations"][RUN_ANNOTATION] = self.run.clone().into();
        for owner in owners {
            let reference = self.owner_reference(owner, trail).await?;
            match full["metadata"]["ownerReferences"].as_array_mut() {
                Some(list) => list.push(reference),
                None => full["metadata"]["ownerReferences"] = json!([reference]),
            }
        }
        for _ in 0..CONFLICTS {
            match self.cluster.create(object, &full, Mode::Real).await {
                Ok(live) => {
                    trail.made(object, &live);
                    lock(&self.made).insert(hash_of(object));
                    self.note(object, "created", "");
                    return Ok(());
                }
                Err(failure) if failure.is_already_exists() => {}
                Err(failure) => return Err(failure.into()),
            }
            let Some(live) = self.cluster.get(object).await? else { continue };
            if is_going(&live) {
                self.until_gone(object, uid(&live), self.time_left()).await?;
                continue;
            }
            if let Some(other) = identity.iter().find(|field| field.get(&live) != field.get(&full)) {
                return Err(Broken::InTheWay(Finding::skip(
                    object.clone(),
                    // Not its value, which may be a secret.
                    format!("exists already and is another one: its {other} differs"),
                )));
            }
            trail.made(object, &live);
            let ours = made_by(&live) == Some(&self.run);
            if ours {
                lock(&self.made).insert(hash_of(object));
            }
            self.note(object, if ours { "created" } else { "was there already" }, "");
            return Ok(());
        }
        Err(Broken::Because("comes and goes: something else makes and deletes it".to_owned()))
    }

    async fn owner_reference(&self, owner: &Owner, trail: &Trail) -> Result<Value, Broken> {
        let found = match trail.uid_of(&owner.object) {
            Some(uid) => uid.to_owned(),
            None => match self.cluster.get(&owner.object).await? {
                Some(live) if !is_going(&live) => uid(&live).to_owned(),
                _ => return Err(Broken::Because(format!("its owner {} does not exist", owner.object))),
            },
        };
        Ok(json!({
            "apiVersion": owner.object.kind.api_version(), "kind": owner.object.kind.kind,
            "name": owner.object.name, "uid": found,
            "controller": owner.controller, "blockOwnerDeletion": owner.block_owner_deletion,
        }))
    }

    async fn delete_known(&self, step: &Move, removal: &Removal) -> Result<(), Broken> {
        let image = self.image_of(step).await;
        if self.delete(step, removal, image.as_ref()).await? {
            self.note(&step.object, past_tense(&step.action), "");
        }
        Ok(())
    }

    /// Deletes exactly the object that the journal knows. Returns whether it was there.
    async fn delete(&self, step: &Move, removal: &Removal, image: Option<&PreImage>) -> Result<bool, Broken> {
        let object = &step.object;
        let mut known = image.cloned();
        let mut live = match &step.live {
            Some(live) => Some(live.value()),
            None => self.cluster.get(object).await?,
        };
        for _ in 0..CONFLICTS {
            let Some(found) = &live else { return Ok(false) };
            if let Some(image) = &mut known
                && image.uid != uid(found)
            {
                if !self.is_restored(step, found, &*self.entries().await) {
                    // Another one bears the name: the one that was to go is gone.
                    return Ok(false);
                }
                Box::pin(self.journal_as_found(step, image, found)).await?;
            }
            if is_going(found) {
                let gone = uid(found).to_owned();
                drop(live);
                self.until_removed(object, &gone, removal).await?;
                lock(&self.deleted).insert(hash_of(object));
                return Ok(true);
            }
            if removal.only_as_seen
                && step.live.as_ref().is_some_and(|seen| seen.value().get("spec") != found.get("spec"))
            {
                return Err(Broken::InTheWay(Finding::skip(
                    object.clone(),
                    "was changed after this step had looked at it: run the step again",
                )));
            }
            if let Some(image) = &mut known
                && without_server_fields(found) != image.object.value()
            {
                // Somebody changed it since it was journalled: what undo restores must be the newest.
                Box::pin(self.journal_as_found(step, image, found)).await?;
            }
            let precondition = Precondition {
                uid: uid(found).to_owned(),
                resource_version: Some(resource_version(found).to_owned()),
            };
            match self.cluster.delete(object, &precondition, removal.propagation, Mode::Real).await {
                Ok(answer) => {
                    // A Status means that it is gone; the object itself means that finalizers hold it.
                    if text(&answer, "/kind") != Some("Status") {
                        let gone = uid(found).to_owned();
                        drop((live, answer));
                        self.until_removed(object, &gone, removal).await?;
                    }
                    lock(&self.deleted).insert(hash_of(object));
                    return Ok(true);
                }
                Err(failure) if failure.is_not_found(&object.name) => {
                    lock(&self.deleted).insert(hash_of(object));
                    return Ok(true);
                }
                Err(failure) if failure.is_conflict() => {}
                Err(failure) => return Err(failure.into()),
            }
            live = self.cluster.get(object).await?;
        }
        Err(Broken::Because("is changed all the time: it cannot be deleted as it was read".to_owned()))
    }

    /// Waits until an object that is being deleted is gone, after taking off the finalizers that nobody serves any more.
    pub(crate) async fn until_removed(
        &self,
        object: &ObjectRef,
        gone: &str,
        removal: &Removal,
    ) -> Result<(), Broken> {
        for _ in 0..CONFLICTS {
            if removal.orphaned_finalizers.is_empty() {
                break;
            }
            let Some(live) = self.cluster.get(object).await?.filter(|live| uid(live) == gone) else {
                return Ok(());
            };
            let held = live.pointer("/metadata/finalizers").and_then(Value::as_array);
            let orphaned = |name: &&Value| removal.orphaned_finalizers.iter().any(|orphan| *name == orphan);
            if !held.is_some_and(|held| held.iter().any(|name| orphaned(&name))) {
                break;
            }
            let served: Vec<&Value> = held.into_iter().flatten().filter(|name| !orphaned(name)).collect();
            let patch = json!({
                "metadata": {"resourceVersion": resource_version(&live), "finalizers": served},
            });
            match self.cluster.merge(object, &patch, Mode::Real).await {
                Ok(_) => {
                    self.note(object, RELEASED, format!("from {}", removal.orphaned_finalizers.join(", ")));
                    break;
                }
                Err(failure) if failure.is_not_found(&object.name) => return Ok(()),
                Err(failure) if failure.is_conflict() => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        self.until_gone_served(object, gone, removal.within, removal.served_by.as_ref()).await
    }

    async fn recreate(&self, step: &Move, removal: &Removal, trail: &mut Trail) -> Result<(), Broken> {
        let object = &step.object;
        let Some(first) = self.image_of(step).await else {
            return Err(Broken::Because("is not in the journal".to_owned()));
        };
        let stands = |live: &Value| uid(live) == first.uid && !is_going(live);
        if step.live.as_ref().map(Body::value).as_ref().is_some_and(stands) {
            // What hangs now would keep it from coming back: then it is better not to delete it.
            let there = Box::pin(self.until_none_is_going(object, removal, removal.within)).await?;
            Box::pin(self.journal_changed_companions(step, &there)).await?;
        }
        let deleted = self.delete(step, removal, Some(&first)).await?;
        self.cluster.room().await;
        // The delete may have journalled a newer pre-image.
        let image = self.image_of(step).await.unwrap_or(first);
        // An earlier attempt may have made it and not come further.
        let there =
            if deleted { None } else { self.cluster.get(object).await?.filter(|live| !is_going(live)) };
        let live = match there {
            Some(live) => live,
            None => self.revive(object, &image, removal, removal.within).await?,
        };
        trail.made(object, &live);
        self.note(object, past_tense(&step.action), "");
        Ok(())
    }

    /// Waits until no companion of an object is terminating. Returns those that are there.
    async fn until_none_is_going(
        &self,
        object: &ObjectRef,
        removal: &Removal,
        within: Duration,
    ) -> Result<Vec<(ObjectRef, Value)>, Broken> {
        let mut there = Vec::new();
        for companion in &removal.companions {
            let known = match companion.scope.object() {
                Some(one) => vec![one],
                None => self.seen(object, &companion.scope, within).await?,
            };
            // The server's word counts: a watch that is behind shows as there what is going.
            for one in known {
                match self.cluster.get(&one).await? {
                    Some(live) if is_going(&live) => self.until_gone(&one, uid(&live), within).await?,
                    live => there.extend(live.map(|live| (one, live))),
                }
            }
        }
        Ok(there)
    }

    /// The objects that the watch shows in a scope.
    async fn seen(
        &self,
        subject: &ObjectRef,
        scope: &Scope,
        within: Duration,
    ) -> Result<Vec<ObjectRef>, Broken> {
        let found = Arc::new(Mutex::new(Vec::new()));
        let (kind, list) = (scope.kind.clone(), found.clone());
        let check = move |view: &View<'_>| {
            *lock(&list) = view.list(&kind).iter().map(|one| kind.object_of(one)).collect();
            Progress::Done
        };
        let wait = Wait {
            what: format!("a look at {scope}"),
            scopes: vec![scope.clone()],
            within,
            check: Check::Code(Arc::new(check)),
        };
        self.wait(subject, &wait, &Trail::default()).await?;
        let found = std::mem::take(&mut *lock(&found));
        Ok(found)
    }

    /// Creates an object from its pre-image, unless one bears its name already. `within` is the time for its companions
    /// to go.
    pub(crate) async fn revive(
        &self,
        object: &ObjectRef,
        image: &PreImage,
        removal: &Removal,
        within: Duration,
    ) -> Result<Value, Broken> {
        let mut body = image.object.value();
        removal.not_on_create.iter().for_each(|field| field.set(&mut body, None));
        self.refresh_owners(object, &mut body).await?;
        Box::pin(self.until_none_is_going(object, removal, within)).await?;
        for _ in 0..CONFLICTS {
            match self.cluster.create(object, &body, Mode::Real).await {
                Ok(live) => {
                    lock(&self.revived).insert(object.clone(), uid(&live).to_owned());
                    return Ok(live);
                }
                Err(failure) if failure.is_already_exists() => {}
                Err(failure) => return Err(failure.into()),
            }
            match self.cluster.get(object).await? {
                None => {}
                Some(live) if is_going(&live) => {
                    self.until_gone(object, uid(&live), self.time_left()).await?;
                }
                Some(live) => return Ok(live),
            }
        }
        Err(Broken::Because("comes and goes: something else makes and deletes it".to_owned()))
    }

    /// Gives the fields of an object that was made from its pre-image back to those whose they were. Without that they
    /// would be ours, and the next server-side apply of the chart that renders it would fail with a conflict.
    ///
    /// Only when it works again: its controller is at work on it until then, and may not expect to be disturbed.
    pub(crate) async fn give_back(&self, object: &ObjectRef, image: &PreImage) -> Result<(), Broken> {
        for _ in 0..CONFLICTS {
            let Some(live) = self.cluster.get(object).await? else { return Ok(()) };
            let Some(patch) = give_back_patch(&live, image) else { return Ok(()) };
            match self.cluster.json_patch(object, &patch).await {
                Ok(_) => return Ok(()),
                Err(failure) if failure.is_conflict() || is_failed_test(&failure) => {}
                Err(failure) if failure.is_not_found(&object.name) => return Ok(()),
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(Broken::Because("is changed all the time: our mark could not be taken off its fields".to_owned()))
    }

    /// Whether this process brought this very object back.
    pub(crate) fn has_revived(&self, object: &ObjectRef, live: &Value) -> bool {
        lock(&self.revived).get(object).is_some_and(|revived| revived == uid(live))
    }

    fn begin(&self, step: &Move) {
        if let Some(tried) = &self.tried {
            lock(tried).insert(hash_of(&(&step.object, step.action.key())));
        }
    }

    /// Whether an entry's move was certainly never begun.
    pub(crate) fn never_tried(&self, entry: &Entry) -> bool {
        let Some(tried) = &self.tried else { return false };
        !lock(tried).contains(&hash_of(&(&entry.object, entry.action.key())))
    }

    /// What this process has deleted, by hashes, where it goes on with the journal of an earlier attempt: what else is there
    /// again just as it was, that attempt has restored.
    pub(crate) fn deleted_since_resuming(&self) -> Option<HashSet<u64>> {
        self.tried.is_none().then(|| lock(&self.deleted).clone())
    }

    /// Whether what a move is to delete bears another uid because an earlier attempt has restored it.
    pub(crate) fn is_restored(&self, step: &Move, live: &Value, entries: &Entries) -> bool {
        let resumes = self.tried.is_none();
        resumes
            && matches!(step.action, Action::Delete(_))
            && !lock(&self.deleted).contains(&hash_of(&step.object))
            && entries.is_restored(&step.object, live)
    }

    /// Whether this process has made an object, and has not taken it back.
    pub(crate) fn has_made(&self, object: &ObjectRef) -> bool {
        lock(&self.made).contains(&hash_of(object))
    }

    /// What this process had made is taken back.
    pub(crate) fn unmade(&self, object: &ObjectRef) {
        lock(&self.made).remove(&hash_of(object));
    }

    /// Whether this process has set one of these fields of an object before.
    pub(crate) fn has_set(&self, object: &ObjectRef, fields: &[Field]) -> bool {
        lock(&self.set).get(object).is_some_and(|set| fields.iter().any(|field| set.contains(field)))
    }

    /// Gives owner references the uids that their owners have now. One with a stale uid would be collected as
    /// garbage within seconds.
    async fn refresh_owners(&self, object: &ObjectRef, body: &mut Value) -> Result<(), Broken> {
        let Some(owners) = body.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) else {
            return Ok(());
        };
        for owner in owners {
            let Some(now) = self.owner_uid(object, owner).await? else {
                return Err(Broken::Because(format!(
                    "cannot be created again: its owner {}/{} does not exist, and without it the object would be \
                     collected as garbage",
                    text(owner, "/kind").unwrap_or_default(),
                    text(owner, "/name").unwrap_or_default(),
                )));
            };
            owner["uid"] = now.into();
        }
        Ok(())
    }

    /// The uid that the owner in an owner reference has now; none if there is no such owner.
    pub(crate) async fn owner_uid(
        &self,
        object: &ObjectRef,
        reference: &Value,
    ) -> Result<Option<String>, Failure> {
        let (api_version, kind, name) =
            (text(reference, "/apiVersion"), text(reference, "/kind"), text(reference, "/name"));
        let (Some(api_version), Some(kind), Some(name)) = (api_version, kind, name) else { return Ok(None) };
        let Some(kind) = self.kind_of(api_version, kind).await? else { return Ok(None) };
        let namespace = object.namespace.clone().filter(|_| kind.namespaced);
        let owner = ObjectRef { kind, namespace, name: name.to_owned() };
        let live = self.cluster.get(&owner).await?.filter(|live| !is_going(live));
        Ok(live.map(|live| uid(&live).to_owned()))
    }

    /// Why an object that has this owner could not be created again, if so.
    pub(crate) async fn owner_trouble(
        &self,
        object: &ObjectRef,
        reference: &Value,
    ) -> Result<Option<String>, Failure> {
        let name = format!(
            "{}/{}",
            text(reference, "/kind").unwrap_or_default(),
            text(reference, "/name").unwrap_or_default()
        );
        let (api_version, kind) = (text(reference, "/apiVersion"), text(reference, "/kind"));
        let kind = match (api_version, kind) {
            (Some(api_version), Some(kind)) => self.kind_of(api_version, kind).await?,
            _ => None,
        };
        // Asked first: without the right each answer would be awaited for as long as a 403 may pass.
        if let Some(kind) = kind
            && !self.may_get(&kind, object.namespace.as_deref()).await?
        {
            let resource = kind.resource();
            return Ok(Some(format!(
                "its owner {name} may not be read by this account: allow it to get {resource} (a step that has the \
                 flag gets that right with --owner-kind {resource})"
            )));
        }
        match self.owner_uid(object, reference).await {
            Ok(Some(_)) => Ok(None),
            Ok(None) => Ok(Some(format!("its owner {name} does not exist"))),
            Err(failure) => Err(failure),
        }
    }

    /// Whether this account may get objects of a kind in a namespace. Asked once for all of them.
    async fn may_get(&self, kind: &Kind, namespace: Option<&str>) -> Result<bool, Failure> {
        let namespace = namespace.filter(|_| kind.namespaced);
        let key = (kind.clone(), namespace.map(str::to_owned));
        let mut known = self.readable.lock().await;
        if let Some(&may) = known.get(&key) {
            return Ok(may);
        }
        let mut may = crate::preflight::may_get(&self.cluster, kind, namespace, None).await?;
        if !may {
            // Helm re-creates RBAC under a running pod.
            let clock = self.cluster.clock();
            clock.sleep(clock.patience(Duration::from_secs(1))).await;
            may = crate::preflight::may_get(&self.cluster, kind, namespace, None).await?;
        }
        known.insert(key, may);
        Ok(may)
    }

    /// Whether the namespace of an object is gone or going, as far as this account may know.
    pub(crate) async fn namespace_is_gone(&self, object: &ObjectRef) -> Result<bool, Failure> {
        let Some(name) = object.namespace.as_deref() else { return Ok(false) };
        if !crate::preflight::may_get(&self.cluster, &kinds::NAMESPACE, None, Some(name)).await? {
            return Ok(false);
        }
        let found = self.cluster.get(&kinds::NAMESPACE.cluster_object(name)).await?;
        Ok(found.is_none_or(|namespace| is_going(&namespace)))
    }

    /// Finds the resource of a kind: owner references name kinds, URLs name resources.
    async fn kind_of(&self, api_version: &str, kind: &str) -> Result<Option<Kind>, Failure> {
        let key = (api_version.to_owned(), kind.to_owned());
        let mut known = self.kinds.lock().await;
        if let Some(found) = known.get(&key) {
            return Ok(found.clone());
        }
        let found = crate::preflight::find_kind(&self.cluster, api_version, kind).await?;
        known.insert(key, found.clone());
        Ok(found)
    }

    /// Sets fields by compare-and-swap.
    async fn change(&self, step: &Move, trail: &mut Trail) -> Result<(), Broken> {
        let object = &step.object;
        let wanted = step.action.fields();
        let mut live = match &step.live {
            Some(live) => live.value(),
            None => self.must_exist(object).await?,
        };
        for _ in 0..CONFLICTS {
            if wanted.iter().all(|field| field.is_in(&live)) {
                let live = self.disown(object, live).await?;
                trail.changed(object, &live);
                return Ok(());
            }
            if let Action::Advance { path, from, to } = &step.action {
                let state = path.get(&live).and_then(Value::as_str).unwrap_or_default();
                if !from.iter().any(|known| known == state) {
                    return Err(Broken::Because(format!(
                        "its {path} is '{state}', from where '{to}' cannot be reached (only from: {})",
                        from.join(", ")
                    )));
                }
            }
            // The entry may be of an earlier attempt, and somebody may have changed the fields since.
            self.journal_changed_fields(step, &wanted, &live).await?;
            match self.swap(object, &step.action, &wanted, &live, Mode::Real).await {
                Ok(after) => {
                    let after = self.disown(object, after).await?;
                    trail.changed(object, &after);
                    lock(&self.set).entry(object.clone()).or_default().extend(wanted.iter().cloned());
                    self.note(object, past_tense(&step.action), describe(&wanted, &live));
                    return Ok(());
                }
                Err(failure) if failure.is_conflict() || failure.is_not_found(&object.name) => {
                    live = self.must_exist(object).await?;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(Broken::Because("is changed all the time: it could not be patched as it was read".to_owned()))
    }

    /// One compare-and-swap of fields: through the scale subresource for replicas, else by a merge patch.
    pub(crate) async fn swap(
        &self,
        object: &ObjectRef,
        action: &Action,
        wanted: &[Field],
        live: &Value,
        mode: Mode,
    ) -> Result<Value, Failure> {
        if matches!(action, Action::Scale { .. }) {
            let replicas = wanted.first().and_then(|field| field.value.clone()).unwrap_or_default();
            let patch = json!({
                "metadata": {"resourceVersion": resource_version(live)}, "spec": {"replicas": replicas},
            });
            self.cluster.merge_scale(object, &patch, mode).await?;
            // The answer is a Scale; the moves after this one need the object itself.
            return match mode {
                Mode::DryRun => Ok(live.clone()),
                Mode::Real => Ok(self.cluster.get(object).await?.unwrap_or_else(|| live.clone())),
            };
        }
        self.cluster.merge(object, &merge_patch(wanted, live), mode).await
    }

    /// Takes our entry out of managedFields. Owning a field that a chart renders would make the chart's next
    /// server-side apply fail with a conflict.
    pub(crate) async fn disown(&self, object: &ObjectRef, mut live: Value) -> Result<Value, Broken> {
        for _ in 0..CONFLICTS {
            let Some(patch) = disown_patch(&live) else { return Ok(live) };
            match self.cluster.json_patch(object, &patch).await {
                Ok(after) => live = after,
                // The entry moved since we read it: the patch's own test found that out.
                Err(failure)
                    if failure.is_conflict()
                        || is_failed_test(&failure)
                        || failure.is_not_found(&object.name) =>
                {
                    live = self.must_exist(object).await?;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(Broken::Because("is changed all the time: our mark could not be taken off its fields".to_owned()))
    }

    async fn must_exist(&self, object: &ObjectRef) -> Result<Value, Broken> {
        match self.cluster.get(object).await? {
            Some(live) if !is_going(&live) => Ok(live),
            _ => Err(Broken::Gone(Finding::skip(
                object.clone(),
                "was deleted by somebody else in the meantime",
            ))),
        }
    }

    async fn journal_changed_fields(
        &self,
        step: &Move,
        wanted: &[Field],
        live: &Value,
    ) -> Result<(), Broken> {
        let entries = self.entries().await;
        let Some(Entry { before: Before::Fields(known), uid: whose, .. }) = entries.find(step) else {
            return Ok(());
        };
        let now = old_values(wanted, known, live);
        if *known != now || whose.as_ref().is_some_and(|known| known != uid(live)) {
            let renew = |entry: &mut Entry| {
                entry.before = Before::Fields(now);
                entry.uid = Some(uid(live).to_owned());
            };
            Box::pin(self.journal_again(step, renew)).await?;
        }
        Ok(())
    }

    /// Journals how the companions of an object are that is about to be recreated, if somebody has changed them since the
    /// plan: undo restores them as well.
    async fn journal_changed_companions(
        &self,
        step: &Move,
        there: &[(ObjectRef, Value)],
    ) -> Result<(), Broken> {
        let entries = self.entries().await;
        let Some(Action::Recreate(known)) = entries.find(step).map(|entry| &entry.action) else {
            return Ok(());
        };
        let mut companions = known.companions.clone();
        let mut changed = false;
        for companion in &mut companions {
            if let Some(now) = companion.changed_in(there) {
                (*companion, changed) = (now, true);
            }
        }
        if !changed {
            return Ok(());
        }
        let action = Action::Recreate(Arc::new(Removal { companions, ..(**known).clone() }));
        self.journal_again(step, |entry| entry.action = action).await
    }

    /// Journals an object as it is now, before it is taken away.
    async fn journal_as_found(&self, step: &Move, known: &mut PreImage, found: &Value) -> Result<(), Broken> {
        *known = PreImage::of(found);
        let image = known.clone();
        self.journal_again(step, |entry| entry.before = Before::Object(image)).await
    }

    /// Journals a newer pre-image of a move, before the move is made.
    async fn journal_again(&self, step: &Move, renew: impl FnOnce(&mut Entry)) -> Result<(), Broken> {
        let mut ledger = self.ledger.lock().await;
        let mut entries = self.entries.write().await;
        let Some(mut entry) = entries.find(step).cloned() else { return Ok(()) };
        renew(&mut entry);
        ledger.append(std::slice::from_ref(&entry)).await?;
        Arc::make_mut(&mut entries).extend([entry]);
        Ok(())
    }

    /// Time until the deadline that counts now.
    pub(crate) fn time_left(&self) -> Duration {
        self.cluster.deadline().saturating_duration_since(self.cluster.clock().now())
    }

    /// Waits until the object with this uid is gone.
    pub(crate) async fn until_gone(
        &self,
        object: &ObjectRef,
        gone: &str,
        within: Duration,
    ) -> Result<(), Broken> {
        self.until_gone_served(object, gone, within, None).await
    }

    /// The same; what holds the object is served by a Deployment, whose state belongs into the sentence.
    async fn until_gone_served(
        &self,
        object: &ObjectRef,
        gone: &str,
        within: Duration,
        served_by: Option<&ObjectRef>,
    ) -> Result<(), Broken> {
        let clock = self.cluster.clock();
        let until = clock.now() + within;
        loop {
            let seen = Arc::new(AtomicBool::new(false));
            let left = until.saturating_duration_since(clock.now());
            let wait = Wait::gone(object, gone, left, served_by, seen.clone());
            self.wait(object, &wait, &Trail::default()).await?;
            // A watch that never had the object may only be behind: then the server must say that it is gone.
            if seen.load(Ordering::Relaxed) {
                return Ok(());
            }
            let Some(live) = self.cluster.get(object).await?.filter(|live| uid(live) == gone) else {
                return Ok(());
            };
            if let (true, Progress::Pending(held)) = (left.is_zero(), Test::Gone.ask(Some(&live))) {
                return Err(Broken::Because(format!(
                    "waited {} for {}: {held}",
                    shown_time(within),
                    wait.what
                )));
            }
            clock.sleep(BEHIND).await;
        }
    }

    /// Waits, on the watch that all waits on the kind share.
    pub(crate) async fn wait(&self, object: &ObjectRef, wait: &Wait, trail: &Trail) -> Result<(), Broken> {
        let clock = self.cluster.clock();
        let begun = clock.now();
        let mut deadlines = self.cluster.deadlines();
        let mut until = (begun + wait.within).min(*deadlines.borrow_and_update());
        let waiter = self.watches.waiter(&wait.scopes);
        let mut stop = self.stop.subscribe();
        let mut suspect: Option<(String, Instant)> = None;
        let _said = Said { actor: self, object };
        loop {
            let progress = waiter
                .look(&trail.began, |view| match trail.not_arrived(&wait.scopes, view) {
                    Some(object) => Progress::Pending(format!("the change of {object} is not seen yet")),
                    None => match &wait.check {
                        Check::Object(test) => test.ask(view.get(object).as_ref()),
                        Check::Code(check) => check(view),
                    },
                })
                .unwrap_or_else(Progress::Pending);
            let mut again = until;
            let last = match progress {
                Progress::Done => return Ok(()),
                Progress::DoneWith(line) => {
                    self.note(object, "noted", line);
                    return Ok(());
                }
                Progress::Failed(why) => {
                    return Err(Broken::Hopeless(format!("waiting for {}: {why}", wait.what)));
                }
                Progress::Pending(what) => {
                    suspect = None;
                    what
                }
                Progress::Suspect(what, after) => {
                    let since = match &suspect {
                        Some((same, since)) if *same == what => *since,
                        _ => clock.now(),
                    };
                    if clock.since(since) >= after {
                        return Err(Broken::Hopeless(format!("waiting for {}: {what}", wait.what)));
                    }
                    again = again.min(since + after);
                    suspect = Some((what.clone(), since));
                    what
                }
            };
            if clock.since(begun) >= SAY_AFTER {
                lock(&self.waiting).insert(object.clone(), format!("{} ({last})", wait.what));
            } else {
                again = again.min(begun + SAY_AFTER);
            }
            if clock.now() >= until {
                return Err(Broken::Because(format!(
                    "waited {} for {}: {last}",
                    shown_time(clock.since(begun)),
                    wait.what
                )));
            }
            tokio::select! {
                biased;
                halt = self.cluster.wait_halted() => return Err(Broken::Call(Failure::Halted(halt))),
                // One that comes nearer counts; the time for an undo is not for what is waited for before it.
                Ok(()) = deadlines.changed() => until = until.min(*deadlines.borrow_and_update()),
                () = waiter.changed() => {}
                () = clock.sleep_until(again) => {}
                changed = stop.wait_for(|stop| *stop) => if changed.is_ok() { return Err(Broken::Stopped) },
            }
        }
    }
}

impl Actor {
    /// The lines that a plan wants said at the end, from what its scopes show now.
    pub(crate) async fn closing_lines(&self, closing: &Closing) -> Vec<String> {
        let waiter = self.watches.waiter(&closing.scopes);
        let clock = self.cluster.clock();
        let until = clock.now() + SAY_AFTER;
        loop {
            match waiter.look(&[], |view| (closing.lines)(view)) {
                Ok(lines) => return lines,
                Err(why) if clock.now() >= until => return vec![format!("not known: {why}")],
                Err(_) => {}
            }
            tokio::select! {
                biased;
                () = waiter.changed() => {}
                () = clock.sleep_until(until) => {}
            }
        }
    }
}

/// A short name for something, where there may be thousands.
pub(crate) fn hash_of(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// Takes an object off the list of what is waited for, however the wait ends.
struct Said<'a> {
    actor: &'a Actor,
    object: &'a ObjectRef,
}

impl Drop for Said<'_> {
    fn drop(&mut self) {
        lock(&self.actor.waiting).remove(self.object);
    }
}

/// Who made an object, by its run annotation.
#[must_use]
pub fn made_by(live: &Value) -> Option<&str> {
    live.pointer("/metadata/annotations")?.get(RUN_ANNOTATION)?.as_str()
}

/// What went wrong, as a sentence.
pub(crate) fn sentence(broken: Broken) -> String {
    match broken {
        Broken::Call(Failure::Refused { call, answer }) => {
            let verb = call.split(' ').next().unwrap_or_default().to_owned();
            format!("the API server refused the {verb}: {answer}")
        }
        Broken::Call(failure) => failure.to_string(),
        Broken::Because(why) | Broken::Hopeless(why) => why,
        Broken::InTheWay(finding) | Broken::Gone(finding) => finding.message,
        Broken::Stopped => "stopped".to_owned(),
    }
}

/// Whether a move is already made, as far as the plan's snapshot tells. Waits never are: they cost no write.
#[must_use]
pub fn is_made(step: &Move, entries: &Entries) -> bool {
    let live = step.live.as_ref().map(Body::value);
    let live = live.as_ref();
    match &step.action {
        Action::Create { .. } | Action::Wait(_) => false,
        Action::Delete(_) => match (live, entries.find(step).and_then(Entry::pre_image)) {
            (None, _) => true,
            (Some(live), Some(image)) => uid(live) != image.uid,
            (Some(_), None) => false,
        },
        Action::Recreate(_) => match (live, entries.find(step).and_then(Entry::pre_image)) {
            (Some(live), Some(image)) => {
                uid(live) != image.uid && !is_going(live) && give_back_patch(live, image).is_none()
            }
            _ => false,
        },
        Action::Patch { .. } | Action::Scale { .. } | Action::Advance { .. } => live.is_some_and(|live| {
            step.action.fields().iter().all(|field| field.is_in(live)) && disown_patch(live).is_none()
        }),
    }
}

/// A merge patch that sets the fields and carries the version that was read: a compare-and-swap.
pub(crate) fn merge_patch(wanted: &[Field], live: &Value) -> Value {
    let mut after = live.clone();
    for field in wanted {
        field.path.set(&mut after, field.value.clone());
    }
    let mut patch = json!({"metadata": {"resourceVersion": resource_version(live)}});
    for field in wanted {
        let (keys, value) = field.path.mergeable(&after);
        let mut at = &mut patch;
        for key in keys {
            if !at.is_object() {
                *at = Value::Object(Map::new());
            }
            at = &mut at[key];
        }
        *at = value.map_or(Value::Null, |value| replacing(field.path.mergeable(live).1, value));
    }
    patch
}

/// What a merge patch must say for a value to become this one: a map is merged, so what it shall not have any more is
/// named with null.
fn replacing(live: Option<&Value>, wanted: &Value) -> Value {
    let (Some(Value::Object(live)), Value::Object(map)) = (live, wanted) else { return wanted.clone() };
    let gone = live.keys().filter(|key| !map.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let there = map.iter().map(|(key, value)| (key.clone(), replacing(live.get(key), value)));
    Value::Object(gone.chain(there).collect())
}

/// The values that undo must put back: those that are there now, but where a field has the wanted value already the one
/// that was known, since it was ourselves who set it.
fn old_values(wanted: &[Field], known: &[Field], live: &Value) -> Vec<Field> {
    let old = |field: &Field| {
        let now = field.path.get(live);
        let known = known.iter().find(|known| known.path == field.path);
        match known {
            Some(known) if now == field.value.as_ref() => known.clone(),
            _ => Field { path: field.path.clone(), value: now.cloned() },
        }
    };
    wanted.iter().map(old).collect()
}

/// A JSON patch that takes our entry out of managedFields, if there is one.
pub(crate) fn disown_patch(live: &Value) -> Option<Value> {
    let managers = live.pointer("/metadata/managedFields")?.as_array()?;
    // An object that we made ourselves is ours: only what others made must not be held.
    if made_by(live).is_some() {
        return None;
    }
    let index = managers.iter().position(is_ours)?;
    Some(json!([
        {"op": "test", "path": format!("/metadata/managedFields/{index}/manager"), "value": FIELD_MANAGER},
        {"op": "remove", "path": format!("/metadata/managedFields/{index}")},
    ]))
}

fn is_ours(entry: &Value) -> bool {
    text(entry, "/manager") == Some(FIELD_MANAGER)
}

/// A JSON patch that replaces our entry in managedFields by those that were there before, if there is ours.
///
/// To take ours out is not enough: where nobody owns anything, the server lets what is there be owned by a manager of
/// its own at the next apply, and that conflicts too.
fn give_back_patch(live: &Value, image: &PreImage) -> Option<Value> {
    let now = live.pointer("/metadata/managedFields")?.as_array()?;
    // What the step itself had made before it took it away stays ours.
    if made_by(live).is_some() || !now.iter().any(is_ours) {
        return None;
    }
    let who = |entry: &Value| ["manager", "operation", "subresource"].map(|key| entry.get(key).cloned());
    let before = image.managed.as_ref().map(Body::value)?;
    let mut managed: Vec<Value> =
        before.as_array()?.iter().filter(|entry| !is_ours(entry)).cloned().collect();
    if managed.is_empty() {
        return None;
    }
    for entry in now.iter().filter(|entry| !is_ours(entry)) {
        if !managed.iter().any(|known| who(known) == who(entry)) {
            managed.push(entry.clone());
        }
    }
    Some(json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": resource_version(live)},
        {"op": "replace", "path": "/metadata/managedFields", "value": managed},
    ]))
}

fn is_failed_test(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { answer, .. }
        if answer.code == 422 && answer.message.contains("the server rejected our request due to an error in our request"))
}

/// What is said of an object when the move is made.
pub(crate) fn past_tense(action: &Action) -> &'static str {
    match action {
        Action::Create { .. } => "created",
        Action::Delete(_) => "deleted",
        Action::Recreate(_) => "recreated",
        Action::Patch { .. } => "patched",
        Action::Scale { .. } => "scaled",
        Action::Advance { .. } => "advanced",
        Action::Wait(_) => "waited for",
    }
}

pub(crate) fn describe(wanted: &[Field], live: &Value) -> String {
    let change = |field: &Field| {
        format!("{} from {} to {}", field.path, shown(field.path.get(live)), shown(field.value.as_ref()))
    };
    wanted.iter().map(change).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Companion, Item};

    fn label(key: &str, value: Option<&str>) -> Field {
        Field { path: FieldPath::of(["metadata", "labels", key]), value: value.map(Into::into) }
    }

    #[test]
    fn a_merge_patch_sets_and_removes_fields_of_the_version_that_was_read() {
        let live = json!({"metadata": {"resourceVersion": "7", "labels": {"old": "1", "kept": "2"}}});
        let patch = merge_patch(&[label("old", None), label("a.b/c", Some("3"))], &live);
        assert_eq!(
            patch,
            json!({"metadata": {"resourceVersion": "7", "labels": {"old": null, "a.b/c": "3"}}})
        );
    }

    #[test]
    fn a_patch_counts_as_made_only_when_our_mark_is_off_too() {
        let live = |managers: Value| json!({"metadata": {"labels": {"a": "1"}, "managedFields": managers}});
        let step = |live: Value| {
            let item = Item::new(kinds::CONFIG_MAP.object("ns", "a"), Some(&live), None);
            Move::patch(&item, vec![label("a", Some("1"))])
        };
        let none = Entries::default();
        assert!(is_made(&step(live(json!([{"manager": "helm"}]))), &none));
        assert!(!is_made(&step(live(json!([{"manager": "helm"}, {"manager": "belay"}]))), &none));
    }

    #[test]
    fn a_watch_that_has_not_seen_the_steps_own_change_yet_is_not_believed() {
        let live = |uid: &str, generation: u64| json!({"metadata": {"uid": uid, "generation": generation}});
        let object = kinds::CONFIG_MAP.object("ns", "a");
        let mut trail = Trail::default();
        trail.changed(&object, &live("1", 2));
        assert!(!trail.left[0].1.has_arrived(Some(&live("1", 1))));
        assert!(trail.left[0].1.has_arrived(Some(&live("1", 2))));
        assert!(trail.left[0].1.has_arrived(Some(&live("2", 1))), "somebody has made another one");
        assert!(trail.left[0].1.has_arrived(None), "somebody has deleted it");
        trail.made(&object, &live("2", 1));
        assert!(!trail.left[0].1.has_arrived(Some(&live("1", 2))), "the one before");
        assert!(!trail.left[0].1.has_arrived(None));
        assert!(trail.left[0].1.has_arrived(Some(&live("2", 1))));
    }

    #[test]
    fn undo_puts_back_what_was_there_last_but_never_what_we_set_ourselves() {
        let field = |key: &str, value: &str| label(key, Some(value));
        let wanted = [field("a", "new"), field("b", "new")];
        let known = [field("a", "old"), field("b", "old")];
        let live = |a: &str, b: &str| json!({"metadata": {"labels": {"a": a, "b": b}}});
        assert_eq!(old_values(&wanted, &known, &live("old", "old")), known);
        let changed = old_values(&wanted, &known, &live("somebody's", "old"));
        assert_eq!(changed, [field("a", "somebody's"), field("b", "old")]);
        let half_reverted = old_values(&wanted, &known, &live("old", "new"));
        assert_eq!(half_reverted, known);
    }

    #[test]
    fn a_revived_object_gets_the_owners_of_its_fields_back() {
        let live = json!({"metadata": {"resourceVersion": "7", "managedFields": [
            {"manager": "belay", "operation": "Update"},
            {"manager": "controller", "operation": "Update", "subresource": "status"},
        ]}});
        let helm = json!({"manager": "helm", "operation": "Apply"});
        let image = |managers: Value| PreImage::of(&json!({"metadata": {"managedFields": managers}}));
        let patch = give_back_patch(&live, &image(json!([helm]))).unwrap();
        let managers: Vec<&str> = patch[1]["value"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|entry| text(entry, "/manager"))
            .collect();
        assert_eq!(managers, ["helm", "controller"]);
        assert!(give_back_patch(&live, &image(json!([]))).is_none(), "nobody to give it to");
        let given = json!({"metadata": {"managedFields": [helm]}});
        assert!(give_back_patch(&given, &image(json!([helm]))).is_none());
    }

    #[tokio::test]
    async fn what_has_a_companion_that_is_going_is_not_deleted_whether_that_is_known_by_name_or_by_labels() {
        let labels = json!({"of": "a"});
        let going = json!({"metadata": {
            "name": "b", "namespace": "ns", "uid": "b", "labels": labels,
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "finalizers": ["held"],
        }});
        let live = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "a"}});
        let object = kinds::CONFIG_MAP.object("ns", "a");
        for companion in [
            Companion::of(&kinds::CONFIG_MAP.object("ns", "b"), None),
            Companion::labelled(Scope::labelled(kinds::CONFIG_MAP, "ns", &[("of", "a")]), 1, 1),
        ] {
            let (going, there) = (going.clone(), live.clone());
            let fake = crate::fake::Fake::new(move |_, path| match path.rsplit('/').next() {
                Some("a") => (200, there.clone()),
                Some("b") => (200, going.clone()),
                Some("configmaps") => (200, json!({"metadata": {"resourceVersion": "1"}, "items": [going]})),
                name => (404, json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}})),
            });
            let item = Item::new(object.clone(), Some(&live), None);
            let removal = Removal::within(Duration::from_millis(300)).companions(vec![companion]);
            let chain = Chain::new(object.clone(), vec![Move::recreate(&item, removal)]);
            let entries = Entries::new(Entries::default().missing(std::iter::once((0, &chain))));
            let cluster = Arc::new(fake.cluster(1));
            let ledger = Ledger::load(&cluster, "home", "s").await.unwrap();
            let ledger = Arc::new(tokio::sync::Mutex::new(ledger));
            let actor = Actor::new(cluster, ledger, Arc::new(entries), "s/r".into(), Everywhere::default());
            let ended = actor.make(&chain.moves[0], &mut Trail::default()).await;
            let why = sentence(ended.expect_err("it is not made"));
            assert!(why.contains("ConfigMap/ns/b gone: still there, held by finalizer held"), "{why}");
            assert!(fake.seen().iter().all(|(method, _)| method == "GET"), "{:?}", fake.seen());
        }
    }

    /// What a server does with a merge patch.
    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(patch) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        for (key, value) in patch {
            if value.is_null() {
                target.as_object_mut().unwrap().remove(key);
            } else {
                apply(&mut target[key.as_str()], value);
            }
        }
    }

    fn any_field() -> impl Strategy<Value = Field> {
        let path = prop_oneof![
            "[ab]".prop_map(|key| FieldPath::of(["metadata".to_owned(), "labels".to_owned(), key])),
            "[ab]".prop_map(|key| FieldPath::of(["spec".to_owned(), key])),
            "[ab]".prop_map(|name| FieldPath::dotted("spec.parts").item("name", name).key("count")),
            Just(FieldPath::dotted("spec.map")),
        ];
        let value = prop_oneof![
            (0..3i64).prop_map(Value::from),
            proptest::collection::btree_map("[xyz]", 0..3i64, 0..3).prop_map(|map| json!(map)),
            proptest::collection::btree_map("[xyz]", 0..3i64, 0..3).prop_map(|map| json!({"in": map})),
        ];
        (path, proptest::option::of(value)).prop_map(|(path, value)| Field { path, value })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_merge_patch_gives_every_field_its_value_and_the_old_values_bring_the_object_back(
            wanted in proptest::collection::vec(any_field(), 1..4),
            count in 0..3i64,
        ) {
            // One field is never written twice by one move.
            let paths: std::collections::BTreeSet<String> = wanted.iter().map(|field| field.path.to_string()).collect();
            prop_assume!(paths.len() == wanted.len());
            let start = json!({
                "metadata": {"resourceVersion": "1", "labels": {"a": 1}},
                "spec": {
                    "a": 2, "parts": [{"name": "a", "count": count}], "map": {"x": count, "in": {"x": 1, "y": 2}},
                },
            });
            let mut live = start.clone();
            let old: Vec<Field> = wanted
                .iter()
                .map(|field| Field { path: field.path.clone(), value: field.path.get(&start).cloned() })
                .collect();
            let patch = merge_patch(&wanted, &live);
            apply(&mut live, &patch);
            for field in &wanted {
                prop_assert_eq!(field.path.get(&live), field.value.as_ref());
            }
            let patch = merge_patch(&old, &live);
            apply(&mut live, &patch);
            for field in &old {
                prop_assert_eq!(field.path.get(&live), field.value.as_ref());
            }
        }
    }
}
