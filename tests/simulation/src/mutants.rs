//! Bugs that are put into the steps on purpose, to prove that the simulation finds them.
//!
//! A simulation in which every schedule holds proves nothing by itself: it may look at the wrong things. So
//! `mutants.txt` names bugs that somebody could have written, and the program `mutants` puts one after the other into a copy
//! of the sources and expects the simulation to fail. What is here decides, without touching a file.

use std::{collections::BTreeSet, fmt, ops::Range};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

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
    /// Points were tried.
    Tried {
        /// How many.
        points: usize,
        /// How many of them did not hold.
        failed: usize,
        /// Those that it names, which may be only the first ones.
        named: Vec<Failed>,
    },
    /// Even a run in which nothing goes wrong did not end well, for this reason.
    Undisturbed(String),
    /// It proves nothing, for this reason.
    Nothing(String),
}

/// A point that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Scenario, mode and call.
    pub point: String,
    /// What went wrong.
    pub mode: String,
    /// What did not hold.
    pub why: String,
}

/// Lines of a failure that are enough to see what it is about.
const WHY_LINES: usize = 3;

/// Tells from what a simulation has printed how it ended.
#[must_use]
pub fn ended(output: &str) -> Ended {
    let mut lines = output.lines().peekable();
    let (mut points, mut failed, mut named) = (0, 0, Vec::new());
    while let Some(line) = lines.next() {
        // What is indented is told by a step.
        let Some((scenario, said)) = line.split_once(": ").filter(|_| !line.starts_with(' ')) else {
            continue;
        };
        let number = |what: &str| {
            let word = said.split(", ").find_map(|part| part.strip_suffix(what))?;
            word.parse::<usize>().ok()
        };
        if let (Some(tried), Some(not_held)) = (number(" points"), number(" failed")) {
            points += tried;
            failed += not_held;
        } else if let Some(why) = said.strip_prefix("not tried: ") {
            // What the server cannot do says nothing about the step.
            let is_unknown = why.contains("the simulated API server does not know");
            return if is_unknown { Ended::Nothing(why.into()) } else { Ended::Undisturbed(why.into()) };
        } else if let Some(point) = said.strip_prefix("FAILED ")
            && let Some((mode, _)) = point.split_once(" at ")
        {
            let mut why = Vec::new();
            while why.len() < WHY_LINES
                && let Some(more) = lines.next_if(|line| line.starts_with("  "))
            {
                why.push(more.trim());
            }
            let (point, mode) = (format!("{scenario}: {point}"), mode.to_owned());
            named.push(Failed { point, mode, why: why.join(" | ") });
        }
    }
    match points {
        0 => Ended::Nothing("no point was tried".to_owned()),
        _ => Ended::Tried { points, failed, named },
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tried { points, failed: 0, .. } => write!(out, "all of {points} points hold"),
            Self::Tried { points, failed, named } => {
                write!(out, "{failed} of {points} points fail")?;
                named.first().map_or(Ok(()), |first| write!(out, ", such as {}: {}", first.point, first.why))
            }
            Self::Undisturbed(why) => write!(out, "an undisturbed run fails: {why}"),
            Self::Nothing(why) => out.write_str(why),
        }
    }
}

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The simulation fails where it holds without the bug.
    Found {
        /// How many points more fail.
        points: usize,
        /// What went wrong in the first of them.
        mode: String,
        /// Which that is, and what did not hold.
        first: String,
    },
    /// The bug changes nothing that the simulation looks at.
    Survived,
    /// It could not be tried.
    NotTried(String),
}

impl Verdict {
    /// Compares a simulation with the bug to one without. Only what holds without it tells that it was found.
    #[must_use]
    pub fn of(without: &Ended, with: &Ended) -> Self {
        let (before, known) = match without {
            Ended::Tried { failed, named, .. } if *failed == named.len() => (*failed, named),
            Ended::Tried { .. } => {
                return Self::NotTried(format!("without it too many points fail: {without}"));
            }
            other => return Self::NotTried(format!("without it too: {other}")),
        };
        match with {
            Ended::Tried { failed, named, .. } => {
                let is_new = |one: &&Failed| known.iter().all(|known| known.point != one.point);
                match named.iter().find(is_new) {
                    Some(first) => Self::Found {
                        points: failed.saturating_sub(before).max(1),
                        mode: first.mode.clone(),
                        first: format!("{}: {}", first.point, first.why),
                    },
                    None => Self::Survived,
                }
            }
            Ended::Undisturbed(why) => {
                Self::Found { points: 0, mode: "an undisturbed run".to_owned(), first: why.clone() }
            }
            Ended::Nothing(why) => Self::NotTried(why.clone()),
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
            Self::Found { mode, points: 0, .. } => write!(out, "found by {mode}"),
            Self::Found { mode, points, .. } => write!(out, "found by {mode}, points: {points}"),
            Self::Survived => out.write_str("SURVIVED"),
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

    const FAILS: &str = "running\n\
        fixture: 80 calls, 120 points, 2 failed, 3.1 s (kill-after 60, kill-before 60)\n\
        fixture: FAILED kill-after at Move: delete /a/b\n  12: DELETE /a/b\n  the state differs:\n  - x\n  y: z\n\n\
        fixture: FAILED kill-before at Read: list /a\n  no\n\n118 passed, 2 failed\n";
    const HOLDS: &str =
        "fixture: 80 calls, 120 points, 0 failed, 3.1 s (kill-after 120)\n120 passed, 0 failed\n";

    #[test]
    fn a_bug_is_found_by_a_point_that_fails_and_the_first_is_named() {
        let found = Verdict::of(&ended(HOLDS), &ended(FAILS));
        assert_eq!(found.to_string(), "found by kill-after, points: 2");
        let Verdict::Found { first, .. } = &found else { panic!("{found}") };
        assert_eq!(
            first,
            "fixture: kill-after at Move: delete /a/b: 12: DELETE /a/b | the state differs: | - x"
        );
        assert_eq!(Verdict::of(&ended(HOLDS), &ended(HOLDS)), Verdict::Survived);
    }

    #[test]
    fn what_fails_without_the_bug_too_does_not_find_it() {
        assert_eq!(Verdict::of(&ended(FAILS), &ended(FAILS)), Verdict::Survived);
        let more =
            FAILS.replace("2 failed, 3", "3 failed, 3") + "fixture: FAILED outage at Read: list /b\n  no\n";
        assert_eq!(Verdict::of(&ended(FAILS), &ended(&more)).to_string(), "found by outage, points: 1");
        let unnamed = FAILS.replace("2 failed, 3", "30 failed, 3");
        assert!(matches!(Verdict::of(&ended(&unnamed), &ended(FAILS)), Verdict::NotTried(_)));
    }

    #[test]
    fn a_bug_that_every_run_meets_is_found_without_a_point() {
        let output = "fixture: not tried: undisturbed: exit 1\nlog: more\n0 passed, 1 failed\n";
        let found = Verdict::of(&ended(HOLDS), &ended(output));
        assert_eq!(found.to_string(), "found by an undisturbed run");
    }

    #[test]
    fn a_simulation_that_tries_nothing_or_cannot_proves_nothing() {
        let none = "fixture: 80 calls, 0 points, 0 failed, 0.1 s ()\n0 passed, 0 failed\n";
        let unknown = "fixture: not tried: the simulated API server does not know:\nX\n0 passed, 1 failed\n";
        for output in [none, unknown, ""] {
            assert!(matches!(ended(output), Ended::Nothing(_)), "{output}");
            assert!(!Verdict::of(&ended(HOLDS), &ended(output)).is_found());
            assert!(!Verdict::of(&ended(output), &ended(FAILS)).is_found());
        }
    }
}
