//! What was measured, point by point.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Figures, columns::Column, place::Axis};

/// Conditions: figures by their paths, and what they are to be. `@first` and `@last` are an axis's
/// first and last value.
pub type Conditions = BTreeMap<String, Value>;

/// Of the points along an axis the one that has most of something.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Best {
    /// The axis.
    pub along: String,
    /// The figure.
    pub by: String,
}

/// One point.
#[derive(Clone, Debug)]
pub struct MeasuredPoint {
    /// The number of its value on each axis.
    at: Vec<usize>,
    /// The axes, and where it is on them.
    labels: Map<String, Value>,
    figures: Figures,
}

impl MeasuredPoint {
    /// The figure at this path, or where the point is on the axis of this name.
    pub fn get(&self, path: &str) -> Option<&Value> {
        let mut names = path.split('.');
        let first = names.next()?;
        let Figures { row, aside } = &self.figures;
        let found = self.labels.get(first).or(row.get(first));
        let found = found.or(aside.get(first))?;
        names.try_fold(found, |value, name| value.get(name))
    }

    /// The same, if it is a number.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.get(path)?.as_f64()
    }

    /// Whether that was measured and is nothing, as the latency of nobody is.
    pub fn is_null(&self, path: &str) -> bool {
        let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        ends.into_iter().any(|end| self.get(&path[..end]) == Some(&Value::Null))
    }

    /// Its row.
    pub fn row(&self, columns: &BTreeMap<String, Column>) -> Value {
        let mut row = self.figures.row.clone();
        for (name, value) in &self.labels {
            if !matches!(columns.get(name), Some(Column::Shown(false))) {
                row.entry(name.clone()).or_insert(value.clone());
            }
        }
        row.into()
    }
}

/// All of them, in the order in which they are told.
#[derive(Clone, Debug)]
pub struct Points {
    axes: Vec<Axis>,
    all: Vec<MeasuredPoint>,
}

impl Points {
    pub(super) fn new(axes: Vec<Axis>) -> Points {
        Points { axes, all: vec![] }
    }

    /// Adds one, with the columns that are other figures in another form.
    pub(super) fn add(
        &mut self,
        at: Vec<usize>,
        figures: Figures,
        columns: &BTreeMap<String, Column>,
    ) {
        let labels = self.axes.iter().zip(&at);
        let labels = labels.map(|(axis, value)| (axis.name.clone(), axis.labels[*value].clone()));
        let mut point = MeasuredPoint { labels: labels.collect(), at, figures };
        for (name, column) in columns {
            let value = match column {
                Column::Shown(_) => continue,
                Column::As(path) => point.get(path).cloned().unwrap_or_default(),
                Column::Of(path, format) => format.value(point.get(path)),
            };
            point.figures.row.insert(name.clone(), value);
        }
        self.all.push(point);
    }

    /// All of them.
    pub fn all(&self) -> &[MeasuredPoint] {
        &self.all
    }

    /// Those that are as these conditions say.
    pub fn at<'p>(&'p self, conditions: &'p Conditions) -> impl Iterator<Item = &'p MeasuredPoint> {
        self.all.iter().filter(move |point| self.is(point, conditions))
    }

    /// Whether a point is as all of these conditions say.
    pub fn is(&self, point: &MeasuredPoint, conditions: &Conditions) -> bool {
        conditions.iter().all(|(path, wanted)| {
            let wanted = self.wanted(path, wanted);
            point.get(path).is_some_and(|found| same(found, wanted))
        })
    }

    fn wanted<'v>(&'v self, path: &str, wanted: &'v Value) -> &'v Value {
        let labels = self.axes.iter().find(|axis| axis.name == path);
        let labels = labels.map_or(&[][..], |axis| &axis.labels);
        let named = match wanted.as_str() {
            Some("@first") => labels.first(),
            Some("@last") => labels.last(),
            _ => None,
        };
        named.unwrap_or(wanted)
    }

    /// The other point that is where this one is but on the axes of these conditions, and is as
    /// they say; `@same` is what this one has.
    pub fn other(&self, point: &MeasuredPoint, conditions: &Conditions) -> Option<&MeasuredPoint> {
        let own = conditions.iter().map(|(path, wanted)| {
            let own = (wanted == "@same").then(|| point.get(path)).flatten();
            (path.clone(), own.unwrap_or(wanted).clone())
        });
        let conditions: Conditions = own.collect();
        let mut others = self.at_others(point, |axis| conditions.contains_key(axis));
        others.find(|other| self.is(other, &conditions))
    }

    /// The other points along an axis.
    pub fn along(
        &self,
        point: &MeasuredPoint,
        along: &str,
    ) -> impl Iterator<Item = &MeasuredPoint> {
        self.at_others(point, move |axis| axis == along)
    }

    /// Other points that are where this one is on every axis but these.
    fn at_others<'p>(
        &'p self,
        point: &MeasuredPoint,
        is_free: impl Fn(&str) -> bool,
    ) -> impl Iterator<Item = &'p MeasuredPoint> {
        let free: Vec<bool> = self.axes.iter().map(|axis| is_free(&axis.name)).collect();
        let at = point.at.clone();
        let own: *const MeasuredPoint = point;
        self.all.iter().filter(move |other| {
            let places = at.iter().zip(&other.at).zip(&free);
            !std::ptr::eq(*other, own) && places.into_iter().all(|((a, b), free)| *free || a == b)
        })
    }

    /// Whether there is an axis of this name.
    pub fn is_axis(&self, name: &str) -> bool {
        self.axes.iter().any(|axis| axis.name == name)
    }

    /// Leaves of all points along an axis the first that has most of something.
    pub(super) fn keep_best(&mut self, best: &Best) {
        let most = |point: &MeasuredPoint| point.number(&best.by).unwrap_or(f64::NEG_INFINITY);
        let is_best = |point: &&MeasuredPoint| {
            self.along(point, &best.along).all(|other| {
                most(other) < most(point) || (most(other) == most(point) && other.at > point.at)
            })
        };
        self.all = self.all.iter().filter(is_best).cloned().collect();
    }

    /// Has them told by these axes.
    pub(super) fn sort_by(&mut self, axes: Option<Vec<usize>>) {
        if let Some(axes) = axes {
            self.all.sort_by_key(|point| {
                let of = axes.iter().map(|axis| point.at[*axis]);
                of.collect::<Vec<_>>()
            });
        }
    }

    /// The values of a figure, each once, in the order of the points.
    pub fn values<'p>(points: &[&'p MeasuredPoint], path: &str) -> Vec<&'p Value> {
        let mut values: Vec<&Value> = vec![];
        for value in points.iter().filter_map(|point| point.get(path)) {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        values
    }
}

/// Whether two values are the same; 1 and 1.0 are.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}
