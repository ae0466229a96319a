//! Keys of one tenant whose hashes end alike, so that switches have them in one bucket and one set
//! of each table: whoever knows the seed of his hashes can choose such keys.

use crate::{tenant::Tenant, workload::Key};

/// Bits at the hashes' end that are the same: as many as choose among the buckets of a small
/// switch.
const SAME_BITS: u32 = 12;
/// Two sets of most tables full.
pub(super) const READ: usize = 16;
/// Values that are read with all their parts.
pub(super) const LONG: usize = 8;
/// Keys that are to be lent: twice as many as a set of records holds.
pub(super) const LENT: usize = 16;

/// The keys, for the attacks that use some.
pub(super) struct Alike {
    keys: Vec<Key>,
}

impl Alike {
    /// Tries the tenant's keys from this number on: some four thousand hashes for each that is
    /// found.
    pub fn new(tenant: &Tenant, from: u64) -> Alike {
        let same = (1 << SAME_BITS) - 1;
        let all = (from..).map(|number| tenant.keys.any(number));
        let keys = all.filter(|key| key.hash.low() & same == 0).take(READ + LONG + LENT);
        Alike { keys: keys.collect() }
    }

    /// One of those that are read.
    pub fn read(&self, turn: u64) -> Key {
        self.keys[turn as usize % READ]
    }

    /// One of those with long values.
    pub fn long(&self, turn: u64) -> Key {
        self.keys[READ + turn as usize % LONG]
    }

    /// One of those that are to be lent, with its place among them.
    pub fn lent(&self, turn: u64) -> (u32, Key) {
        let at = turn as usize % LENT;
        (at as u32, self.keys[READ + LONG + at])
    }

    /// The place of a key among those that are to be lent.
    pub fn place_of_lent(&self, key: &[u8]) -> Option<u32> {
        let lent = self.keys.iter().skip(READ + LONG);
        let at = lent.map(|key| key.bytes.as_slice()).position(|bytes| bytes == key)?;
        Some(at as u32)
    }
}
