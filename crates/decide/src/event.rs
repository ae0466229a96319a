use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use bytes::Bytes;

use crate::{Change, Key, Settings, Stores, SwitchId};

/// How long a controller that is to stop waits for those who answer [`crate::Action::NotYet`].
pub const ENDING_WITHIN: Duration = Duration::from_secs(2);

/// Numbers that a discipline's programs may count of each tenant (`tally` in `bpf/`).
pub const TALLIES: usize = 136;

/// What they came to; what each means is the discipline's affair.
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
    /// Unknown tenant, a key or record of a bad length, or a record that the discipline's items cannot have.
    Refused,
    /// Not sent at all: too many changes wait for this switch. Worth asking again on a later event, but
    /// not in answer to this one.
    NotSent,
}

/// A tenant's memory on one switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// The switch.
    pub switch: SwitchId,
    /// Pages, its own and borrowed ones.
    pub pages: u32,
    /// Of these, borrowed: idle memory that its owner, or who is short of it, may take back at any time.
    pub lent: u32,
    /// The parameter words of the configuration that was last asked for there, by an earlier controller perhaps.
    pub parameters: Option<[u32; crate::PARAMETERS]>,
}

/// What happened. Each event is about one tenant, or about a switch as such. Counts are requests as the switch counts
/// them (sampled, if it samples).
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// What a switch says of itself; comes before each [`Event::Attached`].
    Life {
        /// Which.
        switch: SwitchId,
        /// Drawn when its tables were made: another number means that it has lost everything, configurations too. 0: not told.
        life: u64,
        /// Where packets for the switch itself go, if it has such an address.
        address: Option<IpAddr>,
    },
    /// The switch attached, for the first time or again. One [`Event::Holds`] follows for each tenant that may use it.
    Attached {
        /// Which.
        switch: SwitchId,
    },
    /// The switch's stream ended: it is gone, or cut off, or its agent restarts. Nothing can be asked of it until it
    /// attaches again. Its programs may go on serving.
    Detached {
        /// Which.
        switch: SwitchId,
    },
    /// The link between two switches came or went, as either end tells.
    Link {
        /// The ends, the lower number first.
        ends: (SwitchId, SwitchId),
        /// Whether it is there.
        up: bool,
    },
    /// What a switch that attached has of a tenant.
    Holds {
        /// Which switch.
        switch: SwitchId,
        /// Whose.
        tenant: u32,
        /// Everything that it has.
        held: &'a [Key],
        /// What it was believed to have and has not: lost by the switch.
        lost: &'a [Key],
    },
    /// A tenant's memory changed: all its switches, in the order in which its placement policy fills them. A switch that
    /// is not listed any longer holds nothing of it. Comes before a switch's [`Event::Attached`] and again whenever it changes;
    /// without any room when the tenant is gone.
    Room {
        /// Whose.
        tenant: u32,
        /// Where, and how much.
        rooms: &'a [Room],
    },
    /// Missed keys whose count in this window crossed the threshold or rose well beyond the last report; with programs that count them, keys
    /// of items as well, with the reads that these did not answer.
    Hot {
        /// Where.
        switch: SwitchId,
        /// Whose.
        tenant: u32,
        /// Number of the window.
        window: u64,
        /// Keys with the estimated requests in this window so far.
        keys: &'a [(Key, u64)],
    },
    /// A window ended. Comes for each tenant that may use the switch; its items that are not listed had no request in it.
    WindowEnd {
        /// Where.
        switch: SwitchId,
        /// Whose.
        tenant: u32,
        /// Number of the window that ended.
        window: u64,
        /// Items with their requests in the window.
        items: &'a [(Key, u64)],
        /// What the discipline's programs counted of the tenant in the window.
        tallies: &'a Tallies,
    },
    /// A change was answered.
    Answered {
        /// Where.
        switch: SwitchId,
        /// Whose item.
        tenant: u32,
        /// Its key.
        key: &'a Key,
        /// What had been asked.
        change: &'a Change,
        /// The answer.
        outcome: Outcome,
    },
    /// The switch gave items up by itself; never those of [`crate::Items::Truth`].
    Dropped {
        /// Where.
        switch: SwitchId,
        /// Whose.
        tenant: u32,
        /// The items.
        keys: &'a [Key],
        /// Whether they cannot be cached: there is no value, or none that a switch holds. Others only found no room, or do
        /// not fit the tenant's setup any longer.
        unfit: bool,
    },
    /// The configuration that was last asked for is in force: no program goes by an earlier one any longer.
    Configured {
        /// Where.
        switch: SwitchId,
        /// Whose.
        tenant: u32,
    },
    /// The stores and how a tenant's keys lie on them. Comes before the tenant's first [`Event::Room`] and again whenever it changes; a
    /// tenant without rooms may be forgotten, for it comes again before they do.
    Stores {
        /// Whose.
        tenant: u32,
        /// All stores of the cluster.
        stores: &'a Stores,
    },
    /// A store can be told something: its stream began. What it was told in an earlier life it may have forgotten.
    StoreAttached {
        /// Which, by its address in the cluster file.
        store: SocketAddr,
    },
    /// A store's stream ended: it is gone, or cut off, or restarts. What it is told waits until it attaches again. It may go on
    /// serving.
    StoreDetached {
        /// Which, by its address in the cluster file.
        store: SocketAddr,
    },
    /// A store has every message about a tenant that it was sent. Comes when the last of them was acknowledged.
    Told {
        /// Which, by its address in the cluster file.
        store: SocketAddr,
        /// About which tenant.
        tenant: u32,
    },
    /// The discipline's half in a store reports: its load, hot keys, what was done.
    Reported {
        /// Which, by its address in the cluster file.
        store: SocketAddr,
        /// About which tenant.
        tenant: u32,
        /// What [`crate::StoreAction::Report`] said.
        report: &'a [u8],
    },
    /// What was remembered last of a tenant ([`crate::Action::Remember`]), by this discipline or one that shares its programs; nothing if
    /// nothing was. Comes before the tenant's first [`Event::Room`] under this discipline.
    Remembered {
        /// Whose.
        tenant: u32,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// What was kept of a tenant's keys ([`crate::Action::Keep`]), in their order. Comes right after [`Event::Remembered`], if there is anything.
    Kept {
        /// Whose.
        tenant: u32,
        /// Keys, and what is kept of each.
        kept: &'a [(Key, Bytes)],
    },
    /// A tenant's options, in the order in which the discipline registers them; the usual ones where nothing is said. Comes before the
    /// tenant's first [`Event::Room`] and again whenever one changes.
    Options {
        /// Whose.
        tenant: u32,
        /// All of them.
        options: Settings,
    },
    /// The discipline's half in a switch's agent reports.
    SwitchReported {
        /// Which.
        switch: SwitchId,
        /// About which tenant.
        tenant: u32,
        /// What [`crate::AgentAction::Report`] said.
        report: &'a [u8],
    },
    /// Time passed; comes some ten times a second.
    Tick,
    /// The controller is asked to stop. Comes again and again, for [`ENDING_WITHIN`] at most, as long as somebody answers
    /// [`crate::Action::NotYet`]: what is to be had of switches or stores can be asked for a last time. What is to be kept is
    /// written before the controller ends.
    Ending,
}
