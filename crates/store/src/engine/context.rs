//! What the parts of a store share while one event is handled: the time, the way out, and the facts
//! that more than one of them goes by. What a part leaves to others it says as an [`Effect`].

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use decide::Request;
use wire::{Epoch, Header, KeyHash, NODE_STORE, NodeId, Packet, Secret, Status, TENANT_SYSTEM};

use super::{
    backend_requests::BackendRequests,
    granted_values::GrantedValues,
    hold::HoldId,
    holders::Holders,
    large_values::LargeValues,
    lease_holder::LeaseHolder,
    ledger::Ledger,
    pending_write::{Exclusive, PendingWrite},
    replies::{Answer, Origin, Replies},
    tenants::Tenants,
};
use crate::{
    Config, Incarnation,
    backend::{Admission, Backend, Key},
    coherence::{Leases, Nanos, OutsideWatch, counted_ns},
    counters::RequestCounters,
    directory::{Directory, KeyId, Place},
    net::{Outbox, Peer},
    partition::Partitions,
    placements::Placements,
};
use holder::mutants::{Mutant, mutant};

/// What a part leaves to others, in the order in which they are to do it. The engine has all of
/// them done before it takes the next event.
pub(super) enum Effect {
    /// No copy of a key that is held is left, and no write of it is under way.
    Cleared(KeyId),
    /// A store that holds copies is to be pushed the newest value of a key: a read in its name.
    Push(Box<(Origin, Box<[u8]>)>),
    /// The pushes that a key's stores asked for are made: it may be at rest.
    Pushed(Place),
    /// A key is going to be lent: its copies are called back, and its writes wait.
    Hold(KeyId, Box<[u8]>),
    /// A key is the store's again: its writes go on.
    Release(KeyId),
    /// The owner of a lent key has begun: the writes that wait are for it.
    Begun(KeyId),
    /// A write that was parked is the store's to decide after all.
    Submit(Box<(PendingWrite, Box<[u8]>, Epoch)>),
    /// A store asked for a grant of a lent key: it is pushed one when the loan is over.
    GrantLater(KeyId, Epoch),
    /// A hold has its turn at the key that it waited for.
    Taken(HoldId),
    /// A half wants the value of an open request's key.
    ReadForHalf(usize, Request),
    /// A half wants a copy of another store's key held.
    HoldCopy(u32, Bytes),
    /// A half wants it held no longer.
    ReleaseCopy(u32, Bytes),
    /// A half wants switches told again which copies of a tenant are valid.
    ConfirmCopies(u32),
}

/// The versions that writes of this store get: each higher than those before, over lives of
/// the store.
pub(super) struct Versions {
    /// Of the last write.
    pub newest: u64,
}

impl Versions {
    /// The next one.
    pub fn next(&mut self) -> u64 {
        self.newest += 1;
        self.newest
    }

    /// The first of `count` that nobody else gets, all of them above `known`.
    pub fn reserve(&mut self, count: u64, known: u64) -> u64 {
        let first = self.newest.max(known) + 1;
        self.newest = first + count - 1;
        first
    }
}

/// The event that is being handled, and the facts that parts share.
pub(super) struct Context {
    /// The time of the event, on the store's clock.
    pub now_ns: Nanos,
    /// Where packets go. Between events it is empty: the engine's caller has what is sent.
    pub out: Outbox,
    pub config: Arc<Config>,
    pub backend: Box<dyn Backend>,
    /// What there is time for; none: everything.
    pub admission: Option<Admission>,
    pub tenants: Tenants,
    pub partitions: Partitions,
    pub placements: Placements,
    pub leases: Leases<LeaseHolder>,
    pub holders: Holders,
    pub outside: OutsideWatch<KeyId>,
    pub directory: Directory<Exclusive>,
    pub ledger: Ledger,
    pub values: LargeValues,
    pub granted: GrantedValues,
    pub waiting: BackendRequests,
    pub replies: Replies,
    pub versions: Versions,
    pub counters: RequestCounters,
    pub effects: VecDeque<Effect>,
    /// When the store started.
    pub started_ns: Nanos,
    /// The store is about to end: it grants and lends nothing any more.
    pub leaves: bool,
    /// A command is to have every key for itself: nothing is granted, and no write begun with.
    pub all_held: bool,
}

impl Context {
    /// Of a store that starts at `now_ns`.
    pub fn new(
        config: Arc<Config>,
        mut backend: Box<dyn Backend>,
        now_ns: Nanos,
        incarnation: Incarnation,
    ) -> Context {
        backend.longest(config.cluster.max_value as usize);
        let cluster = &config.cluster;
        let owned = |partition: u32| {
            config.identity.is_none_or(|me| {
                cluster
                    .stores
                    .iter()
                    .any(|s| s.address == me && (s.first..=s.last).contains(&partition))
            })
        };
        let tenants = Tenants::new(cluster, config.identity, None);
        Context {
            now_ns,
            out: Outbox::default(),
            partitions: Partitions::new(cluster.partitions, owned),
            placements: Placements::default(),
            leases: Leases::new(config.lease_ns(), incarnation.first_term()),
            holders: Holders::new(tenants.len(), incarnation.secret()),
            outside: OutsideWatch::new(backend.watch(), now_ns),
            directory: Directory::new(config.directory_limit, tenants.len()),
            ledger: Ledger::new(&config, tenants.len()),
            values: LargeValues::new(config.parts_limit, tenants.len()),
            granted: GrantedValues::new(tenants.len()),
            waiting: BackendRequests::new(super::MAX_WAITING, tenants.len()),
            replies: Replies::new(incarnation.name()),
            versions: Versions { newest: incarnation.first_version() },
            counters: RequestCounters::default(),
            effects: VecDeque::new(),
            started_ns: now_ns,
            leaves: false,
            all_held: false,
            tenants,
            backend,
            admission: None,
            config,
        }
    }

    /// From now on the tenants share what they have a share of.
    pub fn share_anew(&mut self) {
        let tenants = self.tenants.len();
        self.directory.share_among(tenants);
        self.ledger.share_among(tenants);
        self.holders.share_among(tenants);
        self.values.share_among(tenants);
        self.granted.share_among(tenants);
        self.waiting.share_among(tenants);
        let longest = self.config.cluster.max_value as usize;
        self.backend.longest(longest);
    }

    /// Answers a request.
    pub fn reply(&mut self, origin: &Origin, key: &[u8], answer: &Answer<'_>) {
        self.replies.send(origin, key, answer, self.now_ns, &mut self.out);
    }

    /// Answers a request with nothing but a status.
    pub fn refuse(&mut self, origin: &Origin, key: &[u8], status: Status) {
        self.reply(origin, key, &Answer::status(status));
    }

    /// Sends a packet of the store's own, signed with the system's secret.
    pub fn send(&mut self, header: Header, key: &[u8], value: &[u8], peer: Peer) {
        let secret = self.system_secret();
        // What is no packet nobody could use.
        let _ = self.out.push(&Packet::new(header, key, value), &secret, peer);
    }

    /// Leaves something to another part.
    pub fn leave(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// The secret that stores and switches share.
    pub fn system_secret(&self) -> Secret {
        self.tenants.tag_of(TENANT_SYSTEM)
    }

    /// Whether the wait after a restart is over at `now_ns`: what a former life lent has ended, and
    /// clients have given up what it may have applied.
    pub fn takes_writes(&self, now_ns: Nanos) -> bool {
        now_ns >= self.takes_writes_from_ns() || mutant(Mutant::NoWaitAfterRestart)
    }

    /// When that wait is over.
    pub fn takes_writes_from_ns(&self) -> Nanos {
        self.started_ns + counted_ns(self.config.longest_lease_ns())
    }

    /// How long it takes at most until all lent keys are back, whatever has become of the switches,
    /// if the backend answers.
    pub fn returns_within_ns(&self) -> Nanos {
        2 * self.leases.length_ns() + 1_000_000_000
    }

    /// Whether what the store has is still there when its process has ended.
    pub fn outlives(&self) -> bool {
        self.config.backend != crate::BackendConfig::Embedded
    }

    /// The time since the store started.
    pub fn since_start(&self) -> Duration {
        Duration::from_nanos(self.now_ns - self.started_ns)
    }

    /// Whether a tenant's key is this store's, as the cluster is now.
    pub fn is_home_of(&self, tenant: u32, hash: KeyHash) -> bool {
        let partition = self.partitions.at(hash);
        let owns = self.partitions.owns(partition);
        let known = self.tenants.get(tenant);
        known.is_some_and(|known| known.holds(partition, owns))
    }

    /// Whether the store of this number may hold copies of a tenant's keys.
    pub fn may_hold(&self, store: NodeId, tenant: u32) -> bool {
        let store = self.config.cluster.store_numbered(store);
        let known = self.tenants.get(tenant);
        store.is_some_and(|store| known.is_some_and(|known| known.may_use(store.address)))
    }

    /// Whether a packet that speaks for a store comes from there: two stores whose cluster files
    /// list them in another order would both speak for one. What speaks for a switch may come from
    /// anywhere.
    pub fn may_speak(&self, epoch: Epoch, peer: Peer) -> bool {
        if epoch.switch() & NODE_STORE == 0 {
            return true;
        }
        let store = self.config.cluster.store_numbered(epoch.switch());
        store.is_some_and(|store| peer.is_at(store.address))
    }

    /// Takes time of a partition's server for one request: the time before which its answer must
    /// not leave; none if it is dropped.
    pub fn take_time(&mut self, partition: usize) -> Option<u64> {
        let taken = match &mut self.admission {
            Some(admission) => admission(partition, self.now_ns),
            None => Some(0),
        };
        self.partitions.count(partition, taken.is_some());
        self.counters.dropped_rate_limit += u64::from(taken.is_none());
        taken
    }

    /// Gives the value that a key has under the version `from` a version of its own. None: a write
    /// has come between.
    pub fn raise(&mut self, id: KeyId, from: u64) -> Option<u64> {
        let version = self.versions.next();
        self.granted.end(id);
        let is_raised = self.backend.raise(id.0, id.1, from, version);
        is_raised.then_some(version)
    }

    /// A write of a key that failed can no longer take place: what is there, be it that write's
    /// value or the one before, gets a version under which nobody has read either.
    pub fn settle(&mut self, id: KeyId) {
        let version = self.versions.next();
        self.backend.settle(id.0, id.1, version);
        self.changes(id);
    }

    /// A key is written, or others have: what is kept of it is not the newest any more.
    pub fn changes(&mut self, id: KeyId) {
        self.values.end(id);
        self.granted.end(id);
    }

    /// Any key may have been written.
    pub fn all_change(&mut self) {
        self.values.end_all();
        self.granted.end_all();
    }
}

/// A key as the backend knows it.
pub(super) fn named(id: KeyId, bytes: &[u8]) -> Key<'_> {
    Key { tenant: id.0, hash: id.1, bytes }
}
