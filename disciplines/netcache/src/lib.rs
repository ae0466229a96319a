//! The discipline `netcache`: the switch answers the hottest keys itself.
//!
//! Control half: [`controller`] takes in what switches report and decides which items each of them caches.

mod controller;
mod estimate;
mod switch;
mod table;
mod threshold;

pub use controller::{Controller, controller};

/// The data-plane half: a BPF object with the XDP program `netcache`.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/netcache.bpf.o"));
