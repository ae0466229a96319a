//! A store for tests: one task on a loopback socket that loses, duplicates, delays and reorders by
//! a seed, and that can be told to answer wrongly. It applies each (client, request) once, as a
//! store must. It grants copies, and calls none back.

mod parts;

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{net::UdpSocket, task::AbortHandle};
use wire::{
    Cluster, Epoch, Flags, Header, HolderProof, NODE_HOLDER, Op, Packet, Secret, Status,
    TENANT_OPEN, VERSION_PRESENT,
};

/// Ends a test that hangs; nothing takes that long.
const PATIENCE: Duration = Duration::from_secs(90);

/// For a store that answers, on a machine that may be busy with something else: calls end by their
/// answers, not by their deadlines.
pub fn patient() -> crate::Options {
    crate::Options { deadline: PATIENCE, ..crate::Options::default() }
}

/// What goes wrong, in percent of datagrams.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub lose: u64,
    pub duplicate: u64,
    pub reorder: u64,
    pub seed: u64,
    /// Longest datagram in bytes that the path carries, either way; 0: any.
    pub longest: usize,
}

/// Its life. Parts of writes must name it; whole ones may name any.
const LIFE: u16 = 77;
/// Losses in a row that one request may suffer; fewer than a client's tries, so that tests cannot
/// fail by chance.
const MAX_LOSSES: u32 = 3;

/// An answer changed on its way: the request, the honest answer, its value; the result is
/// sent instead.
pub type Twist = Box<dyn FnMut(&Packet<'_>, &mut Reply) + Send>;

/// A reply before it is encoded.
pub struct Reply {
    pub header: Header,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub secret: Secret,
    /// Sent from another port than the one asked.
    pub from_elsewhere: bool,
}

#[derive(Default)]
pub struct State {
    pub data: BTreeMap<Vec<u8>, (Vec<u8>, u64, u32)>,
    /// Every request that arrived and was not lost: op, request id, bytes.
    pub seen: Vec<(Op, u64, usize)>,
    /// Their bytes.
    pub datagrams: Vec<Vec<u8>>,
    /// Writes that were applied.
    pub applied: u64,
    pub twist: Option<Twist>,
    joins: parts::Joins,
    answered: HashMap<(u64, u64), (Header, Vec<u8>)>,
    losses: HashMap<(u64, bool), u32>,
    version: u64,
}

pub struct FakeStore {
    pub address: SocketAddr,
    secret: Secret,
    tenant: u32,
    state: Arc<Mutex<State>>,
    task: AbortHandle,
}

impl Drop for FakeStore {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl FakeStore {
    pub async fn start(faults: Faults) -> FakeStore {
        FakeStore::start_at("127.0.0.1:0", TENANT_OPEN, faults).await
    }

    pub async fn start_at(address: &str, tenant: u32, faults: Faults) -> FakeStore {
        let secret = if tenant == TENANT_OPEN { Secret::NONE } else { Secret([5; 16]) };
        let socket = UdpSocket::bind(address).await.unwrap();
        let address = socket.local_addr().unwrap();
        let elsewhere = UdpSocket::bind((address.ip(), 0)).await.unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let link = Link { socket, elsewhere, faults, random: faults.seed, held: None };
        let task = tokio::spawn(serve(link, state.clone(), secret)).abort_handle();
        FakeStore { address, secret, tenant, state, task }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Waits until so many requests have arrived.
    pub async fn has_seen(&self, requests: usize) {
        let all = async {
            while self.state().seen.len() < requests {
                tokio::task::yield_now().await;
            }
        };
        let all = tokio::time::timeout(PATIENCE, all).await;
        all.expect("requests arrive");
    }

    pub fn twist(&self, twist: impl FnMut(&Packet<'_>, &mut Reply) + Send + 'static) {
        self.state().twist = Some(Box::new(twist));
    }

    pub fn cluster(&self) -> Cluster {
        // Writes may be sent again for three quarters of a lease.
        let mut cluster = Cluster::single(self.address, 8).with_lease_ms(60_000);
        if self.tenant != TENANT_OPEN {
            let secret: String = self.secret.0.iter().map(|byte| format!("{byte:02x}")).collect();
            cluster.tenants.push(wire::Tenant::new(self.tenant, secret));
        }
        cluster
    }
}

struct Link {
    socket: UdpSocket,
    elsewhere: UdpSocket,
    faults: Faults,
    random: u64,
    /// A datagram that waits to be overtaken by the next one.
    held: Option<(Vec<u8>, SocketAddr)>,
}

impl Link {
    /// True in this percentage of calls (splitmix64).
    fn chance(&mut self, percent: u64) -> bool {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % 100 < percent
    }

    /// Whether the path carries a datagram of this length.
    fn carries(&self, len: usize) -> bool {
        self.faults.longest == 0 || len <= self.faults.longest
    }

    fn loses(&mut self, state: &mut State, request: u64, back: bool) -> bool {
        let lost = self.chance(self.faults.lose);
        let losses = state.losses.entry((request, back)).or_default();
        *losses += u32::from(lost);
        lost && *losses <= MAX_LOSSES
    }

    async fn send(&mut self, bytes: Vec<u8>, to: SocketAddr, elsewhere: bool) {
        let socket = if elsewhere { &self.elsewhere } else { &self.socket };
        socket.send_to(&bytes, to).await.unwrap();
        if let Some((held, to)) = self.held.take() {
            self.socket.send_to(&held, to).await.unwrap();
        }
        if self.chance(self.faults.duplicate) {
            // Held back, so that it arrives when its request is long answered.
            self.held = Some((bytes, to));
        }
    }
}

async fn serve(mut link: Link, state: Arc<Mutex<State>>, secret: Secret) {
    let mut buffer = vec![0; 2048];
    loop {
        let (len, from) = link.socket.recv_from(&mut buffer).await.unwrap();
        let packet = Packet::decode(&buffer[..len]).unwrap();
        assert!(packet.tag_is_valid(&secret), "requests are signed");
        if packet.header.op.reply().is_none() {
            continue; // of a holder
        }
        let outgoing = {
            let mut state = state.lock().unwrap();
            let request = packet.header.request;
            if !link.carries(len) || link.loses(&mut state, request, false) {
                continue;
            }
            state.seen.push((packet.header.op, request, len));
            state.datagrams.push(buffer[..len].to_vec());
            let (header, value) = state.answer(&packet, len);
            let key = packet.key.to_vec();
            let mut reply = Reply { header, key, value, secret, from_elsewhere: false };
            if let Some(twist) = &mut state.twist {
                twist(&packet, &mut reply);
            }
            if link.loses(&mut state, request, true) { None } else { Some(reply) }
        };
        let Some(reply) = outgoing else { continue };
        let bytes =
            Packet::new(reply.header, &reply.key, &reply.value).to_bytes(&reply.secret).unwrap();
        if !link.carries(bytes.len()) {
            continue;
        }
        if link.chance(link.faults.reorder) && link.held.is_none() {
            link.held = Some((bytes, from));
        } else {
            link.send(bytes, from, reply.from_elsewhere).await;
        }
    }
}

impl State {
    /// Forgets writes of which not all parts have come.
    pub fn forget_parts(&mut self) {
        self.joins = parts::Joins::default();
    }

    /// The answer to a request, which may be as long as this.
    pub fn answer(&mut self, packet: &Packet<'_>, len: usize) -> (Header, Vec<u8>) {
        let h = packet.header;
        let reply = Header {
            op: h.op.reply().unwrap(),
            flags: Flags::NONE,
            expiry_ms: 0,
            part: 0,
            total: 0,
            status: Status::Ok,
            ..h
        };
        if h.op == Op::DisciplineRequest {
            return (reply, packet.value.to_vec());
        }
        if h.op == Op::HolderLeaseRequest {
            let epoch = Epoch::new(NODE_HOLDER, 0);
            let key_hash = HolderProof { token: 1, term: 1 }.to_hash();
            return (Header { epoch, key_hash, expiry_ms: 60_000, ..reply }, vec![]);
        }
        if h.op == Op::HolderFetch {
            return self.read(packet, Header { flags: Flags::GRANT, ..reply }, len);
        }
        if !h.op.is_write() {
            return self.read(packet, reply, len);
        }
        if let Some(answered) = self.answered.get(&(h.client, h.request)) {
            return answered.clone();
        }
        if h.is_part() && h.life != LIFE {
            let status = Status::OtherLife;
            let header = Header { status, life: LIFE, ..reply };
            return (header, vec![]);
        }
        let value = match self.joins.take(packet) {
            Ok(value) => value,
            Err(missing) => {
                let status = Status::Taken;
                let (part, total) = (missing, h.total);
                return (Header { status, part, total, ..reply }, vec![]);
            }
        };
        let answer = (self.write(packet, value, reply), vec![]);
        self.answered.insert((h.client, h.request), answer.clone());
        answer
    }

    fn read(&self, packet: &Packet<'_>, reply: Header, len: usize) -> (Header, Vec<u8>) {
        let Some((value, version, expiry_ms)) = self.data.get(packet.key) else {
            return (Header { status: Status::NotFound, ..reply }, vec![]);
        };
        let expiry_ms = *expiry_ms;
        parts::read(packet, Header { expiry_ms, ..reply }, value, *version, len)
    }

    fn write(&mut self, packet: &Packet<'_>, value: Vec<u8>, reply: Header) -> Header {
        let h = packet.header;
        let current = self.data.get(packet.key).map_or(0, |(_, version, _)| *version);
        let holds = h.version == current || (h.version == VERSION_PRESENT && current > 0);
        if h.flags.has(Flags::COMPARE) && !holds {
            return Header { status: Status::Mismatch, version: current, ..reply };
        }
        self.applied += 1;
        self.version += 1;
        let status = if h.op == Op::DeleteRequest {
            self.data.remove(packet.key).map_or(Status::NotFound, |_| Status::Ok)
        } else {
            let entry = (value, self.version, h.expiry_ms);
            self.data.insert(packet.key.to_vec(), entry);
            Status::Ok
        };
        Header { status, version: self.version, ..reply }
    }
}
