//! Room for new items, made if need be.

use std::cmp::Reverse;

use dataplane::Place;
use decide::ItemKey;
use wire::KeyHash;

use super::{
    super::{AgentError, served::Served},
    Memory, News,
    items::Content,
};

impl Memory {
    /// What is put from here on belongs together: programs are waited for once, at most, to make room for all of it. Else a
    /// tenant whose items push one another out would have us wait for each.
    pub fn begin_batch(&mut self) {
        self.has_waited = false;
    }

    /// Room for an item on its tenant's pages.
    pub(super) fn place(
        &mut self,
        tenant: u32,
        cells: u8,
        served: &Served,
    ) -> Result<Option<Place>, AgentError> {
        let mut place = self.cells.take(tenant, cells);
        if place.is_none() && !self.resting.is_empty() && !self.has_waited {
            self.has_waited = true;
            self.reuse_resting()?;
            place = self.cells.take(tenant, cells);
        }
        if place.is_none() && self.compact(tenant, cells, served)? {
            place = self.cells.take(tenant, cells);
        }
        Ok(place)
    }

    /// After this no program can see what was evicted, and its cells are free.
    pub fn reuse_resting(&mut self) -> Result<(), AgentError> {
        if self.resting.is_empty() {
            return Ok(());
        }
        self.table.quiesce()?;
        for place in self.resting.drain(..) {
            self.cells.give_back(place);
        }
        Ok(())
    }

    /// Evicts the coldest of the entries that share a full bucket: the controller cannot know them.
    pub(super) fn make_way(&mut self, tenant: u32, hash: KeyHash, served: &Served) {
        let requests = |slot: u32| {
            let key = self.index.key_in(slot)?;
            let entry = self.index.get(key)?;
            if self.is_kept(key, entry, Some(served)) {
                return None;
            }
            let new = self.table.requests(slot).wrapping_sub(entry.requests);
            Some((new, key.clone()))
        };
        let neighbours = self.table.neighbours(tenant, hash);
        if let Some((_, key)) = neighbours.filter_map(requests).min() {
            self.give_up(&[key]);
        }
    }

    /// Clears the page of a tenant whose free cells lie in the most useless pieces, and puts its items back close
    /// together, so that a run of `cells` cells becomes free. Their values are fetched anew. At most once per window and
    /// tenant; false if it would not help. A page with records that were given is left alone: what programs change in
    /// them meanwhile would be lost.
    fn compact(&mut self, tenant: u32, cells: u8, served: &Served) -> Result<bool, AgentError> {
        let Some(page) = self.cells.worst_page(tenant, cells) else {
            return Ok(false);
        };
        let on_page = || self.index.iter().filter(|(_, e)| e.place.page == page);
        if on_page().any(|(_, entry)| entry.is_given()) || !self.compacted.insert(tenant) {
            return Ok(false);
        }
        let mut moving: Vec<(ItemKey, u8)> = on_page()
            .map(|(key, entry)| (key.clone(), entry.place.cells))
            .collect();
        // The longest first, or the last ones may not find a run.
        moving.sort_by_key(|(key, cells)| (Reverse(*cells), key.clone()));
        moving.iter().for_each(|(key, _)| self.remove(key));
        self.reuse_resting()?;
        for (key, cells) in moving {
            if self.put_back(&key, cells, served) != Some(true) {
                self.news.push(News::Dropped(key));
            }
        }
        Ok(true)
    }

    fn put_back(&mut self, key: &ItemKey, cells: u8, served: &Served) -> Option<bool> {
        let hash = served.hash_of(key)?;
        let lease = served.lease_for(key.tenant, hash)?;
        let place = self.cells.take(key.tenant, cells)?;
        Some(self.enter(key, hash, place, Content::Fetched { lease }))
    }
}
