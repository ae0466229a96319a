use anyhow::ensure;
use experiments::{
    Measure, Options, Report, Run,
    params::{exponent, positive},
    plot,
    servers::{Rack, Servers},
    table::{Table, percent, thousands},
};
use load::{
    ChurnSchedule, Interval, Phase, PhaseResult,
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
        let ratio = self.churn_write_ratio;
        ensure!(
            (0.0..=1.0).contains(&ratio),
            "churn_write_ratio: {ratio} is not within 0 to 1"
        );
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
            let recoveries = recoveries(&result, every_s * 1000.0);
            let steady =
                recoveries.iter().map(|r| r.steady).sum::<f64>() / recoveries.len().max(1) as f64;
            let lowest = recoveries
                .iter()
                .map(|r| r.lowest)
                .fold(f64::INFINITY, f64::min);
            let mut times: Vec<f64> = recoveries.iter().map(|r| r.ms).collect();
            times.sort_unstable_by(f64::total_cmp);
            let (p50, p95) = (quantile(&times, 0.5), quantile(&times, 0.95));
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

/// One change and how the rack took it.
struct Recovery {
    /// Until 95 % of the steady throughput for good; the whole period if that was not reached.
    ms: f64,
    steady: f64,
    lowest: f64,
}

/// The time from each change until answers come at 95 % of the rate before it for good: until the end of
/// the last two intervals in a row, before the next change, in which they did not. Throughput is the
/// share of an interval's requests that were answered, times the offered rate: at a steady
/// offer, arrivals alone make intervals of 50 ms differ by some percent.
fn recoveries(result: &PhaseResult, every_ms: f64) -> Vec<Recovery> {
    let step = result.interval_ms as f64;
    let seconds = result.intervals.len() as f64 * step / 1000.0;
    let sent: f64 = result.intervals.iter().map(|i| f64::from(i.sent)).sum();
    let offered = sent / seconds.max(f64::MIN_POSITIVE);
    let share = |i: &Interval| f64::from(i.answered) / f64::from(i.sent.max(1));
    let rates: Vec<f64> = result
        .intervals
        .iter()
        .map(|i| share(i) * offered)
        .collect();
    // The last interval is cut short by the end of the phase.
    let end = rates.len().saturating_sub(1);
    let index = |ms: f64| ((ms / step) as usize).min(end);
    let mut all = vec![];
    for change in &result.changes_ms {
        // Steady: the second half of the time before the change.
        let before = &rates[index((change - every_ms / 2.0).max(0.0))..index(*change)];
        let first = index(*change);
        let after = &rates[first..index(change + every_ms)];
        if before.is_empty() || after.len() < 4 {
            continue;
        }
        let steady = before.iter().sum::<f64>() / before.len() as f64;
        let bad = |pair: &[f64]| (pair[0] + pair[1]) / 2.0 < 0.95 * steady;
        let last_bad = after.windows(2).rposition(bad);
        let ms = last_bad.map_or(0.0, |at| ((first + at + 2) as f64) * step - change);
        let lowest = after.iter().copied().fold(f64::INFINITY, f64::min);
        all.push(Recovery { ms, steady, lowest });
    }
    all
}

/// The smallest value that at least a part `q` of the sorted values does not exceed.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_is_the_time_below_95_percent() {
        let mut counts = [100u32; 40];
        // Changes at 1000 ms and 3000 ms of 100 ms intervals; the first dips for four intervals.
        counts[10..14].copy_from_slice(&[40, 60, 80, 90]);
        let result = PhaseResult {
            interval_ms: 100,
            intervals: counts
                .iter()
                .map(|c| Interval {
                    sent: 100,
                    answered: *c,
                    ..Interval::default()
                })
                .collect(),
            changes_ms: vec![1000.0, 3000.0],
            ..PhaseResult::default()
        };
        let all = recoveries(&result, 1000.0);
        assert_eq!(all.len(), 2);
        assert_eq!(
            (all[0].ms, all[0].lowest, all[0].steady),
            (400.0, 400.0, 1000.0)
        );
        assert_eq!(all[1].ms, 0.0);
    }

    #[test]
    fn quantiles_by_hand() {
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.5), 2.0);
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0], 0.95), 4.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
