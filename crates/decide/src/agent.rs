//! The half of a discipline in a switch's agent.

use std::net::SocketAddr;

use bytes::Bytes;
use wire::{Header, KeyHash, Packet};

use crate::Configuration;

/// The half of a discipline in a switch's agent: what must be done beside the programs and cannot
/// wait for the controller. One instance serves all tenants of a switch, of every discipline that
/// shares its programs; it ends with the agent, and programs go on without it.
///
/// Each method takes in what happened at `now_ns`, of the clock that the programs read, and appends
/// what is to be done to `out`. A method that a half does not write does nothing.
pub trait AgentHalf: Send {
    /// A configuration of a tenant is in force, and no program goes by an earlier one any longer.
    /// `place` is the tenant's in arrays that have one element for each tenant (`work->place` in
    /// `bpf/`); another place comes with a new event.
    fn configured(
        &mut self,
        _now_ns: u64,
        _tenant: u32,
        _place: u32,
        _configuration: &Configuration,
        _out: &mut Vec<AgentAction>,
    ) {
    }

    /// The control half sent a message about a tenant. It may come twice.
    fn told(&mut self, _now_ns: u64, _tenant: u32, _message: &[u8], _out: &mut Vec<AgentAction>) {}

    /// A packet came to the socket that [`AgentAction::Send`] sends from. Its tag is right: another
    /// switch made it.
    fn packet(
        &mut self,
        _now_ns: u64,
        _from: SocketAddr,
        _packet: &Packet<'_>,
        _out: &mut Vec<AgentAction>,
    ) {
    }

    /// The answer to [`AgentAction::Look`], of the same round: the value of the row of `map` under
    /// `key`, or none if there is no such row.
    fn row(
        &mut self,
        _now_ns: u64,
        _map: &str,
        _key: &[u8],
        _value: Option<&[u8]>,
        _out: &mut Vec<AgentAction>,
    ) {
    }

    /// [`AgentAction::Walk`] came by an item.
    fn item(&mut self, _now_ns: u64, _item: Item<'_>, _out: &mut Vec<AgentAction>) {}

    /// A walk through a tenant's items is over, as far as it was to go. `next` is where the next
    /// walk goes on; none: there are no more. Items that come meanwhile may be behind.
    fn items_end(
        &mut self,
        _now_ns: u64,
        _tenant: u32,
        _next: Option<u32>,
        _out: &mut Vec<AgentAction>,
    ) {
    }

    /// A tenant is gone from this switch. Nothing of it may be kept.
    fn left(&mut self, _now_ns: u64, _tenant: u32, _out: &mut Vec<AgentAction>) {}

    /// The switch is to leave in order: what others rely on here is to be handed on. It goes on as
    /// before while [`AgentHalf::is_needed`], for some seconds at most.
    fn leave(&mut self, _now_ns: u64, _out: &mut Vec<AgentAction>) {}

    /// Whether others would miss this switch, after [`AgentHalf::leave`].
    fn is_needed(&self) -> bool {
        false
    }

    /// Time passed; comes every 20 ms.
    fn tick(&mut self, _now_ns: u64, _out: &mut Vec<AgentAction>) {}
}

/// An item in a switch's table, as its record was at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// The tenant that has it.
    pub tenant: u32,
    /// Its key.
    pub key: &'a [u8],
    /// The key's hash.
    pub hash: KeyHash,
    /// Its record; `None`: programs kept changing it, so that there was no such moment. The item
    /// is there all the same, and the next walk comes by it again.
    pub record: Option<&'a [u8]>,
}

/// What the agent should do.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAction {
    /// Send a packet in the name of this switch, signed with the system's secret; lost ones are the
    /// discipline's to repeat.
    Send {
        /// The receiver.
        to: SocketAddr,
        /// The header; its hash and tag are made by the agent.
        header: Header,
        /// The key.
        key: Bytes,
        /// The value.
        value: Bytes,
    },
    /// Read a row of one of the discipline's own maps: [`AgentHalf::row`] brings it.
    Look {
        /// The map.
        map: &'static str,
        /// The row's key; the index of an array.
        key: Bytes,
    },
    /// Go through a tenant's items as they lie in the table: [`AgentHalf::item`] brings each of
    /// them, and [`AgentHalf::items_end`] comes last.
    Walk {
        /// The tenant.
        tenant: u32,
        /// 0, or where the walk before ended.
        from: u32,
        /// The number of items to go through at most.
        most: usize,
    },
    /// Tell the control half something about a tenant. It is lost if there is no stream, or no
    /// room: what matters is told again.
    Report {
        /// The tenant.
        tenant: u32,
        /// What [`crate::Discipline::switch_reported`] brings; at most [`crate::MESSAGE_MAX`]
        /// bytes.
        report: Bytes,
    },
}
