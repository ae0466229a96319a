//! What the switch holds, by key; the memory itself is the truth, this is the way to find things
//! in it.

use dataplane::{Cells, HeldItem, NO_LEASE, Place, Table};
use decide::ItemKey;
use wire::maps::HashMap;

use super::trial::Trial;

/// An entry of the lookup table as the agent knows it.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub slot: u32,
    pub place: Place,
    /// Slot of its store's lease, or `NO_LEASE`.
    pub lease: u16,
    /// Requests at the last window's end.
    pub requests: u32,
    /// On probation: made by a program, and not confirmed.
    pub trial: Option<Trial>,
}

impl Entry {
    /// Whether its record was given, and is no store's.
    pub fn is_given(&self) -> bool {
        self.lease == NO_LEASE
    }
}

#[derive(Default)]
pub(super) struct Index {
    by_key: HashMap<ItemKey, Entry>,
    by_slot: HashMap<u32, ItemKey>,
}

impl Index {
    /// Finds again what an earlier agent left, and marks its cells as used. What is evicted goes to
    /// `resting`: programs may be looking at it.
    ///
    /// While no agent looked, programs made items under whatever hash a packet claimed, so a key
    /// may have several. One of them stays: the one with a value, for stores grant under the key's
    /// own hash only. If its hash is a false one, it goes with the next setup ([`Memory::fit`]).
    ///
    /// [`Memory::fit`]: super::Memory::fit
    pub fn recover(table: &Table, cells: &mut Cells, resting: &mut Vec<Place>) -> Index {
        let mut index = Index::default();
        let mut found = table.scan();
        // A page has one owner: the first that is found, those first whose items must stay.
        found.sort_by_key(|held| (held.lease != NO_LEASE, !held.valid));
        for held in found {
            let HeldItem { slot, tenant, key, place, lease, .. } = held;
            let owner = *cells.owner(place.page).get_or_insert(tenant);
            cells.set_owner(place.page, Some(owner));
            cells.mark_used(place);
            let key = ItemKey { tenant, key: key.into() };
            let is_another = index.get(&key).is_some();
            if is_another || (owner != tenant && lease != NO_LEASE) {
                table.evict(slot, place);
                resting.push(place);
                continue;
            }
            let entry = Entry {
                slot,
                place,
                lease,
                requests: table.requests(place),
                // Whatever it was to the earlier agent: the controller hears of it as of
                // the others.
                trial: None,
            };
            index.add(key, entry);
        }
        index
    }

    /// Adds an item of a key that has none.
    pub fn add(&mut self, key: ItemKey, entry: Entry) {
        self.by_slot.insert(entry.slot, key.clone());
        let before = self.by_key.insert(key, entry);
        debug_assert!(before.is_none(), "an item that nobody could remove: {before:?}");
    }

    pub fn remove(&mut self, key: &ItemKey) -> Option<Entry> {
        let entry = self.by_key.remove(key)?;
        self.by_slot.remove(&entry.slot);
        Some(entry)
    }

    pub fn get(&self, key: &ItemKey) -> Option<&Entry> {
        self.by_key.get(key)
    }

    pub fn get_mut(&mut self, key: &ItemKey) -> Option<&mut Entry> {
        self.by_key.get_mut(key)
    }

    pub fn in_slot(&self, slot: u32) -> Option<(&ItemKey, &Entry)> {
        let key = self.by_slot.get(&slot)?;
        Some((key, self.get(key)?))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ItemKey, &Entry)> {
        self.by_key.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&ItemKey, &mut Entry)> {
        self.by_key.iter_mut()
    }
}
