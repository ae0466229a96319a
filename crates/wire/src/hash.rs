//! What is derived from secrets: the tag that signs a packet, and the hash that a key is known by.
//!
//! [`crate::Packet`] signs and checks with it; clients, stores and controllers hash keys here, and
//! the partition of a hash chooses the store. The data plane computes the same in C
//! (`bpf/siphash.h`).

use std::hash::Hasher;

use siphasher::{
    sip::SipHasher13,
    sip128::{Hasher128, SipHasher24 as SipHasher24x128},
};

use crate::{HEADER_LEN, SHARED_LEN};

/// Where `node` stands in a header.
const NODE_AT: usize = 48;

/// A tenant's 128-bit secret. [`Secret::NONE`] stands for a tenant without one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl Secret {
    /// No secret: tags are zero and are not checked.
    pub const NONE: Secret = Secret([0; 16]);

    /// SipHash-1-3 (64 bit) over what a reply repeats of its request (40 bytes of the header, and
    /// the key, filled up with zeros to whole words of eight bytes), over the header's other bytes
    /// before the tag, with zeros in `node`'s place, and over `node`. The result stands in the
    /// packet in network order. Zero for [`Secret::NONE`].
    pub fn tag(&self, header: &[u8; HEADER_LEN], key: &[u8]) -> u64 {
        if *self == Secret::NONE {
            return 0;
        }
        let mut hasher = SipHasher13::new_with_key(&self.0);
        hasher.write(&header[..SHARED_LEN]);
        hasher.write(key);
        hasher.write(&[0; 7][..key.len().wrapping_neg() % 8]);
        let (node, next) = (NODE_AT, NODE_AT + 2);
        hasher.write(&header[SHARED_LEN..node]);
        hasher.write(&[0; 2]);
        hasher.write(&header[next..HEADER_LEN - 8]);
        hasher.write(&header[node..next]);
        hasher.finish()
    }

    /// The 128-bit hash of a key of this tenant: SipHash-2-4-128 with a seed derived from the
    /// secret and the tenant's number, so that nobody else can choose keys that collide.
    pub fn key_hash(&self, tenant: u32, key: &[u8]) -> KeyHash {
        let mut seed = self.0;
        for (byte, salt) in seed.iter_mut().zip(b"shortstop-khash\0") {
            *byte ^= salt;
        }
        let mut hasher = SipHasher24x128::new_with_key(&seed);
        hasher.write(&tenant.to_be_bytes());
        hasher.write(key);
        KeyHash(hasher.finish128().as_bytes())
    }
}

impl std::fmt::Debug for Secret {
    /// Never prints the secret itself.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Secret::NONE { "Secret(none)" } else { "Secret(hidden)" })
    }
}

/// 128-bit hash of a key, seeded per tenant. The first eight bytes choose the partition, the last
/// eight the bucket and fingerprint in a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub [u8; 16]);

impl KeyHash {
    /// The first eight bytes, big-endian.
    pub fn high(&self) -> u64 {
        u64::from_be_bytes(self.0[..8].try_into().expect("eight bytes"))
    }

    /// The same hash in a partition of the caller's choice, as far as there is room for it: the
    /// high half is scaled into the range of hashes that are that partition's.
    pub(crate) fn in_partition(self, partition: u32, partitions: u32) -> KeyHash {
        let bound = |n: u32| ((u128::from(n)) << 64).div_ceil(partitions.into());
        let (first, end) = (bound(partition), bound(partition + 1));
        let high = first + ((u128::from(self.high()) * (end - first)) >> 64);
        let mut bytes = self.0;
        bytes[..8].copy_from_slice(&(high as u64).to_be_bytes());
        KeyHash(bytes)
    }

    /// The last eight bytes, big-endian.
    pub fn low(&self) -> u64 {
        u64::from_be_bytes(self.0[8..].try_into().expect("eight bytes"))
    }
}

/// The partition in `0..partitions` that owns a key: the high half of its hash scaled to the range.
///
/// # Panics
/// If `partitions` is zero.
pub fn partition_of(hash: KeyHash, partitions: u32) -> u32 {
    assert!(partitions > 0, "a cluster has at least one partition");
    ((u128::from(hash.high()) * u128::from(partitions)) >> 64) as u32
}
