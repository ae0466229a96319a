//! A client that does one thing after another.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
};

use chain_wire::{Ask, Route, chain_of, session_key};
use sim::{Io, Process, packet::Datagram};
use wire::{Epoch, Flags, Header, KeyHash, Op, PORT, Packet, Secret, Status};

use super::{MS, TENANT};

/// The tenant's.
pub const SECRET: Secret = Secret([0x5e; 16]);
/// Requests are padded to this length, so that any answer has room.
const PADDED: usize = 400;

/// What the client is to do.
#[derive(Clone, Debug)]
pub enum Command {
    /// Write a value; with a condition only if the key has that version.
    Write(&'static str, String, Option<u64>),
    Delete(&'static str),
    /// Read at a place of the chain.
    Read(&'static str, usize),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    pub status: Status,
    pub version: u64,
    pub value: String,
    /// How long it took.
    pub ns: u64,
}

/// A client.
pub struct Asker {
    pub port: u16,
    /// Which client it is.
    pub client: u64,
    pub switches: Vec<IpAddr>,
    pub number: u64,
    pub routes: BTreeMap<u16, Route>,
    pub to_do: VecDeque<Command>,
    pub request: u64,
    pub began_ns: u64,
    pub again_ns: u64,
    pub tries: usize,
    pub done: Vec<Response>,
}

pub const CLIENT: u64 = 0xc11e;

pub fn hash_of(key: &[u8]) -> KeyHash {
    SECRET.key_hash(TENANT, key)
}

impl Asker {
    fn key(&self) -> Option<&'static str> {
        Some(match self.to_do.front()? {
            Command::Write(key, ..) | Command::Delete(key) | Command::Read(key, _) => key,
        })
    }

    fn send(&mut self, io: &mut Io<'_>) {
        let Some(key) = self.key() else { return };
        let chains = self.routes.values().next().map(|route| route.chains);
        let chain = chains.map(|chains| chain_of(hash_of(key.as_bytes()), chains));
        let route = chain.and_then(|chain| self.routes.get(&chain));
        let mut header = Header {
            tenant: TENANT,
            client: self.client,
            request: self.request,
            key_hash: hash_of(key.as_bytes()),
            // Nobody answers a read of no arrangement but with the one that there is.
            epoch: Epoch(route.map_or(0, |route| route.number)),
            ..Header::new(Op::ChainRead)
        };
        let mut value = vec![];
        let mut ask = Ask { session: hash_of(&session_key(self.client)).low(), condition: 0 };
        let place = match (route, &self.to_do[0]) {
            (None, _) => 0,
            (_, Command::Read(_, place)) => *place,
            (_, Command::Delete(_)) => {
                header.op = Op::ChainWrite;
                header.flags = Flags::ALL;
                value.extend(ask.encode());
                0
            }
            (_, Command::Write(_, text, condition)) => {
                header.op = Op::ChainWrite;
                if let Some(version) = condition {
                    ask.condition = *version;
                    header.flags = Flags::COMPARE;
                }
                value.extend(ask.encode());
                value.extend(text.as_bytes());
                0
            }
        };
        let members = route.map_or(&self.switches, |route| &route.members);
        let at = match route {
            None => self.tries % members.len(),
            Some(_) => place.min(members.len() - 1),
        };
        let to = SocketAddr::new(members[at], PORT);
        let mut bytes = vec![];
        let packet = Packet::new(header, key.as_bytes(), &value);
        packet.encode(&SECRET, &mut bytes).unwrap();
        bytes.resize(bytes.len().max(PADDED), 0);
        io.send(self.port, to, &bytes);
        self.tries += 1;
        self.again_ns = io.now_ns() + 10 * MS;
    }

    pub fn next(&mut self, io: &mut Io<'_>) {
        self.request += 16;
        (self.tries, self.began_ns) = (0, io.now_ns());
        self.send(io);
    }
}

impl Process for Asker {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        let packet = Packet::decode(datagram.payload).expect("a packet");
        let header = packet.header;
        if header.request != self.request || header.client != self.client || self.to_do.is_empty() {
            return;
        }
        match header.status {
            Status::Moved => {
                let route = Route::decode(packet.value).expect("a route");
                if route.number > self.number {
                    self.routes.clear();
                }
                if route.number >= self.number {
                    self.number = route.number;
                    self.routes.insert(route.chain, route);
                    self.send(io);
                }
            }
            Status::TryAgain | Status::NoSession | Status::NoRoom => {}
            status => {
                self.done.push(Response {
                    status,
                    version: header.version,
                    value: String::from_utf8_lossy(packet.value).into(),
                    ns: io.now_ns() - self.began_ns,
                });
                self.to_do.pop_front();
                self.next(io);
            }
        }
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        if !self.to_do.is_empty() && io.now_ns() >= self.again_ns {
            if self.tries % 4 == 3 {
                // Another switch may know better.
                self.routes.clear();
                self.number = 0;
            }
            self.send(io);
        }
    }

    fn next_wake_ns(&self) -> Option<u64> {
        (!self.to_do.is_empty()).then_some(self.again_ns)
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}

pub fn write(key: &'static str, value: &str) -> Command {
    Command::Write(key, value.into(), None)
}

/// What came of each, without how long it took.
pub fn seen(done: &[Response]) -> Vec<(Status, u64)> {
    done.iter().map(|d| (d.status, d.version)).collect()
}
