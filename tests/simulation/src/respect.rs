//! How a story in which somebody else writes is judged: they keep what they wrote, it is named where it is in the way, and
//! nobody else is touched.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow, bail, ensure};
use harness::{
    Class, Exit, Outcome, Scenario, State,
    call::writes_that_matter,
    crash::{Lane, Place, Point},
    state::{Identity, Key, join_key},
};
use serde_json::Value;

use crate::{
    intervene::{Course, Intervention, Kind, Written, Wrote, wrote},
    runner::Simulated,
    world::{World, is_process},
};

/// Tries an intervention at a place, and judges what came of it.
pub async fn intervened<S: Scenario>(world: &World, lane: &Lane<S>, kind: Kind, point: &Point) -> Result<()> {
    lane.reset().await?;
    let start = lane.same_as(&lane.start, "from which the scenario starts").await?;
    let command = lane.scenario.command(&lane.worker)?;
    let simulated = Simulated::new(world);
    let (at, _) = point.place.arm();
    let written = Written::default();
    let mut faults = vec![kind.intervention.fault(world, lane, at, &written)];
    if kind.course != Course::Through {
        faults.extend(lane.undo_fault());
    }
    let run = simulated.run_with(&command, |_| faults).await?;
    ensure!(run.calls.iter().any(|call| point.place.is(call)), "the call was not made:\n{}", run.tail(30));
    let wrote = wrote(&written);
    let judged = match &wrote {
        Some(wrote) if !kind.intervention.leaves_nothing() => judge(world, lane, kind, wrote, &run).await,
        _ => undisturbed(lane, kind, &run, &start).await,
    };
    judged.map_err(|error| anyhow!("{error:#}\nthe run: {}; its log ends:\n{}", run.exit, run.tail(30)))?;
    let Some(wrote) = wrote else {
        world.set_idle();
        return Ok(());
    };
    // An object that is made again is one that the step has not migrated yet.
    if run.exit != Exit::Code(0) || kind.intervention == Intervention::Recreate {
        return Ok(());
    }
    let left_to_next = match kind.intervention {
        // It came after the last look.
        Intervention::Newcomer => !has_moved_since(&run, &point.place),
        // A step may know another name.
        Intervention::TakeName => true,
        _ => false,
    };
    if left_to_next {
        simulated.run_with(&command, |_| Vec::new()).await?.expect_exit(0)?;
    }
    let second = simulated.run_with(&command, |_| Vec::new()).await?;
    let mut writes = writes_that_matter(&second.calls);
    // What somebody deleted may have gone only since, and what depends on it: that is work for another run.
    if wrote.fields.is_none() && writes.iter().any(|call| call.path.starts_with(&wrote.path)) {
        writes.clear();
    }
    let writes: Vec<String> = writes.iter().map(ToString::to_string).collect();
    // It may refuse, where somebody took away what it cannot do without.
    let ends = second.exit == Exit::Code(0) || (wrote.fields.is_none() && second.exit == Exit::Code(3));
    ensure!(
        ends && writes.is_empty(),
        "a second run should find nothing to do: {}\n{}\n{}",
        second.exit,
        writes.join("\n"),
        second.tail(30)
    );
    Ok(())
}

/// Whether a run made a move at a place or after it: then it looked again after that.
fn has_moved_since(run: &Outcome, place: &Place) -> bool {
    run.calls.iter().skip_while(|call| !place.is(call)).any(|call| call.class == Class::Move)
}

/// Nothing was written, or nothing that stays.
async fn undisturbed<S: Scenario>(lane: &Lane<S>, kind: Kind, run: &Outcome, start: &State) -> Result<()> {
    if kind.course == Course::Through {
        ensure!(run.exit == Exit::Code(0), "nothing was changed, but it ended with {}", run.exit);
        return lane.done("in the end").await;
    }
    ensure!(run.exit == Exit::Code(4), "nothing was changed, but it ended with {}", run.exit);
    lane.restored(start, &run.calls).await?;
    lane.nothing_left_open().await
}

async fn judge<S: Scenario>(
    world: &World,
    lane: &Lane<S>,
    kind: Kind,
    wrote: &Wrote,
    run: &Outcome,
) -> Result<()> {
    let through = kind.course == Course::Through;
    // What is none of the step's business is in nobody's way.
    let in_the_way = kind.intervention != Intervention::Edit;
    ensure!(!through || in_the_way || run.exit == Exit::Code(0), "it ended with {}", run.exit);
    let end = match run.exit {
        Exit::Code(0 | 6) if through => End::Done,
        Exit::Code(3 | 4) => End::Restored,
        Exit::Code(5) => End::LeftToPeople,
        exit => bail!("it ended with {exit}"),
    };
    if matches!(run.exit, Exit::Code(0 | 3 | 4)) {
        lane.nothing_left_open().await?;
    }
    match (kind.intervention, end) {
        // It is migrated, now or by the next run: what is left to do is asked there.
        (Intervention::Newcomer, End::Done) => {
            ensure!(run.exit == Exit::Code(0), "something is left to do, and it ended with {}", run.exit);
            nobody_else_is_touched(lane, wrote, &[&lane.end]).await
        }
        // The step does without that object, and leaves to people what it would have been for.
        (Intervention::TakeName, End::Done) => {
            respected(world, lane, wrote, End::LeftToPeople, &run.stderr).await
        }
        _ => respected(world, lane, wrote, end, &run.stderr).await,
    }
}

/// How a story in which somebody else has written ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The step is done.
    Done,
    /// All else is as it was.
    Restored,
    /// A person must look.
    LeftToPeople,
}

/// Who wrote keeps what they wrote, it is named where it is in the way, and nobody else is touched.
pub async fn respected<S: Scenario>(
    world: &World,
    lane: &Lane<S>,
    wrote: &Wrote,
    end: End,
    logs: &str,
) -> Result<()> {
    kept(world, lane, wrote, end, logs).await?;
    let missing = end == End::Done
        && lane.end.objects.contains_key(&wrote.key)
        && lane.start.objects.contains_key(&wrote.key)
        && world.object(&wrote.path).is_none();
    if missing || end == End::LeftToPeople {
        ensure!(logs.contains(&wrote.key), "{} is in the way and is not named", wrote.key);
    }
    let expected = match end {
        End::Done => vec![&lane.end],
        End::Restored => vec![&lane.start],
        End::LeftToPeople => vec![&lane.start, &lane.end],
    };
    nobody_else_is_touched(lane, wrote, &expected).await
}

/// What was written is still there. A run that is done may have overwritten it where that is its work.
async fn kept<S: Scenario>(world: &World, lane: &Lane<S>, wrote: &Wrote, end: End, logs: &str) -> Result<()> {
    let now = world.object(&wrote.path);
    let done = (end == End::Done).then_some(&lane.end);
    let mut makers: Vec<String> = world
        .created()
        .into_iter()
        .skip(wrote.created_before)
        .filter(|(_, path)| *path == wrote.path)
        .map(|(who, _)| who)
        .collect();
    let Some(fields) = &wrote.fields else {
        let again = makers.iter().any(|who| is_process(who));
        ensure!(!again, "somebody deleted {}, and the step made it again", wrote.key);
        return Ok(());
    };
    // What a step has made it also takes back, and a later run makes another one.
    if wrote.to_ours && makers.iter().any(|who| is_process(who)) {
        return Ok(());
    }
    makers.retain(|who| !is_process(who));
    let is_made_anew = !makers.is_empty();
    if is_made_anew && end == End::LeftToPeople {
        // By its controller, which does not know what somebody has added to it. That a person is told.
        let mut errors = logs.lines().filter(|line| line.starts_with("ERROR"));
        ensure!(
            errors.any(|line| line.contains(&wrote.key)),
            "{} is not as it was, and no error says so",
            wrote.key
        );
        return Ok(());
    }
    // Without what differs between two runs.
    let mut state = lane.read().await?;
    let is = state.objects.remove(&wrote.key).unwrap_or_default();
    let wanted = done.and_then(|end| end.objects.get(&wrote.key));
    let was = lane.start.objects.get(&wrote.key);
    // What the step changes is its work, and overwritten only by what it is to become.
    let is_work = |path: &str| {
        let becomes = wanted.and_then(|wanted| wanted.pointer(path));
        let changes = was.and_then(|was| was.pointer(path)) != becomes || wrote.call.pointer(path).is_some();
        wanted.is_some() && (changes || is_made_anew) && becomes == is.pointer(path)
    };
    let Some(now) = now else {
        let gone = (done.is_some() && wanted.is_none()) || wrote.to_ours || is_garbage(fields, &state);
        ensure!(gone, "{} was changed by somebody, and is gone", wrote.key);
        return Ok(());
    };
    let overwritten: Vec<String> =
        lacking(fields, &now, "").into_iter().filter(|path| !is_work(path)).collect();
    ensure!(overwritten.is_empty(), "{}: somebody's {} is overwritten", wrote.key, overwritten.join(", "));
    Ok(())
}

/// Whether an object belongs only to others that are gone: then the garbage collector takes it away.
fn is_garbage(object: &Value, state: &State) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let namespace = text(&object["metadata"]["namespace"]);
    let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let key = |owner: &Value| join_key(&text(&owner["kind"]), &namespace, &text(&owner["name"]));
    !owners.is_empty() && owners.iter().all(|owner| !state.objects.contains_key(&key(owner)))
}

/// Nothing else is lost and nothing is doubled, besides what depends on the object.
async fn nobody_else_is_touched<S: Scenario>(
    lane: &Lane<S>,
    wrote: &Wrote,
    expected: &[&State],
) -> Result<()> {
    let now = lane.read().await?;
    let mut own = BTreeSet::from([wrote.key.clone()]);
    loop {
        let identities = [&lane.start, &lane.end, &now].into_iter().flat_map(|state| &state.identities);
        // What it owns, and what is in it, where it is a Namespace.
        let within = |identity: &Identity| {
            identity.namespace.as_ref().is_some_and(|name| own.contains(&join_key("Namespace", "", name)))
        };
        let owned = |identity: &Identity| identity.owners.iter().any(|owner| own.contains(owner));
        // What a step makes for an object bears its name, or one that begins with it.
        let named = |identity: &Identity| wrote.is_new && identity.name.starts_with(&wrote.name);
        let more: Vec<Key> = identities
            .filter(|(key, _)| !own.contains(*key))
            .filter(|(_, identity)| owned(identity) || within(identity) || named(identity))
            .map(|(key, _)| key.clone())
            .collect();
        if more.is_empty() {
            break;
        }
        own.extend(more);
    }
    let is_there = |state: &State, key: &Key| state.objects.contains_key(key);
    let others = expected.iter().flat_map(|state| state.objects.keys()).filter(|key| !own.contains(*key));
    let lost: BTreeSet<&str> = others
        .filter(|key| expected.iter().all(|state| is_there(state, key)) && !is_there(&now, key))
        .map(String::as_str)
        .collect();
    let doubled: Vec<&str> = now
        .objects
        .keys()
        .filter(|key| !own.contains(*key) && !expected.iter().any(|state| is_there(state, key)))
        .map(String::as_str)
        .collect();
    ensure!(lost.is_empty(), "lost: {}", lost.into_iter().collect::<Vec<_>>().join(", "));
    ensure!(doubled.is_empty(), "should not be there: {}", doubled.join(", "));
    let [expected] = expected else { return Ok(()) };
    let without_own = |state: &State| {
        let mut state = state.clone();
        state.objects.retain(|key, _| !own.contains(key));
        // What is gone may be what others need to work.
        if wrote.fields.is_none() {
            let objects = state.objects.values_mut().filter_map(Value::as_object_mut);
            objects.for_each(|object| drop(object.remove("status")));
        }
        state
    };
    let differs = without_own(expected).diff(&without_own(&now));
    ensure!(differs.is_empty(), "nobody else's objects should differ:\n{differs}");
    Ok(())
}

/// The places where an object does not have what it should; null stands for nothing.
fn lacking(should: &Value, is: &Value, path: &str) -> Vec<String> {
    match should {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| {
                let pointer = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
                lacking(value, is.get(name).unwrap_or(&Value::Null), &pointer)
            })
            .collect(),
        value if value == is => Vec::new(),
        _ => vec![path.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_lacking_is_told_by_path_and_null_stands_for_nothing() {
        let should =
            json!({"metadata": {"annotations": {"a/b": "1", "gone": null}}, "spec": {"replicas": 7}});
        let is = json!({"metadata": {"annotations": {"a/b": "2"}}, "spec": {"replicas": 7, "more": 1}});
        assert_eq!(lacking(&should, &is, ""), ["/metadata/annotations/a~1b"]);
        assert_eq!(is.pointer("/metadata/annotations/a~1b"), Some(&json!("2")));
    }
}
