//! README and the pages of docs, typed literally: each file written, each command typed by a shell
//! in the page's order, on machines of their own. [`page`] says how a page is read, [`machine`]
//! what commands are typed on, and [`role`] which of them run until they are ended.

mod beyond;
#[path = "../../../../../disciplines/chain/guide.rs"]
mod chain_guide;
mod machine;
mod network;
mod operations;
mod page;
mod readme;
mod role;

use std::{fs, path::Path};

use page::Step;

/// What cannot be typed here, by how it begins, and why. Everything else is typed.
const NOT_TYPED: &[(&str, &str)] = &[
    ("make ", "builds, measures or tests the whole project; it is what runs this test"),
    ("systemctl ", "there is no systemd in a namespace"),
    ("kubectl ", "there is no cluster of Kubernetes; tools/manifests checks what it is given"),
    ("podman ", "there is nothing that makes or runs images"),
    (
        "shortstop-lab run ",
        "experiments take minutes to hours; quick ones run in tests of their own",
    ),
    ("shortstop-lab compare ", "the same"),
];

/// Pages of which no line is typed here, and why.
const NOT_WALKED: &[(&str, &str)] = &[
    (
        "docs/disciplines.md",
        "its steps are carried out by disciplines/tests/all/follow.rs; its console is of another build",
    ),
    (
        "docs/operations/existing-clusters.md",
        "crates/shortstop/tests/all/redis_cluster.rs and lab/shortstop-lab/tests/all/placement.rs carry it out before real clusters and pools",
    ),
];

/// Pages that are typed by the tests of this folder.
const WALKED: &[&str] = &[
    "README.md",
    chain_guide::PAGE,
    "docs/gateway.md",
    "docs/operations/cluster-file.md",
    "docs/operations/containers.md",
    "docs/operations/controller.md",
    "docs/operations/install.md",
    "docs/operations/services.md",
    "docs/operations/soft-switch.md",
    "docs/operations/tenants.md",
    "docs/operations/topology.md",
    "docs/operations/watching.md",
    "docs/operations/write-back.md",
    "docs/resources.md",
    "docs/security.md",
];

/// README and all pages below docs, named from the project's folder.
fn pages() -> Vec<String> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/operations"] {
        for entry in fs::read_dir(project.join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name");
            if name.ends_with(".md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages
}

/// From the folder of these tests.
const CHAIN_GUIDE: &str = "../../../../../disciplines/chain/guide.rs";

/// No page is left out in silence, and the list of what is left out stays short.
#[test]
fn every_page_with_commands_is_typed() {
    let sources = ["readme.rs", "operations.rs", "beyond.rs", CHAIN_GUIDE];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/guides");
    let read = |name: &&str| fs::read_to_string(folder.join(name)).expect("a test");
    let sources: String = sources.iter().map(read).collect();
    let mut left_out = vec![];
    for page in pages() {
        let steps = page::steps(&page::text(&page));
        let lines = steps.iter().filter_map(|step| match step {
            Step::Line { text, .. } => Some(text),
            Step::File { .. } => None,
        });
        let whole = NOT_WALKED.iter().find(|(name, _)| *name == page);
        let mut typed = 0;
        for line in lines {
            let begins = NOT_TYPED.iter().find(|(begin, _)| line.starts_with(begin));
            match whole.or(begins) {
                Some((_, why)) => left_out.push(format!("{page}: {line}: {why}")),
                None => typed += 1,
            }
        }
        if typed > 0 {
            assert!(
                WALKED.contains(&page.as_str()),
                "{page} has {typed} commands that nobody types"
            );
            assert!(sources.contains(&format!("\"{page}\"")), "no test follows {page}");
        }
    }
    println!("{} lines are not typed:\n{}", left_out.len(), left_out.join("\n"));
    for (begin, _) in NOT_TYPED.iter().chain(NOT_WALKED) {
        assert!(left_out.iter().any(|line| line.contains(begin)), "no page has {begin:?}");
    }
    assert!(NOT_TYPED.len() + NOT_WALKED.len() <= 10, "too much is not typed");
}
