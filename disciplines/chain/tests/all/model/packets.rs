//! Frames of clients and agents, and what a frame is that left a switch.

use std::net::SocketAddr;

use chain::{
    packets::{Beat, BeatKind, Peer, PeerKind},
    view::{Member, View},
};
use chain_wire::{Ask, READ_BIT, session_key};
use harness::{
    Message, SeenFrame,
    message::{address, secret_of},
};
use wire::{Epoch, Flags, Header, Op, Packet, Status};

use super::key::{Call, Return};

pub const TENANT: u32 = 7;
pub const KEY: &[u8] = b"key0000000000042";
pub const LIFE: u64 = 1_000;
const CLIENT_HOST: u8 = 200;
const CLIENT_PORT: u16 = 40_000;

/// Where a switch is.
pub fn host(switch: usize) -> std::net::IpAddr {
    address(false, 2 + switch as u8)
}

/// The slot that a switch has there.
pub fn slot_in(view: &View, switch: u8) -> Option<u8> {
    let is_it = |m: &Option<Member>| m.is_some_and(|m| m.switch == u16::from(switch));
    view.members.iter().position(is_it).map(|slot| slot as u8)
}

/// The number of a client.
pub fn client_id(client: usize) -> u64 {
    0xc11e_0001 + client as u64
}

pub fn session_hash(client: usize) -> u64 {
    let key = session_key(client_id(client));
    secret_of(TENANT).key_hash(TENANT, &key).low()
}

/// Where something in flight arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Switch {
        switch: usize,
        /// It is a read for that client's operation.
        reads: Option<(usize, usize)>,
    },
    /// The answer to the client's operation of that place in its script, under that number.
    Client { client: usize, operation: usize, number: u64, said: Return },
}

fn to_switch(message: Message, from: SocketAddr, switch: usize) -> Vec<u8> {
    let message = Message { from, to: SocketAddr::new(host(switch), wire::PORT), ..message };
    let mut bytes = message.frame().bytes();
    bytes[..12].fill(0);
    bytes
}

/// What a client sends for an operation of its script. Its writes are in one place, one after
/// the other.
pub fn request(client: usize, operation: usize, call: Call, view: &View, switch: usize) -> Vec<u8> {
    let is_read = call.is_read();
    let op = if is_read { Op::ChainRead } else { Op::ChainWrite };
    let number = operation as u64 + 1;
    let request = if is_read { READ_BIT | number } else { number * 16 };
    let (condition, value) = match call {
        Call::Read | Call::Relaxed => (None, vec![]),
        Call::Put(value) => (None, vec![value]),
        Call::Create(value) => (Some(wire::VERSION_ABSENT), vec![value]),
        Call::Swap(version, value) => (Some(version), vec![value]),
        Call::Delete => (None, vec![]),
    };
    let ask = Ask { session: session_hash(client), condition: condition.unwrap_or(0) };
    let message = Message::from_client(op, TENANT, KEY).epoch(Epoch(view.number)).numbered(request);
    let mut message = match is_read {
        true => message.padded(200),
        false => message.value(&[&ask.encode()[..], &value].concat()).padded(144),
    };
    message.header.client = client_id(client);
    if condition.is_some() || call == Call::Relaxed {
        message = message.flags(Flags::COMPARE);
    }
    if call == Call::Delete {
        message = message.flags(Flags::ALL);
    }
    let from = SocketAddr::new(address(false, CLIENT_HOST), CLIENT_PORT + client as u16);
    to_switch(message, from, switch)
}

/// What an agent sends.
pub fn of_agent(from: usize, to: usize, header: Header, key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut message = Message::from_client(header.op, TENANT, key).value(value);
    let key_hash = match key {
        [] => wire::KeyHash::default(),
        key => secret_of(TENANT).key_hash(TENANT, key),
    };
    message.header = Header { key_hash, ..header };
    to_switch(message, SocketAddr::new(host(from), 50_000), to)
}

/// A beat of a switch that has that view; `None`: the other one has no slot there.
pub fn beat(from: u8, to: u8, view: &View, now_ns: u64) -> Option<Vec<u8>> {
    let slot = slot_in(view, from)?;
    let beat = Beat {
        kind: BeatKind::Beat,
        from: slot,
        to: slot_in(view, to)?,
        t_from_ns: now_ns,
        t_to_ns: 0,
        life: LIFE + u64::from(from),
    };
    let header = Header {
        tenant: TENANT,
        epoch: Epoch(view.number),
        node: u16::from(slot) + 1,
        ..Header::new(Op::PeerSignal)
    };
    Some(of_agent(from.into(), to.into(), header, &[], &beat.encode()))
}

/// Where a frame goes that left a switch; `None`: to nobody whom it tells anything.
pub fn destination(frame: &[u8], switches: usize) -> Option<Destination> {
    let seen = SeenFrame::read(frame).expect("right checksums");
    let packet = Packet::decode(&seen.payload).expect("a packet of ours");
    if let Some(switch) = (0..switches).find(|switch| host(*switch) == seen.to.ip()) {
        // Its agent's: what a tail has is read from its tables here.
        let copied =
            Peer::decode(packet.value).is_some_and(|(peer, _)| peer.kind == PeerKind::Copied);
        let is_read = packet.header.op == Op::ChainRead;
        let reads = is_read.then(|| operation_of(&packet.header));
        return (!(packet.header.op == Op::PeerMessage && copied))
            .then_some(Destination::Switch { switch, reads });
    }
    if seen.to.ip() != address(false, CLIENT_HOST) {
        return None;
    }
    let Header { op, status, version, .. } = packet.header;
    let said = match (op, status) {
        (Op::ChainReadReply, Status::Ok) => Return::Value(packet.value.first().copied(), version),
        (Op::ChainReadReply, Status::NotFound) => Return::Value(None, version),
        (Op::ChainWriteReply, Status::Ok) => Return::Done(version),
        (Op::ChainWriteReply, Status::Mismatch | Status::NotFound) => Return::Refused(version),
        _ => return None,
    };
    let (client, operation) = operation_of(&packet.header);
    Some(Destination::Client { client, operation, number: packet.header.epoch.0, said })
}

/// Which client's, and which of its script.
fn operation_of(header: &Header) -> (usize, usize) {
    let request = header.request;
    let number = if request & READ_BIT == 0 { request / 16 } else { request & !READ_BIT };
    ((header.client - client_id(0)) as usize, number as usize - 1)
}

/// A packet as people read it.
pub fn said(frame: &[u8]) -> String {
    let seen = SeenFrame::read(frame).expect("right checksums");
    let packet = Packet::decode(&seen.payload).expect("a packet of ours");
    let Header { op, flags, status, version, epoch, request, node, .. } = packet.header;
    let peer =
        (op == Op::PeerMessage).then(|| Peer::decode(packet.value)).flatten().map(|(peer, _)| peer);
    format!(
        "{op:?} {status:?} {flags:?} version {version} number {} request {request:x} node {node} {peer:?}",
        epoch.0 & 0xff
    )
}
