//! What is due for a copy: questions to its home, confirmations, timers.

use std::cmp::Reverse;

use wire::{Epoch, Flags, Header, NodeId, Op, Packet, TENANT_OPEN, mixed};

use super::{ASK_MOST_NS, CONFIRM_MOST_NS, ForeignCopies, Lender, PATIENCE_NS, Step, peer_of};
use crate::{
    coherence::Nanos,
    directory::KeyId,
    engine::{context::Context, replies::IPV6_MORE},
};

impl ForeignCopies {
    /// Does what is due for copies.
    pub fn tick(&mut self, cx: &mut Context) {
        if self.next_ns().is_none_or(|due_ns| cx.now_ns < due_ns) {
            return;
        }
        self.borrow_leases(cx);
        self.tell_homes(cx);
        while let Some(&Reverse((at_ns, id))) = self.timers.peek()
            && at_ns <= cx.now_ns
        {
            self.timers.pop();
            if let Some(held) = self.held.get_mut(&id)
                && held.timer_ns == at_ns
            {
                held.timer_ns = 0;
                self.drive(cx, id);
            }
        }
        self.forget_passed(cx);
    }

    /// Moves a key on as far as it goes.
    pub(super) fn drive(&mut self, cx: &mut Context, id: KeyId) {
        match self.step(&id, cx.now_ns) {
            Step::Serve => {
                self.answer_waiting(cx, id);
                self.confirm(cx, id);
            }
            Step::Ask(pulls) => {
                self.ask_home(cx, id, pulls);
                if let Some(at_ns) = self.held.get(&id).map(|held| held.next_ask_ns) {
                    self.set_timer(id, at_ns);
                }
            }
            Step::Wait(at_ns) => self.set_timer(id, at_ns),
            Step::Rest => {}
            Step::Forget => self.forget(&id),
        }
    }

    /// Asks a key's home what it holds, for a grant if it is to be held here.
    pub(super) fn ask_home(&mut self, cx: &mut Context, id: KeyId, pulls: bool) {
        let ForeignCopies { me: Some(me), client, newest, epochs, lenders, held, reads, .. } = self
        else {
            return;
        };
        let Some(held) = held.get_mut(&id) else { return };
        let Some(Lender { lease, .. }) = lenders.get(&held.home) else { return };
        let before = held.reads.len();
        held.reads.retain(|_, read| cx.now_ns < read.since_ns + PATIENCE_NS);
        let lost = before - held.reads.len();
        reads.give_back(id.0, lost);
        self.counters.replica_reads_lost += lost as u64;
        // Stores that found a home busy together do not come together again.
        let drawn_ns = mixed(*client ^ *newest) % held.backoff_ns;
        held.next_ask_ns = cx.now_ns + held.backoff_ns / 2 + drawn_ns;
        held.backoff_ns = (2 * held.backoff_ns).min(ASK_MOST_NS);
        let joins = held.joining.is_some();
        if joins && held.reads.is_empty() {
            return self.ask_parts(cx, id);
        }
        let mut header = Header::new(Op::FetchRequest);
        let rooms = held.reads.values().map(|read| read.origin.room);
        let mut room = rooms.max().unwrap_or(0);
        // A home that has lent the key away answers no question for a copy, and calls the key back
        // for one of a reader.
        let is_for_reads = !held.reads.is_empty() && held.asked != 0;
        if pulls && !joins && !is_for_reads {
            room = wire::MAX_PAYLOAD;
            let replica = &mut held.replica;
            if replica.is_valid() || !lease.is_above_floor(replica.epoch()) {
                replica.raise(epochs.take(id.0, cx.now_ns), cx.now_ns);
            }
            header.epoch = Epoch::new(*me, replica.epoch());
            header.flags = Flags::GRANT;
        }
        *newest += 1;
        held.asked = *newest;
        header.request = held.asked;
        self.counters.replica_asks += 1;
        self.fetch(cx, id, header, room);
        if joins {
            self.ask_parts(cx, id);
        }
    }

    /// Sends a FetchRequest about a key to its home, with room for so long an answer.
    pub(super) fn fetch(&mut self, cx: &mut Context, id: KeyId, header: Header, room: usize) {
        let Some(held) = self.held.get(&id) else { return };
        let (home, key) = (held.home, held.key.clone());
        self.fetch_of(cx, id, home, &key, header, room);
    }

    /// The same of a key that need not be held. Of the open tenant a question is as long as its
    /// answer may be: a packet at most, and no longer than what it passes on, or whoever reads a
    /// little would have much sent between stores.
    pub(super) fn fetch_of(
        &mut self,
        cx: &mut Context,
        id: KeyId,
        home: NodeId,
        key: &[u8],
        mut header: Header,
        room: usize,
    ) {
        let Some(peer) = peer_of(cx, home) else { return };
        header.client = self.client;
        (header.tenant, header.key_hash) = id;
        let system = cx.system_secret();
        let pushed = cx.out.push(&Packet::new(header, key, &[]), &system, peer);
        if pushed.is_ok()
            && id.0 == TENANT_OPEN
            && let Some((mut bytes, peer)) = cx.out.pop()
        {
            let over_ipv6 = peer.address.ip().to_canonical().is_ipv6();
            let most = wire::MAX_PAYLOAD - if over_ipv6 { IPV6_MORE } else { 0 };
            bytes.resize(room.min(most).max(bytes.len()), 0);
            cx.out.push_bytes(&bytes, peer);
        }
    }

    /// Tells switches on the way to its home, and nobody else, something of a key.
    pub(super) fn say_of(
        &mut self,
        cx: &mut Context,
        id: KeyId,
        op: Op,
        epoch: Epoch,
        version: u64,
    ) {
        let Some(held) = self.held.get(&id) else { return };
        let Some(peer) = peer_of(cx, held.home) else { return };
        let header = Header { tenant: id.0, key_hash: id.1, epoch, version, ..Header::new(op) };
        cx.send(header, &held.key, &[], peer);
    }

    /// Confirms a copy that is valid, if that is due.
    pub(super) fn confirm(&mut self, cx: &mut Context, id: KeyId) {
        let Some(me) = self.me else { return };
        let Some(held) = self.held.get_mut(&id) else { return };
        let is_due = cx.now_ns >= held.confirm_ns;
        if is_due {
            held.confirm_ns = cx.now_ns + held.confirm_backoff_ns;
            held.confirm_backoff_ns = (2 * held.confirm_backoff_ns).min(CONFIRM_MOST_NS);
        }
        let epoch = Epoch::new(me, held.replica.epoch());
        let version = held.replica.version().unwrap_or(0);
        let ends_ns = held.replica.expires_ns().unwrap_or(Nanos::MAX);
        let next_ns = held.confirm_ns.min(ends_ns);
        if is_due {
            self.counters.replica_confirms += 1;
            self.say_of(cx, id, Op::ReplicaConfirm, epoch, version);
        }
        self.set_timer(id, next_ns);
    }

    /// Reads that wait for homes.
    #[cfg(test)]
    pub fn waiting_reads(&self) -> usize {
        self.reads.all()
    }

    /// The epoch of a key's copy.
    #[cfg(test)]
    pub fn epoch_of(&self, id: KeyId) -> Option<Epoch> {
        let epoch = self.held.get(&id)?.replica.epoch();
        Some(Epoch::new(self.me?, epoch))
    }
}
