//! What reads give back, and what a write may demand of what is there.
//!
//! [`crate::Answer`] makes values of replies; [`crate::Operation`] puts conditions into requests.

use std::time::Duration;

use bytes::Bytes;
use wire::{Flags, VERSION_ABSENT, VERSION_PRESENT};

/// What a read found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Value {
    /// The value.
    pub bytes: Bytes,
    /// Its version: rises with each write of the key.
    pub version: u64,
    /// What remained of its life when the answer left; `None`: it does not expire.
    pub expires_in: Option<Duration>,
    /// Whether a switch answered and not the store.
    pub from_switch: bool,
    /// Whether a copy answered that this client keeps ([`crate::Options::cache`]).
    pub from_copy: bool,
}

/// What a read found, without the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Length of the value in bytes.
    pub len: usize,
    /// As of [`Value::version`].
    pub version: u64,
    /// As of [`Value::expires_in`].
    pub expires_in: Option<Duration>,
    /// As of [`Value::from_switch`].
    pub from_switch: bool,
    /// As of [`Value::from_copy`].
    pub from_copy: bool,
}

/// What must hold for a write to take place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    #[default]
    Always,
    /// The key exists with exactly this version.
    Version(u64),
    /// There is no such key.
    Absent,
    /// The key exists, whatever its version.
    Present,
}

impl Condition {
    /// The flag and the version field of a packet that state it.
    pub fn in_header(self) -> (Flags, u64) {
        match self {
            Condition::Always => (Flags::NONE, 0),
            Condition::Version(version) => (Flags::COMPARE, version),
            Condition::Absent => (Flags::COMPARE, VERSION_ABSENT),
            Condition::Present => (Flags::COMPARE, VERSION_PRESENT),
        }
    }
}
