//! What a generator tells of a phase, as JSON: experiments make their tables and plots of it. Which
//! answer counts how is decided by the source.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Deserializer, Serialize};

/// Counts of one interval. Requests count in the interval they were sent in, whenever the
/// answer came.
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
    /// Requests sent for keys that the phase watches.
    pub watched: u32,
    /// Of these, answered in time.
    pub watched_answered: u32,
}

/// A distribution of latencies in microseconds. In an open loop a request waits from its scheduled
/// arrival on, also where it was sent later: a generator that was held up hides nobody's wait.
///
/// Where nobody was answered, times are no numbers, and nothing in JSON: 0 would be the best one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Latency {
    /// How many answers.
    pub count: u64,
    /// Mean.
    #[serde(deserialize_with = "number_or_none")]
    pub mean_us: f64,
    /// Median.
    #[serde(deserialize_with = "number_or_none")]
    pub p50_us: f64,
    /// 90th percentile.
    #[serde(deserialize_with = "number_or_none")]
    pub p90_us: f64,
    /// 99th percentile.
    #[serde(deserialize_with = "number_or_none")]
    pub p99_us: f64,
    /// 99.9th percentile.
    #[serde(deserialize_with = "number_or_none")]
    pub p999_us: f64,
    /// Largest.
    #[serde(deserialize_with = "number_or_none")]
    pub max_us: f64,
}

/// A number that JSON has nothing for is none.
fn number_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Default for Latency {
    /// Of nobody.
    fn default() -> Latency {
        let none = f64::NAN;
        Latency {
            count: 0,
            mean_us: none,
            p50_us: none,
            p90_us: none,
            p99_us: none,
            p999_us: none,
            max_us: none,
        }
    }
}

impl PartialEq for Latency {
    /// What is no number in both is the same in both.
    fn eq(&self, other: &Latency) -> bool {
        let bits = |of: &Latency| {
            let Latency { count, mean_us, p50_us, p90_us, p99_us, p999_us, max_us } = *of;
            let times = [mean_us, p50_us, p90_us, p99_us, p999_us, max_us];
            (count, times.map(|us| (!us.is_nan()).then(|| us.to_bits())))
        };
        bits(self) == bits(other)
    }
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

/// Times in microseconds within which parts of all requests were answered: a lost one ranks behind
/// every answer, as if it had waited for ever. None: so many were lost that this part never was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waits {
    /// Half of them.
    pub p50_us: Option<f64>,
    /// 99 of 100.
    pub p99_us: Option<f64>,
    /// 999 of 1000.
    pub p999_us: Option<f64>,
}

impl Waits {
    /// Of the answered, a histogram of nanoseconds, and so many lost ones beside.
    pub fn of(answered: &Histogram<u64>, lost: u64) -> Waits {
        let count = answered.len() as f64;
        let at = |part: f64| {
            let of_answered = part * (count + lost as f64) / count;
            let is_answered = of_answered < 1.0 && !answered.is_empty();
            is_answered.then(|| answered.value_at_quantile(of_answered) as f64 / 1e3)
        };
        Waits { p50_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999) }
    }
}

/// What reads and writes took in nanoseconds, to three digits, each with how many took so long:
/// what several generators counted can be put together, which quantiles cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Reads that were answered.
    pub reads: Vec<(u64, u64)>,
    /// Writes that were answered.
    pub writes: Vec<(u64, u64)>,
}

impl Times {
    /// As histograms of nanoseconds have them.
    pub fn of(reads: &Histogram<u64>, writes: &Histogram<u64>) -> Times {
        let counted = |histogram: &Histogram<u64>| {
            let all = histogram.iter_recorded();
            all.map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
        };
        Times { reads: counted(reads), writes: counted(writes) }
    }

    /// The histogram of what several counted.
    pub fn together<'r>(all: impl Iterator<Item = &'r Vec<(u64, u64)>>) -> Histogram<u64> {
        let mut histogram = histogram(3);
        for (took_ns, count) in all.flatten() {
            histogram.saturating_record_n(*took_ns, *count);
        }
        histogram
    }
}

/// What one tenant got.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TenantResult {
    /// Its number.
    pub tenant: u32,
    /// Requests sent.
    pub sent: u64,
    /// Answered in time.
    pub answered: u64,
    /// Of these, by a switch.
    pub cached: u64,
    /// Not answered in time, or refused.
    pub lost: u64,
    /// Answers with a wrong key or value, whoever's it was.
    pub wrong: u64,
    /// Of these, another tenant's values.
    pub foreign: u64,
    /// All answers, to two digits.
    pub all: Latency,
}

/// What one switch answered, or (switch 0) the stores.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServedBy {
    /// The switch's id; 0: a store.
    pub switch: u16,
    /// Its answers to reads.
    pub reads: Latency,
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
    /// Of these, reads: a switch may answer writes, too.
    pub reads_cached: u64,
    /// Not answered in time, refused, or told that there is no such key.
    pub lost: u64,
    /// Of these, answered with "try again" or another refusal.
    pub refused: u64,
    /// Requests sent again.
    pub again: u64,
    /// The lost ones of each store's keys, by its place in the cluster's list.
    pub lost_of_store: Vec<u64>,
    /// Answers that came too late, or a second time.
    pub late: u64,
    /// Of the lost, requests that the local socket did not take.
    pub unsent: u64,
    /// Answers that came in during the measured part, to whatever request: fewer than sent and not
    /// lost means that requests pile up in queues.
    pub returned: u64,
    /// Writes among the requests sent.
    pub writes_sent: u64,
    /// Writes among the answered.
    pub writes_answered: u64,
    /// Answers that say there is no such key, of keys that are all there.
    pub not_found: u64,
    /// Answers with another key than asked for.
    pub wrong_keys: u64,
    /// Answers with a value that nobody wrote, a torn one, or one older than what was known to be
    /// written before the request was sent.
    pub wrong_values: u64,
    /// Of these, values that are another tenant's.
    pub foreign_values: u64,
    /// Forged requests that were answered as if they were genuine.
    pub forged_accepted: u64,
    /// Packets of each kind of attack.
    pub attacks: BTreeMap<String, u64>,
    /// Packets that are no answer to anything sent.
    pub strays: u64,
    /// How far sending fell behind its schedule at worst: more than a few ms means that the
    /// generator, not what it measures, is the limit.
    pub behind_ms: f64,
    /// All answers.
    pub all: Latency,
    /// Reads answered by a switch.
    pub hit: Latency,
    /// Reads answered by a store.
    pub miss: Latency,
    /// Reads, whoever answered.
    pub read: Latency,
    /// Writes.
    pub write: Latency,
    /// All requests, the lost ones too.
    pub waits: Waits,
    /// Reads, likewise.
    pub read_waits: Waits,
    /// Writes, likewise.
    pub write_waits: Waits,
    /// What the same reads and writes took.
    pub times: Times,
    /// Length of an interval.
    pub interval_ms: u64,
    /// Counts over time, from the start of the measured part.
    pub intervals: Vec<Interval>,
    /// When popularity changed, from the start of the measured part.
    pub changes_ms: Vec<f64>,
    /// By tenant, in the configuration's order, as far as they were active.
    pub tenants: Vec<TenantResult>,
    /// Reads by who answered, stores first, then switches in ascending order.
    pub served_by: Vec<ServedBy>,
    /// The distribution of the times of all answers: (microseconds, part of the answers that took
    /// no longer).
    pub cdf: Vec<(f64, f64)>,
}

impl PhaseResult {
    /// What several generators that asked at the same time saw together; of what only one of them
    /// can say (tenants, intervals, who answered) nothing.
    #[must_use]
    pub fn of_all(all: &[PhaseResult]) -> PhaseResult {
        let sum = |of: fn(&PhaseResult) -> u64| all.iter().map(of).sum::<u64>();
        let reads = Times::together(all.iter().map(|one| &one.times.reads));
        let writes = Times::together(all.iter().map(|one| &one.times.writes));
        let mut result = PhaseResult {
            seconds: all.first().map_or(0.0, |one| one.seconds),
            sent: sum(|one| one.sent),
            answered: sum(|one| one.answered),
            cached: sum(|one| one.cached),
            reads_cached: sum(|one| one.reads_cached),
            lost: sum(|one| one.lost),
            refused: sum(|one| one.refused),
            returned: sum(|one| one.returned),
            writes_sent: sum(|one| one.writes_sent),
            writes_answered: sum(|one| one.writes_answered),
            wrong_keys: sum(|one| one.wrong_keys),
            wrong_values: sum(|one| one.wrong_values),
            behind_ms: all.iter().map(|one| one.behind_ms).fold(0.0, f64::max),
            ..PhaseResult::default()
        };
        result.time(&reads, &writes);
        result
    }

    /// Notes what reads and writes took, the lost ones beside.
    pub(super) fn time(&mut self, reads: &Histogram<u64>, writes: &Histogram<u64>) {
        let writes_lost = self.writes_sent.saturating_sub(self.writes_answered);
        let reads_lost = self.lost.saturating_sub(writes_lost);
        self.read = Latency::of(reads);
        self.write = Latency::of(writes);
        self.read_waits = Waits::of(reads, reads_lost);
        self.write_waits = Waits::of(writes, writes_lost);
        self.times = Times::of(reads, writes);
        let both = Times::together([&self.times.reads, &self.times.writes].into_iter());
        self.all = Latency::of(&both);
        self.waits = Waits::of(&both, self.lost);
    }

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

    /// Part of the requests that was lost or only fills queues: what would be lost if this went on
    /// for long.
    pub fn lasting_loss(&self) -> f64 {
        let missing = 1.0 - self.returned as f64 / (self.sent as f64).max(1.0);
        self.loss().max(missing)
    }

    /// Part of the answered reads that a switch answered.
    pub fn hit_ratio(&self) -> f64 {
        let reads = self.answered.saturating_sub(self.writes_answered);
        self.reads_cached as f64 / (reads as f64).max(1.0)
    }

    /// Part of the answered reads that this switch (0: a store) answered.
    pub fn share_of(&self, switch: u16) -> f64 {
        let all: u64 = self.served_by.iter().map(|s| s.reads.count).sum();
        let by = self.served_by.iter().find(|s| s.switch == switch);
        by.map_or(0, |s| s.reads.count) as f64 / (all as f64).max(1.0)
    }

    /// The counts over time in intervals of `ms`, or of the length they have if that is longer.
    #[must_use]
    pub fn intervals_of(&self, ms: u64) -> (u64, Vec<Interval>) {
        let together = (ms / self.interval_ms.max(1)).max(1);
        let sum = |all: &[Interval]| {
            let add = |sum: Interval, one: &Interval| Interval {
                sent: sum.sent + one.sent,
                answered: sum.answered + one.answered,
                cached: sum.cached + one.cached,
                lost: sum.lost + one.lost,
                watched: sum.watched + one.watched,
                watched_answered: sum.watched_answered + one.watched_answered,
            };
            all.iter().fold(Interval::default(), add)
        };
        let chunks = self.intervals.chunks(together as usize);
        (together * self.interval_ms, chunks.map(sum).collect())
    }

    /// Part of the requests for watched keys that was answered, of those sent in the first so many
    /// milliseconds; none: nobody asked for any.
    pub fn watched_answered(&self, within_ms: u64) -> Option<f64> {
        let whole = within_ms / self.interval_ms.max(1);
        let first = self.intervals.iter().take(whole as usize);
        let (sent, answered) = first.fold((0, 0), |(sent, answered), one| {
            (sent + u64::from(one.watched), answered + u64::from(one.watched_answered))
        });
        (sent > 0).then(|| answered as f64 / sent as f64)
    }

    /// Wrong keys and wrong values.
    pub fn wrong(&self) -> u64 {
        self.wrong_keys + self.wrong_values
    }
}

/// Points of a distribution that are kept.
const CDF_POINTS: u32 = 200;

/// The distribution of a histogram of nanoseconds, in even steps of its share.
pub(super) fn cdf(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    if histogram.is_empty() {
        return vec![];
    }
    let share = |i| f64::from(i) / f64::from(CDF_POINTS);
    let at = |q| histogram.value_at_quantile(q) as f64 / 1e3;
    (0..=CDF_POINTS).map(|i| (at(share(i)), share(i))).collect()
}

/// A histogram of nanoseconds from a microsecond to ten seconds, to so many digits.
pub fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, 10_000_000_000, digits).expect("bounds are in order")
}

/// Histograms of a phase in nanoseconds.
pub(super) struct Histograms {
    pub all: Histogram<u64>,
    pub hit: Histogram<u64>,
    pub miss: Histogram<u64>,
    pub read: Histogram<u64>,
    pub write: Histogram<u64>,
    /// One per tenant.
    pub tenants: Vec<Histogram<u64>>,
    /// Reads by who answered; there are few, so they are searched one by one.
    served_by: Vec<(u16, Histogram<u64>)>,
}

/// Most switches that are told apart; answers of further ones count as the last one's.
const MAX_SWITCHES: usize = 64;

impl Histograms {
    pub fn new(tenants: usize) -> Histograms {
        Histograms {
            all: histogram(3),
            hit: histogram(3),
            miss: histogram(3),
            read: histogram(3),
            write: histogram(3),
            // Coarse: those of many tenants would push what is measured out of the CPU's caches.
            tenants: vec![histogram(2); tenants],
            served_by: vec![],
        }
    }

    /// Takes note of a read that a switch (0: a store) answered.
    pub fn served(&mut self, switch: u16, latency_ns: u64) {
        let found = self.served_by.iter().position(|(id, _)| *id == switch);
        let at = found.unwrap_or_else(|| {
            if self.served_by.len() < MAX_SWITCHES {
                self.served_by.push((switch, histogram(3)));
            }
            self.served_by.len() - 1
        });
        self.served_by[at].1.saturating_record(latency_ns);
    }

    pub fn served_by(&self) -> Vec<ServedBy> {
        let mut all: Vec<ServedBy> = self
            .served_by
            .iter()
            .map(|(switch, histogram)| ServedBy { switch: *switch, reads: Latency::of(histogram) })
            .collect();
        all.sort_by_key(|by| by.switch);
        all
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
            cached: 480,
            reads_cached: 400,
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
        let nothing = PhaseResult { seconds: 1.0, ..PhaseResult::default() };
        assert_eq!((nothing.loss(), nothing.hit_ratio()), (0.0, 0.0));
    }

    #[test]
    fn latency_reads_the_histogram() {
        let mut histograms = Histograms::new(0);
        (1..=1000u64).for_each(|i| histograms.all.record(i * 10_000).unwrap());
        let latency = Latency::of(&histograms.all);
        assert_eq!(latency.count, 1000);
        assert!((latency.p50_us / 5_000.0 - 1.0).abs() < 0.01);
        assert!((latency.p99_us / 9_900.0 - 1.0).abs() < 0.01);
        assert_eq!(Latency::of(&histograms.hit), Latency::default());
    }

    #[test]
    fn the_latency_of_nobody_is_none_and_stays_so_on_its_way() {
        let nobody = Latency::of(&histogram(3));
        assert!(nobody.p50_us.is_nan() && nobody.max_us.is_nan(), "{nobody:?}");
        let text = serde_json::to_string(&nobody).unwrap();
        assert!(text.contains("\"p50_us\":null"), "{text}");
        assert_eq!(serde_json::from_str::<Latency>(&text).unwrap(), nobody);
    }

    #[test]
    fn quantiles_of_several_generators_are_of_all_their_times() {
        let of = |reads: &[u64]| {
            let mut histogram = histogram(3);
            reads.iter().for_each(|us| histogram.record(us * 1000).unwrap());
            let mut one = PhaseResult { sent: 100, answered: 100, ..PhaseResult::default() };
            one.time(&histogram, &Histogram::new(3).unwrap());
            one
        };
        let together =
            PhaseResult::of_all(&[of(&[100; 100]), of(&[[100; 50], [990; 50]].concat())]);
        assert_eq!((together.sent, together.read.count), (200, 200));
        // The mean of theirs would be 545.
        assert!((together.read.p99_us / 990.0 - 1.0).abs() < 0.01, "{:?}", together.read);
        assert!((together.waits.p50_us.unwrap() / 100.0 - 1.0).abs() < 0.01);
    }

    #[test]
    fn a_lost_request_waits_longer_than_any_that_was_answered() {
        let mut answered = histogram(3);
        (1..=1000u64).for_each(|i| answered.record(i * 10_000).unwrap());
        let near = |us: Option<f64>, expected: f64| (us.unwrap() / expected - 1.0).abs() < 0.01;
        let none = Waits::of(&answered, 0);
        assert!(near(none.p50_us, 5_000.0) && near(none.p999_us, 9_990.0), "{none:?}");
        // Two of 1,002 are more than one in a thousand.
        let few = Waits::of(&answered, 2);
        assert!(near(few.p99_us, 9_920.0) && few.p999_us.is_none(), "{few:?}");
        let many = Waits::of(&answered, 11);
        assert!(near(many.p50_us, 5_055.0), "{many:?}");
        assert_eq!((many.p99_us, many.p999_us), (None, None));
        assert_eq!(Waits::of(&histogram(3), 3), Waits::default());
    }

    #[test]
    fn reads_are_told_apart_by_who_answered() {
        let mut histograms = Histograms::new(1);
        (0..30).for_each(|_| histograms.served(2, 5_000));
        (0..10).for_each(|_| histograms.served(0, 50_000));
        let result = PhaseResult { served_by: histograms.served_by(), ..PhaseResult::default() };
        let switches: Vec<u16> = result.served_by.iter().map(|s| s.switch).collect();
        assert_eq!(switches, [0, 2]);
        assert_eq!((result.share_of(2), result.share_of(0)), (0.75, 0.25));
        assert_eq!(result.share_of(9), 0.0);
    }

    #[test]
    fn a_distribution_rises_to_one() {
        let mut histograms = Histograms::new(0);
        assert!(cdf(&histograms.all).is_empty());
        (1..=1000u64).for_each(|i| histograms.all.record(i * 10_000).unwrap());
        let points = cdf(&histograms.all);
        assert!(points.windows(2).all(|p| p[0].0 <= p[1].0 && p[0].1 < p[1].1));
        assert_eq!(points.last().unwrap().1, 1.0);
    }
}
