//! What a real API server answered to each row, normalised: the simulation is compared with this where no real server is at
//! hand, and a real one too, so that an upgrade of Kubernetes shows what it changes.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::side::Answered;

/// Answers by the name of their case. A row without an answer is one that only the simulation runs.
pub type Recorded = BTreeMap<String, Vec<Option<Answered>>>;

fn file(subject: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/conformance/recorded/{subject}.json"))
}

/// Reads what was recorded of a subject; nothing if that was never done.
pub fn read(subject: &str) -> Result<Recorded> {
    let file = file(subject);
    let text = match std::fs::read_to_string(&file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Recorded::new()),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    let cases: BTreeMap<String, Vec<Value>> =
        serde_json::from_str(&text).with_context(|| format!("{} is not what it was", file.display()))?;
    let answer = |row: Value| -> Option<Answered> {
        let status = u16::try_from(row.get("status")?.as_u64()?).ok()?;
        Some(Answered { status, body: row.get("body").cloned().unwrap_or_default() })
    };
    Ok(cases.into_iter().map(|(name, rows)| (name, rows.into_iter().map(answer).collect())).collect())
}

/// Writes the answers down, one line for each, so that a difference is seen in a diff.
pub fn write(subject: &str, recorded: &Recorded) -> Result<()> {
    let mut text = String::from("{");
    for (index, (name, rows)) in recorded.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\n{}: [", json!(name))?;
        for (index, row) in rows.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            let row = row.as_ref().map(|row| json!({"status": row.status, "body": row.body}));
            write!(text, "{comma}\n  {}", row.unwrap_or_default())?;
        }
        text.push_str("\n]");
    }
    text.push_str("\n}\n");
    let file = file(subject);
    std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
}
