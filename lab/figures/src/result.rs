//! What is kept of a run: its figures, and on which machine and of which code they are.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{code::Versions, command::Command};

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// As a user types it.
    pub command: String,
    /// Of the code that was measured, for people.
    pub commit: String,
    /// What it ran on.
    pub machine: String,
    /// How long it took.
    pub seconds: u64,
    /// What it ran.
    pub code: Versions,
    /// By name.
    pub figures: Map<String, Value>,
}

/// All that is kept, a file for each command.
pub struct Results {
    dir: PathBuf,
    known: BTreeMap<Command, Option<RunResult>>,
}

impl Results {
    /// Those in a folder.
    pub fn at(dir: PathBuf) -> Results {
        Results { dir, known: BTreeMap::new() }
    }

    /// What a command gave last; none: it was never run.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn get(&mut self, command: &Command) -> anyhow::Result<Option<&RunResult>> {
        if !self.known.contains_key(command) {
            let path = self.dir.join(command.file());
            let kept = match fs::read_to_string(&path) {
                Ok(text) => Some(serde_json::from_str(&text).with_context(|| {
                    format!("{}: not what `figures run` writes", path.display())
                })?),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
                Err(e) => return Err(e).with_context(|| path.display().to_string()),
            };
            self.known.insert(command.clone(), kept);
        }
        Ok(self.known[command].as_ref())
    }

    /// Keeps what a command gave.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn keep(&mut self, command: &Command, kept: RunResult) -> anyhow::Result<()> {
        let path = self.dir.join(command.file());
        fs::create_dir_all(&self.dir).with_context(|| self.dir.display().to_string())?;
        let text = serde_json::to_string_pretty(&kept)? + "\n";
        write(&path, &text)?;
        self.known.insert(command.clone(), Some(kept));
        Ok(())
    }
}

/// Writes a file, all of it or, if this is interrupted, nothing.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    fs::write(&new, text).with_context(|| new.display().to_string())?;
    fs::rename(&new, path).with_context(|| path.display().to_string())
}

/// Processor and kernel of this machine, for people.
pub fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = read("/proc/cpuinfo");
    let model = cpus.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_string())
    });
    let cores = cpus.lines().filter(|l| l.starts_with("processor")).count();
    let release = read("/proc/sys/kernel/osrelease");
    let kernel: Vec<&str> = release.trim().splitn(3, '.').take(2).collect();
    let model = model.unwrap_or_else(|| std::env::consts::ARCH.into());
    format!("{cores} cores of {model}, Linux {}", kernel.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let command = Command::parse("shortstop-lab run x").unwrap();
        let results = || Results::at(dir.path().into());
        assert!(results().get(&command).unwrap().is_none());
        let kept = RunResult {
            command: command.text(),
            commit: "a".into(),
            machine: "m".into(),
            seconds: 7,
            code: BTreeMap::from([("wire".into(), "0123456789ab".into())]),
            figures: Map::from_iter([("f".into(), 1.into())]),
        };
        results().keep(&command, kept.clone()).unwrap();
        assert_eq!(results().get(&command).unwrap(), Some(&kept));
        // Nothing else is left in the folder.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
