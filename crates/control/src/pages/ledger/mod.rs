//! Whose each page of every switch is.
//!
//! A page is free, held by one tenant, or leaving: taken from a tenant, but not confirmed to be
//! clear. It goes from hand to hand only on the way held, leaving, free, held; so a switch that
//! applied any table, however old, and any later one never finds two tenants' items in one page.
//! Each change of what a switch should have raises the version of its table; the switch ignores
//! lower ones and confirms what it applied.
//!
//! To keep this over crashes, what [`Ledger::take_changes`] hands out must be durable before the
//! tables are sent: no switch then knows a version that a restarted controller does not.
//!
//! Cost: a change costs a logarithm of the switch's pages, finding free pages or those of a tenant
//! one pass over them.

mod error;
mod rows;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use api::types::PageId;
use decide::SwitchId;

pub use self::{
    error::LedgerError,
    rows::{Changes, Hold, Kind, PageRow, SwitchRow},
};
/// Most pages of a switch.
pub const PAGES_MAX: u32 = 1 << 20;

/// A page table to send: whose each page is. Pages that are not listed are nobody's.
pub type Owners = BTreeMap<u32, Vec<u32>>;

/// Pages of a tenant on a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Guaranteed ones.
    pub own: u32,
    /// Borrowed ones.
    pub lent: u32,
    /// Taken from it, and not confirmed to be clear.
    pub leaving: u32,
}

#[derive(Debug, Default)]
struct Table {
    row: SwitchRow,
    /// Pages that are not free.
    rows: BTreeMap<u32, PageRow>,
}

impl Table {
    fn free(&self) -> u32 {
        self.row.pages.saturating_sub(self.rows.len() as u32)
    }
}

/// The page tables of all switches, and what of them is not written down yet.
#[derive(Debug, Default)]
pub struct Ledger {
    tables: BTreeMap<SwitchId, Table>,
    dirty_switches: BTreeSet<SwitchId>,
    dirty_pages: BTreeSet<PageId>,
}

impl Ledger {
    /// No switches.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// What was remembered. Pages that were leaving still are; rows of switches or pages that do
    /// not exist are left out.
    pub fn restore(
        switches: impl IntoIterator<Item = (SwitchId, SwitchRow)>,
        pages: impl IntoIterator<Item = (PageId, PageRow)>,
    ) -> Ledger {
        let mut ledger = Ledger::default();
        for (id, row) in switches {
            let rows = BTreeMap::new();
            ledger.tables.insert(id, Table { row, rows });
        }
        for (PageId { switch, page }, row) in pages {
            let Some(table) = ledger.tables.get_mut(&switch) else { continue };
            if page >= table.row.pages {
                continue;
            }
            if let PageRow::Leaving { version, .. } = row {
                table.row.version = table.row.version.max(version);
            }
            table.rows.insert(page, row);
        }
        ledger
    }

    /// What changed since the last call.
    pub fn take_changes(&mut self) -> Changes {
        let switches = std::mem::take(&mut self.dirty_switches)
            .into_iter()
            .filter_map(|id| Some((id, self.tables.get(&id)?.row)));
        let pages = std::mem::take(&mut self.dirty_pages).into_iter().map(|id| (id, self.row(id)));
        Changes { switches: switches.collect(), pages: pages.collect() }
    }

    /// A switch is there with so many pages, for the first time or again. Hands back who lost which
    /// page because the switch has fewer now.
    ///
    /// # Errors
    /// If it has more than [`PAGES_MAX`].
    pub fn switch(
        &mut self,
        switch: SwitchId,
        pages: u32,
    ) -> Result<Vec<(PageId, Hold)>, LedgerError> {
        if pages > PAGES_MAX {
            return Err(LedgerError::TooManyPages { switch, pages });
        }
        let known = self.tables.contains_key(&switch);
        let table = self.tables.entry(switch).or_default();
        if known && table.row.pages == pages {
            return Ok(vec![]);
        }
        // That memory is gone with all that was in it, so those pages need not be confirmed.
        let cut = table.rows.split_off(&pages);
        table.row.pages = pages;
        let mut lost = Vec::new();
        for (page, row) in cut {
            let id = PageId { switch, page };
            self.dirty_pages.insert(id);
            if let PageRow::Held(hold) = row {
                lost.push((id, hold));
            }
        }
        if !lost.is_empty() {
            table.row.version += 1;
        }
        self.dirty_switches.insert(switch);
        Ok(lost)
    }

    /// The switches, with their pages.
    pub fn switches(&self) -> impl Iterator<Item = (SwitchId, u32)> {
        self.tables.iter().map(|(id, t)| (*id, t.row.pages))
    }

    /// The version of a switch's table; of an unknown switch 0.
    pub fn version(&self, switch: SwitchId) -> u64 {
        self.tables.get(&switch).map_or(0, |t| t.row.version)
    }

    /// The table to send to a switch, with its version. Of an unknown switch: version 0, nobody's.
    pub fn owners(&self, switch: SwitchId) -> (u64, Owners) {
        let mut owners = Owners::new();
        let Some(table) = self.tables.get(&switch) else { return (0, owners) };
        for (page, row) in &table.rows {
            if let PageRow::Held(hold) = row {
                owners.entry(hold.tenant).or_default().push(*page);
            }
        }
        (table.row.version, owners)
    }

    /// Gives a tenant `n` free pages of a switch, or as many as there are; the lowest first.
    pub fn give(&mut self, switch: SwitchId, n: u32, hold: Hold) -> Vec<PageId> {
        let Some(table) = self.tables.get_mut(&switch) else { return vec![] };
        let free = (0..table.row.pages).filter(|page| !table.rows.contains_key(page));
        let pages: Vec<u32> = free.take(n as usize).collect();
        if pages.is_empty() {
            return vec![];
        }
        table.row.version += 1;
        self.dirty_switches.insert(switch);
        let given = pages.into_iter().map(|page| PageId { switch, page });
        let given: Vec<PageId> = given.collect();
        for id in &given {
            table.rows.insert(id.page, PageRow::Held(hold));
            self.dirty_pages.insert(*id);
        }
        given
    }

    /// A tenant gives these pages back: all of them, or none if one of them is not its own to give.
    ///
    /// # Errors
    /// Names the page and what it is instead.
    pub fn take(&mut self, tenant: u32, pages: &[PageId]) -> Result<(), LedgerError> {
        let seen = self.check_taken(tenant, pages)?;
        let switches: BTreeSet<SwitchId> = pages.iter().map(|p| p.switch).collect();
        for switch in switches {
            self.take_where(switch, |page, _| seen.contains(&PageId { switch, page }));
        }
        Ok(())
    }

    /// Takes `n` pages of that kind from a tenant on a switch, or as many as it has: those with the
    /// lowest `worth` first (as requests in the last window), of equal ones the last given.
    pub fn take_from<W: Ord>(
        &mut self,
        switch: SwitchId,
        tenant: u32,
        kind: Kind,
        n: u32,
        worth: impl FnMut(PageId) -> W,
    ) -> Vec<PageId> {
        let chosen = self.choose(switch, tenant, kind, n, worth);
        self.take_where(switch, |page, _| chosen.contains(&PageId { switch, page }));
        chosen
    }

    /// Makes `n` pages that a tenant has as one kind, or as many as there are, the other kind. It
    /// keeps them, so the switch need not know. Which ones: those with the lowest `worth`.
    pub fn convert<W: Ord>(
        &mut self,
        switch: SwitchId,
        tenant: u32,
        from: Kind,
        n: u32,
        worth: impl FnMut(PageId) -> W,
    ) -> Vec<PageId> {
        let chosen = self.choose(switch, tenant, from, n, worth);
        for id in &chosen {
            let table = self.tables.get_mut(&switch);
            if let Some(PageRow::Held(hold)) = table.and_then(|t| t.rows.get_mut(&id.page)) {
                hold.kind = match from {
                    Kind::Own => Kind::Lent,
                    Kind::Lent => Kind::Own,
                };
                self.dirty_pages.insert(*id);
            }
        }
        chosen
    }

    /// The switch has a table of this version in force: what left in it or before is free. Of a
    /// version that was never made: nothing happens.
    pub fn confirmed(&mut self, switch: SwitchId, version: u64) -> Vec<PageId> {
        let Some(table) = self.tables.get_mut(&switch) else { return vec![] };
        if version > table.row.version {
            return vec![];
        }
        let clear =
            |row: &PageRow| matches!(row, PageRow::Leaving { version: v, .. } if *v <= version);
        let freed = table.rows.iter().filter(|(_, row)| clear(row));
        let freed: Vec<PageId> = freed.map(|(&page, _)| PageId { switch, page }).collect();
        for id in &freed {
            table.rows.remove(&id.page);
        }
        self.dirty_pages.extend(&freed);
        freed
    }

    /// Takes everything from a tenant, on all switches.
    pub fn remove_tenant(&mut self, tenant: u32) -> Vec<PageId> {
        let ids: Vec<SwitchId> = self.tables.keys().copied().collect();
        let all = |id| self.take_where(id, |_, hold: &Hold| hold.tenant == tenant);
        ids.into_iter().flat_map(all).map(|(page, _)| page).collect()
    }

    /// Pages of a switch that can be given away now.
    pub fn free(&self, switch: SwitchId) -> u32 {
        self.tables.get(&switch).map_or(0, Table::free)
    }

    /// The state of a page; none if it is free or does not exist.
    pub fn row(&self, page: PageId) -> Option<PageRow> {
        self.tables.get(&page.switch)?.rows.get(&page.page).copied()
    }

    /// What a tenant holds, on all switches.
    pub fn held(&self, tenant: u32) -> impl Iterator<Item = (PageId, Hold)> {
        self.holds().filter(move |(_, hold)| hold.tenant == tenant)
    }

    /// Pages of a switch that are held, by index.
    pub fn holds_on(&self, switch: SwitchId) -> impl Iterator<Item = (u32, Hold)> {
        let rows = self.tables.get(&switch).into_iter().flat_map(|t| &t.rows);
        rows.filter_map(|(page, row)| match row {
            PageRow::Held(hold) => Some((*page, *hold)),
            PageRow::Leaving { .. } => None,
        })
    }

    /// All pages that are held.
    pub fn holds(&self) -> impl Iterator<Item = (PageId, Hold)> {
        self.rows().filter_map(|(id, row)| match row {
            PageRow::Held(hold) => Some((id, hold)),
            PageRow::Leaving { .. } => None,
        })
    }

    /// All pages that are not free.
    pub fn rows(&self) -> impl Iterator<Item = (PageId, PageRow)> {
        self.tables.iter().flat_map(|(&switch, table)| {
            let id = move |page| PageId { switch, page };
            table.rows.iter().map(move |(page, row)| (id(*page), *row))
        })
    }

    /// How many pages of a switch each tenant has.
    pub fn counts(&self, switch: SwitchId) -> BTreeMap<u32, Count> {
        let mut counts: BTreeMap<u32, Count> = BTreeMap::new();
        for row in self.tables.get(&switch).iter().flat_map(|t| t.rows.values()) {
            match row {
                PageRow::Leaving { from, .. } => counts.entry(*from).or_default().leaving += 1,
                PageRow::Held(hold) => {
                    let count = counts.entry(hold.tenant).or_default();
                    match hold.kind {
                        Kind::Own => count.own += 1,
                        Kind::Lent => count.lent += 1,
                    }
                }
            }
        }
        counts
    }

    /// Pages of a kind, the least worth of them.
    fn choose<W: Ord>(
        &self,
        switch: SwitchId,
        tenant: u32,
        kind: Kind,
        n: u32,
        mut worth: impl FnMut(PageId) -> W,
    ) -> Vec<PageId> {
        let rows = self.tables.get(&switch).into_iter().flat_map(|t| &t.rows);
        let mut pages: Vec<_> = rows
            .filter_map(|(page, row)| match row {
                PageRow::Held(hold) if (hold.tenant, hold.kind) == (tenant, kind) => {
                    let page = PageId { switch, page: *page };
                    Some((worth(page), Reverse(hold.since_s), Reverse(page)))
                }
                _ => None,
            })
            .collect();
        pages.sort();
        let pages = pages.into_iter().map(|(_, _, Reverse(page))| page);
        pages.take(n as usize).collect()
    }

    /// Makes held pages of a switch leave, in one new version of its table.
    fn take_where(
        &mut self,
        switch: SwitchId,
        mut which: impl FnMut(u32, &Hold) -> bool,
    ) -> Vec<(PageId, Hold)> {
        let mut taken = Vec::new();
        let Some(table) = self.tables.get_mut(&switch) else { return taken };
        let version = table.row.version + 1;
        for (&page, row) in &mut table.rows {
            let PageRow::Held(hold) = *row else { continue };
            if which(page, &hold) {
                *row = PageRow::Leaving { from: hold.tenant, version };
                taken.push((PageId { switch, page }, hold));
            }
        }
        if !taken.is_empty() {
            table.row.version = version;
            self.dirty_switches.insert(switch);
            self.dirty_pages.extend(taken.iter().map(|(id, _)| *id));
        }
        taken
    }

    /// Whether a tenant holds all of these pages, each named once; then as a set.
    ///
    /// # Errors
    /// Names the page and what it is instead.
    pub fn check_taken(
        &self,
        tenant: u32,
        pages: &[PageId],
    ) -> Result<BTreeSet<PageId>, LedgerError> {
        let mut seen = BTreeSet::new();
        for &page in pages {
            if !seen.insert(page) {
                return Err(LedgerError::NamedTwice { page });
            }
            self.check_held(tenant, page)?;
        }
        Ok(seen)
    }

    /// Whether a tenant holds a page.
    ///
    /// # Errors
    /// Names the page and what it is instead.
    fn check_held(&self, tenant: u32, page: PageId) -> Result<(), LedgerError> {
        let Some(table) = self.tables.get(&page.switch) else {
            return Err(LedgerError::UnknownSwitch { page });
        };
        if page.page >= table.row.pages {
            return Err(LedgerError::NoSuchPage { page, pages: table.row.pages });
        }
        match table.rows.get(&page.page) {
            Some(PageRow::Held(hold)) if hold.tenant == tenant => Ok(()),
            Some(PageRow::Leaving { from, .. }) if *from == tenant => {
                Err(LedgerError::ReturnedTwice { page, tenant })
            }
            Some(_) => Err(LedgerError::AnothersPage { page, tenant }),
            None => Err(LedgerError::FreePage { page, tenant }),
        }
    }
}
