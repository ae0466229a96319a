//! Carries out what `docs/disciplines.md` says, to the letter, in this tree as it stands, under a
//! layer that takes every change and is gone afterwards. Needs root: for the layer, and because the
//! example's own tests load programs into the kernel.
//!
//! One of the slow tests: cargo compiles and links what the steps change, the registry and the
//! example. What else is built of the tree is fresh, for it has the same paths, ages and
//! environment.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

/// What the steps may change: the folder, the lines of both halves of the registry, and what cargo
/// notes of them.
const MAY_CHANGE: [&str; 6] = [
    "disciplines/highest",
    "disciplines/Cargo.toml",
    "disciplines/src/lib.rs",
    "disciplines/experiments/Cargo.toml",
    "disciplines/experiments/src/lib.rs",
    "Cargo.lock",
];

/// The tree's root.
fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().expect("the tree")
}

/// Where cargo puts what it builds of this tree.
fn target() -> PathBuf {
    let exe = std::env::current_exe().expect("a path");
    let target = exe.ancestors().nth(3).expect("target/PROFILE/deps/NAME");
    target.canonicalize().expect("it is there")
}

/// What stands between a line ```` ```sh ```` and the next fence, in order.
fn steps(page: &str) -> Vec<String> {
    let mut blocks = page.split("\n```sh\n").skip(1);
    blocks.by_ref().map(|rest| rest.split("\n```").next().unwrap_or(rest).to_owned()).collect()
}

/// Runs a step as somebody would at a prompt in the tree.
fn run(line: &str) {
    let mut step = Command::new("bash");
    step.args(["-euo", "pipefail", "-c", line])
        .current_dir(root())
        .env("CARGO_TARGET_DIR", target());
    // What cargo tells this test of its crate is not for the cargo in there: build scripts that
    // asked for these names would run again.
    let told = std::env::vars_os().map(|(name, _)| name);
    for name in told.filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    }) {
        step.env_remove(name);
    }
    let done = step.output().expect("bash is there");
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{line}\n{out}{err}");
    println!("{line}\n{out}{err}");
}

/// A layer over the tree, and one over what cargo builds where that lies elsewhere, for the thread
/// that made it and its children: what they change lies in memory, and is gone when the last of
/// them ends, however it ends.
struct Layer {
    /// The memory. By its descriptor, since the tree's layer may hide where it is mounted.
    memory: File,
}

impl Layer {
    fn new() -> Layer {
        unshare(CloneFlags::CLONE_FS | CloneFlags::CLONE_NEWNS).expect("mounts of its own");
        let nothing = None::<&str>;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(nothing, "/", nothing, private, nothing).expect("mounts that are nobody else's");
        let place = env!("CARGO_TARGET_TMPDIR");
        mount(Some("memory"), place, Some("tmpfs"), MsFlags::empty(), nothing).expect("memory");
        let memory = File::open(place).expect("a directory");
        let layer = Layer { memory };
        layer.over(&root(), "tree");
        if !target().starts_with(root()) {
            layer.over(&target(), "target");
        }
        layer
    }

    fn over(&self, place: &Path, name: &str) {
        let (upper, work) = (self.changes(name), self.changes(&format!("{name}-work")));
        for directory in [&upper, &work] {
            fs::create_dir(directory).expect("a directory");
        }
        let lower = place.display();
        let (upper, work) = (upper.display(), work.display());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        let made = mount(Some("layer"), place, Some("overlay"), MsFlags::empty(), Some(&*options));
        made.unwrap_or_else(|error| panic!("a layer over {lower}: {error}"));
    }

    /// Where what has changed lies.
    fn changes(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.memory.as_raw_fd()))
    }

    /// The files of the tree that were changed, made or removed.
    fn changed(&self) -> BTreeSet<PathBuf> {
        let top = self.changes("tree");
        let built = target().strip_prefix(root()).map(|path| top.join(path)).ok();
        let mut waiting = vec![top.clone()];
        let mut files = BTreeSet::new();
        while let Some(directory) = waiting.pop() {
            for entry in fs::read_dir(&directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                if Some(&path) == built.as_ref() {
                    continue;
                }
                match path.is_dir() {
                    true => waiting.push(path),
                    false => {
                        let path = path.strip_prefix(&top).expect("below it");
                        files.insert(path.to_owned());
                    }
                }
            }
        }
        files
    }
}

/// In a thread of its own, for the layer is the thread's.
#[test]
fn the_steps_of_the_page_add_a_discipline_and_change_nothing_else() {
    let follow = thread::spawn(|| {
        let page = fs::read_to_string(root().join("docs/disciplines.md")).expect("the page");
        let steps = steps(&page);
        assert!(steps.len() >= 3, "the page has its steps: {steps:?}");
        let layer = Layer::new();
        for step in &steps {
            run(step);
        }
        let changed = layer.changed();
        for expected in MAY_CHANGE {
            let is_there = changed.iter().any(|path| path.starts_with(expected));
            assert!(is_there, "{expected} is as it was");
        }
        let is_free = |path: &&PathBuf| MAY_CHANGE.iter().any(|may| path.starts_with(may));
        let others: Vec<&PathBuf> = changed.iter().filter(|path| !is_free(path)).collect();
        assert!(others.is_empty(), "changed as well: {others:?}");
    });
    follow.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}
