//! Which of the two protocols a chain speaks.

use serde::{Deserialize, Serialize};

/// The two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Each member answers reads.
    Netcraq,
    /// The tail does.
    Netchain,
}

impl Protocol {
    /// Both; in grey in plots the first, as what others are held against is everywhere.
    pub const ALL: [Protocol; 2] = [Protocol::Netchain, Protocol::Netcraq];

    /// Its discipline.
    pub const fn name(self) -> &'static str {
        match self {
            Protocol::Netcraq => "netcraq",
            Protocol::Netchain => "netchain",
        }
    }
}
