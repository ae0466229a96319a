//! Saturation throughput of the systems over one axis, however long that is: how it is told.

use experiments::{
    Report, plot,
    table::{Table, micros, percent, thousands},
};

use crate::system::{Measured, System, wrong};

/// One place on the axis, and what was measured there.
pub struct Place {
    /// What it is called.
    pub name: String,
    /// What was measured.
    pub measured: Vec<Measured>,
}

impl Place {
    /// What was measured of this system.
    pub fn of(&self, system: System) -> Option<&Measured> {
        self.measured.iter().find(|one| one.system == system)
    }

    /// Throughput of one system over that of another.
    pub fn over(&self, system: System, other: System) -> Option<f64> {
        Some(self.of(system)?.rate() / self.of(other)?.rate())
    }
}

/// Rows, the table, and the count of what was wrong. `axis` is its name in rows.
pub fn tell(report: &mut Report, axis: &str, places: &[Place]) {
    let mut table = Table::new(&[
        axis,
        "system",
        "req/s",
        "bound",
        "by the switch",
        "hits",
        "overflows",
        "p50",
        "p99",
        "min/max load",
    ]);
    for place in places {
        for one in &place.measured {
            let result = one.result();
            table.row([
                place.name.clone(),
                one.system.name().into(),
                thousands(one.rate()),
                thousands(one.bound),
                thousands(one.by_switch()),
                percent(result.hit_ratio()),
                percent(one.overflow_ratio()),
                micros(result.all.p50_us),
                micros(result.all.p99_us),
                format!("{:.2}", one.balancing_efficiency()),
            ]);
            let mut row = one.row();
            row.insert(axis.into(), place.name.clone().into());
            report.rows.push(row.into());
        }
    }
    let all = places.iter().flat_map(|place| &place.measured);
    report.count("wrong_values", wrong(all));
    report.text = table.render();
}

/// Bars of one number, a group for each place and a bar for each system that was measured there.
pub fn bars(title: &str, y: &str, places: &[Place], number: impl Fn(&Measured) -> f64) -> String {
    let groups: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
    let of = |system: System| -> Vec<f64> {
        let all = places.iter().map(|place| place.of(system));
        all.map(|one| one.map_or(0.0, &number)).collect()
    };
    let is_there = |system: &&System| places.iter().any(|place| place.of(**system).is_some());
    let systems = System::ALL.iter().filter(is_there);
    let series: Vec<(&str, Vec<f64>)> = systems.map(|s| (s.name(), of(*s))).collect();
    plot::grouped_bars(&plot::GroupedBars {
        title,
        y,
        groups: &groups,
        series: &series,
        marks: None,
    })
}
