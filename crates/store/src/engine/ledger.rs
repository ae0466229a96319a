//! The books on writes: which ones each client has sent (rule 7), which of them are under way, and
//! those of which parts are missing. It decides nothing about keys.

use std::collections::BTreeSet;

use super::{
    MAX_WAITING,
    partial_writes::PartialWrites,
    pending_write::{PendingWrite, WriteOutcome},
};
use crate::{
    Config,
    clients::{ClientId, Clients, RequestId},
    coherence::{Nanos, Verdict, counted_ns},
    counters::WriteCounters,
    mutants::{Mutant, mutant},
    shares::Shares,
};

/// All books.
pub(super) struct Ledger {
    clients: Clients<WriteOutcome>,
    /// Writes of which parts are missing, and the room that those take which are whole.
    pub joins: PartialWrites,
    /// Writes taken and not yet over.
    pending: Shares,
    pub counters: WriteCounters,
}

impl Ledger {
    /// With room for as much as the configuration says, shared by so many tenants.
    pub fn new(config: &Config, tenants: usize) -> Ledger {
        let kept_ns = counted_ns(config.longest_lease_ns());
        let patience_ns = config.cluster.write_deadline().as_nanos() as Nanos;
        Ledger {
            clients: Clients::new(config.client_limit, tenants, kept_ns),
            joins: PartialWrites::new(config.parts_limit, tenants, patience_ns),
            pending: Shares::new(MAX_WAITING, tenants),
            counters: WriteCounters::default(),
        }
    }

    /// From now on so many tenants share the room.
    pub fn share_among(&mut self, tenants: usize) {
        self.clients.share_among(tenants);
        self.joins.share_among(tenants);
        self.pending.share_among(tenants);
    }

    /// Rule 7: a write that is whole has come. From a verdict of "new" on it counts as under way.
    pub fn begin(&mut self, (client, request): RequestId, now_ns: Nanos) -> Verdict<WriteOutcome> {
        self.clients.begin(known_as(client), request, now_ns)
    }

    /// Rule 7, of a write of which a part has come: nothing, if it is new. Nothing is
    /// remembered either.
    pub fn look(&self, (client, request): RequestId) -> Option<Verdict<WriteOutcome>> {
        self.clients.look(known_as(client), request)
    }

    /// A write that an owner was to decide is decided here after all.
    pub fn reopen(&mut self, (client, request): RequestId) {
        self.clients.reopen(known_as(client), request);
    }

    /// A write was decided: to be answered so again.
    pub fn finish(&mut self, (client, request): RequestId, outcome: WriteOutcome) {
        self.clients.finish(known_as(client), request, outcome);
    }

    /// A write was refused and not carried out: it may come again, and is new then.
    pub fn forget(&mut self, (client, request): RequestId) {
        self.clients.forget(known_as(client), request);
    }

    /// Whether one more write of a tenant may be under way.
    pub fn has_room(&self, tenant: u32) -> bool {
        self.pending.has_room(tenant)
    }

    /// A write of a tenant is under way.
    pub fn take(&mut self, tenant: u32) {
        self.pending.take(tenant, 1);
    }

    /// So many writes of a tenant are no longer under way here.
    pub fn give_back(&mut self, tenant: u32, writes: usize) {
        self.pending.give_back(tenant, writes);
    }

    /// The room of a write whose value came in parts.
    pub fn give_room_back(&mut self, job: &PendingWrite) {
        self.joins.give_back(job.origin.tenant, job.room);
    }

    /// Writes under way, over all tenants.
    #[cfg(test)]
    pub fn pending(&self) -> usize {
        self.pending.all()
    }

    /// Forgets everything of tenants that are gone, but for their writes under way: whoever has
    /// those gives them back.
    pub fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        gone.iter().for_each(|id| self.clients.forget_tenant(*id));
        self.joins.forget_tenants(gone);
    }

    /// Gives up writes whose parts have not come in time.
    pub fn tick(&mut self, now_ns: Nanos) {
        self.counters.writes_unfinished += self.joins.expire(now_ns);
    }
}

/// The client, as rule 7 tells clients apart.
fn known_as((tenant, number): ClientId) -> ClientId {
    let any = mutant(Mutant::ClientOfAnyTenant);
    (if any { wire::TENANT_OPEN } else { tenant }, number)
}
