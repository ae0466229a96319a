//! Load: what clients ask for ([`workload`]), the generator, and the search for the rate that a
//! rack can just carry ([`search`], held against the analytic [`model`]). Called by experiments and
//! by `shortstop-lab load`.
//!
//! The generator: what it is told ([`LoadConfig`], [`Phase`]), what it measures ([`PhaseResult`]),
//! and between the two a [`Source`] of requests, without sockets or clocks, for whoever has a
//! network of his own. On sockets it is the `Generator`: a process of its own inside a client's
//! namespace, which experiments steer phase by phase over its standard input, one JSON document per
//! line each way.
//!
//! A discipline whose clients are not those of stores has generators of its own, out of the same
//! parts: a [`Lane`] of datagrams, and [`Latency`].
//!
//! Key spaces of more than [`workload::MOST_IN_MEMORY`] keys need no memory per key: names, hashes
//! and ranks are computed.
//!
//! Cost aimed at per request on one core: one draw of a rank (a few powers), one copy of some 200
//! bytes, 1/32 of a `sendmmsg`, 1/64 of a `recvmmsg`: below 6 us, so 150,000 requests a second.

mod batch;
mod config;
mod each_key;
mod forge;
mod generator;
mod lives;
pub mod model;
mod results;
mod retries;
pub mod search;
mod source;
mod tenant;
#[cfg(test)]
mod tests;
mod trace;
mod versions;
mod window;
pub mod workload;
mod writes;

pub use batch::Lane;
pub use config::{Arrivals, ChurnSchedule, LoadConfig, Phase, PhaseKind, gap_ns};
pub use forge::Attack;
pub use generator::{Generator, IDLE_NS, SPIN_NS, run, run_phases};
pub use results::{
    Interval, Latency, PhaseResult, ServedBy, TenantResult, Times, Waits, histogram,
};
pub use source::Source;
pub use trace::{Trace, TraceRequest, TraceSpec, TraceTally};
