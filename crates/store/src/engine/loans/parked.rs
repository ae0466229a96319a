//! Writes that an owner or the store may have to decide: those that name a loan wait until it is
//! over and its keeper has said whether it kept them; those that name the life before it are sent
//! on to it.

use std::collections::{BTreeSet, VecDeque};

use wire::{Epoch, Flags, Header, Op, Packet, Status};

use super::{KnownLife, Loans, packets::push_padded};
use crate::{
    backend::Key,
    clients::RequestId,
    coherence::{KeyLife, Nanos, Verdict, Write},
    directory::KeyId,
    engine::{
        context::{Context, Effect},
        keys::Unmovable,
        lease_holder::LeaseHolder,
        pending_write::{PendingWrite, WriteOutcome},
        replies::{Answer, Origin},
    },
};

/// Writes that may wait for keepers at once.
pub(super) const PARKED: usize = 4096;
/// A keeper is asked again after this at first; each time after twice the time.
const ASK_NS: Nanos = 5_000_000;
/// A write whose keeper does not answer for so long is forgotten: its client sends it again.
const PATIENCE_NS: Nanos = 500_000_000;

/// A write that names a loan.
pub(super) struct ParkedWrite {
    id: KeyId,
    key: Box<[u8]>,
    job: PendingWrite,
    epoch: Epoch,
    /// The life that it names.
    life: u16,
    /// Since when its keeper is asked, and when next.
    asking: Option<(Nanos, Nanos)>,
}

impl Loans {
    /// A write that names a loan, new to this store's window: it waits. The loan is called back
    /// for it.
    pub(in crate::engine) fn park(
        &mut self,
        cx: &mut Context,
        job: PendingWrite,
        key: Key<'_>,
        life: u16,
        epoch: Epoch,
    ) {
        let id = (key.tenant, key.hash);
        let write = job.id();
        let is_open = self.open.contains_key(&id);
        let full =
            !self.parked_shares.has_room(key.tenant) || !cx.ledger.pending.has_room(key.tenant);
        if full || is_open && !self.wanted(cx, id) {
            cx.ledger.clients.forget(write);
            self.counters.dropped_lent += 1;
            return;
        }
        cx.ledger.pending.take(key.tenant, 1);
        self.parked_shares.take(key.tenant, 1);
        let parked = ParkedWrite { id, key: key.bytes.into(), job, epoch, life, asking: None };
        self.parked.insert(write, parked);
        if !self.open.contains_key(&id) {
            self.ask_parked(cx, id);
        }
    }

    /// The loan of a key is over: its keeper is asked about the writes that wait for it.
    pub(super) fn ask_parked(&mut self, cx: &mut Context, id: KeyId) {
        let waiting = self.parked.iter_mut();
        for (_, parked) in waiting.filter(|(_, parked)| parked.id == id) {
            parked.asking.get_or_insert((cx.now_ns, cx.now_ns));
            self.next_ask_ns = cx.now_ns;
        }
        self.tick_parked(cx);
    }

    /// Asks what is due, and gives up what nobody tells.
    pub(super) fn tick_parked(&mut self, cx: &mut Context) {
        if self.parked.is_empty() || cx.now_ns < self.next_ask_ns {
            return;
        }
        let (mut due, mut next_ns) = (vec![], Nanos::MAX);
        for (write, parked) in &mut self.parked {
            let Some((since_ns, at_ns)) = &mut parked.asking else { continue };
            if *at_ns <= cx.now_ns {
                due.push((*write, cx.now_ns >= *since_ns + PATIENCE_NS));
                *at_ns = cx.now_ns + (cx.now_ns - *since_ns).max(ASK_NS);
            }
            next_ns = next_ns.min(*at_ns);
        }
        self.next_ask_ns = next_ns;
        for (write, given_up) in due {
            self.ask(cx, write, given_up);
        }
    }

    fn ask(&mut self, cx: &mut Context, write: RequestId, given_up: bool) {
        let Some(parked) = self.parked.get(&write) else { return };
        let known = self.lives.get(&parked.id);
        let asked = known.filter(|known| known.life.ended.life == parked.life);
        match asked {
            Some(known) if known.life.ended.tells && !given_up => {
                let (header, home) = question(parked, known);
                let key = parked.key.clone();
                push_padded(cx, header, &key, home);
            }
            _ => self.untold(cx, write),
        }
    }

    /// Nobody can tell whether a write was kept.
    fn untold(&mut self, cx: &mut Context, write: RequestId) {
        let Some(parked) = self.unpark(cx, write) else { return };
        self.counters.writes_untold += 1;
        cx.ledger.clients.forget(write);
        if let Some(known) = self.lives.get(&parked.id) {
            let KeyLife { life, since_ns, .. } = known.life;
            let origin = &parked.job.origin;
            self.refuse_life(cx, origin, &parked.key, Some(life), cx.now_ns - since_ns);
        }
    }

    fn unpark(&mut self, cx: &mut Context, write: RequestId) -> Option<ParkedWrite> {
        let parked = self.parked.remove(&write)?;
        cx.ledger.pending.give_back(parked.id.0, 1);
        self.parked_shares.give_back(parked.id.0, 1);
        Some(parked)
    }

    /// Tenants are gone, and with them their writes.
    pub fn forget_tenants(&mut self, cx: &mut Context, gone: &BTreeSet<u32>) {
        let shares = &mut self.parked_shares;
        self.parked.retain(|_, parked| {
            let stays = !gone.contains(&parked.id.0);
            cx.ledger.pending.give_back(parked.id.0, usize::from(!stays));
            shares.give_back(parked.id.0, usize::from(!stays));
            stays
        });
    }

    /// A keeper has said whether it kept a write.
    pub(super) fn told(&mut self, cx: &mut Context, packet: &Packet<'_>) {
        let header = &packet.header;
        let write = ((header.tenant, header.client), header.request);
        let id = (header.tenant, header.key_hash);
        let known = self.lives.get(&id);
        let Some(known) = known.filter(|known| {
            let parked = self.parked.get(&write);
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
            return self.untold(cx, write);
        }
        if !sealed {
            return;
        }
        let Some(ParkedWrite { job, key, epoch, .. }) = self.unpark(cx, write) else { return };
        if header.flags.has(Flags::CACHED) {
            self.counters.writes_kept += 1;
            cx.ledger.clients.finish(write, WriteOutcome::done(base));
            let answer = Answer { version: base, ..Answer::status(Status::Ok) };
            return cx.reply(&job.origin, &key, &answer);
        }
        cx.leave(Effect::Submit(Box::new((job, key, epoch))));
    }

    /// A write that names the life before a loan, while the owner answers: it is the owner's from
    /// now on, and never applied here under that life. One that is not new is given back with what
    /// is known of it.
    pub(super) fn move_write(
        &mut self,
        cx: &mut Context,
        origin: &Origin,
        key: Key<'_>,
        life: u16,
    ) -> Option<Verdict<WriteOutcome>> {
        let id = (key.tenant, key.hash);
        let lent = self.open.get(&id);
        if !lent.is_some_and(|lent| lent.loan.is_lent()) {
            // Either the owner has not begun, as far as is known, or it will soon be the
            // store's again.
            self.counters.dropped_lent += 1;
            return None;
        }
        match cx.ledger.clients.begin(origin.request_id(), cx.now_ns) {
            Verdict::New => self.moved(cx, origin, key.bytes, life),
            verdict => return Some(verdict),
        }
        None
    }

    fn moved(&mut self, cx: &mut Context, origin: &Origin, key: &[u8], life: u16) {
        self.counters.writes_moved += 1;
        let outcome = WriteOutcome::moved(life);
        cx.ledger.clients.finish(origin.request_id(), outcome);
        cx.reply(origin, key, &outcome.answer());
    }

    /// The owner has begun: the writes that waited for it are its own from now on. If it could not
    /// absorb them all, the key is called back.
    pub fn begun(
        &mut self,
        cx: &mut Context,
        id: KeyId,
        queued: Result<VecDeque<Write<PendingWrite>>, Unmovable>,
    ) {
        let Some(lent) = self.open.get(&id) else { return };
        let (life, key) = (lent.loan.terms().life, lent.key.clone());
        match queued {
            Err(Unmovable) => self.recall(cx, id),
            Ok(writes) => {
                for Write { body: job, .. } in writes {
                    self.moved(cx, &job.origin, &key, life);
                }
            }
        }
    }
}

fn question(parked: &ParkedWrite, known: &KnownLife) -> (Header, LeaseHolder) {
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
