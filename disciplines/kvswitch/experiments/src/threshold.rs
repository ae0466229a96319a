use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run, params::exponent, plot, servers::Rack, table::Table,
};
use load::workload::Popularity;
use serde::{Deserialize, Serialize};

use crate::bench::{Balance, Bench, Measured, System, wrong};

/// What the adaptive threshold saves over replicas of all hot keys at all servers (figure 9).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OverKeys {
    rack: Rack,
    #[serde(default)]
    balance: Balance,
    /// Zipf's exponent.
    theta: f64,
    /// Numbers of the hottest keys, in the place of the rack's items.
    counts: Vec<usize>,
    /// Of these every key is replicated at every server as well.
    all_of: Vec<usize>,
}

struct Point {
    count: usize,
    /// Whether every key is at every server.
    all: bool,
    measured: Measured,
}

impl Measure for OverKeys {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.balance.check(&self.rack)?;
        exponent(self.theta)?;
        ensure!(!self.counts.is_empty(), "counts: none is given");
        Ok(())
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let popularity = Popularity::Zipf(self.theta);
        let mut points = vec![];
        let adaptive = self.counts.iter().map(|count| (*count, false));
        for (count, all) in adaptive.chain(self.all_of.iter().map(|count| (*count, true))) {
            let mut rack = self.rack.clone();
            rack.items = count;
            if all {
                let fixed = [
                    ("kvswitch.fixed", 1),
                    ("kvswitch.first_millionths", 1),
                    ("kvswitch.changes", 100_000),
                ];
                rack.settings
                    .extend(fixed.map(|(name, n)| (name.into(), n)));
            }
            let mut bench = Bench::new(run, &rack, &self.balance, System::Replicas)?;
            bench.learn(popularity, 0.0)?;
            points.push(Point {
                count,
                all,
                measured: bench.measure(popularity, 0.0, None)?,
            });
        }
        self.tell(report, run, &points);
        Ok(())
    }
}

impl OverKeys {
    fn tell(&self, report: &mut Report, run: &Run<'_>, points: &[Point]) {
        let mut table = Table::new(&[
            "hottest keys",
            "replicas",
            "imbalance",
            "hot keys",
            "per server",
            "threshold",
        ]);
        for point in points {
            let one = &point.measured;
            let how = if point.all { "all" } else { "adaptive" };
            let servers = one.counted.served.len() as f64;
            table.row([
                point.count.to_string(),
                how.into(),
                format!("{:.4}", one.imbalance()),
                format!("{:.0}", one.figure("hot_keys")),
                format!("{:.0}", one.figure("replicas_told") / servers),
                format!("{:.6}", one.figure("threshold_millionths") / 1e6),
            ]);
            let mut row = one.row();
            row.insert("count".into(), point.count.into());
            row.insert("replicas".into(), how.into());
            report.rows.push(row.into());
            let name = |what: &str| match point.all {
                true => format!("{what}_all_{}", point.count),
                false => format!("{what}_{}", point.count),
            };
            report.summarize(name("imbalance"), one.imbalance());
            if !point.all {
                let used = one.figure("hot_keys") / point.count as f64;
                report.summarize(format!("hot_keys_used_of_{}", point.count), used);
            }
        }
        let adaptive = || points.iter().filter(|point| !point.all);
        let imbalance = adaptive().map(|point| point.measured.imbalance());
        report.summarize("imbalance_max", imbalance.fold(0.0, f64::max));
        if let Some(Point {
            count, measured, ..
        }) = adaptive().max_by_key(|point| point.count)
        {
            report.summarize("replicas_share", measured.replicas_share(*count));
            let used = measured.figure("hot_keys") / *count as f64;
            report.summarize("hot_keys_used", used);
        }
        report.count("wrong_values", wrong(points.iter().map(|p| &p.measured)));
        report.text = table.render();
        let line = |number: &dyn Fn(&Measured) -> f64| -> Vec<(f64, f64)> {
            let adaptive = points.iter().filter(|p| !p.all);
            adaptive
                .map(|p| (p.count as f64, number(&p.measured)))
                .collect()
        };
        let used = vec![("kvswitch".into(), line(&|m| m.figure("hot_keys")))];
        let title = "Keys that are replicated (KVSwitch, fig. 9b)";
        report.plot(
            run.name,
            plot::lines(title, "hottest keys", "replicated", &used),
        );
        let per_server = |m: &Measured| m.figure("replicas_told") / m.counted.served.len() as f64;
        let replicas = vec![("kvswitch".into(), line(&per_server))];
        let title = "Replicas of each server (KVSwitch, fig. 9c)";
        let svg = plot::lines(title, "hottest keys", "replicas", &replicas);
        report.plot(format!("{}-replicas", run.name), svg);
    }
}
