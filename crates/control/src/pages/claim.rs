//! How many of its guaranteed pages an owner claims: what it had a use for lately, and more when it
//! falls short.
//!
//! An owner that wakes up does not tell at once all that it will ask for: what a page more would
//! hold shows when the page is there, and items that nobody asked for show as needed again one by
//! one. So an owner with less than it needs claims twice what it has, and one whose need rises
//! claims twice as much again as it rose: from a page to its whole guarantee takes some steps, not
//! one per page. What it claimed it keeps for a while, so that pages do not go to and fro.

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
    /// An owner that has `own` pages wants `wanted`; returns how many it claims. What was needed
    /// counts for one to two times `hold`.
    pub fn update(&mut self, now: Duration, hold: Duration, wanted: u32, own: u32) -> u32 {
        let passed = now.saturating_sub(self.since);
        if passed >= hold {
            self.before = if passed >= 2 * hold { 0 } else { self.now };
            (self.now, self.since) = (0, now);
        }
        let rise = wanted.saturating_sub(self.before);
        let rising = wanted.saturating_add(2 * rise);
        let short = if wanted > own { own.saturating_mul(2) } else { 0 };
        self.now = self.now.max(rising).max(short);
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
            (0, 5, 5, 15),
            (1000, 5, 5, 15),
            (2000, 5, 5, 5),
            (2100, 6, 5, 10),
            // The step is not taken back before it could be filled.
            (2200, 6, 10, 10),
            (2300, 11, 10, 23),
            (2400, 40, 20, 110),
        ]);
    }

    #[test]
    fn an_owner_whose_need_rises_claims_twice_as_much_again() {
        claims(&[
            (0, 4, 16, 12),
            (1000, 4, 16, 12),
            (2000, 4, 16, 4),
            (2200, 9, 16, 19),
            (2400, 12, 16, 28),
            (3000, 13, 20, 28),
            (4000, 13, 20, 13),
        ]);
    }

    #[test]
    fn what_was_needed_is_claimed_for_a_while() {
        claims(&[
            (0, 20, 20, 60),
            (1000, 20, 20, 60),
            (2000, 20, 20, 20),
            (2900, 4, 20, 20),
            (3000, 4, 20, 20),
            (3900, 4, 20, 20),
            (4000, 4, 20, 4),
        ]);
        // After a long silence nothing of it counts.
        claims(&[(0, 20, 20, 60), (5000, 3, 20, 9)]);
    }
}
