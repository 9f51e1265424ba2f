//! The commands of the upgrade guide, run as a reader would run them.

use std::{env, fs, os::unix::fs::symlink, path::Path, process::Command};

use tempfile::TempDir;

use crate::{
    clusters::kubeconfig,
    programs::{Said, UNTHROTTLED, needed},
};

/// The guide, relative to this crate.
const GUIDE: &str = "../../docs/event-mesh.md";

/// What a reader has at hand: the guide, the programs that it calls, and the chart that it upgrades.
pub struct Reader {
    blocks: Vec<(String, String)>,
    place: TempDir,
    variables: Vec<(String, String)>,
}

impl Reader {
    /// A reader who calls this Helm `helm`, has this folder as the chart `installation`, and knows of the release before:
    /// which revision it was, and the image of its event-services.
    pub fn with(helm: u8, chart: &str, old_revision: &str, old_image: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let bin = place.path().join("bin");
        fs::create_dir(&bin).unwrap();
        symlink(needed(&format!("HELM{helm}"), "a Helm"), bin.join("helm")).unwrap();
        symlink(needed("KUBECTL", "a kubectl"), bin.join("kubectl")).unwrap();
        symlink(needed("BELAY_BIN", "the belay executable"), bin.join("belay")).unwrap();
        symlink(chart, place.path().join("installation")).unwrap();
        let variables = [("OLD_REVISION", old_revision), ("OLD_IMAGE", old_image)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
        Self { blocks: blocks(), place, variables }
    }

    /// Runs the commands of the block with this name, up to the first that fails.
    pub fn run(&self, name: &str) -> Said {
        let (_, commands) = self.blocks.iter().find(|(block, _)| block == name).unwrap_or_else(|| {
            panic!("the guide has no block ```sh {name}");
        });
        let mut path = self.place.path().join("bin").into_os_string();
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        let output = Command::new("sh")
            .args(["-euxc", commands])
            .current_dir(self.place.path())
            .env("PATH", path)
            .env("KUBECONFIG", kubeconfig())
            .envs(UNTHROTTLED)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let all = format!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
        println!("{name}:\n{all}");
        Said { succeeded: output.status.success(), stdout, all }
    }
}

/// What the guide quotes of the steps' own words: the first cells of its table of failures, without what differs from
/// one failure to the next.
pub fn quotations() -> Vec<String> {
    let text = text();
    let (_, table) = text.split_once("| it says |").expect("the guide has a table of failures");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let first_cells = rows.filter_map(|row| row.split('|').nth(1));
    // Every other part stands between backticks.
    let quoted = first_cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    quoted
        .flat_map(|quoted| quoted.split('…'))
        .map(|part| part.trim().to_owned())
        .filter(|part| part.len() > 3)
        .collect()
}

fn text() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(GUIDE)).unwrap()
}

/// The names of all blocks of commands, in the guide's order.
pub fn names() -> Vec<String> {
    blocks().into_iter().map(|(name, _)| name).collect()
}

fn blocks() -> Vec<(String, String)> {
    blocks_of(&text())
}

/// Every block that begins with ```` ```sh NAME ````. What a reader could take for commands has no other beginning.
fn blocks_of(guide: &str) -> Vec<(String, String)> {
    let mut blocks: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in guide.lines() {
        match (inside, line.strip_prefix("```")) {
            (false, Some(opening)) => {
                inside = true;
                let name = match opening.split_once(' ').unwrap_or((opening, "")) {
                    ("sh", name) if !name.trim().is_empty() => name.trim(),
                    // What programs print, and values: kept apart by a name that nobody asks for.
                    ("" | "yaml", "") => "",
                    _ => panic!(
                        "```{opening}: commands stand in a block ```sh NAME, all else in ``` or ```yaml"
                    ),
                };
                blocks.push((name.to_owned(), String::new()));
            }
            (true, Some(_)) => inside = false,
            (true, None) => {
                if let Some((_, text)) = blocks.last_mut() {
                    text.push_str(line);
                    text.push('\n');
                }
            }
            (false, None) => {}
        }
    }
    blocks.retain(|(name, _)| !name.is_empty());
    blocks
}

/// Words that whoever wrote the guide meant to replace: capitals with hyphens between them.
#[cfg(test)]
fn placeholders(guide: &str) -> Vec<&str> {
    let words = guide.split(|letter: char| !letter.is_alphanumeric() && letter != '-');
    let shouts = |part: &str| part.len() > 2 && part.chars().all(|letter| letter.is_ascii_uppercase());
    let named = |word: &&str| word.contains('-') && !word.contains(|letter: char| letter.is_ascii_digit());
    words.filter(named).filter(|word| word.split('-').any(shouts)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_has_no_placeholder() {
        assert_eq!(
            placeholders("says OUTPUT-OF-LOOK, JOURNAL and job-STEP-restore"),
            ["OUTPUT-OF-LOOK", "job-STEP-restore"]
        );
        assert_eq!(placeholders(&text()), Vec::<&str>::new());
    }

    #[test]
    fn commands_stand_in_named_blocks_of_sh() {
        assert_eq!(
            blocks_of("```\nsaid\n```\n```sh look\nls\n```\n"),
            [("look".to_owned(), "ls\n".to_owned())]
        );
        assert!(!blocks().is_empty());
        for opening in ["bash look", "sh", "console", "shell x"] {
            let guide = format!("```{opening}\nls\n```\n");
            assert!(std::panic::catch_unwind(|| blocks_of(&guide)).is_err(), "{opening}");
        }
    }
}
