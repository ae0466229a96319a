//! What happens to a control half, where it takes more than a word to say: the arguments of the
//! methods of [`crate::Discipline`]. Counts are requests as the switch counts them (sampled, if it
//! samples).

use std::net::IpAddr;

use crate::{Change, Key, SwitchId};

/// Numbers that a discipline's programs may count of each tenant (`tally` in `bpf/`).
pub const TALLIES: usize = 136;

/// What the programs counted of a tenant. The meaning of each number is the discipline's affair.
pub type Tallies = [u64; TALLIES];

/// How a switch answered a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Applied, now or before.
    Done,
    /// The tenant's pages have no free cells.
    NoRoom,
    /// The key's bucket of the lookup table is full.
    BucketFull,
    /// Its record does not begin as [`Change::RemoveIf`] said: nothing was done.
    Changed,
    /// The tenant is unknown, the key or record has a bad length, or the discipline's items cannot
    /// have such a record.
    Refused,
    /// Not sent at all: too many changes wait for this switch. Worth asking again on a later event,
    /// but not in answer to this one.
    NotSent,
}

/// A tenant's memory on one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The switch.
    pub switch: SwitchId,
    /// Its pages of that switch, own and borrowed ones.
    pub pages: u32,
    /// The borrowed ones among them: idle memory that its owner, or who is short of it, may take
    /// back at any time.
    pub lent: u32,
    /// The parameter words of the configuration that was last asked for there, by an earlier
    /// controller perhaps.
    pub parameters: Option<[u32; crate::PARAMETERS]>,
}

/// A life of a switch, from when its tables are made until they are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// The switch.
    pub switch: SwitchId,
    /// The life's number, drawn when the tables were made. Another number than before means that
    /// the switch has lost everything, configurations too. 0: the switch does not say.
    pub number: u64,
    /// Where packets for the switch itself go, if it has such an address.
    pub address: Option<IpAddr>,
}

/// What a switch that attached has of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct Inventory<'a> {
    /// The switch.
    pub switch: SwitchId,
    /// The tenant.
    pub tenant: u32,
    /// All keys whose items the switch has.
    pub held: &'a [Key],
    /// The keys whose items it was believed to have and has not: it lost them.
    pub lost: &'a [Key],
}

/// Missed keys whose count in a window crossed the threshold, or rose well beyond the last report.
/// With programs that count them, keys of items as well, with the reads that these did not answer.
#[derive(Clone, Copy, Debug)]
pub struct HotKeys<'a> {
    /// The switch that reports them.
    pub switch: SwitchId,
    /// The tenant.
    pub tenant: u32,
    /// The window's number.
    pub window: u64,
    /// The keys with the estimated requests in this window so far.
    pub keys: &'a [(Key, u64)],
}

/// The end of a window on a switch, for one of the tenants that may use it.
#[derive(Clone, Copy, Debug)]
pub struct WindowEnd<'a> {
    /// The switch.
    pub switch: SwitchId,
    /// The tenant.
    pub tenant: u32,
    /// The number of the window that ended.
    pub window: u64,
    /// The tenant's items with their requests in the window; those that are not listed had none.
    pub items: &'a [(Key, u64)],
    /// What the discipline's programs counted of the tenant in the window.
    pub tallies: &'a Tallies,
}

/// A switch's answer to [`crate::Action::Change`].
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The switch.
    pub switch: SwitchId,
    /// The tenant that has the item.
    pub tenant: u32,
    /// The item's key.
    pub key: &'a Key,
    /// The change that was asked for.
    pub change: &'a Change,
    /// What became of it.
    pub outcome: Outcome,
}

/// Items that a switch gave up by itself; never those of [`crate::Items::Truth`].
#[derive(Clone, Copy, Debug)]
pub struct Eviction<'a> {
    /// The switch.
    pub switch: SwitchId,
    /// The tenant.
    pub tenant: u32,
    /// The items' keys.
    pub keys: &'a [Key],
    /// Whether they cannot be cached: there is no value, or none that a switch holds. Others only
    /// found no room, or do not fit the tenant's setup any longer.
    pub unfit: bool,
}
