//! SVG plots of the experiments, in one style.

use load::PhaseResult;
use plotters::coord::{Shift, types::RangedCoordf64};
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

const SIZE: (u32, u32) = (900, 520);
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(38, 43, 51);
const GRID: RGBColor = RGBColor(226, 229, 233);
/// Of the series in their order; grey is for what the others are held against.
const COLORS: [RGBColor; 6] = [
    RGBColor(148, 156, 168),
    RGBColor(24, 112, 180),
    RGBColor(224, 122, 46),
    RGBColor(64, 150, 92),
    RGBColor(158, 86, 164),
    RGBColor(190, 62, 62),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type DrawResult = Result<(), Box<dyn std::error::Error>>;

/// Bars in groups, a color per series, with optional marks above them.
pub struct GroupedBars<'a> {
    /// Title.
    pub title: &'a str,
    /// What the vertical axis measures, with its unit.
    pub y: &'a str,
    /// Names under the groups.
    pub groups: &'a [String],
    /// Per series its name and one value per group.
    pub series: &'a [(&'a str, Vec<f64>)],
    /// A short line per group, over the last bar.
    pub marks: Option<(&'a str, Vec<f64>)>,
}

fn svg(size: (u32, u32), draw: impl FnOnce(&Area) -> DrawResult) -> String {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        let drawn = area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area));
        if let Err(error) = drawn.and_then(|()| area.present().map_err(Into::into)) {
            tracing::warn!("a plot could not be drawn: {error}");
        }
    }
    text
}

fn text_style(size: u32) -> TextStyle<'static> {
    (FONT, size).into_font().color(&INK)
}

fn short(value: &f64) -> String {
    match value.abs() {
        v if v >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        v if v >= 1000.0 => format!("{:.1}k", value / 1000.0),
        _ => format!("{value:.0}"),
    }
}

/// As [`short`], with as many decimals as tell the ticks of an axis apart that ends at `end`.
fn fine(end: f64) -> impl Fn(&f64) -> String {
    with_decimals(decimals(end))
}

/// As [`fine`], for values that are drawn beside such an axis: ten times as exact.
fn exact(end: f64) -> impl Fn(&f64) -> String {
    with_decimals(if end < 100.0 { decimals(end) + 1 } else { 0 })
}

/// Decimals that an axis needs of which one twentieth is the finest step.
fn decimals(end: f64) -> i32 {
    let steps = (end / 20.0).max(1e-9).log10();
    (-steps.floor()).max(0.0) as i32
}

fn with_decimals(decimals: i32) -> impl Fn(&f64) -> String {
    let parts = 10f64.powi(decimals);
    move |value| match decimals {
        0 => short(value),
        _ => format!("{}", (value * parts).round() / parts),
    }
}

/// Upper end of an axis: leaves room for the legend above everything that is drawn.
fn top(values: impl Iterator<Item = f64>) -> f64 {
    let highest = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
    if highest > 0.0 { highest * 1.4 } else { 1.0 }
}

/// Draws grouped bars.
pub fn grouped_bars(bars: &GroupedBars) -> String {
    let marks = bars.marks.iter().flat_map(|(_, values)| values).copied();
    let highest = top(bars.series.iter().flat_map(|(_, v)| v).copied().chain(marks));
    svg(SIZE, |area| {
        let groups = bars.groups.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .caption(bars.title, text_style(24))
            .margin(18)
            .x_label_area_size(44)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..groups, 0.0..highest)?;
        let label = |x: &f64| {
            let middle = (x.fract() - 0.5).abs() < 1e-6;
            let name = middle.then(|| bars.groups.get(*x as usize)).flatten();
            name.cloned().unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            .bold_line_style(GRID)
            .axis_style(INK)
            .x_labels(bars.groups.len() * 2 + 1)
            .x_label_formatter(&label)
            .y_label_formatter(&fine(highest))
            .y_desc(bars.y)
            .label_style(text_style(15))
            .draw()?;
        let number = exact(highest);
        let width = 0.7 / bars.series.len() as f64;
        let left = |group: usize, series: usize| group as f64 + 0.15 + series as f64 * width;
        for (s, (name, values)) in bars.series.iter().enumerate() {
            let color = COLORS[s % COLORS.len()];
            let boxes = values.iter().enumerate().map(|(g, value)| {
                let x = left(g, s);
                Rectangle::new([(x + 0.01, 0.0), (x + width - 0.01, *value)], color.filled())
            });
            chart.draw_series(boxes)?.label(*name).legend(move |(x, y)| {
                Rectangle::new([(x, y - 6), (x + 14, y + 6)], color.filled())
            });
            // Inside the bar, where no mark can cross them; above it if the bar is too low.
            let numbers = values.iter().enumerate().map(|(g, value)| {
                let inside = *value > highest * 0.06;
                let vertical = if inside { VPos::Top } else { VPos::Bottom };
                let color: &'static RGBColor = if inside { &WHITE } else { &INK };
                let style = text_style(14).color(color).pos(Pos::new(HPos::Center, vertical));
                let y = if inside { *value - highest * 0.01 } else { *value };
                Text::new(number(value), (left(g, s) + width / 2.0, y), style)
            });
            chart.draw_series(numbers)?;
        }
        if let Some((name, values)) = &bars.marks {
            let last = bars.series.len() - 1;
            let lines =
                values.iter().enumerate().filter(|(_, v)| v.is_finite()).map(|(g, value)| {
                    let x = left(g, last);
                    PathElement::new([(x, *value), (x + width, *value)], INK.stroke_width(3))
                });
            chart
                .draw_series(lines)?
                .label(*name)
                .legend(|(x, y)| PathElement::new([(x, y), (x + 14, y)], INK.stroke_width(3)));
        }
        legend(&mut chart)
    })
}

fn legend(chart: &mut Chart<'_>) -> DrawResult {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(GRID)
        .label_font(text_style(15))
        .margin(12)
        .draw()?;
    Ok(())
}

/// From 0 on: what it measures, where it ends, and how its ticks are written.
struct Axis<'a>(&'a str, f64, &'a dyn Fn(&f64) -> String);

/// A chart over these axes, nothing in it yet.
fn chart<'a>(
    area: &Area<'a>,
    title: &str,
    [x, y]: [Axis<'_>; 2],
) -> Result<Chart<'a>, Box<dyn std::error::Error>> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, text_style(24))
        .margin(18)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..x.1, 0.0..y.1)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .bold_line_style(GRID)
        .axis_style(INK)
        .x_label_formatter(x.2)
        .y_label_formatter(y.2)
        .x_desc(x.0)
        .y_desc(y.0)
        .label_style(text_style(15))
        .draw()?;
    Ok(chart)
}

/// A line of that width, with its name in the legend.
fn line(
    chart: &mut Chart<'_>,
    name: &str,
    points: impl IntoIterator<Item = (f64, f64)>,
    style: ShapeStyle,
) -> DrawResult {
    let line = LineSeries::new(points, style);
    chart
        .draw_series(line)?
        .label(name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    Ok(())
}

/// Draws lines through points.
pub fn lines(title: &str, x: &str, y: &str, series: &[(String, Vec<(f64, f64)>)]) -> String {
    let points = || series.iter().flat_map(|(_, points)| points);
    let right = points().map(|p| p.0).fold(0.0, f64::max).max(1e-9);
    let highest = top(points().map(|p| p.1));
    svg(SIZE, |area| {
        let (across, up) = (fine(right), fine(highest));
        let axes = [Axis(x, right, &across), Axis(y, highest, &up)];
        let mut chart = chart(area, title, axes)?;
        for (i, (name, points)) in series.iter().enumerate() {
            let color = COLORS[i % COLORS.len()];
            line(&mut chart, name, points.iter().copied(), color.stroke_width(3))?;
            let dots = points.iter().map(|p| Circle::new(*p, 4, color.filled()));
            chart.draw_series(dots)?;
        }
        legend(&mut chart)
    })
}

/// Draws cumulative distributions: points (value, part of one that is not larger), as steps.
pub fn distribution(title: &str, x: &str, y: &str, series: &[(String, Vec<(f64, f64)>)]) -> String {
    let points = || series.iter().flat_map(|(_, points)| points);
    let right = points().map(|p| p.0).fold(0.0, f64::max).max(1e-9);
    svg(SIZE, |area| {
        let (value, part) = (fine(right), |part: &f64| format!("{part:.1}"));
        let axes = [Axis(x, right * 1.02, &value), Axis(y, 1.02, &part)];
        let mut chart = chart(area, title, axes)?;
        for (i, (name, points)) in series.iter().enumerate() {
            let steps = points.iter().scan(0.0, |last, (value, part)| {
                let step = [(*value, *last), (*value, *part)];
                *last = *part;
                Some(step)
            });
            let color = COLORS[i % COLORS.len()];
            line(&mut chart, name, steps.flatten(), color.stroke_width(2))?;
        }
        legend(&mut chart)
    })
}

/// Draws answers and cached answers per second over time, with a line at each change of popularity.
pub fn over_time(title: &str, result: &PhaseResult) -> String {
    // Shorter intervals are for those who tell milliseconds apart.
    let (interval_ms, intervals) = result.intervals_of(50);
    let per_second = 1000.0 / interval_ms.max(1) as f64;
    let at = |i: usize| i as f64 / per_second;
    let rate = |f: fn(&load::Interval) -> u32| -> Vec<(f64, f64)> {
        let counts = intervals.iter().enumerate();
        counts.map(|(i, counts)| (at(i), f64::from(f(counts)) * per_second)).collect()
    };
    let (answered, cached) = (rate(|i| i.answered), rate(|i| i.cached));
    let highest = top(answered.iter().map(|p| p.1));
    let end = at(answered.len());
    svg(SIZE, |area| {
        let seconds = fine(end);
        let axes =
            [Axis("seconds", end.max(1e-9), &seconds), Axis("answers per second", highest, &short)];
        let mut chart = chart(area, title, axes)?;
        let changes = result.changes_ms.iter().map(|ms| {
            let x = ms / 1000.0;
            PathElement::new([(x, 0.0), (x, highest)], COLORS[2].mix(0.7).stroke_width(1))
        });
        chart
            .draw_series(changes)?
            .label("popularity changes")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], COLORS[2].stroke_width(1)));
        line(&mut chart, "all answers", answered, COLORS[1].stroke_width(2))?;
        line(&mut chart, "answered by the switch", cached, COLORS[3].stroke_width(2))?;
        legend(&mut chart)
    })
}

/// Draws the load of each server, one panel above the other on the same scale, with a line at what
/// a server can take.
pub fn server_load(
    title: &str,
    servers: &[String],
    panels: &[(String, Vec<f64>)],
    limit: f64,
) -> String {
    let highest = top(panels.iter().flat_map(|(_, v)| v).copied().chain([limit]));
    svg((900, 160 + 220 * panels.len() as u32), |area| {
        let area = area.titled(title, text_style(24))?;
        let parts = area.split_evenly((panels.len(), 1));
        for (i, (part, (name, values))) in parts.iter().zip(panels).enumerate() {
            let count = servers.len() as f64;
            let mut chart = ChartBuilder::on(part)
                .caption(name, text_style(17))
                .margin(12)
                .x_label_area_size(40)
                .y_label_area_size(72)
                .build_cartesian_2d(0.0..count, 0.0..highest)?;
            chart
                .configure_mesh()
                .disable_x_mesh()
                .light_line_style(WHITE)
                .bold_line_style(GRID)
                .axis_style(INK)
                .y_labels(5)
                .x_label_formatter(&short)
                .y_label_formatter(&short)
                .x_desc("server")
                .y_desc("requests per second")
                .label_style(text_style(14))
                .draw()?;
            let color = COLORS[i % COLORS.len()];
            chart.draw_series(values.iter().enumerate().map(|(s, value)| {
                let x = s as f64;
                Rectangle::new([(x + 0.1, 0.0), (x + 0.9, *value)], color.filled())
            }))?;
            let line = [(0.0, limit), (count, limit)];
            chart
                .draw_series([PathElement::new(line, COLORS[5].stroke_width(2))])?
                .label("what a server takes")
                .legend(|(x, y)| {
                    PathElement::new([(x, y), (x + 18, y)], COLORS[5].stroke_width(2))
                });
            if i == 0 {
                legend(&mut chart)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use load::Interval;

    #[test]
    fn plots_name_what_they_show() {
        let groups = ["uniform".to_string(), "Zipf 0.99".to_string()];
        let bars = GroupedBars {
            title: "Throughput & more",
            y: "requests per second",
            groups: &groups,
            series: &[("none", vec![10.0, 2.0]), ("cached", vec![11.0, 20.0])],
            marks: Some(("bound", vec![12.0, f64::INFINITY])),
        };
        let text = grouped_bars(&bars);
        for word in ["<svg", "Throughput &amp; more", "requests per second", "Zipf 0.99", "bound"] {
            assert!(text.contains(word), "{word} is missing");
        }
        let result = PhaseResult {
            interval_ms: 100,
            intervals: vec![Interval { answered: 5, cached: 3, ..Interval::default() }; 20],
            changes_ms: vec![1000.0],
            ..PhaseResult::default()
        };
        assert!(over_time("Churn", &result).contains("popularity changes"));
        let panels = [("without".to_string(), vec![5.0, 1.0])];
        assert!(server_load("Load", &groups, &panels, 4.0).contains("what a server takes"));
        let series = [("a".to_string(), vec![(0.0, 1.0), (100.0, 0.5)])];
        assert!(lines("T", "x", "y", &series).contains("</svg>"));
        assert!(distribution("T", "milliseconds", "y", &series).contains("milliseconds"));
    }

    #[test]
    fn short_axes_tell_halves_apart() {
        assert_eq!([0.0, 0.5, 12.0].map(|v| fine(12.0)(&v)), ["0", "0.5", "12"]);
        assert_eq!(fine(30_000.0)(&25_000.0), "25k");
        assert_eq!([0.0, 0.1, 1.6].map(|v| fine(1.6)(&v)), ["0", "0.1", "1.6"]);
        assert_eq!(fine(0.02)(&0.0075), "0.008");
    }

    #[test]
    fn bars_of_small_values_say_more_than_zero() {
        let text = grouped_bars(&GroupedBars {
            title: "Imbalance",
            y: "imbalance",
            groups: &["Zipf 0.99".into()],
            series: &[("cached", vec![0.016]), ("none", vec![1.17])],
            marks: None,
        });
        for number in ["0.016", "1.17"] {
            assert!(text.contains(number), "{number} is missing: {text}");
        }
    }

    #[test]
    fn nothing_to_draw_is_no_panic() {
        assert!(over_time("empty", &PhaseResult::default()).contains("<svg"));
        assert!(lines("empty", "x", "y", &[]).contains("<svg"));
        assert!(distribution("empty", "x", "y", &[]).contains("<svg"));
    }
}
