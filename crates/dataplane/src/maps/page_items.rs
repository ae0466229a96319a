//! How many items lie on each page and whose they are, counted in the table itself. The status of a
//! switch shows it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::table::HeldItem;

/// Items of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageItems {
    /// The page's index.
    pub page: u32,
    /// The tenant that most of them belong to.
    pub tenant: u32,
    /// How many there are.
    pub items: usize,
    /// Of these, items of other tenants: 0 unless something is broken.
    pub foreign_items: usize,
}

impl PageItems {
    /// Counts what a table holds, page by page; empty pages are left out.
    pub fn of(held: &[HeldItem]) -> Vec<PageItems> {
        let mut pages: BTreeMap<u32, BTreeMap<u32, usize>> = BTreeMap::new();
        for item in held {
            let tenants = pages.entry(item.place.page).or_default();
            *tenants.entry(item.tenant).or_default() += 1;
        }
        let page = |(page, tenants): (u32, BTreeMap<u32, usize>)| {
            let items = tenants.values().sum();
            let (tenant, most) = tenants.into_iter().max_by_key(|(_, n)| *n)?;
            Some(PageItems { page, tenant, items, foreign_items: items - most })
        };
        pages.into_iter().filter_map(page).collect()
    }
}
