//! A token bucket, and a rate over the last seconds.

use std::{collections::VecDeque, time::Duration};

/// Allows `per_s` units a second, and a tenth of a second's worth at once.
#[derive(Debug)]
pub struct Bucket {
    per_s: f64,
    tokens: f64,
    filled: Duration,
}

impl Bucket {
    /// Full.
    pub fn new(per_s: u32, now: Duration) -> Bucket {
        let per_s = f64::from(per_s.max(1));
        Bucket { per_s, tokens: (per_s / 10.0).max(1.0), filled: now }
    }

    /// How many whole units there are now.
    pub fn available(&mut self, now: Duration) -> usize {
        let passed = now.saturating_sub(self.filled).as_secs_f64();
        self.filled = now.max(self.filled);
        self.tokens = (self.tokens + passed * self.per_s).min((self.per_s / 10.0).max(1.0));
        self.tokens as usize
    }

    /// Takes units that are available.
    pub fn take(&mut self, count: usize) {
        self.tokens = (self.tokens - count as f64).max(0.0);
    }
}

/// A counter with its rate over the last five seconds.
#[derive(Debug, Default)]
pub struct Rate {
    total: u64,
    samples: VecDeque<(Duration, u64)>,
}

impl Rate {
    /// Counts.
    pub fn add(&mut self, count: u64) {
        self.total += count;
    }

    /// To be called now and then: remembers the total, once a second at most.
    pub fn tick(&mut self, now: Duration) {
        if self.samples.back().is_some_and(|(at, _)| now < *at + Duration::from_secs(1)) {
            return;
        }
        self.samples.push_back((now, self.total));
        if self.samples.len() > 6 {
            self.samples.pop_front();
        }
    }

    /// Per second.
    pub fn per_s(&self, now: Duration) -> f64 {
        let Some((at, total)) = self.samples.front() else { return 0.0 };
        let passed = now.saturating_sub(*at).as_secs_f64();
        if passed < 0.1 { 0.0 } else { (self.total - total) as f64 / passed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bucket_bounds_a_second() {
        let mut bucket = Bucket::new(1000, Duration::ZERO);
        let mut taken = 0;
        for ms in 0..1000 {
            let count = bucket.available(Duration::from_millis(ms));
            bucket.take(count);
            taken += count;
        }
        assert!((1000..=1100).contains(&taken), "{taken}");
    }

    #[test]
    fn the_rate_is_of_the_last_seconds() {
        let mut rate = Rate::default();
        for s in 0..20 {
            rate.tick(Duration::from_secs(s));
            rate.add(if s < 10 { 1000 } else { 10 });
        }
        assert!((rate.per_s(Duration::from_secs(20)) - 10.0).abs() < 1.0);
    }
}
