use experiments::{
    Measure, Options, Report, Run,
    params::Distributions,
    plot,
    servers::{Rack, Search},
    table::{Table, micros, percent, thousands},
};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};

use crate::system::{Bench, Caches, Measured, Mix, System, wrong};

/// Saturation throughput per distribution, and the load of each server (figures 9 and 10).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skew {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    caches: Caches,
    distributions: Distributions,
}

impl Measure for Skew {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.caches.check(&self.rack)?;
        self.distributions.check()
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let distributions = self.distributions.all();
        let mut measured: Vec<(Popularity, Measured)> = vec![];
        for system in System::ALL {
            let mut bench = Bench::new(run, &self.rack, &self.caches, system)?;
            for popularity in &distributions {
                let mix = Mix::reads(*popularity);
                let point = bench.saturate(&popularity.title(), &self.search, mix)?;
                measured.push((*popularity, point));
            }
        }
        self.tell(report, run, &distributions, &measured);
        Ok(())
    }
}

impl Skew {
    fn tell(
        &self,
        report: &mut Report,
        run: &Run<'_>,
        distributions: &[Popularity],
        measured: &[(Popularity, Measured)],
    ) {
        let mut table = Table::new(&[
            "popularity",
            "system",
            "req/s",
            "bound",
            "hits",
            "overflows",
            "p50",
            "p99",
            "min/max load",
        ]);
        let mut least_balanced = f64::INFINITY;
        for popularity in distributions {
            let of = |system| {
                let mut points = measured.iter().filter(|(p, _)| p == popularity);
                points.find(|(_, m)| m.system == system).map(|(_, m)| m)
            };
            for one in System::ALL.iter().filter_map(|system| of(*system)) {
                let result = one.result();
                table.row([
                    popularity.title(),
                    one.system.name().into(),
                    thousands(one.rate()),
                    thousands(one.bound),
                    percent(result.hit_ratio()),
                    percent(one.overflow_ratio()),
                    micros(result.all.p50_us),
                    micros(result.all.p99_us),
                    format!("{:.2}", one.balancing_efficiency()),
                ]);
                let mut row = one.row();
                row.insert("popularity".into(), popularity.name().into());
                report.rows.push(row.into());
            }
            let (Some(none), Some(limited), Some(orbit)) =
                (of(System::None), of(System::Limited), of(System::Orbit))
            else {
                continue;
            };
            let name = popularity.name();
            report.summarize(format!("over_none_{name}"), orbit.rate() / none.rate());
            let over = orbit.rate() / limited.rate();
            report.summarize(format!("over_netcache_limited_{name}"), over);
            least_balanced = least_balanced.min(orbit.balancing_efficiency());
        }
        report.summarize("balancing_efficiency_min", least_balanced);
        report.count("wrong_values", wrong(measured.iter().map(|(_, m)| m)));
        report.text = table.render();
        let groups: Vec<String> = distributions.iter().map(Popularity::title).collect();
        let rates = |system: System| -> Vec<f64> {
            let of = measured.iter().filter(|(_, m)| m.system == system);
            of.map(|(_, m)| m.rate()).collect()
        };
        let series: Vec<(&str, Vec<f64>)> =
            System::ALL.iter().map(|s| (s.name(), rates(*s))).collect();
        report.plot(
            run.name,
            plot::grouped_bars(&plot::GroupedBars {
                title: "Saturation throughput (OrbitCache, fig. 9)",
                y: "requests per second",
                groups: &groups,
                series: &series,
                marks: None,
            }),
        );
        self.plot_loads(report, run, measured);
    }

    /// The load of each server, the least loaded first, under the last distribution.
    fn plot_loads(&self, report: &mut Report, run: &Run<'_>, measured: &[(Popularity, Measured)]) {
        let Some((last, _)) = measured.last() else {
            return;
        };
        let of_last = measured.iter().filter(|(popularity, _)| popularity == last);
        let panels: Vec<(String, Vec<f64>)> = of_last
            .map(|(_, m)| {
                let counted = &m.point.counted;
                let mut loads: Vec<f64> =
                    counted.served.iter().map(|n| n / counted.seconds).collect();
                loads.sort_by(f64::total_cmp);
                (m.system.name().into(), loads)
            })
            .collect();
        let servers: Vec<String> = (1..=self.rack.servers).map(|i| i.to_string()).collect();
        let title = format!(
            "Load of the servers, {} (OrbitCache, fig. 10)",
            last.title()
        );
        let limit = self.rack.server_rate / self.rack.factor;
        let svg = plot::server_load(&title, &servers, &panels, limit);
        report.plot(format!("{}-servers", run.name), svg);
    }
}
