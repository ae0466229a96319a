//! The client library: `get`, `set`, `delete` and compare-and-set over UDP, with many requests in flight.
//!
//! Calls come in through [`Client`], a handle that is cheap to clone; datagrams go out through one socket
//! per address family, and a task per socket matches the answers to the calls. Whether a switch or a store
//! answered makes no difference to the caller, except that [`Value::from_switch`] says so.
//! Applications, the gateway, the lab and `shortstop get|set|delete` call this crate; it calls `wire` only.
//!
//! With [`Options::seal`] keys are hidden and values sealed before anything else is done with them, and opened last.
//!
//! What a call costs: one allocation for its datagram, one for the channel that its answer comes through,
//! one for a value that came; one hash of the key, two tags. A retransmission sends the same bytes again
//! and so keeps the request id, by which a store finds duplicates (rule 7 of `docs/coherence.md`).

mod client;
mod counters;
mod envelope;
mod error;
mod options;
mod port;
mod request;
mod routes;
mod seal;
mod timing;
mod value;
mod window;

pub use client::Client;
pub use counters::Counts;
pub use error::Error;
pub use options::Options;
pub use seal::{HiddenKey, NotOpened, Seal, SealKeyError, TenantSeal};
pub use value::{Condition, Value};
