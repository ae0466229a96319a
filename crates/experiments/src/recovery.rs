//! How long a rack takes to be itself again after popularity has changed.

use load::{Interval, PhaseResult};

/// One change and how the rack took it.
struct Recovery {
    /// Until 95 % of the steady throughput for good; the whole period if that was not reached.
    ms: f64,
    /// Answers per second before it.
    steady: f64,
    /// The least after it.
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

/// All changes of a phase together.
pub struct Recoveries {
    /// The mean of the steady throughputs before them, in answers per second.
    pub steady: f64,
    /// The least after any.
    pub lowest: f64,
    /// Milliseconds until the throughput was back, the shortest first.
    pub ms: Vec<f64>,
    /// Their median.
    pub p50: f64,
    /// Their 95th percentile.
    pub p95: f64,
}

impl Recoveries {
    /// Of a phase with a change every so many milliseconds.
    pub fn of(result: &PhaseResult, every_ms: f64) -> Recoveries {
        let all = recoveries(result, every_ms);
        let mut ms: Vec<f64> = all.iter().map(|r| r.ms).collect();
        ms.sort_unstable_by(f64::total_cmp);
        Recoveries {
            steady: all.iter().map(|r| r.steady).sum::<f64>() / all.len().max(1) as f64,
            lowest: all.iter().map(|r| r.lowest).fold(f64::INFINITY, f64::min),
            p50: quantile(&ms, 0.5),
            p95: quantile(&ms, 0.95),
            ms,
        }
    }
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
