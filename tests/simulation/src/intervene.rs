//! Somebody else writes just before we do: a user, an operator, a tool.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use harness::{
    Action, At, Call, Fault, Resource, Scenario, Verb,
    call::Target,
    crash::{Lane, Mode, Place},
    state::{Key, join_key},
};
use http::Method;
use serde_json::{Value, json};

use crate::{server::Request, world::World};

/// What an edit leaves on an object.
const MARK: &str = "example.com/by-hand";

/// What somebody else does at the very moment when a call is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Intervention {
    /// Deletes the object.
    Delete,
    /// Changes something about it that is none of our business.
    Edit,
    /// Sets its replicas.
    Scale,
    /// Deletes it and makes another one of the same name.
    Recreate,
    /// Applies, as a `GitOps` tool does, whatever our call is about to set.
    Apply,
    /// Does what our call is about to do.
    First,
    /// Changes the object and changes it back: whoever looks before and after sees nothing but its version.
    ChangeTwice,
    /// Makes another object of the kind and deletes it again, which nobody sees who only looks before and after.
    ComeAndGo,
    /// Creates one more object that the step migrates.
    Newcomer,
    /// Creates another object under the name that our call is about to take.
    TakeName,
}

/// What becomes of the run in which that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Course {
    /// Nothing else goes wrong.
    Through,
    /// It fails later and undoes.
    Undone,
    /// It happens while the run undoes.
    InUndo,
}

/// An intervention, and the run that it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    /// What is done.
    pub intervention: Intervention,
    /// When.
    pub course: Course,
}

impl Intervention {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Delete,
        Self::Edit,
        Self::Scale,
        Self::Recreate,
        Self::Apply,
        Self::First,
        Self::ChangeTwice,
        Self::ComeAndGo,
        Self::Newcomer,
        Self::TakeName,
    ];

    /// Whether all is as if nothing had happened.
    #[must_use]
    pub fn leaves_nothing(self) -> bool {
        matches!(self, Self::ChangeTwice | Self::ComeAndGo)
    }

    /// Whether somebody could do it at a call that asks for this: to an object that a move is about to change, or, where it
    /// leaves nothing, to whatever the step looks at.
    #[must_use]
    pub fn suits(self, what: &str) -> bool {
        let creates = what.starts_with("Move: create");
        let changes = what.starts_with("Move:") && !creates;
        match self {
            Self::ChangeTwice => looks_or_moves(what),
            // What an Application offers comes and goes with it, and is another's too if it is a copy.
            Self::ComeAndGo => looks_or_moves(what) && !what.contains("/applications"),
            Self::Newcomer => ["Move:", "Read:"].iter().any(|class| what.starts_with(class)),
            Self::TakeName => creates,
            Self::First => creates || what.starts_with("Move: patch"),
            Self::Scale => {
                changes && ["/deployments/", "/statefulsets/"].iter().any(|kind| what.contains(kind))
            }
            // A Namespace does not go at once.
            Self::Recreate => changes && !is_namespace(what),
            Self::Delete | Self::Edit | Self::Apply => changes,
        }
    }
}

/// Whether a call is about a Namespace itself.
fn is_namespace(what: &str) -> bool {
    what.split_once("/api/v1/namespaces/").is_some_and(|(_, rest)| !rest.contains('/'))
}

/// Whether a call reads or changes what belongs to users.
fn looks_or_moves(what: &str) -> bool {
    ["Move:", "Read:", "Watch:"].iter().any(|class| what.starts_with(class))
}

impl fmt::Display for Intervention {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Delete => "user-deletes",
            Self::Edit => "user-edits",
            Self::Scale => "user-scales",
            Self::Recreate => "user-recreates",
            Self::Apply => "user-applies",
            Self::First => "user-is-first",
            Self::ChangeTwice => "changes-twice",
            Self::ComeAndGo => "comes-and-goes",
            Self::Newcomer => "newcomer",
            Self::TakeName => "user-takes-name",
        })
    }
}

impl Kind {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        let courses = [Course::Through, Course::Undone, Course::InUndo];
        Intervention::ALL
            .into_iter()
            .flat_map(move |intervention| courses.map(|course| Self { intervention, course }))
    }

    /// The mode of the crash harness that strikes at the same calls, and more.
    #[must_use]
    pub fn like(self) -> Mode {
        match self.course {
            Course::Through | Course::Undone => Mode::LoseAnswer,
            Course::InUndo => Mode::LoseAnswerInUndo,
        }
    }

    /// Whether somebody could do it there.
    #[must_use]
    pub fn suits<S: Scenario>(self, lane: &Lane<S>, place: &Place) -> bool {
        if self.intervention == Intervention::Newcomer && lane.scenario.newcomer(&lane.worker).is_none() {
            return false;
        }
        match place {
            Place::Call(name) | Place::Watch(name) => self.intervention.suits(&name.what),
            Place::Renewal { .. } | Place::FirstMoves => false,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let intervention = self.intervention;
        match self.course {
            Course::Through => write!(out, "{intervention}"),
            Course::Undone => write!(out, "{intervention}-then-undo"),
            Course::InUndo => write!(out, "undo-{intervention}"),
        }
    }
}

/// What somebody has written, and to what.
#[derive(Clone, Debug)]
pub struct Wrote {
    /// The object's path.
    pub(crate) path: String,
    /// Its key in a state.
    pub(crate) key: Key,
    /// Its name.
    pub(crate) name: String,
    /// The fields that were set; none if it was deleted.
    pub(crate) fields: Option<Value>,
    /// How many objects had been created in the world before.
    pub(crate) created_before: usize,
    /// Whether a step had made the object: undo removes it, whatever else somebody has added to it.
    pub(crate) to_ours: bool,
    /// Whether nobody had an object of that name before.
    pub(crate) is_new: bool,
    /// What the call sends at which it was written.
    pub(crate) call: Value,
}

/// What somebody has written, as the hook tells those who judge.
pub type Written = Arc<Mutex<Option<Wrote>>>;

/// What somebody has written, if anybody has.
#[must_use]
pub fn wrote(written: &Written) -> Option<Wrote> {
    written.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Intervention {
    /// Does it at a call, once. What was written is told to `written`.
    pub fn fault<S: Scenario>(self, world: &World, lane: &Lane<S>, at: At, written: &Written) -> Fault {
        let (world, written, mut once) = (world.clone(), written.clone(), false);
        let newcomer = lane.scenario.newcomer(&lane.worker);
        Fault::hook(move |call| {
            if !once && at.is(call) {
                once = true;
                let wrote = match (self, &newcomer) {
                    (Self::Newcomer, newcomer) => newcomer.as_ref().and_then(|new| arrive(&world, new)),
                    _ => self.strike(&world, call),
                };
                let wrote = wrote.map(|wrote| Wrote { call: call.json().unwrap_or_default(), ..wrote });
                *written.lock().unwrap_or_else(PoisonError::into_inner) = wrote;
            }
            Action::Forward
        })
    }

    /// Whether it may take away what a move depends on, after the step has looked.
    fn overtakes(self) -> bool {
        !matches!(self, Self::Edit | Self::ChangeTwice | Self::ComeAndGo | Self::Newcomer | Self::TakeName)
    }

    /// Does it at the object of a call. None where there is nothing to do it to.
    fn strike(self, world: &World, call: &Call) -> Option<Wrote> {
        if self.overtakes() {
            world.forgive_order();
        }
        let path = object_of(world, call)?;
        let user = User { world, path };
        match self {
            Self::Delete => user.delete(),
            Self::Edit => user.merge("kubectl-edit", json!({"metadata": {"annotations": {MARK: "kept"}}})),
            Self::Scale => user.merge("kubectl-scale", json!({"spec": {"replicas": 7}})),
            Self::Recreate => user.recreate(),
            Self::Apply => user.apply(call),
            Self::First if call.verb == Verb::Create => user.create(without_guards(call)?),
            Self::First => user.merge("kubectl-patch", without_guards(call)?),
            Self::ChangeTwice => {
                let there = json!({"metadata": {"annotations": {MARK: "soon gone"}}});
                user.merge("kubectl-annotate", there)?;
                user.merge("kubectl-annotate", json!({"metadata": {"annotations": {MARK: null}}}))
            }
            Self::ComeAndGo => user.visit(),
            Self::TakeName => user.create(another(&call.json()?)),
            // It is created wherever the call goes.
            Self::Newcomer => None,
        }
    }
}

/// Somebody creates one more object that the step migrates.
fn arrive(world: &World, (kind, object): &(Resource, Value)) -> Option<Wrote> {
    let metadata = &object["metadata"];
    let path = kind.path(metadata["namespace"].as_str(), metadata["name"].as_str());
    let wrote = User { world, path }.create(object.clone())?;
    Some(Wrote { is_new: true, ..wrote })
}

/// Another object of the same name: every text in it is another one.
fn another(object: &Value) -> Value {
    fn with_other_texts(value: &Value) -> Value {
        match value {
            Value::String(text) => format!("{text}-of-another").into(),
            Value::Array(items) => items.iter().map(with_other_texts).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(field, value)| (field.clone(), with_other_texts(value))).collect()
            }
            value => value.clone(),
        }
    }
    let mut other = with_other_texts(object);
    for field in ["apiVersion", "kind"] {
        if let Some(value) = object.get(field) {
            other[field] = value.clone();
        }
    }
    other["metadata"] = json!({"name": object["metadata"]["name"]});
    if let Some(namespace) = object["metadata"].get("namespace") {
        other["metadata"]["namespace"] = namespace.clone();
    }
    other
}

/// Where the object of a call is: of a collection that is looked at, the first one.
fn object_of(world: &World, call: &Call) -> Option<String> {
    let target = &call.target;
    if let Some(name) = &call.name {
        return Some(path_of(target, target.namespace.as_deref(), name));
    }
    let list = world.object(&call.path)?;
    let metadata = &list["items"].as_array()?.first()?["metadata"];
    Some(path_of(target, metadata["namespace"].as_str(), metadata["name"].as_str()?))
}

fn path_of(target: &Target, namespace: Option<&str>, name: &str) -> String {
    let group = if target.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", target.group) };
    let within = namespace.map(|namespace| format!("/namespaces/{namespace}")).unwrap_or_default();
    format!("{group}/{}{within}/{}/{name}", target.version, target.resource)
}

/// What our call writes, without what belongs to us: versions that it was read at, marks of the run.
fn without_guards(call: &Call) -> Option<Value> {
    let mut body = call.json().filter(Value::is_object)?;
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.retain(|field, _| field != "resourceVersion" && field != "managedFields" && field != "uid");
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| !key.starts_with("belay.dev/"));
        }
        metadata.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    }
    body.as_object_mut()?.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    Some(body).filter(|body| body.as_object().is_some_and(|fields| !fields.is_empty()))
}

/// Somebody with kubectl, and an object.
struct User<'a> {
    world: &'a World,
    path: String,
}

impl User<'_> {
    fn live(&self) -> Option<Value> {
        self.world.object(&self.path)
    }

    fn wrote(&self, object: &Value, fields: Option<Value>) -> Wrote {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        // What is written to an object that terminates goes with it.
        let terminates = object.pointer("/metadata/deletionTimestamp").is_some();
        Wrote {
            path: self.path.clone(),
            key: join_key(text("/kind"), text("/metadata/namespace"), text("/metadata/name")),
            name: text("/metadata/name").to_owned(),
            fields: fields.map(|fields| if terminates { json!({}) } else { fields }),
            created_before: self.world.created().len(),
            to_ours: object.pointer("/metadata/annotations/belay.dev~1run").is_some(),
            is_new: false,
            call: Value::Null,
        }
    }

    fn delete(&self) -> Option<Wrote> {
        let live = self.live()?;
        self.world.ask("kubectl-delete", Request::new(Method::DELETE, &self.path))?;
        Some(self.wrote(&live, None))
    }

    fn merge(&self, who: &str, fields: Value) -> Option<Wrote> {
        let patch = Request {
            content_type: "application/merge-patch+json".to_owned(),
            body: fields.to_string().into(),
            ..Request::new(Method::PATCH, &self.path)
        };
        let now = self.world.ask(who, patch)?;
        Some(self.wrote(&now, Some(fields)))
    }

    fn create(&self, object: Value) -> Option<Wrote> {
        let (collection, _) = self.path.rsplit_once('/')?;
        let create = Request { body: object.to_string().into(), ..Request::new(Method::POST, collection) };
        let now = self.world.ask("kubectl-create", create)?;
        Some(self.wrote(&now, Some(object)))
    }

    /// Another object of the same name, where the old one goes at once.
    fn recreate(&self) -> Option<Wrote> {
        let mut object = anew(self.live().filter(|live| live.pointer("/metadata/finalizers").is_none())?);
        let deleted = self.delete()?;
        object["metadata"]["annotations"][MARK] = "kept".into();
        // Where nothing new is accepted, it is gone all the same.
        self.create(object).or(Some(deleted))
    }

    /// What a call is about to set, and a mark.
    fn apply(&self, call: &Call) -> Option<Wrote> {
        let live = self.live()?;
        let sets = Some(call).filter(|call| call.verb == Verb::Patch).and_then(without_guards);
        let mut fields = sets.unwrap_or_else(|| json!({}));
        without_nulls(&mut fields);
        fields["metadata"]["annotations"][MARK] = "kept".into();
        let mut whole = fields.clone();
        for field in ["apiVersion", "kind"] {
            whole[field] = live[field].clone();
        }
        for field in ["name", "namespace"] {
            if let Some(value) = live["metadata"].get(field) {
                whole["metadata"][field] = value.clone();
            }
        }
        let apply = Request {
            query: "fieldManager=argocd&force=true".to_owned(),
            content_type: "application/apply-patch+yaml".to_owned(),
            body: whole.to_string().into(),
            ..Request::new(Method::PATCH, &self.path)
        };
        let now = self.world.ask("argocd", apply)?;
        Some(self.wrote(&now, Some(fields)))
    }

    /// Another object of the kind that is there for no time at all.
    fn visit(&self) -> Option<Wrote> {
        let live = self.live()?;
        let mut visitor = anew(live.clone());
        visitor["metadata"]["name"] = "just-visiting".into();
        for field in ["finalizers", "ownerReferences"] {
            visitor["metadata"].as_object_mut()?.remove(field);
        }
        let (collection, _) = self.path.rsplit_once('/')?;
        let other = User { world: self.world, path: format!("{collection}/just-visiting") };
        other.create(visitor)?;
        other.delete()?;
        Some(self.wrote(&live, Some(json!({}))))
    }
}

/// An object as its user would write it down: without what the server and the steps have put there.
fn anew(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
            metadata.remove(field);
        }
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|key, _| !key.starts_with("belay.dev/"));
        }
    }
    object
}

fn without_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(without_nulls);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_names_of_the_kinds_are_theirs_alone() {
        let names: BTreeSet<String> = Kind::all().map(|kind| kind.to_string()).collect();
        assert_eq!(names.len(), Kind::all().count());
        assert!(names.contains("undo-user-deletes"), "{names:?}");
    }
}
