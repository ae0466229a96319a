use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::{Distributions, exponent},
    plot,
    servers::Rack,
    table::{Table, percent},
};
use load::{Phase, workload::Popularity};
use serde::{Deserialize, Serialize};

use crate::bench::{Balance, Bench, Measured, System, wrong};

/// So that the keys in the switch's table are those that are expected to be the hottest, all of them and no others, each at two servers.
const ALL_EXPECTED: [(&str, u32); 4] = [
    ("kvswitch.fixed", 1),
    ("kvswitch.first_millionths", 1),
    ("kvswitch.replicas", 2),
    ("kvswitch.changes", 100_000),
];
/// Windows of the usual load between two looks: equation 1 goes by two, and what it says is there in the third.
const BETWEEN: u32 = 3;

/// How many of the keys that are expected to be the hottest are (figure 8).
///
/// The truth is the generator's: the keys of its first ranks are asked for, each alike and in a small part of a window, and those of them count
/// that the switch has a record of. A key that the control half does not know of is wrong.
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
    /// How often it is looked what the switch has, and how long, in parts of a window.
    looks: u32,
    look: f64,
}

struct Point {
    theta: f64,
    count: usize,
    /// The part of the hottest keys that were expected to be.
    accuracy: f64,
    measured: Measured,
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
        ensure!(self.looks > 0, "looks = 0: at least 1 is needed");
        ensure!(
            self.look > 0.0 && self.look <= 0.5,
            "look = {}: more than 0, at most 0.5",
            self.look
        );
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
            rack.settings
                .extend(ALL_EXPECTED.map(|(name, number)| (name.into(), number)));
            let mut bench = Bench::new(run, &rack, &self.balance, System::Replicas)?;
            for popularity in self.distributions.all() {
                let Popularity::Zipf(theta) = popularity else {
                    continue;
                };
                bench.learn(popularity, 0.0)?;
                points.push(Point {
                    theta,
                    count: *count,
                    accuracy: self.accuracy(&mut bench, popularity, *count)?,
                    measured: bench.measure(popularity, 0.0, None)?,
                });
            }
        }
        self.tell(report, run, &points);
        Ok(())
    }
}

impl OfPrediction {
    /// The part of the so many hottest keys that the switch has, on average over the looks.
    fn accuracy(
        &self,
        bench: &mut Bench<'_>,
        popularity: Popularity,
        count: usize,
    ) -> anyhow::Result<f64> {
        let rate = bench.rate(popularity, 0.0);
        let window_s = f64::from(self.window_ms) / 1000.0;
        let usual = Phase::reads(popularity, rate, 0.0, f64::from(BETWEEN) * window_s);
        let look = Phase {
            keys: count,
            ..Phase::reads(Popularity::Uniform, rate, 0.0, self.look * window_s)
        };
        let (mut asked, mut missed) = (0.0, 0.0);
        for number in 0..self.looks {
            if number > 0 {
                bench.servers.phase(&usual)?;
            }
            let (result, counted) = bench.servers.counting(&look)?;
            asked += result.sent as f64;
            missed += counted.switch("miss");
        }
        ensure!(asked > 0.0, "nothing was asked for");
        Ok(1.0 - missed / asked)
    }

    fn tell(&self, report: &mut Report, run: &Run<'_>, points: &[Point]) {
        let mut table = Table::new(&["Zipf", "hottest keys", "right", "hot keys", "imbalance"]);
        for point in points {
            table.row([
                format!("{:.2}", point.theta),
                point.count.to_string(),
                percent(point.accuracy),
                format!("{:.0}", point.measured.figure("hot_keys")),
                format!("{:.4}", point.measured.imbalance()),
            ]);
            let mut row = point.measured.row();
            row.insert("theta".into(), point.theta.into());
            row.insert("count".into(), point.count.into());
            row.insert("accuracy".into(), point.accuracy.into());
            report.rows.push(row.into());
            if point.theta == 0.99 {
                report.summarize(format!("accuracy_top_{}", point.count), point.accuracy);
            }
        }
        report.count("wrong_values", wrong(points.iter().map(|p| &p.measured)));
        report.text = table.render();
        let series = self.distributions.thetas.iter().map(|theta| {
            let of = points.iter().filter(|p| p.theta == *theta);
            let line = of.map(|p| (p.count as f64, p.accuracy * 100.0)).collect();
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
