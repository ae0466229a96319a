//! Chains of switches as a client sees them, and a network that loses, doubles and reorders: for
//! tests.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
};

use bytes::Bytes;
use chain_wire::{Ask, Route, WRITES_MOST, chain_of};
use rand::{RngExt, SeedableRng, rngs::Xoshiro256PlusPlus};
use wire::{
    Cluster, Flags, Header, Op, PORT, Packet, Secret, Status, Tenant, VERSION_ABSENT,
    VERSION_PRESENT,
};

use crate::{Machine, Options, Virtual, virtual_time::Tasks};

pub const MS: u64 = 1_000_000;
pub const TENANT: u32 = 7;
const CHAINS: u16 = 3;

/// The tenant's cluster file.
pub fn cluster() -> Cluster {
    let mut cluster = Cluster::single(([10, 0, 0, 9], PORT).into(), 4);
    cluster.tenants.push(Tenant::new(TENANT, "07".repeat(16)));
    cluster
}

pub fn switch(n: u8) -> SocketAddr {
    ([10, 0, 0, n], PORT).into()
}

pub fn options() -> Options {
    Options::new(vec![switch(1), switch(4)])
}

/// What goes wrong, in percent of datagrams.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub lose: u32,
    pub duplicate: u32,
    /// Answers that a switch is busy.
    pub busy: u32,
    /// Longest way in microseconds; the shortest is 50.
    pub longest_us: u64,
}

/// A key: its version, and its value unless it is removed.
#[derive(Clone, Default)]
struct Item {
    version: u64,
    value: Option<Vec<u8>>,
}

/// What was done with a write.
#[derive(Clone, Copy)]
struct Note {
    request: u64,
    status: Status,
    version: u64,
}

/// The chains: one copy of each key, which changes at once. Not what switches do, but what clients
/// may rely on.
pub struct Chains {
    pub number: u64,
    /// 1: any member answers reads.
    pub protocol: u8,
    /// The members of every chain, by the last byte of their address, from head to tail.
    pub members: Vec<u8>,
    /// Members that say nothing.
    pub dead: BTreeSet<u8>,
    items: BTreeMap<Vec<u8>, Item>,
    sessions: BTreeMap<u64, BTreeMap<u64, Note>>,
    watches: BTreeMap<Vec<u8>, Vec<(SocketAddr, Header)>>,
    /// Writes that took place, by their value.
    pub applied: Vec<Vec<u8>>,
    /// Datagrams that came, by switch.
    pub asked: BTreeMap<u8, u64>,
    /// There is no room for another key.
    pub full: bool,
    /// Nobody makes what is needed for a new client's writes.
    pub uncontrolled: bool,
}

impl Chains {
    pub fn new(members: &[u8]) -> Chains {
        Chains {
            number: 1 << 48 | 1,
            protocol: 1,
            members: members.to_vec(),
            dead: BTreeSet::new(),
            items: BTreeMap::new(),
            sessions: BTreeMap::new(),
            watches: BTreeMap::new(),
            applied: vec![],
            asked: BTreeMap::new(),
            full: false,
            uncontrolled: false,
        }
    }

    /// How many clients are remembered.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Other members, under another number.
    pub fn become_members(&mut self, members: &[u8]) {
        self.number += 1;
        self.members = members.to_vec();
    }

    /// What the network sends for this datagram: from which switch to which client.
    fn take(
        &mut self,
        to: SocketAddr,
        from: SocketAddr,
        bytes: &[u8],
        busy: bool,
    ) -> Vec<Datagram> {
        let IpAddr::V4(ip) = to.ip() else { return vec![] };
        let at = ip.octets()[3];
        *self.asked.entry(at).or_default() += 1;
        let packet = Packet::decode(bytes).expect("clients send packets");
        let secret = Secret([7; 16]);
        assert!(packet.tag_is_valid(&secret));
        assert!(packet.header.request != 0 && packet.header.tenant == TENANT);
        if self.dead.contains(&at) {
            return vec![];
        }
        let (mut sent, mut told) = (vec![], vec![]);
        let (header, value, by) = self.answer(&packet, at, from, busy, &mut told);
        let mut send = |by: u8, to: SocketAddr, header: Header, value: &[u8]| {
            let mut out = vec![];
            Packet::new(header, packet.key, value).encode(&secret, &mut out).unwrap();
            sent.push((switch(by), to, out));
        };
        assert!(
            header.status != Status::Moved || value.len() + 80 + packet.key.len() <= bytes.len(),
            "no room for a route"
        );
        send(by, from, header, &value);
        let tail = *self.members.last().unwrap();
        for (to, header, value) in told {
            send(tail, to, header, &value);
        }
        sent
    }

    fn answer(
        &mut self,
        packet: &Packet<'_>,
        at: u8,
        from: SocketAddr,
        busy: bool,
        told: &mut Vec<(SocketAddr, Header, Vec<u8>)>,
    ) -> (Header, Vec<u8>, u8) {
        let h = packet.header;
        let reply = Header {
            op: h.op.reply().unwrap(),
            flags: Flags::CACHED,
            expiry_ms: 0,
            version: 0,
            ..h
        };
        let status = |status| (Header { status, ..reply }, vec![], at);
        let tail = *self.members.last().unwrap();
        let is_head = self.members[0] == at;
        let is_member = self.members.contains(&at);
        let is_right = match (h.op, self.protocol) {
            (Op::ChainWrite, _) => is_head,
            (_, 1) => is_member,
            _ => at == tail,
        };
        if h.epoch.0 > self.number {
            return status(Status::TryAgain);
        }
        if h.epoch.0 < self.number || !is_right {
            let (header, _, by) = status(Status::Moved);
            let route = Route {
                number: self.number,
                protocol: self.protocol,
                position: self.members.iter().position(|m| *m == at).map(|p| p as u8),
                chain: chain_of(h.key_hash, CHAINS),
                chains: CHAINS,
                members: self.members.iter().map(|m| switch(*m).ip()).collect(),
            };
            return (header, route.encode().unwrap(), by);
        }
        if busy {
            return status(Status::TryAgain);
        }
        if h.op == Op::ChainRead {
            if h.flags.has(Flags::GRANT) {
                let watches = self.watches.entry(packet.key.to_vec()).or_default();
                watches.retain(|(_, other)| (other.client, other.request) != (h.client, h.request));
                watches.push((from, reply));
            }
            let item = self.items.get(packet.key).cloned().unwrap_or_default();
            return stated(reply, &item, if is_dirty(h.request) { tail } else { at });
        }
        let (ask, rest) = Ask::decode(packet.value).unwrap();
        let list = match self.protocol {
            1 => 0,
            _ => self.members.len() - 1,
        };
        assert_eq!(h.expiry_ms as usize, list, "members that the write names");
        let (header, value) = self.write(packet, &ask, &rest[4 * list..], reply);
        if matches!((header.status, &value), (Status::Ok, Some(()))) {
            let item = self.items[packet.key].clone();
            for (to, watch) in self.watches.get(packet.key).into_iter().flatten() {
                let (header, value, _) = stated(*watch, &item, tail);
                told.push((*to, header, value));
            }
        }
        (header, vec![], tail)
    }

    /// Carries a write out, once; the answer, and whether the key changed.
    fn write(
        &mut self,
        packet: &Packet<'_>,
        ask: &Ask,
        value: &[u8],
        reply: Header,
    ) -> (Header, Option<()>) {
        let h = packet.header;
        let status = |status, version| Header { status, version, ..reply };
        let session = wire::Secret([7; 16]).key_hash(TENANT, &chain_wire::session_key(h.client));
        assert_eq!(ask.session, session.low());
        let Some(notes) = self.sessions.get_mut(&h.client) else {
            if !self.uncontrolled {
                self.sessions.insert(h.client, BTreeMap::new());
            }
            return (status(Status::NoSession, 0), None);
        };
        if let Some(note) = notes.get(&(h.request % WRITES_MOST)) {
            if h.request < note.request {
                return (status(Status::Forgotten, 0), None);
            }
            if h.request == note.request {
                return (status(note.status, note.version), None);
            }
        }
        if self.full && !self.items.contains_key(packet.key) {
            return (status(Status::NoRoom, 0), None);
        }
        let item = self.items.entry(packet.key.to_vec()).or_default();
        let present = item.value.as_ref().map_or(0, |_| item.version);
        let holds = !h.flags.has(Flags::COMPARE)
            || match ask.condition {
                VERSION_ABSENT => present == 0,
                VERSION_PRESENT => present != 0,
                version => present == version,
            };
        let delete = h.flags.has(Flags::ALL);
        let (end, version) = match (holds, delete && present == 0) {
            (false, _) => (Status::Mismatch, present),
            (true, true) => (Status::NotFound, 0),
            (true, false) => {
                item.version += 1;
                item.value = (!delete).then(|| value.to_vec());
                self.applied.push(value.to_vec());
                (Status::Ok, item.version)
            }
        };
        let note = Note { request: h.request, status: end, version };
        notes.insert(h.request % WRITES_MOST, note);
        (status(end, version), (end == Status::Ok).then_some(()))
    }
}

/// From, to, what.
type Datagram = (SocketAddr, SocketAddr, Vec<u8>);

/// Whether a read finds its key dirty, so that the tail answers it.
fn is_dirty(request: u64) -> bool {
    request & 1 == 0
}

/// A read's answer.
fn stated(reply: Header, item: &Item, by: u8) -> (Header, Vec<u8>, u8) {
    let status = match item.value {
        Some(_) => Status::Ok,
        None => Status::NotFound,
    };
    let header = Header { status, version: item.version, ..reply };
    (header, item.value.clone().unwrap_or_default(), by)
}

/// Clients and chains with a network between them.
pub struct World {
    pub chains: Chains,
    pub faults: Faults,
    pub now_ns: u64,
    /// Nothing comes to a client from where it sent nothing.
    pub filters: bool,
    /// From whom, and to whom, something was sent.
    ways: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Longest datagram that arrives, in bytes.
    pub carries: usize,
    clients: Vec<Tasks>,
    /// (when, number, from, to, what).
    flying: BTreeSet<(u64, u64, SocketAddr, SocketAddr, Vec<u8>)>,
    number: u64,
    rng: Xoshiro256PlusPlus,
}

impl World {
    pub fn new(chains: Chains, faults: Faults, seed: u64) -> World {
        World {
            chains,
            faults,
            now_ns: 1_000_000_000,
            filters: false,
            ways: BTreeSet::new(),
            carries: usize::MAX,
            clients: vec![],
            flying: BTreeSet::new(),
            number: 0,
            rng: Xoshiro256PlusPlus::seed_from_u64(seed),
        }
    }

    /// One more client.
    pub fn client(&mut self, options: Options) -> Virtual {
        let seed = self.rng.random();
        let machine = Machine::new(&cluster(), TENANT, options, seed).unwrap();
        let (client, tasks) = Virtual::new(machine, self.now_ns);
        self.clients.push(tasks);
        client
    }

    fn send(&mut self, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        let copies = match self.rng.random_range(0..100) {
            _ if bytes.len() > self.carries => 0,
            n if n < self.faults.lose => 0,
            n if n < self.faults.lose + self.faults.duplicate => 2,
            _ => 1,
        };
        for _ in 0..copies {
            let us = self.rng.random_range(50..=self.faults.longest_us.max(50));
            self.number += 1;
            let at_ns = self.now_ns + us * 1000;
            self.flying.insert((at_ns, self.number, from, to, bytes.to_vec()));
        }
    }

    fn flush(&mut self) {
        for at in 0..self.clients.len() {
            let from: SocketAddr = ([10, 1, 0, at as u8], 999).into();
            while let Some((to, bytes)) = self.clients[at].next_datagram() {
                let bytes: Bytes = bytes;
                self.ways.insert((from, to));
                self.send(from, to, &bytes);
            }
        }
    }

    /// Lets time pass until then, or until no task is left; whether none is.
    pub fn run_until(&mut self, until_ns: u64) -> bool {
        let now_ns = self.now_ns;
        self.clients.iter_mut().for_each(|client| client.run(now_ns));
        loop {
            self.flush();
            if self.clients.iter().all(Tasks::is_empty) {
                return true;
            }
            let timer = self.clients.iter().filter_map(Tasks::next_ns).min();
            let arrival = self.flying.first().map(|(at, ..)| *at);
            let next_ns = timer.into_iter().chain(arrival).min().unwrap_or(until_ns);
            if next_ns >= until_ns {
                self.now_ns = until_ns;
                return false;
            }
            self.now_ns = next_ns.max(self.now_ns);
            let now_ns = self.now_ns;
            while let Some((at, ..)) = self.flying.first()
                && *at <= now_ns
            {
                let (_, _, from, to, bytes) = self.flying.pop_first().unwrap();
                match to.ip() {
                    IpAddr::V4(ip) if ip.octets()[1] == 1 => {
                        if self.filters && !self.ways.contains(&(to, from)) {
                            continue;
                        }
                        self.clients[usize::from(ip.octets()[3])].take(&bytes, from, now_ns);
                    }
                    _ => {
                        let busy = self.rng.random_range(0..100) < self.faults.busy;
                        for (from, to, bytes) in self.chains.take(to, from, &bytes, busy) {
                            self.send(from, to, &bytes);
                        }
                    }
                }
            }
            for client in &mut self.clients {
                if client.next_ns().is_some_and(|at| at <= now_ns) {
                    client.run(now_ns);
                }
            }
        }
    }
}
