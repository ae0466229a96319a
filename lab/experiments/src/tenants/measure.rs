//! What experiments about tenants measure in the same way.

use lab::progress::Progress;
use load::{Interval, Phase, PhaseResult, workload::Popularity};

use crate::rig::{Load, Rig, TenantSpec};

/// Length of one look at the cache while it fills, in seconds.
const LOOK_S: f64 = 1.0;

/// How a cache filled.
pub struct ReadinessProbe {
    /// Seconds until everything was cached, if it was.
    pub after_s: Option<f64>,
    /// Per tenant, the part of its keys that is cached at last.
    pub shares: Vec<f64>,
    /// Counts over time.
    pub intervals: Vec<Interval>,
    /// Length of an interval.
    pub interval_ms: u64,
    /// What was seen while it filled.
    pub phases: Vec<PhaseResult>,
}

impl ReadinessProbe {
    /// The smallest share.
    pub fn share(&self) -> f64 {
        self.shares.iter().copied().fold(1.0, f64::min)
    }
}

/// As [`super::Stage::settle`].
pub(super) fn settle(
    rig: &Rig,
    load: &mut Load,
    tenants: &[TenantSpec],
    keys: usize,
    phase: &Phase,
    deadline_s: f64,
    progress: &Progress,
) -> anyhow::Result<ReadinessProbe> {
    let begun = rig.now();
    let mut settled = ReadinessProbe {
        after_s: None,
        shares: vec![],
        intervals: vec![],
        interval_ms: 100,
        phases: vec![],
    };
    loop {
        let look = Phase { seconds: LOOK_S, warmup_s: 0.0, ..phase.clone() };
        let result = load.run(&look)?;
        settled.interval_ms = result.interval_ms;
        settled.intervals.extend(&result.intervals);
        let seconds = (rig.now() - begun).as_secs_f64();
        let items = rig.items()?;
        settled.shares =
            tenants.iter().map(|t| *items.get(&t.id).unwrap_or(&0) as f64 / keys as f64).collect();
        progress.say(format!(
            "{}, {} users: {:.1} % cached, {:.1} % hits",
            phase.reads.title(),
            tenants.len(),
            settled.share() * 100.0,
            result.hit_ratio() * 100.0
        ));
        settled.phases.push(result);
        if settled.share() >= 1.0 {
            settled.after_s = Some(seconds);
            return Ok(settled);
        }
        if seconds >= deadline_s {
            return Ok(settled);
        }
    }
}

/// The middle of the values; of an even number, the mean of the two in the middle. NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Answers per second over time, in steps of half a second: (second, rate).
pub fn rates(intervals: &[Interval], interval_ms: u64) -> Vec<(f64, f64)> {
    let per_step = (500 / interval_ms.max(1)).max(1) as usize;
    let step_s = per_step as f64 * interval_ms as f64 / 1000.0;
    let steps = intervals.chunks_exact(per_step).zip(1..);
    steps
        .map(|(step, number)| {
            let answered: u32 = step.iter().map(|i| i.answered).sum();
            (f64::from(number) * step_s, f64::from(answered) / step_s)
        })
        .collect()
}

/// The distribution of rates: (rate, part of the time in which it was not higher).
pub fn distribution(rates: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<f64> = rates.iter().map(|(_, rate)| *rate).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let ranked = sorted.into_iter().zip(1..);
    ranked.map(|(rate, i)| (rate, f64::from(i) / count)).collect()
}

/// The name of a distribution in the summary.
pub fn named(what: &str, popularity: Popularity) -> String {
    format!("{what}_{}", popularity.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_by_hand() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn rates_are_per_second() {
        let answered = |answered| Interval { answered, ..Interval::default() };
        let mut intervals = vec![answered(10); 5];
        intervals.extend(vec![answered(20); 5]);
        assert_eq!(rates(&intervals, 100), [(0.5, 100.0), (1.0, 200.0)]);
        assert_eq!(distribution(&rates(&intervals, 100)), [(100.0, 0.5), (200.0, 1.0)]);
        assert!(rates(&[], 0).is_empty());
    }

    #[test]
    fn summaries_are_named_as_the_distributions_are() {
        assert_eq!(named("cached_share", Popularity::Zipf(0.9)), "cached_share_zipf_0.90");
        assert_eq!(named("cached_share", Popularity::Uniform), "cached_share_uniform");
    }
}
