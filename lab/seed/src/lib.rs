//! Everything random in experiments comes from a seed. Called by the lab, the load and the
//! recording clients.

#![deny(unsafe_code)]

use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};

/// The generator behind every random choice: small, fast, and the same in every release.
pub type SeededRng = Xoshiro256PlusPlus;

/// A generator for one purpose: streams of the same seed and different purposes are independent.
pub fn rng(seed: u64, purpose: &str) -> SeededRng {
    // FNV-1a: no more is needed than that different purposes give different numbers.
    let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    SeededRng::seed_from_u64(seed ^ hash)
}
