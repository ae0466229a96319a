//! Plots of what was measured.

use serde::Deserialize;
use serde_json::Value;

use super::{
    format::{Format, fill},
    points::{Conditions, MeasuredPoint, Points},
};
use crate::{
    Report,
    plot::{self, GroupedBars},
};

/// A plot, or one for each value of a figure.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// What its file's name has after that of the experiment. Here and in titles and names `{PATH}`
    /// is a figure of the first point that is drawn.
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
    /// Instead of it: what is written below bars whose figures are lists, one bar for each group.
    groups: Option<Vec<String>>,
    series: Vec<Series>,
    /// Marks over bars.
    marks: Option<Series>,
    /// The figure that says what a server takes, in panels.
    #[serde(default)]
    limit: String,
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
    /// The load of each server, a panel for each point.
    Panels,
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
        let all: Vec<&MeasuredPoint> = points.at(&self.at).collect();
        for points_of in split(&all, self.each.as_deref()) {
            let Some(first) = points_of.first() else { continue };
            let text = |text: &str| fill(text, |path| first.get(path)).unwrap_or_default();
            let svg = self.svg(&text(&self.title), &points_of, points);
            report.plot(format!("{name}{}", text(&self.file)), svg);
        }
    }

    fn svg(&self, title: &str, points: &[&MeasuredPoint], all: &Points) -> String {
        let series = self.series.iter();
        let series: Vec<SeriesPoints<'_>> =
            series.flat_map(|series| series.of(points, all)).collect();
        let (x, y) = (self.x.as_str(), self.y.as_str());
        match self.shape {
            Outline::Bars => self.bars(title, points, all, &series),
            Outline::Lines => plot::lines(title, x, y, &each(&series, |s| s.line(&self.over, all))),
            Outline::Curves => plot::lines(title, x, y, &each(&series, SeriesPoints::curve)),
            Outline::Steps => plot::distribution(title, x, y, &each(&series, SeriesPoints::curve)),
            Outline::Panels => {
                let panels = each(&series, SeriesPoints::list);
                let most = panels.iter().map(|(_, loads)| loads.len()).max();
                let servers: Vec<String> = (1..=most.unwrap_or(0)).map(|n| n.to_string()).collect();
                let limit = points.first().and_then(|point| point.number(&self.limit));
                plot::server_load(title, &servers, &panels, limit.unwrap_or(0.0))
            }
        }
    }

    fn bars(
        &self,
        title: &str,
        points: &[&MeasuredPoint],
        all: &Points,
        series: &[SeriesPoints<'_>],
    ) -> String {
        let groups = Points::values(points, &self.over);
        let of = |s: &SeriesPoints<'_>| match &self.groups {
            Some(_) => s.list(),
            None => s.bars(&self.over, &groups, 0.0),
        };
        let heights: Vec<(&str, Vec<f64>)> =
            series.iter().map(|s| (s.name.as_str(), of(s))).collect();
        let marks = self.marks.iter().flat_map(|marks| marks.of(points, all));
        let marks: Vec<SeriesPoints<'_>> = marks.collect();
        let mark = |m: &'_ SeriesPoints<'_>| m.bars(&self.over, &groups, f64::NAN);
        let values = groups.iter().map(|group| self.named.cell(Some(group)));
        let names = self.groups.clone().unwrap_or_else(|| values.collect());
        plot::grouped_bars(&GroupedBars {
            title,
            y: &self.y,
            groups: &names,
            series: &heights,
            marks: marks.first().map(|m| (m.name.as_str(), mark(m))),
        })
    }
}

impl Series {
    /// What is drawn of these points.
    fn of<'p>(&'p self, points: &[&'p MeasuredPoint], all: &Points) -> Vec<SeriesPoints<'p>> {
        let own = points.iter().copied();
        let own: Vec<&MeasuredPoint> = own.filter(|point| all.is(point, &self.at)).collect();
        let drawn = |points: Vec<&'p MeasuredPoint>| {
            let first = points.first()?;
            let by = self.by.as_deref().unwrap_or_default();
            let name = match &self.name {
                Some(name) => fill(name, |path| first.get(path)).unwrap_or_default(),
                None => Format::Text.cell(first.get(by)),
            };
            Some(SeriesPoints { name, series: self, points })
        };
        let split = split(&own, self.by.as_deref()).into_iter();
        split.filter_map(drawn).collect()
    }
}

/// One series.
struct SeriesPoints<'p> {
    name: String,
    series: &'p Series,
    points: Vec<&'p MeasuredPoint>,
}

impl SeriesPoints<'_> {
    fn number(&self, point: &MeasuredPoint) -> Option<f64> {
        Some(point.number(&self.series.of)? * self.series.times)
    }

    /// Through its points: along an axis in its order, else in theirs.
    fn line(&self, over: &str, all: &Points) -> Vec<(f64, f64)> {
        let at = |point: &&MeasuredPoint| Some((point.number(over)?, self.number(point)?));
        let mut line: Vec<(f64, f64)> = self.points.iter().filter_map(at).collect();
        if all.is_axis(over) {
            line.sort_by(|a, b| a.0.total_cmp(&b.0));
        }
        line
    }

    /// What its points have, which are lists, one after the other.
    fn listed(&self) -> impl Iterator<Item = &Value> {
        let lists = self.points.iter();
        lists.filter_map(|point| point.get(&self.series.of)?.as_array()).flatten()
    }

    fn curve(&self) -> Vec<(f64, f64)> {
        let pair = |value: &Value| {
            let [x, y] = [0, 1].map(|place| value.get(place).and_then(Value::as_f64));
            Some((x?, y? * self.series.times))
        };
        self.listed().filter_map(pair).collect()
    }

    fn list(&self) -> Vec<f64> {
        let numbers = self.listed().filter_map(Value::as_f64);
        numbers.map(|number| number * self.series.times).collect()
    }

    /// One for each group, whether its point is there or not.
    fn bars(&self, over: &str, groups: &[&Value], none: f64) -> Vec<f64> {
        let of_group = |group: &&Value| {
            let mut of = self.points.iter().filter(|p| p.get(over) == Some(*group));
            of.find_map(|point| self.number(point)).unwrap_or(none)
        };
        groups.iter().map(of_group).collect()
    }
}

/// The name of each series, and what is drawn of it.
fn each<'p, T>(
    series: &[SeriesPoints<'p>],
    of: impl Fn(&SeriesPoints<'p>) -> T,
) -> Vec<(String, T)> {
    let each = series.iter().map(|drawn| (drawn.name.clone(), of(drawn)));
    each.collect()
}

/// Points by their values of a figure; none: all together.
fn split<'p>(points: &[&'p MeasuredPoint], by: Option<&str>) -> Vec<Vec<&'p MeasuredPoint>> {
    let Some(by) = by else { return vec![points.to_vec()] };
    let of = |value: &Value| {
        let of = points.iter().copied();
        of.filter(|point| point.get(by) == Some(value)).collect()
    };
    Points::values(points, by).into_iter().map(of).collect()
}
