//! What a loan has done here: the journal, its key's copies and value, and what comes back to the backend.

use bytes::Bytes;

use super::{Loans, packets, switch_of};
use crate::{
    backend::{Answer as Reply, Change, Condition, Found, Put, Ticket},
    coherence::VERSIONS,
    directory::KeyId,
    engine::{Engine, waiting::Asked},
    journal::Entry,
    net::Outbox,
};

impl Engine {
    /// Has the journal remember a loan, or forget it.
    pub(super) fn record(&mut self, id: KeyId, begins: bool, now_ns: u64) {
        self.ticket += 1;
        let ticket = self.ticket;
        let Loans { open, journal, .. } = &mut self.loans;
        let Some(lent) = open.get_mut(&id) else {
            return;
        };
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
            Reply::Now(done) => self.journaled(id, done, now_ns),
            Reply::Later => self.waiting.insert(ticket, Asked::Loan(id)),
        }
    }

    /// The journal has answered.
    pub(super) fn journaled(&mut self, id: KeyId, done: bool, now_ns: u64) {
        let Some(lent) = self.loans.open.get_mut(&id) else {
            return;
        };
        self.counters.loans_refused_unsafe += u64::from(!done);
        lent.loan.recorded(done, now_ns);
        lent.loan.erased(done, now_ns);
    }

    /// Holds the key and calls its copies back.
    pub(super) fn clear(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let Some(lent) = self.loans.open.get_mut(&id) else {
            return;
        };
        lent.clears = true;
        let key = lent.named(id);
        let at = self.directory.enter(key);
        self.directory.update(at, |e| e.state.hold());
        self.drive(at, now_ns, out);
    }

    /// No copy of a key that is held is left, and no write of it is under way: its value is what will be lent.
    pub(in crate::engine) fn cleared(&mut self, id: KeyId, now_ns: u64, out: &mut Outbox) {
        let Some(lent) = self.loans.open.get_mut(&id) else {
            return;
        };
        if !std::mem::take(&mut lent.clears) {
            return;
        }
        self.ticket += 1;
        lent.reading = Some(self.ticket);
        let key = lent.named(id);
        match self.backend.get(key, now_ns, self.ticket) {
            Reply::Later => self.waiting.insert(self.ticket, Asked::Loan(id)),
            Reply::Now(item) => {
                let item = item.filter(|item| item.expiry_ms == 0);
                let value = item.map(|item| (item.version, Bytes::copy_from_slice(item.value)));
                self.value_to_lend(id, value, now_ns, out);
            }
        }
    }

    pub(super) fn value_to_lend(
        &mut self,
        id: KeyId,
        value: Option<(u64, Bytes)>,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        if let Some(lent) = self.loans.open.get_mut(&id) {
            lent.reading = None;
            let fits = |value: &Bytes| value.len() <= packets::longest(&lent.key);
            let value = value.filter(|(_, value)| fits(value));
            // A former life's clock may have been ahead.
            let version = value.as_ref().map_or(0, |(version, _)| *version);
            let base = self.version.max(version) + 1;
            self.version = base + VERSIONS - 1;
            lent.loan.cleared(value, base, now_ns);
            self.loan_poll(id, now_ns, out);
        }
    }

    /// The backend has answered a question of a loan; maybe of one that is over.
    pub(in crate::engine) fn loan_read(
        &mut self,
        id: KeyId,
        ticket: Ticket,
        found: Found,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        let lent = self.loans.open.get(&id);
        if lent.is_none_or(|lent| lent.reading != Some(ticket)) {
            return;
        }
        let value = match found {
            Found::Item(item) if item.expiry_ms == 0 => Some((item.version, item.value.into())),
            _ => None,
        };
        self.value_to_lend(id, value, now_ns, out);
    }

    /// Writes what came back to the backend.
    pub(super) fn put_back(&mut self, id: KeyId, version: u64, value: &Bytes, now_ns: u64) {
        let Some(lent) = self.loans.open.get(&id) else {
            return;
        };
        self.counters.loan_flushes += 1;
        self.ticket += 1;
        self.held.end(id);
        let key = lent.named(id);
        let put = Put {
            value,
            ttl_ms: 0,
            condition: Condition::Always,
            version,
        };
        match self.backend.put(key, put, now_ns, self.ticket) {
            Reply::Now(change) => self.flushed(id, change, now_ns),
            Reply::Later => self.waiting.insert(self.ticket, Asked::Loan(id)),
        }
    }

    pub(super) fn flushed(&mut self, id: KeyId, change: Change, now_ns: u64) {
        let done = matches!(change, Change::Done(_));
        self.counters.loan_flush_errors += u64::from(!done);
        if let Some(lent) = self.loans.open.get_mut(&id) {
            // Also one that was refused is not tried again at once.
            lent.loan.put(done, now_ns + self.leases.length_ns());
        }
    }

    /// The backend has carried a write of a loan out, or not.
    pub(in crate::engine) fn loan_put(
        &mut self,
        id: KeyId,
        change: Change,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        self.flushed(id, change, now_ns);
        self.loan_poll(id, now_ns, out);
    }

    /// The journal has answered later.
    pub(in crate::engine) fn loan_journaled(
        &mut self,
        id: KeyId,
        done: bool,
        now_ns: u64,
        out: &mut Outbox,
    ) {
        self.journaled(id, done, now_ns);
        self.loan_poll(id, now_ns, out);
    }
}
