//! What homes and switches say to a store that holds copies: invalidations, leases, grants and updates.

use bytes::Bytes;
use wire::{Epoch, Flags, Header, NODE_STORE, Op, Packet, Status, TENANT_SYSTEM};

use super::{
    super::{
        Engine,
        pushes::{digest_of, is_at},
    },
    ASK_FIRST_NS, ASKS_SPREAD_NS, CONFIRM_FIRST_NS, Held, LATER_MOST_NS, LATER_NS, Lender,
    OVERHEAD,
};
use crate::{
    coherence::WriteId,
    directory::KeyId,
    mutants::{Mutant, mutant},
    net::{Outbox, Peer},
};

impl Engine {
    /// A packet about copies of other stores' keys.
    pub(in crate::engine) fn replica_message(
        &mut self,
        packet: &Packet<'_>,
        peer: Peer,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let header = &packet.header;
        if header.op == Op::ReplicaUpdate {
            return self.updated(packet, now_ns, out);
        }
        if !packet.tag_is_valid(&self.system_secret()) {
            self.counters.denied_tag += 1;
            return;
        }
        match header.op {
            // For switches on its way.
            Op::ReplicaConfirm | Op::ReplicaDrop => {}
            Op::FetchReply => self.fetched(packet, peer, now_ns, out),
            // What follows speaks to somebody by name.
            _ if Some(header.epoch.switch()) != self.replicas.me => {
                self.counters.dropped_replica += 1;
            }
            Op::Invalidate => self.invalidated(packet, peer, now_ns, out),
            Op::LeaseOffer => self.lease_offered(peer, now_ns, out),
            Op::LeaseReply => self.lease_lent(header, peer, now_ns, out),
            _ => self.pushed(packet, peer, now_ns, out),
        }
    }

    // ---- leases (rule 6)

    /// Asks each home of which keys are held for a lease, if that is due.
    pub(super) fn borrow_leases(&mut self, now_ns: u64, out: &mut Outbox) {
        if now_ns < self.replicas.lease_due_ns {
            return;
        }
        let usual_ns = self.config.lease_ns() / 3;
        let mut due = vec![];
        let mut next_ns = u64::MAX;
        for (node, lender) in &mut self.replicas.lenders {
            if lender.keys == 0 {
                continue;
            }
            if lender.next_ask_ns <= now_ns {
                let parts = if lender.lease.holds(now_ns) { 1 } else { 4 };
                lender.next_ask_ns = now_ns + usual_ns / parts;
                due.push(*node);
            }
            next_ns = next_ns.min(lender.next_ask_ns);
        }
        self.replicas.lease_due_ns = next_ns;
        for node in due {
            self.ask_for_lease(node, now_ns, out);
        }
    }

    fn ask_for_lease(&mut self, home: wire::NodeId, now_ns: u64, out: &mut Outbox) {
        let (Some(me), Some(peer)) = (self.replicas.me, self.peer_of(home)) else {
            return;
        };
        let header = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(me, 0),
            request: home.into(),
            version: self.replicas.dated(now_ns),
            ..Header::new(Op::LeaseRequest)
        };
        let _ = out.push(&Packet::new(header, &[], &[]), &self.system_secret(), peer);
    }

    fn lease_offered(&mut self, peer: Peer, now_ns: u64, out: &mut Outbox) {
        let lenders = self.replicas.lenders.iter();
        let mut of_it = lenders.filter(|(_, l)| l.keys > 0 && is_at(l.address, peer));
        if let Some(home) = of_it.next().map(|(node, _)| *node) {
            self.ask_for_lease(home, now_ns, out);
        }
    }

    fn lease_lent(&mut self, header: &Header, peer: Peer, now_ns: u64, out: &mut Outbox) {
        let replicas = &mut self.replicas;
        let asked_ns = replicas.date_in(header.version);
        let home = u16::try_from(header.request).unwrap_or(0);
        let lender = replicas.lenders.get_mut(&home);
        let Some(lender) = lender.filter(|lender| is_at(lender.address, peer)) else {
            self.counters.dropped_replica += 1;
            return;
        };
        let before = lender.lease.clone();
        let length_ns = u64::from(header.expiry_ms) * 1_000_000;
        let newest = replicas.epochs.newest();
        let lent = lender
            .lease
            .lent(header.client, asked_ns, length_ns, now_ns, newest);
        if !lent {
            self.counters.dropped_replica += 1;
            return;
        }
        lender.next_ask_ns = now_ns + self.config.lease_ns() / 3;
        if before.holds(now_ns) && before.is_same_term(&lender.lease) {
            return;
        }
        // Copies may be asked for, or served again.
        let mut all = vec![];
        for (id, held) in &mut replicas.held {
            if held.home == home && held.wanted {
                held.next_ask_ns = now_ns;
                held.backoff_ns = ASK_FIRST_NS;
                all.push(*id);
            }
        }
        replicas.set_timers(all, ASKS_SPREAD_NS, now_ns);
        self.tick_replicas(now_ns, out);
    }

    // ---- invalidations and updates (rules 2 and 4)

    fn invalidated(&mut self, packet: &Packet<'_>, peer: Peer, now_ns: u64, out: &mut Outbox) {
        let id = (packet.header.tenant, packet.header.key_hash);
        let epoch = self.replicas.epochs.take();
        let (mut would_take, mut write) = (false, None);
        if let Some(held) = self.replicas.held.get_mut(&id) {
            held.replica.raise(epoch, now_ns);
            held.joining = None;
            would_take = held.waits_for_push(now_ns);
            // What a switch has sent here already need not be pushed.
            write = held.replica.candidate().filter(|_| would_take);
            self.replicas.set_timer(id, now_ns + ASK_FIRST_NS);
        }
        self.counters.replica_invalidations += 1;
        let header = Header {
            version: packet.header.epoch.number(),
            ..self.ack_of(id, epoch, would_take, write)
        };
        let packet = Packet::new(header, packet.key, &[]);
        let _ = out.push(&packet, &self.system_secret(), peer);
    }

    /// Says that this epoch was taken, that a push would be installed, and the write whose value is here already.
    fn ack_of(&self, id: KeyId, epoch: u64, would_take: bool, write: Option<WriteId>) -> Header {
        let (client, request) = write.unwrap_or_default();
        Header {
            client,
            request,
            tenant: id.0,
            key_hash: id.1,
            epoch: Epoch::new(self.replicas.me.unwrap_or(NODE_STORE), epoch),
            flags: if would_take {
                Flags::GRANT
            } else {
                Flags::NONE
            },
            ..Header::new(Op::InvalidateAck)
        }
    }

    /// A switch has sent us a write that is on its way to the key's home.
    fn updated(&mut self, packet: &Packet<'_>, now_ns: u64, out: &mut Outbox) {
        let header = &packet.header;
        let me = self.replicas.me.filter(|me| *me == header.node);
        let known = self.tenants.get(header.tenant);
        let known = known.filter(|_| header.tenant != TENANT_SYSTEM);
        let is_signed = known.is_some_and(|known| known.secrets.that_signed(packet).is_some());
        let home = self.abroad(header.tenant, packet.key);
        let (Some(_), Some((id, home))) = (me.filter(|_| is_signed), home) else {
            self.counters.dropped_replica += 1;
            return;
        };
        if id.1 != header.key_hash || header.is_part() {
            self.counters.dropped_replica += 1;
            return;
        }
        // One that is dropped is made up for by the home's invalidation.
        if !self.pays(id, now_ns) {
            return;
        }
        // Nothing is lost by what is not answered: the home asks, if it knows of a copy here.
        let held = self.replicas.held.get(&id).filter(|held| held.wanted);
        let Some(held) = held else {
            self.counters.replica_late += 1;
            return;
        };
        let write = (header.client, header.request);
        let (epoch, would_take) = if held.replica.was_told(write) {
            self.counters.replica_updates_again += 1;
            if held.replica.is_valid() {
                return;
            }
            (held.replica.epoch(), !held.no_room)
        } else if self.replicas.epochs.is_ahead(now_ns) {
            self.counters.dropped_rate_limit += 1;
            return;
        } else {
            self.counters.replica_updates += 1;
            let epoch = self.replicas.epochs.take();
            let would_take = self.keep_candidate(id, packet, epoch, now_ns);
            self.replicas.set_timer(id, now_ns + ASK_FIRST_NS);
            (epoch, would_take)
        };
        let ack = self.ack_of(id, epoch, would_take, Some(write));
        if let Some(peer) = self.peer_of(home.0) {
            let _ = out.push(
                &Packet::new(ack, packet.key, &[]),
                &self.system_secret(),
                peer,
            );
        }
    }

    /// A packet that a server does something for: whether there is time for it.
    pub(super) fn pays(&mut self, id: KeyId, now_ns: u64) -> bool {
        let payer = self.partitions.in_place_of(self.partitions.at(id.1));
        self.take_time(payer, now_ns).is_some()
    }

    /// Invalidates a copy under this epoch, and keeps what a write brings. Whether the home may push.
    fn keep_candidate(&mut self, id: KeyId, packet: &Packet<'_>, epoch: u64, now_ns: u64) -> bool {
        let header = &packet.header;
        let is_delete = header.flags.has(Flags::ALL);
        let cost = OVERHEAD + packet.key.len() + packet.value.len();
        let fits = self.replicas.resize(&id, cost) && !is_delete;
        let write = (header.client, header.request);
        let value = fits.then(|| Bytes::copy_from_slice(packet.value));
        let Some(held) = self.replicas.held.get_mut(&id) else {
            return false;
        };
        if !mutant(Mutant::UpdateLeavesValid) {
            held.replica.update(epoch, write, value, now_ns);
        }
        if mutant(Mutant::CandidateServed)
            && !is_delete
            && let Some(Lender { lease, .. }) = self.replicas.lenders.get(&held.home)
        {
            let value = Bytes::copy_from_slice(packet.value);
            held.replica.install(epoch, lease, value, 0, 0);
        }
        held.joining = None;
        held.waits_for_push(now_ns)
    }

    // ---- grants (rule 5)

    /// A home answers what we asked.
    fn fetched(&mut self, packet: &Packet<'_>, peer: Peer, now_ns: u64, out: &mut Outbox) {
        let header = &packet.header;
        let is_ours = header.client == self.replicas.client;
        if is_ours && self.answer_passed(packet, peer, now_ns, out) {
            return;
        }
        let id = (header.tenant, header.key_hash);
        let Some(held) = self.replicas.held.get_mut(&id) else {
            self.counters.replica_late += 1;
            return;
        };
        let lender = self.replicas.lenders.get(&held.home);
        let is_home = lender.is_some_and(|lender| is_at(lender.address, peer));
        if !is_ours || !is_home || *held.key != *packet.key {
            self.counters.dropped_replica += 1;
            return;
        }
        let answered = header.request == held.asked;
        if answered {
            held.asked = 0;
            match header.status {
                Status::Ok => {}
                Status::NotFound => held.pull_later(now_ns),
                _ => held.next_ask_ns = now_ns + LATER_NS,
            }
        }
        let is_part_of_it = self.join(id, packet, now_ns, out);
        if !is_part_of_it {
            if header.flags.has(Flags::GRANT) && Some(header.epoch.switch()) == self.replicas.me {
                self.granted(id, packet, packet.value, now_ns);
            }
            // What was asked about a part says nothing to who reads the whole.
            if header.part == 0 {
                self.answer_older(id, packet, now_ns, out);
            }
        }
        if let Some(held) = self.replicas.held.get_mut(&id)
            && held.asked == 0
            && !held.reads.is_empty()
        {
            held.next_ask_ns = now_ns;
        }
        self.drive_replica(id, now_ns, out);
    }

    /// A home pushes what was written.
    fn pushed(&mut self, packet: &Packet<'_>, peer: Peer, now_ns: u64, out: &mut Outbox) {
        let header = &packet.header;
        let id = (header.tenant, header.key_hash);
        let system = self.system_secret();
        let Some(held) = self.replicas.held.get_mut(&id) else {
            self.counters.replica_late += 1;
            return;
        };
        let lender = self.replicas.lenders.get(&held.home);
        let is_home = lender.is_some_and(|lender| is_at(lender.address, peer));
        if !is_home || *held.key != *packet.key || !header.flags.has(Flags::GRANT) {
            self.counters.dropped_replica += 1;
            return;
        }
        let is_for_now = held.replica.epoch() == header.epoch.number();
        if !header.flags.has(Flags::COMPARE) {
            self.granted(id, packet, packet.value, now_ns);
        } else if is_for_now {
            let write = (header.client, header.request);
            let candidate = held.replica.take_candidate(write);
            let same = |value: &Bytes| {
                digest_of(&system, id.0, value) == *packet.value
                    || mutant(Mutant::CandidateOfAnyWrite)
            };
            match candidate.filter(same) {
                Some(value) => self.granted(id, packet, &value, now_ns),
                None => held.next_ask_ns = now_ns,
            }
        }
        self.drive_replica(id, now_ns, out);
    }

    /// A grant of this value, or of its first part, has come.
    fn granted(&mut self, id: KeyId, packet: &Packet<'_>, value: &[u8], now_ns: u64) {
        let header = &packet.header;
        let epoch = header.epoch.number();
        let replicas = &mut self.replicas;
        let Some(held) = replicas.held.get_mut(&id) else {
            return;
        };
        let Some(Lender { lease, .. }) = replicas.lenders.get(&held.home) else {
            return;
        };
        let is_new = held.wanted && !held.replica.is_valid();
        if !is_new || header.status != Status::Ok || !held.replica.would_take(epoch, lease) {
            self.counters.replica_grants_stale += 1;
            return;
        }
        // What came as an update is paid for.
        let is_here = header.op == Op::ReplicaPush && header.flags.has(Flags::COMPARE);
        if !is_here && !self.pays(id, now_ns) {
            return;
        }
        let replicas = &mut self.replicas;
        let len = match header.total {
            0 => value.len(),
            total => total as usize,
        };
        let fits = replicas.resize(&id, OVERHEAD + packet.key.len() + len);
        let Some(held) = replicas.held.get_mut(&id) else {
            return;
        };
        held.no_room = !fits;
        if !fits {
            self.counters.replica_no_room += 1;
            held.pull_later(now_ns);
        } else if header.total > 0 {
            self.begin_join(id, packet, now_ns);
        } else {
            let value = Bytes::copy_from_slice(value);
            self.install(id, epoch, value, header.version, header.expiry_ms, now_ns);
        }
    }

    /// Rule 5: a whole value.
    pub(super) fn install(
        &mut self,
        id: KeyId,
        epoch: u64,
        value: Bytes,
        version: u64,
        expiry_ms: u32,
        now_ns: u64,
    ) {
        let replicas = &mut self.replicas;
        let Some(held) = replicas.held.get_mut(&id) else {
            return;
        };
        let Some(Lender { lease, .. }) = replicas.lenders.get(&held.home) else {
            return;
        };
        if !held
            .replica
            .install(epoch, lease, value, version, expiry_ms)
        {
            self.counters.replica_grants_stale += 1;
            return;
        }
        self.counters.replica_grants += 1;
        held.asked = 0;
        held.backoff_ns = ASK_FIRST_NS;
        held.later_ns = LATER_NS;
        held.join_wait_ns = 0;
        held.confirm_ns = now_ns;
        held.confirm_backoff_ns = CONFIRM_FIRST_NS;
    }
}

impl Held {
    /// It is of no use to ask for a copy now. What reads are told before it is asked for again makes that no later.
    fn pull_later(&mut self, now_ns: u64) {
        if now_ns < self.pull_ns {
            return;
        }
        self.pull_ns = now_ns + self.later_ns;
        self.later_ns = (2 * self.later_ns).min(LATER_MOST_NS);
    }

    /// The copy was invalidated: its home may push the next value, and is asked only if that does not come. False: nothing would be
    /// installed.
    fn waits_for_push(&mut self, now_ns: u64) -> bool {
        if self.reads.is_empty() {
            self.backoff_ns = ASK_FIRST_NS;
            self.next_ask_ns = now_ns + ASK_FIRST_NS;
        } else if self.asked == 0 {
            self.next_ask_ns = now_ns;
        }
        // What reads wait for is not put off: invalidations might come for ever, each before the question would be due, and no push.
        if !self.no_room {
            self.pull_ns = 0;
        }
        self.wanted && !self.no_room
    }
}
