//! Whether popularity has changed altogether, so that what is known of items says little against a
//! key that is requested now.
//!
//! It shows in keys that are proved hotter than items that are there for long: more than a few in a
//! window are no chance. Keys that take an item's place for what is likely do not count, nor do
//! those that take the place of such a key: an upheaval would keep itself going.

/// Of this many items, one was outdone, from which on it is an upheaval; and at least so many.
const ONE_IN: usize = 100;
const LEAST: usize = 8;

/// Counts what shows it, in this window and in the one before.
#[derive(Debug, Default)]
pub struct Upheaval {
    outdone: usize,
    outdone_before: usize,
}

impl Upheaval {
    /// A key was proved hotter than an item that is there for long.
    pub fn outdone(&mut self) {
        self.outdone += 1;
    }

    /// A window ended.
    pub fn window_end(&mut self) {
        self.outdone_before = std::mem::take(&mut self.outdone);
    }

    /// Whether there is one, where at most so many items are cached.
    pub fn is_on(&self, items: usize) -> bool {
        self.outdone + self.outdone_before > (items / ONE_IN).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_keys_that_rise_are_none_and_many_are_one_for_two_windows() {
        let mut upheaval = Upheaval::default();
        (0..100).for_each(|_| upheaval.outdone());
        assert!(!upheaval.is_on(10_000));
        upheaval.outdone();
        assert!(upheaval.is_on(10_000));
        upheaval.window_end();
        assert!(upheaval.is_on(10_000));
        upheaval.window_end();
        assert!(!upheaval.is_on(10_000));
    }

    #[test]
    fn in_a_small_cache_a_few_are_none() {
        let mut upheaval = Upheaval::default();
        (0..8).for_each(|_| upheaval.outdone());
        assert!(!upheaval.is_on(10));
        upheaval.outdone();
        assert!(upheaval.is_on(10));
    }
}
