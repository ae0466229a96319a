//! What a loan has done here: the journal, its key's copies and value, and what comes back to
//! the backend.

use bytes::Bytes;

use super::{Loans, packets, switch_of};
use crate::{
    backend::{Answer as Reply, Change, Put, ReadOutcome, Ticket},
    coherence::VERSIONS,
    directory::KeyId,
    engine::{
        backend_requests::BackendRequest,
        context::{Context, Effect},
    },
    journal::Entry,
};

impl Loans {
    /// Has the journal remember a loan, or forget it.
    pub(super) fn record(&mut self, cx: &mut Context, id: KeyId, begins: bool) {
        let ticket = cx.waiting.ticket();
        let Loans { open, journal, .. } = self;
        let Some(lent) = open.get_mut(&id) else { return };
        let answer = match journal {
            None => Reply::Now(true),
            Some(journal) if begins => {
                let terms = lent.loan.terms();
                let entry = Entry {
                    tenant: id.0,
                    key_hash: id.1,
                    key: lent.key.to_vec(),
                    life: terms.life,
                    base: terms.base,
                    bound_ms: (terms.bound_ns / 1_000_000) as u32,
                    owner: switch_of(terms.owner, &lent.owner),
                    keeper: switch_of(terms.keeper, &lent.keeper),
                };
                journal.begin(entry, ticket)
            }
            Some(journal) => journal.end(id.0, id.1, ticket),
        };
        match answer {
            Reply::Now(done) => self.recorded(cx, id, done),
            Reply::Later => cx.waiting.insert(ticket, BackendRequest::Loan(id)),
        }
    }

    fn recorded(&mut self, cx: &mut Context, id: KeyId, done: bool) {
        let Some(lent) = self.open.get_mut(&id) else { return };
        self.counters.loans_refused_unsafe += u64::from(!done);
        lent.loan.journaled(done, cx.now_ns);
    }

    /// Holds the key and calls its copies back.
    pub(super) fn clear(&mut self, cx: &mut Context, id: KeyId) {
        let Some(lent) = self.open.get_mut(&id) else { return };
        lent.clears = true;
        cx.leave(Effect::Hold(id, lent.key.clone()));
    }

    /// No copy of a key that is held is left, and no write of it is under way: its value is what
    /// will be lent.
    pub fn cleared(&mut self, cx: &mut Context, id: KeyId) {
        let Some(lent) = self.open.get_mut(&id) else { return };
        if !std::mem::take(&mut lent.clears) {
            return;
        }
        let ticket = cx.waiting.ticket();
        lent.reading = Some(ticket);
        let key = lent.named(id);
        match cx.backend.get(key, cx.now_ns, ticket) {
            Reply::Later => cx.waiting.insert(ticket, BackendRequest::Loan(id)),
            Reply::Now(item) => {
                let item = item.filter(|item| item.expiry_ms == 0);
                let value = item.map(|item| (item.version, Bytes::copy_from_slice(item.value)));
                self.value_to_lend(cx, id, value);
            }
        }
    }

    fn value_to_lend(&mut self, cx: &mut Context, id: KeyId, value: Option<(u64, Bytes)>) {
        if let Some(lent) = self.open.get_mut(&id) {
            lent.reading = None;
            let fits = |value: &Bytes| value.len() <= packets::longest(&lent.key);
            let value = value.filter(|(_, value)| fits(value));
            // A former life's clock may have been ahead.
            let version = value.as_ref().map_or(0, |(version, _)| *version);
            let base = cx.versions.reserve(VERSIONS, version);
            lent.loan.cleared(value, base, cx.now_ns);
            self.poll(cx, id);
        }
    }

    /// The backend has answered a question of a loan; maybe of one that is over.
    pub fn read(&mut self, cx: &mut Context, id: KeyId, ticket: Ticket, found: ReadOutcome) {
        let lent = self.open.get(&id);
        if lent.is_none_or(|lent| lent.reading != Some(ticket)) {
            return;
        }
        let value = match found {
            ReadOutcome::Item(item) if item.expiry_ms == 0 => {
                Some((item.version, item.value.into()))
            }
            _ => None,
        };
        self.value_to_lend(cx, id, value);
    }

    /// Writes what came back to the backend.
    pub(super) fn put_back(&mut self, cx: &mut Context, id: KeyId, version: u64, value: &Bytes) {
        let Some(lent) = self.open.get(&id) else { return };
        self.counters.loan_flushes += 1;
        let ticket = cx.waiting.ticket();
        cx.changes(id);
        let key = lent.named(id);
        match cx.backend.put(key, Put::of(value, version), cx.now_ns, ticket) {
            Reply::Now(change) => self.flushed(cx, id, change),
            Reply::Later => cx.waiting.insert(ticket, BackendRequest::Loan(id)),
        }
    }

    fn flushed(&mut self, cx: &mut Context, id: KeyId, change: Change) {
        let done = matches!(change, Change::Done(_));
        self.counters.loan_flush_errors += u64::from(!done);
        if let Some(lent) = self.open.get_mut(&id) {
            // Also one that was refused is not tried again at once.
            lent.loan.put(done, cx.now_ns + cx.leases.length_ns());
        }
    }

    /// The backend has carried a write of a loan out, or not.
    pub fn put(&mut self, cx: &mut Context, id: KeyId, change: Change) {
        self.flushed(cx, id, change);
        self.poll(cx, id);
    }

    /// The journal has answered later.
    pub fn journaled(&mut self, cx: &mut Context, id: KeyId, done: bool) {
        self.recorded(cx, id, done);
        self.poll(cx, id);
    }
}
