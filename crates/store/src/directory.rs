//! Every key that has state: copies at switches, writes that wait. Bounded.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};
use wire::KeyHash;

use crate::coherence::{KeyState, Leases, Nanos, SwitchId};

/// A key by its tenant and hash.
pub(crate) type KeyId = (u32, KeyHash);

/// One key's state, with what is needed to talk about it.
pub(crate) struct Entry<W> {
    /// The key's bytes.
    pub key: Box<[u8]>,
    /// What the rules remember.
    pub state: KeyState<W>,
    /// When it is to be polled next; 0: not at all.
    pub timer_ns: Nanos,
    /// Distinguishes this entry's place in the order from those of earlier entries of the key.
    serial: u64,
}

/// The directory of rule 3, over all keys.
pub(crate) struct Directory<W> {
    entries: HashMap<KeyId, Entry<W>>,
    /// Keys in the order in which they came, with their serial; stale ones are skipped.
    order: VecDeque<(KeyId, u64)>,
    copies: usize,
    limit: usize,
    serial: u64,
}

impl<W> Directory<W> {
    pub fn new(limit: usize) -> Directory<W> {
        Directory {
            entries: HashMap::new(),
            order: VecDeque::new(),
            copies: 0,
            limit,
            serial: 0,
        }
    }

    /// Copies over all keys.
    pub fn copies(&self) -> usize {
        self.copies
    }

    /// Whether one more copy may be remembered.
    pub fn has_room(&self) -> bool {
        self.copies < self.limit
    }

    /// The entry of a key, made if there is none.
    pub fn entry(&mut self, id: KeyId, key: &[u8]) -> &mut Entry<W> {
        self.entries.entry(id).or_insert_with(|| {
            self.serial += 1;
            self.order.push_back((id, self.serial));
            let (key, state) = (key.into(), KeyState::default());
            Entry {
                key,
                state,
                timer_ns: 0,
                serial: self.serial,
            }
        })
    }

    /// Changes the entry of a key, keeping count of the copies.
    pub fn update<R>(&mut self, id: &KeyId, change: impl FnOnce(&mut Entry<W>) -> R) -> Option<R> {
        let entry = self.entries.get_mut(id)?;
        let before = entry.state.copies().len();
        let result = change(entry);
        self.copies = self.copies + entry.state.copies().len() - before;
        Some(result)
    }

    /// Removes an entry that holds nothing worth remembering. True if it was there and is gone.
    pub fn forget_if_idle(&mut self, id: &KeyId, now_ns: Nanos) -> bool {
        let idle = self
            .entries
            .get(id)
            .is_some_and(|e| e.state.is_forgettable(now_ns));
        if idle {
            self.entries.remove(id);
            self.compact();
        }
        idle
    }

    /// Removes and returns everything about these tenants' keys.
    pub fn remove_tenants(&mut self, tenants: &HashSet<u32>) -> Vec<(KeyId, Entry<W>)> {
        let of_them = |id: &KeyId, _: &mut Entry<W>| tenants.contains(&id.0);
        let gone: Vec<_> = self.entries.extract_if(of_them).collect();
        let copies = gone.iter().map(|(_, entry)| entry.state.copies().len());
        self.copies -= copies.sum::<usize>();
        self.compact();
        gone
    }

    /// The keys of which copies are remembered.
    pub fn with_copies(&self) -> impl Iterator<Item = KeyId> {
        let held = self
            .entries
            .iter()
            .filter(|(_, e)| !e.state.copies().is_empty());
        held.map(|(id, _)| *id)
    }

    /// Whether a switch may hold a copy of a key.
    pub fn holds(&self, id: &KeyId, switch: SwitchId) -> bool {
        let entry = self.entries.get(id);
        entry.is_some_and(|e| e.state.copies().iter().any(|copy| copy.switch == switch))
    }

    /// The key that came first, which goes to the end of the order.
    pub fn oldest(&mut self) -> Option<KeyId> {
        while let Some((id, serial)) = self.order.pop_front() {
            if self.entries.get(&id).is_some_and(|e| e.serial == serial) {
                self.order.push_back((id, serial));
                return Some(id);
            }
        }
        None
    }

    /// Looks at `budget` keys for copies of lapsed leases; returns those that are left with none.
    pub fn sweep(
        &mut self,
        leases: &Leases<impl Sized>,
        now_ns: Nanos,
        budget: usize,
    ) -> Vec<KeyId> {
        let mut empty = Vec::new();
        for _ in 0..budget.min(self.entries.len()) {
            let Some(id) = self.oldest() else { break };
            self.update(&id, |entry| entry.state.drop_lapsed(leases, now_ns));
            if self
                .entries
                .get(&id)
                .is_some_and(|e| e.state.copies().is_empty())
            {
                empty.push(id);
            }
        }
        empty
    }

    /// Drops stale places, once they are the majority.
    fn compact(&mut self) {
        if self.order.len() > 2 * self.entries.len() + 64 {
            let entries = &self.entries;
            self.order
                .retain(|(id, serial)| entries.get(id).is_some_and(|e| e.serial == *serial));
        }
    }
}
