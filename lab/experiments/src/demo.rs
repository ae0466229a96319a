//! The demonstration, of the kind `demo`: the same load on the same rack, without and with the
//! cache, told to a newcomer. `shortstop-lab run demo` runs it, on emulated servers or, told of
//! another backend, on real ones.

use load::{Phase, PhaseResult, model::imbalance, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;
use text::table::{Table, bars, micros, percent, thousands};

use crate::{
    Backend, Measure, Report, Run,
    params::exponent,
    plot,
    servers::{Rack, Saturation, Search, Servers},
};

/// Real servers of the demonstration with another backend, and what each may take: two CPUs carry
/// no more.
const REAL_SERVERS: u32 = 4;
const REAL_RATE: f64 = 4000.0;
/// The load at which latencies are compared, as a part of what the rack carries without a cache,
/// and for how long in seconds.
const COMMON_LOAD: f64 = 0.8;
const COMMON_S: f64 = 1.5;

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
    const HAS_BACKEND: bool = true;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        exponent(self.theta)
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
        // Near what it can just carry, a queue waits somewhere on either side: how long says
        // nothing about the other. So at one rate, that both carry.
        let common = none.rate * COMMON_LOAD;
        let same = phase(common, search.warmup_s, COMMON_S);
        let none_same = servers.phase(&same)?;
        servers.cache_on()?;
        let bound = servers.bound(&servers.shares(popularity, 0.0, popularity, rack.items));
        servers.learn(popularity, bound * 1.05)?;
        let cached = servers.saturate(bound, "with the cache", search, phase)?;
        let cached_same = servers.phase(&same)?;
        report.text = tell(rack, backend, [(&none, &none_same), (&cached, &cached_same)]);
        for (name, point, same) in
            [("none", &none, &none_same), (run.discipline, &cached, &cached_same)]
        {
            report.rows.push(json!({
                "discipline": name,
                "rate": point.rate,
                "is_confirmed": point.is_confirmed,
                "hit_ratio": point.result.hit_ratio(),
                "p50_us_at_highest": point.result.all.p50_us,
                "p99_us_at_highest": point.result.all.p99_us,
                "same_rate": common,
                "p50_us": same.all.p50_us,
                "p99_us": same.all.p99_us,
                "imbalance": imbalance(&point.server_load),
                "server_load": point.server_load,
                "wrong_values": point.result.wrong_values,
            }));
        }
        report.summarize("requests_per_s_none", none.rate);
        report.summarize("requests_per_s", cached.rate);
        report.summarize("speedup", cached.rate / none.rate);
        report.summarize("of_bound", cached.rate / bound);
        report.summarize("hit_ratio", cached.result.hit_ratio());
        let p99 = cached_same.all.p99_us / none_same.all.p99_us;
        report.summarize("p99_at_same_rate_over_none", p99);
        let all = [&none.result, &none_same, &cached.result, &cached_same];
        let wrong: u64 = all.iter().map(|result| result.wrong()).sum();
        report.summarize("wrong_values", wrong as f64);
        let servers: Vec<String> = (1..=rack.servers).map(|i| i.to_string()).collect();
        let panels = [
            (format!("without the cache: {}/s", thousands(none.rate)), per_second(&none)),
            (format!("with the cache: {}/s", thousands(cached.rate)), per_second(&cached)),
        ];
        let title = format!(
            "Load per server of {}/s, {} requests, {} backend",
            thousands(rack.server_rate),
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
    point.server_load.iter().map(|load| load / total.max(1.0) * stores).collect()
}

fn tell(
    params: &Rack,
    backend: Backend,
    [(none, none_same), (cached, cached_same)]: [(&Saturation, &PhaseResult); 2],
) -> String {
    let mut table = Table::new(&["", "requests/s", "hit ratio", "p50", "p99", "imbalance"]);
    for (name, point, same) in
        [("without the cache", none, none_same), ("with the cache", cached, cached_same)]
    {
        let highest = (format!("{name}, highest load"), point.rate, &point.result);
        let common = (format!("{name}, same load"), same.throughput(), same);
        for (at, (name, rate, result)) in [common, highest].into_iter().enumerate() {
            table.row([
                name,
                thousands(rate),
                percent(result.hit_ratio()),
                micros(result.all.p50_us),
                micros(result.all.p99_us),
                match at {
                    0 => "-".into(),
                    _ => format!("{:.2}", imbalance(&point.server_load)),
                },
            ]);
        }
    }
    let mut text = table.render();
    for (name, point) in [("without the cache", none), ("with the cache", cached)] {
        let load = per_second(point);
        text += &format!("\nload per server {name} (full height: {}/s)\n", params.server_rate);
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
        "\nWith {} of {} keys answered in the switch, the same {} {kind} of {} requests a second carry {:.1} times the load: \
         what is left for them is balanced, so none is the one that all wait for.\n",
        thousands(params.items as f64),
        thousands(params.keys as f64),
        params.servers,
        thousands(params.server_rate),
        cached.rate / none.rate,
    );
    text
}
