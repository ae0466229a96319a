//! Files that do not say what they are for.

use crate::{finding::Finding, tree::Tree};

/// Each Rust file without a doc comment about itself.
pub fn check(tree: &Tree) -> anyhow::Result<Vec<Finding>> {
    let silent = tree.rust().filter(|(_, facts)| !facts.documented);
    let finding = |path: &str| Finding {
        path: path.to_owned(),
        line: 1,
        text: "no module doc; say with `//!` what the file is for and who calls it".to_owned(),
    };
    Ok(silent.map(|(path, _)| finding(path)).collect())
}
