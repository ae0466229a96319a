//! Numbers of the summary: of each point, or of all together.

use std::collections::BTreeSet;

use serde::Deserialize;

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
    /// Where a point was measured and has no such figure, this is said of it, and not left out. Of
    /// many with a fold it is said if one of them has none: else the run has failed, as what is
    /// left out is most often the worst of them.
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
        let most = most(measured);
        let mut all = measured.iter();
        let (first, _) = all.find(|(_, number)| *number >= most * (1.0 - self.within))?;
        Format::Text.text(first.get(&self.of))
    }
}

/// The one of these numbers that `beats` all others. What is no number (0 of 0) makes none of all:
/// it is not the best of them.
fn extreme(measured: &[(&MeasuredPoint, f64)], beats: fn(&f64, &f64) -> bool) -> f64 {
    let mut numbers = measured.iter().map(|(_, number)| *number);
    let further = |a: f64, b: f64| if a.is_nan() || beats(&a, &b) { a } else { b };
    numbers.next().map_or(f64::NAN, |first| numbers.fold(first, further))
}

/// The most of them.
fn most(measured: &[(&MeasuredPoint, f64)]) -> f64 {
    extreme(measured, f64::gt)
}

/// The least of them.
fn least(measured: &[(&MeasuredPoint, f64)]) -> f64 {
    extreme(measured, f64::lt)
}

impl Sum {
    /// Adds it to a report. What was not measured is left out.
    pub fn tell(&self, name: &str, points: &Points, report: &mut Report) {
        let mut named: Vec<(String, Vec<(&MeasuredPoint, f64)>)> = vec![];
        let mut lacking = BTreeSet::new();
        for point in points.at(&self.at) {
            let is_out = self.not_at.as_ref().is_some_and(|not| points.is(point, not));
            let name = self.name_of(name, point, points).filter(|_| !is_out);
            let Some(name) = name else { continue };
            let Some(number) = self.number(point, points) else {
                if self.is_none(point, points) {
                    self.none.iter().for_each(|none| report.say(&name, none.clone()));
                    lacking.insert(name);
                }
                continue;
            };
            match named.iter_mut().find(|(other, _)| *other == name) {
                Some((_, measured)) => measured.push((point, number)),
                None => named.push((name, vec![(point, number)])),
            }
        }
        named.retain(|(name, _)| {
            let is_whole = !lacking.contains(name);
            if !is_whole && self.none.is_none() {
                report
                    .fails(format!("{name}: not every point that was measured has such a figure"));
            }
            is_whole
        });
        for (name, measured) in named {
            let is_same = |pair: &[(&MeasuredPoint, f64)]| pair[0].1 == pair[1].1;
            if self.fold.is_none() && !measured.windows(2).all(is_same) {
                report.fails(format!("{name} is different numbers, and no fold says which counts"));
            }
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
        match &self.fold {
            None | Some(Fold::FirstNearMost(_)) => numbers().next_back().unwrap_or(f64::NAN),
            Some(Fold::Least) => least(measured),
            Some(Fold::Most) => most(measured),
            Some(Fold::Sum) => numbers().sum(),
            Some(Fold::LeastOverMost) => least(measured) / most(measured),
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
        if self.is_none(point, points) {
            return None;
        }
        let best = points.along(point, axis).filter_map(|other| other.number(&self.of));
        Some(number / best.max_by(f64::total_cmp)?)
    }

    /// Whether the point was measured and has no such figure, or one that it is held against.
    fn is_none(&self, point: &MeasuredPoint, points: &Points) -> bool {
        let other = self.over.as_ref().map(|over| points.other(point, over));
        let is_alone = other.is_some_and(|other| other.is_none());
        let along = self.over_best.iter().flat_map(|axis| points.along(point, axis));
        let mut all = [point].into_iter().chain(other.flatten()).chain(along);
        !is_alone && all.any(|point| point.is_null(&self.of))
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
