//! The store, two switches on the path of its clients and a network, with one key.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use history::{Effect, Need, Operation};
use wire::{Epoch, Flags, Header, LIFE_UNKNOWN, Op, Packet, Status};

use super::{
    super::{Engine, Incarnation, Outbox, Peer},
    KEYED, MS,
    switch::{Fate, Switch, bytes_of, hash},
};
use crate::{
    Config, Counters,
    backend::{Answer, Backend, Change, Key, Put, Ticket, embedded::EmbeddedBackend},
    journal::{Entry, Journal},
};

pub const KEY: &[u8] = b"k";
const LEASE_MS: u64 = 1000;
/// A client gives up then, as clients do: three quarters of a lease.
const DEADLINE_NS: u64 = LEASE_MS * MS * 3 / 4;
const RETRY_NS: u64 = 4 * MS;
/// The age that moves a write to another life whenever that began.
const MOVED: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOp {
    Write,
    WriteAround,
    Delete,
    Read,
    ReadAround,
}

/// Where a packet is going to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    X,
    Y,
    /// On the other path; it holds copies.
    Z,
    Store,
    Client,
}

#[derive(Clone, Debug)]
struct Flying {
    at_ns: u64,
    to: Stop,
    /// Towards the store.
    up: bool,
    /// Said by the store to a switch, or by a switch to it.
    direct: bool,
    bytes: Vec<u8>,
    from: Peer,
}

struct Call {
    op: ClientOp,
    header: Header,
    value: u64,
    call_ns: u64,
    next_ns: u64,
    past_owner: bool,
}

#[derive(Default)]
struct Client {
    request: u64,
    store_life: u16,
    key_life: u16,
    call: Option<Call>,
    newest: u64,
    values: u64,
}

/// What happens to packets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u32,
    pub duplicate: u32,
    pub late: u32,
    pub latest_ms: u64,
}

pub struct World {
    now_ns: u64,
    store: Option<Engine>,
    config: Arc<Config>,
    backend: LastingBackend,
    journal: Memory,
    born: u64,
    outbox: Outbox,
    x: Switch,
    y: Switch,
    z: Cache,
    flying: Vec<Flying>,
    clients: Vec<Client>,
    pub faults: Faults,
    pub cut: Vec<Stop>,
    random: u64,
    history: Vec<Operation>,
    unanswered: u32,
    next_lease_ns: u64,
    started_ns: u64,
    /// What the store has told the stranger, who sends what a test scripts ([`World::hand_in`]).
    pub told: Vec<Header>,
}

/// A backend that outlives the store.
#[derive(Clone)]
pub struct LastingBackend {
    items: Arc<Mutex<EmbeddedBackend>>,
    is_down: Arc<AtomicBool>,
}

impl LastingBackend {
    pub fn new() -> LastingBackend {
        let items = Arc::new(Mutex::new(EmbeddedBackend::new(1 << 20)));
        LastingBackend { items, is_down: Arc::default() }
    }
}

impl Backend for LastingBackend {
    fn get(
        &mut self,
        key: Key<'_>,
        now_ns: u64,
        ticket: Ticket,
    ) -> Answer<Option<crate::backend::Item<&[u8]>>> {
        let mut backend = self.items.lock().unwrap();
        let Answer::Now(Some(item)) = backend.get(key, now_ns, ticket) else {
            return Answer::Now(None);
        };
        let bytes: &'static [u8] = Box::leak(item.value.to_vec().into());
        Answer::Now(Some(crate::backend::Item {
            value: bytes,
            version: item.version,
            expiry_ms: item.expiry_ms,
        }))
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, now_ns: u64, ticket: Ticket) -> Answer<Change> {
        if self.is_down.load(Relaxed) {
            return Answer::Now(Change::Unreached);
        }
        self.items.lock().unwrap().put(key, put, now_ns, ticket)
    }
}

/// A journal that outlives the store.
#[derive(Clone, Default)]
pub struct Memory(Arc<Mutex<Disk>>);

#[derive(Default)]
struct Disk {
    entries: Vec<Entry>,
    forgets_nothing: bool,
}

impl Disk {
    fn remove(&mut self, tenant: u32, key_hash: wire::KeyHash) {
        self.entries.retain(|e| (e.tenant, e.key_hash) != (tenant, key_hash));
    }
}

impl Journal for Memory {
    fn found(&mut self) -> Vec<Entry> {
        self.0.lock().unwrap().entries.clone()
    }

    fn begin(&mut self, entry: Entry, _: Ticket) -> Answer<bool> {
        let mut disk = self.0.lock().unwrap();
        disk.remove(entry.tenant, entry.key_hash);
        disk.entries.push(entry);
        Answer::Now(true)
    }

    fn end(&mut self, tenant: u32, key_hash: wire::KeyHash, _: Ticket) -> Answer<bool> {
        let mut disk = self.0.lock().unwrap();
        if !disk.forgets_nothing {
            disk.remove(tenant, key_hash);
        }
        Answer::Now(!disk.forgets_nothing)
    }
}

fn peer_of(number: u64) -> Peer {
    Peer {
        address: format!("10.0.{}.{}:5000", number / 200, number % 200 + 1).parse().unwrap(),
        local: None,
    }
}

const X_AT: u64 = 20_000;
const Y_AT: u64 = 30_000;
const Z_AT: u64 = 40_000;
const STRANGER_AT: u64 = 50_000;
/// The stranger's number.
const STRANGER: u64 = 77;

fn padded(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes.resize(bytes.len().max(len), 0);
    bytes
}

/// A switch that holds a copy of the key, and is lent none.
#[derive(Debug)]
struct Cache {
    switch: Switch,
    epoch: u64,
    copy: Option<(u64, Vec<u8>)>,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { switch: Switch::new(3), epoch: 0, copy: None }
    }
}

impl Cache {
    fn take_epoch(&mut self) -> Epoch {
        self.epoch = self.switch.take_epoch();
        self.copy = None;
        Epoch::new(3, self.epoch)
    }

    /// What becomes of a packet: where it goes, and whether towards the store.
    fn pass(
        &mut self,
        packet: &Packet<'_>,
        up: bool,
        now_ns: u64,
    ) -> Option<(Stop, bool, Vec<u8>)> {
        let header = packet.header;
        let on = |header| {
            let to = if up { Stop::Store } else { Stop::Client };
            Some((to, up, bytes_of(header, packet.key, packet.value)))
        };
        match header.op {
            Op::LeaseReply => {
                if self.switch.lease_reply(&header, now_ns) {
                    self.take_epoch();
                }
                None
            }
            Op::Invalidate => {
                let ack = Header {
                    op: Op::InvalidateAck,
                    version: header.epoch.number(),
                    epoch: self.take_epoch(),
                    ..header
                };
                Some((Stop::Store, true, bytes_of(ack, KEY, &[])))
            }
            Op::ReadRequest => {
                let copy = self.copy.as_ref();
                let copy = copy.filter(|_| self.switch.may_serve(self.epoch, now_ns));
                let Some((version, value)) = copy else {
                    let flags = Flags::GRANT;
                    let epoch = Epoch::new(3, self.epoch);
                    return on(Header { flags, epoch, ..header });
                };
                let reply =
                    Header { op: Op::ReadReply, flags: Flags::CACHED, version: *version, ..header };
                Some((Stop::Client, false, bytes_of(reply, KEY, value)))
            }
            Op::WriteRequest | Op::DeleteRequest => {
                let epoch = self.take_epoch();
                on(Header { epoch, ..header })
            }
            Op::ReadReply | Op::WriteReply if header.flags.has(Flags::GRANT) => {
                if header.epoch == Epoch::new(3, self.epoch) && header.status == Status::Ok {
                    self.copy = Some((header.version, packet.value.to_vec()));
                }
                on(header)
            }
            _ => on(header),
        }
    }
}

impl World {
    pub fn new(seed: u64, write_back_ms: u32) -> World {
        let mut config = Config::new("127.0.0.1:7117".parse().unwrap());
        config.cluster = config.cluster.with_lease_ms(LEASE_MS as u32);
        config.lend_from = Some(8);
        config
            .cluster
            .tenants
            .push(wire::Tenant { write_back_ms, ..wire::Tenant::new(KEYED, "09".repeat(16)) });
        config.cluster.system_secret = Some("05".repeat(16));
        let backend = LastingBackend::new();
        let mut world = World {
            now_ns: 0,
            store: None,
            config: Arc::new(config),
            backend,
            journal: Memory::default(),
            born: 0,
            outbox: Outbox::default(),
            x: Switch::new(1),
            y: Switch::new(2),
            z: Cache::default(),
            flying: vec![],
            clients: (0..4).map(|_| Client::default()).collect(),
            faults: Faults::default(),
            cut: vec![],
            random: seed,
            history: vec![],
            unanswered: 0,
            next_lease_ns: 0,
            started_ns: 0,
            told: vec![],
        };
        world.start();
        world
    }

    /// A store begins its life.
    pub fn start(&mut self) {
        self.born += 1;
        self.started_ns = self.now_ns;
        let random = self.draw() | self.born;
        let incarnation = Incarnation::new(1_700_000_000 + self.born as u32, random);
        let mut engine = Engine::new(
            self.config.clone(),
            Box::new(self.backend.clone()),
            self.now_ns,
            incarnation,
        );
        engine.keep_journal(Box::new(self.journal.clone()), self.now_ns, &mut self.outbox);
        self.store = Some(engine);
    }

    /// The backend is one in another process.
    pub fn outlives(&mut self) {
        self.store.as_mut().unwrap().loans.needs_journal = true;
    }

    /// From now on the backend takes writes, or cannot be reached.
    pub fn reach_backend(&mut self, takes: bool) {
        self.backend.is_down.store(!takes, Relaxed);
    }

    /// Another store's loans take what they can get at both switches.
    pub fn fill_switches(&mut self) {
        self.x.fill(self.now_ns);
        self.y.fill(self.now_ns);
    }

    pub fn kill_store(&mut self) {
        self.store = None;
        self.outbox.clear();
    }

    /// What is in the journal; and it is put back to that.
    pub fn journal(&self) -> Vec<Entry> {
        self.journal.0.lock().unwrap().entries.clone()
    }

    pub fn restore_journal(&mut self, entries: Vec<Entry>) {
        self.journal.0.lock().unwrap().entries = entries;
    }

    /// From now on the end of a loan can, or cannot, be written to it.
    pub fn journal_forgets(&mut self, forgets: bool) {
        self.journal.0.lock().unwrap().forgets_nothing = !forgets;
    }

    pub fn is_up(&self) -> bool {
        self.store.is_some()
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    pub fn store(&self) -> &Engine {
        self.store.as_ref().unwrap()
    }

    pub fn engine(&mut self) -> (&mut Engine, &mut Outbox) {
        (self.store.as_mut().unwrap(), &mut self.outbox)
    }

    pub fn owner(&mut self) -> &mut Switch {
        &mut self.x
    }

    pub fn keeper(&mut self) -> &mut Switch {
        &mut self.y
    }

    /// Records of loans, at both.
    pub fn records(&self) -> usize {
        self.x.records.len() + self.y.records.len()
    }

    /// Whether the owner answers for the key.
    pub fn is_owned(&mut self) -> bool {
        self.x.owns(self.now_ns)
    }

    pub fn unanswered(&self) -> u32 {
        self.unanswered
    }

    pub fn counters(&self) -> Counters {
        self.store().counters().clone()
    }

    pub fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// What the backend has.
    pub fn stored(&mut self) -> Option<u64> {
        let key = Key { tenant: KEYED, hash: hash(KEY), bytes: KEY };
        match self.backend.get(key, self.now_ns, 0) {
            Answer::Now(Some(item)) => Some(u64::from_be_bytes(item.value.try_into().unwrap())),
            _ => None,
        }
    }

    /// The newest value that a client wrote.
    pub fn newest(&self, client: usize) -> Option<u64> {
        Some(self.clients[client].newest)
    }

    pub fn is_idle(&self, client: usize) -> bool {
        self.clients[client].call.is_none()
    }

    /// A client begins with an operation; it must have none.
    pub fn op(&mut self, number: usize, op: ClientOp) {
        let now_ns = self.now_ns;
        let client = &mut self.clients[number];
        assert!(client.call.is_none(), "{number} is busy");
        client.request += 1;
        client.values += 1;
        let value = (number as u64 + 1) << 32 | client.values;
        let wire_op = match op {
            ClientOp::Write | ClientOp::WriteAround => Op::WriteRequest,
            ClientOp::Delete => Op::DeleteRequest,
            ClientOp::Read | ClientOp::ReadAround => Op::ReadRequest,
        };
        let life = match (client.key_life, client.store_life) {
            (0, 0) => LIFE_UNKNOWN,
            (0, life) | (life, _) => life,
        };
        client.call = Some(Call {
            op,
            header: Header {
                tenant: KEYED,
                client: number as u64 + 1,
                request: client.request,
                key_hash: hash(KEY),
                life: if wire_op.is_write() { life } else { 0 },
                ..Header::new(wire_op)
            },
            value,
            call_ns: now_ns,
            next_ns: now_ns,
            past_owner: false,
        });
        self.send_due();
    }

    /// A copy of the stranger's only write comes to the store, past all switches, and names that
    /// life.
    pub fn hand_in(&mut self, life: u16, flags: Flags, value: u64) {
        let header = Header {
            tenant: KEYED,
            client: STRANGER,
            request: 1,
            key_hash: hash(KEY),
            life,
            flags,
            ..Header::new(Op::WriteRequest)
        };
        let bytes = bytes_of(header, KEY, &value.to_be_bytes());
        let store = self.store.as_mut().expect("it runs");
        store.receive(&bytes, peer_of(STRANGER_AT), self.now_ns, &mut self.outbox);
        self.drain_outbox();
    }

    fn send_due(&mut self) {
        for number in 0..self.clients.len() {
            let now_ns = self.now_ns;
            let Some(call) = &mut self.clients[number].call else { continue };
            if now_ns >= call.call_ns + DEADLINE_NS {
                self.end(number, None);
                continue;
            }
            if call.next_ns > now_ns {
                continue;
            }
            call.next_ns = now_ns + RETRY_NS;
            let header = Header {
                flags: if call.past_owner { Flags::ALL } else { Flags::NONE },
                ..call.header
            };
            let value = if header.op == Op::WriteRequest {
                call.value.to_be_bytes().to_vec()
            } else {
                vec![]
            };
            let around = matches!(call.op, ClientOp::WriteAround | ClientOp::ReadAround);
            let to = if around { Stop::Z } else { Stop::X };
            let bytes = padded(bytes_of(header, KEY, &value), 200);
            self.fly(to, true, false, bytes, peer_of(number as u64));
        }
    }

    fn end(&mut self, number: usize, told: Option<(Header, Vec<u8>)>) {
        let client = &mut self.clients[number];
        let Some(call) = client.call.take() else { return };
        let answered = told.is_some();
        self.unanswered += u32::from(!answered);
        let (need, effect) = match call.op {
            ClientOp::Write | ClientOp::WriteAround => {
                if answered {
                    client.newest = call.value;
                }
                (Need::Any, Effect::Write(call.value))
            }
            ClientOp::Delete => {
                let gone = told.as_ref().is_some_and(|(h, _)| h.status == Status::NotFound);
                let need = if gone { Need::Absent } else { Need::Any };
                (need, Effect::Delete)
            }
            ClientOp::Read | ClientOp::ReadAround => match &told {
                None => return,
                Some((header, _)) if header.status == Status::NotFound => {
                    (Need::Absent, Effect::Keep)
                }
                Some((_, value)) => {
                    let value = u64::from_be_bytes(value[..].try_into().unwrap());
                    (Need::Value(value), Effect::Keep)
                }
            },
        };
        self.history.push(Operation {
            client: number as u32,
            key: 0,
            call_ns: call.call_ns,
            return_ns: answered.then_some(self.now_ns),
            need,
            effect,
            lapse: None,
        });
    }

    fn answered(&mut self, packet: &Packet<'_>) {
        let now_ns = self.now_ns;
        let header = packet.header;
        let number = header.client as usize - 1;
        let client = &mut self.clients[number];
        let Some(call) = &mut client.call else { return };
        if call.header.request != header.request || call.header.op.reply() != Some(header.op) {
            return;
        }
        match header.status {
            Status::OtherLife => {
                let cached = header.flags.has(Flags::CACHED);
                if header.life == call.header.life {
                    return;
                }
                if cached {
                    client.key_life = header.life;
                } else {
                    client.key_life = 0;
                    client.store_life = header.life;
                }
                let age_ns = u64::from(header.expiry_ms) * MS;
                let began_before = now_ns - call.call_ns < age_ns;
                let unknown = call.header.life == LIFE_UNKNOWN;
                if header.expiry_ms == MOVED || began_before && !call.past_owner || unknown {
                    call.header.life = header.life;
                    call.past_owner = false;
                    call.next_ns = now_ns;
                } else if cached {
                    call.past_owner = true;
                    call.next_ns = call.next_ns.min(now_ns + MS);
                } else {
                    self.end(number, None);
                }
            }
            Status::TryAgain => call.next_ns = now_ns + 10 * MS,
            Status::Ok | Status::NotFound => {
                self.end(number, Some((header, packet.value.to_vec())));
            }
            other => panic!("{other:?}"),
        }
    }

    // -----------------------------------------------------------------------------------------------------------
    // The network.

    fn fly(&mut self, to: Stop, up: bool, direct: bool, bytes: Vec<u8>, from: Peer) {
        let Faults { lose, duplicate, late, latest_ms } = self.faults;
        if self.draw() % 1000 < u64::from(lose) || self.cut.contains(&to) {
            return;
        }
        let copies = 1 + usize::from(self.draw() % 1000 < u64::from(duplicate));
        for _ in 0..copies {
            let mut delay_ns = 50_000 + self.draw() % 20_000;
            if self.draw() % 1000 < u64::from(late) {
                delay_ns += self.draw() % (latest_ms * MS).max(1);
            }
            self.flying.push(Flying {
                at_ns: self.now_ns + delay_ns,
                to,
                up,
                direct,
                bytes: bytes.clone(),
                from,
            });
        }
    }

    /// Whether what a client asked last went the other path.
    fn goes_around(&self, peer: Peer) -> bool {
        let asks = |number: &usize| peer_of(*number as u64) == peer;
        let client = (0..self.clients.len()).find(asks);
        let call = client.and_then(|number| self.clients[number].call.as_ref());
        call.is_some_and(|call| matches!(call.op, ClientOp::WriteAround | ClientOp::ReadAround))
    }

    fn drain_outbox(&mut self) {
        let messages: Vec<_> = self.outbox.messages().map(|(b, p)| (b.to_vec(), p)).collect();
        self.outbox.clear();
        for (bytes, peer) in messages {
            let header = Packet::decode(&bytes).unwrap().header;
            if peer == peer_of(STRANGER_AT) {
                self.told.push(header);
                continue;
            }
            let op = header.op;
            let (to, direct) = match peer {
                peer if peer == peer_of(X_AT) => (Stop::X, true),
                peer if peer == peer_of(Y_AT) => (Stop::Y, true),
                peer if peer == peer_of(Z_AT) => (Stop::Z, true),
                peer if self.goes_around(peer) => (Stop::Z, false),
                _ => (Stop::Y, false),
            };
            if op != Op::LeaseOffer {
                self.fly(to, false, direct, bytes, peer);
            }
        }
    }

    /// Lets so many milliseconds pass.
    pub fn run(&mut self, ms: u64) {
        let until_ns = self.now_ns + ms * MS;
        while self.now_ns < until_ns {
            self.step(until_ns);
        }
    }

    fn step(&mut self, until_ns: u64) {
        let calls = self.clients.iter().filter_map(|client| client.call.as_ref());
        let client_ns = calls.map(|call| call.next_ns.min(call.call_ns + DEADLINE_NS)).min();
        let flying_ns = self.flying.iter().map(|flying| flying.at_ns).min();
        let store_ns = self.store.as_ref().and_then(Engine::next_deadline_ns);
        let next = [Some(until_ns), client_ns, flying_ns, store_ns, Some(self.next_lease_ns)];
        let next_ns = next.into_iter().flatten().min().unwrap();
        self.now_ns = self.now_ns.max(next_ns).max(self.now_ns + 1);
        if self.now_ns >= self.next_lease_ns {
            self.next_lease_ns = self.now_ns + LEASE_MS * MS / 4;
            let bytes = bytes_of(self.z.switch.lease_request(self.now_ns), &[], &[]);
            self.fly(Stop::Store, true, true, bytes, peer_of(Z_AT));
            for (switch, at) in [(&self.x, X_AT), (&self.y, Y_AT)] {
                let header = switch.lease_request(self.now_ns);
                let bytes = bytes_of(header, &[], &[]);
                let from = peer_of(at);
                if !switch.mute || switch.id == 1 {
                    self.flying.push(Flying {
                        at_ns: self.now_ns + 40_000,
                        to: Stop::Store,
                        up: true,
                        direct: true,
                        bytes,
                        from,
                    });
                }
            }
        }
        while let Some(at) = self.flying.iter().position(|f| f.at_ns <= self.now_ns) {
            let flying = self.flying.swap_remove(at);
            if !self.cut.contains(&flying.to) {
                self.arrive(flying);
            }
        }
        self.send_due();
        if let Some(store) = &mut self.store {
            store.tick(self.now_ns, &mut self.outbox);
        }
        self.drain_outbox();
    }

    fn arrive(&mut self, flying: Flying) {
        let bytes = flying.bytes.clone();
        let packet = Packet::decode(&bytes).unwrap();
        let header = packet.header;
        match flying.to {
            Stop::Store => {
                if let Some(store) = &mut self.store {
                    store.receive(&bytes, flying.from, self.now_ns, &mut self.outbox);
                    self.drain_outbox();
                }
            }
            Stop::Client => self.answered(&packet),
            Stop::Z => {
                if let Some((to, up, bytes)) = self.z.pass(&packet, flying.up, self.now_ns) {
                    let from = if flying.direct { peer_of(Z_AT) } else { flying.from };
                    let len = flying.bytes.len();
                    self.fly(to, up, flying.direct, padded(bytes, len), from);
                }
            }
            to @ (Stop::X | Stop::Y) => {
                let now_ns = self.now_ns;
                let at_x = to == Stop::X;
                let switch = if at_x { &mut self.x } else { &mut self.y };
                if flying.direct {
                    if header.op == Op::LeaseReply {
                        switch.lease_reply(&header, now_ns);
                        return;
                    }
                    if header.op == Op::Invalidate {
                        return;
                    }
                    if let Some((header, value)) = switch.told(&packet, now_ns) {
                        let from = peer_of(if at_x { X_AT } else { Y_AT });
                        let bytes = bytes_of(header, KEY, &value);
                        self.fly(Stop::Store, true, true, bytes, from);
                    }
                    return;
                }
                let (header, value, up) = match switch.pass(&packet, now_ns) {
                    Fate::Gone => return,
                    Fate::On(header, value) => (header, value, flying.up),
                    Fate::Back(header, value) => (header, value, !flying.up),
                };
                let next = match (at_x, up) {
                    (true, true) => Stop::Y,
                    (true, false) => Stop::Client,
                    (false, true) => Stop::Store,
                    (false, false) => Stop::X,
                };
                let bytes = padded(bytes_of(header, KEY, &value), flying.bytes.len());
                self.fly(next, up, false, bytes, flying.from);
            }
        }
    }

    /// What clients were told is what one copy of the key could have said.
    pub fn check(&mut self) {
        for number in 0..self.clients.len() {
            self.end(number, None);
        }
        if let Err(what) = self.verdict() {
            panic!("{what}");
        }
    }

    pub fn verdict(&mut self) -> Result<(), String> {
        for number in 0..self.clients.len() {
            self.end(number, None);
        }
        crate::engine::tests::judge(&self.history)
    }
}
