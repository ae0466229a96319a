//! Whose page is filled next: the switches of a tenant take turns, a page at a time (thesis,
//! 3.4.1).

/// A tenant's switches in a circle, of which one has the active page.
#[derive(Debug, Default)]
pub struct Ring {
    /// Position of the switch with the active page.
    at: usize,
    /// Items that were put on that page.
    filled: usize,
}

impl Ring {
    /// Positions of `len` switches, from the one with the active page on.
    pub fn order(&self, len: usize) -> impl Iterator<Item = usize> + use<> {
        let at = self.at;
        (0..len).map(move |step| (at + step) % len)
    }

    /// An item was put on the switch at `position` of `len`, whose pages hold `per_page`. If it is
    /// not the one with the active page, that one either has no room left (`active_full`) and loses
    /// its turn, or did not see the key.
    pub fn put(&mut self, position: usize, len: usize, per_page: usize, active_full: bool) {
        if position != self.at {
            if !active_full {
                return;
            }
            (self.at, self.filled) = (position, 0);
        }
        self.filled += 1;
        if self.filled >= per_page {
            (self.at, self.filled) = ((position + 1) % len.max(1), 0);
        }
    }

    /// The switches changed: the first one's turn.
    pub fn restart(&mut self) {
        *self = Ring::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts items where the ring says, as long as there is room for `left[n]` on switch n.
    fn fill(left: &mut [usize], per_page: usize, items: usize) -> Vec<usize> {
        let mut ring = Ring::default();
        let mut held = vec![0; left.len()];
        for _ in 0..items {
            let active_full = left[ring.order(left.len()).next().unwrap()] == 0;
            let Some(at) = ring.order(left.len()).find(|&at| left[at] > 0) else { break };
            left[at] -= 1;
            held[at] += 1;
            ring.put(at, left.len(), per_page, active_full);
        }
        held
    }

    #[test]
    fn pages_are_filled_in_turn() {
        assert_eq!(fill(&mut [1280; 3], 128, 1000), [384, 360, 256]);
        assert_eq!(fill(&mut [1280; 2], 128, 1000), [512, 488]);
        assert_eq!(fill(&mut [1280; 3], 128, 100), [100, 0, 0]);
    }

    #[test]
    fn a_full_switch_loses_its_turn() {
        assert_eq!(fill(&mut [256, 128, 512], 128, 2000), [256, 128, 512]);
        assert_eq!(fill(&mut [128, 512], 128, 300), [128, 172]);
    }
}
