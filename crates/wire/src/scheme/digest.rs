//! Digests by which clients of memcached pools choose a server. None of them is keyed, and some of
//! them are what their implementations made of better known ones: what counts is what libmemcached
//! and twemproxy compute.

use crc::{CRC_32_ISO_HDLC, Crc, Table};
use serde::{Deserialize, Serialize};

static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);

const FNV_32_START: u32 = 0x811c_9dc5;
const FNV_32_PRIME: u32 = 0x0100_0193;
const FNV_64_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_64_PRIME: u64 = 0x0000_0100_0000_01b3;

/// A digest of 32 bits of a key, under twemproxy's names (its `hash:`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Digest {
    /// The first four bytes of MD5, the lowest first.
    #[serde(rename = "md5")]
    Md5,
    /// Bob Jenkins's one-at-a-time: libmemcached's default.
    #[serde(rename = "one_at_a_time")]
    OneAtATime,
    /// FNV-1 of 64 bits, of which the low half counts.
    #[serde(rename = "fnv1_64")]
    Fnv164,
    /// FNV-1a, with the low halves of the start and the prime of 64 bits: twemproxy's default.
    #[serde(rename = "fnv1a_64")]
    Fnv1a64,
    /// FNV-1 of 32 bits.
    #[serde(rename = "fnv1_32")]
    Fnv132,
    /// FNV-1a of 32 bits.
    #[serde(rename = "fnv1a_32")]
    Fnv1a32,
    /// Fifteen bits of CRC-32.
    #[serde(rename = "crc32")]
    Crc32,
    /// All of CRC-32.
    #[serde(rename = "crc32a")]
    Crc32a,
}

impl Digest {
    /// The digest of these bytes.
    pub fn of(self, bytes: &[u8]) -> u32 {
        // In C a byte above 127 is a negative number, and becomes a large one.
        let extended = || bytes.iter().map(|byte| *byte as i8 as u32);
        match self {
            Digest::Md5 => {
                let [a, b, c, d, ..] = md5::compute(bytes).0;
                u32::from_le_bytes([a, b, c, d])
            }
            Digest::OneAtATime => one_at_a_time(extended()),
            Digest::Fnv164 => {
                let step =
                    |hash: u64, byte: &u8| hash.wrapping_mul(FNV_64_PRIME) ^ (*byte as i8 as u64);
                bytes.iter().fold(FNV_64_START, step) as u32
            }
            Digest::Fnv1a64 => fnv1a(FNV_64_START as u32, FNV_64_PRIME as u32, extended()),
            Digest::Fnv132 => {
                let step = |hash: u32, byte| hash.wrapping_mul(FNV_32_PRIME) ^ byte;
                extended().fold(FNV_32_START, step)
            }
            Digest::Fnv1a32 => fnv1a(FNV_32_START, FNV_32_PRIME, extended()),
            Digest::Crc32 => (CRC32.checksum(bytes) >> 16) & 0x7fff,
            Digest::Crc32a => CRC32.checksum(bytes),
        }
    }
}

fn fnv1a(start: u32, prime: u32, bytes: impl Iterator<Item = u32>) -> u32 {
    bytes.fold(start, |hash, byte| (hash ^ byte).wrapping_mul(prime))
}

fn one_at_a_time(bytes: impl Iterator<Item = u32>) -> u32 {
    let step = |hash: u32, byte| {
        let hash = hash.wrapping_add(byte);
        let hash = hash.wrapping_add(hash << 10);
        hash ^ (hash >> 6)
    };
    let hash = bytes.fold(0, step);
    let hash = hash.wrapping_add(hash << 3);
    let hash = hash ^ (hash >> 11);
    hash.wrapping_add(hash << 15)
}
