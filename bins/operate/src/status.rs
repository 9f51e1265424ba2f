//! What has happened: a table of all steps, and what one step did to each object.

use anyhow::Context as _;
use belay_runtime::{
    Meta,
    journal::{Journal, Ledger, Status},
    report::{self, Result as Ended, Stored},
    run::Ending,
};
use clap::ValueEnum;
use serde_json::{Value, json};

use crate::{PATIENCE, Shared, ending, step_named};

#[derive(clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    shared: Shared,
    /// Only steps of this Helm release.
    #[arg(long, env = "BELAY_RELEASE", value_name = "NAME")]
    release: Option<String>,
    /// Only steps of this family.
    #[arg(long, env = "BELAY_FAMILY", value_name = "NAME")]
    family: Option<String>,
    /// How the table looks.
    #[arg(long, short, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// For programs.
    Json,
}

#[derive(clap::Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    shared: Shared,
    /// The step.
    step: String,
}

struct Row {
    step: String,
    home: String,
    stored: Option<Stored>,
    journals: Vec<Journal>,
}

impl Row {
    fn open(&self) -> Option<&Journal> {
        self.journals.iter().find(|journal| journal.status.is_open())
    }

    /// The command that a person wants next, if any.
    fn next(&self) -> String {
        let (step, home) = (&self.step, &self.home);
        match (self.open(), self.stored.as_ref().map(|stored| stored.report.result)) {
            (Some(journal), _) if journal.no_return => format!("run {step} again"),
            (Some(journal), Some(Ended::NotRestored)) if journal.status == Status::Undoing => {
                format!(
                    "belay restore --step {step} --home {home}, or belay accept --step {step} --home {home}"
                )
            }
            (Some(_), _) => format!("run {step} again, or belay restore --step {step} --home {home}"),
            (None, Some(Ended::Refused | Ended::Restored)) => "cure the cause, then run it again".to_owned(),
            (None, _) => "-".to_owned(),
        }
    }

    fn journal(&self) -> String {
        match self.open().or(self.journals.first()) {
            None => "-".to_owned(),
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
}

pub(crate) async fn status(args: &StatusArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let cluster = args.shared.cluster(PATIENCE).await?;
    let mut rows = Vec::new();
    let mut families: Vec<&str> = metas.iter().map(|meta| meta.family).collect();
    families.dedup();
    families.retain(|family| args.family.as_deref().is_none_or(|only| only == *family));
    for family in families {
        for home in args.shared.homes(&cluster, family).await? {
            for meta in metas.iter().filter(|meta| meta.family == family) {
                let found = report::read(&cluster, &home, meta.name).await?;
                let stored = found.as_ref().and_then(report::parse);
                let ledger = Ledger::load(&cluster, &home, meta.name).await.context("status")?;
                if stored.is_none() && ledger.journals().is_empty() {
                    continue;
                }
                let elsewhere = |release: &String| {
                    stored.as_ref().is_some_and(|stored| stored.report.release != *release)
                };
                if args.release.as_ref().is_some_and(elsewhere) {
                    continue;
                }
                rows.push(Row {
                    step: meta.name.to_owned(),
                    home: home.clone(),
                    stored,
                    journals: ledger.journals().to_vec(),
                });
            }
        }
    }
    match args.output {
        Format::Json => {
            let rows: Vec<Value> = rows.iter().map(as_json).collect();
            println!("{}", serde_json::to_string_pretty(&rows)?);
        }
        Format::Table => print_table(&rows),
    }
    let open = rows.iter().filter(|row| row.open().is_some()).count();
    Ok(ending(
        Ended::Done,
        match (rows.len(), open) {
            (0, _) => "no step has run here yet".to_owned(),
            (_, 0) => "no open journals".to_owned(),
            (_, open) => format!("{open} open journals: the last column says what to do"),
        },
    ))
}

fn as_json(row: &Row) -> Value {
    json!({
        "step": row.step, "home": row.home,
        "report": row.stored.as_ref().map(|stored| &stored.report),
        "history": row.stored.as_ref().map(|stored| &stored.history),
        "journals": row.journals,
        "next": row.next(),
    })
}

fn print_table(rows: &[Row]) {
    let mut table: Vec<[String; 7]> =
        vec![["STEP", "HOME", "RESULT", "AGE", "OBJECTS", "JOURNAL", "NEXT"].map(str::to_owned)];
    for row in rows {
        let report = row.stored.as_ref().map(|stored| &stored.report);
        table.push([
            row.step.clone(),
            row.home.clone(),
            report.map_or("died half-way", |report| report.result.word()).to_owned(),
            report.map_or_else(|| "-".to_owned(), |report| age(&report.finished)),
            report.map_or_else(String::new, |report| report::counted(&report.counts)),
            row.journal(),
            row.next(),
        ]);
    }
    let widths: Vec<usize> =
        (0..6).map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in &table {
        let cells: Vec<String> =
            row.iter().take(6).zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("{}", format!("{}  {}", cells.join("  "), row[6]).trim_end());
    }
    for row in rows {
        if let Some(stored) = &row.stored {
            println!("\n{}", stored.report.verdict);
        }
    }
}

/// How long ago, as kubectl says it.
fn age(time: &str) -> String {
    let Ok(then) = time.parse::<jiff::Timestamp>() else { return time.to_owned() };
    let seconds = jiff::Timestamp::now().duration_since(then).as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

pub(crate) async fn report(args: &ReportArgs, metas: &[Meta]) -> anyhow::Result<Ending> {
    let cluster = args.shared.cluster(PATIENCE).await?;
    let meta = step_named(metas, &args.step)?;
    let home = args.shared.home_of(&cluster, meta).await?;
    let found = report::read(&cluster, &home, meta.name).await?.with_context(|| {
        format!("{} has left no report in namespace {home}: it never ended there", meta.name)
    })?;
    let stored = report::parse(&found).context("the report is not readable")?;
    print!("{}", stored.report.summary());
    let outcomes = report::outcomes(&found);
    if !outcomes.is_empty() {
        println!("\nWhat the last run that touched anything did:");
    }
    for outcome in &outcomes {
        let detail = if outcome.detail.is_empty() { String::new() } else { format!(": {}", outcome.detail) };
        println!("{} {} {}{detail}", outcome.at, outcome.what, outcome.object);
    }
    if stored.history.len() > 1 {
        println!("\nEarlier verdicts:");
        stored.history.iter().skip(1).for_each(|line| println!("{line}"));
    }
    Ok(ending(Ended::Done, format!("{} objects", outcomes.len())))
}
