use experiments::{
    Measure, Options, Report, Run,
    params::{self, exponent},
    plot,
    servers::{Rack, Saturation, Search, Servers},
    table::{Table, percent, thousands},
};
use load::{Phase, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Saturation throughput over write ratios, uniform and skewed writes, without and with the cache.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Writes {
    rack: Rack,
    search: Search,
    /// Zipf's exponent, of reads and of skewed writes.
    theta: f64,
    /// Write ratios measured.
    write_ratios: Vec<f64>,
}

impl Measure for Writes {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        exponent(self.theta)?;
        let mut ratios = self.write_ratios.iter();
        ratios.try_for_each(|ratio| params::ratio("write_ratios", *ratio))
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut servers = Servers::new(run, &self.rack, run.options.backend)?;
        let reads = Popularity::Zipf(self.theta);
        let mut cells: Vec<Cell> = vec![];
        for writes in [Popularity::Uniform, reads] {
            for ratio in &self.write_ratios {
                let expected = servers.bound(&servers.shares(reads, *ratio, writes, 0));
                let none = self.point(&mut servers, "none", *ratio, writes, expected)?;
                cells.push(Cell {
                    ratio: *ratio,
                    writes,
                    none,
                    cached: None,
                });
            }
        }
        servers.cache_on()?;
        let items = self.rack.items;
        let bound = servers.bound(&servers.shares(reads, 0.0, reads, items));
        servers.learn(reads, bound * 1.1)?;
        for cell in &mut cells {
            let (ratio, writes) = (cell.ratio, cell.writes);
            // With skewed writes the cache helps little: expect the lesser of the two.
            let expected = match writes {
                Popularity::Uniform => servers.bound(&servers.shares(reads, ratio, writes, items)),
                Popularity::Zipf(_) if ratio == 0.0 => bound,
                Popularity::Zipf(_) => cell.none.rate * 1.05,
            };
            cell.cached =
                Some(self.point(&mut servers, run.discipline, ratio, writes, expected)?);
        }
        tell(report, run, &cells);
        Ok(())
    }
}

impl Writes {
    fn point(
        &self,
        servers: &mut Servers,
        discipline: &str,
        ratio: f64,
        writes: Popularity,
        expected: f64,
    ) -> anyhow::Result<Saturation> {
        let reads = Popularity::Zipf(self.theta);
        let what = format!("{} writes {}, {discipline}", writes.title(), percent(ratio));
        let phase = |rate, warmup, seconds| Phase {
            write_ratio: ratio,
            writes: Some(writes),
            ..Phase::reads(reads, rate, warmup, seconds)
        };
        servers.saturate(expected, &what, &self.search, phase)
    }
}

/// One cell of the experiment: a write ratio, how writes spread, both saturation points.
struct Cell {
    ratio: f64,
    writes: Popularity,
    none: Saturation,
    cached: Option<Saturation>,
}

fn tell(report: &mut Report, run: &Run<'_>, cells: &[Cell]) {
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
        for (discipline, point) in [("none", &cell.none), (run.discipline, cached)] {
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
    report.plot(run.name, svg);
}
