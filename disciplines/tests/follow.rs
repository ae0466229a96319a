//! Carries out what `docs/disciplines.md` says, to the letter, in a copy of this tree. Needs root: the example's own tests load
//! programs into the kernel.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The tree's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What stands between a line ```` ```sh ```` and the next fence, in order.
fn steps(page: &str) -> Vec<String> {
    let mut blocks = page.split("\n```sh\n").skip(1);
    blocks
        .by_ref()
        .map(|rest| rest.split("\n```").next().unwrap_or(rest).to_owned())
        .collect()
}

fn run(in_: &Path, line: &str) {
    let done = Command::new("bash")
        .args(["-euo", "pipefail", "-c", line])
        .current_dir(in_)
        .env("CARGO_TARGET_DIR", place("target"))
        .output()
        .expect("bash is there");
    assert!(
        done.status.success(),
        "{line}\n{}{}",
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Where the copy and what is built of it lie: always the same place, or cargo would take one copy's for another's.
fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("follow")
        .join(name)
}

/// Everything of the tree that a clone has: `target` and what starts with a dot has no part in it.
fn copy_to(copy: &Path) {
    for entry in fs::read_dir(root()).expect("the tree") {
        let entry = entry.expect("an entry");
        let name = entry.file_name();
        let name = name.to_str().expect("a plain name");
        if name.starts_with('.') || ["target", "lab-out"].contains(&name) {
            continue;
        }
        let to = copy.join(name);
        run(
            copy,
            &format!("cp -a '{}' '{}'", entry.path().display(), to.display()),
        );
    }
}

#[test]
fn the_steps_of_the_page_add_a_discipline_and_change_nothing_else() {
    let page = fs::read_to_string(root().join("docs/disciplines.md")).expect("the page");
    let steps = steps(&page);
    assert!(steps.len() >= 3, "the page has its steps: {steps:?}");
    let copy = place("tree");
    let _ = fs::remove_dir_all(&copy); // of an earlier run, if there was one
    fs::create_dir_all(&copy).expect("a directory");
    copy_to(&copy);
    for step in &steps {
        run(&copy, step);
    }
    for untouched in ["crates", "bpf"] {
        let (before, after) = (root().join(untouched), copy.join(untouched));
        run(
            &copy,
            &format!("diff -r '{}' '{}'", before.display(), after.display()),
        );
    }
}
