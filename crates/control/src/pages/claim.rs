//! How many of its guaranteed pages an owner claims: what it had a use for lately, and more when it
//! falls short.
//!
//! An owner that wakes up does not tell at once all that it will ask for: what a page more would
//! hold shows when the page is there, and items that nobody asked for show as needed again one by
//! one. So an owner with less than it needs claims twice what it has, and one whose need rises
//! claims twice as much again as it rose: from a page to its whole guarantee takes some steps, not
//! one per page. What it claimed it keeps for a while, so that pages do not go to and fro.
//!
//! What others want may come and go, and each page that an owner lends costs it the items there. So
//! pages that it had lent and that came back it claims for longer, if it could use them: longer
//! each time.

use std::time::Duration;

/// Pages that came back are claimed for so many times `hold`; for twice as long when that was just
/// over, so often at most.
const CAME_BACK_HOLDS: u32 = 8;
const DOUBLED_MOST: u32 = 4;

/// The claim of one tenant on one switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The most that was needed in the period under way, and in the one before.
    now: u32,
    before: u32,
    /// When the period under way began.
    since: Duration,
    /// What it had at last.
    own: u32,
    /// It has lent pages, and none came back yet.
    has_lent: bool,
    came_back: CameBack,
}

/// Pages that an owner had lent, and has again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CameBack {
    /// With them it has so many.
    own: u32,
    /// Until when they are claimed, and for how long they were then.
    until: Duration,
    long: Duration,
    /// How often that was doubled.
    doubled: u32,
}

impl CameBack {
    fn begin(&mut self, now: Duration, hold: Duration, own: u32) {
        let again = !self.long.is_zero() && now < self.until + self.long;
        self.doubled = if again { (self.doubled + 1).min(DOUBLED_MOST) } else { 0 };
        self.long = hold * (CAME_BACK_HOLDS << self.doubled);
        (self.own, self.until) = (own, now + self.long);
    }
}

impl Claim {
    /// An owner that has `own` pages wants `wanted` and could use `could_use`; returns how many it
    /// claims. What was needed counts for one to two times `hold`.
    pub fn update(
        &mut self,
        now: Duration,
        hold: Duration,
        wanted: u32,
        could_use: u32,
        own: u32,
    ) -> u32 {
        let passed = now.saturating_sub(self.since);
        if passed >= hold {
            self.before = if passed >= 2 * hold { 0 } else { self.now };
            (self.now, self.since) = (0, now);
        }
        let rise = wanted.saturating_sub(self.before);
        let rising = wanted.saturating_add(2 * rise);
        let short = if wanted > own { own.saturating_mul(2) } else { 0 };
        self.now = self.now.max(rising).max(short);
        self.now.max(self.before).max(self.came_back(now, hold, own).min(could_use))
    }

    /// Pages that it keeps for they had been lent.
    fn came_back(&mut self, now: Duration, hold: Duration, own: u32) -> u32 {
        if self.has_lent && own > self.own {
            self.has_lent = false;
            self.came_back.begin(now, hold, own);
        }
        self.has_lent |= own < self.own;
        self.own = own;
        if now >= self.came_back.until {
            return 0;
        }
        // They come back one table after the other.
        self.came_back.own = self.came_back.own.max(own);
        self.came_back.own
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
            let claimed = claim.update(Duration::from_millis(ms), HOLD, wanted, 0, own);
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

    /// What another wants comes and goes ten times a second. The owner needs less than it has, and
    /// could use all.
    #[test]
    fn pages_that_came_back_are_lent_again_later_each_time() {
        const OWNED: u32 = 24;
        let lent_in = |seconds: u64, could_use: u32| {
            let (mut claim, mut own, mut lent) = (Claim::default(), OWNED, vec![]);
            for tenth in 0..10 * seconds {
                let now = Duration::from_millis(100 * tenth);
                let claimed = claim.update(now, HOLD, 5, could_use, own);
                let is_wanted = tenth % 2 == 0;
                let next = if is_wanted { OWNED.min(claimed) } else { OWNED };
                if next < own {
                    lent.push(tenth / 10);
                }
                own = next;
            }
            lent
        };
        let lent = lent_in(150, OWNED);
        assert!((3..=5).contains(&lent.len()), "{lent:?}");
        let pauses: Vec<u64> = lent.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.is_sorted() && pauses[0] >= 8, "{pauses:?}");
        // Whoever has no use for them lends them as often as they are wanted.
        assert!(lent_in(150, 5).len() > 100);
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
