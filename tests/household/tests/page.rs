//! What a reader copies from docs/writing-a-step.md is this crate, letter by letter: so it compiles, and its tests pass.
#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

#[test]
fn the_code_of_the_page_is_the_code_of_this_crate() {
    let page = file("../../docs/writing-a-step.md");
    let mut blocks = page.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let mut next = || blocks.next().unwrap().to_owned();
    assert_eq!(next(), file("src/lib.rs"));
    // The planner and its tests stand in two blocks.
    assert_eq!([next(), next()].join("\n"), file("src/plan.rs"));
    assert_eq!(next(), file("src/main.rs"));
}
