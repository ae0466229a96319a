use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::exponent,
    servers::{Rack, Search},
};
use load::{Phase, workload::Popularity};
use serde::{Deserialize, Serialize};
use wire::Lengths;

use crate::{
    axis::{self, Place},
    bench::{Balance, Bench, System},
};

/// Throughput of copies and replicas together, and of either alone.
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
    /// Lengths of values in bytes, and how often each is.
    mix: Vec<(usize, f64)>,
    /// What is compared.
    systems: Vec<System>,
}

impl Hybrid {
    fn rack(&self) -> Rack {
        let mix = self.mix.clone();
        Rack {
            value_len: Lengths::Mix { mix, salt: 0 },
            ..self.rack.clone()
        }
    }
}

impl Measure for Hybrid {
    fn check(&self) -> anyhow::Result<()> {
        self.search.check()?;
        self.balance.check(&self.rack)?;
        exponent(self.theta)?;
        let ratio = self.write_ratio;
        ensure!((0.0..=1.0).contains(&ratio), "write_ratio: {ratio}: 0 to 1");
        self.rack().check()
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let (popularity, write_ratio) = (Popularity::Zipf(self.theta), self.write_ratio);
        let mut measured = vec![];
        for system in &self.systems {
            let mut bench = Bench::new(run, &self.rack(), &self.balance, *system)?;
            bench.learn(popularity, write_ratio)?;
            let balance = bench.measure(popularity, write_ratio, None)?;
            let phase = |rate, warmup, seconds| Phase {
                write_ratio,
                ..Phase::reads(popularity, rate, warmup, seconds)
            };
            let expected = bench.expected(popularity, write_ratio);
            let point = bench
                .servers
                .saturate(expected, system.name(), &self.search, phase)?;
            measured.push((balance, Some(point.rate)));
        }
        let place = Place {
            percent: write_ratio * 100.0,
            measured,
        };
        let title = "Imbalance of copies and replicas together, and of either alone";
        axis::tell(
            report,
            "writes",
            run.name,
            title,
            std::slice::from_ref(&place),
        );
        let others = self.systems.iter().filter(|one| **one != System::Hybrid);
        let over = others.filter_map(|other| place.rate_over(System::Hybrid, *other));
        report.summarize("hybrid_over_best", over.fold(f64::INFINITY, f64::min));
        Ok(())
    }
}
