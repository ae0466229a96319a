use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::exponent,
    servers::{Rack, Search},
};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};

use crate::{
    axis::{self, Place},
    system::{Bench, Caches, Mix, System},
};

/// Saturation throughput and balance over the number of servers (figure 13).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    caches: Caches,
    /// Zipf's exponent.
    theta: f64,
    /// Requests per second that each server takes, in the place of the rack's.
    server_rate: f64,
    /// Numbers of servers, likewise.
    servers: Vec<u32>,
}

impl Measure for Scale {
    fn check(&self) -> anyhow::Result<()> {
        self.search.check()?;
        self.caches.check(&self.rack)?;
        exponent(self.theta)?;
        ensure!(!self.servers.is_empty(), "servers: none is given");
        self.servers.iter().try_for_each(|n| self.of(*n).check())
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mix = Mix::reads(Popularity::Zipf(self.theta));
        let mut places = vec![];
        for servers in &self.servers {
            let mut measured = vec![];
            // What balances a rack grows with its servers.
            let share = f64::from(*servers) / f64::from(self.rack.servers);
            let caches = Caches {
                orbit_items: (self.caches.orbit_items as f64 * share).ceil() as usize,
                ..self.caches.clone()
            };
            for system in System::ALL {
                let mut bench = Bench::new(run, &self.of(*servers), &caches, system)?;
                let what = format!("{servers} servers");
                measured.push(bench.saturate(&what, &self.search, mix)?);
            }
            places.push(Place {
                name: servers.to_string(),
                measured,
            });
        }
        let rate = |place: &Place| place.of(System::Orbit).map_or(f64::NAN, |m| m.rate());
        if let [first, .., last] = places.as_slice() {
            // 1: twice the servers carry twice as much.
            let [few, many] = [self.servers.first(), self.servers.last()]
                .map(|servers| f64::from(*servers.unwrap_or(&1)));
            report.summarize("linearity", rate(last) / rate(first) / (many / few));
        }
        let balance = |place: &Place| place.of(System::Orbit).map(|m| m.balancing_efficiency());
        let least = places
            .iter()
            .filter_map(balance)
            .fold(f64::INFINITY, f64::min);
        report.summarize("balancing_efficiency_min", least);
        for place in &places {
            if let Some(over) = place.over(System::Orbit, System::None) {
                report.summarize(format!("over_none_{}_servers", place.name), over);
            }
        }
        axis::tell(report, "servers", &places);
        let title = "Saturation throughput over the number of servers (OrbitCache, fig. 13)";
        let svg = axis::bars(title, "requests per second", &places, |m| m.rate());
        report.plot(run.name, svg);
        let title = "Balancing efficiency over the number of servers (OrbitCache, fig. 13)";
        let svg = axis::bars(title, "least loaded in % of most loaded", &places, |m| {
            m.balancing_efficiency() * 100.0
        });
        report.plot(format!("{}-balance", run.name), svg);
        Ok(())
    }
}

impl Scale {
    fn of(&self, servers: u32) -> Rack {
        Rack {
            servers,
            server_rate: self.server_rate,
            ..self.rack.clone()
        }
    }
}
