//! A client in a scenario: the client library, without sockets, and what it was told.
//!
//! Every write writes another number, repeated over the value's length: a value that is a mixture
//! of two is none that anybody wrote.

use std::{collections::BTreeMap, net::SocketAddr};

use client::{Answer, Condition, Error, Machine, Operation};
use history::{Effect, Need};
use sim::{Birth, Io, Process, packet::Datagram};
use wire::{Cluster, Header, Packet, Secret};

/// The shortest value in bytes: one number.
const SHORTEST: usize = 8;
/// By this name a client is known in what it sends by hand ([`ClientHost::send`]).
const BY_HAND: u64 = 0xba_d1ab;
/// What is sent by hand is padded to this length, so that an answer has room.
const PADDED: usize = 200;

/// What a client is asked to do with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Read it.
    Read,
    /// Write the client's next number in a value of so many bytes, 8 at least.
    Write(usize),
    /// Remove it.
    Delete,
}

/// What came of it. Of a read what was found, and none: there was nothing; of a write what was
/// written; of a removal nothing. An error as the client library says it.
pub type Outcome = Result<Option<u64>, String>;

/// A read that was answered. Times are the world's.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// When it was asked for.
    pub asked_ns: u64,
    /// When the answer came.
    pub told_ns: u64,
    /// What was found.
    pub number: Option<u64>,
    /// Whether a switch answered.
    pub cached: bool,
}

/// A deed that was begun.
struct Call {
    key: String,
    deed: Deed,
    number: u64,
    begun_ns: u64,
}

/// A client on a machine.
pub struct ClientHost {
    machine: Machine,
    id: u32,
    port: u16,
    secret: Secret,
    numbers: u64,
    begun: BTreeMap<u64, Call>,
    ended: BTreeMap<u64, Outcome>,
    reads: Vec<Read>,
    history: BTreeMap<String, Vec<history::Operation>>,
    heard: Vec<Header>,
}

/// A number as a value.
fn encode(number: u64, len: usize) -> Vec<u8> {
    number.to_be_bytes().into_iter().cycle().take(len.max(SHORTEST)).collect()
}

/// The number that a value is, all of it.
fn decode(value: &[u8]) -> u64 {
    let number = value.first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
    assert!(encode(number, value.len()) == value, "a value that nobody wrote: {value:?}");
    number
}

impl ClientHost {
    /// The client of this number, in a tenant's name, with what the client library does by itself.
    pub(crate) fn new(
        birth: &Birth,
        id: u32,
        cluster: &Cluster,
        tenant: u32,
    ) -> Result<ClientHost, Error> {
        let secrets = cluster.secrets_of(tenant).ok_or(Error::UnknownTenant(tenant))?;
        Ok(ClientHost {
            machine: Machine::new(cluster, tenant, client::Options::default(), birth.seed)?,
            id,
            port: birth.port,
            secret: secrets.tag,
            numbers: 0,
            begun: BTreeMap::new(),
            ended: BTreeMap::new(),
            reads: vec![],
            history: BTreeMap::new(),
            heard: vec![],
        })
    }

    /// Begins a deed; its number names it.
    pub fn begin(&mut self, deed: Deed, key: &str, io: &mut Io<'_>) -> u64 {
        self.numbers += 1;
        let number = u64::from(self.id) << 32 | self.numbers;
        let bytes = key.as_bytes();
        let value = if let Deed::Write(len) = deed { encode(number, len) } else { vec![] };
        let operation = match deed {
            Deed::Read => Operation::Get { key: bytes },
            Deed::Write(_) => Operation::Set {
                key: bytes,
                value: &value,
                ttl: None,
                condition: Condition::Always,
            },
            Deed::Delete => Operation::Delete { key: bytes, condition: Condition::Always },
        };
        let call = self.machine.begin(&operation, io.now_ns());
        let begun = Call { key: key.to_owned(), deed, number, begun_ns: io.world_ns };
        self.begun.insert(call, begun);
        self.go_on(io);
        call
    }

    /// What came of a deed; none: nothing so far.
    pub fn outcome(&self, call: u64) -> Option<&Outcome> {
        self.ended.get(&call)
    }

    /// The reads that were answered, in this order.
    pub fn reads(&self) -> &[Read] {
        &self.reads
    }

    /// Sends a packet that the library would not send at such a moment, once.
    pub fn send(
        &mut self,
        header: Header,
        key: &str,
        value: &[u8],
        to: SocketAddr,
        io: &mut Io<'_>,
    ) {
        let header = Header { client: BY_HAND, ..header };
        let mut bytes = vec![];
        let packet = Packet::new(header, key.as_bytes(), value);
        packet.encode(&self.secret, &mut bytes).expect("a packet that is possible");
        bytes.resize(bytes.len().max(PADDED), 0);
        io.send(self.port, to, &bytes);
    }

    /// What it was answered to packets that were sent by hand.
    pub fn heard(&self) -> &[Header] {
        &self.heard
    }

    /// What it did and was told, by key. What is under way may take place at any time.
    pub(crate) fn history(&self) -> BTreeMap<String, Vec<history::Operation>> {
        let mut history = self.history.clone();
        for call in self.begun.values().filter(|call| call.deed != Deed::Read) {
            let (_, effect) = call.said(&Ok(None));
            let open = call.operation(self.id, Need::Any, effect, None);
            history.entry(call.key.clone()).or_default().push(open);
        }
        history
    }

    fn told(&mut self, number: u64, result: Result<Answer, Error>, world_ns: u64) {
        let call = self.begun.remove(&number).expect("it was begun");
        let mut removed = false;
        let outcome = match call.deed {
            Deed::Read => result.and_then(Answer::found).map(|found| {
                let cached = found.as_ref().is_some_and(|value| value.from_switch);
                let number = found.map(|value| decode(&value.bytes));
                let (asked_ns, told_ns) = (call.begun_ns, world_ns);
                self.reads.push(Read { asked_ns, told_ns, number, cached });
                number
            }),
            Deed::Write(_) => result.and_then(Answer::written).map(|_| Some(call.number)),
            Deed::Delete => result.and_then(Answer::removed).map(|was_there| {
                removed = was_there;
                None
            }),
        };
        let outcome: Outcome = outcome.map_err(|error| error.to_string());
        let (need, effect) = match (call.deed, &outcome) {
            (Deed::Delete, Ok(_)) if removed => (Need::Present, Effect::Delete),
            (Deed::Delete, Ok(_)) => (Need::Absent, Effect::Keep),
            (_, outcome) => call.said(outcome),
        };
        // A read that nobody answered says nothing.
        if outcome.is_ok() || call.deed != Deed::Read {
            let return_ns = outcome.is_ok().then_some(world_ns);
            let operation = call.operation(self.id, need, effect, return_ns);
            self.history.entry(call.key).or_default().push(operation);
        }
        self.ended.insert(number, outcome);
    }

    fn go_on(&mut self, io: &mut Io<'_>) {
        while let Some((to, datagram)) = self.machine.next_datagram() {
            io.send(self.port, to, &datagram);
        }
        while let Some((number, result)) = self.machine.next_finished() {
            self.told(number, result, io.world_ns);
        }
    }
}

impl Call {
    /// What an outcome says of the key; that of a removal, if it took place.
    fn said(&self, outcome: &Outcome) -> (Need, Effect) {
        match (self.deed, outcome) {
            (Deed::Read, Ok(Some(number))) => (Need::Value(*number), Effect::Keep),
            (Deed::Read, _) => (Need::Absent, Effect::Keep),
            (Deed::Write(_), _) => (Need::Any, Effect::Write(self.number)),
            (Deed::Delete, _) => (Need::Any, Effect::Delete),
        }
    }

    fn operation(
        &self,
        client: u32,
        need: Need,
        effect: Effect,
        return_ns: Option<u64>,
    ) -> history::Operation {
        let (key, call_ns, lapse) = (0, self.begun_ns, None);
        history::Operation { client, key, call_ns, return_ns, need, effect, lapse }
    }
}

impl Process for ClientHost {
    fn receive(&mut self, datagram: &Datagram<'_>, io: &mut Io<'_>) {
        let packet = Packet::decode(datagram.payload).ok();
        match packet.map(|packet| packet.header).filter(|header| header.client == BY_HAND) {
            Some(header) => self.heard.push(header),
            None => self.machine.take(datagram.payload, datagram.from, io.now_ns()),
        }
        self.go_on(io);
    }

    fn wake(&mut self, io: &mut Io<'_>) {
        if self.machine.next_ns().is_some_and(|ns| ns <= io.now_ns()) {
            self.machine.timer(io.now_ns());
        }
        self.go_on(io);
    }

    fn next_wake_ns(&self) -> Option<u64> {
        self.machine.next_ns()
    }

    fn ports(&self) -> Vec<u16> {
        vec![self.port]
    }
}
