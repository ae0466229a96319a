//! What came out of an experiment: filled by whatever measures, and printed, kept and drawn by
//! `shortstop-lab run`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{Options, World};

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: String,
    /// The world it ran in.
    pub world: World,
    /// The seed it ran with.
    pub seed: u64,
    /// The parameters it ran with.
    pub params: Value,
    /// One measurement each.
    pub rows: Vec<Value>,
    /// What it comes to.
    pub summary: Map<String, Value>,
    /// The numbers of it that are rounded there, as they were measured.
    #[serde(skip)]
    exact: BTreeMap<String, f64>,
    /// The table for the terminal.
    #[serde(skip)]
    pub text: String,
    /// Plots: file name and SVG.
    #[serde(skip)]
    pub plots: Vec<(String, String)>,
    /// What must not have been found, where it was: the run has failed.
    #[serde(skip)]
    pub failure: Option<String>,
}

impl Report {
    /// An empty report of an experiment.
    pub(crate) fn new(name: &str, options: &Options, params: Value) -> Report {
        Report {
            experiment: name.into(),
            world: options.world,
            seed: options.seed,
            params,
            rows: vec![],
            summary: Map::new(),
            exact: BTreeMap::new(),
            text: String::new(),
            plots: vec![],
            failure: None,
        }
    }

    /// The run has failed, for this reason beside those of before.
    pub fn fails(&mut self, reason: String) {
        self.failure = Some(match self.failure.take() {
            Some(before) => format!("{before}; {reason}"),
            None => reason,
        });
    }

    /// Adds a measured number to the summary.
    pub fn summarize(&mut self, name: impl Into<String>, value: f64) {
        // Three decimals are more than any of these measurements is good for.
        let rounded = (value * 1000.0).round() / 1000.0;
        let name = name.into();
        self.exact.insert(name.clone(), value);
        self.summary.insert(name, rounded.into());
    }

    /// The summary with what was measured in the place of what is shown of it: little is not
    /// nothing.
    pub(crate) fn exact(&self) -> Map<String, Value> {
        let mut exact = self.summary.clone();
        for (name, value) in &self.exact {
            let is_shown = exact.get(name).is_some_and(Value::is_number);
            // What is no number (0 of 0) has no place in JSON.
            let value = serde_json::Number::from_f64(*value).filter(|_| is_shown);
            value.into_iter().for_each(|value| _ = exact.insert(name.clone(), value.into()));
        }
        exact
    }

    /// Adds a count to the summary.
    pub fn count(&mut self, name: &str, count: u64) {
        self.summary.insert(name.into(), count.into());
    }

    /// Adds what something is called to the summary.
    pub fn say(&mut self, name: &str, text: String) {
        self.summary.insert(name.into(), text.into());
    }

    /// Adds a plot, to be written as `NAME.svg`.
    pub fn plot(&mut self, name: impl Into<String>, svg: String) {
        self.plots.push((name.into() + ".svg", svg));
    }

    /// Writes the plots into a directory; returns their paths.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write_plots(&self, dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let mut paths = vec![];
        for (name, svg) in &self.plots {
            let path = dir.join(name);
            std::fs::write(&path, svg).with_context(|| path.display().to_string())?;
            paths.push(path);
        }
        Ok(paths)
    }
}
