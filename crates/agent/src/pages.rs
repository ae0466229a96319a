//! Pages: whose they are as the controller says, what they are good for, and room made within them.

use std::collections::{BTreeMap, BTreeSet};

use api::proto::{
    FromSwitch, PageTable, PageUse, PagesApplied, TenantPages, TenantUse, from_switch::Body,
};
use decide::ItemKey;
use tokio::sync::mpsc::Sender;
use tracing::{debug, info};

use super::{
    AgentError,
    tables::{Tables, TenantHere},
};

impl Tables {
    /// Makes the controller's table the one in force. Pages that change hands are cleared, and left alone until no program
    /// can be looking at them, before anybody else may use them: here no page can have two owners, whatever was sent.
    pub(super) fn take_page_table(
        &mut self,
        table: &PageTable,
        out: &Sender<FromSwitch>,
    ) -> Result<(), AgentError> {
        let version = (table.term, table.version);
        if version < self.page_table || table.term < self.term {
            debug!("an old page table was left out");
            return Ok(());
        }
        let mut wanted = vec![None; self.table.pages() as usize];
        for TenantPages { tenant, pages } in &table.owners {
            for page in pages {
                if let Some(owner) = wanted.get_mut(*page as usize) {
                    *owner = Some(*tenant);
                }
            }
        }
        let changed: BTreeSet<u32> = (0u32..)
            .zip(&wanted)
            .filter(|(page, owner)| self.cells.owner(*page) != **owner)
            .map(|(page, _)| page)
            .collect();
        let is_there = |entry: &super::index::Entry| changed.contains(&entry.place.page);
        let gone = self.index.iter().filter(|(_, entry)| is_there(entry));
        let gone: Vec<ItemKey> = gone.map(|(key, _)| key.clone()).collect();
        self.give_up(&gone, out);
        self.reuse_resting()?;
        for page in &changed {
            self.cells.set_owner(*page, wanted[*page as usize]);
        }
        if !changed.is_empty() {
            info!(
                "page table {}.{}: {} pages changed hands, {} items were on them",
                version.0,
                version.1,
                changed.len(),
                gone.len()
            );
        }
        self.page_table = version;
        self.term = self.term.max(table.term);
        self.confirm_pages(out);
        Ok(())
    }

    /// Says which table is in force; said again with every window, should it be lost.
    pub(super) fn confirm_pages(&self, out: &Sender<FromSwitch>) {
        let (term, version) = self.page_table;
        super::tables::send(out, Body::Pages(PagesApplied { term, version }));
    }

    /// What each page that holds items was good for, with the requests of its items in the window.
    pub(super) fn page_use(&self, requests: &BTreeMap<u32, u64>) -> Vec<PageUse> {
        (0..self.table.pages())
            .map(|page| (page, self.cells.usage(page)))
            .filter(|(_, usage)| usage.items > 0)
            .map(|(page, usage)| PageUse {
                page,
                items: usage.items,
                cells: usage.cells,
                requests: requests.get(&page).copied().unwrap_or(0),
            })
            .collect()
    }

    /// How well each tenant's pages are filled.
    pub(super) fn tenant_use(&self) -> Vec<TenantUse> {
        let of = |(tenant, here): (&u32, &TenantHere)| TenantUse {
            tenant: *tenant,
            fragmentation: self.cells.fragmentation(*tenant, here.usual_cells()),
        };
        self.tenants.iter().map(of).collect()
    }

    /// Clears the page of a tenant whose free cells lie in the most useless pieces, and puts its items back close
    /// together, so that a run of `cells` cells becomes free. Their values are fetched anew. At most once per window and
    /// tenant; false if it would not help.
    pub(super) fn compact(
        &mut self,
        tenant: u32,
        cells: u8,
        out: &Sender<FromSwitch>,
    ) -> Result<bool, AgentError> {
        let Some(page) = self.cells.worst_page(tenant, cells) else {
            return Ok(false);
        };
        if !self.compacted.insert(tenant) {
            return Ok(false);
        }
        let on_page = self.index.iter().filter(|(_, e)| e.place.page == page);
        let mut moving: Vec<(ItemKey, u8)> = on_page
            .map(|(key, entry)| (key.clone(), entry.place.cells))
            .collect();
        // The longest first, or the last ones may not find a run.
        moving.sort_by_key(|(key, cells)| (std::cmp::Reverse(*cells), key.clone()));
        moving.iter().for_each(|(key, _)| self.evict(key));
        self.reuse_resting()?;
        let mut without_room = vec![];
        for (key, cells) in moving {
            let lost = match self.cells.take(tenant, cells) {
                Some(place) => !self.put(key.clone(), place),
                None => true,
            };
            if lost {
                without_room.push(key);
            }
        }
        self.tell_dropped(&without_room, out);
        Ok(true)
    }
}
