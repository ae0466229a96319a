//! How often keys were read that are not kept: counts in two rows, of which the lower one counts.

/// Counts of keys, by their hashes.
pub(crate) struct Sketch {
    /// As many counts in each, which is a power of two of at most 2^18: more bits of a hash a row
    /// does not have for itself.
    rows: [Box<[u8]>; 2],
}

impl Sketch {
    /// Nothing was read. Each row has so many counts, rounded up to a power of two within what is
    /// possible.
    pub fn new(counts: usize) -> Sketch {
        let counts = counts.clamp(1 << 10, 1 << 18).next_power_of_two();
        Sketch { rows: [(); 2].map(|()| vec![0; counts].into()) }
    }

    /// Counts in a row. If all are halved after so many reads, few keys share one that is not 0.
    pub fn counts(&self) -> usize {
        self.rows[0].len()
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.rows.iter().map(|row| row.len()).sum()
    }

    /// Counts a read of a key: how many there were. A count that is higher for the sake of other
    /// keys stays as it is, so that no two keys add up.
    pub fn read(&mut self, hash: u64) -> u32 {
        let last = self.counts() - 1;
        let [first, second] = &mut self.rows;
        let first = &mut first[(hash >> 8) as usize & last];
        let second = &mut second[(hash >> 28) as usize & last];
        let reads = (*first).min(*second).saturating_add(1);
        *first = reads.max(*first);
        *second = reads.max(*second);
        reads.into()
    }

    /// Every count is half of what it was.
    pub fn halve(&mut self) {
        self.rows.iter_mut().flat_map(|row| row.iter_mut()).for_each(|count| *count /= 2);
    }
}
