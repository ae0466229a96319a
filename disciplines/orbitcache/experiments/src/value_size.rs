use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run, World,
    params::{exponent, value_len},
    plot,
    servers::{Rack, Search},
};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};

use crate::{
    axis::{self, Place},
    system::{Bench, Caches, Measured, Mix, System},
};

/// Memory for values of all servers of the kernel's world, which are one process there; and what a key takes beside its value.
const MEMORY_BYTES: usize = 700 << 20;
const KEY_BYTES: usize = 200;

/// Throughput, balance, and the number of items with which it is best, over the length that all values have (figure 17).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValueSize {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    caches: Caches,
    /// Zipf's exponent.
    theta: f64,
    /// Lengths of values in bytes, in the place of the rack's.
    lengths: Vec<usize>,
    /// Numbers of items of which the best is looked for.
    sizes: Vec<usize>,
}

impl Measure for ValueSize {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        exponent(self.theta)?;
        ensure!(!self.sizes.is_empty(), "sizes: none is given");
        ensure!(!self.lengths.is_empty(), "lengths: none is given");
        self.lengths.iter().try_for_each(|len| value_len(*len))?;
        let mut sizes = self.sizes.iter();
        sizes.try_for_each(|items| self.caches.circulating(*items).check(&self.rack))
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mix = Mix::reads(Popularity::Zipf(self.theta));
        let mut places = vec![];
        let mut sizes = vec![];
        for len in &self.lengths {
            let mut rack = Rack {
                value_len: (*len).into(),
                ..self.rack.clone()
            };
            if run.options.world == World::Kernel {
                rack.keys = rack.keys.min(MEMORY_BYTES / (len + KEY_BYTES));
            }
            let mut best: Option<(usize, Measured)> = None;
            for items in &self.sizes {
                let mut bench =
                    Bench::new(run, &rack, &self.caches.circulating(*items), System::Orbit)?;
                let what = format!("{len} bytes, {items} items");
                let one = bench.saturate(&what, &self.search, mix)?;
                if best
                    .as_ref()
                    .is_none_or(|(_, best)| one.rate() > best.rate())
                {
                    best = Some((*items, one));
                }
            }
            let Some((items, one)) = best else { continue };
            let rate = one.rate();
            report.summarize(format!("rate_{len}"), rate);
            report.summarize(format!("best_items_{len}"), items as f64);
            sizes.push(items as f64);
            places.push(Place {
                name: len.to_string(),
                measured: vec![one],
            });
        }
        let of = |number: fn(&Measured) -> f64| -> Vec<f64> {
            places
                .iter()
                .flat_map(|p| &p.measured)
                .map(number)
                .collect()
        };
        let (rates, balances) = (of(Measured::rate), of(Measured::balancing_efficiency));
        let least = |all: &[f64]| all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        report.summarize("slowest_over_fastest", least(&rates) / most);
        report.summarize("balancing_efficiency_min", least(&balances));
        axis::tell(report, "bytes", &places);
        let groups: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
        for (suffix, title, y, values) in [
            (
                "",
                "Saturation throughput over the values' length (OrbitCache, fig. 17a)",
                "requests per second",
                rates,
            ),
            (
                "-balance",
                "Balancing efficiency over the values' length (OrbitCache, fig. 17b)",
                "least loaded in % of most loaded",
                balances.iter().map(|part| part * 100.0).collect(),
            ),
            (
                "-items",
                "Items with which it is best (OrbitCache, fig. 17c)",
                "items",
                sizes,
            ),
        ] {
            let svg = plot::grouped_bars(&plot::GroupedBars {
                title,
                y,
                groups: &groups,
                series: &[("orbitcache", values)],
                marks: None,
            });
            report.plot(format!("{}{suffix}", run.name), svg);
        }
        Ok(())
    }
}
