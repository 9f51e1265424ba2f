//! What a person sees afterwards: the verdict, the report that outlives Job and pod, the Event, the exit code.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    io::Write as _,
};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    act::Outcome,
    cluster::{Cluster, Failure, Mode},
    object::{ObjectRef, kinds, resource_version, text},
    plan::{Finding, Level},
};

/// A verdict may be as long as an Event's note.
const VERDICT_BYTES: usize = 1000;

/// Of a verdict, what is left for its reasons however long its command is.
const REASONS_AT_LEAST: usize = 200;

/// Verdicts of earlier runs that a report keeps.
const HISTORY: usize = 10;

/// Findings that a report shows; all of them are beside it, packed.
const FINDINGS: usize = 200;

/// Lines of the step's own that a report shows; all of them are beside it, packed.
const LINES: usize = 200;

/// The report ConfigMap of a step.
#[must_use]
pub fn name(step: &str) -> String {
    format!("belay-report-{step}")
}

/// How a run ended. The discriminant is the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Result {
    /// Done.
    Done,
    /// There was nothing to do.
    NothingToDo,
    /// Bad usage or configuration.
    Usage,
    /// Refused, nothing was written.
    Refused,
    /// Failed, and all is as it was.
    Restored,
    /// Failed, and a person must look.
    NotRestored,
    /// Past the point of no return, unfinished.
    Unfinished,
    /// Not now: somebody else is at work.
    NotNow,
    /// Stopped without a verdict: lock lost, or no rights any more.
    Stopped,
    /// Told to stop; the next run goes on.
    Terminated,
    /// A person took a run back.
    TakenBack,
    /// A person has looked at what could not be put back, and closed the journal.
    Accepted,
}

impl Result {
    /// The exit code, as `docs/exit-codes.md` lists them.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Done | Self::NothingToDo | Self::TakenBack | Self::Accepted => 0,
            Self::Stopped => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Restored => 4,
            Self::NotRestored => 5,
            Self::Unfinished => 6,
            Self::NotNow => 75,
            Self::Terminated => 143,
        }
    }

    /// One word for tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NothingToDo => "nothing to do",
            Self::Usage => "bad usage",
            Self::Refused => "refused",
            Self::Restored => "failed, restored",
            Self::NotRestored => "failed, NOT RESTORED",
            Self::Unfinished => "unfinished",
            Self::NotNow => "not now",
            Self::Stopped => "stopped",
            Self::Terminated => "told to stop",
            Self::TakenBack => "restored by hand",
            Self::Accepted => "accepted",
        }
    }
}

/// A report.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The step.
    pub step: String,
    /// Its family.
    pub family: String,
    /// The Helm release.
    pub release: String,
    /// The release's namespace.
    pub namespace: String,
    /// The run's id.
    pub run: String,
    /// How it ended.
    pub result: Result,
    /// One sentence.
    pub verdict: String,
    /// When it began.
    pub started: String,
    /// When it ended.
    pub finished: String,
    /// How long it took.
    pub seconds: f64,
    /// How many calls it made to the API server.
    pub calls: u64,
    /// What was done, and to how many objects.
    pub counts: BTreeMap<String, usize>,
    /// What a person must know.
    pub findings: Vec<Finding>,
    /// What the step says at its end, line by line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Versions: of belay and of the cluster.
    pub versions: BTreeMap<String, String>,
    /// The command that runs the step alone once more; empty where none is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub rerun: String,
}

/// The versions that a report names: of belay, and of the cluster if it tells.
pub async fn versions(cluster: &Cluster) -> BTreeMap<String, String> {
    let mut versions = BTreeMap::from([("belay".to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
    versions.extend(cluster.server_version().await.map(|version| ("cluster".to_owned(), version)));
    versions
}

impl Report {
    /// The report for people. Its first line is the verdict.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = format!("{}\n\n", self.verdict);
        // Writing to a String cannot fail.
        let mut line = |label: &str, value: &str| {
            let _ = writeln!(text, "{label:<10}{value}");
        };
        line("step", &format!("{} (family {})", self.step, self.family));
        if !self.release.is_empty() {
            line("release", &format!("{} in namespace {}", self.release, self.namespace));
        }
        line("run", &self.run);
        line("result", &format!("{} (exit code {})", self.result.word(), self.result.exit_code()));
        line(
            "time",
            &format!("{} to {}, {:.1} s, {} calls", self.started, self.finished, self.seconds, self.calls),
        );
        let versions: Vec<String> = self.versions.iter().map(|(what, is)| format!("{what} {is}")).collect();
        line("versions", &versions.join(", "));
        for (what, count) in &self.counts {
            line("objects", &format!("{count} {what}"));
        }
        for finding in &self.findings {
            let level = match finding.level {
                Level::Refuse => "refused",
                Level::Skip => "skipped",
                Level::Note => "note",
            };
            line(level, &finding.to_string());
        }
        if !self.lines.is_empty() {
            let _ = write!(text, "\n{}\n", self.lines.join("\n"));
        }
        text
    }
}

/// Counts what was done, for the verdict.
#[must_use]
pub fn count(outcomes: &[Outcome]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for outcome in outcomes {
        *counts.entry(outcome.what.clone()).or_insert(0) += 1;
    }
    counts
}

/// Counts as words: "3 created, 2 were there already".
#[must_use]
pub fn counted(counts: &BTreeMap<String, usize>) -> String {
    counts.iter().map(|(what, count)| format!("{count} {what}")).collect::<Vec<_>>().join(", ")
}

/// The command that runs a step alone once more, from the CronJob of which the chart has told the name; empty where it has
/// told none. A Job's name must be new, and the end of a run's id is.
pub(crate) fn rerun(cron_job: &str, namespace: &str, run: &str) -> String {
    if cron_job.is_empty() {
        return String::new();
    }
    let new = run.rsplit('-').next().unwrap_or(run);
    format!("kubectl create job --namespace {namespace} --from=cronjob/{cron_job} again-{new}")
}

/// A verdict that ends with the command that runs the step again, where that is what a person wants next. Both together must
/// not be too long: the reasons are cut, not the command.
pub(crate) fn with_rerun(step: &str, result: Result, verdict: &str, rerun: &str) -> String {
    let next = match result {
        _ if rerun.is_empty() => return verdict.to_owned(),
        Result::Refused | Result::Restored => "Cure the cause, then upgrade again, or run this step alone",
        // These say already that the step is to be run again.
        Result::Unfinished | Result::Stopped => "To run it alone",
        _ => return verdict.to_owned(),
    };
    let next = format!(" {next}: {rerun}");
    let room = VERDICT_BYTES.saturating_sub(format!("{step}: .{next}").len());
    let verdict = cut_to(verdict, room.max(REASONS_AT_LEAST));
    let period = if verdict.ends_with('.') { "" } else { "." };
    format!("{verdict}{period}{next}")
}

/// Cuts a verdict to the length that an Event takes, at a character's edge.
#[must_use]
pub fn cut(verdict: &str) -> String {
    cut_to(verdict, VERDICT_BYTES)
}

/// Cuts a text to one line of so many bytes at the most, at a character's edge.
pub(crate) fn cut_to(text: &str, bytes: usize) -> String {
    let one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if one_line.len() <= bytes {
        return one_line;
    }
    let mut end = bytes - 4;
    while !one_line.is_char_boundary(end) {
        end -= 1;
    }
    format!("{} ...", &one_line[..end])
}

/// What a report ConfigMap holds.
pub struct Stored {
    /// The newest report.
    pub report: Report,
    /// Earlier verdicts, newest first.
    pub history: Vec<String>,
}

/// Reads the report of a step.
pub async fn read(cluster: &Cluster, home: &str, step: &str) -> std::result::Result<Option<Value>, Failure> {
    cluster.get(&kinds::CONFIG_MAP.object(home, name(step))).await
}

/// The report in a ConfigMap, if it is one.
#[must_use]
pub fn parse(config_map: &Value) -> Option<Stored> {
    let report = serde_json::from_str(text(config_map, "/data/report")?).ok()?;
    let history = text(config_map, "/data/history").unwrap_or_default().lines().map(str::to_owned).collect();
    Some(Stored { report, history })
}

/// The report in a ConfigMap with all its findings and lines, of which the report itself may show only the first.
#[must_use]
pub fn whole(config_map: &Value) -> Option<Report> {
    let mut report = parse(config_map)?.report;
    if let Some(findings) = unpacked(config_map, "findings") {
        report.findings = findings.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    }
    if let Some(lines) = unpacked(config_map, "lines") {
        report.lines = lines.lines().map(str::to_owned).collect();
    }
    Some(report)
}

/// The outcomes of the last run that touched anything.
#[must_use]
pub fn outcomes(config_map: &Value) -> Vec<Outcome> {
    let lines = unpacked(config_map, "outcomes").unwrap_or_default();
    lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// For which subjects the step was done, and when.
#[must_use]
pub fn done_record(config_map: &Value) -> HashMap<String, String> {
    unpacked(config_map, "done").and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

fn unpacked(config_map: &Value, key: &str) -> Option<String> {
    let bytes: ByteString =
        serde_json::from_value(config_map.pointer(&format!("/binaryData/{key}"))?.clone()).ok()?;
    std::io::read_to_string(GzDecoder::new(bytes.0.as_slice())).ok()
}

fn packed(text: &str) -> Value {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    // Writing into memory cannot fail.
    let bytes = packer.write_all(text.as_bytes()).and_then(|()| packer.finish()).unwrap_or_default();
    json!(ByteString(bytes))
}

/// Writes a report. `done` are the subjects to add to the done record.
pub async fn write(
    cluster: &Cluster,
    home: &str,
    report: &Report,
    outcomes: &[Outcome],
    done: &[ObjectRef],
) -> std::result::Result<(), Failure> {
    let object = kinds::CONFIG_MAP.object(home, name(&report.step));
    store(cluster, &object, |found| Some(config_map(&object, report, outcomes, done, found))).await
}

/// Takes subjects off the done record of a step: what was undone is not done.
pub async fn forget(
    cluster: &Cluster,
    home: &str,
    step: &str,
    undone: &[ObjectRef],
) -> std::result::Result<(), Failure> {
    let object = kinds::CONFIG_MAP.object(home, name(step));
    store(cluster, &object, |found| without(found?, undone)).await
}

/// A report ConfigMap without these subjects on its done record; none if they are not on it.
fn without(found: &Value, undone: &[ObjectRef]) -> Option<Value> {
    let mut record = done_record(found);
    let before = record.len();
    for subject in undone {
        record.remove(&subject.to_string());
    }
    (record.len() < before).then(|| {
        let mut body = found.clone();
        body["binaryData"]["done"] = packed_record(record);
        body
    })
}

/// Stores what `body` makes of the ConfigMap that is there, if it makes anything of it.
async fn store(
    cluster: &Cluster,
    object: &ObjectRef,
    body: impl Fn(Option<&Value>) -> Option<Value>,
) -> std::result::Result<(), Failure> {
    let mut tries = 0;
    loop {
        tries += 1;
        let found = cluster.get(object).await?;
        let Some(body) = body(found.as_ref()) else { return Ok(()) };
        let stored = match &found {
            None => cluster.create(object, &body, Mode::Real).await,
            Some(_) => cluster.replace(object, &body).await,
        };
        match stored {
            Err(failure) if tries < 5 && (failure.is_conflict() || failure.is_already_exists()) => {}
            other => return other.map(|_| ()),
        }
    }
}

fn json_lines(all: &[impl Serialize]) -> String {
    all.iter().filter_map(|one| serde_json::to_string(one).ok()).collect::<Vec<_>>().join("\n")
}

fn packed_record(record: HashMap<String, String>) -> Value {
    let sorted: BTreeMap<_, _> = record.into_iter().collect();
    packed(&serde_json::to_string(&sorted).unwrap_or_default())
}

fn config_map(
    object: &ObjectRef,
    report: &Report,
    outcomes: &[Outcome],
    done: &[ObjectRef],
    found: Option<&Value>,
) -> Value {
    let mut shortened = report.clone();
    let more_findings = shortened.findings.len().saturating_sub(FINDINGS);
    if more_findings > 0 {
        shortened.findings.truncate(FINDINGS);
        let more = format!("and {more_findings} more findings: belay report {}", report.step);
        shortened.findings.push(Finding::note(None, more));
    }
    let more_lines = shortened.lines.len().saturating_sub(LINES);
    if more_lines > 0 {
        shortened.lines.truncate(LINES);
        shortened.lines.push(format!("and {more_lines} more: belay report {}", report.step));
    }
    let mut history: Vec<String> = vec![format!("{} {}", report.finished, report.verdict)];
    let old = found.and_then(|found| text(found, "/data/history")).unwrap_or_default();
    // A run with a done record writes its report twice, and has one verdict.
    let is_same = |before: Stored| before.report.run == report.run && before.report.started == report.started;
    let again = usize::from(found.and_then(parse).is_some_and(is_same));
    history.extend(old.lines().skip(again).take(HISTORY - 1).map(str::to_owned));

    let mut body = object.manifest();
    body["metadata"]["labels"] = json!({
        "belay.dev/family": report.family, "belay.dev/step": report.step, "belay.dev/release": report.release,
    });
    body["data"] = json!({
        "summary": shortened.summary(),
        "report": serde_json::to_string(&shortened).unwrap_or_default(),
        "history": history.join("\n"),
    });
    if let Some(found) = found {
        body["metadata"]["resourceVersion"] = resource_version(found).into();
        // A run that touched nothing must not wipe out what the one before did.
        if let Some(kept) = found.get("binaryData") {
            body["binaryData"] = kept.clone();
        }
    }
    // Those of an earlier run are not this one's.
    if let Some(packed) = body.get_mut("binaryData").and_then(Value::as_object_mut) {
        packed.remove("lines");
        packed.remove("findings");
    }
    if more_lines > 0 {
        body["binaryData"]["lines"] = packed(&report.lines.join("\n"));
    }
    if more_findings > 0 {
        body["binaryData"]["findings"] = packed(&json_lines(&report.findings));
    }
    if !outcomes.is_empty() {
        body["binaryData"]["outcomes"] = packed(&json_lines(outcomes));
    }
    if !done.is_empty() {
        let mut record = found.map(done_record).unwrap_or_default();
        record.extend(done.iter().map(|subject| (subject.to_string(), report.finished.clone())));
        body["binaryData"]["done"] = packed_record(record);
    }
    body
}

/// Publishes the verdict as an Event on the Job, or on the Lease where there is no Job.
pub async fn publish(
    cluster: &Cluster,
    report: &Report,
    regarding: &ObjectRef,
    regarding_uid: &str,
) -> std::result::Result<(), Failure> {
    let namespace = regarding.namespace.clone().unwrap_or_default();
    let object = kinds::EVENT.object(&namespace, format!("{}.{}", report.step, report.run));
    let good = report.result.exit_code() == 0;
    let mut body = object.manifest();
    let reason: String = report.result.word().split([' ', ',']).map(capitalised).collect();
    body["eventTime"] = cluster.clock().timestamp_micros().into();
    body["reportingController"] = "belay.dev/step".into();
    body["reportingInstance"] = report.step.clone().into();
    body["action"] = "Migrate".into();
    body["reason"] = reason.into();
    body["type"] = if good { "Normal" } else { "Warning" }.into();
    body["note"] = report.verdict.clone().into();
    body["regarding"] = json!({
        "apiVersion": regarding.kind.api_version(), "kind": regarding.kind.kind, "name": regarding.name,
        "namespace": namespace, "uid": regarding_uid,
    });
    match cluster.create(&object, &body, Mode::Real).await {
        Err(failure) if failure.is_already_exists() => Ok(()),
        other => other.map(|_| ()),
    }
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters
        .next()
        .map(|first| first.to_uppercase().chain(letters.flat_map(char::to_lowercase)).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(verdict: &str) -> Report {
        Report {
            step: "s".into(),
            family: "f".into(),
            release: "r".into(),
            namespace: "n".into(),
            run: "1".into(),
            result: Result::Done,
            verdict: verdict.into(),
            started: "a".into(),
            finished: "b".into(),
            seconds: 1.0,
            calls: 3,
            counts: BTreeMap::new(),
            findings: Vec::new(),
            lines: Vec::new(),
            versions: BTreeMap::new(),
            rerun: String::new(),
        }
    }

    fn outcome(n: usize) -> Outcome {
        Outcome {
            object: format!("ConfigMap/ns/{n}"),
            what: "created".into(),
            detail: String::new(),
            at: "t".into(),
        }
    }

    #[test]
    fn a_run_that_touched_nothing_keeps_what_the_one_before_did() {
        let object = kinds::CONFIG_MAP.object("n", "x");
        let done = [kinds::CONFIG_MAP.object("n", "subject")];
        let first = config_map(&object, &report("first"), &[outcome(1)], &done, None);
        let first = config_map(&object, &report("first"), &[outcome(1)], &done, Some(&first));
        let second = Report { run: "2".into(), ..report("second") };
        let second = config_map(&object, &second, &[], &[], Some(&first));
        assert_eq!(outcomes(&second), vec![outcome(1)]);
        assert_eq!(done_record(&second).len(), 1);
        let stored = parse(&second).unwrap();
        assert_eq!(stored.report.verdict, "second");
        assert_eq!(stored.history, ["b second", "b first"], "the first was written twice");
        assert!(text(&second, "/data/summary").unwrap().starts_with("second\n"));
    }

    #[test]
    fn what_was_undone_is_off_the_done_record_and_the_rest_stays() {
        let object = kinds::CONFIG_MAP.object("n", "x");
        let subjects = ["a", "b"].map(|name| kinds::CONFIG_MAP.object("n", name));
        let stored = config_map(&object, &report("v"), &[], &subjects, None);
        let after = without(&stored, &subjects[..1]).unwrap();
        assert_eq!(done_record(&after).into_keys().collect::<Vec<_>>(), ["ConfigMap/n/b"]);
        assert_eq!(after["data"], stored["data"]);
        assert!(without(&after, &subjects[..1]).is_none(), "nothing to write");
    }

    #[test]
    fn ten_thousand_outcomes_fit_into_a_config_map() {
        let many: Vec<Outcome> = (0..10_000).map(outcome).collect();
        let object = kinds::CONFIG_MAP.object("n", "x");
        let stored = config_map(&object, &report("v"), &many, &[], None);
        assert!(stored.to_string().len() < 1_000_000);
        assert_eq!(outcomes(&stored).len(), 10_000);
    }

    #[test]
    fn a_long_table_is_cut_and_kept_whole_beside_the_report() {
        let object = kinds::CONFIG_MAP.object("n", "x");
        let lines: Vec<String> =
            (0..10_000).map(|n| format!("application-{n} {}", "image ".repeat(30))).collect();
        let long = Report { lines: lines.clone(), ..report("v") };
        let stored = config_map(&object, &long, &[], &[], None);
        assert!(stored.to_string().len() < 1_000_000);
        let kept = parse(&stored).unwrap().report.lines;
        let last = kept.last().map(String::as_str);
        assert_eq!((kept.len(), last), (LINES + 1, Some("and 9800 more: belay report s")));
        assert_eq!(whole(&stored).unwrap().lines, lines);
        let next = config_map(&object, &report("w"), &[], &[], Some(&stored));
        assert!(whole(&next).unwrap().lines.is_empty());
    }

    #[test]
    fn many_findings_are_cut_and_kept_whole_beside_the_report() {
        let object = kinds::CONFIG_MAP.object("n", "x");
        let finding = |n: usize| {
            let application = kinds::CONFIG_MAP.object("n", format!("application-{n}"));
            Finding::skip(application, "is left alone, since somebody else has made one of its name")
        };
        let findings: Vec<Finding> = (0..10_000).map(finding).collect();
        let lines: Vec<String> =
            (0..10_000).map(|n| format!("application-{n} {}", "image ".repeat(30))).collect();
        let many: Vec<Outcome> = (0..10_000).map(outcome).collect();
        let long = Report { findings: findings.clone(), lines, ..report("v") };
        let stored = config_map(&object, &long, &many, &[], None);
        assert!(stored.to_string().len() < 1_000_000);
        let kept = parse(&stored).unwrap().report.findings;
        assert_eq!(kept.len(), FINDINGS + 1);
        assert_eq!(kept[FINDINGS].message, "and 9800 more findings: belay report s");
        assert_eq!(whole(&stored).unwrap().findings, findings);
        let next = config_map(&object, &report("w"), &[], &[], Some(&stored));
        assert!(whole(&next).unwrap().findings.is_empty());
    }

    #[test]
    fn a_verdict_is_one_line_of_at_most_a_thousand_bytes() {
        let long = cut(&format!("a\nb {}", "ä".repeat(2000)));
        assert!(long.len() <= VERDICT_BYTES && long.starts_with("a b ä") && long.ends_with("..."));
    }

    #[test]
    fn a_verdict_ends_with_the_command_that_runs_the_step_again_and_only_its_reasons_are_cut() {
        let command = rerun("mesh-s", "n", "20260101110000-0f3c9");
        assert_eq!(command, "kubectl create job --namespace n --from=cronjob/mesh-s again-0f3c9");
        let said = |result, verdict: &str| with_rerun("s", result, verdict, &command);
        let alone = format!("Cure the cause, then upgrade again, or run this step alone: {command}");
        assert_eq!(said(Result::Refused, "refused: no"), format!("refused: no. {alone}"));
        assert_eq!(said(Result::Restored, "failed: so it is."), format!("failed: so it is. {alone}"));
        for result in [Result::Unfinished, Result::Stopped] {
            let again = "why. Run the step again";
            assert_eq!(said(result, again), format!("{again}. To run it alone: {command}"));
        }
        let long = said(Result::Restored, &"ä".repeat(2000));
        assert!(long.ends_with(&format!("ä ... {alone}")), "{long}");
        let whole = format!("s: {long}");
        assert_eq!(cut(&whole), whole);
        // Where there is no command, or nothing to run again.
        assert_eq!(with_rerun("s", Result::Refused, "no", &rerun("", "n", "1")), "no");
        for result in [Result::Done, Result::NothingToDo, Result::NotRestored, Result::NotNow] {
            assert_eq!(said(result, "v"), "v");
        }
    }

    #[test]
    fn a_report_without_a_command_is_read_as_before() {
        let object = kinds::CONFIG_MAP.object("n", "x");
        let stored = config_map(&object, &report("v"), &[], &[], None);
        assert!(!text(&stored, "/data/report").unwrap().contains("rerun"));
        assert_eq!(parse(&stored).unwrap().report.rerun, "");
        let stored = config_map(&object, &Report { rerun: "c".into(), ..report("v") }, &[], &[], None);
        assert_eq!(parse(&stored).unwrap().report.rerun, "c");
    }
}
