//! A switch as far as loans go: an owner, a keeper, or one that is passed. As `bpf/lent` does it,
//! without copies, in plain words.

use std::collections::HashSet;

use wire::{Epoch, Flags, Header, KeyHash, Op, Packet, Secret, Status};

use super::{SECRET, SYSTEM};

const MS: u64 = 1_000_000;
/// Another loan may have the record of one that is over after this.
const REST_NS: u64 = 10_000 * MS;
/// Likewise of one that the store has not said to be over.
const LOST_NS: u64 = 86_400_000 * MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Prepared,
    Active,
    Sealed,
}

/// What a switch knows of a key that is lent to it. There is one key.
#[derive(Clone, Debug)]
pub struct Record {
    state: State,
    owner: bool,
    life: u16,
    epoch: u64,
    node: u16,
    base: u64,
    number: u64,
    version: u64,
    value: Option<Vec<u8>>,
    since_ns: u64,
    sealed_ns: u64,
    kept: HashSet<(u64, u64)>,
}

impl Record {
    fn is_awaited(&self) -> bool {
        self.state == State::Sealed && (self.version > 0 || self.value.is_some())
    }
}

/// A switch.
#[derive(Clone, Debug, Default)]
pub struct Switch {
    pub id: u16,
    last_epoch: u64,
    floor: u64,
    term: u64,
    lease_until_ns: u64,
    pub records: Vec<Record>,
    /// It answers nobody.
    pub mute: bool,
    pub absorbed: u64,
    pub read: u64,
}

/// What becomes of a packet.
pub enum Fate {
    /// It goes on where it was going.
    On(Header, Vec<u8>),
    /// It goes back where it came from.
    Back(Header, Vec<u8>),
    Gone,
}

pub fn bytes_of(header: Header, key: &[u8], value: &[u8]) -> Vec<u8> {
    let secret: Secret = if header.op.is_system() { SYSTEM } else { SECRET };
    Packet::new(header, key, value).to_bytes(&secret).unwrap()
}

impl Switch {
    pub fn new(id: u16) -> Switch {
        Switch { id, ..Switch::default() }
    }

    /// Other keys' loans have every record that they may have.
    pub fn fill(&mut self, now_ns: u64) {
        self.records.retain(|record| {
            let is_held = record.state == State::Active || record.is_awaited();
            now_ns < record.sealed_ns + if is_held { LOST_NS } else { REST_NS }
        });
    }

    /// Records that are sealed, and which no store has said to be over.
    pub fn awaited(&self) -> usize {
        self.records.iter().filter(|record| record.is_awaited()).count()
    }

    pub fn take_epoch(&mut self) -> u64 {
        self.last_epoch += 1;
        self.last_epoch
    }

    /// It has lost its memory; epochs go on, and its lease is none.
    pub fn crash(&mut self) {
        let (id, last_epoch) = (self.id, self.last_epoch + 1000);
        *self = Switch { last_epoch, ..Switch::new(id) };
    }

    pub fn lease_request(&self, now_ns: u64) -> Header {
        Header {
            tenant: wire::TENANT_SYSTEM,
            epoch: Epoch::new(self.id, 0),
            version: now_ns,
            ..Header::new(Op::LeaseRequest)
        }
    }

    /// Whether a copy that was granted under this epoch may be served.
    pub fn may_serve(&self, epoch: u64, now_ns: u64) -> bool {
        now_ns < self.lease_until_ns && epoch > self.floor
    }

    /// It is lent a lease; whether in a new term.
    pub fn lease_reply(&mut self, header: &Header, now_ns: u64) -> bool {
        let until_ns = header.version + u64::from(header.expiry_ms) * MS;
        if until_ns <= now_ns {
            return false;
        }
        let is_new = header.client != self.term;
        if header.client != self.term {
            self.term = header.client;
            self.lease_until_ns = 0;
            self.floor = self.last_epoch;
            self.take_epoch();
        }
        self.lease_until_ns = self.lease_until_ns.max(until_ns);
        is_new
    }

    fn active(&mut self, owner: bool, now_ns: u64) -> Option<&mut Record> {
        let usable = now_ns < self.lease_until_ns || !owner;
        let floor = self.floor;
        let record = self.records.iter_mut().find(|record| {
            record.state == State::Active
                && record.owner == owner
                && (!owner || record.epoch > floor)
        });
        record.filter(|_| usable)
    }

    /// A packet of a client, or a reply to one, passes.
    pub fn pass(&mut self, packet: &Packet<'_>, now_ns: u64) -> Fate {
        let header = packet.header;
        let value = packet.value.to_vec();
        let on = |header| Fate::On(header, value.clone());
        if self.mute {
            return on(header);
        }
        match header.op {
            Op::ReadRequest => match self.active(true, now_ns) {
                Some(record) => {
                    let reply = Header {
                        op: Op::ReadReply,
                        flags: Flags::CACHED,
                        version: record.version,
                        ..header
                    };
                    let value = record.value.clone().unwrap_or_default();
                    self.read += 1;
                    Fate::Back(reply, value)
                }
                None => on(header),
            },
            Op::WriteRequest => self.write(header, &value, now_ns),
            Op::KeepRequest if header.node == self.id => self.keep(header, value),
            Op::KeepReply if header.epoch.switch() == self.id => self.kept(header, value),
            _ => on(header),
        }
    }

    fn stamp(&mut self, mut header: Header) -> Header {
        if header.epoch == Epoch::NONE {
            header.epoch = Epoch::new(self.id, self.take_epoch());
        } else if header.node == 0 {
            header.node = self.id;
        }
        header
    }

    fn write(&mut self, header: Header, value: &[u8], now_ns: u64) -> Fate {
        let id = self.id;
        let stamped = self.stamp(header);
        let special = header.expiry_ms > 0
            || header.flags.has(Flags::COMPARE)
            || header.flags.has(Flags::ALL);
        let Some(record) = self.active(true, now_ns).filter(|_| !special) else {
            return Fate::On(stamped, value.into());
        };
        if header.life != record.life {
            let reply = Header {
                op: Op::WriteReply,
                status: Status::OtherLife,
                flags: Flags::CACHED,
                life: record.life,
                expiry_ms: ((now_ns - record.since_ns) / MS) as u32,
                ..header
            };
            return Fate::Back(reply, vec![]);
        }
        record.number += 1;
        let keep = Header {
            op: Op::KeepRequest,
            epoch: Epoch::new(id, record.epoch),
            node: record.node,
            version: record.base + record.number,
            expiry_ms: record.number as u32,
            ..header
        };
        Fate::On(keep, value.into())
    }

    fn keep(&mut self, header: Header, value: Vec<u8>) -> Fate {
        let record = self.records.iter_mut().find(|r| {
            r.state == State::Active
                && !r.owner
                && r.life == header.life
                && r.node == header.epoch.switch()
        });
        let Some(record) = record else { return Fate::On(header, value) };
        let is_new = record.kept.insert((header.client, header.request));
        if is_new && header.version > record.version {
            record.version = header.version;
            record.value = Some(value);
        }
        let reply = Header {
            op: Op::KeepReply,
            version: record.version,
            expiry_ms: if is_new { header.expiry_ms } else { 0 },
            ..header
        };
        Fate::Back(reply, record.value.clone().unwrap_or_default())
    }

    fn kept(&mut self, header: Header, value: Vec<u8>) -> Fate {
        let record = self.records.iter_mut().find(|r| {
            r.state == State::Active
                && r.owner
                && r.life == header.life
                && r.epoch == header.epoch.number()
        });
        let Some(record) = record else { return Fate::Gone };
        if header.version > record.version {
            record.version = header.version;
            record.value = Some(value);
        }
        self.absorbed += 1;
        let version = record.base + u64::from(header.expiry_ms);
        let reply = Header {
            op: Op::WriteReply,
            version,
            expiry_ms: 0,
            node: 0,
            epoch: Epoch::NONE,
            flags: Flags::NONE,
            ..header
        };
        Fate::On(reply, vec![])
    }

    /// The store says something to this switch; what it answers.
    pub fn told(&mut self, packet: &Packet<'_>, now_ns: u64) -> Option<(Header, Vec<u8>)> {
        if self.mute {
            return None;
        }
        let header = packet.header;
        match header.op {
            Op::LendRequest if header.epoch.number() == 0 => {
                Some((self.prepare(header, now_ns), vec![]))
            }
            Op::LendRequest => Some((self.begin(header, packet.value, now_ns), vec![])),
            Op::TakeRequest => Some(self.take(header, now_ns)),
            _ => None,
        }
    }

    fn prepare(&mut self, header: Header, now_ns: u64) -> Header {
        let owner = header.flags.has(Flags::GRANT);
        let reply = |epoch, life, status, id| Header {
            op: Op::LendReply,
            epoch: Epoch::new(id, epoch),
            life,
            status,
            ..header
        };
        let active =
            self.records.iter().find(|r| r.state == State::Active && r.life != header.life);
        if let Some(record) = active {
            return reply(record.epoch, record.life, Status::Mismatch, self.id);
        }
        let same = self.records.iter().find(|r| r.life == header.life && r.owner == owner);
        if let Some(record) = same {
            let status = if record.state == State::Sealed { Status::NotFound } else { Status::Ok };
            return reply(record.epoch, header.life, status, self.id);
        }
        self.records.retain(|r| r.state == State::Sealed && now_ns < r.sealed_ns + REST_NS);
        let epoch = self.take_epoch();
        self.records.push(Record {
            state: State::Prepared,
            owner,
            life: header.life,
            epoch,
            node: header.node,
            base: 0,
            number: 0,
            version: 0,
            value: None,
            since_ns: now_ns,
            sealed_ns: 0,
            kept: HashSet::new(),
        });
        reply(epoch, header.life, Status::Ok, self.id)
    }

    fn begin(&mut self, header: Header, value: &[u8], now_ns: u64) -> Header {
        let owner = header.flags.has(Flags::GRANT);
        let record = self.records.iter_mut().find(|r| {
            r.life == header.life
                && r.owner == owner
                && r.epoch == header.epoch.number()
                && r.state != State::Sealed
        });
        let status = match record {
            None => Status::NotFound,
            Some(record) => {
                if record.state == State::Prepared {
                    record.state = State::Active;
                    record.version = header.version;
                    record.base = header.client;
                    record.since_ns = now_ns;
                    record.value = owner.then(|| value.to_vec());
                }
                Status::Ok
            }
        };
        Header { op: Op::LendReply, status, ..header }
    }

    fn take(&mut self, header: Header, now_ns: u64) -> (Header, Vec<u8>) {
        let seal = header.flags.has(Flags::GRANT);
        let epoch = Epoch::new(self.id, self.take_epoch());
        let gone = Header {
            op: Op::TakeReply,
            status: Status::NotFound,
            flags: Flags::COMPARE,
            epoch,
            ..header
        };
        let Some(at) = self.records.iter().position(|r| r.life == header.life) else {
            return (gone, vec![]);
        };
        if self.records[at].state == State::Prepared {
            if seal {
                self.records.remove(at);
            }
            return (gone, vec![]);
        }
        let record = &mut self.records[at];
        if header.flags.has(Flags::ALL) && record.state == State::Sealed {
            record.version = 0;
            record.value = None;
            if header.flags.has(Flags::COMPARE) {
                self.records.remove(at);
            }
            let reply =
                Header { op: Op::TakeReply, flags: Flags::COMPARE, version: 0, epoch, ..header };
            return (reply, vec![]);
        }
        if seal && record.state == State::Active {
            record.state = State::Sealed;
            record.sealed_ns = now_ns;
        }
        let mut flags = Flags::NONE;
        if record.state == State::Sealed {
            flags = flags.with(Flags::GRANT);
        }
        if record.kept.contains(&(header.client, header.request)) {
            flags = flags.with(Flags::CACHED);
        }
        let value = record.value.clone().filter(|_| record.version != header.version);
        if value.is_none() {
            flags = flags.with(Flags::COMPARE);
        }
        let reply = Header { op: Op::TakeReply, flags, version: record.version, epoch, ..header };
        (reply, value.unwrap_or_default())
    }

    /// Whether it answers for the key.
    pub fn owns(&mut self, now_ns: u64) -> bool {
        self.active(true, now_ns).is_some()
    }
}

pub fn hash(key: &[u8]) -> KeyHash {
    SECRET.key_hash(super::KEYED, key)
}
