//! How many keys would be worth caching if there were room for them.
//!
//! Two sources. At a window's end the keys are counted whose evidence says that they are asked for
//! about twice per window, and those that were requested lately and had to go only because there
//! was less room. Between, each key that was reported and found no room counts at once, so that a
//! tenant that wakes up is noticed with its first batch of reports.
//!
//! Of a long tail of rare keys, some are reported twice in any window by chance. Whether room for
//! them is of use shows when they get it: of those that got it lately, some part was requested
//! again soon, and as many count of the next. So idle memory serves a tail that comes back, and not
//! one that does not.

/// How much the keys that proved useful or useless in one window change the expectation, if they
/// are many.
const USE_GAIN: f64 = 0.25;
/// From this number on keys are many.
const MANY: f64 = 64.0;
/// How much of its distrust is forgotten in a window in which no key proved anything: it is tried
/// again.
const FORGIVEN: f64 = 0.01;

/// The keys of a tenant that one switch has no room for, and would cache if it had.
#[derive(Debug)]
pub struct Shortage {
    /// Keys with enough evidence, at the latest window's end.
    evident: usize,
    /// Keys that found no room in this window, and in the one before.
    unmet: usize,
    unmet_before: usize,
    /// The part of the keys that found no room and got it later that was requested soon after.
    useful: f64,
    /// Keys of those above that have been cached since.
    filled: usize,
}

impl Default for Shortage {
    fn default() -> Shortage {
        Shortage { evident: 0, unmet: 0, unmet_before: 0, useful: 1.0, filled: 0 }
    }
}

impl Shortage {
    /// A key found no room, for the first time in this window.
    pub fn unmet(&mut self) {
        self.unmet += 1;
    }

    /// A key that was counted is cached now.
    pub fn filled(&mut self) {
        self.filled += 1;
    }

    /// Keys that were counted have got room: `useful` of them were requested since, and `useless`
    /// were not for a long time.
    pub fn proved(&mut self, useful: usize, useless: usize) {
        let all = (useful + useless) as f64;
        if all == 0.0 {
            self.useful += FORGIVEN * (1.0 - self.useful);
            return;
        }
        let gain = USE_GAIN * (all / MANY).min(1.0);
        self.useful += gain * (useful as f64 / all - self.useful);
    }

    /// A window ended after which `evident` keys have evidence.
    pub fn window_end(&mut self, evident: usize) {
        self.evident = evident;
        self.unmet_before = self.unmet.saturating_sub(self.filled);
        (self.unmet, self.filled) = (0, 0);
    }

    /// The number of keys.
    pub fn keys(&self) -> usize {
        let unmet = self.unmet.max(self.unmet_before) as f64 * self.useful;
        self.evident.max(unmet as usize).saturating_sub(self.filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(shortage: &mut Shortage, unmet: usize, evident: usize) {
        (0..unmet).for_each(|_| shortage.unmet());
        shortage.window_end(evident);
    }

    #[test]
    fn a_tenant_that_wakes_up_counts_at_once_and_falls_when_it_is_served() {
        let mut shortage = Shortage::default();
        (0..300).for_each(|_| shortage.unmet());
        assert_eq!(shortage.keys(), 300);
        shortage.window_end(280);
        assert!((280..=300).contains(&shortage.keys()));
        (0..280).for_each(|_| shortage.filled());
        assert!(shortage.keys() <= 20);
        shortage.window_end(0);
        window(&mut shortage, 0, 0);
        assert_eq!(shortage.keys(), 0);
    }

    #[test]
    fn a_tail_that_does_not_come_back_is_no_shortage_until_it_does() {
        let mut shortage = Shortage::default();
        for _ in 0..30 {
            shortage.proved(0, 100);
            window(&mut shortage, 1000, 50);
        }
        assert_eq!(shortage.keys(), 50);
        // A few keys do not tell much.
        shortage.proved(1, 0);
        assert_eq!(shortage.keys(), 50);
        for _ in 0..30 {
            shortage.proved(90, 10);
            window(&mut shortage, 1000, 50);
        }
        assert!((850..=900).contains(&shortage.keys()), "{}", shortage.keys());
    }

    #[test]
    fn it_is_tried_again() {
        let mut shortage = Shortage::default();
        (0..30).for_each(|_| shortage.proved(0, 100));
        for _ in 0..100 {
            shortage.proved(0, 0);
            window(&mut shortage, 1000, 0);
        }
        assert!((500..=700).contains(&shortage.keys()), "{}", shortage.keys());
    }
}
