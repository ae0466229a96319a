//! The client library: `get`, `set`, `delete` and compare-and-set over UDP, with many requests
//! in flight.
//!
//! Calls come in through [`Client`], a handle that is cheap to clone; datagrams go out through one
//! socket per address family, and a task per socket matches the answers to the calls. Whether a
//! switch or a store answered makes no difference to the caller, except that [`Value::from_switch`]
//! says so. Applications, the gateway, the lab and `shortstop get|set|delete` call this crate; it
//! calls `wire` and `holder` only. What a discipline's own client library shares with it stands in
//! [`kit`].
//!
//! Every decision of a call (when to send again, what, until when, which datagram answers it) is
//! taken by a state machine without sockets or clocks. [`Client`] drives it; [`Machine`] is the
//! same for whoever has a network and a time of his own.
//!
//! With [`Options::cache`] a client keeps copies of what it reads most and answers from them, which
//! is never stale ("Holders at the clients' side" in `docs/coherence.md`); [`Value::from_copy`]
//! says so. With [`Options::seal`] keys are hidden and values sealed before anything else is done
//! with them, and opened last.
//!
//! A value that no packet holds travels in parts, several at a time ("Parts of values" in
//! `docs/protocol.md`); to the caller it is one call, which is linearizable as any other.
//!
//! What a call costs: one allocation for its datagram, one for the channel that its answer comes
//! through, one for the id that it waits under, one for a value that came; one hash of the key, two
//! tags. A retransmission of a write sends the same bytes again and so keeps the request id, by
//! which a store finds duplicates (rule 7 of `docs/coherence.md`). Paths that carry no whole packet
//! are noticed, and what is longer than they carry goes in parts ("Short paths" in
//! `docs/protocol.md`).

#![deny(unsafe_code)]

mod answer;
mod call;
mod client;
mod clock;
mod copies;
mod counters;
mod envelope;
mod error;
mod fit;
mod flow;
pub mod kit;
mod lives;
mod machine;
mod memory;
mod operation;
mod options;
mod paths;
mod payload;
mod port;
mod process;
mod pull;
mod push;
mod routes;
mod rules;
mod seal;
mod sizes;
#[cfg(test)]
mod tests;
mod timing;
mod value;
mod waiting;
mod window;

pub use answer::Answer;
pub use client::Client;
pub use counters::Counts;
pub use error::Error;
pub use machine::Machine;
pub use memory::{Memory, Reservation};
pub use operation::Operation;
pub use options::Options;
pub use seal::{HiddenKey, OpenError, Seal, SealKeyError, TenantSeal};
pub use value::{Condition, Metadata, Value};
