//! Which crates a run comes by.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;

use super::manifest::Manifest;
use crate::command::World;

/// From these on, over dependencies: in this world, and without parts that only something else
/// runs. What a part depends on is of that part.
///
/// # Errors
/// A crate that is named and not there.
pub fn reached(
    crates: &BTreeMap<String, Manifest>,
    parts: &BTreeSet<String>,
    roots: BTreeSet<String>,
    world: World,
) -> anyhow::Result<BTreeSet<String>> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<String> = roots.into_iter().collect();
    while let Some(name) = open.pop() {
        let manifest = crates.get(&name);
        let manifest = manifest.with_context(|| format!("{name}: there is no such crate"))?;
        if reached.insert(name.clone()) {
            let elsewhere = &manifest.only(world.other()).crates;
            let linked = manifest.crates.iter().filter(|c| !elsewhere.contains(*c));
            let is_run = |next: &&String| parts.contains(&name) || !parts.contains(*next);
            let linked = linked.filter(is_run);
            open.extend(linked.chain(&manifest.only(world).crates).cloned());
        }
    }
    Ok(reached)
}
