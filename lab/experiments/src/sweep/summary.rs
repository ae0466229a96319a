//! Numbers of the summary: of each point, or of all together.

use serde::Deserialize;
use serde_json::Value;

use super::{
    format::fill,
    points::{Conditions, Measured, Points},
};
use crate::Report;

/// A number of the summary.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sum {
    /// The figure.
    of: String,
    /// Of these points only.
    #[serde(default)]
    at: Conditions,
    /// And not of these.
    not_at: Option<Conditions>,
    /// Over the same figure of the point that is elsewhere on these axes; in names its figures are `{over.PATH}`.
    over: Option<Conditions>,
    /// Over the largest of the same figure at the other points along this axis.
    over_best: Option<String>,
    /// What is made of the numbers of all these points; none: each has its own, whose name says which.
    fold: Option<Fold>,
}

/// One number of many.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Fold {
    Least,
    Most,
    Sum,
    /// The least over the most.
    LeastOverMost,
    /// Not the most itself: this figure of the point that has it, the last if there are several.
    OfMost(String),
}

impl Sum {
    /// Adds it to a report. What was not measured is left out.
    pub fn tell(&self, name: &str, points: &Points, report: &mut Report) {
        let measured: Vec<(&Measured, f64)> = points
            .at(&self.at)
            .filter(|point| {
                self.not_at
                    .as_ref()
                    .is_none_or(|not| !points.is(point, not))
            })
            .filter_map(|point| Some((point, self.number(point, points)?)))
            .collect();
        let Some(fold) = &self.fold else {
            for (point, number) in measured {
                if let Some(name) = self.name_of(name, point, points) {
                    report.summarize(name, number);
                }
            }
            return;
        };
        let numbers = || measured.iter().map(|(_, number)| *number);
        let (Some(least), Some(most)) = (
            numbers().min_by(f64::total_cmp),
            numbers().max_by(f64::total_cmp),
        ) else {
            return;
        };
        let folded = match fold {
            Fold::Least => least,
            Fold::Most => most,
            Fold::LeastOverMost => least / most,
            Fold::OfMost(path) => {
                let best = measured.iter().max_by(|a, b| a.1.total_cmp(&b.1));
                best.and_then(|(point, _)| point.number(path))
                    .unwrap_or(f64::NAN)
            }
            Fold::Sum => {
                let counts = measured.iter().map(|(point, _)| point.get(&self.of));
                let counts: Option<Vec<u64>> = counts.map(|c| c.and_then(Value::as_u64)).collect();
                if let Some(counts) = counts {
                    report.count(name, counts.iter().sum());
                    return;
                }
                numbers().sum()
            }
        };
        report.summarize(name, folded);
    }

    fn number(&self, point: &Measured, points: &Points) -> Option<f64> {
        let number = point.number(&self.of)?;
        if let Some(over) = &self.over {
            return Some(number / points.other(point, over)?.number(&self.of)?);
        }
        let Some(axis) = &self.over_best else {
            return Some(number);
        };
        let others = points.along(point, axis);
        let best = others.filter_map(|other| other.number(&self.of));
        Some(number / best.max_by(f64::total_cmp)?)
    }

    fn name_of(&self, name: &str, point: &Measured, points: &Points) -> Option<String> {
        let other = self.over.as_ref();
        let other = other.and_then(|over| points.other(point, over));
        fill(name, |path| match path.strip_prefix("over.") {
            Some(path) => other?.get(path),
            None => point.get(path),
        })
    }
}
