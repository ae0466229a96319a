use experiments::{
    Measure, Options, Report, Run,
    params::{self, exponent, positive},
    plot,
    recovery::Recoveries,
    servers::{Rack, Servers},
    table::{Table, percent, thousands},
};
use load::{
    ChurnSchedule, Phase,
    workload::{Churn, ChurnKind, Popularity},
};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Throughput over time while popularity changes every few seconds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Churning {
    rack: Rack,
    /// Zipf's exponent.
    theta: f64,
    /// Load before each measured part in seconds.
    warmup_s: f64,
    /// The kinds of change measured, in this order.
    churn: Vec<ChurnKind>,
    /// Keys that change at once.
    churn_count: usize,
    /// Among how many of the hottest the random ones are chosen.
    churn_among: usize,
    /// Seconds between changes.
    churn_every_s: f64,
    /// Number of changes per kind.
    churn_changes: usize,
    /// Offered rate as a part of the bound.
    churn_load: f64,
    /// Part of the requests that write, so that staleness would show.
    churn_write_ratio: f64,
}

impl Measure for Churning {
    fn check(&self) -> anyhow::Result<()> {
        self.rack.check()?;
        exponent(self.theta)?;
        params::ratio("churn_write_ratio", self.churn_write_ratio)?;
        positive([
            ("churn_every_s", self.churn_every_s),
            ("churn_load", self.churn_load),
        ])
    }

    fn needs(&self, options: &Options) -> Option<&'static str> {
        options.backend.needs()
    }

    fn run(&self, run: &Run<'_>, report: &mut Report) -> anyhow::Result<()> {
        let mut servers = Servers::new(run, &self.rack, run.options.backend)?;
        let popularity = Popularity::Zipf(self.theta);
        let shares = servers.shares(popularity, 0.0, popularity, self.rack.items);
        let rate = (servers.bound(&shares) * self.churn_load).min(self.rack.max_rate);
        servers.cache_on()?;
        servers.learn(popularity, rate)?;
        let mut table = Table::new(&[
            "change",
            "changes",
            "req/s",
            "steady",
            "lowest",
            "recovery p50",
            "recovery p95",
            "wrong",
        ]);
        let mut series = vec![];
        let mut wrong = 0;
        for kind in &self.churn {
            run.progress
                .say(format!("{}: {} changes", kind.name(), self.churn_changes));
            let change = Churn {
                kind: *kind,
                count: self.churn_count,
                among: self.churn_among,
            };
            let every_s = self.churn_every_s;
            let phase = Phase {
                write_ratio: self.churn_write_ratio,
                writes: Some(Popularity::Uniform),
                churn: Some(ChurnSchedule { change, every_s }),
                ..Phase::reads(
                    popularity,
                    rate,
                    self.warmup_s,
                    every_s * (self.churn_changes as f64 + 0.98),
                )
            };
            let result = servers.phase(&phase)?;
            wrong += result.wrong();
            let Recoveries {
                steady,
                lowest,
                ms: times,
                p50,
                p95,
            } = Recoveries::of(&result, every_s * 1000.0);
            let name = kind.name();
            table.row([
                name.into(),
                times.len().to_string(),
                thousands(result.throughput()),
                thousands(steady),
                percent(lowest / steady.max(1.0)),
                format!("{p50:.0} ms"),
                format!("{p95:.0} ms"),
                result.wrong().to_string(),
            ]);
            report.rows.push(json!({
                "change": name,
                "rate": rate,
                "throughput": result.throughput(),
                "hit_ratio": result.hit_ratio(),
                "loss": result.loss(),
                "steady": steady,
                "recovery_ms": times,
                "wrong_values": result.wrong_values,
                "wrong_keys": result.wrong_keys,
                "behind_ms": result.behind_ms,
                "changes_ms": result.changes_ms,
                "interval_ms": result.interval_ms,
                "intervals": result.intervals,
            }));
            let suffix = match kind {
                ChurnKind::HotIn => String::new(),
                other => format!("_{}", other.name().replace('-', "_")),
            };
            report.summarize(format!("recovery_ms_p95{suffix}"), p95);
            report.summarize(format!("recovery_ms_p50{suffix}"), p50);
            series.push((name, result));
        }
        report.summarize("wrong_values", wrong as f64);
        report.text = table.render();
        for (name, result) in &series {
            let svg = plot::over_time(&format!("Throughput under {name} churn"), result);
            report.plot(format!("{}-{name}", run.name), svg);
        }
        Ok(())
    }
}
