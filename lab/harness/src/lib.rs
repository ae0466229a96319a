//! For tests only. Runs data-plane programs on packets, in the kernel, without an interface: a
//! packet goes in, verdict, packet and the counters that moved come out.
//!
//! A discipline's tests name its object when they make a [`Switch`], or a [`World`]: a switch with
//! stores, leases and items. [`check`] runs tables of [`Case`]s: one row is one packet, what was
//! there before, and what must come of it. Knows no discipline but [`TRIAL`], which uses what
//! `bpf/discipline.h` offers.
#![allow(missing_docs)] // names that tests read say it

mod case;
pub mod frame;
pub mod message;
pub mod namespace;
pub mod noise;
mod reuse;
mod snapshots;
pub mod story;
pub mod switch;
pub mod world;

pub use case::{Case, Expectation, check};
pub use frame::{Frame, SeenFrame};
pub use message::Message;
pub use snapshots::{Names, SavedParts, Snapshots};
pub use switch::{Run, Runner, Switch, Verdict};
pub use world::World;

/// The object of a discipline for tests (`bpf/trial.bpf.c`).
pub const TRIAL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/trial.bpf.o.zlib"));

/// That discipline under a number, its maps as large as its C says.
pub fn trial(number: u32) -> dataplane::Object {
    dataplane::Object {
        name: "trial",
        maps_of: "trial",
        number,
        elf: TRIAL,
        native: Some(TRIAL_NATIVE),
        steps: vec!["trial_first", "trial_round", "trial_counter"],
        egress: Some("trial_egress"),
        maps: vec![],
        counters: "",
    }
}

/// The object of a discipline that every kernel refuses (`bpf/refused.bpf.c`).
pub const REFUSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/refused.bpf.o.zlib"));

/// Bytes from hex digits, as the vectors have them.
pub fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(digit).collect()
}

unsafe extern "C" {
    fn trial_unit() -> *const std::ffi::c_void;
}

/// The same programs as native code.
pub const TRIAL_NATIVE: decide::Native = trial_unit;
