//! What each command runs, and in which version.
//!
//! An experiment's file names the disciplines and programs that run beside the rig (`runs`, and
//! `runs_in_kernel`; `*` is every discipline). What names no discipline has it from the registry.
//! From them and from the experiment's own crate [`reach`] follows the dependencies in the
//! `Cargo.toml` files. What no dependency shows stands in `[package.metadata.figures]` of the crate
//! that knows it:
//!
//! ```toml
//! [package.metadata.figures]
//! disciplines = ["netcraq"]   # names that experiments have for this crate, beside its own
//! runs = ["gateway"]          # of a crate that is a command by itself: as in an experiment's file
//! about = { demo = "some" }   # of the registry: the discipline of each command that names none
//! [package.metadata.figures.kernel]   # and the same for `sim`
//! crates = ["agent"]          # run in this world only, whether dependencies or not
//! files = ["src/rig/kernel"]  # count in this world only; may be another crate's
//! ```
//!
//! A crate that some `runs` names counts for those alone that name it, though others may be linked
//! with it.

mod experiment;
mod lock;
mod manifest;
mod reach;
mod source;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context;

use self::{
    experiment::Experiment,
    lock::Lock,
    manifest::{Manifest, WorkspaceManifest},
    source::Source,
};
use crate::command::{Command, World};

/// The versions of all that a command runs: crates, the experiment's file, and what comes from
/// elsewhere.
pub type Versions = BTreeMap<String, String>;

/// The experiments' and the programs' code as it lies in a project's folder.
pub struct Code {
    crates: BTreeMap<String, Manifest>,
    /// By their crate.
    sources: BTreeMap<String, Vec<Source>>,
    experiments: BTreeMap<String, Experiment>,
    /// Crates that count only where something names them.
    parts: BTreeSet<String>,
    shared: WorkspaceManifest,
    lock: Lock,
}

impl Code {
    /// Reads all of it.
    ///
    /// # Errors
    /// A file that cannot be read, or is not what its name says.
    pub fn read(project: &Path) -> anyhow::Result<Code> {
        let shared = WorkspaceManifest::read(&project.join("Cargo.toml"))?;
        let mut crates = BTreeMap::new();
        for top in ["bpf", "crates", "disciplines", "lab"] {
            manifest::find(project, Path::new(top), &shared, &mut crates)?;
        }
        let mut sources = BTreeMap::new();
        let mut experiments = BTreeMap::new();
        for (name, manifest) in &crates {
            let of_crate = source::of(project, &manifest.folder)?;
            for source in &of_crate {
                if let Some(experiment) = Experiment::read(project, name, &source.path)? {
                    experiments.insert(experiment.name.clone(), experiment);
                }
            }
            sources.insert(name.clone(), of_crate);
        }
        let mut code = Code {
            crates,
            sources,
            experiments,
            parts: BTreeSet::new(),
            shared,
            lock: Lock::read(&project.join("Cargo.lock"))?,
        };
        let of_files = code.experiments.values().flat_map(Experiment::all_runs);
        let of_crates = code.crates.values().flat_map(|m| m.runs.iter().chain(m.about.values()));
        let parts = of_files.chain(of_crates).map(String::as_str);
        code.parts = code.crates_of(parts)?;
        Ok(code)
    }

    /// The crate that experiments call by this name.
    fn crate_of(&self, name: &str) -> anyhow::Result<String> {
        let is_it = |(own, manifest): &(&String, &Manifest)| {
            *own == name || manifest.disciplines.iter().any(|d| d == name)
        };
        let found = self.crates.iter().find(is_it).map(|(own, _)| own.clone());
        found.with_context(|| {
            format!(
                "{name}, which some `runs` names: no crate of that name, and none has it in \
                 `disciplines` of its [package.metadata.figures]"
            )
        })
    }

    /// What a command runs, and in which version.
    ///
    /// # Errors
    /// It is of no experiment, or a crate or file that is named is not there.
    pub fn versions(&self, command: &Command) -> anyhow::Result<Versions> {
        let context = || command.text();
        let world = command.world();
        let experiment = command.experiment().map(|name| {
            let known = self.experiments.get(name);
            known.with_context(|| format!("{}: no experiment's file has this name", command.text()))
        });
        let experiment = experiment.transpose()?;
        let (of_crate, runs) = match experiment {
            Some(experiment) => (&*experiment.of_crate, experiment.runs(world).collect()),
            None => {
                let bench = self.crates.get(BENCH);
                let bench = bench.with_context(|| format!("there is no crate {BENCH}"))?;
                (BENCH, bench.runs.iter().map(String::as_str).collect::<Vec<_>>())
            }
        };
        let named = command.experiment().unwrap_or(BENCH);
        let about = self.crates.values().filter_map(|m| m.about.get(named));
        let about = about.map(String::as_str).chain(command.discipline());
        let roots = self.crates_of(runs.into_iter().chain(about));
        let mut roots = roots.with_context(context)?;
        roots.insert(of_crate.into());
        let reached = reach::reached(&self.crates, &self.parts, roots, world);
        let reached = reached.with_context(context)?;
        let mut versions = Versions::new();
        for name in &reached {
            let version = self.version(name, world, experiment).with_context(context)?;
            versions.insert(name.clone(), version);
        }
        if let Some(experiment) = experiment {
            let file = experiment.file_name();
            versions.insert(file, self.file_version(experiment)?);
        }
        let elsewhere = self.lock.reached(&self.crates, &reached);
        let names = elsewhere.iter().map(|package| package.name.as_str());
        let text = self.shared.version(&reached, &names.collect());
        versions.insert("Cargo.toml".into(), text);
        versions.insert("Cargo.lock".into(), lock::version(&elsewhere));
        Ok(versions)
    }

    fn crates_of<'a>(
        &self,
        names: impl Iterator<Item = &'a str>,
    ) -> anyhow::Result<BTreeSet<String>> {
        let mut crates = BTreeSet::new();
        for name in names {
            if name == ANY {
                let is_one = |m: &Manifest| m.folder.parent() == Some(Path::new("disciplines"));
                let all = self.crates.iter().filter(|(_, manifest)| is_one(manifest));
                crates.extend(all.map(|(name, _)| name.clone()));
            } else {
                crates.insert(self.crate_of(name)?);
            }
        }
        Ok(crates)
    }

    /// Of one crate, as a run in this world has it.
    fn version(&self, name: &str, world: World, of: Option<&Experiment>) -> anyhow::Result<String> {
        let manifest = &self.crates[name];
        let mut others =
            self.experiments.values().filter(|e| of.is_none_or(|of| of.name != e.name));
        let others: Vec<&Experiment> = others.by_ref().filter(|e| e.of_crate == name).collect();
        let elsewhere = &manifest.only(world.other()).files;
        let counts = |source: &&Source| {
            let is_of_other = others.iter().any(|other| other.owns(&source.path));
            let is_file = of.is_some_and(|of| of.path == source.path);
            !is_of_other && !is_file && !elsewhere.iter().any(|path| source.path.starts_with(path))
        };
        let mut hash = blake3::Hasher::new();
        hash.update(manifest.text.as_bytes());
        for source in self.sources[name].iter().filter(counts) {
            source.add_to(&mut hash);
        }
        // Of other crates; those of its own are among the above.
        let all = || self.sources.values().flatten();
        for path in &manifest.only(world).files {
            let mut found = all().filter(|source| source.path.starts_with(path)).peekable();
            found.peek().with_context(|| {
                format!(
                    "{}: [package.metadata.figures] names {}, which is not there",
                    manifest.folder.join("Cargo.toml").display(),
                    path.display()
                )
            })?;
            for source in found.filter(|s| !s.path.starts_with(&manifest.folder)) {
                source.add_to(&mut hash);
            }
        }
        Ok(short(&hash))
    }

    fn file_version(&self, experiment: &Experiment) -> anyhow::Result<String> {
        let sources = &self.sources[&experiment.of_crate];
        let file = sources.iter().find(|source| source.path == experiment.path);
        let mut hash = blake3::Hasher::new();
        file.context("its file")?.add_to(&mut hash);
        Ok(short(&hash))
    }
}

/// In `runs`: every discipline.
const ANY: &str = "*";

/// The crate that is a command by itself.
const BENCH: &str = "bench";

/// As much of a hash as tells versions apart and can be read.
fn short(hash: &blake3::Hasher) -> String {
    hash.finalize().to_hex()[..12].to_owned()
}

/// A TOML file, whatever else is in it than what is asked for.
fn read_toml<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let context = || path.display().to_string();
    toml::from_str(&fs::read_to_string(path).with_context(context)?).with_context(context)
}
