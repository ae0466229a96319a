//! Histories: what clients asked and were told, and whether one copy of each key could have answered so.
//!
//! [`clients`] runs concurrent clients that record every operation with the time of its call and of its return, on the
//! monotonic clock that all processes of a machine share. [`check`] decides, key by key, whether the history is
//! linearizable; [`shrink`] cuts a bad one down to what is needed to see it.
//!
//! Called by experiments, and by the binary's `lab clients`. Of the other crates it knows `wire` and `client`.

mod checker;
mod client;
mod shrink;

use serde::{Deserialize, Serialize};

pub use checker::{CHECKER, Verdict, check};
pub use client::{ClientsConfig, Recorded, clients};
pub use shrink::shrink;

/// What holds for a key when an operation takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// Anything.
    Any,
    /// There is no value.
    Absent,
    /// There is a value.
    Present,
    /// The value is this one. Every write of a history writes another.
    Value(u64),
}

/// What an operation does to its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing: it was a read, or its condition did not hold.
    Keep,
    /// Writes this value.
    Write(u64),
    /// Removes the value.
    Delete,
}

/// One operation of one client on one key. What it was told is in `need` and `effect`: a read that found 7 needs the value 7
/// and keeps it; a compare-and-set that succeeded needs the value that its version belonged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The client; its operations do not overlap.
    pub client: u32,
    /// The key's number.
    pub key: u32,
    /// When it was called, in nanoseconds of the monotonic clock.
    pub call_ns: u64,
    /// When it returned. None: its outcome is unknown; it may take effect at any time after its call, or never.
    pub return_ns: Option<u64>,
    /// What must hold at the moment of its effect.
    pub need: Need,
    /// Its effect.
    pub effect: Effect,
}

impl Need {
    /// Whether it is met by this state of a key.
    pub fn is_met(self, state: Option<u64>) -> bool {
        match self {
            Need::Any => true,
            Need::Absent => state.is_none(),
            Need::Present => state.is_some(),
            Need::Value(value) => state == Some(value),
        }
    }
}
