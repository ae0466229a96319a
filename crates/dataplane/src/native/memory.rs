//! The bytes of one element of an array of a switch in this process. For tests, which put a switch
//! into a state that they could hardly bring about by packets.

use super::Switch;
use crate::maps::local::LocalMap;

/// The memory of one element of an array, for tests: they put a switch into a state and look at
/// what became of it. Nobody may run programs of the switch meanwhile.
pub struct Memory {
    table: LocalMap,
    index: usize,
}

impl Switch {
    /// Element `index` of the array `table`; `None` if there is none.
    pub fn memory(&self, table: &str, index: u32) -> Option<Memory> {
        let table = self.table(table)?;
        (index < table.max_entries()).then_some(Memory { table, index: index as usize })
    }
}

impl Memory {
    fn start(&self, offset: usize, len: usize) -> *mut u8 {
        assert!(offset + len <= self.table.stride(), "within the element");
        // SAFETY: within the element, as was just seen.
        unsafe { self.table.at(self.index).add(offset) }
    }

    /// The bytes from `offset` on.
    ///
    /// # Panics
    /// Beyond the element.
    pub fn read<const LEN: usize>(&self, offset: usize) -> [u8; LEN] {
        let from = self.start(offset, LEN);
        // SAFETY: as many bytes of the element; nobody writes them now.
        unsafe { from.cast::<[u8; LEN]>().read_unaligned() }
    }

    /// Copies the bytes from `offset` on.
    ///
    /// # Panics
    /// Beyond the element.
    pub fn copy_to(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.start(offset, bytes.len());
        // SAFETY: as many bytes of the element; nobody writes them now.
        unsafe { from.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Overwrites the bytes from `offset` on.
    ///
    /// # Panics
    /// Beyond the element.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        let to = self.start(offset, bytes.len());
        // SAFETY: as many bytes of the element; nobody else uses them now.
        unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}
