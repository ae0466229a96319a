//! The agent's own account of pages: which tenant has which page, which cells of it are free, and
//! where a new item goes. The programs know nothing of it.

use std::collections::{BTreeSet, HashMap};

use super::page::PageCells;
use crate::layout::ITEM_MAX_CELLS;

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

/// Cells that an item of this key and value takes (header, then key and value in whole words);
/// `None` if it is longer than an item can be.
pub fn cells_needed(key_len: usize, value_len: usize) -> Option<u8> {
    (value_len <= crate::VALUE_MAX_BYTES).then(|| cells_of(key_len, value_len))?
}

/// Likewise of this key and a record that is given, which may be longer than a value.
pub fn cells_needed_given(key_len: usize, record_len: usize) -> Option<u8> {
    (record_len <= crate::GIVEN_MAX).then(|| cells_of(key_len, record_len))?
}

fn cells_of(key_len: usize, len: usize) -> Option<u8> {
    const HEADER: usize = 48;
    let bytes = HEADER + key_len.next_multiple_of(8) + len.next_multiple_of(8);
    let cells = bytes.div_ceil(crate::layout::CELL_BYTES);
    (cells <= ITEM_MAX_CELLS).then_some(cells as u8)
}

/// What lies on a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageUsage {
    /// Items, those included whose cells are not given back yet.
    pub items: u32,
    /// Cells that they take; an empty page has 415.
    pub cells: u32,
}

/// A page with its owner, and its place in the owner's order.
#[derive(Clone)]
struct Page {
    cells: PageCells,
    owner: Option<u32>,
    /// When it became its owner's, or the active one, last.
    turn: u64,
}

/// A tenant's pages.
struct OwnedPages {
    /// The page that new items go to.
    active: Option<u32>,
    /// By the cells of the largest item that finds room, the least recently taken first:
    /// (turn, page).
    by_room: [BTreeSet<(u64, u32)>; ITEM_MAX_CELLS + 1],
}

impl Default for OwnedPages {
    fn default() -> OwnedPages {
        OwnedPages { active: None, by_room: std::array::from_fn(|_| BTreeSet::new()) }
    }
}

impl OwnedPages {
    fn pages(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_room.iter().flatten().map(|(_, page)| *page)
    }
}

/// Which cells of which pages are in use. Whose a page is, is decided elsewhere and told here: a
/// tenant's items lie on its own pages only.
///
/// Items go to the tenant's active page until it is full, then to the page that was taken least
/// recently of those that have room. Whatever the number of pages, finding room takes a look at one
/// page and at 32 ordered lists.
pub struct Cells {
    pages: Vec<Page>,
    tenants: HashMap<u32, OwnedPages>,
    turns: u64,
}

impl Cells {
    /// So many pages, all free and nobody's.
    pub fn new(pages: u32) -> Cells {
        let page = Page { cells: PageCells::new(), owner: None, turn: 0 };
        Cells { pages: vec![page; pages as usize], tenants: HashMap::new(), turns: 0 }
    }

    /// Gives a page to a tenant, or to nobody. Nothing may lie on a page that changes hands: evict,
    /// let the programs finish, give the places back first. A page that does not exist is ignored.
    pub fn set_owner(&mut self, page: u32, owner: Option<u32>) {
        let Some(at) = self.pages.get(page as usize) else { return };
        if at.owner == owner {
            return;
        }
        debug_assert_eq!(at.cells.items(), 0, "page {page} changes hands with items");
        self.unlist(page);
        if let Some(before) = at_owner(&self.pages, page)
            && let Some(owned) = self.tenants.get_mut(&before)
        {
            owned.active.take_if(|active| *active == page);
            if owned.pages().next().is_none() {
                self.tenants.remove(&before);
            }
        }
        self.turns += 1;
        let at = &mut self.pages[page as usize];
        at.owner = owner;
        at.turn = self.turns;
        self.list(page);
    }

    /// Whose a page is; `None` also if there is no such page.
    pub fn owner(&self, page: u32) -> Option<u32> {
        at_owner(&self.pages, page)
    }

    /// A tenant's pages, in order.
    pub fn pages_of(&self, tenant: u32) -> Vec<u32> {
        let owned = self.tenants.get(&tenant);
        let mut pages: Vec<u32> = owned.into_iter().flat_map(OwnedPages::pages).collect();
        pages.sort_unstable();
        pages
    }

    /// How many pages a tenant has.
    pub fn count_of(&self, tenant: u32) -> usize {
        let owned = self.tenants.get(&tenant);
        owned.map_or(0, |owned| owned.by_room.iter().map(BTreeSet::len).sum())
    }

    /// Takes `cells` neighbouring cells, 1 to 32, on a page of the tenant.
    ///
    /// `None`: none of its pages has so many free in a row where an item may start. Cells may still
    /// be free, in shorter runs: where items are of one size there are none but a page's last 31,
    /// where they are not, up to `(cells - 1) / cells` of a page in the worst case (one cell in use
    /// between any two runs). Then either evict, which makes room by itself where items are alike,
    /// or pack: clear and refill [`Cells::worst_page`].
    pub fn take(&mut self, tenant: u32, cells: u8) -> Option<Place> {
        let owned = self.tenants.get(&tenant)?;
        let lists = owned.by_room.get(usize::from(cells.max(1))..)?;
        let fits = |page: &u32| self.pages[*page as usize].cells.longest() >= cells;
        let next = || {
            let firsts = lists.iter().filter_map(|list| list.first());
            firsts.min().map(|(_, page)| *page)
        };
        let active = owned.active.filter(fits);
        let page = active.or_else(next)?;
        let place = Place {
            page,
            cell: self.pages[page as usize].cells.find(cells.max(1))?,
            cells: cells.max(1),
        };
        if active.is_none() {
            self.unlist(page);
            self.turns += 1;
            self.pages[page as usize].turn = self.turns;
            self.list(page);
            self.tenants.get_mut(&tenant)?.active = Some(page);
        }
        self.mark(place, true);
        Some(place)
    }

    /// Notes a place that is in use already (found in memory after a restart). Its page should have
    /// been given to the item's tenant before.
    pub fn mark_used(&mut self, place: Place) {
        self.mark(place, true);
    }

    /// Gives a place back. The page stays its owner's.
    pub fn give_back(&mut self, place: Place) {
        self.mark(place, false);
    }

    /// What lies on a page; nothing on one that does not exist.
    pub fn usage(&self, page: u32) -> PageUsage {
        let page = self.pages.get(page as usize);
        page.map_or_else(PageUsage::default, |page| PageUsage {
            items: page.cells.items().into(),
            cells: page.cells.used().into(),
        })
    }

    /// The share, 0 to 1, of a tenant's room for items of `cells` cells that is lost because its
    /// free cells are scattered over their pages.
    pub fn fragmentation(&self, tenant: u32, cells: u8) -> f64 {
        let (mut room, mut packed) = (0, 0);
        for page in self.tenants.get(&tenant).into_iter().flat_map(OwnedPages::pages) {
            let page = &self.pages[page as usize].cells;
            room += page.room(cells);
            packed += page.room_if_packed(cells);
        }
        if packed == 0 {
            return 0.0;
        }
        1.0 - room as f64 / packed as f64
    }

    /// The page of the tenant that gains most room for items of `cells` cells if all of its items
    /// are taken off and put back one by one; of equal ones that with the fewest items. `None`: no
    /// page would gain any.
    pub fn worst_page(&self, tenant: u32, cells: u8) -> Option<u32> {
        let pages = self.tenants.get(&tenant)?.pages();
        let gains = pages.filter_map(|page| {
            let of = &self.pages[page as usize].cells;
            let gain = of.room_if_packed(cells) - of.room(cells);
            (gain > 0).then_some((gain, std::cmp::Reverse((of.items(), page))))
        });
        gains.max().map(|(_, std::cmp::Reverse((_, page)))| page)
    }

    fn mark(&mut self, place: Place, used: bool) {
        self.unlist(place.page);
        if let Some(page) = self.pages.get_mut(place.page as usize) {
            page.cells.mark(place.cell, place.cells, used);
        }
        self.list(place.page);
    }

    /// The owner's list that a page belongs in, with its entry there.
    fn listed(&mut self, page: u32) -> Option<(&mut OwnedPages, usize, (u64, u32))> {
        let at = self.pages.get(page as usize)?;
        let owned = self.tenants.entry(at.owner?).or_default();
        Some((owned, at.cells.longest().into(), (at.turn, page)))
    }

    fn list(&mut self, page: u32) {
        if let Some((owned, room, entry)) = self.listed(page) {
            owned.by_room[room].insert(entry);
        }
    }

    fn unlist(&mut self, page: u32) {
        if let Some((owned, room, entry)) = self.listed(page) {
            owned.by_room[room].remove(&entry);
        }
    }
}

fn at_owner(pages: &[Page], page: u32) -> Option<u32> {
    pages.get(page as usize)?.owner
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;
    use crate::layout::PAGE_START_CELLS;

    fn owned_by(tenant: u32, pages: u32) -> Cells {
        let mut all = Cells::new(pages);
        (0..pages).for_each(|page| all.set_owner(page, Some(tenant)));
        all
    }

    #[test]
    fn a_page_holds_128_items_of_a_16_byte_key_and_a_128_byte_value() {
        let cells = cells_needed(16, 128).unwrap();
        assert_eq!(cells, 3);
        let mut all = owned_by(7, 1);
        let count = std::iter::from_fn(|| all.take(7, cells)).count();
        assert_eq!(count, 128);
        let usage = PageUsage { items: 128, cells: 384 };
        assert_eq!(all.usage(0), usage);
    }

    #[test]
    fn items_that_cannot_be_are_refused() {
        assert_eq!(cells_needed(16, 1393), None);
        assert_eq!(cells_needed_given(250, crate::GIVEN_MAX), Some(32));
        assert_eq!(cells_needed_given(1, crate::GIVEN_MAX + 1), None);
        assert!(cells_needed(250, 1142).is_some());
        assert!(cells_needed(1, 1391).is_some());
        assert_eq!(owned_by(7, 1).take(7, 33), None);
    }

    #[test]
    fn pages_are_filled_one_after_the_other_and_then_in_turn() {
        let mut all = owned_by(7, 3);
        let take = |all: &mut Cells| all.take(7, 32).map(|place| place.page);
        let filled: Vec<u32> = std::iter::from_fn(|| take(&mut all)).collect();
        assert_eq!(filled, [[0; 12], [1; 12], [2; 12]].concat());
        // Room on the active page is used first, then that of the page whose turn was longest ago.
        for page in [1, 0, 2] {
            let place = Place { page, cell: 0, cells: 32 };
            all.give_back(place);
        }
        let order: Vec<u32> = std::iter::from_fn(|| take(&mut all)).collect();
        assert_eq!(order, [2, 0, 1]);
    }

    #[test]
    fn a_tenant_stays_on_its_pages() {
        let mut all = Cells::new(3);
        assert_eq!(all.take(1, 3), None, "it has none");
        all.set_owner(1, Some(1));
        all.set_owner(2, Some(2));
        all.set_owner(9, Some(2));
        let places: Vec<Place> = std::iter::from_fn(|| all.take(1, 3)).collect();
        assert!(places.len() == 128 && places.iter().all(|place| place.page == 1));
        for place in places {
            all.give_back(place);
        }
        all.set_owner(1, None);
        assert_eq!(all.take(1, 3), None);
        all.set_owner(1, Some(2));
        assert_eq!((all.pages_of(1), all.pages_of(2)), (vec![], vec![1, 2]));
        assert_eq!((all.owner(0), all.owner(1), all.owner(9)), (None, Some(2), None));
    }

    #[test]
    fn what_is_scattered_is_measured_and_named() {
        let mut all = owned_by(7, 2);
        let places: Vec<Place> = std::iter::from_fn(|| all.take(7, 3)).collect();
        assert_eq!(all.fragmentation(7, 3), 0.0);
        for place in places.iter().filter(|p| p.page == 1).step_by(2) {
            all.give_back(*place);
        }
        assert_eq!(all.fragmentation(7, 3), 0.0, "items alike lose nothing");
        assert_eq!((all.take(7, 6), all.fragmentation(7, 6)), (None, 1.0));
        assert_eq!(all.worst_page(7, 6), Some(1));
        assert_eq!(all.worst_page(7, 3), None);
    }

    proptest! {
        #[test]
        fn no_cell_has_two_owners_and_all_come_back(
            steps in prop::collection::vec((0u32..3, 1u8..=32, 0u8..5, any::<usize>()), 1..400)
        ) {
            let mut all = Cells::new(6);
            let mut held: Vec<(u32, Place)> = vec![];
            let mut used = HashSet::new();
            let cells_of = |p: Place| (p.cell..p.cell + u16::from(p.cells)).map(move |cell| (p.page, cell));
            for (tenant, cells, what, which) in steps {
                let page = (which % 6) as u32;
                if what == 0 && !held.is_empty() {
                    let (_, place) = held.swap_remove(which % held.len());
                    for cell in cells_of(place) {
                        prop_assert!(used.remove(&cell));
                    }
                    all.give_back(place);
                } else if what == 1 && all.usage(page).items == 0 {
                    all.set_owner(page, Some(tenant).filter(|_| cells > 4));
                } else if let Some(place) = all.take(tenant, cells) {
                    prop_assert!(usize::from(place.cell) < PAGE_START_CELLS);
                    prop_assert_eq!(all.owner(place.page), Some(tenant));
                    prop_assert_eq!(place.cells, cells);
                    for cell in cells_of(place) {
                        prop_assert!(used.insert(cell), "{:?}", place);
                    }
                    held.push((tenant, place));
                } else {
                    // Failed: nowhere on its pages are so many free in a row.
                    for page in all.pages_of(tenant) {
                        let run = |start: &u16| {
                            (*start..*start + u16::from(cells)).all(|cell| cell < 415 && !used.contains(&(page, cell)))
                        };
                        prop_assert_eq!((0..PAGE_START_CELLS as u16).find(run), None);
                    }
                }
            }
            let in_use: u32 = (0..6).map(|page| all.usage(page).cells).sum();
            prop_assert_eq!(in_use as usize, used.len());
            for (tenant, place) in held {
                prop_assert_eq!(all.owner(place.page), Some(tenant));
                all.give_back(place);
            }
            prop_assert!((0..6).all(|page| all.usage(page) == PageUsage::default()));
        }

        #[test]
        fn clearing_and_refilling_the_worst_page_makes_room(
            steps in prop::collection::vec((1u8..=12, any::<bool>(), any::<usize>()), 100..400), cells in 1u8..=32
        ) {
            let mut all = owned_by(7, 2);
            let mut held: Vec<Place> = vec![];
            for (cells, back, which) in steps {
                if back && !held.is_empty() {
                    all.give_back(held.swap_remove(which % held.len()));
                } else {
                    held.extend(all.take(7, cells));
                }
            }
            while let Some(place) = all.take(7, cells) {
                held.push(place);
            }
            let Some(page) = all.worst_page(7, cells) else { return Ok(()) };
            prop_assert!(all.fragmentation(7, cells) > 0.0);
            let (moved, _): (Vec<_>, Vec<_>) = held.into_iter().partition(|place| place.page == page);
            moved.iter().for_each(|place| all.give_back(*place));
            for place in moved {
                prop_assert!(all.take(7, place.cells).is_some());
            }
            prop_assert!(all.take(7, cells).is_some());
        }
    }
}
