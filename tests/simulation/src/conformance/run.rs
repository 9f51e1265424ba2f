//! Runs a subject of the table on one side or on both, and says what differs.

use std::{collections::HashMap, path::PathBuf};

use anyhow::{Context, Result, bail};
use harness::crash::nothing_tried;
use jiff::Timestamp;
use serde_json::{Value, json};
use standins::cluster::TEST_KUBECONFIG;

use super::{
    normal::Normaliser,
    pattern::{differences, mismatches},
    recorded::{self, Recorded},
    row::{Case, Extent, Kept, Row},
    side::{Answered, Side},
};

/// Set to record the real answers anew.
const WRITE: &str = "BELAY_WRITE_CONFORMANCE";

/// What the simulation answers where it does not know what a real server would.
const NOT_SIMULATED: u16 = 501;

/// Runs a subject on the simulation, and on a real server if there is one. An error lists every row that is answered
/// otherwise than it should be.
pub async fn check(subject: &str, cases: &[Case]) -> Result<()> {
    let mut real = None;
    if let Some(kubeconfig) = std::env::var_os(TEST_KUBECONFIG).filter(|named| !named.is_empty()) {
        real = Some(Side::real(&PathBuf::from(kubeconfig)).await?);
    } else {
        nothing_tried(&format!("no API server (set {TEST_KUBECONFIG}) to compare the simulation with"))?;
    }
    let mut recorded = recorded::read(subject)?;
    let mut complaints = Vec::new();
    if let Some(real) = &real {
        let answers = answers(real, subject, cases).await?;
        if std::env::var_os(WRITE).is_some() {
            recorded.clone_from(&answers);
            recorded::write(subject, &recorded)?;
        }
        for case in cases {
            complaints.extend(judge(case, "real", &answers[case.name], recorded.get(case.name)));
        }
    }
    let simulated = Side::simulated().await.context("the simulation cannot be set up");
    match simulated {
        Ok(simulated) => {
            let answers = answers(&simulated, subject, cases).await?;
            for case in cases {
                complaints.extend(judge(case, "simulated", &answers[case.name], recorded.get(case.name)));
            }
        }
        Err(error) => complaints.push(format!("{error:#}")),
    }
    if !complaints.is_empty() {
        bail!("{subject}: {} rows are answered otherwise\n\n{}", complaints.len(), complaints.join("\n\n"));
    }
    Ok(())
}

/// The normalised answers to all rows of all cases.
async fn answers(side: &Side, subject: &str, cases: &[Case]) -> Result<Recorded> {
    // Namespaces of former runs may still be terminating on a real server, so each run has names of its own.
    let run = Timestamp::now().as_millisecond() % 1_000_000_000;
    let mut all = Recorded::new();
    for (index, case) in cases.iter().enumerate() {
        let namespace = format!("c{run}-{subject}-{index}");
        let answers = story(side, case, namespace).await.with_context(|| case.name)?;
        all.insert(case.name.to_owned(), answers);
    }
    Ok(all)
}

async fn story(side: &Side, case: &Case, namespace: String) -> Result<Vec<Option<Answered>>> {
    let mut normaliser = Normaliser::new(&namespace);
    let mut kept = Kept { namespace, answers: HashMap::new() };
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "{ns}"}});
    side.send(&super::row::post("/api/v1/namespaces", body), &kept, |_| true).await?;
    let mut answers = Vec::new();
    for row in &case.rows {
        if side.is_real() && matches!(row.extent, Extent::SimulationOnly(_)) {
            answers.push(None);
            continue;
        }
        let fits = |answered: &Answered| {
            let normal = normaliser.clone().normal(&answered.body);
            answered.status == row.status && mismatches(&row.body, &normal).is_empty()
        };
        let answered = side.send(row, &kept, fits).await?;
        if let Some(name) = row.keep {
            kept.answers.insert(name, answered.body.clone());
        }
        let body = normaliser.normal(&answered.body);
        let body = if matches!(row.extent, Extent::Pattern(_)) { cut(&row.body, &body) } else { body };
        answers.push(Some(Answered { status: answered.status, body }));
        if !side.is_real() && row.left_out.is_some() {
            break;
        }
    }
    Ok(answers)
}

/// Of an answer that counts only in part, what the pattern names: nothing else is written down.
fn cut(pattern: &Value, body: &Value) -> Value {
    match (pattern, body) {
        (Value::Object(wanted), Value::Object(found)) => found
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), cut(wanted.get(key)?, value))))
            .collect(),
        (Value::Object(wanted), Value::Array(found)) if wanted.contains_key("$has") => {
            let wanted = wanted["$has"].as_array().map(Vec::as_slice).unwrap_or_default();
            let fitting = |pattern: &Value| found.iter().find(|one| mismatches(pattern, one).is_empty());
            wanted.iter().filter_map(|pattern| Some(cut(pattern, fitting(pattern)?))).collect()
        }
        (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
            wanted.iter().zip(found).map(|(pattern, one)| cut(pattern, one)).collect()
        }
        (Value::String(text), _) if text == "<any>" || text.starts_with('~') => Value::String(text.clone()),
        _ => body.clone(),
    }
}

/// What is wrong with the answers to a case: one text for each row.
fn judge(
    case: &Case,
    side: &str,
    answers: &[Option<Answered>],
    recorded: Option<&Vec<Option<Answered>>>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (index, (row, answered)) in case.rows.iter().zip(answers).enumerate() {
        let Some(answered) = answered else { continue };
        let mut wrong = Vec::new();
        if side == "simulated" && row.left_out.is_some() {
            if answered.status != NOT_SIMULATED {
                wrong.push(format!("left out, but answered with {}", answered.status));
                complaints.push(complaint(case, index, row, side, answered, None, &wrong));
            }
            continue;
        }
        if answered.status != row.status {
            wrong.push(format!("status: expected {}, found {}", row.status, answered.status));
        }
        wrong.extend(mismatches(&row.body, &answered.body));
        let of_real = recorded.and_then(|rows| rows.get(index)?.as_ref());
        match of_real {
            Some(real) => wrong.extend(
                differences(&whole(real), &whole(answered))
                    .into_iter()
                    .map(|line| line.replace("simulated", side)),
            ),
            None if !matches!(row.extent, Extent::SimulationOnly(_)) => {
                wrong.push("what a real server answers was never recorded".to_owned());
            }
            None => {}
        }
        if !wrong.is_empty() {
            complaints.push(complaint(case, index, row, side, answered, of_real, &wrong));
        }
    }
    complaints
}

fn whole(answered: &Answered) -> Value {
    json!({"status": answered.status, "body": answered.body})
}

fn complaint(
    case: &Case,
    index: usize,
    row: &Row,
    side: &str,
    answered: &Answered,
    real: Option<&Answered>,
    wrong: &[String],
) -> String {
    let real = real.map_or_else(|| "nothing recorded".to_owned(), |real| whole(real).to_string());
    format!(
        "{side}: {}, row {}\n  request:  {}\n  expected: {} {}\n  recorded: {real}\n  {side}: {}\n    {}",
        case.name,
        index + 1,
        row.title(),
        row.status,
        row.body,
        whole(answered),
        wrong.join("\n    "),
    )
}
