//! A key's home and two stores that hold copies of it: three engines whose packets reach one
//! another soon and in order, and as much of a switch as they hear of. Nothing goes wrong but what
//! a test says; what networks and restarts do to stores is the model's and the hunt's.

use std::{collections::VecDeque, net::SocketAddr, sync::Arc};

use wire::{Epoch, Header, NODE_ALL, NODE_STORE, NodeId, Op, Packet};

use super::{
    super::{Engine, Incarnation, KEYED, Outbox, Peer, SECRET, SYSTEM},
    MS,
};
use crate::{
    Config, Counters,
    backend::{Answer, Change, Key, Put, embedded::EmbeddedBackend},
};

/// The home, and two others.
const STORES: usize = 3;
const LEASE_MS: u32 = 1000;
/// The wait of stores after their start is over then.
const READY_NS: u64 = 1_100 * MS;
/// How long a packet is on its way.
const WAY_NS: u64 = MS / 10;

/// A packet on its way, and when it comes.
struct Datagram {
    at_ns: u64,
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

pub struct Stores {
    pub now_ns: u64,
    pub key: Vec<u8>,
    engines: Vec<Engine>,
    under_way: VecDeque<Datagram>,
    /// Pairs of stores between which nothing passes.
    pub cut: Vec<(usize, usize)>,
    /// Of the packets between stores each so-manieth is lost; 0: none.
    pub loses: usize,
    sent: usize,
    /// The switch: which stores it may send reads to.
    pub valid: [bool; STORES],
    /// How often it sends a write to each store.
    pub updates: [usize; STORES],
    /// The client's newest request, which is also the number that it writes.
    request: u64,
    answers: Vec<(Header, Vec<u8>)>,
}

pub fn address_of(store: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 2, store as u8 + 1], 7117))
}

/// Where the client is.
pub fn client() -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 9], 5000))
}

pub fn node(store: usize) -> NodeId {
    NODE_STORE | store as NodeId
}

fn store_at(address: SocketAddr) -> Option<usize> {
    (0..STORES).find(|store| address_of(*store) == address)
}

fn config_of(store: usize) -> Config {
    let address = address_of(store);
    let mut config = Config::new(address);
    config.identity = Some(address);
    config.cluster = config.cluster.with_lease_ms(LEASE_MS);
    config.cluster.partitions = STORES as u32;
    let store = |at| wire::Store::new(address_of(at), at as u32, at as u32);
    config.cluster.stores = (0..STORES).map(store).collect();
    config.cluster.tenants.push(wire::Tenant::new(KEYED, "09".repeat(16)));
    config.cluster.system_secret = Some("05".repeat(16));
    config
}

/// A key whose home is the first store.
fn key_at_home() -> Vec<u8> {
    let keys = (0..).map(|n: u32| format!("key {n}").into_bytes());
    let home = |key: &Vec<u8>| wire::partition_of(SECRET.key_hash(KEYED, key), STORES as u32);
    let mut keys = keys.filter(|key| home(key) == 0);
    keys.next().expect("one in three")
}

/// How far a store's clock is ahead.
fn ahead_ns(at: usize) -> u64 {
    1000 * MS * at as u64
}

impl Stores {
    /// Stores that take writes, and hold nothing.
    pub fn new() -> Stores {
        Stores::with_config(|_| {})
    }

    /// With other options.
    pub fn with_config(change: fn(&mut Config)) -> Stores {
        let engine = |at: usize| {
            let mut config = config_of(at);
            change(&mut config);
            let backend = Box::new(EmbeddedBackend::new(1 << 20));
            let life = Incarnation::new(1_700_000_000, at as u64 + 1);
            Engine::new(Arc::new(config), backend, ahead_ns(at), life)
        };
        let mut stores = Stores {
            now_ns: 0,
            key: key_at_home(),
            engines: (0..STORES).map(engine).collect(),
            under_way: VecDeque::new(),
            cut: vec![],
            loses: 0,
            sent: 0,
            valid: [true, false, false],
            updates: [1; STORES],
            request: 0,
            answers: vec![],
        };
        stores.run_until(READY_NS);
        stores
    }

    /// Both others hold the key, which has a value.
    pub fn holding() -> Stores {
        let mut stores = Stores::new();
        stores.write();
        stores.hold(1);
        stores.hold(2);
        stores.run(20);
        stores
    }

    // ---- stores

    /// Does something with a store; what it sends then is on its way.
    pub fn on<R>(&mut self, at: usize, work: impl FnOnce(&mut Engine, u64, &mut Outbox) -> R) -> R {
        let mut out = Outbox::default();
        let result = work(&mut self.engines[at], self.now_ns + ahead_ns(at), &mut out);
        for (bytes, peer) in out.messages() {
            self.send(bytes.to_vec(), address_of(at), peer.address);
        }
        result
    }

    pub fn hold(&mut self, at: usize) {
        let key = self.key.clone();
        let holds = self.on(at, |engine, now_ns, out| {
            engine.at(now_ns, out, |engine| engine.replicas.hold(&mut engine.facts, KEYED, &key))
        });
        assert!(holds);
    }

    pub fn release(&mut self, at: usize) {
        let key = self.key.clone();
        self.on(at, |engine, now_ns, out| {
            engine.at(now_ns, out, |engine| engine.replicas.release(&mut engine.facts, KEYED, &key))
        });
    }

    /// The tenant may use these stores only, says another cluster file of this one.
    pub fn limit(&mut self, at: usize, to: [usize; 2]) {
        self.on(at, |engine, now_ns, out| {
            let mut cluster = engine.facts.config.cluster.clone();
            cluster.tenants[0].stores = to.map(address_of).to_vec();
            engine.update(cluster, now_ns, out).unwrap();
        });
    }

    pub fn counters(&self, at: usize) -> Counters {
        self.engines[at].counters()
    }

    /// Reads that wait for homes.
    pub fn waiting_reads(&self, at: usize) -> usize {
        self.engines[at].replicas.waiting_reads()
    }

    pub fn status(&self, at: usize) -> crate::status::ReplicasStatus {
        self.engines[at].status(self.now_ns + ahead_ns(at)).replicas
    }

    /// The epoch of a store's copy.
    pub fn epoch_of(&self, at: usize) -> Option<Epoch> {
        self.engines[at].replicas.epoch_of((KEYED, SECRET.key_hash(KEYED, &self.key)))
    }

    /// Others put a value into the home's backend.
    pub fn put(&mut self, value: Vec<u8>, ttl_ms: u32) {
        let (key, value) = (self.key.clone(), bytes::Bytes::from(value));
        let key = Key { tenant: KEYED, hash: SECRET.key_hash(KEYED, &key), bytes: &key };
        let put = Put { ttl_ms, ..Put::of(&value, 77) };
        let (now_ns, backend) = (self.now_ns, &mut self.engines[0].facts.backend);
        assert_eq!(backend.put(key, put, now_ns, 0), Answer::Now(Change::Done(77)));
    }

    // ---- packets

    fn signed(&self, mut header: Header, value: &[u8]) -> Vec<u8> {
        let secret = if header.op.is_system() { SYSTEM } else { SECRET };
        let key = if header.op.has_key() { &self.key[..] } else { &[] };
        if header.op.has_key() {
            header.tenant = KEYED;
            header.key_hash = SECRET.key_hash(KEYED, key);
        }
        let mut bytes = vec![];
        Packet::new(header, key, value).encode(&secret, &mut bytes).unwrap();
        bytes
    }

    fn send(&mut self, bytes: Vec<u8>, from: SocketAddr, to: SocketAddr) {
        if let (Some(from), Some(to)) = (store_at(from), store_at(to)) {
            self.sent += 1;
            let is_lost = self.loses > 0 && self.sent.is_multiple_of(self.loses);
            if is_lost || self.cut.contains(&(from.min(to), from.max(to))) {
                return;
            }
            let packet = Packet::decode(&bytes).expect("stores send packets");
            let Header { op, epoch, .. } = packet.header;
            if matches!(op, Op::ReplicaConfirm | Op::ReplicaDrop) {
                assert!(packet.tag_is_valid(&SYSTEM) && to == 0);
                self.valid[usize::from(epoch.switch() & !NODE_STORE)] = op == Op::ReplicaConfirm;
            }
        }
        let at_ns = self.now_ns + WAY_NS;
        self.under_way.push_back(Datagram { at_ns, from, to, bytes });
    }

    /// A packet to a store, from wherever; what it sends at once goes on its way, and is returned.
    pub fn hand_in(
        &mut self,
        at: usize,
        header: Header,
        value: &[u8],
        from: SocketAddr,
    ) -> Vec<Vec<u8>> {
        let bytes = self.signed(header, value);
        self.on(at, |engine, now_ns, out| {
            engine.receive(&bytes, Peer { address: from, local: None }, now_ns, out);
            out.messages().map(|(bytes, _)| bytes.to_vec()).collect()
        })
    }

    /// The client writes its next number, through the switch, which tells all stores, or past it.
    pub fn begin_write(&mut self, around: bool) -> u64 {
        self.request += 1;
        let (request, value) = (self.request, self.request.to_be_bytes());
        let header = Header { client: 100, request, ..Header::new(Op::WriteRequest) };
        let to_all = Header { node: if around { 0 } else { NODE_ALL }, ..header };
        let bytes = self.signed(to_all, &value);
        self.send(bytes, client(), address_of(0));
        for turn in (1..STORES).filter(|_| !around) {
            self.valid[turn] = false;
            let update = Header { op: Op::ReplicaUpdate, node: node(turn), ..header };
            for _ in 0..self.updates[turn] {
                let bytes = self.signed(update, &value);
                self.send(bytes, client(), address_of(turn));
            }
        }
        request
    }

    pub fn is_answered(&self, request: u64) -> bool {
        self.answers.iter().any(|(header, _)| header.request == request)
    }

    /// The same through the switch, and time passes until it is answered: how many milliseconds.
    pub fn write(&mut self) -> u64 {
        let begun_ns = self.now_ns;
        let request = self.begin_write(false);
        while !self.is_answered(request) {
            assert!(self.now_ns < begun_ns + 5_000 * MS, "a write without an answer");
            self.run_until(self.now_ns + MS / 4);
        }
        (self.now_ns - begun_ns) / MS
    }

    /// A read that the switch sends to this store: what it is answered within 2 ms.
    pub fn read(&mut self, at: usize) -> Option<u64> {
        self.request += 1;
        let request = self.request;
        let node = if at == 0 { 0 } else { node(at) };
        let read = Header { client: 100, request, node, ..Header::new(Op::ReadRequest) };
        let bytes = self.signed(read, &[]);
        self.send(bytes, client(), address_of(at));
        self.run(2);
        let mut answers = self.answers.iter();
        let (_, value) = answers.find(|(header, _)| header.request == request)?;
        Some(u64::from_be_bytes(value[..].try_into().expect("a number")))
    }

    // ---- time

    /// Time passes until then.
    pub fn run_until(&mut self, end_ns: u64) {
        while let Some(next_ns) = self.next_ns().filter(|next_ns| *next_ns <= end_ns) {
            self.now_ns = self.now_ns.max(next_ns);
            while let Some(datagram) = self.under_way.pop_front() {
                if datagram.at_ns > next_ns {
                    self.under_way.push_front(datagram);
                    break;
                }
                let Datagram { from, to, bytes, .. } = datagram;
                let Some(at) = store_at(to) else {
                    let packet = Packet::decode(&bytes).expect("stores send packets");
                    self.answers.push((packet.header, packet.value.to_vec()));
                    continue;
                };
                let peer = Peer { address: from, local: None };
                self.on(at, |engine, now_ns, out| {
                    engine.receive(&bytes, peer, now_ns, out);
                });
            }
            for at in 0..STORES {
                self.on(at, |engine, now_ns, out| engine.tick(now_ns, out));
            }
        }
        self.now_ns = self.now_ns.max(end_ns);
    }

    pub fn run(&mut self, ms: u64) {
        self.run_until(self.now_ns + ms * MS);
    }

    fn next_ns(&self) -> Option<u64> {
        let due = |(at, engine): (usize, &Engine)| {
            let due_ns = engine.next_deadline_ns()?.saturating_sub(ahead_ns(at));
            Some(due_ns.max(self.now_ns + 1))
        };
        let arrival = self.under_way.front().map(|datagram| datagram.at_ns);
        self.engines.iter().enumerate().filter_map(due).chain(arrival).min()
    }
}
