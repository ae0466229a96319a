//! Keys with copies elsewhere or writes under way: each is moved on by the rules, one write at
//! a time.
//!
//! A write goes in by [`Keys::submit`]; invalidations, the question to the backend and the answer
//! come out. What a key is held for, and who is pushed its value, is left to others.

mod duplicates;
mod grants;
mod pushes;
pub(super) mod recalls;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
};

use wire::{Epoch, Header, Op};

pub(super) use pushes::digest_of;

use super::{
    backend_requests::BackendRequest,
    context::{Context, Effect},
    hold::HoldId,
    pending_write::{Exclusive, PendingWrite, WriteOutcome},
    refusals::refused,
    replies::Answer,
};
use crate::{
    backend::{Answer as Reply, Change, Put},
    coherence::{Ask, Asks, Invalidate, Nanos, Step, Submission, SwitchId, Whereabouts, Write},
    counters::KeyCounters,
    directory::{KeyId, Place},
};
use holder::mutants::{Mutant, mutant};

/// Keys looked at for dead copies each time leases are offered: a million keys within some
/// 40 seconds.
const SWEEP_KEYS: usize = 16_384;

/// What keys wait for.
#[derive(Default)]
pub(super) struct Keys {
    timers: BinaryHeap<Reverse<(Nanos, Place)>>,
    /// Empty between uses; kept for its memory.
    invalidations: Vec<Invalidate>,
    pub counters: KeyCounters,
}

impl Keys {
    /// A write that this store is to decide, and that is new. If its key is lent or going to be, it
    /// waits. Too many that wait already: it is given back.
    pub fn submit(
        &mut self,
        cx: &mut Context,
        job: PendingWrite,
        key: crate::backend::Key<'_>,
        epoch: Epoch,
        proceeds: Whereabouts,
    ) -> Option<PendingWrite> {
        let told_stores = job.told_stores;
        let write = Write { epoch, told_stores, body: Exclusive::Write(Box::new(job)) };
        let queue_limit = cx.config.key_queue_limit;
        match self.take_turn(cx, write, key, proceeds, queue_limit) {
            Some(Exclusive::Write(job)) => Some(*job),
            Some(Exclusive::Hold(_)) | None => None,
        }
    }

    /// A hold that needs a key: it gets it when its turn has come ([`Effect::Taken`]). However many
    /// wait: holds are as many as there are connections, and have as many keys as their commands
    /// have words.
    pub fn submit_hold(
        &mut self,
        cx: &mut Context,
        hold: HoldId,
        key: crate::backend::Key<'_>,
        proceeds: Whereabouts,
    ) {
        let body = Exclusive::Hold(hold);
        let write = Write { epoch: Epoch::NONE, told_stores: false, body };
        self.take_turn(cx, write, key, proceeds, usize::MAX);
    }

    /// Queues what wants a key for itself, and moves the key on. Too many wait: it is given back.
    fn take_turn(
        &mut self,
        cx: &mut Context,
        write: Write<Exclusive>,
        key: crate::backend::Key<'_>,
        proceeds: Whereabouts,
        queue_limit: usize,
    ) -> Option<Exclusive> {
        // Keys of holds take none of the room of writes: one command may have more of them than all
        // tenants may have writes that wait.
        let writes = usize::from(write.body.write().is_some());
        let at = cx.directory.enter(key);
        let submitted = cx.directory.update(at, |e| {
            if proceeds != Whereabouts::Here {
                e.state.hold();
            }
            e.state.submit(write, queue_limit)
        });
        match submitted? {
            Submission::Refused(job) => return Some(job),
            Submission::Started => {
                cx.ledger.pending.take(key.tenant, writes);
                let waits = self.drive(cx, at);
                cx.ledger.counters.writes_waited += u64::from(waits);
            }
            Submission::Queued => {
                cx.ledger.pending.take(key.tenant, writes);
                cx.ledger.counters.writes_queued += 1;
                self.drive(cx, at);
            }
        }
        None
    }

    /// Calls the copies of a key back, unless something goes on that does.
    pub fn recall(&mut self, cx: &mut Context, id: KeyId) {
        if let Some(at) = cx.directory.find(&id) {
            cx.directory.update(at, |e| !e.state.copies().is_empty() && e.state.recall(cx.now_ns));
            self.drive(cx, at);
        }
    }

    /// A hold is over: what is under its key has a new version, and the key goes on.
    pub fn let_go(&mut self, cx: &mut Context, id: KeyId, hold: HoldId) {
        let Some(at) = cx.directory.find(&id) else { return };
        let let_go = cx.directory.update(at, |e| {
            let is_its =
                |body: &Exclusive| matches!(body, Exclusive::Hold(other) if *other == hold);
            let applying = e.state.applying().filter(|write| is_its(&write.body));
            applying.is_some() && e.state.applied(0).is_some()
        });
        if let_go == Some(true) {
            cx.settle(id);
            self.drive(cx, at);
        }
    }

    /// A part of a write passed a switch with this epoch (rule 4).
    pub fn part_passed(&mut self, cx: &mut Context, id: KeyId, epoch: Epoch) {
        if let Some(at) = cx.directory.find(&id) {
            let passed = cx.directory.update(at, |e| e.state.part_passed(epoch));
            if passed == Some(true) {
                self.drive(cx, at);
            }
        }
    }

    /// An INVALIDATE_ACK has come (rule 4), and maybe asks for a push. Whether a copy is gone with
    /// it that might have been served.
    pub fn acknowledged(&mut self, cx: &mut Context, header: &Header) -> bool {
        let id = (header.tenant, header.key_hash);
        let (epoch, echoed) = (header.epoch, header.version);
        let ask = pushes::ask_in(cx, header);
        let known = cx.directory.find(&id).and_then(|at| {
            let ended = cx.directory.update(at, |e| {
                ask.into_iter().for_each(|ask| e.asks.put(ask));
                let ended = e.state.acknowledged(epoch, echoed);
                (ended, e.state.waits_still())
            });
            Some((at, ended?))
        });
        let has_ended = matches!(known, Some((_, (true, _))));
        self.counters.acks += u64::from(has_ended);
        self.counters.acks_unexpected += u64::from(!has_ended);
        // A thousand holders of a key acknowledge one after the other: whoever is not the last of
        // them changes nothing, and is not to cost a look at all the others.
        if let Some((at, (ended, waits_still))) = known
            && (ended || ask.is_some())
            && !waits_still
        {
            self.drive(cx, at);
        }
        has_ended
    }

    /// A lease is over before its time: writes that wait for its copies go on. They are found among
    /// the timers, for each key that waits has one: leases that are begun and given back again and
    /// again are not to cost a look at every key that there is.
    pub fn lease_is_over(&mut self, cx: &mut Context, whose: SwitchId) {
        let waits = |Reverse((at_ns, at)): &Reverse<(Nanos, Place)>| {
            let entry = cx.directory.get(*at).filter(|entry| entry.timer_ns == *at_ns)?;
            entry.state.copy_of(whose).map(|_| *at)
        };
        let waiting: Vec<Place> = self.timers.iter().filter_map(waits).collect();
        for at in waiting {
            self.drive(cx, at);
        }
    }

    /// A key is going to be lent: its copies are called back, and no write of it is begun with.
    pub fn hold(&mut self, cx: &mut Context, id: KeyId, key: &[u8]) {
        let at = cx.directory.enter(super::context::named(id, key));
        cx.directory.update(at, |e| e.state.hold());
        self.drive(cx, at);
    }

    /// A key is the store's again.
    pub fn release(&mut self, cx: &mut Context, id: KeyId) {
        if let Some(at) = cx.directory.find(&id) {
            cx.directory.update(at, |e| e.state.release());
            self.drive(cx, at);
        }
    }

    /// Takes the writes of a held key that wait, if an owner could carry all of them out.
    ///
    /// # Errors
    /// It could not, and they wait as before.
    pub fn take_movable(
        &mut self,
        cx: &mut Context,
        id: KeyId,
    ) -> Result<VecDeque<Write<PendingWrite>>, Unmovable> {
        let Some(at) = cx.directory.find(&id) else { return Ok(VecDeque::new()) };
        let taken = cx.directory.update(at, |e| {
            let may_move = |body: &Exclusive| body.write().is_some_and(|job| job.may_move);
            let movable = e.state.queued().all(|write| may_move(&write.body));
            movable.then(|| e.state.take_queued()).ok_or(Unmovable)
        });
        let queued = taken.unwrap_or_else(|| Ok(VecDeque::new()))?;
        let write = |Write { epoch, told_stores, body }| match body {
            Exclusive::Write(job) => Some(Write { epoch, told_stores, body: *job }),
            Exclusive::Hold(_) => None,
        };
        let writes: VecDeque<_> = queued.into_iter().filter_map(write).collect();
        cx.ledger.pending.give_back(id.0, writes.len());
        Ok(writes)
    }

    /// The backend has answered a write of a key: tells it, and goes on.
    pub fn changed(&mut self, cx: &mut Context, id: KeyId, change: Change) {
        if let Some(at) = cx.directory.find(&id) {
            self.applied(cx, at, change);
            self.drive(cx, at);
        }
    }

    /// Moves a key on as far as it goes. True if it waits for switches now.
    fn drive(&mut self, cx: &mut Context, at: Place) -> bool {
        loop {
            let mut invalidations = std::mem::take(&mut self.invalidations);
            let mut lapsed = 0;
            let polled = cx.directory.update(at, |entry| {
                lapsed += entry.state.lapsed_waits(&cx.leases, cx.now_ns);
                let settles = entry.state.settle(cx.now_ns);
                let step = entry.state.poll(&mut cx.leases, cx.now_ns, &mut invalidations);
                (entry.id, step, settles)
            });
            self.counters.waits_lapsed += lapsed as u64;
            for Invalidate { switch, granted } in invalidations.drain(..) {
                self.invalidate(cx, at, Epoch::new(switch, granted));
            }
            self.invalidations = invalidations;
            let Some((id, step, settles)) = polled else { return false };
            if settles {
                cx.settle(id);
            }
            if !matches!(step, Step::Wait(_)) {
                cx.outside.closed(&id);
            }
            match step {
                Step::Apply => match apply(cx, at) {
                    Some(Reply::Now(change)) => self.applied(cx, at, change),
                    _ => return false,
                },
                Step::Wait(at_ns) => {
                    self.set_timer(cx, at, at_ns);
                    return true;
                }
                Step::Idle => {
                    self.push_asked(cx, at);
                    return false;
                }
                Step::Applying => return false,
                Step::Held => {
                    cx.leave(Effect::Cleared(id));
                    return false;
                }
            }
        }
    }

    /// Sends an INVALIDATE for a key; `epoch` is (X, granted(X)).
    fn invalidate(&mut self, cx: &mut Context, at: Place, epoch: Epoch) {
        let home = cx.leases.address(epoch.switch());
        let (Some(home), Some(entry)) = (home, cx.directory.get(at)) else { return };
        let (header, secret) = match wire::is_holder(epoch.switch()) {
            true => match cx.holders.invalidation(epoch.switch()) {
                Some(begun) => begun,
                None => return,
            },
            false => {
                let header = Header { tenant: entry.id.0, ..Header::new(Op::Invalidate) };
                (header, cx.system_secret())
            }
        };
        let header = Header { key_hash: entry.id.1, epoch, ..header };
        self.counters.invalidations += 1;
        let packet = wire::Packet::new(header, &entry.key, &[]);
        let _ = cx.out.push(&packet, &secret, home.peer);
    }

    /// The backend has carried a write out, or not: remembers and tells it, with a grant if there
    /// may be one.
    fn applied(&mut self, cx: &mut Context, at: Place, change: Change) {
        // A write that failed may still be on its way inside the backend.
        let doubt_until_ns = match change {
            Change::Failed => cx.now_ns + cx.leases.length_ns(),
            _ => 0,
        };
        let finished = cx.directory.update(at, |e| {
            let origin = &e.state.applying()?.body.write()?.origin;
            let id = (origin.client, origin.request);
            e.asks.told(id).for_each(|store| e.state.told(store));
            if matches!(change, Change::Done(_)) {
                e.asks.applied(id);
            }
            e.state.applied(doubt_until_ns)
        });
        let Some(Some(Write { body: Exclusive::Write(job), .. })) = finished else { return };
        let outcome = WriteOutcome::of(&change, &mut cx.ledger.refusals);
        let is_done = matches!(change, Change::Done(_));
        close(cx, &job, &change, outcome);
        if cx.tenants.get(job.origin.tenant).is_none() {
            return;
        }
        let key = cx.directory.get(at).map(|entry| &entry.key[..]).unwrap_or_default();
        if let Change::Refused(refusal) = &change {
            let answer = refused(&job.origin, key, refusal.words());
            return cx.replies.send(&job.origin, key, &answer, cx.now_ns, &mut cx.out);
        }
        let written = job.origin.op == Op::WriteRequest && is_done;
        let may = job.origin.wants_grant && cx.outside.may_grant_writes();
        let grant = written && may && self.grant_known(cx, at, &job.origin);
        let answer = Answer {
            version: outcome.version,
            expiry_ms: if grant { job.ttl_ms } else { 0 },
            value: if grant { &job.value } else { &[] },
            grant,
            ..Answer::status(outcome.status)
        };
        if let Some(entry) = cx.directory.get(at) {
            cx.replies.send(&job.origin, &entry.key, &answer, cx.now_ns, &mut cx.out);
        }
    }

    /// A key is to be moved on at this time.
    fn set_timer(&mut self, cx: &mut Context, at: Place, at_ns: Nanos) {
        let sooner = cx.directory.update(at, |entry| {
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

    /// Gives up the writes of tenants that are gone: but for what the backend has, and for holds,
    /// whose commands are carried out whoever is there.
    pub fn forget_tenants(&mut self, cx: &mut Context, gone: &BTreeSet<u32>) {
        for at in cx.directory.of_tenants(gone) {
            let given_up = cx.directory.update(at, |entry| {
                entry.asks = Asks::default();
                entry.state.abandon(|body| match body {
                    Exclusive::Hold(_) => true,
                    Exclusive::Write(job) => {
                        // Its room is the tenant's, and given back with the rest.
                        job.room = 0;
                        job.origin.wants_grant = false;
                        false
                    }
                })
            });
            let Some(entry) = cx.directory.get(at) else { continue };
            cx.ledger.pending.give_back(entry.id.0, given_up.unwrap_or(0));
            cx.outside.closed(&entry.id);
            cx.backend.pin(entry.named(), false);
            cx.directory.forget_if_idle(at);
            self.drive(cx, at);
        }
    }

    /// When a key is to be moved on next.
    pub fn next_ns(&self) -> Option<Nanos> {
        self.timers.peek().map(|Reverse((at_ns, _))| *at_ns)
    }

    /// Moves on what is due: invalidations are repeated, waits for leases end.
    pub fn tick(&mut self, cx: &mut Context) {
        while let Some(&Reverse((at_ns, at))) = self.timers.peek()
            && at_ns <= cx.now_ns
        {
            self.timers.pop();
            cx.directory.update(at, |e| {
                if e.timer_ns == at_ns {
                    e.timer_ns = 0;
                }
            });
            self.drive(cx, at);
        }
    }

    /// What has failed in the backend can no longer take place: nobody waits for it any longer.
    pub fn settled(&mut self, cx: &mut Context) {
        for at in cx.directory.in_doubt() {
            cx.directory.update(at, |entry| entry.state.ends_doubt(cx.now_ns));
            self.drive(cx, at);
        }
    }

    /// Looks at some keys for copies under leases that have lapsed.
    pub fn sweep(&mut self, cx: &mut Context) {
        for at in cx.directory.sweep(&cx.leases, cx.now_ns, SWEEP_KEYS) {
            self.drive(cx, at);
        }
    }

    /// A store asked for a grant while its key could not be granted: it is pushed one when no
    /// write waits.
    pub fn grant_later(&mut self, cx: &mut Context, id: KeyId, epoch: Epoch) {
        if let Some(at) = cx.directory.find(&id) {
            put_ask(cx, at, epoch);
        }
    }
}

/// The writes that wait for a key are not all such as an owner could carry out.
#[derive(Debug)]
pub(super) struct Unmovable;

/// Remembers that a store would take a grant.
fn put_ask(cx: &mut Context, at: Place, epoch: Epoch) {
    let ask = Ask { epoch, write: None, since_ns: cx.now_ns };
    cx.directory.update(at, |e| e.asks.put(ask));
}

/// Hands the key's current write to the backend, or tells a hold that the key is its own.
fn apply(cx: &mut Context, at: Place) -> Option<Reply<Change>> {
    let version = match mutant(Mutant::VersionNotRaised) {
        true => cx.versions.newest,
        false => cx.versions.next(),
    };
    let ticket = cx.waiting.ticket();
    cx.changes(cx.directory.get(at)?.id);
    let entry = cx.directory.get(at)?;
    let key = entry.named();
    let job = match &entry.state.applying()?.body {
        Exclusive::Write(job) => job,
        Exclusive::Hold(hold) => {
            let taken = Effect::Taken(*hold);
            cx.leave(taken);
            return Some(Reply::Later);
        }
    };
    let value = (job.origin.op != Op::DeleteRequest).then_some(&job.value);
    let put = Put { value, ttl_ms: job.ttl_ms, condition: job.condition, version };
    let change = cx.backend.put(key, put, cx.now_ns, ticket);
    if change == Reply::Later {
        cx.waiting.insert(ticket, BackendRequest::Write(entry.id));
    }
    Some(change)
}

/// A key at rest: what nobody holds a copy of may be evicted by the backend and forgotten here.
pub(super) fn settle(cx: &mut Context, at: Place) {
    let entry = cx.directory.get(at);
    if let Some(entry) = entry.filter(|entry| entry.state.copies().is_empty()) {
        cx.backend.pin(entry.named(), false);
        cx.directory.forget_if_idle(at);
    }
}

/// A write is over: what it took is given back, and its outcome remembered.
fn close(cx: &mut Context, job: &PendingWrite, change: &Change, outcome: WriteOutcome) {
    cx.ledger.pending.give_back(job.origin.tenant, 1);
    cx.ledger.give_room_back(job);
    let counters = &mut cx.ledger.counters;
    match change {
        Change::Done(_) => counters.writes_applied += 1,
        Change::Mismatch(_) => counters.writes_mismatch += 1,
        Change::Full => counters.refused_memory_full += 1,
        Change::TooLarge | Change::KeyTooLong(_) => cx.counters.refused_too_large += 1,
        Change::Failed => cx.counters.backend_errors += 1,
        Change::Refused(_) => cx.counters.backend_refusals += 1,
        Change::NotFound => {}
    }
    if *change == Change::Full {
        cx.ledger.clients.forget(job.id());
    } else {
        cx.ledger.clients.finish(job.id(), outcome);
    }
}
