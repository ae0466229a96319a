//! The discipline `kvswitch`: hot keys have replicas at several stores, and the switch sends each
//! read to one of them, in turn.
//!
//! Paper: *Balancing Distributed Key-Value Stores with Efficient In-Network Redirecting*
//! (KVSwitch), Electronics 2019.
//!
//! Control half: [`controller`] decides how many replicas each key has, and at which stores. What
//! it puts behind a key is a [`record::Replicas`], what it says of each store a
//! [`servers::Server`]. Store half: what it tells stores to hold becomes holding.

mod control;
mod message;
pub mod parameters;
mod pipeline;
pub mod record;
pub mod servers;
mod settings;
mod store;

use std::ffi::c_void;

use decide::{Items, MapSize, Program, Registration, Role, Runs, StoreMaker, Totals};

pub use control::controller;
pub use pipeline::{PUBLISHED, pipeline};

/// The discipline's registration.
pub const REGISTRATION: Registration = Registration {
    name: "kvswitch",
    about: "keeps hot keys at several stores, and sends each read to one of them in turn",
    number: 3,
    items: Items::Copies,
    probation: None,
    runs: Runs::WherePages,
    settings: settings::ALL,
    options: &[],
    control: controller,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/kvswitch.bpf.o.zlib")),
    native: Some(kvswitch_unit),
    programs: &[
        Program { name: "kvswitch", role: Role::Step },
        Program { name: "kvswitch_update", role: Role::Step },
    ],
    maps_of: "kvswitch",
    maps: &[MapSize {
        name: servers::MAP,
        entries: |sizes| (sizes.pages * servers::EACH).clamp(64 * servers::EACH, 1 << 16),
    }],
    counters: include_str!("../counters.h"),
    totals: Totals::NONE,
    store: Some(StoreMaker {
        operations: &[],
        foreign_partitions: false,
        holds_copies: true,
        make: || Box::<store::Store>::default(),
    }),
    agent: None,
};

unsafe extern "C" {
    fn kvswitch_unit() -> *const c_void;
}
