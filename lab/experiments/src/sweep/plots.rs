//! Plots of what was measured.

use serde::Deserialize;
use serde_json::Value;

use super::{
    format::{Format, fill},
    points::{Conditions, Measured, Points},
};
use crate::{
    Report,
    plot::{self, GroupedBars},
};

/// A plot, or one for each value of a figure.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// What its file's name has after that of the experiment. Here and in titles and names `{PATH}` is a figure of the
    /// first point that is drawn.
    #[serde(default)]
    file: String,
    title: String,
    /// What its axes measure. Below bars are the names of their groups.
    #[serde(default)]
    x: String,
    y: String,
    shape: Outline,
    /// The figure along the horizontal axis. Curves and steps have their own.
    #[serde(default)]
    over: String,
    /// How it is written below bars.
    #[serde(default)]
    named: Format,
    series: Vec<Series>,
    /// Marks over bars.
    marks: Option<Series>,
    /// The points that are drawn.
    #[serde(default)]
    at: Conditions,
    /// The figure that each plot has one value of; none: all is in one.
    each: Option<String>,
}

/// What is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Outline {
    Bars,
    /// Lines through points.
    Lines,
    /// Lines of which each point has a whole one.
    Curves,
    /// Cumulative distributions, likewise.
    Steps,
}

/// What is drawn alike.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Series {
    of: String,
    /// What the figure is multiplied by.
    #[serde(default = "one")]
    times: f64,
    /// The figure that each series has one value of; none: there is one series.
    by: Option<String>,
    /// What it is called; if nothing is said, as what it has of `by`.
    name: Option<String>,
    /// Its points.
    #[serde(default)]
    at: Conditions,
}

fn one() -> f64 {
    1.0
}

impl Plot {
    /// Draws it into a report; nothing, if there are no points.
    pub fn draw(&self, name: &str, points: &Points, report: &mut Report) {
        let all: Vec<&Measured> = points.at(&self.at).collect();
        for points_of in split(&all, self.each.as_deref()) {
            let Some(first) = points_of.first() else {
                continue;
            };
            let text = |text: &str| fill(text, |path| first.get(path)).unwrap_or_default();
            let svg = self.svg(&text(&self.title), &points_of, points);
            report.plot(format!("{name}{}", text(&self.file)), svg);
        }
    }

    fn svg(&self, title: &str, drawn: &[&Measured], points: &Points) -> String {
        let series = self.series.iter();
        let series: Vec<_> = series.flat_map(|series| series.of(drawn, points)).collect();
        match self.shape {
            Outline::Bars => self.bars(title, drawn, points, &series),
            Outline::Lines => {
                let lines = series.iter().map(|(name, of, times, drawn)| {
                    let at = |p: &&Measured| Some((p.number(&self.over)?, p.number(of)? * times));
                    (name.clone(), drawn.iter().filter_map(at).collect())
                });
                plot::lines(title, &self.x, &self.y, &lines.collect::<Vec<_>>())
            }
            Outline::Curves | Outline::Steps => {
                let curves = series.iter().map(|(name, of, times, drawn)| {
                    let curves = drawn.iter().filter_map(|p| p.get(of)?.as_array());
                    let pairs = curves.flatten().filter_map(pair);
                    (name.clone(), pairs.map(|(x, y)| (x, y * times)).collect())
                });
                let curves: Vec<_> = curves.collect();
                match self.shape {
                    Outline::Steps => plot::distribution(title, &self.x, &self.y, &curves),
                    _ => plot::lines(title, &self.x, &self.y, &curves),
                }
            }
        }
    }

    fn bars(
        &self,
        title: &str,
        drawn: &[&Measured],
        points: &Points,
        series: &[(String, &str, f64, Vec<&Measured>)],
    ) -> String {
        let groups = Points::values(drawn, &self.over);
        // One bar for each group, whether its point is there or not.
        let bars = |of: &str, times: f64, drawn: &[&Measured], none: f64| -> Vec<f64> {
            let of_group = |group: &&Value| {
                let mut points = drawn.iter().filter(|p| p.get(&self.over) == Some(group));
                points
                    .find_map(|p| p.number(of))
                    .map_or(none, |n| n * times)
            };
            groups.iter().map(of_group).collect()
        };
        let series: Vec<(&str, Vec<f64>)> = series
            .iter()
            .map(|(name, of, times, drawn)| (name.as_str(), bars(of, *times, drawn, 0.0)))
            .collect();
        let marks = self.marks.iter().flat_map(|marks| marks.of(drawn, points));
        let marks: Vec<_> = marks.collect();
        let mark = marks.first();
        let names: Vec<String> = groups.iter().map(|g| self.named.cell(Some(g))).collect();
        plot::grouped_bars(&GroupedBars {
            title,
            y: &self.y,
            groups: &names,
            series: &series,
            marks: mark
                .map(|(name, of, times, drawn)| (name.as_str(), bars(of, *times, drawn, f64::NAN))),
        })
    }
}

impl Series {
    /// Each series with its name, figure and factor, and its points.
    fn of<'p>(
        &self,
        drawn: &[&'p Measured],
        points: &Points,
    ) -> Vec<(String, &str, f64, Vec<&'p Measured>)> {
        let all = drawn.iter().copied();
        let all: Vec<&Measured> = all.filter(|point| points.is(point, &self.at)).collect();
        let series = |of: Vec<&'p Measured>| {
            let first = of.first()?;
            let by = self.by.as_deref().unwrap_or_default();
            let name = match &self.name {
                Some(name) => fill(name, |path| first.get(path)).unwrap_or_default(),
                None => Format::Text.cell(first.get(by)),
            };
            Some((name, self.of.as_str(), self.times, of))
        };
        let split = split(&all, self.by.as_deref()).into_iter();
        split.filter_map(series).collect()
    }
}

/// Points by their values of a figure; none: all together.
fn split<'p>(points: &[&'p Measured], by: Option<&str>) -> Vec<Vec<&'p Measured>> {
    let Some(by) = by else {
        return vec![points.to_vec()];
    };
    let of = |value: &Value| {
        let of = points.iter().copied();
        of.filter(|point| point.get(by) == Some(value)).collect()
    };
    Points::values(points, by).into_iter().map(of).collect()
}

fn pair(value: &Value) -> Option<(f64, f64)> {
    Some((value.get(0)?.as_f64()?, value.get(1)?.as_f64()?))
}
