//! What a key's load will be in the next window (paper, 4.1.1, equation 1).

use decide::Key;
use wire::maps::HashMap;

/// Keys that are remembered, for each that may be hot.
const REMEMBERED_PER_HOT: usize = 4;

/// Requests for one key.
#[derive(Clone, Copy, Debug, Default)]
struct Loads {
    /// Requests in the window before the last.
    before: f64,
    /// Requests in the last window.
    last: f64,
    /// Requests in the present window, as far as they are known.
    present: f64,
}

/// The loads of a tenant's keys at a switch.
#[derive(Debug)]
pub struct Estimates {
    alpha: f64,
    /// The factor `alpha`, but for the first window: there was none before it.
    alpha_now: f64,
    hot_most: usize,
    keys: HashMap<Key, Loads>,
    /// What a server had to do on average.
    average: Loads,
}

impl Estimates {
    /// Nothing known yet. `alpha` is the weight of the window before the last, 0 to 1; at most
    /// `hot_most` keys are ever asked for.
    pub fn new(alpha: f64, hot_most: usize) -> Estimates {
        Estimates {
            alpha,
            alpha_now: 0.0,
            hot_most,
            keys: HashMap::default(),
            average: Loads::default(),
        }
    }

    /// A key was asked for so often in this window so far, as anybody counted; of several counts
    /// the highest holds.
    pub fn count(&mut self, key: &Key, requests: u64) {
        if let Some(loads) = self.keys.get_mut(key) {
            loads.present = loads.present.max(requests as f64);
        } else {
            let loads = Loads { present: requests as f64, ..Loads::default() };
            self.keys.insert(key.clone(), loads);
        }
        if self.keys.len() > 2 * REMEMBERED_PER_HOT * self.hot_most {
            self.forget(|loads| loads.present.max(loads.last));
        }
    }

    /// The window ended, in which a server had so much to do on average.
    pub fn window_end(&mut self, average: f64) {
        if !self.keys.is_empty() {
            let is_first = self.keys.values().all(|loads| loads.last == 0.0);
            self.alpha_now = if is_first { 0.0 } else { self.alpha };
        }
        self.average.present = average;
        for loads in self.keys.values_mut().chain([&mut self.average]) {
            *loads = Loads { before: loads.last, last: loads.present, present: 0.0 };
        }
        let alpha = self.alpha_now;
        self.forget(|loads| expected(alpha, loads));
    }

    /// The window ended, and says nothing.
    pub fn skip_window(&mut self) {
        self.keys.values_mut().for_each(|loads| loads.present = 0.0);
        self.keys.retain(|_, loads| loads.before + loads.last > 0.0);
    }

    /// What a key's load will be, in requests of a window.
    pub fn of(&self, key: &Key) -> f64 {
        let loads = self.keys.get(key);
        loads.map_or(0.0, |loads| expected(self.alpha_now, loads))
    }

    /// What a server will have to do on average, if keys' loads are as expected: after a window in
    /// which less was asked than in the one before, neither is as in either.
    pub fn average(&self) -> f64 {
        expected(self.alpha_now, &self.average)
    }

    /// The keys of the highest loads, the highest first; equals in the order of their bytes.
    pub fn highest(&self, count: usize) -> Vec<(Key, f64)> {
        let highest = self.sorted(count, |loads| expected(self.alpha_now, loads));
        highest.into_iter().map(|(key, load)| (key.clone(), load)).collect()
    }

    /// The keys that had most requests in the last window, in the same order.
    pub fn highest_of_last(&self, count: usize) -> Vec<Key> {
        let highest = self.sorted(count, |loads| loads.last);
        highest.into_iter().map(|(key, _)| key.clone()).collect()
    }

    fn sorted(&self, count: usize, load: impl Fn(&Loads) -> f64) -> Vec<(&Key, f64)> {
        let all = self.keys.iter();
        let all = all.map(|(key, loads)| (key, load(loads)));
        let mut all: Vec<(&Key, f64)> = all.filter(|(_, load)| *load > 0.0).collect();
        let order = |a: &(&Key, f64), b: &(&Key, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(b.0));
        if all.len() > count {
            all.select_nth_unstable_by(count, order);
            all.truncate(count);
        }
        all.sort_unstable_by(order);
        all
    }

    /// Keeps the highest only, and of those without any load none.
    fn forget(&mut self, weight: impl Fn(&Loads) -> f64) {
        let most = REMEMBERED_PER_HOT * self.hot_most;
        self.keys.retain(|_, loads| loads.before + loads.last + loads.present > 0.0);
        if self.keys.len() <= most {
            return;
        }
        let mut all: Vec<(f64, Key)> =
            self.keys.iter().map(|(k, l)| (weight(l), k.clone())).collect();
        let order = |a: &(f64, Key), b: &(f64, Key)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        all.select_nth_unstable_by(most, order);
        for (_, key) in &all[most..] {
            self.keys.remove(key);
        }
    }
}

/// Equation 1.
fn expected(alpha: f64, loads: &Loads) -> f64 {
    alpha * loads.before + (1.0 - alpha) * loads.last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u32) -> Key {
        Key::copy_from_slice(&n.to_be_bytes())
    }

    #[test]
    fn the_last_two_windows_count_and_no_other() {
        let mut estimates = Estimates::new(0.25, 10);
        let mut after = |requests| {
            estimates.count(&key(1), requests);
            estimates.window_end(100.0);
            estimates.of(&key(1))
        };
        let loads = [100, 200, 0, 0, 40].map(&mut after);
        assert_eq!(loads, [100.0, 175.0, 50.0, 0.0, 40.0]);
        assert_eq!(estimates.of(&key(2)), 0.0);
    }

    #[test]
    fn a_window_that_says_nothing_leaves_nothing() {
        let mut estimates = Estimates::new(0.5, 10);
        estimates.count(&key(1), 100);
        estimates.window_end(100.0);
        estimates.count(&key(1), 300);
        estimates.count(&key(2), 300);
        estimates.skip_window();
        assert_eq!([1, 2].map(|n| estimates.of(&key(n))), [100.0, 0.0]);
        estimates.count(&key(1), 100);
        estimates.window_end(100.0);
        assert_eq!([1, 2].map(|n| estimates.of(&key(n))), [100.0, 0.0]);
    }

    #[test]
    fn in_a_window_with_less_load_a_key_is_no_larger_part_of_it() {
        let mut estimates = Estimates::new(0.5, 10);
        for part in [100, 100, 10, 0, 100] {
            estimates.count(&key(1), 2 * part);
            estimates.window_end(part as f64);
            assert_eq!(estimates.of(&key(1)), 2.0 * estimates.average());
        }
    }

    #[test]
    fn of_several_counts_of_a_window_the_highest_holds() {
        let mut estimates = Estimates::new(0.0, 10);
        [4, 8, 6].into_iter().for_each(|n| estimates.count(&key(1), n));
        estimates.window_end(100.0);
        assert_eq!(estimates.of(&key(1)), 8.0);
    }

    #[test]
    fn the_highest_come_first_and_memory_is_bounded() {
        let mut estimates = Estimates::new(0.5, 10);
        for n in 0..100_000 {
            estimates.count(&key(n), u64::from(n % 1000));
            assert!(estimates.keys.len() <= 81);
        }
        estimates.window_end(100.0);
        assert!(estimates.keys.len() <= 40);
        let highest: Vec<f64> = estimates.highest(3).into_iter().map(|(_, load)| load).collect();
        assert_eq!(highest, [999.0; 3]);
        assert!(estimates.highest(100).is_sorted_by(|a, b| a.1 >= b.1));
    }
}
