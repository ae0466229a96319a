//! How well the last prediction fits what was counted since: the overlap of the keys that were
//! expected to be the hottest with those that were (paper, 5.3).

use decide::Key;
use wire::maps::HashSet;

use super::estimate::Estimates;

/// The number of the hottest keys whose overlap is told beside that of all.
const FIRST: usize = 1000;

/// The overlaps since the start.
#[derive(Debug, Default)]
pub struct Accuracy {
    expected: Vec<Key>,
    /// Windows since the start, up to two: what is expected after the first lacks the one before
    /// it, and is not looked at.
    known: u8,
    windows: u64,
    sum: f64,
    sum_of_first: f64,
}

impl Accuracy {
    /// A window ended; `hottest` is what is expected of the next, the hottest first.
    pub fn window_end(&mut self, estimates: &Estimates, hottest: &[(Key, f64)]) {
        let count = self.expected.len();
        let were = estimates.highest_of_last(count);
        if count > 0 && !were.is_empty() && self.known == 2 {
            self.windows += 1;
            self.sum += overlap(&self.expected, &were, count);
            self.sum_of_first += overlap(&self.expected, &were, FIRST);
        }
        self.known = (self.known + 1).min(2);
        self.expected = hottest.iter().map(|(key, _)| key.clone()).collect();
    }

    /// Windows that were looked at.
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// The average overlap of all keys that were expected, in thousandths.
    pub fn permille(&self) -> u64 {
        self.average(self.sum)
    }

    /// The overlap of the thousand that were expected to be the hottest.
    pub fn permille_of_first(&self) -> u64 {
        self.average(self.sum_of_first)
    }

    fn average(&self, sum: f64) -> u64 {
        (1000.0 * sum / self.windows.max(1) as f64) as u64
    }
}

fn overlap(expected: &[Key], were: &[Key], first: usize) -> f64 {
    let count = first.min(expected.len()).min(were.len());
    let were: HashSet<&Key> = were[..count].iter().collect();
    let right = expected[..count].iter().filter(|key| were.contains(key)).count();
    right as f64 / count.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_expected_is_compared_with_what_came() {
        let mut estimates = Estimates::new(0.5, 10);
        let mut accuracy = Accuracy::default();
        let mut window = |counts: [u64; 3]| {
            for (key, count) in ["a", "b", "c"].iter().zip(counts) {
                estimates.count(&Key::from_static(key.as_bytes()), count);
            }
            estimates.window_end(100.0);
            accuracy.window_end(&estimates, &estimates.highest(2));
            (accuracy.windows(), accuracy.permille())
        };
        assert_eq!(window([9, 8, 1]), (0, 0));
        assert_eq!(window([9, 8, 1]), (0, 0));
        assert_eq!(window([9, 8, 1]), (1, 1000));
        assert_eq!(window([1, 8, 9]), (2, 750));
    }
}
