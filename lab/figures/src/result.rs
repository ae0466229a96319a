//! What is kept of a run: its figures, and on which machine and of which code they are.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// How long it took, with one seed.
    pub seconds: u64,
    /// What it ran.
    pub code: Versions,
    /// By name; of several seeds the medians.
    pub figures: Map<String, Value>,
    /// The seeds with which it missed what is claimed: their figures are among the others.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub failed: BTreeSet<u64>,
    /// The same of each seed, where it is to be run with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Seeds>,
}

/// What came of each seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seeds {
    /// How many there are to be, from 1 on.
    pub wanted: u64,
    /// The figures of each that was run.
    pub figures: BTreeMap<u64, Map<String, Value>>,
}

impl RunResult {
    /// With how many seeds it is to be run.
    pub fn wanted_seeds(&self) -> u64 {
        self.seeds.as_ref().map_or(1, |seeds| seeds.wanted)
    }

    /// Whether it was run with this seed.
    pub fn has_seed(&self, seed: u64) -> bool {
        match &self.seeds {
            Some(seeds) => seeds.figures.contains_key(&seed),
            None => seed == 1,
        }
    }

    /// With how many seeds it was run.
    pub fn seed_count(&self) -> usize {
        self.seeds.as_ref().map_or(1, |seeds| seeds.figures.len())
    }

    /// The lowest and the highest value of a figure that differs from seed to seed.
    pub fn range(&self, name: &str) -> Option<[f64; 2]> {
        self.figures.get(name)?.as_f64()?;
        let all = numbers(&self.seeds.as_ref()?.figures, name);
        let (low, high) = (all.first()?, all.last()?);
        (low < high).then_some([*low, *high])
    }

    /// With one more seed's figures, of the same code: those of `before` stay, of other code they
    /// do not.
    pub fn with_seed(mut self, seed: u64, wanted: u64, before: Option<&RunResult>) -> RunResult {
        let before = before.filter(|before| before.code == self.code);
        let others = before.into_iter().flat_map(|before| &before.failed).copied();
        self.failed.extend(others.filter(|other| *other != seed && *other <= wanted));
        let mut all = match before {
            Some(RunResult { seeds: Some(seeds), .. }) => seeds.figures.clone(),
            Some(before) => BTreeMap::from([(1, before.figures.clone())]),
            None => BTreeMap::new(),
        };
        all.insert(seed, std::mem::take(&mut self.figures));
        all.retain(|seed, _| *seed <= wanted);
        let names: BTreeSet<String> = all.values().flat_map(Map::keys).cloned().collect();
        for name in names {
            let is_number = |of: &Map<String, Value>| of.get(&name).is_none_or(Value::is_number);
            let value = match median(&numbers(&all, &name)) {
                Some(median) if all.values().all(is_number) => median.into(),
                // Of some seeds it is said that there is no such number.
                Some(_) => {
                    let mut texts = all.values().filter_map(|of| of.get(&name));
                    texts.find(|value| !value.is_number()).cloned().unwrap_or_default()
                }
                None => all.values().find_map(|of| of.get(&name)).cloned().unwrap_or_default(),
            };
            self.figures.insert(name, value);
        }
        self.seeds = (wanted > 1).then_some(Seeds { wanted, figures: all });
        self
    }
}

/// A figure of all seeds, the lowest first.
fn numbers(of_seeds: &BTreeMap<u64, Map<String, Value>>, name: &str) -> Vec<f64> {
    let all = of_seeds.values().filter_map(|of| of.get(name)?.as_f64());
    let mut all: Vec<f64> = all.collect();
    all.sort_by(f64::total_cmp);
    all
}

/// The middle one of sorted numbers; of an even number of them the mean of the two in the middle.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let above = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { above } else { (sorted[middle - 1] + above) / 2.0 })
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
            failed: BTreeSet::new(),
            seeds: None,
        };
        results().keep(&command, kept.clone()).unwrap();
        assert_eq!(results().get(&command).unwrap(), Some(&kept));
        // Nothing else is left in the folder.
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn of_several_seeds_there_are_the_median_and_the_range() {
        let of = |figure: f64, code: &str| RunResult {
            command: "c".into(),
            commit: "a".into(),
            machine: "m".into(),
            seconds: 7,
            code: BTreeMap::from([("wire".into(), code.into())]),
            figures: Map::from_iter([("f".into(), figure.into()), ("t".into(), "text".into())]),
            failed: BTreeSet::new(),
            seeds: None,
        };
        // What was kept of one seed before anybody asked for several counts as the first.
        let mut kept = of(5.0, "1");
        for (seed, figure) in [(3, 2.0), (2, 9.0)] {
            kept = of(figure, "1").with_seed(seed, 3, Some(&kept));
        }
        assert_eq!((&kept.figures["f"], &kept.figures["t"]), (&5.0.into(), &"text".into()));
        assert_eq!(kept.range("f"), Some([2.0, 9.0]));
        assert_eq!((kept.range("t"), kept.range("other")), (None, None));
        assert_eq!((kept.seed_count(), kept.wanted_seeds(), kept.has_seed(2)), (3, 3, true));
        let newer = of(4.0, "2").with_seed(2, 3, Some(&kept));
        assert_eq!((newer.seed_count(), newer.range("f"), newer.has_seed(1)), (1, None, false));
        let one = of(4.0, "1").with_seed(1, 1, Some(&kept));
        assert_eq!((one.seeds.clone(), &one.figures["f"]), (None, &4.0.into()));
        let mut never = of(4.0, "1");
        never.figures.insert("f".into(), "never".into());
        let never = never.with_seed(2, 3, Some(&of(5.0, "1")));
        assert_eq!((&never.figures["f"], never.range("f")), (&"never".into(), None));
        let even = of(4.0, "1").with_seed(4, 4, Some(&kept));
        assert_eq!(even.figures["f"], 4.5);
    }
}
