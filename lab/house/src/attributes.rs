//! How many files have to know an attribute that operators give to tenants: it is listed once with
//! the terms of a tenant, and whoever passes terms on passes all of them.

use crate::{
    finding::Finding,
    tree::{Source, Tree},
};

/// Where the terms are listed.
const TERMS: &str = "crates/api/src/types/terms.rs";

/// Two attributes that go all the way, from the command line over controllers to stores and to the
/// programs in switches: others are named by fewer files.
const ATTRIBUTES: &[&str] = &["over_rate", "write_back_ms"];

/// Files of what runs on machines, without tests, that may name one of them.
const MOST: usize = 12;

/// An attribute that too many files name.
pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
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
    Ok(findings)
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
