//! The store without its socket: datagrams and the time go in, replies come out.

mod halves;
mod joins;
mod keys;
mod lease;
mod lent;
mod pushes;
mod read;
mod recalls;
mod replicas;
mod reply;
mod tenants;
#[cfg(test)]
mod tests;
mod values;
mod waiting;

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc};

use wire::{Op, Packet, Secret, Status};

use crate::{
    Config, Incarnation,
    backend::{Backend, Key, Ticket},
    clients::Clients,
    coherence::{Invalidate, Leases, Nanos, Outside, counted_ns},
    counters::Counters,
    directory::{Directory, KeyId, Place},
    mutants::{Mutant, mutant},
    net::{Outbox, Peer},
    partition::Partitions,
    placements::Placements,
    shares::Shares,
};
use halves::Halves;
pub use halves::TellError;
use joins::Joins;
use keys::{Job, Outcome};
use lease::Home;
use lent::Loans;
use recalls::Recalls;
use replicas::Replicas;
use reply::{Delayed, Origin, Replies};
use tenants::Tenants;
pub use tenants::UpdateError;
use values::Held;
use waiting::Waiting;

/// Requests that may wait for the backend at once; what comes on top is dropped. Also the writes that may wait for
/// switches, or behind one another, over all keys: their values take 100 MB at most.
const MAX_WAITING: usize = 65_536;

/// Ops that the store itself takes.
pub(crate) fn is_own(op: Op) -> bool {
    Way::of(op) != Way::Discipline
}

/// Whether a packet of this op may have to do with a part of a value only.
fn takes_parts(op: Op) -> bool {
    Way::of(op) == Way::Keyed && op != Op::DeleteRequest
}

/// Which part takes an op.
#[derive(PartialEq)]
enum Way {
    Keyed,
    Ack,
    Lease,
    Loan,
    Replica,
    Discipline,
}

impl Way {
    fn of(op: Op) -> Way {
        match op {
            Op::ReadRequest
            | Op::CorrectionRequest
            | Op::WriteRequest
            | Op::DeleteRequest
            | Op::FetchRequest => Way::Keyed,
            Op::InvalidateAck => Way::Ack,
            Op::LeaseRequest => Way::Lease,
            Op::KeepRequest | Op::LendReply | Op::TakeReply => Way::Loan,
            Op::Invalidate
            | Op::LeaseOffer
            | Op::LeaseReply
            | Op::FetchReply
            | Op::ReplicaConfirm
            | Op::ReplicaPush
            | Op::ReplicaDrop
            | Op::ReplicaUpdate => Way::Replica,
            _ => Way::Discipline,
        }
    }
}

/// A store's whole state.
pub struct Engine {
    config: Arc<Config>,
    backend: Box<dyn Backend>,
    tenants: Tenants,
    partitions: Partitions,
    placements: Placements,
    counters: Counters,
    replies: Replies,
    leases: Leases<Home>,
    outside: Outside<KeyId>,
    recalls: Recalls,
    directory: Directory<Job>,
    clients: Clients<Outcome>,
    halves: Halves,
    waiting: Waiting,
    joins: Joins,
    held: Held,
    loans: Loans,
    replicas: Replicas,
    /// Writes taken and not yet over.
    pending_writes: Shares,
    timers: BinaryHeap<Reverse<(Nanos, Place)>>,
    next_offer_ns: Nanos,
    ticket: Ticket,
    /// Empty between uses; kept for its memory.
    invalidations: Vec<Invalidate>,
    /// Of the last write.
    version: u64,
    started_ns: u64,
}

impl Engine {
    /// A store that starts at `now_ns` of its own clock.
    pub fn new(
        config: Arc<Config>,
        mut backend: Box<dyn Backend>,
        now_ns: u64,
        incarnation: Incarnation,
    ) -> Engine {
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
        let partitions = Partitions::new(cluster.partitions, owned);
        let leases = Leases::new(config.lease_ns(), incarnation.first_term());
        Engine {
            directory: Directory::new(config.directory_limit, tenants.len()),
            clients: Clients::new(
                config.client_limit,
                tenants.len(),
                counted_ns(config.longest_lease_ns()),
            ),
            leases,
            outside: Outside::new(backend.watch(), now_ns),
            recalls: Recalls::default(),
            halves: Halves::new(&config.halves, tenants.len()),
            waiting: Waiting::new(MAX_WAITING, tenants.len()),
            joins: Joins::new(
                config.parts_limit,
                tenants.len(),
                config.cluster.write_deadline().as_nanos() as u64,
            ),
            held: Held::new(config.parts_limit, tenants.len()),
            loans: Loans::new(
                tenants.len(),
                config.backend != crate::BackendConfig::Embedded,
                incarnation.first_term(),
            ),
            replicas: Replicas::new(&config, tenants.len(), incarnation, now_ns),
            pending_writes: Shares::new(MAX_WAITING, tenants.len()),
            timers: BinaryHeap::new(),
            next_offer_ns: 0,
            ticket: 0,
            invalidations: Vec::new(),
            partitions,
            placements: Placements::default(),
            backend,
            counters: Counters::default(),
            replies: Replies {
                life: incarnation.name(),
                delayed: Delayed::default(),
            },
            tenants,
            version: incarnation.first_version(),
            started_ns: now_ns,
            config,
        }
    }

    /// Handles one datagram that arrived at `now_ns`.
    pub fn receive(&mut self, datagram: &[u8], peer: Peer, now_ns: u64, out: &mut Outbox) {
        let Ok(packet) = Packet::decode(datagram) else {
            self.counters.dropped_malformed += 1;
            return;
        };
        let room = datagram.len();
        if self.is_redirected(&packet.header) {
            return self.redirected(&packet, room, peer, now_ns, out);
        }
        match Way::of(packet.header.op) {
            Way::Keyed => self.keyed(&packet, room, peer, now_ns, out),
            Way::Ack => self.ack(&packet, peer, now_ns, out),
            Way::Lease => self.lease(&packet, peer, now_ns, out),
            Way::Loan => self.loan_message(&packet, now_ns, out),
            Way::Replica => self.replica_message(&packet, peer, now_ns, out),
            Way::Discipline => self.operation(&packet, room, peer, now_ns, out),
        }
    }

    /// Requests that name a key, and are the store's own.
    fn keyed(
        &mut self,
        packet: &Packet<'_>,
        room: usize,
        peer: Peer,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let Some((origin, _)) = self.admit(packet, room, peer, false, now_ns, out) else {
            return;
        };
        let header = &packet.header;
        let key = Key {
            tenant: header.tenant,
            hash: header.key_hash,
            bytes: packet.key,
        };
        if header.op.is_write() {
            self.write(origin, key, packet, now_ns, out);
        } else {
            if header.op == Op::ReadRequest {
                self.watch_read(key, now_ns, out);
            }
            self.read(origin, key, now_ns, out);
        }
    }

    /// Checks who asks and whether the key is ours, and takes the request if there is time for it: its origin, and whether the key
    /// is ours, which it may not be if `foreign` ones are taken too. What is not taken is answered or dropped here.
    fn admit(
        &mut self,
        packet: &Packet<'_>,
        room: usize,
        peer: Peer,
        foreign: bool,
        now_ns: u64,
        out: &mut Outbox,
    ) -> Option<(Origin, bool)> {
        let header = &packet.header;
        if header.is_part() && !takes_parts(header.op) {
            self.counters.dropped_part += 1;
            return None;
        }
        let mut origin = Origin::of(header, room, peer);
        if foreign {
            origin.node = header.node;
        }
        let (secret, judged) = self.judge(packet, foreign);
        origin.secret = secret;
        let (partition, owned) = match judged {
            Ok(place) => place,
            Err(status) => {
                self.replies
                    .refuse(&origin, packet.key, status, now_ns, out);
                return None;
            }
        };
        let payer = if owned {
            partition
        } else {
            self.partitions.in_place_of(partition)
        };
        origin.not_before_ns = self.take_time(payer, now_ns)?;
        if owned {
            origin.node = 0;
        }
        // Stores stamp no requests of clients; of what says so nobody would correct what is wrong.
        let of_itself = header.op == Op::FetchRequest && self.may_speak(header.epoch, peer);
        if header.epoch.switch() & wire::NODE_STORE != 0 && !of_itself {
            self.counters.claims_ignored += 1;
            origin.epoch = wire::Epoch::NONE;
            origin.wants_grant = false;
        }
        Some((origin, owned))
    }

    /// Takes time of a partition's server for one request: the time before which its answer must not leave; none if it is dropped.
    fn take_time(&mut self, partition: usize, now_ns: u64) -> Option<u64> {
        let taken = self.backend.admit(partition, now_ns);
        self.partitions.count(partition, taken.is_some());
        self.counters.dropped_rate_limit += u64::from(taken.is_none());
        taken
    }

    /// Who asks, and whether the key is ours: the secret that signs the answer, and the key's partition with whether we hold it, or
    /// why not.
    fn judge(
        &mut self,
        packet: &Packet<'_>,
        foreign: bool,
    ) -> (Secret, Result<(usize, bool), Status>) {
        let header = &packet.header;
        let system = self.system_secret();
        let counters = &mut self.counters;
        let known = self.tenants.get(header.tenant);
        let Some(known) = known.filter(|_| header.tenant != wire::TENANT_SYSTEM) else {
            counters.denied_tenant += 1;
            let secret = known.map_or(Secret::NONE, |known| known.secrets.tag);
            return (secret, Err(Status::Denied));
        };
        let signed = match header.op.is_system() {
            true => Some(system).filter(|secret| packet.tag_is_valid(secret)),
            false => known.secrets.that_signed(packet),
        };
        let Some(secret) = signed else {
            counters.denied_tag += 1;
            return (known.secrets.tag, Err(Status::Denied));
        };
        if known.secrets.hash.key_hash(header.tenant, packet.key) != header.key_hash {
            counters.denied_key_hash += 1;
            return (secret, Err(Status::Denied));
        }
        let partition = self.partitions.at(header.key_hash);
        let owned = known.holds(partition, self.partitions.owns(partition));
        if !owned && !foreign {
            counters.wrong_partition += 1;
            return (secret, Err(Status::WrongPartition));
        }
        (secret, Ok((partition, owned)))
    }

    /// Whether a tenant's key is this store's, as the cluster is now.
    pub(crate) fn is_home_of(&self, tenant: u32, hash: wire::KeyHash) -> bool {
        let partition = self.partitions.at(hash);
        let owns = self.partitions.owns(partition);
        let known = self.tenants.get(tenant);
        known.is_some_and(|known| known.holds(partition, owns))
    }

    fn ack(&mut self, packet: &Packet<'_>, peer: Peer, now_ns: u64, out: &mut Outbox) {
        if !packet.tag_is_valid(&self.system_secret()) {
            self.counters.denied_tag += 1;
        } else if self.may_speak(packet.header.epoch, peer) {
            self.acknowledged(packet, now_ns, out);
        } else {
            self.counters.dropped_replica += 1;
        }
    }

    /// The controller has placed tenants on these switches, and nowhere else: pairs of a tenant and a switch. Copies that were
    /// granted before stay in the directory until they are called back or die; copies that are held here of tenants that are placed
    /// nowhere go, for no switch sends reads of them, and who wanted them held may be nobody now.
    pub fn place(&mut self, all: impl IntoIterator<Item = (u32, u16)>) {
        self.placements.set(all);
        if let Some(placed) = self.placements.tenants() {
            self.replicas.forget_all_but(&placed);
        }
    }

    /// Does what is due by `now_ns`: repeats invalidations, offers leases, releases delayed replies.
    pub fn tick(&mut self, now_ns: u64, out: &mut Outbox) {
        self.recall_more(now_ns, out);
        self.tick_loans(now_ns, out);
        self.tick_replicas(now_ns, out);
        self.timers(now_ns, out);
        self.tick_halves(now_ns, out);
        self.counters.writes_unfinished += self.joins.expire(now_ns);
        self.held.tick(now_ns);
        self.replies.delayed.release(now_ns, out);
    }

    /// When [`Engine::tick`] has something to do next.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let timer = self.timers.peek().map(|Reverse((at_ns, _))| *at_ns);
        [
            Some(self.next_offer_ns),
            timer,
            self.recalls.next_ns(),
            self.halves.next_ns(),
            self.joins.next_ns(),
            self.held.next_ns(),
            self.loans.next_ns(),
            self.replicas.next_ns(),
            self.replies.delayed.next_ns(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether the restart wait is over: what a former life lent has ended, and clients have given up what it may have applied.
    fn takes_writes(&self, now_ns: u64) -> bool {
        let waited_ns = now_ns - self.started_ns;
        waited_ns >= counted_ns(self.config.longest_lease_ns())
            || mutant(Mutant::NoWaitAfterRestart)
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What the store tells about itself; where it listens is left to the caller.
    pub fn status(&self, now_ns: u64) -> crate::Status {
        // One that is another's may be held here for a tenant that may not use that store.
        let partitions = self.partitions.iter().zip(0..);
        let partitions = partitions.filter(|(p, _)| p.owned || p.served > 0);
        crate::Status {
            ready: true,
            takes_writes: self.takes_writes(now_ns),
            backend: self.config.backend.to_string(),
            items: self.backend.items(),
            memory_bytes: self.backend.memory_bytes(),
            evicted: self.backend.evicted(),
            writing_bytes: self.joins.bytes() as u64,
            reading_bytes: self.held.bytes() as u64,
            outside_writes: self.outside.watch().into(),
            copies: self.directory.copies() as u64,
            placements: self.placements.told().map(|pairs| pairs as u64),
            leases: self
                .leases
                .iter()
                .filter(|(_, lease)| now_ns < lease.until_ns)
                .map(|(switch, lease)| crate::status::LeaseStatus {
                    switch,
                    term: lease.term,
                    left_ms: (lease.until_ns - now_ns) / 1_000_000,
                })
                .collect(),
            partitions: partitions
                .map(|(p, partition)| crate::PartitionStatus {
                    partition,
                    served: p.served,
                    dropped: p.dropped,
                })
                .collect(),
            loans: self.loans_status(),
            replicas: self.replicas.status(now_ns),
            totals: self.counters.clone(),
            ..crate::Status::default()
        }
    }

    /// Counts datagrams that the system did not take.
    pub fn lost(&mut self, datagrams: u64) {
        self.counters.replies_lost += datagrams;
    }
}
