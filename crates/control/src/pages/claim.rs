//! How many of its guaranteed pages an owner claims: what it had a use for lately, and more when it falls short.
//!
//! An owner that wakes up does not tell at once all that it will ask for: what a page more would hold shows when the
//! page is there. So an owner with less than it needs claims twice what it has; from a page to its whole guarantee
//! takes some steps, not one per page. What it claimed it keeps for a while, so that pages do not go to and fro.

use std::time::Duration;

/// The claim of one tenant on one switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The most that was needed in the period under way, and in the one before.
    now: u32,
    before: u32,
    /// When the period under way began.
    since: Duration,
}

impl Claim {
    /// An owner that has `own` pages wants `wanted`; returns how many it claims. What was needed counts for one to two
    /// times `hold`.
    pub fn update(&mut self, now: Duration, hold: Duration, wanted: u32, own: u32) -> u32 {
        let passed = now.saturating_sub(self.since);
        if passed >= hold {
            self.before = if passed >= 2 * hold { 0 } else { self.now };
            (self.now, self.since) = (0, now);
        }
        let short = wanted > own;
        let needed = if short {
            wanted.max(own.saturating_mul(2))
        } else {
            wanted
        };
        self.now = self.now.max(needed);
        self.now.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Duration = Duration::from_secs(1);

    /// (milliseconds, wanted, own, claimed) in turn.
    fn claims(steps: &[(u64, u32, u32, u32)]) {
        let mut claim = Claim::default();
        for &(ms, wanted, own, expected) in steps {
            let claimed = claim.update(Duration::from_millis(ms), HOLD, wanted, own);
            assert_eq!(claimed, expected, "at {ms} ms");
        }
    }

    #[test]
    fn an_owner_that_falls_short_gets_on_in_doubling_steps() {
        claims(&[
            (0, 4, 5, 4),
            (100, 6, 5, 10),
            // The step is not taken back before it could be filled.
            (200, 6, 10, 10),
            (300, 11, 10, 20),
            (400, 40, 20, 40),
        ]);
    }

    #[test]
    fn what_was_needed_is_claimed_for_a_while() {
        claims(&[
            (0, 20, 20, 20),
            (900, 4, 20, 20),
            (1000, 4, 20, 20),
            (1900, 4, 20, 20),
            (2000, 4, 20, 4),
        ]);
        // After a long silence nothing of it counts.
        claims(&[(0, 20, 20, 20), (5000, 3, 20, 3)]);
    }
}
