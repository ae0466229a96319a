//! When to send again: a round-trip estimator (RFC 6298) and exponential backoff with jitter.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use crate::Options;

/// Smoothed round-trip time and its deviation, both in microseconds, as two halves of one word:
/// a measurement that is lost to a race does no harm.
pub(crate) struct RoundTrip {
    word: AtomicU64,
    initial: Duration,
    min: Duration,
    max: Duration,
}

impl RoundTrip {
    pub fn new(options: &Options) -> RoundTrip {
        let Options { initial_timeout, min_timeout, max_timeout, .. } = *options;
        let initial = initial_timeout.clamp(min_timeout, max_timeout);
        RoundTrip { word: AtomicU64::new(0), initial, min: min_timeout, max: max_timeout }
    }

    /// Takes the time of one exchange that needed no retransmission (else it would be ambiguous
    /// which datagram was answered).
    pub fn measured(&self, time: Duration) {
        let sample = u32::try_from(time.as_micros()).unwrap_or(u32::MAX).max(1);
        let (smoothed, deviation) = match self.read() {
            (0, _) => (sample, sample / 2),
            (smoothed, deviation) => (
                smoothed - smoothed / 8 + sample / 8,
                deviation - deviation / 4 + smoothed.abs_diff(sample) / 4,
            ),
        };
        self.word.store(u64::from(smoothed.max(1)) << 32 | u64::from(deviation), Relaxed);
    }

    /// How long to wait for an answer before the first retransmission.
    pub fn timeout(&self) -> Duration {
        match self.read() {
            (0, _) => self.initial,
            (smoothed, deviation) => {
                let micros = u64::from(smoothed) + 4 * u64::from(deviation);
                Duration::from_micros(micros).clamp(self.min, self.max)
            }
        }
    }

    fn read(&self) -> (u32, u32) {
        let word = self.word.load(Relaxed);
        ((word >> 32) as u32, word as u32)
    }
}

/// Waits that double up to a limit, each shortened or lengthened by up to a quarter.
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Waits that begin with `first` and are `max` at most, before they are shortened or
    /// lengthened.
    pub fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { next: first.min(max), max }
    }

    /// The next wait; `random` is uniform in 0..1.
    pub fn next(&mut self, random: f64) -> Duration {
        let wait = self.next.mul_f64(0.75 + random / 2.0);
        self.next = (self.next * 2).min(self.max);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn waits_double_up_to_the_limit_and_spread_by_a_quarter() {
        let mut middle = Backoff::new(20 * MS, 100 * MS);
        let waits: Vec<_> = (0..5).map(|_| middle.next(0.5)).collect();
        assert_eq!(waits, [20 * MS, 40 * MS, 80 * MS, 100 * MS, 100 * MS]);
        assert_eq!(Backoff::new(20 * MS, 100 * MS).next(0.0), 15 * MS);
        assert_eq!(Backoff::new(200 * MS, 100 * MS).next(1.0), 125 * MS);
    }

    #[test]
    fn the_timeout_follows_the_round_trip_within_its_limits() {
        let trip = RoundTrip::new(&Options::default());
        assert_eq!(trip.timeout(), 20 * MS);
        trip.measured(10 * MS);
        assert_eq!(trip.timeout(), 30 * MS);
        (0..100).for_each(|_| trip.measured(10 * MS));
        assert!(trip.timeout() < 12 * MS, "{:?}", trip.timeout());
        (0..100).for_each(|_| trip.measured(MS / 50));
        assert_eq!(trip.timeout(), 5 * MS);
        (0..100).for_each(|_| trip.measured(Duration::from_secs(10_000)));
        assert_eq!(trip.timeout(), 500 * MS);
    }
}
