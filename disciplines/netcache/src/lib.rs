//! The discipline `netcache`: the switch answers the hottest keys itself.
//!
//! Control half: [`controller`] takes in what switches report and decides which items each of them caches. Disciplines that
//! serve from the same data plane and decide otherwise build on [`SwitchCache`] and [`Caches`].

mod caches;
mod capacity;
mod controller;
mod demand;
mod estimate;
mod switch;
mod table;
mod threshold;

pub use caches::{Caches, by_tenant};
pub use controller::{Controller, controller};
pub use switch::{Elsewhere, SwitchCache};

/// Name of the XDP program in [`OBJECT`].
pub const PROGRAM: &str = "netcache";

/// The data-plane half: a BPF object with the XDP program [`PROGRAM`].
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/netcache.bpf.o"));
