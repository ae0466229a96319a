//! What is lent no more: because a tenant changes, or the store ends; and what the status says
//! of loans.

use std::collections::BTreeSet;

use wire::NodeId;

use super::{LentKey, Loans};
use crate::{
    Config, coherence::Watch, counters::LoanCounters, directory::KeyId, engine::context::Context,
    status::LoansStatus,
};

impl Loans {
    /// Calls back the keys that are not to be lent any more: of tenants that are gone, whoever has
    /// their numbers now, or that have no write-back now, or another bound, and those that are
    /// another store's.
    pub fn recall_unlendable(&mut self, cx: &mut Context, gone: &BTreeSet<u32>) {
        for id in self.open.keys().copied().collect::<Vec<_>>() {
            if gone.contains(&id.0) {
                self.recall(cx, id);
            } else {
                self.recall_if_unlendable(cx, id);
                self.poll(cx, id);
            }
        }
    }

    /// Calls a key back that is not to be lent any more; what follows from that is left to
    /// [`Loans::poll`].
    pub(super) fn recall_if_unlendable(&mut self, cx: &mut Context, id: KeyId) {
        let bound_ns = cx.tenants.write_back_ns(id.0);
        let lends = !self.stopping && !cx.all_held;
        let lendable = bound_ns > 0 && cx.is_home_of(id.0, id.1) && lends;
        if let Some(lent) = self.open.get_mut(&id)
            && !(lendable && lent.loan.terms().bound_ns == bound_ns)
        {
            lent.loan.recall(cx.now_ns);
        }
    }

    /// A switch is going, or has gone: calls everything back that it answers or keeps.
    pub fn leaves(&mut self, cx: &mut Context, switch: NodeId) {
        self.parts_of(switch).into_iter().for_each(|id| self.recall(cx, id));
    }

    /// The keys that a switch answers or keeps.
    pub fn parts_of(&self, switch: NodeId) -> Vec<KeyId> {
        let is_party = |lent: &LentKey| {
            let terms = lent.loan.terms();
            [terms.owner, terms.keeper].contains(&switch)
        };
        let open = self.open.iter().filter(|(_, lent)| is_party(lent));
        open.map(|(id, _)| *id).collect()
    }

    /// Calls everything back that is lent or about to be.
    pub fn recall_all(&mut self, cx: &mut Context) {
        for id in self.open.keys().copied().collect::<Vec<_>>() {
            self.recall(cx, id);
        }
    }

    /// The store is about to end: calls everything back, if what it has outlives it.
    pub fn stop(&mut self, cx: &mut Context) {
        self.stopping = true;
        if !self.needs_journal {
            return;
        }
        self.recall_all(cx);
    }

    /// Whether a key of this tenant is lent, or of one that had its number.
    pub fn has_any_of(&self, tenant: u32) -> bool {
        self.open.keys().any(|id| id.0 == tenant)
    }

    /// Keys that are lent, or may be yet.
    pub fn open(&self) -> usize {
        self.open.values().filter(|lent| !lent.loan.is_withdrawn()).count()
    }

    /// Keys that are lent or about to be, and that a store which ends waits for.
    pub fn awaited(&self) -> usize {
        let wait = self.needs_journal || !self.stopping;
        if wait { self.open.len() } else { 0 }
    }

    /// Whether no key was lent of late, so that nothing need be remembered of loans.
    pub fn is_unused(&self) -> bool {
        self.open.is_empty() && self.parked.is_empty() && self.lives.is_empty()
    }

    /// Why no key is lent, where a tenant has write-back. `watch`: what becomes of others' writes
    /// to the backend.
    pub fn none_because(&self, config: &Config, watch: Watch) -> Option<&'static str> {
        let tenants = &config.cluster.tenants;
        if !tenants.iter().any(|tenant| tenant.write_back_ms > 0) {
            return None;
        }
        if watch != Watch::Unneeded {
            return Some(
                "what others write to the backend would be lost; with --outside-writes ignore nobody may",
            );
        }
        if self.needs_journal && self.journal.is_none() {
            return Some("there is no --state DIR to remember it in when the store is killed");
        }
        None
    }

    /// What the status says of loans.
    pub fn status(&self, config: &Config, watch: Watch) -> LoansStatus {
        let (lent, returning) = self.count();
        let why = self.none_because(config, watch).or_else(|| self.none_came_by_two(config));
        LoansStatus { lent, returning, none_because: why.map(str::to_owned) }
    }

    /// That nothing was lent because of the way that writes take, if it was that alone.
    fn none_came_by_two(&self, config: &Config) -> Option<&'static str> {
        let LoanCounters { loans, loans_refused_path, .. } = self.counters;
        let is_wanted = config.cluster.tenants.iter().any(|tenant| tenant.write_back_ms > 0);
        (is_wanted && loans == 0 && loans_refused_path > 0)
            .then_some("requests pass one switch only; a key is lent to two that lie in a row")
    }
}
