//! What clients ask for: which key, how often, reads or writes, how large, and how that changes.
//!
//! Everything here is a function of its inputs and a seed; no clocks, no sockets.

mod alias;
mod churn;
mod keys;
mod mix;
mod popularity;

pub use alias::AliasTable;
pub use churn::{Churn, ChurnKind, Permutation};
pub use keys::{KEY_LEN, Key, KeySpace};
pub use mix::{Check, Stamp, ValueMix, check_value, populated_value, write_value};
pub use popularity::{Popularity, zipf_weights};

use rand::{SeedableRng, rngs::Xoshiro256PlusPlus};

/// The generator behind every random choice of the lab: small, fast, and the same in every release.
pub type LabRng = Xoshiro256PlusPlus;

/// A generator for one purpose: streams of the same seed and different purposes are independent.
pub fn rng(seed: u64, purpose: &str) -> LabRng {
    // FNV-1a: no more is needed than that different purposes give different numbers.
    let hash = purpose.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    LabRng::seed_from_u64(seed ^ hash)
}
