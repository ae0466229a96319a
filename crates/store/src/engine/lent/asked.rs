//! Writes that an owner or the store may have to decide: those that name a loan wait until it is over and its keeper has said
//! whether it kept them; those that name the life before it are sent on to it.

use wire::{Epoch, Flags, Header, Op, Packet, Status};

use super::Known;
use crate::{
    backend::Key,
    clients::ClientId,
    coherence::{KeyLife, Nanos, Verdict, Write},
    directory::KeyId,
    engine::{
        Engine,
        keys::{Job, Outcome},
        lease::Home,
        reply::{Answer, Origin},
    },
    net::Outbox,
};

/// Writes that may wait for keepers at once.
pub(super) const PARKED: usize = 4096;
/// A keeper is asked again after this at first; each time after twice the time.
const ASK_NS: Nanos = 5_000_000;
/// A write whose keeper does not answer for so long is forgotten: its client sends it again.
const PATIENCE_NS: Nanos = 500_000_000;

/// A write that names a loan.
pub(super) struct Parked {
    id: KeyId,
    key: Box<[u8]>,
    job: Job,
    epoch: Epoch,
    /// The life that it names.
    life: u16,
    /// Since when its keeper is asked, and when next.
    asking: Option<(Nanos, Nanos)>,
}

/// Whether an owner could absorb a write: a whole value, whatever was there, for ever.
pub(in crate::engine) fn absorbable(header: &Header) -> bool {
    header.op == Op::WriteRequest
        && !header.flags.has(Flags::COMPARE)
        && header.expiry_ms == 0
        && !header.is_part()
}

impl Engine {
    /// A write that names a loan, new to this store's window: it waits. The loan is called back for it.
    pub(in crate::engine) fn park(
        &mut self,
        job: Job,
        key: Key<'_>,
        life: u16,
        epoch: Epoch,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let id = (key.tenant, key.hash);
        let write = (job.origin.client_id(), job.origin.request);
        let is_open = self.loans.open.contains_key(&id);
        let full = !self.loans.parked_shares.has_room(key.tenant)
            || !self.pending_writes.has_room(key.tenant);
        if full || is_open && !self.wanted(id, now_ns, out) {
            self.clients.forget(write.0, write.1);
            self.counters.dropped_lent += 1;
            return;
        }
        self.pending_writes.take(key.tenant, 1);
        self.loans.parked_shares.take(key.tenant, 1);
        let parked = Parked {
            id,
            key: key.bytes.into(),
            job,
            epoch,
            life,
            asking: None,
        };
        self.loans.parked.insert(write, parked);
        if !self.loans.open.contains_key(&id) {
            self.ask_parked(id, now_ns, out);
        }
    }

    /// The loan of a key is over: its keeper is asked about the writes that wait for it.
    pub(super) fn ask_parked(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let waiting = self.loans.parked.iter_mut();
        for (_, parked) in waiting.filter(|(_, parked)| parked.id == id) {
            parked.asking.get_or_insert((now_ns, now_ns));
            self.loans.next_ask_ns = now_ns;
        }
        self.tick_parked(now_ns, out);
    }

    /// Asks what is due, and gives up what nobody tells.
    pub(super) fn tick_parked(&mut self, now_ns: u64, out: &mut Outbox) {
        if self.loans.parked.is_empty() || now_ns < self.loans.next_ask_ns {
            return;
        }
        let (mut due, mut next_ns) = (vec![], Nanos::MAX);
        for (write, parked) in &mut self.loans.parked {
            let Some((since_ns, at_ns)) = &mut parked.asking else {
                continue;
            };
            if *at_ns <= now_ns {
                due.push((*write, now_ns >= *since_ns + PATIENCE_NS));
                *at_ns = now_ns + (now_ns - *since_ns).max(ASK_NS);
            }
            next_ns = next_ns.min(*at_ns);
        }
        self.loans.next_ask_ns = next_ns;
        for (write, given_up) in due {
            self.ask(write, given_up, now_ns, out);
        }
    }

    fn ask(&mut self, write: (ClientId, u64), given_up: bool, now_ns: u64, out: &mut Outbox) {
        let Some(parked) = self.loans.parked.get(&write) else {
            return;
        };
        let known = self.loans.lives.get(&parked.id);
        let asked = known.filter(|known| known.life.ended.life == parked.life);
        match asked {
            Some(known) if known.life.ended.tells && !given_up => {
                let (header, home) = question(parked, known);
                let key = parked.key.clone();
                self.push_padded(header, &key, home, out);
            }
            _ => self.untold(write, now_ns, out),
        }
    }

    /// Nobody can tell whether a write was kept.
    fn untold(&mut self, write: (ClientId, u64), now_ns: u64, out: &mut Outbox) {
        let Some(parked) = self.unpark(write) else {
            return;
        };
        self.counters.writes_untold += 1;
        self.clients.forget(write.0, write.1);
        if let Some(known) = self.loans.lives.get(&parked.id) {
            let KeyLife { life, since_ns, .. } = known.life;
            let origin = &parked.job.origin;
            self.refuse_life(
                origin,
                &parked.key,
                Some(life),
                now_ns - since_ns,
                now_ns,
                out,
            );
        }
    }

    fn unpark(&mut self, write: (ClientId, u64)) -> Option<Parked> {
        let parked = self.loans.parked.remove(&write)?;
        self.pending_writes.give_back(parked.id.0, 1);
        self.loans.parked_shares.give_back(parked.id.0, 1);
        Some(parked)
    }

    /// Tenants are gone, and with them their writes.
    pub(in crate::engine) fn forget_parked(&mut self, gone: &std::collections::BTreeSet<u32>) {
        let pending = &mut self.pending_writes;
        let shares = &mut self.loans.parked_shares;
        self.loans.parked.retain(|_, parked| {
            let stays = !gone.contains(&parked.id.0);
            pending.give_back(parked.id.0, usize::from(!stays));
            shares.give_back(parked.id.0, usize::from(!stays));
            stays
        });
    }

    /// A keeper has said whether it kept a write.
    pub(super) fn told(&mut self, packet: &Packet<'_>, now_ns: u64, out: &mut Outbox) {
        let header = &packet.header;
        let write = ((header.tenant, header.client), header.request);
        let id = (header.tenant, header.key_hash);
        let known = self.loans.lives.get(&id);
        let Some(known) = known.filter(|known| {
            let parked = self.loans.parked.get(&write);
            known.life.ended.life == header.life
                && known.keeper.0 == header.epoch.switch()
                && parked.is_some_and(|p| p.id == id && p.life == header.life && p.asking.is_some())
        }) else {
            self.counters.dropped_loan += 1;
            return;
        };
        let base = known.base;
        let sealed = header.flags.has(Flags::GRANT);
        if header.status != Status::Ok || header.flags.has(Flags::ALL) {
            return self.untold(write, now_ns, out);
        }
        if !sealed {
            return;
        }
        let Some(Parked {
            job, key, epoch, ..
        }) = self.unpark(write)
        else {
            return;
        };
        if header.flags.has(Flags::CACHED) {
            self.counters.writes_kept += 1;
            let outcome = Outcome::done(base);
            self.clients.finish(write.0, write.1, outcome);
            let answer = Answer {
                version: base,
                ..Answer::status(Status::Ok)
            };
            return self.replies.send(&job.origin, &key, &answer, now_ns, out);
        }
        let key = Key {
            tenant: id.0,
            hash: id.1,
            bytes: &key,
        };
        self.submit(job, key, epoch, now_ns, out);
    }

    /// A write that names the life before a loan, while the owner answers: it is the owner's from now on, and never applied here
    /// under that life.
    pub(super) fn move_write(
        &mut self,
        origin: &Origin,
        key: Key<'_>,
        life: u16,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let id = (key.tenant, key.hash);
        let lent = self.loans.open.get(&id);
        if !lent.is_some_and(|lent| lent.loan.is_lent()) {
            // Either the owner has not begun, as far as is known, or it will soon be the store's again.
            self.counters.dropped_lent += 1;
            return;
        }
        match self
            .clients
            .begin(origin.client_id(), origin.request, now_ns)
        {
            Verdict::New => self.moved(origin, key.bytes, life, now_ns, out),
            verdict => self.repeated(origin, key, &[], verdict, now_ns, out),
        }
    }

    fn moved(&mut self, origin: &Origin, key: &[u8], life: u16, now_ns: u64, out: &mut Outbox) {
        self.counters.writes_moved += 1;
        let outcome = Outcome::moved(life);
        self.clients
            .finish(origin.client_id(), origin.request, outcome);
        self.replies
            .send(origin, key, &outcome.answer(), now_ns, out);
    }

    /// The owner has begun: the writes that waited for it are its own from now on. If it could not absorb them all, the key is called
    /// back.
    pub(super) fn move_queued(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let Some(at) = self.directory.find(&id) else {
            return;
        };
        let Some(lent) = self.loans.open.get_mut(&id) else {
            return;
        };
        let life = lent.loan.terms().life;
        let queued = self.directory.get(at).map(|entry| {
            let all = entry.state.queued().all(|write| write.body.may_move());
            (all, entry.state.queued().count())
        });
        match queued {
            Some((true, 1..)) => {}
            Some((false, _)) => return lent.loan.recall(now_ns),
            _ => return,
        }
        let key = lent.key.clone();
        let writes = self.directory.update(at, |e| e.state.take_queued());
        for Write { body: job, .. } in writes.into_iter().flatten() {
            self.pending_writes.give_back(id.0, 1);
            self.moved(&job.origin, &key, life, now_ns, out);
        }
    }
}

fn question(parked: &Parked, known: &Known) -> (Header, Home) {
    let (switch, home) = known.keeper;
    let mut header = Header::new(Op::TakeRequest);
    (header.tenant, header.key_hash) = parked.id;
    header.life = parked.life;
    header.epoch = Epoch::new(switch, 0);
    header.flags = Flags::GRANT;
    header.client = parked.job.origin.client;
    header.request = parked.job.origin.request;
    (header, home)
}
