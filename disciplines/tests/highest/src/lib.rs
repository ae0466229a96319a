//! The discipline `highest`: for each key the highest number that anybody said, in the switch and
//! nowhere else.
//!
//! A client says a number in `version` of a [`wire::Op::DisciplineRequest`] and gets back the
//! highest so far. Bids, water marks, the newest of many versions. A key that the switch does not
//! have yet passes on to the key's store: its half ([`store`]) tells the control half
//! ([`control`]), which makes the item; until then the client is asked to try again.

pub mod control;
pub mod store;

use decide::{Items, MapSize, Program, Registration, Role, Runs, StoreMaker, Totals};
use wire::Op;

unsafe extern "C" {
    /// The same programs as native code.
    fn highest_unit() -> *const std::ffi::c_void;
}

/// How the rest of the system learns of it.
pub const REGISTRATION: Registration = Registration {
    name: "highest",
    about: "keeps the highest number that was said for a key",
    number: 8,
    items: Items::Truth,
    probation: None,
    runs: Runs::WherePages,
    settings: &[],
    options: &[],
    control: |_| Box::<control::Control>::default(),
    object: include_bytes!(concat!(env!("OUT_DIR"), "/highest.bpf.o.zlib")),
    native: Some(highest_unit),
    programs: &[
        Program { name: "highest", role: Role::Step },
        Program { name: "highest_raise", role: Role::Step },
    ],
    maps_of: "highest",
    maps: &[MapSize { name: "highest_ceilings", entries: |sizes| sizes.pages.max(16) }],
    counters: include_str!("../counters.h"),
    totals: Totals::NONE,
    store: Some(StoreMaker {
        operations: &[Op::DisciplineRequest],
        foreign_partitions: false,
        holds_copies: false,
        make: || Box::new(store::Store),
    }),
    agent: None,
};
