use experiments::{
    Measure, Options, Report, Run,
    params::{self, exponent},
    servers::{Rack, Search},
};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};
use wire::Lengths;

use crate::{
    axis::{self, Place},
    system::{Bench, Caches, Mix, System},
};

/// Saturation throughput under workloads that stand for production traces (figure 14).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Production {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    caches: Caches,
    /// Zipf's exponent.
    theta: f64,
    /// The workloads.
    workloads: Vec<Workload>,
}

/// What is known of a trace.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Workload {
    /// The paper's name for it.
    name: String,
    /// The trace.
    trace: String,
    /// Part of the keys that fit NetCache, whatever the reason.
    cacheable: f64,
    /// Part of the keys with short values, of 64 bytes; the others' have 1024.
    short: f64,
    /// Part of the requests that write.
    write_ratio: f64,
}

impl Workload {
    /// The rank of the hottest key that does not fit NetCache, counted from 1: what is to be expected, so that the seed's luck with single
    /// keys decides nothing.
    fn first_unfit(&self) -> usize {
        let fitting = self.cacheable.min(self.short);
        (1.0 / (1.0 - fitting).max(1e-3)).round() as usize
    }

    /// Lengths of its values, where NetCache has those of so many bytes.
    fn lengths(&self, fits: usize) -> Lengths {
        params::lengths_of_trace(self.cacheable, self.short, fits)
    }
}

impl Measure for Production {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.caches.check(&self.rack)?;
        exponent(self.theta)?;
        for workload in &self.workloads {
            for part in [workload.cacheable, workload.short, workload.write_ratio] {
                params::ratio(&format!("workloads: {}", workload.name), part)?;
            }
        }
        Ok(())
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut places = vec![];
        for workload in &self.workloads {
            let rack = Rack {
                value_len: workload.lengths(self.caches.limited_value_len),
                ..self.rack.clone()
            };
            let caches = Caches {
                first_unfit: workload.first_unfit(),
                ..self.caches.clone()
            };
            let mix = Mix {
                popularity: Popularity::Zipf(self.theta),
                write_ratio: workload.write_ratio,
            };
            let mut measured = vec![];
            for system in System::ALL {
                let mut bench = Bench::new(run, &rack, &caches, system)?;
                let what = format!("workload {}", workload.name);
                measured.push(bench.saturate(&what, &self.search, mix)?);
            }
            places.push(Place {
                name: workload.name.clone(),
                measured,
            });
        }
        let mut least = f64::INFINITY;
        for place in &places {
            for (name, other) in [
                ("none", System::None),
                ("netcache_limited", System::Limited),
            ] {
                if let Some(over) = place.over(System::Orbit, other) {
                    report.summarize(format!("over_{name}_{}", place.name), over);
                    least = least.min(over);
                }
            }
        }
        report.summarize("over_others_min", least);
        axis::tell(report, "workload", &places);
        let title = "Saturation throughput of production workloads (OrbitCache, fig. 14)";
        let svg = axis::bars(title, "requests per second", &places, |m| m.rate());
        report.plot(run.name, svg);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_does_not_fit_is_where_it_is_to_be_expected() {
        for (cacheable, rank) in [(0.01, 1), (0.45, 2), (0.95, 20)] {
            let workload = Workload {
                name: "A".into(),
                trace: "some".into(),
                cacheable,
                short: 1.0,
                write_ratio: 0.0,
            };
            assert_eq!(workload.first_unfit(), rank);
        }
    }

    #[test]
    fn as_many_values_fit_as_the_trace_says() {
        let workload = |cacheable, short| Workload {
            name: "A".into(),
            trace: "some".into(),
            cacheable,
            short,
            write_ratio: 0.0,
        };
        for ((cacheable, short), expected) in [
            ((0.2, 0.9), vec![(64, 0.2), (65, 0.7), (1024, 0.1)]),
            ((0.9, 0.9), vec![(64, 0.9), (1024, 0.1)]),
            ((0.5, 1.0), vec![(64, 0.5), (65, 0.5)]),
        ] {
            let Lengths::Mix { mix, .. } = workload(cacheable, short).lengths(64) else {
                panic!("several lengths");
            };
            let near =
                |(a, b): (&(usize, f64), &(usize, f64))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-9;
            assert!(
                mix.len() == expected.len() && mix.iter().zip(&expected).all(near),
                "{mix:?}"
            );
        }
    }
}
