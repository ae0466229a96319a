use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Counts of one interval. Requests count in the interval they were sent in, whenever the answer came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// Requests sent.
    pub sent: u32,
    /// Of these, answered in time.
    pub answered: u32,
    /// Of these, answered by a switch.
    pub cached: u32,
    /// Of these, lost.
    pub lost: u32,
}

/// A distribution of latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many answers.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Largest.
    pub max_us: f64,
}

impl Latency {
    /// From a histogram of nanoseconds.
    pub fn of(histogram: &Histogram<u64>) -> Latency {
        let at = |q| histogram.value_at_quantile(q) as f64 / 1e3;
        if histogram.is_empty() {
            return Latency::default();
        }
        Latency {
            count: histogram.len(),
            mean_us: histogram.mean() / 1e3,
            p50_us: at(0.5),
            p90_us: at(0.9),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: histogram.max() as f64 / 1e3,
        }
    }
}

/// What one phase measured. Counts are of requests sent in its measured part; only what must never
/// happen (wrong keys, wrong values) is counted in the warm-up, too.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseResult {
    /// Length of the measured part.
    pub seconds: f64,
    /// Requests sent.
    pub sent: u64,
    /// Answered in time.
    pub answered: u64,
    /// Of these, by a switch.
    pub cached: u64,
    /// Not answered in time, or refused.
    pub lost: u64,
    /// Of these, answered with "try again" or another refusal.
    pub refused: u64,
    /// Answers that came too late, or a second time.
    pub late: u64,
    /// Of the lost, requests that the local socket did not take.
    pub unsent: u64,
    /// Answers that came in during the measured part, to whatever request: fewer than sent and not lost
    /// means that requests pile up in queues.
    pub returned: u64,
    /// Writes among the requests sent.
    pub writes_sent: u64,
    /// Writes among the answered.
    pub writes_answered: u64,
    /// Answers that say there is no such key.
    pub not_found: u64,
    /// Answers with another key than asked for.
    pub wrong_keys: u64,
    /// Answers with a value that nobody wrote, a torn one, or one older than what was known to be
    /// written before the request was sent.
    pub wrong_values: u64,
    /// Packets that are no answer to anything sent.
    pub strays: u64,
    /// How far sending fell behind its schedule at worst: more than a few ms means that the generator, not
    /// what it measures, is the limit.
    pub behind_ms: f64,
    /// All answers.
    pub all: Latency,
    /// Reads answered by a switch.
    pub hit: Latency,
    /// Reads answered by a store.
    pub miss: Latency,
    /// Writes.
    pub write: Latency,
    /// Length of an interval.
    pub interval_ms: u64,
    /// Counts over time, from the start of the measured part.
    pub intervals: Vec<Interval>,
    /// When popularity changed, from the start of the measured part.
    pub changes_ms: Vec<f64>,
}

impl PhaseResult {
    /// Requests sent per second.
    pub fn sent_rate(&self) -> f64 {
        self.sent as f64 / self.seconds
    }

    /// Answers per second.
    pub fn throughput(&self) -> f64 {
        self.answered as f64 / self.seconds
    }

    /// Part of the requests that was lost.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / (self.sent as f64).max(1.0)
    }

    /// Part of the requests that was lost or only fills queues: what would be lost if this went on for long.
    pub fn lasting_loss(&self) -> f64 {
        let missing = 1.0 - self.returned as f64 / (self.sent as f64).max(1.0);
        self.loss().max(missing)
    }

    /// Part of the answered reads that a switch answered.
    pub fn hit_ratio(&self) -> f64 {
        let reads = self.answered.saturating_sub(self.writes_answered);
        self.cached as f64 / (reads as f64).max(1.0)
    }

    /// Wrong keys and wrong values.
    pub fn wrong(&self) -> u64 {
        self.wrong_keys + self.wrong_values
    }
}

/// Histograms of a phase in nanoseconds.
pub(super) struct Histograms {
    pub all: Histogram<u64>,
    pub hit: Histogram<u64>,
    pub miss: Histogram<u64>,
    pub write: Histogram<u64>,
}

impl Histograms {
    pub fn new() -> Histograms {
        let new =
            || Histogram::new_with_bounds(1_000, 10_000_000_000, 3).expect("bounds are in order");
        Histograms {
            all: new(),
            hit: new(),
            miss: new(),
            write: new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_ratios_by_hand() {
        let result = PhaseResult {
            seconds: 2.0,
            sent: 1000,
            answered: 900,
            cached: 400,
            lost: 100,
            returned: 850,
            writes_answered: 100,
            ..PhaseResult::default()
        };
        assert_eq!(result.sent_rate(), 500.0);
        assert_eq!(result.throughput(), 450.0);
        assert_eq!(result.loss(), 0.1);
        assert!((result.lasting_loss() - 0.15).abs() < 1e-9);
        assert_eq!(result.hit_ratio(), 0.5);
        let nothing = PhaseResult {
            seconds: 1.0,
            ..PhaseResult::default()
        };
        assert_eq!((nothing.loss(), nothing.hit_ratio()), (0.0, 0.0));
    }

    #[test]
    fn latency_reads_the_histogram() {
        let mut histograms = Histograms::new();
        (1..=1000u64).for_each(|i| histograms.all.record(i * 10_000).unwrap());
        let latency = Latency::of(&histograms.all);
        assert_eq!(latency.count, 1000);
        assert!((latency.p50_us / 5_000.0 - 1.0).abs() < 0.01);
        assert!((latency.p99_us / 9_900.0 - 1.0).abs() < 0.01);
        assert_eq!(Latency::of(&histograms.hit), Latency::default());
    }
}
