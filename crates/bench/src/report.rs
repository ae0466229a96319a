use serde::Serialize;

use crate::Spread;

/// Where a ratio should be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// Not above.
    AtMost(f64),
    /// Not below.
    AtLeast(f64),
    /// Only told.
    Report,
}

/// One side of a ratio in its own unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What was measured.
    pub what: String,
    /// In `unit`.
    pub value: Spread,
    /// For example `ns`.
    pub unit: &'static str,
}

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Its name.
    pub key: String,
    /// The ratio over the batches.
    pub ratio: Spread,
    /// Where it should be.
    pub target: Target,
    /// Whether it is there.
    pub met: bool,
    /// How far it is off, in per cent of the target; 0 if met.
    pub missed_by_percent: f64,
    /// Both sides.
    pub figures: Vec<Figure>,
}

/// Everything that one run measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// What this machine can do at best, and what it costs to measure.
    pub machine: Vec<Figure>,
    /// The ratios.
    pub rows: Vec<Row>,
    /// Where a hit's time goes: each step with what it adds.
    pub profile: Vec<Figure>,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report::default()
    }

    /// Adds a row of the ratio of `ours` to `theirs`, batch by batch.
    pub(crate) fn ratio(
        &mut self,
        key: &str,
        target: Target,
        unit: &'static str,
        sides: [Side; 2],
    ) {
        let ratios = sides[0]
            .values
            .iter()
            .zip(&sides[1].values)
            .map(|(a, b)| a / b)
            .collect();
        let ratio = Spread::of(ratios);
        let off = match target {
            Target::AtMost(limit) => ratio.median / limit - 1.0,
            Target::AtLeast(limit) => 1.0 - ratio.median / limit,
            Target::Report => 0.0,
        };
        let figures = sides.map(|side| Figure {
            what: side.what.into(),
            value: Spread::of(side.values),
            unit,
        });
        self.rows.push(Row {
            key: key.into(),
            ratio,
            target,
            met: off <= 0.0,
            missed_by_percent: off.max(0.0) * 100.0,
            figures: figures.into(),
        });
    }

    pub(crate) fn machine(&mut self, what: &str, values: Vec<f64>, unit: &'static str) {
        self.machine.push(Figure {
            what: what.into(),
            value: Spread::of(values),
            unit,
        });
    }

    /// As text, for a terminal.
    pub fn render(&self) -> String {
        let mut lines = vec!["this machine".to_string()];
        lines.extend(
            self.machine
                .iter()
                .map(|figure| format!("  {}", figure.line())),
        );
        lines.push(String::new());
        lines.push(format!(
            "{:<34} {:>7} {:>15}  {:>7}  {}",
            "ratio", "median", "10 % .. 90 %", "target", "of what over what"
        ));
        for row in &self.rows {
            lines.push(row.line());
        }
        if !self.profile.is_empty() {
            lines.push(String::new());
            lines.push("where a hit's time goes".into());
            lines.extend(
                self.profile
                    .iter()
                    .map(|figure| format!("  {}", figure.line())),
            );
        }
        lines.join("\n")
    }

    /// The rows that missed their targets.
    pub fn missed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.met)
    }
}

impl Figure {
    fn line(&self) -> String {
        let Spread { median, low, high } = self.value;
        let (what, unit) = (&self.what, self.unit);
        format!(
            "{what:<52} {:>9} {unit}  ({} .. {})",
            short(median),
            short(low),
            short(high)
        )
    }
}

impl Row {
    fn line(&self) -> String {
        let target = match self.target {
            Target::AtMost(limit) => format!("<= {limit}"),
            Target::AtLeast(limit) => format!(">= {limit}"),
            Target::Report => "-".into(),
        };
        let range = format!("{:.2} .. {:.2}", self.ratio.low, self.ratio.high);
        let sides: Vec<String> = self
            .figures
            .iter()
            .map(|f| format!("{} {} {}", f.what, short(f.value.median), f.unit))
            .collect();
        let mut line = format!(
            "{:<34} {:>7.2} {range:>15}  {target:>7}  {}",
            self.key,
            self.ratio.median,
            sides.join(" / ")
        );
        if !self.met {
            line += &format!("  MISSED by {:.0} %", self.missed_by_percent);
        }
        line
    }
}

/// A number with about three digits.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => experiments::table::thousands(value),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// One side of a ratio: a value per batch.
pub(crate) struct Side {
    pub what: &'static str,
    pub values: Vec<f64>,
}

impl Side {
    pub fn new(what: &'static str, values: &[f64]) -> Side {
        Side {
            what,
            values: values.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_says_by_how_much() {
        let mut report = Report::new();
        let sides = || [Side::new("a", &[3.0; 5]), Side::new("b", &[2.0; 5])];
        report.ratio("too_much", Target::AtMost(1.25), "ns", sides());
        report.ratio("enough", Target::AtLeast(1.5), "ns", sides());
        report.ratio("told", Target::Report, "ns", sides());
        let missed: Vec<_> = report.missed().map(|row| row.key.as_str()).collect();
        assert_eq!(missed, ["too_much"]);
        assert_eq!(report.rows[0].missed_by_percent.round(), 20.0);
        assert!(report.render().contains("MISSED by 20 %"));
    }
}
