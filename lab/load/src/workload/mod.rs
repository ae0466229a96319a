//! What clients ask for: which key, how often, reads or writes, how large, and how that changes.
//!
//! Everything here is a function of its inputs and a seed; no clocks, no sockets.

mod churn;
mod keys;
mod mix;
mod popularity;

pub use churn::{Churn, ChurnKind, Permutation};
pub use keys::{KEY_LEN, Key, KeySpace};
pub use mix::{Check, Stamp, ValueMix, check_value, populated_value, write_value};
pub use popularity::{Popularity, Ranks};

/// Key spaces up to this size have tables with an entry per key; of larger ones everything is
/// computed when it is needed.
pub const MOST_IN_MEMORY: usize = 4_000_000;
