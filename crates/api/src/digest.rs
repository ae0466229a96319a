//! A digest of a set of items, by which controller and switch find out that they believe
//! different things.

use decide::ItemKey;
use wire::Secret;

/// The sum of a hash of every key, so that it does not depend on an order. Both sides keep it up by
/// adding and taking away; equal digests mean equal sets but for a chance of 2^-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// Number of keys.
    pub count: u64,
    /// Sum of their hashes, modulo 2^64.
    pub sum: u64,
}

impl Digest {
    /// Counts a key in.
    pub fn add(&mut self, key: &ItemKey) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(hash(key));
    }

    /// Counts a key out that was counted in.
    pub fn remove(&mut self, key: &ItemKey) {
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(hash(key));
    }
}

fn hash(key: &ItemKey) -> u64 {
    Secret::NONE.key_hash(key.tenant, &key.key).low()
}
