//! What homes and switches say to a store that holds copies: invalidations, leases, grants
//! and updates.

use bytes::Bytes;
use wire::{Epoch, Flags, Header, NODE_STORE, Op, Packet, Status, TENANT_SYSTEM};

use super::{
    ASK_FIRST_NS, ASKS_SPREAD_NS, CONFIRM_FIRST_NS, ForeignCopies, ForeignCopy, LATER_MOST_NS,
    LATER_NS, Lender, OVERHEAD, pays, peer_of,
};
use crate::{
    coherence::{Nanos, WriteId},
    directory::KeyId,
    engine::{context::Context, keys::digest_of},
    net::Peer,
};
use holder::mutants::{Mutant, mutant};

impl ForeignCopies {
    /// A packet about copies of other stores' keys.
    pub fn message(&mut self, cx: &mut Context, packet: &Packet<'_>, peer: Peer) {
        let header = &packet.header;
        if header.op == Op::ReplicaUpdate {
            return self.updated(cx, packet);
        }
        if !packet.tag_is_valid(&cx.system_secret()) {
            cx.counters.denied_tag += 1;
            return;
        }
        match header.op {
            // For switches on its way.
            Op::ReplicaConfirm | Op::ReplicaDrop => {}
            Op::FetchReply => self.fetched(cx, packet, peer),
            // What follows speaks to somebody by name.
            _ if Some(header.epoch.switch()) != self.me => {
                self.counters.dropped_replica += 1;
            }
            Op::Invalidate => self.invalidated(cx, packet, peer),
            Op::LeaseOffer => self.lease_offered(cx, header, peer),
            Op::LeaseReply => self.lease_lent(cx, header, peer),
            Op::LeaseReturned => self.taken_back(header, peer),
            _ => self.pushed(cx, packet, peer),
        }
    }

    // ---- leases (rule 6)

    /// Asks each home of which keys are held for a lease, if that is due.
    pub(super) fn borrow_leases(&mut self, cx: &mut Context) {
        if cx.now_ns < self.lease_due_ns {
            return;
        }
        let usual_ns = cx.config.lease_ns() / 3;
        let mut due = vec![];
        let mut next_ns = u64::MAX;
        for (node, lender) in &mut self.lenders {
            if lender.keys == 0 {
                continue;
            }
            if lender.next_ask_ns <= cx.now_ns {
                let parts = if lender.lease.holds(cx.now_ns) { 1 } else { 4 };
                lender.next_ask_ns = cx.now_ns + usual_ns / parts;
                due.push(*node);
            }
            next_ns = next_ns.min(lender.next_ask_ns);
        }
        self.lease_due_ns = next_ns;
        for node in due {
            self.ask_for_lease(cx, node, 0);
        }
    }

    /// Of the offer of this number; 0: of none.
    fn ask_for_lease(&mut self, cx: &mut Context, home: wire::NodeId, offer: u64) {
        if self.is_leaving() {
            return;
        }
        let (Some(me), Some(peer)) = (self.me, peer_of(cx, home)) else { return };
        let header = Header {
            tenant: TENANT_SYSTEM,
            epoch: Epoch::new(me, 0),
            request: home.into(),
            client: offer,
            version: self.dated(cx.now_ns),
            ..Header::new(Op::LeaseRequest)
        };
        cx.send(header, &[], &[], peer);
    }

    fn lease_offered(&mut self, cx: &mut Context, header: &Header, peer: Peer) {
        let lenders = self.lenders.iter();
        let mut of_it = lenders.filter(|(_, l)| l.keys > 0 && peer.is_at(l.address));
        if let Some(home) = of_it.next().map(|(node, _)| *node) {
            self.ask_for_lease(cx, home, header.client);
        }
    }

    fn lease_lent(&mut self, cx: &mut Context, header: &Header, peer: Peer) {
        if self.is_leaving() {
            return;
        }
        let asked_ns = self.date_in(header.version);
        let home = u16::try_from(header.request).unwrap_or(0);
        let lender = self.lenders.get_mut(&home);
        let Some(lender) = lender.filter(|lender| peer.is_at(lender.address)) else {
            self.counters.dropped_replica += 1;
            return;
        };
        let before = lender.lease.clone();
        let length_ns = u64::from(header.expiry_ms) * 1_000_000;
        let newest = self.epochs.newest();
        let lent = lender.lease.lent(header.client, asked_ns, length_ns, cx.now_ns, newest);
        if !lent {
            self.counters.dropped_replica += 1;
            return;
        }
        lender.next_ask_ns = cx.now_ns + cx.config.lease_ns() / 3;
        if before.holds(cx.now_ns) && before.is_same_term(&lender.lease) {
            return;
        }
        // Copies may be asked for, or served again.
        let mut all = vec![];
        for (id, held) in &mut self.held {
            if held.home == home && held.wanted {
                held.next_ask_ns = cx.now_ns;
                held.backoff_ns = ASK_FIRST_NS;
                all.push(*id);
            }
        }
        self.set_timers(all, ASKS_SPREAD_NS, cx.now_ns);
        self.tick(cx);
    }

    // ---- invalidations and updates (rules 2 and 4)

    fn invalidated(&mut self, cx: &mut Context, packet: &Packet<'_>, peer: Peer) {
        let id = (packet.header.tenant, packet.header.key_hash);
        let epoch = self.epochs.take(id.0, cx.now_ns);
        let (mut would_take, mut write) = (false, None);
        if let Some(held) = self.held.get_mut(&id) {
            held.replica.raise(epoch, cx.now_ns);
            held.joining = None;
            would_take = held.waits_for_push(cx.now_ns);
            // What a switch has sent here already need not be pushed.
            write = held.replica.candidate().filter(|_| would_take);
            self.set_timer(id, cx.now_ns + ASK_FIRST_NS);
        }
        self.counters.replica_invalidations += 1;
        let header = Header {
            version: packet.header.epoch.number(),
            ..self.ack_of(id, epoch, would_take, write)
        };
        cx.send(header, packet.key, &[], peer);
    }

    /// Says that this epoch was taken, that a push would be installed, and the write whose value is
    /// here already.
    fn ack_of(&self, id: KeyId, epoch: u64, would_take: bool, write: Option<WriteId>) -> Header {
        let (client, request) = write.unwrap_or_default();
        Header {
            client,
            request,
            tenant: id.0,
            key_hash: id.1,
            epoch: Epoch::new(self.me.unwrap_or(NODE_STORE), epoch),
            flags: if would_take { Flags::GRANT } else { Flags::NONE },
            ..Header::new(Op::InvalidateAck)
        }
    }

    /// A switch has sent us a write that is on its way to the key's home.
    fn updated(&mut self, cx: &mut Context, packet: &Packet<'_>) {
        let header = &packet.header;
        let me = self.me.filter(|me| *me == header.node);
        let known = cx.tenants.get(header.tenant);
        let known = known.filter(|_| header.tenant != TENANT_SYSTEM);
        let is_signed = known.is_some_and(|known| known.secrets.that_signed(packet).is_some());
        let home = self.abroad(cx, header.tenant, packet.key);
        let (Some(_), Some((id, home))) = (me.filter(|_| is_signed), home) else {
            self.counters.dropped_replica += 1;
            return;
        };
        if id.1 != header.key_hash || header.is_part() {
            self.counters.dropped_replica += 1;
            return;
        }
        // One that is dropped is made up for by the home's invalidation.
        if !pays(cx, id) {
            return;
        }
        // Nothing is lost by what is not answered: the home asks, if it knows of a copy here.
        let held = self.held.get(&id).filter(|held| held.wanted);
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
        } else if !self.epochs.has_room(id.0, cx.now_ns) {
            cx.counters.dropped_rate_limit += 1;
            return;
        } else {
            self.counters.replica_updates += 1;
            let epoch = self.epochs.take(id.0, cx.now_ns);
            let would_take = self.keep_candidate(cx, id, packet, epoch);
            self.set_timer(id, cx.now_ns + ASK_FIRST_NS);
            (epoch, would_take)
        };
        let ack = self.ack_of(id, epoch, would_take, Some(write));
        if let Some(peer) = peer_of(cx, home.0) {
            cx.send(ack, packet.key, &[], peer);
        }
    }

    /// Invalidates a copy under this epoch, and keeps what a write brings. Whether the home
    /// may push.
    fn keep_candidate(
        &mut self,
        cx: &mut Context,
        id: KeyId,
        packet: &Packet<'_>,
        epoch: u64,
    ) -> bool {
        let header = &packet.header;
        let is_delete = header.flags.has(Flags::ALL);
        let cost = OVERHEAD + packet.key.len() + packet.value.len();
        let fits = self.resize(&id, cost) && !is_delete;
        let write = (header.client, header.request);
        let value = fits.then(|| Bytes::copy_from_slice(packet.value));
        let Some(held) = self.held.get_mut(&id) else { return false };
        if !mutant(Mutant::UpdateLeavesValid) {
            held.replica.update(epoch, write, value, cx.now_ns);
        }
        if mutant(Mutant::CandidateServed)
            && !is_delete
            && let Some(Lender { lease, .. }) = self.lenders.get(&held.home)
        {
            let value = Bytes::copy_from_slice(packet.value);
            held.replica.install(epoch, lease, value, 0, 0);
        }
        held.joining = None;
        held.waits_for_push(cx.now_ns)
    }

    // ---- grants (rule 5)

    /// A home answers what we asked.
    fn fetched(&mut self, cx: &mut Context, packet: &Packet<'_>, peer: Peer) {
        let header = &packet.header;
        let is_ours = header.client == self.client;
        if is_ours && self.answer_passed(cx, packet, peer) {
            return;
        }
        let id = (header.tenant, header.key_hash);
        let Some(held) = self.held.get_mut(&id) else {
            self.counters.replica_late += 1;
            return;
        };
        let lender = self.lenders.get(&held.home);
        let is_home = lender.is_some_and(|lender| peer.is_at(lender.address));
        if !is_ours || !is_home || *held.key != *packet.key {
            self.counters.dropped_replica += 1;
            return;
        }
        let answered = header.request == held.asked;
        if answered {
            held.asked = 0;
            match header.status {
                Status::Ok => {}
                Status::NotFound => held.pull_later(cx.now_ns),
                _ => held.next_ask_ns = cx.now_ns + LATER_NS,
            }
        }
        let is_part_of_it = self.join(cx, id, packet);
        if !is_part_of_it {
            if header.flags.has(Flags::GRANT) && Some(header.epoch.switch()) == self.me {
                self.granted(cx, id, packet, packet.value);
            }
            // What was asked about a part says nothing to who reads the whole.
            if header.part == 0 {
                self.answer_older(cx, id, packet);
            }
        }
        if let Some(held) = self.held.get_mut(&id)
            && held.asked == 0
            && !held.reads.is_empty()
        {
            held.next_ask_ns = cx.now_ns;
        }
        self.drive(cx, id);
    }

    /// A home pushes what was written.
    fn pushed(&mut self, cx: &mut Context, packet: &Packet<'_>, peer: Peer) {
        let header = &packet.header;
        let id = (header.tenant, header.key_hash);
        let system = cx.system_secret();
        let Some(held) = self.held.get_mut(&id) else {
            self.counters.replica_late += 1;
            return;
        };
        let lender = self.lenders.get(&held.home);
        let is_home = lender.is_some_and(|lender| peer.is_at(lender.address));
        if !is_home || *held.key != *packet.key || !header.flags.has(Flags::GRANT) {
            self.counters.dropped_replica += 1;
            return;
        }
        let is_for_now = held.replica.epoch() == header.epoch.number();
        if !header.flags.has(Flags::COMPARE) {
            self.granted(cx, id, packet, packet.value);
        } else if is_for_now {
            let write = (header.client, header.request);
            let candidate = held.replica.take_candidate(write);
            let same = |value: &Bytes| {
                digest_of(&system, id.0, value) == *packet.value
                    || mutant(Mutant::CandidateOfAnyWrite)
            };
            match candidate.filter(same) {
                Some(value) => self.granted(cx, id, packet, &value),
                None => held.next_ask_ns = cx.now_ns,
            }
        }
        self.drive(cx, id);
    }

    /// A grant of this value, or of its first part, has come.
    fn granted(&mut self, cx: &mut Context, id: KeyId, packet: &Packet<'_>, value: &[u8]) {
        let header = &packet.header;
        let epoch = header.epoch.number();
        let Some(held) = self.held.get_mut(&id) else { return };
        let Some(Lender { lease, .. }) = self.lenders.get(&held.home) else { return };
        let is_new = held.wanted && !held.replica.is_valid();
        if !is_new || header.status != Status::Ok || !held.replica.would_take(epoch, lease) {
            self.counters.replica_grants_stale += 1;
            return;
        }
        // What came as an update is paid for.
        let is_here = header.op == Op::ReplicaPush && header.flags.has(Flags::COMPARE);
        if !is_here && !pays(cx, id) {
            return;
        }
        let len = match header.total {
            0 => value.len(),
            total => total as usize,
        };
        let fits = self.resize(&id, OVERHEAD + packet.key.len() + len);
        let Some(held) = self.held.get_mut(&id) else { return };
        held.no_room = !fits;
        if !fits {
            self.counters.replica_no_room += 1;
            held.pull_later(cx.now_ns);
        } else if header.total > 0 {
            self.begin_join(cx, id, packet);
        } else {
            let value = Bytes::copy_from_slice(value);
            self.install(cx, id, epoch, value, header.version, header.expiry_ms);
        }
    }

    /// Rule 5: a whole value.
    pub(super) fn install(
        &mut self,
        cx: &mut Context,
        id: KeyId,
        epoch: u64,
        value: Bytes,
        version: u64,
        expiry_ms: u32,
    ) {
        let Some(held) = self.held.get_mut(&id) else { return };
        let Some(Lender { lease, .. }) = self.lenders.get(&held.home) else { return };
        if !held.replica.install(epoch, lease, value, version, expiry_ms) {
            self.counters.replica_grants_stale += 1;
            return;
        }
        self.counters.replica_grants += 1;
        held.asked = 0;
        held.backoff_ns = ASK_FIRST_NS;
        held.later_ns = LATER_NS;
        held.join_wait_ns = 0;
        held.confirm_ns = cx.now_ns;
        held.confirm_backoff_ns = CONFIRM_FIRST_NS;
    }
}

impl ForeignCopy {
    /// It is of no use to ask for a copy now. What reads are told before it is asked for again
    /// makes that no later.
    fn pull_later(&mut self, now_ns: Nanos) {
        if now_ns < self.pull_ns {
            return;
        }
        self.pull_ns = now_ns + self.later_ns;
        self.later_ns = (2 * self.later_ns).min(LATER_MOST_NS);
    }

    /// The copy was invalidated: its home may push the next value, and is asked only if that does
    /// not come. False: nothing would be installed.
    fn waits_for_push(&mut self, now_ns: Nanos) -> bool {
        if self.reads.is_empty() {
            self.backoff_ns = ASK_FIRST_NS;
            self.next_ask_ns = now_ns + ASK_FIRST_NS;
        } else if self.asked == 0 {
            self.next_ask_ns = now_ns;
        }
        // What reads wait for is not put off: invalidations might come for ever, each before the
        // question would be due, and no push.
        if !self.no_room {
            self.pull_ns = 0;
        }
        self.wanted && !self.no_room
    }
}
