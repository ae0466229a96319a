//! Names of keys and their hashes, made before they are needed or, of very many, when they are. A
//! generator has them for each tenant; experiments that ask by hand take them from here, too.

use wire::{KeyHash, KeyHasher, partition_of};

use super::MOST_IN_MEMORY;

/// Length of every key of the lab in bytes: `key` and 13 digits.
pub const KEY_LEN: usize = 16;

/// One key with what a request needs of it; half a cache line.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// `key` and the index in 13 digits.
    pub bytes: [u8; KEY_LEN],
    /// Its hash under the tenant's secret, in the partition where the cluster puts it.
    pub hash: KeyHash,
}

/// The keys 0 to N-1 as `store --populate` makes them, ready to be sent.
#[derive(Clone, Debug)]
pub struct KeySpace {
    n: usize,
    tenant: u32,
    hasher: KeyHasher,
    /// All of them; none where there are more than [`MOST_IN_MEMORY`], which are made when they are
    /// asked for.
    keys: Vec<Key>,
}

impl KeySpace {
    /// The first `n` keys, hashed for a tenant. 32 bytes per key, for at most [`MOST_IN_MEMORY`].
    pub fn new(n: usize, tenant: u32, hasher: &KeyHasher) -> KeySpace {
        let mut space = KeySpace { n, tenant, hasher: hasher.clone(), keys: vec![] };
        if n <= MOST_IN_MEMORY {
            space.keys = (0..n as u64).map(|index| space.make(index)).collect();
        }
        space
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.n
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Key number `index`.
    #[inline]
    pub fn get(&self, index: u32) -> Key {
        if self.keys.is_empty() {
            assert!((index as usize) < self.n, "key {index} of {}", self.n);
            return self.make(index.into());
        }
        self.keys[index as usize]
    }

    /// A key of any number, that honest load asks for or not.
    pub fn any(&self, index: u64) -> Key {
        self.make(index)
    }

    /// The partition of each key, in order.
    pub fn partitions(&self, partitions: u32) -> impl Iterator<Item = u32> + '_ {
        (0..self.n as u32).map(move |index| partition_of(self.get(index).hash, partitions))
    }

    fn make(&self, index: u64) -> Key {
        let bytes = key_bytes(index);
        Key { bytes, hash: self.hasher.key_hash(self.tenant, &bytes) }
    }
}

fn key_bytes(mut index: u64) -> [u8; KEY_LEN] {
    let mut bytes = *b"key0000000000000";
    for digit in bytes[3..].iter_mut().rev() {
        *digit = b'0' + (index % 10) as u8;
        index /= 10;
    }
    bytes
}

#[cfg(test)]
mod tests {
    use wire::Secret;

    use super::*;

    #[test]
    fn keys_are_those_of_populate() {
        for index in [0, 1, 42, 999_999, 1_234_567_890_123] {
            assert_eq!(key_bytes(index), format!("key{index:013}").as_bytes());
        }
    }

    #[test]
    fn partitions_follow_the_wire_crate() {
        let keys = KeySpace::new(100, 0, &Secret::NONE.into());
        for (i, partition) in keys.partitions(8).enumerate() {
            let hash = Secret::NONE.key_hash(0, format!("key{i:013}").as_bytes());
            assert_eq!(partition, partition_of(hash, 8));
        }
    }

    #[test]
    fn many_keys_are_made_when_asked_for() {
        let secret = Secret([3; 16]);
        let few = KeySpace::new(1000, 7, &secret.into());
        let many = KeySpace::new(100_000_000, 7, &secret.into());
        assert!(many.keys.is_empty());
        for index in 0..1000 {
            let (a, b) = (few.get(index), many.get(index));
            assert_eq!((a.bytes, a.hash), (b.bytes, b.hash));
        }
        assert_eq!(many.get(99_999_999).bytes, *b"key0000099999999");
    }
}
