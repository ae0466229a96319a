use std::collections::BTreeMap;

use crate::layout::{ITEM_MAX_CELLS, PAGE_CELLS, PAGE_START_CELLS};

/// A run of neighbouring cells in one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// Index of the page.
    pub page: u32,
    /// First cell, below 384.
    pub cell: u16,
    /// Number of cells, 1 to 32.
    pub cells: u8,
}

/// Cells that an item of this key and value takes (header, then key and value in whole words); `None` if
/// it is longer than an item can be.
pub fn cells_needed(key_len: usize, value_len: usize) -> Option<u8> {
    const HEADER: usize = 48;
    let bytes = HEADER + key_len.next_multiple_of(8) + value_len.next_multiple_of(8);
    let cells = bytes.div_ceil(crate::layout::CELL_BYTES);
    (cells <= ITEM_MAX_CELLS && value_len <= crate::VALUE_MAX_BYTES).then_some(cells as u8)
}

#[derive(Clone)]
struct PageCells {
    used: [u64; PAGE_CELLS.div_ceil(64)],
    free: u16,
}

impl PageCells {
    fn new() -> PageCells {
        PageCells {
            used: [0; PAGE_CELLS.div_ceil(64)],
            free: PAGE_CELLS as u16,
        }
    }

    fn is_used(&self, cell: usize) -> bool {
        self.used[cell / 64] >> (cell % 64) & 1 == 1
    }

    fn mark(&mut self, place: Place, used: bool) {
        for cell in usize::from(place.cell)..usize::from(place.cell) + usize::from(place.cells) {
            debug_assert_eq!(self.is_used(cell), !used, "cell {cell} of {place:?}");
            self.used[cell / 64] ^= 1 << (cell % 64);
        }
        let cells = u16::from(place.cells);
        self.free = if used {
            self.free - cells
        } else {
            self.free + cells
        };
    }

    /// First fit: items of one size are the common case, and then every fit is a best fit.
    fn find(&self, cells: usize) -> Option<u16> {
        let mut run = 0;
        for cell in 0..PAGE_CELLS {
            run = if self.is_used(cell) { 0 } else { run + 1 };
            if run >= cells {
                let start = cell + 1 - run;
                return (start < PAGE_START_CELLS).then_some(start as u16);
            }
        }
        None
    }
}

/// Which cells of which pages are in use, and whose the pages are. A tenant's items lie on its own pages.
pub struct Cells {
    pages: Vec<PageCells>,
    owner: Vec<Option<u32>>,
    /// Page that a tenant's last item went to: filled before the next is tried (MADINC 3.4.2).
    active: BTreeMap<u32, u32>,
}

impl Cells {
    /// So many pages, all free and nobody's.
    pub fn new(pages: u32) -> Cells {
        let pages = pages as usize;
        Cells {
            pages: vec![PageCells::new(); pages],
            owner: vec![None; pages],
            active: BTreeMap::new(),
        }
    }

    /// Takes `cells` neighbouring cells for `tenant`, on a page of its own or, while it owns fewer than
    /// `quota`, on a free one. `None`: no room.
    pub fn take(&mut self, tenant: u32, quota: u32, cells: u8) -> Option<Place> {
        let active = self.active.get(&tenant).copied();
        let fits = |this: &Cells, page: usize| {
            let page_cells = &this.pages[page];
            if page_cells.free < u16::from(cells) {
                None
            } else {
                page_cells.find(usize::from(cells))
            }
        };
        let own = active
            .into_iter()
            .map(|page| page as usize)
            .chain((0..self.pages.len()).filter(|page| self.owner[*page] == Some(tenant)))
            .find_map(|page| Some((page, fits(self, page)?)));
        let (page, cell) = own.or_else(|| {
            if self.pages_of(tenant) >= quota {
                return None;
            }
            let page = self.owner.iter().position(Option::is_none)?;
            Some((page, 0))
        })?;
        let place = Place {
            page: page as u32,
            cell,
            cells,
        };
        self.mark_used(tenant, place);
        self.active.insert(tenant, place.page);
        Some(place)
    }

    /// Notes a place that is in use already (found in memory after a restart).
    pub fn mark_used(&mut self, tenant: u32, place: Place) {
        self.owner[place.page as usize] = Some(tenant);
        self.pages[place.page as usize].mark(place, true);
    }

    /// Gives a place back. A page without items is nobody's again.
    pub fn give_back(&mut self, place: Place) {
        let page = &mut self.pages[place.page as usize];
        page.mark(place, false);
        if usize::from(page.free) == PAGE_CELLS {
            self.owner[place.page as usize] = None;
            self.active.retain(|_, active| *active != place.page);
        }
    }

    /// Pages that a tenant has items on.
    pub fn pages_of(&self, tenant: u32) -> u32 {
        self.owner
            .iter()
            .filter(|owner| **owner == Some(tenant))
            .count() as u32
    }

    /// Cells in use, of how many.
    pub fn usage(&self) -> (usize, usize) {
        let free: usize = self.pages.iter().map(|page| usize::from(page.free)).sum();
        let all = self.pages.len() * PAGE_CELLS;
        (all - free, all)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_page_holds_128_items_of_a_16_byte_key_and_a_128_byte_value() {
        let cells = cells_needed(16, 128).unwrap();
        assert_eq!(cells, 3);
        let mut all = Cells::new(1);
        let count = std::iter::from_fn(|| all.take(0, 1, cells)).count();
        assert!(count >= 128, "{count}");
    }

    #[test]
    fn items_that_cannot_be_are_refused() {
        assert_eq!(cells_needed(16, 1409), None);
        assert!(cells_needed(250, 1158).is_some());
        assert!(cells_needed(1, 1407).is_some());
    }

    #[test]
    fn a_tenant_stays_within_its_quota_and_off_others_pages() {
        let mut all = Cells::new(3);
        while all.take(1, 1, 3).is_some() {}
        assert_eq!(all.pages_of(1), 1);
        let place = all.take(2, 1, 3).unwrap();
        assert_eq!(place.page, 1);
    }

    proptest! {
        #[test]
        fn no_cell_has_two_owners_and_all_come_back(
            steps in prop::collection::vec((0u32..3, 1u8..=32, any::<bool>(), any::<usize>()), 1..400)
        ) {
            let mut all = Cells::new(4);
            let mut held: Vec<Place> = vec![];
            let mut used = HashSet::new();
            for (tenant, cells, back, which) in steps {
                if back && !held.is_empty() {
                    let place = held.swap_remove(which % held.len());
                    for cell in place.cell..place.cell + u16::from(place.cells) {
                        prop_assert!(used.remove(&(place.page, cell)));
                    }
                    all.give_back(place);
                } else if let Some(place) = all.take(tenant, 2, cells) {
                    prop_assert!(usize::from(place.cell) < PAGE_START_CELLS);
                    for cell in place.cell..place.cell + u16::from(place.cells) {
                        prop_assert!(used.insert((place.page, cell)), "{place:?}");
                    }
                    held.push(place);
                }
            }
            prop_assert_eq!(all.usage().0, used.len());
            for place in held { all.give_back(place); }
            prop_assert_eq!(all.usage().0, 0);
            prop_assert_eq!(all.pages_of(0) + all.pages_of(1) + all.pages_of(2), 0);
        }
    }
}
