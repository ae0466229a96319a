//! Circles between the files of a crate: files that use one another can only be read, tested and
//! changed together.
//!
//! A file uses another when it names what that one defines, by whatever way the name comes. A
//! module and the one around it may use one another: those arrows are left out. So is what is for
//! tests only.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::{algo::tarjan_scc, graph::DiGraph};

use crate::{crates, finding::Finding, modules::Modules, tree::Tree};

/// Two files, the first of which uses the second.
type Arrow = (usize, usize);

/// A finding for each circle, with the first use of each file by each other.
pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for found in crates::read(tree)? {
        for root in found.roots.iter().filter_map(|path| tree.find(path)) {
            findings.extend(circles(tree, &Modules::read(tree, root)));
        }
    }
    Ok(findings)
}

fn circles(tree: &Tree, modules: &Modules) -> Vec<Finding> {
    let parents = modules.parents();
    let family = |from, to| parents.contains(&(from, to)) || parents.contains(&(to, from));
    let mut arrows: BTreeMap<Arrow, (String, usize)> = BTreeMap::new();
    for (from, to, path, line) in modules.uses() {
        if !family(from, to) {
            arrows.entry((from, to)).or_insert_with(|| (path.join("::"), line));
        }
    }
    let graph = DiGraph::<(), (), usize>::from_edges(arrows.keys());
    tarjan_scc(&graph)
        .into_iter()
        .map(|files| files.into_iter().map(|file| file.index()).collect())
        .filter(|files: &BTreeSet<usize>| files.len() > 1)
        .map(|files| finding(tree, &files, &arrows))
        .collect()
}

fn finding(
    tree: &Tree,
    files: &BTreeSet<usize>,
    arrows: &BTreeMap<Arrow, (String, usize)>,
) -> Finding {
    let path = |file: usize| tree.sources[file].path.as_str();
    let inside = |(from, to): &Arrow| files.contains(from) && files.contains(to);
    let inside: Vec<_> = arrows.iter().filter(|(arrow, _)| inside(arrow)).collect();
    let mut text = format!(
        "a circle of {} files; take out what both sides need, or hand it in as a value:",
        files.len()
    );
    for ((from, to), (name, line)) in &inside {
        text += &format!("\n    {}:{line} uses {} ({name})", path(*from), path(*to));
    }
    let ((first, _), (_, line)) = inside[0];
    Finding { path: path(*first).to_owned(), line: *line, text }
}
