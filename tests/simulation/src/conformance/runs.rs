//! Whether whole runs go alike on both servers: the same calls, and the same answers to them.
//!
//! Of each scenario three stories are told on either side: a run that nothing disturbs, its `belay restore`, and a run that
//! has to undo what it did. Compared is what every run surely asks for ([`compared`] says what that leaves out), and in
//! whichever order: what two chains do side by side comes in any.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::Path,
    sync::{Arc, LazyLock},
};

use anyhow::{Context, Result, ensure};
use harness::{
    Api, Call, Class, Exit, Scenario, State, StepCommand, Upstream, Verb, Worker,
    call::Fate,
    crash::{Lane, is_conditional},
};
use regex::Regex;
use serde_json::{Value, json};

use super::{
    normal::Normaliser,
    pattern::differences,
    shape::{Shape, covers},
};

/// What a scenario's runs did on one of the servers.
pub struct Told {
    /// What was there before an undisturbed run, at rest.
    start: State,
    /// What was there after it, at rest.
    end: State,
    stories: Vec<Story>,
}

/// A run.
struct Story {
    /// What it is about.
    name: &'static str,
    exit: Exit,
    calls: Vec<Call>,
    /// From here on it undoes.
    turned: usize,
}

/// Makes the runs of a scenario on an API server that nobody else uses.
pub async fn tell<S: Scenario>(scenario: Arc<S>, worker: Worker) -> Result<Told> {
    let lane = Lane::open(scenario, worker, None).await?;
    let (start, end) = (lane.start.clone(), lane.end.clone());
    let mut stories =
        vec![Story { name: "undisturbed", exit: Exit::Code(0), calls: lane.calls.clone(), turned: 0 }];
    // A restore is neither taken back nor undone.
    let Some(command) = restore(&lane)? else { return Ok(Told { start, end, stories }) };
    let run = lane.run_impatiently(command, Vec::new()).await.context("a restore")?;
    stories.push(Story { name: "restore", exit: run.exit, calls: run.calls, turned: 0 });
    if let Some(fault) = lane.undo_fault() {
        lane.reset().await?;
        let run = lane.run_impatiently(lane.scenario.command(&lane.worker)?, vec![fault]).await?;
        run.expect_exit(4).context("a run that must undo")?;
        let failed = run.struck.first().context("nothing failed, and it was undone")?.named();
        let turned = run.calls.iter().position(|call| call.named() == failed).map_or(0, |at| at + 1);
        stories.push(Story { name: "undo", exit: run.exit, calls: run.calls, turned });
    }
    Ok(Told { start, end, stories })
}

/// Takes back what the scenario's step has done; none if that is what the scenario is about.
fn restore<S: Scenario>(lane: &Lane<S>) -> Result<Option<StepCommand>> {
    let StepCommand { program, args, .. } = lane.scenario.command(&lane.worker)?;
    let step = args.first().context("a command names its step")?;
    let home = lane.scenario.home(&lane.worker);
    let words = ["restore", "--step", step, "--home", &home, "--deadline", "60"];
    Ok((step != "restore").then(|| StepCommand::new(program, &words)))
}

/// Why a call is left out of the comparison.
const RENEWS: &str = "when the lock is renewed depends on the clock";
const CONDITIONAL: &str = "it is made again where somebody else was faster, or until something is gone";
const GOES: &str = "how often one looks at what goes depends on when it is gone";
const WATCHES: &str = "whether a wait needs a watch, and how many, depends on who is faster";

/// Why a call is not one that every run makes.
fn left_out(story: &Story, at: usize) -> Option<&'static str> {
    let call = &story.calls[at];
    let from = if at < story.turned { 0 } else { story.turned };
    if call.renews {
        Some(RENEWS)
    } else if call.class == Class::Watch || call.begins_watch() {
        Some(WATCHES)
    } else if call.verb == Verb::Get
        && is_deleted(call, &story.calls[..at], at >= story.turned && story.turned > 0)
    {
        Some(GOES)
    } else if is_conditional(call, &story.calls[from..at]) {
        Some(CONDITIONAL)
    } else {
        None
    }
}

/// Whether the run has deleted the object, and not made it again since; in an undo also if it has. How far the other chains
/// had come when one failed, and so who made it again, is chance.
fn is_deleted(call: &Call, before: &[Call], in_undo: bool) -> bool {
    let there_or_not = |other: &&Call| {
        matches!(other.verb, Verb::Create | Verb::Delete) && other.is_write() && other.succeeded()
    };
    let mut all = before.iter().rev().filter(there_or_not).filter(|other| other.same_object(call));
    let deletes = |other: &Call| other.verb == Verb::Delete;
    if in_undo { all.any(deletes) } else { all.next().is_some_and(deletes) }
}

/// The calls that every run makes, by what they ask for. Of one that is made again after a conflict the last counts.
fn sure(story: &Story) -> BTreeMap<String, Vec<&Call>> {
    let mut sure: BTreeMap<String, Vec<&Call>> = BTreeMap::new();
    for (at, call) in story.calls.iter().enumerate() {
        let left_out = left_out(story, at);
        let made = sure.entry(call.what()).or_default();
        match (left_out, made.last_mut()) {
            (None, _) => made.push(call),
            (Some(CONDITIONAL), Some(before)) if is_conflict(before) && call.is_write() => *before = call,
            _ => {}
        }
    }
    sure
}

/// Whether somebody else was faster.
fn is_conflict(call: &Call) -> bool {
    matches!(call.status, Some(409 | 422))
}

/// How many of these calls, which all ask for the same, come before one that reads of an object that it goes, or is gone:
/// somebody else deletes it.
fn stays(calls: &[&Call]) -> usize {
    let goes = |call: &&Call| {
        call.status == Some(404)
            || answer(call).is_some_and(|object| object.pointer("/metadata/deletionTimestamp").is_some())
    };
    // What the first read finds gone was never there.
    let first = calls.iter().skip(1).position(|call| call.verb == Verb::Get && goes(call));
    first.map_or(calls.len(), |at| at + 1)
}

/// What came of a comparison.
#[derive(Default)]
pub struct Compared {
    /// How many calls were compared.
    calls: usize,
    /// How many of the real ones were left out, by reason.
    left_out: BTreeMap<&'static str, usize>,
    /// What differs.
    pub differences: Vec<String>,
}

/// Compares the states at rest, and what was asked for and answered on the way.
#[must_use]
pub fn compared(real: &Told, simulated: &Told) -> Compared {
    let mut compared = Compared::default();
    for (when, real, simulated) in
        [("before", &real.start, &simulated.start), ("after", &real.end, &simulated.end)]
    {
        let lines = real.diff(simulated).0.into_iter();
        compared
            .differences
            .extend(lines.map(|line| format!("{when} an undisturbed run, simulated: {line}")));
    }
    let names = |told: &Told| told.stories.iter().map(|story| story.name).collect::<Vec<_>>();
    if names(real) != names(simulated) {
        let line = format!("real runs: {:?}, simulated runs: {:?}", names(real), names(simulated));
        compared.differences.push(line);
    }
    for (real, simulated) in real.stories.iter().zip(&simulated.stories) {
        compared.story(real, simulated);
    }
    compared
}

impl fmt::Display for Compared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} calls compared", self.calls)?;
        self.left_out.iter().try_for_each(|(why, count)| write!(out, "; {count} left out: {why}"))
    }
}

impl Compared {
    fn differ(&mut self, story: &Story, what: impl fmt::Display) {
        self.differences.push(format!("{}: {what}", story.name));
    }

    fn story(&mut self, real: &Story, simulated: &Story) {
        if real.exit != simulated.exit {
            self.differ(real, format!("real: {}, simulated: {}", real.exit, simulated.exit));
        }
        for why in (0..real.calls.len()).filter_map(|at| left_out(real, at)) {
            *self.left_out.entry(why).or_default() += 1;
        }
        let (mut of_real, mut of_simulated) = (sure(real), sure(simulated));
        for (what, calls) in &mut of_real {
            let Some(others) = of_simulated.get_mut(what) else { continue };
            let stays = stays(calls).min(stays(others));
            *self.left_out.entry(GOES).or_default() += calls.len().saturating_sub(stays);
            calls.truncate(stays);
            others.truncate(stays);
        }
        let all: BTreeSet<&String> = of_real.keys().chain(of_simulated.keys()).collect();
        for what in all {
            let count = |calls: &BTreeMap<String, Vec<&Call>>| calls.get(what).map_or(0, Vec::len);
            let (one, other) = (count(&of_real), count(&of_simulated));
            if one != other {
                self.differ(real, format!("{what}: real {one} times, simulated {other} times"));
            }
        }
        // In the order of one side, so that on both the same uid is the first that is seen.
        let mut normalisers = (Normaliser::new(NOWHERE), Normaliser::new(NOWHERE));
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (at, call) in simulated.calls.iter().enumerate() {
            if left_out(simulated, at).is_some() {
                continue;
            }
            let what = call.what();
            let nth = seen.entry(what.clone()).or_default();
            let pair = (nth_of(&of_real, &what, *nth), nth_of(&of_simulated, &what, *nth));
            *nth += 1;
            let (Some(one), Some(other)) = pair else { continue };
            self.calls += 1;
            // A real server still has the namespaces of other scenarios.
            let known = names(other);
            let (one, other) =
                (normal(one, &known, &mut normalisers.0), normal(other, &known, &mut normalisers.1));
            for line in differences(&one, &other) {
                self.differ(real, format!("{}: {line}", call.named()));
            }
        }
    }
}

fn nth_of<'a>(calls: &BTreeMap<String, Vec<&'a Call>>, what: &str, nth: usize) -> Option<&'a Call> {
    calls.get(what)?.get(nth).copied()
}

/// No namespace: its name is the same on both sides.
const NOWHERE: &str = "\0";

/// Runs' names, times within sentences, and which of an object's managers one is: they stand in the order of the seconds
/// in which they wrote.
static OF_A_RUN: LazyLock<Regex> = LazyLock::new(|| {
    let (run, time) = (r"\d{14}-[0-9a-f]{5}", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ");
    Regex::new(&format!(r"{run}|{time}|\bmanagedFields/\d+")).expect("an expression")
});

/// What was asked for, and what was answered, without what differs from run to run.
fn normal(call: &Call, namespaces: &BTreeSet<String>, normaliser: &mut Normaliser) -> Value {
    let mut answer = answer(call);
    if call.target.resource == "namespaces"
        && let Some(Value::Array(items)) = answer.as_mut().and_then(|answer| answer.get_mut("items"))
    {
        items.retain(|item| namespaces.contains(name(item)));
    }
    let mut quiet = |mut body: Value| {
        quieten(&mut body, call);
        normaliser.normal(&body)
    };
    let (asked, mut answer) = (call.json().map(&mut quiet), answer.map(&mut quiet));
    if call.path == "/version" {
        // Builds differ.
        answer = answer.map(|answer| json!([answer["major"], answer["minor"]]));
    }
    json!({"type": call.content_type, "asked": asked, "status": call.status, "answer": answer})
}

fn answer(call: &Call) -> Option<Value> {
    serde_json::from_slice(call.answer.as_ref()?).ok()
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

/// The names of the objects in a list.
fn names(list: &Call) -> BTreeSet<String> {
    let list = answer(list).unwrap_or_default();
    let items = list["items"].as_array().into_iter().flatten();
    items.map(|item| name(item).to_owned()).collect()
}

/// Takes out what the two sides cannot have in common, or what comes when it comes.
fn quieten(value: &mut Value, call: &Call) {
    match value {
        Value::Object(fields) => {
            // Controllers write it, each at its own pace. States at rest are compared besides.
            fields.retain(|key, value| match key.as_str() {
                "deployment.kubernetes.io/revision" => false,
                "status" => !value.is_object(),
                // Namespaces outlive a scenario, with the marks of all who wrote them.
                "managedFields" => call.target.resource != "namespaces",
                _ => true,
            });
            if fields.get("path").is_some_and(|path| path == "/metadata/resourceVersion") {
                fields.insert("value".to_owned(), "<version>".into());
            }
            for (key, value) in fields {
                match (key.as_str(), call.class) {
                    // Within a case of the table they are counted: here others write meanwhile, in one go or in two.
                    ("resourceVersion" | "generation", _) => *value = "<version>".into(),
                    ("holderIdentity", _) if *value != "" => *value = "<holder>".into(),
                    ("ca.crt", _) => *value = "<certificate>".into(),
                    // Packed, with times and names of runs in it; and sentences with seconds, numbers of calls, and how much
                    // was taken back.
                    ("head" | "entries", Class::Journal)
                    | ("outcomes" | "lines" | "done" | "report" | "summary" | "history", Class::Report)
                    | ("note", Class::Event) => {
                        *value = "<of a run>".into();
                    }
                    ("managedFields", _) => {
                        if let Some(entries) = value.as_array_mut() {
                            entries.retain(|entry| {
                                entry["manager"] != "kube-controller-manager"
                                    && entry["subresource"] != "status"
                            });
                        }
                        quieten(value, call);
                    }
                    _ => quieten(value, call),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| quieten(one, call)),
        Value::String(text) => {
            if let Cow::Owned(quiet) = OF_A_RUN.replace_all(text, "<of a run>") {
                *text = quiet;
            }
        }
        _ => {}
    }
}

/// Makes them on the real server of a kubeconfig. The conformance table must have a row for every sort of call that a step
/// makes there too.
pub fn tell_on_real<S: Scenario>(kubeconfig: &Path, scenario: Arc<S>) -> Result<Told> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let upstream = Upstream::from_kubeconfig(kubeconfig).await?;
        let worker = Worker { server: 0, api: Api::new(upstream.client()), runner: Arc::new(upstream) };
        let told = tell(scenario, worker).await?;
        let calls = told.stories.iter().flat_map(|story| &story.calls);
        let shapes: BTreeSet<Shape> = calls.filter_map(shape).collect();
        let uncovered: Vec<String> =
            shapes.iter().filter(|shape| !covers(shape)).map(ToString::to_string).collect();
        ensure!(uncovered.is_empty(), "the conformance table has no row for:\n{}", uncovered.join("\n"));
        Ok(told)
    })
}

/// The sort of a call; none if the server did not answer it.
fn shape(call: &Call) -> Option<Shape> {
    let status = call.status.filter(|_| call.fate == Fate::Answered)?;
    Some(Shape::of(&call.method, &call.path, &call.query, &call.content_type, status))
}
