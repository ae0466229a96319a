//! A table of bounded size that tenants share and that knows what was used last.

use std::collections::{BTreeMap, BTreeSet};

use wire::maps::HashMap;

use crate::{directory::KeyId, shares::Shares};

/// The table.
pub(super) struct RecencyTable<V> {
    entries: HashMap<KeyId, Entry<V>>,
    /// Of each tenant, by when they were used last.
    order: BTreeMap<u32, BTreeMap<u64, KeyId>>,
    /// What each tenant has of the room.
    pub shares: Shares,
    uses: u64,
}

struct Entry<V> {
    value: V,
    cost: usize,
    used: u64,
}

impl<V> RecencyTable<V> {
    /// Room for `limit` of what entries cost, shared by `tenants` tenants.
    pub fn new(limit: usize, tenants: usize) -> RecencyTable<V> {
        RecencyTable {
            entries: HashMap::default(),
            order: BTreeMap::new(),
            shares: Shares::new(limit, tenants),
            uses: 0,
        }
    }

    /// What is there of a key, which is used thereby.
    pub fn get(&mut self, id: KeyId) -> Option<&mut V> {
        let entry = self.entries.get_mut(&id)?;
        let order = self.order.entry(id.0).or_default();
        self.uses += 1;
        order.remove(&entry.used);
        order.insert(self.uses, id);
        entry.used = self.uses;
        Some(&mut entry.value)
    }

    /// What is there of a key, which is not used thereby.
    pub fn peek(&mut self, id: KeyId) -> Option<&mut V> {
        self.entries.get_mut(&id).map(|entry| &mut entry.value)
    }

    /// The caller has made room.
    pub fn insert(&mut self, id: KeyId, cost: usize, value: V) {
        self.remove(id);
        self.uses += 1;
        let used = self.uses;
        self.entries.insert(id, Entry { value, cost, used });
        self.order.entry(id.0).or_default().insert(used, id);
        self.shares.take(id.0, cost);
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes what is there of a key, and gives its room back.
    #[inline]
    pub fn remove(&mut self, id: KeyId) -> Option<V> {
        // As it is for most of who asks, each time that a key is written.
        if self.entries.is_empty() {
            return None;
        }
        let Entry { value, cost, used } = self.entries.remove(&id)?;
        self.shares.give_back(id.0, cost);
        if let Some(order) = self.order.get_mut(&id.0) {
            order.remove(&used);
            if order.is_empty() {
                self.order.remove(&id.0);
            }
        }
        Some(value)
    }

    /// What a tenant has used least recently.
    pub fn oldest(&self, tenant: u32) -> Option<KeyId> {
        Some(*self.order.get(&tenant)?.first_key_value()?.1)
    }

    /// Forgets everything of these tenants.
    pub fn forget_tenants(&mut self, gone: &BTreeSet<u32>) {
        for tenant in gone {
            while let Some(id) = self.oldest(*tenant) {
                self.remove(id);
            }
        }
    }

    /// Those that have something here.
    pub fn tenants(&self) -> Vec<u32> {
        self.order.keys().copied().collect()
    }

    /// Nothing is there any more.
    pub fn clear(&mut self) {
        for tenant in self.tenants() {
            self.shares.forget(tenant);
        }
        self.entries.clear();
        self.order.clear();
    }
}
