use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::exponent,
    plot,
    servers::{Rack, Search},
};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};

use crate::{
    axis::{self, Place},
    system::{Bench, Caches, Measured, Mix, System},
};

/// Throughput, the switch's latency, and requests that overflow, over the number of items that circulate (figure 16).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheSize {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    caches: Caches,
    /// Zipf's exponent.
    theta: f64,
    /// Numbers of items, in the place of `caches.orbit_items`.
    sizes: Vec<usize>,
}

impl Measure for CacheSize {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        exponent(self.theta)?;
        ensure!(!self.sizes.is_empty(), "sizes: none is given");
        let mut sizes = self.sizes.iter();
        sizes.try_for_each(|items| self.caches.circulating(*items).check(&self.rack))
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mix = Mix::reads(Popularity::Zipf(self.theta));
        let mut places = vec![];
        for items in &self.sizes {
            let mut bench = Bench::new(
                run,
                &self.rack,
                &self.caches.circulating(*items),
                System::Orbit,
            )?;
            let what = format!("{items} items");
            places.push(Place {
                name: items.to_string(),
                measured: vec![bench.saturate(&what, &self.search, mix)?],
            });
        }
        axis::tell(report, "items", &places);
        let best = |a: &&Place, b: &&Place| {
            let rate = |place: &Place| place.of(System::Orbit).map_or(0.0, Measured::rate);
            rate(a).total_cmp(&rate(b))
        };
        if let Some(best) = places.iter().max_by(best) {
            report.summarize("best_items", best.name.parse().unwrap_or(0.0));
        }
        for place in &places {
            let Some(one) = place.of(System::Orbit) else {
                continue;
            };
            report.summarize(format!("rate_{}", place.name), one.rate());
            report.summarize(
                format!("overflow_ratio_{}", place.name),
                one.overflow_ratio(),
            );
        }
        self.plots(report, run, &places);
        Ok(())
    }
}

impl CacheSize {
    fn plots(&self, report: &mut Report, run: &Run<'_>, places: &[Place]) {
        let groups: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
        let of = |number: &dyn Fn(&Measured) -> f64| -> Vec<f64> {
            let all = places.iter().filter_map(|place| place.of(System::Orbit));
            all.map(number).collect()
        };
        let factor = self.rack.factor;
        type Series<'a> = Vec<(&'a str, Vec<f64>)>;
        let plots: [(&str, &str, &str, Series<'_>); 3] = [
            (
                "",
                "Saturation throughput over the cache's size (OrbitCache, fig. 16a)",
                "requests per second",
                vec![
                    ("servers", of(&|m| m.result().throughput() - m.by_switch())),
                    ("switch", of(&|m| m.by_switch())),
                ],
            ),
            (
                "-latency",
                "Latency of the switch over the cache's size (OrbitCache, fig. 16b)",
                "microseconds",
                vec![
                    ("median", of(&|m| m.result().hit.p50_us / factor)),
                    ("99th percentile", of(&|m| m.result().hit.p99_us / factor)),
                ],
            ),
            (
                "-overflow",
                "Requests for cached items that overflow (OrbitCache, fig. 16c)",
                "% of requests for cached items",
                vec![("orbitcache", of(&|m| m.overflow_ratio() * 100.0))],
            ),
        ];
        for (suffix, title, y, series) in plots {
            let svg = plot::grouped_bars(&plot::GroupedBars {
                title,
                y,
                groups: &groups,
                series: &series,
                marks: None,
            });
            report.plot(format!("{}{suffix}", run.name), svg);
        }
    }
}
