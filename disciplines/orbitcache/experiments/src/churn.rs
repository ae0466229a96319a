//! What a rack behind OrbitCache answers while the hottest keys change, and how many requests for
//! cached items overflow to servers meanwhile (figure 18).

use experiments::{
    Measure, Report, Run,
    params::{exponent, positive},
    plot,
    recovery::{Criterion, Recoveries},
    servers::{Counts, Mix, Rack},
    table::{Table, percent, thousands},
};
use load::{
    ChurnSchedule, Phase, PhaseResult,
    workload::{Churn, ChurnKind, Popularity},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::system::{Bench, Caches, System, overflow_ratio};

/// Throughput and requests that overflow over time, while the hottest and the coldest keys change
/// places again and again (figure 18).
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThroughputUnderChurn {
    rack: Rack,
    #[serde(default)]
    caches: Caches,
    /// Zipf's exponent.
    theta: f64,
    /// Keys that change places at once.
    count: usize,
    /// Seconds between changes.
    every_s: f64,
    /// Number of changes.
    changes: usize,
    /// Offered rate as a part of what the servers carry behind the cache.
    load: f64,
    /// Part of the requests that write, so that staleness would show.
    write_ratio: f64,
    /// Load before the measured part in seconds: what is hot is learned meanwhile.
    warmup_s: f64,
    /// Length in seconds of the stretches over which requests that overflow are counted.
    stretch_s: f64,
}

impl Measure for ThroughputUnderChurn {
    const HAS_BACKEND: bool = true;

    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        self.caches.check(&self.rack)?;
        exponent(self.theta)?;
        positive!(self, every_s, load, stretch_s)
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut bench = Bench::new(run, &self.rack, &self.caches, System::Orbit)?;
        let popularity = Popularity::Zipf(self.theta);
        let rate = bench.bound(Mix::reads(popularity)) * self.load;
        let rate = rate.min(self.rack.max_rate);
        bench.preload(rate)?;
        run.progress.say(format!("{} changes", self.changes));
        let change = Churn { kind: ChurnKind::Swap, count: self.count, among: 0 };
        let every_s = self.every_s;
        let phase = Phase {
            write_ratio: self.write_ratio,
            writes: Some(Popularity::Uniform),
            churn: Some(ChurnSchedule { change, every_s }),
            ..Phase::reads(popularity, rate, self.warmup_s, every_s * (self.changes as f64 + 0.98))
        };
        let (result, stretches) = bench.servers.watching(&phase, self.stretch_s, |_| Ok(()))?;
        self.tell(report, run, rate, &result, &stretches);
        Ok(())
    }
}

impl ThroughputUnderChurn {
    fn tell(
        &self,
        report: &mut Report,
        run: &Run<'_>,
        rate: f64,
        result: &PhaseResult,
        stretches: &[Counts],
    ) {
        // Below what the rack can carry, everything can be answered.
        let watched = Criterion::answers(1.0);
        // There are too few changes for more than the median and the longest.
        let Recoveries { lowest, ms: times, p50, longest, .. } =
            Recoveries::of(result, self.every_s * 1000.0, &watched);
        let mut at = -self.warmup_s;
        let overflow: Vec<(f64, f64)> = stretches
            .iter()
            .map(|counted| {
                at += counted.seconds;
                (at, overflow_ratio(counted) * 100.0)
            })
            .filter(|(at, _)| *at > 0.0)
            .collect();
        let most = overflow.iter().map(|(_, part)| *part).fold(0.0, f64::max);
        let mut table = Table::new(&[
            "changes",
            "req/s",
            "lowest of optimum",
            "recovery p50",
            "longest recovery",
            "most overflow",
            "wrong",
        ]);
        table.row([
            times.len().to_string(),
            thousands(result.throughput()),
            percent(lowest),
            format!("{p50:.0} ms"),
            format!("{longest:.0} ms"),
            percent(most / 100.0),
            result.wrong().to_string(),
        ]);
        report.text = table.render();
        report.rows.push(json!({
            "rate": rate,
            "throughput": result.throughput(),
            "hit_ratio": result.hit_ratio(),
            "loss": result.loss(),
            "recovery_ms": times,
            "overflow_percent": overflow,
            "wrong_values": result.wrong(),
            "behind_ms": result.behind_ms,
            "changes_ms": result.changes_ms,
            "interval_ms": result.interval_ms,
            "intervals": result.intervals,
        }));
        report.summarize("recovery_ms_max", longest);
        report.summarize("recovery_ms_p50", p50);
        report.summarize("lowest_of_optimum", lowest);
        report.count("wrong_values", result.wrong());
        report.plot(
            run.name,
            plot::over_time(
                "Throughput while the hottest keys change (OrbitCache, fig. 18a)",
                result,
            ),
        );
        let title = "Requests for cached items that overflow (OrbitCache, fig. 18b)";
        let series = [("orbitcache".to_string(), overflow)];
        let svg = plot::lines(title, "seconds", "% of requests for cached items", &series);
        report.plot(format!("{}-overflow", run.name), svg);
    }
}
