//! Whoever holds copies of a store's keys: the rules of that side (docs/coherence.md), and a holder
//! at the clients' side, which keeps the hottest keys in memory of its own and serves none that
//! is stale.
//!
//! [`Replica`], [`BorrowedLease`] and [`Epochs`] are the rules as pure functions, for other stores
//! as for holders. A [`Cache`] has what a holder keeps; whoever serves reads asks it, from as many
//! threads as there are. A [`Holder`] talks with the stores: it borrows leases, fetches grants,
//! answers invalidations. Datagrams and times go in, datagrams come out: it opens no socket, reads
//! no clock and starts no thread.

#![deny(unsafe_code)]

mod cache;
mod fetch;
mod holder;
mod link;
pub mod mutants;
mod replica;
mod shelf;
mod sketch;
#[cfg(test)]
mod tests;

pub use cache::{Cache, Miss};
pub use holder::{Holder, HolderCounts, HolderOptions};
pub use replica::{
    BorrowedLease, CopiedValue, Epochs, MARGIN_NS, Replica, WriteId, answers, left_ms,
};
pub use shelf::CopyNote;

/// A time or a duration in nanoseconds of one machine's clock.
pub type Nanos = u64;
