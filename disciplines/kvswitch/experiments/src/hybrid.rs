use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::{self, exponent},
    plot,
    servers::{Rack, Saturation, Search},
    table::{Table, micros, percent, thousands},
};
use load::{Phase, workload::Popularity};
use serde::{Deserialize, Serialize};
use wire::Lengths;

use crate::bench::{Balance, Bench, System};

/// Throughput of copies and replicas together over that of either alone, for workloads that stand for production traces.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hybrid {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    balance: Balance,
    /// Zipf's exponent.
    theta: f64,
    /// The part of the requests that writes.
    write_ratio: f64,
    /// By this the servers' rates are divided once more, so that switch and generator are never what is measured.
    slower: f64,
    /// The longest value that NetCache alone holds where it is the paper's, in bytes.
    longest_value: u32,
    /// Windows at the rate that was found, before it is looked for again; 0: it is not.
    windows_there: u32,
    /// What is compared.
    systems: Vec<System>,
    /// The workloads.
    workloads: Vec<Workload>,
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

/// What a system came to under a workload.
struct Came {
    system: System,
    point: Saturation,
    figures: std::collections::BTreeMap<String, f64>,
}

impl Came {
    fn row(&self, workload: &str) -> serde_json::Value {
        serde_json::json!({
            "workload": workload,
            "system": self.system.name(),
            "rate": self.point.rate,
            "loss": self.point.result.loss(),
            "all": self.point.result.all,
            "server_load": self.point.server_load,
            "switch": self.point.counted.switch,
            "control": self.figures,
            "wrong_values": self.point.result.wrong(),
        })
    }
}

impl Hybrid {
    fn came(&self, run: &Run<'_>, workload: &Workload, system: System) -> anyhow::Result<Came> {
        let mut rack = Rack {
            value_len: workload.lengths(self.longest_value as usize),
            factor: self.rack.factor * self.slower,
            ..self.rack.clone()
        };
        if system == System::Cache {
            let setting = ("netcache.longest_value".into(), self.longest_value);
            rack.settings.extend([setting]);
        }
        let (popularity, write_ratio) = (Popularity::Zipf(self.theta), self.write_ratio);
        let mut bench = Bench::new(run, &rack, &self.balance, system)?;
        bench.learn(popularity, write_ratio)?;
        let phase = |rate, warmup, seconds| Phase {
            write_ratio,
            ..Phase::reads(popularity, rate, warmup, seconds)
        };
        let what = format!("workload {}, {}", workload.name, system.name());
        let expected = bench.expected(popularity, write_ratio);
        let mut point = bench
            .servers
            .saturate(expected, &what, &self.search, phase)?;
        if self.windows_there > 0 {
            // What keys are to have depends on how busy servers are: it is learnt where it is to be measured.
            bench.go_on(popularity, write_ratio, point.rate, self.windows_there)?;
            let again = bench
                .servers
                .saturate(point.rate, &what, &self.search, phase)?;
            if again.rate > point.rate {
                point = again;
            }
        }
        Ok(Came {
            system,
            point,
            figures: bench.figures(),
        })
    }
}

impl Measure for Hybrid {
    fn check(&self) -> anyhow::Result<()> {
        self.search.check()?;
        self.balance.check(&self.rack)?;
        exponent(self.theta)?;
        params::ratio("write_ratio", self.write_ratio)?;
        params::positive([("slower", self.slower)])?;
        for workload in &self.workloads {
            for part in [workload.cacheable, workload.short] {
                params::ratio(&format!("workloads: {}", workload.name), part)?;
            }
        }
        let is_there = self.systems.contains(&System::Hybrid);
        ensure!(is_there, "systems: without hybrid nothing is compared");
        self.rack.check()
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut table = Table::new(&["workload", "system", "req/s", "lost", "hits", "p50", "p99"]);
        let mut series: Vec<(&str, Vec<f64>)> =
            self.systems.iter().map(|s| (s.name(), vec![])).collect();
        let (mut least, mut wrong) = (f64::INFINITY, 0);
        for workload in &self.workloads {
            let (mut hybrid, mut best) = (0.0, 0.0_f64);
            for (system, (_, rates)) in self.systems.iter().zip(&mut series) {
                let came = self.came(run, workload, *system)?;
                let result = &came.point.result;
                table.row([
                    workload.name.clone(),
                    system.name().into(),
                    thousands(came.point.rate),
                    percent(result.loss()),
                    percent(result.hit_ratio()),
                    micros(result.all.p50_us),
                    micros(result.all.p99_us),
                ]);
                report.rows.push(came.row(&workload.name));
                wrong += result.wrong();
                rates.push(came.point.rate);
                match system {
                    System::Hybrid => hybrid = came.point.rate,
                    _ => best = best.max(came.point.rate),
                }
            }
            let over = hybrid / best;
            report.summarize(format!("hybrid_over_best_{}", workload.name), over);
            least = least.min(over);
        }
        report.summarize("hybrid_over_best", least);
        report.count("wrong_values", wrong);
        report.text = table.render();
        let groups: Vec<String> = self.workloads.iter().map(|w| w.name.clone()).collect();
        let bars = plot::GroupedBars {
            title: "Saturation throughput of copies and replicas together, and of either alone",
            y: "requests per second",
            groups: &groups,
            series: &series,
            marks: None,
        };
        report.plot(run.name, plot::grouped_bars(&bars));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_orbit_production() {
        let workload = Workload {
            name: "D".into(),
            cacheable: 0.15,
            short: 0.85,
        };
        let Lengths::Mix { mix, .. } = workload.lengths(64) else {
            panic!("several lengths");
        };
        let expected = [(64, 0.15), (65, 0.7), (1024, 0.15)];
        let near = |(a, b): (&(usize, f64), &(usize, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9;
        assert!(mix.len() == 3 && mix.iter().zip(&expected).all(near));
    }
}
