//! Keys that are kept in switches alone, each in several of them, which agree on every value: chain
//! replication.
//!
//! Two disciplines, which share everything: `netcraq`, where each member of a chain answers reads
//! (*NetCRAQ*), and `netchain`, where the last one does (*NetChain: Scale-Free Sub-RTT
//! Coordination*, NSDI 2018).
//!
//! What a switch knows of a tenant's chains is one row, a [`view::View`]. What stands behind a key
//! is a [`record::KeyRecord`], behind a client's session a [`record::SessionRecord`]. What members
//! say to each other is in [`packets`].

mod agent;
mod control;
pub mod packets;
pub mod record;
pub mod report;
pub mod snapshot;
pub mod state;
pub mod tallies;
pub mod view;

use std::ffi::c_void;

pub use control::ranked;

use decide::{Items, MapSize, Program, Registration, Role, Runs, Totals};

/// How the discipline registers whose reads any member answers.
pub const NETCRAQ: Registration = Registration {
    name: "netcraq",
    about: "keeps keys in chains of switches, each of which answers reads",
    number: 4,
    items: Items::Truth,
    probation: None,
    runs: Runs::WherePages,
    settings: &[],
    options: control::OPTIONS,
    control: control::netcraq,
    object: include_bytes!(concat!(env!("OUT_DIR"), "/chain.bpf.o.zlib")),
    native: Some(chain_unit),
    programs: PROGRAMS,
    maps_of: "chain",
    maps: &[
        MapSize { name: view::MAP, entries: |sizes| sizes.pages.max(64) },
        MapSize { name: view::FULL, entries: |sizes| sizes.pages.max(64) * view::FULL_ROWS },
    ],
    counters: include_str!("../counters.h"),
    totals: Totals::NONE,
    store: None,
    agent: Some(agent::agent),
};

/// How the discipline registers whose reads the last member of a chain answers.
pub const NETCHAIN: Registration = Registration {
    name: "netchain",
    about: "keeps keys in chains of switches, the last of which answers reads",
    number: 5,
    control: control::netchain,
    ..NETCRAQ
};

const fn step(name: &'static str) -> Program {
    Program { name, role: Role::Step }
}

const PROGRAMS: &[Program] = &[
    step("chain"),
    step("chain_round"),
    step("chain_write"),
    step("chain_pass"),
    step("chain_read"),
    step("chain_repair"),
    step("chain_copy"),
    step("chain_stream"),
];

unsafe extern "C" {
    fn chain_unit() -> *const c_void;
}
