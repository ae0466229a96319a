//! The gateway: Redis clients come in by TCP, unmodified, speaking RESP2 or RESP3; their reads and
//! writes of keys go out by `client` in shortstop's protocol, and so are answered by switches on
//! the way where those have copies. Keys that no packet carries go to the backends, which must be
//! Redis, directly.
//!
//! With a store's RESP port (`--resp`) every command is Redis's: `loops` are the event loops that
//! pass them on. Without it there are the commands on strings, by packets alone, as follows.
//!
//! `server` takes connections, [`resp`] makes commands of their bytes and carries them out by
//! `data`, which is `network`. The binary's `gateway` command calls [`run`]; this crate calls
//! `client` and `wire` only.
//!
//! What a GET costs: one walk over its length lines and one decoding without copies, one box for
//! its future, one look into the table of busy keys, what `client` needs, one copy of the value
//! into the buffer of answers; and its share of one read and one write of the socket.

#![deny(unsafe_code)]

mod backend_address;
mod counters;
mod info;
mod limits;
mod loops;
mod network_use;
pub mod resp;
mod run;
mod server;
mod shared;
mod stats;
mod strings;
mod targets;

pub use backend_address::BackendAddress;
pub use limits::Limits;
pub use network_use::NetworkUse;
pub use run::{Config, run};
pub use tls::{ClientFiles, Identity, ServerFiles};
