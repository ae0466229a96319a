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

/// Has cargo begin with what is built of the tree, if it begins with nothing: the copy has the same files of the same ages, so that it builds
/// what the steps change and what depends on that, as it would in the tree itself. Copied, for what is built of the copy must
/// not come back into the tree.
fn begin_with_what_is_built() {
    let exe = std::env::current_exe().expect("a path");
    let built = exe.ancestors().nth(2).expect("target/PROFILE/deps/NAME");
    let profile = built.file_name().expect("a profile").to_string_lossy();
    let copy = place("target").join(&*profile);
    if copy.exists() {
        return;
    }
    fs::create_dir_all(copy.join("deps")).expect("a directory");
    let (from, to) = (built.display(), copy.display());
    // Programs are left out, for none of them is asked for.
    run(
        built,
        &format!(
            "cp -a --reflink=auto '{from}/build' '{from}/.fingerprint' '{to}'\n\
             find '{from}/deps' -name '*.rlib' -o -name '*.rmeta' -o -name '*.so' \
             | xargs cp -a --reflink=auto -t '{to}/deps'"
        ),
    );
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
    begin_with_what_is_built();
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
