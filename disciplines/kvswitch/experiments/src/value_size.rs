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

/// Balance and throughput over the part of the values that are long (figures 7c and 7d).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueSize {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    balance: Balance,
    /// Zipf's exponent.
    theta: f64,
    /// Percents of the values that are long.
    long_percents: Vec<u32>,
    /// Length of the others, and of those, in bytes.
    short: usize,
    long: usize,
    /// What is compared.
    systems: Vec<System>,
}

impl ValueSize {
    fn of(&self, long_percent: u32) -> Rack {
        let all = |len: usize| Lengths::from(len);
        let value_len = match long_percent {
            0 => all(self.short),
            100 => all(self.long),
            percent => Lengths::Mix {
                mix: vec![
                    (self.short, f64::from(100 - percent)),
                    (self.long, f64::from(percent)),
                ],
                salt: 0,
            },
        };
        Rack {
            value_len,
            ..self.rack.clone()
        }
    }
}

impl Measure for ValueSize {
    fn check(&self) -> anyhow::Result<()> {
        self.search.check()?;
        self.balance.check(&self.rack)?;
        exponent(self.theta)?;
        ensure!(
            !self.long_percents.is_empty(),
            "long_percents: none is given"
        );
        let mut percents = self.long_percents.iter();
        percents.try_for_each(|percent| {
            ensure!(*percent <= 100, "long_percents: {percent}: at most 100");
            self.of(*percent).check()
        })
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let popularity = Popularity::Zipf(self.theta);
        let mut places = vec![];
        for percent in &self.long_percents {
            let mut measured = vec![];
            for system in &self.systems {
                let mut bench = Bench::new(run, &self.of(*percent), &self.balance, *system)?;
                bench.learn(popularity, 0.0)?;
                let balance = bench.measure(popularity, 0.0, None)?;
                let what = format!("{percent} % long, {}", system.name());
                let phase = |rate, warmup, seconds| Phase::reads(popularity, rate, warmup, seconds);
                let expected = bench.expected(popularity, 0.0);
                let point = bench
                    .servers
                    .saturate(expected, &what, &self.search, phase)?;
                measured.push((balance, Some(point.rate)));
            }
            places.push(Place {
                percent: f64::from(*percent),
                measured,
            });
        }
        let title = "Imbalance over the part of long values (KVSwitch, fig. 7c)";
        axis::tell(report, "long values", run.name, title, &places);
        let of = places.iter().filter_map(|place| place.of(System::Replicas));
        let imbalance = of.map(|(one, _)| one.imbalance()).fold(0.0, f64::max);
        report.summarize("imbalance_max", imbalance);
        let over = |what: fn(&Place, System, System) -> Option<f64>| {
            let all = places.iter();
            all.filter_map(move |place| what(place, System::Replicas, System::None))
        };
        let imbalance = over(Place::imbalance_over).fold(0.0, f64::max);
        report.summarize("imbalance_over_none_max", imbalance);
        let throughput = over(Place::rate_over).fold(f64::INFINITY, f64::min);
        report.summarize("throughput_over_none_min", throughput);
        Ok(())
    }
}
