use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::exponent,
    plot,
    servers::Rack,
    table::{Table, micros, percent, thousands},
};
use load::{model::imbalance, workload::Popularity};
use serde::{Deserialize, Serialize};

use crate::bench::{Balance, Bench, Measured, System, wrong};

/// Balance over the servers of several racks (figure 7f).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    rack: Rack,
    #[serde(default)]
    balance: Balance,
    /// Zipf's exponent.
    theta: f64,
    /// Numbers of racks, in the place of the rack's; each of as many servers as one of those.
    racks: Vec<u32>,
    /// What is compared.
    systems: Vec<System>,
    /// Parts of the requests that write.
    write_ratios: Vec<f64>,
}

struct Point {
    racks: u32,
    write_ratio: f64,
    measured: Measured,
}

impl Point {
    /// What each rack had to do.
    fn by_rack(&self) -> Vec<f64> {
        let served = &self.measured.counted.served;
        let each = (served.len() / self.racks as usize).max(1);
        served.chunks(each).map(|rack| rack.iter().sum()).collect()
    }

    fn servers(&self) -> usize {
        self.measured.counted.served.len()
    }
}

impl Measure for Scale {
    fn check(&self) -> anyhow::Result<()> {
        exponent(self.theta)?;
        ensure!(!self.racks.is_empty(), "racks: none are given");
        for ratio in &self.write_ratios {
            ensure!(
                (0.0..=1.0).contains(ratio),
                "write_ratios = {ratio}: 0 to 1"
            );
        }
        for racks in &self.racks {
            let rack = self.of(*racks);
            rack.check()?;
            self.balance.check(&rack)?;
        }
        Ok(())
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let popularity = Popularity::Zipf(self.theta);
        let mut points = vec![];
        for racks in self.racks.iter().copied() {
            let rack = self.of(racks);
            // As much for each server, however many there are.
            let balance = Balance {
                requests: self.balance.requests * f64::from(rack.servers)
                    / f64::from(self.rack.servers),
                ..self.balance.clone()
            };
            for system in self.systems.iter().copied() {
                for write_ratio in self.write_ratios.iter().copied() {
                    let mut bench = Bench::new(run, &rack, &balance, system)?;
                    bench.learn(popularity, write_ratio)?;
                    points.push(Point {
                        racks,
                        write_ratio,
                        measured: bench.measure(popularity, write_ratio, None)?,
                    });
                }
            }
        }
        self.tell(report, run, &points);
        Ok(())
    }
}

impl Scale {
    /// So many racks.
    fn of(&self, racks: u32) -> Rack {
        let each = self.rack.servers / self.rack.racks.max(1);
        Rack {
            racks,
            servers: racks * each,
            ..self.rack.clone()
        }
    }

    fn tell(&self, report: &mut Report, run: &Run<'_>, points: &[Point]) {
        let mut table = Table::new(&[
            "racks",
            "servers",
            "writes",
            "system",
            "imbalance",
            "of racks",
            "req/s",
            "lost",
            "p50",
            "p99",
            "replicas",
        ]);
        for point in points {
            let one = &point.measured;
            let of_racks = imbalance(&point.by_rack());
            table.row([
                point.racks.to_string(),
                point.servers().to_string(),
                percent(point.write_ratio),
                one.system.name().into(),
                format!("{:.4}", one.imbalance()),
                format!("{of_racks:.4}"),
                thousands(one.result.throughput()),
                percent(one.result.loss()),
                micros(one.result.all.p50_us),
                micros(one.result.all.p99_us),
                format!("{:.0}", one.figure("replicas_told")),
            ]);
            let mut row = one.row();
            row.insert("racks".into(), point.racks.into());
            row.insert("imbalance_of_racks".into(), of_racks.into());
            row.insert("write_ratio".into(), point.write_ratio.into());
            report.rows.push(row.into());
        }
        let most = self.racks.iter().copied().max();
        for point in points {
            let what = match point.measured.system {
                System::Replicas => "",
                System::None => "none_",
                System::InRacks => "in_racks_",
                _ => continue,
            };
            let (servers, one) = (point.servers(), &point.measured);
            let writes = match point.write_ratio {
                0.0 => String::new(),
                ratio => format!("_writes_{:.0}", ratio * 100.0),
            };
            let name = |of: &str| format!("{of}_{what}{servers}_servers{writes}");
            report.summarize(name("imbalance"), one.imbalance());
            report.summarize(name("lost"), one.result.loss());
            // The same of the most servers, whose number is another one in a quick run.
            if Some(point.racks) == most && what.is_empty() {
                report.summarize(format!("imbalance{writes}"), one.imbalance());
                report.summarize(format!("lost{writes}"), one.result.loss());
            }
        }
        report.count("wrong_values", wrong(points.iter().map(|p| &p.measured)));
        report.text = table.render();
        self.plot(report, run, points);
    }

    fn plot(&self, report: &mut Report, run: &Run<'_>, points: &[Point]) {
        let line = |system: System| {
            let of = points.iter().filter(|p| p.measured.system == system);
            let of = of.filter(|p| p.write_ratio == 0.0);
            of.map(|p| (f64::from(p.racks), p.measured.imbalance()))
                .collect::<Vec<_>>()
        };
        let series: Vec<(String, Vec<(f64, f64)>)> = self
            .systems
            .iter()
            .map(|system| (system.name().into(), line(*system)))
            .collect();
        let title = "Imbalance of the servers of several racks (KVSwitch, fig. 7f)";
        report.plot(run.name, plot::lines(title, "racks", "imbalance", &series));
    }
}
