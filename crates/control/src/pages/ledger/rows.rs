//! What the ledger writes down: one row per page that is not free, one per switch.

use api::types::PageId;
use decide::SwitchId;
use serde::{Deserialize, Serialize};

/// Why a tenant holds a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Its guaranteed share.
    Own,
    /// Idle memory, until its owner or a tenant with less needs it.
    Lent,
}

/// How a page is held. Times are seconds since 1970 by the wall clock, because they outlive
/// the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// By whom.
    pub tenant: u32,
    /// Why.
    pub kind: Kind,
    /// Since when.
    pub since_s: u64,
}

/// The state of a page that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum PageRow {
    /// A tenant has it.
    Held(Hold),
    /// It was taken from a tenant, and the switch has not confirmed yet that it is clear.
    Leaving {
        /// Whose items may still be in it.
        from: u32,
        /// The first version of the switch's table in which it is nobody's.
        version: u64,
    },
}

impl PageRow {
    /// Whose it is, or was until it was taken.
    pub fn tenant(&self) -> u32 {
        match self {
            PageRow::Held(hold) => hold.tenant,
            PageRow::Leaving { from, .. } => *from,
        }
    }
}

/// What is remembered of a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchRow {
    /// Pages of cache memory.
    pub pages: u32,
    /// Version of its table; never goes back.
    pub version: u64,
}

/// What changed since the last call of [`Ledger::take_changes`](super::Ledger::take_changes). To be
/// written as a whole or not at all, before any table that has these changes is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Switches with their rows.
    pub switches: Vec<(SwitchId, SwitchRow)>,
    /// Pages with their rows; none: the page is free, its row is to be removed.
    pub pages: Vec<(PageId, Option<PageRow>)>,
}

impl Changes {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.switches.is_empty() && self.pages.is_empty()
    }
}
