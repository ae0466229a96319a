//! `Cargo.toml` files: what crates depend on, and what they say of figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::Context;
use serde::Deserialize;
use toml::{Table, Value};

use crate::command::World;

#[derive(Deserialize)]
struct File {
    package: PackageTable,
    #[serde(default)]
    dependencies: Table,
    #[serde(default, rename = "build-dependencies")]
    build: Table,
    #[serde(default)]
    features: Table,
}

#[derive(Deserialize)]
struct PackageTable {
    name: String,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    figures: Figures,
}

/// What a crate says of figures.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Figures {
    disciplines: Vec<String>,
    runs: Vec<String>,
    about: BTreeMap<String, String>,
    kernel: WorldParts,
    sim: WorldParts,
}

/// What counts in one world only.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WorldParts {
    /// Crates that run there.
    pub crates: Vec<String>,
    /// Files and folders, from the project's folder.
    pub files: Vec<PathBuf>,
}

/// A crate of the project.
pub struct Manifest {
    /// From the project's folder.
    pub folder: PathBuf,
    /// Crates of the project that it is built with, by whatever name.
    pub crates: BTreeSet<String>,
    /// Packages from elsewhere that it is built with.
    pub others: BTreeSet<String>,
    /// All of its file that decides what is built.
    pub text: String,
    /// Other names that experiments have for it.
    pub disciplines: Vec<String>,
    /// What it runs beside what it depends on, if it is a command by itself.
    pub runs: Vec<String>,
    /// The discipline of commands that name none, if it is the registry.
    pub about: BTreeMap<String, String>,
    kernel: WorldParts,
    sim: WorldParts,
}

impl Manifest {
    /// What counts in this world only.
    pub fn only(&self, world: World) -> &WorldParts {
        match world {
            World::Kernel => &self.kernel,
            World::Sim => &self.sim,
        }
    }

    fn of(file: File, folder: &Path, shared: &WorkspaceManifest) -> Manifest {
        let mut manifest = Manifest {
            folder: folder.into(),
            crates: BTreeSet::new(),
            others: BTreeSet::new(),
            text: canonical(&Value::Table(file.features)),
            disciplines: file.package.metadata.figures.disciplines,
            runs: file.package.metadata.figures.runs,
            about: file.package.metadata.figures.about,
            kernel: file.package.metadata.figures.kernel,
            sim: file.package.metadata.figures.sim,
        };
        for only in [&mut manifest.kernel, &mut manifest.sim] {
            let from_project = |path: &PathBuf| plain(&folder.join(path));
            only.files = only.files.iter().map(from_project).collect();
        }
        for (name, asked) in file.dependencies.into_iter().chain(file.build) {
            let of_all = shared.workspace.dependencies.get(&name);
            let spec = match asked.get("workspace") {
                Some(_) => of_all.unwrap_or(&asked),
                None => &asked,
            };
            let package = spec.get("package").and_then(Value::as_str);
            let package = package.unwrap_or(&name).to_owned();
            if spec.get("path").is_some() {
                manifest.crates.insert(package);
            } else {
                manifest.others.insert(package);
            }
            let text = format!("{name}={}{}\n", canonical(&asked), canonical(spec));
            manifest.text += &text;
        }
        manifest
    }
}

/// Reads those in a folder and below.
///
/// # Errors
/// One that cannot be read.
pub fn find(
    project: &Path,
    at: &Path,
    shared: &WorkspaceManifest,
    found: &mut BTreeMap<String, Manifest>,
) -> anyhow::Result<()> {
    let here = project.join(at);
    let path = here.join("Cargo.toml");
    if path.exists() {
        let file: File = super::read_toml(&path)?;
        let name = file.package.name.clone();
        found.insert(name, Manifest::of(file, at, shared));
    }
    let context = || here.display().to_string();
    for entry in fs::read_dir(&here).with_context(context)? {
        let entry = entry.with_context(context)?;
        let name = entry.file_name();
        let is_code = !["src", "tests", "target"].iter().any(|other| name == *other);
        if is_code && entry.file_type().with_context(context)?.is_dir() {
            find(project, &at.join(name), shared, found)?;
        }
    }
    Ok(())
}

/// The path without `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            other => plain.push(other),
        }
    }
    plain
}

/// What the project's `Cargo.toml` says for all crates.
#[derive(Deserialize)]
pub struct WorkspaceManifest {
    workspace: Workspace,
    #[serde(default)]
    profile: Table,
}

#[derive(Deserialize)]
struct Workspace {
    #[serde(default)]
    dependencies: Table,
}

impl WorkspaceManifest {
    /// Reads it.
    ///
    /// # Errors
    /// It is not there, or is something else.
    pub fn read(path: &Path) -> anyhow::Result<WorkspaceManifest> {
        super::read_toml(path)
    }

    /// Of how these crates of the project, and packages from elsewhere of these names, are built
    /// for a release.
    pub fn version(&self, crates: &BTreeSet<String>, others: &BTreeSet<&str>) -> String {
        let release = self.profile.get("release").and_then(Value::as_table);
        let mut release = release.cloned().unwrap_or_default();
        if let Some(Value::Table(packages)) = release.get_mut("package") {
            let is_built = |name: &str| crates.contains(name) || others.contains(name);
            packages.retain(|name, _| is_built(name));
        }
        let mut hash = blake3::Hasher::new();
        hash.update(canonical(&Value::Table(release)).as_bytes());
        super::short(&hash)
    }
}

/// A value in one way of writing, in whatever order it was written.
fn canonical(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let sorted: BTreeMap<&String, String> =
                table.iter().map(|(name, value)| (name, canonical(value))).collect();
            format!("{sorted:?}")
        }
        Value::Array(values) => format!("{:?}", values.iter().map(canonical).collect::<Vec<_>>()),
        other => other.to_string(),
    }
}
