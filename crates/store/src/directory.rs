//! Every key that has state: copies at switches, writes that wait. Bounded, and shared by the
//! tenants: one that wants more than there is for it calls its own copies back.
//!
//! A key is looked up once, when a packet names it; what follows goes by its [`Place`].

use std::collections::{BTreeSet, VecDeque};

use slab::Slab;
use wire::{KeyHash, maps::HashMap};

use crate::{
    backend::Key,
    coherence::{Asks, Copy, KeyState, Leases, Nanos},
    shares::Shares,
};

/// A key by its tenant and hash.
pub(crate) type KeyId = (u32, KeyHash);

/// Where a key's entry is; of no use once the entry has been forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    index: usize,
    /// Distinguishes the entry from earlier and later ones at the same index.
    serial: u64,
}

/// One key's state, with what is needed to talk about it.
pub(crate) struct Entry<W> {
    /// Whose key it is, and its hash.
    pub id: KeyId,
    /// The key's bytes.
    pub key: Box<[u8]>,
    /// What the rules remember.
    pub state: KeyState<W>,
    /// What stores that hold copies have asked for.
    pub asks: Asks,
    /// When it is to be polled next; 0: not at all.
    pub timer_ns: Nanos,
    serial: u64,
}

impl<W> Entry<W> {
    /// The key as the backend knows it.
    pub fn named(&self) -> Key<'_> {
        Key { tenant: self.id.0, hash: self.id.1, bytes: &self.key }
    }
}

#[cfg(test)]
thread_local! {
    /// How often every entry was looked at on this thread.
    pub(crate) static WALKS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// How often it was asked on this thread who holds a key.
    pub(crate) static ASKED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// The directory of rule 3, over all keys.
pub(crate) struct Directory<W> {
    places: HashMap<KeyId, Place>,
    entries: Slab<Entry<W>>,
    by_tenant: HashMap<u32, TenantEntries>,
    copies: Shares,
    /// Keys of which a write goes on, or may still take place.
    unsettled: usize,
    /// Where the next sweep goes on.
    swept: usize,
    serial: u64,
}

/// A tenant's entries.
#[derive(Default)]
struct TenantEntries {
    entries: usize,
    /// In the order in which they came; stale ones are skipped.
    order: VecDeque<Place>,
}

impl<W> Directory<W> {
    /// Of at most `limit` copies, shared by `tenants` tenants.
    pub fn new(limit: usize, tenants: usize) -> Directory<W> {
        Directory {
            places: HashMap::default(),
            entries: Slab::new(),
            by_tenant: HashMap::default(),
            copies: Shares::new(limit, tenants),
            unsettled: 0,
            swept: 0,
            serial: 0,
        }
    }

    /// From now on so many tenants share it.
    pub fn share_among(&mut self, tenants: usize) {
        self.copies.share_among(tenants);
    }

    /// Copies over all keys.
    pub fn copies(&self) -> usize {
        self.copies.all()
    }

    /// Whether one more copy of a tenant's key may be remembered.
    pub fn has_room(&self, tenant: u32) -> bool {
        self.copies.has_room(tenant)
    }

    /// The entry of a key, made if there is none.
    pub fn enter(&mut self, key: Key<'_>) -> Place {
        let id = (key.tenant, key.hash);
        *self.places.entry(id).or_insert_with(|| {
            self.serial += 1;
            let serial = self.serial;
            let index = self.entries.insert(Entry {
                id,
                key: key.bytes.into(),
                state: KeyState::default(),
                asks: Asks::default(),
                timer_ns: 0,
                serial,
            });
            let place = Place { index, serial };
            let owned = self.by_tenant.entry(id.0).or_default();
            owned.entries += 1;
            owned.order.push_back(place);
            place
        })
    }

    /// The entry of a key, if there is one.
    pub fn find(&self, id: &KeyId) -> Option<Place> {
        self.places.get(id).copied()
    }

    /// What is there; `None` if it has been forgotten.
    pub fn get(&self, place: Place) -> Option<&Entry<W>> {
        let entry = self.entries.get(place.index);
        entry.filter(|entry| entry.serial == place.serial)
    }

    /// Changes an entry, keeping count of the copies and of what goes on.
    pub fn update<R>(
        &mut self,
        place: Place,
        change: impl FnOnce(&mut Entry<W>) -> R,
    ) -> Option<R> {
        let entry = self.entries.get_mut(place.index);
        let entry = entry.filter(|entry| entry.serial == place.serial)?;
        let (tenant, before) = (entry.id.0, entry.state.copies().len());
        self.unsettled -= usize::from(!entry.state.is_settled());
        let result = change(entry);
        self.unsettled += usize::from(!entry.state.is_settled());
        let after = entry.state.copies().len();
        self.copies.take(tenant, after.saturating_sub(before));
        self.copies.give_back(tenant, before.saturating_sub(after));
        Some(result)
    }

    /// Removes an entry that holds nothing worth remembering.
    pub fn forget_if_idle(&mut self, place: Place) {
        let idle = |entry: &&Entry<W>| entry.state.is_forgettable() && entry.asks.is_empty();
        if let Some(id) = self.get(place).filter(idle).map(|entry| entry.id) {
            self.places.remove(&id);
            self.entries.remove(place.index);
            self.forgotten(id.0);
        }
    }

    /// Whether there is a key of this tenant, or of one that had its number.
    pub fn has_any_of(&self, tenant: u32) -> bool {
        self.by_tenant.contains_key(&tenant)
    }

    /// The keys of these tenants.
    pub fn of_tenants(&self, tenants: &BTreeSet<u32>) -> Vec<Place> {
        let entries = self.walk().filter(|(_, entry)| tenants.contains(&entry.id.0));
        entries.map(|(place, _)| place).collect()
    }

    /// The keys of which copies are remembered.
    pub fn with_copies(&self) -> impl Iterator<Item = KeyId> {
        let entries = self.walk().map(|(_, entry)| entry);
        let held = entries.filter(|entry| !entry.state.copies().is_empty());
        held.map(|entry| entry.id)
    }

    /// Whether no write of any key goes on, or may still take place.
    pub fn is_settled(&self) -> bool {
        self.unsettled == 0
    }

    /// The keys of which a write that failed may still take place.
    pub fn in_doubt(&self) -> Vec<Place> {
        let doubtful = self.walk().filter(|(_, entry)| entry.state.is_in_doubt());
        doubtful.map(|(place, _)| place).collect()
    }

    /// Every entry.
    fn walk(&self) -> impl Iterator<Item = (Place, &Entry<W>)> {
        #[cfg(test)]
        WALKS.with(|count| count.set(count.get() + 1));
        let entries = self.entries.iter();
        entries.map(|(index, entry)| (Place { index, serial: entry.serial }, entry))
    }

    /// The copies that there may be of a key, in the order of their switches.
    pub fn copies_of(&self, id: &KeyId) -> &[Copy] {
        #[cfg(test)]
        ASKED.with(|count| count.set(count.get() + 1));
        let entry = self.find(id).and_then(|place| self.get(place));
        entry.map(|entry| entry.state.copies()).unwrap_or_default()
    }

    /// Whose copies are to go if this tenant finds no room.
    pub fn who_gives(&self, tenant: u32) -> u32 {
        self.copies.who_gives(tenant)
    }

    /// The entry of a tenant that came first, which goes to the end of the order.
    pub fn oldest(&mut self, tenant: u32) -> Option<Place> {
        let Directory { by_tenant, entries, .. } = self;
        let order = &mut by_tenant.get_mut(&tenant)?.order;
        while let Some(place) = order.pop_front() {
            if is_there(entries, place) {
                order.push_back(place);
                return Some(place);
            }
        }
        None
    }

    /// Looks at `budget` places for copies of lapsed leases; returns those that are left with none.
    pub fn sweep(
        &mut self,
        leases: &Leases<impl Sized>,
        now_ns: Nanos,
        budget: usize,
    ) -> Vec<Place> {
        let mut empty = Vec::new();
        for _ in 0..budget.min(self.entries.capacity()) {
            let index = self.swept;
            self.swept = (index + 1) % self.entries.capacity();
            let Some(serial) = self.entries.get(index).map(|entry| entry.serial) else { continue };
            let place = Place { index, serial };
            let is_empty = self.update(place, |entry| {
                entry.state.drop_lapsed(leases, now_ns);
                entry.state.copies().is_empty()
            });
            if is_empty == Some(true) {
                empty.push(place);
            }
        }
        empty
    }

    /// An entry of a tenant is gone. Drops its stale places, once they are the majority.
    fn forgotten(&mut self, tenant: u32) {
        let Directory { by_tenant, entries, .. } = self;
        let Some(owned) = by_tenant.get_mut(&tenant) else { return };
        owned.entries -= 1;
        if owned.entries == 0 {
            by_tenant.remove(&tenant);
        } else if owned.order.len() > 2 * owned.entries + 64 {
            owned.order.retain(|place| is_there(entries, *place));
        }
    }
}

fn is_there<W>(entries: &Slab<Entry<W>>, place: Place) -> bool {
    let entry = entries.get(place.index);
    entry.is_some_and(|entry| entry.serial == place.serial)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_of_no_use_once_its_entry_is_forgotten() {
        let mut directory: Directory<()> = Directory::new(1, 1);
        let key = |first| Key { tenant: 1, hash: KeyHash([first; 16]), bytes: b"k" };
        let old = directory.enter(key(1));
        assert_eq!(directory.enter(key(1)), old);
        directory.forget_if_idle(old);
        let new = directory.enter(key(2));
        assert_eq!(new.index, old.index, "used again");
        assert!(directory.get(old).is_none());
        assert_eq!(directory.update(old, |_| ()), None);
        assert_eq!(directory.find(&(1, key(1).hash)), None);
        directory.forget_if_idle(old);
        assert_eq!(directory.find(&(1, key(2).hash)), Some(new));
        assert_eq!(directory.oldest(1), Some(new));
        assert_eq!(directory.of_tenants(&BTreeSet::from([1])), [new]);
        directory.forget_if_idle(new);
        assert_eq!(directory.oldest(1), None);
    }
}
