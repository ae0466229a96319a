use experiments::{
    Measure, Options, Report, Run, World,
    params::Distributions,
    plot,
    servers::{Rack, Search},
    table::{Table, micros, percent, thousands},
};
use load::{Phase, workload::Popularity};
use serde::{Deserialize, Serialize};

use crate::{
    bench::{Balance, Bench, Measured, System, wrong},
    cost,
};

/// Imbalance and throughput per distribution (figures 7a and 7b).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skew {
    rack: Rack,
    #[serde(default)]
    search: Search,
    #[serde(default)]
    balance: Balance,
    distributions: Distributions,
    /// What is compared.
    systems: Vec<System>,
    /// Of these exponents throughput is searched for as well.
    throughput_of: Vec<f64>,
}

/// What was measured of one system under one distribution.
struct Point {
    popularity: Popularity,
    balance: Measured,
    /// Requests per second at saturation, where it was asked for.
    rate: Option<f64>,
}

impl Measure for Skew {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.balance.check(&self.rack)?;
        self.distributions.check()
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut points = vec![];
        for system in self.systems.iter().copied() {
            let mut bench = Bench::new(run, &self.rack, &self.balance, system)?;
            for popularity in self.distributions.all() {
                bench.learn(popularity, 0.0)?;
                let balance = bench.measure(popularity, 0.0, None)?;
                points.push(Point {
                    popularity,
                    balance,
                    rate: self.throughput(&mut bench, system, popularity)?,
                });
            }
        }
        self.tell(report, run, &points);
        match run.options.world {
            World::Kernel => cost::summarize(report, run.options.quick),
            World::Sim => Ok(()),
        }
    }
}

impl Skew {
    fn throughput(
        &self,
        bench: &mut Bench<'_>,
        system: System,
        popularity: Popularity,
    ) -> anyhow::Result<Option<f64>> {
        let is_asked = match popularity {
            Popularity::Zipf(theta) => self.throughput_of.contains(&theta),
            _ => !self.throughput_of.is_empty(),
        };
        if !is_asked {
            return Ok(None);
        }
        let shares = bench.servers.shares(popularity, 0.0, popularity, 0);
        let expected = match system {
            System::None => bench.servers.bound(&shares),
            _ => bench.capacity(),
        };
        let what = format!("{}, {}", popularity.title(), system.name());
        let phase = |rate, warmup, seconds| Phase::reads(popularity, rate, warmup, seconds);
        let point = bench
            .servers
            .saturate(expected, &what, &self.search, phase)?;
        Ok(Some(point.rate))
    }

    fn tell(&self, report: &mut Report, run: &Run<'_>, points: &[Point]) {
        let mut table = Table::new(&[
            "popularity",
            "system",
            "imbalance",
            "req/s",
            "lost",
            "p50",
            "p99",
            "hot keys",
            "replicas",
        ]);
        let items = self.rack.items;
        for point in points {
            let one = &point.balance;
            table.row([
                point.popularity.title(),
                one.system.name().into(),
                format!("{:.4}", one.imbalance()),
                point.rate.map_or("-".into(), thousands),
                percent(one.result.loss()),
                micros(one.result.all.p50_us),
                micros(one.result.all.p99_us),
                format!("{:.0}", one.figure("hot_keys")),
                format!("{:.0}", one.figure("replicas_told")),
            ]);
            let mut row = one.row();
            row.insert("popularity".into(), point.popularity.name().into());
            row.insert("rate".into(), point.rate.into());
            report.rows.push(row.into());
        }
        for popularity in self.distributions.all() {
            let of = |system| {
                let mut all = points.iter().filter(|p| p.popularity == popularity);
                all.find(|p| p.balance.system == system)
            };
            let (Some(none), Some(with)) = (of(System::None), of(System::Replicas)) else {
                continue;
            };
            let name = popularity.name();
            report.summarize(format!("imbalance_{name}"), with.balance.imbalance());
            report.summarize(format!("imbalance_none_{name}"), none.balance.imbalance());
            if let (Some(with), Some(none)) = (with.rate, none.rate) {
                report.summarize(format!("over_none_{name}"), with / none);
            }
            if popularity == Popularity::Zipf(0.99) {
                report.summarize("replicas_share", with.balance.replicas_share(items));
                let used = with.balance.figure("hot_keys") / items as f64;
                report.summarize(format!("hot_keys_used_of_{items}"), used);
            }
        }
        let with = points.iter().map(|point| &point.balance);
        let with = with.filter(|one| one.system == System::Replicas);
        let loss = with.map(|one| one.result.loss()).fold(0.0, f64::max);
        report.summarize("loss_max", loss);
        report.count("wrong_values", wrong(points.iter().map(|p| &p.balance)));
        report.text = table.render();
        self.plots(report, run, points);
    }

    fn plots(&self, report: &mut Report, run: &Run<'_>, points: &[Point]) {
        let groups: Vec<String> = self
            .distributions
            .all()
            .iter()
            .map(Popularity::title)
            .collect();
        let of = |system: System, number: &dyn Fn(&Point) -> Option<f64>| -> Vec<f64> {
            let of = points.iter().filter(|p| p.balance.system == system);
            of.map(|p| number(p).unwrap_or(0.0)).collect()
        };
        let bars = |title: &str, y: &str, number: &dyn Fn(&Point) -> Option<f64>| {
            let series = self.systems.iter();
            let series: Vec<_> = series.map(|s| (s.name(), of(*s, number))).collect();
            plot::grouped_bars(&plot::GroupedBars {
                title,
                y,
                groups: &groups,
                series: &series,
                marks: None,
            })
        };
        let svg = bars(
            "Imbalance of the servers (KVSwitch, fig. 7a)",
            "imbalance",
            &|p| Some(p.balance.imbalance()),
        );
        report.plot(run.name, svg);
        let svg = bars(
            "Saturation throughput (KVSwitch, fig. 7b)",
            "requests per second",
            &|p| p.rate,
        );
        report.plot(format!("{}-throughput", run.name), svg);
    }
}
