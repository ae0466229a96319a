//! How many files a new attribute of a tenant touches. Attributes are listed once with the terms
//! of a tenant, and whoever passes terms on passes all of them.
//!
//! `attribute.patch` adds an attribute, `priority`, that goes all the way: from the command line
//! over controllers to stores and to the programs in switches. It is carried out on the tree as it
//! is read, and then every place is looked at where the compiler would miss the new field: a value
//! of a type that got it, or a pattern, with all other fields and no `..`. Nothing is compiled, for
//! that takes minutes. By hand: `git apply lab/house/src/attribute.patch`, then `cargo check`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;

use crate::{
    finding::Finding,
    literals::literals,
    patch::Patch,
    shapes::shapes,
    tree::{Source, Tree},
};

/// Where the terms are listed.
const TERMS: &str = "crates/api/src/types/terms.rs";

/// Where the patch is, and what it says.
const PATCH: (&str, &str) = ("lab/house/src/attribute.patch", include_str!("attribute.patch"));

/// The attribute that the patch adds.
const ADDED: &str = "priority";

/// Two attributes that are there and go all the way: others are named by fewer files.
const ATTRIBUTES: &[&str] = &["over_rate", "write_back_ms"];

/// Files that a new attribute may touch, and files of what runs on machines, without tests, that
/// may name one.
const MOST: usize = 12;

/// An attribute that is there and that too many files name, and what the patch shows of a new one.
pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let mut findings = named(tree);
    findings.extend(added(tree, &Patch::read(PATCH.1)?)?);
    Ok(findings)
}

/// The attributes that too many files name.
pub fn named(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for attribute in ATTRIBUTES {
        let named = |source: &&Source| runs(&source.path) && has_word(&source.text, attribute);
        let files: Vec<&str> = tree.sources.iter().filter(named).map(|s| &*s.path).collect();
        let is_listed = files.is_empty() || files.contains(&TERMS);
        if files.len() > MOST || !is_listed {
            findings.push(Finding {
                path: TERMS.into(),
                line: 1,
                text: format!(
                    "{} files name a tenant's attribute `{attribute}`, of which {MOST} may, this \
                     one among them; hand on all terms where they are handed on: {}",
                    files.len(),
                    files.join(" ")
                ),
            });
        }
    }
    findings
}

/// What is wrong with a tree to which this patch adds an attribute: too many files are touched, one
/// is no longer as the patch has it, or one is missing.
pub fn added(tree: &Tree, patch: &Patch) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let finding = |path: &str, line, text| Finding { path: path.into(), line, text };
    let files = patch.files.len();
    if files > MOST {
        let text = format!("a new attribute of a tenant touches {files} files: {MOST} may be");
        findings.push(finding(PATCH.0, 1, text));
    }
    let (mut after, mut carriers) = (BTreeMap::new(), Vec::new());
    for (path, hunks) in &patch.files {
        let before = tree.find(path).map(|at| tree.sources[at].text.as_str());
        match before.and_then(|before| Some((before, Patch::apply(hunks, before)?))) {
            Some((before, patched)) => {
                carriers.extend(grown(path, before, &patched)?);
                after.insert(path.as_str(), patched);
            }
            None => findings.push(finding(
                PATCH.0,
                1,
                format!(
                    "does not fit {path}: add the attribute `{ADDED}` anew, and keep `git diff`"
                ),
            )),
        }
    }
    for source in tree.sources.iter().filter(|source| source.path.ends_with(".rs")) {
        let text = after.get(source.path.as_str()).unwrap_or(&source.text);
        let may_have = |(name, _): &(String, BTreeSet<String>)| has_word(text, name);
        if !carriers.iter().any(may_have) {
            continue;
        }
        for literal in literals(text).with_context(|| source.path.clone())? {
            let misses = |(name, fields): &(String, BTreeSet<String>)| {
                *name == literal.name && fields.is_subset(&literal.fields)
            };
            if carriers.iter().any(misses) && !literal.fields.contains(ADDED) {
                let text = format!(
                    "`{}` with every field: a new attribute of a tenant would have to be added \
                     here; take the others from one that has them all (`..`)",
                    literal.name
                );
                findings.push(finding(&source.path, literal.line, text));
            }
        }
    }
    Ok(findings)
}

/// The types of a file that get the attribute, with the fields that they had without it.
fn grown(path: &str, before: &str, after: &str) -> anyhow::Result<Vec<(String, BTreeSet<String>)>> {
    let mut before = shapes(path, before)?;
    let after = shapes(path, after)?.into_iter().filter(|(_, fields)| fields.contains(ADDED));
    Ok(after.filter_map(|(name, _)| before.remove_entry(&name)).collect())
}

/// Whether a file is of what runs on machines, and no test.
fn runs(path: &str) -> bool {
    let is_test = path.contains("/tests/") || path.ends_with("tests.rs");
    (path.starts_with("crates/") || path.starts_with("bpf/")) && !is_test
}

fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !is_part(before.chars().next_back()) && !is_part(after.chars().next())
    })
}
