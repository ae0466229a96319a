//! Histories: what clients asked and were told, and whether one copy of each key could have
//! answered so.
//!
//! A [`Recorder`] is one client that records every operation with the time of its call and of its
//! return; it asks through whoever drives it. [`clients`] drives many at the same time, on the
//! monotonic clock that all processes of a machine share. [`check`] decides, key by key, whether
//! the history is linearizable; [`shrink`] cuts a bad one down to what is needed to see it;
//! [`stale_reads`] counts.
//!
//! Called by experiments, and by `shortstop-lab clients`. Of the other crates it knows `wire`,
//! `client` and `seed`.

#![deny(unsafe_code)]

mod checker;
mod client;
mod commands;
mod config;
mod indices;
mod recorder;
mod shrink;
mod stale;
mod until_told;
mod values;

use serde::{Deserialize, Serialize};

pub use checker::{CHECKER, Verdict, check, check_within};
pub use client::{Connection, clients, clients_of, now_ns};
pub use commands::{
    CommandClientsConfig, CommandQuestion, CommandRecorder, CommandReplies, CommandsConfig, KINDS,
    command_clients,
};
pub use config::{ClientsConfig, Lives};
pub use recorder::{ClientRecord, Question, Recorder};
pub use shrink::shrink;
pub use stale::stale_reads;

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
    /// Appends this number to the value, or to none. Another number each time.
    Append(u64),
    /// Adds this to a counter, or to none; nothing, where the value is no counter. Another number
    /// each time.
    Add(u64),
}

impl Effect {
    /// What is there after it; `None`: it cannot take place here.
    pub fn on(self, state: Option<u64>) -> Option<Option<u64>> {
        match self {
            Effect::Keep => Some(state),
            Effect::Write(value) => Some(Some(value)),
            Effect::Delete => Some(None),
            Effect::Append(number) => Some(Some(values::appended(state, number))),
            Effect::Add(number) => match state.map(values::counted) {
                None => Some(Some(values::counter(number))),
                Some(Some(before)) => Some(Some(values::counter(before.wrapping_add(number)))),
                Some(None) => None,
            },
        }
    }

    /// Whether what is there after it depends on what was there before.
    pub fn derives(self) -> bool {
        matches!(self, Effect::Append(_) | Effect::Add(_))
    }
}

/// One operation of one client on one key. What it was told is in `need` and `effect`: a read that
/// found 7 needs the value 7 and keeps it; a compare-and-set that succeeded needs the value that
/// its version belonged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operation {
    /// The client; its operations do not overlap.
    pub client: u32,
    /// The key's number.
    pub key: u32,
    /// When it was called, in nanoseconds of the monotonic clock.
    pub call_ns: u64,
    /// When it returned. None: its outcome is unknown; it may take effect at any time after its
    /// call, or never.
    pub return_ns: Option<u64>,
    /// What must hold at the moment of its effect.
    pub need: Need,
    /// Its effect.
    pub effect: Effect,
    /// For a write whose value lives for a while only: when that ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapse: Option<Lapse>,
}

/// When a written value goes by itself, as far as a client can tell: at some moment between two. A
/// copy may be served until the later one, by a clock that differs from the store's, unless
/// something else is written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lapse {
    /// It may be gone from then on, in nanoseconds of the operations' clock.
    pub from_ns: u64,
    /// Nobody reads it any more after then. None: it may stay, because it is unknown when it
    /// was written.
    pub until_ns: Option<u64>,
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
