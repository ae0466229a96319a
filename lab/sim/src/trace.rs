//! A running hash of everything that happened: two worlds with the same one did the same.

use std::hash::{DefaultHasher, Hash, Hasher};

/// The hash so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trace(u64);

impl Default for Trace {
    fn default() -> Trace {
        Trace(0x243f_6a88_85a3_08d3)
    }
}

/// Of anything: the same in every world.
pub fn digest(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Trace {
    /// Takes in what happened at a time. Two multiplications.
    #[inline]
    pub fn note(&mut self, at_ns: u64, what: u64) {
        let mixed = u128::from(self.0 ^ at_ns) * 0x9e37_79b9_7f4a_7c15;
        let word = (mixed as u64) ^ (mixed >> 64) as u64 ^ what;
        self.0 = word.wrapping_mul(0xd6e8_feb8_6659_fd93).rotate_left(29);
    }

    /// The hash.
    pub fn hash(self) -> u64 {
        self.0
    }
}
