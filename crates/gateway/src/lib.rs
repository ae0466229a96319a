//! The gateway: Redis clients come in by TCP or TLS, unmodified, speaking RESP2 or RESP3. `loops`
//! are the event loops that serve them, each with a core of its own; a command leaves as it came,
//! to a store's RESP port or to the Redis behind it, or as a packet, which a switch on the way may
//! answer.
//!
//! Where there is no RESP port, or values are sealed, or keys are lent to switches, there are the
//! commands on strings, by packets alone: `strings` says what each of them does, and a loop does
//! it. The binary's `gateway` command calls [`run`].
//!
//! memcached clients come in by another port, and what they say leaves for the stores' memcached
//! ports: `memcached`.
//!
//! What a GET costs: a walk over its length lines, a place among its client's answers, one look
//! into the table of reads under way, and its share of one read and one write of each socket.

#![deny(unsafe_code)]

mod backend_address;
mod cluster_nodes;
mod counters;
mod info;
mod limits;
mod loops;
mod memcached;
mod metrics;
mod names;
mod network_use;
mod run;
mod shared;
mod stats;
mod strings;
mod targets;

pub use backend_address::BackendAddress;
pub use limits::Limits;
pub use memcached::MEMCACHED_LINKS;
pub use names::{Resolver, system_resolver};
pub use network_use::NetworkUse;
pub use run::{Config, run};
pub use tls::{ClientFiles, Identity, ServerFiles};
