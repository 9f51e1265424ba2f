//! The journal: an undo log in the cluster, written before anything is changed.
//!
//! Each step has one head Secret and a fixed ring of chunk Secrets in the family's home. The head names the chunks
//! of its journals with their hashes and is written after them, by compare-and-swap: what the head does not name
//! did not happen. Names are fixed so that a step's account may read its own Secrets by name and list none.

use std::{
    collections::{HashMap, HashSet},
    io::{BufRead as _, BufReader, Write as _},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, bail};
use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    cluster::{Cluster, Failure, Mode},
    object::{
        Body, FieldPath, Kind, ObjectRef, is_going, kinds, resource_version, uid, without_server_fields,
    },
    plan::{Action, Chain, Field, Move, Undo},
};

/// The type of every journal Secret; the chart's admission policy lets a step's account write no other.
pub const SECRET_TYPE: &str = "belay.dev/journal";

/// The format that this version writes.
const FORMAT: u32 = 1;

/// Chunk Secrets that a step has.
const CHUNKS: usize = 32;

/// Compressed bytes in a chunk at the most. A Secret may hold 1 MiB.
const CHUNK_BYTES: usize = 640 * 1024;

/// A chunk of fewer bytes than this takes up what is added later: else a step whose objects others keep changing would
/// use up the ring with chunks of one entry.
const ROOM_BYTES: usize = 128 * 1024;

/// Closed journals that are kept, so that a finished step can be undone later.
const KEPT: usize = 3;

/// Deaths after which a journal is undone instead of taken up again: the first attempt and two resumes.
const DEATHS: u32 = 3;

/// How often a Secret that somebody else changes is read and written again.
const TRIES: u32 = 5;

/// The head Secret of a step.
#[must_use]
pub fn head_name(step: &str) -> String {
    format!("belay-{step}")
}

/// The chunk Secrets of a step.
pub fn chunk_names(step: &str) -> impl Iterator<Item = String> {
    (0..CHUNKS).map(move |index| format!("belay-{step}-{index:02}"))
}

/// How a journal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A run is under way, or died.
    Open,
    /// An undo is under way, died, or could not put everything back.
    Undoing,
    /// The step finished.
    Done,
    /// All was put back.
    Undone,
    /// A person has looked and said that it is well.
    Accepted,
}

impl Status {
    /// Whether the journal waits for somebody.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Undoing)
    }
}

/// One journal, as the head knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Journal {
    /// The id of the run that opened it; what made objects bear as annotation.
    pub run: String,
    /// How it stands.
    pub status: Status,
    /// When it was opened.
    pub opened: String,
    /// When it last changed its status.
    pub changed: String,
    /// Runs that died with it.
    pub deaths: u32,
    /// Whether the run that had it was told to stop and did so in good order: then nobody died.
    #[serde(default)]
    pub handed_on: bool,
    /// Whether the step is past its point of no return.
    pub no_return: bool,
    /// The chains that are being taken back, where it is not all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoing: Option<Vec<ObjectRef>>,
    /// Chains that were left alone or taken back before the journal was closed: what a person does with their objects
    /// afterwards is not the step's to take back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub void: Vec<ObjectRef>,
    /// What a person wrote when accepting it, or that a person restored it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remark: String,
    /// Its chunks in order.
    pub chunks: Vec<Chunk>,
}

/// What a journal remarks that a person took back.
pub const RESTORED_BY_HAND: &str = "restored by hand";

/// A chunk, as the head knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The Secret.
    pub name: String,
    /// Hash of its bytes.
    pub sha256: String,
    /// Entries that end in it; none where the chunk after it goes on with what this one begins.
    pub entries: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Head {
    format: u32,
    /// Newest first.
    journals: Vec<Journal>,
}

impl Head {
    /// The journal that is open. There is at most one: a run takes it up before it would open another. It may be an
    /// older one, where a person restores that.
    fn current(&mut self) -> Option<&mut Journal> {
        self.journals.iter_mut().find(|journal| journal.status.is_open())
    }
}

/// An entry: a move that will be made, and what must be known to take it back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// The phase it belongs to; undo goes through the phases backwards.
    pub phase: usize,
    /// The subject of its chain.
    pub chain: ObjectRef,
    /// Chains of a phase that share this are undone one after the other, the last one first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// Its place in the chain.
    pub index: usize,
    /// What it is done to.
    pub object: ObjectRef,
    /// What is done.
    pub action: Action,
    /// How it is taken back.
    pub undo: Undo,
    /// What was there before.
    pub before: Before,
    /// Whose fields the move changes. None where the object is made meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// What was there before a move.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Before {
    /// Nothing: the move makes the object.
    Nothing,
    /// An object that the move takes away.
    Object(PreImage),
    /// Fields that the move changes, with their old values.
    Fields(Vec<Field>),
}

/// An object before it is taken away.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PreImage {
    /// Its uid then.
    pub uid: String,
    /// All of it but what the server sets.
    pub object: Body,
    /// Its status, only to compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Body>,
    /// Whose its fields were, by managedFields: what is made again would else be ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed: Option<Body>,
}

impl PreImage {
    /// Takes the pre-image of an object.
    #[must_use]
    pub fn of(live: &Value) -> Self {
        Self {
            uid: uid(live).to_owned(),
            object: Body::of(&without_server_fields(live)),
            status: live.get("status").map(Body::of),
            managed: live.pointer("/metadata/managedFields").and_then(managed),
        }
    }

    /// The object with its status, for tests on how it was.
    #[must_use]
    pub fn with_status(&self) -> Value {
        let mut whole = self.object.value();
        if let Some(status) = &self.status {
            whole["status"] = status.value();
        }
        whole
    }

    /// Whether another object that bears its name was restored from it, or is as if it were.
    fn is_restored_as(&self, live: &Value) -> bool {
        self.uid != uid(live) && without_server_fields(live) == self.object.value()
    }
}

/// The part of managedFields that is about more than the status, which a pre-image does not bring back.
fn managed(fields: &Value) -> Option<Body> {
    let kept: Vec<&Value> =
        fields.as_array()?.iter().filter(|entry| entry.get("subresource").is_none()).collect();
    (!kept.is_empty()).then(|| Body::of(&json!(kept)))
}

impl Entry {
    fn of(phase: usize, chain: &Chain, index: usize, step: &Move) -> Self {
        let live = step.live.as_ref().map(Body::value);
        let live = live.as_ref();
        let before = match &step.action {
            Action::Delete(_) | Action::Recreate(_) => {
                live.map_or(Before::Nothing, |live| Before::Object(PreImage::of(live)))
            }
            Action::Patch { .. } | Action::Scale { .. } | Action::Advance { .. } => {
                let old = |field: &Field| Field {
                    path: field.path.clone(),
                    value: live.and_then(|live| field.path.get(live)).cloned(),
                };
                Before::Fields(step.action.fields().iter().map(old).collect())
            }
            Action::Create { .. } | Action::Wait(_) => Before::Nothing,
        };
        Self {
            phase,
            chain: chain.subject.clone(),
            turn: chain.turn.clone(),
            index,
            object: step.object.clone(),
            action: step.action.clone(),
            undo: step.undo.clone(),
            uid: live.filter(|_| matches!(before, Before::Fields(_))).map(|live| uid(live).to_owned()),
            before,
        }
    }

    /// The pre-image, where the move takes an object away.
    #[must_use]
    pub fn pre_image(&self) -> Option<&PreImage> {
        match &self.before {
            Before::Object(image) => Some(image),
            _ => None,
        }
    }

    /// Whether this is the entry of a move. Two moves may set one field, each to another value, in two phases; and what is
    /// made may differ from what an earlier attempt was about to make.
    fn same_move(&self, step: &Move) -> bool {
        self.object == step.object
            && self.action.verb() == step.verb()
            && self.action.fields() == step.action.fields()
            && self.action.body() == step.action.body()
    }
}

/// All entries of a journal, in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub struct Entries {
    all: Vec<Entry>,
    /// Places in `all`, by object and then by age. A list and not a map of lists: of thousands of objects most have one entry.
    by_object: Vec<usize>,
}

impl Entries {
    /// From a list.
    #[must_use]
    pub fn new(all: Vec<Entry>) -> Self {
        let mut entries = Self::default();
        entries.extend(all);
        entries
    }

    /// Adds newer ones.
    pub fn extend(&mut self, more: impl IntoIterator<Item = Entry>) {
        self.all.extend(more);
        let all = &self.all;
        self.by_object.extend(self.by_object.len()..all.len());
        // Stable: of one object the older entry stays before the newer one.
        self.by_object.sort_by(|&a, &b| all[a].object.cmp(&all[b].object));
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Entry] {
        &self.all
    }

    fn of(&self, object: &ObjectRef) -> impl DoubleEndedIterator<Item = &Entry> {
        let first = self.by_object.partition_point(|&index| self.all[index].object < *object);
        let rest = &self.by_object[first..];
        let count = rest.partition_point(|&index| self.all[index].object == *object);
        rest[..count].iter().map(|&index| &self.all[index])
    }

    /// The entries of each object, the oldest first.
    fn of_each(&self) -> impl Iterator<Item = Vec<&Entry>> {
        let same = |a: &usize, b: &usize| self.all[*a].object == self.all[*b].object;
        self.by_object.chunk_by(same).map(|places| places.iter().map(|&index| &self.all[index]).collect())
    }

    /// The objects that `KIND/[NAMESPACE/]NAME`, as a person wrote them, mean.
    pub fn named(&self, written: &[String]) -> impl Iterator<Item = &ObjectRef> {
        let objects = self.of_each().filter_map(|entries| entries.first().map(|entry| &entry.object));
        objects.filter(|object| written.iter().any(|name| object.is_named(name)))
    }

    /// The newest entry for a move.
    #[must_use]
    pub fn find(&self, step: &Move) -> Option<&Entry> {
        self.of(&step.object).rev().find(|entry| entry.same_move(step))
    }

    /// Objects of a kind that this journal may have taken away.
    pub fn taken_away(&self, kind: &Kind, namespace: Option<&str>) -> impl Iterator<Item = &ObjectRef> {
        let taken = |entries: Vec<&'_ Entry>| entries.iter().any(|entry| entry.pre_image().is_some());
        let objects =
            self.of_each().filter_map(move |entries| Some((&entries.first()?.object, taken(entries))));
        objects
            .filter(move |(object, taken)| {
                *taken
                    && object.kind == *kind
                    && (namespace.is_none() || object.namespace.as_deref() == namespace)
            })
            .map(|(object, _)| object)
    }

    /// Whether an object that the journal's moves were to delete was deleted and restored: its undo could not be marked in
    /// the journal. One that was recreated looks the same, and is what it shall be.
    pub(crate) fn is_restored(&self, object: &ObjectRef, live: &Value) -> bool {
        let deleted = self.of(object).filter(|entry| matches!(entry.action, Action::Delete(_)));
        let images: Vec<&PreImage> = deleted.filter_map(Entry::pre_image).collect();
        let Some((newest, older)) = images.split_last() else { return false };
        // An attempt that found it restored journalled it once more, and died before it could delete it.
        let is_known = newest.uid == uid(live) && older.iter().any(|image| image.uid != newest.uid);
        !is_going(live) && (is_known || newest.is_restored_as(live))
    }

    /// Everything that the journal's moves were to make of an object that was not there.
    pub fn bodies(&self, object: &ObjectRef) -> impl Iterator<Item = &Body> {
        self.of(object).filter_map(|entry| entry.action.body())
    }

    /// Whether an object's fields are as they were before an entry that stands before this one: then this one's move was
    /// never made.
    pub(crate) fn is_before(&self, entry: &Entry, live: &Value) -> bool {
        let paths: Vec<FieldPath> = entry.action.fields().into_iter().map(|field| field.path).collect();
        self.of(&entry.object).filter(|older| older.phase < entry.phase).any(|older| match &older.before {
            Before::Fields(old) => {
                paths.iter().all(|path| old.iter().any(|field| field.path == *path && field.is_in(live)))
            }
            _ => false,
        })
    }

    /// Whether this is not the object whose fields a move has changed, but one that somebody has made since. One that the
    /// step makes anew, or that comes and goes with such a one, is no other.
    pub(crate) fn is_another(&self, entry: &Entry, live: &Value) -> bool {
        let makes_anew = |other: &Entry| match &other.action {
            Action::Create { .. } => other.object == entry.object,
            Action::Delete(removal) | Action::Recreate(removal) => {
                let mut companions = removal.companions.iter().filter_map(|one| one.scope.object());
                other.object == entry.object || companions.any(|one| one == entry.object)
            }
            _ => false,
        };
        entry.uid.as_ref().is_some_and(|known| known != uid(live)) && !self.all.iter().any(makes_anew)
    }

    /// The object as it was before the journal's first entry about it. What this journal's moves have not changed yet is
    /// as it is now: somebody may have changed it since it was journalled.
    #[must_use]
    pub fn origin(&self, object: &ObjectRef, live: Option<&Value>) -> Option<Value> {
        self.before(object, live, false)
    }

    /// The same of an object that was deleted and restored: as if it had never been deleted.
    pub(crate) fn origin_of_restored(&self, object: &ObjectRef, live: &Value) -> Option<Value> {
        self.before(object, Some(live), true)
    }

    fn before(&self, object: &ObjectRef, live: Option<&Value>, restored: bool) -> Option<Value> {
        let mut origin: Option<Value> = None;
        // Backwards: the oldest entry has the last word.
        for entry in self.of(object).rev() {
            match &entry.before {
                Before::Nothing => {}
                Before::Object(image) => {
                    let untouched = live.filter(|live| restored || uid(live) == image.uid && !is_going(live));
                    origin = Some(untouched.cloned().unwrap_or_else(|| {
                        let mut whole = image.with_status();
                        whole["metadata"]["uid"] = image.uid.clone().into();
                        whole
                    }));
                }
                Before::Fields(fields) => {
                    if let Some(mut value) = origin.take().or_else(|| live.cloned()) {
                        let wrote = entry.action.fields();
                        for field in fields {
                            if wrote.iter().any(|ours| ours.path == field.path && ours.is_in(&value)) {
                                field.path.set(&mut value, field.value.clone());
                            }
                        }
                        origin = Some(value);
                    }
                }
            }
        }
        origin
    }

    /// Entries that the plan needs and the journal does not have yet.
    #[must_use]
    pub fn missing<'a>(&self, chains: impl Iterator<Item = (usize, &'a Chain)>) -> Vec<Entry> {
        let mut missing = Vec::new();
        // What earlier moves of the plan will have written: the old value for the moves after them.
        let mut written: HashMap<(&ObjectRef, FieldPath), Option<Value>> = HashMap::new();
        for (phase, chain) in chains {
            for (index, step) in chain.moves.iter().enumerate().filter(|(_, step)| step.writes()) {
                let going = || step.live.as_ref().is_some_and(|live| is_going(&live.value()));
                if self.find(step).is_none() && !going() {
                    let mut entry = Entry::of(phase, chain, index, step);
                    if let Before::Fields(old) = &mut entry.before {
                        for field in old {
                            if let Some(value) = written.get(&(&step.object, field.path.clone())) {
                                field.value.clone_from(value);
                            }
                        }
                    }
                    missing.push(entry);
                }
                written.extend(step.action.fields().into_iter().map(|f| ((&step.object, f.path), f.value)));
            }
        }
        missing
    }
}

/// A step's journals, and the only writer of them in this process.
pub struct Ledger {
    cluster: Arc<Cluster>,
    home: String,
    step: String,
    head: Head,
    version: Option<String>,
    /// The bytes of the last chunk that this process wrote, while there is room in it.
    room: Option<(String, Vec<u8>)>,
}

/// Why a journal cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// A call failed.
    #[error(transparent)]
    Call(#[from] Failure),
    /// What is there cannot be used.
    #[error("{0:#}")]
    Unusable(anyhow::Error),
}

impl From<anyhow::Error> for Trouble {
    fn from(error: anyhow::Error) -> Self {
        Self::Unusable(error)
    }
}

impl Ledger {
    /// Reads the head of a step's journals.
    pub async fn load(cluster: &Arc<Cluster>, home: &str, step: &str) -> Result<Self, Trouble> {
        let object = kinds::SECRET.object(home, head_name(step));
        let found = cluster.get(&object).await?;
        let (head, version) = match &found {
            None => (Head { format: FORMAT, journals: Vec::new() }, None),
            Some(secret) => (
                parse_head(secret).with_context(|| format!("the journal of {step} ({object})"))?,
                Some(resource_version(secret).to_owned()),
            ),
        };
        Ok(Self {
            cluster: cluster.clone(),
            home: home.to_owned(),
            step: step.to_owned(),
            head,
            version,
            room: None,
        })
    }

    /// Reads the head without patience: none if the server does not say whether there is one.
    pub async fn peek(cluster: &Arc<Cluster>, home: &str, step: &str) -> Result<Option<Self>, Trouble> {
        if cluster.can_tell_of(&kinds::SECRET.object(home, head_name(step))).await? {
            Self::load(cluster, home, step).await.map(Some)
        } else {
            Ok(None)
        }
    }

    /// The step whose journals these are.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step
    }

    /// All journals that are kept, newest first.
    #[must_use]
    pub fn journals(&self) -> &[Journal] {
        &self.head.journals
    }

    /// The journal that waits for somebody.
    #[must_use]
    pub fn open_journal(&self) -> Option<&Journal> {
        self.head.journals.iter().find(|journal| journal.status.is_open())
    }

    /// Reads the entries of a journal and proves that they are what was written. Those of chains that are void are left out.
    pub async fn entries(&self, journal: &Journal) -> Result<Entries, Trouble> {
        let mut reader = Reader::default();
        for chunk in &journal.chunks {
            let object = kinds::SECRET.object(&self.home, &chunk.name);
            let secret = self.cluster.get(&object).await?;
            reader.read(chunk, secret.as_ref()).with_context(|| {
                format!(
                    "the journal of {} (run {}) cannot be used: {object}. Look at what the step changed \
                     (belay report {}), put it right by hand, then close the journal with: \
                     belay accept --step {} --home {}",
                    self.step, journal.run, self.step, self.step, self.home
                )
            })?;
        }
        let mut all = reader.entries;
        let void: HashSet<&ObjectRef> = journal.void.iter().collect();
        all.retain(|entry| !void.contains(&entry.chain));
        Ok(Entries::new(all))
    }

    /// Opens a journal with its first entries: chunks first, head last.
    pub async fn open(&mut self, run: &str, entries: &[Entry]) -> Result<(), Trouble> {
        let now = self.cluster.clock().timestamp();
        let journal = Journal {
            run: run.to_owned(),
            status: Status::Open,
            opened: now.clone(),
            changed: now,
            deaths: 0,
            handed_on: false,
            no_return: false,
            undoing: None,
            void: Vec::new(),
            remark: String::new(),
            chunks: Vec::new(),
        };
        let mut head = self.head.clone();
        prune(&mut head.journals);
        head.journals.insert(0, journal);
        self.room = None;
        self.append_to(head, entries).await
    }

    /// Adds entries to the open journal.
    pub async fn append(&mut self, entries: &[Entry]) -> Result<(), Trouble> {
        let head = self.head.clone();
        self.append_to(head, entries).await
    }

    async fn append_to(&mut self, mut head: Head, entries: &[Entry]) -> Result<(), Trouble> {
        let mut packed = pack(entries)?;
        // What was added before and is small is written once more with what comes now, under a new name. The head names
        // the one or the other, so nothing is lost half-way.
        if let Some((first, _)) = packed.first_mut()
            && let Some((name, mut bytes)) = self.room.take()
            && let Some(journal) = head.current()
            && let Some(last) = journal.chunks.pop_if(|chunk| chunk.name == name)
        {
            bytes.append(first);
            *first = bytes;
            if let Some((_, count)) = packed.last_mut() {
                *count += last.entries;
            }
        }
        let free = free_names(&self.step, &self.head.journals, &mut head.journals, packed.len());
        let free = free.with_context(|| {
            format!(
                "the journal of {} is too large: {} objects need {} chunks of {CHUNK_BYTES} bytes, and a step has \
                 {CHUNKS} for all its journals. Migrate in parts, with --exclude",
                self.step,
                entries.len(),
                packed.len()
            )
        })?;
        for ((bytes, count), name) in packed.into_iter().zip(free) {
            let sha256 = hash(&bytes);
            self.put(&name, "entries", &bytes).await?;
            self.room = (count > 0 && bytes.len() < ROOM_BYTES).then(|| (name.clone(), bytes));
            if let Some(journal) = head.current() {
                journal.chunks.push(Chunk { name, sha256, entries: count });
            }
        }
        self.write_head(head).await?;
        Ok(())
    }

    /// Changes the open journal by compare-and-swap.
    pub async fn change(&mut self, change: impl FnOnce(&mut Journal)) -> Result<(), Failure> {
        let mut head = self.head.clone();
        let Some(journal) = head.current() else { return Ok(()) };
        change(journal);
        journal.changed = self.cluster.clock().timestamp();
        self.write_head(head).await
    }

    /// Says how the open journal stands now, and which chains are being taken back where it is not all of them.
    pub async fn mark(&mut self, status: Status, undoing: Option<Vec<ObjectRef>>) -> Result<(), Failure> {
        self.change(|journal| {
            journal.status = status;
            journal.undoing = undoing;
        })
        .await
    }

    /// Closes the open journal of what is done, but for the chains of which nothing is left.
    pub async fn close(&mut self, void: Vec<ObjectRef>) -> Result<(), Failure> {
        self.change(|journal| {
            journal.status = Status::Done;
            journal.undoing = None;
            journal.void = void;
        })
        .await
    }

    /// Notes that the run which had the open journal stopped in good order. It asks neither gate nor retries: both say
    /// no once a run was told to stop.
    pub async fn hand_on(&mut self) -> Result<(), Failure> {
        let mut head = self.head.clone();
        let Some(journal) = head.current() else { return Ok(()) };
        journal.handed_on = true;
        for _ in 1..TRIES {
            let (object, body) = self.head_secret(&head);
            match self.cluster.replace_now(&object, &body).await {
                Ok(()) => return Ok(()),
                Err(failure) if failure.is_conflict() => return Err(failure),
                // A node that is drained is often not the only thing that is restarted.
                Err(_) => {
                    let clock = self.cluster.clock();
                    clock.sleep(clock.patience(Duration::from_secs(1))).await;
                }
            }
        }
        let (object, body) = self.head_secret(&head);
        self.cluster.replace_now(&object, &body).await
    }

    /// Writes the head as it is, so that a head which a run that died has sent cannot land any more.
    pub async fn fence(&mut self) -> Result<(), Failure> {
        self.write_head(self.head.clone()).await
    }

    /// Changes a journal's status, wherever it stands in the ring.
    pub async fn set_status(&mut self, run: &str, status: Status, remark: &str) -> Result<(), Failure> {
        let mut head = self.head.clone();
        if let Some(journal) = head.journals.iter_mut().find(|journal| journal.run == run) {
            journal.status = status;
            journal.undoing = None;
            journal.changed = self.cluster.clock().timestamp();
            // Somebody has taken it up.
            journal.handed_on = false;
            remark.clone_into(&mut journal.remark);
        }
        self.write_head(head).await
    }

    /// The Secret that would store a head, as a compare-and-swap where there is one already.
    fn head_secret(&self, head: &Head) -> (ObjectRef, Value) {
        let object = kinds::SECRET.object(&self.home, head_name(&self.step));
        let mut body = secret(&object, "head", &serde_json::to_vec(head).unwrap_or_default());
        body["metadata"]["labels"] = json!({"belay.dev/step": self.step});
        // A write that changes nothing would leave the version as it is, and hold nobody off.
        body["metadata"]["annotations"] =
            json!({"belay.dev/written": self.cluster.clock().wall().to_string()});
        if let Some(version) = &self.version {
            body["metadata"]["resourceVersion"] = version.as_str().into();
        }
        (object, body)
    }

    async fn write_head(&mut self, head: Head) -> Result<(), Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (object, body) = self.head_secret(&head);
            let stored = match &self.version {
                None => self.cluster.create(&object, &body, Mode::Real).await,
                Some(_) => self.cluster.replace(&object, &body).await,
            };
            let stored = match stored {
                Ok(stored) => stored,
                Err(failure) if failure.is_conflict() || failure.is_already_exists() => {
                    match self.cluster.get(&object).await? {
                        // The answer to an earlier try of this very write may have been lost: then it is there.
                        Some(found) if found.get("data") == body.get("data") => found,
                        // Somebody has put a label on it, and it still says what we wrote last.
                        Some(found) if tries < TRIES && self.is_as_written(&found) => {
                            self.version = Some(resource_version(&found).to_owned());
                            continue;
                        }
                        _ => return Err(failure),
                    }
                }
                Err(failure) => return Err(failure),
            };
            self.version = Some(resource_version(&stored).to_owned());
            self.head = head;
            return Ok(());
        }
    }

    /// Whether a head Secret says what this process read or wrote last.
    fn is_as_written(&self, found: &Value) -> bool {
        self.version.is_some() && parse_head(found).is_ok_and(|head| head == self.head)
    }

    /// Stores a chunk. The name is free, but an attempt that died before its head was written may have left one.
    async fn put(&self, name: &str, key: &str, bytes: &[u8]) -> Result<(), Failure> {
        let object = kinds::SECRET.object(&self.home, name);
        let mut body = secret(&object, key, bytes);
        body["metadata"]["labels"] = json!({"belay.dev/step": self.step});
        let mut stored = self.cluster.create(&object, &body, Mode::Real).await;
        for _ in 0..TRIES {
            match stored {
                Err(failure) if failure.is_already_exists() || failure.is_conflict() => {}
                other => return other.map(|_| ()),
            }
            // A compare-and-swap: a late call of a run that died must not win over ours.
            stored = match self.cluster.get(&object).await? {
                Some(found) if found.get("data") == body.get("data") => return Ok(()),
                Some(found) => {
                    body["metadata"]["resourceVersion"] = resource_version(&found).into();
                    self.cluster.replace(&object, &body).await
                }
                None => {
                    body["metadata"]["resourceVersion"] = Value::Null;
                    self.cluster.create(&object, &body, Mode::Real).await
                }
            };
        }
        stored.map(|_| ())
    }
}

impl Journal {
    /// Whether so many runs died with it that going on is not tried again.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.deaths >= DEATHS
    }
}

/// Leaves as many closed journals as are kept. What is done can still be undone and goes last; of what is closed otherwise
/// only the newest tells anybody anything.
fn prune(journals: &mut Vec<Journal>) {
    while journals.len() > KEPT {
        let idle = journals.iter().skip(1).rposition(|journal| journal.status != Status::Done);
        journals.remove(idle.map_or(journals.len() - 1, |index| index + 1));
    }
}

/// Names of the ring for new chunks. First those that the head as it is stored does not name, so that whatever it names
/// can be restored until the new head is written; then those of closed journals that are not kept any more, the oldest
/// of which make room where it is short. Never the open journal's.
fn free_names(step: &str, stored: &[Journal], kept: &mut Vec<Journal>, wanted: usize) -> Option<Vec<String>> {
    let names = |journal: &Journal, name: &String| journal.chunks.iter().any(|chunk| chunk.name == *name);
    loop {
        let used = |name: &String| {
            kept.iter()
                .chain(stored.iter().filter(|journal| journal.status.is_open()))
                .any(|j| names(j, name))
        };
        let mut free: Vec<String> = chunk_names(step).filter(|name| !used(name)).collect();
        // Stable: otherwise in the order of the ring.
        free.sort_by_key(|name| stored.iter().any(|journal| names(journal, name)));
        if free.len() >= wanted {
            free.truncate(wanted);
            return Some(free);
        }
        if kept.len() <= 1 || kept.last().is_some_and(|journal| journal.status.is_open()) {
            return None;
        }
        kept.pop();
    }
}

fn secret(object: &ObjectRef, key: &str, bytes: &[u8]) -> Value {
    let mut body = object.manifest();
    body["type"] = SECRET_TYPE.into();
    body["data"] = json!({ key: ByteString(bytes.to_vec()) });
    body
}

fn data(secret: &Value, key: &str) -> anyhow::Result<Vec<u8>> {
    let value = secret.pointer(&format!("/data/{key}")).with_context(|| format!("has no data.{key}"))?;
    let bytes: ByteString =
        serde_json::from_value(value.clone()).context("holds something else than a journal")?;
    Ok(bytes.0)
}

/// The journals in a head Secret, newest first.
pub fn journals(secret: &Value) -> anyhow::Result<Vec<Journal>> {
    parse_head(secret).map(|head| head.journals)
}

/// Reads a journal chunk by chunk, and proves that it is what was written.
#[derive(Debug, Default)]
pub struct Reader {
    /// The entries of all chunks so far.
    pub entries: Vec<Entry>,
    /// What the next chunk goes on with.
    packed: Vec<u8>,
}

impl Reader {
    /// Reads the next chunk from its Secret, if there is one.
    pub fn read(&mut self, chunk: &Chunk, secret: Option<&Value>) -> anyhow::Result<()> {
        self.packed.extend(chunk_bytes(secret.context("is missing")?, chunk)?);
        if chunk.entries > 0 {
            self.entries.extend(unpack(&std::mem::take(&mut self.packed))?);
        }
        Ok(())
    }
}

fn parse_head(secret: &Value) -> anyhow::Result<Head> {
    let bytes = data(secret, "head")?;
    let value: Value = serde_json::from_slice(&bytes).context("is not readable")?;
    match value.get("format").and_then(Value::as_u64) {
        Some(format) if format == u64::from(FORMAT) => {}
        Some(format) => bail!(
            "has format {format}, and this version of belay reads format {FORMAT}. Run the version that wrote it"
        ),
        None => bail!("does not say its format"),
    }
    serde_json::from_value(value).context("is not readable")
}

/// The bytes of a chunk, proven to be what was written.
fn chunk_bytes(secret: &Value, chunk: &Chunk) -> anyhow::Result<Vec<u8>> {
    let bytes = data(secret, "entries")?;
    if hash(&bytes) != chunk.sha256 {
        bail!("is not what was written: its hash differs from the one in the journal's head");
    }
    Ok(bytes)
}

fn unpack(bytes: &[u8]) -> anyhow::Result<Vec<Entry>> {
    BufReader::new(MultiGzDecoder::new(bytes))
        .lines()
        .map(|line| {
            let line = line.context("cannot be unpacked")?;
            serde_json::from_str(&line).context("holds an entry that is not readable")
        })
        .collect()
}

/// Packs entries into chunks. What does not fit into one goes on in the next; the last one has the number of entries.
fn pack(entries: &[Entry]) -> anyhow::Result<Vec<(Vec<u8>, usize)>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    for entry in entries {
        serde_json::to_writer(&mut packer, entry)
            .with_context(|| format!("{}: its undo cannot be stored", entry.object))?;
        packer.write_all(b"\n")?;
    }
    let bytes = packer.finish()?;
    let mut chunks: Vec<(Vec<u8>, usize)> =
        bytes.chunks(CHUNK_BYTES).map(|part| (part.to_vec(), 0)).collect();
    if let Some((_, count)) = chunks.last_mut() {
        *count = entries.len();
    }
    Ok(chunks)
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Companion, Item, Removal};

    fn entry(name: &str, live: &Value) -> Entry {
        let object = kinds::CONFIG_MAP.object("ns", name);
        let item = Item::new(object.clone(), Some(live), None);
        let step = Move::delete(&item, Removal::within(std::time::Duration::from_secs(1)));
        Entry::of(0, &Chain::new(object, Vec::new()), 0, &step)
    }

    fn config_map(name: &str, value: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "uid": "u1"}, "data": {"k": value}, "status": {"s": 1}})
    }

    #[test]
    fn entries_survive_packing_and_a_changed_byte_is_found() {
        let entries: Vec<Entry> = (0..100).map(|n| entry(&format!("c{n}"), &config_map("c", "v"))).collect();
        let packed = pack(&entries).unwrap();
        assert_eq!(packed.len(), 1);
        let (bytes, count) = &packed[0];
        let chunk = Chunk { name: "x".into(), sha256: hash(bytes), entries: *count };
        let secret = json!({"data": {"entries": ByteString(bytes.clone())}});
        let read = unpack(&chunk_bytes(&secret, &chunk).unwrap()).unwrap();
        assert_eq!(read.len(), 100);
        assert_eq!(read[7].pre_image().unwrap().uid, "u1");
        let mut broken = bytes.clone();
        broken[20] ^= 1;
        let secret = json!({"data": {"entries": ByteString(broken)}});
        assert!(chunk_bytes(&secret, &chunk).unwrap_err().to_string().contains("hash differs"));
    }

    fn noise(seed: usize, words: usize) -> String {
        (0..words).map(|n| hash(format!("{seed}.{n}").as_bytes())).collect()
    }

    #[test]
    fn what_does_not_fit_one_chunk_goes_into_several() {
        let entries: Vec<Entry> =
            (0..900).map(|n| entry(&format!("c{n}"), &config_map("c", &noise(n, 60)))).collect();
        let packed = pack(&entries).unwrap();
        assert!(packed.len() > 1);
        assert_eq!(packed.last().unwrap().1, 900);
        assert!(packed.iter().rev().skip(1).all(|(_, count)| *count == 0));
        assert!(packed.iter().all(|(bytes, _)| bytes.len() <= CHUNK_BYTES));
        let whole: Vec<u8> = packed.into_iter().flat_map(|(bytes, _)| bytes).collect();
        assert_eq!(unpack(&whole).unwrap().len(), 900);
    }

    #[test]
    fn one_object_that_is_larger_than_a_chunk_is_journalled_all_the_same() {
        let large = noise(1, 40_000);
        let packed = pack(&[entry("c", &config_map("c", &large))]).unwrap();
        assert!(packed.len() > 1 && packed.iter().all(|(bytes, _)| bytes.len() <= CHUNK_BYTES));
        let whole: Vec<u8> = packed.into_iter().flat_map(|(bytes, _)| bytes).collect();
        let image = unpack(&whole).unwrap()[0].pre_image().unwrap().object.value();
        assert_eq!(image["data"]["k"], large);
    }

    #[test]
    fn what_is_added_to_a_small_chunk_is_read_with_it() {
        let first = pack(&[entry("a", &config_map("a", "1"))]).unwrap().remove(0).0;
        let second = pack(&[entry("b", &config_map("b", "2"))]).unwrap().remove(0).0;
        assert_eq!(unpack(&[first, second].concat()).unwrap().len(), 2);
    }

    /// An API server with one Secret, which it stores, and which somebody may change behind our back.
    fn secret_server(
        stored: Arc<std::sync::Mutex<Value>>,
        before_put: impl Fn(u32, &mut Value) + Send + Sync + 'static,
    ) -> crate::fake::Fake {
        let puts = std::sync::atomic::AtomicU32::new(0);
        crate::fake::Fake::new(move |method, _| {
            let mut secret = stored.lock().unwrap();
            if method == "PUT" {
                before_put(puts.fetch_add(1, std::sync::atomic::Ordering::Relaxed), &mut secret);
            }
            match (method, secret["metadata"]["changed"].take()) {
                ("GET", _) | (_, Value::Null) => (200, secret.clone()),
                _ => (409, json!({"kind": "Status", "reason": "Conflict"})),
            }
        })
    }

    async fn ledger_on(fake: &crate::fake::Fake) -> Ledger {
        Ledger::load(&Arc::new(fake.cluster(1)), "home", "s").await.unwrap()
    }

    fn stored_head(journals: &str) -> Value {
        let head = ByteString(format!(r#"{{"format": 1, "journals": [{journals}]}}"#).into_bytes());
        json!({"metadata": {"name": "belay-s", "resourceVersion": "1"}, "data": {"head": head}})
    }

    const OPEN: &str = r#"{"run": "r", "status": "open", "opened": "", "changed": "", "deaths": 0,
        "noReturn": false, "chunks": []}"#;

    #[tokio::test]
    async fn a_head_on_which_somebody_put_a_label_is_written_all_the_same() {
        let stored = Arc::new(std::sync::Mutex::new(stored_head(OPEN)));
        let labelled = |put: u32, secret: &mut Value| {
            if put == 0 {
                secret["metadata"]["labels"]["team"] = "b".into();
                secret["metadata"]["changed"] = true.into();
            }
        };
        let fake = secret_server(stored.clone(), labelled);
        let mut ledger = ledger_on(&fake).await;
        ledger.change(|journal| journal.deaths = 1).await.unwrap();
        assert_eq!(fake.seen().iter().filter(|(method, _)| method == "PUT").count(), 2);
        assert_eq!(ledger.open_journal().unwrap().deaths, 1);
    }

    #[tokio::test]
    async fn a_head_that_another_run_wrote_is_never_written_over() {
        let stored = Arc::new(std::sync::Mutex::new(stored_head(OPEN)));
        let taken = |_: u32, secret: &mut Value| {
            *secret = stored_head("");
            secret["metadata"]["changed"] = true.into();
        };
        let fake = secret_server(stored.clone(), taken);
        let mut ledger = ledger_on(&fake).await;
        let failed = ledger.change(|journal| journal.deaths = 1).await;
        assert!(failed.is_err_and(|failure| failure.is_conflict()));
        assert_eq!(fake.seen().iter().filter(|(method, _)| method == "PUT").count(), 1);
    }

    #[tokio::test]
    async fn the_entries_of_chains_of_which_nothing_is_left_are_not_read() {
        let (bytes, count) =
            pack(&["kept", "void"].map(|name| entry(name, &config_map(name, "v")))).unwrap().remove(0);
        let chunk = Chunk { name: "belay-s-00".into(), sha256: hash(&bytes), entries: count };
        let void = vec![kinds::CONFIG_MAP.object("ns", "void")];
        let closed = Journal { chunks: vec![chunk], void, ..journal("r", Status::Done, 0..0) };
        let secret = json!({"metadata": {"name": "belay-s-00"}, "data": {"entries": ByteString(bytes)}});
        let head = stored_head(&serde_json::to_string(&closed).unwrap());
        let answer = move |path: &str| if path.ends_with("-00") { secret.clone() } else { head.clone() };
        let fake = crate::fake::Fake::new(move |_, path| (200, answer(path)));
        let ledger = ledger_on(&fake).await;
        let read = ledger.entries(&ledger.journals()[0]).await.unwrap();
        let names: Vec<&str> = read.all().iter().map(|entry| entry.object.name.as_str()).collect();
        assert_eq!(names, ["kept"]);
    }

    #[test]
    fn an_unknown_format_is_refused_and_says_so() {
        let head = ByteString(br#"{"format": 9, "journals": []}"#.to_vec());
        let error = parse_head(&json!({"data": {"head": head}})).unwrap_err();
        assert!(error.to_string().contains("format 9"), "{error}");
    }

    fn journal(run: &str, status: Status, chunks: std::ops::Range<usize>) -> Journal {
        let chunk = |n| Chunk { name: format!("belay-s-{n:02}"), sha256: String::new(), entries: 1 };
        Journal {
            run: run.into(),
            status,
            opened: String::new(),
            changed: String::new(),
            deaths: 0,
            handed_on: false,
            no_return: false,
            undoing: None,
            void: Vec::new(),
            remark: String::new(),
            chunks: chunks.map(chunk).collect(),
        }
    }

    #[test]
    fn old_closed_journals_make_room_and_the_open_one_never_does() {
        let journal = |status, chunks| journal("r", status, chunks);
        let stored = vec![journal(Status::Done, 0..16), journal(Status::Done, 16..32)];
        let mut kept = [vec![journal(Status::Open, 0..0)], stored.clone()].concat();
        let free = free_names("s", &stored, &mut kept, 10).unwrap();
        assert_eq!((kept.len(), free[0].as_str()), (2, "belay-s-16"));
        // The chunk that is written once more is still named by the head that is stored.
        let stored = vec![journal(Status::Open, 16..17), journal(Status::Done, 0..16)];
        let mut kept = vec![journal(Status::Open, 0..0), journal(Status::Done, 0..16)];
        assert_eq!(free_names("s", &stored, &mut kept, 1).unwrap(), ["belay-s-17"]);
        let only = vec![journal(Status::Open, 0..30)];
        assert!(free_names("s", &only, &mut only.clone(), 3).is_none());
    }

    #[test]
    fn a_journal_that_is_not_kept_any_more_can_be_restored_until_the_new_head_is_written() {
        let stored: Vec<Journal> = (0..4).map(|n| journal("r", Status::Done, n..n + 1)).collect();
        let mut kept = stored.clone();
        prune(&mut kept);
        assert_eq!(kept.len(), KEPT);
        assert_eq!(free_names("s", &stored, &mut kept, 1).unwrap(), ["belay-s-04"]);
        let last = free_names("s", &stored, &mut kept, 29).unwrap().pop();
        assert_eq!(last.as_deref(), Some("belay-s-03"), "only where all others are used up");
    }

    #[test]
    fn the_origin_of_an_object_is_how_it_was_before_the_first_entry() {
        let object = kinds::CONFIG_MAP.object("ns", "a");
        let entries =
            Entries::new(vec![entry("a", &config_map("a", "first")), entry("a", &config_map("a", "later"))]);
        let origin = entries.origin(&object, None).unwrap();
        assert_eq!(origin["data"]["k"], "first");
        assert_eq!(origin["metadata"]["uid"], "u1");
        assert_eq!(entries.taken_away(&kinds::CONFIG_MAP, Some("ns")).count(), 1);
        assert_eq!(entries.taken_away(&kinds::CONFIG_MAP, Some("other")).count(), 0);
    }

    /// An entry of a patch that gives the label x a value, of an object that had another one.
    fn labelled(phase: usize, from: Option<&str>, to: &str) -> Entry {
        let object = kinds::CONFIG_MAP.object("ns", "a");
        let live = json!({"metadata": {"name": "a", "labels": from.map(|from| json!({"x": from}))}});
        let item = Item::new(object.clone(), Some(&live), None);
        let field = Field { path: FieldPath::dotted("metadata.labels.x"), value: Some(to.into()) };
        Entry::of(phase, &Chain::new(object, Vec::new()), 0, &Move::patch(&item, vec![field]))
    }

    #[test]
    fn a_patched_object_that_was_made_since_is_another_one_unless_the_step_makes_it_anew() {
        let known = Entry { uid: Some("u1".to_owned()), ..labelled(0, None, "new") };
        let is_another = |uid: &str, others: &[Entry]| {
            let entries = Entries::new([std::slice::from_ref(&known), others].concat());
            entries.is_another(&known, &json!({"metadata": {"name": "a", "uid": uid}}))
        };
        assert!(!is_another("u1", &[]));
        assert!(is_another("u2", &[]));
        let recreation = |name: &str, companions| {
            let object = kinds::CONFIG_MAP.object("ns", name);
            let item = Item::new(object.clone(), Some(&config_map(name, "v")), None);
            let removal = Removal::within(std::time::Duration::from_secs(1)).companions(companions);
            Entry::of(0, &Chain::new(object, Vec::new()), 0, &Move::recreate(&item, removal))
        };
        assert!(!is_another("u2", &[recreation("a", Vec::new())]));
        assert!(is_another("u2", &[recreation("b", Vec::new())]));
        assert!(!is_another("u2", &[recreation("b", vec![Companion::of(&known.object, None)])]));
    }

    #[test]
    fn the_origin_of_a_patched_object_has_the_old_values() {
        let object = kinds::CONFIG_MAP.object("ns", "a");
        let live = json!({"metadata": {"name": "a", "labels": {"x": "new", "y": "kept"}}});
        let origin = Entries::new(vec![labelled(0, None, "new")]).origin(&object, Some(&live)).unwrap();
        assert_eq!(origin["metadata"]["labels"], json!({"y": "kept"}));
    }

    #[test]
    fn what_somebody_changed_before_our_move_was_made_is_part_of_the_origin() {
        let object = kinds::CONFIG_MAP.object("ns", "a");
        let edited = json!({"metadata": {"name": "a", "labels": {"x": "somebody's"}}});
        let origin = Entries::new(vec![labelled(0, None, "new")]).origin(&object, Some(&edited)).unwrap();
        assert_eq!(origin["metadata"]["labels"]["x"], "somebody's");
        let entries = Entries::new(vec![entry("a", &config_map("a", "journalled"))]);
        let mut edited = config_map("a", "edited since");
        assert_eq!(entries.origin(&object, Some(&edited)).unwrap()["data"]["k"], "edited since");
        edited["metadata"]["deletionTimestamp"] = "now".into();
        assert_eq!(entries.origin(&object, Some(&edited)).unwrap()["data"]["k"], "journalled");
        edited["metadata"] = json!({"name": "a", "uid": "another"});
        assert_eq!(entries.origin(&object, Some(&edited)).unwrap()["data"]["k"], "journalled");
    }

    #[test]
    fn what_is_there_again_just_as_it_was_counts_as_restored_and_what_somebody_made_does_not() {
        let object = kinds::CONFIG_MAP.object("ns", "a");
        let entries = Entries::new(vec![entry("a", &config_map("a", "v"))]);
        let there = |uid: &str, value: &str| {
            let mut live = config_map("a", value);
            live["metadata"]["uid"] = uid.into();
            live
        };
        assert!(entries.is_restored(&object, &there("another", "v")));
        assert!(!entries.is_restored(&object, &there("another", "w")));
        assert!(!entries.is_restored(&object, &config_map("a", "v")), "it was never away");
        let mut terminating = there("another", "v");
        terminating["metadata"]["deletionTimestamp"] = "now".into();
        assert!(!entries.is_restored(&object, &terminating));
        let again = Entries::new(vec![entry("a", &config_map("a", "v")), entry("a", &there("another", "w"))]);
        assert!(
            again.is_restored(&object, &there("another", "w")),
            "journalled once more, and not deleted yet"
        );
        assert!(!again.is_restored(&object, &config_map("a", "x")));
    }

    #[test]
    fn the_origin_of_a_restored_object_has_the_fields_that_an_earlier_phase_has_changed_as_they_were() {
        let object = kinds::CONFIG_MAP.object("ns", "a");
        let mut patched = config_map("a", "v");
        patched["metadata"]["labels"] = json!({"x": "new"});
        let entries = Entries::new(vec![labelled(0, Some("old"), "new"), entry("a", &patched)]);
        patched["metadata"]["uid"] = "another".into();
        let origin = entries.origin_of_restored(&object, &patched).unwrap();
        assert_eq!(origin["metadata"]["labels"]["x"], "old");
        assert_eq!(uid(&origin), "another");
    }

    #[test]
    fn a_field_that_no_phase_has_reached_is_as_before_for_all_of_them() {
        let entries =
            Entries::new(vec![labelled(0, Some("old"), "half-way"), labelled(1, Some("half-way"), "new")]);
        let live = |x: &str| json!({"metadata": {"labels": {"x": x}}});
        let last = &entries.all()[1];
        assert!(entries.is_before(last, &live("old")));
        assert!(!entries.is_before(last, &live("somebody's")) && !entries.is_before(last, &live("new")));
    }

    #[test]
    fn what_is_done_and_can_be_undone_is_kept_longer_than_what_was_undone() {
        let journal = |run, status| journal(run, status, 0..0);
        let mut journals = vec![
            journal("5", Status::Undone),
            journal("4", Status::Undone),
            journal("3", Status::Accepted),
            journal("2", Status::Done),
            journal("1", Status::Done),
        ];
        prune(&mut journals);
        assert_eq!(journals.iter().map(|j| j.run.as_str()).collect::<Vec<_>>(), ["5", "2", "1"]);
        let mut done: Vec<Journal> = ["4", "3", "2", "1"].map(|run| journal(run, Status::Done)).into();
        prune(&mut done);
        assert_eq!(done.iter().map(|j| j.run.as_str()).collect::<Vec<_>>(), ["4", "3", "2"]);
    }
}
