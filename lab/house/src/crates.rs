//! The crates of this repository, as their `Cargo.toml` say.

use std::{collections::BTreeSet, path::Path};

use anyhow::Context;
use toml::{Table, Value};

use crate::tree::{Source, Tree};

/// One crate.
pub struct Crate {
    /// What it is called.
    pub name: String,
    /// Its `Cargo.toml`.
    pub manifest: String,
    /// The crates of this repository that it depends on, but for its tests and its build.
    pub dependencies: BTreeSet<String>,
    /// The files that its library and its programs begin with.
    pub roots: Vec<String>,
}

/// All crates but those under `fuzz`, which is a workspace of its own and for tests only.
pub fn read(tree: &Tree) -> anyhow::Result<Vec<Crate>> {
    let manifests = tree
        .sources
        .iter()
        .filter(|source| source.path.ends_with("/Cargo.toml") && !source.path.starts_with("fuzz/"))
        .map(|source| {
            let table: Table = source.text.parse().with_context(|| source.path.clone())?;
            Ok((source, table))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let name = |table: &Table| Some(table.get("package")?.get("name")?.as_str()?.to_owned());
    let names: BTreeSet<_> = manifests.iter().filter_map(|(_, t)| name(t)).collect();
    let a_crate = |(source, table): &(&Source, Table)| {
        Some(Crate {
            name: name(table)?,
            manifest: source.path.clone(),
            dependencies: dependencies(table).intersection(&names).cloned().collect(),
            roots: roots(tree, &source.path, table),
        })
    };
    Ok(manifests.iter().filter_map(a_crate).collect())
}

/// The packages that a program or library of this manifest needs, on any system.
fn dependencies(manifest: &Table) -> BTreeSet<String> {
    let for_systems = manifest
        .get("target")
        .and_then(Value::as_table)
        .into_iter()
        .flat_map(Table::values)
        .filter_map(|system| system.get("dependencies"));
    let tables = manifest.get("dependencies").into_iter().chain(for_systems);
    let package = |(name, value): (&String, &Value)| {
        let renamed = value.get("package").and_then(Value::as_str);
        renamed.unwrap_or(name).to_owned()
    };
    tables.filter_map(Value::as_table).flat_map(|table| table.iter().map(package)).collect()
}

/// Where cargo finds the code: where the manifest says so, or else in the usual places.
fn roots(tree: &Tree, manifest: &str, table: &Table) -> Vec<String> {
    let folder = Path::new(manifest).parent().unwrap_or(Path::new(""));
    let inside = |path: &str| folder.join(path).to_string_lossy().into_owned();
    let programs = table.get("bin").and_then(Value::as_array);
    let targets = table.get("lib").into_iter().chain(programs.into_iter().flatten());
    let said = targets.filter_map(|target| target.get("path")?.as_str().map(inside));
    let usual = ["src/lib.rs", "src/main.rs"].map(inside);
    let more = inside("src/bin/");
    let in_bin = tree.rust().map(|(path, _)| path.to_owned());
    let in_bin = in_bin.filter(|path| {
        path.strip_prefix(&more)
            .is_some_and(|rest| !rest.contains('/') || rest.ends_with("/main.rs"))
    });
    let all: BTreeSet<_> = said.chain(usual).chain(in_bin).collect();
    all.into_iter().filter(|path| tree.find(path).is_some()).collect()
}
