//! Numbers of the summary: of each point, or of all together.

use serde::Deserialize;
use serde_json::Value;

use super::{
    format::{Format, fill},
    points::{Conditions, MeasuredPoint, Points},
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
    /// Over the same figure of the point that is elsewhere on these axes; in names its figures are
    /// `{over.PATH}`.
    over: Option<Conditions>,
    /// Over the largest of the same figure at the other points along this axis.
    over_best: Option<String>,
    /// What is made of the numbers of all points for which the name is the same; none: each has its
    /// own.
    fold: Option<Fold>,
    /// Where a point was measured and has no such figure, this is said of it, and not left out.
    #[serde(default)]
    none: Option<String>,
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
    /// What the first point is called that comes near the most.
    FirstNearMost(Margin),
}

/// Which point comes near the most, and what is told of it.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Margin {
    /// The figure that is told, as text.
    of: String,
    /// How far below the most it may be, as a part of the most.
    within: f64,
}

impl Margin {
    /// Of these points with their numbers.
    fn text(&self, measured: &[(&MeasuredPoint, f64)]) -> Option<String> {
        let most = measured.iter().map(|(_, number)| *number).fold(f64::NEG_INFINITY, f64::max);
        let mut all = measured.iter();
        let (first, _) = all.find(|(_, number)| *number >= most * (1.0 - self.within))?;
        Format::Text.text(first.get(&self.of))
    }
}

impl Sum {
    /// Adds it to a report. What was not measured is left out.
    pub fn tell(&self, name: &str, points: &Points, report: &mut Report) {
        let mut named: Vec<(String, Vec<(&MeasuredPoint, f64)>)> = vec![];
        for point in points.at(&self.at) {
            let is_out = self.not_at.as_ref().is_some_and(|not| points.is(point, not));
            let name = self.name_of(name, point, points).filter(|_| !is_out);
            let Some(name) = name else { continue };
            let Some(number) = self.number(point, points) else {
                let lacks = self.none.as_ref().filter(|_| self.is_none(point, points));
                lacks.into_iter().for_each(|none| report.say(&name, none.clone()));
                continue;
            };
            match named.iter_mut().find(|(other, _)| *other == name) {
                Some((_, measured)) => measured.push((point, number)),
                None => named.push((name, vec![(point, number)])),
            }
        }
        for (name, measured) in named {
            match (self.count(&measured), &self.fold) {
                (Some(count), _) => report.count(&name, count),
                (None, Some(Fold::FirstNearMost(near))) => {
                    near.text(&measured).into_iter().for_each(|text| report.say(&name, text));
                }
                (None, _) => report.summarize(name, self.folded(&measured)),
            }
        }
    }

    /// The sum of what are counts.
    fn count(&self, measured: &[(&MeasuredPoint, f64)]) -> Option<u64> {
        let counts = measured.iter().map(|(point, _)| point.get(&self.of)?.as_u64());
        matches!(self.fold, Some(Fold::Sum)).then(|| counts.sum())?
    }

    fn folded(&self, measured: &[(&MeasuredPoint, f64)]) -> f64 {
        let numbers = || measured.iter().map(|(_, number)| *number);
        let least = || numbers().fold(f64::INFINITY, f64::min);
        let most = || numbers().fold(f64::NEG_INFINITY, f64::max);
        match &self.fold {
            None | Some(Fold::FirstNearMost(_)) => numbers().next_back().unwrap_or(f64::NAN),
            Some(Fold::Least) => least(),
            Some(Fold::Most) => most(),
            Some(Fold::Sum) => numbers().sum(),
            Some(Fold::LeastOverMost) => least() / most(),
            Some(Fold::OfMost(path)) => {
                let best = measured.iter().max_by(|a, b| a.1.total_cmp(&b.1));
                best.and_then(|(point, _)| point.number(path)).unwrap_or(f64::NAN)
            }
        }
    }

    fn number(&self, point: &MeasuredPoint, points: &Points) -> Option<f64> {
        let number = point.number(&self.of)?;
        if let Some(over) = &self.over {
            return Some(number / points.other(point, over)?.number(&self.of)?);
        }
        let Some(axis) = &self.over_best else { return Some(number) };
        let others = points.along(point, axis);
        let best = others.filter_map(|other| other.number(&self.of));
        Some(number / best.max_by(f64::total_cmp)?)
    }

    /// Whether the point, or the one that it is held against, has no such figure.
    fn is_none(&self, point: &MeasuredPoint, points: &Points) -> bool {
        let other = self.over.as_ref().map(|over| points.other(point, over));
        let mut all = [Some(point), other.unwrap_or(Some(point))].into_iter();
        let is_measured = all.clone().all(|point| point.is_some_and(|p| p.get(&self.of).is_some()));
        is_measured && all.any(|point| point.is_some_and(|p| p.get(&self.of) == Some(&Value::Null)))
    }

    fn name_of(&self, name: &str, point: &MeasuredPoint, points: &Points) -> Option<String> {
        let other = self.over.as_ref();
        let other = other.and_then(|over| points.other(point, over));
        fill(name, |path| match path.strip_prefix("over.") {
            Some(path) => other?.get(path),
            None => point.get(path),
        })
    }
}
