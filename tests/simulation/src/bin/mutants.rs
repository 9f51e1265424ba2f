//! Puts bugs into a copy of the sources, one after the other, and expects the simulation to find each.
//!
//! The work tree is only read. The copy is below `target/mutants` and stays, so that cargo builds anew only what a bug
//! changes and what stands on it.

use std::{
    collections::BTreeSet,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use serde_json::Value;
use simulation::{
    explore::seconds,
    mutants::{Ended, KEPT, Mutant, PLACES, Source, Verdict, draw, ended, parse, parse_listed},
};

#[derive(Parser)]
#[command(name = "mutants", about = "Proves that the simulation finds bugs, by putting some in")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Look whether every bug of mutants.txt still has its place in the sources
    Check,
    /// Name the bugs of mutants.txt
    List,
    /// Try the bugs of mutants.txt
    Run {
        /// Those whose name has one of these in it; all if none is named
        names: Vec<String>,
        #[command(flatten)]
        how: How,
    },
    /// Try bugs that nobody chose, drawn from what `cargo mutants --list --json` says
    Drawn {
        /// A file with that list
        list: PathBuf,
        /// How many; those that do not compile are not counted
        #[arg(long, default_value_t = 30)]
        count: usize,
        /// What they are drawn by
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// What the simulation is asked to try, as words after each other
        #[arg(long, default_value = "fixture")]
        tries: String,
        #[command(flatten)]
        how: How,
    },
}

#[derive(Args)]
struct How {
    /// Seconds that one simulation may take: time in it is virtual, so one that takes longer never ends
    #[arg(long, default_value_t = 600)]
    limit: u64,
}

fn main() -> Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let files = tracked(&root)?;
    let sources = sources(&root, &files)?;
    let kept = parse(KEPT)?;
    match Arguments::parse().what {
        What::Check => Ok(check(&kept, &sources)),
        What::List => {
            for mutant in &kept {
                println!("{:<55} {}", mutant.name, mutant.bug);
            }
            Ok(ExitCode::SUCCESS)
        }
        What::Run { names, how } => {
            let chosen = |mutant: &Mutant| {
                names.is_empty() || names.iter().any(|name| mutant.name.contains(name.as_str()))
            };
            let mutants: Vec<Mutant> = kept.into_iter().filter(chosen).collect();
            ensure!(!mutants.is_empty(), "no mutant is named like this: {}", names.join(", "));
            let count = mutants.len();
            Bench::set_up(&root, &files, sources, how.limit)?.try_all(&mutants, count)
        }
        What::Drawn { list, count, seed, tries, how } => {
            let tries: Vec<String> = tries.split_whitespace().map(str::to_owned).collect();
            let json = fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
            let mut mutants = parse_listed(&json, &tries)?;
            draw(&mut mutants, seed);
            Bench::set_up(&root, &files, sources, how.limit)?.try_all(&mutants, count)
        }
    }
}

fn check(kept: &[Mutant], sources: &[Source]) -> ExitCode {
    let wrong: Vec<_> = kept.iter().filter_map(|mutant| mutant.apply(sources).err()).collect();
    for error in &wrong {
        println!("{error:#}");
    }
    println!("{} mutants, {} of them without a place", kept.len(), wrong.len());
    ExitCode::from(u8::from(!wrong.is_empty()))
}

/// The files that belong to the project, whether they are committed yet or not.
fn tracked(root: &Path) -> Result<BTreeSet<String>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("git names the files to copy, and cannot be started")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).context("the name of a file")?;
    // What is deleted and not yet committed is listed too.
    let there = |name: &&str| !name.is_empty() && root.join(name).symlink_metadata().is_ok();
    Ok(names.split('\0').filter(there).map(str::to_owned).collect())
}

/// The files into which bugs are put.
fn sources(root: &Path, files: &BTreeSet<String>) -> Result<Vec<Source>> {
    let is_source = |path: &&String| {
        let is_rust = Path::new(path).extension().is_some_and(|extension| extension == "rs");
        is_rust && PLACES.iter().any(|place| Path::new(path).starts_with(place))
    };
    let read = |path: &String| Ok(Source { path: path.clone(), text: fs::read_to_string(root.join(path))? });
    files.iter().filter(is_source).map(read).collect()
}

/// What a bug makes cargo build anew takes a minute to optimise, and seconds to run as it is.
const UNOPTIMISED: [&str; 4] = [
    "profile.dev.package.belay-runtime.opt-level=0",
    "profile.dev.package.belay-runtime.debug=false",
    "profile.dev.package.simulation.opt-level=0",
    "profile.dev.package.simulation.debug=false",
];

/// A copy of the workspace in which bugs can be tried.
struct Bench {
    tree: PathBuf,
    build: PathBuf,
    sources: Vec<Source>,
    limit: Duration,
}

impl Bench {
    /// Makes the copy, or brings it up to date: a file that is as it should be is not written, so that cargo sees no change.
    fn set_up(root: &Path, files: &BTreeSet<String>, sources: Vec<Source>, limit: u64) -> Result<Self> {
        let scratch = root.join("target/mutants");
        let (tree, build) = (scratch.join("tree"), scratch.join("build"));
        fs::create_dir_all(&tree)?;
        clear(&tree, Path::new(""), files)?;
        for file in files {
            let (from, to) = (root.join(file), tree.join(file));
            fs::create_dir_all(to.parent().context("a file is in a folder")?)?;
            if from.is_symlink() {
                if !to.is_symlink() {
                    std::os::unix::fs::symlink(fs::read_link(&from)?, &to)?;
                }
                continue;
            }
            let wanted = fs::read(&from)?;
            if fs::read(&to).ok().is_none_or(|found| found != wanted) {
                fs::write(&to, wanted).with_context(|| format!("writing {}", to.display()))?;
            }
        }
        Ok(Self { tree, build, sources, limit: Duration::from_secs(limit) })
    }

    fn write(&self, source: &Source) -> Result<()> {
        fs::write(self.tree.join(&source.path), &source.text)
            .with_context(|| format!("writing {}", source.path))
    }

    /// Builds the simulation; or says why it does not compile.
    fn build(&self) -> Result<Result<PathBuf, String>> {
        let mut cargo = Command::new("cargo");
        // What `cargo run` tells this program about itself would make build scripts run anew, and most of the workspace with
        // them, whenever somebody builds there by hand.
        let about_us = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        for (name, _) in std::env::vars().filter(|(name, _)| about_us(name)) {
            cargo.env_remove(name);
        }
        let built = cargo
            .args(["test", "--quiet", "--locked", "--workspace", "--test", "simulation", "--no-run"])
            .arg("--message-format=json-render-diagnostics")
            .args(UNOPTIMISED.iter().flat_map(|one| ["--config", one]))
            .env("CARGO_TARGET_DIR", &self.build)
            .current_dir(&self.tree)
            .output()
            .context("cargo cannot be started")?;
        if !built.status.success() {
            let told = String::from_utf8_lossy(&built.stderr).into_owned();
            let first = told.lines().find(|line| line.starts_with("error")).unwrap_or("error");
            return Ok(Err(format!("does not compile: {first}")));
        }
        let messages = String::from_utf8_lossy(&built.stdout).into_owned();
        let program =
            messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).find_map(|one| {
                let is_it = one["target"]["name"] == "simulation" && one["target"]["kind"][0] == "test";
                one["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
            });
        Ok(Ok(program.context("cargo does not say where the simulation is")?))
    }

    /// Runs the simulation. It is started without cargo, so that it can be ended.
    fn simulate(&self, program: &Path, tries: &[String]) -> Result<Ended> {
        let mut running = Command::new(program)
            .args(tries)
            .arg("--first-failure")
            .current_dir(self.tree.join("tests/simulation"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("the simulation cannot be started")?;
        let mut told = running.stdout.take().context("it tells nothing")?;
        let reader = std::thread::spawn(move || {
            let mut text = Vec::new();
            told.read_to_end(&mut text).map(|_| String::from_utf8_lossy(&text).into_owned())
        });
        let began = Instant::now();
        let in_time = loop {
            if running.try_wait()?.is_some() {
                break true;
            }
            if began.elapsed() > self.limit {
                running.kill()?;
                running.wait()?;
                break false;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        let Ok(output) = reader.join() else { bail!("what it tells could not be read") };
        if !in_time {
            return Ok(Ended::Never(self.limit.as_secs()));
        }
        Ok(ended(&output?))
    }

    /// Tries mutants until so many of them were tried, and prints a table.
    fn try_all(&self, mutants: &[Mutant], count: usize) -> Result<ExitCode> {
        let began = Instant::now();
        println!("building the simulation without a bug, in {}", self.build.display());
        let program = self.build()?.map_err(anyhow::Error::msg).context("without a bug")?;
        let tried: BTreeSet<&[String]> = mutants.iter().map(|mutant| &mutant.tries[..]).collect();
        for tries in tried {
            let ended = self.simulate(&program, tries)?;
            let holds = matches!(ended, Ended::Tried { failed: None, .. });
            ensure!(holds, "a bug proves nothing, since without one: {}: {ended}", tries.join(" "));
        }
        println!("without a bug all holds, {}", seconds(began.elapsed()));
        let mut table: Vec<(&str, Verdict, Duration)> = Vec::new();
        for mutant in mutants {
            if table.len() == count {
                break;
            }
            let began = Instant::now();
            println!("{}: {}", mutant.name, mutant.bug);
            let Some(ended) = self.try_one(mutant)? else { continue };
            let verdict = Verdict::of(ended);
            println!("  {}, {}", line(&verdict.to_string()), seconds(began.elapsed()));
            table.push((&mutant.name, verdict, began.elapsed()));
        }
        let width = table.iter().map(|(name, ..)| name.len()).max().unwrap_or_default();
        println!();
        for (name, verdict, _) in &table {
            println!("{name:<width$}  {}", line(&verdict.to_string()));
        }
        let found = table.iter().filter(|(_, verdict, _)| verdict.is_found()).count();
        println!("{found} of {} found, {}", table.len(), seconds(began.elapsed()));
        Ok(ExitCode::from(u8::from(found < table.len())))
    }

    /// Tries one; none if it is a drawn one that does not compile, which is no bug.
    fn try_one(&self, mutant: &Mutant) -> Result<Option<Ended>> {
        let changed = match mutant.apply(&self.sources) {
            Ok(changed) => changed,
            Err(error) => return Ok(Some(Ended::Nothing(format!("{error:#}")))),
        };
        changed.iter().try_for_each(|source| self.write(source))?;
        let tried = match self.build() {
            Ok(Ok(program)) => self.simulate(&program, &mutant.tries).map(Some),
            Ok(Err(why)) if mutant.is_drawn() => {
                println!("  {why}");
                Ok(None)
            }
            Ok(Err(why)) => Ok(Some(Ended::Nothing(why))),
            Err(error) => Err(error),
        };
        let before = self.sources.iter().filter(|source| changed.iter().any(|one| one.path == source.path));
        before.into_iter().try_for_each(|source| self.write(source))?;
        tried
    }
}

/// Takes away what is in the copy and not in the project any more.
fn clear(tree: &Path, folder: &Path, files: &BTreeSet<String>) -> Result<()> {
    for entry in fs::read_dir(tree.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            clear(tree, &path, files)?;
        } else if path.to_str().is_none_or(|path| !files.contains(path)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// As much of a text as a line takes.
fn line(text: &str) -> String {
    text.lines().collect::<Vec<_>>().join(" | ").chars().take(300).collect()
}
