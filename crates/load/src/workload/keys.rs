use wire::{KeyHash, Secret, partition_of};

/// Length of every key of the lab in bytes: `key` and 13 digits.
pub const KEY_LEN: usize = 16;

/// One key with what a request needs of it; half a cache line.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// `key` and the index in 13 digits.
    pub bytes: [u8; KEY_LEN],
    /// Its hash under the tenant's secret.
    pub hash: KeyHash,
}

/// The keys 0 to N-1 as `store --populate` makes them, ready to be sent.
#[derive(Clone, Debug)]
pub struct KeySpace {
    keys: Vec<Key>,
}

impl KeySpace {
    /// The first `n` keys, hashed for a tenant. 32 bytes per key.
    pub fn new(n: usize, tenant: u32, secret: &Secret) -> KeySpace {
        let keys = (0..n as u64).map(|index| {
            let bytes = key_bytes(index);
            Key {
                bytes,
                hash: secret.key_hash(tenant, &bytes),
            }
        });
        KeySpace {
            keys: keys.collect(),
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Key number `index`.
    #[inline]
    pub fn get(&self, index: u32) -> &Key {
        &self.keys[index as usize]
    }

    /// The partition of each key.
    pub fn partitions(&self, partitions: u32) -> Vec<u32> {
        self.keys
            .iter()
            .map(|key| partition_of(key.hash, partitions))
            .collect()
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
    use super::*;

    #[test]
    fn keys_are_those_of_populate() {
        for index in [0, 1, 42, 999_999, 1_234_567_890_123] {
            assert_eq!(key_bytes(index), format!("key{index:013}").as_bytes());
        }
    }

    #[test]
    fn partitions_follow_the_wire_crate() {
        let keys = KeySpace::new(100, 0, &Secret::NONE);
        let map = keys.partitions(8);
        for (i, partition) in map.iter().enumerate() {
            let hash = Secret::NONE.key_hash(0, format!("key{i:013}").as_bytes());
            assert_eq!(*partition, partition_of(hash, 8));
        }
    }
}
