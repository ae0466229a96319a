//! The books on writes: which ones each client has sent (rule 7), which of them are under way, and
//! those of which parts are missing. It decides nothing about keys.

use std::collections::BTreeMap;

use wire::{Secret, Status};

use super::{
    MAX_WAITING,
    partial_writes::PartialWrites,
    pending_write::{PendingWrite, WriteOutcome},
    refusals::Refusals,
};
use crate::{
    Config,
    clients::Clients,
    coherence::{Nanos, Window, counted_ns},
    counters::WriteCounters,
    handover::ClientRecord,
    shares::Shares,
};

/// All books.
pub(super) struct Ledger {
    /// Which writes each client has sent, and what they were answered.
    pub clients: Clients<WriteOutcome>,
    /// Writes of which parts are missing, and the room that those take which are whole.
    pub joins: PartialWrites,
    /// What the backend said of those that it refused.
    pub refusals: Refusals,
    /// Writes taken and not yet over.
    pub pending: Shares,
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
            refusals: Refusals::default(),
            pending: Shares::new(MAX_WAITING, tenants),
            counters: WriteCounters::default(),
        }
    }

    /// What each client's last writes were answered; none, of one of which a write is pending.
    pub fn client_records(&self) -> impl Iterator<Item = Option<ClientRecord>> {
        self.clients.all().map(|(id, used_ns, window)| {
            let (forgotten, writes) = window.known_writes()?;
            let record = |(request, outcome): (u64, WriteOutcome)| {
                (request, outcome.status as u8, outcome.version)
            };
            let writes = writes.into_iter().map(record).collect();
            Some(ClientRecord { id, used_ns, forgotten, writes })
        })
    }

    /// Remembers what a former life answered.
    pub fn restore(&mut self, clients: Vec<ClientRecord>) {
        for ClientRecord { id, used_ns, forgotten, writes } in clients {
            // A status that nobody knows is one of a write whose outcome is not known.
            let status = |number| Status::from_bits(number).unwrap_or(Status::BackendError);
            let outcome = |(request, number, version)| {
                (request, WriteOutcome { status: status(number), version })
            };
            let window = Window::of(forgotten, writes.into_iter().map(outcome));
            self.clients.restore(id, used_ns, window);
        }
    }

    /// From now on so many tenants share the room.
    pub fn share_among(&mut self, tenants: usize) {
        self.clients.share_among(tenants);
        self.joins.share_among(tenants);
        self.pending.share_among(tenants);
    }

    /// The room of a write whose value came in parts.
    pub fn give_room_back(&mut self, job: &PendingWrite) {
        self.joins.give_back(job.origin.tenant, job.room);
    }

    /// Forgets everything of tenants that are gone, but for their writes under way, which whoever
    /// has them gives back; and for what was decided, while it may be asked for again: the tenant
    /// may be there again by then. The numbers that are gone, with the seeds of their key hashes.
    pub fn forget_tenants(&mut self, gone: &BTreeMap<u32, Secret>, now_ns: Nanos) {
        let unknown = WriteOutcome { status: Status::BackendError, version: 0 };
        for (id, seed) in gone {
            self.clients.tenant_left(*id, *seed, &unknown, now_ns);
        }
        self.joins.forget_tenants(&gone.keys().copied().collect());
    }

    /// Gives up writes whose parts have not come in time, and forgets what nobody asks for again.
    pub fn tick(&mut self, now_ns: Nanos) {
        self.counters.writes_unfinished += self.joins.expire(now_ns);
        self.clients.tick(now_ns);
    }

    /// When [`Ledger::tick`] has something to do next.
    pub fn next_ns(&self) -> Option<Nanos> {
        self.joins.next_ns().into_iter().chain(self.clients.next_ns()).min()
    }
}
