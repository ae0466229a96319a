use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::{Distributions, exponent},
    plot,
    servers::Rack,
    table::{Table, percent},
};
use serde::{Deserialize, Serialize};

use crate::bench::{Balance, Bench, Measured, System, wrong};

/// How many of the keys that are expected to be the hottest are (figure 8).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OfPrediction {
    rack: Rack,
    #[serde(default)]
    balance: Balance,
    distributions: Distributions,
    /// Numbers of the hottest keys, in the place of the rack's items.
    counts: Vec<usize>,
    /// Length of a window, in the place of the rack's: a thousandth key has to be told from those beside it.
    window_ms: u32,
}

struct Point {
    theta: f64,
    count: usize,
    measured: Measured,
}

impl Point {
    fn accuracy(&self) -> f64 {
        self.measured.figure("predicted_permille") / 1000.0
    }
}

impl Measure for OfPrediction {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.balance.check(&self.rack)?;
        self.distributions
            .thetas
            .iter()
            .try_for_each(|theta| exponent(*theta))?;
        ensure!(!self.counts.is_empty(), "counts: none is given");
        Ok(())
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut points = vec![];
        for count in &self.counts {
            let mut rack = self.rack.clone();
            rack.items = *count;
            rack.window_ms = Some(self.window_ms);
            let mut bench = Bench::new(run, &rack, &self.balance, System::Replicas)?;
            for popularity in self.distributions.all() {
                let load::workload::Popularity::Zipf(theta) = popularity else {
                    continue;
                };
                bench.learn(popularity, 0.0)?;
                points.push(Point {
                    theta,
                    count: *count,
                    measured: bench.measure(popularity, 0.0, None)?,
                });
            }
        }
        self.tell(report, run, &points);
        Ok(())
    }
}

impl OfPrediction {
    fn tell(&self, report: &mut Report, run: &Run<'_>, points: &[Point]) {
        let mut table = Table::new(&["Zipf", "hottest keys", "right", "hot keys", "imbalance"]);
        for point in points {
            table.row([
                format!("{:.2}", point.theta),
                point.count.to_string(),
                percent(point.accuracy()),
                format!("{:.0}", point.measured.figure("hot_keys")),
                format!("{:.4}", point.measured.imbalance()),
            ]);
            let mut row = point.measured.row();
            row.insert("theta".into(), point.theta.into());
            row.insert("count".into(), point.count.into());
            row.insert("accuracy".into(), point.accuracy().into());
            report.rows.push(row.into());
            if point.theta == 0.99 {
                report.summarize(format!("accuracy_top_{}", point.count), point.accuracy());
            }
        }
        report.count("wrong_values", wrong(points.iter().map(|p| &p.measured)));
        report.text = table.render();
        let series = self.distributions.thetas.iter().map(|theta| {
            let of = points.iter().filter(|p| p.theta == *theta);
            let line = of.map(|p| (p.count as f64, p.accuracy() * 100.0)).collect();
            (format!("Zipf {theta:.2}"), line)
        });
        let title = "Accuracy of the hottest keys (KVSwitch, fig. 8a)";
        let series: Vec<_> = series.collect();
        report.plot(
            run.name,
            plot::lines(title, "keys", "percent that are right", &series),
        );
    }
}
