//! What is lent no more: because a tenant changes, or the store ends; and what the status says of loans.

use wire::KeyHash;

use crate::{coherence::Watch, directory::KeyId, engine::Engine, net::Outbox};

impl Engine {
    /// Calls back the keys that are not to be lent any more: of tenants that are gone or have no write-back now, or another bound, and
    /// those that are another store's.
    pub(in crate::engine) fn recall_unlendable(&mut self, now_ns: u64, out: &mut Outbox) {
        for id in self.loans.open.keys().copied().collect::<Vec<_>>() {
            self.recall_if_unlendable(id, now_ns);
            self.loan_poll(id, now_ns, out);
        }
    }

    pub(super) fn recall_if_unlendable(&mut self, id: KeyId, now_ns: u64) {
        let bound_ns = self.write_back_ns(id.0);
        let lendable = self.is_lendable(id.0, id.1) && !self.loans.stopping;
        if let Some(lent) = self.loans.open.get_mut(&id)
            && !(lendable && lent.loan.terms().bound_ns == bound_ns)
        {
            lent.loan.recall(now_ns);
        }
    }

    pub(super) fn is_lendable(&self, tenant: u32, hash: KeyHash) -> bool {
        let at = self.partitions.at(hash);
        let owns = self.partitions.owns(at);
        let known = self.tenants.get(tenant);
        known.is_some_and(|known| known.write_back_ms > 0 && known.holds(at, owns))
    }

    /// The store is about to end: calls everything back, if what it has outlives it.
    pub fn stop_lending(&mut self, now_ns: u64, out: &mut Outbox) {
        self.loans.stopping = true;
        if !self.loans.needs_journal {
            return;
        }
        let ids: Vec<KeyId> = self.loans.open.keys().copied().collect();
        for id in ids {
            self.recall_loan(id, now_ns, out);
        }
    }

    /// Keys that are lent or about to be, and that a store which ends waits for.
    pub fn loans(&self) -> usize {
        let wait = self.loans.needs_journal || !self.loans.stopping;
        if wait { self.loans.open.len() } else { 0 }
    }

    /// How long it takes at most until all are back, whatever has become of the switches, if the backend answers.
    pub fn returns_within(&self) -> std::time::Duration {
        let leases_ns = 2 * self.leases.length_ns();
        std::time::Duration::from_nanos(leases_ns) + std::time::Duration::from_secs(1)
    }

    /// Why no key is lent, where a tenant has write-back.
    pub fn lends_nothing(&self) -> Option<&'static str> {
        let tenants = &self.config.cluster.tenants;
        if !tenants.iter().any(|tenant| tenant.write_back_ms > 0) {
            return None;
        }
        if self.backend.watch() != Watch::Unneeded {
            return Some(
                "what others write to the backend would be lost; with --outside-writes ignore nobody may",
            );
        }
        if self.loans.needs_journal && self.loans.journal.is_none() {
            return Some("there is no --state DIR to remember it in when the store is killed");
        }
        None
    }

    /// What the status says of loans.
    pub(in crate::engine) fn loans_status(&self) -> crate::status::LoansStatus {
        let (lent, returning) = self.loans.count();
        crate::status::LoansStatus {
            lent,
            returning,
            none_because: self.lends_nothing().map(str::to_owned),
        }
    }
}
