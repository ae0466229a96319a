//! Values that were read for a grant, kept for the next who wants one: a key that many hold is
//! written, all of them ask for it anew, and the backend answers once.
//!
//! A value is kept only if nothing has happened to its key from when the backend was asked until it
//! answered, and until something does: a write of ours, a hold, what others did as the backend
//! tells it. So it is what the backend would answer on the connection on which it tells of changes,
//! as far as the store has heard, which is what may be granted (docs/coherence.md, "Values that are
//! kept for grants").

use std::collections::BTreeSet;

use bytes::Bytes;
use holder::{
    left_ms,
    mutants::{Mutant, mutant},
};
use wire::maps::HashMap;

use super::recency_table::RecencyTable;
use crate::{
    backend::{Item, Ticket},
    coherence::Nanos,
    directory::KeyId,
};

/// Room for values, in bytes.
const ROOM: usize = 16 << 20;
/// Bytes that a value costs beside its own.
const OVERHEAD: usize = 256;
/// Keys that are noted as being read at most; beyond, those before are read for nobody else.
const READ_MOST: usize = 65_536;

struct Value {
    bytes: Bytes,
    version: u64,
    /// When its life ends; 0: never.
    expires_ns: Nanos,
    /// It is read anew after this, whatever was told; no later than its life ends.
    good_until_ns: Nanos,
}

/// The values, and the keys that are being read.
pub(super) struct GrantedValues {
    values: RecencyTable<Value>,
    /// By key, the first question to the backend since something has happened to it.
    asked: HashMap<KeyId, Ticket>,
}

impl GrantedValues {
    /// Room that `tenants` tenants share.
    pub fn new(tenants: usize) -> GrantedValues {
        GrantedValues { values: RecencyTable::new(ROOM, tenants), asked: HashMap::default() }
    }

    /// From now on so many tenants share the room.
    pub fn share_among(&mut self, tenants: usize) {
        self.values.shares.share_among(tenants);
    }

    /// What a key has, if that is known.
    pub fn get(&mut self, id: KeyId, now_ns: Nanos) -> Option<Item<Bytes>> {
        let value = self.values.get(id)?;
        if now_ns >= value.good_until_ns {
            self.values.remove(id);
            return None;
        }
        let expiry_ms = left_ms(value.expires_ns, now_ns);
        Some(Item { value: value.bytes.clone(), version: value.version, expiry_ms })
    }

    /// The backend is asked for a grant of a key.
    pub fn asks(&mut self, id: KeyId, ticket: Ticket) {
        if self.asked.len() >= READ_MOST {
            self.asked.clear();
        }
        self.asked.entry(id).or_insert(ticket);
    }

    /// The question to the backend, not answered yet, after which nothing has happened to a key.
    pub fn asked(&self, id: KeyId) -> Option<Ticket> {
        self.asked.get(&id).copied()
    }

    /// The backend has answered: whether nothing has happened to the key since it was asked.
    pub fn answered(&mut self, id: KeyId, ticket: Ticket) -> bool {
        let Some(first) = self.asked.get(&id).copied() else { return mutant(Mutant::KeptLate) };
        if ticket >= first {
            self.asked.remove(&id);
        }
        ticket >= first || mutant(Mutant::KeptLate)
    }

    /// Keeps what a key has for `good_ns` at most.
    pub fn keep(&mut self, id: KeyId, item: &Item<Bytes>, now_ns: Nanos, good_ns: Nanos) {
        let cost = item.value.len() + OVERHEAD;
        self.values.remove(id);
        while !self.values.shares.has_room_for(id.0, cost) {
            let oldest = self.values.oldest(self.values.shares.who_gives(id.0));
            if oldest.and_then(|oldest| self.values.remove(oldest)).is_none() {
                return;
            }
        }
        let life_ns = Nanos::from(item.expiry_ms) * 1_000_000;
        let (expires_ns, good_ns) = match life_ns {
            0 => (0, good_ns),
            _ => (now_ns + life_ns, good_ns.min(life_ns)),
        };
        let value = Value {
            bytes: item.value.clone(),
            version: item.version,
            expires_ns,
            good_until_ns: now_ns + good_ns,
        };
        self.values.insert(id, cost, value);
    }

    /// Something has happened to a key, or is about to.
    #[inline]
    pub fn end(&mut self, id: KeyId) {
        if !self.asked.is_empty() {
            self.asked.remove(&id);
        }
        if !mutant(Mutant::KeptOn) {
            self.values.remove(id);
        }
    }

    /// Something may have happened to any key.
    pub fn end_all(&mut self) {
        self.asked.clear();
        self.values.clear();
    }

    /// Forgets everything of these tenants.
    pub fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        self.asked.retain(|id, _| !gone.contains(&id.0));
        self.values.forget_tenants(gone);
    }
}
