//! A lint for the structure of the repository, which neither the compiler nor clippy knows:
//! `tools/lint` runs it in the repository's root. It reads the sources and prints each finding as
//! `path:line: what is wrong; what to do`; with a finding it exits with 1.
//!
//! | module | reads | finds |
//! | --- | --- | --- |
//! | [`circles`] | which file of a crate names what of which other | files that use one another in a circle |
//! | [`arrows`] | members' `Cargo.toml`, the arrows in `docs/architecture.md` | what differs between the two |
//! | [`sequencers`] | `impl` blocks | a type that only sequences, with methods in several files |
//! | [`attributes`] | the words of files of what runs on machines | a tenant's attribute that too many files name |
//! | [`names`] | the names of types | those that are no nouns |
//! | [`docs`] | the beginnings of files | files that do not say what they are for |
//! | [`columns`] | lines with comments | those that are too long |

mod arrows;
mod attributes;
mod circles;
mod columns;
mod crates;
mod docs;
mod facts;
mod finding;
mod modules;
mod names;
mod sequencers;
mod tree;

#[cfg(test)]
mod tests;

use std::{path::Path, process::ExitCode};

use finding::Finding;
use tree::Tree;

type Check = fn(&Tree) -> anyhow::Result<Vec<Finding>>;

/// A tenant's chains and what happens to them are still one state with methods in several files.
const LATER: &[&str] = &["disciplines/chain/src/control/"];

/// What is checked, and the files that are not held to it yet, by how their paths begin; `--all`
/// shows these too.
const CHECKS: &[(Check, &[&str])] = &[
    (circles::check, LATER),
    (arrows::check, &[]),
    (sequencers::check, &[]),
    (attributes::check, &[]),
    (names::check, &[]),
    (docs::check, &[]),
    (columns::check, &[]),
];

fn main() -> anyhow::Result<ExitCode> {
    let all = std::env::args().any(|argument| argument == "--all");
    let findings = findings(&Tree::read(Path::new("."))?, all)?;
    for finding in &findings {
        println!("{finding}");
    }
    Ok(ExitCode::from(u8::from(!findings.is_empty())))
}

/// The findings of all checks, by file and line.
fn findings(tree: &Tree, all: bool) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for (check, left) in CHECKS {
        let is_left = |finding: &Finding| left.iter().any(|path| finding.path.starts_with(path));
        findings.extend(check(tree)?.into_iter().filter(|finding| all || !is_left(finding)));
    }
    findings.sort();
    Ok(findings)
}
