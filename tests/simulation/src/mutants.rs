//! Bugs that are put into the steps on purpose, to prove that the simulation finds them.
//!
//! A simulation in which every schedule holds proves nothing by itself: it may look at the wrong things. So
//! `mutants.txt` names bugs that somebody could have written, and the program `mutants` puts one after the other into a copy
//! of the sources and expects the simulation to fail. What is here decides, without touching a file.

use std::{collections::BTreeSet, fmt, ops::Range};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::trial::HOLDS_NOW;

/// The bugs that are kept, one paragraph each.
pub const KEPT: &str = include_str!("../mutants.txt");

/// Where they are: steps and what the steps stand on. A bug in a test would prove nothing.
pub const PLACES: [&str; 2] = ["runtime/src", "bins"];

/// A bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutant {
    /// How it is chosen.
    pub name: String,
    /// What it does, in a sentence.
    pub bug: String,
    /// What the simulation is asked to try: where nothing narrows it down, every point of the fixture.
    pub tries: Vec<String>,
    /// The changes that make it.
    pub edits: Vec<Edit>,
}

/// One change of the sources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A piece of code that occurs once, wherever its file has moved to, becomes another.
    Text {
        /// The code. Where it has white space, any will do: it may have been indented anew.
        anchor: String,
        /// What takes its place.
        replacement: String,
    },
    /// A place in a file becomes something else: how cargo-mutants says it.
    Span {
        /// The file.
        path: String,
        /// From where to where, as lines and columns that count characters from one.
        from: (usize, usize),
        /// The first character that stays.
        to: (usize, usize),
        /// What takes its place.
        replacement: String,
    },
}

/// A file, by its path below the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its path.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// Reads bugs. A paragraph is a name, indented lines that say what it does (and after `try:` what finds it), then code:
/// lines with `-` become those with `+` after them. Lines with `#` are for people.
pub fn parse(text: &str) -> Result<Vec<Mutant>> {
    let mut mutants = Vec::new();
    for paragraph in text.split("\n\n") {
        let lines: Vec<&str> =
            paragraph.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()).collect();
        let Some((name, rest)) = lines.split_first() else { continue };
        mutants.push(paragraph_of(name.trim(), rest).with_context(|| format!("the mutant {name}"))?);
    }
    let mut known = BTreeSet::new();
    for mutant in &mutants {
        ensure!(known.insert(&mutant.name), "two mutants are named {}", mutant.name);
    }
    Ok(mutants)
}

fn paragraph_of(name: &str, lines: &[&str]) -> Result<Mutant> {
    ensure!(
        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'),
        "its name should be small letters with hyphens between them"
    );
    let (mut bug, mut tries) = (Vec::new(), vec!["fixture".to_owned()]);
    let mut hunks: Vec<(Vec<&str>, Vec<&str>)> = Vec::new();
    for line in lines {
        if let Some(code) = line.strip_prefix('-') {
            match hunks.last_mut() {
                Some((before, after)) if after.is_empty() => before.push(code),
                _ => hunks.push((vec![code], Vec::new())),
            }
        } else if let Some(code) = line.strip_prefix('+') {
            hunks.last_mut().context("nothing stands before the code that is new")?.1.push(code);
        } else if let Some(words) = line.trim().strip_prefix("try:") {
            tries = words.split_whitespace().map(str::to_owned).collect();
        } else {
            ensure!(hunks.is_empty(), "after its code stands: {line}");
            bug.push(line.trim());
        }
    }
    ensure!(!bug.is_empty(), "nothing says what it does");
    ensure!(!hunks.is_empty(), "it changes nothing");
    let edits = hunks
        .into_iter()
        .map(|(before, after)| Edit::Text { anchor: before.join("\n"), replacement: after.join("\n") })
        .collect();
    Ok(Mutant { name: name.to_owned(), bug: bug.join(" "), tries, edits })
}

/// Reads what `cargo mutants --list --json` says, each with the same tries.
pub fn parse_listed(json: &str, tries: &[String]) -> Result<Vec<Mutant>> {
    let listed: Vec<Value> = serde_json::from_str(json).context("this is no list of cargo-mutants")?;
    listed.iter().map(|one| listed_of(one, tries).with_context(|| format!("in the list: {one}"))).collect()
}

fn listed_of(one: &Value, tries: &[String]) -> Result<Mutant> {
    let text = |key: &str| one[key].as_str().with_context(|| format!("{key} is missing"));
    let place = |end: &str| {
        let number = |key: &str| {
            let number = one["span"][end][key].as_u64().and_then(|number| usize::try_from(number).ok());
            number.with_context(|| format!("{key} of its {end} is missing"))
        };
        anyhow::Ok((number("line")?, number("column")?))
    };
    let edit = Edit::Span {
        path: text("file")?.to_owned(),
        from: place("start")?,
        to: place("end")?,
        replacement: text("replacement")?.to_owned(),
    };
    let name = text("name")?.to_owned();
    Ok(Mutant { bug: name.clone(), name, tries: tries.to_vec(), edits: vec![edit] })
}

/// Draws all of them in an order that depends on the seed alone.
pub fn draw(mutants: &mut [Mutant], seed: u64) {
    fastrand::Rng::with_seed(seed).shuffle(mutants);
}

/// Where a text has this code, whatever the white space.
fn places(text: &str, code: &str) -> Vec<Range<usize>> {
    let words: Vec<&str> = code.split_whitespace().collect();
    let Some((first, rest)) = words.split_first() else { return Vec::new() };
    let ends = |start: usize| {
        rest.iter().try_fold(start + first.len(), |end, word| {
            let after = &text[end..];
            let next = after.trim_start();
            (next.len() < after.len() && next.starts_with(word)).then(|| text.len() - next.len() + word.len())
        })
    };
    text.match_indices(first).filter_map(|(start, _)| Some(start..ends(start)?)).collect()
}

/// The byte at which a line's column is.
fn offset(text: &str, (line, column): (usize, usize)) -> Option<usize> {
    let before = line.checked_sub(1)?;
    let start: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let rest = text.get(start..)?;
    let within = rest.char_indices().map(|(at, _)| at).chain([rest.len()]).nth(column.checked_sub(1)?)?;
    Some(start + within)
}

impl Edit {
    /// The file that it changes, the place in it, and what takes its place.
    fn find<'a>(&'a self, sources: &[Source]) -> Result<(usize, Range<usize>, &'a str)> {
        match self {
            Self::Text { anchor, replacement } => {
                let words = |code: &str| code.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                ensure!(words(anchor) != words(replacement), "it changes nothing:\n{anchor}");
                let mut found = Vec::new();
                for (file, source) in sources.iter().enumerate() {
                    found.extend(places(&source.text, anchor).into_iter().map(|place| (file, place)));
                }
                match &found[..] {
                    [(file, place)] => Ok((*file, place.clone(), replacement)),
                    [] => bail!("this is nowhere in the sources any more:\n{anchor}"),
                    many => {
                        let files: Vec<&str> =
                            many.iter().map(|(file, _)| sources[*file].path.as_str()).collect();
                        bail!("this should be in the sources once, and is in {}:\n{anchor}", files.join(", "))
                    }
                }
            }
            Self::Span { path, from, to, replacement } => {
                let file = sources.iter().position(|source| source.path == *path);
                let file = file.with_context(|| format!("there is no {path}"))?;
                let text = &sources[file].text;
                let place = offset(text, *from).zip(offset(text, *to)).filter(|(from, to)| from <= to);
                let (from, to) = place.with_context(|| format!("{path} is shorter than that"))?;
                Ok((file, from..to, replacement))
            }
        }
    }
}

impl Mutant {
    /// Whether a program made it up: then it may not even compile.
    #[must_use]
    pub fn is_drawn(&self) -> bool {
        self.edits.iter().any(|edit| matches!(edit, Edit::Span { .. }))
    }

    /// The files that it changes, as they are then.
    pub fn apply(&self, sources: &[Source]) -> Result<Vec<Source>> {
        let mut edits = Vec::new();
        for edit in &self.edits {
            edits.push(edit.find(sources).with_context(|| format!("the mutant {}", self.name))?);
        }
        // From the end, so that the places of the others stay what they are.
        edits.sort_by_key(|(file, place, _)| (*file, std::cmp::Reverse(place.start)));
        let mut changed: Vec<(usize, Source)> = Vec::new();
        for (file, place, replacement) in edits {
            if changed.last().is_none_or(|(last, _)| *last != file) {
                changed.push((file, sources[file].clone()));
            }
            if let Some((_, source)) = changed.last_mut() {
                source.text.replace_range(place, replacement);
            }
        }
        Ok(changed.into_iter().map(|(_, source)| source).collect())
    }
}

/// How a simulation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Trials were made.
    Tried {
        /// How many.
        trials: usize,
        /// The first that did not hold.
        failed: Option<Failed>,
    },
    /// Even a run in which nothing goes wrong did not end well, for this reason.
    Undisturbed(String),
    /// It did not end within so many seconds: time in it is virtual, so it never would.
    Never(u64),
    /// It proves nothing, for this reason.
    Nothing(String),
}

/// A trial that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Scenario, what went wrong, and where.
    pub trial: String,
    /// What did not hold.
    pub why: String,
}

impl Failed {
    /// Reads what a simulation tells of a trial below its name.
    fn of(trial: String, told: &[&str]) -> Self {
        let mut told = told.iter().map(|line| line.trim()).peekable();
        // Which call was hit is told again.
        let call = trial.split_once(" at ").map_or("", |(_, call)| call);
        told.next_if(|line| !call.is_empty() && line.starts_with(call));
        let why = told.next().unwrap_or_default();
        Self { trial, why: with_next(why, &mut told) }
    }
}

/// A line, and where it ends with a colon those in which it is said what.
fn with_next<'a>(line: &str, next: &mut impl Iterator<Item = &'a str>) -> String {
    let mut whole = line.to_owned();
    while whole.ends_with(':')
        && let Some(more) = next.next()
    {
        whole = format!("{whole} {}", more.trim());
    }
    whole
}

impl fmt::Display for Failed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.trial, self.why)
    }
}

/// Tells from what a simulation has printed how it ended.
#[must_use]
pub fn ended(output: &str) -> Ended {
    let mut lines = output.lines().peekable();
    let (mut trials, mut first) = (0, None);
    while let Some(line) = lines.next() {
        // What is indented is told by a step.
        let Some((scenario, said)) = line.split_once(": ").filter(|_| !line.starts_with(' ')) else {
            continue;
        };
        if let Some(tried) = said.split(", ").find_map(|part| part.strip_suffix(" points")?.parse().ok()) {
            let tried: usize = tried;
            trials += tried;
        } else if let Some(why) = said.strip_prefix("not tried: ") {
            let why = with_next(why, &mut lines);
            // What the server cannot do says nothing about the step.
            let is_unknown = why.contains("the simulated API server does not know");
            return if is_unknown { Ended::Nothing(why) } else { Ended::Undisturbed(why) };
        } else if let Some(trial) = said.strip_prefix("FAILED ") {
            let mut told = Vec::new();
            while let Some(more) = lines.next_if(|line| line.starts_with("  ")) {
                told.push(more);
            }
            let failed = Failed::of(format!("{scenario}: {trial}"), &told);
            // What is known not to hold, and does, is no invariant that is broken.
            if !failed.why.starts_with(HOLDS_NOW) {
                first.get_or_insert(failed);
            }
        }
    }
    match (trials, &first) {
        (0, None) => Ended::Nothing("no trial was made".to_owned()),
        _ => Ended::Tried { trials, failed: first },
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tried { trials, failed: None } => write!(out, "all of {trials} trials hold"),
            Self::Tried { failed: Some(failed), .. } => write!(out, "fails: {failed}"),
            Self::Undisturbed(why) => write!(out, "an undisturbed run fails: {why}"),
            Self::Never(after) => write!(out, "did not end within {after} s"),
            Self::Nothing(why) => out.write_str(why),
        }
    }
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The simulation fails where it holds without the bug.
    Found(Failed),
    /// The bug changes nothing that the simulation looks at, in so many trials.
    Survived(usize),
    /// It could not be tried.
    NotTried(String),
}

impl Verdict {
    /// What a simulation with the bug tells, where the same one holds without.
    #[must_use]
    pub fn of(with: Ended) -> Self {
        match with {
            Ended::Tried { failed: Some(failed), .. } => Self::Found(failed),
            Ended::Tried { trials, .. } => Self::Survived(trials),
            Ended::Undisturbed(why) => Self::Found(Failed { trial: "an undisturbed run".to_owned(), why }),
            Ended::Never(_) => Self::Found(Failed { trial: "some trial".to_owned(), why: with.to_string() }),
            Ended::Nothing(why) => Self::NotTried(why),
        }
    }

    /// Whether it proves that the simulation finds the bug.
    #[must_use]
    pub fn is_found(&self) -> bool {
        matches!(self, Self::Found { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Found(failed) => write!(out, "{failed}"),
            Self::Survived(trials) => write!(out, "SURVIVED {trials} trials"),
            Self::NotTried(why) => write!(out, "NOT TRIED: {}", why.lines().next().unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    fn mutant(anchor: &str, replacement: &str) -> Mutant {
        let edit = Edit::Text { anchor: anchor.to_owned(), replacement: replacement.to_owned() };
        Mutant { name: "m".into(), bug: "b".into(), tries: Vec::new(), edits: vec![edit] }
    }

    /// All Rust files below a folder of the workspace.
    fn below(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = folder.join(entry.unwrap().file_name());
            if root.join(&path).is_dir() {
                below(root, &path, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(source(
                    path.to_str().unwrap(),
                    &std::fs::read_to_string(root.join(&path)).unwrap(),
                ));
            }
        }
    }

    #[test]
    fn every_kept_mutant_changes_sources_that_are_there_and_only_one_place_each() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut sources = Vec::new();
        for place in PLACES {
            below(&root, Path::new(place), &mut sources);
        }
        let mutants = parse(KEPT).unwrap();
        assert!(mutants.len() >= 20, "{}", mutants.len());
        let wrong: Vec<String> = mutants
            .iter()
            .filter_map(|mutant| mutant.apply(&sources).err())
            .map(|error| format!("{error:#}"))
            .collect();
        assert!(
            wrong.is_empty(),
            "tests/simulation/mutants.txt must follow the sources:\n{}",
            wrong.join("\n")
        );
    }

    #[test]
    fn a_paragraph_says_what_the_bug_is_what_finds_it_and_what_changes() {
        let text = "# For people.\n\na-bug\n  It is wrong\n  in two lines.\n  try: fixture --mode kill-after\n-old\n\
                    -  code\n+new\n-more\n\n# Another.\nb-bug\n  It lacks.\n-gone\n";
        let mutants = parse(text).unwrap();
        let edit = |anchor: &str, replacement: &str| Edit::Text {
            anchor: anchor.to_owned(),
            replacement: replacement.to_owned(),
        };
        assert_eq!(mutants[0].name, "a-bug");
        assert_eq!(mutants[0].bug, "It is wrong in two lines.");
        assert_eq!(mutants[0].tries, ["fixture", "--mode", "kill-after"]);
        assert_eq!(mutants[0].edits, [edit("old\n  code", "new"), edit("more", "")]);
        assert_eq!((mutants[1].tries.len(), &mutants[1].edits[..]), (1, &[edit("gone", "")][..]));
    }

    #[test]
    fn a_paragraph_that_cannot_be_meant_is_refused() {
        for (text, why) in [
            ("a-bug\n-old\n+new", "what it does"),
            ("a-bug\n  It is.", "changes nothing"),
            ("A bug\n  It is.\n-old", "small letters"),
            ("a-bug\n  It is.\n+new", "before the code"),
            ("a-bug\n  It is.\n-old\n  It was.", "after its code"),
            ("a-bug\n  It is.\n-old\n\na-bug\n  It is.\n-old", "two mutants"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn code_is_found_however_it_is_indented_and_its_neighbours_stay() {
        let files =
            [source("a.rs", "fn a() {\n    if x\n        && y {}\n}\n"), source("b.rs", "fn b() {}\n")];
        let changed = mutant("if x && y", "if x").apply(&files).unwrap();
        assert_eq!(changed, [source("a.rs", "fn a() {\n    if x {}\n}\n")]);
        let twice = Mutant {
            edits: [mutant("fn a", "fn c"), mutant("y {}", "z {}")].map(|one| one.edits[0].clone()).into(),
            ..mutant("", "")
        };
        assert_eq!(twice.apply(&files).unwrap()[0].text, "fn c() {\n    if x\n        && z {}\n}\n");
    }

    #[test]
    fn code_that_is_gone_or_there_twice_or_stays_the_same_is_an_error_that_names_the_mutant() {
        let files = [source("a.rs", "one two two"), source("b.rs", "one")];
        for (anchor, replacement, why) in [
            ("three", "x", "nowhere"),
            ("one", "x", "a.rs, b.rs"),
            ("two", "x", "a.rs, a.rs"),
            ("one  two", "one two", "nothing"),
        ] {
            let error = format!("{:#}", mutant(anchor, replacement).apply(&files).unwrap_err());
            assert!(error.contains("the mutant m") && error.contains(why), "{anchor}: {error}");
        }
    }

    #[test]
    fn what_cargo_mutants_lists_is_applied_where_it_says() {
        let place = |line: u32, column: u32| serde_json::json!({"line": line, "column": column});
        let list = serde_json::json!([{
            "file": "a.rs", "name": "a.rs:2:5: replace ä with b", "replacement": "b", "genre": "FnValue",
            "span": {"start": place(2, 5), "end": place(3, 2)},
        }]);
        let mutants = parse_listed(&list.to_string(), &["fixture".to_owned()]).unwrap();
        assert_eq!(mutants[0].tries, ["fixture"]);
        let files = [source("b.rs", ""), source("a.rs", "fn x\n  ä ä\n ü\n")];
        assert_eq!(mutants[0].apply(&files).unwrap(), [source("a.rs", "fn x\n  ä bü\n")]);
        assert!(mutants[0].apply(&files[..1]).is_err());
        assert!(mutants[0].apply(&[source("a.rs", "short")]).is_err());
        assert!(parse_listed("[{}]", &[]).is_err());
    }

    #[test]
    fn a_seed_draws_the_same_order_each_time() {
        let drawn = |seed: u64| {
            let mut mutants: Vec<Mutant> =
                (0..50).map(|n| Mutant { name: n.to_string(), ..mutant("a", "b") }).collect();
            draw(&mut mutants, seed);
            mutants.into_iter().map(|one| one.name).collect::<Vec<_>>()
        };
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    const HOLDS: &str =
        "fixture: 80 calls, 120 points, 0 failed, 3.1 s (kill-after 120)\n120 passed, 0 failed\n";

    /// What a simulation prints of which this trial fails, with this said about it.
    fn fails(trial: &str, told: &str) -> String {
        format!(
            "running\nfixture: 80 calls, 7 points, 1 failed, 3.1 s (kill-after 7)\nfixture: FAILED {trial}\n\
             {told}6 passed, 1 failed\n"
        )
    }

    #[test]
    fn a_bug_is_found_by_the_first_trial_that_fails_and_by_what_does_not_hold() {
        for (trial, told, why) in [
            ("asleep at Move: delete /a/b", "  left open:\n  Lease/a\n  log\n", "left open: Lease/a"),
            // The crash harness tells the call once more.
            ("fail-403 at Move: delete /a/b", "  Move: delete /a/b -> 403\n  it ended\n  log\n", "it ended"),
            ("page-expires 3", "  it should list anew\n", "it should list anew"),
            ("seed 7: cut from call 3 of run 1 on", "  not finished\n  again: make\n", "not finished"),
        ] {
            let found = Verdict::of(ended(&fails(trial, told)));
            assert_eq!(found.to_string(), format!("fixture: {trial}: {why}"));
            assert!(found.is_found());
        }
        assert_eq!(Verdict::of(ended(HOLDS)), Verdict::Survived(120));
    }

    #[test]
    fn what_holds_though_it_is_known_not_to_does_not_find_a_bug() {
        let told = format!("  {HOLDS_NOW}: a list\n");
        let output = fails("swallowed at Read: list /a", &told);
        assert_eq!(Verdict::of(ended(&output)), Verdict::Survived(7));
        let more = output
            + "other: 80 calls, 1 points, 1 failed, 1 s ()\nother: FAILED lag at Read: list /b\n  no\n";
        assert_eq!(Verdict::of(ended(&more)).to_string(), "other: lag at Read: list /b: no");
    }

    #[test]
    fn a_bug_that_every_run_meets_is_found_without_a_trial() {
        let output = "fixture: not tried: undisturbed: exit 1\nlog: more\n0 passed, 1 failed\n";
        let found = Verdict::of(ended(output));
        assert_eq!(found.to_string(), "an undisturbed run: undisturbed: exit 1");
        let output = "fixture: not tried: what must never happen:\nthe lock is lost\n0 passed, 1 failed\n";
        let found = Verdict::of(ended(output));
        assert_eq!(found.to_string(), "an undisturbed run: what must never happen: the lock is lost");
        assert_eq!(Verdict::of(Ended::Never(9)).to_string(), "some trial: did not end within 9 s");
    }

    #[test]
    fn a_simulation_that_tries_nothing_or_cannot_proves_nothing() {
        let none = "fixture: 80 calls, 0 points, 0 failed, 0.1 s ()\n0 passed, 0 failed\n";
        let unknown = "fixture: not tried: the simulated API server does not know:\nX\n0 passed, 1 failed\n";
        for output in [none, unknown, ""] {
            assert!(matches!(ended(output), Ended::Nothing(_)), "{output}");
            assert!(!Verdict::of(ended(output)).is_found());
        }
    }
}
