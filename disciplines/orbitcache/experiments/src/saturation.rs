//! What the rack carries behind one of the systems (figures 9, 10, 12 to 14, 16 and 17).

use std::fmt::Write;

use experiments::{
    Run, World,
    params::{self, by_name, value_len},
    servers::{Mix, Rack, Search},
    sweep::{Figures, Point, Points},
    table::percent,
};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};
use wire::Lengths;

use crate::system::{Bench, Caches, System};

/// Memory for values of all servers of the kernel's world, which are one process there; and what a
/// key takes beside its value.
const MEMORY_BYTES: usize = 700 << 20;
const KEY_BYTES: usize = 200;

/// One system under one load.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saturation {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    caches: Caches,
    /// What stands before the servers.
    system: System,
    /// How requests spread, reads and writes alike.
    #[serde(with = "by_name")]
    popularity: Popularity,
    /// Part of the requests that write; a workload has its own.
    #[serde(default)]
    write_ratio: f64,
    /// The number of items, in the place of `caches.orbit_items`; they go round for ever.
    items: Option<usize>,
    /// In the place of `caches.first_unfit`.
    first_unfit: Option<usize>,
    /// The length of all values, in the place of the rack's.
    bytes: Option<usize>,
    /// The number of servers, in the place of the rack's: OrbitCache's items are as many for each.
    /// And what each of them takes.
    servers: Option<u32>,
    server_rate: Option<f64>,
    /// What stands for a production trace.
    workload: Option<Workload>,
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
    /// The rank of the hottest key that does not fit NetCache, counted from 1: what is to be
    /// expected, so that the seed's luck with single keys decides nothing.
    fn first_unfit(&self) -> usize {
        let fitting = self.cacheable.min(self.short);
        (1.0 / (1.0 - fitting).max(1e-3)).round() as usize
    }

    /// Lengths of its values, where NetCache has those of so many bytes.
    fn lengths(&self, fits: usize) -> Lengths {
        params::lengths_of_trace(self.cacheable, self.short, fits)
    }
}

impl Saturation {
    fn rack(&self) -> Rack {
        let mut rack = self.rack.clone();
        rack.servers = self.servers.unwrap_or(rack.servers);
        rack.server_rate = self.server_rate.unwrap_or(rack.server_rate);
        if let Some(bytes) = self.bytes {
            rack.value_len = bytes.into();
        }
        if let Some(workload) = &self.workload {
            rack.value_len = workload.lengths(self.caches.limited_value_len);
        }
        rack
    }

    fn caches(&self) -> Caches {
        let mut caches = self.caches.clone();
        caches.first_unfit = self.first_unfit.unwrap_or(caches.first_unfit);
        if let Some(items) = self.items {
            caches = caches.circulating(items);
        }
        if let Some(servers) = self.servers {
            // What balances a rack grows with its servers.
            let share = f64::from(servers) / f64::from(self.rack.servers);
            caches.orbit_items = (caches.orbit_items as f64 * share).ceil() as usize;
        }
        if let Some(workload) = &self.workload {
            caches.first_unfit = workload.first_unfit();
        }
        caches
    }

    fn mix(&self) -> Mix {
        let of_workload = self.workload.as_ref().map(|workload| workload.write_ratio);
        Mix { popularity: self.popularity, write_ratio: of_workload.unwrap_or(self.write_ratio) }
    }

    /// What is measured, for people.
    fn what(&self) -> String {
        let mut what = self.popularity.title();
        let Mix { write_ratio, .. } = self.mix();
        let mut add = |text: String| write!(what, ", {text}").unwrap_or(());
        if write_ratio > 0.0 {
            add(format!("{} writes", percent(write_ratio)));
        }
        for (number, of) in [
            (self.servers.map(|n| n as usize), "servers"),
            (self.bytes, "bytes"),
            (self.items, "items"),
        ] {
            number.into_iter().for_each(|n| add(format!("{n} {of}")));
        }
        let workload = self.workload.iter();
        workload.for_each(|workload| add(format!("workload {}", workload.name)));
        what
    }
}

impl Point for Saturation {
    const HAS_BACKEND: bool = true;
    type Bench<'a> = Bench<'a>;

    fn check(&self) -> anyhow::Result<()> {
        let rack = self.rack();
        rack.check()?;
        self.search.check()?;
        self.caches().check(&rack)?;
        params::ratio("write_ratio", self.write_ratio)?;
        self.bytes.map_or(Ok(()), value_len)?;
        self.workload.iter().try_for_each(|workload| {
            let parts = [workload.cacheable, workload.short, workload.write_ratio];
            let name = format!("workload {}", workload.name);
            parts.iter().try_for_each(|part| params::ratio(&name, *part))
        })
    }

    fn build<'a>(&self, run: &Run<'a>) -> anyhow::Result<Bench<'a>> {
        let mut rack = self.rack();
        if let (World::Kernel, Some(bytes)) = (run.options.world, self.bytes) {
            rack.keys = rack.keys.min(MEMORY_BYTES / (bytes + KEY_BYTES));
        }
        Bench::new(run, &rack, &self.caches(), self.system)
    }

    fn measure(
        &self,
        bench: &mut Bench<'_>,
        _: &Run<'_>,
        _: &Points,
    ) -> anyhow::Result<Vec<Figures>> {
        let one = bench.saturate(&self.what(), &self.search, self.mix())?;
        let (rack, result) = (self.rack(), one.result());
        let counted = &one.point.counted;
        let mut loads: Vec<f64> = counted.served.iter().map(|n| n / counted.seconds).collect();
        loads.sort_by(f64::total_cmp);
        let figures = Figures::new(one.row().into())
            .aside("by_servers", result.throughput() - one.by_switch())
            .aside("rate_per_server", one.rate() / f64::from(rack.servers))
            // As the rack would have them that is not slowed.
            .aside("switch_p50_us", result.hit.p50_us / rack.factor)
            .aside("switch_p99_us", result.hit.p99_us / rack.factor)
            // The least loaded first, and what each can take.
            .aside("loads", loads)
            .aside("limit", rack.server_rate / rack.factor);
        Ok(vec![figures])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(cacheable: f64, short: f64) -> Workload {
        Workload { name: "A".into(), trace: "some".into(), cacheable, short, write_ratio: 0.0 }
    }

    #[test]
    fn the_first_that_does_not_fit_is_where_it_is_to_be_expected() {
        for (cacheable, rank) in [(0.01, 1), (0.45, 2), (0.95, 20)] {
            assert_eq!(workload(cacheable, 1.0).first_unfit(), rank);
        }
    }

    #[test]
    fn as_many_values_fit_as_the_trace_says() {
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
            assert!(mix.len() == expected.len() && mix.iter().zip(&expected).all(near), "{mix:?}");
        }
    }
}
