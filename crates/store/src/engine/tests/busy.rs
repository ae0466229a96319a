//! Data whose server has little time.

use wire::KeyHash;

use super::Engine;
use crate::backend::{
    Answer, Backend, Change, Condition, Item, Key, Put, Ticket, Watch, embedded::EmbeddedBackend,
};

/// A server that takes requests of all partitions one after the other.
struct Busy {
    data: Box<dyn Backend>,
    /// Nanoseconds that each takes.
    cost_ns: u64,
    /// Requests that may wait.
    queue: u64,
    free_ns: u64,
}

/// From now on the engine's server has time for so many requests per second, and `queue` may wait.
pub fn make_busy(engine: &mut Engine, per_s: u64, queue: u64) {
    let data = std::mem::replace(&mut engine.facts.backend, Box::new(EmbeddedBackend::new(0)));
    engine.facts.backend =
        Box::new(Busy { data, cost_ns: 1_000_000_000 / per_s, queue, free_ns: 0 });
}

impl Backend for Busy {
    fn admit(&mut self, _: usize, now_ns: u64) -> Option<u64> {
        if self.free_ns.saturating_sub(now_ns) > self.cost_ns * self.queue {
            return None;
        }
        self.free_ns = self.free_ns.max(now_ns) + self.cost_ns;
        Some(self.free_ns)
    }

    fn get(&mut self, key: Key<'_>, now_ns: u64, ticket: Ticket) -> Answer<Option<Item<&[u8]>>> {
        self.data.get(key, now_ns, ticket)
    }

    fn get_for_grant(
        &mut self,
        key: Key<'_>,
        now_ns: u64,
        ticket: Ticket,
    ) -> Answer<Option<Item<&[u8]>>> {
        self.data.get_for_grant(key, now_ns, ticket)
    }

    fn raise(&mut self, tenant: u32, hash: KeyHash, from: u64, to: u64) -> bool {
        self.data.raise(tenant, hash, from, to)
    }

    fn settle(&mut self, tenant: u32, hash: KeyHash, version: u64) {
        self.data.settle(tenant, hash, version);
    }

    fn watch(&self) -> Watch {
        self.data.watch()
    }

    fn put(&mut self, key: Key<'_>, put: Put<'_>, now_ns: u64, ticket: Ticket) -> Answer<Change> {
        self.data.put(key, put, now_ns, ticket)
    }

    fn delete(
        &mut self,
        key: Key<'_>,
        condition: Condition,
        version: u64,
        now_ns: u64,
        ticket: Ticket,
    ) -> Answer<Change> {
        self.data.delete(key, condition, version, now_ns, ticket)
    }

    fn pin(&mut self, key: Key<'_>, pinned: bool) {
        self.data.pin(key, pinned);
    }
}
