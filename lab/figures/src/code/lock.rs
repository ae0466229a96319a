//! What comes from elsewhere, as `Cargo.lock` has it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;

use super::manifest::Manifest;

#[derive(Deserialize)]
struct File {
    package: Vec<Package>,
}

/// A package in one version.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// As its registry has it.
    pub name: String,
    version: String,
    checksum: Option<String>,
    /// `NAME`, and the version behind it where there are several.
    #[serde(default)]
    dependencies: Vec<String>,
}

/// All packages.
pub struct Lock(Vec<Package>);

impl Lock {
    /// Reads it.
    ///
    /// # Errors
    /// It is not there, or is something else.
    pub fn read(path: &Path) -> anyhow::Result<Lock> {
        Ok(Lock(super::read_toml::<File>(path)?.package))
    }

    fn find(&self, named: &str) -> Option<&Package> {
        let mut words = named.split(' ');
        let (name, version) = (words.next()?, words.next());
        let is_it = |p: &&Package| p.name == name && version.is_none_or(|v| v == p.version);
        self.0.iter().find(is_it)
    }

    /// What these crates are built with, and what that is built with.
    pub fn reached(
        &self,
        crates: &BTreeMap<String, Manifest>,
        of: &BTreeSet<String>,
    ) -> BTreeSet<&Package> {
        let mut open: Vec<&str> = vec![];
        for name in of {
            let own = self.find(name).into_iter().flat_map(|p| &p.dependencies);
            // The file has what tests need among them.
            let is_needed = |named: &&String| {
                let plain = named.split(' ').next().unwrap_or_default();
                crates[name].others.contains(plain)
            };
            open.extend(own.filter(is_needed).map(String::as_str));
        }
        let mut reached = BTreeSet::new();
        while let Some(package) = open.pop().map(|named| self.find(named)) {
            if let Some(package) = package.filter(|p| reached.insert(*p)) {
                open.extend(package.dependencies.iter().map(String::as_str));
            }
        }
        reached
    }
}

/// Of all of them together.
pub fn version(packages: &BTreeSet<&Package>) -> String {
    let mut hash = blake3::Hasher::new();
    for package in packages {
        let checksum = package.checksum.as_deref().unwrap_or_default();
        let line = format!("{} {} {checksum}\n", package.name, package.version);
        hash.update(line.as_bytes());
    }
    super::short(&hash)
}
