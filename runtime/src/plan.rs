//! A plan is data: chains of moves in phases, and findings. Steps build plans, the runtime carries them out.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    object::{
        Body, FieldPath, ObjectRef, condition, is_available, is_going, text, uid, without_server_fields,
    },
    watch::{Scope, View},
};

/// What a step will do, what it leaves alone, and what stops it.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Phases follow each other; the chains of one phase run side by side.
    pub phases: Vec<Vec<Chain>>,
    /// Moves without undo. Entered only when every chain before has done all its moves; from there it only goes on.
    pub point_of_no_return: Vec<Chain>,
    /// What a person must know.
    pub findings: Vec<Finding>,
    /// What is said at the end, whichever end it is.
    pub closing: Option<Closing>,
}

type Lines = Arc<dyn Fn(&View<'_>) -> Vec<String> + Send + Sync>;

/// Lines for log and report that are known only when all is over: a table of what was found, for instance.
#[derive(Clone)]
pub struct Closing {
    /// What they are read from.
    pub(crate) scopes: Vec<Scope>,
    /// The lines.
    pub(crate) lines: Lines,
}

impl Closing {
    /// Lines that are made from what the scopes show at the end.
    #[must_use]
    pub fn new(scopes: Vec<Scope>, lines: impl Fn(&View<'_>) -> Vec<String> + Send + Sync + 'static) -> Self {
        Self { scopes, lines: Arc::new(lines) }
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("closing lines")
    }
}

/// Moves that follow each other, for one object of a user.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The object that the chain is about.
    pub subject: ObjectRef,
    /// What is done, in this order.
    pub moves: Vec<Move>,
    /// Chains of a phase that share this run one after the other, in the plan's order, and are undone the other way.
    pub turn: Option<String>,
}

/// One change, or one wait, that can be told apart from its neighbours, repeated and taken back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Move {
    /// What it is done to.
    pub object: ObjectRef,
    /// What is done.
    pub action: Action,
    /// How it is taken back.
    #[serde(default)]
    pub undo: Undo,
    /// The object as the plan saw it. Not stored: a journal keeps pre-images of its own.
    #[serde(skip)]
    pub live: Option<Body>,
}

/// What a move does.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Make the object.
    Create {
        /// The object, without the run annotation.
        body: Body,
        /// Fields that tell whether an object that is there already is the one wanted.
        identity: Vec<FieldPath>,
        /// Owners made earlier in the chain; their uids are looked up when the move is made.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        owners: Vec<Owner>,
    },
    /// Delete the object and wait until it is gone.
    Delete(Arc<Removal>),
    /// Delete the object, wait until it is gone, and create it again as it was.
    Recreate(Arc<Removal>),
    /// Set fields.
    Patch {
        /// Fields and their new values.
        fields: Vec<Field>,
    },
    /// Set the number of replicas through the scale subresource.
    Scale {
        /// How many.
        replicas: i64,
        /// How many were available before: as many must be again when it is undone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        available: Option<i64>,
    },
    /// Move a state on by compare-and-swap.
    Advance {
        /// The field that holds the state.
        path: FieldPath,
        /// States from which the new one may be reached.
        from: Vec<String>,
        /// The new state.
        to: String,
    },
    /// Wait until something holds.
    Wait(Wait),
}

/// How an object is removed, and what must be known to bring it back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// What happens to its dependents.
    pub propagation: Propagation,
    /// How one sees that the object works. A restored object that worked before must do so again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Test>,
    /// Fields that admission refuses on create although it set them itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_on_create: Vec<FieldPath>,
    /// How long it may take until the object is gone.
    pub within: Duration,
    /// What its controller makes and takes away with it. None of it may be going when the object is deleted, or created
    /// again: the controller would take the old one for the new. And undo sees to it that it is as before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub companions: Vec<Companion>,
    /// Whether it is left alone if its spec is not the one that the plan saw: what was checked before is not what would go.
    #[serde(default)]
    pub only_as_seen: bool,
    /// Finalizers that nobody serves any more: they are taken off once the object is being deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphaned_finalizers: Vec<String>,
    /// The Deployment that serves its finalizers: whoever waits in vain must know whether it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub served_by: Option<ObjectRef>,
}

/// What the controller of an object makes and takes away with it, one object or several of the same labels, and how it
/// was before the object was touched.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Companion {
    /// Which. Flat, since there are journals that say no more of a companion than its kind and name.
    #[serde(flatten)]
    pub scope: Scope,
    /// How many there were: undo wants as many again.
    #[serde(default)]
    pub were: usize,
    /// More than these are too many, though the controller made them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most: Option<usize>,
    /// How one sees that they work, where they did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Test>,
    /// The one that was there: undo makes it again, if its controller does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Body>,
}

/// How long more companions than there may be are looked at: one of them may be about to go.
const TOO_MANY: Duration = Duration::from_secs(5);

impl Companion {
    /// One object, as the snapshot saw it; none if it was not there.
    #[must_use]
    pub fn of(object: &ObjectRef, seen: Option<&Item>) -> Self {
        let image = seen.filter(|item| item.is_there()).and_then(|item| item.live.clone());
        let were = usize::from(image.is_some());
        Self { scope: Scope::of(object), were, most: None, ready: None, image }
    }

    /// Objects that are known by their labels. There were so many, and there may be so many.
    #[must_use]
    pub fn labelled(scope: Scope, were: usize, most: usize) -> Self {
        Self { scope, were, most: Some(most), ready: None, image: None }
    }

    /// Says how one sees that they work, as they did.
    #[must_use]
    pub fn ready_when(mut self, test: Test) -> Self {
        self.ready = Some(test);
        self
    }

    /// With the object as it is among these; none if nobody has changed it. Owner references are not somebody's change: a
    /// move of the same chain may have taken one off, and undoes that by itself.
    #[must_use]
    pub(crate) fn changed_in(&self, there: &[(ObjectRef, Value)]) -> Option<Self> {
        let image = self.image.as_ref()?.value();
        let own = |object: &Value| {
            let mut own = without_server_fields(object);
            own["metadata"].as_object_mut().map(|metadata| metadata.remove("ownerReferences"));
            own
        };
        let (_, live) = there.iter().find(|(one, _)| self.scope.object().as_ref() == Some(one))?;
        let is_changed = uid(live) == uid(&image) && own(live) != own(&image);
        is_changed.then(|| Self { image: Some(Body::of(live)), ..self.clone() })
    }

    /// Asks whether it is as before. What is going does not count.
    #[must_use]
    pub fn ask(&self, found: &[Value]) -> Progress {
        let there: Vec<&Value> = found.iter().filter(|one| !is_going(one)).collect();
        let name = |one: &Value| self.scope.kind.object_of(one).to_string();
        if there.len() < self.were {
            return Progress::Pending(format!("{} of {} are there", there.len(), self.were));
        }
        if self.most.is_some_and(|most| there.len() > most) {
            let mut names: Vec<String> = there.iter().map(|one| name(one)).collect();
            names.sort();
            let why = format!("{} are there, and there were {}", names.join(" and "), self.were);
            return Progress::Suspect(why, TOO_MANY);
        }
        let waits = |one: &&Value| match self.ready.as_ref()?.ask(Some(one)) {
            Progress::Pending(what) => Some(format!("{} {what}", name(one))),
            _ => None,
        };
        there.iter().find_map(waits).map_or(Progress::Done, Progress::Pending)
    }
}

/// Kubernetes' deletion propagation policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Propagation {
    /// Dependents are collected after the object is gone.
    Background,
    /// The object stays until its blocking dependents are gone.
    Foreground,
    /// Dependents stay.
    Orphan,
}

/// A field and the value it gets; none removes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Which.
    pub path: FieldPath,
    /// To what.
    pub value: Option<Value>,
}

impl Field {
    /// Whether an object's field has this value.
    #[must_use]
    pub fn is_in(&self, object: &Value) -> bool {
        self.path.get(object) == self.value.as_ref()
    }
}

/// An owner reference whose uid is not known when the plan is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// The owner.
    pub object: ObjectRef,
    /// Whether it is the managing controller.
    #[serde(default)]
    pub controller: bool,
    /// Whether it waits for this object when it is deleted in the foreground.
    #[serde(default)]
    pub block_owner_deletion: bool,
}

/// How a move is taken back.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Undo {
    /// The action's own inverse.
    #[default]
    Inverse,
    /// These moves instead.
    Instead(Vec<Move>),
    /// It is not taken back.
    None {
        /// Why not, for the report.
        reason: String,
    },
}

/// A question about one object that can be stored, for waits and for undo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Test {
    /// A condition of this type is True, and its controller has seen the newest generation.
    Condition(String),
    /// A field has this value.
    Field(Field),
    /// The object is gone.
    Gone,
}

impl Test {
    /// Asks the question; the answer to "not yet" says what is missing.
    #[must_use]
    pub fn ask(&self, object: Option<&Value>) -> Progress {
        let object = match (self, object) {
            (Self::Gone, None) => return Progress::Done,
            (Self::Gone, Some(object)) => {
                let held = crate::object::finalizers(object);
                return Progress::Pending(if held.is_empty() {
                    "still there".to_owned()
                } else {
                    format!("still there, held by finalizer {held}")
                });
            }
            (_, None) => return Progress::Pending("does not exist".to_owned()),
            (_, Some(object)) if is_going(object) => return Progress::Pending("is being deleted".to_owned()),
            (_, Some(object)) => object,
        };
        match self {
            Self::Gone => Progress::Done,
            Self::Field(field) => {
                if field.is_in(object) {
                    Progress::Done
                } else {
                    Progress::Pending(format!("{} is {}", field.path, shown(field.path.get(object))))
                }
            }
            Self::Condition(kind) => {
                let seen = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
                let wanted = object.pointer("/metadata/generation").and_then(Value::as_i64);
                if let (Some(seen), Some(wanted)) = (seen, wanted)
                    && seen < wanted
                {
                    return Progress::Pending(format!("its controller has not seen generation {wanted} yet"));
                }
                match condition(object, kind) {
                    None => Progress::Pending(format!("has no condition {kind} yet")),
                    Some(found) if text(found, "/status") == Some("True") => Progress::Done,
                    Some(found) => Progress::Pending(explain(kind, found)),
                }
            }
        }
    }

    /// Whether it holds.
    #[must_use]
    pub fn holds(&self, object: Option<&Value>) -> bool {
        matches!(self.ask(object), Progress::Done)
    }
}

/// Says of a condition what it says of itself.
fn explain(kind: &str, found: &Value) -> String {
    let status = text(found, "/status").unwrap_or("not set");
    let reason = text(found, "/reason").unwrap_or_default();
    let message = text(found, "/message").unwrap_or_default();
    match (reason.is_empty(), message.is_empty()) {
        (true, true) => format!("{kind} is {status}"),
        (false, true) => format!("{kind} is {status}: {reason}"),
        (true, false) => format!("{kind} is {status}: {message}"),
        (false, false) => format!("{kind} is {status}: {reason}, {message}"),
    }
}

/// A value for a sentence.
#[must_use]
pub fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "not set".to_owned(), ToString::to_string)
}

/// A wait for something to hold. It makes no call of its own: all waits on a kind share one watch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// What is waited for, for logs and verdicts: "HTTPSource and Channel Ready".
    pub what: String,
    /// What the check looks at.
    pub scopes: Vec<Scope>,
    /// How long it may take.
    pub within: Duration,
    /// When it holds.
    pub check: Check,
}

impl Wait {
    /// A wait until the object of this uid is gone. Whoever waits in vain learns what holds it, and whether the Deployment
    /// that serves its finalizers runs. `seen` tells afterwards whether the watch ever had it: one that is behind does not
    /// have it yet.
    pub(crate) fn gone(
        object: &ObjectRef,
        gone: &str,
        within: Duration,
        served_by: Option<&ObjectRef>,
        seen: Arc<AtomicBool>,
    ) -> Self {
        let (watched, gone, server) = (object.clone(), gone.to_owned(), served_by.cloned());
        let check = move |view: &View<'_>| match view.get(&watched) {
            Some(live) if uid(&live) == gone => {
                seen.store(true, Ordering::Relaxed);
                match (Test::Gone.ask(Some(&live)), &server) {
                    (Progress::Pending(held), Some(server)) => {
                        Progress::Pending(format!("{held}; {}", life_of(server, view.get(server).as_ref())))
                    }
                    (asked, _) => asked,
                }
            }
            _ => Progress::Done,
        };
        Self {
            what: format!("{object} gone"),
            scopes: std::iter::once(object).chain(served_by).map(Scope::of).collect(),
            within,
            check: Check::Code(Arc::new(check)),
        }
    }
}

/// Whether what serves a finalizer runs.
fn life_of(server: &ObjectRef, found: Option<&Value>) -> String {
    let is = match found {
        Some(deployment) if is_available(deployment) => "is available",
        Some(_) => "is not available",
        None => "does not exist",
    };
    format!("{server}, which serves it, {is}")
}

/// When a wait is over.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Check {
    /// When the move's object passes a test.
    Object(Test),
    /// When code says so. Only for going forward: an undo must outlive the code that planned it.
    #[serde(skip)]
    Code(Arc<dyn Fn(&View<'_>) -> Progress + Send + Sync>),
}

impl fmt::Debug for Check {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(test) => test.fmt(out),
            Self::Code(_) => out.write_str("code"),
        }
    }
}

/// How far a wait has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It holds.
    Done,
    /// It holds, and this is worth a line in the report.
    DoneWith(String),
    /// Not yet, and what is missing.
    Pending(String),
    /// It can never hold any more.
    Failed(String),
    /// It looks failed; it is when it still looks so after this long.
    Suspect(String, Duration),
}

/// What a person must know, about an object or the whole step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// About which object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectRef>,
    /// What, and the cure.
    pub message: String,
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Good to know.
    Note,
    /// The object is left alone.
    Skip,
    /// The step stops before any write.
    Refuse,
}

impl Finding {
    /// Stops the step before any write.
    pub fn refuse(object: impl Into<Option<ObjectRef>>, message: impl Into<String>) -> Self {
        Self { level: Level::Refuse, object: object.into(), message: message.into() }
    }

    /// The object is left alone.
    pub fn skip(object: impl Into<Option<ObjectRef>>, message: impl Into<String>) -> Self {
        Self { level: Level::Skip, object: object.into(), message: message.into() }
    }

    /// Good to know.
    pub fn note(object: impl Into<Option<ObjectRef>>, message: impl Into<String>) -> Self {
        Self { level: Level::Note, object: object.into(), message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.object {
            Some(object) => write!(out, "{object}: {}", self.message),
            None => out.write_str(&self.message),
        }
    }
}

impl Move {
    fn new(object: ObjectRef, action: Action, live: Option<Body>) -> Self {
        Self { object, action, undo: Undo::Inverse, live }
    }

    /// Makes an object. `identity` names the fields that tell whether one that is there already will do.
    #[must_use]
    pub fn create(object: ObjectRef, body: &Value, identity: &[&str]) -> Self {
        let identity = identity.iter().map(|path| FieldPath::dotted(path)).collect();
        Self::new(object, Action::Create { body: Body::of(body), identity, owners: Vec::new() }, None)
    }

    /// Gives a created object an owner whose uid is known only when the move is made.
    #[must_use]
    pub fn owned_by(mut self, owner: Owner) -> Self {
        if let Action::Create { owners, .. } = &mut self.action {
            owners.push(owner);
        }
        self
    }

    /// Deletes what the snapshot saw.
    #[must_use]
    pub fn delete(item: &Item, removal: Removal) -> Self {
        Self::new(item.object.clone(), Action::Delete(removal.into()), item.live.clone())
    }

    /// Deletes what the snapshot saw and creates it again as it was.
    #[must_use]
    pub fn recreate(item: &Item, removal: Removal) -> Self {
        Self::new(item.object.clone(), Action::Recreate(removal.into()), item.live.clone())
    }

    /// Sets fields of what the snapshot saw.
    #[must_use]
    pub fn patch(item: &Item, fields: Vec<Field>) -> Self {
        Self::new(item.object.clone(), Action::Patch { fields }, item.live.clone())
    }

    /// Scales what the snapshot saw.
    #[must_use]
    pub fn scale(item: &Item, replicas: i64) -> Self {
        let available = item
            .live()
            .and_then(|live| live.pointer("/status/availableReplicas").and_then(Value::as_i64))
            .filter(|available| *available > 0);
        Self::new(item.object.clone(), Action::Scale { replicas, available }, item.live.clone())
    }

    /// Moves the state of what the snapshot saw.
    #[must_use]
    pub fn advance(item: &Item, path: FieldPath, from: &[&str], to: &str) -> Self {
        let from = from.iter().map(|&state| state.to_owned()).collect();
        Self::new(item.object.clone(), Action::Advance { path, from, to: to.to_owned() }, item.live.clone())
    }

    /// Waits until an object passes a test.
    #[must_use]
    pub fn wait_for(object: ObjectRef, test: Test, within: Duration) -> Self {
        let what = match &test {
            Test::Condition(kind) => format!("{object} {kind}"),
            Test::Field(field) => format!("{object} {} = {}", field.path, shown(field.value.as_ref())),
            Test::Gone => format!("{object} gone"),
        };
        let scopes = vec![Scope::of(&object)];
        Self::new(object, Action::Wait(Wait { what, scopes, within, check: Check::Object(test) }), None)
    }

    /// Waits until what the snapshot saw is gone, which somebody else deletes. `served_by` is the Deployment that serves
    /// its finalizers.
    #[must_use]
    pub fn wait_gone(item: &Item, within: Duration, served_by: &ObjectRef) -> Self {
        let wait = Wait::gone(&item.object, &item.uid, within, Some(served_by), Arc::default());
        Self::new(item.object.clone(), Action::Wait(wait), None)
    }

    /// Waits until code says that it holds.
    #[must_use]
    pub fn wait_until(
        object: ObjectRef,
        what: impl Into<String>,
        scopes: Vec<Scope>,
        within: Duration,
        check: impl Fn(&View<'_>) -> Progress + Send + Sync + 'static,
    ) -> Self {
        let check = Check::Code(Arc::new(check));
        Self::new(object, Action::Wait(Wait { what: what.into(), scopes, within, check }), None)
    }

    /// Takes the move back in another way than by its inverse.
    #[must_use]
    pub fn undone_by(mut self, undo: Undo) -> Self {
        self.undo = undo;
        self
    }

    /// Whether the move changes the cluster.
    #[must_use]
    pub fn writes(&self) -> bool {
        !matches!(self.action, Action::Wait(_))
    }

    /// Whether it only takes fields away, so that nothing is left of it to make where the object is gone.
    #[must_use]
    pub fn only_clears(&self) -> bool {
        let fields = self.action.fields();
        !fields.is_empty() && fields.iter().all(|field| field.value.is_none())
    }

    /// One word for the action, also what makes two moves on one object distinct.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        self.action.verb()
    }
}

impl Action {
    /// One word for the action.
    #[must_use]
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create { .. } => "create",
            Self::Delete(_) => "delete",
            Self::Recreate(_) => "recreate",
            Self::Patch { .. } => "patch",
            Self::Scale { .. } => "scale",
            Self::Advance { .. } => "advance",
            Self::Wait(_) => "wait",
        }
    }

    /// What the action makes, where it makes an object.
    #[must_use]
    pub fn body(&self) -> Option<&Body> {
        match self {
            Self::Create { body, .. } => Some(body),
            _ => None,
        }
    }

    /// What tells the action from others on the same object: the verb, and the fields with their values.
    #[must_use]
    pub(crate) fn key(&self) -> String {
        let fields = self.fields().into_iter().map(|field| format!(" {}={:?}", field.path, field.value));
        std::iter::once(self.verb().to_owned()).chain(fields).collect()
    }

    /// The fields that the action sets, where it sets fields of an object that stays.
    #[must_use]
    pub fn fields(&self) -> Vec<Field> {
        match self {
            Self::Patch { fields } => fields.clone(),
            Self::Scale { replicas, .. } => {
                vec![Field { path: FieldPath::dotted("spec.replicas"), value: Some((*replicas).into()) }]
            }
            Self::Advance { path, to, .. } => {
                vec![Field { path: path.clone(), value: Some(to.clone().into()) }]
            }
            _ => Vec::new(),
        }
    }
}

impl Removal {
    /// Deletes with background propagation and waits this long until the object is gone.
    #[must_use]
    pub fn within(within: Duration) -> Self {
        Self {
            propagation: Propagation::Background,
            ready: None,
            not_on_create: Vec::new(),
            within,
            companions: Vec::new(),
            only_as_seen: false,
            orphaned_finalizers: Vec::new(),
            served_by: None,
        }
    }

    /// Leaves the object alone if somebody changes its spec after the plan has looked.
    #[must_use]
    pub fn only_as_seen(mut self) -> Self {
        self.only_as_seen = true;
        self
    }

    /// Says how one sees that the object works.
    #[must_use]
    pub fn ready_when(mut self, test: Test) -> Self {
        self.ready = Some(test);
        self
    }

    /// Names fields that admission refuses on create.
    #[must_use]
    pub fn not_on_create(mut self, fields: &[&str]) -> Self {
        self.not_on_create = fields.iter().map(|path| FieldPath::dotted(path)).collect();
        self
    }

    /// Names what its controller makes and takes away with it.
    #[must_use]
    pub fn companions(mut self, companions: Vec<Companion>) -> Self {
        self.companions = companions;
        self
    }

    /// Names the Deployment that serves its finalizers.
    #[must_use]
    pub fn served_by(mut self, deployment: ObjectRef) -> Self {
        self.served_by = Some(deployment);
        self
    }

    /// Names finalizers that nobody serves any more.
    #[must_use]
    pub fn orphaned_finalizers(mut self, finalizers: &[&str]) -> Self {
        self.orphaned_finalizers = finalizers.iter().map(|&finalizer| finalizer.to_owned()).collect();
        self
    }
}

impl Chain {
    /// A chain about an object.
    #[must_use]
    pub fn new(subject: ObjectRef, mut moves: Vec<Move>) -> Self {
        // There may be thousands of chains, and a list that grew has room for twice its moves.
        moves.shrink_to_fit();
        Self { subject, moves, turn: None }
    }

    /// Runs after the chains of the phase that have the same key and stand before it in the plan.
    #[must_use]
    pub fn in_turn(mut self, key: impl Into<String>) -> Self {
        self.turn = Some(key.into());
        self
    }
}

impl Plan {
    /// Every chain, the point of no return last, with the number of its phase.
    pub fn chains(&self) -> impl Iterator<Item = (usize, &Chain)> {
        let last = self.phases.len();
        self.phases
            .iter()
            .enumerate()
            .flat_map(|(phase, chains)| chains.iter().map(move |chain| (phase, chain)))
            .chain(self.point_of_no_return.iter().map(move |chain| (last, chain)))
    }

    /// Every move that changes the cluster.
    pub fn writes(&self) -> impl Iterator<Item = &Move> {
        self.chains().flat_map(|(_, chain)| &chain.moves).filter(|step| step.writes())
    }

    /// The findings that stop the step.
    pub fn refusals(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.level == Level::Refuse)
    }

    /// Leaves out what a person excluded: chains about it or that would change it, and findings about it. `left_out` is
    /// what the step left out of its snapshot already. An exclusion that means nothing here is noted: a name may be
    /// misspelt.
    pub fn exclude(&mut self, written: &[String], mut left_out: Vec<ObjectRef>) {
        let excluded = |object: &ObjectRef| written.iter().any(|name| object.is_named(name));
        let mut meant = left_out.clone();
        let chains = self.phases.iter_mut().chain(std::iter::once(&mut self.point_of_no_return));
        for phase in chains {
            phase.retain(|chain| {
                let writes = chain.moves.iter().filter(|step| step.writes()).map(|step| &step.object);
                let out = std::iter::once(&chain.subject).chain(writes).find(|object| excluded(object));
                meant.extend(out.cloned());
                let out = out.is_some();
                if out {
                    left_out.push(chain.subject.clone());
                }
                !out
            });
        }
        self.findings.retain(|finding| {
            let out = finding.object.as_ref().is_some_and(excluded);
            if out {
                left_out.extend(finding.object.clone());
            }
            !out
        });
        left_out.sort();
        left_out.dedup();
        meant.extend(left_out.iter().cloned());
        let idle = written.iter().filter(|name| !meant.iter().any(|object| object.is_named(name)));
        let idle = idle.map(|name| {
            Finding::note(
                None,
                format!("--exclude {name}: the step would not have touched an object of that name"),
            )
        });
        self.findings.extend(idle);
        self.findings
            .extend(left_out.into_iter().map(|object| Finding::skip(object, "left out by --exclude")));
    }

    /// What is wrong with the plan itself, not with the cluster: a mistake of the step's author.
    ///
    /// Progress is read back from the cluster, so nothing may be written twice within a phase; and moves without
    /// undo belong behind the point of no return.
    #[must_use]
    pub fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        for phase in self.phases.iter().chain(std::iter::once(&self.point_of_no_return)) {
            let mut written: HashMap<(&ObjectRef, String), usize> = HashMap::new();
            for step in phase.iter().flat_map(|chain| &chain.moves).filter(|step| step.writes()) {
                let fields = step.action.fields();
                if fields.is_empty() {
                    *written.entry((&step.object, "the object".to_owned())).or_default() += 1;
                }
                for field in fields {
                    *written.entry((&step.object, field.path.to_string())).or_default() += 1;
                }
            }
            let mut twice: Vec<String> = written
                .into_iter()
                .filter(|(_, times)| *times > 1)
                .map(|((object, what), times)| {
                    format!("{object}: {what} is written {times} times in one phase")
                })
                .collect();
            twice.sort();
            mistakes.extend(twice);
        }
        for step in self.phases.iter().flatten().flat_map(|chain| &chain.moves) {
            if step.writes() && matches!(step.undo, Undo::None { .. }) {
                mistakes.push(format!(
                    "{}: {} has no undo and must stand behind the point of no return",
                    step.object,
                    step.verb()
                ));
            }
        }
        mistakes
    }
}

/// An object as a step's planner sees it: as it is, and as it was before an earlier attempt of this step touched it.
#[derive(Clone, Debug)]
pub struct Item {
    /// Which.
    pub object: ObjectRef,
    live: Option<Body>,
    before: Option<Body>,
    uid: String,
    going: bool,
}

impl Item {
    /// An object as it is now, none if it is gone, and as it was before this step first touched it, if an open journal
    /// says so.
    #[must_use]
    pub fn new(object: ObjectRef, live: Option<&Value>, before: Option<&Value>) -> Self {
        Self {
            object,
            uid: live.map(uid).unwrap_or_default().to_owned(),
            going: live.is_some_and(is_going),
            live: live.map(Body::of),
            before: before.map(Body::of),
        }
    }

    /// As it is now; none if it is gone.
    #[must_use]
    pub fn live(&self) -> Option<Value> {
        self.live.as_ref().map(Body::value)
    }

    /// As the step found it, whichever attempt that was. Plan from this, and resuming is deciding again with
    /// nothing forgotten.
    #[must_use]
    pub fn origin(&self) -> Value {
        self.before.as_ref().or(self.live.as_ref()).map(Body::value).unwrap_or_default()
    }

    /// Whether an earlier attempt of this step has it in its journal.
    #[must_use]
    pub fn is_journalled(&self) -> bool {
        self.before.is_some()
    }

    /// Whether it is there now and not on its way out.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.live.is_some() && !self.going
    }

    /// Whether it is on its way out.
    #[must_use]
    pub fn is_going(&self) -> bool {
        self.going
    }

    /// The uid it has now.
    #[must_use]
    pub fn live_uid(&self) -> Option<&str> {
        self.live.as_ref().map(|_| self.uid.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::kinds;

    fn item(name: &str) -> Item {
        Item::new(kinds::CONFIG_MAP.object("ns", name), Some(&json!({"metadata": {"name": name}})), None)
    }

    fn label(value: &str) -> Vec<Field> {
        vec![Field { path: FieldPath::dotted("metadata.labels.a"), value: Some(value.into()) }]
    }

    #[test]
    fn writing_a_field_twice_in_one_phase_is_a_mistake_but_not_in_two_phases() {
        let chain = |value: &str| Chain::new(item("a").object, vec![Move::patch(&item("a"), label(value))]);
        let twice = Plan { phases: vec![vec![chain("1"), chain("2")]], ..Plan::default() };
        assert_eq!(twice.mistakes().len(), 1);
        let after_each_other = Plan { phases: vec![vec![chain("1")], vec![chain("2")]], ..Plan::default() };
        assert!(after_each_other.mistakes().is_empty());
    }

    #[test]
    fn a_move_without_undo_must_stand_behind_the_point_of_no_return() {
        let forever = Move::patch(&item("a"), label("1")).undone_by(Undo::None { reason: "test".into() });
        let chain = Chain::new(item("a").object, vec![forever]);
        let before = Plan { phases: vec![vec![chain.clone()]], ..Plan::default() };
        assert_eq!(before.mistakes().len(), 1);
        let behind = Plan { point_of_no_return: vec![chain], ..Plan::default() };
        assert!(behind.mistakes().is_empty());
    }

    #[test]
    fn an_excluded_object_takes_its_chain_and_its_refusal_with_it() {
        let mut plan = Plan {
            phases: vec![vec![
                Chain::new(item("a").object, Vec::new()),
                Chain::new(item("b").object, Vec::new()),
            ]],
            findings: vec![Finding::refuse(item("a").object, "bad name")],
            ..Plan::default()
        };
        plan.exclude(&["ConfigMap/ns/a".to_owned()], Vec::new());
        assert_eq!(plan.phases[0].len(), 1);
        assert_eq!(plan.refusals().count(), 0);
        assert_eq!(plan.findings, vec![Finding::skip(item("a").object, "left out by --exclude")]);
    }

    #[test]
    fn an_excluded_object_takes_every_chain_with_it_that_would_change_it() {
        let chain = |subject: &str, object: &str| {
            Chain::new(item(subject).object, vec![Move::patch(&item(object), label("1"))])
        };
        let mut plan =
            Plan { phases: vec![vec![chain("a", "shared"), chain("b", "other")]], ..Plan::default() };
        plan.exclude(&["ConfigMap/shared".to_owned(), "ConfigMap/ns/none".to_owned()], Vec::new());
        let left: Vec<&str> = plan.chains().map(|(_, chain)| chain.subject.name.as_str()).collect();
        assert_eq!(left, ["b"]);
        let said: Vec<String> = plan.findings.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("--exclude ConfigMap/ns/none: ") && said[1].starts_with("ConfigMap/ns/a: ")
        );
    }

    #[test]
    fn a_companion_is_as_before_when_as_many_are_there_and_work_and_none_is_too_many() {
        let scope = Scope::labelled(kinds::CONFIG_MAP, "ns", &[("of", "a")]);
        let link = |name: &str, status: &str| {
            json!({
                "metadata": {"name": name, "namespace": "ns"},
                "status": {"conditions": [{"type": "Ready", "status": status}]},
            })
        };
        let mut going = link("old", "True");
        going["metadata"]["deletionTimestamp"] = "now".into();
        let was = Companion::labelled(scope.clone(), 1, 1).ready_when(Test::Condition("Ready".into()));
        assert_eq!(was.ask(&[link("a", "True"), going.clone()]), Progress::Done);
        assert_eq!(was.ask(&[going]), Progress::Pending("0 of 1 are there".into()));
        let Progress::Pending(why) = was.ask(&[link("a", "False")]) else { panic!("it is not Ready") };
        assert_eq!(why, "ConfigMap/ns/a Ready is False");
        let Progress::Suspect(why, _) = was.ask(&[link("b", "True"), link("a", "True")]) else {
            panic!("there are two")
        };
        assert_eq!(why, "ConfigMap/ns/a and ConfigMap/ns/b are there, and there were 1");
        // What the controller makes besides is no loss.
        let was_not = Companion::labelled(scope, 0, 1);
        assert_eq!(was_not.ask(&[]), Progress::Done);
        assert_eq!(was_not.ask(&[link("a", "False")]), Progress::Done);
    }

    #[test]
    fn a_companion_is_known_as_somebody_has_changed_it_since_but_not_as_another_one_or_with_other_owners() {
        let object = kinds::CONFIG_MAP.object("ns", "b");
        let live = |uid: &str, label: &str, owners: Value| {
            json!({"metadata": {
                "name": "b", "namespace": "ns", "uid": uid, "resourceVersion": label,
                "labels": {"a": label}, "ownerReferences": owners,
            }})
        };
        let was = live("1", "old", json!([{"uid": "owner"}]));
        let known = Companion::of(&object, Some(&Item::new(object.clone(), Some(&was), None)));
        let changed_in = |there: Value| known.changed_in(&[(object.clone(), there)]);
        let newer = changed_in(live("1", "new", json!([]))).unwrap().image.unwrap().value();
        assert_eq!(text(&newer, "/metadata/labels/a"), Some("new"));
        for same in [live("2", "new", json!([])), live("1", "old", json!([]))] {
            assert!(changed_in(same).is_none());
        }
        assert!(known.changed_in(&[]).is_none());
    }

    #[test]
    fn a_journal_that_knows_companions_by_name_alone_is_read() {
        let object = kinds::CONFIG_MAP.object("ns", "a");
        let mut stored = serde_json::to_value(Removal::within(Duration::from_secs(1))).unwrap();
        stored["companions"] = json!([object]);
        let read: Removal = serde_json::from_value(stored).unwrap();
        assert_eq!(read.companions[0].scope, Scope::of(&object));
        assert_eq!((read.companions[0].were, read.companions[0].image.is_some()), (0, false));
        let known = Companion::of(&object, Some(&item("a")));
        let removal = Removal::within(Duration::from_secs(1)).companions(vec![known]);
        let read: Removal = serde_json::from_str(&serde_json::to_string(&removal).unwrap()).unwrap();
        assert_eq!(read.companions[0].scope, Scope::of(&object));
        assert_eq!(read.companions[0].image, item("a").live);
    }

    #[test]
    fn a_ready_that_is_older_than_the_newest_generation_does_not_count() {
        let mut object = json!({
            "metadata": {"generation": 2},
            "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}
        });
        let ready = Test::Condition("Ready".into());
        assert!(!ready.holds(Some(&object)));
        object["status"]["observedGeneration"] = 2.into();
        assert!(ready.holds(Some(&object)));
        object["metadata"]["deletionTimestamp"] = "now".into();
        assert!(!ready.holds(Some(&object)));
    }
}
