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
//! Cost: a change costs a logarithm of the switch's pages, finding those of a tenant what it has,
//! finding free ones one pass over them.

mod error;
mod rows;
mod table;
#[cfg(test)]
mod tests;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use api::types::PageId;
use decide::SwitchId;

use self::table::Table;
pub use self::{
    error::LedgerError,
    rows::{Changes, Hold, Kind, PageRow, SwitchRow},
    table::Count,
};

/// Most pages of a switch.
pub const PAGES_MAX: u32 = 1 << 20;

/// A page table to send: whose each page is. Pages that are not listed are nobody's.
pub type Owners = BTreeMap<u32, Vec<u32>>;

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
            ledger.tables.insert(id, Table::new(row));
        }
        for (PageId { switch, page }, row) in pages {
            let Some(table) = ledger.tables.get_mut(&switch) else { continue };
            if page >= table.row.pages {
                continue;
            }
            if let PageRow::Leaving { version, .. } = row {
                table.row.version = table.row.version.max(version);
            }
            table.set(page, Some(row));
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
        let mut lost = Vec::new();
        for (page, row) in table.resize(pages) {
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
        for (page, row) in table.iter() {
            if let PageRow::Held(hold) = row {
                owners.entry(hold.tenant).or_default().push(page);
            }
        }
        (table.row.version, owners)
    }

    /// Gives a tenant `n` free pages of a switch, or as many as there are; the lowest first.
    pub fn give(&mut self, switch: SwitchId, n: u32, hold: Hold) -> Vec<PageId> {
        let Some(table) = self.tables.get_mut(&switch) else { return vec![] };
        let free = (0..table.row.pages).filter(|page| table.get(*page).is_none());
        let pages: Vec<u32> = free.take(n as usize).collect();
        if pages.is_empty() {
            return vec![];
        }
        table.row.version += 1;
        self.dirty_switches.insert(switch);
        let given = pages.into_iter().map(|page| PageId { switch, page });
        let given: Vec<PageId> = given.collect();
        for id in &given {
            table.set(id.page, Some(PageRow::Held(hold)));
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
            self.take_where(switch, tenant, |page| seen.contains(&PageId { switch, page }));
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
        let pages: BTreeSet<u32> = chosen.iter().map(|id| id.page).collect();
        self.take_where(switch, tenant, |page| pages.contains(&page));
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
            let Some(table) = self.tables.get_mut(&switch) else { continue };
            if let Some(PageRow::Held(hold)) = table.get(id.page) {
                let kind = match from {
                    Kind::Own => Kind::Lent,
                    Kind::Lent => Kind::Own,
                };
                table.set(id.page, Some(PageRow::Held(Hold { kind, ..hold })));
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
        let freed = table.iter().filter(|(_, row)| clear(row));
        let freed: Vec<PageId> = freed.map(|(page, _)| PageId { switch, page }).collect();
        freed.iter().for_each(|id| table.set(id.page, None));
        self.dirty_pages.extend(&freed);
        freed
    }

    /// The switches that have not confirmed yet that what was taken from a tenant is clear.
    pub fn leaving(&self, tenant: u32) -> impl Iterator<Item = SwitchId> {
        let leaves =
            move |row: &PageRow| matches!(row, PageRow::Leaving { from, .. } if *from == tenant);
        let tables = self.tables.iter();
        let has_some = move |table: &Table| table.iter().any(|(_, row)| leaves(&row));
        tables.filter(move |(_, table)| has_some(table)).map(|(id, _)| *id)
    }

    /// Takes everything from a tenant, on all switches.
    pub fn remove_tenant(&mut self, tenant: u32) -> Vec<PageId> {
        let ids: Vec<SwitchId> = self.tables.keys().copied().collect();
        ids.into_iter().flat_map(|id| self.take_where(id, tenant, |_| true)).collect()
    }

    /// Pages of a switch that can be given away now.
    pub fn free(&self, switch: SwitchId) -> u32 {
        self.tables.get(&switch).map_or(0, Table::free)
    }

    /// The state of a page; none if it is free or does not exist.
    pub fn row(&self, page: PageId) -> Option<PageRow> {
        self.tables.get(&page.switch)?.get(page.page)
    }

    /// What a tenant holds, on all switches.
    pub fn held(&self, tenant: u32) -> impl Iterator<Item = (PageId, Hold)> {
        let on = move |&switch| {
            let holds = self.held_on(switch, tenant);
            holds.map(move |(page, hold)| (PageId { switch, page }, hold))
        };
        self.tables.keys().flat_map(on)
    }

    /// What a tenant holds of a switch, by index.
    pub fn held_on(&self, switch: SwitchId, tenant: u32) -> impl Iterator<Item = (u32, Hold)> {
        held(self.rows_on(switch, tenant))
    }

    /// The same, with those that are leaving it.
    pub fn rows_on(&self, switch: SwitchId, tenant: u32) -> impl Iterator<Item = (u32, PageRow)> {
        self.tables.get(&switch).into_iter().flat_map(move |table| table.of(tenant))
    }

    /// Pages of a switch that are held, by index.
    pub fn holds_on(&self, switch: SwitchId) -> impl Iterator<Item = (u32, Hold)> {
        held(self.tables.get(&switch).into_iter().flat_map(Table::iter))
    }

    /// All pages that are held.
    pub fn holds(&self) -> impl Iterator<Item = (PageId, Hold)> {
        held(self.rows())
    }

    /// All pages that are not free.
    pub fn rows(&self) -> impl Iterator<Item = (PageId, PageRow)> {
        self.tables.iter().flat_map(|(&switch, table)| {
            table.iter().map(move |(page, row)| (PageId { switch, page }, row))
        })
    }

    /// How many pages of a switch each tenant has that has any.
    pub fn counts(&self, switch: SwitchId) -> BTreeMap<u32, Count> {
        self.tables.get(&switch).map(Table::counts).unwrap_or_default()
    }

    /// How many pages of a switch a tenant has.
    pub fn count(&self, switch: SwitchId, tenant: u32) -> Count {
        self.tables.get(&switch).map(|table| table.count(tenant)).unwrap_or_default()
    }

    /// How many pages of a switch all tenants have.
    pub fn sum(&self, switch: SwitchId) -> Count {
        self.tables.get(&switch).map(Table::sum).unwrap_or_default()
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
        let of_kind = self.held_on(switch, tenant).filter(|(_, hold)| hold.kind == kind);
        let mut pages: Vec<_> = of_kind
            .map(|(page, hold)| {
                let page = PageId { switch, page };
                (worth(page), Reverse(hold.since_s), Reverse(page))
            })
            .collect();
        pages.sort();
        let pages = pages.into_iter().map(|(_, _, Reverse(page))| page);
        pages.take(n as usize).collect()
    }

    /// Makes pages of a switch leave that a tenant holds, in one new version of its table.
    fn take_where(
        &mut self,
        switch: SwitchId,
        tenant: u32,
        which: impl Fn(u32) -> bool,
    ) -> Vec<PageId> {
        let taken = self.held_on(switch, tenant).filter(|(page, _)| which(*page));
        let taken: Vec<PageId> = taken.map(|(page, _)| PageId { switch, page }).collect();
        let Some(table) = self.tables.get_mut(&switch).filter(|_| !taken.is_empty()) else {
            return vec![];
        };
        table.row.version += 1;
        let leaving = PageRow::Leaving { from: tenant, version: table.row.version };
        taken.iter().for_each(|id| table.set(id.page, Some(leaving)));
        self.dirty_switches.insert(switch);
        self.dirty_pages.extend(&taken);
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
        match table.get(page.page) {
            Some(PageRow::Held(hold)) if hold.tenant == tenant => Ok(()),
            Some(PageRow::Leaving { from, .. }) if from == tenant => {
                Err(LedgerError::ReturnedTwice { page, tenant })
            }
            Some(_) => Err(LedgerError::AnothersPage { page, tenant }),
            None => Err(LedgerError::FreePage { page, tenant }),
        }
    }
}

/// Those of these pages that are held.
fn held<P>(rows: impl Iterator<Item = (P, PageRow)>) -> impl Iterator<Item = (P, Hold)> {
    rows.filter_map(|(page, row)| match row {
        PageRow::Held(hold) => Some((page, hold)),
        PageRow::Leaving { .. } => None,
    })
}
