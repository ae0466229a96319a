//! From how many requests in a window on a key is reported: low enough to learn from, high enough
//! that reports stay within their budget.

/// Where it begins, and the lowest while keys compete for room: one request in a window tells no
/// key from another.
const LOWEST: u32 = 2;
/// The lowest while there is room for all: also keys of less than a request per window are heard
/// of.
const LOWEST_WITH_ROOM: u32 = 1;
const HIGHEST: u32 = 1 << 20;
/// A threshold that was too low is tried again after so many windows at the latest.
const LONGEST_WAIT_WINDOWS: u32 = 16;

/// The threshold of one tenant's keys on one switch, with the reports of its current window.
#[derive(Debug)]
pub struct Threshold {
    requests: u32,
    /// The lowest for now.
    lowest: u32,
    reports: u32,
    budget: u32,
    /// Reports in this window at which the threshold is raised next.
    raise_at: u32,
    /// The highest threshold that was found too low, not to be tried again for so many windows.
    too_low: u32,
    wait_windows: u32,
    /// How long to wait when it is found too low again.
    next_wait_windows: u32,
}

impl Threshold {
    /// Starts at `requests` if given, else at 2; holds reports near `budget` per window.
    pub fn new(requests: Option<u32>, budget: u32) -> Threshold {
        let requests = requests.unwrap_or(LOWEST).clamp(LOWEST_WITH_ROOM, HIGHEST);
        let budget = budget.max(16);
        Threshold {
            requests,
            lowest: LOWEST,
            reports: 0,
            budget,
            raise_at: budget,
            too_low: 0,
            wait_windows: 0,
            next_wait_windows: 1,
        }
    }

    /// Reports that are to be had per window from now on.
    pub fn set_budget(&mut self, budget: u32) {
        let budget = budget.max(16);
        if self.raise_at == self.budget {
            self.raise_at = budget;
        }
        self.budget = budget;
    }

    /// Requests per window.
    pub fn requests(&self) -> u32 {
        self.requests
    }

    /// Takes in `count` reports; true if the threshold rose. It doubles when the budget is used up
    /// and for every further half of it, so that a burst is held off within a few batches.
    pub fn reported(&mut self, count: usize) -> bool {
        self.reports = self.reports.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.reports < self.raise_at || self.requests == HIGHEST {
            return false;
        }
        if self.wait_windows == 0 {
            self.wait_windows = self.next_wait_windows;
            self.next_wait_windows = (2 * self.next_wait_windows).min(LONGEST_WAIT_WINDOWS);
        }
        if self.raise_at == self.budget {
            self.too_low = self.requests;
        }
        self.raise_at = self.reports.saturating_add(self.budget / 2);
        self.requests = self.requests.saturating_mul(2).min(HIGHEST);
        true
    }

    /// A window ended, with room for `ample` more items or not; true if the threshold moved. It
    /// falls by a quarter when a lower one is likely to be affordable: near the bottom, one request
    /// less makes several times as many reports.
    pub fn window_end(&mut self, ample: bool) -> bool {
        self.lowest = if ample { LOWEST_WITH_ROOM } else { LOWEST };
        let lowest =
            if self.wait_windows > 0 { self.lowest.max(self.too_low + 1) } else { self.lowest };
        let affordable = if self.requests <= 4 { self.budget / 6 } else { self.budget / 3 };
        let before = self.requests;
        if self.reports > self.budget {
            // Already raised, when the budget was used up.
        } else if self.reports < affordable {
            let far = self.reports < self.budget / 20;
            let lowered =
                if far { self.requests / 2 } else { self.requests - self.requests.div_ceil(4) };
            self.requests = lowered.max(lowest).min(self.requests);
        }
        if self.reports <= self.budget {
            self.wait_windows = self.wait_windows.saturating_sub(1);
            if self.wait_windows == 0 && self.requests <= self.too_low && before == self.requests {
                self.next_wait_windows = 1;
            }
        }
        self.requests = self.requests.max(self.lowest);
        self.reports = 0;
        self.raise_at = self.budget;
        self.requests != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_raises_it_at_once_and_quiet_lowers_it() {
        let mut threshold = Threshold::new(None, 1000);
        assert!(!threshold.reported(999));
        assert!(threshold.reported(1));
        assert_eq!(threshold.requests(), 4);
        for _ in 0..10 {
            threshold.reported(1000);
        }
        assert!(threshold.requests() >= 4096);
        threshold.window_end(false);
        let windows = (0..).take_while(|_| threshold.window_end(false)).count();
        assert!(windows <= 14, "{windows} windows to fall back");
        assert_eq!(threshold.requests(), LOWEST);
    }

    #[test]
    fn within_the_budget_it_stays() {
        let mut threshold = Threshold::new(Some(8), 1000);
        for _ in 0..100 {
            assert!(!threshold.reported(700));
            assert!(!threshold.window_end(true));
        }
        assert_eq!(threshold.requests(), 8);
    }

    #[test]
    fn single_requests_count_as_long_as_there_is_room_for_all() {
        let mut threshold = Threshold::new(None, 1000);
        assert!(threshold.window_end(true));
        assert_eq!(threshold.requests(), 1);
        assert!(!threshold.window_end(true));
        assert!(threshold.window_end(false));
        assert_eq!(threshold.requests(), 2);
        assert!(!threshold.window_end(false));
    }

    #[test]
    fn no_count_overflows() {
        let mut threshold = Threshold::new(Some(u32::MAX), 0);
        for _ in 0..100 {
            threshold.reported(usize::MAX);
        }
        assert_eq!(threshold.requests(), HIGHEST);
    }
}
