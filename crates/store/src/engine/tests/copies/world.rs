//! A key's home, two stores that hold copies of it, a switch that sends reads to them, a network,
//! and clients.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use history::Operation;
use wire::{Epoch, Flags, Header, LIFE_UNKNOWN, NODE_ALL, NODE_STORE, NodeId, Op, Packet};

use super::{
    super::{
        Engine, Incarnation, KEYED, Outbox, Peer, SECRET, SYSTEM, loans::world::LastingBackend,
    },
    MS,
    slow::Slow,
};
use crate::{
    Config, Counters,
    backend::{Answer, Backend, Change, Completion, Key, Put},
};

/// The home, and two others.
pub const STORES: usize = 3;
pub const LEASE_MS: u64 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOp {
    Read,
    Write,
    /// By a path without the switch.
    WriteAround,
    WriteIfPresent,
    WriteIfAbsent,
    Delete,
}

/// What happens to packets, in parts of a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub lose: u64,
    pub duplicate: u64,
    pub late: u64,
    pub latest_ms: u64,
    /// Values of copies that the switch makes of writes.
    pub alter: u64,
}

struct Flying {
    at_ns: u64,
    to: SocketAddr,
    from: SocketAddr,
    bytes: Vec<u8>,
}

pub struct Call {
    pub op: ClientOp,
    pub header: Header,
    pub value: Vec<u8>,
    pub number: u64,
    pub call_ns: u64,
    pub next_ns: u64,
}

pub struct Client {
    pub address: SocketAddr,
    pub request: u64,
    pub life: u16,
    pub call: Option<Call>,
    pub values: u64,
}

struct Store {
    engine: Option<Engine>,
    backend: LastingBackend,
    /// What its backend has done and not said yet, in order; and what is on its way, with when
    /// it comes.
    answers: Arc<Mutex<Vec<Completion>>>,
    coming: Vec<(u64, Completion)>,
    born: u64,
    /// Its clock at the start of the world.
    ahead_ns: u64,
    /// It stands still until then.
    still_until_ns: u64,
}

pub struct World {
    pub now_ns: u64,
    pub key: Vec<u8>,
    stores: Vec<Store>,
    pub clients: Vec<Client>,
    flying: Vec<Flying>,
    pub faults: Faults,
    /// Pairs of stores between which nothing passes.
    pub cut: Vec<(usize, usize)>,
    /// The switch: which stores it may send reads to.
    pub valid: Vec<bool>,
    /// Whether it sends writes to the stores, too.
    pub fans_out: bool,
    /// How often it sends a write to each store.
    pub updates: [usize; STORES],
    random: u64,
    pub history: Vec<Operation>,
    pub sizes: Vec<usize>,
    /// Reads that another store than the home has answered.
    pub redirected: u64,
    /// Whether backends answer later.
    pub slow: bool,
    change: fn(&mut Config),
}

pub fn address_of(store: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 2, store as u8 + 1], 7117))
}

pub fn node(store: usize) -> NodeId {
    NODE_STORE | store as NodeId
}

pub fn store_at(address: SocketAddr) -> Option<usize> {
    (0..STORES).find(|store| address_of(*store) == address)
}

fn config_of(store: usize) -> Config {
    let address = address_of(store);
    let mut config = Config::new(address);
    config.identity = Some(address);
    config.cluster.partitions = STORES as u32;
    config.cluster.stores = (0..STORES)
        .map(|at| wire::Store {
            address: address_of(at),
            first: at as u32,
            last: at as u32,
            rack: 0,
        })
        .collect();
    config.cluster.lease_ms = LEASE_MS as u32;
    config.cluster.lease_max_ms = LEASE_MS as u32;
    let tenant = wire::Tenant::new(KEYED, "09".repeat(16));
    config.cluster.tenants.push(tenant);
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

impl World {
    pub fn new(seed: u64, clients: usize) -> World {
        World::with_config(seed, clients, |_| {})
    }

    /// With other options of its stores.
    pub fn with_config(seed: u64, clients: usize, change: fn(&mut Config)) -> World {
        let client = |n| Client {
            address: SocketAddr::from(([10, 0, 1, n as u8 + 1], 5000)),
            request: 0,
            life: LIFE_UNKNOWN,
            call: None,
            values: 0,
        };
        let store = |at: usize| Store {
            engine: None,
            backend: LastingBackend::new(),
            answers: Arc::default(),
            coming: vec![],
            born: 0,
            ahead_ns: 1_000_000_000 * at as u64,
            still_until_ns: 0,
        };
        let mut world = World {
            now_ns: 0,
            key: key_at_home(),
            stores: (0..STORES).map(store).collect(),
            clients: (0..clients).map(client).collect(),
            flying: vec![],
            faults: Faults::default(),
            cut: vec![],
            valid: vec![true, false, false],
            fans_out: true,
            updates: [1; STORES],
            random: seed,
            history: vec![],
            sizes: vec![8, 40, 900],
            redirected: 0,
            slow: seed.is_multiple_of(3),
            change,
        };
        (0..STORES).for_each(|store| world.start(store));
        world
    }

    pub fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ self.random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn happens(&mut self, per_mille: u64) -> bool {
        self.draw() % 1000 < per_mille
    }

    // ---- stores

    /// A store begins a new life.
    pub fn start(&mut self, at: usize) {
        let random = self.draw();
        let clock_ns = self.clock_of(at);
        let store = &mut self.stores[at];
        store.born += 1;
        let ticks = (self.now_ns << 16) / 1_000_000_000;
        let wall_s = 1_700_000_000 + (ticks >> 16) as u32;
        let life = Incarnation::new(wall_s, random).later(ticks as u16);
        store.answers = Arc::default();
        store.coming.clear();
        let inner = store.backend.clone();
        let backend: Box<dyn Backend> = match self.slow {
            false => Box::new(inner),
            true => Box::new(Slow { inner, answers: store.answers.clone() }),
        };
        let mut config = config_of(at);
        (self.change)(&mut config);
        store.engine = Some(Engine::new(Arc::new(config), backend, clock_ns, life));
    }

    pub fn stop(&mut self, at: usize) {
        self.stores[at].engine = None;
    }

    pub fn stand_still(&mut self, at: usize, ms: u64) {
        self.stores[at].still_until_ns = self.now_ns + ms * MS;
    }

    fn clock_of(&self, at: usize) -> u64 {
        self.now_ns + self.stores[at].ahead_ns
    }

    pub fn counters(&self, at: usize) -> Counters {
        let engine = self.stores[at].engine.as_ref();
        engine.map(|e| e.counters().clone()).unwrap_or_default()
    }

    /// Reads that wait for homes.
    pub fn waiting_reads(&self, at: usize) -> usize {
        let engine = self.stores[at].engine.as_ref().unwrap();
        engine.replicas.waiting_reads()
    }

    pub fn status(&self, at: usize) -> crate::status::ReplicasStatus {
        let clock_ns = self.clock_of(at);
        let engine = self.stores[at].engine.as_ref();
        engine.unwrap().status(clock_ns).replicas
    }

    /// Does something with a store; what it sends then is on its way.
    pub fn on<R>(
        &mut self,
        at: usize,
        work: impl FnOnce(&mut Engine, u64, &mut Outbox) -> R,
    ) -> Option<R> {
        let (clock_ns, mut out) = (self.clock_of(at), Outbox::default());
        let engine = self.stores[at].engine.as_mut()?;
        let result = work(engine, clock_ns, &mut out);
        for (bytes, peer) in out.messages() {
            self.send(bytes.to_vec(), address_of(at), peer.address);
        }
        let answers = std::mem::take(&mut *self.stores[at].answers.lock().unwrap());
        for answer in answers {
            let least_ns = self.now_ns + 1 + self.draw() % (2 * MS);
            let coming = &mut self.stores[at].coming;
            let last_ns = coming.last().map_or(0, |(at_ns, _)| *at_ns);
            coming.push((least_ns.max(last_ns), answer));
        }
        Some(result)
    }

    /// What has come from backends by now.
    fn complete(&mut self, at: usize) {
        let now_ns = self.now_ns;
        let is_here = |(at_ns, _): &&(u64, Completion)| *at_ns <= now_ns;
        let count = self.stores[at].coming.iter().take_while(is_here).count();
        let here: Vec<_> = self.stores[at].coming.drain(..count).collect();
        for (_, completion) in here {
            self.on(at, |engine, now_ns, out| {
                engine.complete(completion, now_ns, out);
            });
        }
    }

    pub fn hold(&mut self, at: usize) {
        let key = self.key.clone();
        self.on(at, |engine, now_ns, out| {
            engine.at(now_ns, out, |engine| {
                assert!(engine.replicas.hold(&mut engine.facts, KEYED, &key));
            });
        });
    }

    pub fn release(&mut self, at: usize) {
        let key = self.key.clone();
        self.on(at, |engine, now_ns, out| {
            engine.at(now_ns, out, |engine| engine.replicas.release(&mut engine.facts, KEYED, &key))
        });
    }

    // ---- the network

    /// A packet leaves: through the switch, unless it goes around.
    pub fn send(&mut self, bytes: Vec<u8>, from: SocketAddr, to: SocketAddr) {
        for (bytes, to) in self.through_switch(bytes, from, to) {
            self.fly(bytes, from, to);
        }
    }

    pub fn fly(&mut self, bytes: Vec<u8>, from: SocketAddr, to: SocketAddr) {
        if let (Some(from), Some(to)) = (store_at(from), store_at(to)) {
            let pair = (from.min(to), from.max(to));
            if self.cut.contains(&pair) {
                return;
            }
        }
        let copies = 1 + u64::from(self.happens(self.faults.duplicate));
        for _ in 0..copies {
            if self.happens(self.faults.lose) {
                continue;
            }
            let mut delay_ns = MS / 10 + self.draw() % (MS / 2);
            if self.happens(self.faults.late) {
                delay_ns += self.draw() % (self.faults.latest_ms.max(1) * MS);
            }
            let at_ns = self.now_ns + delay_ns;
            let bytes = bytes.clone();
            let flying = Flying { at_ns, to, from, bytes };
            self.flying.push(flying);
        }
    }

    /// What the switch makes of a packet.
    fn through_switch(
        &mut self,
        bytes: Vec<u8>,
        from: SocketAddr,
        to: SocketAddr,
    ) -> Vec<(Vec<u8>, SocketAddr)> {
        let packet = Packet::decode(&bytes).expect("everybody sends packets");
        let header = packet.header;
        let signed = |header: Header, value: &[u8]| {
            Packet::new(header, packet.key, value).to_bytes(&SECRET).unwrap()
        };
        match header.op {
            Op::ReadRequest if store_at(from).is_none() && to == address_of(0) => {
                let turn = self.draw() as usize % STORES;
                if turn == 0 || !self.valid[turn] {
                    return vec![(bytes, to)];
                }
                let node = node(turn);
                vec![(signed(Header { node, ..header }, &[]), address_of(turn))]
            }
            Op::WriteRequest | Op::DeleteRequest if self.fans_out => {
                self.valid[1..].fill(false);
                let node_all = Header { node: NODE_ALL, ..header };
                let mut all = vec![(signed(node_all, packet.value), to)];
                for turn in 1..STORES {
                    let mut value = packet.value.to_vec();
                    if !value.is_empty() && self.happens(self.faults.alter) {
                        let last = value.len() - 1;
                        value[last] ^= 1;
                    }
                    let is_delete = header.op == Op::DeleteRequest;
                    let flags = if is_delete { Flags::ALL } else { Flags::NONE };
                    let update = Header {
                        op: Op::ReplicaUpdate,
                        node: node(turn),
                        flags: header.flags.with(flags),
                        ..header
                    };
                    let copy = (signed(update, &value), address_of(turn));
                    all.extend(std::iter::repeat_n(copy, self.updates[turn]));
                }
                all
            }
            Op::ReplicaConfirm | Op::ReplicaDrop => {
                assert!(packet.tag_is_valid(&SYSTEM) && to == address_of(0));
                let turn = usize::from(header.epoch.switch() & !NODE_STORE);
                self.valid[turn] = header.op == Op::ReplicaConfirm;
                vec![(bytes, to)]
            }
            _ => vec![(bytes, to)],
        }
    }

    fn arrive(&mut self, flying: Flying) {
        let Flying { to, from, bytes, .. } = flying;
        if let Some(at) = store_at(to) {
            let still_ns = self.stores[at].still_until_ns;
            if self.now_ns < still_ns {
                let at_ns = still_ns;
                return self.flying.push(Flying { at_ns, to, from, bytes });
            }
            let peer = Peer { address: from, local: None };
            self.on(at, |engine, now_ns, out| {
                engine.receive(&bytes, peer, now_ns, out);
            });
        } else if let Some(client) = self.clients.iter().position(|c| c.address == to) {
            self.answered(client, &bytes, from);
        }
    }

    // ---- time

    /// Time passes until then.
    pub fn run_until(&mut self, end_ns: u64) {
        while let Some(next_ns) = self.next_ns().filter(|next_ns| *next_ns <= end_ns) {
            self.now_ns = self.now_ns.max(next_ns);
            self.happen();
        }
        self.now_ns = self.now_ns.max(end_ns);
    }

    pub fn run(&mut self, ms: u64) {
        self.run_until(self.now_ns + ms * MS);
    }

    fn deadline_of(&self, at: usize) -> Option<u64> {
        let store = &self.stores[at];
        let due_ns = store.engine.as_ref()?.next_deadline_ns()?;
        let due_ns = due_ns.saturating_sub(store.ahead_ns).max(self.now_ns + 1);
        let coming_ns = store.coming.first().map_or(u64::MAX, |(at_ns, _)| *at_ns);
        Some(due_ns.min(coming_ns).max(store.still_until_ns))
    }

    fn next_ns(&self) -> Option<u64> {
        let flying = self.flying.iter().map(|flying| flying.at_ns);
        let stores = (0..STORES).filter_map(|at| self.deadline_of(at));
        let calls = self.clients.iter().filter_map(|client| client.call.as_ref());
        flying.chain(stores).chain(calls.map(|call| call.next_ns)).min()
    }

    fn happen(&mut self) {
        let now_ns = self.now_ns;
        while let Some(at) = self.flying.iter().position(|f| f.at_ns <= now_ns) {
            let flying = self.flying.swap_remove(at);
            self.arrive(flying);
        }
        for at in 0..STORES {
            if now_ns >= self.stores[at].still_until_ns {
                self.complete(at);
                self.on(at, |engine, now_ns, out| engine.tick(now_ns, out));
            }
        }
        for client in 0..self.clients.len() {
            let due = |call: &Call| call.next_ns <= now_ns;
            if self.clients[client].call.as_ref().is_some_and(due) {
                self.ask(client);
            }
        }
    }

    /// Others put a value into a store's backend.
    pub fn put(&mut self, at: usize, value: Vec<u8>, ttl_ms: u32) {
        let (now_ns, key) = (self.clock_of(at), self.key.clone());
        let value = value.into();
        let put = Put { ttl_ms, ..Put::of(&value, 77) };
        let key = Key { tenant: KEYED, hash: SECRET.key_hash(KEYED, &key), bytes: &key };
        let done = self.stores[at].backend.put(key, put, now_ns, 0);
        assert_eq!(done, Answer::Now(Change::Done(77)));
    }

    /// A packet to a store, from wherever; what it sends at once goes on its way, and is returned.
    pub fn hand_in(
        &mut self,
        at: usize,
        header: Header,
        value: &[u8],
        from: SocketAddr,
    ) -> Vec<Vec<u8>> {
        let secret = if header.op.is_system() { SYSTEM } else { SECRET };
        let mut header = header;
        if header.op.has_key() {
            header.tenant = KEYED;
            header.key_hash = SECRET.key_hash(KEYED, &self.key);
        }
        let key = if header.op.has_key() { &self.key[..] } else { &[] };
        let bytes = Packet::new(header, key, value).to_bytes(&secret).unwrap();
        let peer = Peer { address: from, local: None };
        let sent = self.on(at, |engine, now_ns, out| {
            engine.receive(&bytes, peer, now_ns, out);
            out.messages().map(|(bytes, _)| bytes.to_vec()).collect()
        });
        sent.unwrap_or_default()
    }

    /// The epoch of a store's copy.
    pub fn epoch_of(&self, at: usize) -> Option<Epoch> {
        let id = (KEYED, SECRET.key_hash(KEYED, &self.key));
        let engine = self.stores[at].engine.as_ref()?;
        engine.replicas.epoch_of(id)
    }
}
