//! What has happened: a table of all steps, and what one step did to each object.

use std::sync::Arc;

use anyhow::Context as _;
use belay_runtime::{
    Clock, Failure, Host, Meta,
    cluster::Cluster,
    host::Life,
    journal::{Journal, Ledger, RESTORED_BY_HAND, Status, Trouble},
    lock::{self, AtWork},
    report::{self, Result as Ended, Stored},
    run::Ending,
};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::{Shared, ending, family_named, number_of, print, step_named};

/// A holder that said so within this time is taken to be at work, where nothing else is known of it.
const SAID_SO_LATELY: i64 = 20;

#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// Only steps of this Helm release.
    #[arg(long, env = "BELAY_RELEASE", value_name = "NAME")]
    release: Option<String>,
    /// Only steps of this family.
    #[arg(long, env = "BELAY_FAMILY", value_name = "NAME")]
    family: Option<String>,
    /// How the table looks.
    #[arg(long, short, env = "BELAY_OUTPUT", value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// For people.
    // Steps call it text, and the variable is one for all.
    #[value(alias = "text")]
    Table,
    /// For programs.
    Json,
}

#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) shared: Shared,
    /// The step.
    step: String,
}

/// How a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A run of it, or an operation on it, is at work.
    Running,
    /// A run has ended without a word, and its journal is open.
    Died,
    /// The last run that ended said so.
    Ended(Ended),
    /// Nobody can tell: neither report nor journal could be read.
    Unknown,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Died => "died half-way",
            Self::Ended(result) => result.word(),
            Self::Unknown => "not known",
        }
    }
}

/// What is known of a step.
#[derive(Default)]
struct Row {
    family: String,
    step: String,
    home: String,
    stored: Option<Stored>,
    journals: Vec<Journal>,
    /// Who holds the family's lock, where it is for this step.
    at_work: Option<AtWork>,
    /// What somebody is at work on who holds it for something else: until that has ended nothing else can be done.
    busy_with: Option<String>,
    /// Whether that could not be read.
    lock_unknown: bool,
    /// What could not be read, and why.
    problems: Vec<String>,
    /// Whether the journals are among that.
    journals_unknown: bool,
}

impl Row {
    fn open(&self) -> Option<&Journal> {
        self.journals.iter().find(|journal| journal.status.is_open())
    }

    /// The release that ran it last; none if it was run by hand, or if nothing is known.
    fn release(&self) -> Option<&str> {
        self.stored
            .as_ref()
            .map(|stored| stored.report.release.as_str())
            .filter(|release| !release.is_empty())
    }

    /// Whether a release may have run it: one that was run by hand, or of which nothing is known, is anybody's.
    fn is_of(&self, release: &str) -> bool {
        self.release().is_none_or(|of| of == release)
    }

    /// Why it concerns other releases too, if it does: they share the family's lock, and no step of it writes anything beside
    /// an open journal.
    fn holds_up_others(&self) -> Option<&'static str> {
        if self.is_running() {
            Some("it is at work")
        } else if self.open().is_some() {
            Some("its journal is open")
        } else if self.journals_unknown {
            Some("its journal may be open")
        } else {
            None
        }
    }

    fn is_running(&self) -> bool {
        self.at_work.as_ref().is_some_and(is_at_work)
    }

    /// A journal that has changed since the last report: the run that changed it has not come to report. Whoever takes up a
    /// journal that was handed on says so in it.
    fn newer(&self) -> Option<&Journal> {
        let journal = self.open().or(self.journals.first())?;
        let handed_on = journal.status.is_open() && journal.handed_on;
        // Times are all written alike, so they can be compared as they stand.
        let is_newer = |stored: &Stored| stored.report.finished < journal.changed;
        (handed_on || self.stored.as_ref().is_none_or(is_newer)).then_some(journal)
    }

    fn state(&self) -> State {
        let reported = self.stored.as_ref().map(|stored| State::Ended(stored.report.result));
        match self.newer() {
            _ if self.is_running() => State::Running,
            None => reported.unwrap_or(State::Unknown),
            Some(journal) => match journal.status {
                Status::Done => State::Ended(Ended::Done),
                Status::Undone if journal.remark == RESTORED_BY_HAND => State::Ended(Ended::TakenBack),
                Status::Undone => State::Ended(Ended::Restored),
                Status::Accepted => State::Ended(Ended::Accepted),
                Status::Open | Status::Undoing if journal.handed_on => State::Ended(Ended::Terminated),
                // Perhaps it is at work.
                Status::Open | Status::Undoing if self.lock_unknown => State::Unknown,
                Status::Open | Status::Undoing => State::Died,
            },
        }
    }

    /// When it came to stand so.
    fn since(&self) -> Option<&str> {
        let reported = self.stored.as_ref().map(|stored| stored.report.finished.as_str());
        match self.state() {
            State::Running => self.at_work.as_ref().map(|at_work| at_work.since.as_str()),
            State::Died | State::Ended(_) => {
                self.newer().map(|journal| journal.changed.as_str()).or(reported)
            }
            State::Unknown => None,
        }
    }

    /// What a person wants to do next, if anything.
    fn next(&self) -> String {
        let command = self.next_command();
        match &self.busy_with {
            Some(other) if command != "-" => format!("wait until {other} has ended, then look again"),
            _ => command,
        }
    }

    /// What runs the step again: the command, where the last report has one.
    fn again(&self) -> String {
        let rerun = self.stored.as_ref().map_or("", |stored| stored.report.rerun.as_str());
        match (rerun.rsplit_once(' '), self.newer()) {
            (None, _) => format!("run {} again", self.step),
            (Some(_), None) => rerun.to_owned(),
            // The Job of that name may be the run that has left no report, and no other can have its name.
            (Some((command, _)), Some(journal)) => {
                let new: String = journal.changed.chars().filter(char::is_ascii_digit).collect();
                format!("{command} again-{new}")
            }
        }
    }

    /// The command that a person wants next, if nobody else is at work. Nothing stands right behind a command that could be
    /// taken for a part of it.
    fn next_command(&self) -> String {
        let (step, home, again) = (&self.step, &self.home, self.again());
        let restore = format!("belay restore --step {step} --home {home}");
        let accept = format!("belay accept --step {step} --home {home}");
        let state = self.state();
        match self.open() {
            _ if state == State::Running => "wait until it has ended".to_owned(),
            _ if self.journals_unknown => "see below".to_owned(),
            Some(_) if state == State::Unknown => "see below: it may be at work".to_owned(),
            Some(journal) if journal.no_return => format!("it only goes forward: {again}"),
            Some(journal)
                if journal.status == Status::Undoing && state == State::Ended(Ended::NotRestored) =>
            {
                format!("look at what belay report {step} names, then {restore} or {accept}")
            }
            Some(journal) if journal.status == Status::Undoing || journal.is_given_up() => {
                format!("either finishes the undo: {again} or {restore}")
            }
            Some(_) => format!("{again} or {restore}"),
            None => match state {
                State::Ended(Ended::Refused | Ended::Restored | Ended::Usage) => {
                    format!("cure the cause, then {again}")
                }
                State::Ended(Ended::NotNow | Ended::Stopped | Ended::Terminated | Ended::Unfinished) => again,
                _ => "-".to_owned(),
            },
        }
    }

    fn journal(&self) -> String {
        match self.open().or(self.journals.first()) {
            _ if self.journals_unknown => "NOT READABLE".to_owned(),
            None => "-".to_owned(),
            Some(journal) if journal.no_return && journal.status.is_open() => {
                format!("OPEN since {}, past no return", age(&journal.opened))
            }
            Some(journal) if journal.status == Status::Open => format!("OPEN since {}", age(&journal.opened)),
            Some(journal) if journal.status == Status::Undoing => {
                format!("OPEN, undo begun {}", age(&journal.changed))
            }
            Some(_) => {
                let done = self.journals.iter().filter(|journal| journal.status == Status::Done).count();
                if done > 0 { format!("{done} kept") } else { "closed".to_owned() }
            }
        }
    }

    /// What there is to say below the table.
    fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        if let Some(at_work) = &self.at_work {
            words.push(format!("{}: {}", self.step, told(at_work, &self.family, &self.home)));
        }
        let verdict = self.stored.as_ref().map(|stored| stored.report.verdict.as_str());
        match (self.newer().filter(|_| !self.is_running()), verdict) {
            (Some(journal), before) => {
                let run = &journal.run;
                let how = match self.state() {
                    State::Died => "died half-way".to_owned(),
                    State::Unknown => "is at work or died half-way".to_owned(),
                    State::Ended(Ended::Terminated) => "was told to stop, and can be gone on with".to_owned(),
                    state => format!("has left no report; its journal says: {}", state.word()),
                };
                let before = before.map(|verdict| format!(". The last one that reported said: {verdict}"));
                words.push(format!("{}: run {run} {how}{}", self.step, before.unwrap_or_default()));
            }
            (None, Some(verdict)) => words.push(verdict.to_owned()),
            (None, None) => {}
        }
        words.extend(self.problems.iter().map(|problem| format!("{}: {problem}", self.step)));
        words
    }

    fn as_json(&self, notes: &[Note]) -> Value {
        let notes: Vec<&str> =
            notes.iter().filter(|note| note.is_about(self)).map(|note| note.text.as_str()).collect();
        json!({
            "family": self.family, "step": self.step, "home": self.home,
            "state": self.state().word(),
            "since": self.since(),
            "lock": self.at_work.as_ref().map(lock_as_json),
            "report": self.stored.as_ref().map(|stored| &stored.report),
            "history": self.stored.as_ref().map(|stored| &stored.history),
            "journals": self.journals,
            "problems": self.problems,
            "notes": notes,
            "next": self.next(),
        })
    }
}

fn is_at_work(at_work: &AtWork) -> bool {
    match at_work.life {
        Life::Alive => true,
        Life::Dead => false,
        Life::Unknown => seconds_since(&at_work.renewed).is_some_and(|seconds| seconds < SAID_SO_LATELY),
    }
}

/// What somebody is at work on, if anybody is.
fn busy_with(at_work: &AtWork) -> Option<String> {
    let doing = at_work.doing.clone();
    is_at_work(at_work).then(|| doing.unwrap_or_else(|| "the run that holds the lock".to_owned()))
}

/// What is to be said of who holds a family's lock in one of its homes.
fn told(at_work: &AtWork, family: &str, home: &str) -> String {
    let AtWork { holder, since, renewed, doing, life } = at_work;
    let since = age(since);
    let doing = doing.as_ref().map(|doing| format!(" ({doing})")).unwrap_or_default();
    match life {
        Life::Alive => format!("{holder} is at work since {since}{doing}"),
        Life::Dead => format!(
            "{holder} has ended without giving the lock back{doing}: the next run takes it over, or belay unlock --family \
             {family} --home {home}"
        ),
        Life::Unknown => format!(
            "{holder} has the lock since {since}{doing} and said so {} ago; from here nobody can see whether it runs",
            age(renewed)
        ),
    }
}

fn lock_as_json(at_work: &AtWork) -> Value {
    let life = match at_work.life {
        Life::Alive => "alive",
        Life::Dead => "dead",
        Life::Unknown => "unknown",
    };
    json!({
        "holder": at_work.holder.to_string(), "since": at_work.since, "renewed": at_work.renewed,
        "doing": at_work.doing, "life": life,
    })
}

/// What there is to say about a family as a whole, in one of its homes.
struct Note {
    family: String,
    home: String,
    text: String,
}

impl Note {
    fn is_about(&self, row: &Row) -> bool {
        self.family == row.family && self.home == row.home
    }
}

/// All that was found.
#[derive(Default)]
struct Found {
    rows: Vec<Row>,
    notes: Vec<Note>,
    /// Calls that failed. What they were for is not known, which is not the same as nothing.
    failures: Vec<Failure>,
}

impl Found {
    /// Adds a step, unless only those of a release were asked for, and it is of another and does not concern this one.
    fn add(&mut self, row: Row, release: Option<&str>) {
        if let Some(release) = release.filter(|release| !row.is_of(release)) {
            let Some(why) = row.holds_up_others() else { return };
            let other = row.release().unwrap_or_default();
            let text = format!(
                "{}: this is of release {other}, and shown because {why}: that holds up the steps of release {release}",
                row.step
            );
            self.note(&row.family, &row.home, text);
        }
        self.rows.push(row);
    }

    fn note(&mut self, family: &str, home: &str, text: String) {
        self.notes.push(Note { family: family.to_owned(), home: home.to_owned(), text });
    }

    /// Keeps a failure, unless it is one after which nothing more may be asked.
    fn keep(&mut self, failure: Failure) -> Result<String, Failure> {
        if let Failure::Halted(_) = failure {
            return Err(failure);
        }
        let sentence = failure.to_string();
        self.failures.push(failure);
        Ok(sentence)
    }
}

pub(crate) async fn status(
    host: &Arc<dyn Host>,
    args: &StatusArgs,
    metas: &[Meta],
) -> anyhow::Result<Ending> {
    let mut families: Vec<&str> = metas.iter().map(|meta| meta.family).collect();
    families.dedup();
    if let Some(only) = &args.family {
        families = vec![family_named(metas, only)?.family];
    }
    let cluster = args.shared.cluster_to_look_at(host).await?;
    let mut found = Found::default();
    for family in families {
        let steps: Vec<&Meta> = metas.iter().filter(|meta| meta.family == family).collect();
        look(&cluster, args, family, &steps, &mut found)
            .await
            .context("this cluster could not be looked at")?;
    }
    let Found { rows, notes, failures } = found;
    if rows.iter().all(|row| row.stored.is_none() && row.journals.is_empty() && row.at_work.is_none())
        && let Some(failure) = failures.into_iter().next()
    {
        // That nothing could be read says nothing about what is there.
        return Err(anyhow::Error::new(failure).context("this cluster could not be looked at"));
    }
    match args.output {
        Format::Json => {
            for note in notes.iter().filter(|note| !rows.iter().any(|row| note.is_about(row))) {
                // There is no row to hold it.
                log::warn!("{}", note.text);
            }
            let rows: Vec<Value> = rows.iter().map(|row| row.as_json(&notes)).collect();
            print(&format!("{}\n", serde_json::to_string_pretty(&rows)?));
        }
        Format::Table => print(&table(&rows, &notes)),
    }
    Ok(sentence(&rows, args.release.as_deref()))
}

/// Looks at one family.
async fn look(
    cluster: &Arc<Cluster>,
    args: &StatusArgs,
    family: &str,
    steps: &[&Meta],
    found: &mut Found,
) -> Result<(), Failure> {
    let Some(first) = steps.first() else { return Ok(()) };
    let homes = args.shared.homes(cluster, first).await?;
    let begin = found.rows.len();
    for home in &homes.names {
        let mut lock_unknown = false;
        let at_work = match lock::at_work(cluster, family, home).await {
            Ok(at_work) => at_work,
            Err(failure) => {
                // Not among the failures: all that happened is there to be seen, only not who is at work now.
                if let Failure::Halted(_) = failure {
                    return Err(failure);
                }
                found.note(
                    family,
                    home,
                    format!("{family}: who holds the lock in namespace {home} is not known: {failure}"),
                );
                lock_unknown = true;
                None
            }
        };
        let mut claimed = false;
        for meta in steps {
            let mut row = read(cluster, family, home, meta.name, found).await?;
            row.at_work = at_work.clone().filter(|at_work| is_about(at_work, meta.name));
            row.busy_with = at_work.as_ref().filter(|_| row.at_work.is_none()).and_then(busy_with);
            row.lock_unknown = lock_unknown;
            claimed |= row.at_work.is_some();
            let is_empty = row.stored.is_none() && row.journals.is_empty();
            if is_empty && row.problems.is_empty() && !row.is_running() {
                continue;
            }
            found.add(row, args.release.as_deref());
        }
        if let Some(at_work) = at_work.filter(|_| !claimed) {
            found.note(
                family,
                home,
                format!("{family} in namespace {home}: {}", told(&at_work, family, home)),
            );
        }
    }
    if let (Some(failure), true) = (homes.unsure, found.rows.len() == begin) {
        // Nothing at the default home, and nobody could look elsewhere.
        found.failures.push(failure);
    }
    Ok(())
}

/// Whether the lock is held for a step: for its run, or for an operation on it.
fn is_about(at_work: &AtWork, step: &str) -> bool {
    at_work.doing.as_ref().is_some_and(|doing| doing.split_whitespace().last() == Some(step))
}

/// What is there of one step. What cannot be read is told in its row, and does not hide the other steps.
async fn read(
    cluster: &Arc<Cluster>,
    family: &str,
    home: &str,
    step: &str,
    found: &mut Found,
) -> Result<Row, Failure> {
    let mut row =
        Row { family: family.to_owned(), step: step.to_owned(), home: home.to_owned(), ..Row::default() };
    match report::read(cluster, home, step).await {
        Ok(None) => {}
        Ok(Some(config_map)) => {
            row.stored = report::parse(&config_map);
            if row.stored.is_none() {
                let name = report::name(step);
                row.problems.push(format!("its report, ConfigMap/{home}/{name}, is not readable"));
            }
        }
        Err(failure) => row.problems.push(format!("its report is not known: {}", found.keep(failure)?)),
    }
    match Ledger::load(cluster, home, step).await {
        Ok(ledger) => row.journals = ledger.journals().to_vec(),
        Err(trouble) => {
            row.journals_unknown = true;
            row.problems.push(match trouble {
                Trouble::Call(failure) => format!("its journals are not known: {}", found.keep(failure)?),
                Trouble::Unusable(error) => format!("{error:#}"),
            });
        }
    }
    Ok(row)
}

/// The last line.
fn sentence(rows: &[Row], release: Option<&str>) -> Ending {
    let open = rows.iter().filter(|row| row.open().is_some() && !row.is_running()).count();
    let running: Vec<&str> =
        rows.iter().filter(|row| row.is_running()).map(|row| row.step.as_str()).collect();
    let unread = rows.iter().filter(|row| !row.problems.is_empty()).count();
    let mut parts = Vec::new();
    if !running.is_empty() {
        parts.push(format!("at work: {}", running.join(", ")));
    }
    match (rows.len(), open) {
        (0, _) => parts.push(match release {
            None => "no step has run here yet".to_owned(),
            Some(release) => format!("no step of release {release} has run here"),
        }),
        (_, 0) => parts.push("no open journals".to_owned()),
        (_, open) => {
            parts.push(format!("{}: the last column says what to do", number_of(open, "open journal")));
        }
    }
    if unread > 0 {
        parts.push(format!("{} could not be read whole", number_of(unread, "step")));
    }
    ending(if unread > 0 { Ended::Refused } else { Ended::Done }, parts.join("; "))
}

fn table(rows: &[Row], notes: &[Note]) -> String {
    let mut table: Vec<[String; 7]> =
        vec![["STEP", "HOME", "RESULT", "AGE", "OBJECTS", "JOURNAL", "NEXT"].map(str::to_owned)];
    for row in rows {
        let counts = row.stored.as_ref().map(|stored| report::counted(&stored.report.counts));
        table.push([
            row.step.clone(),
            row.home.clone(),
            row.state().word().to_owned(),
            row.since().map_or_else(|| "-".to_owned(), age),
            counts.unwrap_or_default(),
            row.journal(),
            row.next(),
        ]);
    }
    let widths: Vec<usize> =
        (0..6).map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let mut lines = Vec::new();
    for row in &table {
        let cells: Vec<String> =
            row.iter().take(6).zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        lines.push(format!("{}  {}", cells.join("  "), row[6]).trim_end().to_owned());
    }
    let words = rows.iter().flat_map(Row::words).chain(notes.iter().map(|note| note.text.clone()));
    lines.extend(words.map(|words| format!("\n{words}")));
    lines.join("\n") + "\n"
}

fn seconds_since(time: &str) -> Option<i64> {
    let then = time.parse::<jiff::Timestamp>().ok()?;
    Some(Clock::default().wall().duration_since(then).as_secs().max(0))
}

/// How long ago, as kubectl says it.
fn age(time: &str) -> String {
    match seconds_since(time) {
        None => time.to_owned(),
        Some(seconds @ 0..=119) => format!("{seconds}s"),
        Some(seconds @ 120..=7199) => format!("{}m", seconds / 60),
        Some(seconds @ 7200..=172_799) => format!("{}h", seconds / 3600),
        Some(seconds) => format!("{}d", seconds / 86_400),
    }
}

pub(crate) async fn report(
    host: &Arc<dyn Host>,
    args: &ReportArgs,
    metas: &[Meta],
) -> anyhow::Result<Ending> {
    let meta = step_named(metas, &args.step)?;
    let cluster = args.shared.cluster_to_look_at(host).await?;
    let home = args.shared.home_of(&cluster, meta).await?;
    let found = report::read(&cluster, &home, meta.name).await?.with_context(|| {
        format!("{} has left no report in namespace {home}: it never ended there", meta.name)
    })?;
    let stored = report::parse(&found).context("the report is not readable")?;
    let whole = report::whole(&found).context("the report is not readable")?;
    let mut lines = vec![whole.summary().trim_end().to_owned()];
    let outcomes = report::outcomes(&found);
    if !outcomes.is_empty() {
        lines.push("\nWhat the last run that touched anything did:".to_owned());
    }
    for outcome in &outcomes {
        let detail = if outcome.detail.is_empty() { String::new() } else { format!(": {}", outcome.detail) };
        lines.push(format!("{} {} {}{detail}", outcome.at, outcome.what, outcome.object));
    }
    if stored.history.len() > 1 {
        lines.push("\nEarlier verdicts:".to_owned());
        lines.extend(stored.history.iter().skip(1).cloned());
    }
    print(&(lines.join("\n") + "\n"));
    Ok(ending(Ended::Done, number_of(outcomes.len(), "object")))
}

#[cfg(test)]
mod tests {
    use belay_runtime::{lock::Holder, report::Report};

    use super::*;

    const EARLIER: &str = "2026-01-01T10:00:00Z";
    const THEN: &str = "2026-01-01T11:00:00Z";
    const LATER: &str = "2026-01-01T12:00:00Z";

    fn reported(result: Ended, finished: &str) -> Stored {
        let report = Report {
            step: "s".into(),
            family: "f".into(),
            release: String::new(),
            namespace: String::new(),
            run: "1".into(),
            result,
            verdict: "s: verdict".into(),
            started: EARLIER.into(),
            finished: finished.into(),
            seconds: 1.0,
            calls: 1,
            counts: [].into(),
            findings: Vec::new(),
            lines: Vec::new(),
            versions: [].into(),
            rerun: String::new(),
        };
        Stored { report, history: Vec::new() }
    }

    fn journal(status: Status) -> Journal {
        Journal {
            run: "r1".into(),
            status,
            opened: EARLIER.into(),
            changed: THEN.into(),
            deaths: 0,
            no_return: false,
            handed_on: false,
            undoing: None,
            void: Vec::new(),
            remark: String::new(),
            chunks: Vec::new(),
        }
    }

    fn row(stored: Option<Stored>, journals: Vec<Journal>) -> Row {
        Row { step: "s".into(), home: "h".into(), stored, journals, ..Row::default() }
    }

    fn held(life: Life, renewed: &str) -> AtWork {
        AtWork {
            holder: Holder::Unknown("somebody".into()),
            since: EARLIER.into(),
            renewed: renewed.into(),
            doing: Some("s".into()),
            life,
        }
    }

    #[test]
    fn every_state_has_its_word_and_its_next_command() {
        let restore = "belay restore --step s --home h";
        let accept = "belay accept --step s --home h";
        let no_return = |status| Journal { no_return: true, ..journal(status) };
        let given_up = Journal { deaths: 3, ..journal(Status::Open) };
        let handed_on = Journal { handed_on: true, ..journal(Status::Open) };
        for (row, word, next) in [
            // Nothing is open.
            (row(Some(reported(Ended::Done, LATER)), vec![journal(Status::Done)]), "done", "-".to_owned()),
            (row(Some(reported(Ended::NothingToDo, LATER)), vec![]), "nothing to do", "-".to_owned()),
            (
                row(Some(reported(Ended::Refused, LATER)), vec![]),
                "refused",
                "cure the cause, then run s again".to_owned(),
            ),
            (
                row(Some(reported(Ended::Restored, LATER)), vec![journal(Status::Undone)]),
                "failed, restored",
                "cure the cause, then run s again".to_owned(),
            ),
            (row(Some(reported(Ended::NotNow, LATER)), vec![]), "not now", "run s again".to_owned()),
            (
                row(Some(reported(Ended::TakenBack, LATER)), vec![journal(Status::Undone)]),
                "restored by hand",
                "-".to_owned(),
            ),
            (
                row(Some(reported(Ended::Accepted, LATER)), vec![journal(Status::Accepted)]),
                "accepted",
                "-".to_owned(),
            ),
            // A run died, whatever the one before said.
            (row(None, vec![journal(Status::Open)]), "died half-way", format!("run s again or {restore}")),
            (
                row(Some(reported(Ended::Done, EARLIER)), vec![journal(Status::Open)]),
                "died half-way",
                format!("run s again or {restore}"),
            ),
            (
                row(None, vec![given_up]),
                "died half-way",
                format!("either finishes the undo: run s again or {restore}"),
            ),
            (
                row(Some(reported(Ended::Done, EARLIER)), vec![journal(Status::Undoing)]),
                "died half-way",
                format!("either finishes the undo: run s again or {restore}"),
            ),
            (
                row(Some(reported(Ended::Done, THEN)), vec![handed_on]),
                "told to stop",
                format!("run s again or {restore}"),
            ),
            (
                Row { lock_unknown: true, ..row(None, vec![journal(Status::Open)]) },
                "not known",
                "see below: it may be at work".to_owned(),
            ),
            // It ended, and its report was not written.
            (
                row(Some(reported(Ended::Refused, EARLIER)), vec![journal(Status::Done)]),
                "done",
                "-".to_owned(),
            ),
            (
                row(
                    Some(reported(Ended::Done, EARLIER)),
                    vec![Journal { remark: RESTORED_BY_HAND.into(), ..journal(Status::Undone) }],
                ),
                "restored by hand",
                "-".to_owned(),
            ),
            (
                row(Some(reported(Ended::Done, EARLIER)), vec![journal(Status::Accepted)]),
                "accepted",
                "-".to_owned(),
            ),
            // It ended, and a person must act.
            (
                row(Some(reported(Ended::NotRestored, LATER)), vec![journal(Status::Undoing)]),
                "failed, NOT RESTORED",
                format!("look at what belay report s names, then {restore} or {accept}"),
            ),
            (
                row(Some(reported(Ended::Unfinished, LATER)), vec![no_return(Status::Open)]),
                "unfinished",
                "it only goes forward: run s again".to_owned(),
            ),
            (
                row(Some(reported(Ended::Refused, LATER)), vec![journal(Status::Open)]),
                "refused",
                format!("run s again or {restore}"),
            ),
            // Past no return and finished: nothing is open.
            (row(Some(reported(Ended::Done, LATER)), vec![no_return(Status::Done)]), "done", "-".to_owned()),
            // The report was deleted.
            (row(None, vec![journal(Status::Done)]), "done", "-".to_owned()),
        ] {
            assert_eq!((row.state().word(), row.next()), (word, next));
        }
    }

    #[test]
    fn where_the_last_report_has_the_command_that_is_what_comes_next() {
        let create = "kubectl create job --namespace n --from=cronjob/mesh-s";
        let reported = |result, finished| {
            let mut stored = reported(result, finished);
            stored.report.rerun = format!("{create} again-0f3c9");
            Some(stored)
        };
        let no_return = Journal { no_return: true, ..journal(Status::Open) };
        for (row, next) in [
            (row(reported(Ended::Refused, LATER), vec![]), "cure the cause, then {create} again-0f3c9"),
            (row(reported(Ended::Stopped, LATER), vec![]), "{create} again-0f3c9"),
            (
                row(reported(Ended::Unfinished, LATER), vec![no_return]),
                "it only goes forward: {create} again-0f3c9",
            ),
            (row(reported(Ended::Done, LATER), vec![journal(Status::Done)]), "-"),
            // The Job again-0f3c9 may be what died.
            (
                row(reported(Ended::Refused, EARLIER), vec![journal(Status::Open)]),
                "{create} again-20260101110000 or belay restore --step s --home h",
            ),
        ] {
            let next = next.replace("{create}", create);
            assert_eq!((row.next(), &row.as_json(&[])["next"]), (next.clone(), &json!(next)));
        }
    }

    #[test]
    fn while_a_run_is_at_work_nobody_is_told_to_do_anything() {
        let now = Clock::default().wall().to_string();
        for (life, renewed, runs) in [
            (Life::Alive, EARLIER, true),
            (Life::Unknown, now.as_str(), true),
            (Life::Unknown, EARLIER, false),
            (Life::Dead, now.as_str(), false),
        ] {
            let row = Row { at_work: Some(held(life, renewed)), ..row(None, vec![journal(Status::Open)]) };
            assert_eq!(row.is_running(), runs, "{life:?}");
            assert_eq!(row.state() == State::Running, runs);
            assert_eq!(row.next() == "wait until it has ended", runs);
            assert!(row.words()[0].contains("somebody"));
        }
    }

    #[test]
    fn the_lock_of_a_dead_run_is_told_with_the_whole_command_that_releases_it() {
        let row = Row {
            family: "f".into(),
            at_work: Some(held(Life::Dead, EARLIER)),
            ..row(None, vec![journal(Status::Open)])
        };
        assert!(row.words()[0].ends_with(", or belay unlock --family f --home h"), "{:?}", row.words());
    }

    #[test]
    fn while_another_step_is_at_work_a_person_is_told_to_wait_for_it() {
        let mut at_work = held(Life::Alive, EARLIER);
        at_work.doing = Some("restore t".into());
        let busy = |at_work: &AtWork, row: Row| Row { busy_with: busy_with(at_work), ..row }.next();
        let died = || row(None, vec![journal(Status::Open)]);
        let done = || row(Some(reported(Ended::Done, LATER)), vec![journal(Status::Done)]);
        assert_eq!(busy(&at_work, died()), "wait until restore t has ended, then look again");
        assert_eq!(busy(&at_work, done()), "-");
        at_work.doing = None;
        assert_eq!(
            busy(&at_work, died()),
            "wait until the run that holds the lock has ended, then look again"
        );
        at_work.life = Life::Dead;
        assert!(busy(&at_work, died()).starts_with("run s again or "));
    }

    #[test]
    fn what_is_said_of_a_family_stands_in_each_of_its_rows() {
        let row = |family: &str| Row { family: family.into(), ..row(None, Vec::new()) };
        let notes = [Note { family: "f".into(), home: "h".into(), text: "somebody is at work".into() }];
        assert_eq!(row("f").as_json(&notes)["notes"], json!(["somebody is at work"]));
        assert_eq!(row("g").as_json(&notes)["notes"], json!([]));
    }

    #[test]
    fn a_release_of_which_no_step_has_run_is_named() {
        assert_eq!(sentence(&[], Some("mesh")).verdict, "no step of release mesh has run here");
        assert_eq!(sentence(&[], None).verdict, "no step has run here yet");
    }

    #[test]
    fn a_step_that_was_run_by_hand_is_of_every_release() {
        let of = |release: &str| {
            let mut stored = reported(Ended::Done, LATER);
            stored.report.release = release.to_owned();
            row(Some(stored), Vec::new())
        };
        assert!(of("mesh").is_of("mesh") && of("").is_of("mesh") && row(None, Vec::new()).is_of("mesh"));
        assert!(!of("mesh").is_of("shop"));
    }

    #[test]
    fn what_holds_up_a_release_is_shown_to_it_whoever_ran_it() {
        let of_shop = || {
            let mut stored = reported(Ended::Done, EARLIER);
            stored.report.release = "shop".to_owned();
            stored
        };
        let shown = |row: Row| {
            let mut found = Found::default();
            found.add(row, Some("mesh"));
            let notes: Vec<String> = found.notes.into_iter().map(|note| note.text).collect();
            (found.rows.len(), notes.join(" "))
        };
        let done = || row(Some(of_shop()), vec![journal(Status::Done)]);
        assert_eq!(shown(done()), (0, String::new()));
        let open = row(Some(of_shop()), vec![journal(Status::Open)]);
        assert_eq!(
            sentence(std::slice::from_ref(&open), Some("mesh")).verdict.split(':').next(),
            Some("1 open journal")
        );
        let at_work = Row { at_work: Some(held(Life::Alive, LATER)), ..done() };
        let unknown = Row { journals_unknown: true, ..row(Some(of_shop()), Vec::new()) };
        for (row, why) in
            [(open, "its journal is open"), (at_work, "it is at work"), (unknown, "its journal may be open")]
        {
            let (rows, note) = shown(row);
            assert_eq!(rows, 1);
            assert!(note.contains("of release shop") && note.contains(why), "{note}");
        }
    }

    #[test]
    fn an_operation_on_a_step_is_at_work_on_that_step() {
        let mut at_work = held(Life::Alive, EARLIER);
        at_work.doing = Some("restore s".into());
        assert!(is_about(&at_work, "s") && !is_about(&at_work, "t"));
        at_work.doing = None;
        assert!(!is_about(&at_work, "s"));
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_nothing() {
        let row = Row {
            problems: vec!["the journal of s has format 9".into()],
            journals_unknown: true,
            ..row(None, Vec::new())
        };
        assert_eq!((row.state(), row.journal().as_str()), (State::Unknown, "NOT READABLE"));
        assert_eq!(row.next(), "see below");
        assert_eq!(row.words(), ["s: the journal of s has format 9"]);
        assert_eq!(sentence(&[row], None).result, Ended::Refused);
    }
}
