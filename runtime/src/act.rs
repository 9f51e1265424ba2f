//! Carries out moves: chains side by side, the moves of a chain one after the other.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
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
        FieldPath, Kind, ObjectRef, is_going, resource_version, shown_time, text, uid, without_server_fields,
    },
    plan::{Action, Chain, Check, Field, Finding, Move, Owner, Progress, Removal, Test, Wait, shown},
    watch::{Scope, View, Watches},
};

/// The annotation on objects that a step made: `step/run`.
pub const RUN_ANNOTATION: &str = "belay.dev/run";

/// How often a changed object is read and decided on again before that counts as a failure.
const CONFLICTS: u32 = 30;

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
    /// It was left alone, and nothing of it was done.
    Skipped(Finding),
    /// It failed.
    Failed(String),
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
    /// Something is in the way that is not ours: leave the chain.
    InTheWay(Finding),
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
#[derive(Default)]
pub(crate) struct Trail(BTreeMap<ObjectRef, (String, i64)>);

impl Trail {
    pub(crate) fn saw(&mut self, object: &ObjectRef, live: &Value) {
        let generation = live.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default();
        self.0.insert(object.clone(), (uid(live).to_owned(), generation));
    }

    fn uid_of(&self, object: &ObjectRef) -> Option<&str> {
        self.0.get(object).map(|(uid, _)| uid.as_str())
    }

    /// The first of our own changes that has not reached the watch yet.
    fn not_arrived(&self, scopes: &[Scope], view: &View<'_>) -> Option<&ObjectRef> {
        self.0
            .iter()
            .filter(|(object, _)| {
                scopes.iter().any(|scope| {
                    scope.kind == object.kind && scope.name.as_ref().is_none_or(|name| *name == object.name)
                })
            })
            .find(|(object, (wanted, generation))| {
                !view.get(object).is_some_and(|live| {
                    uid(&live) == wanted
                        && live.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
                            >= *generation
                })
            })
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
    waiting: Mutex<HashMap<ObjectRef, String>>,
    stop: watch::Sender<bool>,
    kinds: tokio::sync::Mutex<HashMap<(String, String), Option<Kind>>>,
}

impl Actor {
    /// An actor for a run. `run` is the value of the run annotation.
    #[must_use]
    pub fn new(
        cluster: Arc<Cluster>,
        ledger: Arc<tokio::sync::Mutex<Ledger>>,
        entries: Arc<Entries>,
        run: String,
    ) -> Self {
        Self {
            watches: Watches::new(cluster.clone()),
            cluster,
            ledger,
            entries: RwLock::new(entries),
            run,
            outcomes: Mutex::default(),
            waiting: Mutex::default(),
            stop: watch::Sender::new(false),
            kinds: tokio::sync::Mutex::default(),
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
    pub fn add_earlier(&self, entries: &Entries) {
        let mut outcomes = lock(&self.outcomes);
        for entry in entries.all() {
            let (object, what) = (entry.object.to_string(), past_tense(&entry.action));
            if !outcomes.iter().any(|known| known.object == object) {
                let detail = "by an earlier attempt".to_owned();
                outcomes.push(Outcome { object, what: what.to_owned(), detail, at: crate::journal::now() });
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
        let outcome =
            Outcome { object: object.to_string(), what: what.to_owned(), detail, at: crate::journal::now() };
        lock(&self.outcomes).push(outcome);
    }

    /// Lets waits go on again after a stop: undo waits too.
    pub fn resume_waits(&self) {
        self.stop.send_replace(false);
    }

    /// Runs chains side by side. With `stop_all`, the first failure stops the others at their next move.
    pub async fn run_chains(
        &self,
        chains: &[Chain],
        stop_all: bool,
        mut ended: impl FnMut(&Chain, &ChainEnd),
    ) -> Vec<(ObjectRef, ChainEnd)> {
        let mut running: FuturesUnordered<_> =
            chains.iter().map(|chain| async move { (chain, self.run_chain(chain).await) }).collect();
        let mut ends = Vec::with_capacity(chains.len());
        while let Some((chain, end)) = running.next().await {
            if stop_all && matches!(end, ChainEnd::Failed(_)) {
                self.stop.send_replace(true);
            }
            ended(chain, &end);
            ends.push((chain.subject.clone(), end));
        }
        ends
    }

    async fn run_chain(&self, chain: &Chain) -> ChainEnd {
        let mut trail = Trail::default();
        let mut wrote = false;
        for step in &chain.moves {
            if *self.stop.borrow() {
                return ChainEnd::Stopped;
            }
            match self.make(step, &mut trail).await {
                Ok(()) => wrote |= step.writes(),
                Err(Broken::Stopped) => return ChainEnd::Stopped,
                Err(Broken::Call(Failure::Halted(halt))) => return ChainEnd::Halted(halt),
                Err(Broken::InTheWay(finding)) if !wrote => {
                    self.note(&chain.subject, "skipped", finding.to_string());
                    return ChainEnd::Skipped(finding);
                }
                // The namespace is going and takes the object with it: there is nothing to migrate, nor to restore.
                Err(Broken::Call(failure)) if failure.namespace_is_going() => {
                    let finding = Finding::skip(chain.subject.clone(), "its namespace is being deleted");
                    self.note(&chain.subject, "skipped", finding.message.clone());
                    return ChainEnd::Skipped(finding);
                }
                Err(broken) => {
                    let why = match step.action {
                        Action::Wait(_) => sentence(broken),
                        _ => format!("{} {}: {}", step.verb(), step.object, sentence(broken)),
                    };
                    self.note(&chain.subject, "failed", why.clone());
                    return ChainEnd::Failed(why);
                }
            }
        }
        ChainEnd::Done
    }

    /// Makes one move; finds it made already where it is.
    pub(crate) async fn make(&self, step: &Move, trail: &mut Trail) -> Result<(), Broken> {
        match &step.action {
            Action::Create { body, identity, owners } => {
                self.create(&step.object, body, identity, owners, trail).await
            }
            Action::Delete(removal) => {
                let image = self.image_of(step).await;
                if self.delete(step, removal, image.as_ref()).await? {
                    self.note(&step.object, past_tense(&step.action), "");
                }
                Ok(())
            }
            Action::Recreate(removal) => self.recreate(step, removal, trail).await,
            Action::Patch { .. } | Action::Scale { .. } | Action::Advance { .. } => {
                self.change(step, trail).await
            }
            Action::Wait(wait) => self.wait(&step.object, wait, trail).await,
        }
    }

    async fn image_of(&self, step: &Move) -> Option<PreImage> {
        self.entries().await.find(step).and_then(|entry| entry.pre_image().cloned())
    }

    async fn create(
        &self,
        object: &ObjectRef,
        body: &Value,
        identity: &[FieldPath],
        owners: &[Owner],
        trail: &mut Trail,
    ) -> Result<(), Broken> {
        let mut full = body.clone();
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
                    trail.saw(object, &live);
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
                    format!(
                        "exists already and is another one: its {other} is {}, not {}",
                        shown(other.get(&live)),
                        shown(other.get(&full))
                    ),
                )));
            }
            trail.saw(object, &live);
            let ours = made_by(&live) == Some(&self.run);
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

    /// Deletes exactly the object that the journal knows. Returns whether it was there.
    async fn delete(&self, step: &Move, removal: &Removal, image: Option<&PreImage>) -> Result<bool, Broken> {
        let object = &step.object;
        let mut known = image.cloned();
        let mut live = match step.live.as_deref() {
            Some(live) => Some(live.clone()),
            None => self.cluster.get(object).await?,
        };
        for _ in 0..CONFLICTS {
            let Some(found) = &live else { return Ok(false) };
            if known.as_ref().is_some_and(|image| image.uid != uid(found)) {
                // Another one bears the name: the one that was to go is gone.
                return Ok(false);
            }
            if is_going(found) {
                self.until_gone(object, uid(found), removal.within).await?;
                return Ok(true);
            }
            if let Some(image) = &mut known
                && without_server_fields(found) != *image.object
            {
                // Somebody changed it since it was journalled: what undo restores must be the newest.
                *image = PreImage::of(found);
                self.journal_again(step, Before::Object(image.clone())).await?;
            }
            let precondition = Precondition {
                uid: uid(found).to_owned(),
                resource_version: Some(resource_version(found).to_owned()),
            };
            match self.cluster.delete(object, &precondition, removal.propagation, Mode::Real).await {
                Ok(answer) => {
                    // A Status means that it is gone; the object itself means that finalizers hold it.
                    if text(&answer, "/kind") != Some("Status") {
                        self.until_gone(object, uid(found), removal.within).await?;
                    }
                    return Ok(true);
                }
                Err(failure) if failure.is_not_found(&object.name) => return Ok(true),
                Err(failure) if failure.is_conflict() => {}
                Err(failure) => return Err(failure.into()),
            }
            live = self.cluster.get(object).await?;
        }
        Err(Broken::Because("is changed all the time: it cannot be deleted as it was read".to_owned()))
    }

    async fn recreate(&self, step: &Move, removal: &Removal, trail: &mut Trail) -> Result<(), Broken> {
        let object = &step.object;
        let Some(first) = self.image_of(step).await else {
            return Err(Broken::Because("is not in the journal".to_owned()));
        };
        self.delete(step, removal, Some(&first)).await?;
        // The delete may have journalled a newer pre-image.
        let image = self.image_of(step).await.unwrap_or(first);
        let live = self.revive(object, &image, removal).await?;
        trail.saw(object, &live);
        self.note(object, past_tense(&step.action), "");
        Ok(())
    }

    /// Creates an object from its pre-image, unless one bears its name already.
    pub(crate) async fn revive(
        &self,
        object: &ObjectRef,
        image: &PreImage,
        removal: &Removal,
    ) -> Result<Value, Broken> {
        let mut body = (*image.object).clone();
        removal.not_on_create.iter().for_each(|field| field.set(&mut body, None));
        self.refresh_owners(object, &mut body).await?;
        for _ in 0..CONFLICTS {
            match self.cluster.create(object, &body, Mode::Real).await {
                Ok(live) => return Ok(live),
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

    /// Gives owner references the uids that their owners have now. One with a stale uid would be collected as
    /// garbage within seconds.
    async fn refresh_owners(&self, object: &ObjectRef, body: &mut Value) -> Result<(), Broken> {
        let Some(owners) = body.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) else {
            return Ok(());
        };
        for owner in owners {
            let (api_version, kind, name) =
                (text(owner, "/apiVersion"), text(owner, "/kind"), text(owner, "/name"));
            let (Some(api_version), Some(kind), Some(name)) = (api_version, kind, name) else { continue };
            let gone = || {
                Broken::Because(format!(
                    "cannot be created again: its owner {kind}/{name} does not exist, and without it the object \
                     would be collected as garbage"
                ))
            };
            let found = self.kind_of(api_version, kind).await?.ok_or_else(gone)?;
            let namespace = object.namespace.clone().filter(|_| found.namespaced);
            let reference = ObjectRef { kind: found, namespace, name: name.to_owned() };
            let live = self.cluster.get(&reference).await?.filter(|live| !is_going(live)).ok_or_else(gone)?;
            owner["uid"] = uid(&live).into();
        }
        Ok(())
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
        let mut live = match step.live.as_deref() {
            Some(live) => live.clone(),
            None => self.must_exist(object).await?,
        };
        // Where the plan's view is not used, the journal's old values must be compared with what is there now.
        let mut as_planned = step.live.is_some();
        for _ in 0..CONFLICTS {
            let as_wanted = wanted.iter().all(|field| field.path.get(&live) == field.value.as_ref());
            if as_wanted {
                let live = self.disown(object, live).await?;
                trail.saw(object, &live);
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
            if !as_planned {
                self.journal_changed_fields(step, &wanted, &live).await?;
            }
            as_planned = false;
            match self.swap(object, &step.action, &wanted, &live, Mode::Real).await {
                Ok(after) => {
                    let after = self.disown(object, after).await?;
                    trail.saw(object, &after);
                    self.note(object, past_tense(&step.action), describe(&wanted, &live));
                    return Ok(());
                }
                Err(failure) if failure.is_conflict() => live = self.must_exist(object).await?,
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
                Err(failure) if failure.is_conflict() || is_failed_test(&failure) => {
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
            _ => Err(Broken::InTheWay(Finding::skip(
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
        let now: Vec<Field> = wanted
            .iter()
            .map(|field| Field { path: field.path.clone(), value: field.path.get(live).cloned() })
            .collect();
        let entries = self.entries().await;
        let known = entries.find(step).map(|entry| &entry.before);
        if !matches!(known, Some(Before::Fields(old)) if *old == now) {
            self.journal_again(step, Before::Fields(now)).await?;
        }
        Ok(())
    }

    /// Journals a newer pre-image of a move, before the move is made.
    async fn journal_again(&self, step: &Move, before: Before) -> Result<(), Broken> {
        let mut ledger = self.ledger.lock().await;
        let mut entries = self.entries.write().await;
        let Some(old) = entries.find(step) else { return Ok(()) };
        let entry = Entry { before, ..old.clone() };
        ledger.append(std::slice::from_ref(&entry)).await?;
        let mut all = entries.all().to_vec();
        all.push(entry);
        *entries = Arc::new(Entries::new(all));
        Ok(())
    }

    /// Time until the deadline that counts now.
    pub(crate) fn time_left(&self) -> Duration {
        self.cluster.deadline().saturating_duration_since(Instant::now())
    }

    /// Waits until the object with this uid is gone.
    pub(crate) async fn until_gone(
        &self,
        object: &ObjectRef,
        gone: &str,
        within: Duration,
    ) -> Result<(), Broken> {
        let gone = gone.to_owned();
        let watched = object.clone();
        let check = move |view: &View<'_>| match view.get(&watched) {
            Some(live) if uid(&live) == gone => Test::Gone.ask(Some(&live)),
            _ => Progress::Done,
        };
        let wait = Wait {
            what: format!("{object} gone"),
            scopes: vec![Scope::of(object)],
            within,
            check: Check::Code(Arc::new(check)),
        };
        self.wait(object, &wait, &Trail::default()).await
    }

    /// Waits, on the watch that all waits on the kind share.
    pub(crate) async fn wait(&self, object: &ObjectRef, wait: &Wait, trail: &Trail) -> Result<(), Broken> {
        let begun = Instant::now();
        let until = (begun + wait.within).min(self.cluster.deadline());
        let waiter = self.watches.waiter(&wait.scopes);
        let mut stop = self.stop.subscribe();
        let mut suspect: Option<(String, Instant)> = None;
        let _said = Said { actor: self, object };
        loop {
            let progress = waiter
                .look(|view| match trail.not_arrived(&wait.scopes, view) {
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
                Progress::Failed(why) => {
                    return Err(Broken::Because(format!("waiting for {}: {why}", wait.what)));
                }
                Progress::Pending(what) => {
                    suspect = None;
                    what
                }
                Progress::Suspect(what, after) => {
                    let since = match &suspect {
                        Some((same, since)) if *same == what => *since,
                        _ => Instant::now(),
                    };
                    if since.elapsed() >= after {
                        return Err(Broken::Because(format!("waiting for {}: {what}", wait.what)));
                    }
                    again = again.min(since + after);
                    suspect = Some((what.clone(), since));
                    what
                }
            };
            if begun.elapsed() >= SAY_AFTER {
                lock(&self.waiting).insert(object.clone(), format!("{} ({last})", wait.what));
            } else {
                again = again.min(begun + SAY_AFTER);
            }
            if Instant::now() >= until {
                return Err(Broken::Because(format!(
                    "waited {} for {}: {last}",
                    shown_time(begun.elapsed()),
                    wait.what
                )));
            }
            tokio::select! {
                () = waiter.changed() => {}
                () = tokio::time::sleep_until(again) => {}
                halt = self.cluster.wait_halted() => return Err(Broken::Call(Failure::Halted(halt))),
                changed = stop.wait_for(|stop| *stop) => if changed.is_ok() { return Err(Broken::Stopped) },
            }
        }
    }
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
        Broken::Because(why) => why,
        Broken::InTheWay(finding) => finding.message,
        Broken::Stopped => "stopped".to_owned(),
    }
}

/// Whether a move is already made, as far as the plan's snapshot tells. Waits never are: they cost no write.
#[must_use]
pub fn is_made(step: &Move, entries: &Entries) -> bool {
    let live = step.live.as_deref();
    match &step.action {
        Action::Create { .. } | Action::Wait(_) => false,
        Action::Delete(_) => match (live, entries.find(step).and_then(Entry::pre_image)) {
            (None, _) => true,
            (Some(live), Some(image)) => uid(live) != image.uid,
            (Some(_), None) => false,
        },
        Action::Recreate(_) => match (live, entries.find(step).and_then(Entry::pre_image)) {
            (Some(live), Some(image)) => uid(live) != image.uid && !is_going(live),
            _ => false,
        },
        Action::Patch { .. } | Action::Scale { .. } | Action::Advance { .. } => live.is_some_and(|live| {
            step.action.fields().iter().all(|field| field.path.get(live) == field.value.as_ref())
                && disown_patch(live).is_none()
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
        *at = value.cloned().unwrap_or(Value::Null);
    }
    patch
}

/// A JSON patch that takes our entry out of managedFields, if there is one.
fn disown_patch(live: &Value) -> Option<Value> {
    let managers = live.pointer("/metadata/managedFields")?.as_array()?;
    // An object that we made ourselves is ours: only what others made must not be held.
    if made_by(live).is_some() {
        return None;
    }
    let index = managers.iter().position(|entry| text(entry, "/manager") == Some(FIELD_MANAGER))?;
    Some(json!([
        {"op": "test", "path": format!("/metadata/managedFields/{index}/manager"), "value": FIELD_MANAGER},
        {"op": "remove", "path": format!("/metadata/managedFields/{index}")},
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
    use crate::{object::kinds, plan::Item};

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
        let live = |managers: Value| {
            Arc::new(json!({"metadata": {"labels": {"a": "1"}, "managedFields": managers}}))
        };
        let step = |live| {
            let item = Item { object: kinds::CONFIG_MAP.object("ns", "a"), live: Some(live), before: None };
            Move::patch(&item, vec![label("a", Some("1"))])
        };
        let none = Entries::default();
        assert!(is_made(&step(live(json!([{"manager": "helm"}]))), &none));
        assert!(!is_made(&step(live(json!([{"manager": "helm"}, {"manager": "belay"}]))), &none));
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
        ];
        (path, proptest::option::of(0..3i64))
            .prop_map(|(path, value)| Field { path, value: value.map(Into::into) })
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
                "spec": {"a": 2, "parts": [{"name": "a", "count": count}]},
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
