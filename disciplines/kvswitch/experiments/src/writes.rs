use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::exponent,
    servers::{Rack, Search},
};
use load::{Phase, workload::Popularity};
use serde::{Deserialize, Serialize};

use crate::{
    axis::{self, Place},
    bench::{Balance, Bench, System},
};

/// Balance and throughput over the part of the requests that write (figure 7e).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    balance: Balance,
    /// Zipf's exponent.
    theta: f64,
    /// Parts of the requests that write.
    ratios: Vec<f64>,
    /// What is compared.
    systems: Vec<System>,
}

impl Measure for Writes {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.balance.check(&self.rack)?;
        exponent(self.theta)?;
        ensure!(!self.ratios.is_empty(), "ratios: none is given");
        let mut ratios = self.ratios.iter();
        ratios.try_for_each(|ratio| {
            ensure!((0.0..=1.0).contains(ratio), "ratios: {ratio}: 0 to 1");
            Ok(())
        })
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let popularity = Popularity::Zipf(self.theta);
        let place = |ratio: &f64| Place {
            percent: ratio * 100.0,
            measured: vec![],
        };
        let mut places: Vec<Place> = self.ratios.iter().map(place).collect();
        for system in &self.systems {
            let mut bench = Bench::new(run, &self.rack, &self.balance, *system)?;
            for (ratio, place) in self.ratios.iter().zip(&mut places) {
                bench.learn(popularity, *ratio)?;
                let rate = 0.9 * bench.bound_without(popularity, *ratio);
                let measured = bench.measure(popularity, *ratio, Some(rate))?;
                let what = format!("{:.0} % writes, {}", ratio * 100.0, system.name());
                let phase = |rate, warmup, seconds| Phase {
                    write_ratio: *ratio,
                    ..Phase::reads(popularity, rate, warmup, seconds)
                };
                let expected = bench.expected(popularity, *ratio);
                let point = bench
                    .servers
                    .saturate(expected, &what, &self.search, phase)?;
                place.measured.push((measured, Some(point.rate)));
            }
        }
        let title = "Imbalance over the part of writes (KVSwitch, fig. 7e)";
        axis::tell(report, "writes", run.name, title, &places);
        let over = |what: fn(&Place, System, System) -> Option<f64>| {
            let all = places.iter();
            all.filter_map(move |place| what(place, System::Replicas, System::None))
        };
        let imbalance = over(Place::imbalance_over).fold(0.0, f64::max);
        report.summarize("imbalance_over_none_max", imbalance);
        let least = over(Place::imbalance_over).fold(f64::INFINITY, f64::min);
        report.summarize("imbalance_over_none_min", least);
        let throughput = over(Place::rate_over).fold(f64::INFINITY, f64::min);
        report.summarize("throughput_over_none_min", throughput);
        let most = over(Place::rate_over).fold(0.0, f64::max);
        report.summarize("throughput_over_none_max", most);
        Ok(())
    }
}
