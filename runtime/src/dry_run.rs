//! Trying without doing: the server runs admission and validation and stores nothing.

use std::io::Write as _;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde::Serialize;
use serde_json::Value;

use crate::{
    act::{Actor, RUN_ANNOTATION, describe},
    args::Output,
    cluster::{Failure, Mode, Precondition},
    journal::{Entries, Entry},
    object::{Body, ObjectRef, is_going, resource_version, shown_time, uid},
    plan::{Action, Chain, Finding, Level, Move, Plan, Removal},
};

/// No step takes as long: a wait for longer ends with the step's own deadline.
const STEP_AT_MOST: std::time::Duration = std::time::Duration::from_secs(6 * 3600);

/// Objects that are looked at side by side; how many calls are in flight at once, the cluster decides.
const SIDE_BY_SIDE: usize = 32;

/// Proves that each object that will be taken away could be created again.
///
/// A create under its own name runs through admission first and must then be answered with "already exists": any
/// other refusal would also be the answer when it is really needed. And its owners must be there to be looked up.
pub async fn prove_restorable(actor: &Actor, entries: &[Entry]) -> Result<Vec<Finding>, Failure> {
    let removals = entries.iter().filter_map(|entry| match (&entry.action, entry.pre_image()) {
        (Action::Delete(removal) | Action::Recreate(removal), Some(image)) => Some((entry, removal, image)),
        _ => None,
    });
    stream::iter(removals)
        .map(|(entry, removal, image)| async move {
            let refusal = |why: String| {
                let message = format!(
                    "will not be deleted, since it could not be created again: {why}. Cure that, or leave it out \
                     with --exclude {}",
                    entry.chain
                );
                Some(Finding::refuse(entry.object.clone(), message))
            };
            let mut body = image.object.value();
            removal.not_on_create.iter().for_each(|field| field.set(&mut body, None));
            let owners = body.pointer("/metadata/ownerReferences").and_then(Value::as_array);
            for owner in owners.into_iter().flatten() {
                if let Some(why) = actor.owner_trouble(&entry.object, owner).await? {
                    return Ok(refusal(why));
                }
            }
            match actor.cluster.create(&entry.object, &body, Mode::DryRun).await {
                Err(failure) if failure.is_already_exists() => Ok(None),
                // A quota counts the object that is still there.
                Err(failure) if failure.is_quota() => {
                    Ok(Some(Finding::note(entry.object.clone(), format!("a quota is tight: {failure}"))))
                }
                // What goes with its namespace is neither migrated nor restored, and is no reason to refuse the others.
                Err(failure) if failure.namespace_is_going() => {
                    Ok(Some(Finding::skip(entry.chain.clone(), "its namespace is being deleted")))
                }
                // It was deleted by somebody else between our reading and now: nothing to restore either.
                Ok(_) => Ok(None),
                Err(Failure::Refused { answer, .. }) => Ok(refusal(answer.to_string())),
                Err(failure) => Err(failure),
            }
        })
        .buffer_unordered(SIDE_BY_SIDE)
        .try_filter_map(|finding| async move { Ok(finding) })
        .try_collect()
        .await
}

/// A plan with what the server said to each of its moves.
#[derive(Default, Serialize)]
pub struct Tried {
    phases: Vec<Vec<TriedChain>>,
    #[serde(rename = "pointOfNoReturn")]
    point_of_no_return: Vec<TriedChain>,
}

#[derive(Serialize)]
struct TriedChain {
    subject: String,
    moves: Vec<TriedMove>,
}

#[derive(Serialize)]
struct TriedMove {
    action: &'static str,
    object: String,
    /// What changes, line by line, each with `+`, `-` or `~` before it.
    diff: Vec<String>,
    /// What the server said.
    server: Server,
    #[serde(skip)]
    writes: bool,
}

#[derive(Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Server {
    Accepts,
    Refuses(String),
    NotTried(String),
}

impl Tried {
    fn moves(&self) -> impl Iterator<Item = &TriedMove> {
        self.phases.iter().flatten().chain(&self.point_of_no_return).flat_map(|chain| &chain.moves)
    }

    /// Moves that the server would refuse.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.moves().filter(|step| matches!(step.server, Server::Refuses(_))).count()
    }

    /// Moves that change the cluster.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.moves().filter(|step| step.writes).count()
    }
}

/// Sends every write of a plan as a dry run, chains side by side.
pub async fn try_out(actor: &Actor, plan: &Plan, entries: &Entries) -> Result<Tried, Failure> {
    let mut phases = Vec::new();
    for phase in plan.phases.iter().chain(std::iter::once(&plan.point_of_no_return)) {
        let tried = stream::iter(phase).map(|chain| try_chain(actor, chain, entries));
        phases.push(tried.buffered(SIDE_BY_SIDE).try_collect().await?);
    }
    let point_of_no_return = phases.pop().unwrap_or_default();
    Ok(Tried { phases, point_of_no_return })
}

async fn try_chain(actor: &Actor, chain: &Chain, entries: &Entries) -> Result<TriedChain, Failure> {
    let mut moves = Vec::new();
    let mut made: Vec<&ObjectRef> = Vec::new();
    for step in &chain.moves {
        let server = match depends_on(step, &made) {
            Some(why) => Server::NotTried(why),
            None => ask(actor, step, entries).await?,
        };
        if matches!(step.action, Action::Create { .. } | Action::Recreate(_)) {
            made.push(&step.object);
        }
        moves.push(TriedMove {
            action: step.verb(),
            object: step.object.to_string(),
            diff: diff(step),
            server,
            writes: step.writes(),
        });
    }
    Ok(TriedChain { subject: chain.subject.to_string(), moves })
}

/// Why a move cannot be tried: it needs something that an earlier move of its chain makes.
fn depends_on(step: &Move, made: &[&ObjectRef]) -> Option<String> {
    let owner = match &step.action {
        Action::Create { owners, .. } => owners.iter().find(|owner| made.contains(&&owner.object)),
        _ => None,
    };
    if let Some(owner) = owner {
        return Some(format!("its owner {} is not there yet", owner.object));
    }
    (step.writes() && !matches!(step.action, Action::Create { .. }) && made.contains(&&step.object))
        .then(|| format!("{} is not there yet", step.object))
}

async fn ask(actor: &Actor, step: &Move, entries: &Entries) -> Result<Server, Failure> {
    let live = step.live.as_ref().map(Body::value);
    let answer = match (&step.action, live.as_ref()) {
        (Action::Wait(_), _) => return Ok(Server::NotTried("a wait".to_owned())),
        (Action::Create { body, .. }, _) => {
            let mut full = body.value();
            full["metadata"]["annotations"][RUN_ANNOTATION] = "dry-run".into();
            actor.cluster.create(&step.object, &full, Mode::DryRun).await
        }
        (Action::Delete(removal) | Action::Recreate(removal), Some(live)) if !is_going(live) => {
            ask_of_newest(actor, &step.object, live, |live| ask_removal(actor, step, removal, live)).await
        }
        (Action::Delete(_) | Action::Recreate(_), _) => {
            let known = entries.find(step).is_some();
            let why =
                if known { "it is gone and will be made from the journal" } else { "it is going already" };
            return Ok(Server::NotTried(why.to_owned()));
        }
        (Action::Patch { .. } | Action::Scale { .. } | Action::Advance { .. }, Some(live)) => {
            let fields = &step.action.fields();
            ask_of_newest(actor, &step.object, live, |live| async move {
                actor.swap(&step.object, &step.action, fields, &live, Mode::DryRun).await
            })
            .await
        }
        (Action::Patch { .. } | Action::Scale { .. } | Action::Advance { .. }, None) => {
            return Ok(Server::NotTried("the object is not there".to_owned()));
        }
    };
    match answer {
        Ok(_) => Ok(Server::Accepts),
        // A real run would see these too, and would not fail for them.
        Err(failure) if failure.is_already_exists() => {
            Ok(Server::NotTried("one of that name is there: if it is going, it is waited for".to_owned()))
        }
        Err(failure) if failure.is_not_found(&step.object.name) => {
            Ok(Server::NotTried("somebody has just deleted it".to_owned()))
        }
        Err(failure) if failure.namespace_is_going() => {
            Ok(Server::NotTried("its namespace is being deleted".to_owned()))
        }
        Err(failure) if failure.is_conflict() => Ok(Server::NotTried(
            "it is changed all the time: it is read again before it is changed".to_owned(),
        )),
        Err(Failure::Refused { answer, .. }) => Ok(Server::Refuses(answer.to_string())),
        Err(failure) => Err(failure),
    }
}

/// Asks, and once more with the object as it is now if it has changed since the plan was made: a large plan takes its time
/// to be tried, and a status may change every second.
async fn ask_of_newest<F>(
    actor: &Actor,
    object: &ObjectRef,
    live: &Value,
    ask: impl Fn(Value) -> F,
) -> Result<Value, Failure>
where
    F: Future<Output = Result<Value, Failure>>,
{
    match ask(live.clone()).await {
        Err(failure) if failure.is_conflict() => match actor.cluster.get(object).await? {
            Some(newest) if uid(&newest) == uid(live) => ask(newest).await,
            _ => Err(failure),
        },
        answer => answer,
    }
}

async fn ask_removal(actor: &Actor, step: &Move, removal: &Removal, live: Value) -> Result<Value, Failure> {
    let precondition = Precondition {
        uid: uid(&live).to_owned(),
        resource_version: Some(resource_version(&live).to_owned()),
    };
    actor.cluster.delete(&step.object, &precondition, removal.propagation, Mode::DryRun).await
}

fn diff(step: &Move) -> Vec<String> {
    match &step.action {
        Action::Create { body, .. } => lines(&body.value(), '+'),
        Action::Delete(_) => vec![format!("- {}", step.object)],
        Action::Recreate(_) => vec![format!("- {}", step.object), format!("+ {} (as it is)", step.object)],
        Action::Patch { .. } | Action::Scale { .. } | Action::Advance { .. } => {
            let live = step.live.as_ref().map(Body::value).unwrap_or_default();
            step.action
                .fields()
                .iter()
                .map(|field| format!("~ {}", describe(std::slice::from_ref(field), &live)))
                .collect()
        }
        Action::Wait(wait) if wait.within > STEP_AT_MOST => {
            vec![format!("  until {} (at most to the deadline)", wait.what)]
        }
        Action::Wait(wait) => vec![format!("  until {} (at most {})", wait.what, shown_time(wait.within))],
    }
}

fn lines(body: &Value, sign: char) -> Vec<String> {
    let text = serde_json::to_string_pretty(body).unwrap_or_default();
    text.lines().map(|line| format!("{sign} {line}")).collect()
}

/// Prints a plan for people or programs.
pub fn print(tried: &Tried, findings: &[Finding], output: Output) {
    let text = match output {
        Output::Json => {
            let whole = serde_json::json!({"plan": tried, "findings": findings});
            serde_json::to_string_pretty(&whole).unwrap_or_default() + "\n"
        }
        Output::Text => shown(tried, findings),
    };
    // Whoever reads only the first lines closes the pipe: not an error of ours.
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn shown(tried: &Tried, findings: &[Finding]) -> String {
    let mut lines = Vec::new();
    for (index, phase) in tried.phases.iter().enumerate() {
        if !phase.is_empty() {
            lines.push(format!("Phase {}", index + 1));
        }
        for chain in phase {
            show_chain(chain, &mut lines);
        }
    }
    if !tried.point_of_no_return.is_empty() {
        lines.push("Past the point of no return".to_owned());
        for chain in &tried.point_of_no_return {
            show_chain(chain, &mut lines);
        }
    }
    for finding in findings {
        let level = match finding.level {
            Level::Refuse => "Refused",
            Level::Skip => "Skipped",
            Level::Note => "Note",
        };
        lines.push(format!("{level}: {finding}"));
    }
    lines.join("\n") + "\n"
}

fn show_chain(chain: &TriedChain, lines: &mut Vec<String>) {
    lines.push(format!("  {}", chain.subject));
    for step in &chain.moves {
        let server = match &step.server {
            Server::Accepts => "  (the server accepts it)".to_owned(),
            Server::Refuses(why) => format!("  (THE SERVER REFUSES IT: {why})"),
            Server::NotTried(_) if !step.writes => String::new(),
            Server::NotTried(why) => format!("  (not tried: {why})"),
        };
        lines.push(format!("    {} {}{server}", step.action, step.object));
        lines.extend(step.diff.iter().map(|line| format!("      {line}")));
    }
}
