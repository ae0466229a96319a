//! Balance of the systems over one axis: how it is told.

use experiments::{
    Report, plot,
    table::{Table, micros, percent, thousands},
};

use crate::bench::{Measured, System, wrong};

/// One place on the axis, and what was measured there.
pub struct Place {
    /// Where it is, in percent.
    pub percent: f64,
    /// What was measured, and the requests per second at saturation where that was asked for.
    pub measured: Vec<(Measured, Option<f64>)>,
}

impl Place {
    /// What was measured of this system.
    pub fn of(&self, system: System) -> Option<&(Measured, Option<f64>)> {
        self.measured.iter().find(|(one, _)| one.system == system)
    }

    /// Imbalance of one system over that of another.
    pub fn imbalance_over(&self, system: System, other: System) -> Option<f64> {
        Some(self.of(system)?.0.imbalance() / self.of(other)?.0.imbalance())
    }

    /// The same of throughput.
    pub fn rate_over(&self, system: System, other: System) -> Option<f64> {
        Some(self.of(system)?.1? / self.of(other)?.1?)
    }
}

/// Rows, the table, the plot of figure `figure`, and the count of what was wrong. `axis` is its name in rows.
pub fn tell(report: &mut Report, axis: &str, name: &str, title: &str, places: &[Place]) {
    let mut table = Table::new(&[
        axis,
        "system",
        "imbalance",
        "req/s",
        "lost",
        "p50",
        "p99",
        "replicas",
    ]);
    for place in places {
        for (one, rate) in &place.measured {
            table.row([
                format!("{:.0} %", place.percent),
                one.system.name().into(),
                format!("{:.4}", one.imbalance()),
                rate.map_or("-".into(), thousands),
                percent(one.result.loss()),
                micros(one.result.all.p50_us),
                micros(one.result.all.p99_us),
                format!("{:.0}", one.figure("replicas_told")),
            ]);
            let mut row = one.row();
            row.insert(axis.into(), place.percent.into());
            row.insert("rate".into(), (*rate).into());
            report.rows.push(row.into());
        }
    }
    let all = places.iter().flat_map(|place| &place.measured);
    report.count("wrong_values", wrong(all.map(|(one, _)| one)));
    report.text = table.render();
    let line = |system: System| {
        let of = |place: &Place| Some((place.percent, place.of(system)?.0.imbalance()));
        places.iter().filter_map(of).collect::<Vec<_>>()
    };
    let systems = [System::None, System::Cache, System::Replicas];
    let series: Vec<(String, Vec<(f64, f64)>)> = systems
        .iter()
        .map(|system| (system.name().into(), line(*system)))
        .filter(|(_, line): &(String, Vec<_>)| !line.is_empty())
        .collect();
    report.plot(name, plot::lines(title, axis, "imbalance", &series));
}
