use std::net::SocketAddr;

use bytes::Bytes;
use wire::{Header, KeyHash};

use crate::Configuration;

/// The half of a discipline in a switch's agent: what must be done beside the programs and cannot wait for the controller. What
/// happened goes in, what is to be done comes out. One instance serves all tenants of a switch, of every discipline that shares
/// its programs; it ends with the agent, and programs go on without it.
pub trait AgentHalf: Send {
    /// Takes in what happened at `now_ns`, of the clock that the programs read, and appends what is to be done to `out`.
    fn on(&mut self, now_ns: u64, event: AgentEvent<'_>, out: &mut Vec<AgentAction>);
}

/// What happened at a switch.
#[derive(Clone, Copy, Debug)]
pub enum AgentEvent<'a> {
    /// This configuration of a tenant is in force, and no program goes by an earlier one any longer.
    Configured {
        /// Whose.
        tenant: u32,
        /// Its place in arrays that have one element for each tenant (`work->place` in `bpf/`). Another one comes with a new
        /// event.
        place: u32,
        /// All of it.
        configuration: &'a Configuration,
    },
    /// The control half sent a message. May come twice.
    Told {
        /// About which tenant.
        tenant: u32,
        /// The message.
        message: &'a [u8],
    },
    /// A packet came to the socket that [`AgentAction::Send`] sends from. Its tag is right: another switch made it.
    Packet {
        /// Who sent it.
        from: SocketAddr,
        /// Its header.
        header: &'a Header,
        /// Its key.
        key: &'a [u8],
        /// Its value.
        value: &'a [u8],
    },
    /// The answer to [`AgentAction::Look`], of the same round.
    Row {
        /// The map.
        map: &'a str,
        /// The row's key.
        key: &'a [u8],
        /// Its value; none: there is no such row.
        value: Option<&'a [u8]>,
    },
    /// An item that [`AgentAction::Walk`] came by, as its record was at one moment.
    Item {
        /// Whose.
        tenant: u32,
        /// Its key.
        key: &'a [u8],
        /// The key's hash.
        hash: KeyHash,
        /// Its record.
        record: &'a [u8],
    },
    /// A walk is over, as far as it was to go.
    ItemsEnd {
        /// Whose.
        tenant: u32,
        /// Where the next walk goes on; none: there are no more. Items that come meanwhile may be behind.
        next: Option<u32>,
    },
    /// A tenant is gone from this switch. Nothing of it may be kept.
    Left {
        /// Which.
        tenant: u32,
    },
    /// Time passed; comes every 20 ms.
    Tick,
}

/// What the agent should do.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAction {
    /// Send a packet in the name of this switch, signed with the system's secret; lost ones are the discipline's to repeat.
    Send {
        /// Where to.
        to: SocketAddr,
        /// The header; its hash and tag are made by the agent.
        header: Header,
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Read a row of one of the discipline's own maps: [`AgentEvent::Row`].
    Look {
        /// The map.
        map: &'static str,
        /// The row's key; the index of an array.
        key: Bytes,
    },
    /// Go through a tenant's items as they lie in the table, `most` of them: [`AgentEvent::Item`] and [`AgentEvent::ItemsEnd`].
    Walk {
        /// Whose.
        tenant: u32,
        /// 0, or where the walk before ended.
        from: u32,
        /// How many.
        most: usize,
    },
    /// Tell the control half something about a tenant. It is lost if there is no stream, or no room: what matters is told again.
    Report {
        /// About which tenant.
        tenant: u32,
        /// What [`crate::Event::SwitchReported`] brings; at most [`crate::MESSAGE_MAX`] bytes.
        report: Bytes,
    },
}
