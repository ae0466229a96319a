//! Whose each page is, as the controller says.

use std::collections::BTreeSet;

use api::proto::{self, PagesApplied};
use decide::ItemKey;
use tracing::{debug, info, warn};

use super::{
    super::{AgentError, served::ServedCluster},
    Memory,
};

/// The controller's last table.
pub(super) struct PageTable {
    /// Term and version.
    version: (u64, u64),
    /// Whose each page is to be.
    owners: Vec<Option<u32>>,
    /// Pages that stay whose they are, because items lie on them that nobody may remove.
    kept: BTreeSet<u32>,
}

impl PageTable {
    /// That of nobody: the pages are whose they are found to be.
    pub fn new(pages: u32) -> PageTable {
        PageTable { version: (0, 0), owners: vec![None; pages as usize], kept: BTreeSet::new() }
    }
}

impl Memory {
    /// Makes the controller's table the one in force, as far as it can be.
    pub fn take_page_table(
        &mut self,
        table: &proto::PageTable,
        served: Option<&ServedCluster>,
    ) -> Result<(), AgentError> {
        let version = (table.term, table.version);
        if version < self.page_table.version {
            debug!("an old page table was left out");
            return Ok(());
        }
        let mut owners = vec![None; self.table.pages() as usize];
        for proto::TenantPages { tenant, pages } in &table.owners {
            for page in pages {
                if let Some(owner) = owners.get_mut(*page as usize) {
                    *owner = Some(*tenant);
                }
            }
        }
        self.page_table.version = version;
        self.page_table.owners = owners;
        self.change_hands(served)
    }

    /// Tries again what could not be done when the table came.
    pub fn apply_pages(&mut self, served: Option<&ServedCluster>) -> Result<(), AgentError> {
        if self.page_table.kept.is_empty() {
            return Ok(());
        }
        self.change_hands(served)
    }

    /// The table that is in force and clear; none while pages of it wait.
    pub fn pages_applied(&self) -> Option<PagesApplied> {
        let (term, version) = self.page_table.version;
        let is_whole = self.page_table.kept.is_empty();
        is_whole.then_some(PagesApplied { term, version })
    }

    /// Pages that change hands are cleared, and left alone until no program can be looking at them,
    /// before anybody else may use them: here no page can have two owners, whatever was sent.
    fn change_hands(&mut self, served: Option<&ServedCluster>) -> Result<(), AgentError> {
        let mut changed: BTreeSet<u32> = (0u32..)
            .zip(&self.page_table.owners)
            .filter(|(page, owner)| self.cells.owner(*page) != **owner)
            .map(|(page, _)| page)
            .collect();
        let whose = changed.iter().filter_map(|page| self.cells.owner(*page));
        let whose: BTreeSet<u32> = whose.collect();
        self.take_blanks_back(&whose, served)?;
        let on_changed = || {
            let items = self.index.iter();
            items.filter(|(_, entry)| changed.contains(&entry.place.page))
        };
        let kept: BTreeSet<u32> = on_changed()
            .filter(|(key, entry)| self.is_kept(key, entry, served))
            .map(|(_, entry)| entry.place.page)
            .collect();
        let gone: Vec<ItemKey> = on_changed()
            .filter(|(_, entry)| !kept.contains(&entry.place.page))
            .map(|(key, _)| key.clone())
            .collect();
        changed.retain(|page| !kept.contains(page));
        let (term, version) = self.page_table.version;
        if !kept.is_subset(&self.page_table.kept) {
            warn!(
                "page table {term}.{version} takes {} pages with items that nobody may remove: they stay whose they are",
                kept.len()
            );
        }
        self.page_table.kept = kept;
        self.give_up(&gone);
        self.reuse_resting()?;
        for page in &changed {
            let owner = self.page_table.owners[*page as usize];
            self.cells.set_owner(*page, owner);
        }
        self.give_blanks();
        if !changed.is_empty() {
            info!(
                "page table {term}.{version}: {} pages changed hands, {} items were on them",
                changed.len(),
                gone.len()
            );
        }
        Ok(())
    }
}
