use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::exponent,
    plot,
    servers::{Rack, Search},
    table::{Table, percent, thousands},
};
use load::{Latency, PhaseResult, workload::Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::system::{Bench, Caches, Mix, System};

/// Latency over throughput, of all answers and by who gave them (figures 11 and 15). Times are
/// given as the rack would have them that is not slowed by `rack.factor`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyOverLoad {
    rack: Rack,
    /// Of the experiments on the same rack; nothing is searched for here.
    #[serde(default)]
    search: Search,
    #[serde(default)]
    caches: Caches,
    /// Zipf's exponent.
    theta: f64,
    /// Loads, as parts of what the servers carry behind OrbitCache. A system that loses more than
    /// the rack allows is measured no further.
    loads: Vec<f64>,
    /// The load at which OrbitCache and NetCache are compared, as a part of what the servers carry
    /// behind NetCache.
    equal_load: f64,
    /// Requests measured per load.
    requests: f64,
    /// Load before each measured part in seconds.
    warmup_s: f64,
}

/// One load of one system.
struct Point {
    system: System,
    is_equal_load: bool,
    result: PhaseResult,
}

impl Measure for LatencyOverLoad {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.search.check()?;
        self.caches.check(&self.rack)?;
        exponent(self.theta)?;
        for part in self.loads.iter().chain([&self.equal_load]) {
            ensure!(
                *part > 0.0 && *part < 2.0,
                "loads, equal_load: {part} is not within 0 to 2"
            );
        }
        Ok(())
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mix = Mix::reads(Popularity::Zipf(self.theta));
        let mut benches = vec![];
        for system in System::ALL {
            let mut bench = Bench::new(run, &self.rack, &self.caches, system)?;
            bench.preload(bench.bound(mix))?;
            benches.push((system, bench));
        }
        let bound_of = |wanted: System| {
            let bench = benches.iter().find(|(system, _)| *system == wanted);
            bench.map_or(0.0, |(_, bench)| bench.bound(mix))
        };
        let (most, equal) = (
            bound_of(System::Orbit),
            bound_of(System::Limited) * self.equal_load,
        );
        let mut points: Vec<Point> = vec![];
        for (system, bench) in &mut benches {
            let mut loads: Vec<(f64, bool)> =
                self.loads.iter().map(|l| (l * most, false)).collect();
            if *system != System::None {
                loads.push((equal, true));
            }
            loads.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (rate, is_equal_load) in loads {
                let at = thousands(rate);
                run.progress.say(format!("{}: {at}/s", system.name()));
                let phase = mix.phase(rate, self.warmup_s, self.requests / rate);
                let result = bench.servers.phase(&phase)?;
                let is_over = result.loss() > self.rack.loss;
                points.push(Point {
                    system: *system,
                    is_equal_load,
                    result,
                });
                if is_over && rate > equal {
                    break;
                }
            }
        }
        self.tell(report, run, &points);
        Ok(())
    }
}

impl LatencyOverLoad {
    /// Microseconds of the rack that is not slowed.
    fn us(&self, us: f64) -> f64 {
        us / self.rack.factor
    }

    fn tell(&self, report: &mut Report, run: &Run<'_>, points: &[Point]) {
        let mut table = Table::new(&[
            "system",
            "req/s",
            "lost",
            "hits",
            "p50 us",
            "p99 us",
            "switch p50",
            "switch p99",
            "servers p50",
            "servers p99",
        ]);
        let us = |us: f64| format!("{:.1}", self.us(us));
        for Point {
            system,
            result,
            is_equal_load,
        } in points
        {
            let Latency { p50_us, p99_us, .. } = result.all;
            table.row([
                system.name().into(),
                thousands(result.throughput()),
                percent(result.loss()),
                percent(result.hit_ratio()),
                us(p50_us),
                us(p99_us),
                us(result.hit.p50_us),
                us(result.hit.p99_us),
                us(result.miss.p50_us),
                us(result.miss.p99_us),
            ]);
            report.rows.push(json!({
                "system": system.name(),
                "is_equal_load": is_equal_load,
                "offered": result.sent_rate(),
                "throughput": result.throughput(),
                "loss": result.loss(),
                "hit_ratio": result.hit_ratio(),
                "times_divided_by": self.rack.factor,
                "all": result.all,
                "hit": result.hit,
                "miss": result.miss,
                "wrong_values": result.wrong(),
            }));
        }
        let equal = |wanted: System| {
            let mut of = points.iter().filter(|p| p.is_equal_load);
            of.find(|p| p.system == wanted).map(|p| &p.result)
        };
        if let (Some(limited), Some(orbit)) = (equal(System::Limited), equal(System::Orbit)) {
            let over = |of: fn(&PhaseResult) -> f64| of(orbit) / of(limited).max(1e-9);
            // Whoever loses the slowest would have the best latency.
            report.summarize("loss_at_equal_load_max", orbit.loss().max(limited.loss()));
            report.summarize("p99_over_netcache_limited", over(|r| r.all.p99_us));
            report.summarize("p50_over_netcache_limited", over(|r| r.all.p50_us));
            report.summarize("switch_p50_us_orbitcache", self.us(orbit.hit.p50_us));
            report.summarize(
                "switch_p50_us_netcache_limited",
                self.us(limited.hit.p50_us),
            );
            report.summarize("switch_p99_us_orbitcache", self.us(orbit.hit.p99_us));
        }
        report.count(
            "wrong_values",
            points.iter().map(|p| p.result.wrong()).sum(),
        );
        report.text = table.render();
        self.plots(report, run, points);
    }

    fn plots(&self, report: &mut Report, run: &Run<'_>, points: &[Point]) {
        type Of = fn(&PhaseResult) -> f64;
        let line = |name: &str, system: System, of: Of| {
            let points = points
                .iter()
                .filter(|p| p.system == system && p.result.answered > 0);
            let at = |p: &Point| {
                (
                    p.result.throughput() * self.rack.factor / 1e6,
                    self.us(of(&p.result)),
                )
            };
            (name.to_string(), points.map(at).collect::<Vec<_>>())
        };
        let whole: [(&str, &str, Of); 2] = [
            ("median", "p50", |r| r.all.p50_us),
            ("99th percentile", "p99", |r| r.all.p99_us),
        ];
        let parts: [(&str, &str, [Of; 2]); 2] = [
            ("median", "p50", [|r| r.hit.p50_us, |r| r.miss.p50_us]),
            (
                "99th percentile",
                "p99",
                [|r| r.hit.p99_us, |r| r.miss.p99_us],
            ),
        ];
        let x = "million requests per second";
        for (title, name, of) in whole {
            let all: Vec<_> = System::ALL.iter().map(|s| line(s.name(), *s, of)).collect();
            let title = format!("Latency, {title} (OrbitCache, fig. 11)");
            let svg = plot::lines(&title, x, "microseconds", &all);
            report.plot(format!("{}-{name}", run.name), svg);
        }
        for (title, name, [hit, miss]) in parts {
            let mut all = vec![];
            for system in [System::Limited, System::Orbit] {
                all.push(line(&format!("{} (switch)", system.name()), system, hit));
                all.push(line(&format!("{} (servers)", system.name()), system, miss));
            }
            let title = format!("Latency by who answers, {title} (OrbitCache, fig. 15)");
            let svg = plot::lines(&title, x, "microseconds", &all);
            report.plot(format!("{}-breakdown-{name}", run.name), svg);
        }
    }
}
