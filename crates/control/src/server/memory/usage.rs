//! What pages are good for, as their switch last told.

use std::{cmp::Reverse, collections::BTreeMap};

use api::proto::Counters;

/// A page whose items had no request for so many windows is cold.
pub const COLD_AFTER: u64 = 3;

/// One page.
#[derive(Clone, Copy, Debug, Default)]
pub struct PageUse {
    /// Items in it.
    pub items: u32,
    /// Its cells that are in use.
    pub cells: u32,
    /// The last window in which its items had requests, and how many.
    used_in: u64,
    requests: u64,
}

/// The pages of one switch.
#[derive(Debug, Default)]
pub struct Usage {
    /// The window that its last counters were of; none: it told none on this stream.
    told: bool,
    /// The switch is one of the state, and told no counters in this lead.
    restored: bool,
    window: u64,
    pages: BTreeMap<u32, PageUse>,
    /// Share of each tenant's free cells that no item of the usual size could use.
    fragmentation: BTreeMap<u32, f64>,
}

impl Usage {
    /// Of a switch that is remembered.
    pub fn restored() -> Usage {
        Usage { restored: true, ..Usage::default() }
    }

    /// The switch attached: what it told before may not be so any longer.
    pub fn attached(&mut self) {
        self.told = false;
    }

    /// Whether the switch told its counters since it attached.
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// Whether a new lead has not heard yet what the switch's pages are good for: disciplines may
    /// not know either what they want there.
    pub fn is_restored(&self) -> bool {
        self.restored
    }

    /// A window ended on the switch, which has so many pages.
    pub fn counted(&mut self, total: u32, counters: &Counters) {
        (self.told, self.restored, self.window) = (true, false, counters.window);
        let tenants = counters.tenants.iter();
        self.fragmentation = tenants.map(|t| (t.tenant, t.fragmentation)).collect();
        // A page that is not listed holds nothing.
        let before = std::mem::take(&mut self.pages);
        for page in counters.pages.iter().filter(|p| p.page < total) {
            let known = || before.get(&page.page).copied().unwrap_or_default();
            let seen = self.pages.entry(page.page).or_insert_with(known);
            (seen.items, seen.cells) = (page.items, page.cells);
            if page.requests > 0 {
                (seen.used_in, seen.requests) = (self.window, page.requests);
            }
        }
    }

    /// One page; none: it holds nothing, or nothing is known of it.
    pub fn page(&self, page: u32) -> Option<&PageUse> {
        self.pages.get(&page)
    }

    /// Items in a page.
    pub fn items(&self, page: u32) -> u32 {
        self.page(page).map_or(0, |seen| seen.items)
    }

    /// What a page is worth to its tenant: pages with lower ones go first, those that were used
    /// least recently, then those with fewest requests.
    pub fn worth(&self, page: u32) -> (Reverse<u64>, u64) {
        let requests = self.page(page).map_or(0, |seen| seen.requests);
        (Reverse(self.idle_windows(page)), requests)
    }

    /// Windows since a page's items had requests; a page that never had any counts as long idle.
    pub fn idle_windows(&self, page: u32) -> u64 {
        self.page(page).map_or(u64::MAX, |seen| self.window.saturating_sub(seen.used_in))
    }

    /// Share of a tenant's free cells that no item of the usual size could use.
    pub fn fragmentation(&self, tenant: u32) -> f64 {
        self.fragmentation.get(&tenant).copied().unwrap_or(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(window: u64, pages: impl Iterator<Item = u32>, requests: u64) -> Counters {
        let page = |page| api::proto::PageUse { page, items: 1, cells: 3, requests };
        Counters { window, pages: pages.map(page).collect(), ..Counters::default() }
    }

    #[test]
    fn a_page_that_is_not_listed_holds_nothing_and_others_keep_when_they_were_used() {
        let mut usage = Usage::default();
        usage.counted(4, &counters(5, 0..8, 9));
        usage.counted(4, &counters(7, [1, 3].into_iter(), 0));
        assert_eq!((0..8).map(|page| usage.items(page)).sum::<u32>(), 2);
        assert_eq!((usage.idle_windows(1), usage.worth(1)), (2, (Reverse(2), 9)));
        assert_eq!(usage.idle_windows(2), u64::MAX);
    }

    /// A walk through the list for each page would be 2^39 steps: this test would not end.
    #[test]
    fn the_window_of_a_large_switch_costs_as_much_as_it_lists() {
        let (pages, mut usage) = (1 << 20, Usage::default());
        for window in 1..3 {
            usage.counted(pages, &counters(window, 0..pages, window));
        }
        assert_eq!(usage.worth(pages - 1), (Reverse(0), 2));
    }
}
