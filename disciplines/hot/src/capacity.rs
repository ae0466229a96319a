//! How many items fit into a tenant's pages on one switch.
//!
//! That depends on the lengths of keys and values, which only the switch knows: the most that could
//! fit is tried, what the switch has no room for lowers it, and time raises it again.

use decide::{ITEMS_PER_PAGE_USUAL, PAGE_START_CELLS};

/// Room for items, as far as it is known.
#[derive(Debug)]
pub struct Capacity {
    max_items: usize,
    pages: usize,
    /// Items that are believed to fit.
    items: usize,
    /// Whether the switch said so; otherwise `items` is the most that could be.
    learnt: bool,
}

impl Capacity {
    /// Room in `pages`, for no more than `max_items`.
    pub fn new(max_items: usize, pages: u32) -> Capacity {
        let mut capacity = Capacity { max_items, pages: pages as usize, items: 0, learnt: false };
        capacity.items = capacity.most();
        capacity
    }

    /// The pages that it is in.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Items that are believed to fit.
    pub fn items(&self) -> usize {
        self.items
    }

    /// More than this are never wanted: with the smallest items, each takes one cell.
    pub fn most(&self) -> usize {
        self.max_items.min(self.pages.saturating_mul(PAGE_START_CELLS))
    }

    /// Items that a page is believed to hold.
    pub fn per_page(&self) -> usize {
        if self.learnt && self.pages > 0 {
            self.items.div_ceil(self.pages).max(1)
        } else {
            ITEMS_PER_PAGE_USUAL
        }
    }

    /// The pages changed while `cached` items were there. Returns how many of them should stay.
    pub fn resize(&mut self, pages: u32, cached: usize) -> usize {
        let before = self.pages.max(1);
        self.learnt &= self.pages > 0;
        self.pages = pages as usize;
        let usual = ITEMS_PER_PAGE_USUAL.max(cached.div_ceil(before));
        let fits = if self.learnt {
            self.items.saturating_mul(self.pages) / before
        } else {
            self.pages.saturating_mul(usual)
        };
        self.items = if self.learnt { fits } else { self.most() }.min(self.most());
        if self.pages < before { fits.min(self.most()) } else { self.most() }
    }

    /// The switch had no room beside `cached` items.
    pub fn no_room(&mut self, cached: usize) {
        self.items = cached.max(1).min(self.most());
        self.learnt = true;
    }

    /// A window ended: perhaps the items have become shorter.
    pub fn window_end(&mut self) {
        self.items = (self.items + self.items / 100 + 1).min(self.most());
        self.learnt &= self.items < self.most();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_shrinks_and_grows_with_the_pages_by_what_was_learnt() {
        let mut capacity = Capacity::new(10_000, 10);
        assert_eq!((capacity.items(), capacity.per_page()), (3840, 128));
        capacity.no_room(400);
        assert_eq!((capacity.items(), capacity.per_page()), (400, 40));
        assert_eq!(capacity.resize(5, 400), 200);
        assert_eq!(capacity.items(), 200);
        assert_eq!(capacity.resize(20, 200), 7680);
        assert_eq!(capacity.items(), 800);
        assert_eq!(capacity.resize(0, 800), 0);
        capacity.resize(1, 0);
        assert_eq!(capacity.items(), 384, "nothing is known of new pages");
    }

    #[test]
    fn without_a_lesson_as_many_per_page_stay_as_were_there_and_at_least_the_usual() {
        assert_eq!(Capacity::new(10_000, 10).resize(5, 300), 640);
        assert_eq!(Capacity::new(10_000, 10).resize(5, 2000), 1000);
    }

    proptest! {
        #[test]
        fn it_is_never_beyond_the_most(max in 0usize..20_000, steps in prop::collection::vec((0u8..3, 0u32..100_000), 0..50)) {
            let mut capacity = Capacity::new(max, 3);
            for (what, n) in steps {
                match what {
                    0 => prop_assert!(capacity.resize(n, n as usize) <= capacity.most()),
                    1 => capacity.no_room(n as usize),
                    _ => capacity.window_end(),
                }
                prop_assert!(capacity.items() <= capacity.most() && capacity.most() <= max);
                prop_assert!(capacity.per_page() > 0);
            }
        }
    }
}
