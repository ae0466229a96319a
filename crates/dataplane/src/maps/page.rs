//! Which cells of one page are free.

use crate::layout::{ITEM_MAX_CELLS, PAGE_CELLS, PAGE_START_CELLS};

const WORDS: usize = PAGE_CELLS.div_ceil(64);

/// The cells of a page. An item takes neighbouring ones, of which the first is below
/// [`PAGE_START_CELLS`].
#[derive(Clone)]
pub(crate) struct PageCells {
    /// One bit per cell, set if it is free; those behind the page's end are not.
    free: [u64; WORDS],
    used: u16,
    items: u16,
    longest: u8,
}

impl PageCells {
    /// All free.
    pub fn new() -> PageCells {
        let mut free = [u64::MAX; WORDS];
        free[WORDS - 1] = (1 << (PAGE_CELLS % 64)) - 1;
        PageCells { free, used: 0, items: 0, longest: ITEM_MAX_CELLS as u8 }
    }

    /// Cells that are in use.
    pub fn used(&self) -> u16 {
        self.used
    }

    /// Items that use them.
    pub fn items(&self) -> u16 {
        self.items
    }

    /// Cells of the largest item that finds room.
    pub fn longest(&self) -> u8 {
        self.longest
    }

    /// Notes an item's cells as used, which must be free, or as free, which must be used.
    pub fn mark(&mut self, cell: u16, cells: u8, used: bool) {
        let end = (usize::from(cell) + usize::from(cells)).min(PAGE_CELLS);
        for at in usize::from(cell)..end {
            let bit = 1 << (at % 64);
            debug_assert_eq!(self.free[at / 64] & bit != 0, used, "cell {at}");
            if used {
                self.free[at / 64] &= !bit;
            } else {
                self.free[at / 64] |= bit;
            }
        }
        let free: u32 = self.free.iter().map(|word| word.count_ones()).sum();
        self.used = PAGE_CELLS as u16 - free as u16;
        self.items = if used { self.items + 1 } else { self.items.saturating_sub(1) };
        let longest = self.runs().map(|(_, len)| len.min(ITEM_MAX_CELLS)).max();
        self.longest = longest.unwrap_or(0) as u8;
    }

    /// The first run of free cells that an item of `cells` cells fits: its first cell. Items of one
    /// size are the common case, and then every fit is a best fit.
    pub fn find(&self, cells: u8) -> Option<u16> {
        let fits = |(_, len): &(usize, usize)| *len >= usize::from(cells);
        self.runs().find(fits).map(|(start, _)| start as u16)
    }

    /// Items of `cells` cells that there is room for.
    pub fn room(&self, cells: u8) -> usize {
        let items = |(start, len)| fit(start, len, cells.into());
        self.runs().map(items).sum()
    }

    /// Likewise, if all that is used lay together.
    pub fn room_if_packed(&self, cells: u8) -> usize {
        let used = usize::from(self.used);
        fit(used, PAGE_CELLS - used, cells.into()).max(self.room(cells))
    }

    /// Runs of free cells in which an item may start: first cell and length.
    fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.next(at, false);
            if start >= PAGE_START_CELLS {
                return None;
            }
            at = self.next(start, true);
            Some((start, at - start))
        })
    }

    /// The first cell from `at` on that is used, or free; the page's end if none is.
    fn next(&self, at: usize, used: bool) -> usize {
        let flip = if used { u64::MAX } else { 0 };
        let mut mask = u64::MAX << (at % 64);
        for word in at / 64..WORDS {
            let found = (self.free[word] ^ flip) & mask;
            if found != 0 {
                return (word * 64 + found.trailing_zeros() as usize).min(PAGE_CELLS);
            }
            mask = u64::MAX;
        }
        PAGE_CELLS
    }
}

/// Items of `cells` cells, one behind the other, that fit a run.
fn fit(start: usize, len: usize, cells: usize) -> usize {
    if start >= PAGE_START_CELLS || cells == 0 {
        return 0;
    }
    (len / cells).min((PAGE_START_CELLS - 1 - start) / cells + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against the plainest way to say the same, cell by cell.
        #[test]
        fn runs_are_found(items in prop::collection::vec((0u16..384, 1u8..=32), 0..60), cells in 1u8..=32) {
            let (mut page, mut used) = (PageCells::new(), [false; PAGE_CELLS]);
            for (cell, cells) in items {
                let range = usize::from(cell)..usize::from(cell) + usize::from(cells);
                if !used[range.clone()].contains(&true) {
                    page.mark(cell, cells, true);
                    used[range].fill(true);
                }
            }
            let fits = |start: &usize, cells: usize| {
                used.get(*start..*start + cells).is_some_and(|run| !run.contains(&true))
            };
            let first = (0..PAGE_START_CELLS).find(|start| fits(start, cells.into()));
            prop_assert_eq!(page.find(cells).map(usize::from), first);
            let largest = (1..=ITEM_MAX_CELLS).rev().find(|n| (0..PAGE_START_CELLS).any(|s| fits(&s, *n)));
            prop_assert_eq!(usize::from(page.longest()), largest.unwrap_or(0));
            let (mut room, mut at) = (0, 0);
            while at < PAGE_START_CELLS {
                if fits(&at, cells.into()) {
                    room += 1;
                    at += usize::from(cells);
                } else {
                    at += 1;
                }
            }
            prop_assert_eq!(page.room(cells), room);
            prop_assert!(page.room_if_packed(cells) >= room);
        }
    }
}
