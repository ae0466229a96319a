//! Room for new items, made if need be.

use std::{cmp::Reverse, collections::BTreeMap};

use dataplane::{Place, Table};
use decide::ItemKey;
use wire::KeyHash;

use super::{
    super::{AgentError, served::ServedCluster},
    Memory, News,
    items::Content,
};

impl Memory {
    /// What is put from here on belongs together: programs are waited for once, at most, to make
    /// room for all of it. Else a tenant whose items push one another out would have us wait
    /// for each.
    pub fn begin_batch(&mut self) {
        self.has_waited = false;
    }

    /// Room for an item on its tenant's pages.
    pub(super) fn place(
        &mut self,
        tenant: u32,
        cells: u8,
        served: &ServedCluster,
    ) -> Result<Option<Place>, AgentError> {
        let mut place = self.free_place(tenant, cells)?;
        if place.is_none() && self.compact(tenant, cells, served)? {
            place = self.cells.take(tenant, cells);
        }
        Ok(place)
    }

    /// Likewise where there is some, or rests.
    pub(super) fn free_place(
        &mut self,
        tenant: u32,
        cells: u8,
    ) -> Result<Option<Place>, AgentError> {
        let mut place = self.cells.take(tenant, cells);
        if place.is_none() && !self.resting.is_empty() && !self.has_waited {
            self.has_waited = true;
            self.reuse_resting()?;
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

    /// Whether a key's bucket has as many items that nobody may evict as it may have: one slot is
    /// left for those that come and go, or a tenant that picks its keys would keep others' from
    /// ever being cached.
    pub(super) fn has_its_data(&self, tenant: u32, hash: KeyHash, served: &ServedCluster) -> bool {
        let slots = self.table.neighbours(tenant, hash);
        let items = slots.filter_map(|slot| self.index.in_slot(slot));
        let kept = items.filter(|(key, entry)| self.is_kept(key, entry, Some(served))).count();
        kept + 1 >= Table::BUCKET_SLOTS
    }

    /// Evicts one of the entries that share a full bucket: the controller cannot know them. Of the
    /// tenant that has most of it, the newcomer's among them, or one that picks its keys would
    /// crowd the others out; of that the coldest, and one on probation first.
    pub(super) fn make_way(&mut self, tenant: u32, hash: KeyHash, served: &ServedCluster) {
        let mut share = BTreeMap::from([(tenant, 1)]);
        let mut may_go = vec![];
        for slot in self.table.neighbours(tenant, hash) {
            let Some((key, entry)) = self.index.in_slot(slot) else { continue };
            *share.entry(key.tenant).or_default() += 1;
            if !self.is_kept(key, entry, Some(served)) {
                let new = self.table.requests(entry.place).wrapping_sub(entry.requests);
                may_go.push((entry.trial.is_none(), new, key.clone()));
            }
        }
        let first = |(counts, new, key): &(bool, u32, ItemKey)| {
            (Reverse(share[&key.tenant]), *counts, *new, key.clone())
        };
        if let Some((_, _, key)) = may_go.into_iter().min_by_key(first) {
            self.give_up(&[key]);
        }
    }

    /// Clears the page of a tenant whose free cells lie in the most useless pieces, and puts its
    /// items back close together, so that a run of `cells` cells becomes free. Their values are
    /// fetched anew. At most once per window and tenant; false if it would not help. What was there
    /// on probation does not come back. A page with records that were given is left alone: what
    /// programs change in them meanwhile would be lost.
    fn compact(
        &mut self,
        tenant: u32,
        cells: u8,
        served: &ServedCluster,
    ) -> Result<bool, AgentError> {
        let Some(page) = self.cells.worst_page(tenant, cells) else { return Ok(false) };
        let on_page = || self.index.iter().filter(|(_, e)| e.place.page == page);
        if on_page().any(|(_, entry)| entry.is_given()) || !self.compacted.insert(tenant) {
            return Ok(false);
        }
        let trials = on_page().filter(|(_, entry)| entry.trial.is_some());
        let trials: Vec<ItemKey> = trials.map(|(key, _)| key.clone()).collect();
        let mut moving: Vec<(ItemKey, u8)> = on_page()
            .filter(|(_, entry)| entry.trial.is_none())
            .map(|(key, entry)| (key.clone(), entry.place.cells))
            .collect();
        // The longest first, or the last ones may not find a run.
        moving.sort_by_key(|(key, cells)| (Reverse(*cells), key.clone()));
        let items = moving.iter().map(|(key, _)| key).chain(&trials);
        items.for_each(|key| self.remove(key));
        self.reuse_resting()?;
        for (key, cells) in moving {
            if self.put_back(&key, cells, served) != Some(true) {
                self.news.push(News::Dropped(key));
            }
        }
        Ok(true)
    }

    fn put_back(&mut self, key: &ItemKey, cells: u8, served: &ServedCluster) -> Option<bool> {
        let hash = served.hash_of(key)?;
        let lease = served.lease_for(key.tenant, hash)?;
        let place = self.cells.take(key.tenant, cells)?;
        Some(self.enter(key, hash, place, Content::Fetched { lease }, None))
    }
}
