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
        self.fails_unless_served(report, "without the cache", [&none.result, &none_same]);
        self.fails_unless_served(report, "with the cache", [&cached.result, &cached_same]);
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

    /// A run in which servers had something to answer, and did not, says nothing.
    fn fails_unless_served(&self, report: &mut Report, what: &str, at: [&PhaseResult; 2]) {
        // Where the switch has every key, there is nothing for them.
        let has_misses = self.rack.items < self.rack.keys;
        for (load, result) in ["highest", "same"].into_iter().zip(at) {
            if has_misses && !servers_answered(result) {
                report.fails(format!(
                    "{what}, at the {load} load, no server answered in time: hit ratio and load say nothing of a rack"
                ));
            }
        }
    }
}

/// Whether anything was answered by a server.
fn servers_answered(result: &PhaseResult) -> bool {
    result.answered > result.cached
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
                match servers_answered(result) {
                    true => percent(result.hit_ratio()),
                    // Of the switch's answers alone: it is no part of anything.
                    false => "-".into(),
                },
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
    text + &closing(params, backend, none, cached)
}

/// What it comes to, as far as it was measured.
fn closing(params: &Rack, backend: Backend, none: &Saturation, cached: &Saturation) -> String {
    if !servers_answered(&none.result) || !servers_answered(&cached.result) {
        return "\nNo server answered in time, without the cache or with it: this run does not say what they carry.\n".into();
    }
    let kind = match backend {
        Backend::Embedded => "emulated servers".to_string(),
        other => format!("{} servers", other.name()),
    };
    let carry = format!(
        "\nWith {} of {} keys answered in the switch, the same {} {kind} of {} requests a second carry {:.1} times the load",
        thousands(params.items as f64),
        thousands(params.keys as f64),
        params.servers,
        thousands(params.server_rate),
        cached.rate / none.rate,
    );
    let (before, after) = (imbalance(&none.server_load), imbalance(&cached.server_load));
    let is_measured = none.is_confirmed && cached.is_confirmed && after > 0.0;
    match is_measured && after < before && cached.rate > none.rate {
        true => format!(
            "{carry}: what is left for them is balanced, so none is the one that all wait for.\n"
        ),
        false if is_measured => format!("{carry}.\n"),
        false => format!(
            "{carry}. That is uncertain: no load that was tried could be carried twice in a row.\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::servers::Counts;

    /// A rack of two servers that carried this, and how their load was shared.
    fn carried(rate: f64, cached: u64, server_load: [f64; 2], is_confirmed: bool) -> Saturation {
        let answered = 1000;
        let result = PhaseResult { seconds: 1.0, answered, cached, ..PhaseResult::default() };
        Saturation {
            rate,
            is_confirmed,
            result,
            server_load: server_load.into(),
            counted: Counts::default(),
            points: vec![],
        }
    }

    #[test]
    fn it_ends_with_what_was_measured_and_no_more() {
        let rack: Rack = toml::from_str("keys = 100\nitems = 10\nlearn_s = 1.0").unwrap();
        let none = carried(100.0, 0, [90.0, 10.0], true);
        let said = |cached| closing(&rack, Backend::Embedded, &none, &cached);
        // (with the cache, what is said, whether that the load is balanced)
        for (cached, part, is_balanced) in [
            (carried(500.0, 600, [52.0, 48.0], true), "5.0 times the load: ", true),
            (carried(500.0, 600, [95.0, 5.0], true), "5.0 times the load.", false),
            (carried(500.0, 600, [52.0, 48.0], false), "uncertain", false),
            (carried(500.0, 1000, [0.0, 0.0], false), "No server answered", false),
        ] {
            let said = said(cached);
            assert!(said.contains(part), "{said}");
            assert_eq!(said.contains("is balanced"), is_balanced, "{said}");
        }
    }

    #[test]
    fn the_switchs_answers_alone_are_no_hit_ratio() {
        let rack: Rack = toml::from_str("keys = 100\nitems = 10\nlearn_s = 1.0").unwrap();
        let none = carried(100.0, 0, [90.0, 10.0], true);
        let alone = carried(500.0, 1000, [0.0, 0.0], false);
        let points = [(&none, &none.result), (&alone, &alone.result)];
        let said = tell(&rack, Backend::Embedded, points);
        assert!(!said.contains("100.0 %"), "{said}");
    }
}
