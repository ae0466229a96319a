//! Datagrams in batches: many in one system call, each with its own addresses.
//!
//! What is sent lies in the caller's memory, and what comes in is written there: nothing is copied
//! on the way, and nothing is allocated after a [`Sender`] or a [`Receiver`] was made. A datagram
//! costs what its headers take to fill in, some 100 bytes that stay in the processor's first cache,
//! and its share of one system call for [`BATCH`] of them.
//!
//! Whether a call waits is the socket's affair: one that was made non-blocking never does. The
//! sockets may be UDP's, connected or not, or packet sockets, whose datagrams are frames and leave
//! by an interface ([`Destination`]).
//!
//! The store sends its replies by this crate, a gateway asks by it, a soft switch sends and
//! receives its frames, and so do the load generator and the bench with their requests and answers.
//! What comes in as one datagram of several, or the local address that one was sent to, are for
//! `quinn-udp`, which those receive with that need them.

mod datagram;
mod name;
mod receiver;
mod sender;
mod slots;
#[cfg(test)]
mod tests;

pub use datagram::{Datagram, Destination};
pub use receiver::Receiver;
pub use sender::{Refusal, Sender};

/// Datagrams that one system call takes or brings, at most.
pub const BATCH: usize = 64;
