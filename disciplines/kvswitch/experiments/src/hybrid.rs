//! Copies and replicas together beside either alone, for workloads that stand for production
//! traces.

use experiments::{
    Run,
    params::{self, by_name},
    servers::{Mix, Rack, Search},
    sweep::{Figures, Point, Points},
};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};
use serde_json::json;
use wire::Lengths;

use crate::bench::{Balance, Bench, System};

/// One system under one workload.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Together {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    balance: Balance,
    /// How requests spread, reads and writes alike, and the part of them that writes.
    #[serde(with = "by_name")]
    popularity: Popularity,
    write_ratio: f64,
    /// By this the servers' rates are divided once more, so that switch and generator are never
    /// what is measured.
    slower: f64,
    /// The longest value that NetCache alone holds where it is the paper's, in bytes.
    longest_value: u32,
    /// Windows at the rate that was found, before it is looked for again; 0: it is not.
    windows_there: u32,
    /// What stands before the servers.
    system: System,
    workload: Workload,
}

/// Values of a trace, as the experiment `orbit-production` takes them.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Workload {
    /// The name that it has there.
    name: String,
    /// Part of the keys that fit NetCache, whatever the reason.
    cacheable: f64,
    /// Part of the keys with short values, of 64 bytes; the others' have 1024.
    short: f64,
}

impl Workload {
    /// Lengths of its values, where NetCache has those of so many bytes.
    fn lengths(&self, fits: usize) -> Lengths {
        params::lengths_of_trace(self.cacheable, self.short, fits)
    }
}

impl Point for Together {
    const HAS_BACKEND: bool = true;
    type Bench<'a> = Bench<'a>;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.balance.check(&self.rack)?;
        params::ratio("write_ratio", self.write_ratio)?;
        params::positive!(self, slower)?;
        let name = format!("workload {}", self.workload.name);
        let parts = [self.workload.cacheable, self.workload.short];
        parts.iter().try_for_each(|part| params::ratio(&name, *part))
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Bench<'a>> {
        let mut rack = Rack {
            value_len: self.workload.lengths(self.longest_value as usize),
            factor: self.rack.factor * self.slower,
            ..self.rack.clone()
        };
        if self.system == System::Cache {
            let setting = ("netcache.longest_value".into(), self.longest_value);
            rack.settings.extend([setting]);
        }
        Bench::new(run, &rack, &self.balance, self.system)
    }

    fn measure(
        &self,
        bench: &mut Bench<'_>,
        _: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let mix = Mix { popularity: self.popularity, write_ratio: self.write_ratio };
        bench.learn(mix)?;
        let what = format!("workload {}, {}", self.workload.name, self.system.name());
        let mut point = bench.saturate(&what, &self.search, mix)?;
        if self.windows_there > 0 {
            // What keys are to have depends on how busy servers are: it is learnt where it is to be
            // measured.
            bench.go_on(mix, point.rate, self.windows_there)?;
            let again = bench.saturate_from(point.rate, &what, &self.search, mix)?;
            if again.rate > point.rate {
                point = again;
            }
        }
        let row = json!({
            "rate": point.rate,
            "is_confirmed": point.is_confirmed,
            "loss": point.result.loss(),
            "all": point.result.all,
            "server_load": point.server_load,
            "switch": point.counted.switch,
            "control": bench.figures(),
            "wrong_values": point.result.wrong(),
        });
        let figures = Figures::new(row).aside("hit_ratio", point.result.hit_ratio());
        Ok(vec![figures])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_orbit_production() {
        let workload = Workload { name: "D".into(), cacheable: 0.15, short: 0.85 };
        let Lengths::Mix { mix, .. } = workload.lengths(64) else {
            panic!("several lengths");
        };
        let expected = [(64, 0.15), (65, 0.7), (1024, 0.15)];
        let near = |(a, b): (&(usize, f64), &(usize, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9;
        assert!(mix.len() == 3 && mix.iter().zip(&expected).all(near));
    }
}
