//! How many keys would be worth caching if there were room for them.
//!
//! Two sources. At a window's end the keys are counted whose evidence says that they are asked for about twice per window,
//! and those that were requested lately and had to go only because there was less room. Between, each key that was reported and found no room counts at once, so that a tenant that wakes up is noticed with
//! its first batch of reports. Of a long tail of rare keys, some are reported twice in any window by chance: as many as
//! usually prove to be no more than that are taken off.

/// Of the keys that proved rare, how much the latest window changes the expectation.
const TAIL_GAIN: f64 = 0.25;

/// The keys of a tenant that one switch would cache besides those that it caches.
#[derive(Debug, Default)]
pub struct Demand {
    /// Keys with enough evidence, at the latest window's end.
    evident: usize,
    /// Keys that found no room in this window, and in the one before.
    unmet: usize,
    unmet_before: usize,
    /// Keys per window that find no room and turn out to be rare.
    tail: f64,
    /// Keys of those above that have been cached since.
    filled: usize,
}

impl Demand {
    /// A key found no room, for the first time in this window.
    pub fn unmet(&mut self) {
        self.unmet += 1;
    }

    /// A key that was counted is cached now.
    pub fn filled(&mut self) {
        self.filled += 1;
    }

    /// A window ended after which `evident` keys have evidence.
    pub fn window_end(&mut self, evident: usize) {
        let rare = self.unmet.saturating_sub(evident + self.filled) as f64;
        self.tail += TAIL_GAIN * (rare - self.tail);
        self.evident = evident;
        self.unmet_before = self.unmet.saturating_sub(self.filled);
        (self.unmet, self.filled) = (0, 0);
    }

    /// How many keys.
    pub fn keys(&self) -> usize {
        let unmet = self.unmet.max(self.unmet_before) as f64 - self.tail;
        self.evident
            .max(unmet.max(0.0) as usize)
            .saturating_sub(self.filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(demand: &mut Demand, unmet: usize, evident: usize) {
        (0..unmet).for_each(|_| demand.unmet());
        demand.window_end(evident);
    }

    #[test]
    fn a_tenant_that_wakes_up_counts_at_once_and_falls_when_it_is_served() {
        let mut demand = Demand::default();
        (0..300).for_each(|_| demand.unmet());
        assert_eq!(demand.keys(), 300);
        demand.window_end(280);
        assert!((280..=300).contains(&demand.keys()));
        (0..280).for_each(|_| demand.filled());
        assert!(demand.keys() <= 20);
        demand.window_end(0);
        window(&mut demand, 0, 0);
        assert_eq!(demand.keys(), 0);
    }

    #[test]
    fn the_usual_tail_is_no_demand() {
        let mut demand = Demand::default();
        for _ in 0..30 {
            window(&mut demand, 1000, 50);
        }
        assert!(demand.keys() <= 60, "{}", demand.keys());
    }
}
