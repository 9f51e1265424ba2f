//! Undo: what the journal says, backwards. It works from the journal alone, so that it outlives the pod, the release
//! and the version that wrote it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    act::{Actor, Broken, Trail, describe, made_by, sentence},
    cluster::{Failure, Halt, Mode, Precondition, lock},
    journal::{Before, Entries, Entry, PreImage},
    object::{ObjectRef, holds, is_going, resource_version, text, uid},
    plan::{Action, Check, Field, Move, Propagation, Removal, Undo, Wait},
    watch::Scope,
};

/// What undo could not put back, and why.
#[derive(Clone, Debug, Default)]
pub struct Undone {
    /// Objects that were put back or removed.
    pub restored: usize,
    /// Objects that a person must look at.
    pub left: Vec<(ObjectRef, String)>,
}

/// One entry's way back.
enum Back {
    /// As it was, and was so already.
    AsBefore,
    /// Put back now.
    Restored,
    /// Left as it is, for a person to look at.
    Left(String),
    /// Left as it is, and what came before in the chain must stay too: it is the only thing that works.
    Broken(String),
}

/// Takes back what a journal's entries say, of all chains or of some.
pub async fn undo(actor: &Actor, entries: &Entries, chains: Option<&[ObjectRef]>) -> Result<Undone, Halt> {
    actor.resume_waits();
    let mut undone = pass(actor, entries, chains).await?;
    // A call of a run that died, or one whose answer was lost, may land after we looked. The server drops it after
    // its timeout, so one more look after that sees everything.
    if let Some(until) = actor.cluster.lands_until()
        && until > Instant::now()
    {
        log::info!("waiting until no late call can land any more, then looking once more");
        tokio::select! {
            () = tokio::time::sleep_until(until + Duration::from_millis(500)) => {}
            halt = actor.cluster.wait_halted() => return Err(halt),
        }
        let again = pass(actor, entries, chains).await?;
        undone = Undone { restored: undone.restored + again.restored, left: again.left };
    }
    undone.left.sort();
    undone.left.dedup();
    Ok(undone)
}

/// Looks at every entry once and takes it back where it is not yet.
async fn pass(actor: &Actor, entries: &Entries, chains: Option<&[ObjectRef]>) -> Result<Undone, Halt> {
    let mut phases: BTreeMap<usize, BTreeMap<&ObjectRef, Vec<Arc<Entry>>>> = BTreeMap::new();
    for entry in newest(entries) {
        if chains.is_none_or(|chains| chains.contains(&entry.1.chain)) {
            phases.entry(entry.1.phase).or_default().entry(entry.0).or_default().push(entry.1);
        }
    }
    let undone = Mutex::new(Undone::default());
    for (_, chains) in phases.into_iter().rev() {
        let mut running: FuturesUnordered<_> =
            chains.into_values().map(|chain| back_through(actor, chain, &undone)).collect();
        while let Some(result) = running.next().await {
            result?;
        }
    }
    Ok(undone.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Each move once, in the order of the first time it was journalled, with the newest pre-image.
fn newest(entries: &Entries) -> Vec<(&ObjectRef, Arc<Entry>)> {
    let mut order: Vec<(&ObjectRef, Arc<Entry>)> = Vec::new();
    let mut places: std::collections::HashMap<(&ObjectRef, &str, String), usize> =
        std::collections::HashMap::new();
    for entry in entries.all() {
        let fields = entry.action.fields();
        let fields: Vec<String> =
            fields.iter().map(|field| format!("{}={:?}", field.path, field.value)).collect();
        let place =
            *places.entry((&entry.object, entry.action.verb(), fields.join(","))).or_insert(order.len());
        if place == order.len() {
            order.push((&entry.chain, Arc::new(entry.clone())));
        } else {
            order[place].1 = Arc::new(entry.clone());
        }
    }
    order
}

async fn back_through(actor: &Actor, chain: Vec<Arc<Entry>>, undone: &Mutex<Undone>) -> Result<(), Halt> {
    let mut broken: Option<String> = None;
    for entry in chain.iter().rev() {
        if let Some(why) = &broken {
            let why = format!("not taken back, because {why}");
            lock(undone).left.push((entry.object.clone(), why));
            continue;
        }
        let back = match take_back(actor, entry).await {
            Ok(back) => back,
            Err(Broken::Call(Failure::Halted(halt))) => return Err(halt),
            Err(Broken::Call(failure)) if failure.namespace_is_going() => {
                actor.note(&entry.object, "void", "its namespace is being deleted");
                Back::AsBefore
            }
            Err(other) => {
                let why = sentence(other);
                if matches!(entry.before, Before::Object(_)) { Back::Broken(why) } else { Back::Left(why) }
            }
        };
        match back {
            Back::AsBefore => {}
            Back::Restored => lock(undone).restored += 1,
            Back::Left(why) => {
                actor.note(&entry.object, "not put back", why.clone());
                lock(undone).left.push((entry.object.clone(), why));
            }
            Back::Broken(why) => {
                actor.note(&entry.object, "not put back", why.clone());
                lock(undone).left.push((entry.object.clone(), why.clone()));
                broken = Some(format!("{} is not there again: {why}", entry.object));
            }
        }
    }
    Ok(())
}

async fn take_back(actor: &Actor, entry: &Entry) -> Result<Back, Broken> {
    match &entry.undo {
        Undo::None { .. } => return Ok(Back::AsBefore),
        Undo::Instead(moves) => return instead(actor, moves).await,
        Undo::Inverse => {}
    }
    match (&entry.action, &entry.before) {
        (Action::Create { body, .. }, _) => unmake(actor, &entry.object, body).await,
        (Action::Delete(removal), Before::Object(image)) => {
            restore(actor, &entry.object, image, removal, true).await
        }
        (Action::Recreate(removal), Before::Object(image)) => {
            restore(actor, &entry.object, image, removal, false).await
        }
        (action, Before::Fields(old)) => put_back(actor, &entry.object, action, old).await,
        _ => Ok(Back::AsBefore),
    }
}

async fn instead(actor: &Actor, moves: &[Move]) -> Result<Back, Broken> {
    let mut trail = Trail::default();
    for step in moves {
        // What the plan saw is from before the move that is taken back.
        let step = Move { live: None, ..step.clone() };
        match actor.make(&step, &mut trail).await {
            Err(Broken::InTheWay(finding)) => return Ok(Back::Left(finding.message)),
            other => other?,
        }
    }
    Ok(Back::Restored)
}

/// Removes an object that the step made, if it is still as the step made it.
async fn unmake(actor: &Actor, object: &ObjectRef, body: &Value) -> Result<Back, Broken> {
    loop {
        let Some(live) = actor.cluster.get(object).await? else { return Ok(Back::AsBefore) };
        if is_going(&live) {
            actor.until_gone(object, uid(&live), actor.time_left()).await?;
            return Ok(Back::Restored);
        }
        if made_by(&live) != Some(actor.run()) {
            // It was there before us, or somebody has made another one since: not ours to remove.
            return Ok(Back::AsBefore);
        }
        if !holds(&live, body) {
            return Ok(Back::Left(
                "this step made it, and somebody has changed it since: it is left as it is".to_owned(),
            ));
        }
        let precondition = Precondition {
            uid: uid(&live).to_owned(),
            resource_version: Some(resource_version(&live).to_owned()),
        };
        // Foreground: when it is gone, so is what its controller made for it.
        match actor.cluster.delete(object, &precondition, Propagation::Foreground, Mode::Real).await {
            Ok(_) => {
                actor.until_gone(object, uid(&live), actor.time_left()).await?;
                actor.note(object, "removed", "this step had made it");
                return Ok(Back::Restored);
            }
            Err(failure) if failure.is_not_found(&object.name) => return Ok(Back::Restored),
            Err(failure) if failure.is_conflict() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// Brings an object back that the step took away. `deleted` tells a delete from a recreate: the latter may have been
/// replaced by its equal, which stays.
async fn restore(
    actor: &Actor,
    object: &ObjectRef,
    image: &PreImage,
    removal: &Removal,
    deleted: bool,
) -> Result<Back, Broken> {
    let mut live = actor.cluster.get(object).await?;
    if let Some(going) = live.as_ref().filter(|live| is_going(live)) {
        // It can't be rescued: only waited for, then made again.
        actor.until_gone(object, uid(going), actor.time_left()).await?;
        live = None;
    }
    let untouched = live.as_ref().is_some_and(|live| uid(live) == image.uid);
    if untouched {
        return Ok(Back::AsBefore);
    }
    if let Some(other) = live.as_ref().filter(|other| deleted && !is_as_before(other, image, removal)) {
        return Ok(Back::Broken(format!(
            "cannot be restored: another one bears its name since {}",
            text(other, "/metadata/creationTimestamp").unwrap_or("some time")
        )));
    }
    let restored = live.is_none();
    let mut trail = Trail::default();
    if restored {
        let made = actor.revive(object, image, removal).await?;
        trail.saw(object, &made);
        actor.note(
            object,
            "restored",
            if deleted { "it had been deleted" } else { "it was being recreated" },
        );
    }
    if let Some(test) = &removal.ready
        && test.holds(Some(&image.with_status()))
    {
        let wait = Wait {
            what: format!("{object} working again as before"),
            scopes: vec![Scope::of(object)],
            within: actor.time_left(),
            check: Check::Object(test.clone()),
        };
        actor.wait(object, &wait, &trail).await?;
    }
    Ok(if restored { Back::Restored } else { Back::AsBefore })
}

/// Whether an object of the name is what an earlier attempt of this undo created, or just as good.
fn is_as_before(live: &Value, image: &PreImage, removal: &Removal) -> bool {
    let mut wanted = (*image.object).clone();
    removal.not_on_create.iter().for_each(|field| field.set(&mut wanted, None));
    // Owners have new uids by now, and finalizers belong to controllers.
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("ownerReferences");
        metadata.remove("finalizers");
    }
    holds(live, &wanted)
}

/// Puts old values back, where the fields still hold what the step wrote.
async fn put_back(actor: &Actor, object: &ObjectRef, action: &Action, old: &[Field]) -> Result<Back, Broken> {
    let wrote = action.fields();
    loop {
        let Some(live) = actor.cluster.get(object).await?.filter(|live| !is_going(live)) else {
            return Ok(Back::Left(
                "was deleted by somebody else: its old fields cannot be put back".to_owned(),
            ));
        };
        let is = |fields: &[Field]| fields.iter().all(|field| field.path.get(&live) == field.value.as_ref());
        if is(old) {
            actor.disown(object, live).await?;
            return Ok(Back::AsBefore);
        }
        if !is(&wrote) {
            return Ok(Back::Left(format!(
                "somebody has changed it since: {} is left as it is",
                old.iter().map(|field| field.path.to_string()).collect::<Vec<_>>().join(", ")
            )));
        }
        match actor.swap(object, action, old, &live, Mode::Real).await {
            Ok(after) => {
                actor.disown(object, after).await?;
                actor.note(object, "put back", describe(old, &live));
                return Ok(Back::Restored);
            }
            Err(failure) if failure.is_conflict() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}
