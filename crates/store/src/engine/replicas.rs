//! Copies of other stores' keys that disciplines want held here (docs/coherence.md, "Replicas"): this store follows the rules as a
//! switch does, and answers reads that a switch sends it in the place of a key's home.
//!
//! A read of a copy that may not be served now is passed on: the home is asked, once for all reads that wait, and says what the key
//! holds. So a switch that sends reads here by mistake costs a round trip and nothing else.
//!
//! Cost of a read: two look-ups, one encoding. Of a copy: its value and 256 bytes.

mod packets;
mod parts;
mod reads;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    net::SocketAddr,
};

use bytes::Bytes;
use wire::{Epoch, Flags, Header, NodeId, Op, Packet, TENANT_OPEN, TENANT_SYSTEM, maps::HashMap};

use super::{Engine, reply::Origin};
use crate::{
    Config, Incarnation,
    coherence::{Borrowed, Epochs, Nanos, Replica},
    directory::KeyId,
    net::{Outbox, Peer},
    shares::Shares,
    status::ReplicasStatus,
};
use parts::Joining;

/// Keys of other stores that may be held at once.
const KEYS_MOST: usize = 65_536;
/// Reads that may wait for homes at once.
const READS_MOST: usize = 65_536;
/// Bytes that a copy costs beside its key and values.
const OVERHEAD: usize = 256;
/// A home is asked again after this time at first, then after twice the time each time.
const ASK_FIRST_NS: Nanos = 20_000_000;
/// The longest time between two questions.
const ASK_MOST_NS: Nanos = 500_000_000;
/// A key that is absent, or for whose copy there is no room, is asked for again after this time.
const LATER_NS: Nanos = 1_000_000_000;
/// A read that its home has not answered for so long is forgotten: its client has sent it again.
const PATIENCE_NS: Nanos = 1_000_000_000;
/// A copy that no read comes to is confirmed again after this time at first, then after twice the time each time.
const CONFIRM_FIRST_NS: Nanos = 250_000_000;
/// The longest time between two confirmations.
const CONFIRM_MOST_NS: Nanos = 8_000_000_000;
/// Between two of many keys that become due at once.
const SPREAD_NS: Nanos = 50_000;

/// A store that is home to keys which are held here.
struct Lender {
    address: SocketAddr,
    lease: Borrowed,
    /// When it is to be asked for a lease next.
    next_ask_ns: Nanos,
    /// Keys of it that are to be held.
    keys: usize,
}

/// A read that waits for its key's home.
struct Read {
    origin: Origin,
    /// What had been asked when it came: an answer to that does not count.
    after: u64,
    since_ns: Nanos,
}

/// A key of another store.
struct Held {
    key: Box<[u8]>,
    home: NodeId,
    /// A discipline wants it held. Others are here for the reads that wait.
    wanted: bool,
    replica: Replica<Bytes>,
    /// Bytes of the room that it takes.
    cost: usize,
    /// There is no room for its value.
    no_room: bool,
    joining: Option<Joining>,
    reads: Vec<Read>,
    /// The question that is under way; 0: none.
    asked: u64,
    next_ask_ns: Nanos,
    backoff_ns: Nanos,
    /// When the copy is to be confirmed next, and after how long again.
    confirm_ns: Nanos,
    confirm_backoff_ns: Nanos,
    /// When it is to be looked at next; 0: not at all.
    timer_ns: Nanos,
}

/// What is to be done about a key.
enum Step {
    /// Its copy may be served.
    Serve,
    /// Its home is to be asked; `bool`: for a grant.
    Ask(bool),
    /// Nothing before this time.
    Wait(Nanos),
    /// Nothing, until something comes.
    Rest,
    /// It is of no use.
    Forget,
}

/// All copies of other stores' keys.
pub(super) struct Replicas {
    /// This store, as packets name it. None: it is not in the cluster file, and holds nothing.
    me: Option<NodeId>,
    /// Whose requests ours are.
    client: u64,
    /// The newest request.
    newest: u64,
    epochs: Epochs,
    lenders: BTreeMap<NodeId, Lender>,
    held: HashMap<KeyId, Held>,
    /// Bytes, keys and reads.
    room: Shares,
    places: Shares,
    reads: Shares,
    /// Reads of parts that were passed on, by the request that they were passed on in.
    passed: BTreeMap<u64, (Read, Box<[u8]>)>,
    timers: BinaryHeap<Reverse<(Nanos, KeyId)>>,
}

impl Replicas {
    pub fn new(config: &Config, tenants: usize, incarnation: Incarnation) -> Replicas {
        let me = config.identity.and_then(|me| config.cluster.node_of(me));
        Replicas {
            me,
            client: incarnation.first_term(),
            newest: 0,
            epochs: Epochs::new(incarnation.first_epoch()),
            lenders: BTreeMap::new(),
            held: HashMap::default(),
            room: Shares::new(config.replica_memory, tenants),
            places: Shares::new(KEYS_MOST, tenants),
            reads: Shares::new(READS_MOST, tenants),
            passed: BTreeMap::new(),
            timers: BinaryHeap::new(),
        }
    }

    /// From now on so many tenants share the room.
    pub fn share_among(&mut self, tenants: usize) {
        self.room.share_among(tenants);
        self.places.share_among(tenants);
        self.reads.share_among(tenants);
    }

    /// The time as we tell it to homes. Our clock begins anew with each life: an answer to an earlier one must not look like one to this.
    fn dated(&self, now_ns: Nanos) -> u64 {
        now_ns.wrapping_add(self.client)
    }

    /// The time of which we told a home so.
    fn date_in(&self, told: u64) -> Nanos {
        told.wrapping_sub(self.client)
    }

    /// When something is due.
    pub fn next_ns(&self) -> Option<Nanos> {
        let timer = self.timers.peek().map(|Reverse((at_ns, _))| *at_ns);
        let in_use = self.lenders.values().filter(|lender| lender.keys > 0);
        in_use.map(|lender| lender.next_ask_ns).chain(timer).min()
    }

    /// What is held.
    pub fn status(&self, now_ns: Nanos) -> ReplicasStatus {
        let mut status = ReplicasStatus {
            bytes: self.room.all() as u64,
            ..ReplicasStatus::default()
        };
        for held in self.held.values().filter(|held| held.wanted) {
            status.keys += 1;
            status.no_room += u64::from(held.no_room);
            let lease = self.lenders.get(&held.home).map(|lender| &lender.lease);
            let served = lease.and_then(|lease| held.replica.serve(lease, now_ns));
            status.valid += u64::from(served.is_some());
        }
        status
    }

    /// What is to be done about a key now.
    fn step(&self, id: &KeyId, now_ns: Nanos) -> Step {
        let Some(held) = self.held.get(id) else {
            return Step::Forget;
        };
        let Some(Lender { lease, .. }) = self.lenders.get(&held.home) else {
            return Step::Forget;
        };
        if held.replica.serve(lease, now_ns).is_some() {
            return Step::Serve;
        }
        let pulls = held.wanted && lease.holds(now_ns);
        match held.reads.is_empty() && !pulls {
            true if !held.wanted => Step::Forget,
            true => Step::Rest,
            false if now_ns < held.next_ask_ns => Step::Wait(held.next_ask_ns),
            false => Step::Ask(pulls),
        }
    }

    /// Takes so many bytes for a key in the place of those that it has. False: there is no room, and it has what it had.
    fn resize(&mut self, id: &KeyId, bytes: usize) -> bool {
        let Some(held) = self.held.get_mut(id) else {
            return false;
        };
        self.room.give_back(id.0, held.cost);
        let fits = self.room.has_room_for(id.0, bytes);
        if fits {
            held.cost = bytes;
        }
        self.room.take(id.0, held.cost);
        fits
    }

    /// The entry of a key of another store, made if there is none.
    fn enter(&mut self, id: KeyId, key: &[u8], home: (NodeId, SocketAddr), now_ns: Nanos) {
        let Replicas { epochs, .. } = self;
        self.lenders.entry(home.0).or_insert_with(|| Lender {
            address: home.1,
            lease: Borrowed::default(),
            next_ask_ns: now_ns,
            keys: 0,
        });
        self.held.entry(id).or_insert_with(|| Held {
            key: key.into(),
            home: home.0,
            wanted: false,
            replica: Replica::new(epochs.take(), now_ns),
            cost: 0,
            no_room: false,
            joining: None,
            reads: vec![],
            asked: 0,
            next_ask_ns: now_ns,
            backoff_ns: ASK_FIRST_NS,
            confirm_ns: 0,
            confirm_backoff_ns: CONFIRM_FIRST_NS,
            timer_ns: 0,
        });
    }

    fn forget(&mut self, id: &KeyId) {
        let Some(held) = self.held.remove(id) else {
            return;
        };
        self.room.give_back(id.0, held.cost);
        self.reads.give_back(id.0, held.reads.len());
        if held.wanted {
            self.places.give_back(id.0, 1);
            if let Some(lender) = self.lenders.get_mut(&held.home) {
                lender.keys -= 1;
            }
        }
    }

    /// Forgets everything of these tenants.
    pub fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        let held = self.held.keys().filter(|id| gone.contains(&id.0));
        for id in held.copied().collect::<Vec<_>>() {
            self.forget(&id);
        }
        let reads = &mut self.reads;
        self.passed.retain(|_, (read, _)| {
            let stays = !gone.contains(&read.origin.tenant);
            reads.give_back(read.origin.tenant, usize::from(!stays));
            stays
        });
    }

    fn set_timer(&mut self, id: KeyId, at_ns: Nanos) {
        if let Some(held) = self.held.get_mut(&id)
            && (held.timer_ns == 0 || at_ns < held.timer_ns)
        {
            held.timer_ns = at_ns;
            self.timers.push(Reverse((at_ns, id)));
        }
    }

    /// Many keys are to be looked at: one after the other.
    fn set_timers(&mut self, ids: Vec<KeyId>, now_ns: Nanos) {
        for (n, id) in (0..).zip(ids) {
            self.set_timer(id, now_ns + n * SPREAD_NS);
        }
    }
}

impl Engine {
    /// A half wants a copy of a key of another store held. False if it cannot be.
    pub(super) fn hold_replica(
        &mut self,
        tenant: u32,
        key: &[u8],
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let Some((id, home)) = self.abroad(tenant, key) else {
            return false;
        };
        let replicas = &mut self.replicas;
        let is_held = replicas.held.get(&id).is_some_and(|held| held.wanted);
        if !is_held {
            if !replicas.places.has_room(tenant) {
                return false;
            }
            replicas.enter(id, key, home, now_ns);
            replicas.places.take(tenant, 1);
            if let Some(lender) = replicas.lenders.get_mut(&home.0) {
                lender.keys += 1;
            }
        }
        if let Some(held) = replicas.held.get_mut(&id) {
            held.wanted = true;
            // Whoever wants it again may ask for a switch that has forgotten it.
            held.confirm_ns = now_ns;
        }
        self.borrow_leases(now_ns, out);
        self.drive_replica(id, now_ns, out);
        true
    }

    /// A half wants it held no longer. False if it is not.
    pub(super) fn release_replica(
        &mut self,
        tenant: u32,
        key: &[u8],
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let Some((id, _)) = self.abroad(tenant, key) else {
            return false;
        };
        let Some(me) = self.replicas.me else {
            return false;
        };
        if !self.replicas.held.get(&id).is_some_and(|held| held.wanted) {
            return false;
        }
        self.say_of(id, Op::ReplicaDrop, Epoch::new(me, 0), 0, out);
        self.drop_copy(id, now_ns, out);
        true
    }

    /// A key is held no longer: reads of it that wait are answered by its home.
    fn drop_copy(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let replicas = &mut self.replicas;
        let Some(held) = replicas.held.get_mut(&id) else {
            return;
        };
        let reads = std::mem::take(&mut held.reads);
        let key = held.key.clone();
        replicas.reads.give_back(id.0, reads.len());
        replicas.forget(&id);
        for read in reads {
            self.pass_on(read.origin, &key, now_ns, out);
        }
    }

    /// A half wants switches told again which copies of a tenant are valid.
    pub(super) fn confirm_replicas(&mut self, tenant: u32, now_ns: u64) -> bool {
        let mut all = vec![];
        for (id, held) in &mut self.replicas.held {
            if id.0 == tenant && held.wanted && held.replica.is_valid() {
                held.confirm_ns = now_ns;
                held.confirm_backoff_ns = CONFIRM_FIRST_NS;
                all.push(*id);
            }
        }
        self.replicas.set_timers(all, now_ns);
        true
    }

    /// A tenant's key by its hash, with its home, if that is another store.
    fn abroad(&self, tenant: u32, key: &[u8]) -> Option<(KeyId, (NodeId, SocketAddr))> {
        let me = self.replicas.me?;
        let known = self.tenants.get(tenant);
        let known = known.filter(|_| tenant != TENANT_SYSTEM)?;
        if key.is_empty() || key.len() > wire::MAX_KEY {
            return None;
        }
        let hash = known.secrets.hash.key_hash(tenant, key);
        let cluster = &self.config.cluster;
        let address = cluster.store_of(tenant, hash).address;
        let home = cluster.node_of(address).filter(|home| *home != me)?;
        Some(((tenant, hash), (home, address)))
    }

    /// Tenants have changed: a key whose home is another store now is held as a new one, a key whose home we are not at all.
    pub(super) fn move_replicas(&mut self, now_ns: u64, out: &mut Outbox) {
        let held = self.replicas.held.iter();
        let all: Vec<_> = held
            .map(|(id, held)| (*id, held.key.clone(), held.home, held.wanted))
            .collect();
        for (id, key, home, wanted) in all {
            let now = self.abroad(id.0, &key);
            if now.is_some_and(|(_, (now, _))| now == home) {
                continue;
            }
            self.replicas.forget(&id);
            if wanted && now.is_some() {
                self.hold_replica(id.0, &key, now_ns, out);
            }
        }
    }

    /// Does what is due for copies.
    pub(super) fn tick_replicas(&mut self, now_ns: u64, out: &mut Outbox) {
        if self.replicas.next_ns().is_none_or(|due_ns| now_ns < due_ns) {
            return;
        }
        self.borrow_leases(now_ns, out);
        while let Some(&Reverse((at_ns, id))) = self.replicas.timers.peek()
            && at_ns <= now_ns
        {
            self.replicas.timers.pop();
            if let Some(held) = self.replicas.held.get_mut(&id)
                && held.timer_ns == at_ns
            {
                held.timer_ns = 0;
                self.drive_replica(id, now_ns, out);
            }
        }
        self.forget_passed(now_ns);
    }

    /// Moves a key on as far as it goes.
    fn drive_replica(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        match self.replicas.step(&id, now_ns) {
            Step::Serve => {
                self.answer_waiting(id, now_ns, out);
                self.confirm(id, now_ns, out);
            }
            Step::Ask(pulls) => {
                self.ask_home(id, pulls, now_ns, out);
                if let Some(at_ns) = self.replicas.held.get(&id).map(|held| held.next_ask_ns) {
                    self.replicas.set_timer(id, at_ns);
                }
            }
            Step::Wait(at_ns) => self.replicas.set_timer(id, at_ns),
            Step::Rest => {}
            Step::Forget => self.replicas.forget(&id),
        }
    }

    /// Asks a key's home what it holds, for a grant if it is to be held here.
    fn ask_home(&mut self, id: KeyId, pulls: bool, now_ns: u64, out: &mut Outbox) {
        let Replicas {
            me: Some(me),
            newest,
            epochs,
            lenders,
            held,
            reads,
            ..
        } = &mut self.replicas
        else {
            return;
        };
        let Some(held) = held.get_mut(&id) else {
            return;
        };
        let Some(Lender { lease, .. }) = lenders.get(&held.home) else {
            return;
        };
        let before = held.reads.len();
        held.reads
            .retain(|read| now_ns < read.since_ns + PATIENCE_NS);
        reads.give_back(id.0, before - held.reads.len());
        held.next_ask_ns = now_ns + held.backoff_ns;
        held.backoff_ns = (2 * held.backoff_ns).min(ASK_MOST_NS);
        let joins = held.joining.is_some();
        if joins && held.reads.is_empty() {
            return self.ask_parts(id, out);
        }
        let mut header = Header::new(Op::FetchRequest);
        if pulls && !joins {
            let replica = &mut held.replica;
            if replica.is_valid() || !lease.is_above_floor(replica.epoch()) {
                replica.raise(epochs.take(), now_ns);
            }
            header.epoch = Epoch::new(*me, replica.epoch());
            header.flags = Flags::GRANT;
        }
        *newest += 1;
        held.asked = *newest;
        header.request = held.asked;
        self.counters.replica_asks += 1;
        self.fetch(id, header, out);
        if joins {
            self.ask_parts(id, out);
        }
    }

    /// Sends a FetchRequest about a key to its home. It may be answered at full length.
    fn fetch(&mut self, id: KeyId, mut header: Header, out: &mut Outbox) {
        header.client = self.replicas.client;
        let Some(held) = self.replicas.held.get(&id) else {
            return;
        };
        let (home, key) = (held.home, held.key.clone());
        self.fetch_of(id, home, &key, header, out);
    }

    fn fetch_of(
        &mut self,
        id: KeyId,
        home: NodeId,
        key: &[u8],
        mut header: Header,
        out: &mut Outbox,
    ) {
        let Some(peer) = self.peer_of(home) else {
            return;
        };
        header.client = self.replicas.client;
        (header.tenant, header.key_hash) = id;
        let system = self.system_secret();
        let pushed = out.push(&Packet::new(header, key, &[]), &system, peer);
        if pushed.is_ok()
            && id.0 == TENANT_OPEN
            && let Some((mut bytes, peer)) = out.pop()
        {
            bytes.resize(wire::MAX_PAYLOAD, 0);
            out.push_bytes(&bytes, peer);
        }
    }

    /// Tells switches on the way to its home, and nobody else, something of a key.
    fn say_of(&mut self, id: KeyId, op: Op, epoch: Epoch, version: u64, out: &mut Outbox) {
        let Some(held) = self.replicas.held.get(&id) else {
            return;
        };
        let Some(peer) = self.peer_of(held.home) else {
            return;
        };
        let header = Header {
            tenant: id.0,
            key_hash: id.1,
            epoch,
            version,
            ..Header::new(op)
        };
        let _ = out.push(
            &Packet::new(header, &held.key, &[]),
            &self.system_secret(),
            peer,
        );
    }

    /// Confirms a copy that is valid, if that is due.
    fn confirm(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let Some(me) = self.replicas.me else { return };
        let Some(held) = self.replicas.held.get_mut(&id) else {
            return;
        };
        let is_due = now_ns >= held.confirm_ns;
        if is_due {
            held.confirm_ns = now_ns + held.confirm_backoff_ns;
            held.confirm_backoff_ns = (2 * held.confirm_backoff_ns).min(CONFIRM_MOST_NS);
        }
        let epoch = Epoch::new(me, held.replica.epoch());
        let version = held.replica.version().unwrap_or(0);
        let ends_ns = held.replica.expires_ns().unwrap_or(Nanos::MAX);
        let next_ns = held.confirm_ns.min(ends_ns);
        if is_due {
            self.counters.replica_confirms += 1;
            self.say_of(id, Op::ReplicaConfirm, epoch, version, out);
        }
        self.replicas.set_timer(id, next_ns);
    }

    /// The epoch of a key's copy.
    #[cfg(test)]
    pub(super) fn epoch_of_replica(&self, id: KeyId) -> Option<Epoch> {
        let epoch = self.replicas.held.get(&id)?.replica.epoch();
        Some(Epoch::new(self.replicas.me?, epoch))
    }

    /// Where a store is.
    fn peer_of(&self, node: NodeId) -> Option<Peer> {
        let address = self.config.cluster.store_numbered(node)?.address;
        // Others know us by our address in the cluster file.
        let any = self.config.listen.ip().is_unspecified();
        let local = self.config.identity.filter(|_| any).map(|me| me.ip());
        Some(Peer { address, local })
    }
}
