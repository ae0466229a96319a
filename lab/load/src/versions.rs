//! The newest value of each key that a generator knows of: by this it notices old values while it
//! measures, without a record of everything that it asked.

use std::collections::HashMap;

use crate::workload::{MOST_IN_MEMORY, Stamp};

/// What is known of each key's newest value: the highest version that any answer named, and the
/// stamp that belongs to it. A read sent after that answer must not see an older version
/// (linearizability, as far as one client can see it).
pub(super) enum Versions {
    /// Version and stamp of every key.
    All(Vec<(u64, u64)>),
    /// Of the keys that are not as they were populated, where there are too many for a table.
    Written(HashMap<u32, (u64, u64)>),
}

/// The stamp of a populated value: no write has it.
pub(super) const POPULATED: Stamp = Stamp(0);

impl Versions {
    pub fn new(keys: usize) -> Versions {
        if keys > MOST_IN_MEMORY {
            return Versions::Written(HashMap::new());
        }
        Versions::All(vec![(0, 0); keys])
    }

    /// The version that a request sent now must not fall behind.
    #[inline]
    pub fn floor(&self, key: u32) -> u64 {
        match self {
            Versions::All(newest) => newest[key as usize].0,
            Versions::Written(newest) => newest.get(&key).map_or(0, |known| known.0),
        }
    }

    /// Version and stamp of the newest value that is known.
    pub fn known(&self, key: u32) -> (u64, Stamp) {
        let known = match self {
            Versions::All(newest) => newest.get(key as usize),
            Versions::Written(newest) => newest.get(&key),
        };
        known.map_or((0, POPULATED), |(version, stamp)| (*version, Stamp(*stamp)))
    }

    /// Takes note of an answer; false if it contradicts what was known when its request was sent,
    /// or shows another value under a version whose value is known.
    #[inline]
    pub fn learn(&mut self, key: u32, floor: u64, version: u64, stamp: Stamp) -> bool {
        let known = match self {
            Versions::All(newest) => &mut newest[key as usize],
            Versions::Written(newest) if stamp == POPULATED && !newest.contains_key(&key) => {
                return version >= floor;
            }
            Versions::Written(newest) => newest.entry(key).or_default(),
        };
        if version > known.0 {
            *known = (version, stamp.0);
        }
        version >= floor && (version != known.0 || stamp.0 == known.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_version_than_known_when_sent_is_wrong() {
        let mut versions = Versions::new(1);
        assert!(versions.learn(0, 0, 10, POPULATED));
        let sent_before = versions.floor(0);
        assert!(versions.learn(0, sent_before, 11, Stamp(1)), "a write is acknowledged");
        assert!(versions.learn(0, sent_before, 10, POPULATED), "a read from before may be older");
        let sent_after = versions.floor(0);
        assert!(!versions.learn(0, sent_after, 10, POPULATED), "a read from after may not");
    }

    #[test]
    fn one_version_has_one_value() {
        for mut versions in [Versions::new(2), Versions::new(100_000_000)] {
            assert!(versions.learn(1, 0, 5, Stamp(3)));
            assert!(versions.learn(1, 5, 5, Stamp(3)));
            assert!(!versions.learn(1, 5, 5, Stamp(4)));
        }
    }

    #[test]
    fn populated_keys_take_no_memory_where_there_are_many() {
        let mut versions = Versions::new(100_000_000);
        assert!(versions.learn(7, 0, 1, POPULATED));
        assert!(matches!(&versions, Versions::Written(newest) if newest.is_empty()));
        assert!(versions.learn(7, 0, 2, Stamp(1)));
        assert!(!versions.learn(7, 2, 1, POPULATED), "older than known");
    }
}
