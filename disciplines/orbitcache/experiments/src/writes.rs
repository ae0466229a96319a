use experiments::{
    Measure, Options, Report, Run,
    params::{self, exponent},
    servers::{Rack, Search},
    table::percent,
};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};

use crate::{
    axis::{self, Place},
    system::{Bench, Caches, Mix, System},
};

/// Saturation throughput over the part of the requests that write (figure 12). Writes are as skewed as reads.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    caches: Caches,
    /// Zipf's exponent.
    theta: f64,
    /// Parts of the requests that write.
    write_ratios: Vec<f64>,
}

impl Measure for Writes {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.caches.check(&self.rack)?;
        exponent(self.theta)?;
        let mut ratios = self.write_ratios.iter();
        ratios.try_for_each(|ratio| params::ratio("write_ratios", *ratio))
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut places: Vec<Place> = vec![];
        for ratio in &self.write_ratios {
            places.push(Place {
                name: percent(*ratio),
                measured: vec![],
            });
        }
        for system in System::ALL {
            let mut bench = Bench::new(run, &self.rack, &self.caches, system)?;
            for (ratio, place) in self.write_ratios.iter().zip(&mut places) {
                let mix = Mix {
                    popularity: Popularity::Zipf(self.theta),
                    write_ratio: *ratio,
                };
                let what = format!("{} writes", place.name);
                place
                    .measured
                    .push(bench.saturate(&what, &self.search, mix)?);
            }
        }
        for (ratio, place) in self.write_ratios.iter().zip(&places) {
            for (name, other) in [
                ("none", System::None),
                ("netcache_limited", System::Limited),
            ] {
                if let Some(over) = place.over(System::Orbit, other) {
                    let key = format!("write_{:.0}_over_{name}", ratio * 100.0);
                    report.summarize(key, over);
                }
            }
        }
        axis::tell(report, "writes", &places);
        let title = "Saturation throughput over the part that writes (OrbitCache, fig. 12)";
        let svg = axis::bars(title, "requests per second", &places, |m| m.rate());
        report.plot(run.name, svg);
        Ok(())
    }
}
