//! Which keys had a value that one packet carries when they were last seen.
//!
//! A guess, to ask the backend in one round trip instead of two: a key that is not remembered, or
//! wrongly, costs time or bytes.

use std::hash::BuildHasher;

use wire::maps::Hashing;

/// Keys that are remembered, at most.
const KEYS: usize = 1 << 20;

/// A table of marks: at the place that a key's name chooses stands the mark of the name that was
/// seen there last.
pub(super) struct Small {
    marks: Vec<u32>,
    hashing: Hashing,
}

impl Small {
    pub fn new() -> Small {
        Small { marks: vec![0; KEYS], hashing: Hashing::default() }
    }

    /// Whether the value of this key was small.
    pub fn has(&self, name: &[u8]) -> bool {
        let (at, mark) = self.place(name);
        self.marks[at] == mark
    }

    /// The key was seen with a small value, or without.
    pub fn saw(&mut self, name: &[u8], is_small: bool) {
        let (at, mark) = self.place(name);
        if is_small {
            self.marks[at] = mark;
        } else if self.marks[at] == mark {
            self.marks[at] = 0;
        }
    }

    fn place(&self, name: &[u8]) -> (usize, u32) {
        let hash = self.hashing.hash_one(name);
        (hash as usize % KEYS, (hash >> 32) as u32 | 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_last_counts() {
        let mut small = Small::new();
        assert!(!small.has(b"a"));
        small.saw(b"a", true);
        assert!(small.has(b"a"));
        small.saw(b"a", false);
        assert!(!small.has(b"a"));
    }
}
