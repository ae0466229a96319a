//! Copies of other stores' keys that disciplines want held here (docs/coherence.md,
//! "Replicas"): this store follows the rules as a switch does, and answers reads that a switch
//! sends it in the place of a key's home.
//!
//! A read of a copy that may not be served now is passed on: the home is asked, once for all reads
//! that wait, and says what the key holds. So a switch that sends reads here by mistake costs a
//! round trip and nothing else.
//!
//! Cost of a read: two look-ups, one encoding. Of a copy: its value and 256 bytes.

mod drive;
mod epochs;
mod hold;
mod leaving;
mod packets;
mod parts;
mod reads;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    net::SocketAddr,
};

use bytes::Bytes;
use wire::{
    NodeId,
    maps::{HashMap, HashSet},
};

use super::{context::Context, replies::Origin};
use crate::{
    Config, Incarnation,
    coherence::{BorrowedLease, Epochs, Nanos, Replica},
    counters::ReplicaCounters,
    directory::KeyId,
    net::Peer,
    shares::Shares,
    status::ReplicasStatus,
};
use epochs::SharedEpochs;
use leaving::LeaseReturns;
use parts::PartialCopy;

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
/// A key that is absent, or for whose copy there is no room, is asked for again after this time at
/// first, then after twice the time each time.
const LATER_NS: Nanos = 1_000_000_000;
/// The longest time until then.
const LATER_MOST_NS: Nanos = 32_000_000_000;
/// A read that its home has not answered for so long is forgotten: its client has sent it again.
const PATIENCE_NS: Nanos = 1_000_000_000;
/// A copy that no read comes to is confirmed again after this time at first, then after twice the
/// time each time.
const CONFIRM_FIRST_NS: Nanos = 250_000_000;
/// The longest time between two confirmations.
const CONFIRM_MOST_NS: Nanos = 8_000_000_000;
/// Between two of many keys that become due at once.
const SPREAD_NS: Nanos = 50_000;
/// Between two of many keys that are to be asked for: other stores are told to hold them at the
/// same time, and ask the same homes.
const ASKS_SPREAD_NS: Nanos = 4_000_000;

/// A store that is home to keys which are held here.
struct Lender {
    address: SocketAddr,
    lease: BorrowedLease,
    /// When it is to be asked for a lease next.
    next_ask_ns: Nanos,
    /// Keys of it that are to be held.
    keys: usize,
}

/// Whose a read is, and which: where it came from, client and request.
type ReadId = (SocketAddr, u64, u64);

/// A read that waits for its key's home.
struct PendingRead {
    origin: Origin,
    /// What had been asked when it came: an answer to that does not count.
    after: u64,
    since_ns: Nanos,
}

/// A read of a part that was passed on to this home.
struct PartRead {
    read: PendingRead,
    home: NodeId,
    key: Box<[u8]>,
}

/// A key of another store.
struct ForeignCopy {
    key: Box<[u8]>,
    home: NodeId,
    /// A discipline wants it held. Others are here for the reads that wait.
    wanted: bool,
    replica: Replica<Bytes>,
    /// Bytes of the room that it takes.
    cost: usize,
    /// There is no room for its value.
    no_room: bool,
    joining: Option<PartialCopy>,
    /// By who has sent them: of copies one waits.
    reads: BTreeMap<ReadId, PendingRead>,
    /// The question that is under way; 0: none.
    asked: u64,
    next_ask_ns: Nanos,
    backoff_ns: Nanos,
    /// No copy is asked for before this time: the key was absent, or there was no room. And how
    /// long it is the next time.
    pull_ns: Nanos,
    later_ns: Nanos,
    /// How long the next value of many parts has to wait: those before it were not joined.
    join_wait_ns: Nanos,
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
pub(super) struct ForeignCopies {
    /// This store, as packets name it. None: it is not in the cluster file, and holds nothing.
    me: Option<NodeId>,
    /// Whose requests ours are.
    client: u64,
    /// The newest request.
    newest: u64,
    epochs: SharedEpochs,
    lenders: BTreeMap<NodeId, Lender>,
    /// No lender is to be asked for a lease before this time.
    lease_due_ns: Nanos,
    held: HashMap<KeyId, ForeignCopy>,
    /// Bytes, keys and reads.
    room: Shares,
    places: Shares,
    reads: Shares,
    /// Reads of parts that were passed on, by the request that they were passed on in.
    passed: BTreeMap<u64, PartRead>,
    timers: BinaryHeap<Reverse<(Nanos, KeyId)>>,
    /// When one more of many keys may be asked for first.
    next_first_ns: Nanos,
    leaving: Option<LeaseReturns>,
    pub counters: ReplicaCounters,
}

impl ForeignCopies {
    pub fn new(
        config: &Config,
        tenants: usize,
        incarnation: Incarnation,
        now_ns: Nanos,
    ) -> ForeignCopies {
        let me = config.identity.and_then(|me| config.cluster.node_of(me));
        ForeignCopies {
            me,
            client: incarnation.client(),
            newest: 0,
            epochs: SharedEpochs::new(Epochs::new(incarnation.first_epoch(), now_ns), tenants),
            lenders: BTreeMap::new(),
            lease_due_ns: Nanos::MAX,
            held: HashMap::default(),
            room: Shares::new(config.replica_memory, tenants),
            places: Shares::new(KEYS_MOST, tenants),
            reads: Shares::new(READS_MOST, tenants),
            passed: BTreeMap::new(),
            timers: BinaryHeap::new(),
            next_first_ns: 0,
            leaving: None,
            counters: ReplicaCounters::default(),
        }
    }

    /// From now on so many tenants share the room.
    pub fn share_among(&mut self, tenants: usize) {
        self.room.share_among(tenants);
        self.places.share_among(tenants);
        self.reads.share_among(tenants);
        self.epochs.share_among(tenants);
    }

    /// The time as we tell it to homes. Our clock begins anew with each life: an answer to an
    /// earlier one must not look like one to this.
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
        let lease = (self.lease_due_ns < Nanos::MAX).then_some(self.lease_due_ns);
        let passed = self.passed.first_key_value();
        let forgotten = passed.map(|(_, passed)| passed.read.since_ns + PATIENCE_NS);
        let says = self.leaving.as_ref().and_then(LeaseReturns::next_ns);
        [timer, lease, forgotten, says].into_iter().flatten().min()
    }

    /// What is held.
    pub fn status(&self, now_ns: Nanos) -> ReplicasStatus {
        let mut status =
            ReplicasStatus { bytes: self.room.all() as u64, ..ReplicasStatus::default() };
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
        let Some(held) = self.held.get(id) else { return Step::Forget };
        let Some(Lender { lease, .. }) = self.lenders.get(&held.home) else { return Step::Forget };
        if held.replica.serve(lease, now_ns).is_some() {
            return Step::Serve;
        }
        let may_pull = held.wanted && lease.holds(now_ns);
        let pulls = may_pull && now_ns >= held.pull_ns;
        match held.reads.is_empty() && !pulls {
            true if !held.wanted => Step::Forget,
            true if may_pull => Step::Wait(held.pull_ns.max(held.next_ask_ns)),
            true => Step::Rest,
            false if now_ns < held.next_ask_ns => Step::Wait(held.next_ask_ns),
            false => Step::Ask(pulls),
        }
    }

    /// Takes so many bytes for a key in the place of those that it has. False: there is no room,
    /// and it has what it had.
    fn resize(&mut self, id: &KeyId, bytes: usize) -> bool {
        let Some(held) = self.held.get_mut(id) else { return false };
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
        self.lenders.entry(home.0).or_insert_with(|| Lender {
            address: home.1,
            lease: BorrowedLease::default(),
            next_ask_ns: now_ns,
            keys: 0,
        });
        self.held.entry(id).or_insert_with(|| ForeignCopy {
            key: key.into(),
            home: home.0,
            wanted: false,
            // One that is asked for takes an epoch then.
            replica: Replica::new(0, now_ns),
            cost: 0,
            no_room: false,
            joining: None,
            reads: BTreeMap::new(),
            asked: 0,
            next_ask_ns: now_ns,
            backoff_ns: ASK_FIRST_NS,
            pull_ns: 0,
            later_ns: LATER_NS,
            join_wait_ns: 0,
            confirm_ns: 0,
            confirm_backoff_ns: CONFIRM_FIRST_NS,
            timer_ns: 0,
        });
    }

    fn forget(&mut self, id: &KeyId) {
        let Some(held) = self.held.remove(id) else { return };
        self.room.give_back(id.0, held.cost);
        self.reads.give_back(id.0, held.reads.len());
        if held.wanted {
            self.places.give_back(id.0, 1);
            if let Some(lender) = self.lenders.get_mut(&held.home) {
                lender.keys -= 1;
            }
        }
    }

    /// Forgets what was to be held of any other tenants.
    pub fn forget_all_but(&mut self, placed: &HashSet<u32>) {
        let is_over = |(id, held): &(&KeyId, &ForeignCopy)| held.wanted && !placed.contains(&id.0);
        let held = self.held.iter().filter(is_over).map(|(id, _)| *id);
        for id in held.collect::<Vec<_>>() {
            self.forget(&id);
        }
    }

    /// Forgets everything of these tenants.
    pub fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        self.epochs.forget_tenants(gone);
        let held = self.held.keys().filter(|id| gone.contains(&id.0));
        for id in held.copied().collect::<Vec<_>>() {
            self.forget(&id);
        }
        let reads = &mut self.reads;
        self.passed.retain(|_, PartRead { read, .. }| {
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

    /// Many keys are to be looked at: one after the other, so long after it.
    fn set_timers(&mut self, ids: Vec<KeyId>, spread_ns: Nanos, now_ns: Nanos) {
        for (n, id) in (0..).zip(ids) {
            self.set_timer(id, now_ns + n * spread_ns);
        }
    }

    /// When the next of many keys is to be asked for: the first at once.
    fn first_ask_ns(&mut self, now_ns: Nanos) -> Nanos {
        let at_ns = self.next_first_ns.max(now_ns);
        self.next_first_ns = at_ns + ASKS_SPREAD_NS;
        at_ns
    }
}

/// Where a store is.
fn peer_of(cx: &Context, node: NodeId) -> Option<Peer> {
    let address = cx.config.cluster.store_numbered(node)?.address;
    // Others know us by our address in the cluster file.
    let any = cx.config.listen.ip().is_unspecified();
    let local = cx.config.identity.filter(|_| any).map(|me| me.ip());
    Some(Peer { address, local })
}

/// A packet that a server does something for: whether there is time for it.
fn pays(cx: &mut Context, id: KeyId) -> bool {
    let payer = cx.partitions.in_place_of(cx.partitions.at(id.1));
    cx.take_time(payer).is_some()
}
