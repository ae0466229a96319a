use experiments::{
    Measure, Options, Report, Run,
    params::Distributions,
    plot,
    servers::{Rack, Saturation, Search, Servers},
    table::{Table, micros, percent, thousands},
};
use load::{Phase, model::imbalance, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Saturation throughput per distribution, without and with the cache, beside what an ideal cache
/// of the same size would reach for the same map of keys to servers.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skew {
    rack: Rack,
    #[serde(default)]
    search: Search,
    distributions: Distributions,
}

impl Measure for Skew {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.distributions.check()
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let Skew { rack, search, .. } = self;
        let mut servers = Servers::new(run, rack, run.options.backend)?;
        let distributions = self.distributions.all();
        let mut measured: Vec<(Popularity, Saturation, Saturation, f64, f64)> = vec![];
        let mut without = vec![];
        for popularity in &distributions {
            let shares = servers.shares(*popularity, 0.0, *popularity, 0);
            let bound = servers.bound(&shares);
            let what = format!("{}, none", popularity.title());
            let point = servers.saturate(bound, &what, search, |rate, warmup, seconds| {
                Phase::reads(*popularity, rate, warmup, seconds)
            })?;
            without.push((point, bound));
        }
        let all = distributions.into_iter().zip(without);
        for (i, (popularity, (none, bound_none))) in all.enumerate() {
            if i > 0 {
                servers.cache_off()?;
            }
            servers.cache_on()?;
            let shares = servers.shares(popularity, 0.0, popularity, rack.items);
            let bound = servers.bound(&shares);
            servers.learn(popularity, bound * 1.1)?;
            let what = format!("{}, {}", popularity.title(), run.discipline);
            let cached = servers.saturate(bound, &what, search, |rate, warmup, seconds| {
                Phase::reads(popularity, rate, warmup, seconds)
            })?;
            measured.push((popularity, none, cached, bound_none, bound));
        }
        tell(report, run, &measured);
        Ok(())
    }
}

fn tell(
    report: &mut Report,
    run: &Run<'_>,
    measured: &[(Popularity, Saturation, Saturation, f64, f64)],
) {
    let mut table = Table::new(&[
        "popularity",
        "discipline",
        "req/s",
        "bound",
        "of bound",
        "hits",
        "p50",
        "p99",
        "imbalance",
    ]);
    for (popularity, none, cached, bound_none, bound) in measured {
        let both = [("none", none, bound_none), (run.discipline, cached, bound)];
        for (discipline, point, bound) in both {
            let result = &point.result;
            let uneven = imbalance(&point.server_load);
            table.row([
                popularity.title(),
                discipline.into(),
                thousands(point.rate),
                thousands(*bound),
                format!("{:.2}", point.rate / bound),
                percent(result.hit_ratio()),
                micros(result.all.p50_us),
                micros(result.all.p99_us),
                format!("{uneven:.2}"),
            ]);
            report.rows.push(json!({
                "popularity": popularity.name(),
                "discipline": discipline,
                "rate": point.rate,
                "throughput": result.throughput(),
                "loss": result.loss(),
                "bound": bound,
                "of_bound": point.rate / bound,
                "hit_ratio": result.hit_ratio(),
                "hit": result.hit,
                "miss": result.miss,
                "p50_us": result.all.p50_us,
                "p99_us": result.all.p99_us,
                "imbalance": uneven,
                "wrong_values": result.wrong_values,
                "wrong_keys": result.wrong_keys,
                "behind_ms": result.behind_ms,
                "server_load": point.server_load,
                "steps": point.points.iter().map(|p| json!([p.rate, p.loss])).collect::<Vec<_>>(),
            }));
        }
        let name = popularity.name();
        report.summarize(format!("speedup_{name}"), cached.rate / none.rate);
        // The optimum of the speedup, and of the throughput with the cache.
        report.summarize(format!("bound_{name}"), bound / bound_none);
        report.summarize(format!("bound_rate_{name}"), *bound);
        report.summarize(format!("of_bound_{name}"), cached.rate / bound);
        if matches!(popularity, Popularity::Zipf(_)) {
            let (before, after) = (imbalance(&none.server_load), imbalance(&cached.server_load));
            report.summarize(format!("imbalance_{name}_before"), before);
            report.summarize(format!("imbalance_{name}_after"), after);
        }
    }
    let wrong: u64 = measured
        .iter()
        .map(|(_, n, c, ..)| n.result.wrong() + c.result.wrong())
        .sum();
    report.summarize("wrong_values", wrong as f64);
    report.text = table.render();
    let groups: Vec<String> = measured.iter().map(|(p, ..)| p.title()).collect();
    let bars = plot::GroupedBars {
        title: "Saturation throughput (loss below 2 %)",
        y: "requests per second",
        groups: &groups,
        series: &[
            ("none", measured.iter().map(|m| m.1.rate).collect()),
            (run.discipline, measured.iter().map(|m| m.2.rate).collect()),
        ],
        marks: Some((
            "bound with the hottest keys cached",
            measured.iter().map(|m| m.4).collect(),
        )),
    };
    report.plot(run.name, plot::grouped_bars(&bars));
}
