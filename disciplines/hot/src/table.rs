//! Keys with what is known of them, in an order that does not depend on hashing: indexable, so that
//! items can be sampled, and the same in every run of a seed.

use std::{collections::HashMap, time::Duration};

use decide::Key;

use crate::estimate::lower;

/// What is known of one key at one switch.
///
/// Windows are told in two ways. `window` and `cached_in` are the switch's numbers, which may jump.
/// A *time* is the number of windows that had ended since the cache began; the difference of two
/// times is a number of windows.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key.
    pub key: Key,
    /// Requests so far, those of earlier windows discounted.
    pub mass: f64,
    /// A rate (requests per window) that the key has at least, by its latest window alone.
    pub pace: f64,
    /// The latest window in which it was reported as missed.
    pub window: u64,
    /// Its misses in that window, as far as they were reported.
    pub count: f64,
    /// The window in which the switch began to have it; `None` while it does not.
    pub cached_in: Option<u64>,
    /// Not to be inserted before this moment of the controller's clock.
    pub paused_until: Duration,
    /// How often in a row inserting it failed.
    pub strikes: u8,
    /// Time of its latest request that we know of.
    pub seen: u64,
    /// Windows since its latest hit in which its requests passed by another switch.
    pub bypassed_windows: u8,
    /// Time of the latest of them.
    pub bypassed: u64,
    /// Time at which it last found no room.
    pub unmet: Option<u64>,
    /// Whether it is among the keys that [`crate::shortage::Shortage`] counts.
    pub counted: bool,
    /// It was counted there, and then inserted at this time. It is on trial until it is hit, or was
    /// not for long.
    pub on_trial: Option<u64>,
    /// It was cached, or should have been, and had to go for lack of room only.
    pub displaced: bool,
}

impl Entry {
    /// A key of which nothing is known yet.
    pub fn new(key: Key) -> Entry {
        Entry {
            key,
            mass: 0.0,
            pace: 0.0,
            window: 0,
            count: 0.0,
            cached_in: None,
            paused_until: Duration::ZERO,
            strikes: 0,
            seen: 0,
            bypassed_windows: 0,
            bypassed: 0,
            unmet: None,
            counted: false,
            on_trial: None,
            displaced: false,
        }
    }

    /// Requests per window, given the discounted number of windows that `mass` was gathered in. One
    /// request is taken off: among many rare keys, those seen most are seen more often than they
    /// deserve.
    pub fn rate(&self, windows: f64) -> f64 {
        self.slow_rate(windows).max(self.pace)
    }

    /// [`Entry::rate`] by the long memory alone.
    pub fn slow_rate(&self, windows: f64) -> f64 {
        ((self.mass - 1.0) / windows).max(0.0)
    }

    /// Takes in a report: `count` requests in `window` so far, of which `elapsed` (0 to 1) has
    /// passed.
    pub fn reported(&mut self, window: u64, count: f64, elapsed: f64) {
        if self.window != window {
            self.window = window;
            self.count = 0.0;
        }
        if count > self.count {
            self.mass += count - self.count;
            self.count = count;
        }
        self.pace = self.pace.max(lower(self.count) / elapsed);
    }

    /// What the mass was before this window, and what was reported in it.
    pub fn split(&self, window: u64) -> (f64, f64) {
        let count = if self.window == window { self.count } else { 0.0 };
        ((self.mass - count).max(0.0), count)
    }
}

/// Entries by key and by position.
#[derive(Debug, Default)]
pub struct Table {
    entries: Vec<Entry>,
    index: HashMap<Key, usize>,
}

impl Table {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// All entries, in no particular but a repeatable order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All entries, to update; keys must stay as they are.
    pub fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// The entry of a key.
    pub fn get(&self, key: &Key) -> Option<&Entry> {
        self.index.get(key).map(|&at| &self.entries[at])
    }

    /// The entry of a key, to update.
    pub fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        self.index.get(key).map(|&at| &mut self.entries[at])
    }

    /// Where in [`Table::entries`] the key is.
    pub fn position(&self, key: &Key) -> Option<usize> {
        self.index.get(key).copied()
    }

    /// Whether the key is there.
    pub fn contains(&self, key: &Key) -> bool {
        self.index.contains_key(key)
    }

    /// Adds an entry, in place of one with the same key.
    pub fn put(&mut self, entry: Entry) {
        if let Some(&at) = self.index.get(&entry.key) {
            self.entries[at] = entry;
        } else {
            self.index.insert(entry.key.clone(), self.entries.len());
            self.entries.push(entry);
        }
    }

    /// Takes an entry out.
    pub fn take(&mut self, key: &Key) -> Option<Entry> {
        let at = self.index.remove(key)?;
        let entry = self.entries.swap_remove(at);
        if let Some(moved) = self.entries.get(at) {
            *self.index.get_mut(&moved.key).expect("every entry is in the index") = at;
        }
        Some(entry)
    }

    /// Keeps those that `keep` says.
    pub fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.entries.retain(keep);
        self.index = self.entries.iter().enumerate().map(|(at, e)| (e.key.clone(), at)).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn it_is_a_map(steps in prop::collection::vec((any::<bool>(), 0u8..20), 0..200)) {
            let mut table = Table::default();
            let mut model = std::collections::BTreeSet::new();
            for (add, n) in steps {
                let key = Key::from(vec![n]);
                if add {
                    table.put(Entry::new(key.clone()));
                    model.insert(n);
                } else {
                    prop_assert_eq!(table.take(&key).is_some(), model.remove(&n));
                }
                prop_assert_eq!(table.contains(&key), model.contains(&n));
                prop_assert_eq!(table.len(), model.len());
                for n in &model {
                    let key = Key::from(vec![*n]);
                    prop_assert_eq!(&table.get_mut(&key).unwrap().key, &key);
                }
            }
        }
    }
}
