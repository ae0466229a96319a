//! How long the values of keys are, as far as it is known: reads leave room for as much as their
//! answers are likely to need.
//!
//! A read that leaves too little costs a round trip, one that leaves too much costs bytes, and on a
//! short path its answer. So keys are told apart by their hashes, coarsely, and a long value is
//! forgotten when only shorter ones come for a while.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use wire::{KeyHash, PART_BYTES};

/// Groups that keys are told apart by.
const GROUPS: usize = 512;
/// Shorter values in a row after which a group forgets its longest.
const GROUP_MEMORY: u16 = 32;
/// The same for all keys together, which is what counts for groups that nothing is known of.
const ALL_MEMORY: u16 = 256;

/// Room that answers are likely to need. Lengths are in bytes, of values as they travel.
pub(crate) struct Sizes {
    groups: Box<[RecentMaximum]>,
    all: RecentMaximum,
    /// What reads always leave room for.
    least: usize,
    /// Whether some value ever came in parts.
    any_in_parts: AtomicBool,
}

impl Sizes {
    /// Nothing is known. Reads leave room for `least` bytes, whatever comes.
    pub fn new(least: usize) -> Sizes {
        Sizes {
            groups: (0..GROUPS).map(|_| RecentMaximum::default()).collect(),
            all: RecentMaximum::default(),
            least,
            any_in_parts: AtomicBool::new(false),
        }
    }

    /// What an answer about this key is likely to need, if something is known of keys like it.
    pub fn of_key(&self, key: &KeyHash) -> Option<usize> {
        self.group(key).read().map(|longest| longest.max(self.least))
    }

    /// What an answer is likely to need about a key that nothing is known of.
    pub fn of_any(&self) -> usize {
        self.all.read().unwrap_or(0).max(self.least)
    }

    /// Whether some value ever came in parts.
    pub fn any_in_parts(&self) -> bool {
        self.any_in_parts.load(Relaxed)
    }

    /// A value of this key has this length. `most`: the longest that goes in one packet; of a
    /// longer one each answer brings a part.
    pub fn saw(&self, key: &KeyHash, len: usize, most: usize) {
        let in_parts = len > most;
        let room = if in_parts { PART_BYTES } else { len };
        if in_parts && !self.any_in_parts() {
            self.any_in_parts.store(true, Relaxed);
        }
        self.group(key).saw(room as u16, GROUP_MEMORY);
        self.all.saw(room as u16, ALL_MEMORY);
    }

    fn group(&self, key: &KeyHash) -> &RecentMaximum {
        // Not from the hash's beginning, which says which store has the key.
        let [.., high, low] = key.0;
        &self.groups[usize::from(u16::from_be_bytes([high, low])) % GROUPS]
    }
}

/// The longest of the values seen last, in one word: what is lost to a race costs a round trip
/// later on. Where all values are of one length it is written once.
#[derive(Default)]
struct RecentMaximum(AtomicU64);

/// What was seen, as the word says it. All zero: nothing was.
#[derive(Clone, Copy, PartialEq, Eq)]
struct History {
    any: bool,
    longest: u16,
    /// The longest of those that came since the longest did, and how many they are.
    next: u16,
    shorter: u16,
}

impl RecentMaximum {
    fn read(&self) -> Option<usize> {
        let history = History::of(self.0.load(Relaxed));
        history.any.then_some(usize::from(history.longest))
    }

    fn saw(&self, len: u16, memory: u16) {
        let before = History::of(self.0.load(Relaxed));
        let mut history = before;
        if !history.any || len >= history.longest {
            history = History { any: true, longest: len, next: 0, shorter: 0 };
        } else {
            history.next = history.next.max(len);
            history.shorter += 1;
            if history.shorter >= memory {
                history.longest = history.next;
                history.next = 0;
                history.shorter = 0;
            }
        }
        if history != before {
            self.0.store(history.word(), Relaxed);
        }
    }
}

impl History {
    fn of(word: u64) -> History {
        History {
            any: word >> 48 != 0,
            longest: (word >> 32) as u16,
            next: (word >> 16) as u16,
            shorter: word as u16,
        }
    }

    fn word(self) -> u64 {
        let halves = [self.longest, self.next, self.shorter];
        let rest = halves.iter().fold(0, |word, half| word << 16 | u64::from(*half));
        u64::from(self.any) << 48 | rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: usize = 1391;

    fn key(number: u16) -> KeyHash {
        let mut hash = KeyHash::default();
        hash.0[14..].copy_from_slice(&number.to_be_bytes());
        hash
    }

    #[test]
    fn a_long_value_makes_room_for_its_own_key_and_those_that_nothing_is_known_of() {
        let sizes = Sizes::new(256);
        assert_eq!((sizes.of_key(&key(1)), sizes.of_any()), (None, 256));
        sizes.saw(&key(1), 100, MOST);
        sizes.saw(&key(2), 1300, MOST);
        let rooms = [1, 2, 3].map(|number| sizes.of_key(&key(number)));
        assert_eq!((rooms, sizes.of_any()), ([Some(256), Some(1300), None], 1300));
    }

    #[test]
    fn of_a_value_in_parts_there_is_room_for_one() {
        let sizes = Sizes::new(256);
        sizes.saw(&key(1), MOST, MOST);
        assert!(!sizes.any_in_parts());
        sizes.saw(&key(2), MOST + 1, MOST);
        assert!(sizes.any_in_parts());
        assert_eq!(sizes.of_key(&key(2)), Some(PART_BYTES));
    }

    #[test]
    fn a_long_value_is_forgotten_when_only_shorter_ones_come() {
        let sizes = Sizes::new(0);
        sizes.saw(&key(1), 1300, MOST);
        for number in 0..ALL_MEMORY {
            assert_eq!(sizes.of_any(), 1300, "after {number}");
            sizes.saw(&key(2), 300 + usize::from(number), MOST);
        }
        assert_eq!(sizes.of_any(), 299 + usize::from(ALL_MEMORY));
        assert_eq!(sizes.of_key(&key(1)), Some(1300), "nothing came since");
        for number in 0..GROUP_MEMORY {
            assert_eq!(sizes.of_key(&key(1)), Some(1300), "after {number}");
            sizes.saw(&key(1), 200, MOST);
        }
        assert_eq!(sizes.of_key(&key(1)), Some(200));
    }

    proptest! {
        /// There always is room for the value that was seen last, and never for more than
        /// the longest.
        #[test]
        fn what_was_seen_last_has_room(lens in prop::collection::vec((0..4u16, 0..2000usize), 1..200)) {
            let sizes = Sizes::new(64);
            let mut longest = 64;
            for (number, len) in lens {
                sizes.saw(&key(number), len, MOST);
                let room = if len > MOST { PART_BYTES } else { len };
                longest = longest.max(room);
                let of_key = sizes.of_key(&key(number)).unwrap();
                prop_assert!((room..=longest).contains(&of_key));
                prop_assert!(sizes.of_any() >= room && sizes.of_any() <= longest);
            }
        }
    }
}
