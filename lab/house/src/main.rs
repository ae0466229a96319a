//! A lint for the structure of the repository, which neither the compiler nor clippy knows:
//! `tools/lint` runs it in the repository's root. It reads the sources and prints each finding as
//! `path:line: what is wrong; what to do`; with a finding it exits with 1.
//!
//! | module | reads | finds |
//! | --- | --- | --- |
//! | [`circles`] | which file of a crate names what of which other | files that use one another in a circle |
//! | [`arrows`] | members' `Cargo.toml`, the arrows in `docs/architecture.md` | what differs between the two |
//! | [`sequencers`] | `impl` blocks | a type that only sequences, with methods in several files |
//! | [`attributes`] | files of what runs on machines; a patch that adds an attribute of a tenant | an attribute that too many files name, and where the patch would not do |
//! | [`names`] | the names of types | those that are no nouns |
//! | [`docs`] | the beginnings of files | files that do not say what they are for |
//! | [`columns`] | lines with comments | those that are too long |

#![deny(unsafe_code)]

mod arrows;
mod attributes;
mod circles;
mod columns;
mod crates;
mod docs;
mod facts;
mod finding;
mod literals;
mod modules;
mod names;
mod patch;
mod sequencers;
mod shapes;
mod tree;

#[cfg(test)]
mod tests;

use std::{path::Path, process::ExitCode};

use finding::Finding;
use tree::Tree;

type Check = fn(&Tree) -> anyhow::Result<Vec<Finding>>;

/// What is checked.
const CHECKS: &[Check] = &[
    circles::check,
    arrows::check,
    sequencers::check,
    attributes::check,
    names::check,
    docs::check,
    columns::check,
];

fn main() -> anyhow::Result<ExitCode> {
    let findings = findings(&Tree::read(Path::new("."))?)?;
    for finding in &findings {
        println!("{finding}");
    }
    Ok(ExitCode::from(u8::from(!findings.is_empty())))
}

/// The findings of all checks, by file and line.
fn findings(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for check in CHECKS {
        findings.extend(check(tree)?);
    }
    findings.sort();
    Ok(findings)
}
