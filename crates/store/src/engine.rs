//! The store without its socket: datagrams and the time go in, replies come out.
//!
//! The engine only sequences. What there is to decide the parts decide: [`keys`], [`reads`],
//! [`loans`], [`copies`], [`halves`], [`leases`]. Each is a value; it gets what happened and a
//! [`Context`] with the facts that parts share, and leaves what is another's to do as an
//! [`Effect`]. A part may be handed one that lies below it (`loans` and `halves` none, `reads` the
//! `keys`), never one above.

mod admission;
mod backend_requests;
mod context;
mod copies;
mod granted_values;
mod halves;
mod hold;
mod holder_messages;
mod holders;
mod holds;
mod keys;
mod large_values;
mod lease_holder;
mod leases;
mod ledger;
mod loans;
mod ops;
mod partial_writes;
mod pending_write;
mod read_elsewhere;
mod reads;
mod recency_table;
mod refusals;
mod replies;
mod status;
mod tenants;
#[cfg(test)]
mod tests;
mod writes;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use wire::{Cluster, Epoch, Op, Packet};

use crate::{
    Config, Incarnation,
    backend::{Admission, Backend, Completion, Key, Trouble},
    coherence::{LifeVerdict, Whereabouts},
    counters::Counters,
    handover::Handover,
    journal::Journal,
    net::{Outbox, Peer},
    reports::{Report, Reports},
};
use admission::Admitted;
use backend_requests::BackendRequest;
use context::{Context, Effect, named};
use copies::ForeignCopies;
use halves::Halves;
pub use halves::TellError;
pub use hold::{HoldEnd, HoldId, HoldRequest};
use holder::mutants::{Mutant, mutant};
use holds::HoldRegistry;
use keys::{Keys, recalls::Recalls};
use leases::{Departure, Lessor};
use loans::{LifeCheck, Loans};
use ops::Handler;
pub(crate) use ops::is_own;
use pending_write::PendingWrite;
use read_elsewhere::ElsewhereReads;
use reads::Reads;
use replies::Origin;
pub use tenants::UpdateError;
use tenants::{TenantChanges, Tenants};

/// Requests that may wait for the backend at once; what comes on top is dropped. Also the writes
/// that may wait for switches, or behind one another, over all keys: their values take 100 MB
/// at most.
const MAX_WAITING: usize = 65_536;

/// A store's whole state.
pub struct Engine {
    facts: Context,
    keys: Keys,
    recalls: Recalls,
    reads: Reads,
    elsewhere: ElsewhereReads,
    lessor: Lessor,
    loans: Loans,
    replicas: ForeignCopies,
    halves: Halves,
    holds: HoldRegistry,
}

impl Engine {
    /// A store that starts at `now_ns` of its own clock.
    pub fn new(
        config: Arc<Config>,
        backend: Box<dyn Backend>,
        now_ns: u64,
        incarnation: Incarnation,
    ) -> Engine {
        let needs_journal = config.backend != crate::BackendConfig::Embedded;
        let seed = incarnation.first_term();
        let facts = Context::new(config.clone(), backend, now_ns, incarnation);
        let tenants = facts.tenants.len();
        Engine {
            keys: Keys::default(),
            recalls: Recalls::default(),
            reads: Reads::default(),
            elsewhere: ElsewhereReads::new(tenants),
            lessor: Lessor::default(),
            loans: Loans::new(tenants, needs_journal, seed),
            replicas: ForeignCopies::new(&config, tenants, incarnation, now_ns),
            halves: Halves::new(&config.halves, tenants),
            holds: HoldRegistry::default(),
            facts,
        }
    }

    /// From now on requests are taken as this says.
    pub fn admit_by(&mut self, admission: Admission) {
        self.facts.admission = Some(admission);
    }

    /// Handles an event of this time, with all that parts leave to each other for it. What it sends
    /// goes into `out`.
    fn at<R>(&mut self, now_ns: u64, out: &mut Outbox, event: impl FnOnce(&mut Engine) -> R) -> R {
        self.facts.now_ns = now_ns;
        self.holds.begin_event();
        std::mem::swap(&mut self.facts.out, out);
        let result = event(self);
        self.finish();
        std::mem::swap(&mut self.facts.out, out);
        result
    }

    // ---- what comes from the network

    /// Handles one datagram that arrived at `now_ns`.
    pub fn receive(&mut self, datagram: &[u8], peer: Peer, now_ns: u64, out: &mut Outbox) {
        self.at(now_ns, out, |engine| engine.received(datagram, peer));
    }

    fn received(&mut self, datagram: &[u8], peer: Peer) {
        let Ok(packet) = Packet::decode(datagram) else {
            self.facts.counters.dropped_malformed += 1;
            return;
        };
        let packet = &packet;
        let room = datagram.len();
        let cx = &mut self.facts;
        if self.replicas.is_redirected(&packet.header) {
            if let Some(admitted) = cx.admit(packet, room, peer, true) {
                self.redirected(admitted, packet);
            }
        } else {
            match Handler::of(packet.header.op) {
                Handler::Keyed => {
                    if let Some(admitted) = cx.admit(packet, room, peer, false) {
                        self.keyed(admitted.origin, packet);
                    }
                }
                Handler::Ack if !packet.tag_is_valid(&cx.system_secret()) => {
                    cx.counters.denied_tag += 1;
                }
                Handler::Ack if cx.may_speak(packet.header.epoch, peer) => {
                    self.keys.acknowledged(cx, &packet.header);
                }
                Handler::Ack => self.replicas.counters.dropped_replica += 1,
                Handler::Lease => self.lessor.asked(cx, packet, peer),
                Handler::LeaseReturn => self.leaves(packet, peer),
                Handler::HolderLease => holder_messages::asked(cx, packet, peer),
                Handler::HolderReturn => {
                    if holder_messages::returned(cx, packet) {
                        self.keys.lease_is_over(cx, packet.header.epoch.switch());
                    }
                }
                Handler::HolderAck => {
                    let header = &packet.header;
                    let is_its = holder_messages::acknowledged(cx, packet);
                    // One that comes twice, or of a key that it did not hold, counts for nothing.
                    let counts = is_its && self.keys.acknowledged(cx, header);
                    if counts && header.expiry_ms != wire::HAD_NONE {
                        let id = (header.tenant, header.key_hash);
                        cx.holders.called_back(&id, header.expiry_ms, cx.now_ns);
                    }
                }
                Handler::ReadCounts => self.elsewhere.told(cx, packet),
                Handler::Loan => self.loans.message(cx, packet),
                Handler::Replica => self.replicas.message(cx, packet, peer),
                Handler::Discipline => self.halves.operation(cx, packet, room, peer),
            }
        }
    }

    /// A switch, or a store that holds copies, gives its lease back: first it is rid of what is
    /// lent to it; then no write waits for its copies any more.
    fn leaves(&mut self, packet: &Packet<'_>, peer: Peer) {
        let cx = &mut self.facts;
        let Some(departure) = self.lessor.returned(cx, packet, peer) else { return };
        let (Departure::Announced(who) | Departure::Gone(who, _) | Departure::Returned(who)) =
            departure;
        if let Departure::Gone(_, true) = departure {
            self.keys.lease_is_over(cx, who);
        }
        if !matches!(departure, Departure::Returned(_)) {
            self.loans.leaves(cx, who);
        }
        let lent = self.loans.parts_of(who).len();
        self.lessor.acknowledge(&mut self.facts, &packet.header, lent, peer);
    }

    /// A request that names a key of this store.
    fn keyed(&mut self, origin: Origin, packet: &Packet<'_>) {
        let key = key_of(packet);
        if packet.header.op.is_write() {
            return self.write(origin, key, packet);
        }
        if packet.header.op == Op::ReadRequest {
            self.halves.watch_read(&mut self.facts, key);
            self.finish();
        }
        self.read(origin, key);
    }

    /// A read that a switch has sent here in the place of its key's home.
    fn redirected(&mut self, admitted: Admitted, packet: &Packet<'_>) {
        let key = key_of(packet);
        if admitted.is_owned {
            return self.read(admitted.origin, key);
        }
        let cx = &mut self.facts;
        self.replicas.read(cx, admitted.origin, key);
    }

    fn read(&mut self, origin: Origin, key: Key<'_>) {
        let cx = &mut self.facts;
        if self.reads.begin(cx, &origin) && self.loans.may_read(cx, &origin, key) {
            self.reads.read(&mut self.keys, cx, origin, key);
        }
    }

    /// A write or delete whose key is verified.
    fn write(&mut self, mut origin: Origin, key: Key<'_>, packet: &Packet<'_>) {
        let header = &packet.header;
        let cx = &mut self.facts;
        if !writes::begin(cx, origin.tenant, header.is_part()) {
            return;
        }
        let says = match self.loans.judge_life(cx, &origin, key, header) {
            LifeCheck::Taken(says) => says,
            LifeCheck::Repeated(verdict, key_life) => {
                origin.key_life = key_life;
                return self.keys.repeat(cx, &origin, key, &[], verdict);
            }
            LifeCheck::Over => return,
        };
        if header.life > wire::LIFE_UNKNOWN {
            origin.key_life = header.life;
        }
        if !writes::may_take(cx, &origin, key.bytes) {
            return;
        }
        if header.is_part() {
            return self.part(origin, key, packet);
        }
        let Some(job) = writes::whole(cx, origin, packet) else { return };
        let is_new = self.keys.is_new(cx, &job, key, header.life);
        if says == LifeVerdict::Ask {
            if is_new {
                self.loans.park(cx, job, key, header.life, origin.epoch);
            }
            return;
        }
        if is_new {
            self.submit(job, key, origin.epoch);
        }
        let cx = &mut self.facts;
        self.loans.count_write(cx, key, packet);
    }

    /// A part of a write. It is a write when its value is whole: rule 7 remembers it from then on,
    /// with the epoch of the part that came last. Those of the others are proof for rule 4 when
    /// they come: each has taken another, maybe of another switch.
    fn part(&mut self, origin: Origin, key: Key<'_>, packet: &Packet<'_>) {
        let cx = &mut self.facts;
        if let Some(verdict) = cx.ledger.clients.look(origin.request_id()) {
            return self.keys.repeat(cx, &origin, key, &[], verdict);
        }
        let epoch = origin.epoch;
        self.keys.part_passed(cx, (key.tenant, key.hash), epoch);
        // What that released goes before this write.
        self.finish();
        let cx = &mut self.facts;
        let Some(job) = writes::joined(cx, origin, packet) else { return };
        if !self.keys.is_new(cx, &job, key, 0) {
            return cx.ledger.give_room_back(&job);
        }
        self.submit(job, key, epoch);
    }

    /// A write that this store is to decide, and that is new.
    fn submit(&mut self, job: PendingWrite, key: Key<'_>, epoch: Epoch) {
        let cx = &mut self.facts;
        let id = (key.tenant, key.hash);
        let proceeds = self.loans.proceeds(&id);
        // What switches still have of it, of a tenant that had the number and has gone, would come
        // over this write: the server knows both by one name.
        let is_lent_to_former =
            cx.tenants.former_ids_of(key.tenant, key.bytes).any(|id| self.loans.is_open(&id));
        if is_lent_to_former || cx.all_held || !cx.ledger.pending.has_room(key.tenant) {
            return writes::put_off(cx, &job, key.bytes);
        }
        if let Some(job) = self.keys.submit(cx, job, key, epoch, proceeds) {
            writes::put_off(cx, &job, key.bytes);
        }
        if proceeds == Whereabouts::Away {
            self.loans.recall(cx, id);
        }
    }

    // ---- what parts leave to each other

    /// Has everything done that parts have left to others.
    fn finish(&mut self) {
        while let Some(effect) = self.facts.effects.pop_front() {
            self.perform(effect);
        }
        self.holds.settle_everything(&self.facts, || self.loans.open());
    }

    fn perform(&mut self, effect: Effect) {
        let cx = &mut self.facts;
        match effect {
            Effect::Cleared(id) => self.loans.cleared(cx, id),
            Effect::Push(read) => {
                let (origin, key) = *read;
                let key = named((origin.tenant, origin.key_hash), &key);
                self.read(origin, key);
            }
            Effect::Pushed(at) => keys::settle(cx, at),
            Effect::Hold(id, key) => self.keys.hold(cx, id, &key),
            Effect::Release(id) => self.keys.release(cx, id),
            Effect::Begun(id) => {
                if self.loans.is_open(&id) {
                    let queued = self.keys.take_movable(cx, id);
                    self.loans.begun(cx, id, queued);
                }
            }
            Effect::Submit(write) => {
                let (job, key, epoch) = *write;
                let key = named((job.origin.tenant, job.origin.key_hash), &key);
                self.submit(job, key, epoch);
            }
            Effect::GrantLater(id, epoch) => self.keys.grant_later(cx, id, epoch),
            Effect::ReadForHalf(half, request) => {
                let Some(id) = self.halves.key_to_read(cx, request) else { return };
                if self.loans.proceeds(&id) == Whereabouts::Away {
                    self.loans.recall(cx, id);
                    self.halves.key_is_lent(cx, half, request);
                } else {
                    self.halves.read(cx, half, request);
                }
            }
            Effect::HoldCopy(tenant, key) => {
                let is_done = self.replicas.hold(cx, tenant, &key);
                self.halves.counters.discipline_refused += u64::from(!is_done);
            }
            Effect::ReleaseCopy(tenant, key) => {
                let is_done = self.replicas.release(cx, tenant, &key);
                self.halves.counters.discipline_refused += u64::from(!is_done);
            }
            Effect::Taken(hold) => {
                self.holds.has_taken(hold);
                self.let_go();
                self.advance_hold(hold);
            }
            Effect::ConfirmCopies(tenant) => self.replicas.confirm_all(cx, tenant),
        }
    }

    // ---- holds

    /// A command is to have keys for itself. [`Engine::take_held`] says when it has; then it may be
    /// carried out, and [`Engine::end_hold`] is called when it is over. Or
    /// [`Engine::take_refused`] says that it is not going to have them. `id` is the caller's, and
    /// new.
    pub fn hold(&mut self, id: HoldId, wanted: HoldRequest, now_ns: u64, out: &mut Outbox) {
        self.at(now_ns, out, |engine| {
            engine.facts.backend.attend();
            engine.holds.ask(id, wanted);
            engine.begin_holds();
        });
    }

    /// A hold is not needed any more, whether it was had or not.
    pub fn end_hold(&mut self, id: HoldId, end: HoldEnd, now_ns: u64, out: &mut Outbox) {
        self.at(now_ns, out, |engine| {
            engine.holds.end(&mut engine.facts, id, end);
            engine.let_go();
            engine.begin_holds();
        });
    }

    /// The tenant and the hash of the key that has this name in the backend; none if nobody can
    /// have a copy of what has that name.
    pub fn key_named(&self, name: &[u8]) -> Option<(u32, wire::KeyHash)> {
        holds::key_of(&self.facts, name)
    }

    /// Whether the key that has this name in the backend is another store's.
    pub fn is_elsewhere(&self, name: &[u8]) -> bool {
        let key = self.key_named(name);
        key.is_some_and(|(tenant, hash)| !self.facts.is_home_of(tenant, hash))
    }

    /// The holds that have been had since the last time this was asked.
    pub fn take_held(&mut self) -> Vec<HoldId> {
        self.holds.take_ready()
    }

    /// The holds that were refused since the last time this was asked: what they waited for did not
    /// end in time, and nothing is left of them.
    pub fn take_refused(&mut self) -> Vec<HoldId> {
        self.holds.take_refused()
    }

    /// Begins with the holds that may be begun with.
    fn begin_holds(&mut self) {
        while let Some(id) = self.holds.next_to_begin(&mut self.facts) {
            let cx = &mut self.facts;
            if self.holds.is_of_everything(id) {
                self.loans.recall_all(cx);
                self.recalls.everything(cx);
                self.recalls.tick(&mut self.keys, cx);
                continue;
            }
            self.continue_hold(id);
        }
    }

    /// Goes on with a hold of keys, by as many as one event may.
    fn continue_hold(&mut self, id: HoldId) {
        // When it is a key's turn, its copies are on their way out.
        for key in self.holds.later_keys(id) {
            self.keys.recall(&mut self.facts, key);
        }
        self.advance_hold(id);
    }

    /// A hold waits for the next of its keys, if there is one.
    fn advance_hold(&mut self, hold: HoldId) {
        let Some((id, key)) = self.holds.next_key(hold) else {
            if mutant(Mutant::HoldLetGoEarly) {
                self.holds.end(&mut self.facts, hold, HoldEnd::Over);
                self.let_go();
            }
            return;
        };
        let cx = &mut self.facts;
        let proceeds = self.loans.proceeds(&id);
        self.keys.submit_hold(cx, hold, named(id, &key), proceeds);
        if proceeds == Whereabouts::Away {
            self.loans.recall(cx, id);
        }
    }

    /// Lets keys go of holds that are over, as many as one event may.
    fn let_go(&mut self) {
        while let Some((hold, id)) = self.holds.next_to_let_go() {
            self.keys.let_go(&mut self.facts, id, hold);
        }
    }

    // ---- what comes from the backend, the controller and the clock

    /// The backend has answered a request that it was asked earlier.
    pub fn complete(&mut self, completion: Completion, now_ns: u64, out: &mut Outbox) {
        self.at(now_ns, out, |engine| engine.completed(completion));
    }

    fn completed(&mut self, completion: Completion) {
        let cx = &mut self.facts;
        match completion {
            Completion::Change(ticket, change) => match cx.waiting.remove(ticket) {
                Some(BackendRequest::Write(id)) => self.keys.changed(cx, id, change),
                Some(BackendRequest::Loan(id)) => self.loans.put(cx, id, change),
                _ => {}
            },
            Completion::Journal(ticket, is_done) => {
                if let Some(BackendRequest::Loan(id)) = cx.waiting.remove(ticket) {
                    self.loans.journaled(cx, id, is_done);
                }
            }
            Completion::Outside(event) => self.recalls.happened(&mut self.keys, cx, event),
            Completion::Settled => self.keys.settled(cx),
            Completion::Get(ticket, found) => match cx.waiting.remove(ticket) {
                Some(BackendRequest::Read(read)) => {
                    self.reads.found(cx, ticket, &read, found);
                }
                Some(BackendRequest::Half(request, _)) => self.halves.found(cx, request, found),
                Some(BackendRequest::Loan(id)) => self.loans.read(cx, id, ticket, found),
                _ => {}
            },
        }
    }

    /// Does what is due by `now_ns`: repeats invalidations, offers leases, releases
    /// delayed replies.
    pub fn tick(&mut self, now_ns: u64, out: &mut Outbox) {
        self.at(now_ns, out, Engine::ticks);
    }

    fn ticks(&mut self) {
        self.holds.tick(&mut self.facts);
        self.let_go();
        for hold in self.holds.take_unfinished() {
            self.continue_hold(hold);
        }
        self.begin_holds();
        let cx = &mut self.facts;
        self.recalls.tick(&mut self.keys, cx);
        self.loans.tick(cx);
        self.replicas.tick(cx);
        let is_offered = self.lessor.offer(cx);
        // What is due of a key is seen there before it is swept away.
        self.keys.tick(cx);
        if is_offered {
            cx.holders.sweep(&cx.leases, cx.now_ns);
            self.keys.sweep(cx);
        }
        self.halves.tick(cx);
        self.elsewhere.tick(cx);
        cx.ledger.tick(cx.now_ns);
        cx.values.tick(cx.now_ns);
        cx.replies.delayed.release(cx.now_ns, &mut cx.out);
    }

    /// When [`Engine::tick`] has something to do next.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        [
            self.lessor.next_ns(&self.facts),
            self.keys.next_ns(),
            self.recalls.next_ns(),
            self.halves.next_ns(),
            self.holds.next_ns(&self.facts),
            self.elsewhere.next_ns(),
            self.facts.ledger.next_ns(),
            self.facts.values.next_ns(),
            self.loans.next_ns(),
            self.replicas.next_ns(),
            self.facts.replies.delayed.next_ns(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The controller sends a half a message.
    ///
    /// # Errors
    /// [`TellError`]; the half is not told then.
    pub fn tell(
        &mut self,
        name: &str,
        tenant: u32,
        message: &[u8],
        now_ns: u64,
        out: &mut Outbox,
    ) -> Result<(), TellError> {
        self.at(now_ns, out, |engine| engine.halves.tell(&mut engine.facts, name, tenant, message))
    }

    /// The controller has placed tenants on these switches, and nowhere else: pairs of a tenant and
    /// a switch. Copies that were granted before stay in the directory until they are called back
    /// or die; copies that are held here of tenants that are placed nowhere go, for no switch sends
    /// reads of them, and who wanted them held may be nobody now.
    pub fn place(&mut self, all: impl IntoIterator<Item = (u32, u16)>) {
        self.facts.placements.set(all);
        if let Some(placed) = self.facts.placements.tenants() {
            self.replicas.forget_all_but(&placed);
        }
    }

    /// Takes a cluster with other tenants, which counts from the next packet on. A tenant that is
    /// gone is denied, and everything that went on for it ends without an answer. Its copies, and
    /// those of keys that are another store's from now on, are called back. Keys themselves do not
    /// move.
    ///
    /// # Errors
    /// [`UpdateError`]; everything stays as it was then.
    pub fn update(
        &mut self,
        new: Cluster,
        now_ns: u64,
        out: &mut Outbox,
    ) -> Result<(), UpdateError> {
        let facts = &self.facts;
        let old = &facts.config.cluster;
        let before = Some((old, &facts.tenants));
        tenants::check(old, &new)?;
        let mut tenants = Tenants::new(&new, facts.config.identity, before);
        let changes = tenants.changed_from(&facts.tenants);
        let is_left = |id| facts.directory.has_any_of(id) || self.loans.has_any_of(id);
        tenants.remember(&facts.tenants, &changes.gone, is_left);
        let lent_nothing = self.lends_nothing().is_some();
        self.facts.tenants = tenants;
        Arc::make_mut(&mut self.facts.config).cluster = new;
        self.at(now_ns, out, |engine| engine.follow(&changes));
        if let Some(why) = self.lends_nothing().filter(|_| !lent_nothing) {
            tracing::warn!("a tenant has write-back, but no key is lent: {why}");
        }
        Ok(())
    }

    /// Does what has to be done now that tenants are others.
    fn follow(&mut self, TenantChanges { gone, moved }: &TenantChanges) {
        let cx = &mut self.facts;
        cx.ledger.forget_tenants(gone, cx.now_ns);
        cx.ledger.clients.forget_replaced(|id| cx.tenants.seed_of(id));
        let gone = &gone.keys().copied().collect();
        self.forget_tenants(gone);
        self.facts.share_anew();
        let tenants = self.facts.tenants.len();
        self.halves.share_among(tenants);
        self.replicas.share_among(tenants);
        self.loans.share_among(tenants);
        self.elsewhere.share_among(tenants);
        let cx = &mut self.facts;
        // What has moved away may be written there before it comes back.
        cx.granted.end_all();
        self.recalls.moved(cx, moved);
        self.replicas.tenants_changed(cx);
        self.loans.recall_unlendable(cx, gone);
    }

    fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        if gone.is_empty() {
            return;
        }
        let cx = &mut self.facts;
        cx.waiting.forget_tenants(|id| gone.contains(&id));
        cx.values.forget_tenants(gone);
        cx.granted.forget_tenants(gone);
        self.replicas.forget_tenants(gone);
        self.loans.forget_tenants(cx, gone);
        cx.holders.tenants_left(gone, &mut cx.leases, cx.now_ns);
        self.keys.forget_tenants(cx, gone);
        self.recalls.gone(cx, gone);
        self.halves.tenants_left(cx, gone);
        self.finish();
    }

    // ---- loans, at the store's start and end

    /// Gives the store its journal of loans. What a former life lent is called back at once.
    pub fn keep_journal(&mut self, journal: Box<dyn Journal>, now_ns: u64, out: &mut Outbox) {
        self.at(now_ns, out, |engine| engine.loans.keep_journal(&mut engine.facts, journal));
    }

    /// The store is about to end, and serves on: from here on it grants and lends nothing; calls
    /// back what was lent, and every copy, if what it has outlives it; and gives back what other
    /// stores have lent it.
    pub fn leave(&mut self, now_ns: u64, out: &mut Outbox) {
        self.at(now_ns, out, |engine| {
            let cx = &mut engine.facts;
            engine.loans.stop(cx);
            engine.replicas.leave(cx);
            if cx.outlives() {
                cx.leaves = true;
                engine.recalls.everything(cx);
                engine.recalls.tick(&mut engine.keys, cx);
            }
        });
    }

    /// Keys that are lent or about to be, and that a store which ends waits for.
    pub fn loans(&self) -> usize {
        self.loans.awaited()
    }

    /// What a store that ends waits for: keys that are lent, copies, and stores that have not heard
    /// that it gives their leases back.
    pub fn owed(&self) -> usize {
        let copies = if self.facts.leaves { self.facts.directory.copies() } else { 0 };
        self.loans() + copies + self.replicas.owed()
    }

    /// Whether requests that were taken are still to be answered.
    pub fn is_at_work(&self) -> bool {
        let facts = &self.facts;
        let waits =
            !facts.waiting.is_empty() || facts.ledger.pending.all() > 0 || !self.holds.is_empty();
        waits || facts.replies.delayed.next_ns().is_some()
    }

    /// What the next life needs to go on with this one, which has [left](Engine::leave) and takes
    /// nothing any more. None: it must wait as after a crash, for copies may be left, a write may
    /// still take place, a former life's wait is not over, or keys were lent or tenants removed of
    /// late, of whose lives and writes only this one knows.
    pub fn hand_over(&self, now_ns: u64) -> Option<Handover> {
        let facts = &self.facts;
        let is_over = facts.leaves
            && facts.takes_writes(now_ns)
            && self.owed() == 0
            && !self.is_at_work()
            && facts.directory.is_settled()
            && facts.ledger.clients.next_ns().is_none()
            && self.loans.is_unused();
        if !is_over {
            return None;
        }
        let clients: Option<Vec<_>> = facts.ledger.client_records().collect();
        Some(Handover {
            life: facts.replies.life,
            newest_version: facts.versions.newest,
            clients: clients?,
        })
    }

    /// What the store was told when it started, and the cluster as it is now.
    pub fn config(&self) -> &Config {
        &self.facts.config
    }

    /// Goes on with a life that ended in order: this engine began when that one did, and has its
    /// name ([`Incarnation::going_on`]).
    pub fn go_on(&mut self, handover: Handover) {
        self.facts.ledger.restore(handover.clients);
    }

    /// How long it takes at most until all are back, whatever has become of the switches, if the
    /// backend answers.
    pub fn returns_within(&self) -> Duration {
        Duration::from_nanos(self.facts.returns_within_ns())
    }

    /// Why no key is lent, where a tenant has write-back.
    pub fn lends_nothing(&self) -> Option<&'static str> {
        let watch = self.facts.backend.watch();
        self.loans.none_because(&self.facts.config, watch)
    }

    // ---- what is told of the store

    /// Takes what halves have reported since the last time.
    pub fn take_reports(&self) -> Vec<Report> {
        self.halves.reports.take_now()
    }

    /// What was taken may be lost: the newest about each tenant is to be taken again.
    pub fn report_again(&self) {
        self.halves.reports.again();
    }

    /// Where reports of halves can be had.
    pub(crate) fn reports(&self) -> Reports {
        self.halves.reports.clone()
    }

    /// Counts datagrams that the system did not take.
    pub fn lost(&mut self, datagrams: u64) {
        self.facts.counters.replies_lost += datagrams;
    }

    /// What was counted so far.
    pub fn counters(&self) -> Counters {
        Counters {
            requests: self.facts.counters.clone(),
            read: self.reads.counters.clone(),
            write: self.facts.ledger.counters.clone(),
            keys: self.keys.counters.clone(),
            elsewhere: self.elsewhere.counters.clone(),
            leases: self.lessor.counters.clone(),
            outside: self.recalls.counters.clone(),
            holds: self.holds.counters.clone(),
            holders: self.facts.holders.counters.clone(),
            halves: self.halves.counters.clone(),
            loans: self.loans.counters.clone(),
            replicas: self.replicas.counters.clone(),
        }
    }

    /// What is wrong with the backend, if something is.
    pub fn backend_trouble(&self) -> Option<Trouble> {
        self.facts.backend.trouble()
    }

    /// What the store tells about itself; where it listens, and what is wrong with the backend, is
    /// left to the caller, who has a clock.
    pub fn status(&self, now_ns: u64) -> crate::Status {
        crate::Status {
            totals: self.counters(),
            ..status::of(&self.facts, &self.loans, &self.replicas, now_ns)
        }
    }
}

fn key_of<'a>(packet: &Packet<'a>) -> Key<'a> {
    named((packet.header.tenant, packet.header.key_hash), packet.key)
}
