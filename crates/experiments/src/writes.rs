use serde_json::json;

use super::{Bench, Experiment, Options, Params, Report, bench::Saturation};
use crate::{
    plot,
    table::{Table, percent, thousands},
};
use lab::progress::Progress;
use load::{Phase, workload::Popularity};

/// One cell of the experiment: a write ratio, how writes spread, both saturation points.
struct Cell {
    ratio: f64,
    writes: Popularity,
    none: Saturation,
    cached: Option<Saturation>,
}

/// Saturation throughput over write ratios, uniform and skewed writes, without and with the cache.
pub fn run(
    experiment: &Experiment,
    params: &Params,
    options: &Options,
    progress: &Progress,
) -> anyhow::Result<Report> {
    let mut report = Report::new(&experiment.name, options, params)?;
    let mut bench = Bench::new(experiment, params, options, progress)?;
    let reads = Popularity::Zipf(params.thetas.last().copied().unwrap_or(0.99));
    let mut cells: Vec<Cell> = vec![];
    for writes in [Popularity::Uniform, reads] {
        for ratio in &params.write_ratios {
            let expected = bench.bound(&bench.shares(reads, *ratio, writes, 0));
            let none = point(
                &mut bench, "none", reads, *ratio, writes, expected, progress,
            )?;
            cells.push(Cell {
                ratio: *ratio,
                writes,
                none,
                cached: None,
            });
        }
    }
    bench.cache_on()?;
    let bound = bench.bound(&bench.shares(reads, 0.0, reads, params.items));
    bench.learn(reads, bound * 1.1, progress)?;
    for cell in &mut cells {
        // With skewed writes the cache helps little: expect the lesser of the two.
        let expected = match cell.writes {
            Popularity::Uniform => {
                bench.bound(&bench.shares(reads, cell.ratio, cell.writes, params.items))
            }
            Popularity::Zipf(_) if cell.ratio == 0.0 => bound,
            Popularity::Zipf(_) => cell.none.rate * 1.05,
        };
        let name = &experiment.discipline;
        let cached = point(
            &mut bench,
            name,
            reads,
            cell.ratio,
            cell.writes,
            expected,
            progress,
        )?;
        cell.cached = Some(cached);
    }
    tell(&mut report, experiment, &cells);
    Ok(report)
}

fn point(
    bench: &mut Bench,
    discipline: &str,
    reads: Popularity,
    ratio: f64,
    writes: Popularity,
    expected: f64,
    progress: &Progress,
) -> anyhow::Result<Saturation> {
    let what = format!("{} writes {}, {discipline}", writes.title(), percent(ratio));
    bench.saturate(expected, &what, progress, |rate, warmup, seconds| Phase {
        write_ratio: ratio,
        writes: Some(writes),
        ..Phase::reads(reads, rate, warmup, seconds)
    })
}

fn tell(report: &mut Report, experiment: &Experiment, cells: &[Cell]) {
    let mut table = Table::new(&[
        "writes",
        "write ratio",
        "none req/s",
        "cached req/s",
        "ratio",
        "hits",
        "wrong",
    ]);
    let (mut lowest, mut wrong) = (f64::INFINITY, 0);
    let mut plotted: Vec<(String, Vec<(f64, f64)>)> = vec![];
    for cell in cells {
        let Some(cached) = &cell.cached else { continue };
        let ratio = cached.rate / cell.none.rate;
        let wrong_here = cell.none.result.wrong() + cached.result.wrong();
        lowest = lowest.min(ratio);
        wrong += wrong_here;
        table.row([
            cell.writes.title(),
            percent(cell.ratio),
            thousands(cell.none.rate),
            thousands(cached.rate),
            format!("{ratio:.2}"),
            percent(cached.result.hit_ratio()),
            wrong_here.to_string(),
        ]);
        report.rows.push(json!({
            "writes": cell.writes.name(),
            "write_ratio": cell.ratio,
            "rate_none": cell.none.rate,
            "rate_cached": cached.rate,
            "throughput_none": cell.none.result.throughput(),
            "throughput_cached": cached.result.throughput(),
            "ratio": ratio,
            "hit_ratio": cached.result.hit_ratio(),
            "refused": cached.result.refused,
            "write": cached.result.write,
            "wrong_values": wrong_here,
            "behind_ms": cached.result.behind_ms,
        }));
        let name = match cell.writes {
            Popularity::Uniform => "uniform",
            Popularity::Zipf(_) => "zipf",
        };
        report.summarize(format!("ratio_{name}_{:.0}", cell.ratio * 100.0), ratio);
        for (discipline, point) in [("none", &cell.none), (&*experiment.discipline, cached)] {
            let title = format!("{discipline}, {} writes", cell.writes.title());
            let at = plotted
                .iter()
                .position(|(other, _)| *other == title)
                .unwrap_or_else(|| {
                    plotted.push((title, vec![]));
                    plotted.len() - 1
                });
            plotted[at].1.push((cell.ratio * 100.0, point.rate));
        }
    }
    report.summarize("ratio_min", lowest);
    report.summarize("wrong_values", wrong as f64);
    report.text = table.render();
    let svg = plot::lines(
        "Saturation throughput over the write ratio",
        "writes in % of requests",
        "requests per second",
        &plotted,
    );
    report.plots.push((format!("{}.svg", experiment.name), svg));
}
