//! Experiments: a TOML file says what to measure on a rack; one module per kind measures it.
//!
//! ```toml
//! name = "some-skew"
//! kind = "skew"
//! title = "Throughput under skew"
//! discipline = "some"
//! [params]
//! keys = 1000000
//! [quick]           # replaces params under --quick
//! keys = 100000
//! ```

mod bench;
mod churn;
mod coherence;
mod demo;
pub mod fabric;
mod fill;
mod outside_writes;
mod ownership;
mod params;
pub mod plot;
mod recorders;
mod skew;
pub mod table;
mod tenancy;
mod tenants;
mod verdict;
mod writes;

pub use bench::{Backend, Bench};
pub use params::Params;
pub use tenancy::Tenancy;
pub use tenants::{controller_failover, tenant_isolation, work_conserving};

use std::path::PathBuf;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use lab::progress::Progress;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Saturation throughput over distributions, without and with the cache.
    Skew,
    /// Throughput over time while popularity changes.
    Churn,
    /// Saturation throughput over write ratios, without and with the cache.
    Writes,
    /// One distribution, without and with the cache, told to a newcomer.
    Demo,
    /// Staleness of reads while another client writes to the backend directly.
    OutsideWrites,
    /// Whether clients can tell the copies from one value while everything goes wrong.
    Coherence,
    /// Several users of one switch: what is cached of each one's keys, and what sharing costs.
    Users,
    /// One user of several switches: where pages are placed.
    Policies,
    /// One user of several switches: who answers, and how far away that is.
    Hops,
    /// A well-behaved tenant beside others that are not.
    Isolation,
    /// Idle memory of one tenant beside another that could use it.
    Borrowing,
    /// Several controllers, the leader killed again and again.
    Failover,
}

impl Kind {
    /// Whether it is tenants' pages that bound the cache, and not a number of items.
    fn has_tenants(self) -> bool {
        matches!(
            self,
            Kind::Users
                | Kind::Policies
                | Kind::Hops
                | Kind::Isolation
                | Kind::Borrowing
                | Kind::Failover
        )
    }
}

/// One experiment as its file describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The name for `lab run`.
    pub name: String,
    /// What is measured.
    pub kind: Kind,
    /// One line for `lab list`.
    pub title: String,
    /// The discipline that is compared with `none`.
    pub discipline: String,
    /// Parameters of the full run.
    #[serde(default)]
    pub params: toml::Table,
    /// What differs under `--quick`.
    #[serde(default)]
    pub quick: toml::Table,
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The short version, done within 45 seconds.
    pub quick: bool,
    /// Decides everything random.
    pub seed: u64,
    /// What holds the data.
    pub backend: Backend,
    /// The lab's name; unique if absent.
    pub name: Option<String>,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub experiment: String,
    /// The seed it ran with.
    pub seed: u64,
    /// The parameters it ran with.
    pub params: Value,
    /// One measurement each.
    pub rows: Vec<Value>,
    /// What it comes to.
    pub summary: Map<String, Value>,
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
    fn new(name: &str, options: &Options, params: &Params) -> anyhow::Result<Report> {
        Ok(Report {
            experiment: name.into(),
            seed: options.seed,
            params: serde_json::to_value(params)?,
            rows: vec![],
            summary: Map::new(),
            text: String::new(),
            plots: vec![],
            failure: None,
        })
    }

    /// The run has failed, for this reason beside those of before.
    fn fails(&mut self, reason: String) {
        self.failure = Some(match self.failure.take() {
            Some(before) => format!("{before}; {reason}"),
            None => reason,
        });
    }

    fn summarize(&mut self, name: impl Into<String>, value: f64) {
        // Three decimals are more than any of these measurements is good for.
        let rounded = (value * 1000.0).round() / 1000.0;
        self.summary.insert(name.into(), rounded.into());
    }

    /// Writes the plots into a directory; returns their paths.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write_plots(&self, dir: &std::path::Path) -> anyhow::Result<Vec<PathBuf>> {
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

impl Experiment {
    /// Reads an experiment's file.
    ///
    /// # Errors
    /// What is wrong with it, parameters included.
    pub fn parse(text: &str) -> anyhow::Result<Experiment> {
        let experiment: Experiment = toml::from_str(text).context("experiment file")?;
        for quick in [false, true] {
            experiment
                .params(quick)
                .with_context(|| format!("experiment {}", experiment.name))?;
        }
        Ok(experiment)
    }

    /// The parameters, with those of `[quick]` on top if asked for.
    ///
    /// # Errors
    /// A parameter that does not exist or has the wrong type or range.
    pub fn params(&self, quick: bool) -> anyhow::Result<Params> {
        let mut table = self.params.clone();
        if quick {
            overlay(&mut table, &self.quick);
        }
        let params: Params = toml::Value::Table(table).try_into().context("parameters")?;
        params.check()?;
        if !self.kind.has_tenants() {
            params.check_items()?;
        }
        Ok(params)
    }

    /// Runs it.
    ///
    /// # Errors
    /// A lab that cannot be built, a process that dies, an interruption. Nothing is left behind.
    pub fn run(&self, options: &Options) -> anyhow::Result<Report> {
        let params = self.params(options.quick)?;
        let progress = Progress::new();
        match self.kind {
            Kind::Skew => skew::run(self, &params, options, &progress),
            Kind::Churn => churn::run(self, &params, options, &progress),
            Kind::Writes => writes::run(self, &params, options, &progress),
            Kind::Demo => demo::run(self, &params, options, &progress),
            Kind::OutsideWrites => outside_writes::run(self, &params, options, &progress),
            Kind::Coherence => coherence::run(self, &params, options, &progress),
            Kind::Users => tenants::users::run(self, &params, options, &progress),
            Kind::Policies => tenants::policies::run(self, &params, options, &progress),
            Kind::Hops => tenants::hops::run(self, &params, options, &progress),
            Kind::Isolation => tenants::isolation::run(self, &params, options, &progress),
            Kind::Borrowing => tenants::borrowing::run(self, &params, options, &progress),
            Kind::Failover => tenants::failover::run(self, &params, options, &progress),
        }
    }
}

/// Replaces values by those of another table, in tables within tables too.
fn overlay(table: &mut toml::Table, by: &toml::Table) {
    for (name, value) in by {
        match (table.get_mut(name), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(above)) => overlay(below, above),
            _ => {
                table.insert(name.clone(), value.clone());
            }
        }
    }
}

/// The demonstration for newcomers: it belongs to no paper, so it has no file.
pub fn demo(discipline: &str) -> Experiment {
    let table = |text: &str| text.parse::<toml::Table>().expect("a constant table");
    Experiment {
        name: "demo".into(),
        kind: Kind::Demo,
        title: "A rack of emulated servers under skew, without and with a cache in the switch"
            .into(),
        discipline: discipline.into(),
        params: table(
            "keys = 100000\nitems = 1000\nthetas = [0.99]\nlearn_s = 6.0\nsearch_s = 10.0",
        ),
        quick: table("learn_s = 4.0\nsearch_s = 6.0"),
    }
}

/// The hunt for a wrong value while links and processes fail: it is about every discipline, so it has no file.
/// Of its tenants, one has the other discipline.
pub fn coherence(discipline: &str, other: &str) -> Experiment {
    let table = |text: String| text.parse::<toml::Table>().expect("a constant table");
    Experiment {
        name: "coherence".into(),
        kind: Kind::Coherence,
        title: "Histories of clients under loss, kills, page moves and cut links, checked".into(),
        discipline: discipline.into(),
        params: table(format!(
            "keys = 12\nitems = 4\ntenancy = {{ other_discipline = {other:?} }}"
        )),
        quick: toml::Table::new(),
    }
}

/// Writes by another client of the Redis behind a store; of no paper either.
pub fn outside_writes(discipline: &str) -> Experiment {
    let table = |text: &str| text.parse::<toml::Table>().expect("a constant table");
    Experiment {
        name: "outside-writes".into(),
        kind: Kind::OutsideWrites,
        title: "How old is what readers get while another client writes to Redis directly".into(),
        discipline: discipline.into(),
        params: table(
            "keys = 1000\nservers = 1\nserver_rate = 100000.0\nqueue_limit = 1024\nitems = 256\n\
             learn_s = 20.0\nstep_s = 20.0",
        ),
        quick: table("step_s = 6.0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quick_replaces_parameters() {
        let text = "name = \"x\"\nkind = \"skew\"\ntitle = \"t\"\ndiscipline = \"d\"\n\
                    [params]\nkeys = 5000\nitems = 50\n[quick]\nkeys = 500\n";
        let experiment = Experiment::parse(text).unwrap();
        assert_eq!(experiment.params(false).unwrap().keys, 5000);
        let quick = experiment.params(true).unwrap();
        assert_eq!((quick.keys, quick.items), (500, 50));
    }

    #[test]
    fn quick_replaces_within_tables() {
        let text = "name = \"x\"\nkind = \"users\"\ntitle = \"t\"\ndiscipline = \"d\"\n\
                    [params.tenancy]\nquota = 30\nmany = 8\n[quick.tenancy]\nmany = 4\n";
        let experiment = Experiment::parse(text).unwrap();
        let quick = experiment.params(true).unwrap().tenancy;
        assert_eq!((quick.quota, quick.many), (30, 4));
    }

    #[test]
    fn errors_name_the_parameter() {
        let text = "name = \"x\"\nkind = \"skew\"\ntitle = \"t\"\ndiscipline = \"d\"\n[params]\n";
        for (line, expected) in [
            ("kees = 5", "kees"),
            ("keys = 0", "keys = 0"),
            ("write_ratios = [2.0]", "write_ratios"),
            ("keys = 10\nitems = 20", "items = 20"),
            ("tenancy = { rounds = 0 }", "rounds = 0"),
            ("tenancy = { qota = 1 }", "qota"),
        ] {
            let error = format!(
                "{:#}",
                Experiment::parse(&format!("{text}{line}")).unwrap_err()
            );
            assert!(
                error.contains(expected),
                "{error:?} should name {expected:?}"
            );
        }
    }
}
