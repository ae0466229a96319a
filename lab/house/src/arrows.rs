//! The arrows between crates, as `docs/architecture.md` lists them and as they are.
//!
//! The list is a block of code that begins with ```` ```arrows ````, with a line
//! `crate: dependency dependency` for each crate.

use std::{collections::BTreeSet, fs};

use anyhow::Context;

use crate::{
    crates::{self, Crate},
    finding::Finding,
    tree::Tree,
};

/// Where the list stands.
const DOCUMENT: &str = "docs/architecture.md";

/// One line of the list.
struct Entry<'a> {
    line: usize,
    name: &'a str,
    dependencies: BTreeSet<String>,
}

/// The only crate of the lab that what runs on machines may link.
const SHARED: &str = "rmt";

/// Crates and arrows that are not listed, listed ones that do not exist, and arrows that lead from
/// what runs on machines into the lab.
pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let path = tree.root.join(DOCUMENT);
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{}: the arrows are to be listed here", path.display()))?;
    let crates = crates::read(tree)?;
    let Some(entries) = entries(&text) else {
        return Ok(vec![finding(
            DOCUMENT,
            1,
            "no block ```arrows; list each crate with what it depends on".to_owned(),
        )]);
    };
    let mut findings = unlisted(&crates, &entries);
    findings.extend(missing(&crates, &entries));
    findings.extend(into_the_lab(&crates));
    Ok(findings)
}

fn finding(path: &str, line: usize, text: String) -> Finding {
    Finding { path: path.to_owned(), line, text }
}

/// The lines of the block, if there is one.
fn entries(text: &str) -> Option<Vec<Entry<'_>>> {
    let mut lines = (1..).zip(text.lines());
    lines.find(|(_, line)| line.trim() == "```arrows")?;
    let block = lines.take_while(|(_, line)| line.trim() != "```");
    let entries = block.filter_map(|(line, text)| {
        let (name, dependencies) = text.split_once(':')?;
        Some(Entry {
            line,
            name: name.trim(),
            dependencies: dependencies.split_whitespace().map(str::to_owned).collect(),
        })
    });
    Some(entries.collect())
}

/// What is and is not listed.
fn unlisted(crates: &[Crate], entries: &[Entry]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for Crate { name, manifest, dependencies, .. } in crates {
        let Some(entry) = entries.iter().find(|entry| entry.name == name) else {
            let text = format!("{name} is not among the arrows of {DOCUMENT}; list it");
            findings.push(finding(manifest, 1, text));
            continue;
        };
        for to in dependencies.difference(&entry.dependencies) {
            let text = format!(
                "{name} depends on {to}, which {DOCUMENT} does not list; do without it, or list it"
            );
            findings.push(finding(manifest, 1, text));
        }
    }
    findings
}

/// What is listed and is not.
fn missing(crates: &[Crate], entries: &[Entry]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for entry in entries {
        let Some(found) = crates.iter().find(|found| found.name == entry.name) else {
            let text = format!("there is no crate {}; take the line away", entry.name);
            findings.push(finding(DOCUMENT, entry.line, text));
            continue;
        };
        for to in entry.dependencies.difference(&found.dependencies) {
            let text = format!("{} does not depend on {to}; take the arrow away", entry.name);
            findings.push(finding(DOCUMENT, entry.line, text));
        }
    }
    findings
}

/// Arrows of crates under `crates/` to crates under `lab/`.
fn into_the_lab(crates: &[Crate]) -> Vec<Finding> {
    let is_of_lab = |name: &String| {
        let mut all = crates.iter();
        name != SHARED && all.any(|c| c.name == *name && c.manifest.starts_with("lab/"))
    };
    let runs_on_machines = |found: &&Crate| found.manifest.starts_with("crates/");
    let mut findings = Vec::new();
    for Crate { name, manifest, dependencies, .. } in crates.iter().filter(runs_on_machines) {
        for to in dependencies.iter().filter(|to| is_of_lab(to)) {
            let text = format!("{name} depends on {to}, which is of the lab; do without it");
            findings.push(finding(manifest, 1, text));
        }
    }
    findings
}
