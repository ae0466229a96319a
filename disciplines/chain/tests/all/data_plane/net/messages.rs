//! What clients and agents say.

use std::net::SocketAddr;

use bytes::Bytes;
use chain::{
    packets::{Beat, BeatKind, Peer},
    record::Version,
};
use chain_wire::{Ask, session_key};
use harness::message::{address, secret_of};
use wire::{Epoch, Flags, Op};

use super::{CLIENT, CLIENT_HOST, FIRST, KEY, Message, Net, TENANT, host, life_of};

impl Net {
    /// The number of the client's next write, in the next of its places.
    pub fn request(&self) -> u64 {
        let n = self.next.get();
        self.next.set(n + 1);
        (n / 16 + 1) * 16 + n % 16
    }

    fn request_of(&self, op: Op, to: usize) -> Message {
        let mut message = Message::from_client(op, TENANT, KEY).epoch(Epoch(self.view.number));
        message.header.client = CLIENT;
        message.from.set_ip(address(self.six, CLIENT_HOST));
        message.to = SocketAddr::new(host(to, self.six), wire::PORT);
        message
    }

    pub fn write(&self, to: usize, value: &[u8]) -> Message {
        self.write_if(to, value, None)
    }

    pub fn write_if(&self, to: usize, value: &[u8], condition: Option<u64>) -> Message {
        let ask = Ask { session: session_hash(), condition: condition.unwrap_or(0) };
        let value = [&ask.encode()[..], value].concat();
        let message = self.request_of(Op::ChainWrite, to).value(&value).numbered(self.request());
        let padded = message.padded(144);
        match condition {
            Some(_) => padded.flags(Flags::COMPARE),
            None => padded,
        }
    }

    pub fn delete(&self, to: usize) -> Message {
        self.write(to, b"").flags(Flags::ALL)
    }

    pub fn read(&self, at: usize) -> Message {
        self.request_of(Op::ChainRead, at)
            .numbered(chain_wire::READ_BIT | self.request())
            .padded(200)
    }

    pub fn beat(&self, from: usize, to: usize) -> Message {
        let beat = Beat {
            kind: BeatKind::Beat,
            from: from as u8,
            to: to as u8,
            t_from_ns: self.switches[from].switch.leases.now_ns(),
            t_to_ns: 0,
            life: life_of(from),
        };
        let mut message = Message::from_client(Op::PeerSignal, TENANT, b"").value(&beat.encode());
        message.header.key_hash = Default::default();
        message.header.epoch = Epoch(self.view.number);
        message.header.node = from as u16 + 1;
        message.from = SocketAddr::new(host(from, self.six), 50_000);
        message.to = SocketAddr::new(host(to, self.six), wire::PORT);
        message
    }

    /// What an agent of that switch says to another one.
    pub fn says(&self, from: usize, to: usize, peer: Peer, version: u64, value: &[u8]) -> Message {
        let value = [&peer.encode()[..], value].concat();
        let mut message = Message::from_client(Op::PeerMessage, TENANT, KEY)
            .value(&value)
            .version(version)
            .epoch(Epoch(self.view.number));
        message.header.node = from as u16 + 1;
        message.from = SocketAddr::new(host(from, self.six), 50_000);
        message.to = SocketAddr::new(host(to, self.six), wire::PORT);
        message
    }
}

pub fn session_hash() -> u64 {
    secret_of(TENANT).key_hash(TENANT, &session_key(CLIENT)).low()
}

/// A version as the client's write of that request made it.
pub fn version(seq: u64, request: u64, value: &'static [u8]) -> Version {
    Version {
        seq,
        accepted: FIRST,
        client: CLIENT,
        request,
        session: session_hash(),
        value: Some(Bytes::from_static(value)),
    }
}
