//! The discipline `orbitcache`: values of hot keys go round in the switch as packets, and answer
//! reads that wait for them.
//!
//! Paper: *Pushing the Limits of In-Network Caching for Key-Value Stores* (OrbitCache), NSDI 2025.
//!
//! Control half: [`controller`] decides which items each switch has, and how many of all tenants'
//! go round there at most. Store half: counts the reads that reach the store, and reports the keys
//! that most of them are for.

mod cache;
mod controller;
mod report;
mod settings;
mod share;
mod size;
mod sketch;
mod store;
mod top;
mod watch;

use std::ffi::c_void;

use decide::{Items, Program, Registration, Role, Runs, StoreMaker, Totals};

pub use controller::controller;

/// The discipline's registration.
pub const REGISTRATION: Registration = Registration {
    name: "orbitcache",
    about: "sends the hottest values round in the switch as packets, which answer the reads that wait for them",
    number: 2,
    items: Items::Copies,
    probation: None,
    runs: Runs::WherePages,
    settings: settings::ALL,
    options: &[],
    control: controller,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/orbitcache.bpf.o.zlib")),
    native: Some(orbitcache_unit),
    programs: &[
        Program { name: "orbitcache", role: Role::Step },
        Program { name: "orbitcache_round", role: Role::Step },
    ],
    maps_of: "orbitcache",
    maps: &[],
    counters: include_str!("../counters.h"),
    totals: Totals {
        hits: &["wake", "wake_parts", "hit_round"],
        overflows: &["wait_full"],
        misses: &["wait_late", "wait_no_room", "wait_gone"],
        // What goes round for one read in parts ends with it.
        rounds_begun: &["wake", "wake_grant"],
        rounds_ended: &["round_stale", "round_gone", "round_lapsed", "round_lost", "round_parked"],
        rounds_parked: &["round_parked"],
    },
    store: Some(StoreMaker {
        operations: &[],
        foreign_partitions: false,
        holds_copies: false,
        make: || Box::<store::Store>::default(),
    }),
    agent: None,
};

unsafe extern "C" {
    fn orbitcache_unit() -> *const c_void;
}
