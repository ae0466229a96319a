//! Experiments as their files declare them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::command::World;

/// What counts of an experiment's file. The rest is its kind's affair.
#[derive(Deserialize)]
struct File {
    name: Option<String>,
    kind: Option<String>,
    #[serde(default)]
    runs: Vec<String>,
    #[serde(default)]
    runs_in_kernel: Vec<String>,
}

/// One experiment.
pub struct Experiment {
    /// As commands have it.
    pub name: String,
    /// The crate that its file lies in.
    pub of_crate: String,
    /// Its file, from the project's folder.
    pub path: PathBuf,
    runs: Vec<String>,
    runs_in_kernel: Vec<String>,
}

impl Experiment {
    /// Reads its file. `None`: the file is no experiment's.
    ///
    /// # Errors
    /// It is no TOML.
    pub fn read(project: &Path, of_crate: &str, path: &Path) -> anyhow::Result<Option<Experiment>> {
        if path.extension().is_none_or(|e| e != "toml") {
            return Ok(None);
        }
        let file: File = super::read_toml(&project.join(path))?;
        let (Some(name), Some(_)) = (file.name, file.kind) else { return Ok(None) };
        Ok(Some(Experiment {
            name,
            of_crate: of_crate.into(),
            path: path.into(),
            runs: file.runs,
            runs_in_kernel: file.runs_in_kernel,
        }))
    }

    /// What it runs in this world beside the rig.
    pub fn runs(&self, world: World) -> impl Iterator<Item = &str> {
        let in_kernel = self.runs_in_kernel.iter();
        let in_kernel = in_kernel.filter(move |_| world == World::Kernel);
        self.runs.iter().chain(in_kernel).map(String::as_str)
    }

    /// What it runs in any world.
    pub fn all_runs(&self) -> impl Iterator<Item = &String> {
        self.runs.iter().chain(&self.runs_in_kernel)
    }

    /// The name of its file, for people.
    pub fn file_name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Whether a file is of this experiment alone: what lies beside its own under the same name, or
    /// in a folder of that name.
    pub fn owns(&self, path: &Path) -> bool {
        let stem = self.path.with_extension("");
        let folder = stem.parent().unwrap_or(Path::new(""));
        path == self.path
            || path == stem.with_extension("rs")
            || path.starts_with(&stem)
            || (folder.file_name() == stem.file_name() && path.starts_with(folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_under_its_name_is_its_own() {
        let at = |path: &str| Experiment {
            name: "x".into(),
            of_crate: "c".into(),
            path: path.into(),
            runs: vec![],
            runs_in_kernel: vec![],
        };
        for (file, path, is_own) in [
            ("c/src/demo.toml", "c/src/demo.toml", true),
            ("c/src/demo.toml", "c/src/demo.rs", true),
            ("c/src/demo.toml", "c/src/demo/part.rs", true),
            ("c/src/demo.toml", "c/src/demos.rs", false),
            ("c/src/demo.toml", "c/src/lib.rs", false),
            ("c/src/large/large.toml", "c/src/large/mod.rs", true),
            ("c/src/large/large.toml", "c/src/largest.rs", false),
            ("c/src/many/one.toml", "c/src/many/mod.rs", false),
        ] {
            assert_eq!(at(file).owns(Path::new(path)), is_own, "{file} {path}");
        }
    }
}
