//! What a bench found: rows of ratios with their targets, as a table for people and as JSON.

use serde::Serialize;

use crate::{Spread, host::Host};

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
    /// What must be known to read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Everything that one run measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// Where it was measured, and what.
    pub host: Host,
    /// What this machine can do at best, and what it costs to measure.
    pub machine: Vec<Figure>,
    /// The ratios.
    pub rows: Vec<Row>,
    /// Where a hit's time goes: each step with what it adds.
    pub profile: Vec<Figure>,
    /// Where a switch's memory goes, map by map.
    pub memory: Vec<Figure>,
}

impl Report {
    /// Takes over what was measured elsewhere in this run.
    pub(crate) fn add(&mut self, part: Report) {
        self.machine.extend(part.machine);
        self.rows.extend(part.rows);
        self.profile.extend(part.profile);
        self.memory.extend(part.memory);
    }

    /// Adds a row of the ratio of `ours` to `theirs`, batch by batch.
    pub(crate) fn ratio(
        &mut self,
        key: &str,
        target: Target,
        unit: &'static str,
        sides: [Side; 2],
    ) {
        let ratio = sides[0].over(&sides[1]);
        let off = match target {
            Target::AtMost(limit) => ratio.median / limit - 1.0,
            Target::AtLeast(limit) => 1.0 - ratio.median / limit,
            Target::Report => 0.0,
        };
        let figures = sides.map(|side| Figure::of(side.what, side.values, unit));
        self.rows.push(Row {
            key: key.into(),
            ratio,
            target,
            met: off <= 0.0 && ratio.median.is_finite(),
            missed_by_percent: off.max(0.0) * 100.0,
            figures: figures.into(),
            note: None,
        });
    }

    pub(crate) fn machine(&mut self, what: &str, values: Vec<f64>, unit: &'static str) {
        self.machine.push(Figure::of(what, values, unit));
    }

    /// Says something about a row that is there.
    pub(crate) fn note(&mut self, key: &str, note: String) {
        let row = self.rows.iter_mut().find(|row| row.key == key);
        if let Some(row) = row {
            row.note = Some(note);
        }
    }

    /// As text, for a terminal.
    pub fn render(&self) -> String {
        let mut lines = vec![self.host.to_string()];
        lines.extend(told("this machine", &self.machine));
        lines.push(String::new());
        lines.push(format!(
            "{:<34} {:>7} {:>15}  {:>7}  {}",
            "ratio", "median", "10 % .. 90 %", "target", "of what over what"
        ));
        for row in &self.rows {
            lines.push(row.line());
        }
        lines.extend(told("where a hit's time goes", &self.profile));
        lines.extend(told("where a switch's memory goes", &self.memory));
        lines.join("\n")
    }

    /// The rows that missed their targets.
    pub fn missed(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.met)
    }
}

/// A heading with figures below it; nothing where there are none.
fn told(heading: &str, figures: &[Figure]) -> Vec<String> {
    if figures.is_empty() {
        return vec![];
    }
    let lines = figures.iter().map(|figure| format!("  {}", figure.line()));
    let above = [String::new(), heading.into()];
    above.into_iter().chain(lines).collect()
}

impl Figure {
    pub(crate) fn of(what: &str, values: Vec<f64>, unit: &'static str) -> Figure {
        Figure { what: what.into(), value: Spread::of(values), unit }
    }

    fn line(&self) -> String {
        let Spread { median, low, high } = self.value;
        let (what, unit) = (&self.what, self.unit);
        format!("{what:<52} {:>9} {unit}  ({} .. {})", short(median), short(low), short(high))
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
        if let Some(note) = &self.note {
            line += &format!("\n    {note}");
        }
        line
    }
}

/// A number with about three digits.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => text::table::thousands(value),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// One side of a ratio: a value per batch.
#[derive(Clone)]
pub(crate) struct Side {
    pub what: &'static str,
    pub values: Vec<f64>,
}

impl Side {
    pub fn new(what: &'static str, values: &[f64]) -> Side {
        Side { what, values: values.to_vec() }
    }

    /// What it is of the other one, batch by batch.
    pub fn over(&self, other: &Side) -> Spread {
        let pairs = self.values.iter().zip(&other.values);
        Spread::of(pairs.map(|(ours, theirs)| ours / theirs).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_says_by_how_much() {
        let mut report = Report::default();
        let sides = || [Side::new("a", &[3.0; 5]), Side::new("b", &[2.0; 5])];
        report.ratio("too_much", Target::AtMost(1.25), "ns", sides());
        report.ratio("enough", Target::AtLeast(1.5), "ns", sides());
        report.ratio("told", Target::Report, "ns", sides());
        let missed: Vec<_> = report.missed().map(|row| row.key.as_str()).collect();
        assert_eq!(missed, ["too_much"]);
        assert_eq!(report.rows[0].missed_by_percent.round(), 20.0);
        assert!(report.render().contains("MISSED by 20 %"));
        report.note("enough", "but only just".into());
        assert!(report.render().contains("but only just"));
    }
}
