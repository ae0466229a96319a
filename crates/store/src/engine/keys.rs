//! Writes and deletes: from the packet through the rules to the backend and back.

use std::cmp::Reverse;

use bytes::Bytes;
use wire::{Epoch, Flags, Header, Op, Packet, Status};

use super::{
    Engine,
    joins::Joined,
    lent::absorbable,
    reply::{Answer, Origin},
    waiting::Asked,
};
use crate::{
    backend::{Answer as Reply, Change, Condition, Key, Put},
    coherence::{Invalidate, NoGrant, Proceeds, Says, Step, Submitted, Verdict, Write},
    directory::Place,
    mutants::{Mutant, mutant},
    net::Outbox,
};

/// A write that waits: everything of its packet that is still needed.
pub(super) struct Job {
    pub origin: Origin,
    condition: Condition,
    ttl_ms: u32,
    value: Bytes,
    /// Bytes of the room for values in parts that it takes until it is over.
    room: usize,
    /// An owner may carry it out in this store's place.
    may_move: bool,
    /// A switch has sent it to the stores that hold copies, too.
    told_stores: bool,
}

impl Job {
    fn new(origin: Origin, header: &Header, value: Bytes, room: usize) -> Job {
        let condition = match header.version {
            _ if !header.flags.has(Flags::COMPARE) => Condition::Always,
            wire::VERSION_ABSENT => Condition::Absent,
            wire::VERSION_PRESENT => Condition::Present,
            version => Condition::Version(version),
        };
        Job {
            origin,
            condition,
            ttl_ms: header.expiry_ms,
            value,
            room,
            may_move: absorbable(header) && !header.flags.has(Flags::ALL),
            told_stores: header.node == wire::NODE_ALL,
        }
    }

    /// Whether an owner may carry it out in this store's place.
    pub fn may_move(&self) -> bool {
        self.may_move
    }
}

/// What a write was answered, to be answered again (rule 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    status: Status,
    version: u64,
}

impl Outcome {
    fn of(change: Change) -> Outcome {
        let (status, version) = match change {
            Change::Done(version) => (Status::Ok, version),
            Change::NotFound => (Status::NotFound, 0),
            Change::Mismatch(version) => (Status::Mismatch, version),
            Change::TooLarge => (Status::TooLarge, 0),
            Change::Full => (Status::TryAgain, 0),
            Change::Failed => (Status::BackendError, 0),
        };
        Outcome { status, version }
    }

    /// Done under this version.
    pub fn done(version: u64) -> Outcome {
        Outcome {
            status: Status::Ok,
            version,
        }
    }

    /// It is for the owner of a loan, whose life this is, and never to be applied here under another.
    pub fn moved(life: u16) -> Outcome {
        Outcome {
            status: Status::OtherLife,
            version: life.into(),
        }
    }

    /// The life that it was moved to.
    pub fn moved_to(&self) -> Option<u16> {
        (self.status == Status::OtherLife).then_some(self.version as u16)
    }

    /// What its client is told.
    pub fn answer(&self) -> Answer<'static> {
        let Some(life) = self.moved_to() else {
            return Answer {
                version: self.version,
                ..Answer::status(self.status)
            };
        };
        Answer {
            // Older than whatever its client has sent: it may name it.
            expiry_ms: wire::LIFE_MOVED,
            key_life: Some(life),
            ..Answer::status(Status::OtherLife)
        }
    }
}

impl Engine {
    /// A write or delete whose key is verified.
    pub(super) fn write(
        &mut self,
        mut origin: Origin,
        key: Key<'_>,
        packet: &Packet<'_>,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        if packet.header.is_part() {
            return self.part(origin, key, packet, now_ns, out);
        }
        self.counters.writes += 1;
        let header = &packet.header;
        let Some(says) = self.may_write(&mut origin, key, header, now_ns, out) else {
            return;
        };
        if packet.value.len() > self.config.cluster.max_value as usize {
            self.counters.refused_too_large += 1;
            return self
                .replies
                .refuse(&origin, key.bytes, Status::TooLarge, now_ns, out);
        }
        let value = Bytes::copy_from_slice(packet.value);
        let job = Job::new(origin, header, value, 0);
        if says == Says::Ask {
            if self.is_new(&job, key, header.life, now_ns, out) {
                self.park(job, key, header.life, origin.epoch, now_ns, out);
            }
            return;
        }
        self.take_write(job, key, header.life, origin.epoch, now_ns, out);
        self.count_write(key, packet, now_ns, out);
    }

    /// A part of a write. It is a write when its value is whole: rule 7 remembers it from then on, with the epoch of the part that
    /// came last. Those of the others are proof for rule 4 when they come: each has taken another, maybe of another switch.
    fn part(
        &mut self,
        mut origin: Origin,
        key: Key<'_>,
        packet: &Packet<'_>,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        self.counters.writes_parts += 1;
        let header = &packet.header;
        if self
            .may_write(&mut origin, key, header, now_ns, out)
            .is_none()
        {
            return;
        }
        if let Some(verdict) = self.clients.look(origin.client_id(), origin.request) {
            return self.repeated(&origin, key, &[], verdict, now_ns, out);
        }
        let id = (key.tenant, key.hash);
        let epoch = origin.epoch;
        if let Some(at) = self.directory.find(&id) {
            let passed = self.directory.update(at, |e| e.state.part_passed(epoch));
            if passed == Some(true) {
                self.drive(at, now_ns, out);
            }
        }
        let total = packet.header.total;
        let status = if total > self.config.cluster.max_value {
            self.counters.refused_too_large += 1;
            Status::TooLarge
        } else {
            match self.joins.take(&origin, packet, now_ns) {
                Joined::Missing(part) => {
                    let answer = Answer {
                        part,
                        total,
                        ..Answer::status(Status::Taken)
                    };
                    return self.replies.send(&origin, key.bytes, &answer, now_ns, out);
                }
                Joined::Whole(value, room) => {
                    self.counters.writes += 1;
                    origin.wants_grant = false;
                    let job = Job::new(origin, &packet.header, value, room);
                    return self.take_write(job, key, 0, epoch, now_ns, out);
                }
                Joined::Unfit => {
                    self.counters.dropped_part += 1;
                    return;
                }
                Joined::Full => {
                    self.counters.refused_parts_full += 1;
                    Status::TryAgain
                }
            }
        };
        self.replies.refuse(&origin, key.bytes, status, now_ns, out);
    }

    /// Whether writes of this packet's life are taken now, and what is to be done with them. One that is not is answered here, or
    /// dropped.
    fn may_write(
        &mut self,
        origin: &mut Origin,
        key: Key<'_>,
        header: &Header,
        now_ns: u64,
        out: &mut Outbox,
    ) -> Option<Says> {
        if !self.waiting.has_room(origin.tenant) {
            self.counters.dropped_backend_busy += 1;
            return None;
        }
        let says = self.judge_life(origin, key, header, now_ns, out)?;
        if header.life > wire::LIFE_UNKNOWN {
            origin.key_life = header.life;
        }
        if !self.takes_writes(now_ns) {
            self.counters.refused_starting += 1;
            self.replies
                .refuse(origin, key.bytes, Status::TryAgain, now_ns, out);
            return None;
        }
        Some(says)
    }

    /// A write with its whole value, and the epoch that it brought.
    fn take_write(
        &mut self,
        job: Job,
        key: Key<'_>,
        life: u16,
        epoch: Epoch,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        if !self.is_new(&job, key, life, now_ns, out) {
            return self.joins.give_back(key.tenant, job.room);
        }
        self.submit(job, key, epoch, now_ns, out);
    }

    /// A write that this store is to decide, and that is new.
    pub(super) fn submit(
        &mut self,
        job: Job,
        key: Key<'_>,
        epoch: Epoch,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        if !self.pending_writes.has_room(key.tenant) {
            return self.put_off(&job, key.bytes, now_ns, out);
        }
        let write = Write {
            epoch,
            told_stores: job.told_stores,
            body: job,
        };
        let queue_limit = self.config.key_queue_limit;
        let at = self.directory.enter(key);
        let id = (key.tenant, key.hash);
        let proceeds = self.loans.proceeds(&id);
        let submitted = self.directory.update(at, |e| {
            if proceeds != Proceeds::Here {
                e.state.hold();
            }
            e.state.submit(write, queue_limit)
        });
        self.pending_writes.take(key.tenant, 1);
        match submitted {
            Some(Submitted::Started) => {
                let waits = self.drive(at, now_ns, out);
                self.counters.writes_waited += u64::from(waits);
            }
            Some(Submitted::Queued) => {
                self.counters.writes_queued += 1;
                self.drive(at, now_ns, out);
            }
            Some(Submitted::Refused(job)) => {
                self.pending_writes.give_back(key.tenant, 1);
                self.put_off(&job, key.bytes, now_ns, out);
            }
            None => self.pending_writes.give_back(key.tenant, 1),
        }
        if proceeds == Proceeds::Away {
            self.recall_loan(id, now_ns, out);
        }
    }

    /// Too many writes wait: this one may come again, and counts as new then.
    fn put_off(&mut self, job: &Job, key: &[u8], now_ns: u64, out: &mut Outbox) {
        let origin = &job.origin;
        self.counters.refused_queue_full += 1;
        self.joins.give_back(origin.tenant, job.room);
        self.clients.forget(origin.client_id(), origin.request);
        self.replies
            .refuse(origin, key, Status::TryAgain, now_ns, out);
    }

    /// Rule 7: whether a write is new. One that is not is answered here, or ignored.
    fn is_new(
        &mut self,
        job: &Job,
        key: Key<'_>,
        life: u16,
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        let Job { origin, value, .. } = job;
        let (client, request) = (origin.client_id(), origin.request);
        match self.clients.begin(client, request, now_ns) {
            Verdict::New => true,
            // It comes as it was told to.
            Verdict::Answered(outcome) if outcome.moved_to().is_some_and(|to| to == life) => {
                self.clients.reopen(client, request);
                true
            }
            verdict => {
                self.repeated(origin, key, value, verdict, now_ns, out);
                false
            }
        }
    }

    /// Rule 7: a write, or a part of one, that is not new.
    pub(super) fn repeated(
        &mut self,
        origin: &Origin,
        key: Key<'_>,
        value: &[u8],
        verdict: Verdict<Outcome>,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        match verdict {
            Verdict::New => {}
            Verdict::Pending => self.counters.duplicates_pending += 1,
            Verdict::TooOld => self.counters.duplicates_too_old += 1,
            Verdict::Answered(outcome) => {
                self.counters.duplicates_answered += 1;
                let grant = mutant(Mutant::RepeatedAnswerGrants)
                    && origin.wants_grant
                    && self.grant(origin, key, now_ns, out);
                let answer = Answer {
                    value: if grant { value } else { &[] },
                    grant,
                    ..outcome.answer()
                };
                self.replies.send(origin, key.bytes, &answer, now_ns, out);
            }
            Verdict::Full => {
                self.counters.refused_clients_full += 1;
                self.replies
                    .refuse(origin, key.bytes, Status::TryAgain, now_ns, out);
            }
        }
    }

    /// An INVALIDATE_ACK has come (rule 4).
    pub(super) fn acknowledged(&mut self, packet: &Packet<'_>, now_ns: u64, out: &mut Outbox) {
        let id = (packet.header.tenant, packet.header.key_hash);
        let (epoch, echoed) = (packet.header.epoch, packet.header.version);
        let ask = self.ask_in(&packet.header, now_ns);
        let known = self.directory.find(&id).and_then(|at| {
            let ended = self.directory.update(at, |e| {
                ask.into_iter().for_each(|ask| e.asks.put(ask));
                e.state.acknowledged(epoch, echoed)
            });
            Some((at, ended?))
        });
        match known {
            Some((_, true)) => self.counters.acks += 1,
            _ => self.counters.acks_unexpected += 1,
        }
        if let Some((at, ended)) = known
            && (ended || ask.is_some())
        {
            self.drive(at, now_ns, out);
        }
    }

    /// Moves a key on as far as it goes. True if it waits for switches now.
    pub(super) fn drive(&mut self, at: Place, now_ns: u64, out: &mut Outbox) -> bool {
        loop {
            let mut invalidations = std::mem::take(&mut self.invalidations);
            let leases = &mut self.leases;
            let polled = self.directory.update(at, |entry| {
                let step = entry.state.poll(leases, now_ns, &mut invalidations);
                (entry.id, step)
            });
            for Invalidate { switch, granted } in invalidations.drain(..) {
                self.invalidate(at, Epoch::new(switch, granted), out);
            }
            self.invalidations = invalidations;
            let Some((id, step)) = polled else {
                return false;
            };
            if !matches!(step, Step::Wait(_)) {
                self.outside.closed(&id);
            }
            match step {
                Step::Apply => match self.apply(at, now_ns) {
                    Some(Reply::Now(change)) => self.applied(at, change, now_ns, out),
                    _ => return false,
                },
                Step::Wait(at_ns) => {
                    self.set_timer(at, at_ns);
                    return true;
                }
                Step::Idle => {
                    self.push_asked(at, now_ns, out);
                    self.settle(at, now_ns);
                    return false;
                }
                Step::Applying => return false,
                Step::Held => {
                    self.cleared(id, now_ns, out);
                    return false;
                }
            }
        }
    }

    /// Hands the key's current write to the backend.
    fn apply(&mut self, at: Place, now_ns: u64) -> Option<Reply<Change>> {
        self.version += u64::from(!mutant(Mutant::VersionNotRaised));
        self.ticket += 1;
        let (version, ticket) = (self.version, self.ticket);
        let entry = self.directory.get(at)?;
        let Job {
            ref origin,
            condition,
            ttl_ms,
            ref value,
            ..
        } = entry.state.applying()?.body;
        let key = entry.named();
        self.held.end(entry.id);
        let change = if origin.op == Op::DeleteRequest {
            self.backend.delete(key, condition, version, now_ns, ticket)
        } else {
            let put = Put {
                value,
                ttl_ms,
                condition,
                version,
            };
            self.backend.put(key, put, now_ns, ticket)
        };
        if change == Reply::Later {
            self.waiting.insert(ticket, Asked::Write(entry.id));
        }
        Some(change)
    }

    /// The backend has carried a write out, or not: remembers and tells it, with a grant if there may be one.
    pub(super) fn applied(&mut self, at: Place, change: Change, now_ns: u64, out: &mut Outbox) {
        // A write that failed may still be on its way inside the backend.
        let doubt_until_ns = if change == Change::Failed {
            now_ns + self.leases.length_ns()
        } else {
            0
        };
        let finished = self.directory.update(at, |e| {
            let origin = &e.state.applying()?.body.origin;
            let id = (origin.client, origin.request);
            e.asks.told(id).for_each(|store| e.state.told(store));
            if matches!(change, Change::Done(_)) {
                e.asks.applied(id);
            }
            e.state.applied(doubt_until_ns)
        });
        let Some(Some(Write { body: job, .. })) = finished else {
            return;
        };
        self.pending_writes.give_back(job.origin.tenant, 1);
        self.joins.give_back(job.origin.tenant, job.room);
        match change {
            Change::Done(_) => self.counters.writes_applied += 1,
            Change::Mismatch(_) => self.counters.writes_mismatch += 1,
            Change::Full => self.counters.refused_memory_full += 1,
            Change::TooLarge => self.counters.refused_too_large += 1,
            Change::Failed => self.counters.backend_errors += 1,
            Change::NotFound => {}
        }
        let outcome = Outcome::of(change);
        if change == Change::Full {
            self.clients
                .forget(job.origin.client_id(), job.origin.request);
        } else {
            self.clients
                .finish(job.origin.client_id(), job.origin.request, outcome);
        }
        let written = job.origin.op == Op::WriteRequest && matches!(change, Change::Done(_));
        let may = job.origin.wants_grant && self.outside.may_grant_writes();
        let grant = written && may && self.grant_known(at, &job.origin, now_ns, out);
        let answer = Answer {
            status: outcome.status,
            version: outcome.version,
            expiry_ms: if grant { job.ttl_ms } else { 0 },
            part: 0,
            total: 0,
            value: if grant { &job.value } else { &[] },
            grant,
            is_digest: false,
            key_life: None,
        };
        if let Some(entry) = self.directory.get(at) {
            self.replies
                .send(&job.origin, &entry.key, &answer, now_ns, out);
        }
    }

    /// Rule 5 for a key that is in the directory.
    fn grant_known(&mut self, at: Place, origin: &Origin, now_ns: u64, out: &mut Outbox) -> bool {
        let switch = origin.epoch.switch();
        let is_store = switch & wire::NODE_STORE != 0;
        // Its key may have moved to another store since it was asked for: what is called back for that is not granted again.
        if !self.is_home_of(origin.tenant, origin.key_hash) {
            self.counters.grants_moved += 1;
            return false;
        }
        let is_placed = match is_store {
            true => self.may_hold(switch, origin.tenant),
            false => self.placements.allows(switch, origin.tenant),
        };
        if !is_placed {
            self.counters.grants_not_placed += 1;
            return false;
        }
        let (room, leases) = (self.directory.has_room(origin.tenant), &self.leases);
        let granted = self
            .directory
            .update(at, |e| e.state.grant(origin.epoch, leases, room, now_ns));
        match granted {
            Some(Ok(())) => {
                self.counters.grants += 1;
                if let Some(entry) = self.directory.get(at) {
                    self.backend.pin(entry.named(), true);
                }
                return true;
            }
            Some(Err(NoGrant::WritePending)) => {
                self.counters.grants_write_pending += 1;
                if is_store {
                    self.grant_later(at, origin.epoch, now_ns);
                }
            }
            Some(Err(NoGrant::NoLease)) => self.counters.grants_no_lease += 1,
            Some(Err(NoGrant::DirectoryFull)) => {
                self.counters.grants_directory_full += 1;
                self.recall_oldest(origin.tenant, at, now_ns, out);
            }
            None => {}
        }
        false
    }

    /// Rule 5 for a read or fetch: whether the reply may be a grant.
    pub(super) fn grant(
        &mut self,
        origin: &Origin,
        key: Key<'_>,
        now_ns: u64,
        out: &mut Outbox,
    ) -> bool {
        if !self.outside.may_grant_reads() {
            self.counters.grants_unwatched += 1;
            return false;
        }
        if self.leases.term(origin.epoch.switch(), now_ns).is_none() {
            self.counters.grants_no_lease += 1;
            return false;
        }
        let at = self.directory.enter(key);
        let granted = self.grant_known(at, origin, now_ns, out);
        if !granted {
            self.directory.forget_if_idle(at, now_ns);
        }
        granted
    }

    /// The directory has no more room for a tenant: calls the copies of its oldest key back, or of whoever has the places that it
    /// lacks. `not` is being worked on.
    fn recall_oldest(&mut self, tenant: u32, not: Place, now_ns: u64, out: &mut Outbox) {
        let oldest = self.directory.oldest(self.directory.who_gives(tenant));
        let Some(at) = oldest.filter(|at| *at != not) else {
            return;
        };
        let recalled = self.directory.update(at, |e| {
            let recalled = e.state.recall(now_ns);
            if recalled
                && e.state
                    .copies()
                    .iter()
                    .any(|copy| copy.switch & wire::NODE_STORE != 0)
            {
                e.asks.refuse();
            }
            recalled
        });
        if recalled == Some(true) {
            self.counters.directory_evictions += 1;
            self.drive(at, now_ns, out);
        }
    }

    /// A key at rest: what nobody holds a copy of may be evicted by the backend and forgotten here.
    fn settle(&mut self, at: Place, now_ns: u64) {
        let entry = self.directory.get(at);
        if let Some(entry) = entry.filter(|entry| entry.state.copies().is_empty()) {
            self.backend.pin(entry.named(), false);
            self.directory.forget_if_idle(at, now_ns);
        }
    }

    pub(super) fn set_timer(&mut self, at: Place, at_ns: u64) {
        let sooner = self.directory.update(at, |entry| {
            let sooner = entry.timer_ns == 0 || at_ns < entry.timer_ns;
            if sooner {
                entry.timer_ns = at_ns;
            }
            sooner
        });
        if sooner == Some(true) {
            self.timers.push(Reverse((at_ns, at)));
        }
    }
}
