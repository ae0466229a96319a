//! The discipline `orbitcache`: values of hot keys go round in the switch as packets, and answer reads that wait for them.
//!
//! Paper: *Pushing the Limits of In-Network Caching for Key-Value Stores* (OrbitCache), NSDI 2025.

mod controller;

use std::ffi::c_void;

use decide::{Items, Program, Registration, Role, Runs};

pub use controller::controller;

/// How it registers.
pub const REGISTRATION: Registration = Registration {
    name: "orbitcache",
    about: "sends the hottest values round in the switch as packets, which answer the reads that wait for them",
    number: 2,
    items: Items::Copies,
    settings: &[],
    runs: Runs::WherePages,
    settings: &[],
    control: controller,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/orbitcache.bpf.o")),
    native: Some(orbitcache_unit),
    programs: &[
        Program {
            name: "orbitcache",
            role: Role::Step,
        },
        Program {
            name: "orbitcache_round",
            role: Role::Step,
        },
    ],
    maps: &[],
    store: None,
};

unsafe extern "C" {
    fn orbitcache_unit() -> *const c_void;
}
