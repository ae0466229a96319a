use load::{Phase, model::imbalance, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    Backend, Measure, Options, Report, Run,
    params::exponent,
    plot,
    servers::{Rack, Saturation, Search, Servers},
    table::{Table, bars, micros, percent, thousands},
};

/// Real servers of the demonstration with another backend, and what each may take: two CPUs carry no more.
const REAL_SERVERS: u32 = 4;
const REAL_RATE: f64 = 4000.0;

/// Parameters of the same load on the same rack, without and with the cache.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demo {
    rack: Rack,
    search: Search,
    /// Zipf's exponent.
    theta: f64,
}

impl Measure for Demo {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        exponent(self.theta)
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let backend = run.options.backend;
        let mut this = self.clone();
        if backend != Backend::Embedded {
            this.rack.servers = REAL_SERVERS;
            this.rack.server_rate = REAL_RATE;
            this.rack.queue_limit = 256;
            report.params = serde_json::to_value(&this)?;
        }
        this.compare(run, backend, report)
    }
}

impl Demo {
    fn compare(&self, run: &Run<'_>, backend: Backend, report: &mut Report) -> anyhow::Result<()> {
        let Demo { rack, search, .. } = self;
        let mut servers = Servers::new(run, rack, backend)?;
        let popularity = Popularity::Zipf(self.theta);
        let phase = |rate, warmup, seconds| Phase::reads(popularity, rate, warmup, seconds);
        let expected = servers.bound(&servers.shares(popularity, 0.0, popularity, 0));
        let none = servers.saturate(expected, "without the cache", search, phase)?;
        servers.cache_on()?;
        let bound = servers.bound(&servers.shares(popularity, 0.0, popularity, rack.items));
        servers.learn(popularity, bound * 1.05)?;
        let cached = servers.saturate(bound, "with the cache", search, phase)?;
        report.text = tell(rack, backend, &none, &cached);
        for (name, point) in [("none", &none), (run.discipline, &cached)] {
            report.rows.push(json!({
                "discipline": name,
                "rate": point.rate,
                "throughput": point.result.throughput(),
                "hit_ratio": point.result.hit_ratio(),
                "p50_us": point.result.all.p50_us,
                "p99_us": point.result.all.p99_us,
                "imbalance": imbalance(&point.server_load),
                "server_load": point.server_load,
                "wrong_values": point.result.wrong_values,
            }));
        }
        report.summarize("speedup", cached.rate / none.rate);
        report.summarize("of_bound", cached.rate / bound);
        report.summarize("hit_ratio", cached.result.hit_ratio());
        report.summarize(
            "wrong_values",
            (none.result.wrong() + cached.result.wrong()) as f64,
        );
        let servers: Vec<String> = (1..=rack.servers).map(|i| i.to_string()).collect();
        let panels = [
            (
                format!("without the cache: {}/s", thousands(none.rate)),
                per_second(&none),
            ),
            (
                format!("with the cache: {}/s", thousands(cached.rate)),
                per_second(&cached),
            ),
        ];
        let title = format!(
            "Load per server, {} requests, {} backend",
            popularity.title(),
            backend.name()
        );
        let svg = plot::server_load(&title, &servers, &panels, rack.server_rate);
        report.plot(format!("demo-{}", backend.name()), svg);
        Ok(())
    }
}

fn per_second(point: &Saturation) -> Vec<f64> {
    // The servers' counts include the warm-up; shape and total are those of the measured part.
    let total: f64 = point.server_load.iter().sum();
    let stores = (point.result.answered - point.result.cached) as f64 / point.result.seconds;
    point
        .server_load
        .iter()
        .map(|load| load / total.max(1.0) * stores)
        .collect()
}

fn tell(params: &Rack, backend: Backend, none: &Saturation, cached: &Saturation) -> String {
    let mut table = Table::new(&["", "requests/s", "hit ratio", "p50", "p99", "imbalance"]);
    for (name, point) in [("without the cache", none), ("with the cache", cached)] {
        let result = &point.result;
        table.row([
            name.into(),
            thousands(point.rate),
            percent(result.hit_ratio()),
            micros(result.all.p50_us),
            micros(result.all.p99_us),
            format!("{:.2}", imbalance(&point.server_load)),
        ]);
    }
    let mut text = table.render();
    for (name, point) in [("without the cache", none), ("with the cache", cached)] {
        let load = per_second(point);
        text += &format!(
            "\nload per server {name} (full height: {}/s)\n",
            params.server_rate
        );
        let stretched: Vec<f64> = match load.len() {
            n if n < 32 => load.iter().flat_map(|l| [*l, *l, *l, f64::NAN]).collect(),
            _ => load,
        };
        for line in bars(&stretched, params.server_rate, 128, 4) {
            text += &format!("  {line}\n");
        }
    }
    let kind = match backend {
        Backend::Embedded => "emulated servers".to_string(),
        other => format!("{} servers", other.name()),
    };
    text += &format!(
        "\nWith {} of {} keys answered in the switch, the same {} {kind} carry {:.1} times the load: \
         what is left for them is balanced, so none is the one that all wait for.\n",
        thousands(params.items as f64),
        thousands(params.keys as f64),
        params.servers,
        cached.rate / none.rate,
    );
    text
}
