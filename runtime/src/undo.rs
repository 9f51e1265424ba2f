//! Undo: what the journal says, backwards. It works from the journal alone, so that it outlives the pod, the release
//! and the version that wrote it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{StreamExt as _, TryStreamExt as _, stream::FuturesUnordered};
use serde_json::Value;

use crate::{
    act::{Actor, Broken, CONFLICTS, Trail, describe, disown_patch, made_by, sentence},
    cluster::{FIELD_MANAGER, Failure, Halt, Mode, Precondition, lock},
    journal::{Before, Entries, Entry, PreImage},
    object::{Body, FieldPath, ObjectRef, finalizers, holds, is_going, resource_version, text, uid},
    plan::{Action, Check, Companion, Field, Move, Progress, Propagation, Removal, Undo, Wait},
    watch::{Scope, View},
};

/// What undo could not put back, and why.
#[derive(Clone, Debug, Default)]
pub struct Undone {
    /// Objects that were put back or removed.
    pub restored: usize,
    /// Of these: objects that are deleted and that the garbage collector is still taking away.
    pub going: usize,
    /// Objects that a person must look at.
    pub left: Vec<(ObjectRef, String)>,
}

impl Undone {
    /// What was put back.
    #[must_use]
    pub fn in_words(&self) -> String {
        let restored = match self.restored {
            0 => "nothing had been changed".to_owned(),
            1 => "1 change was taken back".to_owned(),
            many => format!("{many} changes were taken back"),
        };
        match self.going {
            0 => restored,
            1 => format!(
                "{restored}; the garbage collector is still taking away 1 object that the step had made"
            ),
            many => format!(
                "{restored}; the garbage collector is still taking away {many} objects that the step had made"
            ),
        }
    }

    /// The first of what could not be put back: a verdict is short, and ends with the next command. The report has all.
    #[must_use]
    pub fn left_in_words(&self) -> String {
        let first: Vec<String> =
            self.left.iter().take(3).map(|(object, why)| format!("{object} {why}")).collect();
        let more = self.left.len().saturating_sub(first.len());
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        format!("{}{more}", first.join("; "))
    }
}

/// One entry's way back.
enum Back {
    /// As it was, and was so already.
    AsBefore,
    /// Put back now.
    Restored,
    /// Removed now, and the garbage collector has still to take away what belongs to it.
    Going,
    /// Left as it is, for a person to look at.
    Left(String),
    /// It failed. What came before in the chain stays, and so does what the step made in earlier phases: it may be the only
    /// thing that works.
    Broken(String),
}

/// Takes back what a journal's entries say, of all chains or of some.
pub async fn undo(actor: &Actor, entries: &Entries, chains: Option<&[ObjectRef]>) -> Result<Undone, Halt> {
    actor.resume_waits();
    let clock = actor.cluster.clock();
    let began = clock.now();
    let mut undone = pass(actor, entries, chains).await?;
    // A call of a run that died, or one whose answer was lost, may land after we looked. The server drops it after
    // its timeout, so one more look after that sees everything. What counts is when the first look began: it may have
    // waited for one object long after it had seen another.
    if let Some(until) = actor.cluster.lands_until()
        && until > began
    {
        log::info!("waiting until no late call can land any more, then looking once more");
        tokio::select! {
            biased;
            halt = actor.cluster.wait_halted() => return Err(halt),
            () = clock.sleep_until(until + clock.patience(Duration::from_millis(500))) => {}
        }
        let again = pass(actor, entries, chains).await?;
        // What was going is looked at twice.
        let more = again.restored.saturating_sub(undone.going);
        undone = Undone { restored: undone.restored + more, ..again };
    }
    undone.left.sort();
    undone.left.dedup();
    Ok(undone)
}

/// Looks at every entry once and takes it back where it is not yet.
async fn pass(actor: &Actor, entries: &Entries, chains: Option<&[ObjectRef]>) -> Result<Undone, Halt> {
    // Chains in the order in which they were journalled, which is the order of the plan.
    let mut phases: BTreeMap<usize, Vec<Vec<&Entry>>> = BTreeMap::new();
    let mut places: HashMap<(usize, &ObjectRef), usize> = HashMap::new();
    for (subject, entry) in newest(entries) {
        if chains.is_none_or(|chains| chains.contains(&entry.chain)) {
            let phase = phases.entry(entry.phase).or_default();
            let place = *places.entry((entry.phase, subject)).or_insert(phase.len());
            match phase.get_mut(place) {
                Some(chain) => chain.push(entry),
                None => phase.push(vec![entry]),
            }
        }
    }
    let undone = Mutex::new(Undone::default());
    // Why what the step made in the phases that are left must stay.
    let mut stays: Option<String> = None;
    for (_, mut chains) in phases.into_iter().rev() {
        // A later attempt may have journalled a move that stands before those of an earlier one.
        for chain in &mut chains {
            chain.sort_by_key(|entry| entry.index);
        }
        let mut running: FuturesUnordered<_> = in_turns(chains)
            .into_iter()
            .map(|turn| back_in_turn(actor, entries, turn, stays.as_deref(), &undone))
            .collect();
        // Whoever is told to stop lets the calls in flight come to their end: none may land when another run has begun.
        let (mut halted, mut broken) = (None, None);
        while let Some(result) = running.next().await {
            match result {
                Ok(why) => broken = broken.or(why),
                Err(halt) => halted = halted.or(Some(halt)),
            }
        }
        drop(running);
        if let Some(halt) = halted {
            return Err(halt);
        }
        stays = stays.or(broken);
    }
    Ok(undone.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Each move once, in the order of the first time it was journalled, with the newest pre-image.
#[must_use]
pub fn newest(entries: &Entries) -> Vec<(&ObjectRef, &Entry)> {
    let mut order: Vec<(&ObjectRef, &Entry)> = Vec::new();
    let mut places: HashMap<(&ObjectRef, String), usize> = HashMap::new();
    for entry in entries.all() {
        let place = *places.entry((&entry.object, entry.action.key())).or_insert(order.len());
        if place == order.len() {
            order.push((&entry.chain, entry));
        } else {
            order[place].1 = entry;
        }
    }
    order
}

/// What earlier attempts made of the chains with which this one had nothing to do.
#[derive(Debug, Default)]
pub(crate) struct Earlier {
    /// Their subjects, where all is made.
    pub made: HashSet<ObjectRef>,
    /// Where an object is lost or only a part is made: an exclusion, or other flags, have taken them out of the plan
    /// half-way.
    pub half: Vec<ObjectRef>,
    /// Objects as they are now that still bear our mark on the fields that were set: the attempt died before it took it off.
    pub marked: Vec<(ObjectRef, Value)>,
}

/// How an entry stands in the cluster.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    Made,
    NotMade,
    /// Deleted, and not made again.
    Lost,
}

/// Looks how the chains stand that are `wanted`.
pub(crate) async fn earlier(
    actor: &Actor,
    entries: &Entries,
    wanted: impl Fn(&ObjectRef) -> bool,
) -> Result<Earlier, Failure> {
    let asked = newest(entries).into_iter().filter(|(subject, _)| wanted(subject));
    let stand: Vec<(&ObjectRef, &Entry, Stands, Option<Value>)> = futures::stream::iter(asked)
        .map(|(subject, entry)| async move {
            let live = actor.cluster.get(&entry.object).await?;
            let stands = stands(entries, entry, live.as_ref());
            let is_marked = !entry.action.fields().is_empty() && stands == Stands::Made;
            let marked = live.filter(|live| is_marked && disown_patch(live).is_some());
            Ok::<_, Failure>((subject, entry, stands, marked))
        })
        .buffer_unordered(32)
        .try_collect()
        .await?;
    let mut earlier = Earlier::default();
    let mut chains: BTreeMap<&ObjectRef, Vec<(bool, Stands)>> = BTreeMap::new();
    for (subject, entry, stands, marked) in stand {
        chains.entry(subject).or_default().push((matches!(entry.action, Action::Delete(_)), stands));
        earlier.marked.extend(marked.map(|live| (entry.object.clone(), live)));
    }
    for (subject, stand) in chains {
        let any = |stands: Stands| stand.iter().any(|(_, one)| *one == stands);
        // Make before break: what was made for an object that then stayed is of no use.
        let stayed = stand.contains(&(true, Stands::NotMade)) && any(Stands::Made);
        if any(Stands::Lost) || stayed {
            earlier.half.push(subject.clone());
        } else if !any(Stands::NotMade) {
            earlier.made.insert(subject.clone());
        }
    }
    Ok(earlier)
}

fn stands(entries: &Entries, entry: &Entry, live: Option<&Value>) -> Stands {
    let there = live.filter(|live| !is_going(live));
    let is_old = |live: &Value| entry.pre_image().is_some_and(|image| image.uid == uid(live));
    let made = match &entry.action {
        Action::Create { .. } => there.is_some(),
        Action::Delete(_) => {
            !there.is_some_and(|live| is_old(live) || entries.is_restored(&entry.object, live))
        }
        Action::Recreate(_) => match there {
            None => return Stands::Lost,
            Some(live) => !is_old(live),
        },
        action => there.is_some_and(|live| action.fields().iter().all(|field| field.is_in(live))),
    };
    if made { Stands::Made } else { Stands::NotMade }
}

/// Groups chains that share a turn, the one that was begun last first.
fn in_turns<'a>(chains: Vec<Vec<&'a Entry>>) -> Vec<Vec<Vec<&'a Entry>>> {
    let mut alone = Vec::new();
    let mut turns: BTreeMap<String, Vec<Vec<&'a Entry>>> = BTreeMap::new();
    for chain in chains {
        match chain.first().and_then(|entry| entry.turn.clone()) {
            Some(turn) => turns.entry(turn).or_default().push(chain),
            None => alone.push(vec![chain]),
        }
    }
    alone.extend(turns.into_values().map(|mut chains| {
        chains.reverse();
        chains
    }));
    alone
}

/// Takes chains back that share a turn. Returns why what the step made in earlier phases must stay, if so.
async fn back_in_turn(
    actor: &Actor,
    entries: &Entries,
    chains: Vec<Vec<&Entry>>,
    stays: Option<&str>,
    undone: &Mutex<Undone>,
) -> Result<Option<String>, Halt> {
    let mut broken = None;
    for chain in chains {
        let why = back_through(actor, entries, chain, stays, undone).await?;
        broken = broken.or(why);
    }
    Ok(broken)
}

/// Takes a chain back, the last move first. Where one cannot be taken back, those before it stay: it may stand on them.
async fn back_through(
    actor: &Actor,
    entries: &Entries,
    chain: Vec<&Entry>,
    stays: Option<&str>,
    undone: &Mutex<Undone>,
) -> Result<Option<String>, Halt> {
    let mut broken: Option<String> = None;
    for entry in chain.iter().rev() {
        if let Some(why) = &broken {
            let why = format!("not taken back, because {why}");
            lock(undone).left.push((entry.object.clone(), why));
            continue;
        }
        // What this very process has not begun is not its to take back, however it looks by now.
        if actor.never_tried(entry) {
            continue;
        }
        actor.cluster.room().await;
        // In a box: those that are not let in yet should not carry the room that taking back needs.
        let back = match Box::pin(take_back(actor, entries, entry, stays)).await {
            Ok(back) => back,
            Err(Broken::Call(Failure::Halted(halt))) => return Err(halt),
            Err(Broken::Call(failure)) if failure.namespace_is_going() => {
                actor.note(&entry.object, "void", "its namespace is being deleted");
                Back::AsBefore
            }
            // Somebody deleted it between two looks: that holds nothing up, as when it is gone at the first.
            Err(Broken::Gone(finding)) if matches!(entry.before, Before::Fields(_)) => {
                Back::Left(finding.message)
            }
            Err(Broken::Call(failure)) => {
                Back::Broken(format!("could not be undone: {}", sentence(Broken::Call(failure))))
            }
            Err(other) => Back::Broken(sentence(other)),
        };
        match back {
            Back::AsBefore => {}
            Back::Restored => lock(undone).restored += 1,
            Back::Going => {
                let mut undone = lock(undone);
                undone.restored += 1;
                undone.going += 1;
            }
            Back::Left(why) => {
                actor.note(&entry.object, "not put back", why.clone());
                lock(undone).left.push((entry.object.clone(), why));
            }
            Back::Broken(why) => {
                actor.note(&entry.object, "not put back", why.clone());
                lock(undone).left.push((entry.object.clone(), why.clone()));
                broken = Some(format!("{} {why}", entry.object));
            }
        }
    }
    Ok(broken)
}

async fn take_back(
    actor: &Actor,
    entries: &Entries,
    entry: &Entry,
    stays: Option<&str>,
) -> Result<Back, Broken> {
    match &entry.undo {
        Undo::None { .. } => return Ok(Back::AsBefore),
        Undo::Instead(moves) => return instead(actor, moves).await,
        Undo::Inverse => {}
    }
    match (&entry.action, &entry.before) {
        (Action::Create { .. }, _) => unmake(actor, entries, &entry.object, stays).await,
        (Action::Delete(removal), Before::Object(image)) => {
            restore(actor, &entry.object, image, removal, true).await
        }
        (Action::Recreate(removal), Before::Object(image)) => {
            restore(actor, &entry.object, image, removal, false).await
        }
        (_, Before::Fields(old)) => put_back(actor, entries, entry, old).await,
        _ => Ok(Back::AsBefore),
    }
}

async fn instead(actor: &Actor, moves: &[Move]) -> Result<Back, Broken> {
    if moves.is_empty() {
        return Ok(Back::AsBefore);
    }
    let mut trail = Trail::default();
    for step in moves {
        // What the plan saw is from before the move that is taken back.
        let step = Move { live: None, ..step.clone() };
        match actor.make(&step, &mut trail).await {
            Err(Broken::InTheWay(finding) | Broken::Gone(finding)) => return Ok(Back::Left(finding.message)),
            other => other?,
        }
    }
    Ok(Back::Restored)
}

/// Removes an object that the step made, if it is still as the step made it, and nothing says why it must stay.
async fn unmake(
    actor: &Actor,
    entries: &Entries,
    object: &ObjectRef,
    stays: Option<&str>,
) -> Result<Back, Broken> {
    for _ in 0..CONFLICTS {
        let Some(live) = actor.cluster.get(object).await? else { return Ok(Back::AsBefore) };
        if is_going(&live) {
            let going = uid(&live).to_owned();
            drop(live);
            return until_unmade(actor, object, &going).await;
        }
        if made_by(&live) != Some(actor.run()) {
            // It was there before us, or somebody has made another one since: not ours to remove.
            return Ok(Back::AsBefore);
        }
        let Some(made) = entries.bodies(object).map(Body::value).find(|body| holds(&live, body)) else {
            return Ok(Back::Left(
                "this step made it, and somebody has changed it since: it is left as it is".to_owned(),
            ));
        };
        if let Some(owner) = taken_over_by(&live, &made) {
            return Ok(Back::Left(format!(
                "this step made it, and since then its fields are {owner}'s too: it is left as it is"
            )));
        }
        if let Some(why) = stays {
            return Ok(Back::Left(format!("this step made it, and it stays, because {why}")));
        }
        let precondition = Precondition {
            uid: uid(&live).to_owned(),
            resource_version: Some(resource_version(&live).to_owned()),
        };
        // Foreground: when it is gone, so is what its controller made for it.
        let answer = actor.cluster.delete(object, &precondition, Propagation::Foreground, Mode::Real).await;
        // The answer is the whole object, and of thousands that are waited for none may be kept.
        match answer.map(drop) {
            Ok(()) => {
                drop(live);
                actor.unmade(object);
                let back = until_unmade(actor, object, &precondition.uid).await?;
                let rest =
                    if matches!(back, Back::Going) { ", what belongs to it is still going" } else { "" };
                actor.note(object, "removed", format!("this step had made it{rest}"));
                return Ok(back);
            }
            Err(failure) if failure.is_not_found(&object.name) => return Ok(Back::Restored),
            Err(failure) if failure.is_conflict() => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Err(Broken::Because("is changed all the time: it cannot be removed as it was read".to_owned()))
}

/// Who else owns a field that the step set when it made an object, as managedFields say: a chart that renders the object
/// too, for instance. What only its controller adds to it, and its status, are no such fields.
fn taken_over_by(live: &Value, made: &Value) -> Option<String> {
    let managers = live.pointer("/metadata/managedFields")?.as_array()?;
    let set: Vec<(&String, &Value)> = made
        .as_object()?
        .iter()
        .filter(|(field, _)| !["apiVersion", "kind", "metadata", "status"].contains(&field.as_str()))
        .collect();
    let owns_one = |entry: &&Value| {
        let owned = entry.get("fieldsV1");
        text(entry, "/manager") != Some(FIELD_MANAGER)
            && entry.get("subresource").is_none()
            && set.iter().any(|(field, value)| owned.is_some_and(|owned| is_owned(owned, field, value)))
    };
    managers.iter().find(owns_one).map(|entry| text(entry, "/manager").unwrap_or("somebody").to_owned())
}

/// Whether a set of fields has this one, or one within it that has a value.
fn is_owned(owned: &Value, field: &str, value: &Value) -> bool {
    match (owned.get(format!("f:{field}")), value) {
        (None, _) => false,
        (Some(within), Value::Object(fields)) if !fields.is_empty() => {
            fields.iter().any(|(field, value)| is_owned(within, field, value))
        }
        (Some(_), _) => true,
    }
}

/// How long an object is waited for that only the garbage collector holds. It notices a new API within 30 s; of thousands
/// of objects it takes away a few each second, and none comes back: whether the last one is gone is not worth the time that
/// other objects may need.
const COLLECTION: Duration = Duration::from_secs(30);

/// Waits until an object that was deleted in the foreground is gone, with all that was made for it.
async fn until_unmade(actor: &Actor, object: &ObjectRef, gone: &str) -> Result<Back, Broken> {
    match actor.until_gone(object, gone, COLLECTION).await {
        Err(Broken::Because(_)) => {}
        ended => return ended.map(|()| Back::Restored),
    }
    let live = actor.cluster.get(object).await?.filter(|live| uid(live) == gone);
    let Some(held) = live.as_ref().map(finalizers) else { return Ok(Back::Restored) };
    if held == "foregroundDeletion" {
        return Ok(Back::Going);
    }
    drop(live);
    actor.until_gone(object, gone, actor.time_left()).await.map(|()| Back::Restored)
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
        // It can't be rescued: only waited for, then made again. What holds it may be what the run that died had still to
        // take off.
        let removal = Removal { within: actor.time_left(), ..removal.clone() };
        actor.until_removed(object, uid(going), &removal).await?;
        live = None;
    }
    let untouched = live.as_ref().is_some_and(|live| uid(live) == image.uid);
    if untouched {
        return Ok(Back::AsBefore);
    }
    let is_another =
        |live: &Value| deleted && !actor.has_revived(object, live) && !is_as_before(live, image, removal);
    if let Some(other) = live.as_ref().filter(|live| is_another(live)) {
        return Ok(name_is_taken(other));
    }
    let restored = live.is_none();
    let mut trail = Trail::default();
    // A watch that is behind may still show the one that was there before, and that one was Ready.
    if let Some(live) = &live {
        trail.made(object, live);
    }
    if restored {
        let made = actor.revive(object, image, removal, actor.time_left()).await?;
        // Somebody may have been faster.
        if is_another(&made) {
            return Ok(name_is_taken(&made));
        }
        trail.made(object, &made);
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
        drop(live);
        actor.wait(object, &wait, &trail).await?;
    }
    actor.give_back(object, image).await?;
    let company = Box::pin(bring_along(actor, object, removal)).await?;
    if !company.left.is_empty() {
        let why = company.left.join("; ");
        return Ok(Back::Left(format!("is there again, and what belongs to it is not as before: {why}")));
    }
    Ok(if restored || company.made { Back::Restored } else { Back::AsBefore })
}

fn name_is_taken(other: &Value) -> Back {
    let since = text(other, "/metadata/creationTimestamp").unwrap_or("some time");
    Back::Broken(format!("cannot be restored: another one bears its name since {since}"))
}

/// What became of the companions of an object.
#[derive(Default)]
struct Company {
    /// One of them had to be made again.
    made: bool,
    /// What is not as before.
    left: Vec<String>,
}

/// How long a companion is waited for that its controller should make by itself. It does so before it says that the object
/// works, and that was waited for already.
const BY_ITSELF: Duration = Duration::from_secs(10);

/// Sees to it that what belongs to an object, which is another one now, is as it was before.
async fn bring_along(actor: &Actor, object: &ObjectRef, removal: &Removal) -> Result<Company, Broken> {
    let mut company = Company::default();
    for companion in &removal.companions {
        let back = match companion.scope.object() {
            Some(one) => bring_back(actor, companion, &one).await,
            None => until_as_before(actor, object, companion).await.map(|()| false),
        };
        match back {
            Ok(made) => company.made |= made,
            Err(Broken::Call(failure))
                if matches!(failure, Failure::Halted(_)) || failure.namespace_is_going() =>
            {
                return Err(Broken::Call(failure));
            }
            Err(broken) => company.left.push(sentence(broken)),
        }
    }
    Ok(company)
}

/// Waits until companions that are known by their labels are as before.
async fn until_as_before(actor: &Actor, object: &ObjectRef, companion: &Companion) -> Result<(), Broken> {
    let asked = companion.clone();
    let wait = Wait {
        what: format!("{} as before", companion.scope),
        scopes: vec![companion.scope.clone()],
        within: a_part_of_the_time(actor),
        check: Check::Code(Arc::new(move |view| asked.ask(&view.list(&asked.scope.kind)))),
    };
    actor.wait(object, &wait, &Trail::default()).await
}

/// Makes a companion again that was there and is gone. Returns whether it had to.
async fn bring_back(actor: &Actor, companion: &Companion, one: &ObjectRef) -> Result<bool, Broken> {
    let Some(image) = companion.image.as_ref().map(|image| PreImage::of(&image.value())) else {
        return Ok(false);
    };
    let there = |live: &Value| !is_going(live);
    let mut live = actor.cluster.get(one).await?;
    if !live.as_ref().is_some_and(there) {
        until_there(actor, one).await?;
        live = actor.cluster.get(one).await?;
    }
    let removal = Removal::within(a_part_of_the_time(actor));
    match live {
        Some(live) if there(&live) => {
            // One that its controller has made anew may lack what somebody had added to it.
            if uid(&live) == image.uid || is_as_before(&live, &image, &removal) {
                return Ok(false);
            }
            return Err(Broken::Because(format!("{one} was made anew, and not as it was")));
        }
        Some(going) => actor.until_gone(one, uid(&going), removal.within).await?,
        None => {}
    }
    actor.revive(one, &image, &removal, removal.within).await.map_err(|broken| match broken {
        Broken::Because(why) => Broken::Because(format!("{one} {why}")),
        other => other,
    })?;
    actor.note(one, "restored", "it was gone, and nobody made it again");
    actor.give_back(one, &image).await?;
    Ok(true)
}

/// Gives the controller of a companion the time to make it: whoever makes it in its place may be in its way.
async fn until_there(actor: &Actor, one: &ObjectRef) -> Result<(), Broken> {
    let seen = one.clone();
    let check = move |view: &View<'_>| match view.get(&seen) {
        Some(live) if !is_going(&live) => Progress::Done,
        Some(_) => Progress::Pending("is being deleted".to_owned()),
        None => Progress::Pending("does not exist".to_owned()),
    };
    let wait = Wait {
        what: format!("{one} there again"),
        scopes: vec![Scope::of(one)],
        within: BY_ITSELF.min(a_part_of_the_time(actor)),
        check: Check::Code(Arc::new(check)),
    };
    match actor.wait(one, &wait, &Trail::default()).await {
        Err(Broken::Because(_)) => Ok(()),
        ended => ended,
    }
}

/// What one wait for a companion may take: what stands before it in the chain, and in earlier phases, is put back after it.
fn a_part_of_the_time(actor: &Actor) -> Duration {
    actor.time_left() / 2
}

/// Whether an object of the name is what an earlier attempt of this undo created, or just as good.
#[must_use]
pub fn is_as_before(live: &Value, image: &PreImage, removal: &Removal) -> bool {
    let mut wanted = image.object.value();
    removal.not_on_create.iter().for_each(|field| field.set(&mut wanted, None));
    // Owners have new uids by now, and finalizers belong to controllers.
    if let Some(metadata) = wanted.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("ownerReferences");
        metadata.remove("finalizers");
    }
    holds(live, &wanted)
}

/// Puts old values back, where the fields still hold what the step wrote.
async fn put_back(actor: &Actor, entries: &Entries, entry: &Entry, old: &[Field]) -> Result<Back, Broken> {
    let Entry { object, action, .. } = entry;
    let wrote = action.fields();
    let old = &with_live_owners(actor, object, old).await?[..];
    for _ in 0..CONFLICTS {
        let Some(live) = actor.cluster.get(object).await?.filter(|live| !is_going(live)) else {
            if actor.namespace_is_gone(object).await? {
                actor.note(object, "void", "its namespace is being deleted");
                return Ok(Back::AsBefore);
            }
            return Ok(Back::Left(
                "was deleted by somebody else: its old fields cannot be put back".to_owned(),
            ));
        };
        let is = |fields: &[Field]| fields.iter().all(|field| field.is_in(&live));
        if is(old) {
            let live = actor.disown(object, live).await?;
            until_available(actor, object, action, &live).await?;
            return Ok(Back::AsBefore);
        }
        if entries.is_before(entry, &live) {
            return Ok(Back::AsBefore);
        }
        if entries.is_another(entry, &live) {
            return Ok(Back::Left(
                "is another one, which somebody has made since: it is left as it is".to_owned(),
            ));
        }
        if !is(&wrote) {
            return Ok(Back::Left(format!(
                "somebody has changed it since: {} is left as it is",
                old.iter().map(|field| field.path.to_string()).collect::<Vec<_>>().join(", ")
            )));
        }
        match actor.swap(object, action, old, &live, Mode::Real).await {
            Ok(after) => {
                let after = actor.disown(object, after).await?;
                actor.note(object, "put back", describe(old, &live));
                until_available(actor, object, action, &after).await?;
                return Ok(Back::Restored);
            }
            Err(failure) if failure.is_conflict() || failure.is_not_found(&object.name) => {}
            Err(failure) => return Err(failure.into()),
        }
    }
    Err(Broken::Because(
        "is changed all the time: its old fields cannot be put back as it was read".to_owned(),
    ))
}

/// Waits until a workload that was scaled back works as before: what is undone next may rely on it.
async fn until_available(
    actor: &Actor,
    object: &ObjectRef,
    action: &Action,
    live: &Value,
) -> Result<(), Broken> {
    let Action::Scale { available: Some(available), .. } = action else { return Ok(()) };
    let mut trail = Trail::default();
    trail.changed(object, live);
    let (watched, available) = (object.clone(), *available);
    let check = move |view: &View<'_>| {
        let live = view.get(&watched).unwrap_or_default();
        let number = |pointer: &str| live.pointer(pointer).and_then(Value::as_i64).unwrap_or_default();
        if number("/status/observedGeneration") < number("/metadata/generation") {
            return Progress::Pending("its controller has not seen the change yet".to_owned());
        }
        match number("/status/availableReplicas") {
            now if now >= available => Progress::Done,
            now => Progress::Pending(format!("{now} of {available} replicas are available")),
        }
    };
    let wait = Wait {
        what: format!("{object} available again as before"),
        scopes: vec![Scope::of(object)],
        within: actor.time_left(),
        check: Check::Code(Arc::new(check)),
    };
    actor.wait(object, &wait, &trail).await
}

/// Old values, with the owners of the object as they are now: one that was recreated has another uid, and a reference
/// to the old uid would have the object collected as garbage. An owner that is gone for good is left out.
async fn with_live_owners(actor: &Actor, object: &ObjectRef, old: &[Field]) -> Result<Vec<Field>, Broken> {
    let mut fields = old.to_vec();
    let references = FieldPath::dotted("metadata.ownerReferences");
    for field in fields.iter_mut().filter(|field| field.path.is_within(&references)) {
        field.value = match field.value.take() {
            Some(Value::Array(owners)) => {
                let mut kept = Vec::new();
                for owner in owners {
                    kept.extend(with_live_uid(actor, object, owner).await?);
                }
                if kept.is_empty() { None } else { Some(Value::Array(kept)) }
            }
            Some(owner) => with_live_uid(actor, object, owner).await?,
            None => None,
        };
    }
    Ok(fields)
}

async fn with_live_uid(actor: &Actor, object: &ObjectRef, mut owner: Value) -> Result<Option<Value>, Broken> {
    let Some(now) = actor.owner_uid(object, &owner).await? else {
        let (kind, name) = (text(&owner, "/kind"), text(&owner, "/name"));
        let who = format!("{}/{}", kind.unwrap_or_default(), name.unwrap_or_default());
        actor.note(object, "left without an owner", format!("{who} does not exist any more"));
        return Ok(None);
    };
    owner["uid"] = now.into();
    Ok(Some(owner))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        act::RUN_ANNOTATION,
        fake::Fake,
        journal::Ledger,
        object::kinds,
        plan::{Chain, Item, Test},
        watch::Everywhere,
    };

    fn config_map(name: &str, uid: &str, labels: &Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "ns", "uid": uid, "labels": labels}})
    }

    /// An API server with the object `a`, which was made anew, and with its companion `b`, where that is there.
    fn server(companion: Option<Value>) -> Fake {
        let companion = Mutex::new(companion);
        Fake::new(move |method, path| {
            let name = path.rsplit('/').next().unwrap_or_default();
            let missing = (404, json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}}));
            match (method, name) {
                ("GET", "a") => (200, config_map("a", "new", &json!({}))),
                ("GET", "b") => lock(&companion).clone().map_or(missing, |live| (200, live)),
                ("GET", "configmaps") => {
                    let items: Vec<Value> = lock(&companion).clone().into_iter().collect();
                    (200, json!({"metadata": {"resourceVersion": "1"}, "items": items}))
                }
                ("POST", "configmaps") => {
                    let made = config_map("b", "made", &json!({"team": "a"}));
                    (201, lock(&companion).insert(made).clone())
                }
                _ => missing,
            }
        })
    }

    /// Takes the recreation of `a` back, which had this companion.
    async fn taken_back(fake: &Fake, companion: Companion) -> Back {
        let cluster = Arc::new(fake.cluster(1));
        cluster.set_deadline(cluster.clock().now() + Duration::from_secs(2));
        let ledger = Ledger::load(&cluster, "home", "s").await.unwrap();
        let ledger = Arc::new(tokio::sync::Mutex::new(ledger));
        let actor = Actor::new(cluster, ledger, Arc::default(), "s/r".to_owned(), Everywhere::default());
        let image = PreImage::of(&config_map("a", "old", &json!({})));
        let removal = Removal::within(Duration::from_secs(1)).companions(vec![companion]);
        restore(&actor, &kinds::CONFIG_MAP.object("ns", "a"), &image, &removal, false).await.unwrap()
    }

    fn known() -> Companion {
        let object = kinds::CONFIG_MAP.object("ns", "b");
        let live = config_map("b", "old", &json!({"team": "a"}));
        Companion::of(&object, Some(&Item::new(object.clone(), Some(&live), None)))
    }

    fn posts(fake: &Fake) -> usize {
        fake.seen().iter().filter(|(method, _)| method == "POST").count()
    }

    #[test]
    fn what_somebody_else_applies_too_is_not_ours_any_more() {
        let made = json!({"kind": "C", "metadata": {"name": "a"}, "spec": {"source": "a", "deep": {"b": 1}}});
        let with = |manager: &str, fields: &Value| {
            let ours = json!({"manager": FIELD_MANAGER, "fieldsV1": {"f:spec": {"f:source": {}}}});
            let other = json!({"manager": manager, "fieldsV1": fields});
            taken_over_by(&json!({"metadata": {"managedFields": [ours, other]}}), &made)
        };
        let helm = |fields: Value| with("helm", &fields);
        assert_eq!(helm(json!({"f:spec": {"f:source": {}}})).as_deref(), Some("helm"));
        assert_eq!(helm(json!({"f:spec": {".": {}, "f:deep": {"f:b": {}}}})).as_deref(), Some("helm"));
        assert_eq!(helm(json!({"f:spec": {"f:other": {}, "f:deep": {"f:c": {}}}})), None);
        assert_eq!(helm(json!({"f:metadata": {"f:finalizers": {}}, "f:status": {}})), None);
        assert_eq!(taken_over_by(&json!({"metadata": {}}), &made), None);
    }

    #[tokio::test]
    async fn a_companion_that_nobody_makes_again_is_made_from_how_it_was() {
        let fake = server(None);
        assert!(matches!(taken_back(&fake, known()).await, Back::Restored));
        assert_eq!(posts(&fake), 1);
    }

    #[tokio::test]
    async fn a_companion_that_its_controller_has_made_again_stays_and_must_be_as_it_was() {
        let fake = server(Some(config_map("b", "made", &json!({"team": "a", "more": "b"}))));
        assert!(matches!(taken_back(&fake, known()).await, Back::AsBefore));
        let fake = server(Some(config_map("b", "made", &json!({}))));
        let Back::Left(why) = taken_back(&fake, known()).await else { panic!("its label is lost") };
        assert!(why.contains("ConfigMap/ns/b was made anew, and not as it was"), "{why}");
        // What somebody did to the one that stayed is not ours to judge.
        let fake = server(Some(config_map("b", "old", &json!({}))));
        assert!(matches!(taken_back(&fake, known()).await, Back::AsBefore));
        assert_eq!(posts(&fake), 0);
    }

    #[tokio::test]
    async fn companions_that_are_known_by_labels_must_be_as_many_and_work_as_before() {
        let scope = Scope::labelled(kinds::CONFIG_MAP, "ns", &[("team", "a")]);
        let link = |were| Companion::labelled(scope.clone(), were, 1);
        let there = || Some(config_map("b", "made", &json!({"team": "a"})));
        assert!(matches!(taken_back(&server(there()), link(1)).await, Back::AsBefore));
        assert!(matches!(taken_back(&server(None), link(0)).await, Back::AsBefore));
        let Back::Left(why) = taken_back(&server(None), link(1)).await else { panic!("it is gone") };
        assert!(why.contains("configmaps with team=a in namespace ns as before: 0 of 1 are there"), "{why}");
        let working = link(1).ready_when(Test::Condition("Ready".to_owned()));
        let Back::Left(why) = taken_back(&server(there()), working).await else { panic!("it does not work") };
        assert!(why.contains("ConfigMap/ns/b has no condition Ready yet"), "{why}");
    }

    /// An undo of two phases: the first has made `first`; the second has made `made` and set a label of `patched`, which has
    /// this value by now. The server refuses to set it back.
    async fn of_two_phases(label: &str) -> (Undone, Vec<String>) {
        let mark = json!({RUN_ANNOTATION: "s/r"});
        let made = |name: &str| {
            let mut object = config_map(name, name, &json!({}));
            object["metadata"]["annotations"] = mark.clone();
            object
        };
        let patched = |label: &str| config_map("patched", "patched", &json!({"a": label}));
        let mut there: HashMap<String, Value> =
            ["first", "made"].map(|name| (name.to_owned(), made(name))).into();
        there.insert("patched".to_owned(), patched(label));
        let there = Mutex::new(there);
        let fake = Fake::new(move |method, path| {
            let name = path.rsplit('/').next().unwrap_or_default();
            let missing = (404, json!({"kind": "Status", "reason": "NotFound", "details": {"name": name}}));
            let live = lock(&there).get(name).cloned();
            match (method, live) {
                ("PATCH", _) => {
                    (422, json!({"kind": "Status", "reason": "Invalid", "message": "not like that"}))
                }
                ("DELETE", Some(live)) => {
                    lock(&there).remove(name);
                    (200, live)
                }
                ("GET", Some(live)) => (200, live),
                _ => missing,
            }
        });
        let object = |name: &str| kinds::CONFIG_MAP.object("ns", name);
        let create = |name: &str| Move::create(object(name), &json!({"metadata": {"name": name}}), &[]);
        let item = Item::new(object("patched"), Some(&patched("old")), None);
        let field = Field { path: FieldPath::dotted("metadata.labels.a"), value: Some("new".into()) };
        let chains = [
            Chain::new(object("first"), vec![create("first")]),
            Chain::new(object("patched"), vec![create("made"), Move::patch(&item, vec![field])]),
        ];
        let entries = Arc::new(Entries::new(Entries::default().missing(chains.iter().enumerate())));
        let cluster = Arc::new(fake.cluster(1));
        cluster.set_deadline(cluster.clock().now() + Duration::from_secs(2));
        let ledger = Ledger::load(&cluster, "home", "s").await.unwrap();
        let ledger = Arc::new(tokio::sync::Mutex::new(ledger));
        let actor = Actor::new(cluster, ledger, entries.clone(), "s/r".to_owned(), Everywhere::default());
        let undone = undo(&actor, &entries, None).await.unwrap();
        let deleted = fake.seen().into_iter().filter(|(method, _)| method == "DELETE");
        (undone, deleted.map(|(_, path)| path.rsplit('/').next().unwrap_or_default().to_owned()).collect())
    }

    #[tokio::test]
    async fn what_something_stands_on_that_cannot_be_taken_back_stays() {
        let (undone, deleted) = of_two_phases("new").await;
        assert_eq!(deleted, [""; 0]);
        let left: Vec<String> = undone.left.iter().map(|(object, why)| format!("{object} {why}")).collect();
        let refused =
            "ConfigMap/ns/patched could not be undone: the API server refused the PATCH: 422 not like that";
        let first = format!("ConfigMap/ns/first this step made it, and it stays, because {refused}");
        assert_eq!(
            left,
            [first, format!("ConfigMap/ns/made not taken back, because {refused}"), refused.to_owned()]
        );
    }

    #[tokio::test]
    async fn what_somebody_has_changed_holds_nothing_up() {
        let (undone, deleted) = of_two_phases("somebody's").await;
        assert_eq!(deleted, ["made", "first"]);
        assert_eq!(undone.left.len(), 1, "{:?}", undone.left);
    }
}
