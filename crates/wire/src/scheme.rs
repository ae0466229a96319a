//! Schemes: the rules by which keys are assigned to partitions, so that stores stand in front of
//! data that lies where its present servers and clients put it.
//!
//! A scheme speaks of names in the backend, as its servers and clients do. What it says of a key
//! becomes a part of the key's hash ([`KeyHasher`]): everybody who has a hash knows its partition
//! ([`partition_of`](crate::partition_of)) and need not know the scheme. Nothing here does I/O.

mod digest;
mod pool;

use std::{borrow::Cow, sync::Arc};

use crc::{CRC_16_XMODEM, Crc, Table};
use serde::{Deserialize, Serialize};

pub use digest::Digest;
pub use pool::PoolServer;

use crate::{KeyHash, Secret, TENANT_OPEN, backend_name};
use pool::Pool;

/// Partitions of [`Scheme::RedisCluster`].
pub const CLUSTER_SLOTS: u32 = 16_384;

static CRC16: Crc<u16, Table<16>> = Crc::<u16, Table<16>>::new(&CRC_16_XMODEM);

/// The rule by which keys are assigned to partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// By a keyed hash of the key: for data that is written through shortstop.
    #[default]
    Hash,
    /// As Redis Cluster does: partitions are its 16,384 slots.
    RedisCluster,
    /// As libmemcached's weighted ketama: each partition is one server of a memcached pool.
    Ketama,
    /// As libmemcached's default: the digest of the key modulo the number of servers.
    Modula,
    /// As twemproxy's `distribution: ketama`.
    TwemproxyKetama,
    /// As twemproxy's `distribution: modula`, in which a server has as many turns as weight.
    TwemproxyModula,
}

impl Scheme {
    /// Whether partitions are servers of a pool.
    pub fn has_pool(self) -> bool {
        !matches!(self, Scheme::Hash | Scheme::RedisCluster)
    }

    /// The digest of keys that clients of such a pool use unless they are told otherwise.
    pub fn usual_digest(self) -> Digest {
        match self {
            Scheme::Modula => Digest::OneAtATime,
            Scheme::TwemproxyKetama | Scheme::TwemproxyModula => Digest::Fnv1a64,
            Scheme::Hash | Scheme::RedisCluster | Scheme::Ketama => Digest::Md5,
        }
    }
}

/// The slot of a name in a Redis Cluster: CRC-16/XMODEM of its hash tag, or of all of it.
pub fn cluster_slot(name: &[u8]) -> u32 {
    u32::from(CRC16.checksum(tagged(name, *b"{}"))) % CLUSTER_SLOTS
}

/// What stands between the first of these two bytes and the next second one, if that is anything;
/// else all of the name.
fn tagged(name: &[u8], [opens, closes]: [u8; 2]) -> &[u8] {
    let tag = || {
        let start = name.iter().position(|byte| *byte == opens)? + 1;
        let len = name[start..].iter().position(|byte| *byte == closes)?;
        (len > 0).then(|| &name[start..start + len])
    };
    tag().unwrap_or(name)
}

/// Where a cluster's scheme puts names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeyPlaces {
    /// Anywhere: the hash decides.
    #[default]
    Anywhere,
    /// In slots of a Redis Cluster.
    Slots,
    /// At servers of a pool.
    Pool(Arc<Pool>),
}

impl KeyPlaces {
    /// The partition of a name in the backend, and how many there are; none: the hash decides.
    fn of(&self, name: &[u8]) -> Option<(u32, u32)> {
        match self {
            KeyPlaces::Anywhere => None,
            KeyPlaces::Slots => Some((cluster_slot(name), CLUSTER_SLOTS)),
            KeyPlaces::Pool(pool) => Some((pool.server_of(name), pool.servers())),
        }
    }
}

/// Hashes the keys of one tenant: by a seed, and by where the cluster's scheme puts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyHasher {
    seed: Secret,
    places: KeyPlaces,
}

impl From<Secret> for KeyHasher {
    /// One whose keys may be anywhere.
    fn from(seed: Secret) -> KeyHasher {
        KeyHasher { seed, places: KeyPlaces::Anywhere }
    }
}

impl KeyHasher {
    /// One of a tenant whose hashes have this seed, in a cluster that puts keys there.
    pub fn new(seed: Secret, places: &KeyPlaces) -> KeyHasher {
        KeyHasher { seed, places: places.clone() }
    }

    /// The seed.
    pub fn seed(&self) -> Secret {
        self.seed
    }

    /// The hash of a key of this tenant: [`Secret::key_hash`], moved into the partition where the
    /// scheme puts the key's name in the backend.
    pub fn key_hash(&self, tenant: u32, key: &[u8]) -> KeyHash {
        let hash = self.seed.key_hash(tenant, key);
        if self.places == KeyPlaces::Anywhere {
            return hash;
        }
        let name = match tenant {
            TENANT_OPEN => Cow::Borrowed(key),
            tenant => backend_name(tenant, key).map_or(Cow::Borrowed(key), Cow::Owned),
        };
        match self.places.of(&name) {
            Some((partition, partitions)) => hash.in_partition(partition, partitions),
            None => hash,
        }
    }
}

/// Where names are put, by what a cluster file says; it was checked.
pub(crate) fn places(
    scheme: Scheme,
    digest: Option<Digest>,
    hash_tag: Option<&str>,
    servers: &[PoolServer],
) -> KeyPlaces {
    match scheme {
        Scheme::Hash => KeyPlaces::Anywhere,
        Scheme::RedisCluster => KeyPlaces::Slots,
        _ => {
            let digest = digest.unwrap_or_else(|| scheme.usual_digest());
            let tag = hash_tag.and_then(|tag| tag.as_bytes().try_into().ok());
            KeyPlaces::Pool(Arc::new(Pool::new(scheme, digest, tag, servers)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition_of;

    #[test]
    fn slots_are_those_of_redis_clusters_specification() {
        // CRC16("123456789") is 31C3; the rest is by `CLUSTER KEYSLOT` of a Redis 7.0.15.
        let rows: [(&[u8], u32); 9] = [
            (b"123456789", 0x31c3),
            (b"foo", 12_182),
            (b"{user1000}.following", 3443),
            (b"{user1000}.followers", 3443),
            (b"foo{}{bar}", 8363),
            (b"foo{{bar}}zap", 4015),
            (b"foo{bar}{zap}", 5061),
            (b"\xff\x00\x80", 7915),
            (b"{unclosed", 470),
        ];
        for (name, slot) in rows {
            assert_eq!(cluster_slot(name), slot, "{}", name.escape_ascii());
        }
    }

    #[test]
    fn a_tag_is_between_the_first_two_and_not_empty() {
        let rows: [(&[u8], &[u8]); 6] = [
            (b"a{b}c", b"b"),
            (b"a{}c", b"a{}c"),
            (b"a{b{c}d}", b"b{c"),
            (b"}a{b}", b"b"),
            (b"a{b", b"a{b"),
            (b"", b""),
        ];
        for (name, tag) in rows {
            assert_eq!(tagged(name, *b"{}"), tag);
        }
        assert_eq!(tagged(b"a$b$c", *b"$$"), b"b", "the same byte may open and close");
    }

    #[test]
    fn a_key_hashes_into_its_partition_and_differs_from_others_there() {
        let seed = Secret([9; 16]);
        let hasher = KeyHasher::new(seed, &KeyPlaces::Slots);
        let mut seen = std::collections::HashSet::new();
        for n in 0..1000u32 {
            let key = format!("key{{one}}{n}");
            let hash = hasher.key_hash(0, key.as_bytes());
            assert_eq!(partition_of(hash, CLUSTER_SLOTS), cluster_slot(b"one"));
            assert_eq!(hash.low(), seed.key_hash(0, key.as_bytes()).low(), "the half for switches");
            assert!(seen.insert(hash.high()), "two keys of a slot have one high half");
        }
        // The name in the backend counts, not the key.
        let hash = hasher.key_hash(7, b"k");
        assert_eq!(partition_of(hash, CLUSTER_SLOTS), cluster_slot(b"shortstop:7:k"));
        assert_eq!(KeyHasher::from(seed).key_hash(7, b"k"), seed.key_hash(7, b"k"));
    }
}
