//! Pages of one switch that are not free, found by their index and by whose they are: what concerns
//! one tenant costs what that tenant has, however many pages there are.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::{Kind, PageRow, SwitchRow};

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

impl Count {
    /// The part of it that a page in this state belongs to.
    fn part(&mut self, row: &PageRow) -> &mut u32 {
        match row {
            PageRow::Leaving { .. } => &mut self.leaving,
            PageRow::Held(hold) if hold.kind == Kind::Own => &mut self.own,
            PageRow::Held(_) => &mut self.lent,
        }
    }
}

/// What a tenant has of a switch.
#[derive(Debug, Default)]
struct Holding {
    pages: BTreeSet<u32>,
    count: Count,
}

/// The page table of a switch.
#[derive(Debug, Default)]
pub struct Table {
    /// How many pages there are, and the table's version.
    pub row: SwitchRow,
    rows: BTreeMap<u32, PageRow>,
    by_tenant: BTreeMap<u32, Holding>,
    /// Of all tenants.
    sum: Count,
}

impl Table {
    /// Of a switch with so many pages, all free.
    pub fn new(row: SwitchRow) -> Table {
        Table { row, ..Table::default() }
    }

    /// How many pages can be given away now.
    pub fn free(&self) -> u32 {
        self.row.pages.saturating_sub(self.rows.len() as u32)
    }

    /// The state of a page; none: it is free, or does not exist.
    pub fn get(&self, page: u32) -> Option<PageRow> {
        self.rows.get(&page).copied()
    }

    /// All that are not free, by index.
    pub fn iter(&self) -> impl Iterator<Item = (u32, PageRow)> {
        self.rows.iter().map(|(page, row)| (*page, *row))
    }

    /// Those of a tenant, and those that are leaving it, by index.
    pub fn of(&self, tenant: u32) -> impl Iterator<Item = (u32, PageRow)> {
        let pages = self.by_tenant.get(&tenant).into_iter().flat_map(|holding| &holding.pages);
        pages.filter_map(|page| Some((*page, self.get(*page)?)))
    }

    /// How many a tenant has.
    pub fn count(&self, tenant: u32) -> Count {
        self.by_tenant.get(&tenant).map_or_else(Count::default, |holding| holding.count)
    }

    /// The same of each tenant that has any.
    pub fn counts(&self) -> BTreeMap<u32, Count> {
        self.by_tenant.iter().map(|(tenant, holding)| (*tenant, holding.count)).collect()
    }

    /// How many all tenants have.
    pub fn sum(&self) -> Count {
        self.sum
    }

    /// A page is in this state from now on; none: it is free.
    pub fn set(&mut self, page: u32, row: Option<PageRow>) {
        let before = match row {
            Some(row) => self.rows.insert(page, row),
            None => self.rows.remove(&page),
        };
        if let Some(before) = before {
            self.uncount(page, &before);
        }
        if let Some(row) = row {
            let holding = self.by_tenant.entry(row.tenant()).or_default();
            holding.pages.insert(page);
            *holding.count.part(&row) += 1;
            *self.sum.part(&row) += 1;
        }
    }

    /// The switch has so many pages from now on; returns what became of those beyond.
    pub fn resize(&mut self, pages: u32) -> BTreeMap<u32, PageRow> {
        self.row.pages = pages;
        let cut = self.rows.split_off(&pages);
        cut.iter().for_each(|(page, row)| self.uncount(*page, row));
        cut
    }

    fn uncount(&mut self, page: u32, row: &PageRow) {
        *self.sum.part(row) -= 1;
        let Some(holding) = self.by_tenant.get_mut(&row.tenant()) else { return };
        holding.pages.remove(&page);
        *holding.count.part(row) -= 1;
        if holding.pages.is_empty() {
            self.by_tenant.remove(&row.tenant());
        }
    }
}
