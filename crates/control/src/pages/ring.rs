//! A tenant's memory as a ring of switches: which switch takes the next item (MADINC, 3.4.1 and 3.4.2).
//!
//! The thesis takes the next switch of a circular list whenever a page is full, and of that switch the page that
//! was used longest ago. Here too the active page is filled before the next switch is taken. Which of its pages a
//! switch fills is its agent's affair. Unlike the thesis, a switch without room is passed over, so that pages of a
//! switch with few of them are not written over more often than the others.
//!
//! Cost: a switch is found in at most one round; a set of rooms costs its square, for a few dozen switches.

use crate::{Room, SwitchId};

/// Items of the smallest size that one page holds.
pub const ITEMS_PER_PAGE: u64 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Node {
    switch: SwitchId,
    pages: u32,
    items: u64,
    /// Items that fit, where the switch said so; none: as many as its pages hold of the smallest size.
    most: Option<u64>,
}

impl Node {
    fn has_room(&self) -> bool {
        let fits = u64::from(self.pages) * ITEMS_PER_PAGE;
        self.items < self.most.map_or(fits, |most| most.min(fits))
    }
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ring {
    nodes: Vec<Node>,
    active: usize,
    /// Items that the active page still takes.
    left: u64,
}

impl Ring {
    /// A ring without switches.
    pub fn new() -> Ring {
        Ring::default()
    }

    /// Takes the tenant's rooms over, in the order in which they are to be filled. Switches that stay keep their
    /// items; the active one stays active if it is still there.
    pub fn set(&mut self, rooms: &[Room]) {
        let active = self.nodes.get(self.active).map(|n| n.switch);
        let mut nodes: Vec<Node> = Vec::with_capacity(rooms.len());
        for room in rooms {
            if nodes.iter().any(|n| n.switch == room.switch) {
                continue;
            }
            let known = self.nodes.iter().find(|n| n.switch == room.switch);
            nodes.push(Node {
                switch: room.switch,
                pages: room.pages,
                items: known.map_or(0, |n| n.items),
                most: known.filter(|n| n.pages == room.pages).and_then(|n| n.most),
            });
        }
        let stays = active.and_then(|id| nodes.iter().position(|n| n.switch == id));
        self.nodes = nodes;
        self.active = stays.unwrap_or(0);
        if stays.is_none() {
            self.left = ITEMS_PER_PAGE;
        }
    }

    /// The switch that takes the next item, which counts as placed there; none if every page is full.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Option<SwitchId> {
        if self.left == 0 || !self.nodes.get(self.active)?.has_room() {
            let n = self.nodes.len();
            self.active = (1..=n)
                .map(|step| (self.active + step) % n)
                .find(|&i| self.nodes[i].has_room())?;
            self.left = ITEMS_PER_PAGE;
        }
        let node = &mut self.nodes[self.active];
        node.items += 1;
        self.left -= 1;
        Some(node.switch)
    }

    /// The active page is full before [`ITEMS_PER_PAGE`] items, as with large ones: the next item goes to the next
    /// switch. Of a switch that is not the active one: nothing happens.
    pub fn page_full(&mut self, switch: SwitchId) {
        if self
            .nodes
            .get(self.active)
            .is_some_and(|n| n.switch == switch)
        {
            self.left = 0;
        }
    }

    /// So many items of the tenant are on the switch now. Corrects what [`Ring::next`] counted.
    pub fn filled(&mut self, switch: SwitchId, items: u64) {
        if let Some(node) = self.nodes.iter_mut().find(|n| n.switch == switch) {
            node.items = items;
        }
    }

    /// The switch has no room for more than the items that it holds now: it is passed over until
    /// [`Ring::filled`] says that there are fewer, or its pages change.
    pub fn no_room(&mut self, switch: SwitchId) {
        if let Some(node) = self.nodes.iter_mut().find(|n| n.switch == switch) {
            node.most = Some(node.items);
        }
    }

    /// Pages of all switches together.
    pub fn pages(&self) -> u64 {
        self.nodes.iter().map(|n| u64::from(n.pages)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rooms(of: &[(SwitchId, u32)]) -> Vec<Room> {
        let room = |&(switch, pages)| Room {
            switch,
            pages,
            threshold: None,
        };
        of.iter().map(room).collect()
    }

    fn take(ring: &mut Ring, n: u64) -> Vec<SwitchId> {
        (0..n).filter_map(|_| ring.next()).collect()
    }

    #[test]
    fn the_active_page_is_filled_before_the_next_switch_is_taken() {
        let mut ring = Ring::new();
        assert_eq!(ring.next(), None);
        ring.set(&rooms(&[(4, 2), (2, 1)]));
        assert_eq!(take(&mut ring, 128), vec![4; 128]);
        assert_eq!(take(&mut ring, 128), vec![2; 128]);
        // Switch 2 is full: its turn is passed over.
        assert_eq!(take(&mut ring, 128), vec![4; 128]);
        assert_eq!(ring.next(), None);
        ring.filled(2, 127);
        assert_eq!(take(&mut ring, 2), vec![2]);
    }

    #[test]
    fn large_items_fill_pages_early_and_a_full_switch_is_passed_over() {
        let mut ring = Ring::new();
        ring.set(&rooms(&[(1, 2), (2, 2)]));
        assert_eq!(take(&mut ring, 2), vec![1, 1]);
        ring.page_full(2); // not its turn
        ring.page_full(1);
        assert_eq!(take(&mut ring, 2), vec![2, 2]);
        ring.no_room(2);
        assert_eq!(take(&mut ring, 3), vec![1; 3]);
        ring.page_full(1);
        assert_eq!(ring.next(), Some(1));
        ring.filled(2, 1);
        ring.page_full(1);
        assert_eq!(take(&mut ring, 2), vec![2, 1]);
    }

    #[test]
    fn rooms_change_under_way() {
        let mut ring = Ring::new();
        ring.set(&rooms(&[(1, 1), (2, 1)]));
        assert_eq!(take(&mut ring, 129), [vec![1; 128], vec![2]].concat());
        ring.set(&rooms(&[(3, 1), (2, 1), (3, 9)]));
        assert_eq!(ring.pages(), 2);
        assert_eq!(take(&mut ring, 128), [vec![2; 127], vec![3]].concat());
        ring.set(&[]);
        assert_eq!(ring.next(), None);
    }
}
