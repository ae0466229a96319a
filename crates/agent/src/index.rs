//! What the switch holds, by key; the memory itself is the truth, this is the way to find things in it.

use std::collections::HashMap;

use dataplane::{Cells, Held, Place, Table};
use decide::ItemKey;

/// An entry of the lookup table as the agent knows it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub slot: u32,
    pub place: Place,
    /// Slot of its store's lease.
    pub lease: u16,
    /// Requests at the last window's end.
    pub requests: u32,
}

#[derive(Default)]
pub(super) struct Index {
    by_key: HashMap<ItemKey, Entry>,
    by_slot: HashMap<u32, ItemKey>,
}

impl Index {
    /// Finds again what an earlier agent left, and marks its cells as used.
    pub fn recover(table: &Table, cells: &mut Cells) -> Index {
        let mut index = Index::default();
        for Held {
            slot,
            tenant,
            key,
            place,
            lease,
            ..
        } in table.scan()
        {
            // A page has one owner: the first that is found.
            if *cells.owner(place.page).get_or_insert(tenant) != tenant {
                table.evict(slot);
                continue;
            }
            cells.set_owner(place.page, Some(tenant));
            cells.mark_used(place);
            let requests = table.requests(slot);
            index.add(
                ItemKey {
                    tenant,
                    key: key.into(),
                },
                Entry {
                    slot,
                    place,
                    lease,
                    requests,
                },
            );
        }
        index
    }

    pub fn add(&mut self, key: ItemKey, entry: Entry) {
        self.by_slot.insert(entry.slot, key.clone());
        self.by_key.insert(key, entry);
    }

    pub fn remove(&mut self, key: &ItemKey) -> Option<Entry> {
        let entry = self.by_key.remove(key)?;
        self.by_slot.remove(&entry.slot);
        Some(entry)
    }

    pub fn get(&self, key: &ItemKey) -> Option<&Entry> {
        self.by_key.get(key)
    }

    pub fn key_in(&self, slot: u32) -> Option<&ItemKey> {
        self.by_slot.get(&slot)
    }

    pub fn keys(&self) -> impl Iterator<Item = &ItemKey> {
        self.by_key.keys()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ItemKey, &Entry)> {
        self.by_key.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&ItemKey, &mut Entry)> {
        self.by_key.iter_mut()
    }
}
