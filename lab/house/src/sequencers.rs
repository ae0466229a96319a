//! Types that only sequence: what they call are values with states of their own. That their methods
//! fit into one file is the sign.

use crate::{
    crates,
    finding::Finding,
    modules::Modules,
    tree::{Source, Tree},
};

/// The crates, and the types in them.
const SEQUENCERS: &[(&str, &str)] = &[("store", "Engine"), ("chain", "Tenant")];

/// Each file with methods of a sequencer, if there are several.
pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let crates = crates::read(tree)?;
    let mut findings = Vec::new();
    for (name, sequencer) in SEQUENCERS {
        let found = crates.iter().filter(|found| found.name == *name);
        let roots = found.flat_map(|found| &found.roots);
        for root in roots.filter_map(|path| tree.find(path)) {
            findings.extend(scattered(tree, root, sequencer));
        }
    }
    Ok(findings)
}

fn scattered(tree: &Tree, root: usize, sequencer: &str) -> Vec<Finding> {
    let mut blocks = Vec::new();
    for file in Modules::read(tree, root).files() {
        let source = &tree.sources[file];
        let mut impls = source.rust.iter().flat_map(|facts| &facts.impls);
        if let Some(block) = impls.find(|block| block.name == sequencer) {
            blocks.push((source, block.line));
        }
    }
    let text = format!(
        "`{sequencer}` has methods in {} files and should only sequence; make this part a value that \
         it calls",
        blocks.len()
    );
    let finding = |(source, line): (&Source, usize)| Finding {
        path: source.path.clone(),
        line,
        text: text.clone(),
    };
    match blocks.len() {
        0 | 1 => Vec::new(),
        _ => blocks.into_iter().map(finding).collect(),
    }
}
