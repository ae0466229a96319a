//! Ids of writes. The switches remember the newest write of each slot of a client: a write takes a
//! slot that is free.

use chain_wire::WRITES_MOST as SLOTS;

/// The slots of one client.
pub(super) struct Slots {
    /// Per slot, the id of its next write.
    next: [u64; SLOTS as usize],
    /// Those that no write has.
    free: Vec<u64>,
}

impl Slots {
    /// Ids begin with that number, at least 1, in each slot.
    pub fn from(first: u64) -> Slots {
        Slots {
            next: std::array::from_fn(|slot| first * SLOTS + slot as u64),
            free: (0..SLOTS).rev().collect(),
        }
    }

    /// An id, higher than all before it in its slot; none: every slot has a write.
    pub fn take(&mut self) -> Option<u64> {
        let slot = self.free.pop()?;
        let next = &mut self.next[slot as usize];
        *next += SLOTS;
        Some(*next - SLOTS)
    }

    /// The write with this id has its answer, or is given up.
    pub fn give_back(&mut self, id: u64) {
        self.free.push(id % SLOTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_one_write_at_a_time_and_ids_rise() {
        let mut slots = Slots::from(7);
        let first: Vec<u64> = (0..SLOTS).map(|_| slots.take().unwrap()).collect();
        assert!(slots.take().is_none());
        assert!(first.iter().all(|id| id / SLOTS == 7));
        slots.give_back(first[5]);
        let again = slots.take().unwrap();
        assert_eq!((again % SLOTS, again > first[5]), (first[5] % SLOTS, true));
        assert!(slots.take().is_none());
    }
}
