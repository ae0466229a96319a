//! What servers carry behind each system under workloads that others have published, or that were
//! recorded.

use std::path::PathBuf;

use anyhow::ensure;
use load::{Phase, TraceSpec, TraceTally};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Climb, System};
use crate::{
    Run,
    servers::{Rack, Search, Servers},
    sweep::{Figures, Point, Points},
};

/// One system under one workload.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadPoint {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    climb: Climb,
    /// What stands before the servers.
    system: System,
    workload: Workload,
    /// The most requests of a recorded trace that are played, and as many are made of another
    /// workload, before they begin again.
    requests: usize,
}

/// What is asked for.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Workload {
    /// The published workload's name, or what a recorded one is called.
    name: String,
    /// The file of a recorded trace; none: requests are made like those of the published workload.
    #[serde(default)]
    trace: Option<PathBuf>,
}

/// Writes under way while keys are written for the first time, and how long that may take in
/// seconds.
const FILLING: usize = 256;
const FILL_S: f64 = 100_000.0;

/// A rack with one of the systems, whose keys are there.
pub struct Bench<'a> {
    servers: Servers<'a>,
    tally: TraceTally,
    keys: usize,
}

impl WorkloadPoint {
    /// Where its requests come from.
    fn spec(&self) -> TraceSpec {
        match &self.workload.trace {
            Some(path) => TraceSpec::File { path: path.clone(), most: self.requests },
            None => TraceSpec::Like {
                workload: self.workload.name.clone(),
                keys: self.rack.keys,
                requests: self.requests,
            },
        }
    }
}

impl Point for WorkloadPoint {
    type Bench<'a> = Bench<'a>;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.climb.check()?;
        ensure!(
            (1..=100_000_000).contains(&self.requests),
            "requests = {}: 1 to 100000000 are possible",
            self.requests
        );
        self.spec().check()
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Bench<'a>> {
        let spec = self.spec();
        let trace = spec.trace(run.options.seed)?;
        let (tally, keys) = (trace.tally, trace.keys());
        let rack = Rack { keys, items: self.rack.items.min(keys), ..self.rack.clone() };
        let rack = self.system.rack(&rack);
        let mut servers = Servers::new(run, &rack, run.options.backend)?;
        servers.play(spec);
        let (name, system) = (&self.workload.name, &self.system.name);
        run.progress.say(format!("{name}, {system}: writing {keys} keys"));
        servers.phase(&Phase::fill(FILLING, FILL_S))?;
        Ok(Bench { servers, tally, keys })
    }

    fn measure(
        &self,
        bench: &mut Bench<'_>,
        run: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let what = format!("{}, {}", self.workload.name, self.system.name);
        let found = self.climb.saturate(
            &mut bench.servers,
            (run, &self.rack),
            &what,
            &self.search,
            Phase::trace,
        )?;
        let (factor, result, tally) = (self.rack.factor, &found.result, bench.tally);
        let asked = tally.reads + tally.writes + tally.played_as_writes;
        let figures = Figures::new(json!({
            "rate": found.rate,
            "is_confirmed": found.is_confirmed,
            "loss": result.loss(),
            "hit_ratio": result.hit_ratio(),
            // Of all requests, the lost ones too.
            "p50_us": result.waits.p50_us.map(|us| us / factor),
            "p99_us": result.waits.p99_us.map(|us| us / factor),
            "keys": bench.keys,
            "requests": tally,
            "wrong_values": result.wrong(),
        }));
        let reads = tally.reads as f64 / (asked as f64).max(1.0);
        Ok(vec![
            figures.aside("millions", found.rate * factor / 1e6).aside("write_ratio", 1.0 - reads),
        ])
    }
}
