//! How often keys were read that are not kept: counts in two rows, of which the lower one counts.

/// Counts in each row.
const ROW: usize = 1 << 10;

/// Counts of keys, by their hashes.
pub(crate) struct Sketch {
    rows: [[u8; ROW]; 2],
}

impl Sketch {
    /// Nothing was read.
    pub fn new() -> Sketch {
        Sketch { rows: [[0; ROW]; 2] }
    }

    /// Counts a read of a key: how many there were.
    pub fn read(&mut self, hash: u64) -> u32 {
        let mut least = u8::MAX;
        for (row, part) in self.rows.iter_mut().zip([hash >> 8, hash >> 36]) {
            let count = &mut row[part as usize % ROW];
            *count = count.saturating_add(1);
            least = least.min(*count);
        }
        least.into()
    }

    /// Every count is half of what it was.
    pub fn halve(&mut self) {
        self.rows.iter_mut().flat_map(|row| row.iter_mut()).for_each(|count| *count /= 2);
    }
}
