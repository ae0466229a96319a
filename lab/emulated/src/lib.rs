//! Servers that are not there, for experiments: a store's backend that has keys from the start
//! ([`Populate`]) and answers at the pace of a server of a given speed ([`Pace`]), so that one
//! process stands for a rack of them.
//!
//! In: any [`Backend`], whose answers stay as they are. `shortstop-lab store` and the simulator
//! call this; the store knows nothing of it but [`Backend::admit`].

#![deny(unsafe_code)]

mod pace;
mod populate;

use store::backend::{Answer, Backend, Change, Condition, Item, Key, Put, Ticket, Watch};
use wire::KeyHash;

pub use pace::{Pace, Rate, RateChange};
pub use populate::Populate;

/// A backend at the pace of a server.
pub struct EmulatedBackend {
    data: Box<dyn Backend>,
    pace: Pace,
}

impl EmulatedBackend {
    /// This data, at this pace.
    pub fn new(data: Box<dyn Backend>, pace: Pace) -> EmulatedBackend {
        EmulatedBackend { data, pace }
    }
}

impl Backend for EmulatedBackend {
    fn admit(&mut self, partition: usize, now_ns: u64) -> Option<u64> {
        self.pace.admit(partition, now_ns)
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

    fn longest(&mut self, bytes: usize) {
        self.data.longest(bytes);
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

    fn items(&self) -> Option<u64> {
        self.data.items()
    }

    fn memory_bytes(&self) -> Option<u64> {
        self.data.memory_bytes()
    }

    fn evicted(&self) -> u64 {
        self.data.evicted()
    }
}
