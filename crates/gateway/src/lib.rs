//! The gateway: Redis clients come in by TCP, unmodified, speaking RESP2 or RESP3; their reads and writes of keys go out by
//! `client` in shortstop's protocol, and so are answered by switches on the way where those have copies. What
//! no packet carries (long keys, large values) goes to the backends, which must be Redis, directly.
//!
//! One file per step of a command's way: `connection` reads bytes, `frame` makes words of them, `table` knows the commands,
//! `session` answers those about the connection, `job` carries out those on keys by `data`, which is `network`; `reply` turns answers into
//! bytes. The binary's `gateway` command calls [`run`]; this crate calls `client` and `wire` only.
//!
//! What a GET costs: one walk over its length lines and one decoding without copies, one box for its future,
//! one look into the table of busy keys, what `client` needs, one copy of the value into the buffer of
//! answers; and its share of one read and one write of the socket.

mod connection;
mod counters;
mod data;
mod direct;
#[cfg(test)]
mod fake;
mod frame;
mod info;
mod job;
mod limits;
mod memory;
mod network;
mod reply;
mod run;
mod server;
mod session;
mod table;

pub use direct::BackendAddress;
pub use limits::Limits;
pub use run::{Config, run};
